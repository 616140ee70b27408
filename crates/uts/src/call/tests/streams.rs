//! Requests and answers that are streams.

use super::super::{Methods, Served};
use super::{Server, any};
use crate::simulation::testing::{FAIR, begin};
use bytes::Bytes;
use core::time::Duration;
use tokio::time::{Instant, timeout};

fn methods() -> Methods {
    Methods::new()
        .on("echo", |mut call: Served| async move {
            while let Some(message) = call.request.recv().await? {
                call.answer.send(message).await?;
            }
            Ok(())
        })
        .on("count", |mut call: Served| async move {
            let (mut bytes, mut messages) = (0_u64, 0_u64);
            while let Some(part) = call.request.recv_part().await? {
                bytes += part.bytes.len() as u64;
                messages += u64::from(part.is_last);
            }
            call.answer.send_value(&(bytes, messages)).await?;
            Ok(())
        })
        .on("zeros", |mut call: Served| async move {
            let Some(mut left) = call.request.recv_value::<u64>().await? else { return Ok(()) };
            while left > 0 {
                let len = left.min(1 << 20);
                call.answer.send(vec![0; usize::try_from(len).unwrap_or(0)].into()).await?;
                left -= len;
            }
            Ok(())
        })
        .on("deaf", |call: Served| async move {
            let _call = call;
            core::future::pending::<()>().await;
            Ok(())
        })
        .on("first", |mut call: Served| async move {
            let first = call.request.recv().await?.unwrap_or_default();
            call.answer.send_last(first).await?;
            Ok(())
        })
}

#[tokio::test(start_paused = true)]
async fn both_halves_go_on_together_as_messages() {
    let path = "delay=10ms jitter=5ms,uniform,reorder loss=0.02";
    let _network = begin(path, 1);
    let server = Server::new(methods());
    let caller = server.caller();
    let mut call = caller.begin("echo", &any()).await.expect("begun");
    for n in 0..200_usize {
        let message = Bytes::from(vec![n as u8; n * 37 % 5000]);
        call.request.send(message.clone()).await.expect("sent");
        assert_eq!(call.answer.recv().await.expect("answered"), Some(message), "{n}");
    }
    call.request.finish().await.expect("sent");
    assert_eq!(call.answer.recv().await.expect("the end"), None);
    assert_eq!(call.answer.recv().await.expect("the end"), None, "it stays the end");
}

/// Far more than either end may hold goes through a call, both ways, a message at a time or in
/// parts.
#[tokio::test(start_paused = true)]
async fn a_call_carries_any_length() {
    let _network = begin(FAIR, 2);
    let server = Server::new(methods());
    let caller = server.caller();
    const BYTES: u64 = 24 << 20;
    let mut call = caller.begin("count", &any()).await.expect("begun");
    let piece = Bytes::from(vec![1; 3 << 20]);
    for _ in 0..BYTES / piece.len() as u64 {
        call.request.send(piece.clone()).await.expect("sent");
    }
    call.request.finish().await.expect("sent");
    let counted = call.answer.recv_value::<(u64, u64)>().await.expect("counted");
    assert_eq!(counted, Some((BYTES, BYTES / piece.len() as u64)));
    let mut call = caller.begin("zeros", &any()).await.expect("begun");
    call.request.send_value(&BYTES).await.expect("sent");
    let mut bytes = 0;
    while let Some(part) = call.answer.recv_part().await.expect("a part") {
        bytes += part.bytes.len() as u64;
    }
    assert_eq!(bytes, BYTES);
}

/// Calls that nobody reads, and calls that carry much, hold up no others.
#[tokio::test(start_paused = true)]
async fn calls_do_not_wait_for_each_other() {
    let _network = begin(FAIR, 3);
    let server = Server::new(methods());
    let caller = server.caller();
    let mut stuck = Vec::new();
    for n in 0..8 {
        let mut call = caller.begin(if n % 2 == 0 { "deaf" } else { "zeros" }, &any()).await.expect("begun");
        stuck.push(tokio::spawn(async move {
            if n % 2 == 0 {
                // The server does not read it.
                let _ = call.request.send(vec![0; 64 << 20].into()).await;
            } else {
                // This end does not read the answer.
                call.request.send_value(&(64_u64 << 20)).await.expect("sent");
                call.request.finish().await.expect("sent");
            }
            core::future::pending::<()>().await;
            drop(call);
        }));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let begun = Instant::now();
    for n in 0..20_u8 {
        let mut call = caller.begin("first", &any()).await.expect("begun");
        call.request.send_last(vec![n; 2000].into()).await.expect("sent");
        let answer = timeout(Duration::from_secs(5), call.answer.recv_only()).await.expect("it stalls");
        assert_eq!(answer.expect("answered"), vec![n; 2000]);
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    stuck.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_server_may_answer_before_it_has_all() {
    let _network = begin(FAIR, 4);
    let server = Server::new(methods());
    let caller = server.caller();
    let mut call = caller.begin("first", &any()).await.expect("begun");
    call.request.send(Bytes::from_static(b"enough")).await.expect("sent");
    assert_eq!(call.answer.recv_only().await.expect("answered"), "enough");
    // What it does not want is no failure of a call.
    let error = call.request.send(vec![0; 64 << 20].into()).await.expect_err("unwanted");
    assert!(matches!(error.kind(), super::super::CallErrorKind::Unwanted), "{error}");
}
