//! A list of changes and when each is due.

use crate::change::Change;
use crate::error::SpecError;
use crate::parse::{format_duration, parse_duration_ns};
use crate::path::Direction;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// When a change is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// This many nanoseconds after the path's origin.
    Time(u64),
    /// When this many payload bytes have entered the forward link's queue.
    Bytes(u64),
}

impl At {
    /// True if it is known to come before another.
    fn is_before(self, other: At) -> bool {
        match (self, other) {
            (At::Time(this), At::Time(other)) | (At::Bytes(this), At::Bytes(other)) => this < other,
            (At::Time(_), At::Bytes(_)) | (At::Bytes(_), At::Time(_)) => false,
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Time(ns) => f.write_str(&format_duration(*ns)),
            At::Bytes(bytes) => f.write_str(&uts_units::show::size(*bytes)),
        }
    }
}

/// Which links a change is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// One link.
    One(Direction),
    /// Both links.
    Both,
}

impl Target {
    /// The links, forward first.
    pub fn directions(self) -> &'static [Direction] {
        match self {
            Target::One(Direction::Forward) => &[Direction::Forward],
            Target::One(Direction::Backward) => &[Direction::Backward],
            Target::Both => &[Direction::Forward, Direction::Backward],
        }
    }

    /// `fwd`, `bwd` or `both`.
    pub fn keyword(self) -> &'static str {
        match self {
            Target::One(Direction::Forward) => "fwd",
            Target::One(Direction::Backward) => "bwd",
            Target::Both => "both",
        }
    }
}

/// A change with its time and place: `at=10s fwd loss=ge:0.05,4`,
/// `at=21MB both loss=0 rate=20mbit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Scheduled {
    /// Time at which the change is due.
    pub at: At,
    /// Links to change.
    pub target: Target,
    /// Settings that change, with their new values.
    pub change: Change,
}

impl FromStr for Scheduled {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let text = text.trim();
        let form = || {
            SpecError::new(
                text,
                "must be `at=TIME|BYTES fwd|bwd|both SETTINGS`, as in `at=10s fwd loss=0.01`",
            )
        };
        let (at_word, rest) = text.split_once(char::is_whitespace).ok_or_else(form)?;
        let (target_word, change) = rest.trim_start().split_once(char::is_whitespace).ok_or_else(form)?;
        let at_text = at_word.strip_prefix("at=").ok_or_else(form)?;
        let at = parse_duration_ns(at_text)
            .map(At::Time)
            .or_else(|_| uts_units::size(at_text).map(At::Bytes))
            .map_err(|e| SpecError::new(at_word, e.or("must be a time as in 10s or a size as in 21MB")))?;
        let target = match target_word {
            "fwd" => Target::One(Direction::Forward),
            "bwd" => Target::One(Direction::Backward),
            "both" => Target::Both,
            _ => return Err(SpecError::new(target_word, "must be fwd, bwd or both")),
        };
        Ok(Scheduled { at, target, change: change.parse()? })
    }
}

impl fmt::Display for Scheduled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at={} {} {}", self.at, self.target.keyword(), self.change)
    }
}

impl From<Scheduled> for String {
    fn from(scheduled: Scheduled) -> String {
        scheduled.to_string()
    }
}

impl TryFrom<String> for Scheduled {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

/// Changes; those due at once happen in the order of the list.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schedule {
    /// The changes.
    pub entries: Vec<Scheduled>,
}

impl FromStr for Schedule {
    type Err = SpecError;

    /// Reads changes separated by `;` or line ends. Empty ones count for nothing. Changes by time
    /// must be in order of time, changes by bytes in order of bytes. A change ahead of an earlier
    /// one is a mistake.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut entries: Vec<Scheduled> = Vec::new();
        for text in text.split([';', '\n']).map(str::trim).filter(|text| !text.is_empty()) {
            let next: Scheduled = text.parse()?;
            if let Some(later) = entries.iter().map(|entry| entry.at).find(|at| next.at.is_before(*at)) {
                let reason =
                    format!("is due before at={later}, behind which it stands; changes must be in order");
                return Err(SpecError::new(text, reason));
            }
            entries.push(next);
        }
        Ok(Schedule { entries })
    }
}

/// The changes still to come.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Latest first, so that the next one is popped from the end.
    by_time: Vec<(u64, Scheduled)>,
    /// Most bytes first.
    by_bytes: Vec<(u64, Scheduled)>,
}

impl Pending {
    pub(crate) fn new(schedule: Schedule, origin_ns: u64) -> Self {
        let mut pending = Pending { by_time: Vec::new(), by_bytes: Vec::new() };
        for entry in schedule.entries {
            match entry.at {
                At::Time(ns) => pending.by_time.push((origin_ns.saturating_add(ns), entry)),
                At::Bytes(bytes) => pending.by_bytes.push((bytes, entry)),
            }
        }
        for list in [&mut pending.by_time, &mut pending.by_bytes] {
            // The sort is stable: reversed, those due at once stand last-first, as popping needs.
            list.sort_by_key(|(due, _)| *due);
            list.reverse();
        }
        pending
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.by_time.last().map(|(due_ns, _)| *due_ns)
    }

    pub(crate) fn pop_by_time(&mut self, now_ns: u64) -> Option<(u64, Scheduled)> {
        self.by_time.pop_if(|(due_ns, _)| *due_ns <= now_ns)
    }

    pub(crate) fn pop_by_bytes(&mut self, bytes: u64) -> Option<Scheduled> {
        self.by_bytes.pop_if(|(due, _)| *due <= bytes).map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Schedule>().map_or_else(|e| e.to_string(), |s| format!("accepted: {s:?}"))
    }

    #[test]
    fn entries_print_as_they_are_read() {
        for text in ["at=10s fwd loss=ge:0.05,4", "at=21MB both loss=0 rate=20mbit", "at=1500ms bwd down"] {
            assert_eq!(text.parse::<Scheduled>().unwrap().to_string(), text);
        }
        let schedule: Schedule = "at=1s fwd up;\n\n at=2s both down ;".parse().unwrap();
        assert_eq!(schedule.entries.len(), 2);
        // Bytes and time run beside each other, and two may be due at once.
        let schedule: Schedule =
            "at=2s fwd up; at=1kB both down; at=2s bwd up; at=1kB both up".parse().unwrap();
        assert_eq!(schedule.entries.len(), 4);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let form = "must be `at=TIME|BYTES fwd|bwd|both SETTINGS`, as in `at=10s fwd loss=0.01`";
        for (text, wanted) in [
            ("at=10s", format!("at=10s: {form}")),
            ("at=10s fwd", format!("at=10s fwd: {form}")),
            ("10s fwd up", format!("10s fwd up: {form}")),
            ("at=soon fwd up", "at=soon: must be a time as in 10s or a size as in 21MB".into()),
            ("at=10 fwd up", "at=10: must be a time as in 10s or a size as in 21MB".into()),
            ("at=10s sideways up", "sideways: must be fwd, bwd or both".into()),
            ("at=10s fwd loss=3", "loss=3: probability must be between 0 and 1".into()),
            (
                "at=2s fwd down; at=3s fwd up\nat=1500ms bwd down",
                "at=1500ms bwd down: is due before at=2s, behind which it stands; changes must be in order"
                    .into(),
            ),
            (
                "at=5kB fwd down; at=1s fwd up; at=4kB fwd down",
                "at=4kB fwd down: is due before at=5kB, behind which it stands; changes must be in order"
                    .into(),
            ),
        ] {
            assert_eq!(error(text), wanted);
        }
    }

    #[test]
    fn changes_come_in_order_of_time_then_of_the_list() {
        let text =
            "at=2s fwd up; at=1s fwd down; at=2s bwd down; at=2s fwd down; at=5B fwd up; at=3B fwd down";
        // A relay hears of them one by one, in any order.
        let entries = text.split(';').map(|entry| entry.parse().unwrap()).collect();
        let mut pending = Pending::new(Schedule { entries }, 100);
        assert_eq!(pending.next_ns(), Some(1_000_000_100));
        assert!(pending.pop_by_time(1_000_000_099).is_none());
        let order: Vec<String> =
            std::iter::from_fn(|| pending.pop_by_time(u64::MAX)).map(|(_, e)| e.to_string()).collect();
        assert_eq!(order, ["at=1s fwd down", "at=2s fwd up", "at=2s bwd down", "at=2s fwd down"]);
        assert_eq!(pending.pop_by_bytes(4).map(|e| e.to_string()), Some("at=3B fwd down".into()));
        assert_eq!(pending.pop_by_bytes(4), None);
    }
}
