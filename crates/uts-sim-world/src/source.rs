//! Background traffic: sources that send datagrams beside the flows, whatever becomes of them.
//!
//! A source has a host of its own behind the node where it enters the network, and its sink has one
//! behind the node where it leaves. What it sends follows from the case's seed and its place in the
//! case alone: every transport meets the same arrivals.

use super::case::{Plan, SimCase, SimError};
use super::world::{Port, World};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::net::SocketAddrV4;
use uts_engine::Ecn;
use uts_functions::Time;
use uts_sim::network::{AppId, seed_of};
use uts_sim::topology::{Node, Topology};
use uts_sim::traffic::{Pattern, Sink, Source, Spell};
use uts_units::text;

/// Headers of IPv4 and UDP, in bytes.
const HEADER_BYTES: u64 = 28;
/// The longest IPv4 packet, in bytes.
const PACKET_BYTES_MAX: u64 = 65_535;
/// Most packets of a source in a second.
const PACKETS_PER_S_MAX: f64 = 10_000_000.0;
/// The longest spell or silence in the mean.
const SPELL_MAX: Duration = Duration::from_secs(3600);
/// Most sources that are one together.
const SOURCES_MAX: u32 = 1000;
/// Number of sources if it is not said.
const SOURCES: u32 = 32;
/// Where the sink listens: the port of discard (RFC 863).
const SINK_PORT: u16 = 9;
/// Where the ports of sources begin.
const SOURCE_PORT: u16 = 1024;
/// Sources draw from other seeds than paths, which count from 0.
const SEEDS_FROM: u64 = 1 << 32;

/// A source of a case, and where its packets go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimSource {
    /// Its name, for messages.
    pub name: String,
    /// The node at which its packets enter the network.
    pub from: String,
    /// The node at which they leave it.
    pub to: String,
    /// Traffic that it sends.
    pub spec: SourceSpec,
}

/// Traffic of a source, as a table of text has it:
/// `{ kind = "on-off", rate = "2mbit", on = "100ms", off = "300ms", packet = "1000B" }`.
///
/// Spells and silences are for the kinds that have them; [`SourceSpec::validate`] says which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// Its pattern.
    pub kind: SourceKind,
    /// The mean rate in bits per second, IP headers included, from 1 on.
    #[serde(rename = "rate", with = "text::rate")]
    pub rate_bps: u64,
    /// Length of each packet in bytes, 28 of headers included; 28 to 65,535.
    #[serde(rename = "packet", with = "text::bytes", default = "packet_bytes")]
    pub packet_bytes: u64,
    /// When it begins.
    #[serde(with = "text::duration", default)]
    pub start: Duration,
    /// When it ends; with the run if it is not said.
    #[serde(with = "text::duration_option", default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Duration>,
    /// The mean length of a spell; above 0, an hour at most.
    #[serde(with = "text::duration_option", default, skip_serializing_if = "Option::is_none")]
    pub on: Option<Duration>,
    /// The mean length of a silence; above 0, an hour at most.
    #[serde(with = "text::duration_option", default, skip_serializing_if = "Option::is_none")]
    pub off: Option<Duration>,
    /// The shape of Pareto's distribution, 1.01 to 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<f64>,
    /// The Hurst parameter of all sources together, 0.51 to 0.99.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hurst: Option<f64>,
    /// Of how many sources it consists, 2 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<u32>,
    /// Nodes may fragment its packets. If not, a packet that is too long for a path is lost.
    #[serde(default)]
    pub fragments: bool,
    /// Mark of its packets; none if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<Ect>,
}

fn packet_bytes() -> u64 {
    1000
}

/// The pattern of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// Evenly, one packet after another.
    Constant,
    /// A Poisson process.
    Poisson,
    /// In spells of exponentially distributed length, with silence of such a length between.
    OnOff,
    /// The same with Pareto's distribution.
    Pareto,
    /// Many of those at once, which are self-similar together (Willinger, Taqqu, Sherman and Wilson
    /// 1997).
    SelfSimilar,
}

/// Mark of a source's packets (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ect {
    /// ECN-capable transport, codepoint 0.
    Ect0,
    /// ECN-capable transport, codepoint 1.
    Ect1,
}

/// Counts of a source's packets in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceResult {
    /// Its name.
    pub name: String,
    /// Length of each packet in bytes, headers included.
    pub packet_bytes: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that have arrived whole.
    pub received: u64,
}

impl SourceKind {
    /// As text has it.
    pub fn name(self) -> &'static str {
        match self {
            SourceKind::Constant => "constant",
            SourceKind::Poisson => "poisson",
            SourceKind::OnOff => "on-off",
            SourceKind::Pareto => "pareto",
            SourceKind::SelfSimilar => "self-similar",
        }
    }

    fn has_spells(self) -> bool {
        matches!(self, SourceKind::OnOff | SourceKind::Pareto | SourceKind::SelfSimilar)
    }
}

impl SourceSpec {
    /// Checks that it has what its kind wants and nothing else, each value in range.
    ///
    /// # Errors
    /// What is wrong, in one line, beginning with the key.
    pub fn validate(&self) -> Result<(), String> {
        self.pattern().map(|_| ())
    }

    /// Number of sources that it is, and the pattern in which each of them sends.
    fn pattern(&self) -> Result<(u32, Pattern), String> {
        let kind = self.kind;
        let within = |key: &str, value: f64, least: f64, most: f64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(format!("{key}: {value} is not between {least} and {most}")),
        };
        within("packet", self.packet_bytes as f64, HEADER_BYTES as f64, PACKET_BYTES_MAX as f64)?;
        if self.rate_bps == 0 {
            return Err("rate: must be above 0".into());
        }
        let packets_per_s = self.packets_per_s();
        if packets_per_s > PACKETS_PER_S_MAX {
            return Err(format!("rate: is more than {PACKETS_PER_S_MAX} packets a second"));
        }
        if self.stop.is_some_and(|stop| stop <= self.start) {
            return Err("stop: is not after `start`".into());
        }
        // A key that another kind wants.
        let foreign = |key: &str, is_there: bool, is_wanted: bool, what: &str| match (is_there, is_wanted) {
            (true, false) => Err(format!("{key}: is not for `{}`, but for {what}", kind.name())),
            (false, true) => Err(format!("{key}: is missing; kind `{}` wants it", kind.name())),
            _ => Ok(()),
        };
        const SPELLS: &str = "on-off, pareto and self-similar";
        let (is_pareto, is_many) = (kind == SourceKind::Pareto, kind == SourceKind::SelfSimilar);
        foreign("on", self.on.is_some(), kind.has_spells(), SPELLS)?;
        foreign("off", self.off.is_some(), kind.has_spells(), SPELLS)?;
        foreign("shape", self.shape.is_some(), is_pareto, "pareto")?;
        foreign("hurst", self.hurst.is_some(), is_many, "self-similar")?;
        foreign("sources", self.sources.is_some(), is_many && self.sources.is_some(), "self-similar")?;
        within("shape", self.shape.unwrap_or(2.0), 1.01, 10.0)?;
        within("hurst", self.hurst.unwrap_or(0.6), 0.51, 0.99)?;
        let sources = if is_many { self.sources.unwrap_or(SOURCES) } else { 1 };
        if is_many {
            within("sources", f64::from(sources), 2.0, f64::from(SOURCES_MAX))?;
        }
        let second = Duration::from_secs(1);
        match kind {
            SourceKind::Constant => {
                // Exact in the long run: so many bits are so many packets.
                let per_packet = 8 * self.packet_bytes;
                Ok((1, Pattern::Constant { packets: self.rate_bps, per: second * per_packet as u32 }))
            }
            SourceKind::Poisson => {
                Ok((1, Pattern::Poisson { mean: Duration::from_secs_f64(1.0 / packets_per_s) }))
            }
            SourceKind::OnOff | SourceKind::Pareto | SourceKind::SelfSimilar => {
                Ok((sources, self.spells(sources)?))
            }
        }
    }

    fn packets_per_s(&self) -> f64 {
        self.rate_bps as f64 / (8 * self.packet_bytes) as f64
    }

    /// The pattern of each of so many sources. From the rate follows how many packets a spell has,
    /// and from those the gap between two.
    fn spells(&self, sources: u32) -> Result<Pattern, String> {
        let (on, off) = (self.on.unwrap_or_default(), self.off.unwrap_or_default());
        for (key, mean) in [("on", on), ("off", off)] {
            if mean.is_zero() || mean > SPELL_MAX {
                return Err(format!("{key}: must be above 0, and an hour at most"));
            }
        }
        let shape = match self.hurst {
            Some(hurst) => Some(3.0 - 2.0 * hurst),
            None => self.shape,
        };
        let spell = |mean| match shape {
            Some(shape) => Spell::Pareto { mean, shape },
            None => Spell::Exponential { mean },
        };
        let cycle_s = (on + off).as_secs_f64();
        let packets = self.packets_per_s() * cycle_s / f64::from(sources);
        if packets < 1.001 {
            let least_bps = self.rate_bps as f64 * 1.001 / packets;
            return Err(format!(
                "rate: is too low; each spell has a packet at least, which makes {:.0} bit/s",
                least_bps.ceil()
            ));
        }
        let gap = spell(on).gap(packets);
        if gap.is_zero() {
            return Err("on: is too short for so many packets in a spell".into());
        }
        Ok(Pattern::OnOff { gap, on: spell(on), off: spell(off) })
    }

    /// The sources that it is, sending to a sink.
    ///
    /// # Errors
    /// What is wrong with it, as [`SourceSpec::validate`] says.
    pub fn build(&self, to: SocketAddrV4, seed: u64) -> Result<Vec<Source>, String> {
        let (count, pattern) = self.pattern()?;
        let len = u16::try_from(self.packet_bytes - HEADER_BYTES).unwrap_or(u16::MAX);
        let start = Time::ZERO + self.start;
        let source = |n: u32| {
            let mut source = Source::new(to, len, pattern.clone(), start, seed_of(seed, 1 + u64::from(n)));
            source = source.steady().with_end(self.stop.map_or(Time::NEVER, |stop| Time::ZERO + stop));
            if self.fragments {
                source = source.with_fragments();
            }
            match self.ecn {
                Some(Ect::Ect0) => source.with_ecn(Ecn::Ect0),
                Some(Ect::Ect1) => source.with_ecn(Ecn::Ect1),
                None => source,
            }
        };
        Ok((0..count).map(source).collect())
    }
}

/// The hosts of a source: its own, and that of its sink.
pub(super) type SourceHosts = [Node; 2];

/// Applications in the world that stand for a source.
struct Placed {
    name: String,
    packet_bytes: u64,
    sources: Vec<AppId>,
    sink: AppId,
}

/// The sources of a case.
pub(super) struct Sources(Vec<Placed>);

impl Sources {
    /// Puts the sources of a case into the world.
    pub fn begin(case: &SimCase, plan: &Plan, world: &World) -> Result<Self, SimError> {
        let mut all = Vec::new();
        for (n, (source, [from, to])) in case.sources.iter().zip(&plan.sources).enumerate() {
            let wrong = |why: String| SimError::Case(format!("source {}: {why}", source.name));
            let sink_at = SocketAddrV4::new(Topology::address(*to), SINK_PORT);
            let sink = world.attach_at(*to, sink_at, Port::Sink(Box::new(Sink::new()))).map_err(wrong)?;
            let built = source.spec.build(sink_at, seed_of(case.seed, SEEDS_FROM + n as u64));
            let mut sources = Vec::new();
            for (port, one) in (SOURCE_PORT..).zip(built.map_err(wrong)?) {
                let address = SocketAddrV4::new(Topology::address(*from), port);
                sources.push(world.attach_at(*from, address, Port::Source(Box::new(one))).map_err(wrong)?);
            }
            let packet_bytes = source.spec.packet_bytes;
            all.push(Placed { name: source.name.clone(), packet_bytes, sources, sink });
        }
        Ok(Sources(all))
    }

    /// Counts of the packets that they have sent, and that have arrived.
    pub fn results(&self, world: &World) -> Vec<SourceResult> {
        let network = world.network.borrow();
        let result = |placed: &Placed| {
            let sent = placed.sources.iter().map(|app| match network.app(*app) {
                Port::Source(source) => source.sent(),
                _ => 0,
            });
            let received = match network.app(placed.sink) {
                Port::Sink(sink) => sink.sources().map(|(_, received)| received.packets).sum(),
                _ => 0,
            };
            let (name, packet_bytes) = (placed.name.clone(), placed.packet_bytes);
            SourceResult { name, packet_bytes, sent: sent.sum(), received }
        };
        self.0.iter().map(result).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_sim::network::Application;

    fn spec(json: &str) -> SourceSpec {
        serde_json::from_str(json).unwrap_or_else(|e| panic!("{json}: {e}"))
    }

    /// Packets in each bin of 100 ms, of all sources together.
    fn bins(spec: &SourceSpec, seed: u64, count: usize) -> Vec<f64> {
        let mut bins = vec![0.0; count];
        for mut source in spec.build("10.0.0.2:9".parse().expect("an address"), seed).expect("valid") {
            while let Some(at) = source.poll_timeout() {
                let Some(bin) = bins.get_mut((at.as_nanos() / 100_000_000) as usize) else { break };
                *bin += 1.0;
                source.poll_transmit(at).expect("due");
            }
        }
        bins
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn each_kind_has_the_rate_that_was_asked_for() {
        for (json, tolerance) in [
            (r#"{"kind": "constant", "rate": "1mbit"}"#, 1e-4),
            (r#"{"kind": "poisson", "rate": "1mbit"}"#, 0.01),
            (r#"{"kind": "on-off", "rate": "1mbit", "on": "50ms", "off": "150ms"}"#, 0.01),
            (r#"{"kind": "pareto", "rate": "1mbit", "on": "20ms", "off": "60ms", "shape": 1.8}"#, 0.02),
            (
                r#"{"kind": "self-similar", "rate": "1mbit", "on": "200ms", "off": "500ms", "hurst": 0.7,
                    "sources": 20}"#,
                0.02,
            ),
        ] {
            // 125 packets of 1000 bytes in each second.
            let of_seeds: Vec<f64> = (0..8).map(|seed| mean(&bins(&spec(json), seed, 30_000))).collect();
            let found = mean(&of_seeds) * 10.0;
            println!("{json}: {found:.2} packets a second, expected 125");
            assert!((found / 125.0 - 1.0).abs() < tolerance, "seeds 0 to 7, {json}: {found}, not 125");
        }
    }

    /// The share of time in which a source sends is on / (on + off), as long as the gaps within a
    /// spell are short against it.
    #[test]
    fn a_source_sends_for_its_share_of_the_time() {
        let json = r#"{"kind": "on-off", "rate": "8mbit", "on": "2s", "off": "6s"}"#;
        let bins = bins(&spec(json), 5, 200_000);
        let (busy, full) =
            (bins.iter().filter(|n| **n > 0.0).count(), bins.iter().copied().fold(0.0, f64::max));
        let share = busy as f64 / bins.len() as f64;
        println!("{share:.3} of the bins, {full} packets in a full one");
        // A bin that a spell only touches counts as well: one more for each cycle of 80.
        assert!((share - 0.25 - 1.0 / 80.0).abs() < 0.01, "seed 5: {share}");
        assert!((full - 400.0).abs() <= 5.0, "seed 5: four times the mean rate within a spell, not {full}");
    }

    /// By the variance of means over m bins, which falls as m^(2H - 2) (Leland, Taqqu, Willinger
    /// and Wilson 1994).
    #[test]
    fn the_hurst_parameter_is_that_of_the_file() {
        for hurst in [0.7, 0.8, 0.9] {
            let json = format!(
                r#"{{"kind": "self-similar", "rate": "4mbit", "on": "100ms", "off": "100ms",
                    "hurst": {hurst}, "sources": 40}}"#
            );
            let bins = bins(&spec(&json), 9, 1 << 16);
            let points = (5..=10).map(|k| {
                let means: Vec<f64> = bins.chunks_exact(1 << k).map(mean).collect();
                let centre = mean(&means);
                let squares: Vec<f64> = means.iter().map(|value| (value - centre).powi(2)).collect();
                (f64::from(k), mean(&squares).log2())
            });
            let points: Vec<(f64, f64)> = points.collect();
            let of = |axis: fn(&(f64, f64)) -> f64| points.iter().map(axis).collect::<Vec<_>>();
            let (x, y) = (mean(&of(|p| p.0)), mean(&of(|p| p.1)));
            let slope = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>()
                / points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>();
            let found = 1.0 + slope / 2.0;
            println!("H = {found:.2}, expected {hurst:.2}");
            assert!((found - hurst).abs() < 0.1, "seed 9: {found}, not {hurst}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_said_with_its_key() {
        let spells = r#""on": "100ms", "off": "100ms""#;
        for (json, expected) in [
            (r#"{"kind": "poisson", "rate": 0}"#.to_owned(), "rate: must be above 0"),
            (r#"{"kind": "poisson", "rate": "99gbit", "packet": 28}"#.into(), "rate: is more than 10000000"),
            (
                r#"{"kind": "poisson", "rate": "1mbit", "packet": 20}"#.into(),
                "packet: 20 is not between 28 and 65535",
            ),
            (
                r#"{"kind": "poisson", "rate": "1mbit", "on": "1s"}"#.into(),
                "on: is not for `poisson`, but for on-off, pareto and self-similar",
            ),
            (
                r#"{"kind": "on-off", "rate": "1mbit", "on": "1s"}"#.into(),
                "off: is missing; kind `on-off` wants it",
            ),
            (
                r#"{"kind": "on-off", "rate": "1mbit", "on": "0s", "off": "1s"}"#.into(),
                "on: must be above 0, and an hour at most",
            ),
            (
                format!(r#"{{"kind": "pareto", "rate": "1mbit", {spells}}}"#),
                "shape: is missing; kind `pareto` wants it",
            ),
            (
                format!(r#"{{"kind": "pareto", "rate": "1mbit", "shape": 1.0, {spells}}}"#),
                "shape: 1 is not between 1.01 and 10",
            ),
            (
                format!(r#"{{"kind": "self-similar", "rate": "1mbit", "hurst": 1.2, {spells}}}"#),
                "hurst: 1.2 is not between 0.51 and 0.99",
            ),
            (
                format!(
                    r#"{{"kind": "self-similar", "rate": "1mbit", "hurst": 0.8, "sources": 1, {spells}}}"#
                ),
                "sources: 1 is not between 2 and 1000",
            ),
            (
                format!(r#"{{"kind": "pareto", "rate": "1mbit", "shape": 1.5, "sources": 9, {spells}}}"#),
                "sources: is not for `pareto`, but for self-similar",
            ),
            (
                format!(r#"{{"kind": "on-off", "rate": "10kbit", {spells}}}"#),
                "rate: is too low; each spell has a packet at least, which makes 40040 bit/s",
            ),
            (
                r#"{"kind": "constant", "rate": "1mbit", "start": "5s", "stop": "5s"}"#.into(),
                "stop: is not after `start`",
            ),
        ] {
            let error = spec(&json).validate().expect_err(&json);
            assert!(error.starts_with(expected), "{json}: {error}");
        }
    }
}
