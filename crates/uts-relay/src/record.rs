//! Samples of both links in CSV.
//!
//! `FILE` gets a row for each direction every 10 ms:
//!
//! ```text
//! t_s,dir,queue_packets,queue_bytes,packets_in,delivered,dropped_queue,dropped_loss,
//! bytes_delivered,rate_bps
//! ```
//!
//! If each datagram is wanted, it gets a row when one has left the queue:
//! `t_s,dir,queue_packets,queue_bytes,sojourn_s,dropped,bytes`: when it arrived and what it found,
//! how long it stayed, why it was dropped, if it was, and its length.
//!
//! Counters are since the start. `dir` is `fwd` or `bwd`. `rate_bps` is the link's, and empty when
//! infinite. `FILE.changes.csv` gets a row `t_s,dir,change` for each change, in which `dir` may
//! also be `both`.

use super::RelayError;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path as FilePath, PathBuf};
use uts_path::{Applied, Direction, DropReason, Passage, Path, Payload, Target};

/// Time between samples.
pub(super) const SAMPLE_NS: u64 = 10_000_000;

/// So that a row seldom waits for the file system.
const BUFFER_BYTES: usize = 1 << 18;

#[derive(Debug)]
pub(super) struct Recorder {
    samples: Sheet,
    changes: Sheet,
    /// `None` if there are none, but each datagram.
    next_ns: Option<u64>,
}

#[derive(Debug)]
struct Sheet {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Sheet {
    fn create(path: PathBuf, header: &str) -> Result<Self, RelayError> {
        let made = File::create(&path).and_then(|file| {
            let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
            writeln!(file, "{header}")?;
            Ok(file)
        });
        match made {
            Ok(file) => Ok(Sheet { path, file }),
            Err(cause) => Err(RelayError::Record { path, cause }),
        }
    }

    fn write(
        &mut self,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), RelayError> {
        write(&mut self.file).map_err(|cause| RelayError::Record { path: self.path.clone(), cause })
    }
}

impl Recorder {
    pub(super) fn create(path: &FilePath, each: bool) -> Result<Self, RelayError> {
        let mut changes = path.as_os_str().to_owned();
        changes.push(".changes.csv");
        let columns = match each {
            true => "t_s,dir,queue_packets,queue_bytes,sojourn_s,dropped,bytes",
            false => {
                "t_s,dir,queue_packets,queue_bytes,packets_in,delivered,dropped_queue,dropped_loss,bytes_delivered,\
                 rate_bps"
            }
        };
        Ok(Recorder {
            samples: Sheet::create(path.to_owned(), columns)?,
            changes: Sheet::create(changes.into(), "t_s,dir,change")?,
            next_ns: (!each).then_some(0),
        })
    }

    /// When the next sample is due.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// True if it wants each datagram.
    pub(super) fn takes_each(&self) -> bool {
        self.next_ns.is_none()
    }

    pub(super) fn passage(&mut self, direction: Direction, passage: &Passage) -> Result<(), RelayError> {
        let (t_s, dir) = (passage.arrived_ns as f64 / 1e9, Target::One(direction).keyword());
        let Passage { queue_packets, queue_bytes, len, .. } = passage;
        let sojourn_s = passage.sojourn_ns() as f64 / 1e9;
        let dropped = passage.dropped.map_or("", DropReason::name);
        self.samples.write(|file| {
            writeln!(file, "{t_s:.9},{dir},{queue_packets},{queue_bytes},{sojourn_s:.9},{dropped},{len}")
        })
    }

    /// Takes the sample that is due; a relay that was kept from running leaves some out.
    pub(super) fn sample<T: Payload>(&mut self, now_ns: u64, path: &Path<T>) -> Result<(), RelayError> {
        if self.next_ns.is_none_or(|next_ns| now_ns < next_ns) {
            return Ok(());
        }
        self.next_ns = Some((now_ns / SAMPLE_NS + 1) * SAMPLE_NS);
        self.samples.write(|file| {
            for direction in Direction::ALL {
                let s = path.stats(direction);
                let rate_bps = path.config(direction).rate_bps.map(|r| r.to_string()).unwrap_or_default();
                writeln!(
                    file,
                    "{:.4},{},{},{},{},{},{},{},{},{rate_bps}",
                    now_ns as f64 / 1e9,
                    Target::One(direction).keyword(),
                    s.queue_packets,
                    s.queue_bytes,
                    s.packets_in,
                    s.delivered,
                    s.dropped_queue,
                    s.dropped_loss,
                    s.bytes_delivered,
                )?;
            }
            Ok(())
        })
    }

    pub(super) fn change(&mut self, applied: &Applied) -> Result<(), RelayError> {
        let t_s = applied.at_ns as f64 / 1e9;
        // Settings hold commas, and never quotes.
        self.changes.write(|f| writeln!(f, "{t_s:.4},{},\"{}\"", applied.target.keyword(), applied.change))
    }

    pub(super) fn flush(&mut self) -> Result<(), RelayError> {
        self.samples.write(Write::flush)?;
        self.changes.write(Write::flush)
    }
}
