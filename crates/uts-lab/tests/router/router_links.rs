//! RouterPC's links with real packets of real hosts: framings bit by bit, queue disciplines against
//! a model with the same arrivals, and the answer to packets that are too big for a link of IPv6.

use crate::bed::{PORT, at, config, ended, frames, probe, recorded, rows, serve, start, transfer};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use uts_path::{Direction, Path as EmulatedPath, PathConfig};
use uts_router::TestbedConfig;
use uts_router::probe::{Datagrams, Transfer};

/// Fate of a packet in the forward queue, in the order in which packets came.
#[derive(Debug, PartialEq)]
struct Passed {
    arrived_ns: u64,
    len: usize,
    sojourn_ns: u64,
    dropped: String,
}

fn passed(dir: &Path) -> Vec<Passed> {
    let ns = |text: &str| (text.parse::<f64>().unwrap() * 1e9).round() as u64;
    let mut all: Vec<(u64, Passed)> = rows(&dir.join("queue.csv"))
        .into_iter()
        .filter(|row| row["dir"] == "fwd")
        .map(|row| {
            let passed = Passed {
                arrived_ns: ns(&row["t_s"]),
                len: row["len"].parse().unwrap(),
                sojourn_ns: ns(&row["sojourn_s"]),
                dropped: row["dropped"].clone(),
            };
            (row["number"].parse().unwrap(), passed)
        })
        .collect();
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, passed)| passed).collect()
}

/// IP packets of UDP that came to host 1.
fn packets(dir: &Path) -> Vec<Vec<u8>> {
    let frames = frames(&dir.join("host-1.pcap"));
    let of_udp = frames.into_iter().filter(|(_, frame)| frame[12..14] == [8, 0] && frame[23] == 17);
    let cut = of_udp.map(|(_, frame)| {
        let whole = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        frame[14..14 + whole].to_vec()
    });
    cut.collect()
}

/// RFC 1055: an END before and after, an escape for each END and ESC within.
fn slip_bytes(ip: &[u8]) -> usize {
    2 + ip.iter().map(|byte| if matches!(byte, 0xc0 | 0xdb) { 2 } else { 1 }).sum::<usize>()
}

/// RFC 1662 without compression: a flag, address and control, protocol, the packet, FCS-16. 0x7d
/// and 0x7e are escaped.
fn ppp_bytes(ip: &[u8]) -> usize {
    let header = [0xff, 0x03, 0x00, 0x21];
    let mut fcs = 0xffffu16;
    for byte in header.iter().chain(ip) {
        fcs ^= u16::from(*byte);
        for _ in 0..8 {
            fcs = if fcs & 1 == 1 { fcs >> 1 ^ 0x8408 } else { fcs >> 1 };
        }
    }
    let trailer = (!fcs).to_le_bytes();
    let frame = header.iter().chain(ip).chain(&trailer);
    1 + frame.map(|byte| if matches!(byte, 0x7d | 0x7e) { 2 } else { 1 }).sum::<usize>()
}

#[test]
fn slip_and_ppp_cost_what_each_packets_bytes_need() {
    for framing in ["slip", "ppp"] {
        let bytes_of = |ip: &[u8]| if framing == "slip" { slip_bytes(ip) } else { ppp_bytes(ip) };
        // With a checksum that the kernel has left to the interface, the bytes would be others.
        for offload in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let both = format!("rate=1mbit framing={framing}");
            let config = TestbedConfig { offload, record: recorded(&dir), ..config(&both) };
            let Some(bed) = start(config) else { return };
            let receiver = serve(&bed, 1, &["udp-receive", &at(&bed, 1)]);
            let count = 600;
            let _: Datagrams =
                probe(&bed, 0, &["udp-send", &at(&bed, 1), "--count", &count.to_string(), "--bytes", "500"]);
            assert_eq!(receiver.result::<Datagrams>().received, count);
            ended(bed);
            let (passed, packets) = (passed(dir.path()), packets(dir.path()));
            assert_eq!((passed.len(), packets.len()), (600, 600));
            // One byte on an asynchronous line has ten bits: 10 us at this rate.
            let mut free_ns = 0;
            for (passed, ip) in passed.iter().zip(&packets) {
                assert_eq!(passed.len, ip.len());
                free_ns = passed.arrived_ns.max(free_ns) + bytes_of(ip) as u64 * 10_000;
                let left_ns = passed.arrived_ns + passed.sojourn_ns;
                assert!(
                    left_ns.abs_diff(free_ns) <= 2,
                    "{framing}: {passed:?} left at {left_ns}, not {free_ns}"
                );
            }
            let costs: BTreeSet<usize> = packets.iter().map(|ip| bytes_of(ip)).collect();
            assert!(costs.len() > 1, "{framing}: no packet has an escape of its own: {costs:?}");
        }
    }
}

/// Fates of the same arrivals in the model.
fn replayed(both: &str, seed: u64, passed: &[Passed]) -> Vec<Passed> {
    let mut path = EmulatedPath::new(PathConfig::both(both.parse().unwrap()), seed, 0).unwrap();
    path.record_passages(true);
    for packet in passed {
        path.send(packet.arrived_ns, Direction::Forward, vec![0u8; packet.len], packet.len);
    }
    path.advance(u64::MAX / 2);
    let mut all: BTreeMap<u64, Passed> = BTreeMap::new();
    while let Some(passage) = path.poll_passage(Direction::Forward) {
        let passed = Passed {
            arrived_ns: passage.arrived_ns,
            len: passage.len,
            sojourn_ns: passage.sojourn_ns(),
            dropped: passage.dropped.map_or(String::new(), |reason| reason.name().to_owned()),
        };
        all.insert(passage.number, passed);
    }
    all.into_values().collect()
}

/// A transfer of TCP over a link that bloats, with this queue; its record.
fn through(queue: &str, dir: &tempfile::TempDir) -> Option<(String, uts_path::Stats)> {
    let both = format!("rate=20mbit delay=10ms buffer=400p {queue}");
    let config = TestbedConfig { seed: 5, record: recorded(dir), ..config(&both) };
    let bed = start(config)?;
    // As the record begins, so does the model.
    bed.begin().unwrap();
    transfer(&bed, 12_000_000);
    Some((both, ended(bed).paths[0].forward))
}

/// Mean time in the queue of what got through, in milliseconds.
fn mean_sojourn_ms(passed: &[Passed]) -> f64 {
    let through: Vec<f64> =
        passed.iter().filter(|p| p.dropped.is_empty()).map(|p| p.sojourn_ns as f64 / 1e6).collect();
    through.iter().sum::<f64>() / through.len() as f64
}

#[test]
fn red_and_codel_do_to_real_packets_what_the_model_says() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_) = through("queue=droptail", &dir) else { return };
    let tail_ms = mean_sojourn_ms(&passed(dir.path()));
    for (queue, reason) in [("queue=red:5p,15p,0.1", "red"), ("queue=codel", "codel")] {
        let dir = tempfile::tempdir().unwrap();
        let Some((both, forward)) = through(queue, &dir) else { return };
        let passed = passed(dir.path());
        let early = passed.iter().filter(|p| p.dropped == reason).count() as u64;
        assert!(early > 0, "{queue}: {forward:?}");
        assert_eq!((early, passed.len() as u64), (forward.dropped_early, forward.packets_in), "{queue}");
        let model = replayed(&both, 5, &passed);
        assert_eq!(model.len(), passed.len());
        for (real, model) in passed.iter().zip(&model) {
            let is_same = (&real.dropped, real.arrived_ns) == (&model.dropped, model.arrived_ns)
                && real.sojourn_ns.abs_diff(model.sojourn_ns) <= 2;
            assert!(is_same, "{queue}: {real:?}, and the model {model:?}");
        }
        // What they are for: cubic fills 400 packets, 240 ms, and these keep it from doing so.
        let ms = mean_sojourn_ms(&passed);
        assert!(ms < tail_ms / 2.0, "{queue}: {ms} ms, and {tail_ms} ms with drop-tail");
    }
}

#[test]
fn ipv6_is_told_of_packets_that_are_too_big() {
    for tell in [true, false] {
        let config = TestbedConfig { ipv6: true, tell_too_big: tell, ..config("mtu=1300") };
        let Some(bed) = start(config) else { return };
        let host = bed.address_v6(1).unwrap().to_string();
        let to = format!("[{host}]:{PORT}");
        let knows = || {
            let output = bed.command(0, "ip").args(["-6", "route", "get", &host]).output().unwrap();
            let route = String::from_utf8(output.stdout).unwrap();
            assert!(route.contains(&host), "{route}");
            route.contains("mtu 1300")
        };
        assert!(!knows());
        let send = ["udp-send", &to, "--count", "20", "--bytes", "1400", "--gap-us", "5000"];
        if tell {
            let receiver = serve(&bed, 1, &["udp-receive", &to]);
            let _: Datagrams = probe(&bed, 0, &send);
            // From then on the kernel sends in fragments that fit, and TCP in segments that do.
            let got: Datagrams = receiver.result();
            let forward = bed.stats().unwrap()[0].forward;
            assert!(knows() && forward.dropped_mtu >= 1, "{forward:?}");
            assert!(got.received >= 1 && got.received + forward.dropped_mtu == 20, "{got:?} {forward:?}");
            let server = serve(&bed, 1, &["tcp-serve", &to]);
            let sent: Transfer = probe(&bed, 0, &["tcp-send", &to, "--bytes", "300000"]);
            assert_eq!(server.result::<Transfer>().sum, sent.sum);
        } else {
            let _: Datagrams = probe(&bed, 0, &send);
            // Neighbours ask for each other beside them.
            while bed.stats().unwrap()[0].forward.dropped_mtu < 20 {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            assert!(!knows());
        }
        ended(bed);
    }
}
