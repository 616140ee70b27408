//! The sender: a window that is counted in packets, fast retransmit, and a time-out after which
//! all that was in flight is sent again, a window at a time.

use super::clock::{self, RoundTrip};
use super::segment::{Ack, Data};
use std::collections::VecDeque;
use std::net::SocketAddr;
use uts_functions::Time;
use uts_sim::packet::Datagram;

/// The effect of an acknowledgement in a recovery that moves, but not behind all that was in flight
/// when the recovery began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partial {
    /// It ends the recovery (Reno).
    Ends,
    /// It has one packet sent again, and ends the recovery.
    Once,
    /// It has one packet sent again, and the recovery goes on (J. Hoe 1996, NewReno).
    Each,
}

/// Rules by which a TCP sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Bytes of data in a full segment.
    pub segment_bytes: u16,
    /// Packets that a connection begins with.
    pub initial: u32,
    /// See there.
    pub partial: Partial,
    /// True if acknowledgements of repeats after a time-out open the window.
    pub repeats_grow: bool,
    /// True if the sender minds what has arrived behind a gap (FACK, Mathis and Mahdavi 1996).
    pub selective: bool,
}

/// A packet that was sent and is not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Sent {
    from: u32,
    end: u32,
    /// In ticks.
    at: u64,
    is_repeated: bool,
    has_arrived: bool,
}

/// A packet that leaves, with how the connection stands: what the testbed's kernel recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// When.
    pub at: Time,
    /// Position of its first byte.
    pub from: u32,
    /// The congestion window, in packets.
    pub window: u32,
    /// The window at which slow start ends, in packets.
    pub threshold: u32,
    /// The highest acknowledgement.
    pub acknowledged: u32,
    /// Packets in flight, itself included.
    pub flight: u32,
    /// True if it was sent before.
    pub is_repeat: bool,
}

/// A sender's account.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Packets.
    pub sent: Vec<Row>,
    /// Acknowledgements: when, up to where, the window on offer.
    pub acks: Vec<(Time, u32, u32)>,
    /// Fast retransmits: when, from which position on.
    pub fast: Vec<(Time, u32)>,
    /// Time-outs: when, and of which position.
    pub timeouts: Vec<(Time, u32)>,
    /// Packets that were sent, and how many of them again.
    pub packets: (u64, u64),
    /// Round trips that were measured: their sum in ticks, and how many.
    pub round_trips: (u64, u64),
    /// Time-outs that followed no other, and their sum in ticks.
    pub first_timeouts: u64,
    /// See there.
    pub timeout_ticks: u64,
}

/// The sending end of a transfer.
pub struct Sender {
    rules: Rules,
    to: SocketAddr,
    bytes: u32,
    done_to: u32,
    next: u32,
    offered: u32,
    sent: VecDeque<Sent>,
    /// In packets.
    window: u32,
    threshold: u32,
    /// Acknowledgements since the window last grew in congestion avoidance.
    count: u32,
    duplicates: u32,
    /// All before this was in flight when the last recovery began; while it is not acknowledged,
    /// duplicates begin no other (S. Floyd, "TCP and Successive Fast Retransmits", 1994).
    until: Option<u32>,
    /// Packets up to the last that is known to have arrived (FACK).
    forward: u32,
    repeated: u32,
    /// After a time-out, until all that was in flight is acknowledged: where to go on.
    resumes_at: Option<u32>,
    rtt: RoundTrip,
    due: Option<u64>,
    queue: VecDeque<Data>,
    /// True if packets and acknowledgements are logged.
    pub records: bool,
    /// Its account.
    pub log: Log,
    /// When all was acknowledged.
    pub done_at: Option<Time>,
}

impl Sender {
    /// A sender of so many bytes to a receiver that offers so many.
    pub fn new(rules: Rules, to: SocketAddr, bytes: u32, offered: u32) -> Self {
        Sender {
            rules,
            to,
            bytes,
            done_to: 0,
            next: 0,
            offered,
            sent: VecDeque::new(),
            window: rules.initial,
            threshold: u32::MAX,
            count: 0,
            duplicates: 0,
            until: None,
            forward: 0,
            repeated: 0,
            resumes_at: None,
            rtt: RoundTrip::default(),
            due: None,
            queue: VecDeque::new(),
            records: false,
            log: Log::default(),
            done_at: None,
        }
    }

    /// Packets in flight: what was sent again is there once, or twice if it is known what arrives.
    fn flight(&self) -> u32 {
        let twice = if self.rules.selective { self.repeated } else { 0 };
        (self.sent.len() as u32 + twice).saturating_sub(self.forward)
    }

    // ---- what comes in ----

    /// An acknowledgement has arrived.
    pub fn on_ack(&mut self, now: Time, ack: &Ack) {
        if ack.to > self.next || ack.to < self.done_to || self.done_at.is_some() {
            return;
        }
        if self.records {
            self.log.acks.push((now, ack.to, ack.window));
        }
        let tick = clock::ticks(now);
        let before = self.done_to;
        self.mark(&ack.blocks);
        // A window that is told anew is no duplicate.
        let is_update = ack.to != before || ack.window > self.offered;
        if is_update {
            self.offered = ack.window;
        }
        let has_repeats = self.acknowledge(ack.to);
        if ack.to > before {
            self.grow(has_repeats);
            self.measure(tick, ack.echo);
            self.after_progress(now, tick);
        }
        let is_duplicate = ack.to == before && !self.sent.is_empty() && !is_update;
        if is_duplicate || self.until.is_some() {
            self.recover(now, before, ack.to, is_update);
        } else {
            self.duplicates = 0;
        }
        self.done_to = ack.to;
        if self.done_to == self.bytes {
            (self.done_at, self.due) = (Some(now), None);
        }
        self.send_new(now);
    }

    /// Takes what is acknowledged out of what was sent; whether some of it was sent again.
    fn acknowledge(&mut self, to: u32) -> bool {
        let mut has_repeats = false;
        while let Some(sent) = self.sent.front().filter(|sent| sent.end <= to).copied() {
            self.sent.pop_front();
            has_repeats |= sent.is_repeated;
            self.repeated -= u32::from(sent.is_repeated && !sent.has_arrived).min(self.repeated);
            self.forward = self.forward.saturating_sub(1);
        }
        has_repeats
    }

    /// Minds what has arrived behind a gap.
    fn mark(&mut self, blocks: &[(u32, u32)]) {
        if !self.rules.selective {
            return;
        }
        for (n, sent) in self.sent.iter_mut().enumerate() {
            if blocks.iter().any(|(from, end)| *from <= sent.from && sent.end <= *end) {
                let is_new = !core::mem::replace(&mut sent.has_arrived, true);
                self.repeated -= u32::from(is_new && sent.is_repeated).min(self.repeated);
                self.forward = self.forward.max(n as u32 + 1);
            }
        }
    }

    /// Slow start up to the threshold and one packet beyond it; then one packet a window of
    /// acknowledgements.
    fn grow(&mut self, has_repeats: bool) {
        let earns =
            !has_repeats || self.forward > 0 || (self.resumes_at.is_some() && self.rules.repeats_grow);
        if !earns {
            return;
        }
        if self.window <= self.threshold {
            self.window += 1;
        } else if self.count >= self.window {
            (self.window, self.count) = (self.window + 1, 0);
        } else {
            self.count += 1;
        }
    }

    fn measure(&mut self, tick: u64, echo: u32) {
        let sample = tick.saturating_sub(echo.into());
        self.log.round_trips.0 += sample;
        self.log.round_trips.1 += 1;
        if self.resumes_at.is_some() && self.sent.is_empty() {
            self.resumes_at = None;
            (self.forward, self.repeated) = (0, 0);
            self.rtt.on_all_arrived();
        }
        self.rtt.on_sample(sample, self.window);
    }

    /// Something new was acknowledged: what else was in flight at a time-out goes on, and the timer
    /// begins anew.
    fn after_progress(&mut self, now: Time, tick: u64) {
        self.due = (!self.sent.is_empty()).then(|| tick + self.rtt.timeout());
        if self.resumes_at.is_some() {
            self.resume(now);
        }
    }

    /// Duplicates, and acknowledgements within a recovery.
    fn recover(&mut self, now: Time, before: u32, to: u32, is_update: bool) {
        let is_duplicate = to == before && !self.sent.is_empty() && !is_update;
        let Some(until) = self.until else {
            self.duplicates += 1;
            if self.duplicates == 3 || self.forward > 3 {
                self.begin_recovery(now);
            }
            return;
        };
        if is_duplicate && to <= until {
            self.duplicates += 1;
            if self.duplicates > 3 {
                if self.forward > 0 { self.repeat_gaps(now) } else { self.window += 1 }
            }
        } else if is_duplicate {
            self.duplicates += 1;
            if self.duplicates == 3 || self.forward > 3 {
                self.begin_recovery(now);
            }
        } else if to >= until {
            self.end_recovery();
            (self.until, self.forward) = (None, 0);
        } else if self.duplicates >= 3 && to != before {
            if self.forward > 0 {
                self.repeat_gaps(now);
                return;
            }
            if self.rules.partial != Partial::Ends {
                self.repeat(now, 0);
                self.due = Some(clock::ticks(now) + self.rtt.timeout());
            }
            if self.rules.partial != Partial::Each {
                self.end_recovery();
            }
        }
    }

    fn begin_recovery(&mut self, now: Time) {
        self.log.fast.push((now, self.sent.front().map_or(self.next, |sent| sent.from)));
        self.threshold = self.half();
        self.window = self.threshold + 3;
        self.until = Some(self.next);
        if self.forward > 0 {
            self.repeat_gaps(now)
        } else {
            self.repeat(now, 0)
        }
        self.due = Some(clock::ticks(now) + self.rtt.timeout());
    }

    fn end_recovery(&mut self) {
        if self.duplicates > 3 {
            self.window = self.threshold;
        }
        self.duplicates = 0;
    }

    /// Half of the window, or of what is on offer if that is less; two packets at least.
    fn half(&self) -> u32 {
        let offered = self.offered / u32::from(self.rules.segment_bytes);
        (self.window.min(offered) / 2).max(2)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.due.is_none_or(|due| clock::ticks(now) < due) || self.sent.is_empty() {
            return;
        }
        self.log.timeouts.push((now, self.done_to));
        self.sent.iter_mut().for_each(|sent| (sent.has_arrived, sent.is_repeated) = (false, false));
        (self.forward, self.repeated, self.duplicates) = (0, 0, 0);
        if self.resumes_at.is_none() {
            self.log.first_timeouts += 1;
            self.log.timeout_ticks += self.rtt.timeout();
            self.threshold = self.half();
            (self.window, self.count) = (1, 0);
        }
        self.until = Some(self.next);
        self.resumes_at = Some(self.done_to);
        self.repeat(now, 0);
        self.rtt.on_timeout();
        self.due = Some(clock::ticks(now) + self.rtt.timeout());
    }

    // ---- what goes out ----

    /// After a time-out: what was in flight is sent again, no more at a time than the window has
    /// room for.
    fn resume(&mut self, now: Time) {
        let from = self.resumes_at.unwrap_or(self.next);
        for n in 0..self.sent.len() {
            if self.repeated >= self.window {
                break;
            }
            let sent = self.sent[n];
            if sent.from > from || (sent.from == from && !sent.is_repeated) {
                self.resumes_at = Some(sent.from);
                if !sent.has_arrived && !sent.is_repeated {
                    self.repeat(now, n);
                }
            }
        }
    }

    /// Sends again what has not arrived before the last packet that is known to have.
    fn repeat_gaps(&mut self, now: Time) {
        for n in 0..(self.forward as usize).min(self.sent.len()) {
            let sent = self.sent[n];
            if sent.has_arrived || sent.is_repeated {
                continue;
            }
            self.repeat(now, n);
            if self.flight() >= self.window {
                break;
            }
        }
    }

    fn repeat(&mut self, now: Time, n: usize) {
        let Some(sent) = self.sent.get_mut(n) else { return };
        self.repeated += 1;
        (sent.at, sent.is_repeated) = (clock::ticks(now), true);
        let (from, end) = (sent.from, sent.end);
        self.send(now, (from, end), true);
    }

    /// Sends new data as far as both windows have room; none while a time-out is repaired.
    fn send_new(&mut self, now: Time) {
        while self.resumes_at.is_none() && self.next < self.bytes {
            let end = (self.next + u32::from(self.rules.segment_bytes)).min(self.bytes);
            if end > self.done_to + self.offered || self.flight() >= self.window {
                return;
            }
            let at = clock::ticks(now);
            let from = core::mem::replace(&mut self.next, end);
            self.sent.push_back(Sent { from, end, at, is_repeated: false, has_arrived: false });
            self.due.get_or_insert(at + self.rtt.timeout());
            self.send(now, (from, end), false);
        }
    }

    fn send(&mut self, now: Time, (from, end): (u32, u32), is_repeat: bool) {
        self.log.packets.0 += 1;
        self.log.packets.1 += u64::from(is_repeat);
        if self.records {
            self.log.sent.push(Row {
                at: now,
                from,
                window: self.window,
                threshold: self.threshold,
                acknowledged: self.done_to,
                flight: self.flight(),
                is_repeat,
            });
        }
        self.queue.push_back(Data { from, bytes: (end - from) as u16, stamp: clock::ticks(now) as u32 });
    }

    /// The next packet.
    pub fn poll(&mut self, now: Time) -> Option<Datagram> {
        if self.next == 0 {
            self.send_new(now);
        }
        Some(self.queue.pop_front()?.datagram(self.to))
    }

    /// The congestion window, in packets.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Bytes that were acknowledged.
    pub fn acknowledged(&self) -> u32 {
        self.done_to
    }

    /// When something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.due.map(clock::instant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const SEGMENT: u32 = 1448;

    /// A sender whose window of so many packets is in flight.
    fn sender(window: u32, partial: Partial, selective: bool) -> Sender {
        let rules = Rules { segment_bytes: 1448, initial: window, partial, repeats_grow: false, selective };
        let mut sender =
            Sender::new(rules, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), 1000 * SEGMENT, 1 << 20);
        sender.threshold = 2;
        assert_eq!(sent(&mut sender).len(), window as usize);
        sender
    }

    /// Packets that have left since, by their numbers.
    fn sent(sender: &mut Sender) -> Vec<u32> {
        let datagrams = core::iter::from_fn(|| sender.poll(Time::ZERO));
        datagrams.filter_map(|datagram| Some(Data::of(&datagram.body)?.from / SEGMENT)).collect()
    }

    /// An acknowledgement up to a packet, with blocks; what leaves.
    fn ack(sender: &mut Sender, to: u32, blocks: &[(u32, u32)]) -> Vec<u32> {
        let blocks = blocks.iter().map(|(from, end)| (from * SEGMENT, end * SEGMENT)).collect();
        sender.on_ack(Time::from_millis(30), &Ack { to: to * SEGMENT, window: 1 << 20, echo: 0, blocks });
        sent(sender)
    }

    /// Packets 0 and 4 of 12 are lost: the third duplicate repeats the first, and duplicates beyond
    /// what the halved window leaves let new ones go.
    #[test]
    fn duplicates_repeat_a_packet_and_let_others_go() {
        let mut s = sender(12, Partial::Each, false);
        let left: Vec<_> = (0..10).map(|_| ack(&mut s, 0, &[])).collect();
        assert_eq!(left[..3], [vec![], vec![], vec![0]]);
        // 6 and 3, and one for each duplicate: the fourth further one is the first that does not
        // stand for one of the 12.
        assert_eq!(left[3..], [vec![], vec![], vec![], vec![12], vec![13], vec![14], vec![15]]);
        assert_eq!((s.window(), s.threshold), (16, 6));
    }

    #[test]
    fn a_partial_acknowledgement_does_as_the_rules_say() {
        for (partial, repeats, window) in [
            (Partial::Ends, vec![], 6),
            (Partial::Once, vec![4], 6),
            (Partial::Each, vec![4, 16, 17, 18], 16),
        ] {
            let mut s = sender(12, partial, false);
            (0..10).for_each(|_| _ = ack(&mut s, 0, &[]));
            let left = ack(&mut s, 4, &[]);
            assert_eq!(
                (left[..repeats.len().min(left.len())].to_vec(), s.window()),
                (repeats, window),
                "{partial:?}"
            );
        }
    }

    /// Duplicates of what was in flight when a recovery began begin no other; behind it they do.
    #[test]
    fn a_recovery_blocks_the_next_until_its_flight_is_acknowledged() {
        let mut s = sender(12, Partial::Once, false);
        (0..4).for_each(|_| _ = ack(&mut s, 0, &[]));
        assert_eq!(ack(&mut s, 4, &[]), [4]);
        assert!((0..3).all(|_| ack(&mut s, 4, &[]).is_empty()));
        assert_eq!(s.log.fast.len(), 1);
        let left = ack(&mut s, 12, &[]);
        assert_eq!(left, [12, 13, 14, 15, 16, 17]);
        (0..3).for_each(|_| _ = ack(&mut s, 12, &[]));
        assert_eq!(s.log.fast.len(), 2);
    }

    /// Lines 29 to 48 of the second dump: one packet for each acknowledgement until all is there,
    /// then a window of one.
    #[test]
    fn after_a_time_out_packets_go_one_by_one() {
        let mut s = sender(5, Partial::Each, false);
        let due = s.poll_timeout().expect("what is in flight is timed");
        s.handle_timeout(due);
        assert_eq!((sent(&mut s), s.window(), s.threshold), (vec![0], 1, 2));
        assert_eq!([1, 2, 4].map(|to| ack(&mut s, to, &[])), [vec![1], vec![2], vec![4]], "3 was there");
        assert_eq!(ack(&mut s, 5, &[]), [5], "nothing new before");
        assert_eq!((ack(&mut s, 6, &[]), s.window()), (vec![6, 7], 2), "slow start");
    }

    /// Blocks show both gaps at once, and what is behind them stays where it is.
    #[test]
    fn a_sender_that_hears_of_blocks_repeats_what_is_missing() {
        let mut s = sender(12, Partial::Each, true);
        assert_eq!(ack(&mut s, 1, &[(2, 3)]), [12, 13, 14], "0, 1 and 2 are taken to have left");
        let left: Vec<u32> = (5..9).flat_map(|to| ack(&mut s, 1, &[(4, to), (2, 3)])).collect();
        assert_eq!(left[..2], [1, 3]);
        assert!(!left[2..].contains(&1) && !left[2..].contains(&3), "once each: {left:?}");
    }
}
