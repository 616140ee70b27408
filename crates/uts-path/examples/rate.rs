//! Number of packets a second that a link carries, on one core, in virtual time.
//!
//! `cargo run --release -p uts-path --example rate [PACKETS]`

#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use std::time::Instant;
use uts_path::{Link, LinkConfig, Payload};

/// Nothing to copy: what is measured is the link.
#[derive(Debug, Clone)]
struct Empty;

impl Payload for Empty {
    fn flip_bit(&mut self, _: usize) {}
}

const KINDS: &[(&str, &str)] = &[
    ("perfect", ""),
    ("rate and delay", "rate=10gbit delay=20ms buffer=1000p"),
    ("random drop", "rate=5gbit delay=20ms buffer=1000p queue=random"),
    ("RED", "rate=9gbit delay=20ms buffer=1000p queue=red:100p,300p,0.1"),
    ("CoDel", "rate=9gbit delay=20ms buffer=1000p queue=codel"),
    ("cellular trace", "rate=cellular:1gbit,7 delay=20ms buffer=1000p"),
    ("loss and jitter", "rate=10gbit delay=20ms buffer=1000p loss=ge:0.01,4 jitter=1ms"),
    (
        "everything",
        "rate=9gbit delay=20ms buffer=1000p queue=codel framing=ethernet loss=0.01 jitter=1ms,reorder \
                    reorder=0.01,1ms duplicate=0.01 corrupt=0.01",
    ),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let packets: u64 = std::env::args().nth(1).map_or(Ok(5_000_000), |n| n.parse())?;
    for (name, settings) in KINDS {
        for record in [false, true] {
            let mut link = Link::new(settings.parse::<LinkConfig>()?, 1)?;
            link.record_passages(record);
            let start = Instant::now();
            for number in 0..packets {
                // 1200 bytes each 1 us: 9.6 Gbit/s.
                let now_ns = number * 1000;
                link.send(now_ns, Empty, 1200);
                while link.next_ns().is_some_and(|at_ns| at_ns <= now_ns) && link.poll(now_ns).is_some() {}
                while link.poll_passage().is_some() {}
            }
            let took_s = start.elapsed().as_secs_f64();
            let stats = link.stats();
            println!(
                "{name:16} {:9} {:6.2} M packets/s, {} delivered, {} dropped",
                if record { "recorded" } else { "" },
                packets as f64 / took_s / 1e6,
                stats.delivered,
                stats.dropped(),
            );
        }
    }
    Ok(())
}
