//! Flows over real sockets: bytes, messages, ends, drops, and waits that are given up.

mod common;

use bytes::Bytes;
use common::{pair, pair_with, pattern, within};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{
    Chunk, CloseReason, ConnectOptions, Connection, FlowError, FlowOptions, Identity, Listener, MessageBatch,
    MessageOptions, ReadError, Requirements, ServerOptions, WriteError, connect,
};

/// Sends back what each flow brings.
async fn echo(connection: Connection) {
    while let Some(flow) = connection.accept_flow().await {
        let (mut send, mut recv) = flow.split();
        tokio::spawn(async move {
            tokio::io::copy(&mut recv, &mut send).await.expect("echoed");
            send.finished().await.expect("delivered");
        });
    }
}

async fn exchange(connection: &Connection, data: Vec<u8>) {
    let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).await.expect("opened").split();
    let sent = data.clone();
    let writer = tokio::spawn(async move {
        send.write_all(&sent).await.expect("written");
        send.finished().await.expect("delivered");
    });
    let mut received = Vec::new();
    recv.read_to_end(&mut received).await.expect("read");
    assert!(received == data, "{} bytes came back instead of {}", received.len(), data.len());
    writer.await.expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_megabytes_both_ways_at_once() {
    let (_listener, client, server) = pair().await;
    let echo = tokio::spawn(echo(server));
    within(exchange(&client, pattern(10_000_000, 1))).await;
    within(client.close(0, "done")).await;
    within(echo).await.expect("ended");
}

/// Who closes acknowledges what has arrived: the other end is not left in doubt.
#[tokio::test]
async fn what_was_read_before_the_connection_was_closed_is_delivered() {
    for _ in 0..10 {
        let (_listener, client, server) = pair().await;
        let answer = tokio::spawn(async move {
            let (mut send, _recv) = server.accept_flow().await.expect("a flow").split();
            send.write_all(b"one packet of data, and no more").await.expect("written");
            send.finished().await
        });
        let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
        flow.write_all(b"?").await.expect("written");
        let mut received = String::new();
        within(flow.recv_half().read_to_string(&mut received)).await.expect("read");
        within(client.close(0, "done")).await;
        within(answer).await.expect("ended").expect("delivered");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_ends_send_ten_megabytes_of_their_own() {
    let (_listener, client, server) = pair().await;
    let (to_server, to_client) = (pattern(10_000_000, 2), pattern(10_000_000, 3));
    let run = |connection: Connection, opens: bool, out: Vec<u8>, expected: Vec<u8>| async move {
        let flow = match opens {
            true => connection.open_flow(FlowOptions::default()).await.expect("opened"),
            false => connection.accept_flow().await.expect("accepted"),
        };
        let (mut send, mut recv) = flow.split();
        let write = async {
            send.write_bytes(Bytes::from(out)).await.expect("written");
            send.finished().await.expect("delivered");
        };
        let mut received = Vec::new();
        let (_, read) = tokio::join!(write, recv.read_to_end(&mut received));
        read.expect("read");
        assert!(received == expected);
    };
    let a = tokio::spawn(run(client.clone(), true, to_server.clone(), to_client.clone()));
    let b = tokio::spawn(run(server.clone(), false, to_client, to_server));
    within(a).await.expect("client");
    within(b).await.expect("server");
}

/// More flows than the peer allows at once: the rest wait for their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_flows_where_sixteen_are_allowed() {
    let (_listener, client, server) = pair_with(|config| config.flows_max = 16).await;
    tokio::spawn(echo(server));
    let flows: Vec<_> = (0..100)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move { exchange(&client, pattern(10_000 + n * 7, n as u64)).await })
        })
        .collect();
    for flow in flows {
        within(flow).await.expect("echoed");
    }
}

#[tokio::test]
async fn a_small_credit_and_a_small_buffer_slow_but_never_stop() {
    let (_listener, client, server) = pair_with(|config| {
        config.credit_bytes_initial = 5_000;
        config.credit_bytes_max = 20_000;
        (config.send_buffer_bytes, config.send_buffer_bytes_max) = (3_000, 3_000);
    })
    .await;
    tokio::spawn(echo(server));
    within(exchange(&client, pattern(500_000, 4))).await;
}

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

/// More than fits at a time: what was not taken stays, in order, and nothing is lost when a wait is given up.
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

/// What a future gives without waiting.
fn futures_now<F: Future>(future: F) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
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

/// However little is asked for at a time, and by whichever call.
#[tokio::test]
async fn bytes_are_read_in_portions_of_any_size() {
    let (_listener, client, server) = pair().await;
    let data = pattern(100_000, 9);
    let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    let write = async {
        for piece in data.chunks(777) {
            flow.write_all(piece).await.expect("written");
            tokio::task::yield_now().await;
        }
        flow.finish().expect("finished");
    };
    let read = async {
        let (_send, mut recv) = server.accept_flow().await.expect("accepted").split();
        let mut received = Vec::new();
        for portion in [1, 3, 1000, 50_000, 2].into_iter().cycle() {
            if received.len() % 2 == 0 {
                let mut portion = vec![0; portion];
                let count = recv.read(&mut portion).await.expect("read");
                received.extend_from_slice(&portion[..count]);
                if count == 0 {
                    break;
                }
                continue;
            }
            match recv.recv_chunk(portion).await.expect("read") {
                Some(Chunk::Bytes(position, bytes)) => {
                    assert!(bytes.len() <= portion && position == received.len() as u64);
                    received.extend_from_slice(&bytes);
                }
                other => {
                    assert_eq!(other, None);
                    break;
                }
            }
        }
        assert!(received == data, "{} bytes", received.len());
    };
    within(async { tokio::join!(write, read) }).await;
}

/// Ends that look for what arrives instead of sleeping: they carry what others do, and sleep in the end.
#[tokio::test]
async fn ends_that_spin_carry_data_and_leave_others_their_turn() {
    let mut options = ServerOptions::new(Identity::generate().expect("a key"));
    options.spin = Duration::from_millis(2);
    let (listener, target) = common::server(options);
    let mut options = ConnectOptions::pinned(listener.fingerprint());
    options.spin = Duration::from_millis(2);
    let (client, server) = within(async { tokio::join!(connect(&target, options), listener.accept()) }).await;
    let (client, server) = (client.expect("connected"), server.expect("accepted"));
    let echo = tokio::spawn(echo(server));
    let turns = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = turns.clone();
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
    });
    within(exchange(&client, pattern(1_000_000, 4))).await;
    let (mut send, mut recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    for n in 0..200u8 {
        let mut back = [0];
        within(send.write_all(&[n])).await.expect("written");
        within(recv.read_exact(&mut back)).await.expect("back");
        assert_eq!(back, [n]);
    }
    assert!(turns.load(std::sync::atomic::Ordering::Relaxed) > 1, "nobody else had a turn");
    // Nothing comes for longer than they look: what comes then wakes them.
    tokio::time::sleep(Duration::from_millis(20)).await;
    within(exchange(&client, pattern(1_000, 5))).await;
    other.abort();
    within(client.close(0, "done")).await;
    within(echo).await.expect("ended");
}

#[tokio::test]
async fn a_half_that_is_dropped_before_its_end_tells_the_peer() {
    let (_listener, client, server) = pair().await;
    let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    flow.write_all(b"half of it").await.expect("written");
    let accepted = within(server.accept_flow()).await.expect("accepted");
    let (mut send, mut recv) = accepted.split();
    let mut start = [0; 4];
    within(recv.read_exact(&mut start)).await.expect("read");

    // The client's sending half goes: what is not finished is not whole.
    let (client_send, client_recv) = flow.split();
    drop(client_send);
    let mut rest = Vec::new();
    let error = within(recv.read_to_end(&mut rest)).await.expect_err("reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);

    // The client's receiving half goes: the server may stop sending.
    drop(client_recv);
    let stopped = within(async {
        loop {
            if let Err(error) = send.write_bytes(Bytes::from_static(&[7; 1000])).await {
                return error;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(stopped, WriteError::Stopped(0));
}

#[tokio::test]
async fn codes_of_reset_and_stop_arrive() {
    let (_listener, client, server) = pair().await;
    let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    flow.write_all(b"x").await.expect("written");
    let (mut send, mut recv) = flow.split();
    let (mut server_send, mut server_recv) = within(server.accept_flow()).await.expect("accepted").split();
    recv.stop(77);
    send.reset(78);
    assert_eq!(send.finish(), Err(WriteError::Finished));
    let reset = within(async {
        loop {
            match server_recv.recv_chunk(100).await {
                Ok(Some(_)) => {}
                other => return other,
            }
        }
    })
    .await;
    assert_eq!(reset, Err(ReadError::Reset(78)));
    assert_eq!(within(server_send.finished()).await, Err(WriteError::Stopped(77)));
}

/// Reads and writes that are given up half-way lose nothing and repeat nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_may_be_given_up() {
    let (_listener, client, server) = pair_with(|config| {
        config.credit_bytes_initial = 8_000;
        config.credit_bytes_max = 16_000;
        (config.send_buffer_bytes, config.send_buffer_bytes_max) = (4_000, 4_000);
    })
    .await;
    let data = pattern(300_000, 5);
    let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    let sent = data.clone();
    let writer = tokio::spawn(async move {
        let mut rest = &sent[..];
        let mut given_up = 0;
        while !rest.is_empty() {
            tokio::select! {
                biased;
                written = send.write(&rest[..rest.len().min(1500)]) => rest = &rest[written.expect("written")..],
                () = tokio::task::yield_now() => given_up += 1,
            }
        }
        send.finished().await.expect("delivered");
        given_up
    });
    let (_send, mut recv) = within(server.accept_flow()).await.expect("accepted").split();
    let mut received = Vec::new();
    let given_up_reads = within(async {
        let (mut buffer, mut given_up) = ([0; 1000], 0);
        loop {
            tokio::select! {
                biased;
                read = recv.read(&mut buffer) => match read.expect("read") {
                    0 => return given_up,
                    n => received.extend_from_slice(&buffer[..n]),
                },
                () = tokio::task::yield_now() => given_up += 1,
            }
        }
    })
    .await;
    assert!(received == data);
    let given_up_writes = within(writer).await.expect("written");
    assert!(given_up_reads + given_up_writes > 0, "nothing was given up: the test tests nothing");
}

#[tokio::test]
async fn waits_for_flows_may_be_given_up() {
    let (_listener, client, server) = pair_with(|config| config.flows_max = 1).await;
    let mut first = client.open_flow(FlowOptions::default()).await.expect("opened");
    let opens =
        tokio::time::timeout(Duration::from_millis(20), client.open_flow(FlowOptions::default())).await;
    assert!(opens.is_err(), "only one is allowed");
    let accepts = tokio::time::timeout(Duration::from_millis(20), server.accept_flow()).await;
    assert!(accepts.is_err(), "nothing was sent on it");
    first.write_all(b"1").await.expect("written");
    first.shutdown().await.expect("finished");
    let mut accepted = within(server.accept_flow()).await.expect("accepted");
    let mut text = String::new();
    within(accepted.read_to_string(&mut text)).await.expect("read");
    accepted.shutdown().await.expect("finished");
    within(first.read_to_string(&mut text)).await.expect("read");
    assert_eq!(text, "1");
    within(client.open_flow(FlowOptions::default())).await.expect("its turn has come");
}

#[tokio::test]
async fn whoever_waits_learns_of_the_end() {
    let (_listener, client, server) = pair_with(|config| {
        (config.send_buffer_bytes, config.send_buffer_bytes_max) = (1000, 1000);
    })
    .await;
    let (mut send, mut recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    let (a, b) = (client.clone(), client.clone());
    let writes = tokio::spawn(async move { send.write_bytes(Bytes::from(vec![0; 200_000_000])).await });
    let reads = tokio::spawn(async move { recv.recv_chunk(1).await });
    let accepts = tokio::spawn(async move { a.accept_flow().await.is_none() });
    let closed = tokio::spawn(async move { b.closed().await });
    let mut events = client.events();
    let _flow = within(server.accept_flow()).await.expect("accepted");
    within(server.close(42, "that is all")).await;
    let reason = CloseReason::Peer { code: 42, reason: "that is all".into() };
    assert_eq!(within(closed).await.expect("ran"), reason);
    assert_eq!(within(writes).await.expect("ran"), Err(WriteError::Closed(reason.clone())));
    assert_eq!(within(reads).await.expect("ran"), Err(ReadError::Closed(reason.clone())));
    assert!(within(accepts).await.expect("ran"));
    let mut last = None;
    while let Some(event) = within(events.next()).await {
        last = Some(event);
        if matches!(last, Some(uts::ConnectionEvent::Closed(_))) {
            break;
        }
    }
    assert_eq!(last, Some(uts::ConnectionEvent::Closed(reason.clone())));
    assert_eq!(client.open_flow(FlowOptions::default()).await.err(), Some(FlowError::Closed(reason)));
}

/// A file and telemetry in one connection: each as it requires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_with_requirements_of_their_own() {
    let (_listener, client, server) = pair().await;
    let telemetry = Requirements::media(Duration::from_secs(60));
    let file = client.open_flow(FlowOptions::requiring(Requirements::bulk())).await.expect("opened");
    let samples = client.open_flow(FlowOptions::requiring(telemetry.clone())).await.expect("opened");
    let (file_id, data) = (file.id(), pattern(3_000_000, 9));
    let (mut file, _file_back) = file.split();
    let (mut samples, mut samples_back) = samples.split();
    let expected = data.clone();
    let sender = tokio::spawn(async move {
        file.write_bytes(Bytes::from(data)).await.expect("written");
        file.finished().await.expect("delivered");
        file.profile().expect("a profile")
    });
    for number in 0..100u8 {
        let sample = Bytes::from(vec![number; 500]);
        within(samples.send_message(sample, MessageOptions::default())).await.expect("sent");
    }
    samples.finish().expect("finished");
    let mut seen = 0;
    for _ in 0..2 {
        let flow = within(server.accept_flow()).await.expect("accepted");
        let is_file = flow.id() == file_id;
        let (mut send, mut recv) = flow.split();
        if is_file {
            let mut received = Vec::new();
            within(recv.read_to_end(&mut received)).await.expect("read");
            assert!(received == expected, "{} bytes of {}", received.len(), expected.len());
            continue;
        }
        while let Some(sample) = within(recv.recv_message()).await.expect("received") {
            assert!(sample.len() == 500 && sample.iter().all(|b| *b == sample[0]));
            seen += 1;
        }
        // The server's half has its own.
        send.set_requirements(&telemetry).expect("nothing was written");
        within(send.send_message(Bytes::from_static(b"thanks"), MessageOptions::default()))
            .await
            .expect("sent");
        send.finish().expect("finished");
        assert_eq!(send.set_requirements(&telemetry), Err(FlowError::Begun));
    }
    // Nothing is repeated, and a loopback loses next to nothing.
    assert!(seen > 50, "{seen} samples");
    assert_eq!(within(samples_back.recv_message()).await, Ok(Some(Bytes::from_static(b"thanks"))));
    let profile = within(sender).await.expect("sent");
    assert_eq!(profile.name(uts::Function::Segmentation), "bytes");
    let profile = samples_back.connection().profile(uts::Direction::Out).expect("connected");
    assert_eq!(profile.name(uts::Function::Segmentation), "bytes", "the connection's own is another");
    let asked = requirements(&["uts.security=unprotected"]);
    let refused = client.open_flow(FlowOptions::requiring(asked)).await.err();
    assert!(matches!(refused, Some(FlowError::Shared { .. })), "{refused:?}");
}

fn requirements(properties: &[&str]) -> Requirements {
    let mut requirements = Requirements::default();
    properties.iter().for_each(|p| requirements.assign(p).expect(p));
    requirements
}

/// What was acknowledged is there to be read, however long ago the peer has gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_outlives_the_peer_that_sent_it() {
    let (listener, client, server) = pair().await;
    let data = pattern(200_000, 5);
    let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    let (mut second, _back) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    send.write_all(&data).await.expect("written");
    within(send.finished()).await.expect("acknowledged");
    second.write_all(b"and more").await.expect("written");
    within(second.finished()).await.expect("acknowledged");
    let mut first = within(server.accept_flow()).await.expect("accepted");
    client.close(0, "done").await;
    within(server.closed()).await;
    // Far beyond three probe time-outs.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let mut received = Vec::new();
    within(first.read_to_end(&mut received)).await.expect("it is still there");
    assert!(received == data, "{} bytes of {}", received.len(), data.len());
    // A flow that was not accepted yet, too.
    let mut flow = within(server.accept_flow()).await.expect("it has arrived");
    let mut text = String::new();
    within(flow.read_to_string(&mut text)).await.expect("it is still there");
    assert_eq!(text, "and more");
    assert!(within(server.accept_flow()).await.is_none());
    // All is read: nothing is kept.
    let gone = async {
        while server.inspect(|_| ()).is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(gone).await;
    drop(listener);
}

/// A message without a byte is one, and waits for its reader as any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_messages_outlive_the_peer_that_sent_them() {
    let (_listener, client, server) =
        pair_with(|config| config.requirements = Requirements::messages()).await;
    let mut sent = client.open_flow(FlowOptions::default()).await.expect("opened");
    let mut flags = client.open_flow(FlowOptions::default()).await.expect("opened");
    let message = |text: &'static str| (Bytes::from_static(text.as_bytes()), MessageOptions::default());
    let (first, options) = message("first");
    within(sent.send_message(first.clone(), options)).await.expect("sent");
    let mut received = within(server.accept_flow()).await.expect("accepted");
    assert_eq!(within(received.recv_message()).await, Ok(Some(first)));
    for _ in 0..2 {
        let (empty, options) = message("");
        within(sent.send_message(empty, options)).await.expect("sent");
    }
    let (last, options) = message("all have left");
    within(flags.send_message(last, options)).await.expect("sent");
    let mut flags = within(server.accept_flow()).await.expect("accepted");
    assert!(within(flags.recv_message()).await.is_ok_and(|message| message.is_some()));
    client.close(0, "done").await;
    within(server.closed()).await;
    // Far beyond three probe time-outs.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    for n in 0..2 {
        assert_eq!(within(received.recv_message()).await, Ok(Some(Bytes::new())), "message {n}");
    }
    assert!(within(received.recv_message()).await.is_err());
}

/// A client that was quicker than the server's application.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_ended_before_it_was_accepted_brings_its_data() {
    let (listener, client, _server) = pair().await;
    let options = ConnectOptions::pinned(listener.fingerprint());
    let quick = within(connect(&listener.local_addr().to_string(), options)).await.expect("connected");
    let (mut send, _recv) = quick.open_flow(FlowOptions::default()).await.expect("opened").split();
    send.write_all(b"left at the door").await.expect("written");
    within(send.finished()).await.expect("acknowledged");
    quick.close(7, "gone").await;
    tokio::time::sleep(Duration::from_millis(1000)).await;
    let late = within(listener.accept()).await.expect("it waits");
    let mut flow = within(late.accept_flow()).await.expect("it has arrived");
    let mut text = String::new();
    within(flow.read_to_string(&mut text)).await.expect("it is still there");
    assert_eq!(text, "left at the door");
    assert!(matches!(within(late.closed()).await, CloseReason::Peer { code: 7, .. }));
    drop(client);
}

/// Whoever drops the handle wants nothing more: the endpoint forgets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_data_goes_with_the_handle() {
    let (listener, client, server) = pair().await;
    let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    send.write_all(b"never read").await.expect("written");
    within(send.finished()).await.expect("acknowledged");
    client.close(0, "done").await;
    within(server.closed()).await;
    let address = listener.local_addr();
    drop(server);
    drop(listener);
    // The socket closes when its last connection is forgotten.
    let free = async {
        let identity = Identity::generate().expect("a key");
        while Listener::bind(address, ServerOptions::new(identity.clone())).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(free).await;
}
