//! Progress of a copy while it runs, and the report that it leaves behind.

use super::client::{CopyOptions, InPlace, Report};
use super::error::{Fault, FileError};
use super::message::{Entry, Hash, Mtime};
use super::stream::Moved;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uts_ledger::Payer;

/// Outcome for one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOutcome {
    /// Copied, the hashes of both ends agree.
    Copied(Hash),
    /// It was already there: same size, time and hash.
    AlreadyThere(Hash),
    /// A dry run would copy it.
    Wanted,
    /// A dry run found it there, by size and time.
    Kept,
    /// Deleted, because the source does not have it.
    Deleted,
    /// A dry run would delete it.
    Superfluous,
    /// Not copied, or not deleted.
    Failed(FileError),
}

/// Listener to the progress of a copy. Calls come from the tasks of the copy and must not block.
pub trait Progress: Send + Sync + 'static {
    /// Number of files and of bytes that are to be copied: known when the sources have been listed.
    fn planned(&self, files: u64, bytes: u64) {
        let _ = (files, bytes);
    }
    /// A file of `size` bytes begins, of which the receiver has the first `held`.
    fn began(&self, name: &[u8], size: u64, held: u64) {
        let _ = (name, size, held);
    }
    /// A file waits: somebody else is copying it.
    fn waits(&self, fault: &Fault) {
        let _ = fault;
    }
    /// More content of a file went or came, holes included.
    fn moved(&self, name: &[u8], bytes: u64) {
        let _ = (name, bytes);
    }
    /// A file of `size` bytes is dealt with.
    fn ended(&self, name: &[u8], size: u64, outcome: &FileOutcome) {
        let _ = (name, size, outcome);
    }
    /// A request of a client was refused, or failed; of a file, which has not begun.
    fn refused(&self, fault: &Fault) {
        let _ = fault;
    }
    /// Something was left out.
    fn warned(&self, fault: &Fault) {
        let _ = fault;
    }
    /// A file is in place since an earlier part of this copy, and was reported then.
    fn again(&self, name: &[u8], size: u64) {
        let _ = (name, size);
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
    /// For whom things are held here: the server.
    pub(super) payer: Payer,
    report: Arc<Mutex<Report>>,
    /// Files that earlier parts of the copy have put in place, by name.
    earlier: Arc<BTreeMap<Vec<u8>, InPlace>>,
    /// Files that they have sent, without hearing that these arrived.
    interrupted: Arc<BTreeSet<Vec<u8>>>,
    under_way: Arc<Mutex<BTreeSet<Vec<u8>>>>,
    progress: Arc<dyn Progress>,
}

impl Journal {
    /// Journal of a copy, which begins where an earlier part of it was broken off.
    pub(super) fn new(options: &CopyOptions) -> Self {
        let mut report = Report::default();
        let (mut earlier, mut interrupted) = (BTreeMap::new(), BTreeSet::new());
        if let Some(before) = &options.earlier {
            report.bytes_carried = before.bytes_carried;
            report.bytes_literal = before.bytes_literal;
            report.bytes_matched = before.bytes_matched;
            report.deleted = before.deleted;
            interrupted = before.interrupted.iter().cloned().collect();
            earlier = before.in_place.iter().map(|file| (file.name.clone(), file.clone())).collect();
        }
        Journal {
            payer: options.ledger.payer("the server"),
            report: Arc::new(Mutex::new(report)),
            earlier: Arc::new(earlier),
            interrupted: Arc::new(interrupted),
            under_way: Arc::default(),
            progress: options.progress.clone(),
        }
    }

    /// True if an earlier part of this copy has put the file in place; then it is counted.
    pub(super) fn has_been_copied(&self, name: &[u8], size: u64, mtime: Mtime) -> bool {
        let Some(file) = self.earlier.get(name).filter(|file| (file.size, file.mtime) == (size, mtime))
        else {
            return false;
        };
        self.lock().count(file.clone());
        self.progress.began(name, size, size);
        self.progress.again(name, size);
        true
    }

    pub(super) fn planned(&self, files: u64, bytes: u64) {
        self.progress.planned(files, bytes);
    }

    pub(super) fn began(&self, name: &[u8], size: u64, held: u64) {
        self.under_way().insert(name.to_vec());
        self.progress.began(name, size, held);
    }

    pub(super) fn moved(&self, name: &[u8], moved: Moved) {
        let mut report = self.lock();
        report.bytes_carried += moved.carried;
        report.bytes_literal += moved.literal;
        report.bytes_matched += moved.matched;
        drop(report);
        self.progress.moved(name, moved.bytes);
    }

    pub(super) fn waits(&self, fault: &Fault) {
        self.progress.waits(fault);
    }

    pub(super) fn ended(&self, name: &[u8], size: u64, mtime: Mtime, outcome: FileOutcome) {
        self.under_way().remove(name);
        let outcome = match outcome {
            // It got there by this copy, of which only the last word was lost.
            FileOutcome::AlreadyThere(hash) if self.interrupted.contains(name) => FileOutcome::Copied(hash),
            outcome => outcome,
        };
        let mut report = self.lock();
        let in_place = |hash: Option<&Hash>, was_there| InPlace {
            name: name.to_vec(),
            size,
            mtime,
            hash: hash.copied(),
            was_there,
        };
        let is_told = match &outcome {
            FileOutcome::Copied(hash) => {
                report.count(in_place(Some(hash), false));
                true
            }
            FileOutcome::AlreadyThere(hash) => {
                report.count(in_place(Some(hash), true));
                true
            }
            FileOutcome::Kept => {
                report.count(in_place(None, true));
                true
            }
            FileOutcome::Wanted => {
                report.files_wanted += 1;
                report.bytes_wanted = report.bytes_wanted.saturating_add(size);
                true
            }
            FileOutcome::Deleted => {
                report.deleted += 1;
                true
            }
            FileOutcome::Superfluous => {
                report.superfluous += 1;
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
        self.ended(name, 0, Mtime::default(), FileOutcome::Failed(error));
    }

    /// Something of the goal was deleted.
    pub(super) fn deleted(&self, name: &[u8], entry: &Entry) {
        self.ended(name, entry.size, entry.mtime, FileOutcome::Deleted);
    }

    /// Something of the goal would be deleted.
    pub(super) fn superfluous(&self, name: &[u8], entry: &Entry) {
        self.ended(name, entry.size, entry.mtime, FileOutcome::Superfluous);
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

    /// True if nothing has been done or has failed so far.
    pub(super) fn is_empty(&self) -> bool {
        let report = self.lock();
        let Report { bytes_carried, bytes_literal, bytes_matched, deleted, placement, .. } = *report;
        let before =
            Report { bytes_carried, bytes_literal, bytes_matched, deleted, placement, ..Report::default() };
        *report == before
    }

    pub(super) fn into_report(self) -> Report {
        let mut report = std::mem::take(&mut *self.lock());
        report.in_place.sort_unstable();
        if report.broken.is_some() {
            let before =
                self.interrupted.iter().filter(|name| !report.has(name)).cloned().collect::<Vec<_>>();
            report.interrupted = self.under_way().iter().cloned().chain(before).collect();
        }
        let failures = report.failed - report.failures.len() as u64;
        let warnings = report.warned - report.warnings.len() as u64;
        if failures + warnings > 0 {
            self.progress.untold(failures, warnings);
        }
        report
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeSet<Vec<u8>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Report {
    /// True if a file is in place, once all are sorted by name.
    fn has(&self, name: &[u8]) -> bool {
        self.in_place.binary_search_by(|file| file.name.as_slice().cmp(name)).is_ok()
    }

    fn count(&mut self, file: InPlace) {
        if file.was_there {
            self.files_already_there += 1;
        } else {
            self.files_copied += 1;
        }
        self.bytes = self.bytes.saturating_add(file.size);
        self.in_place.push(file);
    }
}
