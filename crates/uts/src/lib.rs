//! The Universal Transport System for async Rust: an end-to-end transport that is assembled to fit
//! what an application asks, and refitted in flight.
//!
//! A [`Listener`] accepts [`Connection`]s, [`connect`] opens them. Inside a connection are
//! [`Flow`]s: bytes (they are `AsyncRead` and `AsyncWrite`) or messages, both ways. Ends know each
//! other by their keys, as with ssh: see [`Identity`], [`Trust`], [`ClientAuth`]. An application
//! says what it needs by [`Requirements`], in the names of TAPS (RFC 9622). [`Connection::events`]
//! says what the transport makes of it, and when it exchanges mechanisms.
//!
//! All this runs in a runtime of tokio. `uts::blocking` has the same by calls that wait, without a
//! runtime. With the feature `simulation` it runs in virtual time too, over paths of every kind:
//! `uts::simulation`.
//!
//! ```
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use uts::{ConnectOptions, FlowOptions, Identity, Listener, ServerOptions, connect};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ServerOptions::new(Identity::generate()?);
//! let listener = Listener::bind("127.0.0.1:0".parse()?, server)?;
//! let target = listener.local_addr().to_string();
//! let options = ConnectOptions::pinned(listener.fingerprint());
//!
//! tokio::spawn(async move {
//!     while let Some(connection) = listener.accept().await {
//!         while let Some(flow) = connection.accept_flow().await {
//!             let (mut send, mut recv) = flow.split();
//!             tokio::io::copy(&mut recv, &mut send).await?;
//!             send.finished().await?;
//!         }
//!     }
//!     std::io::Result::Ok(())
//! });
//!
//! let connection = connect(&target, options).await?;
//! let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).await?.split();
//! send.write_all(b"hello").await?;
//! send.shutdown().await?;
//! let mut echo = String::new();
//! recv.read_to_string(&mut echo).await?;
//! assert_eq!(echo, "hello");
//! connection.close(0, "done").await;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod attempts;
mod authorized_keys;
#[cfg(unix)]
pub mod blocking;
pub mod call;
mod clock;
mod connection;
pub mod descriptor;
mod driver;
mod early;
mod endpoint;
mod fingerprint;
mod flow;
pub mod group;
pub mod host;
mod identity;
mod instance;
mod known_hosts;
pub mod levels;
mod listener;
mod machine;
pub mod moves;
mod probe;
pub mod race;
mod random;
mod roaming;
mod services;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
mod ssh_keys;
mod stats;
mod tls;
mod trace;
mod trust;
mod trusted_file;
mod x25519_by_aws_lc;
pub mod zone;

pub use authorized_keys::{AuthorizedKeys, AuthorizedKeysError};
pub use connection::{Connection, Events, PropertyError};
pub use driver::ConnectionEvent;
#[cfg(unix)]
pub use driver::succession::{Handover, Pulse, TakenOver};
pub use early::{Early, EarlyRequest, Ticket};
pub use endpoint::{ConnectError, ConnectOptions, Endpoint, connect};
pub use fingerprint::{Fingerprint, FingerprintError};
pub use flow::{Chunk, ExpeditedFlow, Flow, ReadError, RecvFlow, SendFlow, Stopped, WriteError};
pub use identity::{Identity, IdentityError};
pub use known_hosts::{KnownHost, KnownHosts, KnownHostsError};
pub use listener::{ListenError, Listener, ServerOptions};
pub use probe::ProbeLog;
pub use random::random_bytes;
pub use services::{Handler, NO_SUCH_SERVICE, NoSuchService, Services};
pub use ssh_keys::SshPublicKey;
pub use stats::Stats;
pub use tls::KeyExchange;
pub use trust::{ClientAuth, ClientAuthError, NewHost, NewHostKey, RefusedClient, Trust, TrustError};
pub use trusted_file::{make_key_log, open_trusted};

pub use uts_engine::WORKERS_MAX;
pub use uts_engine::bugs;
pub use uts_engine::requirements::{self, Requirements};
pub use uts_engine::selector::{Contradiction, Explanation, Library, explain};
pub use uts_engine::sync;
pub use uts_engine::{
    After, BadMapping, CloseReason, ConnectionConfig, Direction, EARLY_BYTES_MAX, EarlyError, ExchangeError,
    ExchangeEvent, FlowError, FlowId, FlowOptions, Made, Mapping, MediaTime, MessageBatch, MessageOptions,
    Passage, PlayoutFigures, Point, ProbeSink, Probes, Timing, TraceKind, TraceRow, Tried, UnevenMessages,
};
/// The library of functions: the traits of mechanisms, and where a program registers its own.
pub use uts_functions as functions;
pub use uts_functions::{Function, PathFacts, Profile, Rate, Time};
/// Counts and bounds of what a process holds for its peers.
pub use uts_ledger as ledger;
pub use uts_units::printable;

/// The guide's programs compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
mod guide {}
