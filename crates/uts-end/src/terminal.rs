//! Standard error as a terminal that progress is drawn on, by [`Output`] as all else.

use crate::output::Output;
use core::fmt::Write as _;
use indicatif::{ProgressDrawTarget, TermLike};
use std::io;
use std::sync::{Mutex, PoisonError};

/// Number of times that progress is drawn in a second at most.
const DRAWN_HZ: u8 = 20;
/// Columns and lines of a terminal that does not say how many it has.
const SIZE: (u16, u16) = (80, 24);

/// Where progress is drawn if standard error is a terminal: see [`Output::is_terminal`].
pub fn drawn() -> ProgressDrawTarget {
    ProgressDrawTarget::term_like_with_hz(Box::<Terminal>::default(), DRAWN_HZ)
}

/// Terminal that gets in one write what is drawn at once.
#[derive(Debug, Default)]
struct Terminal(Mutex<String>);

impl Terminal {
    fn put(&self, text: core::fmt::Arguments<'_>) -> io::Result<()> {
        let mut drawn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drawn.write_fmt(text).map_err(io::Error::other)
    }

    /// Moves the cursor; the end of a sequence says where to (ECMA-48 section 8.3).
    fn go(&self, steps: usize, to: char) -> io::Result<()> {
        if steps == 0 { Ok(()) } else { self.put(format_args!("\x1b[{steps}{to}")) }
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        Output::Err.size().unwrap_or(SIZE).0
    }

    fn height(&self) -> u16 {
        Output::Err.size().unwrap_or(SIZE).1
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.go(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.go(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.go(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.go(n, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.put(format_args!("{text}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.put(format_args!("{text}"))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.put(format_args!("\r\x1b[2K"))
    }

    fn flush(&self) -> io::Result<()> {
        let drawn = core::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Output::Err.bytes(drawn.as_bytes()).map_err(io::Error::other)
    }
}
