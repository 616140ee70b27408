//! Kernel TCP as iperf3 measures it.

use crate::child::Lines;
use crate::ends::{Outcome, Transport};
use crate::works::Pair;
use crate::world::{Place, World};
use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};
use std::time::Duration;

const PORT: &str = "5299";

/// Whether the program is here.
pub fn is_here() -> bool {
    let found = Command::new("iperf3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Bulk data from the client to the server; both ends' outcomes.
pub fn bulk(world: &World, place: Place, transport: Transport, pair: &Pair) -> Result<(Outcome, Outcome)> {
    // Whole seconds are all that it takes.
    let seconds = pair.duration.as_secs_f64().ceil().max(1.0);
    let patience = Duration::from_secs_f64(seconds + 10.0);
    let mut server = world.at_server(place, "iperf3");
    server.args(["--server", "--one-off", "--forceflush", "--port", PORT]);
    server.args(["--affinity", &pair.server_core.to_string()]);
    let mut server = Lines::start("iperf3 server", &mut server, patience)?;
    while !server.line()?.contains("listening") {}
    let mut client = Command::new("iperf3");
    client.args(["--client", &world.server_ip(place).to_string(), "--port", PORT, "--json"]);
    client.args(["--congestion", "cubic", "--time", &seconds.to_string(), "--omit", "0"]);
    client.args(["--affinity", &pair.client_core.to_string()]);
    if transport == Transport::Iperf3CubicW1m {
        client.args(["--window", "1M"]);
    }
    let report = Lines::start("iperf3 client", &mut client, patience)?.rest()?;
    let report: serde_json::Value = serde_json::from_str(&report).context("iperf3's report")?;
    if let Some(error) = report.get("error") {
        bail!("iperf3: {error}");
    }
    let number = |path: &str| {
        report
            .pointer(path)
            .and_then(serde_json::Value::as_f64)
            .with_context(|| format!("iperf3 says nothing of {path}"))
    };
    let (bytes, elapsed_s) = (number("/end/sum_received/bytes")?, number("/end/sum_received/seconds")?);
    let cpu_s = |end: &str| {
        Ok::<_, anyhow::Error>(
            number(&format!("/end/cpu_utilization_percent/{end}_total"))? / 100.0 * elapsed_s,
        )
    };
    let sender = Outcome { bytes: bytes as u64, cpu_s: cpu_s("host")?, ..Outcome::default() };
    let receiver = Outcome {
        bytes: bytes as u64,
        counted_bytes: bytes as u64,
        counted_s: elapsed_s,
        cpu_s: cpu_s("remote")?,
        ..Outcome::default()
    };
    Ok((sender, receiver))
}
