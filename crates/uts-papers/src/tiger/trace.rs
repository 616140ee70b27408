//! A transfer packet by packet, as the testbed's kernel recorded it: when, sequence number,
//! windows, the highest acknowledgement, packets in flight.

use super::host::{PACKET_MEMORY, SEGMENT_BYTES, Testbed};
use super::packet;
use crate::paper::Series;
use crate::tcp::segment::Ack;
use crate::tcp::sender::{Partial, Rules, Sender};
use anyhow::Result;
use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr};
use uts_functions::Time;

/// Bytes of such a transfer.
const BYTES: u32 = 3_000_000;

/// Columns of a transfer with so many buffers, and of the receiver's memory where three quarters of
/// it are taken, as in its log.
pub(super) fn of(testbed: &Testbed, buffers: u32) -> Result<Series> {
    let mut setup = testbed.setup(buffers, BYTES);
    setup.records = true;
    let outcome = setup.run()?;
    let sent = || outcome.sender.sent.iter();
    let seconds = |at: &Time| at.since(Time::ZERO).as_secs_f64();
    let limit = 2 * setup.receiver.buffer_bytes;
    let arrivals = || outcome.receiver.arrivals.iter().filter(|(_, _, taken)| *taken > limit / 4 * 3);
    let memory: Vec<f64> = arrivals().map(|(_, _, taken)| f64::from(*taken)).collect();
    let share = memory.iter().filter(|taken| **taken > f64::from(limit)).count();
    let columns = [
        ("at", sent().map(|row| seconds(&row.at)).collect()),
        ("packet", sent().map(packet).collect()),
        ("window", sent().map(|row| row.window.into()).collect()),
        ("threshold", sent().map(|row| row.threshold.min(100).into()).collect()),
        ("acknowledged", sent().map(|row| f64::from(row.acknowledged) / f64::from(SEGMENT_BYTES)).collect()),
        ("flight", sent().map(|row| row.flight.into()).collect()),
        ("repeats", sent().map(|row| f64::from(u8::from(row.is_repeat))).collect()),
        ("timeout-at", outcome.sender.timeouts.iter().map(|(at, _)| seconds(at)).collect()),
        ("steps", memory.iter().map(|taken| taken / f64::from(PACKET_MEMORY)).collect()),
        ("arrived-at", arrivals().map(|(at, ..)| seconds(at)).collect()),
        ("memory", memory),
        ("above", vec![share as f64]),
        ("prunes", vec![outcome.receiver.prunes as f64]),
        ("offered", outcome.sender.acks.iter().map(|(_, _, window)| f64::from(*window)).collect()),
        ("offered-at", outcome.sender.acks.iter().map(|(at, ..)| seconds(at)).collect()),
        ("took", vec![outcome.took.as_secs_f64()]),
    ];
    Ok(columns.into_iter().map(|(name, column)| (name.into(), column)).collect())
}

/// Figure 2.3: the window at the end of each round trip after a time-out at 32 packets, where each
/// packet has an acknowledgement.
pub(super) fn after_a_time_out() -> Result<Series> {
    const RTT: Duration = Duration::from_millis(100);
    const TIMED_OUT_AT: u32 = 32;
    let rules = Rules {
        segment_bytes: SEGMENT_BYTES,
        initial: TIMED_OUT_AT,
        partial: Partial::Once,
        repeats_grow: false,
        selective: false,
    };
    let segment = u32::from(SEGMENT_BYTES);
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let mut sender = Sender::new(rules, to, 1000 * segment, 100 * segment);
    sender.records = true;
    let mut now = Time::ZERO;
    let mut sent = core::iter::from_fn(|| sender.poll(now)).count();
    now = sender.poll_timeout().unwrap_or(now);
    sender.handle_timeout(now);
    // All has arrived after all.
    let ack = |to: usize| Ack { to: to as u32 * segment, window: 100 * segment, echo: 0, blocks: vec![] };
    let mut acknowledged = sent;
    now += RTT;
    sender.on_ack(now, &ack(acknowledged));
    let mut windows = vec![f64::from(sender.window())];
    for _ in 0..5 {
        sent = sender.log.sent.iter().map(|row| (row.from / segment) as usize + 1).max().unwrap_or(sent);
        now += RTT;
        for to in acknowledged + 1..=sent {
            sender.on_ack(now, &ack(to));
        }
        acknowledged = sent;
        windows.push(f64::from(sender.window()));
    }
    let rounds = (0..windows.len()).map(|n| n as f64).collect();
    Ok(Series::from([("round".into(), rounds), ("window".into(), windows)]))
}
