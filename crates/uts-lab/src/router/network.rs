//! The emulated network in virtual time: nodes in a row, paths between, hosts at the nodes.

use super::frame::Packet;
use super::icmp::too_big;
use super::topology::{Topology, host_of};
use uts_path::{
    Applied, Change, Direction, DropReason, Fate, Framing, Passage, Path, PathConfig, SpecError, Stats,
    Target,
};

/// A packet that has come through, for a host.
#[derive(Debug)]
pub(super) struct Arrival {
    pub host: usize,
    /// When it was to arrive there.
    pub due_ns: u64,
    pub packet: Packet,
}

/// The network. Times are nanoseconds on the caller's clock; each call's is at or after the one before.
#[derive(Debug)]
pub(super) struct Network {
    topology: Topology,
    paths: Vec<Path<Packet>>,
    arrivals: Vec<Arrival>,
    /// Whether senders of packets beyond an MTU are told by ICMP.
    tell_too_big: bool,
    /// Frames for an Ethernet address that no host has.
    astray: u64,
}

/// Where at its node a packet comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Host(usize),
    /// The path of a lower number.
    Left,
    Right,
}

impl Network {
    /// Makes an idle one. Each path has a seed that follows from `seed`; schedules count from `origin_ns`.
    pub(super) fn new(
        topology: Topology,
        paths: &[PathConfig],
        seed: u64,
        origin_ns: u64,
        tell_too_big: bool,
    ) -> Result<Self, SpecError> {
        let make = |(index, config): (usize, &PathConfig)| {
            let seed = seed.wrapping_add((index as u64).wrapping_mul(0xd1b5_4a32_d192_ed03));
            Path::new(config.clone(), seed, origin_ns)
                .map_err(|e| SpecError { at: format!("path {index} {}", e.at), reason: e.reason })
        };
        let paths = paths.iter().enumerate().map(make).collect::<Result<_, _>>()?;
        Ok(Network { topology, paths, arrivals: Vec::new(), tell_too_big, astray: 0 })
    }

    pub(super) fn paths(&self) -> usize {
        self.paths.len()
    }

    /// Whether a framing looks at packets' bytes.
    pub(super) fn sees_bytes(&self) -> bool {
        let framings = self.paths.iter().flat_map(|p| Direction::ALL.map(|d| p.config(d).framing));
        framings.into_iter().any(|f| matches!(f, Framing::Slip | Framing::Ppp { .. }))
    }

    /// Whether to keep what [`take_passages`](Self::take_passages) tells.
    pub(super) fn record_passages(&mut self, record: bool) {
        self.paths.iter_mut().for_each(|path| path.record_passages(record));
    }

    /// Tells of each packet that has left a queue since this was last called.
    pub(super) fn take_passages(&mut self, mut take: impl FnMut(usize, Direction, Passage)) {
        for (index, path) in self.paths.iter_mut().enumerate() {
            for direction in Direction::ALL {
                while let Some(passage) = path.poll_passage(direction) {
                    take(index, direction, passage);
                }
            }
        }
    }

    pub(super) fn stats(&self, path: usize, direction: Direction) -> Stats {
        self.paths.get(path).map(|p| p.stats(direction)).unwrap_or_default()
    }

    pub(super) fn astray(&self) -> u64 {
        self.astray
    }

    pub(super) fn set(
        &mut self,
        now_ns: u64,
        path: usize,
        target: Target,
        change: &Change,
    ) -> Result<(), SpecError> {
        self.advance(now_ns);
        match self.paths.get_mut(path) {
            Some(path) => path.set(now_ns, target, change),
            None => Err(SpecError {
                at: format!("path {path}"),
                reason: format!("there are {}, counted from 0", self.paths.len()),
            }),
        }
    }

    /// The next change that was made and not yet told of, with its path.
    pub(super) fn poll_applied(&mut self) -> Option<(usize, Applied)> {
        self.paths.iter_mut().enumerate().find_map(|(index, path)| Some((index, path.poll_applied()?)))
    }

    /// A packet comes from a host at `now_ns`.
    pub(super) fn send(&mut self, now_ns: u64, packet: Packet) {
        if self.paths.len() > 1 {
            self.advance(now_ns);
        }
        let (from, node) = (packet.from, self.topology.node_of(packet.from));
        self.route(now_ns, node, From::Host(from), packet);
    }

    /// Moves everything on to `now_ns`.
    pub(super) fn advance(&mut self, now_ns: u64) {
        // Packets from one path go into the next: all paths are taken through time together.
        if self.paths.len() > 1 {
            while let Some(next_ns) = self.next_ns().filter(|&at_ns| at_ns < now_ns) {
                self.collect(next_ns);
            }
        }
        self.collect(now_ns);
    }

    /// The next packet for a host.
    pub(super) fn take_arrivals(&mut self) -> std::vec::Drain<'_, Arrival> {
        self.arrivals.drain(..)
    }

    /// When to advance next.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.paths.iter().filter_map(Path::next_ns).min()
    }

    /// Takes what has arrived at the paths' ends by `now_ns`. What passes several paths in no time is
    /// followed to its end.
    fn collect(&mut self, now_ns: u64) {
        loop {
            let mut moved = false;
            for index in 0..self.paths.len() {
                for direction in Direction::ALL {
                    let Some(path) = self.paths.get_mut(index) else { continue };
                    path.advance(now_ns);
                    while let Some(delivery) =
                        self.paths.get_mut(index).and_then(|p| p.poll_delivery(now_ns, direction))
                    {
                        let (node, from) = match direction {
                            Direction::Forward => (index + 1, From::Left),
                            Direction::Backward => (index, From::Right),
                        };
                        moved |= self.route(delivery.due_ns, node, from, delivery.payload);
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Passes a packet on from a node. Returns whether it went into a path.
    fn route(&mut self, now_ns: u64, node: usize, from: From, packet: Packet) -> bool {
        let Some(destination) = packet.destination() else { return false };
        if destination[0] & 1 == 1 {
            return self.flood(now_ns, node, from, packet);
        }
        let Some(host) = host_of(destination).filter(|&h| h < self.topology.hosts()) else {
            self.astray += 1;
            return false;
        };
        match self.topology.node_of(host).cmp(&node) {
            std::cmp::Ordering::Equal => {
                self.arrivals.push(Arrival { host, due_ns: now_ns, packet });
                false
            }
            std::cmp::Ordering::Greater => self.offer(now_ns, node, Direction::Forward, packet),
            std::cmp::Ordering::Less => self.offer(now_ns, node, Direction::Backward, packet),
        }
    }

    /// Multicast and broadcast: to every other host of the node, and on to where it does not come from.
    fn flood(&mut self, now_ns: u64, node: usize, from: From, packet: Packet) -> bool {
        for host in 0..self.topology.hosts() {
            if self.topology.node_of(host) == node && from != From::Host(host) {
                self.arrivals.push(Arrival { host, due_ns: now_ns, packet: packet.clone() });
            }
        }
        let mut moved = false;
        if from != From::Left && node > 0 {
            moved |= self.offer(now_ns, node, Direction::Backward, packet.clone());
        }
        if from != From::Right && node < self.paths.len() {
            moved |= self.offer(now_ns, node, Direction::Forward, packet);
        }
        moved
    }

    /// Offers a packet to the path that leads from `node` in `direction`.
    fn offer(&mut self, now_ns: u64, node: usize, direction: Direction, packet: Packet) -> bool {
        let index = if direction == Direction::Forward { node } else { node - 1 };
        let Some(path) = self.paths.get_mut(index) else { return false };
        let len = packet.ip().len();
        let sender = packet.from;
        let refusal = self.tell_too_big.then(|| too_big(&packet, path.config(direction))).flatten();
        let fate = path.send(now_ns, direction, packet, len);
        if let (Fate::Dropped(DropReason::TooBig), Some(packet)) = (fate, refusal) {
            self.route(now_ns, node, From::Host(sender), packet);
        }
        matches!(fate, Fate::Queued { .. })
    }
}
