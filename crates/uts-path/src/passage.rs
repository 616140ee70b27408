//! Way of a packet through a link: its waits, its mark, its fate.

use serde::{Deserialize, Serialize};

/// Fate of a packet that was offered to a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is in the queue, or in a receive buffer before it. It may still be dropped later: on its
    /// way into the queue, by the queue discipline or on the wire.
    Queued {
        /// The packet was marked for congestion.
        marked: bool,
    },
    /// It was dropped.
    Dropped(DropReason),
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// No free receive buffer.
    ReceiveFull,
    /// No room in the buffer.
    QueueFull,
    /// Bigger than the MTU.
    TooBig,
    /// Random early detection chose it.
    Red,
    /// CoDel chose it.
    #[serde(rename = "codel")]
    CoDel,
    /// PIE chose it.
    Pie,
    /// Beyond the rate of a policer.
    Policed,
    /// Lost on the wire.
    Loss,
    /// Lost on the wire while the link was down.
    Outage,
    /// Its headers cannot be told from compressed ones on this link.
    Compression,
}

impl DropReason {
    /// As in TOML: `receive_full`, `queue_full`, `too_big`, `red`, `codel`, `pie`, `policed`,
    /// `loss`, `outage`, `compression`.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::ReceiveFull => "receive_full",
            DropReason::QueueFull => "queue_full",
            DropReason::TooBig => "too_big",
            DropReason::Red => "red",
            DropReason::CoDel => "codel",
            DropReason::Pie => "pie",
            DropReason::Policed => "policed",
            DropReason::Loss => "loss",
            DropReason::Outage => "outage",
            DropReason::Compression => "compression",
        }
    }
}

/// A packet's way through the bottleneck: what a record of queue length and sojourn needs.
///
/// The queue's lengths are those that the packet found on arrival: without itself, with the packet
/// in transmission, and in bytes with [`overhead_bytes`](crate::LinkConfig::overhead_bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// Order in which packets were offered to the link, from 0, those included that were dropped.
    pub number: u64,
    /// Length as given to `send`, in bytes.
    pub len: usize,
    /// When it was offered; when it left its receive buffer where there are such.
    pub arrived_ns: u64,
    /// Packets that it found in the queue.
    pub queue_packets: u64,
    /// Bytes that it found in the queue.
    pub queue_bytes: u64,
    /// When its transmission began; when it was dropped if that was before.
    pub started_ns: u64,
    /// When it left the queue: its last bit was transmitted, or it was dropped.
    pub left_ns: u64,
    /// The packet was marked for congestion.
    pub marked: bool,
    /// Why it was dropped, here or on the wire; `None` if it is on its way to the far end.
    pub dropped: Option<DropReason>,
}

impl Passage {
    /// Of a packet that has just come.
    pub(crate) fn arriving(
        number: u64,
        len: usize,
        now_ns: u64,
        queue_packets: u64,
        queue_bytes: u64,
    ) -> Self {
        Passage {
            number,
            len,
            arrived_ns: now_ns,
            queue_packets,
            queue_bytes,
            started_ns: now_ns,
            left_ns: now_ns,
            marked: false,
            dropped: None,
        }
    }

    /// Time in the queue, its transmission included.
    pub fn sojourn_ns(&self) -> u64 {
        self.left_ns - self.arrived_ns
    }

    /// Time in the queue before its transmission began.
    pub fn wait_ns(&self) -> u64 {
        self.started_ns - self.arrived_ns
    }
}
