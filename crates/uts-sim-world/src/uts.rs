//! UTS under test: the engine itself, by the rules by which the other worlds carry it over sockets.

use super::executor::SimClock;
use super::world::{Arrivals, Interest, Port, World, copied};
use bytes::Bytes;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::{Context, Poll};
use core::time::Duration;
use futures_util::future::{Either, select};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use uts_end::Role;
use uts_end::transport::universal::{FAREWELL_MAX, MESSAGE_FLOW, closed};
use uts_engine::{
    CloseReason, Connection, ConnectionConfig, ConnectionHandle, Endpoint, EndpointConfig, FlowError, FlowId,
    FlowOptions, MessageOptions, Read, ReadError, WriteError,
};
use uts_functions::Time;
use uts_sim::host::Host;
use uts_sim::network::AppId;
use uts_sim::topology::Node;
use uts_traffic::clock::Clock;
use uts_traffic::measure::Sample;
use uts_traffic::transport::{
    Capabilities, Listener, Local, ReceiveStream, Result, SendStream, Session, Status, Stream, Transport,
    TransportError,
};

/// Function that prepares an endpoint for the records of it, as soon as it is there.
pub(super) type Prepare = dyn Fn(AppId, &mut Host);

/// UTS at one end of a flow.
pub(super) struct SimUts {
    pub world: Rc<World>,
    pub node: Node,
    pub config: ConnectionConfig,
    pub capabilities: Capabilities,
    pub seed: [u8; 32],
    pub prepare: Box<Prepare>,
}

impl SimUts {
    fn attach(&self, at: Option<SocketAddr>, config: EndpointConfig) -> Result<AppId> {
        let port = Port::Uts(Box::new(Host::new(Endpoint::new(config, self.seed))));
        let app = match at {
            Some(SocketAddr::V4(at)) if at.port() != 0 => self.world.attach_at(self.node, at, port),
            _ => self.world.attach(self.node, port),
        };
        let app = app.map_err(TransportError::Failed)?;
        if let Port::Uts(host) = self.world.network.borrow_mut().app_mut(app) {
            (self.prepare)(app, host);
        }
        Ok(app)
    }
}

impl Transport for SimUts {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn connect(&self, to: SocketAddr) -> Local<'_, Result<Rc<dyn Session>>> {
        Box::pin(async move {
            // As `uts` does for clients: a socket for each connection, which needs no id then.
            let app = self.attach(None, EndpointConfig { cid_bytes: 0, ..EndpointConfig::default() })?;
            let begun = {
                let mut network = self.world.network.borrow_mut();
                let now = network.now();
                match network.app_mut(app) {
                    Port::Uts(host) => {
                        self.world.identities.connect(host.endpoint(), now, to, self.config.clone())
                    }
                    _ => return Err(TransportError::Closed),
                }
            };
            let handle = begun.map_err(|e| TransportError::Failed(e.to_string()))?;
            let connection = Link { world: self.world.clone(), id: (app, handle) };
            connection.connected().await?;
            let messages = connection.open().await?;
            Ok(Rc::new(UtsSession::new(connection, Role::Client, Some(messages))) as Rc<dyn Session>)
        })
    }

    fn listen(&self, at: SocketAddr) -> Local<'_, Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let server = Some(self.world.identities.server.clone());
            let config = EndpointConfig { server, accept: self.config.clone(), ..EndpointConfig::default() };
            let app = self.attach(Some(at), config)?;
            self.world.arrivals.borrow_mut().insert(app, Arrivals::default());
            Ok(Box::new(UtsListener { world: self.world.clone(), app }) as Box<dyn Listener>)
        })
    }
}

struct UtsListener {
    world: Rc<World>,
    app: AppId,
}

impl Listener for UtsListener {
    fn address(&self) -> SocketAddr {
        self.world.network.borrow().address(self.app).into()
    }

    fn accept(&mut self) -> Local<'_, Result<Rc<dyn Session>>> {
        Box::pin(async {
            let handle = poll_fn(|context| {
                let mut all = self.world.arrivals.borrow_mut();
                let arrivals = all.entry(self.app).or_default();
                match arrivals.connections.pop_front() {
                    Some(handle) => Poll::Ready(handle),
                    None => {
                        arrivals.waker = Some(context.waker().clone());
                        Poll::Pending
                    }
                }
            })
            .await;
            let connection = Link { world: self.world.clone(), id: (self.app, handle) };
            Ok(Rc::new(UtsSession::new(connection, Role::Server, None)) as Rc<dyn Session>)
        })
    }
}

impl Drop for UtsListener {
    fn drop(&mut self) {
        if let Port::Uts(host) = self.world.network.borrow_mut().app_mut(self.app) {
            host.endpoint().refuse_new();
        }
    }
}

/// A connection, and the waiting for it.
#[derive(Clone)]
struct Link {
    world: Rc<World>,
    id: (AppId, ConnectionHandle),
}

impl Link {
    fn act<R>(&self, act: impl FnOnce(&mut Connection, Time) -> R) -> Option<R> {
        self.world.connection(self.id, act)
    }

    fn clock(&self) -> SimClock {
        self.world.clock()
    }

    fn close_reason(&self) -> Option<CloseReason> {
        self.world.told(self.id, |told| told.closed.clone())
    }

    /// Why there is nothing more to be had of it.
    fn gone(&self) -> TransportError {
        self.close_reason().map_or(TransportError::Closed, closed)
    }

    /// Waits for `interest`, if an attempt has to; an error if the connection is over.
    fn wait<T>(&self, interest: Interest, context: &Context<'_>) -> Poll<Result<T>> {
        self.world.told(self.id, |told| {
            if let Some(reason) = &told.closed {
                return Poll::Ready(Err(closed(reason.clone())));
            }
            told.wait(interest, context);
            Poll::Pending
        })
    }

    async fn connected(&self) -> Result<()> {
        poll_fn(|context| {
            if self.world.told(self.id, |told| told.is_connected) {
                return Poll::Ready(Ok(()));
            }
            self.wait(Interest::Connected, context)
        })
        .await
    }

    async fn open(&self) -> Result<FlowId> {
        poll_fn(|context| match self.act(|connection, _| connection.open_flow(FlowOptions::default())) {
            Some(Ok(flow)) => Poll::Ready(Ok(flow)),
            Some(Err(FlowError::Blocked)) => self.wait(Interest::MayOpen, context),
            Some(Err(FlowError::Closed(reason))) => Poll::Ready(Err(closed(reason))),
            Some(Err(other)) => Poll::Ready(Err(TransportError::Failed(other.to_string()))),
            None => Poll::Ready(Err(self.gone())),
        })
        .await
    }

    /// Tries to send until there is room.
    async fn send<R>(
        &self,
        flow: FlowId,
        mut send: impl FnMut(&mut Connection, Time) -> std::result::Result<R, WriteError>,
    ) -> Result<R> {
        poll_fn(|context| match self.act(&mut send) {
            Some(Ok(sent)) => Poll::Ready(Ok(sent)),
            Some(Err(WriteError::Blocked)) => self.wait(Interest::Writable(flow), context),
            Some(Err(WriteError::Closed(reason))) => Poll::Ready(Err(closed(reason))),
            Some(Err(other)) => Poll::Ready(Err(TransportError::Failed(other.to_string()))),
            None => Poll::Ready(Err(self.gone())),
        })
        .await
    }

    /// Reads what comes next in a flow.
    async fn read(&self, flow: FlowId, bytes_max: usize) -> Result<Read> {
        poll_fn(|context| match self.act(|connection, now| connection.read(now, flow, bytes_max.max(1))) {
            Some(Ok(read)) => Poll::Ready(Ok(read)),
            Some(Err(ReadError::Blocked)) => self.wait(Interest::Readable(flow), context),
            Some(Err(ReadError::Closed(reason))) => Poll::Ready(Err(closed(reason))),
            Some(Err(ReadError::Unknown)) | None => Poll::Ready(Err(self.gone())),
            Some(Err(other)) => Poll::Ready(Err(TransportError::Failed(other.to_string()))),
        })
        .await
    }

    /// Ends what this end sends in a flow, and waits until it has arrived, or cannot any more.
    async fn finished(&self, flow: FlowId) {
        let _ = self.act(|connection, _| connection.finish(flow));
        let _: Result<()> = poll_fn(|context| {
            let ended = |told: &mut super::world::Told| {
                told.finished.contains(&flow) || told.failed.contains_key(&flow)
            };
            if self.world.told(self.id, ended) {
                return Poll::Ready(Ok(()));
            }
            self.wait(Interest::Finished(flow), context)
        })
        .await;
    }

    async fn ended(&self) {
        let _: Result<()> = poll_fn(|context| self.wait(Interest::Closed, context)).await;
    }
}

/// Waits for a future, but not for ever.
async fn within(clock: &SimClock, span: Duration, future: impl Future<Output = ()>) {
    let until_ns = (clock.now() + span).as_nanos();
    if let Either::Right(_) = select(pin!(future), clock.sleep_until(until_ns)).await {}
}

struct UtsSession {
    connection: Link,
    role: Role,
    /// The flow of messages, once there is one.
    messages: Cell<Option<FlowId>>,
    has_messages: Cell<bool>,
    /// Flows that were finished here and have perhaps not arrived yet.
    finishing: Rc<RefCell<Vec<FlowId>>>,
}

impl UtsSession {
    fn new(connection: Link, role: Role, messages: Option<FlowId>) -> Self {
        let (messages, has_messages) = (Cell::new(messages), Cell::new(false));
        UtsSession { connection, role, messages, has_messages, finishing: Rc::default() }
    }

    /// The flow of messages: at a server, as soon as the client has sent one.
    async fn messages(&self) -> Result<FlowId> {
        let flow = poll_fn(|context| match self.messages.get().or_else(|| self.take_opened(true)) {
            Some(flow) => {
                self.messages.set(Some(flow));
                Poll::Ready(Ok(flow))
            }
            None => self.connection.wait(Interest::Opened, context),
        })
        .await?;
        self.has_messages.set(true);
        Ok(flow)
    }

    /// The next flow that the peer has opened: that of messages, or another.
    fn take_opened(&self, messages: bool) -> Option<FlowId> {
        self.connection.world.told(self.connection.id, |told| {
            let is_wanted = |flow: &FlowId| (*flow == MESSAGE_FLOW) == messages;
            let place = told.opened.iter().position(is_wanted)?;
            told.opened.remove(place)
        })
    }

    fn stream(&self, flow: FlowId) -> Stream {
        let (connection, finishing) = (self.connection.clone(), self.finishing.clone());
        let send = Sender { connection: connection.clone(), flow, finishing, is_finished: false };
        let receive = Receiver { connection, flow, rest: Bytes::new(), position: 0, has_ended: false };
        Stream { send: Box::new(send), receive: Box::new(receive) }
    }

    /// Ends what this end sends, and waits until it has arrived.
    async fn finish_all(&self) {
        let messages = self.messages.get().filter(|_| self.has_messages.get());
        let flows = messages.into_iter().chain(self.finishing.take());
        for flow in flows {
            self.connection.finished(flow).await;
        }
        // The server has then read what it was sent, not only received it.
        if let (Some(flow), Role::Client) = (messages, self.role) {
            let ends = async { while matches!(self.connection.read(flow, 1).await, Ok(Read::Message(_))) {} };
            within(&self.connection.clock(), FAREWELL_MAX, ends).await;
        }
    }
}

impl Session for UtsSession {
    fn open(&self) -> Local<'_, Result<Stream>> {
        Box::pin(async { Ok(self.stream(self.connection.open().await?)) })
    }

    fn accept(&self) -> Local<'_, Result<Stream>> {
        Box::pin(async {
            let flow = poll_fn(|context| match self.take_opened(false) {
                Some(flow) => Poll::Ready(Ok(flow)),
                None => self.connection.wait(Interest::Opened, context),
            });
            Ok(self.stream(flow.await?))
        })
    }

    fn send_message(&self, message: Bytes, lifetime: Option<Duration>) -> Local<'_, Result<()>> {
        Box::pin(async move {
            let flow = self.messages().await?;
            let options = MessageOptions { lifetime, ..MessageOptions::default() };
            let send = |connection: &mut Connection, now| {
                connection.send_message(now, flow, message.clone(), options)
            };
            self.connection.send(flow, send).await
        })
    }

    fn receive_message(&self) -> Local<'_, Result<Bytes>> {
        Box::pin(async {
            let flow = self.messages().await?;
            loop {
                break match self.connection.read(flow, 1).await? {
                    // Whoever asks for damaged messages gets them.
                    Read::Message(message) | Read::Timed { message, .. } | Read::Damaged { message, .. } => {
                        Ok(message)
                    }
                    Read::Missing { .. } => continue,
                    Read::End => Err(TransportError::Closed),
                    Read::Bytes(..) => Err(TransportError::Failed(
                        "the flow carries bytes, not messages: ask for preserveMsgBoundaries".to_owned(),
                    )),
                };
            }
        })
    }

    fn status(&self) -> Option<Status> {
        self.connection.world.peek(self.connection.id, |connection| {
            let (stats, facts) = (connection.stats(), connection.facts());
            let window = connection.congestion().map(|(_, bytes)| bytes);
            Status {
                // A profile without congestion control has no window.
                window_bytes: window.filter(|bytes| *bytes != u64::MAX),
                threshold_bytes: connection.slow_start_threshold(),
                in_flight_bytes: Some(connection.in_flight_bytes()),
                rtt: Some(facts.rtt_smoothed).filter(|rtt| !rtt.is_zero()),
                sent_packets: Some(stats.packets_sent),
                repeated_packets: Some(stats.chunks_repeated),
                delivered_bytes: None,
            }
        })
    }

    fn take_samples(&self) -> Vec<Sample> {
        self.connection.world.told(self.connection.id, |told| core::mem::take(&mut told.samples))
    }

    fn close(&self) -> Local<'_, ()> {
        Box::pin(async {
            self.finish_all().await;
            if self.role == Role::Server {
                // A close overtakes data that has arrived but was not read. The client has all its
                // answers, and therefore closes.
                within(&self.connection.clock(), FAREWELL_MAX, self.connection.ended()).await;
            }
            let _ = self.connection.act(|connection, now| connection.close(now, 0, "done"));
        })
    }
}

struct Sender {
    connection: Link,
    flow: FlowId,
    finishing: Rc<RefCell<Vec<FlowId>>>,
    is_finished: bool,
}

impl SendStream for Sender {
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Local<'a, Result<()>> {
        Box::pin(async move {
            let mut rest = copied(bytes);
            while !rest.is_empty() {
                let flow = self.flow;
                let write = |connection: &mut Connection, now| connection.write(now, flow, rest.clone());
                let taken = self.connection.send(flow, write).await?;
                let _ = rest.split_to(taken);
            }
            Ok(())
        })
    }

    fn finish(&mut self) -> Local<'_, Result<()>> {
        Box::pin(async {
            self.is_finished = true;
            match self.connection.act(|connection, _| connection.finish(self.flow)) {
                Some(()) => Ok(()),
                None => Err(self.connection.gone()),
            }
        })
    }

    fn unsent_bytes(&self) -> u64 {
        self.connection.act(|connection, _| connection.unsent_bytes(self.flow)).flatten().unwrap_or(0)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.is_finished {
            self.finishing.borrow_mut().push(self.flow);
        } else {
            let _ = self.connection.act(|connection, _| connection.reset(self.flow, 0));
        }
    }
}

struct Receiver {
    connection: Link,
    flow: FlowId,
    /// Rest of a read, for which the caller had no room.
    rest: Bytes,
    /// Where the next byte is in the flow.
    position: u64,
    has_ended: bool,
}

impl ReceiveStream for Receiver {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Local<'a, Result<usize>> {
        Box::pin(async move {
            if buffer.is_empty() {
                return Ok(0);
            }
            // An empty message is not the end.
            while self.rest.is_empty() {
                if self.has_ended {
                    return Ok(0);
                }
                match self.connection.read(self.flow, buffer.len()).await {
                    Ok(Read::End) => self.has_ended = true,
                    Ok(Read::Bytes(position, _)) if position != self.position => {
                        let expected = self.position;
                        return Err(TransportError::Failed(format!(
                            "bytes {expected} to {position} are missing: the profile gives bytes up"
                        )));
                    }
                    Ok(Read::Damaged { right_bytes, .. }) => {
                        return Err(TransportError::Failed(format!(
                            "a message is damaged behind its first {right_bytes} bytes"
                        )));
                    }
                    Ok(Read::Missing { .. }) => {}
                    Ok(Read::Bytes(_, bytes) | Read::Message(bytes) | Read::Timed { message: bytes, .. }) => {
                        self.position += bytes.len() as u64;
                        self.rest = bytes;
                    }
                    Err(error) => return Err(error),
                }
            }
            let taken = self.rest.split_to(buffer.len().min(self.rest.len()));
            buffer[..taken.len()].copy_from_slice(&taken);
            Ok(taken.len())
        })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = self.connection.act(|connection, _| connection.stop(self.flow, 0));
        }
    }
}
