//! Requirements: what the application asks. They have the names of IETF TAPS (RFC 9622). If TAPS
//! has no name, they are in the namespace `uts.`.
//!
//! In TAPS, selection properties are fixed once a connection is established. Here they may change
//! at any time. A change leads to another profile, which is exchanged in mid-connection. Only
//! properties that no exchange can alter are fixed after establishment: see [`Property::fixed`].

mod consent;
mod pin;
mod property;
mod typed;
mod value;

use core::fmt;
use core::time::Duration;
use uts_functions::{Function, Rate};

pub use consent::Consents;
pub use pin::{PREFIX, Pin};
pub use property::{Effect, PROPERTIES, Property};
pub use value::{CapacityProfile, Direction, ExchangeMode, Preference, Quality, Scheduler, Security};

/// The property that sets all that a named profile lists ([`crate::named`]).
pub const NAMED: &str = "uts.profile";

/// No profile is named: what is listed as the default.
const NO_NAME: &str = "none";

/// Requirements of the application for a connection or flow. [`Requirements::default`] is what RFC
/// 9622 gives as defaults: a reliable, ordered stream of bytes under congestion control.
///
/// Properties are set by values of their types, or by text.
///
/// ```
/// use std::time::Duration;
/// use uts_engine::requirements::{Preference, Requirements};
/// use uts_functions::{Function, Rate};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let typed = Requirements::datagrams()
///     .lifetime(Duration::from_millis(100))
///     .send_rate_max(Rate::from_bits_per_sec(5_000_000))
///     .mechanism(Function::Congestion, "bbr")?;
///
/// let mut text = Requirements::datagrams();
/// text.set("msgLifetime", "100ms")?;
/// text.set("maxSendRate", "5Mbit/s")?;
/// text.set("uts.profile.congestion", "bbr")?;
/// assert_eq!(typed, text);
/// assert_eq!(typed.reliability, Preference::Prohibit);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Requirements {
    /// `reliability`: all data arrives.
    pub reliability: Preference,
    /// `preserveMsgBoundaries`: the receiver gets the messages that were sent.
    pub preserve_msg_boundaries: Preference,
    /// `perMsgReliability`: each message says whether it must arrive.
    pub per_msg_reliability: Preference,
    /// `preserveOrder`: data is handed over in the order of sending.
    pub preserve_order: Preference,
    /// `zeroRttMsg`: a message in the first packet. Not offered.
    pub zero_rtt_msg: Preference,
    /// `multistreaming`: connections of a group are flows of one connection.
    pub multistreaming: Preference,
    /// `fullChecksumSend`: damage to anything sent is detected.
    pub full_checksum_send: Preference,
    /// `fullChecksumRecv`: damage to anything received is detected.
    pub full_checksum_recv: Preference,
    /// `congestionControl`: the sender yields to congestion.
    pub congestion_control: Preference,
    /// `keepAlive`: an idle connection is kept alive.
    pub keep_alive: Preference,
    /// `useTemporaryLocalAddress`.
    pub use_temporary_local_address: Preference,
    /// `softErrorNotify`: ICMP errors become events.
    pub soft_error_notify: Preference,
    /// `activeReadBeforeSend`: the initiator does not write first.
    pub active_read_before_send: Preference,
    /// `direction`.
    pub direction: Direction,
    /// `connCapacityProfile`.
    pub conn_capacity_profile: CapacityProfile,
    /// `connPriority`: smaller is more important.
    pub conn_priority: u32,
    /// `connScheduler`.
    pub conn_scheduler: Scheduler,
    /// `connTimeout`: without an acknowledgement for this long, the connection has failed. `None` =
    /// never.
    pub conn_timeout: Option<Duration>,
    /// `keepAliveTimeout`: a keep-alive is sent after this idle time.
    pub keep_alive_timeout: Option<Duration>,
    /// `minSendRate`: what the application needs; `None` = nothing in particular.
    pub min_send_rate: Option<Rate>,
    /// `maxSendRate`: what it never exceeds; `None` = no bound.
    pub max_send_rate: Option<Rate>,
    /// `minRecvRate`.
    pub min_recv_rate: Option<Rate>,
    /// `maxRecvRate`.
    pub max_recv_rate: Option<Rate>,
    /// `msgLifetime`: after it, an undelivered message is worthless; `None` = never.
    pub msg_lifetime: Option<Duration>,
    /// `msgChecksumLen`: how many bytes of a message, from the first on, have to arrive as they
    /// were sent; `None` = all.
    pub msg_checksum_len: Option<u32>,
    /// `recvChecksumLen`: how many bytes of a message have to be right for it to be handed over;
    /// `None` = all.
    pub recv_checksum_len: Option<u32>,
    /// `uts.maxDelay`: one way, from `send` to `receive`; `None` = any.
    pub max_delay: Option<Duration>,
    /// `uts.maxJitter`: by how much the slowest percent may be later than the mean; `None` = any.
    pub max_jitter: Option<Duration>,
    /// `uts.playoutDelay`: how long after it was made a message is handed over, beyond the quickest
    /// way; `None` = as soon as it may be.
    pub playout_delay: Option<Duration>,
    /// `uts.degradation`: what may be given up, in this order, if the path cannot give all. Other
    /// required qualities are not given up.
    pub degradation: Vec<Quality>,
    /// `uts.security`.
    pub security: Security,
    /// `uts.adapt`: whether mechanisms may be exchanged when the path changes.
    pub adapt: bool,
    /// `uts.exchange`: how mechanisms of what this end sends are exchanged.
    pub exchange: ExchangeMode,
    /// `uts.expedited`: expedited messages are taken, and may be sent to a peer that takes them.
    pub expedited: bool,
    /// `uts.consent`: mechanisms that a peer may ask for although this end would not choose them.
    pub consents: Consents,
    /// `uts.profile.FUNCTION`, at most one per function, in the order of functions.
    pub pins: Vec<Pin>,
}

impl Default for Requirements {
    fn default() -> Self {
        Requirements {
            reliability: Preference::Require,
            preserve_msg_boundaries: Preference::NoPreference,
            per_msg_reliability: Preference::NoPreference,
            preserve_order: Preference::Require,
            zero_rtt_msg: Preference::NoPreference,
            multistreaming: Preference::Prefer,
            full_checksum_send: Preference::Require,
            full_checksum_recv: Preference::Require,
            congestion_control: Preference::Require,
            keep_alive: Preference::NoPreference,
            use_temporary_local_address: Preference::Prefer,
            soft_error_notify: Preference::NoPreference,
            active_read_before_send: Preference::NoPreference,
            direction: Direction::Bidirectional,
            conn_capacity_profile: CapacityProfile::Default,
            conn_priority: 100,
            conn_scheduler: Scheduler::WeightedFairQueueing,
            conn_timeout: None,
            keep_alive_timeout: None,
            min_send_rate: None,
            max_send_rate: None,
            min_recv_rate: None,
            max_recv_rate: None,
            msg_lifetime: None,
            msg_checksum_len: None,
            recv_checksum_len: None,
            max_delay: None,
            max_jitter: None,
            playout_delay: None,
            degradation: Vec::new(),
            security: Security::Required,
            adapt: true,
            exchange: ExchangeMode::Explicit,
            expedited: false,
            consents: Consents::default(),
            pins: Vec::new(),
        }
    }
}

/// Why a property cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// The text is not `name=value`.
    #[error("`{text}` is not a property: write name=value")]
    NotAssignment {
        /// Text that was given.
        text: String,
    },
    /// No property of that name.
    #[error("there is no property `{name}`{}", did_you_mean(.nearest))]
    Unknown {
        /// Name that was given.
        name: String,
        /// The known name that is most like it.
        nearest: Option<String>,
    },
    /// Not a value of that property.
    #[error("{name}: `{value}` is not {expected}{}", detail(.why))]
    Value {
        /// The property.
        name: &'static str,
        /// Value that was given.
        value: String,
        /// Values that it has.
        expected: &'static str,
        /// Exact error, if that can be said.
        why: String,
    },
    /// A value that RFC 9622 knows and UTS does not offer.
    #[error("{name}: `{value}` is not offered: {why}")]
    NotOffered {
        /// The property.
        name: String,
        /// Value that was given.
        value: String,
        /// Why not.
        why: &'static str,
    },
    /// No named profile of that name.
    #[error("{0}")]
    Profile(String),
    /// A peer may not ask for it.
    #[error("{name} {why}")]
    NotForPeers {
        /// The property.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// A pin that the library cannot follow.
    #[error("{name}: `{value}` cannot be used: {why}")]
    Pin {
        /// The property.
        name: String,
        /// Value that was given.
        value: String,
        /// Why not.
        why: String,
    },
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

fn detail(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

impl Requirements {
    /// The settings of a named profile over the defaults. Of names that the library has: a test
    /// holds that each can be set.
    fn named(name: &str) -> Self {
        let mut requirements = Self::default();
        let named = crate::named::own(name);
        debug_assert!(named.is_some(), "there is no profile `{name}`");
        for (property, value) in named.iter().flat_map(|named| &named.settings) {
            let set = requirements.set(property, value);
            debug_assert_eq!(set, Ok(()));
        }
        requirements
    }

    /// A long transfer: reliable, ordered bytes, as fast as the path goes. The named profile
    /// `bulk`.
    pub fn bulk() -> Self {
        Self::named("bulk")
    }

    /// Somebody waits for each answer: reliable, ordered bytes, with little delay. The named
    /// profile `interactive`.
    pub fn interactive() -> Self {
        Self::named("interactive")
    }

    /// Audio or video: messages in any order that are worthless after `lifetime` and are not
    /// repeated. The named profile `media`, with this lifetime.
    pub fn media(lifetime: Duration) -> Self {
        Requirements { msg_lifetime: Some(lifetime), ..Self::named("media") }
    }

    /// Messages in any order that are worthless after `lifetime`, and are repeated until then. The
    /// named profile `timely`, with this lifetime.
    pub fn timely(lifetime: Duration) -> Self {
        Requirements { msg_lifetime: Some(lifetime), ..Self::named("timely") }
    }

    /// Reliable messages, in order. The named profile `messages`.
    pub fn messages() -> Self {
        Self::named("messages")
    }

    /// Messages that may be lost and come in any order, under congestion control: what RFC 9221 has
    /// beside streams. The named profile `datagrams`.
    pub fn datagrams() -> Self {
        Self::named("datagrams")
    }

    /// True if the application asks and waits for answers, without a deadline of its own.
    pub(crate) fn is_dialogue(&self) -> bool {
        self.deadline().is_none()
            && self.playout_delay.is_none()
            && self.conn_capacity_profile == CapacityProfile::LowLatencyInteractive
    }

    /// Sets a property from text, as on a command line.
    ///
    /// # Errors
    /// [`RequirementError`], which names the property, the value and what was expected. Nothing has
    /// changed then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), RequirementError> {
        let (name, value) = (name.trim(), value.trim());
        if name.starts_with(PREFIX) {
            self.pin(Pin::parse(name, value)?);
            return Ok(());
        }
        if name == NAMED {
            return self.set_named(value);
        }
        let property = property::find(name).ok_or_else(|| property::unknown(name, value))?;
        property.set(self, value)
    }

    /// Sets a property as the peer asks it of what this end sends. `own` = what this end's own side
    /// has set: what that says of congestion control, rates, time-outs, protection and mechanisms
    /// is never for peers, nor is a bound of its own rates, nor that it yields to all others.
    ///
    /// # Errors
    /// [`RequirementError::NotForPeers`], and as [`Requirements::set`]. Nothing has changed then.
    pub fn set_for_peer(
        &mut self,
        own: &Requirements,
        name: &str,
        value: &str,
    ) -> Result<(), RequirementError> {
        let (name, value) = (name.trim(), value.trim());
        if name.starts_with(PREFIX) || name == NAMED {
            let why = "is for each end to choose for itself";
            return Err(RequirementError::NotForPeers { name: name.to_owned(), why });
        }
        let property = property::find(name).ok_or_else(|| property::unknown(name, value))?;
        property.set_for_peer(own, self, value)
    }

    /// Sets all that a named profile lists.
    fn set_named(&mut self, name: &str) -> Result<(), RequirementError> {
        if name == NO_NAME {
            return Ok(());
        }
        let named = crate::named::find(name).map_err(RequirementError::Profile)?;
        let mut changed = self.clone();
        for (name, value) in &named.settings {
            changed.set(name, value)?;
        }
        *self = changed;
        Ok(())
    }

    /// Sets a property from `name=value`.
    ///
    /// # Errors
    /// As [`Requirements::set`].
    pub fn assign(&mut self, text: &str) -> Result<(), RequirementError> {
        let (name, value) =
            text.split_once('=').ok_or_else(|| RequirementError::NotAssignment { text: text.to_owned() })?;
        self.set(name, value)
    }

    /// Names the mechanism of a function; replaces an earlier pin of that function.
    pub fn pin(&mut self, pin: Pin) {
        match self.pins.binary_search_by_key(&pin.function, |p| p.function) {
            Ok(at) => self.pins[at] = pin,
            Err(at) => self.pins.insert(at, pin),
        }
    }

    /// Leaves the mechanism of a function to the selector again.
    pub fn unpin(&mut self, function: Function) {
        self.pins.retain(|p| p.function != function);
    }

    /// The first property that is fixed once a connection is established, and has another value in
    /// `other` (selection.md S-43).
    pub(crate) fn differs_in_fixed(&self, other: &Requirements) -> Option<&'static Property> {
        PROPERTIES.iter().find(|property| property.fixed && property.value(self) != property.value(other))
    }

    /// The pin of a function.
    pub fn pinned(&self, function: Function) -> Option<&Pin> {
        self.pins.iter().find(|p| p.function == function)
    }

    /// The shorter of `uts.maxDelay` and `msgLifetime`: after it, data is late.
    pub fn deadline(&self) -> Option<Duration> {
        match (self.max_delay, self.msg_lifetime) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The same on a path that takes so long one way. What is handed over in its pace is late, too,
    /// if it arrives after the instant at which it would be (`uts.playoutDelay`).
    pub fn deadline_on(&self, one_way: Duration) -> Option<Duration> {
        let handed_over = self.playout_delay.map(|delay| one_way + delay);
        self.deadline().into_iter().chain(handed_over).min()
    }

    /// True if the application is ready to give this quality up.
    pub fn may_give_up(&self, quality: Quality) -> bool {
        self.degradation.contains(&quality)
    }

    /// True if `first` yields before `second` does: it has an earlier place in `uts.degradation`,
    /// or alone has one.
    pub fn yields_before(&self, first: Quality, second: Quality) -> bool {
        let place = |q| self.degradation.iter().position(|x| *x == q);
        match (place(first), place(second)) {
            (Some(a), Some(b)) => a < b,
            (Some(_), None) => true,
            _ => false,
        }
    }

    /// The properties that differ from their defaults, as `(name, value)`.
    pub fn settings(&self) -> Vec<(String, String)> {
        let default = Requirements::default();
        let mut list: Vec<(String, String)> = PROPERTIES
            .iter()
            .filter(|p| p.value(self) != p.value(&default))
            .map(|p| (p.name.to_owned(), p.value(self)))
            .collect();
        for pin in &self.pins {
            let text = pin.to_string();
            if let Some((name, value)) = text.split_once('=') {
                list.push((name.to_owned(), value.to_owned()));
            }
        }
        list
    }
}

/// `name=value name=value …`: what differs from the defaults.
impl fmt::Display for Requirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.settings();
        if settings.is_empty() {
            return f.write_str("defaults");
        }
        for (i, (name, value)) in settings.iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{name}={value}")?;
        }
        Ok(())
    }
}

/// True if a peer may be asked for the property of this name, about what it sends.
pub fn is_for_peers(name: &str) -> bool {
    property::find(name.trim()).is_some_and(Property::is_for_peers)
}

/// The known word most like `text`, if any is like it at all.
pub fn nearest<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = text.to_ascii_lowercase().chars().take(64).collect();
    known
        .map(|word| (distance(&wanted, &word.to_ascii_lowercase().chars().collect::<Vec<_>>()), word))
        .filter(|(d, word)| *d * 3 <= word.len().max(wanted.len()))
        .min_by_key(|(d, _)| *d)
        .map(|(_, word)| word)
}

/// Edits (insert, delete, replace) that turn `a` into `b` (Levenshtein).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row.first().copied().unwrap_or(0);
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            let best = (diagonal + usize::from(x != y)).min(above + 1).min(row[j] + 1);
            diagonal = above;
            row[j + 1] = best;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
