//! Writes and reads records: the only place that does.

use super::resume::last_sessions;
use super::{FORMAT, Line, Resumable};
use crate::error::{Context, Error, Result};
use flate2::read::MultiGzDecoder;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;

/// The file that a run writes.
#[derive(Debug)]
pub struct Writer {
    file: File,
}

impl Writer {
    /// Makes a new file, or with `append` continues one; a last line that was cut off is dropped.
    pub fn open(path: &Path, append: bool) -> Result<Self> {
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(!append)
            .open(path)
            .context("open", path.display())?;
        if append {
            let whole = whole_lines_bytes(&file).context("read", path.display())?;
            file.set_len(whole).context("cut", path.display())?;
            file.seek(SeekFrom::End(0))
                .context("seek in", path.display())?;
        }
        Ok(Self { file })
    }

    /// Writes one line at once: an interruption leaves at most one line cut off.
    pub fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_string(line).context("encode", "record")?;
        text.push('\n');
        self.file
            .write_all(text.as_bytes())
            .context("write", "record")
    }
}

fn whole_lines_bytes(mut file: &File) -> std::io::Result<u64> {
    let mut whole = 0;
    let mut line = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::new(file);
    while reader.read_until(b'\n', &mut line)? > 0 {
        if line.ends_with(b"\n") {
            whole += line.len() as u64;
        }
        line.clear();
    }
    Ok(whole)
}

/// Reads a record that a run can go on with, each block's samples of one session.
pub fn read<L: Resumable>(path: &Path) -> Result<Vec<L>> {
    let mut lines: Vec<L> = read_values(path)?;
    check_first(&lines).map_err(|cause| Error::new("read", path.display(), cause))?;
    L::complete(&mut lines);
    Ok(last_sessions(lines))
}

/// Before there were several applications, a line did not say which one it is of: that of the run.
pub(super) fn name_application(lines: &mut [Line]) {
    let Some((Line::Run(run), switches)) = lines.split_first_mut() else {
        return;
    };
    let [only] = run.parameters.apps.as_slice() else {
        return;
    };
    for line in switches {
        let slot = match line {
            Line::Sample(switch) | Line::Warmup(switch) | Line::Stalls(switch) => &mut switch.slot,
            Line::Discarded(discarded) => &mut discarded.slot,
            Line::Run(_) | Line::Application(_) => continue,
        };
        if slot.app.is_empty() {
            slot.app.clone_from(only);
        }
    }
}

/// First bytes of what gzip has compressed.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Opens a record to read it: as it was written, or compressed by gzip, as records are kept.
///
/// # Errors
/// Where it cannot be opened or read.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    let file = File::open(path).context("open", path.display())?;
    let mut file = BufReader::new(file);
    let begin = file.fill_buf().context("read", path.display())?;
    Ok(match begin.starts_with(&GZIP_MAGIC) {
        true => Box::new(BufReader::new(MultiGzDecoder::new(file))),
        false => Box::new(file),
    })
}

/// Reads the lines of a record of any kind. A last line that was cut off is ignored; any other bad line is an error.
fn read_values<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let texts: Vec<String> = open(path)?
        .lines()
        .collect::<std::io::Result<_>>()
        .context("read", path.display())?;
    let values = parse(&texts).map_err(|(number, cause)| {
        Error::new("read", format!("{}:{number}", path.display()), cause)
    })?;
    if values.len() < texts.len() {
        eprintln!(
            "{}: its last line was cut off, and is left out",
            path.display()
        );
    }
    Ok(values)
}

/// The kind of a record's first line, which says what the record is of; nothing where there is none.
pub fn first_kind(path: &Path) -> Result<String> {
    let metadata = std::fs::metadata(path).context("open", path.display())?;
    if !metadata.is_file() {
        let cause = "it is no file: a record is read more than once, so that a pipe will not do";
        return Err(Error::new("read", path.display(), cause));
    }
    let mut first = String::new();
    open(path)?
        .read_line(&mut first)
        .context("read", path.display())?;
    let line: Option<serde_json::Value> = serde_json::from_str(&first).ok();
    let kind = line.as_ref().and_then(|line| line["kind"].as_str());
    Ok(kind.unwrap_or_default().to_owned())
}

fn parse<T: DeserializeOwned>(texts: &[String]) -> std::result::Result<Vec<T>, (usize, String)> {
    let mut lines = Vec::with_capacity(texts.len());
    for (i, text) in texts.iter().enumerate() {
        match serde_json::from_str(text) {
            Ok(line) => lines.push(line),
            Err(_) if i + 1 == texts.len() && i > 0 => {}
            Err(e) => return Err((i + 1, e.to_string())),
        }
    }
    Ok(lines)
}

fn check_first<L: Resumable>(lines: &[L]) -> std::result::Result<(), String> {
    match lines.first().and_then(L::format) {
        Some(FORMAT) => Ok(()),
        Some(format) => Err(format!("format {format}; this program reads {FORMAT}")),
        None => Err("the first line does not hold the circumstances of a run".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mode;
    use super::super::tests::{run, switch};
    use super::*;

    #[test]
    fn only_the_last_line_may_be_cut_off() {
        let first = serde_json::to_string(&Line::Run(Box::new(run(&[Mode::Off])))).unwrap();
        let sample =
            serde_json::to_string(&Line::Sample(Box::new(switch(0, Mode::Off, 1.0)))).unwrap();
        let cut = sample[..40].to_owned();
        let parse = parse::<Line>;
        let lines = parse(&[first.clone(), sample.clone(), cut.clone()]).unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            parse(&[first.clone(), cut, sample.clone()]).unwrap_err().0,
            2
        );
        assert!(check_first(&parse(&[sample]).unwrap()).is_err());
        let other = parse(&[first.replace("\"format\":1", "\"format\":9")]).unwrap();
        assert!(check_first(&other).unwrap_err().contains("format 9"));
    }

    #[test]
    fn a_compressed_record_is_read_as_it_was_written() {
        let lines = [
            Line::Run(Box::new(run(&[Mode::Off]))),
            Line::Sample(Box::new(switch(0, Mode::Off, 1.0))),
        ];
        let path =
            std::env::temp_dir().join(format!("prepage-record-{}.jsonl.gz", std::process::id()));
        let file = File::create(&path).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::best());
        for line in &lines {
            writeln!(encoder, "{}", serde_json::to_string(line).unwrap()).unwrap();
        }
        encoder.finish().unwrap();
        assert_eq!(first_kind(&path).unwrap(), "run");
        assert_eq!(read::<Line>(&path).unwrap(), lines);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn lines_that_name_no_application_are_of_the_runs_only_one() {
        let mut nameless = switch(0, Mode::Off, 1.0);
        nameless.slot.app.clear();
        let mut lines = vec![
            Line::Run(Box::new(run(&[Mode::Off]))),
            Line::Sample(Box::new(nameless)),
        ];
        name_application(&mut lines);
        assert_eq!(lines[1], Line::Sample(Box::new(switch(0, Mode::Off, 1.0))));
    }
}
