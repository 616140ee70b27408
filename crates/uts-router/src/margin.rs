//! Margin of time by which the data path is awake before a packet is due.

/// The most that it is awake before a packet is due, however late it has been woken.
const MARGIN_NS_MAX: u64 = 200_000;

/// Beyond what sleeps took too long.
const SPARE_NS: u64 = 20_000;

/// The share of the margin that is forgotten with each sleep. Of sleeps as late as one in a
/// hundred, one is remembered until the next.
const FORGOTTEN: u64 = 256;

/// Time by which to be awake before a packet is due. Sleeps last longer than requested, by 50 us on
/// a virtual machine, and by some hundreds once in a while. The recent excess is added to the
/// margin.
#[derive(Debug)]
pub(super) struct Margin {
    least_ns: u64,
    ns: u64,
}

impl Margin {
    /// One of at least `least_ns`; of none if that is zero.
    pub(super) fn new(least_ns: u64) -> Self {
        Margin { least_ns, ns: least_ns }
    }

    pub(super) fn ns(&self) -> u64 {
        self.ns
    }

    /// A sleep has lasted for this much longer than it was to.
    pub(super) fn overslept(&mut self, by_ns: u64) {
        if self.least_ns == 0 {
            return;
        }
        let wanted = by_ns.saturating_add(SPARE_NS).min(MARGIN_NS_MAX);
        self.ns = (self.ns - self.ns / FORGOTTEN).max(wanted).max(self.least_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_follows_what_sleeps_take() {
        let mut margin = Margin::new(70_000);
        margin.overslept(10_000);
        assert_eq!(margin.ns(), 70_000);
        margin.overslept(150_000);
        assert_eq!(margin.ns(), 170_000);
        for _ in 0..100 {
            margin.overslept(30_000);
        }
        assert!((100_000..120_000).contains(&margin.ns()), "{}", margin.ns());
        margin.overslept(u64::MAX);
        assert_eq!(margin.ns(), MARGIN_NS_MAX);
        for _ in 0..2_000 {
            margin.overslept(0);
        }
        assert_eq!(margin.ns(), 70_000);
    }

    #[test]
    fn who_is_never_to_be_awake_is_not() {
        let mut margin = Margin::new(0);
        margin.overslept(300_000);
        assert_eq!(margin.ns(), 0);
    }
}
