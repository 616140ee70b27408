//! `uts serve`.

mod beneath;
mod clients;
mod doors;
mod inventory;
mod limits;
pub(super) mod listen;
mod manager;
mod reload;
mod settings;
mod succession;
mod watch;

use super::meter::Meter;
use super::{Failure, interrupted_or, properties};
use crate::args::ServeArgs;
pub use crate::confine::Confined;
use crate::control::Control;
use crate::link::{
    self, Limits, Link, ListenOptions, Listener, STOPPING, ServerIdentity, Transport, TurnedAway,
};
use crate::media::hub::Hub;
use crate::media::server::Client as MediaClient;
use crate::ui::bounded::Bounded;
use crate::ui::log::{Filter, Log};
use crate::ui::record::{Peer, Record};
use crate::ui::{Served, Start, Ui};
use clients::Clients;
use doors::{Doors, bind_control};
use inventory::Inventory;
pub use limits::{confine_to, system_files};
use listen::Wrong;
use manager::Manager;
use reload::Running;
pub use reload::Source;
pub use settings::Settings;
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use succession::{Before, Step, Succession, Taking};
use tokio::sync::mpsc;
use tokio::sync::watch::{self as state, Receiver};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use uts::{NO_SUCH_SERVICE, NoSuchService, Services};
use uts_files::{Client, Service};
use uts_ledger::{Ledger, Payer};
use uts_tunnel::dial::Budget;
use uts_tunnel::exit::{Exit, Judge};
use uts_tunnel::held::Places;
use uts_tunnel::permit::Permits;
use uts_tunnel::pipe::{Owner, Permitted, Pipes};
use uts_tunnel::sockets::System;
use uts_units::show;
use watch::Watch;

/// Time that a server that ends waits for its clients to be told. With the rest of its work it ends
/// within two seconds.
pub(super) const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// Lines in a minute about what libraries tell of themselves.
const LIBRARY_LINES_MAX: usize = 120;

/// Said of streams that end with the connection that carries them.
const ENDED_WITH_IT: &str = "the connection has ended";

/// Said of a client, and to it, that `uts ctl` has ended.
const ENDED: &str = "ended by the operator of the server";

/// Runs `uts serve` until it is interrupted, as it was [confined](confine_to).
///
/// # Errors
/// See [`Failure`].
pub async fn run<T: Transport>(
    transport: &T,
    settings: Option<Settings>,
    confined: Result<Confined, Failure>,
) -> Result<(), Failure> {
    let Some(settings) = settings else { return Err(Failure::Usage("nothing is served".into())) };
    let args = &settings.args;
    let log =
        Arc::new(Log::new(args.json, Filter::new(args.more.verbose, args.quiet).map_err(Failure::Usage)?));
    let ui: Arc<dyn Ui> = log.clone();
    let result = match confined {
        Ok(confined) => {
            log.listen(Bounded::alone(ui.clone(), LIBRARY_LINES_MAX));
            let (reload, wanted) = mpsc::channel(1);
            let source = Source { words: crate::words_of_command().collect(), wanted };
            let interrupt = interrupted_or(args.config.is_some().then_some(reload));
            serve(transport, settings, source, ui.clone(), confined, interrupt).await
        }
        Err(failure) => Err(failure),
    };
    if let Some(line) = result.as_ref().err().and_then(Failure::line) {
        ui.failed(line);
    }
    result
}

/// Refuses options that leave open who may do what they allow.
fn check(args: &ServeArgs) -> Result<(), Failure> {
    let leads = !(args.pipe.is_empty() && args.forward.is_empty() && args.listen_forward.is_empty());
    if args.dir.is_none() && !leads && !args.media && !args.perf {
        let why =
            "nothing is served: say what, by --dir, --pipe, --forward, --listen-forward, --media or --perf";
        return Err(Failure::Usage(why.into()));
    }
    if args.writable && !args.anyone && args.authorized_keys.is_none() {
        let why = "--writable: say who may write, by --authorized-keys FILE or --anyone";
        return Err(Failure::Usage(why.into()));
    }
    if !args.pipe.is_empty() && !args.anyone && args.authorized_keys.is_none() {
        let why = "--pipe: say who may use it, by --authorized-keys FILE or --anyone";
        return Err(Failure::Usage(why.into()));
    }
    if !(args.forward.is_empty() && args.listen_forward.is_empty()) && args.authorized_keys.is_none() {
        let why = "--forward, --listen-forward: say whose keys may use it, by --authorized-keys FILE";
        return Err(Failure::Usage(why.into()));
    }
    if args.media && !args.anyone && args.authorized_keys.is_none() {
        let why = "--media: say who may use it, by --authorized-keys FILE or --anyone";
        return Err(Failure::Usage(why.into()));
    }
    if args.perf && !args.anyone && args.authorized_keys.is_none() {
        let why = "--perf: say who may use it, by --authorized-keys FILE or --anyone";
        return Err(Failure::Usage(why.into()));
    }
    check_beneath(args)
}

/// Serves until `interrupt` ends.
pub(crate) async fn serve<T: Transport>(
    transport: &T,
    settings: Settings,
    mut source: Source,
    ui: Arc<dyn Ui>,
    confined: Confined,
    interrupt: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let args = &settings.args.clone();
    check(args)?;
    uts_tunnel::make_room_for_sockets();
    let budget = uts_ledger::Budget::of_process();
    let has_sockets = !(args.pipe.is_empty() && args.forward.is_empty() && args.listen_forward.is_empty());
    let budget = if has_sockets && args.dir.is_some() { budget.with_files_and_sockets() } else { budget };
    let ledger = Ledger::of_server(&budget);
    let mut running = Running::new(settings, confined.files, &ledger)?;
    let bounded = Bounded::new(ui.clone(), &ledger);
    let (left_out, ui): (_, Arc<dyn Ui>) = (bounded.clone(), bounded);
    let mut watch = Watch::new(&ledger);
    let Begun { mut listener, found, control, before } = begin(transport, args).await?;
    ui.start(&Start {
        command: "serve",
        address: listener.local_addr().to_string(),
        fingerprint: listener.fingerprint(),
        subject: args.dir.as_ref().map_or_else(String::new, |dir| dir.display().to_string()),
        served: Some(served(args, listener.local_addr(), &found, confined)?),
    });
    let mut manager = Manager::new(listener.pulse(), before.as_ref().and_then(Before::watchdog));
    match &before {
        None => manager.ready(),
        Some(before) => {
            manager.ready_instead();
            let process = before.process();
            let line = format!("process {process} has given way, and serves its clients to their end");
            ui.notice(None, "took over", &line);
        }
    }
    if let Some(warning) = found.warning() {
        ui.warning(&warning);
    }
    tokio::pin!(interrupt);
    let present = Clients::new(listener.local_addr().to_string(), ledger.clone());
    let (ask, asks) = mpsc::channel(1);
    let mut succession = Succession::new(asks, args.drain, before);
    let without_place = Arc::new(AtomicU64::new(0));
    let mut doors = Doors::new(args, &present, &without_place, ask);
    doors.open(control, &*ui).await?;
    let (stop, stopping) = state::channel(false);
    let mut clients = JoinSet::new();
    let ended = loop {
        tokio::select! {
            () = &mut interrupt => break Ok(()),
            Some(_) = clients.join_next(), if !clients.is_empty() => {}
            () = source.wanted() => {
                manager.reloading();
                reload(&source.words, &mut running, &listener, &*ui);
                manager.ready();
            }
            () = manager.live() => {}
            () = watch.next() => {
                watch.tell(&*ui, &left_out, clients.len());
                without_place.store(listener.refused(), Relaxed);
                doors.look();
            }
            step = succession.next() => {
                let parts = (&mut succession, &mut manager, &mut doors);
                if follow(step, &listener, parts, clients.len(), &*ui).await {
                    break Ok(());
                }
            }
            next = listener.accept() => match next {
                Some(Ok(link)) => {
                    let payers = (ledger.clone(), present.clone());
                    clients.spawn(serve_client(running.offer.clone(), payers, link, ui.clone(), stopping.clone()));
                    watch.on_client(clients.len());
                }
                Some(Err(TurnedAway { peer, why })) => {
                    let has_key = peer.as_ref().is_some_and(|peer| peer.key.is_some());
                    present.refused(if has_key { "key" } else { "handshake" });
                    tell(&*ui, "refused", peer.as_ref(), &why);
                }
                None => break Err(Failure::Failed("the socket was closed".into())),
            },
        }
    };
    manager.stopping();
    succession.end().await;
    // What clients were sending stays in parts, to be continued.
    stop.send_replace(true);
    let goodbyes = async { while clients.join_next().await.is_some() {} };
    // A client that has not been told by then finds out by itself.
    let _ = timeout(GOODBYE_MAX, goodbyes).await;
    listener.close().await;
    ended
}

/// A server that has its socket.
struct Begun<L> {
    listener: L,
    found: Inventory,
    control: Option<Control>,
    /// The process whose port it has taken over.
    before: Option<Before>,
}

/// Listens, in the place of another process if one is to be taken over and runs. That gives way
/// when all that may fail has been done, and frees its control socket.
async fn begin<T: Transport>(transport: &T, args: &ServeArgs) -> Result<Begun<T::Listener>, Failure> {
    let options = listen_options(args).await?;
    let Some(taking) = taking(args, &options.addresses).await? else {
        let control = bind_control(args)?;
        let listener = transport.listen(&options, None).await.map_err(Failure::Failed)?;
        return Ok(Begun { listener, found: look(args).await?, control, before: None });
    };
    let found = look(args).await?;
    let (port, before) = taking.go().await.map_err(Failure::Failed)?;
    let listener = transport.listen(&options, Some(port)).await.map_err(Failure::Failed)?;
    Ok(Begun { listener, found, control: bind_control(args)?, before: Some(before) })
}

/// Takes a step on the way to a successor, or back. True = nothing is left to serve.
async fn follow(
    step: Step,
    listener: &impl Listener,
    (succession, manager, doors): (&mut Succession, &mut Manager, &mut Doors<'_>),
    clients: usize,
    ui: &dyn Ui,
) -> bool {
    match step {
        Step::Asked(stream) => {
            let port = listener.hand_over().await;
            succession.offer(stream, port, manager.period()).await;
        }
        Step::Ready(may_go) => {
            doors.close().await;
            manager.be_silent();
            succession.give_way(may_go).await;
            let line = "another process has taken over; clients that are here are served to their end";
            ui.notice(None, "gave way", line);
        }
        Step::Given => succession.given(),
        Step::Lost(had_given_way) => {
            succession.resume();
            if had_given_way {
                doors.open_again(ui).await;
                manager.ready_instead();
                ui.warning("the process that had taken over is gone: this one serves new clients again");
            }
        }
        Step::Look => {
            let is_over = clients == 0 && listener.connections() == 0 && !succession.has_before();
            if is_over {
                ui.notice(None, "done", "the last client that was here has gone");
            }
            return is_over;
        }
        Step::Over(why) => {
            ui.notice(None, "done", &why);
            return true;
        }
    }
    false
}

/// The port of the server that is to be taken over, if one runs.
async fn taking(args: &ServeArgs, addresses: &[SocketAddr]) -> Result<Option<Taking>, Failure> {
    let Some(control) = args.control.as_deref().filter(|_| args.take_over) else { return Ok(None) };
    let taking = Taking::ask(control).await.map_err(Failure::Failed)?;
    if let Some(taking) = &taking {
        taking.check(args.workers, addresses).map_err(Failure::Failed)?;
    }
    Ok(taking)
}

/// Files that say who may come in are no files to serve.
fn check_beneath(args: &ServeArgs) -> Result<(), Failure> {
    let Some(dir) = &args.dir else { return Ok(()) };
    let own =
        args.key.clone().or_else(|| uts::Identity::default_path().ok()).filter(|_| args.cert_key.is_none());
    let files = [
        ("--authorized-keys", args.authorized_keys.as_deref()),
        ("--key", own.as_deref()),
        ("--cert-key", args.cert_key.as_deref()),
    ];
    beneath::check(dir, args.hidden, &files).map_err(Failure::Usage)
}

/// Takes over settings that were read again, or tells why not.
fn reload(words: &[OsString], running: &mut Running, listener: &impl Listener, ui: &dyn Ui) {
    let adjust = |before: &ServeArgs, next: &ServeArgs| {
        if let Some(file) =
            next.authorized_keys.as_ref().filter(|_| before.authorized_keys != next.authorized_keys)
        {
            listener.set_authorized_keys(file)?;
        }
        listener.set_limits(limits_of(next));
        Ok(())
    };
    let taken = Settings::read(words).and_then(|next| running.take(&next, adjust));
    match taken {
        Ok(line) => ui.notice(None, "reloaded", &line),
        Err(why) => {
            for line in why.lines() {
                ui.error(line);
            }
            ui.error("the settings were not read again: those before stay");
        }
    }
}

/// Most connections at once, as the options have it.
fn limits_of(args: &ServeArgs) -> Limits {
    let [all, per_address, per_key] =
        [args.max_connections, args.max_per_address, args.max_per_key].map(|most| most as usize);
    Limits { all, per_address, per_key }
}

/// Something that a client may ask for.
enum Offered {
    Files(Service),
    Pipes(Arc<Pipes>),
    Tunnels(Receiver<Arc<Permits>>, Arc<Places>),
    Media(Arc<Hub>),
    Perf(Arc<uts_perf::Server>),
}

/// All that clients may ask for, by its name.
type Offer = Services<Offered>;

async fn serve_client<L: Link>(
    offer: Offer,
    (ledger, present): (Ledger, Arc<Clients>),
    link: L,
    ui: Arc<dyn Ui>,
    mut stopping: Receiver<bool>,
) {
    let (address, fingerprint) = link.peer();
    let peer = Peer::client(&address, fingerprint.as_deref(), &link.service());
    let offered = match offer.find(&link.service()) {
        Ok(offered) => offered,
        Err(NoSuchService(asked)) => {
            let why = if asked.is_empty() {
                "it serves no files".to_owned()
            } else {
                NoSuchService(asked).to_string()
            };
            present.refused("service");
            tell(&*ui, "refused", Some(&peer), &why);
            return link.close(NO_SUCH_SERVICE, &why).await;
        }
    };
    tell(&*ui, "connected", Some(&peer), fingerprint.as_deref().unwrap_or_default());
    let since = Instant::now();
    let live = present.streams(&ui, &peer);
    let meter = Meter::new(link.clone(), ui.clone(), Some(peer.clone()));
    let counted = present.clone();
    meter.on_exchange(move |step| counted.exchanged(step.step));
    let entered = present.enter(&peer, live.clone(), meter.clone());
    let telling = meter.run();
    let flows = link.flows();
    // Clients with keys are told apart by them, others by where they are.
    let payer = ledger.payer(fingerprint.as_deref().unwrap_or_else(|| peer.host()));
    let budget = Budget(payer.clone());
    let client = Client { key: fingerprint.clone(), address: peer.host().to_owned() };
    // Of this transport, whose flows may be of messages, or have properties of their own.
    let connection = || link.connection().ok_or_else(|| "this transport carries none of it".to_owned());
    let words = |error: io::Error| error.to_string();
    let serving = async {
        match offered {
            Offered::Files(files) => {
                files.serve(&*flows, client, meter.clone()).await.map_err(|e| e.to_string())
            }
            Offered::Pipes(pipes) => {
                let owner = Owner { key: fingerprint.clone(), budget, live: live.clone() };
                pipes.serve(&*flows, owner).await.map_err(words)
            }
            Offered::Tunnels(permits, places) => {
                let judge = Judge::Server(permits.clone(), places.clone(), connection()?.peer_fingerprint());
                let (ui, peer) = (ui.clone(), peer.clone());
                let teller = uts_tunnel::Teller::new(move |line| ui.notice(Some(&peer), "tunnel", line));
                let exit = Exit::new(connection()?, System, judge, live.clone(), teller, budget);
                exit.serve().await.map_err(words)
            }
            Offered::Media(hub) => {
                let (ui, peer) = (ui.clone(), peer.clone());
                let owner = fingerprint.clone().unwrap_or_else(|| peer.host().to_owned());
                let teller = uts_tunnel::Teller::new(move |line| ui.notice(Some(&peer), "media", line));
                let (connection, budget) = (connection()?, &budget);
                let client =
                    MediaClient { hub, connection, live: &live, budget, owner: &owner, teller: &teller };
                client.serve().await.map_err(words)
            }
            Offered::Perf(server) => measure(server, connection()?, &payer, &*ui, &peer).await,
        }
    };
    // It lives until the client is told: flows that it drops are reset, and the client would hear
    // that first.
    tokio::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => Ok(served),
        () = entered.ended() => Err((0, ENDED)),
        _ = stopping.wait_for(|&stop| stop) => Err((STOPPING, "the server is stopping")),
    };
    telling.abort();
    // T-16: what outlives a connection outlives its loss, and no end that was wanted.
    let ends_all = served.is_err() || !link.is_lost();
    if served.is_ok() && !matches!(offered, Offered::Perf(_)) {
        meter.sample();
    }
    // Why the connection has ended says more than what that was for who served it.
    let why = match &served {
        Ok(served) => link.broken().map(|broken| broken.why).or(served.clone().err()).unwrap_or_default(),
        Err((_, why)) => (*why).to_owned(),
    };
    let (bytes, lasted) = (Some(link.content_bytes()), Some(since.elapsed()));
    let gone = Record { event: "connection", step: "gone", peer: Some(&peer), ..Record::default() };
    ui.record(&Record { bytes, lasted, line: &why, ..gone });
    let (code, said) = served.map_or_else(|ended| ended, |_| (0, "done"));
    link.close(code, said).await;
    if ends_all {
        live.end_all(ENDED_WITH_IT);
    }
}

/// Tells what becomes of a client.
fn tell(ui: &dyn Ui, step: &str, peer: Option<&Peer>, line: &str) {
    ui.record(&Record { event: "connection", step, peer, line, ..Record::default() });
}

/// Measures for a client, and tells what came of it.
async fn measure(
    server: &uts_perf::Server,
    connection: uts::Connection,
    payer: &Payer,
    ui: &dyn Ui,
    peer: &Peer,
) -> Result<(), String> {
    let measured = server.serve(connection, payer).await.map_err(|error| error.to_string())?;
    let kind = measured.request.workload.kind();
    for (way, half) in [("from", &measured.server.served), ("to", &measured.client.served)] {
        let Some(half) = half else { continue };
        let goodput =
            half.sum("goodput").map_or_else(String::new, |bps| format!(", {}", show::bits_per_second(bps)));
        let why = half.cut_short().map_or_else(String::new, |why| format!("; {why}"));
        ui.notice(Some(peer), "perf", &format!("{kind} {way} it{goodput}{why}"));
    }
    Ok(())
}

async fn look(args: &ServeArgs) -> Result<Inventory, Failure> {
    let Some(dir) = args.dir.clone() else { return Ok(Inventory::default()) };
    let hidden = args.hidden;
    let found = tokio::task::spawn_blocking(move || inventory::look(&dir, hidden)).await;
    found.map_err(|error| Failure::Failed(error.to_string()))
}

/// First lines: services, and the clients that may use them.
fn served(
    args: &ServeArgs,
    listening_at: SocketAddr,
    found: &Inventory,
    confined: Confined,
) -> Result<Served, Failure> {
    let clients = match &args.authorized_keys {
        Some(file) => {
            let keys = uts::AuthorizedKeys::load(file).map_err(|error| Failure::Failed(error.to_string()))?;
            let keys = if keys.len() == 1 { "1 key".to_owned() } else { format!("{} keys", keys.len()) };
            format!("the {keys} in {}", file.display())
        }
        None => "anyone".to_owned(),
    };
    Ok(Served {
        is_writable: args.writable,
        has_files: args.dir.is_some(),
        has_media: args.media,
        has_perf: args.perf,
        pipes: Permitted::new(&args.pipe).map(|pipes| pipes.to_string()).unwrap_or_default(),
        forwards: forwards(args),
        clients,
        reach: reach(listening_at.ip()),
        files: found.files,
        has_more: found.has_more,
        leaves_hidden: found.leaves_hidden,
        confined: confined.words(),
    })
}

/// Where tunnels may lead, in words.
fn forwards(args: &ServeArgs) -> String {
    let list = |patterns: &[uts_tunnel::permit::Pattern]| {
        patterns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    match (args.forward.is_empty(), args.listen_forward.is_empty()) {
        (true, true) => String::new(),
        (false, true) => list(&args.forward),
        (true, false) => format!("clients from {}", list(&args.listen_forward)),
        (false, false) => {
            format!("{}, and to clients from {}", list(&args.forward), list(&args.listen_forward))
        }
    }
}

/// From where an address can be reached.
fn reach(address: IpAddr) -> &'static str {
    match address.to_canonical() {
        address if address.is_unspecified() => "on all networks of this host",
        address if address.is_loopback() => "from this host only",
        _ => "on the network of this address",
    }
}

async fn listen_options(args: &ServeArgs) -> Result<ListenOptions, Failure> {
    let addresses = listen::addresses(args.listen.as_deref()).await.map_err(|wrong| match wrong {
        Wrong::Text(why) => Failure::Usage(format!("--listen: {why}")),
        Wrong::Name(why) => Failure::Failed(format!("--listen {why}")),
    })?;
    let identity = match (&args.cert, &args.cert_key) {
        (Some(chain), Some(key)) => ServerIdentity::Certificate { chain: chain.clone(), key: key.clone() },
        _ => ServerIdentity::Key(args.key.clone()),
    };
    let may_tunnel = !(args.forward.is_empty() && args.listen_forward.is_empty());
    Ok(ListenOptions {
        key_exchange: link::key_exchange(args.classical),
        addresses,
        identity,
        authorized_keys: args.authorized_keys.clone(),
        limits: limits_of(args),
        workers: args.workers,
        properties: properties(&args.wanted)?,
        qlog: args.log.dir(),
        silence_max: if args.pipe.is_empty() && !may_tunnel { Duration::ZERO } else { args.silence },
        flows_max: may_tunnel.then_some(uts_tunnel::FLOWS_MAX),
    })
}
