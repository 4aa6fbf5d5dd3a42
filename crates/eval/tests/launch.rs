//! `prepage-eval launch` as a user types it, with a stand-in for prepage that reports and becomes the command: what is
//! measured and recorded, and that the machine is afterwards as it was. Needs root.

use prepage_core::extent::Extent;
use prepage_core::identity::{AppId, AppKind, FileId};
use prepage_core::launch::manager::{LaunchState, OffReason, Phase};
use prepage_core::launch::sequence::{LaunchSequence, SequenceFile, SequenceRead};
use prepage_engine::store::Store;
use prepage_kernel::filemap::FilemapKind;
use prepage_kernel::support::Support;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

const FILE_PAGES: u64 = 256;

/// One test after the other: one looks at what the machine's runs leave behind.
static MACHINE: Mutex<()> = Mutex::new(());

/// Says that it fetched, brings what it "learned", and becomes the command unless only the prefetch is wanted.
const STAND_IN: &str = r#"#!/bin/sh
only=
while [ $# -gt 0 ]; do
    case "$1" in
    --version) echo stand-in; exit ;;
    --report) report=$2; shift ;;
    --store) store=$2; shift ;;
    --start) [ "$2" = only ] && only=1; shift ;;
    --) shift; break ;;
    esac
    shift
done
case "$store" in */made-*) cp -r "$store" "${0%/*}/given" ;; esac
mkdir -p "$store"
cp "${0%/*}"/learned/*.* "$store"
[ -n "$report" ] && echo '{"phase":"prefetch","prefetch":{"pages":7,"paths":0,"completed_us":1234}}' >> "$report"
[ -z "$only" ] && exec "$@"
exit 0
"#;

/// A test's own directory, while no other test runs; removed where the test passes.
struct Stage {
    directory: PathBuf,
    /// What is launched reads it.
    file: PathBuf,
    /// The record.
    out: PathBuf,
    _machine: MutexGuard<'static, ()>,
}

impl Stage {
    /// With the stand-in, a file, and a profile in this phase whose launch sequence is that file.
    fn new(name: &str, phase: Phase) -> Self {
        let machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        Self {
            file: prepare(&directory, phase),
            out: directory.join("launches.jsonl"),
            directory,
            _machine: machine,
        }
    }

    /// Launches a command in the directory, which is in its path. Returns whether that was done, and what was said.
    fn try_launch(&self, arguments: &[&str], command: &[&str]) -> (bool, String) {
        let path = std::env::var("PATH").expect("a path");
        let output = Command::new(env!("CARGO_BIN_EXE_prepage-eval"))
            .env("PATH", format!("{path}:{}", self.directory.display()))
            .args(["launch", "--throttle", "emmc"])
            // Other tests may run beside it: nothing here depends on time.
            .args(["--strangers-percent-max", "1000000", "--prepage-bin"])
            .arg(&self.directory)
            .arg("--out")
            .arg(&self.out)
            .args(arguments)
            .current_dir(&self.directory)
            .arg("--")
            .args(command)
            .output()
            .expect("run prepage-eval");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    }

    /// Launches `cat` of the file, by its name in the directory, and returns what was said.
    fn launch(&self, arguments: &[&str]) -> String {
        let name = self.file.file_name().and_then(|name| name.to_str());
        let (is_done, said) = self.try_launch(arguments, &["cat", name.expect("a file")]);
        assert!(is_done, "{said}");
        said
    }

    /// The lines of the record.
    fn read(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.out).expect("a record was written");
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("every line is JSON"))
            .collect()
    }

    /// What the study of the record says.
    fn study(&self, options: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_prepage-eval"))
            .arg("study")
            .args(options)
            .arg(&self.out)
            .output()
            .expect("run the study");
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            fs::remove_dir_all(&self.directory).expect("remove the test's directory");
        }
    }
}

fn write_script(path: &Path, content: &str) {
    fs::write(path, content).expect("write a script");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("make it executable");
}

/// Makes the directory anew with what it holds, and returns the file.
fn prepare(directory: &Path, phase: Phase) -> PathBuf {
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory).expect("make the test's directory");
    write_script(&directory.join("prepage"), STAND_IN);
    let file = directory.join("content");
    let page_bytes = prepage_kernel::page::page_size();
    fs::write(&file, vec![1; (FILE_PAGES * page_bytes) as usize]).expect("write the content");
    let metadata = fs::metadata(&file).expect("the content is there");
    let id = FileId {
        path: file.to_string_lossy().into(),
        device: (0, 0),
        inode: metadata.ino(),
        size: metadata.len(),
        mtime_ns: 0,
    };
    let mut sequence = LaunchSequence::default();
    sequence.files.push(SequenceFile {
        file: id,
        recordings: 2,
    });
    sequence.reads.push(SequenceRead {
        is_certain: true,
        file: 0,
        extent: Extent {
            start: 0,
            len: FILE_PAGES,
        },
        address_bytes: None,
    });
    let state = LaunchState {
        phase,
        sequence: sequence.into(),
        // Too long for a trial: nothing is left to find out.
        longest_us: 1_000_000,
        retry_left: 1_000,
        ..LaunchState::default()
    };
    let app = AppId {
        kind: AppKind::Named,
        name: "cat".into(),
        owner: 0,
    };
    let (mut store, _) = Store::open(&directory.join("learned")).expect("open a store");
    store.save_launch(&app, &state);
    store.flush().expect("kept");
    file
}

/// What a run may leave behind: directories, control groups, and a changed setting of a disk.
fn traces() -> BTreeSet<String> {
    let mut traces = BTreeSet::new();
    let mut places = vec![PathBuf::from("/var/tmp"), PathBuf::from("/dev/shm")];
    places.push("/sys/fs/cgroup".into());
    let hierarchies = fs::read_dir("/sys/fs/cgroup").expect("list control groups");
    places.extend(hierarchies.flatten().map(|entry| entry.path()));
    for place in places {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with("prepage-eval-")
            {
                traces.insert(entry.path().display().to_string());
            }
        }
    }
    for disk in fs::read_dir("/sys/block").expect("list disks").flatten() {
        let setting = disk.path().join("queue/read_ahead_kb");
        let value = fs::read_to_string(&setting).unwrap_or_default();
        traces.insert(format!("{} {value}", setting.display()));
    }
    traces
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

const SCENARIOS: &[&str] = &["--scenarios", "cold,warm,fast,prefetch_only"];

#[test]
fn launches_are_cold_or_warm_as_recorded_and_the_machine_is_put_back() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test drops caches and makes control groups: it needs root"
    );
    let stage = Stage::new("launch", Phase::Prefetch);
    let before = traces();
    let said = stage.launch(&[SCENARIOS, &["--runs", "1"]].concat());
    assert_eq!(traces(), before);
    let expected = "4 launches of 1 program, and those that prepage learns from: about 1 minute,";
    assert!(said.starts_with(expected), "{said}");

    let lines = stage.read();
    assert_eq!(lines[0]["kind"], "launches");
    let throttle = &lines[0]["parameters"]["throttle"];
    assert_eq!(throttle["bytes_per_s"], 250_000_000, "{throttle}");
    assert_eq!(of_kind(&lines, "learning_launch").len(), 1, "{said}");
    let launches = of_kind(&lines, "launch");
    assert_eq!(launches.len(), 4, "{said}");
    for launch in launches {
        let cached = &launch["state"]["cached_pages"];
        let is_warm = launch["scenario"] == "warm";
        assert_eq!(*cached, if is_warm { FILE_PAGES } else { 0 }, "{launch}");
        assert_eq!(launch["state"]["pages"], FILE_PAGES);
        let is_helped = !launch["report"].is_null();
        let takes_part = launch["scenario"] == "fast" || launch["scenario"] == "prefetch_only";
        assert_eq!(is_helped, takes_part, "{launch}");
        assert_eq!(launch["capped"], false);
    }

    let reported = Support::probe().filemap_tracepoints;
    let recorded = of_kind(&lines, "first_accesses");
    let count = if reported.contains(&FilemapKind::GetPages) {
        5
    } else {
        0
    };
    assert_eq!(recorded.len(), count, "{said}");
    for one in recorded {
        assert_eq!(one["sequence_pages"], FILE_PAGES, "{one}");
        // cat reads all of it, by read(2).
        let last = one["certain"].as_array().and_then(|demands| demands.last());
        assert_eq!(last.expect("it read the file")[0], FILE_PAGES, "{one}");
    }

    // What is there is not measured again.
    stage.launch(&[SCENARIOS, &["--runs", "2", "--resume"]].concat());
    let lines = stage.read();
    assert_eq!(of_kind(&lines, "launches").len(), 2);
    let keys = of_kind(&lines, "launch").into_iter();
    let keys: Vec<String> = keys
        .map(|l| format!("{} {}", l["block"], l["scenario"]))
        .collect();
    let unique: BTreeSet<&String> = keys.iter().collect();
    assert_eq!((keys.len(), unique.len()), (8, 8), "{keys:?}");
    let whole = fs::read(&stage.out).expect("the record is there");
    stage.launch(&[SCENARIOS, &["--runs", "2", "--resume"]].concat());
    assert_eq!(fs::read(&stage.out).expect("the record is there"), whole);
    assert_eq!(traces(), before);

    let study = stage.study(&["--json"]);
    let study: Value = serde_json::from_str(&study).expect("the study is JSON");
    assert_eq!(study[0]["programs"][0]["program"], "cat");
}

#[test]
fn a_program_that_is_left_alone_is_measured_as_a_user_launches_it() {
    let stage = Stage::new("left-alone", Phase::Off(OffReason::NotHelping));
    let said = stage.launch(&[SCENARIOS, &["--runs", "1"]].concat());
    let lines = stage.read();
    assert_eq!(of_kind(&lines, "learning_launch").len(), 1, "{said}");
    // Nothing is known to prefetch alone.
    let launches = of_kind(&lines, "launch");
    assert_eq!(launches.len(), 3, "{said}");
    for launch in launches {
        assert_eq!(
            launch["left_alone"],
            launch["scenario"] == "fast",
            "{launch}"
        );
        assert!(launch["report"].is_null(), "{launch}");
    }
    assert!(stage.study(&[]).contains("left alone"));
}

#[test]
fn a_program_that_fails_is_left_out_with_what_it_said_and_what_may_help() {
    let stage = Stage::new("fails", Phase::Prefetch);
    let (is_done, said) = stage.try_launch(&["--runs", "1"], &["cat", "gone"]);
    assert!(
        !is_done && said.contains("every launch was discarded"),
        "{said}"
    );
    let lines = stage.read();
    let reason = of_kind(&lines, "discarded_launch")[0]["reason"].clone();
    let reason = reason.as_str().expect("a reason");
    assert!(
        reason.contains("the program failed: exit status: 1"),
        "{said}"
    );
    assert!(reason.contains("--window-title"), "{said}");
    assert!(reason.contains("gone: No such file"), "{said}");
    assert!(said.contains(reason), "{said}");
    assert!(of_kind(&lines, "launch").is_empty(), "{said}");
}

#[test]
fn a_command_is_found_as_its_caller_would_find_it() {
    let stage = Stage::new("own-path", Phase::Prefetch);
    for name in ["own-tool", "own-helper"] {
        let content = "#!/bin/sh\n[ \"${0##*/}\" = own-helper ] || exec own-helper\n";
        write_script(&stage.directory.join(name), content);
    }
    let arguments = ["--scenarios", "cold,fast", "--runs", "1"];
    for command in ["own-tool", "./own-tool"] {
        let (is_done, said) = stage.try_launch(&arguments, &[command]);
        assert!(is_done, "{said}");
        assert_eq!(of_kind(&stage.read(), "launch").len(), 2, "{said}");
        let study = stage.study(&[]);
        assert!(study.contains("of fewer than 4 samples"), "{study}");
        fs::remove_file(&stage.out).expect("remove");
    }
    for command in ["no-tool", "./no-tool"] {
        let (is_done, said) = stage.try_launch(&arguments, &[command]);
        assert!(!is_done && !stage.out.exists(), "{said}");
        let expected = format!("find {command}: it is neither in /");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn what_runs_as_another_user_has_directories_of_its_own() {
    let stage = Stage::new("as-nobody", Phase::Prefetch);
    let arguments = "--scenarios cold,fast --runs 1 --user nobody".split(' ');
    let arguments: Vec<&str> = arguments.collect();
    let looks = "test $(id -un) = nobody && touch $HOME/.config/new && touch $(mktemp -d -p $TMPDIR)/left \
                 && test ${TMPDIR#/var/tmp/prepage-eval-} != $TMPDIR";
    let (_, said) = stage.try_launch(&arguments, &["sh", "-c", looks]);
    let lines = stage.read();
    let given = &lines[0]["parameters"]["given"];
    assert_eq!(given["user"], "nobody", "{said}");
    assert_eq!(given["command"][0], "sh", "{said}");
    let launches = of_kind(&lines, "launch");
    assert_eq!(launches.len(), 2, "{said}");
}

#[test]
fn launches_over_time_are_recorded_apart_from_those_that_are_timed() {
    let stage = Stage::new("launch-over-time", Phase::Prefetch);
    let over_time = |count| [SCENARIOS, &["--runs", "0", "--timelines", count]].concat();
    let said = stage.launch(&over_time("1"));
    // What is there is not measured again.
    let more = [&over_time("2")[..], &["--resume"]].concat();
    stage.launch(&more);
    // Nor is another command's record gone on with.
    let (_, refusal) = stage.try_launch(&more, &["true"]);
    assert!(refusal.contains("other parameters"), "{refusal}");
    let lines = stage.read();
    assert!(of_kind(&lines, "launch").is_empty(), "{said}");
    let launches = of_kind(&lines, "launch_activity");
    let unique: BTreeSet<String> = launches
        .iter()
        .map(|launch| format!("{} {}", launch["block"], launch["scenario"]))
        .collect();
    assert_eq!((launches.len(), unique.len()), (6, 6), "{said}");
    for launch in launches {
        let activity = &launch["activity"];
        let times = activity["t_us"].as_array().expect("times of readings");
        assert_eq!(times.first(), Some(&0.into()), "before the launch began");
        let last_us = times.last().and_then(Value::as_u64).unwrap_or_default();
        let end_us = launch["t_end_ns"].as_u64().unwrap_or(u64::MAX) / 1_000;
        // A reading takes its time before it is noted, and the thread may come late.
        assert!(times.len() > 1 && last_us + 2_000 >= end_us, "{launch}");
        for list in ["runnable", "waiting", "in_flight"] {
            let count = activity[list].as_array().map(Vec::len);
            assert_eq!(count, Some(times.len()), "{list}");
        }
    }
}

#[test]
fn prepage_finds_in_its_store_what_it_is_made_to_know() {
    let stage = Stage::new("launch-made", Phase::Prefetch);
    let scenarios = ["--runs", "1", "--scenarios", "fast,other_versions"];
    stage.launch(&scenarios);
    let lines = stage.read();
    let launches = of_kind(&lines, "launch");
    assert_eq!(launches.len(), 2, "{launches:?}");
    let (store, _) = Store::open(&stage.directory.join("given")).expect("a store was made");
    let kept = store.list().pop().expect("a profile was made");
    let launch = &store.load(&kept.app).expect("it is there").launch;
    let [file] = &launch.sequence.files[..] else {
        panic!("{:?}", launch.sequence.files);
    };
    assert_eq!((launch.phase, file.file.mtime_ns), (Phase::Prefetch, -1));
}

#[test]
fn without_the_service_it_is_said_before_anything_is_launched() {
    let stage = Stage::new("launch-detected", Phase::Prefetch);
    let before = traces();
    let output = Command::new(env!("CARGO_BIN_EXE_prepage-eval"))
        .args(["launch", "--scenarios", "cold,detected", "--prepage-bin"])
        .arg(&stage.directory)
        .arg("--out")
        .arg(&stage.out)
        .args(["--", "true"])
        .output()
        .expect("run prepage-eval");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("prepaged") && said.contains("not built"),
        "{said}"
    );
    assert!(!stage.out.exists(), "nothing was measured");
    assert_eq!(traces(), before);
}

#[test]
fn a_program_that_is_unknown_is_said_with_those_that_are_known() {
    let output = Command::new(env!("CARGO_BIN_EXE_prepage-eval"))
        .args(["launch", "--programs", "gti"])
        .output()
        .expect("run prepage-eval");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("gti") && said.contains("git"), "{said}");
}
