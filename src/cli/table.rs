//! Tables as kubectl prints them: columns padded with blanks, no lines.
//!
//! Widths are those that a terminal shows, so that wide characters and styles
//! do not shift a column. On a terminal the last column is cut at its edge;
//! elsewhere nothing is cut.

use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::{CliError, HEADING, Streams};

/// Blanks between two columns.
const GAP: usize = 3;

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
            text: text.replace(|c: char| c.is_control(), " "),
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
        for row in &self.rows {
            let mut line = String::new();
            let mut used = 0;
            for (column, cell) in row.iter().enumerate() {
                let is_last = column + 1 == row.len();
                let left = streams.width.map(|width| width.saturating_sub(used));
                let text = match left {
                    Some(left) if is_last => cut(&cell.text, left),
                    _ => cell.text.clone(),
                };
                line.push_str(&format!("{}{text}{:#}", cell.style, cell.style));
                if !is_last {
                    let pad = widths[column] + GAP - text.width();
                    line.push_str(&" ".repeat(pad));
                    used += widths[column] + GAP;
                }
            }
            writeln!(streams.out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Text of at most `width` columns; what is cut off shows.
#[must_use]
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or_default();
        if used > width {
            break;
        }
        cut.push(c);
    }
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn printed(width: Option<usize>) -> String {
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
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut streams = Streams {
            out: &mut out,
            err: &mut err,
            width,
            height: None,
        };
        table.print(&mut streams).unwrap();
        anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string()
    }

    #[test]
    fn columns_stand_under_each_other_whatever_their_characters() {
        expect![[r#"
            NAME   RESULT       MESSAGE
            shop   ok
            店舗   RolledBack   two lines and more
        "#]]
        .assert_eq(&printed(None));
    }

    #[test]
    fn a_terminal_shows_as_much_as_fits_and_that_there_is_more() {
        expect![[r#"
            NAME   RESULT       MESSAGE
            shop   ok
            店舗   RolledBack   two lin…
        "#]]
        .assert_eq(&printed(Some(28)));
    }
}
