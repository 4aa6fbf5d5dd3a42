//! GIMP with a large picture.

use super::{App, Content, ContextAction};
use crate::error::Result;
use crate::random::Random;
use crate::site::{Site, words};
use std::ffi::OsString;

/// The image editor.
pub const GIMP: App = App {
    name: "gimp",
    packages: &["gimp"],
    executable: "gimp",
    version_command: &["gimp", "--version"],
    content: Content::Made(prepare),
    environment: &[],
    window_class: "imp",
    ready_title: "picture",
    click_first: false,
    // Turns the picture upside down, whatever part of it is in view.
    answer_key: "F9",
    contexts: &[
        ContextAction {
            name: "actual_size",
            keys: &["1"],
        },
        ContextAction {
            name: "half_size",
            keys: &["F4"],
        },
        ContextAction {
            name: "whole",
            keys: &["F7"],
        },
        ContextAction {
            name: "mirror",
            keys: &["F5"],
        },
        ContextAction {
            name: "undo",
            keys: &["ctrl+z"],
        },
    ],
};

fn prepare(site: &Site<'_>) -> Result<Vec<OsString>> {
    const WIDTH: usize = 3_000;
    const HEIGHT: usize = 2_000;
    site.write("picture.ppm", picture(&mut site.random(), WIDTH, HEIGHT))?;
    site.write("profile/gimprc", SETTINGS)?;
    site.write("profile/menurc", SHORTCUTS)?;
    site.write("profile/sessionrc", WINDOW)?;
    let mut profile = OsString::from("GIMP2_DIRECTORY=");
    profile.push(site.path("profile"));
    let mut command = words(&["env"]);
    command.push(profile);
    command.extend(words(&["gimp", "--no-splash", "--new-instance"]));
    command.push(site.path("picture.ppm"));
    Ok(command)
}

/// A landscape of waves with a grain, in the portable pixmap format: it compresses about as a photograph does.
fn picture(random: &mut Random, width: usize, height: usize) -> Vec<u8> {
    const GRAIN: u64 = 8;
    let mut waves = |len: usize| -> Vec<[f64; 3]> {
        let periods = [(); 3].map(|()| 40.0 + random.below(400) as f64);
        let at = |i: usize| periods.map(|period| (i as f64 / period).sin());
        (0..len).map(at).collect()
    };
    let (across, down) = (waves(width), waves(height));
    let mut bytes = format!("P6\n{width} {height}\n255\n").into_bytes();
    for row in &down {
        for column in &across {
            let grain = random.next_u64();
            for (colour, (x, y)) in column.iter().zip(row).enumerate() {
                let grain = (grain >> (8 * colour)) % GRAIN;
                bytes.push((124.0 + 110.0 * x * y) as u8 + grain as u8);
            }
        }
    }
    bytes
}

const SETTINGS: &str = "\
(undo-levels 4)
(undo-size 128M)
(show-tooltips no)
(save-session-info no)
(save-device-status no)
(save-tool-options no)
(save-document-history no)
(check-updates no)
";

/// Not F6, F8 and F10, which the toolkit takes to move between panes and to the menu.
const SHORTCUTS: &str = "\
(gtk_accel_path \"<Actions>/view/view-flip-horizontally\" \"F5\")
(gtk_accel_path \"<Actions>/view/view-zoom-1-2\" \"F4\")
(gtk_accel_path \"<Actions>/view/view-zoom-fit-in\" \"F7\")
(gtk_accel_path \"<Actions>/image/image-flip-vertical\" \"F9\")
";

/// One window over the whole screen, with tool options and layers.
const WINDOW: &str = "\
(session-info \"toplevel\"
    (factory-entry \"gimp-single-image-window\")
    (position 0 0)
    (size 1280 800)
    (open-on-exit)
    (aux-info (left-docks-width \"188\") (right-docks-width \"205\") (maximized \"yes\"))
    (gimp-toolbox (side left) (book (current-page 0) (dockable \"gimp-tool-options\" (tab-style automatic))))
    (gimp-dock (side right) (book (current-page 0) (dockable \"gimp-layer-list\" (tab-style automatic)))))
(hide-docks no)
(single-window-mode yes)
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_its_size_and_another_seed_shows_another() {
        let of = |seed| picture(&mut Random::new(seed), 30, 20);
        assert_eq!(of(1).len(), "P6\n30 20\n255\n".len() + 3 * 30 * 20);
        assert_ne!(of(1), of(2));
    }
}
