//! The bottleneck's server: how much it transmits by when.

use crate::trace::{OPPORTUNITY_BYTES, Playback};

/// Work in units of 10^-9 bits, so that a nanosecond at r bit/s does exactly r units.
const UNITS_PER_BIT: u128 = 1_000_000_000;
const UNITS_PER_OPPORTUNITY: u64 = OPPORTUNITY_BYTES * 8_000_000_000;

/// Number of bits that may be transmitted.
#[derive(Debug, Clone)]
pub(crate) enum Supply {
    /// Any number at once.
    Infinite,
    /// This many a second.
    Rate(u64),
    /// This many at certain instants.
    Opportunities(Playback),
}

/// A server that has no queue of its own. It is asked when work would be done, and told that it was
/// done. Its answers are ideal instants, whenever it is asked.
#[derive(Debug)]
pub(crate) struct Server {
    supply: Supply,
    served_to_ns: u64,
    /// Work done by `served_to_ns` that no finished packet has used. Departures are whole
    /// nanoseconds: what the last one did too much counts for the next packet, so that the rate is
    /// exact in the long run.
    credit: u128,
}

impl Server {
    pub(crate) fn new(supply: Supply) -> Self {
        Server { supply, served_to_ns: 0, credit: 0 }
    }

    /// A packet has come to the idle server: what it could have done before is lost.
    pub(crate) fn wake(&mut self, now_ns: u64) {
        self.served_to_ns = now_ns;
        self.credit = 0;
        if let Supply::Opportunities(playback) = &mut self.supply {
            playback.seek(now_ns);
        }
    }

    /// When the next packet's first bit is transmitted.
    pub(crate) fn start_ns(&self) -> u64 {
        match &self.supply {
            Supply::Opportunities(playback) if self.credit == 0 => playback.time_ns(0),
            _ => self.served_to_ns,
        }
    }

    /// When the last of `bits` is.
    pub(crate) fn finish_ns(&self, bits: u64) -> u64 {
        let left = work(bits).saturating_sub(self.credit);
        match &self.supply {
            Supply::Infinite => self.served_to_ns,
            Supply::Rate(bps) => self.served_to_ns.saturating_add(div_ceil(left, (*bps).max(1))),
            Supply::Opportunities(_) if left == 0 => self.served_to_ns,
            Supply::Opportunities(playback) => playback.time_ns(div_ceil(left, UNITS_PER_OPPORTUNITY) - 1),
        }
    }

    /// The packet of `bits` has been transmitted, at the instant that `finish_ns` gave.
    pub(crate) fn finish(&mut self, at_ns: u64, bits: u64) {
        self.serve_to(at_ns);
        self.credit = self.credit.saturating_sub(work(bits));
    }

    /// Changes the supply at `now_ns`; a packet in transmission keeps what it has left.
    pub(crate) fn set_supply(&mut self, now_ns: u64, supply: Supply) {
        self.serve_to(now_ns);
        self.supply = supply;
    }

    /// Bits per second, in the mean; `None` is infinite.
    pub(crate) fn rate_bps(&self) -> Option<u64> {
        match &self.supply {
            Supply::Infinite => None,
            Supply::Rate(bps) => Some(*bps),
            Supply::Opportunities(playback) => Some(playback.mean_rate_bps()),
        }
    }

    /// Moves on to `at_ns`, by when no more than the packet in transmission needs is done.
    pub(crate) fn serve_to(&mut self, at_ns: u64) {
        let passed_ns = at_ns.saturating_sub(self.served_to_ns);
        match &mut self.supply {
            Supply::Infinite => {}
            Supply::Rate(bps) => self.credit += u128::from(passed_ns) * u128::from(*bps),
            Supply::Opportunities(playback) => {
                self.credit += u128::from(playback.take(at_ns)) * u128::from(UNITS_PER_OPPORTUNITY);
            }
        }
        self.served_to_ns += passed_ns;
    }
}

fn work(bits: u64) -> u128 {
    u128::from(bits) * UNITS_PER_BIT
}

/// Most dividends fit 64 bits, where a division is several times as fast.
fn div_ceil(dividend: u128, divisor: u64) -> u64 {
    match u64::try_from(dividend) {
        Ok(dividend) => dividend.div_ceil(divisor),
        Err(_) => u64::try_from(dividend.div_ceil(u128::from(divisor))).unwrap_or(u64::MAX),
    }
}
