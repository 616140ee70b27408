//! ENet: a reliable channel for each stream, and unreliable messages on channel 0. The library runs
//! in a thread of its own.
//!
//! ENet has neither streams nor their ends. A packet on a stream's channel begins with a byte. It
//! says whether content follows, or the end, or that the stream was given up. To open a stream, an
//! end takes a free channel, the client an even one and the server an odd one. It is free again
//! once both directions have ended.

mod thread;

use super::{Rival, Setting};
use crate::native::enet::{Host, PeerId, RELIABLE, UNRELIABLE_FRAGMENT, UNSEQUENCED, version};
use bytes::{Buf, Bytes};
use serde::Deserialize;
use std::cell::RefCell;
use std::net::{SocketAddr, SocketAddrV4};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use thread::{Command, Commands, End, NewPeer, NewStream, Opens, Shared, Thread};
use tokio::sync::mpsc::UnboundedReceiver;
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

/// The largest message. ENet takes 32 MiB, but sends an unreliable message at once, and the buffer
/// that it gives its socket holds 256 KiB.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

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
