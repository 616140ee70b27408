//! Nagle's algorithm (section 2.3.2): keystrokes become one packet in a round trip where they are
//! echoed, one in each delayed acknowledgement where they are not, and an escape code waits.

use super::ends::{CLIENT, Ends, SERVER};
use crate::average::median;
use crate::engine::ask;
use crate::paper::{Series, push};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use core::time::Duration;
use uts_engine::{ConnectionConfig, Event, FlowId, Read, TraceKind};
use uts_functions::Time;
use uts_sim::{NodeId, WorldConfig};

/// Round trips, in milliseconds: of a LAN, and longer ones.
const ROUND_TRIPS_MS: [u64; 5] = [1, 20, 50, 100, 150];
/// A key is typed this often, faster than a round trip for the longer ones.
const KEY_EVERY: Duration = Duration::from_millis(10);
const KEYS: u32 = 600;
/// Between the two bytes of an escape code, which a terminal sends on its own.
const WITHIN_CODE: Duration = Duration::from_millis(1);
const CODES: u32 = 20;
const CODE_EVERY: Duration = Duration::from_secs(2);
/// Delay of acknowledgements of BSD.
const DELAY_MS: u32 = 200;

/// Behaviour of the receiving application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It echoes what it reads.
    Echoes,
    /// It says nothing.
    Silent,
    /// It answers an escape code once both bytes are there.
    AnswersCodes,
}

struct Run {
    ends: Ends,
    reader: Reader,
    /// Bytes that the server has read, and those of its answers that the client has.
    read: u64,
    answers: Vec<Time>,
}

impl Run {
    fn new(rtt_ms: u64, reader: Reader, has_nagle: bool) -> Result<Self> {
        let mut config = ConnectionConfig { idle_timeout: Duration::ZERO, ..ConnectionConfig::default() };
        let nagle = u8::from(has_nagle);
        let asked = [
            "uts.profile=tcp-reno".to_owned(),
            format!("uts.profile.flow=sliding-window(nagle={nagle})"),
            format!("uts.profile.acknowledgement=in-order(packets=2,delay={DELAY_MS})"),
            "uts.consent=all".to_owned(),
        ];
        ask(&mut config.requirements, asked)?;
        let mut world = WorldConfig { seed: rtt_ms, ..WorldConfig::default() };
        // What the server says goes under the same profile.
        world.server.accept = config.clone();
        let path = format!("rate=10mbit delay={}us", rtt_ms * 500);
        let ends = Ends::connected(world, config, &path, true)?;
        Ok(Run { ends, reader, read: 0, answers: Vec::new() })
    }

    fn key(&mut self) -> Result<()> {
        let (now, flow) = (self.ends.world.now(), self.ends.flow);
        ensure!(
            self.ends.connection(CLIENT)?.write(now, flow, Bytes::from_static(b"k"))? == 1,
            "a key was not taken"
        );
        Ok(())
    }

    fn pass(&mut self, duration: Duration) -> Result<()> {
        let until = self.ends.world.now() + duration;
        while let Some((node, event)) = self.ends.next(until)? {
            if let Event::Readable(flow) = event {
                self.read(node, flow)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, node: NodeId, flow: FlowId) -> Result<()> {
        let now = self.ends.world.now();
        while let Ok(Read::Bytes(_, data)) = self.ends.connection(node)?.read(now, flow, 1 << 16) {
            if node == CLIENT {
                self.answers.extend(data.iter().map(|_| now));
                continue;
            }
            let before = self.read;
            self.read += data.len() as u64;
            let answers = match self.reader {
                Reader::Echoes => self.read - before,
                Reader::Silent => 0,
                Reader::AnswersCodes => self.read / 2 - before / 2,
            };
            let answer = Bytes::from(vec![b'a'; usize::try_from(answers)?]);
            if !answer.is_empty() {
                self.ends.connection(SERVER)?.write(now, flow, answer)?;
            }
        }
        Ok(())
    }

    /// Times at which packets of keys left, since an instant.
    fn packets(&mut self, since: Time) -> Vec<Time> {
        let rows = self.ends.world.take_packets(CLIENT);
        let is_key =
            |row: &uts_engine::TraceRow| row.kind == TraceKind::Sent && row.data.is_some() && row.at >= since;
        rows.iter().map(|(_, row)| row).filter(|row| is_key(row)).map(|row| row.at).collect()
    }
}

/// The median time between two packets of keys, in milliseconds, over some round trips, where keys
/// are echoed and where they are not, with Nagle's algorithm and without.
///
/// # Errors
/// The connection ends.
pub fn keys(reader: Reader, has_nagle: bool) -> Result<Series> {
    let mut series = Series::new();
    for rtt_ms in ROUND_TRIPS_MS {
        let mut run = Run::new(rtt_ms, reader, has_nagle)?;
        let begins = run.ends.world.now();
        for _ in 0..KEYS {
            run.key()?;
            run.pass(KEY_EVERY)?;
        }
        let packets = run.packets(begins);
        let gaps = packets.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64() * 1e3);
        let between = median(gaps);
        push(&mut series, [("rtt", rtt_ms as f64), ("between", between), ("packets", packets.len() as f64)]);
    }
    Ok(series)
}

/// The median time from an escape code to the answer, in milliseconds, over some round trips.
///
/// # Errors
/// The connection ends; a code is not answered.
pub fn codes(has_nagle: bool) -> Result<Series> {
    let mut series = Series::new();
    for rtt_ms in ROUND_TRIPS_MS {
        let mut run = Run::new(rtt_ms, Reader::AnswersCodes, has_nagle)?;
        let mut waits = Vec::new();
        for _ in 0..CODES {
            run.key()?;
            run.pass(WITHIN_CODE)?;
            run.key()?;
            let typed = run.ends.world.now();
            run.pass(CODE_EVERY)?;
            let answered = run.answers.pop().context("a code has no answer")?;
            ensure!(run.answers.is_empty() && answered >= typed, "one answer to a code");
            waits.push(answered.since(typed).as_secs_f64() * 1e3);
        }
        let wait = median(waits);
        push(&mut series, [("rtt", rtt_ms as f64), ("wait", wait), ("beyond", wait - rtt_ms as f64)]);
    }
    Ok(series)
}
