//! Adaptation: the policy watches the path, and asks for exchanges of what this end sends.

use super::exchanges::{Reasons, Refusal};
use super::{Connection, Side};
use crate::event::{Direction, Event, ExchangeEvent};
use crate::policy::{Observation, Policy};
use crate::selector;
use core::time::Duration;
use uts_functions::{PathFacts, Profile, Rate, Time};

/// The policy is asked this often at least while it waits for something.
const TICK: Duration = Duration::from_millis(100);

/// The policy of the data that this end sends.
pub(super) struct Adaptation {
    policy: Policy,
    next_at: Time,
    /// An exchange that the policy asked for: its epoch and profile.
    asked: Option<(u32, Profile)>,
    last_epoch: u32,
    /// Delivered bytes and instant of the last look, for the rate that the application offers.
    last: (Time, u64),
    waits_for_outcome: bool,
}

impl Adaptation {
    pub fn timeout(&self) -> Option<Time> {
        (self.waits_for_outcome || self.asked.is_some()).then_some(self.next_at)
    }
}

impl Connection {
    /// The connection is established: the policy begins, with the profile that the selector would choose knowing the peer.
    pub(super) fn begin_adaptation(&mut self, now: Time) {
        let local = self.config.library();
        let Some(peer) = self.peer_library else { return };
        let facts = PathFacts::default();
        let Ok(selection) = selector::select(&self.config.requirements, &facts, &local, Some(&peer)) else {
            return;
        };
        let home = selection.profile;
        let policy = Policy::new(self.config.requirements.clone(), local.common(&peer), home);
        self.adaptation = Some(Adaptation {
            policy,
            next_at: now,
            asked: None,
            last_epoch: 0,
            last: (now, 0),
            waits_for_outcome: false,
        });
        // The first profile is made of mandatory mechanisms, and proposed by the client: what this end wants beyond that
        // is asked for now.
        let wants_more = match self.side {
            Side::Client => self.profile_of(Direction::Out, 0) != home,
            Side::Server => {
                !self.config.requirements.pins.is_empty() && self.profile_of(Direction::Out, 0) != home
            }
        };
        if wants_more {
            let seen = "what the application requires".to_owned();
            let reasons = Reasons { seen, expects: "the profile that the selector chose".into() };
            let _ = self.request_exchange(now, Direction::Out, 0, home, reasons);
        }
    }

    /// Shows the policy what is known now, and does what it decides.
    pub(super) fn adapt(&mut self, now: Time) {
        if !self.is_open() {
            return;
        }
        let (Some(adaptation), Some(outbound)) = (&mut self.adaptation, &self.outbound) else { return };
        if now < adaptation.next_at || outbound.rtt.samples == 0 {
            return;
        }
        adaptation.next_at = now + (outbound.rtt.min).clamp(Duration::from_millis(5), TICK);
        let facts = outbound.facts(self.size.current() as u64);
        let delivered_bytes = outbound.delivery.delivered;
        let offered = outbound.delivery.is_app_limited().then(|| {
            let (since, bytes) = adaptation.last;
            Rate::from_delivery(delivered_bytes.saturating_sub(bytes), now.since(since))
        });
        adaptation.last = (now, delivered_bytes);
        let Some(profile) = outbound.stack(0).map(|s| s.profile) else { return };
        let observation = Observation { facts: &facts, profile: &profile, delivered_bytes, offered };
        adaptation.policy.observe(now, &observation);
        self.follow_exchange(now, &profile);
        self.report_outcome(now);
        self.carry_out_decision(now);
    }

    /// Tells the policy what became of the exchange under way.
    fn follow_exchange(&mut self, now: Time, profile: &Profile) {
        let idle = self.exchanges.is_idle(Direction::Out);
        let epoch = self.outbound.as_ref().and_then(|o| o.stack(0)).map_or(0, |s| s.epoch);
        let Some(adaptation) = &mut self.adaptation else { return };
        if epoch != adaptation.last_epoch {
            adaptation.last_epoch = epoch;
            let own = adaptation.asked.take().is_some_and(|(asked, _)| asked == epoch);
            adaptation.waits_for_outcome = own;
            adaptation.policy.on_exchanged(now, profile);
        } else if idle && adaptation.asked.take().is_some() {
            // It was not agreed in time, or the peer's own request came first.
            adaptation.policy.on_refused(now, None);
        }
    }

    /// The peer refused.
    pub(super) fn on_refused(&mut self, direction: Direction, refusal: &Refusal) {
        use super::RefusalReason;
        let now = self.last_heard_at;
        let Some(adaptation) = self.adaptation.as_mut().filter(|_| direction == Direction::Out) else {
            return;
        };
        if let Some((_, profile)) = adaptation.asked.take() {
            let number = profile.get(refusal.function).number;
            let lacking = (refusal.reason == RefusalReason::Unknown).then_some((refusal.function, number));
            adaptation.policy.on_refused(now, lacking);
        }
    }

    fn report_outcome(&mut self, now: Time) {
        let Some(adaptation) = &mut self.adaptation else { return };
        if let Some(outcome) = adaptation.policy.outcome(now) {
            adaptation.waits_for_outcome = false;
            let event = ExchangeEvent::Brought { epoch: adaptation.last_epoch, line: outcome.to_string() };
            self.events.push_back(Event::Exchange(event));
        }
    }

    fn carry_out_decision(&mut self, now: Time) {
        if !self.exchanges.is_idle(Direction::Out) {
            return;
        }
        let Some(adaptation) = &mut self.adaptation else { return };
        let Some(decision) = adaptation.policy.decide(now) else { return };
        let reasons = Reasons { seen: decision.seen.clone(), expects: decision.expects.to_string() };
        let asked = self.request_exchange(now, Direction::Out, 0, decision.to, reasons);
        let Some(adaptation) = &mut self.adaptation else { return };
        match asked {
            Ok(epoch) => adaptation.asked = Some((epoch, decision.to)),
            Err(_) => adaptation.policy.on_refused(now, None),
        }
    }

    /// The application's needs have changed: the selector chooses anew, knowing the path, and the difference is asked for.
    ///
    /// # Errors
    /// [`selector::Contradiction`] if the requirements cannot be met; nothing changes then.
    pub fn set_requirements(
        &mut self,
        now: Time,
        requirements: crate::requirements::Requirements,
    ) -> Result<(), selector::Contradiction> {
        let facts = self.facts();
        let local = self.config.library_for(&requirements);
        let selection = selector::select(&requirements, &facts, &local, self.peer_library.as_ref())?;
        self.outbound_mut(|o| o.rate_max = requirements.max_send_rate);
        self.config.requirements = requirements.clone();
        if let Some(adaptation) = &mut self.adaptation {
            adaptation.policy.set_requirements(requirements, selection.profile);
            adaptation.next_at = now;
        }
        Ok(())
    }
}
