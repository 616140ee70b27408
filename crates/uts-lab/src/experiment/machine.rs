//! `machine.json`: where an experiment ran.

use serde_json::{Value, json};
use std::fs;

/// The machine as it is now.
pub fn describe() -> Value {
    let system = rustix::system::uname();
    json!({
        "lab": concat!("uts-lab ", env!("CARGO_PKG_VERSION")),
        "system": system.sysname().to_string_lossy(),
        "kernel": system.release().to_string_lossy(),
        "architecture": system.machine().to_string_lossy(),
        "distribution": distribution(),
        "processor": processor(),
        "cores": std::thread::available_parallelism().map(usize::from).ok(),
        "memory_bytes": memory_bytes(),
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

fn field(file: &str, name: &str, separator: char) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(separator))?;
    Some(line.trim().trim_matches('"').to_owned())
}

fn distribution() -> Option<String> {
    field("/etc/os-release", "PRETTY_NAME", '=')
}

fn processor() -> Option<String> {
    field("/proc/cpuinfo", "model name", ':')
}

fn memory_bytes() -> Option<u64> {
    let kib: u64 = field("/proc/meminfo", "MemTotal", ':')?.split(' ').next()?.parse().ok()?;
    kib.checked_mul(1024)
}
