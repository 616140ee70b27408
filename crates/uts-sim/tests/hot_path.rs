//! Costs of a packet, counted rather than timed: allocations, and instructions under valgrind. The
//! bounds here hold for the tests' profile on any machine. `scripts/instructions` has closer ones
//! for the release profile.

mod counting;

use core::time::Duration;
use counting::CALLS;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use uts_engine::{ConnectionConfig, ConnectionHandle, FlowId};
use uts_sim::pair::Pair;

/// Bytes of data in a full packet of 1472 bytes: what header, frame and tag leave, nearly.
const DATA_BYTES: u64 = 1440;

/// All functions left out that can be, for an application that writes bytes.
const BARE: &[&str] = &[
    "uts.security=unprotected",
    "uts.profile.detection=none",
    "reliability=prohibit",
    "uts.profile.retransmission=none",
    "preserveOrder=prohibit",
    "uts.profile.sequencing=unordered",
    "uts.profile.flow=none",
    "uts.profile.rate=none",
    "congestionControl=prohibit",
    "uts.profile.congestion=none",
];

/// Set for a process that is to carry this many packets, and be counted meanwhile.
const PACKETS_VARIABLE: &str = "UTS_COUNTED_PACKETS";

/// The counter of allocations is the process's: tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Two engines 1 ms apart, and a flow between them.
fn pair(properties: &[&str]) -> (Pair, ConnectionHandle, FlowId) {
    let mut config = ConnectionConfig::default();
    for property in properties {
        config.requirements.assign(property).expect("a property");
    }
    let mut pair = Pair::new(config.clone(), Duration::from_millis(1)).expect("a pair");
    let connection = pair.connect(config).expect("connected");
    let flow = pair.open_flow(connection).expect("a flow");
    // Until what was asked for is agreed, and the epoch before closed.
    pair.pass(pair.now + Duration::from_secs(1)).expect("exchanged");
    (pair, connection, flow)
}

/// Allocations per 1,000 packets, of which `lost` are lost, once windows have grown.
fn allocations(properties: &[&str], lost: u64) -> u64 {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (mut pair, connection, flow) = pair(properties);
    pair.loses_every = 1000u64.checked_div(lost);
    pair.carry(connection, flow, 20_000 * DATA_BYTES).expect("carried");
    let before = CALLS.load(Ordering::Relaxed);
    pair.carry(connection, flow, 20_000 * DATA_BYTES).expect("carried");
    (CALLS.load(Ordering::Relaxed) - before) as u64 / 20
}

#[test]
fn packets_are_carried_without_allocating() {
    for properties in [&[][..], &["uts.security=unprotected"], BARE] {
        let per_thousand = allocations(properties, 0);
        println!("{properties:?}: {per_thousand} allocations per 1,000 packets, both ends");
        assert!(per_thousand <= 20, "{properties:?}: {per_thousand} allocations per 1,000 packets");
    }
}

/// Data that is lost and not repeated leaves a gap for ever, behind which bytes come as they did
/// before.
#[test]
fn a_gap_for_ever_costs_what_follows_nothing() {
    let per_thousand = allocations(BARE, 10);
    println!("{per_thousand} allocations per 1,000 packets of which 10 are lost, both ends");
    assert!(per_thousand <= 100, "{per_thousand} allocations per 1,000 packets of which 10 are lost");
}

/// Packets that the kernel hands over at once are answered once. The more packets arrive per
/// second, the fewer are acknowledged by themselves.
#[test]
fn acknowledgements_become_rarer_with_the_rate() {
    let (mut pair, connection, flow) = pair(&[]);
    let sent = |pair: &Pair| {
        let of = |end: &uts_engine::Endpoint, handle| end.peek(handle).expect("open").stats().packets_sent;
        let at_server = pair.server.handles().next().expect("accepted");
        (of(&pair.client, connection), of(&pair.server, at_server))
    };
    pair.carry(connection, flow, 1_000 * DATA_BYTES).expect("carried");
    let before = sent(&pair);
    pair.carry(connection, flow, 20_000 * DATA_BYTES).expect("carried");
    let after = sent(&pair);
    let per_answer = (after.0 - before.0) as f64 / (after.1 - before.1) as f64;
    println!("{per_answer:.1} packets per acknowledgement");
    assert!(per_answer >= 10.0, "{per_answer:.1} packets per acknowledgement");
}

/// Instructions of a process of this test that carries `packets`.
fn instructions(packets: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    valgrind.arg(program).args(["--exact", "instructions_per_packet_are_bounded"]);
    let output = valgrind.env(PACKETS_VARIABLE, packets.to_string()).output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stderr).replace(',', "");
    let refs =
        text.lines().find_map(|line| line.split_once("I refs:").or_else(|| line.split_once("I   refs:")));
    match refs.and_then(|(_, count)| count.trim().parse().ok()) {
        Some(count) if output.status.success() => Ok(count),
        _ => Err(text),
    }
}

/// Without a cipher, whose cost depends on what a processor has.
#[test]
fn instructions_per_packet_are_bounded() {
    if let Ok(packets) = std::env::var(PACKETS_VARIABLE) {
        let (mut pair, connection, flow) = pair(&["uts.security=unprotected"]);
        let packets: u64 = packets.parse().expect("a number");
        return pair.carry(connection, flow, packets * DATA_BYTES).expect("carried");
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return eprintln!("skipped: instructions_per_packet_are_bounded: valgrind is not installed");
    }
    let (short, long) = (5_000, 15_000);
    let (a, b) = (instructions(short).expect("counted"), instructions(long).expect("counted"));
    let each = (b - a) / (long - short);
    println!("{each} instructions per packet, both ends");
    assert!(each <= 10_300, "{each} instructions per packet; it was 9,500 when this was written");
}
