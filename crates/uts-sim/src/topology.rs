//! Which hosts and routers there are, and which paths join them.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use uts_path::PathConfig;

/// A host or a router of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub(crate) u32);

impl Node {
    /// Its place in the order in which nodes were added, from 0.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A path between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub(crate) u32);

impl PathId {
    /// Its place in the order in which paths were added, from 0.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Edge {
    /// Forward is from the first to the second.
    pub ends: [Node; 2],
    pub path: PathConfig,
}

/// Nodes and the paths between them. A packet takes the way of the fewest paths. Of several such
/// ways, at each node it takes the path that was added first.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    nodes: u32,
    pub(crate) edges: Vec<Edge>,
}

impl Topology {
    /// Nothing yet.
    pub fn new() -> Self {
        Topology::default()
    }

    /// Another node. It is a host if applications are attached to it. It forwards packets for other
    /// nodes.
    ///
    /// # Panics
    /// With more than 2^16 - 2 nodes, for which there are no addresses.
    pub fn node(&mut self) -> Node {
        assert!(self.nodes < u32::from(u16::MAX) - 1, "a topology has at most 65534 nodes");
        self.nodes += 1;
        Node(self.nodes - 1)
    }

    /// A path between two nodes; its forward direction is from `a` to `b`.
    ///
    /// # Panics
    /// If the nodes are not of this topology.
    pub fn join(&mut self, a: Node, b: Node, path: PathConfig) -> PathId {
        assert!(a.0 < self.nodes && b.0 < self.nodes, "both nodes must be of this topology");
        self.edges.push(Edge { ends: [a, b], path });
        PathId(self.edges.len() as u32 - 1)
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes as usize
    }

    /// True if there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes == 0
    }

    /// The address of a node: 10.0.0.1 for the first, counting up.
    pub fn address(node: Node) -> Ipv4Addr {
        Ipv4Addr::from((10 << 24) + node.0 + 1)
    }

    /// True if a way leads from a node to another.
    pub fn is_joined(&self, from: Node, to: Node) -> bool {
        from == to || self.routes().get(from.index() * self.len() + to.index()).is_some_and(Option::is_some)
    }

    /// For each pair of a node and a destination, the first path to take and whether it is taken
    /// forward. `None` if there is no way, and at the destination itself. The pair
    /// `(node, destination)` is at `node * len + destination`.
    pub(crate) fn routes(&self) -> Vec<Option<(PathId, bool)>> {
        let nodes = self.len();
        let mut neighbours = vec![Vec::new(); nodes];
        for (index, edge) in self.edges.iter().enumerate() {
            let [a, b] = edge.ends;
            neighbours[a.index()].push((b, PathId(index as u32), true));
            neighbours[b.index()].push((a, PathId(index as u32), false));
        }
        let mut routes = vec![None; nodes * nodes];
        for destination in 0..nodes {
            let mut distance = vec![usize::MAX; nodes];
            distance[destination] = 0;
            let mut queue = VecDeque::from([destination]);
            while let Some(at) = queue.pop_front() {
                for (next, _, _) in &neighbours[at] {
                    if distance[next.index()] == usize::MAX {
                        distance[next.index()] = distance[at] + 1;
                        queue.push_back(next.index());
                    }
                }
            }
            for node in (0..nodes).filter(|n| *n != destination && distance[*n] != usize::MAX) {
                let nearer = neighbours[node].iter().find(|(n, ..)| distance[n.index()] < distance[node]);
                routes[node * nodes + destination] = nearer.map(|(_, path, forward)| (*path, *forward));
            }
        }
        routes
    }
}

/// Two hosts and a path.
#[derive(Clone, Debug)]
pub struct PointToPoint {
    /// All of it.
    pub topology: Topology,
    /// Where the path's forward direction begins, and where it ends.
    pub hosts: [Node; 2],
    /// The path.
    pub path: PathId,
}

impl PointToPoint {
    /// Two hosts and this path.
    pub fn new(path: PathConfig) -> Self {
        let mut topology = Topology::new();
        let hosts = [topology.node(), topology.node()];
        let path = topology.join(hosts[0], hosts[1], path);
        PointToPoint { topology, hosts, path }
    }
}

/// Pairs of hosts that share one path between two routers.
#[derive(Clone, Debug)]
pub struct Dumbbell {
    /// All of it.
    pub topology: Topology,
    /// The hosts on the side where the bottleneck's forward direction begins.
    pub left: Vec<Node>,
    /// Their peers.
    pub right: Vec<Node>,
    /// The path between the routers.
    pub bottleneck: PathId,
}

impl Dumbbell {
    /// This many pairs. `access` gives the path between a host and its router, for the left
    /// (`false`) and the right (`true`) host of each pair. Its forward direction is away from the
    /// left and towards the right host, the same as that of the bottleneck.
    pub fn new(
        pairs: usize,
        bottleneck: PathConfig,
        mut access: impl FnMut(usize, bool) -> PathConfig,
    ) -> Self {
        let mut topology = Topology::new();
        let routers = [topology.node(), topology.node()];
        let bottleneck = topology.join(routers[0], routers[1], bottleneck);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for pair in 0..pairs {
            let hosts = [topology.node(), topology.node()];
            topology.join(hosts[0], routers[0], access(pair, false));
            topology.join(routers[1], hosts[1], access(pair, true));
            left.push(hosts[0]);
            right.push(hosts[1]);
        }
        Dumbbell { topology, left, right, bottleneck }
    }
}

/// Two hosts with routers between them in a row.
#[derive(Clone, Debug)]
pub struct Chain {
    /// All of it. A host of cross traffic is joined to a router by [`Topology::join`].
    pub topology: Topology,
    /// Where the paths' forward direction begins, and where it ends.
    pub hosts: [Node; 2],
    /// The routers, from the first host to the second: one fewer than there are paths.
    pub routers: Vec<Node>,
    /// The paths, from the first host to the second.
    pub paths: Vec<PathId>,
}

impl Chain {
    /// A chain of these paths.
    ///
    /// # Panics
    /// Without any path.
    pub fn new(paths: Vec<PathConfig>) -> Self {
        assert!(!paths.is_empty(), "a chain has at least one path");
        let mut topology = Topology::new();
        let nodes: Vec<Node> = (0..=paths.len()).map(|_| topology.node()).collect();
        let hosts = [nodes[0], nodes[paths.len()]];
        let routers = nodes[1..paths.len()].to_vec();
        let paths = paths.into_iter().zip(nodes.windows(2));
        let paths = paths.map(|(path, ends)| topology.join(ends[0], ends[1], path)).collect();
        Chain { topology, hosts, routers, paths }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nodes that a packet visits.
    fn way(topology: &Topology, from: Node, to: Node) -> Option<Vec<Node>> {
        let routes = topology.routes();
        let mut way = vec![from];
        while *way.last()? != to {
            let at = *way.last()?;
            let (path, forward) = routes[at.index() * topology.len() + to.index()]?;
            way.push(topology.edges[path.index()].ends[usize::from(forward)]);
            assert!(way.len() <= topology.len(), "a circle: {way:?}");
        }
        Some(way)
    }

    #[test]
    fn packets_of_a_dumbbell_pass_both_routers() {
        let Dumbbell { topology, left, right, .. } =
            Dumbbell::new(3, PathConfig::default(), |_, _| PathConfig::default());
        let routers = [Node(0), Node(1)];
        for l in &left {
            for r in &right {
                assert_eq!(way(&topology, *l, *r), Some(vec![*l, routers[0], routers[1], *r]));
                assert_eq!(way(&topology, *r, *l), Some(vec![*r, routers[1], routers[0], *l]));
            }
        }
    }

    #[test]
    fn the_shortest_way_is_taken_and_none_where_there_is_none() {
        let mut topology = Topology::new();
        let nodes: Vec<Node> = (0..6).map(|_| topology.node()).collect();
        // A ring of five, and a node apart.
        for n in 0..5 {
            topology.join(nodes[n], nodes[(n + 1) % 5], PathConfig::default());
        }
        assert_eq!(way(&topology, nodes[0], nodes[2]), Some(vec![nodes[0], nodes[1], nodes[2]]));
        assert_eq!(way(&topology, nodes[0], nodes[3]), Some(vec![nodes[0], nodes[4], nodes[3]]));
        assert_eq!(way(&topology, nodes[0], nodes[5]), None);
    }
}
