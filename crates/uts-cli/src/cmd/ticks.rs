//! Ticks for work that is done again and again while something else goes on.

use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Ticks a period apart, the first after one; none if there is no period.
pub struct Ticks(Option<Interval>);

impl Ticks {
    /// From now on.
    pub fn every(period: Option<Duration>) -> Self {
        Ticks(period.map(|period| {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            ticks.reset();
            ticks
        }))
    }

    /// Waits for the next.
    pub async fn next(&mut self) {
        match &mut self.0 {
            Some(ticks) => _ = ticks.tick().await,
            None => std::future::pending().await,
        }
    }
}
