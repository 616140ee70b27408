//! UTS by calls that wait: the thread that sends carries its connection itself, without a runtime.

use super::universal::{READ_BYTES, bytes_of, check, client_options, server_options};
use super::{Expense, Meter, Outcome, Stopwatch, Task, WRITE_BYTES, Work, announce, lacks};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};
use uts::blocking::{Flow, Listener, RecvFlow, connect};
use uts::{Direction, FlowOptions};

/// The next bytes; `None` at the end.
fn read(recv: &mut RecvFlow) -> Result<Option<Bytes>> {
    Ok(recv.recv_chunk(READ_BYTES)?.map(bytes_of))
}

pub fn serve(task: &Task, ip: IpAddr) -> Result<Outcome> {
    let listener = Listener::bind(SocketAddr::new(ip, 0), server_options(task)?)?;
    announce(listener.local_addr(), listener.fingerprint().to_string())?;
    let connection = listener.accept().context("no client")?;
    let (mut send, mut recv) = connection.accept_flow().context("no flow")?.split();
    let outcome = match task.work {
        Work::Bulk => {
            let mut meter = Meter::new(task);
            while let Some(bytes) = read(&mut recv)? {
                meter.add(bytes.len())?;
            }
            meter.finish()?
        }
        Work::Ping | Work::Spin => {
            while let Some(bytes) = read(&mut recv)? {
                send.write_bytes(bytes)?;
            }
            Outcome::default()
        }
        _ => return Err(lacks(task)),
    };
    send.finish()?;
    connection.closed();
    Ok(outcome)
}

pub fn call(task: &Task, to: SocketAddr, fingerprint: &str) -> Result<Outcome> {
    let connection = connect(&to.to_string(), client_options(task, fingerprint.parse()?)?)?;
    let flow = connection.open_flow(FlowOptions::default())?;
    let outcome = match task.work {
        Work::Bulk => send_bulk(task, flow)?,
        Work::Ping | Work::Spin => ping(task, flow)?,
        _ => return Err(lacks(task)),
    };
    check(task, connection.profile(Direction::Out))?;
    let lost_packets = connection.stats().packets_lost;
    connection.close(0, "done");
    Ok(Outcome { lost_packets, ..outcome })
}

fn send_bulk(task: &Task, flow: Flow) -> Result<Outcome> {
    let (mut send, mut recv) = flow.split();
    let (data, mut expense) = (Bytes::from(vec![0x5a; WRITE_BYTES]), Expense::start(task)?);
    while expense.goes_on() {
        send.write_bytes(data.clone())?;
        expense.bytes += data.len() as u64;
    }
    send.finished()?;
    // The server ends its direction once it has read everything.
    ensure!(read(&mut recv)?.is_none(), "bulk data came back");
    expense.finish()
}

fn ping(task: &Task, flow: Flow) -> Result<Outcome> {
    let (mut send, mut recv) = flow.split();
    let mut stopwatch = Stopwatch::start(task)?;
    while stopwatch.again() {
        send.write_bytes(Bytes::from_static(&[7]))?;
        let back = read(&mut recv)?.context("the server has ended the flow")?;
        ensure!(back.len() == 1, "{} bytes came back instead of one", back.len());
        stopwatch.back();
    }
    send.finish()?;
    ensure!(read(&mut recv)?.is_none(), "more came back than was sent");
    stopwatch.finish()
}
