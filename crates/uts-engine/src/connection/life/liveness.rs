//! Liveness: whether the peer is still there, as long as something is expected of it (timing.md
//! An end that expects nothing asks nothing: then only the idle time-out ends a
//! connection.

use crate::connection::Side;
use crate::connection::life::Phase;
use crate::connection::stage::Open;
use crate::event::{CloseReason, Event};
use core::time::Duration;
use uts_functions::Time;

/// Time that an application waits for data of a silent peer before the peer is asked whether it is
/// there.
const ASK_AFTER: Duration = Duration::from_secs(1);

/// Round trips of that kind, in probe time-outs: an answer that is on its way is waited for.
const ASK_AFTER_TIMEOUTS: u32 = 2;

/// The wait doubles with each question that was answered while no data moved, so often at the most:
/// a quiet peer costs little.
const DOUBLINGS_MAX: u8 = 10;

/// Silence that is told to the application: longer than what a path does that only loses packets.
const SILENT_AFTER: Duration = Duration::from_secs(3);

/// The same in probe time-outs, for paths that take long.
const SILENT_AFTER_TIMEOUTS: u32 = 3;

/// The same once the network has said that nobody listens at the peer's port. That is not
/// authenticated: the peer is asked, and given the time to answer.
const SUSPECT_AFTER: Duration = Duration::from_millis(300);
const SUSPECT_AFTER_TIMEOUTS: u32 = 2;

/// A peer that was silent for so long was stopped perhaps, and had packets wait for it meanwhile:
/// the time until it answers is no round trip.
const SLEPT_AFTER: Duration = Duration::from_secs(60);
const SLEPT_AFTER_TIMEOUTS: u32 = 10;

/// Within this a peer answers whose connection is in the way of others, and in so many probe
/// time-outs: two of its packets may be lost.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
const ANSWER_WITHIN_TIMEOUTS: u32 = 4;

/// State of the peer's presence, beside the time when it was last heard.
#[derive(Clone, Debug)]
pub(in crate::connection) struct Liveness {
    /// When the first packet left that was to be answered, since the peer was last heard.
    asked_at: Time,
    /// Since when the application was told of silence; `NEVER` = it was not.
    told_since: Time,
    /// When the network said that nobody listens there, since the peer was last heard; `NEVER` = it
    /// did not.
    suspected_at: Time,
    /// By when the peer has to be heard, or is given up; `NEVER` = it need not.
    answer_by: Time,
    /// Some application perhaps waits for data.
    is_awaited: bool,
    /// Questions that were asked since data moved.
    asked: u8,
}

impl Liveness {
    pub fn new(now: Time) -> Self {
        Liveness {
            asked_at: now,
            told_since: Time::NEVER,
            suspected_at: Time::NEVER,
            answer_by: Time::NEVER,
            is_awaited: false,
            asked: 0,
        }
    }

    /// True if there is anything to take back when the peer is heard.
    #[inline]
    pub fn is_doubted(&self) -> bool {
        self.suspected_at != Time::NEVER || self.answer_by != Time::NEVER || self.told_since != Time::NEVER
    }

    /// A packet leaves that is to be answered.
    #[inline]
    pub fn on_asked(&mut self, now: Time, last_heard_at: Time) {
        if self.asked_at <= last_heard_at {
            self.asked_at = now;
        }
    }

    /// An application has found nothing to read; `is_news` = it had been told of something before.
    #[inline]
    pub fn on_awaited(&mut self, is_news: bool) {
        self.is_awaited = true;
        if is_news {
            self.asked = 0;
        }
    }

    /// The application hands over data.
    #[inline]
    pub fn on_data(&mut self) {
        self.asked = 0;
    }
}

impl Open {
    pub(in crate::connection) fn silence(&self, now: Time) -> Option<Duration> {
        self.silent_since().map(|since| now.since(since))
    }

    fn silent_since(&self) -> Option<Time> {
        let is_asking = self.life.is_live() && self.ways.outbound.ledger.eliciting() > 0;
        is_asking.then(|| self.life.last_heard_at.max(self.life.liveness.asked_at))
    }

    /// The longer of a time and of so many probe time-outs.
    fn at_least(&self, time: Duration, timeouts: u32) -> Duration {
        time.max(self.ways.outbound.probe_timeout().saturating_mul(timeouts))
    }

    /// When the application is to be told of silence. (timing.md)
    fn silent_at(&self) -> Option<Time> {
        if self.life.liveness.told_since != Time::NEVER {
            return None;
        }
        let by_time = self.silent_since()? + self.at_least(SILENT_AFTER, SILENT_AFTER_TIMEOUTS);
        if self.life.liveness.suspected_at == Time::NEVER {
            return Some(by_time);
        }
        let by_hint = self.life.liveness.suspected_at + self.at_least(SUSPECT_AFTER, SUSPECT_AFTER_TIMEOUTS);
        Some(by_time.min(by_hint))
    }

    /// When to ask whether the peer is there. What is under way asks, too. (timing.md)
    fn ask_at(&self) -> Option<Time> {
        let is_to_ask = self.life.liveness.is_awaited
            && !self.parts.ping.is_wanted
            && self.ways.outbound.ledger.eliciting() == 0;
        is_to_ask.then(|| {
            let wait =
                self.at_least(ASK_AFTER, ASK_AFTER_TIMEOUTS).saturating_mul(1 << self.life.liveness.asked);
            self.life.last_heard_at.max(self.ways.last_eliciting_at()).max(self.life.last_write_at) + wait
        })
    }

    /// When the connection has failed, by what the application says (`connTimeout`).
    /// (timing.md R-16)
    fn fails_at(&self) -> Option<(Time, Duration)> {
        let most = self.ways.config.requirements.conn_timeout?;
        Some((self.silent_since()? + most, most))
    }

    pub(in crate::connection) fn liveness_timeout(&self) -> Option<Time> {
        let told = self.silent_at().or_else(|| self.ask_at());
        let fails = self.fails_at().map(|(at, _)| at);
        let answer = Some(self.life.liveness.answer_by).filter(|at| *at != Time::NEVER);
        told.into_iter().chain(fails).chain(answer).min()
    }

    pub(in crate::connection) fn on_liveness_timeout(&mut self, now: Time) {
        if self.life.liveness.answer_by <= now {
            // Nobody is there to be told anything.
            self.life.phase = Phase::Draining { until: now };
            return self.end(CloseReason::IdleTimeout(now.since(self.life.last_heard_at)));
        }
        if self.ask_at().is_some_and(|at| at <= now) {
            if self.ways.flows.iter().any(|(_, flow)| flow.receive.is_awaited()) {
                self.life.liveness.asked = (self.life.liveness.asked + 1).min(DOUBLINGS_MAX);
                self.parts.ping.is_wanted = true;
            } else {
                self.life.liveness.is_awaited = false;
            }
        }
        if self.silent_at().is_some_and(|at| at <= now)
            && let Some(since) = self.silent_since()
        {
            self.life.liveness.told_since = since;
            self.ways.events.push_back(Event::Silent(now.since(since)));
        }
        if let Some((_, most)) = self.fails_at().filter(|(at, _)| *at <= now) {
            self.drain(now, CloseReason::IdleTimeout(most));
        }
    }

    pub(in crate::connection) fn ask(&mut self, now: Time) {
        if !self.life.is_live() {
            return;
        }
        self.wake(now);
        self.ways.forget_questions();
        self.parts.ping.is_wanted = true;
        self.ways.outbound.ask_for_packet();
    }

    pub(in crate::connection) fn on_stopped(&mut self, now: Time, long: Duration) {
        if !self.life.is_live() {
            return;
        }
        let later = |at: Time| if at < now { (at + long).min(now) } else { at };
        self.life.last_heard_at = later(self.life.last_heard_at);
        self.life.liveness.asked_at = later(self.life.liveness.asked_at);
        if self.life.liveness.answer_by != Time::NEVER {
            self.life.liveness.answer_by += long;
        }
        for (_, flow) in self.ways.flows.iter_mut() {
            if let Some(rest) = flow.send.reset.as_mut().and_then(|reset| reset.rest.as_mut()) {
                rest.look_at += long;
            }
        }
        self.ways.outbound.leave_behind();
        if self.identity.side == Side::Client {
            self.ask(now);
        }
    }

    pub(in crate::connection) fn on_unreachable(&mut self, now: Time) {
        if !self.life.is_live() || self.life.liveness.suspected_at != Time::NEVER {
            return;
        }
        self.life.liveness.suspected_at = now;
        self.ask(now);
    }

    pub(in crate::connection) fn ask_for_answer(&mut self, now: Time) {
        if !self.life.is_live() || self.life.liveness.answer_by != Time::NEVER {
            return;
        }
        self.life.liveness.answer_by = now + self.at_least(ANSWER_WITHIN, ANSWER_WITHIN_TIMEOUTS);
        self.ask(now);
    }

    pub(in crate::connection) fn is_asked_for_answer(&self) -> bool {
        self.life.is_live() && self.life.liveness.answer_by != Time::NEVER
    }

    /// The peer is heard, of which there was doubt.
    #[cold]
    pub(in crate::connection) fn on_heard_again(&mut self, now: Time) {
        self.life.liveness.suspected_at = Time::NEVER;
        self.life.liveness.answer_by = Time::NEVER;
        let since = core::mem::replace(&mut self.life.liveness.told_since, Time::NEVER);
        if since != Time::NEVER {
            if now.since(since) >= self.at_least(SLEPT_AFTER, SLEPT_AFTER_TIMEOUTS) {
                // What it has missed it learns now, and not by the next probe, which may be a
                // minute away. (timing.md R-23)
                self.ways.outbound.leave_behind();
                self.ask(now);
            }
            self.ways.events.push_back(Event::Heard(now.since(since)));
        }
    }
}
