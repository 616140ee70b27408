//! Raw UDP: each message is a datagram. Nothing is repeated, ordered, held back or encrypted.
//! Others are measured against it.

use super::failed;
use crate::clock::MonotonicClock;
use bytes::Bytes;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use futures_util::future::{Either, select};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::net::UdpSocket;
use uts_traffic::clock::Clock;
use uts_traffic::transport::{
    Capabilities, Listener, Local, Result, Session, Status, Stream, Transport, TransportError,
};
use uts_units::text;

/// Bytes of buffer that sockets ask for, so that what is lost was lost on the path.
const BUFFER_BYTES: usize = 4 << 20;

/// An empty datagram ends a session. It may be lost too, and is sent this often and this far apart.
const FAREWELLS: u32 = 3;
/// See [`FAREWELLS`].
const FAREWELL_EVERY_NS: u64 = 50_000_000;

/// For this long after a farewell datagrams may still come that were sent before it: paths reorder.
const AFTER_FAREWELL_NS: u64 = 250_000_000;

/// The most that the pacer lets leave at once beyond its rate, in time at that rate.
const BURST: Duration = Duration::from_millis(1);

/// Settings of raw UDP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UdpSettings {
    /// The largest message in bytes. Larger ones go in pieces. 1200 bytes pass every path that QUIC
    /// passes (RFC 9000, section 14).
    #[serde(with = "text::bytes")]
    pub message: u64,
    /// The rate limit of messages, in bits per second. If it is not set, messages leave at once.
    #[serde(with = "text::rate_option", skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
}

impl Default for UdpSettings {
    fn default() -> Self {
        UdpSettings { message: 1200, rate: None }
    }
}

/// Raw UDP.
#[derive(Clone, Debug)]
pub struct Udp {
    settings: UdpSettings,
}

impl Udp {
    /// With settings.
    ///
    /// # Errors
    /// If one is out of range, with its key.
    pub fn new(settings: UdpSettings) -> std::result::Result<Self, String> {
        if !(64..=65_507).contains(&settings.message) {
            return Err(format!("udp: message: {} bytes are not between 64 and 65507", settings.message));
        }
        if settings.rate.is_some_and(|rate| rate < 8) {
            return Err("udp: rate: is less than 8 bit/s".to_owned());
        }
        Ok(Udp { settings })
    }

    fn session(&self, socket: UdpSocket, first: Option<Bytes>) -> Result<Rc<dyn Session>> {
        let clock = MonotonicClock::new().map_err(failed("timer"))?;
        let buffer = RefCell::new(vec![0; 1 << 16]);
        let connected = Connected { socket, first: RefCell::new(first), buffer };
        Ok(Rc::new(DatagramSession::new(connected, clock, self.settings.rate)))
    }
}

fn socket(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.set_recv_buffer_size(BUFFER_BYTES)?;
    socket.set_send_buffer_size(BUFFER_BYTES)?;
    UdpSocket::from_std(socket.into())
}

impl Transport for Udp {
    fn capabilities(&self) -> Capabilities {
        let message_bytes_max = usize::try_from(self.settings.message).unwrap_or(usize::MAX);
        Capabilities { streams: false, messages: true, message_bytes_max, protected: false }
    }

    fn connect(&self, to: SocketAddr) -> Local<'_, Result<Rc<dyn Session>>> {
        Box::pin(async move {
            let any = match to {
                SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
                SocketAddr::V6(_) => SocketAddr::from(([0; 16], 0)),
            };
            let socket = socket(any).map_err(failed("no UDP socket"))?;
            socket.connect(to).await.map_err(failed("connect"))?;
            self.session(socket, None)
        })
    }

    fn listen(&self, at: SocketAddr) -> Local<'_, Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let socket = socket(at).map_err(failed("no UDP socket"))?;
            let address = socket.local_addr().map_err(failed("no UDP socket"))?;
            let listener = UdpListener { udp: self.clone(), address, socket: Some(socket) };
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }
}

/// Waits for the first datagram. Its sender is the client.
struct UdpListener {
    udp: Udp,
    address: SocketAddr,
    socket: Option<UdpSocket>,
}

impl Listener for UdpListener {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> Local<'_, Result<Rc<dyn Session>>> {
        Box::pin(async move {
            let Some(socket) = &self.socket else {
                return Err(TransportError::Failed("raw UDP serves one client for each socket".into()));
            };
            let mut buffer = vec![0; 1 << 16];
            let (length, from) = socket.recv_from(&mut buffer).await.map_err(failed("receive"))?;
            socket.connect(from).await.map_err(failed("connect"))?;
            buffer.truncate(length);
            match self.socket.take() {
                Some(socket) => self.udp.session(socket, Some(buffer.into())),
                None => Err(TransportError::Closed),
            }
        })
    }
}

/// A socket that is connected to its peer.
struct Connected {
    socket: UdpSocket,
    /// Datagram that came before there was a session.
    first: RefCell<Option<Bytes>>,
    buffer: RefCell<Vec<u8>>,
}

impl Datagrams for Connected {
    fn send<'a>(&'a self, datagram: &'a [u8]) -> Local<'a, Result<bool>> {
        Box::pin(async move {
            match self.socket.send(datagram).await {
                Ok(_) => Ok(true),
                // The peer's host reports on an earlier datagram. This one was not sent, and counts
                // as lost.
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
                Err(e) => Err(failed("send")(e)),
            }
        })
    }

    fn receive(&self) -> Local<'_, Result<Bytes>> {
        Box::pin(async move {
            if let Some(first) = self.first.take() {
                return Ok(first);
            }
            loop {
                self.socket.readable().await.map_err(failed("receive"))?;
                let mut buffer = self.buffer.borrow_mut();
                match self.socket.try_recv(&mut buffer) {
                    Ok(length) => {
                        return Ok(Bytes::copy_from_slice(buffer.get(..length).unwrap_or_default()));
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    // The peer's socket is closed, so nothing more will come.
                    Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                        return Err(TransportError::Closed);
                    }
                    Err(e) => return Err(failed("receive")(e)),
                }
            }
        })
    }
}

/// Datagrams to and from one peer, in whatever world.
pub trait Datagrams {
    /// Sends a datagram; whether it was.
    fn send<'a>(&'a self, datagram: &'a [u8]) -> Local<'a, Result<bool>>;

    /// The next datagram. Waiting for it may be given up, and nothing is lost.
    fn receive(&self) -> Local<'_, Result<Bytes>>;
}

/// A session of messages, each a datagram.
pub struct DatagramSession<D, C> {
    datagrams: D,
    clock: C,
    pacer: Option<Pacer>,
    sent: Cell<u64>,
    /// Until when to wait after the peer took its leave.
    farewell_ns: Cell<Option<u64>>,
}

/// Lets messages leave no faster than a rate.
#[derive(Debug)]
struct Pacer {
    rate_bps: u64,
    /// When the next may leave.
    next_ns: Cell<u64>,
}

impl Pacer {
    /// At a rate in bits per second.
    fn new(rate_bps: u64) -> Self {
        Pacer { rate_bps, next_ns: Cell::new(0) }
    }

    /// When a message may leave, which is then taken to have left.
    fn admit(&self, now_ns: u64, bytes: usize) -> u64 {
        let takes_ns = bytes as u128 * 8 * 1_000_000_000 / u128::from(self.rate_bps);
        let at_ns = self.next_ns.get().max(now_ns.saturating_sub(BURST.as_nanos() as u64));
        self.next_ns.set(at_ns.saturating_add(u64::try_from(takes_ns).unwrap_or(u64::MAX)));
        at_ns
    }
}

impl<D: Datagrams, C: Clock> DatagramSession<D, C> {
    /// Between here and the peer, at a rate of messages in bits per second, if there is to be one.
    pub fn new(datagrams: D, clock: C, rate_bps: Option<u64>) -> Self {
        let pacer = rate_bps.map(Pacer::new);
        DatagramSession { datagrams, clock, pacer, sent: Cell::new(0), farewell_ns: Cell::new(None) }
    }

    async fn receive(&self) -> Result<Bytes> {
        loop {
            let next = self.datagrams.receive();
            let datagram = match self.farewell_ns.get() {
                None => next.await?,
                Some(until_ns) => match select(next, self.clock.sleep_until(until_ns)).await {
                    Either::Left((datagram, _)) => datagram?,
                    Either::Right(_) => return Err(TransportError::Closed),
                },
            };
            if !datagram.is_empty() {
                return Ok(datagram);
            }
            // The peer's farewell.
            let until_ns = self.clock.now_ns() + AFTER_FAREWELL_NS;
            self.farewell_ns.set(self.farewell_ns.get().or(Some(until_ns)));
        }
    }
}

impl<D: Datagrams, C: Clock> Session for DatagramSession<D, C> {
    fn open(&self) -> Local<'_, Result<Stream>> {
        Box::pin(async { Err(TransportError::Unsupported("a stream")) })
    }

    fn accept(&self) -> Local<'_, Result<Stream>> {
        self.open()
    }

    fn send_message(&self, message: Bytes, _: Option<Duration>) -> Local<'_, Result<()>> {
        Box::pin(async move {
            if let Some(pacer) = &self.pacer {
                let at_ns = pacer.admit(self.clock.now_ns(), message.len());
                self.clock.sleep_until(at_ns).await;
            }
            let is_sent = self.datagrams.send(&message).await?;
            self.sent.set(self.sent.get() + u64::from(is_sent));
            Ok(())
        })
    }

    fn receive_message(&self) -> Local<'_, Result<Bytes>> {
        Box::pin(self.receive())
    }

    fn status(&self) -> Option<Status> {
        Some(Status { sent_packets: Some(self.sent.get()), ..Status::default() })
    }

    fn close(&self) -> Local<'_, ()> {
        Box::pin(async {
            for n in 0..FAREWELLS {
                if n > 0 {
                    self.clock.sleep_until(self.clock.now_ns() + FAREWELL_EVERY_NS).await;
                }
                // Nothing can be done about one that fails.
                let _ = self.datagrams.send(&[]).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pacer_keeps_its_rate() {
        let pacer = Pacer::new(8_000_000);
        let start_ns = 5_000_000_000;
        let leaves: Vec<u64> = (0..1000).map(|_| pacer.admit(start_ns, 1000)).collect();
        // A message takes a millisecond; as much as one may leave early.
        assert_eq!(leaves.first(), Some(&(start_ns - 1_000_000)));
        assert_eq!(leaves.last(), Some(&(start_ns + 998 * 1_000_000)));
        let much_later_ns = start_ns + 60_000_000_000;
        assert_eq!(pacer.admit(much_later_ns, 1000), much_later_ns - 1_000_000, "silence saves up little");
    }
}
