//! What workloads may rely on, whatever the rival: each adapter over loopback, both ends in one
//! thread.

use bytes::Bytes;
use serde_json::json;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};
use uts_end::{Context, Role, TransportSpec};
use uts_traffic::transport::{Listener, Session, Transport, TransportError};
use uts_traffic::workload::Workload;

/// A test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().expect("address")
}

fn spec(json: serde_json::Value) -> TransportSpec {
    serde_json::from_value(json).expect("spec")
}

/// The rivals of this build that carry a workload.
fn rivals_for(workload: &Workload) -> Vec<TransportSpec> {
    let context = Context { role: Role::Server, workload, peer: None };
    let all = uts_rival::list().into_iter().filter(|rival| rival.available);
    let specs: Vec<_> = all.map(|rival| TransportSpec::new(rival.name)).collect();
    let carries = |spec: &TransportSpec| {
        let capabilities = uts_rival::provide(spec, &context).expect("transport").capabilities();
        uts_traffic::workload::can_carry(workload, &capabilities).is_ok()
    };
    specs.into_iter().filter(carries).collect()
}

fn streams() -> Workload {
    Workload::Bulk { bytes: Some(1), duration: None }
}

fn messages() -> Workload {
    let (every, duration) = (Duration::from_millis(20), Duration::from_secs(1));
    Workload::Messages { every, bytes: 100, duration, deadline: duration }
}

struct Pair {
    server: Rc<dyn Session>,
    client: Rc<dyn Session>,
    listener: Box<dyn Listener>,
    message_bytes_max: usize,
}

async fn pair(spec: &TransportSpec, workload: &Workload) -> Pair {
    let make = |role, peer| uts_rival::provide(spec, &Context { role, workload, peer }).expect("transport");
    let at_server: Rc<dyn Transport> = make(Role::Server, None);
    let mut listener = at_server.listen(local()).await.expect("listener");
    let identity = at_server.identity();
    let at_client = make(Role::Client, identity.as_deref());
    let address = listener.address();
    let (server, client) = tokio::join!(listener.accept(), at_client.connect(address));
    let message_bytes_max = at_client.capabilities().message_bytes_max;
    Pair {
        server: server.expect("accepted"),
        client: client.expect("connected"),
        listener,
        message_bytes_max,
    }
}

/// Runs a test over all rivals that carry a workload, one after another.
fn over_all(workload: Workload, test: impl AsyncFn(&TransportSpec, Pair)) {
    for spec in rivals_for(&workload) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        let done = LocalSet::new().block_on(&runtime, async {
            timeout(PATIENCE, async {
                let pair = pair(&spec, &workload).await;
                test(&spec, pair).await;
            })
            .await
        });
        assert!(done.is_ok(), "{spec} hangs");
    }
}

/// Bytes that are told from each other.
fn content(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + (i >> 8) * 7 + seed) as u8).collect()
}

async fn read_to_end(
    stream: &mut dyn uts_traffic::transport::ReceiveStream,
) -> Result<Vec<u8>, TransportError> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 10_000]);
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(all),
            n => all.extend_from_slice(&buffer[..n]),
        }
    }
}

#[test]
fn a_direction_ends_before_the_other() {
    over_all(streams(), async |spec, pair| {
        let (question, answer) = (content(3_000_000, 1), content(2_000_001, 2));
        let asks = async {
            let mut stream = pair.client.open().await.expect("opened");
            stream.send.write(&question).await.expect("written");
            stream.send.finish().await.expect("finished");
            assert!(stream.send.write(b"more").await.is_err(), "{spec} writes after the end");
            read_to_end(&mut *stream.receive).await
        };
        let answers = async {
            let mut stream = pair.server.accept().await.expect("accepted");
            let got = read_to_end(&mut *stream.receive).await.expect("read");
            assert_eq!(stream.receive.read(&mut [0; 9]).await, Ok(0), "{spec}: the end is no end");
            stream.send.write(&answer).await.expect("written");
            stream.send.finish().await.expect("finished");
            got
        };
        let (got_answer, got_question) = tokio::join!(asks, answers);
        assert!(got_question == question, "{spec}");
        assert!(got_answer.expect("read") == answer, "{spec}");
    });
}

#[test]
fn what_was_not_read_outlives_the_close() {
    over_all(streams(), async |spec, pair| {
        let sent = content(100_000, 3);
        let sends = async {
            let mut stream = pair.client.open().await.expect("opened");
            stream.send.write(&sent).await.expect("written");
            stream.send.finish().await.expect("finished");
            drop(stream.receive);
            pair.client.close().await;
        };
        let reads = async {
            // Until the other end has long been closed.
            sleep(Duration::from_millis(700)).await;
            let mut stream = pair.server.accept().await.expect("accepted");
            drop(stream.send);
            assert!(read_to_end(&mut *stream.receive).await.expect("read") == sent, "{spec}");
            assert_eq!(pair.server.accept().await.err(), Some(TransportError::Closed), "{spec}");
        };
        tokio::join!(sends, reads);
    });
}

#[test]
fn a_stream_that_is_given_up_has_no_orderly_end() {
    over_all(streams(), async |spec, pair| {
        let gives_up = async {
            let mut stream = pair.client.open().await.expect("opened");
            stream.send.write(&content(50_000, 4)).await.expect("written");
            drop(stream.send);
            // The receiving direction goes on, or ends with the other; it is not what is looked at.
            sleep(Duration::from_millis(500)).await;
        };
        let reads = async {
            let mut stream = pair.server.accept().await.expect("accepted");
            let end = read_to_end(&mut *stream.receive).await;
            assert!(end.is_err(), "{spec}: {} bytes and an end", end.map_or(0, |got| got.len()));
        };
        tokio::join!(gives_up, reads);
    });
}

#[test]
fn streams_are_not_used_up() {
    const COUNT: usize = 300;
    over_all(streams(), async |spec, pair| {
        let opens = async {
            for n in 0..COUNT {
                let mut stream = pair.client.open().await.expect("opened");
                stream.send.write(&content(1000, n)).await.expect("written");
                stream.send.finish().await.expect("finished");
                // Every other is dropped before its answer has come.
                if n % 2 == 0 {
                    assert!(
                        read_to_end(&mut *stream.receive).await.expect("read") == content(10, n),
                        "{spec} {n}"
                    );
                }
            }
        };
        let accepts = async {
            let mut seen = vec![false; COUNT];
            for _ in 0..COUNT {
                let mut stream = pair.server.accept().await.expect("accepted");
                let got = read_to_end(&mut *stream.receive).await.expect("read");
                let n = (0..COUNT).find(|n| !seen[*n] && got == content(1000, *n)).expect("a content");
                seen[n] = true;
                // Of one that was dropped nobody may be there to read it.
                let _ = stream.send.write(&content(10, n)).await;
                let _ = stream.send.finish().await;
            }
        };
        tokio::join!(opens, accepts);
    });
}

#[test]
fn the_largest_message_arrives() {
    over_all(messages(), async |spec, pair| {
        let sent = Bytes::from(content(pair.message_bytes_max, 5));
        for (from, to) in [(&pair.client, &pair.server), (&pair.server, &pair.client)] {
            let sends = async {
                // Unreliable, so more than once.
                loop {
                    from.send_message(sent.clone(), None).await.expect("sent");
                    sleep(Duration::from_millis(100)).await;
                }
            };
            let got = tokio::select! {
                got = to.receive_message() => got.expect("received"),
                () = sends => unreachable!("sends without end"),
            };
            assert!(got == sent, "{spec}: {} bytes of {}", got.len(), sent.len());
        }
        let too_large = Bytes::from(vec![0; (pair.message_bytes_max + 1).max(2000)]);
        assert!(pair.client.send_message(too_large, None).await.is_err(), "{spec} takes what is too large");
    });
}

#[test]
fn messages_end_with_the_session() {
    over_all(messages(), async |spec, pair| {
        let sends = async {
            pair.client.send_message(Bytes::from_static(b"the only one"), None).await.expect("sent");
            pair.client.close().await;
        };
        let receives = async {
            assert_eq!(pair.server.receive_message().await.as_deref(), Ok(&b"the only one"[..]), "{spec}");
            assert_eq!(pair.server.receive_message().await, Err(TransportError::Closed), "{spec}");
        };
        tokio::join!(sends, receives);
    });
}

#[test]
fn a_session_outlives_its_listener() {
    over_all(streams(), async |spec, pair| {
        let Pair { server, client, listener, .. } = pair;
        drop(listener);
        let sends = async {
            let mut stream = client.open().await.expect("opened");
            stream.send.write(b"still here").await.expect("written");
            stream.send.finish().await.expect("finished");
            read_to_end(&mut *stream.receive).await.expect("read");
        };
        let reads = async {
            let mut stream = server.accept().await.expect("accepted");
            assert_eq!(read_to_end(&mut *stream.receive).await.expect("read"), b"still here", "{spec}");
            stream.send.finish().await.expect("finished");
        };
        tokio::join!(sends, reads);
    });
}

#[test]
fn another_server_is_not_taken_for_the_one_that_is_known() {
    for kind in ["quinn", "s2n-quic"] {
        let (spec, workload) = (TransportSpec::new(kind), streams());
        let make = |role, peer| uts_rival::provide(&spec, &Context { role, workload: &workload, peer });
        let (known, other) =
            (make(Role::Server, None).expect("one"), make(Role::Server, None).expect("another"));
        let known = known.identity();
        let client = make(Role::Client, known.as_deref()).expect("client");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        LocalSet::new().block_on(&runtime, async {
            let mut listener = other.listen(local()).await.expect("listener");
            let address = listener.address();
            let refused = tokio::select! {
                session = client.connect(address) => session.err(),
                _ = listener.accept() => None,
            };
            assert!(matches!(refused, Some(TransportError::Failed(_))), "{kind}: {refused:?}");
        });
    }
}

#[test]
fn encryption_is_said_and_done() {
    let workload = streams();
    let protected = |json| {
        let spec = spec(json);
        let context = Context { role: Role::Server, workload: &workload, peer: None };
        uts_rival::provide(&spec, &context).ok().map(|transport| transport.capabilities().protected)
    };
    assert_eq!(protected(json!({"kind": "quinn"})), Some(true));
    assert_eq!(protected(json!({"kind": "s2n-quic"})), Some(true));
    assert_ne!(protected(json!({"kind": "enet"})), Some(true));
    assert_ne!(protected(json!({"kind": "srt"})), Some(true));
    assert_ne!(protected(json!({"kind": "srt", "aes": "256"})), Some(false));
}
