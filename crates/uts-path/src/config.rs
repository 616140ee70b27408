//! Settings of a link: the values, their ranges, and the perfect link as the default.

use crate::compression::Compression;
use crate::error::SpecError;
use crate::framing::Framing;
use crate::queue::Discipline;
use crate::receive::Receive;
use crate::server::Supply;
use crate::trace::{Opportunities, Playback, Trace};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Bytes of IPv4 and UDP headers on a datagram (RFC 791, RFC 768): the overhead where datagrams are
/// carried, unless the settings say otherwise.
pub const IP_UDP_OVERHEAD_BYTES: u32 = 28;
/// Longest delay, jitter or extra delay that a link may have: one hour.
pub(crate) const MAX_DELAY_NS: u64 = 3_600_000_000_000;
/// Highest rate that a link may have: 10 Tbit/s.
pub(crate) const MAX_RATE_BPS: u64 = 10_000_000_000_000;
/// Most bits that a corruption may flip in one packet.
pub(crate) const MAX_FLIPPED_BITS: u32 = 64;

/// An amount of queue: its limit, a threshold of RED, or the level above which packets are marked.
///
/// The packet that is being transmitted counts, as it occupies its buffer until it has left. Bytes
/// include [`LinkConfig::overhead_bytes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Buffer {
    /// This many packets of whatever size.
    Packets(u64),
    /// This many bytes.
    Bytes(u64),
    /// No limit but [`MAX_HELD_BYTES`](crate::MAX_HELD_BYTES) and
    /// [`MAX_HELD_PACKETS`](crate::MAX_HELD_PACKETS).
    #[default]
    Unlimited,
}

impl Buffer {
    /// True if a queue of this occupancy is within the limit.
    pub(crate) fn holds(self, packets: u64, bytes: u64) -> bool {
        match self {
            Buffer::Packets(limit) => packets <= limit,
            Buffer::Bytes(limit) => bytes <= limit,
            Buffer::Unlimited => true,
        }
    }
}

/// Pattern of losses on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// None are.
    #[default]
    None,
    /// Each with probability `p`, independently.
    Random {
        /// Probability, 0 to 1.
        p: f64,
    },
    /// In bursts: the two-state Gilbert model, in which every packet of the bad state is lost
    /// (Gilbert 1960; Elliott 1963 with loss 0 in the good state and 1 in the bad one).
    GilbertElliott {
        /// Mean share of packets lost, 0 to below 1.
        loss: f64,
        /// Mean length of a burst in packets, at least 1.
        burst: f64,
    },
    /// Those at these places, of the packets that leave the queue from now on.
    Places {
        /// Bit `n` stands for place `n + 1`.
        bits: u64,
    },
}

/// The distribution of jitter between 0 and its maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JitterShape {
    /// Every value is as likely.
    #[default]
    Uniform,
    /// Bell-shaped round half the maximum: the mean of four uniform values.
    Bell,
}

/// Delay that varies from packet to packet, added to [`LinkConfig::delay_ns`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Jitter {
    /// Each packet waits 0 to this much longer, in nanoseconds.
    pub max_ns: u64,
    /// Distribution of the wait.
    pub shape: JitterShape,
    /// A packet that waits less may overtake another; if not, it waits for the packet before.
    pub reorder: bool,
}

/// Packets that are held back so that later ones overtake them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reordering {
    /// Probability, 0 to 1.
    pub p: f64,
    /// Additional delay of such a packet, in nanoseconds.
    pub extra_ns: u64,
}

/// Packets in which bits are flipped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Corruption {
    /// Probability that a packet is hit, 0 to 1.
    pub p: f64,
    /// A packet that is hit has 1 to this many different bits flipped; 1 to 64.
    pub max_bits: u32,
}

impl Default for Corruption {
    fn default() -> Self {
        Corruption { p: 0.0, max_bits: 1 }
    }
}

/// Settings of a link. The default is perfect: infinitely fast, without delay or damage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkConfig {
    /// Rate in bits per second, 1 to 10^13; `None` is infinite, unless there are `opportunities`.
    pub rate_bps: Option<u64>,
    /// Delivery opportunities, in the place of a rate.
    pub opportunities: Option<Opportunities>,
    /// Buffers before the queue, in which packets wait for the router; `None`: it takes no time.
    pub receive: Option<Receive>,
    /// Limit of the queue.
    pub buffer: Buffer,
    /// Which packets go when the queue is full, or before.
    pub queue: Discipline,
    /// Propagation delay in nanoseconds, at most an hour.
    pub delay_ns: u64,
    /// Variation of the delay.
    pub jitter: Jitter,
    /// Loss on the wire.
    pub loss: Loss,
    /// Probability that a packet arrives twice, 0 to 1.
    pub duplicate: f64,
    /// Packets held back.
    pub reorder: Reordering,
    /// Packets damaged.
    pub corrupt: Corruption,
    /// Bytes that each packet costs beyond its own, as 28 for IPv4 and UDP headers.
    pub overhead_bytes: u32,
    /// Framing round each packet, overhead included; it takes time on the wire but no buffer.
    pub framing: Framing,
    /// Compression of packets' headers; what is in the buffer is not compressed yet.
    pub compression: Compression,
    /// Biggest packet that passes, overhead included; bigger ones vanish. `None` is any size.
    pub mtu_bytes: Option<u32>,
    /// Queue above which packets that can be marked (ECN, RFC 3168) are; `Unlimited` marks none.
    pub ecn_threshold: Buffer,
    /// The wire carries packets. If not, they queue and depart as ever, and are lost.
    pub up: bool,
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig {
            rate_bps: None,
            opportunities: None,
            receive: None,
            buffer: Buffer::Unlimited,
            queue: Discipline::DropTail,
            delay_ns: 0,
            jitter: Jitter::default(),
            loss: Loss::None,
            duplicate: 0.0,
            reorder: Reordering::default(),
            corrupt: Corruption::default(),
            overhead_bytes: 0,
            framing: Framing::None,
            compression: Compression::Off,
            mtu_bytes: None,
            ecn_threshold: Buffer::Unlimited,
            up: true,
        }
    }
}

impl LinkConfig {
    /// Has the trace read that it names, as [`PathConfig::resolve`](crate::PathConfig::resolve)
    /// does.
    ///
    /// # Errors
    /// As `read` has it; the error names the trace.
    pub fn resolve<E: fmt::Display>(
        &mut self,
        read: impl FnMut(&str) -> Result<Arc<Trace>, E>,
    ) -> Result<(), SpecError> {
        self.opportunities.as_mut().map_or(Ok(()), |opportunities| opportunities.resolve(read))
    }

    /// The rate in bits per second, in the mean where it varies; `None` is infinite.
    ///
    /// # Errors
    /// The trace that it names has not been read.
    pub fn mean_rate_bps(&self) -> Result<Option<u64>, SpecError> {
        match &self.opportunities {
            Some(opportunities) => Ok(Some(opportunities.trace()?.mean_rate_bps())),
            None => Ok(self.rate_bps),
        }
    }

    /// Supply of the server from `now_ns` on.
    pub(crate) fn supply(&self, now_ns: u64) -> Result<Supply, SpecError> {
        if let Some(opportunities) = &self.opportunities {
            return Ok(Supply::Opportunities(Playback::new(opportunities.trace()?, now_ns)));
        }
        Ok(self.rate_bps.map_or(Supply::Infinite, Supply::Rate))
    }

    /// Checks every value against its range.
    ///
    /// # Errors
    /// The first value out of range, by its key in the text form, with the range.
    pub fn validate(&self) -> Result<(), SpecError> {
        if let Some(rate_bps) = self.rate_bps {
            between("rate", "rate in bit/s", rate_bps, 1, MAX_RATE_BPS)?;
        }
        if let Some(opportunities) = &self.opportunities {
            if self.rate_bps.is_some() {
                return Err(SpecError::new("rate", "give a rate or delivery opportunities, not both"));
            }
            opportunities.check()?;
        }
        self.receive.map_or(Ok(()), Receive::check)?;
        check_buffer("buffer", self.buffer)?;
        self.queue.check()?;
        check_buffer("ecn", self.ecn_threshold)?;
        check_delay("delay", self.delay_ns)?;
        check_delay("jitter", self.jitter.max_ns)?;
        check_loss(self.loss)?;
        check_probability("duplicate", "probability", self.duplicate)?;
        check_probability("reorder", "probability", self.reorder.p)?;
        check_delay("reorder", self.reorder.extra_ns)?;
        check_probability("corrupt", "probability", self.corrupt.p)?;
        between("corrupt", "number of bits", self.corrupt.max_bits.into(), 1, MAX_FLIPPED_BITS.into())?;
        between("overhead", "overhead in bytes", self.overhead_bytes.into(), 0, 65_535)?;
        self.compression.check()?;
        if let Some(mtu_bytes) = self.mtu_bytes {
            between("mtu", "MTU in bytes", mtu_bytes.into(), 1, u32::MAX.into())?;
        }
        Ok(())
    }
}

pub(crate) fn between(key: &str, what: &str, value: u64, low: u64, high: u64) -> Result<(), SpecError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(SpecError::new(key, format!("{what} must be between {low} and {high}, not {value}")))
}

fn check_buffer(key: &str, buffer: Buffer) -> Result<(), SpecError> {
    match buffer {
        Buffer::Packets(0) | Buffer::Bytes(0) if key == "buffer" => {
            Err(SpecError::new(key, "must hold at least one packet or byte"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_delay(key: &str, delay_ns: u64) -> Result<(), SpecError> {
    if delay_ns <= MAX_DELAY_NS {
        return Ok(());
    }
    Err(SpecError::new(key, "must be at most an hour"))
}

fn check_probability(key: &str, what: &str, p: f64) -> Result<(), SpecError> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(SpecError::new(key, format!("{what} must be between 0 and 1")))
}

fn check_loss(loss: Loss) -> Result<(), SpecError> {
    match loss {
        Loss::None | Loss::Places { .. } => Ok(()),
        Loss::Random { p } => check_probability("loss", "probability", p),
        Loss::GilbertElliott { loss, burst } => {
            check_probability("loss", "mean loss", loss)?;
            if !(burst >= 1.0 && burst.is_finite()) {
                return Err(SpecError::new("loss", "mean burst must be at least 1 packet"));
            }
            if loss >= 1.0 {
                return Err(SpecError::new("loss", "mean loss must be below 1 for bursts; use `down`"));
            }
            // The chain must be able to enter the bad state often enough: p(good->bad) <= 1.
            let shortest = loss / (1.0 - loss);
            if shortest > burst {
                let reason = format!("a mean loss of {loss} needs a mean burst of at least {shortest:.2}");
                return Err(SpecError::new("loss", reason));
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut LinkConfig)) -> String {
        let mut config = LinkConfig::default();
        change(&mut config);
        config.validate().map_or_else(|e| e.to_string(), |()| "accepted".into())
    }

    #[test]
    fn the_perfect_link_is_valid() {
        assert_eq!(LinkConfig::default().validate(), Ok(()));
    }

    #[test]
    fn each_value_has_its_range() {
        let cases = [
            (
                refused(|c| c.rate_bps = Some(0)),
                "rate: rate in bit/s must be between 1 and 10000000000000, not 0",
            ),
            (
                refused(|c| {
                    c.rate_bps = Some(1);
                    c.opportunities = "trace:x".to_string().try_into().ok();
                }),
                "rate: give a rate or delivery opportunities, not both",
            ),
            (
                refused(|c| c.receive = Some(Receive { buffers: 0, time_ns: 1 })),
                "receive: number of buffers must be between 1 and 65536, not 0",
            ),
            (
                refused(|c| c.receive = Some(Receive { buffers: 1, time_ns: MAX_DELAY_NS + 1 })),
                "receive: must be at most an hour",
            ),
            (refused(|c| c.buffer = Buffer::Packets(0)), "buffer: must hold at least one packet or byte"),
            (refused(|c| c.buffer = Buffer::Bytes(0)), "buffer: must hold at least one packet or byte"),
            (refused(|c| c.delay_ns = MAX_DELAY_NS + 1), "delay: must be at most an hour"),
            (refused(|c| c.jitter.max_ns = u64::MAX), "jitter: must be at most an hour"),
            (refused(|c| c.loss = Loss::Random { p: -0.1 }), "loss: probability must be between 0 and 1"),
            (refused(|c| c.loss = Loss::Random { p: f64::NAN }), "loss: probability must be between 0 and 1"),
            (
                refused(|c| c.loss = Loss::GilbertElliott { loss: 1.5, burst: 4.0 }),
                "loss: mean loss must be between 0 and 1",
            ),
            (
                refused(|c| c.loss = Loss::GilbertElliott { loss: 0.1, burst: 0.5 }),
                "loss: mean burst must be at least 1 packet",
            ),
            (
                refused(|c| c.loss = Loss::GilbertElliott { loss: 1.0, burst: 5.0 }),
                "loss: mean loss must be below 1 for bursts; use `down`",
            ),
            (
                refused(|c| c.loss = Loss::GilbertElliott { loss: 0.8, burst: 2.0 }),
                "loss: a mean loss of 0.8 needs a mean burst of at least 4.00",
            ),
            (refused(|c| c.duplicate = 2.0), "duplicate: probability must be between 0 and 1"),
            (refused(|c| c.reorder.p = 1.1), "reorder: probability must be between 0 and 1"),
            (refused(|c| c.reorder.extra_ns = u64::MAX), "reorder: must be at most an hour"),
            (refused(|c| c.corrupt.p = -1.0), "corrupt: probability must be between 0 and 1"),
            (refused(|c| c.corrupt.max_bits = 0), "corrupt: number of bits must be between 1 and 64, not 0"),
            (
                refused(|c| c.overhead_bytes = 65_536),
                "overhead: overhead in bytes must be between 0 and 65535, not 65536",
            ),
            (
                refused(|c| c.compression = Compression::Vj { slots: 0 }),
                "compress: number of slots must be between 1 and 256, not 0",
            ),
            (refused(|c| c.mtu_bytes = Some(0)), "mtu: MTU in bytes must be between 1 and 4294967295, not 0"),
        ];
        for (got, wanted) in cases {
            assert_eq!(got, wanted);
        }
    }

    #[test]
    fn toml_names_only_what_differs_and_refuses_unknown_keys() {
        let text = "rate_bps = 50_000_000\nbuffer = { packets = 64 }\nloss = { random = { p = 0.01 } }\n";
        let config: LinkConfig = toml::from_str(text).unwrap();
        assert_eq!(config.rate_bps, Some(50_000_000));
        assert_eq!(config.buffer, Buffer::Packets(64));
        assert_eq!(config.loss, Loss::Random { p: 0.01 });
        assert!(config.up);
        assert!(toml::from_str::<LinkConfig>("rate = 5").is_err());
    }
}
