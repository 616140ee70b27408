//! Table of what mechanisms were asked for and what they did; only those that fall short are in it.

use crate::mechanism::Promise;
use core::fmt;

/// A figure that is asked of a mechanism at the least, and the promise that asks it; without one,
/// all owe it.
#[derive(Clone, Copy, Debug)]
pub struct Asked(pub f64, pub Option<Promise>);

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(promise) => write!(f, "{:.3} promised by {promise:?}", self.0),
            None => write!(f, "{:.3} asked of all", self.0),
        }
    }
}

/// Rows of what has fallen short, under a line that says what is asked.
#[derive(Debug)]
pub struct Table {
    head: &'static str,
    rows: Vec<String>,
}

impl Table {
    pub fn new(head: &'static str) -> Self {
        Table { head, rows: Vec::new() }
    }

    /// Takes in a row; it is told if `is_kept` is false.
    pub fn ask(&mut self, is_kept: bool, row: impl FnOnce() -> String) {
        if !is_kept {
            self.rows.push(row());
        }
    }

    /// Asks for at least a figure of what was measured `at` some place.
    pub fn at_least(&mut self, at: impl fmt::Display, measured: f64, asked: Asked) {
        self.ask(measured >= asked.0, || format!("{at}: {measured:.3}, {asked}"));
    }

    /// All that has fallen short.
    fn verdict(&self) -> Result<(), String> {
        let rows = self.rows.join("\n");
        if rows.is_empty() { Ok(()) } else { Err(format!("{}:\n{rows}", self.head)) }
    }

    /// Fails with all that has fallen short.
    #[track_caller]
    pub fn check(&self) {
        if let Err(rows) = self.verdict() {
            panic!("{rows}");
        }
    }
}

#[test]
fn all_that_falls_short_is_told_with_what_was_asked() {
    let mut table = Table::new("share of the path");
    table.at_least("reno", 0.97, Asked(0.96, Some(Promise::FullPath)));
    assert_eq!(table.verdict(), Ok(()));
    table.at_least("reno on 10 Mbit/s", 0.935, Asked(0.96, Some(Promise::FullPath)));
    table.at_least("tahoe", 0.6, Asked(0.65, None));
    table.ask(false, || "vegas: 70 dropped, 60 at most".to_owned());
    let told = "share of the path:\n\
                reno on 10 Mbit/s: 0.935, 0.960 promised by FullPath\n\
                tahoe: 0.600, 0.650 asked of all\n\
                vegas: 70 dropped, 60 at most";
    assert_eq!(table.verdict(), Err(told.to_owned()));
}
