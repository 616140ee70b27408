//! One file on one stream. The client's start stands before it. The receiver says when it has
//! enough.

use super::{
    Outcome, Progress, Run, RunError, Stop, await_receipt, bytes_of, give_receipt, nanos, rate, read_exact,
    seconds,
};
use crate::measure::Measure;
use crate::pattern::SLICE_MAX;
use crate::transport::{ReceiveStream, TransportError};
use core::cell::Cell;
use core::time::Duration;

/// The start of the client on the common clock.
const HEADER_BYTES: usize = 8;

/// The pace of the server's application.
pub(super) struct Reader {
    bytes_max: usize,
    busy: Duration,
}

impl Reader {
    /// As fast as it can.
    pub fn eager() -> Self {
        Reader { bytes_max: SLICE_MAX, busy: Duration::ZERO }
    }

    /// At most so many bytes at once, and then busy with them.
    pub fn slow(bytes_max: u64, busy: Duration) -> Self {
        Reader { bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX), busy }
    }
}

pub(super) async fn drive(
    run: &Run<'_>,
    bytes: Option<u64>,
    duration: Option<Duration>,
) -> Result<Outcome, RunError> {
    let (written, unsent) = (Cell::new(0), Cell::new(0));
    run.patiently(async {
        let mut stream = run.session.open().await?;
        stream.send.write(&run.started_ns.to_be_bytes()).await?;
        let write = async {
            run.write_content(&mut *stream.send, 0, bytes.unwrap_or(u64::MAX), &written).await?;
            Ok(stream.send.finish().await?)
        };
        let ends_ns = duration.map_or(u64::MAX, |d| run.started_ns.saturating_add(nanos(d)));
        if let Some(Err(error)) = run.until(ends_ns, write).await {
            return Err(error);
        }
        // What still waits in a buffer when the time is over was not sent in that time.
        unsent.set(stream.send.unsent_bytes());
        let receipt = await_receipt(&mut *stream.receive).await;
        if duration.is_none() {
            unsent.set(0);
        }
        receipt
    })
    .await?;
    run.outcome(vec![bytes_of("sent", written.get().saturating_sub(unsent.get()))])
}

pub(super) async fn serve(
    run: &Run<'_>,
    bytes: Option<u64>,
    duration: Option<Duration>,
    reader: &Reader,
) -> Result<Outcome, RunError> {
    let progress = Progress::new(run);
    let start_ns = Cell::new(run.started_ns);
    let is_whole = Cell::new(false);
    run.patiently(async {
        let mut stream = run.session.accept().await?;
        let mut header = [0; HEADER_BYTES];
        if !read_exact(&mut *stream.receive, &mut header).await? {
            return Err(TransportError::Closed.into());
        }
        start_ns.set(u64::from_be_bytes(header));
        let ends_ns = duration.map_or(u64::MAX, |d| start_ns.get().saturating_add(nanos(d)));
        match run.until(ends_ns, receive(run, &mut *stream.receive, reader, &progress)).await {
            // The time is over, and what still comes does not count.
            None => {}
            Some(Err(error)) => return Err(error),
            Some(Ok(())) => match (bytes, progress.bytes.get()) {
                (Some(bytes), got) if got == bytes => is_whole.set(true),
                (Some(bytes), got) => {
                    return Err(Stop::Content(format!("the file has {got} instead of {bytes} bytes")));
                }
                (None, _) => return Err(TransportError::Closed.into()),
            },
        }
        give_receipt(&mut *stream.send).await?;
        // Until the client has seen it, nothing may be torn down. What the client still sends is of
        // no interest.
        let mut rest = vec![0; SLICE_MAX];
        while !is_whole.get() && !matches!(stream.receive.read(&mut rest).await, Ok(0) | Err(_)) {}
        Ok(())
    })
    .await?;
    progress.sample();
    let took_ns = match (is_whole.get(), duration) {
        (true, _) => progress.last_ns.get().saturating_sub(start_ns.get()),
        (false, Some(duration)) => nanos(duration),
        (false, None) => run.now_ns().saturating_sub(start_ns.get()),
    };
    let delivered = progress.bytes.get();
    let mut measures =
        vec![bytes_of("delivered", delivered), Measure::new("goodput", rate(delivered, took_ns), "bit/s")];
    if is_whole.get() {
        measures.push(Measure::new("completion", seconds(took_ns), "s"));
    }
    run.outcome(measures)
}

/// Reads and checks the file to its end.
async fn receive(
    run: &Run<'_>,
    stream: &mut dyn ReceiveStream,
    reader: &Reader,
    progress: &Progress<'_>,
) -> Result<(), Stop> {
    let mut buffer = vec![0; reader.bytes_max];
    loop {
        let n = stream.read(&mut buffer).await?;
        let Some(read) = buffer.get(..n).filter(|read| !read.is_empty()) else { return Ok(()) };
        run.check("the file", 0, progress.bytes.get(), read)?;
        progress.add(n as u64);
        if !reader.busy.is_zero() {
            run.clock.sleep_until(run.now_ns().saturating_add(nanos(reader.busy))).await;
        }
    }
}
