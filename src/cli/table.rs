//! Tables as kubectl prints them: columns padded with blanks, no lines.
//!
//! Widths are those that a terminal shows, so that wide characters and styles
//! do not shift a column. On a terminal the last column is broken between words
//! where it does not fit; elsewhere a row is one line. Nothing is cut: what does
//! not fit is often the cause that somebody looks for.

use anstyle::Style;
use unicode_width::UnicodeWidthStr as _;

use super::{CliError, HEADING, Streams, clean};

/// Blanks between two columns.
const GAP: usize = 3;
/// Fewest columns that a text is broken into.
const NARROW: usize = 40;
/// Blanks before a text that has lines of its own.
const INDENT: usize = 4;

/// One cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A cell in a style. What would break the line is shown as a blank.
    pub fn new(style: Style, text: impl Into<String>) -> Self {
        let text: String = text.into();
        Self {
            text: clean(&text),
            style,
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(Style::new(), text)
    }
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these headings.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        let headings = headings.iter().map(|text| Cell::new(HEADING, *text));
        Self {
            rows: vec![headings.collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Writes it.
    ///
    /// # Errors
    /// The answer cannot be written.
    pub fn print(&self, streams: &mut Streams<'_>) -> Result<(), CliError> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width_of = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| cell.text.width())
                .max()
                .unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width_of).collect();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            let mut used = 0;
            let Some((last, others)) = row.split_last() else {
                continue;
            };
            for (cell, width) in others.iter().zip(&widths) {
                let pad = " ".repeat(width + GAP - cell.text.width());
                line.push_str(&format!("{}{}{:#}{pad}", cell.style, cell.text, cell.style));
                used += width + GAP;
            }
            let mut lines = match streams.width {
                Some(width) if index > 0 => fold(&last.text, used, width),
                _ => vec![last.text.clone()],
            }
            .into_iter();
            if let Some(text) = lines.next() {
                line.push_str(&format!("{}{text}{:#}", last.style, last.style));
            }
            writeln!(streams.out, "{}", line.trim_end())?;
            for text in lines {
                writeln!(streams.out, "{}{text}{:#}", last.style, last.style)?;
            }
        }
        Ok(())
    }
}

/// The text of a last column that begins after `used` columns of a terminal:
/// the first line, and those that follow with what stands before them.
fn fold(text: &str, used: usize, width: usize) -> Vec<String> {
    let left = width.saturating_sub(used);
    if text.width() <= left {
        return vec![text.to_owned()];
    }
    if left >= NARROW {
        let indent = " ".repeat(used);
        let lines = wrap(text, left).into_iter().enumerate();
        let indented = lines.map(|(at, line)| match at {
            0 => line,
            _ => format!("{indent}{line}"),
        });
        return indented.collect();
    }
    let indent = " ".repeat(INDENT);
    let lines = wrap(text, width.saturating_sub(INDENT)).into_iter();
    let indented = lines.map(|line| format!("{indent}{line}"));
    std::iter::once(String::new()).chain(indented).collect()
}

/// Text in lines of at most `width` columns, broken between words. A word that
/// is longer has a line of its own.
#[must_use]
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let long = word.width();
        match lines.last_mut() {
            Some(line) if used == 0 || used + 1 + long <= width => {
                if used > 0 {
                    line.push(' ');
                    used += 1;
                }
                line.push_str(word);
                used += long;
            }
            _ => {
                lines.push(word.to_owned());
                used = long;
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::testing::printed;
    use super::*;
    use expect_test::expect;

    #[test]
    fn columns_stand_under_each_other_whatever_their_characters() {
        let mut table = Table::new(&["NAME", "RESULT", "MESSAGE"]);
        table.row([
            "shop".into(),
            Cell::new(super::super::GOOD, "ok"),
            "".into(),
        ]);
        table.row([
            "店舗".into(),
            "RolledBack".into(),
            "two\nlines and more".into(),
        ]);
        let text = printed(None, |streams| table.print(streams).unwrap());
        expect![[r#"
            NAME   RESULT       MESSAGE
            shop   ok
            店舗   RolledBack   two lines and more
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn a_terminal_shows_long_texts_on_several_lines() {
        let mut table = Table::new(&["NAME", "MESSAGE"]);
        table.row([
            "shop".into(),
            "a cause that is too long for the line by far, whatever is done".into(),
        ]);
        let wide = |width| printed(Some(width), |streams| table.print(streams).unwrap());
        expect![[r#"
            NAME   MESSAGE
            shop   a cause that is too long for the line by
                   far, whatever is done
        "#]]
        .assert_eq(&wide(48));
        expect![[r#"
            NAME   MESSAGE
            shop
                a cause that is too long
                for the line by far,
                whatever is done
        "#]]
        .assert_eq(&wide(30));
    }

    #[test]
    fn words_are_not_broken() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(
            wrap("a incomprehensible b", 4),
            ["a", "incomprehensible", "b"]
        );
        assert_eq!(wrap("", 4), [""]);
    }
}
