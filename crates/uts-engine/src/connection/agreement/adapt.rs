//! Adaptation: the policy watches the path, and asks for exchanges of what this end sends
//! (selection.md S-8).

use crate::appraisal::rules::quote;
use crate::connection::agreement::exchanges::Reasons;
use crate::connection::agreement::refusal::Refusal;
use crate::connection::flows::halves::Flow;
use crate::connection::stage::{Core, Fresh, Open, Stage};
use crate::connection::{Side, Ways};
use crate::event::{Direction, Event, ExchangeEvent};
use crate::policy::{Aim, Observation, Policy, Turn, Turns};
use crate::requirements::Requirements;
use crate::selector::{self, Contradiction, Library, Selection};
use core::time::Duration;
use std::sync::Arc;
use uts_functions::{PathFacts, Profile, Rate, Time};

/// Shortest span over which the application's sending is measured, the longest being twice this:
/// frames of video and bursts of speech differ.
const OFFER_SPAN: Duration = Duration::from_millis(500);
/// The largest of so many measurements counts: a key frame every few seconds is part of what a path
/// must carry.
const OFFER_SPANS: usize = 6;
/// Less than this tells no rate.
const OFFER_MIN: Duration = Duration::from_millis(200);

/// The policy is asked this often at least while it waits for something.
const TICK: Duration = Duration::from_millis(100);
/// … and no more often than this, nor than its turn among the endpoint's connections comes.
const TICK_MIN: Duration = Duration::from_millis(5);

/// Amount that the application has handed over so far, and the packets and bursts in which it left.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    bytes: u64,
    /// These two wrap.
    packets: u32,
    bursts: u16,
}

/// Load that the application offers in a second: not what is delivered, which congestion control
/// may hold back.
#[derive(Clone, Copy, Debug)]
struct Offered {
    rate: Rate,
    packets_per_s: f64,
    packets_at_once: f64,
    payload_bytes: f64,
}

/// Measures what is offered.
struct Offer {
    /// Instants, and what was written by then; the older one is where the measurement begins.
    marks: [(Time, Written); 2],
    /// Of the latest spans.
    rates: [Rate; OFFER_SPANS],
}

impl Offer {
    fn new(now: Time, written: Written) -> Self {
        Offer { marks: [(now, written); 2], rates: [Rate::default(); OFFER_SPANS] }
    }

    fn rate(&mut self, now: Time, written: Written) -> Option<Offered> {
        let rate_since = |(since, before): (Time, Written)| {
            Rate::from_delivery(written.bytes.saturating_sub(before.bytes), now.since(since))
        };
        if now.since(self.marks[1].0) >= OFFER_SPAN {
            self.rates.rotate_right(1);
            self.rates[0] = rate_since(self.marks[1]);
            self.marks = [self.marks[1], (now, written)];
        }
        let (since, before) = self.marks[0];
        let span = now.since(since);
        if span < OFFER_MIN {
            return None;
        }
        let largest = self.rates.iter().copied().max().unwrap_or_default();
        let packets = f64::from(written.packets.wrapping_sub(before.packets));
        let bursts = f64::from(written.bursts.wrapping_sub(before.bursts).max(1));
        Some(Offered {
            rate: rate_since((since, before)).max(largest),
            packets_per_s: packets / span.as_secs_f64(),
            packets_at_once: (packets / bursts).max(1.0),
            payload_bytes: written.bytes.saturating_sub(before.bytes) as f64 / packets.max(1.0),
        })
    }
}

/// The policy of the data that this end sends.
pub(in crate::connection) struct Adaptation {
    policy: Policy,
    next_at: Time,
    /// An exchange that the policy asked for: its epoch and profile.
    asked: Option<Box<(u32, Profile)>>,
    last_epoch: u32,
    offer: Offer,
    waits_for_outcome: bool,
    /// Its places among the endpoint's connections.
    to_observe: Turn,
    to_compare: Turn,
}

impl Adaptation {
    fn new(now: Time, policy: Policy, written: Written) -> Self {
        Adaptation {
            policy,
            next_at: now,
            asked: None,
            last_epoch: 0,
            offer: Offer::new(now, written),
            waits_for_outcome: false,
            to_observe: Turn::default(),
            to_compare: Turn::default(),
        }
    }

    /// Profile that it returns to.
    pub fn home(&self) -> &Profile {
        self.policy.home()
    }

    /// A quiet while has passed. Says what to begin with again, if nothing has been learnt that
    /// would be lost.
    pub fn rest(&mut self) -> Option<&Profile> {
        self.policy.forget_recent();
        (self.policy.is_untried() && self.asked.is_none()).then(|| self.policy.home())
    }

    pub fn heap_bytes(&self) -> usize {
        self.policy.heap_bytes() + self.asked.as_ref().map_or(0, |asked| size_of_val(&**asked))
    }

    pub fn timeout(&self) -> Option<Time> {
        let at = self.to_observe.at().map_or(self.next_at, |at| at.max(self.next_at));
        (self.waits_for_outcome || self.asked.is_some()).then_some(at)
    }
}

impl Ways {
    fn written(&self) -> Written {
        let bursts = self.outbound.bursts;
        Written { bytes: self.bytes_written, packets: bursts.packets, bursts: bursts.count }
    }

    /// True if data that waits here would arrive too late, were it to leave at the rate that the
    /// path delivers.
    fn is_late(&self, aim: Aim, facts: &PathFacts) -> bool {
        let Aim::InTime(deadline) = aim.on(&self.config.requirements, facts) else { return false };
        if facts.capacity == Rate::default() {
            return false;
        }
        let unsent =
            |(_, flow): (u32, &Flow)| flow.send.buffer.written().saturating_sub(flow.send.buffer.sent());
        let waits = facts.capacity.time_for(self.flows.iter().map(unsent).sum());
        // What a dialogue is held up by the path's length is none of its lateness.
        let way = if self.config.requirements.is_dialogue() { Duration::ZERO } else { facts.rtt_min / 2 };
        waits + way + facts.queueing() > deadline
    }
}

impl Open {
    /// When the policy is to be asked.
    pub(in crate::connection) fn policy_timeout(&self) -> Option<Time> {
        let has_news = !self.is_resting() && !self.is_out();
        self.agreement.adaptation.as_ref().filter(|_| has_news).and_then(|a| a.timeout())
    }

    /// The connection is established: the policy begins, with the profile that the selector would
    /// choose knowing the peer.
    pub(in crate::connection) fn begin_adaptation(&mut self, now: Time, is_corrected: bool) {
        let local = self.ways.config.library();
        let peer = self.agreement.peer_library;
        let facts = PathFacts::default();
        let Ok(selection) = selector::select(&self.ways.config.requirements, &facts, &local, Some(&peer))
        else {
            return;
        };
        let home = selection.profile;
        self.start_policy(now, home);
        // The first profile is made of mandatory mechanisms, and proposed by the client: what this
        // end wants beyond that is asked for now.
        let wants_more = match self.identity.side {
            Side::Client => self.profile_of(Direction::Out, 0) != home,
            Side::Server => {
                !self.ways.config.requirements.pins.is_empty() && self.profile_of(Direction::Out, 0) != home
            }
        };
        if wants_more {
            let seen = "what the application requires".to_owned();
            let reasons = Reasons::new(seen, "the profile that the selector chose");
            let _ = self.request_exchange(now, Direction::Out, 0, home, reasons);
        } else if is_corrected {
            // S-40: the client is told.
            let in_use = self.profile_of(Direction::Out, 0);
            let seen = "the client proposed what this end's requirements do not allow".to_owned();
            let reasons = Reasons::new(seen, "what this end does already");
            let _ = self.request_exchange(now, Direction::Out, 0, in_use, reasons);
        }
    }

    /// A policy that knows nothing of the path yet, and returns to `home`.
    pub(in crate::connection) fn start_policy(&mut self, now: Time, home: Profile) {
        let usable = self.ways.config.library().common(&self.agreement.peer_library);
        let policy = Policy::new(self.ways.config.requirements.clone(), usable, home);
        let adaptation = Adaptation::new(now, policy, self.ways.written());
        self.agreement.adaptation = Some(Box::new(adaptation));
    }

    /// Shows the policy what is known now, and does what it decides.
    pub(in crate::connection) fn adapt(&mut self, now: Time, turns: &mut Turns) {
        if !self.life.is_live() {
            return;
        }
        let Some(adaptation) = &mut self.agreement.adaptation else { return };
        let outbound = &self.ways.outbound;
        if now < adaptation.next_at || outbound.rtt.samples == 0 {
            return;
        }
        if !adaptation.to_observe.has_come(now, &mut turns.observe) {
            return;
        }
        let every = if adaptation.policy.adapts() { outbound.rtt.min.clamp(TICK_MIN, TICK) } else { TICK };
        adaptation.next_at = now + every;
        let mut facts = outbound.facts(self.parts.size.current() as u64);
        let delivered_bytes = outbound.delivery.delivered;
        // Who wants as much as possible and is held back has no rate of its own.
        let has_rate = adaptation.policy.aim() != Aim::Throughput || outbound.delivery.is_app_limited();
        let offered = adaptation.offer.rate(now, self.ways.written()).filter(|_| has_rate);
        if let Some(offered) = offered {
            (facts.packets_per_s, facts.packets_at_once) = (offered.packets_per_s, offered.packets_at_once);
            facts.payload_bytes = offered.payload_bytes;
        }
        let offered = offered.map(|offered| offered.rate);
        let Some(profile) = outbound.stack(0).map(|s| *s.profile) else { return };
        let is_late = self.ways.is_late(adaptation.policy.aim(), &facts);
        let is_searching = outbound.is_searching();
        let observation =
            Observation { facts: &facts, profile: &profile, delivered_bytes, offered, is_late, is_searching };
        adaptation.policy.set_host(turns.host.facts(now));
        adaptation.policy.observe(now, &observation);
        self.follow_exchange(now, &profile);
        self.report_outcome(now);
        self.carry_out_decision(now, turns);
    }

    /// Tells the policy what became of the exchange under way.
    fn follow_exchange(&mut self, now: Time, profile: &Profile) {
        if self.ways.outbound.envelope.is_some() {
            // It may still be refused.
            return;
        }
        let idle = self.parts.exchanges.is_idle(Direction::Out);
        let epoch = self.ways.outbound.stack(0).map_or(0, |s| s.epoch);
        let Some(adaptation) = &mut self.agreement.adaptation else { return };
        if epoch != adaptation.last_epoch {
            adaptation.last_epoch = epoch;
            let own = adaptation.asked.take().is_some_and(|asked| asked.0 == epoch);
            adaptation.waits_for_outcome = own;
            adaptation.policy.on_exchanged(now, profile);
        } else if idle && adaptation.asked.take().is_some() {
            // It was not agreed in time, or the peer's own request came first.
            adaptation.policy.on_refused(now, None);
        }
    }

    /// The peer refused.
    pub(in crate::connection) fn on_refused(&mut self, direction: Direction, refusal: &Refusal) {
        use crate::connection::RefusalReason;
        let now = self.life.last_heard_at;
        let Some(adaptation) = self.agreement.adaptation.as_mut().filter(|_| direction == Direction::Out)
        else {
            return;
        };
        if let Some((_, profile)) = adaptation.asked.take().map(|asked| *asked) {
            let number = profile.get(refusal.function).number;
            let lacking = (refusal.reason == RefusalReason::Unknown).then_some((refusal.function, number));
            adaptation.policy.on_refused(now, lacking);
        }
    }

    fn report_outcome(&mut self, now: Time) {
        let Some(adaptation) = &mut self.agreement.adaptation else { return };
        if let Some(outcome) = adaptation.policy.outcome(now) {
            adaptation.waits_for_outcome = false;
            let event = ExchangeEvent::Brought { epoch: adaptation.last_epoch, line: outcome.to_string() };
            self.ways.events.push_back(Event::Exchange(event.into()));
        }
    }

    fn carry_out_decision(&mut self, now: Time, turns: &mut Turns) {
        if !self.parts.exchanges.is_idle(Direction::Out) {
            return;
        }
        let Some(adaptation) = &mut self.agreement.adaptation else { return };
        if adaptation.policy.will_compare(now) && !adaptation.to_compare.has_come(now, &mut turns.compare) {
            return;
        }
        let Some(decision) = adaptation.policy.decide(now) else { return };
        let (seen, path) = (decision.seen.clone(), decision.path.clone());
        let reasons = Reasons { seen, path, expects: decision.expects.to_string() };
        let asked = self.request_exchange(now, Direction::Out, 0, decision.to, reasons);
        let Some(adaptation) = &mut self.agreement.adaptation else { return };
        match asked {
            Ok(epoch) => adaptation.asked = Some(Box::new((epoch, decision.to))),
            Err(_) => adaptation.policy.on_refused(now, None),
        }
    }

    pub(in crate::connection) fn set_requirements(
        &mut self,
        now: Time,
        requirements: Requirements,
    ) -> Result<(), Contradiction> {
        let peer = Some(&self.agreement.peer_library);
        let selection = self.select_anew(&requirements, &self.facts(), peer)?;
        self.ways.outbound.set_rate_max(requirements.max_send_rate);
        self.ways.flows.scheduler = requirements.conn_scheduler;
        self.ways.set_receive_rate(now, requirements.max_recv_rate);
        self.wake(now);
        Arc::make_mut(&mut self.ways.config).requirements = requirements.clone();
        if let Some(adaptation) = &mut self.agreement.adaptation {
            adaptation.policy.set_requirements(requirements, selection.profile);
            adaptation.next_at = now;
        }
        Ok(())
    }
}

impl Fresh {
    pub(in crate::connection) fn set_requirements(
        &mut self,
        requirements: Requirements,
    ) -> Result<(), Contradiction> {
        self.select_anew(&requirements, &PathFacts::default(), None)?;
        Arc::make_mut(&mut self.ways.config).requirements = requirements;
        Ok(())
    }
}

impl<S: Stage> Core<S> {
    /// Selection for requirements that take the place of those before.
    fn select_anew(
        &self,
        requirements: &Requirements,
        facts: &PathFacts,
        peer: Option<&Library>,
    ) -> Result<Selection, Contradiction> {
        let before = &self.ways.config.requirements;
        if let Some(property) = before.differs_in_fixed(requirements) {
            return Err(Contradiction {
                rule: "S-43",
                first: quote(requirements, property.name),
                second: format!("{} of the established connection", quote(before, property.name)),
                why: "this cannot change any more".to_owned(),
            });
        }
        selector::select(requirements, facts, &self.ways.config.library_for(requirements), peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 30 frames in a second, each of 15 kB, but one in 60 of 90 kB.
    #[test]
    fn a_key_frame_counts_until_the_next_one() {
        let mut offer = Offer::new(Time::ZERO, Written::default());
        let mut written = Written::default();
        for frame in 0..300u64 {
            let packets = if frame % 60 == 20 { 60 } else { 10 };
            written.bytes += u64::from(packets) * 1_500;
            (written.packets, written.bursts) = (written.packets + packets, written.bursts + 1);
            let offered = offer.rate(Time::from_millis(frame * 1000 / 30), written);
            let mbit = offered.map_or(0.0, |offered| offered.rate.bits_per_sec() as f64 / 1e6);
            assert!(frame < 60 || (4.3..5.5).contains(&mbit), "{mbit} Mbit/s at frame {frame}");
            let at_once = offered.map_or(10.0, |offered| offered.packets_at_once);
            assert!((9.9..14.0).contains(&at_once), "{at_once} packets at once at frame {frame}");
        }
    }
}
