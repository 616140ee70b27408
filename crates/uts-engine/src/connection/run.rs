//! Runs: what follows the first packet of a batch is mostly more of the same, full packets of the next bytes of one flow.
//!
//! What holds for all of them is asked once; each then is built by what is its own: admission, number, bytes, seal, entry in
//! the ledger. Wherever anything else may be due, the general way (`outgoing.rs`) builds the packet: it would have built
//! every packet of a run just so.

use super::flows::Token;
use super::outgoing::seal;
use super::{Connection, Outbound};
use crate::synthesis::SendStack;
use smallvec::smallvec;
use uts_functions::Time;
use uts_functions::acknowledgement::Acknowledgement;
use uts_functions::detection::Detection;
use uts_functions::flow::FlowControl as _;
use uts_functions::protection::Protection;
use uts_functions::retransmission::ledger::Sent;
use uts_functions::segmentation::buffer::SendBuffer;
use uts_wire::ConnectionId;
use uts_wire::frame::{DataFlags, data_header_len, emit_data_header};

impl Connection {
    /// Builds up to `most` packets like the full one of `bytes` that was just built; says how many.
    pub(super) fn build_run(&mut self, now: Time, bytes: usize, most: usize, out: &mut Vec<u8>) -> usize {
        let Some(flow) = self.flow_of_run(now) else { return 0 };
        let Some(outbound) = &mut self.outbound else { return 0 };
        let Some(send) = self.flows.get_mut(flow).map(|flow| &mut flow.send) else { return 0 };
        let limit = outbound.stacks[0].flow.send_limit(send.limit);
        let (mut built, mut data_bytes, mut last_bytes) = (0, 0, 0);
        while built < most && outbound.admits(now, bytes as u64, bytes as u64) {
            let Some(data) = append(outbound, self.peer_cid, flow, &mut send.buffer, limit, bytes, out)
            else {
                break;
            };
            data_bytes += data.end - data.start;
            let snapshot = outbound.on_sent(now, bytes as u64, bytes as u64);
            // The header, too, has another length for some numbers and positions.
            let is_alike =
                data.end - data.start == core::mem::replace(&mut last_bytes, data.end - data.start);
            if !is_alike || !outbound.ledger.record_alike() {
                let tokens = smallvec![Token::Data { flow, range: data }];
                let (bytes, epoch) = (bytes as u64, outbound.stacks[0].epoch);
                let sent = Sent { bytes, epoch, eliciting: true, size_probe: false, tokens, snapshot };
                outbound.ledger.record(sent);
            }
            built += 1;
        }
        if built > 0 {
            outbound.stacks[0].packets += built as u64;
            outbound.unpolled = outbound.unpolled.saturating_add(u32::try_from(built).unwrap_or(u32::MAX));
            self.flows.update_order(flow, |_| limit);
            self.last_eliciting_at = now;
            self.stats.packets_sent += built as u64;
            self.stats.bytes_sent += (built * bytes) as u64;
            self.stats.data_bytes_sent += data_bytes;
        }
        built
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

/// Appends a packet of `bytes` with the next bytes of a flow; `None`, and nothing, if they do not fill it, or are not all
/// that is to be sent of it next. Gives their positions.
fn append(
    outbound: &Outbound,
    peer_cid: ConnectionId,
    flow: u32,
    buffer: &mut SendBuffer,
    limit: u64,
    bytes: usize,
    out: &mut Vec<u8>,
) -> Option<core::ops::Range<u64>> {
    let stack: &SendStack = outbound.stacks.first()?;
    let protection = stack.protection.as_deref()?;
    let (start, offset) = (out.len(), Some(buffer.sent()));
    let (number, mark) = outbound.emit_header(stack, peer_cid, out);
    let around =
        stack.detection.trailer_bytes() + protection.tag_bytes() + data_header_len(flow, offset, None);
    let room = bytes.checked_sub(out.len() - start + around).filter(|room| *room > 0);
    emit_data_header(out, flow, offset, None, DataFlags::default());
    let Some(data) = room.and_then(|room| buffer.next_bytes(room, limit, out)) else {
        out.truncate(start);
        return None;
    };
    seal(stack, protection, number, mark, out);
    Some(data)
}
