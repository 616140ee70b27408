//! Services of tonic and tarpc over flows: calls, streams, cancelling, deadlines, loss of the
//! connection. Over real sockets of loopback, with generous limits.

#[path = "../examples/grpc.rs"]
#[allow(dead_code, reason = "`main` is for the program")]
mod grpc;
#[path = "../examples/tarpc.rs"]
#[allow(dead_code, reason = "`main` is for the program")]
mod tarpc_example;

use futures_util::StreamExt as _;
use grpc::proto::Number;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Code, Request};
use uts::{ConnectOptions, Identity, Listener, ServerOptions};
use uts_rpc::grpc::Channels;

/// A test that has not ended by then hangs.
const PATIENCE: Duration = Duration::from_secs(120);

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it hangs")
}

fn listener(identity: Identity, at: &str) -> Listener {
    Listener::bind(at.parse().expect("an address"), ServerOptions::new(identity)).expect("bound")
}

/// A server of the gRPC service: where it is, its key, and what is held by streams that it serves.
fn grpc_server() -> (String, String, Arc<()>) {
    let listener = listener(Identity::generate().expect("a key"), "127.0.0.1:0");
    let (target, key) = (listener.local_addr().to_string(), listener.fingerprint().to_string());
    let service = grpc::Squares::default();
    let streams = service.streams.clone();
    tokio::spawn(grpc::serve(listener, service));
    (target, key, streams)
}

/// Waits until nobody else holds it.
async fn is_alone(held: &Arc<()>, others: usize) {
    while Arc::strong_count(held) > 1 + others {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_grpc_call_is_answered_and_a_failure_keeps_its_code() {
    within(async {
        let (target, key, _) = grpc_server();
        let mut client = grpc::client(&target, &key).expect("a fingerprint");
        for value in 0..100 {
            let answer = client.square(Number { value }).await.expect("answered");
            assert_eq!(answer.get_ref().value, value * value);
        }
        let status = client.square(Number { value: u64::MAX }).await.expect_err("too large");
        assert_eq!(status.code(), Code::OutOfRange);
        // The handler knew who asks.
        assert!(status.message().contains("127.0.0.1"), "{status}");
    })
    .await;
}

/// Calls of several channels go over flows of one connection, at once.
#[tokio::test]
async fn grpc_channels_share_a_connection() {
    within(async {
        let (target, key, _) = grpc_server();
        let channels = Channels::to(target, ConnectOptions::pinned(key.parse().expect("a fingerprint")));
        let calls = (0..8_u64).flat_map(|n| {
            let client = grpc::proto::numbers_client::NumbersClient::new(channels.open());
            (0..10).map(move |k| {
                let mut client = client.clone();
                async move {
                    let value = n * 1000 + k;
                    let answer = client.square(Number { value }).await.expect("answered");
                    assert_eq!(answer.get_ref().value, value * value);
                }
            })
        });
        futures_util::future::join_all(calls).await;
    })
    .await;
}

/// A stream that nobody reads does not run away, and one that is dropped ends at the server.
#[tokio::test]
async fn a_grpc_stream_is_cancelled() {
    within(async {
        let (target, key, streams) = grpc_server();
        let mut client = grpc::client(&target, &key).expect("a fingerprint");
        let others = Arc::strong_count(&streams) - 1;
        let mut numbers = client.from(Number { value: 7 }).await.expect("begun").into_inner();
        for value in 7..10_000 {
            assert_eq!(numbers.next().await.expect("more").expect("a number"), Number { value });
        }
        assert!(Arc::strong_count(&streams) > 1 + others, "the server has ended an endless stream");
        drop(numbers);
        is_alone(&streams, others).await;
        // The channel is as good as before.
        assert_eq!(client.square(Number { value: 3 }).await.expect("answered").get_ref().value, 9);
    })
    .await;
}

#[tokio::test]
async fn a_grpc_deadline_ends_a_call() {
    within(async {
        let (target, key, _) = grpc_server();
        let mut client = grpc::client(&target, &key).expect("a fingerprint");
        let mut request = Request::new(Number { value: 3_600_000 });
        request.set_timeout(Duration::from_millis(20));
        let status = client.after(request).await.expect_err("an hour is too long");
        assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
        let mut request = Request::new(Number { value: 1 });
        request.set_timeout(PATIENCE);
        assert_eq!(client.after(request).await.expect("in time").get_ref().value, 1);
    })
    .await;
}

/// A server that begins anew is connected to anew, by the next call.
#[tokio::test]
async fn a_grpc_channel_outlives_its_connection() {
    within(async {
        let identity = Identity::generate().expect("a key");
        let first = listener(identity.clone(), "127.0.0.1:0");
        let (at, key) = (first.local_addr().to_string(), first.fingerprint().to_string());
        let mut client = grpc::client(&at, &key).expect("a fingerprint");
        let accepted = {
            let asked = client.square(Number { value: 4 });
            let serving = async {
                let connection = first.accept().await.expect("a client");
                let flow = connection.accept_flow().await.expect("a flow");
                (connection, flow)
            };
            tokio::select! {
                _ = asked => panic!("nobody answers yet"),
                accepted = serving => accepted,
            }
        };
        accepted.0.close(0, "begins anew").await;
        drop((accepted, first));
        // The port is free once the first has let go of it.
        let second = loop {
            let options = ServerOptions::new(identity.clone());
            match Listener::bind(at.parse().expect("an address"), options) {
                Ok(second) => break second,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        tokio::spawn(grpc::serve(second, grpc::Squares::default()));
        let answer = loop {
            // What was under way when the connection ended may fail.
            match client.square(Number { value: 5 }).await {
                Ok(answer) => break answer,
                Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
            }
        };
        assert_eq!(answer.get_ref().value, 25);
    })
    .await;
}

#[tokio::test]
async fn tarpc_calls_are_answered_cancelled_and_end_in_time() {
    within(async {
        let listener = listener(Identity::generate().expect("a key"), "127.0.0.1:0");
        let target = listener.local_addr().to_string();
        let options = ConnectOptions::pinned(listener.fingerprint());
        let service = tarpc_example::Squares::default();
        let calls = service.calls.clone();
        tokio::spawn(tarpc_example::serve(listener, service));
        let connection = uts::connect(&target, options).await.expect("connected");
        let client = tarpc_example::client(&connection).await.expect("a flow");
        let now = tarpc::context::current;
        assert_eq!(client.square(now(), 12).await.expect("answered"), Some(144));
        assert_eq!(client.square(now(), u64::MAX).await.expect("answered"), None);
        let at_rest = Arc::strong_count(&calls) - 1;
        // A call that is dropped is stopped at the server.
        let mut long = now();
        long.deadline = std::time::Instant::now() + PATIENCE;
        let asked = client.after(long, 3_600_000);
        let begun = async {
            while Arc::strong_count(&calls) <= 1 + at_rest {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            _ = asked => panic!("it takes an hour"),
            () = begun => {}
        }
        is_alone(&calls, at_rest).await;
        // So is one whose deadline passes.
        let mut short = now();
        short.deadline = std::time::Instant::now() + Duration::from_millis(20);
        let late = client.after(short, 3_600_000).await;
        assert!(matches!(late, Err(tarpc::client::RpcError::DeadlineExceeded)), "{late:?}");
        is_alone(&calls, at_rest).await;
        assert_eq!(client.square(now(), 3).await.expect("answered"), Some(9));
    })
    .await;
}
