//! Runs on the way in: whose packets they are, and whether its connection is one that takes any, is
//! asked once; each is opened, acknowledged and put in its place by itself.

use crate::connection::flows::Flows;
use crate::connection::flows::halves::ReceiveHalf;
use crate::connection::receive::inbound::stack_of;
use crate::connection::receive::incoming::Ecn;
use crate::connection::receive::messages::Messages;
use crate::connection::stage::Open;
use crate::probe::Point;
use crate::synthesis::ReceiveStack;
use smallvec::SmallVec;
use uts_functions::Time;
use uts_functions::acknowledgement::{Acknowledgement, Arrival};
use uts_wire::frame::Data;
use uts_wire::packet::is_long;

impl Open {
    pub(in crate::connection) fn handle_run(
        &mut self,
        now: Time,
        ecn: Option<Ecn>,
        segment_bytes: usize,
        datagrams: &mut [u8],
    ) -> usize {
        let is_heard = self.life.is_live() && !self.is_resting() && self.life.last_heard_at == now;
        if !is_heard {
            return 0;
        }
        let inbound = &mut self.ways.inbound;
        let (mut taken, mut packets, mut data_bytes) = (0, 0, 0);
        let (mut odd, marked) = (None, ecn == Some(Ecn::Ce));
        let mut messages = Messages::default();
        let mut unnoted = None;
        let mut placed: SmallVec<[u32; 2]> = SmallVec::new();
        let found = self.ways.trace.instant();
        for datagram in datagrams.chunks_mut(segment_bytes.max(1)) {
            if is_long(datagram[0]) || !datagram[1..].starts_with(self.identity.local_cid.as_slice()) {
                break;
            }
            let (start, tail) = (taken, datagram.last_chunk::<16>().copied());
            taken += datagram.len();
            let opened = inbound.unseal(&self.identity.local_cid, datagram);
            if let Ok(opened) = &opened
                && !opened.repaired
                && opened.right_bytes.is_none()
                && let Some(stack) =
                    stack_of(&mut inbound.stacks, opened.epoch).filter(|stack| stack.is_uniform)
                && inbound.heard_of == Some((stack.epoch, false))
                && let Some((receive, flow, bytes)) =
                    append(&mut self.ways.flows, stack, &datagram[opened.frames.clone()], &mut messages)
            {
                let arrival = Arrival { number: opened.number, now, eliciting: true, polled: false, marked };
                stack.acknowledgement.on_arrival(&mut inbound.arrivals, &arrival);
                inbound.arrivals.insert(&arrival);
                let frame_bytes = opened.frames.len() as u64;
                self.ways.trace.on_packet_received(now, opened.number, stack.epoch, frame_bytes);
                receive.tell_reader(flow, &mut self.ways.events);
                packets += 1;
                data_bytes += bytes;
                if receive.tagged.is_some() && placed.last() != Some(&flow) {
                    placed.push(flow);
                }
                if unnoted != Some(flow)
                    && let Some(before) = unnoted.replace(flow)
                {
                    self.ways.flows.note_received(before);
                }
                continue;
            }
            odd = Some((start..taken, tail, opened));
            break;
        }
        if let Some(flow) = unnoted {
            self.ways.flows.note_received(flow);
        }
        if let Some(ecn) = ecn {
            inbound.arrivals.ecn[ecn as usize] += packets;
        }
        self.ways.stats.bytes_received += taken as u64;
        self.establishing.on_bytes_from_address(taken as u64);
        self.ways.stats.packets_received += packets;
        self.ways.stats.data_bytes_received += data_bytes;
        if found.is_some() && packets > 0 {
            // In a run each packet is opened and placed before the next is looked at.
            let run_bytes = odd.as_ref().map_or(taken, |(place, ..)| place.start);
            self.ways.trace.passed(found, Point::Found, run_bytes);
            self.ways.trace.pass(Point::Opened, run_bytes);
            self.ways.trace.pass(Point::Placed, run_bytes);
        }
        placed.into_iter().for_each(|flow| self.ways.consumed(now, flow));
        if let Some((place, tail, opened)) = odd {
            self.on_unsealed(now, ecn, &datagrams[place], (found, tail), opened);
        }
        taken
    }
}

/// Takes in what a packet carries if it is such as [`Open::handle_run`] takes: says for which
/// flow, and how many bytes. If it is not, nothing has changed.
fn append<'f>(
    flows: &'f mut Flows,
    stack: &ReceiveStack,
    payload: &[u8],
    messages: &mut Messages,
) -> Option<(&'f mut ReceiveHalf, u32, u64)> {
    // A message that has a position is taken in as messages in a row are, though it is alone.
    let data = Data::only(payload).filter(|data| !(data.flags.message && data.offset.is_some()));
    let (flow, bytes) = match &data {
        Some(data) => (data.flow, data.bytes.len() as u64),
        None if payload.first().is_some_and(|kind| Messages::may_begin_with(*kind))
            && messages.read(payload) =>
        {
            (messages.flow, messages.data_bytes)
        }
        None => return None,
    };
    let (receive, incoming) = flows.receiving(flow)?;
    let has_taken = receive.has_room(bytes)
        && incoming.takes(bytes)
        && match &data {
            Some(data) => receive.append(stack, data),
            None => receive.append_messages(stack, messages, payload),
        };
    if !has_taken {
        return None;
    }
    let end = data.and_then(|data| stack.layout.start_of_bytes(&data)).map(|start| start + bytes);
    match end {
        // The rest is counted once, behind the run.
        Some(end) if incoming.is_bounded && stack.layout.offsets => incoming.note_reached(receive, end),
        _ => incoming.note(receive),
    }
    Some((receive, flow, bytes))
}
