//! Peers that keep to no rule: nobody else suffers, and what they can make an end hold is bounded.

use super::super::{CallErrorKind, Methods, RecvError, Served};
use super::{PLACE, Server, any};
use crate::ledger::{Budget, Ledger, Resource};
use crate::simulation::testing::{FAIR, begin};
use crate::{Connection, Flow, FlowOptions, Identity, Listener, ServerOptions};
use bytes::Bytes;
use core::time::Duration;
use rand::{Rng, RngExt, SeedableRng};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

async fn flow(connection: &Connection) -> Flow {
    connection.open_flow(FlowOptions::default()).await.expect("opened")
}

fn methods() -> Methods {
    Methods::new().on_message("echo", |message| async move { Ok(message) }).on(
        "stream",
        |mut call: Served| async move {
            while let Some(message) = call.request.recv().await? {
                call.answer.send(message).await?;
            }
            Ok(())
        },
    )
}

/// The ledger holds nothing for calls.
fn assert_nothing_is_held(ledger: &Ledger) {
    for row in ledger.rows() {
        assert_eq!(row.held, 0, "{row:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_is_told_anything_and_serves_others() {
    let _network = begin(FAIR, 1);
    let ledger = Ledger::of_server(&Budget { memory_bytes: 64 << 20, threads: 4, files: 10, sockets: 10 });
    let server = Server::new(methods().with_ledger(ledger.clone()));
    let (hostile, caller) = (server.connect().await, server.caller());
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
    for n in 0..300_u32 {
        let (mut send, mut recv) = flow(&hostile).await.split();
        let mut bytes = vec![1, 0, 0, 0, 0, 4];
        bytes.extend_from_slice(if n % 2 == 0 { b"echo" } else { b"echX" });
        let mut noise = vec![0; rng.random_range(0..200)];
        rng.fill_bytes(&mut noise);
        match n % 4 {
            0 => bytes = noise,
            1 => bytes.truncate(rng.random_range(0..11)),
            // A message that is said to be as long as can be.
            2 => bytes.extend_from_slice(&[0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 2, 3]),
            _ => bytes.extend_from_slice(&noise),
        }
        let _ = send.write_all(&bytes).await;
        match n % 3 {
            0 => drop(send.finish()),
            1 => send.reset(9),
            _ => {}
        }
        if n % 5 == 0 {
            recv.stop(3);
        }
        if n % 10 == 0 {
            let answer = caller.call("echo", Bytes::from_static(b"still"), &any()).await;
            assert_eq!(answer.expect("served"), "still");
        }
    }
    drop(hostile);
    // Less than the idle time-out of the others.
    sleep(Duration::from_secs(25)).await;
    assert_eq!(caller.call("echo", Bytes::from_static(b"still"), &any()).await.expect("served"), "still");
    assert_nothing_is_held(&ledger);
}

/// Many calls that are begun and never go on: each is refused in time, and gives back its place.
#[tokio::test(start_paused = true)]
async fn calls_that_do_not_go_on_are_refused_in_time() {
    let _network = begin(FAIR, 2);
    let ledger = Ledger::of(Resource::Requests, 40, true);
    let server = Server::new(methods().with_ledger(ledger.clone()));
    let (hostile, caller) = (server.connect().await, server.caller());
    let mut held = Vec::new();
    for n in 0..90_usize {
        let mut flow = flow(&hostile).await;
        let begin = &[1, 0, 0, 0, 0, 4, b'e', b'c', b'h', b'o', 0, 9, 9][..1 + n % 13];
        flow.write_all(begin).await.expect("written");
        held.push(flow);
    }
    sleep(Duration::from_secs(1)).await;
    let of_hostile = ledger.rows()[Resource::Requests as usize].held;
    assert!((10..=40).contains(&of_hostile), "{of_hostile}");
    // They are of one address here; the others have their part after the time for requests.
    sleep(Duration::from_secs(20)).await;
    assert_nothing_is_held(&ledger);
    assert_eq!(caller.call("echo", Bytes::from_static(b"x"), &any()).await.expect("served"), "x");
    for mut flow in held {
        let mut answer = Vec::new();
        flow.read_to_end(&mut answer).await.expect("refused in order");
        assert_eq!(answer[0], 1, "{answer:?}");
    }
}

/// A line may be slow: a request is waited for as long as something comes.
#[tokio::test(start_paused = true)]
async fn a_request_that_comes_slowly_is_answered() {
    let _network = begin(FAIR, 5);
    let server = Server::new(methods());
    let mut flow = flow(&server.connect().await).await;
    flow.write_all(&[1, 0, 0, 0, 0, 4, b'e', b'c', b'h', b'o', 0, 10]).await.expect("written");
    for _ in 0..10 {
        sleep(Duration::from_secs(15)).await;
        flow.write_all(&[7]).await.expect("written");
    }
    flow.shutdown().await.expect("ended");
    let mut answer = Vec::new();
    flow.read_to_end(&mut answer).await.expect("read");
    assert_eq!(answer, [&[0, 10][..], &[7; 10]].concat());
}

/// Messages that are gathered are paid for, and what cannot be is refused.
#[tokio::test(start_paused = true)]
async fn memory_for_requests_is_bounded() {
    let _network = begin(FAIR, 3);
    let budget = Budget { memory_bytes: 4 << 20, threads: 4, files: 10, sockets: 10 };
    let ledger = Ledger::of_server(&budget);
    let server = Server::new(methods().with_ledger(ledger.clone()));
    let hostile = server.connect().await;
    let mut held = Vec::new();
    for _ in 0..20 {
        let mut flow = flow(&hostile).await;
        // A message of 512 kB that is never whole.
        let mut begin = vec![1, 0, 0, 0, 0, 4, b'e', b'c', b'h', b'o', 0, 0x80, 8, 0, 0];
        begin.resize(200_000, 0);
        let _ = timeout(Duration::from_secs(1), flow.write_all(&begin)).await;
        held.push(flow);
    }
    sleep(Duration::from_secs(1)).await;
    let row = ledger.rows().swap_remove(Resource::Memory as usize);
    assert!(row.held > 0 && row.held <= row.total, "{row:?}");
    drop(held);
    sleep(Duration::from_secs(1)).await;
    assert_nothing_is_held(&ledger);
}

/// A server that answers anything: the call ends with an error, and nothing is held.
#[tokio::test(start_paused = true)]
async fn a_caller_is_told_anything_and_hears_of_it() {
    let _network = begin(FAIR, 4);
    let identity = Identity::generate().expect("a key");
    let options = ServerOptions::new(identity.clone());
    let listener = Listener::bind(SocketAddr::from(PLACE), options).expect("bound");
    let answers: Vec<Vec<u8>> = vec![
        vec![],
        vec![0],
        vec![0, 0],
        vec![0, 5, 1],
        vec![3],
        vec![0, 0, 1, 2, 0],
        vec![1, 200, 255],
        vec![1, 99, 2, 0xFF, 0x1b],
        vec![2, 0, 0, 0, 1, 0, 7],
        vec![0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1],
        [vec![0, 0x80, 0x20, 0, 0], vec![0; 0x20_0000]].concat(),
        vec![0, 1, 7, 0, 1, 7],
    ];
    let told = answers.clone();
    tokio::spawn(async move {
        let connection = listener.accept().await.expect("a client");
        for answer in told {
            let (mut send, recv) = connection.accept_flow().await.expect("a call").split();
            tokio::spawn(async move {
                let _ = send.write_all(&answer).await;
                let _ = send.finished().await;
                drop(recv);
            });
        }
        connection.closed().await;
    });
    let caller = super::super::Caller::to(
        SocketAddr::from(PLACE).to_string(),
        crate::ConnectOptions::pinned(identity.fingerprint()),
    );
    for answer in answers {
        let begin = answer.get(..answer.len().min(12)).unwrap_or_default().to_vec();
        let said = timeout(Duration::from_secs(5), caller.call("m", Bytes::new(), &any())).await;
        let said = said.expect("it ends");
        if begin == [0, 0] {
            assert_eq!(said.expect("an empty message"), "");
            continue;
        }
        let error = said.expect_err("no answer");
        let is_right = match error.kind() {
            CallErrorKind::Answer(RecvError::TooLong { .. }) => {
                answer.len() > 100 || begin[1..9] == [0xFF; 8]
            }
            CallErrorKind::Answer(_) => answer.len() < 100,
            CallErrorKind::Refused { .. } => begin[..2] == [1, 99],
            // What follows it is not looked at.
            CallErrorKind::Failed { .. } => begin[0] == 2,
            other => panic!("{begin:?}: {other}"),
        };
        assert!(is_right, "{begin:?}: {error}");
        assert!(!error.to_string().contains('\u{1b}'), "{error:?}");
    }
}
