//! Lines of a log that peers can cause: so many in a minute, and then one line that says how many
//! were left out.

use super::{Done, Sample, Start, Ui};
use crate::link::{ExchangeStep, Telemetry};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use uts::files::FileOutcome;
use uts::ledger::{Ledger, Row};

/// Passes on what peers cause as far as the ledger has room for lines of theirs.
pub struct Bounded {
    ui: Arc<dyn Ui>,
    ledger: Ledger,
    left_out: AtomicU64,
}

/// Time between two lines that tell how many lines were left out.
pub const TELL_EVERY: Duration = Duration::from_secs(60);

impl Bounded {
    /// Lines go to `ui`.
    pub fn new(ui: Arc<dyn Ui>, ledger: &Ledger) -> Arc<Self> {
        Arc::new(Bounded { ui, ledger: ledger.clone(), left_out: AtomicU64::new(0) })
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

    fn may(&self, peer: Option<&str>) -> bool {
        // Without its port: who comes again is the same.
        let host = |peer: &str| peer.rsplit_once(':').map_or(peer, |(host, _)| host).to_owned();
        let may = peer.is_none_or(|peer| self.ledger.payer(&host(peer)).may_write_line());
        if !may {
            self.left_out.fetch_add(1, Relaxed);
        }
        may
    }
}

impl Ui for Bounded {
    fn start(&self, start: &Start) {
        self.ui.start(start);
    }

    fn notice(&self, peer: Option<&str>, step: &str, line: &str) {
        if self.may(peer) {
            self.ui.notice(peer, step, line);
        }
    }

    fn connection(&self, step: &str, peer: &str, line: &str) {
        if self.may(Some(peer)) {
            self.ui.connection(step, peer, line);
        }
    }

    fn sample(&self, peer: Option<&str>, sample: &Sample) {
        self.ui.sample(peer, sample);
    }

    fn exchange(&self, peer: Option<&str>, step: &ExchangeStep) {
        if self.may(peer) {
            self.ui.exchange(peer, step);
        }
    }

    fn file(&self, peer: Option<&str>, name: &str, bytes: u64, outcome: &FileOutcome, telemetry: &Telemetry) {
        // A file that has gone or come has cost its client something.
        let is_failure = matches!(outcome, FileOutcome::Failed(_));
        if !is_failure || self.may(peer) {
            self.ui.file(peer, name, bytes, outcome, telemetry);
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
    use super::super::plain::Plain;
    use super::*;
    use std::io::Write;
    use std::sync::Mutex;
    use uts::ledger::Resource;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(data)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_client_causes_is_bounded_and_others_are_told_of() {
        let kept = Kept::default();
        let ledger = Ledger::of(Resource::Lines, 40, true);
        let ui = Bounded::new(Arc::new(Plain::new(kept.clone(), std::io::sink(), false)), &ledger);
        let lines = || {
            let text = std::mem::take(&mut *kept.0.lock().unwrap());
            String::from_utf8(text).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        };
        for port in 0..1000 {
            ui.connection("refused", &format!("192.0.2.1:{port}"), "it has too many connections");
        }
        let first = lines();
        assert!((20..40).contains(&first.len()), "{}", first.len());
        ui.connection("connected", "192.0.2.2:1", "");
        assert_eq!(lines(), ["192.0.2.2:1 connected"]);
        ui.tell_left_out();
        let left_out = 1000 - first.len();
        assert_eq!(lines(), [format!("{left_out} lines more about clients are not told")]);
        ui.tell_left_out();
        assert_eq!(lines().len(), 0);
        tokio::time::sleep(TELL_EVERY).await;
        ui.connection("refused", "192.0.2.1:5", "again");
        assert_eq!(lines().len(), 1);
    }
}
