//! Paths that drop what is marked as capable of ECN: connections give the marks up, and live.

use core::time::Duration;
use uts_engine::ConnectionConfig;
use uts_sim::pair::Pair;

const BYTES: u64 = 1_000_000;

#[test]
fn a_path_that_drops_marked_packets_carries_a_transfer_without_marks() {
    for (to_server, to_client) in [(true, false), (false, true), (true, true)] {
        for from_the_start in [true, false] {
            let mut pair = Pair::new(ConnectionConfig::default(), Duration::from_millis(10)).expect("a pair");
            let drops = [to_server, to_client];
            if from_the_start {
                pair.drops_marked = drops;
            }
            let handle = pair.connect(ConnectionConfig::default()).expect("connected");
            let flow = pair.open_flow(handle).expect("opened");
            if !from_the_start {
                pair.carry(handle, flow, BYTES).expect("carried");
                pair.drops_marked = drops;
            }
            let began = pair.now;
            pair.carry(handle, flow, BYTES).expect("carried");
            let took = pair.now.since(began);
            println!("{drops:?}, from the start: {from_the_start}: {took:?}");
            assert!(took < Duration::from_secs(8), "{drops:?}, {from_the_start}: {took:?}");
        }
    }
}

/// A sender that answers marks by their share says so to the network (RFC 9331), and no other does.
#[test]
fn packets_of_a_scalable_sender_ask_for_l4s() {
    for (congestion, is_scalable) in [("prague", true), ("cubic", false)] {
        let mut config = ConnectionConfig::default();
        let pin = format!("uts.profile.congestion={congestion}");
        config.requirements.assign(&pin).expect("a mechanism of the library");
        let mut pair = Pair::new(ConnectionConfig::default(), Duration::from_millis(10)).expect("a pair");
        let handle = pair.connect(config).expect("connected");
        let flow = pair.open_flow(handle).expect("opened");
        pair.carry(handle, flow, BYTES).expect("carried");
        let [first, before, ..] = pair.client_marks;
        pair.carry(handle, flow, BYTES).expect("carried");
        let [classic, l4s, ..] = pair.client_marks;
        assert_eq!((l4s > before, classic > first), (is_scalable, !is_scalable), "{:?}", pair.client_marks);
    }
}
