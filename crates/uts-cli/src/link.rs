//! Interface that the program needs of a transport. The rest of the program is written against
//! these traits.

use crate::given::PathGiven;
use crate::target::Host;
use crate::ui::record::Peer;
use serde_json::{Value, json};
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use uts::KeyExchange;
use uts_units::show;

pub use uts_tunnel::link::{Broken, Carrying, STOPPING};

/// Means by which a client recognizes the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTrust {
    /// It has this key (`SHA256:…`).
    Pin(String),
    /// It has this key, which is kept once it has shown it; `None` = in the user's own file.
    PinKept(String, Option<PathBuf>),
    /// It has the key that it had before; `None` = the user's own file.
    KnownHosts(Option<PathBuf>),
    /// Its certificate leads to a root in this PEM file.
    Ca(PathBuf),
}

/// Options for connecting to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Means to recognize the server.
    pub trust: ServerTrust,
    /// The client's key, made if it is not there; `None` = the user's own, if there is one.
    pub key: Option<PathBuf>,
    /// The name that a certificate must be for; `None` = the host.
    pub server_name: Option<String>,
    /// Way in which secrets are agreed on.
    pub key_exchange: KeyExchange,
    /// Properties that are asked of the transport, by name and value.
    pub properties: Vec<(String, String)>,
    /// Which of the server's services is asked for; empty = its files.
    pub service: &'static str,
    /// The connection is kept for so long while nothing is heard of the server, if the server does
    /// as well; zero = as those of copies.
    pub silence_max: Duration,
    /// Flows that the peer may open at once, each with small buffers; `None` = as for copies.
    pub flows_max: Option<u32>,
    /// Somebody can be asked about the key of an unknown server.
    pub interactive: bool,
    /// The key of an unknown server is accepted and kept without asking.
    pub accept_new: bool,
    /// Where what the connection does is written as qlog.
    pub qlog: Option<PathBuf>,
}

/// Meaning of `--classical`.
pub fn key_exchange(is_classical: bool) -> KeyExchange {
    if is_classical { KeyExchange::Classical } else { KeyExchange::Hybrid }
}

/// Identity that a server shows to its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerIdentity {
    /// A key, made if it is not there; `None` = the server key of the user.
    Key(Option<PathBuf>),
    /// An X.509 chain and its private key.
    Certificate {
        /// PEM.
        chain: PathBuf,
        /// PEM.
        key: PathBuf,
    },
}

/// Most connections of a server at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// In all.
    pub all: usize,
    /// From one address.
    pub per_address: usize,
    /// Of one client's key.
    pub per_key: usize,
}

/// Options for listening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Addresses to try, the first that can be had is taken.
    pub addresses: Vec<SocketAddr>,
    /// Identity that clients are shown.
    pub identity: ServerIdentity,
    /// Way in which secrets are agreed on.
    pub key_exchange: KeyExchange,
    /// If given, only clients with these keys are let in.
    pub authorized_keys: Option<PathBuf>,
    /// Most connections at once.
    pub limits: Limits,
    /// Tasks that carry them, 1 to [`uts::WORKERS_MAX`].
    pub workers: usize,
    /// Properties that are asked of the transport for what the server sends, by name and value.
    pub properties: Vec<(String, String)>,
    /// Connections that do nothing, and whose peers are not heard, are kept for so long if their
    /// clients ask for it.
    pub silence_max: Duration,
    /// Flows that a client may open at once, each with small buffers; `None` = as for copies.
    pub flows_max: Option<u32>,
    /// Where what connections do is written as qlog.
    pub qlog: Option<PathBuf>,
}

/// Figures of a connection, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Telemetry {
    /// Rate of what goes or comes now, in bits of content per second.
    pub rate_bps: f64,
    /// Smoothed round trip, in milliseconds.
    pub rtt_ms: f64,
    /// Share of packets lost, 0 to 1.
    pub loss: f64,
    /// The profile now in use, in a few words: `cubic, no fec`.
    pub profile: String,
    /// Packets sent, repetitions and parity included.
    pub packets_sent: u64,
    /// Packets that were given up as lost.
    pub packets_lost: u64,
    /// Packets whose content had been sent before.
    pub packets_repeated: u64,
    /// Lost packets that were rebuilt from parity.
    pub packets_repaired: u64,
    /// Exchanges of mechanisms that came into force.
    pub exchanges: u64,
}

impl Telemetry {
    /// These figures, with what was counted on an earlier connection.
    #[must_use]
    pub fn after(self, before: &Telemetry) -> Telemetry {
        Telemetry {
            packets_sent: self.packets_sent + before.packets_sent,
            packets_lost: self.packets_lost + before.packets_lost,
            packets_repeated: self.packets_repeated + before.packets_repeated,
            packets_repaired: self.packets_repaired + before.packets_repaired,
            exchanges: self.exchanges + before.exchanges,
            ..self
        }
    }
}

/// A step of an exchange of mechanisms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExchangeStep {
    /// `requested`, `completed`, `refused`, `failed`, `brought` or `granted`.
    pub step: &'static str,
    /// `out` or `in`; empty where it is not known.
    pub direction: &'static str,
    /// The group of flows; 0 = those without requirements of their own.
    pub group: u8,
    /// The epoch that it is about.
    pub epoch: u32,
    /// Observation that led to it.
    pub seen: String,
    /// Facts of the path that it was decided on, as `uts explain --path` reads them.
    pub path: String,
    /// Change that it makes.
    pub changes: String,
    /// Effect that is expected of it.
    pub expects: String,
    /// From request to agreement, in milliseconds.
    pub took_ms: Option<f64>,
    /// The profile that is now in use.
    pub profile: String,
    /// Result that it brought, or reason why it was refused.
    pub line: String,
}

impl ExchangeStep {
    /// The step in one line for people.
    pub fn describe(&self) -> String {
        let epoch = self.epoch;
        match self.step {
            "requested" if self.seen.is_empty() => {
                format!("exchange {epoch}: asked for; changes {}", self.changes)
            }
            "requested" => {
                let expects =
                    if self.expects.is_empty() { "" } else { &format!("; expects {}", self.expects) };
                format!("exchange {epoch}: saw {}; changes {}{expects}", self.seen, self.changes)
            }
            "completed" => {
                let took = self.took_ms.map_or_else(String::new, |ms| format!(" after {ms:.0} ms"));
                format!("exchange {epoch} in force{took}: {}", self.profile)
            }
            "granted" => format!("exchange {epoch} of the peer: changes {}", self.changes),
            "brought" => format!("exchange {epoch} brought: {}", self.line),
            "failed" => format!("exchange {epoch} failed: no answer; the old profile goes on"),
            step => format!("exchange {epoch} {step}: {}; the old profile goes on", self.line),
        }
    }
}

/// An exchange in words: what was seen, what was changed, what that was expected to bring, and what
/// it has brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sentence {
    saw: String,
    changed: String,
    expects: String,
    brought: String,
}

impl Sentence {
    /// Goes on with the next step of an exchange.
    pub fn note(&mut self, step: &ExchangeStep) {
        match step.step {
            "requested" => {
                let [saw, changed, expects] = [&step.seen, &step.changes, &step.expects].map(Clone::clone);
                *self = Sentence { saw, changed, expects, brought: String::new() };
            }
            "granted" => {
                let saw = "what the peer saw".to_owned();
                *self = Sentence { saw, changed: step.changes.clone(), ..Sentence::default() };
            }
            "brought" | "refused" => self.brought.clone_from(&step.line),
            "failed" => "no answer".clone_into(&mut self.brought),
            _ => {}
        }
    }

    /// Its parts by their names.
    pub fn fields(&self) -> Value {
        let Sentence { saw, changed, expects, brought } = self;
        json!({"saw": saw, "changed": changed, "expects": expects, "brought": brought})
    }
}

/// Event of a connection.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkEvent {
    /// A step of an exchange.
    Exchange(ExchangeStep),
    /// Something is expected of the peer, and nothing has been heard from it for this long.
    Silent(Duration),
    /// It was heard again, after this long.
    Heard(Duration),
    /// An end is reached at another address; it is the peer, or this one.
    Moved(String),
    /// Something that was asked does nothing, and why.
    NoEffect(String),
    /// It ended, and why.
    Closed(String),
}

impl LinkEvent {
    /// Kind of the event and a line about it, if it is one to be noticed.
    pub fn notice(self) -> Option<(&'static str, String)> {
        let seconds = |time: Duration| show::seconds(time.as_secs_f64());
        match self {
            LinkEvent::Silent(silent) => {
                Some(("silent", format!("no answer for {}; asking", seconds(silent))))
            }
            LinkEvent::Heard(silent) => Some(("heard", format!("answers again after {}", seconds(silent)))),
            LinkEvent::Moved(line) => Some(("moved", line)),
            LinkEvent::NoEffect(what) => Some(("no effect", what)),
            LinkEvent::Exchange(_) | LinkEvent::Closed(_) => None,
        }
    }
}

/// A connection. Clones are the same connection.
pub trait Link: Carrying {
    /// Connection that it is made of, for flows of messages, or with properties of their own;
    /// `None` if its flows have none.
    fn connection(&self) -> Option<uts::Connection>;
    /// Its figures now.
    fn telemetry(&self) -> Telemetry;
    /// Bytes that were handed over and have not arrived yet; `None` once it has ended.
    fn undelivered_bytes(&self) -> Option<u64>;
    /// Bytes of content that have come in so far, and that have gone out.
    fn content_bytes(&self) -> [u64; 2];
    /// Events of the connection from now on.
    fn events(&self) -> UnboundedReceiver<LinkEvent>;
    /// Which service a client has asked for; empty = files.
    fn service(&self) -> String;
    /// The peer's address, and its key if it has shown one.
    fn peer(&self) -> (String, Option<String>);
    /// Writes what happens to each packet to a file from now on: CSV with the header
    /// `t_s,kind,number,bytes,flow,position` and the kinds `sent`, `repeat`, `acked`, `lost`.
    fn trace(&self, file: &Path) -> Result<(), String>;
    /// Ends it, telling the peer why; returns when the peer has been told.
    fn close(&self, code: u64, reason: &str) -> impl Future<Output = ()> + Send;
}

/// A client that a server has not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnedAway {
    /// Which; `None` = several.
    pub peer: Option<Peer>,
    /// Why, for people.
    pub why: String,
}

/// A server's socket.
pub trait Listener: Send + 'static {
    /// Its connections.
    type Link: Link;

    /// Where it listens.
    fn local_addr(&self) -> SocketAddr;
    /// Fingerprint that clients pin.
    fn fingerprint(&self) -> String;
    /// The next client, or one that was not let in; `None` when it is closed.
    fn accept(&mut self) -> impl Future<Output = Option<Result<Self::Link, TurnedAway>>> + Send;
    /// Has other limits from now on.
    fn set_limits(&self, limits: Limits);
    /// Has another file say whose clients are let in.
    ///
    /// # Errors
    /// Why it cannot be read; then nothing has changed.
    fn set_authorized_keys(&self, file: &Path) -> Result<(), String>;
    /// Number of clients so far that were refused for want of a place.
    fn refused(&self) -> u64;
    /// Number of connections, those of handshakes and of an end included.
    fn connections(&self) -> usize;
    /// Begins to hand the port over to another process.
    ///
    /// # Errors
    /// Why that cannot be, in one line; then nothing has changed.
    fn hand_over(&self) -> impl Future<Output = Result<(uts::Handover, uts::TakenOver), String>> + Send;
    /// Handle by which a watchdog finds out if connections are carried.
    fn pulse(&self) -> uts::Pulse;
    /// Ends all connections and frees the socket.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// A transport. All errors are one line for people.
pub trait Transport: Send + Sync + 'static {
    /// Its connections.
    type Link: Link;
    /// Its sockets of servers.
    type Listener: Listener<Link = Self::Link>;

    /// Connects to a server.
    fn connect(
        &self,
        host: &Host,
        options: &ConnectOptions,
    ) -> impl Future<Output = Result<Self::Link, Broken>> + Send;
    /// Becomes a server, at the port of another process if that is given.
    fn listen(
        &self,
        options: &ListenOptions,
        port: Option<uts::TakenOver>,
    ) -> impl Future<Output = Result<Self::Listener, String>> + Send;
    /// Makes a key unless there is one; its place, its fingerprint, and whether it is new.
    fn keygen(&self, file: Option<&Path>) -> Result<(PathBuf, String, bool), String>;
    /// The fingerprint of a key, or the one that ssh shows of it.
    fn fingerprint(&self, file: Option<&Path>, is_of_ssh: bool) -> Result<String, String>;
    /// The profile that properties lead to on a path, as text or as one JSON object; or why a
    /// mechanism is not in it.
    fn explain(
        &self,
        properties: &[(String, String)],
        path: &PathGiven,
        why_not: Option<&str>,
        json: bool,
    ) -> Result<String, String>;
}
