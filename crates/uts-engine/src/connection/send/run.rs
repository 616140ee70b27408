//! Runs on the way out: admission, entry in the ledger and statistics are once for all; number,
//! bytes and seal are a packet's own.

use crate::bug::bug;
use crate::connection::Outbound;
use crate::connection::packet::FULL_BUT;
use crate::connection::parts::{How, Token, Written, append_whole};
use crate::connection::send::outgoing::seal;
use crate::connection::stage::Open;
use crate::probe::Point;
use core::ops::Range;
use smallvec::smallvec;
use uts_functions::Time;
use uts_functions::detection::Detection;
use uts_functions::flow::FlowControl as _;
use uts_functions::protection::Protection;
use uts_functions::retransmission::ledger::Sent;
use uts_functions::segmentation::buffer::{SendBuffer, UnsentMessages};
use uts_wire::ConnectionId;
use uts_wire::frame::{DataFlags, emit_data_header};

impl Open {
    /// Builds up to `most` packets like the one that was just built; says how many.
    pub(in crate::connection) fn build_run(
        &mut self,
        now: Time,
        like: Alike,
        most: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let bytes = like.bytes;
        let Some(flow) = self.flow_of_run(now) else { return 0 };
        let outbound = &mut self.ways.outbound;
        let together = self.ways.flows.peer_reads_messages;
        let spare = self.ways.flows.outgoing.spare();
        let Some(send) = self.ways.flows.get_mut(flow).map(|flow| &mut flow.send) else {
            bug!("flow {flow} has a run and is gone");
            return 0;
        };
        let packet_bytes = self.parts.size.current() as u64;
        let in_row = outbound.ledger.numbers_in_row();
        let most = outbound.admitted(now, bytes as u64, packet_bytes).min(most as u64).min(in_row);
        // Windows make no runs.
        let limit = send.behind_expedited(outbound.stacks[0].flow.send_limit(send.limit));
        let limit = limit.min(send.within(spare));
        let begun = self.ways.trace.instant();
        let run = Run { outbound, flow, limit, like, together, peer_cid: self.identity.peer_cid };
        let appended = match like.messages {
            0 => run.append_bytes(&mut send.buffer, most, out),
            1 => run.append_messages(&mut send.buffer, most, out),
            _ => run.append_rows(&mut send.buffer, most, out),
        };
        let Some(Appended { first, data_bytes, packets }) = appended else { return 0 };
        let mut snapshot = outbound.on_sent(now, packets * bytes as u64, packet_bytes);
        snapshot.in_flight -= (packets - 1) * bytes as u64;
        let tokens = smallvec![Token::Data { flow, range: first }];
        let (bytes, epoch) = (bytes as u64, outbound.stacks[0].epoch);
        let departure = outbound.departure();
        let sent = Sent { bytes, epoch, eliciting: true, size_probe: false, departure, tokens, snapshot };
        outbound.ledger.record_run(sent, packets);
        outbound.on_entered(now, true);
        outbound.bursts.add(packets as u32);
        outbound.stacks[0].keys.add(packets, packets * bytes);
        self.parts.poll.on_unpolled(packets);
        self.ways.flows.update_order(flow, |_| limit);
        self.ways.stats.packets_sent += packets;
        self.ways.stats.bytes_sent += packets * bytes;
        self.ways.stats.data_bytes_sent += packets * data_bytes;
        let run_bytes = packets as usize * like.bytes;
        self.ways.trace.passed(begun, Point::Begun, run_bytes);
        // In a run each packet is filled and sealed before the next is begun.
        self.ways.trace.pass(Point::Filled, run_bytes);
        self.ways.trace.pass(Point::Sealed, run_bytes);
        packets as usize
    }

    /// The flow the data of which is all that is to be sent, none of them under a poll or
    /// redundancy, and in no packet that is to be traced.
    fn flow_of_run(&self, now: Time) -> Option<u32> {
        let (outbound, arrivals) = (&self.ways.outbound, &self.ways.inbound.arrivals);
        let [stack] = outbound.stacks.as_slice() else { return None };
        let is_plain = stack.is_uniform;
        let has_report = arrivals.due.is_some_and(|due| due <= now || arrivals.unreported > 0);
        let is_odd = self.parts.want_more_than_data(&self.ways)
            || outbound.probes_due > 0
            || self.ways.trace.is_on()
            || self.parts.size.probe(now).is_some();
        if !is_plain || has_report || is_odd {
            return None;
        }
        self.ways
            .flows
            .only_to_send()
            .filter(|flow| self.ways.flows.get(*flow).is_some_and(|f| f.send.group == stack.group))
    }
}

/// Traits that packets of a run have in common with the packet before them.
#[derive(Clone, Copy)]
pub(in crate::connection) struct Alike {
    pub bytes: usize,
    /// Bytes of a full packet.
    pub full: usize,
    /// Whole messages in it; if there are none, it is full of bytes.
    pub messages: usize,
}

/// Packets that are alike, with data of a flow below `limit`.
struct Run<'a> {
    outbound: &'a Outbound,
    flow: u32,
    limit: u64,
    like: Alike,
    /// See [`How::together`].
    together: bool,
    peer_cid: ConnectionId,
}

/// Packets that are alike: what each has follows on what the one before has.
struct Appended {
    /// Positions of what the first has.
    first: Range<u64>,
    /// Data of each.
    data_bytes: u64,
    packets: u64,
}

impl Run<'_> {
    /// Appends up to `most` packets of bytes.
    fn append_bytes(&self, buffer: &mut SendBuffer, most: u64, out: &mut Vec<u8>) -> Option<Appended> {
        let mut bytes = buffer.unsent_bytes(self.limit)?;
        let (start, mut data_bytes, mut packets) = (bytes.position(), None, 0);
        let flags = DataFlags::default();
        while packets < most
            && self.append_one(packets, Some(bytes.position()), flags, out, |room, out| {
                // Headers have another length from some numbers and positions on.
                room > 0 && *data_bytes.get_or_insert(room) == room && bytes.append(room, out)
            })
        {
            packets += 1;
        }
        let data_bytes = data_bytes? as u64;
        (packets > 0).then_some(Appended { first: start..start + data_bytes, data_bytes, packets })
    }

    /// Appends up to `most` packets of a message each, which fills it.
    fn append_messages(&self, buffer: &mut SendBuffer, most: u64, out: &mut Vec<u8>) -> Option<Appended> {
        let offsets = self.outbound.stacks.first()?.layout.offsets;
        let mut messages = buffer.unsent_messages(self.limit)?;
        let mut appended = None::<Appended>;
        while let Some(message) = messages.front() {
            let packets = appended.as_ref().map_or(0, |a| a.packets);
            let data_bytes = message.data.len();
            // Each ends with a position of its own.
            let follows = |a: &Appended| {
                message.start == a.first.start + a.packets * (a.data_bytes + 1)
                    && a.data_bytes == data_bytes as u64
            };
            if packets == most || !appended.as_ref().is_none_or(follows) {
                break;
            }
            let presented = message.presented;
            let flags =
                DataFlags { message: true, begin: true, end: true, presented, ..DataFlags::default() };
            let offset = offsets.then_some(message.start);
            let fits = self.append_one(packets, offset, flags, out, |room, out| {
                let is_alike = room == data_bytes;
                if is_alike {
                    out.extend_from_slice(message.data);
                }
                is_alike
            });
            if !fits {
                break;
            }
            messages.on_sent();
            let data_bytes = data_bytes as u64;
            let first = message.start..message.start + data_bytes + 1;
            appended.get_or_insert(Appended { first, data_bytes, packets: 0 }).packets += 1;
        }
        appended
    }

    /// Appends up to `most` packets of as many messages each as the one before them has.
    fn append_rows(&self, buffer: &mut SendBuffer, most: u64, out: &mut Vec<u8>) -> Option<Appended> {
        let Alike { bytes, full, .. } = self.like;
        let stack = self.outbound.stacks.first()?;
        let protection = stack.protection.as_deref()?;
        let around_bytes = stack.detection.trailer_bytes() + protection.tag_bytes();
        let mut messages = buffer.unsent_messages(self.limit)?;
        let mut appended = None::<Appended>;
        loop {
            let packets = appended.as_ref().map_or(0, |a| a.packets);
            let (start, place, before) = (out.len(), messages.place(), messages.taken());
            if packets == most {
                return appended;
            }
            let number = self.outbound.ledger.next_number() + packets;
            let mark = self.outbound.emit_header(stack, self.peer_cid, number, out);
            let end = (start + bytes).saturating_sub(around_bytes).max(out.len());
            let fits = self.append_row(&mut messages, full.saturating_sub(bytes), end, out);
            let (taken, taken_bytes) = messages.taken();
            let positions = taken.end - before.0.end;
            let data_bytes = (taken_bytes - before.1) as u64;
            let is_alike =
                |a: &Appended| a.data_bytes == data_bytes && a.first.end - a.first.start == positions;
            if !fits || !appended.as_ref().is_none_or(is_alike) {
                messages.go_back(place);
                out.truncate(start);
                return appended;
            }
            seal(stack, protection, (number, &self.peer_cid), mark, out, 0);
            let first = before.0.end..taken.end;
            appended.get_or_insert(Appended { first, data_bytes, packets: 0 }).packets += 1;
        }
    }

    /// Appends frames of messages up to `end`, where a full packet would have `more` room. Says
    /// whether they make a packet like the one before, which is no batch's last.
    fn append_row(
        &self,
        messages: &mut UnsentMessages<'_>,
        more: usize,
        end: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(stack) = self.outbound.stacks.first() else {
            bug!("a run is built under no stack");
            return false;
        };
        let Alike { bytes, full, messages: count } = self.like;
        let room = end.saturating_sub(out.len());
        let how = How {
            flow: self.flow,
            offsets: stack.layout.offsets,
            polls: false,
            coalesce: true,
            is_alone: true,
            is_kept_whole: !stack.layout.repeats,
            is_next: true,
            together: self.together,
            room_of_all: room,
            room_of_full: room + more,
        };
        let filled = append_whole(messages, &how, false, end, out);
        let lacking = end.saturating_sub(out.len());
        out.resize(end, 0);
        let is_full = lacking == 0 || (filled.is_open && lacking <= how.room_of_all / FULL_BUT);
        let is_followed = messages.has_more() && (filled.is_even || bytes + full / FULL_BUT >= full);
        let is_done = matches!(filled.written, Some(Written::Last | Written::NoRoom));
        filled.messages == count && is_done && is_full && is_followed
    }

    /// Appends a packet, the one behind so many of the run, with a frame of what `fill` appends,
    /// which is told the room there is. Says whether it did; else nothing is appended.
    fn append_one(
        &self,
        behind: u64,
        offset: Option<u64>,
        flags: DataFlags,
        out: &mut Vec<u8>,
        fill: impl FnOnce(usize, &mut Vec<u8>) -> bool,
    ) -> bool {
        let Some(stack) = self.outbound.stacks.first() else {
            bug!("a run is sealed under no stack");
            return false;
        };
        let Some(protection) = stack.protection.as_deref() else { return false };
        let (start, number) = (out.len(), self.outbound.ledger.next_number() + behind);
        let mark = self.outbound.emit_header(stack, self.peer_cid, number, out);
        emit_data_header(out, self.flow, offset, None, flags);
        let around = out.len() - start + stack.detection.trailer_bytes() + protection.tag_bytes();
        let has_filled = self.like.bytes.checked_sub(around).is_some_and(|room| fill(room, out));
        if has_filled {
            seal(stack, protection, (number, &self.peer_cid), mark, out, 0);
        } else {
            out.truncate(start);
        }
        has_filled
    }
}
