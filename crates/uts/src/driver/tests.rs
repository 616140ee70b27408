//! Tasks that wait: with sockets and a runtime, but polled by hand.

use super::testing::{Log, Strayed};
use crate::{Chunk, ConnectOptions, FlowOptions, Identity, Listener, ServerOptions, connect};
use bytes::Bytes;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::future::poll_fn;

/// The task asks before it sleeps, looks if that is worth it, and says what came of it. Every
/// datagram is sent while it sleeps, so that each look is in vain.
#[tokio::test]
async fn the_task_looks_before_it_sleeps() {
    let mut strayed = Strayed::new(Duration::ZERO, false);
    let (mut sent, mut arrived, mut looked) = (0, 0, Vec::new());
    let sequence = poll_fn(|cx| {
        let sleeps = strayed.sleeps(cx);
        if core::mem::replace(&mut arrived, strayed.arrived()) < strayed.arrived() {
            looked.push(!sleeps);
        }
        if sleeps && arrived == sent {
            if sent == 7 {
                return Poll::Ready(());
            }
            sent += 1;
            strayed.send(cx);
        }
        Poll::Pending
    });
    tokio::time::timeout(Duration::from_secs(60), sequence).await.expect("it is woken by what arrives");
    assert_eq!(looked, [true, false, true, false, false, false, true]);
}

/// Where one application has heard and another, or the same, has said something, the task looks for
/// a response.
#[tokio::test]
async fn the_task_looks_longer_for_a_response() {
    let mut strayed = Strayed::new(Duration::ZERO, false);
    let mut rounds = Vec::new();
    for (has_heard, has_said) in [(false, false), (false, true), (true, false), (true, true)] {
        strayed.set_dialogue(has_heard, has_said);
        let mut looks = 0;
        let sequence = poll_fn(|cx| {
            if strayed.sleeps(cx) {
                return Poll::Ready(looks);
            }
            looks += 1;
            Poll::Pending
        });
        let limit = Duration::from_secs(60);
        rounds.push(tokio::time::timeout(limit, sequence).await.expect("it sleeps after some looks"));
    }
    // What was said is remembered until something is heard, so that the third is an exchange, too.
    // Of the fourth no look is due.
    assert_eq!(rounds, [0, 0, 5, 0]);
}

/// Turns and looks of the task of one end.
#[derive(Debug)]
struct Counts {
    /// Rounds of looks for responses.
    rounds_for_responses: usize,
    /// Turns that ended with sleep.
    sleeps: usize,
    /// Turns that received before a response was sent.
    receptions_before_responses: usize,
}

/// Counts of the tasks of two ends, while these ask and answer so often.
async fn counts_of_dialogue(spin: Duration, rounds: u32) -> [Counts; 2] {
    let log = Log::begin();
    let mut options = ServerOptions::new(Identity::generate().expect("a key"));
    options.spin = spin;
    let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), options).expect("bound");
    let (to, mut options) =
        (listener.local_addr().to_string(), ConnectOptions::pinned(listener.fingerprint()));
    options.spin = spin;
    let dialogue = async {
        let (client, server) = tokio::join!(connect(&to, options), listener.accept());
        let (client, server) = (client.expect("connected"), server.expect("accepted"));
        let mut asking = client.open_flow(FlowOptions::default()).await.expect("opened");
        asking.send_half().write_bytes(Bytes::from_static(b"?")).await.expect("written");
        let mut answering = server.accept_flow().await.expect("a flow");
        for _ in 0..rounds {
            let question = answering.recv_half().recv_chunk(1).await.expect("read");
            assert!(matches!(question, Some(Chunk::Bytes(..))));
            answering.send_half().write_bytes(Bytes::from_static(b"!")).await.expect("written");
            assert!(asking.recv_half().recv_chunk(1).await.expect("read").is_some());
            asking.send_half().write_bytes(Bytes::from_static(b"?")).await.expect("written");
        }
        [client, server].map(|end| {
            let endpoint = end.shared().local_addr().to_string();
            let count = |what: &str, says: &[(&str, &str)]| {
                log.count(|line| {
                    let is_said = says.iter().all(|(name, value)| line.has(name, value));
                    line.what == what && line.has("endpoint", &endpoint) && is_said
                })
            };
            let sleeps =
                log.count(|line| line.has("endpoint", &endpoint) && (line.says("Sleep") || line.says("Nap")));
            Counts {
                rounds_for_responses: count("wait", &[("wait", "Spin { looks: 24, why: Response }")]),
                sleeps,
                receptions_before_responses: count("turn", &[("receives", "true"), ("has_response", "true")]),
            }
        })
    };
    tokio::time::timeout(Duration::from_secs(60), dialogue).await.expect("an answer to each")
}

/// Reading and writing flows is what makes a dialogue.
#[tokio::test]
async fn a_flow_that_is_written_after_reading_has_the_task_look_for_a_response() {
    let counts = counts_of_dialogue(Duration::ZERO, 10).await;
    assert!(counts.iter().all(|counts| counts.rounds_for_responses > 0), "{counts:?}");
}

/// Where spinning was asked for, the task stays awake while those answer whom it has woken, and
/// what they say leaves before the next look.
#[tokio::test]
async fn responses_leave_before_the_next_look_and_without_sleep() {
    const ROUNDS: usize = 200;
    for counts in counts_of_dialogue(Duration::from_secs(60), ROUNDS as u32).await {
        // But for the beginning, while the socket is still watched.
        assert!(counts.sleeps < ROUNDS / 10, "{counts:?}");
        assert!(counts.receptions_before_responses < ROUNDS / 10, "{counts:?}");
    }
}

/// A look that has found all there was is not followed by another before what is to be sent has
/// left.
#[tokio::test]
async fn no_task_looks_twice_for_the_same() {
    let mut strayed = Strayed::new(Duration::from_secs(60), false);
    let cx = &mut Context::from_waker(Waker::noop());
    strayed.send(cx);
    while strayed.is_watched() {
        assert!(!strayed.sleeps(cx));
    }
    strayed.send(cx);
    let has_found = (0..1_000_000).any(|_| strayed.task.driver.spin(1, |_, _, _| {}).expect("a look"));
    assert!(has_found);
    let log = Log::begin();
    let receptions = || log.count(|line| line.what == "turn" && line.has("receives", "true"));
    assert!(!strayed.sleeps(cx));
    assert_eq!(receptions(), 0);
    assert!(!strayed.sleeps(cx));
    assert_eq!(receptions(), 1);
    assert_eq!(strayed.arrived(), 2);
}

impl Strayed {
    /// Waits until so many were taken in. Fails if the task is not woken to do so; `asleep` = it
    /// sleeps already, and is not polled first.
    async fn takes_in(&mut self, arrived: u64, mut asleep: bool) {
        let sequence = poll_fn(|cx| {
            if !core::mem::take(&mut asleep) {
                self.sleeps(cx);
            }
            if self.arrived() == arrived { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_secs(60)) => panic!("the task was not woken"),
            () = sequence => {}
        }
    }
}

/// The task is told of nothing while it naps, is woken all the same, and is told again when nothing
/// streams.
#[tokio::test]
async fn the_task_naps_through_a_stream_and_else_is_woken() {
    let mut strayed = Strayed::new(Duration::ZERO, true);
    for (streams, has_said) in [(false, false), (true, false), (true, true), (true, false), (false, false)] {
        strayed.task.driver.waiting.set_streams(streams);
        strayed.shared.lock().dialogue = Default::default();
        strayed.set_dialogue(false, has_said);
        poll_fn(|cx| if strayed.sleeps(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
        assert_eq!(strayed.is_watched(), !streams || has_said, "{streams} {has_said}");
        strayed.send(&mut Context::from_waker(Waker::noop()));
        let arrived = strayed.arrived();
        strayed.takes_in(arrived + 1, true).await;
    }
}

/// Nobody has to wake it; for a response it looks all the same.
#[tokio::test]
async fn a_task_that_naps_through_a_stream_does_not_look_before() {
    let mut strayed = Strayed::new(Duration::ZERO, false);
    for (streams, has_said, looks) in [(true, false, false), (true, true, true), (false, false, true)] {
        strayed.task.driver.waiting.set_streams(streams);
        strayed.shared.lock().dialogue = Default::default();
        strayed.set_dialogue(false, has_said);
        strayed.task.driver.waiting.set_spins(false, true);
        let slept = poll_fn(|cx| Poll::Ready(strayed.sleeps(cx))).await;
        assert_eq!(slept, !looks, "{streams} {has_said}");
    }
}

/// The next datagram came just behind: the runtime has told of it, and will not again.
#[tokio::test]
async fn a_task_that_has_found_something_by_looking_finds_what_came_behind_it() {
    let mut strayed = Strayed::new(Duration::ZERO, true);
    poll_fn(|cx| if strayed.sleeps(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    strayed.send(&mut Context::from_waker(Waker::noop()));
    assert!(strayed.task.driver.spin(1, |_, _, _| {}).expect("a look"));
    strayed.send(&mut Context::from_waker(Waker::noop()));
    tokio::time::sleep(Duration::from_millis(1)).await;
    strayed.takes_in(2, false).await;
}

/// A task that looks all the time need not be told: the sender would pay for it.
#[tokio::test]
async fn a_task_that_does_not_sleep_is_not_told_and_finds_what_arrives() {
    let mut strayed = Strayed::new(Duration::from_secs(3600), true);
    // As after a sleep.
    poll_fn(|cx| Poll::Ready(strayed.task.driver.socket.watch(cx))).await.expect("watched");
    assert!(strayed.is_watched());
    let mut sent = 0;
    let sequence = poll_fn(|cx| {
        assert!(!strayed.sleeps(cx));
        if !strayed.is_watched() && strayed.arrived() == sent {
            if sent == 3 {
                return Poll::Ready(());
            }
            sent += 1;
            strayed.send(cx);
        }
        Poll::Pending
    });
    tokio::time::timeout(Duration::from_secs(60), sequence).await.expect("it finds what arrives");
    assert!(!strayed.is_watched());
}
