//! Ways of a session to its server: UDP, and logins of ssh where UDP does not go. UDP is tried all
//! the time, and preferred. A login is used while UDP is silent: the one that has started the
//! server first, and later ones that ask nobody.

use super::board::Board;
use super::login::{Login, Pipe, Wrong};
use super::{SERVICE, TCP, UDP};
use crate::link::{Broken, Link};
use crate::udp::UdpLink;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, BufReader, ReadBuf, Take};
use tokio::process::{Child, ChildStdout};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};
use uts_tunnel::resumed::{
    Carrier, Client, Current, Lost, News, Offers, PAUSE_MAX, PAUSE_MIN, Session, Step,
};
use uts_units::show;

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
    client: Client,
    login: &'a Login<'a>,
    /// Address of the server, and options of connections to it.
    at: (String, uts::ConnectOptions),
    udp: watch::Sender<Udp>,
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
        let (client, taken) = Client::new(session, SERVICE, login.args.silence)?;
        let ways = Ways { client, login, at, udp: watch::Sender::new(Udp::Trying), board };
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
        self.client.on_news(news);
    }

    /// Takes leave of the server.
    pub async fn close(&self) {
        if let Some(link) = self.board.on_link(None) {
            let _ = timeout(PAUSE_MIN, link.close(0, "done")).await;
        }
    }

    async fn try_udp(&self) {
        let (at, options) = &self.at;
        let connect = async || {
            let connection = uts::connect(at, options.clone()).await;
            let connection =
                connection.map_err(|error| Broken { why: error.to_string(), is_worth_retrying: true })?;
            connection.follow_network();
            Ok(UdpLink::new(connection))
        };
        let silent = |why: &str| Udp::Silent(why.to_owned());
        loop {
            let told = |step: Step<'_, UdpLink>| {
                let now = match step {
                    Step::Connected(link) => {
                        self.board.on_link(Some(link.clone()));
                        return;
                    }
                    Step::Works(true) => Udp::Works,
                    Step::Works(false) => silent("it is silent"),
                    Step::Lost(why) => silent(why),
                };
                self.udp.send_if_modified(|udp| std::mem::replace(udp, now.clone()) != now);
            };
            // A server that ends a connection may take another.
            let ended = self.client.go_on(UDP, None, connect, told).await;
            self.udp.send_replace(silent(&ended.why));
            sleep(PAUSE_MIN).await;
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
                    if self.client.offer(carrier, TCP).await {
                        self.while_it_goes(dropped).await;
                        pause = PAUSE_MIN;
                    }
                }
                Err(Wrong::Gone) => {
                    let gone = Lost("its server is not there any more".to_owned());
                    self.client.give(Err(gone)).await;
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
        let mut current = self.client.current();
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
