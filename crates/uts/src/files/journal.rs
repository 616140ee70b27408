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
}

/// Nobody wants to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}

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
        self.progress.ended(name, size, &outcome);
        let mut report = self.lock();
        match outcome {
            FileOutcome::Copied(hash) => {
                report.files_copied += 1;
                report.bytes = report.bytes.saturating_add(size);
                report.hashes.push((name.to_vec(), hash));
            }
            FileOutcome::AlreadyThere(hash) => {
                report.files_already_there += 1;
                report.bytes = report.bytes.saturating_add(size);
                report.hashes.push((name.to_vec(), hash));
            }
            FileOutcome::Failed(error) => report.failures.push((name.to_vec(), error)),
        }
    }

    /// Something other than the content of a file failed.
    pub(super) fn failed(&self, name: &[u8], error: FileError) {
        self.ended(name, 0, FileOutcome::Failed(error));
    }

    pub(super) fn warned(&self, fault: Fault) {
        self.progress.warned(&fault);
        self.lock().warnings.push(fault);
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.lock());
    }

    pub(super) fn has_failures(&self) -> bool {
        let report = self.lock();
        !report.failures.is_empty() || report.broken.is_some()
    }

    pub(super) fn into_report(self) -> Report {
        let mut report = std::mem::take(&mut *self.lock());
        report.hashes.sort_unstable();
        report
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
