//! Chromium with one heavy local page.

use super::{App, Content, web_page};
use crate::error::Result;
use crate::site::{Site, words};
use std::ffi::OsString;

/// The browser.
pub const CHROMIUM: App = App {
    name: "chromium",
    packages: &["chromium"],
    executable: "chromium",
    version_command: &["chromium", "--version"],
    content: Content::Made(prepare),
    // Without keys of its own the browser would show a bar that says so.
    environment: &[
        ("GOOGLE_API_KEY", "no"),
        ("GOOGLE_DEFAULT_CLIENT_ID", "no"),
        ("GOOGLE_DEFAULT_CLIENT_SECRET", "no"),
    ],
    window_class: "hromium",
    ready_title: web_page::READY_TITLE,
    click_first: true,
    answer_key: web_page::ANSWER_KEY,
    contexts: web_page::CONTEXTS,
};

fn prepare(site: &Site<'_>) -> Result<Vec<OsString>> {
    let mut profile = OsString::from("--user-data-dir=");
    profile.push(site.path("profile"));
    let mut command = words(FLAGS);
    command.extend([profile, web_page::write(site)?]);
    Ok(command)
}

/// What keeps the browser from doing things of its own during a measurement, and nothing that changes its memory.
const FLAGS: &[&str] = &[
    "chromium",
    // The sandbox refuses root; --test-type hides the bar that warns of it.
    "--no-sandbox",
    "--test-type",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--disable-gpu",
    "--disable-domain-reliability",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-search-engine-choice-screen",
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider,PrivacySandboxSettings4",
    "--metrics-recording-only",
    "--no-pings",
    "--password-store=basic",
    "--use-mock-keychain",
    "--noerrdialogs",
    "--allow-file-access-from-files",
];
