//! Text in columns.

use prepage_core::identity::printable;
use std::borrow::Cow;

/// Sets rows in columns as wide as they need; the first row is the heading. Columns of numbers go to the right.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at| {
        rows.iter()
            .map(|row| cell(row, at).chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let is_number =
        |text: &str| text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let numeric = |at| rows.iter().skip(1).all(|row| is_number(&cell(row, at)));
    let numeric: Vec<bool> = (0..count).map(numeric).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, &width) in widths.iter().enumerate() {
            let value = cell(row, at);
            match numeric[at] {
                true => line += &format!("{value:>width$}  "),
                false => line += &format!("{value:<width$}  "),
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A cell, on one line: paths are chosen by whoever made the files.
fn cell(row: &[String], at: usize) -> Cow<'_, str> {
    printable(row.get(at).map_or("", String::as_str))
}

/// Columns of a terminal.
const TERMINAL_CHARS: usize = 80;

/// Where text that follows a mark begins.
const TEXT_AT: usize = 8;

/// A text in lines that fit a terminal, the first of them after a mark. A longer word has a line of its own.
pub fn wrapped(mark: &str, text: &str) -> String {
    let mut lines = format!("{mark:<TEXT_AT$}");
    let mut used = TEXT_AT;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > TEXT_AT && used + 1 + length > TERMINAL_CHARS {
            lines += &format!("\n{:TEXT_AT$}", "");
            used = TEXT_AT;
        }
        if used > TEXT_AT {
            lines.push(' ');
            used += 1;
        }
        lines += word;
        used += length;
    }
    lines.push('\n');
    lines
}

/// A row of columns.
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Bytes as people read them.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_to_the_right_and_words_to_the_left() {
        let rows = [row(["name", "n"]), row(["a", "100"]), row(["longer", "7"])];
        assert_eq!(columns(&rows), "name      n\na       100\nlonger    7\n");
    }

    #[test]
    fn what_is_wrapped_fits_a_terminal_and_keeps_its_words() {
        let text = "ü ab abc ".repeat(40) + &"x".repeat(90) + " end";
        let lines = wrapped("mark", &text);
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&lines)[1..], words(&text));
        let mut too_long = lines.lines().filter(|line| line.chars().count() > 80);
        assert!(
            too_long
                .next()
                .is_some_and(|line| line.trim() == "x".repeat(90))
        );
        assert_eq!(
            (too_long.next(), lines.ends_with("\n        end\n")),
            (None, true)
        );
    }
}
