//! Ends of flows and connections, and what remains after them.

use crate::common::{pair, pair_with, pattern, within};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{
    CloseReason, ConnectOptions, Connection, ConnectionEvent, Direction, ExchangeError, FlowError,
    FlowOptions, Identity, Listener, MessageBatch, MessageOptions, PropertyError, ReadError, Requirements,
    ServerOptions, WriteError, connect,
};

/// The end that closes acknowledges what has arrived: the other end is not left in doubt.
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

/// Acknowledged data is there to be read, however long ago the peer has gone.
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

/// A dropped handle wants nothing more: the endpoint forgets.
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

/// Checks the result of each call on a connection that has ended for `reason`; nothing waits.
async fn assert_ended(connection: &Connection, reason: &CloseReason) {
    let closed = |text: String| assert_eq!(text, reason.to_string());
    assert_eq!(connection.close_reason().as_ref(), Some(reason));
    assert_eq!(&within(connection.closed()).await, reason);
    let opened = within(connection.open_flow(FlowOptions::default())).await;
    assert_eq!(opened.err(), Some(FlowError::Closed(reason.clone())));
    assert!(within(connection.accept_flow()).await.is_none());
    let before = connection.requirements();
    match connection.set_property("connCapacityProfile", "scavenger") {
        Err(PropertyError::Closed(why)) => closed(why.to_string()),
        other => panic!("{other:?}"),
    }
    match connection.set_requirements(Requirements::messages()) {
        Err(PropertyError::Closed(why)) => closed(why.to_string()),
        other => panic!("{other:?}"),
    }
    assert_eq!(connection.requirements(), before, "nothing has changed");
    let profile = uts::Profile::bare();
    let asked = connection.request_profile(Direction::Out, profile);
    assert!(matches!(asked, Err(ExchangeError::NotConnected)), "{asked:?}");
    assert_eq!(connection.undelivered_bytes(), None);
    assert!(connection.stats().packets_sent > 0, "what it has done is still known");
    let mut events = connection.events();
    let mut last = None;
    while let Some(event) = within(events.next()).await {
        last = Some(event);
    }
    assert_eq!(last, Some(ConnectionEvent::Closed(reason.clone())));
    // Closing it again changes nothing, and does not wait.
    within(connection.close(99, "again")).await;
    assert_eq!(connection.close_reason().as_ref(), Some(reason));
}

/// Checks the result of each call on a flow whose connection has ended for `reason`.
async fn assert_flow_ended(flow: uts::Flow, reason: &CloseReason, kind: ErrorKind) {
    let (mut send, mut recv) = flow.split();
    let (unwritten, unread) = (WriteError::Closed(reason.clone()), ReadError::Closed(reason.clone()));
    let message = || Bytes::from_static(b"late");
    let options = MessageOptions::default;
    assert_eq!(within(send.write_bytes(message())).await, Err(unwritten.clone()));
    assert_eq!(within(send.send_message(message(), options())).await, Err(unwritten.clone()));
    let mut messages = VecDeque::from([message(), message()]);
    assert_eq!(within(send.send_messages(&mut messages, options())).await, Err(unwritten.clone()));
    assert_eq!(messages.len(), 2, "none was taken");
    let mut batch = MessageBatch::new();
    batch.push(b"late");
    assert_eq!(within(send.send_batch(&mut batch, options())).await, Err(unwritten.clone()));
    assert_eq!(batch.len(), 1, "none was taken");
    assert_eq!(within(send.write(b"late")).await.expect_err("over").kind(), kind);
    let set = send.set_requirements(&Requirements::messages());
    assert_eq!(set, Err(FlowError::Closed(reason.clone())));
    assert_eq!(send.profile(), None);
    assert_eq!(send.finish(), Err(unwritten.clone()));
    assert_eq!(within(send.finished()).await, Err(unwritten));
    assert_eq!(within(send.shutdown()).await.expect_err("over").kind(), kind);

    // Again and again, and never as if it were the end.
    for _ in 0..2 {
        assert_eq!(within(recv.recv_chunk(9)).await, Err(unread.clone()));
        assert_eq!(within(recv.recv_message()).await, Err(unread.clone()));
        assert_eq!(within(recv.recv_messages(&mut Vec::new(), 9)).await, Err(unread.clone()));
        assert_eq!(within(recv.recv_batch(&mut MessageBatch::new(), 9)).await, Err(unread.clone()));
        assert_eq!(within(recv.read(&mut [0; 9])).await.expect_err("over").kind(), kind);
    }
}

#[tokio::test]
async fn every_call_after_the_end_says_why_it_ended() {
    let (_listener, client, server) = pair().await;
    let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    flow.write_all(b"first").await.expect("written");
    let mut accepted = within(server.accept_flow()).await.expect("accepted");
    within(accepted.read_exact(&mut [0; 5])).await.expect("read");
    within(client.close(5, "enough")).await;
    within(server.closed()).await;
    let here = CloseReason::Local { code: 5, reason: "enough".into() };
    let there = CloseReason::Peer { code: 5, reason: "enough".into() };
    assert_ended(&client, &here).await;
    assert_ended(&server, &there).await;
    assert_flow_ended(flow, &here, ErrorKind::NotConnected).await;
    assert_flow_ended(accepted, &there, ErrorKind::ConnectionAborted).await;
    // Asked for the first time now.
    assert!(client.peer_fingerprint().is_some());
}

/// The runtime that carried them is gone: nothing will ever come of what is asked, so it is
/// refused.
#[test]
fn every_call_after_the_end_of_the_runtime_says_so() {
    let build = || tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let (ours, theirs) = (build(), build());
    let (_listener, client, _server) = theirs.block_on(pair_with(|config| config.flows_max = 1));
    let flow = theirs.block_on(client.open_flow(FlowOptions::default())).expect("opened");
    theirs.shutdown_background();
    ours.block_on(async {
        let reason = within(client.closed()).await;
        assert!(matches!(reason, CloseReason::Local { .. }), "{reason:?}");
        assert_ended(&client, &reason).await;
        assert_flow_ended(flow, &reason, ErrorKind::NotConnected).await;
    });
}

/// A client shows its key when it connects. A caller that asks after the end gets it as well.
#[tokio::test]
async fn a_peers_key_is_known_after_the_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, who) = (dir.path().join("keys"), crate::common::identity());
    std::fs::write(&file, who.fingerprint().to_string()).expect("written");
    let (listener, target) =
        crate::common::server(ServerOptions::new(crate::common::identity()).authorized_keys(&file));
    let options = ConnectOptions::pinned(listener.fingerprint()).identity(who.clone());
    let client = within(connect(&target, options)).await.expect("connected");
    let server = within(listener.accept()).await.expect("accepted");
    within(client.close(0, "")).await;
    within(server.closed()).await;
    assert_eq!(server.peer_fingerprint(), Some(who.fingerprint()));
    assert_eq!(client.peer_fingerprint(), Some(listener.fingerprint()));
    let (_listener, _client, server) = pair().await;
    assert_eq!(server.peer_fingerprint(), None, "a client that was not asked for one");
}

/// When `close` has returned the peer was told, whatever becomes of this end.
#[test]
fn who_closes_and_goes_has_told_the_peer() {
    let build = || tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let (ours, theirs) = (build(), build());
    let (listener, target) =
        theirs.block_on(async { crate::common::server(ServerOptions::new(crate::common::identity())) });
    for _ in 0..20 {
        let options = ConnectOptions::pinned(listener.fingerprint());
        let ours = build();
        let client = ours.block_on(within(connect(&target, options))).expect("connected");
        ours.block_on(within(client.close(6, "gone")));
        ours.shutdown_background();
        let server = theirs.block_on(within(listener.accept())).expect("accepted");
        let reason = theirs.block_on(within(server.closed()));
        assert_eq!(reason, CloseReason::Peer { code: 6, reason: "gone".into() });
    }
    drop(ours);
}

/// A flow that was given up was not delivered, and its end is not waited for.
#[tokio::test]
async fn a_flow_that_was_given_up_is_never_finished() {
    let (_listener, client, server) = pair().await;
    for finishes_first in [false, true] {
        let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
        send.write_all(b"half").await.expect("written");
        if finishes_first {
            send.finish().expect("finished");
        }
        send.reset(8);
        assert_eq!(within(send.finished()).await, Err(WriteError::Finished));
        assert_eq!(send.finish(), Err(WriteError::Finished));
        assert_eq!(within(send.write_bytes(Bytes::from_static(b"x"))).await, Err(WriteError::Finished));
        assert_eq!(within(send.write(b"x")).await.expect_err("over").kind(), ErrorKind::BrokenPipe);
        assert_eq!(within(send.shutdown()).await.expect_err("over").kind(), ErrorKind::BrokenPipe);
        let mut accepted = within(server.accept_flow()).await.expect("accepted");
        // What arrived before may be read, and then always the reset. There is never an end, which
        // would make it whole.
        let recv = accepted.recv_half();
        while let Ok(chunk) = within(recv.recv_chunk(9)).await {
            assert!(chunk.is_some(), "a flow that was given up has no end");
        }
        assert_eq!(within(recv.recv_chunk(9)).await, Err(ReadError::Reset(8)));
        assert_eq!(within(recv.recv_message()).await, Err(ReadError::Reset(8)));
        let error = within(recv.read(&mut [0; 9])).await.expect_err("no end");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn an_end_is_told_once_and_stays_the_end() {
    let (_listener, client, server) = pair().await;
    let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    send.write_all(b"all").await.expect("written");
    send.finish().expect("finished");
    assert_eq!(send.finish(), Err(WriteError::Finished));
    assert_eq!(
        within(send.send_message(Bytes::new(), MessageOptions::default())).await,
        Err(WriteError::Finished)
    );
    send.shutdown().await.expect("it is finished");
    let (mut answer, mut recv) = within(server.accept_flow()).await.expect("accepted").split();
    within(recv.read_exact(&mut [0; 3])).await.expect("read");
    // Readers of bytes get the end as often as they ask. Others get the error when they ask again.
    for _ in 0..2 {
        assert_eq!(within(recv.read(&mut [0; 3])).await.expect("the end"), 0);
    }
    assert_eq!(within(recv.recv_chunk(9)).await, Err(ReadError::Ended));
    assert_eq!(within(recv.recv_messages(&mut Vec::new(), 9)).await, Err(ReadError::Ended));
    for _ in 0..2 {
        within(send.finished()).await.expect("delivered");
    }
    // What is written in vain is refused for the same reason each time.
    drop(_recv);
    let stopped = within(async {
        loop {
            if let Err(error) = answer.write_bytes(Bytes::from_static(&[7; 1000])).await {
                return error;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(stopped, WriteError::Stopped(0));
    assert_eq!(answer.finish(), Err(WriteError::Stopped(0)));
    assert_eq!(within(answer.finished()).await, Err(WriteError::Stopped(0)));
    assert_eq!(within(answer.write(b"x")).await.expect_err("stopped").kind(), ErrorKind::BrokenPipe);
}

/// The end that stops a flow has not read it to its end, and is not told so.
#[tokio::test]
async fn a_flow_that_was_stopped_here_is_not_read_on() {
    let (_listener, client, server) = pair().await;
    let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    flow.write_all(b"some of it").await.expect("written");
    let mut accepted = within(server.accept_flow()).await.expect("accepted");
    let recv = accepted.recv_half();
    within(recv.read_exact(&mut [0; 2])).await.expect("read");
    recv.stop(3);
    assert_eq!(within(recv.recv_chunk(9)).await, Err(ReadError::Ended));
    let error = within(recv.read(&mut [0; 9])).await.expect_err("it was stopped");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

/// Events are no handle: the connection ends without them, and they with it.
#[tokio::test]
async fn who_only_listens_to_events_does_not_keep_a_connection() {
    let (_listener, client, server) = pair().await;
    let mut events = client.events();
    drop(client);
    within(server.closed()).await;
    within(async { while events.next().await.is_some() {} }).await;
    assert!(events.try_next().is_none());
}

/// Finished data is delivered although its half is dropped, as long as the connection is held.
#[tokio::test]
async fn a_finished_half_may_be_dropped() {
    let (_listener, client, server) = pair().await;
    let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    flow.write_all(&pattern(100_000, 6)).await.expect("written");
    flow.finish().expect("finished");
    drop(flow);
    let mut received = Vec::new();
    let mut accepted = within(server.accept_flow()).await.expect("accepted");
    within(accepted.read_to_end(&mut received)).await.expect("read");
    assert!(received == pattern(100_000, 6));
}
