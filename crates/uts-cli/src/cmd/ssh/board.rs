//! The words of a session about itself, to `uts ssh --list` and `uts ctl`: at its host, and here.

use crate::control::{Controlled, Request, bugs};
use crate::link::{Link, Telemetry};
use crate::udp::UdpLink;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use uts_tunnel::resumed::{Current, News, Session};
use uts_units::show;

/// Time that the other end has to say that it is here.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// See the head of this file.
pub struct Board {
    name: String,
    /// The host here, the client's address there.
    other: String,
    began: Instant,
    state: Mutex<State>,
    end: Notify,
}

struct State {
    session: Option<Arc<Session>>,
    link: Option<UdpLink>,
    current: Current,
    /// The time at which the way in use came into use.
    since: Instant,
    /// The way before.
    before: Option<&'static str>,
}

impl State {
    /// Figures of the path, if the way in use has any.
    fn path(&self) -> Option<Telemetry> {
        let link = self.link.as_ref().filter(|_| self.current.way == Some(super::UDP));
        link.map(Link::telemetry)
    }
}

impl Board {
    /// One of a session that begins now, with the host or the client at its other end.
    pub fn new(name: String, other: String) -> Arc<Board> {
        let began = Instant::now();
        let state =
            State { session: None, link: None, current: Current::default(), since: began, before: None };
        Arc::new(Board { name, other, began, state: Mutex::new(state), end: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session has begun.
    pub fn on_begun(&self, session: Arc<Session>) {
        self.state().session = Some(session);
    }

    /// There is a connection, or none any more. Returns the one before.
    pub fn on_link(&self, link: Option<UdpLink>) -> Option<UdpLink> {
        std::mem::replace(&mut self.state().link, link)
    }

    /// Something has become of what carries the session.
    pub fn on_news(&self, news: News) {
        let mut state = self.state();
        if matches!(news, News::Carried(_) | News::Ended) {
            state.before = state.current.way.or(state.before);
            state.since = Instant::now();
        }
        state.current.on_news(news);
    }

    /// Waits until somebody asks that the session is ended.
    pub async fn ended(&self) {
        self.end.notified().await;
    }

    /// The way of the session, in words: `UDP for 3 s, TCP before; RTT 20.1 ms, loss 4.00 %,
    /// cubic, no fec`.
    fn way(&self) -> String {
        let state = self.state();
        let Some(way) = state.current.way else { return "no way at present".to_owned() };
        let mut words = format!("{way} for {}", show::span(state.since.elapsed()));
        if let Some(before) = state.before.filter(|before| *before != way) {
            words.push_str(&format!(", {before} before"));
        }
        if let Some(now) = state.path() {
            let path = format!("RTT {:.1} ms, loss {:.2} %, {}", now.rtt_ms, now.loss * 100.0, now.profile);
            words.push_str(&format!("; {path}"));
        }
        if state.current.is_stalled {
            words.push_str("; nothing comes, and others are tried");
        }
        words
    }

    fn path(&self) -> Option<Telemetry> {
        self.state().path()
    }

    async fn list(&self) -> Value {
        let session = self.state().session.clone();
        let silence = match &session {
            Some(session) => Some(session.silence(ANSWER_MAX).await.as_secs()),
            None => None,
        };
        let keys = session.as_ref().and_then(|session| session.keys_p99());
        let bytes = session.map(|session| session.bytes()).unwrap_or_default();
        let path = self.path();
        json!({
            "session": self.name,
            "other": self.other,
            "seconds": self.began.elapsed().as_secs(),
            "way": self.way(),
            "bytes_in": bytes[0],
            "bytes_out": bytes[1],
            "rtt_ms": path.as_ref().map(|path| path.rtt_ms),
            "loss": path.as_ref().map(|path| path.loss),
            "profile": path.map(|path| path.profile),
            "silent_s": silence,
            "keys_p99_ms": keys.map(|delay| delay.as_secs_f64() * 1e3),
            "bugs": bugs(),
        })
    }
}

impl Controlled for Board {
    async fn carry_out(&self, request: Request) -> Result<Value, String> {
        match request {
            Request::List => Ok(self.list().await),
            Request::End { .. } => {
                self.end.notify_one();
                Ok(json!({"ended": self.name}))
            }
            Request::Set { .. } => Err("a session has nothing that can be set".to_owned()),
            Request::Audit => Err("a session leads to one place".to_owned()),
        }
    }
}

/// A session in one line, for people, as [`Board`] says it.
pub fn line(said: &Value) -> String {
    let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
    let since = show::span(Duration::from_secs(said["seconds"].as_u64().unwrap_or_default()));
    let silence = match said["silent_s"].as_u64() {
        None => "; it has not begun".to_owned(),
        Some(0) => String::new(),
        Some(long) => format!("; the other end was heard {} ago", show::span(Duration::from_secs(long))),
    };
    let keys = said["keys_p99_ms"].as_f64().map_or_else(String::new, |ms| format!("; keys p99 {ms:.0} ms"));
    format!("{}  {}  since {since}; {}{keys}{silence}", text("session"), text("other"), text("way"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_says_what_carries_it() {
        let board = Board::new("abc".into(), "host".into());
        assert!(line(&board.list().await).ends_with("since 0 s; no way at present; it has not begun"));
        board.on_begun(Arc::new(Session::new(10)));
        board.on_news(News::Carried("TCP"));
        tokio::time::sleep(Duration::from_secs(60)).await;
        board.on_news(News::Carried("UDP"));
        board.on_news(News::Stalled);
        let said = line(&board.list().await);
        assert!(said.starts_with("abc  host  since 62 s; UDP for 2 s, TCP before; nothing comes"), "{said}");
        assert!(said.ends_with("; the other end was heard 62 s ago"), "{said}");
        board.on_news(News::Ended);
        assert!(line(&board.list().await).contains("no way at present"));
        assert!(
            board
                .carry_out(Request::Set { name: "a".into(), value: "b".into(), forward: None, client: None })
                .await
                .is_err()
        );
        board.carry_out(Request::End { id: 0 }).await.expect("ended");
        board.ended().await;
    }
}
