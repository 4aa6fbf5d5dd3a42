//! The signals that begin a switch, with an executor that is scripted: what it is told is recorded, what it tells is
//! given.

mod common;

use common::{Running, TempDir, app_id, application, wait_until};
use prepage::api::{Target, TrackReply};
use prepage::client::Client;
use prepage::config::{Config, merge};
use prepage::service::{Options, Parts, Service};
use prepage::sources::api::ApiSocket;
use prepage_core::anon::AnonObservation;
use prepage_core::app::Observation;
use prepage_core::extent::ExtentSet;
use prepage_core::identity::{AppId, Instance};
use prepage_core::machine::{Action, Event, Nanos};
use prepage_core::params::Mode;
use prepage_core::plan::Plan;
use prepage_engine::ahead::Reclaimed;
use prepage_engine::store::Store;
use prepage_engine::{EngineParams, Executor, FaultBurst, Members, Restored};
use prepage_kernel::cgroup::{FreezerState, Hierarchy};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::testing::group::{Group, freezers};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// What the executor tells, and what it was told.
#[derive(Default)]
struct Script {
    followed: BTreeMap<AppId, Vec<Members>>,
    aims: Vec<Option<i32>>,
    actions: Vec<Action>,
    bursts: Vec<FaultBurst>,
    events: Vec<Event>,
    swapped_share: f32,
    /// What faulted lately.
    recent: Vec<(i32, u64)>,
    /// What the next switch shows; nothing after that.
    observation: Observation,
    /// Pages asked for, each time that the share was asked for.
    sampled: Vec<usize>,
    /// Collecting is never answered.
    silent: bool,
    /// Faults are not recorded.
    deaf: bool,
    /// Whether faults are recorded, as it was said.
    pauses: Vec<bool>,
}

#[derive(Clone)]
struct Scripted {
    script: Arc<Mutex<Script>>,
    wake: Arc<OwnedFd>,
    faults: Arc<OwnedFd>,
}

fn ring(fd: &OwnedFd) {
    rustix::io::write(fd, &1_u64.to_ne_bytes()).expect("an eventfd takes 1");
}

fn silence(fd: &OwnedFd) {
    let _ = rustix::io::read(fd, &mut [0; 8]);
}

impl Scripted {
    fn new() -> Self {
        let fd = || Arc::new(eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd"));
        Self {
            script: Arc::default(),
            wake: fd(),
            faults: fd(),
        }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("not poisoned")
    }

    fn fault(&self, pid: i32, count: u32) {
        let now = monotonic_ns();
        self.script().bursts.push(FaultBurst {
            pid,
            count,
            first_at: now,
            last_at: now,
        });
        ring(&self.faults);
    }

    fn begun(&self) -> usize {
        let observes = |a: &&Action| matches!(a, Action::Observe { .. });
        self.script().actions.iter().filter(observes).count()
    }

    fn collected(&self) -> usize {
        let collects = |a: &&Action| matches!(a, Action::Collect { .. });
        self.script().actions.iter().filter(collects).count()
    }
}

impl Executor for Scripted {
    fn follow(&mut self, app: &AppId, copies: &[Members]) {
        self.script().followed.insert(app.clone(), copies.to_vec());
    }

    fn unfollow(&mut self, app: &AppId) {
        self.script().followed.remove(app);
    }

    fn aim(&mut self, _app: &AppId, pid: Option<i32>) {
        self.script().aims.push(pid);
    }

    fn perform(&mut self, _now: Nanos, action: Action) {
        let mut script = self.script();
        if let (Action::Collect { app, switch, .. }, false) = (&action, script.silent) {
            let (app, switch) = (app.clone(), *switch);
            let observation = Box::new(std::mem::take(&mut script.observation));
            script.events.push(Event::Observed {
                app,
                switch,
                observation,
            });
            ring(&self.wake);
        }
        script.actions.push(action);
    }

    fn set_params(&mut self, _params: &EngineParams) -> prepage_engine::Result<()> {
        Ok(())
    }

    fn events(&mut self) -> Vec<Event> {
        silence(&self.wake);
        std::mem::take(&mut self.script().events)
    }

    fn listen(&mut self, on: bool) {
        self.script().deaf = !on;
    }

    fn pause_faults(&mut self, on: bool) {
        self.script().pauses.push(on);
    }

    fn drain_faults(&mut self) -> Vec<FaultBurst> {
        silence(&self.faults);
        std::mem::take(&mut self.script().bursts)
    }

    fn recent_faults(&self, _app: &AppId, _since: Nanos) -> Vec<(i32, u64)> {
        self.script().recent.clone()
    }

    fn app_of(&self, pid: i32) -> Option<AppId> {
        let script = self.script();
        let mut apps = script.followed.iter();
        let own = apps.find(|(_, copies)| copies.contains(&Members::Tree(pid)));
        own.map(|(app, _)| app.clone())
    }

    fn swapped_share(&self, _app: &AppId, _pid: i32, instances: &[(Instance, Vec<u64>)]) -> f32 {
        let mut script = self.script();
        script
            .sampled
            .push(instances.iter().map(|(_, pages)| pages.len()).sum());
        script.swapped_share
    }

    fn adapt_to_cores(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn threads_given_up(&self) -> usize {
        0
    }

    fn reclaimed(&self) -> Reclaimed {
        Reclaimed::default()
    }

    fn restore(
        &mut self,
        _app: &AppId,
        _plan: &Arc<Plan>,
        _mode: Mode,
    ) -> prepage_engine::Result<u64> {
        unreachable!("no test asks for it")
    }

    fn restored(&self, _number: u64) -> Option<Restored> {
        None
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn fault_fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.faults.as_fd()]
    }
}

/// A service in a thread of this process. It ends with the process: its thread sleeps.
struct Rig {
    directory: TempDir,
    executor: Scripted,
}

impl Rig {
    fn start(config: &str) -> Self {
        let directory = TempDir::new();
        let config: Config =
            merge(&[(PathBuf::from("x"), config.into())]).expect("a configuration");
        let executor = Scripted::new();
        let (store, _) = Store::open(&directory.path().join("state")).expect("a store");
        let socket = ApiSocket::listen(&directory.path().join("s")).expect("a socket");
        let given = executor.clone();
        std::thread::spawn(move || {
            let parts = Parts {
                options: Options::default(),
                config,
                executor: Box::new(given),
                launches: None,
                store,
                socket,
                signals: None,
                missing: Vec::new(),
            };
            Service::new(parts)
                .expect("a service")
                .run()
                .expect("no failure");
        });
        Self {
            directory,
            executor,
        }
    }

    fn client(&self) -> Client {
        Client::connect(&self.directory.path().join("s")).expect("listening")
    }

    fn call(&self, method: &str, parameters: serde_json::Value) -> serde_json::Value {
        self.client().call(method, &parameters).expect("an answer")
    }

    fn track(&self, pid: i32) -> AppId {
        let target = Target {
            pid: Some(pid),
            ..Target::default()
        };
        let reply: TrackReply = self.client().call("Track", &target).expect("tracked");
        app_id(&reply.app)
    }

    fn sources(&self) -> Vec<String> {
        let stats = self.call("Stats", serde_json::json!({}));
        let switches = stats["switches"].as_array().expect("a list");
        switches
            .iter()
            .map(|s| s["source"].as_str().unwrap_or_default().to_owned())
            .collect()
    }
}

#[test]
fn the_onset_of_faults_begins_a_switch_only_when_swapped_out() {
    let rig = Rig::start("[switch]\nonset_faults = 48\nquiet_ms = 20\n");
    let apps = TempDir::new();
    let app = application(&apps, "onset");
    let id = rig.track(app.pid());
    rig.executor.fault(app.pid(), 60);
    wait_until("the burst to be taken", || {
        rig.executor.script().bursts.is_empty()
    });
    rig.call("Status", serde_json::json!({}));
    assert_eq!(
        rig.executor.begun(),
        0,
        "a process that is not swapped out: no switch"
    );
    // Faults of others, and too few of its own.
    rig.executor.fault(1, 1000);
    rig.executor.fault(app.pid(), 20);
    wait_until("the bursts to be taken", || {
        rig.executor.script().bursts.is_empty()
    });
    rig.call("Status", serde_json::json!({}));
    assert_eq!(rig.executor.begun(), 0, "{id}");
}

#[test]
fn after_faults_that_can_begin_no_switch_none_are_recorded_for_a_while() {
    let rig = Rig::start("[switch]\nonset_faults = 48\nonset_pause_ms = 3600000\nquiet_ms = 20\n");
    let apps = TempDir::new();
    let app = application(&apps, "paused");
    rig.track(app.pid());
    let pauses = || std::mem::take(&mut rig.executor.script().pauses);
    let is_taken = || rig.executor.script().bursts.is_empty();
    rig.executor.fault(app.pid(), 60);
    wait_until("the burst to be taken", is_taken);
    rig.call("Status", serde_json::json!({}));
    assert!(pauses().is_empty(), "a switch may begin with it");
    ring(&rig.executor.faults);
    rig.call("Status", serde_json::json!({}));
    assert!(pauses().is_empty(), "nothing faulted");
    rig.executor.fault(1, 1_000);
    wait_until("the pause to be over", || {
        rig.executor.script().pauses.len() == 2
    });
    assert_eq!(pauses(), [true, false]);
    // A switch is over: its last faults begin no other.
    rig.call("SwitchBegin", serde_json::json!({ "pid": app.pid() }));
    wait_until("the end", || rig.sources() == ["explicit"]);
    rig.executor.fault(app.pid(), 60);
    wait_until("the pause to be over", || {
        rig.executor.script().pauses.len() == 2
    });
    assert_eq!(pauses(), [true, false]);
}

/// A first switch teaches a plan of so many pages.
fn teach(rig: &Rig, app: AppId, pid: i32, pages: u64) {
    let instance = Instance {
        pid,
        start_ticks: 1,
        exec: 1,
    };
    let seen = AnonObservation {
        faulted: ExtentSet::from_pages((100..100 + pages).collect()),
        ..AnonObservation::default()
    };
    let mut script = rig.executor.script();
    script.observation.anon.insert(instance, seen);
    script.events.push(Event::InstanceStarted { app, instance });
    drop(script);
    ring(&rig.executor.wake);
    rig.call("SwitchBegin", serde_json::json!({ "pid": pid }));
    wait_until("a plan", || {
        rig.call("Status", serde_json::json!({}))["apps"][0]["anon_planned_pages"] == pages
    });
}

/// A service that knows 1000 pages of an application, the first of them 100.
fn planned(config: &str) -> (Rig, TempDir, Running) {
    let rig = Rig::start(&format!(
        "[switch]\nonset_faults = 48\nrepeat_ms = 0\nonset_pause_ms = 0\n{config}"
    ));
    let apps = TempDir::new();
    let app = application(&apps, "planned");
    let id = rig.track(app.pid());
    teach(&rig, id, app.pid(), 1000);
    (rig, apps, app)
}

/// Sixty faults of a process, in two bursts, of pages from `first` on.
fn fault_from(rig: &Rig, pid: i32, first: u64) {
    rig.executor.script().recent = (first..first + 60).map(|page| (pid, page)).collect();
    rig.executor.fault(pid, 30);
    rig.executor.fault(pid, 30);
    wait_until("the bursts to be taken", || {
        rig.executor.script().bursts.is_empty()
    });
    rig.call("Status", serde_json::json!({}));
}

#[test]
fn the_onset_of_planned_faults_is_judged_by_the_planned_pages() {
    let (rig, _apps, app) = planned("quiet_ms = 20\n");
    // Its pages are in memory: no switch. They are not: one.
    fault_from(&rig, app.pid(), 100);
    assert_eq!(rig.executor.begun(), 1);
    rig.executor.script().swapped_share = 0.9;
    fault_from(&rig, app.pid(), 100);
    wait_until("the switch", || rig.sources() == ["explicit", "onset"]);
    let sampled = rig.executor.script().sampled.clone();
    assert!(
        sampled.iter().all(|&pages| (1..=256).contains(&pages)),
        "{sampled:?}"
    );
}

#[test]
fn the_onset_of_unplanned_faults_is_judged_by_the_process() {
    // Whatever the planned pages' share is, the process itself is in memory.
    let (rig, _apps, app) = planned("quiet_ms = 20\nonset_planned_share = 0.25\n");
    rig.executor.script().swapped_share = 0.9;
    fault_from(&rig, app.pid(), 5_000);
    assert_eq!(rig.executor.begun(), 1);
    assert!(rig.executor.script().sampled.is_empty());
    // Some of them are planned, but too few.
    fault_from(&rig, app.pid(), 100 - 46);
    assert_eq!(rig.executor.begun(), 1);
    fault_from(&rig, app.pid(), 100 - 45);
    wait_until("the switch", || rig.sources() == ["explicit", "onset"]);
}

#[test]
fn unplanned_faults_are_observed_until_planned_ones_begin_a_switch() {
    let config = "onset_swapped_share = 0\nquiet_ms = 2000\n";
    let (rig, _apps, app) = planned(config);
    let fetched = || {
        let fetches = |a: &&Action| matches!(a, Action::Fetch { .. });
        rig.executor.script().actions.iter().filter(fetches).count()
    };
    let before = fetched();
    rig.executor.script().swapped_share = 0.9;
    fault_from(&rig, app.pid(), 5_000);
    assert_eq!((rig.executor.begun(), fetched()), (2, before));
    fault_from(&rig, app.pid(), 200);
    // It is the same switch: what was seen of it counts.
    assert_eq!((rig.executor.begun(), fetched()), (2, before + 1));
    wait_until("the end", || rig.sources() == ["explicit", "onset"]);
}

#[test]
fn who_says_that_what_is_observed_is_a_switch_is_told_that_it_began() {
    for mode in ["observe", "full"] {
        let rig = Rig::start(&format!(
            "[service]\nmode = {mode:?}\n[switch]\nonset_faults = 48\nonset_swapped_share = 0\nonset_window_ms = 60000\nquiet_ms = 60000\ncap_ms = 60000\n"
        ));
        let apps = TempDir::new();
        let app = application(&apps, "observed");
        rig.track(app.pid());
        fault_from(&rig, app.pid(), 5_000);
        assert_eq!(rig.executor.begun(), 1);
        let focus = serde_json::json!({ "pid": app.pid(), "source": "focus" });
        assert_eq!(rig.call("SwitchBegin", focus.clone())["began"], true);
        assert_eq!(rig.executor.begun(), 1, "it is the same");
        assert_eq!(rig.call("SwitchBegin", focus)["began"], false);
    }
}

#[test]
fn nothing_is_recorded_while_off() {
    let rig = Rig::start("[service]\nmode = \"off\"\n");
    rig.call("Status", serde_json::json!({}));
    assert!(rig.executor.script().deaf, "off from the beginning");
    for (mode, deaf) in [("observe", false), ("full", false), ("off", true)] {
        rig.call("SetMode", serde_json::json!({"mode": mode}));
        assert_eq!(rig.executor.script().deaf, deaf, "mode {mode}");
    }
}

#[test]
fn focus_begins_a_switch_and_ignores_what_is_not_tracked() {
    let rig = Rig::start("[switch]\nquiet_ms = 20\nrepeat_ms = 0\n");
    let apps = TempDir::new();
    let (app, other) = (application(&apps, "focused"), application(&apps, "other"));
    rig.track(app.pid());
    let focus = |pid: i32| {
        rig.call(
            "SwitchBegin",
            serde_json::json!({"pid": pid, "source": "focus"}),
        )
    };
    assert_eq!(focus(app.pid())["began"], true);
    assert_eq!(focus(other.pid())["tracked"], false);
    assert_eq!(focus(2_147_483_000)["tracked"], false);
    wait_until("the end", || rig.sources() == ["focus"]);
    assert_eq!(rig.executor.collected(), 1);
}

#[test]
fn copies_of_one_program_are_one_application_and_are_switched_to_one_by_one() {
    let rig = Rig::start("[switch]\nquiet_ms = 20\nrepeat_ms = 0\nonset_faults = 0\n");
    let apps = TempDir::new();
    let [first, second] = [0, 1].map(|_| application(&apps, "twice"));
    let trees = |of: &[&Running]| -> Vec<Members> {
        of.iter().map(|one| Members::Tree(one.pid())).collect()
    };
    let app = rig.track(first.pid());
    let followed = || rig.executor.script().followed.get(&app).cloned();
    assert_eq!(
        followed(),
        Some(trees(&[&first, &second])),
        "both are found"
    );
    // One that begins later is found by what it does.
    let third = application(&apps, "twice");
    for one in [&third, &first] {
        let parameters = serde_json::json!({"pid": one.pid(), "source": "focus"});
        assert_eq!(rig.call("SwitchBegin", parameters)["app"], app.to_string());
        rig.call("SwitchEnd", serde_json::json!({"pid": one.pid()}));
    }
    rig.call("SwitchBegin", serde_json::json!({"name": "twice"}));
    assert_eq!(followed(), Some(trees(&[&first, &second, &third])));
    let aims = rig.executor.script().aims.clone();
    assert_eq!(aims, [Some(third.pid()), Some(first.pid()), None]);
    drop(first);
    wait_until("the end of the first", || {
        followed() == Some(trees(&[&second, &third]))
    });
    drop((second, third));
    wait_until("the end of the last", || followed().is_none());
}

#[test]
fn a_copy_that_is_given_a_name_is_no_copy_any_more() {
    let rig = Rig::start("[switch]\nonset_faults = 0\n");
    let apps = TempDir::new();
    let [first, second] = [0, 1].map(|_| application(&apps, "renamed"));
    let app = rig.track(first.pid());
    let parameters = serde_json::json!({"pid": second.pid(), "name": "other"});
    assert_eq!(rig.call("Track", parameters)["app"], "named:other@0");
    let members = |app: &str| {
        let status = rig.call("Status", serde_json::json!({}));
        let apps = status["apps"].as_array().expect("a list").clone();
        let found = apps.into_iter().find(|one| one["app"] == app);
        found.map(|one| one["members"].as_str().expect("text").to_owned())
    };
    let (one, other) = (app.to_string(), "named:other@0");
    let tree = |of: &Running| Some(format!("process tree of {}", of.pid()));
    assert_eq!(
        (members(&one), members(other)),
        (tree(&first), tree(&second))
    );
    // Tracked again by its program's name, it keeps the name that it was given.
    rig.call("Track", serde_json::json!({"name": "renamed"}));
    assert_eq!(
        (members(&one), members(other)),
        (tree(&first), tree(&second))
    );
    // Its only process is given another: nothing is left to track.
    rig.call(
        "Track",
        serde_json::json!({"pid": first.pid(), "name": "third"}),
    );
    assert_eq!(members(&one), None);
}

#[test]
fn focused_applications_are_tracked_where_the_configuration_says_so() {
    let rig = Rig::start("[service]\ntrack = \"focused\"\n");
    let apps = TempDir::new();
    let app = application(&apps, "met");
    let reply = rig.call(
        "SwitchBegin",
        serde_json::json!({"pid": app.pid(), "source": "focus"}),
    );
    assert_eq!(
        (&reply["tracked"], &reply["began"]),
        (&true.into(), &true.into())
    );
    assert_eq!(rig.executor.script().followed.len(), 1);
}

#[test]
fn demand_faults_keep_a_switch_from_being_quiet() {
    let rig = Rig::start("[switch]\nquiet_ms = 150\nquiet_faults = 1\ncap_ms = 3000\n");
    let apps = TempDir::new();
    let app = application(&apps, "busy");
    rig.track(app.pid());
    rig.call("SwitchBegin", serde_json::json!({"pid": app.pid()}));
    for _ in 0..8 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        rig.executor.fault(app.pid(), 1);
    }
    wait_until("the end", || rig.executor.collected() == 1);
    wait_until("the record", || rig.sources().len() == 1);
    let stats = rig.call("Stats", serde_json::json!({}));
    let duration_ms = stats["switches"][0]["duration_ms"]
        .as_u64()
        .expect("a number");
    assert!(duration_ms >= 500, "{duration_ms} ms");
}

#[test]
fn a_switch_that_is_never_quiet_ends_at_the_cap() {
    let rig = Rig::start("[switch]\nquiet_ms = 100\nquiet_faults = 1\ncap_ms = 300\n");
    let apps = TempDir::new();
    let app = application(&apps, "restless");
    rig.track(app.pid());
    rig.call("SwitchBegin", serde_json::json!({"pid": app.pid()}));
    wait_until("the cap", || {
        rig.executor.fault(app.pid(), 1);
        rig.sources().len() == 1
    });
    let stats = rig.call("Stats", serde_json::json!({}));
    assert_eq!(stats["switches"][0]["end"], "cap");
}

#[test]
fn an_executor_that_never_answers_harms_nothing() {
    let rig = Rig::start("[switch]\nquiet_ms = 20\nrepeat_ms = 0\n");
    rig.executor.script().silent = true;
    let apps = TempDir::new();
    let app = application(&apps, "silent");
    rig.track(app.pid());
    for _ in 0..20 {
        rig.call("SwitchBegin", serde_json::json!({"pid": app.pid()}));
        rig.call("SwitchEnd", serde_json::json!({"pid": app.pid()}));
    }
    assert_eq!((rig.executor.begun(), rig.executor.collected()), (20, 20));
    assert!(rig.sources().is_empty());
}

#[test]
fn what_the_executor_tells_of_strangers_harms_nothing() {
    let rig = Rig::start("");
    let app = app_id("named:stranger@0");
    let instance = Instance {
        pid: 1,
        start_ticks: 1,
        exec: 1,
    };
    let observation = Box::new(Observation::default());
    rig.executor.script().events.extend([
        Event::InstanceStarted {
            app: app.clone(),
            instance,
        },
        Event::Observed {
            app: app.clone(),
            switch: 7,
            observation,
        },
        Event::InstanceEnded { app, instance },
    ]);
    ring(&rig.executor.wake);
    wait_until("the events to be taken", || {
        rig.executor.script().events.is_empty()
    });
    rig.call("Status", serde_json::json!({}));
}

#[test]
fn an_application_that_ends_is_followed_no_longer() {
    let rig = Rig::start("");
    let apps = TempDir::new();
    let app = application(&apps, "ending");
    rig.track(app.pid());
    assert_eq!(rig.executor.script().followed.len(), 1);
    rig.call("SwitchBegin", serde_json::json!({"pid": app.pid()}));
    drop(app);
    wait_until("its end", || rig.executor.script().followed.is_empty());
    wait_until("the end of the switch", || rig.executor.collected() == 1);
}

#[test]
fn a_thawed_group_begins_a_switch() {
    for hierarchy in freezers() {
        thaws(&hierarchy);
    }
}

fn thaws(hierarchy: &Hierarchy) {
    let group = Group::create(hierarchy);
    let rig = Rig::start("[switch]\nquiet_ms = 20\nrepeat_ms = 0\n");
    let apps = TempDir::new();
    let app = application(&apps, "thawed");
    group.write("cgroup.procs", app.pid());
    rig.track(app.pid());
    for round in 1..=2 {
        group.0.set_frozen(true).expect("freeze");
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(rig.sources().len(), round - 1, "freezing is no signal");
        group.0.set_frozen(false).expect("thaw");
        wait_until("the switch", || rig.sources() == vec!["thaw"; round]);
    }
    // The group must be empty before it is removed.
    drop(app);
}

/// systemd freezes `user.slice` while the machine sleeps, and the kernel says it of every group below.
#[test]
fn a_slice_that_thaws_begins_no_switch_to_what_is_below() {
    for hierarchy in freezers() {
        thaws_with_its_slice(&hierarchy);
    }
}

fn thaws_with_its_slice(hierarchy: &Hierarchy) {
    let slice = Group::named(
        hierarchy,
        &format!("prepage-test-{}.slice", std::process::id()),
    );
    let groups = [Group::below(&slice), Group::below(&slice)];
    let rig = Rig::start("[switch]\nquiet_ms = 20\nrepeat_ms = 0\n");
    let apps = TempDir::new();
    let running = ["first", "second"].map(|name| application(&apps, name));
    for (group, app) in groups.iter().zip(&running) {
        group.write("cgroup.procs", app.pid());
        rig.track(app.pid());
    }
    let become_all = |state: FreezerState| {
        let is_so = |group: &Group| group.0.freezer_state().is_ok_and(|now| now == state);
        wait_until("the freezer", || groups.iter().all(is_so));
        // The service is to see it, too.
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    slice.0.set_frozen(true).expect("freeze");
    become_all(FreezerState::Frozen);
    slice.0.set_frozen(false).expect("thaw");
    become_all(FreezerState::Thawed);
    assert_eq!(rig.executor.begun(), 0, "nobody switched");
    for group in &groups {
        group.0.set_frozen(true).expect("freeze");
    }
    become_all(FreezerState::Frozen);
    // The machine sleeps meanwhile, which ends no freeze of an application's own.
    slice.0.set_frozen(true).expect("freeze");
    become_all(FreezerState::Frozen);
    slice.0.set_frozen(false).expect("thaw");
    become_all(FreezerState::Frozen);
    assert_eq!(rig.executor.begun(), 0, "both are frozen still");
    groups[0].0.set_frozen(false).expect("thaw");
    wait_until("the switch", || rig.sources() == ["thaw"]);
    groups[1].0.set_frozen(false).expect("thaw");
    wait_until("the other", || rig.sources() == ["thaw"; 2]);
    // The groups must be empty before they are removed.
    drop(running);
}
