//! Reports of a link on each packet's way through its queue.

use uts_path::{Direction, DropReason, Link, LinkConfig, Passage, Path, PathConfig};

const MS: u64 = 1_000_000;

fn recording(text: &str, seed: u64) -> Link<Vec<u8>> {
    let mut link = Link::new(text.parse::<LinkConfig>().unwrap(), seed).unwrap();
    link.record_passages(true);
    link
}

fn passages(link: &mut Link<Vec<u8>>) -> Vec<Passage> {
    std::iter::from_fn(|| link.poll_passage()).collect()
}

#[test]
fn queue_and_sojourn_follow_from_arrivals() {
    // 1250 bytes at 10 Mbit/s: 1 ms each; they come every 0.4 ms into a buffer of three.
    let mut link = recording("rate=10mbit delay=7ms buffer=3p", 1);
    for number in 0..8 {
        link.send(number * 400_000, vec![0; 1222], 1250);
    }
    link.advance(20 * MS);
    // Found in the queue at 0, 0.4, .. ms; departures at 1, 2, 3, 4, 5 ms of 0, 1, 2, 3, 5.
    let told: Vec<_> = passages(&mut link)
        .iter()
        .map(|p| (p.number, p.queue_packets, p.wait_ns() / 1000, p.sojourn_ns() / 1000, p.dropped))
        .collect();
    let full = Some(DropReason::QueueFull);
    assert_eq!(
        told,
        [
            (0, 0, 0, 1000, None),
            (4, 3, 0, 0, full),
            (1, 1, 600, 1600, None),
            (6, 3, 0, 0, full),
            (7, 3, 0, 0, full),
            (2, 2, 1200, 2200, None),
            (3, 2, 1800, 2800, None),
            (5, 2, 2000, 3000, None),
        ]
    );
}

#[test]
fn each_packet_is_told_of_once_with_the_reason_of_its_drop() {
    let mut link =
        recording("rate=50mbit buffer=20p loss=0.1 duplicate=0.3 mtu=1400 delay=1ms jitter=1ms", 9);
    for number in 0..2_000 {
        let len = if number % 50 == 0 { 1401 } else { 1250 };
        link.send(number * 150_000, vec![0; len], len);
        if number == 1_000 {
            link.set(number * 150_000, &"down".parse().unwrap()).unwrap();
        } else if number == 1_100 {
            link.set(number * 150_000, &"up".parse().unwrap()).unwrap();
        }
    }
    link.advance(10_000 * MS);
    let stats = link.stats();
    let told = passages(&mut link);
    let of = |reason| told.iter().filter(|p| p.dropped == reason).count() as u64;
    assert_eq!(of(Some(DropReason::QueueFull)), stats.dropped_queue);
    assert_eq!(of(Some(DropReason::TooBig)), stats.dropped_mtu);
    assert_eq!(of(Some(DropReason::Loss)), stats.dropped_loss);
    assert_eq!(of(Some(DropReason::Outage)), stats.dropped_outage);
    assert!(stats.dropped_queue > 0 && stats.dropped_mtu == 40);
    assert!(stats.dropped_loss > 100 && stats.dropped_outage > 50);
    let mut numbers: Vec<u64> = told.iter().map(|p| p.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..2_000).collect::<Vec<_>>());
    assert!(told.is_sorted_by_key(|p| p.left_ns));
    // Each delivery carries the same, duplicates too.
    let (mut copies, mut firsts) = (0, 0);
    while let Some(delivery) = link.poll_delivery(10_000 * MS) {
        assert!(told.contains(&delivery.passage));
        assert!((MS..=2 * MS).contains(&(delivery.due_ns - delivery.passage.left_ns)));
        *(if delivery.duplicate { &mut copies } else { &mut firsts }) += 1;
    }
    assert_eq!((copies, firsts), (stats.duplicated, of(None)));
}

#[test]
fn nothing_is_kept_unless_asked_for() {
    let mut link = recording("", 1);
    link.send(0, vec![0], 1);
    link.record_passages(false);
    link.send(0, vec![0], 1);
    link.advance(1);
    assert_eq!(link.poll_passage(), None);
    link.record_passages(true);
    link.send(1, vec![0], 1);
    link.advance(1);
    assert_eq!(link.poll_passage().map(|p| p.number), Some(2));
}

#[test]
fn a_path_tells_of_both_directions() {
    let mut path = Path::new(PathConfig::both("rate=8mbit".parse().unwrap()), 1, 0).unwrap();
    path.record_passages(true);
    path.send(0, Direction::Forward, vec![0; 1000], 1000);
    path.send(MS, Direction::Backward, vec![0; 500], 500);
    path.advance(5 * MS);
    assert_eq!(path.poll_passage(Direction::Forward).map(|p| p.left_ns), Some(MS));
    let backward = path.poll_passage(Direction::Backward).unwrap();
    assert_eq!((backward.number, backward.left_ns), (0, MS + MS / 2));
    assert_eq!(path.poll_passage(Direction::Forward), None);
}

#[test]
fn a_framing_takes_time_and_no_buffer() {
    // 576 bytes at 9600 bit/s on SLIP: 5780 bit times, 6 more escapes of 10 bits.
    for (text, bytes, us) in [
        ("rate=9600bit framing=slip", vec![0u8; 576], 602_084),
        ("rate=9600bit framing=slip", [vec![0u8; 570], vec![0xc0; 6]].concat(), 608_334),
        ("rate=9600bit framing=ppp", vec![0u8; 576], 607_292),
        ("rate=5mbit framing=aal5", vec![0; 1500], 2_714),
        ("rate=10mbit framing=ethernet", vec![0; 1500], 1_231),
        ("rate=10mbit framing=ethernet overhead=28", vec![0; 1472], 1_231),
    ] {
        let mut link = recording(text, 1);
        let len = bytes.len();
        link.send(0, bytes, len);
        assert_eq!(link.stats().queue_bytes, len as u64 + u64::from(link.config().overhead_bytes));
        link.advance(1000 * MS);
        let took_us = link.poll_passage().unwrap().left_ns.div_ceil(1000);
        assert_eq!(took_us, us, "{text}");
    }
}

#[test]
fn a_framing_can_change_while_packets_wait() {
    let mut link = recording("rate=10mbit framing=ethernet", 1);
    link.send(0, vec![0; 1462], 1462);
    link.set(0, &"framing=none".parse().unwrap()).unwrap();
    link.send(0, vec![0; 1250], 1250);
    link.advance(10 * MS);
    let left: Vec<u64> = passages(&mut link).iter().map(|p| p.left_ns).collect();
    assert_eq!(left, [1_200_000, 2_200_000]);
}
