//! Batches and packets on the way out: what a packet is made of is in
//! [`hub`](crate::connection::hub).

use super::run::Alike;
use crate::bug::bug;
use crate::connection::Ways;
use crate::connection::packet::{FULL_BUT, Packet, Reason, Room, Shape};
use crate::connection::parts::Token;
use crate::connection::stage::Open;
use crate::connection::watch::trace::{FrameKinds, TraceKind, TraceRow};
use crate::synthesis::SendStack;
use uts_functions::Time;
use uts_functions::congestion::Snapshot;
use uts_functions::detection::{self, Detection};
use uts_functions::protection::{self, Protection};
use uts_functions::retransmission::ledger::{Departure, Sent};
use uts_wire::ConnectionId;
use uts_wire::packet::{AdaptiveHeader, AdaptiveMark, sample, sample_padding};

impl Open {
    /// Fills `out` with packets of one size for the peer. Says the size of each (the last may be
    /// shorter).
    pub(in crate::connection) fn poll_adaptive(&mut self, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        if self.is_resting() && !self.wants_to_send() {
            return None;
        }
        self.wake(now);
        if self.ways.drop_late(now) {
            self.parts.flow_control.hold_skips(now, &self.ways);
        }
        self.ways.outbound.begin_batch();
        let (mut full, mut segment, mut has_tried) = (None, None, false);
        // migration.md M-3
        let trial = Some(self.amplification_room()).filter(|room| *room < usize::MAX);
        // Where packets wait for each other on the way, each is asked whether it is in time.
        let one_by_one = trial.is_some() || self.ways.outbound.is_late();
        let (mut packets, packets_max) =
            (0, if one_by_one { 1 } else { self.ways.config.batch_packets_max.max(1) });
        while packets < packets_max {
            let before = out.len();
            let Some(reason) = self.next_packet(now) else { break };
            // Not before there is something to send: it is asked far more often.
            let full = *full.get_or_insert_with(|| self.full_packet_bytes().min(trial.unwrap_or(usize::MAX)));
            let alone = matches!(reason, Reason::SizeProbe(_)) || trial.is_some();
            if alone && segment.is_some() {
                break;
            }
            let bytes = if let (Reason::SizeProbe(bytes), None) = (reason, trial) {
                bytes
            } else {
                segment.unwrap_or(full)
            };
            let room = Room { bytes, full: bytes.max(full), is_next: segment.is_some() };
            let Some(shape) = self.build(now, reason, room, out) else {
                // What does not fit in behind others may fill a packet that is first.
                if !room.is_next {
                    self.on_nothing_to_send(reason);
                }
                break;
            };
            packets += 1;
            let len = out.len() - before;
            let is_shorter = len < *segment.get_or_insert(len);
            let is_worth_following = len == full || self.is_worth_following(len, full, &shape);
            // Messages that are to have packets of their own may follow if they fill one like this.
            if alone || is_shorter || (self.ways.config.coalesce && !is_worth_following) {
                break;
            }
            let may_be_alike = match shape.messages {
                0 => len == full,
                1 => true,
                // To find that the next are not is as much work as to build a packet.
                _ => shape.is_steady && !core::mem::replace(&mut has_tried, true),
            };
            if may_be_alike {
                let like = Alike { bytes: len, full, messages: shape.messages };
                packets += self.build_run(now, like, packets_max - packets, out);
            }
            if !is_worth_following {
                break;
            }
        }
        segment
    }

    /// Bytes of a full packet. Where data flows so fast that processors are the limit, its payload
    /// is whole blocks of the cipher: what is behind them costs more than to leave it out.
    fn full_packet_bytes(&self) -> usize {
        let outbound = &self.ways.outbound;
        let bytes = self.parts.size.current().min(outbound.timely_packet_bytes());
        if !outbound.is_fast() {
            return bytes;
        }
        let [stack @ SendStack { fec: None, protection: Some(protection), .. }] = outbound.stacks.as_slice()
        else {
            return bytes;
        };
        let header = AdaptiveHeader { epoch_low5: 0, dcid: self.identity.peer_cid };
        let number = outbound.truncated(stack, outbound.ledger.next_number());
        let around = header.encoded_len(number.len()) + protection.tag_bytes();
        bytes - bytes.saturating_sub(around) % protection.block_bytes().max(1)
    }

    fn on_nothing_to_send(&mut self, reason: Reason) {
        if reason == Reason::Admitted {
            self.ways.outbound.delivery.set_app_limited();
        }
    }

    /// True if packets of `len` bytes, which are shorter than a `full` one, may follow each other
    /// in a batch: messages hardly ever fill a packet, and messages that are not torn still less.
    /// Redundancy that waits needs more room than data, and is as long as other redundancy.
    fn is_worth_following(&self, len: usize, full: usize, shape: &Shape) -> bool {
        (shape.is_even || len + full / FULL_BUT >= full)
            && self.ways.flows.wants_to_send()
            && !(shape.has_data && self.parts.repairs.wait(&self.ways))
    }

    /// The header of a packet, and the room behind it; `None` if there is none.
    pub(in crate::connection) fn begin_packet<'o>(
        &mut self,
        now: Time,
        reason: Reason,
        room: Room,
        out: &'o mut Vec<u8>,
    ) -> Option<Packet<'o>> {
        let index = self.choose_stack(reason)?;
        let outbound = &mut self.ways.outbound;
        outbound.ledger.leave_out_if_due();
        let stack = outbound.stacks.get(index)?;
        let protection = stack.protection.as_ref()?;
        let (start, number) = (out.len(), outbound.ledger.next_number());
        let envelope = outbound.begin_envelope(stack, self.identity.peer_cid, number, out);
        let mark = outbound.emit_header(stack, self.identity.peer_cid, number, out);
        let behind = stack.detection.trailer_bytes() + protection.tag_bytes();
        let around = out.len() - start + behind + envelope.map_or(0, |(_, behind)| behind);
        let Some(frames_bytes) = room.bytes.checked_sub(around) else {
            out.truncate(start);
            return None;
        };
        let end = out.len() + frames_bytes;
        let mut packet = Packet::new(out, now, reason, (index, mark), end);
        packet.number = number;
        packet.envelope = envelope.map(|(mark, _)| mark);
        packet.full_end = end + (room.full - room.bytes);
        packet.packet_bytes = self.parts.size.current() as u64;
        packet.is_next = room.is_next;
        Some(packet)
    }

    /// Pads a probe to its size, and a packet that follows others to theirs, if little is lacking.
    pub(in crate::connection) fn pad(&self, packet: &mut Packet<'_>) {
        let stack = self.ways.outbound.stacks.get(packet.stack);
        let room = packet.end - packet.mark.payload_offset();
        let is_as_long = packet.is_next
            && packet.shape.is_open
            && packet.left() <= room / FULL_BUT
            && stack.is_some_and(|stack| packet.end_of_data(stack) == packet.end)
            && self.ways.flows.wants_to_send();
        if is_as_long || matches!(packet.reason, Reason::SizeProbe(_)) {
            packet.out.resize(packet.end, 0);
        }
    }

    /// Notes a packet that is complete. `frames` = what it carries, where packets are traced.
    pub(in crate::connection) fn record(&mut self, packet: Packet<'_>, frames: FrameKinds) {
        let (now, bytes, number) = (packet.now, packet.len() as u64, packet.number);
        let packet_bytes = self.parts.size.current() as u64;
        let Packet { reason, stack, tokens, eliciting, polls, shape, .. } = packet;
        let outbound = &mut self.ways.outbound;
        let epoch = outbound.stacks.get(stack).map_or(0, |s| s.epoch);
        let size_probe = matches!(reason, Reason::SizeProbe(_));
        let snapshot = if eliciting && reason == Reason::Report {
            outbound.on_report_sent(now, bytes, packet_bytes)
        } else if eliciting {
            outbound.on_sent(now, bytes, packet_bytes)
        } else {
            outbound.on_sent_unasked(now, bytes, packet_bytes);
            Snapshot { sent_at: now, ..Snapshot::default() }
        };
        if reason == Reason::Probe {
            outbound.probes_due = outbound.probes_due.saturating_sub(1);
        }
        if self.ways.trace.is_on() {
            let data = tokens.iter().find_map(|token| match token {
                Token::Data { flow, range } => Some((*flow, range.start)),
                _ => None,
            });
            let kind = if shape.repeats { TraceKind::Repeated } else { TraceKind::Sent };
            self.ways.trace.on_packet_sent(TraceRow { at: now, kind, number, bytes, epoch, data, frames });
        }
        let is_news = (shape.has_data && !shape.repeats)
            || reason == Reason::Probe
            || !outbound.stacks.get(stack).is_some_and(|s| s.is_demanded);
        let departure = Departure { repeats: shape.repeats, polls, ..outbound.departure() };
        if let Some(envelope) = outbound.envelope.as_mut().filter(|envelope| envelope.epoch == epoch) {
            envelope.is_due &= !eliciting;
        }
        outbound.ledger.record(Sent { bytes, epoch, eliciting, size_probe, departure, tokens, snapshot });
        if eliciting {
            outbound.on_entered(now, is_news);
        }
        outbound.drop_idle_stacks();
        outbound.bursts.add(u32::from(shape.has_data));
        if eliciting {
            self.life.on_asked(now);
            self.parts.ping.is_wanted = false;
        }
        self.ways.stats.packets_sent += 1;
        self.ways.stats.bytes_sent += bytes;
    }
}

impl Ways {
    /// Redundancy, checksum, cipher and mask, in place.
    pub(in crate::connection) fn protect(&mut self, packet: &mut Packet<'_>, dcid: &ConnectionId) {
        let Some(stack) = self.outbound.stacks.get_mut(packet.stack) else {
            bug!("a packet is sealed under stack {}, which is gone", packet.stack);
            return;
        };
        // Whoever builds a packet has woken the connection: nothing leaves without its protection.
        let Some(protection) = &stack.protection else { return };
        let frames_start = packet.mark.payload_offset();
        if protection.sample_bytes() > 0 {
            // In front: a data frame without a length runs to the end.
            let payload_bytes = packet.out.len() - frames_start + stack.detection.trailer_bytes();
            let lacking = sample_padding(packet.mark.pn_len, payload_bytes, protection.tag_bytes());
            if lacking > 0 {
                packet.out.splice(frames_start..frames_start, core::iter::repeat_n(0, lacking));
            }
        }
        // fec.md R-1: what carries no data is no source.
        if packet.shape.has_data
            && let Some(fec) = &mut stack.fec
        {
            fec.on_source(packet.now, packet.number, &packet.out[frames_start..]);
        }
        let tolerant = packet.tolerant_bytes();
        seal(stack, protection, (packet.number, dcid), packet.mark, packet.out, tolerant);
        stack.keys.add(1, packet.len() as u64);
        if let Some(mark) = packet.envelope {
            self.protect_envelope(packet, mark, dcid);
        }
    }

    /// The same of the envelope around it.
    #[cold]
    fn protect_envelope(&mut self, packet: &mut Packet<'_>, mark: AdaptiveMark, dcid: &ConnectionId) {
        let inner = self.outbound.stacks.get(packet.stack);
        let outer = inner.and_then(|inner| Some(self.outbound.outer_stack(inner)?.epoch));
        let stacks = &mut self.outbound.stacks;
        let Some(stack) = stacks.iter_mut().find(|stack| Some(stack.epoch) == outer) else {
            bug!("an envelope is sealed under a stack which is gone");
            return;
        };
        let Some(protection) = &stack.protection else { return };
        seal(stack, protection, (packet.number, dcid), mark, packet.out, 0);
        stack.keys.add(1, packet.len() as u64);
    }
}

/// Checksum, cipher and mask, in place, of the packet at the end of `out` whose frames are
/// complete. The last `tolerant` bytes of them may come damaged.
pub(in crate::connection) fn seal(
    stack: &SendStack,
    protection: &protection::Slot,
    (number, dcid): (u64, &ConnectionId),
    mark: AdaptiveMark,
    out: &mut Vec<u8>,
    tolerant: usize,
) {
    let (tag_bytes, trailer_bytes) = (protection.tag_bytes(), stack.detection.trailer_bytes());
    let covered = out.len() - mark.start;
    out.resize(out.len() + trailer_bytes + tag_bytes, 0);
    let packet = &mut out[mark.start..];
    let (body, trailer) = packet.split_at_mut(covered);
    let trailer = &mut trailer[..trailer_bytes];
    // detection.md R-1: of all that stands in front, before it is sealed.
    stack.detection.append_up_to(body, body.len() - tolerant, trailer);
    detection::add_left_out(mark.left_out_of(number), trailer);
    let payload = &mut packet[mark.payload_offset() - mark.start..];
    let (plain, tag) = payload.split_at_mut(payload.len() - tag_bytes);
    // protection.md R-6
    protection.seal(number, dcid.filled(), plain, tag);
    if protection.sample_bytes() > 0
        && let Ok(sample) = sample(packet, mark.pn_offset - mark.start)
    {
        let hiding = protection.header_mask(sample);
        mark.mask(out, &hiding);
    }
}
