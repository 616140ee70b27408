//! RouterPC with real hosts: what passes, each impairment against its statistics, segmentation
//! against the kernel's, and that nothing is left behind. Nothing here depends on how fast the
//! machine is. The tests compare counts, and times of the model.
//!
//! Where there can be no testbed, a line says what would permit it, and the tests pass.

use crate::bed::{
    PATIENCE, PORT, Waiting, at, config, datagrams, departures, ended, frames, possible, probe, recorded,
    rows, serve, start, transfer,
};
use std::time::{Duration, Instant};
use uts_path::{PathConfig, Target};
use uts_router::probe::{Datagrams, Echoes, Segmented, Transfer};
use uts_router::{Exit, Io, RouterError, Testbed, TestbedConfig, Topology};

/// Within six deviations of a binomial distribution.
fn assert_share(count: u64, of: u64, p: f64, what: &str) {
    let (count, of) = (count as f64, of as f64);
    let slack = 6.0 * (of * p * (1.0 - p)).sqrt() + 1.0;
    assert!((count - of * p).abs() <= slack, "{what}: {count} of {of}, for {p}");
}

#[test]
fn tcp_udp_and_icmp_pass_over_both_families() {
    let config = TestbedConfig { ipv6: true, ..config("delay=1ms") };
    let Some(bed) = start(config) else { return };
    assert_eq!(transfer(&bed, 3_000_000).bytes, 3_000_000);
    assert_eq!(datagrams(&bed, 1000, 500).received, 1000);
    let to = bed.address(1).to_string();
    let echoes: Echoes = probe(&bed, 0, &["ping", &to]);
    assert_eq!((echoes.sent, echoes.answered), (3, 3));
    assert!(echoes.least_s >= 0.002, "there and back: {echoes:?}");

    let to = bed.address_v6(1).unwrap().to_string();
    let echoes: Echoes = probe(&bed, 0, &["ping", &to]);
    assert_eq!((echoes.sent, echoes.answered), (3, 3));
    let to = format!("[{to}]:{PORT}");
    let server = serve(&bed, 1, &["tcp-serve", &to]);
    let sent: Transfer = probe(&bed, 0, &["tcp-send", &to, "--bytes", "3000000"]);
    assert_eq!(server.result::<Transfer>().sum, sent.sum);
    let ending = ended(bed);
    assert_eq!(ending.fidelity.lost_outside.total(), 0, "{:?}", ending.fidelity);
    assert_eq!(ending.paths[0].forward.dropped(), 0);
}

#[test]
fn loss_is_what_was_asked_for() {
    let Some(bed) = start(config("loss=0.1")) else { return };
    let count = 4000;
    let got = datagrams(&bed, count, 100);
    let ending = ended(bed);
    let forward = ending.paths[0].forward;
    assert_eq!(forward.packets_in, count);
    assert_eq!(forward.dropped_loss + forward.delivered, count);
    assert_eq!(
        got.received + ending.fidelity.lost_outside.in_sockets,
        forward.delivered,
        "what arrives is what is counted"
    );
    assert_share(forward.dropped_loss, count, 0.1, "loss");
}

#[test]
fn bursts_of_loss_have_their_length() {
    let Some(bed) = start(config("loss=ge:0.1,5")) else { return };
    let count = 4000;
    let got = datagrams(&bed, count, 100);
    let ending = ended(bed);
    let lost = ending.paths[0].forward.dropped_loss;
    assert_eq!(got.received + lost + ending.fidelity.lost_outside.in_sockets, count, "{ending:?}");
    if ending.fidelity.lost_outside.in_sockets > 0 {
        return eprintln!("the bursts were not looked at: the receiver was too slow");
    }
    // 80 bursts are expected: six deviations of their number and of their length, which are
    // geometric.
    let bursts = got.gaps as f64;
    assert!((bursts - 80.0).abs() < 6.0 * 80f64.sqrt(), "{bursts} bursts");
    let length = lost as f64 / bursts;
    assert!((length - 5.0).abs() < 6.0 * 5.0 / bursts.sqrt(), "bursts of {length}");
}

#[test]
fn copies_arrive_twice() {
    let Some(bed) = start(config("duplicate=0.2")) else { return };
    let count = 4000;
    let got = datagrams(&bed, count, 100);
    let ending = ended(bed);
    let forward = ending.paths[0].forward;
    assert_eq!(forward.delivered, count + forward.duplicated);
    assert_eq!(got.received + ending.fidelity.lost_outside.in_sockets, forward.delivered);
    assert_share(forward.duplicated, count, 0.2, "duplicates");
}

#[test]
fn packets_held_back_are_overtaken() {
    // Held back by more than the whole transfer's length: each one arrives after all others.
    let Some(bed) = start(config("reorder=0.1,800ms")) else { return };
    let count = 2000;
    let got = datagrams(&bed, count, 100);
    let ending = ended(bed);
    let forward = ending.paths[0].forward;
    assert_eq!(got.reordered, forward.reordered, "the receiver sees what is counted");
    assert_eq!(got.different + ending.fidelity.lost_outside.in_sockets, count);
    // The number that were overtaken depends on when they were sent. Except for the last ones, all
    // that were held back were overtaken.
    assert!(forward.reordered as f64 > 0.05 * count as f64, "{forward:?}");
    assert!((forward.reordered as f64) < 0.15 * count as f64, "{forward:?}");
}

#[test]
fn damaged_packets_are_refused_by_the_checksum() {
    for offload in [true, false] {
        let config = TestbedConfig { offload, ..config("corrupt=0.2") };
        let Some(bed) = start(config) else { return };
        let count = 3000;
        let got = datagrams(&bed, count, 100);
        let ending = ended(bed);
        let forward = ending.paths[0].forward;
        assert_share(forward.corrupted, count, 0.2, "corruption");
        // One flipped bit never escapes a checksum, of IP or of UDP. Bits that make it another
        // packet are not covered by a sum. UDP over IPv4 has none of them, but fragments of a
        // packet that never comes are possible.
        let arrived = got.received + ending.fidelity.lost_outside.in_sockets;
        assert_eq!(arrived + forward.corrupted, count, "{got:?}");
        assert_eq!(got.damaged, 0);
    }
}

#[test]
fn tcp_gets_through_damage_loss_and_disorder_unharmed() {
    let config =
        config("rate=100mbit delay=2ms jitter=1ms,reorder loss=0.005 duplicate=0.01 corrupt=0.005,8");
    let Some(bed) = start(config) else { return };
    transfer(&bed, 4_000_000);
    let forward = ended(bed).paths[0].forward;
    assert!(forward.corrupted > 0 && forward.duplicated > 0 && forward.dropped_loss > 0, "{forward:?}");
}

#[test]
fn segmentation_is_the_kernels_bit_by_bit() {
    let Some(bed) = start(config("delay=0ms")) else { return };
    for seed in ["1", "2"] {
        let seen: Segmented = probe(&bed, 0, &["gso-check", "--cases", "150", "--seed", seed]);
        assert!(seen.cases == 150 && seen.segments > 1000, "{seen:?}");
        // The interface is there already.
        bed.command(0, "ip").args(["link", "del", "gso-a"]).output().unwrap();
    }
}

#[test]
fn each_packet_is_carried_by_itself_with_and_without_offload() {
    for offload in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let config = TestbedConfig { offload, record: recorded(&dir), ..config("delay=1ms") };
        let Some(bed) = start(config) else { return };
        transfer(&bed, 2_000_000);
        let ending = ended(bed);
        let [a, b] = [0, 1].map(|host| frames(&dir.path().join(format!("host-{host}.pcap"))));
        let forward = ending.paths[0].forward;
        assert_eq!(a.len() as u64, forward.packets_in + ending.paths[0].backward.delivered);
        assert_eq!(b.len(), a.len(), "nothing was lost");
        assert!(a.iter().chain(&b).all(|(_, frame)| frame.len() <= 1514), "no super-packet");
        let mut sent: Vec<&[u8]> =
            a.iter().map(|(_, f)| &f[..]).filter(|f| f[..6] == [2, 0, 0, 0, 0, 2]).collect();
        let mut got: Vec<&[u8]> =
            b.iter().map(|(_, f)| &f[..]).filter(|f| f[..6] == [2, 0, 0, 0, 0, 2]).collect();
        assert!(sent.len() > 2_000_000 / 1448, "{}", sent.len());
        assert!(sent.iter().all(|frame| checksum_is_right(frame)));
        sent.sort_unstable();
        got.sort_unstable();
        assert!(sent == got, "what arrives is what was sent");
    }
}

/// TCP's checksum over IPv4 (RFC 9293, 3.1).
fn checksum_is_right(frame: &[u8]) -> bool {
    let ip = &frame[14..];
    let whole = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let tcp = &ip[20..whole];
    let mut sum = 6 + tcp.len() as u32;
    for words in [&ip[12..20], tcp] {
        sum +=
            words.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum::<u32>();
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

#[test]
fn the_record_has_the_queue_and_the_sequence() {
    let dir = tempfile::tempdir().unwrap();
    let config = TestbedConfig { record: recorded(&dir), ..config("rate=50mbit delay=5ms buffer=30p") };
    let Some(bed) = start(config) else { return };
    bed.begin().unwrap();
    let at_1 = at(&bed, 1);
    transfer(&bed, 1_000_000);
    let forward = ended(bed).paths[0].forward;
    let queue = rows(&dir.path().join("queue.csv"));
    let of = |dir: &str| queue.iter().filter(|r| r["dir"] == dir).collect::<Vec<_>>();
    let passed = of("fwd");
    assert_eq!(passed.len() as u64, forward.packets_in);
    assert_eq!(passed.iter().filter(|r| r["dropped"] == "queue_full").count() as u64, forward.dropped_queue);
    assert!(passed.iter().all(|r| r["packets"].parse::<u64>().unwrap() <= 30));
    // 1500 bytes at 50 Mbit/s take 240 us, and nothing less than a packet's own time.
    for row in passed.iter().filter(|r| r["dropped"].is_empty()) {
        let (len, sojourn): (f64, f64) = (row["len"].parse().unwrap(), row["sojourn_s"].parse().unwrap());
        assert!(sojourn >= len * 8.0 / 50e6 - 2e-9, "{row:?}");
    }

    let sequence = rows(&dir.path().join("sequence.csv"));
    let data: Vec<_> = sequence.iter().filter(|r| r["dir"] == "fwd" && r["len"] != "0").collect();
    let end = |row: &&std::collections::BTreeMap<String, String>| {
        row["seq"].parse::<u64>().unwrap() + row["len"].parse::<u64>().unwrap()
    };
    assert_eq!(data.iter().map(end).max(), Some(1_000_001), "a SYN, then so many bytes");
    let acks = sequence.iter().filter(|r| r["dir"] == "bwd").filter_map(|r| r["ack"].parse::<u64>().ok());
    assert_eq!(acks.max(), Some(1_000_002), "all, and the FIN");
    assert!(sequence.iter().any(|r| r["window"].parse::<u64>().unwrap() > 65_535), "scaled");

    // At least 160 ms at this rate: many samples. The sender's are of its connection.
    let tcp = rows(&dir.path().join("tcp.csv"));
    let sender: Vec<_> =
        tcp.iter().filter(|r| r["host"] == "0" && r["remote"] == at_1 && r["state"] != "syn-sent").collect();
    assert!(!sender.is_empty(), "{tcp:?}");
    assert!(sender.iter().all(|r| r["mss"] == "1448" && r["local"].starts_with("10.77.0.1:")), "{sender:?}");
    let last = sender.iter().rfind(|r| r["state"] == "established").unwrap();
    assert_eq!(last["congestion"], "cubic");
    assert!(last["rtt_min_s"].parse::<f64>().unwrap() >= 0.010, "{last:?}");
    let acked: Vec<u64> = sender.iter().map(|r| r["bytes_acked"].parse().unwrap()).collect();
    assert!(acked.is_sorted() && *acked.last().unwrap() <= 1_000_002, "{acked:?}");
}

#[test]
fn a_rate_holds_and_changes_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let config = TestbedConfig { record: recorded(&dir), ..config("rate=2mbit") };
    let Some(bed) = start(config) else { return };
    let receiver = serve(&bed, 1, &["udp-receive", &at(&bed, 1)]);
    let to = at(&bed, 1);
    // 500 packets of 1000 bytes: 2 s at 2 Mbit/s, 20 ms at 200 Mbit/s.
    let _: Datagrams = probe(&bed, 0, &["udp-send", &to, "--count", "500", "--bytes", "972"]);
    while bed.stats().unwrap()[0].forward.delivered < 100 {
        std::thread::sleep(Duration::from_millis(5));
    }
    bed.set(0, Target::One(uts_path::Direction::Forward), &"rate=200mbit".parse().unwrap()).unwrap();
    let got: Datagrams = receiver.result();
    let ending = ended(bed);
    assert_eq!(got.received, 500, "{ending:?}");
    let gaps: Vec<f64> = departures(dir.path()).windows(2).map(|w| w[1] - w[0]).collect();
    let near = |gap: f64, wanted: f64| (gap - wanted).abs() < 2e-9;
    // Never sooner. Later only while the sender, which may wait for a processor, is not ahead of
    // the path.
    let slow = gaps.iter().take_while(|gap| **gap > 0.004 - 2e-9).count();
    let late = gaps.iter().take(slow).filter(|gap| !near(**gap, 0.004)).count();
    let fast = gaps.iter().rev().take_while(|gap| near(**gap, 0.000_04)).count();
    assert!(slow >= 99 && late < slow / 2, "{late} late of {slow}: {gaps:?}");
    // One packet was under way at the change: it keeps what was left of it.
    assert!(slow + fast + 1 >= gaps.len() && fast > 0, "{slow} + {fast} of {}: {gaps:?}", gaps.len());
    let changes = std::fs::read_to_string(dir.path().join("changes.csv")).unwrap();
    assert!(changes.lines().nth(1).unwrap().ends_with(",0,fwd,\"rate=200mbit\""), "{changes}");
}

#[test]
fn a_schedule_counts_from_the_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = TestbedConfig { record: recorded(&dir), ..config("loss=1") };
    config.paths[0].schedule = "at=150ms both loss=0".parse().unwrap();
    let Some(bed) = start(config) else { return };
    std::thread::sleep(Duration::from_millis(200));
    bed.begin().unwrap();
    let begun = Instant::now();
    let to = bed.address(1).to_string();
    // One that is lost for sure, if the machine lets us.
    let receiver = serve(&bed, 1, &["udp-receive", &at(&bed, 1)]);
    let _: Datagrams = probe(&bed, 0, &["udp-send", &at(&bed, 1), "--count", "1"]);
    let early = begun.elapsed() < Duration::from_millis(140);
    while bed.stats().unwrap()[0].forward.dropped_loss == 0 && early {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(200));
    let echoes: Echoes = probe(&bed, 0, &["ping", &to]);
    assert_eq!(echoes.answered, 3);
    receiver.child.kill().unwrap();
    ended(bed);
    let changes = std::fs::read_to_string(dir.path().join("changes.csv")).unwrap();
    assert_eq!(changes.lines().nth(1), Some("0.150000000,0,both,\"loss=0\""), "{changes}");
}

#[test]
fn delay_is_added_in_each_direction() {
    let mut config = config("delay=30ms");
    config.paths[0].backward = "delay=50ms".parse().unwrap();
    let Some(bed) = start(config) else { return };
    let to = bed.address(1).to_string();
    let echoes: Echoes = probe(&bed, 0, &["ping", &to]);
    assert_eq!(echoes.answered, 3);
    // Never earlier; how much later is the machine's affair, and in the fidelity.
    assert!(echoes.least_s >= 0.080, "{echoes:?}");
}

#[test]
fn packets_are_marked_and_the_receiver_can_see_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = TestbedConfig { record: recorded(&dir), ..config("rate=1mbit ecn=5p") };
    let Some(bed) = start(config) else { return };
    let receiver = serve(&bed, 1, &["udp-receive", &at(&bed, 1)]);
    let to = at(&bed, 1);
    let _: Datagrams = probe(&bed, 0, &["udp-send", &to, "--count", "50", "--bytes", "100", "--tos", "2"]);
    assert_eq!(receiver.result::<Datagrams>().received, 50);
    let forward = ended(bed).paths[0].forward;
    let seen = frames(&dir.path().join("host-1.pcap"));
    let (mut marked, mut plain) = (0, 0);
    for (_, frame) in seen.iter().filter(|(_, f)| f[23] == 17) {
        match frame[15] & 3 {
            3 => marked += 1,
            2 => plain += 1,
            other => panic!("ECN {other}"),
        }
        let sum: u32 = frame[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "IP's checksum");
    }
    assert_eq!((marked, marked + plain), (forward.marked, 50));
    // Sent at once, all but five found the queue too long; 40 even if the sender was kept waiting.
    assert!(marked >= 1, "{forward:?}");
}

#[test]
fn what_exceeds_the_mtu_vanishes_or_is_answered() {
    for tell in [false, true] {
        let config = TestbedConfig { tell_too_big: tell, ..config("mtu=1000") };
        let Some(bed) = start(config) else { return };
        if tell {
            // The kernel learns of it, and the transfer goes through.
            transfer(&bed, 200_000);
            let forward = ended(bed).paths[0].forward;
            assert!(forward.dropped_mtu > 0, "{forward:?}");
        } else {
            let receiver = serve(&bed, 1, &["udp-receive", &at(&bed, 1)]);
            let to = at(&bed, 1);
            let _: Datagrams = probe(&bed, 0, &["udp-send", &to, "--count", "10", "--bytes", "973"]);
            let _: Datagrams = probe(&bed, 0, &["udp-send", &to, "--count", "7", "--bytes", "972"]);
            assert_eq!(receiver.result::<Datagrams>().received, 7);
            assert_eq!(ended(bed).paths[0].forward.dropped_mtu, 10);
        }
    }
}

#[test]
fn multicast_reaches_every_other_host() {
    let config = TestbedConfig { topology: Topology::Dumbbell { pairs: 2 }, ..config("delay=1ms") };
    let Some(bed) = start(config) else { return };
    let receivers: Vec<Waiting> = (1..4)
        .map(|host| {
            let own = bed.address(host).to_string();
            serve(&bed, host, &["udp-receive", &format!("0.0.0.0:{PORT}"), "--join", "239.1.2.3", &own])
        })
        .collect();
    let group = format!("239.1.2.3:{PORT}");
    let _: Datagrams = probe(&bed, 0, &["udp-send", &group, "--count", "100", "--gap-us", "100"]);
    for receiver in receivers {
        assert_eq!(receiver.result::<Datagrams>().different, 100);
    }
    // Host 1 is on the sender's side; the others are reached by one packet each time.
    let ending = ended(bed);
    assert!((100..150).contains(&ending.paths[0].forward.packets_in), "{ending:?}");
}

#[test]
fn a_chain_takes_packets_over_all_its_paths() {
    let topology = Topology::Chain { routers: 3 };
    let paths = vec![
        PathConfig::both("delay=10ms".parse().unwrap()),
        PathConfig::both("delay=20ms rate=10mbit".parse().unwrap()),
    ];
    let config = TestbedConfig { topology, paths, ..config("delay=0ms") };
    let Some(bed) = start(config) else { return };
    let echoes: Echoes = probe(&bed, 0, &["ping", &bed.address(2).to_string()]);
    assert!(echoes.answered == 3 && echoes.least_s >= 0.060, "{echoes:?}");
    let echoes: Echoes = probe(&bed, 0, &["ping", &bed.address(1).to_string()]);
    assert!(echoes.answered == 3 && echoes.least_s >= 0.020, "{echoes:?}");
    transfer(&bed, 200_000);
    let ending = ended(bed);
    let [first, second] = [ending.paths[0].forward, ending.paths[1].forward];
    assert_eq!(first.packets_in, second.packets_in + 3, "three went to host 1 only");
}

#[test]
fn the_access_rate_spaces_what_comes_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        TestbedConfig { access_rate_bps: Some(10_000_000), record: recorded(&dir), ..config("buffer=2p") };
    let Some(bed) = start(config) else { return };
    transfer(&bed, 300_000);
    ended(bed);
    let queue = rows(&dir.path().join("queue.csv"));
    let arrivals: Vec<(f64, f64)> = queue
        .iter()
        .filter(|r| r["dir"] == "fwd")
        .map(|r| (r["t_s"].parse().unwrap(), r["len"].parse().unwrap()))
        .collect();
    assert!(arrivals.len() > 200);
    for pair in arrivals.windows(2) {
        let takes = (pair[1].1 + 14.0) * 8.0 / 10e6;
        assert!(pair[1].0 - pair[0].0 >= takes - 2e-9, "{pair:?}");
    }
}

#[test]
fn a_run_beyond_its_bounds_is_not_valid_and_says_why() {
    let mut strict = config("delay=1ms");
    strict.bounds.late_p50_us = 0.0;
    let Some(bed) = start(strict) else { return };
    let _: Echoes = probe(&bed, 0, &["ping", &bed.address(1).to_string()]);
    let fidelity = ended(bed).fidelity;
    assert!(!fidelity.is_valid);
    assert!(fidelity.why[0].starts_with("half of the packets were more than"), "{:?}", fidelity.why);
    assert!(fidelity.packets >= 6 && fidelity.cpu_s > 0.0 && fidelity.elapsed_s > 0.0, "{fidelity:?}");

    // A receiver that is stopped loses datagrams, whatever its buffer.
    let mut config = config("delay=0ms");
    (config.bounds.late_p50_us, config.bounds.late_p99_us, config.bounds.late_max_us) = (1e9, 1e9, 1e9);
    let bed = start(config).unwrap();
    let receiver = serve(&bed, 1, &["udp-receive", &at(&bed, 1)]);
    receiver.child.signal(rustix::process::Signal::STOP).unwrap();
    let to = at(&bed, 1);
    let _: Datagrams =
        probe(&bed, 0, &["udp-send", &to, "--count", "20000", "--bytes", "1400", "--gap-us", "20"]);
    let fidelity = ended(bed).fidelity;
    assert!(fidelity.lost_outside.in_sockets > 0, "{fidelity:?}");
    assert!(
        fidelity.why.iter().any(|why| why.contains("found the buffer of their socket full")),
        "{fidelity:?}"
    );
}

#[test]
fn beginning_again_forgets_what_was() {
    let Some(bed) = start(config("delay=1ms")) else { return };
    let _: Echoes = probe(&bed, 0, &["ping", &bed.address(1).to_string()]);
    assert_eq!(bed.stats().unwrap()[0].forward.packets_in, 3);
    bed.begin().unwrap();
    assert_eq!(bed.stats().unwrap()[0].forward.packets_in, 0);
    let _: Echoes = probe(&bed, 0, &["ping", &bed.address(1).to_string(), "--count", "2"]);
    assert_eq!(ended(bed).paths[0].forward.packets_in, 2);
}

#[test]
fn programs_have_their_arguments_environment_input_and_end() {
    let Some(bed) = start(config("delay=0ms")) else { return };
    let command = bed
        .command(1, "sh")
        .args(["-c", "read line; echo \"$line $UTS_A ${UTS_B-none}\"; echo bad >&2; exit 3"]);
    let mut child = command
        .env("UTS_A", "one two")
        .env_remove("UTS_B")
        .stdin(Io::Pipe)
        .stdout(Io::Pipe)
        .stderr(Io::Pipe)
        .spawn()
        .unwrap();
    assert_eq!(child.wait_timeout(Duration::from_millis(20)).unwrap(), None);
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"hello\n").unwrap();
    let text = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
    assert_eq!(text, "hello one two none\n");
    assert_eq!(std::io::read_to_string(child.stderr.take().unwrap()).unwrap(), "bad\n");
    let Exit { status, max_resident_bytes, .. } = child.wait().unwrap();
    assert_eq!(status.code(), Some(3));
    assert!(max_resident_bytes > 0);
    assert_eq!(child.wait().unwrap().status.code(), Some(3), "again");

    let mut child = bed.command(0, "sh").args(["-c", "sleep 1000 & wait"]).spawn().unwrap();
    child.kill().unwrap();
    let exit = child.wait_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&exit.status), Some(9));
    child.kill().unwrap();
    let busy = bed
        .command(0, "sh")
        .args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"])
        .output()
        .unwrap();
    assert!(busy.exit.user_s + busy.exit.system_s > 0.0, "{busy:?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |config: TestbedConfig| Testbed::start(config).unwrap_err().to_string();
    assert_eq!(
        refused(TestbedConfig { paths: vec![], ..config("delay=0ms") }),
        "paths: the topology has 1, not 0"
    );
    assert_eq!(
        refused(TestbedConfig { topology: Topology::Dumbbell { pairs: 0 }, ..config("delay=0ms") }),
        "topology: must have 2 to 200 hosts, not 0"
    );
    assert_eq!(
        refused(TestbedConfig { mtu_bytes: 100, ..config("delay=0ms") }),
        "mtu_bytes: must be between 576 and 65535, not 100"
    );
    let sysctls = vec![("kernel.hostname".into(), "x".into())];
    assert_eq!(
        refused(TestbedConfig { sysctls, ..config("delay=0ms") }),
        "sysctls: `kernel.hostname` must be a name as in net.ipv4.tcp_rmem"
    );
    let missing = TestbedConfig { program: Some("/nowhere/uts-lab".into()), ..config("delay=0ms") };
    assert!(refused(missing).starts_with("cannot start /nowhere/uts-lab router supervise: No such file"));

    let sysctls = vec![("net.ipv4.no_such_thing".into(), "1".into())];
    if !possible() {
        return;
    }
    let why = refused(TestbedConfig { sysctls, ..config("delay=0ms") });
    assert!(why.starts_with("testbed: cannot set net.ipv4.no_such_thing to `1`: "), "{why}");
    let bed = start(config("delay=0ms")).unwrap();
    let why = |result: Result<(), RouterError>| result.unwrap_err().to_string();
    assert_eq!(
        why(bed.set(3, Target::Both, &"loss=0".parse().unwrap())),
        "testbed: path 3: there are 1, counted from 0"
    );
    assert_eq!(why(bed.command(7, "true").spawn().map(drop)), "testbed: host 7: there are 2, counted from 0");
    let why = why(bed.command(0, "/no/such-program").spawn().map(drop));
    assert!(why.starts_with("testbed: cannot start `/no/such-program`: No such file"), "{why}");
}

#[test]
fn settings_of_the_kernel_reach_the_hosts() {
    let sysctls = vec![("net.ipv4.tcp_rmem".into(), "4096 100000 33554432".into())];
    let Some(bed) = start(TestbedConfig { sysctls, ..config("delay=0ms") }) else { return };
    let output = bed.command(1, "cat").arg("/proc/sys/net/ipv4/tcp_rmem").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["4096", "100000", "33554432"]);
}

#[test]
fn hosts_of_fast_paths_take_in_by_themselves_and_are_waited_for() {
    // No rate: RouterPC sends faster than a host takes in, whose ring holds 256 packets.
    let Some(bed) = start(config("delay=0ms")) else { return };
    let server = serve(&bed, 1, &["tcp-serve", &at(&bed, 1)]);
    let sent: Transfer = probe(&bed, 0, &["tcp-send", &at(&bed, 1), "--bytes", "300000000"]);
    assert_eq!(server.result::<Transfer>().bytes, sent.bytes);
    let is_threaded = threaded(&bed);
    let fidelity = ended(bed).fidelity;
    assert_eq!(fidelity.lost_outside.total(), 0, "{fidelity:?}");
    if uts_router::doctor().iter().any(|check| check.name == FAST_PATHS && check.ok) {
        assert_eq!(is_threaded, Some("1".into()));
    }

    let Some(bed) = start(config("delay=0ms rate=500mbit")) else { return };
    assert_ne!(threaded(&bed), Some("1".into()));
    ended(bed);
}

/// Datagrams come faster than a host takes them in, and fill the buffer of RouterPC's socket.
/// Without patience two thirds of them are lost there. A host that gets no processor for long may
/// still lose some.
#[test]
fn a_host_that_is_behind_is_waited_for() {
    const COUNT: u64 = 300_000;
    let Some(bed) = start(config("delay=0ms")) else { return };
    let (to, count) = (at(&bed, 1), COUNT.to_string());
    let _: Datagrams = probe(&bed, 0, &["udp-send", &to, "--count", &count, "--bytes", "1400"]);
    let lost = ended(bed).fidelity.lost_outside;
    assert!(lost.not_sent < COUNT / 3, "{lost:?}");
}

/// Name of the check in the answer of doctor.
const FAST_PATHS: &str = "fast paths";

/// State of the thread that receives for a host's interface, in the form in which the kernel writes
/// it. The kernel shows a namespace only to processes that have mounted its sysfs.
fn threaded(bed: &Testbed) -> Option<String> {
    let show = "mount -t sysfs sysfs /sys && cat /sys/class/net/eth0/threaded";
    let output = bed.command(1, "unshare").arg("--mount").arg("sh").arg("-c").arg(show).output().ok()?;
    output.exit.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
