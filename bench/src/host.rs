//! What the figures were measured on.

use serde::Serialize;
use std::fs::read_to_string;

/// The machine, as far as figures depend on it.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// Cores that may be used.
    pub cores: usize,
    /// The processor's name.
    pub processor: String,
    /// The kernel's release.
    pub kernel: String,
    /// Largest receive buffer that a socket may ask for, in bytes.
    pub receive_buffer_bytes_max: String,
}

impl Host {
    /// This one.
    pub fn here() -> Self {
        let line = |path: &str| read_to_string(path).unwrap_or_default().trim().to_owned();
        let processor = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor =
            processor.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(": "));
        Host {
            cores: crate::usage::cores().len(),
            processor: processor.map_or("?", |(_, name)| name).to_owned(),
            kernel: line("/proc/sys/kernel/osrelease"),
            receive_buffer_bytes_max: line("/proc/sys/net/core/rmem_max"),
        }
    }
}

/// How many threads wanted to run over the last minute. Other work on the machine makes every
/// figure worse.
pub fn load() -> f64 {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(f64::NAN)
}
