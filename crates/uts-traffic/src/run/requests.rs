//! Requests and answers: as many streams as requests are under way, with one request after another
//! on each.
//!
//! A stream first says which one it is. The contents of the k-th request on it, and of its answer,
//! follow from that. They need no header and may be of any size.

use super::{Outcome, Run, RunError, Stop, await_end, count as counted, read_exact, seconds};
use crate::measure::{Measure, Sample, Spans};
use crate::pattern::SLICE_MAX;
use crate::transport::{ReceiveStream, Stream, TransportError};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use futures_util::future::try_join_all;
use std::collections::BTreeMap;

/// The content of the k-th request (or answer) on a stream.
fn item(stream: u32, k: u32, is_answer: bool) -> u64 {
    u64::from(stream) << 33 | u64::from(k) << 1 | u64::from(is_answer)
}

pub(super) async fn drive(
    run: &Run<'_>,
    count: u32,
    request_bytes: u64,
    answer_bytes: u64,
    concurrency: u32,
) -> Result<Outcome, RunError> {
    let client = Client {
        run,
        count,
        request_bytes,
        answer_bytes,
        begun: Cell::new(0),
        waiting: RefCell::default(),
        took: RefCell::default(),
        last_ns: Cell::new(run.started_ns),
    };
    run.patiently(async {
        try_join_all((0..concurrency.min(count)).map(|id| client.stream(id))).await.map(|_| ())
    })
    .await?;
    for began_ns in client.waiting.into_inner().into_values() {
        run.observer.sample(Sample::Latency { at_ns: began_ns, took: None, deadline: None });
    }
    let took = client.took.into_inner();
    let answered = took.len() as u64;
    let is_whole = answered == u64::from(count);
    let end_ns = if is_whole { client.last_ns.get() } else { run.now_ns() };
    let whole_s = seconds(end_ns.saturating_sub(run.started_ns));
    let per_s = if whole_s > 0.0 { answered as f64 / whole_s } else { 0.0 };
    let mut measures = vec![counted("answered", answered), Measure::new("requests_per_s", per_s, "1/s")];
    if is_whole {
        measures.push(Measure::new("completion", whole_s, "s"));
    }
    measures.extend(took.measures("request"));
    run.outcome(measures)
}

struct Client<'a> {
    run: &'a Run<'a>,
    count: u32,
    request_bytes: u64,
    answer_bytes: u64,
    begun: Cell<u32>,
    /// When the request under way on a stream began.
    waiting: RefCell<BTreeMap<u32, u64>>,
    took: RefCell<Spans>,
    last_ns: Cell<u64>,
}

impl Client<'_> {
    /// One request after another on one stream, while there are any left.
    async fn stream(&self, id: u32) -> Result<(), Stop> {
        let run = self.run;
        let mut stream: Option<Stream> = None;
        let mut k = 0;
        while self.begun.get() < self.count {
            self.begun.set(self.begun.get() + 1);
            // What it takes to open a stream is part of the first request on it.
            let began_ns = run.now_ns();
            self.waiting.borrow_mut().insert(id, began_ns);
            let stream = match &mut stream {
                Some(stream) => stream,
                None => {
                    let opened = stream.insert(run.session.open().await?);
                    opened.send.write(&id.to_be_bytes()).await?;
                    opened
                }
            };
            run.write_content(&mut *stream.send, item(id, k, false), self.request_bytes, &Cell::new(0))
                .await?;
            let what = format!("answer {k} on stream {id}");
            if !read_content(run, &mut *stream.receive, &what, item(id, k, true), self.answer_bytes).await? {
                return Err(TransportError::Closed.into());
            }
            let now_ns = run.now_ns();
            let took_ns = now_ns.saturating_sub(began_ns);
            self.waiting.borrow_mut().remove(&id);
            self.took.borrow_mut().push(took_ns);
            self.last_ns.set(now_ns);
            let took = Some(Duration::from_nanos(took_ns));
            run.observer.sample(Sample::Latency { at_ns: began_ns, took, deadline: None });
            k += 1;
        }
        if let Some(stream) = &mut stream {
            stream.send.finish().await?;
            await_end(&mut *stream.receive).await?;
        }
        Ok(())
    }
}

pub(super) async fn serve(
    run: &Run<'_>,
    count: u32,
    request_bytes: u64,
    answer_bytes: u64,
) -> Result<Outcome, RunError> {
    let served = Cell::new(0);
    run.patiently(run.accept_streams(
        || served.get() >= count,
        async |stream| answer(run, stream, request_bytes, answer_bytes, &served).await,
    ))
    .await?;
    run.outcome(vec![counted("served", u64::from(served.get()))])
}

/// Answers what comes on one stream, to its end.
async fn answer(
    run: &Run<'_>,
    mut stream: Stream,
    request_bytes: u64,
    answer_bytes: u64,
    served: &Cell<u32>,
) -> Result<(), Stop> {
    let mut id = [0; 4];
    if !read_exact(&mut *stream.receive, &mut id).await? {
        return Ok(());
    }
    let id = u32::from_be_bytes(id);
    let mut k = 0;
    loop {
        let what = format!("request {k} on stream {id}");
        if !read_content(run, &mut *stream.receive, &what, item(id, k, false), request_bytes).await? {
            return Ok(stream.send.finish().await?);
        }
        run.write_content(&mut *stream.send, item(id, k, true), answer_bytes, &Cell::new(0)).await?;
        served.set(served.get() + 1);
        k += 1;
    }
}

/// Reads and checks an item; `false` if the stream ended before it.
async fn read_content(
    run: &Run<'_>,
    stream: &mut dyn ReceiveStream,
    what: &str,
    item: u64,
    bytes: u64,
) -> Result<bool, Stop> {
    let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(SLICE_MAX).min(SLICE_MAX)];
    let mut position = 0;
    while position < bytes {
        let max = usize::try_from(bytes - position).unwrap_or(SLICE_MAX).min(buffer.len());
        let n = stream.read(buffer.get_mut(..max).unwrap_or_default()).await?;
        match n {
            0 if position == 0 => return Ok(false),
            0 => return Err(Stop::Content(format!("{what} ended after {position} of {bytes} bytes"))),
            n => run.check(what, item, position, buffer.get(..n).unwrap_or_default())?,
        }
        position += n as u64;
    }
    Ok(true)
}
