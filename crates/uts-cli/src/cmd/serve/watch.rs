//! News that a server tells of itself, from time to time.

use crate::ui::Ui;
use crate::ui::bounded::{Bounded, TELL_EVERY};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{Interval, MissedTickBehavior, interval};
use uts_end::memory;
use uts_ledger::{Ledger, Row};

/// Time between two looks at what is held.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Times that memory is given back after the load has fallen: for a minute.
const LOOKS_AFTER: u32 = 12;

/// Looks at the ledger.
pub struct Watch {
    ledger: Ledger,
    told: Vec<Row>,
    ticks: Interval,
    looked: u32,
    load: Load,
}

/// Number of clients that there were, as far as that is of concern to memory that was freed.
#[derive(Debug, Default)]
struct Load {
    most: usize,
    /// Times that memory is still to be given back: connections are forgotten some time after their
    /// end.
    left: u32,
}

impl Load {
    /// So many clients are there.
    fn rises_to(&mut self, clients: usize) {
        self.most = self.most.max(clients);
    }

    /// True if memory is to be given back to the system: what clients held that are gone.
    fn has_fallen(&mut self, clients: usize) -> bool {
        self.rises_to(clients);
        if clients <= self.most / 2 && self.most > 0 {
            (self.most, self.left) = (clients, LOOKS_AFTER);
        }
        let is_due = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_due
    }
}

impl Watch {
    /// At this one.
    pub fn new(ledger: &Ledger) -> Self {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Watch { ledger: ledger.clone(), told: ledger.rows(), ticks, looked: 0, load: Load::default() }
    }

    /// A client has come: so many are there. Many may come and go between two looks.
    pub fn on_client(&mut self, clients: usize) {
        self.load.rises_to(clients);
    }

    /// Waits until it is time to look.
    pub async fn next(&mut self) {
        self.ticks.tick().await;
    }

    /// Tells what is held, if that has changed, and how many lines were left out. Where many of the
    /// clients are gone, gives back what was held for them.
    pub fn tell(&mut self, ui: &dyn Ui, left_out: &Bounded, clients: usize) {
        if self.load.has_fallen(clients) {
            // It may take a while where much was held.
            drop(spawn_blocking(memory::give_back));
        }
        let rows = self.ledger.rows();
        if rows != self.told {
            ui.ledger(&rows);
            self.told = rows;
        }
        self.looked += 1;
        if LOOK_EVERY * self.looked >= TELL_EVERY {
            self.looked = 0;
            left_out.tell_left_out();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_for_a_minute_after_the_load_has_fallen() {
        let mut load = Load::default();
        assert!(!load.has_fallen(0));
        assert!(!load.has_fallen(500) && !load.has_fallen(300));
        let after = (0..100).filter(|_| load.has_fallen(200)).count();
        assert_eq!(after, LOOKS_AFTER as usize);
        assert!(load.has_fallen(90) && load.has_fallen(91));
        // So it is where clients came and went between two looks.
        let mut load = Load::default();
        load.rises_to(40);
        assert!(load.has_fallen(0));
    }
}
