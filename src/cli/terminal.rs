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

/// A text of one line without what could do anything to a terminal. Whatever
/// comes from a cluster or a file goes through this, or [`clean_lines`].
#[must_use]
pub fn clean(text: &str) -> String {
    without(text, is_odd)
}

/// A text of several lines without what could do anything to a terminal.
#[must_use]
pub fn clean_lines(text: &str) -> String {
    without(text, |c| is_odd(c) && c != '\n')
}

fn without(text: &str, odd: impl Fn(char) -> bool) -> String {
    text.replace(odd, " ")
}

/// Control characters, and those that change the direction of what follows.
fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{61c}')
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
    out: Unread<AutoStream<io::Stdout>>,
    err: Unread<AutoStream<io::Stderr>>,
}

/// What becomes of writes that nobody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It is told, which ends a command that would go on for ever.
    Told,
    /// A reader that went away, as `head` does, is no fault: the exit code is
    /// what the command found out.
    Gone,
    /// Nothing is: progress that cannot be shown changes no answer.
    Any,
}

impl Fault {
    fn is_passed_over(self, error: &io::Error) -> bool {
        match self {
            Self::Told => false,
            Self::Gone => error.kind() == io::ErrorKind::BrokenPipe,
            Self::Any => error.kind() != io::ErrorKind::Interrupted,
        }
    }
}

/// A stream whose reader may go away.
struct Unread<W> {
    inner: W,
    passed: Fault,
}

impl<W: Write> Write for Unread<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self.inner.write(buffer) {
            Err(error) if self.passed.is_passed_over(&error) => Ok(buffer.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.inner.flush() {
            Err(error) if self.passed.is_passed_over(&error) => Ok(()),
            flushed => flushed,
        }
    }
}

impl Standard {
    /// The streams of the process. A command that is `endless` ends when nobody
    /// reads it any more; any other one does its work all the same.
    #[must_use]
    pub fn new(color: Color, endless: bool) -> Self {
        Self {
            out: Unread {
                inner: AutoStream::new(io::stdout(), color.into()),
                passed: if endless { Fault::Told } else { Fault::Gone },
            },
            err: Unread {
                inner: AutoStream::new(io::stderr(), color.into()),
                passed: Fault::Any,
            },
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed(io::ErrorKind);

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn what_a_cluster_says_cannot_move_the_cursor_nor_turn_the_text_around() {
        let text = "a\u{1b}[2Jb\rc\u{202e}d\u{9b}e\nf";
        assert_eq!(clean(text), "a [2Jb c d e f");
        assert_eq!(clean_lines(text), "a [2Jb c d e\nf");
    }

    #[test]
    fn a_reader_that_went_away_stops_only_what_has_no_end() {
        let writes = |passed, kind| {
            let mut stream = Unread {
                inner: Closed(kind),
                passed,
            };
            let written = writeln!(stream, "result=RolledBack");
            assert_eq!(written.is_ok(), stream.flush().is_ok());
            written.is_ok()
        };
        assert!(writes(Fault::Gone, io::ErrorKind::BrokenPipe));
        assert!(!writes(Fault::Gone, io::ErrorKind::StorageFull));
        assert!(!writes(Fault::Told, io::ErrorKind::BrokenPipe));
        assert!(writes(Fault::Any, io::ErrorKind::BrokenPipe));
        assert!(writes(Fault::Any, io::ErrorKind::StorageFull));
    }
}
