//! The process that a command will become, found as execvp(3) and the kernel would: along PATH, and through `#!` lines to
//! the interpreter, and of a command that only runs another (`nice gimp`) the process of that one. An application then has
//! one name, whether it is known by its command or by its process.

use crate::identity::ProcessFacts;
use crate::wrappers::wrapped;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Bytes of a file that the kernel looks at (BINPRM_BUF_SIZE, 5.1+).
const HEAD_BYTES: usize = 256;

/// Interpreters, and commands that run others, that are followed, one after the other.
const STEPS_MAX: usize = 16;

/// Where execvp(3) looks without PATH.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// The process that `command` becomes; `None` where it will not be found. Only what [`crate::identity::program`] looks at
/// is filled in.
pub fn future_process(command: &[OsString], owner: u32) -> Option<ProcessFacts> {
    let mut words = command.to_vec();
    let mut file = find(words.first()?)?;
    for _ in 0..STEPS_MAX {
        let by_wrapper = || {
            let name = file.file_name()?.to_str()?;
            wrapped(name, &words).map(<[OsString]>::to_vec)
        };
        // Some of them are scripts themselves.
        let next = by_wrapper().or_else(|| interpreted(&file, &words));
        let Some(next) = next.or_else(|| run_by_env(&file, &words)) else {
            break;
        };
        file = find(next.first()?)?;
        words = next;
    }
    // As /proc/PID is read: what is no text has a name all the same.
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    Some(ProcessFacts {
        uid: owner,
        exe: Some(text(std::fs::canonicalize(&file).ok()?)),
        arguments: words
            .iter()
            .map(|w| w.to_string_lossy().into_owned())
            .collect(),
        directory: std::env::current_dir().ok().map(text),
        ..ProcessFacts::default()
    })
}

/// The file that execvp(3) executes for a name.
fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(name.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
    let candidates = std::env::split_paths(&path).map(|directory| directory.join(name));
    let is_executable = |file: &PathBuf| {
        file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
    };
    candidates.into_iter().find(is_executable)
}

/// The words that run a script: its interpreter with its argument, the script, and the script's arguments.
fn interpreted(file: &Path, words: &[OsString]) -> Option<Vec<OsString>> {
    // To open a FIFO waits for a writer, and to open a device may do something.
    if !file.is_file() {
        return None;
    }
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let opened = std::fs::File::open(file).ok()?;
    opened.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
    let mut run: Vec<OsString> = match head.strip_prefix(b"#!") {
        Some(line) => {
            let line = line.split(|&b| b == b'\n').next()?.trim_ascii();
            let mut parts = line.splitn(2, |b| b.is_ascii_whitespace());
            let words = parts
                .by_ref()
                .map(|part| OsString::from_vec(part.trim_ascii().to_vec()));
            words.filter(|word| !word.is_empty()).collect()
        }
        // execvp(3) gives a file that the kernel cannot execute to the shell.
        None if !head.starts_with(b"\x7fELF") && !head.is_empty() => vec!["/bin/sh".into()],
        None => return None,
    };
    run.push(file.into());
    run.extend_from_slice(words.get(1..)?);
    Some(run)
}

/// The words that env(1) runs, as in `#!/usr/bin/env python3`.
fn run_by_env(file: &Path, words: &[OsString]) -> Option<Vec<OsString>> {
    if file.file_name()? != "env" {
        return None;
    }
    let mut rest = words.get(1..)?;
    while let Some((first, after)) = rest.split_first() {
        let text = first.as_bytes();
        match text {
            b"-S" | b"--split-string" | b"-i" | b"--ignore-environment" | b"--" | b"-" => {
                rest = after
            }
            b"-u" | b"--unset" | b"-C" | b"--chdir" => rest = after.get(1..)?,
            _ if text.starts_with(b"-S") => {
                let inner = OsStr::from_bytes(&text[2..]).to_os_string();
                return split_words(inner, after);
            }
            _ if text.starts_with(b"-") || text.contains(&b'=') => rest = after,
            // The kernel gives the interpreter everything after it as one argument: -S splits that.
            _ => return split_words(first.clone(), after),
        }
    }
    None
}

fn split_words(first: OsString, after: &[OsString]) -> Option<Vec<OsString>> {
    let parts = first.as_bytes().split(|b| b.is_ascii_whitespace());
    let mut words: Vec<OsString> = parts
        .filter(|part| !part.is_empty())
        .map(|part| OsString::from_vec(part.to_vec()))
        .collect();
    words.first()?;
    words.extend_from_slice(after);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::program;
    use std::os::unix::fs::PermissionsExt;

    fn name(command: &[&str]) -> Option<String> {
        let words: Vec<OsString> = command.iter().map(OsString::from).collect();
        let app = program(&future_process(&words, 7)?)?;
        assert_eq!(app.owner, 7);
        Some(app.name.to_string())
    }

    #[test]
    fn a_command_is_named_by_what_it_becomes() {
        let directory =
            std::env::temp_dir().join(format!("prepage-command-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let script = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("executable");
            path.to_str().expect("text").to_owned()
        };
        let shell = script("shell", "#! /bin/sh -e\ntrue\n");
        let bare = script("bare", "true\n");
        let by_env = script("by-env", "#!/usr/bin/env -S sh -e\n");
        let twice = script("twice", &format!("#!{shell}\n"));
        let true_path = std::fs::canonicalize("/bin/true").expect("true");
        assert_eq!(name(&["true"]), true_path.to_str().map(str::to_owned));
        for path in [&shell, &bare, &by_env] {
            assert_eq!(name(&[path, "x"]).as_ref(), Some(path));
        }
        // An interpreter that is a script itself: the kernel runs the shell with it.
        assert_eq!(name(&[&twice]), Some(shell.clone()));
        assert_eq!(name(&["env", "A=b", &shell]), Some(shell.clone()));
        assert_eq!(name(&["sh", &shell]), Some(shell.clone()));
        let wrapper_script = script("gamemoderun", "#!/bin/sh\nexec \"$@\"\n");
        for wrapper in [
            "nice -n 5",
            "timeout 10",
            "setsid -w",
            "env A=b nice timeout 9",
            "setpriv --reuid=7 --clear-groups",
            &wrapper_script,
        ] {
            let words: Vec<&str> = wrapper.split(' ').chain([&*shell]).collect();
            assert_eq!(name(&words), Some(shell.clone()), "{wrapper}");
        }
        assert_eq!(name(&["timeout", "9", "no-such-command-anywhere"]), None);
        assert_eq!(
            name(&["chroot", "/srv", "sh", &shell]),
            Some(format!("chroot /srv {shell}"))
        );
        assert_eq!(name(&["no-such-command-anywhere"]), None);
        assert_eq!(name(&["/no/such/file"]), None);
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
