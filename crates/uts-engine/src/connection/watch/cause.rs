//! The cause of losses, from what they go with.
//!
//! A sender's own window is an experiment that goes on all the time: it rises until a loss, and
//! falls by a third. What a medium loses it loses as often whatever is in flight, and whatever the
//! queue is. What congestion loses goes with one of the two: behind a full buffer and behind AQM
//! with the queue, at a policer and in a buffer of a few packets with what is in flight. So each
//! loss has two ranks (0..=1): of what was in flight as it was sent, and of the round trip as it
//! was found, among those of all packets lately. Ranks of the medium's losses are spread evenly.
//!
//! Which it is, a sequential probability ratio test says (Wald 1945) of each of the two. Its other
//! hypothesis is that a loss is the more probable the higher its rank, in proportion, as behind RED
//! (Floyd and Jacobson 1993). Other queues lose at high ranks only, which is told the sooner.

use std::collections::VecDeque;
use uts_functions::Time;
use uts_functions::timing::RoundTrip;

use core::time::Duration;

/// So many samples of what was in flight, and of the round trip, say what is high.
const SAMPLES_MAX: usize = 64;
const SAMPLES_MIN: usize = 8;

/// Samples older than this say nothing of now: a sawtooth of CUBIC's takes some seconds.
const SAMPLES_HOLD: Duration = Duration::from_secs(20);

/// A queue that is shorter cannot be told from what hosts vary by. Nor can one of so many packets:
/// they wait for each other.
pub(super) const NOISE_MIN: Duration = Duration::from_micros(500);
const NOISE_PACKETS: u32 = 2;

/// Behind AQM nothing is lost in a queue that is shorter (CoDel: 5 ms, RFC 8289; PIE: 7.5 ms, RFC
/// 8033).
const QUEUE_MIN: Duration = Duration::from_micros(2500);

/// RED takes a mean over 500 packets (a weight of 0.002, Floyd and Jacobson 1993). For as long as
/// twice as many take, or eight round trips, it goes on dropping after a search for the path's
/// limit, though the queue is gone. What the search itself has lost is found within two.
const PACKETS_AFTER_SEARCH: u32 = 1000;
const ROUNDS_AFTER_SEARCH: [u32; 2] = [2, 8];

/// The test ends at a likelihood ratio of 10: at most one verdict in ten is wrong where queues are
/// as hard to tell from the medium as RED's, and next to none elsewhere.
const EVIDENCE: f32 = core::f32::consts::LN_10;

/// No loss is more telling than one in the lowest twentieth; nor does one alone suffice.
const RANK_MIN: f32 = 0.05;

/// So many packets anybody may have in flight on a path of which nothing is known (RFC 6928): it is
/// not their number that has cost one of them.
const IN_FLIGHT_LIGHT: u64 = 10;

/// Sharpness with which losses of congestion stand at high ranks: behind RED in proportion to the
/// queue; where there is no queue, at a policer, sharper.
const POWER: f32 = 2.0;
const POWER_UNQUEUED: f32 = 3.0;

fn bounded(evidence: f32) -> f32 {
    evidence.clamp(-EVIDENCE, EVIDENCE)
}

/// Rank of a value among the samples: the shares of them that are below it, and not above it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rank {
    below: f32,
    not_above: f32,
}

impl Rank {
    const LOWEST: Rank = Rank { below: 0.0, not_above: 2.0 * RANK_MIN };

    /// The logarithm of how much more probable such a loss is if the medium's, against a cause
    /// whose losses have ranks of the density `power` * rank ^ (`power` - 1). Of samples that are
    /// alike, the middle stands for all.
    fn evidence(self, power: f32) -> f32 {
        let middle = ((self.below + self.not_above) / 2.0).max(RANK_MIN);
        -power.ln() - (power - 1.0) * middle.ln()
    }

    /// The part of it that is in the lower half.
    fn low(self) -> f32 {
        let width = self.not_above - self.below;
        if width <= 0.0 {
            return f32::from(u8::from(self.below < 0.5));
        }
        (self.not_above.min(0.5) - self.below.min(0.5)) / width
    }
}

/// Of a loss, the parts (0..=1) that are in the lower half of queues, and of what was in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Low {
    pub queue: f32,
    pub flight: f32,
}

impl Low {
    pub fn and(self, other: Low) -> Low {
        Low { queue: self.queue + other.queue, flight: self.flight + other.flight }
    }

    pub fn half(self) -> Low {
        Low { queue: self.queue / 2.0, flight: self.flight / 2.0 }
    }
}

/// Belief about the cause of losses, and the evidence for it.
#[derive(Debug, Default)]
pub(super) struct Cause {
    /// Round trips in microseconds, and bytes in flight.
    samples: VecDeque<(u32, u32)>,
    /// A sample is taken after so many packets.
    every: u32,
    packets: u32,
    /// The smallest round trip, in microseconds.
    min_us: u32,
    /// When the last sample was taken, a loss told something last, and a search for the path's
    /// limit ended that met a queue; in milliseconds, which wrap.
    sampled_at_ms: u32,
    told_at_ms: u32,
    searched_until_ms: Option<u32>,
    /// The evidence for the medium, from the queue and from what is in flight.
    by_queue: f32,
    by_flight: f32,
    is_mediums: bool,
    /// At least half of all packets met no queue.
    has_room: bool,
}

impl Cause {
    /// Packets have arrived, while `in_flight` bytes were.
    pub fn on_acknowledged(&mut self, now: Time, packets: u32, in_flight: u64, rtt: &RoundTrip) {
        self.packets = self.packets.saturating_add(packets);
        let since = now.since_wrapped(self.sampled_at_ms);
        let min_us = u32::try_from(rtt.min.as_micros()).unwrap_or(u32::MAX);
        let is_longer = min_us / 5 > self.min_us / 4;
        self.min_us = min_us;
        if since > SAMPLES_HOLD || is_longer {
            // What was sampled, and what was told since the path became longer, is of another path.
            self.samples.clear();
            self.every = 1;
            (self.by_queue, self.by_flight) = (self.by_queue.max(0.0), self.by_flight.max(0.0));
        } else if since > SAMPLES_HOLD / SAMPLES_MAX as u32 {
            self.every = (self.every / 2).max(1);
        }
        if self.packets < self.every {
            return;
        }
        (self.packets, self.sampled_at_ms) = (0, now.wrapping_millis());
        if self.samples.len() >= SAMPLES_MAX {
            // All of the connection so far, as long as that is not longer than samples hold.
            if u64::from(since.as_micros() as u32) * (SAMPLES_MAX as u64) < SAMPLES_HOLD.as_micros() as u64 {
                let mut is_kept = false;
                self.samples.retain(|_| {
                    is_kept = !is_kept;
                    is_kept
                });
                self.every = self.every.saturating_mul(2);
            } else {
                self.samples.pop_front();
            }
        }
        let micros = u32::try_from(rtt.latest.as_micros()).unwrap_or(u32::MAX);
        self.samples.push_back((micros, u32::try_from(in_flight).unwrap_or(u32::MAX)));
    }

    fn rank(&self, is_below: impl Fn(&(u32, u32)) -> bool, is_above: impl Fn(&(u32, u32)) -> bool) -> Rank {
        let count = self.samples.len().max(1) as f32;
        let below = self.samples.iter().filter(|sample| is_below(sample)).count() as f32;
        let above = self.samples.iter().filter(|sample| is_above(sample)).count() as f32;
        Rank { below: below / count, not_above: 1.0 - above / count }
    }

    /// The search for the path's limit has ended: what was in flight then is no measure of now. If
    /// packets queued at its end, that may go on costing others for a while.
    pub fn on_search_ended(&mut self, now: Time) {
        let queued_us = self.min_us.saturating_add(NOISE_MIN.as_micros() as u32);
        let lately = self.samples.iter().rev().take(SAMPLES_MIN);
        let (queued, all) = lately
            .fold((0, 0), |(queued, all), sample| (queued + usize::from(sample.0 >= queued_us), all + 1));
        if 2 * queued >= all {
            self.searched_until_ms = Some(now.wrapping_millis());
        }
        self.samples.clear();
        self.every = 1;
    }

    /// A packet that was sent while `in_flight` bytes were is found lost; `None` for the latter:
    /// the application sent less than it could. It has so many bytes, which take `packet_time` at
    /// the path's capacity. Returns how low it stands, among those of a sender that takes what it
    /// can get.
    pub fn on_lost(
        &mut self,
        now: Time,
        in_flight: Option<u64>,
        (packet_bytes, packet_time): (u64, Duration),
        rtt: &RoundTrip,
    ) -> Low {
        if self.samples.len() < SAMPLES_MIN {
            return Low::default();
        }
        let latest = u32::try_from(rtt.latest.as_micros()).unwrap_or(u32::MAX);
        let waits = rtt.latest.saturating_sub(rtt.min);
        let noise = NOISE_MIN.max(packet_time * NOISE_PACKETS);
        let mut queue = self.rank(|sample| sample.0 < latest, |sample| sample.0 > latest);
        let has_queue = waits >= noise;
        if !has_queue {
            // It is not a queue that has caused this loss.
            queue = Rank::LOWEST;
        }
        let flight = in_flight.map(|bytes| {
            if bytes <= IN_FLIGHT_LIGHT * packet_bytes {
                return Rank::LOWEST;
            }
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.rank(|sample| sample.1 < bytes, |sample| sample.1 > bytes)
        });
        // Losses within a round trip may have one cause.
        if now.since_wrapped(self.told_at_ms) >= rtt.smoothed / 2 {
            self.told_at_ms = now.wrapping_millis();
            let short = QUEUE_MIN.max(noise);
            let [least, most] = ROUNDS_AFTER_SEARCH.map(|rounds| rtt.smoothed * rounds);
            let restless = (packet_time * PACKETS_AFTER_SEARCH).clamp(least, most);
            let is_calm = flight.is_none()
                || self.searched_until_ms.is_none_or(|until| now.since_wrapped(until) >= restless);
            let of = |rank: Rank, power: f32, counts: bool| {
                let evidence = rank.evidence(power).min(EVIDENCE / 2.0);
                if counts { evidence } else { evidence.min(0.0) }
            };
            // Be a queue shorter than others, it may have cost the packet.
            self.by_queue = bounded(self.by_queue + of(queue, POWER, is_calm && waits < short));
            let short_us = u32::try_from((rtt.min + short).as_micros()).unwrap_or(u32::MAX);
            self.has_room =
                2 * self.samples.iter().filter(|sample| sample.0 < short_us).count() >= self.samples.len();
            let power = if has_queue { POWER } else { POWER_UNQUEUED };
            self.by_flight = bounded(self.by_flight + flight.map_or(0.0, |rank| of(rank, power, is_calm)));
            let least = self.by_queue.min(self.by_flight);
            self.is_mediums = least >= EVIDENCE || (self.is_mediums && least > -EVIDENCE);
        }
        flight.map_or(Low::default(), |flight| Low { queue: queue.low(), flight: flight.low() })
    }

    /// True if losses were shown to be the medium's: they go neither with what is in flight nor
    /// with the queue. A path that others use is left to them: a sender that bears losses there
    /// takes what is theirs.
    pub fn is_mediums(&self) -> bool {
        self.is_mediums && self.has_room
    }

    /// True if losses were shown to go with the queue.
    pub fn goes_with_queue(&self) -> bool {
        self.by_queue <= -EVIDENCE
    }

    pub fn heap_bytes(&self) -> usize {
        self.samples.capacity() * size_of::<(u32, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between 0 and 1 that look drawn at random (SplitMix64).
    struct Draw(u64);

    impl Draw {
        fn share(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Effect of the network on a packet: the queue that it meets, in milliseconds, and the
    /// probability that it is lost. `load` is what all have in flight, as a multiple of what the
    /// path holds without a queue.
    type Network = fn(load: f64) -> (f64, f64);

    /// A sender with a share of the path grows by a packet each round trip of 40 ms, and falls by a
    /// third after a loss; so do the others, whose windows are another's. Says whether the medium
    /// is believed to lose packets, ever in so many seconds.
    fn believes_in_the_medium(network: Network, others: usize, seconds: u64, seed: u64) -> bool {
        const PATH_PACKETS: f64 = 100.0;
        let (mut draw, mut cause) = (Draw(seed), Cause::default());
        let mut windows = vec![PATH_PACKETS / (others + 1) as f64; others + 1];
        let mut is_believed = false;
        for round in 0..seconds * 25 {
            let now = Time::from_millis(1000 + 40 * round);
            let (queue_ms, loss) = network(windows.iter().sum::<f64>() / PATH_PACKETS);
            let latest = Duration::from_micros(40_000 + (1000.0 * (queue_ms + 0.2 * draw.share())) as u64);
            let mut rtt = RoundTrip::default();
            (rtt.latest, rtt.smoothed, rtt.min) = (latest, latest, Duration::from_millis(40));
            for (place, window) in windows.iter_mut().enumerate() {
                let is_lost = draw.share() < 1.0 - (1.0 - loss).powf(*window);
                let in_flight = (*window * 1200.0) as u64;
                if place == 0 {
                    (0..8).for_each(|_| cause.on_acknowledged(now, *window as u32 / 8, in_flight, &rtt));
                    if is_lost {
                        cause.on_lost(now, Some(in_flight), (1200, Duration::from_micros(100)), &rtt);
                        is_believed |= cause.is_mediums();
                    }
                }
                *window = if is_lost { (*window * 0.7).max(2.0) } else { *window + 1.0 };
            }
        }
        is_believed
    }

    fn queue_ms(load: f64) -> f64 {
        40.0 * (load - 1.0).max(0.0)
    }

    /// Of so many seeds, how many end in that belief.
    fn of_twenty(network: Network, others: usize, seconds: u64) -> usize {
        (1..=20).filter(|seed| believes_in_the_medium(network, others, seconds, 7 * seed)).count()
    }

    #[test]
    fn what_a_medium_loses_is_told_soon() {
        let medium: [Network; 2] = [|load| (queue_ms(load), 0.002), |load| (queue_ms(load), 0.01)];
        for network in medium {
            let found = of_twenty(network, 0, 20);
            assert!(found >= 18, "{found} of 20");
        }
    }

    /// Behind full buffers, deep and shallow, and behind AQM, alone and with others; at a policer
    /// alone. Others at a policer, which keeps no queue, cannot be seen: what is lost there goes
    /// with what they have in flight.
    #[test]
    fn losses_of_congestion_are_not_taken_for_a_mediums() {
        const ANY: &[usize] = &[0, 1, 3];
        let queues: [(&str, Network, &[usize]); 5] = [
            ("a deep buffer", |load| (queue_ms(load), if load > 2.0 { 0.05 } else { 0.0 }), ANY),
            ("ten packets", |load| (queue_ms(load).min(4.0), if load > 1.1 { 0.05 } else { 0.0 }), ANY),
            ("CoDel", |load| (queue_ms(load), if queue_ms(load) > 5.0 { 0.01 } else { 0.0 }), ANY),
            ("RED", |load| (queue_ms(load), 0.1 * ((queue_ms(load) - 4.0) / 16.0).clamp(0.0, 1.0)), ANY),
            ("a policer", |load| (0.0, (1.0 - 1.0 / load).max(0.0)), &[0]),
        ];
        for (name, network, with) in queues {
            for others in with {
                let found = of_twenty(network, *others, 60);
                assert!(found <= 1, "{name}, {others} others: {found} of 20");
            }
        }
    }
}
