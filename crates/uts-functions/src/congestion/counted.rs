//! Growth by the acknowledgement, as TCP of old has it: each lets the window grow by no more than a
//! packet, however much it acknowledges (Jacobson 1988; RFC 5681 section 3.1). Or by the byte (RFC
//! 3465).

use super::Ack;
use super::classic::{SlowStart, Window};
use crate::mechanism::{Bold, Param, Params, Unit};

/// Number of packets that a connection begins with: one (Jacobson 1988) to ten (RFC 6928).
pub(super) const INITIAL: Param = Param {
    name: "initial",
    unit: Unit::Packets,
    default: 1,
    min: 1,
    max: 10,
    bold: Bold::Neither,
    what: "packets that a connection begins with",
};

/// Event that lets the window grow.
pub(super) const COUNT: Param = Param {
    name: "count",
    unit: Unit::Count,
    default: 0,
    min: 0,
    max: 1,
    bold: Bold::Neither,
    what: "the window grows 0 = with each acknowledgement (RFC 5681); 1 = with each byte acknowledged (RFC 3465)",
};

/// Event that lets the window grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Count {
    /// Each acknowledgement.
    Acknowledgements,
    /// Each byte acknowledged.
    #[default]
    Bytes,
}

impl Count {
    /// As the second parameter says.
    pub(super) fn of(params: &Params) -> Self {
        if params.get(1) == 1 { Count::Bytes } else { Count::Acknowledgements }
    }

    /// Share of the mean window that random losses leave of one that counts bytes, at a report for
    /// two packets. Mathis et al. (1997) have the root of one half; measured in the harness, where
    /// the smallest window bounds it.
    pub(super) fn window_share(self) -> f64 {
        if self == Count::Bytes { 1.0 } else { ACKNOWLEDGEMENTS_SHARE }
    }

    fn bytes(self, window: &Window, ack: &Ack) -> u64 {
        match self {
            Count::Acknowledgements => ack.bytes.min(window.packet_bytes),
            Count::Bytes => ack.bytes,
        }
    }
}

/// See [`Count::window_share`].
const ACKNOWLEDGEMENTS_SHARE: f64 = 0.78;

/// Slow start: the window grows by a packet with each acknowledgement, or by what it acknowledges.
#[derive(Clone, Debug, Default)]
pub struct Counted(pub(super) Count);

impl SlowStart for Counted {
    fn grow(&mut self, window: &Window, ack: &Ack) -> Option<f64> {
        // C-40.
        Some(window.exact + self.0.bytes(window, ack) as f64)
    }

    fn restart(&mut self) {}
}

/// Congestion avoidance: a packet more per window acknowledged.
#[derive(Clone, Debug, Default)]
pub struct Additive {
    count: Count,
    /// Bytes acknowledged towards the next packet of growth.
    acked: u64,
}

impl Additive {
    pub(super) fn new(count: Count) -> Self {
        Additive { count, acked: 0 }
    }

    /// The window, in bytes, after an acknowledgement.
    pub fn grow(&mut self, window: &Window, ack: &Ack) -> f64 {
        // C-40.
        self.acked += self.count.bytes(window, ack);
        if self.acked < window.bytes {
            return window.exact;
        }
        self.acked -= window.bytes;
        window.exact + window.packet_bytes as f64
    }

    /// Forgets what counted towards the next packet.
    pub fn restart(&mut self) {
        self.acked = 0;
    }
}
