//! UTS: by requirements, in the names of RFC 9622, or with mechanisms named by hand.

mod settings;

pub use settings::{Preset, UniversalSettings};

use crate::clock;
use crate::{Context, Role};
use bytes::Bytes;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use futures_util::FutureExt;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use uts::{
    CloseReason, ConnectOptions, Connection, ConnectionConfig, ConnectionEvent, ExchangeEvent, Fingerprint,
    Flow, FlowError, FlowId, FlowOptions, Identity, MessageOptions, ReadError, RecvFlow, SendFlow,
    ServerOptions, Time, TraceKind, TraceRow, WriteError,
};
use uts_traffic::measure::{PacketEvent, Sample};
use uts_traffic::transport::{
    Capabilities, Listener, Local, ReceiveStream, Result, SendStream, Session, Status, Stream, Transport,
    TransportError,
};

/// The first flow of a client carries its messages and the answers to them. The others are streams.
pub const MESSAGE_FLOW: FlowId = FlowId(0);

/// The largest message of the mechanism `messages` unless told otherwise.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Time that an end waits for the other's part in closing.
pub const FAREWELL_MAX: Duration = Duration::from_secs(5);

/// UTS over UDP.
pub struct Universal {
    config: ConnectionConfig,
    /// At a server.
    identity: Option<Identity>,
    /// At a client: the server's key.
    peer: Option<Fingerprint>,
}

impl Universal {
    /// For one end of a run. A server gets a new key.
    ///
    /// # Errors
    /// A setting that is wrong, with its key; at a client, a fingerprint that is none.
    pub fn new(settings: UniversalSettings, context: &Context<'_>) -> std::result::Result<Self, String> {
        let config = settings.config(context.workload)?;
        let identity = match context.role {
            Role::Server => Some(Identity::generate().map_err(|e| e.to_string())?),
            Role::Client => None,
        };
        let peer =
            context.peer.map(str::parse).transpose().map_err(|e| format!("uts: the server's key: {e}"))?;
        Ok(Universal { config, identity, peer })
    }
}

impl Transport for Universal {
    fn capabilities(&self) -> Capabilities {
        let requirements = &self.config.requirements;
        Capabilities {
            protected: requirements.security == uts::requirements::Security::Required,
            ..UniversalSession::CAPABILITIES
        }
    }

    fn identity(&self) -> Option<String> {
        self.identity.as_ref().map(|identity| identity.fingerprint().to_string())
    }

    fn connect(&self, to: SocketAddr) -> Local<'_, Result<Rc<dyn Session>>> {
        Box::pin(async move {
            let missing = || TransportError::Failed("the server's key was not given".into());
            let mut options = ConnectOptions::pinned(self.peer.ok_or_else(missing)?);
            options.connection = self.config.clone();
            let connected = uts::connect(&to.to_string(), options).await;
            let connection = connected.map_err(|e| TransportError::Failed(e.to_string()))?;
            let messages = connection.open_flow(FlowOptions::default()).await.map_err(not_opened)?;
            Ok(Rc::new(UniversalSession::new(connection, Role::Client, Some(messages))) as Rc<dyn Session>)
        })
    }

    fn listen(&self, at: SocketAddr) -> Local<'_, Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let missing = || TransportError::Failed("a client cannot listen".into());
            let mut options = ServerOptions::new(self.identity.clone().ok_or_else(missing)?);
            options.connection = self.config.clone();
            let listener = uts::Listener::bind(at, options);
            let listener = listener.map_err(|e| TransportError::Failed(e.to_string()))?;
            Ok(Box::new(UniversalListener(listener)) as Box<dyn Listener>)
        })
    }
}

struct UniversalListener(uts::Listener);

impl Listener for UniversalListener {
    fn address(&self) -> SocketAddr {
        self.0.local_addr()
    }

    fn accept(&mut self) -> Local<'_, Result<Rc<dyn Session>>> {
        Box::pin(async {
            let connection = self.0.accept().await.ok_or(TransportError::Closed)?;
            Ok(Rc::new(UniversalSession::new(connection, Role::Server, None)) as Rc<dyn Session>)
        })
    }
}

/// Meaning of the end of a connection for a workload: in order, if its application had no
/// complaint.
pub fn closed(reason: CloseReason) -> TransportError {
    match reason {
        CloseReason::Peer { code: 0, .. } | CloseReason::Local { code: 0, .. } => TransportError::Closed,
        other => TransportError::Failed(other.to_string()),
    }
}

fn not_opened(error: FlowError) -> TransportError {
    match error {
        FlowError::Closed(reason) => closed(reason),
        other => TransportError::Failed(other.to_string()),
    }
}

fn write_error(error: WriteError) -> TransportError {
    match error {
        WriteError::Closed(reason) => closed(reason),
        other => TransportError::Failed(other.to_string()),
    }
}

fn read_error(error: ReadError) -> TransportError {
    match error {
        ReadError::Ended => TransportError::Closed,
        ReadError::Closed(reason) => closed(reason),
        other => TransportError::Failed(other.to_string()),
    }
}

/// Both halves of the flow of messages.
struct MessageFlow {
    send: Mutex<SendFlow>,
    receive: Mutex<RecvFlow>,
    is_used: Cell<bool>,
}

/// A connection as a session that carries workloads.
pub struct UniversalSession {
    connection: Connection,
    role: Role,
    /// The flow in which messages come, once there is one. Unless `own` is another, they leave in
    /// it too.
    messages: watch::Receiver<Option<Rc<MessageFlow>>>,
    own: Option<Rc<MessageFlow>>,
    streams: Mutex<UnboundedReceiver<Flow>>,
    /// Flows that were finished here and have perhaps not arrived yet.
    finishing: Rc<RefCell<Vec<SendFlow>>>,
    samples: Rc<RefCell<Vec<Sample>>>,
    packets: RefCell<Option<Packets>>,
    _tasks: Tasks,
}

/// Tasks that end with what has begun them.
struct Tasks([AbortHandle; 2]);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// Record of packets, while they are recorded.
struct Packets {
    /// When it began, by the connection's clock and by that of samples.
    start: Time,
    start_ns: u64,
    /// Data that is under way, by the number of its packet.
    sent: HashMap<u64, (u32, u64)>,
}

impl Packets {
    /// A row as a sample. Rows of acknowledged and lost packets also say what the packets carried.
    fn sample(&mut self, row: &TraceRow) -> Sample {
        let data = match row.kind {
            TraceKind::Sent | TraceKind::Repeated => row.data.inspect(|data| {
                self.sent.insert(row.number, *data);
            }),
            TraceKind::Acknowledged | TraceKind::Lost => self.sent.remove(&row.number),
            TraceKind::Received => None,
        };
        let what = match row.kind {
            TraceKind::Sent => PacketEvent::Sent,
            TraceKind::Repeated => PacketEvent::Repeated,
            TraceKind::Acknowledged => PacketEvent::Acked,
            TraceKind::Lost => PacketEvent::Lost,
            TraceKind::Received => PacketEvent::Received,
        };
        let since = u64::try_from(row.at.since(self.start).as_nanos()).unwrap_or(u64::MAX);
        let at_ns = self.start_ns.saturating_add(since);
        Sample::Packet { at_ns, what, number: row.number, bytes: row.bytes, epoch: row.epoch, data }
    }
}

/// Use of the flows that the peer opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The client's first carries the messages of both ends. The others are streams.
    FirstIsMessages,
    /// All are streams.
    Streams,
    /// Each carries messages.
    Messages,
}

impl UniversalSession {
    /// Capabilities of sessions over an encrypted connection.
    pub const CAPABILITIES: Capabilities =
        Capabilities { streams: true, messages: true, message_bytes_max: MESSAGE_BYTES_MAX, protected: true };

    fn new(connection: Connection, role: Role, messages: Option<Flow>) -> Self {
        Self::make(connection, role, messages, Opened::FirstIsMessages)
    }

    /// A session over a connection that has flows for other purposes as well. From now on it takes
    /// all flows that the peer opens. Messages of this end go in `own`. To be called within a
    /// `LocalSet` of a tokio runtime.
    pub fn beside(connection: Connection, role: Role, own: Option<Flow>, opened: Opened) -> Self {
        let own = own.map(MessageFlow::new);
        UniversalSession { own, ..Self::make(connection, role, None, opened) }
    }

    fn make(connection: Connection, role: Role, messages: Option<Flow>, opened: Opened) -> Self {
        let (told, messages) = watch::channel(messages.map(MessageFlow::new));
        let (streams_in, streams) = unbounded_channel();
        let samples = Rc::new(RefCell::default());
        let sort = sort(connection.clone(), opened, told, streams_in);
        let listen = listen(connection.clone(), samples.clone());
        let tasks = [tokio::task::spawn_local(sort), tokio::task::spawn_local(listen)];
        UniversalSession {
            connection,
            role,
            messages,
            own: None,
            streams: Mutex::new(streams),
            finishing: Rc::default(),
            samples,
            packets: RefCell::default(),
            _tasks: Tasks(tasks.map(|task| task.abort_handle())),
        }
    }

    /// The flow of messages: at a server, as soon as the client has sent one.
    async fn messages(&self) -> Result<Rc<MessageFlow>> {
        let mut messages = self.messages.clone();
        let flow = messages.wait_for(Option::is_some).await;
        let flow = flow.ok().and_then(|flow| flow.clone()).ok_or(TransportError::Closed)?;
        flow.is_used.set(true);
        Ok(flow)
    }

    /// A flow of the connection as a stream of the session.
    pub fn stream(&self, flow: Flow) -> Stream {
        let (send, receive) = flow.split();
        let send = Sender { flow: Some(send), finishing: self.finishing.clone(), is_finished: false };
        Stream { send: Box::new(send), receive: Box::new(Receiver(receive)) }
    }

    /// Ends the messages of this end's own flow, and waits until they have arrived or are given up.
    pub async fn finish_messages(&self) {
        if let Some(own) = &self.own {
            let _ = own.send.lock().await.finished().await;
        }
    }

    /// Ends what this end sends, and waits until it has arrived.
    async fn finish_all(&self) {
        let messages = self.messages.borrow().clone().filter(|flow| flow.is_used.get());
        if let Some(flow) = &messages {
            let _ = flow.send.lock().await.finished().await;
        }
        let finishing = self.finishing.take();
        for mut flow in finishing {
            let _ = flow.finished().await;
        }
        // The server has then read what it was sent, not only received it.
        if let (Some(flow), Role::Client) = (messages, self.role) {
            let mut receive = flow.receive.lock().await;
            let ends = async { while let Ok(Some(_)) = receive.recv_message().await {} };
            let _ = timeout(FAREWELL_MAX, ends).await;
        }
    }
}

impl MessageFlow {
    fn new(flow: Flow) -> Rc<Self> {
        let (send, receive) = flow.split();
        Rc::new(MessageFlow {
            send: Mutex::new(send),
            receive: Mutex::new(receive),
            is_used: Cell::new(false),
        })
    }
}

/// Sorts the flows that the peer opens.
async fn sort(
    connection: Connection,
    opened: Opened,
    messages: watch::Sender<Option<Rc<MessageFlow>>>,
    streams: UnboundedSender<Flow>,
) {
    while let Some(flow) = connection.accept_flow().await {
        let is_of_messages = match opened {
            Opened::FirstIsMessages => flow.id() == MESSAGE_FLOW,
            Opened::Streams => false,
            Opened::Messages => true,
        };
        if is_of_messages {
            messages.send_replace(Some(MessageFlow::new(flow)));
        } else if streams.send(flow).is_err() {
            return;
        }
    }
}

/// Notes the exchanges.
async fn listen(connection: Connection, samples: Rc<RefCell<Vec<Sample>>>) {
    let mut events = connection.events();
    drop(connection);
    while let Some(event) = events.next().await {
        if let ConnectionEvent::Exchange(step) = event {
            samples.borrow_mut().push(Sample::Exchange { at_ns: clock::now_ns(), line: describe(&step) });
        }
    }
}

/// A step of an exchange in one line.
pub fn describe(step: &ExchangeEvent) -> String {
    match step {
        ExchangeEvent::Requested { epoch, seen, changes, expects, .. } => {
            let [seen, expects] =
                [("saw", seen), ("expects", expects)].map(|(word, text)| match text.as_str() {
                    "" => String::new(),
                    text => format!("; {word} {text}"),
                });
            format!("epoch {epoch} requested: {changes}{seen}{expects}")
        }
        ExchangeEvent::Granted { epoch, changes, .. } => format!("epoch {epoch} granted: {changes}"),
        ExchangeEvent::Completed { epoch, took, .. } => {
            format!("epoch {epoch} in force after {:.1} ms", took.as_secs_f64() * 1e3)
        }
        ExchangeEvent::Refused { epoch, function, why, .. } => {
            format!("epoch {epoch} refused: {}: {why}", function.name())
        }
        ExchangeEvent::Failed { epoch, .. } => format!("epoch {epoch} failed: no answer"),
        ExchangeEvent::Brought { epoch, line } => format!("epoch {epoch} brought: {line}"),
        other => format!("{other:?}"),
    }
}

impl Session for UniversalSession {
    fn open(&self) -> Local<'_, Result<Stream>> {
        Box::pin(async {
            let flow = self.connection.open_flow(FlowOptions::default()).await.map_err(not_opened)?;
            Ok(self.stream(flow))
        })
    }

    fn accept(&self) -> Local<'_, Result<Stream>> {
        Box::pin(async {
            match self.streams.lock().await.recv().await {
                Some(flow) => Ok(self.stream(flow)),
                None => Err(self.connection.close_reason().map_or(TransportError::Closed, closed)),
            }
        })
    }

    fn send_message(&self, message: Bytes, lifetime: Option<Duration>) -> Local<'_, Result<()>> {
        Box::pin(async move {
            let flow = match &self.own {
                Some(own) => own.clone(),
                None => self.messages().await?,
            };
            let mut send = flow.send.lock().await;
            send.send_message(message, MessageOptions { lifetime, ..MessageOptions::default() })
                .await
                .map_err(write_error)
        })
    }

    fn receive_message(&self) -> Local<'_, Result<Bytes>> {
        Box::pin(async {
            let flow = self.messages().await?;
            let mut receive = flow.receive.lock().await;
            match receive.recv_message().await {
                // Whoever asks for damaged messages gets them.
                Err(uts::ReadError::RightTo { .. }) => match receive.recv_chunk(usize::MAX).await {
                    Ok(Some(uts::Chunk::Damaged { message, .. })) => Ok(message),
                    Ok(_) => Err(TransportError::Closed),
                    Err(error) => Err(read_error(error)),
                },
                other => other.map_err(read_error)?.ok_or(TransportError::Closed),
            }
        })
    }

    fn status(&self) -> Option<Status> {
        let (stats, facts) = (self.connection.stats(), self.connection.facts());
        let seen =
            self.connection.inspect(|c| (c.congestion(), c.slow_start_threshold(), c.in_flight_bytes()));
        let (congestion, threshold_bytes, in_flight) = seen.unwrap_or((None, None, 0));
        Some(Status {
            // A profile without congestion control has no window.
            window_bytes: congestion.map(|(_, bytes)| bytes).filter(|bytes| *bytes != u64::MAX),
            threshold_bytes,
            in_flight_bytes: Some(in_flight),
            rtt: Some(facts.rtt_smoothed).filter(|rtt| !rtt.is_zero()),
            sent_packets: Some(stats.packets_sent),
            repeated_packets: Some(stats.chunks_repeated),
            delivered_bytes: None,
        })
    }

    fn record_packets(&self) {
        let (start, start_ns) = (self.connection.start_trace(), clock::now_ns());
        *self.packets.borrow_mut() = Some(Packets { start, start_ns, sent: HashMap::new() });
    }

    fn take_samples(&self) -> Vec<Sample> {
        let mut samples = self.samples.take();
        if let Some(packets) = self.packets.borrow_mut().as_mut() {
            samples.extend(self.connection.take_trace().iter().map(|row| packets.sample(row)));
        }
        samples
    }

    fn close(&self) -> Local<'_, ()> {
        Box::pin(async {
            self.finish_all().await;
            if self.role == Role::Server {
                // A close overtakes data that has arrived but was not read. The client has all its
                // answers, and therefore closes.
                let _ = timeout(FAREWELL_MAX, self.connection.closed()).await;
            }
            self.connection.close(0, "done").await;
        })
    }
}

struct Sender {
    flow: Option<SendFlow>,
    finishing: Rc<RefCell<Vec<SendFlow>>>,
    is_finished: bool,
}

impl SendStream for Sender {
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Local<'a, Result<()>> {
        Box::pin(async move {
            let flow = self.flow.as_mut().ok_or(TransportError::Closed)?;
            flow.write_bytes(Bytes::copy_from_slice(bytes)).await.map_err(write_error)
        })
    }

    fn finish(&mut self) -> Local<'_, Result<()>> {
        Box::pin(async {
            self.is_finished = true;
            self.flow.as_mut().ok_or(TransportError::Closed)?.finish().map_err(write_error)
        })
    }

    fn unsent_bytes(&self) -> u64 {
        self.flow.as_ref().map_or(0, SendFlow::unsent_bytes)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let Some(mut flow) = self.flow.take() else { return };
        if !self.is_finished {
            // What still waits when a measurement is over is of no interest to the other end.
            flow.reset(0);
            return;
        }
        let mut finishing = self.finishing.borrow_mut();
        finishing.retain_mut(|flow| flow.finished().now_or_never().is_none());
        finishing.push(flow);
    }
}

struct Receiver(RecvFlow);

impl ReceiveStream for Receiver {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Local<'a, Result<usize>> {
        Box::pin(async move {
            let read = self.0.read(buffer).await;
            read.map_err(|e| match e.downcast::<ReadError>() {
                Ok(error) => read_error(error),
                Err(error) => TransportError::Failed(error.to_string()),
            })
        })
    }
}
