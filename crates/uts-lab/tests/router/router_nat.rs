//! A connection through a translator of addresses (nftables' masquerade) that changes its mind: the
//! peer follows (migration.md).
//!
//! Where there can be no testbed, or no translator, a line says what is missing, and the test
//! passes.

use crate::bed::{PATIENCE, config, ended, frames, possible, program, recorded};
use crate::skip;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;
use uts_end::line::{Line, Ready, Status, read};
use uts_path::PathConfig;
use uts_router::{HostCommand, Io, RemoteChild, Testbed, TestbedConfig, Topology};

const CLIENT: usize = 0;
const TRANSLATOR: usize = 1;
const SERVER: usize = 2;

const BYTES: u64 = 6_000_000;
const UTS: &str = r#"{"kind":"uts"}"#;

/// Runs lines of a shell on a host; says what came of it.
fn on(bed: &Testbed, host: usize, lines: &str) -> Result<(), String> {
    let script = format!("set -e; PATH=$PATH:/usr/sbin:/sbin; {lines}");
    let output = bed.command(host, "sh").args(["-c", &script]).output().expect("started");
    let said = String::from_utf8_lossy(&output.stderr);
    output.exit.status.success().then_some(()).ok_or_else(|| format!("{lines}: {said}"))
}

/// The client is behind the translator, in a network of its own, and has no other way out.
const CLIENT_SETTINGS: &str = "
    ip addr del 10.77.0.1/24 dev eth0
    ip addr add 192.168.9.2/24 dev eth0
    ip neigh replace 192.168.9.1 lladdr 02:00:00:00:00:02 dev eth0 nud permanent
    ip route add default via 192.168.9.1";

/// Packets go in and out by the one interface that a host has.
const TRANSLATOR_SETTINGS: &str = "
    ip addr add 192.168.9.1/24 dev eth0
    ip neigh replace 192.168.9.2 lladdr 02:00:00:00:00:01 dev eth0 nud permanent
    echo 0 > /proc/sys/net/ipv4/conf/all/send_redirects
    echo 0 > /proc/sys/net/ipv4/conf/eth0/send_redirects
    echo 1 > /proc/sys/net/ipv4/ip_forward
    nft add table ip translator
    nft 'add chain ip translator out { type nat hook postrouting priority srcnat; }'
    nft add rule ip translator out ip saddr 192.168.9.0/24 masquerade random";

/// Without its address a translator forgets whom it had given what.
const ANOTHER_PORT: &str = "ip addr del 10.77.0.2/24 dev eth0; ip addr add 10.77.0.2/24 dev eth0";
const ANOTHER_ADDRESS: &str = "ip addr del 10.77.0.2/24 dev eth0; ip addr add 10.77.0.52/24 dev eth0";
const KNOWN_AS_WELL: &str = "ip neigh replace 10.77.0.52 lladdr 02:00:00:00:00:02 dev eth0 nud permanent";

fn end(bed: &Testbed, host: usize, role: &str, out: &Path) -> HostCommand {
    let workload = format!(r#"{{"kind":"bulk","bytes":{BYTES}}}"#);
    bed.command(host, program().to_str().expect("a path"))
        .args(["end", "--role", role, "--transport", UTS, "--workload", &workload, "--seed", "5"])
        .args(["--give-up", "100s", "--out", out.to_str().expect("a path")])
}

fn ended_well(mut end: RemoteChild, out: &Path) -> Vec<Line> {
    let exit = end.wait_timeout(PATIENCE).expect("known").expect("it ends");
    assert!(exit.status.success(), "{exit:?}");
    let lines = read(out).expect("whole");
    assert!(matches!(lines.last(), Some(Line::End(end)) if end.status == Status::Ok), "{lines:?}");
    lines
}

/// As who packets of UDP came from, by what was captured at a host.
fn senders(capture: &Path, to: Ipv4Addr) -> BTreeSet<(Ipv4Addr, u16)> {
    let of_udp = |frame: &Vec<u8>| frame[12..14] == [8, 0] && frame[23] == 17 && frame[30..34] == to.octets();
    let from = |frame: Vec<u8>| {
        let address = Ipv4Addr::new(frame[26], frame[27], frame[28], frame[29]);
        (address, u16::from_be_bytes([frame[34], frame[35]]))
    };
    frames(capture).into_iter().map(|(_, frame)| frame).filter(of_udp).map(from).collect()
}

#[test]
fn a_transfer_goes_on_when_a_translator_changes_port_and_address() {
    if !possible() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let paths = ["rate=8mbit delay=10ms buffer=60kB", "delay=1ms"];
    let paths = paths.map(|path| PathConfig::both(path.parse().expect("a path"))).into();
    let (topology, record) = (Topology::Chain { routers: 3 }, recorded(&dir));
    let two_paths = TestbedConfig { topology, paths, record, ..config("delay=0ms") };
    let bed = Testbed::start(two_paths).expect("a testbed");
    on(&bed, CLIENT, CLIENT_SETTINGS).expect("set");
    on(&bed, SERVER, KNOWN_AS_WELL).expect("set");
    if let Err(why) = on(&bed, TRANSLATOR, TRANSLATOR_SETTINGS) {
        skip::say(&format!("no translator of addresses by nftables (Debian: apt install nftables): {why}"));
        return;
    }
    let [at_server, at_client] = ["server", "client"].map(|end| dir.path().join(format!("{end}.ndjson")));
    let server = end(&bed, SERVER, "server", &at_server).args(["--listen", "10.77.0.3:0"]).stdout(Io::Pipe);
    let mut server = server.spawn().expect("started");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let ready: Ready = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
    let mut client = end(&bed, CLIENT, "client", &at_client).args(["--to", &ready.address.to_string()]);
    if let Some(identity) = &ready.identity {
        client = client.args(["--peer", identity]);
    }
    let client = client.spawn().expect("started");
    for change in [ANOTHER_PORT, ANOTHER_PORT, ANOTHER_ADDRESS] {
        std::thread::sleep(Duration::from_millis(1500));
        on(&bed, TRANSLATOR, change).expect("changed");
    }
    ended_well(client, &at_client);
    let lines = ended_well(server, &at_server);
    let delivered = lines.iter().find_map(|line| match line {
        Line::Measure(measure) if measure.name == "delivered" => Some(measure.value),
        _ => None,
    });
    assert_eq!(delivered, Some(BYTES as f64));
    ended(bed);
    let seen = senders(&dir.path().join("host-2.pcap"), Ipv4Addr::new(10, 77, 0, 3));
    let by_address =
        |last: u8| seen.iter().filter(|(from, _)| *from == Ipv4Addr::new(10, 77, 0, last)).count();
    assert!(by_address(2) >= 2 && by_address(52) == 1, "{seen:?}");
}
