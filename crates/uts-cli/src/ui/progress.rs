//! A bar on a terminal, and lines above it.

use super::plain::{greeting, wanted};
use super::record::Peer;
use super::{Done, Sample, Start, Ui, line, lines, summary};
use crate::link::{ExchangeStep, Telemetry};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::sync::OnceLock;
use std::time::Duration;
use uts_end::output::Output;
use uts_end::terminal;
use uts_files::FileOutcome;

const PERIOD: Duration = Duration::from_millis(200);
/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;

/// Draws on standard error.
pub struct Terminal {
    bars: MultiProgress,
    bar: OnceLock<ProgressBar>,
    results: Output,
}

impl Terminal {
    /// Nothing is drawn before there is something to tell. Results go to `results`.
    pub fn new(results: Output) -> Self {
        Terminal { bars: MultiProgress::with_draw_target(terminal::drawn()), bar: OnceLock::new(), results }
    }

    /// Writes results, which stay when the bar is gone.
    fn result(&self, text: &str) {
        let mut results = self.results;
        self.bars.suspend(|| lines::write_lines(&mut results, text));
    }

    fn say(&self, line: &str) {
        // A terminal that has gone away: the copy goes on nevertheless.
        let _ = self.bars.println(lines::line(line));
    }

    fn bar(&self) -> &ProgressBar {
        self.bar.get_or_init(|| {
            let bar = self.bars.add(ProgressBar::new(0));
            // The whole line is made here: it knows what to leave out where there is little room.
            if let Ok(style) = ProgressStyle::with_template("{msg}") {
                bar.set_style(style);
            }
            bar
        })
    }
}

/// Columns of the terminal that standard error is, as it is now.
fn columns() -> usize {
    Output::Err.size().map_or(COLUMNS, |(columns, _)| columns.into())
}

impl Ui for Terminal {
    fn start(&self, start: &Start) {
        self.say(&greeting(start));
    }

    fn notice(&self, _: Option<&Peer>, _: &str, line: &str) {
        self.say(line);
    }

    fn sample(&self, _: Option<&Peer>, sample: &Sample) {
        let bar = self.bar();
        bar.set_length(sample.total);
        bar.set_position(sample.bytes.min(sample.total));
        let left = (sample.bytes > 0 && sample.bytes < sample.total).then(|| bar.eta());
        // A line that reaches the last column is wrapped by some terminals.
        bar.set_message(line::progress(sample, left, columns().saturating_sub(1)));
    }

    fn exchange(&self, _: Option<&Peer>, step: &ExchangeStep) {
        self.say(&step.describe());
    }

    /// A copy shows its files by the bar.
    fn file(&self, _: Option<&Peer>, name: &str, bytes: u64, outcome: &FileOutcome, _: &Telemetry) {
        if let Some(line) = wanted(name, bytes, outcome) {
            self.result(&line);
        }
    }

    fn warning(&self, line: &str) {
        self.say(&format!("uts: warning: {line}"));
    }

    fn error(&self, line: &str) {
        self.bars.suspend(|| lines::fail(line));
    }

    fn done(&self, done: &Done) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
        self.result(&summary::table(done));
    }

    fn unread(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }

    fn period(&self) -> Option<Duration> {
        Some(PERIOD)
    }
}
