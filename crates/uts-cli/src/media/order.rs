//! Datagrams in the order of their numbers. They are handed over by their media times, which are as
//! exact as the clocks of the ends between: of two that were made at about the same time, either
//! may come first.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Time that a datagram waits for one before it. Chosen: what an end is late, when it is busy.
const WAIT: Duration = Duration::from_millis(20);

/// Datagrams that wait, at the most, and the largest step of numbers: beyond, it is another sender.
const WAITING_MAX: usize = 512;
const STEP_MAX: u32 = 1 << 16;

/// Datagrams of one sender that are put in order.
#[derive(Debug, Default)]
pub struct Order {
    /// The number behind the last that was handed over.
    next: Option<u32>,
    /// Datagrams by how far they are beyond that.
    waiting: BTreeMap<u32, (Bytes, Instant)>,
}

impl Order {
    /// Takes a datagram in, and hands over what is in order now.
    pub fn push(&mut self, number: u32, datagram: Bytes, now: Instant, out: &mut Vec<Bytes>) {
        let next = *self.next.get_or_insert(number);
        let beyond = number.wrapping_sub(next);
        if beyond == 0 && self.waiting.is_empty() {
            self.next = Some(next.wrapping_add(1));
            return out.push(datagram);
        }
        if beyond.cast_signed() < 0 && beyond.cast_signed().unsigned_abs() < STEP_MAX {
            // Its place has been given up.
            return out.push(datagram);
        }
        if beyond >= STEP_MAX {
            self.flush(out);
            self.next = Some(number.wrapping_add(1));
            return out.push(datagram);
        }
        self.waiting.insert(number, (datagram, now));
        self.hand_over(out);
        while self.waiting.len() > WAITING_MAX {
            self.skip(out);
        }
    }

    /// When something is due that waits for what may not come.
    pub fn due(&self) -> Option<Instant> {
        self.waiting.values().map(|(_, came)| *came).min().map(|came| came + WAIT)
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: Instant, out: &mut Vec<Bytes>) {
        while self.due().is_some_and(|due| due <= now) {
            self.skip(out);
        }
    }

    /// Hands over all that waits: what is missing does not come.
    pub fn flush(&mut self, out: &mut Vec<Bytes>) {
        while !self.waiting.is_empty() {
            self.skip(out);
        }
    }

    /// Goes on behind a gap.
    fn skip(&mut self, out: &mut Vec<Bytes>) {
        let Some(next) = self.next else { return };
        let first = self.waiting.keys().copied().min_by_key(|number| number.wrapping_sub(next));
        self.next = first.or(self.next);
        self.hand_over(out);
    }

    fn hand_over(&mut self, out: &mut Vec<Bytes>) {
        while let Some(next) = self.next
            && let Some((datagram, _)) = self.waiting.remove(&next)
        {
            out.push(datagram);
            self.next = Some(next.wrapping_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(number: u32) -> Bytes {
        Bytes::copy_from_slice(&number.to_be_bytes())
    }

    fn numbers(out: &[Bytes]) -> Vec<u32> {
        out.iter().map(|bytes| u32::from_be_bytes(bytes[..].try_into().expect("a number"))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn neighbours_are_put_in_order_and_gaps_hold_up_for_a_moment() {
        let (mut order, mut out, now) = (Order::default(), Vec::new(), Instant::now());
        let base = u32::MAX - 2;
        for step in [0, 2, 1, 3, 4, 7, 6] {
            let number = base.wrapping_add(step);
            order.push(number, datagram(number), now, &mut out);
        }
        let expected: Vec<u32> = (0..5).map(|step| base.wrapping_add(step)).collect();
        assert_eq!(numbers(&out), expected);
        assert_eq!(order.due(), Some(now + WAIT));
        order.on_time(now + WAIT, &mut out);
        assert_eq!(numbers(&out)[5..], [base.wrapping_add(6), base.wrapping_add(7)]);
        // One that comes all the same is handed over.
        order.push(base.wrapping_add(5), datagram(9), now, &mut out);
        assert_eq!((numbers(&out)[7], order.due()), (9, None));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_to_be_missing_is_not_waited_for() {
        let (mut order, mut out, now) = (Order::default(), Vec::new(), Instant::now());
        for number in [1, 3, 4, 6] {
            order.push(number, datagram(number), now, &mut out);
        }
        order.flush(&mut out);
        assert_eq!((numbers(&out), order.due()), (vec![1, 3, 4, 6], None));
    }

    #[tokio::test(start_paused = true)]
    async fn another_sender_is_followed_and_what_waits_is_bounded() {
        let (mut order, mut out, now) = (Order::default(), Vec::new(), Instant::now());
        for number in [5, 7, 5_000_000, 5_000_001, 3] {
            order.push(number, datagram(number), now, &mut out);
        }
        assert_eq!(numbers(&out), [5, 7, 5_000_000, 5_000_001, 3]);
        for number in 0..3000 {
            order.push(2 * number + 10, datagram(number), now, &mut out);
        }
        assert!(order.waiting.len() <= WAITING_MAX);
    }
}
