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
