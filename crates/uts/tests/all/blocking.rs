//! Connections that threads carry themselves, over real sockets and without a runtime.
#![cfg(unix)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "threads and sockets of the system, in real time"
)]

use crate::common::threads::{ANY, PATIENCE, accepted, join, serve, some_bytes, within};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use uts::blocking::{Listener, carry, connect};
use uts::{
    Chunk, CloseReason, ConnectError, ConnectOptions, ConnectionConfig, ConnectionEvent, Direction,
    FlowOptions, Function, Identity, MessageBatch, MessageOptions,
};

/// Gives back what comes, until its end.
fn echo(listener: &Listener) -> CloseReason {
    let (connection, flow) = accepted(listener);
    let (mut send, mut recv) = flow.split();
    std::io::copy(&mut recv, &mut send).expect("copied");
    send.finished().expect("delivered");
    connection.closed()
}

#[test]
fn what_is_written_comes_back_and_the_end_is_heard_of() {
    let (server, target, options) = serve(|_| {}, echo);
    within(move || {
        let connection = connect(&target, options).expect("connected");
        let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).expect("opened").split();
        for n in 0..300_u32 {
            send.write_all(&n.to_be_bytes()).expect("written");
            let mut back = [0; 4];
            recv.read_exact(&mut back).expect("read");
            assert_eq!(u32::from_be_bytes(back), n);
        }
        send.finish().expect("finished");
        assert_eq!(recv.read(&mut [0; 16]).expect("the end"), 0);
        connection.close(7, "enough");
        assert!(matches!(connection.close_reason(), Some(CloseReason::Local { code: 7, .. })));
    });
    assert!(matches!(join(server), CloseReason::Peer { code: 7, .. }));
}

/// More than buffers and windows hold, both ways at once.
#[test]
fn much_goes_through_whole() {
    const COUNT: usize = 24 << 20;
    let (server, target, options) = serve(
        |_| {},
        |listener| {
            let (connection, flow) = accepted(listener);
            let (mut send, mut recv) = flow.split();
            let mut all = Vec::new();
            recv.read_to_end(&mut all).expect("read");
            assert!(all == some_bytes(COUNT), "{} bytes", all.len());
            send.write_all(&all).expect("written");
            send.finished().expect("delivered");
            connection.closed()
        },
    );
    within(move || {
        let connection = connect(&target, options).expect("connected");
        let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).expect("opened").split();
        send.write_all(&some_bytes(COUNT)).expect("written");
        send.finished().expect("delivered");
        let mut back = Vec::new();
        recv.read_to_end(&mut back).expect("read");
        assert!(back == some_bytes(COUNT), "{} bytes", back.len());
        assert_eq!(connection.undelivered_bytes(), Some(0));
    });
    // The last handle is gone.
    assert!(matches!(join(server), CloseReason::Peer { code: 0, .. }));
}

#[test]
fn messages_keep_their_boundaries_one_by_one_and_many_at_a_time() {
    let keep = |config: &mut ConnectionConfig| {
        config.requirements.set("preserveMsgBoundaries", "require").expect("a property");
    };
    let (server, target, mut options) = serve(keep, |listener| {
        let (_connection, flow) = accepted(listener);
        let (mut send, mut recv) = flow.split();
        let (mut messages, mut batch) = (Vec::new(), MessageBatch::new());
        while messages.len() < 1000 {
            assert!(recv.recv_messages(&mut messages, 64).expect("received") > 0);
            let count =
                if messages.len() < 1000 { recv.recv_batch(&mut batch, 64).expect("received") } else { 0 };
            assert_eq!(count, batch.len());
            messages.extend(batch.iter().map(Bytes::copy_from_slice));
            batch.clear();
        }
        messages.split_off(500).iter().for_each(|message| batch.push(message));
        let mut messages = VecDeque::from(messages);
        send.send_messages(&mut messages, MessageOptions::default()).expect("sent");
        send.send_batch(&mut batch, MessageOptions::default()).expect("sent");
        assert!(messages.is_empty() && batch.is_empty());
        send.finished().expect("delivered");
    });
    keep(&mut options.connection);
    within(move || {
        let connection = connect(&target, options).expect("connected");
        let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).expect("opened").split();
        let message = |n: usize| some_bytes(n).into();
        for n in 0..1000 {
            send.send_message(message(n), MessageOptions::default()).expect("sent");
        }
        for n in 0..1000 {
            assert_eq!(recv.recv_message().expect("received"), Some(message(n)), "{n}");
        }
        assert_eq!(recv.recv_message().expect("the end"), None);
    });
    join(server);
}

/// A wait in vain has lost nothing.
#[test]
fn a_wait_may_be_limited() {
    let (go, goes) = mpsc::channel();
    let (server, target, options) = serve(
        |_| {},
        move |listener| {
            let (connection, mut flow) = accepted(listener);
            goes.recv().expect("go");
            flow.write_all(b"late").expect("written");
            flow.send_half().finished().expect("delivered");
            connection.closed();
        },
    );
    within(move || {
        let connection = connect(&target, options).expect("connected");
        let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).expect("opened").split();
        send.write_all(b"?").expect("written");
        let patience = Duration::from_millis(60);
        recv.set_timeout(Some(patience));
        for _ in 0..2 {
            let begun = Instant::now();
            let error = recv.read(&mut [0; 4]).expect_err("nothing yet");
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert_eq!(error.to_string(), "nothing has arrived for 0.06 s");
            assert!(begun.elapsed() >= patience);
        }
        assert_eq!(recv.recv_chunk(9).expect_err("nothing yet").kind(), ErrorKind::TimedOut);
        // Nobody reads at the other end: at some time no more is taken.
        send.set_timeout(Some(patience));
        let error = loop {
            if let Err(error) = send.write_bytes(vec![0; 1 << 20].into()) {
                break error;
            }
        };
        assert_eq!(
            (error.kind(), &*error.to_string()),
            (ErrorKind::TimedOut, "the flow has been full for 0.06 s")
        );
        go.send(()).expect("it waits");
        recv.set_timeout(None);
        let mut late = String::new();
        recv.read_to_string(&mut late).expect("read");
        assert_eq!(late, "late");
        // Its peer wants no more of it, or has heard nothing yet.
        send.reset(0);
    });
    join(server);
}

/// When a call returns, what it hands over has left. Its thread may do something else for as long
/// as it likes.
#[test]
fn what_is_said_leaves_at_once() {
    let (heard, hears) = mpsc::channel();
    let (server, target, options) = serve(
        |_| {},
        move |listener| {
            let (connection, mut flow) = accepted(listener);
            for _ in 0..3 {
                let mut word = [0; 4];
                flow.read_exact(&mut word).expect("read");
                heard.send(word).expect("it waits");
            }
            assert_eq!(flow.read(&mut [0]).expect("the end"), 0);
            heard.send(*b"end.").expect("it waits");
            (connection.closed(), heard.send(*b"over"))
        },
    );
    within(move || {
        let hear = || hears.recv_timeout(PATIENCE).expect("it has arrived");
        let connection = connect(&target, options).expect("connected");
        let mut flow = connection.open_flow(FlowOptions::default()).expect("opened");
        flow.write_all(b"one ").expect("written");
        assert_eq!(hear(), *b"one ");
        flow.send_half().write_bytes(b"two ".to_vec().into()).expect("written");
        assert_eq!(hear(), *b"two ");
        flow.write_all(b"last").expect("written");
        assert_eq!(hear(), *b"last");
        flow.send_half().finish().expect("finished");
        assert_eq!(hear(), *b"end.");
        // So does what is to be said when handles are dropped.
        drop((flow, connection));
        assert_eq!(hear(), *b"over");
    });
    let (reason, _) = join(server);
    assert!(matches!(reason, CloseReason::Peer { code: 0, .. }), "{reason:?}");
}

/// An end that has read to the end need not call again for the other end to know.
#[test]
fn the_end_is_acknowledged_at_once() {
    let (server, target, options) = serve(
        |_| {},
        |listener| {
            let (_connection, mut flow) = accepted(listener);
            assert_eq!(flow.read(&mut [0]).expect("the end"), 0);
            flow.write_all(b"all").expect("written");
            flow.send_half().finished().expect("delivered");
        },
    );
    within(move || {
        let connection = connect(&target, options).expect("connected");
        let mut flow = connection.open_flow(FlowOptions::default()).expect("opened");
        flow.send_half().finish().expect("finished");
        let mut all = String::new();
        flow.read_to_string(&mut all).expect("read");
        assert_eq!(all, "all");
        join(server);
    });
}

/// A thread carries all that it has, whichever it waits for.
#[test]
fn connections_of_a_thread_are_all_carried() {
    let (server, target, options) = serve(
        |config| config.idle_timeout = Duration::from_secs(1),
        |listener| {
            let (first, mut one) = accepted(listener);
            let (second, mut two) = accepted(listener);
            // The first is answered while the client waits for the second, and is heard of by then.
            one.write_all(b"one").expect("written");
            one.send_half().finished().expect("delivered");
            two.write_all(b"two").expect("written");
            two.send_half().finished().expect("delivered");
            // Longer than connections live of which nothing is heard.
            carry(Duration::from_millis(2500));
            assert_eq!((first.close_reason(), second.close_reason()), (None, None));
            let mut asked = String::new();
            one.read_to_string(&mut asked).expect("read");
            assert_eq!(asked, "1");
        },
    );
    within(move || {
        let mut options = options;
        options.connection.keep_alive = Duration::from_millis(200);
        let [first, second] = [(); 2].map(|()| connect(&target, options.clone()).expect("connected"));
        let [mut one, mut two] =
            [&first, &second].map(|c| c.open_flow(FlowOptions::default()).expect("opened"));
        one.write_all(b"1").expect("written");
        two.write_all(b"2").expect("written");
        let mut told = String::new();
        two.read_to_string(&mut told).expect("read");
        assert_eq!(told, "two");
        assert!(first.stats().packets_received > 0);
        // Kept alive by a thread that waits for nothing.
        carry(Duration::from_millis(2500));
        one.send_half().finished().expect("delivered");
        let mut told = String::new();
        one.read_to_string(&mut told).expect("read");
        assert_eq!(told, "one");
    });
    join(server);
}

#[test]
fn events_end_with_the_connection() {
    let (server, at, options) = serve(
        |_| (),
        |listener| {
            let connection = listener.accept().expect("a client");
            let mut events = connection.events();
            connection.close(7, "enough");
            core::iter::from_fn(|| events.next()).last()
        },
    );
    let client = connect(&at, options).expect("connected");
    let mut events = client.events();
    // The handle stays alive meanwhile.
    let here = core::iter::from_fn(|| events.next()).last();
    for last in [here, join(server)] {
        assert!(matches!(last, Some(ConnectionEvent::Closed(_))), "{last:?}");
    }
}

/// Timers go off in the waiting thread: what is not answered is sent again.
#[test]
fn who_is_not_answered_says_it_again_and_gives_up() {
    let silent = UdpSocket::bind(SocketAddr::from(ANY)).expect("bound");
    let target = silent.local_addr().expect("bound").to_string();
    let error = within(move || {
        let mut options = ConnectOptions::pinned(Identity::generate().expect("a key").fingerprint());
        options.connection.handshake_timeout = Duration::from_secs(3);
        connect(&target, options).expect_err("nobody is there")
    });
    assert!(matches!(error, ConnectError::NoAnswer { .. }), "{error}");
    silent.set_nonblocking(true).expect("set");
    let heard = std::iter::from_fn(|| silent.recv(&mut [0; 2000]).ok()).count();
    assert!(heard >= 2, "heard {heard} times");
}

#[test]
fn a_closed_port_is_told_from_silence() {
    let closed = UdpSocket::bind(SocketAddr::from(ANY)).expect("bound").local_addr().expect("bound");
    let error = within(move || {
        let options = ConnectOptions::pinned(Identity::generate().expect("a key").fingerprint());
        connect(&closed.to_string(), options).expect_err("nobody is there")
    });
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
}

/// Looks instead of sleeping, and functions are exchanged meanwhile.
#[test]
fn who_looks_instead_of_sleeping_is_carried_as_well() {
    let (server, target, mut options) = serve(|_| {}, echo);
    options.spin = Duration::from_millis(1);
    within(move || {
        let connection = connect(&target, options).expect("connected");
        let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).expect("opened").split();
        for round in 0..50 {
            if round == 10 {
                connection.set_property("uts.profile.congestion", "bbr").expect("a property");
            }
            send.write_bytes(vec![round; 2000].into()).expect("written");
            let mut back = 0;
            while back < 2000 {
                match recv.recv_chunk(2000).expect("read") {
                    Some(Chunk::Bytes(_, bytes)) => back += bytes.len(),
                    other => panic!("{other:?}"),
                }
            }
        }
        while connection.profile(Direction::Out).expect("open").name(Function::Congestion) != "bbr" {
            carry(Duration::from_millis(5));
        }
        send.finish().expect("finished");
        assert_eq!(recv.recv_chunk(1).expect("the end"), None);
    });
    assert!(matches!(join(server), CloseReason::Peer { .. }));
}

/// A server that reads nothing hears what is expedited, and answers it.
#[test]
fn expedited_messages_come_without_a_read() {
    let expedited = MessageOptions { expedited: true, ..MessageOptions::default() };
    let (server, target, mut options) = serve(
        |config| config.requirements.set("uts.expedited", "on").expect("a property"),
        move |listener| {
            let (connection, flow) = accepted(listener);
            let (mut send, mut recv) = flow.split();
            let mut messages = recv.take_expedited().expect("once");
            let message = messages.recv().expect("received").expect("a message");
            send.send_message(message, expedited).expect("sent");
            send.finished().expect("delivered");
            assert_eq!(recv.read(&mut [0; 16]).expect("read"), 4);
            connection.closed()
        },
    );
    options.connection.requirements.set("uts.expedited", "on").expect("a property");
    within(move || {
        let connection = connect(&target, options).expect("connected");
        let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).expect("opened").split();
        send.write_all(b"data").expect("written");
        send.send_message(Bytes::from_static(b"stop"), expedited).expect("sent");
        let mut messages = recv.take_expedited().expect("once");
        messages.set_timeout(Some(PATIENCE));
        assert_eq!(messages.recv().expect("received").as_deref(), Some(&b"stop"[..]));
        assert_eq!(recv.read(&mut [0; 16]).expect("the end"), 0);
        assert_eq!(messages.recv().expect("none can come"), None);
        send.finished().expect("delivered");
        connection.close(0, "done");
    });
    join(server);
}
