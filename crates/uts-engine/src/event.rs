//! Events that an endpoint tells its application.

use bytes::Bytes;
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use uts_functions::{Function, Profile, Rate};
use uts_wire::library::Ticket;

/// A connection of an endpoint; never reused while the endpoint lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionHandle(pub u64);

/// A flow of a connection. Flows of the client are even, of the server odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u32);

/// The direction of data, as seen by this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Data that this end sends.
    Out,
    /// Data that the peer sends.
    In,
}

/// Event on a connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The handshake is done: the peer is authenticated, flows may be opened.
    Connected,
    /// The peer opened a flow.
    FlowOpened(FlowId),
    /// A flow has something to read (data, its end, or that it was reset).
    Readable(FlowId),
    /// An expedited message has come in a flow.
    Expedited(FlowId),
    /// A flow takes data again after it had been full.
    Writable(FlowId),
    /// Everything written to the flow, its end included, has been acknowledged or given up.
    Finished(FlowId),
    /// The peer wants no more data on this flow, and says why.
    Stopped(FlowId, u64),
    /// The peer did not agree to the requirements of this flow, for this reason. The flow was
    /// reset.
    Refused(FlowId, String),
    /// An exchange began, was agreed, refused, or brought something.
    Exchange(Box<ExchangeEvent>),
    /// The path now carries packets of this many bytes of UDP payload.
    PacketSize(usize),
    /// Something is expected of the peer, and nothing has been heard from it for this long: 3 s or
    /// three probe time-outs, whichever is longer; less if the network says that nobody listens
    /// there. The connection goes on, and is probed. (timing.md R-14)
    Silent(Duration),
    /// After [`Event::Silent`] the peer was heard again; it had been silent for this long.
    Heard(Duration),
    /// An end is reached at another address, and both have proved it: packets go on from there.
    /// (migration.md M-4)
    Moved {
        /// Where the peer is.
        remote: SocketAddr,
        /// It is the peer that has moved; else this end.
        is_peer: bool,
    },
    /// This property asks for something that the profile in use cannot give: `maxRecvRate`, where
    /// the peer sends without flow control (flow/none), so that nothing can hold it back. Told
    /// once.
    NoEffect(&'static str),
    /// This end may send so much from now on, in UDP payload: it differs by more than a tenth from
    /// what was told before. Told to those who ask for it, by
    /// [`Connection::want_rate`](crate::Connection::want_rate).
    MaySend(Rate),
    /// The answer to the early request of this end, or that there is none: then the request is to
    /// be made again, by a flow. Told once, if there was a request. (K-28)
    EarlyAnswer(Option<Bytes>),
    /// Leave for an early request to the same server, with a later connection. (K-23)
    Ticket(Box<Ticket>),
    /// The connection has ended; nothing follows.
    Closed(CloseReason),
}

/// A step of an exchange of mechanisms.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ExchangeEvent {
    /// This end asked for another profile.
    Requested {
        /// Direction of the data that it governs.
        direction: Direction,
        /// Group of flows; 0 is the group of flows without requirements of their own.
        group: u8,
        /// The epoch that it would become.
        epoch: u32,
        /// Facts that were seen, in one line; empty if the application asked.
        seen: String,
        /// All facts of the path that it was decided on, as `uts explain --path` reads them; empty
        /// if none were.
        path: String,
        /// Changes of the profile, in one line.
        changes: String,
        /// Effect that is expected of it, in one line.
        expects: String,
    },
    /// The peer asked for another profile, and this end accepted it.
    Granted {
        /// Direction of the data that it governs.
        direction: Direction,
        /// Group of flows; 0 is the group of flows without requirements of their own.
        group: u8,
        /// The epoch.
        epoch: u32,
        /// Changes of the profile, in one line.
        changes: String,
        /// The new profile.
        profile: Profile,
    },
    /// An exchange that this end had asked for is in force.
    Completed {
        /// Direction of the data that it governs.
        direction: Direction,
        /// Group of flows; 0 is the group of flows without requirements of their own.
        group: u8,
        /// The epoch.
        epoch: u32,
        /// The new profile.
        profile: Profile,
        /// From the first request to the agreement.
        took: Duration,
    },
    /// The peer refused; the old profile goes on.
    Refused {
        /// Direction of the data that it would have governed.
        direction: Direction,
        /// Group of flows that it was for.
        group: u8,
        /// The epoch that did not come to be.
        epoch: u32,
        /// The function that the peer objects to.
        function: Function,
        /// Why, in words.
        why: String,
    },
    /// The peer did not answer; the old profile goes on.
    Failed {
        /// Direction of the data that it would have governed.
        direction: Direction,
        /// Group of flows that it was for.
        group: u8,
        /// The epoch that did not come to be.
        epoch: u32,
    },
    /// Effect of an exchange, against what was expected, in one line.
    Brought {
        /// The epoch.
        epoch: u32,
        /// The comparison.
        line: String,
    },
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// This end closed it.
    #[error("closed here{}", said(reason, *code))]
    Local {
        /// The application's code.
        code: u64,
        /// The application's words.
        reason: String,
    },
    /// The peer's application closed it.
    #[error("closed by the peer{}", said(reason, *code))]
    Peer {
        /// The application's code.
        code: u64,
        /// The application's words.
        reason: String,
    },
    /// Nothing was heard from the peer for the idle time-out.
    #[error("nothing heard from the peer for {}", seconds(.0))]
    IdleTimeout(Duration),
    /// The handshake did not finish in time.
    #[error("{} within {} ({tried})", if tried.heard == 0 { "no answer to the handshake" } else { "no end of the handshake" }, seconds(.after))]
    HandshakeTimeout {
        /// Time that this end waited.
        after: Duration,
        /// Record of what it did meanwhile.
        tried: Tried,
    },
    /// The handshake did not finish in time, and what arrived instead can be from anybody who sees
    /// the path.
    #[error("no answer to the handshake within {}; what came instead is not authenticated: {said}", seconds(.after))]
    Unconfirmed {
        /// Time that this end waited.
        after: Duration,
        /// Record of what it did meanwhile.
        tried: Tried,
        /// Reason that it was told first.
        #[source]
        said: Box<CloseReason>,
    },
    /// TLS failed: identity not accepted, no common cipher …
    #[error("{0}")]
    Tls(String),
    /// The peer speaks other versions.
    #[error("the peer speaks version {theirs}, this end speaks version {ours}")]
    Version {
        /// Version that this end speaks.
        ours: String,
        /// Versions that the peer offers.
        theirs: String,
    },
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
    /// The peer has lost all state of the connection: it was started again, or it has given the
    /// connection up, as an end does that has heard nothing for its idle time-out.
    #[error("the peer no longer knows this connection: it was started again, or has given it up meanwhile")]
    Reset,
    /// The peer refuses new connections at present, or this one.
    #[error("refused by the peer: {0}")]
    Refused(String),
}

impl CloseReason {
    /// The kind of error of input and output that is like it.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            CloseReason::Local { .. } => io::ErrorKind::NotConnected,
            CloseReason::Peer { .. } => io::ErrorKind::ConnectionAborted,
            CloseReason::IdleTimeout(_)
            | CloseReason::HandshakeTimeout { .. }
            | CloseReason::Unconfirmed { .. } => io::ErrorKind::TimedOut,
            CloseReason::Refused(_) | CloseReason::Tls(_) => io::ErrorKind::ConnectionRefused,
            CloseReason::Version { .. } => io::ErrorKind::Unsupported,
            CloseReason::Protocol(_) => io::ErrorKind::InvalidData,
            CloseReason::Reset => io::ErrorKind::ConnectionReset,
        }
    }

    /// True if the same may succeed if it is tried again: the connection ended for the path's sake,
    /// or because the peer is away or busy. False where an end has decided (it closed, refused,
    /// does not trust the other) or cannot do otherwise (its version, a broken protocol).
    pub fn is_worth_retrying(&self) -> bool {
        match self {
            CloseReason::IdleTimeout(_) | CloseReason::HandshakeTimeout { .. } | CloseReason::Reset => true,
            // Nobody has proved that the peer refuses. A server that has no room for more says so
            // like this.
            CloseReason::Unconfirmed { said, .. } => !matches!(**said, CloseReason::Version { .. }),
            CloseReason::Local { .. }
            | CloseReason::Peer { .. }
            | CloseReason::Tls(_)
            | CloseReason::Version { .. }
            | CloseReason::Protocol(_)
            | CloseReason::Refused(_) => false,
        }
    }
}

impl From<CloseReason> for io::Error {
    fn from(reason: CloseReason) -> Self {
        io::Error::new(reason.kind(), reason)
    }
}

/// Record of a handshake that was given up: what was sent, and what was heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Datagrams that this end sent.
    pub datagrams: u64,
    /// Bytes of UDP payload of the smallest and of the largest of them.
    pub bytes: (usize, usize),
    /// Authentic packets of the peer that arrived.
    pub heard: u64,
}

impl core::fmt::Display for Tried {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Tried { datagrams, bytes: (smallest, largest), heard } = self;
        let s = if *datagrams == 1 { "" } else { "s" };
        write!(f, "{datagrams} packet{s} sent, of {smallest}")?;
        if largest > smallest {
            write!(f, " to {largest}")?;
        }
        write!(f, " bytes, {heard} received")
    }
}

/// An application's words as it closes, behind what was closed, and its code unless that is 0.
fn said(reason: &str, code: u64) -> String {
    let words = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!("{words}{}", code_shown(code))
}

/// An application's code behind other words; nothing for 0, the code of an end in order.
pub fn code_shown(code: u64) -> String {
    if code == 0 { String::new() } else { format!(" (code {code})") }
}

/// A span of time for people: `10 s`, `0.3 s`.
pub fn seconds(span: &Duration) -> String {
    // To the millisecond, without zeros at the end.
    format!("{} s", (span.as_secs_f64() * 1e3).round() / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_path_has_ended_is_worth_another_try() {
        let after = Duration::from_secs(10);
        let tried = Tried { datagrams: 6, bytes: (548, 1200), heard: 0 };
        let unconfirmed = |said| CloseReason::Unconfirmed { after, tried, said: Box::new(said) };
        let version = || CloseReason::Version { ours: "UTS 2".into(), theirs: "UTS 3".into() };
        for reason in [
            CloseReason::IdleTimeout(after),
            CloseReason::HandshakeTimeout { after, tried },
            CloseReason::Reset,
            unconfirmed(CloseReason::Refused("it takes no new connections".into())),
        ] {
            assert!(reason.is_worth_retrying(), "{reason}");
        }
        for reason in [
            CloseReason::Local { code: 0, reason: String::new() },
            CloseReason::Peer { code: 1, reason: "done".into() },
            CloseReason::Tls("unknown key".into()),
            version(),
            CloseReason::Protocol("nonsense".into()),
            CloseReason::Refused("it does not accept this end's key".into()),
            unconfirmed(version()),
        ] {
            assert!(!reason.is_worth_retrying(), "{reason}");
        }
    }

    #[test]
    fn a_handshake_that_was_given_up_says_what_it_tried() {
        let tried = Tried { datagrams: 6, bytes: (548, 1200), heard: 0 };
        let reason = CloseReason::HandshakeTimeout { after: Duration::from_secs(10), tried };
        assert_eq!(
            reason.to_string(),
            "no answer to the handshake within 10 s (6 packets sent, of 548 to 1200 bytes, 0 received)"
        );
        let tried = Tried { datagrams: 1, bytes: (1200, 1200), heard: 2 };
        let reason = CloseReason::HandshakeTimeout { after: Duration::from_secs(60), tried };
        assert_eq!(
            reason.to_string(),
            "no end of the handshake within 60 s (1 packet sent, of 1200 bytes, 2 received)"
        );
    }

    #[test]
    fn ends_are_told_without_codes_that_say_nothing() {
        let peer = |code, reason: &str| CloseReason::Peer { code, reason: reason.to_owned() }.to_string();
        assert_eq!(peer(0, "done"), "closed by the peer: done");
        assert_eq!(peer(0, ""), "closed by the peer");
        assert_eq!(peer(7, "quota"), "closed by the peer: quota (code 7)");
        assert_eq!(CloseReason::Local { code: 7, reason: String::new() }.to_string(), "closed here (code 7)");
        let idle = CloseReason::IdleTimeout(Duration::from_millis(30_000)).to_string();
        assert_eq!(idle, "nothing heard from the peer for 30 s");
        assert_eq!(seconds(&Duration::from_nanos(300_000_001)), "0.3 s");
    }
}
