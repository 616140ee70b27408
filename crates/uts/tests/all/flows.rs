//! Flows over real sockets: bytes both ways, many at once, and flows with requirements of their
//! own.

use crate::common::{pair, pair_with, pattern, within};
use bytes::Bytes;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{
    Chunk, ConnectOptions, Connection, FlowError, FlowOptions, Identity, MessageOptions, Requirements,
    ServerOptions, connect,
};

/// Sends back what each flow brings.
async fn echo(connection: Connection) {
    while let Some(flow) = connection.accept_flow().await {
        let (mut send, mut recv) = flow.split();
        tokio::spawn(async move {
            tokio::io::copy(&mut recv, &mut send).await.expect("echoed");
            send.finished().await.expect("delivered");
        });
    }
}

async fn exchange(connection: &Connection, data: Vec<u8>) {
    let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).await.expect("opened").split();
    let sent = data.clone();
    let writer = tokio::spawn(async move {
        send.write_all(&sent).await.expect("written");
        send.finished().await.expect("delivered");
    });
    let mut received = Vec::new();
    recv.read_to_end(&mut received).await.expect("read");
    assert!(received == data, "{} bytes came back instead of {}", received.len(), data.len());
    writer.await.expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_megabytes_both_ways_at_once() {
    let (_listener, client, server) = pair().await;
    let echo = tokio::spawn(echo(server));
    within(exchange(&client, pattern(10_000_000, 1))).await;
    within(client.close(0, "done")).await;
    within(echo).await.expect("ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_ends_send_ten_megabytes_of_their_own() {
    let (_listener, client, server) = pair().await;
    let (to_server, to_client) = (pattern(10_000_000, 2), pattern(10_000_000, 3));
    let run = |connection: Connection, opens: bool, out: Vec<u8>, expected: Vec<u8>| async move {
        let flow = match opens {
            true => connection.open_flow(FlowOptions::default()).await.expect("opened"),
            false => connection.accept_flow().await.expect("accepted"),
        };
        let (mut send, mut recv) = flow.split();
        let write = async {
            send.write_bytes(Bytes::from(out)).await.expect("written");
            send.finished().await.expect("delivered");
        };
        let mut received = Vec::new();
        let (_, read) = tokio::join!(write, recv.read_to_end(&mut received));
        read.expect("read");
        assert!(received == expected);
    };
    let a = tokio::spawn(run(client.clone(), true, to_server.clone(), to_client.clone()));
    let b = tokio::spawn(run(server.clone(), false, to_client, to_server));
    within(a).await.expect("client");
    within(b).await.expect("server");
}

/// More flows than the peer allows at once: the rest wait for their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_flows_where_sixteen_are_allowed() {
    let (_listener, client, server) = pair_with(|config| config.flows_max = 16).await;
    tokio::spawn(echo(server));
    let flows: Vec<_> = (0..100)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move { exchange(&client, pattern(10_000 + n * 7, n as u64)).await })
        })
        .collect();
    for flow in flows {
        within(flow).await.expect("echoed");
    }
}

#[tokio::test]
async fn a_small_credit_and_a_small_buffer_slow_but_never_stop() {
    let (_listener, client, server) = pair_with(|config| {
        config.credit_bytes_initial = 5_000;
        config.credit_bytes_max = 20_000;
        (config.send_buffer_bytes, config.send_buffer_bytes_max) = (3_000, 3_000);
    })
    .await;
    tokio::spawn(echo(server));
    within(exchange(&client, pattern(500_000, 4))).await;
}

/// However little is asked for at a time, and by whichever call.
#[tokio::test]
async fn bytes_are_read_in_portions_of_any_size() {
    let (_listener, client, server) = pair().await;
    let data = pattern(100_000, 9);
    let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    let write = async {
        for piece in data.chunks(777) {
            flow.write_all(piece).await.expect("written");
            tokio::task::yield_now().await;
        }
        flow.finish().expect("finished");
    };
    let read = async {
        let (_send, mut recv) = server.accept_flow().await.expect("accepted").split();
        let mut received = Vec::new();
        for portion in [1, 3, 1000, 50_000, 2].into_iter().cycle() {
            if received.len() % 2 == 0 {
                let mut portion = vec![0; portion];
                let count = recv.read(&mut portion).await.expect("read");
                received.extend_from_slice(&portion[..count]);
                if count == 0 {
                    break;
                }
                continue;
            }
            match recv.recv_chunk(portion).await.expect("read") {
                Some(Chunk::Bytes(position, bytes)) => {
                    assert!(bytes.len() <= portion && position == received.len() as u64);
                    received.extend_from_slice(&bytes);
                }
                other => {
                    assert_eq!(other, None);
                    break;
                }
            }
        }
        assert!(received == data, "{} bytes", received.len());
    };
    within(async { tokio::join!(write, read) }).await;
}

/// Ends that look for arrivals instead of sleeping. They carry what others do, and sleep at last.
#[tokio::test]
async fn ends_that_spin_carry_data_and_leave_others_their_turn() {
    let mut options = ServerOptions::new(Identity::generate().expect("a key"));
    options.spin = Duration::from_millis(2);
    let (listener, target) = crate::common::server(options);
    let mut options = ConnectOptions::pinned(listener.fingerprint());
    options.spin = Duration::from_millis(2);
    let (client, server) = within(async { tokio::join!(connect(&target, options), listener.accept()) }).await;
    let (client, server) = (client.expect("connected"), server.expect("accepted"));
    let echo = tokio::spawn(echo(server));
    let turns = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = turns.clone();
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
    });
    within(exchange(&client, pattern(1_000_000, 4))).await;
    let (mut send, mut recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    for n in 0..200u8 {
        let mut back = [0];
        within(send.write_all(&[n])).await.expect("written");
        within(recv.read_exact(&mut back)).await.expect("back");
        assert_eq!(back, [n]);
    }
    assert!(turns.load(std::sync::atomic::Ordering::Relaxed) > 1, "nobody else had a turn");
    // Nothing comes for longer than they look: what comes then wakes them.
    tokio::time::sleep(Duration::from_millis(20)).await;
    within(exchange(&client, pattern(1_000, 5))).await;
    other.abort();
    within(client.close(0, "done")).await;
    within(echo).await.expect("ended");
}

/// A file and telemetry in one connection: each as it requires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_with_requirements_of_their_own() {
    let (_listener, client, server) = pair().await;
    let telemetry = Requirements::media(Duration::from_secs(60));
    let file = client.open_flow(FlowOptions::requiring(Requirements::bulk())).await.expect("opened");
    let samples = client.open_flow(FlowOptions::requiring(telemetry.clone())).await.expect("opened");
    let (file_id, data) = (file.id(), pattern(3_000_000, 9));
    let (mut file, _file_back) = file.split();
    let (mut samples, mut samples_back) = samples.split();
    let expected = data.clone();
    let sender = tokio::spawn(async move {
        file.write_bytes(Bytes::from(data)).await.expect("written");
        file.finished().await.expect("delivered");
        file.profile().expect("a profile")
    });
    for number in 0..100u8 {
        let sample = Bytes::from(vec![number; 500]);
        within(samples.send_message(sample, MessageOptions::default())).await.expect("sent");
    }
    samples.finish().expect("finished");
    let mut seen = 0;
    for _ in 0..2 {
        let flow = within(server.accept_flow()).await.expect("accepted");
        let is_file = flow.id() == file_id;
        let (mut send, mut recv) = flow.split();
        if is_file {
            let mut received = Vec::new();
            within(recv.read_to_end(&mut received)).await.expect("read");
            assert!(received == expected, "{} bytes of {}", received.len(), expected.len());
            continue;
        }
        while let Some(sample) = within(recv.recv_message()).await.expect("received") {
            assert!(sample.len() == 500 && sample.iter().all(|b| *b == sample[0]));
            seen += 1;
        }
        // The server's half has its own.
        send.set_requirements(&telemetry).expect("nothing was written");
        within(send.send_message(Bytes::from_static(b"thanks"), MessageOptions::default()))
            .await
            .expect("sent");
        // A flow that is over would be forgotten as soon as the client has all of it.
        assert_eq!(send.set_requirements(&telemetry), Err(FlowError::Begun));
        send.finish().expect("finished");
    }
    // Nothing is repeated, and a loopback loses next to nothing.
    assert!(seen > 50, "{seen} samples");
    assert_eq!(within(samples_back.recv_message()).await, Ok(Some(Bytes::from_static(b"thanks"))));
    let profile = within(sender).await.expect("sent");
    assert_eq!(profile.name(uts::Function::Segmentation), "bytes");
    let profile = samples_back.connection().profile(uts::Direction::Out).expect("connected");
    assert_eq!(profile.name(uts::Function::Segmentation), "bytes", "the connection's own is another");
    let asked = requirements(&["uts.security=unprotected"]);
    let refused = client.open_flow(FlowOptions::requiring(asked)).await.err();
    assert!(matches!(refused, Some(FlowError::Shared { .. })), "{refused:?}");
}

fn requirements(properties: &[&str]) -> Requirements {
    let mut requirements = Requirements::default();
    properties.iter().for_each(|p| requirements.assign(p).expect(p));
    requirements
}
