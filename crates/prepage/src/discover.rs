//! Reads from /proc what [`crate::identity`] decides upon.

use crate::cgroups::{self, Hierarchies, Membership};
use crate::containers;
use crate::identity::{
    self, COMMAND_DIRECTORIES, Identity, Named, ProcessFacts, Surroundings, base_name,
    only_runs_others, runs_for_a_person,
};
use crate::launch::command::interpreted;
use prepage_core::identity::{AppId, AppKind};
use prepage_core::shell::is_shell;
use prepage_engine::{Members, accounts, patience};
use prepage_kernel::{Error, cgroup, process};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;

/// Most ancestors looked at.
const ANCESTORS_MAX: usize = 64;

/// Most processes of a control group looked at.
const GROUP_PROCESSES_MAX: usize = 4096;

/// What does not belong to any application, here and now.
pub fn surroundings() -> Surroundings {
    Surroundings {
        hierarchies: Hierarchies::mounted(),
        init_groups: cgroups::memberships(1),
        own_groups: cgroups::memberships(process::own_pid()),
        ..Surroundings::default()
    }
}

/// What a user typed for an application, with the executable that a command of this name leads to.
pub fn named(text: &str) -> Named {
    let in_directory = text.rsplit_once('/').map(|(directory, _)| directory);
    let is_looked_up =
        |d: &&&str| !text.is_empty() && in_directory.is_none_or(|directory| directory == **d);
    let mut directories = COMMAND_DIRECTORIES.iter().filter(is_looked_up);
    let found = directories.find_map(|d| std::fs::canonicalize(Path::new(d).join(text)).ok());
    let text_of = |path: &Path| path.to_string_lossy().into_owned();
    Named {
        text: text.to_owned(),
        directory: found.as_deref().and_then(own_directory).map(text_of),
        executable: found.as_deref().map(text_of),
    }
}

/// The directory of a shell's script, where that holds one application alone.
fn own_directory(script: &Path) -> Option<&Path> {
    let directory = script.parent()?;
    let mut shared = COMMAND_DIRECTORIES.iter().map(Path::new);
    if directory.ends_with("bin") || shared.any(|shared| shared == directory) {
        return None;
    }
    let words = interpreted(script, &[script.into()])?;
    let (_, interpreter) = words.split_last()?;
    let by_shell = |word: &OsString| {
        let word = word.to_string_lossy();
        word.split(' ').map(base_name).any(is_shell)
    };
    interpreter.iter().any(by_shell).then_some(directory)
}

/// The only one of `found`, which are those that `text` may mean.
///
/// # Errors
/// Where there is none or several, with what to give instead.
pub fn only<T>(mut found: Vec<T>, text: &str, app: impl Fn(&T) -> &AppId) -> Result<T, String> {
    // An id that is given whole means one application, whatever else its text would match.
    if let Some(exact) = found.iter().position(|f| app(f).to_string() == text) {
        return Ok(found.swap_remove(exact));
    }
    match found.len() {
        0 => Err(format!(
            "no application of yours is called {text:?}, none that runs now or is known: see `prepage apps list`. \
             What `applications` lists in the configuration is tracked from its first launch on"
        )),
        1 => Ok(found.remove(0)),
        _ => {
            let names: Vec<String> = found.iter().map(|f| app(f).to_string()).collect();
            Err(format!(
                "{text:?} may be any of: {}: give one of these",
                names.join(", ")
            ))
        }
    }
}

/// What is known of a process, and its parent's pid.
///
/// # Errors
/// Where it is gone: [`prepage_kernel::Error::is_gone`]. Where it does not answer what its arguments are, since without
/// them it would be taken for its interpreter: [`prepage_kernel::Error::is_unanswered`].
pub fn facts(pid: i32) -> prepage_kernel::Result<(ProcessFacts, i32)> {
    let unanswered = || Error::new("read", format!("/proc/{pid}/cmdline"), Errno::TIMEDOUT);
    facts_with(pid, || asked_arguments(pid).ok_or_else(unanswered))
}

/// The same of a process with these arguments.
///
/// # Errors
/// Where it is gone.
pub fn facts_with(
    pid: i32,
    arguments: impl FnOnce() -> prepage_kernel::Result<Vec<String>>,
) -> prepage_kernel::Result<(ProcessFacts, i32)> {
    let stat = process::stat(pid)?;
    let text = |path: std::io::Result<std::path::PathBuf>| {
        path.ok().map(|p| p.to_string_lossy().into_owned())
    };
    let exe = process::exe(pid).ok();
    let groups = cgroups::memberships(pid);
    let left = exe.as_deref().and_then(|exe| left_groups(exe, &groups));
    let facts = ProcessFacts {
        pid,
        session: stat.session,
        owner: owner(pid)?,
        exe: exe.map(|p| p.to_string_lossy().into_owned()),
        arguments: arguments()?,
        directory: text(std::fs::read_link(format!("/proc/{pid}/cwd"))),
        has_left_groups: left.is_some(),
        groups: left.unwrap_or(groups),
    };
    Ok((facts, stat.ppid))
}

/// The user whose process this is: whose rights it has, or whose container it is in ([`accounts::owner_of`]).
///
/// # Errors
/// Where it is gone.
pub fn owner(pid: i32) -> prepage_kernel::Result<u32> {
    let status = process::status(pid)?;
    Ok(accounts::owner_of(pid, status.uid.effective))
}

/// The control groups that an application's first process was in before it moved itself, and itself alone, into the scope that is
/// among these: `app-ID-PID.scope`, of its own pid. Chromium, and what is made of it, does that at startup, for portals to know it;
/// what it had forked by then, which forks all renderers, stays where it was. `None` where a scope holds all, as one that a
/// desktop makes does.
fn left_groups(exe: &Path, groups: &[Membership]) -> Option<Vec<Membership>> {
    let scope_of = |group: &Membership| {
        let scope = base_name(&group.path).strip_prefix("app-")?;
        let (_, pid) = scope.strip_suffix(".scope")?.rsplit_once('-')?;
        pid.parse::<i32>().ok()
    };
    let (scope, first) = groups.iter().find_map(|g| Some((g, scope_of(g)?)))?;
    let is_same = |pid: i32| process::exe(pid).is_ok_and(|own| own == exe);
    if !is_same(first) || !cgroups::memberships(first).contains(scope) {
        return None;
    }
    let stayed = |pid: i32| {
        let groups = cgroups::memberships(pid);
        // One that is in a scope of its own was launched by itself.
        let is_outside = |g: &Membership| !g.is_within(scope) && scope_of(g) != Some(pid);
        (!groups.is_empty() && groups.iter().all(is_outside)).then_some(groups)
    };
    let children = process::children(first).unwrap_or_default().into_iter();
    children.filter(|&pid| is_same(pid)).find_map(stayed)
}

/// A process's arguments, which it can overwrite: a claim. Empty where it is gone, or does not let them be read.
pub fn arguments(pid: i32) -> Vec<String> {
    asked_arguments(pid).unwrap_or_default()
}

/// The same; `None` where it does not answer.
fn asked_arguments(pid: i32) -> Option<Vec<String>> {
    let arguments = patience::of_process(pid, move || process::cmdline(pid))?;
    let arguments = arguments.unwrap_or_default();
    let text = |argument: &OsString| argument.to_string_lossy().into_owned();
    Some(arguments.iter().map(text).collect())
}

/// A process, whose parent's pid is given, those of its ancestors that may belong to the same application, nearest first,
/// and the one that runs these. An ancestor that goes meanwhile ends the chain.
///
/// # Errors
/// Where an ancestor does not answer: it may be what the process is a part of.
pub fn chain(process: ProcessFacts, mut parent: i32) -> prepage_kernel::Result<Vec<ProcessFacts>> {
    let mut chain = vec![process];
    while parent > 1 && chain.len() < ANCESTORS_MAX {
        match facts(parent) {
            Ok((facts, next)) => {
                let goes_on = identity::may_be_one(&chain[chain.len() - 1], &facts);
                chain.push(facts);
                parent = if goes_on { next } else { 0 };
            }
            Err(error) if error.is_unanswered() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(chain)
}

/// A process and its ancestors, nearest first, below the first process.
pub fn ancestry(pid: i32) -> impl Iterator<Item = i32> {
    let parent = |&pid: &i32| process::stat(pid).ok().map(|stat| stat.ppid);
    std::iter::successors(Some(pid), parent)
        .take_while(|&pid| pid > 1)
        .take(ANCESTORS_MAX)
}

/// The application of a process; `None` for kernel threads and what belongs to the system.
///
/// # Errors
/// Where the process is gone, or it or one above it does not answer.
pub fn identify(pid: i32, around: &Surroundings) -> prepage_kernel::Result<Option<Identity>> {
    let (process, parent) = facts(pid)?;
    let chain = chain(process, parent)?;
    let identity = identity::identify(&chain, around);
    Ok(identity.map(|identity| as_it_runs(identity, &chain, around, first_process)))
}

/// The application that the first of a [`chain`]'s processes names; `None` where it is only a part of one.
pub fn identify_main(chain: &[ProcessFacts], around: &Surroundings) -> Option<Identity> {
    let pid = chain.first()?.pid;
    let identity = identity::identify(chain, around).filter(|identity| identity.main == pid)?;
    Some(as_it_runs(identity, chain, around, first_process))
}

/// A copy by what else is known of its group and its container; `first` tells which process has run longest in a group.
fn as_it_runs(
    identity: Identity,
    chain: &[ProcessFacts],
    around: &Surroundings,
    first: impl FnOnce(&Path) -> Option<ProcessFacts>,
) -> Identity {
    with_name(identity::by_itself(identity, chain, around, first))
}

/// The same copy, of a container that is called by its name where it has one.
fn with_name(mut identity: Identity) -> Identity {
    if let (AppKind::Container, Members::Cgroup(group)) = (identity.app.kind, &identity.members)
        && let Some(name) = containers::name_of(&identity.app.name, identity.main, group)
    {
        identity.app.name = name.into();
    }
    identity
}

/// Whether the process that names this copy joined others that had made it up before: a command that is executed in a container, a
/// hook of a unit.
pub fn joins_others(copy: &Identity) -> bool {
    let began = |pid: i32| process::stat(pid).ok().map(|stat| stat.start_ticks);
    let (Members::Cgroup(directory), Some(own)) = (&copy.members, began(copy.main)) else {
        return false;
    };
    let mut others = group_processes(directory).into_iter();
    others.any(|pid| began(pid).is_some_and(|other| other < own))
}

/// The processes in a control group and below it, at most `GROUP_PROCESSES_MAX`.
pub fn group_processes(directory: &Path) -> Vec<i32> {
    let members = cgroup::members(directory, GROUP_PROCESSES_MAX);
    members.unwrap_or_default().pids
}

/// The process that names a control group: the one that has run longest, programs that only run others apart.
///
/// # Errors
/// Where one does not answer that may be it.
pub fn main_process(pids: &[i32]) -> prepage_kernel::Result<Option<ProcessFacts>> {
    longest_running(pids, only_runs_others)
}

/// The program that a desktop application or a unit is, which its control group names: that of the process which names this copy.
pub fn program_of(copy: &Identity) -> Option<AppId> {
    if !copy.app.kind.is_of_unit() {
        return None;
    }
    let main = match &copy.members {
        Members::Cgroup(directory) => main_process(&group_processes(directory)).ok()?,
        Members::Tree(pid) => facts(*pid).ok().map(|(facts, _)| facts),
    };
    identity::program(&main?)
}

/// Whether a name means the application of this copy, or the program that it is.
pub fn is_meant(named: &Named, copy: &Identity) -> bool {
    named.means(&copy.app) || program_of(copy).is_some_and(|program| named.means(&program))
}

/// The process that has run longest in a control group, if it is known: what only starts another is not it, a terminal is.
fn first_process(directory: &Path) -> Option<ProcessFacts> {
    let starts_another = |p: &ProcessFacts| only_runs_others(p) && !runs_for_a_person(p);
    let found = longest_running(&group_processes(directory), starts_another);
    found.ok().flatten()
}

/// The process that has run longest of those that are not to be passed over, or else of these.
fn longest_running(
    pids: &[i32],
    is_passed_over: impl Fn(&ProcessFacts) -> bool,
) -> prepage_kernel::Result<Option<ProcessFacts>> {
    let began = |&pid: &i32| Some((process::stat(pid).ok()?.start_ticks, pid));
    // Pids tell apart what began in the same tick.
    let by_age: BTreeSet<(u64, i32)> = pids.iter().filter_map(began).collect();
    let mut passed_over = None;
    for (_, pid) in by_age {
        match facts(pid) {
            Ok((facts, _)) if facts.exe.is_none() => {}
            Ok((facts, _)) if is_passed_over(&facts) => {
                passed_over = passed_over.or(Some(facts));
            }
            Ok((facts, _)) => return Ok(Some(facts)),
            Err(error) if error.is_unanswered() => return Err(error),
            // It is gone.
            Err(_) => {}
        }
    }
    Ok(passed_over)
}

/// Every copy of every application that is running now, once.
pub fn running(around: &Surroundings) -> Vec<Identity> {
    let [found] = running_in([around]);
    found
}

/// The same in each of these surroundings, by one look at each process.
pub fn running_in<const N: usize>(all_around: [&Surroundings; N]) -> [Vec<Identity>; N] {
    let mut firsts = BTreeMap::new();
    let mut found = [const { BTreeMap::new() }; N];
    for pid in process::processes().unwrap_or_default() {
        let Ok(chain) = facts(pid).and_then(|(process, parent)| chain(process, parent)) else {
            continue;
        };
        for (around, found) in all_around.iter().zip(&mut found) {
            let first = |directory: &Path| {
                let first = firsts.entry(directory.to_owned());
                first.or_insert_with(|| first_process(directory)).clone()
            };
            if let Some(identity) = identity::identify(&chain, around) {
                let identity = as_it_runs(identity, &chain, around, first);
                found.entry(identity.members.clone()).or_insert(identity);
            }
        }
    }
    found.map(|found| found.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_kernel::testing::machine::eventually;
    use prepage_kernel::testing::sleeping::Sleeping;
    use std::sync::mpsc::channel;

    #[test]
    fn what_does_not_say_its_arguments_is_nothing_until_it_does() {
        let sleeping = Sleeping::spawn();
        let pid = sleeping.pid();
        let (own, _) = facts(process::own_pid()).expect("own facts");
        let around = surroundings();
        let (release, wait) = channel::<()>();
        let answer = patience::of_process(pid, move || wait.recv().is_err());
        assert_eq!(answer, None);
        let error = facts(pid).expect_err("it does not answer");
        assert!(error.is_unanswered() && !error.is_gone(), "{error}");
        assert!(identify(pid, &around).is_err());
        assert!(arguments(pid).is_empty());
        let below = chain(own.clone(), pid).expect_err("it may be of that one");
        assert!(below.is_unanswered(), "{below}");
        assert!(main_process(&[pid]).is_err());
        // It has not run for as long.
        let older = main_process(&[pid, own.pid]).expect("known").expect("one");
        assert_eq!(older.pid, own.pid);
        drop(release);
        eventually("it is asked again", || facts(pid).is_ok());
        assert_eq!(arguments(pid), ["sleep", "600"]);
        let main = main_process(&[pid]).expect("known").expect("one");
        assert_eq!(main.arguments, ["sleep", "600"]);
    }

    #[test]
    fn a_name_means_the_executable_that_its_command_leads_to() {
        let executable = std::fs::canonicalize("/bin/sh").expect("every system has a shell");
        for text in ["sh", "/bin/sh"] {
            assert_eq!(named(text).executable.as_deref(), executable.to_str());
        }
        for text in [
            "",
            "no such command",
            "bin/sh",
            "/etc/passwd",
            "../../etc/passwd",
        ] {
            assert_eq!(named(text).executable, None, "{text:?}");
        }
    }

    #[test]
    fn a_shells_script_may_be_in_a_directory_of_its_own() {
        let directory = std::env::temp_dir().join(format!("prepage-own-{}", std::process::id()));
        for (place, head, expected) in [
            ("program", "#!/bin/sh\n", true),
            ("program", "#! /usr/bin/env bash", true),
            ("program", "#!/usr/bin/python3\n", false),
            ("program", "\x7fELF", false),
            ("bin", "#!/bin/sh\n", false),
        ] {
            let place = directory.join(place);
            std::fs::create_dir_all(&place).expect("a directory");
            let script = place.join("office");
            std::fs::write(&script, head).expect("written");
            let expected = expected.then_some(&*place);
            assert_eq!(own_directory(&script), expected, "{head:?}");
        }
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
