//! Counts what moves, and tells a [`Ui`] of files, figures and exchanges of one connection.

use super::ticks::Ticks;
use crate::link::{Link, LinkEvent, Telemetry};
use crate::ui::{Sample, Ui};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;
use uts::files::path::show;
use uts::files::{Fault, FaultKind, FileOutcome, Progress};

/// Progress of one connection.
pub struct Meter<L> {
    link: L,
    ui: Arc<dyn Ui>,
    /// Whose, for a server.
    peer: Option<String>,
    /// Handed over, or arrived here.
    bytes: AtomicU64,
    /// The most of it that was known to be delivered.
    delivered: AtomicU64,
    total: AtomicU64,
    /// In place.
    files: AtomicU64,
    files_total: AtomicU64,
    failures: AtomicU64,
    exchanges: AtomicU64,
    /// The file of which something moved last.
    name: Mutex<Vec<u8>>,
}

impl<L: Link> Meter<L> {
    /// Begins at nothing.
    pub fn new(link: L, ui: Arc<dyn Ui>, peer: Option<String>) -> Arc<Self> {
        let zero = AtomicU64::default;
        Arc::new(Meter {
            link,
            ui,
            peer,
            bytes: zero(),
            delivered: zero(),
            total: zero(),
            files: zero(),
            files_total: zero(),
            failures: zero(),
            exchanges: zero(),
            name: Mutex::default(),
        })
    }

    /// Figures of the connection now.
    pub fn telemetry(&self) -> Telemetry {
        let mut telemetry = self.link.telemetry();
        telemetry.exchanges = telemetry.exchanges.max(self.exchanges.load(Relaxed));
        telemetry
    }

    /// Bytes that have arrived: what waits to be sent, or is under way, has not.
    fn delivered(&self) -> u64 {
        if let Some(undelivered) = self.link.undelivered_bytes() {
            let delivered = self.bytes.load(Relaxed).saturating_sub(undelivered);
            self.delivered.fetch_max(delivered, Relaxed);
        }
        self.delivered.load(Relaxed)
    }

    /// Files in all, as far as they are known.
    pub fn files_total(&self) -> u64 {
        self.files_total.load(Relaxed)
    }

    /// Tells how far it is.
    pub fn sample(&self) {
        let sample = Sample {
            bytes: self.delivered(),
            total: self.total.load(Relaxed),
            files: self.files.load(Relaxed),
            files_total: self.files_total(),
            failures: self.failures.load(Relaxed),
            name: show(&self.name.lock().unwrap_or_else(PoisonError::into_inner)),
            telemetry: self.telemetry(),
        };
        self.ui.sample(self.peer.as_deref(), &sample);
    }

    /// Notes the file that something is done with.
    fn note(&self, name: &[u8]) {
        let mut noted = self.name.lock().unwrap_or_else(PoisonError::into_inner);
        if *noted != name {
            noted.clear();
            noted.extend_from_slice(name);
        }
    }

    /// Samples and passes on exchanges until aborted or the connection ends.
    pub fn run(self: &Arc<Self>) -> JoinHandle<()> {
        let meter = self.clone();
        let mut events = self.link.events();
        tokio::spawn(async move {
            let mut ticks = Ticks::every(meter.ui.period());
            let mut sampled = 0;
            loop {
                tokio::select! {
                    event = events.recv() => match event {
                        Some(LinkEvent::Exchange(step)) => {
                            if step.step == "completed" {
                                meter.exchanges.fetch_add(1, Relaxed);
                            }
                            meter.ui.exchange(meter.peer.as_deref(), &step);
                        }
                        Some(LinkEvent::Closed(_)) | None => return,
                        Some(event) => if let Some((kind, line)) = event.notice() {
                            meter.ui.notice(meter.peer.as_deref(), kind, &line);
                        }
                    },
                    () = ticks.next() => {
                        // A server is silent about clients that do nothing.
                        let bytes = meter.delivered();
                        if meter.peer.is_none() || bytes != sampled {
                            sampled = bytes;
                            meter.sample();
                        }
                    }
                }
            }
        })
    }
}

impl<L: Link> Progress for Meter<L> {
    fn planned(&self, files: u64, bytes: u64) {
        self.files_total.store(files, Relaxed);
        self.total.store(bytes, Relaxed);
        self.sample();
    }

    fn began(&self, name: &[u8], size: u64, held: u64) {
        self.note(name);
        self.bytes.fetch_add(held, Relaxed);
        if self.peer.is_some() {
            self.total.fetch_add(size, Relaxed);
            self.files_total.fetch_add(1, Relaxed);
        }
    }

    fn moved(&self, name: &[u8], bytes: u64) {
        self.note(name);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn ended(&self, name: &[u8], size: u64, outcome: &FileOutcome) {
        let counted = match outcome {
            FileOutcome::Failed(_) => Some(&self.failures),
            FileOutcome::Copied(_) | FileOutcome::AlreadyThere(_) | FileOutcome::Kept => Some(&self.files),
            // It is not in place.
            FileOutcome::Wanted => None,
        };
        if let Some(counted) = counted {
            counted.fetch_add(1, Relaxed);
        }
        let name = show(name);
        self.ui.file(self.peer.as_deref(), &name, size, outcome, &self.telemetry());
        if let (FileOutcome::Failed(error), None) = (outcome, &self.peer)
            && error.fault().is_none_or(|fault| fault.kind != FaultKind::Unread)
        {
            self.ui.error(&error.to_string());
        }
    }

    fn again(&self, _: &[u8], _: u64) {
        self.files.fetch_add(1, Relaxed);
    }

    fn waits(&self, fault: &Fault) {
        self.ui.notice(self.peer.as_deref(), "waiting", &format!("{fault}; waiting for it"));
    }

    fn warned(&self, fault: &Fault) {
        self.ui.warning(&fault.to_string());
    }

    fn untold(&self, failures: u64, warnings: u64) {
        self.failures.fetch_add(failures, Relaxed);
        if warnings > 0 {
            self.ui.warning(&format!("{warnings} more, which are not told one by one"));
        }
        if failures > 0 {
            self.ui.error(&format!("{failures} more failures, which are not told one by one"));
        }
    }
}
