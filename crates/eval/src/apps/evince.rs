//! Evince with a long document of text, drawings and pictures.

use super::{App, Content, ContextAction};
use crate::content::{prose, word};
use crate::error::Result;
use crate::random::Random;
use crate::site::{Site, words};
use std::ffi::OsString;
use std::fmt::Write;

/// The document viewer.
pub const EVINCE: App = App {
    name: "evince",
    packages: &["evince"],
    executable: "evince",
    version_command: &["evince", "--version"],
    content: Content::Made(prepare),
    // Settings of its own, not the person's, and none that are kept.
    environment: &[("GSETTINGS_BACKEND", "memory")],
    window_class: "vince",
    ready_title: "document.pdf",
    click_first: true,
    // Ten pages on, which is not at the end: people begin again now and then.
    answer_key: "shift+Next",
    contexts: &[
        ContextAction {
            name: "read_on",
            keys: &["n", "n", "n"],
        },
        ContextAction {
            name: "read_back",
            keys: &["p", "p"],
        },
        ContextAction {
            name: "begin",
            keys: &["ctrl+Home"],
        },
        ContextAction {
            name: "scroll",
            keys: &["space"],
        },
        ContextAction {
            name: "closer",
            keys: &["ctrl+equal"],
        },
        ContextAction {
            name: "page_width",
            keys: &["w"],
        },
        ContextAction {
            name: "whole_page",
            keys: &["f"],
        },
    ],
};

fn prepare(site: &Site<'_>) -> Result<Vec<OsString>> {
    const PAGES: usize = 800;
    site.write("document.pdf", pdf(&mut site.random(), PAGES))?;
    let mut command = words(&["evince"]);
    command.push(site.path("document.pdf"));
    Ok(command)
}

/// Objects of the document before the pages.
const PICTURES: usize = 40;
const FIRST_PICTURE: usize = 4;
const FIRST_PAGE: usize = FIRST_PICTURE + PICTURES;

/// A document of so many pages, each with text, shapes and a picture (PDF 1.4, nothing compressed).
fn pdf(random: &mut Random, pages: usize) -> Vec<u8> {
    let kids: String = (0..pages)
        .map(|i| format!("{} 0 R ", FIRST_PAGE + 2 * i))
        .collect();
    let mut objects: Vec<Vec<u8>> = vec![
        b"<</Type/Catalog/Pages 2 0 R>>".to_vec(),
        format!("<</Type/Pages/Count {pages}/Kids[{kids}]>>").into_bytes(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Times-Roman>>".to_vec(),
    ];
    objects.extend((0..PICTURES).map(|_| picture(random)));
    for i in 0..pages {
        let (content, picture) = (FIRST_PAGE + 2 * i + 1, FIRST_PICTURE + i % PICTURES);
        let page = format!(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents {content} 0 R\
             /Resources<</Font<</F 3 0 R>>/XObject<</P {picture} 0 R>>>>>>"
        );
        objects.push(page.into_bytes());
        let drawn = page_content(random, i);
        objects.push(stream("", drawn.as_bytes()));
    }
    whole(&objects)
}

/// Header, objects numbered from 1, cross-reference table and trailer.
fn whole(objects: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"%PDF-1.4\n".to_vec();
    let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for (i, object) in objects.iter().enumerate() {
        let _ = writeln!(table, "{:010} 00000 n ", bytes.len());
        bytes.extend(format!("{} 0 obj\n", i + 1).into_bytes());
        bytes.extend(object);
        bytes.extend(b"\nendobj\n");
    }
    let trailer = format!(
        "{table}trailer\n<</Size {}/Root 1 0 R>>\nstartxref\n{}\n%%EOF\n",
        objects.len() + 1,
        bytes.len()
    );
    bytes.extend(trailer.into_bytes());
    bytes
}

fn stream(entries: &str, contents: &[u8]) -> Vec<u8> {
    let mut bytes = format!("<<{entries}/Length {}>>stream\n", contents.len()).into_bytes();
    bytes.extend(contents);
    bytes.extend(b"\nendstream");
    bytes
}

fn picture(random: &mut Random) -> Vec<u8> {
    const WIDTH: usize = 480;
    const HEIGHT: usize = 320;
    let steps = [0; 3].map(|_| 1 + random.below(7));
    let mut pixels = Vec::with_capacity(WIDTH * HEIGHT * 3);
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            let grain = random.below(8);
            pixels.extend(steps.map(|step| ((x * step / 2 + y * (8 - step)) % 248 + grain) as u8));
        }
    }
    let entries = format!(
        "/Type/XObject/Subtype/Image/Width {WIDTH}/Height {HEIGHT}/ColorSpace/DeviceRGB/BitsPerComponent 8"
    );
    stream(&entries, &pixels)
}

fn page_content(random: &mut Random, number: usize) -> String {
    const LINES: usize = 34;
    const SHAPES: usize = 60;
    let mut text = format!(
        "BT /F 24 Tf 60 780 Td ({} {}) Tj ET\nBT /F 9 Tf 14 TL 60 750 Td\n",
        number + 1,
        word(random)
    );
    for _ in 0..LINES {
        let _ = writeln!(text, "({}) Tj T*", prose(random, 16));
    }
    text += "ET\n";
    for _ in 0..SHAPES {
        let mut below = |bound: usize| random.below(bound);
        let _ = writeln!(
            text,
            "0.{} 0.{} 0.{} rg {} {} {} {} re f",
            below(10),
            below(10),
            below(10),
            60 + below(200),
            40 + below(200),
            5 + below(30),
            5 + below(30)
        );
    }
    text + "q 240 0 0 160 300 60 cm /P Do Q\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_where_the_table_says() {
        let bytes = pdf(&mut Random::new(1), 5);
        let text = String::from_utf8_lossy(&bytes[bytes.len() - 4_000..]).into_owned();
        let start: usize = text
            .rsplit_once("startxref\n")
            .and_then(|(_, end)| end.lines().next()?.parse().ok())
            .unwrap();
        let table = String::from_utf8_lossy(&bytes[start..]).into_owned();
        let mut offsets = table
            .lines()
            .skip(3)
            .map_while(|line| line.split(' ').next()?.parse().ok());
        let mut objects = 0;
        for offset in offsets.by_ref().map(|o: usize| o) {
            objects += 1;
            assert!(bytes[offset..].starts_with(format!("{objects} 0 obj\n").as_bytes()));
        }
        assert_eq!(objects, FIRST_PAGE - 1 + 2 * 5);
    }
}
