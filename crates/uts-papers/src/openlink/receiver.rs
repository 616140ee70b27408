//! The workstation that receives: it takes packets in, up to two full segments at a time, which
//! needs a time for each byte. Two full segments are acknowledged then. The application reads, and
//! the window is told.

use super::sender::DATAGRAM_BYTES;
use core::time::Duration;
use std::collections::VecDeque;
use uts_functions::Time;

/// Rules by which it receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Bytes of its buffer.
    pub buffer_bytes: u32,
    /// Time from an arrival until an idle receiver begins.
    pub begins: Duration,
    /// Time to take a byte in.
    pub per_byte: Duration,
    /// Time until the application has read.
    pub reads: Duration,
    /// True if two full segments are acknowledged before they are read, and once more with the
    /// window behind that.
    pub acks_first: bool,
    /// Per cent of the buffer by which a window must have grown to be told.
    pub update_percent: u32,
    /// Time after which it is told all the same.
    pub delay: Duration,
}

/// An acknowledgement that has left: when, up to where, and the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// When.
    pub at: Time,
    /// All before this position has arrived.
    pub to: u32,
    /// The window.
    pub window: u32,
}

/// The receiving end of a transfer.
#[derive(Clone)]
pub struct Receiver {
    rules: Rules,
    bytes: u32,
    /// Packets that have come and are not taken in: their ends.
    waiting: VecDeque<u32>,
    /// All before this was taken in, and all before that read.
    next: u32,
    read_to: u32,
    /// The window's right edge as it was told.
    edge: u32,
    /// When an idle receiver begins.
    begins_at: Option<Time>,
    /// At work until then, and up to where.
    busy: Option<(Time, u32)>,
    acks_at: Option<Time>,
    tells_at: Option<Time>,
    outbox: VecDeque<(u32, u32)>,
    /// Acknowledgements that have left.
    pub log: Vec<Row>,
    /// When the last byte was read.
    pub done_at: Option<Time>,
}

impl Receiver {
    /// A receiver of so many bytes.
    pub fn new(rules: Rules, bytes: u32) -> Self {
        Receiver {
            rules,
            bytes,
            waiting: VecDeque::new(),
            next: 0,
            read_to: 0,
            edge: rules.buffer_bytes,
            begins_at: None,
            busy: None,
            acks_at: None,
            tells_at: None,
            outbox: VecDeque::new(),
            log: Vec::new(),
            done_at: None,
        }
    }

    /// A packet has arrived; an empty one asks for an acknowledgement.
    pub fn on_data(&mut self, now: Time, from: u32, bytes: u32) {
        if bytes == 0 {
            self.acknowledge(now);
            return;
        }
        self.waiting.push_back(from + bytes);
        if self.busy.is_none() {
            self.begins_at.get_or_insert(now + self.rules.begins);
        }
    }

    /// Takes in what is there, up to two full segments.
    fn work(&mut self, now: Time) {
        self.begins_at = None;
        if self.waiting.is_empty() {
            return;
        }
        let before = self.next;
        let most = 2 * DATAGRAM_BYTES;
        while let Some(end) = self.waiting.front().filter(|end| **end - before <= most) {
            self.next = *end;
            self.waiting.pop_front();
        }
        let bytes = self.next - before;
        let takes = self.rules.per_byte * bytes;
        self.busy = Some((now + takes + self.rules.reads, self.next));
        let is_full = bytes >= most || self.next - self.read_to >= self.rules.buffer_bytes;
        self.acks_at = (self.rules.acks_first && is_full).then(|| now + takes);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.acks_at.is_some_and(|at| at <= now) {
            self.acks_at = None;
            self.acknowledge(now);
        }
        if let Some((_, to)) = self.busy.filter(|(at, _)| *at <= now) {
            (self.busy, self.read_to) = (None, to);
            if self.read_to == self.bytes {
                self.done_at.get_or_insert(now);
            }
            let grown = self.read_to + self.rules.buffer_bytes - self.edge;
            let is_enough = grown * 100 > self.rules.buffer_bytes * self.rules.update_percent;
            if is_enough || self.read_to == self.bytes {
                self.acknowledge(now);
            } else {
                self.tells_at.get_or_insert(now + self.rules.delay);
            }
            self.work(now);
        }
        if self.begins_at.is_some_and(|at| at <= now) {
            self.work(now);
        }
        if self.tells_at.is_some_and(|at| at <= now) {
            self.acknowledge(now);
        }
    }

    fn acknowledge(&mut self, now: Time) {
        self.tells_at = None;
        let window = self.read_to + self.rules.buffer_bytes - self.next;
        self.edge = self.next + window;
        self.outbox.push_back((self.next, window));
        self.log.push(Row { at: now, to: self.next, window });
    }

    /// The next acknowledgement: up to where, and the window.
    pub fn poll(&mut self) -> Option<(u32, u32)> {
        self.outbox.pop_front()
    }

    /// When something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let busy = self.busy.map(|(at, _)| at);
        busy.into_iter().chain(self.begins_at).chain(self.acks_at).chain(self.tells_at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rules: Rules, packets: &[(u64, u32, u32)]) -> Vec<(u32, u32)> {
        let mut receiver = Receiver::new(rules, 1_000_000);
        let mut packets = packets.iter().peekable();
        loop {
            let next = packets.peek().map(|(ms, ..)| Time::from_millis(*ms));
            match (next, receiver.poll_timeout()) {
                (Some(at), due) if due.is_none_or(|due| at <= due) => {
                    let (_, from, bytes) = *packets.next().expect("it was looked at");
                    receiver.on_data(at, from, bytes);
                }
                (_, Some(due)) => receiver.handle_timeout(due),
                _ => return receiver.log.iter().map(|row| (row.to, row.window)).collect(),
            }
        }
    }

    const RULES: Rules = Rules {
        buffer_bytes: 4096,
        begins: Duration::from_millis(2),
        per_byte: Duration::from_micros(5),
        reads: Duration::from_micros(500),
        acks_first: true,
        update_percent: 0,
        delay: Duration::from_millis(200),
    };

    /// Figure 8: packets 4 and 5, and then the third packet alone.
    #[test]
    fn two_segments_are_acknowledged_and_then_the_window_is_told() {
        let burst = [(0, 0, 1452), (1, 1452, 1452), (2, 2904, 1192)];
        assert_eq!(run(RULES, &burst), [(2904, 1192), (2904, 4096), (4096, 4096)]);
        let together = Rules { acks_first: false, ..RULES };
        assert_eq!(run(together, &burst), [(2904, 4096), (4096, 4096)]);
    }

    /// Figures 5 and 6: five bytes fill a window of five, which opens again as they are read.
    #[test]
    fn a_window_of_five_bytes_closes_and_opens() {
        let five = Rules { buffer_bytes: 5, ..RULES };
        assert_eq!(run(five, &[(0, 0, 5), (50, 5, 5)]), [(5, 0), (5, 5), (10, 0), (10, 5)]);
    }

    /// 23 % of 4096 are 942.
    #[test]
    fn a_small_window_is_told_later() {
        let rules = Rules { update_percent: 23, ..RULES };
        assert_eq!(run(rules, &[(0, 0, 900), (20, 900, 60)]), [(960, 4096)], "with what comes next");
        assert_eq!(run(rules, &[(0, 0, 900)]), [(900, 4096)], "or after a while");
    }
}
