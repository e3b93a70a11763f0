//! Where answers go, and how wide and coloured they may be.
//!
//! Commands always write their styles; a stream that must not carry them strips
//! them. So no command asks whether there is colour, and none may rest its
//! meaning on it.

use std::io::{self, IsTerminal as _, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;

/// When answers are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl From<Color> for ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

/// Something that went well.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Something that failed.
pub const BAD: Style = AnsiColor::Red.on_default();
/// Something that waits, or wants a look.
pub const WAITS: Style = AnsiColor::Yellow.on_default();
/// Headings.
pub const HEADING: Style = Style::new().bold();
/// What matters least.
pub const FAINT: Style = Style::new().dimmed();

/// Text in a style.
#[must_use]
pub fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Where a command writes.
pub struct Streams<'a> {
    /// The answer.
    pub out: &'a mut dyn Write,
    /// Progress, warnings and errors.
    pub err: &'a mut dyn Write,
    /// Columns of the terminal that the answer goes to; none if it goes
    /// elsewhere.
    pub width: Option<usize>,
    /// Lines of that terminal.
    pub height: Option<usize>,
}

/// Standard output and standard error.
pub struct Standard {
    out: AutoStream<io::Stdout>,
    err: AutoStream<io::Stderr>,
}

impl Standard {
    /// The streams of the process.
    #[must_use]
    pub fn new(color: Color) -> Self {
        Self {
            out: AutoStream::new(io::stdout(), color.into()),
            err: AutoStream::new(io::stderr(), color.into()),
        }
    }

    /// As a command takes them.
    pub fn streams(&mut self) -> Streams<'_> {
        let size = terminal();
        Streams {
            out: &mut self.out,
            err: &mut self.err,
            width: size.map(|(width, _)| width),
            height: size.map(|(_, height)| height),
        }
    }
}

/// Columns and lines of the terminal that standard output goes to.
#[must_use]
pub fn terminal() -> Option<(usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let (width, height) = terminal_size::terminal_size()?;
    Some((usize::from(width.0), usize::from(height.0)))
}
