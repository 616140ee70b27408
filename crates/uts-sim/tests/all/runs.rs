//! Packets of a run are those that the general way builds, to the byte. Taking them in does what
//! the general way does. A connection that is traced builds no runs, and packets handed over one by
//! one are no run. The same transfer with and without therefore shows whether they differ.

use bytes::Bytes;
use core::time::Duration;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use std::net::SocketAddr;
use uts_engine::{
    ConnectionConfig, ConnectionHandle, Direction, Event, ExchangeEvent, FlowId, MessageOptions,
};
use uts_functions::Function;
use uts_sim::pair::Pair;

/// Acts as an application in one step; the same in both transfers.
fn act(rng: &mut ChaCha8Rng, pair: &mut Pair, connection: ConnectionHandle, flows: &[FlowId]) {
    let now = pair.now;
    let flow = flows[rng.random_range(0..flows.len())];
    let mut data = vec![0; rng.random_range(1..200_000)];
    rng.fill_bytes(&mut data);
    let open = pair.client.connection(connection).expect("open");
    // Bytes mostly, some in small writes, and now and then messages between them. A writer that
    // finds no room comes again.
    let _ = match rng.random_range(0..10) {
        0 => {
            // Many or few in a packet, not always the same number in each, or one that nearly fills
            // it.
            let bytes = [20, 100, 700, 1316][rng.random_range(0..4)];
            let most = [60, 3000][rng.random_range(0..2)];
            let mut messages: VecDeque<Bytes> =
                data.chunks(bytes).take(most).map(Bytes::copy_from_slice).collect();
            // One of another size ends a row.
            if let Some(other) = messages.get_mut(70) {
                other.truncate(bytes - 1);
            }
            open.send_messages(now, flow, &mut messages, MessageOptions::default()).map(drop)
        }
        1 => data
            .chunks(33)
            .take(100)
            .try_for_each(|part| open.write(now, flow, Bytes::copy_from_slice(part)).map(drop)),
        _ => open.write(now, flow, Bytes::from(data)).map(drop),
    };
    if rng.random_bool(0.3) {
        // The client has something to acknowledge, and credit to give. The server may not know the
        // flow yet.
        let server = pair.server.handles().next().expect("accepted");
        let answer = Bytes::from(vec![1; rng.random_range(1..300_000)]);
        let _ = pair.server.connection(server).expect("open").write(now, flow, answer);
    }
}

/// Said among properties: messages have packets of their own.
const SEPARATE: &str = "coalesce=no";

/// Two ends that ask for the same.
fn connected(properties: &[&str]) -> (Pair, ConnectionHandle) {
    connected_over(Duration::from_millis(1), properties)
}

fn connected_over(delay: Duration, properties: &[&str]) -> (Pair, ConnectionHandle) {
    let coalesce = !properties.contains(&SEPARATE);
    let mut config = ConnectionConfig { coalesce, ..ConnectionConfig::default() };
    for property in properties.iter().filter(|property| **property != SEPARATE) {
        config.requirements.assign(property).expect("a property");
    }
    let mut pair = Pair::new(config.clone(), delay).expect("a pair");
    let connection = pair.connect(config).expect("connected");
    (pair, connection)
}

/// Way in which a transfer is carried.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Plainly,
    Traced,
    Apart,
    OneByOne,
}

/// The datagrams of a transfer over `flows` flows, and what the server tells of it.
fn transfer(seed: u64, properties: &[&str], flows: usize, how: How) -> (Vec<Vec<u8>>, String) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut pair, connection) = connected(properties);
    // Until the epoch before is closed; or while it is still open.
    let wait = if seed.is_multiple_of(2) { Duration::from_secs(1) } else { Duration::from_millis(10) };
    pair.pass(pair.now + wait).expect("exchanged");
    (pair.one_by_one, pair.apart) = (how == How::OneByOne, how == How::Apart);
    if properties.contains(&SEPARATE) {
        // Without runs each is a batch.
        pair.batch_time = Duration::ZERO;
    }
    if how == How::Traced {
        pair.client.trace(connection).expect("open").start();
    }
    let flows: Vec<FlowId> = (0..flows).map(|_| pair.open_flow(connection).expect("a flow")).collect();
    pair.kept = Some(Vec::new());
    let is_redundant = properties.iter().any(|property| property.contains("fec"));
    let losses = if is_redundant { Some(21) } else { [None, Some(20), Some(300)][rng.random_range(0..3)] };
    for _ in 0..60 {
        act(&mut rng, &mut pair, connection, &flows);
        // Now and then nothing comes through until a time-out.
        let is_out = rng.random_bool(0.03);
        pair.loses_every = if is_out { Some(1) } else { losses };
        let most_us = if is_out { 60_000 } else { 3_000 };
        pair.pass(pair.now + Duration::from_micros(rng.random_range(1..most_us))).expect("carried");
    }
    let server = pair.server.handles().next().expect("accepted");
    let stats = pair.server.connection(server).expect("open").stats();
    (pair.kept.take().expect("kept"), format!("{} bytes read, {stats:?}", pair.received))
}

#[test]
fn packets_of_a_run_are_built_and_taken_in_as_in_the_general_way() {
    // Unprotected, so that packets show what is in them: keys are never the same.
    const PLAIN: &str = "uts.security=unprotected";
    const MESSAGES: &str = "preserveMsgBoundaries=require";
    const HELD_BACK: [&str; 2] =
        ["uts.profile.acknowledgement=in-order", "uts.profile.acknowledgement=in-order(keep=3)"];
    let variants: [&[&str]; 12] = [
        &[PLAIN],
        &[PLAIN, "uts.profile.congestion=bbr"],
        &[PLAIN, "uts.profile.acknowledgement=poll-status"],
        &[PLAIN, "uts.profile.fec=xor"],
        &[PLAIN, "uts.profile.detection=none", "uts.profile.flow=none", "uts.profile.rate=none"],
        &[PLAIN, HELD_BACK[0]],
        &[PLAIN, MESSAGES, HELD_BACK[1]],
        &[PLAIN, SEPARATE],
        &[PLAIN, MESSAGES],
        &[PLAIN, MESSAGES, "reliability=prohibit", "preserveOrder=prohibit"],
        &[PLAIN, MESSAGES, "reliability=prohibit", "preserveOrder=prohibit", "uts.profile.flow=none"],
        &[
            PLAIN,
            SEPARATE,
            MESSAGES,
            "reliability=prohibit",
            "preserveOrder=prohibit",
            "uts.profile.flow=none",
        ],
    ];
    let (mut full, mut all) = (0, 0);
    for (seed, properties) in (0..72).zip(variants.iter().cycle()) {
        let flows = 1 + (seed as usize / variants.len()) % 3;
        let [(with_runs, told), (general, _), (one_by_one, told_so), (apart, told_too)] =
            [How::Plainly, How::Traced, How::OneByOne, How::Apart]
                .map(|how| transfer(seed, properties, flows, how));
        full +=
            with_runs.windows(2).filter(|two| two[0].len() > 1400 && two[0].len() == two[1].len()).count();
        all += with_runs.len();
        // Acknowledgements and credit, which the sender goes by, show what the receiver took in.
        for other in [general, one_by_one, apart] {
            let differs = with_runs.iter().zip(&other).position(|(a, b)| a != b);
            assert_eq!(differs, None, "seed {seed}, {properties:?}, {flows} flows");
            assert_eq!(with_runs.len(), other.len(), "seed {seed}, {properties:?}, {flows} flows");
        }
        assert_eq!([&told, &told], [&told_so, &told_too], "seed {seed}, {properties:?}, {flows} flows");
    }
    println!("{full} of {all} packets are full and follow one of their size");
    assert!(full > all / 4, "hardly anything could have been a run: {full} of {all}");
}

/// They fill no packet, but one goes like the other.
#[test]
fn messages_that_have_packets_of_their_own_leave_together() {
    let (mut pair, connection) = connected(&[SEPARATE, "preserveMsgBoundaries=require"]);
    let flow = pair.open_flow(connection).expect("a flow");
    // Until the packet size is known.
    pair.carry(connection, flow, 1_000_000).expect("carried");
    pair.pass(pair.now + Duration::from_millis(100)).expect("exchanged");
    let open = pair.client.connection(connection).expect("open");
    let sizes = [100; 20].into_iter().chain([101; 3]).chain([100; 2]);
    let mut messages: VecDeque<_> = sizes.map(|bytes| Bytes::from(vec![7; bytes])).collect();
    open.send_messages(pair.now, flow, &mut messages, MessageOptions::default()).expect("room");
    let mut batches = Vec::new();
    let mut bytes = Vec::new();
    while let Some(transmit) = pair.client.poll_transmit(pair.now, &mut bytes) {
        batches.push(bytes.len() / transmit.segment_bytes);
        assert!(bytes.len().is_multiple_of(transmit.segment_bytes));
    }
    assert_eq!(batches, [20, 3, 2]);
}

/// Before each packet, window and rate are asked for room for a full one, however small it is.
/// Messages that nobody would repeat are not split. Packets are therefore as long as one or several
/// messages make them.
#[test]
fn messages_that_are_not_torn_leave_together() {
    for (bytes, packets) in [(450, 3), (480, 4), (700, 4), (1000, 8), (1200, 8), (1400, 8)] {
        let asked = ["preserveMsgBoundaries=require", "reliability=prohibit", "preserveOrder=prohibit"];
        let (mut pair, connection) = connected(&asked);
        let flow = pair.open_flow(connection).expect("a flow");
        // Until the packet size is known.
        pair.carry(connection, flow, 1_000_000).expect("carried");
        pair.pass(pair.now + Duration::from_millis(100)).expect("exchanged");
        let open = pair.client.connection(connection).expect("open");
        let mut messages: VecDeque<_> = (0..8).map(|_| Bytes::from(vec![7; bytes])).collect();
        open.send_messages(pair.now, flow, &mut messages, MessageOptions::default()).expect("room");
        let (mut batches, mut out) = (Vec::new(), Vec::new());
        while let Some(transmit) = pair.client.poll_transmit(pair.now, &mut out) {
            batches.push(out.len().div_ceil(transmit.segment_bytes));
        }
        assert_eq!(batches, [packets], "packets in batches of messages of {bytes} bytes");
    }
}

#[test]
fn a_run_of_small_packets_is_no_longer_than_window_and_rate_allow() {
    let packets = [false, true].map(|is_traced| {
        let (mut pair, connection) = connected(&[SEPARATE, "preserveMsgBoundaries=require"]);
        let flow = pair.open_flow(connection).expect("a flow");
        pair.carry(connection, flow, 1_000_000).expect("carried");
        pair.pass(pair.now + Duration::from_millis(100)).expect("exchanged");
        if is_traced {
            pair.client.trace(connection).expect("open").start();
        }
        let open = pair.client.connection(connection).expect("open");
        let mut messages: VecDeque<_> = (0..20_000).map(|_| Bytes::from_static(&[7; 100])).collect();
        open.send_messages(pair.now, flow, &mut messages, MessageOptions::default()).expect("room");
        let mut bytes = Vec::new();
        while pair.client.poll_transmit(pair.now, &mut bytes).is_some() {}
        pair.client.connection(connection).expect("open").stats().packets_sent
    });
    assert_eq!(packets[0], packets[1]);
}

/// A connection with a flow over so long a path, by which 4 MB have gone.
fn in_full_swing(delay: Duration, properties: &[&str]) -> (Pair, ConnectionHandle, FlowId) {
    let (mut pair, connection) = connected_over(delay, properties);
    let flow = pair.open_flow(connection).expect("a flow");
    pair.carry(connection, flow, 4_000_000).expect("carried");
    (pair, connection, flow)
}

/// Bytes of the ids that a server gives, which stand in the packets to it.
const CID_BYTES: usize = 8;

/// Length of the full packets of a transfer, the last of 4 MB, over so long a path.
fn full_packet_bytes(delay: Duration) -> usize {
    let (mut pair, connection, flow) = in_full_swing(delay, &[]);
    pair.kept = Some(Vec::new());
    pair.carry(connection, flow, 1_000_000).expect("carried");
    let kept = pair.kept.take().expect("kept");
    let longest = kept.iter().map(Vec::len).max().expect("packets");
    let full = kept.iter().filter(|packet| packet.len() == longest).count();
    assert!(full > kept.len() * 9 / 10, "{full} of {} packets are of {longest} bytes", kept.len());
    longest
}

#[test]
fn packets_are_whole_blocks_of_the_cipher_only_where_processors_are_the_limit() {
    assert_eq!(full_packet_bytes(Duration::from_millis(20)), 1472);
    // First byte, connection id, number of two bytes, tag.
    let fast = full_packet_bytes(Duration::from_micros(50));
    assert!(fast > 1472 - 16 && (fast - (1 + CID_BYTES + 2 + 16)).is_multiple_of(16), "{fast}");
}

/// Length of the full packets of a connection that sends little while another has a lot to send.
fn full_packet_bytes_beside(other: u64) -> usize {
    let (mut pair, first) = connected_over(Duration::from_millis(10), &[]);
    let second = pair.connect(ConnectionConfig::default()).expect("connected");
    let [of_first, of_second] = [first, second].map(|connection| pair.open_flow(connection).expect("a flow"));
    // It knows how large packets may be.
    pair.kept = Some(Vec::new());
    pair.carry(second, of_second, 200_000).expect("carried");
    pair.pass(pair.now + Duration::from_secs(1)).expect("all read");
    let cid = |packet: &Vec<u8>| packet.get(1..1 + CID_BYTES).map(<[u8]>::to_vec);
    let own = pair.kept.take().expect("kept").last().and_then(cid);
    pair.carry(first, of_first, other).expect("carried");
    pair.kept = Some(Vec::new());
    let now = pair.now;
    let open = pair.client.connection(second).expect("open");
    open.write(now, of_second, Bytes::from(vec![7; 20_000])).expect("room");
    let before = open.stats().packets_sent;
    while pair.client.peek(second).expect("open").stats().packets_sent < before + 10 {
        pair.turn().expect("sent");
    }
    let kept = pair.kept.take().expect("kept");
    kept.iter().filter(|packet| cid(packet) == own).map(Vec::len).max().expect("packets")
}

#[test]
fn packets_are_whole_blocks_where_all_connections_together_bring_much() {
    assert_eq!(full_packet_bytes_beside(0), 1472);
    // First byte, connection id, number, tag.
    let fast = full_packet_bytes_beside(150_000_000);
    assert!(fast > 1472 - 16 && (fast - (1 + CID_BYTES + 1 + 16)).is_multiple_of(16), "{fast}");
}

/// A message is given up before it was sent. The bytes on both sides of it do not follow each
/// other. All of them that are lost are repeated, even if a packet ends just before the message.
/// Whether it does depends on how much a first packet and those behind it hold.
#[test]
fn what_is_sent_on_both_sides_of_a_message_that_was_given_up_arrives() {
    let (mut pair, connection) = connected(&["preserveMsgBoundaries=require"]);
    let flow = pair.open_flow(connection).expect("a flow");
    pair.carry(connection, flow, 2_000_000).expect("carried");
    pair.pass(pair.now + Duration::from_millis(100)).expect("carried");
    for (first, next) in (1410..1445).flat_map(|first| (1430..1436).map(move |next| (first, next))) {
        let (now, before) = (pair.now, pair.received);
        let open = pair.client.connection(connection).expect("open");
        open.write(now, flow, Bytes::from(vec![1; first + 4 * next])).expect("room");
        let lifetime = Some(Duration::from_nanos(1));
        open.send_message(
            now,
            flow,
            Bytes::from(vec![2; 700]),
            MessageOptions { lifetime, ..Default::default() },
        )
        .expect("room");
        open.write(now, flow, Bytes::from(vec![3; 4 * next])).expect("room");
        pair.now = pair.next_at().expect("something is due");
        assert!(pair.now <= now + Duration::from_micros(1), "the message expires before anything is sent");
        pair.loses_every = Some(1);
        pair.pass(pair.now + Duration::from_millis(2)).expect("carried");
        pair.loses_every = None;
        pair.pass(pair.now + Duration::from_millis(200)).expect("carried");
        assert_eq!(pair.received - before, (first + 8 * next) as u64, "{first} bytes, then {next} at a time");
    }
    let expired = pair.client.connection(connection).expect("open").stats().messages_expired;
    assert_eq!(expired, 35 * 6);
}

/// Packets that redundancy is made from leave in batches, too, as many at a time as the pace
/// allows. So does the redundancy, which is longer: four blocks are filled in turns and end
/// together.
#[test]
fn packets_under_redundancy_travel_in_batches() {
    let (mut pair, connection) = connected(&["uts.profile.fec=xor"]);
    let flow = pair.open_flow(connection).expect("a flow");
    pair.carry(connection, flow, 10_000_000).expect("carried");
    pair.pass(pair.now + Duration::from_millis(100)).expect("acknowledged");
    let (now, repairs) = (pair.now, repairs_sent(&pair, connection));
    let open = pair.client.connection(connection).expect("open");
    while open.write(now, flow, Bytes::from(vec![1; 64 << 10])).is_ok() {}
    let (mut batches, mut packets, mut out) = (0, 0, Vec::new());
    while packets < 360 {
        let Some(transmit) = pair.client.poll_transmit(pair.now, &mut out) else {
            // Its pace.
            pair.now = pair.client.poll_timeout().expect("more is to be sent");
            pair.client.handle_timeout(pair.now);
            continue;
        };
        batches += 1;
        packets += out.len().div_ceil(transmit.segment_bytes);
        out.clear();
    }
    let repairs = repairs_sent(&pair, connection) - repairs;
    assert!(repairs >= packets / 10, "{repairs} of {packets} packets are redundancy");
    assert!(packets >= 4 * batches, "{packets} packets in {batches} batches");
}

fn repairs_sent(pair: &Pair, connection: ConnectionHandle) -> usize {
    pair.client.peek(connection).map_or(0, |connection| connection.stats().repairs_sent as usize)
}

/// Packets of a run are known to redundancy, which brings back those between them.
#[test]
fn what_is_lost_within_a_run_is_recovered() {
    let recovered = [false, true].map(|one_by_one| {
        let (mut pair, connection) = connected(&["uts.profile.fec=xor"]);
        let flow = pair.open_flow(connection).expect("a flow");
        pair.carry(connection, flow, 1_000_000).expect("carried");
        // Blocks are filled in turns of four, so that no two of these are in one block.
        (pair.loses_every, pair.one_by_one) = (Some(21), one_by_one);
        pair.carry(connection, flow, 1_000_000).expect("carried");
        let server = pair.server.handles().next().expect("accepted");
        pair.server.connection(server).expect("open").stats().packets_recovered
    });
    // 5 % of some 700 packets.
    assert!(recovered[0] > 20, "{recovered:?} packets recovered, together and one by one");
    assert_eq!(recovered[0], recovered[1]);
}

/// A peer that sends without credit is held to the memory that a flow is given, also within a run.
#[test]
fn a_run_takes_no_more_memory_than_a_flow_is_given() {
    let held = [false, true].map(|one_by_one| {
        let (mut pair, connection) = connected(&["uts.security=unprotected", "uts.profile.flow=none"]);
        // Until the epoch before is closed.
        pair.pass(pair.now + Duration::from_secs(1)).expect("exchanged");
        let flow = pair.open_flow(connection).expect("a flow");
        (pair.reads, pair.one_by_one) = (false, one_by_one);
        for _ in 0..300 {
            let open = pair.client.connection(connection).expect("open");
            while open.write(pair.now, flow, Bytes::from(vec![1; 64 << 10])).is_ok() {}
            pair.pass(pair.now + Duration::from_millis(1)).expect("carried");
        }
        let server = pair.server.handles().next().expect("accepted");
        let stats = pair.server.connection(server).expect("open").stats();
        assert!(stats.dropped_overrun > 0, "{stats:?}");
        stats.data_bytes_received
    });
    assert_eq!(held[0], held[1], "bytes held, together and one by one");
}

/// Connections that were read hold no buffers: the large ones go from one to the next.
#[test]
fn connections_share_what_they_receive_into() {
    let config = ConnectionConfig::default();
    let mut pair = Pair::new(config.clone(), Duration::from_millis(1)).expect("a pair");
    for _ in 0..6 {
        let connection = pair.connect(config.clone()).expect("connected");
        let flow = pair.open_flow(connection).expect("a flow");
        pair.carry(connection, flow, 2_000_000).expect("carried");
    }
    // What is still under way is read. Nobody rests yet.
    pair.pass(pair.now + Duration::from_millis(500)).expect("passed");
    for server in pair.server.handles().collect::<Vec<_>>() {
        let parts = pair.server.connection(server).expect("open").memory_parts();
        let flows = parts.iter().find(|(part, _)| *part == "flows").expect("a part");
        assert!(flows.1 < 16 << 10, "{} bytes of flows", flows.1);
    }
}

/// Datagrams that came together may be for several connections.
#[test]
fn a_run_ends_where_another_connection_begins() {
    let config = ConnectionConfig::default();
    let mut pair = Pair::new(config.clone(), Duration::from_millis(1)).expect("a pair");
    let both = [(); 2].map(|()| pair.connect(config.clone()).expect("connected"));
    for connection in both {
        let flow = pair.open_flow(connection).expect("a flow");
        let now = pair.now;
        let open = pair.client.connection(connection).expect("open");
        open.write(now, flow, Bytes::from(vec![1; 100_000])).expect("room");
    }
    // What fills packets of both, joined: of the second between those of the first.
    let mut sent = Vec::new();
    let mut bytes = Vec::new();
    while let Some(transmit) = pair.client.poll_transmit(pair.now, &mut bytes) {
        sent.extend(bytes.chunks(transmit.segment_bytes).map(<[u8]>::to_vec));
        bytes.clear();
    }
    let longest = sent.iter().map(Vec::len).max().expect("packets");
    sent.retain(|packet| packet.len() == longest);
    let (first, second): (Vec<_>, Vec<_>) = sent.iter().partition(|packet| packet[1..5] == sent[0][1..5]);
    assert!(first.len() > 4 && second.len() > 4, "{} and {} packets", first.len(), second.len());
    let (head, tail) = first.split_at(first.len() / 2);
    let mut joined: Vec<u8> = [head, &second, tail].concat().into_iter().flatten().copied().collect();
    let client = SocketAddr::from(([10, 0, 0, 1], 4433));
    pair.server.take_in(pair.now, client, None, None, longest, &mut joined);
    pair.server.taken_in(pair.now);
    let (mut packets, strangers) = (Vec::new(), pair.server.strangers);
    for server in pair.server.handles().collect::<Vec<_>>() {
        let stats = pair.server.connection(server).expect("open").stats();
        assert_eq!((stats.dropped_forged, stats.dropped_malformed, strangers), (0, 0, 0), "{stats:?}");
        packets.push(stats.data_bytes_received / (longest as u64 - 50));
    }
    assert_eq!(packets, [first.len() as u64, second.len() as u64]);
}

/// A connection answers what it has received, even if someone else sends something to its id at the
/// same time. That changes nothing.
#[test]
fn a_stranger_among_what_came_together_changes_nothing() {
    let (mut pair, connection) = connected(&[]);
    let flow = pair.open_flow(connection).expect("a flow");
    pair.carry(connection, flow, 1_000_000).expect("carried");
    pair.pass(pair.now + Duration::from_secs(1)).expect("quiet");
    let now = pair.now;
    let open = pair.client.connection(connection).expect("open");
    open.write(now, flow, Bytes::from(vec![1; 100_000])).expect("room");
    let mut bytes = Vec::new();
    let transmit = pair.client.poll_transmit(now, &mut bytes).expect("data");
    let (client, stranger) =
        (SocketAddr::from(([10, 0, 0, 1], 4433)), SocketAddr::from(([10, 0, 0, 9], 4433)));
    let (mut own, mut others) = (bytes.clone(), bytes);
    let of = pair.server.take_in(now, client, None, None, transmit.segment_bytes, &mut own);
    assert_eq!(of, pair.server.handles().next());
    let of = pair.server.take_in(now, stranger, None, None, transmit.segment_bytes, &mut others);
    assert_eq!(of, None);
    pair.server.taken_in(now);
    let answer = pair.server.poll_transmit(now, &mut Vec::new());
    assert_eq!(answer.map(|answer| answer.remote), Some(client));
    assert!(pair.server.strangers > 0);
}

/// A profile that the receiver has asked for is agreed once a packet shows that the sender uses it.
/// This holds even if the answer was lost and that packet came together with others of the epoch
/// before.
#[test]
fn the_first_packet_of_an_epoch_is_heard_in_the_midst_of_a_run() {
    let (mut pair, connection) = connected(&[
        SEPARATE,
        "reliability=prohibit",
        "preserveOrder=prohibit",
        "preserveMsgBoundaries=require",
        "uts.profile.flow=none",
        "uts.adapt=off",
    ]);
    let flow = pair.open_flow(connection).expect("a flow");
    pair.carry_messages(connection, flow, 100_000, 1316).expect("carried");
    pair.pass(pair.now + Duration::from_secs(1)).expect("quiet");
    let (now, client) = (pair.now, SocketAddr::from(([10, 0, 0, 1], 4433)));
    let server = pair.server.handles().next().expect("accepted");
    let say = |pair: &mut Pair| {
        let mut messages: VecDeque<Bytes> = vec![Bytes::from(vec![7; 1316]); 4].into();
        let open = pair.client.connection(connection).expect("open");
        open.send_messages(now, flow, &mut messages, MessageOptions::default()).expect("room");
        let mut bytes = Vec::new();
        let transmit = pair.client.poll_transmit(now, &mut bytes).expect("messages");
        (bytes, transmit.segment_bytes)
    };
    let (mut together, segment_bytes) = say(&mut pair);
    let end = pair.server.connection(server).expect("open");
    let profile = end.profile(Direction::In).expect("agreed");
    let wish = profile.with_named(Function::Congestion, "bbr").expect("in the library");
    end.request_profile(now, Direction::In, wish).expect("asked");
    let mut request = Vec::new();
    let asked = pair.server.poll_transmit(now, &mut request).expect("a request");
    let remote = SocketAddr::from(([10, 0, 0, 2], 4433));
    pair.client.take_in(now, remote, None, None, asked.segment_bytes, &mut request);
    pair.client.taken_in(now);
    pair.client.poll_transmit(now, &mut Vec::new()).expect("an answer, which is lost");
    let (more, as_large) = say(&mut pair);
    assert_eq!(as_large, segment_bytes, "the same size, or nothing is a run");
    together.extend(more);
    pair.server.take_in(now, client, None, None, segment_bytes, &mut together);
    pair.server.taken_in(now);
    let told = core::iter::from_fn(|| pair.server.poll_event());
    let agreed = told.filter(|(_, event)| {
        matches!(event, Event::Exchange(step) if matches!(**step, ExchangeEvent::Completed { .. }))
    });
    assert_eq!(agreed.count(), 1);
}
