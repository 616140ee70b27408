//! An emulated network path, without IO, clock or randomness of its own.
//!
//! A [`Link`] carries packets one way: a bottleneck (rate, buffer and queue discipline), then a
//! wire that delays, loses, reorders, duplicates and corrupts. A [`Path`] is two links and a
//! [`Schedule`] of changes. The caller hands in a seed and the time, in nanoseconds since an origin
//! of its choice. The same calls with the same seed give the same result. The same code serves
//! virtual-time tests, the real-time relay and RouterPC.
//!
//! A packet passes these steps in this order:
//!
//! 1. [`Link::send`]: bigger than the MTU: dropped. Where there are receive buffers ([`Receive`]),
//!    it waits in one of them for the router, or is dropped if none is free. The queue's
//!    [`Discipline`] may drop or mark it; if there is no room in the buffer, it says which packet
//!    goes. Queue above the ECN threshold: marked.
//! 2. It waits its turn, or that of its flow. As its transmission would begin, the discipline may
//!    drop or mark it (CoDel). Then it is transmitted at the link's rate, for as long as the bits
//!    of its [`Framing`] take. Departures are computed in virtual time: a caller that is late does
//!    not change the rate.
//!    Where there is [`Compression`], its headers are compressed before.
//! 3. At its departure the wire decides: outage, loss, duplication, corruption, delay.
//! 4. [`Link::poll`] hands it over when it is due, with its headers restored. Where they cannot be,
//!    it is dropped.
//!
//! A rate may vary by a [`Trace`] of delivery opportunities. Files are read by the caller:
//! [`PathConfig::resolve`].
//!
//! [`Link::poll_passage`] tells, if asked to, what each packet met in the queue, and why it was
//! dropped. The settings and their text forms are listed at [`Setting`], their meanings and ranges
//! at [`LinkConfig`]; each of them can be [changed](Change) while the link runs.
//!
//! ```
//! use uts_path::{Direction, Path, PathConfig};
//!
//! let mut config = PathConfig::both("rate=50mbit delay=20ms buffer=64p".parse()?);
//! config.schedule = "at=10s both loss=ge:0.05,4; at=20s both loss=0 rate=20mbit".parse()?;
//! let mut path = Path::new(config, 7, 0)?;
//! path.send(0, Direction::Forward, vec![0u8; 1250], 1250);
//! assert_eq!(path.next_ns(), Some(20_200_000)); // 200 us to transmit, 20 ms to travel
//! assert!(path.poll(20_200_000, Direction::Forward).is_some());
//! # Ok::<(), uts_path::SpecError>(())
//! ```

#![forbid(unsafe_code)]

mod change;
pub mod compression;
mod config;
mod error;
mod framing;
mod line;
mod link;
mod loss;
mod parse;
mod passage;
mod path;
mod queue;
mod receive;
mod schedule;
mod server;
mod stats;
mod trace;
mod wire;

pub use change::{Change, Setting};
pub use compression::Compression;
pub use config::{
    Buffer, Corruption, IP_UDP_OVERHEAD_BYTES, Jitter, JitterShape, LinkConfig, Loss, Reordering,
};
pub use error::SpecError;
pub use framing::Framing;
pub use link::{Delivery, Link, MAX_HELD_BYTES, MAX_HELD_PACKETS, Payload};
pub use passage::{DropReason, Fate, Passage};
pub use path::{Applied, Direction, Path, PathConfig};
pub use queue::{CoDel, Discipline, FqCoDel, Pie, Police, Red};
pub use receive::Receive;
pub use schedule::{At, Schedule, Scheduled, Target};
pub use stats::Stats;
pub use trace::{Cellular, Opportunities, Trace};
