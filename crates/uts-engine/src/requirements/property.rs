//! The table of properties: one entry makes a property known, parsed, printed and documented
//! (selection.md S-1).

use super::value::{self, Words};
use super::{Direction, Preference, RequirementError, Requirements, Security};
use uts_functions::Rate;

/// Effect of a property in UTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The selector or the policy follows it.
    Steers,
    /// The connection follows it; it has no influence on the profile.
    Connection,
    /// Accepted, and without effect here.
    Accepted,
}

/// Right of a peer to ask this end for it, about what this end sends to that peer. Properties that
/// are owed to others are never for peers: congestion control, rates that sending needs, time-outs,
/// protection, and which mechanisms are used. (selection.md S-42)
#[derive(Clone, Copy, Debug)]
pub(super) enum ForPeers {
    /// No.
    Never,
    /// Unless what this end has set itself is of use to others.
    Unless(fn(own: &Requirements) -> bool),
    /// Anything that is no more than what this end has set: a bound is put on what was asked.
    Within(fn(own: &Requirements, asked: &mut Requirements)),
}

type Parser = fn(&mut Requirements, &str) -> Result<(), String>;
type Refusal = fn(&Requirements) -> Option<&'static str>;

/// One property.
pub struct Property {
    /// Its name.
    pub name: &'static str,
    /// Values that it takes, to follow "is not".
    pub expected: &'static str,
    /// Effect that it has in UTS.
    pub effect: Effect,
    /// It cannot change once the connection is established (selection.md S-43).
    pub fixed: bool,
    /// Description of what it asks, in one line.
    pub what: &'static str,
    peers: ForPeers,
    parse: Parser,
    show: fn(&Requirements) -> String,
    refuse: Refusal,
}

impl Property {
    /// Sets it from text; `requirements` is unchanged in case of an error.
    pub(super) fn set(&self, requirements: &mut Requirements, text: &str) -> Result<(), RequirementError> {
        let mut changed = requirements.clone();
        (self.parse)(&mut changed, text).map_err(|why| RequirementError::Value {
            name: self.name,
            value: text.to_owned(),
            expected: self.expected,
            why,
        })?;
        if let Some(why) = (self.refuse)(&changed) {
            return Err(RequirementError::NotOffered {
                name: self.name.to_owned(),
                value: text.to_owned(),
                why,
            });
        }
        *requirements = changed;
        Ok(())
    }

    /// Its value, as it would be written.
    pub fn value(&self, requirements: &Requirements) -> String {
        (self.show)(requirements)
    }

    /// True if it is asked of a connection, for all its flows together.
    pub fn is_shared(&self) -> bool {
        const STEERING: [&str; 4] = ["congestionControl", "maxSendRate", "uts.security", "uts.adapt"];
        self.effect != Effect::Steers && self.name != "connPriority" || STEERING.contains(&self.name)
    }

    /// True if a peer may ask this end for it.
    pub fn is_for_peers(&self) -> bool {
        !matches!(self.peers, ForPeers::Never)
    }

    /// Sets it as a peer asks an end with requirements of its `own`.
    pub(super) fn set_for_peer(
        &self,
        own: &Requirements,
        requirements: &mut Requirements,
        text: &str,
    ) -> Result<(), RequirementError> {
        let refused = |why| Err(RequirementError::NotForPeers { name: self.name.to_owned(), why });
        let mut changed = requirements.clone();
        self.set(&mut changed, text)?;
        match self.peers {
            ForPeers::Never => return refused("is for each end to choose for itself"),
            ForPeers::Unless(is_kept) => {
                if is_kept(own) && (self.show)(own) != (self.show)(&changed) {
                    return refused("was set at the other end, which keeps to it");
                }
            }
            ForPeers::Within(bound) => bound(own, &mut changed),
        }
        *requirements = changed;
        Ok(())
    }

    /// Takes its value over from other requirements.
    pub(crate) fn copy(&self, from: &Requirements, to: &mut Requirements) {
        // What one has shown the other can read.
        let _ = (self.parse)(to, &(self.show)(from));
    }

    /// Why its present value is not offered, if it is not.
    pub fn refused(&self, requirements: &Requirements) -> Option<&'static str> {
        (self.refuse)(requirements)
    }
}

/// The property of that name.
pub(super) fn find(name: &str) -> Option<&'static Property> {
    PROPERTIES.iter().find(|p| p.name == name)
}

/// The error for a name that is not in the table.
pub(super) fn unknown(name: &str, value: &str) -> RequirementError {
    if let Some((_, why)) = ELSEWHERE.iter().find(|(known, _)| *known == name) {
        return RequirementError::NotOffered { name: name.to_owned(), value: value.to_owned(), why };
    }
    let known = PROPERTIES.iter().map(|p| p.name).chain([super::NAMED, super::PREFIX]);
    RequirementError::Unknown {
        name: name.to_owned(),
        nearest: super::nearest(name, known).map(str::to_owned),
    }
}

const PREFERENCE: &str = "a preference (require, prefer, no-preference, avoid, prohibit)";
const MILLIS: &str = "a time in milliseconds (or with a unit: us, ms, s, min, h, d), or `infinite`";
const PLAYOUT: &str = "a time in milliseconds (or with a unit: us, ms, s), of 1 ms to 10 s, or `none`";
const SECONDS: &str = "a time in seconds (or with a unit: us, ms, s, min, h, d), or `disabled`";
const COVERAGE: &str = "a number of bytes, or `full-coverage`";
const RATE: &str = "a rate in bit/s (or with a unit: kbit/s, Mbit/s, MB/s), or `unlimited`";

/// The lower of two rates, of which `None` is no bound.
fn lower(a: Option<Rate>, b: Option<Rate>) -> Option<Rate> {
    a.into_iter().chain(b).min()
}

fn offered(_: &Requirements) -> Option<&'static str> {
    None
}

const fn property(
    name: &'static str,
    expected: &'static str,
    effect: Effect,
    what: &'static str,
    parse: Parser,
    show: fn(&Requirements) -> String,
) -> Property {
    Property {
        name,
        expected,
        effect,
        fixed: false,
        what,
        peers: ForPeers::Never,
        parse,
        show,
        refuse: offered,
    }
}

impl Property {
    const fn fixed(mut self) -> Self {
        self.fixed = true;
        self
    }

    const fn for_peers(mut self) -> Self {
        self.peers = ForPeers::Unless(|_| false);
        self
    }

    const fn for_peers_unless(mut self, is_kept: fn(&Requirements) -> bool) -> Self {
        self.peers = ForPeers::Unless(is_kept);
        self
    }

    const fn for_peers_within(mut self, bound: fn(&Requirements, &mut Requirements)) -> Self {
        self.peers = ForPeers::Within(bound);
        self
    }

    const fn refused_if(mut self, refuse: Refusal) -> Self {
        self.refuse = refuse;
        self
    }
}

macro_rules! preference {
    ($name:literal, $field:ident, $effect:ident, $what:literal) => {
        property(
            $name,
            PREFERENCE,
            Effect::$effect,
            $what,
            |r, v| Preference::parse(v).map(|p| r.$field = p),
            |r| r.$field.to_string(),
        )
    };
}

macro_rules! word {
    ($name:literal, $field:ident: $ty:ty, $expected:literal, $effect:ident, $what:literal) => {
        property(
            $name,
            $expected,
            Effect::$effect,
            $what,
            |r, v| <$ty>::parse(v).map(|w| r.$field = w),
            |r| r.$field.to_string(),
        )
    };
}

macro_rules! time {
    ($name:literal, $field:ident, millis, $effect:ident, $what:literal) => {
        time!($name, $field, MILLIS, "ms", "infinite", $effect, $what)
    };
    ($name:literal, $field:ident, seconds, $effect:ident, $what:literal) => {
        time!($name, $field, SECONDS, "s", "disabled", $effect, $what)
    };
    ($name:literal, $field:ident, $expected:expr, $bare:literal, $never:literal, $effect:ident, $what:literal) => {
        property(
            $name,
            $expected,
            Effect::$effect,
            $what,
            |r, v| value::duration(v, $bare, $never).map(|d| r.$field = d),
            |r| value::show_duration(r.$field, $never),
        )
    };
}

macro_rules! rate {
    ($name:literal, $field:ident, $effect:ident, $what:literal) => {
        property(
            $name,
            RATE,
            Effect::$effect,
            $what,
            |r, v| value::rate(v).map(|x| r.$field = x),
            |r| value::show_rate(r.$field),
        )
    };
}

/// All properties that can be set from text. Properties of RFC 9622 come first, in its order.
pub static PROPERTIES: &[Property] = &[
    preference!("reliability", reliability, Steers, "all data arrives").for_peers(),
    preference!(
        "preserveMsgBoundaries",
        preserve_msg_boundaries,
        Steers,
        "the receiver gets messages as they were sent"
    )
    .for_peers(),
    preference!("perMsgReliability", per_msg_reliability, Steers, "each message says whether it must arrive")
        .for_peers(),
    preference!("preserveOrder", preserve_order, Steers, "data is handed over in the order of sending")
        .for_peers(),
    preference!("zeroRttMsg", zero_rtt_msg, Accepted, "a message in the first packet").fixed().refused_if(
        |r| {
            (r.zero_rtt_msg == Preference::Require)
                .then_some("UTS sends no application data before the handshake has authenticated the peer")
        },
    ),
    preference!("multistreaming", multistreaming, Connection, "a group of connections shares one"),
    preference!("fullChecksumSend", full_checksum_send, Steers, "damage to anything sent is detected"),
    preference!("fullChecksumRecv", full_checksum_recv, Steers, "damage to anything received is detected"),
    preference!("congestionControl", congestion_control, Steers, "the sender yields to congestion"),
    preference!("keepAlive", keep_alive, Connection, "an idle connection is kept alive"),
    preference!(
        "useTemporaryLocalAddress",
        use_temporary_local_address,
        Accepted,
        "temporary local addresses are used"
    )
    .fixed(),
    property(
        "multipath",
        "`disabled`, `passive` or `active`",
        Effect::Accepted,
        "several paths at once",
        |_, v| match v.to_ascii_lowercase().as_str() {
            "disabled" | "passive" => Ok(()),
            "active" => Err("UTS uses one path at a time".to_owned()),
            _ => Err(String::new()),
        },
        |_| "disabled".to_owned(),
    )
    .fixed(),
    word!(
        "direction",
        direction: Direction,
        "`bidirectional`, `unidirectional-send` or `unidirectional-receive`",
        Connection,
        "which way data flows"
    )
    .fixed(),
    preference!("softErrorNotify", soft_error_notify, Connection, "ICMP errors are reported"),
    preference!(
        "activeReadBeforeSend",
        active_read_before_send,
        Connection,
        "the initiator is not the first to write"
    )
    .fixed(),
    property(
        "connPriority",
        "a whole number from 0 (most important)",
        Effect::Connection,
        "importance among the flows of a connection",
        |r, v| value::number(v).map(|n| r.conn_priority = n),
        |r| r.conn_priority.to_string(),
    )
    .for_peers(),
    time!(
        "connTimeout",
        conn_timeout,
        seconds,
        Connection,
        "a connection without acknowledgement for this long has failed"
    ),
    time!(
        "keepAliveTimeout",
        keep_alive_timeout,
        seconds,
        Connection,
        "a keep-alive is sent after this idle time"
    ),
    word!(
        "connScheduler",
        conn_scheduler: super::Scheduler,
        "`weighted-fair-queueing`, `fair-capacity`, `priority` or `earliest-deadline`",
        Connection,
        "how the flows of a connection share it"
    )
    .for_peers(),
    word!(
        "connCapacityProfile",
        conn_capacity_profile: super::CapacityProfile,
        "a capacity profile (default, scavenger, low-latency-interactive, low-latency-non-interactive, \
         constant-rate, capacity-seeking)",
        Steers,
        "what is expected of capacity and delay"
    )
    .for_peers_unless(|own| own.conn_capacity_profile == super::CapacityProfile::Scavenger),
    rate!("minSendRate", min_send_rate, Steers, "the rate that sending needs"),
    rate!("minRecvRate", min_recv_rate, Connection, "the rate that receiving needs"),
    rate!("maxSendRate", max_send_rate, Steers, "the rate that sending never exceeds")
        .for_peers_within(|own, asked| asked.max_send_rate = lower(own.max_send_rate, asked.max_send_rate)),
    rate!("maxRecvRate", max_recv_rate, Connection, "the rate that receiving never exceeds")
        .for_peers_within(|own, asked| asked.max_recv_rate = lower(own.max_recv_rate, asked.max_recv_rate)),
    time!("msgLifetime", msg_lifetime, millis, Steers, "an undelivered message is worthless after this time")
        .for_peers(),
    property(
        "msgChecksumLen",
        COVERAGE,
        Effect::Steers,
        "how many bytes of a message have to arrive undamaged",
        |r, v| value::coverage(v).map(|bytes| r.msg_checksum_len = bytes),
        |r| value::show_coverage(r.msg_checksum_len),
    ),
    property(
        "recvChecksumLen",
        COVERAGE,
        Effect::Connection,
        "how many bytes of a message have to be right for it to be handed over",
        |r, v| value::coverage(v).map(|bytes| r.recv_checksum_len = bytes),
        |r| value::show_coverage(r.recv_checksum_len),
    ),
    time!("uts.maxDelay", max_delay, millis, Steers, "the longest time from `send` to `receive`, one way"),
    time!(
        "uts.maxJitter",
        max_jitter,
        millis,
        Steers,
        "how much later than the mean the slowest percent may be"
    ),
    property(
        "uts.playoutDelay",
        PLAYOUT,
        Effect::Steers,
        "messages are handed over so long after they were made, at the most, in the pace of their making",
        |r, v| value::playout_delay(v).map(|delay| r.playout_delay = delay),
        |r| value::show_duration(r.playout_delay, "none"),
    )
    .for_peers(),
    property(
        "uts.degradation",
        "a list of qualities (reliability, order, delay, jitter, rate), separated by commas",
        Effect::Steers,
        "what may be given up, the first before the second",
        |r, v| {
            let list = if v.eq_ignore_ascii_case("none") { Vec::new() } else { value::qualities(v)? };
            r.degradation = list;
            Ok(())
        },
        |r| value::show_qualities(&r.degradation),
    ),
    word!(
        "uts.security",
        security: Security,
        "`required` or `unprotected`",
        Steers,
        "whether packets are encrypted and authenticated"
    )
    .fixed(),
    property(
        "uts.adapt",
        "`on` or `off`",
        Effect::Steers,
        "whether mechanisms are exchanged when the path changes",
        |r, v| value::switch(v).map(|on| r.adapt = on),
        |r| (if r.adapt { "on" } else { "off" }).to_owned(),
    ),
    word!(
        "uts.exchange",
        exchange: super::ExchangeMode,
        "`explicit`, `implicit` or `automatic`",
        Connection,
        "whether other mechanisms are used once the peer agrees, at once, or at once where it must agree"
    ),
    property(
        "uts.expedited",
        "`on` or `off`",
        Effect::Connection,
        "messages of a few bytes may pass all other data of their flow",
        |r, v| value::switch(v).map(|on| r.expedited = on),
        |r| (if r.expedited { "on" } else { "off" }).to_owned(),
    )
    .fixed(),
    property(
        "uts.consent",
        "`none`, `all`, or a list of function/mechanism, separated by commas",
        Effect::Connection,
        "mechanisms that the peer may ask for, though this end would not choose them",
        |r, v| super::Consents::parse(v).map(|consents| r.consents = consents),
        |r| r.consents.to_string(),
    ),
];

/// Properties of RFC 9622 that cannot be set from text, and why.
const ELSEWHERE: &[(&str, &str)] = &[
    ("interface", "the operating system's routing chooses the interface"),
    ("pvd", "UTS knows no provisioning domains"),
    ("advertisesAltaddr", "UTS uses one path at a time"),
    ("multipathPolicy", "UTS uses one path at a time"),
    ("groupConnLimit", "the peer's flow limit bounds a group"),
    ("isolateSession", "UTS resumes no sessions"),
    ("allowedSecurityProtocols", "UTS has TLS 1.3 only; see uts.security"),
    ("serverCertificate", "identities are files or keys given to the endpoint"),
    ("clientCertificate", "identities are files or keys given to the endpoint"),
    ("pinnedServerCertificate", "identities are files or keys given to the endpoint"),
    ("alpn", "it is always that of UTS"),
    ("supportedGroup", "TLS 1.3 negotiates it"),
    ("ciphersuite", "see uts.profile.protection"),
    ("signatureAlgorithm", "TLS 1.3 negotiates it"),
    ("maxCachedSessions", "UTS resumes no sessions"),
    ("cachedSessionLifetimeSeconds", "UTS resumes no sessions"),
    ("preSharedKey", "UTS authenticates with public keys"),
];
