//! Lines for a terminal: styled pieces of known width, cut or wrapped.
//!
//! What comes from a cluster may hold anything, so control characters never get
//! from here to a terminal. A style only repeats what the words say.

use std::time::Duration;

use anstyle::Style;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::cli::{BAD, FAINT, GOOD, HEADING, WAITS, clean};

pub(in crate::cli) use crate::cli::span;

/// How a piece of text stands out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) enum Tone {
    /// Not at all.
    #[default]
    Plain,
    /// Something is as it should be.
    Good,
    /// Something is broken.
    Bad,
    /// Something waits.
    Waits,
    /// What matters most.
    Strong,
    /// What matters least.
    Faint,
}

impl Tone {
    const fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Good => GOOD,
            Self::Bad => BAD,
            Self::Waits => WAITS,
            Self::Strong => HEADING,
            Self::Faint => FAINT,
        }
    }
}

/// One line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct Line {
    pieces: Vec<(Tone, String)>,
    whole: bool,
}

impl Line {
    /// A line of one piece.
    pub(in crate::cli) fn of(tone: Tone, text: &str) -> Self {
        Self::default().and(tone, text)
    }

    /// The line with a piece added.
    pub(in crate::cli) fn and(mut self, tone: Tone, text: &str) -> Self {
        let text = clean(text);
        if !text.is_empty() {
            self.pieces.push((tone, text));
        }
        self
    }

    /// The line with blanks added up to a column.
    pub(in crate::cli) fn to(self, column: usize) -> Self {
        let missing = column.saturating_sub(self.width());
        self.and(Tone::Plain, &" ".repeat(missing))
    }

    /// The line, to be pasted as it stands: it is never cut or wrapped.
    pub(in crate::cli) const fn whole(mut self) -> Self {
        self.whole = true;
        self
    }

    /// Columns that it takes.
    pub(in crate::cli) fn width(&self) -> usize {
        self.pieces.iter().map(|(_, text)| width(text)).sum()
    }

    /// Lines of a terminal that it takes.
    pub(in crate::cli) fn rows(&self, columns: usize) -> usize {
        self.width().div_ceil(columns.max(1)).max(1)
    }

    /// The line within a width, cut on the right if need be.
    pub(in crate::cli) fn cut(self, columns: usize) -> Self {
        if self.whole || self.width() <= columns {
            return self;
        }
        let mut left = columns.saturating_sub(1);
        let mut cut = Self::default();
        for (tone, text) in self.pieces {
            let mut kept = String::new();
            for c in text.chars() {
                let wide = c.width().unwrap_or_default();
                if wide > left {
                    kept.push('…');
                    cut.pieces.push((tone, kept));
                    return cut;
                }
                left -= wide;
                kept.push(c);
            }
            cut.pieces.push((tone, kept));
        }
        cut
    }

    /// The line within a width, broken between words; further lines begin at
    /// `indent`. What does not fit in `most` lines is cut.
    pub(in crate::cli) fn wrap(self, columns: usize, indent: &Self, most: usize) -> Vec<Self> {
        if self.whole || self.width() <= columns {
            return vec![self];
        }
        let room = columns.saturating_sub(indent.width());
        if room < 16 || most <= 1 {
            return vec![self.cut(columns)];
        }
        let chars: Vec<Cell> = self
            .pieces
            .iter()
            .flat_map(|(tone, text)| text.chars().map(|c| (*tone, c)))
            .collect();
        let mut rest = chars.as_slice();
        let mut lines = Vec::new();
        while !rest.is_empty() {
            let room = if lines.is_empty() { columns } else { room };
            let last = lines.len() + 1 == most;
            let (head, tail) = split(rest, room, last);
            let begun = if lines.is_empty() {
                Self::default()
            } else {
                indent.clone()
            };
            let line = collect(begun, head);
            lines.push(if last { line.cut(columns) } else { line });
            rest = if last { &[] } else { tail };
        }
        lines
    }

    /// The line with its styles.
    pub(in crate::cli) fn paint(&self) -> String {
        let mut text = String::new();
        let end = self.pieces.len().saturating_sub(1);
        for (index, (tone, piece)) in self.pieces.iter().enumerate() {
            let piece = if index == end {
                piece.trim_end()
            } else {
                piece
            };
            if *tone == Tone::Plain || piece.is_empty() {
                text.push_str(piece);
            } else {
                let style = tone.style();
                text.push_str(&format!("{style}{piece}{style:#}"));
            }
        }
        text
    }

    /// The line without styles.
    pub(in crate::cli) fn plain(&self) -> String {
        let text: String = self.pieces.iter().map(|(_, text)| text.as_str()).collect();
        text.trim_end().to_owned()
    }
}

/// A character and its style.
type Cell = (Tone, char);

/// Splits at the last blank that leaves the head within a width.
fn split(chars: &[Cell], room: usize, last: bool) -> (&[Cell], &[Cell]) {
    let mut used = 0;
    let mut fits = chars.len();
    let mut blank = None;
    for (index, (_, c)) in chars.iter().enumerate() {
        used += c.width().unwrap_or_default();
        if used > room {
            fits = index;
            if *c == ' ' {
                blank = Some(index);
            }
            break;
        }
        if *c == ' ' {
            blank = Some(index);
        }
    }
    if fits == chars.len() || last {
        return (chars, &[]);
    }
    // A break that leaves most of the line empty is worse than a broken word.
    match blank.filter(|blank| *blank * 3 > fits) {
        Some(blank) => {
            let (head, tail) = chars.split_at(blank);
            (head, tail.get(1..).unwrap_or_default())
        }
        None => chars.split_at(fits.max(1)),
    }
}

fn collect(mut line: Line, chars: &[Cell]) -> Line {
    for (tone, c) in chars {
        match line.pieces.last_mut() {
            Some((known, text)) if known == tone => text.push(*c),
            _ => line.pieces.push((*tone, c.to_string())),
        }
    }
    line
}

/// Columns that a text takes on a terminal.
pub(in crate::cli) fn width(text: &str) -> usize {
    text.width()
}

/// A time of day, with its date if it is not within a day of now.
pub(in crate::cli) fn clock(time: &Time, now: Timestamp) -> String {
    let away = now.duration_since(time.0).unsigned_abs();
    let form = if away < Duration::from_secs(86_400) {
        "%H:%M:%SZ"
    } else {
        "%Y-%m-%d %H:%M:%SZ"
    };
    time.0.strftime(form).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(lines: &[Line]) -> Vec<String> {
        lines.iter().map(Line::plain).collect()
    }

    #[test]
    fn a_long_line_is_broken_between_words_and_cut_at_the_end() {
        let text =
            "Why  back-off pulling image registry.example/shop/web:3 for the third time today";
        let indent = Line::of(Tone::Plain, "     ");
        let line = Line::of(Tone::Plain, text);
        assert_eq!(
            plain(&line.clone().wrap(32, &indent, 9)),
            [
                "Why  back-off pulling image",
                "     registry.example/shop/web:3",
                "     for the third time today",
            ]
        );
        let cut = plain(&line.wrap(32, &indent, 2));
        assert_eq!(cut[1], "     registry.example/shop/web:…");
    }

    #[test]
    fn a_word_longer_than_the_line_is_broken() {
        let line = Line::of(Tone::Plain, &format!("x {}", "y".repeat(40)));
        let lines = line.wrap(20, &Line::default(), 9);
        assert!(lines.iter().all(|line| line.width() <= 20), "{lines:?}");
        let kept: usize = lines.iter().map(Line::width).sum();
        assert_eq!(kept, 42);
    }

    #[test]
    fn wide_characters_count_twice() {
        let line = Line::of(Tone::Plain, "配置が見つかりません");
        assert_eq!(line.width(), 20);
        let cut = line.cut(10);
        assert!(cut.width() <= 10, "{cut:?}");
        assert_eq!(cut.plain(), "配置が見…");
    }

    #[test]
    fn what_a_cluster_says_cannot_move_the_cursor() {
        let line = Line::of(Tone::Bad, "a\u{1b}[2Jb\nc\rd");
        assert_eq!(line.plain(), "a [2Jb c d");
    }

    #[test]
    fn a_style_is_put_around_the_words_and_changes_none() {
        let line = Line::of(Tone::Bad, "broken").and(Tone::Plain, " now");
        assert_eq!(line.paint(), "\u{1b}[31mbroken\u{1b}[0m now");
        assert_eq!(line.plain(), "broken now");
    }

    #[test]
    fn a_command_to_be_pasted_stays_in_one_piece() {
        let line = Line::of(Tone::Plain, &"word ".repeat(20)).whole();
        assert_eq!(line.clone().cut(10), line);
        assert_eq!(line.rows(40), 3);
    }
}
