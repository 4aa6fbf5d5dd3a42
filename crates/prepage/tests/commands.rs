//! The commands as a person types them, against a running service.

mod common;

use common::{Service, TempDir, application, application_by, is_root, program, wait_until};
use prepage::api::DESCRIPTION;
use prepage_kernel::cgroup::procs;
use prepage_kernel::process;
use prepage_kernel::testing::group::{Group, memory, v2};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::Command;

/// The user that is nobody.
const NOBODY: u32 = 65_534;

#[test]
fn an_application_from_track_to_forget() {
    let service = Service::start("");
    let said = |arguments: &[&str]| service.call(arguments);
    let apps = TempDir::new();
    let app = application(&apps, "editor");
    let pid = app.pid().to_string();
    let owner = rustix::process::geteuid().as_raw();
    let name = format!("executable:{}/editor@{owner}", apps.path().display());

    assert!(said(&["status"]).contains("no application of yours is tracked"));
    assert!(said(&["track", "--pid", &pid]).starts_with(&format!("tracking {name}")));
    assert!(said(&["track", "--name", "editor"]).starts_with("already tracking"));
    let app = &service.json(&["status"])["apps"][0];
    assert_eq!(
        (&app["app"], &app["state"]),
        (&name.into(), &"running".into())
    );

    assert!(said(&["untrack", "--name", "editor"]).contains("no longer"));
    assert!(said(&["apps", "list"]).contains("editor"));
    assert!(said(&["apps", "forget", "editor"]).contains("forgotten"));
    assert_eq!(
        service.json(&["apps", "list"])["apps"],
        serde_json::json!([])
    );
}

#[test]
fn the_interface_describes_all_that_status_answers() {
    let (_, method) = DESCRIPTION.split_once("method Status()").expect("there");
    let (described, _) = method.split_once("\n)").expect("its end");
    let status = Service::start("").json(&["status"]);
    for name in status.as_object().expect("an object").keys() {
        assert!(described.contains(&format!("\n  {name}: ")), "{name}");
    }
}

#[test]
fn an_explicit_switch_and_what_is_said_of_it() {
    let service = Service::start("[switch]\nquiet_ms = 60000\ncap_ms = 60000\n");
    let said = |arguments: &[&str]| service.call(arguments);
    let apps = TempDir::new();
    let app = application(&apps, "editor");
    let pid = app.pid().to_string();
    said(&["track", "--pid", &pid]);
    assert!(said(&["switch", "begin", "--pid", &pid]).contains("began"));
    assert_eq!(service.json(&["status"])["apps"][0]["state"], "switching");
    assert!(said(&["switch", "end", "--name", "editor"]).contains("ended"));
    assert!(said(&["switch", "end", "--name", "editor"]).contains("no switch"));
    wait_until("the observation", || service.switches().len() == 1);
    let switch = &service.switches()[0];
    let explicit = serde_json::json!("explicit");
    assert_eq!((&switch["source"], &switch["end"]), (&explicit, &explicit));
    assert!(said(&["stats", "editor"]).contains("precision"));
    assert!(said(&["explain", "editor"]).contains("1 switches seen"));
    assert_eq!(service.json(&["explain", "editor"])["switches"], 1);
}

#[test]
fn a_switch_ends_by_itself_once_it_is_quiet() {
    let service = Service::start("[switch]\nquiet_ms = 50\n");
    let apps = TempDir::new();
    let app = application(&apps, "quiet");
    let pid = app.pid().to_string();
    service.call(&["track", "--pid", &pid]);
    service.call(&["switch", "begin", "--pid", &pid]);
    wait_until("the end", || service.switches().len() == 1);
    assert_eq!(service.switches()[0]["end"], "quiet");
}

#[test]
fn modes() {
    let service = Service::start("[service]\nmode = \"observe\"\n");
    assert_eq!(service.call(&["mode"]), "observe\n");
    if is_root() {
        assert_eq!(service.call(&["mode", "anon"]), "anon (was observe)\n");
        assert_eq!(service.json(&["mode"])["mode"], "anon");
        service.call(&["mode", "off"]);
    }
    let (code, said) = service.refused(&["mode", "fast"]);
    assert!(
        code == 2 && said.contains("off, observe, anon, file, full"),
        "{said}"
    );
}

#[test]
fn in_mode_off_no_switch_begins() {
    let service = Service::start("[service]\nmode = \"off\"\n");
    let apps = TempDir::new();
    let app = application(&apps, "idle");
    let pid = app.pid().to_string();
    service.call(&["track", "--pid", &pid]);
    assert!(
        service
            .call(&["switch", "begin", "--pid", &pid])
            .contains("no switch")
    );
}

#[test]
fn a_given_name_replaces_the_found_one() {
    let service = Service::start("");
    let apps = TempDir::new();
    let app = application(&apps, "thing");
    let pid = app.pid().to_string();
    let found = service.json(&["track", "--pid", &pid]);
    assert_eq!(found["given_up"], serde_json::json!([]));
    let said = service.call(&["track", "--pid", &pid, "--name", "mine"]);
    assert!(said.contains("named:mine@"), "{said}");
    let given_up = found["app"].as_str().expect("an id");
    let line = format!("it was tracked as {given_up}, which is given up\n");
    assert!(said.contains(&line), "{said}");
    let apps = service.json(&["status"])["apps"]
        .as_array()
        .expect("a list")
        .len();
    assert_eq!(apps, 1);
    service.call(&["switch", "begin", "--name", "mine"]);
}

#[test]
fn mistakes_say_what_to_do() {
    let service = Service::start("");
    for (arguments, expected) in [
        (
            &["track", "--pid", "2147483000"][..],
            "there is no process 2147483000",
        ),
        (&["track", "--pid", "1"], "no application"),
        (&["track", "--cgroup", "/tmp"], "is no control group"),
        (
            &["track", "--cgroup", "/nonexistent"],
            "is no control group",
        ),
        // Whether there is such a file is not for everybody to know.
        (&["track", "--cgroup", "/etc/passwd"], "is no control group"),
        (
            &["track", "--cgroup", "/sys/fs/cgroup/../x"],
            "is no control group",
        ),
        (
            &["track", "--name", "no-such-application"],
            "prepage apps list",
        ),
        (&["untrack", "--name", "x"], "prepage track"),
        (&["switch", "begin", "--name", "x"], "prepage track"),
        (
            &["switch", "begin", "--pid", "2147483000"],
            "there is no process",
        ),
        (&["explain", "x"], "prepage apps list"),
        (&["track", "--name", "no\nsuch"], "\"no\\nsuch\""),
        (&["apps", "import", "/nonexistent"], "No such file"),
        (
            &["apps", "import", "/etc/passwd"],
            "/etc/passwd: not a profile of prepage: give a file that `prepage apps export` wrote",
        ),
        (&["apps", "import", "/dev/null"], "/dev/null: shorter"),
        (&["apps", "import", "/dev/zero"], "/dev/zero: larger"),
        (&["apps", "export", "x"], "prepage apps list"),
    ] {
        let (code, said) = service.refused(arguments);
        assert!(
            code == 1 && said.contains(expected),
            "{arguments:?}: {code} {said}"
        );
    }
    for arguments in [
        &["track", "--pid", "0"][..],
        &["track", "--pid", "1", "--cgroup", "/x"],
        &["switch", "x"],
        &[],
    ] {
        assert_eq!(service.refused(arguments).0, 2, "{arguments:?}");
    }
}

#[test]
fn without_the_service_commands_say_so_and_doctor_works() {
    let output = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prepage"));
        command
            .args(["--socket", "/nonexistent/s"])
            .args(arguments)
            .output()
            .expect("prepage")
    };
    let status = output(&["status"]);
    let said = String::from_utf8_lossy(&status.stderr).into_owned();
    assert_eq!(status.status.code(), Some(3));
    assert!(
        said.contains("systemctl start prepaged") && said.contains("doctor"),
        "{said}"
    );
    let doctor = output(&["doctor", "--json"]);
    assert!(doctor.status.success());
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).expect("JSON");
    assert!(report["findings"].as_array().is_some_and(|f| f.len() > 10));
    let said = String::from_utf8(output(&["doctor"]).stdout).expect("text");
    assert!(said.contains("The service is not running"), "{said}");
}

#[test]
fn doctor_tells_an_ordinary_user_that_root_has_more() {
    let service = Service::start("");
    let output = service.call_as(NOBODY, &["doctor"]);
    let said = String::from_utf8(output.stdout).expect("text");
    for part in [
        "MISSING rights: user 65534",
        "MISSING tracepoints (tracefs)",
        "missing to this user: `sudo prepage doctor`",
        "`prepage status` what the service lacks.",
        "The service is running at",
    ] {
        assert!(said.contains(part), "{part:?} is not in:\n{said}");
    }
}

#[test]
fn a_reader_that_is_gone_ends_every_command_quietly() {
    let service = Service::start("");
    for arguments in [
        &["status"][..],
        &["apps", "list", "--json"],
        &["stats"],
        &["doctor"],
        &["policy"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = service.command(arguments).stdout(writer).output();
        let output = output.expect("prepage");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        assert_eq!(said, "", "{arguments:?}");
    }
}

#[test]
fn without_the_rest_of_the_program_launches_work_and_commands_say_what_is_missing() {
    let directory = common::TempDir::new();
    let alone = common::copy_for_others(directory.path());
    std::fs::remove_file(directory.path().join("prepage-control")).expect("removed");
    let output = |arguments: &[&str]| {
        let output = Command::new(&alone)
            .args(arguments)
            .output()
            .expect("prepage");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let store = directory.path().display().to_string();
    let launch = || output(&["run", "--store", &store, "--", "sh", "-c", "exit 7"]);
    assert_eq!(launch(), (Some(7), String::new()));
    std::fs::remove_file(directory.path().join("prepage-launch")).expect("removed");
    let (code, said) = launch();
    assert_eq!(code, Some(7), "{said}");
    assert!(
        said.contains("prepage-launch") && said.contains("installed"),
        "{said}"
    );
    let (code, said) = output(&["status"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("prepage-control") && said.contains("installed"),
        "{said}"
    );
}

#[test]
fn what_is_called_by_prepage_says_so() {
    for words in [&[][..], &["gimp"], &["1:2"], &["2:1", "--", "true"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prepage-launch"));
        let output = command.args(words).output().expect("prepage-launch");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("prepage run"), "{said}");
    }
}

#[test]
fn an_option_that_run_does_not_have_is_a_mistake_and_no_command() {
    let directory = TempDir::new();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prepage"));
        let store = directory.path().join("store");
        command.arg("run").arg("--store").arg(store).args(arguments);
        let output = command.output().expect("prepage");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, _, said) = run(&["--verbos", "true"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("unexpected argument '--verbos'"), "{said}");
    // What follows the command is the command's.
    let echoed = run(&["--order=launch", "echo", "-v", "--cold", "--", "-x"]);
    assert_eq!(echoed, (Some(0), "-v --cold -- -x\n".into(), String::new()));
    let (code, _, said) = run(&["--", "-x"]);
    assert!(
        code == Some(127) && said.contains("-x: command not found"),
        "{said}"
    );
    let (code, _, said) = run(&["--start", "only", "no-such-command"]);
    assert!(
        code == Some(127) && said.contains("no such program"),
        "{said}"
    );
}

#[test]
fn every_command_has_help_with_examples() {
    let help = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_prepage"))
            .args(arguments)
            .output()
            .expect("prepage");
        String::from_utf8(output.stdout).expect("text")
    };
    for command in [
        "track", "untrack", "switch", "mode", "policy", "status", "explain", "stats", "doctor",
        "agent", "run",
    ] {
        let text = help(&[command, "--help"]);
        assert!(
            text.contains("Example") || text.contains("sudo prepage doctor"),
            "{command}: {text}"
        );
    }
    for action in ["list", "forget", "export", "import"] {
        assert!(
            help(&["apps", action, "--help"]).contains("Example"),
            "{action}"
        );
    }
    assert!(help(&["--help"]).contains("Exit status"));
}

#[test]
fn an_application_that_ends_comes_back_under_its_name() {
    let service = Service::start("");
    let apps = TempDir::new();
    let app = application(&apps, "phoenix");
    service.call(&["track", "--pid", &app.pid().to_string()]);
    let state = || {
        service.json(&["status"])["apps"][0]["state"]
            .as_str()
            .map(str::to_owned)
    };
    drop(app);
    wait_until("its end", || state().as_deref() == Some("not running"));
    let app = application(&apps, "phoenix");
    assert!(
        service
            .call(&["switch", "begin", "--pid", &app.pid().to_string()])
            .contains("began")
    );
    assert_eq!(state().as_deref(), Some("switching"));
}

#[test]
fn applications_of_the_configuration_are_tracked_when_they_are_found() {
    let apps = TempDir::new();
    let app = application(&apps, "listed-application");
    let service = Service::start("[service]\napplications = [\"listed-application\"]\n");
    let status = service.json(&["status"]);
    assert_eq!(
        status["apps"][0]["members"],
        format!("process tree of {}", app.pid())
    );
}

/// A program that a script launches is that script's, unless it is asked for by its own name.
#[test]
fn what_is_asked_for_by_name_is_found_below_a_script() {
    let apps = TempDir::new();
    let (listed, tracked) = (program(&apps, "listed"), program(&apps, "tracked"));
    let script = apps.path().join("script");
    let lines = format!(
        "{} 600 &\n{} 600 &\nwait\n",
        listed.display(),
        tracked.display()
    );
    std::fs::write(&script, lines).expect("written");
    let service = Service::listing(&["listed"]);
    let shell = std::fs::canonicalize("/bin/sh").expect("a shell");
    let mut command = Command::new("setsid");
    let running = application_by(&shell, command.arg("/bin/sh").arg(&script));
    let children = || prepage_kernel::process::tree(running.pid(), 9);
    wait_until("its children", || children().len() == 3);
    let names = || {
        let status = service.json(&["status"]);
        let apps = status["apps"].as_array().expect("a list").iter();
        apps.map(|app| app["app"].as_str().expect("text").to_owned())
            .collect::<Vec<_>>()
    };
    let id = |path: &Path| format!("executable:{}@0", path.display());
    wait_until("the listed one", || names() == [id(&listed)]);
    service.call(&["track", "--name", "tracked"]);
    assert_eq!(names(), [id(&listed), id(&tracked)]);
    // Whose the script is was not asked.
    let pid = running.pid().to_string();
    service.call(&["track", "--pid", &pid]);
    assert!(names().contains(&id(&script)), "{:?}", names());
    for pid in children() {
        let pid = rustix::process::Pid::from_raw(pid).expect("a process");
        _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// The scope of a desktop application, as a user's manager makes it. Its processes end with it.
struct Scope {
    group: Group,
    _manager: Group,
}

impl Scope {
    fn create(id: &str) -> Self {
        let manager = format!("user@{}-{id}.service", std::process::id());
        let group = || Group::named(&v2(), &format!("{manager}/app-{id}-7.scope"));
        let _manager = Group::named(&v2(), &manager);
        Self {
            group: group(),
            _manager,
        }
    }

    /// A command in there that runs this line, of which `$1` is the program.
    fn command(&self, line: &str, program: &Path) -> Command {
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", &format!("echo 0 > \"$0\" && {line}")]);
        command.arg(self.group.0.directory.join("cgroup.procs"));
        command.arg(program);
        command
    }

    fn pids(&self) -> Vec<i32> {
        procs(&self.group.0.directory).expect("the group is there")
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        for pid in self.pids().into_iter().filter_map(Pid::from_raw) {
            _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// A scope names it by a desktop entry; who lists it, or asks for it, gives its command.
#[test]
fn an_application_that_a_scope_names_is_found_by_its_command() {
    assert!(is_root(), "this test needs root, to make control groups");
    let apps = TempDir::new();
    let scope = Scope::create("org.prepage.Studio");
    let listed = program(&apps, "listed");
    let asked = program(&apps, "asked");
    let service = Service::listing(&["listed"]);
    let running = application_by(&listed, &mut scope.command("exec \"$1\" 600", &listed));
    let names = || {
        let status = service.json(&["status"]);
        let apps = status["apps"].as_array().expect("a list").iter();
        apps.map(|app| app["app"].as_str().expect("text").to_owned())
            .collect::<Vec<_>>()
    };
    let studio = "desktop:org.prepage.Studio@0";
    wait_until("what is listed", || names() == [studio]);
    // What has joined it does not name it.
    let joined = application_by(&asked, &mut scope.command("exec \"$1\" 600", &asked));
    let (_, said) = service.refused(&["track", "--name", "asked"]);
    assert!(said.contains("no application of yours"), "{said}");
    let (_, said) = service.refused(&["untrack", "--name", "listed"]);
    assert!(said.contains("the configuration lists"), "{said}");
    drop((running, joined));
    let other = Service::start("");
    let running = application_by(&asked, &mut scope.command("exec \"$1\" 600", &asked));
    let said = other.call(&["track", "--name", "asked"]);
    assert!(said.contains(studio), "{said}");
    drop(running);
}

/// As a file manager opens documents, and what waits for its crashes, which lies beside it.
#[test]
fn what_an_application_leaves_to_itself_is_known_by_its_own_name() {
    assert!(is_root(), "this test needs root, to make control groups");
    let (own, elsewhere) = (TempDir::new(), TempDir::new());
    let scope = Scope::create("org.prepage.Files");
    let files = program(&own, "files");
    let running = application_by(&files, &mut scope.command("exec \"$1\" 600", &files));
    let opened = program(&elsewhere, "opened");
    let left = [program(&own, "crash-handler"), opened.clone()].map(|program| {
        let mut command = scope.command("(setsid \"$1\" 600 &)", &program);
        assert!(command.status().expect("setsid").success());
        let is_it = |pid: &i32| process::exe(*pid).is_ok_and(|exe| exe == program);
        let find = || scope.pids().into_iter().find(is_it);
        wait_until("what is left to itself", || find().is_some());
        find().expect("it runs on")
    });
    let service = Service::start("");
    let opened = format!("executable:{}@0", opened.display());
    for (pid, name) in [
        (running.pid(), "desktop:org.prepage.Files@0"),
        (left[0], "desktop:org.prepage.Files@0"),
        (left[1], &opened),
    ] {
        let said = service.call(&["track", "--pid", &pid.to_string()]);
        assert!(said.contains(name), "{said}: {name}");
    }
    // What it opened is switched to by itself.
    let switch = service.json(&["switch", "begin", "--pid", &left[1].to_string()]);
    assert_eq!(switch["app"], opened, "{switch}");
    // The group that it was found by twice is one copy of it.
    let status = service.json(&["status"]);
    let apps = status["apps"].as_array().expect("an array");
    let files = apps
        .iter()
        .find(|a| a["app"] == "desktop:org.prepage.Files@0");
    let members = files.expect("it is tracked")["members"].as_str();
    assert!(!members.expect("text").contains(", "), "{status}");
}

/// Whoever names a file chooses what is printed of it, to root's terminal and to the log.
#[test]
fn control_characters_of_a_name_are_told_as_text() {
    let apps = TempDir::new();
    let app = application(&apps, "red\u{1b}[31m\nline");
    let service = Service::start("");
    let said = service.call(&["track", "--pid", &app.pid().to_string()]);
    let name = "/red\\u{1b}[31m\\nline@0";
    for told in [
        said,
        service.call(&["status"]),
        service.call(&["apps", "list"]),
    ] {
        assert!(told.contains(name), "{told}");
    }
    let id = service.json(&["status"])["apps"][0]["app"].clone();
    assert!(
        service
            .call(&["explain", id.as_str().expect("text")])
            .contains(name)
    );
}

/// The processes of a control group that is a user's and others'.
#[test]
fn a_user_is_shown_nothing_of_others_in_a_shared_group() {
    assert!(is_root(), "this test needs root, to become another user");
    let group = Group::create(&memory());
    let place = |pid: i32| group.write("cgroup.procs", pid);
    let apps = TempDir::new();
    let roots = application(&apps, "roots");
    place(roots.pid());
    let own = std::fs::canonicalize("/bin/sleep").expect("sleep");
    let mut command = Command::new("setsid");
    command
        .arg("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let own = application_by(&own, command.arg(&own).arg("600"));
    place(own.pid());
    let service = Service::start("");
    let tracked = service.call_as(NOBODY, &["track", "--pid", &own.pid().to_string()]);
    assert!(tracked.status.success(), "{tracked:?}");
    let status = service.json(&["status"]);
    assert_eq!(status["apps"][0]["processes"], 1, "{status}");
    let members = status["apps"][0]["members"].as_str().expect("text");
    assert!(members.contains("group"), "{members}");
    drop((own, roots));
}

#[test]
fn profiles_are_exported_and_imported() {
    let service = Service::start("");
    let apps = TempDir::new();
    let app = application(&apps, "shipped");
    service.call(&["track", "--pid", &app.pid().to_string()]);
    let file = apps.path().join("profile");
    let file = file.to_str().expect("text");
    assert!(
        service
            .call(&["apps", "export", "shipped", file])
            .contains("exported")
    );
    if !is_root() {
        return;
    }
    service.call(&["apps", "forget", "shipped"]);
    assert!(service.call(&["apps", "import", file]).contains("imported"));
    assert!(service.call(&["apps", "list"]).contains("shipped"));
    // Damaged anywhere, it is refused, and nothing else happens.
    let whole = std::fs::read(file).expect("the profile");
    for at in (0..whole.len()).step_by(whole.len() / 7 + 1) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        std::fs::write(file, &bytes).expect("written");
        let (code, said) = service.refused(&["apps", "import", file]);
        assert!(code == 1 && said.contains("profile"), "{said}");
    }
    std::fs::write(file, vec![7; 5 << 20]).expect("written");
    assert!(
        service
            .refused(&["apps", "import", file])
            .1
            .contains("larger")
    );
    service.call(&["status"]);
}

#[test]
fn other_users_see_and_touch_only_what_is_theirs() {
    assert!(is_root(), "this test needs root, to become another user");
    let service = Service::start("");
    let apps = TempDir::new();
    let app = application(&apps, "roots");
    let pid = app.pid().to_string();
    service.call(&["track", "--pid", &pid]);
    let refused = |arguments: &[&str]| {
        let output = service.call_as(NOBODY, arguments);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{arguments:?} was not refused"
        );
        String::from_utf8(output.stderr).expect("text")
    };
    for arguments in [
        &["track", "--pid", &pid][..],
        &["untrack", "--pid", &pid],
        &["switch", "begin", "--pid", &pid],
        &["switch", "end", "--pid", &pid],
    ] {
        let said = refused(arguments);
        let expected = format!("there is no process {pid} of yours");
        assert!(said.contains(&expected), "{arguments:?}: {said}");
        // Nor is it told what it is.
        assert!(!said.contains("roots"), "{arguments:?}: {said}");
    }
    assert!(refused(&["mode", "off"]).contains("only root"));
    assert!(refused(&["policy", "big1"]).contains("only root"));
    for arguments in [
        &["explain", "roots"][..],
        &["apps", "forget", "roots"],
        &["apps", "export", "roots"],
    ] {
        assert!(
            refused(arguments).contains("no application of yours"),
            "{arguments:?}"
        );
    }
    for command in ["status", "stats"] {
        let output = service.call_as(NOBODY, &[command, "--json"]);
        assert!(
            !String::from_utf8_lossy(&output.stdout).contains("roots"),
            "{command}"
        );
    }
    assert_eq!(
        service.json(&["status"])["apps"].as_array().map(Vec::len),
        Some(1)
    );
}
