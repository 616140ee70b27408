//! A policer: a rate that is kept without a queue.
//!
//! A token bucket (RFC 2697 with one burst): bytes beyond the rate and what was saved up are
//! dropped at once. Routers of providers and mobile networks hold subscribers to their rate so. A
//! sender sees losses without a round trip that grows before them.

use super::{Arrival, QueueDiscipline, Verdict};
use crate::error::SpecError;
use crate::parse::parse_rate;
use crate::passage::DropReason;
use rand_chacha::ChaCha8Rng;
use std::fmt;
use uts_units::show;

/// Settings of a policer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Police {
    /// Rate that passes in the long run, in bits per second; above 0.
    pub rate_bps: u64,
    /// Burst that passes at once, in bytes, 1 to 1 GiB. A packet that is bigger never passes.
    pub burst_bytes: u64,
}

/// The largest burst.
const BURST_MAX_BYTES: u64 = 1 << 30;

impl Police {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        if self.rate_bps == 0 {
            return Err(SpecError::new("queue", "RATE of police must be above 0"));
        }
        if !(1..=BURST_MAX_BYTES).contains(&self.burst_bytes) {
            return Err(SpecError::new("queue", "BURST of police must be 1 B to 1 GiB"));
        }
        Ok(())
    }

    pub(super) fn parse(arguments: &str) -> Result<Self, String> {
        let (rate, burst) =
            arguments.split_once(',').ok_or("must be police:RATE,BURST as in police:10mbit,64kB")?;
        let burst_bytes =
            uts_units::size(burst).map_err(|error| error.or("BURST of police must be bytes as in 64kB"))?;
        Ok(Police { rate_bps: parse_rate(rate)?, burst_bytes })
    }
}

impl fmt::Display for Police {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "police:{},{}", show::path_rate(self.rate_bps), show::size(self.burst_bytes))
    }
}

/// The bucket is full at first.
#[derive(Debug)]
pub(super) struct PoliceQueue {
    settings: Police,
    /// Credit for packets, in billionths of a bit.
    tokens: u128,
    filled_ns: u64,
}

impl PoliceQueue {
    pub(super) fn new(settings: Police) -> Self {
        PoliceQueue { settings, tokens: Self::depth(settings), filled_ns: 0 }
    }

    fn depth(settings: Police) -> u128 {
        u128::from(settings.burst_bytes) * 8_000_000_000
    }
}

impl QueueDiscipline for PoliceQueue {
    fn on_arrival(&mut self, arrival: &Arrival, _: &mut dyn FnMut() -> bool, _: &mut ChaCha8Rng) -> Verdict {
        let since_ns = arrival.now_ns.saturating_sub(self.filled_ns);
        self.filled_ns = self.filled_ns.max(arrival.now_ns);
        let gained = u128::from(since_ns) * u128::from(self.settings.rate_bps);
        self.tokens = self.tokens.saturating_add(gained).min(Self::depth(self.settings));
        match self.tokens.checked_sub(u128::from(arrival.bytes) * 8_000_000_000) {
            Some(left) => {
                self.tokens = left;
                Verdict::PASS
            }
            None => Verdict::Drop(DropReason::Policed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    /// Packets of 1000 bytes, one each `gap_us` for `ms`: how many pass.
    fn passed(queue: &mut PoliceQueue, from_ms: u64, ms: u64, gap_us: u64) -> usize {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let arrivals = (0..ms * 1000 / gap_us).map(|n| (from_ms * 1000 + n * gap_us) * 1000);
        arrivals
            .filter(|&now_ns| {
                let arrival =
                    Arrival { now_ns, bytes: 1000, queue_packets: 0, queue_bytes: 0, rate_bps: None };
                queue.on_arrival(&arrival, &mut || true, &mut rng) == Verdict::PASS
            })
            .count()
    }

    #[test]
    fn the_rate_and_a_burst_pass() {
        let mut queue = PoliceQueue::new(Police::parse("8mbit,10kB").expect("settings"));
        // 8 Mbit/s are a packet each ms; 10 are there from the start. Ten times as many come.
        assert_eq!(passed(&mut queue, 0, 1000, 100), 10 + 999);
        // A pause saves up the burst and no more.
        assert_eq!(passed(&mut queue, 60_000, 1000, 100), 10 + 999);
        // What keeps to the rate passes whole.
        assert_eq!(passed(&mut queue, 100_000, 1000, 1000), 1000);
    }

    #[test]
    fn what_is_bigger_than_the_burst_never_passes() {
        let mut queue = PoliceQueue::new(Police::parse("8mbit,900B").expect("settings"));
        assert_eq!(passed(&mut queue, 0, 1000, 1000), 0);
    }
}
