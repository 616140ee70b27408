//! Connections that go on from another address of the host, over real sockets.
#![allow(clippy::disallowed_types, reason = "a program hands its socket in")]

use crate::common::{identity, server, within};
use std::net::{SocketAddr, UdpSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{ConnectOptions, ConnectionEvent, Endpoint, FlowOptions, ServerOptions, connect};

const BYTES: usize = 4 << 20;

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

/// A server that echoes what each flow of its clients brings.
fn echo() -> (String, uts::Fingerprint, tokio::task::JoinHandle<()>) {
    let (listener, target) = server(ServerOptions::new(identity()));
    let fingerprint = listener.fingerprint();
    let task = tokio::spawn(async move {
        while let Some(connection) = listener.accept().await {
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
    (target, fingerprint, task)
}

/// All that is written comes back while the client moves every few hundred kilobytes.
async fn echoes_while(connection: &uts::Connection, mut moves: impl FnMut(usize)) {
    let flow = within(connection.open_flow(FlowOptions::default())).await.expect("a flow");
    let (mut reads, mut writes) = tokio::io::split(flow);
    let sent: Vec<u8> = (0..BYTES).map(|n| (n / 7 % 251) as u8).collect();
    let copy = sent.clone();
    let writer = tokio::spawn(async move {
        writes.write_all(&copy).await.expect("written");
        writes.shutdown().await.expect("ended");
    });
    let (mut back, mut chunk, mut next) = (Vec::new(), vec![0; 1 << 16], BYTES / 8);
    loop {
        let n = within(reads.read(&mut chunk)).await.expect("read");
        if n == 0 {
            break;
        }
        back.extend_from_slice(&chunk[..n]);
        if back.len() >= next {
            moves(next * 8 / BYTES);
            next += BYTES / 8;
        }
    }
    within(writer).await.expect("ended");
    assert!(back == sent, "{} bytes came back", back.len());
}

#[tokio::test]
async fn a_connection_of_its_own_socket_goes_on_from_other_ports() {
    let (target, fingerprint, _server) = echo();
    let client = within(connect(&target, ConnectOptions::pinned(fingerprint))).await.expect("connected");
    let mut events = client.events();
    let first = client.local_addr();
    echoes_while(&client, |_| client.migrate(any()).expect("moved")).await;
    assert_ne!(client.local_addr(), first);
    let moved = within(async {
        loop {
            let event = events.next().await.expect("it goes on");
            if let ConnectionEvent::Moved { is_peer, .. } = event {
                return is_peer;
            }
        }
    });
    assert!(!moved.await, "it is this end that has moved");
}

#[tokio::test]
async fn all_connections_of_an_endpoint_go_on_by_a_socket_that_is_handed_in() {
    let (target, fingerprint, _server) = echo();
    let endpoint = Endpoint::client(any()).expect("bound");
    let options = ConnectOptions::pinned(fingerprint);
    let a = within(endpoint.connect(&target, options.clone())).await.expect("connected");
    let b = within(endpoint.connect(&target, options)).await.expect("connected");
    echoes_while(&a, |_| {
        let socket = UdpSocket::bind(any()).expect("bound");
        endpoint.rebind(socket).expect("moved");
    })
    .await;
    echoes_while(&b, |_| {}).await;
    assert_eq!(a.local_addr(), b.local_addr());
}

#[tokio::test]
async fn a_move_that_cannot_be_is_refused_in_words_and_changes_nothing() {
    let (target, fingerprint, _server) = echo();
    let client = within(connect(&target, ConnectOptions::pinned(fingerprint))).await.expect("connected");
    let before = client.local_addr();
    let other_family = client.migrate("[::1]:0".parse().expect("an address")).expect_err("refused");
    assert!(other_family.to_string().contains("[::1]:0 is IPv6"), "{other_family}");
    client.migrate("192.0.2.1:0".parse().expect("an address")).expect_err("no address of this host");
    let taken = UdpSocket::bind(any()).expect("bound");
    client.migrate(taken.local_addr().expect("bound")).expect_err("another has it");
    assert_eq!(client.local_addr(), before);
    echoes_while(&client, |_| {}).await;
}

/// A client that blocks moves, too: the thread's endpoints take turns between its calls.
#[test]
fn a_blocking_connection_goes_on_from_another_port() {
    use std::io::{Read, Write};
    let (sender, receiver) = std::sync::mpsc::channel();
    let _server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (target, fingerprint, task) = echo();
            sender.send((target, fingerprint)).expect("sent");
            let _ = task.await;
        });
    });
    let (target, fingerprint) = receiver.recv().expect("a server");
    let client = uts::blocking::connect(&target, ConnectOptions::pinned(fingerprint)).expect("connected");
    let mut flow = client.open_flow(FlowOptions::default()).expect("a flow");
    for n in 0..5u8 {
        flow.write_all(&[n; 1000]).expect("written");
        let mut back = [0; 1000];
        flow.read_exact(&mut back).expect("read");
        assert_eq!(back, [n; 1000]);
        client.migrate(any()).expect("moved");
    }
}
