//! A table in plain text: names to the left, numbers to the right.

use std::fmt;

/// Rows under sections, with a column for each measurement.
pub(super) struct Table {
    columns: Vec<String>,
    rows: Vec<Row>,
}

enum Row {
    Section(String),
    Values(String, Vec<String>),
}

impl Table {
    pub(super) fn new(columns: impl Iterator<Item = String>) -> Self {
        Self {
            columns: columns.collect(),
            rows: Vec::new(),
        }
    }

    pub(super) fn section(&mut self, title: &str) {
        self.rows.push(Row::Section(title.to_owned()));
    }

    pub(super) fn row(&mut self, name: &str, values: impl Iterator<Item = String>) {
        self.rows
            .push(Row::Values(name.to_owned(), values.collect()));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.rows.iter().map(|row| match row {
            Row::Section(_) => 0,
            Row::Values(name, _) => name.chars().count() + 2,
        });
        let left = names.max().unwrap_or_default();
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, title)| {
                let cells = self.rows.iter().filter_map(|row| match row {
                    Row::Section(_) => None,
                    Row::Values(_, values) => values.get(index).map(|value| value.chars().count()),
                });
                cells
                    .chain([title.chars().count()])
                    .max()
                    .unwrap_or_default()
            })
            .collect();
        let line = |f: &mut fmt::Formatter<'_>, name: &str, values: &[String]| {
            write!(f, "{name:<left$}")?;
            for (value, width) in values.iter().zip(&widths) {
                write!(f, "  {value:>width$}")?;
            }
            writeln!(f)
        };
        line(f, "", &self.columns)?;
        for row in &self.rows {
            match row {
                Row::Section(title) => writeln!(f, "{title}")?,
                Row::Values(name, values) => line(f, &format!("  {name}"), values)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn numbers_stand_below_each_other() {
        let mut table = Table::new(["1 plan".to_owned(), "50 plans".to_owned()].into_iter());
        table.section("Writes");
        table.row("events", ["2".to_owned(), "12.5".to_owned()].into_iter());
        let text = table.to_string();
        assert_eq!(
            text,
            "          1 plan  50 plans\nWrites\n  events       2      12.5\n"
        );
    }
}
