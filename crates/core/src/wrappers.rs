//! Commands that only run another: an application is known by what is run.
//!
//! Most of them become it by exec, or wait for it, and set its surroundings: it is looked for among their words. Others run it in
//! another root directory, where only they know what a path means: there, both name it.

use crate::shell::{self, SimpleCommand, has_posix_syntax, is_shell, simple_command};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A command that runs another: its name, the letters and the names of those of its options that take the next word as their
/// value, and how many words of its own come before the command. None of them takes options after these.
type Wrapper = (&'static str, &'static [u8], &'static str, usize);

/// Those that run it where it was looked up. Some are shell scripts.
const WRAPPERS: [Wrapper; 40] = [
    ("choom", b"np", "--adjust --pid", 0),
    (
        "chrt",
        b"DPT",
        "--sched-deadline --sched-period --sched-runtime",
        1,
    ),
    ("dbus-launch", b"", "--config-file", 0),
    ("dbus-run-session", b"", "--config-file --dbus-daemon", 0),
    ("doas", b"Cu", "", 0),
    ("env", b"Cu", "--chdir --unset", 0),
    ("fakeroot", b"bils", "--faked --fd-base --lib", 0),
    ("firejail", b"", "", 0),
    ("flock", b"Ew", "--conflict-exit-code --timeout --wait", 1),
    ("gamemoderun", b"", "", 0),
    (
        "ionice",
        b"cnPpu",
        "--class --classdata --pgid --pid --uid",
        0,
    ),
    ("mangohud", b"", "", 0),
    ("nice", b"n", "--adjustment", 0),
    ("nohup", b"", "", 0),
    (
        "numactl",
        b"CNPimpw",
        "--cpunodebind --interleave --membind --physcpubind --preferred --preferred-many \
         --weighted-interleave",
        0,
    ),
    ("padsp", b"mns", "", 0),
    ("pkexec", b"", "--user", 0),
    ("prime-run", b"", "", 0),
    ("primusrun", b"", "", 0),
    ("prlimit", b"op", "--output --pid", 0),
    ("proxychains", b"f", "", 0),
    ("proxychains4", b"f", "", 0),
    ("pw-jack", b"prs", "", 0),
    (
        "setpriv",
        b"",
        "--ambient-caps --apparmor-profile --bounding-set --egid --euid --groups --inh-caps \
         --landlock-access --landlock-rule --pdeathsig --ptracer --regid --reuid --rgid --ruid \
         --seccomp-filter --securebits --selinux-label",
        0,
    ),
    ("setsid", b"", "", 0),
    ("ssh-agent", b"EOPat", "", 0),
    ("stdbuf", b"eio", "--error --input --output", 0),
    (
        "strace",
        b"EIOPSUXabeopsu",
        "--argv0 --attach --columns --detach-on --env --interruptible --output --string-limit \
         --summary-sort-by --trace --trace-path --user",
        0,
    ),
    (
        "sudo",
        b"CDRTUghprtu",
        "--chdir --chroot --close-from --command-timeout --group --host --other-user --prompt \
         --role --type --user",
        0,
    ),
    (
        "systemd-cat",
        b"pt",
        "--identifier --level-prefix --namespace --priority --stderr-priority",
        0,
    ),
    ("systemd-inhibit", b"", "--mode --what --who --why", 0),
    (
        "systemd-run",
        b"EHMpu",
        "--description --gid --host --machine --nice --property --service-type --setenv --slice \
         --uid --unit --working-directory",
        0,
    ),
    ("taskset", b"", "", 1),
    ("time", b"fo", "--format --output", 0),
    ("timeout", b"ks", "--kill-after --signal", 1),
    ("torify", b"", "", 0),
    ("torsocks", b"", "", 0),
    ("uclampset", b"Mmp", "--pid", 0),
    (
        "unshare",
        b"GRSlw",
        "--boottime --load-interp --map-group --map-groups --map-user --map-users --monotonic \
         --propagation --root --setgid --setgroups --setuid --wd",
        0,
    ),
    (
        "xvfb-run",
        b"efnpsw",
        "--auth-file --error-file --server-args --server-num --wait --xauth-protocol",
        0,
    ),
];

/// Those whose command follows `--`, whatever comes before it.
const WRAPPERS_WITH_DASHES: [&str; 3] = ["gamescope", "uwsm", "uwsm-app"];

/// Those that hand code to the user's shell, by `-c` or an option that ends in `command`. They take options after other
/// words too.
const CODE_RUNNERS: [Wrapper; 3] = [
    (
        "runuser",
        b"Gcgsuw",
        "--group --shell --supp-group --user --whitelist-environment",
        0,
    ),
    (
        "script",
        b"BEIOTcmo",
        "--echo --log-in --log-io --log-out --log-timing --logging-format --output-limit",
        0,
    ),
    (
        "su",
        b"Gcgsw",
        "--group --shell --supp-group --whitelist-environment",
        0,
    ),
];

const CHROOT: Wrapper = ("chroot", b"", "--groups --userspec", 1);

/// The first of its words is `run`.
const FLATPAK: Wrapper = (
    "flatpak",
    b"",
    "--arch --branch --command --commit --cwd --filesystem --runtime --runtime-version",
    0,
);

/// Likewise.
const SNAP: Wrapper = ("snap", b"r", "--command --hook --revision", 0);

/// Commands that run another where only they find it, in an environment or a package of their own, with the word that has them do
/// so before their options.
const RUNNERS: [(Wrapper, Option<&str>); 8] = [
    (("bundle", b"", "--gemfile", 0), Some("exec")),
    (("gtk-launch", b"", "", 0), None),
    (
        (
            "npx",
            b"cpw",
            "--cache --call --package --registry --workspace",
            0,
        ),
        None,
    ),
    (("pdm", b"p", "--project --venv", 0), Some("run")),
    (("pipenv", b"", "", 0), Some("run")),
    (("poetry", b"CP", "--directory --project", 0), Some("run")),
    (("uv", UV_LETTERS, UV_NAMES, 0), Some("run")),
    (("uvx", UV_LETTERS, UV_NAMES, 0), None),
];

const UV_LETTERS: &[u8] = b"CPbcfipw";

const UV_NAMES: &str = "--allow-insecure-host --build-constraints --cache-dir --color --config-file --config-setting \
    --constraints --default-index --directory --env-file --exclude-newer --extra --extra-index-url --find-links --fork-strategy \
    --from --group --index --index-strategy --index-url --keyring-provider --link-mode --no-binary-package --no-build-package \
    --no-extra --no-group --only-group --overrides --package --prerelease --project --python --python-platform \
    --refresh-package --reinstall-package --resolution --upgrade-package --with --with-editable --with-requirements";

/// Options of bwrap(1) with two values; with none are those below, and `--unshare-...`; `--overlay` has three, all others one.
const BWRAP_TWO: [&str; 14] = [
    "--bind",
    "--bind-data",
    "--bind-fd",
    "--bind-try",
    "--chmod",
    "--dev-bind",
    "--dev-bind-try",
    "--file",
    "--ro-bind",
    "--ro-bind-data",
    "--ro-bind-fd",
    "--ro-bind-try",
    "--setenv",
    "--symlink",
];
const BWRAP_NONE: [&str; 7] = [
    "--as-pid-1",
    "--assert-userns-disabled",
    "--clearenv",
    "--die-with-parent",
    "--disable-userns",
    "--new-session",
    "--share-net",
];

/// Whether a program of this name only runs others.
pub fn is_wrapper(name: &str) -> bool {
    WRAPPERS.iter().any(|(wrapper, ..)| *wrapper == name)
        || WRAPPERS_WITH_DASHES.contains(&name)
        || has_other_root(name)
}

/// Whether a program of this name runs others in another root directory.
pub fn has_other_root(name: &str) -> bool {
    matches!(name, "bwrap" | "chroot" | "flatpak" | "snap")
}

/// The words of the command that a wrapper of this name runs where it is itself. `words` begin with the wrapper.
pub fn wrapped<'a, W: AsRef<OsStr>>(name: &str, words: &'a [W]) -> Option<&'a [W]> {
    if WRAPPERS_WITH_DASHES.contains(&name) {
        let dashes = words.iter().position(|word| word.as_ref() == "--")?;
        return words.get(dashes + 1..).filter(|words| !words.is_empty());
    }
    let wrapper = WRAPPERS.iter().find(|(wrapper, ..)| *wrapper == name)?;
    let command = after_own(wrapper, words.get(1..)?)?;
    let mut own = words[..words.len() - command.len()].iter();
    // Without it systemd runs the command, elsewhere.
    if name == "systemd-run" && !own.any(|word| word.as_ref() == "--scope") {
        return None;
    }
    // env(1) and sudo(8) set variables.
    let at = command.iter().position(|word| !is_assignment(word))?;
    Some(&command[at..])
}

/// Whether it says what a variable is to be.
fn is_assignment(word: &impl AsRef<OsStr>) -> bool {
    let word = word.as_ref().as_bytes();
    let name = word.split(|&b| b == b'=').next().unwrap_or_default();
    name.len() < word.len() && !name.contains(&b'/')
}

/// What an application of a package system is known by, which this program runs in another root directory: how, and its name there.
/// `/snap/bin/x` is a link to `snap`.
pub fn packaged(name: &str, words: &[String]) -> Option<String> {
    let called = words.first()?.rsplit('/').next()?;
    let (own, application) = match name {
        "flatpak" => (&FLATPAK, None),
        "snap" if called == "snap" => (&SNAP, None),
        "snap" => (&SNAP, Some(called)),
        _ => return None,
    };
    let run = || after_own(own, words.get(2..)?)?.first().map(String::as_str);
    let is_run = words.get(1).is_some_and(|word| word == "run");
    let application = application.or_else(|| is_run.then(run)?)?;
    Some(format!("{name} run {application}"))
}

/// The words of the command that a wrapper of this name runs in another root directory, after those that name that, as
/// far as they do.
pub fn in_other_root<'a>(name: &str, words: &'a [String]) -> Option<(String, &'a [String])> {
    let rest = words.get(1..)?;
    match name {
        "bwrap" => Some((name.into(), after_bwrap(rest)?)),
        "chroot" => {
            let command = after_own(&CHROOT, rest)?;
            let root = rest.len().checked_sub(command.len() + 1)?;
            Some((format!("chroot {}", rest[root]), command))
        }
        _ => None,
    }
}

/// Whether a program of this name may run others where only it finds them.
pub fn is_runner(name: &str) -> bool {
    RUNNERS.iter().any(|((runner, ..), _)| *runner == name)
}

/// The words of the command that such a program is told to run, after its own name and the word that tells it to.
pub fn by_runner<'a>(name: &str, words: &'a [String]) -> Option<(String, &'a [String])> {
    let (own, told) = RUNNERS.iter().find(|((runner, ..), _)| *runner == name)?;
    let mut rest = words.get(1..)?;
    let mut by = name.to_owned();
    if let Some(told) = told {
        rest = rest.strip_prefix(&[(*told).to_owned()])?;
        by = format!("{name} {told}");
    }
    Some((by, after_own(own, rest)?))
}

/// The code that a shell, or a program that hands it to one, is given by these words, which begin with itself, and the
/// code's parameters from `$0` on.
pub fn code<'a, W: AsRef<OsStr>>(name: &str, words: &'a [W]) -> Option<(&'a OsStr, &'a [W])> {
    if is_shell(name) {
        return shell::code(words);
    }
    let runner = CODE_RUNNERS.iter().find(|(runner, ..)| *runner == name)?;
    Some((handed_code(runner, words.get(1..)?)?, &[]))
}

/// The command that such code is, where it is one and nothing else.
pub fn coded_command<W: AsRef<OsStr>>(name: &str, words: &[W]) -> Option<SimpleCommand> {
    let (code, parameters) = code(name, words)?;
    let is_read = has_posix_syntax(name) || !is_shell(name);
    is_read.then(|| simple_command(code, parameters))?
}

fn handed_code<'a, W: AsRef<OsStr>>(
    &(_, letters, names, _): &Wrapper,
    mut words: &'a [W],
) -> Option<&'a OsStr> {
    loop {
        let (word, rest) = words.split_first()?;
        let next = || rest.first().map(AsRef::as_ref);
        let takes_next = match word.as_ref().as_bytes() {
            b"--" => return None,
            b"--command" | b"--session-command" => return next(),
            [b'-', b'-', name @ ..] => {
                let value = [&b"command="[..], b"session-command="];
                let value = value.iter().find_map(|option| name.strip_prefix(*option));
                if let Some(value) = value {
                    return Some(OsStr::from_bytes(value));
                }
                names.split(' ').any(|name| word.as_ref() == name)
            }
            [b'-', options @ ..] => match options.iter().position(|l| letters.contains(l)) {
                Some(at) if options[at] == b'c' => {
                    let value = &options[at + 1..];
                    let joined = (!value.is_empty()).then(|| OsStr::from_bytes(value));
                    return joined.or_else(next);
                }
                valued => valued.is_some_and(|at| at + 1 == options.len()),
            },
            _ => false,
        };
        words = rest.get(usize::from(takes_next)..)?;
    }
}

fn after_own<'a, W: AsRef<OsStr>>(
    &(_, letters, names, operands): &Wrapper,
    mut words: &'a [W],
) -> Option<&'a [W]> {
    loop {
        let word = words.first()?.as_ref().as_bytes();
        let takes_next = match word {
            b"--" => {
                words = &words[1..];
                break;
            }
            [b'-', b'-', ..] => names.split(' ').any(|name| name.as_bytes() == word),
            // What follows the first letter that takes a value is that value.
            [b'-', options @ ..] => {
                let valued = options.iter().position(|letter| letters.contains(letter));
                valued.is_some_and(|at| at + 1 == options.len())
            }
            _ => break,
        };
        words = words.get(1 + usize::from(takes_next)..)?;
    }
    words.get(operands..).filter(|command| !command.is_empty())
}

fn after_bwrap(mut words: &[String]) -> Option<&[String]> {
    loop {
        let values = match words.first()?.as_str() {
            "--" => return words.get(1..).filter(|command| !command.is_empty()),
            option if !option.starts_with("--") => return Some(words),
            option if BWRAP_TWO.contains(&option) => 2,
            option if BWRAP_NONE.contains(&option) || option.starts_with("--unshare-") => 0,
            "--overlay" => 3,
            _ => 1,
        };
        words = words.get(1 + values..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapper_runs_what_follows_its_own_words() {
        for (line, command) in [
            ("nice gimp -n 5", Some("gimp -n 5")),
            ("nice -n 5 gimp", Some("gimp")),
            ("nice -n5 gimp", Some("gimp")),
            ("nice -5 --adjustment=3 -- gimp", Some("gimp")),
            ("nice --adjustment 5 gimp", Some("gimp")),
            ("timeout 10 gimp x", Some("gimp x")),
            ("timeout -k 5 -sKILL --foreground 10 gimp", Some("gimp")),
            ("setsid -fw gimp", Some("gimp")),
            ("stdbuf -oL -e 0 gimp", Some("gimp")),
            ("ionice -c 3 -t gimp", Some("gimp")),
            ("ionice -c2 -n0 gimp", Some("gimp")),
            ("taskset -c 0,1 gimp", Some("gimp")),
            ("chrt --batch 0 gimp", Some("gimp")),
            ("nohup gimp", Some("gimp")),
            ("firejail --private --profile=/x gimp x", Some("gimp x")),
            ("firejail -- gimp", Some("gimp")),
            ("time -vf %e gimp", Some("gimp")),
            ("sudo -nu x A=b C= gimp D=e", Some("gimp D=e")),
            ("sudo --user x -- /opt/a=b/gimp", Some("/opt/a=b/gimp")),
            ("sudo -i", None),
            ("sudo A=b", None),
            ("doas -u x gimp", Some("gimp")),
            ("pkexec --user x gimp", Some("gimp")),
            (
                "setpriv --reuid 9 --regid=9 --init-groups gimp",
                Some("gimp"),
            ),
            ("setpriv --dump", None),
            ("dbus-run-session -- gimp", Some("gimp")),
            ("dbus-launch --exit-with-session gimp", Some("gimp")),
            ("numactl -C 0 -lm1 --preferred=0 gimp", Some("gimp")),
            ("prlimit --nofile=99:99 gimp", Some("gimp")),
            ("prlimit --pid 7", None),
            ("systemd-inhibit --what idle --why=x gimp", Some("gimp")),
            (
                "systemd-run --user --scope -qp MemoryMax=1G --slice x gimp",
                Some("gimp"),
            ),
            ("systemd-run --user gimp --scope", None),
            ("xvfb-run -a -s x --wait=1 gimp -s", Some("gimp -s")),
            ("gamemoderun gimp", Some("gimp")),
            ("mangohud --dlsym gimp", Some("gimp")),
            ("prime-run gimp", Some("gimp")),
            ("torsocks -i gimp", Some("gimp")),
            ("choom -n 500 -- gimp", Some("gimp")),
            ("env -u x --chdir / A=b C= gimp D=e", Some("gimp D=e")),
            ("env - A=b gimp", Some("gimp")),
            ("env A=b", None),
            ("fakeroot -s x gimp", Some("gimp")),
            ("flock -w 5 /run/x.lock gimp -w", Some("gimp -w")),
            ("flock 9", None),
            ("padsp -n x gimp", Some("gimp")),
            ("proxychains4 -qf x gimp", Some("gimp")),
            ("pw-jack -p 256 gimp", Some("gimp")),
            ("ssh-agent -a x gimp -D", Some("gimp -D")),
            ("strace -fo x -e trace=file gimp -o y", Some("gimp -o y")),
            ("strace -p 7", None),
            ("systemd-cat -t x gimp", Some("gimp")),
            ("uclampset -m 512 gimp", Some("gimp")),
            ("unshare --map-user 7 -nw / gimp", Some("gimp")),
            ("gamescope -W 1280 --backend sdl -- gimp x", Some("gimp x")),
            ("gamescope --help", None),
            ("uwsm app -s b -- gimp -- x", Some("gimp -- x")),
            ("uwsm-app --", None),
            ("timeout 10", None),
            ("timeout", None),
            ("nice -n", None),
            ("gimp x", None),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let found = wrapped(words[0], &words).map(|words| words.join(" "));
            assert_eq!(found.as_deref(), command, "{line}");
        }
    }

    #[test]
    fn code_is_handed_to_a_shell() {
        for (line, expected) in [
            ("sh|-c|git x", Some("git|x")),
            ("bash|-lc|exec \"$@\"|sh|git", Some("git")),
            ("sh|-c|git && x", None),
            ("fish|-c|git x", None),
            ("sh|git", None),
            ("script|-qc|git x|/dev/null", Some("git|x")),
            ("script|-q|/dev/null|-c|git x", Some("git|x")),
            ("script|-qegit|-O|-c|--command=git x", Some("git|x")),
            ("script|--log-out|-c|--command|git x", Some("git|x")),
            ("script|-cgit x", Some("git|x")),
            ("script|-q|--|-c|git", None),
            ("script|-c", None),
            ("script|x", None),
            ("su|-|user|-c|git x", Some("git|x")),
            ("su|-s|-c|--session-command=git", Some("git")),
            ("runuser|-u|-c|git", None),
            ("git|-c|x", None),
        ] {
            let words: Vec<&str> = line.split('|').collect();
            let found = coded_command(words[0], &words).map(|command| {
                let words = command.words.iter().map(|word| word.to_string_lossy());
                words.collect::<Vec<_>>().join("|")
            });
            assert_eq!(found.as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn who_has_another_root_directory_is_named_with_what_it_runs_there() {
        for (line, expected) in [
            (
                "chroot /srv/x /bin/app -v",
                Some("chroot /srv/x: /bin/app -v"),
            ),
            (
                "chroot --userspec=1:1 --groups 5 /srv/x app",
                Some("chroot /srv/x: app"),
            ),
            (
                "bwrap --ro-bind / / --unshare-pid --dev /dev -- /app/bin/x y",
                Some("bwrap: /app/bin/x y"),
            ),
            (
                "bwrap --args 30 --overlay a b c --clearenv x",
                Some("bwrap: x"),
            ),
            ("chroot /srv/x", None),
            ("bwrap --bind / /", None),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let found = in_other_root(&words[0], &words);
            let found = found.map(|(by, command)| format!("{by}: {}", command.join(" ")));
            assert_eq!(found.as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn what_a_runner_is_told_to_run_follows_its_options() {
        for (line, expected) in [
            ("uv run a.py b", Some("uv run: a.py b")),
            (
                "uv run --with x -p 3.12 --isolated -- a.py",
                Some("uv run: a.py"),
            ),
            ("uv run -m http.server", Some("uv run: http.server")),
            ("uv run", None),
            ("uv sync run", None),
            ("uvx --from x ruff check", Some("uvx: ruff check")),
            ("poetry run -C /x black .", Some("poetry run: black .")),
            ("poetry install", None),
            ("npx -y eslint .", Some("npx: eslint .")),
            ("bundle exec rake", Some("bundle exec: rake")),
            ("gtk-launch org.x.Y", Some("gtk-launch: org.x.Y")),
            ("gimp run x", None),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let found = by_runner(&words[0], &words);
            let found = found.map(|(by, command)| format!("{by}: {}", command.join(" ")));
            assert_eq!(found.as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn what_a_package_system_runs_is_named_by_it() {
        for (program, line, expected) in [
            (
                "flatpak",
                "flatpak run --branch=stable org.x.Y f",
                Some("flatpak run org.x.Y"),
            ),
            (
                "flatpak",
                "flatpak run --command sh org.x.Y",
                Some("flatpak run org.x.Y"),
            ),
            ("flatpak", "flatpak list", None),
            ("flatpak", "flatpak run", None),
            ("flatpak", "flatpak", None),
            ("snap", "snap run -r 5 x.y f", Some("snap run x.y")),
            (
                "snap",
                "/usr/bin/snap run --command=sh x",
                Some("snap run x"),
            ),
            ("snap", "snap list", None),
            ("snap", "snap", None),
            ("snap", "/snap/bin/x f", Some("snap run x")),
            ("snap", "x run f", Some("snap run x")),
            ("gimp", "gimp run x", None),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(packaged(program, &words).as_deref(), expected, "{line}");
        }
    }
}
