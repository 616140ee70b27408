//! The rate that the receiver sets: it measures at what rate each buffer of data arrives and how
//! much of it is lost, and tells the sender the rate and burst for what follows (RFC 998; Clark,
//! Lambert and Zhang, "NETBLT: A High Throughput Transport Protocol", SIGCOMM 1987, section 4).

use super::pacing_bucket::PacingBucket;
use super::{Bucket, Pace, RateControl, Watch};
use crate::feedback::BadFeedback;
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Need, Param, Params, Promise, Unasked, Unit};
use crate::time::{Rate, Time};
use uts_wire::varint::{Reader, put_varint};

/// A buffer that arrives at less than this share of the rate asked for (in eighths) was sent faster
/// than the path or the receiver takes it, if some of it was lost too.
const SHARE_MIN_EIGHTHS: u64 = 7;

/// With less of a buffer lost than one packet in so many, the rate is not too high. (Of the numbers
/// of packets, some are left out.)
const LOSS_DIVISOR: u64 = 25;

/// The rate rises by one part in so many while buffers arrive whole and as fast as asked for. Until
/// the first that does not, it doubles.
const RISE_DIVISOR: u64 = 4;

/// A pause of this share of the time for a buffer is the sender's: the buffer begins anew behind
/// it.
const PAUSE_DIVISOR: u64 = 4;

/// The rate is never asked below this: the sender stays able to end what it has begun.
const RATE_MIN: Rate = Rate::from_bits_per_sec(8_000);

/// A burst is what leaves in this many thousandths of a second, at least one packet.
const BURST_MILLIS: u64 = 5;

/// The sender's half. See the module's page.
#[derive(Clone, Debug)]
pub struct Netblt {
    /// The rate to begin with.
    first: Rate,
    buffer_bytes: u64,
    /// Rate that the receiver has asked for, and bytes in a burst.
    asked: Option<(Rate, u64)>,
    pacing: PacingBucket,
}

impl Netblt {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Rate,
        number: 3,
        name: "netblt",
        what: "the receiver measures each buffer of data and sets the rate and burst of the next",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[
            Param {
                name: "rate",
                unit: Unit::KilobitsPerSecond,
                default: 1000,
                min: 8,
                max: 100_000_000,
                bold: Bold::Neither,
                what: "the rate to begin with",
            },
            Param {
                name: "buffer",
                unit: Unit::Kibibytes,
                default: 64,
                min: 4,
                max: 65_536,
                bold: Bold::Neither,
                what: "data that is measured as a whole",
            },
        ],
        needs: &[Need::Present(Function::Acknowledgement)],
        facts: Facts { speaks: true, promises: &[Promise::Rate], unasked: Unasked::Never, ..Facts::PLAIN },
        predict: |_, facts, p| {
            let defaults = PacingBucket::INFO.params_within(&[]);
            (PacingBucket::INFO.predict)(&defaults, facts, p);
            p.cpu_ns += 20.0;
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Netblt {
            first: Rate::from_bits_per_sec(u64::from(params.get(0)) * 1000),
            buffer_bytes: u64::from(params.get(1)) * 1024,
            asked: None,
            pacing: PacingBucket::build(&PacingBucket::INFO.params_within(&[]), ()),
        }
    }

    /// Pace that is kept to: what the receiver asks for, unless congestion control or the
    /// application says less (rate.md R-14).
    fn pace(&self, pace: &Pace) -> Pace {
        let (rate, burst_bytes) = self.asked.unwrap_or((self.first, burst_bytes(self.first)));
        let rate = pace.rate.map_or(rate, |given| given.min(rate));
        let burst_bytes = pace.burst_bytes.map_or(burst_bytes, |given| given.min(burst_bytes));
        Pace { rate: Some(rate), burst_bytes: Some(burst_bytes.max(pace.packet_bytes)), ..*pace }
    }
}

/// The burst that goes with a rate.
fn burst_bytes(rate: Rate) -> u64 {
    rate.bytes_per_sec() * BURST_MILLIS / 1000
}

impl RateControl for Netblt {
    fn wait_until(&mut self, bucket: &mut Bucket, now: Time, pace: &Pace) -> Option<Time> {
        let pace = self.pace(pace);
        self.pacing.wait_until(bucket, now, &pace)
    }

    fn on_sent(&mut self, bucket: &mut Bucket, now: Time, bytes: u64, pace: &Pace) {
        let pace = self.pace(pace);
        self.pacing.on_sent(bucket, now, bytes, &pace);
    }

    fn batch_bytes(&self, bucket: &Bucket, pace: &Pace) -> u64 {
        self.pacing.batch_bytes(bucket, &self.pace(pace))
    }

    fn watch(&self) -> Option<Box<dyn Watch>> {
        Some(Box::new(Arrivals {
            asked: self.first,
            buffer_bytes: self.buffer_bytes,
            buffer: None,
            last_at: Time::ZERO,
            next_number: 0,
            has_met_limit: false,
        }))
    }

    fn on_feedback(&mut self, words: &[u8]) -> Result<(), BadFeedback> {
        let bad = BadFeedback { mechanism: Self::INFO.name };
        let mut r = Reader::new(words);
        let rate = r.varint("rate").map_err(|_| bad)?;
        let burst_bytes = r.varint("burst").map_err(|_| bad)?;
        if !r.is_empty() {
            return Err(bad);
        }
        // rate.md R-17.
        self.asked = Some((Rate::from_bytes_per_sec(rate).max(RATE_MIN), burst_bytes));
        Ok(())
    }
}

/// The receiver's half: measures buffer by buffer.
#[derive(Clone, Debug)]
struct Arrivals {
    /// Rate that it asks for.
    asked: Rate,
    buffer_bytes: u64,
    buffer: Option<Buffer>,
    /// When the last packet arrived.
    last_at: Time,
    /// A buffer was lossy and slow.
    has_met_limit: bool,
    /// One more than the highest number seen.
    next_number: u64,
}

/// Arrivals of a buffer.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    began: Time,
    /// Bytes behind its first packet.
    bytes: u64,
    packets: u64,
    /// The number of its first packet.
    first: u64,
}

impl Watch for Arrivals {
    fn on_arrival(&mut self, now: Time, number: u64, bytes: u64) -> bool {
        self.next_number = self.next_number.max(number.saturating_add(1));
        let pause = self.asked.time_for(self.buffer_bytes / PAUSE_DIVISOR);
        let is_behind_pause = now.since(core::mem::replace(&mut self.last_at, now)) > pause;
        let Some(buffer) = self.buffer.as_mut().filter(|_| !is_behind_pause) else {
            self.buffer = Some(Buffer { began: now, bytes: 0, packets: 1, first: number });
            return false;
        };
        buffer.bytes += bytes;
        buffer.packets += 1;
        if buffer.bytes < self.buffer_bytes || now <= buffer.began {
            return false;
        }
        let buffer = *buffer;
        self.buffer = Some(Buffer { began: now, bytes: 0, packets: 1, first: self.next_number - 1 });
        let before = self.asked;
        self.asked = self.next_rate(&buffer, now);
        self.has_met_limit |= self.asked < before;
        self.asked != before
    }

    fn say(&self, out: &mut Vec<u8>) {
        put_varint(out, self.asked.bytes_per_sec());
        put_varint(out, burst_bytes(self.asked));
    }
}

impl Arrivals {
    /// The rate to ask for after a buffer (rate.md ).
    fn next_rate(&self, buffer: &Buffer, now: Time) -> Rate {
        let asked = self.asked.bytes_per_sec();
        let arrived = Rate::from_delivery(buffer.bytes, now.since(buffer.began)).bytes_per_sec();
        let sent = self.next_number.saturating_sub(buffer.first).max(buffer.packets);
        let lost = sent - buffer.packets;
        let is_lossy = lost > 0 && lost * LOSS_DIVISOR >= sent;
        let is_slow = arrived < asked / 8 * SHARE_MIN_EIGHTHS;
        let next = match (is_lossy, is_slow) {
            (true, true) => arrived,
            // It was slow for want of data, or lossy without being too fast.
            (true, false) | (false, true) => asked,
            (false, false) if self.has_met_limit => asked.saturating_add(asked / RISE_DIVISOR),
            (false, false) => asked.saturating_mul(2),
        };
        Rate::from_bytes_per_sec(next).max(RATE_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use uts_wire::varint::VARINT_MAX;

    const PACKET: u64 = 1000;

    fn netblt(kbits: u64) -> Netblt {
        Netblt::build(&Netblt::INFO.choice_with(&[("rate", kbits)]).expect("in range").params, ())
    }

    fn pace() -> Pace {
        Pace { rate: None, packet_bytes: PACKET, burst_bytes: None, rtt_min: Duration::ZERO }
    }

    /// Sends for a while over a line of so many kbit/s with a queue of ten packets, on which one
    /// packet in `loss` is lost besides; says the bytes that arrived in the second half, per
    /// second.
    fn run(first_kbits: u64, line_kbits: u64, loss: u64, secs: u64) -> (u64, Rate) {
        let mut sender = netblt(first_kbits);
        let mut watch = sender.watch().expect("it has one");
        let (mut bucket, mut free_at, mut arrived) = (Bucket::default(), Time::ZERO, 0);
        let (mut now, mut number) = (Time::ZERO, 0);
        let end = Time::ZERO + Duration::from_secs(secs);
        let line = Rate::from_bits_per_sec(line_kbits * 1000);
        while now < end {
            if let Some(at) = sender.wait_until(&mut bucket, now, &pace()) {
                now = at;
                continue;
            }
            sender.on_sent(&mut bucket, now, PACKET, &pace());
            number += 1;
            let queued = free_at.since(now);
            if queued > line.time_for(10 * PACKET) || number % loss == 0 {
                continue;
            }
            free_at = free_at.max(now) + line.time_for(PACKET);
            if free_at > Time::ZERO + Duration::from_secs(secs / 2) {
                arrived += PACKET;
            }
            if watch.on_arrival(free_at, number, PACKET) {
                let mut words = Vec::new();
                watch.say(&mut words);
                sender.on_feedback(&words).expect("its own words");
            }
        }
        (arrived / (secs - secs / 2), sender.asked.map_or(sender.first, |(rate, _)| rate))
    }

    #[test]
    fn the_rate_comes_near_that_of_the_line_from_above_and_from_below() {
        for first_kbits in [500, 50_000] {
            let (arrived, asked) = run(first_kbits, 8_000, u64::MAX, 60);
            assert!((850_000..=1_001_000).contains(&arrived), "from {first_kbits}: {arrived} B/s");
            assert!(asked.bytes_per_sec() < 2_000_000, "from {first_kbits}: asks for {asked:?}");
        }
    }

    #[test]
    fn losses_that_do_not_slow_arrivals_do_not_slow_the_sender() {
        let (_, asked) = run(1000, 8_000, 40, 30);
        assert!(asked.bytes_per_sec() >= 125_000, "{asked:?}");
    }

    #[test]
    fn what_is_given_bounds_what_is_asked_for() {
        let mut sender = netblt(1000);
        let given = Rate::from_bits_per_sec(64_000);
        let bounded = sender.pace(&Pace { rate: Some(given), ..pace() });
        assert_eq!(bounded.rate, Some(given));
        let mut words = Vec::new();
        put_varint(&mut words, 0);
        put_varint(&mut words, VARINT_MAX);
        sender.on_feedback(&words).expect("readable");
        assert_eq!(sender.pace(&pace()).rate, Some(RATE_MIN), "no receiver stops the sender for good");
        for bad in [&words[..1], &[&words[..], &[0]].concat()] {
            assert!(sender.on_feedback(bad).is_err());
        }
    }
}
