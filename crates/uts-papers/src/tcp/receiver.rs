//! The receiver: a buffer in bytes of memory, a window in whole segments that follows what is free
//! of it, acknowledgements that wait for a second segment.

use super::clock;
use super::segment::{Ack, BLOCKS_MAX, Data};
use std::collections::{BTreeMap, VecDeque};
use uts_functions::Time;

/// The fate of a packet that finds the buffer full behind a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prune {
    /// It is taken all the same.
    Off,
    /// It is thrown away.
    Arriving,
    /// All that is held behind the gap is thrown away, and it is taken.
    Held,
}

/// Packets that the application has in its hands, and that take memory.
const READING: u32 = 1;

/// Rules by which a TCP receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Bytes that the application asks for (`SO_RCVBUF`). Packets may take twice as much memory.
    pub buffer_bytes: u32,
    /// Memory that a packet takes, whatever is in it.
    pub packet_bytes: u32,
    /// Bytes of data in a full segment, in multiples of which the window is offered.
    pub segment_bytes: u16,
    /// See there.
    pub prune: Prune,
    /// Ticks that an acknowledgement waits for a second segment.
    pub delay_ticks: u64,
    /// True if it says which packets have arrived behind a gap (RFC 2018).
    pub selective: bool,
}

/// A receiver's account.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Arrivals: when, and the memory taken with them.
    pub arrivals: Vec<(Time, u32, u32)>,
    /// Packets that were thrown away: when, and from which position on.
    pub pruned: Vec<(Time, u32)>,
    /// Packets that found the buffer full.
    pub prunes: u64,
}

/// The receiving end of a transfer.
pub struct Receiver {
    rules: Rules,
    bytes: u32,
    next: u32,
    /// Behind the gap: where packets begin and end.
    held: BTreeMap<u32, u32>,
    /// The latest of these first.
    latest: VecDeque<u32>,
    /// Packets that the application has not read.
    unread: u32,
    /// The last offer: from where on, and how much.
    offered: (u32, u32),
    unacknowledged: u32,
    due: Option<u64>,
    stamp: u32,
    acks: VecDeque<Ack>,
    /// True if arrivals are logged.
    pub records: bool,
    /// Its account.
    pub log: Log,
    /// When the last byte had arrived.
    pub done_at: Option<Time>,
}

impl Receiver {
    /// A receiver of so many bytes.
    pub fn new(rules: Rules, bytes: u32) -> Self {
        let mut receiver = Receiver {
            rules,
            bytes,
            next: 0,
            held: BTreeMap::new(),
            latest: VecDeque::new(),
            unread: 0,
            offered: (0, 0),
            unacknowledged: 0,
            due: None,
            stamp: 0,
            acks: VecDeque::new(),
            records: false,
            log: Log::default(),
            done_at: None,
        };
        receiver.offered = (0, receiver.free_window());
        receiver
    }

    /// The first offer.
    pub fn window(&self) -> u32 {
        self.offered.1
    }

    fn memory(&self, packets: u32) -> u32 {
        packets * self.rules.packet_bytes
    }

    /// Half of the memory that is free, in whole segments: what is offered now stays while it is
    /// within a segment of that.
    fn free_window(&self) -> u32 {
        let taken = self.memory(self.held.len() as u32 + self.unread.max(READING));
        let free = (2 * self.rules.buffer_bytes).saturating_sub(taken) / 2;
        let segment = u32::from(self.rules.segment_bytes);
        let offers = self.left();
        if offers <= free && free < offers + segment { offers } else { free / segment * segment }
    }

    /// The rest of the window that was offered.
    fn left(&self) -> u32 {
        (self.offered.0 + self.offered.1).saturating_sub(self.next)
    }

    /// A segment has arrived.
    pub fn on_data(&mut self, now: Time, data: Data) {
        let end = data.from + u32::from(data.bytes);
        if data.from <= self.offered.0 && end >= self.next {
            self.stamp = data.stamp;
        }
        if end <= self.next {
            // Old: whoever sent it is told at once.
            self.acknowledge();
            return;
        }
        let taken = self.memory(self.held.len() as u32 + self.unread.max(READING) + 1);
        if self.records {
            self.log.arrivals.push((now, data.from, taken));
        }
        // Before the packet is taken (`tcp_data`).
        if taken > 2 * self.rules.buffer_bytes && self.prunes(now, data.from) {
            return;
        }
        if data.from > self.next {
            self.hold(data.from, end);
            self.acknowledge();
            return;
        }
        let before = self.next;
        (self.next, self.unread) = (end, self.unread + 1);
        while let Some(entry) = self.held.first_entry().filter(|entry| *entry.key() <= self.next) {
            self.next = self.next.max(entry.remove());
            self.unread += 1;
        }
        self.latest.retain(|from| *from >= before && self.held.contains_key(from));
        if self.next >= self.bytes {
            self.done_at.get_or_insert(now);
        }
        self.unacknowledged += self.next - before;
        let is_second = self.unacknowledged >= 2 * u32::from(self.rules.segment_bytes);
        if is_second || !self.held.is_empty() || self.next >= self.bytes {
            self.acknowledge();
        } else {
            self.due.get_or_insert(clock::ticks(now) + self.rules.delay_ticks);
        }
        self.read();
    }

    /// The buffer is full: whether the packet that has come is thrown away.
    fn prunes(&mut self, now: Time, from: u32) -> bool {
        match self.rules.prune {
            Prune::Off => false,
            Prune::Arriving if from > self.next => {
                self.log.prunes += 1;
                self.log.pruned.push((now, from));
                self.acknowledge();
                true
            }
            Prune::Arriving => false,
            Prune::Held => {
                self.log.prunes += 1;
                let held = core::mem::take(&mut self.held);
                self.log.pruned.extend(held.into_keys().map(|from| (now, from)));
                self.latest.clear();
                false
            }
        }
    }

    fn hold(&mut self, from: u32, end: u32) {
        self.held.insert(from, end);
        self.latest.retain(|other| *other != from);
        self.latest.push_front(from);
    }

    /// The application reads all, and a window that has at least doubled is told at once.
    fn read(&mut self) {
        self.unread = 0;
        if self.free_window() > 2 * self.left() {
            self.acknowledge();
        }
    }

    fn acknowledge(&mut self) {
        // A window is never taken back.
        let window = self.free_window().max(self.left());
        self.offered = (self.next, window);
        (self.unacknowledged, self.due) = (0, None);
        let blocks = if self.rules.selective { self.blocks() } else { Vec::new() };
        self.acks.push_back(Ack { to: self.next, window, echo: self.stamp, blocks });
    }

    /// Blocks that have arrived behind the gap, around the latest arrivals.
    fn blocks(&self) -> Vec<(u32, u32)> {
        let mut blocks: Vec<(u32, u32)> = Vec::new();
        for latest in &self.latest {
            if blocks.len() == BLOCKS_MAX {
                break;
            }
            if blocks.iter().any(|(from, end)| (*from..*end).contains(latest)) {
                continue;
            }
            let Some(mut end) = self.held.get(latest).copied() else { continue };
            let mut from = *latest;
            while let Some((before, _)) = self.held.range(..from).next_back().filter(|(_, e)| **e >= from) {
                from = *before;
            }
            while let Some(next) = self.held.get(&end) {
                end = *next;
            }
            blocks.push((from, end));
        }
        blocks
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.due.is_some_and(|due| clock::ticks(now) >= due) {
            self.acknowledge();
        }
    }

    /// The next acknowledgement.
    pub fn poll(&mut self) -> Option<Ack> {
        self.acks.pop_front()
    }

    /// When something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.due.map(clock::instant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u32 = 1448;

    fn receiver(prune: Prune) -> Receiver {
        let rules = Rules {
            buffer_bytes: 49_000,
            packet_bytes: 9408,
            segment_bytes: SEGMENT as u16,
            prune,
            delay_ticks: 2,
            selective: true,
        };
        Receiver::new(rules, 1000 * SEGMENT)
    }

    /// Packets arrive, by their numbers; up to which packet each acknowledgement goes, and the
    /// packets on offer beyond.
    fn arrive(receiver: &mut Receiver, packets: impl IntoIterator<Item = u32>) -> Vec<(u32, u32)> {
        let at = Time::from_millis(5);
        for packet in packets {
            receiver.on_data(at, Data { from: packet * SEGMENT, bytes: SEGMENT as u16, stamp: 0 });
        }
        core::iter::from_fn(|| receiver.poll()).map(|ack| (ack.to / SEGMENT, ack.window / SEGMENT)).collect()
    }

    /// The second dump of the paper: 43,440 bytes are 30 packets, as one packet is being read.
    #[test]
    fn each_second_packet_is_acknowledged_and_a_whole_number_is_on_offer() {
        let mut r = receiver(Prune::Off);
        assert_eq!(arrive(&mut r, 0..4), [(2, 30), (4, 30)]);
        assert_eq!((arrive(&mut r, [4]), r.poll_timeout()), (vec![], Some(Time::from_millis(20))));
        r.handle_timeout(Time::from_millis(20));
        assert_eq!(arrive(&mut r, []), [(5, 30)]);
        assert_eq!(arrive(&mut r, [3]), [(5, 30)], "old packets are told at once");
    }

    /// A window that was offered is not taken back, and one that has doubled is told when all is
    /// read.
    #[test]
    fn the_window_follows_the_memory() {
        let mut r = receiver(Prune::Off);
        arrive(&mut r, 0..2);
        assert_eq!(arrive(&mut r, 3..12), vec![(2, 30); 9], "behind a gap at once, and the edge stays");
        assert_eq!(arrive(&mut r, [2]), [(12, 20)]);
        assert_eq!(arrive(&mut r, 12..14), [(14, 30)]);
        arrive(&mut r, 15..30);
        assert_eq!(arrive(&mut r, [14]), [(30, 14), (30, 30)], "the update");
    }

    /// 98,000 bytes are ten packets of 9408: the one in the application's hands, nine that are
    /// held. The one that comes next is the eleventh.
    #[test]
    fn the_eleventh_packet_finds_the_buffer_full() {
        for (prune, held, after_repeat) in
            [(Prune::Off, 10, 12), (Prune::Held, 1, 3), (Prune::Arriving, 9, 11)]
        {
            let mut r = receiver(prune);
            arrive(&mut r, 0..2);
            arrive(&mut r, 3..12);
            assert_eq!((r.held.len(), r.log.prunes), (9, 0));
            assert_eq!(arrive(&mut r, [12]), [(2, 30)], "a duplicate all the same");
            assert_eq!(r.held.len(), held, "{prune:?}");
            let to = arrive(&mut r, [2])[0].0;
            assert_eq!(
                to,
                if prune == Prune::Off { 13 } else { after_repeat + u32::from(prune == Prune::Arriving) }
            );
        }
    }

    #[test]
    fn blocks_tell_what_is_behind_the_gap_the_latest_first() {
        let mut r = receiver(Prune::Off);
        arrive(&mut r, 0..2);
        for packet in [3, 4, 7, 9, 11, 8] {
            r.on_data(Time::ZERO, Data { from: packet * SEGMENT, bytes: SEGMENT as u16, stamp: 0 });
        }
        let last = core::iter::from_fn(|| r.poll()).last().expect("one for each");
        let blocks: Vec<_> = last.blocks.iter().map(|(from, end)| (from / SEGMENT, end / SEGMENT)).collect();
        assert_eq!(blocks, [(7, 10), (11, 12), (3, 5)]);
    }
}
