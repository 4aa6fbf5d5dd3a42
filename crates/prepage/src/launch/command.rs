//! The process that a command will become, found as execvp(3) and the kernel would: along PATH, and through `#!` lines to
//! the interpreter, and of a command that only runs another (`nice gimp`, `sh -c 'exec gimp'`) the process of that one.
//! An application then has one name, whether it is known by its command or by its process.

use crate::identity::{ProcessFacts, is_told};
use crate::interpreters::STEPS_MAX;
use prepage_core::wrappers::{coded_command, wrapped};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Bytes of a file that the kernel looks at (BINPRM_BUF_SIZE, 5.1+).
const HEAD_BYTES: usize = 256;

/// Where execvp(3) looks without PATH.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// The process that `command` becomes; `None` where it will not be found. Only what [`crate::identity::program`] looks at
/// is filled in.
pub fn future_process(command: &[OsString], owner: u32) -> Option<ProcessFacts> {
    let (file, words) = followed(command.to_vec(), STEPS_MAX)?;
    process(&file, &words, owner)
}

/// The file and the words that these lead to, in so many steps.
fn followed(mut words: Vec<OsString>, steps: usize) -> Option<(PathBuf, Vec<OsString>)> {
    let file = find(words.first()?)?;
    if let Some(split) = split_by_env(&file, &words) {
        words = split;
    }
    let Some(left) = steps.checked_sub(1) else {
        return Some((file, words));
    };
    let name = file.file_name().and_then(OsStr::to_str);
    if let Some(run) = name.and_then(|name| followed_in_code(name, &words, left)) {
        return Some(run);
    }
    let by_wrapper = name.and_then(|name| wrapped(name, &words));
    // Some of them are scripts themselves.
    let next = by_wrapper.map(<[OsString]>::to_vec);
    match next.or_else(|| interpreted(&file, &words)) {
        Some(next) => followed(next, left),
        None => Some((file, words)),
    }
}

/// What the code that a shell is given leads to, where that tells what it runs.
fn followed_in_code(
    name: &str,
    words: &[OsString],
    steps: usize,
) -> Option<(PathBuf, Vec<OsString>)> {
    let command = coded_command(name, words)?;
    let (file, words) = followed(command.words, steps)?;
    let is_told = command.is_whole || process(&file, &words, 0).is_some_and(|run| is_told(&run));
    is_told.then_some((file, words))
}

fn process(file: &Path, words: &[OsString], owner: u32) -> Option<ProcessFacts> {
    // As /proc/PID is read: what is no text has a name all the same.
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    Some(ProcessFacts {
        owner,
        exe: Some(text(std::fs::canonicalize(file).ok()?)),
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
pub fn interpreted(file: &Path, words: &[OsString]) -> Option<Vec<OsString>> {
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

/// The words of an env(1) that is told to split some of them, as in `#!/usr/bin/env -S python3 -u`: the kernel gives the
/// interpreter everything after it as one word.
fn split_by_env(file: &Path, words: &[OsString]) -> Option<Vec<OsString>> {
    const SPLITS: [&[u8]; 3] = [b"--split-string=", b"--split-string", b"-S"];
    if file.file_name()? != "env" {
        return None;
    }
    let options = words.iter().enumerate().skip(1);
    let mut options = options.take_while(|(_, word)| word.as_bytes().starts_with(b"-"));
    let (at, text) = options.find_map(|(at, word)| {
        let text = |split: &&[u8]| word.as_bytes().strip_prefix(*split);
        Some((at, SPLITS.iter().find_map(text)?))
    })?;
    let (text, after) = match text {
        b"" => (words.get(at + 1)?.as_bytes(), at + 2),
        text => (text, at + 1),
    };
    let parts = text.split(|b| b.is_ascii_whitespace());
    let parts = parts.filter(|part| !part.is_empty());
    let mut run = words[..at].to_vec();
    run.extend(parts.map(|part| OsStr::from_bytes(part).to_owned()));
    run.extend_from_slice(&words[after..]);
    Some(run)
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
        let by_split = script("by-split", "#!/usr/bin/env --split-string=nice -n 5 sh\n");
        let unsplit = script("unsplit", "#!/usr/bin/env sh -e\n");
        let twice = script("twice", &format!("#!{shell}\n"));
        let true_path = std::fs::canonicalize("/bin/true").expect("true");
        assert_eq!(name(&["true"]), true_path.to_str().map(str::to_owned));
        for path in [&shell, &bare, &by_env, &by_split] {
            assert_eq!(name(&[path, "x"]).as_ref(), Some(path));
        }
        // An interpreter that is a script itself: the kernel runs the shell with it.
        assert_eq!(name(&[&twice]), Some(shell.clone()));
        // env(1) looks for `sh -e`, and there is none.
        assert_eq!(name(&[&unsplit]), None);
        assert_eq!(name(&["sh", &shell]), Some(shell.clone()));
        let wrapper_script = script("gamemoderun", "#!/bin/sh\nexec \"$@\"\n");
        for wrapper in [
            "nice -n 5",
            "timeout 10",
            "setsid -w",
            "env A=b",
            "env - A=b nice timeout 9",
            "env -u A -i -S nice",
            "setpriv --reuid=7 --clear-groups",
            &wrapper_script,
        ] {
            let words: Vec<&str> = wrapper.split(' ').chain([&*shell]).collect();
            assert_eq!(name(&words), Some(shell.clone()), "{wrapper}");
        }
        assert_eq!(name(&["timeout", "9", "no-such-command-anywhere"]), None);
        named_in_code(&shell);
        assert_eq!(
            name(&["chroot", "/srv", "sh", &shell]),
            Some(format!("chroot /srv {shell}"))
        );
        assert_eq!(name(&["no-such-command-anywhere"]), None);
        assert_eq!(name(&["/no/such/file"]), None);
        std::fs::remove_dir_all(&directory).expect("removed");
    }
    /// What code names, which a shell is given, and which runs this script.
    fn named_in_code(script: &str) {
        for code in [
            format!("{script} a"),
            format!("A=b exec {script} \"$HOME\" >/dev/null 2>&1;"),
            format!("exec nice -n 5 '{script}' $A"),
            format!("bash -ec '{script}' x"),
            format!("sh {script} $A"),
        ] {
            for shell in [&["sh", "-c"][..], &["bash", "-lc"], &["script", "-qc"]] {
                let words = [shell, &[&*code]].concat();
                assert_eq!(name(&words).as_deref(), Some(script), "{words:?}");
            }
        }
        for code in ["exec \"$@\"", "nice \"$@\""] {
            let words = ["sh", "-c", code, "sh", script, "a"];
            assert_eq!(name(&words).as_deref(), Some(script), "{code}");
        }
        // What it runs is not told, or it is more than that: different code is different applications.
        let codes = [
            format!("{script} | cat"),
            format!("cd / && {script}"),
            "nice $A".into(),
            "sh $A".into(),
            "no-such-command-anywhere".into(),
            "true".into(),
        ];
        let names = codes.map(|code| name(&["sh", "-c", &code]).expect("a name"));
        for (at, name) in names.iter().enumerate() {
            assert!(name.contains("sh -c "), "{name}");
            assert!(!names[..at].contains(name), "{name}");
        }
        // Its parameters are no part of it.
        let with = |parameter| name(&["sh", "-c", "cat \"$1\" | cat", "sh", parameter]);
        assert_eq!(with("a"), with("b"));
    }
}
