//! Launches that nobody announces: prepage's service sees their exec.

use super::bench::{Bench, Learned};
use super::learning::{is_enough, learning_slot};
use super::prepage::REPORT_LIMIT_MS;
use super::record::{Learn, Line, Parameters};
use super::run::show;
use super::sample::{self, Report};
use super::scenario::Scenario;
use crate::clock::{now_ns, sleep_ms};
use crate::error::Result;
use crate::group::Group;
use crate::record::{Mode, Writer};
use crate::service::Service;
use crate::user::User;
use prepage_core::identity::AppId;
use prepage_core::launch::manager::LaunchState;

/// A launch that the service has not begun to record or help when it has been over for so long is none to it.
const UNSEEN_MS: u64 = 100;

/// The service, whose mode is off but for the launches that it is to see.
#[derive(Debug)]
pub struct Detector {
    service: Service,
    /// Whom the programs run as, where that is not root.
    user: Option<User>,
    /// The number of the service's next launch.
    next_launch: u64,
}

impl Detector {
    /// Starts the service, which is told to help these programs.
    ///
    /// # Errors
    /// Where it is not built, or does not start.
    pub fn start(bench: &Bench, programs: &[Learned]) -> Result<Self> {
        let group = bench.service_group()?;
        let (binaries, places) = (bench.prepage.binaries(), &bench.ground.places);
        let user = places.user;
        let apps = programs.iter().map(|learned| run_by(user, &learned.app));
        let config = bench.prepage.configuration_of_service(apps);
        Ok(Self {
            user,
            service: Service::start_alone(binaries, places, group, &config)?,
            next_launch: 0,
        })
    }

    /// Has the service see launches. Those until now, which others may have made, are passed over.
    pub fn begin(&mut self) -> Result<()> {
        self.service.set_mode(Mode::Full)?;
        let seen = self.service.launches_from(self.next_launch)?;
        self.next_launch = seen.last().map_or(self.next_launch, |last| last.number + 1);
        Ok(())
    }

    /// Waits for the service's record of the one launch since [`Self::begin`], and has it see no more. There is none of a
    /// launch that it leaves alone, or that was over before it could look at it.
    pub fn end(&mut self) -> Result<Report> {
        let report = self.wait_for_record();
        self.service.set_mode(Mode::Off)?;
        report
    }

    fn wait_for_record(&self) -> Result<Report> {
        const STEP_MS: u64 = 10;
        let began = now_ns();
        loop {
            let mut seen = self.service.launches_from(self.next_launch)?;
            let waited_ms = (now_ns() - began) / 1_000_000;
            match seen.pop() {
                // Somebody else launched the program: which record is whose, nobody knows.
                Some(_) if !seen.is_empty() => {
                    return Ok(Err("another launch was seen beside it".into()));
                }
                Some(launch) if launch.record.is_some() => return Ok(Ok(launch.record)),
                None if waited_ms >= UNSEEN_MS => return Ok(Ok(None)),
                Some(_) if waited_ms >= REPORT_LIMIT_MS => {
                    return Ok(Err(sample::NO_REPORT.into()));
                }
                _ => sleep_ms(STEP_MS),
            }
        }
    }

    /// What the service has learned of an application's launches.
    pub fn state(&self, app: &AppId) -> Result<LaunchState> {
        self.service.launch_state(&run_by(self.user, app))
    }

    /// Whether it leaves an application alone.
    pub fn leaves_alone(&self, app: &AppId) -> Result<bool> {
        Ok(self.state(app)?.is_left_alone())
    }

    /// The service's group.
    pub fn group(&self) -> &Group {
        self.service.group()
    }
}

/// The application that this one is where this user runs it: `prepage run`, by which it was learned, is root's.
fn run_by(user: Option<User>, app: &AppId) -> AppId {
    AppId {
        owner: user.map_or(app.owner, |user| user.uid),
        ..app.clone()
    }
}

/// Launches a program until the service knows what to do with it, by the rule by which `prepage run` learns. Where it does
/// not come to know, the program is measured all the same: that is what a user gets.
pub fn learn(
    bench: &mut Bench,
    parameters: &Parameters,
    learned: &Learned,
    writer: &mut Writer,
) -> Result<()> {
    let is_cold = parameters.learn == Learn::Cold;
    let mut state = LaunchState::default();
    for block in 0..parameters.learning_max {
        let slot = learning_slot(&learned.program, block, Scenario::Detected);
        let launch = sample::learn(bench, parameters, &learned.program, &slot, is_cold)?;
        if let Some(detector) = &bench.detector {
            state = detector.state(&learned.app)?;
        }
        match launch {
            Ok(mut launch) => {
                launch.known_pages = Some(state.sequence.pages());
                show(&launch, true);
                writer.write(&Line::LearningLaunch(launch))?;
            }
            Err(discarded) => {
                eprintln!("  discarded: {}", discarded.reason);
                writer.write(&Line::DiscardedLaunch(discarded))?;
            }
        }
        if is_enough(&state, is_cold, block + 1) {
            break;
        }
    }
    let seen = state.launches;
    eprintln!("  {:?} after {seen} launches that it saw", state.phase);
    Ok(())
}
