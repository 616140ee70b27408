//! `uts media`: streams of datagrams to a server and from it.

mod carry;
mod input;
mod output;

use super::patience::Patience;
use super::tunnel::server;
use super::{Failure, bounded_log, interrupted, properties, reach};
use crate::args::{CommonArgs, MediaArgs, MediaCommand};
use crate::control::Control;
use crate::link::{Broken, Carrying, ConnectOptions, Link, Transport};
use crate::media::board::Board;
use crate::media::place::Place;
use crate::media::wire::{Role, check_name};
use crate::media::{self, SERVICE};
use crate::target::Host;
use crate::ui::Ui;
pub(super) use input::Input;
pub(super) use output::Sink;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// Runs `uts media` until what is sent has ended, or it is interrupted.
///
/// # Errors
/// See [`Failure`].
pub async fn run<T: Transport>(transport: &T, args: &MediaArgs) -> Result<(), Failure> {
    let (role, place, url, args) = match &args.command {
        MediaCommand::Send(args) => (Role::Send, &args.from, &args.url, &args.common),
        MediaCommand::Recv(args) => (Role::Receive, &args.to, &args.url, &args.common),
    };
    let (mut host, name) = target(url)?;
    let mut asked = media::properties(args.latency);
    asked.extend(properties(&args.wanted)?);
    let mut options = args.reach.options(&mut host, asked, true)?;
    options.service = SERVICE;
    let log = bounded_log(args.more.verbose, args.quiet)?;
    let interrupt = interrupted();
    tokio::pin!(interrupt);
    let control = args.control.as_deref().map(Control::bind).transpose().map_err(Failure::Failed)?;
    let board = Arc::new(Board::new(host.to_string(), name, role, place.clone(), args.latency));
    let mut tasks = JoinSet::new();
    if let Some(control) = control {
        tasks.spawn(control.serve(board.clone()));
    }
    let ends = match role {
        Role::Send => Ends::From(Input::open(board.clone(), log.clone()).await?),
        Role::Receive => Ends::To(tokio::sync::Mutex::new(Sink::open(place).await?)),
    };
    let run = Run { transport, host, options, args, log, board, ends, link: Mutex::default() };
    let ended = tokio::select! {
        ended = run.go() => ended,
        () = &mut interrupt => {
            let link = run.link.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(link) = link {
                link.close(0, "done").await;
            }
            Err(Failure::interrupted())
        }
    };
    run.tell(&run.board.words());
    if let Ends::To(sink) = run.ends {
        sink.into_inner().finish().await;
    }
    ended
}

/// The server and the name of a stream, as `uts://host[:port]/name`.
fn target(url: &str) -> Result<(Host, String), Failure> {
    let wrong = |why: String| Failure::Usage(format!("{url}: {why}"));
    let named = url.strip_prefix("uts://").and_then(|rest| rest.split_once('/'));
    let Some((host, name)) = named.filter(|(_, name)| !name.is_empty()) else {
        return Err(wrong("write uts://host[:port]/name, with the name of a stream".into()));
    };
    check_name(name).map_err(wrong)?;
    Ok((reach::host(host)?, name.to_owned()))
}

/// The end that is here.
enum Ends {
    From(Input),
    To(tokio::sync::Mutex<Sink>),
}

/// A stream that is carried.
struct Run<'a, T: Transport> {
    transport: &'a T,
    host: Host,
    options: ConnectOptions,
    args: &'a CommonArgs,
    log: Arc<dyn Ui>,
    board: Arc<Board>,
    ends: Ends,
    /// The connection now.
    link: Mutex<Option<T::Link>>,
}

/// Why a connection carries no more.
enum Ended {
    /// All that is to be carried is.
    Done,
    /// No other connection would carry more.
    Failed(Failure),
    /// It has broken, in these words if it does not say more itself.
    Broken(String),
}

impl<T: Transport> Run<'_, T> {
    /// Keeps a connection to the server for as long as there is patience.
    async fn go(&self) -> Result<(), Failure> {
        let mut lost = None;
        loop {
            let link = self.connect(lost.take()).await?;
            let ended = self.carry(&link).await;
            self.board.disconnected().await;
            match ended {
                Ended::Done => {
                    link.close(0, "done").await;
                    return Ok(());
                }
                Ended::Failed(failure) => {
                    link.close(0, "done").await;
                    return Err(failure);
                }
                Ended::Broken(why) => {
                    let broken = link.broken().unwrap_or(Broken::for_good(why));
                    if !broken.is_worth_retrying || self.args.retry == Some(Duration::ZERO) {
                        return Err(Failure::Failed(format!("{}: {}", self.host, broken.why)));
                    }
                    lost = Some(broken.why);
                }
            }
        }
    }

    /// Connects, for the first time or again.
    async fn connect(&self, lost: Option<String>) -> Result<T::Link, Failure> {
        let mut patience = Patience::new(self.args.retry.unwrap_or(Duration::MAX));
        let (is_again, mut has_waited) = (lost.is_some(), false);
        let told = |why: &str| {
            let line = match (is_again, has_waited) {
                (true, false) => format!("connection lost: {why}; connecting again"),
                _ => format!("not connected: {why}; trying again"),
            };
            has_waited = true;
            self.tell(&line);
        };
        let attempt = async || {
            let mut options = self.options.clone();
            let changed = self.board.changed.lock().unwrap_or_else(PoisonError::into_inner).clone();
            options.properties.extend(changed);
            self.transport.connect(&self.host, &options).await
        };
        let link = patience.connect(lost, attempt, told).await.map_err(|broken| {
            let is_late = broken.is_worth_retrying && (has_waited || is_again);
            Failure::Failed(if is_late { format!("{}: {}", self.host, broken.why) } else { broken.why })
        })?;
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(link.clone());
        Ok(link)
    }

    fn tell(&self, line: &str) {
        self.log.notice(Some(&server(&self.host)), "media", line);
    }

    /// A line about what it does.
    fn words(&self) -> String {
        let (place, name) = (&self.board.place, &self.board.name);
        let place = match (place, self.board.role) {
            (Place::Standard, Role::Send) => "standard input".to_owned(),
            (Place::Standard, Role::Receive) => "standard output".to_owned(),
            (place, _) => place.to_string(),
        };
        match self.board.role {
            Role::Send => format!("{place} is sent as {name}"),
            Role::Receive => format!("{name} is received for {place}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_named_by_its_server_and_its_name() {
        let (host, name) = target("uts://host:5000/camera 1/left").expect("a stream");
        assert_eq!((host.to_string().as_str(), name.as_str()), ("host:5000", "camera 1/left"));
        for (url, says) in [
            ("host/name", "write uts://host[:port]/name"),
            ("uts://host", "write uts://host[:port]/name"),
            ("uts://host/", "write uts://host[:port]/name"),
            ("uts:///name", "the host is empty"),
            ("uts://host/a\nb", "control characters"),
        ] {
            let Err(Failure::Usage(why)) = target(url) else { panic!("{url}") };
            assert!(why.contains(says), "{url}: {why}");
        }
    }
}
