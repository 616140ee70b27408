//! A session over TCP: its connections, and what the kernel tells of them.

use super::{Arriving, PREAMBLE_BYTES, Reception, Tcp};
use crate::transport::sockopt::{TcpInfo, keep_window_clamp, subflows, tcp_info};
use bytes::Bytes;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::timeout;
use uts_traffic::stream_messages::MessagesOverStream;
use uts_traffic::transport::{
    Local, ReceiveStream, Result, SendStream, Session, Status, Stream, TransportError,
};

/// Interval at which a closing session looks if everything has arrived.
const DRAIN_EVERY: Duration = Duration::from_millis(2);

/// An MPTCP connection without a subflow for this long is over. If packets are missing, a reset
/// resets the subflow without MP_FASTCLOSE (RFC 8684, 3.5). The kernel then waits
/// `net.mptcp.close_timeout` (60 s) for another subflow.
const SUBFLOW_PATIENCE: Duration = Duration::from_secs(1);

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Stream,
    Messages,
}

impl Purpose {
    fn byte(self) -> u8 {
        match self {
            Purpose::Stream => b'S',
            Purpose::Messages => b'M',
        }
    }

    pub fn parse(byte: u8) -> Option<Purpose> {
        [Purpose::Stream, Purpose::Messages].into_iter().find(|purpose| purpose.byte() == byte)
    }
}

/// A TCP connection.
pub(super) struct Connection {
    tcp: TcpStream,
    /// The largest window to advertise.
    window: Option<i32>,
    /// Given up: nothing is waited for.
    is_aborted: Cell<bool>,
}

impl Connection {
    pub fn new(tcp: TcpStream, window: Option<u64>) -> Self {
        let window = window.map(|window| i32::try_from(window).unwrap_or(i32::MAX));
        Connection { tcp, window, is_aborted: Cell::new(false) }
    }

    /// Waits until it can be read from, or written to.
    async fn ready(&self, interest: Interest) -> io::Result<()> {
        loop {
            match timeout(SUBFLOW_PATIENCE, self.tcp.ready(interest)).await {
                Ok(ready) => return ready.map(drop),
                Err(_) if subflows(&self.tcp) == Some(0) => return Err(io::ErrorKind::ConnectionReset.into()),
                Err(_) => {}
            }
        }
    }

    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.ready(Interest::READABLE).await?;
            match self.tcp.try_read(buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                read => {
                    if let Some(window) = self.window {
                        // It was set once already. It does not fail while there is a connection.
                        let _ = keep_window_clamp(&self.tcp, window);
                    }
                    return read;
                }
            }
        }
    }

    pub async fn read_exact(&self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read(buffer).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => buffer = buffer.get_mut(n..).unwrap_or_default(),
            }
        }
        Ok(())
    }

    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.ready(Interest::WRITABLE).await?;
            match self.tcp.try_write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                written => bytes = bytes.get(written?..).unwrap_or_default(),
            }
        }
        Ok(())
    }

    fn info(&self) -> TcpInfo {
        tcp_info(&self.tcp).unwrap_or_default()
    }

    /// Ends it with a reset as soon as it is dropped: the peer must not take it for an orderly end.
    pub fn abort(&self) {
        self.is_aborted.set(true);
        let _ = SockRef::from(&self.tcp).set_linger(Some(Duration::ZERO));
    }

    /// True if the peer has everything that was written, or will never have it.
    fn has_delivered(&self) -> bool {
        let info = self.info();
        let has_all = info.unacked_segments == 0 && info.unsent_bytes == 0;
        self.is_aborted.get() || info.is_closed || has_all
    }
}

fn error(error: io::Error) -> TransportError {
    TransportError::Failed(error.to_string())
}

/// Counts of connections that are gone.
#[derive(Clone, Copy, Default)]
struct Totals {
    sent: u64,
    repeated: u64,
    acked_bytes: u64,
}

impl Totals {
    fn add(self, info: &TcpInfo) -> Totals {
        Totals {
            sent: self.sent + u64::from(info.sent_segments),
            repeated: self.repeated + u64::from(info.retransmitted_segments),
            acked_bytes: self.acked_bytes + info.acked_bytes,
        }
    }
}

pub(super) struct TcpSession {
    side: Side,
    /// All connections of which something may still be under way.
    connections: RefCell<Vec<Rc<Connection>>>,
    gone: Cell<Totals>,
    messages: OnceCell<MessagesOverStream>,
}

enum Side {
    Client {
        tcp: Tcp,
        to: SocketAddr,
        token: u64,
        /// The first connection, before it is used.
        first: Cell<Option<TcpStream>>,
    },
    Server {
        arriving: Mutex<Arriving>,
        /// Connections that were found while one for the other purpose was looked for.
        aside: RefCell<Vec<(Purpose, Rc<Connection>)>>,
        _reception: Rc<Reception>,
    },
}

impl TcpSession {
    pub fn client(tcp: Tcp, to: SocketAddr, token: u64, first: TcpStream) -> Self {
        Self::new(Side::Client { tcp, to, token, first: Cell::new(Some(first)) })
    }

    pub fn server(arriving: Arriving, reception: Rc<Reception>) -> Self {
        let (arriving, aside) = (Mutex::new(arriving), RefCell::default());
        Self::new(Side::Server { arriving, aside, _reception: reception })
    }

    fn new(side: Side) -> Self {
        let (connections, gone) = (RefCell::default(), Cell::default());
        TcpSession { side, connections, gone, messages: OnceCell::new() }
    }

    /// A connection for a purpose: a new one at the client, the next that the client opened at the
    /// server.
    async fn connection(&self, purpose: Purpose) -> Result<Stream> {
        let (connection, preamble) = match &self.side {
            Side::Client { tcp, to, token, first } => {
                let stream = match first.take() {
                    Some(first) => first,
                    None => tcp.dial(*to).await?,
                };
                let mut preamble = [0; PREAMBLE_BYTES];
                let (kind, number) = preamble.split_at_mut(1);
                kind.fill(purpose.byte());
                number.copy_from_slice(&token.to_be_bytes());
                (Rc::new(Connection::new(stream, tcp.settings.window)), Some(preamble))
            }
            Side::Server { arriving, aside, .. } => (next(arriving, aside, purpose).await?, None),
        };
        self.keep(connection.clone());
        let send = Sender { connection: connection.clone(), preamble, is_finished: false };
        Ok(Stream { send: Box::new(send), receive: Box::new(Receiver { connection }) })
    }

    /// Remembers a connection until nothing of it is under way any more.
    fn keep(&self, connection: Rc<Connection>) {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|held| {
            // Nobody else holds those whose streams were dropped.
            let is_over = Rc::strong_count(held) == 1 && held.has_delivered();
            if is_over {
                self.gone.set(self.gone.get().add(&held.info()));
            }
            !is_over
        });
        connections.push(connection);
    }

    async fn messages(&self) -> Result<&MessagesOverStream> {
        let first = async || self.connection(Purpose::Messages).await.map(MessagesOverStream::new);
        self.messages.get_or_try_init(first).await
    }
}

/// The next connection of a purpose. The lock passes between the tasks that wait for either.
async fn next(
    arriving: &Mutex<Arriving>,
    aside: &RefCell<Vec<(Purpose, Rc<Connection>)>>,
    purpose: Purpose,
) -> Result<Rc<Connection>> {
    let mut arriving = arriving.lock().await;
    loop {
        let found = aside.borrow().iter().position(|(p, _)| *p == purpose);
        if let Some(at) = found {
            return Ok(aside.borrow_mut().remove(at).1);
        }
        match arriving.recv().await {
            Some((found, connection)) if found == purpose => return Ok(connection),
            Some(other) => aside.borrow_mut().push(other),
            None => return Err(TransportError::Closed),
        }
    }
}

impl Session for TcpSession {
    fn open(&self) -> Local<'_, Result<Stream>> {
        Box::pin(async {
            match &self.side {
                Side::Client { .. } => self.connection(Purpose::Stream).await,
                Side::Server { .. } => Err(TransportError::Unsupported("a connection from server to client")),
            }
        })
    }

    fn accept(&self) -> Local<'_, Result<Stream>> {
        Box::pin(async {
            match &self.side {
                Side::Server { .. } => self.connection(Purpose::Stream).await,
                Side::Client { .. } => Err(TransportError::Unsupported("a connection from server to client")),
            }
        })
    }

    fn send_message(&self, message: Bytes, _: Option<Duration>) -> Local<'_, Result<()>> {
        Box::pin(async move { self.messages().await?.send(&message).await })
    }

    fn receive_message(&self) -> Local<'_, Result<Bytes>> {
        Box::pin(async { self.messages().await?.receive().await })
    }

    fn status(&self) -> Option<Status> {
        let connections = self.connections.borrow();
        let infos: Vec<TcpInfo> = connections.iter().map(|connection| connection.info()).collect();
        let totals = infos.iter().fold(self.gone.get(), Totals::add);
        let bytes = |segments: u32, info: &TcpInfo| u64::from(segments) * u64::from(info.segment_bytes);
        let in_flight = |info: &TcpInfo| {
            // As the kernel counts packets in flight (RFC 6675's pipe).
            let left = info.sacked_segments.saturating_add(info.lost_segments);
            let pipe = info.unacked_segments.saturating_sub(left) + info.retransmitted_now_segments;
            bytes(pipe, info)
        };
        // Before the first round trip, and before the first loss, there is nothing to tell.
        let rtts: Vec<Duration> = infos.iter().map(|i| i.rtt).filter(|rtt| !rtt.is_zero()).collect();
        let thresholds = infos.iter().filter(|i| i.threshold_segments < i32::MAX as u32);
        Some(Status {
            window_bytes: Some(infos.iter().map(|i| bytes(i.window_segments, i)).sum()),
            threshold_bytes: thresholds.map(|i| bytes(i.threshold_segments, i)).reduce(|a, b| a + b),
            in_flight_bytes: Some(infos.iter().map(in_flight).sum()),
            rtt: rtts.iter().sum::<Duration>().checked_div(rtts.len() as u32),
            sent_packets: Some(totals.sent),
            repeated_packets: Some(totals.repeated),
            delivered_bytes: Some(totals.acked_bytes),
        })
    }

    fn close(&self) -> Local<'_, ()> {
        Box::pin(async {
            if let Some(messages) = self.messages.get() {
                let _ = messages.finish().await;
            }
            while !self.connections.borrow().iter().all(|connection| connection.has_delivered()) {
                tokio::time::sleep(DRAIN_EVERY).await;
            }
        })
    }
}

struct Sender {
    connection: Rc<Connection>,
    /// Travels with the first bytes.
    preamble: Option<[u8; PREAMBLE_BYTES]>,
    is_finished: bool,
}

impl SendStream for Sender {
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Local<'a, Result<()>> {
        Box::pin(async move {
            match self.preamble.take() {
                Some(preamble) => {
                    let first = [&preamble, bytes].concat();
                    self.connection.write_all(&first).await.map_err(error)
                }
                None => self.connection.write_all(bytes).await.map_err(error),
            }
        })
    }

    fn finish(&mut self) -> Local<'_, Result<()>> {
        Box::pin(async {
            if let Some(preamble) = self.preamble.take() {
                self.connection.write_all(&preamble).await.map_err(error)?;
            }
            self.is_finished = true;
            SockRef::from(&self.connection.tcp).shutdown(std::net::Shutdown::Write).map_err(error)
        })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.is_finished {
            self.connection.abort();
        }
    }
}

struct Receiver {
    connection: Rc<Connection>,
}

impl ReceiveStream for Receiver {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Local<'a, Result<usize>> {
        Box::pin(async move { self.connection.read(buffer).await.map_err(error) })
    }
}
