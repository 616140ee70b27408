//! Lines of a copy where standard error is no terminal.

use super::record::Peer;
use super::{Done, Sample, Start, Ui, lines, summary};
use crate::link::{ExchangeStep, Telemetry};
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use uts_files::FileOutcome;
use uts_units::show;

const PERIOD: Duration = Duration::from_secs(3);

/// Writes lines.
pub struct Plain<W, O> {
    lines: Mutex<W>,
    results: Mutex<O>,
    quiet: bool,
}

impl<W: Write + Send + 'static, O: Write + Send + 'static> Plain<W, O> {
    /// Lines go to `lines`, the summary to `results`. If `quiet`, only errors and warnings are
    /// printed.
    pub fn new(lines: W, results: O, quiet: bool) -> Self {
        Plain { lines: Mutex::new(lines), results: Mutex::new(results), quiet }
    }

    fn say(&self, line: &str) {
        if !self.quiet {
            self.always(line);
        }
    }

    fn always(&self, line: &str) {
        lines::say(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner), line);
    }
}

/// The figures of a moment in one line.
pub fn figures(sample: &Sample) -> String {
    let t = &sample.telemetry;
    let share = if sample.total > 0 { sample.bytes as f64 * 100.0 / sample.total as f64 } else { 0.0 };
    format!(
        "{} of {} ({share:.0} %), {}, RTT {:.1} ms, loss {:.2} %, {}",
        show::bytes(sample.bytes),
        show::bytes(sample.total),
        show::bits_per_second(t.rate_bps),
        t.rtt_ms,
        t.loss * 100.0,
        t.profile
    )
}

/// A file that a dry run would have copied, or something that it would have deleted.
pub fn wanted(name: &str, bytes: u64, outcome: &FileOutcome) -> Option<String> {
    match outcome {
        FileOutcome::Wanted => Some(format!("{name} would be copied, {}", show::bytes(bytes))),
        FileOutcome::Superfluous => Some(format!("{name} would be deleted")),
        _ => None,
    }
}

/// Beginning of a server or copy, for people.
pub fn greeting(start: &Start) -> String {
    match &start.served {
        Some(served) => format!(
            "serving {}, to {}, at {} ({}), key {}",
            served.what(&start.subject),
            served.clients,
            start.address,
            served.reach,
            start.fingerprint
        ),
        None => format!("connected to {}, key {}", start.address, start.fingerprint),
    }
}

impl<W: Write + Send + 'static, O: Write + Send + 'static> Ui for Plain<W, O> {
    fn start(&self, start: &Start) {
        self.say(&greeting(start));
    }

    fn notice(&self, _: Option<&Peer>, _: &str, line: &str) {
        self.say(line);
    }

    fn sample(&self, _: Option<&Peer>, sample: &Sample) {
        self.say(&figures(sample));
    }

    fn exchange(&self, _: Option<&Peer>, step: &ExchangeStep) {
        self.say(&step.describe());
    }

    /// A copy tells of failures as errors, and of the rest in figures.
    fn file(&self, _: Option<&Peer>, name: &str, bytes: u64, outcome: &FileOutcome, _: &Telemetry) {
        if let Some(line) = wanted(name, bytes, outcome) {
            let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
            lines::write_line(&mut *results, line);
        }
    }

    fn warning(&self, line: &str) {
        self.always(&format!("uts: warning: {line}"));
    }

    fn error(&self, line: &str) {
        self.always(&format!("uts: {line}"));
    }

    fn done(&self, done: &Done) {
        if !self.quiet {
            let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
            lines::write_lines(&mut *results, &summary::table(done));
        }
    }

    fn period(&self) -> Option<Duration> {
        (!self.quiet).then_some(PERIOD)
    }
}
