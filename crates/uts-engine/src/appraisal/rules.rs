//! Requirements that cannot be met together, or not on this path. Numbers are those of
//! `spec/selection.md`.

use crate::requirements::{Preference, Quality, Requirements, Security};
use core::fmt;
use core::time::Duration;
use uts_functions::mechanism::Promise;
use uts_functions::{Function, Mechanism, PathFacts, library};

/// Two requirements that cannot both be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The rule of `spec/selection.md`.
    pub rule: &'static str,
    /// The one, as it would be written.
    pub first: String,
    /// The other, or what stands for it (the path, the peer's library).
    pub second: String,
    /// Why not both, in one sentence.
    pub why: String,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {} contradict: {}", self.first, self.second, self.why)
    }
}

impl std::error::Error for Contradiction {}

/// A property as it would be written, in quotes.
pub(crate) fn quote(requirements: &Requirements, name: &str) -> String {
    let property = crate::requirements::PROPERTIES.iter().find(|p| p.name == name);
    property.map_or_else(|| format!("`{name}`"), |p| format!("`{name}={}`", p.value(requirements)))
}

/// Mechanisms that a requirement rules out.
struct Exclusion {
    rule: &'static str,
    property: &'static str,
    holds: fn(&Requirements) -> bool,
    function: Function,
    excludes: fn(&Mechanism) -> bool,
    why: &'static str,
}

/// A pair of properties, or a property and the path, that exclude each other.
struct Clash {
    rule: &'static str,
    first: &'static str,
    second: Other,
    holds: fn(&Requirements, &PathFacts) -> bool,
    why: fn(&Requirements, &PathFacts) -> String,
}

enum Other {
    Property(&'static str),
    Words(&'static str),
}

/// Checks the requirements against each other and against the path.
///
/// # Errors
/// The first [`Contradiction`] in the order of the rules.
pub(crate) fn check(requirements: &Requirements, facts: &PathFacts) -> Result<(), Contradiction> {
    refused(requirements)?;
    if let Some(clash) = CLASHES.iter().find(|c| (c.holds)(requirements, facts)) {
        return Err(Contradiction {
            rule: clash.rule,
            first: quote(requirements, clash.first),
            second: match clash.second {
                Other::Property(name) => quote(requirements, name),
                Other::Words(words) => words.to_owned(),
            },
            why: (clash.why)(requirements, facts),
        });
    }
    for pin in &requirements.pins {
        if let Some(exclusion) = excluded(requirements, pin.function, pin.choice.number) {
            return Err(Contradiction {
                rule: exclusion.rule,
                first: quote(requirements, exclusion.property),
                second: format!("`{pin}`"),
                why: exclusion.why.to_owned(),
            });
        }
    }
    Ok(())
}

/// True if the requirements leave room for a mechanism.
pub(crate) fn allows(requirements: &Requirements, function: Function, number: u8) -> bool {
    excluded(requirements, function, number).is_none()
}

/// The requirement that rules a mechanism out, as it would be written.
pub(crate) fn excluded_by(requirements: &Requirements, function: Function, number: u8) -> Option<String> {
    excluded(requirements, function, number).map(|e| quote(requirements, e.property))
}

fn excluded(requirements: &Requirements, function: Function, number: u8) -> Option<&'static Exclusion> {
    let mechanism = library::find(function, number)?;
    EXCLUSIONS.iter().find(|e| e.function == function && (e.holds)(requirements) && (e.excludes)(mechanism))
}

/// Values that UTS does not offer, where they were not set through [`Requirements::set`], which
/// refuses them.
fn refused(requirements: &Requirements) -> Result<(), Contradiction> {
    for property in crate::requirements::PROPERTIES {
        if let Some(why) = property.refused(requirements) {
            return Err(Contradiction {
                rule: "S-20",
                first: quote(requirements, property.name),
                second: "what UTS offers".to_owned(),
                why: why.to_owned(),
            });
        }
    }
    Ok(())
}

/// True if the round trip is known.
pub(crate) fn is_known(facts: &PathFacts) -> bool {
    facts.samples > 0 && !facts.rtt_min.is_zero()
}

/// True if data that is lost once would, when repeated, come after the deadline on this path: the
/// loss is noticed after about a round trip, and the repeat takes half of one (S-29).
pub(crate) fn repeats_come_late(requirements: &Requirements, facts: &PathFacts) -> bool {
    let Some(deadline) = requirements.deadline_on(facts.rtt_min / 2) else { return false };
    is_known(facts) && deadline < facts.rtt_min + facts.rtt_min / 2
}

fn millis(d: Duration) -> String {
    format!("{:.1} ms", d.as_secs_f64() * 1e3)
}

fn lossy(facts: &PathFacts) -> bool {
    facts.samples >= 200 && facts.loss > 0.001
}

/// Data must arrive, must not be late, and the path makes repeats late.
fn late_and_lossy(r: &Requirements, f: &PathFacts) -> bool {
    r.reliability == Preference::Require
        && !r.may_give_up(Quality::Reliability)
        && !r.may_give_up(Quality::Delay)
        && r.max_delay.is_some()
        && lossy(f)
        && repeats_come_late(r, f)
}

fn why_late(_: &Requirements, f: &PathFacts) -> String {
    format!(
        "this path loses {:.1} % and its round trip is {}, so what is lost comes, repeated, {} after it was sent at the \
         earliest; name in `uts.degradation` what may yield",
        f.loss * 100.0,
        millis(f.rtt_min),
        millis(f.rtt_min + f.rtt_min / 2)
    )
}

const CLASHES: &[Clash] = &[
    Clash {
        rule: "S-21",
        first: "minSendRate",
        second: Other::Property("maxSendRate"),
        holds: |r, _| matches!((r.min_send_rate, r.max_send_rate), (Some(min), Some(max)) if min > max),
        why: |_, _| "the least is more than the most".to_owned(),
    },
    Clash {
        rule: "S-21",
        first: "minRecvRate",
        second: Other::Property("maxRecvRate"),
        holds: |r, _| matches!((r.min_recv_rate, r.max_recv_rate), (Some(min), Some(max)) if min > max),
        why: |_, _| "the least is more than the most".to_owned(),
    },
    Clash {
        rule: "S-22",
        first: "reliability",
        second: Other::Property("msgLifetime"),
        holds: |r, _| {
            r.reliability == Preference::Require
                && r.msg_lifetime.is_some()
                && !r.may_give_up(Quality::Reliability)
        },
        why: |_, _| {
            "a message whose lifetime has ended is given up, so not all data arrives; use reliability=prefer, or name \
             reliability in `uts.degradation`"
                .to_owned()
        },
    },
    Clash {
        rule: "S-23",
        first: "preserveMsgBoundaries",
        second: Other::Property("msgLifetime"),
        holds: |r, _| r.preserve_msg_boundaries == Preference::Prohibit && r.msg_lifetime.is_some(),
        why: |_, _| "a stream of bytes has no messages that could have a lifetime".to_owned(),
    },
    Clash {
        rule: "S-23",
        first: "preserveMsgBoundaries",
        second: Other::Property("uts.playoutDelay"),
        holds: |r, _| r.preserve_msg_boundaries == Preference::Prohibit && r.playout_delay.is_some(),
        why: |_, _| "a stream of bytes has no messages that were made at some time".to_owned(),
    },
    Clash {
        rule: "S-23",
        first: "preserveMsgBoundaries",
        second: Other::Property("perMsgReliability"),
        holds: |r, _| {
            r.preserve_msg_boundaries == Preference::Prohibit && r.per_msg_reliability == Preference::Require
        },
        why: |_, _| "a stream of bytes has no messages that could differ in reliability".to_owned(),
    },
    Clash {
        rule: "S-23",
        first: "preserveMsgBoundaries",
        second: Other::Property("preserveOrder"),
        holds: |r, _| {
            r.preserve_msg_boundaries == Preference::Prohibit && r.preserve_order == Preference::Prohibit
        },
        why: |_, _| "a stream of bytes is nothing but their order".to_owned(),
    },
    Clash {
        rule: "S-24",
        first: "fullChecksumSend",
        second: Other::Property("uts.security"),
        holds: |r, _| r.full_checksum_send == Preference::Prohibit && r.security == Security::Required,
        why: |_, _| "an authenticated packet arrives whole or not at all".to_owned(),
    },
    Clash {
        rule: "S-24",
        first: "fullChecksumRecv",
        second: Other::Property("uts.security"),
        holds: |r, _| r.full_checksum_recv == Preference::Prohibit && r.security == Security::Required,
        why: |_, _| "an authenticated packet arrives whole or not at all".to_owned(),
    },
    Clash {
        rule: "S-24",
        first: "msgChecksumLen",
        second: Other::Property("fullChecksumSend"),
        holds: |r, _| r.msg_checksum_len.is_some() && r.full_checksum_send == Preference::Require,
        why: |_, _| {
            "what is checked whole is not delivered damaged; use fullChecksumSend=no-preference".to_owned()
        },
    },
    Clash {
        rule: "S-24",
        first: "recvChecksumLen",
        second: Other::Property("fullChecksumRecv"),
        holds: |r, _| r.recv_checksum_len.is_some() && r.full_checksum_recv == Preference::Require,
        why: |_, _| {
            "what is checked whole is not delivered damaged; use fullChecksumRecv=no-preference".to_owned()
        },
    },
    Clash {
        rule: "S-23",
        first: "preserveMsgBoundaries",
        second: Other::Property("msgChecksumLen"),
        holds: |r, _| r.preserve_msg_boundaries == Preference::Prohibit && r.msg_checksum_len.is_some(),
        why: |_, _| "a stream of bytes has no messages that could be covered in part".to_owned(),
    },
    Clash {
        rule: "S-25",
        first: "keepAlive",
        second: Other::Property("keepAliveTimeout"),
        holds: |r, _| r.keep_alive == Preference::Prohibit && r.keep_alive_timeout.is_some(),
        why: |_, _| "a time for keep-alives is set where none may be sent".to_owned(),
    },
    Clash {
        rule: "S-26",
        first: "uts.maxDelay",
        second: Other::Words("this path"),
        holds: |r, f| {
            let too_far = r.max_delay.is_some_and(|d| d < f.rtt_min / 2);
            is_known(f) && too_far && !r.may_give_up(Quality::Delay)
        },
        why: |_, f| format!("propagation alone takes {} one way", millis(f.rtt_min / 2)),
    },
    Clash {
        rule: "S-27",
        first: "preserveOrder",
        second: Other::Property("uts.maxDelay"),
        holds: |r, f| late_and_lossy(r, f) && r.preserve_order == Preference::Require,
        why: |r, f| format!("in order, everything waits for what was lost: {}", why_late(r, f)),
    },
    Clash {
        rule: "S-27",
        first: "reliability",
        second: Other::Property("uts.maxDelay"),
        holds: late_and_lossy,
        why: why_late,
    },
    Clash {
        rule: "S-28",
        first: "minSendRate",
        second: Other::Words("this path"),
        holds: |r, f| {
            let enough_samples = f.samples >= 200 && f.capacity.bytes_per_sec() > 0;
            let too_slow = r.min_send_rate.is_some_and(|rate| rate > f.capacity.mul_f64(1.05));
            enough_samples && too_slow && !r.may_give_up(Quality::Rate)
        },
        why: |_, f| format!("it delivers {:.1} Mbit/s", f.capacity.bits_per_sec() as f64 / 1e6),
    },
];

const EXCLUSIONS: &[Exclusion] = &[
    Exclusion {
        rule: "S-30",
        property: "reliability",
        holds: |r| r.reliability == Preference::Require && !r.may_give_up(Quality::Reliability),
        function: Function::Retransmission,
        excludes: |m| !m.promises(Promise::Reliability),
        why: "without retransmission, what is lost stays lost",
    },
    Exclusion {
        rule: "S-30",
        property: "reliability",
        holds: |r| r.reliability == Preference::Require && !r.may_give_up(Quality::Reliability),
        function: Function::Sequencing,
        excludes: |m| m.facts.passes_over,
        why: "what newer messages pass over is not handed over",
    },
    Exclusion {
        rule: "S-30",
        property: "perMsgReliability",
        holds: |r| r.per_msg_reliability == Preference::Require,
        function: Function::Retransmission,
        excludes: |m| !m.promises(Promise::Reliability),
        why: "without retransmission, no message can be made reliable",
    },
    Exclusion {
        rule: "S-30",
        property: "reliability",
        holds: |r| r.reliability == Preference::Prohibit && !r.per_msg_reliability.is_wanted(),
        function: Function::Retransmission,
        excludes: |m| m.facts.repeats,
        why: "retransmission makes delivery reliable",
    },
    Exclusion {
        rule: "S-31",
        property: "preserveOrder",
        holds: |r| r.preserve_order == Preference::Require && !r.may_give_up(Quality::Order),
        function: Function::Sequencing,
        excludes: |m| !m.promises(Promise::Order),
        why: "unordered delivery hands data over as it comes",
    },
    Exclusion {
        rule: "S-31",
        property: "preserveOrder",
        holds: |r| r.preserve_order == Preference::Prohibit,
        function: Function::Sequencing,
        excludes: |m| m.promises(Promise::Order),
        why: "ordered delivery makes data wait for what was sent before it",
    },
    Exclusion {
        rule: "S-31",
        property: "preserveOrder",
        holds: |r| r.preserve_order == Preference::Prohibit,
        function: Function::Segmentation,
        excludes: |m| !m.promises(Promise::Boundaries),
        why: "a stream of bytes is nothing but their order",
    },
    Exclusion {
        rule: "S-32",
        property: "preserveMsgBoundaries",
        holds: |r| r.preserve_msg_boundaries == Preference::Require,
        function: Function::Segmentation,
        excludes: |m| !m.promises(Promise::Boundaries),
        why: "a stream of bytes has no boundaries",
    },
    Exclusion {
        rule: "S-32",
        property: "preserveMsgBoundaries",
        holds: |r| r.preserve_msg_boundaries == Preference::Prohibit,
        function: Function::Segmentation,
        excludes: |m| m.promises(Promise::Boundaries),
        why: "messages have boundaries",
    },
    Exclusion {
        rule: "S-32",
        property: "perMsgReliability",
        holds: |r| r.per_msg_reliability == Preference::Require,
        function: Function::Segmentation,
        excludes: |m| !m.promises(Promise::Boundaries),
        why: "a stream of bytes has no messages that could differ in reliability",
    },
    Exclusion {
        rule: "S-32",
        property: "msgLifetime",
        holds: |r| r.msg_lifetime.is_some(),
        function: Function::Segmentation,
        excludes: |m| !m.promises(Promise::Boundaries),
        why: "a stream of bytes has no messages that could have a lifetime",
    },
    Exclusion {
        rule: "S-32",
        property: "msgChecksumLen",
        holds: |r| r.msg_checksum_len.is_some(),
        function: Function::Segmentation,
        excludes: |m| !m.promises(Promise::Boundaries),
        why: "a stream of bytes has no messages that could be covered in part",
    },
    Exclusion {
        rule: "S-33",
        property: "congestionControl",
        holds: |r| r.congestion_control == Preference::Require,
        function: Function::Congestion,
        excludes: |m| !m.promises(Promise::Restraint),
        why: "without congestion control the sender yields to nobody",
    },
    Exclusion {
        rule: "S-33",
        property: "congestionControl",
        holds: |r| r.congestion_control == Preference::Prohibit,
        function: Function::Congestion,
        excludes: |m| !m.facts.inert,
        why: "it is congestion control",
    },
    Exclusion {
        rule: "S-34",
        property: "uts.security",
        holds: |r| r.security == Security::Required,
        function: Function::Protection,
        excludes: |m| !m.promises(Promise::Secrecy),
        why: "without protection anybody on the path can read and forge packets",
    },
    Exclusion {
        rule: "S-35",
        property: "maxSendRate",
        holds: |r| r.max_send_rate.is_some(),
        function: Function::Rate,
        excludes: |m| !m.promises(Promise::Rate),
        why: "without rate control nothing holds the rate down",
    },
];
