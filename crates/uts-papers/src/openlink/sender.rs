//! OPEN-Link's sender: datagrams of the application that go out as far as the window reaches, and
//! what is torn off as a packet of its own; with the window test of figure 10, or without.

use core::time::Duration;
use std::net::SocketAddr;
use uts_functions::Time;
use uts_sim::packet::{Body, Datagram};

/// Bytes of a datagram of the application, and of a full segment.
pub const DATAGRAM_BYTES: u32 = 1452;
/// Headers of IP and TCP, less the 28 bytes of IP and UDP that the network adds.
pub const INNER_BYTES: u16 = 12;
/// The ends of a transfer are as far apart as the round trip; the back-off timer waits so many.
const BACK_OFF: u32 = 2;

/// The largest window that a share of is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The one on offer now: the send window and what is outstanding (figure 10).
    Now,
    /// The largest that was ever on offer.
    Largest,
}

/// Rules by which it sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Per cent of the largest window that must be free before a packet goes, and of which; `None`:
    /// any window will do.
    pub test: Option<(u32, Basis)>,
    /// True if packets are filled across the ends of datagrams.
    pub fills: bool,
    /// Time from an acknowledgement until it is acted upon.
    pub works: Duration,
}

/// A packet that has left: when, from which position on, how long, and the window before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// When.
    pub at: Time,
    /// Position of its first byte, from 0.
    pub from: u32,
    /// Bytes of data; 0 for a probe.
    pub bytes: u32,
    /// The send window.
    pub window: u32,
}

/// The smoothed round trip in whole milliseconds, an eighth of each sample (section 4.0).
pub fn smooth(smoothed_ms: u32, sample_ms: u32) -> u32 {
    sample_ms / 8 + smoothed_ms * 7 / 8
}

/// The sending end of a transfer.
#[derive(Clone)]
pub struct Sender {
    rules: Rules,
    to: SocketAddr,
    bytes: u32,
    done_to: u32,
    next: u32,
    window: u32,
    largest: u32,
    /// Acknowledgements that are not acted upon yet: up to where, and the window.
    heard: Vec<(u32, u32)>,
    acts_at: Option<Time>,
    backs_off_until: Option<Time>,
    smoothed_ms: u32,
    timed: Option<(u32, Time)>,
    outbox: Vec<(u32, u32)>,
    /// Packets that have left.
    pub log: Vec<Row>,
    /// When all was acknowledged.
    pub done_at: Option<Time>,
}

impl Sender {
    /// A sender of so many bytes to a receiver that offers so many.
    pub fn new(rules: Rules, to: SocketAddr, bytes: u32, window: u32) -> Self {
        Sender {
            rules,
            to,
            bytes,
            done_to: 0,
            next: 0,
            window,
            largest: window,
            heard: Vec::new(),
            acts_at: Some(Time::ZERO),
            backs_off_until: None,
            smoothed_ms: 16,
            timed: None,
            outbox: Vec::new(),
            log: Vec::new(),
            done_at: None,
        }
    }

    /// An acknowledgement has arrived.
    pub fn on_ack(&mut self, now: Time, to: u32, window: u32) {
        self.heard.push((to, window));
        self.acts_at.get_or_insert(now + self.rules.works);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.acts_at.is_some_and(|at| at <= now) {
            self.acts_at = None;
            for (to, window) in core::mem::take(&mut self.heard) {
                self.take_in(now, to, window);
            }
            self.send(now);
        } else if self.backs_off_until.is_some_and(|at| at <= now) {
            self.backs_off_until = None;
            // An empty packet, which is answered by an acknowledgement.
            self.leave(now, 0);
            self.backs_off_until = Some(now + self.back_off());
        }
    }

    fn take_in(&mut self, now: Time, to: u32, window: u32) {
        if to < self.done_to {
            return;
        }
        (self.done_to, self.window) = (to, window);
        self.largest = self.largest.max(window);
        if let Some((_, at)) = self.timed.filter(|(end, _)| to >= *end) {
            self.smoothed_ms = smooth(self.smoothed_ms, now.since(at).as_millis() as u32).max(1);
            self.timed = None;
        }
        if self.done_to == self.bytes {
            self.done_at.get_or_insert(now);
            self.backs_off_until = None;
        }
    }

    fn usable(&self) -> u32 {
        (self.done_to + self.window).saturating_sub(self.next)
    }

    /// The window test of figure 10.
    fn may_send(&self) -> bool {
        let Some((percent, basis)) = self.rules.test else { return self.usable() > 0 };
        let used = self.next - self.done_to;
        let largest = match basis {
            Basis::Now => self.usable() + used,
            Basis::Largest => self.largest,
        };
        self.usable() * 100 > largest * percent
    }

    fn send(&mut self, now: Time) {
        self.backs_off_until = None;
        while self.next < self.bytes {
            if !self.may_send() {
                // Where nothing is outstanding an acknowledgement must be asked for.
                if self.rules.test.is_some() && self.usable() > 0 {
                    self.backs_off_until = Some(now + self.back_off());
                }
                return;
            }
            let rest =
                if self.rules.fills { DATAGRAM_BYTES } else { DATAGRAM_BYTES - self.next % DATAGRAM_BYTES };
            let bytes = rest.min(self.usable()).min(self.bytes - self.next);
            self.leave(now, bytes);
        }
    }

    fn leave(&mut self, now: Time, bytes: u32) {
        self.log.push(Row { at: now, from: self.next, bytes, window: self.usable() });
        self.outbox.push((self.next, bytes));
        self.next += bytes;
        self.timed.get_or_insert((self.next, now));
    }

    fn back_off(&self) -> Duration {
        Duration::from_millis(u64::from(self.smoothed_ms * BACK_OFF))
    }

    /// The next packet.
    pub fn poll(&mut self) -> Option<Datagram> {
        if self.outbox.is_empty() {
            return None;
        }
        let (from, bytes) = self.outbox.remove(0);
        let body = Body::Blank { len: INNER_BYTES + bytes as u16, number: u64::from(from) };
        Some(Datagram { to: self.to, ecn: None, body })
    }

    /// When something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.acts_at.into_iter().chain(self.backs_off_until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(test: Option<(u32, Basis)>) -> Sender {
        let rules = Rules { test, fills: false, works: Duration::ZERO };
        let to = SocketAddr::from(([10, 0, 0, 1], 1));
        let mut sender = Sender::new(rules, to, 1_000_000, 4096);
        sender.handle_timeout(Time::ZERO);
        sender
    }

    fn lengths(sender: &Sender) -> Vec<(u32, u32)> {
        sender.log.iter().map(|row| (row.bytes, row.window)).collect()
    }

    /// 23 % of 4096 are 942: 932 is held back, and 1192 passes.
    #[test]
    fn a_packet_goes_where_the_window_passes_the_test() {
        let mut s = sender(Some((23, Basis::Now)));
        assert_eq!(lengths(&s), [(1452, 4096), (1452, 2644), (1192, 1192)]);
        s.on_ack(Time::ZERO, 4096, 1192);
        s.handle_timeout(Time::ZERO);
        assert_eq!(lengths(&s)[3..], [(260, 1192), (932, 932)], "the window on offer is 1192 now");
        let mut s = sender(Some((23, Basis::Largest)));
        s.on_ack(Time::ZERO, 4096, 1192);
        s.handle_timeout(Time::ZERO);
        assert_eq!(lengths(&s)[3..], [(260, 1192)], "of the largest ever");
    }

    /// Nothing more comes of a window that was made smaller for good: with the largest ever the
    /// sender is held for ever, and asks.
    #[test]
    fn a_window_that_shrinks_holds_who_remembers_it() {
        for (basis, goes) in [(Basis::Now, true), (Basis::Largest, false)] {
            let mut s = sender(Some((23, basis)));
            s.on_ack(Time::ZERO, 4096, 900);
            s.handle_timeout(Time::ZERO);
            let last = *s.log.last().expect("some have left");
            assert_eq!(last.from >= 4096, goes, "{basis:?}");
            if !goes {
                let at = s.poll_timeout().expect("the back-off timer");
                s.handle_timeout(at);
                assert_eq!(s.log.last().expect("a probe").bytes, 0, "an empty packet");
            }
        }
    }

    #[test]
    fn an_eighth_of_each_sample_counts_in_whole_milliseconds() {
        assert_eq!([smooth(0, 16), smooth(16, 16), smooth(30, 7), smooth(100, 4)], [2, 16, 26, 87]);
    }
}
