//! Packets that are held back from reports, because data before theirs is missing
//! (acknowledgement.md R-16).

use crate::connection::Ways;
use crate::connection::receive::contents::Contents;
use crate::connection::receive::inbound::Inbound;
use uts_functions::acknowledgement::{Acknowledgement as _, Held};
use uts_wire::frame::{self, Frame};

impl Inbound {
    /// Whether packets are reported only when all data up to theirs is there.
    pub fn is_cumulative(&self) -> bool {
        self.newest(0).is_some_and(|stack| stack.acknowledgement.is_cumulative())
    }
}

impl Ways {
    /// A packet has been taken in, built under this stack: it is held back from reports if data
    /// before its own is missing, and the mechanism has it so.
    pub(in crate::connection) fn hold_back(
        &mut self,
        index: usize,
        number: u64,
        contents: &Contents<'_, '_>,
    ) {
        let stack = self.inbound.as_ref().and_then(|inbound| inbound.stacks.get(index));
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
            && let Some(inbound) = &mut self.inbound
        {
            inbound.arrivals.hold(Held { number, flow, end });
        }
    }
}
