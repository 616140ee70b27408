//! Implicit use: the sender uses a profile at once, and its packets carry the request until one of
//! them has arrived (exchange.md section 9).

use super::machine::{Answer, Asking, Machine};
use super::repeat::Repeat;
use super::{Busy, EVENTS_MAX, Event, Side, Using};
use uts_functions::Time;

/// A request as packets carry it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Carried<P> {
    /// The number of the profile, under which the packet is built.
    pub epoch: u32,
    /// The group of flows.
    pub group: u8,
    /// The epochs that the data sender used before.
    pub using: Using,
    /// The profile.
    pub profile: P,
}

impl<P: Clone + Eq, R: Clone> Machine<P, R> {
    /// Sender: uses `profile` for `group` from now on; returns the epoch. Until a packet of it is
    /// acknowledged, packets of the group carry what [`Machine::carried`] says. A receiver
    /// can only ask, and so does a sender that has nothing to go back to, or asks for what is in
    /// doubt.
    ///
    /// # Errors
    /// [`Busy`] as for [`Machine::request`].
    pub fn use_at_once(&mut self, now: Time, group: u8, profile: P) -> Result<u32, Busy> {
        let doubt = self.in_doubt();
        let epoch = self.request(now, group, profile)?;
        let may = self.side == Side::DataSender && self.current(group).is_some() && doubt != Some(epoch);
        let Some(asking) = self.asking.as_mut().filter(|_| may) else { return Ok(epoch) };
        (asking.is_carried, asking.send, asking.repeat) = (true, false, Repeat::stopped());
        let (profile, envelopes_of) = (asking.profile.clone(), asking.using[0]);
        self.set_current(group, epoch);
        self.open.open_in_envelopes(epoch, group, envelopes_of);
        self.events.push_back(Event::Use { epoch, group, profile });
        Ok(epoch)
    }

    /// Sender: what packets of its group carry, if anything.
    pub fn carried(&self) -> Option<Carried<P>> {
        let asking = self.asking.as_ref().filter(|asking| asking.is_carried)?;
        let Asking { epoch, group, using, profile, .. } = &**asking;
        Some(Carried { epoch: *epoch, group: *group, using: *using, profile: profile.clone() })
    }

    /// Sender: a packet of `epoch` was acknowledged. The receiver reads what it carried.
    pub fn on_acknowledged(&mut self, now: Time, epoch: u32) {
        let is_answer = |asking: &Asking<P>| asking.is_carried && asking.epoch == epoch;
        if self.events.len() < EVENTS_MAX && self.asking.as_ref().is_some_and(|asking| is_answer(asking)) {
            self.complete(now);
            self.send_confirm = true;
        }
    }

    /// Sender: forgets replaced epochs of which nothing is under way any more.
    pub fn settle(&mut self, is_under_way: impl Fn(u32) -> bool) {
        if self.side == Side::DataSender {
            self.open.settle(is_under_way);
        }
    }

    /// Receiver: an authentic packet carries a request. Says whether what was built under its epoch
    /// can be read. `accept` is asked at most once.
    pub fn handle_carried(
        &mut self,
        now: Time,
        carried: Carried<P>,
        accept: impl FnOnce(u8, &P) -> Result<(), R>,
    ) -> bool {
        let Carried { epoch, group, using, profile } = carried;
        if self.side != Side::DataReceiver || self.events.len() >= EVENTS_MAX || !self.is_sane(epoch, group) {
            return false;
        }
        if let Some(answer) = self.answer.as_mut().filter(|answer| answer.epoch == epoch) {
            answer.send |= answer.refusal.is_some();
        } else if epoch > self.heard && self.learn_using(now, epoch, &using) {
            self.heard = epoch;
            self.highest = self.highest.max(epoch);
            self.decided = self.decided.max(epoch);
            let refusal = accept(group, &profile).err();
            let send = refusal.is_some();
            if !send {
                self.open_for(group, epoch, profile);
                // the lower ones stay open until the sender knows.
                self.set_current(group, epoch);
            }
            let repeat = Repeat::stopped();
            self.answer = Some(Box::new(Answer { epoch, group, refusal, repeat, send }));
        }
        self.open.group_of(epoch) == Some(group)
    }

    /// Sender: what packets carried is refused: what was in use before is again.
    pub(super) fn go_back(&mut self, refused: &Asking<P>) {
        let group = usize::from(refused.group);
        let before = refused.using.get(group).copied().flatten().filter(|_| refused.is_carried);
        if let (Some(epoch), Some(current)) = (before, self.current.get_mut(group)) {
            *current = before;
            self.events.push_back(Event::Back { epoch, group: refused.group, refused: refused.epoch });
        }
    }
}
