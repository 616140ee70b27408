//! The way out: from what waits to datagrams.
//!
//! `poll_transmit` -> `next_packet` (why a packet may leave) -> `build` (epoch, header) -> `write_frames` (what goes in, in
//! the order of the list there) -> `protect` (redundancy, checksum, cipher, mask) -> `record` (ledger, congestion, rate).

use super::draft::{Built, DATA_ROOM_MIN_BYTES, Draft, FULL_BUT, Reason, Room};
use super::flows::{FlowControl, Token};
use super::run::Alike;
use super::trace::{FrameKinds, TraceKind, TraceRow};
use super::{Connection, Outbound, Phase};
use crate::synthesis::SendStack;
use uts_functions::Time;
use uts_functions::acknowledgement::{Acknowledgement, Arrivals};
use uts_functions::congestion::Snapshot;
use uts_functions::detection::{self, Detection};
use uts_functions::protection::{self, Protection};
use uts_functions::retransmission::ledger::Sent;
use uts_wire::ConnectionId;
use uts_wire::frame::{self, Frame, emit_ack, emit_repaired};
use uts_wire::packet::{AdaptiveHeader, AdaptiveMark, sample, sample_padding};

/// A larger packet size is looked for once so much data was sent: to a few keystrokes it is of no use, and on a slow line
/// they would wait for the probe.
const PROBE_AFTER_BYTES: u64 = 16 * 1024;

/// With more ranges than this to report, an acknowledgement asks to be acknowledged now and then, so that the peer's
/// answer shortens the list (RFC 9000 section 13.2.4).
const RANGES_BEFORE_PING: usize = 6;
const REPORTS_BEFORE_PING: u32 = 12;

impl Connection {
    /// Fills `out` with packets of one size for the peer; says the size of each (the last may be shorter).
    pub(super) fn poll_adaptive(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        if self.is_resting() && !self.wants_to_send() {
            return None;
        }
        self.wake(now);
        self.outbound_mut(Outbound::begin_batch);
        let (mut sizes, mut segment, mut has_tried) = (None, None, false);
        let (mut packets, packets_max) = (0, self.config.batch_packets_max.max(1));
        while packets < packets_max {
            let before = out.len();
            let Some(reason) = self.next_packet(now) else { break };
            // Not before there is something to send: it is asked far more often.
            let (full, block_bytes) = *sizes.get_or_insert_with(|| {
                let block_bytes = self.block_bytes();
                (self.full_packet_bytes(block_bytes), block_bytes)
            });
            let alone = matches!(reason, Reason::SizeProbe(_));
            if alone && segment.is_some() {
                break;
            }
            let bytes = if let Reason::SizeProbe(bytes) = reason { bytes } else { segment.unwrap_or(full) };
            let room = Room { bytes, full: bytes.max(full), is_next: segment.is_some(), block_bytes };
            let Some(Built { has_data, messages, is_even, is_steady }) = self.build(now, reason, room, out)
            else {
                // What does not fit in behind others may fill a packet that is first.
                if !room.is_next {
                    self.on_nothing_to_send(reason);
                }
                break;
            };
            packets += 1;
            let len = out.len() - before;
            let is_shorter = len < *segment.get_or_insert(len);
            let is_worth_following = len == full || self.is_worth_following(len, full, is_even, has_data);
            // Messages that are to have packets of their own may follow if they fill one like this.
            if alone || is_shorter || (self.config.coalesce && !is_worth_following) {
                break;
            }
            let may_be_alike = match messages {
                0 => len == full,
                1 => true,
                // To find that the next are not is as much work as to build a packet.
                _ => is_steady && !core::mem::replace(&mut has_tried, true),
            };
            if may_be_alike {
                let like = Alike { bytes: len, full, block_bytes, messages };
                packets += self.build_run(now, like, packets_max - packets, out);
            }
            if !is_worth_following {
                break;
            }
        }
        segment
    }

    /// Blocks of the cipher that payloads are made of, in bytes; 1 if they are not. Where data flows so fast that processors are the
    /// limit, what is behind whole blocks costs more than to leave it out of a full packet, or to pad a small one.
    fn block_bytes(&self) -> usize {
        let Some(outbound) = self.outbound.as_ref().filter(|outbound| outbound.is_fast()) else { return 1 };
        match outbound.stacks.as_slice() {
            [SendStack { fec: None, protection: Some(protection), .. }] => protection.block_bytes().max(1),
            _ => 1,
        }
    }

    /// Bytes of a full packet.
    fn full_packet_bytes(&self, block_bytes: usize) -> usize {
        let bytes = self.size.current();
        let Some(outbound) = self.outbound.as_ref().filter(|_| block_bytes > 1) else { return bytes };
        let Some(protection) = outbound.stacks.first().and_then(|stack| stack.protection.as_ref()) else {
            return bytes;
        };
        let header = AdaptiveHeader { epoch_low5: 0, dcid: self.peer_cid };
        let number = outbound.truncated(outbound.ledger.next_number());
        let around = header.encoded_len(number.len()) + protection.tag_bytes();
        bytes - bytes.saturating_sub(around) % block_bytes
    }

    fn on_nothing_to_send(&mut self, reason: Reason) {
        if reason == Reason::Admitted {
            self.outbound_mut(|o| o.delivery.set_app_limited());
        }
    }

    /// Whether to ask again what to send, after something was: mostly there is nothing more, which is known for less than by asking.
    pub(crate) fn may_have_more(&mut self, now: Time) -> bool {
        if self.phase != Phase::Open || self.handshake.as_ref().is_some_and(|h| h.is_active()) {
            return true;
        }
        self.pursue_groups(now);
        self.wants_to_send() || self.next_packet(now).is_some()
    }

    /// Why the next packet may leave, if it may.
    fn next_packet(&mut self, now: Time) -> Option<Reason> {
        let wants = self.wants_to_send();
        let worth_probing = self.is_confirmed() && self.stats.data_bytes_sent >= PROBE_AFTER_BYTES;
        let probe_size = self.size.probe(now).filter(|_| worth_probing);
        let packet_bytes = self.size.current() as u64;
        let report_due = self.inbound.as_ref()?.arrivals.due.is_some_and(|due| due <= now);
        let outbound = self.outbound.as_mut()?;
        if outbound.probes_due > 0 {
            return Some(Reason::Probe);
        }
        // A probe that is due goes first: who always has data to send would never come to it, and stay with small packets.
        let may_probe = |outbound: &Outbound, bytes: usize| {
            outbound.delivery.in_flight.saturating_add(bytes as u64) <= outbound.window_bytes()
        };
        if wants {
            if outbound.admits(now, packet_bytes, packet_bytes) {
                let probe = probe_size.filter(|bytes| may_probe(outbound, *bytes));
                return Some(probe.map_or(Reason::Admitted, Reason::SizeProbe));
            }
        } else {
            outbound.paced_until = None;
            if outbound.delivery.in_flight < outbound.window_bytes() {
                outbound.delivery.set_app_limited();
            }
            if let Some(bytes) = probe_size.filter(|bytes| may_probe(outbound, *bytes)) {
                return Some(Reason::SizeProbe(bytes));
            }
        }
        report_due.then_some(Reason::Report)
    }

    /// Whether anything but acknowledgements waits.
    pub(super) fn wants_to_send(&self) -> bool {
        let Some(outbound) = &self.outbound else { return false };
        !self.exchanges.pending.is_empty()
            || !self.flows.control.is_empty()
            || !self.control.is_empty()
            || self.ping_wanted
            || outbound.stacks.iter().any(|s| s.fec.as_ref().is_some_and(|fec| fec.has_repair()))
            || self.flows.wants_to_send()
    }

    /// The epoch under which the next packet is built: redundancy must leave under its own, data under its group's.
    fn choose_stack(&self) -> Option<usize> {
        let outbound = self.outbound.as_ref()?;
        let repairs = outbound.stacks.iter().position(|s| s.fec.as_ref().is_some_and(|fec| fec.has_repair()));
        if repairs.is_some() {
            return repairs;
        }
        let group =
            self.flows.next_to_send(None).and_then(|id| self.flows.get(id)).map_or(0, |flow| flow.send.group);
        outbound.stack_index(group)
    }

    /// Builds one packet, if there is anything to put in.
    fn build(&mut self, now: Time, reason: Reason, room: Room, out: &mut Vec<u8>) -> Option<Built> {
        let index = self.choose_stack()?;
        self.outbound_mut(|o| o.ledger.leave_out_if_due());
        let outbound = self.outbound.as_ref()?;
        let stack = outbound.stacks.get(index)?;
        let protection = stack.protection.as_ref()?;
        let start = out.len();
        let number = outbound.ledger.next_number();
        let mark = outbound.emit_header(stack, self.peer_cid, number, out);
        let trailer_bytes = stack.detection.trailer_bytes();
        let trailer = trailer_bytes + protection.tag_bytes();
        let Some(frames_room) = room.bytes.checked_sub(out.len() - start + trailer) else {
            out.truncate(start);
            return None;
        };
        let end = out.len() + frames_room;
        let mut draft = Draft {
            full_end: end + (room.full - room.bytes),
            is_next: room.is_next,
            block_bytes: room.block_bytes,
            is_open: true,
            ..Draft::new(reason, index, mark, end)
        };
        let frames_start = out.len();
        self.write_frames(now, &mut draft, out);
        if out.len() == frames_start {
            out.truncate(start);
            return None;
        }
        if self.trace.is_on() {
            draft.frames = FrameKinds::of(&out[frames_start..]);
        }
        if let Reason::SizeProbe(bytes) = reason {
            out.resize(start + bytes - trailer, 0);
        }
        let lacking = draft.end.saturating_sub(out.len());
        let may_fill =
            self.outbound.as_ref().is_some_and(|o| draft.end <= draft.end_of_data(&o.stacks[index]));
        if draft.is_next
            && draft.is_open
            && may_fill
            && lacking <= frames_room / FULL_BUT
            && self.flows.wants_to_send()
        {
            out.resize(draft.end, 0);
        } else if draft.is_open {
            let payload_bytes = out.len() - frames_start + trailer_bytes;
            let lacking = payload_bytes.next_multiple_of(draft.block_bytes) - payload_bytes;
            if lacking <= draft.end.saturating_sub(out.len()) {
                out.resize(out.len() + lacking, 0);
            }
        }
        self.protect(now, &draft, number, out);
        let Draft { has_data, messages, is_even, is_steady, .. } = draft;
        let built = Built { has_data, messages, is_even, is_steady };
        self.record(now, draft, out.len() - start);
        Some(built)
    }

    /// Whether packets of `len` bytes, which are shorter than a `full` one, may follow each other in a batch: messages hardly
    /// ever fill a packet, those that are not torn still less. Redundancy that waits needs more room than what `has_data`, and is
    /// as long as other redundancy.
    fn is_worth_following(&self, len: usize, full: usize, is_even: bool, has_data: bool) -> bool {
        let has_repair = |stack: &SendStack| stack.fec.as_ref().is_some_and(|fec| fec.has_repair());
        let has_room = |o: &Outbound| !has_data || !o.stacks.iter().any(has_repair);
        (is_even || len + full / FULL_BUT >= full)
            && self.flows.wants_to_send()
            && self.outbound.as_ref().is_some_and(has_room)
    }

    /// What goes into a packet, in order of urgency.
    fn write_frames(&mut self, now: Time, draft: &mut Draft, out: &mut Vec<u8>) {
        self.write_report(now, draft, out);
        if draft.reason == Reason::Report {
            self.write_ping_for_reports(draft, out);
            return;
        }
        self.write_exchange(draft, out);
        self.write_control(draft, out);
        self.write_flow_control(draft, out);
        self.write_repairs(draft, out);
        match draft.reason {
            Reason::SizeProbe(bytes) => {
                Frame::Ping.emit(out);
                draft.eliciting = true;
                draft.tokens.push(Token::SizeProbe(bytes));
                self.size.on_probe_sent();
                return;
            }
            Reason::Probe if self.outbound.as_ref().is_some_and(Outbound::is_out) => {}
            _ => self.write_data(draft, out),
        }
        if (draft.reason == Reason::Probe || self.ping_wanted) && !draft.eliciting {
            Frame::Ping.emit(out);
            draft.eliciting = true;
        }
        self.write_poll(draft, out);
    }

    /// Acknowledges what arrived, if anything unreported did.
    fn write_report(&mut self, now: Time, draft: &mut Draft, out: &mut Vec<u8>) {
        let Some(inbound) = &mut self.inbound else { return };
        let arrivals = &mut inbound.arrivals;
        let due = arrivals.due.is_some_and(|due| due <= now);
        if !due && arrivals.unreported == 0 {
            return;
        }
        // Under poll/status only a poll is answered.
        if !due && arrivals.due.is_none() {
            return;
        }
        let Some(largest) = emit_report(arrivals, now, draft.end.saturating_sub(out.len()), out) else {
            return;
        };
        draft.tokens.push(Token::Ack(largest));
        self.stats.reports_sent += 1;
    }

    fn write_ping_for_reports(&mut self, draft: &mut Draft, out: &mut Vec<u8>) {
        let Some(inbound) = &mut self.inbound else { return };
        inbound.reports += 1;
        if inbound.arrivals.received.len() > RANGES_BEFORE_PING && inbound.reports >= REPORTS_BEFORE_PING {
            inbound.reports = 0;
            Frame::Ping.emit(out);
            draft.eliciting = true;
        }
    }

    fn write_exchange(&mut self, draft: &mut Draft, out: &mut Vec<u8>) {
        while let Some((direction, message)) = self.exchanges.pending.front() {
            if out.len() + message.encoded_len() > draft.end {
                return;
            }
            message.emit(out);
            draft.tokens.push(Token::Exchange(*direction));
            self.exchanges.pending.pop_front();
            draft.eliciting = true;
        }
    }

    /// Control of the connection: answers to path challenges.
    fn write_control(&mut self, draft: &mut Draft, out: &mut Vec<u8>) {
        while let Some(token) = self.control.front().cloned() {
            let frame = match &token {
                Token::PathResponse(number) => Frame::PathResponse(*number),
                _ => Frame::Ping,
            };
            if out.len() + frame.encoded_len() > draft.end {
                return;
            }
            frame.emit(out);
            self.control.pop_front();
            draft.eliciting = true;
            draft.tokens.push(token);
        }
    }

    /// Control of flows: credit, skips, resets, stops, and how many flows the peer may open.
    fn write_flow_control(&mut self, draft: &mut Draft, out: &mut Vec<u8>) {
        while let Some(control) = self.flows.control.first().cloned() {
            if draft.end.saturating_sub(out.len()) < DATA_ROOM_MIN_BYTES {
                return;
            }
            self.flows.control.remove(&control);
            let token = match control {
                FlowControl::Skip(flow) => {
                    let skip = self.flows.get_mut(flow).and_then(|f| f.send.buffer.pop_skip());
                    let Some(range) = skip else { continue };
                    self.flows.control.insert(FlowControl::Skip(flow));
                    let (start, len) = (range.start, range.end - range.start);
                    Frame::Skip(frame::Skip { flow, start, len }).emit(out);
                    Token::Skip { flow, range }
                }
                other => match self.flow_frame(&other) {
                    Some(frame) => {
                        frame.emit(out);
                        Token::Flow(other)
                    }
                    None => continue,
                },
            };
            draft.eliciting = true;
            draft.tokens.push(token);
        }
    }

    fn flow_frame(&self, control: &FlowControl) -> Option<Frame<'static>> {
        Some(match *control {
            FlowControl::Credit(flow) => {
                Frame::Credit(frame::Credit { flow, limit: self.flows.get(flow)?.receive.told_limit() })
            }
            FlowControl::Reset(flow) => {
                let (code, final_position) = self.flows.get(flow)?.send.reset?;
                Frame::ResetFlow(frame::ResetFlow { flow, code, final_position })
            }
            FlowControl::Stop(flow) => {
                Frame::StopFlow(frame::StopFlow { flow, code: self.flows.get(flow)?.receive.stop? })
            }
            FlowControl::Limit => Frame::FlowLimit(frame::FlowLimit { max_flows: self.flows.accepted_max }),
            FlowControl::Skip(_) => return None,
        })
    }

    fn write_repairs(&mut self, draft: &mut Draft, out: &mut Vec<u8>) {
        let Some(stack) = self.outbound.as_mut().and_then(|o| o.stacks.get_mut(draft.stack)) else { return };
        let Some(fec) = &mut stack.fec else { return };
        while let Some(repair) = fec.next_repair() {
            let frame = Frame::Repair(crate::synthesis::repair_frame(repair));
            let len = frame.encoded_len();
            if out.len() + len <= draft.end {
                frame.emit(out);
                fec.pop_repair();
                draft.eliciting = true;
                self.stats.repairs_sent += 1;
                return;
            }
            if draft.mark.payload_offset() + len <= draft.full_end {
                return;
            }
            // Packets have become smaller since its block was begun: it fits into none.
            fec.pop_repair();
        }
    }

    fn write_poll(&mut self, draft: &mut Draft, out: &mut Vec<u8>) {
        let more = self.flows.wants_to_send();
        let Some(outbound) = &mut self.outbound else { return };
        if !draft.eliciting {
            return;
        }
        outbound.unpolled += 1;
        let Some(stack) = outbound.stacks.get(draft.stack) else { return };
        let polled = draft.reason == Reason::Probe && stack.acknowledgement.poll(u32::MAX, true);
        let full = outbound.delivery.in_flight + 2 * self.size.current() as u64 > outbound.window_bytes();
        if (polled || stack.acknowledgement.poll(outbound.unpolled, !more || full)) && out.len() < draft.end {
            Frame::Poll.emit(out);
            outbound.unpolled = 0;
        }
    }

    /// Redundancy, padding, checksum, cipher and mask, in place.
    pub(super) fn protect(&mut self, now: Time, draft: &Draft, number: u64, out: &mut Vec<u8>) {
        let Some(stack) = self.outbound.as_mut().and_then(|o| o.stacks.get_mut(draft.stack)) else { return };
        // Whoever builds a packet has woken the connection: nothing leaves without its protection.
        let Some(protection) = &stack.protection else { return };
        let frames_start = draft.mark.payload_offset();
        let tag_bytes = protection.tag_bytes();
        let trailer_bytes = stack.detection.trailer_bytes();
        if protection.sample_bytes() > 0 {
            // In front: a data frame without a length runs to the end.
            let lacking =
                sample_padding(draft.mark.pn_len, out.len() - frames_start + trailer_bytes, tag_bytes);
            if lacking > 0 {
                out.splice(frames_start..frames_start, core::iter::repeat_n(0, lacking));
            }
        }
        if draft.has_data
            && let Some(fec) = &mut stack.fec
        {
            fec.on_source(now, number, &out[frames_start..]);
        }
        seal(stack, protection, (number, &self.peer_cid), draft.mark, out);
        stack.keys.add(1, (out.len() - draft.mark.start) as u64);
    }

    pub(super) fn record(&mut self, now: Time, draft: Draft, bytes: usize) {
        let bytes = bytes as u64;
        let packet_bytes = self.size.current() as u64;
        let Some(outbound) = &mut self.outbound else { return };
        let epoch = outbound.stacks.get(draft.stack).map_or(0, |s| s.epoch);
        let size_probe = matches!(draft.reason, Reason::SizeProbe(_));
        let snapshot = if draft.eliciting {
            outbound.on_sent(now, bytes, packet_bytes)
        } else {
            outbound.on_sent_unasked(now, bytes, packet_bytes);
            Snapshot { sent_at: now, ..Snapshot::default() }
        };
        if draft.reason == Reason::Probe {
            outbound.probes_due = outbound.probes_due.saturating_sub(1);
        }
        let number = outbound.ledger.next_number();
        let Draft { eliciting, tokens, .. } = draft;
        if self.trace.is_on() {
            let data = tokens.iter().find_map(|token| match token {
                Token::Data { flow, range } => Some((*flow, range.start)),
                _ => None,
            });
            let kind = if draft.repeats { TraceKind::Repeated } else { TraceKind::Sent };
            let frames = draft.frames;
            self.trace.on_packet_sent(TraceRow { at: now, kind, number, bytes, epoch, data, frames });
        }
        outbound.ledger.record(Sent { bytes, epoch, eliciting, size_probe, tokens, snapshot });
        if draft.eliciting {
            self.last_eliciting_at = now;
            self.liveness.on_asked(now, self.last_heard_at);
            self.ping_wanted = false;
        }
        self.stats.packets_sent += 1;
        self.stats.bytes_sent += bytes;
        if let Some(outbound) = &mut self.outbound {
            outbound.drop_idle_stacks();
        }
    }
}

/// Checksum, cipher and mask, in place, of the packet at the end of `out` whose frames are complete.
pub(super) fn seal(
    stack: &SendStack,
    protection: &protection::Slot,
    (number, dcid): (u64, &ConnectionId),
    mark: AdaptiveMark,
    out: &mut Vec<u8>,
) {
    let (tag_bytes, trailer_bytes) = (protection.tag_bytes(), stack.detection.trailer_bytes());
    let covered = out.len() - mark.start;
    out.resize(out.len() + trailer_bytes + tag_bytes, 0);
    let packet = &mut out[mark.start..];
    let (body, trailer) = packet.split_at_mut(covered);
    let trailer = &mut trailer[..trailer_bytes];
    stack.detection.append(body, trailer);
    detection::add_left_out(mark.left_out_of(number), trailer);
    let payload = &mut packet[mark.payload_offset() - mark.start..];
    let (plain, tag) = payload.split_at_mut(payload.len() - tag_bytes);
    protection.seal(number, dcid.filled(), plain, tag);
    if protection.sample_bytes() > 0
        && let Ok(sample) = sample(packet, mark.pn_offset - mark.start)
    {
        let hiding = protection.header_mask(sample);
        mark.mask(out, &hiding);
    }
}

/// Acknowledges what arrived, in at most `budget` bytes; says up to which packet, if there was anything, and room.
pub(super) fn emit_report(
    arrivals: &mut Arrivals,
    now: Time,
    budget: usize,
    out: &mut Vec<u8>,
) -> Option<u64> {
    let (end, (largest, at)) = (out.len() + budget, arrivals.largest?);
    let delay_us = u64::try_from(now.since(at).as_micros()).unwrap_or(u64::MAX);
    let [ect0, ect1, ce] = arrivals.ecn;
    let ecn = (ect0 + ect1 + ce > 0).then_some(frame::EcnCounts { ect0, ect1, ce });
    if emit_ack(out, arrivals.received.iter().rev(), delay_us, ecn, budget) == 0 {
        return None;
    }
    if !arrivals.repaired.is_empty() {
        emit_repaired(out, arrivals.repaired.iter().rev(), end.saturating_sub(out.len()) / 2);
    }
    arrivals.on_reported();
    Some(largest)
}
