//! The ledger: every packet sent and not yet settled, as tokens of what it carried rather than as bytes.
//!
//! A packet number is never reused; what is repeated travels in a new packet with a new entry. Losses are found as in
//! RFC 9002 section 6.1 (packet and time threshold), with thresholds that widen when the path is seen to reorder
//! (RFC 8985 section 6.2): a packet that was declared lost and is acknowledged after all.

use crate::congestion::Snapshot;
use crate::range::RangeSet;
use crate::time::Time;
use core::ops::Range;
use core::time::Duration;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Packets that must be acknowledged beyond a gap before the gap is a loss (RFC 9002 section 6.1.1).
const REORDER_PACKETS: u64 = 3;

/// The widest that the packet threshold becomes; beyond, the time threshold decides alone.
const REORDER_PACKETS_MAX: u64 = 256;

/// Lost packets that are remembered, in case they arrive after all.
const LOST_MAX: usize = 1024;

/// Packets at the front that are remembered although they do not ask for an acknowledgement.
const UNASKED_MAX: usize = 256;

/// What an entry's packet carried; the engine says what a token is.
pub type Tokens<T> = SmallVec<[T; 2]>;

/// A packet that was sent.
#[derive(Clone, Debug)]
pub struct Sent<T> {
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// The epoch under which it was built.
    pub epoch: u32,
    /// Whether it asks for an acknowledgement. Only such packets count as in flight.
    pub eliciting: bool,
    /// Whether it probed for a larger packet size: its loss says nothing about congestion.
    pub size_probe: bool,
    /// What it carried.
    pub tokens: Tokens<T>,
    /// What congestion control knew when it was sent, the instant of sending included.
    pub snapshot: Snapshot,
}

/// The state of the function: packets in flight, and those lost of late.
#[derive(Clone, Debug)]
pub struct Ledger<T> {
    packets: VecDeque<Option<Sent<T>>>,
    /// Number of the packet at the front of `packets`.
    base: u64,
    acked: RangeSet,
    /// The largest acknowledged packet number.
    largest_acked: Option<u64>,
    eliciting: u64,
    last_eliciting_at: Time,
    lost: VecDeque<(u64, Sent<T>)>,
    reorder_packets: u64,
    reorder_extra: Duration,
    /// Room for what the next acknowledgement settles.
    room: Vec<(u64, Sent<T>)>,
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Ledger {
            packets: VecDeque::new(),
            base: 0,
            acked: RangeSet::new(),
            largest_acked: None,
            eliciting: 0,
            last_eliciting_at: Time::ZERO,
            lost: VecDeque::new(),
            reorder_packets: REORDER_PACKETS,
            reorder_extra: Duration::ZERO,
            room: Vec::new(),
        }
    }
}

/// What an acknowledgement settled.
#[derive(Debug)]
pub struct Acknowledged<T> {
    /// Packets that are newly acknowledged, by descending ranges.
    pub packets: Vec<(u64, Sent<T>)>,
    /// Packets that had been declared lost and arrived after all.
    pub spurious: Vec<(u64, Sent<T>)>,
}

impl<T: Clone> Ledger<T> {
    /// The number of the next packet.
    pub fn next_number(&self) -> u64 {
        self.base + self.packets.len() as u64
    }

    /// The largest acknowledged number.
    pub fn largest_acked(&self) -> Option<u64> {
        self.largest_acked
    }

    /// Eliciting packets in flight.
    pub fn eliciting(&self) -> u64 {
        self.eliciting
    }

    /// When the last eliciting packet was sent.
    pub fn last_eliciting_at(&self) -> Time {
        self.last_eliciting_at
    }

    /// The oldest packet in flight that asks for an acknowledgement.
    pub fn oldest_eliciting(&self) -> Option<(u64, &Sent<T>)> {
        let at = self.packets.iter().position(|p| p.as_ref().is_some_and(|p| p.eliciting))?;
        Some((self.base + at as u64, self.packets[at].as_ref()?))
    }

    /// Enters the packet that was just sent under [`Ledger::next_number`].
    pub fn record(&mut self, sent: Sent<T>) {
        if sent.eliciting {
            self.eliciting += 1;
            self.last_eliciting_at = sent.snapshot.sent_at;
        }
        self.packets.push_back(Some(sent));
        // Nobody acknowledges packets that do not ask for it, unless others do: the oldest are forgotten.
        while self.packets.len() > UNASKED_MAX
            && self.packets.front().is_some_and(|p| p.as_ref().is_none_or(|p| !p.eliciting))
        {
            self.packets.pop_front();
            self.base += 1;
        }
    }

    /// Takes in an acknowledgement of these packet numbers (descending or ascending ranges). `None` if it names a
    /// packet that was never sent: the peer is lying.
    pub fn on_ack(&mut self, ranges: impl Iterator<Item = Range<u64>>, now: Time) -> Option<Acknowledged<T>> {
        let mut done = Acknowledged { packets: core::mem::take(&mut self.room), spurious: Vec::new() };
        let next = self.next_number();
        for range in ranges {
            if range.end > next {
                return None;
            }
            self.largest_acked = self.largest_acked.max(Some(range.end - 1));
            self.take_spurious(&range, now, &mut done.spurious);
            let fresh: SmallVec<[Range<u64>; 4]> =
                self.acked.gaps(range.start.max(self.base)..range.end).collect();
            for number in fresh.iter().cloned().flatten() {
                if let Some(sent) = self.take(number) {
                    done.packets.push((number, sent));
                }
            }
            self.acked.insert(range.start.max(self.base)..range.end.max(self.base));
        }
        self.settle();
        Some(done)
    }

    /// What an acknowledgement settled has been dealt with: its memory serves the next.
    pub fn take_back(&mut self, done: Acknowledged<T>) {
        self.room = done.packets;
        self.room.clear();
    }

    fn take(&mut self, number: u64) -> Option<Sent<T>> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let sent = self.packets.get_mut(index)?.take()?;
        self.eliciting -= u64::from(sent.eliciting);
        Some(sent)
    }

    fn settle(&mut self) {
        while let Some(None) = self.packets.front() {
            self.packets.pop_front();
            self.base += 1;
        }
        self.acked.remove_below(self.base);
    }

    fn take_spurious(&mut self, range: &Range<u64>, now: Time, out: &mut Vec<(u64, Sent<T>)>) {
        if self.lost.back().is_none_or(|(number, _)| *number < range.start) {
            return;
        }
        let mut index = self.lost.partition_point(|(number, _)| *number < range.start);
        while self.lost.get(index).is_some_and(|(number, _)| range.contains(number)) {
            let Some((number, sent)) = self.lost.remove(index) else { break };
            let distance = self.largest_acked.unwrap_or(number).saturating_sub(number) + 1;
            self.reorder_packets = self.reorder_packets.max(distance.min(REORDER_PACKETS_MAX));
            // How much later than a round trip it took, next time waits that long.
            self.reorder_extra = self.reorder_extra.max(now.since(sent.snapshot.sent_at) / 4);
            out.push((number, sent));
            index = self.lost.partition_point(|(n, _)| *n < number);
        }
    }

    /// The peer recovered these packets from redundancy: what they carried needs no repetition. The packets themselves
    /// stay, to be found lost, for so they are as far as the path is concerned. Gives what they carried.
    pub fn on_repaired(&mut self, ranges: impl Iterator<Item = Range<u64>>) -> Vec<Tokens<T>> {
        let next = self.next_number();
        let mut carried = Vec::new();
        for range in ranges {
            for number in range.start.max(self.base)..range.end.min(next) {
                let entry = self.packets.get_mut((number - self.base) as usize);
                if let Some(sent) = entry.and_then(Option::as_mut).filter(|sent| !sent.tokens.is_empty()) {
                    carried.push(core::mem::take(&mut sent.tokens));
                }
            }
            // Declared lost already: the repeat may still be on its way out.
            let from = self.lost.partition_point(|(number, _)| *number < range.start);
            for (_, sent) in self.lost.range_mut(from..).take_while(|(number, _)| *number < range.end) {
                if !sent.tokens.is_empty() {
                    carried.push(core::mem::take(&mut sent.tokens));
                }
            }
        }
        carried
    }

    /// Takes out what is lost at `now`; `loss_delay` is the time threshold of the timing mechanism, and waiting for
    /// reordering never exceeds `patience`. Also says when to look again.
    pub fn detect_lost(
        &mut self,
        now: Time,
        loss_delay: Duration,
        patience: Duration,
    ) -> (Vec<(u64, Sent<T>)>, Option<Time>) {
        let mut lost = Vec::new();
        let mut look_again = None;
        let Some(largest) = self.largest_acked else { return (lost, None) };
        let delay = (loss_delay + self.reorder_extra).min(loss_delay.max(patience));
        let mut number = self.base;
        while number < largest {
            let index = (number - self.base) as usize;
            if let Some(Some(sent)) = self.packets.get(index) {
                let due = sent.snapshot.sent_at + delay;
                if largest - number < self.reorder_packets && due > now {
                    look_again = Some(due);
                    break;
                }
                if let Some(sent) = self.take(number) {
                    self.remember_lost(number, &sent);
                    lost.push((number, sent));
                }
            }
            number += 1;
        }
        self.settle();
        (lost, look_again)
    }

    fn remember_lost(&mut self, number: u64, sent: &Sent<T>) {
        if sent.size_probe {
            return;
        }
        if self.lost.len() == LOST_MAX {
            self.lost.pop_front();
        }
        let at = self.lost.partition_point(|(n, _)| *n < number);
        self.lost.insert(at, (number, sent.clone()));
    }

    /// Forgets lost packets sent before `before`: they cannot arrive any more.
    pub fn forget_lost(&mut self, before: Time) {
        while self.lost.front().is_some_and(|(_, sent)| sent.snapshot.sent_at < before) {
            self.lost.pop_front();
        }
    }

    /// After a quiet while: forgets lost packets, which do not arrive any more, and, if nothing else is in flight, those of
    /// which nobody will tell. Gives back memory that nothing is in.
    pub fn shrink(&mut self) {
        if self.eliciting == 0 {
            self.base = self.next_number();
            self.packets.clear();
        }
        self.lost.clear();
        self.lost.shrink_to_fit();
        self.room = Vec::new();
        self.packets.shrink_to_fit();
        self.acked.shrink();
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.packets.capacity() * size_of::<Option<Sent<T>>>()
            + (self.lost.capacity() + self.room.capacity()) * size_of::<(u64, Sent<T>)>()
            + self.acked.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::iter::once;

    fn sent(at_ms: u64) -> Sent<u8> {
        Sent {
            bytes: 100,
            epoch: 0,
            eliciting: true,
            size_probe: false,
            tokens: Tokens::new(),
            snapshot: Snapshot { sent_at: Time::from_millis(at_ms), ..Snapshot::default() },
        }
    }

    fn ledger(packets: u64) -> Ledger<u8> {
        let mut ledger = Ledger::default();
        (0..packets).for_each(|n| ledger.record(sent(n)));
        ledger
    }

    fn numbers(list: &[(u64, Sent<u8>)]) -> Vec<u64> {
        list.iter().map(|(n, _)| *n).collect()
    }

    const DELAY: Duration = Duration::from_millis(50);

    #[test]
    fn a_gap_of_three_packets_is_a_loss_and_time_decides_the_rest() {
        let mut l = ledger(10);
        let done = l.on_ack([4..6, 0..1].into_iter(), Time::from_millis(20)).expect("sent");
        assert_eq!(numbers(&done.packets), [4, 5, 0]);
        let (lost, again) = l.detect_lost(Time::from_millis(20), DELAY, DELAY);
        assert_eq!(numbers(&lost), [1, 2]);
        assert_eq!(again, Some(Time::from_millis(3) + DELAY));
        let (lost, again) = l.detect_lost(Time::from_millis(53), DELAY, DELAY);
        assert_eq!((numbers(&lost), again), (vec![3], None));
        assert_eq!(l.eliciting(), 4);
    }

    #[test]
    fn what_arrives_after_all_widens_the_threshold() {
        let mut l = ledger(12);
        l.on_ack(once(6..8), Time::from_millis(20)).expect("sent");
        assert_eq!(numbers(&l.detect_lost(Time::from_millis(20), DELAY, DELAY).0), [0, 1, 2, 3, 4]);
        let done = l.on_ack(once(1..3), Time::from_millis(21)).expect("sent");
        assert_eq!((numbers(&done.packets), numbers(&done.spurious)), (vec![], vec![1, 2]));
        l.on_ack(once(11..12), Time::from_millis(22)).expect("sent");
        let (lost, again) = l.detect_lost(Time::from_millis(22), DELAY, DELAY);
        assert!(lost.is_empty() && again.is_some(), "5 is six packets behind, and one came seven late");
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_sent_is_refused() {
        assert!(ledger(3).on_ack(once(0..4), Time::ZERO).is_none());
    }

    #[test]
    fn packets_that_nobody_acknowledges_are_not_kept_for_ever() {
        let mut l = ledger(1);
        let quiet = |at_ms| Sent { eliciting: false, ..sent(at_ms) };
        (0..10_000).for_each(|n| l.record(quiet(n)));
        assert_eq!(l.packets.len(), 10_001, "the first is waited for");
        let done = l.on_ack(once(0..1), Time::from_millis(1)).expect("sent");
        assert_eq!(numbers(&done.packets), [0]);
        (0..10_000).for_each(|n| l.record(quiet(n)));
        assert_eq!((l.packets.len(), l.next_number()), (UNASKED_MAX, 20_001));
        let done = l.on_ack(once(20_000..20_001), Time::from_millis(1)).expect("sent");
        assert_eq!(numbers(&done.packets), [20_000], "the latest are known");
        l.shrink();
        assert_eq!((l.packets.capacity(), l.next_number()), (0, 20_001));
    }

    #[test]
    fn the_same_acknowledgement_again_settles_nothing() {
        let mut l = ledger(6);
        l.on_ack(once(2..5), Time::ZERO).expect("sent");
        assert!(l.on_ack(once(2..5), Time::ZERO).expect("sent").packets.is_empty());
    }
}
