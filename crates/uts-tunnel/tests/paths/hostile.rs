//! Places that refuse, and peers that say something else than the words of a tunnel.

use crate::programs::{BAD_PLACES, socks};
use crate::world::{ENTRY_AT, PIPE, SOCKS_AT, World, ask, run};
use crate::{CLEAN, SATELLITE, plans, seeds, talk};
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};
use uts::{Connection, FlowOptions, Requirements};
use uts_tunnel::forward::{Place, Protocol};
use uts_tunnel::pipe::{self, resumable_request};
use uts_tunnel::resumed::{Hello, Ticket};
use uts_tunnel::sockets::Sockets as _;
use uts_tunnel::stream::read_answer;
use uts_tunnel::wire::{Asked, Opening};

/// Time in which a peer that says something wrong, or nothing, is done with.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn what_cannot_be_connected_is_said_to_programs_and_people() {
    run(SATELLITE, 1, async |world| {
        let tunnel = world.tunnel().await;
        for (place, code) in BAD_PLACES {
            let begun = Instant::now();
            let mut program = world.near.connect(SOCKS_AT.into()).await.expect("it listens");
            assert_eq!(socks(&mut program, place.into()).await, Ok(code), "{place:?}");
            assert!(begun.elapsed() < Duration::from_secs(25), "{place:?}: {:?}", begun.elapsed());
        }
        // Who speaks no SOCKS hears it by a reset.
        let mut program = world.near.connect(ENTRY_AT.into()).await.expect("it listens");
        let error = program.read_u8().await.expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        drop(program);
        let mut program = world.near.connect(SOCKS_AT.into()).await.expect("it listens");
        program.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("written");
        program.read_u8().await.expect_err("that is no SOCKS");
        drop(program);
        for says in [
            "192.0.2.80:80 does not answer: connection refused",
            "192.0.2.81:80 does not answer: connection refused",
            "192.0.2.82:80 does not answer: timed out",
            "198.51.100.1:80 is not permitted",
            "its first byte is 71, not 5",
        ] {
            assert!(world.log.says(says), "{says}: {:#?}", world.log.lines());
        }
        tunnel.close().await;
        world.end().await
    });
}

/// A request that is right, or was, before bytes of it were changed, cut off or added.
fn drawn(right: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = right.to_vec();
    for _ in 0..rng.random_range(0..4) {
        let at = rng.random_range(0..bytes.len().max(1));
        match rng.random_range(0..4) {
            0 => bytes.truncate(at),
            1 => bytes.extend(rng.next_u64().to_be_bytes()),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = [0, 1, 0x7f, 0x80, 0xff, rng.random()][rng.random_range(0..6)];
                }
            }
        }
    }
    bytes
}

/// Says something in a flow of its own, ends it or not, and hears all that is answered.
async fn say(connection: &Connection, bytes: &[u8], rng: &mut ChaCha8Rng) {
    let mut options = FlowOptions::default();
    let is_message = rng.random_bool(0.3);
    if is_message {
        options = FlowOptions::requiring(Requirements::messages());
    }
    let (mut send, mut recv) = connection.open_flow(options).await.expect("open").split();
    let said = match is_message {
        true => send.send_message(bytes.to_vec().into(), Default::default()).await.is_ok(),
        false => send.write_all(bytes).await.is_ok(),
    };
    if rng.random_bool(0.7) && said {
        let _ = send.shutdown().await;
    }
    let mut answer = [0; 1000];
    let answered = async { while recv.read(&mut answer).await.is_ok_and(|bytes| bytes > 0) {} };
    // A place that is listened at, or a service that was asked for, says nothing of its own.
    let _ = timeout(PATIENCE, answered).await;
}

#[test]
fn a_server_outlives_nonsense_in_requests() {
    for seed in seeds(10) {
        run(CLEAN, seed, async |world| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let tunnel = world.tunnel().await;
            let pipes = world.connect(pipe::SERVICE).await.expect("connected");
            let place = Place { host: "192.0.2.80".to_owned(), port: 80 };
            let properties = vec![("connPriority".to_owned(), "7".to_owned())];
            let request = |asked| Opening { asked, properties: properties.clone() }.emit();
            let hello = Hello {
                ticket: Ticket::generate().expect("random bytes"),
                is_new: true,
                number: 1,
                received: 0,
                window: 100_000,
                silence_s: 30,
            };
            let right = [
                request(Asked::Connect(Protocol::Tcp, place.clone())),
                request(Asked::Connect(Protocol::Udp, place.clone())),
                request(Asked::Listen(Protocol::Tcp, 0, place)),
                request(Asked::Arrived(Protocol::Tcp, 0)),
                request(Asked::Properties),
                resumable_request(PIPE, &hello),
                // Frames: data, what was taken, an end, a reset, a question and its answer.
                [&resumable_request(PIPE, &hello)[..], &[0, 0, 0, 1, 9], &[1; 9], &[2, 3, 4, 5]].concat(),
            ];
            for _ in 0..20 {
                let bytes = drawn(&right[rng.random_range(0..right.len())], &mut rng);
                let connection = if rng.random_bool(0.5) { &tunnel.connection } else { &pipes };
                say(connection, &bytes, &mut rng).await;
            }
            // Others are served as ever.
            talk(&world, &plans(seed)).await;
            pipes.close(0, "done").await;
            drop(pipes);
            tunnel.close().await;
            world.end().await
        });
    }
}

#[test]
fn what_is_wrong_with_a_request_is_answered() {
    run(CLEAN, 3, async |world| {
        let tunnel = world.tunnel().await;
        for (bytes, says) in [
            (&[3, 0, 0, 0, 1, b'x', 0, 80, 0][..], "a tunnel of version 3"),
            (&[1, 9, 0, 0, 1, b'x', 0, 80, 0], "a request of kind 9"),
            (&[1, 0, 0, 0, 1, b'x', 0, 0, 0], "is no place"),
            (&[1, 2, 0, 0, 0, 0, 0, 0], "takes only what it is asked to connect"),
            (&[1, 0, 0, 0, 9, b'x'], "eof"),
        ] {
            let flow = tunnel.connection.open_flow(FlowOptions::default()).await.expect("open");
            let (mut send, mut recv) = flow.split();
            send.write_all(bytes).await.expect("written");
            send.shutdown().await.expect("ended");
            let refused = read_answer(&mut recv).await.expect("an answer").expect_err("refused");
            assert!(refused.why.contains(says), "{bytes:?}: {refused}");
        }
        let asked = Asked::Connect(Protocol::Udp, Place { host: "192.0.2.80".to_owned(), port: 80 });
        let opening = Opening { asked, properties: Vec::new() };
        let why = ask(&tunnel.connection, &opening).await.map(drop).expect_err("refused");
        assert!(why.contains("datagrams are asked for in a flow of bytes"), "{why}");
        tunnel.close().await;
        world.end().await
    });
}

/// A server that answers each request with something else, and asks for things itself.
async fn odd(world: &World, mut rng: ChaCha8Rng) {
    let listener = world.listener();
    let connection = listener.accept().await.expect("a client");
    let opening = Opening { asked: Asked::Arrived(Protocol::Tcp, 0), properties: Vec::new() };
    loop {
        let Some(flow) = connection.accept_flow().await else { return };
        let (mut send, mut recv) = flow.split();
        let answer = drawn(&[0, 0, b'h', b'i'], &mut rng);
        if send.write_all(&answer).await.is_ok() && rng.random_bool(0.5) {
            let _ = send.shutdown().await;
        }
        let mut said = [0; 100];
        let _ = recv.read(&mut said).await;
        let asked = drawn(&opening.emit(), &mut rng);
        say(&connection, &asked, &mut rng).await;
    }
}

#[test]
fn a_client_outlives_a_server_that_says_something_else() {
    for seed in seeds(10) {
        run(CLEAN, seed, async |world| {
            world.kill();
            let rng = ChaCha8Rng::seed_from_u64(seed);
            let programs = async {
                let tunnel = world.tunnel().await;
                for _ in 0..8 {
                    let mut program = world.near.connect(ENTRY_AT.into()).await.expect("it listens");
                    program.write_all(b"is anybody there?").await.expect("written");
                    let heard = async {
                        let mut heard = Vec::new();
                        let ended = program.read_to_end(&mut heard).await;
                        world.log.note(format_args!("{heard:?} {ended:?}"));
                    };
                    // Behind an answer that is right a service may be silent for long.
                    let _ = timeout(PATIENCE, heard).await;
                }
                tunnel.close().await;
            };
            tokio::join!(programs, odd(&world, rng));
            world.end().await
        });
    }
}
