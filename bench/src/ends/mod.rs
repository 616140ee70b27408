//! The two ends of a measurement, each in a process of its own. The server takes and echoes, the
//! client sends and times.
//!
//! A server prints a line with [`Ready`], and when its client is done, one with [`Outcome`]. A
//! client prints its [`Outcome`]. Bulk data goes from the client to the server.

mod blocking;
mod certificates;
mod quic;
mod raw;
mod s2n;
mod tcp;
mod tls;
mod universal;

use anyhow::{Context, Result, bail};
use std::net::{IpAddr, SocketAddr};
pub use uts_bench_ends::*;

/// Runs one end: `server|client TASK CORE IP|ADDR KEY`.
pub fn run(args: &[String]) -> Result<()> {
    uts_bench_ends::run(args, serve, call)
}

fn serve(task: &Task, ip: IpAddr) -> Result<Outcome> {
    match task.transport {
        Transport::RawUdp => raw::serve(task, ip),
        Transport::TcpCubic => tcp::serve(task, ip),
        Transport::TcpRustls => tls::serve(task, ip),
        Transport::Quinn => quic::serve(task, ip),
        Transport::S2nQuic => s2n::serve(task, ip),
        Transport::UtsBlocking | Transport::UtsCrc32cBlocking => blocking::serve(task, ip),
        Transport::Uts | Transport::UtsCrc32c | Transport::UtsBare => universal::serve(task, ip),
        Transport::Iperf3Cubic
        | Transport::Iperf3CubicW1m
        | Transport::Quiche
        | Transport::Tquic
        | Transport::Srt
        | Transport::Enet => {
            bail!("{} has programs of its own", task.transport.name())
        }
    }
}

fn call(task: &Task, to: SocketAddr, key: &str) -> Result<Outcome> {
    match task.transport {
        Transport::RawUdp => raw::call(task, to),
        Transport::TcpCubic => tcp::call(task, to),
        Transport::TcpRustls => tls::call(task, to, key),
        Transport::Quinn => quic::call(task, to, key),
        Transport::S2nQuic => s2n::call(task, to, key),
        Transport::UtsBlocking | Transport::UtsCrc32cBlocking => blocking::call(task, to, key),
        Transport::Uts | Transport::UtsCrc32c | Transport::UtsBare => universal::call(task, to, key),
        Transport::Iperf3Cubic
        | Transport::Iperf3CubicW1m
        | Transport::Quiche
        | Transport::Tquic
        | Transport::Srt
        | Transport::Enet => {
            bail!("{} has programs of its own", task.transport.name())
        }
    }
}

/// Runs an end as a task of a runtime whose tasks all run in this thread, and so on this core.
fn run_task<F>(end: F) -> Result<Outcome>
where
    F: Future<Output = Result<Outcome>> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("runtime")?;
    runtime.block_on(async { tokio::spawn(end).await? })
}
