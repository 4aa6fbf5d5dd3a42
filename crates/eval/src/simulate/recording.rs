//! Reads recorded switches: what `prepaged --record` wrote, or `prepage-eval run --switches` kept of it.

use crate::error::{Context, Error, Result};
use crate::record;
use prepage_core::extent::ExtentSet;
use prepage_core::identity::AppId;
use prepage_core::replay::RecordedSwitch;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};

/// No address space and no file has more pages: 64 bits of address, pages of 4 KiB.
const PAGE_NUMBER_MAX: u64 = 1 << 52;

/// The switches of each application, in the order of the files and of their lines.
///
/// # Errors
/// A file that cannot be read; the first line that holds no recorded switch, with file and line.
pub fn read(files: &[PathBuf]) -> Result<Vec<Vec<RecordedSwitch>>> {
    let mut apps: BTreeMap<AppId, Vec<RecordedSwitch>> = BTreeMap::new();
    for path in files {
        for switch in parse(record::open(path)?, path).map_err(|error| named(error, path))? {
            apps.entry(switch.app.clone()).or_default().push(switch);
        }
    }
    Ok(apps.into_values().collect())
}

/// The error of a file that is not what is wanted, where it is known what it is.
fn named(error: Error, path: &Path) -> Error {
    match record::first_kind(path) {
        Ok(kind) if !kind.is_empty() => Error::new(
            "read",
            path.display(),
            "it is a record of measurements; the switches of a run are kept by `prepage-eval run --switches FILE`",
        ),
        _ => error,
    }
}

/// The switches of a recording's text, in order; `path` is for errors.
///
/// # Errors
/// As of [`read`].
pub fn parse(text: impl BufRead, path: &Path) -> Result<Vec<RecordedSwitch>> {
    let numbered = text.lines().zip(1..);
    let switch = |(line, number): (std::io::Result<String>, usize)| {
        let place = || format!("{}:{number}", path.display());
        let line = line.context("read", place())?;
        let switch: RecordedSwitch = serde_json::from_str(&line).map_err(|error| {
            let (place, said) = (format!("{}:{}", place(), error.column()), error.to_string());
            // What the parser takes for the only line is not this one.
            let cause = said.split(" at line 1 ").next().unwrap_or_default();
            let hint = "a line is one switch, as prepaged --record writes it";
            Error::new("read", place, format!("{cause}; {hint}"))
        })?;
        check(&switch).map_err(|cause| Error::new("read", place(), cause))?;
        Ok(switch)
    };
    numbered.map(switch).collect()
}

fn check(switch: &RecordedSwitch) -> std::result::Result<(), String> {
    let anon = switch.anon.iter().flat_map(|anon| {
        let swapped = anon.swapped.iter();
        swapped.chain(std::iter::once(&anon.accessed))
    });
    let files = switch
        .files
        .iter()
        .flat_map(|file| [&file.accessed, &file.demanded, &file.unknown]);
    let end = |set: &ExtentSet| set.extents().last().map_or(0, |last| last.end());
    match anon.chain(files).map(end).max() {
        Some(page) if page > PAGE_NUMBER_MAX => Err(format!("there is no page {}", page - 1)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prepage_core::replay::synthetic::Synthetic;
    use std::io::Write;

    fn lines() -> Vec<String> {
        let synthetic = Synthetic {
            switches: 3,
            ..Synthetic::default()
        };
        let encode = |switch| serde_json::to_string(&switch).expect("encodable");
        synthetic.switches().map(encode).collect()
    }

    fn parsed(lines: &[String]) -> Result<Vec<RecordedSwitch>> {
        parse(lines.join("\n").as_bytes(), Path::new("r.jsonl"))
    }

    #[test]
    fn what_was_recorded_is_read_as_it_was() {
        let switches = parsed(&lines()).expect("well formed");
        let synthetic = Synthetic {
            switches: 3,
            ..Synthetic::default()
        };
        assert!(switches.into_iter().eq(synthetic.switches()));
    }

    #[test]
    fn compressed_or_not_recordings_are_read_and_records_of_measurements_are_named() {
        let name = |end: &str| format!("prepage-switches-{}.{end}", std::process::id());
        let at = |end: &str| std::env::temp_dir().join(name(end));
        let (plain, packed, record) = (at("jsonl"), at("jsonl.gz"), at("record.jsonl"));
        let text = lines().join("\n");
        std::fs::write(&plain, &text).expect("writable");
        let file = std::fs::File::create(&packed).expect("writable");
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).expect("writable");
        encoder.finish().expect("writable");
        std::fs::write(&record, "{\"kind\":\"run\",\"format\":1}\n").expect("writable");
        let of = |path: &PathBuf| read(std::slice::from_ref(path));
        assert_eq!(of(&plain).expect("plain"), of(&packed).expect("packed"));
        let said = of(&record).expect_err("no recording").to_string();
        assert!(said.contains("run --switches"), "{said}");
        for path in [plain, packed, record] {
            std::fs::remove_file(path).expect("own file");
        }
    }

    #[test]
    fn a_malformed_line_is_named() {
        for (broken, cause) in [
            ("", "EOF"),
            ("{}", "missing field `app`"),
            ("nonsense", "expected ident"),
            (
                r#"{"app":{"kind":"named","name":"x","owner":0},"anon":[],"files":3}"#,
                "invalid type",
            ),
            (
                r#"{"app":{"kind":"named","name":"x","owner":0},"files":[],"anon":[{"instance":
                {"pid":1,"start_ticks":1,"exec":1},"accessed":[{"start":1,"len":18446744073709551615}]}]}"#,
                "there is no page",
            ),
        ] {
            let mut lines = lines();
            lines[1] = broken.replace('\n', " ");
            let error = parsed(&lines).expect_err(broken).to_string();
            assert!(
                error.contains("r.jsonl:2:") && error.contains(cause),
                "{error}"
            );
            assert!(!error.contains("line 1"), "{error}");
        }
    }
}
