//! Implicit use, as the hub sees it: what may be used at once, envelopes on their way in, and the
//! way back after a refusal (exchange.md section 9).

use crate::connection::agreement::exchanges::Asked;
use crate::connection::agreement::numbers::{own, peers};
use crate::connection::parts::LostPacket;
use crate::connection::receive::inbound::{Arrived, Unsealed};
use crate::connection::send::envelope::Envelope;
use crate::connection::stage::Open;
use crate::event::Direction;
use crate::exchange::Carried;
use crate::requirements::ExchangeMode;
use crate::synthesis::DataLayout;
use uts_functions::mechanism::Consent;
use uts_functions::numbering::from_wire;
use uts_functions::{Function, Profile, Time};
use uts_wire::frame::{self, Frame, FrameIter};

impl Open {
    /// Says whether a profile that is wanted for a group of what this end sends is used at once
    ///
    pub(in crate::connection) fn is_to_be_implicit(&self, group: u8, profile: &Profile) -> bool {
        match self.ways.config.requirements.exchange {
            ExchangeMode::Explicit => false,
            ExchangeMode::Implicit => true,
            ExchangeMode::Automatic => is_certain(&self.profile_of(Direction::Out, group), profile),
        }
    }

    /// Says whether data sent under a profile before the peer has agreed can be sent again under
    /// what is in use, and the peer reads it if it agrees.
    pub(in crate::connection) fn can_go_back(&self, group: u8, profile: &Profile) -> bool {
        let has_stack = self.ways.outbound.stack(group).is_some();
        let old = self.profile_of(Direction::Out, group);
        let kept = [Function::Presentation, Function::Segmentation];
        let (before, after) = (DataLayout::of(&old), DataLayout::of(profile));
        self.agreement.peer_reads_use
            && has_stack
            && kept.iter().all(|function| old.get(*function) == profile.get(*function))
            && DataLayout { repeats: before.repeats, tolerates: before.tolerates, ..after } == before
    }

    /// If what was asked for is in use already, its packets leave in envelopes, the next at once.
    pub(in crate::connection) fn put_in_envelopes(&mut self) {
        let carried = self.parts.exchanges.machine(Direction::Out).and_then(|machine| machine.carried());
        let Some(carried) = carried else { return };
        let (first, own) = (self.ways.outbound.ledger.next_number(), own(&self.ways.rare));
        let envelope = Envelope::new(&carried, first, own);
        self.ways.outbound.envelope = envelope.map(Box::new);
        self.parts.ping.is_wanted = true;
    }

    /// A packet that travelled in an envelope is acknowledged.
    pub(in crate::connection) fn on_envelope_opened(&mut self, now: Time, epoch: u32) {
        if let Some(machine) = self.parts.exchanges.machine(Direction::Out) {
            machine.on_acknowledged(now, epoch);
        }
        self.drain_exchange(now, Direction::Out);
    }

    /// The peer agrees to what was carried: packets travel in no envelope any more.
    pub(in crate::connection) fn send_bare(&mut self, direction: Direction) {
        if direction == Direction::Out {
            self.ways.outbound.envelope = None;
            self.ways.outbound.drop_idle_stacks();
        }
    }

    /// The peer refuses what was carried: the epoch before is in use again, and what was sent
    /// meanwhile is sent again.
    pub(in crate::connection) fn go_back(&mut self, now: Time, group: u8) {
        let packet_bytes = self.parts.size.current() as u64;
        let refused = self.profile_of(Direction::Out, group);
        let outbound = &mut self.ways.outbound;
        let taken = outbound.go_back(now, packet_bytes);
        let next_packet = outbound.ledger.next_number();
        let in_use = self.profile_of(Direction::Out, group);
        self.follow_use(now, group, (&refused, &in_use), true);
        for (number, sent) in &taken {
            let loss = LostPacket { now, number: *number, sent_at: sent.snapshot.sent_at, next_packet };
            for token in &sent.tokens {
                self.parts.lost(&loss, token, &mut self.ways);
            }
        }
    }

    /// Takes in an authentic packet that encloses another, whose profile may be new here.
    #[cold]
    pub(in crate::connection) fn take_in_envelope(&mut self, at: &Arrived, payload: &[u8]) {
        let Some(Ok(Frame::UsePf(frame))) = FrameIter::new(payload).next().filter(|_| !at.is_enclosed) else {
            return self.on_malformed(at.epoch);
        };
        self.on_authentic(at.now);
        if !self.reads_carried(at.now, &frame) {
            // the sender repeats it.
            self.ways.stats.dropped_unknown_epoch += 1;
            return;
        }
        let mut packet = frame.packet.to_vec();
        let inbound = &self.ways.inbound;
        let opened = inbound.unseal(&self.identity.local_cid, &mut packet).ok();
        let is_meant = |opened: &Unsealed| opened.number == at.number && opened.epoch == frame.epoch;
        match opened.filter(is_meant) {
            Some(Unsealed { epoch, frames, right_bytes: None, .. }) => {
                let at = Arrived { epoch, is_enclosed: true, ..*at };
                self.take_in(&at, &packet[frames]);
            }
            _ => self.on_malformed(at.epoch),
        }
    }

    /// Decides on the request in an envelope. Says whether packets of its epoch can be read.
    fn reads_carried(&mut self, now: Time, frame: &frame::UsePf<'_>) -> bool {
        let (profile, stranger) = from_wire(&frame.profile, peers(&self.ways.rare));
        let asked = Asked { of_group: 0, using: frame.using[0], stranger };
        let carried = Carried { epoch: frame.epoch, group: frame.group, using: frame.using, profile };
        let is_read = self.decide_on(now, Direction::In, asked, |machine, accept| {
            machine.handle_carried(now, carried, accept)
        });
        let stacks = &mut self.ways.inbound.stacks;
        if let Some(stack) = stacks.iter_mut().find(|stack| is_read && stack.epoch == frame.epoch) {
            // those that were sent before others may come behind them.
            stack.first_number = stack.first_number.min(frame.first);
        }
        is_read
    }
}

/// Says whether a peer cannot but agree to a change: it has the mechanisms that all have, and is
/// asked for nothing that it must have named.
fn is_certain(old: &Profile, new: &Profile) -> bool {
    old.differences(new).all(|function| {
        new.mechanism(function).is_some_and(|mechanism| {
            mechanism.mandatory && matches!(mechanism.consent, Consent::NotNeeded | Consent::OfSender)
        })
    })
}
