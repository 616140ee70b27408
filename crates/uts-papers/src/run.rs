//! Carries out a paper's units on several cores, and keeps what is done.

use crate::paper::{Paper, Results, Unit};
use crate::reference::is_meant;
use anyhow::{Context, Result};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::path::Path;
use std::sync::Mutex;
use uts_record::reproduction::{Column, FORMAT, UnitFile};

/// Program and version that make the files of units.
const MADE_BY: &str = concat!("uts-papers ", env!("CARGO_PKG_VERSION"));

/// Settings of a reproduction.
pub struct Config<'a> {
    /// Where units are kept.
    pub dir: &'a Path,
    /// Cores to use, at least 1.
    pub jobs: usize,
    /// Units that were kept are done again.
    pub again: bool,
    /// Only these places, in the form of [`is_meant`]; all if there are none.
    pub places: &'a [String],
    /// Set to end in order: units that are under way are finished and kept.
    pub stop: &'a AtomicBool,
    /// Told of each unit that is done: how many are, and of how many.
    pub tell: &'a (dyn Fn(usize, usize) + Sync),
}

impl Paper {
    /// The places of the paper that units are for, each once, in their order.
    pub fn places(&self) -> Vec<&str> {
        let mut places = Vec::new();
        for place in self.units.iter().flat_map(|unit| &unit.places) {
            if !places.contains(&place.as_str()) {
                places.push(place.as_str());
            }
        }
        places
    }

    /// Does what is wanted and not yet kept; `None` if it was stopped before the end.
    ///
    /// # Errors
    /// A unit fails, or cannot be kept.
    pub fn run(&self, config: &Config<'_>) -> Result<Option<Results>> {
        let is_wanted = |unit: &&Unit| {
            let meant = |place: &String| config.places.iter().any(|by| is_meant(place, by));
            config.places.is_empty() || unit.places.iter().any(meant)
        };
        let wanted: Vec<&Unit> = self.units.iter().filter(is_wanted).collect();
        let mut results = Results::default();
        let mut missing = Vec::new();
        for unit in &wanted {
            match UnitFile::read(config.dir, &unit.name, MADE_BY).filter(|_| !config.again) {
                Some(file) => {
                    let series = file.series.into_iter().map(|(name, column)| (name, column.0)).collect();
                    results.0.insert(unit.name.clone(), series);
                }
                None => missing.push(*unit),
            }
        }
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(wanted.len() - missing.len()));
        let (kept, failed) = (Mutex::new(Vec::new()), Mutex::new(None));
        let work = || {
            while let Some(unit) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                if config.stop.load(Ordering::Relaxed) || lock(&failed).is_some() {
                    return;
                }
                match carry_out(unit, config.dir) {
                    Ok(series) => lock(&kept).push((unit.name.clone(), series)),
                    Err(error) => _ = lock(&failed).get_or_insert(error),
                }
                (config.tell)(done.fetch_add(1, Ordering::Relaxed) + 1, wanted.len());
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..config.jobs.clamp(1, missing.len().max(1)) {
                scope.spawn(work);
            }
        });
        if let Some(error) = lock(&failed).take() {
            return Err(error);
        }
        results.0.extend(core::mem::take(&mut *lock(&kept)));
        Ok((results.0.len() == wanted.len()).then_some(results))
    }
}

fn carry_out(unit: &Unit, dir: &Path) -> Result<crate::paper::Series> {
    let series = (unit.work)().with_context(|| format!("the unit {}", unit.name))?;
    let columns = series.iter().map(|(name, column)| (name.clone(), Column(column.clone()))).collect();
    let file = UnitFile { format: FORMAT, made_by: MADE_BY.to_owned(), series: columns };
    file.write(dir, &unit.name)?;
    Ok(series)
}

/// A unit that panics takes the whole run with it.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
