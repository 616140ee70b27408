//! Room on the disk for the runs to come, as those that have ended let expect: said before a sweep
//! fills the disk, and the sweep ends before it does.

use anyhow::{Result, bail};
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use uts_units::show;

/// Bytes that runs have left, and what was said of them.
#[derive(Debug, Default)]
pub struct Disk(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    runs: u64,
    bytes: u64,
    /// The most that one took before it had ended.
    largest: u64,
    is_told: bool,
    is_warned: bool,
}

/// A line of the outlook, and whether it is a warning.
#[derive(Debug, PartialEq, Eq)]
pub struct Outlook {
    /// The line.
    pub line: String,
    /// The runs to come will not fit.
    pub is_warning: bool,
}

impl Disk {
    /// A run has ended, and its directory is there; it took `most_bytes` at most before it was
    /// compressed, if it was. `to_come` more are to be done, `at_once` at a time. Gives a line if
    /// there is something to say: with the first run, and when the rest will not fit.
    ///
    /// # Errors
    /// There is no room for the next runs.
    pub fn on_run(
        &self,
        run: &Path,
        most_bytes: u64,
        to_come: usize,
        at_once: usize,
    ) -> Result<Option<Outlook>> {
        // A disk that does not say how much is free is trusted.
        let free = rustix::fs::statvfs(run).map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = bytes_of(run);
        known.on_run(bytes, most_bytes.max(bytes), to_come as u64, at_once as u64, free)
    }
}

impl Known {
    fn on_run(
        &mut self,
        bytes: u64,
        most_bytes: u64,
        to_come: u64,
        at_once: u64,
        free: u64,
    ) -> Result<Option<Outlook>> {
        self.runs += 1;
        self.bytes += bytes;
        self.largest = self.largest.max(most_bytes);
        let next = self.largest.saturating_mul(at_once.min(to_come));
        if free < next {
            bail!(
                "the disk is full: {} are free, and the next runs may take {}; the same command continues",
                show::bytes(free),
                show::bytes(next)
            );
        }
        let each = self.bytes / self.runs;
        let all = each.saturating_mul(to_come);
        let is_warning = free < all;
        let is_due = if is_warning { !self.is_warned } else { !self.is_told };
        if to_come == 0 || !is_due {
            return Ok(None);
        }
        self.is_told = true;
        self.is_warned |= is_warning;
        let (each, all) = (show::bytes(each), show::bytes(all));
        let end = match (is_warning, free) {
            (true, _) => format!(", and only {} are free", show::bytes(free)),
            (false, u64::MAX) => String::new(),
            (false, _) => format!("; {} are free", show::bytes(free)),
        };
        Ok(Some(Outlook {
            line: format!("disk     {each} a run, {all} for the {to_come} to come{end}"),
            is_warning,
        }))
    }
}

/// Bytes of the files below a directory. What cannot be read counts as none.
fn bytes_of(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    #[test]
    fn the_outlook_is_told_once_and_a_warning_when_it_comes() {
        let mut known = Known::default();
        let told = known.on_run(2 * MB, 2 * MB, 9, 2, 100 * MB).unwrap().expect("the first run says it");
        assert_eq!(told.line, "disk     2.0 MB a run, 18.0 MB for the 9 to come; 100.0 MB are free");
        assert!(!told.is_warning);
        assert_eq!(known.on_run(2 * MB, 2 * MB, 8, 2, 98 * MB).unwrap(), None);
        let told = known.on_run(20 * MB, 20 * MB, 7, 2, 45 * MB).unwrap().expect("it will not fit");
        assert_eq!(told.line, "disk     8.0 MB a run, 56.0 MB for the 7 to come, and only 45.0 MB are free");
        assert!(told.is_warning);
        assert_eq!(known.on_run(2 * MB, 2 * MB, 6, 2, 43 * MB).unwrap(), None);
        let full = known.on_run(2 * MB, 2 * MB, 5, 2, 39 * MB).unwrap_err().to_string();
        assert!(full.contains("39.0 MB are free") && full.contains("40.0 MB"), "{full}");
        // What is compressed in the end has to have room before.
        let full = known.on_run(2 * MB, 90 * MB, 5, 1, 80 * MB).unwrap_err().to_string();
        assert!(full.contains("80.0 MB are free") && full.contains("90.0 MB"), "{full}");
        // The last needs no more.
        assert_eq!(known.on_run(2 * MB, 2 * MB, 0, 2, 0).unwrap(), None);
    }

    #[test]
    fn all_files_of_a_run_count() {
        let run = tempfile::tempdir().unwrap();
        fs::create_dir(run.path().join("samples")).unwrap();
        fs::write(run.path().join("run.json"), [0; 10]).unwrap();
        fs::write(run.path().join("samples/x.csv"), [0; 100]).unwrap();
        assert_eq!(bytes_of(run.path()), 110);
        assert!(Disk::default().on_run(run.path(), 0, 1, 1).unwrap().is_some());
    }
}
