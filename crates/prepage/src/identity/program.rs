//! What a program is called: by its executable, by what it interprets, or by what it runs.

use super::ProcessFacts;
use super::session::runs_in_other_root;
use crate::interpreters::{
    STEPS_MAX, called_as, code_of, is_interpreter, is_multi_call, run_by, run_by_runner, script_of,
};
use prepage_core::identity::{AppId, AppKind};
use prepage_core::wrappers;

/// The application that a program is, by its executable.
pub fn program(process: &ProcessFacts) -> Option<AppId> {
    Some(AppId {
        kind: AppKind::Executable,
        name: program_name(process)?.into(),
        owner: process.owner,
    })
}

/// Whether what a process runs is told by its words, where these are only those before the first that is not known.
pub fn is_told(process: &ProcessFacts) -> bool {
    let base = process.base_name();
    let is_whole =
        |name: &str| !wrappers::is_runner(name) || run_by_runner(process, name).is_some();
    match is_interpreter(base) {
        true => script_of(process, base).is_some_and(|script| is_whole(base_name(&script))),
        false => is_whole(base) && (!wrappers::is_wrapper(base) || runs_in_other_root(process)),
    }
}

/// The last part of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether these names may hold that of an executable's process by its words, as far as the executable and the words alone tell: by what
/// it interprets, or by whatever it runs in another root directory or where only it finds it. Words are read only where they matter.
pub fn may_be_named_by_words(
    exe: &str,
    words: impl FnOnce() -> Vec<String>,
    is_named: impl FnOnce(&str) -> bool,
) -> bool {
    let base = base_name(exe);
    let name = || {
        let process = ProcessFacts {
            arguments: words(),
            ..ProcessFacts::default()
        };
        own_name_by_words(&process, base)
    };
    let runs = |name: &str| wrappers::is_runner(base_name(name));
    wrappers::has_other_root(base)
        || runs(base)
        || (is_interpreter(base) || is_multi_call(base))
            && name().is_some_and(|name| runs(&name) || is_named(&name))
}

/// What names a process, whose executable has this name, by its words.
pub(super) fn name_by_words(process: &ProcessFacts, base: &str) -> Option<String> {
    script_of(process, base).or_else(|| code_of(process, base))
}

/// The same, or by the name that one of many is called by.
fn own_name_by_words(process: &ProcessFacts, base: &str) -> Option<String> {
    name_by_words(process, base).or_else(|| called_as(process, base))
}

/// The executable's path, or what it interprets or runs.
fn program_name(process: &ProcessFacts) -> Option<String> {
    name_within(process, STEPS_MAX)
}

/// The same in so many steps; `None` where these do not lead to its end.
fn name_within(process: &ProcessFacts, steps: usize) -> Option<String> {
    let left = steps.checked_sub(1)?;
    let exe = process.executable()?;
    if let Some(name) = wrappers::packaged(base_name(exe), &process.arguments) {
        return Some(name);
    }
    if let Some((by, command)) = wrappers::in_other_root(base_name(exe), &process.arguments) {
        let run = name_within(&run_by(process, command), left)?;
        return Some(format!("{by} {run}"));
    }
    let name = own_name_by_words(process, base_name(exe)).unwrap_or_else(|| exe.to_owned());
    let run = run_by_runner(process, base_name(&name));
    Some(run.unwrap_or_else(|| without_mount_number(name)))
}

/// Random letters at the end of the name of an AppImage's mount.
const MOUNT_NUMBER_BYTES: usize = 6;

/// A path without the part by which the mounts of an AppImage's launches differ.
fn without_mount_number(path: String) -> String {
    let is_mount = |part: &&str| part.starts_with(".mount_");
    let mount = path.split('/').find(is_mount);
    let stable = mount.and_then(|mount| {
        let stable = mount.get(..mount.len().checked_sub(MOUNT_NUMBER_BYTES)?)?;
        stable.starts_with(".mount_").then_some((mount, stable))
    });
    match stable {
        Some((mount, stable)) => path.replacen(mount, stable, 1),
        None => path,
    }
}
