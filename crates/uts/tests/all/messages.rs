//! Messages over real sockets: one by one, many at a time, in batches.

use crate::common::{futures_now, pair, pair_with, pattern, within};
use bytes::Bytes;
use std::collections::VecDeque;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{FlowOptions, MessageBatch, MessageOptions, ReadError, Requirements, WriteError};

#[tokio::test]
async fn messages_keep_their_boundaries() {
    let (_listener, client, server) =
        pair_with(|config| config.requirements = Requirements::messages()).await;
    let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    let messages: Vec<Bytes> = (0..50).map(|n| pattern(n * 100, n as u64).into()).collect();
    for message in &messages {
        within(flow.send_message(message.clone(), MessageOptions::default())).await.expect("sent");
    }
    flow.finish().expect("finished");
    let mut flow = within(server.accept_flow()).await.expect("accepted");
    for message in &messages {
        assert_eq!(within(flow.recv_message()).await.expect("received").as_ref(), Some(message));
    }
    assert_eq!(within(flow.recv_message()).await, Ok(None));
}

/// More than fits at a time. What was not taken stays, in order, and nothing is lost when a wait is
/// given up.
#[tokio::test]
async fn messages_are_handed_over_many_at_a_time() {
    let (_listener, client, server) = pair_with(|config| {
        config.requirements = Requirements::messages();
        (config.send_buffer_bytes, config.send_buffer_bytes_max) = (10_000, 10_000);
    })
    .await;
    let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    let all: Vec<Bytes> = (0..2000).map(|n| pattern(n % 300, n as u64).into()).collect();
    let mut messages: VecDeque<Bytes> = all.iter().cloned().collect();
    // Nobody reads yet, and the runtime has but this thread: the flow is full at once.
    let given_up = send.send_messages(&mut messages, MessageOptions::default());
    assert!(futures_now(given_up).is_none() && !messages.is_empty());
    let rest: Vec<Bytes> = messages.iter().cloned().collect();
    assert_eq!(all[all.len() - rest.len()..], rest);
    let writer = async {
        send.send_messages(&mut messages, MessageOptions::default()).await.expect("sent");
        send.finish().expect("finished");
    };
    let reader = async {
        let mut flow = server.accept_flow().await.expect("accepted");
        for (n, message) in all.iter().enumerate() {
            assert_eq!(flow.recv_message().await.expect("received").as_ref(), Some(message), "message {n}");
        }
        assert_eq!(flow.recv_message().await, Ok(None));
    };
    within(async { tokio::join!(writer, reader) }).await;
    let mut large = VecDeque::from([Bytes::from_static(b"fine"), Bytes::from(vec![0; 2 << 20])]);
    let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    let error = within(send.send_messages(&mut large, MessageOptions::default())).await;
    assert!(matches!(error, Err(WriteError::TooLarge { .. })) && large.len() == 1, "{error:?}");
}

/// The same of batches, and of what is read into them between single messages.
#[tokio::test]
async fn batches_are_handed_over_and_read() {
    for order in ["require", "prohibit"] {
        let (_listener, client, server) = pair_with(|config| {
            config.requirements = Requirements::messages();
            config.requirements.set("preserveOrder", order).expect("a property");
            (config.send_buffer_bytes, config.send_buffer_bytes_max) = (10_000, 10_000);
        })
        .await;
        let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
        // Rows of different lengths, and of none, some of them longer than the flow has room for.
        let all: Vec<Vec<u8>> = (0..3000).map(|n| pattern((n / 200) * 7, n as u64)).collect();
        let mut batch = MessageBatch::new();
        all.iter().for_each(|message| batch.push(message));
        let given_up = send.send_batch(&mut batch, MessageOptions::default());
        assert!(futures_now(given_up).is_none() && !batch.is_empty());
        assert!(batch.iter().eq(&all[all.len() - batch.len()..]));
        let writer = async {
            send.send_batch(&mut batch, MessageOptions::default()).await.expect("sent");
            assert!(batch.is_empty());
            send.finish().expect("finished");
        };
        let reader = async {
            let (_send, mut recv) = server.accept_flow().await.expect("accepted").split();
            let (mut got, mut batch) = (Vec::new(), MessageBatch::new());
            assert_eq!(recv.recv_batch(&mut batch, 0).await, Ok(0));
            while let Some(message) = recv.recv_message().await.expect("received") {
                got.push(message.to_vec());
                match recv.recv_batch(&mut batch, 50).await {
                    Ok(count) => assert_eq!((batch.len(), count <= 50), (count, true)),
                    Err(ReadError::Ended) => break,
                    Err(error) => panic!("{error}"),
                }
                got.extend(batch.iter().map(<[u8]>::to_vec));
                batch.clear();
            }
            got
        };
        let (mut got, mut all) = (within(async { tokio::join!(writer, reader) }).await.1, all);
        if order == "prohibit" {
            got.sort();
            all.sort();
        }
        assert!(got == all, "{} messages of {}", got.len(), all.len());
    }
}

#[tokio::test]
async fn what_is_no_message_stays_where_it_is_and_what_is_too_large_in_its_batch() {
    let (_listener, client, server) =
        pair_with(|config| config.requirements = Requirements::messages()).await;
    let mut send = client.open_flow(FlowOptions::default()).await.expect("opened");
    let mut batch = MessageBatch::new();
    for message in [&b"fine"[..], &[0; 2 << 20], b"behind"] {
        batch.push(message);
    }
    let error = within(send.send_half().send_batch(&mut batch, MessageOptions::default())).await;
    assert!(matches!(error, Err(WriteError::TooLarge { .. })) && batch.len() == 2, "{error:?}");
    let mut flow = within(server.accept_flow()).await.expect("accepted");
    batch.clear();
    assert_eq!(within(flow.recv_half().recv_batch(&mut batch, 9)).await, Ok(1));
    assert!(batch.iter().eq([b"fine"]));
    let (_listener, client, server) = pair_with(|_| ()).await;
    let mut send = client.open_flow(FlowOptions::default()).await.expect("opened");
    let mut batch = MessageBatch::new();
    for message in [&b"not "[..], b"kept ", b"apart"] {
        batch.push(message);
    }
    within(send.send_half().send_batch(&mut batch, MessageOptions::default())).await.expect("sent");
    send.finish().expect("finished");
    let mut flow = within(server.accept_flow()).await.expect("accepted");
    assert_eq!(within(flow.recv_half().recv_batch(&mut batch, 9)).await, Err(ReadError::NotMessages));
    let mut text = String::new();
    within(flow.read_to_string(&mut text)).await.expect("read");
    assert_eq!((text.as_str(), batch.is_empty()), ("not kept apart", true));
}

/// Messages that wait share packets, or have one each where that was asked for.
#[tokio::test]
async fn messages_are_read_many_at_a_time() {
    let (_listener, client, server) = pair_with(|config| {
        config.requirements.assign("preserveMsgBoundaries=require").expect("a valid property");
    })
    .await;
    let (mut send, _back) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    let all: Vec<Bytes> = (0..3000).map(|n| Bytes::from(pattern(n % 400, n as u64))).collect();
    let mut messages: VecDeque<Bytes> = all.iter().cloned().collect();
    let writer = tokio::spawn(async move {
        send.send_messages(&mut messages, MessageOptions::default()).await.expect("sent");
        send.finish().expect("finished");
        send.finished().await.expect("delivered");
    });
    let (_send, mut recv) = within(server.accept_flow()).await.expect("accepted").split();
    let (mut got, mut count) = (Vec::new(), 1);
    while count > 0 {
        // One by one now and then: nothing is lost or overtaken between the two.
        if let Some(message) = within(recv.recv_message()).await.expect("read") {
            got.push(message);
        }
        let before = got.len();
        assert_eq!(recv.recv_messages(&mut got, 0).await, Ok(0));
        count = match within(recv.recv_messages(&mut got, 70)).await {
            Ok(count) => count,
            Err(ReadError::Ended) => 0,
            Err(error) => panic!("{error}"),
        };
        assert_eq!((got.len() - before, count <= 70), (count, true));
    }
    assert!(got == all, "{} messages of {}", got.len(), all.len());
    within(writer).await.expect("sent");
    assert_eq!(recv.recv_messages(&mut got, 1).await, Err(ReadError::Ended));
}

#[tokio::test]
async fn messages_share_packets_unless_they_must_not() {
    for coalesce in [true, false] {
        let (_listener, client, server) = pair_with(|config| {
            config.requirements = Requirements::messages();
            config.coalesce = coalesce;
        })
        .await;
        let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
        let before = client.stats().packets_sent;
        let mut messages: VecDeque<Bytes> = (0..200).map(|n| pattern(50, n).into()).collect();
        within(flow.send_half().send_messages(&mut messages, MessageOptions::default())).await.expect("sent");
        flow.finish().expect("finished");
        let mut theirs = within(server.accept_flow()).await.expect("accepted");
        for n in 0..200 {
            let message = within(theirs.recv_message()).await.expect("received").expect("a message");
            assert_eq!(message, pattern(50, n));
        }
        assert_eq!(within(theirs.recv_message()).await, Ok(None));
        let packets = client.stats().packets_sent - before;
        assert_eq!(packets < 100, coalesce, "{packets} packets");
    }
}

#[tokio::test]
async fn a_message_where_bytes_are_kept_is_an_error() {
    let (_listener, client, server) = pair().await;
    let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    flow.write_all(b"bytes").await.expect("written");
    let mut flow = within(server.accept_flow()).await.expect("accepted");
    assert_eq!(within(flow.recv_message()).await, Err(ReadError::NotMessages));
    // They are there all the same.
    let mut bytes = [0; 5];
    within(flow.read_exact(&mut bytes)).await.expect("read");
    assert_eq!(&bytes, b"bytes");
}

/// A reader that has read part of a message as bytes reads the rest of it before the next message.
#[tokio::test]
async fn the_rest_of_a_message_is_not_overtaken() {
    let (_listener, client, server) =
        pair_with(|config| config.requirements = Requirements::messages()).await;
    let mut send = client.open_flow(FlowOptions::default()).await.expect("opened");
    for message in [&b"first"[..], b"second", b"third"] {
        within(send.send_message(Bytes::from_static(message), MessageOptions::default()))
            .await
            .expect("sent");
    }
    send.finish().expect("finished");
    let mut recv = within(server.accept_flow()).await.expect("accepted").split().1;
    for message in [&b"first"[..], b"second"] {
        let (begin, rest) = message.split_at(2);
        let mut bytes = [0; 2];
        within(recv.read_exact(&mut bytes)).await.expect("read");
        assert_eq!(bytes, begin);
        assert_eq!(within(recv.recv_message()).await, Err(ReadError::NotMessages));
        assert_eq!(within(recv.recv_messages(&mut Vec::new(), 9)).await, Err(ReadError::NotMessages));
        assert_eq!(within(recv.recv_batch(&mut MessageBatch::new(), 9)).await, Err(ReadError::NotMessages));
        let mut left = vec![0; rest.len()];
        within(recv.read_exact(&mut left)).await.expect("read");
        assert_eq!(left, rest);
    }
    assert_eq!(within(recv.recv_message()).await, Ok(Some(Bytes::from_static(b"third"))));
    assert_eq!(within(recv.recv_message()).await, Ok(None));
}

/// A message may be as large as the profile allows, and no larger. The error says how large that
/// is.
#[tokio::test]
async fn the_largest_message_is_known() {
    let (_listener, client, server) =
        pair_with(|config| config.requirements = Requirements::messages()).await;
    let mut send = client.open_flow(FlowOptions::default()).await.expect("opened");
    let large = Bytes::from(vec![0; 4 << 20]);
    let error =
        within(send.send_message(large.clone(), MessageOptions::default())).await.expect_err("too large");
    let WriteError::TooLarge { size, max } = error.clone() else { panic!("{error:?}") };
    assert_eq!(size, large.len());
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::InvalidInput);
    let largest = large.slice(..max);
    let reader = async { server.accept_flow().await.expect("accepted").recv_message().await };
    let options = MessageOptions::default();
    let (sent, got) = within(async { tokio::join!(send.send_message(largest, options), reader) }).await;
    sent.expect("as large as allowed");
    assert_eq!(got.expect("received").map(|message| message.len()), Some(max));
    let one_more = within(send.send_message(large.slice(..=max), MessageOptions::default())).await;
    assert_eq!(one_more, Err(WriteError::TooLarge { size: max + 1, max }));
}

/// An expedited message arrives although nobody reads and the window is closed.
#[tokio::test]
async fn an_expedited_message_passes_what_waits() {
    let (_listener, client, server) = pair_with(|config| {
        config.requirements.set("uts.expedited", "on").expect("a property");
        (config.send_buffer_bytes, config.send_buffer_bytes_max) = (10_000, 10_000);
        (config.credit_bytes_initial, config.credit_bytes_max) = (10_000, 10_000);
    })
    .await;
    let expedited = MessageOptions { expedited: true, ..MessageOptions::default() };
    let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    let mut waiting = Bytes::from(pattern(1 << 20, 1));
    let full = async {
        while let Ok(written) = tokio::time::timeout(std::time::Duration::from_millis(500), async {
            let piece = waiting.split_to(1000);
            send.write_bytes(piece).await
        })
        .await
        {
            written.expect("written");
        }
    };
    within(full).await;
    within(send.send_message(Bytes::from_static(b"stop"), expedited)).await.expect("it passes");
    let (_send, mut recv) = within(server.accept_flow()).await.expect("accepted").split();
    let mut messages = recv.take_expedited().expect("once");
    assert!(recv.take_expedited().is_none());
    assert_eq!(within(messages.recv()).await, Ok(Some(Bytes::from_static(b"stop"))));
    within(send.send_message(Bytes::from_static(b"again"), expedited)).await.expect("that one was taken");
    assert_eq!(within(messages.recv()).await, Ok(Some(Bytes::from_static(b"again"))));
    let too_long = send.send_message(Bytes::from(vec![0; 17]), expedited);
    assert_eq!(within(too_long).await, Err(WriteError::TooLarge { size: 17, max: 16 }));
    // Who waits for one learns that none can come.
    send.finish().expect("finished");
    let reader = async {
        let mut all = Vec::new();
        recv.read_to_end(&mut all).await.expect("read");
        all.len()
    };
    let (read, none) = within(async { tokio::join!(reader, messages.recv()) }).await;
    assert!(read > 10_000 && none == Ok(None), "{read} bytes, {none:?}");
    // Who does not ask gets none.
    let (_listener, client, _server) = pair().await;
    let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    let error = within(flow.send_message(Bytes::from_static(b"stop"), expedited)).await;
    assert_eq!(error, Err(WriteError::NotExpedited));
}

/// Compressed messages are turned back as they are read, beside others, in order, however they are
/// read.
#[tokio::test]
async fn compressed_messages_are_read_in_order_beside_others() {
    for presentation in ["zstd", "lz4"] {
        let (_listener, client, server) = pair_with(|config| {
            config.requirements = Requirements::messages();
            let pinned = config.requirements.set("uts.profile.presentation", presentation);
            pinned.and_then(|()| config.requirements.set("preserveOrder", "require")).expect("properties");
        })
        .await;
        let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
        // Some are compressed much, some not at all, some are too short.
        let text = |n: usize| format!("{n} and so on, ").repeat(1 + n * 7 % 2000).into_bytes();
        let all: Vec<Bytes> = (0..300)
            .map(|n| if n % 3 == 0 { pattern(n * 11 % 900, n as u64) } else { text(n) }.into())
            .collect();
        let writer = async {
            for message in &all {
                flow.send_message(message.clone(), MessageOptions::default()).await.expect("sent");
            }
            flow.finish().expect("finished");
        };
        let reader = async {
            let (_send, mut flow) = server.accept_flow().await.expect("accepted").split();
            let (mut read, mut batch) = (Vec::new(), MessageBatch::new());
            while read.len() < all.len() {
                match read.len() % 3 {
                    0 => read.extend(flow.recv_message().await.expect("received")),
                    1 => drop(flow.recv_messages(&mut read, 7).await.expect("received")),
                    _ => {
                        flow.recv_batch(&mut batch, 5).await.expect("received");
                        read.extend(core::iter::from_fn(|| batch.pop_front()));
                    }
                }
            }
            assert_eq!(flow.recv_message().await, Ok(None));
            read
        };
        let ((), read) = within(async { tokio::join!(writer, reader) }).await;
        assert_eq!(read.len(), all.len());
        let differs = read.iter().zip(&all).position(|(read, sent)| read != sent);
        assert_eq!(differs, None, "{presentation}");
        let used = client.stats();
        assert!(used.bytes_sent < 3_000_000, "{presentation}: nothing was compressed: {used:?}");
    }
}
