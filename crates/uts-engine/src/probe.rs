//! Twenty points that a packet passes between two applications, and the instants at which it does.
//!
//! They are those of A. Richards, "The Universal Transport System" (1995), figures 3.3 and 3.4: ten
//! at the sender, ten at the receiver. The application passes the first and the last, its host
//! those at the socket and at its calls, the engine those in between. The engine reads no clock:
//! each instant is the host's.
//!
//! The points of adaptive packets are passed, not those of a handshake. Packets of a run pass a
//! point together.

use core::fmt;
use std::sync::Arc;
use uts_functions::Time;

/// A place in the way of a packet, in the order in which it passes them. A packet without data
/// (an acknowledgement) passes those from [`Point::Begun`] to [`Point::Placed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Point {
    /// The application is about to hand its data over.
    Written = 1,
    /// The call has begun.
    Called = 2,
    /// The call has the endpoint, which it may have waited for.
    Admitted = 3,
    /// The flow has taken the data.
    Taken = 4,
    /// The engine begins the packet.
    Begun = 5,
    /// The packet has all its frames; checksum and cipher follow.
    Filled = 6,
    /// The packet is complete.
    Sealed = 7,
    /// The host has the packet.
    Fetched = 8,
    /// The host is about to hand it to the system.
    Sending = 9,
    /// The system has taken it.
    Sent = 10,
    /// The host begins a turn in which it receives.
    Woken = 11,
    /// The host asks the system for what has arrived.
    Receiving = 12,
    /// The system has given the packet.
    Received = 13,
    /// The host has the endpoint, which it may have waited for.
    Handed = 14,
    /// The engine has found the connection of the packet.
    Found = 15,
    /// The packet is deciphered, and authentic.
    Opened = 16,
    /// The frames of the packet are read: its data waits for the application.
    Placed = 17,
    /// The call that reads has the endpoint.
    Asked = 18,
    /// The call has taken the data out of the flow.
    Read = 19,
    /// The application has its data.
    Delivered = 20,
}

impl Point {
    /// All points, in their order.
    pub const ALL: [Point; 20] = [
        Point::Written,
        Point::Called,
        Point::Admitted,
        Point::Taken,
        Point::Begun,
        Point::Filled,
        Point::Sealed,
        Point::Fetched,
        Point::Sending,
        Point::Sent,
        Point::Woken,
        Point::Receiving,
        Point::Received,
        Point::Handed,
        Point::Found,
        Point::Opened,
        Point::Placed,
        Point::Asked,
        Point::Read,
        Point::Delivered,
    ];

    /// Number of the point, 1 to 20.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The point of this number; `None` if there is none.
    pub fn of_number(number: u8) -> Option<Point> {
        Point::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Passage of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// When, by the clock of the host.
    pub at: Time,
    /// The point.
    pub point: Point,
    /// Bytes that passed: of the application's data at its end, of the UDP payload elsewhere.
    pub bytes: usize,
}

/// Taker of passages, with the clock of the host.
pub trait ProbeSink: Send + Sync {
    /// The instant.
    fn now(&self) -> Time;

    /// Something has passed a point. The call must not block, and must not call the endpoint.
    fn passed(&self, passage: Passage);
}

/// A sink of passages, or none: then nothing is read and nothing kept.
#[derive(Clone, Default)]
pub struct Probes(Option<Arc<dyn ProbeSink>>);

impl Probes {
    /// Probes that tell this sink.
    pub fn new(sink: Arc<dyn ProbeSink>) -> Self {
        Probes(Some(sink))
    }

    /// True if there is a sink.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The instant; `None` without a sink.
    #[inline]
    pub fn now(&self) -> Option<Time> {
        self.0.as_ref().map(|sink| sink.now())
    }

    /// Something of so many bytes passes a point.
    #[inline]
    pub fn pass(&self, point: Point, bytes: usize) {
        if let Some(sink) = &self.0 {
            sink.passed(Passage { at: sink.now(), point, bytes });
        }
    }

    /// Something has passed a point at an instant, which [`Probes::now`] gave.
    #[inline]
    pub fn passed(&self, at: Time, point: Point, bytes: usize) {
        if let Some(sink) = &self.0 {
            sink.passed(Passage { at, point, bytes });
        }
    }
}

impl fmt::Debug for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "Probes(on)" } else { "Probes(off)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_numbered_in_their_order() {
        for (before, point) in Point::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(point.number()), before + 1);
            assert_eq!(Point::of_number(point.number()), Some(point));
        }
        assert_eq!(Point::of_number(0), None);
        assert_eq!(Point::of_number(21), None);
    }
}
