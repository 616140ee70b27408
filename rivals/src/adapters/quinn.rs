//! QUIC by quinn: streams, and messages as unreliable datagrams (RFC 9221).

use super::{Rival, Setting};
use crate::identity::{PROTOCOL, SERVER_NAME, Who};
use bytes::Bytes;
use quinn::congestion::{BbrConfig, CubicConfig, NewRenoConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, ReadError, RecvStream,
    SendDatagramError, ServerConfig, TransportConfig, VarInt, WriteError,
};
use serde::Deserialize;
use socket2::{Domain, Socket, Type};
use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use uts_end::{Context, TransportSpec};
use uts_traffic::transport::{
    self, Capabilities, Listener, Local, ReceiveStream, SendStream, Session, Status, Stream, Transport,
    TransportError,
};

/// The largest datagram that fits into a packet of 1200 bytes, which every path carries. quinn
/// finds out later whether more fits.
const MESSAGE_BYTES_MAX: usize = 1162;

/// What quinn can be set to; what is not said is as quinn comes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    congestion: Congestion,
    /// How much a stream may have in flight (quinn: 1.25 MB), and how much an end keeps for sending
    /// (quinn: 10 MB).
    #[serde(with = "uts_units::text::bytes_option")]
    window: Option<u64>,
    /// Buffers of the UDP socket (quinn: the system's).
    #[serde(with = "uts_units::text::bytes_option")]
    socket_buffer: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Congestion {
    #[default]
    Cubic,
    Newreno,
    Bbr,
}

/// What it is.
pub fn rival() -> Rival {
    Rival::of_cargo(
        "quinn",
        "QUIC by quinn: streams, and messages as datagrams",
        env!("RIVAL_QUINN_VERSION"),
        &[
            Setting { key: "congestion", values: "cubic, newreno, bbr" },
            Setting { key: "window", values: "quinn's own (1.25MB for a stream), or a size" },
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
    let window = settings.window.map(|bytes| {
        VarInt::from_u64(bytes).map_err(|_| format!("quinn: window: {bytes} bytes are more than QUIC counts"))
    });
    let window = window.transpose()?;
    let who = Who::of(context)?;
    Ok(Rc::new(Quinn { settings, window, who }))
}

struct Quinn {
    settings: Settings,
    window: Option<VarInt>,
    who: Who,
}

impl Quinn {
    fn transport_config(&self) -> Arc<TransportConfig> {
        let mut config = TransportConfig::default();
        config.congestion_controller_factory(match self.settings.congestion {
            Congestion::Cubic => Arc::new(CubicConfig::default()),
            Congestion::Newreno => Arc::new(NewRenoConfig::default()),
            Congestion::Bbr => Arc::new(BbrConfig::default()),
        });
        if let Some(window) = self.window {
            // The window of the connection is unlimited as it comes.
            config.stream_receive_window(window).send_window(window.into_inner());
        }
        Arc::new(config)
    }

    fn socket(&self, at: SocketAddr) -> std::io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(at), Type::DGRAM, None)?;
        if let Some(bytes) = self.settings.socket_buffer {
            let bytes = super::socket_bytes(bytes);
            socket.set_recv_buffer_size(bytes)?;
            socket.set_send_buffer_size(bytes)?;
        }
        socket.bind(&at.into())?;
        Ok(socket.into())
    }

    fn client(&self, to: SocketAddr) -> Result<(Endpoint, ClientConfig), String> {
        let Who::Client(trusted) = &self.who else { return Err("a server does not connect".into()) };
        let mut tls = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| e.to_string())?
            .with_root_certificates(trusted.roots()?)
            .with_no_client_auth();
        tls.alpn_protocols = vec![PROTOCOL.to_vec()];
        let tls = QuicClientConfig::try_from(tls).map_err(|e| e.to_string())?;
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(self.transport_config());
        let any = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = self.socket(SocketAddr::new(any, 0)).map_err(|e| e.to_string())?;
        let runtime = Arc::new(quinn::TokioRuntime);
        let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, runtime);
        Ok((endpoint.map_err(|e| e.to_string())?, config))
    }

    fn server(&self, at: SocketAddr) -> Result<Endpoint, String> {
        let Who::Server(identity) = &self.who else { return Err("a client does not listen".into()) };
        let mut tls = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| e.to_string())?
            .with_no_client_auth()
            .with_single_cert(vec![identity.certificate()], identity.key())
            .map_err(|e| e.to_string())?;
        tls.alpn_protocols = vec![PROTOCOL.to_vec()];
        let tls = QuicServerConfig::try_from(tls).map_err(|e| e.to_string())?;
        let mut config = ServerConfig::with_crypto(Arc::new(tls));
        config.transport_config(self.transport_config());
        let socket = self.socket(at).map_err(|e| format!("{at}: {e}"))?;
        let runtime = Arc::new(quinn::TokioRuntime);
        Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime).map_err(|e| e.to_string())
    }
}

/// quinn's own choice of ciphers and groups.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl Transport for Quinn {
    fn capabilities(&self) -> Capabilities {
        let message_bytes_max = MESSAGE_BYTES_MAX;
        Capabilities { streams: true, messages: true, message_bytes_max, protected: true }
    }

    fn identity(&self) -> Option<String> {
        self.who.shown()
    }

    fn connect(&self, to: SocketAddr) -> Local<'_, transport::Result<Rc<dyn Session>>> {
        Box::pin(async move {
            let (endpoint, config) = self.client(to).map_err(TransportError::Failed)?;
            let connecting = endpoint.connect_with(config, to, SERVER_NAME);
            let connecting = connecting.map_err(|e| TransportError::Failed(e.to_string()))?;
            Ok(QuinnSession::start(connecting.await.map_err(lost)?, endpoint))
        })
    }

    fn listen(&self, at: SocketAddr) -> Local<'_, transport::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let endpoint = self.server(at).map_err(TransportError::Failed)?;
            let address = endpoint.local_addr().map_err(|e| TransportError::Failed(e.to_string()))?;
            Ok(Box::new(QuinnListener { endpoint, address }) as Box<dyn Listener>)
        })
    }
}

struct QuinnListener {
    endpoint: Endpoint,
    address: SocketAddr,
}

impl Listener for QuinnListener {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> Local<'_, transport::Result<Rc<dyn Session>>> {
        Box::pin(async move {
            loop {
                let incoming = self.endpoint.accept().await.ok_or(TransportError::Closed)?;
                // A client that fails its handshake does not end the listening.
                if let Ok(connection) = incoming.await {
                    return Ok(QuinnSession::start(connection, self.endpoint.clone()));
                }
            }
        })
    }
}

impl Drop for QuinnListener {
    fn drop(&mut self) {
        self.endpoint.set_server_config(None);
    }
}

struct QuinnSession {
    connection: Connection,
    endpoint: Endpoint,
    datagrams_room: usize,
    unsettled: Unsettled,
}

/// Streams whose end has not been acknowledged.
type Unsettled = Rc<RefCell<JoinSet<()>>>;

impl QuinnSession {
    fn start(connection: Connection, endpoint: Endpoint) -> Rc<dyn Session> {
        let datagrams_room = connection.datagram_send_buffer_space();
        Rc::new(QuinnSession { connection, endpoint, datagrams_room, unsettled: Unsettled::default() })
    }

    fn stream(&self, (send, receive): (quinn::SendStream, RecvStream)) -> Stream {
        let send = Box::new(QuinnSend { stream: Some(send), unsettled: self.unsettled.clone() });
        Stream { send, receive: Box::new(QuinnReceive(receive)) }
    }
}

impl Session for QuinnSession {
    fn open(&self) -> Local<'_, transport::Result<Stream>> {
        Box::pin(async move { self.connection.open_bi().await.map(|both| self.stream(both)).map_err(lost) })
    }

    fn accept(&self) -> Local<'_, transport::Result<Stream>> {
        Box::pin(async move { self.connection.accept_bi().await.map(|both| self.stream(both)).map_err(lost) })
    }

    fn send_message(&self, message: Bytes, _: Option<Duration>) -> Local<'_, transport::Result<()>> {
        Box::pin(async move {
            self.connection.send_datagram_wait(message).await.map_err(|e| match e {
                SendDatagramError::ConnectionLost(e) => lost(e),
                other => TransportError::Failed(other.to_string()),
            })
        })
    }

    fn receive_message(&self) -> Local<'_, transport::Result<Bytes>> {
        Box::pin(async move { self.connection.read_datagram().await.map_err(lost) })
    }

    fn status(&self) -> Option<Status> {
        let path = self.connection.stats().path;
        let congestion = self.connection.congestion_state().metrics();
        Some(Status {
            window_bytes: Some(path.cwnd),
            // quinn's controllers begin with "no threshold yet" as the largest number.
            threshold_bytes: congestion.ssthresh.filter(|bytes| *bytes != u64::MAX),
            rtt: Some(path.rtt),
            sent_packets: Some(path.sent_packets),
            // What a lost packet held is sent again in another.
            repeated_packets: Some(path.lost_packets),
            ..Status::default()
        })
    }

    fn close(&self) -> Local<'_, ()> {
        Box::pin(async move {
            let mut unsettled = self.unsettled.take();
            while unsettled.join_next().await.is_some() {}
            // Datagrams wait for the congestion window, and closing throws away what waits.
            while self.connection.close_reason().is_none()
                && self.connection.datagram_send_buffer_space() < self.datagrams_room
            {
                sleep(DATAGRAMS_POLL).await;
            }
            self.connection.close(VarInt::from_u32(0), b"");
            // Until the peer has been told. If it goes on sending, it is told again. The endpoint
            // need not outlive that.
            let _ = timeout(CLOSE_MAX, self.endpoint.wait_idle()).await;
        })
    }
}

struct QuinnSend {
    /// `None` once it has been finished.
    stream: Option<quinn::SendStream>,
    unsettled: Unsettled,
}

impl SendStream for QuinnSend {
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Local<'a, transport::Result<()>> {
        Box::pin(async move {
            let stream = self.stream.as_mut().ok_or(TransportError::Closed)?;
            stream.write_all(bytes).await.map_err(|e| match e {
                WriteError::ConnectionLost(e) => lost(e),
                other => TransportError::Failed(other.to_string()),
            })
        })
    }

    fn finish(&mut self) -> Local<'_, transport::Result<()>> {
        Box::pin(async move {
            let mut stream = self.stream.take().ok_or(TransportError::Closed)?;
            stream.finish().map_err(|_| TransportError::Closed)?;
            settle(stream, &self.unsettled);
            Ok(())
        })
    }
}

impl Drop for QuinnSend {
    fn drop(&mut self) {
        if let Some(mut stream) = self.stream.take() {
            // Left alone, quinn would end it in order. The peer may have stopped it already.
            let _ = stream.reset(VarInt::from_u32(0));
            settle(stream, &self.unsettled);
        }
    }
}

/// Keeps a stream until the peer has acknowledged its end.
fn settle(stream: quinn::SendStream, unsettled: &Unsettled) {
    let mut unsettled = unsettled.borrow_mut();
    while unsettled.try_join_next().is_some() {}
    // That the connection is lost, everybody hears.
    unsettled.spawn(async move { stream.stopped().await.map_or((), drop) });
}

struct QuinnReceive(RecvStream);

impl ReceiveStream for QuinnReceive {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Local<'a, transport::Result<usize>> {
        Box::pin(async move {
            match self.0.read(buffer).await {
                Ok(n) => Ok(n.unwrap_or(0)),
                Err(ReadError::ConnectionLost(e)) => Err(lost(e)),
                Err(ReadError::Reset(_)) => Err(TransportError::Failed("the peer gave the stream up".into())),
                Err(other) => Err(TransportError::Failed(other.to_string())),
            }
        })
    }
}

fn lost(error: ConnectionError) -> TransportError {
    match error {
        ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed => TransportError::Closed,
        other => TransportError::Failed(other.to_string()),
    }
}

/// How often it is looked whether datagrams still wait.
const DATAGRAMS_POLL: Duration = Duration::from_millis(2);

/// How long an endpoint stays to tell its peer that it has closed.
const CLOSE_MAX: Duration = Duration::from_millis(500);
