//! Firefox with one heavy local page.

use super::{App, Content, mozilla, web_page};
use crate::error::Result;
use crate::site::{Site, words};
use std::ffi::OsString;

/// The browser.
pub const FIREFOX: App = App {
    name: "firefox",
    packages: &["firefox-esr"],
    executable: "firefox-esr",
    version_command: &["firefox-esr", "--version"],
    content: Content::Made(prepare),
    environment: &[],
    window_class: "firefox",
    ready_title: web_page::READY_TITLE,
    click_first: true,
    answer_key: web_page::ANSWER_KEY,
    contexts: web_page::CONTEXTS,
};

fn prepare(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write("profile/user.js", mozilla::user_js(PREFERENCES))?;
    let mut command = words(&["firefox-esr", "--no-remote", "--profile"]);
    command.extend([site.path("profile"), web_page::write(site)?]);
    Ok(command)
}

const PREFERENCES: &[(&str, &str)] = &[
    ("browser.aboutwelcome.enabled", "false"),
    ("browser.newtabpage.enabled", "false"),
    ("browser.preonboarding.enabled", "false"),
    ("browser.region.network.url", "\"\""),
    ("browser.safebrowsing.downloads.enabled", "false"),
    ("browser.safebrowsing.malware.enabled", "false"),
    ("browser.safebrowsing.phishing.enabled", "false"),
    ("browser.search.update", "false"),
    ("browser.sessionstore.resume_from_crash", "false"),
    ("browser.shell.checkDefaultBrowser", "false"),
    ("browser.startup.homepage_override.mstone", "\"ignore\""),
    ("browser.startup.page", "0"),
    ("browser.tabs.firefox-view", "false"),
    // Otherwise it would drop its page when it sees that memory is short.
    ("browser.tabs.unloadOnLowMemory", "false"),
];
