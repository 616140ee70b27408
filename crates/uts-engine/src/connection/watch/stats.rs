//! Counts of what a connection has done so far.

/// Counts of what a connection has done so far. All are of this end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named for what it counts")]
#[non_exhaustive]
pub struct Stats {
    pub packets_sent: u64,
    pub bytes_sent: u64,
    pub packets_received: u64,
    pub bytes_received: u64,
    pub packets_lost: u64,
    /// Taken for lost, and arrived after all.
    pub packets_late: u64,
    /// Sent, lost, and recovered by the peer from redundancy.
    pub packets_repaired: u64,
    /// Lost on the way here, and recovered from redundancy.
    pub packets_recovered: u64,
    /// Damaged on the way here, and put right by the detection mechanism.
    pub packets_corrected: u64,
    /// Damaged on the way here at the end of a message that allows it, and taken in.
    pub packets_damaged: u64,
    pub repairs_sent: u64,
    pub reports_sent: u64,
    pub data_bytes_sent: u64,
    pub data_bytes_received: u64,
    /// Data that had arrived before.
    pub data_bytes_repeated: u64,
    pub bytes_repeated: u64,
    pub chunks_repeated: u64,
    /// Bytes of flows that were given up before they arrived, since they were too late or had been
    /// repeated often enough; ends of messages count as one each.
    pub bytes_given_up: u64,
    pub positions_skipped: u64,
    pub messages_expired: u64,
    /// Beyond the rate of their flow, and thrown away before they were a part of it.
    pub messages_discarded: u64,
    /// Came too late to be handed over in their time.
    pub messages_late: u64,
    pub timeouts: u64,
    pub exchanges: u64,
    pub dropped_malformed: u64,
    pub dropped_forged: u64,
    pub dropped_duplicate: u64,
    pub dropped_unknown_epoch: u64,
    /// There was no room for their data, or they were given up again (acknowledgement.md R-22).
    pub dropped_overrun: u64,
}
