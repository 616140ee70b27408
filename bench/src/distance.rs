//! How far two cores are from each other at present.
//!
//! The host of a virtual machine moves its cores. For some seconds they share a cache, for others
//! they do not. While they do not, a core takes several times as long to read what the other has
//! written. Transports that move most data suffer most. If one of two transports was measured
//! before such a move and the other after it, their ratio says nothing.

use crate::summary::Summary;
use crate::usage;
use anyhow::{Context, Result, anyhow};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What is handed over at once, as a batch of packets is.
const BLOCK_BYTES: usize = 64 << 10;

/// Memory goes round, as a kernel's does that frees what has been read.
const BLOCKS: usize = 16;

/// This many may wait to be read.
const BLOCKS_AHEAD: usize = 8;

/// How long blocks are handed over.
const DURATION: Duration = Duration::from_millis(20);

const LINE_BYTES: usize = 64;

/// Cores are far from each other if a line takes more than this many times what it takes when they
/// are near.
const FAR: f64 = 2.0;

/// Whether cores are far from each other, if a line takes `ns` now and `near_ns` when they are
/// near.
pub fn is_far(ns: f64, near_ns: f64) -> bool {
    ns > FAR * near_ns
}

/// Nanoseconds that `writer` takes to write a line of memory that `reader` has read, as the median
/// of blocks. Takes some 20 ms of both cores.
///
/// # Errors
///
/// If a thread cannot be kept to one of the cores.
pub fn line_ns(writer: usize, reader: usize) -> Result<f64> {
    let ring = Ring::new();
    thread::scope(|scope| {
        let reads = scope.spawn(|| ring.read(reader));
        let written = scope.spawn(|| ring.write(writer));
        let blocks = written.join().map_err(|_| anyhow!("the writer has panicked"))?;
        reads.join().map_err(|_| anyhow!("the reader has panicked"))??;
        let block_ns = blocks?.into_iter().map(|block| block.as_nanos() as f64);
        let summary = Summary::of(block_ns).context("no block was handed over")?;
        Ok(summary.median / (BLOCK_BYTES / LINE_BYTES) as f64)
    })
}

/// Blocks that go from one thread to another.
struct Ring {
    words: Vec<AtomicU64>,
    written: Apart<AtomicUsize>,
    read: Apart<AtomicUsize>,
    is_over: Apart<AtomicBool>,
}

/// In a line of memory of its own, and in the one that is fetched with it.
#[repr(align(128))]
struct Apart<T>(T);

impl Ring {
    fn new() -> Self {
        Ring {
            words: (0..BLOCKS * BLOCK_BYTES / 8).map(|_| AtomicU64::new(0)).collect(),
            written: Apart(AtomicUsize::new(0)),
            read: Apart(AtomicUsize::new(0)),
            is_over: Apart(AtomicBool::new(false)),
        }
    }

    fn block(&self, index: usize) -> impl Iterator<Item = &AtomicU64> {
        self.words.chunks(BLOCK_BYTES / 8).nth(index % BLOCKS).into_iter().flatten()
    }

    /// How long each block took.
    fn write(&self, core: usize) -> Result<Vec<Duration>> {
        let blocks = usage::pin(core).map(|()| {
            let (began, mut blocks) = (Instant::now(), Vec::new());
            while began.elapsed() < DURATION {
                let index = self.written.0.load(Ordering::Relaxed);
                if index >= self.read.0.load(Ordering::Acquire) + BLOCKS_AHEAD {
                    spin_loop();
                    continue;
                }
                let since = Instant::now();
                self.block(index).for_each(|word| word.store(index as u64, Ordering::Relaxed));
                blocks.push(since.elapsed());
                self.written.0.store(index + 1, Ordering::Release);
            }
            // The first time round nobody has read them before.
            blocks.split_off(blocks.len().min(BLOCKS))
        });
        self.is_over.0.store(true, Ordering::Release);
        blocks
    }

    fn read(&self, core: usize) -> Result<u64> {
        usage::pin(core)?;
        let (mut index, mut sum) = (0, 0_u64);
        while !self.is_over.0.load(Ordering::Acquire) {
            if index < self.written.0.load(Ordering::Acquire) {
                sum = self.block(index).fold(sum, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)));
                index += 1;
                self.read.0.store(index, Ordering::Release);
            } else {
                spin_loop();
            }
        }
        Ok(std::hint::black_box(sum))
    }
}
