//! What each function should be performed by, best first, before the libraries and the path have been asked. Numbers are
//! those of `spec/selection.md`.

use super::Source;
use super::rules::repeats_come_late;
use crate::requirements::{CapacityProfile, Preference, Quality, Requirements, Security};
use uts_functions::{Function, PathFacts, Profile};

/// Mechanisms by name, best first, and why.
pub(super) struct Wish {
    pub names: &'static [&'static str],
    pub source: Source,
    pub why: &'static str,
}

fn wish(names: &'static [&'static str], source: Source, why: &'static str) -> Wish {
    Wish { names, source, why }
}

/// The wish for a function. `profile` holds what was chosen so far; protection is chosen before detection.
pub(super) fn of(function: Function, r: &Requirements, facts: &PathFacts, profile: &Profile) -> Wish {
    match function {
        Function::Establishment => wish(&["three-way"], Source::Default, "authenticates both ends"),
        Function::Presentation => wish(&["none"], Source::Default, "data goes as it is"),
        Function::Segmentation => segmentation(r),
        Function::Sequencing => sequencing(r, facts, profile),
        Function::Fec => wish(&["none"], Source::Default, "no loss that would pay for redundancy is known"),
        Function::Retransmission => retransmission(r, facts),
        Function::Acknowledgement => acknowledgement(r),
        Function::Timing => wish(&["jacobson", "fixed"], Source::Default, "time-outs follow the round trip"),
        Function::Flow => wish(&["credit", "none"], Source::Default, "bounds the receiver's memory"),
        Function::Rate => rate(r),
        Function::Congestion => congestion(r),
        Function::Detection => detection(r, profile),
        Function::Protection => protection(r),
    }
}

fn segmentation(r: &Requirements) -> Wish {
    let boundaries = r.preserve_msg_boundaries;
    if boundaries == Preference::Require {
        return wish(
            &["messages"],
            Source::Requirement("preserveMsgBoundaries"),
            "messages arrive as they were sent",
        );
    }
    if r.msg_lifetime.is_some() {
        return wish(&["messages"], Source::Requirement("msgLifetime"), "only messages can have a lifetime");
    }
    if boundaries == Preference::Prefer {
        return wish(
            &["messages", "bytes"],
            Source::Requirement("preserveMsgBoundaries"),
            "messages arrive as they were sent",
        );
    }
    if r.per_msg_reliability.is_wanted() && !boundaries.is_unwanted() {
        let why = "only messages can differ in reliability";
        return wish(&["messages", "bytes"], Source::Requirement("perMsgReliability"), why);
    }
    if r.preserve_order.is_unwanted() && boundaries != Preference::Prohibit {
        let why = "bytes without their order mean nothing";
        return wish(&["messages", "bytes"], Source::Requirement("preserveOrder"), why);
    }
    if boundaries.is_unwanted() {
        return wish(&["bytes"], Source::Requirement("preserveMsgBoundaries"), "a stream of bytes");
    }
    wish(&["bytes", "messages"], Source::Default, "a stream of bytes has the least overhead")
}

fn sequencing(r: &Requirements, facts: &PathFacts, profile: &Profile) -> Wish {
    if profile.name(Function::Segmentation) == "bytes" {
        return wish(
            &["ordered"],
            Source::Need(Function::Segmentation),
            "bytes without their order mean nothing",
        );
    }
    let order = Source::Requirement("preserveOrder");
    match r.preserve_order {
        Preference::Require | Preference::Prefer
            if r.yields_before(Quality::Order, Quality::Delay) && repeats_come_late(r, facts) =>
        {
            let why = "order yields to delay, and on this path waiting for repeats would break it";
            wish(&["unordered"], Source::Requirement("uts.degradation"), why)
        }
        Preference::Prefer if repeats_come_late(r, facts) => wish(
            &["unordered", "ordered"],
            Source::Path,
            "waiting for repeats would take longer than allowed",
        ),
        Preference::Require | Preference::Prefer => wish(&["ordered"], order, "data arrives as it was sent"),
        Preference::NoPreference => {
            wish(&["unordered", "ordered"], order, "nothing waits for what was lost before it")
        }
        Preference::Avoid | Preference::Prohibit => {
            wish(&["unordered"], order, "data is handed over at once")
        }
    }
}

fn retransmission(r: &Requirements, facts: &PathFacts) -> Wish {
    const REPEAT: &[&str] = &["selective", "go-back-n"];
    if r.per_msg_reliability.is_wanted() {
        return wish(REPEAT, Source::Requirement("perMsgReliability"), "messages may ask to be repeated");
    }
    let reliability = Source::Requirement("reliability");
    match r.reliability {
        Preference::Require | Preference::Prefer
            if r.yields_before(Quality::Reliability, Quality::Delay) && repeats_come_late(r, facts) =>
        {
            let why = "reliability yields to delay, and on this path repeats come too late";
            wish(&["none"], Source::Requirement("uts.degradation"), why)
        }
        Preference::Require | Preference::Prefer => {
            wish(REPEAT, reliability, "repeats what was lost, nothing else")
        }
        Preference::NoPreference if repeats_come_late(r, facts) => {
            wish(&["none"], Source::Path, "on this path repeats come too late")
        }
        Preference::NoPreference => wish(REPEAT, Source::Default, "costs nothing where nothing is lost"),
        Preference::Avoid | Preference::Prohibit => wish(&["none"], reliability, "nothing is repeated"),
    }
}

fn acknowledgement(r: &Requirements) -> Wish {
    if r.conn_capacity_profile == CapacityProfile::LowLatencyInteractive {
        let why = "losses are noticed without delay";
        return wish(&["per-packet", "delayed"], Source::Requirement("connCapacityProfile"), why);
    }
    wish(&["delayed", "per-packet", "poll-status"], Source::Default, "half the packets on the way back")
}

fn rate(r: &Requirements) -> Wish {
    if r.max_send_rate.is_some() {
        return wish(
            &["pacing-bucket"],
            Source::Requirement("maxSendRate"),
            "keeps the rate under its bound",
        );
    }
    if r.congestion_control.is_unwanted() {
        return wish(
            &["none", "pacing-bucket"],
            Source::Requirement("congestionControl"),
            "there is no rate to keep",
        );
    }
    wish(&["pacing-bucket", "none"], Source::Default, "spaced packets leave shorter queues")
}

fn congestion(r: &Requirements) -> Wish {
    match r.congestion_control {
        Preference::Prohibit => {
            return wish(
                &["none"],
                Source::Requirement("congestionControl"),
                "the path belongs to this sender",
            );
        }
        Preference::Avoid => {
            let why = "the path belongs to this sender";
            return wish(&["none", "cubic", "new-reno"], Source::Requirement("congestionControl"), why);
        }
        _ => {}
    }
    const SHORT_QUEUE: &[&str] = &["bbr", "cubic", "new-reno"];
    if r.conn_capacity_profile == CapacityProfile::Scavenger {
        let why = "takes least beside others";
        return wish(&["new-reno", "cubic"], Source::Requirement("connCapacityProfile"), why);
    }
    if r.max_delay.is_some() {
        return wish(SHORT_QUEUE, Source::Requirement("uts.maxDelay"), "keeps the queue short");
    }
    if r.conn_capacity_profile.is_latency_bound() {
        return wish(SHORT_QUEUE, Source::Requirement("connCapacityProfile"), "keeps the queue short");
    }
    if r.msg_lifetime.is_some() {
        return wish(SHORT_QUEUE, Source::Requirement("msgLifetime"), "keeps the queue short");
    }
    wish(&["cubic", "new-reno", "bbr"], Source::Default, "fair beside what most of the Internet uses")
}

fn detection(r: &Requirements, profile: &Profile) -> Wish {
    if profile.get(Function::Protection).number != 0 {
        return wish(&["none"], Source::Need(Function::Protection), "authentication finds damage already");
    }
    if r.full_checksum_send.is_unwanted() && r.full_checksum_recv.is_unwanted() {
        let why = "damaged data is better than none";
        return wish(&["none", "internet-16", "crc-32c"], Source::Requirement("fullChecksumSend"), why);
    }
    wish(
        &["crc-32c", "internet-16"],
        Source::Requirement("fullChecksumSend"),
        "nothing else would find damage",
    )
}

fn protection(r: &Requirements) -> Wish {
    const SEALED: &[&str] = &["aes-128-gcm", "chacha20-poly1305"];
    match r.security {
        Security::Required => wish(SEALED, Source::Requirement("uts.security"), "encrypts and authenticates"),
        Security::Unprotected => wish(
            &["none", "aes-128-gcm", "chacha20-poly1305"],
            Source::Requirement("uts.security"),
            "asked for by name",
        ),
    }
}
