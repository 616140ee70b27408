//! What an application does: which bytes, requests or messages leave when, and what of it counts.

use core::time::Duration;
use serde::{Deserialize, Serialize};

/// A workload, the same for every transport that can carry it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Workload {
    /// One file on one stream: until so many bytes have arrived, or until the time is over.
    Bulk {
        /// How many bytes; `None` is as many as fit into `duration`.
        bytes: Option<u64>,
        /// For how long at most.
        duration: Option<Duration>,
    },
    /// Many files one after another, each on a stream of its own, so many at a time.
    Files {
        /// How many.
        count: u32,
        /// How large each is, in bytes.
        bytes: u64,
        /// How many at a time.
        concurrency: u32,
    },
    /// Requests and their answers.
    Requests {
        /// How many altogether.
        count: u32,
        /// Size of a request in bytes.
        request_bytes: u64,
        /// Size of an answer in bytes.
        answer_bytes: u64,
        /// How many are under way at a time.
        concurrency: u32,
    },
    /// Paced messages, each of use only until its deadline: voice, control loops.
    Messages {
        /// One every so often.
        every: Duration,
        /// Size of each in bytes.
        bytes: u64,
        /// For how long.
        duration: Duration,
        /// Within which time of its leaving a message is of use.
        deadline: Duration,
    },
    /// Video: frames at a rate, every n-th a key frame that is larger; a frame is of use when whole and in time.
    Video {
        /// Frames in a second.
        frames_per_s: u32,
        /// Mean rate in bits per second.
        rate_bps: u64,
        /// Every so many frames is a key frame.
        key_every: u32,
        /// A key frame is so many times as large as another.
        key_factor: f64,
        /// For how long.
        duration: Duration,
        /// Within which time of its leaving a frame is of use.
        deadline: Duration,
    },
    /// Keystrokes at a person's pace, each echoed by the server.
    Keystrokes {
        /// How many.
        count: u32,
        /// The mean time between two; the times are exponentially distributed, from the seed.
        every: Duration,
    },
}
