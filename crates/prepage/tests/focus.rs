//! How the focus of windows reaches the service: by `prepage agent`, on X displays of its own, which need Xvfb, as a window manager's
//! and gamescope's are written to, and with sockets that speak as sway and KWin do; and by the extension of GNOME Shell, in the
//! interpreter that it is for, which is gjs.

mod common;

use common::{Running, Service, TempDir, wait_until};
use prepage::client::SOCKET_DEFAULT;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Instant;
use wayland_protocols_plasma::plasma_window_management::server::{
    org_kde_plasma_window::{OrgKdePlasmaWindow, Request as WindowRequest},
    org_kde_plasma_window_management::{
        OrgKdePlasmaWindowManagement, Request as ManagementRequest, State,
    },
};
use wayland_server::{
    Client, DataInit, Dispatch, Display, DisplayHandle, GlobalDispatch, ListeningSocket, New,
};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{AtomEnum, ConnectionExt as _, PropMode, Window, WindowClass};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

/// An X server with a free number.
fn display() -> (Running, String) {
    let directory = TempDir::new();
    let path = directory.path().join("number");
    let file = std::fs::File::create(&path).expect("a file");
    let mut command = Command::new("Xvfb");
    command.args([
        "-displayfd",
        "1",
        "-screen",
        "0",
        "320x200x24",
        "-nolisten",
        "tcp",
    ]);
    let server = command.stdout(file).stderr(Stdio::null()).spawn();
    let server = Running(server.expect("these tests need Xvfb (Debian: xvfb)"));
    let number = || std::fs::read_to_string(&path).unwrap_or_default();
    wait_until("the X server", || number().ends_with('\n'));
    let display = format!(":{}", number().trim());
    (server, display)
}

struct Desktop {
    connection: RustConnection,
    root: Window,
    window: Window,
    active: u32,
}

impl Desktop {
    fn open(display: &str) -> Self {
        let (connection, screen) = x11rb::connect(Some(display)).expect("connected");
        let root = connection.setup().roots[screen].root;
        let window = connection.generate_id().expect("an id");
        let class = WindowClass::INPUT_OUTPUT;
        connection
            .create_window(
                0,
                window,
                root,
                0,
                0,
                9,
                9,
                0,
                class,
                0,
                &Default::default(),
            )
            .expect("sent");
        let mut desktop = Self {
            connection,
            root,
            window,
            active: x11rb::NONE,
        };
        desktop.active = desktop.atom("_NET_ACTIVE_WINDOW");
        desktop.activate(x11rb::NONE);
        desktop
    }

    fn atom(&self, name: &str) -> u32 {
        let atom = self.connection.intern_atom(false, name.as_bytes());
        atom.expect("sent").reply().expect("answered").atom
    }

    /// Writes a property of the root window.
    fn write(&self, property: u32, kind: AtomEnum, numbers: &[u32]) {
        let (mode, root) = (PropMode::REPLACE, self.root);
        let change = self
            .connection
            .change_property32(mode, root, property, kind, numbers);
        change.expect("sent").check().expect("done");
    }

    /// Takes the focus away and gives it back. What is undone before the agent has looked is no change.
    fn switch_to(&self) {
        self.activate(x11rb::NONE);
        std::thread::sleep(std::time::Duration::from_millis(10));
        self.activate(self.window);
    }

    fn activate(&self, window: Window) {
        self.write(self.active, AtomEnum::WINDOW, &[window]);
    }
}

fn agent(service: &Service, display: &str) -> Running {
    let mut command = service.command(&["agent", "--display", display, "--verbose"]);
    let path = service.directory.path().join("agent");
    command
        .stdout(std::fs::File::create(path).expect("a file"))
        .stderr(Stdio::null());
    Running(command.spawn().expect("prepage agent"))
}

/// A command of a session that sets these variables alone.
fn in_session(service: &Service, arguments: &[&str], variables: &[(&str, &Path)]) -> Command {
    let mut command = service.command(arguments);
    for name in ["DISPLAY", "WAYLAND_DISPLAY", "SWAYSOCK"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    command
}

/// A service to which a switch is soon over, and the next one none too early.
fn service() -> Service {
    Service::start("[switch]\nquiet_ms = 20\nrepeat_ms = 0\n")
}

fn track(service: &Service, pid: u32) {
    service.call(&["track", "--pid", &pid.to_string()]);
}

fn has_switch_by_focus(service: &Service) -> bool {
    let switches = service.switches();
    switches.iter().any(|switch| switch["source"] == "focus")
}

#[test]
fn focus_is_reported_also_after_the_service_was_away() {
    let (mut server, display) = display();
    let mut service = service();
    // The window is this process's: its connection says so, whatever its properties say.
    let own = std::process::id();
    track(&service, own);
    let desktop = Desktop::open(&display);
    let mut agent = agent(&service, &display);
    let reports = service.directory.path().join("agent");
    let reported = || {
        std::fs::read_to_string(&reports)
            .unwrap_or_default()
            .lines()
            .count()
    };
    // The agent tells what changes after it has begun to watch.
    wait_until("the agent", || {
        desktop.switch_to();
        reported() > 0
    });
    wait_until("the switch", || has_switch_by_focus(&service));

    service.signal(rustix::process::Signal::KILL);
    service.wait();
    desktop.switch_to();
    service.start_again(&[]);
    // Killed before that was on the disk, it does not know.
    track(&service, own);
    let before = reported();
    desktop.switch_to();
    wait_until("the report to the new service", || reported() > before);
    // The focus that changed while it was away may have reached it too, if the agent was late to notice it.
    wait_until("its switch", || has_switch_by_focus(&service));

    let started = Instant::now();
    drop(server.0.kill());
    let status = agent.0.wait().expect("ended");
    assert!(status.success(), "the agent ends with its X server");
    assert!(started.elapsed().as_secs() < 10);
}

#[test]
fn focus_is_reported_from_a_session_of_gamescope() {
    let (_server, display) = display();
    let service = service();
    let own = std::process::id();
    track(&service, own);
    let desktop = Desktop::open(&display);
    let write = |name: &str, numbers: &[u32]| {
        desktop.write(desktop.atom(name), AtomEnum::CARDINAL, numbers);
    };
    // A window of this number is of another process in the first X server, and of this one in a second.
    const WINDOW: u32 = 0x0040_0001;
    let windows = [WINDOW, 769, 1, WINDOW, 570, own];
    write("GAMESCOPE_FOCUSABLE_WINDOWS", &windows);
    let switch_to = |app: u32| {
        write("GAMESCOPE_FOCUSED_APP", &[app]);
        write("GAMESCOPE_FOCUSED_WINDOW", &[WINDOW]);
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let mut doctor = in_session(&service, &["doctor"], &[("DISPLAY", Path::new(&display))]);
    let doctor = doctor.output().expect("prepage doctor");
    let said = String::from_utf8_lossy(&doctor.stdout);
    assert!(said.contains("gamescope tells `prepage agent`"), "{said}");
    let _agent = agent(&service, &display);
    wait_until("the switch", || {
        switch_to(769);
        switch_to(570);
        has_switch_by_focus(&service)
    });
    let reports = || {
        let path = service.directory.path().join("agent");
        std::fs::read_to_string(path).expect("reports")
    };
    let focus = |pid: u32| format!("focus of process {pid}:");
    wait_until("its report", || {
        let reports = reports();
        let last = reports.lines().next_back();
        reports.ends_with('\n') && last.is_some_and(|line| line.starts_with(&focus(own)))
    });
    // Active in its own server, shown or not; and shown already.
    let before = reports();
    desktop.switch_to();
    switch_to(570);
    switch_to(769);
    wait_until("a report", || reports() != before);
    let after = reports();
    let since: Vec<&str> = after[before.len()..].lines().collect();
    let is_one = matches!(since[..], [line] if line.starts_with(&focus(1)));
    assert!(is_one, "{since:?}");
}

/// A message of sway's IPC.
fn sway_message(kind: u32, payload: &str) -> Vec<u8> {
    let len = payload.len() as u32;
    let (len, kind) = (len.to_ne_bytes(), kind.to_ne_bytes());
    [b"i3-ipc", &len[..], &kind[..], payload.as_bytes()].concat()
}

#[test]
fn focus_is_reported_from_a_session_of_sway() {
    const SUBSCRIBE: u32 = 2;
    const WINDOW: u32 = 0x8000_0003;
    let (service, own) = (service(), std::process::id());
    track(&service, own);
    let path = service.directory.path().join("sway");
    let sway = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    let mut command = in_session(&service, &["agent"], &[("SWAYSOCK", &path)]);
    let mut agent = Running(command.spawn().expect("prepage agent"));
    let (mut stream, _) = sway.accept().expect("the agent");
    let mut asked = vec![0; sway_message(SUBSCRIBE, "[\"window\"]").len()];
    stream.read_exact(&mut asked).expect("asked");
    assert_eq!(asked, sway_message(SUBSCRIBE, "[\"window\"]"));
    let mut say = |kind, payload: &str| {
        stream
            .write_all(&sway_message(kind, payload))
            .expect("sent");
    };
    say(SUBSCRIBE, "{\"success\": true}");
    say(
        WINDOW,
        "{\"change\": \"new\", \"container\": {\"id\": 1, \"pid\": 1}}",
    );
    let focus = format!("{{\"change\": \"focus\", \"container\": {{\"id\": 1, \"pid\": {own}}}}}");
    say(WINDOW, &focus);
    wait_until("the switch", || has_switch_by_focus(&service));
    drop(stream);
    let status = agent.0.wait().expect("ended");
    assert!(status.success(), "the agent ends with its session");
}

#[test]
fn a_socket_of_a_session_that_has_ended_is_none() {
    let (_server, display) = display();
    let service = service();
    track(&service, std::process::id());
    let gone = service.directory.path().join("gone");
    let (on_x, on_both) = (
        [("DISPLAY", Path::new(&display))],
        [("DISPLAY", Path::new(&display)), ("SWAYSOCK", &gone)],
    );
    let mut command = in_session(&service, &["agent"], &on_both);
    let _agent = Running(command.spawn().expect("prepage agent"));
    let desktop = Desktop::open(&display);
    wait_until("the switch", || {
        desktop.switch_to();
        has_switch_by_focus(&service)
    });
    let focus = |variables: &[(&str, &Path)]| {
        let doctor = in_session(&service, &["doctor", "--json"], variables).output();
        let report: serde_json::Value =
            serde_json::from_slice(&doctor.expect("prepage doctor").stdout).expect("JSON");
        let findings = report["findings"].as_array().expect("a list");
        let focus = findings.iter().find(|f| f["what"] == "window focus");
        focus.expect("told")["detail"]
            .as_str()
            .expect("text")
            .to_owned()
    };
    assert_eq!(
        focus(&on_x),
        "the X server tells `prepage agent`, where that runs \
         (systemctl --user status prepage-agent)"
    );
    let said = focus(&on_both);
    assert!(said.contains("no connection to sway"), "{said}");
    let mut command = in_session(&service, &["agent"], &[("SWAYSOCK", &gone)]);
    let refused = command.output().expect("prepage agent");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said.contains("no connection to sway at ") && said.contains("gone"),
        "{said}"
    );
}

/// A compositor with a window of nobody's and one of this process, which speaks as KWin does.
#[derive(Default)]
struct Kwin {
    windows: Vec<OrgKdePlasmaWindow>,
}

impl Kwin {
    /// Gives the last window the focus, from no other.
    fn switch_to(&self) {
        if let [_, .., last] = &self.windows[..] {
            last.state_changed(0);
            last.state_changed(State::Active as u32);
        }
    }
}

impl GlobalDispatch<OrgKdePlasmaWindowManagement, ()> for Kwin {
    fn bind(
        _: &mut Self,
        _: &DisplayHandle,
        _: &Client,
        manager: New<OrgKdePlasmaWindowManagement>,
        (): &(),
        init: &mut DataInit<'_, Self>,
    ) {
        let manager = init.init(manager, ());
        for pid in [0, std::process::id()] {
            manager.window_with_uuid(0, pid.to_string());
        }
    }
}

impl Dispatch<OrgKdePlasmaWindowManagement, ()> for Kwin {
    fn request(
        kwin: &mut Self,
        _: &Client,
        _: &OrgKdePlasmaWindowManagement,
        request: ManagementRequest,
        (): &(),
        _: &DisplayHandle,
        init: &mut DataInit<'_, Self>,
    ) {
        let ManagementRequest::GetWindowByUuid {
            id,
            internal_window_uuid: pid,
        } = request
        else {
            panic!("{request:?}");
        };
        let window = init.init(id, ());
        window.state_changed(State::Active as u32);
        window.pid_changed(pid.parse().expect("what was told"));
        kwin.windows.push(window);
    }
}

impl Dispatch<OrgKdePlasmaWindow, ()> for Kwin {
    fn request(
        _: &mut Self,
        _: &Client,
        _: &OrgKdePlasmaWindow,
        request: WindowRequest,
        (): &(),
        _: &DisplayHandle,
        _: &mut DataInit<'_, Self>,
    ) {
        panic!("{request:?}");
    }
}

#[test]
fn focus_is_reported_from_a_session_of_kde_plasma() {
    let service = service();
    track(&service, std::process::id());
    let mut display = Display::<Kwin>::new().expect("a display");
    let mut handle = display.handle();
    handle.create_global::<Kwin, OrgKdePlasmaWindowManagement, ()>(16, ());
    let path = service.directory.path().join("wayland");
    let socket = ListeningSocket::bind_absolute(path.clone()).expect("bound");
    let mut command = in_session(&service, &["agent"], &[("WAYLAND_DISPLAY", &path)]);
    let mut agent = Running(command.spawn().expect("prepage agent"));
    let mut kwin = Kwin::default();
    wait_until("the switch", || {
        if let Some(stream) = socket.accept().expect("listening") {
            let client = handle.insert_client(stream, Arc::new(()));
            client.expect("a client");
        }
        display.dispatch_clients(&mut kwin).expect("dispatched");
        kwin.switch_to();
        display.flush_clients().expect("flushed");
        has_switch_by_focus(&service)
    });
    drop((kwin, handle, display));
    let status = agent.0.wait().expect("ended");
    assert!(status.success(), "the agent ends with its session");
}

/// The extension as it is installed for this GNOME Shell, but for the socket.
fn extension(shell: &str, directory: &TempDir, socket: &Path) -> PathBuf {
    let mut make = Command::new("make");
    make.arg("--directory")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .args(["install-extension", "PREFIX=/usr"])
        .arg(format!("GNOME_SHELL={shell}"))
        .arg(format!("DESTDIR={}", directory.path().display()));
    let output = make.output().expect("this test needs make");
    assert!(output.status.success(), "{output:?}");
    let extensions = directory.path().join("usr/share/gnome-shell/extensions");
    let mut entries = std::fs::read_dir(extensions).expect("installed");
    let extension = entries.next().expect("one extension").expect("read").path();
    let file = extension.join("extension.js");
    let code = std::fs::read_to_string(&file).expect("installed");
    let ours = code.replace(SOCKET_DEFAULT, socket.to_str().expect("text"));
    assert_ne!(code, ours);
    std::fs::write(file, ours).expect("written");
    extension
}

/// Enables the extension as this GNOME Shell would, while no window has the focus, tells it of a window of no process, of one of this
/// process, and disables it.
fn shell_runs(shell: &str, extension: &Path) -> Output {
    let (mode, load) = match shell {
        "43" => (
            None,
            "imports.searchPath.unshift(DIRECTORY); const extension = imports.extension.init();",
        ),
        _ => (
            Some("-m"),
            "const {default: Extension} = await import(`file://${DIRECTORY}/extension.js`);
            const extension = new Extension({});",
        ),
    };
    let script = format!(
        "const DIRECTORY = '{}';
        globalThis.global = {{display: {{
            focus_window: null,
            connect(signal, handler) {{ Object.assign(this, {{signal, handler}}); return 7; }},
            disconnect(id) {{ this.disconnected = id; }},
        }}}};
        {load}
        extension.enable();
        for (const window of [null, {{get_pid: () => 0}}, {{get_pid: () => {}}}]) {{
            global.display.focus_window = window;
            global.display.handler(global.display);
        }}
        extension.disable();
        print(global.display.signal, global.display.disconnected);",
        extension.display(),
        std::process::id()
    );
    let file = extension.join("shell.js");
    std::fs::write(&file, script).expect("written");
    let output = Command::new("gjs").args(mode).arg(file).output();
    output.expect("this test needs gjs (Debian: gjs)")
}

#[test]
fn focus_is_reported_from_a_session_of_gnome() {
    for shell in ["43", "47"] {
        let (mut service, directory) = (service(), TempDir::new());
        track(&service, std::process::id());
        let extension = extension(shell, &directory, &service.socket());
        let metadata = std::fs::read(extension.join("metadata.json")).expect("installed");
        let metadata: serde_json::Value = serde_json::from_slice(&metadata).expect("JSON");
        assert_eq!(
            Some(extension.file_name().expect("a name")),
            metadata["uuid"].as_str().map(AsRef::as_ref)
        );
        let versions = metadata["shell-version"].as_array().expect("a list");
        assert!(versions.contains(&shell.into()), "{versions:?}");
        for is_there in [true, false] {
            if !is_there {
                service.signal(rustix::process::Signal::KILL);
                service.wait();
            }
            let output = shell_runs(shell, &extension);
            let (said, complained) = (&output.stdout[..], &output.stderr[..]);
            assert_eq!(
                (said, complained),
                (&b"notify::focus-window 7\n"[..], &b""[..])
            );
            if is_there {
                wait_until("the switch", || has_switch_by_focus(&service));
            }
        }
    }
}

#[test]
fn the_way_from_focus_to_service_is_short() {
    let (_server, display) = display();
    // A socket of the test's own stands in for the service, so that nothing but the way to it is measured.
    let service = Service::start("");
    let path = service.directory.path().join("own");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    let mut command = Command::new(env!("CARGO_BIN_EXE_prepage"));
    command
        .arg("--socket")
        .arg(&path)
        .args(["agent", "--display", &display]);
    let _agent = Running(command.stdin(Stdio::null()).spawn().expect("prepage agent"));
    let (mut stream, _) = listener.accept().expect("the agent");
    stream
        .set_read_timeout(Some(std::time::Duration::from_secs(5)))
        .expect("set");
    let desktop = Desktop::open(&display);
    // It is connected before it watches.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let mut delays = Vec::new();
    for _ in 0..50 {
        desktop.activate(x11rb::NONE);
        // A change that is undone before the agent has looked is none.
        std::thread::sleep(std::time::Duration::from_millis(10));
        let changed = Instant::now();
        desktop.activate(desktop.window);
        let request = common::message(&mut stream);
        delays.push(changed.elapsed().as_micros());
        assert!(request.contains("SwitchBegin"), "{request}");
        let reply = b"{\"parameters\":{\"app\":null,\"tracked\":false,\"began\":false}}\0";
        stream.write_all(reply).expect("sent");
    }
    delays.sort_unstable();
    let median_us = delays[delays.len() / 2];
    println!(
        "from the property's change to the call: median {median_us} us, longest {} us",
        delays[49]
    );
    assert!(median_us < 20_000, "{median_us} us");
}
