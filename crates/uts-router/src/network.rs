//! The emulated network in virtual time: nodes in a row, paths between, hosts at the nodes.

use super::frame::Packet;
use super::icmp::too_big;
use super::topology::{Topology, host_of};
use uts_path::{
    Applied, Change, Compression, Direction, DropReason, Fate, Framing, Passage, Path, PathConfig, SpecError,
    Stats, Target,
};

/// A packet that has come through, for a host.
#[derive(Debug)]
pub(super) struct Arrival {
    pub host: usize,
    /// When it was to arrive there.
    pub due_ns: u64,
    pub packet: Packet,
}

/// The network. Times are nanoseconds on the caller's clock. Each call's time is at or after the
/// one before.
#[derive(Debug)]
pub(super) struct Network {
    topology: Topology,
    paths: Vec<Path<Packet>>,
    arrivals: Vec<Arrival>,
    /// Senders of packets beyond an MTU are told by ICMP.
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
    /// Makes an idle one. Each path has a seed that follows from `seed`. Schedules count from
    /// `origin_ns`.
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

    /// True if a framing or a compression looks at packets' bytes.
    pub(super) fn sees_bytes(&self) -> bool {
        let links = self.paths.iter().flat_map(|p| Direction::ALL.map(|d| p.config(d)));
        links.into_iter().any(|link| {
            matches!(link.framing, Framing::Slip | Framing::Ppp { .. })
                || link.compression != Compression::Off
        })
    }

    /// Turns the record of passages for [`take_passages`](Self::take_passages) on or off.
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

    /// The next change that was made and not yet reported, with its path.
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

    /// Takes what has arrived at the paths' ends by `now_ns`. A packet that passes several paths in
    /// no time is followed to its end.
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

    /// Multicast and broadcast: to every other host of the node, and on to the sides from which it
    /// did not come.
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

#[cfg(test)]
mod tests {
    use super::super::topology::ethernet_of;
    use super::*;

    fn packet(from: usize, to: [u8; 6], ip_bytes: usize) -> Packet {
        let mut bytes = vec![0; 10];
        bytes.extend_from_slice(&to);
        bytes.extend_from_slice(&ethernet_of(from));
        bytes.extend_from_slice(&[8, 0, 0x45]);
        bytes.resize(24 + ip_bytes, 0);
        Packet { bytes, from }
    }

    fn network(topology: Topology, links: &[&str]) -> Network {
        let paths: Vec<PathConfig> = links.iter().map(|l| PathConfig::both(l.parse().unwrap())).collect();
        Network::new(topology, &paths, 1, 0, true).unwrap()
    }

    /// Everything that arrives by then: host and instant.
    fn arrivals(network: &mut Network, by_ns: u64) -> Vec<(usize, u64)> {
        network.advance(by_ns);
        network.take_arrivals().map(|a| (a.host, a.due_ns)).collect()
    }

    #[test]
    fn a_chain_is_exact_however_seldom_it_is_advanced() {
        // 1000 bytes: 1 ms at 8 Mbit/s, then 10 ms, then 2 ms at 4 Mbit/s: the second link is the
        // bottleneck.
        let links = ["rate=8mbit delay=10ms", "rate=4mbit delay=20ms"];
        let wanted: Vec<(usize, u64)> = (0..5).map(|i| (2, 33_000_000 + i * 2_000_000)).collect();
        for step_ns in [1_000, 777_777, 1_000_000_000] {
            let mut network = network(Topology::Chain { routers: 3 }, &links);
            for _ in 0..5 {
                network.send(0, packet(0, ethernet_of(2), 1000));
            }
            let mut got = Vec::new();
            for turn in 1..=1_000_000_000 / step_ns {
                got.extend(arrivals(&mut network, turn * step_ns));
                if got.len() == 5 {
                    break;
                }
            }
            assert_eq!(got, wanted, "in steps of {step_ns}");
        }
    }

    #[test]
    fn neighbours_on_one_side_meet_no_path_and_strangers_nobody() {
        let mut network = network(Topology::Dumbbell { pairs: 2 }, &["delay=5ms"]);
        network.send(7, packet(0, ethernet_of(1), 100));
        assert_eq!(arrivals(&mut network, 7), [(1, 7)]);
        network.send(8, packet(3, ethernet_of(0), 100));
        assert_eq!(arrivals(&mut network, 10_000_000), [(0, 5_000_008)]);
        network.send(9, packet(0, ethernet_of(4), 100));
        assert_eq!(arrivals(&mut network, 20_000_000), []);
        assert_eq!(network.astray(), 1);
    }

    #[test]
    fn multicast_goes_everywhere_but_back() {
        let mut network = network(Topology::Chain { routers: 4 }, &["delay=1ms", "delay=2ms", "delay=4ms"]);
        network.send(0, packet(1, [1, 0, 0x5e, 1, 2, 3], 100));
        assert_eq!(arrivals(&mut network, 1_000_000_000), [(0, 1_000_000), (2, 2_000_000), (3, 6_000_000)]);
    }

    #[test]
    fn the_sender_of_what_is_too_big_is_told_over_the_way_back() {
        let mut network = network(Topology::Chain { routers: 3 }, &["delay=3ms", "mtu=900"]);
        network.send(0, packet(0, ethernet_of(2), 1000));
        network.advance(1_000_000_000);
        let got: Vec<Arrival> = network.take_arrivals().collect();
        assert_eq!(got.iter().map(|a| (a.host, a.due_ns)).collect::<Vec<_>>(), [(0, 6_000_000)]);
        let icmp = &got[0].packet.ip()[20..];
        assert_eq!((icmp[0], icmp[1], u16::from_be_bytes([icmp[6], icmp[7]])), (3, 4, 900));
        assert_eq!(super::super::frame::fold(super::super::frame::sum_of(icmp)), 0xffff);
    }
}
