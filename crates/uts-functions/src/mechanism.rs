//! Mechanisms as they describe themselves: number, name, parameters, needs, and what they would do
//! on a given path.

use crate::facts::PathFacts;
use crate::function::Function;
use core::fmt;
use core::time::Duration;

mod prediction;
pub use prediction::{Held, Later, Prediction};

/// The most parameters that a mechanism may have.
pub const MAX_PARAMS: usize = 4;

/// Unit of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number.
    Count,
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
    /// Kibibytes.
    Kibibytes,
    /// Microseconds.
    Micros,
    /// Milliseconds.
    Millis,
    /// Thousandths.
    PerMille,
    /// Thousands of bits per second.
    KilobitsPerSecond,
}

impl Unit {
    /// The suffix that follows a value in print.
    pub const fn suffix(self) -> &'static str {
        match self {
            Unit::Count => "",
            Unit::Packets => " packets",
            Unit::Bytes => " B",
            Unit::Kibibytes => " KiB",
            Unit::Micros => " us",
            Unit::Millis => " ms",
            Unit::PerMille => " per mille",
            Unit::KilobitsPerSecond => " kbit/s",
        }
    }
}

/// Which end must have named a mechanism before its peer may have it used (selection.md S-37).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// None: a peer may ask for it.
    NotNeeded,
    /// The end that sends the data: it answers for what the network has to carry.
    OfSender,
    /// The end that receives the data: it answers for its memory. It has named a mechanism, too, if
    /// the mechanism goes together with what it would choose itself otherwise.
    OfReceiver,
    /// Both ends.
    OfBoth,
}

/// On which side of its default a parameter asks for more than the sender owes the network
/// (selection.md S-38).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bold {
    /// On none.
    Neither,
    /// Larger values.
    Above,
    /// Smaller values.
    Below,
}

impl Bold {
    /// True if a value goes beyond a bound.
    pub const fn exceeds(self, value: u32, bound: u32) -> bool {
        match self {
            Bold::Neither => false,
            Bold::Above => value > bound,
            Bold::Below => value < bound,
        }
    }
}

/// One parameter of a mechanism.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name, unique within the mechanism.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: Unit,
    /// The value unless another is given.
    pub default: u32,
    /// Smallest allowed value.
    pub min: u32,
    /// Largest allowed value.
    pub max: u32,
    /// Which values the sender must have named itself.
    pub bold: Bold,
    /// Effect of the parameter, in one line.
    pub what: &'static str,
}

/// The values of a mechanism's parameters, in the order of its table; places beyond the table are
/// zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Params(pub [u32; MAX_PARAMS]);

impl Params {
    /// The value at `index` of the mechanism's table.
    pub fn get(&self, index: usize) -> u32 {
        self.0.get(index).copied().unwrap_or(0)
    }
}

/// Guarantee of a mechanism. Requirements are promises that must be kept; conformance tests hold a
/// mechanism to its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Lost data arrives all the same.
    Reliability,
    /// Nothing is handed over before what was sent before it.
    Order,
    /// Data sent as one message is received as one.
    Boundaries,
    /// Each packet that arrives is reported, asked for or not.
    Reports,
    /// Each packet that arrives is reported within a small part of a round trip.
    ReportsSoon,
    /// Packets keep to the rate that is given.
    Rate,
    /// The sender yields to others: it sends less where the path is full.
    Restraint,
    /// It leaves the path to others as soon as their packets queue (RFC 6297: lower than best
    /// effort).
    LowerThanBestEffort,
    /// A clean path stays full if its buffer holds what the path itself does.
    FullPath,
    /// A clean path stays nearly full even if its buffer holds a third of what the path itself
    /// does.
    FullShallowPath,
    /// No lasting queue builds up.
    ShortQueue,
    /// Random losses of 1 % do not slow the sender down.
    RandomLoss,
    /// Damage is found.
    Integrity,
    /// Nobody on the path can read.
    Secrecy,
}

impl Promise {
    /// The promise in words, behind "that".
    pub const fn words(self) -> &'static str {
        match self {
            Promise::Reliability => "makes delivery reliable",
            Promise::Order => "keeps the order",
            Promise::Boundaries => "keeps the boundaries of messages",
            Promise::Reports => "reports unasked",
            Promise::ReportsSoon => "reports soon",
            Promise::Rate => "keeps a rate",
            Promise::Restraint => "yields to others",
            Promise::LowerThanBestEffort => "takes what others leave",
            Promise::FullPath => "keeps a path full",
            Promise::FullShallowPath => "keeps a path with a shallow buffer full",
            Promise::ShortQueue => "keeps the queue short",
            Promise::RandomLoss => "bears random losses",
            Promise::Integrity => "finds damage",
            Promise::Secrecy => "keeps data secret",
        }
    }
}

/// Occasions on which a mechanism is taken though it was not asked for by name. Of mechanisms that
/// are predicted to do equally well, the one with the smallest number is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unasked {
    /// No: it is used by name only.
    Never,
    /// For a connection to begin with.
    Choice(u8),
    /// For a connection to begin with, and in mid-connection where the path calls for it.
    Candidate(u8),
}

impl Unasked {
    /// The place among mechanisms that do equally well; `None` if it is used by name only.
    pub const fn rank(self) -> Option<u8> {
        match self {
            Unasked::Never => None,
            Unasked::Choice(rank) | Unasked::Candidate(rank) => Some(rank),
        }
    }

    /// The same; those that are used by name only stand last.
    pub const fn rank_or_last(self) -> u8 {
        match self.rank() {
            Some(rank) => rank,
            None => u8::MAX,
        }
    }
}

/// Properties of a mechanism. Code that puts mechanisms together asks for these and never for a
/// name or number.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The function is not performed at all.
    pub inert: bool,
    /// Every packet of a run of packets that are alike costs it the same work. Only then are
    /// packets built and taken in as runs.
    pub uniform: bool,
    /// It has to know where in its flow data stands.
    pub positions: bool,
    /// It sends data again.
    pub repeats: bool,
    /// The receiver grants what may be sent.
    pub grants: bool,
    /// The sender looks at what it has outstanding before it sends more of a flow.
    pub windows: bool,
    /// It has a half that works at the receiver of data and speaks to the half at the sender.
    pub speaks: bool,
    /// Messages say what they wait for, and it keeps to that.
    pub orders: bool,
    /// Messages have keys, and it keeps the order of those with one key.
    pub keys: bool,
    /// It gives up data that has arrived.
    pub passes_over: bool,
    /// It judges messages before they are a part of their flow.
    pub judges: bool,
    /// It lets damage through at the end of a message that allows it.
    pub tolerates: bool,
    /// Promises of the mechanism.
    pub promises: &'static [Promise],
    /// Occasions on which it is taken unasked.
    pub unasked: Unasked,
    /// It gives streams of bytes another form, too, not only messages.
    pub streams: bool,
    /// First bytes of messages in the forms that it gives them, besides 0 (presentation).
    pub forms: &'static [u8],
    /// Things that parameters name and this end lacks, in words; `None` if it has all. Without this
    /// function, parameters name nothing.
    pub lacks: Option<fn(&Params) -> Option<String>>,
    /// The smallest window, in packets, but for the one that a time-out leaves (congestion
    /// control).
    pub window_packets_min: u8,
    /// Messages say when they were made.
    pub times: bool,
    /// Its delay follows how far those of messages lie apart.
    pub follows_jitter: bool,
    /// The parameters with which messages are handed over so long after they were made, at the
    /// most, and late ones all the same or not. Without this function, it knows no such time.
    pub within: Option<fn(Duration, bool) -> Params>,
    /// The parameters that are worth comparing on a path, best first; none if the mechanism is not
    /// worth it there. Without this function, the defaults.
    pub tuned: Option<fn(&PathFacts) -> Vec<Params>>,
}

impl Facts {
    /// Nothing is promised, and nothing taken for granted.
    pub const PLAIN: Facts = Facts {
        inert: false,
        uniform: false,
        positions: false,
        repeats: false,
        grants: false,
        windows: false,
        speaks: false,
        orders: false,
        keys: false,
        passes_over: false,
        judges: false,
        tolerates: false,
        promises: &[],
        unasked: Unasked::Choice(0),
        streams: false,
        forms: &[],
        lacks: None,
        window_packets_min: 2,
        times: false,
        follows_jitter: false,
        within: None,
        tuned: None,
    };

    /// The function is not performed at all.
    pub const INERT: Facts =
        Facts { inert: true, uniform: true, unasked: Unasked::Candidate(0), ..Facts::PLAIN };
}

/// A mechanism's entry in the library.
pub struct Mechanism {
    /// The function that it performs.
    pub function: Function,
    /// Its number within the function, as in `spec/functions.toml` and on the wire.
    pub number: u8,
    /// Its name in profiles, options and reports: lower case, words joined by `-`.
    pub name: &'static str,
    /// Effect of the mechanism, in one line.
    pub what: &'static str,
    /// Every endpoint has the mechanism.
    pub mandatory: bool,
    /// Ends that must have named it before a peer may ask for it.
    pub consent: Consent,
    /// Its parameters.
    pub params: &'static [Param],
    /// Needs that the rest of a profile must meet for it to work.
    pub needs: &'static [Need],
    /// Properties of the mechanism.
    pub facts: Facts,
    /// Effect on data on a path with these facts, as a change of the prediction so far.
    pub predict: fn(&Params, &PathFacts, &mut Prediction),
}

/// A need of a mechanism that the rest of a profile must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The function must be performed at all.
    Present(Function),
    /// The function must be performed by a mechanism that promises this.
    Promise(Function, Promise),
}

/// A parameter that a mechanism does not take, or not with that value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// No parameter of that name.
    #[error("{mechanism} has no parameter `{name}` (it has: {known})")]
    Unknown {
        /// The mechanism.
        mechanism: &'static str,
        /// The name that was given.
        name: String,
        /// Names that exist.
        known: String,
    },
    /// The value is out of range.
    #[error("{mechanism}: {name} = {value} is outside {min}..={max}{unit}")]
    Range {
        /// The mechanism.
        mechanism: &'static str,
        /// The parameter.
        name: &'static str,
        /// The value that was given.
        value: u64,
        /// Smallest allowed value.
        min: u32,
        /// Largest allowed value.
        max: u32,
        /// Suffix of the unit.
        unit: &'static str,
    },
    /// It names something that this end does not have.
    #[error("{mechanism}: {what}")]
    Absent {
        /// The mechanism.
        mechanism: &'static str,
        /// Description of the missing thing.
        what: String,
    },
}

impl Mechanism {
    /// The entry of a function's `none`, number 0: it has no parameters, needs nothing and changes
    /// no prediction.
    pub(crate) const fn inert(function: Function, what: &'static str) -> Self {
        Mechanism {
            function,
            number: 0,
            name: "none",
            what,
            mandatory: true,
            consent: Consent::NotNeeded,
            params: &[],
            needs: &[],
            facts: Facts::INERT,
            predict: |_, _, _| {},
        }
    }

    /// True if it guarantees this.
    pub fn promises(&self, promise: Promise) -> bool {
        self.facts.promises.contains(&promise)
    }

    /// Its parameters with some set by name, each brought into its range. Names that it does not
    /// have are passed over.
    pub fn params_within(&self, settings: &[(&str, u64)]) -> Params {
        let mut params = Params::default();
        for (slot, param) in params.0.iter_mut().zip(self.params) {
            let set = settings.iter().find(|(name, _)| *name == param.name).map(|(_, value)| *value);
            let value = set.unwrap_or(u64::from(param.default));
            *slot = u32::try_from(value).unwrap_or(u32::MAX).clamp(param.min, param.max);
        }
        params
    }

    /// This mechanism with its default parameters.
    pub fn choice(&'static self) -> Choice {
        let mut params = Params::default();
        for (slot, param) in params.0.iter_mut().zip(self.params) {
            *slot = param.default;
        }
        Choice { number: self.number, params }
    }

    /// This mechanism with some parameters set by name.
    pub fn choice_with(&'static self, settings: &[(&str, u64)]) -> Result<Choice, ParamError> {
        let mut choice = self.choice();
        for (name, value) in settings {
            let index =
                self.params.iter().position(|p| p.name == *name).ok_or_else(|| ParamError::Unknown {
                    mechanism: self.name,
                    name: (*name).to_owned(),
                    known: self.params.iter().map(|p| p.name).collect::<Vec<_>>().join(", "),
                })?;
            let value32 = u32::try_from(*value).unwrap_or(u32::MAX);
            self.check_one(index, u64::from(value32).max(*value))?;
            choice.params.0[index] = value32;
        }
        self.check_presence(&choice.params)?;
        Ok(choice)
    }

    fn check_one(&self, index: usize, value: u64) -> Result<(), ParamError> {
        let Some(p) = self.params.get(index) else { return Ok(()) };
        if value < u64::from(p.min) || value > u64::from(p.max) {
            let unit = p.unit.suffix();
            return Err(ParamError::Range {
                mechanism: self.name,
                name: p.name,
                value,
                min: p.min,
                max: p.max,
                unit,
            });
        }
        Ok(())
    }

    /// Checks parameters that came from outside against the table.
    pub fn check(&self, params: &Params) -> Result<(), ParamError> {
        (0..self.params.len()).try_for_each(|index| self.check_one(index, u64::from(params.get(index))))?;
        self.check_presence(params)
    }

    fn check_presence(&self, params: &Params) -> Result<(), ParamError> {
        match self.facts.lacks.and_then(|lacks| lacks(params)) {
            Some(what) => Err(ParamError::Absent { mechanism: self.name, what }),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.function.name(), self.name)
    }
}

impl PartialEq for Mechanism {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function && self.number == other.number
    }
}

/// A mechanism in use that can describe itself. Mechanisms of this crate get it from
/// [`crate::registry`].
pub trait Described: fmt::Debug + Send + Sync {
    /// Its entry in the library.
    fn info(&self) -> &'static Mechanism;
}

impl<T: Described + ?Sized> Described for Box<T> {
    fn info(&self) -> &'static Mechanism {
        (**self).info()
    }
}

/// A mechanism chosen for a function, with its parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Choice {
    /// The mechanism's number within its function.
    pub number: u8,
    /// Its parameters.
    pub params: Params,
}

/// Time in a mechanism's parameter table as a [`Duration`].
pub fn millis(value: u32) -> Duration {
    Duration::from_millis(u64::from(value))
}
