//! Limits of the resets that leave: each reset is a hint to whoever looks for a word, and work for
//! nothing to whoever floods.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};
use uts_functions::Time;

/// Resets are counted for this long.
const SPAN: Duration = Duration::from_secs(1);

/// Resets to all, in a span: the clients of a server that was restarted learn of it within seconds,
/// and 43 kB leave at most.
const RESETS_MAX: u32 = 1000;

/// Resets to one source, in a span: more tell it nothing.
const RESETS_PER_SOURCE_MAX: u8 = 8;

/// Counters of sources. Sources that share one share its resets.
const SOURCES: usize = 1024;

/// The resets of the current span.
pub(super) struct ResetLimit {
    /// Nobody else knows which sources share a counter.
    seed: u64,
    since: Time,
    all: u32,
    by_source: Vec<u8>,
}

impl ResetLimit {
    pub fn new(seed: u64) -> Self {
        ResetLimit { seed, since: Time::ZERO, all: 0, by_source: Vec::new() }
    }

    /// True if another reset may leave to this address. It counts once it is [noted](Self::note).
    pub fn allows(&mut self, now: Time, remote: SocketAddr) -> bool {
        if now.since(self.since) >= SPAN {
            self.since = now;
            self.all = 0;
            // The memory is made for the first, and goes with what nobody asks for.
            self.by_source = Vec::new();
        }
        let at = self.place(remote);
        self.all < RESETS_MAX && self.by_source.get(at).is_none_or(|count| *count < RESETS_PER_SOURCE_MAX)
    }

    /// One leaves.
    pub fn note(&mut self, remote: SocketAddr) {
        let at = self.place(remote);
        self.by_source.resize(SOURCES, 0);
        self.all += 1;
        if let Some(count) = self.by_source.get_mut(at) {
            *count += 1;
        }
    }

    /// Counter of an address. Of IPv6 the first 64 bits count: a host that has one such address has
    /// all that begin alike.
    fn place(&self, remote: SocketAddr) -> usize {
        let source = match remote.ip().to_canonical() {
            IpAddr::V4(ip) => u64::from(u32::from(ip)),
            IpAddr::V6(ip) => (u128::from(ip) >> 64) as u64,
        };
        (mix(source ^ self.seed) % SOURCES as u64) as usize
    }
}

/// Spreads a word over all its bits (the finalizer of SplitMix64; Steele, Lea and Flood, 2014).
fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(limit: &mut ResetLimit, now: Time, source: u32) -> bool {
        let is_allowed = limit.allows(now, SocketAddr::from((source.to_be_bytes(), 1)));
        if is_allowed {
            limit.note(SocketAddr::from((source.to_be_bytes(), 2)));
        }
        is_allowed
    }

    #[test]
    fn resets_are_limited_by_source_and_in_all_and_again_allowed_later() {
        let mut limit = ResetLimit::new(5);
        for second in 1..4 {
            let now = Time::from_millis(second * 1000);
            let one = (0..100).filter(|_| ask(&mut limit, now, 1)).count();
            assert_eq!(one, usize::from(RESETS_PER_SOURCE_MAX));
            let all = (2..100_000).filter(|source| ask(&mut limit, now, *source)).count();
            assert_eq!(one + all, RESETS_MAX as usize);
        }
    }
}
