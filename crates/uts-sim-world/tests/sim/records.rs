//! What a run tells: packets with what their senders go by, queues, changes, captures and logs.

use super::*;
use uts_engine::TraceKind;
use uts_sim_world::SimError;

#[test]
fn a_run_tells_of_packets_queues_changes_and_exchanges() {
    let mut link = path("rate=20mbit delay=20ms buffer=64p");
    link.schedule = "at=2s fwd loss=ge:0.05,4; at=6s both rate=5mbit".parse().expect("a valid schedule");
    let links = SimLink::point_to_point("path", link);
    let record = SimRecord { packets: true, queues: true, ..SimRecord::default() };
    let case = SimCase { record, ..case(links, vec![flow(uts(), bulk(16_000_000))]) };
    let mut kept = Kept::default();
    let result = sim::run(&case, &mut kept).expect("the case makes sense");

    let made: Vec<(usize, u64)> = kept.changes.iter().map(|(link, c)| (*link, c.at_ns / 1_000_000)).collect();
    assert_eq!(made, [(0, 2000), (0, 6000)]);

    // Each packet leaves the queue once, and its bytes are those that the link has counted.
    for (direction, stats) in result.links.iter().map(|(_, direction, stats)| (direction, stats)) {
        let passages: Vec<&Passage> =
            kept.passages.iter().filter(|(_, d, _)| d == direction).map(|(_, _, p)| p).collect();
        // What is still in the queue as the run ends has not left it.
        assert!(stats.packets_in - passages.len() as u64 <= stats.queue_packets + 1, "{direction}");
        assert!(passages.is_sorted_by_key(|p| p.left_ns), "{direction}");
        let lost = passages.iter().filter(|p| p.dropped.is_some()).count() as u64;
        assert_eq!(lost, stats.dropped(), "{direction}");
    }

    let (mut sent, mut ended) = (BTreeMap::new(), 0);
    for (_, role, row) in &kept.packets {
        if *role == Role::Client && row.data.is_some() {
            match row.kind {
                TraceKind::Sent | TraceKind::Repeated => {
                    assert_eq!(sent.insert(row.number, row.data), None);
                }
                TraceKind::Acknowledged | TraceKind::Lost => {
                    assert_eq!(sent.get(&row.number), Some(&row.data), "packet {}", row.number);
                    ended += 1;
                }
                TraceKind::Received => {}
            }
        }
    }
    assert!(sent.len() > 10_000 && ended > sent.len() * 99 / 100, "{} sent, {ended} ended", sent.len());

    let exchanges: Vec<&str> = kept
        .samples
        .iter()
        .filter_map(
            |(_, _, s)| if let Sample::Exchange { line, .. } = s { Some(line.as_str()) } else { None },
        )
        .collect();
    assert!(exchanges.iter().any(|line| line.contains("requested")), "{exchanges:?}");
    assert!(exchanges.iter().any(|line| line.contains("in force")), "{exchanges:?}");
    let windows = kept.samples.iter().filter(|(_, role, s)| {
        *role == Role::Client && matches!(s, Sample::Status { window_bytes: Some(_), rtt: Some(_), .. })
    });
    assert!(windows.count() > 50);
}

/// Reno has no threshold before its first loss (RFC 5681 section 3.1 begins with an arbitrarily
/// high one), and half of what was in flight, or two packets, after it.
#[test]
fn each_packet_tells_what_its_sender_goes_by() {
    let spec = r#"{"kind":"uts","properties":{"uts.profile":"tcp-reno","uts.consent":"all"}}"#;
    let reno: TransportSpec = serde_json::from_str(spec).expect("a transport");
    let links = SimLink::point_to_point("path", path("rate=10mbit delay=10ms buffer=10p"));
    let record = SimRecord { packets: true, ..SimRecord::default() };
    let case = SimCase { record, ..case(links, vec![flow(reno, bulk(3_000_000))]) };
    let mut kept = Kept::default();
    sim::run(&case, &mut kept).expect("the case makes sense");
    let of_client: Vec<(&TraceRow, &SenderState)> = kept
        .packets
        .iter()
        .zip(&kept.states)
        .filter_map(|((_, role, row), state)| (*role == Role::Client).then_some((row, state)))
        .collect();
    let lost = of_client.iter().position(|(row, _)| row.kind == TraceKind::Lost).expect("the queue is full");
    let (before, after) = of_client.split_at(lost);
    // A state is that after the whole event: acknowledgements that reveal the loss have it too.
    let earlier = before.iter().filter(|(row, _)| row.at < after[0].0.at);
    assert!(earlier.clone().count() > 20);
    assert!(earlier.clone().all(|(_, state)| state.threshold_bytes.is_none()));
    let most = before.iter().map(|(_, state)| state.in_flight_bytes).max().expect("packets");
    let threshold = after[0].1.threshold_bytes.expect("set by the loss");
    // What was in flight as the loss was noticed is a little less than the most.
    assert!((most / 3..=most / 2).contains(&threshold), "{threshold} of {most}");
    assert!(after.iter().all(|(_, state)| state.threshold_bytes.is_some()));
    assert!(of_client.iter().all(|(_, state)| state.window_bytes.is_some_and(|bytes| bytes >= 1000)));
    let sent = of_client.iter().filter(|(row, _)| row.kind == TraceKind::Sent && row.data.is_some());
    assert!(sent.clone().count() > 2000);
    assert!(sent.clone().all(|(row, state)| state.in_flight_bytes >= row.bytes), "it is in flight itself");
    assert_eq!(of_client.last().expect("packets").1.in_flight_bytes, 0);
}

#[test]
fn hosts_are_captured_and_connections_logged() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = Some(directory.path().to_owned());
    let record = SimRecord { pcap: place.clone(), qlog: place, ..SimRecord::default() };
    let links = SimLink::point_to_point("path", path("rate=20mbit delay=5ms loss=0.01"));
    let flows = vec![flow(uts(), bulk(500_000)), flow(udp(), workloads().remove(4))];
    let case = SimCase { record, ..case(links, flows) };
    let result = sim::run(&case, &mut ()).expect("the case makes sense");
    let files = std::fs::read_dir(directory.path()).expect("it is there");
    let mut names: Vec<String> =
        files.map(|file| file.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, ["client.pcap", "server.pcap", "uts.client.sqlog", "uts.server.sqlog"]);

    let [forward, backward] = [&result.links[0].2, &result.links[1].2];
    for (host, sent, received) in [("client", forward, backward), ("server", backward, forward)] {
        let file = std::fs::File::open(directory.path().join(format!("{host}.pcap"))).expect("it is there");
        let mut reader = pcap_file::pcap::PcapReader::new(file).expect("a capture");
        let (mut packets, mut bytes) = (0, 0);
        while let Some(packet) = reader.next_packet() {
            bytes += u64::from(packet.expect("a packet").orig_len);
            packets += 1;
        }
        assert_eq!(packets, sent.packets_in + received.delivered, "{host}");
        assert_eq!(bytes, sent.bytes_in + received.bytes_delivered, "{host}");
    }
    for role in ["client", "server"] {
        let log = std::fs::read(directory.path().join(format!("uts.{role}.sqlog"))).expect("it is there");
        let records: Vec<serde_json::Value> = log
            .split(|byte| *byte == 0x1e)
            .skip(1)
            .map(|record| serde_json::from_slice(record).expect("JSON"))
            .collect();
        assert_eq!(records[0]["trace"]["vantage_point"]["type"], role);
        assert!(records.iter().filter(|r| r["name"] == "quic:packet_sent").count() > 50, "{role}");
    }

    let gone = directory.path().join("gone");
    let record = SimRecord { pcap: Some(gone.clone()), ..SimRecord::default() };
    let error = sim::run(&SimCase { record, ..case }, &mut ()).expect_err("refused").to_string();
    assert!(error.starts_with(&format!("cannot write {}", gone.join("client.pcap").display())), "{error}");
}

#[test]
fn a_recorder_can_stop_a_run() {
    struct Stop;
    impl Recorder for Stop {
        fn is_stopped(&self) -> bool {
            true
        }
    }
    let links = SimLink::point_to_point("path", path("rate=20mbit delay=5ms"));
    let stopped = sim::run(&case(links, vec![flow(uts(), bulk(50_000_000))]), &mut Stop);
    assert!(matches!(stopped, Err(SimError::Stopped)));
}
