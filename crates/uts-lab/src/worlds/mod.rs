//! Worlds: where a case runs.
//!
//! * [`sim`]: virtual time.
//! * [`relay`]: two processes on loopback, and a UDP relay between.
//! * [`router`]: hosts in network namespaces, behind RouterPC.
//! * [`ends`]: the processes that are the ends of a flow, and what they leave.
//!
//! Each world says beforehand what it cannot carry. It carries the rest, or says why it failed.

pub mod ends;
mod qlog;
pub mod relay;
pub mod router;
pub mod sim;

use crate::control::Controls;
use crate::experiment::case::Case;
use crate::experiment::file::WorldKind;
use crate::experiment::outcome::{Outcome, RunError};
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use uts_record::compressed;
use uts_record::run::Figure;

/// Resources of a run that a world carries.
#[derive(Debug)]
pub struct Room<'r> {
    /// A directory of the run's own, with the directory `samples` in it. Other files that are left
    /// there are kept.
    pub dir: &'r Path,
    /// Becomes true when the run is to end at once.
    pub stop: &'r AtomicBool,
    /// Where a world that runs in real time says that its paths can be changed.
    pub controls: &'r Controls,
}

impl Room<'_> {
    /// True if the run is to end at once.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Where cases run.
pub trait World: Send + Sync {
    /// Which world it is.
    fn kind(&self) -> WorldKind;

    /// Number of runs that there may be at a time.
    fn parallel(&self) -> usize;

    /// Why a case cannot be carried, if so: what of it, and what is lacking.
    fn refuses(&self, case: &Case) -> Option<String>;

    /// Carries a case.
    ///
    /// # Errors
    /// It was interrupted, or the world or the transport failed.
    fn run(&self, case: &Case, room: &Room<'_>) -> Result<Outcome, RunError>;
}

/// A world, if this machine has it.
///
/// # Errors
/// Why it has not.
pub fn open(kind: WorldKind, ends: &ends::Programs) -> Result<Box<dyn World>, String> {
    match kind {
        WorldKind::Relay => Ok(Box::new(relay::RelayWorld::new(ends.clone()))),
        WorldKind::Router => Ok(Box::new(router::RouterWorld::new(ends.clone())?)),
        WorldKind::Sim => Ok(Box::new(sim::SimWorld)),
    }
}

/// The reason if a world in real time cannot carry a case for its background traffic.
fn without_sources(case: &Case, world: &str) -> Option<String> {
    let source = case.sources.first()?;
    Some(format!(
        "the {world} has no background traffic, which is for the world sim (source.{})",
        source.name
    ))
}

/// The packets that passed the slowest link on the way of the first flow's data, in its direction.
#[derive(Debug, Default)]
struct Passed {
    sojourns_s: Vec<f64>,
    lengths: Vec<u64>,
}

impl Passed {
    /// One more: how long it was in the queue, and its length in bytes.
    fn add(&mut self, sojourn_s: f64, bytes: u64) {
        self.sojourns_s.push(sojourn_s);
        self.lengths.push(bytes);
    }

    /// Mean and 99th percentile (nearest rank) of the time that they were in the queue, how many
    /// they were, and how many of them were less than half as long as the longest.
    fn figures(mut self) -> Vec<Figure> {
        self.sojourns_s.sort_by(f64::total_cmp);
        let count = self.sojourns_s.len() as f64;
        let rank = (count * 0.99).ceil() as usize;
        let Some(p99) = self.sojourns_s.get(rank.saturating_sub(1)) else { return Vec::new() };
        let mean = self.sojourns_s.iter().sum::<f64>() / count;
        let longest = self.lengths.iter().max().copied().unwrap_or(0);
        let small = self.lengths.iter().filter(|bytes| **bytes < longest.div_ceil(2)).count();
        vec![
            Figure::new("", "queue_sojourn_mean", mean, "s"),
            Figure::new("", "queue_sojourn_p99", *p99, "s"),
            Figure::new("", "packets_passed", count, "1"),
            Figure::new("", "packets_small", small as f64, "1"),
        ]
    }
}

/// Lines of a CSV file, or of its compressed form, by their columns.
///
/// # Errors
/// It cannot be read, or a line has other columns.
pub fn read_rows<T: serde::de::DeserializeOwned>(file: &Path, mut take: impl FnMut(T)) -> Result<()> {
    let opened = compressed::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut reader = csv::Reader::from_reader(opened);
    for row in reader.deserialize() {
        take(row.with_context(|| file.display().to_string())?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 1500 bytes the half is 750, which is not small.
    #[test]
    fn small_packets_are_below_half_of_the_longest() {
        let mut passed = Passed::default();
        for bytes in [1500, 749, 750, 40, 1499] {
            passed.add(0.25, bytes);
        }
        let values: Vec<(String, f64)> =
            passed.figures().into_iter().map(|figure| (figure.name, figure.value)).collect();
        let expected = [
            ("queue_sojourn_mean", 0.25),
            ("queue_sojourn_p99", 0.25),
            ("packets_passed", 5.0),
            ("packets_small", 2.0),
        ];
        assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value)));
        assert!(Passed::default().figures().is_empty(), "nothing passed");
    }
}
