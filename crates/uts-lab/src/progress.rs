//! Progress of an experiment: bars on a terminal, else a line for each run, and now and then a line
//! for the whole.

mod milestones;

pub use milestones::Milestones;

use crate::experiment::case::Case;
use crate::experiment::outcome::RunFile;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use uts_end::output::{Output, tell_line};
use uts_end::terminal;
use uts_record::run::RunStatus;

/// Display of an experiment's progress.
#[derive(Debug)]
pub struct Progress {
    /// `None` where there is no terminal.
    bars: Option<Bars>,
    /// Instead of bars.
    milestones: Milestones,
    total: usize,
    done: AtomicUsize,
    is_quiet: bool,
}

#[derive(Debug)]
struct Bars {
    all: MultiProgress,
    total: ProgressBar,
}

/// A run that is under way.
#[derive(Debug)]
pub struct Running(Option<ProgressBar>);

impl Progress {
    /// For this many runs, of which some are done already. `is_quiet` shows only what went wrong.
    pub fn new(total: usize, done: usize, is_quiet: bool) -> Self {
        let is_shown = !is_quiet && Output::Err.is_terminal();
        let bars = is_shown.then(|| Bars::new(total, done));
        Progress { bars, milestones: Milestones::new("runs"), total, done: AtomicUsize::new(done), is_quiet }
    }

    /// A run begins.
    pub fn begin(&self, case: &Case, attempt: u32) -> Running {
        let Some(bars) = &self.bars else { return Running(None) };
        let bar = bars.all.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template(RUN) {
            bar.set_style(style);
        }
        let again = if attempt > 1 { format!(" (attempt {attempt})") } else { String::new() };
        bar.set_message(format!("{} {}{again}", case.world, case.label()));
        bar.enable_steady_tick(Duration::from_millis(250));
        Running(Some(bar))
    }

    /// A run has ended.
    pub fn end(&self, running: Running, run: &RunFile) {
        drop(running);
        if let Some(bars) = &self.bars {
            bars.total.inc(1);
        }
        let why = run.why.as_deref().unwrap_or_default();
        match run.status {
            RunStatus::Ok if self.bars.is_some() => {}
            RunStatus::Ok => {
                self.line(&format!("ok       {} ({:.1} s)", run.id, run.elapsed_s.unwrap_or_default()))
            }
            // The reasons are told at the end, each once.
            RunStatus::Skipped => {}
            status => self.tell(&format!("{:<8} {}: {why}", status.name(), run.id)),
        }
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if self.bars.is_none() && !self.is_quiet {
            self.milestones.on_done(done, self.total);
        }
    }

    /// A line that is left out if it should be quiet.
    pub fn line(&self, line: &str) {
        if !self.is_quiet {
            self.tell(line);
        }
    }

    /// A line that is always shown.
    pub fn tell(&self, line: &str) {
        match &self.bars {
            Some(bars) => bars.all.suspend(|| tell_line(line)),
            None => tell_line(line),
        }
    }
}

impl Bars {
    fn new(total: usize, done: usize) -> Self {
        let all = MultiProgress::with_draw_target(terminal::drawn());
        let total_bar = all.add(ProgressBar::new(total as u64));
        // indicatif's own templates are checked by a test below.
        if let Ok(style) = ProgressStyle::with_template(TOTAL) {
            total_bar.set_style(style.progress_chars("━╸─"));
        }
        total_bar.set_position(done as u64);
        // What was done before says nothing of how long the rest takes.
        total_bar.reset_eta();
        total_bar.enable_steady_tick(Duration::from_millis(250));
        Bars { all, total: total_bar }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bars) = &self.bars {
            bars.total.abandon();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

const TOTAL: &str = "{bar:30} {pos} of {len} runs  {elapsed_precise}, about {eta} to go";
const RUN: &str = "  {spinner} {elapsed:>4}  {wide_msg}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_valid() {
        assert!(ProgressStyle::with_template(TOTAL).is_ok());
        assert!(ProgressStyle::with_template(RUN).is_ok());
    }
}
