//! Interface of a transport under test to a workload.
//!
//! Everything of one end runs in one thread, so nothing here needs to be `Send`.

use crate::measure::Sample;
use bytes::Bytes;
use core::future::Future;
use core::pin::Pin;
use core::time::Duration;
use std::net::SocketAddr;
use std::rc::Rc;

/// A future that stays in its thread.
pub type Local<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Capabilities of a transport for an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Reliable, ordered streams of bytes.
    pub streams: bool,
    /// Messages that arrive whole or not at all.
    pub messages: bool,
    /// The largest message, in bytes.
    pub message_bytes_max: usize,
    /// The content is encrypted and the peer authenticated.
    pub protected: bool,
}

/// Why a transport did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The transport has no such thing (streams, messages).
    #[error("{0} is not offered by this transport")]
    Unsupported(&'static str),
    /// The peer closed, or the session ended in order.
    #[error("the session has ended")]
    Closed,
    /// Something went wrong, in the transport's own words.
    #[error("{0}")]
    Failed(String),
}

/// Results of a transport.
pub type Result<T> = core::result::Result<T, TransportError>;

/// A transport under test, with its settings.
pub trait Transport {
    /// Capabilities of the transport.
    fn capabilities(&self) -> Capabilities;

    /// Opens a session to a server.
    fn connect(&self, to: SocketAddr) -> Local<'_, Result<Rc<dyn Session>>>;

    /// Text that clients need to know this server: a fingerprint, a certificate; nothing if the
    /// transport does not authenticate.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Waits for sessions at an address; port 0 takes a free one.
    fn listen(&self, at: SocketAddr) -> Local<'_, Result<Box<dyn Listener>>>;
}

/// Where sessions arrive. Dropped, it takes no more; those that were accepted go on.
pub trait Listener {
    /// The address, with the port that was taken.
    fn address(&self) -> SocketAddr;

    /// The next session.
    fn accept(&mut self) -> Local<'_, Result<Rc<dyn Session>>>;
}

/// An association of two ends. Several streams, and messages beside them, may be in use at once.
///
/// Futures may be dropped before they are done when a run gives up. The session is then only closed
/// or dropped.
pub trait Session {
    /// Opens a stream in both directions. A transport without several streams (TCP) opens another
    /// connection.
    fn open(&self) -> Local<'_, Result<Stream>>;

    /// The next stream that the peer opened.
    fn accept(&self) -> Local<'_, Result<Stream>>;

    /// Sends a message. Waits while the transport has no room. After `lifetime` it is of no use any
    /// more, and a transport that can give it up then, does.
    fn send_message(&self, message: Bytes, lifetime: Option<Duration>) -> Local<'_, Result<()>>;

    /// The next message, in whatever order the transport delivers.
    fn receive_message(&self) -> Local<'_, Result<Bytes>>;

    /// Report of the transport on itself, for pictures; `None` if it tells nothing.
    fn status(&self) -> Option<Status>;

    /// Asks for a [`Sample::Packet`] of whatever happens to packets from now on. Most transports
    /// have nothing to report.
    fn record_packets(&self) {}

    /// Events since this was last asked, as [`Sample::Exchange`]. Most transports have nothing to
    /// report.
    fn take_samples(&self) -> Vec<Sample> {
        Vec::new()
    }

    /// Ends the session once everything that was sent has arrived, or cannot arrive any more. The
    /// peer's calls then end with [`TransportError::Closed`], after what it has not read yet.
    fn close(&self) -> Local<'_, ()>;
}

/// Both directions of a stream.
pub struct Stream {
    /// Direction in which this end sends.
    pub send: Box<dyn SendStream>,
    /// Direction in which this end receives.
    pub receive: Box<dyn ReceiveStream>,
}

/// The sending direction of a stream. If it is dropped before it was finished, it is given up: what
/// has not been sent need not be, and the peer must not see an orderly end.
pub trait SendStream {
    /// Writes all of it; waits while the transport has no room.
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Local<'a, Result<()>>;

    /// Nothing more follows; the peer sees the end once it has read everything.
    fn finish(&mut self) -> Local<'_, Result<()>>;

    /// Bytes that were written and still wait in a buffer at this end: they have not left it. 0
    /// where the transport does not know.
    fn unsent_bytes(&self) -> u64 {
        0
    }
}

/// The receiving direction of a stream.
pub trait ReceiveStream {
    /// Reads at least one byte, unless the end has come: then 0.
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Local<'a, Result<usize>>;
}

/// Report of a transport on itself. A quantity that it does not know is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Status {
    /// Congestion window in bytes.
    pub window_bytes: Option<u64>,
    /// Slow-start threshold in bytes.
    pub threshold_bytes: Option<u64>,
    /// Sent and not acknowledged, in bytes.
    pub in_flight_bytes: Option<u64>,
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Packets sent so far.
    pub sent_packets: Option<u64>,
    /// Packets or segments that were sent again so far.
    pub repeated_packets: Option<u64>,
    /// Bytes of the application that the peer has acknowledged so far.
    pub delivered_bytes: Option<u64>,
}
