//! The bottleneck: a first-in-first-out queue served at a rate.

use crate::passage::Passage;
use std::collections::VecDeque;

/// A packet that waits or is being transmitted.
#[derive(Debug, Clone)]
pub(crate) struct Queued<T> {
    pub payload: T,
    /// Bytes that it takes in the buffer.
    pub cost_bytes: u64,
    /// Bits that it takes on the wire.
    pub wire_bits: u64,
    /// Its way so far; the transmitter fills in when it starts and leaves.
    pub passage: Passage,
}

/// Work in units of 10^-9 bits, so that a nanosecond at r bit/s does exactly r units.
const UNITS_PER_BIT: u128 = 1_000_000_000;

/// The queue and its server. Departures follow from the ideal instants, not from when it is asked.
#[derive(Debug)]
pub(crate) struct Transmitter<T> {
    rate_bps: Option<u64>,
    packets: VecDeque<Queued<T>>,
    bytes: u64,
    /// What is left to transmit of the head packet at `served_to_ns`.
    head_work: u128,
    served_to_ns: u64,
}

impl<T> Transmitter<T> {
    pub(crate) fn new(rate_bps: Option<u64>) -> Self {
        Transmitter { rate_bps, packets: VecDeque::new(), bytes: 0, head_work: 0, served_to_ns: 0 }
    }

    pub(crate) fn packets(&self) -> u64 {
        self.packets.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a packet. All departures up to `now_ns` must have been taken.
    pub(crate) fn push(&mut self, now_ns: u64, mut packet: Queued<T>) {
        if self.packets.is_empty() {
            packet.passage.started_ns = now_ns;
            self.served_to_ns = now_ns;
            self.head_work = u128::from(packet.wire_bits) * UNITS_PER_BIT;
        }
        self.bytes += packet.cost_bytes;
        self.packets.push_back(packet);
    }

    /// When the head packet has been transmitted, if there is one.
    pub(crate) fn next_departure_ns(&self) -> Option<u64> {
        self.packets.front()?;
        let Some(rate_bps) = self.rate_bps else { return Some(self.served_to_ns) };
        let wait_ns = self.head_work.div_ceil(u128::from(rate_bps.max(1)));
        Some(self.served_to_ns.saturating_add(u64::try_from(wait_ns).unwrap_or(u64::MAX)))
    }

    /// Takes the head packet if it has been transmitted by `now_ns`.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<Queued<T>> {
        let departure_ns = self.next_departure_ns().filter(|&at_ns| at_ns <= now_ns)?;
        let mut packet = self.packets.pop_front()?;
        packet.passage.left_ns = departure_ns;
        self.bytes -= packet.cost_bytes;
        // Departures are whole nanoseconds: what the last one did too much counts for the next
        // packet, so that the rate is exact in the long run.
        let done = self.work_in(departure_ns - self.served_to_ns);
        let surplus = done.saturating_sub(self.head_work);
        self.served_to_ns = departure_ns;
        if let Some(next) = self.packets.front_mut() {
            next.passage.started_ns = departure_ns;
            self.head_work = (u128::from(next.wire_bits) * UNITS_PER_BIT).saturating_sub(surplus);
        }
        Some(packet)
    }

    /// Changes the rate at `now_ns`; the head packet keeps what it has left to transmit.
    /// All departures up to `now_ns` must have been taken.
    pub(crate) fn set_rate(&mut self, now_ns: u64, rate_bps: Option<u64>) {
        let done = self.work_in(now_ns.saturating_sub(self.served_to_ns));
        self.head_work = self.head_work.saturating_sub(done);
        self.served_to_ns = self.served_to_ns.max(now_ns);
        self.rate_bps = rate_bps;
    }

    fn work_in(&self, duration_ns: u64) -> u128 {
        u128::from(duration_ns) * u128::from(self.rate_bps.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_ns(server: &mut Transmitter<()>, now_ns: u64) -> Option<u64> {
        server.pop(now_ns).map(|p| p.passage.left_ns)
    }

    fn packet(number: u64, cost_bytes: u64) -> Queued<()> {
        let passage = Passage::arriving(number, cost_bytes as usize, 0, 0, 0);
        Queued { payload: (), cost_bytes, wire_bits: 8 * cost_bytes, passage }
    }

    #[test]
    fn a_rate_that_divides_badly_is_exact_in_the_long_run() {
        // 1000 bytes at 7 bit/s x 10^6: 1142857.142... ns each.
        let mut server = Transmitter::new(Some(7_000_000));
        for number in 0..7000 {
            server.push(0, packet(number, 1000));
        }
        let mut last = 0;
        while let Some(at_ns) = left_ns(&mut server, u64::MAX) {
            last = at_ns;
        }
        assert_eq!(last, 8_000_000_000);
        assert_eq!((server.packets(), server.bytes()), (0, 0));
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut server = Transmitter::new(Some(8_000_000));
        server.push(0, packet(0, 1000));
        assert_eq!(left_ns(&mut server, 999_999), None);
        assert_eq!(left_ns(&mut server, 5_000_000), Some(1_000_000));
        server.push(5_000_000, packet(1, 1000));
        assert_eq!(server.next_departure_ns(), Some(6_000_000));
    }

    #[test]
    fn a_rate_change_keeps_the_remaining_bits() {
        let mut server = Transmitter::new(Some(8_000_000));
        server.push(0, packet(0, 1000)); // 1 ms
        server.push(0, packet(1, 1000));
        server.set_rate(250_000, Some(4_000_000)); // 750 bytes left: 1.5 ms
        assert_eq!(server.next_departure_ns(), Some(1_750_000));
        assert_eq!(left_ns(&mut server, 1_750_000), Some(1_750_000));
        server.set_rate(2_000_000, None);
        assert_eq!(left_ns(&mut server, 2_000_000), Some(2_000_000));
    }

    #[test]
    fn an_infinite_rate_takes_no_time() {
        let mut server = Transmitter::new(None);
        server.push(3, packet(0, u64::from(u32::MAX)));
        assert_eq!(left_ns(&mut server, 3), Some(3));
    }
}
