//! Launches that are seen as a program is executed.

use super::Service;
use super::launches::Launching;
use crate::api::Tracing;
use crate::cgroups::memberships;
use crate::config::LaunchPolicy;
use crate::identity::{
    Named, base_name, is_session_program, may_be_named_by_group, may_be_named_by_words,
    runs_in_other_root,
};
use crate::launch::options::LaunchOptions;
use crate::sources::execs::Exec;
use crate::{discover, log_warning};
use prepage_core::identity::{AppId, AppKind};
use prepage_core::params::Mode;
use prepage_engine::patience;
use prepage_kernel::process;
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

/// Most bytes looked at of a process's environment.
const ENVIRONMENT_BYTES_MAX: u64 = 64 << 10;

impl Service {
    /// Listens to execs while there is an application whose launch may be seen by them.
    pub(super) fn watch_execs(&mut self) {
        let wanted = match self.config.service.launches {
            LaunchPolicy::Off => false,
            LaunchPolicy::Tracked => {
                let is_any_listed = !self.config.service.applications.is_empty();
                is_any_listed || self.tracking.apps().next().is_some()
            }
            LaunchPolicy::Interactive => true,
        };
        let wanted = wanted && self.machine.mode() != Mode::Off;
        let execs = self.launches.as_mut().and_then(|l| l.execs.as_mut());
        if let Some(Err(error)) = execs.map(|execs| execs.listen(wanted)) {
            log_warning!("launches are seen only where `prepage run` announces them: {error}");
        }
    }

    /// Programs were executed.
    pub(super) fn see_execs(&mut self) {
        let is_any = self.config.service.launches == LaunchPolicy::Interactive;
        let listed = self.around.listed.iter().flat_map(Named::executable_names);
        let mut names: BTreeSet<&str> = listed.collect();
        // What is listed may be the name of a unit, a container or a desktop entry.
        let mut has_groups = !names.is_empty();
        for app in self.tracking.apps() {
            match app.kind {
                AppKind::Executable => _ = names.insert(base_name(&app.name)),
                _ => has_groups = true,
            }
        }
        // What cannot be one of them is not looked up in /proc, but for where a link leads, an interpreter's words, and its group: a
        // build executes thousands of shells.
        let is_named = |path: &str| names.contains(base_name(path));
        let wants = |pid: i32, path: &str| {
            let is_one_by_exe = || {
                let exe = process::exe(pid).unwrap_or_default();
                let (exe, words) = (exe.to_string_lossy(), || discover::arguments(pid));
                is_named(&exe) || may_be_named_by_words(&exe, words, is_named)
            };
            let has_group = || has_groups && may_be_named_by_group(&memberships(pid));
            is_named(path) || is_one_by_exe() || has_group() || is_any && is_interactive(pid)
        };
        let execs = self.launches.as_mut().and_then(|l| l.execs.as_mut());
        let execs = execs.map(|execs| execs.drain(wants)).unwrap_or_default();
        for exec in execs {
            self.see_exec(&exec);
        }
    }

    fn see_exec(&mut self, exec: &Exec) {
        let Some(help) = self.launches.as_ref() else {
            return;
        };
        if help.is_part_of_launch(exec.pid) {
            return;
        }
        // It may have ended already, or it or one above it does not answer.
        let Ok((process, parent)) = discover::facts(exec.pid) else {
            return;
        };
        let Ok(chain) = discover::chain(process, parent) else {
            return;
        };
        // Any other process of an application is not its launch.
        let Some(mut identity) = discover::identify_main(&chain, &self.around) else {
            return;
        };
        // A desktop that runs it moves it into the scope that names it some milliseconds later.
        let is_by_itself = identity.app.kind == AppKind::Executable;
        if is_by_itself
            && !self.tracking.contains(&identity.app)
            && let Some(entry) = self.launched_entry(exec.pid, identity.app.owner)
        {
            identity.app = entry;
        }
        if help.is_launching(&identity.app) {
            return;
        }
        let is_tracked = self.tracking.contains(&identity.app);
        // What is executed in the group of one that runs is no launch of it; a program is one wherever it runs.
        let is_launch = LazyCell::new(|| is_by_itself || !discover::joins_others(&identity));
        // What a group's program is, takes a look at each of its processes.
        let is_meant = || !self.around.listed.is_empty() && *is_launch && self.lists(&identity);
        let is_found = !is_tracked && (self.around.lists(&identity.app) || is_meant());
        let is_chosen = is_tracked
            || is_found
            || self.config.service.launches == LaunchPolicy::Interactive
                && (runs_in_other_root(&chain[0]) || !is_session_program(&chain[0]))
                && is_interactive(exec.pid);
        if is_chosen && *is_launch {
            self.begin_launch(Launching {
                app: identity.app.clone(),
                process: &chain[0],
                began: exec.at,
                options: LaunchOptions::default(),
                is_announced: false,
                tracing: Tracing::No,
            });
        }
        if is_found {
            self.meet(identity);
        }
    }

    /// The application of the desktop entry that a process was launched by, where that is tracked or listed. GLib, by which GNOME Shell
    /// and others launch, says so in its environment, which the processes below it inherit: it tells whose pid it means.
    fn launched_entry(&self, pid: i32, owner: u32) -> Option<AppId> {
        let environment = environment(pid);
        let value = |name: &str| {
            let variables = environment.split(|&byte| byte == 0);
            let mut values = variables.filter_map(|v| v.strip_prefix(name.as_bytes()));
            std::str::from_utf8(values.next()?).ok()
        };
        let launched: i32 = value("GIO_LAUNCHED_DESKTOP_FILE_PID=")?.parse().ok()?;
        let entry = base_name(value("GIO_LAUNCHED_DESKTOP_FILE=")?);
        let app = AppId {
            kind: AppKind::Desktop,
            name: entry.strip_suffix(".desktop")?.into(),
            owner,
        };
        let is_known = || self.tracking.contains(&app) || self.around.lists(&app);
        (launched == pid && is_known()).then_some(app)
    }
}

/// The environment that a process was executed with, its variables divided by NUL, as far as it is looked at; empty where it is gone
/// or does not answer.
fn environment(pid: i32) -> Vec<u8> {
    let environment = move || {
        let mut environment = Vec::new();
        let file = std::fs::File::open(format!("/proc/{pid}/environ"))?;
        let mut file = file.take(ENVIRONMENT_BYTES_MAX);
        file.read_to_end(&mut environment).map(|_| environment)
    };
    let environment = patience::of_process(pid, environment).and_then(std::io::Result::ok);
    environment.unwrap_or_default()
}

/// Whether a process was launched in a graphical session and not from a terminal.
fn is_interactive(pid: i32) -> bool {
    let environment = environment(pid);
    let mut variables = environment.split(|&byte| byte == 0);
    let has_display =
        variables.any(|v| v.starts_with(b"DISPLAY=") || v.starts_with(b"WAYLAND_DISPLAY="));
    let input = std::fs::read_link(format!("/proc/{pid}/fd/0"));
    let is_typed = input.is_ok_and(|path| path.as_os_str().as_bytes().starts_with(b"/dev/pts/"));
    has_display && !is_typed
}
