//! Display of the demonstration while it runs: lines on standard output, a bar on standard error.

use super::event::Told;
use super::plan::Plan;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::time::Duration;
use uts_end::output::{Output, print_line};
use uts_end::terminal;
use uts_record::demo::{Exchange, FileFacts};

/// Without a terminal there is no bar; then a line this often, in seconds.
const LINE_INTERVAL_S: f64 = 5.0;
/// Functions whose mechanisms are named beside the bar, as they make the difference on a path.
const FUNCTIONS_SHOWN: [&str; 3] = ["congestion", "fec", "retransmission"];

/// The longest text beside the bar, in characters.
const STATUS_CHARS_MAX: usize = 1_000;

#[derive(Debug)]
pub(super) struct Display {
    bar: ProgressBar,
    has_bar: bool,
    next_line_s: Cell<f64>,
}

impl Display {
    pub(super) fn new(file_bytes: u64) -> Self {
        let has_bar = Output::Err.is_terminal();
        let drawn = if has_bar { terminal::drawn() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(file_bytes), drawn);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {bytes:>10}/{total_bytes}  {wide_msg}") {
            bar.set_style(style.progress_chars("━╸─"));
        }
        Display { bar, has_bar, next_line_s: Cell::new(LINE_INTERVAL_S) }
    }

    /// Writes a line past the bar.
    pub(super) fn line(&self, line: &str) {
        // Where it is lost the copy goes on, and the report is written.
        let _ = self.bar.suspend(|| print_line(line));
    }

    pub(super) fn introduce(&self, file: &FileFacts, plan: &Plan, seed: u64) {
        self.line(&format!("File: {}, {} bytes, SHA-256 {}", file.name, file.bytes, file.sha256));
        self.line(&format!("Path: {} each way, seed {seed}", plan.settings));
        for change in &plan.schedule.entries {
            self.line(&format!("  then {change}"));
        }
    }

    /// A run begins.
    pub(super) fn begin(&self, heading: &str) {
        self.bar.reset();
        self.next_line_s.set(LINE_INTERVAL_S);
        self.line(&format!("\n{heading}"));
    }

    pub(super) fn progress(&self, t_s: f64, told: &Told) {
        let status = status(told);
        self.bar.set_position(told.bytes.unwrap_or_else(|| self.bar.position()));
        self.bar.set_message(uts::printable::line(&status, STATUS_CHARS_MAX));
        if !self.has_bar && t_s >= self.next_line_s.get() {
            self.next_line_s.set(t_s + LINE_INTERVAL_S);
            let megabytes = told.bytes.unwrap_or_default() as f64 / 1e6;
            self.line(&format!("{t_s:6.1} s  {megabytes:.1} MB  {status}"));
        }
    }

    /// The path has changed.
    pub(super) fn path_change(&self, t_s: f64, target: &str, change: &str) {
        let place = if target == "fwd" { "" } else { &format!(" ({target} ways)") };
        self.line(&format!("{t_s:6.1} s  path: {change}{place}"));
    }

    /// An exchange was asked for.
    pub(super) fn exchange(&self, t_s: f64, number: usize, exchange: &Exchange) {
        let parts = [("saw", &exchange.seen), ("changes", &exchange.changes), ("expects", &exchange.expects)];
        let said: Vec<String> = parts
            .iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(verb, text)| format!("{verb} {text}"))
            .collect();
        let server = if exchange.end == "server" { " (server)" } else { "" };
        self.line(&format!("{t_s:6.1} s  exchange {number}{server}: {}", said.join("; ")));
    }

    /// Something came of an exchange.
    pub(super) fn outcome(&self, t_s: f64, number: usize, what: &str) {
        self.line(&format!("{t_s:6.1} s  exchange {number} {what}"));
    }

    /// Shows the time that something takes, which tells nothing of itself meanwhile.
    pub(super) fn while_waiting<T>(&self, limit: Duration, act: impl FnOnce() -> T) -> T {
        self.bar.set_length(limit.as_secs().max(1));
        self.bar.set_style(ProgressStyle::default_spinner());
        self.bar.set_message(format!("at most {} s", limit.as_secs()));
        self.bar.enable_steady_tick(Duration::from_millis(200));
        let ended = act();
        self.bar.disable_steady_tick();
        ended
    }

    /// A run is over.
    pub(super) fn end(&self, line: &str) {
        self.bar.finish_and_clear();
        self.line(line);
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn status(told: &Told) -> String {
    let parts = [
        told.rate_bps.map(|rate| format!("{:5.1} Mbit/s", rate / 1e6)),
        told.rtt_ms.map(|rtt| format!("RTT {rtt:.0} ms")),
        told.loss.map(|loss| format!("loss {:.1} %", loss * 100.0)),
        told.profile.as_deref().map(shortened),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("  ")
}

/// The mechanisms that matter on a path, of a profile as `congestion=cubic fec=xor …`.
fn shortened(profile: &str) -> String {
    let named = |function: &&str| {
        let prefix = format!("{function}=");
        profile.split_whitespace().find_map(|word| word.strip_prefix(&prefix).map(str::to_owned))
    };
    let found: Vec<String> = FUNCTIONS_SHOWN.iter().filter_map(named).collect();
    if found.is_empty() { profile.to_owned() } else { found.join(" + ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_is_known() {
        let told = Told {
            rate_bps: Some(48.06e6),
            loss: Some(0.051),
            profile: Some("fec=xor congestion=bbr sequencing=ordered".into()),
            ..Told::default()
        };
        assert_eq!(status(&told), " 48.1 Mbit/s  loss 5.1 %  bbr + xor");
        assert_eq!(shortened("bulk"), "bulk");
    }
}
