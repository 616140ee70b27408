//! Records of a world's hosts: they hold what happened, and change nothing of it.

use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::rc::Rc;
use uts_engine::{ConnectionConfig, ExchangeEvent, Stats};
use uts_functions::Time;
use uts_path::{Direction, PathConfig};
use uts_sim::identity::Identities;
use uts_sim::transfer::{Progress, Transfers};
use uts_sim::{World, WorldConfig};

const CLIENT: usize = 1;

#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The results of a transfer: how it went, what the path did, and the records (pcap and qlog of the
/// server, then of the client).
struct Run {
    progress: Progress,
    stats: Stats,
    path: [uts_path::Stats; 2],
    pcap: [Vec<u8>; 2],
    qlog: [Vec<u8>; 2],
}

/// 3 MB over a path that begins to lose.
fn run(seed: u64, records: bool) -> Run {
    let link = "rate=20mbit delay=20ms buffer=64p overhead=28".parse().expect("a valid path");
    let mut path = PathConfig::both(link);
    path.schedule = "at=1MB fwd loss=ge:0.05,4".parse().expect("a valid schedule");
    let config = WorldConfig { path, seed, ..WorldConfig::default() };
    let mut world = World::new(config, Identities::new().expect("keys")).expect("a valid world");
    let files: [[Shared; 2]; 2] = Default::default();
    if records {
        for (node, [pcap, qlog]) in files.iter().enumerate() {
            world.record(node, Box::new(pcap.clone()), Box::new(qlog.clone())).expect("memory takes all");
        }
    }
    let mut transfers = Transfers::start(&mut world, &[(CLIENT, ConnectionConfig::default())], 3_000_000);
    assert!(transfers.run(&mut world, Time::from_millis(60_000)), "seed {seed}");
    let progress = transfers.progress.remove(&CLIENT).expect("it took part");
    let stats = world.connection(CLIENT, progress.connection).expect("it is open").stats();
    world.finish_records().expect("memory takes all");
    let path = Direction::ALL.map(|direction| world.path_stats(direction));
    let file = |n: usize| files.each_ref().map(|host| host[n].0.borrow().clone());
    Run { progress, stats, path, pcap: file(0), qlog: file(1) }
}

/// Reads a JSON text sequence (RFC 7464).
fn read(file: &[u8]) -> Vec<Value> {
    let records = file.split(|byte| *byte == 0x1e).skip(1);
    records
        .map(|text| serde_json::from_slice(text.strip_suffix(b"\n").expect("a line end")).expect("JSON"))
        .collect()
}

fn named<'a>(log: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    log.iter().filter(move |event| event["name"] == name)
}

#[test]
fn recording_changes_nothing() {
    for seed in 0..3 {
        let (with, without) = (run(seed, true), run(seed, false));
        assert_eq!((with.stats, with.path), (without.stats, without.path), "seed {seed}");
        assert_eq!(with.progress.exchanges, without.progress.exchanges, "seed {seed}");
        assert!(without.pcap.iter().chain(&without.qlog).all(Vec::is_empty));
    }
}

#[test]
fn logs_hold_what_connections_did() {
    let run = run(1, true);
    let [server, client] = run.qlog.each_ref().map(|file| read(file));
    for (log, kind) in [(&server, "server"), (&client, "client")] {
        assert_eq!(log[0]["file_schema"], "urn:ietf:params:qlog:file:sequential");
        assert_eq!(log[0]["trace"]["vantage_point"]["type"], kind);
        let times: Vec<f64> = log[1..].iter().map(|event| event["time"].as_f64().expect("a time")).collect();
        assert!(times.is_sorted(), "{kind}: time goes on");
        assert!(log[1..].iter().all(|event| event["group_id"] == "0"), "there is one connection");
        assert_eq!(named(log, "uts:connected").count(), 1);
    }
    let connected_ms = run.progress.connected_at.expect("it connected").as_nanos() as f64 / 1e6;
    assert_eq!(named(&client, "uts:connected").next().expect("it connected")["time"], connected_ms);

    // What one end has sent of the handshake, the other has received, and nothing was lost of it.
    let shaken = |log: &[Value], name: &str| -> Vec<(String, u64)> {
        let packets = named(log, name).filter(|event| event["data"]["header"]["packet_type"] != "1RTT");
        let header = |event: &Value| event["data"]["header"].clone();
        let packets = packets.map(header).filter_map(|header| {
            Some((header["packet_type"].as_str()?.to_owned(), header["packet_number"].as_u64()?))
        });
        packets.collect()
    };
    let is_1rtt = |event: &&Value| event["data"]["header"]["packet_type"] == "1RTT";
    for (from, to) in [(&client, &server), (&server, &client)] {
        let (sent, received) = (shaken(from, "quic:packet_sent"), shaken(to, "quic:packet_received"));
        assert_eq!(sent[0], ("initial".to_owned(), 0));
        assert!(sent.iter().any(|(level, _)| level == "handshake"), "{sent:?}");
        // Keys of a level that is over are forgotten, and packets under them are read no more.
        assert!(received.iter().all(|packet| sent.contains(packet)), "{sent:?} {received:?}");
        assert!(received.iter().any(|(level, _)| level == "handshake"), "{received:?}");
    }
    // Each packet that arrived was sent, and all arrived that were acknowledged.
    let numbers = |log: &[Value], name: &str| -> BTreeSet<u64> {
        let packets = named(log, name).filter(is_1rtt);
        packets.filter_map(|event| event["data"]["header"]["packet_number"].as_u64()).collect()
    };
    let arrived = numbers(&server, "quic:packet_received");
    assert!(arrived.is_subset(&numbers(&client, "quic:packet_sent")));
    let acknowledged = named(&client, "quic:packets_acked").flat_map(|event| {
        event["data"]["packet_numbers"].as_array().expect("a list").iter().filter_map(Value::as_u64)
    });
    assert!(acknowledged.into_iter().all(|number| arrived.contains(&number)));
    let sent = named(&client, "quic:packet_sent").filter(is_1rtt).count() as u64;
    assert!((run.stats.packets_sent - 10..run.stats.packets_sent).contains(&sent), "{sent} {:?}", run.stats);
    let sent_1rtt = named(&client, "quic:packet_sent").filter(is_1rtt);
    let bytes: u64 = sent_1rtt.filter_map(|e| e["data"]["raw"]["length"].as_u64()).sum();
    assert!(bytes < run.stats.bytes_sent && bytes > run.stats.bytes_sent - 5000);
    assert_eq!(named(&client, "quic:packet_lost").count() as u64, run.stats.packets_lost);
    assert!(run.stats.packets_lost > 20);
    let repeats = named(&client, "quic:packet_sent").filter(|e| e["data"]["uts"]["repeats"] == true).count();
    assert!(repeats > 20);
    let acknowledged: usize = named(&client, "quic:packets_acked")
        .map(|e| e["data"]["packet_numbers"].as_array().expect("a list").len())
        .sum();
    assert!(acknowledged as u64 + run.stats.packets_lost <= sent);
    // 5 % are lost of two thirds, and what overflowed the queue at the start.
    assert!(acknowledged as u64 > sent * 17 / 20, "{acknowledged} of {sent}: {:?}", run.stats);

    let completed =
        run.progress.exchanges.iter().filter(|(_, e)| matches!(e, ExchangeEvent::Completed { .. }));
    let completed = completed.count();
    assert!(completed > 0, "loss is answered with an exchange");
    assert_eq!(named(&client, "uts:exchange_completed").count(), completed);
    assert_eq!(named(&server, "uts:exchange_granted").count(), completed);
    let figures = named(&client, "quic:recovery_metrics_updated").last().expect("some were told");
    assert!(figures["data"].as_object().is_some_and(|changed| !changed.is_empty()));
    // Losses have set it.
    let thresholds: Vec<u64> = named(&client, "quic:recovery_metrics_updated")
        .filter_map(|event| event["data"]["ssthresh"].as_u64())
        .collect();
    assert!(thresholds.iter().any(|threshold| *threshold > 0), "{thresholds:?}");
}

#[test]
fn captures_hold_every_datagram() {
    let run = run(2, true);
    let count = |file: &[u8]| {
        let (mut at, mut packets) = (24, 0u64);
        while at < file.len() {
            let kept = u32::from_be_bytes(file[at + 8..at + 12].try_into().expect("four bytes"));
            at += 16 + kept as usize;
            packets += 1;
        }
        packets
    };
    let [server, client] = run.pcap.each_ref().map(|file| count(file));
    let [forward, backward] = run.path;
    assert_eq!(client, forward.packets_in + backward.delivered);
    assert_eq!(server, backward.packets_in + forward.delivered);
    assert!(forward.dropped() > 20);
}
