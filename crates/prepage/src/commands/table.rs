//! Text in columns.

/// Sets rows in columns as wide as they need; the first row is the heading. Columns of numbers go to the right.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, at: usize| row.get(at).cloned().unwrap_or_default();
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
}
