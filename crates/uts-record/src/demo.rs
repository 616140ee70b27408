//! Data of a demonstration, which it leaves in `run.json`, and which a report is made from.
//!
//! Times are seconds since the client's first datagram entered the relay, unless their names say
//! otherwise. Series are kept as columns of equal length.

use crate::record_file;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file with all data.
pub const DATA_FILE: &str = "run.json";

/// The version of this form; a reader refuses others.
pub const FORMAT: u32 = 1;

/// A demonstration: a copy, and something to compare it with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// Where, when and with what.
    pub setting: Setting,
    /// The adaptive run first.
    pub runs: Vec<Run>,
}

/// Where, when and with what a demonstration was made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Setting {
    /// Seconds since 1970 at the start.
    pub unix_s: u64,
    /// `uts-lab` and its version.
    pub lab_version: String,
    /// Answer of `uts --version`.
    pub uts_version: String,
    /// Processor, cores, memory, system.
    pub machine: Machine,
    /// Seed of the path's random decisions and of the file.
    pub seed: u64,
    /// The command that made it.
    pub command: String,
    /// The file that was carried.
    pub file: FileFacts,
    /// The path at the start, both ways, in the form of `uts-lab relay --both`.
    pub path: String,
    /// Changes to come, in the form of `uts-lab relay --at`.
    pub schedule: Vec<String>,
    /// Twice the propagation delay, in milliseconds.
    pub base_rtt_ms: f64,
    /// The queue's limit, in packets; `None` if it is not one of packets.
    pub buffer_packets: Option<u64>,
}

/// Machine that it ran on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub processor: String,
    /// Cores that the program may use.
    pub cores: usize,
    /// Memory in MiB, if known.
    pub memory_mib: Option<u64>,
    /// The system and its release.
    pub system: String,
}

/// The file that was carried.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FileFacts {
    /// Its name, without directories.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal, before it was sent.
    pub sha256: String,
    /// The file was made from the seed.
    pub generated: bool,
}

/// One copy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Run {
    /// `adaptive`; `fixed` with the first profile kept; or the name of another transport, as `tcp`.
    pub name: String,
    /// The commands of both ends.
    pub commands: Vec<String>,
    /// Changes that the relay made.
    pub changes: Vec<PathChange>,
    /// Rates and losses of the link that carried the data; the first step is at or before 0.
    pub link: Vec<LinkStep>,
    /// Exchanges of mechanisms, in the order in which they were asked for.
    pub exchanges: Vec<Exchange>,
    /// Profiles of the data's direction, each from when it was first reported.
    pub profiles: Vec<ProfileUse>,
    /// Reports of the sender while it ran.
    pub progress: Progress,
    /// Reports of the receiver, if it makes any.
    pub received: Progress,
    /// Samples of the link that carried the data.
    pub queue: Queue,
    /// Fates of packets, as the sender saw them.
    pub trace: Trace,
    /// The outcome in figures.
    pub summary: Summary,
}

/// A change of the path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathChange {
    /// When.
    pub t_s: f64,
    /// `fwd` (the data's direction), `bwd` or `both`.
    pub target: String,
    /// Settings, as `loss=0 rate=20mbit`.
    pub change: String,
}

/// Rate and losses of a link from some time on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkStep {
    /// From when.
    pub t_s: f64,
    /// Rate in bits per second; `None` is infinite.
    pub rate_bps: Option<u64>,
    /// Mean share of packets that the wire loses, 0 to 1.
    pub loss: f64,
    /// Mean length of a burst of losses, in packets; 1 if they are independent.
    pub burst: f64,
}

/// Outcome of an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It had not been agreed when the copy ended.
    #[default]
    Pending,
    /// The new profile was in force.
    Agreed,
    /// The peer refused, for this reason.
    Refused(String),
    /// The peer did not answer.
    Failed,
}

/// An exchange of mechanisms.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Exchange {
    /// `client` or `server`: the end that asked.
    pub end: String,
    /// The direction as that end names it.
    pub direction: String,
    /// The epoch that it led to.
    pub epoch: u64,
    /// When it was asked for.
    pub t_s: f64,
    /// From the first request to the agreement, in milliseconds.
    pub took_ms: Option<f64>,
    /// Observation that led to it, in words.
    pub seen: String,
    /// Change that it makes, in words.
    pub changes: String,
    /// Expectation of it, in words.
    pub expects: String,
    /// Effect of it, in words; empty if nothing was reported.
    pub brought: String,
    /// Outcome of the exchange.
    pub outcome: Outcome,
}

/// A profile in use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileUse {
    /// From when.
    pub t_s: f64,
    /// The profile, as `congestion=cubic fec=xor`.
    pub profile: String,
}

/// Reports of an end, as columns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// When.
    pub t_s: Vec<f64>,
    /// Bytes of the file that had been carried.
    pub bytes: Vec<u64>,
    /// Smoothed round-trip time in milliseconds.
    pub rtt_ms: Vec<Option<f64>>,
    /// Share of packets lost, 0 to 1, as the end estimates it.
    pub loss: Vec<Option<f64>>,
}

/// Samples of a link, as columns; counters are since the relay's start.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Queue {
    /// When.
    pub t_s: Vec<f64>,
    /// Packets in the queue.
    pub packets: Vec<u64>,
    /// Packets dropped as the queue was full.
    pub dropped_queue: Vec<u64>,
    /// Packets lost on the wire.
    pub dropped_loss: Vec<u64>,
    /// UDP payload that arrived, in bytes.
    pub bytes_delivered: Vec<u64>,
}

/// Fates of packets, a series for each kind of event.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Trace {
    /// Packets sent with data that had not been sent before, or with none.
    pub sent: Points,
    /// Packets acknowledged.
    pub acked: Points,
    /// Packets found lost.
    pub lost: Points,
    /// Packets that repeat data.
    pub repeat: Points,
}

/// Packets, as columns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Points {
    /// When.
    pub t_s: Vec<f64>,
    /// The packet's number.
    pub number: Vec<u64>,
    /// Where its data begins in the flow, in bytes; `None` if it carries none or that is unknown.
    pub position: Vec<Option<u64>>,
}

/// The outcome of a copy in figures.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// From the client's first datagram to the report that the file has arrived, or to the end of
    /// what is cut short.
    pub duration_s: f64,
    /// The file's length; of what is cut short, what had arrived.
    pub payload_bytes: u64,
    /// Given up before all had arrived.
    #[serde(default)]
    pub is_cut_short: bool,
    /// Payload over duration, in bits per second.
    pub goodput_bps: f64,
    /// Bytes that the link could have carried in that time, headers included; `None` if unlimited.
    pub capacity_bytes: Option<f64>,
    /// The same less what its wire loses on average.
    pub capacity_after_loss_bytes: Option<f64>,
    /// Packets that the client sent.
    pub packets_sent: Option<u64>,
    /// Of these, the ones that repeated data.
    pub packets_repeated: Option<u64>,
    /// Packets that were lost and restored from redundancy.
    pub packets_repaired: Option<u64>,
    /// Packets of the data's direction that the wire lost.
    pub lost_on_wire: u64,
    /// Packets of the data's direction that the full queue dropped.
    pub dropped_by_queue: u64,
    /// SHA-256 of what arrived, in hexadecimal.
    pub sha256: String,
}

impl Summary {
    /// Goodput as a share of what the link could carry.
    pub fn share(&self) -> Option<f64> {
        share(self.payload_bytes, self.capacity_bytes)
    }

    /// Goodput as a share of what the link could carry past its mean loss.
    pub fn share_after_loss(&self) -> Option<f64> {
        share(self.payload_bytes, self.capacity_after_loss_bytes)
    }
}

impl Exchange {
    /// True if it concerns the data that the client sends, as the file is, and not the way back.
    pub fn governs_data(&self) -> bool {
        !matches!((self.end.as_str(), self.direction.as_str()), ("client", "in") | ("server", "out"))
    }
}

impl Run {
    /// Another transport carried as many bytes, and not the file.
    pub fn is_of_another(&self) -> bool {
        !matches!(self.name.as_str(), "adaptive" | "fixed")
    }

    /// Exchanges that came into force.
    pub fn agreed(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.iter().filter(|e| e.outcome == Outcome::Agreed)
    }

    /// Changes of the path after which, before the next change, no exchange was requested for the
    /// data that came into force.
    pub fn unanswered_changes(&self) -> Vec<&PathChange> {
        let ends = self.changes.iter().skip(1).map(|c| c.t_s).chain([f64::INFINITY]);
        let phases = self.changes.iter().zip(ends);
        let answered = |(change, end): &(&PathChange, f64)| self.exchanged_within(change.t_s, *end);
        phases.filter(|phase| !answered(phase)).map(|(change, _)| change).collect()
    }

    /// The path's first change, if no exchange answered it, other changes were answered, and an
    /// exchange came into force before it. Losses in slow start may then have led to the profile
    /// that the change asks for.
    pub fn anticipated_change(&self) -> Option<&PathChange> {
        let first = self.changes.first()?;
        let unanswered = self.unanswered_changes();
        let is_the_only = unanswered == [first] && self.changes.len() > 1;
        (is_the_only && self.exchanged_within(0.0, first.t_s)).then_some(first)
    }

    fn exchanged_within(&self, from: f64, to: f64) -> bool {
        self.agreed().any(|e| e.governs_data() && e.t_s >= from && e.t_s < to)
    }
}

fn share(payload_bytes: u64, capacity_bytes: Option<f64>) -> Option<f64> {
    capacity_bytes.filter(|c| *c > 0.0).map(|capacity| payload_bytes as f64 / capacity)
}

/// Writes the record into `dir`, which is made if missing.
///
/// # Errors
/// The file or the directory cannot be written.
pub fn write(dir: &Path, record: &Record) -> Result<()> {
    record_file::write(dir, DATA_FILE, record)
}

/// Reads the record of `dir`.
///
/// # Errors
/// It is missing, is not a record, or is one of another version.
pub fn load(dir: &Path) -> Result<Record> {
    record_file::load(dir, DATA_FILE, FORMAT, "the record of a demonstration")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(t_s: f64) -> PathChange {
        PathChange { t_s, target: "fwd".into(), change: "loss=0".into() }
    }

    fn exchange(t_s: f64, outcome: Outcome) -> Exchange {
        Exchange { t_s, outcome, ..Exchange::default() }
    }

    #[test]
    fn an_exchange_answers_the_change_before_it_if_it_came_into_force() {
        let mut run = Run { changes: vec![change(1.0), change(2.0)], ..Run::default() };
        let unanswered = |run: &Run| run.unanswered_changes().iter().map(|c| c.t_s).collect::<Vec<_>>();
        assert_eq!(unanswered(&run), [1.0, 2.0]);
        run.exchanges = vec![exchange(0.9, Outcome::Agreed), exchange(2.5, Outcome::Agreed)];
        assert_eq!(unanswered(&run), [1.0]);
        run.exchanges.push(exchange(1.5, Outcome::Failed));
        assert_eq!(unanswered(&run), [1.0]);
        let way_back =
            Exchange { end: "client".into(), direction: "in".into(), ..exchange(1.6, Outcome::Agreed) };
        run.exchanges.push(way_back);
        assert_eq!(unanswered(&run), [1.0]);
        run.exchanges.push(exchange(1.6, Outcome::Agreed));
        assert!(unanswered(&run).is_empty());
    }

    #[test]
    fn an_exchange_before_the_first_change_may_have_anticipated_it() {
        let mut run = Run { changes: vec![change(1.0), change(2.0)], ..Run::default() };
        run.exchanges = vec![exchange(0.9, Outcome::Agreed)];
        assert_eq!(run.anticipated_change(), None, "nor was the second answered");
        run.exchanges = vec![exchange(2.5, Outcome::Agreed)];
        assert_eq!(run.anticipated_change(), None, "nothing came before it");
        run.exchanges.push(exchange(0.9, Outcome::Failed));
        assert_eq!(run.anticipated_change(), None, "it came to nothing");
        run.exchanges.push(exchange(0.9, Outcome::Agreed));
        assert_eq!(run.anticipated_change().map(|c| c.t_s), Some(1.0));
        run.exchanges.push(exchange(1.5, Outcome::Agreed));
        assert_eq!(run.anticipated_change(), None, "it was answered");
        let alone = Run {
            changes: vec![change(1.0)],
            exchanges: vec![exchange(0.9, Outcome::Agreed)],
            ..Run::default()
        };
        assert_eq!(alone.anticipated_change(), None, "nothing was answered");
    }

    #[test]
    fn a_share_needs_a_capacity() {
        let summary = Summary { payload_bytes: 50, capacity_bytes: Some(100.0), ..Summary::default() };
        assert_eq!((summary.share(), summary.share_after_loss()), (Some(0.5), None));
    }
}
