//! Messages of all sizes between two engines in memory, under profiles that keep much and little.

use bytes::Bytes;
use core::time::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use uts_engine::{Connection, ConnectionConfig, ConnectionHandle, MessageOptions, Stats};
use uts_sim::pair::Pair;

const ORDERED: &[&str] = &[];
const UNORDERED: &[&str] = &["preserveOrder=prohibit"];
const UNRELIABLE: &[&str] = &["reliability=prohibit", "preserveOrder=prohibit"];
/// Data frames have no positions under it.
const BARE: &[&str] = &["reliability=prohibit", "preserveOrder=prohibit", "uts.profile.flow=none"];

/// Two ends that ask for the same.
fn connected(asked: &[&str]) -> (Pair, ConnectionHandle) {
    let mut config = ConnectionConfig::default();
    for property in [&["preserveMsgBoundaries=require"], asked].concat() {
        config.requirements.assign(property).expect("a valid property");
    }
    let mut pair = Pair::new(config.clone(), Duration::from_millis(1)).expect("keys");
    let connection = pair.connect(config).expect("it connects");
    (pair, connection)
}

/// Carries `bytes` as messages of `len`, in batches or not, and loses one of every so many packets.
/// Returns what the sender did.
fn carry(asked: &[&str], len: usize, bytes: u64, batches: bool, loses_every: Option<u64>) -> Stats {
    let (mut pair, connection) = connected(asked);
    let flow = pair.open_flow(connection).expect("a flow");
    (pair.loses_every, pair.batches) = (loses_every, batches);
    let carried = pair.carry_messages(connection, flow, bytes, len);
    assert!(carried.is_ok(), "{asked:?}, messages of {len} bytes, 1 in {loses_every:?} lost: {carried:?}");
    pair.client.peek(connection).map(Connection::stats).expect("it is open")
}

#[test]
fn messages_of_any_size_get_through_with_and_without_losses() {
    for asked in [ORDERED, UNORDERED, UNRELIABLE, BARE] {
        for len in [1, 60, 100, 700, 1000, 1450, 5000, 70_000] {
            for loses_every in [None, Some(101)] {
                for batches in [false, true] {
                    // More than four times what a receiver without positions takes for its memory.
                    carry(asked, len, (20_000 * len as u64).min(20 << 20), batches, loses_every);
                }
            }
        }
    }
}

/// A window that one message fills is enlarged, whatever the message begins with. The end of a
/// message takes a position, too.
#[test]
fn messages_longer_than_the_window_get_through() {
    for asked in [ORDERED, UNORDERED] {
        for len in [1 << 20, (1 << 20) - 1, 600_000] {
            carry(asked, len, 4 << 20, false, None);
        }
        let wide = [asked, &["uts.profile.segmentation=messages(max=4096)"]].concat();
        for loses_every in [None, Some(101)] {
            carry(&wide, 4 << 20, 12 << 20, false, loses_every);
        }
    }
}

/// Small messages fill packets and are not split. Messages of a kilobyte are split if lost data is
/// sent again, to fill packets.
#[test]
fn packets_are_as_good_as_full() {
    for (asked, len, batches, least) in [
        (UNORDERED, 1000, false, 1.3),
        // Those of one length share a head, whether they were handed over together or not.
        (UNRELIABLE, 100, false, 13.8),
        (BARE, 100, false, 13.8),
        (UNRELIABLE, 100, true, 13.8),
        (BARE, 100, true, 13.8),
        (ORDERED, 20, true, 66.0),
        (UNORDERED, 1000, true, 1.3),
    ] {
        // Enough that the packets sent before a larger size was proved do not count.
        let stats = carry(asked, len, 200_000_000, batches, None);
        let each = stats.data_bytes_sent as f64 / len as f64 / stats.packets_sent as f64;
        assert!(each > least, "{asked:?}: {each} messages of {len} bytes in a packet");
    }
}

/// A part of a message whose other part was lost is of no use. No such part is delivered.
#[test]
fn where_nothing_is_repeated_no_message_is_lost_but_with_its_packet() {
    const SEED: u64 = 7;
    for asked in [UNRELIABLE, BARE] {
        for sizes in [480..=480, 700..=700, 1200..=1200, 1300..=1400, 1..=1400] {
            let mut rng = ChaCha8Rng::seed_from_u64(SEED);
            let (mut pair, connection) = connected(asked);
            // Until the packet size is known.
            let flow = pair.open_flow(connection).expect("a flow");
            pair.carry(connection, flow, 1_000_000).expect("carried");
            pair.pass(pair.now + Duration::from_secs(1)).expect("quiet");
            let server = pair.server.handles().next().expect("accepted");
            let received = |pair: &Pair| {
                let stats = pair.server.peek(server).expect("open").stats();
                (stats.data_bytes_received, pair.received, stats.packets_received)
            };
            let before = received(&pair);
            pair.loses_every = Some(7);
            let (mut sent, mut messages) = (0, VecDeque::new());
            let mut flow = flow;
            for round in 0..200 {
                if round % 50 == 49 {
                    // The last message brings the end of the flow.
                    let open = pair.client.connection(connection).expect("open");
                    messages.clear();
                    messages.extend((0..4).map(|_| Bytes::from(vec![9; *sizes.end()])));
                    sent += 4 * *sizes.end() as u64;
                    open.send_messages(pair.now, flow, &mut messages, MessageOptions::default())
                        .expect("room");
                    open.finish(flow);
                    pair.pass(pair.now + Duration::from_secs(1)).expect("carried");
                    flow = pair.open_flow(connection).expect("a flow");
                }
                let open = pair.client.connection(connection).expect("open");
                messages.extend((0..20).map(|_| Bytes::from(vec![9; rng.random_range(sizes.clone())])));
                sent += messages.iter().map(|m| m.len() as u64).sum::<u64>();
                open.send_messages(pair.now, flow, &mut messages, MessageOptions::default()).expect("room");
                pair.pass(pair.now + Duration::from_millis(20)).expect("carried");
            }
            pair.pass(pair.now + Duration::from_secs(1)).expect("quiet");
            let after = received(&pair);
            let (came, delivered) = (after.0 - before.0, after.1 - before.1);
            assert_eq!(came, delivered, "{asked:?}, {sizes:?}, seed {SEED}: of {sent} bytes");
            assert!(came < sent * 9 / 10 && came > sent * 8 / 10, "{asked:?}, {sizes:?}: {came} of {sent}");
        }
    }
}
