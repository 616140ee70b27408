//! A server that takes over the port of another process of this host, and one that gives way.
//!
//! The newcomer asks at the control socket of the server that runs, which keeps its connections:
//!
//! 1. [`TAKE_OVER`]: the server answers with a line ([`Offer`]) and the descriptors. Nothing has
//!    changed.
//! 2. [`GO`]: the newcomer is ready. The server frees its other sockets, reads no more, and says
//!    [`YOURS`]. From then on the newcomer reads.
//! 3. Both keep the stream. If it ends without a word the newcomer has failed, and the server takes
//!    its port back. [`PASSED`]: a third process has it. [`END`]: whoever ends the newcomer ends
//!    the server, too.

use crate::control::TAKE_OVER;
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, interval, timeout};
use uts::printable::words;
use uts::{Handover, TakenOver, WORKERS_MAX};
use uts_tunnel::waits::until;

/// Words of the two.
const GO: &str = "go";
const YOURS: &str = "yours";
const PASSED: &str = "passed";
const END: &str = "end";

/// Time that a newcomer has until it is ready. Chosen: it counts the files that it serves.
const READY_MAX: Duration = Duration::from_secs(120);

/// Time that each waits for a word of the other that is due at once. Chosen: a busy host.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time between two looks at who is still there. Chosen: people see no delay.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The longest line of the other, in bytes: an [`Offer`] has a tenth of that.
const LINE_BYTES_MAX: usize = 4096;

/// Most descriptors: two for each worker.
const DESCRIPTORS_MAX: usize = 2 * WORKERS_MAX;

/// Answer of a server, beside its descriptors: sockets first, then links.
#[derive(Debug, Serialize, Deserialize)]
struct Offer {
    workers: usize,
    /// Its process.
    process: u32,
    /// Microseconds within which the service manager wants to hear that the server lives.
    watchdog_us: Option<u64>,
}

/// Something that happens to a server that may give way.
pub enum Step {
    /// A newcomer asks.
    Asked(UnixStream),
    /// It is ready: other sockets are to be freed before the answer.
    Ready(oneshot::Sender<()>),
    /// It has been told that the port is its own.
    Given,
    /// It has gone; this server has its port as before. True = it had given way.
    Lost(bool),
    /// It is time to look whether anybody is there.
    Look,
    /// Connections that are left are to end, for this reason.
    Over(String),
}

/// Part of the way to a successor that is behind this server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Serving,
    Offered,
    Gave(Instant),
}

/// The processes before and after this one.
pub struct Succession {
    asks: mpsc::Receiver<UnixStream>,
    steps: (mpsc::Sender<Step>, mpsc::Receiver<Step>),
    state: State,
    drain: Duration,
    before: Option<Before>,
    talking: JoinSet<()>,
    looks: Interval,
}

impl Succession {
    /// Of a server that gets requests from `asks`, and has taken over from `before`. When it has
    /// given way, connections have `drain` to end.
    pub fn new(asks: mpsc::Receiver<UnixStream>, drain: Duration, before: Option<Before>) -> Self {
        let talking = JoinSet::new();
        let (steps, looks) = (mpsc::channel(4), interval(LOOK_EVERY));
        Succession { asks, steps, state: State::Serving, drain, before, talking, looks }
    }

    /// The next step. Nothing is lost if the wait is given up.
    pub async fn next(&mut self) -> Step {
        let since = match self.state {
            State::Gave(since) => Some(since),
            State::Serving | State::Offered => None,
        };
        let over = since.and_then(|since| since.checked_add(self.drain));
        tokio::select! {
            biased;
            Some(step) = self.steps.1.recv() => step,
            () = until(over) => {
                let drain = uts_units::show::time(self.drain);
                Step::Over(format!("another process serves, and the time of {drain} is over (--drain)"))
            }
            Some(stream) = self.asks.recv() => Step::Asked(stream),
            _ = self.looks.tick(), if since.is_some() => Step::Look,
        }
    }

    /// Offers the port to a newcomer, or says why not.
    pub async fn offer(
        &mut self,
        stream: UnixStream,
        port: Result<(Handover, TakenOver), String>,
        watchdog: Option<Duration>,
    ) {
        let port = match self.state {
            State::Serving => port,
            State::Offered => Err("another process is about to take over".to_owned()),
            State::Gave(_) => Err("another process has taken over".to_owned()),
        };
        match port {
            Ok((handover, taken)) => {
                self.state = State::Offered;
                let offer = Offer {
                    workers: taken.sockets.len(),
                    process: std::process::id(),
                    watchdog_us: watchdog.and_then(|period| u64::try_from(period.as_micros()).ok()),
                };
                self.talking.spawn(talk(stream, handover, taken, offer, self.steps.0.clone()));
            }
            Err(why) => refuse(stream, &why).await,
        }
    }

    /// Other sockets are free: the newcomer may begin.
    pub async fn give_way(&mut self, ready: oneshot::Sender<()>) {
        if let Some(before) = &mut self.before {
            before.say(PASSED).await;
        }
        // If it has gone meanwhile, that is a step of its own.
        let _ = ready.send(());
    }

    /// The newcomer has the port, and knows it: clients that are left have their time from now on.
    pub fn given(&mut self) {
        self.state = State::Gave(Instant::now());
    }

    /// The newcomer is gone.
    pub fn resume(&mut self) {
        self.state = State::Serving;
    }

    /// True if the process before still has connections.
    pub fn has_before(&self) -> bool {
        self.before.as_ref().is_some_and(Before::is_there)
    }

    /// This server ends, and with it the one before.
    pub async fn end(&mut self) {
        if let Some(before) = &mut self.before {
            before.say(END).await;
        }
    }
}

/// Says why there is no port.
pub async fn refuse(mut stream: UnixStream, why: &str) {
    let line = format!("{}\n", serde_json::json!({"error": why}));
    let _ = timeout(PATIENCE, stream.write_all(line.as_bytes())).await;
}

/// Talks with a newcomer, from the offer to the end.
async fn talk(
    stream: UnixStream,
    handover: Handover,
    taken: TakenOver,
    offer: Offer,
    tell: mpsc::Sender<Step>,
) {
    let Some(mut lines) = offered(stream, taken, &offer).await else {
        let _ = tell.send(Step::Lost(false)).await;
        return;
    };
    let (ready, may_go) = oneshot::channel();
    let _ = tell.send(Step::Ready(ready)).await;
    let gives_way = async {
        let _ = may_go.await;
        handover.give_way().await;
        lines.get_mut().write_all(format!("{YOURS}\n").as_bytes()).await
    };
    // Until it knows, this server may not end. A stream that takes nothing is found closed below.
    if let Ok(Ok(())) = timeout(PATIENCE, gives_way).await {
        let _ = tell.send(Step::Given).await;
    }
    let mut has_passed = false;
    loop {
        match line(&mut lines).await.as_deref() {
            Some(PASSED) => has_passed = true,
            Some(END) => break,
            Some(_) => {}
            None if has_passed => break,
            None => {
                handover.take_back();
                let _ = tell.send(Step::Lost(true)).await;
                return;
            }
        }
    }
    let _ = tell.send(Step::Over("the server that has taken over ends".to_owned())).await;
    // What it still hands on is taken in until the end.
    std::future::pending::<()>().await;
    drop(handover);
}

/// Sends the port, and waits until the newcomer is ready.
async fn offered(stream: UnixStream, taken: TakenOver, offer: &Offer) -> Option<BufReader<UnixStream>> {
    let text = serde_json::to_string(offer).ok()? + "\n";
    let all = taken.sockets.iter().map(AsFd::as_fd).chain(taken.links.iter().map(AsFd::as_fd));
    let descriptors: Vec<BorrowedFd<'_>> = all.collect();
    let sent = stream.async_io(Interest::WRITABLE, || {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(sendmsg(&stream, &[IoSlice::new(text.as_bytes())], &mut ancillary, SendFlags::empty())?)
    });
    let sent = timeout(PATIENCE, sent).await.ok()?.ok()?;
    drop(taken);
    if sent != text.len() {
        return None;
    }
    let mut lines = BufReader::new(stream);
    let said = timeout(READY_MAX, line(&mut lines)).await.ok()??;
    (said == GO).then_some(lines)
}

/// The next line; `None` = there is none.
async fn line(from: &mut (impl AsyncBufReadExt + Unpin)) -> Option<String> {
    let mut text = String::new();
    from.take(LINE_BYTES_MAX as u64).read_line(&mut text).await.ok()?;
    text.strip_suffix('\n').map(str::to_owned)
}

/// A port that another process has offered.
pub struct Taking {
    stream: BufReader<UnixStream>,
    port: TakenOver,
    offer: Offer,
}

impl Taking {
    /// Asks the server at a control socket, if one runs there.
    ///
    /// # Errors
    /// Why it gives nothing, in one line.
    pub async fn ask(control: &Path) -> Result<Option<Taking>, String> {
        let wrong = |why: String| format!("--take-over {}: {why}", control.display());
        let mut stream = match UnixStream::connect(control).await {
            Ok(stream) => stream,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => return Ok(None),
                _ => return Err(wrong(words(&error))),
            },
        };
        let answered = async {
            stream.write_all(format!("{TAKE_OVER}\n").as_bytes()).await?;
            receive(&stream).await
        };
        let answered = timeout(PATIENCE, answered).await.map_err(|_| wrong("no answer".into()))?;
        let (text, descriptors) = answered.map_err(|error| wrong(words(&error)))?;
        let Ok(offer) = serde_json::from_str::<Offer>(&text) else {
            let said = serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default();
            let said = said["error"].as_str().unwrap_or("what answers there is no server").to_owned();
            return Err(wrong(said));
        };
        if descriptors.len() != offer.workers.saturating_mul(2) {
            return Err(wrong(format!("{} descriptors for {} workers", descriptors.len(), offer.workers)));
        }
        let mut sockets = descriptors;
        let links = sockets.split_off(offer.workers);
        let port = TakenOver {
            sockets: sockets.into_iter().map(Into::into).collect(),
            links: links.into_iter().map(Into::into).collect(),
        };
        Ok(Some(Taking { stream: BufReader::new(stream), port, offer }))
    }

    /// Checks that the port is what the options say.
    ///
    /// # Errors
    /// The difference, in one line.
    pub fn check(&self, workers: usize, listen: &[SocketAddr]) -> Result<(), String> {
        if self.offer.workers != workers {
            return Err(format!(
                "--take-over: the server there has --workers {}, and this one {workers}",
                self.offer.workers
            ));
        }
        let at = self.port.sockets.first().and_then(|socket| socket.local_addr().ok());
        let at = at.ok_or("--take-over: the server there has no UDP socket")?;
        let is_meant =
            |wanted: &SocketAddr| wanted.ip() == at.ip() && [0, at.port()].contains(&wanted.port());
        if listen.iter().any(is_meant) {
            return Ok(());
        }
        let wanted: Vec<String> = listen.iter().map(ToString::to_string).collect();
        Err(format!("--take-over: the server there listens at {at}, and --listen says {}", wanted.join(", ")))
    }

    /// Has the server give way. From the end of this on the port is this process's.
    ///
    /// # Errors
    /// The server is gone, in one line.
    pub async fn go(self) -> Result<(TakenOver, Before), String> {
        let Taking { mut stream, port, offer } = self;
        let said = async {
            stream.get_mut().write_all(format!("{GO}\n").as_bytes()).await.ok()?;
            line(&mut stream).await
        };
        match timeout(PATIENCE, said).await {
            Ok(Some(said)) if said == YOURS => Ok((port, Before { stream: stream.into_inner(), offer })),
            _ => Err(format!("--take-over: the server (process {}) does not give way", offer.process)),
        }
    }
}

/// Receives a line and descriptors.
async fn receive(stream: &UnixStream) -> io::Result<(String, Vec<OwnedFd>)> {
    let (mut text, mut descriptors) = (Vec::new(), Vec::new());
    while !text.ends_with(b"\n") {
        let read = stream.async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut bytes = [0; LINE_BYTES_MAX];
            let got =
                recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(all) = message {
                    descriptors.extend(all);
                }
            }
            text.extend_from_slice(&bytes[..got.bytes]);
            Ok(got.bytes)
        });
        if read.await? == 0 || text.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("it gives nothing"));
        }
    }
    Ok((String::from_utf8_lossy(&text).into_owned(), descriptors))
}

/// The process that had the port before.
pub struct Before {
    stream: UnixStream,
    offer: Offer,
}

impl Before {
    /// Its number.
    pub fn process(&self) -> u32 {
        self.offer.process
    }

    /// Time within which the service manager wanted to hear that it lives.
    pub fn watchdog(&self) -> Option<Duration> {
        self.offer.watchdog_us.map(Duration::from_micros)
    }

    /// True if it runs.
    fn is_there(&self) -> bool {
        // It says nothing but that it is gone.
        !matches!(self.stream.try_read(&mut [0; 16]), Ok(0))
    }

    async fn say(&mut self, word: &str) {
        // One that is gone needs no word.
        let _ = timeout(PATIENCE, self.stream.write_all(format!("{word}\n").as_bytes())).await;
    }
}
