//! The testbed: a sender on an Ethernet, the router, ATM behind it, and the receiver. What the
//! paper does not give is named here, with what it was chosen by.

use crate::tcp::receiver::{self, Prune};
use crate::tcp::sender::{self, Partial};
use crate::tcp::world::Setup;
use core::time::Duration;

/// Bytes of data in a segment: 1460 less time stamps.
pub const SEGMENT_BYTES: u16 = 1448;
/// Receive buffers that the application asks for, which the paper calls windows of 48 and 32 KB.
pub const LARGE: u32 = 49_000;
/// See there.
pub const SMALL: u32 = 32_768;
/// Memory that the ATM driver takes for a packet (section 4.2.1).
pub const PACKET_MEMORY: u32 = 9408;
/// Cells of 53 bytes that carry a packet (section 4.1).
const WIRE_BYTES: f64 = 1696.0;
/// 10 Mbit/s.
const ETHERNET: &str = "rate=10mbit framing=ethernet mtu=1500";
/// One way from the router to the receiver: switches, and what the two hosts need for a packet. The
/// paper does not say. Of those tried it is nearest to its first drops, below 28 and 18 buffers.
pub const DELAY_US: u32 = 1000;
/// Ticks of 10 ms that an acknowledgement waits for a second segment. The paper does not say. Its
/// second dump excludes waits as long as a time-out; this is the least that Linux has then.
const DELAY_TICKS: u64 = 2;

/// A sender's machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// The effect of its partial acknowledgements.
    pub partial: Partial,
    /// Packets that it begins with.
    pub initial: u32,
    /// True if acknowledgements of repeats after a time-out open its window.
    pub repeats_grow: bool,
}

impl Machine {
    /// Linux 2.1.117: one partial acknowledgement ends a recovery (section 4.2.1). After a time-out
    /// one packet goes for each acknowledgement until all that was in flight is acknowledged, and
    /// then a window of one (second dump, lines 29 to 48).
    pub const LINUX: Machine = Machine { partial: Partial::Each, initial: 1, repeats_grow: false };
    /// Solaris 2.6, of which the paper gives no rule: slow start after a time-out, and recoveries
    /// that last (J. Hoe 1996) are assumed, and a window of two at first.
    pub const SOLARIS: Machine = Machine { partial: Partial::Each, initial: 2, repeats_grow: true };
}

/// The testbed and what is set in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Testbed {
    /// Of the line, in kbit/s.
    pub rate_kbps: u32,
    /// The router's queue discipline, as paths name it.
    pub queue: &'static str,
    /// One way over the line.
    pub delay_us: u32,
    /// Ticks that an acknowledgement waits.
    pub delay_ticks: u64,
    /// The sender.
    pub sender: Machine,
    /// Bytes that the receiving application asks for.
    pub buffer_bytes: u32,
    /// The fate of packets behind a gap where the buffer is full.
    pub prune: Prune,
    /// True if acknowledgements are selective.
    pub is_selective: bool,
}

impl Testbed {
    /// The paper's, with a receive buffer of so many bytes.
    pub fn of(buffer_bytes: u32) -> Self {
        Testbed {
            rate_kbps: 5000,
            queue: "droptail",
            delay_us: DELAY_US,
            delay_ticks: DELAY_TICKS,
            sender: Machine::LINUX,
            buffer_bytes,
            prune: Prune::Held,
            is_selective: false,
        }
    }

    /// The same with another way to prune.
    #[must_use]
    pub fn pruning(self, prune: Prune) -> Self {
        Testbed { prune, ..self }
    }

    /// The same with another sender.
    #[must_use]
    pub fn sending(self, sender: Machine) -> Self {
        Testbed { sender, ..self }
    }

    /// The same with selective acknowledgements.
    #[must_use]
    pub fn selective(self) -> Self {
        Testbed { is_selective: true, ..self }
    }

    /// A transfer of so many bytes over so many transmit buffers.
    pub fn setup(&self, buffers: u32, bytes: u32) -> Setup {
        let line = |buffers: u32, queue: &str| {
            let Testbed { rate_kbps, delay_us, .. } = self;
            format!("rate={rate_kbps}kbit framing=aal5 delay={delay_us}us buffer={buffers}p queue={queue}")
        };
        Setup {
            access: ETHERNET.into(),
            line: [line(buffers, self.queue), line(63, "droptail")],
            sender: sender::Rules {
                segment_bytes: SEGMENT_BYTES,
                initial: self.sender.initial,
                partial: self.sender.partial,
                repeats_grow: self.sender.repeats_grow,
                selective: self.is_selective,
            },
            receiver: receiver::Rules {
                buffer_bytes: self.buffer_bytes,
                packet_bytes: PACKET_MEMORY,
                segment_bytes: SEGMENT_BYTES,
                prune: self.prune,
                delay_ticks: self.delay_ticks,
                selective: self.is_selective,
            },
            bytes,
            records: false,
            bunch: Duration::ZERO,
            seed: 1,
            end: Duration::from_secs(4000),
        }
    }
}

/// Data that the line can carry (section 4.1).
pub fn theory_kbps(rate_kbps: u32) -> f64 {
    f64::from(rate_kbps) * f64::from(SEGMENT_BYTES) / WIRE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_carries_what_the_paper_computes() {
        assert!((theory_kbps(5000) - 4268.9).abs() < 0.1);
        let outcome = Testbed::of(LARGE).setup(63, 2_000_000).run().expect("in range");
        assert!((0.97..1.0).contains(&(outcome.kbps() / theory_kbps(5000))), "{}", outcome.kbps());
        assert!(outcome.is_done && outcome.sender.timeouts.is_empty() && outcome.router.dropped() == 0);
    }
}
