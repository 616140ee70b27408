//! Tests of what is handed over, and when, by hand and against a model.

use super::*;
use crate::sequencing::message_row::Places;
use proptest::prelude::*;

fn piece(start: u64, data: &'static [u8]) -> Segment {
    Segment {
        start,
        data: Bytes::from_static(data),
        message: false,
        presented: false,
        begin: false,
        end: false,
        fin: false,
    }
}

fn message(start: u64, data: &'static [u8]) -> Segment {
    Segment { message: true, begin: true, end: true, ..piece(start, data) }
}

#[test]
fn ordered_waits_and_unordered_does_not() {
    let mut r = Reassembly::default();
    r.insert(message(4, b"two"), 100).expect("in bounds");
    assert_eq!(r.pop_front(100), None);
    assert_eq!(r.clone().pop_any(100), Some(Delivery::Message(4, Bytes::from_static(b"two"))));
    r.insert(message(0, b"one"), 100).expect("in bounds");
    assert_eq!(r.pop_front(100), Some(Delivery::Message(0, Bytes::from_static(b"one"))));
    assert_eq!(r.pop_front(100), Some(Delivery::Message(4, Bytes::from_static(b"two"))));
    assert_eq!((r.consumed(), r.held_bytes()), (8, 0));
}

/// A reader that asks for no bytes loses none.
#[test]
fn what_is_not_asked_for_stays() {
    let mut r = Reassembly::default();
    r.insert(piece(5, b"later"), 100).expect("in bounds");
    assert_eq!(r.pop_any(0), None);
    assert_eq!(r.pop_any(100), Some(Delivery::Bytes(5, Bytes::from_static(b"later"))));
}

/// Bytes that come in order go through no tree, whether order is asked for or not.
#[test]
fn bytes_in_order_are_never_a_piece() {
    let mut r = Reassembly::default();
    for (pop, from) in [(Reassembly::pop_front as fn(&mut _, _) -> _, 0), (Reassembly::pop_any, 9)] {
        assert!(r.append(from, b"abc", 100) && r.append(from + 3, b"defghi", 100));
        assert_eq!(pop(&mut r, 4), Some(Delivery::Bytes(from, Bytes::from_static(b"abcd"))));
        assert!(r.pieces.is_empty() && !r.run.is_empty());
        assert_eq!(pop(&mut r, 100), Some(Delivery::Bytes(from + 4, Bytes::from_static(b"efghi"))));
        assert_eq!((pop(&mut r, 100), r.held_bytes()), (None, 0));
    }
    assert_eq!(r.consumed(), 18);
}

#[test]
fn fragments_join_in_any_order_and_overlap() {
    let mut r = Reassembly::default();
    let whole = b"abcdefghij";
    let part = |from: usize, to: usize| Segment {
        start: from as u64,
        data: Bytes::from_static(&whole[from..to]),
        message: true,
        presented: false,
        begin: from == 0,
        end: to == 10,
        fin: to == 10,
    };
    for (from, to) in [(6, 10), (2, 7), (6, 10), (0, 4)] {
        assert_eq!(r.pop_any(100), None);
        r.insert(part(from, to), 100).expect("in bounds");
    }
    assert_eq!(r.pop_any(100), Some(Delivery::Message(0, Bytes::from_static(whole))));
    assert_eq!(r.pop_any(100), Some(Delivery::End));
    assert_eq!(r.pop_any(100), None);
    assert!(r.is_ended());
}

#[test]
fn skipped_positions_are_passed_over_and_reported() {
    let mut r = Reassembly::default();
    r.insert(message(4, b"two"), 100).expect("in bounds");
    r.skip(0..4);
    assert_eq!(r.pop_front(100), Some(Delivery::Skipped(4)));
    assert_eq!(r.pop_front(100), Some(Delivery::Message(4, Bytes::from_static(b"two"))));
}

#[test]
fn a_peer_that_breaks_the_rules_changes_nothing() {
    let mut r = Reassembly::default();
    r.insert(Segment { fin: true, ..piece(0, b"abc") }, 100).expect("in bounds");
    assert_eq!(r.insert(piece(2, b"xyz"), 100), Err(SegmentError::BeyondEnd { position: 5, end: 3 }));
    assert_eq!(
        r.insert(Segment { fin: true, ..piece(0, b"ab") }, 100),
        Err(SegmentError::EndMoved { known: 3, said: 2 })
    );
    let mut r = Reassembly::default();
    assert_eq!(r.insert(piece(8, b"abc"), 10), Err(SegmentError::BeyondLimit { position: 11, limit: 10 }));
    assert_eq!(r.held_bytes(), 0);
}

#[test]
fn a_skip_over_the_front_of_what_arrived_stalls_nothing() {
    let mut r = Reassembly::default();
    r.insert(piece(0, b"0123456789"), 100).expect("in bounds");
    r.skip(0..5);
    assert_eq!(r.pop_front(100), Some(Delivery::Bytes(0, Bytes::from_static(b"0123456789"))));
    assert_eq!((r.consumed(), r.held_bytes()), (10, 0));
    let mut r = Reassembly::default();
    r.insert(piece(5, b"56789"), 100).expect("in bounds");
    r.skip(0..8);
    assert_eq!(r.pop_front(100), Some(Delivery::Skipped(5)));
    assert_eq!(r.pop_front(100), Some(Delivery::Bytes(5, Bytes::from_static(b"56789"))));
}

#[test]
fn what_was_given_up_is_reported_where_it_is_missing() {
    let mut r = Reassembly::default();
    r.skip(6..9);
    r.insert(piece(9, b"9"), 100).expect("in bounds");
    assert_eq!(r.pop_front(100), None, "nothing is missing before position 0");
    r.insert(piece(0, b"012"), 100).expect("in bounds");
    assert_eq!(r.pop_front(100), Some(Delivery::Bytes(0, Bytes::from_static(b"012"))));
    assert_eq!(r.pop_front(100), None);
    r.skip(3..4);
    assert_eq!(r.pop_front(100), Some(Delivery::Skipped(1)));
    r.insert(piece(4, b"45"), 100).expect("in bounds");
    assert_eq!(r.pop_front(100), Some(Delivery::Bytes(4, Bytes::from_static(b"45"))));
    assert_eq!(r.pop_front(100), Some(Delivery::Skipped(3)));
    assert_eq!(r.pop_front(100), Some(Delivery::Bytes(9, Bytes::from_static(b"9"))));
}

#[test]
fn parts_of_a_message_that_cannot_become_whole_are_dropped() {
    let part = |start: u64, data: &'static [u8], begin: bool, end: bool| Segment {
        message: true,
        begin,
        end,
        ..piece(start, data)
    };
    // Parts of a message of positions 0..10, in every order, with its middle given up at every
    // moment.
    let parts = [part(0, b"ab", true, false), part(2, b"cd", false, false), part(7, b"hi", false, true)];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for when in 0..=3 {
            let mut r = Reassembly::default();
            for (step, index) in order.into_iter().enumerate() {
                if step == when {
                    r.skip(4..7);
                }
                r.insert(parts[index].clone(), 100).expect("in bounds");
            }
            r.skip(4..7);
            r.insert(message(10, b"next"), 100).expect("in bounds");
            assert_eq!(r.pop_front(100), Some(Delivery::Skipped(10)), "{order:?} {when}");
            assert_eq!(r.pop_front(100), Some(Delivery::Message(10, Bytes::from_static(b"next"))));
            assert_eq!((r.consumed(), r.held_bytes()), (15, 0));
        }
    }
}

#[test]
fn unplaced_messages_are_bounded() {
    let mut r = Reassembly::default();
    let taken = (0..2 * UNPLACED_MAX).filter(|_| r.push_unplaced(Bytes::new(), false)).count();
    assert_eq!(taken, UNPLACED_MAX);
}

/// Where messages of these sizes lie in a payload.
fn rows(sizes: &[usize]) -> Vec<Places> {
    let mut rows: Vec<Places> = Vec::new();
    let mut from = 0;
    for size in sizes {
        let to = from + size;
        if !rows.last_mut().is_some_and(|row| row.extend(from, to)) {
            rows.push(Places::one(from, to, false));
        }
        from = to;
    }
    rows
}

#[test]
fn messages_of_a_packet_are_taken_in_as_one_by_one() {
    let mut r = Reassembly::default();
    let packet = r.keep(b"onetwothree");
    let list = rows(&[3, 3, 5]);
    assert_eq!(r.insert_messages(0, &packet, &list, 100), Ok(11));
    assert_eq!((r.held_bytes(), r.contiguous()), (11, 14));
    assert_eq!(r.insert_messages(0, &packet, &list, 100), Ok(0), "all of them again");
    assert_eq!(r.insert_messages(8, &packet, &rows(&[5, 2]), 100), Ok(2), "one of them again");
    // What does not fit changes nothing that lies behind it.
    let beyond = r.insert_messages(96, &packet, &list, 100);
    assert_eq!(beyond, Err(SegmentError::BeyondLimit { position: 104, limit: 100 }));
    let mut texts = Vec::new();
    while let Some(Delivery::Message(_, text)) = r.pop_any(100) {
        texts.push(String::from_utf8_lossy(&text).into_owned());
    }
    // Of the repeated ones what came first counts; the last is what the packet held there.
    assert_eq!(texts, ["one", "two", "three", "ot", "one"]);
}

#[test]
fn the_next_messages_of_a_packet_are_taken_in_at_once() {
    let mut r = Reassembly::default();
    let list = rows(&[3, 3, 5]);
    let payload = b"onetwothree";
    assert!(r.append_messages(0, payload, &list, 14));
    // Again, apart, beyond the limit: for others, and nothing has changed.
    for (start, limit) in [(0, 100), (8, 100), (15, 100), (14, 27)] {
        assert!(!r.append_messages(start, payload, &list, limit), "from {start}, below {limit}");
        assert_eq!((r.held_bytes(), r.contiguous(), r.gaps()), (11, 14, 0));
    }
    assert!(r.append(14, b"bytes", 100) && r.append_messages(19, payload, &list, 100));
    let mut all = Vec::new();
    while let Some(delivery) = r.pop_front(100) {
        match delivery {
            Delivery::Message(start, text) | Delivery::Bytes(start, text) => {
                all.push((start, String::from_utf8_lossy(&text).into_owned()));
            }
            other => panic!("{other:?}"),
        }
    }
    let expected =
        [(0, "one"), (4, "two"), (8, "three"), (14, "bytes"), (19, "one"), (23, "two"), (27, "three")];
    assert_eq!(all, expected.map(|(start, text)| (start, text.to_owned())));
    // Nothing follows the end.
    let fin = Segment {
        start: 33,
        data: Bytes::new(),
        message: false,
        presented: false,
        begin: false,
        end: false,
        fin: true,
    };
    r.insert(fin, 100).expect("the end");
    assert!(!r.append_messages(33, payload, &list, 100) && !r.append_messages(34, payload, &list, 100));
}

#[test]
fn messages_of_a_packet_without_positions_are_bounded() {
    let mut r = Reassembly::default();
    let packet = r.keep(b"abcd");
    let list = rows(&[1; 4]);
    let rounds = UNPLACED_MAX / 4;
    assert!((0..rounds).all(|_| r.push_unplaced_messages(&packet, &list) == 4));
    assert_eq!((r.push_unplaced_messages(&packet, &list), r.held_bytes()), (0, UNPLACED_MAX));
    assert!(!r.append_unplaced_messages(b"abcd", &list));
    let mut taken = 0;
    assert!(!r.take_messages(false, |row| {
        row.pop_each(|message| {
            taken += message.len();
            taken < 3
        })
    }));
    assert_eq!((taken, r.held_bytes()), (3, UNPLACED_MAX - 3));
    // All of a packet, or none of it.
    assert!(!r.append_unplaced_messages(b"abcd", &list));
    assert_eq!(r.push_unplaced_messages(&packet, &list), 3);
    assert_eq!(r.pop_any(100), Some(Delivery::Message(0, Bytes::from_static(b"d"))));
    // A row at a time, of which no more is taken than is wanted.
    let mut left = 3;
    assert!(!r.take_messages(true, |row| {
        left -= row.split_first(left).len();
        left > 0
    }));
    assert_eq!(r.held_bytes(), UNPLACED_MAX - 4);
    assert!(r.take_messages(true, |row| !row.split_first(9).is_empty()));
    assert_eq!((r.held_bytes(), r.pop_front(100)), (0, None));
}

#[test]
fn many_messages_come_as_one_by_one_would() {
    let texts = |r: &mut Reassembly, in_order| {
        let mut texts = Vec::new();
        assert!(r.take_messages(in_order, |row| {
            row.pop_each(|text| {
                texts.push(String::from_utf8_lossy(&text).into_owned());
                true
            })
        }));
        texts
    };
    let mut r = Reassembly::default();
    let packet = r.keep(b"onetwothree");
    // The second is lost, the last is not as it was sent.
    r.insert_messages(0, &packet, &rows(&[3]), 100).expect("in bounds");
    let mut list = rows(&[3, 3, 5])[1..].to_vec();
    r.insert_messages(8, &packet, &list, 100).expect("in bounds");
    list[0].presented = true;
    r.insert_messages(14, &packet, &list, 100).expect("in bounds");
    let mut unordered = r.clone();
    assert_eq!(texts(&mut unordered, false), ["one", "three"]);
    assert_eq!((unordered.held_bytes(), unordered.consumed()), (5, 4));
    assert_eq!(unordered.pop_any(100), Some(Delivery::Presented(14, packet.slice(6..11))));
    assert_eq!(texts(&mut r, true), ["one"]);
    assert_eq!(texts(&mut r, true), [""; 0]);
    r.skip(4..8);
    assert_eq!(texts(&mut r, true), [""; 0], "what was given up is told first");
    assert_eq!(r.pop_front(100), Some(Delivery::Skipped(4)));
    assert_eq!(texts(&mut r, true), ["three"]);
    assert_eq!(r.pop_front(100), Some(Delivery::Presented(14, packet.slice(6..11))));
    assert_eq!((r.held_bytes(), r.consumed()), (0, 20));
}

#[test]
fn bytes_in_order_come_out_in_long_stretches_of_few_buffers() {
    let mut r = Reassembly::default();
    let packet = [7; 1000];
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..200u64 {
        for i in 0..40 {
            assert!(r.append((round * 40 + i) * 1000, &packet, u64::MAX));
        }
        assert_eq!(r.held_bytes(), 40_000);
        let mut read = 0;
        while let Some(Delivery::Bytes(at, bytes)) = r.pop_front(usize::MAX) {
            assert_eq!(at, round * 40_000 + read);
            read += bytes.len() as u64;
            seen.insert(bytes.as_ptr() as usize / (64 * 1024));
        }
        assert_eq!((read, r.held_bytes()), (40_000, 0));
    }
    // Eight megabytes have passed; what was read was dropped, so that its buffer came round again.
    assert!(seen.len() < 20, "{} buffers", seen.len());
}

#[test]
fn only_what_follows_is_appended() {
    let mut r = Reassembly::default();
    assert!(!r.append(1, b"b", 100));
    assert!(!r.append(0, b"", 100));
    assert!(!r.append(0, b"abc", 2));
    assert!(r.append(0, b"abc", 3));
    assert!(!r.append(0, b"abc", 100));
    r.insert(piece(10, b"k"), 100).expect("in bounds");
    assert!(!r.append(3, b"d", 100), "something lies behind");
    r.insert(piece(3, b"defghij"), 100).expect("in bounds");
    assert!(r.append(11, b"lm", 100));
    assert_eq!(r.pop_front(2), Some(Delivery::Bytes(0, Bytes::from_static(b"ab"))));
    r.insert(Segment { fin: true, ..piece(13, b"n") }, 100).expect("in bounds");
    assert!(!r.append(14, b"o", 100), "behind the end");
    let mut rest = Vec::new();
    while let Some(Delivery::Bytes(_, bytes)) = r.pop_front(100) {
        rest.extend_from_slice(&bytes);
    }
    assert_eq!(rest, b"cdefghijklmn");
}

/// Behind a gap, bytes go on in one stretch: what is lost for ever costs nothing for what follows.
#[test]
fn a_gap_does_not_cut_up_what_follows() {
    let mut r = Reassembly::default();
    assert!(r.append(0, b"ab", 100));
    r.insert(piece(5, b"f"), 100).expect("in bounds");
    let mut ordered = r.clone();
    for (at, byte) in [(6, b"g"), (7, b"h"), (8, b"i")] {
        assert!(r.append(at, byte, 100));
    }
    assert_eq!(r.pop_any(100), Some(Delivery::Bytes(0, Bytes::from_static(b"ab"))));
    assert_eq!(r.pop_any(100), Some(Delivery::Bytes(5, Bytes::from_static(b"f"))));
    assert_eq!(r.pop_any(100), Some(Delivery::Bytes(6, Bytes::from_static(b"ghi"))));
    assert!(r.append(9, b"jk", 100));
    assert_eq!((r.pop_any(100), r.pieces.len()), (Some(Delivery::Bytes(9, Bytes::from_static(b"jk"))), 0));
    // Where the gap closes, everything comes in order.
    assert!(ordered.append(6, b"gh", 100));
    assert_eq!(ordered.pop_front(100), Some(Delivery::Bytes(0, Bytes::from_static(b"ab"))));
    assert_eq!(ordered.pop_front(100), None, "there is a gap");
    assert!(ordered.append(8, b"i", 100));
    ordered.insert(piece(2, b"cde"), 100).expect("in bounds");
    let mut rest = Vec::new();
    while let Some(Delivery::Bytes(_, bytes)) = ordered.pop_front(100) {
        rest.extend_from_slice(&bytes);
    }
    assert_eq!(rest, b"cdefghi");
}

#[test]
fn whole_messages_come_once_in_either_order_whoever_hands_them_over() {
    let insert = |r: &mut Reassembly, start: u64| {
        let data = Bytes::copy_from_slice(&start.to_be_bytes());
        r.insert_message(start, data, false, 1000)
    };
    let message = |start: u64| Some(Delivery::Message(start, Bytes::copy_from_slice(&start.to_be_bytes())));
    let mut r = Reassembly::default();
    // The second is late, the fourth is lost, the second comes twice.
    for start in [0, 18, 27, 9, 45, 9] {
        insert(&mut r, start).expect("in bounds");
    }
    let mut unordered = r.clone();
    let all: Vec<_> = std::iter::from_fn(|| unordered.pop_any(100)).collect();
    assert_eq!(all.len(), 5);
    assert_eq!((unordered.held_bytes(), unordered.consumed()), (0, 36));
    for start in [0, 9] {
        assert_eq!(r.pop_front(100), message(start));
    }
    // What one mechanism left, the other hands over.
    assert_eq!(r.clone().pop_any(100), message(18));
    for start in [18, 27] {
        assert_eq!(r.pop_front(100), message(start));
    }
    assert_eq!(r.pop_front(100), None);
    r.skip(36..45);
    assert_eq!(r.pop_front(100), Some(Delivery::Skipped(9)));
    assert_eq!(r.pop_front(100), message(45));
    assert_eq!((r.pop_front(100), r.held_bytes(), r.consumed()), (None, 0, 54));
    assert_eq!(
        insert(&mut r, 999),
        Err(SegmentError::BeyondLimit { position: 1008, limit: 1000 }),
        "nothing beyond the limit"
    );
}

proptest! {
    /// Messages, whole and in parts, repeated, late and given up, handed over by mechanisms in
    /// turn, arrive at most once, and in order where order is kept.
    #[test]
    fn every_message_arrives_once_or_is_given_up(
        sizes in prop::collection::vec(0u64..30, 1..40),
        order in prop::collection::vec((0usize..40, 0u8..8, 0u64..30), 0..120),
        reads in prop::collection::vec(prop::option::of(any::<bool>()), 1..50),
        ordered_only in any::<bool>(),
    ) {
        let mut starts = vec![0];
        starts.extend(sizes.iter().scan(0, |at, size| { *at += size + 1; Some(*at) }));
        let total = *starts.last().expect("one at least");
        let data = [0x5a; 30];
        let mut r = Reassembly::default();
        let (mut got, mut given_up, mut last) = (vec![0; sizes.len()], vec![false; sizes.len()], None);
        let mut reads = reads.into_iter().cycle();
        let late = (0..sizes.len()).map(|i| (i, 7, 0));
        for (index, how, cut) in order.into_iter().chain(late) {
            let Some(&size) = sizes.get(index) else { continue };
            let (start, cut) = (starts[index], cut.min(size));
            let bytes = |from: u64, to: u64| Bytes::copy_from_slice(&data[from as usize..to as usize]);
            match how {
                0 => {
                    given_up[index] = true;
                    r.skip(start..start + size + 1);
                }
                1..=3 if cut > 0 && cut < size => {
                    let front = Segment { end: false, ..message(start, b"") };
                    let back = Segment { begin: false, ..message(start + cut, b"") };
                    if how != 2 {
                        r.insert(Segment { data: bytes(0, cut), ..front }, total).expect("in bounds");
                    }
                    if how != 1 {
                        r.insert(Segment { data: bytes(cut, size), ..back }, total).expect("in bounds");
                    }
                }
                _ => _ = r.insert_message(start, bytes(0, size), false, total).expect("in bounds"),
            }
            let next = match reads.next().expect("endless") {
                None => None,
                Some(ordered) if ordered || ordered_only => r.pop_front(100),
                Some(_) => r.pop_any(100),
            };
            if let Some(Delivery::Message(at, bytes)) = next {
                let index = starts.binary_search(&at).expect("the start of a message");
                prop_assert_eq!(bytes.len() as u64, sizes[index]);
                prop_assert!(!ordered_only || last.is_none_or(|last| last < at), "out of order");
                last = Some(at);
                got[index] += 1;
            }
        }
        while let Some(next) = if ordered_only { r.pop_front(100) } else { r.pop_any(100) } {
            if let Delivery::Message(at, bytes) = next {
                let index = starts.binary_search(&at).expect("the start of a message");
                prop_assert_eq!(bytes.len() as u64, sizes[index]);
                prop_assert!(!ordered_only || last.is_none_or(|last| last < at), "out of order");
                last = Some(at);
                got[index] += 1;
            }
        }
        for (index, count) in got.into_iter().enumerate() {
            prop_assert!(count == 1 || (count == 0 && given_up[index]), "message {} came {} times", index, count);
        }
        prop_assert_eq!((r.held_bytes(), r.consumed()), (0, total));
    }

    /// Bytes cut and repeated at will, handed over by mechanisms in turn, arrive exactly once.
    #[test]
    fn every_byte_arrives_exactly_once(
        cuts in prop::collection::vec((0usize..200, 1usize..40, any::<bool>()), 1..120),
        reads in prop::collection::vec((any::<bool>(), 1usize..30), 1..400),
    ) {
        let data: Vec<u8> = (0..200u8).collect();
        let mut r = Reassembly::default();
        let mut got = vec![None; 200];
        let mut reads = reads.into_iter().cycle();
        let mut feed: Vec<(usize, usize)> = cuts.iter().map(|c| (c.0, (c.0 + c.1).min(200))).collect();
        feed.extend((0..200).step_by(10).map(|s| (s, s + 10)));
        for (from, to) in feed {
            let last = r.settled.last().map_or(0, |last| last.end);
            let follows = last == from as u64 && to < 200 && to > from && r.end_position().is_none();
            if to < 200 {
                prop_assert_eq!(r.append(from as u64, &data[from..to], 1000), follows);
            }
            if !follows {
                let segment = Segment { data: Bytes::copy_from_slice(&data[from..to]), fin: to == 200, ..piece(from as u64, b"") };
                r.insert(segment, 1000).expect("in bounds");
            }
            let (ordered, max) = reads.next().expect("endless");
            let consumed = r.consumed();
            let next = if ordered { r.pop_front(max) } else { r.pop_any(max) };
            if let Some(Delivery::Bytes(at, bytes)) = next {
                prop_assert!(!ordered || at == consumed, "{} before {}", at, consumed);
                for (i, b) in bytes.iter().enumerate() {
                    prop_assert_eq!(got[at as usize + i].replace(*b), None, "handed over twice");
                }
            }
        }
        while let Some(d) = r.pop_any(7) {
            if let Delivery::Bytes(at, bytes) = d {
                for (i, b) in bytes.iter().enumerate() {
                    prop_assert_eq!(got[at as usize + i].replace(*b), None, "handed over twice");
                }
            }
        }
        prop_assert_eq!(got.into_iter().collect::<Option<Vec<u8>>>(), Some(data));
        prop_assert!(r.is_ended() && r.held_bytes() == 0);
    }
}
