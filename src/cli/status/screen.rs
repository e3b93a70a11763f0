//! A screen that is drawn anew when what it shows changed, without flicker, and
//! left as it was found.
//!
//! Writes to standard output itself, since it moves the cursor also where
//! there are to be no colours.

use std::io::{self, IsTerminal as _, Write};

use anstream::{AutoStream, ColorChoice};

use super::{
    render::{Layout, fitted},
    text::Line,
};
use crate::cli::{Color, terminal};

/// Room of a terminal that does not say how large it is.
const USUAL: (usize, usize) = (80, 24);
/// The other screen, and no cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// The cursor, and the screen as it was.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Nothing is shown until the end of this, where the terminal can do that.
const BEGIN: &str = "\x1b[?2026h\x1b[H";
const END: &str = "\x1b[?2026l";

/// The terminal, while it is ours.
pub(super) struct Screen {
    out: io::Stdout,
    coloured: bool,
    shown: Vec<String>,
    size: (usize, usize),
}

impl Screen {
    /// Takes the terminal over, if standard output is one that can be drawn on.
    pub(super) fn enter(color: Color) -> io::Result<Option<Self>> {
        let mut out = io::stdout();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if dumb || !out.is_terminal() {
            return Ok(None);
        }
        let coloured = match color {
            Color::Auto => AutoStream::choice(&out) != ColorChoice::Never,
            Color::Always => true,
            Color::Never => false,
        };
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        Ok(Some(Self {
            out,
            coloured,
            shown: Vec::new(),
            size: (0, 0),
        }))
    }

    /// The room that there is now.
    pub(super) fn layout(&self) -> Layout {
        let (width, height) = terminal().unwrap_or(USUAL);
        Layout {
            width,
            height: Some(height),
        }
    }

    /// Shows lines, if they are others than those that are shown.
    pub(super) fn show(&mut self, lines: Vec<Line>) -> io::Result<()> {
        let layout = self.layout();
        let lines = fitted(lines, layout);
        let painted: Vec<String> = lines
            .iter()
            .map(|line| {
                if self.coloured {
                    line.paint()
                } else {
                    line.plain()
                }
            })
            .collect();
        let size = (layout.width, layout.height.unwrap_or_default());
        if painted == self.shown && size == self.size {
            return Ok(());
        }
        self.out
            .write_all(frame(&lines, &painted, size).as_bytes())?;
        self.out.flush()?;
        (self.shown, self.size) = (painted, size);
        Ok(())
    }
}

/// What draws lines over whatever is on a screen. Each line is written over
/// what was there, and nothing is cleared before.
fn frame(lines: &[Line], painted: &[String], (width, height): (usize, usize)) -> String {
    let mut frame = BEGIN.to_owned();
    let mut rows = 0;
    for (line, text) in lines.iter().zip(painted) {
        if rows > 0 {
            frame.push_str("\r\n");
        }
        frame.push_str(text);
        // Behind a full line the cursor still stands on its last column.
        if line.width() == 0 || line.width() % width.max(1) != 0 {
            frame.push_str("\x1b[K");
        }
        rows += line.rows(width);
    }
    if rows < height {
        frame.push_str(&format!("\x1b[{};1H\x1b[J", rows + 1));
    }
    frame.push_str(END);
    frame
}

impl Drop for Screen {
    /// What was seen last stays behind, for whoever scrolls back.
    fn drop(&mut self) {
        let last = self.shown.join("\n");
        let _ = writeln!(self.out, "{LEAVE}{last}");
        let _ = self.out.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::status::text::Tone;

    #[test]
    fn what_is_no_longer_there_is_cleared_and_a_full_line_keeps_its_end() {
        let lines = [Line::of(Tone::Bad, "1234"), Line::of(Tone::Plain, "ab")];
        let painted: Vec<String> = lines.iter().map(Line::paint).collect();
        assert_eq!(
            frame(&lines, &painted, (4, 3)),
            "\x1b[?2026h\x1b[H\x1b[31m1234\x1b[0m\r\nab\x1b[K\x1b[3;1H\x1b[J\x1b[?2026l"
        );
        assert!(!frame(&lines, &painted, (4, 2)).contains("\x1b[J"));
    }
}
