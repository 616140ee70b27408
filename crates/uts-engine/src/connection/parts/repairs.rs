//! Redundancy that waits to be sent: each packet takes one symbol, under the epoch whose data it
//! repairs.

use super::super::Ways;
use super::super::packet::Packet;
use super::{Interest, Part};
use crate::synthesis::{SendStack, repair_frame};
use uts_functions::Time;
use uts_wire::frame::Frame;

/// Part that sends the redundancy that FEC makes of data. The stacks hold it.
#[derive(Debug)]
pub(crate) struct Repairs;

/// True if redundancy of this epoch waits to be sent.
pub(in crate::connection) fn has_repair(stack: &SendStack) -> bool {
    stack.fec.as_ref().is_some_and(|fec| fec.has_repair())
}

impl Repairs {
    /// True if redundancy of any epoch waits to be sent.
    pub fn wait(&self, ways: &Ways) -> bool {
        ways.outbound.stacks.iter().any(has_repair)
    }
}

impl Part for Repairs {
    fn interest(&self, ways: &Ways) -> Interest {
        Interest::frames_if(self.wait(ways))
    }

    fn write(&mut self, packet: &mut Packet<'_>, ways: &mut Ways) {
        let stack = ways.outbound.stacks.get_mut(packet.stack);
        let Some(fec) = stack.and_then(|stack| stack.fec.as_mut()) else { return };
        while let Some(repair) = fec.next_repair() {
            let frame = Frame::Repair(repair_frame(repair));
            let len = frame.encoded_len();
            if packet.put_if_it_fits(&frame) {
                fec.pop_repair();
                ways.stats.repairs_sent += 1;
                return;
            }
            if packet.mark.payload_offset() + len <= packet.full_end {
                return;
            }
            // Packets have become smaller since its block was begun: it fits into none.
            fec.pop_repair();
        }
    }

    /// When a block under way is closed, though it is not full.
    fn timeout(&self, ways: &Ways) -> Option<Time> {
        ways.outbound.stacks.iter().filter_map(|stack| stack.fec.as_ref()?.deadline()).min()
    }

    fn on_timeout(&mut self, now: Time, ways: &mut Ways) {
        for fec in ways.outbound.stacks.iter_mut().filter_map(|stack| stack.fec.as_mut()) {
            if fec.deadline().is_some_and(|at| at <= now) {
                fec.on_flush(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::*;
    use uts_functions::Function;

    /// Ways of which a block of redundancy is to be sent, made of packets of so many bytes.
    fn ways(bytes: usize) -> Ways {
        let mut ways = testing::ways_with(&[(Function::Fec, "reed-solomon")]);
        let outbound = &mut ways.outbound;
        let fec = outbound.stacks[0].fec.as_mut().expect("not inert");
        (0..4).for_each(|number| fec.on_source(Time::ZERO, number, &vec![number as u8; bytes]));
        ways
    }

    #[test]
    fn a_block_is_closed_in_time_and_each_packet_takes_one_symbol() {
        let (mut part, mut ways) = (Repairs, ways(500));
        assert!(part.interest(&ways) == Interest::Nothing, "the block is not full");
        let due = part.timeout(&ways).expect("it is closed some time");
        part.on_timeout(due, &mut ways);
        let mut symbols = 0;
        while part.interest(&ways) == Interest::Frames {
            let frames = testing::written(&mut ways, 1100, |packet, ways| part.write(packet, ways));
            assert!(matches!(frames[..], [Frame::Repair(_)]), "{frames:?}");
            symbols += 1;
        }
        assert!(symbols > 0 && ways.stats.repairs_sent == symbols);
    }

    #[test]
    fn a_symbol_that_fits_into_no_packet_any_more_is_dropped() {
        let (mut part, mut ways) = (Repairs, ways(1000));
        let due = part.timeout(&ways).expect("it is closed some time");
        part.on_timeout(due, &mut ways);
        assert!(testing::written(&mut ways, 600, |packet, ways| part.write(packet, ways)).is_empty());
        assert!(part.interest(&ways) == Interest::Nothing && ways.stats.repairs_sent == 0);
    }
}
