//! The call of three holds what its page claims.

use std::sync::OnceLock;
use uts_demo::call::{ANNA, BEN, CLARA, HAND_OVER_S, JOINS_S, LEAVES_S, run};
use uts_record::call::{Change, Record, Stream};
use uts_report::call::{LIPS_MS, POINTER_MS, render};

/// Highest level, by its place.
const LARGE: usize = 3;

fn record() -> &'static Record {
    static RECORD: OnceLock<Record> = OnceLock::new();
    RECORD.get_or_init(|| run(1, "a test").expect("the call takes place"))
}

fn stream(from: usize, to: usize) -> &'static Stream {
    record().stream(from, to).expect("a stream")
}

/// Values beyond these bounds, as a share.
fn beyond(skews: &[f64], (low, high): (f64, f64)) -> f64 {
    let out = skews.iter().filter(|skew| !(low..=high).contains(*skew)).count();
    out as f64 / skews.len().max(1) as f64
}

#[test]
fn everybody_hears_and_sees_everybody() {
    assert_eq!(record().streams.len(), 6);
    for stream in &record().streams {
        let (from, to) = record().span_s(stream);
        let [voice, picture] =
            [&stream.voice, &stream.picture].map(|shown| shown.share(from, to - 1.0).expect("some"));
        println!("{} to {}: voice {voice:.4}, picture {picture:.4}", stream.from, stream.to);
        assert!(voice > 0.97, "{} to {}: {voice}", stream.from, stream.to);
        assert!(picture > 0.95, "{} to {}: {picture}", stream.from, stream.to);
    }
}

/// The third participant makes levels fall, and they return (Richards 1995, section 4.1.2). Which
/// of two that share a line gives way is not said.
#[test]
fn levels_fall_for_the_third_and_return() {
    for (first, third) in [((ANNA, BEN), (CLARA, BEN)), ((BEN, ANNA), (BEN, CLARA))] {
        let (first, third) = (stream(first.0, first.1), stream(third.0, third.1));
        assert_eq!(first.level_at(JOINS_S), LARGE, "{:?}", first.changes);
        let falls = |stream: &Stream| {
            let fell = |two: &[Change]| two[1].to < two[0].to && (JOINS_S..HAND_OVER_S).contains(&two[1].t_s);
            stream.changes.windows(2).any(fell)
        };
        assert!(falls(first) || falls(third), "{:?} {:?}", first.changes, third.changes);
        // Two large pictures are more than the line bears.
        let both_s = (0..350)
            .map(|tenth| JOINS_S + f64::from(tenth) / 10.0)
            .filter(|at| first.level_at(*at) == LARGE && third.level_at(*at) == LARGE)
            .count() as f64
            / 10.0;
        assert!(both_s < 5.0, "both are large for {both_s} s: {:?} {:?}", first.changes, third.changes);
        assert_eq!(first.level_at(LEAVES_S), LARGE, "{:?}", first.changes);
    }
}

/// Everybody has room for large pictures once Clara has left the line, whatever becomes of single
/// packets.
#[test]
fn levels_return_for_everybody() {
    for seed in [2, 3, 5] {
        let record = run(seed, "a test").expect("the call takes place");
        for stream in &record.streams {
            let at_end = stream.level_at(LEAVES_S - 1.0);
            let (from, to) = (stream.from, stream.to);
            assert_eq!(at_end, LARGE, "seed {seed}, {from} to {to}: {:?}", stream.changes);
        }
    }
}

#[test]
fn lips_and_pointer_are_beside_the_sound() {
    for stream in &record().streams {
        let (from, to) = record().span_s(stream);
        let skews = stream.picture.skews_ms(from, to);
        let out = beyond(&skews, LIPS_MS);
        println!("{} to {}: {:.2} % of {} out", stream.from, stream.to, out * 100.0, skews.len());
        assert!(!skews.is_empty() && out < 0.04, "{} to {}: {out}", stream.from, stream.to);
        if let Some(pointer) = &stream.pointer {
            let out = beyond(&pointer.skews_ms(from, to), POINTER_MS);
            assert!(out < 0.001, "{} to {}: pointer {out}", stream.from, stream.to);
        }
    }
}

/// Nothing that was said at the hand-over is missed for longer than the network takes to notice.
#[test]
fn a_hand_over_leaves_no_long_silence() {
    for (from, to) in [(CLARA, ANNA), (CLARA, BEN), (ANNA, CLARA), (BEN, CLARA)] {
        let gap = stream(from, to).voice.longest_gap_s(HAND_OVER_S - 1.0, HAND_OVER_S + 2.0);
        println!("{from} to {to}: {:.0} ms", gap * 1e3);
        assert!(gap < 0.4, "{from} to {to}: {gap}");
    }
}

#[test]
fn the_page_stands_alone_and_shows_everybody() {
    let page = render(record());
    assert!(page.contains("</html>") && page.matches("<svg").count() >= 3);
    for name in ["Anna", "Ben", "Clara", "Clara joins"] {
        assert!(page.contains(name), "{name}");
    }
    assert!(!page.contains("http://localhost") && !page.contains("src=\"http"));
}
