//! `machine.json`: where an experiment ran.

use serde_json::{Value, json};
use std::fs;
use uts_end::machine;

/// The machine as it is now.
pub fn describe() -> Value {
    let system = rustix::system::uname();
    json!({
        "lab": concat!("uts-lab ", env!("CARGO_PKG_VERSION")),
        "system": system.sysname().to_string_lossy(),
        "kernel": system.release().to_string_lossy(),
        "architecture": system.machine().to_string_lossy(),
        "distribution": machine::distribution(),
        "processor": machine::processor(),
        "cores": std::thread::available_parallelism().map(usize::from).ok(),
        "memory_bytes": machine::memory_bytes(),
        "load_1_min": load(),
        "tcp_congestion_controls": words("/proc/sys/net/ipv4/tcp_available_congestion_control"),
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
    })
}

/// The mean number of processes that were ready to run in the last minute.
pub fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The words of a file of the system.
pub(crate) fn words(file: &str) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}
