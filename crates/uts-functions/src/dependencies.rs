//! Dependencies among the functions of a transport: the graph of Richards, "The Universal Transport
//! System" (1995), figure 3.1, with what this library has beyond it.

use crate::function::Function;

/// A node of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name, as in the figure.
    pub name: &'static str,
    /// The functions of this library that perform it.
    pub functions: &'static [Function],
    /// The state that performs it, where no function does: it is always there.
    pub state: &'static str,
    /// The nodes that it depends on.
    pub needs: &'static [&'static str],
    /// The node is in the figure.
    pub in_figure: bool,
}

const fn node(
    name: &'static str,
    functions: &'static [Function],
    state: &'static str,
    needs: &'static [&'static str],
) -> Node {
    Node { name, functions, state, needs, in_figure: true }
}

const fn beyond(name: &'static str, function: &'static [Function], needs: &'static [&'static str]) -> Node {
    Node { name, functions: function, state: "", needs, in_figure: false }
}

/// The graph: a node stands before those that it needs.
pub const NODES: &[Node] = &[
    node(
        "data flow",
        &[],
        "flows of a connection",
        &[
            "segmentation and reassembly",
            "ordered delivery",
            "connection management",
            "error control",
            "rate control",
            "flow control",
            "congestion control",
            "presentation",
            "playout",
            "protection",
        ],
    ),
    node(
        "expedited data",
        &[],
        "expedited messages and priorities of flows",
        &["buffer management", "error control"],
    ),
    beyond("presentation", &[Function::Presentation], &["segmentation and reassembly"]),
    beyond(
        "playout",
        &[Function::Playout],
        &["ordered delivery", "segmentation and reassembly", "timer management"],
    ),
    beyond("protection", &[Function::Protection], &["sequence identifiers"]),
    // Beyond the figure: what passes messages over needs to know where they end.
    node(
        "ordered delivery",
        &[Function::Sequencing],
        "",
        &["buffer management", "sequencing", "segmentation and reassembly"],
    ),
    node("segmentation and reassembly", &[Function::Segmentation], "", &["buffer management", "sequencing"]),
    node(
        "connection management",
        &[Function::Establishment],
        "",
        &["buffer management", "acknowledgements", "corrupted data detection"],
    ),
    node(
        "error control",
        &[Function::Fec],
        "",
        &["buffer management", "retransmissions", "acknowledgements", "corrupted data detection"],
    ),
    beyond(
        "congestion control",
        &[Function::Congestion],
        &["rate control", "acknowledgements", "round trip"],
    ),
    node("rate control", &[Function::Rate], "", &["buffer management", "acknowledgements"]),
    node("flow control", &[Function::Flow], "", &["buffer management", "acknowledgements"]),
    // Beyond the figure: what is lost is found by a function of its own.
    node(
        "retransmissions",
        &[Function::Retransmission],
        "",
        &["duplicate detection", "acknowledgements", "loss detection"],
    ),
    beyond("loss detection", &[Function::Finding], &["acknowledgements", "round trip", "timer management"]),
    node("sequencing", &[], "positions in a flow", &["sequence identifiers"]),
    node("buffer management", &[], "SendBuffer, Reassembly", &[]),
    node("corrupted data detection", &[Function::Detection], "", &[]),
    node("acknowledgements", &[Function::Acknowledgement], "", &["round trip", "timer management"]),
    node("duplicate detection", &[], "Arrivals", &["sequence identifiers"]),
    node("round trip", &[Function::Timing], "", &["sequence identifiers"]),
    node("timer management", &[], "one timer for each connection", &[]),
    node("sequence identifiers", &[], "packet numbers", &[]),
];

/// The node of that name.
pub fn find(name: &str) -> Option<&'static Node> {
    NODES.iter().find(|node| node.name == name)
}

/// Depth of a node below the top: one more than the deepest of the nodes that need it.
pub fn depth(node: &Node) -> usize {
    let above = NODES.iter().take_while(|other| other.name != node.name);
    above.filter(|other| other.needs.contains(&node.name)).map(|other| depth(other) + 1).max().unwrap_or(0)
}

/// True if a node needs another, itself or through others.
pub fn reaches(from: &Node, to: &Node) -> bool {
    from.name == to.name || from.needs.iter().filter_map(|name| find(name)).any(|next| reaches(next, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn of(function: Function) -> Vec<&'static Node> {
        NODES.iter().filter(|node| node.functions.contains(&function)).collect()
    }

    /// A node stands before those that it needs, so that there is no cycle.
    #[test]
    fn needs_point_down() {
        for (at, node) in NODES.iter().enumerate() {
            for need in node.needs {
                let place = NODES.iter().position(|other| other.name == *need);
                assert!(place.is_some_and(|place| place > at), "{} needs {need}", node.name);
            }
            assert!(node.functions.is_empty() != node.state.is_empty(), "{}", node.name);
        }
        let names: BTreeSet<_> = NODES.iter().map(|node| node.name).collect();
        assert_eq!(names.len(), NODES.len());
    }

    #[test]
    fn every_function_has_one_place() {
        for function in Function::ALL {
            assert_eq!(of(*function).len(), 1, "{}", function.name());
        }
    }
}
