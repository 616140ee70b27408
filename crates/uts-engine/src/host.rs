//! Host facts: the state of the machine that an endpoint runs on, as far as it is told (UTS thesis,
//! figure 1.8 and section 4.1.2).
//!
//! The engine looks at no machine. Who carries an endpoint measures, and hands in what it finds
//! ([`Endpoint::on_host`](crate::Endpoint::on_host)). A manager knows more, or better: its advice
//! ([`Endpoint::advise`](crate::Endpoint::advise)) counts more than what was measured. What nobody
//! has told changes nothing.

use core::fmt;
use core::time::Duration;
use uts_functions::{PathFacts, Prediction, Time};

/// Work of a packet beside that of its mechanisms, at both ends, in nanoseconds: system calls, the
/// kernel's own stack, header and frames. Assumed for packets that leave and arrive one by one;
/// those of a batch cost less.
const PACKET_NS: f64 = 3000.0;

/// Part of the processor in which more work than at present has to fit. Chosen: what is predicted
/// of the work is no better.
const ROOM: f64 = 0.75;
/// Time for which a share has to be as large before it counts, at least; twice that at most.
/// Chosen: a few looks at the host, of which there is one a second.
const GROWS_AFTER: Duration = Duration::from_secs(5);

/// Share of the data whose loss costs as much as twice the packets, where bytes are paid for.
/// Chosen: redundancy that mends more than a fifth stays.
const METERED_WEIGHT: f64 = 0.2;
/// Share of the data whose loss costs as much as a microsecond of work for a packet, on a battery.
/// Chosen: the work of heavy codes, some 10 us, counts as a loss of 5 %.
const BATTERY_WEIGHT_PER_US: f64 = 0.005;

/// The state of a host. A field that nobody has told is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostFacts {
    /// Share of a processor core (0..=1) that the endpoint can have: what others leave of it.
    pub processor: Option<f64>,
    /// Memory that is left, in bytes.
    pub memory_bytes: Option<u64>,
    /// The host runs on its battery.
    pub on_battery: Option<bool>,
    /// Bytes are paid for.
    pub is_metered: Option<bool>,
}

/// Names and meanings of the facts, as a manager reads and writes them.
pub const HOST_NAMES: [(&str, &str); 4] = [
    ("host.processor", "share of a processor core that the transport can have: 0 % to 100 %"),
    ("host.memory", "memory that is left, in bytes"),
    ("host.battery", "the host runs on its battery: yes or no"),
    ("host.metered", "bytes are paid for: yes or no"),
];

/// Value of a fact that nobody has told.
pub const UNKNOWN: &str = "unknown";

/// Why a fact cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {why}")]
pub struct BadHostFact {
    /// Name that was given.
    pub name: String,
    /// Fault of name or value, and what was expected.
    pub why: String,
}

impl HostFacts {
    /// Sets a fact by its name; the value `unknown` takes it back.
    ///
    /// # Errors
    /// [`BadHostFact`] for a name that does not exist, and for a value that the fact cannot have.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), BadHostFact> {
        let bad = |why: String| BadHostFact { name: name.to_owned(), why };
        let is_known = value != UNKNOWN;
        let truth = || match value {
            "yes" | "true" | "on" => Ok(true),
            "no" | "false" | "off" => Ok(false),
            _ => Err(bad(format!("`{value}` (expected yes, no or unknown)"))),
        };
        match name {
            "host.processor" => {
                let share = value.strip_suffix('%').unwrap_or(value).trim().parse::<f64>().ok();
                let share = share.map(|share| if value.ends_with('%') { share / 100.0 } else { share });
                let share = share.filter(|share| (0.0..=1.0).contains(share));
                if is_known && share.is_none() {
                    return Err(bad(format!("`{value}` (expected 0 % to 100 %, or unknown)")));
                }
                self.processor = share;
            }
            "host.memory" => {
                let bytes = value.parse::<u64>().ok();
                if is_known && bytes.is_none() {
                    return Err(bad(format!("`{value}` (expected bytes, or unknown)")));
                }
                self.memory_bytes = bytes;
            }
            "host.battery" => self.on_battery = is_known.then(truth).transpose()?,
            "host.metered" => self.is_metered = is_known.then(truth).transpose()?,
            _ => {
                let names = HOST_NAMES.map(|(name, _)| name).join(", ");
                return Err(bad(format!("there is no such fact of a host (there are: {names})")));
            }
        }
        Ok(())
    }

    /// The facts by their names, in the form that [`HostFacts::set`] reads.
    pub fn named(&self) -> [(&'static str, String); 4] {
        let truth = |fact: Option<bool>| match fact {
            Some(true) => "yes".to_owned(),
            Some(false) => "no".to_owned(),
            None => UNKNOWN.to_owned(),
        };
        let unknown = || UNKNOWN.to_owned();
        let values = [
            self.processor.map_or_else(unknown, |share| format!("{:.0}%", share * 100.0)),
            self.memory_bytes.map_or_else(unknown, |bytes| bytes.to_string()),
            truth(self.on_battery),
            truth(self.is_metered),
        ];
        let mut values = values.into_iter();
        HOST_NAMES.map(|(name, _)| (name, values.next().unwrap_or_default()))
    }

    /// These facts, and for those that are not known the ones of `other`.
    #[must_use]
    pub fn or(self, other: HostFacts) -> HostFacts {
        HostFacts {
            processor: self.processor.or(other.processor),
            memory_bytes: self.memory_bytes.or(other.memory_bytes),
            on_battery: self.on_battery.or(other.on_battery),
            is_metered: self.is_metered.or(other.is_metered),
        }
    }

    /// Bounds what a profile is predicted to put to use of a path by what the processor can do
    ///
    pub(crate) fn bound(&self, prediction: &mut Prediction, facts: &PathFacts) {
        let Some(share) = self.processor else { return };
        let packets_per_s = facts.capacity.bytes_per_sec() as f64 / facts.mtu_bytes.max(1) as f64;
        let expansion = prediction.expansion.max(1.0);
        let wanted = packets_per_s * prediction.utilisation / expansion;
        let possible = share * 1e9 / self.work_ns(prediction);
        if wanted > possible {
            prediction.utilisation *= possible / wanted;
            prediction.utilisation_low = prediction.utilisation_low.min(prediction.utilisation);
        }
    }

    /// Work for a packet with new data, in nanoseconds; nothing where the processor is no limit.
    pub(crate) fn work_ns(&self, prediction: &Prediction) -> f64 {
        let work = prediction.cpu_ns + PACKET_NS * prediction.expansion.max(1.0);
        self.processor.map_or(0.0, |_| work)
    }

    /// Facts with less of the processor: what more work has to fit in.
    pub(crate) fn with_room(self) -> HostFacts {
        HostFacts { processor: self.processor.map(|share| share * ROOM), ..self }
    }

    /// Cost of a profile where bytes or work are dear (0..=1), as a share of the data.
    pub(crate) fn price(&self, prediction: &Prediction) -> f64 {
        let bytes = if self.is_metered == Some(true) { METERED_WEIGHT } else { 0.0 };
        let work = if self.on_battery == Some(true) { BATTERY_WEIGHT_PER_US } else { 0.0 };
        (bytes * (prediction.expansion - 1.0) + work * prediction.cpu_ns / 1e3).clamp(0.0, 1.0)
    }
}

/// Facts that are known, as `name=value`, with commas; `nothing known` if that is nothing.
impl fmt::Display for HostFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.named().into_iter().filter(|(_, value)| value != UNKNOWN);
        let known: Vec<String> = known.map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(if known.is_empty() { "nothing known" } else { "" })?;
        f.write_str(&known.join(","))
    }
}

/// The least share of a processor that was told lately.
#[derive(Clone, Copy, Debug, Default)]
struct Least {
    /// When the present span began.
    since: Time,
    /// The share that was told last.
    last: Option<f64>,
    /// The least of the present span, and of the one before.
    least: [Option<f64>; 2],
}

impl Least {
    fn tell(&mut self, now: Time, share: Option<f64>) {
        let is_first = self.last.is_none() || share.is_none();
        self.last = share;
        if is_first {
            (self.since, self.least) = (now, [share; 2]);
            return;
        }
        self.roll(now);
        self.least[0] = lesser(self.least[0], share);
    }

    fn at(&mut self, now: Time) -> Option<f64> {
        self.roll(now);
        lesser(self.least[0], self.least[1])
    }

    /// Begins another span where one is over. What was told last holds until more is told.
    fn roll(&mut self, now: Time) {
        let spans = now.since(self.since).as_nanos() / GROWS_AFTER.as_nanos();
        if spans > 0 {
            self.since = now;
            self.least = [self.last, if spans == 1 { self.least[0] } else { self.last }];
        }
    }
}

fn lesser(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The facts of an endpoint's host: those that were measured, and the advice of a manager.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Host {
    measured: HostFacts,
    advised: HostFacts,
    processor: Least,
}

impl Host {
    /// Takes in what was measured.
    pub fn on_measured(&mut self, now: Time, measured: HostFacts) {
        self.measured = measured;
        self.processor.tell(now, self.told().processor);
    }

    /// Takes a manager's advice.
    pub fn on_advice(&mut self, now: Time, advised: HostFacts) {
        self.advised = advised;
        self.processor.tell(now, self.told().processor);
    }

    /// Advice that was taken.
    pub fn advised(&self) -> HostFacts {
        self.advised
    }

    /// Facts as they were told.
    pub fn told(&self) -> HostFacts {
        self.advised.or(self.measured)
    }

    /// The facts to reckon with: a share that shrinks counts at once, and one that grows after a
    /// while.
    pub fn facts(&mut self, now: Time) -> HostFacts {
        HostFacts { processor: self.processor.at(now), ..self.told() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_functions::Rate;

    #[test]
    fn facts_are_read_and_written_by_name() {
        let mut facts = HostFacts::default();
        assert_eq!(facts.to_string(), "nothing known");
        for (name, value) in [
            ("host.processor", "25%"),
            ("host.memory", "1000"),
            ("host.battery", "yes"),
            ("host.metered", "no"),
        ] {
            facts.set(name, value).expect("right");
        }
        let named = "host.processor=25%,host.memory=1000,host.battery=yes,host.metered=no";
        assert_eq!(facts.to_string(), named);
        let mut again = HostFacts::default();
        facts.named().iter().for_each(|(name, value)| again.set(name, value).expect("its own words"));
        assert_eq!(again, facts);
        HOST_NAMES.iter().for_each(|(name, _)| again.set(name, "unknown").expect("taken back"));
        assert_eq!(again, HostFacts::default());
        for (name, value, why) in [
            ("host.fan", "1", "there is no such fact of a host (there are: host.processor, "),
            ("host.processor", "120%", "`120%` (expected 0 % to 100 %, or unknown)"),
            ("host.processor", "much", "`much` (expected"),
            ("host.memory", "-1", "`-1` (expected bytes, or unknown)"),
            ("host.battery", "half", "`half` (expected yes, no or unknown)"),
        ] {
            let said = facts.set(name, value).expect_err(name).to_string();
            assert!(said.starts_with(&format!("{name}: {why}")), "{said}");
        }
        assert_eq!(facts.to_string(), named, "what is wrong changes nothing");
    }

    #[test]
    fn advice_counts_more_than_what_was_measured() {
        let measured = HostFacts { processor: Some(0.5), on_battery: Some(false), ..HostFacts::default() };
        let advised = HostFacts { on_battery: Some(true), ..HostFacts::default() };
        let mut host = Host::default();
        host.on_measured(Time::ZERO, measured);
        host.on_advice(Time::ZERO, advised);
        let facts = host.facts(Time::ZERO);
        assert_eq!((facts.processor, facts.on_battery), (Some(0.5), Some(true)));
    }

    #[test]
    fn a_share_that_grows_counts_after_a_while() {
        let mut host = Host::default();
        let told = |processor| HostFacts { processor, ..HostFacts::default() };
        let mut at = |seconds: u64, share: Option<f64>| {
            let now = Time::from_millis(seconds * 1000);
            if let Some(share) = share {
                host.on_measured(now, told(Some(share)));
            }
            host.facts(now).processor
        };
        assert_eq!(at(1, Some(0.9)), Some(0.9));
        assert_eq!(at(2, Some(0.2)), Some(0.2), "less counts at once");
        assert_eq!(at(4, Some(0.8)), Some(0.2));
        assert_eq!(at(7, Some(0.9)), Some(0.2));
        assert_eq!(at(12, None), Some(0.9), "what was told last holds");
        assert_eq!(at(40, None), Some(0.9));
        host.on_measured(Time::from_millis(41_000), HostFacts::default());
        assert_eq!(host.facts(Time::from_millis(41_000)).processor, None);
    }

    #[test]
    fn a_little_processor_bounds_the_rate_and_nothing_else_does() {
        let capacity = Rate::from_bytes_per_sec(12_000_000);
        let facts = PathFacts { capacity, mtu_bytes: 1200, ..PathFacts::default() };
        let heavy = Prediction { cpu_ns: 7000.0, ..Prediction::of_path(&facts) };
        let bounded = |processor| {
            let mut p = heavy;
            HostFacts { processor, ..HostFacts::default() }.bound(&mut p, &facts);
            p.utilisation
        };
        assert_eq!(bounded(None), 1.0);
        assert_eq!(bounded(Some(1.0)), 1.0, "100,000 packets a second are possible");
        assert!((bounded(Some(0.05)) - 0.5).abs() < 1e-9, "5,000 are");
        assert_eq!(HostFacts::default().price(&heavy), 0.0);
        let dear = HostFacts { on_battery: Some(true), is_metered: Some(true), ..HostFacts::default() };
        let doubled = Prediction { expansion: 2.0, ..heavy };
        assert!((dear.price(&doubled) - 0.235).abs() < 1e-9);
    }
}
