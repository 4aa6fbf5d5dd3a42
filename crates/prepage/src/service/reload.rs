//! SIGHUP: the configuration is read again, and holds from the next switch on.

use super::poller::{Poller, Token};
use super::start::apply;
use super::{Service, notify};
use crate::config::{self, Config};
use crate::sources::pressure::Pressure;
use crate::{log_error, log_info, log_warning};
use prepage_core::machine::Event;
use prepage_engine::accounts;
use prepage_engine::{CorePolicy, EngineParams, Executor};
use rustix::event::epoll::EventFlags;

impl Service {
    /// Takes over a changed configuration. A wrong one changes nothing.
    pub(super) fn reload(&mut self) {
        notify::reloading();
        accounts::read();
        match config::load(self.options.config.as_deref()) {
            Ok(config) => self.take_over(config),
            Err(error) => log_error!("the configuration stays as it was: {error}"),
        }
        notify::notify("READY=1");
    }

    fn take_over(&mut self, mut config: Config) {
        apply(&mut config, &self.options);
        for name in config.keep_until_restart(&self.config) {
            log_warning!("{name} stays as it was until the next start");
        }
        // `prepage policy` holds until the configuration says something else.
        let core_policy = match config.fetch.core_policy {
            same if same == self.config.fetch.core_policy => self.core_policy,
            other => other,
        };
        let engine = engine_params(&config, core_policy);
        if let Err(error) = self.executor.set_params(&engine) {
            return log_error!("the configuration stays as it was: {error}");
        }
        self.core_policy = core_policy;
        let before = std::mem::replace(&mut self.config, config);
        if let Some(launches) = &mut self.launches {
            launches.set_params(&self.config);
        }
        let params = self.config.params();
        if params != before.params() {
            self.step_now(Event::SetParams(Box::new(params)));
        }
        // `prepage mode` holds until the configuration says something else.
        if self.config.service.mode != before.service.mode {
            self.step_now(Event::SetMode(self.config.service.mode));
        }
        if self.config.service.pressure_percent != before.service.pressure_percent {
            self.watch_pressure_anew();
        }
        if onset_flags(&self.config) != onset_flags(&before) {
            self.watch_onset_anew();
        }
        self.track_what_is_known();
        self.make_launches_ready();
        self.watch_execs();
        log_info!("the configuration was read again");
    }

    /// Has file pages fetched by this policy from the next switch on.
    ///
    /// # Errors
    /// Where new threads cannot be made; the policy stays as it was.
    pub(super) fn set_core_policy(
        &mut self,
        core_policy: CorePolicy,
    ) -> Result<(), prepage_engine::Error> {
        let engine = engine_params(&self.config, core_policy);
        self.executor.set_params(&engine)?;
        self.core_policy = core_policy;
        Ok(())
    }

    fn watch_pressure_anew(&mut self) {
        let before = self.pressure.take();
        self.pressure = watch_pressure(&self.config, &self.poller)
            .inspect_err(|error| log_warning!("memory pressure is not seen: {error}"))
            .ok();
        // Whether it lasts, the new trigger tells within its window.
        if before.is_some_and(|trigger| trigger.is_on()) {
            let under_pressure = false;
            self.step_now(Event::Pressure { under_pressure });
        }
    }

    fn watch_onset_anew(&mut self) {
        let flags = onset_flags(&self.config);
        for fd in self.executor.fault_fds() {
            if let Err(error) = self.poller.change(fd, Token::Faults, flags) {
                log_warning!("switch.onset_faults stays as it was: {error}");
            }
        }
    }
}

/// The executor's parameters: those of the configuration, with a core policy that may have been changed since.
fn engine_params(config: &Config, core_policy: CorePolicy) -> EngineParams {
    let mut engine = config.engine();
    engine.fetch.core_policy = core_policy;
    engine
}

/// What the rings of demand faults wake the service for. Without the signal of the onset nothing: faults are read when
/// a switch is to end.
fn onset_flags(config: &Config) -> EventFlags {
    match config.switch.onset_faults {
        0 => EventFlags::empty(),
        _ => EventFlags::IN,
    }
}

/// Has the event loop told of demand faults.
///
/// # Errors
/// Where the kernel refuses.
pub(super) fn watch_faults(
    executor: &dyn Executor,
    config: &Config,
    poller: &Poller,
) -> std::io::Result<()> {
    let mut fds = executor.fault_fds().into_iter();
    fds.try_for_each(|fd| poller.add(fd, Token::Faults, onset_flags(config)))
}

/// Asks the kernel to wake the service under memory pressure.
///
/// # Errors
/// Where the kernel refuses.
pub(super) fn watch_pressure(
    config: &Config,
    poller: &Poller,
) -> Result<Pressure, Box<dyn std::error::Error>> {
    let pressure = Pressure::watch(config.service.pressure_percent)?;
    poller.add(&pressure, Token::Pressure, EventFlags::PRI)?;
    Ok(pressure)
}
