//! A connection as what carries files, over real sockets.

use std::io::ErrorKind;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{ConnectOptions, Connection, ConnectionConfig, Identity, Listener, ServerOptions, connect};
use uts_files::{Flows, WriteShared};

/// A test that has not ended by then hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Fails instead of hanging.
async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it hangs")
}

/// A listener, and both ends of a connection to it.
async fn pair_with(change: impl Fn(&mut ConnectionConfig)) -> (Listener, Connection, Connection) {
    let mut options = ServerOptions::new(Identity::generate().expect("a key"));
    change(&mut options.connection);
    let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), options).expect("bound");
    let target = listener.local_addr().to_string();
    let mut options = ConnectOptions::pinned(listener.fingerprint());
    change(&mut options.connection);
    let (client, accepted) =
        within(async { tokio::join!(connect(&target, options), listener.accept()) }).await;
    (listener, client.expect("connected"), accepted.expect("accepted"))
}

/// In order: the peer said 0, or this end closed; everything else is a failure.
#[tokio::test]
async fn an_orderly_end_is_told_from_a_failure() {
    for (code, is_orderly) in [(0, true), (5, false)] {
        let (_listener, client, server) = pair_with(|_| {}).await;
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
    let (_listener, client, server) = pair_with(|_| {}).await;
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
