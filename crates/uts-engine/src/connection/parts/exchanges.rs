//! The machines of the exchange in both directions, and what they have to say.

use super::super::Ways;
use super::super::agreement::refusal::Refusal;
use super::super::packet::Packet;
use super::super::receive::inbound::Arrived;
use super::{Effect, Interest, LostPacket, Part, Reading, Token};
use crate::event::Direction;
use crate::exchange::{self, Machine};
use core::time::Duration;
use std::collections::VecDeque;
use uts_functions::{Profile, Time};
use uts_wire::frame::Frame;

/// Messages that may wait at once: a peer may ask faster than it listens.
pub(in crate::connection) const MESSAGES_MAX: usize = 16;

/// The exchanges of both directions, and what they have to say.
pub(crate) struct Exchanges {
    /// By direction; `None` until something is asked in it, which on most connections is never.
    machines: [Option<Box<Machine<Profile, Refusal>>>; 2],
    /// Frames to send, in order.
    pub pending: VecDeque<(Direction, Frame<'static>)>,
    /// Epoch and profile that were last asked for, to report changes against the profile in use.
    pub asked: [Option<Box<(u32, Profile)>>; 2],
    pub completed: u64,
}

impl Exchanges {
    pub fn new() -> Self {
        Exchanges { machines: [None, None], pending: VecDeque::new(), asked: [None, None], completed: 0 }
    }

    /// The machine of a direction, if anything was asked in it.
    pub fn machine(&mut self, direction: Direction) -> Option<&mut Machine<Profile, Refusal>> {
        self.machines[direction as usize].as_deref_mut()
    }

    /// The same, as it is before anything was asked if nothing was.
    fn begin(&mut self, direction: Direction) -> &mut Machine<Profile, Refusal> {
        self.machines[direction as usize].get_or_insert_with(|| {
            let side = match direction {
                Direction::Out => exchange::Side::DataSender,
                Direction::In => exchange::Side::DataReceiver,
            };
            Box::new(Machine::new(side, 0))
        })
    }

    /// The same, with the probe time-out that now holds.
    pub fn begin_at(&mut self, direction: Direction, pto: Duration) -> &mut Machine<Profile, Refusal> {
        let machine = self.begin(direction);
        machine.set_pto(pto);
        machine
    }

    /// True if no exchange of the direction is under way.
    pub fn is_idle(&self, direction: Direction) -> bool {
        self.machines[direction as usize].as_ref().is_none_or(|machine| machine.is_idle())
    }

    /// The epoch that this end has asked for, and no answer came yet.
    pub fn asked_epoch(&self, direction: Direction) -> Option<u32> {
        self.machines[direction as usize].as_ref()?.asked()
    }

    pub fn heap_bytes(&self) -> usize {
        self.machines.iter().flatten().map(|machine| size_of_val(&**machine)).sum::<usize>()
            + self.pending.capacity() * size_of::<(Direction, Frame<'_>)>()
            + self.asked.iter().flatten().map(|asked| size_of_val(&**asked)).sum::<usize>()
    }
}

impl Part for Exchanges {
    /// The machine's answer concerns profiles and keys, which are not the part's.
    fn read<'f>(&mut self, _at: &Arrived, frame: &'f Frame<'f>, _ways: &mut Ways) -> Reading<'f> {
        Ok(Effect::Exchange(frame))
    }

    fn interest(&self, _ways: &Ways) -> Interest {
        Interest::frames_if(!self.pending.is_empty())
    }

    fn write(&mut self, packet: &mut Packet<'_>, _ways: &mut Ways) {
        while let Some((direction, message)) = self.pending.front() {
            if !packet.put_if_it_fits(message) {
                return;
            }
            packet.tokens.push(Token::Exchange(*direction));
            self.pending.pop_front();
        }
    }

    /// Sends unanswered messages again.
    fn lost(&mut self, _loss: &LostPacket, token: &Token, ways: &mut Ways) {
        self.probe(token, ways);
    }

    fn probe(&mut self, token: &Token, _ways: &mut Ways) {
        if let Token::Exchange(direction) = token
            && let Some(machine) = self.machine(*direction)
        {
            machine.handle_lost();
        }
    }

    fn timeout(&self, _ways: &Ways) -> Option<Time> {
        self.machines.iter().flatten().filter_map(|machine| machine.poll_timeout()).min()
    }

    fn on_timeout(&mut self, now: Time, _ways: &mut Ways) {
        for machine in self.machines.iter_mut().flatten() {
            if machine.poll_timeout().is_some_and(|at| at <= now) {
                machine.handle_timeout(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::*;
    use uts_wire::frame;

    fn confirm(epoch: u32) -> (Direction, Frame<'static>) {
        let direction = frame::Direction::FromSender;
        (Direction::Out, Frame::ConfirmPf(frame::ConfirmPf { direction, epoch }))
    }

    #[test]
    fn messages_are_said_in_order_as_far_as_there_is_room() {
        let (mut part, mut ways) = (Exchanges::new(), testing::ways());
        part.pending.extend([confirm(1), confirm(2), confirm(3)]);
        let frames = testing::written(&mut ways, 7, |packet, ways| part.write(packet, ways));
        assert_eq!(frames, [confirm(1).1, confirm(2).1]);
        assert!(part.interest(&ways) == Interest::Frames);
        let frames = testing::written(&mut ways, 7, |packet, ways| part.write(packet, ways));
        assert_eq!(frames, [confirm(3).1]);
        assert!(part.interest(&ways) == Interest::Nothing);
    }

    #[test]
    fn what_is_lost_is_the_business_of_the_direction_that_asked() {
        let (mut part, mut ways) = (Exchanges::new(), testing::ways());
        // Nothing was asked: to lose an answer orders nothing.
        part.lost(&testing::LOSS, &Token::Exchange(Direction::In), &mut ways);
        assert!(part.is_idle(Direction::In) && part.timeout(&ways).is_none());
        let profile = ways.outbound.stacks[0].profile.clone();
        let machine = part.begin_at(Direction::Out, Duration::from_millis(50));
        machine.request(Time::ZERO, 0, *profile).expect("idle");
        while machine.poll_message().is_some() {}
        part.lost(&testing::LOSS, &Token::Exchange(Direction::Out), &mut ways);
        let machine = part.machine(Direction::Out).expect("begun");
        assert!(machine.poll_message().is_some(), "the request is said again");
    }
}
