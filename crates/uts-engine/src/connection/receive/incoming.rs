//! The way in: from a datagram to data that waits to be read.
//!
//! `handle_adaptive` -> `Inbound::unseal` (epoch, mask, cipher, checksum; nothing is changed
//! before) -> `take_in` (acknowledgement) -> `handle_frame` -> `repair` (what redundancy brings
//! back goes through `handle_frame` as well).

use crate::bug::bug;
use crate::connection::flows::violation;
use crate::connection::parts::{Signal, Topic};
use crate::connection::receive::contents::{Contents, Frames, Seen};
use crate::connection::receive::inbound::{Arrived, Dropped, Unsealed, stack_of};
use crate::connection::receive::messages::Messages;
use crate::connection::stage::Open;
use crate::connection::{CloseReason, Event, Ways};
use crate::event::{Direction, FlowId};
use crate::probe::Point;
use crate::synthesis::{ReceiveStack, repair_of};
use bytes::Bytes;
use core::time::Duration;
use uts_functions::Time;
use uts_functions::acknowledgement::{Acknowledgement, Arrival};
use uts_functions::fec;
use uts_functions::protection::Protection;
use uts_functions::sequencing::reassembly::Segment;
use uts_wire::frame::{self, Frame};

/// Mark of the network on a packet (RFC 3168): ECT(0), ECT(1) or CE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// ECN-capable transport, codepoint 0.
    Ect0,
    /// ECN-capable transport, codepoint 1.
    Ect1,
    /// Congestion experienced.
    Ce,
}

/// Gaps in what a flow has received that are remembered. Where nothing is repeated the oldest
/// beyond are given up; where losses are repeated, packets that would leave more are dropped
/// unacknowledged.
pub(in crate::connection) const GAPS_MAX: usize = 4096;

/// Where data of a frame stands.
struct Part {
    offset: Option<u64>,
    len: u64,
}

/// Data whose flow was found, and is to be read.
#[derive(Clone, Copy, Debug)]
pub(in crate::connection) struct Placement {
    /// It has positions.
    pub counts: bool,
    /// Losses of it are repeated.
    pub repeats: bool,
}

impl Open {
    /// Takes in a short packet.
    pub(in crate::connection) fn handle_adaptive(&mut self, now: Time, ecn: Option<Ecn>, packet: &mut [u8]) {
        let found = self.ways.trace.instant();
        self.wake(now);
        let tail = packet.last_chunk::<16>().copied();
        let opened = self.ways.inbound.unseal(&self.identity.local_cid, packet);
        self.on_unsealed(now, ecn, packet, (found, tail), opened);
    }

    /// Goes on with a packet that could be opened or not, of which `tail` was the end before, and
    /// whose connection was found at that instant, if that is of interest.
    pub(in crate::connection) fn on_unsealed(
        &mut self,
        now: Time,
        ecn: Option<Ecn>,
        packet: &[u8],
        (found, tail): (Option<Time>, Option<[u8; 16]>),
        opened: Result<Unsealed, Dropped>,
    ) {
        // A reset looks like a packet that cannot be opened (RFC 9000 section 10.3).
        if opened.is_err() && self.identity.is_reset(tail) {
            self.on_stateless_reset(now);
            return;
        }
        let found = found.filter(|_| opened.is_ok());
        if found.is_some() {
            self.ways.trace.passed(found, Point::Found, packet.len());
            self.ways.trace.pass(Point::Opened, packet.len());
        }
        match opened {
            Ok(Unsealed { epoch, number, frames, right_bytes: Some(right_bytes), .. }) => {
                self.take_in_damaged(&Arrived::of(now, ecn, epoch, number), &packet[frames], right_bytes)
            }
            Ok(Unsealed { epoch, number, frames, repaired, .. }) => {
                self.ways.stats.packets_corrected += u64::from(repaired);
                self.take_in(&Arrived::of(now, ecn, epoch, number), &packet[frames])
            }
            Err(Dropped::UnknownEpoch) => self.ways.stats.dropped_unknown_epoch += 1,
            Err(Dropped::Malformed) => self.ways.stats.dropped_malformed += 1,
            Err(Dropped::Duplicate) => self.ways.stats.dropped_duplicate += 1,
            Err(Dropped::Forged) => self.on_forged(),
        }
        if found.is_some() {
            self.ways.trace.pass(Point::Placed, packet.len());
        }
    }

    /// Packets that may turn out to be forged, by the cipher of the newest epoch.
    pub(in crate::connection) fn forgeries_max(&self) -> u64 {
        let newest = self.ways.inbound.stacks.last().and_then(|stack| stack.protection.as_ref());
        newest.map_or(u64::MAX, |protection| protection.forgeries_max())
    }

    /// An authentic packet that cannot be read: the peer is broken. Without protection it may be
    /// anybody's.
    pub(in crate::connection) fn on_malformed(&mut self, epoch: u32) {
        self.ways.stats.dropped_malformed += 1;
        let protection = self.ways.inbound.stack(epoch).and_then(|stack| stack.protection.as_ref());
        let tagged = protection.is_some_and(|protection| protection.tag_bytes() > 0);
        if tagged {
            self.fail(CloseReason::Protocol("it sent a packet that cannot be read".into()));
        }
    }

    /// Feeds redundancy with a packet, and takes in what it brings back.
    pub(in crate::connection) fn repair(
        &mut self,
        at: &Arrived,
        payload: &[u8],
        contents: &Contents<'_, '_>,
    ) {
        let inbound = &mut self.ways.inbound;
        let Some(stack) = stack_of(&mut inbound.stacks, at.epoch) else { return };
        // Where nothing decodes redundancy, it would only be held.
        let Some(decoder) = &mut stack.fec else { return };
        let has_data = contents.seen().has_data;
        let mut recovered = Vec::new();
        // flow.md R-37
        if self.ways.flows.incoming.has_room_for_redundancy(payload.len()) {
            if has_data {
                recovered = decoder.on_source(at.number, payload);
            }
            contents.for_each_repair(|repair| {
                recovered.extend(decoder.on_repair(&repair_of(repair)));
            });
        } else {
            decoder.forget();
        }
        self.ways.note_redundancy();
        for packet in recovered {
            self.take_in_recovered(at.now, at.epoch, packet);
        }
    }

    /// Takes in a packet that redundancy has brought back. Redundancy of redundancy is not used.
    /// (fec.md)
    fn take_in_recovered(&mut self, now: Time, epoch: u32, packet: fec::Recovered) {
        let inbound = &mut self.ways.inbound;
        if inbound.stack(epoch).is_none() {
            return;
        }
        let at = &Arrived::of(now, None, epoch, packet.number);
        let known =
            inbound.arrivals.is_duplicate(packet.number) || inbound.arrivals.repaired.contains(packet.number);
        let sane = inbound.arrivals.largest.is_some_and(|(largest, _)| packet.number <= largest);
        if known || !sane {
            return;
        }
        let mut frames = Frames::new(&packet.payload);
        if !frames.read()
            || self.ways.overruns(epoch, &Contents::Frames(&frames))
            || self.ways.lacks_memory(epoch, &Contents::Frames(&frames))
            || self.ways.refuses(at, &Contents::Frames(&frames))
        {
            return;
        }
        let inbound = &mut self.ways.inbound;
        inbound.arrivals.repaired.insert_one(packet.number);
        inbound.arrivals.report_by(now);
        self.ways.stats.packets_recovered += 1;
        match frames.try_for_each(|frame| self.handle_frame(at, frame)) {
            Ok(()) => self.ways.confirm(&frames),
            Err(reason) => self.fail(reason),
        }
    }

    /// A packet of an epoch arrived: for the machine, the first is a confirmation, if it came in no
    /// envelope.
    pub(in crate::connection) fn on_packet_of_epoch(&mut self, now: Time, epoch: u32, is_enclosed: bool) {
        let inbound = &mut self.ways.inbound;
        let heard = (epoch, is_enclosed);
        let is_first = inbound.heard_of.replace(heard) != Some(heard);
        if is_first {
            inbound.follow_rate(epoch);
        }
        if !is_first || inbound.stacks.len() == 1 {
            return;
        }
        let group = inbound.stacks.iter().find(|s| s.epoch == epoch).map(|s| s.group);
        let governs = group.and_then(|group| inbound.flow_epochs.get(usize::from(group)));
        let is_newer = governs.is_some_and(|governs| epoch > *governs);
        if let Some(machine) = self.parts.exchanges.machine(Direction::In).filter(|_| !is_enclosed) {
            machine.on_packet(now, epoch);
        }
        if is_newer {
            self.ways.follow_demands(now, epoch);
            self.ways.adopt_flow_control(now, epoch);
        }
        self.drain_exchange(now, Direction::In);
    }
}

impl Ways {
    /// True if the packet holds data for which there is no room although its sender was not told to
    /// stop: more bytes than memory is given, or more gaps than are remembered where none may be
    /// given up. It will be repeated, if anything is.
    pub(in crate::connection) fn overruns(&self, epoch: u32, contents: &Contents<'_, '_>) -> bool {
        let frames = match contents {
            Contents::Data(data) => return self.overruns_with(epoch, data),
            Contents::Messages(messages) => return self.overruns_with_messages(epoch, messages),
            Contents::Frames(frames) => frames,
        };
        frames.seen.has_data
            && frames.any(|frame| match frame {
                Frame::Data(data) => self.overruns_with(epoch, data),
                Frame::Messages(messages) => {
                    let len = messages.bytes.len() as u64;
                    let part = Part { offset: messages.offset, len: len + u64::from(messages.count) - 1 };
                    self.overruns_with_parts(epoch, messages.flow, len, core::iter::once(part))
                }
                _ => false,
            })
    }

    /// Notes that a packet has arrived, with so many bytes of frames. Says whether redundancy had
    /// brought it back before: then only its arrival is news. `None` if its epoch is closed.
    pub(in crate::connection) fn on_arrival(&mut self, at: &Arrived, seen: Seen, bytes: u64) -> Option<bool> {
        let Arrived { now, ecn, epoch, number, .. } = *at;
        let inbound = &mut self.inbound;
        let stack = stack_of(&mut inbound.stacks, epoch)?;
        let is_recovered = inbound.arrivals.repaired.contains(number);
        let marked = ecn == Some(Ecn::Ce);
        let arrival = Arrival { number, now, eliciting: seen.eliciting, polled: seen.polled, marked };
        stack.acknowledgement.on_arrival(&mut inbound.arrivals, &arrival);
        inbound.arrivals.insert(&arrival);
        if let Some(ecn) = ecn {
            inbound.arrivals.ecn[ecn as usize] += 1;
        }
        if let Some(watch) = &mut inbound.watch
            && watch.1.on_arrival(now, number, bytes)
        {
            self.feedback.insert(Topic::Rate);
        }
        self.stats.packets_received += 1;
        self.trace.on_packet_received(now, number, epoch, bytes);
        Some(is_recovered)
    }

    fn overruns_with(&self, epoch: u32, data: &frame::Data<'_>) -> bool {
        let len = data.bytes.len() as u64;
        let part = Part { offset: data.offset, len };
        self.overruns_with_parts(epoch, data.flow, len, core::iter::once(part))
    }

    fn overruns_with_messages(&self, epoch: u32, messages: &Messages) -> bool {
        // They stand in a row, so that what holds for all of them holds for each.
        let part = Part { offset: messages.start, len: messages.positions().saturating_sub(1) };
        self.overruns_with_parts(epoch, messages.flow, messages.data_bytes, core::iter::once(part))
    }

    fn overruns_with_parts(
        &self,
        epoch: u32,
        flow: u32,
        data_bytes: u64,
        mut parts: impl Iterator<Item = Part>,
    ) -> bool {
        let Some(stack) = self.inbound.stack(epoch) else {
            bug!("epoch {epoch} of a packet is gone before its data is read");
            return false;
        };
        let (repeats, counts) = (repeats(stack), stack.layout.offsets);
        let Some(receive) = self.flows.get(flow).map(|flow| &flow.receive) else {
            // flow.md R-39: what came before of the flow, without a limit, may be lost. It begins
            // with this one.
            let first = self.config.first_credit();
            let may_be_beyond = counts && self.flows.has_come_free && stack.flow.info().facts.grants;
            return may_be_beyond
                && self.flows.would_open(flow)
                && parts.any(|part| part.offset.unwrap_or(0).saturating_add(part.len) > first);
        };
        let has_many_gaps = repeats && receive.data.gaps() >= GAPS_MAX;
        // flow.md R-39
        let may_be_beyond = receive.is_free() || self.flows.has_come_free;
        let limit = match may_be_beyond {
            // The first data of a flow says what governs it.
            true if !stack.flow.info().facts.grants => receive.limit().max(receive.free_bound()),
            true => receive.limit(),
            false => u64::MAX,
        };
        !receive.has_room(data_bytes)
            || parts.any(|part| {
                let start = part.offset.filter(|_| counts).unwrap_or(0);
                start.saturating_add(part.len) > limit || (has_many_gaps && receive.data.leaves_gap(start))
            })
    }

    /// The next bytes of a file, of a flow that is known: the common case.
    pub(in crate::connection) fn on_next_bytes(&mut self, epoch: u32, data: &frame::Data<'_>) -> bool {
        let Some(stack) = self.inbound.stack(epoch) else { return false };
        let Some((receive, incoming)) = self.flows.receiving(data.flow) else { return false };
        if !receive.append(stack, data) {
            return false;
        }
        incoming.note(receive);
        self.stats.data_bytes_received += data.bytes.len() as u64;
        receive.tell_reader(data.flow, &mut self.events);
        true
    }

    /// Finds the flow of data that came under a stack, opening it if it is the peer's to open, and
    /// sees that it is in the stack's group. `None` if nobody wants the data.
    pub(in crate::connection) fn place(
        &mut self,
        epoch: u32,
        id: u32,
    ) -> Result<Option<Placement>, CloseReason> {
        // A peer may close the epoch of a packet by the packet itself: nobody wants the rest.
        let Some(stack) = self.inbound.stack(epoch) else { return Ok(None) };
        let (group, governs) = (stack.group, &stack.flow);
        let sent_free = !governs.info().facts.grants;
        let (repeats, counts) = (repeats(stack), stack.layout.offsets);
        let has_other_window = self.flows.has_other_window;
        let found = self.flows.of_frame(id).map_err(violation)?;
        let Some((flow, is_new)) = found else { return Ok(None) };
        if is_new {
            self.events.push_back(Event::FlowOpened(FlowId(id)));
        }
        let (receive, mut is_told) = (&mut flow.receive, false);
        // the first data says which group the flow is in.
        if !core::mem::replace(&mut receive.is_placed, true) {
            if receive.group != group {
                receive.group = group;
                receive.begin_with(governs, self.config.credit_bytes_initial);
            }
            // flow.md R-24: its sender may have begun with another window than this end reckons.
            is_told = !receive.is_free() && (group != 0 || has_other_window);
        } else if receive.group != group {
            let what = format!("flow {id} of group {}: data in group {group}", receive.group);
            return Err(CloseReason::Protocol(what));
        }
        receive.follow_demand(stack);
        let is_played = receive.follow_playout(stack);
        if sent_free && !receive.is_free() {
            // It left before its sender needed credit.
            receive.free_limit = receive.free_limit.max(receive.free_bound());
        }
        // flow.md R-29: what has no positions has no place before a reset.
        if let Some(reset) = receive.reset.as_mut().filter(|_| !counts) {
            reset.1 = 0;
        }
        let is_wanted = receive.due_reset().is_none() && !receive.is_done;
        if is_told && is_wanted {
            self.flows.signals.insert(Signal::Credit(id));
        }
        if is_played {
            self.flows.note_received(id);
            self.flows.update_alarm(id);
        }
        Ok(is_wanted.then_some(Placement { counts, repeats }))
    }

    /// Takes in data that follows on what has arrived of a flow in its place; false of other data.
    fn takes_next(&mut self, at: &Arrived, data: &frame::Data<'_>) -> Result<bool, CloseReason> {
        if !self.on_next_bytes(at.epoch, data) {
            return Ok(false);
        }
        self.keeps_to_credit()?;
        self.consumed_if_tagged(at.now, data.flow);
        Ok(true)
    }

    pub(in crate::connection) fn on_data(
        &mut self,
        at: &Arrived,
        data: &frame::Data<'_>,
    ) -> Result<(), CloseReason> {
        if self.takes_next(at, data)? {
            return Ok(());
        }
        let Some(placed) = self.place(at.epoch, data.flow)? else {
            self.note_end(data);
            return Ok(());
        };
        if placed.counts {
            self.find_memory(data);
        }
        // The first of a flow found it not yet in its place.
        if self.takes_next(at, data)? {
            return Ok(());
        }
        self.insert_data(at, placed, data, None)
    }

    /// Data of a flow that is known, whose data has positions and is repeated or not. Of a message
    /// that came damaged, so many bytes are right.
    pub(in crate::connection) fn insert_data(
        &mut self,
        at: &Arrived,
        Placement { counts, repeats }: Placement,
        data: &frame::Data<'_>,
        right_bytes: Option<u64>,
    ) -> Result<(), CloseReason> {
        let Some(receive) = self.flows.get_mut(data.flow).map(|flow| &mut flow.receive) else {
            return Ok(());
        };
        self.stats.data_bytes_received += data.bytes.len() as u64;
        // Without positions nothing of a flow is consumed that would move a limit along: what is
        // held is what counts then.
        let limit = if counts { receive.limit() } else { u64::MAX };
        // P-30, and for P-34 as well: there each would be at the front of the flow.
        let start = match data.offset {
            Some(start) => start,
            None if counts => 0,
            None if data.flags.begin && data.flags.end => {
                // No positions: a whole message, handed over as it comes.
                let message = Bytes::copy_from_slice(data.bytes);
                if !receive.data.push_unplaced(message, data.flags.presented) {
                    self.stats.dropped_overrun += 1;
                }
                self.flows.note_received(data.flow);
                self.tell_reader(at.now, data.flow);
                return Ok(());
            }
            None => {
                let what = format!("flow {}: a part of a message without its position", data.flow);
                return Err(CloseReason::Protocol(what));
            }
        };
        if data.flags.fin && !counts {
            // Nobody waits for what came without positions, or did not come.
            receive.data.skip(0..start);
        }
        let stack = self.inbound.stack(at.epoch);
        let is_revocable = stack.is_some_and(|stack| receive.may_give_up(stack, start));
        let inserted = receive.insert_tagged(start, data, limit).unwrap_or_else(|| {
            let segment = Segment {
                start,
                data: Bytes::copy_from_slice(data.bytes),
                message: data.flags.message,
                presented: data.flags.presented,
                begin: data.flags.begin,
                end: data.flags.end,
                fin: data.flags.fin,
            };
            match right_bytes {
                Some(right_bytes) => receive.data.insert_damaged(segment, right_bytes, limit),
                None if is_revocable => receive.data.insert_revocable(segment, limit),
                None => receive.data.insert(segment, limit),
            }
        });
        match inserted {
            Ok(new) => {
                self.stats.data_bytes_repeated += (data.bytes.len() as u64).saturating_sub(new);
                if !repeats {
                    receive.data.limit_gaps(GAPS_MAX);
                }
                self.tell_reader(at.now, data.flow);
                self.flows.note_received(data.flow);
                self.keeps_to_credit()?;
                self.consumed(at.now, data.flow);
                self.look_for_missing(at.now, data.flow);
                Ok(())
            }
            Err(error) => Err(CloseReason::Protocol(format!("flow {}: {error}", data.flow))),
        }
    }

    /// A message says what it waits for.
    pub(in crate::connection) fn on_order(
        &mut self,
        epoch: u32,
        order: &frame::Order,
    ) -> Result<(), CloseReason> {
        let counts = self.place(epoch, order.flow)?.is_some_and(|placed| placed.counts);
        let receive = self.flows.get_mut(order.flow).map(|flow| &mut flow.receive).filter(|_| counts);
        if let Some(receive) = receive.filter(|receive| order.start < receive.limit()) {
            receive.data.note_order(order.start, order.after.clone());
            self.flows.note_received(order.flow);
        }
        Ok(())
    }

    /// A message says when it was made.
    pub(in crate::connection) fn on_media_time(
        &mut self,
        epoch: u32,
        media: &frame::MediaTime,
    ) -> Result<(), CloseReason> {
        let counts = self.place(epoch, media.flow)?.is_some_and(|placed| placed.counts);
        let receive = self.flows.get_mut(media.flow).map(|flow| &mut flow.receive).filter(|_| counts);
        if let Some(receive) = receive.filter(|receive| media.start < receive.limit()) {
            receive.note_media_time(media);
            self.flows.note_received(media.flow);
        }
        Ok(())
    }

    /// The sender has put this epoch to use: what asks for missing data is what its profile says,
    /// also where nothing new comes.
    pub(in crate::connection) fn follow_demands(&mut self, now: Time, epoch: u32) {
        let Some(stack) = self.inbound.stack(epoch) else { return };
        self.flows.change_receiving(stack.group, |receive| {
            receive.follow_demand(stack);
            receive.follow_playout(stack);
        });
        self.play_anew(now);
    }

    /// Looks for what is missing of a flow, where a mechanism here asks for it.
    pub(in crate::connection) fn look_for_missing(&mut self, now: Time, id: u32) {
        let receive = self.flows.get_mut(id).map(|flow| &mut flow.receive);
        let Some(receive) = receive.filter(|receive| receive.asking.is_some()) else { return };
        let rtt = self.outbound.rtt.smoothed;
        if receive.look_for_missing(now, rtt) {
            self.feedback.insert(Topic::Missing(id));
        }
        self.flows.update_alarm(id);
    }

    /// Data was taken out of a flow, by the application or by a skip: more credit may be due.
    pub(in crate::connection) fn consumed(&mut self, now: Time, id: u32) {
        let rtt = self.outbound.rtt.smoothed;
        self.consumed_of_flow(now, id, rtt);
        self.flows.make_room();
        if self.flows.incoming.on_consumed(now, rtt) {
            self.flows.signals.insert(Signal::ConnectionCredit);
        }
    }

    fn consumed_of_flow(&mut self, now: Time, id: u32, rtt: Duration) {
        use uts_functions::flow::FlowControl as _;
        if let Some(flow) = self.flows.get_mut(id) {
            flow.receive.data.let_go();
        }
        self.flows.note_received(id);
        let share = self.flows.share_of_flow();
        let Some(flow) = self.flows.get_mut(id) else { return };
        let receive = &mut flow.receive;
        receive.grant.consumed = receive.data.consumed();
        receive.grant.given_up = receive.data.given_up();
        if receive.data.is_complete() || receive.is_done {
            return;
        }
        if !receive.is_placed && receive.is_free() {
            // only the group, which nothing has told yet, knows whether the sender needs
            // credit.
            let limit = receive.grant.consumed.saturating_add(receive.grant.window_bytes);
            if limit > receive.grant.limit {
                receive.grant.limit = limit;
                self.flows.signals.insert(Signal::Credit(id));
            }
            return;
        }
        // flow.md R-38: a window grows no further than leaves memory to the others.
        let most = receive.grant.window_bytes_max;
        receive.grant.window_bytes_max = most.min(share.max(receive.grant.window_bytes));
        let has_grown = receive.flow.on_consumed(&mut receive.grant, now, rtt).is_some();
        receive.grant.window_bytes_max = most;
        if self.receive_rate.is_some() {
            self.grant_at_rate(now);
        } else if has_grown {
            let rides = flow.receive.flow.rides(&flow.receive.grant);
            self.flows.tell_limit(id, rides);
        }
    }
}

/// True if lost data under this stack is sent again.
fn repeats(stack: &ReceiveStack) -> bool {
    stack.layout.repeats
}
