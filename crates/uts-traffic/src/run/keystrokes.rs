//! Keystrokes at a person's pace, each echoed: on one stream, or as messages if a transport has no
//! streams.

use super::{Outcome, QUIET, Run, RunError, Stop, count as counted, nanos, read_exact};
use crate::measure::{Sample, Spans};
use crate::spell::exponential;
use crate::transport::{Stream, TransportError};
use crate::workload::KEYSTROKE_BYTES;
use bytes::Bytes;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use futures_util::future::try_join;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Distinguishes the random times from the random contents of the same seed.
const TIMES: u64 = 0x6b65_7973;

type Keystroke = [u8; KEYSTROKE_BYTES];

/// When each key is pressed, in nanoseconds after the start; the first at once.
fn due_ns(seed: u64, count: u32, every: Duration) -> Vec<u64> {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ TIMES);
    let mut at = 0.0;
    (0..count)
        .map(|_| {
            let due = at;
            at += exponential(&mut random) * every.as_nanos() as f64;
            due as u64
        })
        .collect()
}

/// A keystroke: which it is, then content.
fn keystroke(run: &Run<'_>, index: u32) -> Vec<u8> {
    let mut bytes = index.to_be_bytes().to_vec();
    run.pattern.append(u64::from(index), 0, KEYSTROKE_BYTES - 4, &mut bytes);
    bytes
}

/// Which keystroke it is.
fn check(run: &Run<'_>, bytes: &[u8]) -> Result<u32, Stop> {
    let index = match bytes.split_first_chunk::<4>() {
        Some((index, _)) if bytes.len() == KEYSTROKE_BYTES => u32::from_be_bytes(*index),
        _ => return Err(Stop::Content(format!("a keystroke of {} bytes came", bytes.len()))),
    };
    if keystroke(run, index) != bytes {
        return Err(Stop::Content(format!("keystroke {index} is not what follows from the seed")));
    }
    Ok(index)
}

/// Client's knowledge of its keystrokes.
struct Client<'a> {
    run: &'a Run<'a>,
    due_ns: Vec<u64>,
    /// Time that each echo took.
    took_ns: RefCell<Vec<Option<u64>>>,
    typed: Cell<u32>,
    echoes: Cell<u32>,
}

pub(super) async fn drive(run: &Run<'_>, count: u32, every: Duration) -> Result<Outcome, RunError> {
    let due_ns: Vec<u64> = due_ns(run.options.seed, count, every)
        .into_iter()
        .map(|after_ns| run.started_ns.saturating_add(after_ns))
        .collect();
    let took_ns = RefCell::new(vec![None; due_ns.len()]);
    let client = Client { run, due_ns, took_ns, typed: Cell::new(0), echoes: Cell::new(0) };
    match run.options.capabilities.streams {
        true => run.patiently(client.on_stream()).await?,
        false => run.patiently(client.in_messages()).await?,
    }
    let mut took = Spans::default();
    for (at_ns, took_ns) in client.due_ns.iter().copied().zip(client.took_ns.take()) {
        if let Some(ns) = took_ns {
            took.push(ns);
        }
        run.observer.sample(Sample::Latency {
            at_ns,
            took: took_ns.map(Duration::from_nanos),
            deadline: None,
        });
    }
    let missing = u64::from(count).saturating_sub(took.len() as u64);
    let mut measures = vec![counted("typed", u64::from(client.typed.get())), counted("missing", missing)];
    measures.extend(took.measures("echo"));
    run.outcome(measures)
}

impl Client<'_> {
    async fn on_stream(&self) -> Result<(), Stop> {
        let Stream { mut send, mut receive } = self.run.session.open().await?;
        let type_all = async {
            for (index, due_ns) in (0..).zip(&self.due_ns) {
                self.run.clock.sleep_until(*due_ns).await;
                send.write(&keystroke(self.run, index)).await?;
                self.typed.set(self.typed.get() + 1);
            }
            Ok(send.finish().await?)
        };
        let read_all = async {
            let mut echo: Keystroke = [0; KEYSTROKE_BYTES];
            while read_exact(&mut *receive, &mut echo).await? {
                self.on_echo(&echo)?;
            }
            match self.echoes.get() as usize == self.due_ns.len() {
                true => Ok(()),
                false => Err(TransportError::Closed.into()),
            }
        };
        try_join(type_all, read_all).await.map(|_| ())
    }

    async fn in_messages(&self) -> Result<(), Stop> {
        let type_all = async {
            for (index, due_ns) in (0..).zip(&self.due_ns) {
                self.run.clock.sleep_until(*due_ns).await;
                self.run.session.send_message(Bytes::from(keystroke(self.run, index)), None).await?;
                self.typed.set(self.typed.get() + 1);
            }
            Ok(())
        };
        let last_ns = self.due_ns.last().copied().unwrap_or(0);
        let read_all = async {
            while (self.echoes.get() as usize) < self.due_ns.len() {
                let quiet_ns = last_ns.max(self.run.now_ns()).saturating_add(nanos(QUIET));
                match self.run.until(quiet_ns, self.run.session.receive_message()).await {
                    Some(echo) => self.on_echo(&echo?)?,
                    // The transport loses some, which is no failure.
                    None => return Ok(()),
                }
            }
            Ok(())
        };
        try_join(type_all, read_all).await.map(|_| ())
    }

    fn on_echo(&self, echo: &[u8]) -> Result<(), Stop> {
        let index = check(self.run, echo)? as usize;
        let now_ns = self.run.now_ns();
        let mut took_ns = self.took_ns.borrow_mut();
        match (took_ns.get_mut(index), self.due_ns.get(index)) {
            (Some(took_ns @ None), Some(due_ns)) => {
                *took_ns = Some(now_ns.saturating_sub(*due_ns));
                self.echoes.set(self.echoes.get() + 1);
                Ok(())
            }
            // It came twice.
            (Some(Some(_)), _) => Ok(()),
            _ => Err(Stop::Content(format!("keystroke {index} came back, which was not typed"))),
        }
    }
}

pub(super) async fn serve(run: &Run<'_>, count: u32, every: Duration) -> Result<Outcome, RunError> {
    let echoed = Cell::new(0);
    match run.options.capabilities.streams {
        true => run.patiently(echo_stream(run, &echoed)).await?,
        false => run.patiently(echo_messages(run, count, every, &echoed)).await?,
    }
    run.outcome(vec![counted("echoed", u64::from(echoed.get()))])
}

async fn echo_stream(run: &Run<'_>, echoed: &Cell<u32>) -> Result<(), Stop> {
    let mut stream = run.session.accept().await?;
    let mut typed: Keystroke = [0; KEYSTROKE_BYTES];
    while read_exact(&mut *stream.receive, &mut typed).await? {
        check(run, &typed)?;
        stream.send.write(&typed).await?;
        echoed.set(echoed.get() + 1);
    }
    Ok(stream.send.finish().await?)
}

/// Echoes what comes until the client ends, or nothing more is to be expected.
async fn echo_messages(run: &Run<'_>, count: u32, every: Duration, echoed: &Cell<u32>) -> Result<(), Stop> {
    let typing_ns = due_ns(run.options.seed, count, every).last().copied().unwrap_or(0);
    let last_ns = run.started_ns.saturating_add(typing_ns);
    let mut seen = vec![false; count as usize];
    while echoed.get() < count {
        let quiet_ns = last_ns.max(run.now_ns()).saturating_add(nanos(QUIET));
        let typed = match run.until(quiet_ns, run.session.receive_message()).await {
            Some(Ok(typed)) => typed,
            Some(Err(TransportError::Closed)) if echoed.get() > 0 => return Ok(()),
            Some(Err(error)) => return Err(error.into()),
            None => return Ok(()),
        };
        let index = check(run, &typed)?;
        match seen.get_mut(index as usize) {
            Some(seen @ false) => *seen = true,
            // It came twice.
            Some(true) => continue,
            None => return Err(Stop::Content(format!("keystroke {index} came, of {count}"))),
        }
        run.session.send_message(typed, None).await?;
        echoed.set(echoed.get() + 1);
    }
    Ok(())
}
