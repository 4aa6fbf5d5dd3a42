//! What runs other programs for a person, and is no part of them: shells, terminals, desktops, launchers.

use super::ProcessFacts;
use super::program::{base_name, name_by_words};
use crate::interpreters::script_of;
use prepage_core::shell::is_shell;
use prepage_core::wrappers;

/// Whether a process may belong to the same application as its parent, wherever their control groups are.
pub fn may_be_one(child: &ProcessFacts, parent: &ProcessFacts) -> bool {
    let same_words = parent.arguments.first() == child.arguments.first();
    let same_program = parent.exe == child.exe && (same_words || parent.has_left_groups);
    let same_session = parent.session == child.session && parent.pid != parent.session;
    let same_owner = parent.owner == child.owner && parent.pid > 1;
    same_owner && (same_program || same_session) && !is_session_program(parent)
}

/// Programs that run others on behalf of a person: what they run is not part of them.
const SESSION_PROGRAMS: [&str; 83] = [
    "systemd",
    "init",
    "bash",
    "dash",
    "sh",
    "zsh",
    "fish",
    "ksh",
    "mksh",
    "tcsh",
    "csh",
    "nu",
    "busybox",
    "login",
    "su",
    "runuser",
    "sshd",
    "sshd-session",
    "tmux",
    "screen",
    "script",
    "make",
    "cargo",
    "xinit",
    "startx",
    "xterm",
    "konsole",
    "gnome-terminal-server",
    "xfce4-terminal",
    "alacritty",
    "kitty",
    "foot",
    "wezterm-gui",
    "dbus-daemon",
    "dbus-broker",
    "gnome-shell",
    "gnome-session-binary",
    "plasmashell",
    "kwin_x11",
    "kwin_wayland",
    "ksmserver",
    "krunner",
    "kded5",
    "kded6",
    "xfce4-session",
    "xfce4-panel",
    "xfdesktop",
    "xfwm4",
    "openbox",
    "i3",
    "sway",
    "awesome",
    "fluxbox",
    "dwm",
    "cinnamon",
    "mate-panel",
    "Hyprland",
    "labwc",
    "niri",
    "river",
    "wayfire",
    "weston",
    "cosmic-comp",
    "cosmic-panel",
    "cosmic-launcher",
    "budgie-panel",
    "lxqt-panel",
    "lxqt-runner",
    "lxqt-session",
    "bspwm",
    "herbstluftwm",
    "icewm",
    "marco",
    "sxhkd",
    "lxsession",
    "lxpanel",
    "dmenu",
    "rofi",
    ".xinitrc",
    "xinitrc",
    ".xsession",
    "Xsession",
    "sx",
];

/// Whether it is a program that a person uses to run others.
pub fn is_session_program(process: &ProcessFacts) -> bool {
    let base = process.base_name();
    // A shell that runs a script is that script's program.
    let script = is_shell(base).then(|| script_of(process, base)).flatten();
    runs_others(script.as_deref().map_or(base, base_name))
}

/// Whether a person is at it, who runs other programs by it: what a script, a wrapper or su(1) runs is no more than a part of
/// that.
pub fn runs_for_a_person(process: &ProcessFacts) -> bool {
    const FOR_ANOTHER: [&str; 5] = ["systemd", "init", "su", "runuser", "script"];
    let base = process.base_name();
    match is_shell(base) {
        true => name_by_words(process, base).is_none(),
        false => SESSION_PROGRAMS.contains(&base) && !FOR_ANOTHER.contains(&base),
    }
}

/// Whether it is a shell, or another program that only runs others.
pub fn only_runs_others(process: &ProcessFacts) -> bool {
    let base = process.base_name();
    runs_others(base)
}

fn runs_others(base: &str) -> bool {
    SESSION_PROGRAMS.contains(&base) || wrappers::is_wrapper(base)
}

/// Whether it runs a program in another root directory, and both name the application: `flatpak run org.x.Y`.
pub fn runs_in_other_root(process: &ProcessFacts) -> bool {
    let base = process.base_name();
    let words = &process.arguments;
    wrappers::packaged(base, words).is_some() || wrappers::in_other_root(base, words).is_some()
}
