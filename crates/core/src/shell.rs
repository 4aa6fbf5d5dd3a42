//! What a shell is given by `-c`, as in `sh -c 'exec gimp -n "$1"' sh file`: the code, and the simple command that it
//! is, if it is one (POSIX.1-2017, XCU 2.9.1).
//!
//! Nothing is expanded. So the words of a command are known up to the first one that the shell would make another of;
//! and what holds more than such a command, or has the shell itself do something, is none.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Whether a program of this name is a shell.
pub fn is_shell(name: &str) -> bool {
    has_posix_syntax(name) || matches!(name, "fish" | "csh" | "tcsh")
}

/// Whether it is one that reads code as POSIX has it.
pub fn has_posix_syntax(name: &str) -> bool {
    matches!(
        name,
        "bash" | "dash" | "sh" | "ash" | "hush" | "zsh" | "ksh" | "mksh" | "busybox"
    )
}

/// The code that a shell is given by these words, which begin with itself, and its parameters from `$0` on.
pub fn code<W: AsRef<OsStr>>(words: &[W]) -> Option<(&OsStr, &[W])> {
    let mut rest = words.get(1..)?;
    let mut is_given = false;
    loop {
        let values = match rest.first()?.as_ref().as_bytes() {
            b"-" | b"--" => {
                rest = &rest[1..];
                break;
            }
            b"--rcfile" | b"--init-file" => 1,
            [b'-', b'-', ..] => 0,
            [sign @ (b'-' | b'+'), letters @ ..] => {
                is_given |= *sign == b'-' && letters.contains(&b'c');
                letters.iter().filter(|l| b"oO".contains(l)).count()
            }
            _ => break,
        };
        rest = rest.get(1 + values..)?;
    }
    let (code, parameters) = rest.split_first()?;
    is_given.then_some((code.as_ref(), parameters))
}

/// Most bytes of code that it is told by: fewer than are read of a process's words.
const DIGEST_BYTES_MAX: usize = 4_096;

/// What tells code from other code: it need not resist anybody, only differ, and be the same after a restart (FNV-1a).
pub fn digest(code: &OsStr) -> u64 {
    let bytes = code.as_bytes().iter().take(DIGEST_BYTES_MAX);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A command that is all that a shell's code does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimpleCommand {
    /// Its words, before the first that the shell expands. There is one at least.
    pub words: Vec<OsString>,
    /// Whether these are all.
    pub is_whole: bool,
}

/// The command that this code is, with these parameters from `$0` on; `None` where it does more, or something else, than
/// to run one other program.
pub fn simple_command<W: AsRef<OsStr>>(code: &OsStr, parameters: &[W]) -> Option<SimpleCommand> {
    let mut reader = Reader {
        rest: code.as_bytes(),
        parameters,
    };
    reader.skip(|byte| is_blank(byte) || byte == b'\n');
    let (mut words, mut is_target) = (Vec::new(), false);
    loop {
        match (reader.token()?, is_target) {
            (Token::End, false) => break,
            (Token::Redirection, false) => is_target = true,
            (Token::Words(_), true) => is_target = false,
            (Token::Words(found), false) => words.extend(found),
            // The target is missing.
            (Token::End | Token::Redirection, true) => return None,
        }
    }
    let begin = words.iter().position(|word| !word.is_assignment())?;
    let (assignments, mut command) = words.split_at(begin);
    // It would be looked for elsewhere.
    if assignments
        .iter()
        .any(|word| word.text.starts_with(b"PATH="))
    {
        return None;
    }
    let first = &command[0].text[..];
    if first == b"exec" {
        command = &command[1..];
        if command.first()?.text.starts_with(b"-") {
            return None;
        }
    } else if is_shells_own(first) {
        return None;
    }
    let known = command.iter().take_while(|word| word.is_known);
    let known: Vec<_> = known
        .map(|word| OsString::from_vec(word.text.clone()))
        .collect();
    (!known.first()?.is_empty()).then_some(SimpleCommand {
        is_whole: known.len() == command.len(),
        words: known,
    })
}

/// Whether the shell does it by itself: its reserved words, and what is built into it.
fn is_shells_own(word: &[u8]) -> bool {
    const OWN: &str = "! { } [[ case coproc do done elif else esac fi for foreach function if in repeat select then until while \
        . : [ alias autoload bg bind break builtin caller cd command compgen complete continue declare dirs disown echo emulate \
        enable eval exit export false fc fg getopts hash help history jobs kill let local logout mapfile nocorrect noglob popd \
        print printf pushd pwd read readarray readonly return set shift shopt source suspend test times trap true type typeset \
        ulimit umask unalias unset wait whence";
    OWN.split_ascii_whitespace()
        .any(|own| own.as_bytes() == word)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn ends_word(byte: u8) -> bool {
    is_blank(byte) || matches!(byte, b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>')
}

fn is_of_name(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

/// A word as the shell would have it, but for expansions.
#[derive(Debug)]
struct Word {
    text: Vec<u8>,
    /// Where the first of it is quoted.
    quoted_from: Option<usize>,
    /// Whether nothing of it is expanded.
    is_known: bool,
}

impl Word {
    fn new() -> Self {
        Self {
            text: Vec::new(),
            quoted_from: None,
            is_known: true,
        }
    }

    /// One that a parameter holds.
    fn given(text: &OsStr) -> Self {
        Self {
            text: text.as_bytes().to_vec(),
            quoted_from: Some(0),
            is_known: true,
        }
    }

    fn begin_quote(&mut self) {
        self.quoted_from.get_or_insert(self.text.len());
    }

    fn plain(&self) -> &[u8] {
        &self.text[..self.quoted_from.unwrap_or(self.text.len())]
    }

    /// Whether it says what a variable is to be, where a command has not begun.
    fn is_assignment(&self) -> bool {
        let plain = self.plain();
        let name = plain.iter().position(|&byte| byte == b'=');
        name.is_some_and(|end| {
            let name = &plain[..end];
            name.iter().all(|&byte| is_of_name(byte))
                && name.first().is_some_and(|byte| !byte.is_ascii_digit())
        })
    }

    /// Whether it names the descriptor of a redirection that follows it at once.
    fn is_descriptor(&self) -> bool {
        self.quoted_from.is_none() && self.text.iter().all(u8::is_ascii_digit)
    }
}

enum Token {
    /// One word, or those of `"$@"`.
    Words(Vec<Word>),
    /// Its target follows.
    Redirection,
    End,
}

/// Reads code by its tokens. What it gives is `None` where the code is no simple command.
struct Reader<'a, W> {
    rest: &'a [u8],
    parameters: &'a [W],
}

impl<W: AsRef<OsStr>> Reader<'_, W> {
    fn skip(&mut self, is_skipped: impl Fn(u8) -> bool) {
        let at = self.rest.iter().position(|&byte| !is_skipped(byte));
        self.rest = &self.rest[at.unwrap_or(self.rest.len())..];
    }

    fn token(&mut self) -> Option<Token> {
        self.skip(is_blank);
        while let Some(rest) = self.rest.strip_prefix(b"\\\n") {
            self.rest = rest;
            self.skip(is_blank);
        }
        match self.rest {
            [] => Some(Token::End),
            [b'\n' | b';', rest @ ..] => {
                let is_end = rest.iter().all(|&byte| is_blank(byte) || byte == b'\n');
                is_end.then_some(Token::End)
            }
            [b'<' | b'>', ..] => self.redirection(),
            // A comment hides what follows it in its line only.
            [b'&' | b'|' | b'(' | b')' | b'#', ..] => None,
            _ => self.words(),
        }
    }

    /// `<`, `>` and their like; documents that follow are more than a line.
    fn redirection(&mut self) -> Option<Token> {
        let len = match self.rest {
            [b'<', b'<', ..] => return None,
            [b'<', b'&' | b'>', ..] | [b'>', b'>' | b'|' | b'&', ..] => 2,
            _ => 1,
        };
        self.rest = &self.rest[len..];
        Some(Token::Redirection)
    }

    fn words(&mut self) -> Option<Token> {
        if let Some(words) = self.parameter_words() {
            return Some(Token::Words(words));
        }
        let word = self.word()?;
        match self.rest.first() {
            Some(b'<' | b'>') if word.is_descriptor() => self.redirection(),
            _ => Some(Token::Words(vec![word])),
        }
    }

    /// What a word stands for that is a parameter, or all of them, and nothing else: `"$1"`, `"$@"`.
    fn parameter_words(&mut self) -> Option<Vec<Word>> {
        let [b'"', b'$', which, b'"', rest @ ..] = self.rest else {
            return None;
        };
        if rest.first().is_some_and(|&byte| !ends_word(byte)) {
            return None;
        }
        let values = match which {
            b'@' => self.parameters.get(1..).unwrap_or_default(),
            b'0'..=b'9' => std::slice::from_ref(self.parameters.get(usize::from(which - b'0'))?),
            _ => return None,
        };
        self.rest = rest;
        let values = values.iter().map(|value| Word::given(value.as_ref()));
        Some(values.collect())
    }

    fn word(&mut self) -> Option<Word> {
        let mut word = Word::new();
        while let [byte, rest @ ..] = self.rest {
            match byte {
                &byte if ends_word(byte) => break,
                b'\'' => {
                    word.begin_quote();
                    let end = rest.iter().position(|&byte| byte == b'\'')?;
                    word.text.extend_from_slice(&rest[..end]);
                    self.rest = &rest[end + 1..];
                    continue;
                }
                b'"' => {
                    word.begin_quote();
                    self.rest = rest;
                    self.double_quoted(&mut word)?;
                    continue;
                }
                b'\\' => {
                    // One at the end means nothing, one before the line's end that it goes on.
                    let (&escaped, rest) = rest.split_first()?;
                    if escaped != b'\n' {
                        word.begin_quote();
                        word.text.push(escaped);
                    }
                    self.rest = rest;
                    continue;
                }
                // Code within the word.
                b'`' => return None,
                // Quotes of bash(1)'s own.
                b'$' if matches!(rest, [b'\'' | b'"', ..]) => return None,
                b'$' => word.is_known &= !is_expanded(rest)?,
                b'*' | b'?' | b'[' | b'{' => word.is_known = false,
                b'~' => word.is_known &= !word.text.is_empty(),
                _ => {}
            }
            word.text.push(*byte);
            self.rest = rest;
        }
        Some(word)
    }

    /// What is between double quotes, of which the first was read.
    fn double_quoted(&mut self, word: &mut Word) -> Option<()> {
        loop {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            match (byte, rest) {
                (b'"', _) => return Some(()),
                (b'`', _) => return None,
                (b'\\', [b'\n', rest @ ..]) => {
                    self.rest = rest;
                    continue;
                }
                (b'\\', [escaped @ (b'$' | b'`' | b'"' | b'\\'), rest @ ..]) => {
                    word.text.push(*escaped);
                    self.rest = rest;
                    continue;
                }
                (b'$', _) => word.is_known &= !is_expanded(rest)?,
                _ => {}
            }
            word.text.push(byte);
        }
    }
}

/// Whether `$` before this is expanded; `None` where it may hold code.
fn is_expanded(after: &[u8]) -> Option<bool> {
    match after {
        [b'(' | b'[', ..] => None,
        [b'{', rest @ ..] => {
            let end = rest.iter().position(|&byte| !is_of_name(byte))?;
            (rest[end] == b'}').then_some(true)
        }
        [byte, ..] => Some(is_of_name(*byte) || b"@*#?-$!".contains(byte)),
        [] => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The words of the command that is code, with `|` between them, and `...` where more follow that are not known.
    fn command(code: &str, parameters: &[&str]) -> Option<String> {
        let found = simple_command(code.as_ref(), parameters)?;
        let words: Vec<_> = found.words.iter().map(|w| w.to_string_lossy()).collect();
        Some(words.join("|") + if found.is_whole { "" } else { "|..." })
    }

    #[test]
    fn code_that_is_one_simple_command_has_its_words() {
        for (code, expected) in [
            ("git status", Some("git|status")),
            (" \n\tgit\\\n  status ;\n \n", Some("git|status")),
            ("git status\n", Some("git|status")),
            ("exec git 'a  b'\"c $ d\"e\\ f", Some("git|a  bc $ de f")),
            ("LANG=C A_1='x y' B=$C exec git", Some("git")),
            ("A=b", None),
            ("A=b exec", None),
            ("'A'=b x", Some("A=b|x")),
            ("A\"\"=b x", Some("A=b|x")),
            ("1A=b x", Some("1A=b|x")),
            ("git A=b", Some("git|A=b")),
            ("PATH=/opt git", None),
            ("exec -a x git", None),
            ("exec test x", Some("test|x")),
            ("git '' \"\"", Some("git||")),
            ("'' git", None),
            ("", None),
            (" \n", None),
            (";", None),
            ("git \\\n x > \\\n y", Some("git|x")),
            (
                "gi\"t\" \"a\\\"\\$\\`\\\\\\b\\\nc\"",
                Some("git|a\"$`\\\\bc"),
            ),
            // Redirections.
            ("git log >/dev/null 2>&1 </x", Some("git|log")),
            (">x git 2>>y <>z >|w a2>b", Some("git|a2")),
            ("git '2'>x", Some("git|2")),
            ("git >", None),
            ("git > > x", None),
            ("git <<x\n", None),
            ("git <(x)", None),
            // Of what is expanded nothing is known, and of what follows.
            ("git log $HOME x", Some("git|log|...")),
            ("git log \"${HOME}/x\"", Some("git|log|...")),
            ("git *.c", Some("git|...")),
            ("git ~/x a~", Some("git|...")),
            ("git a~ {a,b}", Some("git|a~|...")),
            ("git a$ \"$\" '$a' \\$a", Some("git|a$|$|$a|$a")),
            ("$EDITOR x", None),
            ("~/bin/x", None),
            ("exec $EDITOR", None),
            // Code within.
            ("git $(date)", None),
            ("git \"$(date)\"", None),
            ("git `date`", None),
            ("git \"`date`\"", None),
            ("git ${x:-$(date)}", None),
            ("git ${x", None),
            ("git $'x' y", None),
            ("git $[1]", None),
            // More than a command.
            ("git a; git b", None),
            ("git a\ngit b", None),
            ("git a & ", None),
            ("git a && git b", None),
            ("git a | cat", None),
            ("git a;;", None),
            ("(git)", None),
            ("git() x", None),
            ("git # a", None),
            ("git a#b", Some("git|a#b")),
            ("git 'a;b' \"c|d\" e\\&f", Some("git|a;b|c|d|e&f")),
            ("git 'a", None),
            ("git \"a", None),
            ("git a\\", None),
            // The shell's own.
            ("if x", None),
            ("! git", None),
            ("{ git", None),
            ("cd /x", None),
            (". /x", None),
            ("[ -e x ]", None),
            ("eval git", None),
            (":", None),
            ("./x.sh a", Some("./x.sh|a")),
            ("nice git", Some("nice|git")),
        ] {
            assert_eq!(command(code, &[]).as_deref(), expected, "{code}");
        }
    }

    #[test]
    fn parameters_are_put_where_they_are_named() {
        for (code, expected) in [
            ("exec \"$@\"", Some("git|a b")),
            ("\"$@\" >/dev/null", Some("git|a b")),
            ("nice \"$@\" -x", Some("nice|git|a b|-x")),
            ("exec \"$1\" \"$0\"", Some("git|sh")),
            ("exec \"$1\" \"$9\"", Some("git|...")),
            ("exec $@", None),
            ("exec \"$@\"x", None),
        ] {
            let found = command(code, &["sh", "git", "a b"]);
            assert_eq!(found.as_deref(), expected, "{code}");
        }
        for parameters in [&[][..], &["sh"], &["sh", "cd"], &["sh", ""]] {
            assert_eq!(command("\"$@\"", parameters), None, "{parameters:?}");
        }
        assert_eq!(command("\"$@\"", &["", "A=b"]).as_deref(), Some("A=b"));
    }

    #[test]
    fn a_shell_is_given_code_by_an_option() {
        for (line, expected) in [
            ("sh -c x a b", Some("x a b")),
            ("bash -lc x", Some("x")),
            ("bash -ic -- x", Some("x")),
            ("bash --norc -e -c x", Some("x")),
            ("bash --rcfile y -c x", Some("x")),
            ("bash -c -e x", Some("x")),
            ("bash -eo pipefail -c x", Some("x")),
            ("bash -euoc pipefail x", Some("x")),
            ("bash +e +O extglob -c x", Some("x")),
            ("sh x -c y", None),
            ("sh - x", None),
            ("sh -- -c x", None),
            ("sh +c x", None),
            ("sh -c", None),
            ("sh -o", None),
            ("sh", None),
            ("", None),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let found = code(&words).map(|(code, parameters)| {
                let code = code.to_str().expect("text");
                [&[code], parameters].concat().join(" ")
            });
            assert_eq!(found.as_deref(), expected, "{line}");
        }
        assert_eq!(code::<&str>(&[]), None);
    }

    /// The test vectors of FNV-1a, and code that differs in what is not looked at.
    #[test]
    fn code_is_told_by_a_digest_of_its_beginning() {
        assert_eq!(digest("".as_ref()), 0xcbf2_9ce4_8422_2325);
        assert_eq!(digest("foobar".as_ref()), 0x8594_4171_f739_67e8);
        let long = "x".repeat(DIGEST_BYTES_MAX);
        let longer = long.clone() + "y";
        assert_eq!(digest(long.as_ref()), digest(longer.as_ref()));
    }

    /// Quoted in one of three ways, as a person would who knows only this.
    fn quoted(word: &[u8], way: u8) -> Vec<u8> {
        let escaped = |special: &'static [u8]| {
            word.iter().flat_map(move |&byte| {
                let escape = special.contains(&byte).then_some(b'\\');
                escape.into_iter().chain([byte])
            })
        };
        match way {
            0 => [&b"\""[..], &escaped(b"$`\"\\").collect::<Vec<_>>(), b"\""].concat(),
            // Whatever it is; a line's end cannot be escaped.
            1 if !word.is_empty() && !word.contains(&b'\n') => {
                word.iter().flat_map(|&byte| [b'\\', byte]).collect()
            }
            _ => {
                let parts: Vec<&[u8]> = word.split(|&byte| byte == b'\'').collect();
                [&b"'"[..], &parts.join(&b"'\\''"[..]), b"'"].concat()
            }
        }
    }

    /// Bytes of which most mean something to a shell.
    fn code_bytes() -> impl Strategy<Value = Vec<u8>> {
        let special = prop::sample::select(&b" \n;&|<>()$`\"'\\*?[{}~#=@1aA-"[..]);
        prop::collection::vec(prop_oneof![4 => special, 1 => any::<u8>()], 0..24)
    }

    proptest! {
        #[test]
        fn quoted_words_come_back(
            words in prop::collection::vec((code_bytes(), 0u8..3), 1..6),
            gap in "[ \t]{1,3}",
        ) {
            let code: Vec<Vec<u8>> = words.iter().map(|(word, way)| quoted(word, *way)).collect();
            let code = [b"exec /x ", &code.join(gap.as_bytes())[..]].concat();
            let found = simple_command::<&str>(OsStr::from_bytes(&code), &[]);
            let found = found.expect("a simple command");
            let given = words.iter().map(|(word, _)| OsStr::from_bytes(word));
            prop_assert!(found.is_whole && found.words[0] == "/x");
            prop_assert!(found.words[1..].iter().map(|w| &**w).eq(given));
        }

        #[test]
        fn any_bytes_are_read(
            code in code_bytes(),
            parameters in prop::collection::vec(code_bytes(), 0..3),
        ) {
            let parameters: Vec<&OsStr> =
                parameters.iter().map(|p| OsStr::from_bytes(p)).collect();
            let words = [&[OsStr::new("sh"), OsStr::new("-c"), OsStr::from_bytes(&code)], &parameters[..]].concat();
            let found = simple_command(OsStr::from_bytes(&code), &parameters);
            if let Some(found) = found {
                prop_assert!(!found.words[0].is_empty());
            }
            let _ = super::code(&parameters);
            let _ = super::code(&words);
        }
    }
}
