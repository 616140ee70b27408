//! gRPC: channels and servers of tonic over flows.
//!
//! ```no_run
//! # type Fault = Box<dyn std::error::Error>;
//! # async fn example(my_service: tonic::service::Routes) -> Result<(), Fault> {
//! use uts::{ConnectOptions, Identity, Listener, ServerOptions};
//! use uts_rpc::grpc::{Channels, incoming};
//!
//! // A server: tonic's own, with flows instead of TCP connections.
//! let listener = Listener::bind("[::]:4433".parse()?, ServerOptions::new(Identity::generate()?))?;
//! tonic::transport::Server::builder()
//!     .add_routes(my_service)
//!     .serve_with_incoming(incoming(listener))
//!     .await?;
//!
//! // A client: a channel for the client that was made of the .proto file.
//! let options = ConnectOptions::pinned("SHA256:…".parse()?);
//! let channel = Channels::to("example.org:4433", options).open();
//! # Ok(())
//! # }
//! ```

use core::pin::Pin;
use core::task::{Context, Poll};
use futures_util::Stream;
use futures_util::stream::poll_fn;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Mutex, mpsc};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;
use uts::{ConnectOptions, Connection, Fingerprint, Flow, FlowOptions, Listener};

/// Flows that were opened and wait for the server, at the most. Those beyond wait in their
/// connections.
const WAITING_MAX: usize = 64;

/// The opener of a flow: an extension of each request (`request.extensions().get::<Peer>()`).
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address, as it was then.
    pub addr: Option<SocketAddr>,
    /// The key that it has shown to have, if it was asked for one.
    pub fingerprint: Option<Fingerprint>,
}

/// A flow, as tonic takes a connection.
#[derive(Debug)]
pub struct Carrier {
    flow: Flow,
    peer: Peer,
}

/// Channels to one server, over one connection. Clones share it.
#[derive(Clone, Debug)]
pub struct Channels(Arc<Server>);

#[derive(Debug)]
struct Server {
    target: String,
    options: ConnectOptions,
    current: Mutex<Option<Connection>>,
}

impl Carrier {
    /// Takes a flow of a connection.
    pub fn new(connection: &Connection, flow: Flow) -> Self {
        let peer = Peer { addr: connection.remote_addr(), fingerprint: connection.peer_fingerprint() };
        Carrier { flow, peer }
    }
}

impl Channels {
    /// Channels to the server at `target` (`host:port`).
    pub fn to(target: impl Into<String>, options: ConnectOptions) -> Self {
        Channels(Arc::new(Server { target: target.into(), options, current: Mutex::default() }))
    }

    /// A further channel: a flow of its own. The first call opens it, and the connection if there
    /// is none. Once it has ended, the next call opens another.
    pub fn open(&self) -> Channel {
        self.open_with(Endpoint::from_static("http://uts"))
    }

    /// The same, with settings of tonic's own: timeouts, limits, windows. The address in them is
    /// what requests say (`:authority`).
    pub fn open_with(&self, settings: Endpoint) -> Channel {
        let this = self.clone();
        settings.connect_with_connector_lazy(service_fn(move |_: Uri| {
            let this = this.clone();
            async move { this.0.carrier().await.map(TokioIo::new) }
        }))
    }
}

impl Server {
    async fn carrier(&self) -> io::Result<Carrier> {
        let mut current = self.current.lock().await;
        let connection = match current.as_ref().filter(|connection| connection.close_reason().is_none()) {
            Some(open) => open.clone(),
            None => {
                let fresh = uts::connect(&self.target, self.options.clone()).await;
                current.insert(fresh.map_err(io::Error::other)?).clone()
            }
        };
        drop(current);
        let flow = connection.open_flow(FlowOptions::default()).await.map_err(io::Error::other)?;
        Ok(Carrier::new(&connection, flow))
    }
}

/// The flows of all who connect to a listener, for tonic's `serve_with_incoming`. They end when the
/// listener is closed, or when this is dropped.
pub fn incoming(listener: Listener) -> impl Stream<Item = io::Result<Carrier>> {
    let (found, mut flows) = mpsc::channel(WAITING_MAX);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                connection = listener.accept() => {
                    let Some(connection) = connection else { break };
                    tokio::spawn(flows_of(connection, found.clone()));
                }
                () = found.closed() => break,
            }
        }
    });
    poll_fn(move |cx| flows.poll_recv(cx).map(|carrier| carrier.map(Ok)))
}

async fn flows_of(connection: Connection, found: mpsc::Sender<Carrier>) {
    loop {
        tokio::select! {
            flow = connection.accept_flow() => {
                let Some(flow) = flow else { break };
                if found.send(Carrier::new(&connection, flow)).await.is_err() {
                    break;
                }
            }
            () = found.closed() => break,
        }
    }
}

impl Connected for Carrier {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Carrier {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.flow).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Carrier {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.flow).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.flow).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.flow).poll_shutdown(cx)
    }
}
