//! Both ends of a direction's functions, with their mechanisms by number and by name.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;
use uts_functions::acknowledgement::{self, Acknowledgement, Arrival, Arrivals};
use uts_functions::congestion::{self, Ack, Congestion, Delivery, Snapshot, Summary};
use uts_functions::detection::{self, Detection, Verdict};
use uts_functions::flow::{self, FlowControl};
use uts_functions::protection::{self, Protection, SAMPLE_BYTES, Secret};
use uts_functions::rate::{self, Bucket, Pace, RateControl};
use uts_functions::timing::{self, RoundTrip, Timing};
use uts_functions::{Choice, Mechanism, Params, Rate, Time};

const DATA_BYTES: usize = 1440;
const HEADER: [u8; 13] = [0x5a; 13];
const ASSOCIATED: [u8; 16] = [0x5a; 16];
const GAP: Duration = Duration::from_micros(1);

/// Packets of a batch, which are built, and taken in, as a run (`send/run.rs` of the engine).
const RUN: u64 = 44;

/// Batches in flight: a round trip of 132 us. Each is acknowledged by itself.
const FLIGHT: usize = 3;

/// Carries so many more packets; says the congestion window after them, in bytes.
pub type Carrier = Box<dyn FnMut(u64) -> u64>;

/// Both ends of a direction, each mechanism of whatever type.
struct Stack<D, P, A, T, F, R, C> {
    detection: D,
    protection: P,
    acknowledgement: A,
    timing: T,
    flow: F,
    rate: R,
    congestion: C,
}

/// The states, which no mechanism owns.
struct State {
    now: Time,
    number: u64,
    delivery: Delivery,
    /// Of each batch, with its bytes.
    flight: VecDeque<(Snapshot, u64)>,
    bucket: Bucket,
    rtt: RoundTrip,
    arrivals: Arrivals,
    data: Vec<u8>,
    packet: Vec<u8>,
}

impl<D, P, A, T, F, R, C> Stack<D, P, A, T, F, R, C>
where
    D: Detection,
    P: Protection,
    A: Acknowledgement,
    T: Timing,
    F: FlowControl,
    R: RateControl,
    C: Congestion,
{
    /// A batch, from one end to the other, and the acknowledgement of an earlier one back. As the
    /// engine does, window, rate and what is in flight are asked and told once for the run; of its
    /// packets each is checked, sealed, opened and noted by itself.
    fn carry(&mut self, s: &mut State, packets: u64) {
        s.now += GAP.saturating_mul(packets as u32);
        let packet_bytes = (HEADER.len() + DATA_BYTES + 16) as u64;
        let bytes = packets * packet_bytes;
        let may = self.flow.send_limit(u64::MAX) > s.number
            && s.delivery.in_flight + packet_bytes <= self.congestion.window_bytes();
        let pace = Pace {
            rate: self.congestion.pacing_rate().or(Some(Rate::from_bytes_per_sec(10_000_000_000))),
            packet_bytes,
            burst_bytes: self.congestion.burst_bytes(),
            rtt_min: Duration::from_millis(20),
        };
        let wait = self.rate.wait_until(&mut s.bucket, s.now, &pace);
        black_box((may, wait, self.rate.batch_bytes(&s.bucket, &pace)));
        for _ in 0..packets {
            self.build(s);
            self.receive(s);
            s.number += 1;
        }
        s.flight.push_back((s.delivery.on_sent(s.now, bytes), bytes));
        self.congestion.on_sent(s.now, bytes, &s.delivery);
        self.rate.on_sent(&mut s.bucket, s.now, bytes, &pace);
        if s.flight.len() > FLIGHT {
            self.acknowledge(s);
        }
    }

    /// A packet. Not to be unrolled into its caller, where a compiler that sees all might do it
    /// once for all packets.
    #[inline(never)]
    fn build(&self, s: &mut State) {
        s.packet.clear();
        s.packet.extend_from_slice(&HEADER);
        s.packet.extend_from_slice(&s.data);
        let covered = s.packet.len();
        let (trailer, tag) = (self.detection.trailer_bytes(), self.protection.tag_bytes());
        s.packet.resize(covered + trailer + tag, 0);
        let (body, rest) = s.packet.split_at_mut(covered);
        self.detection.append(body, &mut rest[..trailer]);
        let (plain, tag) = s.packet[HEADER.len()..].split_at_mut(DATA_BYTES + trailer);
        self.protection.seal(s.number, &ASSOCIATED, plain, tag);
        self.mask(&mut s.packet);
    }

    /// Part of both, so that what the compiler takes for small enough does not count.
    #[inline(always)]
    fn mask(&self, packet: &mut [u8]) {
        if self.protection.sample_bytes() > 0
            && let Some((head, rest)) = packet.split_first_chunk_mut::<13>()
            && let Some(sample) = rest.first_chunk::<SAMPLE_BYTES>()
        {
            let mask = self.protection.header_mask(sample);
            head[9..].iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        }
    }

    /// The packet at the other end. As [`Stack::build`], not to be unrolled.
    #[inline(never)]
    fn receive(&mut self, s: &mut State) {
        self.mask(&mut s.packet);
        let payload = &mut s.packet[HEADER.len()..];
        let Ok(len) = self.protection.open(s.number, &ASSOCIATED, payload) else { return };
        let body = HEADER.len() + len - self.detection.trailer_bytes();
        let (covered, trailer) = s.packet[..HEADER.len() + len].split_at_mut(body);
        if black_box(self.detection.check(covered, trailer)) == Verdict::Wrong {
            return;
        }
        let arrival = Arrival { number: s.number, now: s.now, eliciting: true, polled: false, marked: false };
        self.acknowledgement.on_arrival(&mut s.arrivals, &arrival);
        s.arrivals.insert(&arrival);
    }

    fn acknowledge(&mut self, s: &mut State) {
        s.arrivals.on_reported(s.now);
        let prior_in_flight = s.delivery.in_flight;
        let Some((snapshot, bytes)) = s.flight.pop_front() else { return };
        s.delivery.on_acknowledged(s.now, bytes, &snapshot);
        let sent_at = snapshot.sent_at;
        let sample = s.rtt.on_sample(s.now, s.now.since(sent_at), Duration::ZERO);
        self.timing.on_sample(&mut s.rtt, sample);
        let (sample, newly) = s.delivery.sample(s.rtt.min);
        let ack = Ack {
            now: s.now,
            bytes: newly,
            largest: s.number - RUN * FLIGHT as u64,
            sent_at,
            rtt: Some(s.rtt.latest),
            rtt_smoothed: s.rtt.smoothed,
            rtt_min: s.rtt.min,
            prior_in_flight,
            sample,
            ecn_marked: 0,
            next_packet: s.number + 1,
        };
        self.congestion.on_ack(&ack, &s.delivery);
        black_box((self.timing.loss_delay(&s.rtt), self.timing.timeout(&s.rtt)));
    }

    /// Ready to carry packets.
    fn start(mut self) -> Carrier
    where
        Self: 'static,
    {
        let mut state = State {
            now: Time::ZERO,
            number: 0,
            delivery: Delivery::new(Time::ZERO),
            flight: VecDeque::with_capacity(2 * FLIGHT),
            bucket: Bucket::default(),
            rtt: RoundTrip::default(),
            arrivals: Arrivals::default(),
            data: vec![0x5a; DATA_BYTES],
            packet: Vec::with_capacity(2 * DATA_BYTES),
        };
        Box::new(move |packets| {
            let full = (0..packets / RUN).map(|_| RUN);
            full.chain([packets % RUN]).filter(|run| *run > 0).for_each(|run| self.carry(&mut state, run));
            self.congestion.window_bytes()
        })
    }
}

fn context() -> congestion::Context {
    let summary = Summary::initial(1472);
    congestion::Context { now: Time::ZERO, packet_bytes: 1472, summary, past: None, seed: 1 }
}

fn secret() -> Secret {
    Secret::from_exporter(&[7; 32], protection::Direction::ClientToServer)
}

/// By the numbers of a profile, which the compiler does not know; `None` if the library lacks one
/// of them.
pub fn synthesised(protects: bool) -> Option<Carrier> {
    let chosen = |entry: &'static Mechanism| -> Choice { black_box(entry.choice()) };
    let detection = if protects { &detection::none::None::INFO } else { &detection::crc_32c::Crc32c::INFO };
    let protection =
        if protects { &protection::aes_128_gcm::Aes128Gcm::INFO } else { &protection::none::None::INFO };
    let stack = Stack {
        detection: detection::Slot::build(&chosen(detection), ())?,
        protection: protection::Slot::build(&chosen(protection), &secret())?,
        acknowledgement: acknowledgement::Slot::build(&chosen(&acknowledgement::delayed::Delayed::INFO), ())?,
        timing: timing::Slot::build(&chosen(&timing::jacobson::Jacobson::INFO), ())?,
        flow: flow::Slot::build(&chosen(&flow::credit::Credit::INFO), ())?,
        rate: rate::Slot::build(&chosen(&rate::pacing_bucket::PacingBucket::INFO), ())?,
        congestion: congestion::Slot::build(&chosen(&congestion::cubic::Cubic::INFO), &context())?,
    };
    Some(stack.start())
}

/// By name.
pub fn named(protects: bool) -> Carrier {
    let none = Params::default();
    if protects {
        let protection = protection::aes_128_gcm::Aes128Gcm::build(&none, &secret());
        fixed(detection::none::None::build(&none, ()), protection)
    } else {
        let detection = detection::crc_32c::Crc32c::build(&none, ());
        fixed(detection, protection::none::None::build(&none, &secret()))
    }
}

fn fixed<D: Detection + 'static, P: Protection + 'static>(detection: D, protection: P) -> Carrier {
    let params = |entry: &'static Mechanism| -> Params { black_box(entry.choice().params) };
    let stack = Stack {
        detection,
        protection,
        acknowledgement: acknowledgement::delayed::Delayed::build(
            &params(&acknowledgement::delayed::Delayed::INFO),
            (),
        ),
        timing: timing::jacobson::Jacobson::build(&params(&timing::jacobson::Jacobson::INFO), ()),
        flow: flow::credit::Credit::build(&params(&flow::credit::Credit::INFO), ()),
        rate: rate::pacing_bucket::PacingBucket::build(&params(&rate::pacing_bucket::PacingBucket::INFO), ()),
        congestion: congestion::cubic::Cubic::build(&params(&congestion::cubic::Cubic::INFO), &context()),
    };
    stack.start()
}
