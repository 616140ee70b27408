//! ENet: a reliable channel for each stream, and unreliable messages on channel 0. The library runs
//! in a thread of its own.
//!
//! ENet has neither streams nor their ends. A packet on a stream's channel begins with a byte. It
//! says whether content follows, or the end, or that the stream was given up. To open a stream, an
//! end takes a free channel, the client an even one and the server an odd one. It is free again
//! once both directions have ended.

use super::{Rival, Setting};
use crate::native::enet::{
    CHANNELS_MAX, Done, Event, Host, PeerId, RELIABLE, UNRELIABLE_FRAGMENT, UNSEQUENCED, version,
};
use bytes::{Buf, Bytes};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, SocketAddrV4};
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, oneshot};
use uts_end::{Context, TransportSpec};
use uts_traffic::transport::{
    self, Capabilities, Listener, Local, ReceiveStream, SendStream, Session, Status, Stream, Transport,
    TransportError,
};

/// Most sessions of a server.
const PEERS_MAX: usize = 64;

/// The channel of messages; the others are for streams.
const MESSAGES: u8 = 0;

/// Bytes of a stream in one packet of ENet, which splits it for the wire.
const CHUNK_BYTES: usize = 16 << 10;

/// What may wait in ENet for one session: more than the 64 KiB that it has in flight at most, so
/// that ENet never idles.
const STREAMS_ROOM_BYTES: usize = 512 << 10;

/// The same for messages: as much as quinn keeps of datagrams.
const MESSAGES_ROOM_BYTES: usize = 1 << 20;

/// The largest message. ENet takes 32 MiB, but sends an unreliable message at once, and the buffer
/// that it gives its socket holds 256 KiB.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// What a peer that leaves in order gives as a reason. ENet gives 0 after a time-out.
const IN_ORDER: u32 = 1;

/// The first byte of a packet on a stream's channel.
const CONTENT: u8 = 0;
const END: u8 = 1;
const GIVEN_UP: u8 = 2;

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    messages: Messages,
}

/// How messages are sent.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Messages {
    /// Those that come after a later one are dropped, as ENet does unless told otherwise.
    #[default]
    Sequenced,
    /// In whatever order they come.
    Unsequenced,
    /// Repeated until they have arrived, in order.
    Reliable,
}

impl Messages {
    fn flags(self) -> u32 {
        match self {
            Messages::Sequenced => UNRELIABLE_FRAGMENT,
            Messages::Unsequenced => UNSEQUENCED | UNRELIABLE_FRAGMENT,
            Messages::Reliable => RELIABLE,
        }
    }
}

/// What it is.
pub fn rival() -> Rival {
    Rival {
        version: Some(version()),
        settings: &[Setting { key: "messages", values: "sequenced, unsequenced, reliable" }],
        ..super::ENET
    }
}

/// The transport, from a spec.
///
/// # Errors
/// What is wrong with the spec.
pub fn provide(spec: &TransportSpec, _: &Context<'_>) -> Result<Rc<dyn Transport>, String> {
    Ok(Rc::new(Enet(spec.read()?)))
}

struct Enet(Settings);

impl Transport for Enet {
    fn capabilities(&self) -> Capabilities {
        let message_bytes_max = MESSAGE_BYTES_MAX;
        Capabilities { streams: true, messages: true, message_bytes_max, protected: false }
    }

    fn connect(&self, to: SocketAddr) -> Local<'_, transport::Result<Rc<dyn Session>>> {
        Box::pin(async move {
            let to = ipv4(to)?;
            let mut thread = Thread::start(Opens::Even, move || {
                let mut host = Host::client()?;
                host.connect(to)?;
                Ok(host)
            })?;
            let peer = thread.peers.recv().await;
            let peer = peer.ok_or_else(|| TransportError::Failed(format!("ENet: nobody answers at {to}")))?;
            Ok(EnetSession::start(peer, thread.commands, self.0))
        })
    }

    fn listen(&self, at: SocketAddr) -> Local<'_, transport::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let at = ipv4(at)?;
            let thread = Thread::start(Opens::Odd, move || Host::listen(at, PEERS_MAX))?;
            let address = SocketAddrV4::new(*at.ip(), thread.port).into();
            Ok(Box::new(EnetListener { thread, address, settings: self.0 }) as Box<dyn Listener>)
        })
    }
}

fn ipv4(address: SocketAddr) -> transport::Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => {
            Err(TransportError::Failed(format!("ENet: {address} is not IPv4; it has no IPv6")))
        }
    }
}

struct EnetListener {
    thread: Thread,
    address: SocketAddr,
    settings: Settings,
}

impl Listener for EnetListener {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> Local<'_, transport::Result<Rc<dyn Session>>> {
        Box::pin(async move {
            let peer = self.thread.peers.recv().await.ok_or(TransportError::Closed)?;
            Ok(EnetSession::start(peer, self.thread.commands.clone(), self.settings))
        })
    }
}

struct EnetSession {
    id: PeerId,
    shared: Arc<Shared>,
    commands: Commands,
    flags: u32,
    accepted: tokio::sync::Mutex<UnboundedReceiver<NewStream>>,
    messages: tokio::sync::Mutex<UnboundedReceiver<Bytes>>,
    gone: RefCell<Option<oneshot::Receiver<()>>>,
    me: Weak<EnetSession>,
}

/// A stream: its channel, and what comes on it.
type NewStream = (u8, UnboundedReceiver<Bytes>);

impl EnetSession {
    fn start(peer: NewPeer, commands: Commands, settings: Settings) -> Rc<dyn Session> {
        Rc::new_cyclic(|me| EnetSession {
            id: peer.id,
            shared: peer.shared,
            commands,
            flags: settings.messages.flags(),
            accepted: peer.accepted.into(),
            messages: peer.messages.into(),
            gone: RefCell::new(Some(peer.gone)),
            me: me.clone(),
        })
    }

    fn stream(&self, (channel, incoming): NewStream) -> transport::Result<Stream> {
        let session = self.me.upgrade().ok_or(TransportError::Closed)?;
        let send = Box::new(EnetSend { channel, session: session.clone(), open: true });
        let receive = Box::new(EnetReceive { session, incoming, held: Bytes::new(), ended: false });
        Ok(Stream { send, receive })
    }

    /// Waits for room for this many bytes, which the thread gives back once ENet has done with
    /// them.
    async fn room(&self, room: &Semaphore, bytes: usize) -> transport::Result<()> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        room.acquire_many(permits).await.map_err(|_| self.ended()).map(|permit| permit.forget())
    }

    fn send(&self, channel: u8, bytes: Bytes, flags: u32) {
        self.commands.give(Command::Send { peer: self.id, channel, bytes, flags });
    }

    /// Why nothing more comes or goes.
    fn ended(&self) -> TransportError {
        match self.shared.end() {
            Some(End::TimedOut) => {
                TransportError::Failed("ENet: the peer has not answered for too long".into())
            }
            Some(End::InOrder) | None => TransportError::Closed,
        }
    }
}

impl Session for EnetSession {
    fn open(&self) -> Local<'_, transport::Result<Stream>> {
        Box::pin(async move {
            let (to, opened) = oneshot::channel();
            self.commands.give(Command::Open { peer: self.id, to });
            let opened = opened.await.map_err(|_| self.ended())?;
            self.stream(opened)
        })
    }

    fn accept(&self) -> Local<'_, transport::Result<Stream>> {
        Box::pin(async move {
            let next = self.accepted.lock().await.recv().await;
            self.stream(next.ok_or_else(|| self.ended())?)
        })
    }

    fn send_message(&self, message: Bytes, _: Option<Duration>) -> Local<'_, transport::Result<()>> {
        Box::pin(async move {
            if message.len() > MESSAGE_BYTES_MAX {
                let why = format!("a message of {} bytes is larger than {MESSAGE_BYTES_MAX}", message.len());
                return Err(TransportError::Failed(why));
            }
            self.room(&self.shared.messages_room, message.len()).await?;
            self.send(MESSAGES, message, self.flags);
            Ok(())
        })
    }

    fn receive_message(&self) -> Local<'_, transport::Result<Bytes>> {
        Box::pin(async move { self.messages.lock().await.recv().await.ok_or_else(|| self.ended()) })
    }

    fn status(&self) -> Option<Status> {
        Some(self.shared.status())
    }

    fn close(&self) -> Local<'_, ()> {
        Box::pin(async move {
            self.commands.give(Command::Leave(self.id));
            let gone = self.gone.borrow_mut().take();
            if let Some(gone) = gone {
                // It ends without a word if the thread does.
                let _ = gone.await;
            }
        })
    }
}

impl Drop for EnetSession {
    fn drop(&mut self) {
        self.commands.give(Command::LeaveNow(self.id));
    }
}

struct EnetSend {
    channel: u8,
    session: Rc<EnetSession>,
    open: bool,
}

impl EnetSend {
    fn end(&mut self, with: u8) {
        self.open = false;
        self.session.send(self.channel, Bytes::copy_from_slice(&[with]), RELIABLE);
    }
}

impl SendStream for EnetSend {
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Local<'a, transport::Result<()>> {
        Box::pin(async move {
            if !self.open {
                return Err(TransportError::Closed);
            }
            for chunk in bytes.chunks(CHUNK_BYTES) {
                self.session.room(&self.session.shared.streams_room, chunk.len()).await?;
                self.session.send(self.channel, [&[CONTENT], chunk].concat().into(), RELIABLE);
            }
            Ok(())
        })
    }

    fn finish(&mut self) -> Local<'_, transport::Result<()>> {
        Box::pin(async move {
            if !self.open {
                return Err(TransportError::Closed);
            }
            self.end(END);
            Ok(())
        })
    }
}

impl Drop for EnetSend {
    fn drop(&mut self) {
        if self.open {
            self.end(GIVEN_UP);
        }
    }
}

struct EnetReceive {
    session: Rc<EnetSession>,
    incoming: UnboundedReceiver<Bytes>,
    /// What came and has not been read.
    held: Bytes,
    ended: bool,
}

impl ReceiveStream for EnetReceive {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Local<'a, transport::Result<usize>> {
        Box::pin(async move {
            while self.held.is_empty() && !self.ended {
                let mut packet = self.incoming.recv().await.ok_or_else(|| self.session.ended())?;
                match packet.try_get_u8() {
                    Ok(CONTENT) => self.held = packet,
                    Ok(END) => self.ended = true,
                    Ok(GIVEN_UP) => return Err(TransportError::Failed("the peer gave the stream up".into())),
                    _ => return Err(TransportError::Failed("a packet of no stream on its channel".into())),
                }
            }
            let taken = self.held.split_to(self.held.len().min(buffer.len()));
            buffer[..taken.len()].copy_from_slice(&taken);
            Ok(taken.len())
        })
    }
}

/// What a session and the thread share.
struct Shared {
    /// Bytes that ENet may take.
    streams_room: Semaphore,
    messages_room: Semaphore,
    state: Mutex<(Status, Option<End>)>,
}

/// How a peer went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    InOrder,
    TimedOut,
}

impl Shared {
    fn new() -> Shared {
        Shared {
            streams_room: Semaphore::new(STREAMS_ROOM_BYTES),
            messages_room: Semaphore::new(MESSAGES_ROOM_BYTES),
            state: Mutex::default(),
        }
    }

    fn status(&self) -> Status {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn end(&self) -> Option<End> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    fn set_status(&self, status: Status) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 = status;
    }

    fn set_end(&self, end: End) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1 = Some(end);
        self.streams_room.close();
        self.messages_room.close();
    }
}

/// What the thread is asked to do.
enum Command {
    Open { peer: PeerId, to: oneshot::Sender<NewStream> },
    Send { peer: PeerId, channel: u8, bytes: Bytes, flags: u32 },
    Leave(PeerId),
    LeaveNow(PeerId),
}

/// Where commands are given. The thread ends when nobody can give any more.
#[derive(Clone)]
struct Commands {
    /// Behind an `Option` so that it can be closed before the thread is woken.
    to: Option<mpsc::Sender<Command>>,
    wake: Arc<OwnedFd>,
}

impl Commands {
    fn give(&self, command: Command) {
        if let Some(to) = &self.to
            && to.send(command).is_ok()
        {
            wake(&self.wake);
        }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.to = None;
        wake(&self.wake);
    }
}

fn wake(fd: &OwnedFd) {
    // It can only fail if it was not read 2^64 times; then it is awake.
    let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
}

/// A peer that has connected, for the session that is made of it.
struct NewPeer {
    id: PeerId,
    shared: Arc<Shared>,
    accepted: UnboundedReceiver<NewStream>,
    messages: UnboundedReceiver<Bytes>,
    gone: oneshot::Receiver<()>,
}

/// The thread of a host, as seen from without.
struct Thread {
    commands: Commands,
    peers: UnboundedReceiver<NewPeer>,
    port: u16,
}

impl Thread {
    /// Starts it; the host is made in it, since it must stay there.
    fn start(
        opens: Opens,
        make: impl FnOnce() -> std::io::Result<Host> + Send + 'static,
    ) -> transport::Result<Thread> {
        let failed = |e: std::io::Error| TransportError::Failed(e.to_string());
        let woken = Arc::new(
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| failed(e.into()))?,
        );
        let (to, commands) = mpsc::channel();
        let (connected, peers) = unbounded_channel();
        let (tells, told) = mpsc::channel();
        let wakes = woken.clone();
        let main = move || {
            let host = match make() {
                Ok(host) => host,
                Err(e) => return drop(tells.send(Err(e))),
            };
            if tells.send(Ok(host.port())).is_ok() {
                Worker { host, opens, commands, connected: Some(connected), woken, peers: BTreeMap::new() }
                    .run();
            }
        };
        thread::Builder::new().name("enet".into()).spawn(main).map_err(failed)?;
        let port = told.recv().map_err(|_| TransportError::Failed("ENet: its thread has failed".into()))?;
        Ok(Thread { commands: Commands { to: Some(to), wake: wakes }, peers, port: port.map_err(failed)? })
    }
}

/// The thread: it alone touches the host.
struct Worker {
    host: Host,
    opens: Opens,
    commands: mpsc::Receiver<Command>,
    connected: Option<UnboundedSender<NewPeer>>,
    woken: Arc<OwnedFd>,
    peers: BTreeMap<PeerId, Peer>,
}

/// Which channels an end takes for the streams that it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opens {
    Even,
    Odd,
}

struct Peer {
    shared: Arc<Shared>,
    /// By channel, those in use.
    streams: BTreeMap<u8, Channel>,
    /// The tasks that wait for a channel.
    opening: VecDeque<oneshot::Sender<NewStream>>,
    accepts: UnboundedSender<NewStream>,
    messages: UnboundedSender<Bytes>,
    gone: oneshot::Sender<()>,
    /// What ENet has said it has done with: messages, streams.
    done: [Done; 2],
    /// Losses of the intervals before this one, and those of this one.
    losses: (u64, u32),
}

/// A channel that a stream uses.
struct Channel {
    /// Where what comes on it goes; `None` once this direction has ended.
    to: Option<UnboundedSender<Bytes>>,
    /// Whether the other direction has not ended.
    sends: bool,
}

impl Worker {
    fn run(mut self) {
        loop {
            let mut buffer = [0; 8];
            // It is enough to know that there was something, or nothing.
            let _ = rustix::io::read(&self.woken, &mut buffer);
            loop {
                match self.commands.try_recv() {
                    Ok(command) => self.on_command(command),
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => return self.leave_all(),
                }
            }
            loop {
                match self.host.service() {
                    Ok(Some(event)) => self.on_event(event),
                    Ok(None) => break,
                    // Without a socket nothing more arrives. Sessions end as their senders are
                    // dropped.
                    Err(_) => return,
                }
            }
            self.report();
            self.host.wait(self.woken.as_fd(), SERVICE_EVERY);
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Open { peer, to } => {
                if let Some(peer) = self.peers.get_mut(&peer) {
                    peer.opening.push_back(to);
                    peer.open(self.opens);
                }
            }
            Command::Send { peer: id, channel, bytes, flags } => {
                // A packet that cannot be sent belongs to a peer that has gone. Its session hears
                // that otherwise.
                self.host.send(id, channel, &bytes, flags);
                let is_last = channel != MESSAGES && bytes.first().is_some_and(|kind| *kind != CONTENT);
                if let (true, Some(peer)) = (is_last, self.peers.get_mut(&id)) {
                    peer.on_ended(channel, self.opens, |stream| stream.sends = false);
                }
            }
            Command::Leave(peer) => self.host.disconnect_later(peer, IN_ORDER),
            Command::LeaveNow(peer) => {
                if self.peers.remove(&peer).is_some() {
                    self.host.disconnect_now(peer, IN_ORDER);
                }
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected(id) => self.on_connected(id),
            Event::Disconnected(id, reason) => {
                if let Some(peer) = self.peers.remove(&id) {
                    peer.shared.set_end(if reason == IN_ORDER { End::InOrder } else { End::TimedOut });
                    // Nobody may be waiting.
                    let _ = peer.gone.send(());
                } else {
                    // A connection that was never made: the client need not wait for it.
                    self.connected = None;
                }
            }
            Event::Received(id, channel, bytes) => {
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.on_packet(channel, bytes.into(), self.opens);
                }
            }
        }
    }

    fn on_connected(&mut self, id: PeerId) {
        let shared = Arc::new(Shared::new());
        let ((accepts, accepted), (sends, messages)) = (unbounded_channel(), unbounded_channel());
        let (gone, leaves) = oneshot::channel();
        let new = NewPeer { id, shared: shared.clone(), accepted, messages, gone: leaves };
        if self.connected.as_ref().is_none_or(|connected| connected.send(new).is_err()) {
            // The listener is gone.
            return self.host.disconnect_now(id, IN_ORDER);
        }
        let peer = Peer {
            shared,
            streams: BTreeMap::new(),
            opening: VecDeque::new(),
            accepts,
            messages: sends,
            gone,
            done: Default::default(),
            losses: (0, 0),
        };
        self.peers.insert(id, peer);
    }

    /// Tells sessions what ENet tells, and gives back room.
    fn report(&mut self) {
        for (id, peer) in &mut self.peers {
            let (Some(done), Some(raw)) = (self.host.done(*id), self.host.status(*id)) else { continue };
            // Each packet of a stream begins with a byte that is not content.
            let content = |[messages, streams]: [Done; 2]| [messages.bytes, streams.bytes - streams.packets];
            let (before, now) = (content(peer.done), content(done));
            let room = |which: usize| usize::try_from(now[which] - before[which]).unwrap_or(0);
            peer.shared.messages_room.add_permits(room(0));
            peer.shared.streams_room.add_permits(room(1));
            peer.done = done;
            // ENet begins anew in each interval.
            if raw.lost_packets < peer.losses.1 {
                peer.losses.0 += u64::from(peer.losses.1);
            }
            peer.losses.1 = raw.lost_packets;
            peer.shared.set_status(Status {
                window_bytes: Some(raw.window_bytes.into()),
                in_flight_bytes: Some(raw.in_flight_bytes.into()),
                rtt: Some(Duration::from_millis(raw.rtt_ms.into())),
                sent_packets: Some(raw.sent_packets.into()),
                repeated_packets: Some(peer.losses.0 + u64::from(peer.losses.1)),
                delivered_bytes: Some(now[1]),
                threshold_bytes: None,
            });
        }
    }

    fn leave_all(mut self) {
        for id in core::mem::take(&mut self.peers).into_keys() {
            self.host.disconnect_now(id, IN_ORDER);
        }
    }
}

impl Peer {
    /// Gives channels to waiting tasks, while there are any.
    fn open(&mut self, opens: Opens) {
        let first = if opens == Opens::Even { 2 } else { 1 };
        while let Some(waits) = self.opening.pop_front() {
            let free = (first..CHANNELS_MAX as u8).step_by(2).find(|n| !self.streams.contains_key(n));
            let Some(channel) = free else { return self.opening.push_front(waits) };
            let (to, incoming) = unbounded_channel();
            // A task that gave up waiting needs none.
            if waits.send((channel, incoming)).is_ok() {
                self.streams.insert(channel, Channel { to: Some(to), sends: true });
            }
        }
    }

    fn on_packet(&mut self, channel: u8, packet: Bytes, opens: Opens) {
        // A task that does not want it any more has dropped its receiver.
        if channel == MESSAGES {
            let _ = self.messages.send(packet);
            return;
        }
        let is_last = packet.first().is_some_and(|kind| *kind != CONTENT);
        let stream = self.streams.entry(channel).or_insert_with(|| {
            let (to, incoming) = unbounded_channel();
            let _ = self.accepts.send((channel, incoming));
            Channel { to: Some(to), sends: true }
        });
        if let Some(to) = &stream.to {
            let _ = to.send(packet);
        }
        if is_last {
            self.on_ended(channel, opens, |stream| stream.to = None);
        }
    }

    /// Notes that a direction of a stream has ended.
    fn on_ended(&mut self, channel: u8, opens: Opens, note: impl Fn(&mut Channel)) {
        let Some(stream) = self.streams.get_mut(&channel) else { return };
        note(stream);
        if stream.to.is_none() && !stream.sends {
            self.streams.remove(&channel);
            self.open(opens);
        }
    }
}

/// How often ENet is called when nothing arrives: its clock counts milliseconds.
const SERVICE_EVERY: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_ipv6_are_refused() {
        let why = ipv4("[::1]:5".parse().expect("address")).expect_err("refused");
        assert!(why.to_string().contains("IPv4"), "{why}");
        assert!(ipv4("127.0.0.1:5".parse().expect("address")).is_ok());
    }
}
