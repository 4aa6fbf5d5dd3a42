//! What the API's methods do. Callers act on, and see, only what they own; root everything.

use super::Service;
use super::targets::nothing_named;
use crate::api::*;
use crate::discover;
use crate::sources::api::Caller;
use crate::wire::{self, SMALL_REQUEST_BYTES_MAX, TooLong};
use prepage_core::identity::{AppId, AppKind};
use prepage_core::launch::manager::Phase;
use prepage_core::machine::Event;
use prepage_core::signal::Source;
use prepage_kernel::process::own_pid;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) type Answer = Result<Value, ApiError>;

/// Longest name that a user may give, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// The reply to a message that is longer than its sender may send.
pub fn refuse_length(message: TooLong) -> Vec<u8> {
    encode_refusal(&too_long(message.bytes_max))
}

fn too_long(bytes_max: usize) -> ApiError {
    let reason = format!("the message is longer than {bytes_max} bytes");
    ApiError::Malformed { reason }
}

fn encode_refusal(error: &ApiError) -> Vec<u8> {
    let (name, parameters) = error.to_wire();
    wire::encode_error(&name, &parameters)
}

pub(super) fn reply<T: Serialize>(value: T) -> Answer {
    serde_json::to_value(value).map_err(|e| ApiError::Failed {
        reason: e.to_string(),
    })
}

pub(super) fn not_found(reason: impl Into<String>) -> ApiError {
    ApiError::NotFound {
        reason: reason.into(),
    }
}

/// Why it is not known what a process is.
pub(super) fn unknown_process(pid: i32, error: &prepage_kernel::Error) -> ApiError {
    if error.is_gone() {
        return not_found(format!("there is no process {pid}"));
    }
    not_found(error.to_string())
}

pub(super) fn require_owner(caller: Caller, app: &AppId) -> Result<(), ApiError> {
    if may_act(caller, app) {
        return Ok(());
    }
    // Nothing of it is told: its name may be a path that only its owner can see.
    let reason = format!(
        "it belongs to another user, you are {}: try as root",
        caller.uid
    );
    Err(ApiError::PermissionDenied { reason })
}

/// Before anything of a process is looked at for a caller who may not see it.
pub(super) fn require_own_process(caller: Caller, pid: i32) -> Result<(), ApiError> {
    if caller.uid == 0 || discover::owner(pid).is_ok_and(|owner| owner == caller.uid) {
        return Ok(());
    }
    Err(not_found(format!(
        "there is no process {pid} of yours: try as root"
    )))
}

pub(super) fn may_act(caller: Caller, app: &AppId) -> bool {
    caller.uid == 0 || caller.uid == app.owner
}

/// The pid of a caller; one whose processes have none here is refused whatever it asks.
pub(super) fn require_pid(caller: Caller) -> Result<i32, ApiError> {
    caller.pid.ok_or_else(|| ApiError::PermissionDenied {
        reason: "the service does not see your process, which is outside of its pid namespace: \
                 run both in one"
            .into(),
    })
}

pub(super) fn require_printable(
    text: &str,
    parameter: &str,
    bytes_max: usize,
) -> Result<(), ApiError> {
    let printable = !text.chars().any(char::is_control);
    if (1..=bytes_max).contains(&text.len()) && printable {
        return Ok(());
    }
    Err(ApiError::InvalidParameter {
        parameter: parameter.into(),
        reason: format!("it has 1 to {bytes_max} bytes and no control characters"),
    })
}

fn require_root(caller: Caller, what: &str) -> Result<(), ApiError> {
    match caller.uid {
        0 => Ok(()),
        _ => Err(ApiError::PermissionDenied {
            reason: format!("only root may {what}: try with sudo"),
        }),
    }
}

impl Service {
    /// The reply to one message; none where the caller wants none.
    pub(super) fn answer(&mut self, caller: Caller, message: &[u8]) -> Option<Vec<u8>> {
        let request = match wire::parse_request(message) {
            Ok(request) => request,
            Err(reason) => return Some(encode_refusal(&ApiError::Malformed { reason })),
        };
        let oneway = request.oneway;
        // Refusals repeat what they refuse.
        let may_be_long = request.method.strip_prefix(INTERFACE) == Some(".Import");
        let answer = match message.len() > SMALL_REQUEST_BYTES_MAX && !may_be_long {
            true => Err(too_long(SMALL_REQUEST_BYTES_MAX)),
            false => require_pid(caller)
                .and_then(|_| Call::parse(request))
                .and_then(|call| self.execute(caller, call)),
        };
        let reply = match answer {
            Ok(parameters) => wire::encode_reply(&parameters),
            Err(error) => encode_refusal(&error),
        };
        (!oneway).then_some(reply)
    }

    fn execute(&mut self, caller: Caller, call: Call) -> Answer {
        match call {
            Call::GetInfo => Ok(json!({
                "vendor": "prepage",
                "product": "prepaged",
                "version": env!("CARGO_PKG_VERSION"),
                "url": "",
                "interfaces": [SERVICE_INTERFACE, INTERFACE],
            })),
            Call::GetInterfaceDescription(asked) => describe_interface(&asked.interface),
            Call::Track(target) => self.call_track(caller, &target),
            Call::Untrack(target) => self.call_untrack(caller, &target),
            Call::SwitchBegin(parameters) => self.call_begin(caller, parameters),
            Call::SwitchEnd(target) => self.call_end(caller, &target),
            Call::Restore(target) => self.call_restore(caller, &target),
            Call::RestoreReport(asked) => self.call_restore_report(caller, asked.restore),
            Call::LaunchBegin(parameters) => self.call_launch_begin(caller, &parameters),
            Call::LaunchEnd(parameters) => self.call_launch_end(caller, parameters),
            Call::LaunchPaths(parameters) => self.call_launch_paths(caller, parameters),
            Call::LaunchPrefetched(asked) => self.call_launch_prefetched(caller, asked.launch),
            Call::LaunchReport(asked) => self.call_launch_report(caller, asked.launch),
            Call::SetMode(parameters) => self.call_mode(caller, parameters),
            Call::SetCorePolicy(parameters) => self.call_core_policy(caller, parameters),
            Call::Status => reply(self.status(caller)),
            Call::ListApps => reply(self.known_apps(caller)),
            Call::Forget(asked) => self.call_forget(caller, &asked.app),
            Call::Export(asked) => self.call_export(caller, &asked.app),
            Call::Import(asked) => self.call_import(caller, &asked.profile),
            Call::Explain(asked) => {
                let app = self.known_app(caller, &asked.app)?;
                reply(self.explain(&app))
            }
            Call::Stats(asked) => self.call_stats(caller, asked.app.as_deref()),
        }
    }

    fn call_track(&mut self, caller: Caller, target: &Target) -> Answer {
        let mut found = self.find_new(caller, target)?;
        let by_place = target.pid.is_some() || target.cgroup.is_some();
        if let Some(name) = target.name.as_ref().filter(|_| by_place) {
            require_printable(name, "name", NAME_BYTES_MAX)?;
            found.app = AppId {
                kind: AppKind::Named,
                name: name.as_str().into(),
                owner: found.app.owner,
            };
        }
        require_owner(caller, &found.app)?;
        if !self.tracking.contains(&found.app) && !self.has_room(found.app.owner) {
            let reason = "too many applications are tracked: untrack one".into();
            return Err(ApiError::Failed { reason });
        }
        // Two names for the same processes would learn the same twice: the last name given is theirs.
        let mut given_up = Vec::new();
        for copy in &found.copies {
            let other = self.tracking.app_of(&copy.members).cloned();
            if let Some(other) = other.filter(|other| *other != found.app) {
                require_owner(caller, &other)?;
                self.give_up_copy(&other, &copy.members);
                given_up.extend((!self.tracking.contains(&other)).then(|| other.to_string()));
            }
        }
        let new = self.track(&found.app, found.copies, found.how);
        reply(TrackReply {
            members: self.tracking.members_text(&found.app),
            app: found.app.to_string(),
            new,
            given_up,
            missing: self.missing_count(),
        })
    }

    fn call_untrack(&mut self, caller: Caller, target: &Target) -> Answer {
        let app = self.find_tracked_target(caller, target)?;
        let is_listed =
            self.around.lists(&app) || self.tracking.copies(&app).any(|c| self.lists(&c));
        if is_listed {
            let reason = format!(
                "the configuration lists {app} (service.applications), and would have it tracked again: take it out there, \
                 reload, then untrack it"
            );
            return Err(ApiError::Failed { reason });
        }
        self.untrack(&app);
        reply(AppReply {
            app: app.to_string(),
        })
    }

    fn call_begin(&mut self, caller: Caller, given: BeginParameters) -> Answer {
        let switched_to = given.target.pid;
        let (app, source) = match given.source {
            Reporter::Focus => {
                let pid = given.target.pid.ok_or_else(nothing_named)?;
                // The hot path: no look at /proc where the process is known.
                let app = self
                    .executor
                    .app_of(pid)
                    .or_else(|| self.app_of_focus(caller, pid));
                (app.filter(|app| may_act(caller, app)), Source::Focus)
            }
            Reporter::Explicit => {
                let app = self.find_tracked_target(caller, &given.target)?;
                (Some(app), Source::Explicit)
            }
        };
        let Some(app) = app else {
            return reply(BeginReply {
                app: None,
                tracked: false,
                began: false,
                missing: 0,
            });
        };
        let began = self.begin(app.clone(), switched_to, source);
        reply(BeginReply {
            tracked: true,
            began,
            app: Some(app.to_string()),
            missing: match given.source {
                Reporter::Explicit => self.missing_count(),
                Reporter::Focus => 0,
            },
        })
    }

    fn call_end(&mut self, caller: Caller, target: &Target) -> Answer {
        let app = self.find_tracked_target(caller, target)?;
        let ended = self.machine.is_switching(&app);
        self.step_now(Event::End { app: app.clone() });
        reply(EndReply {
            app: app.to_string(),
            ended,
        })
    }

    fn call_restore(&mut self, caller: Caller, target: &Target) -> Answer {
        let app = self.find_tracked_target(caller, target)?;
        let failed = |reason: String| ApiError::Failed { reason };
        let mode = self.machine.mode();
        if !mode.fetches() {
            let word = mode.word();
            return Err(failed(format!(
                "nothing is fetched in mode {word}: `prepage mode full` turns it on"
            )));
        }
        if !self.tracking.is_running(&app) {
            return Err(failed(format!("{app} is not running")));
        }
        let model = self.machine.app(&app);
        let plan = model.map(|model| Arc::clone(model.plan()));
        let begun = self.executor.restore(&app, &plan.unwrap_or_default(), mode);
        reply(RestoreReply {
            restore: begun.map_err(|error| failed(error.to_string()))?,
            app: app.to_string(),
            missing: self.missing_count(),
        })
    }

    fn call_restore_report(&mut self, caller: Caller, restore: u64) -> Answer {
        let restored = self.executor.restored(restore);
        let own = restored.filter(|restored| may_act(caller, &restored.app));
        let Some(restored) = own else {
            let reason = format!("no restore {restore} of yours is known");
            return Err(not_found(reason));
        };
        reply(RestoreReportReply {
            app: restored.app.to_string(),
            out_pages: restored.out_pages,
            back_pages: restored.back_pages,
            took_us: restored.took_us,
        })
    }

    fn call_mode(&mut self, caller: Caller, parameters: ModeParameters) -> Answer {
        require_root(caller, "change the mode, which is that of all applications")?;
        let before = self.machine.mode();
        self.step_now(Event::SetMode(parameters.mode));
        reply(ModeReply {
            mode: self.machine.mode(),
            before,
        })
    }

    fn call_core_policy(&mut self, caller: Caller, parameters: CorePolicyParameters) -> Answer {
        require_root(
            caller,
            "change the core policy, which is that of all applications",
        )?;
        let before = self.core_policy;
        self.set_core_policy(parameters.core_policy)
            .map_err(|error| ApiError::Failed {
                reason: error.to_string(),
            })?;
        reply(CorePolicyReply {
            core_policy: self.core_policy,
            before,
        })
    }

    fn status(&self, caller: Caller) -> StatusReply {
        let apps = self.tracking.apps().filter(|app| may_act(caller, app));
        let status = |app: &AppId| {
            let model = self.machine.app(app)?;
            let launch = self.store.load(app).map(|stored| &stored.launch);
            let running = self.tracking.is_running(app);
            let state = match (self.machine.is_switching(app), running) {
                (true, _) => "switching",
                (false, true) => "running",
                (false, false) => "not running",
            };
            Some(AppStatus {
                app: app.to_string(),
                state: state.into(),
                members: self.tracking.members_text(app),
                processes: model.instances().count() as u64,
                switches: model.profile().switches,
                anon_planned_pages: model.plan().anon_pages(),
                file_planned_pages: model.plan().file_pages(),
                table_bytes: model.bytes() as u64,
                launches: launch.map_or(0, |launch| launch.launches),
                launch_phase: launch.map_or(Phase::default(), |launch| launch.phase),
            })
        };
        StatusReply {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: own_pid(),
            mode: self.machine.mode(),
            core_policy: self.core_policy,
            under_pressure: self.pressure.as_ref().is_some_and(|p| p.is_on()),
            missing: self.missing(),
            threads_given_up: self.executor.threads_given_up() as u64,
            reclaimed_ahead_bytes: self.executor.reclaimed().bytes,
            reclaimed_ahead_times: self.executor.reclaimed().times,
            apps: apps.filter_map(status).collect(),
        }
    }

    fn known_apps(&self, caller: Caller) -> AppsReply {
        let own = self
            .store
            .list()
            .into_iter()
            .filter(|stored| may_act(caller, &stored.app));
        let known = own.map(|stored| KnownApp {
            tracked: self.tracking.contains(&stored.app),
            ..KnownApp::from(stored)
        });
        AppsReply {
            apps: known.collect(),
        }
    }

    /// The one application, tracked or kept in the store, that the caller named and may see.
    fn known_app(&self, caller: Caller, text: &str) -> Result<AppId, ApiError> {
        let mut known: Vec<AppId> = self.tracking.apps().cloned().collect();
        known.extend(self.store.list().into_iter().map(|stored| stored.app));
        known.sort();
        known.dedup();
        let named = discover::named(text);
        known.retain(|app| named.means(app) && may_act(caller, app));
        discover::only(known, text, |app| app).map_err(not_found)
    }

    fn call_forget(&mut self, caller: Caller, text: &str) -> Answer {
        let app = self.known_app(caller, text)?;
        if self.tracking.contains(&app) {
            self.untrack(&app);
        }
        self.store.forget(&app);
        reply(AppReply {
            app: app.to_string(),
        })
    }

    fn call_export(&mut self, caller: Caller, text: &str) -> Answer {
        let app = self.known_app(caller, text)?;
        let profile = self
            .store
            .export(&app)
            .ok_or_else(|| not_found(format!("nothing is kept of {app}")))?;
        reply(ExportReply {
            app: app.to_string(),
            profile: to_hexadecimal(&profile),
        })
    }

    fn call_import(&mut self, caller: Caller, profile: &str) -> Answer {
        require_root(caller, "import a profile")?;
        let bytes = from_hexadecimal(profile).ok_or_else(|| ApiError::InvalidParameter {
            parameter: "profile".into(),
            reason: "it is not hexadecimal".into(),
        })?;
        let imported = self.store.import(&bytes);
        let app = imported.map_err(|e| ApiError::Failed {
            reason: e.to_string(),
        })?;
        self.take_over_profile(&app);
        reply(AppReply {
            app: app.to_string(),
        })
    }

    fn call_stats(&self, caller: Caller, text: Option<&str>) -> Answer {
        let apps: BTreeSet<AppId> = match text {
            Some(text) => [self.known_app(caller, text)?].into(),
            None => {
                let switched = self.machine.apps().map(|(app, _)| app);
                let launched = self.launches.iter().flat_map(|launches| launches.apps());
                let own = switched.chain(launched).filter(|app| may_act(caller, app));
                own.cloned().collect()
            }
        };
        let launches = self.launches.iter();
        let launches = apps
            .iter()
            .flat_map(|app| launches.clone().flat_map(|l| l.records(app)));
        let switches = apps.iter().flat_map(|app| {
            self.machine.records(app).map(|record| SwitchOf {
                app: app.to_string(),
                record: record.clone(),
            })
        });
        reply(StatsReply {
            launches: launches.cloned().collect(),
            switches: switches.collect(),
            kept: Vec::new(),
            missing: self.missing_count(),
        })
    }
}

fn describe_interface(interface: &str) -> Answer {
    match interface {
        INTERFACE => Ok(json!({ "description": DESCRIPTION })),
        SERVICE_INTERFACE => Ok(json!({ "description": SERVICE_DESCRIPTION })),
        other => Err(ApiError::InterfaceNotFound(other.into())),
    }
}
