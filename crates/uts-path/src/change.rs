//! Changes to a link: some of its settings, in the text form that command lines use.

use crate::compression::Compression;
use crate::config::{Buffer, Corruption, Jitter, JitterShape, LinkConfig, Loss, Reordering};
use crate::error::SpecError;
use crate::framing::Framing;
use crate::parse::format_duration;
use crate::queue::Discipline;
use crate::receive::Receive;
use crate::trace::{Opportunities, Trace};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use uts_units::show;

/// One setting of a link; see [`LinkConfig`] for meanings and ranges.
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    /// `rate=50mbit`, `rate=inf`: bits per second.
    Rate(Option<u64>),
    /// `rate=trace:FILE` (delivery opportunities in Mahimahi's format; see
    /// [`PathConfig::resolve`](crate::PathConfig::resolve)), `rate=cellular:12mbit,7` (highest
    /// rate, seed).
    Opportunities(Opportunities),
    /// `receive=8p,100us` (buffers, time for each packet), `receive=off`.
    Receive(Option<Receive>),
    /// `buffer=64p`, `buffer=256kB`, `buffer=inf`.
    Buffer(Buffer),
    /// `queue=droptail`, `row:N`, `random`, `red:MIN,MAX,MAX_P[,WEIGHT][,gentle][,noecn]` as in
    /// `red:5p,15p,0.1`, `codel[:TARGET,INTERVAL][,noecn]`, `fq_codel`, `pie[:TARGET][,noecn]`,
    /// `police:RATE,BURST`.
    Queue(Discipline),
    /// `delay=20ms`: nanoseconds.
    Delay(u64),
    /// `jitter=2ms`, `jitter=2ms,bell`, `jitter=2ms,uniform,reorder`.
    Jitter(Jitter),
    /// `loss=0`, `loss=0.01` or `loss=1%`, `loss=ge:0.05,4` (mean loss, mean burst in packets),
    /// `loss=places:1,3` (the first and the third from now on).
    Loss(Loss),
    /// `duplicate=0.001`.
    Duplicate(f64),
    /// `reorder=0.01,3ms`.
    Reorder(Reordering),
    /// `corrupt=0.001`, `corrupt=0.001,8` (up to this many bits).
    Corrupt(Corruption),
    /// `overhead=28`: bytes per packet.
    Overhead(u32),
    /// `framing=none`, `ethernet`, `slip`, `aal5`, `ppp`, `ppp:0xffffffff` (with its ACCM).
    Framing(Framing),
    /// `compress=off`, `vj` (TCP, RFC 1144), `rx` (Rx as well), `rx:64,typed` (slots, and a type
    /// before each frame, for IPv6).
    Compression(Compression),
    /// `mtu=1400`, `mtu=inf`: bytes, overhead included.
    Mtu(Option<u32>),
    /// `ecn=20p`, `ecn=30kB`, `ecn=off`.
    EcnThreshold(Buffer),
    /// `up`, `down`.
    Up(bool),
}

impl Setting {
    pub(crate) fn apply_to(&self, config: &mut LinkConfig) {
        match self.clone() {
            Setting::Rate(rate_bps) => (config.rate_bps, config.opportunities) = (rate_bps, None),
            Setting::Opportunities(from) => (config.rate_bps, config.opportunities) = (None, Some(from)),
            Setting::Receive(receive) => config.receive = receive,
            Setting::Buffer(buffer) => config.buffer = buffer,
            Setting::Queue(queue) => config.queue = queue,
            Setting::Delay(delay_ns) => config.delay_ns = delay_ns,
            Setting::Jitter(jitter) => config.jitter = jitter,
            Setting::Loss(loss) => config.loss = loss,
            Setting::Duplicate(p) => config.duplicate = p,
            Setting::Reorder(reorder) => config.reorder = reorder,
            Setting::Corrupt(corrupt) => config.corrupt = corrupt,
            Setting::Overhead(bytes) => config.overhead_bytes = bytes,
            Setting::Framing(framing) => config.framing = framing,
            Setting::Compression(compression) => config.compression = compression,
            Setting::Mtu(mtu_bytes) => config.mtu_bytes = mtu_bytes,
            Setting::EcnThreshold(threshold) => config.ecn_threshold = threshold,
            Setting::Up(up) => config.up = up,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Rate(None) => write!(f, "rate=inf"),
            Setting::Rate(Some(rate_bps)) => write!(f, "rate={}", show::path_rate(*rate_bps)),
            Setting::Opportunities(from) => write!(f, "rate={from}"),
            Setting::Receive(None) => write!(f, "receive=off"),
            Setting::Receive(Some(receive)) => write!(f, "receive={receive}"),
            Setting::Buffer(buffer) => write!(f, "buffer={}", amount(*buffer, "inf")),
            Setting::Queue(queue) => write!(f, "queue={queue}"),
            Setting::Delay(delay_ns) => write!(f, "delay={}", format_duration(*delay_ns)),
            Setting::Jitter(jitter) => {
                let shape = if jitter.shape == JitterShape::Bell { ",bell" } else { "" };
                let reorder = if jitter.reorder { ",reorder" } else { "" };
                write!(f, "jitter={}{shape}{reorder}", format_duration(jitter.max_ns))
            }
            Setting::Loss(Loss::None) => write!(f, "loss=0"),
            Setting::Loss(Loss::Random { p }) => write!(f, "loss={p}"),
            Setting::Loss(Loss::GilbertElliott { loss, burst }) => write!(f, "loss=ge:{loss},{burst}"),
            Setting::Loss(Loss::Places { bits }) => {
                let places = (0..u64::BITS).filter(|n| bits >> n & 1 == 1).map(|n| (n + 1).to_string());
                write!(f, "loss=places:{}", places.collect::<Vec<_>>().join(","))
            }
            Setting::Duplicate(p) => write!(f, "duplicate={p}"),
            Setting::Reorder(r) => write!(f, "reorder={},{}", r.p, format_duration(r.extra_ns)),
            Setting::Corrupt(c) if c.max_bits == 1 => write!(f, "corrupt={}", c.p),
            Setting::Corrupt(c) => write!(f, "corrupt={},{}", c.p, c.max_bits),
            Setting::Overhead(bytes) => write!(f, "overhead={bytes}"),
            Setting::Framing(framing) => write!(f, "framing={framing}"),
            Setting::Compression(compression) => write!(f, "compress={compression}"),
            Setting::Mtu(None) => write!(f, "mtu=inf"),
            Setting::Mtu(Some(bytes)) => write!(f, "mtu={bytes}"),
            Setting::EcnThreshold(threshold) => write!(f, "ecn={}", amount(*threshold, "off")),
            Setting::Up(up) => f.write_str(if *up { "up" } else { "down" }),
        }
    }
}

pub(crate) fn amount(buffer: Buffer, unlimited: &str) -> String {
    match buffer {
        Buffer::Packets(packets) => format!("{packets}p"),
        Buffer::Bytes(bytes) => show::size(bytes),
        Buffer::Unlimited => unlimited.into(),
    }
}

/// Settings that are to be changed, as `loss=0 rate=20mbit`; the last one of a kind counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Change {
    settings: Vec<Setting>,
}

impl Change {
    /// Makes a change of these settings.
    ///
    /// # Errors
    /// A value is out of range.
    pub fn new(settings: Vec<Setting>) -> Result<Self, SpecError> {
        let change = Change { settings };
        let mut config = LinkConfig::default();
        change.apply_to(&mut config);
        config.validate()?;
        Ok(change)
    }

    /// The settings, in the order given.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Has the traces read that it names, as [`PathConfig::resolve`](crate::PathConfig::resolve)
    /// does.
    ///
    /// # Errors
    /// As `read` has it; the error names the setting.
    pub fn resolve<E: fmt::Display>(
        &mut self,
        mut read: impl FnMut(&str) -> Result<Arc<Trace>, E>,
    ) -> Result<(), SpecError> {
        for setting in &mut self.settings {
            if let Setting::Opportunities(opportunities) = setting {
                opportunities.resolve(&mut read)?;
            }
        }
        Ok(())
    }

    /// The traces that it names and that have been read, with their names: its text has the names
    /// alone.
    pub fn traces(&self) -> impl Iterator<Item = (&str, &Arc<Trace>)> {
        self.settings.iter().filter_map(|setting| match setting {
            Setting::Opportunities(opportunities) => opportunities.file(),
            _ => None,
        })
    }

    /// Checks that the traces it names have been read.
    pub(crate) fn check_resolved(&self) -> Result<(), SpecError> {
        self.settings.iter().try_for_each(|setting| match setting {
            Setting::Opportunities(opportunities) => opportunities.check_resolved(),
            _ => Ok(()),
        })
    }

    pub(crate) fn apply_to(&self, config: &mut LinkConfig) {
        for setting in &self.settings {
            setting.apply_to(config);
        }
    }
}

impl LinkConfig {
    /// This link with some settings changed.
    ///
    /// # Errors
    /// A value is out of range.
    pub fn with(mut self, change: &Change) -> Result<Self, SpecError> {
        change.apply_to(&mut self);
        self.validate()?;
        Ok(self)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, setting) in self.settings.iter().enumerate() {
            let space = if position == 0 { "" } else { " " };
            write!(f, "{space}{setting}")?;
        }
        Ok(())
    }
}

impl From<Change> for String {
    fn from(change: Change) -> String {
        change.to_string()
    }
}

impl TryFrom<String> for Change {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}
