//! Wishes for the mechanism of each function: which mechanisms come into question, and which of
//! them go before others. Mechanisms are told apart by their facts, never by names. Numbers are
//! those of `spec/selection.md`.

use super::Source;
use crate::appraisal::forecast;
use crate::appraisal::rules::{self, repeats_come_late};
use crate::requirements::{CapacityProfile, Preference, Quality, Requirements, Security};
use core::time::Duration;
use uts_functions::mechanism::Promise;
use uts_functions::{Choice, Function, Mechanism, PathFacts, Profile, Rate, library};

/// Wish for the mechanism of a function, and the reason.
pub(super) struct Wish {
    /// Others do not come into question.
    only: fn(&Mechanism) -> bool,
    /// These go before others.
    first: fn(&Mechanism) -> bool,
    /// Of mechanisms that are alike so far, the mechanism that takes least of a path that loses
    /// packets goes first. Otherwise the mechanism goes first that is predicted to carry most.
    is_modest: bool,
    pub source: Source,
    pub why: &'static str,
}

/// Every mechanism comes into question.
const ANY: fn(&Mechanism) -> bool = |_| true;

/// Only mechanisms that do not perform their function come into question.
const INERT: fn(&Mechanism) -> bool = |m| m.facts.inert;

fn wish(
    only: fn(&Mechanism) -> bool,
    first: fn(&Mechanism) -> bool,
    source: Source,
    why: &'static str,
) -> Wish {
    Wish { only, first, is_modest: false, source, why }
}

impl Wish {
    /// Mechanisms that come into question and that the requirements allow, best first (S-4): wished
    /// mechanisms first; then by what they are predicted to carry under the profile so far, on a
    /// path of which nothing is known; then by their ranks.
    pub fn mechanisms(
        &self,
        function: Function,
        r: &Requirements,
        profile: &Profile,
    ) -> Vec<&'static Mechanism> {
        let on = if self.is_modest { lossy_path() } else { some_path() };
        let mut ranked: Vec<(bool, f64, u8, &'static Mechanism)> = library::of(function)
            .iter()
            .filter(|m| (self.only)(m) && rules::allows(r, function, m.number))
            .filter_map(|m| {
                let figure = forecast(&profile.with(function, m.choice()), &on).goodput(&on);
                let figure = if self.is_modest { -figure } else { figure };
                Some(((self.first)(m), figure, m.facts.unasked.rank()?, *m))
            })
            .collect();
        // What is within a hundredth of the best counts as equal, so that ranks decide.
        let best = ranked.iter().map(|(_, figure, ..)| *figure).fold(f64::NEG_INFINITY, f64::max);
        let tie = best.abs() * TIE_SHARE;
        ranked.sort_by(|(a_first, a, a_rank, _), (b_first, b, b_rank, _)| {
            let steps = |figure: &f64| ((best - figure) / tie.max(f64::MIN_POSITIVE)).min(1e9).floor() as u64;
            b_first.cmp(a_first).then(steps(a).cmp(&steps(b))).then(a_rank.cmp(b_rank))
        });
        ranked.into_iter().map(|(.., m)| m).collect()
    }
}

/// The path that is reckoned with where nothing is known. The figures only order mechanisms.
fn some_path() -> PathFacts {
    let rtt = Duration::from_millis(40);
    PathFacts {
        rtt_min: rtt,
        rtt_smoothed: rtt,
        capacity: Rate::from_bits_per_sec(50_000_000),
        ..PathFacts::default()
    }
}

/// A longer path whose random losses tell apart how much senders take: Reno's window is a quarter
/// of it.
fn lossy_path() -> PathFacts {
    let rtt = Duration::from_millis(100);
    PathFacts { rtt_min: rtt, rtt_smoothed: rtt, loss: 1e-4, ..some_path() }
}

/// Mechanisms whose predictions differ by less do equally well.
const TIE_SHARE: f64 = 0.01;

/// The wish for a function. `profile` holds what was chosen so far; protection is chosen before
/// detection.
pub(super) fn of(function: Function, r: &Requirements, facts: &PathFacts, profile: &Profile) -> Wish {
    match function {
        // S-15, S-16, S-19.
        Function::Establishment => wish(ANY, ANY, Source::Default, "authenticates both ends"),
        Function::Presentation => wish(INERT, ANY, Source::Default, "data goes as it is"),
        Function::Segmentation => segmentation(r),
        Function::Sequencing => sequencing(r, facts, profile),
        Function::Fec => wish(INERT, ANY, Source::Default, "no loss that would pay for redundancy is known"),
        Function::Retransmission => retransmission(r, facts),
        Function::Acknowledgement => acknowledgement(r),
        Function::Timing => wish(ANY, ANY, Source::Default, "time-outs follow the round trip"),
        Function::Flow => wish(ANY, |m| m.facts.grants, Source::Default, "bounds the receiver's memory"),
        Function::Rate => rate(r),
        Function::Congestion => congestion(r),
        Function::Detection => detection(r, profile),
        Function::Protection => protection(r),
        Function::Finding => wish(ANY, ANY, Source::Default, "losses show within a round trip"),
        Function::Playout => playout(r),
    }
}

/// S-11.
fn segmentation(r: &Requirements) -> Wish {
    const MESSAGES: fn(&Mechanism) -> bool = |m| m.promises(Promise::Boundaries);
    const BYTES: fn(&Mechanism) -> bool = |m| !m.promises(Promise::Boundaries);
    let boundaries = Source::Requirement("preserveMsgBoundaries");
    if r.preserve_msg_boundaries == Preference::Require {
        return wish(MESSAGES, ANY, boundaries, "messages arrive as they were sent");
    }
    if r.msg_lifetime.is_some() {
        let why = "only messages can have a lifetime";
        return wish(MESSAGES, ANY, Source::Requirement("msgLifetime"), why);
    }
    if r.playout_delay.is_some() {
        let why = "only messages are made at some time";
        return wish(MESSAGES, ANY, Source::Requirement("uts.playoutDelay"), why);
    }
    if r.msg_checksum_len.is_some() {
        let why = "only messages can be covered in part";
        return wish(MESSAGES, ANY, Source::Requirement("msgChecksumLen"), why);
    }
    if r.per_msg_reliability == Preference::Require {
        let why = "only messages can differ in reliability";
        return wish(MESSAGES, ANY, Source::Requirement("perMsgReliability"), why);
    }
    if r.preserve_msg_boundaries == Preference::Prefer {
        return wish(ANY, MESSAGES, boundaries, "messages arrive as they were sent");
    }
    if r.per_msg_reliability.is_wanted() && !r.preserve_msg_boundaries.is_unwanted() {
        let why = "only messages can differ in reliability";
        return wish(ANY, MESSAGES, Source::Requirement("perMsgReliability"), why);
    }
    if r.preserve_order.is_unwanted() && r.preserve_msg_boundaries != Preference::Prohibit {
        let why = "bytes without their order mean nothing";
        return wish(ANY, MESSAGES, Source::Requirement("preserveOrder"), why);
    }
    if r.preserve_msg_boundaries.is_unwanted() {
        return wish(BYTES, ANY, boundaries, "a stream of bytes");
    }
    wish(ANY, BYTES, Source::Default, "a stream of bytes has the least overhead")
}

/// S-12.
fn sequencing(r: &Requirements, facts: &PathFacts, profile: &Profile) -> Wish {
    const ORDERED: fn(&Mechanism) -> bool = |m| m.promises(Promise::Order);
    const UNORDERED: fn(&Mechanism) -> bool = |m| !m.promises(Promise::Order);
    if !profile.promises(Function::Segmentation, Promise::Boundaries) {
        let why = "bytes without their order mean nothing";
        return wish(ORDERED, ANY, Source::Need(Function::Segmentation), why);
    }
    let order = Source::Requirement("preserveOrder");
    match r.preserve_order {
        Preference::Require | Preference::Prefer
            if r.yields_before(Quality::Order, Quality::Delay) && repeats_come_late(r, facts) =>
        {
            let why = "order yields to delay, and on this path waiting for repeats would break it";
            wish(UNORDERED, ANY, Source::Requirement("uts.degradation"), why)
        }
        Preference::Prefer if repeats_come_late(r, facts) => {
            wish(ANY, UNORDERED, Source::Path, "waiting for repeats would take longer than allowed")
        }
        Preference::Require | Preference::Prefer => wish(ORDERED, ANY, order, "data arrives as it was sent"),
        Preference::NoPreference => wish(ANY, UNORDERED, order, "nothing waits for what was lost before it"),
        Preference::Avoid | Preference::Prohibit => {
            wish(UNORDERED, ANY, order, "data is handed over at once")
        }
    }
}

/// S-13.
fn retransmission(r: &Requirements, facts: &PathFacts) -> Wish {
    const REPEAT: fn(&Mechanism) -> bool = |m| m.promises(Promise::Reliability);
    if r.per_msg_reliability.is_wanted() {
        let why = "messages may ask to be repeated";
        return wish(REPEAT, ANY, Source::Requirement("perMsgReliability"), why);
    }
    let reliability = Source::Requirement("reliability");
    match r.reliability {
        Preference::Require | Preference::Prefer
            if r.yields_before(Quality::Reliability, Quality::Delay) && repeats_come_late(r, facts) =>
        {
            let why = "reliability yields to delay, and on this path repeats come too late";
            wish(INERT, ANY, Source::Requirement("uts.degradation"), why)
        }
        Preference::Require | Preference::Prefer => {
            wish(REPEAT, ANY, reliability, "repeats what was lost, nothing else")
        }
        Preference::NoPreference if repeats_come_late(r, facts) => {
            wish(INERT, ANY, Source::Path, "on this path repeats come too late")
        }
        Preference::NoPreference => wish(REPEAT, ANY, Source::Default, "costs nothing where nothing is lost"),
        Preference::Avoid | Preference::Prohibit => wish(INERT, ANY, reliability, "nothing is repeated"),
    }
}

/// S-14.
fn acknowledgement(r: &Requirements) -> Wish {
    const REPORTS: fn(&Mechanism) -> bool = |m| m.promises(Promise::Reports);
    const SOON: fn(&Mechanism) -> bool = |m| m.promises(Promise::ReportsSoon);
    if r.conn_capacity_profile == CapacityProfile::LowLatencyInteractive {
        let why = "losses are noticed soon, and reports go with answers";
        return wish(REPORTS, SOON, Source::Requirement("connCapacityProfile"), why);
    }
    wish(ANY, ANY, Source::Default, "half the packets on the way back")
}

/// S-44.
fn playout(r: &Requirements) -> Wish {
    const KEEPS: fn(&Mechanism) -> bool = |m| m.facts.within.is_some();
    const FOLLOWS: fn(&Mechanism) -> bool = |m| m.facts.follows_jitter;
    const STAYS: fn(&Mechanism) -> bool = |m| !m.facts.follows_jitter;
    let delay = Source::Requirement("uts.playoutDelay");
    match r.playout_delay {
        None => wish(INERT, ANY, Source::Default, "messages are handed over as they come"),
        Some(_) if r.conn_capacity_profile == CapacityProfile::LowLatencyInteractive => {
            wish(KEEPS, FOLLOWS, delay, "hands over as soon as the jitter allows")
        }
        Some(_) => wish(KEEPS, STAYS, delay, "hands over in the pace of the making"),
    }
}

/// A mechanism with the parameters that requirements give it.
pub(super) fn choice(mechanism: &'static Mechanism, r: &Requirements) -> Choice {
    let keeps_late = r.reliability == Preference::Require && !r.may_give_up(Quality::Reliability);
    match (mechanism.facts.within, r.playout_delay) {
        (Some(within), Some(delay)) => Choice { number: mechanism.number, params: within(delay, keeps_late) },
        _ => mechanism.choice(),
    }
}

/// S-17.
fn rate(r: &Requirements) -> Wish {
    const KEEPS: fn(&Mechanism) -> bool = |m| m.promises(Promise::Rate);
    if r.max_send_rate.is_some() {
        return wish(KEEPS, ANY, Source::Requirement("maxSendRate"), "keeps the rate under its bound");
    }
    if r.congestion_control.is_unwanted() {
        return wish(ANY, INERT, Source::Requirement("congestionControl"), "there is no rate to keep");
    }
    wish(ANY, KEEPS, Source::Default, "spaced packets leave shorter queues")
}

/// S-18.
fn congestion(r: &Requirements) -> Wish {
    const YIELDS: fn(&Mechanism) -> bool =
        |m| m.promises(Promise::Restraint) && !m.promises(Promise::LowerThanBestEffort);
    const SCAVENGES: fn(&Mechanism) -> bool = |m| m.promises(Promise::LowerThanBestEffort);
    const RESTRAINED: fn(&Mechanism) -> bool = |m| m.promises(Promise::Restraint);
    const SHORT_QUEUE: fn(&Mechanism) -> bool = |m| m.promises(Promise::ShortQueue);
    let capacity_profile = Source::Requirement("connCapacityProfile");
    match r.congestion_control {
        Preference::Prohibit => {
            let why = "the path belongs to this sender";
            return wish(INERT, ANY, Source::Requirement("congestionControl"), why);
        }
        Preference::Avoid => {
            let why = "the path belongs to this sender";
            return wish(ANY, INERT, Source::Requirement("congestionControl"), why);
        }
        _ => {}
    }
    if r.conn_capacity_profile == CapacityProfile::Scavenger {
        let modest = wish(RESTRAINED, SCAVENGES, capacity_profile, "takes what others leave");
        return Wish { is_modest: true, ..modest };
    }
    if r.max_delay.is_some() {
        return wish(YIELDS, SHORT_QUEUE, Source::Requirement("uts.maxDelay"), "keeps the queue short");
    }
    if r.conn_capacity_profile.is_latency_bound() {
        return wish(YIELDS, SHORT_QUEUE, capacity_profile, "keeps the queue short");
    }
    if r.msg_lifetime.is_some() {
        return wish(YIELDS, SHORT_QUEUE, Source::Requirement("msgLifetime"), "keeps the queue short");
    }
    wish(YIELDS, ANY, Source::Default, "fair beside what most of the Internet uses")
}

/// S-10.
fn detection(r: &Requirements, profile: &Profile) -> Wish {
    const CHECKS: fn(&Mechanism) -> bool = |m| m.promises(Promise::Integrity) && !m.facts.tolerates;
    if profile.promises(Function::Protection, Promise::Integrity) {
        let why = match r.msg_checksum_len {
            None => "authentication finds damage already",
            // More is kept than was asked.
            Some(_) => "authentication covers messages whole: msgChecksumLen has no effect",
        };
        return wish(INERT, ANY, Source::Need(Function::Protection), why);
    }
    if r.msg_checksum_len.is_some() {
        let why = "lets damage through behind the bytes that have to be right";
        return wish(|m| m.facts.tolerates, ANY, Source::Requirement("msgChecksumLen"), why);
    }
    let checksum = Source::Requirement("fullChecksumSend");
    if r.full_checksum_send.is_unwanted() && r.full_checksum_recv.is_unwanted() {
        return wish(|m| !m.facts.tolerates, INERT, checksum, "damaged data is better than none");
    }
    wish(CHECKS, ANY, checksum, "nothing else would find damage")
}

/// S-10.
fn protection(r: &Requirements) -> Wish {
    let security = Source::Requirement("uts.security");
    match r.security {
        Security::Required => {
            wish(|m| m.promises(Promise::Secrecy), ANY, security, "encrypts and authenticates")
        }
        Security::Unprotected => wish(ANY, INERT, security, "asked for by name"),
    }
}
