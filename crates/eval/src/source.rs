//! Where the numbers of a study come from.

use serde::Serialize;
use std::path::Path;

/// A record, as a reader finds it again.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Source {
    /// The name of its file, without the directory.
    pub file: String,
    /// When it was begun: date and time of day, in UTC.
    pub begun: String,
}

impl Source {
    /// The record in this file, begun so many seconds after 1970 began.
    pub fn of(path: &Path, time_unix_s: u64) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self {
            file: name.to_string_lossy().into_owned(),
            begun: utc(time_unix_s),
        }
    }

    /// Both in words.
    pub fn words(&self) -> String {
        format!("{}, begun {}", self.file, self.begun)
    }

    /// Both as rows of a table.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let rows = [("record", &self.file), ("begun", &self.begun)];
        rows.map(|(name, value)| vec![name.to_owned(), value.clone()])
            .into()
    }
}

/// So many seconds since 1970 as a date: `2026-11-23 10:25 UTC`.
fn utc(time_unix_s: u64) -> String {
    let (days, second) = (time_unix_s / 86_400, time_unix_s % 86_400);
    // Years are counted from March, so that the leap day is a year's last (Howard Hinnant, civil_from_days).
    let day_of_cycles = days + 719_468;
    let (cycle, day) = (day_of_cycles / 146_097, day_of_cycles % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = cycle * 400 + year + u64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year}-{month:02}-{day_of_month:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::{Source, utc};
    use std::path::Path;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (time_unix_s, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_800, "2000-03-01 00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59 UTC"),
            (1_795_395_835, "2026-11-23 01:03 UTC"),
        ] {
            assert_eq!(utc(time_unix_s), expected);
        }
    }

    #[test]
    fn a_record_is_named_without_its_directory() {
        let source = Source::of(Path::new("results/idle.jsonl.gz"), 60);
        assert_eq!(source.words(), "idle.jsonl.gz, begun 1970-01-01 00:01 UTC");
        assert_eq!(source.rows()[0], ["record", "idle.jsonl.gz"]);
    }
}
