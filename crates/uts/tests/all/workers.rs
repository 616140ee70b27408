//! Listeners of several workers: each carries connections of its own, and to their clients it is
//! one server.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_types, reason = "a program hands its socket in")]

use crate::common::{identity, pattern, server, within};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{
    CloseReason, ConnectOptions, Connection, Endpoint, FlowOptions, Identity, ListenError, Listener,
    ServerOptions, WORKERS_MAX, connect,
};

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn workers(count: usize) -> ServerOptions {
    let mut options = ServerOptions::new(identity());
    options.workers = count;
    options
}

/// Echoes what each flow of each client brings, until the listener is closed.
fn echo(listener: Listener) -> std::sync::Arc<Listener> {
    let listener = std::sync::Arc::new(listener);
    let accepting = listener.clone();
    tokio::spawn(async move {
        while let Some(connection) = accepting.accept().await {
            tokio::spawn(async move {
                while let Some(flow) = connection.accept_flow().await {
                    let (mut reads, mut writes) = tokio::io::split(flow);
                    tokio::spawn(async move {
                        let _ = tokio::io::copy(&mut reads, &mut writes).await;
                        let _ = writes.shutdown().await;
                    });
                }
            });
        }
    });
    listener
}

/// All that is written comes back; `halfway` is done in the midst of it.
async fn echoes(connection: &Connection, seed: u64, halfway: impl FnOnce()) {
    let flow = within(connection.open_flow(FlowOptions::default())).await.expect("a flow");
    let (mut reads, mut writes) = tokio::io::split(flow);
    let sent = pattern(300_000, seed);
    let copy = sent.clone();
    let writer = tokio::spawn(async move {
        writes.write_all(&copy).await.expect("written");
        writes.shutdown().await.expect("ended");
    });
    let mut back = vec![0; sent.len() / 2];
    within(reads.read_exact(&mut back)).await.expect("read");
    halfway();
    within(reads.read_to_end(&mut back)).await.expect("read");
    within(writer).await.expect("ended");
    assert!(back == sent, "{} bytes came back", back.len());
}

/// Also when clients move in the midst of it, so that their packets come from elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_workers_carry_connections_and_keep_them() {
    const CLIENTS: u64 = 40;
    let (listener, target) = server(workers(3));
    let (fingerprint, listener) = (listener.fingerprint(), echo(listener));
    let mut clients = Vec::new();
    for seed in 0..CLIENTS {
        let client = within(connect(&target, ConnectOptions::pinned(fingerprint))).await.expect("connected");
        clients.push((seed, client));
    }
    let each = listener.connections_of_workers();
    assert_eq!(each.iter().sum::<usize>() as u64, CLIENTS, "{each:?}");
    // By chance one in 10^6 of such runs has a worker without any.
    assert!(each.len() == 3 && each.iter().all(|count| *count > 0), "{each:?}");
    let echoing = clients.into_iter().map(|(seed, client)| {
        tokio::spawn(async move {
            echoes(&client, seed, || client.migrate(any()).expect("moved")).await;
            within(client.close(0, "done")).await;
        })
    });
    for client in echoing.collect::<Vec<_>>() {
        within(client).await.expect("it has echoed");
    }
}

/// The kernel joins datagrams of one client that follow each other, whosever they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_one_client_socket_are_told_apart() {
    let (listener, target) = server(workers(4));
    let (fingerprint, _listener) = (listener.fingerprint(), echo(listener));
    let client = Endpoint::client(any()).expect("a socket");
    let mut echoing = Vec::new();
    for seed in 0..16 {
        let connection = within(client.connect(&target, ConnectOptions::pinned(fingerprint)));
        let connection = connection.await.expect("connected");
        echoing.push(tokio::spawn(async move { echoes(&connection, seed, || {}).await }));
    }
    for connection in echoing {
        within(connection).await.expect("it has echoed");
    }
}

/// However they fall upon workers: there are never more. A newcomer that is let in takes the place
/// of another, and one that is refused may not hear of it in time.
#[tokio::test]
async fn limits_hold_for_all_workers_together() {
    const MOST: usize = 5;
    let mut options = workers(8);
    options.connections_per_address_max = MOST;
    let (listener, target) = server(options);
    let (fingerprint, listener) = (listener.fingerprint(), echo(listener));
    let mut flows = Vec::new();
    for _ in 0..3 * MOST {
        let mut options = ConnectOptions::pinned(fingerprint);
        options.connection.handshake_timeout = Duration::from_secs(2);
        let Ok(client) = within(connect(&target, options)).await else { continue };
        if let Ok(flow) = within(client.open_flow(FlowOptions::default())).await {
            flows.push((client, flow));
        }
    }
    let mut echoed = 0;
    for (_, flow) in &mut flows {
        let is_sent = flow.write_all(&pattern(100, 1)).await.is_ok();
        echoed += usize::from(is_sent && within(flow.read_exact(&mut [0; 100])).await.is_ok());
    }
    assert!((1..=MOST).contains(&echoed), "{echoed} of {}", flows.len());
    drop(listener);
}

/// Of all workers, whichever waits and whichever has a connection. A client whose handshake ends
/// only behind the end of the listener hears of it, too.
#[tokio::test]
async fn the_end_of_a_listener_is_that_of_all_its_workers() {
    let (listener, target) = server(workers(3));
    let fingerprint = listener.fingerprint();
    let mut clients = Vec::new();
    for _ in 0..9 {
        clients.push(within(connect(&target, ConnectOptions::pinned(fingerprint))).await.expect("connected"));
    }
    let kept = within(listener.accept()).await.expect("a connection");
    listener.close();
    assert!(within(listener.accept()).await.is_none());
    let port = kept.remote_addr().expect("it is open").port();
    let kept_by = |client: &Connection| client.local_addr().port() == port;
    for client in clients.iter().filter(|client| !kept_by(client)) {
        let reason = within(client.closed()).await;
        assert_eq!(reason, CloseReason::Peer { code: 0, reason: "the server is closing".into() });
    }
    let goes_on = clients.iter().find(|client| kept_by(client)).expect("it is one of them");
    assert!(goes_on.open_flow(FlowOptions::default()).await.is_ok());
    drop((kept, listener));
    for client in &clients {
        within(client.closed()).await;
    }
}

#[tokio::test]
async fn what_cannot_be_had_of_workers_is_said() {
    for (count, why) in [(0, "workers: 0, where 1 to 64 were expected"), (WORKERS_MAX + 1, "workers: 65")] {
        let error = Listener::bind(any(), workers(count)).expect_err("it is refused").to_string();
        assert!(error.contains(why), "{error}");
    }
    let socket = UdpSocket::bind(any()).expect("bound");
    let error = Listener::from_socket(socket, workers(2)).expect_err("it is refused").to_string();
    assert!(error.contains("one was handed over"), "{error}");
    // Nobody else's port is shared, and nobody else shares a port.
    let (listener, _) = server(workers(2));
    let error =
        Listener::bind(listener.local_addr(), ServerOptions::new(Identity::generate().expect("a key")));
    assert!(matches!(error, Err(ListenError::Bind { .. })));
    let error = Listener::bind(listener.local_addr(), workers(2));
    assert!(matches!(error, Err(ListenError::Bind { .. })));
}
