//! A connection as what carries files, and as what is looked into.

use crate::common::{pair, pair_with, within};
use std::io::ErrorKind;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::files::{Flows, WriteShared};

/// In order: the peer said 0, or this end closed; everything else is a failure.
#[tokio::test]
async fn an_orderly_end_is_told_from_a_failure() {
    for (code, is_orderly) in [(0, true), (5, false)] {
        let (_listener, client, server) = pair().await;
        within(client.close(code, "")).await;
        match within(server.accept()).await {
            Ok(None) => assert!(is_orderly),
            Ok(Some(_)) => panic!("a flow"),
            Err(error) => assert!(!is_orderly && error.kind() == ErrorKind::ConnectionAborted, "{error}"),
        }
        assert!(within(client.accept()).await.expect("this end closed").is_none());
        let error = within(server.open()).await.map(|_| ()).expect_err("it has ended");
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    }
    let (_listener, client, server) =
        pair_with(|config| config.idle_timeout = Duration::from_millis(300)).await;
    assert!(within(client.accept()).await.is_err(), "silence is no orderly end");
    drop(server);
}

/// `shutdown` ends a flow in order, and dropping it does not.
#[tokio::test]
async fn only_what_was_shut_down_is_whole() {
    let (_listener, client, server) = pair().await;
    for is_shut_down in [true, false] {
        let (mut send, _recv) = within(client.open()).await.expect("opened");
        within(send.write_shared(bytes::Bytes::from_static(b"all"))).await.expect("written");
        if is_shut_down {
            within(send.shutdown()).await.expect("shut down");
        }
        let (_back, mut recv) = within(server.accept()).await.expect("open").expect("a flow");
        within(recv.read_exact(&mut [0; 3])).await.expect("read");
        drop(send);
        let end = within(recv.read(&mut [0; 3])).await;
        match is_shut_down {
            true => assert_eq!(end.expect("the end"), 0),
            false => assert_eq!(end.expect_err("a reset").kind(), ErrorKind::ConnectionReset),
        }
    }
}

/// Packets are recorded from when that was asked for, and each is told once.
#[tokio::test]
async fn a_trace_has_what_was_sent_since() {
    let (_listener, client, server) = pair().await;
    assert!(client.take_trace().is_empty());
    client.start_trace();
    let (mut send, _recv) = within(client.open()).await.expect("opened");
    send.write_all(&[7; 5000]).await.expect("written");
    within(send.finished()).await.expect("delivered");
    let mut rows = client.take_trace();
    assert!(rows.iter().filter(|row| row.kind == uts::TraceKind::Sent).count() >= 4, "{rows:?}");
    rows.extend(client.take_trace());
    let mut sent: Vec<_> =
        rows.iter().filter(|row| row.kind == uts::TraceKind::Sent).map(|row| row.number).collect();
    let all = sent.len();
    sent.dedup();
    assert_eq!(sent.len(), all, "each once");
    within(client.close(0, "")).await;
    within(server.closed()).await;
    assert!(server.take_trace().is_empty(), "nobody asked for it");
}
