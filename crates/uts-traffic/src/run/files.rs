//! Many files, each on a stream of its own. The receiver answers each with one byte, as any file
//! protocol does.

use super::{
    Outcome, Progress, Run, RunError, Stop, await_receipt, bytes_of, count as counted, give_receipt, rate,
    read_exact, seconds,
};
use crate::measure::{Measure, Sample, Spans};
use crate::pattern::SLICE_MAX;
use crate::transport::{Stream, TransportError};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use futures_util::future::try_join_all;

/// Which file it is, and when the client began with it (before it opened the stream).
const HEADER_BYTES: usize = 12;

pub(super) async fn drive(
    run: &Run<'_>,
    count: u32,
    bytes: u64,
    concurrency: u32,
) -> Result<Outcome, RunError> {
    let (next, written) = (Cell::new(0), Cell::new(0));
    let one_after_another = async || {
        while next.get() < count {
            let index = next.replace(next.get() + 1);
            send(run, index, bytes, &written).await?;
        }
        Ok(())
    };
    run.patiently(async {
        try_join_all((0..concurrency.min(count)).map(|_| one_after_another())).await.map(|_| ())
    })
    .await?;
    run.outcome(vec![bytes_of("sent", written.get())])
}

async fn send(run: &Run<'_>, index: u32, bytes: u64, written: &Cell<u64>) -> Result<(), Stop> {
    let began_ns = run.now_ns();
    let mut stream = run.session.open().await?;
    let mut header = [0; HEADER_BYTES];
    let (first, second) = header.split_at_mut(4);
    first.copy_from_slice(&index.to_be_bytes());
    second.copy_from_slice(&began_ns.to_be_bytes());
    stream.send.write(&header).await?;
    run.write_content(&mut *stream.send, u64::from(index), bytes, written).await?;
    stream.send.finish().await?;
    await_receipt(&mut *stream.receive).await
}

/// Files that the receiver has seen, and the times that they took.
struct Seen<'a> {
    progress: Progress<'a>,
    /// Which files have come.
    whole: RefCell<Vec<bool>>,
    took: RefCell<Spans>,
    first_began_ns: Cell<u64>,
}

pub(super) async fn serve(run: &Run<'_>, count: u32, bytes: u64) -> Result<Outcome, RunError> {
    let seen = Seen {
        progress: Progress::new(run),
        whole: RefCell::new(vec![false; count as usize]),
        took: RefCell::default(),
        first_began_ns: Cell::new(u64::MAX),
    };
    let accepted = Cell::new(0);
    let has_all = || accepted.get() >= count;
    run.patiently(run.accept_streams(has_all, async |stream| {
        accepted.set(accepted.get() + 1);
        receive(run, &seen, stream, bytes).await
    }))
    .await?;
    let Seen { progress, took, first_began_ns, .. } = seen;
    progress.sample();
    let took = took.into_inner();
    let is_whole = took.len() == count as usize;
    let end_ns = if is_whole { progress.last_ns.get() } else { run.now_ns() };
    let took_ns = end_ns.saturating_sub(first_began_ns.get().min(end_ns));
    let mut measures = vec![
        bytes_of("delivered", progress.bytes.get()),
        Measure::new("goodput", rate(progress.bytes.get(), took_ns), "bit/s"),
        counted("files", took.len() as u64),
    ];
    if is_whole {
        measures.push(Measure::new("completion", seconds(took_ns), "s"));
    }
    measures.extend(took.measures("file"));
    run.outcome(measures)
}

async fn receive(run: &Run<'_>, seen: &Seen<'_>, mut stream: Stream, bytes: u64) -> Result<(), Stop> {
    let mut header = [0; HEADER_BYTES];
    if !read_exact(&mut *stream.receive, &mut header).await? {
        return Err(TransportError::Closed.into());
    }
    let [a, b, c, d, began @ ..] = header;
    let (index, began_ns) = (u32::from_be_bytes([a, b, c, d]), u64::from_be_bytes(began));
    seen.first_began_ns.set(seen.first_began_ns.get().min(began_ns));
    let (mut position, mut buffer) = (0, vec![0; SLICE_MAX]);
    loop {
        let n = stream.receive.read(&mut buffer).await?;
        let Some(read) = buffer.get(..n).filter(|read| !read.is_empty()) else { break };
        run.check(format_args!("file {index}"), u64::from(index), position, read)?;
        position += n as u64;
        seen.progress.add(n as u64);
    }
    if position != bytes {
        return Err(Stop::Content(format!("file {index} has {position} instead of {bytes} bytes")));
    }
    match seen.whole.borrow_mut().get_mut(index as usize) {
        Some(was_whole) if !*was_whole => *was_whole = true,
        _ => return Err(Stop::Content(format!("file {index} came twice, or is not one of those sent"))),
    }
    let took_ns = run.now_ns().saturating_sub(began_ns);
    seen.took.borrow_mut().push(took_ns);
    let took = Some(Duration::from_nanos(took_ns));
    run.observer.sample(Sample::Latency { at_ns: began_ns, took, deadline: None });
    give_receipt(&mut *stream.send).await
}
