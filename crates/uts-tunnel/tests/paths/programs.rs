//! Programs that talk over a connection: each says what it has to say, in pieces and with pauses,
//! and holds all that it hears against what the other has to say.

use crate::sockets::{At, Machine, Stream};
use crate::world::{ENTRY_AT, KEPT_AT, REFUSING_AT, REMOTE_AT, SERVICE_AT, SILENT_AT, SOCKS_AT};
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uts_tunnel::sockets::{Listener, Resetting, Sockets, Tcp};

/// Bytes of the number that a program says first.
const NUMBER_BYTES: usize = 4;

/// Way by which a program reaches the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// From the client's host, by a port that leads to the service.
    Port,
    /// From the client's host, by SOCKS5.
    Socks,
    /// From the server's host, by a port of the client's.
    Remote,
    /// From the client's host, by a stream that outlives its connections.
    Kept,
}

/// End of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both say what they have to say, and end it.
    Orderly,
    /// The service speaks once the program has ended what it says.
    AnswerLast,
    /// The service says its part, and resets the connection.
    ServiceResets,
    /// The program says its part, hears something, and resets the connection.
    ProgramResets,
}

/// A conversation.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub number: u32,
    pub by: By,
    pub ending: Ending,
    /// Time before it begins.
    pub after: Duration,
    /// Bytes that the program has to say, and the service.
    pub bytes: [usize; 2],
    pub seed: u64,
    /// Longest pause between two pieces.
    pub pause: Duration,
}

impl Plan {
    /// Draws a conversation.
    pub fn drawn(number: u32, rng: &mut impl rand::Rng) -> Plan {
        let most = [10, 3_000, 150_000][rng.random_range(0..3)];
        Plan {
            number,
            by: [By::Port, By::Socks, By::Remote][rng.random_range(0..3)],
            ending: match rng.random_range(0..8) {
                0..4 => Ending::Orderly,
                4..6 => Ending::AnswerLast,
                6 => Ending::ServiceResets,
                _ => Ending::ProgramResets,
            },
            after: Duration::from_millis(rng.random_range(0..3_000)),
            bytes: [rng.random_range(0..most), rng.random_range(1..=most)],
            seed: rng.next_u64(),
            pause: Duration::from_millis([0, 30, 700][rng.random_range(0..3)]),
        }
    }

    /// Words of the program (0) or of the service (1).
    fn words(&self, side: usize) -> Vec<u8> {
        let mut words = vec![0; self.bytes[side]];
        ChaCha8Rng::seed_from_u64(self.seed ^ (side as u64 + 1)).fill_bytes(&mut words);
        if side == 0 {
            words.splice(0..0, self.number.to_be_bytes());
        }
        words
    }

    /// Says the words of one side, in pieces.
    async fn say(&self, side: usize, begin: usize, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ (side as u64 + 11));
        let words = self.words(side);
        let mut left = &words[begin..];
        while !left.is_empty() {
            let (piece, rest) = left.split_at(rng.random_range(1..=left.len().min(20_000)));
            to.write_all(piece).await?;
            left = rest;
            if !self.pause.is_zero() && !left.is_empty() {
                sleep(self.pause.mul_f64(rng.random())).await;
            }
        }
        Ok(())
    }

    /// Hears the words of the other side, which are right as far as they come. Returns how many,
    /// and how they end.
    async fn hear(
        &self,
        side: usize,
        begin: usize,
        from: &mut (impl AsyncRead + Unpin),
    ) -> (usize, io::Result<()>) {
        let words = self.words(side);
        let (mut at, mut chunk) = (begin, vec![0; 10_000]);
        loop {
            match from.read(&mut chunk).await {
                Ok(0) => return (at, Ok(())),
                Ok(bytes) => {
                    let right = words.get(at..at + bytes);
                    assert!(right == Some(&chunk[..bytes]), "{self:?}: wrong from {at} on, of {bytes} bytes");
                    at += bytes;
                }
                Err(error) => return (at, Err(error)),
            }
        }
    }

    /// Holds what was heard against the plan.
    fn check(&self, side: usize, (bytes, ended): &(usize, io::Result<()>)) {
        let all = self.words(side).len();
        let resets = match self.ending {
            Ending::ServiceResets => side == 1,
            Ending::ProgramResets => side == 0,
            Ending::Orderly | Ending::AnswerLast => {
                assert!(*bytes == all && ended.is_ok(), "{self:?}: {bytes} of {all} bytes, {ended:?}");
                return;
            }
        };
        // Who resets has had enough; what it has said before all the same arrives.
        let is_reset = ended.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset);
        assert!(!resets || (*bytes == all && is_reset), "{self:?}: {bytes} of {all} bytes, {ended:?}");
    }

    /// Says, and hears, until both have ended, or this side resets the connection.
    async fn talk(&self, side: usize, mut stream: Stream, heard_before: usize) -> (usize, io::Result<()>) {
        let own_reset = [Ending::ProgramResets, Ending::ServiceResets][side];
        if self.ending == own_reset {
            let mut stream = Resetting::new(stream);
            let socket = stream.socket();
            self.say(side, 0, socket).await.unwrap_or_else(|error| panic!("{self:?}: {error}"));
            if side == 0 {
                let mut first = [0];
                socket.read_exact(&mut first).await.unwrap_or_else(|error| panic!("{self:?}: {error}"));
            }
            stream.reset().await;
            return (0, Ok(()));
        }
        let heard = {
            let (mut from, mut to) = stream.split();
            let ended = watch::Sender::new(false);
            let saying = async {
                if side == 1 && self.ending == Ending::AnswerLast {
                    let _ = ended.subscribe().wait_for(|ended| *ended).await;
                }
                // An error shows in what is heard.
                if self.say(side, 0, &mut to).await.is_ok() {
                    let _ = to.shutdown().await;
                }
            };
            let hearing = async {
                let heard = self.hear(1 - side, heard_before, &mut from).await;
                ended.send_replace(true);
                heard
            };
            tokio::join!(saying, hearing).1
        };
        self.check(1 - side, &heard);
        heard
    }

    /// The program's part.
    pub async fn begin(&self, machine: &Machine) -> (usize, io::Result<()>) {
        sleep(self.after).await;
        let at = match self.by {
            By::Port => ENTRY_AT,
            By::Socks => SOCKS_AT,
            By::Remote => REMOTE_AT,
            By::Kept => KEPT_AT,
        };
        let mut stream = machine.connect(at.into()).await.expect("somebody listens");
        if self.by == By::Socks {
            let reply = socks(&mut stream, SERVICE_AT.into()).await;
            assert_eq!(reply, Ok(0), "{self:?}");
        }
        self.talk(0, stream, 0).await
    }
}

/// Asks for a place by SOCKS5. Returns the code of the reply.
pub async fn socks(stream: &mut Stream, place: SocketAddr) -> Result<u8, String> {
    let SocketAddr::V4(place) = place else { return Err("not of IPv4".to_owned()) };
    let mut reply = [0; 2 + 10];
    let asked = async {
        stream.write_all(&[5, 1, 0]).await?;
        stream.read_exact(&mut reply[..2]).await?;
        let request = [&[5, 1, 0, 1][..], &place.ip().octets(), &place.port().to_be_bytes()].concat();
        stream.write_all(&request).await?;
        stream.read_exact(&mut reply[2..]).await
    };
    asked.await.map_err(|error| error.to_string())?;
    Ok(reply[3])
}

/// A service that has its part in all conversations.
pub struct Service {
    plans: Vec<Plan>,
    ended: UnboundedSender<String>,
}

impl Service {
    /// A service with its part in these, and what becomes of each part of them.
    pub fn new(plans: &[Plan]) -> (Arc<Service>, UnboundedReceiver<String>) {
        let (ended, done) = unbounded_channel();
        (Arc::new(Service { plans: plans.to_vec(), ended }), done)
    }

    /// A part of a conversation is done.
    pub fn done(&self, whose: &str, number: u32, (bytes, ended): (usize, io::Result<()>)) {
        // Nobody listens when the run has failed.
        let _ = self.ended.send(format!("{whose} {number}: {bytes} bytes, {ended:?}"));
    }

    /// Listens at a host.
    pub async fn listen(machine: &Machine) -> At {
        machine.listen(SERVICE_AT.into()).await.expect("bound")
    }

    /// Talks with all who come, as long as this is polled.
    pub async fn serve(self: Arc<Self>, at: At) {
        let mut talking = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                Some(ended) = talking.join_next(), if !talking.is_empty() => ended.expect("no panic"),
                accepted = at.accept() => {
                    let (stream, _) = accepted.expect("accepted");
                    let service = self.clone();
                    talking.spawn(async move { service.talk(stream).await });
                }
            }
        }
    }

    async fn talk(&self, mut stream: Stream) {
        let mut number = [0; NUMBER_BYTES];
        stream.read_exact(&mut number).await.expect("a number");
        let number = u32::from_be_bytes(number);
        let plan = self.plans[number as usize];
        self.done("service", number, plan.talk(1, stream, NUMBER_BYTES).await);
    }
}

/// Refused and silent places, by SOCKS5, with their codes.
pub const BAD_PLACES: [(([u8; 4], u16), u8); 3] =
    [(REFUSING_AT, 5), (SILENT_AT, 6), (([198, 51, 100, 1], 80), 2)];
