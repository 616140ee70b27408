//! Rx's sender, assembled from the library: what finds losses, times, opens the window and asks are
//! mechanisms of `uts-functions`, over their own state. It keeps what no function has: which
//! transmission an acknowledgement speaks of (section 5).

use super::design::{Design, FIRST_TIMEOUT, Samples};
use super::protocol::{Acknowledgement, Data, Headers};
use anyhow::{Context as _, Result};
use core::time::Duration;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use uts_functions::acknowledgement::{self, Acknowledgement as _};
use uts_functions::congestion::{self, Ack, Cause, Congestion as _, Delivery, Loss, Summary, Timeout};
use uts_functions::finding::{self, Finding as _, Flight};
use uts_functions::flow::{self, Allowed, FlowControl as _, Outstanding, Sending};
use uts_functions::retransmission::ledger::{Carried, Departure, Ledger, Sent};
use uts_functions::timing::{self, RoundTrip, Timing as _};
use uts_functions::{Function, Time};
use uts_sim::packet::Datagram;

/// The packet of the transfer that a transmission carried.
#[derive(Clone, Copy, Debug)]
struct Sequence(u32);

impl Carried for Sequence {
    fn ahead(&self, places: u64) -> Self {
        Sequence(self.0 + places as u32)
    }
}

/// The first and the last transmission of a packet: its serial number, and when it left.
#[derive(Clone, Copy, Debug, Default)]
struct Transmissions {
    count: u32,
    first: (u32, Time),
    last: (u32, Time),
    /// The packet has arrived.
    arrived: bool,
}

impl Transmissions {
    /// When the transmission left that an acknowledgement of `serial` measures, if it can be told
    /// apart.
    fn measured_by(&self, serial: u32, samples: Samples) -> Option<Time> {
        match samples {
            _ if self.count == 1 => Some(self.first.1),
            Samples::Single => None,
            Samples::Serial => {
                [self.last, self.first].into_iter().find(|(of, _)| *of == serial).map(|(_, at)| at)
            }
        }
    }
}

/// Log of a sender.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Transmissions: when, which packet, and whether it was sent before.
    pub sent: Vec<(Time, u32, bool)>,
    /// Samples of the round trip: when, and how long.
    pub samples: Vec<(Time, Duration)>,
    /// The time-out after each acknowledgement.
    pub timeouts: Vec<(Time, Duration)>,
}

/// State of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It goes on.
    Open,
    /// All has arrived, as the sender learnt then.
    Done(Time),
    /// Nothing was heard for too long.
    GivenUp(Time),
}

/// The sender of a transfer.
pub struct Sender {
    to: SocketAddr,
    begins: Time,
    /// Bytes of the transfer in each packet.
    packet_bytes: u16,
    headers: Headers,
    patience: Duration,
    restarts: bool,
    samples: Samples,
    timing: timing::Slot,
    finding: finding::Slot,
    flow: flow::Slot,
    acknowledgement: acknowledgement::Slot,
    congestion: congestion::Slot,
    rtt: RoundTrip,
    ledger: Ledger<Sequence>,
    delivery: Delivery,
    sending: Sending,
    timeouts: u32,
    /// Packets since one has asked.
    unasked: u32,
    /// By sequence number, from 1.
    packets: Vec<Transmissions>,
    /// Packets before this have arrived, and packets before that were sent.
    done_to: u32,
    sent_to: u32,
    /// Packets that are to be sent again.
    lost: BTreeSet<u32>,
    loss_at: Option<Time>,
    heard_at: Time,
    /// Log of the transfer.
    pub log: Log,
    /// State of the transfer.
    pub state: State,
}

impl Sender {
    /// A sender of so many packets from `begins` on, each with so many bytes of the transfer. It
    /// gives up after `patience` without an acknowledgement. Headers are counted at first
    /// ([`Sender::with_headers`]).
    ///
    /// # Errors
    /// The library lacks one of the mechanisms.
    pub fn new(
        design: &Design,
        to: SocketAddr,
        (packets, packet_bytes): (u32, u16),
        begins: Time,
        patience: Duration,
    ) -> Result<Self> {
        let of = |function| *design.profile.get(function);
        // Slow start begins with one packet (Jacobson 1988).
        let full_bytes = u64::from(packet_bytes);
        let summary = Summary { window_bytes: full_bytes, ..Summary::initial(full_bytes) };
        let context =
            congestion::Context { now: begins, packet_bytes: full_bytes, summary, past: None, seed: 0 };
        let lacking = |function: &str| format!("the library lacks the {function} mechanism");
        let mut timing = timing::Slot::build(&of(Function::Timing), ()).with_context(|| lacking("timing"))?;
        let mut rtt = RoundTrip::guessed(FIRST_TIMEOUT, Duration::ZERO);
        for before in &design.history {
            let sample = rtt.on_sample(Time::ZERO, *before, Duration::ZERO);
            timing.on_sample(&mut rtt, sample);
        }
        Ok(Sender {
            to,
            begins,
            packet_bytes,
            headers: Headers::Counted,
            patience,
            restarts: design.restarts,
            samples: design.samples,
            timing,
            finding: finding::Slot::build(&of(Function::Finding), ()).with_context(|| lacking("finding"))?,
            flow: flow::Slot::build(&of(Function::Flow), ()).with_context(|| lacking("flow"))?,
            acknowledgement: acknowledgement::Slot::build(&of(Function::Acknowledgement), ())
                .with_context(|| lacking("acknowledgement"))?,
            congestion: congestion::Slot::build(&of(Function::Congestion), &context)
                .with_context(|| lacking("congestion"))?,
            rtt,
            ledger: Ledger::default(),
            delivery: Delivery::new(begins),
            sending: Sending::default(),
            timeouts: 0,
            unasked: 0,
            packets: vec![Transmissions::default(); packets as usize],
            done_to: 1,
            sent_to: 1,
            lost: BTreeSet::new(),
            loss_at: None,
            heard_at: begins,
            log: Log::default(),
            state: State::Open,
        })
    }

    /// The same, with these headers.
    #[must_use]
    pub fn with_headers(self, headers: Headers) -> Self {
        Sender { headers, ..self }
    }

    fn end(&self) -> u32 {
        self.packets.len() as u32 + 1
    }

    fn packet(&mut self, sequence: u32) -> Option<&mut Transmissions> {
        self.packets.get_mut((sequence as usize).checked_sub(1)?)
    }

    fn flight(&self) -> Flight {
        Flight {
            largest_acked: self.ledger.largest_acked(),
            reordering: self.ledger.reordering(),
            loss_delay: self.timing.loss_delay(&self.rtt),
            patience: self.rtt.smoothed * 2,
            timeout: self.timing.timeout(&self.rtt),
        }
    }

    // ---- what comes in ----

    /// The receiver says what has arrived.
    pub fn on_acknowledgement(&mut self, now: Time, acknowledgement: &Acknowledgement) {
        if self.state != State::Open {
            return;
        }
        self.heard_at = now;
        let beyond = acknowledgement.beyond.iter().zip(acknowledgement.first..).filter(|(has, _)| **has);
        let arrived: Vec<u32> =
            (self.done_to..acknowledgement.first.min(self.sent_to)).chain(beyond.map(|(_, n)| n)).collect();
        for sequence in arrived {
            self.on_arrived(now, sequence, acknowledgement.serial);
        }
        while self.packets.get(self.done_to as usize - 1).is_some_and(|packet| packet.arrived) {
            self.done_to += 1;
        }
        self.sending.on_done(self.done_to.into());
        if self.done_to == self.end() {
            self.state = State::Done(now);
            self.loss_at = None;
            return;
        }
        // The time-outs of what is in flight follow, unless they are frozen.
        self.find_losses(now);
        self.log.timeouts.push((now, self.timing.timeout(&self.rtt)));
    }

    /// A packet has arrived, as an acknowledgement of the transmission `serial` says.
    fn on_arrived(&mut self, now: Time, sequence: u32, serial: u32) {
        let samples = self.samples;
        let Some(packet) = self.packet(sequence) else { return };
        if core::mem::replace(&mut packet.arrived, true) || packet.count == 0 {
            return;
        }
        let (last, sent_at) = (u64::from(packet.last.0), packet.measured_by(serial, samples));
        self.timeouts = 0;
        self.lost.remove(&sequence);
        let rtt = sent_at.map(|sent_at| {
            let sample = self.rtt.on_sample(now, now.since(sent_at), Duration::ZERO);
            self.timing.on_sample(&mut self.rtt, sample);
            self.log.samples.push((now, sample));
            sample
        });
        let prior_in_flight = self.delivery.in_flight;
        let Some(acknowledged) = self.ledger.on_ack(core::iter::once(last..last + 1), now) else { return };
        for run in &acknowledged.packets {
            self.delivery.on_acknowledged(now, run.sent.bytes, &run.sent.snapshot);
            let (sample, bytes) = self.delivery.sample(self.rtt.min);
            let ack = Ack {
                now,
                bytes,
                largest: last,
                sent_at: run.sent.snapshot.sent_at,
                rtt,
                rtt_smoothed: self.rtt.smoothed,
                rtt_min: self.rtt.min,
                prior_in_flight,
                sample,
                ecn_marked: 0,
                next_packet: self.ledger.next_number(),
            };
            self.congestion.on_ack(&ack, &self.delivery);
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.state == State::Open && now >= self.gives_up_at() {
            self.state = State::GivenUp(now);
            self.loss_at = None;
        } else if self.loss_at.is_some_and(|at| at <= now) {
            self.find_losses(now);
        }
    }

    /// Marks packets that are in flight for too long: they are to be sent again.
    fn find_losses(&mut self, now: Time) {
        let earliest = self.heard_at + self.timing.timeout(&self.rtt);
        if self.restarts && now < earliest {
            self.loss_at = (self.ledger.eliciting() > 0).then_some(earliest);
            return;
        }
        let rule = self.finding.rule(&self.flight());
        let lost = self.ledger.take_lost(now, &rule);
        self.loss_at = lost.look_again;
        let next_packet = self.ledger.next_number();
        if let Some((largest, sent)) = lost.packets.last() {
            self.timeouts += 1;
            let bytes = lost.packets.iter().map(|(_, sent)| sent.bytes).sum();
            let timeout = Timeout { now, is_loss: true, in_a_row: self.timeouts, next_packet };
            self.congestion.on_timeout(&timeout, &self.delivery);
            self.delivery.on_lost(bytes);
            let loss = Loss {
                now,
                bytes,
                packets: lost.packets.len() as u64,
                cause: Cause::Expired,
                largest: *largest,
                sent_at: sent.snapshot.sent_at,
                snapshot: sent.snapshot,
                persistent: false,
                next_packet,
            };
            self.congestion.on_loss(&loss, &self.delivery);
        }
        self.lost.extend(lost.packets.iter().flat_map(|(_, sent)| &sent.tokens).map(|token| token.0));
    }

    // ---- what goes out ----

    /// The next packet: what was lost, in its order, then what is new and has room in the window.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Datagram> {
        if self.state != State::Open || now < self.begins || !self.may_send() {
            return None;
        }
        let sequence = match self.lost.pop_first() {
            Some(sequence) => sequence,
            None if u64::from(self.sent_to) < self.limit() => {
                self.sent_to += 1;
                self.sending.on_sent(self.sent_to.into());
                self.sent_to - 1
            }
            None => return None,
        };
        let bytes = self.packet_bytes.into();
        let serial = self.ledger.next_number();
        let packet = self.packet(sequence)?;
        let repeats = packet.count > 0;
        packet.count += 1;
        packet.last = (serial as u32, now);
        if !repeats {
            packet.first = packet.last;
        }
        let snapshot = self.delivery.on_sent(now, bytes);
        self.congestion.on_sent(now, bytes, &self.delivery);
        let flight = self.flight();
        let timeout_us = u32::try_from(flight.timeout.as_micros()).unwrap_or(u32::MAX);
        let asks = self.asks(sequence);
        let departure = Departure { repeats, polls: asks, timeouts: 0, timeout_us };
        let due = self.finding.rule(&flight).age.due(now, &departure);
        self.loss_at = Some(self.loss_at.map_or(due, |at| at.min(due)));
        self.ledger.record(Sent {
            bytes,
            epoch: 0,
            eliciting: true,
            size_probe: false,
            departure,
            tokens: core::iter::once(Sequence(sequence)).collect(),
            snapshot,
        });
        self.log.sent.push((now, sequence, repeats));
        Some(Data { serial: serial as u32, sequence, asks }.datagram(
            self.to,
            self.packet_bytes,
            self.headers,
        ))
    }

    /// True if congestion control has room for a packet.
    fn may_send(&self) -> bool {
        self.delivery.in_flight + u64::from(self.packet_bytes) <= self.congestion.window_bytes()
    }

    /// Packets before this may be sent.
    fn limit(&mut self) -> u64 {
        let end = u64::from(self.end());
        let outstanding = Outstanding {
            done_to: self.done_to.into(),
            sent_to: self.sent_to.into(),
            written_to: end,
            packets: 0,
            in_group: 0,
            packet_bytes: 1,
            window_max: 0,
        };
        match self.flow.allows(end, &self.sending.outstanding(end, outstanding)) {
            Allowed::To(limit) => limit,
            Allowed::Hold => 0,
        }
    }

    /// True if a packet asks: every fourth that is sent, and the last of the transfer. So does a
    /// packet that is alone in flight and that nothing may follow: otherwise nothing would be
    /// acknowledged.
    fn asks(&mut self, sequence: u32) -> bool {
        let is_alone = self.ledger.eliciting() == 0 && u64::from(self.sent_to) >= self.limit();
        let is_last = sequence + 1 == self.end() || !self.may_send() || (is_alone && self.lost.is_empty());
        let asks = self.acknowledgement.poll(self.unasked, is_last);
        self.unasked = if asks { 0 } else { self.unasked + 1 };
        asks
    }

    fn gives_up_at(&self) -> Time {
        self.heard_at + self.patience
    }

    /// When something is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.state {
            State::Open if self.log.sent.is_empty() => Some(self.begins),
            State::Open => Some(self.gives_up_at().min(self.loss_at.unwrap_or(Time::NEVER))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::design::Timers;
    use super::*;

    #[test]
    fn an_acknowledgement_measures_the_transmission_whose_serial_number_it_bears() {
        let at = Time::from_millis;
        let once = Transmissions { count: 1, first: (3, at(1)), last: (3, at(1)), arrived: false };
        let often = Transmissions { count: 3, first: (3, at(1)), last: (9, at(7)), arrived: false };
        for (packet, serial, samples, expected) in [
            // What was sent once is measured by whichever acknowledgement covers it.
            (once, 5, Samples::Serial, Some(at(1))),
            (once, 5, Samples::Single, Some(at(1))),
            (often, 3, Samples::Serial, Some(at(1))),
            (often, 9, Samples::Serial, Some(at(7))),
            (often, 6, Samples::Serial, None),
            (often, 9, Samples::Single, None),
        ] {
            assert_eq!(packet.measured_by(serial, samples), expected, "{packet:?} {serial} {samples:?}");
        }
    }

    fn sender(design: &Design) -> Sender {
        let to = SocketAddr::from(([10, 0, 0, 1], 7001));
        Sender::new(design, to, (40, 520), Time::ZERO, Duration::from_secs(60)).expect("a sender")
    }

    /// Sequence numbers that it sends now.
    fn sends(sender: &mut Sender, now: Time) -> Vec<u32> {
        let before = sender.log.sent.len();
        while sender.poll_transmit(now).is_some() {}
        sender.log.sent[before..].iter().map(|(_, sequence, _)| *sequence).collect()
    }

    fn acknowledgement(first: u32, serial: u32) -> Acknowledgement {
        Acknowledgement { first, serial, beyond: Vec::new() }
    }

    #[test]
    fn a_window_leaves_and_each_acknowledgement_lets_as_many_follow_as_it_says() {
        let mut sender = sender(&Design::fixed(FIRST_TIMEOUT).expect("in the library"));
        assert_eq!(sends(&mut sender, Time::ZERO), (1..=15).collect::<Vec<_>>());
        sender.on_acknowledgement(Time::from_millis(1000), &acknowledgement(5, 3));
        assert_eq!(sends(&mut sender, Time::from_millis(1000)), [16, 17, 18, 19]);
        // Two seconds after the first fifteen, those of them are lost that have not arrived.
        sender.handle_timeout(Time::from_millis(2000));
        assert_eq!(sends(&mut sender, Time::from_millis(2000)), (5..=15).collect::<Vec<_>>());
        sender.handle_timeout(Time::from_millis(3000));
        assert_eq!(sends(&mut sender, Time::from_millis(3000)), [16, 17, 18, 19]);
        // Nobody can acknowledge packets that were not sent.
        sender.on_acknowledgement(Time::from_millis(3100), &acknowledgement(41, 900));
        assert_eq!((sender.state, sender.done_to), (State::Open, 20));
    }

    #[test]
    fn an_acknowledgement_computes_time_outs_anew_starts_them_anew_or_leaves_them() {
        // A sample of 1.5 s: with its half for a deviation, the time-out is 3 s.
        for (timers, expected) in
            [(Timers::Frozen, 2001), (Timers::Recomputed, 3000), (Timers::Restarted, 4500)]
        {
            let mut sender = sender(&Design::hex(timers).expect("in the library"));
            sends(&mut sender, Time::ZERO);
            sender.on_acknowledgement(Time::from_millis(1500), &acknowledgement(2, 0));
            let due = sender.poll_timeout().expect("something is in flight");
            assert_eq!(due, Time::from_millis(expected), "{timers:?}");
        }
    }

    #[test]
    fn it_gives_up_what_is_never_acknowledged() {
        let mut sender = sender(&Design::fixed(FIRST_TIMEOUT).expect("in the library"));
        let mut now = Time::ZERO;
        while sender.state == State::Open {
            sends(&mut sender, now);
            now = sender.poll_timeout().expect("something is due");
            sender.handle_timeout(now);
        }
        assert_eq!(sender.state, State::GivenUp(Time::from_millis(60_000)));
        assert_eq!(sender.poll_timeout(), None);
        assert_eq!(sender.log.sent.len(), 15 * 30);
    }
}
