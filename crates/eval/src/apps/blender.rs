//! Blender with a scene of many meshes, drawn by the processors (llvmpipe): a 3-D program without a graphics card.

use super::{App, Content, ContextAction};
use crate::error::Result;
use crate::site::{Site, words};
use std::ffi::OsString;

const SCENE: &str = include_str!("blender_scene.py");

/// The 3-D program.
pub const BLENDER: App = App {
    name: "blender",
    packages: &["blender", "libgl1-mesa-dri"],
    executable: "blender",
    version_command: &["blender", "--version"],
    content: Content::Made(prepare),
    environment: &[("LIBGL_ALWAYS_SOFTWARE", "1")],
    window_class: "lender",
    ready_title: "ready.blend",
    click_first: false,
    // Goes around the scene by 15 degrees, by the emulated numeric keys.
    answer_key: "6",
    contexts: &[
        ContextAction {
            name: "from_above",
            keys: &["7"],
        },
        ContextAction {
            name: "from_the_front",
            keys: &["1"],
        },
        ContextAction {
            name: "from_the_right",
            keys: &["3"],
        },
        ContextAction {
            name: "go_around",
            keys: &["4", "4", "8"],
        },
        ContextAction {
            name: "select_all",
            keys: &["a"],
        },
        ContextAction {
            name: "select_none",
            keys: &["alt+a"],
        },
    ],
};

fn prepare(site: &Site<'_>) -> Result<Vec<OsString>> {
    let ready = site.path("ready.blend");
    let scene = SCENE
        .replace("SEED = 1", &format!("SEED = {}", site.seed))
        .replace("ready.blend", &ready.to_string_lossy());
    site.write("scene.py", scene)?;
    let mut command = words(&["blender", "--factory-startup", "--python"]);
    command.push(site.path("scene.py"));
    Ok(command)
}
