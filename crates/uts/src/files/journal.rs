//! What a copy tells while it runs and what it leaves behind.

use super::client::Report;
use super::error::{Fault, FileError};
use super::message::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How one file ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOutcome {
    /// Copied, the hashes of both ends agree.
    Copied(Hash),
    /// It was already there: same size, time and hash.
    AlreadyThere(Hash),
    /// Not copied.
    Failed(FileError),
}

/// Who wants to know how a copy goes. Calls come from the tasks of the copy and must not block.
pub trait Progress: Send + Sync + 'static {
    /// What is to be done: known when the sources have been listed.
    fn planned(&self, files: u64, bytes: u64) {
        let _ = (files, bytes);
    }
    /// A file of `size` bytes begins, of which the receiver has the first `held`.
    fn began(&self, name: &[u8], size: u64, held: u64) {
        let _ = (name, size, held);
    }
    /// More content of a file went or came.
    fn moved(&self, name: &[u8], bytes: u64) {
        let _ = (name, bytes);
    }
    /// A file of `size` bytes is dealt with.
    fn ended(&self, name: &[u8], size: u64, outcome: &FileOutcome) {
        let _ = (name, size, outcome);
    }
    /// Something was left out.
    fn warned(&self, fault: &Fault) {
        let _ = fault;
    }
    /// At the end, if there were more failures and warnings than are told one by one: how many
    /// more.
    fn untold(&self, failures: u64, warnings: u64) {
        let _ = (failures, warnings);
    }
}

/// Nobody wants to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}

/// Failures, and warnings, that are told and kept one by one. A peer could name any number; the
/// rest is counted.
pub const TOLD_MAX: usize = 1000;

/// Collects the report of a copy and passes on its progress.
#[derive(Clone)]
pub(super) struct Journal {
    report: Arc<Mutex<Report>>,
    progress: Arc<dyn Progress>,
}

impl Journal {
    pub(super) fn new(progress: Arc<dyn Progress>) -> Self {
        Journal { report: Arc::default(), progress }
    }

    pub(super) fn planned(&self, files: u64, bytes: u64) {
        self.progress.planned(files, bytes);
    }

    pub(super) fn began(&self, name: &[u8], size: u64, held: u64) {
        self.progress.began(name, size, held);
    }

    pub(super) fn moved(&self, name: &[u8], bytes: u64) {
        self.lock().bytes_carried += bytes;
        self.progress.moved(name, bytes);
    }

    pub(super) fn ended(&self, name: &[u8], size: u64, outcome: FileOutcome) {
        let mut report = self.lock();
        let is_told = match &outcome {
            FileOutcome::Copied(hash) | FileOutcome::AlreadyThere(hash) => {
                match outcome {
                    FileOutcome::Copied(_) => report.files_copied += 1,
                    _ => report.files_already_there += 1,
                }
                report.bytes = report.bytes.saturating_add(size);
                report.hashes.push((name.to_vec(), *hash));
                true
            }
            FileOutcome::Failed(error) => {
                report.failed += 1;
                let is_kept = report.failures.len() < TOLD_MAX;
                if is_kept {
                    report.failures.push((name.to_vec(), error.clone()));
                }
                is_kept
            }
        };
        drop(report);
        if is_told {
            self.progress.ended(name, size, &outcome);
        }
    }

    /// Something other than the content of a file failed.
    pub(super) fn failed(&self, name: &[u8], error: FileError) {
        self.ended(name, 0, FileOutcome::Failed(error));
    }

    pub(super) fn warned(&self, fault: Fault) {
        let mut report = self.lock();
        report.warned += 1;
        if report.warnings.len() < TOLD_MAX {
            report.warnings.push(fault.clone());
            drop(report);
            self.progress.warned(&fault);
        }
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.lock());
    }

    pub(super) fn has_failures(&self) -> bool {
        let report = self.lock();
        !report.is_complete()
    }

    /// Whether nothing has been done or has failed so far.
    pub(super) fn is_empty(&self) -> bool {
        *self.lock() == Report::default()
    }

    pub(super) fn into_report(self) -> Report {
        let mut report = std::mem::take(&mut *self.lock());
        report.hashes.sort_unstable();
        let failures = report.failed - report.failures.len() as u64;
        let warnings = report.warned - report.warnings.len() as u64;
        if failures + warnings > 0 {
            self.progress.untold(failures, warnings);
        }
        report
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
