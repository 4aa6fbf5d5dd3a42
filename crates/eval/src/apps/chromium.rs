//! Chromium with one heavy local page.

use super::{App, ContextAction};
use crate::display::session::Places;
use crate::error::{Context, Result};
use std::ffi::OsString;
use std::fs;

const PAGE: &str = include_str!("chromium_page.html");

/// The browser.
pub const CHROMIUM: App = App {
    name: "chromium",
    package: "chromium",
    version_command: &["chromium", "--version"],
    prepare,
    // Without keys of its own the browser would show a bar that says so.
    environment: &[
        ("GOOGLE_API_KEY", "no"),
        ("GOOGLE_DEFAULT_CLIENT_ID", "no"),
        ("GOOGLE_DEFAULT_CLIENT_SECRET", "no"),
    ],
    window_class: "hromium",
    ready_title: "ready",
    ready_limit_ms: 60_000,
    click_first: true,
    answer_key: "n",
    contexts: &[
        ContextAction {
            name: "article",
            keys: &["a"],
        },
        ContextAction {
            name: "scroll",
            keys: &["s", "s"],
        },
        ContextAction {
            name: "gallery",
            keys: &["g"],
        },
        ContextAction {
            name: "outline",
            keys: &["o"],
        },
        ContextAction {
            name: "search_mo",
            keys: &["/", "m", "o", "Return"],
        },
        ContextAction {
            name: "search_ka",
            keys: &["/", "k", "a", "Return"],
        },
    ],
};

fn prepare(places: &Places, instance: &str, seed: u64) -> Result<Vec<OsString>> {
    let directory = places.disk.join(format!("chromium-{instance}"));
    fs::create_dir_all(&directory).context("make", directory.display())?;
    let page = directory.join("page.html");
    let text = PAGE.replace("/*SEED*/1", &(seed % 1_000_000).to_string());
    fs::write(&page, text).context("write", page.display())?;
    let mut profile = OsString::from("--user-data-dir=");
    profile.push(directory.join("profile"));
    let mut url = OsString::from("file://");
    url.push(&page);
    let mut command: Vec<OsString> = FLAGS.iter().map(OsString::from).collect();
    command.push(profile);
    command.push(url);
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
