//! Promises of `uts::blocking` about ends, about waits that are limited, and about threads.
#![cfg(unix)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "threads and sockets of the system, in real time"
)]

use crate::common::threads::{ANY, accepted, join, serve, some_bytes, within};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use uts::blocking::{Connection, Flow, Listener, carry, connect};
use uts::{
    Chunk, CloseReason, ConnectError, ConnectOptions, ConnectionConfig, ConnectionEvent, Direction,
    ExchangeError, FlowError, FlowOptions, Identity, ListenError, MessageBatch, MessageOptions, NewHost,
    PropertyError, ReadError, Requirements, ServerOptions, Trust, WriteError,
};

/// The transport's own error behind one of input and output.
fn behind<E: std::error::Error + Clone + Send + Sync + 'static>(error: &std::io::Error) -> E {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<E>());
    inner.unwrap_or_else(|| panic!("{error:?}")).clone()
}

fn keeps_messages(config: &mut ConnectionConfig) {
    config.requirements = Requirements::messages();
}

/// Checks the result of each call on a connection that has ended; nothing waits.
fn assert_ended(connection: &Connection, reason: &CloseReason) {
    assert_eq!(connection.close_reason().as_ref(), Some(reason));
    assert_eq!(&connection.closed(), reason);
    let opened = connection.open_flow(FlowOptions::default()).map(|flow| flow.id());
    assert_eq!(opened, Err(FlowError::Closed(reason.clone())));
    assert!(connection.accept_flow().is_none());
    let set = connection.set_property("connCapacityProfile", "scavenger");
    assert!(matches!(&set, Err(PropertyError::Closed(why)) if why == reason), "{set:?}");
    let set = connection.set_requirements(Requirements::messages());
    assert!(matches!(&set, Err(PropertyError::Closed(why)) if why == reason), "{set:?}");
    let asked = connection.request_profile(Direction::Out, uts::Profile::bare());
    assert!(matches!(asked, Err(ExchangeError::NotConnected)), "{asked:?}");
    assert_eq!(connection.undelivered_bytes(), None);
    assert!(connection.stats().packets_sent > 0);
    let mut events = connection.events();
    let last = core::iter::from_fn(|| events.next()).last();
    assert_eq!(last, Some(ConnectionEvent::Closed(reason.clone())));
    assert!(events.next().is_none() && events.try_next().is_none());
    connection.close(99, "again");
    assert_eq!(connection.close_reason().as_ref(), Some(reason));
}

/// Checks the result of each call on a flow whose connection has ended.
fn assert_flow_ended(flow: Flow, reason: &CloseReason, kind: ErrorKind) {
    let (mut send, mut recv) = flow.split();
    let (message, options) = (|| Bytes::from_static(b"late"), MessageOptions::default);
    let (mut messages, mut batch) = (VecDeque::from([message()]), MessageBatch::new());
    batch.push(b"late");
    let refused = [
        send.write_bytes(message()),
        send.send_message(message(), options()),
        send.send_messages(&mut messages, options()),
        send.send_batch(&mut batch, options()),
        send.write(b"late").map(|_| ()),
        send.finish(),
        send.finished(),
    ];
    for (n, error) in refused.into_iter().enumerate() {
        let error = error.expect_err("it is over");
        assert_eq!((error.kind(), behind(&error)), (kind, WriteError::Closed(reason.clone())), "{n}");
    }
    assert_eq!((messages.len(), batch.len()), (1, 1), "none was taken");
    assert_eq!(send.set_requirements(&Requirements::messages()), Err(FlowError::Closed(reason.clone())));
    assert_eq!(send.profile(), None);
    for n in 0..2 {
        let unread = [
            recv.recv_chunk(9).map(|_| ()),
            recv.recv_message().map(|_| ()),
            recv.recv_messages(&mut Vec::new(), 9).map(|_| ()),
            recv.recv_batch(&mut MessageBatch::new(), 9).map(|_| ()),
            recv.read(&mut [0; 9]).map(|_| ()),
        ];
        for error in unread {
            let error = error.expect_err("it is over, and that is no end");
            assert_eq!((error.kind(), behind(&error)), (kind, ReadError::Closed(reason.clone())), "{n}");
        }
    }
}

#[test]
fn every_call_after_the_end_says_why_it_ended() {
    let (server, target, options) = serve(
        |_| {},
        |listener| {
            let (connection, mut flow) = accepted(listener);
            flow.read_exact(&mut [0; 5]).expect("read");
            let reason = CloseReason::Peer { code: 5, reason: "enough".into() };
            assert_eq!(connection.closed(), reason);
            assert_ended(&connection, &reason);
            assert_flow_ended(flow, &reason, ErrorKind::ConnectionAborted);
        },
    );
    within(move || {
        let connection = connect(&target, options).expect("connected");
        let mut flow = connection.open_flow(FlowOptions::default()).expect("opened");
        flow.write_all(b"first").expect("written");
        flow.send_half().set_timeout(Some(Duration::from_secs(60)));
        while connection.undelivered_bytes() != Some(0) {
            carry(Duration::from_millis(2));
        }
        connection.close(5, "enough");
        let reason = CloseReason::Local { code: 5, reason: "enough".into() };
        assert_ended(&connection, &reason);
        assert_flow_ended(flow, &reason, ErrorKind::NotConnected);
        assert!(connection.peer_fingerprint().is_some());
    });
    join(server);
}

#[test]
fn a_flow_that_was_given_up_is_never_finished_nor_read_to_an_end() {
    let (server, target, options) = serve(
        |_| {},
        |listener| {
            let (connection, mut flow) = accepted(listener);
            let recv = flow.recv_half();
            while let Ok(chunk) = recv.recv_chunk(9) {
                assert!(chunk.is_some(), "a flow that was given up has no end");
            }
            for error in [recv.recv_chunk(9).map(|_| ()), recv.read(&mut [0; 9]).map(|_| ())] {
                let error = error.expect_err("again");
                assert_eq!((error.kind(), behind(&error)), (ErrorKind::ConnectionReset, ReadError::Reset(8)));
            }
            // The other half: its peer wants no more of it.
            let send = flow.send_half();
            let error = loop {
                if let Err(error) = send.write(&[7; 1000]) {
                    break error;
                }
                carry(Duration::from_millis(1));
            };
            assert_eq!((error.kind(), behind(&error)), (ErrorKind::BrokenPipe, WriteError::Stopped(9)));
            for error in [send.finish(), send.finished()] {
                assert_eq!(behind::<WriteError>(&error.expect_err("stopped")), WriteError::Stopped(9));
            }
            connection.close(0, "done");
        },
    );
    within(move || {
        let connection = connect(&target, options).expect("connected");
        let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).expect("opened").split();
        send.write_all(b"half").expect("written");
        send.reset(8);
        for error in
            [send.finished(), send.finish(), send.write_all(b"x"), send.write_bytes(Bytes::from_static(b"x"))]
        {
            let error = error.expect_err("given up");
            assert_eq!((error.kind(), behind(&error)), (ErrorKind::BrokenPipe, WriteError::Finished));
        }
        recv.stop(9);
        for error in [recv.recv_chunk(9).map(|_| ()), recv.read(&mut [0; 9]).map(|_| ())] {
            let error = error.expect_err("stopped here");
            assert_eq!((error.kind(), behind(&error)), (ErrorKind::UnexpectedEof, ReadError::Ended));
        }
        connection.closed();
    });
    join(server);
}

/// The same codes by dropping, and none where the end was reached.
#[test]
fn halves_that_are_dropped_tell_the_peer() {
    let (go, goes) = mpsc::channel();
    let (server, target, options) = serve(
        |_| {},
        move |listener| {
            let (connection, mut flow) = accepted(listener);
            let mut text = String::new();
            let error = flow.read_to_string(&mut text).expect_err("dropped before it was finished");
            assert_eq!(behind::<ReadError>(&error), ReadError::Reset(0));
            goes.recv().expect("told");
            let mut whole = connection.accept_flow().expect("a flow");
            whole.read_to_string(&mut text).expect("finished, then dropped");
            assert!(text.ends_with("whole"), "{text}");
            connection.closed()
        },
    );
    within(move || {
        let connection = connect(&target, options).expect("connected");
        let mut flow = connection.open_flow(FlowOptions::default()).expect("opened");
        flow.write_all(b"half").expect("written");
        drop(flow);
        go.send(()).expect("it waits");
        let mut flow = connection.open_flow(FlowOptions::default()).expect("opened");
        flow.write_all(b"whole").expect("written");
        flow.send_half().finish().expect("finished");
        drop(flow);
        carry(Duration::from_millis(300));
        let (again, events) = (connection.clone(), connection.events());
        drop(connection);
        assert_eq!(again.close_reason(), None, "a handle is left");
        drop((again, events));
    });
    assert_eq!(join(server), CloseReason::Peer { code: 0, reason: String::new() });
}

/// Calls that were given up for time have taken what they say, and lost nothing.
#[test]
fn what_a_limited_wait_has_not_taken_comes_next() {
    let (go, goes) = mpsc::channel();
    let (server, target, mut options) = serve(keeps_messages, move |listener| {
        let (_connection, mut flow) = accepted(listener);
        goes.recv().expect("go");
        let (mut got, mut batch) = (Vec::new(), MessageBatch::new());
        while let Some(message) = flow.recv_half().recv_message().expect("received") {
            got.push(message);
            match flow.recv_half().recv_batch(&mut batch, 3).expect("received") {
                0 => break,
                _ => got.extend(batch.iter().map(Bytes::copy_from_slice)),
            }
            batch.clear();
        }
        flow.send_half().finish().expect("finished");
        flow.send_half().finished().expect("delivered");
        got
    });
    keeps_messages(&mut options.connection);
    (options.connection.send_buffer_bytes, options.connection.send_buffer_bytes_max) = (50_000, 50_000);
    let taken = within(move || {
        let connection = connect(&target, options).expect("connected");
        let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).expect("opened").split();
        let patience = Some(Duration::from_millis(40));
        send.set_timeout(patience);
        recv.set_timeout(patience);
        // Nobody carries the peer, so nothing is acknowledged.
        let mut taken = Vec::new();
        let timed_out = loop {
            let message = Bytes::from(some_bytes(9_000 + taken.len()));
            match send.send_message(message.clone(), MessageOptions::default()) {
                Ok(()) => taken.push(message),
                Err(error) => break error,
            }
        };
        assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
        let mut messages: VecDeque<Bytes> = (0..100).map(|n| some_bytes(8_000 + n).into()).collect();
        let all = messages.clone();
        let error = send.send_messages(&mut messages, MessageOptions::default()).expect_err("full");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        taken.extend(all.into_iter().take(100 - messages.len()));
        let mut batch = MessageBatch::new();
        (0..100).for_each(|n| batch.push(&some_bytes(7_000 + n)));
        let error = send.send_batch(&mut batch, MessageOptions::default()).expect_err("full");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        taken.extend((0..100 - batch.len()).map(|n| Bytes::from(some_bytes(7_000 + n))));
        let error = send.finished().expect_err("not acknowledged");
        assert_eq!(error.to_string(), "the peer has not acknowledged everything for 0.04 s");
        let waits = [
            recv.recv_message().map(|_| ()),
            recv.recv_messages(&mut Vec::new(), 9).map(|_| ()),
            recv.recv_batch(&mut MessageBatch::new(), 9).map(|_| ()),
            recv.recv_chunk(9).map(|_| ()),
        ];
        for error in waits {
            assert_eq!(error.expect_err("nothing yet").to_string(), "nothing has arrived for 0.04 s");
        }
        assert_eq!(recv.recv_messages(&mut Vec::new(), 0).expect("none was asked for"), 0);
        go.send(()).expect("it waits");
        send.set_timeout(None);
        recv.set_timeout(None);
        send.finished().expect("delivered");
        assert_eq!(recv.recv_message().expect("the end"), None);
        let error = recv.recv_message().expect_err("it has ended");
        assert_eq!(behind::<ReadError>(&error), ReadError::Ended);
        taken
    });
    let got = join(server);
    assert!(got == taken, "{} messages of {}", got.len(), taken.len());
}

/// The thread that waits is the one that hears of the end.
#[test]
fn waits_end_with_the_connection() {
    for case in 0..5 {
        let (server, target, mut options) = serve(
            |config| config.flows_max = 1,
            |listener| {
                let (connection, _flow) = accepted(listener);
                carry(Duration::from_millis(50));
                connection.close(42, "that is all");
            },
        );
        (options.connection.send_buffer_bytes, options.connection.send_buffer_bytes_max) = (1000, 1000);
        within(move || {
            let connection = connect(&target, options).expect("connected");
            let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).expect("opened").split();
            send.write_all(b"x").expect("written");
            let reason = CloseReason::Peer { code: 42, reason: "that is all".into() };
            match case {
                0 => assert_eq!(connection.closed(), reason),
                1 => assert!(connection.accept_flow().is_none()),
                2 => {
                    let error = connection.open_flow(FlowOptions::default()).expect_err("one is allowed");
                    assert_eq!(error, FlowError::Closed(reason));
                }
                3 => {
                    let error = recv.recv_chunk(9).expect_err("nothing came");
                    assert_eq!(behind::<ReadError>(&error), ReadError::Closed(reason));
                }
                _ => {
                    let error =
                        send.write_bytes(vec![0; 200_000_000].into()).expect_err("more than it takes");
                    assert_eq!(behind::<WriteError>(&error), WriteError::Closed(reason));
                }
            }
        });
        join(server);
    }
}

#[test]
fn a_closed_listener_accepts_no_more_and_leaves_its_connections_alone() {
    let (tell, told) = mpsc::channel();
    let (server, target, options) = serve(
        |_| {},
        move |listener| {
            let (connection, mut flow) = accepted(listener);
            told.recv().expect("the second waits");
            // It is heard of while the thread waits for something.
            carry(Duration::from_millis(300));
            listener.close();
            assert!(listener.accept().is_none());
            assert!(listener.accept().is_none(), "it stays closed");
            let mut text = String::new();
            flow.read_to_string(&mut text).expect("read");
            connection.closed();
            text
        },
    );
    within(move || {
        let first = connect(&target, options.clone()).expect("connected");
        let mut flow = first.open_flow(FlowOptions::default()).expect("opened");
        flow.write_all(b"still ").expect("written");
        tell.send(()).expect("it waits");
        let second = connect(&target, options).expect("connected");
        assert_eq!(second.closed(), CloseReason::Peer { code: 0, reason: "the server is closing".into() });
        flow.write_all(b"here").expect("written");
        flow.send_half().finished().expect("delivered");
    });
    assert_eq!(join(server), "still here");
}

/// Each thread carries what it has opened, beside others.
#[test]
fn threads_do_not_get_in_each_others_way() {
    const CLIENTS: usize = 6;
    let (server, target, options) = serve(
        |_| {},
        |listener| {
            let mut clients = Vec::new();
            for _ in 0..CLIENTS {
                clients.push(accepted(listener));
            }
            for (_, flow) in &mut clients {
                let mut all = Vec::new();
                flow.read_to_end(&mut all).expect("read");
                flow.write_all(&all).expect("written");
                flow.send_half().finish().expect("finished");
            }
            for (connection, _) in &clients {
                connection.closed();
            }
        },
    );
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let (target, options) = (target.clone(), options.clone());
            thread::spawn(move || {
                let connection = connect(&target, options).expect("connected");
                let mut flow = connection.open_flow(FlowOptions::default()).expect("opened");
                let data = some_bytes(200_000 + n);
                flow.write_all(&data).expect("written");
                flow.send_half().finish().expect("finished");
                let mut back = Vec::new();
                flow.read_to_end(&mut back).expect("read");
                assert!(back == data, "{} bytes of {}", back.len(), data.len());
            })
        })
        .collect();
    clients.into_iter().for_each(join);
    join(server);
}

/// A reader that reads part of a message as bytes reads the rest before the next.
#[test]
fn the_rest_of_a_message_is_not_overtaken() {
    let (server, target, mut options) = serve(keeps_messages, |listener| {
        let (connection, mut flow) = accepted(listener);
        let mut begin = [0; 2];
        flow.read_exact(&mut begin).expect("read");
        let error = flow.recv_half().recv_message().expect_err("part of one was read");
        assert_eq!((error.kind(), behind(&error)), (ErrorKind::InvalidData, ReadError::NotMessages));
        let rest = flow.recv_half().recv_chunk(usize::MAX).expect("read");
        assert_eq!(rest, Some(Chunk::Bytes(2, Bytes::from_static(b"rst"))));
        assert_eq!(flow.recv_half().recv_message().expect("received"), Some(Bytes::from_static(b"second")));
        connection.close(0, "done");
    });
    keeps_messages(&mut options.connection);
    within(move || {
        let connection = connect(&target, options).expect("connected");
        let (mut send, _recv) = connection.open_flow(FlowOptions::default()).expect("opened").split();
        for message in ["first", "second"] {
            send.send_message(Bytes::from_static(message.as_bytes()), MessageOptions::default())
                .expect("sent");
        }
        connection.closed();
    });
    join(server);
}

#[test]
fn errors_of_connecting_and_listening_say_what_is_wrong() {
    let taken = UdpSocket::bind(std::net::SocketAddr::from(ANY)).expect("bound");
    let at = taken.local_addr().expect("bound");
    fn identity() -> Identity {
        Identity::generate().expect("a key")
    }
    let error = Listener::bind(at, ServerOptions::new(identity())).expect_err("in use");
    assert!(
        matches!(&error, ListenError::Bind { .. }) && error.to_string().contains(&at.to_string()),
        "{error}"
    );
    let options = || ConnectOptions::pinned(identity().fingerprint());
    let error = connect("localhost", options()).expect_err("no port");
    assert!(matches!(error, ConnectError::Address { .. }), "{error}");
    let error = connect("no-such-host.invalid:1", options()).expect_err("no such host");
    assert!(matches!(error, ConnectError::NoSuchHost { .. }), "{error}");
    let (server, target, _) = serve(
        |_| {},
        |listener| {
            // A client that does not trust it is no connection; the next one ends this.
            listener.accept().map(|connection| connection.closed())
        },
    );
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("known_hosts");
    let (asked, asks) = mpsc::channel();
    within(move || {
        let error = connect(&target, options()).expect_err("another key is pinned");
        assert!(matches!(error, ConnectError::Untrusted(_)), "{error}");
        // The question is put in this thread.
        let asker = thread::current().id();
        let ask = std::sync::Arc::new(move |key: &uts::NewHostKey| {
            assert_eq!(thread::current().id(), asker);
            asked.send(key.host.clone()).expect("heard");
            true
        });
        let trust = Trust::KnownHosts { file: file.clone(), on_new: NewHost::Ask(ask) };
        let connection = connect(&target, ConnectOptions::new(trust)).expect("accepted");
        assert_eq!(asks.recv().expect("asked"), target);
        let known = uts::KnownHosts::load(&file).expect("read");
        assert!(known.of(&target).any(|host| Some(host.fingerprint) == connection.peer_fingerprint()));
        connection.close(0, "done");
    });
    assert!(join(server).is_some());
}

/// Handles stay in their thread, and those of runtimes go anywhere: the compiler sees to it.
#[test]
fn which_handles_may_go_to_other_threads() {
    fn goes_anywhere<T: Send + Sync + 'static>() {}
    goes_anywhere::<uts::Connection>();
    goes_anywhere::<uts::Listener>();
    goes_anywhere::<uts::Endpoint>();
    goes_anywhere::<uts::Flow>();
    goes_anywhere::<uts::SendFlow>();
    goes_anywhere::<uts::RecvFlow>();
    goes_anywhere::<uts::Events>();
    // Of a type that is Send there would be two of these to choose from.
    trait Stays<Which> {
        fn stays() {}
    }
    struct Sent;
    impl<T> Stays<()> for T {}
    impl<T: Send> Stays<Sent> for T {}
    <Connection as Stays<_>>::stays();
    <Listener as Stays<_>>::stays();
    <Flow as Stays<_>>::stays();
    <uts::blocking::SendFlow as Stays<_>>::stays();
    <uts::blocking::RecvFlow as Stays<_>>::stays();
    <uts::blocking::Events as Stays<_>>::stays();
}
