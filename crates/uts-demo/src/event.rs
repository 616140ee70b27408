//! Events of `uts --json`, a JSON object per line.
//!
//! Only the kind of an event is required. Fields that are missing or of another type are taken as
//! not said, and events of unknown kinds as of no interest, so that the program may grow.

use serde_json::{Map, Value};

/// An event of an end.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    /// The program's own time, in seconds.
    pub t_s: Option<f64>,
    pub kind: Kind,
}

/// Kind of an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Start {
        address: Option<String>,
        fingerprint: Option<String>,
    },
    Progress(Told),
    Exchange(ExchangeTold),
    /// A file has arrived.
    File(Counters),
    /// The program has done what it was asked for.
    Done(Counters),
    Error(String),
    Other,
}

/// Progress of an end.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Told {
    pub bytes: Option<u64>,
    pub rate_bps: Option<f64>,
    pub rtt_ms: Option<f64>,
    /// 0 to 1.
    pub loss: Option<f64>,
    pub profile: Option<String>,
    pub counters: Counters,
}

/// A step of an exchange.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ExchangeTold {
    pub step: String,
    pub direction: String,
    pub epoch: u64,
    pub seen: String,
    pub changes: String,
    pub expects: String,
    pub took_ms: Option<f64>,
    /// Words for other steps: what it brought, why it was refused.
    pub line: String,
    /// The whole profile that is in force now; empty for other steps.
    pub profile: String,
}

/// Packets so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counters {
    pub sent: Option<u64>,
    pub repeated: Option<u64>,
    pub repaired: Option<u64>,
}

impl Counters {
    /// Takes over what is said here.
    pub(super) fn update(&mut self, other: Counters) {
        self.sent = other.sent.or(self.sent);
        self.repeated = other.repeated.or(self.repeated);
        self.repaired = other.repaired.or(self.repaired);
    }
}

/// Reads a line.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) fn read(line: &str) -> Result<Event, String> {
    let value: Value = serde_json::from_str(line).map_err(|e| format!("not JSON ({e})"))?;
    let object = value.as_object().ok_or("not a JSON object")?;
    let name = text(object, "event").ok_or("no `event` field")?;
    let kind = match name.as_str() {
        "start" => Kind::Start { address: text(object, "address"), fingerprint: text(object, "fingerprint") },
        "progress" => Kind::Progress(told(object)),
        "exchange" => Kind::Exchange(exchange(object)),
        "file" => match text(object, "outcome") {
            Some(outcome) if outcome == "failed" => {
                Kind::Error(text(object, "error").unwrap_or_else(|| "the file failed".into()))
            }
            _ => Kind::File(counters(object)),
        },
        "done" => Kind::Done(counters(object)),
        "error" => Kind::Error(text(object, "message").unwrap_or_default()),
        _ => Kind::Other,
    };
    Ok(Event { t_s: number(object, "t"), kind })
}

fn told(object: &Map<String, Value>) -> Told {
    Told {
        bytes: count(object, "bytes"),
        rate_bps: number(object, "rate_bps"),
        // Nought stands for not measured yet.
        rtt_ms: number(object, "rtt_ms").filter(|rtt| *rtt > 0.0),
        loss: number(object, "loss"),
        profile: text(object, "profile").filter(|profile| !profile.is_empty()),
        counters: counters(object),
    }
}

fn exchange(object: &Map<String, Value>) -> ExchangeTold {
    let word = |name| text(object, name).unwrap_or_default();
    ExchangeTold {
        step: word("step"),
        direction: word("direction"),
        epoch: count(object, "epoch").unwrap_or_default(),
        seen: word("seen"),
        changes: word("changes"),
        expects: word("expects"),
        took_ms: number(object, "took_ms"),
        line: word("line"),
        profile: word("profile"),
    }
}

fn counters(object: &Map<String, Value>) -> Counters {
    Counters {
        sent: count(object, "packets_sent"),
        repeated: count(object, "packets_repeated"),
        repaired: count(object, "packets_repaired"),
    }
}

fn text(object: &Map<String, Value>, name: &str) -> Option<String> {
    Some(object.get(name)?.as_str()?.to_owned())
}

fn number(object: &Map<String, Value>, name: &str) -> Option<f64> {
    object.get(name)?.as_f64().filter(|n| n.is_finite())
}

fn count(object: &Map<String, Value>, name: &str) -> Option<u64> {
    object.get(name)?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_missing_or_strange_are_not_said() {
        let event =
            read(r#"{"event":"progress","t":1.5,"bytes":7,"rtt_ms":"slow","profile":"a=b"}"#).unwrap();
        let told = Told { bytes: Some(7), profile: Some("a=b".into()), ..Told::default() };
        assert_eq!(event, Event { t_s: Some(1.5), kind: Kind::Progress(told) });
        assert_eq!(read(r#"{"event":"weather"}"#).unwrap(), Event { t_s: None, kind: Kind::Other });
    }

    #[test]
    fn an_exchange_is_read() {
        let line = r#"{"event":"exchange","t":2,"step":"requested","direction":"out","epoch":3,"seen":"loss",
            "changes":"fec: none -> xor","expects":"more"}"#;
        let Kind::Exchange(told) = read(&line.replace('\n', "")).unwrap().kind else {
            panic!("not an exchange")
        };
        assert_eq!(
            (told.step.as_str(), told.epoch, told.changes.as_str()),
            ("requested", 3, "fec: none -> xor")
        );
    }

    #[test]
    fn a_file_that_failed_is_an_error() {
        let kind = |line: &str| read(line).unwrap().kind;
        let failed = r#"{"event":"file","outcome":"failed","error":"no space left"}"#;
        assert_eq!(kind(failed), Kind::Error("no space left".into()));
        let copied = r#"{"event":"file","outcome":"copied","packets_sent":4}"#;
        assert_eq!(kind(copied), Kind::File(Counters { sent: Some(4), ..Counters::default() }));
    }

    #[test]
    fn what_is_no_event_is_refused_with_the_reason() {
        assert!(read("hello").unwrap_err().starts_with("not JSON ("));
        assert_eq!(read("[1]").unwrap_err(), "not a JSON object");
        assert_eq!(read(r#"{"kind":"progress"}"#).unwrap_err(), "no `event` field");
    }
}
