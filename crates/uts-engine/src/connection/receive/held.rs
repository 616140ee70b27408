//! Packets that are held back from reports, because data before theirs is missing
//! (acknowledgement.md R-16), and what becomes of them where few are kept.

use crate::connection::Ways;
use crate::connection::flows::halves::ReceiveHalf;
use crate::connection::receive::contents::{Contents, Frames};
use crate::connection::receive::inbound::{Arrived, Inbound};
use crate::synthesis::ReceiveStack;
use uts_functions::acknowledgement::{Acknowledgement as _, HELD_MAX, Held};
use uts_functions::flow::FlowControl as _;
use uts_functions::mechanism::Promise;
use uts_wire::frame::{self, Frame};

/// Number of packets that may be held back that came under a stack.
fn keeps(stack: &ReceiveStack) -> usize {
    stack.acknowledgement.keeps(stack.flow.window_bytes())
}

impl Inbound {
    /// True if packets are reported only when all data up to theirs is there.
    pub fn is_cumulative(&self) -> bool {
        self.newest(0).is_some_and(|stack| stack.acknowledgement.is_cumulative())
    }
}

impl ReceiveHalf {
    /// True if data that comes under this stack, and begins here, may be given up again. Data that
    /// can be read out of order may not.
    pub fn may_give_up(&self, stack: &ReceiveStack, start: u64) -> bool {
        keeps(stack) < HELD_MAX
            && start > self.data.contiguous()
            && stack.sequencing.info().facts.promises.contains(&Promise::Order)
    }
}

impl Ways {
    /// True if a packet is not taken in, since it has data behind a gap, and nothing such is kept.
    /// Where some is, and no more may be, that is given up first.
    pub(in crate::connection) fn refuses(&mut self, at: &Arrived, contents: &Contents<'_, '_>) -> bool {
        let stack = self.inbound.stack(at.epoch);
        let keeps = stack.map_or(HELD_MAX, keeps);
        if keeps >= HELD_MAX || !self.leaves_gap(contents) {
            return false;
        }
        let inbound = &mut self.inbound;
        if keeps == 0 {
            // acknowledgement.md R-17
            inbound.arrivals.report_by(at.now);
            self.stats.dropped_overrun += 1;
            return true;
        }
        if inbound.arrivals.held_packets() >= keeps {
            self.stats.dropped_overrun += inbound.arrivals.held_packets() as u64;
            for held in inbound.arrivals.give_up_held() {
                if let Some(flow) = self.flows.get_mut(held.flow) {
                    flow.receive.data.revoke();
                }
                self.flows.note_received(held.flow);
            }
        }
        false
    }

    /// True if data that a packet carries would lie behind a gap.
    fn leaves_gap(&self, contents: &Contents<'_, '_>) -> bool {
        let lies_behind =
            |flow: u32, start: Option<u64>| start.is_some_and(|start| self.flows.lacks_below(flow, start));
        match contents {
            Contents::Data(data) => lies_behind(data.flow, data.offset),
            Contents::Messages(messages) => lies_behind(messages.flow, messages.start),
            Contents::Frames(frames) => frames.any(|frame| match frame {
                Frame::Data(data) => lies_behind(data.flow, data.offset),
                Frame::Messages(messages) => lies_behind(messages.flow, messages.offset),
                _ => false,
            }),
        }
    }

    /// The sender is told that what these frames carry has arrived.
    pub(in crate::connection) fn confirm(&mut self, frames: &Frames<'_>) {
        frames.for_each(|frame| {
            let (flow, start, positions) = match frame {
                Frame::Data(data) => (data.flow, data.offset, data.bytes.len() as u64 + 1),
                Frame::Messages(messages) => {
                    let len = messages.bytes.len() as u64;
                    (messages.flow, messages.offset, len + u64::from(messages.count))
                }
                _ => return,
            };
            if let (Some(flow), Some(start)) = (self.flows.get_mut(flow), start) {
                flow.receive.data.confirm(start..start.saturating_add(positions));
            }
        });
    }

    /// A packet has been taken in: it is held back from reports if data before its own is missing,
    /// and the mechanism has it so.
    pub(in crate::connection) fn hold_back(&mut self, at: &Arrived, contents: &Contents<'_, '_>) {
        let (stack, number) = (self.inbound.stack(at.epoch), at.number);
        if !stack.is_some_and(|stack| stack.acknowledgement.is_cumulative()) {
            return;
        }
        match contents {
            Contents::Data(data) => self.hold_back_data(number, data),
            Contents::Messages(messages) => {
                let end = messages.start.map(|start| start.saturating_add(messages.positions()));
                self.hold_back_below(number, messages.flow, end);
            }
            Contents::Frames(frames) => frames.for_each(|frame| match frame {
                Frame::Data(data) => self.hold_back_data(number, data),
                Frame::Messages(messages) => {
                    messages.iter().for_each(|data| self.hold_back_data(number, &data))
                }
                _ => {}
            }),
        }
    }

    fn hold_back_data(&mut self, number: u64, data: &frame::Data<'_>) {
        let end = data.offset.map(|start| start.saturating_add(data.bytes.len() as u64));
        self.hold_back_below(number, data.flow, end);
    }

    fn hold_back_below(&mut self, number: u64, flow: u32, end: Option<u64>) {
        if let Some(end) = end.filter(|end| !self.flows.has_all_below(flow, *end))
            && !self.inbound.arrivals.hold(Held { number, flow, end })
            && let Some(flow) = self.flows.get_mut(flow)
        {
            // It is reported as it comes.
            flow.receive.data.confirm_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::testing;
    use uts_functions::{Function, Profile, Time};
    use uts_wire::frame::{Data, DataFlags};

    /// A peer that never fills the gap: what is held of its data is bounded, and nothing of it is
    /// reported.
    #[test]
    fn what_lies_behind_a_gap_takes_no_more_than_is_kept() {
        for (keep, held_bytes_max) in [(0, 0), (1, 1000), (4, 4000), (HELD_MAX as u64, 1_000_000)] {
            let mechanism = uts_functions::library::by_name(Function::Acknowledgement, "in-order");
            let choice = mechanism.expect("it exists").choice_with(&[("keep", keep)]).expect("in range");
            let profile = [
                (Function::Protection, "aes-128-gcm"),
                (Function::Retransmission, "selective"),
                (Function::Flow, "credit"),
            ]
            .into_iter()
            .fold(Profile::bare(), |p, (function, name)| p.with_named(function, name).expect("it exists"))
            .with(Function::Acknowledgement, choice);
            let mut ways = testing::ways_under(profile);
            let flow = ways.flows.open(100).expect("granted").0;
            let mut most = 0;
            for number in 1..=1000 {
                let bytes = &[7; 1000];
                let flags = DataFlags::default();
                let data = Data { flow, offset: Some(1000 * number), flags, has_len: true, bytes };
                let contents = Contents::Data(data);
                let at = Arrived::of(Time::ZERO, None, 0, number);
                if ways.refuses(&at, &contents) {
                    continue;
                }
                let inbound = &mut ways.inbound;
                inbound.arrivals.received.insert_one(number);
                ways.on_data(&at, &data).expect("granted");
                ways.hold_back(&at, &contents);
                most = most.max(ways.flows.get(flow).expect("open").receive.data.held_bytes());
            }
            assert_eq!(most, held_bytes_max.min(1_000_000), "keep = {keep}");
            let arrivals = &ways.inbound.arrivals;
            assert!(arrivals.held_packets() as u64 <= keep, "keep = {keep}");
            let reported = arrivals.unheld().unwrap_or_else(|| arrivals.received.clone());
            assert!(reported.is_empty(), "keep = {keep}: {reported:?}");
        }
    }
}
