//! The heavy local page that both browsers show: what it shows is a function of the seed and of the keys pressed.

use super::ContextAction;
use crate::error::Result;
use crate::site::Site;
use std::ffi::OsString;

const PAGE: &str = include_str!("web_page.html");

/// The page's title once it can be used.
pub const READY_TITLE: &str = "ready";
/// The key that the page answers with a new ranking.
pub const ANSWER_KEY: &str = "n";
/// What a person does on the page.
pub const CONTEXTS: &[ContextAction] = &[
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
];

/// Writes the page and returns its address.
pub fn write(site: &Site<'_>) -> Result<OsString> {
    let text = PAGE.replace("/*SEED*/1", &(site.seed % 1_000_000).to_string());
    site.write("page.html", text)?;
    let mut address = OsString::from("file://");
    address.push(site.path("page.html"));
    Ok(address)
}
