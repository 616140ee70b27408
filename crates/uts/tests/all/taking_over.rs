//! A port that goes to another listener, as to another process: each carries connections of its
//! own.
#![cfg(unix)]
#![allow(clippy::disallowed_types, reason = "a program hands its socket in")]

use crate::common::{identity, pattern, server, within};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use uts::{ConnectOptions, Connection, Flow, FlowOptions, Identity, Listener, ServerOptions, connect};

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn options(identity: &Identity, workers: usize) -> ServerOptions {
    let mut options = ServerOptions::new(identity.clone());
    options.workers = workers;
    options
}

/// Answers each byte by the name of the listener, until that is closed.
fn serve(listener: Listener, name: u8) -> Arc<Listener> {
    let listener = Arc::new(listener);
    let accepting = listener.clone();
    tokio::spawn(async move {
        while let Some(connection) = accepting.accept().await {
            tokio::spawn(async move {
                while let Some(flow) = connection.accept_flow().await {
                    let (mut reads, mut writes) = tokio::io::split(flow);
                    tokio::spawn(async move {
                        let mut bytes = [0; 4096];
                        while let Ok(count @ 1..) = reads.read(&mut bytes).await {
                            bytes[..count].fill(name);
                            if writes.write_all(&bytes[..count]).await.is_err() {
                                return;
                            }
                        }
                        let _ = writes.shutdown().await;
                    });
                }
            });
        }
    });
    listener
}

async fn client(target: &str, listener: &Listener) -> (Connection, Flow) {
    let connection = within(connect(target, ConnectOptions::pinned(listener.fingerprint())));
    let connection = connection.await.expect("connected");
    let flow = within(connection.open_flow(FlowOptions::default())).await.expect("a flow");
    (connection, flow)
}

/// The name of the listener that carries a flow, after so many bytes.
async fn name(flow: &mut Flow, bytes: usize) -> u8 {
    let (mut reads, mut writes) = tokio::io::split(flow);
    let sent = pattern(bytes, 1);
    let mut back = vec![0; bytes];
    let (written, read) =
        within(async { tokio::join!(writes.write_all(&sent), reads.read_exact(&mut back)) }).await;
    written.expect("written");
    read.expect("read");
    assert!(back.iter().all(|byte| *byte == back[0]), "two listeners answered");
    back[0]
}

/// Connections stay where they are, also when their clients move, and are neither reset nor
/// doubled. New ones come to whoever took over last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_stay_with_their_listener_and_new_ones_come_to_the_next() {
    let counts: &[usize] = if cfg!(target_os = "linux") { &[1, 3] } else { &[1] };
    for workers in counts {
        let identity = identity();
        let (first, target) = server(options(&identity, *workers));
        let mut listeners = vec![serve(first, b'0')];
        let (mut handovers, mut clients) = (Vec::new(), Vec::new());
        for round in 0..3_u8 {
            for _ in 0..4 {
                let (connection, mut flow) = client(&target, &listeners[0]).await;
                assert_eq!(name(&mut flow, 10).await, b'0' + round);
                clients.push((connection, flow, b'0' + round));
            }
            let last = listeners.last().expect("one");
            let (handover, port) = within(last.hand_over()).await.expect("a port");
            within(handover.give_way()).await;
            handovers.push(handover);
            let next = Listener::take_over(port, options(&identity, *workers)).expect("taken over");
            assert_eq!(next.local_addr().to_string(), target);
            listeners.push(serve(next, b'1' + round));
            for (connection, flow, own) in &mut clients {
                assert_eq!(name(flow, 40_000).await, *own, "{workers} workers");
                connection.migrate(any()).expect("moved");
                assert_eq!(name(flow, 40_000).await, *own, "{workers} workers, moved");
            }
        }
        let each: Vec<usize> =
            listeners.iter().map(|listener| listener.connections_of_workers().iter().sum()).collect();
        assert_eq!(each, [4, 4, 4, 0], "{workers} workers");
        for (connection, _, _) in clients {
            within(connection.close(0, "done")).await;
        }
    }
}

/// If the one that took over ends, the port is that of the one before, again, and its connections
/// go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_comes_back_from_a_listener_that_is_gone() {
    let identity = identity();
    let (first, target) = server(options(&identity, 1));
    let first = serve(first, b'0');
    let (_connection, mut flow) = client(&target, &first).await;
    for _ in 0..3 {
        let (handover, port) = within(first.hand_over()).await.expect("a port");
        within(handover.give_way()).await;
        // It is gone before it has begun.
        drop(port);
        handover.take_back();
        assert_eq!(name(&mut flow, 100_000).await, b'0');
        let (_other, mut other) = client(&target, &first).await;
        assert_eq!(name(&mut other, 10).await, b'0');
    }
    let (handover, port) = within(first.hand_over()).await.expect("a port");
    let why = Listener::take_over(port, options(&identity, 2)).expect_err("another number of workers");
    assert!(why.to_string().contains("1 workers, and 2"), "{why}");
    drop(handover);
    assert_eq!(name(&mut flow, 10).await, b'0', "nothing has changed");
}

/// An endpoint that waits for the application for ever gives no sign of life.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_pulse_beats_only_while_the_endpoint_takes_its_turns() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("keys");
    std::fs::write(&file, format!("{}\n", identity().fingerprint())).expect("written");
    let ((entered, has_entered), (leave, may_leave)) = (channel(), channel::<()>());
    let may_leave = std::sync::Mutex::new(may_leave);
    let options = ServerOptions::new(identity()).authorized_keys(&file).on_refused(move |_| {
        let _ = entered.send(());
        let _ = may_leave.lock().expect("no panic").recv();
    });
    let (listener, target) = server(options);
    let pulse = listener.pulse();
    within(pulse.beat()).await;
    within(pulse.beat()).await;
    let stranger = ConnectOptions::pinned(listener.fingerprint()).identity(identity());
    let connecting = tokio::spawn(async move {
        let Ok(connection) = connect(&target, stranger).await else { return };
        let _ = connection.closed().await;
    });
    tokio::task::spawn_blocking(move || has_entered.recv().expect("it was refused")).await.expect("told");
    let beats = async move { pulse.beat().await };
    let beating = tokio::spawn(async move { timeout(Duration::from_millis(300), beats).await.is_ok() });
    // It cannot be done before the call has come back.
    tokio::time::sleep(Duration::from_millis(600)).await;
    drop(leave);
    assert!(!within(beating).await.expect("no panic"), "it beats while the endpoint waits");
    within(listener.pulse().beat()).await;
    connecting.abort();
}
