//! A machine and an engine around one child process.

use prepage_core::app::Profile;
use prepage_core::identity::{AppId, AppKind};
use prepage_core::machine::{Action, Event, Machine};
use prepage_core::outcome::SwitchRecord;
use prepage_core::params::{Mode, Params};
use prepage_core::signal::Source;
use prepage_engine::{Engine, EngineParams, Executor, Members};
use prepage_kernel::clock::monotonic_ns;
use prepage_kernel::support::Support;
use prepage_kernel::testing::child::Child;

pub struct Rig {
    pub machine: Machine,
    pub engine: Engine,
    pub app: AppId,
}

impl Rig {
    pub fn new(child: &Child, engine: &EngineParams, params: Params) -> Rig {
        let mut rig = Rig {
            machine: Machine::new(params, Mode::Full),
            engine: Engine::start(engine, &Support::probe()).expect("start the engine"),
            app: AppId {
                kind: AppKind::Named,
                name: "child".into(),
                owner: 0,
            },
        };
        assert!(
            rig.engine.warnings().is_empty(),
            "these tests need perf events and tracefs: {:?}",
            rig.engine.warnings()
        );
        let (app, profile) = (rig.app.clone(), Box::<Profile>::default());
        rig.step(Event::Tracked { app, profile });
        let app = rig.app.clone();
        rig.engine.follow(&app, Members::Tree(child.pid()));
        rig.take_events();
        rig
    }

    pub fn step(&mut self, event: Event) {
        let now = monotonic_ns();
        for action in self.machine.step(now, event) {
            if !matches!(action, Action::Store { .. }) {
                self.engine.perform(now, action);
            }
        }
    }

    /// Steps through everything that has happened.
    pub fn take_events(&mut self) {
        for event in self.engine.events() {
            self.step(event);
        }
    }

    pub fn begin(&mut self) {
        let app = self.app.clone();
        let source = Source::Explicit;
        self.step(Event::Begin { app, source });
        self.take_events();
    }

    /// Ends the switch and waits until it has been learned from.
    pub fn end(&mut self) -> SwitchRecord {
        let app = self.app.clone();
        let before = self.machine.records(&app).count();
        self.step(Event::End { app: app.clone() });
        for _ in 0..400 {
            self.take_events();
            if self.machine.records(&app).count() > before {
                let record = self.machine.records(&app).last();
                return record.expect("a record").clone();
            }
            prepage_kernel::sched::sleep_us(10_000);
        }
        panic!("the switch was not observed within four seconds");
    }

    /// A whole switch in which the child does `work`.
    pub fn switch(&mut self, work: impl FnOnce()) -> SwitchRecord {
        self.begin();
        work();
        self.end()
    }

    pub fn set_mode(&mut self, mode: Mode) {
        self.step(Event::SetMode(mode));
    }
}

/// Parameters under which no signal counts as a repetition.
pub fn params() -> Params {
    let mut params = Params::default();
    params.switch.repeat_ms = 0;
    params
}

/// Waits until the child's pages stop coming in: fetching is done.
pub fn settle(child: &Child) {
    let present = || child.entries().iter().filter(|e| e.present()).count();
    let mut last = usize::MAX;
    for _ in 0..100 {
        prepage_kernel::sched::sleep_us(20_000);
        let now = present();
        if now == last {
            return;
        }
        last = now;
    }
}
