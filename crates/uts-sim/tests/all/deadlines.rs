//! When an endpoint wants to be called again.

use core::time::Duration;
use uts_engine::ConnectionConfig;
use uts_functions::Time;
use uts_sim::pair::Pair;

const MS: Duration = Duration::from_millis(1);

/// A deadline moves away with each acknowledgement. What is told is where it is now: neither too
/// early nor too late.
#[test]
fn deadlines_are_exact() {
    let mut pair = Pair::new(ConnectionConfig::default(), Duration::from_micros(20)).expect("a pair");
    let handle = pair.connect(ConnectionConfig::default()).expect("connected");
    let flow = pair.open_flow(handle).expect("opened");
    let mut waits = Vec::new();
    for _ in 0..50 {
        pair.round_trips(handle, flow, 300).expect("answered");
        // Another one is on its way, and has to be said again unless it is acknowledged.
        let connection = pair.client.connection(handle).expect("open");
        connection.write(pair.now, flow, vec![7].into()).expect("written");
        pair.turn().expect("sent");
        let told = pair.client.poll_timeout().expect("something is always due at some time");
        assert_eq!(pair.client.poll_timeout(), Some(told), "asked again");
        waits.push(told.since(pair.now));
    }
    // All rounds are alike. A deadline of an earlier packet would be nearer, by up to the time that
    // a round takes.
    let (shortest, longest) = (waits.iter().min().expect("fifty"), waits.iter().max().expect("fifty"));
    assert!(*longest - *shortest < MS, "{waits:?}");
    // The last byte is on its way, and nothing answers. It is sent again at that time, and not
    // before.
    let connection = pair.client.connection(handle).expect("open");
    connection.write(pair.now, flow, vec![7].into()).expect("written");
    let mut datagram = Vec::new();
    assert!(pair.client.poll_transmit(pair.now, &mut datagram).is_some());
    assert!(pair.client.poll_transmit(pair.now, &mut datagram).is_none());
    let mut due = pair.client.poll_timeout().expect("the probe");
    loop {
        let early = Time::from_nanos(due.as_nanos() - 1);
        pair.client.handle_timeout(early);
        assert!(pair.client.poll_transmit(early, &mut datagram).is_none(), "before {due:?}");
        pair.client.handle_timeout(due);
        if pair.client.poll_transmit(due, &mut datagram).is_some() {
            break;
        }
        // Others than the probe may come first, and say nothing.
        let next = pair.client.poll_timeout().expect("the probe");
        assert!(due < next && next.since(pair.now) < 100 * MS);
        due = next;
    }
}
