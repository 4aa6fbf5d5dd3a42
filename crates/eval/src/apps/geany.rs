//! Geany with many source files open.

use super::{App, Content, ContextAction};
use crate::content::c_source;
use crate::error::Result;
use crate::site::{Site, words};
use std::ffi::OsString;

/// The editor.
pub const GEANY: App = App {
    name: "geany",
    packages: &["geany"],
    executable: "geany",
    version_command: &["geany", "--version"],
    content: Content::Made(prepare),
    environment: &[],
    window_class: "eany",
    ready_title: ".c - ",
    click_first: true,
    // The next file.
    answer_key: "ctrl+Next",
    contexts: &[
        ContextAction {
            name: "earlier_file",
            keys: &["ctrl+Prior", "ctrl+Prior", "ctrl+Prior"],
        },
        ContextAction {
            name: "read",
            keys: &["Next", "Next"],
        },
        ContextAction {
            name: "end_of_file",
            keys: &["ctrl+End"],
        },
        ContextAction {
            name: "begin_of_file",
            keys: &["ctrl+Home"],
        },
        ContextAction {
            name: "write",
            keys: &["i", "n", "t", "space", "x", "Return"],
        },
        ContextAction {
            name: "undo",
            keys: &["ctrl+z", "ctrl+z"],
        },
    ],
};

fn prepare(site: &Site<'_>) -> Result<Vec<OsString>> {
    const FILES: usize = 200;
    const FUNCTIONS: usize = 200;
    site.write("config/geany.conf", CONFIGURATION)?;
    let mut command = words(&["geany", "--new-instance", "--no-session", "--config"]);
    command.push(site.path("config"));
    let mut random = site.random();
    for i in 0..FILES {
        let name = format!("source_{i:03}.c");
        site.write(&name, c_source(&mut random, FUNCTIONS))?;
        command.push(site.path(&name));
    }
    Ok(command)
}

/// Nothing is asked, saved or looked at by itself.
const CONFIGURATION: &str = "\
[geany]
pref_main_confirm_exit=false
pref_main_load_session=false
pref_main_save_winpos=false
check_disk_status=false
disk_check_timeout=0
msgwindow_visible=false
auto_complete_symbols=false
show_notebook_tabs=true
sidebar_visible=true
";
