//! A link against closed forms, and its random decisions against their means.

use uts_path::{DropReason, Fate, Link, LinkConfig, Payload, Stats};

const MS: u64 = 1_000_000;
const QUEUED: Fate = Fate::Queued { marked: false };
const FULL: Fate = Fate::Dropped(DropReason::QueueFull);

/// A packet that knows its number and what was done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Probe {
    number: u64,
    flipped: Vec<usize>,
    marked: bool,
}

impl Payload for Probe {
    fn flip_bit(&mut self, bit: usize) {
        self.flipped.push(bit);
    }

    fn mark_ce(&mut self) -> bool {
        self.marked = true;
        true
    }
}

fn probe(number: u64) -> Probe {
    Probe { number, flipped: Vec::new(), marked: false }
}

fn link<T: Payload>(text: &str, seed: u64) -> Link<T> {
    Link::new(text.parse::<LinkConfig>().unwrap(), seed).unwrap()
}

/// Polls at exactly the times that the link names: (arrival, packet) of everything under way.
fn drain<T: Payload>(link: &mut Link<T>) -> Vec<(u64, T)> {
    let mut arrivals = Vec::new();
    while let Some(at_ns) = link.next_ns() {
        while let Some(delivery) = link.poll_delivery(at_ns) {
            arrivals.push((delivery.due_ns, delivery.payload));
        }
    }
    arrivals
}

fn numbers(arrivals: &[(u64, Probe)]) -> Vec<u64> {
    arrivals.iter().map(|(_, p)| p.number).collect()
}

fn assert_balanced(stats: &Stats) {
    assert_eq!(stats.packets_in + stats.duplicated, stats.delivered + stats.dropped(), "{stats:?}");
    assert_eq!((stats.queue_packets, stats.queue_bytes), (0, 0));
}

#[test]
fn arrival_is_transmission_plus_propagation() {
    // 1222 + 28 bytes at 10 Mbit/s: 1 ms each.
    let mut link = link("rate=10mbit delay=20ms overhead=28", 1);
    for number in 0..3 {
        assert_eq!(link.send(5 * MS, probe(number), 1222), QUEUED);
    }
    assert_eq!(link.send(100 * MS, probe(3), 1222), QUEUED);
    let times: Vec<u64> = drain(&mut link).iter().map(|(at_ns, _)| *at_ns).collect();
    assert_eq!(times, [26 * MS, 27 * MS, 28 * MS, 121 * MS]);
}

#[test]
fn the_perfect_link_delivers_at_once() {
    let mut link = link("", 1);
    assert_eq!(link.next_ns(), None);
    link.send(7, vec![1, 2, 3], 3);
    assert_eq!(link.next_ns(), Some(7));
    assert_eq!(link.poll(7), Some(vec![1, 2, 3]));
    assert_eq!(link.poll(8), None);
}

#[test]
fn a_late_caller_does_not_change_the_rate() {
    let mut link = link("rate=10mbit delay=1ms", 1);
    for number in 0..10 {
        link.send(0, probe(number), 1250);
    }
    let mut times = Vec::new();
    while let Some(delivery) = link.poll_delivery(50 * MS) {
        times.push(delivery.due_ns);
    }
    assert_eq!(times, (2..12).map(|ms| ms * MS).collect::<Vec<_>>());
}

#[test]
fn drop_tail_holds_exactly_its_packets() {
    let mut link = link("rate=10mbit buffer=4p", 1);
    let fates: Vec<Fate> = (0..6).map(|n| link.send(0, probe(n), 1250)).collect();
    assert_eq!(fates, [QUEUED, QUEUED, QUEUED, QUEUED, FULL, FULL]);
    // The first leaves at 1 ms: not a nanosecond before is there room.
    assert_eq!(link.send(MS - 1, probe(6), 1250), FULL);
    assert_eq!(link.send(MS, probe(7), 1250), QUEUED);
    assert_eq!(numbers(&drain(&mut link)), [0, 1, 2, 3, 7]);
    let stats = link.stats();
    assert_eq!((stats.dropped_queue, stats.max_queue_packets, stats.max_queue_bytes), (3, 4, 5000));
    assert_balanced(&stats);
}

#[test]
fn drop_tail_holds_exactly_its_bytes() {
    let mut link = link("rate=10mbit buffer=3kB overhead=28", 1);
    assert_eq!(link.send(0, probe(0), 972), QUEUED);
    assert_eq!(link.send(0, probe(1), 972), QUEUED);
    assert_eq!(link.send(0, probe(2), 973), FULL);
    assert_eq!(link.send(0, probe(3), 972), QUEUED);
    assert_eq!(link.stats().queue_bytes, 3000);
    assert_eq!(link.send(0, probe(4), 0), FULL);
}

#[test]
fn what_is_too_big_vanishes() {
    let mut link = link("mtu=1400 overhead=28", 1);
    assert_eq!(link.send(0, probe(0), 1373), Fate::Dropped(DropReason::TooBig));
    assert_eq!(link.send(0, probe(1), 1372), QUEUED);
    assert_eq!(numbers(&drain(&mut link)), [1]);
    assert_eq!(link.stats().dropped_mtu, 1);
}

#[test]
fn packets_above_the_threshold_are_marked() {
    let mut link = link("rate=10mbit ecn=2p", 1);
    for number in 0..4 {
        link.send(0, probe(number), 1250);
    }
    let marks: Vec<bool> = drain(&mut link).iter().map(|(_, p)| p.marked).collect();
    assert_eq!(marks, [false, false, true, true]);
    assert_eq!(link.stats().marked, 2);
    // Bytes cannot be marked: they pass as they are.
    let mut plain = self::link("rate=10mbit ecn=0p", 1);
    assert_eq!(plain.send(0, vec![0; 10], 10), QUEUED);
    assert_eq!(plain.stats().marked, 0);
}

#[test]
fn a_rate_change_keeps_what_is_left_of_the_packet() {
    let mut link = link("rate=10mbit", 1);
    link.send(0, probe(0), 1250);
    link.send(0, probe(1), 1250);
    // A quarter is sent; the rest takes four times as long: 0.25 + 3 ms; then 4 ms.
    link.set(MS / 4, &"rate=2500kbit".parse().unwrap()).unwrap();
    let times: Vec<u64> = drain(&mut link).iter().map(|(at_ns, _)| *at_ns).collect();
    assert_eq!(times, [3_250_000, 7_250_000]);
}

#[test]
fn an_infinite_rate_flushes_the_queue() {
    let mut link = link("rate=1kbit", 1);
    for number in 0..3 {
        link.send(0, probe(number), 1250);
    }
    link.set(MS, &"rate=inf".parse().unwrap()).unwrap();
    assert_eq!(drain(&mut link).iter().map(|(at_ns, _)| *at_ns).collect::<Vec<_>>(), [MS; 3]);
}

#[test]
fn a_smaller_buffer_keeps_what_it_holds() {
    let mut link = link("rate=10mbit", 1);
    for number in 0..5 {
        link.send(0, probe(number), 1250);
    }
    link.set(0, &"buffer=2p".parse().unwrap()).unwrap();
    assert_eq!(link.send(0, probe(5), 1250), FULL);
    assert_eq!(link.send(4 * MS, probe(6), 1250), QUEUED);
    assert_eq!(numbers(&drain(&mut link)), [0, 1, 2, 3, 4, 6]);
}

#[test]
fn a_shorter_delay_does_not_reorder_unless_asked() {
    for (text, wanted) in [("delay=20ms", [0, 1]), ("delay=20ms jitter=0,reorder", [1, 0])] {
        let mut link = link(text, 1);
        link.send(0, probe(0), 100);
        link.set(MS, &"delay=5ms".parse().unwrap()).unwrap();
        link.send(2 * MS, probe(1), 100);
        assert_eq!(numbers(&drain(&mut link)), wanted, "{text}");
    }
}

#[test]
fn an_outage_loses_what_departs_in_it() {
    let mut link = link("rate=10mbit delay=20ms", 1);
    for number in 0..4 {
        link.send(0, probe(number), 1250); // departures at 1, 2, 3, 4 ms
    }
    link.set(3 * MS / 2, &"down".parse().unwrap()).unwrap();
    link.set(7 * MS / 2, &"up".parse().unwrap()).unwrap();
    let arrivals = drain(&mut link);
    assert_eq!(numbers(&arrivals), [0, 3]);
    assert_eq!(arrivals[0].0, 21 * MS); // it was on the wire before the outage
    assert_eq!(link.stats().dropped_outage, 2);
    assert_balanced(&link.stats());
}

#[test]
fn loss_has_its_mean() {
    for seed in 0..5 {
        for (text, p) in [("loss=0.05", 0.05), ("loss=ge:0.05,4", 0.05), ("loss=1", 1.0), ("loss=0", 0.0)] {
            let mut link = link(text, seed);
            for number in 0..100_000 {
                link.send(number, probe(number), 100);
            }
            drain(&mut link);
            let share = link.stats().dropped_loss as f64 / 100_000.0;
            assert!((share - p).abs() < 0.01, "{text} seed {seed}: {share}");
            assert_balanced(&link.stats());
        }
    }
}

#[test]
fn duplicates_arrive_once_more() {
    let mut link = link("duplicate=0.2 delay=1ms", 3);
    for number in 0..10_000 {
        link.send(number, probe(number), 100);
    }
    let mut got = numbers(&drain(&mut link));
    let duplicated = link.stats().duplicated;
    assert!((1800..2200).contains(&duplicated), "{duplicated}");
    assert_eq!(got.len() as u64, 10_000 + duplicated);
    assert_eq!(link.stats().reordered, 0);
    got.sort_unstable();
    got.dedup();
    assert_eq!(got.len(), 10_000);
    assert_balanced(&link.stats());
}

#[test]
fn held_back_packets_are_overtaken() {
    let mut link = link("reorder=0.1,3ms delay=10ms", 4);
    for number in 0..10_000 {
        link.send(number * MS, probe(number), 100);
    }
    let arrivals = drain(&mut link);
    let late = arrivals.iter().filter(|(at_ns, p)| *at_ns == (p.number + 13) * MS).count();
    let prompt = arrivals.iter().filter(|(at_ns, p)| *at_ns == (p.number + 10) * MS).count();
    assert_eq!(late + prompt, 10_000);
    assert!((850..1150).contains(&late), "{late}");
    // One that is held back is overtaken unless the next three are, too.
    let reordered = link.stats().reordered as usize;
    assert!(reordered <= late && reordered * 100 > late * 98, "{reordered} of {late}");
    // RFC 4737: reordered is what comes after something sent later.
    let mut highest = 0;
    let counted = numbers(&arrivals).into_iter().filter(|&n| {
        let behind = n < highest;
        highest = highest.max(n);
        behind
    });
    assert_eq!(counted.count(), reordered);
}

#[test]
fn jitter_stays_in_its_range_and_reorders_only_if_asked() {
    for (text, reorders) in [("jitter=5ms delay=10ms", false), ("jitter=5ms,bell,reorder delay=10ms", true)] {
        let mut link = link(text, 5);
        for number in 0..5_000 {
            link.send(number * MS, probe(number), 100);
        }
        let arrivals = drain(&mut link);
        for (at_ns, packet) in &arrivals {
            let delay_ns = at_ns - packet.number * MS;
            assert!((10 * MS..=15 * MS).contains(&delay_ns), "{text}: {delay_ns}");
        }
        assert_eq!(link.stats().reordered > 0, reorders, "{text}");
        assert_eq!(numbers(&arrivals).is_sorted(), !reorders, "{text}");
    }
}

#[test]
fn corruption_flips_different_bits_of_the_packet() {
    let mut link = link("corrupt=0.25,5", 6);
    for number in 0..10_000 {
        link.send(number, probe(number), 2);
    }
    let arrivals = drain(&mut link);
    let hit: Vec<&Vec<usize>> = arrivals.iter().map(|(_, p)| &p.flipped).filter(|f| !f.is_empty()).collect();
    assert!((2_300..2_700).contains(&hit.len()), "{}", hit.len());
    assert_eq!(hit.len() as u64, link.stats().corrupted);
    for bits in &hit {
        let mut different = (*bits).clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), bits.len());
        assert!(bits.len() <= 5 && bits.iter().all(|&bit| bit < 16));
    }
    assert!((1..=5).all(|count| hit.iter().any(|bits| bits.len() == count)));
    let mut bytes = self::link("corrupt=1", 6);
    bytes.send(0, vec![0u8; 8], 8);
    let flipped: u32 = bytes.poll(0).unwrap().iter().map(|b| b.count_ones()).sum();
    assert_eq!(flipped, 1);
    // A packet without bytes has nothing to flip.
    bytes.send(0, Vec::new(), 0);
    assert_eq!(bytes.poll(0), Some(Vec::new()));
}

#[test]
fn a_bad_change_changes_nothing() {
    let mut link = link::<Vec<u8>>("rate=10mbit", 1);
    let before = link.config().clone();
    assert!("rate=5mbit delay=2h".parse::<uts_path::Change>().is_err());
    assert!(uts_path::Change::new(vec![uts_path::Setting::Rate(Some(0))]).is_err());
    assert_eq!(*link.config(), before);
    assert!(Link::<Vec<u8>>::new(LinkConfig { duplicate: 3.0, ..LinkConfig::default() }, 1).is_err());
    link.set(0, &"rate=5mbit".parse().unwrap()).unwrap();
    assert_eq!(link.config().rate_bps, Some(5_000_000));
}

/// Everything at once, polled as the caller likes: every step is `stride_ns` of waiting.
fn run_all(seed: u64, stride_ns: u64) -> (Vec<(u64, Probe)>, Stats) {
    let text = "rate=20mbit delay=3ms buffer=20p loss=ge:0.05,3 jitter=2ms,reorder reorder=0.02,3ms \
                duplicate=0.02 corrupt=0.02,9 ecn=10p";
    let mut link = link(text, seed);
    let mut arrivals = Vec::new();
    let mut polled_ns = 0;
    for number in 0..3_000 {
        let now_ns = number * 300_000 + number % 7 * 40_000;
        while polled_ns + stride_ns <= now_ns {
            polled_ns += stride_ns;
            arrivals
                .extend(std::iter::from_fn(|| link.poll_delivery(polled_ns)).map(|d| (d.due_ns, d.payload)));
        }
        link.send(now_ns, probe(number), 100 + (number as usize * 37) % 1300);
    }
    arrivals.extend(drain(&mut link));
    (arrivals, link.stats())
}

#[test]
fn the_same_seed_gives_the_same_run_however_it_is_polled() {
    for seed in 0..5 {
        let (arrivals, stats) = run_all(seed, 10_000);
        assert_eq!((&arrivals, &stats), (&run_all(seed, 10_000).0, &run_all(seed, 10_000).1), "seed {seed}");
        let (lazily, lazy_stats) = run_all(seed, 50 * MS);
        assert_eq!(lazily, arrivals, "seed {seed}");
        assert_eq!(lazy_stats, stats, "seed {seed}");
        assert_balanced(&stats);
        assert!(stats.dropped_loss > 0 && stats.duplicated > 0 && stats.corrupted > 0 && stats.reordered > 0);
        assert_ne!(run_all(seed + 100, 10_000).0, arrivals);
    }
}

#[test]
fn time_never_goes_back() {
    let mut link = link("delay=1ms", 1);
    link.send(5 * MS, probe(0), 1);
    link.send(2 * MS, probe(1), 1);
    let times: Vec<u64> = drain(&mut link).iter().map(|(at_ns, _)| *at_ns).collect();
    assert_eq!(times, [6 * MS, 6 * MS]);
}

#[test]
fn an_unlimited_buffer_is_bounded_all_the_same() {
    let mut link = link("rate=1bit", 1);
    let half = usize::try_from(uts_path::MAX_HELD_BYTES / 2).unwrap();
    assert_eq!(link.send(0, probe(0), half), QUEUED);
    assert_eq!(link.send(0, probe(1), half), QUEUED);
    assert_eq!(link.send(0, probe(2), 1), FULL);
    assert_eq!(link.send(0, probe(3), usize::MAX), FULL);
}
