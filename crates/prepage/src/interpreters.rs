//! Programs that run what others wrote: an application is known by that.

use crate::identity::{ProcessFacts, base_name};
use prepage_core::shell::{digest, is_shell};
use prepage_core::wrappers;
use std::path::Path;

/// Programs that run others, one run by the other, that are followed. Words are whatever somebody wrote.
pub const STEPS_MAX: usize = 16;

/// A process that these words would run in the same directory.
pub fn run_by(process: &ProcessFacts, words: &[String]) -> ProcessFacts {
    ProcessFacts {
        exe: words.first().cloned(),
        arguments: words.to_vec(),
        ..process.clone()
    }
}

/// What a runner of this name is told to run by a process, and how, if it is one: `uv run /home/u/x.py`, `poetry run black`.
pub fn run_by_runner(process: &ProcessFacts, name: &str) -> Option<String> {
    let (by, command) = wrappers::by_runner(name, from_end(&process.arguments, name))?;
    let file = command.first()?;
    let script = script_of(&run_by(process, command), base_name(file));
    let is_path = file.contains('/') || Path::new(file).extension().is_some_and(|e| e == "py");
    let run = script.unwrap_or_else(|| match is_path {
        true => absolute(file, process),
        false => file.clone(),
    });
    Some(format!("{by} {run}"))
}

/// The words from the first on that ends so.
fn from_end<'a>(words: &'a [String], end: &str) -> &'a [String] {
    let at = words.iter().position(|word| word.ends_with(end));
    &words[at.unwrap_or(words.len())..]
}

/// Whether a program of this name is Wine's loader: `wine`, `wine64`, `wine64-preloader`, `wine-stable`.
fn is_wine(base: &str) -> bool {
    let ends = ["-preloader", "-stable", "-staging", "-development"];
    let stem = ends.iter().find_map(|end| base.strip_suffix(end));
    matches!(stem.unwrap_or(base), "wine" | "wine64")
}

/// What Wine runs by these words, the first of which is itself, or the program's path in Windows once that runs: `wine notepad` for
/// both, and for any path of `Notepad.exe`.
fn windows_program(words: &[String]) -> Option<String> {
    let is_path = |word: &&String| word.contains('\\');
    let running = words.first().filter(is_path);
    let program = running.or_else(|| words.get(1).filter(|word| !word.starts_with('-')))?;
    let name = program.rsplit(['\\', '/']).next()?.to_lowercase();
    let name = name.strip_suffix(".exe").unwrap_or(&name);
    (!name.is_empty()).then(|| format!("wine {name}"))
}

/// A program's name without its version.
fn stem_of(base: &str) -> &str {
    base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
}

/// Options of an interpreter: those that take the next argument as their value, and the one that a module follows.
type Options = (&'static [&'static str], Option<&'static str>);

/// Those of an interpreter of this name; Wine has none.
fn options(base: &str) -> Option<Options> {
    Some(match stem_of(base) {
        "python" | "pypy" => (&["-X", "-W", "--check-hash-based-pycs"], Some("-m")),
        "java" => (
            &[
                "-cp",
                "-classpath",
                "--class-path",
                "-p",
                "--module-path",
                "--add-modules",
                "--add-opens",
                "--add-exports",
                "--add-reads",
                "--patch-module",
                "--limit-modules",
                "--upgrade-module-path",
            ],
            Some("-m"),
        ),
        "perl" => (&["-I"], None),
        "ruby" => (&["-I", "-r", "-C"], None),
        "node" | "nodejs" => (&["-r", "--require", "--import", "--loader"], None),
        "php" => (&["-d", "-z", "-c"], None),
        "mono" | "mono-sgen" => (&["--config"], None),
        "octave" | "octave-cli" | "octave-gui" => (&["-p", "--path", "--exec-path"], None),
        // Erlang's machine is given what they were.
        "elixir" | "iex" | "beam.smp" => (
            &[
                "-pa", "-pr", "-pz", "-r", "--app", "--cookie", "--erl", "--name", "--sname",
            ],
            Some("-S"),
        ),
        "julia" => (&["-C", "-H", "-J", "-L", "-p", "-t"], Some("-m")),
        "deno" => (&["-c", "--config", "--import-map"], None),
        "bun" => (&["-c", "--config", "-r", "--preload"], None),
        "ocaml" | "ocamlrun" | "raku" | "rakudo" => (&["-I", "-M"], None),
        "racket" => (&["-C", "-G", "-I", "-L", "-S", "-W", "-l", "-p"], None),
        "sbcl" => (
            &["--control-stack-size", "--core", "--dynamic-space-size"],
            None,
        ),
        "swipl" => (&["-g", "-p", "-t", "-x"], None),
        "dotnet" | "electron" | "escript" | "expect" | "gjs" | "guile" | "lua" | "luajit" | "R"
        | "Rscript" | "wish" | "tclsh" => (&[], None),
        "fish" => (&["-C", "--init-command", "-o", "-d", "-D", "-f"], None),
        _ if is_shell(base) => (&["-o", "-O", "+O", "--rcfile", "--init-file"], None),
        _ => return None,
    })
}

/// Whether a program of this name may be named by what it interprets.
pub fn is_interpreter(base: &str) -> bool {
    is_wine(base) || options(base).is_some()
}

/// What this process, whose executable has this name, interprets: the path of a script, or how a module or a Windows program is called.
/// `None` where that is no interpreter, or what it runs has no name.
pub fn script_of(process: &ProcessFacts, base: &str) -> Option<String> {
    script_within(process, base, STEPS_MAX)
}

fn script_within(process: &ProcessFacts, base: &str, steps: usize) -> Option<String> {
    let left = steps.checked_sub(1)?;
    let arguments = process.arguments.get(1..)?;
    if is_wine(base) {
        return windows_program(&process.arguments);
    }
    let stem = stem_of(base);
    if stem == "busybox" && !matches!(called(process), "sh" | "ash" | "hush") {
        return None;
    }
    if stem == "beam.smp" {
        let given = from_end(arguments, "-extra");
        return script_within(&run_by(process, given), "elixir", left);
    }
    // Two names of one.
    let stem = if stem == "iex" { "elixir" } else { stem };
    let (valued, module) = options(base)?;
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        let is_python = matches!(stem, "python" | "pypy");
        let is_module = is_python && cluster(argument).ends_with('m');
        if let Some(option) = module.filter(|&option| option == argument || is_module) {
            return Some(format!("{stem} {option} {}", rest.next()?));
        }
        match argument {
            // Code from the command line or standard input has no path.
            "-" | "--eval" | "--print" => return None,
            options if gives_code(stem, cluster(options)) => return None,
            "eval" if stem == "deno" => return None,
            // What follows is the script's own.
            "--args" if stem == "R" => return None,
            "-jar" => return Some(absolute(rest.next()?, process)),
            "--" => {}
            file if stem == "R" && file.starts_with("--file=") => {
                return Some(absolute(&file["--file=".len()..], process));
            }
            "-f" if stem == "R" => return Some(absolute(rest.next()?, process)),
            option if valued.contains(&option) => drop(rest.next()),
            option if is_shell(base) && cluster(option).ends_with(['o', 'O']) => drop(rest.next()),
            option if option.starts_with('-') || option.starts_with('+') || option.is_empty() => {}
            word if is_own_word(stem, word) => {}
            // java's main class is a name, no path.
            class if stem == "java" => return Some(format!("java {class}")),
            // A descriptor is no name.
            script if script.starts_with("/dev/fd/") || script.starts_with("/proc/") => {
                return None;
            }
            script => {
                let script = absolute(script, process);
                let name = base_name(&script);
                // What is called as an interpreter is one: `wine`, `elixir` and version managers' shims, which are shells' scripts.
                let is_one = is_interpreter(name) && !is_shell(name);
                let words = from_end(arguments, name);
                let run = is_one.then(|| script_within(&run_by(process, words), name, left));
                return run.flatten().or(Some(script));
            }
        }
    }
    None
}

/// What the code is called that this process, whose executable has this name, is given for a shell by its command line:
/// it has no path, and may hold what is nobody else's business.
pub fn code_of(process: &ProcessFacts, base: &str) -> Option<String> {
    let name = match base {
        "busybox" => called(process),
        base => base,
    };
    let (code, _parameters) = wrappers::code(name, &process.arguments)?;
    Some(format!("{name} -c {:016x}", digest(code)))
}

/// Programs that are many by the name that they are called by.
const MULTI_CALL: [&str; 7] = [
    "busybox",
    "coreutils",
    "julialauncher",
    "mise",
    "rustup",
    "toybox",
    "volta-shim",
];

/// Whether a program of this name is one of many by its words.
pub fn is_multi_call(base: &str) -> bool {
    MULTI_CALL.contains(&base)
}

/// What such a program is by the name that it is called by, `rustup cargo`; by an interpreter's, as a version manager's shim is,
/// what that interprets.
pub fn called_as(process: &ProcessFacts, base: &str) -> Option<String> {
    // A login shell's begins with a dash.
    let name = called(process).trim_start_matches('-');
    if !is_multi_call(base) || name.is_empty() || name == base {
        return None;
    }
    let script = (!is_shell(name))
        .then(|| script_of(process, name))
        .flatten();
    script.or_else(|| Some(format!("{base} {name}")))
}

/// What it is called by: one program may be many, and a shell where it is called by a shell's name.
fn called(process: &ProcessFacts) -> &str {
    process.arguments.first().map_or("", |name| base_name(name))
}

/// Whether an interpreter takes an argument for a word of its own, and not for what it is to run: `exec` of `dotnet exec x.dll`, `run` of
/// `deno run x.ts`. Of R they all are.
fn is_own_word(stem: &str, word: &str) -> bool {
    const ENDS: [&str; 8] = [".js", ".ts", ".jsx", ".tsx", ".mjs", ".mts", ".cjs", ".cts"];
    match stem {
        "R" => true,
        "dotnet" => !word.ends_with(".dll"),
        "deno" | "bun" => !word.contains('/') && !ENDS.iter().any(|end| word.ends_with(end)),
        _ => false,
    }
}

/// The letters of an argument that stands for several options of one letter, as `-lc` does.
fn cluster(argument: &str) -> &str {
    let letters = argument.strip_prefix('-').unwrap_or("");
    let are_letters = letters.chars().all(|c| c.is_ascii_alphanumeric());
    if are_letters { letters } else { "" }
}

/// Whether one of these options of one letter says that code follows. What follows the first that takes a value is that value.
fn gives_code(stem: &str, options: &str) -> bool {
    let (code, valued) = match stem {
        "python" | "pypy" => ("c", "mXW"),
        "perl" => ("eE", "IMmxiCDFV"),
        "ruby" => ("e", "IrCEKTxiFW"),
        "node" | "nodejs" => ("ep", "rC"),
        "php" => ("rBRE", "dzcft"),
        "lua" | "luajit" | "guile" | "gjs" => ("ec", "l"),
        "bun" => ("ep", "r"),
        "elixir" => ("e", ""),
        "expect" => ("c", "df"),
        "julia" => ("eE", "CHJLpt"),
        "ocaml" | "racket" | "raku" | "rakudo" => ("e", "CGILMSWlp"),
        "R" | "Rscript" => ("e", ""),
        // With -s the script is standard input.
        _ if is_shell(stem) => ("cs", "oO"),
        _ => return false,
    };
    let before_value = options.split(|letter| valued.contains(letter)).next();
    before_value.is_some_and(|options| options.contains(|letter| code.contains(letter)))
}

/// A path as seen from the process's working directory, without `.` and `..`.
fn absolute(path: &str, process: &ProcessFacts) -> String {
    let whole = match (path.starts_with('/'), process.directory.as_deref()) {
        (false, Some(directory)) => format!("{directory}/{path}"),
        _ => path.to_owned(),
    };
    if !whole.starts_with('/') {
        return whole;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
