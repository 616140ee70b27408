//! Waits that are given up, and several that wait for the same.

use crate::common::{futures_now, identity, pair, pair_with, pattern, server, within};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{
    Chunk, CloseReason, ConnectOptions, ConnectionEvent, FlowError, FlowOptions, MessageBatch,
    MessageOptions, Requirements, ServerOptions, connect,
};

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

/// Asks once and gives up, a few times with what others do in between; then waits.
macro_rules! impatient {
    ($wait:expr) => {{
        let mut done = None;
        for _ in 0..3 {
            done = futures_now($wait);
            if done.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        match done {
            Some(done) => done,
            None => within($wait).await,
        }
    }};
}

/// Every wait that promises to lose nothing is given up again and again.
#[tokio::test]
async fn what_was_waited_for_in_vain_comes_to_who_waits_next() {
    let (listener, target) = server(ServerOptions::new(identity()));
    let mut options = ConnectOptions::pinned(listener.fingerprint());
    options.connection.requirements = Requirements::messages();
    let client = {
        let connects = tokio::spawn(async move { connect(&target, options).await });
        assert!(futures_now(listener.accept()).is_none());
        within(connects).await.expect("ran").expect("connected")
    };
    let server = impatient!(listener.accept()).expect("accepted");
    assert!(futures_now(server.accept_flow()).is_none() && futures_now(server.closed()).is_none());
    let (mut events, mut heard) = (server.events(), Vec::new());

    let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    let all: Vec<Bytes> = (0..400).map(|n| pattern(n, n as u64).into()).collect();
    let sent = all.clone();
    let writer = tokio::spawn(async move {
        for message in sent {
            send.send_message(message, MessageOptions::default()).await.expect("sent");
            tokio::task::yield_now().await;
        }
        send.finish().expect("finished");
        impatient!(send.finished())
    });
    let mut recv = impatient!(server.accept_flow()).expect("a flow").split().1;
    let mut got: Vec<Bytes> = Vec::new();
    loop {
        let Some(message) = impatient!(recv.recv_message()).expect("received") else { break };
        got.push(message);
        match impatient!(recv.recv_chunk(usize::MAX)).expect("received") {
            Some(Chunk::Message(message)) => got.push(message),
            Some(other) => panic!("{other:?}"),
            None => break,
        }
        if impatient!(recv.recv_messages(&mut got, 3)).expect("received") == 0 {
            break;
        }
        let mut batch = MessageBatch::new();
        if impatient!(recv.recv_batch(&mut batch, 3)).expect("received") == 0 {
            break;
        }
        got.extend(batch.iter().map(Bytes::copy_from_slice));
        heard.extend(futures_now(events.next()).flatten());
    }
    assert!(got == all, "{} messages of {}", got.len(), all.len());
    within(writer).await.expect("ran").expect("delivered");

    within(client.close(1, "")).await;
    assert!(matches!(impatient!(server.closed()), CloseReason::Peer { code: 1, .. }));
    while let Some(event) = impatient!(events.next()) {
        heard.push(event);
    }
    assert!(matches!(heard.last(), Some(ConnectionEvent::Closed(_))), "{heard:?}");
}

/// A message is taken whole or not at all, also when its sender gives up.
#[tokio::test]
async fn a_message_whose_wait_was_given_up_was_not_taken() {
    let (_listener, client, server) = pair_with(|config| {
        config.requirements = Requirements::messages();
        (config.send_buffer_bytes, config.send_buffer_bytes_max) = (5_000, 5_000);
    })
    .await;
    let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    let (mut taken, mut given_up) = (Vec::new(), 0);
    for n in 0..300_u32 {
        let message = Bytes::from([&n.to_be_bytes()[..], &pattern(700, u64::from(n))].concat());
        match futures_now(send.send_message(message.clone(), MessageOptions::default())) {
            Some(sent) => {
                sent.expect("sent");
                taken.push(message);
            }
            None => given_up += 1,
        }
        if n % 20 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    assert!(given_up > 0 && taken.len() > 10, "{given_up} given up, {} taken", taken.len());
    send.finish().expect("finished");
    let mut recv = within(server.accept_flow()).await.expect("accepted").split().1;
    for message in &taken {
        assert_eq!(within(recv.recv_message()).await.expect("received").as_ref(), Some(message));
    }
    assert_eq!(within(recv.recv_message()).await, Ok(None));
}

/// Of a write that was given up a first part may have been taken, and nothing but a first part.
#[tokio::test]
async fn a_write_that_was_given_up_has_sent_a_beginning() {
    let (_listener, client, server) =
        pair_with(|config| (config.send_buffer_bytes, config.send_buffer_bytes_max) = (5_000, 5_000)).await;
    let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    let data = pattern(1_000_000, 7);
    assert!(
        futures_now(send.write_bytes(Bytes::from(data.clone()))).is_none(),
        "more than there is room for"
    );
    send.finish().expect("finished");
    let mut received = Vec::new();
    let mut flow = within(server.accept_flow()).await.expect("accepted");
    within(flow.read_to_end(&mut received)).await.expect("read");
    assert!(!received.is_empty() && received.len() < data.len() && data.starts_with(&received));
}

/// Each flow goes to one of the waiting tasks. Each task hears of the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_may_wait_for_flows_and_for_the_end() {
    let (_listener, client, server) = pair().await;
    let waiters: Vec<_> = (0..8)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move {
                let mut flows = Vec::new();
                while let Some(flow) = server.accept_flow().await {
                    flows.push(flow);
                }
                let ids: Vec<_> = flows.iter().map(uts::Flow::id).collect();
                (ids, server.closed().await)
            })
        })
        .collect();
    let mut opened = Vec::new();
    for _ in 0..40 {
        let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
        flow.write_all(b"x").await.expect("written");
        within(flow.send_half().finished()).await.expect("delivered");
        opened.push(flow.id());
    }
    within(client.close(2, "")).await;
    let mut accepted = Vec::new();
    for waiter in waiters {
        let (ids, reason) = within(waiter).await.expect("ran");
        assert!(matches!(reason, CloseReason::Peer { code: 2, .. }), "{reason:?}");
        accepted.extend(ids);
    }
    accepted.sort();
    opened.sort();
    assert_eq!(accepted, opened, "each once");
}

/// A task that waits for its turn to open a flow hears of the end as well.
#[tokio::test]
async fn several_may_wait_to_open_flows() {
    let (_listener, client, server) = pair_with(|config| config.flows_max = 1).await;
    let _first = client.open_flow(FlowOptions::default()).await.expect("opened");
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.open_flow(FlowOptions::default()).await.err() })
        })
        .collect();
    tokio::task::yield_now().await;
    within(server.close(4, "")).await;
    for waiter in waiters {
        let error = within(waiter).await.expect("ran");
        assert!(matches!(error, Some(FlowError::Closed(CloseReason::Peer { code: 4, .. }))), "{error:?}");
    }
}

/// Each connection goes to one of the waiting tasks. Each task hears that the listener is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_may_wait_for_connections() {
    let (listener, target) = server(ServerOptions::new(identity()));
    let fingerprint = listener.fingerprint();
    let listener = Arc::new(listener);
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let listener = listener.clone();
            tokio::spawn(async move {
                let mut count = 0;
                while let Some(connection) = listener.accept().await {
                    count += 1;
                    connection.closed().await;
                }
                count
            })
        })
        .collect();
    for _ in 0..12 {
        let client = within(connect(&target, ConnectOptions::pinned(fingerprint))).await.expect("connected");
        // The end of its flow says that it was accepted, or at least that it will be.
        let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
        flow.write_all(b"x").await.expect("written");
        within(flow.send_half().finished()).await.expect("delivered");
        within(client.close(0, "")).await;
    }
    let mut count = 0;
    tokio::time::sleep(Duration::from_millis(300)).await;
    listener.close();
    for waiter in waiters {
        count += within(waiter).await.expect("ran");
    }
    assert_eq!(count, 12);
}

/// An attempt ends with the wait for it: nothing is said any more to who did not answer.
#[tokio::test]
async fn an_attempt_to_connect_ends_with_its_wait() {
    let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("bound");
    let target = silent.local_addr().expect("bound").to_string();
    let options = ConnectOptions::pinned(identity().fingerprint());
    let attempt = tokio::spawn(async move { connect(&target, options).await });
    within(silent.recv(&mut [0; 2000])).await.expect("it has begun");
    attempt.abort();
    let _ = within(attempt).await;
    // What was on its way, and perhaps a close. Then silence for longer than a client waits for an
    // answer.
    let mut said = 0;
    while tokio::time::timeout(Duration::from_secs(3), silent.recv(&mut [0; 2000])).await.is_ok() {
        said += 1;
        assert!(said < 3, "it goes on");
    }
}
