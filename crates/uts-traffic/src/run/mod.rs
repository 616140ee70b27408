//! Runs a workload: [`drive`] at the client, [`serve`] at the server.
//!
//! Both ends get the same workload, seed and capabilities. Each item carries the instant at which
//! it left, on the clock that both ends share. Each figure therefore comes from the end that sees
//! it happen, and from that end only:
//!
//! | workload | the client (`drive`) tells | the server (`serve`) tells |
//! | --- | --- | --- |
//! | bulk, slow-reader | `sent` | `delivered`, `goodput`, and `completion` if bytes were asked for and all came |
//! | files | `sent` | `delivered`, `goodput`, `files`, `file_*`, and `completion` if all came |
//! | requests | `answered`, `requests_per_s`, `request_*`, and `completion` if all were answered | `served` |
//! | messages, random-messages, video | `sent`, `skipped` | `due`, `in_time`, `late`, `missing`, `wasted`, `goodput`, `latency_*` |
//! | keystrokes | `typed`, `missing`, `echo_*` | `echoed` |
//!
//! `NAME_*` is `_p50`, `_p90`, `_p99`, `_max` and `_mean` in milliseconds, of those that arrived;
//! nothing if none did. `completion` is in seconds from the client's start to the last byte.
//! `goodput` is in bit/s of the application's bytes over that time, or over the time that was given
//! to it. `sent`, `delivered` and `wasted` are bytes. `in_time` is the share (0 to 1) of all
//! messages or frames that were due. The rest are counts (unit `1`). Samples come from the same end
//! as the figures that they belong to.
//!
//! The clock starts when `drive` is called. The time to connect is not in it, the time to open a
//! stream is. A message is due at its time whether or not the transport has taken those before it.
//! If its deadline has passed before the transport has room for it, it is skipped, as an
//! application would. Messages that are larger than the transport allows go in pieces. `messages`
//! and `video` count as late what came whole but after its deadline, as missing what did not come
//! whole at all, and as wasted all bytes that came of either.

mod arrivals;
mod bulk;
mod files;
mod keystrokes;
mod messages;
mod requests;

use crate::clock::Clock;
use crate::measure::{Measure, Observer, Sample};
use crate::pattern::Pattern;
use crate::transport::{Capabilities, ReceiveStream, SendStream, Session, Stream, TransportError};
use crate::workload::{Workload, can_carry};
use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::Future;
use core::pin::pin;
use core::time::Duration;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};

/// Time that a receiver waits for more after the last message was due. Then it has all that it will
/// get. This is longer than a few time-outs of a transport that repeats. Transports that do not
/// repeat are told of the end.
const QUIET: Duration = Duration::from_secs(5);

/// Answer of a receiver once it has had all that it wanted.
const RECEIPT: u8 = 1;

/// Options of a run of a workload; the same at both ends.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Capabilities of the transport.
    pub capabilities: Capabilities,
    /// Where contents and random times come from.
    pub seed: u64,
    /// After this long an end stops waiting, and tells what there is.
    pub give_up: Duration,
    /// Samples of how much was delivered are at least this far apart.
    pub sample_every: Duration,
}

/// Outcome of a run at one end.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its figures, of what did arrive.
    pub measures: Vec<Measure>,
    /// Why it ended before its time, if it did.
    pub cut_short: Option<CutShort>,
}

/// Why a run ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CutShort {
    /// Nothing more came of it within [`RunOptions::give_up`].
    GaveUp(Duration),
    /// The transport failed, or ended.
    Transport(TransportError),
}

impl fmt::Display for CutShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CutShort::GaveUp(after) => write!(f, "gave up after {} s", after.as_secs_f64()),
            CutShort::Transport(error) => write!(f, "the transport failed: {error}"),
        }
    }
}

/// Why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The workload makes no sense, or the transport cannot carry it.
    #[error("{0}")]
    Workload(String),
    /// Arrived content differs from what was sent.
    #[error("wrong content: {0}")]
    Content(String),
}

/// The client's end of a workload, over a session that it opened. It does not close the session.
///
/// # Errors
/// [`RunError`]. If a transport stalls or fails, this is part of the [`Outcome`] and no error of
/// the run.
pub async fn drive(
    workload: &Workload,
    session: &dyn Session,
    clock: &dyn Clock,
    options: &RunOptions,
    observer: &dyn Observer,
) -> Result<Outcome, RunError> {
    let run = Run::new(workload, session, clock, options, observer)?;
    match workload {
        Workload::Bulk { bytes, duration } => bulk::drive(&run, *bytes, *duration).await,
        Workload::SlowReader { bytes, .. } => bulk::drive(&run, Some(*bytes), None).await,
        Workload::Files { count, bytes, concurrency } => {
            files::drive(&run, *count, *bytes, *concurrency).await
        }
        Workload::Requests { count, request_bytes, answer_bytes, concurrency } => {
            requests::drive(&run, *count, *request_bytes, *answer_bytes, *concurrency).await
        }
        Workload::Messages { .. } | Workload::RandomMessages { .. } | Workload::Video { .. } => {
            messages::drive(&run, &messages::Plan::new(workload, options.seed)).await
        }
        Workload::Keystrokes { count, every } => keystrokes::drive(&run, *count, *every).await,
    }
}

/// The server's end of a workload, over a session that it accepted. It does not close the session.
///
/// # Errors
/// As [`drive`].
pub async fn serve(
    workload: &Workload,
    session: &dyn Session,
    clock: &dyn Clock,
    options: &RunOptions,
    observer: &dyn Observer,
) -> Result<Outcome, RunError> {
    let run = Run::new(workload, session, clock, options, observer)?;
    match workload {
        Workload::Bulk { bytes, duration } => {
            bulk::serve(&run, *bytes, *duration, &bulk::Reader::eager()).await
        }
        Workload::SlowReader { bytes, read_bytes, every } => {
            bulk::serve(&run, Some(*bytes), None, &bulk::Reader::slow(*read_bytes, *every)).await
        }
        Workload::Files { count, bytes, .. } => files::serve(&run, *count, *bytes).await,
        Workload::Requests { count, request_bytes, answer_bytes, .. } => {
            requests::serve(&run, *count, *request_bytes, *answer_bytes).await
        }
        Workload::Messages { .. } | Workload::RandomMessages { .. } | Workload::Video { .. } => {
            messages::serve(&run, &messages::Plan::new(workload, options.seed)).await
        }
        Workload::Keystrokes { count, every } => keystrokes::serve(&run, *count, *every).await,
    }
}

/// Samples what a transport reports of itself, without end. To be run beside [`drive`] or
/// [`serve`], and dropped with it. Call [`sample_now`] once more after that, to miss nothing.
pub async fn watch(session: &dyn Session, clock: &dyn Clock, every: Duration, observer: &dyn Observer) {
    let every_ns = nanos(every).max(1);
    let mut next_ns = clock.now_ns();
    loop {
        sample_now(session, clock, observer);
        next_ns = (next_ns + every_ns).max(clock.now_ns());
        clock.sleep_until(next_ns).await;
    }
}

/// One sample of what a transport tells of itself, and what happened since the last.
pub fn sample_now(session: &dyn Session, clock: &dyn Clock, observer: &dyn Observer) {
    for sample in session.take_samples() {
        observer.sample(sample);
    }
    if let Some(status) = session.status() {
        observer.sample(Sample::Status {
            at_ns: clock.now_ns(),
            window_bytes: status.window_bytes,
            threshold_bytes: status.threshold_bytes,
            in_flight_bytes: status.in_flight_bytes,
            rtt: status.rtt,
        });
    }
}

/// Run at one end, which all its parts share.
struct Run<'a> {
    session: &'a dyn Session,
    clock: &'a dyn Clock,
    options: &'a RunOptions,
    observer: &'a dyn Observer,
    pattern: Pattern,
    started_ns: u64,
    give_up_ns: u64,
    /// The first thing that went wrong.
    cut_short: RefCell<Option<CutShort>>,
}

/// Why a part of a run ends early.
enum Stop {
    Transport(TransportError),
    Content(String),
}

impl From<TransportError> for Stop {
    fn from(error: TransportError) -> Self {
        Stop::Transport(error)
    }
}

impl<'a> Run<'a> {
    fn new(
        workload: &Workload,
        session: &'a dyn Session,
        clock: &'a dyn Clock,
        options: &'a RunOptions,
        observer: &'a dyn Observer,
    ) -> Result<Self, RunError> {
        workload.validate().map_err(RunError::Workload)?;
        can_carry(workload, &options.capabilities).map_err(RunError::Workload)?;
        let started_ns = clock.now_ns();
        let give_up_ns = started_ns.saturating_add(nanos(options.give_up));
        let (pattern, cut_short) = (Pattern::new(options.seed), RefCell::new(None));
        Ok(Run { session, clock, options, observer, pattern, started_ns, give_up_ns, cut_short })
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Waits for `future` until an instant; `None` if that came first.
    async fn until<T>(&self, at_ns: u64, future: impl Future<Output = T>) -> Option<T> {
        match select(pin!(future), self.clock.sleep_until(at_ns)).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        }
    }

    /// Does a part of the run until the end gives up. The transport's errors become part of the
    /// outcome. Wrong content is an error.
    async fn patiently(&self, part: impl Future<Output = Result<(), Stop>>) -> Result<(), RunError> {
        let why = match self.until(self.give_up_ns, part).await {
            Some(Ok(())) => return Ok(()),
            Some(Err(Stop::Content(what))) => return Err(RunError::Content(what)),
            Some(Err(Stop::Transport(error))) => CutShort::Transport(error),
            None => CutShort::GaveUp(self.options.give_up),
        };
        self.cut_short.borrow_mut().get_or_insert(why);
        Ok(())
    }

    fn outcome(&self, measures: Vec<Measure>) -> Result<Outcome, RunError> {
        Ok(Outcome { measures, cut_short: self.cut_short.take() })
    }

    /// Accepts streams and handles each beside the others, until `has_all` says that no more will
    /// come and those that came have been handled.
    async fn accept_streams(
        &self,
        has_all: impl Fn() -> bool,
        handle: impl AsyncFn(Stream) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut handled = FuturesUnordered::new();
        let mut accept = self.session.accept();
        loop {
            let stream = if has_all() {
                match handled.next().await {
                    Some(result) => result?,
                    None => return Ok(()),
                }
                continue;
            } else if handled.is_empty() {
                (&mut accept).await?
            } else {
                match select(&mut accept, handled.next()).await {
                    Either::Left((stream, _)) => stream?,
                    Either::Right((result, _)) => {
                        result.transpose()?;
                        continue;
                    }
                }
            };
            accept = self.session.accept();
            handled.push(handle(stream));
        }
    }

    /// Writes the content of an item to a stream.
    async fn write_content(
        &self,
        stream: &mut dyn SendStream,
        item: u64,
        bytes: u64,
        written: &Cell<u64>,
    ) -> Result<(), Stop> {
        let mut position = 0;
        while position < bytes {
            let max = usize::try_from(bytes - position).unwrap_or(usize::MAX);
            let part = self.pattern.slice(item, position, max);
            stream.write(part).await?;
            position += part.len() as u64;
            written.set(written.get() + part.len() as u64);
        }
        Ok(())
    }

    /// Checks a stretch of an item that arrived.
    fn check(&self, what: impl fmt::Display, item: u64, position: u64, bytes: &[u8]) -> Result<(), Stop> {
        match self.pattern.check(item, position, bytes) {
            None => Ok(()),
            Some(at) => {
                let seed = self.options.seed;
                Err(Stop::Content(format!("{what}: byte {at} is not what follows from seed {seed}")))
            }
        }
    }
}

/// Progress of a run: bytes delivered in all, and the samples of them, not too close to each other.
struct Progress<'a> {
    run: &'a Run<'a>,
    bytes: Cell<u64>,
    next_ns: Cell<u64>,
    last_ns: Cell<u64>,
}

impl<'a> Progress<'a> {
    fn new(run: &'a Run<'a>) -> Self {
        let (bytes, next_ns, last_ns) = (Cell::new(0), Cell::new(0), Cell::new(run.started_ns));
        Progress { run, bytes, next_ns, last_ns }
    }

    fn add(&self, bytes: u64) {
        let now_ns = self.run.now_ns();
        self.bytes.set(self.bytes.get() + bytes);
        self.last_ns.set(now_ns);
        if now_ns >= self.next_ns.get() {
            self.next_ns.set(now_ns + nanos(self.run.options.sample_every));
            self.sample();
        }
    }

    fn sample(&self) {
        let (at_ns, bytes) = (self.last_ns.get(), self.bytes.get());
        self.run.observer.sample(Sample::Delivered { at_ns, bytes });
    }
}

/// Says to the sender of something that it has arrived.
async fn give_receipt(stream: &mut dyn SendStream) -> Result<(), Stop> {
    stream.write(&[RECEIPT]).await?;
    Ok(stream.finish().await?)
}

/// Waits until the receiver says that it has everything. Its end is read as well: if a stream is
/// dropped before that, the peer would believe that something was not wanted.
async fn await_receipt(stream: &mut dyn ReceiveStream) -> Result<(), Stop> {
    if !read_exact(stream, &mut [0; 1]).await? {
        return Err(TransportError::Closed.into());
    }
    await_end(stream).await
}

async fn await_end(stream: &mut dyn ReceiveStream) -> Result<(), Stop> {
    match stream.read(&mut [0; 1]).await? {
        0 => Ok(()),
        _ => Err(Stop::Content("more came than was sent".to_owned())),
    }
}

/// Reads exactly as much as `buffer` holds; `false` if the stream ended before the first byte.
async fn read_exact(stream: &mut dyn ReceiveStream, buffer: &mut [u8]) -> Result<bool, Stop> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(buffer.get_mut(filled..).unwrap_or_default()).await? {
            0 if filled == 0 => return Ok(false),
            0 => {
                return Err(Stop::Content(format!(
                    "a stream ended after {filled} of {} bytes",
                    buffer.len()
                )));
            }
            n => filled += n,
        }
    }
    Ok(true)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Bits per second of this many bytes in this long.
fn rate(bytes: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { bytes as f64 * 8.0 / seconds(ns) }
}

fn count(name: &str, value: u64) -> Measure {
    Measure::new(name, value as f64, "1")
}

fn bytes_of(name: &str, value: u64) -> Measure {
    Measure::new(name, value as f64, "bytes")
}
