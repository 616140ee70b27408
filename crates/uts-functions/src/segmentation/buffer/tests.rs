use super::*;
use proptest::prelude::*;

fn text(buffer: &SendBuffer, chunk: &Chunk) -> String {
    let mut out = Vec::new();
    buffer.copy(chunk, &mut out);
    String::from_utf8(out).expect("test data is text")
}

#[test]
fn bytes_run_over_writes_and_end_with_fin() {
    let mut b = SendBuffer::default();
    b.write(Bytes::from_static(b"abc"));
    b.write(Bytes::from_static(b"defg"));
    b.finish();
    let c = b.next_chunk(5, 100).expect("data");
    assert_eq!((c.range.clone(), c.fin, text(&b, &c)), (0..5, false, "abcde".into()));
    let c = b.next_chunk(5, 100).expect("data");
    assert_eq!((c.range.clone(), c.fin, text(&b, &c)), (5..8, true, "fg".into()));
    assert!(b.next_chunk(5, 100).is_none());
    b.on_acknowledged(0..8);
    assert!(b.is_complete() && b.held_bytes() == 0);
}

/// The bytes that go by themselves, `len` in each packet.
fn plain(b: &mut SendBuffer, len: usize, limit: u64) -> Vec<String> {
    let (mut packets, mut out) = (Vec::new(), b"before ".to_vec());
    let Some(mut bytes) = b.unsent_bytes(limit) else { return packets };
    loop {
        let (start, at) = (bytes.position(), out.len());
        if !bytes.append(len, &mut out) {
            assert_eq!((bytes.position(), out.len()), (start, at), "nothing is half taken");
            return packets;
        }
        packets.push(format!("{start} {}", String::from_utf8_lossy(&out[at..])));
    }
}

#[test]
fn bytes_go_by_themselves_until_something_else_is_due() {
    let mut b = SendBuffer::default();
    for text in ["abc", "defg", "hi"] {
        b.write(Bytes::from_static(text.as_bytes()));
    }
    // What lies beyond the limit, and the last that may be sent, is for the general way.
    assert_eq!(plain(&mut b, 2, 5), ["0 ab", "2 cd"]);
    assert_eq!(plain(&mut b, 1, 100), ["4 e", "5 f", "6 g", "7 h"]);
    assert_eq!(plain(&mut b, 0, 8), [""; 0]);
    // So is what is to be repeated, and what comes behind it meanwhile.
    b.write(Bytes::from_static(b"jkl"));
    b.repeat(0..2);
    assert_eq!(plain(&mut b, 1, 100), [""; 0]);
    assert_eq!(b.next_chunk(9, 100).map(|c| c.range), Some(0..2));
    assert_eq!(plain(&mut b, 2, 100), ["8 ij"]);
    // Bytes of a message are none of a file.
    b.write_message(Bytes::from_static(b"message"), None);
    assert_eq!(plain(&mut b, 3, 100), [""; 0]);
    assert_eq!(plain(&mut b, 2, 100), ["10 kl"]);
    assert_eq!(plain(&mut b, 2, 100), [""; 0]);
    // The end of a flow travels with its last byte.
    let mut b = SendBuffer::default();
    b.write(Bytes::from_static(b"abc"));
    b.finish();
    assert_eq!(plain(&mut b, 3, 100), [""; 0]);
    assert_eq!(b.next_chunk(3, 100).map(|c| c.fin), Some(true));
}

#[test]
fn bytes_that_were_given_up_unsent_do_not_go_by_themselves() {
    let mut b = SendBuffer::default();
    for text in ["abc", "def", "ghi"] {
        b.write(Bytes::from_static(text.as_bytes()));
    }
    b.abandon(4..6);
    assert_eq!(plain(&mut b, 1, 100), ["0 a", "1 b", "2 c"]);
    // That is for the general way.
    assert_eq!(b.next_chunk(9, 100).map(|c| c.range.start), Some(3));
}

#[test]
fn messages_never_share_a_chunk() {
    let mut b = SendBuffer::default();
    b.write_message(Bytes::from_static(b"one"), None);
    b.write_message(Bytes::new(), None);
    b.write_message(Bytes::from_static(b"three"), None);
    b.finish();
    let c = b.next_chunk(50, 100).expect("one");
    assert_eq!((c.range.clone(), c.begin, c.end, text(&b, &c)), (0..4, true, true, "one".into()));
    let c = b.next_chunk(50, 100).expect("the empty one");
    assert_eq!((c.range.clone(), c.begin, c.end, c.data_bytes), (4..5, true, true, 0));
    let c = b.next_chunk(3, 100).expect("a part");
    assert_eq!((c.range.clone(), c.begin, c.end, text(&b, &c)), (5..8, true, false, "thr".into()));
    let c = b.next_chunk(3, 100).expect("the rest");
    assert_eq!(
        (c.range.clone(), c.begin, c.end, c.fin, text(&b, &c)),
        (8..12, false, true, true, "ee".into())
    );
}

#[test]
fn credit_limits_new_data_but_not_repeats() {
    let mut b = SendBuffer::default();
    b.write(Bytes::from_static(b"abcdef"));
    let c = b.next_chunk(10, 4).expect("four");
    assert_eq!(c.range, 0..4);
    assert!(b.next_chunk(10, 4).is_none() && b.is_blocked(4));
    b.on_acknowledged(1..2);
    b.repeat(0..4);
    let repeats: Vec<_> = core::iter::from_fn(|| b.next_chunk(10, 4)).map(|c| (c.range, c.repeat)).collect();
    assert_eq!(repeats, [(0..1, true), (2..4, true)]);
}

#[test]
fn each_message_expires_at_its_own_time_unless_it_has_arrived() {
    let (early, late) = (Time::from_millis(5), Time::from_millis(9));
    let mut b = SendBuffer::default();
    let three = || ["one", "two", "three"].map(|text| Bytes::from_static(text.as_bytes())).into_iter();
    b.write_messages(three(), Some(late));
    b.write_messages(three(), Some(early));
    b.write_message(Bytes::from_static(b"for ever"), None);
    assert_eq!(b.next_expiry(), Some(early));
    // The second of the early ones arrives, as does the first of all.
    while b.next_chunk(100, 100).is_some() {}
    b.on_acknowledged(18..22);
    b.on_acknowledged(0..4);
    assert_eq!((b.expire(Time::from_millis(4)).messages, b.expire(early).messages), (0, 2));
    assert_eq!((b.pop_skip(), b.pop_skip(), b.pop_skip()), (Some(14..18), Some(22..28), None));
    assert_eq!(b.next_expiry(), Some(late));
    // What stands behind them is free as soon as they are.
    assert_eq!((b.expire(late).messages, b.next_expiry(), b.held_bytes()), (2, None, 8));
    // All that arrives in time expires never.
    b.write_message(Bytes::from_static(b"late"), Some(late));
    b.on_acknowledged(28..42);
    assert_eq!(
        (b.next_expiry(), b.expire(Time::from_millis(99)), b.held_bytes()),
        (None, Expired::default(), 0)
    );
}

#[test]
fn giving_up_a_part_gives_up_the_message_but_not_the_end_of_the_flow() {
    let mut b = SendBuffer::default();
    b.write_message(Bytes::from_static(b"abcdef"), None);
    b.write_message(Bytes::from_static(b"xy"), Some(Time::from_millis(5)));
    b.finish();
    let first = b.next_chunk(3, 100).expect("a part");
    b.abandon(first.range);
    assert_eq!(b.pop_skip(), Some(0..7));
    let c = b.next_chunk(9, 100).expect("the next message");
    assert_eq!((c.range.clone(), c.fin), (7..11, true));
    assert_eq!(b.next_expiry(), Some(Time::from_millis(5)));
    assert_eq!((b.expire(Time::from_millis(6)).messages, b.held_bytes()), (1, 0));
    assert_eq!(b.pop_skip(), Some(7..10));
    // The chunk that carried the end is lost: the end is repeated, the message is not.
    b.repeat(c.range);
    let c = b.next_chunk(9, 100).expect("the end");
    assert_eq!((c.range.clone(), c.fin, c.data_bytes), (10..11, true, 0));
    b.on_acknowledged(10..11);
    // Until the peer knows what it need not wait for, the notices may have to be repeated.
    assert!(!b.is_complete());
    b.on_skip_acknowledged(0..7);
    b.repeat_skip(7..10);
    assert_eq!(b.pop_skip(), Some(7..10));
    b.on_skip_acknowledged(7..10);
    assert!(b.is_complete());
}

/// Change of a sender's state of a flow.
#[derive(Clone, Debug)]
enum Deed {
    /// So many messages of so many bytes are handed over, with a lifetime or none.
    Write(u32, usize, Option<u64>),
    Chunk(usize),
    /// So many whole messages are sent.
    Whole(usize),
    Acknowledge(u64, u64),
    Lose(u64, u64),
    Abandon(u64, u64),
    Expire(u64),
    Skip,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let range = || (0..120_u64, 1..40_u64);
    let deed = prop_oneof![
        (1..9_u32, prop_oneof![Just(3_usize), 0..12_usize], proptest::option::of(0..50_u64))
            .prop_map(|(n, len, at)| Deed::Write(n, len, at)),
        (1..30_usize).prop_map(Deed::Chunk),
        (1..9_usize).prop_map(Deed::Whole),
        range().prop_map(|(from, len)| Deed::Acknowledge(from, from + len)),
        range().prop_map(|(from, len)| Deed::Lose(from, from + len)),
        range().prop_map(|(from, len)| Deed::Abandon(from, from + len)),
        (0..60_u64).prop_map(Deed::Expire),
        Just(Deed::Skip),
    ];
    proptest::collection::vec(deed, 1..60)
}

/// Sends by each of two ways, which are to come to the same, and what is left one by one.
fn check_alike(
    b: &SendBuffer,
    limit: u64,
    send: impl FnOnce(&mut UnsentMessages<'_>, &mut UnsentMessages<'_>),
) {
    let (mut at_once, mut singly) = (b.clone(), b.clone());
    let (Some(mut messages), Some(mut one_by_one)) =
        (at_once.unsent_messages(limit), singly.unsent_messages(limit))
    else {
        return;
    };
    send(&mut messages, &mut one_by_one);
    while one_by_one.front().is_some() {
        assert_eq!(format!("{:?}", messages.front()), format!("{:?}", one_by_one.front()));
        assert_eq!(messages.taken(), one_by_one.taken());
        messages.on_sent();
        one_by_one.on_sent();
    }
    assert_eq!((messages.front().is_none(), messages.taken()), (true, one_by_one.taken()));
    assert_eq!((at_once.sent, at_once.cursor), (singly.sent, singly.cursor));
}

/// Checks that messages that stand together may be sent at once, in one piece.
fn check_together(b: &SendBuffer, most: usize, limit: u64) {
    check_alike(b, limit, |messages, one_by_one| {
        let Some(Together { start, message_bytes, count }) = messages.together() else { return };
        let mut pieces = Vec::new();
        assert!(messages.send_even(count.min(most), |bytes| pieces.push(bytes.to_vec())));
        let mut data = Vec::new();
        for n in 0..count.min(most) {
            let message = one_by_one.front().expect("one more");
            assert_eq!(message.start, start + (n * (message_bytes + 1)) as u64);
            assert!(message.data.len() == message_bytes && !message.presented && message.following.is_some());
            data.extend_from_slice(message.data);
            one_by_one.on_sent();
        }
        assert_eq!(pieces, [data]);
    });
}

/// To send messages of one length at once is to send them one by one, as long as each is followed
/// by another such.
fn check_even(b: &SendBuffer, count: usize, limit: u64) {
    check_alike(b, limit, |messages, one_by_one| {
        let place = one_by_one.place();
        let len = one_by_one.front().map_or(0, |message| message.data.len());
        let mut data = Vec::new();
        let mut sent = 0;
        while sent < count
            && let Some(message) = one_by_one.front()
            && !message.presented
            && (message.data.len(), message.following) == (len, Some(len))
        {
            data.extend_from_slice(message.data);
            one_by_one.on_sent();
            sent += 1;
        }
        // What ends with all that may be sent, or before what was given up, is for who looks at
        // each.
        let is_even = sent == count && one_by_one.front().is_some();
        if !is_even {
            one_by_one.go_back(place);
            data.clear();
        }
        let mut put = Vec::new();
        let did = messages.send_even(count, |bytes| put.extend_from_slice(bytes));
        assert_eq!((did, put), (is_even, data));
    });
}

/// Does it, and says all that can be seen of it.
fn outcome(b: &mut SendBuffer, deed: &Deed, kept_together: bool, limit: u64) -> String {
    let told = match *deed {
        Deed::Write(count, len, at) => {
            let (data, at) = (vec![count as u8; len * count as usize], at.map(Time::from_millis));
            if kept_together {
                b.write_row(data.into(), count, at);
            } else {
                let messages = (0..count as usize).map(|n| data[n * len..(n + 1) * len].to_vec().into());
                b.write_messages(messages.collect::<Vec<Bytes>>().into_iter(), at);
            }
            String::new()
        }
        Deed::Chunk(most) => {
            let chunk = b.next_chunk(most, limit);
            let mut out = Vec::new();
            let _ = chunk.as_ref().map(|chunk| b.copy(chunk, &mut out));
            format!("{chunk:?} {out:?}")
        }
        Deed::Whole(most) => {
            check_together(b, most, limit);
            check_even(b, most, limit);
            let next = b.unsent_message();
            let whole = b.unsent_messages(limit).map(|mut messages| {
                let mut seen = Vec::new();
                let place = messages.place();
                messages.on_sent();
                messages.go_back(place);
                seen.extend(messages.front().map(|message| format!("{message:?}")));
                messages.on_sent();
                let count = messages.send_row(false, false, |start, data, next| {
                    seen.push(format!("{start} {data:?} {next}"));
                    seen.len() < most
                });
                format!(
                    "{seen:?} {count} {:?} {:?} {}",
                    messages.front(),
                    messages.taken(),
                    messages.has_more()
                )
            });
            format!("{next:?} {whole:?}")
        }
        // Only what was sent can arrive, or be lost.
        Deed::Acknowledge(from, to) => {
            format!("{:?}", b.on_acknowledged(from.min(b.sent)..to.min(b.sent)))
        }
        Deed::Lose(from, to) => format!("{:?}", b.repeat(from.min(b.sent)..to.min(b.sent))),
        Deed::Abandon(from, to) => format!("{:?}", b.abandon(from.min(b.written)..to.min(b.written))),
        Deed::Expire(at) => format!("{:?}", b.expire(Time::from_millis(at))),
        Deed::Skip => format!("{:?}", b.pop_skip()),
    };
    let state = (b.sent, b.written, &b.done, &b.repeat, &b.skips, b.next_expiry(), b.wants_to_send(limit));
    format!("{told} {state:?}")
}

proptest! {
    /// Messages that are kept together behave like messages kept singly, but for memory: that is
    /// set free with the last of them.
    #[test]
    fn messages_that_are_kept_together_go_as_those_that_are_not(deeds in deeds(), limit in 20..400_u64) {
        let (mut rows, mut singles) = (SendBuffer::default(), SendBuffer::default());
        for deed in &deeds {
            let seen = outcome(&mut rows, deed, true, limit);
            prop_assert_eq!(seen, outcome(&mut singles, deed, false, limit), "{:?}", deed);
            prop_assert!(rows.held_bytes() >= singles.held_bytes());
        }
        for b in [&mut rows, &mut singles] {
            b.on_acknowledged(0..b.written);
            prop_assert_eq!((b.held_bytes(), b.load_bytes(), b.next_expiry()), (0, 0, None));
        }
    }
}
