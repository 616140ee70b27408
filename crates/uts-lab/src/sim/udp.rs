//! Raw UDP under test, by the rules of [`uts_end::transport::udp`].

use super::executor::SimClock;
use super::world::{Port, World};
use bytes::Bytes;
use core::cell::Cell;
use core::future::poll_fn;
use core::task::{Poll, Waker};
use core::time::Duration;
use futures_util::future::{Either, select};
use std::collections::VecDeque;
use std::net::{SocketAddr, SocketAddrV4};
use std::pin::pin;
use std::rc::Rc;
use uts_end::transport::udp::{AFTER_FAREWELL, FAREWELL_EVERY, FAREWELLS, Pacer, UdpSettings};
use uts_functions::Time;
use uts_sim::network::{AppId, Application};
use uts_sim::packet::{Body, Datagram, Packet};
use uts_sim::topology::Node;
use uts_traffic::clock::Clock;
use uts_traffic::transport::{
    Capabilities, Listener, Local, Result, Session, Status, Stream, Transport, TransportError,
};

/// A UDP socket.
#[derive(Default)]
pub(super) struct UdpPort {
    incoming: VecDeque<(SocketAddrV4, Bytes)>,
    outgoing: VecDeque<Datagram>,
    reader: Option<Waker>,
}

impl Application for UdpPort {
    fn handle_datagram(&mut self, _: Time, packet: Packet) {
        if let Body::Bytes(bytes) = packet.body {
            self.incoming.push_back((packet.from, bytes.into()));
            self.reader.take().into_iter().for_each(Waker::wake);
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time) -> Option<Datagram> {
        self.outgoing.pop_front()
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        None
    }
}

/// Raw UDP at one end of a flow.
pub(super) struct SimUdp {
    pub world: Rc<World>,
    pub node: Node,
    pub settings: UdpSettings,
    pub capabilities: Capabilities,
}

impl SimUdp {
    fn session(&self, socket: Socket, peer: SocketAddrV4) -> Rc<dyn Session> {
        let pacer = self.settings.rate.map(Pacer::new);
        Rc::new(UdpSession { socket, peer, pacer, sent: Cell::new(0), farewell: Cell::new(None) })
    }
}

impl Transport for SimUdp {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn connect(&self, to: SocketAddr) -> Local<'_, Result<Rc<dyn Session>>> {
        Box::pin(async move {
            let SocketAddr::V4(peer) = to else { return Err(no_ipv6()) };
            let app = self.world.attach(self.node, Port::Udp(UdpPort::default()));
            let app = app.map_err(TransportError::Failed)?;
            Ok(self.session(Socket { world: self.world.clone(), app }, peer))
        })
    }

    fn listen(&self, at: SocketAddr) -> Local<'_, Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let SocketAddr::V4(at) = at else { return Err(no_ipv6()) };
            let port = Port::Udp(UdpPort::default());
            let app = match at.port() {
                0 => self.world.attach(self.node, port),
                _ => self.world.attach_at(self.node, at, port),
            };
            let socket = Socket { world: self.world.clone(), app: app.map_err(TransportError::Failed)? };
            let udp = SimUdp {
                world: self.world.clone(),
                node: self.node,
                settings: self.settings.clone(),
                capabilities: self.capabilities,
            };
            Ok(Box::new(UdpListener { udp, socket, is_taken: false }) as Box<dyn Listener>)
        })
    }
}

fn no_ipv6() -> TransportError {
    TransportError::Failed("hosts in virtual time have IPv4 addresses only".to_owned())
}

#[derive(Clone)]
struct Socket {
    world: Rc<World>,
    app: AppId,
}

impl Socket {
    /// Looks for a datagram without taking it; waits until there is one.
    async fn readable(&self) {
        poll_fn(|context| {
            let is_readable = self.world.udp(self.app, |port| {
                port.reader = Some(context.waker().clone());
                !port.incoming.is_empty()
            });
            if is_readable == Some(false) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await
    }

    fn take(&self) -> Option<(SocketAddrV4, Bytes)> {
        self.world.udp(self.app, |port| port.incoming.pop_front()).flatten()
    }

    fn send(&self, to: SocketAddrV4, message: &[u8]) {
        let body = Body::Bytes(message.to_vec());
        let _ = self
            .world
            .udp(self.app, |port| port.outgoing.push_back(Datagram { to: to.into(), ecn: None, body }));
    }

    fn clock(&self) -> SimClock {
        self.world.clock()
    }
}

/// Waits for the first datagram; whoever sent it is the client.
struct UdpListener {
    udp: SimUdp,
    socket: Socket,
    is_taken: bool,
}

impl Listener for UdpListener {
    fn address(&self) -> SocketAddr {
        self.socket.world.network.borrow().address(self.socket.app).into()
    }

    fn accept(&mut self) -> Local<'_, Result<Rc<dyn Session>>> {
        Box::pin(async move {
            if self.is_taken {
                return Err(TransportError::Failed("raw UDP serves one client for each socket".into()));
            }
            self.socket.readable().await;
            let first = self.socket.world.udp(self.socket.app, |port| port.incoming.front().cloned());
            let Some((peer, _)) = first.flatten() else { return Err(TransportError::Closed) };
            self.is_taken = true;
            Ok(self.udp.session(self.socket.clone(), peer))
        })
    }
}

struct UdpSession {
    socket: Socket,
    peer: SocketAddrV4,
    pacer: Option<Pacer>,
    sent: Cell<u64>,
    /// Until when to wait after the peer took its leave.
    farewell: Cell<Option<Time>>,
}

impl UdpSession {
    async fn receive(&self) -> Result<Bytes> {
        let clock = self.socket.clock();
        loop {
            match self.socket.take() {
                Some((from, _)) if from != self.peer => {}
                // An empty datagram is the peer's farewell.
                Some((_, message)) if message.is_empty() => {
                    let until = self.farewell.get().unwrap_or(clock.now() + AFTER_FAREWELL);
                    self.farewell.set(Some(until));
                }
                Some((_, message)) => return Ok(message),
                None => match self.farewell.get() {
                    None => self.socket.readable().await,
                    Some(until) => {
                        let readable = pin!(self.socket.readable());
                        let waited = select(readable, clock.sleep_until(until.as_nanos())).await;
                        if let Either::Right(_) = waited {
                            return Err(TransportError::Closed);
                        }
                    }
                },
            }
        }
    }
}

impl Session for UdpSession {
    fn open(&self) -> Local<'_, Result<Stream>> {
        Box::pin(async { Err(TransportError::Unsupported("a stream")) })
    }

    fn accept(&self) -> Local<'_, Result<Stream>> {
        self.open()
    }

    fn send_message(&self, message: Bytes, _: Option<Duration>) -> Local<'_, Result<()>> {
        Box::pin(async move {
            if let Some(pacer) = &self.pacer {
                let clock = self.socket.clock();
                let at_ns = pacer.admit(clock.now_ns(), message.len());
                clock.sleep_until(at_ns).await;
            }
            self.socket.send(self.peer, &message);
            self.sent.set(self.sent.get() + 1);
            Ok(())
        })
    }

    fn receive_message(&self) -> Local<'_, Result<Bytes>> {
        Box::pin(self.receive())
    }

    fn status(&self) -> Option<Status> {
        Some(Status { sent_packets: Some(self.sent.get()), ..Status::default() })
    }

    fn close(&self) -> Local<'_, ()> {
        Box::pin(async {
            let clock = self.socket.clock();
            for n in 0..FAREWELLS {
                if n > 0 {
                    clock.sleep_until((clock.now() + FAREWELL_EVERY).as_nanos()).await;
                }
                self.socket.send(self.peer, &[]);
            }
        })
    }
}
