//! The server that `uts ssh` starts at the host: of one client's key, with a key of its own that
//! lives as long as it does, and leading to the sshd that has let the user in, and nowhere else.

use super::{SERVICE, VERSION};
use crate::args::SshServerArgs;
use crate::cmd::{Failure, interrupted, serve};
use crate::confine::{Limits, confine};
use crate::dial::Budget;
use crate::link::{Link, STOPPING};
use crate::pipe::{self, Permitted, Service};
use crate::udp::UdpLink;
use crate::ui::lines;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use uts::ledger::{self, Ledger};
use uts::{AuthorizedKeys, ClientAuth, Fingerprint, Identity, Listener, NO_SUCH_SERVICE, ServerOptions};
use uts_end::output::words;

/// Most connections at once: the client has one, and another while it looks whether UDP works.
const CONNECTIONS_MAX: usize = 8;

/// A process that is ready to serve: it belongs to no terminal, and is confined.
pub struct Ready {
    null: File,
}

/// Makes this process ready. To be called before there are any threads.
///
/// # Errors
/// If the kernel could confine but does not.
pub fn prepare(args: &SshServerArgs) -> Result<Option<Ready>, Failure> {
    if args.speaks.is_some() {
        return Ok(None);
    }
    let failed = |what: &str, error: std::io::Error| Failure::Failed(format!("{what}: {}", words(&error)));
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = null.map_err(|error| failed("/dev/null", error))?;
    // A shell that has begun it waits for it: then it is no leader, and leaves the shell's session.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/").map_err(|error| failed("/", error))?;
    let limits = Limits { reads: serve::system_files(), writes: Vec::new(), uses_tcp: true };
    confine(&limits).map_err(Failure::Failed)?;
    Ok(Some(Ready { null }))
}

/// Serves until there has been no client for a while. Says on standard output where it is, and then
/// leaves the outputs to others.
///
/// # Errors
/// See [`Failure`].
pub async fn run(args: &SshServerArgs, ready: Option<Ready>) -> Result<(), Failure> {
    let (Some(client), Some(ready)) = (args.client, ready) else {
        return if args.speaks == Some(VERSION) { Ok(()) } else { Err(Failure::Told) };
    };
    let (address, port) = sshd(std::env::var("SSH_CONNECTION").ok().as_deref()).map_err(Failure::Failed)?;
    let service = Service { name: SERVICE.to_owned(), address: SocketAddr::new(address, port).to_string() };
    let permitted = Arc::new(Permitted::new(&[service]).map_err(Failure::Failed)?);
    let listener = listen(args.udp_ports, client, args.silence)?;
    let at = listener.local_addr().port();
    lines::print(&format!("uts-ssh at {at} {} {address}", listener.fingerprint()));
    leave(&ready.null).map_err(|error| Failure::Failed(words(&error.into())))?;
    serve_until_alone(&listener, &permitted, args.linger).await;
    Ok(())
}

/// Leaves the outputs: ssh ends when nobody has them any more.
fn leave(null: &File) -> rustix::io::Result<()> {
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

/// Serves clients until there has been none for a while, or until a signal.
async fn serve_until_alone(listener: &Listener, permitted: &Arc<Permitted>, linger: Duration) {
    let ledger = Ledger::of_server(&ledger::Budget::of_process());
    let interrupt = interrupted();
    tokio::pin!(interrupt);
    let mut clients = JoinSet::new();
    let mut ends_at = Instant::now() + linger;
    loop {
        tokio::select! {
            () = &mut interrupt => break,
            () = sleep_until(ends_at), if clients.is_empty() => break,
            Some(_) = clients.join_next(), if !clients.is_empty() => ends_at = Instant::now() + linger,
            next = listener.accept() => match next {
                Some(connection) => {
                    let (permitted, budget) = (permitted.clone(), Budget(ledger.payer(SERVICE)));
                    clients.spawn(serve_client(UdpLink::new(connection), permitted, budget));
                }
                None => break,
            },
        }
    }
    clients.abort_all();
    listener.close();
    let _ = timeout(serve::GOODBYE_MAX, async { while clients.join_next().await.is_some() {} }).await;
}

async fn serve_client(link: UdpLink, permitted: Arc<Permitted>, budget: Budget) {
    if link.service() != pipe::SERVICE {
        return link.close(NO_SUCH_SERVICE, "it serves one session of ssh").await;
    }
    let served = pipe::serve(permitted, &*link.flows(), budget).await;
    link.close(if served.is_ok() { 0 } else { STOPPING }, "done").await;
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
