//! As many bytes by another transport over the same path, for comparison.

use super::plan::{LinkHistory, Plan, capacity_bytes};
use anyhow::{Context, Result};
use std::fmt::Debug;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use uts_path::{Change, Schedule, Setting, Target};
use uts_record::demo::{PathChange, Progress, Queue, Run, Summary};

/// A transport that people use, and a world in which it meets the path.
pub trait Beside: Debug {
    /// Its name, as [`Run::name`] has it.
    fn name(&self) -> &'static str;

    /// The words for people.
    fn heading(&self) -> &'static str;

    /// Carries the bytes until they have arrived or the limit is reached.
    ///
    /// # Errors
    /// It failed, or `stop`.
    fn carry(&self, job: &Job<'_>) -> Result<Carried>;
}

/// A task for another transport.
#[derive(Clone, Copy, Debug)]
pub struct Job<'j> {
    /// Bytes to carry.
    pub bytes: u64,
    /// Both ways of the path at the start. Packets are counted with their headers.
    pub settings: &'j Change,
    /// Changes of the path.
    pub schedule: &'j Schedule,
    /// Seed of the path's random decisions.
    pub seed: u64,
    /// It is cut short after this long.
    pub limit: Duration,
    /// Ends it early.
    pub stop: &'j AtomicBool,
}

/// Outcome of a task. Times are seconds since it began.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// The command that does it again, or what was done.
    pub command: String,
    /// Changes of the path: when, which ways, and what.
    pub changes: Vec<(f64, Target, Change)>,
    /// Bytes that had arrived, over time.
    pub arrived: Vec<(f64, u64)>,
    /// The queue of the link that carried the data.
    pub queue: Queue,
    /// Packets that were sent.
    pub packets_sent: Option<u64>,
    /// Of these, the ones that repeated data.
    pub packets_repeated: Option<u64>,
    /// Packets that the wire lost.
    pub lost_on_wire: u64,
    /// Packets that the full queue dropped.
    pub dropped_by_queue: u64,
}

impl Carried {
    /// The same as a run of the demonstration.
    pub(super) fn into_run(self, name: &str, job: &Job<'_>, plan: &Plan) -> Run {
        let bytes = self.arrived.last().map_or(0, |(_, bytes)| *bytes);
        let is_cut_short = bytes < job.bytes;
        let done_s = self.arrived.last().map(|(t_s, _)| *t_s).filter(|_| !is_cut_short);
        let duration_s = done_s.unwrap_or(job.limit.as_secs_f64()).max(1e-6);
        let mut history = LinkHistory::new(plan.link.clone(), 0.0);
        let mut changes = Vec::new();
        for (t_s, target, change) in self.changes {
            history.change(t_s, target, &change);
            changes.push(PathChange { t_s, target: target.keyword().into(), change: change.to_string() });
        }
        let (t_s, bytes_over_time) = self.arrived.into_iter().unzip();
        let summary = Summary {
            duration_s,
            payload_bytes: bytes,
            is_cut_short,
            goodput_bps: bytes as f64 * 8.0 / duration_s,
            capacity_bytes: capacity_bytes(&history.steps, duration_s, false),
            capacity_after_loss_bytes: capacity_bytes(&history.steps, duration_s, true),
            packets_sent: self.packets_sent,
            packets_repeated: self.packets_repeated,
            packets_repaired: None,
            lost_on_wire: self.lost_on_wire,
            dropped_by_queue: self.dropped_by_queue,
            sha256: String::new(),
        };
        Run {
            name: name.into(),
            commands: vec![self.command],
            changes,
            link: history.steps,
            received: Progress { t_s, bytes: bytes_over_time, ..Progress::default() },
            queue: self.queue,
            summary,
            ..Run::default()
        }
    }
}

/// Settings under which packets that are counted with their headers meet the same path.
///
/// # Errors
/// They make no sense.
pub(super) fn whole_packets(settings: &Change) -> Result<Change> {
    let is_kept = |setting: &&Setting| !matches!(setting, Setting::Overhead(_));
    let kept = settings.settings().iter().filter(is_kept).cloned().collect();
    Change::new(kept).context("the path's settings")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(arrived: Vec<(f64, u64)>, bytes: u64) -> Run {
        let plan = Plan::new(60_000, false).unwrap();
        let settings = whole_packets(&plan.settings).unwrap();
        let stop = AtomicBool::new(false);
        let limit = Duration::from_secs(10);
        let job = Job { bytes, settings: &settings, schedule: &plan.schedule, seed: 1, limit, stop: &stop };
        let change = &plan.schedule.entries[0];
        let changes = vec![(1.0, change.target, change.change.clone())];
        Carried { arrived, changes, ..Carried::default() }.into_run("tcp", &job, &plan)
    }

    #[test]
    fn what_is_not_done_is_cut_short_at_the_limit() {
        let run = carried(vec![(0.5, 20_000), (9.0, 30_000)], 60_000);
        assert!(run.summary.is_cut_short);
        assert_eq!((run.summary.duration_s, run.summary.payload_bytes), (10.0, 30_000));
        assert!((run.summary.goodput_bps - 24_000.0).abs() < 1e-6);
        let run = carried(vec![(0.5, 20_000), (9.0, 60_000)], 60_000);
        assert!(!run.summary.is_cut_short);
        assert_eq!((run.summary.duration_s, run.link.len(), run.changes.len()), (9.0, 2, 1));
        assert!(carried(Vec::new(), 60_000).summary.is_cut_short);
    }

    #[test]
    fn headers_are_counted_once() {
        let plan = Plan::new(60_000, false).unwrap();
        let whole = whole_packets(&plan.settings).unwrap().to_string();
        assert!(!whole.contains("overhead") && whole.contains("buffer=64p"), "{whole}");
        assert!(plan.settings.to_string().contains("overhead=28"));
    }
}
