//! Counters of a link's packets.

use serde::{Deserialize, Serialize};

/// Counters of one link since its start, and its queue now.
///
/// Bytes are those of the payloads, without overhead, except in the queue. When nothing is under
/// way, `packets_in + duplicated` equals `delivered` plus all drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
// A record of before a counter was there lacks it.
#[serde(default)]
pub struct Stats {
    /// Packets offered to the link.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Bytes of those that found room in the queue.
    pub bytes_entered: u64,
    /// Packets handed over at the far end, duplicates included.
    pub delivered: u64,
    /// Their bytes.
    pub bytes_delivered: u64,
    /// Dropped as no receive buffer was free.
    pub dropped_receive: u64,
    /// Dropped as the queue was full.
    pub dropped_queue: u64,
    /// Dropped by the queue discipline before the queue was full: RED, CoDel, PIE, a policer.
    pub dropped_early: u64,
    /// Lost on the wire.
    pub dropped_loss: u64,
    /// Lost on the wire while the link was down.
    pub dropped_outage: u64,
    /// Dropped as bigger than the MTU.
    pub dropped_mtu: u64,
    /// Dropped as their headers could not be compressed, or not be restored.
    pub dropped_compression: u64,
    /// Packets of which the wire made a second copy.
    pub duplicated: u64,
    /// Packets delivered after one that was sent later (RFC 4737), duplicates not counted.
    pub reordered: u64,
    /// Packets in which bits were flipped.
    pub corrupted: u64,
    /// Packets marked for congestion, of those that have left the queue.
    pub marked: u64,
    /// Packets sent with compressed headers.
    pub compressed_headers: u64,
    /// Packets sent with whole headers for those that follow.
    pub whole_headers: u64,
    /// Packets that compression has restored as others than were sent, since their frame was
    /// damaged, or one before it was lost.
    pub restored_wrong: u64,
    /// Packets in the queue, the one in transmission included.
    pub queue_packets: u64,
    /// Their bytes, overhead included.
    pub queue_bytes: u64,
    /// Most packets that the queue has held.
    pub max_queue_packets: u64,
    /// Most bytes that it has held, overhead included.
    pub max_queue_bytes: u64,
}

impl Stats {
    /// All packets that were dropped, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.dropped_receive
            + self.dropped_queue
            + self.dropped_early
            + self.dropped_loss
            + self.dropped_outage
            + self.dropped_mtu
            + self.dropped_compression
    }
}
