//! A UTS endpoint without IO.
//!
//! The engine has no socket, no clock and no random source: datagrams, time and seeds are handed
//! in. What is tested in virtual time is, line for line, what runs on the network.
//!
//! **Mutate, then drain.** After any call that takes something in ([`Endpoint::handle_datagram`],
//! [`Endpoint::handle_timeout`], anything on a [`Connection`]), drain [`Endpoint::poll_transmit`]
//! and [`Endpoint::poll_event`] until they are empty, then ask [`Endpoint::poll_timeout`] when to
//! come back.
//!
//! * [`requirements`], [`selector`]: what the application asks, and the profile that follows;
//! * [`synthesis`]: from a profile to the stack that runs;
//! * [`connection`]: the two ways as lists (`connection/hub.rs`), what they share, and parts that
//!   have frames of their own;
//! * `consent`: what an end agrees to when its peer asks;
//! * [`exchange`]: how two ends agree on another profile; [`policy`]: when to want one;
//! * [`host`]: what is known of the machine, for the policy;
//! * [`mapping`]: numbers of the wire that an administrator gives;
//! * [`endpoint`]: many connections behind one address;
//! * [`probe`]: the points that a packet passes, for those who measure where its time goes.
#![forbid(unsafe_code)]

pub(crate) mod appraisal;
mod bug;
pub mod config;
pub mod connection;
pub(crate) mod consent;
pub mod endpoint;
pub mod event;
pub mod exchange;
pub mod host;
pub mod mapping;
pub mod named;
pub mod policy;
pub mod probe;
pub mod requirements;
pub mod selector;
pub mod sync;
pub(crate) mod synthesis;
mod token;

pub use bug::bugs;
pub use config::{
    ALPN, CLIENT_CID_BYTES, ConnectionConfig, EndpointConfig, SERVER_CID_BYTES, SERVICE_BYTES_MAX,
};
pub use connection::words::CERTIFICATE as CERTIFICATE_WORDS;
pub use connection::{
    After, Connection, EARLY_BYTES_MAX, EarlyError, EarlyRequest, Ecn, ExchangeError, FindMemory, FlowError,
    FlowOptions, FrameKinds, HandshakeLevel, HandshakeRow, IntoBatch, Made, Memory, MessageBatch,
    MessageOptions, Presented, Read, ReadError, ReadSink, Side, Stats, Trace, TraceKind, TraceRow,
    UnevenMessages, WriteError,
};
pub use endpoint::{ConnectError, Endpoint, STEERING_BYTES, Transmit, WORKERS_MAX, Worker, worker_of};
pub use event::{
    CloseReason, ConnectionHandle, Direction, Event, ExchangeEvent, FlowId, Tried, code_shown, seconds,
};
pub use host::{BadHostFact, HOST_NAMES, HostFacts, UNKNOWN};
pub use mapping::{BadMapping, MAPPING_BYTES_MAX, Mapping};
pub use probe::{Passage, Point, ProbeSink, Probes};
pub use uts_functions::playout::{Figures as PlayoutFigures, MediaTime, Timing};
pub use uts_wire::library::Ticket;
