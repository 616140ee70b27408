//! Numbers of datagrams as they arrive: how many are missing (as RFC 3550 appendix A.3).

/// A step beyond this, forward or back, is another sender.
const STEP_MAX: u32 = 1 << 16;

/// Counts of a receiver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    /// The first and the highest number of this sender, and how many came.
    of_sender: Option<(u64, u64, u64)>,
    /// Datagrams that senders before it sent, and how many of them came.
    before: (u64, u64),
}

impl Numbers {
    /// A datagram has come.
    pub fn on_arrival(&mut self, number: u32) {
        // Far enough from the end that what is older has a place.
        const BEGIN: u64 = 1 << 32;
        let Some((first, highest, received)) = &mut self.of_sender else {
            let first = BEGIN + u64::from(number);
            self.of_sender = Some((first, first, 1));
            return;
        };
        let step = number.wrapping_sub(*highest as u32).cast_signed();
        if step.unsigned_abs() > STEP_MAX {
            self.before = (self.sent(), self.received());
            self.of_sender = None;
            return self.on_arrival(number);
        }
        let place = highest.saturating_add_signed(step.into());
        *first = place.min(*first);
        *highest = place.max(*highest);
        *received += 1;
    }

    /// Datagrams that were sent, as far as numbers tell.
    pub fn sent(&self) -> u64 {
        self.before.0 + self.of_sender.map_or(0, |(first, highest, _)| highest - first + 1)
    }

    /// Datagrams that came.
    pub fn received(&self) -> u64 {
        self.before.1 + self.of_sender.map_or(0, |(.., received)| received)
    }

    /// Datagrams that did not come.
    pub fn missing(&self) -> u64 {
        self.sent().saturating_sub(self.received())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: impl IntoIterator<Item = u32>) -> (u64, u64, u64) {
        let mut numbers = Numbers::default();
        all.into_iter().for_each(|number| numbers.on_arrival(number));
        (numbers.sent(), numbers.received(), numbers.missing())
    }

    #[test]
    fn gaps_are_missing_in_any_order_and_beyond_the_bits() {
        assert_eq!(of([]), (0, 0, 0));
        assert_eq!(of(5..15), (10, 10, 0));
        assert_eq!(of([5, 6, 9, 7]), (5, 4, 1));
        assert_eq!(of([9, 5]), (5, 2, 3));
        assert_eq!(of([0, u32::MAX, 1]), (3, 3, 0));
        assert_eq!(of((0..20).map(|n| u32::MAX - 9 + (n % 10)).chain(0..4).skip(10)), (14, 14, 0));
    }

    #[test]
    fn another_sender_is_no_gap() {
        let other = 1_000_000;
        assert_eq!(of((0..10).chain(other..other + 10)), (20, 20, 0));
        assert_eq!(of((other..other + 10).chain([0, 2])), (13, 12, 1));
    }
}
