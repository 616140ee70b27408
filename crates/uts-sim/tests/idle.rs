//! Costs of connections that do nothing: bytes by a counting allocator, and no work.

mod counting;

use core::time::Duration;
use counting::{CALLS, HELD};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use uts_engine::{ConnectionConfig, ConnectionHandle};
use uts_functions::Time;
use uts_sim::pair::Pair;

/// Bytes that a connection at rest may take, including what the endpoint keeps for it. Together
/// with what handles keep, it is no more than 4 KiB. Some 200 bytes of it are the ids with which it
/// is followed to other addresses.
const BYTES_MAX: usize = 4_000;

/// Number of times that connections are made and counted.
const ROUNDS: usize = 4;

/// The counters are the process's: tests take turns.
static TURN: Mutex<()> = Mutex::new(());

fn config() -> ConnectionConfig {
    ConnectionConfig { idle_timeout: Duration::from_secs(3600), ..ConnectionConfig::default() }
}

fn pair(config: &ConnectionConfig) -> Pair {
    Pair::new(config.clone(), Duration::from_millis(5)).expect("a pair")
}

/// Carries some data over a flow each way, and ends it.
fn use_it(pair: &mut Pair, handle: ConnectionHandle) {
    let flow = pair.open_flow(handle).expect("a flow");
    pair.carry(handle, flow, 200_000).expect("carried");
    pair.client.connection(handle).expect("open").finish(flow);
    // The rest of what was written arrives. Otherwise all connections would be busy at once, and
    // the pair's line full.
    pair.pass(pair.now + Duration::from_secs(1)).unwrap_or_else(|e| panic!("{e}"));
}

fn rest(pair: &mut Pair) {
    pair.pass(pair.now + Duration::from_secs(10)).unwrap_or_else(|e| panic!("{e}"));
}

/// Bytes that each connection of the pair holds at its two ends together, beyond the first.
fn bytes_each(count: usize, is_used: bool) -> usize {
    let config = std::sync::Arc::new(config());
    let mut pair = pair(&config);
    let connect = |pair: &mut Pair| {
        let handle = pair.connect(config.clone()).expect("connected");
        if is_used {
            use_it(pair, handle);
        }
    };
    connect(&mut pair);
    rest(&mut pair);
    // Connections leave an endpoint buffers for all, up to a bound that one round does not reach.
    // They do not keep buffers each.
    let mut round = || {
        let before = HELD.load(Ordering::Relaxed);
        (0..count / 2).for_each(|_| connect(&mut pair));
        rest(&mut pair);
        (HELD.load(Ordering::Relaxed) - before) / (count / 2)
    };
    let each = (0..ROUNDS).map(|_| round()).min().expect("some rounds");
    let connections = ROUNDS * (count / 2) + 1;
    assert_eq!((pair.client.len(), pair.server.len()), (connections, connections));
    for (end, name) in [(&pair.client, "client"), (&pair.server, "server")] {
        let last = end.handles().last().expect("connections");
        let connection = end.peek(last).expect("open");
        println!(
            "{name}, used: {is_used}: {} bytes: {:?}",
            connection.memory_bytes(),
            connection.memory_parts()
        );
        let waiting = connection.memory_parts().into_iter().find(|(part, _)| *part == "waiting");
        // A client keeps the token for its next connection.
        assert!(name == "client" || waiting.is_none_or(|(_, bytes)| bytes == 0), "{waiting:?}");
        for connection in end.handles().filter_map(|handle| end.peek(handle)) {
            let kept = connection.memory_bytes();
            assert!(kept <= BYTES_MAX, "{name}: {kept} bytes in {:?}", connection.memory_parts());
        }
    }
    each
}

#[test]
fn a_connection_at_rest_takes_four_kilobytes_at_most() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for is_used in [false, true] {
        let each = bytes_each(800, is_used);
        println!("used: {is_used}: {each} bytes at both ends, {} each", each / 2);
        assert!(each <= 2 * BYTES_MAX, "{each} bytes at two ends");
    }
}

#[test]
fn of_an_idle_connection_only_the_idle_time_out_is_due() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let config = config();
    let mut pair = pair(&config);
    let handle = pair.connect(config.clone()).expect("connected");
    use_it(&mut pair, handle);
    rest(&mut pair);
    let heard_at = pair.now;
    for end in [&mut pair.client, &mut pair.server] {
        let due = end.poll_timeout().expect("the idle time-out");
        assert!(
            due > heard_at + Duration::from_secs(3500) && due < heard_at + config.idle_timeout,
            "{due:?}"
        );
        end.handle_timeout(due - Duration::from_nanos(1));
        assert_eq!(end.poll_timeout(), Some(due));
    }
}

#[test]
fn a_keep_alive_is_all_that_a_connection_kept_alive_does() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let config = ConnectionConfig { keep_alive: Duration::from_secs(20), ..config() };
    let mut pair = pair(&config);
    let handle = pair.connect(config.clone()).expect("connected");
    rest(&mut pair);
    let sent =
        |pair: &Pair| pair.client.peek(handle).map(uts_engine::Connection::stats).expect("open").packets_sent;
    let (before, start) = (sent(&pair), pair.now);
    let mut steps = 0;
    while pair.now < start + Duration::from_secs(200) {
        pair.turn().unwrap_or_else(|e| panic!("{e}"));
        steps += 1;
    }
    // Both ends ask in turn or at once; each question is answered within the acknowledgement delay.
    let packets = sent(&pair) - before;
    assert!((9..=24).contains(&packets), "{packets} packets in 200 s");
    assert!(steps <= 120, "{steps} steps for ten rounds of keep-alives");
}

#[test]
fn ten_thousand_idle_connections_cost_nothing_to_wait_for() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let config = std::sync::Arc::new(config());
    let mut pair = pair(&config);
    let mut handles = Vec::new();
    let count = 10_000;
    for _ in 0..count {
        handles.push(pair.connect(config.clone()).expect("connected"));
    }
    rest(&mut pair);
    assert_eq!(pair.server.len(), count);
    // Nothing is asked of connections that sleep: no allocation, and no time-out before their own.
    let calls = CALLS.load(Ordering::Relaxed);
    let first = pair.server.poll_timeout().expect("the idle time-out");
    for second in 0..1000 {
        let now = pair.now + Duration::from_secs(second);
        pair.server.handle_timeout(now);
        assert_eq!(pair.server.poll_timeout(), Some(first));
        assert!(pair.server.poll_transmit(now, &mut Vec::new()).is_none());
        assert!(pair.server.poll_event().is_none());
    }
    assert_eq!(CALLS.load(Ordering::Relaxed), calls);
    assert!(first > Time::ZERO + Duration::from_secs(3000));
    // One of them wakes: what the others cost is not paid again.
    let handle = handles[count / 2];
    use_it(&mut pair, handle);
    rest(&mut pair);
    assert!(pair.received >= 200_000);
}
