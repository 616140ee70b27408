//! A client's end of a stream, as it finds what carries it: connections, one after the other, each
//! as long as it works, and whatever else is offered.

use super::Carrier;
use super::session::{Lost, News, Offer, Offers, Session, Stand, Taker, offers};
use super::wire::{self, Hello, Ticket, Welcome, wrong};
use crate::link::{Broken, Carrying};
use crate::pipe;
use crate::stream::{Refused, read_answer};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use uts_files::Flows;

/// Pause between two tries of one way, at first and at last: it doubles. Chosen.
pub const PAUSE_MIN: Duration = Duration::from_secs(1);
/// See [`PAUSE_MIN`].
pub const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Time that a connection may take to be made. Chosen: more than the slowest path takes.
const CONNECT_MAX: Duration = Duration::from_secs(30);

/// Time that the server has to answer on a carrier. Chosen: as for a connection that is lost.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The way in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// Its name; `None` = there is none.
    pub way: Option<&'static str>,
    /// Nothing comes by it, though something is expected.
    pub is_stalled: bool,
}

impl Current {
    /// Something has become of what carries the stream.
    pub fn on_news(&mut self, news: News) {
        match news {
            News::Carried(way) => *self = Current { way: Some(way), is_stalled: false },
            News::Stalled => self.is_stalled = true,
            News::Goes => self.is_stalled = false,
            News::Ended => *self = Current::default(),
        }
    }
}

/// Something that has become of the connections of a stream.
#[derive(Debug)]
pub enum Step<'a, L> {
    /// There is one.
    Connected(&'a L),
    /// It carries the stream, and works or is silent.
    Works(bool),
    /// It has ended, or there is none, and why. Another is tried.
    Lost(&'a str),
}

/// Words of a client about a carrier for its stream.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The number of the carrier: higher with each.
    pub number: u64,
    /// No server has answered for the stream yet.
    pub is_new: bool,
    /// The stream is kept for so long without a carrier.
    pub silence: Duration,
}

/// Asks a server to take a carrier for a stream.
///
/// # Errors
/// The carrier has failed, or the server keeps no rules. The inner error is the server's no.
pub async fn introduce<W>(
    session: &Session,
    (service, ticket): (&str, &Ticket),
    Turn { number, is_new, silence }: Turn,
    mut carrier: Carrier,
    way: W,
) -> io::Result<Result<Offer<W>, Refused>> {
    let (received, window) = {
        let memory = session.memory();
        (memory.received(), memory.window())
    };
    let silence_s = wire::seconds(silence);
    let hello = Hello { ticket: ticket.clone(), is_new, number, received, window, silence_s };
    carrier.send.write_all(&pipe::resumable_request(service, &hello)).await?;
    carrier.send.flush().await?;
    // T-6: meanwhile another carries.
    if let Err(refused) = read_answer(&mut carrier.recv).await? {
        return Ok(Err(refused));
    }
    let welcome = Welcome::read(&mut carrier.recv).await?;
    {
        let memory = session.memory();
        memory.check(welcome.received)?;
        if welcome.begins < received || welcome.begins > memory.received() {
            return Err(wrong(format!("the server goes on at {}, and not at {received}", welcome.begins)));
        }
    }
    Ok(Ok(Offer { carrier, number, way, stand: Stand::Answered(welcome) }))
}

/// See the head of this file.
pub struct Client {
    session: Arc<Session>,
    /// Name of the service at the server.
    service: String,
    ticket: Ticket,
    silence: Duration,
    offers: Taker,
    number: AtomicU64,
    is_new: AtomicBool,
    current: watch::Sender<Current>,
}

impl Client {
    /// A stream to a service, and what is offered to it. Its server is to keep it for `silence`
    /// without a carrier.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn new(session: Arc<Session>, service: &str, silence: Duration) -> Result<(Client, Offers), String> {
        let (offers, taken) = offers();
        let client = Client {
            session,
            service: service.to_owned(),
            ticket: Ticket::generate()?,
            silence,
            offers,
            number: AtomicU64::new(0),
            is_new: AtomicBool::new(true),
            current: watch::Sender::default(),
        };
        Ok((client, taken))
    }

    /// Hears what carries the stream.
    pub fn on_news(&self, news: News) {
        self.current.send_modify(|current| current.on_news(news));
    }

    /// The way in use, from now on.
    pub fn current(&self) -> watch::Receiver<Current> {
        self.current.subscribe()
    }

    /// Asks the server to take a carrier. The inner error is the server's no.
    ///
    /// # Errors
    /// The carrier has failed, or is not answered for this long.
    pub async fn ask(
        &self,
        carrier: Carrier,
        name: &'static str,
        wait: Duration,
    ) -> io::Result<Result<Offer, Refused>> {
        let number = self.number.fetch_add(1, Relaxed) + 1;
        let turn = Turn { number, is_new: self.is_new.load(Relaxed), silence: self.silence };
        let asked = introduce(&self.session, (&self.service, &self.ticket), turn, carrier, name);
        let offer = timeout(wait, asked).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        if offer.is_ok() {
            self.is_new.store(false, Relaxed);
        }
        Ok(offer)
    }

    /// Has the stream go on over what the server has taken, or ends it. False if it has ended.
    pub async fn give(&self, offer: Result<Offer, Lost>) -> bool {
        self.offers.send(offer).await.is_ok()
    }

    /// Offers a carrier to the stream, if the server takes it. What it refuses for good ends the
    /// stream.
    pub async fn offer(&self, carrier: Carrier, name: &'static str) -> bool {
        match self.ask(carrier, name, ANSWER_MAX).await {
            Ok(Ok(offer)) => self.give(Ok(offer)).await,
            Ok(Err(refused)) => {
                self.give(Err(Lost(refused.to_string()))).await;
                false
            }
            Err(_) => false,
        }
    }

    /// Has connections carry the stream, one after the other, as long as this is polled: the first,
    /// and those that `connect` makes. Returns why no other can do so.
    pub async fn go_on<L: Carrying>(
        &self,
        name: &'static str,
        mut first: Option<L>,
        mut connect: impl AsyncFnMut() -> Result<L, Broken>,
        mut told: impl FnMut(Step<'_, L>),
    ) -> Broken {
        let mut pause = PAUSE_MIN;
        loop {
            let connected = match first.take() {
                Some(link) => Ok(link),
                None => timeout(CONNECT_MAX, connect())
                    .await
                    .unwrap_or_else(|_| Err(Broken { why: "no answer".to_owned(), is_worth_retrying: true })),
            };
            let broken = match connected {
                Ok(link) => {
                    pause = PAUSE_MIN;
                    told(Step::Connected(&link));
                    self.go_by(&link, name, |works| told(Step::Works(works))).await
                }
                Err(broken) => broken,
            };
            if !broken.is_worth_retrying {
                return broken;
            }
            told(Step::Lost(&broken.why));
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Uses a connection while it lives. Returns why it ended.
    async fn go_by<L: Carrying>(&self, link: &L, name: &'static str, mut works: impl FnMut(bool)) -> Broken {
        let mut hearing = link.hearing();
        let mut current = self.current();
        let (mut is_heard, mut pause) = (true, Duration::ZERO);
        let ended = || {
            let why = link.broken().map_or_else(|| "it has ended".to_owned(), |broken| broken.why);
            Broken { why, is_worth_retrying: link.is_lost() }
        };
        loop {
            let Current { way, is_stalled } = *current.borrow_and_update();
            if way == Some(name) {
                works(is_heard && !is_stalled);
                pause = PAUSE_MIN;
            }
            // Something else carries, or nothing, though this could.
            let is_unused = is_heard && way != Some(name);
            tokio::select! {
                biased;
                heard = hearing.recv() => match heard {
                    Some(false) => is_heard = false,
                    Some(true) => (is_heard, pause) = (true, Duration::ZERO),
                    None => return ended(),
                },
                _ = current.changed() => {}
                () = sleep(pause), if is_unused => {
                    if self.take(link, name).await {
                        works(true);
                    }
                    pause = (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                }
            }
        }
    }

    /// Has the stream go over a connection. True if it does.
    async fn take<L: Carrying>(&self, link: &L, name: &'static str) -> bool {
        let opened = timeout(ANSWER_MAX, link.flows().open()).await;
        match opened {
            Ok(Ok((send, recv))) => self.offer(Carrier::flow(send, recv), name).await,
            _ => false,
        }
    }
}
