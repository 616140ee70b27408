//! Streams that outlive what carries them: the client's end of `uts pipe`, and all that can become
//! of its connections.

use crate::programs::{By, Plan, Service};
use crate::sockets::Stream;
use crate::world::{CLIENT, KEPT_AT, PIPE, SILENCE, World, run};
use crate::{CLEAN, DISORDER, SATELLITE, seeds, talk};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};
use uts::Connection;
use uts::simulation::Target;
use uts_tunnel::link::Broken;
use uts_tunnel::pipe::{self, WINDOW_BYTES};
use uts_tunnel::resumed::{Client, How, Lost, Session, Step};
use uts_tunnel::sockets::{Listener as _, Resetting, Sockets as _, Tcp as _};

/// Streams at once: each has a connection.
const TALKS: u32 = 4;

/// Ports of the endpoints of clients, as they get them in turn.
const PORTS: std::ops::Range<u16> = 20_000..20_060;

/// A server that was silent for so long is looked for.
const SILENT: Duration = Duration::from_secs(120);

/// Looks for a silent server by another connection, as `uts pipe` does: one that was started again
/// does not tell a client whose address has changed that it knows nothing of it (P-54).
async fn look(world: &World, link: &Mutex<Option<Connection>>) {
    loop {
        sleep(SILENT / 4).await;
        let link = link.lock().expect("no panic").clone();
        let is_silent = |link: &Connection| link.silence().is_some_and(|silence| silence >= SILENT);
        let Some(link) = link.filter(is_silent) else { continue };
        if let Ok(found) = world.connect(pipe::SERVICE).await {
            found.close(0, "only looking").await;
            link.ask_for_answer();
        }
    }
}

/// Carries what a program says by connections, one after the other, to the service and back.
async fn carry(program: Stream, world: &World) -> Result<How, Lost> {
    let session = Arc::new(Session::new(WINDOW_BYTES));
    let (client, mut offers) = Client::new(session.clone(), PIPE, SILENCE).expect("random bytes");
    let (mut program, link) = (Resetting::new(program), Mutex::default());
    let connect = async || {
        let connected = world.connect(pipe::SERVICE).await;
        connected.map_err(|error| Broken { why: error.to_string(), is_worth_retrying: true })
    };
    let told = |step: Step<'_, Connection>| match step {
        Step::Connected(connected) => {
            world.log.note("connected");
            *link.lock().expect("no panic") = Some(connected.clone());
        }
        Step::Works(works) => world.log.note(format_args!("works: {works}")),
        Step::Lost(why) => world.log.note(format_args!("lost: {why}")),
    };
    let ended = {
        let (from, to) = program.socket().split();
        let running = session.run(from, to, &mut offers, SILENCE, |news| client.on_news(news));
        tokio::select! {
            biased;
            ended = running => ended,
            broken = client.go_on("UTS", None, connect, told) => Err(Lost(broken.why)),
            () = look(world, &link) => unreachable!("it goes on for ever"),
        }
    };
    match &ended {
        Ok(How::Orderly) => program.end(),
        Ok(How::Reset) => program.reset().await,
        Err(_) => drop(program),
    }
    ended
}

/// Something that becomes of the path, or of an end.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// The path is dead for so long.
    Silence(Duration),
    /// The client's packets come from another address.
    Moved,
    /// The server's connections are lost, and there is no server for so long.
    ServerLost(Duration),
}

impl Trouble {
    fn drawn(rng: &mut ChaCha8Rng) -> Trouble {
        match rng.random_range(0..4) {
            3 => Trouble::ServerLost(Duration::from_secs(rng.random_range(1..900))),
            _ => Trouble::of_the_path(rng),
        }
    }

    /// Draws one that a connection outlives.
    pub fn of_the_path(rng: &mut ChaCha8Rng) -> Trouble {
        match rng.random_range(0..3) {
            0 => Trouble::Silence(Duration::from_secs(600)),
            1 => Trouble::Silence(Duration::from_secs(3 * 3600)),
            _ => Trouble::Moved,
        }
    }

    /// Has it happen, and pass.
    pub async fn happen(self, world: &World, round: u8) {
        world.log.note(format_args!("{self:?}"));
        let network = &world.network;
        match self {
            Trouble::Silence(lasts) => {
                network.change(Target::Both, "down").expect("set");
                sleep(lasts).await;
                network.change(Target::Both, "up").expect("set");
            }
            Trouble::Moved => {
                for port in PORTS {
                    let to = SocketAddr::new(IpAddr::from([10, 9, round, 9]), port);
                    // Most of them are not there.
                    let _ = network.rebind(SocketAddr::new(CLIENT, port), to);
                }
            }
            Trouble::ServerLost(lasts) => {
                world.kill();
                sleep(lasts).await;
                world.serve();
            }
        }
    }
}

fn plans(rng: &mut ChaCha8Rng) -> Vec<Plan> {
    let drawn = (0..TALKS).map(|number| Plan {
        by: By::Kept,
        after: Duration::from_millis(rng.random_range(0..500)),
        pause: Duration::from_millis(rng.random_range(200..9_000)),
        ..Plan::drawn(number, rng)
    });
    drawn.collect()
}

fn in_trouble(path: &str, seed: u64) -> Vec<String> {
    run(path, seed, async |world| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let plans = plans(&mut rng);
        let kept = async {
            let at = world.near.listen(KEPT_AT.into()).await.expect("bound");
            let accepted = async || carry(at.accept().await.expect("accepted").0, &world).await;
            let all = tokio::join!(accepted(), accepted(), accepted(), accepted());
            world.log.note(format_args!("{all:?}"));
            let all = [all.0, all.1, all.2, all.3];
            assert!(all.iter().all(Result::is_ok), "{all:?}");
        };
        let troubles = async {
            for round in 0..rng.random_range(1..4) {
                sleep(Duration::from_millis(rng.random_range(300..9_000))).await;
                Trouble::drawn(&mut rng).happen(&world, round).await;
            }
        };
        tokio::join!(kept, talk(&world, &plans), troubles);
        // A server whose client's last word is lost with its carrier waits for another one (T-15).
        world.end_within(2 * SILENCE).await
    })
}

#[test]
fn kept_streams_are_whole_whatever_becomes_of_their_connections() {
    for seed in seeds(20) {
        in_trouble([CLEAN, SATELLITE, DISORDER][seed as usize % 3], seed);
    }
}

/// The client's last word is lost, for which its server waits a day: the service need not.
#[test]
fn a_service_is_reset_before_it_is_known_that_the_stream_is_over() {
    run(CLEAN, 1, async |world| {
        let at = world.near.listen(KEPT_AT.into()).await.expect("bound");
        let service = Service::listen(&world.far).await;
        let kept = async { carry(at.accept().await.expect("accepted").0, &world).await };
        let talk = async {
            let mut program = world.near.connect(KEPT_AT.into()).await.expect("it listens");
            program.write_all(b"?").await.expect("written");
            let (mut service, _) = service.accept().await.expect("accepted");
            assert_eq!(service.read_u8().await.expect("said"), b'?');
            Resetting::new(program).reset().await;
            // The reset has come by then, and the client does not know it.
            sleep(Duration::from_millis(15)).await;
            world.network.change(Target::Both, "down").expect("set");
            let heard = timeout(Duration::from_secs(1), service.read_u8()).await.expect("it hears of it");
            assert_eq!(heard.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
        };
        assert_eq!(tokio::join!(kept, talk).0, Ok(How::Reset));
        drop((at, service));
        world.end_within(2 * SILENCE).await
    });
}

#[test]
fn the_same_seed_is_the_same_trouble() {
    for seed in seeds(6) {
        let path = [CLEAN, SATELLITE, DISORDER][seed as usize % 3];
        crate::assert_alike(seed, path, in_trouble);
    }
}
