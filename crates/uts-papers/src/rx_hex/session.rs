//! A transfer as columns of figures: what units of work leave.

use super::world::Outcome;
use super::{SMALL, protocol, world};
use crate::engine;
use crate::paper::{Series, push};
use core::time::Duration;
use std::collections::BTreeMap;
use uts_functions::Time;

/// A packet that left: when, in seconds, which, from 1, and whether it was sent before.
type Sent = (f64, f64, bool);

/// Facts of a transfer that its packets do not tell.
struct Facts {
    packets: f64,
    ip_bytes: f64,
    begins: Time,
    done: Option<Time>,
}

fn seconds(at: Time) -> f64 {
    at.since(Time::ZERO).as_secs_f64()
}

/// Enters a transfer, each column behind `name`.
pub(super) fn insert(series: &mut Series, name: &str, outcome: &Outcome) {
    let log = &outcome.log;
    let sent = log.sent.iter().map(|(at, packet, repeats)| (seconds(*at), f64::from(*packet), *repeats));
    let facts = Facts {
        packets: outcome.packets.into(),
        ip_bytes: outcome.ip_bytes.into(),
        begins: outcome.begins,
        done: outcome.done_at(),
    };
    insert_sent(series, name, &sent.collect::<Vec<_>>(), &facts);
    for (what, all) in [("sample", &log.samples), ("timeout", &log.timeouts)] {
        let (at, span): (Vec<f64>, Vec<f64>) =
            all.iter().map(|(at, span): &(Time, Duration)| (seconds(*at), span.as_secs_f64())).unzip();
        series.insert(format!("{name}-{what}-at"), at);
        series.insert(format!("{name}-{what}"), span);
    }
    let duplicates = outcome.duplicates.iter().map(|at| seconds(*at)).collect();
    series.insert(format!("{name}-duplicate-at"), duplicates);
}

/// Enters a transfer of the engine; packets are counted by the bytes that Rx has in one.
pub(super) fn insert_of_engine(series: &mut Series, name: &str, outcome: &engine::Outcome) {
    let per_packet = f64::from(SMALL - protocol::HEADER_BYTES);
    let sent = outcome.sent.iter();
    let sent =
        sent.map(|(at, position, repeats)| (seconds(*at), 1.0 + *position as f64 / per_packet, *repeats));
    let facts = Facts {
        packets: (f64::from(world::TRANSFER_BYTES) / per_packet).ceil(),
        ip_bytes: SMALL.into(),
        begins: outcome.begins,
        done: outcome.done_at,
    };
    insert_sent(series, name, &sent.collect::<Vec<_>>(), &facts);
}

fn insert_sent(series: &mut Series, name: &str, sent: &[Sent], facts: &Facts) {
    let took = sent.first().zip(facts.done).map(|(first, done)| seconds(done) - first.0);
    // Bits of IP packets that were needed.
    let bps = took.map(|took_s| facts.packets * facts.ip_bytes * 8.0 / took_s);
    let last_repeat = sent.iter().rfind(|(.., repeats)| *repeats).map(|(at, ..)| *at);
    for (what, column) in [
        ("at", sent.iter().map(|(at, ..)| *at).collect()),
        ("packet", sent.iter().map(|(_, packet, _)| *packet).collect()),
        ("repeats", sent.iter().map(|(.., repeats)| f64::from(u8::from(*repeats))).collect()),
        ("last-repeat", Vec::from_iter(last_repeat)),
        ("gap", gaps(sent)),
        ("packets", vec![facts.packets]),
        ("ip-bytes", vec![facts.ip_bytes]),
        ("begins", vec![seconds(facts.begins)]),
        ("done", facts.done.into_iter().map(seconds).collect()),
        ("took", Vec::from_iter(took)),
        ("bps", Vec::from_iter(bps)),
    ] {
        series.insert(format!("{name}-{what}"), column);
    }
    for (at, times) in times(sent) {
        let again = f64::from(u8::from(times > 1.0));
        for (what, value) in [("sent-at", at), ("times", times), ("again", again)] {
            push(series, [(&*format!("{name}-{what}"), value)]);
        }
    }
}

/// Each packet: when it left first, and how often it left.
fn times(sent: &[Sent]) -> impl Iterator<Item = (f64, f64)> {
    let first = sent.iter().filter(|(.., repeats)| !repeats);
    let mut all: BTreeMap<u64, (f64, f64)> =
        first.map(|(at, packet, _)| (*packet as u64, (*at, 1.0))).collect();
    for (_, packet, _) in sent.iter().filter(|(.., repeats)| *repeats) {
        if let Some((_, times)) = all.get_mut(&(*packet as u64)) {
            *times += 1.0;
        }
    }
    all.into_values()
}

/// Seconds between one transmission of a packet and the next.
fn gaps(sent: &[Sent]) -> Vec<f64> {
    let mut last = BTreeMap::new();
    let gaps = sent.iter().filter_map(|(at, packet, _)| Some(at - last.insert(*packet as u64, *at)?));
    gaps.collect()
}

/// Packets that leave again as a first time-out of `every_s` seconds ends for the first time to the
/// fourth, before anything is acknowledged: a window each time, if all of it is sent again.
pub(super) fn bursts(outcome: &Outcome, every_s: f64) -> Vec<f64> {
    let known = outcome.log.timeouts.first().map_or(f64::INFINITY, |(at, _)| seconds(*at));
    let repeats = outcome.log.sent.iter().filter(|(.., repeats)| *repeats).map(|(at, ..)| seconds(*at));
    let repeats: Vec<f64> = repeats.filter(|at| *at < known).collect();
    let burst = |n: u32| {
        let at = seconds(outcome.begins) + every_s * f64::from(n);
        repeats.iter().filter(|repeat| (*repeat - at).abs() < INSTANT_S).count() as f64
    };
    (1..=4).map(burst).collect()
}

/// Seconds within which what leaves is one burst.
const INSTANT_S: f64 = 0.1;
