//! What is decided for next launches, ahead of them: to merge and order thousands of reads takes longer than to notice a
//! launch.

use crate::launch::decide::{Circumstances, Decided};
use crate::launch::options::LaunchOptions;
use prepage_core::identity::{AppId, owner_of_most};
use prepage_core::launch::manager::LaunchState;
use prepage_engine::accounts::accountable;
use std::collections::VecDeque;

/// Applications of which the next launch is decided ahead. Beyond that who has most loses the one decided longest ago.
pub const READY_MAX: usize = 16;

/// What is decided for an application's next launch.
#[derive(Clone, Debug)]
struct Ready {
    app: AppId,
    state: LaunchState,
    circumstances: Circumstances,
    decided: Decided,
}

/// What is decided for the next launch of several, those decided last at the back.
#[derive(Clone, Debug, Default)]
pub struct ReadyLaunches(VecDeque<Ready>);

impl ReadyLaunches {
    /// Decides on the next launch of an application, in its present state and in such circumstances.
    pub fn make(&mut self, app: &AppId, state: &LaunchState, circumstances: Circumstances) {
        self.0.retain(|ready| ready.app != *app);
        if self.0.len() == READY_MAX {
            let owner = owner_of_most(self.0.iter().map(|ready| accountable(ready.app.owner)));
            let mut oldest = self.0.iter();
            let oldest = oldest.position(|ready| Some(accountable(ready.app.owner)) == owner);
            oldest.and_then(|at| self.0.remove(at));
        }
        self.0.push_back(Ready {
            app: app.clone(),
            state: state.clone(),
            decided: circumstances.decide(state, &LaunchOptions::default()),
            circumstances,
        });
    }

    /// What was decided for a launch, if that is what would be decided now.
    pub fn take(
        &mut self,
        app: &AppId,
        state: &LaunchState,
        circumstances: &Circumstances,
    ) -> Option<Decided> {
        let at = self.0.iter().position(|ready| ready.app == *app)?;
        let ready = self.0.remove(at)?;
        let is_current = ready.state == *state && ready.circumstances == *circumstances;
        is_current.then_some(ready.decided)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_core::identity::AppKind;
    use prepage_core::params::launch::LaunchParams;

    fn app(name: &str) -> AppId {
        AppId {
            kind: AppKind::Executable,
            name: name.into(),
            owner: 0,
        }
    }

    fn circumstances() -> Circumstances {
        Circumstances::ahead("/usr/bin/a", LaunchParams::default())
    }

    #[test]
    fn what_is_ready_holds_for_the_state_and_circumstances_it_was_decided_for() {
        let (mut ready, a) = (ReadyLaunches::default(), app("/usr/bin/a"));
        let (state, now) = (LaunchState::default(), circumstances());
        assert!(ready.take(&a, &state, &now).is_none());
        ready.make(&a, &state, now.clone());
        let decided = ready.take(&a, &state, &now).expect("nothing changed");
        let anew = now.decide(&state, &LaunchOptions::default());
        assert_eq!(
            (decided.decision, decided.state),
            (anew.decision, anew.state)
        );
        assert!(
            ready.take(&a, &state, &now).is_none(),
            "it is for one launch"
        );

        let launched = LaunchState {
            launches: 1,
            ..LaunchState::default()
        };
        ready.make(&a, &state, now.clone());
        assert!(ready.take(&a, &launched, &now).is_none());
        let elsewhere = Circumstances {
            is_rotational: !now.is_rotational,
            ..now.clone()
        };
        ready.make(&a, &state, elsewhere);
        assert!(ready.take(&a, &state, &now).is_none());
    }

    #[test]
    fn who_launches_much_makes_others_no_less_ready() {
        let (mut ready, now) = (ReadyLaunches::default(), circumstances());
        let state = LaunchState::default();
        let theirs = AppId {
            owner: 1000,
            ..app("/theirs")
        };
        ready.make(&theirs, &state, now.clone());
        for i in 0..2 * READY_MAX {
            ready.make(&app(&format!("/{i}")), &state, now.clone());
        }
        assert_eq!(ready.0.len(), READY_MAX);
        assert!(ready.take(&theirs, &state, &now).is_some());
    }

    #[test]
    fn no_more_are_ready_than_are_bounded() {
        let (mut ready, now) = (ReadyLaunches::default(), circumstances());
        let apps: Vec<AppId> = (0..READY_MAX + 2).map(|i| app(&format!("/{i}"))).collect();
        let state = LaunchState::default();
        for app in [&apps[..], &apps[READY_MAX..]].concat() {
            ready.make(&app, &state, now.clone());
        }
        let is_ready = |app| ready.take(app, &state, &now).is_some();
        let count = apps.iter().map(is_ready).filter(|&is| is).count();
        assert_eq!((ready.0.len(), count), (0, READY_MAX));
    }
}
