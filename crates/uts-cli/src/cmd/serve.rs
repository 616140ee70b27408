//! `uts serve`.

mod beneath;
mod clients;
mod inventory;
mod limits;
mod listen;
mod watch;

use super::meter::Meter;
use super::{Failure, interrupted, properties};
use crate::args::ServeArgs;
pub use crate::confine::Confined;
use crate::control::Control;
use crate::dial::Budget;
use crate::link::{self, Link, ListenOptions, Listener, STOPPING, ServerIdentity, Transport};
use crate::perf;
use crate::pipe::{self, Permitted};
use crate::tunnel::exit::{Exit, Judge};
use crate::tunnel::{self, held::Places, permit::Permits};
use crate::ui::bounded::Bounded;
use crate::ui::{self, Served, Start, Ui};
use clients::Clients;
use inventory::Inventory;
pub use limits::{confine_to, system_files};
use listen::Wrong;
use sd_notify::NotifyState;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::{self as state, Receiver};
use tokio::task::JoinSet;
use tokio::time::timeout;
use uts::files::{Client, ServeOptions, Service};
use uts::ledger::{self, Ledger, Payer};
use uts::{NO_SUCH_SERVICE, NoSuchService, Services};
use uts_units::show;
use watch::Watch;

/// How long a server that ends waits for its clients to be told. With the rest of its work it ends
/// within two seconds.
pub(super) const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// Said of a client, and to it, that `uts ctl` has ended.
const ENDED: &str = "ended by the operator of the server";

/// Runs `uts serve` until it is interrupted, as it was [confined](confine_to).
///
/// # Errors
/// See [`Failure`].
pub async fn run<T: Transport>(
    transport: &T,
    args: &ServeArgs,
    confined: Result<Confined, Failure>,
) -> Result<(), Failure> {
    let ui = ui::choose(args.json, args.quiet, false);
    let result = match confined {
        Ok(confined) => serve(transport, args, ui.clone(), confined, interrupted()).await,
        Err(failure) => Err(failure),
    };
    if let Some(line) = result.as_ref().err().and_then(Failure::line) {
        ui.failed(line);
    }
    result
}

/// Refuses options that leave open who may do what they allow.
fn check(args: &ServeArgs) -> Result<(), Failure> {
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
    if args.perf && !args.anyone && args.authorized_keys.is_none() {
        let why = "--perf: say who may use it, by --authorized-keys FILE or --anyone";
        return Err(Failure::Usage(why.into()));
    }
    check_beneath(args)
}

/// Serves until `interrupt` ends.
pub(crate) async fn serve<T: Transport>(
    transport: &T,
    args: &ServeArgs,
    ui: Arc<dyn Ui>,
    confined: Confined,
    interrupt: impl Future<Output = ()>,
) -> Result<(), Failure> {
    check(args)?;
    tunnel::make_room_for_sockets();
    let budget = ledger::Budget::of_process();
    let has_sockets = !(args.pipe.is_empty() && args.forward.is_empty() && args.listen_forward.is_empty());
    let budget = if has_sockets && args.dir.is_some() { budget.with_files_and_sockets() } else { budget };
    let ledger = Ledger::of_server(&budget);
    let offer = offer(args, &ledger)?;
    let bounded = Bounded::new(ui.clone(), &ledger);
    let (left_out, ui): (_, Arc<dyn Ui>) = (bounded.clone(), bounded);
    let mut watch = Watch::new(&ledger);
    let control = args.control.as_deref().map(Control::bind).transpose().map_err(Failure::Failed)?;
    let mut listener = transport.listen(&listen_options(args).await?).await.map_err(Failure::Failed)?;
    let found = look(args).await?;
    ui.start(&Start {
        command: "serve",
        address: listener.local_addr().to_string(),
        fingerprint: listener.fingerprint(),
        subject: args.dir.as_ref().map_or_else(String::new, |dir| dir.display().to_string()),
        served: Some(served(args, listener.local_addr(), &found, confined)?),
    });
    tell_manager(&NotifyState::Ready);
    if let Some(warning) = found.warning() {
        ui.warning(&warning);
    }
    tokio::pin!(interrupt);
    let present = Clients::new(listener.local_addr().to_string(), ledger.clone());
    let mut controls = JoinSet::new();
    if let Some(control) = control {
        controls.spawn(control.serve(present.clone()));
    }
    let (stop, stopping) = state::channel(false);
    let mut clients = JoinSet::new();
    let ended = loop {
        tokio::select! {
            () = &mut interrupt => break Ok(()),
            Some(_) = clients.join_next(), if !clients.is_empty() => {}
            () = watch.next() => watch.tell(&*ui, &left_out, clients.len()),
            next = listener.accept() => match next {
                Some(Ok(link)) => {
                    let payers = (ledger.clone(), present.clone());
                    clients.spawn(serve_client(offer.clone(), payers, link, ui.clone(), stopping.clone()));
                    watch.on_client(clients.len());
                }
                Some(Err(why)) => ui.connection("refused", "a client", &why),
                None => break Err(Failure::Failed("the socket was closed".into())),
            },
        }
    };
    tell_manager(&NotifyState::Stopping);
    // What clients were sending stays in parts, to be continued.
    stop.send_replace(true);
    let goodbyes = async { while clients.join_next().await.is_some() {} };
    // A client that has not been told by then finds out by itself.
    let _ = timeout(GOODBYE_MAX, goodbyes).await;
    listener.close().await;
    ended
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

/// Tells the service manager, if it wants to know (systemd's `Type=notify`).
fn tell_manager(state: &NotifyState<'_>) {
    // Without it, the server serves all the same.
    let _ = sd_notify::notify(std::slice::from_ref(state));
}

/// What a client may ask for.
enum Offered {
    Files(Service),
    Pipes(Arc<Permitted>),
    Tunnels(Arc<Permits>, Arc<Places>),
    Perf(perf::Server),
}

/// What clients may ask for, by its name.
type Offer = Services<Offered>;

fn offer(args: &ServeArgs, ledger: &Ledger) -> Result<Offer, Failure> {
    let options =
        ServeOptions { read_only: !args.writable, preserve_mode: args.preserve_mode, hidden: args.hidden };
    let mut offer = Services::new();
    if let Some(dir) = &args.dir {
        let service = Service::open(dir, options);
        let service = service.map_err(|error| Failure::Failed(format!("--dir {error}")))?;
        offer = offer.with("", Offered::Files(service.charged_to(ledger)));
    }
    let pipes = Permitted::new(&args.pipe).map_err(|why| Failure::Usage(format!("--pipe: {why}")))?;
    if !pipes.is_empty() {
        offer = offer.with(pipe::SERVICE, Offered::Pipes(Arc::new(pipes)));
    }
    let permits = Permits { connect: args.forward.clone(), listen: args.listen_forward.clone() };
    if !permits.is_empty() {
        offer = offer.with(tunnel::SERVICE, Offered::Tunnels(Arc::new(permits), Arc::default()));
    }
    if args.perf {
        offer = offer.with(perf::SERVICE, Offered::Perf(perf::Server::default()));
    }
    Ok(offer)
}

async fn serve_client<L: Link>(
    offer: Offer,
    (ledger, present): (Ledger, Arc<Clients>),
    link: L,
    ui: Arc<dyn Ui>,
    mut stopping: Receiver<bool>,
) {
    let (address, fingerprint) = link.peer();
    let offered = match offer.find(&link.service()) {
        Ok(offered) => offered,
        Err(NoSuchService(asked)) => {
            let why = if asked.is_empty() {
                "it serves no files".to_owned()
            } else {
                NoSuchService(asked).to_string()
            };
            ui.connection("refused", &address, &why);
            return link.close(NO_SUCH_SERVICE, &why).await;
        }
    };
    ui.connection("connected", &address, fingerprint.as_deref().unwrap_or_default());
    let entered = present.enter(&address, fingerprint.as_deref(), &link.service());
    let meter = Meter::new(link.clone(), ui.clone(), Some(address.clone()));
    let telling = meter.run();
    let flows = link.flows();
    // Clients with keys are told apart by them, others by where they are.
    let payer = ledger.payer(fingerprint.as_deref().unwrap_or_else(|| host(&address)));
    let budget = Budget(payer.clone());
    let client = Client { key: fingerprint, address: host(&address).to_owned() };
    // Of this transport, whose flows may be of messages, or have properties of their own.
    let connection = || link.connection().ok_or_else(|| "this transport carries none of it".to_owned());
    let words = |error: io::Error| error.to_string();
    let serving = async {
        match offered {
            Offered::Files(files) => {
                files.serve(&*flows, client, meter.clone()).await.map_err(|e| e.to_string())
            }
            Offered::Pipes(pipes) => pipe::serve(pipes.clone(), &*flows, budget).await.map_err(words),
            Offered::Tunnels(permits, places) => {
                let judge = Judge::Server(permits.clone(), places.clone(), connection()?.peer_fingerprint());
                let client = address.clone();
                let ui = ui.clone();
                let say = move |line: &str| ui.notice(Some(&client), "tunnel", line);
                let teller = tunnel::Teller::new(tunnel::TOLD_MAX, say);
                let exit = Exit::new(connection()?, judge, Arc::default(), teller, budget);
                exit.serve().await.map_err(words)
            }
            Offered::Perf(server) => measure(server, Arc::new(connection()?), &payer, &*ui, &address).await,
        }
    };
    // It lives until the client is told: flows that it drops are reset, and the client would hear
    // that first.
    tokio::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => Some(served),
        () = entered.ended() => Some(Err(ENDED.to_owned())),
        _ = stopping.wait_for(|&stop| stop) => None,
    };
    telling.abort();
    let Some(served) = served else { return link.close(STOPPING, "the server is stopping").await };
    if !matches!(offered, Offered::Perf(_)) {
        meter.sample();
    }
    let why = served.err().unwrap_or_default();
    ui.connection("gone", &address, &why);
    link.close(0, if why == ENDED { ENDED } else { "done" }).await;
}

/// Measures for a client, and tells what came of it.
async fn measure(
    server: &perf::Server,
    connection: Arc<uts::Connection>,
    payer: &Payer,
    ui: &dyn Ui,
    address: &str,
) -> Result<(), String> {
    let measured = server.serve(connection, payer).await.map_err(|error| error.to_string())?;
    let kind = measured.request.workload.kind();
    for (way, half) in [("from", &measured.own.served), ("to", &measured.client.served)] {
        let Some(half) = half else { continue };
        let goodput =
            half.sum("goodput").map_or_else(String::new, |bps| format!(", {}", show::bits_per_second(bps)));
        let why = half.cut_short().map_or_else(String::new, |why| format!("; {why}"));
        ui.notice(Some(address), "perf", &format!("{kind} {way} it{goodput}{why}"));
    }
    Ok(())
}

/// An address without its port.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

async fn look(args: &ServeArgs) -> Result<Inventory, Failure> {
    let Some(dir) = args.dir.clone() else { return Ok(Inventory::default()) };
    let hidden = args.hidden;
    let found = tokio::task::spawn_blocking(move || inventory::look(&dir, hidden)).await;
    found.map_err(|error| Failure::Failed(error.to_string()))
}

/// What is given whom, as is said at first.
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
    let list = |patterns: &[tunnel::permit::Pattern]| {
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
        connections_max: args.max_connections as usize,
        connections_per_address_max: args.max_per_address as usize,
        connections_per_key_max: args.max_per_key as usize,
        properties: properties(&args.wanted)?,
        qlog: args.log.dir(),
        silence_max: if args.pipe.is_empty() && !may_tunnel { Duration::ZERO } else { args.silence },
        flows_max: may_tunnel.then_some(tunnel::FLOWS_MAX),
    })
}
