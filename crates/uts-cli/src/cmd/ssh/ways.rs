//! Ways of a session to its server: UDP, and logins of ssh where UDP does not go. UDP is tried all
//! the time, and preferred. A login is used while UDP is silent: the one that has started the
//! server first, and later ones that ask nobody.

use super::board::{Board, Current};
use super::login::{Login, Pipe, Wrong};
use super::{SERVICE, TCP, UDP};
use crate::link::{Link, LinkEvent};
use crate::resumed::{Carrier, Lost, News, Offers, Session, Ticket, introduce, offers};
use crate::udp::UdpLink;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, BufReader, ReadBuf, Take};
use tokio::process::{Child, ChildStdout};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};
use uts_files::Flows;
use uts_units::show;

/// Pause between two tries of one way, at first and at last: it doubles. Chosen.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Time that a connection may take to be made. Chosen: more than the slowest path takes.
const CONNECT_MAX: Duration = Duration::from_secs(30);

/// Time that the server has to answer on a carrier. Chosen: as for a connection that is lost.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Knowledge of UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Udp {
    /// It is tried for the first time.
    Trying,
    /// It works.
    Works,
    /// It does not, and why.
    Silent(String),
}

/// All ways of a session.
pub struct Ways<'a> {
    session: Arc<Session>,
    ticket: Ticket,
    login: &'a Login<'a>,
    /// Address of the server, and options of connections to it.
    at: (String, uts::ConnectOptions),
    offers: mpsc::Sender<Result<crate::resumed::Offer, Lost>>,
    number: AtomicU64,
    is_new: AtomicBool,
    udp: watch::Sender<Udp>,
    /// The way in use.
    current: watch::Sender<Current>,
    board: Arc<Board>,
}

impl<'a> Ways<'a> {
    /// Ways for a session, and what they offer.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn new(
        session: Arc<Session>,
        login: &'a Login<'a>,
        at: (String, uts::ConnectOptions),
        board: Arc<Board>,
    ) -> Result<(Ways<'a>, Offers), String> {
        let (offers, taken) = offers();
        let ways = Ways {
            session,
            ticket: Ticket::generate()?,
            login,
            at,
            offers,
            number: AtomicU64::new(0),
            is_new: AtomicBool::new(true),
            udp: watch::Sender::new(Udp::Trying),
            current: watch::Sender::default(),
            board,
        };
        Ok((ways, taken))
    }

    /// Waits until UDP works, and no longer than this.
    ///
    /// # Errors
    /// Why it does not, in words. It may yet.
    pub async fn by_udp_within(&self, wait: Duration) -> Result<(), String> {
        let mut udp = self.udp.subscribe();
        let known = timeout(wait, udp.wait_for(|udp| *udp != Udp::Trying)).await;
        let why = match known {
            Ok(Ok(udp)) => match &*udp {
                Udp::Works => return Ok(()),
                Udp::Silent(why) => return Err(why.clone()),
                Udp::Trying => String::new(),
            },
            _ => format!("no answer from {} in {}", self.at.0, show::seconds(wait.as_secs_f64())),
        };
        self.udp.send_if_modified(|udp| {
            let is_tried = *udp == Udp::Trying;
            if is_tried {
                *udp = Udp::Silent(why.clone());
            }
            is_tried
        });
        if *self.udp.borrow() == Udp::Works { Ok(()) } else { Err(why) }
    }

    /// Finds ways, as long as this is polled.
    pub async fn find(&self, pipe: Pipe) {
        tokio::join!(self.try_udp(), self.try_logins(pipe));
    }

    /// Hears what carries the stream.
    pub fn on_news(&self, news: News) {
        self.board.on_news(news);
        self.current.send_modify(|current| current.on_news(news));
    }

    /// Takes leave of the server.
    pub async fn close(&self) {
        if let Some(link) = self.board.on_link(None) {
            let _ = timeout(PAUSE_MIN, link.close(0, "done")).await;
        }
    }

    /// Offers a carrier to the session, if the server takes it. What it refuses for good ends the
    /// session.
    async fn offer(&self, carrier: Carrier, name: &'static str) -> bool {
        let number = self.number.fetch_add(1, Relaxed) + 1;
        let turn = (number, self.is_new.load(Relaxed));
        let asked = introduce(&self.session, (SERVICE, &self.ticket), turn, carrier, name);
        let offer = match timeout(ANSWER_MAX, asked).await {
            Ok(Ok(Ok(offer))) => Ok(offer),
            Ok(Ok(Err(refused))) => Err(Lost(refused.to_string())),
            Ok(Err(_)) | Err(_) => return false,
        };
        self.is_new.store(false, Relaxed);
        self.offers.send(offer).await.is_ok()
    }

    async fn try_udp(&self) {
        let mut pause = PAUSE_MIN;
        loop {
            let (at, options) = &self.at;
            let why = match timeout(CONNECT_MAX, uts::connect(at, options.clone())).await {
                Ok(Ok(connection)) => {
                    pause = PAUSE_MIN;
                    connection.follow_network();
                    let link = UdpLink::new(connection);
                    self.board.on_link(Some(link.clone()));
                    self.go_by(&link).await
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer from {at}"),
            };
            self.udp.send_replace(Udp::Silent(why));
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Uses a connection while it works. Returns why it ended.
    async fn go_by(&self, link: &UdpLink) -> String {
        let mut events = link.events();
        let mut current = self.current.subscribe();
        let (mut is_heard, mut pause) = (true, PAUSE_MIN);
        self.take(link).await;
        loop {
            let Current { way, is_stalled } = *current.borrow_and_update();
            if way == Some(UDP) {
                let works = is_heard && !is_stalled;
                let now = if works { Udp::Works } else { Udp::Silent("it is silent".to_owned()) };
                self.udp.send_if_modified(|udp| std::mem::replace(udp, now.clone()) != now);
                pause = PAUSE_MIN;
            }
            // Something else carries, or nothing, though this could.
            let is_unused = is_heard && way != Some(UDP);
            tokio::select! {
                event = events.recv() => match event {
                    Some(LinkEvent::Silent(_)) => is_heard = false,
                    Some(LinkEvent::Heard(_)) => (is_heard, pause) = (true, Duration::ZERO),
                    Some(LinkEvent::Closed(why)) => return why,
                    Some(_) => {}
                    None => return "it has ended".to_owned(),
                },
                _ = current.changed() => {}
                () = sleep(pause), if is_unused => {
                    self.take(link).await;
                    pause = (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                }
            }
        }
    }

    /// Has the session go over a connection.
    async fn take(&self, link: &UdpLink) {
        let opened = timeout(ANSWER_MAX, link.flows().open()).await;
        if let Ok(Ok((send, recv))) = opened
            && self.offer(Carrier::flow(send, recv), UDP).await
        {
            self.udp.send_replace(Udp::Works);
        }
    }

    async fn try_logins(&self, first: Pipe) {
        let mut ready = Some(first);
        let mut pause = PAUSE_MIN;
        let mut udp = self.udp.subscribe();
        loop {
            // The other end of the channel is here.
            let _ = udp.wait_for(|udp| matches!(udp, Udp::Silent(_))).await;
            let was_ready = ready.is_some();
            let pipe = match ready.take() {
                Some(pipe) => Ok(pipe),
                None => self.login.again().await,
            };
            match pipe {
                // It waits for the next time.
                Ok(pipe) if *udp.borrow() == Udp::Works => {
                    ready = Some(pipe);
                    continue;
                }
                Ok(pipe) => {
                    let (carrier, dropped) = carrier(pipe);
                    if self.offer(carrier, TCP).await {
                        self.while_it_goes(dropped).await;
                        pause = PAUSE_MIN;
                    }
                }
                Err(Wrong::Gone) => {
                    let gone = Lost("its server is not there any more".to_owned());
                    let _ = self.offers.send(Err(gone)).await;
                    return std::future::pending().await;
                }
                // UDP alone is left.
                Err(Wrong::Denied) => return std::future::pending().await,
                Err(Wrong::NoLogin(_) | Wrong::NoServer(_)) => {}
            }
            if !was_ready {
                // UDP that works again needs no login.
                let _ = timeout(pause, udp.wait_for(|udp| *udp == Udp::Works)).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

impl Ways<'_> {
    /// Waits until a login carries no more, or nothing comes by it.
    async fn while_it_goes(&self, dropped: oneshot::Receiver<()>) {
        let mut current = self.current.subscribe();
        let stalls = Current { way: Some(TCP), is_stalled: true };
        tokio::select! {
            _ = dropped => {}
            _ = current.wait_for(|current| *current == stalls) => {}
        }
    }
}

/// A login as a carrier, and what hears that it was dropped. The login ends then.
fn carrier(Pipe { child, send, recv }: Pipe) -> (Carrier, oneshot::Receiver<()>) {
    let (held, dropped) = oneshot::channel();
    (Carrier::pipe(send, Logged { recv, _child: child, _held: held }), dropped)
}

/// The way back of a login.
struct Logged {
    recv: BufReader<Take<ChildStdout>>,
    _child: Child,
    _held: oneshot::Sender<()>,
}

impl AsyncRead for Logged {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.recv).poll_read(cx, buf)
    }
}
