//! Every rule of identity, as a table: processes in, an application out.

mod common;

use common::app_id;
use prepage::cgroups::{Hierarchies, Membership};
use prepage::identity::{
    Identity, Named, ProcessFacts, Surroundings, by_itself, identify, is_first_of_unit,
    is_session_program, is_told, matches, may_be_named_by_words, only_runs_others,
    runs_for_a_person,
};
use prepage_engine::Members;
use prepage_kernel::{cgroup, mountinfo};
use std::path::{Path, PathBuf};

const MOUNTS: &[u8] = b"\
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

fn parse_memberships(text: &str) -> Vec<Membership> {
    cgroup::parse_membership(text).unwrap_or_default()
}

fn around() -> Surroundings {
    Surroundings {
        hierarchies: Hierarchies::among(&mountinfo::parse(MOUNTS).expect("well formed")),
        init_groups: parse_memberships("4:memory:/\n0::/init.scope"),
        own_groups: parse_memberships("4:memory:/box/self\n0::/system.slice/prepaged.service"),
        ..Surroundings::default()
    }
}

fn process(pid: i32, session: i32, command: &[&str], groups: &str) -> ProcessFacts {
    ProcessFacts {
        pid,
        session,
        owner: 1000,
        exe: command.first().map(|exe| (*exe).to_owned()),
        arguments: command.iter().map(|a| (*a).to_owned()).collect(),
        directory: Some("/home/u".into()),
        groups: parse_memberships(groups),
        has_left_groups: false,
    }
}

fn found(chain: &[ProcessFacts]) -> Identity {
    identify(chain, &around()).expect("an application")
}

/// The application of a process alone, with its members.
fn alone(command: &[&str], groups: &str) -> (String, Members) {
    let Identity { app, members, .. } = found(&[process(50, 50, command, groups)]);
    (app.to_string(), members)
}

fn group(directory: &str) -> Members {
    Members::Cgroup(PathBuf::from(directory))
}

/// A user's applications, as systemd names their control groups.
const APPS: &str = "/user.slice/user-1000.slice/user@1000.service/app.slice";

/// Control groups' paths, and the applications that they name; `APPS` and `ID` stand for what is long.
const NAMED_GROUPS: &str = r"
APPS/app-gnome-org.gimp.GIMP-123.scope                          desktop:org.gimp.GIMP
APPS/app-flatpak-org.x.Y-123.scope/sub                          desktop:org.x.Y
APPS/app-firefox@0a1b.service                                   desktop:firefox
APPS/app-org.kde.kate-99.scope                                  desktop:org.kde.kate
APPS/app-Hyprland-firefox-1a2b3c4d.scope                        desktop:firefox
APPS/app-niri-org.x.Y-42.scope                                  desktop:org.x.Y
APPS/app-DDE-org.x.Y@ID.service                                 desktop:org.x.Y
APPS/app-steam-app440-12345.scope                               desktop:steam-app440
APPS/app-gnome-google\x2dchrome-7.scope                         desktop:google-chrome
APPS/app-foo.service                                            desktop:foo
APPS/snap.ff.ff-9b2d4dd8-8b2c-4f0b-8a2f-0b1f3a0f4d11.scope      desktop:snap.ff.ff
APPS/snap.a-b.a-b-9b2d4dd8-8b2c-4f0b-8a2f-0b1f3a0f4d11.scope    desktop:snap.a-b.a-b
APPS/snap.a-b.c.9b2d4dd8-8b2c-4f0b-8a2f-0b1f3a0f4d11.scope      desktop:snap.a-b.c
APPS/snap.a-b.a-b.service                                       desktop:snap.a-b.a-b
APPS/dbus-:1.2-org.gnome.Nautilus@0.service                     desktop:org.gnome.Nautilus
APPS/dbus-:1.57-org.x.a\x2db@12.service                         desktop:org.x.a-b
APPS/app-dbus-:1.3-org.x.Y@0.service                            desktop:org.x.Y
APPS/foo.service                                                unit:foo.service
/system.slice/dbus-broker.service                               unit:dbus-broker.service
/system.slice/nginx.service                                     unit:nginx.service
/system.slice/system-x.slice/x@7.service                        unit:x@7.service
/system.slice/docker-ID.scope                                   container:ID
/docker/ID                                                      container:ID
/machine.slice/libpod-ID.scope/container                        container:ID
/kubepods.slice/kubepods-pod7.slice/cri-containerd-ID.scope     container:ID
/kubepods/burstable/pod1-2/ID                                   container:ID
/lxc.payload.web/system.slice/nginx.service                     container:web
/lxc/web                                                        container:web
/machine.slice/machine-a\x2db.scope                             container:a-b
/machine.slice/machine-qemu\x2d3\x2dwin10.scope/libvirt/emulator  container:win10
/machine.slice/machine-lxc\x2d12\x2da\x2db.scope                 container:a-b
/machine.slice/machine-qemu\x2dtest.scope                       container:qemu-test
APPS/app-niri-sh-42.scope                                       executable:/usr/bin/app
APPS/app-Hyprland-gtk\x2dlaunch-1a2b3c4d.scope                  executable:/usr/bin/app
/games/one                                                      executable:/usr/bin/app
/system.slice/run-r0123abcd.service                             executable:/usr/bin/app
/system.slice/run-p419172-i424974.service                       executable:/usr/bin/app
APPS/run-u7.scope                                               executable:/usr/bin/app
";

#[test]
fn control_groups_name_applications() {
    let id = "0123456789abcdef".repeat(4);
    let table = NAMED_GROUPS.replace("APPS", APPS).replace("ID", &id);
    for line in table.lines().filter(|line| !line.is_empty()) {
        let (path, name) = line.split_once(' ').expect("two columns");
        for hierarchy in ["0::", "1:name=systemd:"] {
            let (app, members) = alone(&["/usr/bin/app"], &format!("{hierarchy}{path}"));
            assert_eq!(app, format!("{}@1000", name.trim()), "{path}");
            assert!(matches!(members, Members::Cgroup(_)), "{path}");
        }
    }
}

#[test]
fn members_are_the_group_that_names_and_what_is_below() {
    let (_, members) = alone(&["/a"], "0::/system.slice/nginx.service/worker");
    assert_eq!(
        members,
        group("/sys/fs/cgroup/unified/system.slice/nginx.service")
    );
    let (_, members) = alone(&["/a"], "4:memory:/games/one\n0::/");
    assert_eq!(members, group("/sys/fs/cgroup/memory/games/one"));
    let (_, members) = alone(&["/a"], "6:freezer:/game\n0::/");
    assert_eq!(members, group("/sys/fs/cgroup/freezer/game"));
}

/// What runs the program of a chain, in one control group, and what that is known by.
const RUN_IN_A_GROUP: &str = "
/usr/bin/konsole              APPS/app-org.kde.konsole-9.scope      executable:/usr/bin/app
/bin/bash                     APPS/app-org.kde.konsole-9.scope      executable:/usr/bin/app
/bin/bash -l                  APPS/app-gnome-xfce4\\x2dterminal-9.scope executable:/usr/bin/app
/usr/bin/tmux                 /system.slice/tmux.service            executable:/usr/bin/app
/usr/bin/sway                 APPS/app-wayland.service              executable:/usr/bin/app
/usr/bin/Hyprland             APPS/wayland-wm@hyprland.service      executable:/usr/bin/app
/usr/bin/niri --session       APPS/niri.service                     executable:/usr/bin/app
/bin/bash                     /games/one                            executable:/usr/bin/app
/bin/sh /usr/bin/wrapper      APPS/app-org.x.Y-9.scope              desktop:org.x.Y
/bin/sh -c true;app           /system.slice/nightly.service         unit:nightly.service
/sbin/runuser -u x -- app     /system.slice/nightly.service         unit:nightly.service
/usr/bin/timeout 9 app        /system.slice/nightly.service         unit:nightly.service
/usr/sbin/nginx               /system.slice/nginx.service           unit:nginx.service
/bin/bash                     /lxc/web                              container:web
";

#[test]
fn what_a_person_runs_is_no_part_of_the_terminal_in_whose_group_it_is() {
    for line in RUN_IN_A_GROUP.lines().filter(|line| !line.is_empty()) {
        let line = line.replace("APPS", APPS);
        let (runs_it, rest) = line.split_once("  ").expect("three columns");
        let (path, name) = rest.trim().split_once(' ').expect("three columns");
        let groups = format!("0::{path}");
        let words: Vec<&str> = runs_it.split(' ').collect();
        let parent = process(40, 40, &words, &groups);
        let chain = [process(50, 50, &["/usr/bin/app"], &groups), parent.clone()];
        let identity = found(&chain);
        assert_eq!(
            identity.app.to_string(),
            format!("{}@1000", name.trim()),
            "{line}"
        );
        assert_eq!(identity.main, 50, "{line}");
        let is_by_itself = name.trim().starts_with("executable");
        let expected = if is_by_itself {
            Members::Tree(50)
        } else {
            identity.members.clone()
        };
        assert_eq!(identity.members, expected, "{line}");
        assert_eq!(matches!(expected, Members::Tree(_)), is_by_itself, "{line}");
        // Outside of the group it has begun what is in there.
        let elsewhere = ProcessFacts {
            groups: parse_memberships("0::/init.scope"),
            ..parent
        };
        let chain = [process(50, 50, &["/usr/bin/app"], &groups), elsewhere];
        assert!(
            matches!(found(&chain).members, Members::Cgroup(_)),
            "{line}"
        );
    }
}

/// What has run longest in a control group, what was begun in there from outside of it, the group, and what that is known by.
const LEFT_TO_ITSELF: &str = "
/usr/bin/dbus-daemon                     /usr/bin/gimp              USER/session.slice/dbus.service          executable:/usr/bin/gimp
/usr/libexec/xdg-desktop-portal          /usr/lib/firefox/firefox   USER/session.slice/portal.service        executable:/usr/lib/firefox/firefox
/usr/bin/nautilus                        /usr/lib/lo/program/oosplash  APPS/dbus-:1.2-org.gnome.Nautilus@0.service  executable:/usr/lib/lo/program/oosplash
/usr/bin/konsole                         /usr/bin/gvim              APPS/app-org.kde.konsole-9.scope/tab(1).scope  executable:/usr/bin/gvim
/usr/bin/Hyprland                        /usr/bin/gimp              USER/session.slice/wayland-wm@h.service  executable:/usr/bin/gimp
/usr/bin/python3 /usr/bin/terminator     /usr/bin/python3 /a.py     APPS/app-terminator-9.scope              executable:/a.py
/opt/google/chrome/chrome                /opt/google/chrome/chrome_crashpad_handler  APPS/app-gnome-x-9.scope  desktop:x
/opt/wine/bin/wineserver                 /opt/wine/bin/wine64 game.exe  APPS/app-wine\\x2dgame-9.scope       desktop:wine-game
/usr/share/code/code                     /usr/share/code/code       APPS/app-gnome-code-9.scope              desktop:code
/usr/bin/app                             /usr/bin/app               APPS/app-gnome-app-9.scope               desktop:app
/usr/sbin/libvirtd                       /usr/sbin/dnsmasq          /system.slice/libvirtd.service           unit:libvirtd.service
/usr/bin/app                             /usr/bin/other             USER/user.slice/libpod-0123456789abcdef.scope  container:0123456789abcdef
/usr/bin/app                             /usr/bin/other             /games/one                               executable:/usr/bin/other
";

#[test]
fn what_is_left_to_itself_in_the_group_of_another_program_is_no_part_of_that() {
    let user = "/user.slice/user-1000.slice/user@1000.service";
    for line in LEFT_TO_ITSELF.lines().filter(|line| !line.is_empty()) {
        let line = line.replace("APPS", APPS).replace("USER", user);
        let mut columns = line.split("  ").filter(|column| !column.is_empty());
        let mut column = || columns.next().expect("four columns").trim().to_owned();
        let (first, main, group, name) = (column(), column(), column(), column());
        let groups = format!("0::{group}");
        let words = |command: &str| command.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let of = |pid, command: &str, groups: &str| {
            let words = words(command);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            process(pid, pid, &words, groups)
        };
        let first = of(20, &first, &groups);
        let main = of(50, &main, &groups);
        let manager = process(9, 9, &["/usr/lib/systemd/systemd"], "0::/init.scope");
        let as_found = |chain: &[ProcessFacts], first: &ProcessFacts| {
            let first = |_: &Path| Some(first.clone());
            by_itself(found(chain), chain, &around(), first)
        };
        // Whoever has begun it is gone; the system's first process takes its place, or a user's manager.
        let by_manager = [main.clone(), manager];
        for chain in [&by_manager[..], &by_manager[..1]] {
            let identity = as_found(chain, &first);
            assert_eq!(identity.app.to_string(), format!("{name}@1000"), "{line}");
            assert_eq!(identity.main, 50, "{line}");
            let is_by_itself = name.starts_with("executable") && !group.starts_with("/games");
            assert_eq!(
                matches!(identity.members, Members::Tree(50)),
                is_by_itself,
                "{line}"
            );
        }
        // What has begun the group itself, and what runs in there by one of its processes, is what it was.
        let begun = as_found(&by_manager, &main);
        assert_eq!(begun, found(&by_manager), "{line}");
        let begun_by = of(40, "/usr/lib/app/helper", &groups);
        let chain = [main.clone(), begun_by];
        assert_eq!(as_found(&chain, &first), found(&chain), "{line}");
        // So is what has left the group, in which others of it are, and what its launcher has left there is older than these.
        let left = ProcessFacts {
            has_left_groups: true,
            ..main
        };
        let chain = [left];
        assert_eq!(as_found(&chain, &first), found(&chain), "{line}");
    }
}

#[test]
fn what_a_units_script_asks_help_for_is_a_program_of_its_own() {
    let nightly = "0::/system.slice/nightly.service";
    let app = |groups| process(50, 50, &["/usr/bin/app"], groups);
    let script = |groups| process(40, 40, &["/bin/sh", "/usr/bin/nightly"], groups);
    let is_first = |chain: &[ProcessFacts]| is_first_of_unit(chain, &around());
    assert!(!is_first(&[app(nightly), script(nightly)]));
    assert!(is_first(&[app(nightly), script("0::/init.scope")]));
    assert!(is_first(&[app(nightly)]));
    assert!(is_first(&[app("0::/lxc/web"), script("0::/lxc/web")]));
    assert!(is_first(&[app("0::/games/one"), script("0::/games/one")]));
}

#[test]
fn the_systems_own_groups_name_nothing() {
    for path in [
        "/",
        "/init.scope",
        "/user.slice",
        "/user.slice/user-1000.slice/session-2.scope",
        "/system.slice",
        "/user.slice/user-1000.slice/user@1000.service/init.scope",
        "/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope",
        "/user.slice/user-1000.slice/user@1000.service/app.slice/ptyxis-spawn-9b2d4dd8-8b2c.scope",
        "/user.slice/user-1000.slice/user@1000.service/app.slice/app-ghostty-surface-transient-9.scope",
        // Ours and what is above it.
        "/system.slice/prepaged.service",
    ] {
        let (app, members) = alone(&["/usr/bin/app"], &format!("0::{path}"));
        assert_eq!(
            (app.as_str(), members),
            ("executable:/usr/bin/app@1000", Members::Tree(50)),
            "{path}"
        );
    }
    let (_, members) = alone(&["/usr/bin/app"], "4:memory:/box");
    assert_eq!(members, Members::Tree(50));
    // A hierarchy that is not mounted cannot be followed.
    let (_, members) = alone(&["/usr/bin/app"], "3:pids:/game");
    assert_eq!(members, Members::Tree(50));
}

#[test]
fn programs_and_what_they_interpret() {
    for (command, name) in [
        (&["/usr/bin/gimp-2.10"][..], "/usr/bin/gimp-2.10"),
        (&["/usr/bin/gimp-2.10 (deleted)"], "/usr/bin/gimp-2.10"),
        (&["/usr/bin/python3.13", "/opt/x.py", "a"], "/opt/x.py"),
        (
            &["/usr/bin/python3", "-u", "-W", "ignore", "./y/../x.py"],
            "/home/u/x.py",
        ),
        (
            &["/usr/bin/python3", "-m", "http.server"],
            "python -m http.server",
        ),
        (&["/usr/bin/python3", "-c", "pass"], "/usr/bin/python3"),
        (&["/usr/bin/python3"], "/usr/bin/python3"),
        (
            &["/usr/lib/jvm/bin/java", "-Xmx1g", "-jar", "/opt/i.jar"],
            "/opt/i.jar",
        ),
        (
            &["/usr/lib/jvm/bin/java", "-cp", "/a.jar", "org.x.Main"],
            "java org.x.Main",
        ),
        (
            &["/usr/bin/node", "--inspect", "/srv/app.js"],
            "/srv/app.js",
        ),
        (&["/usr/bin/bash", "/usr/bin/script"], "/usr/bin/script"),
        (
            &["/usr/bin/bash", "--rcfile", "/tmp/nix-1/rc", "-i"],
            "/usr/bin/bash",
        ),
        (&["/usr/bin/bash", "--init-file", "/x.sh"], "/usr/bin/bash"),
        (&["/usr/bin/fish", "-C", "source /x.fish"], "/usr/bin/fish"),
        (
            &["/usr/bin/bash", "-C", "/usr/bin/script"],
            "/usr/bin/script",
        ),
        (
            &["/usr/bin/bash", "-c", "sleep 1"],
            "bash -c 50bee007d2ec58cb",
        ),
        (
            &["/usr/bin/dash", "-c", "a | b", "sh", "c"],
            "dash -c 04e13108dd45aece",
        ),
        (
            &["/usr/bin/script", "-qc", "a | b", "c"],
            "script -c 04e13108dd45aece",
        ),
        (&["/usr/bin/bash", "/dev/fd/3"], "/usr/bin/bash"),
        (&["/usr/bin/perl", "-w", "/usr/bin/tool"], "/usr/bin/tool"),
        (
            &["/usr/bin/bash", "-euxc", "secret"],
            "bash -c ab23f0eec020c951",
        ),
        (&["/usr/bin/bash", "-euxc"], "/usr/bin/bash"),
        (&["/usr/bin/bash", "-euo", "pipefail", "/x.sh"], "/x.sh"),
        (&["/usr/bin/bash", "-s", "secret"], "/usr/bin/bash"),
        (&["/usr/bin/dash", "-e", "/x.sh"], "/x.sh"),
        (&["/usr/bin/perl", "-lne", "secret", "f"], "/usr/bin/perl"),
        (&["/usr/bin/perl", "-E", "secret"], "/usr/bin/perl"),
        (&["/usr/bin/perl", "-Mfeature", "/x.pl"], "/x.pl"),
        (&["/usr/bin/ruby", "-ne", "secret", "f"], "/usr/bin/ruby"),
        (&["/usr/bin/node", "-p", "secret"], "/usr/bin/node"),
        (&["/usr/bin/php8.2", "-r", "secret"], "/usr/bin/php8.2"),
        (&["/usr/bin/php", "-d", "k=v", "/x.php"], "/x.php"),
        (&["/usr/bin/python3", "-Ic", "secret"], "/usr/bin/python3"),
        (
            &["/usr/bin/python3", "-um", "http.server"],
            "python -m http.server",
        ),
        (
            &[
                "/usr/bin/java",
                "--add-opens",
                "java.base/java.lang=ALL-UNNAMED",
                "-jar",
                "/i.jar",
            ],
            "/i.jar",
        ),
        (&["/bin/busybox", "/etc/passwd"], "/bin/busybox"),
        (&["/bin/busybox", "sh", "-c", "secret"], "/bin/busybox"),
        (
            &["/usr/bin/bash", "/home/u/.pyenv/shims/python", "-u", "x.py"],
            "/home/u/x.py",
        ),
        (
            &["/usr/bin/bash", "/home/u/.asdf/shims/black", "x.py"],
            "/home/u/.asdf/shims/black",
        ),
        (
            &["/usr/bin/flatpak", "run", "--branch=stable", "org.x.Y", "f"],
            "flatpak run org.x.Y",
        ),
        (
            &["/usr/bin/bwrap", "--bind", "/", "/", "python3", "/x.py"],
            "bwrap /x.py",
        ),
        (
            &["/usr/bin/mono-sgen", "--debug", "/opt/x.exe"],
            "/opt/x.exe",
        ),
        (
            &["/usr/bin/dotnet", "exec", "/opt/x.dll", "a"],
            "/opt/x.dll",
        ),
        (&["/usr/bin/dotnet", "x.dll"], "/home/u/x.dll"),
        (&["/usr/bin/dotnet", "build"], "/usr/bin/dotnet"),
        (
            &[
                "/usr/lib/electron28/electron",
                "--no-sandbox",
                "/opt/app.asar",
            ],
            "/opt/app.asar",
        ),
        (
            &["/usr/lib/electron28/electron", "--type=renderer"],
            "/usr/lib/electron28/electron",
        ),
        (
            &["/usr/bin/octave-cli-7.3.0", "-q", "tool.m"],
            "/home/u/tool.m",
        ),
        (
            &["/usr/bin/octave-cli", "--eval", "1"],
            "/usr/bin/octave-cli",
        ),
        (
            &[
                "/usr/bin/dash",
                "/usr/bin/elixir",
                "-pa",
                "y",
                "-r",
                "z",
                "x.exs",
            ],
            "/home/u/x.exs",
        ),
        (
            &["/usr/bin/dash", "/usr/bin/elixir", "/usr/bin/mix", "run"],
            "/usr/bin/mix",
        ),
        (
            &["/usr/bin/dash", "/usr/bin/elixir", "-e", "secret"],
            "/usr/bin/elixir",
        ),
        (
            &["/usr/bin/dash", "/usr/bin/iex", "-S", "mix"],
            "elixir -S mix",
        ),
        (
            &[
                "/erts/bin/beam.smp",
                "--",
                "-s",
                "elixir",
                "-extra",
                "x.exs",
                "a",
            ],
            "/home/u/x.exs",
        ),
        (
            &["/erts/bin/beam.smp", "--", "-extra", "-e", "secret"],
            "/erts/bin/beam.smp",
        ),
        (
            &["/erts/bin/beam.smp", "--", "-noshell"],
            "/erts/bin/beam.smp",
        ),
        (&["/usr/bin/escript", "/x"], "/x"),
        (
            &["/usr/bin/julia", "-t", "4", "-O2", "x.jl"],
            "/home/u/x.jl",
        ),
        (&["/usr/bin/julia", "-E", "secret"], "/usr/bin/julia"),
        (
            &["/usr/bin/deno", "run", "-A", "--config", "c.json", "x.ts"],
            "/home/u/x.ts",
        ),
        (&["/usr/bin/deno", "eval", "secret.js"], "/usr/bin/deno"),
        (&["/usr/bin/deno", "task", "dev"], "/usr/bin/deno"),
        (&["/usr/bin/deno", "run", "-r", "x.ts"], "/home/u/x.ts"),
        (
            &["/usr/bin/bun", "-r", "./y.ts", "run", "x.ts"],
            "/home/u/x.ts",
        ),
        (&["/usr/bin/bun", "/usr/bin/tool"], "/usr/bin/tool"),
        (&["/usr/bin/bun", "-e", "secret"], "/usr/bin/bun"),
        (&["/usr/bin/sbcl", "--script", "/x"], "/x"),
        (&["/usr/bin/sbcl", "--eval", "secret"], "/usr/bin/sbcl"),
        (&["/usr/bin/swipl", "-g", "main", "/x.pl"], "/x.pl"),
        (&["/usr/bin/expect", "-f", "/x"], "/x"),
        (&["/usr/bin/expect", "-c", "secret"], "/usr/bin/expect"),
        (&["/usr/bin/luajit", "/x.lua"], "/x.lua"),
        (
            &["/usr/bin/ocamlrun", "/usr/bin/ocaml", "-I", "y", "/x.ml"],
            "/x.ml",
        ),
        (
            &["/usr/bin/ocamlrun", "/usr/bin/tool", "y"],
            "/usr/bin/tool",
        ),
        (&["/usr/bin/rakudo", "-Ilib", "/x.raku"], "/x.raku"),
        (
            &["/usr/bin/racket", "-l", "racket/base", "/x.rkt"],
            "/x.rkt",
        ),
        (&["/usr/bin/tcsh", "-f", "/x.csh"], "/x.csh"),
        (
            &["/usr/bin/dash", "/usr/bin/R", "CMD", "check", "x"],
            "/usr/bin/R",
        ),
        (&["/usr/bin/dash", "/usr/bin/R", "-f", "/x.R"], "/x.R"),
        (&["/usr/bin/Rscript", "--vanilla", "x.R"], "/home/u/x.R"),
        (&["/usr/bin/Rscript", "-e", "secret"], "/usr/bin/Rscript"),
        (
            &[
                "/usr/lib/R/bin/exec/R",
                "--no-echo",
                "--file=/x.R",
                "--args",
                "a",
            ],
            "/x.R",
        ),
        (
            &["/usr/lib/R/bin/exec/R", "--no-echo", "--args", "a"],
            "/usr/lib/R/bin/exec/R",
        ),
        (
            &["/usr/bin/dash", "/usr/bin/wine", "Notepad.exe"],
            "wine notepad",
        ),
        (&["/usr/bin/dash", "/usr/bin/wine"], "/usr/bin/wine"),
        (&["/usr/lib/wine/wine64", "/g/Game.exe", "-w"], "wine game"),
        (
            &["/usr/lib/wine/wine64-preloader", "--version"],
            "/usr/lib/wine/wine64-preloader",
        ),
        (
            &["/usr/lib/wine/wineserver64", "-p0"],
            "/usr/lib/wine/wineserver64",
        ),
        (
            &["/usr/bin/fish", "-c", "secret"],
            "fish -c ab23f0eec020c951",
        ),
        (&["/usr/bin/uv", "run", "a.py"], "uv run /home/u/a.py"),
        (
            &["/usr/bin/uv", "run", "-q", "b/a.py"],
            "uv run /home/u/b/a.py",
        ),
        (
            &["/usr/bin/uv", "run", "python3", "-m", "x"],
            "uv run python -m x",
        ),
        (&["/usr/bin/uv", "sync"], "/usr/bin/uv"),
        (
            &[
                "/usr/bin/python3",
                "/home/u/.local/bin/poetry",
                "run",
                "black",
            ],
            "poetry run black",
        ),
        (
            &["/usr/bin/node", "/usr/bin/npx", "-y", "eslint"],
            "npx eslint",
        ),
        (&["/usr/bin/node", "/usr/bin/npx"], "/usr/bin/npx"),
        (&["/usr/bin/flatpak", "list"], "/usr/bin/flatpak"),
        (&["/usr/bin/snap", "run", "x.y", "f"], "snap run x.y"),
        (&["/usr/bin/snap", "list"], "/usr/bin/snap"),
    ] {
        let (app, _) = alone(command, "0::/");
        assert_eq!(app, format!("executable:{name}@1000"), "{command:?}");
    }
}

#[test]
fn programs_that_are_many_are_known_by_what_they_are_called() {
    for (exe, words, name) in [
        ("/home/u/.cargo/bin/rustup", "cargo build", "rustup cargo"),
        (
            "/home/u/.cargo/bin/rustup",
            "/home/u/.cargo/bin/rustc x.rs",
            "rustup rustc",
        ),
        (
            "/home/u/.cargo/bin/rustup",
            "rustup update",
            "/home/u/.cargo/bin/rustup",
        ),
        ("/usr/bin/mise", "node x.js", "/home/u/x.js"),
        ("/usr/bin/mise", "python -m x", "python -m x"),
        ("/usr/bin/mise", "python", "mise python"),
        ("/home/u/.volta/bin/volta-shim", "yarn", "volta-shim yarn"),
        (
            "/opt/juliaup/julialauncher",
            "julia -t 4 x.jl",
            "/home/u/x.jl",
        ),
        ("/bin/busybox", "vi x", "busybox vi"),
        ("/bin/busybox", "-sh", "busybox sh"),
        ("/bin/busybox", "sh /x.sh", "/x.sh"),
        ("/bin/busybox", "sh -c secret", "sh -c ab23f0eec020c951"),
        ("/usr/bin/git", "git-shell x", "/usr/bin/git"),
    ] {
        let mut process = process(50, 50, &[exe], "0::/");
        process.arguments = words.split(' ').map(str::to_owned).collect();
        let app = found(&[process]).app.to_string();
        assert_eq!(app, format!("executable:{name}@1000"), "{words}");
    }
}

/// Words are whatever somebody wrote, and a script may be called as what interprets it.
#[test]
fn what_is_named_by_words_without_end_is_named_in_time() {
    for (words, name) in [
        ("python3 python3", "/home/u/python3"),
        ("python3 tools/python", "/home/u/tools/python"),
        ("node node node", "/home/u/node"),
        ("python3 node x.js", "/home/u/x.js"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let exe = format!("/usr/bin/{}", words[0]);
        let process = process(50, 50, &[&[exe.as_str()], &words[1..]].concat(), "0::/");
        let app = found(&[process]).app.to_string();
        assert_eq!(app, format!("executable:{name}@1000"), "{words:?}");
    }
    for pair in [["bwrap", "bwrap"], ["python3", "perl"], ["uv", "run"]] {
        let words = pair.repeat(2_048);
        let mut process = process(50, 50, &words, "0::/");
        process.exe = Some(format!("/usr/bin/{}", pair[0]));
        let chain = [process];
        let named = identify(&chain, &around()).map(|identity| identity.app.name.len());
        assert!(
            named.is_none_or(|bytes| bytes < 1_000),
            "{pair:?}: {named:?}"
        );
    }
}

/// They show the path that they have in Windows.
#[test]
fn programs_that_wine_runs_are_known_by_their_names() {
    let mut notepad = process(50, 50, &["/usr/lib/wine/wine64"], "0::/");
    notepad.arguments = vec!["C:\\windows\\system32\\Notepad.exe".into(), String::new()];
    assert_eq!(
        found(&[notepad]).app.to_string(),
        "executable:wine notepad@1000"
    );
}

#[test]
fn trees_reach_up_to_what_launched_them() {
    let chain = |links: &[(i32, i32, &[&str])]| -> Vec<ProcessFacts> {
        links
            .iter()
            .map(|(pid, session, command)| process(*pid, *session, command, "0::/"))
            .collect()
    };
    let root = |links: &[(i32, i32, &[&str])]| found(&chain(links)).main;
    // The same program, in a session of its own.
    assert_eq!(
        root(&[
            (9, 9, &["/opt/chrome"]),
            (8, 1, &["/opt/chrome"]),
            (7, 1, &["/bin/bash"])
        ]),
        8
    );
    // Another program of the same session: part of it.
    assert_eq!(
        root(&[
            (9, 5, &["/opt/worker"]),
            (8, 5, &["/opt/main"]),
            (5, 5, &["/bin/bash"])
        ]),
        8
    );
    // A launcher's script is part of it, an interactive shell is not.
    assert_eq!(
        root(&[
            (9, 5, &["/opt/app"]),
            (8, 5, &["/bin/sh", "/usr/bin/app"]),
            (7, 5, &["/bin/sh"])
        ]),
        8
    );
    // The session's leader and a window manager are not.
    assert_eq!(root(&[(9, 5, &["/opt/app"]), (5, 5, &["/opt/leader"])]), 9);
    for manager in ["/usr/bin/openbox", "/usr/bin/river"] {
        assert_eq!(root(&[(9, 5, &["/opt/app"]), (8, 5, &[manager])]), 9);
    }
    // Nor is what only limits it or sets its surroundings.
    assert_eq!(
        root(&[(9, 5, &["/opt/app"]), (8, 5, &["/usr/bin/timeout", "9"])]),
        9
    );
    assert_eq!(
        root(&[
            (9, 5, &["/opt/app"]),
            (8, 5, &["/bin/sh", "/usr/bin/xvfb-run", "-a", "app"])
        ]),
        9
    );
    // Nor a shell that runs several: each of them is an application.
    assert_eq!(
        root(&[
            (9, 5, &["/opt/app"]),
            (8, 5, &["/bin/sh", "-c", "cd / && app"])
        ]),
        9
    );
    // Another session's program is not.
    assert_eq!(root(&[(9, 9, &["/opt/app"]), (8, 5, &["/opt/other"])]), 9);
    // Two scripts of one interpreter are two applications.
    assert_eq!(
        found(&chain(&[
            (9, 9, &["/usr/bin/python3", "/a.py"]),
            (8, 5, &["/bin/bash"])
        ]))
        .app
        .to_string(),
        "executable:/a.py@1000"
    );
    // Another owner's is not.
    let mut other = chain(&[(9, 5, &["/opt/app"]), (8, 5, &["/opt/app"])]);
    other[1].owner = 0;
    assert_eq!(found(&other).main, 9);
}

#[test]
fn the_name_is_the_same_after_a_restart() {
    let app = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-x.Y-";
    let first = found(&[process(50, 50, &["/a"], &format!("{app}1.scope"))]);
    let second = found(&[process(99, 99, &["/a"], &format!("{app}2.scope"))]);
    assert_eq!(first.app, second.app);
    assert_ne!(first.members, second.members);
}

#[test]
fn an_app_image_is_the_same_wherever_it_is_mounted() {
    for (command, name) in [
        (
            &["/tmp/.mount_KritaA1b2C3/usr/bin/krita"][..],
            "/tmp/.mount_Krita/usr/bin/krita",
        ),
        (
            &["/tmp/.mount_KritaZ9y8X7/usr/bin/krita"],
            "/tmp/.mount_Krita/usr/bin/krita",
        ),
        (
            &["/bin/sh", "/tmp/.mount_KritaZ9y8X7/AppRun"],
            "/tmp/.mount_Krita/AppRun",
        ),
        (&["/tmp/.mount_/x"], "/tmp/.mount_/x"),
        (&["/tmp/.mount_äöü/x"], "/tmp/.mount_/x"),
    ] {
        let (app, _) = alone(command, "0::/");
        assert_eq!(app, format!("executable:{name}@1000"), "{command:?}");
    }
}

/// In a sandbox of bwrap's, whose processes show the paths that they have there.
#[test]
fn what_runs_in_a_sandbox_is_no_part_of_who_made_it() {
    let chain = |bwrap: &[&str]| {
        found(&[
            process(12, 5, &["/app/bin/x"], "0::/"),
            process(11, 5, bwrap, "0::/"),
            process(10, 5, bwrap, "0::/"),
            process(9, 5, &["/usr/bin/timeout", "9", "bwrap"], "0::/"),
        ])
    };
    for bwrap in [
        &["/usr/bin/bwrap", "--unshare-all", "/app/bin/x"][..],
        &["/usr/bin/bwrap", "--args", "30", "x"],
    ] {
        let found = chain(bwrap);
        assert_eq!(found.app.to_string(), "executable:/app/bin/x@1000");
        assert_eq!(found.main, 12);
    }
}

#[test]
fn words_are_read_where_they_may_name_what_is_looked_for() {
    for (exe, words, read, expected) in [
        ("/usr/bin/python3.11", "python3 /opt/x.py", true, true),
        ("/usr/bin/python3.11", "python3 ./y.py", true, false),
        ("/usr/bin/python3.11", "python3 -c x.py", true, false),
        ("/usr/bin/dash", "sh -c x.py", true, false),
        ("/usr/bin/dash", "/bin/sh x.py", true, true),
        ("/usr/bin/bash", "bash", true, false),
        ("/usr/bin/java", "java -jar a/x.py", true, true),
        ("/usr/bin/gcc", "gcc x.py", false, false),
        // What it names in its other root directory is not told by the last word alone.
        ("/usr/bin/flatpak", "flatpak run org.x.Y", false, true),
        ("/usr/bin/bwrap", "bwrap x", false, true),
        ("/usr/bin/uv", "uv run x.py", false, true),
        ("/usr/bin/mise", "node x.py", true, true),
        ("/usr/bin/mise", "node y.js", true, false),
        (
            "/usr/bin/python3",
            "python3 /usr/bin/poetry run x",
            true,
            true,
        ),
    ] {
        let mut is_read = false;
        let words = || {
            is_read = true;
            words.split(' ').map(str::to_owned).collect()
        };
        let found =
            may_be_named_by_words(exe, words, |name| name.ends_with("/x.py") || name == "x.py");
        assert_eq!((is_read, found), (read, expected), "{exe}");
    }
    let words = || ["sh", "-c", "a | b"].map(str::to_owned).to_vec();
    let is_named = |name: &str| name == "dash -c 04e13108dd45aece";
    assert!(may_be_named_by_words("/usr/bin/dash", words, is_named));
}

/// Of a command line the words are known before the first that is not, as a variable.
#[test]
fn what_a_runner_runs_is_not_told_before_its_name() {
    for (command, expected) in [
        (&["/usr/bin/uv", "run"][..], false),
        (&["/usr/bin/uv", "run", "x.py"], true),
        (&["/usr/bin/python3", "/usr/bin/poetry", "run"], false),
        (
            &["/usr/bin/python3", "/usr/bin/poetry", "run", "black"],
            true,
        ),
        (&["/usr/bin/python3", "x.py"], true),
        (&["/usr/bin/gcc"], true),
    ] {
        let process = process(50, 50, command, "0::/");
        assert_eq!(is_told(&process), expected, "{command:?}");
    }
}

#[test]
fn what_was_typed_names_an_executable() {
    for (text, executable, expected) in [
        ("gimp", None, ["gimp", "gimp"]),
        ("gimp", Some("/usr/bin/gimp-2.10"), ["gimp", "gimp-2.10"]),
        ("/opt/x/run@2.py", None, ["run@2.py", "run@2.py"]),
        (
            "executable:/opt/x/run@2.py@1000",
            None,
            ["run@2.py", "run@2.py"],
        ),
        ("python -m x", None, ["python -m x", "python -m x"]),
    ] {
        let named = Named {
            text: text.into(),
            executable: executable.map(Into::into),
            directory: None,
        };
        assert_eq!(named.executable_names(), expected, "{text}");
    }
}

#[test]
fn a_command_that_is_one_of_many_means_what_is_called_so() {
    let means = |text: &str, executable: &str, name: &str| {
        let named = Named {
            text: text.into(),
            executable: Some(executable.into()),
            directory: None,
        };
        named.means(&app_id(&format!("executable:{name}@0")))
    };
    let rustup = "/home/u/.cargo/bin/rustup";
    assert!(means("cargo", rustup, "rustup cargo"));
    assert!(means("/home/u/.cargo/bin/cargo", rustup, "rustup cargo"));
    assert!(means("rustup", rustup, rustup));
    assert!(!means("cargo", rustup, "rustup rustc"));
    assert!(!means("cargo", rustup, "rustup  cargo"));
    assert!(!means("gimp", "/usr/bin/gimp-2.10", "gimp-2.10 gimp"));
}

/// `libreoffice` is a link to a shell's script in a directory of its own, which executes what lies there.
#[test]
fn a_command_that_is_a_script_means_what_that_runs() {
    let named = Named {
        text: "libreoffice".into(),
        executable: Some("/usr/lib/libreoffice/program/soffice".into()),
        directory: Some("/usr/lib/libreoffice/program".into()),
    };
    for (id, expected) in [
        ("executable:/usr/bin/libreoffice@1000", true),
        ("executable:/usr/lib/libreoffice/program/soffice@1000", true),
        (
            "executable:/usr/lib/libreoffice/program/oosplash@1000",
            true,
        ),
        (
            "executable:/usr/lib/libreoffice/program/crash_handler@1000",
            false,
        ),
        ("executable:/usr/lib/libreoffice/sub/program@1000", false),
        ("desktop:libreoffice-writer@1000", false),
        (
            "unit:/usr/lib/libreoffice/program/soffice.service@1000",
            false,
        ),
    ] {
        assert_eq!(named.means(&app_id(id)), expected, "{id}");
    }
    // What these start of each other is one application.
    let at = |pid, name: &str| {
        let path = format!("/usr/lib/libreoffice/program/{name}");
        process(pid, 5, &[&path], "0::/")
    };
    let shell = process(5, 5, &["/bin/bash"], "0::/");
    let chain = [at(9, "soffice.bin"), at(8, "oosplash"), shell];
    let around = Surroundings {
        listed: vec![named],
        ..around()
    };
    assert_eq!(identify(&chain, &around).map(|found| found.main), Some(8));
}

#[test]
fn kernel_threads_and_init_are_no_applications() {
    let mut thread = process(50, 50, &[], "0::/");
    thread.exe = None;
    assert_eq!(identify(&[thread], &around()), None);
    assert_eq!(
        identify(
            &[process(1, 1, &["/sbin/init"], "0::/init.scope")],
            &around()
        ),
        None
    );
    assert_eq!(identify(&[], &around()), None);
}

#[test]
fn what_a_user_types_finds_the_application() {
    let gimp = app_id("desktop:org.gimp.GIMP@1000");
    for text in [
        "gimp",
        "GIMP",
        "org.gimp.GIMP",
        "desktop:org.gimp.GIMP@1000",
    ] {
        assert!(matches(&gimp, text), "{text}");
    }
    assert!(matches(&app_id("executable:/usr/bin/sleep@0"), "sleep"));
    assert!(matches(&app_id("unit:nginx.service@0"), "nginx"));
    assert!(!matches(&app_id("executable:/usr/bin/sleep@0"), "leep"));
    assert!(!matches(&gimp, ""));
}

#[test]
fn any_group_path_is_taken_without_panic() {
    let sample = b"/a.slice/app-gnome-x\\x2dy@1-2.scope/docker-0123456789ab.scope/\xc3\xbc";
    let mut state = 1_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    for _ in 0..20_000 {
        let mut bytes = sample.to_vec();
        for _ in 0..random() % 8 {
            let at = random() % bytes.len();
            bytes[at] = *b"/-.@\\x0a\xff".get(random() % 8).expect("in range");
        }
        let path = String::from_utf8_lossy(&bytes).into_owned();
        let _ = identify(
            &[process(50, 50, &["/a"], &format!("0::{path}"))],
            &around(),
        );
    }
}

/// As what runs is, once a package was updated: it is what it was when it was executed.
#[test]
fn a_shell_a_terminal_and_a_window_manager_that_were_updated_are_what_they_were() {
    for name in ["bash", "konsole", "openbox"] {
        let of = |exe: &str| process(50, 50, &[exe], "0::/");
        let (before, since) = (
            of(&format!("/usr/bin/{name}")),
            of(&format!("/usr/bin/{name} (deleted)")),
        );
        let kinds = |process: &ProcessFacts| {
            (
                is_session_program(process),
                runs_for_a_person(process),
                only_runs_others(process),
            )
        };
        assert_eq!(kinds(&since), kinds(&before), "{name}");
        assert_ne!(kinds(&before), (false, false, false), "{name}");
    }
}
