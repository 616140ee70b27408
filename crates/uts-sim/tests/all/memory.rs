//! Memory is bounded however little there is in each message. To keep track of a message takes more
//! than a small one is long.

use bytes::Bytes;
use core::time::Duration;
use std::collections::VecDeque;
use uts_engine::{Connection, ConnectionConfig, ConnectionHandle, FlowId, MessageOptions, WriteError};
use uts_sim::pair::Pair;

const KIB: usize = 1024;

/// Two ends that hold this much for each flow, and a flow that keeps the boundaries of messages.
fn connected(bytes: usize, asked: &[&str]) -> (Pair, ConnectionHandle, FlowId) {
    let mut config = ConnectionConfig::default();
    for property in [&["preserveMsgBoundaries=require"], asked].concat() {
        config.requirements.assign(property).expect("a valid property");
    }
    (config.send_buffer_bytes, config.send_buffer_bytes_max) = (bytes, bytes);
    (config.credit_bytes_initial, config.credit_bytes_max) = (bytes as u64, bytes as u64);
    let mut pair = Pair::new(config.clone(), Duration::from_millis(1)).expect("keys");
    let connection = pair.connect(config).expect("it connects");
    let flow = pair.open_flow(connection).expect("a flow");
    pair.pass(pair.now + Duration::from_secs(1)).expect("agreed");
    (pair, connection, flow)
}

/// Hands over messages until the flow takes no more, `most` at the most; says how many it took.
fn fill(pair: &mut Pair, connection: ConnectionHandle, flow: FlowId, len: usize, most: usize) -> usize {
    let now = pair.now;
    let open = pair.client.connection(connection).expect("open");
    let (mut taken, mut messages) = (0, VecDeque::new());
    loop {
        messages.resize(64, Bytes::from(vec![1; len]));
        match open.send_messages(now, flow, &mut messages, MessageOptions::default()) {
            Ok(count) => taken += count,
            Err(WriteError::Blocked) => return taken,
            Err(error) => panic!("{error}"),
        }
        assert!(taken < most, "{taken} messages of {len} bytes were taken, and there is room for more");
    }
}

fn memory(end: &mut uts_engine::Endpoint) -> usize {
    let handle = end.handles().next().expect("a connection");
    end.peek(handle).map_or(0, Connection::memory_bytes)
}

#[test]
fn a_sender_takes_no_more_messages_than_it_has_room_for_and_says_when_it_has() {
    for len in [0, 1, 11, 40] {
        let (mut pair, connection, flow) = connected(256 * KIB, &[]);
        let before = memory(&mut pair.client);
        let first = fill(&mut pair, connection, flow, len, 300_000);
        let held = memory(&mut pair.client) - before + first * len;
        // A queue's memory doubles.
        assert!(held <= 256 * KIB * 9, "{held} B for {first} messages of {len} B");
        let (mut sent, mut read) = (first as u64, pair.messages);
        for _ in 0..20 {
            let told = pair.told_of_room;
            pair.pass(pair.now + Duration::from_millis(100)).expect("carried");
            assert_eq!(pair.told_of_room, told + 1, "messages of {len} bytes");
            assert_eq!(pair.messages - read, sent, "messages of {len} bytes");
            (sent, read) = (fill(&mut pair, connection, flow, len, 300_000) as u64, pair.messages);
        }
    }
}

#[test]
fn small_writes_of_bytes_are_bounded_as_well() {
    let (mut pair, connection, flow) = connected(256 * KIB, &["preserveMsgBoundaries=prohibit"]);
    let (now, mut taken) = (pair.now, 0);
    let open = pair.client.connection(connection).expect("open");
    while open.write(now, flow, Bytes::from_static(&[1])).is_ok() {
        taken += 1;
        assert!(taken < 100_000, "{taken} writes of a byte were taken, and there is room for more");
    }
    pair.pass(pair.now + Duration::from_secs(1)).expect("carried");
    assert_eq!((pair.received, pair.told_of_room), (taken, 1));
}

/// Nothing is lost if the reader is late, under credit or not. What waits for it takes no more than
/// a multiple of the memory that it grants.
#[test]
fn a_receiver_holds_no_more_messages_than_it_has_room_for() {
    for (asked, len) in
        [(&[][..], 0), (&[], 1), (&["preserveOrder=prohibit"], 1), (&["uts.profile.flow=none"], 1)]
    {
        let (mut pair, connection, flow) = connected(256 * KIB, asked);
        let (before, mut sent) = (memory(&mut pair.server), 0);
        pair.reads = false;
        for _ in 0..100 {
            sent += fill(&mut pair, connection, flow, len, 300_000) as u64;
            pair.pass(pair.now + Duration::from_millis(20)).expect("carried");
        }
        let held = memory(&mut pair.server) - before;
        assert!(held <= 256 * KIB * 18, "{asked:?}: {held} B for up to {sent} messages of {len} B");
        let (now, server) = (pair.now, pair.server.handles().next().expect("accepted"));
        let open = pair.server.connection(server).expect("open");
        let mut read = 0;
        let _ = open.read_many(now, flow, usize::MAX, |_| {
            read += 1;
            true
        });
        pair.reads = true;
        pair.pass(pair.now + Duration::from_secs(100)).expect("carried");
        assert_eq!(pair.messages + read, sent, "{asked:?}, messages of {len} B");
    }
}

/// Buffers that fill the path are shared by the flows that send, and a flow that waits for credit
/// takes no more than it does at first.
#[test]
fn many_flows_hold_little_more_than_one_that_fills_the_path() {
    const FIRST: usize = 64 * KIB;
    let mut config = ConnectionConfig::default();
    (config.send_buffer_bytes, config.send_buffer_bytes_max) = (FIRST, 64 << 20);
    let mut pair = Pair::new(config.clone(), Duration::from_millis(20)).expect("keys");
    let connection = pair.connect(config).expect("it connects");
    let warm = pair.open_flow(connection).expect("a flow");
    pair.carry(connection, warm, 64 << 20).expect("carried");
    pair.pass(pair.now + Duration::from_secs(1)).expect("all of it is acknowledged");
    let fill = |pair: &mut Pair, flow| {
        let (now, piece) = (pair.now, Bytes::from(vec![1; 4 * KIB]));
        let open = pair.client.connection(connection).expect("open");
        let mut taken = 0;
        while let Ok(bytes) = open.write(now, flow, piece.clone()) {
            taken += bytes;
            assert!(taken < 1 << 30, "it takes everything");
        }
        taken
    };
    let flows: Vec<FlowId> = (0..60).map(|_| pair.open_flow(connection).expect("a flow")).collect();
    let alone = fill(&mut pair, flows[0]);
    assert!(alone > 20 * FIRST, "{alone} B fill the path: the window is too small to tell");
    let others: usize = flows[1..].iter().map(|flow| fill(&mut pair, *flow)).sum();
    // The harmonic series: each takes its share of those that send by then.
    let most = 5 * alone + 60 * FIRST;
    assert!(others < most, "{others} B are held for 59 flows, and {alone} B for one");
    pair.pass(pair.now + Duration::from_secs(100)).expect("carried");
    // Nobody reads: what waits for credit is soon little.
    pair.reads = false;
    let lazy = flows[0];
    let mut last = 0;
    for _ in 0..200 {
        last = fill(&mut pair, lazy);
        pair.pass(pair.now + Duration::from_millis(100)).expect("carried");
        if last == 0 {
            break;
        }
    }
    assert_eq!(last, 0, "it takes more and more");
    let held = pair.client.connection(connection).expect("open").undelivered_bytes();
    assert!(held <= 2 * FIRST as u64, "{held} B wait for credit");
}
