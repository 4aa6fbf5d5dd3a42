//! The loop: what happened, one by one, in the order of [`Token`].

use super::Service;
use super::poller::Token;
use super::reload::watch_faults;
use super::signals::{Order, order};
use super::unanswered::Message;
use crate::sources::api::{Accepted, Wants};
use crate::sources::cores::Cores;
use crate::sources::sleep::Sleep;
use crate::{log_error, log_info, log_warning};
use prepage_core::identity::AppId;
use prepage_core::machine::{Event, Nanos};
use prepage_core::plan::Plan;
use prepage_core::signal::Source;
use prepage_engine::FaultBurst;
use prepage_engine::accounts::accountable;
use prepage_kernel::clock::monotonic_ns;
use rustix::event::epoll::EventFlags;
use std::collections::BTreeMap;

/// How long new connections wait after the kernel refused one.
const LISTENING_PAUSE_NS: u64 = 1_000_000_000;

/// Connections taken, or refused, in one round: those that end are seen before the next, and make room, and so is all else.
const ACCEPTED_AT_ONCE_MAX: usize = 8;

/// How long it is looked up in one round whose processes are that fault.
const LOOKING_UP_NS: u64 = 10_000_000;

/// How long no faults are recorded after some that could begin no switch: those that can are seen so much later at most.
const FAULTS_PAUSE_NS: u64 = 20_000_000;

/// For how long messages are answered before it is looked what else happened; one is in any case.
const ANSWERING_NS: u64 = 1_000_000;

/// Planned pages looked at to see how many are swapped out: so many, and at most one more for each process.
const SAMPLE_PAGES: u64 = 256;

impl Service {
    pub(super) fn run_until_ended(&mut self) -> std::io::Result<()> {
        while !self.ending {
            let deadline = self.deadline();
            let tokens = self.poller.wait(deadline, !self.unanswered.is_empty())?;
            let is_connection = |token: &Token| matches!(token, Token::Connection(_));
            // Connections are first among what happened at once.
            let (connections, others) = tokens.split_at(tokens.partition_point(is_connection));
            for token in connections {
                self.dispatch(*token)?;
            }
            self.answer_some();
            for token in others {
                self.dispatch(*token)?;
            }
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Nanos> {
        let pressure = self.pressure.as_ref().and_then(|p| p.deadline());
        let deadlines = [
            self.machine.deadline(),
            self.socket.deadline(),
            pressure,
            self.listening_again,
            self.faults_again,
            self.launches.as_ref().and_then(|l| l.deadline()),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn dispatch(&mut self, token: Token) -> std::io::Result<()> {
        match token {
            Token::Connection(number) => self.serve(number),
            Token::Groups => self.see_thawed(),
            Token::Execs => self.see_execs(),
            Token::Faults => {
                if !self.see_faults() {
                    self.pause_faults();
                }
            }
            Token::Executor => self.see_executor(),
            Token::Launches => self.see_launches(),
            Token::Exit(number) => self.see_exit(number),
            Token::Listener => self.accept()?,
            Token::Pressure => self.see_pressure(),
            Token::Timer => self.tick()?,
            Token::Signals => self.see_signals(),
            Token::Sleep => self.see_sleep(),
            Token::Cores => self.see_cores(),
        }
        Ok(())
    }

    fn tick(&mut self) -> std::io::Result<()> {
        // A switch is quiet only if no demand fault waits to be read.
        self.see_faults();
        let now = monotonic_ns();
        self.step(now, Event::Tick);
        self.socket.close_late(now);
        self.end_waiting_for_paths(now);
        if self.pressure.as_mut().is_some_and(|p| p.is_over(now)) {
            self.step(
                now,
                Event::Pressure {
                    under_pressure: false,
                },
            );
        }
        if self.faults_again.take_if(|at| *at <= now).is_some() {
            self.executor.pause_faults(false);
        }
        if self.listening_again.take_if(|at| *at <= now).is_some() {
            self.poller
                .change(self.socket.listener(), Token::Listener, EventFlags::IN)?;
        }
        Ok(())
    }

    fn see_pressure(&mut self) {
        if self
            .pressure
            .as_mut()
            .is_some_and(|p| p.fired(monotonic_ns()))
        {
            self.step_now(Event::Pressure {
                under_pressure: true,
            });
        }
    }

    fn see_sleep(&mut self) {
        if self.sleep.as_mut().is_some_and(Sleep::was_asleep) {
            log_info!("the machine slept: events are asked for anew");
            // All but one core came online with that: it is done for them, too.
            if let Some(cores) = &mut self.cores {
                cores.came_online();
            }
            self.adapt_to_cores();
        }
    }

    fn see_cores(&mut self) {
        if self.cores.as_mut().is_some_and(Cores::came_online) {
            log_info!("a core came online: it is used, and events are asked for anew");
            self.adapt_to_cores();
        }
    }

    /// The events of a core that goes offline end, without a word, and all but one core do where a machine sleeps (S3).
    fn adapt_to_cores(&mut self) {
        for warning in self.executor.adapt_to_cores() {
            log_warning!("{warning}");
        }
        if let Err(error) = watch_faults(&*self.executor, &self.config, &self.poller) {
            log_warning!("a switch that no signal announces is not noticed: {error}");
        }
        if let Some(launches) = &mut self.launches
            && let Err(error) = launches.adapt_to_cores(&self.config, &self.poller)
        {
            log_warning!("launches are not learned: {error}");
        }
        self.watch_execs();
    }

    pub(super) fn see_executor(&mut self) {
        for event in self.executor.events() {
            self.step_now(event);
        }
    }

    fn see_thawed(&mut self) {
        let thawed = match self.groups.as_mut().map(|g| g.thawed()) {
            Some(Ok(thawed)) => thawed,
            Some(Err(error)) => return log_warning!("thawing is not seen: {error}"),
            None => return,
        };
        for (app, main) in thawed {
            self.begin(app, main, Source::Thaw);
        }
    }

    /// Returns whether these faults could begin a switch; of none, as somebody may have looked just before, that is not known.
    fn see_faults(&mut self) -> bool {
        let mut switching: BTreeMap<AppId, (u64, Nanos)> = BTreeMap::new();
        let now = monotonic_ns();
        let bursts = self.executor.drain_faults();
        let mut is_heeded = bursts.is_empty();
        for burst in bursts {
            // Of thousands of processes that nobody knows, some are looked up, and the others when they fault again.
            let app = match monotonic_ns() < now.saturating_add(LOOKING_UP_NS) {
                true => self.app_of_burst(burst.pid),
                false => self.executor.app_of(burst.pid),
            };
            let Some(app) = app else {
                continue;
            };
            if self.machine.is_switching(&app) {
                let (count, last_at) = switching.entry(app.clone()).or_default();
                *count += u64::from(burst.count);
                *last_at = burst.last_at.max(*last_at);
            }
            if self.machine.heeds_faults(now, &app) {
                is_heeded = true;
                self.see_burst(app, &burst);
            }
        }
        for (app, (count, last_at)) in switching {
            self.step_now(Event::DemandFaults {
                app,
                count,
                last_at,
            });
        }
        is_heeded
    }

    /// Who is no application of ours, or left alone, may fault thousands of times a second.
    fn pause_faults(&mut self) {
        self.executor.pause_faults(true);
        self.faults_again = Some(monotonic_ns() + FAULTS_PAUSE_NS);
    }

    fn see_burst(&mut self, app: AppId, burst: &FaultBurst) {
        let since = self.onset.add(&app, burst, &self.config.switch);
        let source = since.and_then(|since| self.source_of_faults(&app, burst.pid, since));
        if let Some(source) = source {
            self.begin(app, Some(burst.pid), source);
        }
    }

    /// What the faults since `since` are the onset of, if so much is out that they mean anything: as many planned pages again as
    /// the faults that it takes, or, of a switch that the plan may not know, much of the process that faults.
    fn source_of_faults(&self, app: &AppId, pid: i32, since: Nanos) -> Option<Source> {
        let plan = self.machine.app(app)?.plan();
        let params = &self.config.switch;
        let faults = self.executor.recent_faults(app, since);
        let planned = plan.anon_among(&faults) as f32;
        let is_planned =
            planned > 0.0 && planned >= params.onset_planned_share * faults.len() as f32;
        if is_planned && self.planned_swapped_out(app, pid, plan) >= params.onset_faults as f32 {
            return Some(Source::Onset);
        }
        let may_be_unknown = !self.machine.is_switching(app)
            && process_swapped_share(pid) >= params.onset_swapped_share;
        may_be_unknown.then_some(Source::Unplanned)
    }

    /// How many planned anonymous pages are swapped out, by a sample of this copy of the application.
    fn planned_swapped_out(&self, app: &AppId, pid: i32, plan: &Plan) -> f32 {
        let sample: Vec<_> = plan.sample(SAMPLE_PAGES).collect();
        self.executor.swapped_share(app, pid, &sample) * plan.anon_pages() as f32
    }

    fn accept(&mut self) -> std::io::Result<()> {
        for _ in 0..ACCEPTED_AT_ONCE_MAX {
            match self.socket.accept() {
                Ok(Accepted::Connection(number)) => {
                    let token = Token::Connection(number);
                    let stream = self.socket.stream(number);
                    let added = stream.map(|s| self.poller.add(s, token, EventFlags::IN));
                    self.close_where_failed(number, added);
                }
                Ok(Accepted::Refused) => {}
                Ok(Accepted::Nobody) => return Ok(()),
                Err(error) => {
                    log_warning!("a connection was refused: {error}");
                    self.listening_again = Some(monotonic_ns() + LISTENING_PAUSE_NS);
                    let listener = self.socket.listener();
                    return self
                        .poller
                        .change(listener, Token::Listener, EventFlags::empty());
                }
            }
        }
        Ok(())
    }

    fn serve(&mut self, number: u32) {
        if self.unanswered.holds(number) {
            return;
        }
        let Some(connection) = self.socket.connection(number) else {
            return;
        };
        connection.flush();
        connection.receive();
        self.take_message(number);
    }

    /// Has the next message of a connection wait for its answer; without one, the connection is watched for more.
    fn take_message(&mut self, number: u32) {
        let Some(connection) = self.socket.connection(number) else {
            return;
        };
        match connection.next_message() {
            Ok(Some(bytes)) => {
                let owner = accountable(connection.caller.uid);
                return self.unanswered.push(Message {
                    number,
                    owner,
                    bytes,
                });
            }
            Ok(None) => {}
            Err(too_long) => connection.send(&super::calls::refuse_length(too_long)),
        }
        self.watch_connection(number);
    }

    fn answer_some(&mut self) {
        let until = monotonic_ns() + ANSWERING_NS;
        while let Some(message) = self.unanswered.pop() {
            self.answer_one(&message);
            if monotonic_ns() >= until {
                return;
            }
        }
    }

    fn answer_one(&mut self, message: &Message) {
        let number = message.number;
        let Some(caller) = self.socket.connection(number).map(|c| c.caller) else {
            return;
        };
        let reply = self.answer(caller, &message.bytes);
        if let (Some(reply), Some(connection)) = (reply, self.socket.connection(number)) {
            connection.send(&reply);
        }
        self.take_message(number);
    }

    fn watch_connection(&mut self, number: u32) {
        let wants = self
            .socket
            .connection(number)
            .map(|c| c.wants(monotonic_ns()));
        let events = match wants {
            Some(Wants::Read) => EventFlags::IN,
            Some(Wants::Write) => EventFlags::OUT,
            Some(Wants::Close) | None => return self.socket.close(number),
        };
        let changed = self.socket.stream(number).map(|stream| {
            self.poller
                .change(stream, Token::Connection(number), events)
        });
        self.close_where_failed(number, changed);
    }

    /// Nobody would hear of a connection that the kernel does not watch.
    fn close_where_failed(&mut self, number: u32, watched: Option<std::io::Result<()>>) {
        if let Some(Err(error)) = watched {
            log_warning!("a connection was closed: {error}");
            self.socket.close(number);
        }
    }

    fn see_signals(&mut self) {
        let Some(signals) = &self.signals else {
            return;
        };
        let mut orders = Vec::new();
        loop {
            match signals.read() {
                Ok(Some(signal)) => orders.extend(order(signal)),
                Ok(None) => break,
                Err(error) => break log_error!("signals are not seen: {error}"),
            }
        }
        for order in orders {
            match order {
                Order::End => self.ending = true,
                Order::Reload => self.reload(),
            }
        }
    }
}

/// The share (0 to 1) of a process's anonymous memory that is swapped out; 0 where it is gone.
fn process_swapped_share(pid: i32) -> f32 {
    let Ok(status) = prepage_kernel::process::status(pid) else {
        return 0.0;
    };
    let all = status.rss_anon_kib + status.vm_swap_kib;
    match all {
        0 => 0.0,
        all => status.vm_swap_kib as f32 / all as f32,
    }
}
