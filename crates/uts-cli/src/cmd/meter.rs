//! Counts what moves, and tells a [`Ui`] of files, figures and exchanges of one connection.

use super::ticks::Ticks;
use crate::link::{ExchangeStep, Link, LinkEvent, Sentence, Telemetry};
use crate::mapping;
use crate::ui::record::{Peer, Record};
use crate::ui::{Sample, Ui};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::task::JoinHandle;
use uts_files::path::show;
use uts_files::{Fault, FaultKind, FileOutcome, Progress};

/// Progress of one connection.
pub struct Meter<L> {
    link: L,
    ui: Arc<dyn Ui>,
    /// Whose, for a server.
    peer: Option<Peer>,
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
    /// The last exchange, in the words of who asked for it.
    last: Mutex<Sentence>,
    /// Somebody who counts exchanges.
    told: OnceLock<OnExchange>,
}

/// Told of each step of an exchange.
type OnExchange = Box<dyn Fn(&ExchangeStep) + Send + Sync>;

/// A client's connection, as an operator may look at it and change it.
pub trait Seen: Send + Sync + 'static {
    /// Its figures.
    fn figures(&self) -> Telemetry;
    /// Bytes of content that have come in, and that have gone out.
    fn content_bytes(&self) -> [u64; 2];
    /// The last exchange.
    fn sentence(&self) -> Sentence;
    /// Properties of what is sent to it.
    fn properties(&self) -> Value;
    /// Difference between the numbers by which the two ends write mechanisms.
    fn numbers_difference(&self) -> Option<String>;
    /// Asks a property of what is sent to it from now on.
    ///
    /// # Errors
    /// Why that cannot be asked.
    fn set(&self, name: &str, value: &str) -> Result<(), String>;
}

impl<L: Link> Seen for Meter<L> {
    fn figures(&self) -> Telemetry {
        self.telemetry()
    }

    fn content_bytes(&self) -> [u64; 2] {
        self.link.content_bytes()
    }

    fn sentence(&self) -> Sentence {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn properties(&self) -> Value {
        self.link
            .connection()
            .map_or_else(|| json!([]), |connection| json!(connection.requirements().settings()))
    }

    fn numbers_difference(&self) -> Option<String> {
        mapping::difference(&self.link.connection()?)
    }

    fn set(&self, name: &str, value: &str) -> Result<(), String> {
        let connection = self.link.connection().ok_or("this transport has no properties")?;
        connection.set_property(name, value).map_err(|error| error.to_string())
    }
}

impl<L: Link> Meter<L> {
    /// Begins at nothing.
    pub fn new(link: L, ui: Arc<dyn Ui>, peer: Option<Peer>) -> Arc<Self> {
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
            last: Mutex::default(),
            told: OnceLock::new(),
        })
    }

    /// Has somebody hear of exchanges. The first who wants to does.
    pub fn on_exchange(&self, told: impl Fn(&ExchangeStep) + Send + Sync + 'static) {
        let _ = self.told.set(Box::new(told));
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
        self.ui.sample(self.peer.as_ref(), &sample);
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
                            meter.last.lock().unwrap_or_else(PoisonError::into_inner).note(&step);
                            if let Some(told) = meter.told.get() {
                                told(&step);
                            }
                            meter.ui.exchange(meter.peer.as_ref(), &step);
                        }
                        Some(LinkEvent::Closed(_)) | None => return,
                        Some(event) => if let Some((kind, line)) = event.notice() {
                            meter.ui.notice(meter.peer.as_ref(), kind, &line);
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
            FileOutcome::Wanted | FileOutcome::Deleted | FileOutcome::Superfluous => None,
        };
        if let Some(counted) = counted {
            counted.fetch_add(1, Relaxed);
        }
        let name = show(name);
        self.ui.file(self.peer.as_ref(), &name, size, outcome, &self.telemetry());
        if let (FileOutcome::Failed(error), None) = (outcome, &self.peer)
            && error.fault().is_none_or(|fault| fault.kind != FaultKind::Unread)
        {
            self.ui.error(&error.to_string());
        }
    }

    fn refused(&self, fault: &Fault) {
        let (peer, place) = (self.peer.as_ref(), &show(&fault.path));
        let (event, step, line) = ("request", "refused", &fault.why);
        self.ui.record(&Record { event, step, peer, place, line, ..Record::default() });
    }

    fn again(&self, _: &[u8], _: u64) {
        self.files.fetch_add(1, Relaxed);
    }

    fn waits(&self, fault: &Fault) {
        self.ui.notice(self.peer.as_ref(), "waiting", &format!("{fault}; waiting for it"));
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
