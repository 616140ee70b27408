//! Messages over a stream.

mod common;

use bytes::Bytes;
use common::{Link, VirtualClock, stream_pair};
use futures_util::future::{join, join3};
use uts_traffic::stream_messages::{MESSAGE_BYTES_MAX, MessagesOverStream};
use uts_traffic::transport::TransportError;

#[test]
fn messages_arrive_whole_and_in_order() {
    for read_bytes_max in [1, 3, 1000, usize::MAX] {
        let clock = VirtualClock::default();
        let (a, b) = stream_pair(&clock, Link { read_bytes_max, ..Link::default() });
        let (a, b) = (MessagesOverStream::new(a), MessagesOverStream::new(b));
        let messages: Vec<Bytes> =
            [0, 1, 5, 999, 1000, 1001, 70_000].map(|n| Bytes::from(vec![n as u8; n])).into();
        let send = async {
            for message in &messages {
                a.send(message).await.expect("sent");
            }
            a.finish().await.expect("finished");
        };
        let receive = async {
            for message in &messages {
                assert_eq!(b.receive().await.as_ref(), Ok(message));
            }
            assert_eq!(b.receive().await, Err(TransportError::Closed));
        };
        clock.run(join(send, receive));
    }
}

#[test]
fn senders_take_turns() {
    let clock = VirtualClock::default();
    let (a, b) = stream_pair(&clock, Link { buffer_bytes: 2000, ..Link::default() });
    let (a, b) = (MessagesOverStream::new(a), MessagesOverStream::new(b));
    let (ones, twos) = (vec![1; 50_000], vec![2; 50_000]);
    let receive = async {
        let (first, second) = (b.receive().await.expect("one"), b.receive().await.expect("another"));
        assert_eq!((first, second), (Bytes::from(ones.clone()), Bytes::from(twos.clone())));
    };
    let (one, two, ()) = clock.run(join3(a.send(&ones), a.send(&twos), receive));
    assert_eq!((one, two), (Ok(()), Ok(())));
}

#[test]
fn a_stream_that_ends_within_a_message_is_an_error() {
    let clock = VirtualClock::default();
    let (mut a, b) = stream_pair(&clock, Link::default());
    let b = MessagesOverStream::new(b);
    clock.run(async {
        a.send.write(&[0, 0, 0, 9, 1, 2, 3]).await.expect("written");
        a.send.finish().await.expect("finished");
        let error = b.receive().await.expect_err("half a message").to_string();
        assert_eq!(error, "the stream ended within a message");
    });
}

#[test]
fn what_is_too_large_is_refused() {
    let clock = VirtualClock::default();
    let (a, b) = stream_pair(&clock, Link::default());
    let mut raw = a;
    let b = MessagesOverStream::new(b);
    clock.run(async {
        raw.send.write(&u32::MAX.to_be_bytes()).await.expect("written");
        let error = b.receive().await.expect_err("too large").to_string();
        assert!(error.starts_with("a message of 4294967295 bytes is announced"), "{error}");
        let error = b.send(&vec![0; MESSAGE_BYTES_MAX + 1]).await.expect_err("too large").to_string();
        assert!(error.starts_with("a message of 16777217 bytes is larger than"), "{error}");
    });
}
