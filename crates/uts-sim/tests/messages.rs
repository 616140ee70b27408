//! Messages of all sizes between two engines in memory, under profiles that keep much and little.

use core::time::Duration;
use uts_engine::{Connection, ConnectionConfig, Stats};
use uts_sim::pair::Pair;

const ORDERED: &[&str] = &[];
const UNORDERED: &[&str] = &["preserveOrder=prohibit"];
const UNRELIABLE: &[&str] = &["reliability=prohibit", "preserveOrder=prohibit"];
/// Data frames have no positions under it.
const BARE: &[&str] = &["reliability=prohibit", "preserveOrder=prohibit", "uts.profile.flow=none"];

/// Carries `bytes` as messages of `len`, of every so many packets one lost; says what the sender did.
fn carry(asked: &[&str], len: usize, bytes: u64, loses_every: Option<u64>) -> Stats {
    let mut config = ConnectionConfig::default();
    for property in [&["preserveMsgBoundaries=require"], asked].concat() {
        config.requirements.assign(property).expect("a valid property");
    }
    let mut pair = Pair::new(config.clone(), Duration::from_millis(1)).expect("keys");
    let connection = pair.connect(config).expect("it connects");
    let flow = pair.open_flow(connection).expect("a flow");
    pair.loses_every = loses_every;
    let carried = pair.carry_messages(connection, flow, bytes, len);
    assert!(carried.is_ok(), "{asked:?}, messages of {len} bytes, 1 in {loses_every:?} lost: {carried:?}");
    pair.client.peek(connection).map(Connection::stats).expect("it is open")
}

#[test]
fn messages_of_any_size_get_through_with_and_without_losses() {
    for asked in [ORDERED, UNORDERED, UNRELIABLE, BARE] {
        for len in [1, 60, 100, 700, 1000, 1450, 5000, 70_000] {
            for loses_every in [None, Some(101)] {
                // More than four times what a receiver without positions takes for its memory.
                carry(asked, len, (20_000 * len as u64).min(20 << 20), loses_every);
            }
        }
    }
}

/// Small messages fill packets and are not torn; those of a kilobyte are, or else a third of each packet would be empty.
#[test]
fn packets_are_as_good_as_full() {
    for (asked, len, least) in [(UNRELIABLE, 100, 12.4), (BARE, 100, 11.5), (UNRELIABLE, 1000, 1.3)] {
        // Enough that the packets sent before a larger size was proved do not count.
        let stats = carry(asked, len, 200_000_000, None);
        let each = stats.data_bytes_sent as f64 / len as f64 / stats.packets_sent as f64;
        assert!(each > least, "{asked:?}: {each} messages of {len} bytes in a packet");
    }
}
