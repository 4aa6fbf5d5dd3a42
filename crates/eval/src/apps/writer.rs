//! LibreOffice Writer with a long document of text, tables and pictures.

use super::{App, Content, ContextAction};
use crate::content::{prose, word};
use crate::error::Result;
use crate::random::Random;
use crate::site::{Site, words};
use std::ffi::OsString;
use std::fmt::Write;

/// The office suite.
pub const WRITER: App = App {
    name: "writer",
    packages: &["libreoffice-writer", "libreoffice-gtk3"],
    // What shows its windows: without that there is a soffice, too.
    executable: "/usr/lib/libreoffice/program/libvclplug_gtk3lo.so",
    version_command: &["soffice", "--version"],
    content: Content::Made(prepare),
    environment: &[("SAL_USE_VCLPLUGIN", "gtk3")],
    window_class: "ibreoffice",
    ready_title: "document",
    click_first: false,
    // The next page, which is not at the end: the document has more than a run asks for.
    answer_key: "Next",
    contexts: &[
        ContextAction {
            name: "read_on",
            keys: &["Next", "Next", "Next", "Next"],
        },
        ContextAction {
            name: "read_back",
            keys: &["Prior", "Prior"],
        },
        ContextAction {
            name: "begin",
            keys: &["ctrl+Home"],
        },
        ContextAction {
            name: "write",
            keys: &["l", "u", "k", "a", "space"],
        },
        ContextAction {
            name: "undo",
            keys: &["ctrl+z"],
        },
        ContextAction {
            name: "bold",
            keys: &["shift+Down", "ctrl+b", "Down"],
        },
    ],
};

fn prepare(site: &Site<'_>) -> Result<Vec<OsString>> {
    const SECTIONS: usize = 150;
    let installation = site.path("installation");
    site.write("installation/user/registrymodifications.xcu", SETTINGS)?;
    site.write("document.fodt", document(&mut site.random(), SECTIONS))?;
    let mut place = OsString::from("-env:UserInstallation=file://");
    place.push(installation);
    let mut command = words(&["soffice"]);
    command.push(place);
    command.extend(words(&["--nologo", "--norestore", "--writer"]));
    command.push(site.path("document.fodt"));
    Ok(command)
}

/// A document of sections, each a heading, text, a table and a picture, in LibreOffice's flat XML.
fn document(random: &mut Random, sections: usize) -> String {
    let mut body = String::new();
    for i in 0..sections {
        let _ = write!(
            body,
            "<text:h text:outline-level=\"1\">{} {}</text:h>",
            i + 1,
            word(random)
        );
        for _ in 0..3 {
            let _ = write!(body, "<text:p>{}</text:p>", prose(random, 96));
        }
        table(&mut body, random, i);
        let _ = write!(
            body,
            "<text:p><draw:frame draw:name=\"picture {i}\" text:anchor-type=\"as-char\" svg:width=\"12cm\" svg:height=\"8cm\">\
             <draw:image><office:binary-data>{}</office:binary-data></draw:image></draw:frame></text:p>",
            base64(&bitmap(random))
        );
    }
    let namespaces: String = NAMESPACES
        .iter()
        .map(|(name, kind)| {
            format!(" xmlns:{name}=\"urn:oasis:names:tc:opendocument:xmlns:{kind}:1.0\"")
        })
        .collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<office:document{namespaces} office:version=\"1.3\" \
         office:mimetype=\"application/vnd.oasis.opendocument.text\">\
         <office:body><office:text>{body}</office:text></office:body></office:document>\n"
    )
}

const NAMESPACES: [(&str, &str); 5] = [
    ("office", "office"),
    ("text", "text"),
    ("table", "table"),
    ("draw", "drawing"),
    ("svg", "svg-compatible"),
];

fn table(body: &mut String, random: &mut Random, number: usize) {
    const ROWS: usize = 6;
    const COLUMNS: usize = 4;
    let _ = write!(
        body,
        "<table:table table:name=\"table {number}\"><table:table-column table:number-columns-repeated=\"{COLUMNS}\"/>"
    );
    for _ in 0..ROWS {
        *body += "<table:table-row>";
        for _ in 0..COLUMNS {
            let _ = write!(
                body,
                "<table:table-cell><text:p>{}</text:p></table:table-cell>",
                word(random)
            );
        }
        *body += "</table:table-row>";
    }
    *body += "</table:table>";
}

/// A picture of bands, as a Windows bitmap.
fn bitmap(random: &mut Random) -> Vec<u8> {
    const WIDTH: u32 = 240;
    const HEIGHT: u32 = 160;
    const HEADER_BYTES: u32 = 54;
    const DATA_BYTES: u32 = WIDTH * HEIGHT * 3;
    let mut bytes = b"BM".to_vec();
    for word in [
        HEADER_BYTES + DATA_BYTES,
        0,
        HEADER_BYTES,
        // From here on the information header: its size, the picture's, one plane of 24 bits, not compressed.
        40,
        WIDTH,
        HEIGHT,
        1 | 24 << 16,
        0,
        DATA_BYTES,
        0,
        0,
        0,
        0,
    ] {
        bytes.extend(word.to_le_bytes());
    }
    let steps = [0; 3].map(|_| 1 + random.below(7) as u32);
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            let grain = random.below(8) as u32;
            let colour = |step: u32| ((x * step / 2 + y * (8 - step)) % 248 + grain) as u8;
            bytes.extend(steps.map(colour));
        }
    }
    bytes
}

/// Base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let symbol = ALPHABET[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= three.len() {
                symbol as char
            } else {
                '='
            });
        }
    }
    text
}

/// No first run, no tips, nothing saved or checked by itself. No toolbar of tables, which would come and go with the caret,
/// nor of formats, whose state a timer of 400 ms brings up to date long after the document is drawn.
const SETTINGS: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry" xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
<item oor:path="/org.openoffice.Office.Common/Misc"><prop oor:name="FirstRun" oor:op="fuse"><value>false</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Misc"><prop oor:name="ShowTipOfTheDay" oor:op="fuse"><value>false</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Misc"><prop oor:name="CrashReport" oor:op="fuse"><value>false</value></prop></item>
<item oor:path="/org.openoffice.Office.Recovery/AutoSave"><prop oor:name="Enabled" oor:op="fuse"><value>false</value></prop></item>
<item oor:path="/org.openoffice.Setup/Office"><prop oor:name="ooSetupInstCompleted" oor:op="fuse"><value>true</value></prop></item>
<item oor:path="/org.openoffice.Setup/Product"><prop oor:name="ooSetupLastVersion" oor:op="fuse"><value>99.9</value></prop></item>
<item oor:path="/org.openoffice.Office.Linguistic/SpellChecking"><prop oor:name="IsSpellAuto" oor:op="fuse"><value>false</value></prop></item>
<item oor:path="/org.openoffice.Office.UI.WriterWindowState/UIElements/States/org.openoffice.Office.UI.WindowState:WindowStateType['private:resource/toolbar/textobjectbar']"><prop oor:name="Visible" oor:op="fuse"><value>false</value></prop></item>
<item oor:path="/org.openoffice.Office.UI.WriterWindowState/UIElements/States/org.openoffice.Office.UI.WindowState:WindowStateType['private:resource/toolbar/tableobjectbar']"><prop oor:name="ContextActive" oor:op="fuse"><value>false</value></prop><prop oor:name="Visible" oor:op="fuse"><value>false</value></prop></item>
</oor:items>
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_known_values() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_bitmap_is_as_long_as_it_says() {
        let bytes = bitmap(&mut Random::new(1));
        let said = u32::from_le_bytes(bytes[2..6].try_into().unwrap());
        assert_eq!(bytes.len(), said as usize);
    }

    #[test]
    fn a_document_holds_every_section() {
        let text = document(&mut Random::new(1), 3);
        for of_section in ["<text:h ", "<table:table ", "<draw:image>"] {
            assert_eq!(text.matches(of_section).count(), 3, "{of_section}");
        }
    }
}
