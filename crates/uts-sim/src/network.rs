//! Hosts, routers and paths in virtual time, around whatever application is attached to them.

mod application;
mod costs;
mod fragments;

pub use application::Application;

use crate::agenda::Agenda;
use crate::cost::Machine;
use crate::packet::{Damage, Datagram, HOPS_MAX, Packet};
use crate::pcap::{self, Capture};
use crate::topology::{Edge, Node, PathId, Topology};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use uts_functions::Time;
use uts_path::{Applied, Change, Direction, Passage, Path, SpecError, Target};

/// An application of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppId(u32);

impl AppId {
    /// Its place in the order in which applications were attached, from 0.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Counters of a network, its paths left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that applications have sent.
    pub sent: u64,
    /// Arrivals at nodes at the end of a path.
    pub hops: u64,
    /// Datagrams handed to applications.
    pub delivered: u64,
    /// Sent to an address that no node has, or to which no way leads.
    pub unreachable: u64,
    /// Arrived at a node where no application has that address and port.
    pub unclaimed: u64,
    /// Dropped after as many routers as a packet may pass.
    pub hops_exceeded: u64,
    /// Not sent, as longer than the 65,507 bytes that IPv4 and UDP carry.
    pub too_long: u64,
    /// Dropped at their destination for a wrong checksum.
    pub bad_checksum: u64,
    /// Given up at their destination as not all fragments came in time.
    pub not_reassembled: u64,
}

/// Why an application cannot be attached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// Another has this address and port.
    #[error("{0} is taken by another application")]
    Taken(SocketAddrV4),
    /// The address belongs to another node.
    #[error("{0} is the address of another node")]
    Elsewhere(Ipv4Addr),
}

struct Attached<A> {
    app: A,
    address: SocketAddrV4,
    node: Node,
    is_touched: bool,
    /// IPv4 identification of its next packet.
    next_identification: u16,
}

/// A network in virtual time. All that happens follows from the topology, the seed and the
/// applications.
///
/// A driver repeats: look at what [`Network::touched`] applications have to tell;
/// [`Network::transmit`] until it says that nothing was sent; [`Network::advance`].
/// [`Network::run_until`] does this for applications that need no driver.
pub struct Network<A> {
    now: Time,
    paths: Vec<(Path<Packet>, [Node; 2])>,
    nodes: usize,
    routes: Vec<Option<(PathId, bool)>>,
    apps: Vec<Attached<A>>,
    by_address: BTreeMap<SocketAddrV4, AppId>,
    node_of: BTreeMap<Ipv4Addr, Node>,
    /// Entries: the paths, then the nodes, then the applications.
    agenda: Agenda,
    /// By node, as far as any has costs.
    machines: Vec<Option<Box<Machine>>>,
    /// Of the nodes that have received fragments.
    reassemblies: BTreeMap<Node, fragments::Reassembly>,
    touched: Vec<AppId>,
    counters: Counters,
    checks_udp: bool,
    header_bytes: u8,
    captures: BTreeMap<Ipv4Addr, Capture>,
    steps_left: u64,
}

impl<A: Application> Network<A> {
    /// An idle network at time zero. Each path has a seed of its own that follows from `seed`. The
    /// seed of the first is `seed` itself.
    ///
    /// # Errors
    /// A value of a path is out of range.
    pub fn new(topology: &Topology, seed: u64) -> Result<Self, SpecError> {
        let mut agenda = Agenda::default();
        let mut paths = Vec::new();
        for (index, Edge { ends, path }) in topology.edges.iter().enumerate() {
            let path = Path::new(path.clone(), seed_of(seed, index as u64), 0)
                .map_err(|e| SpecError { at: format!("path {index}: {}", e.at), reason: e.reason })?;
            let entry = agenda.add();
            agenda.set(entry, path.next_ns().map(Time::from_nanos));
            paths.push((path, *ends));
        }
        for _ in 0..topology.len() {
            agenda.add();
        }
        let nodes = (0..topology.len() as u32).map(Node);
        Ok(Network {
            now: Time::ZERO,
            paths,
            routes: topology.routes(),
            apps: Vec::new(),
            by_address: BTreeMap::new(),
            node_of: nodes.map(|node| (Topology::address(node), node)).collect(),
            nodes: topology.len(),
            agenda,
            machines: Vec::new(),
            reassemblies: BTreeMap::new(),
            touched: Vec::new(),
            counters: Counters::default(),
            checks_udp: false,
            header_bytes: 0,
            captures: BTreeMap::new(),
            steps_left: u64::MAX,
        })
    }

    /// Attaches an application to a port of a node's own address.
    ///
    /// # Errors
    /// [`AttachError::Taken`] if another has the port.
    pub fn attach(&mut self, node: Node, port: u16, app: A) -> Result<AppId, AttachError> {
        self.attach_at(node, SocketAddrV4::new(Topology::address(node), port), app)
    }

    /// Attaches an application to any address, which becomes one of the node's. A node may stand
    /// for many hosts that share everything that leads to them.
    ///
    /// # Errors
    /// [`AttachError`] if the address is in use.
    pub fn attach_at(&mut self, node: Node, address: SocketAddrV4, app: A) -> Result<AppId, AttachError> {
        if self.by_address.contains_key(&address) {
            return Err(AttachError::Taken(address));
        }
        if self.node_of.get(address.ip()).is_some_and(|other| *other != node) {
            return Err(AttachError::Elsewhere(*address.ip()));
        }
        let id = AppId(self.apps.len() as u32);
        self.node_of.insert(*address.ip(), node);
        self.by_address.insert(address, id);
        self.agenda.add();
        self.apps.push(Attached { app, address, node, is_touched: false, next_identification: 0 });
        self.touch(id);
        Ok(id)
    }

    /// Gives an application another address, as a network address translator does that has
    /// forgotten it, or a host that goes from one network to another. The address becomes one of
    /// `node`, which need not be where the application was. What is on the way to the address
    /// before is not delivered. The application is not told.
    ///
    /// # Errors
    /// [`AttachError`] if the address is in use; then nothing has changed.
    pub fn readdress(&mut self, id: AppId, node: Node, address: SocketAddrV4) -> Result<(), AttachError> {
        if self.by_address.get(&address).is_some_and(|other| *other != id) {
            return Err(AttachError::Taken(address));
        }
        if self.node_of.get(address.ip()).is_some_and(|other| *other != node) {
            return Err(AttachError::Elsewhere(*address.ip()));
        }
        self.by_address.remove(&self.apps[id.index()].address);
        self.node_of.insert(*address.ip(), node);
        self.by_address.insert(address, id);
        let app = &mut self.apps[id.index()];
        (app.address, app.node) = (address, node);
        Ok(())
    }

    // ---- access ----

    /// The instant that the network has reached.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The application that has an address and port.
    pub fn app_at(&self, address: SocketAddrV4) -> Option<AppId> {
        self.by_address.get(&address).copied()
    }

    /// Where an application is attached.
    pub fn address(&self, id: AppId) -> SocketAddrV4 {
        self.apps[id.index()].address
    }

    /// An application, to look at.
    pub fn app(&self, id: AppId) -> &A {
        &self.apps[id.index()].app
    }

    /// An application, to look at or to change: it counts as touched.
    pub fn app_mut(&mut self, id: AppId) -> &mut A {
        self.touch(id);
        &mut self.apps[id.index()].app
    }

    /// Applications to which something has happened since they last had nothing to send, in no
    /// particular order.
    pub fn touched(&self) -> &[AppId] {
        &self.touched
    }

    /// A path, to look at.
    pub fn path(&self, id: PathId) -> &Path<Packet> {
        &self.paths[id.index()].0
    }

    /// The next change that a path has made and that was not yet reported.
    pub fn poll_applied(&mut self, id: PathId) -> Option<Applied> {
        self.paths[id.index()].0.poll_applied()
    }

    /// Turns the record of a path's passages on or off: what each packet met in its queues, for
    /// [`Network::poll_passage`].
    pub fn record_passages(&mut self, id: PathId, record: bool) {
        self.paths[id.index()].0.record_passages(record);
    }

    /// The next packet that has left a queue of a path and was not yet reported.
    pub fn poll_passage(&mut self, id: PathId, direction: Direction) -> Option<Passage> {
        self.paths[id.index()].0.poll_passage(direction)
    }

    // ---- settings ----

    /// Changes a path now; see [`uts_path::Link::set`].
    ///
    /// # Errors
    /// A value is out of range; then nothing is changed.
    pub fn set_path(&mut self, id: PathId, target: Target, change: &Change) -> Result<(), SpecError> {
        let path = &mut self.paths[id.index()].0;
        path.set(self.now.as_nanos(), target, change)?;
        self.agenda.set(id.0, path.next_ns().map(Time::from_nanos));
        Ok(())
    }

    /// Turns IP packets on or off. With them, paths carry 28 bytes of IPv4 and UDP headers, as real
    /// ones do. At first they carry UDP payloads, and `overhead` of a path stands for all headers.
    /// Applies to packets that are sent from now on.
    pub fn set_headers(&mut self, on: bool) {
        self.header_bytes = if on { pcap::HEADER_BYTES as u8 } else { 0 };
    }

    /// Turns checks of UDP checksums on or off. With them, hosts drop datagrams whose checksum is
    /// wrong, as real hosts do. At first they do not: an engine sees what paths have done to its
    /// packets.
    pub fn set_udp_checks(&mut self, on: bool) {
        self.checks_udp = on;
    }

    /// Lets at most this many more instants and datagrams pass. This ends networks in which
    /// something is due for ever.
    pub fn limit_steps(&mut self, steps: u64) {
        self.steps_left = steps;
    }

    /// True if the limit of steps was reached; nothing happens any more then.
    pub fn is_exhausted(&self) -> bool {
        self.steps_left == 0
    }

    /// Records what is sent from an address and what arrives there, as pcap with nanoseconds since
    /// time zero.
    ///
    /// # Errors
    /// The writer's. Later ones are told by [`Network::finish_captures`].
    pub fn capture(&mut self, address: Ipv4Addr, writer: Box<dyn io::Write>) -> io::Result<()> {
        self.captures.insert(address, Capture::new(writer)?);
        Ok(())
    }

    /// Ends all captures.
    ///
    /// # Errors
    /// The first error that a writer gave; what it had taken by then is intact.
    pub fn finish_captures(&mut self) -> io::Result<()> {
        let captures = core::mem::take(&mut self.captures);
        let results: Vec<_> = captures.into_values().map(Capture::finish).collect();
        results.into_iter().collect()
    }

    // ---- time ----

    /// Sends what touched applications want to send now. Returns whether there was anything. Those
    /// that sent stay touched: they may have something to tell, and more to send.
    pub fn transmit(&mut self) -> bool {
        let mut touched = core::mem::take(&mut self.touched);
        touched.sort_unstable();
        let before = self.counters.sent;
        for id in touched.drain(..) {
            let (mut has_sent, mut is_held) = (false, false);
            while self.steps_left > 0 {
                is_held = !self.takes_from(id);
                if is_held {
                    break;
                }
                let Some(datagram) = self.apps[id.index()].app.poll_transmit(self.now) else { break };
                self.steps_left -= 1;
                has_sent = true;
                self.send(id, datagram);
            }
            let attached = &mut self.apps[id.index()];
            attached.is_touched = has_sent;
            if has_sent {
                self.touched.push(id);
            } else {
                let at = attached.app.poll_timeout().filter(|at| *at != Time::NEVER);
                // What is due cannot leave before there is room, and then it is touched.
                let at = at.filter(|at| !is_held || *at > self.now);
                self.agenda.set((self.paths.len() + self.nodes) as u32 + id.0, at);
            }
        }
        self.counters.sent > before && self.steps_left > 0
    }

    /// Lets time pass to the next instant at which something is due, and does all that is due then.
    /// If nothing is due until `until`, lets time pass to `until` and returns `false`.
    pub fn advance(&mut self, until: Time) -> bool {
        let next = self.agenda.first().map(|(at, _)| at).filter(|at| *at <= until && self.steps_left > 0);
        let Some(next) = next else {
            self.now = self.now.max(until);
            return false;
        };
        self.steps_left -= 1;
        self.now = self.now.max(next);
        while let Some((at, entry)) = self.agenda.first()
            && at <= self.now
        {
            match (entry as usize).checked_sub(self.paths.len()) {
                None => self.deliver(entry),
                Some(node) if node < self.nodes => self.work(Node(node as u32)),
                Some(number) => {
                    let app = number - self.nodes;
                    self.agenda.set(entry, None);
                    self.apps[app].app.handle_timeout(self.now);
                    self.touch(AppId(app as u32));
                }
            }
        }
        true
    }

    /// Lets time pass until `until`.
    pub fn run_until(&mut self, until: Time) {
        loop {
            while self.transmit() {}
            if !self.advance(until) {
                return;
            }
        }
    }

    // ---- packets ----

    /// Takes a datagram from an application, which sends it now.
    fn send(&mut self, id: AppId, datagram: Datagram) {
        self.counters.sent += 1;
        if datagram.body.len() > pcap::PAYLOAD_BYTES_MAX {
            self.counters.too_long += 1;
            return;
        }
        let attached = &mut self.apps[id.index()];
        let (from, node) = (attached.address, attached.node);
        let identification = attached.next_identification;
        attached.next_identification = identification.wrapping_add(1);
        let Some((to, destination)) = self.find(datagram.to) else {
            self.counters.unreachable += 1;
            return;
        };
        let mut packet = Packet {
            from,
            to,
            ecn: datagram.ecn,
            hops_left: HOPS_MAX,
            sent_at: self.now,
            body: datagram.body,
            identification,
            checksum: 0,
            header_bytes: self.header_bytes,
            damage: Damage::None,
            destination: destination.0 as u16,
            may_fragment: self.apps[id.index()].app.may_fragment(),
        };
        if self.checks_udp || !self.captures.is_empty() {
            packet.checksum = pcap::udp_checksum(&packet);
            self.record(*from.ip(), &packet);
        }
        if !self.machines.is_empty()
            && u32::from(packet.destination) != node.0
            && self.machine(node).is_some()
        {
            self.hand_to_machine(node, id, packet);
            return;
        }
        self.forward(node, packet);
    }

    /// A packet is at a node, and goes on from there.
    fn forward(&mut self, node: Node, packet: Packet) {
        let destination = Node(packet.destination.into());
        if destination == node {
            if self.is_whole(&packet) {
                self.hand_over(packet);
            }
            return;
        }
        let Some((path, forward)) = self.routes[node.index() * self.nodes + destination.index()] else {
            self.counters.unreachable += 1;
            return;
        };
        let direction = if forward { Direction::Forward } else { Direction::Backward };
        self.send_on(path, direction, packet);
    }

    /// Hands a packet to a path.
    fn offer(&mut self, path: PathId, direction: Direction, packet: Packet) {
        let link = &mut self.paths[path.index()].0;
        let len = packet.path_bytes();
        link.send(self.now.as_nanos(), direction, packet, len);
        self.agenda.set(path.0, link.next_ns().map(Time::from_nanos));
    }

    /// Takes what has come to the ends of a path.
    fn deliver(&mut self, path: u32) {
        let now_ns = self.now.as_nanos();
        for direction in Direction::ALL {
            while let Some(packet) = self.paths[path as usize].0.poll(now_ns, direction) {
                self.counters.hops += 1;
                let node = self.paths[path as usize].1[usize::from(direction == Direction::Forward)];
                self.pass(node, packet);
            }
        }
        let next = self.paths[path as usize].0.next_ns();
        self.agenda.set(path, next.map(Time::from_nanos));
    }

    /// A packet has come to a node at the end of a path.
    fn pass(&mut self, node: Node, mut packet: Packet) {
        if u32::from(packet.destination) == node.0 {
            self.arrive(packet);
            return;
        }
        // RFC 1812 section 5.3.1: a packet whose last hop this was is not forwarded.
        match packet.hops_left.checked_sub(1) {
            None | Some(0) => self.counters.hops_exceeded += 1,
            Some(left) => {
                packet.hops_left = left;
                self.forward(node, packet);
            }
        }
    }

    /// A packet has come over a path to the node that has its address.
    fn arrive(&mut self, packet: Packet) {
        let Some(packet) = self.reassemble(packet) else { return };
        if !self.is_whole(&packet) {
            return;
        }
        let (now, node) = (self.now, Node(packet.destination.into()));
        if !self.machines.is_empty()
            && let Some(machine) = self.machine(node)
        {
            machine.arrive(now, packet);
            self.work(node);
            return;
        }
        self.hand_over(packet);
    }

    /// True if a packet has arrived as it was sent, as far as its host looks.
    fn is_whole(&mut self, packet: &Packet) -> bool {
        // Where the headers are damaged, this is no packet of that address.
        if packet.damage != Damage::Headers && !self.captures.is_empty() {
            self.record(*packet.to.ip(), packet);
        }
        let is_right = match packet.damage {
            Damage::None => true,
            Damage::Payload => !self.checks_udp || pcap::is_checksum_right(packet),
            Damage::Headers => false,
        };
        self.counters.bad_checksum += u64::from(!is_right);
        is_right
    }

    /// Gives a packet to the application that it is for.
    fn hand_over(&mut self, packet: Packet) {
        let Some(id) = self.app_at(packet.to) else {
            self.counters.unclaimed += 1;
            return;
        };
        self.counters.delivered += 1;
        self.apps[id.index()].app.handle_datagram(self.now, packet);
        self.touch(id);
    }

    fn record(&mut self, address: Ipv4Addr, packet: &Packet) {
        if let Some(capture) = self.captures.get_mut(&address) {
            capture.record(self.now, packet);
        }
    }

    /// The node that has an address.
    fn find(&self, to: SocketAddr) -> Option<(SocketAddrV4, Node)> {
        let IpAddr::V4(ip) = to.ip() else { return None };
        let node = *self.node_of.get(&ip)?;
        Some((SocketAddrV4::new(ip, to.port()), node))
    }

    fn touch(&mut self, id: AppId) {
        let attached = &mut self.apps[id.index()];
        if !attached.is_touched {
            attached.is_touched = true;
            self.touched.push(id);
        }
    }
}

/// The seed of a part of a network, as a path. The first has that of the network. Others have it
/// mixed with their number (the finalizer of SplitMix64, Steele, Lea and Flood 2014). Parts of one
/// network, or of two with adjacent seeds, therefore differ.
pub fn seed_of(seed: u64, index: u64) -> u64 {
    if index == 0 {
        return seed;
    }
    let mut mixed = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
