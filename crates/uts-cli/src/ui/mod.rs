//! Views of the user: progress of a copy on a terminal, lines elsewhere, or JSON for programs; and
//! the log of a server or a tunnel.

pub mod bounded;
pub mod json;
mod line;
pub mod lines;
pub mod log;
pub mod plain;
pub mod progress;
pub mod record;
pub mod summary;

use crate::link::{ExchangeStep, Telemetry};
use record::{Peer, Record};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use time::OffsetDateTime;
use time::macros::format_description;
use uts_end::output::Output;
use uts_files::FileOutcome;
use uts_ledger::Row;

/// Beginning of a run.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// `serve` or `cp`.
    pub command: &'static str,
    /// Where it listens, or what it is connected to.
    pub address: String,
    /// The server's key.
    pub fingerprint: String,
    /// The subject that is served or copied, in words.
    pub subject: String,
    /// Content and clients of a server.
    pub served: Option<Served>,
}

/// Content and clients of a server.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// Files are taken as well.
    pub is_writable: bool,
    /// Which clients are let in, in words.
    pub clients: String,
    /// From where it can be reached, in words.
    pub reach: &'static str,
    /// True if there are files.
    pub has_files: bool,
    /// True if clients may measure.
    pub has_media: bool,
    /// Measurements.
    pub has_perf: bool,
    /// The services that streams lead to, in words; empty = none.
    pub pipes: String,
    /// Where tunnels may lead, in words; empty = nowhere.
    pub forwards: String,
    /// Files that there are, or some of them.
    pub files: u64,
    /// There are more than `files`.
    pub has_more: bool,
    /// There are hidden files, which are not served.
    pub leaves_hidden: bool,
    /// Names of what this process is confined in; empty = nothing.
    pub confined: &'static str,
}

impl Served {
    /// Access to it, in a word.
    pub fn access(&self) -> &'static str {
        if self.is_writable { "writable" } else { "read-only" }
    }

    /// Content that is given, where `subject` is the directory.
    pub fn what(&self, subject: &str) -> String {
        let given = [
            (self.has_files, format!("{subject} ({}), {}", self.count(), self.access())),
            (!self.pipes.is_empty(), format!("streams to {}", self.pipes)),
            (!self.forwards.is_empty(), format!("tunnels to {}", self.forwards)),
            (self.has_media, "media".to_owned()),
            (self.has_perf, "measurements".to_owned()),
        ];
        let given: Vec<String> = given.into_iter().filter_map(|(is, what)| is.then_some(what)).collect();
        given.join(", and ")
    }

    /// The number of files, in words.
    pub fn count(&self) -> String {
        let more = if self.has_more { "more than " } else { "" };
        let files = if self.files == 1 && !self.has_more { "file" } else { "files" };
        let hidden = if self.leaves_hidden { ", hidden ones left out" } else { "" };
        format!("{more}{} {files}{hidden}", self.files)
    }
}

/// Progress of a copy.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Content in place, in bytes.
    pub bytes: u64,
    /// Content in all, in bytes; 0 while it is not known.
    pub total: u64,
    /// Files in place: copied, or there already.
    pub files: u64,
    /// Files in all.
    pub files_total: u64,
    /// Files that were not copied.
    pub failures: u64,
    /// The file of which something moved last; empty = none yet.
    pub name: String,
    /// The connection.
    pub telemetry: Telemetry,
}

/// End of a copy.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Files in place: copied, or there already.
    pub files: u64,
    /// Files in all.
    pub files_total: u64,
    /// Those of `files` that were there already.
    pub files_already_there: u64,
    /// Files that were not copied.
    pub failures: u64,
    /// Of a dry run: files that would have been copied, and their bytes.
    pub wanted: Option<(u64, u64)>,
    /// Content now in place, in bytes.
    pub bytes: u64,
    /// Content that crossed the connection, in bytes.
    pub bytes_carried: u64,
    /// Content that was sent, compressed or not, in bytes.
    pub bytes_literal: u64,
    /// Content that its receiver had in another version of the file, in bytes.
    pub bytes_matched: u64,
    /// Directories made or updated.
    pub directories: u64,
    /// Symbolic links made.
    pub links: u64,
    /// Things that were deleted; by a dry run, those that would have been.
    pub deleted: u64,
    /// People want to know all of this.
    pub says_all: bool,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// BLAKE3, the same at both ends.
    pub hash: Option<String>,
    /// The connection at the end.
    pub telemetry: Telemetry,
}

impl Done {
    /// Content carried, in bits per second.
    pub fn goodput_bps(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes_carried as f64 * 8.0 / self.seconds } else { 0.0 }
    }
}

/// Somebody who watches a run.
pub trait Ui: Send + Sync + 'static {
    /// It began.
    fn start(&self, start: &Start);
    /// Something about the connection, or about a file that waits: `silent`, `heard`, `lost`,
    /// `connected`, `waiting`. At a server, also the client that it concerns.
    fn notice(&self, peer: Option<&Peer>, step: &str, line: &str);
    /// Something happened at a server or a tunnel.
    fn record(&self, _record: &Record<'_>) {}
    /// True if such a record is written.
    fn wants(&self, _record: &Record<'_>) -> bool {
        true
    }
    /// Progress; of which client, for a server.
    fn sample(&self, peer: Option<&Peer>, sample: &Sample);
    /// A step of an exchange.
    fn exchange(&self, peer: Option<&Peer>, step: &ExchangeStep);
    /// A file is dealt with.
    fn file(&self, peer: Option<&Peer>, name: &str, bytes: u64, outcome: &FileOutcome, telemetry: &Telemetry);
    /// Something was left out.
    fn warning(&self, line: &str);
    /// Something failed.
    fn error(&self, line: &str);
    /// All of it failed, which standard error is told besides.
    fn failed(&self, _line: &str) {}
    /// Tells what is held for clients, and by whom.
    fn ledger(&self, _rows: &[Row]) {}
    /// A copy ended.
    fn done(&self, done: &Done);
    /// A copy ended because nobody reads what it writes any more, which is no news to anybody.
    fn unread(&self) {}
    /// Time between two [`Ui::sample`]; `None` = none is wanted.
    fn period(&self) -> Option<Duration>;
}

/// The one of a copy that options and standard error call for; `takes_output`: standard output is
/// for a file.
pub fn choose(json: bool, quiet: bool, takes_output: bool) -> Arc<dyn Ui> {
    let results = if takes_output { Output::Err } else { Output::Out };
    if json {
        Arc::new(json::Json::new(Output::Out))
    } else if quiet {
        Arc::new(plain::Plain::new(Output::Err, results, true))
    } else if Output::Err.is_terminal() {
        Arc::new(progress::Terminal::new(results))
    } else {
        Arc::new(plain::Plain::new(Output::Err, results, false))
    }
}

/// Time of this process; the one place of the program that reads the clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Begins now.
    #[expect(
        clippy::disallowed_methods,
        reason = "the program faces the world and tells people how long it took"
    )]
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Since then.
    pub fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// The time of the clock in UTC, to the millisecond (RFC 3339).
#[expect(clippy::disallowed_methods, reason = "the program tells people when something happened")]
pub fn utc() -> String {
    let form = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    OffsetDateTime::from(SystemTime::now()).format(&form).unwrap_or_default()
}

/// Name of a file's end in events.
pub fn outcome_name(outcome: &FileOutcome) -> &'static str {
    match outcome {
        FileOutcome::Copied(_) => "copied",
        FileOutcome::AlreadyThere(_) | FileOutcome::Kept => "already there",
        FileOutcome::Wanted => "would be copied",
        FileOutcome::Deleted => "deleted",
        FileOutcome::Superfluous => "would be deleted",
        FileOutcome::Failed(_) => "failed",
    }
}

/// A hash in hexadecimal.
pub fn hex(hash: &[u8; 32]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
