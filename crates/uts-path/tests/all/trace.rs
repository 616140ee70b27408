//! Links whose rate is a trace of delivery opportunities.

use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use uts_path::{Change, Direction, Link, LinkConfig, Passage, Path, PathConfig, SpecError, Target, Trace};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

fn read(text: &str) -> impl FnMut(&str) -> Result<Arc<Trace>, SpecError> {
    move |_| Ok(Arc::new(text.parse()?))
}

fn recording(settings: &str, trace: &str) -> Link<Vec<u8>> {
    let mut config: LinkConfig = settings.parse().unwrap();
    config.resolve(read(trace)).unwrap();
    let mut link = Link::new(config, 1).unwrap();
    link.record_passages(true);
    link
}

fn departures(link: &mut Link<Vec<u8>>, until_ns: u64) -> Vec<u64> {
    link.advance(until_ns);
    std::iter::from_fn(|| link.poll_passage()).map(|p| p.left_ns).collect()
}

#[test]
fn opportunities_are_shared_and_wasted() {
    let mut link = recording("rate=trace:t", "2\n4\n4\n10\n");
    // Three share the first; the fourth needs the rest of it and of the next.
    for len in [500, 400, 300, 500, 1500] {
        link.send(MS, vec![0; len], len);
    }
    // At 4 ms the second of its two opportunities begins the fifth packet. 300 + 1200 bytes are
    // left of it.
    assert_eq!(departures(&mut link, 5 * MS), [2 * MS, 2 * MS, 2 * MS, 4 * MS, 4 * MS]);
    // 1300 bytes of 4 ms are lost, and the opportunities at 10 and 12 ms, because nothing waits. At
    // 14 ms it has come too late.
    link.send(14 * MS, vec![0; 100], 100);
    assert_eq!(departures(&mut link, S), [20 * MS]);
}

#[test]
fn the_link_names_when_to_poll() {
    let mut link = recording("rate=trace:t delay=3ms", "2\n10\n");
    link.send(0, vec![0; 2000], 2000);
    let mut polled = Vec::new();
    while let Some(at_ns) = link.next_ns() {
        assert!(polled.last() < Some(&at_ns) && polled.len() < 5);
        polled.push(at_ns);
        while let Some(delivery) = link.poll_delivery(at_ns) {
            assert_eq!((at_ns, delivery.due_ns), (13 * MS, 13 * MS));
            assert_eq!((delivery.passage.started_ns, delivery.passage.left_ns), (2 * MS, 10 * MS));
        }
    }
    assert_eq!(polled.last(), Some(&(13 * MS)));
}

#[test]
fn a_change_of_rate_keeps_the_remaining_bits() {
    let mut link = recording("rate=8mbit", "");
    let mut change: Change = "rate=trace:t".parse().unwrap();
    change.resolve(read("2\n4\n")).unwrap();
    link.send(0, vec![0; 5000], 5000);
    // 1000 of 5000 bytes are sent. The trace begins here: 1500 bytes each at 3 and 5 ms. 1000 are
    // left.
    link.set(MS, &change).unwrap();
    link.advance(5 * MS);
    link.set(6 * MS, &"rate=4mbit".parse().unwrap()).unwrap();
    assert_eq!(departures(&mut link, S), [8 * MS]);
    // From a trace that its packet has not begun with to another, hours later.
    link.set(3600 * S, &change).unwrap();
    link.set(7200 * S, &change).unwrap();
    link.send(7200 * S + MS, vec![0; 1], 1);
    assert_eq!(departures(&mut link, 8000 * S), [7200 * S + 2 * MS]);
}

#[test]
fn a_framing_costs_part_of_an_opportunity() {
    // 1500 bytes on Ethernet take 1538: two opportunities, and the second has 1462 left.
    let mut link = recording("rate=trace:t framing=ethernet", "1\n2\n3\n4\n");
    link.send(0, vec![0; 1500], 1500);
    link.send(0, vec![0; 1424], 1424);
    link.send(0, vec![0; 1], 1);
    assert_eq!(departures(&mut link, S), [2 * MS, 2 * MS, 3 * MS]);
}

#[test]
fn codel_sees_what_waits_for_an_opportunity() {
    // Ten opportunities, then none for a second: what waits then is old when it starts.
    let trace: String = (1..=10).chain([1010, 1011, 1012, 1013]).map(|ms| format!("{ms}\n")).collect();
    let mut link = recording("rate=trace:t queue=codel", &trace);
    for _ in 0..30 {
        link.send(0, vec![0; 1500], 1500);
    }
    link.advance(1100 * MS);
    let told: Vec<Passage> = std::iter::from_fn(|| link.poll_passage()).collect();
    let dropped = told.iter().filter(|p| p.dropped.is_some()).count();
    assert!(dropped >= 1, "{told:?}");
    let first = told.iter().find(|p| p.dropped.is_some()).unwrap();
    assert_eq!((first.number, first.left_ns, first.sojourn_ns()), (10, 1010 * MS, 1010 * MS));
    // The one after it takes its opportunity.
    assert!(told.iter().any(|p| (p.number, p.left_ns, p.dropped) == (11, 1010 * MS, None)));
}

#[test]
fn a_trace_begins_at_the_paths_origin_and_differs_by_direction() {
    let mut config = PathConfig {
        forward: "rate=trace:up".parse().unwrap(),
        backward: "rate=trace:down delay=1ms".parse().unwrap(),
        schedule: "at=1s bwd rate=trace:slow".parse().unwrap(),
    };
    let mut asked = Vec::new();
    config
        .resolve(|name| {
            asked.push(name.to_string());
            Trace::new(match name {
                "up" => vec![5, 20],
                "down" => vec![7, 20],
                _ => vec![100],
            })
            .map(Arc::new)
        })
        .unwrap();
    assert_eq!(asked, ["up", "down", "slow"]);
    let origin_ns = 33 * S;
    let mut path = Path::new(config, 1, origin_ns).unwrap();
    for direction in Direction::ALL {
        path.send(origin_ns, direction, vec![0; 9], 9);
    }
    let due = |path: &mut Path<Vec<u8>>, direction, at_ns| {
        path.poll_delivery(origin_ns + at_ns, direction).map(|d| d.due_ns - origin_ns)
    };
    assert_eq!(due(&mut path, Direction::Forward, 20 * MS), Some(5 * MS));
    assert_eq!(due(&mut path, Direction::Backward, 20 * MS), Some(8 * MS));
    path.send(origin_ns + S + MS, Direction::Backward, vec![0; 9], 9);
    assert_eq!(due(&mut path, Direction::Backward, 2 * S), Some(S + 101 * MS));
}

#[test]
fn a_trace_that_was_not_read_is_an_error() {
    let unread = "rate=trace:some/file: the trace has not been read";
    let link: LinkConfig = "rate=trace:some/file".parse().unwrap();
    assert_eq!(Link::<Vec<u8>>::new(link.clone(), 1).unwrap_err().to_string(), unread);
    let scheduled =
        PathConfig { schedule: "at=1s fwd rate=trace:some/file".parse().unwrap(), ..PathConfig::default() };
    assert_eq!(Path::<Vec<u8>>::new(scheduled, 1, 0).unwrap_err().to_string(), unread);
    let mut path = Path::<Vec<u8>>::new(PathConfig::default(), 1, 0).unwrap();
    let change = "loss=1 rate=trace:some/file".parse().unwrap();
    assert_eq!(path.set(0, Target::Both, &change).unwrap_err().to_string(), unread);
    assert_eq!(path.config(Direction::Forward), &LinkConfig::default());
    let error = PathConfig::both(link).resolve(read("1\nx\n")).unwrap_err();
    let whole = "must be a time in whole milliseconds, 0 to 4294967295, not `x`";
    assert_eq!(error.to_string(), format!("rate=trace:some/file: line 2: {whole}"));
}

#[test]
fn a_cellular_link_needs_no_file() {
    let mut link: Link<Vec<u8>> = Link::new("rate=cellular:12mbit,7".parse().unwrap(), 1).unwrap();
    for number in 0..60_000 {
        link.send(number * 2 * MS, vec![0; 1500], 1500);
    }
    link.advance(120 * S);
    let mean_bps = link.config().mean_rate_bps().unwrap().unwrap();
    // Offered 6 Mbit/s of 7: some waits at the end of the worst second.
    let stats = link.stats();
    assert!((5_000_000..9_000_000).contains(&mean_bps), "{mean_bps}");
    assert!(stats.max_queue_packets > 100 && stats.queue_packets < 60_000 - 30_000, "{stats:?}");
    assert_eq!(stats.packets_in, 60_000);
}

/// Mahimahi's link as its paper describes it, one opportunity after the other: when each packet
/// departs.
fn reference(trace: &[u32], packets: &[(u64, usize)]) -> Vec<u64> {
    let mut waiting: VecDeque<(usize, usize)> = VecDeque::new();
    let mut arrivals = packets.iter().copied().enumerate().peekable();
    let mut departures = vec![0; packets.len()];
    let (mut base_ms, mut done) = (0, 0);
    while done < packets.len() {
        for &time_ms in trace {
            let now_ns = (base_ms + u64::from(time_ms)) * MS;
            while let Some((number, (_, len))) = arrivals.next_if(|(_, (at_ns, _))| *at_ns < now_ns) {
                waiting.push_back((number, len));
            }
            let mut bytes = 1500;
            while let Some((number, left)) = waiting.front_mut().filter(|_| bytes > 0) {
                let sent = bytes.min(*left);
                bytes -= sent;
                *left -= sent;
                if *left == 0 {
                    departures[*number] = now_ns;
                    done += 1;
                    waiting.pop_front();
                }
            }
        }
        base_ms += u64::from(*trace.last().unwrap());
    }
    departures
}

proptest! {
    #[test]
    fn a_link_departs_as_the_reference_does(
        mut times_ms in prop::collection::vec(0u32..40, 1..20),
        gaps in prop::collection::vec((0u64..6_000_000, 1usize..4000), 1..60),
        stride_ns in 1u64..50_000_000,
    ) {
        times_ms.sort_unstable();
        times_ms.push(times_ms[times_ms.len() - 1].max(1));
        let text: String = times_ms.iter().map(|ms| format!("{ms}\n")).collect();
        let mut link = recording("rate=trace:t", &text);
        let mut now_ns = 0;
        let mut packets = Vec::new();
        for (number, (gap_ns, len)) in gaps.into_iter().enumerate() {
            // Many at the very instant of an opportunity.
            now_ns += if number % 2 == 0 { gap_ns / MS * MS } else { gap_ns };
            packets.push((now_ns, len));
            link.advance(now_ns / stride_ns * stride_ns);
            link.send(now_ns, Vec::new(), len);
        }
        let wanted = reference(&times_ms, &packets);
        prop_assert_eq!(departures(&mut link, 1_000_000 * S), wanted);
    }
}
