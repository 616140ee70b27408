//! SRT: live mode for messages, file mode for streams. The workload decides, unless a setting does.
//!
//! A connection of SRT is one stream. A session therefore opens one for each, from one UDP port.
//! The stream ID that SRT carries in its handshake says to which session and which mode it belongs.
//! A stream of SRT has no end of its own in one direction. What is written goes in frames of a
//! length (4 bytes) and content, and a frame without content is the end.

use super::{Rival, Setting};
use crate::native::srt::{Mode, Options, Socket, SrtError, version};
use bytes::Bytes;
use serde::Deserialize;
use std::cell::{Cell, RefCell};
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::{self, Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use uts_end::{Context, TransportSpec};
use uts_traffic::transport::{
    self, Capabilities, Listener, Local, ReceiveStream, SendStream, Session, Status, Stream, Transport,
    TransportError,
};
use uts_traffic::workload::Workload;

/// The largest message of live mode, unless SRT is set otherwise (`SRT_LIVE_DEF_PLSIZE`).
const MESSAGE_BYTES_MAX: usize = 1316;

/// The latency of live mode, unless it is set (`SRT_LIVE_DEF_LATENCY_MS`).
const LATENCY: Duration = Duration::from_millis(120);

/// Content of a frame of a stream, at most.
const FRAME_BYTES_MAX: usize = 64 << 10;

/// The length before each frame, big-endian.
const LENGTH_BYTES: usize = 4;

/// In place of a length: the stream was given up.
const GIVEN_UP: u32 = u32::MAX;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Both ends have it, as they have all settings. It authenticates nobody, and costs what a real one
/// does.
const PASSPHRASE: &str = "the passphrase of a measured run";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    mode: Option<ModeName>,
    #[serde(with = "uts_units::text::duration_option")]
    latency: Option<Duration>,
    aes: Aes,
    /// Buffers at both ends and how much may be in flight (SRT: some 12 MB).
    #[serde(with = "uts_units::text::bytes_option")]
    window: Option<u64>,
    /// The greatest rate of live mode (SRT: 1 Gbit/s).
    #[serde(with = "uts_units::text::rate_option")]
    rate_max: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModeName {
    Live,
    File,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum Aes {
    #[default]
    #[serde(rename = "off")]
    Off,
    #[serde(rename = "128")]
    Aes128,
    #[serde(rename = "192")]
    Aes192,
    #[serde(rename = "256")]
    Aes256,
}

impl Aes {
    fn key_bytes(self) -> Option<i32> {
        match self {
            Aes::Off => None,
            Aes::Aes128 => Some(16),
            Aes::Aes192 => Some(24),
            Aes::Aes256 => Some(32),
        }
    }
}

/// What it is.
pub fn rival() -> Rival {
    Rival {
        version: Some(version()),
        settings: &[
            Setting { key: "mode", values: "live for messages and video, file for all else; or live, file" },
            Setting { key: "latency", values: "120ms, or another span of time" },
            Setting { key: "aes", values: "off, 128, 192, 256" },
            Setting { key: "window", values: "SRT's own (some 12MB), or a size" },
            Setting { key: "rate_max", values: "SRT's own (1Gbit/s), or a rate for live mode" },
        ],
        ..super::SRT
    }
}

/// The transport, from a spec.
///
/// # Errors
/// What is wrong with the spec.
pub fn provide(spec: &TransportSpec, context: &Context<'_>) -> Result<Rc<dyn Transport>, String> {
    let settings: Settings = spec.read()?;
    let mode = match (settings.mode, context.workload) {
        (Some(ModeName::Live), _) => Mode::Live,
        (Some(ModeName::File), _) => Mode::File,
        (None, Workload::Messages { .. } | Workload::Video { .. }) => Mode::Live,
        (None, _) => Mode::File,
    };
    let too_much = |key: &str| format!("srt: {key}: is more than SRT takes");
    let latency_ms = settings.latency.map(|latency| i32::try_from(latency.as_millis()));
    let window_bytes = settings.window.map(i32::try_from);
    let rate_max = settings.rate_max.map(|bps| i64::try_from(bps / 8));
    let options = Options {
        latency_ms: latency_ms.transpose().map_err(|_| too_much("latency"))?,
        passphrase: settings.aes.key_bytes().map(|bytes| (PASSPHRASE.to_owned(), bytes)),
        window_bytes: window_bytes.transpose().map_err(|_| too_much("window"))?,
        rate_max: rate_max.transpose().map_err(|_| too_much("rate_max"))?,
    };
    let how = How { mode, options, latency: settings.latency.unwrap_or(LATENCY) };
    Ok(Rc::new(Srt(Rc::new(how))))
}

struct How {
    mode: Mode,
    options: Options,
    latency: Duration,
}

struct Srt(Rc<How>);

impl Transport for Srt {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            streams: self.0.mode == Mode::File,
            messages: self.0.mode == Mode::Live,
            message_bytes_max: if self.0.mode == Mode::Live { MESSAGE_BYTES_MAX } else { 0 },
            protected: self.0.options.passphrase.is_some(),
        }
    }

    fn connect(&self, to: SocketAddr) -> Local<'_, transport::Result<Rc<dyn Session>>> {
        Box::pin(async move {
            // From a seed of the system's, anew for each.
            let id = format!("{:016x}", RandomState::new().build_hasher().finish());
            let first = connect(&self.0, to, 0, &id).await?;
            Ok(SrtSession::start(
                self.0.clone(),
                id,
                Side::Client { to, unused: RefCell::new(Some(first.clone())) },
                first,
            ))
        })
    }

    fn listen(&self, at: SocketAddr) -> Local<'_, transport::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let socket = Socket::listen(at, &self.0.options, mode_of, BACKLOG).map_err(failed)?;
            let address = socket.local_addr().map_err(failed)?;
            let door = Door {
                socket,
                waiting: RefCell::default(),
                sessions: RefCell::default(),
                moved: Notify::new(),
            };
            Ok(Box::new(SrtListener { door: Rc::new(door), address, how: self.0.clone() })
                as Box<dyn Listener>)
        })
    }
}

/// `uts-rival/live/ID` or `uts-rival/file/ID`.
fn stream_id(mode: Mode, id: &str) -> String {
    let mode = if mode == Mode::Live { "live" } else { "file" };
    format!("uts-rival/{mode}/{id}")
}

fn mode_of(stream_id: &str) -> Option<Mode> {
    let (mode, _) = stream_id.strip_prefix("uts-rival/")?.split_once('/')?;
    match mode {
        "live" => Some(Mode::Live),
        "file" => Some(Mode::File),
        _ => None,
    }
}

async fn connect(how: &How, to: SocketAddr, from_port: u16, id: &str) -> transport::Result<Arc<Socket>> {
    let id = stream_id(how.mode, id);
    // All connections of a session share a UDP socket of SRT's. For that they must be bound to the
    // same address.
    let any = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = SocketAddr::new(any, from_port);
    let socket = Socket::connect(to, from, how.mode, &id, &how.options).map_err(failed)?;
    let mut ready = socket.ready();
    let mut broken = false;
    loop {
        match socket.is_connected() {
            Some(true) => return Ok(Arc::new(socket)),
            Some(false) if broken => {
                let why = format!("SRT, connecting to {to}: {}", socket.refusal());
                return Err(TransportError::Failed(why));
            }
            // Between connecting and connected SRT shows a socket as broken for a moment.
            Some(false) => {
                broken = true;
                sleep(LOOK_AGAIN).await;
            }
            None => look_again(&mut ready).await,
        }
    }
}

struct SrtListener {
    door: Rc<Door>,
    address: SocketAddr,
    how: Rc<How>,
}

/// Where connections arrive, and to whose session they belong.
struct Door {
    socket: Socket,
    /// The first connections of new sessions.
    waiting: RefCell<VecDeque<(String, Arc<Socket>)>>,
    /// Further connections of sessions that are there.
    sessions: RefCell<BTreeMap<String, VecDeque<Arc<Socket>>>>,
    /// Something was put where someone else may be waiting for it.
    moved: Notify,
}

impl Door {
    /// Takes in what has arrived.
    fn take(&self) {
        while let Ok(socket) = self.socket.accept() {
            // One that is gone already, or is of no session, is closed again.
            let Ok(stream_id) = socket.stream_id() else { continue };
            let Some(id) = stream_id.rsplit('/').next() else { continue };
            match self.sessions.borrow_mut().get_mut(id) {
                Some(session) => session.push_back(Arc::new(socket)),
                None => self.waiting.borrow_mut().push_back((id.to_owned(), Arc::new(socket))),
            }
            self.moved.notify_waiters();
        }
    }

    /// Waits until `found` finds something in what has arrived.
    async fn find<T>(&self, mut found: impl FnMut(&Door) -> Option<T>) -> T {
        let mut ready = self.socket.ready();
        loop {
            let moved = self.moved.notified();
            self.take();
            if let Some(found) = found(self) {
                return found;
            }
            tokio::select! {
                () = look_again(&mut ready) => {}
                () = moved => {}
            }
        }
    }
}

impl Listener for SrtListener {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> Local<'_, transport::Result<Rc<dyn Session>>> {
        Box::pin(async move {
            let (id, first) = self.door.find(|door| door.waiting.borrow_mut().pop_front()).await;
            // Others of the same session may have come before it was there.
            let mut mine = VecDeque::from([first.clone()]);
            self.door.waiting.borrow_mut().retain(|(other, socket)| {
                if *other == id {
                    mine.push_back(socket.clone());
                }
                *other != id
            });
            self.door.sessions.borrow_mut().insert(id.clone(), mine);
            Ok(SrtSession::start(self.how.clone(), id, Side::Server(self.door.clone()), first))
        })
    }
}

struct SrtSession {
    how: Rc<How>,
    id: String,
    side: Side,
    /// Lives as long as the session. In live mode all messages go over it. In file mode it is the
    /// first stream's, and its end is the session's.
    first: Arc<Socket>,
    /// All connections that were made; those of streams that have ended are closed one by one.
    sockets: RefCell<Vec<sync::Weak<Socket>>>,
    ending: RefCell<JoinSet<()>>,
    /// Of connections that are no more.
    past: Arc<Mutex<Past>>,
    closed: Cell<bool>,
    me: Weak<SrtSession>,
}

enum Side {
    Client {
        to: SocketAddr,
        /// The first connection, until a stream is opened.
        unused: RefCell<Option<Arc<Socket>>>,
    },
    Server(Rc<Door>),
}

/// Counts that outlive the connection that they are of.
#[derive(Clone, Copy, Default)]
struct Past {
    sent_packets: u64,
    repeated_packets: u64,
    delivered_bytes: u64,
}

impl SrtSession {
    fn start(how: Rc<How>, id: String, side: Side, first: Arc<Socket>) -> Rc<dyn Session> {
        let sockets = RefCell::new(vec![Arc::downgrade(&first)]);
        let (ending, past, closed) = Default::default();
        Rc::new_cyclic(|me| SrtSession {
            how,
            id,
            side,
            first,
            sockets,
            ending,
            past,
            closed,
            me: me.clone(),
        })
    }

    fn live(&self) -> transport::Result<&Socket> {
        match self.how.mode {
            _ if self.closed.get() => Err(TransportError::Closed),
            Mode::Live => Ok(&self.first),
            Mode::File => Err(TransportError::Unsupported("messages in SRT's file mode")),
        }
    }

    fn file(&self) -> transport::Result<()> {
        match self.how.mode {
            _ if self.closed.get() => Err(TransportError::Closed),
            Mode::File => Ok(()),
            Mode::Live => Err(TransportError::Unsupported("streams in SRT's live mode")),
        }
    }

    /// Waits until everything that was sent has been acknowledged, or the peer is gone.
    async fn settle(&self) {
        let all: Vec<_> = self.sockets.borrow().iter().filter_map(sync::Weak::upgrade).collect();
        while all.iter().any(|socket| socket.waiting() > 0) {
            sleep(SETTLE_POLL).await;
        }
    }
}

impl Past {
    fn of(status: &crate::native::srt::Status) -> Past {
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        Past {
            sent_packets: count(status.sent_packets),
            repeated_packets: count(status.repeated_packets),
            delivered_bytes: count(status.accepted_bytes - status.waiting_bytes),
        }
    }

    /// Closes a connection and keeps its counts.
    fn close(past: &Mutex<Past>, socket: &Socket) {
        if let Some(status) = socket.close() {
            past.lock().unwrap_or_else(PoisonError::into_inner).add(Past::of(&status));
        }
    }

    fn add(&mut self, other: Past) {
        self.sent_packets += other.sent_packets;
        self.repeated_packets += other.repeated_packets;
        self.delivered_bytes += other.delivered_bytes;
    }
}

impl SrtSession {
    fn stream(&self, socket: Arc<Socket>) -> transport::Result<Stream> {
        let session = self.me.upgrade().ok_or(TransportError::Closed)?;
        session.sockets.borrow_mut().retain(|socket| socket.strong_count() > 0);
        while session.ending.borrow_mut().try_join_next().is_some() {}
        session.sockets.borrow_mut().push(Arc::downgrade(&socket));
        let both = Rc::new(Both { socket, session, sent_end: Cell::new(false), got_end: Cell::new(false) });
        let receive = SrtReceive { both: both.clone(), left: 0, length: Vec::new() };
        Ok(Stream { send: Box::new(SrtSend { both, within: false }), receive: Box::new(receive) })
    }
}

impl Session for SrtSession {
    fn open(&self) -> Local<'_, transport::Result<Stream>> {
        Box::pin(async move {
            self.file()?;
            let Side::Client { to, unused } = &self.side else {
                return Err(TransportError::Unsupported("streams that the server of SRT opens"));
            };
            let socket = unused.borrow_mut().take();
            let socket = match socket {
                Some(socket) => socket,
                None => {
                    let port = self.first.local_addr().map_err(failed)?.port();
                    connect(&self.how, *to, port, &self.id).await?
                }
            };
            self.stream(socket)
        })
    }

    fn accept(&self) -> Local<'_, transport::Result<Stream>> {
        Box::pin(async move {
            self.file()?;
            let Side::Server(door) = &self.side else {
                return Err(TransportError::Unsupported("streams that the server of SRT opens"));
            };
            let next = door.find(|door| {
                match door.sessions.borrow_mut().get_mut(&self.id).and_then(VecDeque::pop_front) {
                    Some(socket) => Some(Some(socket)),
                    None if self.first.is_connected() == Some(true) => None,
                    None => Some(None),
                }
            });
            match next.await {
                Some(socket) => self.stream(socket),
                None => Err(TransportError::Closed),
            }
        })
    }

    fn send_message(&self, message: Bytes, lifetime: Option<Duration>) -> Local<'_, transport::Result<()>> {
        Box::pin(async move {
            let socket = self.live()?;
            if message.len() > MESSAGE_BYTES_MAX {
                let why = format!("a message of {} bytes is larger than {MESSAGE_BYTES_MAX}", message.len());
                return Err(TransportError::Failed(why));
            }
            let lifetime_ms = lifetime.map(|span| i32::try_from(span.as_millis().max(1)).unwrap_or(i32::MAX));
            patiently(socket, || socket.send(&message, lifetime_ms)).await.map(|_| ())
        })
    }

    fn receive_message(&self) -> Local<'_, transport::Result<Bytes>> {
        Box::pin(async move {
            let socket = self.live()?;
            let mut buffer = vec![0; 1500];
            match patiently(socket, || socket.receive(&mut buffer)).await? {
                0 => Err(TransportError::Closed),
                n => Ok(Bytes::copy_from_slice(&buffer[..n])),
            }
        })
    }

    fn status(&self) -> Option<Status> {
        let mut counts = *self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status = Status::default();
        let all = self.sockets.borrow();
        for (socket, raw) in
            all.iter().filter_map(sync::Weak::upgrade).filter_map(|s| s.status().map(|raw| (s, raw)))
        {
            counts.add(Past::of(&raw));
            if socket.is_connected() != Some(true) {
                continue;
            }
            let bytes = |packets: i64| u64::try_from(packets * raw.packet_bytes).unwrap_or(0);
            let add = |sum: &mut Option<u64>, n: u64| *sum = Some(sum.unwrap_or(0) + n);
            add(&mut status.in_flight_bytes, bytes(raw.in_flight_packets));
            if self.how.mode == Mode::File {
                // Live mode has a rate and no window.
                add(&mut status.window_bytes, bytes(raw.window_packets));
            }
            status.rtt = Some(Duration::try_from_secs_f64(raw.rtt_ms / 1e3).unwrap_or_default());
        }
        status.sent_packets = Some(counts.sent_packets);
        status.repeated_packets = Some(counts.repeated_packets);
        status.delivered_bytes = Some(counts.delivered_bytes);
        Some(status)
    }

    fn close(&self) -> Local<'_, ()> {
        Box::pin(async move {
            let mut ending = self.ending.take();
            let _ = timeout(ENDING_MAX, async { while ending.join_next().await.is_some() {} }).await;
            self.settle().await;
            if self.how.mode == Mode::Live && self.first.is_connected() == Some(true) {
                // What has arrived is held for the latency, and dropped if the connection goes
                // before.
                sleep(self.how.latency + CLOSE_MARGIN).await;
            }
            self.closed.set(true);
            for socket in self.sockets.borrow().iter().filter_map(sync::Weak::upgrade) {
                Past::close(&self.past, &socket);
            }
        })
    }
}

impl Drop for SrtSession {
    fn drop(&mut self) {
        if let Side::Server(door) = &self.side {
            door.sessions.borrow_mut().remove(&self.id);
        }
    }
}

/// What both directions of a stream have in common.
struct Both {
    socket: Arc<Socket>,
    session: Rc<SrtSession>,
    sent_end: Cell<bool>,
    got_end: Cell<bool>,
}

impl Both {
    /// Gives up both directions, as SRT can: the peer sees that the connection is gone.
    fn give_up(&self) {
        self.socket.forget_unsent();
        Past::close(&self.session.past, &self.socket);
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        let session = &self.session;
        if !self.sent_end.get() {
            return self.give_up();
        }
        if Arc::ptr_eq(&self.socket, &session.first) {
            return;
        }
        // What is on its way must still arrive. SRT forgets a connection that has gone before it
        // was accepted. Only the server's end shows that it was.
        let may_close = self.got_end.get() || matches!(session.side, Side::Server(_));
        let (socket, past) = (self.socket.clone(), session.past.clone());
        session.ending.borrow_mut().spawn(async move {
            let mut ready = socket.ready();
            while socket.is_connected() == Some(true) && !(may_close && socket.waiting() == 0) {
                look_again(&mut ready).await;
            }
            Past::close(&past, &socket);
        });
    }
}

struct SrtSend {
    both: Rc<Both>,
    /// Whether a frame has begun and not ended.
    within: bool,
}

impl SrtSend {
    async fn frame(&mut self, content: &[u8]) -> transport::Result<()> {
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes();
        let frame = [&length, content].concat();
        let (socket, mut done) = (&self.both.socket, 0);
        while done < frame.len() {
            done += patiently(socket, || socket.send(&frame[done..], None)).await?;
            self.within = done < frame.len();
        }
        Ok(())
    }
}

impl SendStream for SrtSend {
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Local<'a, transport::Result<()>> {
        Box::pin(async move {
            if self.both.sent_end.get() {
                return Err(TransportError::Closed);
            }
            for content in bytes.chunks(FRAME_BYTES_MAX) {
                self.frame(content).await?;
            }
            Ok(())
        })
    }

    fn finish(&mut self) -> Local<'_, transport::Result<()>> {
        Box::pin(async move {
            if self.both.sent_end.get() {
                return Err(TransportError::Closed);
            }
            self.frame(&[]).await?;
            self.both.sent_end.set(true);
            // The peer may close at once; SRT then tells nothing more of what was sent.
            let _ = self.both.socket.status();
            Ok(())
        })
    }
}

impl Drop for SrtSend {
    fn drop(&mut self) {
        if self.both.sent_end.get() {
            return;
        }
        // The other direction may go on, unless there is no room to say so.
        let said = match self.both.socket.send(&GIVEN_UP.to_be_bytes(), None) {
            Ok(n) => n == LENGTH_BYTES,
            // There is nobody to be told, but there may be something to be read.
            Err(error) => error.is_gone(),
        };
        if !said || self.within {
            self.both.give_up();
        }
    }
}

struct SrtReceive {
    both: Rc<Both>,
    /// What is left of the frame that is being read.
    left: usize,
    /// What has come of the next one's length.
    length: Vec<u8>,
}

impl ReceiveStream for SrtReceive {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Local<'a, transport::Result<usize>> {
        Box::pin(async move {
            let socket = &self.both.socket;
            let cut_off =
                |e: TransportError| TransportError::Failed(format!("the peer gave the stream up: {e}"));
            while self.left == 0 && !self.both.got_end.get() {
                let mut next = [0; LENGTH_BYTES];
                let missing = &mut next[self.length.len()..];
                let n = patiently(socket, || socket.receive(missing)).await.map_err(cut_off)?;
                if n == 0 {
                    return Err(cut_off(TransportError::Closed));
                }
                self.length.extend_from_slice(&missing[..n]);
                if let Ok(length) = <[u8; LENGTH_BYTES]>::try_from(self.length.as_slice()) {
                    self.length.clear();
                    self.left = match u32::from_be_bytes(length) {
                        GIVEN_UP => return Err(cut_off(TransportError::Closed)),
                        length => length as usize,
                    };
                    self.both.got_end.set(self.left == 0);
                }
            }
            let room = buffer.len().min(self.left);
            if room == 0 {
                return Ok(0);
            }
            match patiently(socket, || socket.receive(&mut buffer[..room])).await.map_err(cut_off)? {
                0 => Err(cut_off(TransportError::Closed)),
                n => {
                    self.left -= n;
                    Ok(n)
                }
            }
        })
    }
}

/// Tries until it is done, or cannot be done.
async fn patiently<T>(
    socket: &Socket,
    mut what: impl FnMut() -> crate::native::srt::Result<T>,
) -> transport::Result<T> {
    let mut ready = socket.ready();
    loop {
        match what() {
            Err(error) if error.would_block() => look_again(&mut ready).await,
            result => return result.map_err(failed),
        }
    }
}

/// Waits until SRT says that something has changed. What it does not say is seen a little later.
async fn look_again(ready: &mut watch::Receiver<()>) {
    let _ = timeout(LOOK_AGAIN, ready.changed()).await;
}

fn failed(error: SrtError) -> TransportError {
    if error.is_gone() { TransportError::Closed } else { TransportError::Failed(error.to_string()) }
}

/// SRT's edges are not promised to be complete. If a connection breaks, only a waiting thread hears
/// of it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How long a session that is closed waits for the server to have seen all its streams.
const ENDING_MAX: Duration = Duration::from_secs(5);

/// How often it is looked whether everything has been acknowledged.
const SETTLE_POLL: Duration = Duration::from_millis(5);

/// What the peer's clock and threads may be late.
const CLOSE_MARGIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_id_says_the_mode() {
        for mode in [Mode::Live, Mode::File] {
            assert_eq!(mode_of(&stream_id(mode, "0123")), Some(mode));
        }
        for other in ["", "uts-rival/", "uts-rival/live", "uts-rival/both/1", "#!::r=x"] {
            assert_eq!(mode_of(other), None, "{other}");
        }
    }
}
