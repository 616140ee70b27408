//! Calls that threads make and serve themselves, over real sockets and without a runtime.
#![cfg(unix)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "threads and sockets of the system, in real time"
)]

use crate::common::threads::{ANY, PATIENCE, join, serve, some_bytes, within};
use bytes::Bytes;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use uts::blocking::call::{Caller, Methods, Served};
use uts::blocking::{Listener, carry, connect};
use uts::call::wire::{Header, put_message_head};
use uts::call::{CallErrorKind, CallOptions, Failure, RecvError, Refusal};
use uts::{CloseReason, ConnectOptions, Identity, ReadError, ServerOptions};

/// A deadline that no test reaches.
fn in_time() -> CallOptions {
    CallOptions::within(PATIENCE)
}

/// A server of one client, in a thread of its own. It ends with its connection.
fn served(methods: Methods) -> (thread::JoinHandle<CloseReason>, String, ConnectOptions) {
    serve(
        |_| {},
        move |listener| {
            let connection = listener.accept().expect("a client");
            methods.serve(&connection);
            connection.closed()
        },
    )
}

fn sums() -> Methods {
    Methods::new()
        .on_value("add", |(a, b): (u32, u32)| {
            a.checked_add(b).ok_or_else(|| Failure::new(1, "it does not fit"))
        })
        .on_message("back", Ok)
        .on("double", |mut call: Served| {
            while let Some(message) = call.request.recv()? {
                call.answer.send([&message[..], &message[..]].concat().into())?;
            }
            Ok(())
        })
}

#[test]
fn values_messages_and_streams_are_answered() {
    let (server, target, options) = served(sums());
    within(move || {
        let connection = connect(&target, options).expect("connected");
        let caller = Caller::over(&connection);
        for n in 0..200_u32 {
            let sum: u32 = caller.call_value("add", &(n, 7_u32), &in_time()).expect("answered");
            assert_eq!(sum, n + 7);
        }
        // More than flows and paths hold, and a message of nothing.
        let much = Bytes::from(some_bytes(900_000));
        for message in [much, Bytes::new()] {
            assert_eq!(caller.call("back", message.clone(), &in_time()).expect("answered"), message);
        }
        let mut call = caller.begin("double", &in_time()).expect("begun");
        for n in 0..50_u8 {
            call.request.send(vec![n; 100].into()).expect("sent");
            assert_eq!(call.answer.recv().expect("read").as_deref(), Some(&[n; 200][..]));
        }
        call.request.finish().expect("ended");
        assert_eq!(call.answer.recv().expect("the end"), None);
        connection.close(0, "done");
    });
    assert!(matches!(join(server), CloseReason::Peer { code: 0, .. }));
}

#[test]
fn failures_and_refusals_say_whether_the_call_has_run() {
    let (server, target, options) = served(sums());
    within(move || {
        let connection = connect(&target, options).expect("connected");
        let caller = Caller::over(&connection);
        let failed =
            caller.call_value::<_, u32>("add", &(u32::MAX, 1_u32), &in_time()).expect_err("too large");
        assert!(matches!(failed.kind(), CallErrorKind::Failed { code: 1, .. }), "{failed}");
        assert!(failed.may_have_run());
        for (method, request, why) in
            [("subtract", &[1, 2][..], Refusal::NoSuchMethod), ("add", &[1], Refusal::BadRequest)]
        {
            let refused = caller.call(method, Bytes::copy_from_slice(request), &in_time()).expect_err(method);
            assert!(
                matches!(refused.kind(), CallErrorKind::Refused { why: said, .. } if *said == why),
                "{refused}"
            );
            assert!(!refused.may_have_run());
        }
        assert_eq!(caller.call_value::<_, u32>("add", &(1_u32, 2_u32), &in_time()).expect("answered"), 3);
    });
    join(server);
}

/// Of a caller that gives up, a handler hears by what it reads. The thread serves the next call.
#[test]
fn a_call_that_is_dropped_is_cancelled_at_the_server() {
    let (tell, told) = mpsc::channel();
    let methods = sums().on("listen", move |mut call: Served| {
        loop {
            match call.request.recv() {
                Ok(message) => assert!(message.is_some(), "it has not ended"),
                Err(error) => {
                    tell.send(error.clone()).expect("heard");
                    return Err(error.into());
                }
            }
        }
    });
    let (server, target, options) = served(methods);
    let told = within(move || {
        let connection = connect(&target, options).expect("connected");
        let caller = Caller::over(&connection);
        let mut call = caller.begin("listen", &in_time()).expect("begun");
        call.request.send(Bytes::from_static(b"hello")).expect("sent");
        drop(call);
        assert_eq!(caller.call_value::<_, u32>("add", &(1_u32, 2_u32), &in_time()).expect("answered"), 3);
        told
    });
    assert_eq!(told.recv(), Ok(RecvError::Flow(ReadError::Reset(0))));
    join(server);
}

/// Both ends hear of a deadline: the caller while it waits, and the handler while it reads.
#[test]
fn a_deadline_ends_a_call_at_both_ends() {
    let (tell, told) = mpsc::channel();
    let methods = sums().on("listen", move |mut call: Served| {
        assert!(call.left().is_some_and(|left| left <= Duration::from_millis(100)));
        let error = loop {
            match call.request.recv() {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        tell.send(error.clone()).expect("heard");
        Err(error.into())
    });
    let (server, target, options) = served(methods);
    let told = within(move || {
        let connection = connect(&target, options).expect("connected");
        let caller = Caller::over(&connection);
        let mut call =
            caller.begin("listen", &CallOptions::within(Duration::from_millis(100))).expect("begun");
        call.request.send(Bytes::from_static(b"hello")).expect("sent");
        let late = call.answer.recv().expect_err("too late");
        assert!(matches!(late.kind(), CallErrorKind::DeadlinePassed), "{late}");
        // There was no time at all.
        let late =
            caller.call("back", Bytes::new(), &CallOptions::within(Duration::ZERO)).expect_err("too late");
        assert!(matches!(late.kind(), CallErrorKind::DeadlinePassed), "{late}");
        assert_eq!(caller.call_value::<_, u32>("add", &(1_u32, 2_u32), &in_time()).expect("answered"), 3);
        told
    });
    let error = told.recv().expect("heard");
    // Which of the two is first is nobody's business: the caller stops it, or its own clock does.
    assert!(matches!(error, RecvError::DeadlinePassed | RecvError::Flow(ReadError::Reset(1))), "{error:?}");
    join(server);
}

/// One thread serves several clients. One whose request does not become whole holds up nobody.
#[test]
fn a_thread_serves_several_clients_and_waits_for_none() {
    let methods = sums();
    let stopper = methods.clone();
    let (server, target, options) = serve(|_| {}, move |listener| methods.serve_clients(listener));
    within(move || {
        let slow = connect(&target, options.clone()).expect("connected");
        let mut held = Caller::over(&slow).begin("add", &in_time()).expect("begun");
        // A first message, and no end.
        held.request.send(Bytes::from_static(&[1, 2])).expect("sent");
        let others: Vec<_> = (0..3_u32)
            .map(|n| {
                let (target, options) = (target.clone(), options.clone());
                thread::spawn(move || {
                    let caller = Caller::to(target, options);
                    for k in 0..50_u32 {
                        let sum: u32 = caller.call_value("add", &(n, k), &in_time()).expect("answered");
                        assert_eq!(sum, n + k);
                    }
                })
            })
            .collect();
        others.into_iter().for_each(join);
        held.request.finish().expect("ended");
        assert_eq!(held.answer.recv_only().expect("answered")[..], [3]);
        stopper.stop();
        let caller = Caller::over(&slow);
        let refused = caller.call(
            "back",
            Bytes::new(),
            &CallOptions { tries: 1.try_into().expect("not 0"), ..in_time() },
        );
        let refused = refused.expect_err("it stops");
        assert!(matches!(refused.kind(), CallErrorKind::Refused { why: Refusal::Stopping, .. }), "{refused}");
    });
    // The last client has gone.
    join(server);
}

/// A caller connects when it is first needed, and again once the connection has ended. A call that
/// may have run is not made again.
#[test]
fn a_caller_connects_again_and_repeats_nothing_that_may_have_run() {
    let identity = Identity::generate().expect("a key");
    let options = ConnectOptions::pinned(identity.fingerprint());
    let (tell, told) = mpsc::channel();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let server = thread::spawn(move || {
        let listener = Listener::bind(ANY.into(), ServerOptions::new(identity)).expect("bound");
        tell.send(listener.local_addr().to_string()).expect("told");
        let connection = listener.accept().expect("a client");
        let flow = connection.accept_flow().expect("a call");
        connection.close(7, "in the middle of a call");
        drop(flow);
        let connection = listener.accept().expect("a client");
        let count = move |()| Ok(counted.fetch_add(1, Ordering::Relaxed) + 1);
        Methods::new().on_value("count", count).serve(&connection);
    });
    let target = told.recv().expect("bound");
    within(move || {
        let caller = Caller::to(target, options);
        let lost = caller.call_value::<_, u32>("count", &(), &in_time()).expect_err("the connection ends");
        assert!(matches!(lost.kind(), CallErrorKind::Lost(_)) && lost.may_have_run(), "{lost}");
        assert_eq!(runs.load(Ordering::Relaxed), 0);
        let count: u32 = caller.call_value("count", &(), &in_time()).expect("answered");
        assert_eq!((count, runs.load(Ordering::Relaxed)), (1, 1));
    });
    join(server);
}

/// A call with the first flight is answered by the thread that serves clients. It is seen at the
/// client, which takes the answer of the handshake and opens no flow.
#[test]
fn a_thread_that_serves_clients_answers_early_requests() {
    let identity = Identity::generate().expect("a key");
    let options = ConnectOptions::pinned(identity.fingerprint());
    let (tell, told) = mpsc::channel();
    let methods = Methods::new().on_early("upper", |message| Ok(message.to_ascii_uppercase().into()));
    let stopper = methods.clone();
    let server = thread::spawn(move || {
        let options = ServerOptions::new(identity).early_requests();
        let listener = Listener::bind(ANY.into(), options).expect("bound");
        tell.send(listener.local_addr().to_string()).expect("told");
        methods.serve_clients(&listener);
    });
    let target = told.recv().expect("bound");
    within(move || {
        let first = connect(&target, options.clone()).expect("connected");
        let ticket = loop {
            match first.take_ticket() {
                Some(ticket) => break ticket,
                None => carry(Duration::from_millis(1)),
            }
        };
        let mut call = Vec::new();
        Header { method: "upper".to_owned(), left: None }.emit(&mut call);
        put_message_head(&mut call, 5);
        call.extend_from_slice(b"early");
        let early = connect(&target, options.early(ticket, call)).expect("connected");
        let answer = early.early_answer().expect("it is answered early");
        assert!(answer.ends_with(b"EARLY"), "{answer:?}");
        // By a flow it is the same method.
        let by_flow = Caller::over(&early).call("upper", Bytes::from_static(b"later"), &in_time());
        assert_eq!(by_flow.expect("answered"), b"LATER".as_slice());
        early.close(0, "done");
        first.close(0, "done");
        stopper.stop();
    });
    join(server);
}
