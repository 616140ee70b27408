//! QUIC by s2n-quic: streams, and messages as unreliable datagrams (RFC 9221).
//!
//! A connection that its peer closes forgets what the application has not read. The end that closes
//! first therefore says goodbye by an empty stream in one direction, and waits for the other.

use super::{Rival, Setting};
use crate::identity::{SERVER_NAME, Who};
use bytes::Bytes;
use s2n_quic::client::Connect;
use s2n_quic::connection::{BidirectionalStreamAcceptor, Error as ConnectionError, Handle};
use s2n_quic::provider::congestion_controller::{Bbr, Cubic};
use s2n_quic::provider::datagram::{Sender as _, default as datagrams};
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber, events};
use s2n_quic::provider::io::tokio::Provider as Io;
use s2n_quic::provider::limits::Limits;
use s2n_quic::stream::{BidirectionalStream, Error as StreamError};
use s2n_quic::{Client, Connection, Server};
use serde::Deserialize;
use std::cell::RefCell;
use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::task::{Context as Task, Poll};
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use uts_end::{Context, TransportSpec};
use uts_traffic::transport::{
    self, Capabilities, Listener, Local, ReceiveStream, SendStream, Session, Status, Stream, Transport,
    TransportError,
};

/// The largest datagram that fits into a packet of 1200 bytes, which every path carries. s2n-quic
/// drops larger ones silently.
const MESSAGE_BYTES_MAX: usize = 1150;

/// How many datagrams wait for the window at one end, and for the application at the other.
/// s2n-quic has no default for it. It is as many as fit into quinn's buffer.
const DATAGRAMS_WAITING: usize = 1024;

/// What s2n-quic can be set to; what is not said is as it comes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    congestion: Congestion,
    /// How much may be in flight in a stream and altogether (s2n-quic: 3.75 MB), and how much an
    /// end keeps for sending in a stream (s2n-quic: 4 MiB).
    #[serde(with = "uts_units::text::bytes_option")]
    window: Option<u64>,
    /// Buffers of the UDP socket (s2n-quic: the system's).
    #[serde(with = "uts_units::text::bytes_option")]
    socket_buffer: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Congestion {
    #[default]
    Cubic,
    Bbr,
}

/// What it is.
pub fn rival() -> Rival {
    Rival::of_cargo(
        "s2n-quic",
        "QUIC by s2n-quic: streams, and messages as datagrams",
        env!("RIVAL_S2N_QUIC_VERSION"),
        &[
            Setting { key: "congestion", values: "cubic, bbr" },
            Setting { key: "window", values: "s2n-quic's own (3.75MB), or a size" },
            Setting { key: "socket_buffer", values: "the system's, or a size" },
        ],
    )
}

/// The transport, from a spec.
///
/// # Errors
/// What is wrong with the spec.
pub fn provide(spec: &TransportSpec, context: &Context<'_>) -> Result<Rc<dyn Transport>, String> {
    let settings: Settings = spec.read()?;
    if settings.window.is_some_and(|bytes| bytes > u32::MAX.into()) {
        return Err("s2n-quic: window: is more than 4 GiB, the most that it takes".into());
    }
    let who = Who::of(context)?;
    Ok(Rc::new(S2n { settings, who }))
}

struct S2n {
    settings: Settings,
    who: Who,
}

impl S2n {
    fn io(&self, at: SocketAddr) -> std::io::Result<Io> {
        let mut io = Io::builder().with_receive_address(at)?;
        if let Some(bytes) = self.settings.socket_buffer {
            let bytes = super::socket_bytes(bytes);
            io = io.with_recv_buffer_size(bytes)?.with_send_buffer_size(bytes)?;
        }
        io.build()
    }

    fn limits(&self) -> Result<Limits, String> {
        let limits = Limits::new();
        let Some(window) = self.settings.window else { return Ok(limits) };
        limits
            .with_data_window(window)
            .and_then(|limits| limits.with_bidirectional_local_data_window(window))
            .and_then(|limits| limits.with_bidirectional_remote_data_window(window))
            .and_then(|limits| limits.with_max_send_buffer_size(u32::try_from(window).unwrap_or(u32::MAX)))
            .map_err(|e| format!("s2n-quic: window: {e}"))
    }

    fn client(&self, to: SocketAddr) -> Result<Client, AnyError> {
        let Who::Client(trusted) = &self.who else { return Err("a server does not connect".into()) };
        let any = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let certificate = trusted.pem();
        let builder = Client::builder()
            .with_tls(certificate.as_str())?
            .with_io(self.io(SocketAddr::new(any, 0))?)?
            .with_limits(self.limits()?)?
            .with_datagram(datagram_queues()?)?
            .with_event(Watch)?;
        // Each controller is a type of its own.
        Ok(match self.settings.congestion {
            Congestion::Cubic => builder.with_congestion_controller(Cubic::default())?.start()?,
            Congestion::Bbr => builder.with_congestion_controller(Bbr::default())?.start()?,
        })
    }

    fn server(&self, at: SocketAddr) -> Result<Server, AnyError> {
        let Who::Server(identity) = &self.who else { return Err("a client does not listen".into()) };
        let (certificate, key) = identity.pem();
        let builder = Server::builder()
            .with_tls((certificate.as_str(), key.as_str()))?
            .with_io(self.io(at)?)?
            .with_limits(self.limits()?)?
            .with_datagram(datagram_queues()?)?
            .with_event(Watch)?;
        Ok(match self.settings.congestion {
            Congestion::Cubic => builder.with_congestion_controller(Cubic::default())?.start()?,
            Congestion::Bbr => builder.with_congestion_controller(Bbr::default())?.start()?,
        })
    }
}

/// Each setting of s2n-quic has an error of its own.
type AnyError = Box<dyn std::error::Error + Send + Sync>;

fn datagram_queues() -> Result<datagrams::Endpoint, datagrams::BuilderError> {
    let builder = datagrams::Endpoint::builder().with_send_capacity(DATAGRAMS_WAITING)?;
    let Ok(queues) = builder.with_recv_capacity(DATAGRAMS_WAITING)?.build();
    Ok(queues)
}

impl Transport for S2n {
    fn capabilities(&self) -> Capabilities {
        let message_bytes_max = MESSAGE_BYTES_MAX;
        Capabilities { streams: true, messages: true, message_bytes_max, protected: true }
    }

    fn identity(&self) -> Option<String> {
        self.who.shown()
    }

    fn connect(&self, to: SocketAddr) -> Local<'_, transport::Result<Rc<dyn Session>>> {
        Box::pin(async move {
            let client = self.client(to).map_err(|e| TransportError::Failed(e.to_string()))?;
            let connection = client.connect(Connect::new(to).with_server_name(SERVER_NAME)).await;
            Ok(S2nSession::start(connection.map_err(lost)?, Some(client)))
        })
    }

    fn listen(&self, at: SocketAddr) -> Local<'_, transport::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let server = self.server(at).map_err(|e| TransportError::Failed(format!("{at}: {e}")))?;
            let address = server.local_addr().map_err(|e| TransportError::Failed(e.to_string()))?;
            Ok(Box::new(S2nListener { server, address }) as Box<dyn Listener>)
        })
    }
}

struct S2nListener {
    server: Server,
    address: SocketAddr,
}

impl Listener for S2nListener {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> Local<'_, transport::Result<Rc<dyn Session>>> {
        Box::pin(async move {
            let connection = self.server.accept().await.ok_or(TransportError::Closed)?;
            Ok(S2nSession::start(connection, None))
        })
    }
}

struct S2nSession {
    handle: Handle,
    acceptor: Mutex<BidirectionalStreamAcceptor>,
    /// Whether the peer has said goodbye, or is gone.
    goodbye: watch::Receiver<bool>,
    listens: AbortHandle,
    /// Streams whose end has not been acknowledged.
    unsettled: Unsettled,
    client: RefCell<Option<Client>>,
}

type Unsettled = Rc<RefCell<JoinSet<()>>>;

impl S2nSession {
    fn start(connection: Connection, client: Option<Client>) -> Rc<dyn Session> {
        let (handle, acceptor) = connection.split();
        let (acceptor, mut goodbyes) = acceptor.split();
        let (tells, goodbye) = watch::channel(false);
        // A stream, or the end of the connection.
        let listens = tokio::spawn(async move {
            let _ = goodbyes.accept_receive_stream().await;
            tells.send_replace(true);
        });
        Rc::new(S2nSession {
            handle,
            acceptor: Mutex::new(acceptor),
            goodbye,
            listens: listens.abort_handle(),
            unsettled: Unsettled::default(),
            client: RefCell::new(client),
        })
    }

    fn stream(&self, stream: BidirectionalStream) -> Stream {
        let (receive, send) = stream.split();
        let send = Box::new(S2nSend { stream: Some(send), unsettled: self.unsettled.clone() });
        Stream { send, receive: Box::new(S2nReceive { stream: receive, held: Bytes::new() }) }
    }

    /// What comes, if it comes before the peer's goodbye.
    async fn before_goodbye<T>(
        &self,
        what: impl Future<Output = transport::Result<T>>,
    ) -> transport::Result<T> {
        let mut goodbye = self.goodbye.clone();
        tokio::select! {
            biased;
            it = what => it,
            _ = goodbye.wait_for(|said| *said) => Err(TransportError::Closed),
        }
    }

    /// Says goodbye after everything else, and waits for the peer's.
    async fn part(&self) -> Option<()> {
        let waiting = |queue: &mut datagrams::Sender| queue.has_transmission_interest();
        while self.handle.datagram_mut(waiting).ok()? {
            sleep(DATAGRAMS_POLL).await;
        }
        let mut stream = self.handle.clone().open_send_stream().await.ok()?;
        stream.close().await.ok()?;
        self.goodbye.clone().wait_for(|said| *said).await.ok().map(|_| ())
    }

    /// Tries something with the queues of datagrams until it can be done.
    fn poll_datagrams<T, Q: 'static>(
        &self,
        task: &mut Task<'_>,
        what: impl FnOnce(&mut Q, &mut Task<'_>) -> Poll<Result<T, datagrams::DatagramError>>,
    ) -> Poll<transport::Result<T>> {
        match self.handle.datagram_mut(|queue: &mut Q| what(queue, task)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(value))) => Poll::Ready(Ok(value)),
            Ok(Poll::Ready(Err(datagrams::DatagramError::ConnectionError { error, .. }))) => {
                Poll::Ready(Err(lost(error)))
            }
            Ok(Poll::Ready(Err(other))) => Poll::Ready(Err(TransportError::Failed(other.to_string()))),
            // There is no such queue any more once the connection has gone.
            Err(_) => Poll::Ready(Err(TransportError::Closed)),
        }
    }
}

impl Session for S2nSession {
    fn open(&self) -> Local<'_, transport::Result<Stream>> {
        Box::pin(async move {
            let mut handle = self.handle.clone();
            handle.open_bidirectional_stream().await.map(|stream| self.stream(stream)).map_err(lost)
        })
    }

    fn accept(&self) -> Local<'_, transport::Result<Stream>> {
        Box::pin(async move {
            let mut acceptor = self.acceptor.lock().await;
            self.before_goodbye(async {
                let stream = acceptor.accept_bidirectional_stream().await.map_err(lost)?;
                stream.map(|stream| self.stream(stream)).ok_or(TransportError::Closed)
            })
            .await
        })
    }

    fn send_message(&self, mut message: Bytes, _: Option<Duration>) -> Local<'_, transport::Result<()>> {
        Box::pin(async move {
            if message.len() > MESSAGE_BYTES_MAX {
                let why = format!("a message of {} bytes is larger than {MESSAGE_BYTES_MAX}", message.len());
                return Err(TransportError::Failed(why));
            }
            poll_fn(|task| {
                self.poll_datagrams(task, |queue: &mut datagrams::Sender, task| {
                    queue.poll_send_datagram(&mut message, task)
                })
            })
            .await
        })
    }

    fn receive_message(&self) -> Local<'_, transport::Result<Bytes>> {
        Box::pin(self.before_goodbye(poll_fn(|task| {
            self.poll_datagrams(task, |queue: &mut datagrams::Receiver, task| queue.poll_recv_datagram(task))
        })))
    }

    fn status(&self) -> Option<Status> {
        self.handle.query_event_context(|status: &Status| *status).ok()
    }

    fn close(&self) -> Local<'_, ()> {
        Box::pin(async move {
            let mut unsettled = self.unsettled.take();
            while unsettled.join_next().await.is_some() {}
            let _ = timeout(PART_MAX, self.part()).await;
            self.handle.close(0_u32.into());
            let client = self.client.take();
            if let Some(mut client) = client {
                // Until the peer has been told.
                let _ = timeout(CLOSE_MAX, client.wait_idle()).await;
            } else {
                sleep(CLOSE_SERVER).await;
            }
        })
    }
}

impl Drop for S2nSession {
    fn drop(&mut self) {
        self.listens.abort();
    }
}

struct S2nSend {
    /// `None` once it has been finished.
    stream: Option<s2n_quic::stream::SendStream>,
    unsettled: Unsettled,
}

impl SendStream for S2nSend {
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Local<'a, transport::Result<()>> {
        Box::pin(async move {
            let stream = self.stream.as_mut().ok_or(TransportError::Closed)?;
            stream.send(Bytes::copy_from_slice(bytes)).await.map_err(stopped)
        })
    }

    fn finish(&mut self) -> Local<'_, transport::Result<()>> {
        Box::pin(async move {
            let mut stream = self.stream.take().ok_or(TransportError::Closed)?;
            stream.finish().map_err(stopped)?;
            let mut unsettled = self.unsettled.borrow_mut();
            while unsettled.try_join_next().is_some() {}
            // What is wrong with the connection is told elsewhere.
            unsettled.spawn(async move { stream.close().await.unwrap_or(()) });
            Ok(())
        })
    }
}

impl Drop for S2nSend {
    fn drop(&mut self) {
        if let Some(stream) = &mut self.stream {
            // Left alone, s2n-quic would end it in order. The peer may have reset it already.
            let _ = stream.reset(0_u32.into());
        }
    }
}

struct S2nReceive {
    stream: s2n_quic::stream::ReceiveStream,
    /// What came and has not been read.
    held: Bytes,
}

impl ReceiveStream for S2nReceive {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Local<'a, transport::Result<usize>> {
        Box::pin(async move {
            while self.held.is_empty() {
                match self.stream.receive().await.map_err(stopped)? {
                    Some(bytes) => self.held = bytes,
                    None => return Ok(0),
                }
            }
            let taken = self.held.split_to(self.held.len().min(buffer.len()));
            buffer[..taken.len()].copy_from_slice(&taken);
            Ok(taken.len())
        })
    }
}

fn lost(error: ConnectionError) -> TransportError {
    match error {
        ConnectionError::Closed { .. } | ConnectionError::Application { .. } => TransportError::Closed,
        other => TransportError::Failed(other.to_string()),
    }
}

fn stopped(error: StreamError) -> TransportError {
    match error {
        StreamError::ConnectionError { error, .. } => lost(error),
        StreamError::StreamReset { .. } => TransportError::Failed("the peer gave the stream up".into()),
        other => TransportError::Failed(other.to_string()),
    }
}

/// Keeps a connection's figures as s2n-quic tells them.
struct Watch;

impl Subscriber for Watch {
    type ConnectionContext = Status;

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) -> Status {
        Status { sent_packets: Some(0), repeated_packets: Some(0), ..Status::default() }
    }

    fn on_recovery_metrics(
        &mut self,
        status: &mut Status,
        _: &ConnectionMeta,
        event: &events::RecoveryMetrics<'_>,
    ) {
        status.window_bytes = Some(event.congestion_window.into());
        status.in_flight_bytes = Some(event.bytes_in_flight.into());
        status.rtt = Some(event.smoothed_rtt);
    }

    fn on_packet_sent(&mut self, status: &mut Status, _: &ConnectionMeta, _: &events::PacketSent) {
        status.sent_packets = status.sent_packets.map(|n| n + 1);
    }

    fn on_packet_lost(&mut self, status: &mut Status, _: &ConnectionMeta, event: &events::PacketLost<'_>) {
        // What a lost packet held is sent again in another; a probe of the MTU holds nothing.
        if !event.is_mtu_probe {
            status.repeated_packets = status.repeated_packets.map(|n| n + 1);
        }
    }
}

/// How long an end waits for its peer to say goodbye too.
const PART_MAX: Duration = Duration::from_secs(5);

/// How often it is looked whether datagrams still wait.
const DATAGRAMS_POLL: Duration = Duration::from_millis(2);

/// How long a client's endpoint stays to tell its peer that it has closed.
const CLOSE_MAX: Duration = Duration::from_millis(500);

/// How long a server does. Its endpoint has no such call, and exists for as long as the program.
const CLOSE_SERVER: Duration = Duration::from_millis(50);
