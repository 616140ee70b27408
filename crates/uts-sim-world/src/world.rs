//! The network with the tasks that use it. What happens at an endpoint wakes the task that waits
//! for it.

use super::executor::{Executor, SimClock};
use super::udp::UdpPort;
use bytes::Bytes;
use core::cell::{Cell, RefCell};
use core::task::{Context, Waker};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddrV4;
use std::rc::Rc;
use uts_end::transport::universal::describe;
use uts_engine::{CloseReason, Connection, ConnectionHandle, Direction, Event, FlowId};
use uts_functions::Time;
use uts_sim::cost::MechanismCost;
use uts_sim::host::Host;
use uts_sim::identity::Identities;
use uts_sim::network::{AppId, Application, Network};
use uts_sim::packet::{Datagram, Packet};
use uts_sim::topology::{Node, Topology};
use uts_sim::traffic::{Sink, Source};
use uts_traffic::measure::Sample;

/// Where clients' ports begin (RFC 6335).
const EPHEMERAL_PORT: u16 = 49_152;

/// Application at a port of a host.
pub(super) enum Port {
    /// A UTS endpoint.
    Uts(Box<Host>),
    /// A UDP socket.
    Udp(UdpPort),
    /// A source of background traffic.
    Source(Box<Source>),
    /// Where such traffic goes.
    Sink(Box<Sink>),
}

impl Application for Port {
    fn handle_datagram(&mut self, now: Time, packet: Packet) {
        match self {
            Port::Uts(host) => host.handle_datagram(now, packet),
            Port::Udp(port) => port.handle_datagram(now, packet),
            Port::Source(source) => source.handle_datagram(now, packet),
            Port::Sink(sink) => sink.handle_datagram(now, packet),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Port::Uts(host) => host.handle_timeout(now),
            Port::Udp(port) => port.handle_timeout(now),
            Port::Source(source) => source.handle_timeout(now),
            Port::Sink(sink) => sink.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Datagram> {
        match self {
            Port::Uts(host) => host.poll_transmit(now),
            Port::Udp(port) => port.poll_transmit(now),
            Port::Source(source) => source.poll_transmit(now),
            Port::Sink(sink) => sink.poll_transmit(now),
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        match self {
            Port::Uts(host) => host.poll_timeout(),
            Port::Udp(port) => port.poll_timeout(),
            Port::Source(source) => source.poll_timeout(),
            Port::Sink(sink) => sink.poll_timeout(),
        }
    }

    fn may_fragment(&self) -> bool {
        match self {
            // It looks for the size of packets itself.
            Port::Uts(_) => false,
            Port::Udp(port) => port.may_fragment(),
            Port::Source(source) => source.may_fragment(),
            Port::Sink(_) => false,
        }
    }

    fn mechanism_work(&self, costs: &[MechanismCost], direction: Direction, packet: &Packet) -> Duration {
        match self {
            Port::Uts(host) => host.mechanism_work(costs, direction, packet),
            // They have none.
            Port::Udp(_) | Port::Source(_) | Port::Sink(_) => Duration::ZERO,
        }
    }
}

/// Event that a task may wait for at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Interest {
    /// Establishment of the connection.
    Connected,
    /// A flow that the peer opens.
    Opened,
    /// Leave to open a flow.
    MayOpen,
    /// Something to read in a flow.
    Readable(FlowId),
    /// Room in a flow, or that it takes nothing any more.
    Writable(FlowId),
    /// Arrival of all of a flow, or the knowledge that it will not arrive.
    Finished(FlowId),
    /// The end.
    Closed,
}

/// Events that a connection has told and its session has not yet taken.
#[derive(Default)]
pub(super) struct Told {
    pub is_connected: bool,
    pub closed: Option<CloseReason>,
    pub opened: VecDeque<FlowId>,
    /// Flows that have arrived whole.
    pub finished: BTreeSet<FlowId>,
    /// Flows that the peer does not want, or cannot have.
    pub failed: BTreeMap<FlowId, String>,
    pub samples: Vec<Sample>,
    waiting: BTreeMap<Interest, Vec<Waker>>,
}

impl Told {
    /// Remembers which task waits for what.
    pub fn wait(&mut self, interest: Interest, context: &Context<'_>) {
        let waiting = self.waiting.entry(interest).or_default();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
    }

    fn wake(&mut self, interest: Interest) {
        self.waiting.remove(&interest).unwrap_or_default().into_iter().for_each(Waker::wake);
    }

    fn on_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Connected => {
                self.is_connected = true;
                self.wake(Interest::Connected);
            }
            Event::FlowOpened(flow) => {
                self.opened.push_back(flow);
                self.wake(Interest::Opened);
            }
            Event::Readable(flow) => self.wake(Interest::Readable(flow)),
            Event::Writable(flow) => self.wake(Interest::Writable(flow)),
            Event::Finished(flow) => {
                self.finished.insert(flow);
                self.wake(Interest::Finished(flow));
            }
            Event::Stopped(flow, code) => {
                self.fail(flow, format!("the peer wants no more of this flow (code {code})"))
            }
            Event::Refused(flow, why) => {
                self.fail(flow, format!("the flow cannot have what it requires: {why}"))
            }
            Event::Exchange(step) => {
                self.samples.push(Sample::Exchange { at_ns: now.as_nanos(), line: describe(&step) })
            }
            // No workload asks for expedited messages.
            Event::Expedited(_)
            | Event::PacketSize(_)
            | Event::Silent(_)
            | Event::Heard(_)
            | Event::Moved { .. }
            | Event::NoEffect(_)
            | Event::EarlyAnswer(_)
            | Event::Ticket(_)
            | Event::MaySend(_) => {}
            Event::Closed(reason) => {
                self.closed = Some(reason);
                for waiting in core::mem::take(&mut self.waiting).into_values() {
                    waiting.into_iter().for_each(Waker::wake);
                }
            }
        }
        // Whether the peer allows more flows is told by no event of its own.
        self.wake(Interest::MayOpen);
    }

    fn fail(&mut self, flow: FlowId, why: String) {
        self.failed.insert(flow, why);
        for interest in [Interest::Writable(flow), Interest::Finished(flow), Interest::Readable(flow)] {
            self.wake(interest);
        }
    }
}

/// Connections that have come to a server and were not yet accepted.
#[derive(Default)]
pub(super) struct Arrivals {
    pub connections: VecDeque<ConnectionHandle>,
    pub waker: Option<Waker>,
}

/// Everything of a run, shared by its tasks.
pub(super) struct World {
    pub network: RefCell<Network<Port>>,
    pub executor: Rc<Executor>,
    pub identities: Identities,
    /// By endpoint and connection.
    pub told: RefCell<BTreeMap<(AppId, ConnectionHandle), Told>>,
    /// By the endpoints that accept.
    pub arrivals: RefCell<BTreeMap<AppId, Arrivals>>,
    next_port: Cell<u16>,
}

impl World {
    /// A network without anything at its ports.
    pub fn new(network: Network<Port>, identities: Identities) -> Rc<Self> {
        Rc::new(World {
            network: RefCell::new(network),
            executor: Rc::default(),
            identities,
            told: RefCell::default(),
            arrivals: RefCell::default(),
            next_port: Cell::new(EPHEMERAL_PORT),
        })
    }

    /// Its clock.
    pub fn clock(&self) -> SimClock {
        SimClock(self.executor.clone())
    }

    /// Puts something at a free port of a node.
    pub fn attach(&self, node: Node, port: Port) -> Result<AppId, String> {
        let number = self.next_port.get();
        self.next_port.set(number.checked_add(1).ok_or("all ports are in use")?);
        self.attach_at(node, SocketAddrV4::new(Topology::address(node), number), port)
    }

    /// Puts something at an address of a node.
    pub fn attach_at(&self, node: Node, address: SocketAddrV4, port: Port) -> Result<AppId, String> {
        self.network.borrow_mut().attach_at(node, address, port).map_err(|e| e.to_string())
    }

    /// Does something with a connection; `None` if it is over and forgotten.
    pub fn connection<R>(
        &self,
        (app, handle): (AppId, ConnectionHandle),
        act: impl FnOnce(&mut Connection, Time) -> R,
    ) -> Option<R> {
        let mut network = self.network.borrow_mut();
        let now = network.now();
        match network.app_mut(app) {
            Port::Uts(host) => host.endpoint().connection(handle).map(|connection| act(connection, now)),
            _ => None,
        }
    }

    /// Looks at a connection without making it do anything.
    pub fn peek<R>(
        &self,
        (app, handle): (AppId, ConnectionHandle),
        look: impl FnOnce(&Connection) -> R,
    ) -> Option<R> {
        match self.network.borrow().app(app) {
            Port::Uts(host) => host.peek().peek(handle).map(look),
            _ => None,
        }
    }

    /// Does something with a socket.
    pub fn udp<R>(&self, app: AppId, act: impl FnOnce(&mut UdpPort) -> R) -> Option<R> {
        match self.network.borrow_mut().app_mut(app) {
            Port::Udp(port) => Some(act(port)),
            _ => None,
        }
    }

    /// Acts on the events that a connection has told.
    pub fn told<R>(&self, connection: (AppId, ConnectionHandle), act: impl FnOnce(&mut Told) -> R) -> R {
        act(self.told.borrow_mut().entry(connection).or_default())
    }

    /// Lets time pass until every task is done, `until` has come, or `goes_on` says no. `goes_on`
    /// is asked at every instant.
    pub fn run(&self, until: Time, mut goes_on: impl FnMut(&World) -> bool) {
        loop {
            self.executor.run_woken();
            if self.executor.is_done() || !goes_on(self) {
                return;
            }
            if self.tell() || self.network.borrow_mut().transmit() {
                continue;
            }
            let timer = self.executor.next_timer().unwrap_or(Time::NEVER).min(until);
            let has_happened = self.network.borrow_mut().advance(timer);
            let now = self.network.borrow().now();
            self.executor.set_now(now);
            if !has_happened && now >= until {
                return;
            }
        }
    }

    /// Tells the tasks what has happened at endpoints; says whether there was anything.
    fn tell(&self) -> bool {
        let mut network = self.network.borrow_mut();
        let (now, mut any) = (network.now(), false);
        for place in 0..network.touched().len() {
            let app = network.touched()[place];
            let Port::Uts(host) = network.app_mut(app) else { continue };
            while let Some((handle, event)) = host.poll_event(now) {
                any = true;
                if event == Event::Connected
                    && let Some(arrivals) = self.arrivals.borrow_mut().get_mut(&app)
                {
                    arrivals.connections.push_back(handle);
                    arrivals.waker.take().into_iter().for_each(Waker::wake);
                }
                self.told((app, handle), |told| told.on_event(now, event));
            }
        }
        any
    }
}

/// A copy of bytes that a workload lends.
pub(super) fn copied(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
