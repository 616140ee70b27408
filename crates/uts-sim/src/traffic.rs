//! Traffic without an engine: sources and sinks, to check links and routers by themselves and to
//! load a network.

pub use uts_traffic::spell::Spell;

use crate::network::Application;
use crate::packet::{Body, Datagram, Packet};
use core::time::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use uts_engine::Ecn;
use uts_functions::Time;
use uts_traffic::spell::exponential;

/// When a source sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Evenly: `packets` in every `per`; exact in the long run.
    Constant {
        /// Number of packets in this time, at least 1.
        packets: u64,
        /// In which time.
        per: Duration,
    },
    /// A Poisson process: the times between packets are exponentially distributed.
    Poisson {
        /// The mean time between two packets.
        mean: Duration,
    },
    /// Back to back at the rate of its interface, whatever becomes of it: a UDP sender without
    /// restraint.
    Greedy {
        /// The interface's rate in bits per second, at least 1.
        rate_bps: u64,
        /// Bytes that each packet costs beyond its payload.
        overhead_bytes: u32,
    },
    /// In spells, with silence between. Many such sources with Pareto's spells, of a shape below 2,
    /// are together self-similar, with a Hurst parameter of (3 - shape) / 2 (Willinger, Taqqu,
    /// Sherman and Wilson 1997).
    OnOff {
        /// Between two packets of a spell; above 0.
        gap: Duration,
        /// Length of a spell. Its first packet leaves as it begins.
        on: Spell,
        /// Length of a silence.
        off: Spell,
    },
    /// At these instants, in this order; one that has passed counts as now.
    At(Vec<Time>),
}

/// Sends datagrams of one size in a pattern. It keeps no copy of what it sent and answers nothing.
#[derive(Clone, Debug)]
pub struct Source {
    to: SocketAddr,
    len: u16,
    ecn: Option<Ecn>,
    pattern: Pattern,
    count: u64,
    start: Time,
    rng: ChaCha8Rng,
    /// Number of the next packet.
    number: u64,
    /// When it is due, in nanoseconds, with a fraction; infinite when no more follow.
    next: Instant,
    /// When the spell ends that the next packet is in.
    spell_end: Option<Time>,
    /// From here on nothing is sent.
    end: Time,
    may_fragment: bool,
}

/// The instant of a packet; Poisson arrivals are summed up with their fractions of a nanosecond.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Instant {
    at: Time,
    fraction_ns: f64,
}

impl Source {
    /// A source of datagrams of `len` bytes of UDP payload, from `start` on. All that is random
    /// follows from `seed`.
    pub fn new(to: SocketAddrV4, len: u16, pattern: Pattern, start: Time, seed: u64) -> Self {
        let first = Instant { at: start, fraction_ns: 0.0 };
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let (to, ecn) = (to.into(), None);
        let mut source = Source {
            to,
            len,
            ecn,
            pattern,
            count: u64::MAX,
            start,
            rng,
            number: 0,
            next: first,
            spell_end: None,
            end: Time::NEVER,
            may_fragment: false,
        };
        source.next = source.instant();
        source
    }

    /// Stops after this many datagrams.
    pub fn with_count(mut self, count: u64) -> Self {
        self.count = count;
        self
    }

    /// Sends nothing from this instant on.
    pub fn with_end(mut self, end: Time) -> Self {
        self.end = end;
        self
    }

    /// Lets a source that sends in spells begin as if it had done so for ever, at any point of a
    /// spell or of a silence. Its rate is then the same in the mean at all times, and many such
    /// sources do not begin together. Other patterns begin as they are.
    pub fn steady(mut self) -> Self {
        let Pattern::OnOff { gap, on, off } = self.pattern else { return self };
        let [on_s, off_s] = [on, off].map(|spell| spell.mean().as_secs_f64());
        let is_silent = self.rng.random::<f64>() * (on_s + off_s) >= on_s;
        let (length, over) = if is_silent { off } else { on }.draw_met(&mut self.rng);
        let mut at = self.start + (length - over);
        let mut spell_end = at;
        if is_silent {
            spell_end = at + on.draw(&mut self.rng);
        } else {
            let since_packet_ns = over.as_nanos() % gap.as_nanos().max(1);
            let next = self.start + gap.saturating_sub(Duration::from_nanos(since_packet_ns as u64));
            if next <= spell_end {
                at = next;
            } else {
                at = spell_end + off.draw(&mut self.rng);
                spell_end = at + on.draw(&mut self.rng);
            }
        }
        self.next = Instant { at, fraction_ns: 0.0 };
        self.spell_end = Some(spell_end);
        self
    }

    /// Permits nodes to fragment its datagrams.
    pub fn with_fragments(mut self) -> Self {
        self.may_fragment = true;
        self
    }

    /// Marks its datagrams for the network.
    pub fn with_ecn(mut self, ecn: Ecn) -> Self {
        self.ecn = Some(ecn);
        self
    }

    /// Number of datagrams that it has sent.
    pub fn sent(&self) -> u64 {
        self.number
    }

    fn next_at(&self) -> Option<Time> {
        (self.number < self.count && self.next.at < self.end).then_some(self.next.at)
    }

    /// When packet `self.number` is due.
    fn instant(&mut self) -> Instant {
        let n = u128::from(self.number);
        let even = |numerator: u128, denominator: u64| {
            let ns = u64::try_from(numerator / u128::from(denominator.max(1))).unwrap_or(u64::MAX);
            Instant { at: self.start + Duration::from_nanos(ns), fraction_ns: 0.0 }
        };
        match &self.pattern {
            Pattern::Constant { packets, per } => even(n * per.as_nanos(), *packets),
            Pattern::Greedy { rate_bps, overhead_bytes } => {
                let bits = 8 * (u128::from(self.len) + u128::from(*overhead_bytes));
                even(n * bits * 1_000_000_000, *rate_bps)
            }
            Pattern::Poisson { mean } => {
                let wait_ns = self.next.fraction_ns + exponential(&mut self.rng) * mean.as_nanos() as f64;
                let whole = libm::floor(wait_ns);
                let at = self.next.at + Duration::from_nanos(whole as u64);
                Instant { at, fraction_ns: wait_ns - whole }
            }
            Pattern::OnOff { gap, on, off } => {
                let next = self.next.at + *gap;
                let at = match self.spell_end {
                    Some(end) if next <= end => next,
                    // It begins with a spell.
                    None => self.start,
                    Some(end) => end + off.draw(&mut self.rng),
                };
                if self.spell_end.is_none_or(|end| at > end) {
                    self.spell_end = Some(at + on.draw(&mut self.rng));
                }
                Instant { at, fraction_ns: 0.0 }
            }
            Pattern::At(instants) => {
                let at = usize::try_from(self.number).ok().and_then(|n| instants.get(n)).copied();
                Instant { at: at.unwrap_or(Time::NEVER), fraction_ns: 0.0 }
            }
        }
    }
}

impl Application for Source {
    fn handle_datagram(&mut self, _: Time, _: Packet) {}

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, now: Time) -> Option<Datagram> {
        if self.next_at()? > now {
            return None;
        }
        let body = Body::Blank { len: self.len, number: self.number };
        self.number += 1;
        self.next = self.instant();
        Some(Datagram { to: self.to, ecn: self.ecn, body })
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        self.next_at()
    }

    fn may_fragment(&self) -> bool {
        self.may_fragment
    }
}

/// Counts of the datagrams that a sink has received from one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Datagrams.
    pub packets: u64,
    /// Bytes of their UDP payloads.
    pub bytes: u64,
    /// The times from sending to arrival, summed up, in nanoseconds.
    pub delay_sum_ns: u128,
    /// The shortest and the longest of them.
    pub delay_range: Option<(Duration, Duration)>,
    /// Datagrams marked as having met congestion.
    pub marked: u64,
    /// Numbers that were passed over: what was lost, as long as nothing is reordered.
    pub missing: u64,
    /// Runs of such numbers.
    pub gaps: u64,
    /// Datagrams whose number was not above all before.
    pub late: u64,
    /// The number after the highest that has arrived.
    pub next_number: u64,
}

impl Received {
    fn take(&mut self, now: Time, packet: &Packet) {
        let delay = now.since(packet.sent_at);
        self.packets += 1;
        self.bytes += packet.body.len() as u64;
        self.delay_sum_ns += delay.as_nanos();
        let (least, most) = self.delay_range.unwrap_or((delay, delay));
        self.delay_range = Some((least.min(delay), most.max(delay)));
        self.marked += u64::from(packet.ecn == Some(Ecn::Ce));
        let Body::Blank { number, .. } = packet.body else { return };
        if number < self.next_number {
            self.late += 1;
            return;
        }
        self.missing += number - self.next_number;
        self.gaps += u64::from(number > self.next_number);
        self.next_number = number + 1;
    }
}

/// An arrival at a [`Sink`] that records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Address of its sender.
    pub from: SocketAddrV4,
    /// The number that its source gave it; 0 if it has none.
    pub number: u64,
    /// When it was sent.
    pub sent_at: Time,
    /// When it arrived.
    pub at: Time,
}

/// Takes datagrams and counts them.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    by_source: BTreeMap<SocketAddrV4, Received>,
    arrivals: Option<Vec<Arrival>>,
}

impl Sink {
    /// A sink that counts.
    pub fn new() -> Self {
        Sink::default()
    }

    /// A sink that also remembers every arrival.
    pub fn recording() -> Self {
        Sink { arrivals: Some(Vec::new()), ..Sink::default() }
    }

    /// Counts of the datagrams from a source.
    pub fn received(&self, from: SocketAddrV4) -> Received {
        self.by_source.get(&from).copied().unwrap_or_default()
    }

    /// Counts of the datagrams that came, by source.
    pub fn sources(&self) -> impl Iterator<Item = (SocketAddrV4, Received)> + '_ {
        self.by_source.iter().map(|(from, received)| (*from, *received))
    }

    /// All arrivals in order; empty if it does not record.
    pub fn arrivals(&self) -> &[Arrival] {
        self.arrivals.as_deref().unwrap_or_default()
    }
}

impl Application for Sink {
    fn handle_datagram(&mut self, now: Time, packet: Packet) {
        self.by_source.entry(packet.from).or_default().take(now, &packet);
        if let Some(arrivals) = &mut self.arrivals {
            let number = match packet.body {
                Body::Blank { number, .. } => number,
                Body::Bytes(_) | Body::Fragment(_) => 0,
            };
            arrivals.push(Arrival { from: packet.from, number, sent_at: packet.sent_at, at: now });
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time) -> Option<Datagram> {
        None
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        None
    }
}

/// A source or a sink: the applications of a network without engines.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there are as many as applications, and none is moved")]
pub enum Traffic {
    /// It sends.
    Source(Source),
    /// It receives.
    Sink(Sink),
}

impl Traffic {
    /// The sink, if it is one.
    pub fn as_sink(&self) -> Option<&Sink> {
        match self {
            Traffic::Sink(sink) => Some(sink),
            Traffic::Source(_) => None,
        }
    }
}

impl Application for Traffic {
    fn handle_datagram(&mut self, now: Time, packet: Packet) {
        match self {
            Traffic::Source(source) => source.handle_datagram(now, packet),
            Traffic::Sink(sink) => sink.handle_datagram(now, packet),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Traffic::Source(source) => source.handle_timeout(now),
            Traffic::Sink(sink) => sink.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Datagram> {
        match self {
            Traffic::Source(source) => source.poll_transmit(now),
            Traffic::Sink(sink) => sink.poll_transmit(now),
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        match self {
            Traffic::Source(source) => source.poll_timeout(),
            Traffic::Sink(sink) => sink.poll_timeout(),
        }
    }

    fn may_fragment(&self) -> bool {
        match self {
            Traffic::Source(source) => source.may_fragment,
            Traffic::Sink(_) => false,
        }
    }
}
