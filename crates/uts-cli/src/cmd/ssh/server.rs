//! The server that `uts ssh` starts at the host: of one client's key, with a key of its own that
//! lives as long as it does, and leading to the sshd that has let the user in, and nowhere else. It
//! carries one stream, over UDP and over logins of the user ([`super::carry`]), which come to its
//! socket.

use super::board::Board;
use super::{SERVICE, TCP, UDP, VERSION, places};
use crate::args::SshServerArgs;
use crate::cmd::{Failure, interrupted, serve};
use crate::confine::{Limits, confine};
use crate::control::Control;
use crate::link::{Carrying, Link, STOPPING};
use crate::udp::UdpLink;
use crate::ui::lines;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use uts::{AuthorizedKeys, ClientAuth, Fingerprint, Identity, Listener, NO_SUCH_SERVICE, ServerOptions};
use uts_end::output::words;
use uts_files::Flows;
use uts_ledger::{Charge, Ledger};
use uts_tunnel::dial::Budget;
use uts_tunnel::pipe::{self, Permitted, Service, read_request};
use uts_tunnel::resumed::{Begun, Carrier, Session, Sessions, WINDOW_BYTES};
use uts_tunnel::sockets::System;
use uts_tunnel::stream::{REQUEST_MAX, Refused, answer};

/// Most connections at once: the client has one, and another in place of one that is lost.
const CONNECTIONS_MAX: usize = 8;

/// Requests that are read at once, of flows and logins.
const REQUESTS_MAX: usize = 16;

/// A process that is ready to serve: it belongs to no terminal, and is confined.
pub struct Ready {
    null: File,
    socket: Socket,
}

/// The socket to which logins lead, removed at the end.
struct Socket {
    listener: Option<StdUnixListener>,
    file: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Who removed it before has done the same.
        let _ = fs::remove_file(&self.file);
    }
}

/// Makes this process ready. To be called before there are any threads.
///
/// # Errors
/// If the kernel could confine but does not, or there are too many servers of this user.
pub fn prepare(args: &SshServerArgs) -> Result<Option<Ready>, Failure> {
    let (None, Some(client)) = (args.speaks, &args.client) else { return Ok(None) };
    let failed = |what: &str, error: std::io::Error| Failure::Failed(format!("{what}: {}", words(&error)));
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = null.map_err(|error| failed("/dev/null", error))?;
    // The login that has begun it ends before it.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/").map_err(|error| failed("/", error))?;
    let dir = places::directory().map_err(Failure::Failed)?;
    let (listener, file) = places::bind(&dir, client).map_err(Failure::Failed)?;
    let socket = Socket { listener: Some(listener), file };
    let limits = Limits { reads: serve::system_files(), writes: vec![dir], uses_tcp: true };
    confine(&limits).map_err(Failure::Failed)?;
    Ok(Some(Ready { null, socket }))
}

/// Serves until the session is over. Says on standard output where it is, and then leaves the
/// outputs to others.
///
/// # Errors
/// See [`Failure`].
pub async fn run(args: &SshServerArgs, ready: Option<Ready>) -> Result<(), Failure> {
    let (Some(client), Some(mut ready)) = (args.client, ready) else {
        return if args.speaks == Some(VERSION) { Ok(()) } else { Err(Failure::Told) };
    };
    let (address, port) = sshd(std::env::var("SSH_CONNECTION").ok().as_deref()).map_err(Failure::Failed)?;
    let service = Service { name: SERVICE.to_owned(), address: SocketAddr::new(address, port).to_string() };
    let permitted = Permitted::new(&[service]).map_err(Failure::Failed)?;
    let listener = listen(args.udp_ports, client, args.silence)?;
    let at = listener.local_addr().port();
    let logins = ready.socket.listener.take().and_then(|logins| UnixListener::from_std(logins).ok());
    let logins = logins.ok_or_else(|| Failure::Failed("no socket for logins".into()))?;
    lines::print(&format!("uts-ssh at {at} {} {address}", listener.fingerprint()));
    leave(&ready.null).map_err(|error| Failure::Failed(words(&error.into())))?;
    let ledger = Ledger::of_server(&uts_ledger::Budget::of_process());
    let (begins, begun) = mpsc::channel(1);
    let name = places::name(&client);
    let from = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let board = Board::new(name.clone(), from.split(' ').next().unwrap_or_default().to_owned());
    let file = ready.socket.file.with_extension(places::CONTROL_THERE);
    let control = Control::bind(&file).map_err(Failure::Failed)?;
    let control = tokio::spawn(control.serve(board.clone()));
    let desk = Arc::new(Desk {
        permitted,
        budget: Budget(ledger.payer(SERVICE)),
        sessions: Sessions::new(1),
        room: Semaphore::new(REQUESTS_MAX),
        begins,
    });
    serve_until_over(&listener, &logins, &desk, (begun, &board), args).await;
    control.abort();
    // Its socket is removed with it.
    let _ = control.await;
    Ok(())
}

/// Leaves the outputs: ssh ends when nobody has them any more.
pub fn leave(null: &File) -> rustix::io::Result<()> {
    rustix::stdio::dup2_stdin(null)?;
    rustix::stdio::dup2_stdout(null)?;
    rustix::stdio::dup2_stderr(null)
}

/// Address and port at which the sshd that has let the user in took the connection, by what it
/// says in `SSH_CONNECTION`: client's address and port, own address and port.
fn sshd(connection: Option<&str>) -> Result<(IpAddr, u16), String> {
    let connection = connection.ok_or("SSH_CONNECTION is not set: only sshd starts this server")?;
    let wrong = || format!("SSH_CONNECTION is `{connection}`: no address and port of sshd");
    let words: Vec<&str> = connection.split(' ').collect();
    let [_, _, address, port] = words[..] else { return Err(wrong()) };
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
    match address.split_once('%') {
        // An address of a link is of no use without its network.
        Some(_) => Ok((Ipv6Addr::LOCALHOST.into(), port)),
        None => Ok((address.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical(), port)),
    }
}

/// Listens at the first port that is free, of both families if the host has both.
fn listen((first, last): (u16, u16), client: Fingerprint, silence: Duration) -> Result<Listener, Failure> {
    let failed = |why: String| Failure::Failed(format!("no free UDP port from {first} to {last}: {why}"));
    let identity = Identity::generate().map_err(|error| Failure::Failed(error.to_string()))?;
    let mut options = ServerOptions::new(identity);
    options.client_auth = ClientAuth::Keys(AuthorizedKeys::from_iter([client]));
    options.connection.requirements = uts::Requirements::bulk();
    options.connection.idle_timeout = silence;
    options.connections_max = CONNECTIONS_MAX;
    let mut why = String::new();
    for port in first..=last {
        for address in [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()] {
            match Listener::bind(SocketAddr::new(address, port), options.clone()) {
                Ok(listener) => return Ok(listener),
                Err(error) => why = error.to_string(),
            }
        }
    }
    Err(failed(why))
}

/// Requests to the server, wherever they come from.
struct Desk {
    permitted: Permitted,
    budget: Budget,
    sessions: Arc<Sessions>,
    room: Semaphore,
    begins: mpsc::Sender<(Begun, TcpStream, Charge)>,
}

impl Desk {
    /// Takes a carrier for the session. A login may wait for long before it is used.
    async fn take(&self, mut carrier: Carrier, name: &'static str) {
        let Ok(place) = self.room.acquire().await else { return };
        let asked = timeout(REQUEST_MAX, read_request(&mut carrier.recv)).await;
        let Ok(Ok(asked)) = asked else { return };
        let Some(hello) = asked.hello else {
            let refused = Refused::absent("it serves one session, which outlives what carries it");
            let _ = answer(&mut carrier.send, Err(&refused)).await;
            return;
        };
        // There is one client.
        let Some(begun) = self.sessions.take((&asked.service, ""), &hello, carrier, name).await else {
            return;
        };
        match pipe::connect(&System, &self.permitted, &asked.service, &self.budget).await {
            Ok((service, charge)) => drop(self.begins.send((begun, service, charge)).await),
            Err(refused) => begun.refuse(&refused).await,
        }
        drop(place);
    }
}

/// Serves the session until it is over, until none has begun for a while, or until a signal.
async fn serve_until_over(
    listener: &Listener,
    logins: &UnixListener,
    desk: &Arc<Desk>,
    (mut begun, board): (mpsc::Receiver<(Begun, TcpStream, Charge)>, &Arc<Board>),
    args: &SshServerArgs,
) {
    let own = rustix::process::geteuid().as_raw();
    let interrupt = interrupted();
    tokio::pin!(interrupt);
    let (mut clients, mut session) = (JoinSet::new(), JoinSet::new());
    let ends_at = Instant::now() + args.linger;
    loop {
        tokio::select! {
            () = &mut interrupt => break,
            () = board.ended() => break,
            () = sleep_until(ends_at), if session.is_empty() => break,
            Some(_) = session.join_next(), if !session.is_empty() => break,
            Some((begun, service, charge)) = begun.recv() => {
                let (silence, board) = (args.silence, board.clone());
                session.spawn(async move {
                    let _socket = charge;
                    let stream = Arc::new(Session::new(WINDOW_BYTES));
                    board.on_begun(stream.clone());
                    // How it has ended nobody here wants to know.
                    let _ = begun.run(service, &stream, silence, |news| board.on_news(news), |_| {}).await;
                });
            }
            Some(_) = clients.join_next(), if !clients.is_empty() => {}
            next = listener.accept() => match next {
                Some(connection) => drop(clients.spawn(serve_client(UdpLink::new(connection), desk.clone()))),
                None => break,
            },
            login = logins.accept() => match login {
                Ok((login, _)) if login.peer_cred().is_ok_and(|peer| peer.uid() == own) => {
                    drop(clients.spawn(serve_login(login, desk.clone())));
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
    clients.abort_all();
    listener.close();
    let _ = timeout(serve::GOODBYE_MAX, async { while clients.join_next().await.is_some() {} }).await;
}

async fn serve_client(link: UdpLink, desk: Arc<Desk>) {
    if link.service() != pipe::SERVICE {
        return link.close(NO_SUCH_SERVICE, "it serves one session of ssh").await;
    }
    let mut requests = JoinSet::new();
    let flows = link.flows();
    let ended = loop {
        tokio::select! {
            flow = flows.accept() => match flow {
                Ok(Some((send, recv))) => {
                    let desk = desk.clone();
                    requests.spawn(async move { desk.take(Carrier::flow(send, recv), UDP).await });
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            },
            Some(_) = requests.join_next(), if !requests.is_empty() => {}
        }
    };
    link.close(if ended.is_ok() { 0 } else { STOPPING }, "done").await;
}

async fn serve_login(login: UnixStream, desk: Arc<Desk>) {
    // Till then it waits for UDP to fail.
    if login.readable().await.is_err() {
        return;
    }
    let (recv, send) = login.into_split();
    desk.take(Carrier::pipe(send, recv), TCP).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sshd_is_where_it_says() {
        let at =
            |text: &str| sshd(Some(text)).map(|(address, port)| SocketAddr::new(address, port).to_string());
        for (text, expected) in [
            ("192.0.2.1 50000 192.0.2.2 22", "192.0.2.2:22"),
            ("2001:db8::1 5 2001:db8::2 2222", "[2001:db8::2]:2222"),
            ("::ffff:192.0.2.1 5 ::ffff:192.0.2.2 22", "192.0.2.2:22"),
            ("fe80::1%eth0 5 fe80::2%eth0 22", "[::1]:22"),
        ] {
            assert_eq!(at(text).as_deref(), Ok(expected), "{text}");
        }
        for wrong in ["", "192.0.2.1 5 host 22", "192.0.2.1 5 192.0.2.2 0", "192.0.2.1 5 192.0.2.2"] {
            assert!(sshd(Some(wrong)).is_err(), "{wrong}");
        }
        assert!(sshd(None).expect_err("not set").contains("SSH_CONNECTION"));
    }
}
