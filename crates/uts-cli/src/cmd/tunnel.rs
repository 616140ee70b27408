//! `uts tunnel`: ports that lead through a server.

use super::patience::Patience;
use super::{Failure, beside, bounded_log, interrupted, properties, reach};
use crate::args::TunnelArgs;
use crate::config::Config;
use crate::control::Control;
use crate::link::{Broken, Carrying, ConnectOptions, ExchangeStep, Link, Transport};
use crate::target::Host;
use crate::tunnel::board::Board;
use crate::tunnel::streams::Told;
use crate::ui::Ui;
use crate::ui::record::Peer;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::Level;
use uts::{Connection, FlowOptions, RecvFlow, SendFlow};
use uts_ledger::{Ledger, Resource};
use uts_tunnel::dial::Budget;
use uts_tunnel::entry::{Entry, Socket};
use uts_tunnel::exit::{Exit, Goal, Judge};
use uts_tunnel::forward::{self, Forward};
use uts_tunnel::live::Live;
use uts_tunnel::permit::addresses_to_listen;
use uts_tunnel::sockets::System;
use uts_tunnel::stream;
use uts_tunnel::wire::{Asked, Opening};
use uts_tunnel::{Teller, Wants};

/// Time between two requests for a port of the server that could not be had after a reconnection:
/// it may be held by the connection that was lost, until the server knows that.
const LISTEN_AGAIN: Duration = Duration::from_secs(2);

/// Time that the server may take to listen.
const LISTEN_MAX: Duration = Duration::from_secs(30);

/// Runs `uts tunnel` until it is interrupted, or the server wants no more of it.
///
/// # Errors
/// See [`Failure`].
pub async fn run<T: Transport>(transport: &T, args: &TunnelArgs) -> Result<(), Failure> {
    let args = &by_name(args)?;
    let mut host = reach::host(&args.host)?;
    if args.local.is_empty() && args.remote.is_empty() && args.dynamic.is_empty() {
        let why =
            "nothing is led anywhere: write -L, -R or -D, or the name of a [tunnel.NAME] of config.toml";
        return Err(Failure::Usage(why.into()));
    }
    let mut options = args.reach.options(&mut host, properties(&args.wanted)?, true)?;
    options.service = uts_tunnel::SERVICE;
    options.silence_max = args.silence;
    options.flows_max = Some(uts_tunnel::FLOWS_MAX);
    uts_tunnel::make_room_for_sockets();
    let log = bounded_log(args.more.verbose, args.quiet)?;
    let run = Run::new(transport, args, host, options, log).await?;
    let interrupt = interrupted();
    tokio::pin!(interrupt);
    tokio::select! {
        ended = run.go() => ended,
        () = &mut interrupt => {
            let link = run.link.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(link) = link {
                link.close(0, "done").await;
            }
            Err(Failure::interrupted())
        }
    }
}

/// The tunnel that the file of settings has under the name that is given in the place of a host,
/// and what the command line adds; without such a name, what the command line says.
fn by_name(args: &TunnelArgs) -> Result<TunnelArgs, Failure> {
    let config = Config::load(args.reach.config.as_deref()).map_err(Failure::Usage)?;
    let mut args = args.clone();
    let Some(named) = config.tunnels.get(&args.host) else { return Ok(args) };
    let name = args.host.clone();
    let read = |key: &str, texts: &[String], parse: fn(&str) -> Result<Forward, String>| {
        let wrong = |why| Failure::Usage(format!("[tunnel.{name}]: {key}: {why}"));
        texts.iter().map(|text| parse(text).map_err(wrong)).collect::<Result<Vec<_>, _>>()
    };
    args.local.extend(read("local", &named.local, Forward::parse)?);
    args.remote.extend(read("remote", &named.remote, Forward::parse)?);
    args.dynamic.extend(read("dynamic", &named.dynamic, Forward::parse_dynamic)?);
    // The last that is said counts: what the command line says goes behind.
    args.wanted.properties.splice(0..0, named.property.iter().cloned());
    args.host = named.host.clone().unwrap_or(name);
    Ok(args)
}

/// A tunnel that runs.
struct Run<'a, T: Transport> {
    transport: &'a T,
    args: &'a TunnelArgs,
    host: Host,
    options: ConnectOptions,
    log: Arc<dyn Ui>,
    board: Arc<Board>,
    now: watch::Sender<Option<Connection>>,
    /// Properties asked of the forwards of the server, in their order.
    remote: Vec<Arc<Wants>>,
    teller: Arc<Teller>,
    ledger: Ledger,
    /// The connection now.
    link: Mutex<Option<T::Link>>,
    /// Tasks that listen here, as long as the tunnel runs.
    _listening: JoinSet<()>,
}

impl<'a, T: Transport> Run<'a, T> {
    /// Listens at all places here.
    async fn new(
        transport: &'a T,
        args: &'a TunnelArgs,
        host: Host,
        options: ConnectOptions,
        log: Arc<dyn Ui>,
    ) -> Result<Self, Failure> {
        let fails = log.clone();
        let teller = Teller::new(move |line| fails.error(line));
        let control = args.control.as_deref().map(Control::bind).transpose().map_err(Failure::Failed)?;
        let (now, connections) = watch::channel(None);
        let told = Told { ui: log.clone(), peer: server(&host), level: Level::DEBUG, audit: None };
        let live = Live::new(Arc::default(), told);
        let room = Ledger::of(Resource::Requests, uts_tunnel::CONNECTIONS_MAX, false);
        let ledger = Ledger::of_client(&uts_ledger::Budget::of_process());
        let mut listening = JoinSet::new();
        let (mut forwards, mut sockets) = (Vec::new(), Vec::new());
        for forward in args.local.iter().chain(&args.dynamic) {
            let addresses = addresses_to_listen(&forward.bind).map_err(Failure::Failed)?;
            let socket =
                Socket::bind(&System, forward.protocol, &addresses).await.map_err(Failure::Failed)?;
            let address = socket.local_addr().map_err(|error| Failure::Failed(error.to_string()))?;
            let wants = Arc::new(Wants::new(forward.properties.clone()));
            let (asked, to) = match &forward.goal {
                forward::Goal::Place(place) => {
                    (Some(Asked::Connect(forward.protocol, place.clone())), place.to_string())
                }
                forward::Goal::Any => (None, "wherever is asked (SOCKS5)".to_owned()),
            };
            let name = format!("{}{address}", forward.protocol.prefix());
            log.notice(None, "leads", &format!("{name} leads to {to} by {host}"));
            forwards.push((name.clone(), to.clone(), wants.clone()));
            let (room, budget) = (room.payer(&name), Budget(ledger.payer(&name)));
            let (live, teller) = (live.clone(), teller.clone());
            let entry = Arc::new(Entry { name, asked, to, wants, room, budget, live, teller });
            sockets.push((socket, entry));
        }
        // Not before each has its share.
        for (socket, entry) in sockets {
            listening.spawn(socket.serve(entry, connections.clone()));
        }
        let mut remote = Vec::new();
        for forward in &args.remote {
            let wants = Arc::new(Wants::new(forward.properties.clone()));
            forwards.push((name_of(forward, &host), goal(forward).to_string(), wants.clone()));
            remote.push(wants);
        }
        let (changed, last) = (Mutex::default(), Mutex::default());
        let board = Arc::new(Board { host: host.to_string(), forwards, live, connections, changed, last });
        if let Some(control) = control {
            listening.spawn(control.serve(board.clone()));
        }
        let link = Mutex::default();
        let _listening = listening;
        Ok(Run { transport, args, host, options, log, board, now, remote, teller, ledger, link, _listening })
    }

    /// Keeps a connection to the server for as long as there is patience. The first is waited for
    /// as any other.
    async fn go(&self) -> Result<(), Failure> {
        let (mut lost, mut was_up) = (None, false);
        loop {
            let link = self.reach(lost, was_up).await?;
            let (broken, has_carried) = self.carry(&link, !was_up).await?;
            was_up |= has_carried;
            self.now.send_replace(None);
            if !broken.is_worth_retrying || self.args.retry == Some(Duration::ZERO) {
                return Err(Failure::Failed(format!("{}: {}", self.host, broken.why)));
            }
            lost = Some(broken.why);
        }
    }

    /// Connects, for the first time or again.
    async fn reach(&self, lost: Option<String>, was_up: bool) -> Result<T::Link, Failure> {
        let mut patience = Patience::new(self.args.retry.unwrap_or(Duration::MAX));
        let is_again = lost.is_some();
        let mut has_waited = false;
        let told = |why: &str| {
            let line = match (is_again, has_waited) {
                (true, false) => format!("connection lost: {why}; connecting again"),
                _ => format!("not connected: {why}; trying again"),
            };
            has_waited = true;
            if self.args.quiet && !was_up {
                return self.teller.tell(&self.host.to_string(), &line);
            }
            self.tell(&line);
        };
        let link = patience.connect(lost, || self.connect(), told).await.map_err(|broken| {
            // What no other try mends names the server.
            let is_late = broken.is_worth_retrying && (has_waited || is_again);
            Failure::Failed(if is_late { format!("{}: {}", self.host, broken.why) } else { broken.why })
        })?;
        if has_waited {
            self.tell(if was_up { "connected again" } else { "connected" });
        }
        Ok(link)
    }

    fn tell(&self, line: &str) {
        self.log.notice(Some(&server(&self.host)), "tunnel", line);
    }

    async fn connect(&self) -> Result<T::Link, Broken> {
        let mut options = self.options.clone();
        let changed = self.board.changed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        options.properties.extend(changed);
        let link = self.transport.connect(&self.host, &options).await?;
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(link.clone());
        Ok(link)
    }

    /// Carries all that arrives, until the connection ends. Says how it has ended, and whether all
    /// forwards were in place before.
    async fn carry(&self, link: &T::Link, is_first: bool) -> Result<(Broken, bool), Failure> {
        let Some(connection) = link.connection() else {
            return Err(Failure::Failed("this transport carries no tunnels".into()));
        };
        // All that is spawned here ends with this connection.
        let mut tasks = JoinSet::new();
        let board = self.board.clone();
        let note = move |step: &ExchangeStep| {
            board.last.lock().unwrap_or_else(PoisonError::into_inner).note(step);
        };
        tasks.spawn(super::pipe::tell(link.events(), server(&self.host), self.log.clone(), note));
        let goals = self.args.remote.iter().zip(&self.remote).map(|(forward, wants)| Goal {
            name: name_of(forward, &self.host),
            protocol: forward.protocol,
            place: goal(forward).clone(),
            wants: wants.clone(),
        });
        let judge = Judge::Client(goals.collect());
        let (live, teller) = (self.board.live.clone(), self.teller.clone());
        let exit = Exit::new(
            connection.clone(),
            System,
            judge,
            live,
            teller,
            Budget(self.ledger.payer("the server")),
        );
        tasks.spawn(async move { drop(exit.serve().await) });
        for (number, forward) in self.args.remote.iter().enumerate() {
            let asked = Asked::Listen(forward.protocol, number as u16, forward.bind.clone());
            let properties = self.remote[number].of_peer();
            let opening = Opening { asked, properties };
            let name = name_of(forward, &self.host);
            let held = listen(&connection, &opening).await;
            match held {
                Ok((port, flow)) => {
                    if is_first {
                        let at = forward::Place { host: forward.bind.host.clone(), port };
                        let prefix = forward.protocol.prefix();
                        self.tell(&format!("{prefix}{at} of the server leads to {}", goal(forward)));
                    }
                    tasks.spawn(hold(connection.clone(), opening, Some(flow), name, self.teller.clone()));
                }
                Err(why) if is_first => {
                    if let Some(broken) = link.broken() {
                        return Ok((broken, false));
                    }
                    link.close(0, "a forward was refused").await;
                    return Err(Failure::Failed(format!("{}: {why}", self.host)));
                }
                Err(why) => {
                    self.teller.tell(&name, &why);
                    tasks.spawn(hold(connection.clone(), opening, None, name, self.teller.clone()));
                }
            }
        }
        self.now.send_replace(Some(connection.clone()));
        let again =
            ConnectOptions { interactive: false, accept_new: false, qlog: None, ..self.options.clone() };
        let reason = tokio::select! {
            reason = connection.closed() => reason,
            // It goes on for ever; a connection that it ends is closed.
            () = beside::look(self.transport, &self.host, &again, link) => connection.closed().await,
        };
        Ok((link.broken().unwrap_or_else(|| Broken::for_good(reason.to_string())), true))
    }
}

/// The server, as it was named.
pub(super) fn server(host: &Host) -> Peer {
    Peer { address: host.to_string(), ..Peer::default() }
}

/// The name of a forward of the server: it is there that it listens.
fn name_of(forward: &Forward, host: &Host) -> String {
    format!("{}{} of {host}", forward.protocol.prefix(), forward.bind)
}

/// Where a forward of the server leads.
fn goal(forward: &Forward) -> &forward::Place {
    match &forward.goal {
        forward::Goal::Place(place) => place,
        // It is read as that of -L, which has a place.
        forward::Goal::Any => &forward.bind,
    }
}

/// Has the server listen as long as the flow is open. Returns the port.
async fn listen(connection: &Connection, opening: &Opening) -> Result<(u16, (SendFlow, RecvFlow)), String> {
    let asked = timeout(LISTEN_MAX, async {
        let flow = connection.open_flow(FlowOptions::default()).await;
        let (mut send, mut recv) = flow.map_err(io::Error::other)?.split();
        send.write_all(&opening.emit()).await?;
        let answer = stream::read_answer(&mut recv).await?;
        io::Result::Ok((answer, (send, recv)))
    });
    let asked = asked.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let (answer, flow) = asked.map_err(|error| error.to_string())?;
    let port = answer.map_err(|refused| refused.to_string())?;
    Ok((port.parse().map_err(|_| format!("the server listens at port `{port}`, which is none"))?, flow))
}

/// Keeps the server listening.
async fn hold(
    connection: Connection,
    opening: Opening,
    mut flow: Option<(SendFlow, RecvFlow)>,
    name: String,
    teller: Arc<Teller>,
) {
    loop {
        if let Some((_send, mut recv)) = flow.take() {
            // Nothing is expected in it but its end.
            let _ = tokio::io::copy(&mut recv, &mut tokio::io::sink()).await;
            if connection.close_reason().is_some() {
                return;
            }
            teller.tell(&name, "the server listens no more; asking again");
        }
        sleep(LISTEN_AGAIN).await;
        match listen(&connection, &opening).await {
            Ok((_, held)) => {
                teller.tell(&name, "the server listens again");
                flow = Some(held);
            }
            Err(why) => teller.tell(&name, &why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn args(line: &str) -> TunnelArgs {
        let words = ["uts", "tunnel"].into_iter().chain(line.split_whitespace());
        match Args::try_parse_from(words).expect(line).command {
            Command::Tunnel(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_tunnel_of_the_settings_has_a_name() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = "[tunnel.db]\nhost = 'backup'\nlocal = ['5432:db:5432']\ndynamic = '1080'\n\
                    property = ['connPriority=3']\n[tunnel.bad]\nremote = 'x'\n";
        std::fs::write(file.path(), text).expect("written");
        let named = |line: &str| by_name(&args(&format!("--config {} {line}", file.path().display())));
        let tunnel = named("db -L 80:web:80 --property connPriority=4").expect("a tunnel");
        assert_eq!((tunnel.host.as_str(), tunnel.local.len(), tunnel.dynamic.len()), ("backup", 2, 1));
        assert_eq!(tunnel.wanted.properties, ["connPriority=3", "connPriority=4"]);
        let other = named("other -D 1081").expect("no such name: a host");
        assert_eq!((other.host.as_str(), other.dynamic.len()), ("other", 1));
        let Err(Failure::Usage(why)) = named("bad") else { panic!("`x` leads nowhere") };
        assert!(why.starts_with("[tunnel.bad]: remote: `x`"), "{why}");
    }
}
