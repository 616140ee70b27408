//! Lines of a log that peers can cause: so many in a minute, and then one line that says how many
//! were left out.

use super::log::LIBRARY;
use super::record::{Peer, Record};
use super::{Done, Sample, Start, Ui};
use crate::link::{ExchangeStep, Telemetry};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use uts_files::FileOutcome;
use uts_ledger::{Ledger, Resource, Row};

/// Passes on what peers cause as far as the ledger has room for lines of theirs.
pub struct Bounded {
    ui: Arc<dyn Ui>,
    ledger: Ledger,
    left_out: AtomicU64,
}

/// Lines that the other end of a tunnel can cause in a minute.
pub const LINES_MAX: usize = 600;

/// Time between two lines that tell how many lines were left out.
pub const TELL_EVERY: Duration = Duration::from_secs(60);

impl Bounded {
    /// Lines go to `ui`.
    pub fn new(ui: Arc<dyn Ui>, ledger: &Ledger) -> Arc<Self> {
        Arc::new(Bounded { ui, ledger: ledger.clone(), left_out: AtomicU64::new(0) })
    }

    /// Lines of a program that has no ledger for its peers: so many in a minute. Tells by itself
    /// how many were left out. Must be called within a runtime.
    pub fn alone(ui: Arc<dyn Ui>, lines: usize) -> Arc<Self> {
        let bounded = Bounded::new(ui, &Ledger::of(Resource::Lines, lines, false));
        let told = Arc::downgrade(&bounded);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TELL_EVERY).await;
                let Some(bounded) = told.upgrade() else { return };
                bounded.tell_left_out();
            }
        });
        bounded
    }

    /// Tells how many lines were left out since it was told last, if any.
    pub fn tell_left_out(&self) {
        match self.left_out.swap(0, Relaxed) {
            0 => {}
            1 => self.ui.notice(None, "left out", "1 line more about clients is not told"),
            count => {
                self.ui.notice(None, "left out", &format!("{count} lines more about clients are not told"));
            }
        }
    }

    /// True if there is room for a line of this payer; of none, there always is.
    fn may(&self, payer: Option<&str>) -> bool {
        let may = payer.is_none_or(|payer| self.ledger.payer(payer).may_write_line());
        if !may {
            self.left_out.fetch_add(1, Relaxed);
        }
        may
    }

    /// True if there is room for a line of a client. It is known without its port: who comes again
    /// is the same.
    fn may_of(&self, peer: Option<&Peer>) -> bool {
        self.may(peer.map(Peer::host))
    }
}

impl Ui for Bounded {
    fn start(&self, start: &Start) {
        self.ui.start(start);
    }

    fn notice(&self, peer: Option<&Peer>, step: &str, line: &str) {
        self.record(&Record { step, peer, line, ..Record::default() });
    }

    fn record(&self, record: &Record<'_>) {
        // Libraries tell what peers cause without saying which.
        let payer = if record.event == LIBRARY { Some(LIBRARY) } else { record.peer.map(Peer::host) };
        if self.ui.wants(record) && self.may(payer) {
            self.ui.record(record);
        }
    }

    fn wants(&self, record: &Record<'_>) -> bool {
        self.ui.wants(record)
    }

    fn sample(&self, peer: Option<&Peer>, sample: &Sample) {
        self.ui.sample(peer, sample);
    }

    fn exchange(&self, peer: Option<&Peer>, step: &ExchangeStep) {
        if self.may_of(peer) {
            self.ui.exchange(peer, step);
        }
    }

    fn file(&self, peer: Option<&Peer>, name: &str, bytes: u64, outcome: &FileOutcome, about: &Telemetry) {
        // A file that has gone or come has cost its client something.
        let is_failure = matches!(outcome, FileOutcome::Failed(_));
        if !is_failure || self.may_of(peer) {
            self.ui.file(peer, name, bytes, outcome, about);
        }
    }

    fn warning(&self, line: &str) {
        self.ui.warning(line);
    }

    fn error(&self, line: &str) {
        self.ui.error(line);
    }

    fn failed(&self, line: &str) {
        self.ui.failed(line);
    }

    fn done(&self, done: &Done) {
        self.ui.done(done);
    }

    fn ledger(&self, rows: &[Row]) {
        self.ui.ledger(rows);
    }

    fn period(&self) -> Option<Duration> {
        self.ui.period()
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::tests::{Kept, log};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_one_client_causes_is_bounded_and_others_are_told_of() {
        let kept = Kept::default();
        let ledger = Ledger::of(Resource::Lines, 40, true);
        let ui = Bounded::new(Arc::new(log(&kept, "info")), &ledger);
        let lines =
            || kept.take().iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect::<Vec<_>>();
        let say = |step: &str, address: &str, line: &str| {
            let peer = Peer { address: address.to_owned(), ..Peer::default() };
            ui.record(&Record { event: "connection", step, peer: Some(&peer), line, ..Record::default() });
        };
        for port in 0..1000 {
            say("refused", &format!("192.0.2.1:{port}"), "it has too many connections");
        }
        let first = lines();
        assert!((20..40).contains(&first.len()), "{}", first.len());
        say("connected", "192.0.2.2:1", "");
        assert_eq!(lines(), ["192.0.2.2:1 connected"]);
        ui.tell_left_out();
        let left_out = 1000 - first.len();
        assert_eq!(lines(), [format!("{left_out} lines more about clients are not told")]);
        ui.tell_left_out();
        assert_eq!(lines().len(), 0);
        tokio::time::sleep(TELL_EVERY).await;
        say("refused", "192.0.2.1:5", "again");
        assert_eq!(lines().len(), 1);
    }

    /// Lines that are not shown take no room from those that are.
    #[tokio::test(start_paused = true)]
    async fn lines_that_are_not_shown_cost_nothing() {
        let kept = Kept::default();
        let ledger = Ledger::of(Resource::Lines, 40, true);
        let ui = Bounded::new(Arc::new(log(&kept, "info")), &ledger);
        let peer = Peer::client("192.0.2.1:1", None, "");
        let record =
            |level| Record { level, event: "stream", step: "opened", peer: Some(&peer), ..Record::default() };
        (0..1000).for_each(|_| ui.record(&record(tracing::Level::DEBUG)));
        ui.record(&record(tracing::Level::INFO));
        assert_eq!(kept.take().len(), 1);
    }
}
