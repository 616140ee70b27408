//! Ends of calls: answered, refused, failed, cancelled, late, lost.

use super::super::{CallErrorKind, CallOptions, Caller, Failure, Methods, Refusal, Served};
use super::{Server, any};
use crate::ledger::{Ledger, Resource};
use crate::simulation::testing::{FAIR, begin};
use bytes::Bytes;
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

/// Tells when it is dropped.
struct Told(Arc<Notify>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// A method that never ends, and tells that it has begun, and that it was stopped.
fn endless() -> (Methods, Arc<Notify>, Arc<Notify>) {
    let (begun, stopped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, stops) = (begun.clone(), stopped.clone());
    let methods = Methods::new().on("endless", move |call: Served| {
        let told = Told(stops.clone());
        begins.notify_one();
        async move {
            let _held = (call, told);
            core::future::pending::<()>().await;
            Ok(())
        }
    });
    (methods, begun, stopped)
}

#[tokio::test(start_paused = true)]
async fn a_message_is_answered_by_a_message_and_a_value_by_a_value() {
    let _network = begin(FAIR, 1);
    let methods = Methods::new()
        .on_message("twice", |message: Bytes| async move { Ok([&message[..], &message[..]].concat().into()) })
        .on_value("len", |text: String| async move { Ok(text.len()) });
    let server = Server::new(methods);
    for caller in [server.caller(), Caller::over(server.connect().await)] {
        for len in [0, 1, 1_000, 16 << 10, (16 << 10) + 1, 500_000] {
            let message = Bytes::from(vec![7; len]);
            let answer = caller.call("twice", message, &any()).await.expect("answered");
            assert!(answer.len() == 2 * len && answer.iter().all(|byte| *byte == 7), "{len}");
        }
        let len: usize = caller.call_value("len", "hello", &any()).await.expect("answered");
        assert_eq!(len, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn who_refuses_says_why_and_has_not_run_it() {
    let _network = begin(FAIR, 2);
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let methods = Methods::new().on_value("len", move |text: String| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move { Ok(text.len()) }
    });
    let server = Server::new(methods.clone());
    let caller = server.caller();
    let refusal = |error: super::super::CallError| {
        assert!(!error.may_have_run() && error.to_string().ends_with("; it has not run"), "{error}");
        match error.kind() {
            CallErrorKind::Refused { why, .. } => *why,
            other => panic!("{other}"),
        }
    };
    let call = |method, request: &'static [u8]| {
        let caller = caller.clone();
        async move { caller.call(method, Bytes::from_static(request), &any()).await.expect_err("refused") }
    };
    assert_eq!(refusal(call("no\nsuch", b"").await), Refusal::NoSuchMethod);
    // No value of its type; more than one; longer than the method takes.
    assert_eq!(refusal(call("len", b"\x05hell").await), Refusal::BadRequest);
    assert_eq!(refusal(call("len", b"\x04hell!").await), Refusal::BadRequest);
    let long = caller.call("len", vec![0; (1 << 20) + 1].into(), &any()).await;
    assert_eq!(refusal(long.expect_err("refused")), Refusal::BadRequest);
    let mut two = caller.begin("len", &any()).await.expect("begun");
    two.request.send(Bytes::from_static(b"\x00")).await.expect("sent");
    two.request.send_last(Bytes::from_static(b"\x00")).await.expect("sent");
    assert_eq!(refusal(two.answer.recv().await.expect_err("refused")), Refusal::BadRequest);
    // A request that does not come.
    let mut none = caller.begin("len", &any()).await.expect("begun");
    none.request.send(Bytes::from_static(b"\x00")).await.expect("sent");
    assert_eq!(refusal(none.answer.recv().await.expect_err("refused")), Refusal::TooLate);
    // One that is tried again until the tries are over.
    methods.stop();
    let begun = Instant::now();
    assert_eq!(refusal(call("len", b"\x00").await), Refusal::Stopping);
    assert!(begun.elapsed() >= Duration::from_millis(50 + 100 + 200));
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    // What cannot be asked for does not leave.
    for method in ["".to_owned(), "m".repeat(256)] {
        let error = caller.call(&method, Bytes::new(), &any()).await.expect_err("no name");
        assert!(matches!(error.kind(), CallErrorKind::Request(_)) && !error.may_have_run(), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_fails_is_heard() {
    let _network = begin(FAIR, 3);
    let methods = Methods::new()
        .on_message("fails", |_| async { Err(Failure::new(42, "\u{1b}[31mred")) })
        .on("late", |mut call: Served| async move {
            call.answer.send(Bytes::from_static(b"so far so good")).await?;
            Err(Failure::new(43, "no more"))
        })
        .on("lets go", |_| async { panic!("a handler that fails: this is expected") });
    let server = Server::new(methods);
    let caller = server.caller();
    let error = caller.call("fails", Bytes::new(), &any()).await.expect_err("failed");
    assert!(matches!(error.kind(), CallErrorKind::Failed { code: 42, .. }) && error.may_have_run());
    assert!(!error.to_string().contains('\u{1b}'), "{error:?}");
    let mut late = caller.begin("late", &any()).await.expect("begun");
    late.request.finish().await.expect("sent");
    assert_eq!(late.answer.recv().await.expect("a message").as_deref(), Some(&b"so far so good"[..]));
    let error = late.answer.recv().await.expect_err("failed");
    assert!(matches!(error.kind(), CallErrorKind::Failed { code: 43, text } if text == "no more"), "{error}");
    let error = caller.call("lets go", Bytes::new(), &any()).await.expect_err("cancelled");
    assert!(matches!(error.kind(), CallErrorKind::Cancelled) && error.may_have_run(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_is_cancelled_at_the_server() {
    let _network = begin(FAIR, 4);
    let (methods, begun, stopped) = endless();
    let server = Server::new(methods);
    let caller = server.caller();
    // Given up while it waits for a message; and with a request that is not whole.
    let options = any();
    tokio::select! {
        answer = caller.call("endless", Bytes::new(), &options) => panic!("{answer:?}"),
        () = begun.notified() => {}
    }
    timeout(Duration::from_secs(1), stopped.notified()).await.expect("stopped");
    let mut call = caller.begin("endless", &any()).await.expect("begun");
    call.request.send(Bytes::from_static(b"some")).await.expect("sent");
    begun.notified().await;
    drop(call.answer);
    timeout(Duration::from_secs(1), stopped.notified()).await.expect("stopped");
    let error = call.request.send(Bytes::from(vec![0; 4 << 20])).await.expect_err("unwanted");
    assert!(matches!(error.kind(), CallErrorKind::Unwanted), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_stops_both_ends() {
    let _network = begin(FAIR, 5);
    let (methods, begun, stopped) = endless();
    let server = Server::new(methods);
    let caller = server.caller();
    let before = Instant::now();
    let options = CallOptions::within(Duration::from_millis(500)).idempotent();
    let error = caller.call("endless", Bytes::new(), &options).await.expect_err("late");
    assert!(matches!(error.kind(), CallErrorKind::DeadlinePassed) && error.may_have_run(), "{error}");
    assert!((500..520).contains(&before.elapsed().as_millis()), "{:?}", before.elapsed());
    begun.notified().await;
    timeout(Duration::from_millis(20), stopped.notified()).await.expect("stopped");
    // A server whose caller's clock stands still stops it by its own.
    let mut call = caller.begin("endless", &options).await.expect("begun");
    call.answer.until_never();
    call.request.finish().await.expect("sent");
    begun.notified().await;
    timeout(Duration::from_millis(520), stopped.notified()).await.expect("stopped");
    let error = call.answer.recv().await.expect_err("late");
    assert!(matches!(error.kind(), CallErrorKind::DeadlinePassed) && error.may_have_run(), "{error}");
    // Nobody is there.
    let nobody = Caller::to("10.0.0.9:1", server.options());
    let error = nobody.call("endless", Bytes::new(), &options).await.expect_err("late");
    assert!(matches!(error.kind(), CallErrorKind::DeadlinePassed) && !error.may_have_run(), "{error}");
    let error = nobody.call("endless", Bytes::new(), &any()).await.expect_err("nobody");
    assert!(matches!(error.kind(), CallErrorKind::NotConnected(_)) && !error.may_have_run(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_says_what_may_have_run_and_another_is_made() {
    let network = begin(FAIR, 6);
    let (endless, begun, _) = endless();
    let server = Server::new(endless);
    let (caller, over) = (server.caller(), Caller::over(server.connect().await));
    let call = |caller: Caller, options: CallOptions| {
        tokio::spawn(async move { caller.call("endless", Bytes::new(), &options).await })
    };
    let (once, often) = (call(caller.clone(), any()), call(caller.clone(), any().idempotent()));
    let fixed = call(over.clone(), any().idempotent());
    for _ in 0..3 {
        begun.notified().await;
        sleep(Duration::from_millis(1)).await;
    }
    let identity = server.kill(&network);
    let answers = Methods::new().on_message("endless", |_| async { Ok(Bytes::from_static(b"ended")) });
    let _server = Server::start(identity, answers);
    let error = once.await.expect("done").expect_err("lost");
    assert!(matches!(error.kind(), CallErrorKind::Lost(_)) && error.may_have_run(), "{error}");
    assert_eq!(often.await.expect("done").expect("made again"), "ended");
    let error = fixed.await.expect("done").expect_err("lost");
    assert!(matches!(error.kind(), CallErrorKind::Lost(_)) && error.may_have_run(), "{error}");
    let error = over.call("endless", Bytes::new(), &any()).await.expect_err("lost");
    assert!(matches!(error.kind(), CallErrorKind::Lost(_)) && !error.may_have_run(), "{error}");
    assert_eq!(caller.call("endless", Bytes::new(), &any()).await.expect("connected anew"), "ended");
}

#[tokio::test(start_paused = true)]
async fn there_are_so_many_calls_at_once_and_others_are_told() {
    let _network = begin(FAIR, 7);
    let (methods, begun, _) = endless();
    let server = Server::new(methods.with_ledger(Ledger::of(Resource::Requests, 3, false)));
    let caller = server.caller();
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut call = caller.begin("endless", &any()).await.expect("begun");
        call.request.finish().await.expect("sent");
        begun.notified().await;
        held.push(call);
    }
    let error = caller.call("endless", Bytes::new(), &any()).await.expect_err("busy");
    assert!(matches!(error.kind(), CallErrorKind::Refused { why: Refusal::Busy, .. }), "{error}");
    // One that waits finds a place when there is one.
    let waiting = tokio::spawn({
        let caller = caller.clone();
        async move { caller.call("endless", Bytes::new(), &CallOptions::within(Duration::from_secs(1))).await }
    });
    sleep(Duration::from_millis(60)).await;
    held.pop();
    begun.notified().await;
    let error = waiting.await.expect("done").expect_err("late");
    assert!(matches!(error.kind(), CallErrorKind::DeadlinePassed), "{error}");
}
