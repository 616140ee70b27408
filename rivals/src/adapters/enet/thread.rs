//! The thread in which the library runs, and what sessions share with it.

use super::{CONTENT, MESSAGES};
use crate::native::enet::{CHANNELS_MAX, Done, Event, Host, PeerId};
use bytes::Bytes;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, oneshot};
use uts_traffic::transport::{self, Status, TransportError};

/// What may wait in ENet for one session: more than the 64 KiB that it has in flight at most, so
/// that ENet never idles.
const STREAMS_ROOM_BYTES: usize = 512 << 10;

/// The same for messages: as much as quinn keeps of datagrams.
const MESSAGES_ROOM_BYTES: usize = 1 << 20;

/// What a peer that leaves in order gives as a reason. ENet gives 0 after a time-out.
const IN_ORDER: u32 = 1;

/// A stream: its channel, and what comes on it.
pub(super) type NewStream = (u8, UnboundedReceiver<Bytes>);

/// What a session and the thread share.
pub(super) struct Shared {
    /// Bytes that ENet may take.
    pub streams_room: Semaphore,
    pub messages_room: Semaphore,
    state: Mutex<(Status, Option<End>)>,
}

/// How a peer went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
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

    pub(super) fn status(&self) -> Status {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn end(&self) -> Option<End> {
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
pub(super) enum Command {
    Open { peer: PeerId, to: oneshot::Sender<NewStream> },
    Send { peer: PeerId, channel: u8, bytes: Bytes, flags: u32 },
    Leave(PeerId),
    LeaveNow(PeerId),
}

/// Where commands are given. The thread ends when nobody can give any more.
#[derive(Clone)]
pub(super) struct Commands {
    /// Behind an `Option` so that it can be closed before the thread is woken.
    to: Option<mpsc::Sender<Command>>,
    wake: Arc<OwnedFd>,
}

impl Commands {
    pub(super) fn give(&self, command: Command) {
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
pub(super) struct NewPeer {
    pub id: PeerId,
    pub shared: Arc<Shared>,
    pub accepted: UnboundedReceiver<NewStream>,
    pub messages: UnboundedReceiver<Bytes>,
    pub gone: oneshot::Receiver<()>,
}

/// The thread of a host, as seen from without.
pub(super) struct Thread {
    pub commands: Commands,
    pub peers: UnboundedReceiver<NewPeer>,
    pub port: u16,
}

impl Thread {
    /// Starts it; the host is made in it, since it must stay there.
    pub(super) fn start(
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
pub(super) enum Opens {
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
