//! Receive buffers of a router, against closed forms.

use uts_path::{DropReason, Fate, Link, LinkConfig};

const MS: u64 = 1_000_000;
const QUEUED: Fate = Fate::Queued { marked: false };
const FULL: Fate = Fate::Dropped(DropReason::ReceiveFull);

fn link(text: &str) -> Link<Vec<u8>> {
    Link::new(text.parse::<LinkConfig>().expect("settings"), 1).expect("in range")
}

/// The packet of a number, of 1250 bytes: 1 ms at 10 Mbit/s.
fn send(link: &mut Link<Vec<u8>>, at_ns: u64, number: u8) -> Fate {
    link.send(at_ns, vec![number], 1250)
}

/// Arrivals with their numbers; polled when the link says, or once and late.
fn drain(link: &mut Link<Vec<u8>>, is_late: bool) -> Vec<(u64, u8)> {
    let mut arrivals = Vec::new();
    while let Some(next_ns) = link.next_ns() {
        let at_ns = if is_late { next_ns + 1000 * MS } else { next_ns };
        while let Some(delivery) = link.poll_delivery(at_ns) {
            arrivals.push((delivery.due_ns, delivery.payload[0]));
        }
    }
    let stats = link.stats();
    assert_eq!(stats.packets_in + stats.duplicated, stats.delivered + stats.dropped(), "{stats:?}");
    arrivals
}

#[test]
fn a_packet_has_its_buffer_until_the_router_is_done_with_it() {
    let mut link = link("receive=4p,2ms");
    let fates: Vec<Fate> = (0..6).map(|n| send(&mut link, 0, n)).collect();
    assert_eq!(fates, [QUEUED, QUEUED, QUEUED, QUEUED, FULL, FULL]);
    assert_eq!(send(&mut link, 2 * MS - 1, 6), FULL, "not a nanosecond before is there room");
    assert_eq!([7, 8].map(|n| send(&mut link, 2 * MS, n)), [QUEUED, FULL]);
    let expected = [(2, 0), (4, 1), (6, 2), (8, 3), (10, 7)].map(|(ms, n)| (ms * MS, n));
    assert_eq!(drain(&mut link, false), expected);
    let stats = link.stats();
    assert_eq!((stats.dropped_receive, stats.dropped(), stats.bytes_entered), (4, 4, 5 * 1250));
}

/// The slower of router and line decides the rate: of a burst the last arrives N times the longer
/// and once the shorter behind its beginning. A caller that is late changes nothing.
#[test]
fn the_slower_of_router_and_line_decides_the_rate() {
    for (router_ms, line_mbit, line_ms) in [(2, 10, 1), (1, 10, 1), (1, 5, 2), (0, 5, 2)] {
        let text = format!("receive=64p,{router_ms}ms rate={line_mbit}mbit delay=5ms");
        let [timely, late] = [false, true].map(|is_late| {
            let mut link = link(&text);
            (0..20).for_each(|n| assert_eq!(send(&mut link, 0, n), QUEUED));
            drain(&mut link, is_late)
        });
        assert_eq!(timely, late, "{text}");
        let (long, short): (u64, u64) = (line_ms.max(router_ms), line_ms.min(router_ms));
        assert_eq!(timely.last().expect("arrivals").0, (20 * long + short + 5) * MS, "{text}");
    }
}

/// Packets that the transmit queue cannot take are dropped there, and sojourns begin as packets
/// come there.
#[test]
fn the_queue_behind_drops_and_counts_by_itself() {
    let mut link = link("receive=8p,1ms rate=2500kbit buffer=2p");
    link.record_passages(true);
    (0..8).for_each(|n| assert_eq!(send(&mut link, 0, n), QUEUED));
    // One goes in each millisecond, one leaves each four.
    let arrived: Vec<u8> = drain(&mut link, false).into_iter().map(|(_, n)| n).collect();
    assert_eq!(arrived, [0, 1, 4]);
    let stats = link.stats();
    assert_eq!((stats.dropped_receive, stats.dropped_queue, stats.max_queue_packets), (0, 5, 2));
    let first = link.poll_passage().map(|passage| (passage.number, passage.arrived_ns, passage.sojourn_ns()));
    assert!(first.is_some_and(|(number, arrived, _)| (number, arrived) == (2, 3 * MS)), "{first:?}");
}

/// Buffers that nothing waits in are as none, whatever else a link does.
#[test]
fn a_router_that_takes_no_time_is_as_one_without_receive_buffers() {
    let worn =
        "rate=20mbit delay=5ms buffer=20p queue=red:5p,15p,0.1 jitter=2ms,reorder loss=0.02 duplicate=0.1";
    let runs = ["", "receive=1p,0ms "].map(|more| {
        let mut link = link(&format!("{more}{worn}"));
        for n in 0..200_u64 {
            link.send(n * 400_000, vec![n as u8], 1250);
        }
        (drain(&mut link, false), link.stats())
    });
    assert_eq!(runs[0], runs[1]);
}

#[test]
fn what_is_in_a_buffer_stays_in_order_as_they_change() {
    let mut link = link("receive=8p,10ms");
    (0..2).for_each(|n| assert_eq!(send(&mut link, 0, n), QUEUED));
    link.set(MS, &"receive=off".parse().expect("a change")).expect("in range");
    assert_eq!(send(&mut link, MS, 2), QUEUED);
    link.set(2 * MS, &"receive=3p,1ms".parse().expect("a change")).expect("in range");
    assert_eq!(send(&mut link, 2 * MS, 3), FULL, "three are there");
    assert_eq!(send(&mut link, 11 * MS, 4), QUEUED);
    let expected = [(10, 0), (20, 1), (20, 2), (21, 4)].map(|(ms, n)| (ms * MS, n));
    assert_eq!(drain(&mut link, false), expected);
    assert_eq!(send(&mut link, 30 * MS, 5), QUEUED);
    assert_eq!(drain(&mut link, false), [(31 * MS, 5)]);
}

#[test]
fn what_is_no_setting_is_refused_with_its_form() {
    for (text, expected) in [
        ("receive=8p", "receive=8p: must be BUFFERS,TIME as in 8p,100us, or off"),
        ("receive=8kB,1ms", "must be BUFFERS,TIME"),
        ("receive=0p,1ms", "receive=0p,1ms: number of buffers must be between 1 and 65536, not 0"),
        ("receive=-1p,1ms", "number of buffers must be a whole number, not `-1`"),
        ("receive=8p,2", "must be a time with its unit"),
        ("receive=8p,2h", "must be at most an hour"),
    ] {
        let error = text.parse::<LinkConfig>().map(|_| ()).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
