//! Packet numbers that are left out, so that a peer which acknowledges what it has not received
//! gives itself away (RFC 9000 section 21.4; retransmission.md R-10).

/// The first number is left out within 2^5 packets: a peer that lies is found before it has gained
/// a first window.
const EXPONENT_MIN: u32 = 5;

/// Later ones are farther apart, up to 2^12 packets: each costs the receiver a gap in its reports
/// for a while.
const EXPONENT_MAX: u32 = 12;

/// The latest that are remembered. Reports reach back no further in practice, and a liar meets the
/// newest first.
const REMEMBERED: usize = 2;

/// Packet numbers that are left out.
#[derive(Clone, Debug)]
pub(super) struct Skips {
    seed: u64,
    /// Number of packet numbers that were left out.
    count: u32,
    /// From this number on the next is left out.
    at: u64,
    /// The latest, in a ring; `u64::MAX` where there is none, which no range holds.
    latest: [u64; REMEMBERED],
}

impl Skips {
    /// None is left out.
    pub const fn none() -> Self {
        Skips { seed: 0, count: 0, at: u64::MAX, latest: [u64::MAX; REMEMBERED] }
    }

    /// Leaves out numbers that only an end with the seed can tell.
    pub fn new(seed: u64) -> Self {
        let mut skips = Skips { seed, ..Self::none() };
        skips.at = skips.distance();
        skips
    }

    /// True if `next` is to be left out; notes it then.
    pub fn takes(&mut self, next: u64) -> bool {
        if next < self.at {
            return false;
        }
        self.latest[self.count as usize % REMEMBERED] = next;
        self.count = self.count.wrapping_add(1);
        self.at = next.saturating_add(1).saturating_add(self.distance());
        true
    }

    /// Number of packets from `next` on before a number is left out.
    pub const fn before_next(&self, next: u64) -> u64 {
        self.at.saturating_sub(next)
    }

    /// True if a range holds a number that was left out.
    pub fn meets(&self, range: &core::ops::Range<u64>) -> bool {
        self.latest.iter().any(|number| range.contains(number))
    }

    /// Number of packets before the next number that is left out.
    fn distance(&self) -> u64 {
        let exponent = (EXPONENT_MIN + self.count).min(EXPONENT_MAX);
        // The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
        let mut mixed = self.seed.wrapping_add(u64::from(self.count).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) >> (u64::BITS - exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_left_out_early_and_then_less_often() {
        for seed in 0..200 {
            let mut skips = Skips::new(seed);
            let mut skipped = Vec::new();
            let mut next = 0;
            while next < 100_000 {
                assert_eq!(skips.before_next(next) == 0, skips.clone().takes(next));
                if skips.takes(next) {
                    assert!(skips.meets(&(next..next + 1)));
                    skipped.push(next);
                }
                next += 1;
            }
            assert!(skipped[0] < 32, "seed {seed}: {skipped:?}");
            assert!((20..100).contains(&skipped.len()), "seed {seed}: {skipped:?}");
            assert!(skipped.windows(2).all(|pair| pair[1] - pair[0] <= 1 + (1 << EXPONENT_MAX)));
            let newest = &skipped[skipped.len() - REMEMBERED..];
            assert!(newest.iter().all(|number| skips.meets(&(*number..number + 1))));
            assert!(!skips.meets(&(0..newest[0])));
        }
    }

    #[test]
    fn seeds_leave_out_different_numbers() {
        let firsts: std::collections::BTreeSet<u64> = (0..1000).map(|seed| Skips::new(seed).at).collect();
        assert_eq!(firsts.len(), 32);
    }
}
