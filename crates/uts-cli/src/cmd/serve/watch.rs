//! What a server tells of itself, from time to time.

use crate::ui::Ui;
use crate::ui::bounded::{Bounded, TELL_EVERY};
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};
use uts::ledger::{Ledger, Row};

/// How often it is looked what is held.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Looks at the ledger.
pub struct Watch {
    ledger: Ledger,
    told: Vec<Row>,
    ticks: Interval,
    looked: u32,
}

impl Watch {
    /// At this one.
    pub fn new(ledger: &Ledger) -> Self {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Watch { ledger: ledger.clone(), told: ledger.rows(), ticks, looked: 0 }
    }

    /// Waits until it is time to look.
    pub async fn next(&mut self) {
        self.ticks.tick().await;
    }

    /// Tells what is held, if that has changed, and how many lines were left out.
    pub fn tell(&mut self, ui: &dyn Ui, left_out: &Bounded) {
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
