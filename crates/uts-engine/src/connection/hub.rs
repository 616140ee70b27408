//! The two ways of a connection, and time, as lists. Out: why a packet may leave (`next_packet`),
//! and how it is built (`build`); what goes into it the [`Parts`](super::parts::Parts) write, in
//! their order. In: from a datagram (`handle_datagram`, `take_in`) to the parts, which read its
//! frames (`handle_frame`). Time: when something is due (`poll_timeout`), and doing it
//! (`handle_timeout`). The fate of packets that were sent is in [`settle`](super::settle).

use super::establish::protection::Place;
use super::life::deadlines::earlier;
use super::packet::{Reason, Room, Shape};
use super::parts::{Effect, PacketSize, Part, has_repair};
use super::receive::contents::{Contents, Places};
use super::receive::inbound::Arrived;
use super::receive::incoming::Ecn;
use super::send::gate::AROUND_BYTES;
use super::settle::Report;
use super::stage::{Fresh, Open};
use super::{Allowance, Connection, Outbound, Polled, State, both};
use crate::event::{CloseReason, Event};
use crate::policy::Turns;
use crate::probe::Point;
use core::time::Duration;
use smallvec::SmallVec;
use uts_functions::Time;
use uts_wire::frame::{Frame, kind};
use uts_wire::packet::establishment::{Level, LongPacket, parse_header};

/// A larger packet size is looked for once so much data was sent: to a few keystrokes it is of no
/// use, and on a slow line they would wait for the probe.
const PROBE_AFTER_BYTES: u64 = 16 * 1024;

/// The way in, in either stage.
impl Connection {
    /// Takes in a datagram from the peer's address.
    pub(crate) fn handle_datagram(&mut self, now: Time, ecn: Option<Ecn>, datagram: &mut [u8]) {
        both!(&mut self.state, core => core.establishing.on_bytes_from_address(datagram.len() as u64));
        self.handle_packets(now, ecn, datagram);
    }

    /// The same, wherever it comes from.
    pub(super) fn handle_packets(&mut self, now: Time, ecn: Option<Ecn>, mut datagram: &mut [u8]) {
        let datagram_bytes = datagram.len();
        both!(&mut self.state, core => core.ways.stats.bytes_received += datagram_bytes as u64);
        while let Some(first) = datagram.first() {
            if !uts_wire::packet::is_long(*first) {
                self.handle_short(now, ecn, datagram);
                break;
            }
            let Some(end) = self.handle_long(now, datagram, datagram_bytes) else { break };
            datagram = &mut datagram[end..];
        }
    }

    /// An establishment packet at the start of what a datagram of so many bytes still has; says
    /// where it ends. The connection is established once the last one that it takes has come.
    pub(super) fn handle_long(
        &mut self,
        now: Time,
        datagram: &mut [u8],
        datagram_bytes: usize,
    ) -> Option<usize> {
        let Ok(LongPacket::Establishment(packet)) = parse_header(datagram) else {
            both!(&mut self.state, core => core.ways.stats.dropped_malformed += 1);
            return None;
        };
        let (place, scid) = (Place::of(&packet), packet.header.scid);
        if place.level == Level::Early {
            let words: SmallVec<[u8; 24]> = packet.header.token.into();
            both!(&mut self.state, core => core.handle_early(now, datagram, &place, (scid, &words)));
            return Some(place.end);
        }
        let overtakers = both!(&mut self.state, core => {
            core.handle_establishment(now, datagram, datagram_bytes, &place, scid)
        });
        if let State::Establishing(fresh) = &mut self.state
            && fresh.is_agreed()
        {
            self.establish(now);
        }
        for mut packet in overtakers {
            let bytes = packet.len();
            self.handle_long(now, &mut packet, bytes);
        }
        Some(place.end)
    }

    /// A packet of the connection itself, which has the short header.
    pub(super) fn handle_short(&mut self, now: Time, ecn: Option<Ecn>, packet: &mut [u8]) {
        match &mut self.state {
            State::Open(open) if open.life.is_live() => open.handle_adaptive(now, ecn, packet),
            State::Establishing(fresh) if fresh.life.is_live() => fresh.keep_ahead(ecn, packet),
            state => both!(state, core => core.repeat_close()),
        }
    }

    /// All datagrams that came together have been taken in.
    pub(crate) fn after_datagrams(&mut self, now: Time, turns: &mut Turns) {
        if let State::Open(open) = &mut self.state {
            open.after_datagrams(now, turns);
        }
    }
}

/// The way in of what is established.
impl Open {
    /// Takes in an authentic packet: all of it or, if it is malformed, none.
    pub(super) fn take_in(&mut self, at: &Arrived, payload: &[u8]) {
        if payload.first() == Some(&kind::USE_PF) {
            return self.take_in_envelope(at, payload);
        }
        let mut places = Places::new(payload);
        let Some(contents) = Contents::read(payload, &mut places) else { return self.on_malformed(at.epoch) };
        if self.ways.overruns(at.epoch, &contents) || self.ways.lacks_memory(at.epoch, &contents) {
            // Without flow control a receiver may be overrun: the packet counts as lost, not as
            // arrived.
            self.ways.stats.dropped_overrun += 1;
            return;
        }
        self.on_authentic(at.now);
        if self.ways.refuses(at, &contents) {
            return;
        }
        let Some(is_recovered) = self.ways.on_arrival(at, contents.seen(), payload.len() as u64) else {
            return;
        };
        self.on_packet_of_epoch(at.now, at.epoch, at.is_enclosed);
        if is_recovered {
            return;
        }
        let handled = match &contents {
            Contents::Data(data) => self.ways.on_data(at, data),
            Contents::Messages(messages) => self.ways.on_messages(at, messages, payload),
            Contents::Frames(frames) => frames.try_for_each(|frame| self.handle_frame(at, frame)),
        };
        match handled {
            Ok(()) => {
                if contents.seen().has_data {
                    self.ways.hold_back(at, &contents);
                }
                self.repair(at, payload, &contents)
            }
            Err(reason) => self.fail(reason),
        }
    }

    /// A frame of a packet goes to its part. What else it asks for is done here.
    pub(super) fn handle_frame(&mut self, at: &Arrived, frame: &Frame<'_>) -> Result<(), CloseReason> {
        match self.parts.read(at, frame, &mut self.ways)? {
            Effect::Nothing => {}
            Effect::Arrived(ack) => {
                let delay = Duration::from_micros(ack.delay_us);
                let ce = ack.ecn.map(|ecn| ecn.ce);
                self.on_report(at.now, Report { ranges: &mut ack.ranges.iter(), delay, ce })?;
            }
            Effect::Repaired(ranges) => self.on_repaired(at.now, ranges.iter())?,
            Effect::Exchange(message) => self.on_exchange_frame(at.now, message)?,
            Effect::Close(close) => self.on_peer_close(at.now, close.code, close.reason),
            Effect::Answered(number) => self.on_path_response(at.now, number),
            Effect::UseId(id) => self.use_id(&id),
        }
        Ok(())
    }

    /// All datagrams that came together have been taken in.
    fn after_datagrams(&mut self, now: Time, turns: &mut Turns) {
        // What was forged, or has been here before, is no occasion for anything.
        if self.life.last_heard_at == now {
            self.ways.flows.incoming.settle();
            self.ways.leave_window();
            self.renew_keys_if_due(now);
            self.adapt(now, turns);
            #[cfg(debug_assertions)]
            self.check_invariants();
        }
    }
}

/// The way out, in either stage.
impl Connection {
    /// The next thing to tell the application.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        both!(&mut self.state, core => core.ways.events.pop_front())
    }

    /// Fills `out` with datagrams of one size, as far as the connection may. Says what size, and
    /// whether others were in the way.
    pub(crate) fn poll_transmit(&mut self, now: Time, allowance: Allowance, out: &mut Vec<u8>) -> Polled {
        match &mut self.state {
            State::Establishing(fresh) => fresh.poll_transmit(now, out),
            State::Open(open) => open.poll_transmit(now, allowance, out),
        }
    }
}

impl Fresh {
    fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Polled {
        let before = out.len();
        let segment_bytes =
            if self.life.is_live() { self.poll_handshake(now, out) } else { self.poll_close(now, out) };
        self.establishing.on_bytes_to_address((out.len() - before) as u64);
        Polled { segment_bytes, has_more: segment_bytes.is_some(), ..Polled::default() }
    }
}

/// The way out of what is established.
impl Open {
    fn poll_transmit(&mut self, now: Time, allowance: Allowance, out: &mut Vec<u8>) -> Polled {
        self.ways.outbound.begin(allowance);
        if let Some(polled) = self.poll_aside(now, out) {
            return polled;
        }
        let before = out.len();
        let segment_bytes = self.poll_datagrams(now, out);
        self.establishing.on_bytes_to_address((out.len() - before) as u64);
        let has_more = segment_bytes.is_some() && self.has_more_to_send(now);
        #[cfg(debug_assertions)]
        self.check_invariants();
        let has_waited = self.ways.outbound.has_waited;
        Polled { segment_bytes, has_waited, has_more, is_aside: false }
    }

    /// A packet to a place that others do not go to: it challenges whoever is there. (M-12)
    fn poll_aside(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Polled> {
        if !self.life.is_live() {
            return None;
        }
        let number = self.take_due_aside()?;
        let mut frame = Vec::new();
        Frame::PathChallenge(number).emit(&mut frame);
        let bytes = self.write_alone(now, &frame, out)?;
        Some(Polled { segment_bytes: Some(bytes), has_waited: false, has_more: true, is_aside: true })
    }

    /// True if it is worth asking again what to send. Mostly there is nothing more, and to find
    /// that here takes less than another turn.
    fn has_more_to_send(&mut self, now: Time) -> bool {
        if !self.life.is_live() || self.establishing.is_active() {
            return true;
        }
        self.pursue_groups(now);
        self.next_packet(now).is_some()
    }

    fn poll_datagrams(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        if self.life.is_live() {
            self.end_if_keys_are_spent();
        }
        if !self.life.is_live() {
            return self.poll_close(now, out);
        }
        let handshake = self.poll_handshake(now, out);
        if handshake.is_some() {
            return handshake;
        }
        if self.waits_for_proof() {
            return None;
        }
        self.pursue_groups(now);
        self.ways.hold_limit(now);
        self.poll_adaptive(now, out)
    }

    /// Why the next packet may leave, if it may.
    pub(super) fn next_packet(&mut self, now: Time) -> Option<Reason> {
        let report_due = self.parts.report.timeout(&self.ways).is_some_and(|due| due <= now);
        if report_due {
            self.ways.flows.let_ride();
        }
        let wants = self.wants_to_send();
        let probe_size = self.parts.size.probe(now).filter(|bytes| self.is_worth_probing(*bytes));
        let packet_bytes = self.parts.size.current() as u64;
        let goes_on = wants && self.goes_on_unheard();
        let bytes = if wants { self.bytes_of_next(packet_bytes) } else { packet_bytes };
        let rate_min = self.ways.config.requirements.min_send_rate;
        let outbound = &mut self.ways.outbound;
        if outbound.probes_due > 0 {
            return Some(Reason::Probe);
        }
        // A probe that is due goes first: who always has data to send would never come to it, and
        // stay with small packets.
        let may_probe = |outbound: &Outbound, bytes: usize| {
            outbound.delivery.under_way().saturating_add(bytes as u64) <= outbound.window_bytes()
        };
        if wants {
            if outbound.admits(now, bytes, packet_bytes) {
                // A window that has room for the probe alone would have what waits wait for it, and
                // it may be lost.
                let with_one = |bytes: usize| bytes + packet_bytes as usize;
                let probe = probe_size.filter(|bytes| may_probe(outbound, with_one(*bytes)));
                return Some(probe.map_or(Reason::Admitted, Reason::SizeProbe));
            }
            if goes_on && outbound.admits_unheard(now, packet_bytes, rate_min) {
                return Some(Reason::Admitted);
            }
        } else {
            outbound.paced_until = None;
            outbound.bursts.on_nothing_left();
            if outbound.delivery.under_way() < outbound.window_bytes() {
                outbound.delivery.set_app_limited();
            }
            if let Some(bytes) = probe_size.filter(|bytes| may_probe(outbound, *bytes)) {
                return Some(Reason::SizeProbe(bytes));
            }
        }
        report_due.then_some(Reason::Report)
    }

    /// The most that the next packet has, where a full one has `packet_bytes`: less where the
    /// window has no room for a full one, and all that waits is data that fills none (congestion.md
    /// C-2).
    fn bytes_of_next(&self, packet_bytes: u64) -> u64 {
        let outbound = &self.ways.outbound;
        let room = outbound.window_bytes().saturating_sub(outbound.delivery.under_way());
        let is_narrow = room > AROUND_BYTES && room < packet_bytes;
        if !is_narrow || self.parts.want_more_than_data(&self.ways) {
            return packet_bytes;
        }
        let waiting = self.ways.flows.waiting_bytes(packet_bytes);
        packet_bytes.min(AROUND_BYTES + 2 * waiting)
    }

    /// True if the data that is next needs no acknowledgement, and none has come for a time-out.
    fn goes_on_unheard(&self) -> bool {
        self.ways.outbound.timeouts > 0
            && self.ways.flows.next_to_send(None).is_some_and(|flow| !self.ways.repeats(flow))
    }

    fn is_worth_probing(&self, bytes: usize) -> bool {
        let deadline = self.ways.config.requirements.deadline();
        let capacity = self.ways.outbound.meter.capacity();
        self.is_confirmed()
            && self.ways.stats.data_bytes_sent >= PROBE_AFTER_BYTES
            && PacketSize::is_harmless(bytes, deadline, capacity)
    }

    /// True if anything but acknowledgements waits to be sent.
    pub(super) fn wants_to_send(&self) -> bool {
        self.parts.want_to_send(&self.ways)
    }

    /// The epoch under which the next packet is built: redundancy must leave under its own, data
    /// under its group's. A peer may no longer read an epoch of which redundancy still waits: what
    /// is to bring an answer, and reports, leave under one in use. (X-32: what is not agreed to yet
    /// is heard of first.)
    pub(super) fn choose_stack(&self, reason: Reason) -> Option<usize> {
        let (outbound, flows) = (&self.ways.outbound, &self.ways.flows);
        if let Some(due) = outbound.due_stack_index() {
            return Some(due);
        }
        let redundant = outbound.stacks.iter().position(has_repair).filter(|_| reason == Reason::Admitted);
        redundant.or_else(|| {
            let next = flows.next_to_send(None).and_then(|id| flows.get(id));
            outbound.stack_index(next.map_or(0, |flow| flow.send.group))
        })
    }

    /// Builds one packet, if there is anything to put in.
    pub(super) fn build(
        &mut self,
        now: Time,
        reason: Reason,
        room: Room,
        out: &mut Vec<u8>,
    ) -> Option<Shape> {
        let begun = self.ways.trace.instant();
        let mut packet = self.begin_packet(now, reason, room, out)?;
        self.parts.write(&mut packet, &mut self.ways);
        if packet.frames().is_empty() {
            let stack = packet.stack;
            packet.abandon();
            // Redundancy that fits no packet any more has made room for what waits behind it.
            let outbound = &self.ways.outbound;
            let is_over = outbound.is_replaced(stack)
                && outbound.stacks.get(stack).is_some_and(|stack| !has_repair(stack));
            return if is_over { self.build(now, reason, room, out) } else { None };
        }
        let frames = self.ways.trace.kinds_of(packet.frames());
        self.pad(&mut packet);
        self.ways.trace.passed(begun, Point::Begun, packet.len());
        self.ways.trace.pass(Point::Filled, packet.len());
        self.ways.protect(&mut packet, &self.identity.peer_cid);
        let (shape, bytes) = (packet.shape, packet.len());
        self.record(packet, frames);
        self.ways.trace.pass(Point::Sealed, bytes);
        Some(shape)
    }
}

/// Time. Each part says when it wants to be called; the earliest of them is the connection's.
impl Connection {
    /// When something is due next.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        match &self.state {
            State::Establishing(fresh) => fresh.poll_timeout(),
            State::Open(open) => open.poll_timeout(),
        }
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Time, turns: &mut Turns) {
        match &mut self.state {
            State::Establishing(fresh) => fresh.handle_timeout(now),
            State::Open(open) => open.handle_timeout(now, turns),
        }
    }
}

impl Fresh {
    fn poll_timeout(&self) -> Option<Time> {
        if !self.life.is_live() {
            return self.life.over_at();
        }
        earlier(self.handshake_timer(), self.fails_at())
    }

    fn handle_timeout(&mut self, now: Time) {
        if !self.life.is_live() {
            return self.life.look_whether_over(now);
        }
        self.end_if_due(now);
        if self.life.is_live() {
            self.on_handshake_timeout(now);
        }
    }
}

impl Open {
    fn poll_timeout(&self) -> Option<Time> {
        if !self.life.is_live() {
            return self.life.over_at();
        }
        let mut next = self.handshake_timer();
        let mut add = |at: Option<Time>| next = earlier(next, at);
        add(self.idle_at());
        add(self.unasked_at());
        add(self.keep_alive_at());
        add(self.liveness_timeout());
        add(self.ways.receive_rate_timeout());
        add(self.migration_timeout());
        // Who may send nothing at present has nothing to do that would be sent.
        if !self.waits_for_proof() {
            add(self.ways.outbound.loss_timeout());
            add(self.ways.outbound.paced_until);
            add(self.parts.timeout(&self.ways));
        }
        add(self.policy_timeout());
        add(self.rest_timeout());
        next
    }

    fn handle_timeout(&mut self, now: Time, turns: &mut Turns) {
        if !self.life.is_live() {
            return self.life.look_whether_over(now);
        }
        self.end_if_due(now);
        if !self.life.is_live() {
            return;
        }
        self.on_handshake_timeout(now);
        if self.keep_alive_at().is_some_and(|at| at <= now) {
            // Whatever the window says: what fills it may have gone where the peer is no more.
            self.ask(now);
        }
        self.on_liveness_timeout(now);
        if !self.life.is_live() {
            return;
        }
        self.ways.on_receive_rate_timeout(now);
        self.on_migration_timeout(now);
        if !self.waits_for_proof() && self.ways.outbound.loss_timeout().is_some_and(|at| at <= now) {
            self.on_loss_timeout(now);
        }
        self.parts.on_timeout(now, &mut self.ways);
        self.drain_exchanges(now);
        self.adapt(now, turns);
        self.on_rest_timeout(now);
        #[cfg(debug_assertions)]
        self.check_invariants();
    }
}
