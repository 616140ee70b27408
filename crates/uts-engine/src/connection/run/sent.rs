//! Runs on the way out: admission, entry in the ledger and statistics are once for all; number, bytes and seal are a packet's own.

use super::super::flows::Token;
use super::super::outgoing::seal;
use super::super::{Connection, Outbound};
use crate::synthesis::SendStack;
use core::ops::Range;
use smallvec::smallvec;
use uts_functions::Time;
use uts_functions::acknowledgement::Acknowledgement;
use uts_functions::detection::Detection;
use uts_functions::flow::FlowControl as _;
use uts_functions::protection::{self, Protection};
use uts_functions::retransmission::ledger::Sent;
use uts_functions::segmentation::buffer::SendBuffer;
use uts_wire::ConnectionId;
use uts_wire::frame::{DataFlags, data_header_len, emit_data_header};

impl Connection {
    /// Builds up to `most` packets like the full one of `bytes` that was just built; says how many.
    pub(in crate::connection) fn build_run(
        &mut self,
        now: Time,
        bytes: usize,
        most: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let Some(flow) = self.flow_of_run(now) else { return 0 };
        let Some(outbound) = &mut self.outbound else { return 0 };
        let Some(send) = self.flows.get_mut(flow).map(|flow| &mut flow.send) else { return 0 };
        let most = outbound.admitted(now, bytes as u64).min(most as u64);
        let limit = outbound.stacks[0].flow.send_limit(send.limit);
        let run = Run { outbound, flow, limit, bytes, peer_cid: self.peer_cid };
        let Some((data, packets)) = run.append(&mut send.buffer, most, out) else { return 0 };
        let mut snapshot = outbound.on_sent(now, packets * bytes as u64, bytes as u64);
        snapshot.in_flight -= (packets - 1) * bytes as u64;
        let data_bytes = packets * (data.end - data.start);
        let tokens = smallvec![Token::Data { flow, range: data }];
        let (bytes, epoch) = (bytes as u64, outbound.stacks[0].epoch);
        let sent = Sent { bytes, epoch, eliciting: true, size_probe: false, tokens, snapshot };
        outbound.ledger.record_run(sent, packets);
        outbound.stacks[0].packets += packets;
        outbound.unpolled = outbound.unpolled.saturating_add(u32::try_from(packets).unwrap_or(u32::MAX));
        self.flows.update_order(flow, |_| limit);
        self.last_eliciting_at = now;
        self.stats.packets_sent += packets;
        self.stats.bytes_sent += packets * bytes;
        self.stats.data_bytes_sent += data_bytes;
        packets as usize
    }

    /// The flow the bytes of which are all that is to be sent, none of them under a poll or redundancy, and in no packet that
    /// is to be traced.
    fn flow_of_run(&self, now: Time) -> Option<u32> {
        let (outbound, arrivals) = (self.outbound.as_ref()?, &self.inbound.as_ref()?.arrivals);
        let [stack] = outbound.stacks.as_slice() else { return None };
        let is_plain = stack.fec.is_none() && !stack.acknowledgement.poll(u32::MAX, true);
        let has_report = arrivals.due.is_some_and(|due| due <= now || arrivals.unreported > 0);
        let has_control =
            !self.exchanges.pending.is_empty() || !self.control.is_empty() || !self.flows.control.is_empty();
        let is_odd = self.ping_wanted
            || outbound.probes_due > 0
            || self.trace.is_on()
            || self.size.probe(now).is_some();
        if !is_plain || has_report || has_control || is_odd {
            return None;
        }
        self.flows
            .only_to_send()
            .filter(|flow| self.flows.get(*flow).is_some_and(|f| f.send.group == stack.group))
    }
}

/// Packets of `bytes` with the bytes of a flow, below `limit`.
struct Run<'a> {
    outbound: &'a Outbound,
    flow: u32,
    limit: u64,
    bytes: usize,
    peer_cid: ConnectionId,
}

impl Run<'_> {
    /// Appends up to `most` of them that are alike: each with as many bytes, which follow those of the one before. Gives the
    /// positions of the first one's, and how many they are, if there is any.
    fn append(&self, buffer: &mut SendBuffer, most: u64, out: &mut Vec<u8>) -> Option<(Range<u64>, u64)> {
        let stack = self.outbound.stacks.first()?;
        let protection = stack.protection.as_deref()?;
        let first = self.outbound.ledger.next_number();
        let (mut data, mut packets) = (None::<Range<u64>>, 0);
        while packets < most {
            let data_bytes = data.as_ref().map(|data| data.end - data.start);
            // What was given up unsent is passed over.
            if data
                .as_ref()
                .is_some_and(|data| buffer.sent() != data.start + packets * (data.end - data.start))
            {
                break;
            }
            let Some(more) = self.append_one(stack, protection, first + packets, data_bytes, buffer, out)
            else {
                break;
            };
            data.get_or_insert(more);
            packets += 1;
        }
        Some((data?, packets))
    }

    /// Appends the packet of that number; `None`, and nothing, if the next bytes do not fill it, or are not all that is to be sent
    /// of the flow next, or are not as many as is asked for. Gives their positions.
    fn append_one(
        &self,
        stack: &SendStack,
        protection: &protection::Slot,
        number: u64,
        data_bytes: Option<u64>,
        buffer: &mut SendBuffer,
        out: &mut Vec<u8>,
    ) -> Option<Range<u64>> {
        let (start, offset) = (out.len(), Some(buffer.sent()));
        let mark = self.outbound.emit_header(stack, self.peer_cid, number, out);
        let around = stack.detection.trailer_bytes()
            + protection.tag_bytes()
            + data_header_len(self.flow, offset, None);
        let room = self.bytes.checked_sub(out.len() - start + around).filter(|room| *room > 0);
        // Headers have another length from some numbers and positions on.
        let room = room.filter(|room| data_bytes.is_none_or(|bytes| bytes == *room as u64));
        emit_data_header(out, self.flow, offset, None, DataFlags::default());
        let Some(data) = room.and_then(|room| buffer.next_bytes(room, self.limit, out)) else {
            out.truncate(start);
            return None;
        };
        seal(stack, protection, number, mark, out);
        Some(data)
    }
}
