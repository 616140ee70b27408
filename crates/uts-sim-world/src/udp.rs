//! Raw UDP under test, by the rules of [`uts_end::transport::udp`].

use super::executor::SimClock;
use super::world::{Port, World};
use bytes::Bytes;
use core::future::poll_fn;
use core::task::{Poll, Waker};
use std::collections::VecDeque;
use std::net::{SocketAddr, SocketAddrV4};
use std::rc::Rc;
use uts_end::transport::udp::{DatagramSession, Datagrams, UdpSettings};
use uts_functions::Time;
use uts_sim::network::{AppId, Application};
use uts_sim::packet::{Body, Datagram, Packet};
use uts_sim::topology::Node;
use uts_traffic::transport::{Capabilities, Listener, Local, Result, Session, Transport, TransportError};

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

    fn may_fragment(&self) -> bool {
        true
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
        let clock = socket.clock();
        Rc::new(DatagramSession::new(Connected { socket, peer }, clock, self.settings.rate))
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

/// Waits for the first datagram. Its sender is the client.
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

/// A socket and its peer: datagrams of others are not taken.
struct Connected {
    socket: Socket,
    peer: SocketAddrV4,
}

impl Datagrams for Connected {
    fn send<'a>(&'a self, datagram: &'a [u8]) -> Local<'a, Result<bool>> {
        self.socket.send(self.peer, datagram);
        Box::pin(async { Ok(true) })
    }

    fn receive(&self) -> Local<'_, Result<Bytes>> {
        Box::pin(async move {
            loop {
                match self.socket.take() {
                    Some((from, message)) if from == self.peer => return Ok(message),
                    Some(_) => {}
                    None => self.socket.readable().await,
                }
            }
        })
    }
}
