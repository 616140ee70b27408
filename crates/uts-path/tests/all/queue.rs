//! Queue disciplines at work in a link.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uts_path::{DropReason, Fate, Link, LinkConfig, Passage, Payload};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// A packet of a flow, which its sender may allow to be marked.
#[derive(Debug, Clone)]
struct Probe {
    flow: usize,
    capable: bool,
}

impl Payload for Probe {
    fn flip_bit(&mut self, _: usize) {}

    fn mark_ce(&mut self) -> bool {
        self.capable
    }

    fn flow(&self) -> u64 {
        self.flow as u64
    }
}

fn recording(text: &str, seed: u64) -> Link<Probe> {
    let mut link = Link::new(text.parse::<LinkConfig>().unwrap(), seed).unwrap();
    link.record_passages(true);
    link
}

fn passages(link: &mut Link<Probe>) -> Vec<Passage> {
    std::iter::from_fn(|| link.poll_passage()).collect()
}

/// Offers packets of 1250 bytes at `load` times 10 Mbit/s from `from_ns` to `until_ns`, at uniform
/// random gaps.
fn offer(link: &mut Link<Probe>, rng: &mut ChaCha8Rng, (from_ns, until_ns): (u64, u64), load: f64) {
    let mut now_ns = from_ns as f64;
    while now_ns < until_ns as f64 {
        let flow = usize::from(rng.random::<f64>() < 0.25);
        link.send(now_ns as u64, Probe { flow, capable: false }, 1250);
        while link.poll(now_ns as u64).is_some() {}
        now_ns += 2.0 * rng.random::<f64>() * MS as f64 / load;
    }
}

#[test]
fn random_drop_makes_room_for_those_that_come() {
    let mut link = recording("rate=10mbit buffer=10p queue=random", 3);
    for number in 0..300 {
        let fate = link.send(0, Probe { flow: 0, capable: false }, 1250);
        assert!(number >= 10 || fate == Fate::Queued { marked: false });
        assert_eq!(link.stats().queue_packets, (number + 1).min(10));
    }
    link.advance(S);
    let told = passages(&mut link);
    assert_eq!(told.iter().filter(|p| p.dropped == Some(DropReason::QueueFull)).count(), 290);
    let sent: Vec<u64> = told.iter().filter(|p| p.dropped.is_none()).map(|p| p.number).collect();
    // The one in transmission stays, the order too, and late ones are among those that are left.
    assert!(sent[0] == 0 && sent.is_sorted() && sent.len() == 10 && sent[9] > 200, "{sent:?}");
    assert_eq!(link.stats().packets_in, link.stats().dropped() + 10);
}

#[test]
fn random_drop_hits_flows_by_their_share() {
    for seed in 0..4 {
        let mut link = recording("rate=10mbit buffer=20p queue=random", seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut sent, mut arrived) = ([0u32; 2], [0u32; 2]);
        for number in 0..40_000 {
            // Twice the rate, a quarter of it of flow 1, in bursts of 10 of a flow.
            let flow = usize::from(number / 10 % 4 == 0);
            let now_ns = number * MS / 2 + rng.random_range(0..MS / 4);
            sent[flow] += 1;
            link.send(now_ns, Probe { flow, capable: false }, 1250);
            while let Some(packet) = link.poll(now_ns) {
                arrived[packet.flow] += 1;
            }
        }
        let share = |flow: usize| f64::from(arrived[flow]) / f64::from(sent[flow]);
        assert!((share(0) - 0.5).abs() < 0.03 && (share(1) - 0.5).abs() < 0.06, "seed {seed}: {arrived:?}");
    }
}

#[test]
fn random_drop_of_bytes_drops_as_many_as_it_takes() {
    let mut link = recording("rate=1mbit buffer=3kB queue=random", 1);
    let probe = Probe { flow: 0, capable: false };
    for _ in 0..30 {
        link.send(0, probe.clone(), 100);
    }
    // With the first in transmission it can never fit: the others stay.
    assert_eq!(link.send(0, probe.clone(), 2901), Fate::Dropped(DropReason::QueueFull));
    assert_eq!(link.stats().queue_packets, 30);
    let before = link.stats().dropped_queue;
    link.send(0, probe.clone(), 1000);
    let after = link.stats();
    assert!((1..=10).contains(&(after.dropped_queue - before)) && after.queue_bytes <= 3000, "{after:?}");
}

#[test]
fn red_holds_the_average_where_the_drops_match_the_load() {
    // A load of 1.05 needs 1 of 21 packets dropped; gaps are uniform on 1 to 1/p_b - 1, so that the
    // share dropped is 2 p_b: p_b = 0.0238, and the average 10 + 20 p_b / 0.1 = 14.8 packets.
    for (text, wanted) in
        [("red:10p,30p,0.1", 14.8), ("red:12500B,37500B,0.1", 14.8), ("red:10p,30p,0.05", 19.5)]
    {
        for seed in 0..3 {
            let mut link = recording(&format!("rate=10mbit buffer=200p queue={text}"), seed);
            let mut rng = ChaCha8Rng::seed_from_u64(seed + 50);
            offer(&mut link, &mut rng, (0, 300 * S), 1.05);
            let told: Vec<Passage> =
                passages(&mut link).into_iter().filter(|p| p.arrived_ns > 20 * S).collect();
            let mean = told.iter().map(|p| p.queue_packets as f64).sum::<f64>() / told.len() as f64;
            let share =
                told.iter().filter(|p| p.dropped == Some(DropReason::Red)).count() as f64 / told.len() as f64;
            assert!((mean / wanted - 1.0).abs() < 0.1, "{text} seed {seed}: {mean}");
            assert!((share - 0.0476).abs() < 0.004, "{text} seed {seed}: {share}");
            assert_eq!(link.stats().dropped_queue, 0);
            assert_eq!(link.stats().dropped_early, link.stats().dropped());
        }
    }
}

#[test]
fn red_leaves_a_link_alone_that_is_not_loaded() {
    let mut link = recording("rate=10mbit queue=red:5p,15p,0.1", 1);
    offer(&mut link, &mut ChaCha8Rng::seed_from_u64(1), (0, 60 * S), 0.6);
    assert_eq!(link.stats().dropped(), 0);
    // A burst is longer than MAX at once, and the average hardly notices.
    for _ in 0..40 {
        link.send(60 * S, Probe { flow: 0, capable: false }, 1250);
    }
    assert_eq!((link.stats().dropped(), link.stats().max_queue_packets >= 40), (0, true));
}

#[test]
fn red_and_codel_mark_what_can_be_marked() {
    for (text, reason) in [
        ("red:5p,30p,0.1,0.02", DropReason::Red),
        ("red:5p,30p,0.1,0.02,noecn", DropReason::Red),
        ("codel", DropReason::CoDel),
        ("codel:noecn", DropReason::CoDel),
    ] {
        let mut link = recording(&format!("rate=10mbit queue={text}"), 1);
        // 20 packets at once every 20 ms: the link is full, the queue up to 20 and later 35.
        for number in 0..1_000 {
            let now_ns = number / 20 * 20 * MS + number;
            link.send(now_ns, Probe { flow: 0, capable: number % 2 == 0 }, 1250);
            if number == 0 {
                for _ in 0..10 {
                    link.send(0, Probe { flow: 0, capable: false }, 1250);
                }
            }
        }
        link.advance(10 * S);
        let told = passages(&mut link);
        let marked = told.iter().filter(|p| p.marked).count() as u64;
        let dropped = told.iter().filter(|p| p.dropped == Some(reason)).count() as u64;
        assert_eq!(marked, link.stats().marked, "{text}");
        assert_eq!(dropped, link.stats().dropped_early, "{text}");
        assert_eq!(dropped, link.stats().dropped(), "{text}");
        assert!(dropped > 2, "{text}: {dropped}");
        assert_eq!(marked > 2, !text.contains("noecn"), "{text}: {marked}");
        assert!(told.iter().all(|p| !(p.marked && p.dropped.is_some())), "{text}");
        assert_eq!(told.len(), 1_010);
    }
}

/// A sender that adds one packet to its window each round trip, and halves it at most once in a
/// window for losses, of which it knows at once.
#[derive(Debug, Clone, Copy)]
struct Sender {
    window: f64,
    in_flight: u32,
    recover: u64,
}

/// Five such senders over 10 Mbit/s and 50 ms: the passages of the last 80 s of 100 s.
fn additive_increase(queue: &str) -> Vec<Passage> {
    let mut link = recording(&format!("rate=10mbit delay=50ms buffer=500p queue={queue}"), 1);
    let mut senders = [Sender { window: 2.0, in_flight: 0, recover: 0 }; 5];
    let (mut flows, mut kept, mut now_ns) = (Vec::new(), Vec::new(), 0);
    while now_ns < 100 * S {
        for (flow, sender) in senders.iter_mut().enumerate() {
            while f64::from(sender.in_flight) < sender.window {
                flows.push(flow);
                sender.in_flight += 1;
                link.send(now_ns, Probe { flow, capable: false }, 1250);
            }
        }
        now_ns = link.next_ns().unwrap();
        while let Some(packet) = link.poll(now_ns) {
            let sender = &mut senders[packet.flow];
            sender.in_flight -= 1;
            sender.window += 1.0 / sender.window;
        }
        while let Some(passage) = link.poll_passage() {
            if passage.dropped.is_some() {
                let sender = &mut senders[flows[passage.number as usize]];
                sender.in_flight -= 1;
                if passage.number >= sender.recover {
                    sender.window = (sender.window / 2.0).max(1.0);
                    sender.recover = flows.len() as u64;
                }
            }
            kept.extend((passage.left_ns > 20 * S).then_some(passage));
        }
    }
    kept
}

#[test]
fn active_queues_hold_the_sojourn_near_their_target_without_wasting_the_link() {
    for (queue, low_ms, high_ms) in [
        ("droptail", 300.0, 500.0),
        ("codel", 3.0, 15.0),
        ("codel:20ms,100ms", 15.0, 40.0),
        ("fq_codel", 3.0, 15.0),
        ("pie", 8.0, 25.0),
        ("pie:40ms", 25.0, 60.0),
    ] {
        let told = additive_increase(queue);
        let sent: Vec<&Passage> = told.iter().filter(|p| p.dropped.is_none()).collect();
        let mean_ms = sent.iter().map(|p| p.sojourn_ns() as f64 / 1e6).sum::<f64>() / sent.len() as f64;
        assert!((low_ms..high_ms).contains(&mean_ms), "{queue}: {mean_ms} ms");
        assert!(sent.len() > 72_000, "{queue}: {} of 80000", sent.len());
    }
}

#[test]
fn codel_drops_at_the_head_and_says_when() {
    let mut link = recording("rate=10mbit queue=codel", 1);
    for _ in 0..300 {
        link.send(0, Probe { flow: 0, capable: false }, 1250);
    }
    link.advance(S);
    let told = passages(&mut link);
    let dropped: Vec<&Passage> = told.iter().filter(|p| p.dropped.is_some()).collect();
    // Above 5 ms since the start at 5 ms. An interval later the first is dropped, and the next 100
    // ms later.
    assert_eq!(dropped[0].dropped, Some(DropReason::CoDel));
    assert_eq!((dropped[0].left_ns, dropped[0].number), (105 * MS, 105));
    assert_eq!((dropped[1].left_ns, dropped[1].number), (205 * MS, 206));
    assert_eq!(dropped[0].sojourn_ns(), dropped[0].wait_ns());
    // A dropped packet takes no time.
    assert!(told.is_sorted_by_key(|p| (p.left_ns, p.number)));
    assert_eq!(told.last().map(|p| p.left_ns), Some((300 - dropped.len() as u64) * MS));
}

/// A flow that sends ten times as much as another has no more of the link, and what is sent in
/// moderation waits for nobody.
#[test]
fn a_queue_for_each_flow_is_fair() {
    let mut link = recording("rate=10mbit buffer=100p queue=fq_codel", 1);
    // A packet each ms is the rate. Flow 0 sends one each 0.1 ms, flow 1 one each ms, flow 2 one
    // each 10 ms.
    let mut flows = Vec::new();
    for step in 0..100_000u64 {
        let now_ns = step * 100_000;
        for (flow, every) in [(0, 1), (1, 10), (2, 100)] {
            if step % every == 0 {
                link.send(now_ns, Probe { flow, capable: false }, 1250);
                flows.push(flow);
            }
        }
    }
    let told = passages(&mut link);
    let flow_of = |p: &Passage| flows[p.number as usize];
    let of =
        |flow: usize| told.iter().filter(move |p| p.dropped.is_none() && p.left_ns > S && flow_of(p) == flow);
    let counts = [0, 1, 2].map(|flow| of(flow).count());
    let share = |flow: usize| counts[flow] as f64 / counts.iter().sum::<usize>() as f64;
    assert!((share(0) - 0.45).abs() < 0.03 && (share(1) - 0.45).abs() < 0.03, "{counts:?}");
    assert!((share(2) - 0.10).abs() < 0.01, "{counts:?}");
    let longest_ms = of(2).map(|p| p.sojourn_ns() / MS).max();
    assert!(longest_ms <= Some(6), "{longest_ms:?} ms");
}

#[test]
fn a_policer_holds_the_rate_and_nobody_waits() {
    let mut link = recording("rate=100mbit queue=police:10mbit,25kB", 1);
    for step in 0..50_000u64 {
        link.send(step * 200_000, Probe { flow: 0, capable: true }, 1250);
    }
    let told = passages(&mut link);
    let (gone, passed): (Vec<&Passage>, Vec<&Passage>) = told.iter().partition(|p| p.dropped.is_some());
    assert!(gone.iter().all(|p| p.dropped == Some(DropReason::Policed)), "{:?}", gone.first());
    // 10 s of 1000 packets each, and the burst.
    assert!((10_019..=10_021).contains(&passed.len()), "{}", passed.len());
    assert!(passed.iter().all(|p| p.sojourn_ns() <= 100_000));
    assert_eq!(link.stats().dropped_early, gone.len() as u64);
}

#[test]
fn a_discipline_can_be_exchanged_while_packets_wait() {
    let mut link = recording("rate=10mbit buffer=20p", 1);
    for _ in 0..30 {
        link.send(0, Probe { flow: 0, capable: false }, 1250);
    }
    assert_eq!(link.stats().dropped_queue, 10);
    link.set(0, &"queue=random".parse().unwrap()).unwrap();
    let fates: Vec<Fate> = (0..30).map(|_| link.send(0, Probe { flow: 0, capable: false }, 1250)).collect();
    assert!(fates.contains(&Fate::Queued { marked: false }));
    link.set(0, &"queue=fq_codel".parse().unwrap()).unwrap();
    let fate = link.send(0, Probe { flow: 1, capable: false }, 1250);
    assert_eq!(fate, Fate::Queued { marked: false }, "it knows who has most");
    link.set(0, &"queue=red:1p,2p,0.5,1".parse().unwrap()).unwrap();
    let fate = link.send(0, Probe { flow: 0, capable: false }, 1250);
    assert_eq!(fate, Fate::Dropped(DropReason::Red));
    assert_eq!(link.stats().queue_packets, 20);
}

#[test]
fn a_seed_decides_all_of_it() {
    let run = |seed| {
        let mut link = recording("rate=10mbit buffer=30p queue=red:5p,25p,0.1,gentle", seed);
        offer(&mut link, &mut ChaCha8Rng::seed_from_u64(9), (0, 20 * S), 1.5);
        passages(&mut link)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
