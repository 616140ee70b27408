//! One pass over the data of a packet for copy, check and seal, compared with separate passes: the
//! integrated layer processing of Clark and Tennenhouse (SIGCOMM 1990).
//!
//! A work is what one end does with a packet, from the place where the data is to the place where
//! it must be, in several ways. The first way is how UTS does it. All ways make the same bytes.
//! This is checked before any is measured.

mod checks;
mod ciphers;

use super::DATA_BYTES;
use crate::summary::Summary;
use crate::usage::thread_time;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::hint::black_box;
use std::time::Duration;
use uts_functions::detection::{Detection, Verdict};

/// Room of a packet, or of its data: as it lies in batches that fill the path's MTU.
const SLOT_BYTES: usize = 1472;
type Slot = [u8; SLOT_BYTES];

/// Whether the first `END` bytes and what stands behind them belong together.
fn is_right(mechanism: &impl Detection, from: &mut Slot, trailer_bytes: usize) -> bool {
    let (covered, trailer) = from.split_at_mut(END);
    mechanism.check(covered, &trailer[..trailer_bytes]) == Verdict::Right
}

/// Packets of a batch that the kernel takes or hands over at once (64 KiB).
const BATCH: usize = 44;

/// Packets in sequence with their data in cache: 506 KiB, which the second-level cache holds.
/// Reading the clock between rounds costs each packet little.
const CACHED: usize = 8 * BATCH;

/// Rounds of a turn with data in cache.
const CACHED_ROUNDS: usize = 50;

/// Packets of a turn with data from memory: 88 MiB, which no cache holds.
const WALK: usize = 1425 * BATCH;

/// Such walks follow each other through a region of 264 MiB.
const WALKS: usize = 3;

/// The packet's header, which is not encrypted.
const HEADER: [u8; 11] = [4, 7, 7, 7, 7, 7, 7, 7, 7, 1, 2];

/// The data frame's header, which is.
const FRAME: [u8; 9] = [0x48, 0, 0xc0, 0, 0, 0, 0x12, 0x34, 0x56];

/// Where encryption begins.
const BODY: usize = HEADER.len();

/// Where the data begins.
const DATA: usize = BODY + FRAME.len();

/// Where the data ends, and a checksum or the tag begins.
const END: usize = DATA + DATA_BYTES;

/// Handles the packet of this number, from its first slot into the other; `false` if it is damaged.
type Step = Box<dyn FnMut(u64, &mut Slot, &mut Slot) -> bool>;

struct Work {
    end: &'static str,
    name: String,
    /// Makes of data the packet that a receiver is handed.
    arrive: Option<Step>,
    ways: Vec<Way>,
}

struct Way {
    name: &'static str,
    /// From the data to the packet; at a receiver, from the packet to the data.
    step: Step,
}

/// What a way costs.
#[derive(Debug, Serialize)]
pub struct Passes {
    /// `sender` or `receiver`.
    pub end: &'static str,
    /// What is to be done.
    pub work: String,
    /// In which passes.
    pub way: &'static str,
    /// With data in cache.
    pub cached: Timing,
    /// With data that comes from memory.
    pub memory: Timing,
}

/// Nanoseconds per packet.
#[derive(Debug, Serialize)]
pub struct Timing {
    /// What it takes.
    pub ns: Summary,
    /// How much less than the first way of the same work in the same turn.
    pub gain_ns: Summary,
}

/// Measures all ways in turns.
pub fn measure(turns: usize, progress: impl Fn(String)) -> Result<Vec<Passes>> {
    let mut works = works()?;
    works.iter_mut().try_for_each(Work::check)?;
    let (mut region, mut cached, mut into) = (slots(WALKS * WALK), slots(CACHED), slots(BATCH));
    // Of each work, way and turn: with data in cache, and from memory.
    let mut times: Vec<Vec<Vec<[f64; 2]>>> = works.iter().map(|w| vec![Vec::new(); w.ways.len()]).collect();
    let mut walk = 0;
    for turn in 1..=turns {
        progress(format!("passes, turn {turn} of {turns}"));
        for (work, times) in works.iter_mut().zip(&mut times) {
            for (way, times) in times.iter_mut().enumerate() {
                let cached_ns = work.run(way, &mut cached, &mut into, CACHED_ROUNDS)?;
                let memory_ns = work.run(way, &mut region[walk * WALK..][..WALK], &mut into, 1)?;
                times.push([cached_ns, memory_ns]);
                walk = (walk + 1) % WALKS;
            }
        }
    }
    let mut found = Vec::new();
    for (work, times) in works.iter().zip(&times) {
        for (way, own) in work.ways.iter().zip(times) {
            let timing = |place: usize| {
                let gains = times[0].iter().zip(own).map(|(first, own)| first[place] - own[place]);
                let ns = Summary::of(own.iter().map(|ns| ns[place])).context("no turns")?;
                anyhow::Ok(Timing { ns, gain_ns: Summary::of(gains).context("no turns")? })
            };
            let (work, end) = (work.name.clone(), work.end);
            found.push(Passes { end, work, way: way.name, cached: timing(0)?, memory: timing(1)? });
        }
    }
    Ok(found)
}

fn works() -> Result<Vec<Work>> {
    let mut works = ciphers::works()?;
    works.extend(checks::works());
    works.extend(ciphers::works_with_crc()?);
    Ok(works)
}

fn data() -> Slot {
    std::array::from_fn(|at| (at * 7 + 3) as u8)
}

/// Written to, so that each page is memory of its own.
fn slots(count: usize) -> Vec<Slot> {
    vec![data(); count]
}

impl Work {
    fn sender(name: impl Into<String>) -> Self {
        Work { end: "sender", name: name.into(), arrive: None, ways: Vec::new() }
    }

    fn receiver(
        name: impl Into<String>,
        arrive: impl FnMut(u64, &mut Slot, &mut Slot) -> bool + 'static,
    ) -> Self {
        Work { end: "receiver", name: name.into(), arrive: Some(Box::new(arrive)), ways: Vec::new() }
    }

    fn way(
        mut self,
        name: &'static str,
        step: impl FnMut(u64, &mut Slot, &mut Slot) -> bool + 'static,
    ) -> Self {
        self.ways.push(Way { name, step: Box::new(step) });
        self
    }

    /// Nanoseconds per packet. Packets are made anew for each round, because opening them in place
    /// destroys them.
    fn run(&mut self, way: usize, from: &mut [Slot], into: &mut [Slot], rounds: usize) -> Result<f64> {
        let Way { name, step } = &mut self.ways[way];
        let (mut took, mut intact) = (Duration::ZERO, 0);
        for _ in 0..rounds {
            if let Some(arrive) = &mut self.arrive {
                let mut data = data();
                (0..).zip(from.iter_mut()).for_each(|(number, packet)| {
                    arrive(number, &mut data, packet);
                });
            }
            let (start, mut number) = (thread_time(), 0);
            for batch in from.chunks_mut(into.len()) {
                for (from, into) in batch.iter_mut().zip(into.iter_mut()) {
                    intact += usize::from(step(number, black_box(from), into));
                    black_box(into);
                    number += 1;
                }
            }
            took += thread_time() - start;
        }
        let packets = rounds * from.len();
        ensure!(intact == packets, "{}, {name}: {intact} of {packets} packets intact", self.name);
        Ok(took.as_nanos() as f64 / packets as f64)
    }

    /// Checks that senders make the same packet, and that receivers find the data and notice
    /// damage.
    fn check(&mut self) -> Result<()> {
        let mut expected = None;
        for Way { name, step } in &mut self.ways {
            let what = format!("{}, {}, {name}", self.end, self.name);
            let (mut from, mut into) = (data(), [0; SLOT_BYTES]);
            if let Some(arrive) = &mut self.arrive {
                ensure!(arrive(5, &mut data(), &mut from), "{what}: cannot be sent");
                let mut damaged = from;
                damaged[DATA + DATA_BYTES / 2] ^= 1;
                ensure!(!step(5, &mut damaged, &mut into), "{what}: takes a damaged packet");
                ensure!(step(5, &mut from, &mut into), "{what}: refuses a packet");
                ensure!(into[FRAME.len()..][..DATA_BYTES] == data()[..DATA_BYTES], "{what}: other data");
            } else {
                ensure!(step(5, &mut from, &mut into), "{what}: fails");
                ensure!(into == *expected.get_or_insert(into), "{what}: another packet");
            }
        }
        Ok(())
    }
}

/// Writes the headers of the packet.
fn put_headers(packet: &mut Slot) {
    packet[..BODY].copy_from_slice(&HEADER);
    packet[BODY..DATA].copy_from_slice(&FRAME);
}

/// Writes the headers, and copies the data behind them.
fn put(from: &Slot, packet: &mut Slot) {
    put_headers(packet);
    packet[DATA..END].copy_from_slice(&from[..DATA_BYTES]);
}

/// The place of the data at a receiver. There is room before it for the frame's header, which is
/// decrypted with it.
fn place(into: &mut Slot) -> &mut [u8] {
    &mut into[FRAME.len()..][..DATA_BYTES]
}

/// Copies the data out of the packet.
fn take(packet: &Slot, into: &mut Slot) {
    place(into).copy_from_slice(&packet[DATA..END]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_of_the_same_work_do_the_same() {
        works().and_then(|mut works| works.iter_mut().try_for_each(Work::check)).expect("the same bytes");
    }
}
