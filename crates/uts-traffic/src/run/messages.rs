//! Paced messages and video frames, each of use only until its deadline.
//!
//! Each message says which one it is, which piece of how many, and when it was due. The rest is
//! content. The receiver knows the plan, and therefore knows what is missing.

use super::{Outcome, QUIET, Run, RunError, Stop, bytes_of, count as counted, nanos, rate};
use crate::measure::{Measure, Sample, Spans};
use crate::transport::TransportError;
use crate::workload::{MESSAGE_BYTES_MIN, Workload, div_ceil, frame_bytes};
use bytes::Bytes;
use core::cell::Cell;
use core::time::Duration;

/// Index, piece, number of pieces, due time.
const HEADER_BYTES: usize = MESSAGE_BYTES_MIN as usize;

/// Plan of the messages: when each is due, and its size.
pub(super) struct Plan {
    count: u32,
    /// The n-th is due this many nanoseconds after the start: `n * numerator / denominator`.
    numerator_ns: u64,
    denominator: u64,
    /// Instants that are random: the n-th message is due so many nanoseconds after the start. Empty
    /// where messages leave evenly.
    at_ns: Vec<u64>,
    /// Every so many is of the first size, the others of the second.
    key_every: u32,
    key_bytes: u32,
    other_bytes: u32,
    /// Sizes that are random; empty where none is.
    bytes: Vec<u32>,
    deadline: Duration,
    duration: Duration,
}

impl Plan {
    /// Of a valid workload of messages or video.
    pub fn new(workload: &Workload, seed: u64) -> Plan {
        let size = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        match *workload {
            Workload::Video { frames_per_s, rate_bps, key_every, key_factor, duration, deadline } => {
                let (key, other) = frame_bytes(frames_per_s, rate_bps, key_every, key_factor);
                let frames = (duration.as_nanos() * u128::from(frames_per_s)).div_ceil(1_000_000_000);
                Plan {
                    count: u32::try_from(frames).unwrap_or(u32::MAX),
                    numerator_ns: 1_000_000_000,
                    denominator: u64::from(frames_per_s),
                    at_ns: Vec::new(),
                    key_every,
                    key_bytes: size(key),
                    other_bytes: size(other),
                    bytes: Vec::new(),
                    deadline,
                    duration,
                }
            }
            Workload::RandomMessages { arrivals, every, bytes, ref sizes, duration, deadline } => {
                let even = Plan::new(&Workload::Messages { every, bytes, duration, deadline }, seed);
                let at_ns = super::arrivals::instants(seed, &arrivals, every, duration);
                let bytes = super::arrivals::sizes(seed, sizes, bytes, at_ns.len());
                Plan { count: u32::try_from(at_ns.len()).unwrap_or(u32::MAX), at_ns, bytes, ..even }
            }
            Workload::Messages { every, bytes, duration, deadline } => Plan {
                count: u32::try_from(div_ceil(duration, every)).unwrap_or(u32::MAX),
                numerator_ns: nanos(every),
                denominator: 1,
                at_ns: Vec::new(),
                key_every: 1,
                key_bytes: size(bytes),
                other_bytes: size(bytes),
                bytes: Vec::new(),
                deadline,
                duration,
            },
            _ => Plan {
                count: 0,
                numerator_ns: 0,
                denominator: 1,
                at_ns: Vec::new(),
                key_every: 1,
                key_bytes: 0,
                other_bytes: 0,
                bytes: Vec::new(),
                deadline: Duration::ZERO,
                duration: Duration::ZERO,
            },
        }
    }

    fn bytes(&self, index: u32) -> u32 {
        if let Some(bytes) = self.bytes.get(index as usize) {
            return *bytes;
        }
        if index.is_multiple_of(self.key_every) { self.key_bytes } else { self.other_bytes }
    }

    /// When a message is due after the start.
    fn due_ns(&self, index: u32) -> u64 {
        if let Some(at_ns) = self.at_ns.get(index as usize) {
            return *at_ns;
        }
        let exact = u128::from(index) * u128::from(self.numerator_ns) / u128::from(self.denominator.max(1));
        u64::try_from(exact).unwrap_or(u64::MAX)
    }

    /// In how many pieces a message goes.
    fn pieces(&self, index: u32, message_bytes_max: usize) -> u16 {
        let pieces = (self.bytes(index) as usize).div_ceil(message_bytes_max.max(2 * HEADER_BYTES));
        u16::try_from(pieces.max(1)).unwrap_or(u16::MAX)
    }

    /// Where a piece begins in its message, and how long it is. Pieces have the same size but for
    /// one byte.
    fn piece(&self, index: u32, piece: u16, pieces: u16) -> (u64, usize) {
        let at = |n: u16| u64::from(self.bytes(index)) * u64::from(n) / u64::from(pieces.max(1));
        (at(piece), (at(piece.saturating_add(1)) - at(piece)) as usize)
    }
}

struct Header {
    index: u32,
    piece: u16,
    pieces: u16,
    due_ns: u64,
}

impl Header {
    fn emit(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.index.to_be_bytes());
        to.extend_from_slice(&self.piece.to_be_bytes());
        to.extend_from_slice(&self.pieces.to_be_bytes());
        to.extend_from_slice(&self.due_ns.to_be_bytes());
    }

    fn parse(message: &[u8]) -> Option<(Header, &[u8])> {
        let (header, content) = message.split_first_chunk::<HEADER_BYTES>()?;
        let [i0, i1, i2, i3, p0, p1, n0, n1, due @ ..] = *header;
        let index = u32::from_be_bytes([i0, i1, i2, i3]);
        let (piece, pieces) = (u16::from_be_bytes([p0, p1]), u16::from_be_bytes([n0, n1]));
        Some((Header { index, piece, pieces, due_ns: u64::from_be_bytes(due) }, content))
    }
}

pub(super) async fn drive(run: &Run<'_>, plan: &Plan) -> Result<Outcome, RunError> {
    let (sent, skipped) = (Cell::new(0), Cell::new(0));
    run.patiently(async {
        for index in 0..plan.count {
            let due_ns = run.started_ns.saturating_add(plan.due_ns(index));
            run.clock.sleep_until(due_ns).await;
            if !send(run, plan, index, due_ns, &sent).await? {
                skipped.set(skipped.get() + 1);
            }
        }
        Ok(())
    })
    .await?;
    run.outcome(vec![bytes_of("sent", sent.get()), counted("skipped", skipped.get())])
}

/// Sends a message in its pieces; `false` if its deadline passed before the transport had taken it.
async fn send(run: &Run<'_>, plan: &Plan, index: u32, due_ns: u64, sent: &Cell<u64>) -> Result<bool, Stop> {
    let deadline_ns = due_ns.saturating_add(nanos(plan.deadline));
    let pieces = plan.pieces(index, run.options.capabilities.message_bytes_max);
    for piece in 0..pieces {
        let left_ns = deadline_ns.saturating_sub(run.now_ns());
        if left_ns == 0 {
            return Ok(false);
        }
        let (position, bytes) = plan.piece(index, piece, pieces);
        let mut message = Vec::with_capacity(bytes);
        Header { index, piece, pieces, due_ns }.emit(&mut message);
        run.pattern.append(u64::from(index), position, bytes - HEADER_BYTES, &mut message);
        run.session.send_message(Bytes::from(message), Some(Duration::from_nanos(left_ns))).await?;
        sent.set(sent.get() + bytes as u64);
    }
    Ok(true)
}

/// Arrival of one message.
#[derive(Clone, Default)]
struct Arrival {
    /// Which pieces have come, while not all have.
    pieces: Vec<bool>,
    missing: u16,
    bytes: u32,
    /// From when it was due until it was whole.
    took_ns: Option<u64>,
}

/// Arrivals of all messages.
struct Arrivals<'a> {
    run: &'a Run<'a>,
    plan: &'a Plan,
    list: Vec<Arrival>,
    whole: u32,
    /// When the first was due, as soon as any has come.
    origin_ns: Option<u64>,
}

pub(super) async fn serve(run: &Run<'_>, plan: &Plan) -> Result<Outcome, RunError> {
    let list = vec![Arrival::default(); plan.count as usize];
    let mut arrivals = Arrivals { run, plan, list, whole: 0, origin_ns: None };
    run.patiently(async {
        while arrivals.whole < plan.count {
            // Not all will come of a transport that loses some, and that is no failure.
            let last_ns = arrivals.origin_ns.map(|origin_ns| {
                let last_ns = origin_ns.saturating_add(plan.due_ns(plan.count - 1));
                last_ns.saturating_add(nanos(plan.deadline)).max(run.now_ns()).saturating_add(nanos(QUIET))
            });
            match run.until(last_ns.unwrap_or(u64::MAX), run.session.receive_message()).await {
                Some(Ok(message)) => arrivals.on_message(&message)?,
                Some(Err(TransportError::Closed)) if arrivals.origin_ns.is_some() => return Ok(()),
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            }
        }
        Ok(())
    })
    .await?;
    arrivals.sample();
    run.outcome(arrivals.measures())
}

impl Arrivals<'_> {
    fn on_message(&mut self, message: &[u8]) -> Result<(), Stop> {
        let (run, plan, now_ns) = (self.run, self.plan, self.run.now_ns());
        let wrong = |what: String| Err(Stop::Content(what));
        let Some((Header { index, piece, pieces, due_ns }, content)) = Header::parse(message) else {
            return wrong(format!("a message of {} bytes is shorter than its header", message.len()));
        };
        let Some(arrival) = self.list.get_mut(index as usize) else {
            return wrong(format!("message {index} came, of {}", plan.count));
        };
        let expected = plan.pieces(index, run.options.capabilities.message_bytes_max);
        let (position, bytes) = plan.piece(index, piece, pieces);
        if pieces != expected || piece >= pieces || message.len() != bytes {
            let length = message.len();
            return wrong(format!("piece {piece} of {pieces} of message {index} has {length} bytes"));
        }
        run.check(format_args!("message {index}"), u64::from(index), position, content)?;
        self.origin_ns.get_or_insert(due_ns.saturating_sub(plan.due_ns(index)));
        if arrival.pieces.is_empty() && arrival.took_ns.is_none() {
            (arrival.pieces, arrival.missing) = (vec![false; usize::from(pieces)], pieces);
        }
        match arrival.pieces.get_mut(usize::from(piece)) {
            Some(has_come) if !*has_come => *has_come = true,
            // It came twice.
            _ => return Ok(()),
        }
        arrival.bytes += bytes as u32;
        arrival.missing -= 1;
        if arrival.missing == 0 {
            arrival.pieces = Vec::new();
            arrival.took_ns = Some(now_ns.saturating_sub(due_ns));
            self.whole += 1;
        }
        Ok(())
    }

    fn sample(&self) {
        let Some(origin_ns) = self.origin_ns else { return };
        for (index, arrival) in (0..).zip(&self.list) {
            self.run.observer.sample(Sample::Latency {
                at_ns: origin_ns.saturating_add(self.plan.due_ns(index)),
                took: arrival.took_ns.map(Duration::from_nanos),
                deadline: Some(self.plan.deadline),
            });
        }
    }

    fn measures(&self) -> Vec<Measure> {
        let (mut in_time, mut late, mut missing, mut useful, mut wasted) = (0u64, 0u64, 0u64, 0u64, 0u64);
        let mut took = Spans::default();
        for arrival in &self.list {
            let bytes = u64::from(arrival.bytes);
            if let Some(ns) = arrival.took_ns {
                took.push(ns);
            }
            match arrival.took_ns {
                Some(ns) if ns <= nanos(self.plan.deadline) => {
                    (in_time, useful) = (in_time + 1, useful + bytes)
                }
                Some(_) => (late, wasted) = (late + 1, wasted + bytes),
                None => (missing, wasted) = (missing + 1, wasted + bytes),
            }
        }
        let share = in_time as f64 / f64::from(self.plan.count.max(1));
        let mut measures = vec![
            counted("due", u64::from(self.plan.count)),
            Measure::new("in_time", share, "1"),
            counted("late", late),
            counted("missing", missing),
            bytes_of("wasted", wasted),
            Measure::new("goodput", rate(useful, nanos(self.plan.duration)), "bit/s"),
        ];
        measures.extend(took.measures("latency"));
        measures
    }
}
