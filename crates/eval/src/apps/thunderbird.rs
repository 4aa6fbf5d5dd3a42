//! Thunderbird with a folder of long messages, and without an account.

use super::{App, Content, ContextAction, mozilla};
use crate::content::{prose, word};
use crate::error::Result;
use crate::random::Random;
use crate::site::{Site, words};
use std::ffi::OsString;
use std::fmt::Write;

/// The mail program.
pub const THUNDERBIRD: App = App {
    name: "thunderbird",
    packages: &["thunderbird"],
    executable: "thunderbird",
    version_command: &["thunderbird", "--version"],
    content: Content::Made(prepare),
    environment: &[],
    window_class: "thunderbird",
    ready_title: "Letters",
    click_first: true,
    // The next message, which is not at the end: the folder holds more than a run asks for.
    answer_key: "f",
    contexts: &[
        ContextAction {
            name: "read_on",
            keys: &["f", "f", "f"],
        },
        ContextAction {
            name: "read_back",
            keys: &["b", "b"],
        },
        ContextAction {
            name: "star",
            keys: &["s"],
        },
        ContextAction {
            name: "mark_as_read",
            keys: &["f", "m"],
        },
        ContextAction {
            name: "larger_letters",
            keys: &["ctrl+equal"],
        },
        ContextAction {
            name: "usual_letters",
            keys: &["ctrl+0"],
        },
    ],
};

fn prepare(site: &Site<'_>) -> Result<Vec<OsString>> {
    const MESSAGES: usize = 1_500;
    site.write("profile/user.js", mozilla::user_js(PREFERENCES))?;
    site.write("profile/session.json", SESSION)?;
    site.write("profile/folderTree.json", FOLDER_TREE)?;
    let folder = mbox(&mut site.random(), MESSAGES);
    site.write("profile/Mail/Local Folders/Letters", folder)?;
    let mut command = words(&["thunderbird", "--no-remote", "--profile"]);
    command.push(site.path("profile"));
    Ok(command)
}

/// A folder of so many HTML messages, in the mbox format with Mozilla's status lines.
fn mbox(random: &mut Random, messages: usize) -> String {
    const SECTIONS: usize = 6;
    let mut text = String::new();
    for i in 0..messages {
        let (from, subject) = (word(random), prose(random, 8));
        let (day, hour, minute) = (1 + i % 28, i % 24, i % 60);
        let _ = write!(
            text,
            "From - Mon Jan  1 00:00:00 2024\nX-Mozilla-Status: 0000\nX-Mozilla-Status2: 00000000\n\
             From: {from} <{from}@example.org>\nTo: me <me@example.org>\nSubject: {i} {subject}\n\
             Date: {day} Jan 2024 {hour:02}:{minute:02}:00 +0000\nMessage-ID: <{i}@example.org>\nMIME-Version: 1.0\n\
             Content-Type: text/html; charset=utf-8\n\n<html><body>\n"
        );
        for _ in 0..SECTIONS {
            let colour = random.below(1 << 23);
            let _ = writeln!(
                text,
                "<h3>{}</h3><p style=\"color: #{colour:06x}\">{}</p>",
                word(random),
                prose(random, 80)
            );
        }
        text += "</body></html>\n\n";
    }
    text
}

/// The one tab, with the folder in it.
const SESSION: &str = r#"{"rev":0,"windows":[{"type":"3pane","tabs":{"rev":0,"selectedIndex":0,"tabs":[
{"mode":"mail3PaneTab","state":{"firstTab":true,"folderPaneVisible":true,"messagePaneVisible":true,
"folderURI":"mailbox://nobody@Local%20Folders/Letters"}}]}}]}
"#;

const FOLDER_TREE: &str = r#"{"open":{"all":["mailbox://nobody@Local%20Folders"]}}
"#;

const PREFERENCES: &[(&str, &str)] = &[
    ("app.donation.eoy.version.viewed", "999"),
    ("calendar.integration.notify", "false"),
    ("mail.account.account1.server", "\"server1\""),
    ("mail.accountmanager.accounts", "\"account1\""),
    ("mail.accountmanager.defaultaccount", "\"account1\""),
    ("mail.accountmanager.localfoldersserver", "\"server1\""),
    ("mail.inappnotifications.enabled", "false"),
    ("mail.prompt_purge_threshhold", "false"),
    ("mail.provider.suppress_dialog_on_startup", "true"),
    ("mail.rights.version", "1"),
    (
        "mail.server.server1.directory-rel",
        "\"[ProfD]Mail/Local Folders\"",
    ),
    ("mail.server.server1.hostname", "\"Local Folders\""),
    ("mail.server.server1.name", "\"Local Folders\""),
    ("mail.server.server1.type", "\"none\""),
    ("mail.server.server1.userName", "\"nobody\""),
    ("mail.shell.checkDefaultClient", "false"),
    ("mail.spotlight.firstRunDone", "true"),
    ("mailnews.database.global.indexer.enabled", "false"),
    ("mailnews.mark_message_read.auto", "false"),
    ("mailnews.start_page.enabled", "false"),
    ("mailnews.start_page_override.mstone", "\"ignore\""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_holds_its_messages() {
        let text = mbox(&mut Random::new(1), 3);
        let begins = text.lines().filter(|line| line.starts_with("From - "));
        assert_eq!(begins.count(), 3);
        assert_eq!(text.matches("</html>").count(), 3);
        for json in [SESSION, FOLDER_TREE] {
            assert!(serde_json::from_str::<serde_json::Value>(json).is_ok());
        }
    }
}
