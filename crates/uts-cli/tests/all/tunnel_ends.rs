//! `uts tunnel` when an end is killed, says something else than it should, or has too much to do:
//! what is told is a line, memory is bounded, and others go on.

use crate::common::tunnel::{
    Tunnel, ask, by_socks, connect, echo, free_port, key_of, sees_a_reset, serve, serve_at, try_connect,
};
use crate::common::{PATIENCE, Place, Running};
use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{
    ConnectOptions, Connection, FlowOptions, Identity, Listener, MessageOptions, Requirements, ServerOptions,
};

fn to(address: impl std::fmt::Display) -> String {
    format!("0:{address}")
}

/// Waits until something holds.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Memory of a process that is its own, in bytes (proc(5)).
fn memory_bytes(running: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.id())).expect("a process");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("its memory");
    let kib: u64 = line.split_whitespace().nth(1).expect("a number").parse().expect("a number");
    kib << 10
}

#[test]
fn a_tunnel_connects_again_after_the_server_was_killed() {
    let place = Place::new();
    let (service, back) = (echo(), free_port());
    let permits = ["--forward", &service.to_string(), "--listen-forward", &back.to_string()];
    let server = serve(&place, &permits);
    let options = ["-L", &to(service), "-R", &format!("{back}:{service}")];
    let mut tunnel = Tunnel::start(&place, "home", &server, &options);
    let at = tunnel.address(0);
    let mut held = connect(at);
    held.write_all(b"x").expect("written");
    held.read_exact(&mut [0]).expect("read");
    let address = server.address.clone();
    server.running.kill();
    let again = serve_at(&place, &address, &permits);
    // What was under way is reset: half of it must not pass for the whole.
    let _ = held.write_all(b"y");
    assert_eq!(held.read(&mut [0]).expect_err("reset").kind(), ErrorKind::ConnectionReset);
    tunnel.list_where("connected again", |list| !list["connection"].is_null());
    // The port is the same, and nobody had to start anything.
    assert_eq!(tunnel.address(0), at);
    assert_eq!(ask(connect(at), b"hello again").expect("carried"), b"hello again");
    let there = std::net::SocketAddr::from(([127, 0, 0, 1], back));
    wait_until("listening there again", || TcpStream::connect(there).is_ok());
    assert_eq!(ask(connect(there), b"and from there").expect("carried"), b"and from there");
    // A server that is stopped in order is waited for as well.
    again.running.signal(rustix::process::Signal::TERM);
    again.running.wait();
    tunnel.list_where("not connected", |list| list["connection"].is_null());
    let waiting = std::thread::spawn(move || ask(connect(at), b"patience"));
    let _third = serve_at(&place, &address, &permits);
    assert_eq!(waiting.join().expect("asked").expect("carried"), b"patience");
    let said = tunnel.end();
    let count = |part: &str| said.lines().filter(|line| line.contains(part)).count();
    assert_eq!((count("connection lost"), count("connected again")), (2, 2), "{said}");
}

/// A service that answers each request of a line, and tells of each line and of each connection
/// that has said none.
fn by_lines() -> (std::net::SocketAddr, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    let (told, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let told = told.clone();
            std::thread::spawn(move || {
                let mut line = String::new();
                let _ = std::io::BufReader::new(&stream).read_line(&mut line);
                let _ = told.send(line.clone());
                let _ = stream.write_all(format!("heard {line}").as_bytes());
            });
        }
    });
    (address, heard)
}

#[test]
fn the_first_request_after_a_restart_of_the_server_is_answered_and_made_once() {
    let place = Place::new();
    let (service, heard) = by_lines();
    let permits = ["--forward", &service.to_string()];
    let server = serve(&place, &permits);
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &to(service), "-D", "0"]);
    let (local, socks) = (tunnel.address(0), tunnel.address(1));
    let address = server.address.clone();
    let mut server = Some(server);
    for (n, way) in ["-L", "-D", "-L, ended", "-L, long"].into_iter().enumerate() {
        server.take().expect("a server").running.kill();
        server = Some(serve_at(&place, &address, &permits));
        // More than is held in one packet, and more than is kept.
        let filler = "x".repeat(if way == "-L, long" { 200_000 } else { 10 * n });
        let line = format!("{way} {filler}\n");
        let mut stream = if way == "-D" { by_socks(socks, service) } else { connect(local) };
        stream.write_all(line.as_bytes()).expect("written");
        if way == "-L, ended" {
            stream.shutdown(Shutdown::Write).expect("shut down");
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap_or_else(|error| panic!("{way}: {error}"));
        assert!(answer == format!("heard {line}"), "{way}: {} bytes", answer.len());
        assert!(heard.recv_timeout(PATIENCE).expect("a line") == line, "{way}");
    }
    tunnel.end();
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [""; 0]);
}

/// Connections that have carried nothing when their server ends.
const WAITING: usize = 40;

/// A connection that was made before the restart, and by which nothing has gone yet, as browsers
/// make them: what is said by it first is said to the new server, once.
#[test]
fn a_connection_that_has_carried_nothing_outlives_its_server() {
    for with in [rustix::process::Signal::KILL, rustix::process::Signal::TERM] {
        let place = Place::new();
        let (service, heard) = by_lines();
        let permits = ["--forward", &service.to_string()];
        let server = serve(&place, &permits);
        let tunnel = Tunnel::start(&place, "home", &server, &["-L", &to(service), "-D", "0"]);
        // So many that the end of the first is told long before that of the last.
        let mut waiting: Vec<TcpStream> = (0..WAITING).map(|_| connect(tunnel.address(0))).collect();
        waiting.push(by_socks(tunnel.address(1), service));
        // A connection here is made at once; there it takes a round trip.
        let mut carried = connect(tunnel.address(0));
        carried.write_all(b"before\n").expect("written");
        let mut answer = String::new();
        carried.read_to_string(&mut answer).expect("answered");
        assert_eq!(answer, "heard before\n");
        let address = server.address.clone();
        server.running.signal(with);
        server.running.wait();
        let _again = serve_at(&place, &address, &permits);
        for (n, stream) in waiting.iter_mut().enumerate() {
            // Some are more than one packet.
            let line = format!("{n} {}\n", "x".repeat(5000 * (n % 2)));
            stream.write_all(line.as_bytes()).expect("written");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap_or_else(|error| panic!("{with:?}, {n}: {error}"));
            assert!(answer == format!("heard {line}"), "{with:?}, {n}: {} bytes", answer.len());
        }
        tunnel.end();
        // The service hears the ends of those that were made in vain.
        let lines: Vec<String> = heard.try_iter().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines.len(), WAITING + 2, "{lines:?}");
    }
}

#[test]
fn a_tunnel_that_may_not_wait_says_why_it_ends() {
    let place = Place::new();
    let service = echo();
    let server = serve(&place, &["--forward", &service.to_string()]);
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &to(service), "--retry", "0"]);
    server.running.signal(rustix::process::Signal::TERM);
    tunnel.running.wait().failed(1, &["the server is stopping"]);
    let args = ["tunnel", "--pin", &server.fingerprint, "-L", &to(service), "--retry", "0", &server.address];
    let ended = place.run(&args).failed(1, &["nobody answers"]);
    assert_eq!(ended.err.lines().filter(|line| line.starts_with("uts:")).count(), 1, "{}", ended.err);
}

#[test]
fn a_client_that_is_killed_ends_its_connections_and_no_others() {
    let place = Place::new();
    let raw = TcpListener::bind("127.0.0.1:0").expect("bound");
    let (service, raw_at) = (echo(), raw.local_addr().expect("an address"));
    key_of(&place, "home");
    key_of(&place, "friend");
    let server = serve(&place, &["--forward", &service.to_string(), "--forward", &raw_at.to_string()]);
    let friend = Tunnel::start(&place, "friend", &server, &["-L", &to(service)]);
    let mut held = friend.connect(0);
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &to(raw_at), "--silence", "2s"]);
    let mut stream = tunnel.connect(0);
    stream.write_all(b"x").expect("written");
    let (mut far, _) = raw.accept().expect("connected");
    far.set_read_timeout(Some(PATIENCE)).expect("set");
    far.read_exact(&mut [0]).expect("read");
    tunnel.running.kill();
    // The system ends the program's side, the server that of the service, as soon as it knows.
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    assert_eq!(far.read(&mut [0]).expect_err("reset").kind(), ErrorKind::ConnectionReset);
    held.write_all(b"still here").expect("written");
    let mut back = [0; 10];
    held.read_exact(&mut back).expect("read");
    assert_eq!(&back, b"still here");
    let said = friend.end();
    assert!(!said.contains("lost"), "{said}");
}

/// Programs that never read, at once.
const NEVER_READ: usize = 40;

#[test]
fn a_program_that_never_reads_holds_up_only_itself() {
    let place = Place::new();
    let flood = TcpListener::bind("127.0.0.1:0").expect("bound");
    let (service, flood_at) = (echo(), flood.local_addr().expect("an address"));
    let server = serve(&place, &["--forward", &service.to_string(), "--forward", &flood_at.to_string()]);
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &to(service), "-L", &to(flood_at)]);
    let before = memory_bytes(&tunnel.running).max(memory_bytes(&server.running));
    let mut held = Vec::new();
    let mut services = Vec::new();
    for _ in 0..NEVER_READ {
        held.push(tunnel.connect(1));
        let (service, _) = flood.accept().expect("connected");
        service.set_nonblocking(true).expect("set");
        services.push(service);
    }
    // Until nothing more is taken for long: the buffers of systems and of both ends are full.
    let (chunk, mut taken, mut moved_at) = (vec![7; 1 << 16], 0, Instant::now());
    while moved_at.elapsed() < Duration::from_secs(3) {
        for service in &mut services {
            match service.write(&chunk) {
                Ok(bytes) => (taken, moved_at) = (taken + bytes, Instant::now()),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
        assert!(taken < NEVER_READ * (32 << 20), "{taken} bytes are taken, and nobody reads");
        std::thread::sleep(Duration::from_millis(1));
    }
    for running in [&tunnel.running, &server.running] {
        let grown = memory_bytes(running).saturating_sub(before);
        assert!(grown < NEVER_READ as u64 * (3 << 19), "{grown} bytes for connections that nobody reads");
    }
    assert_eq!(ask(tunnel.connect(0), b"goes on").expect("carried"), b"goes on");
    // What it is sent is whole once it reads.
    let mut sent = vec![0; 1 << 20];
    held[0].read_exact(&mut sent).expect("read");
    assert!(sent.iter().all(|byte| *byte == 7));
}

/// A service that echoes any number of connections.
fn echo_many() -> std::net::SocketAddr {
    let (told, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
            socket.bind(([127, 0, 0, 1], 0).into()).expect("bound");
            let listener = socket.listen(2048).expect("listening");
            told.send(listener.local_addr().expect("an address")).expect("told");
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                    let _ = to.shutdown().await;
                });
            }
        });
    });
    address.recv().expect("an address")
}

#[test]
fn a_thousand_connections_at_once_pass_through_one_tunnel() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    const CONNECTIONS: usize = 1000;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("set");
    if limit.maximum.is_some_and(|most| most < 2 * CONNECTIONS as u64 + 200) {
        println!("skipped: this system allows {:?} files, which are too few", limit.maximum);
        return;
    }
    let place = Place::new();
    let service = echo_many();
    let server = serve(&place, &["--forward", &service.to_string()]);
    let mut tunnel = Tunnel::start(&place, "home", &server, &["-L", &to(service)]);
    let at = tunnel.address(0);
    let mut all: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(at)).collect();
    for (n, stream) in all.iter_mut().enumerate() {
        stream.write_all(format!("{n:>5}").as_bytes()).expect("written");
    }
    for (n, stream) in all.iter_mut().enumerate() {
        let mut back = [0; 5];
        stream.read_exact(&mut back).unwrap_or_else(|error| panic!("{n}: {error}"));
        assert_eq!(back, format!("{n:>5}").as_bytes());
    }
    // They are all there at one time.
    assert_eq!(tunnel.list()["carried"].as_array().expect("a list").len(), CONNECTIONS);
    for running in [&tunnel.running, &server.running] {
        let bytes = memory_bytes(running);
        assert!(bytes < 512 << 20, "{bytes} bytes for {CONNECTIONS} connections");
    }
    for stream in &all {
        stream.shutdown(Shutdown::Write).expect("shut");
    }
    for (n, stream) in all.iter_mut().enumerate() {
        assert_eq!(stream.read(&mut [0]).unwrap_or_else(|error| panic!("{n}: {error}")), 0);
    }
    tunnel.list_where("empty", |list| list["carried"].as_array().is_some_and(Vec::is_empty));
    assert_eq!(ask(connect(at), b"another").expect("carried"), b"another");
    tunnel.end();
}

/// A client of the service `tunnel` that says what it likes.
async fn client(place: &Place, address: &str, fingerprint: &str) -> Connection {
    let key = place.path("home/config/uts/id_ed25519.pem");
    let pinned = ConnectOptions::pinned(fingerprint.parse().expect("a fingerprint"));
    let mut options = pinned.identity(Identity::load(&key).expect("a key"));
    options.connection.service = "tunnel".into();
    uts::connect(address, options).await.expect("connected")
}

/// Answer to a flow that begins so: the status, and the text. `None` if it is reset.
async fn answer(connection: &Connection, bytes: &[u8]) -> Option<(u8, String)> {
    let flow = connection.open_flow(FlowOptions::default()).await.expect("opened");
    let (mut send, mut recv) = flow.split();
    // A server that has heard enough may have stopped the flow.
    let _ = send.write_all(bytes).await;
    let _ = send.finish();
    let mut back = Vec::new();
    tokio::time::timeout(PATIENCE, recv.read_to_end(&mut back)).await.expect("an end").ok()?;
    let text = back.get(2..).map(|text| String::from_utf8_lossy(text).into_owned());
    Some((*back.first()?, text.unwrap_or_default()))
}

/// A request of version 1 to connect to a port of this host, or another of that form.
fn request(version: u8, kind: u8, port: u16) -> Vec<u8> {
    let host = b"127.0.0.1";
    let [high, low] = port.to_be_bytes();
    [&[version, kind, 0, 0, host.len() as u8][..], host, &[high, low, 0]].concat()
}

#[test]
fn a_server_answers_a_client_of_another_version_and_nonsense_and_serves_others() {
    let place = Place::new();
    let service = echo();
    let server = serve(&place, &["--forward", &service.to_string()]);
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &to(service)]);
    let mut held = tunnel.connect(0);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let odd = client(&place, &server.address, &server.fingerprint).await;
        let (status, why) = answer(&odd, &request(2, 0, service.port())).await.expect("an answer");
        assert_eq!(status, 1);
        assert_eq!(why, "a tunnel of version 2; this end speaks version 1");
        for (kind, says) in
            [(9, "kind 9"), (2, "takes only"), (0x80, "flow of bytes"), (1, "--listen-forward")]
        {
            let (status, why) = answer(&odd, &request(1, kind, service.port())).await.expect("an answer");
            assert!(status > 0 && why.contains(says), "{kind}: {why}");
        }
        // Mechanisms are for each end to choose for itself, in a flow and for a connection.
        for kind in [0, 3] {
            let mut asks = request(1, kind, service.port());
            *asks.last_mut().expect("a count") = 1;
            for text in ["uts.profile.congestion", "none"] {
                asks.push(text.len() as u8);
                asks.extend(text.bytes());
            }
            let (status, why) = answer(&odd, &asks).await.expect("an answer");
            assert!(status == 2 && why.contains("for each end to choose"), "{why}");
        }
        // Cut anywhere, and nonsense of any length.
        let whole = request(1, 0, 1);
        for cut in 0..whole.len() {
            assert!(answer(&odd, &whole[..cut]).await.is_none_or(|(status, _)| status > 0), "{cut}");
        }
        for n in 0..200_u32 {
            let nonsense: Vec<u8> = (0..n * 7 % 1000).map(|k| (k * k * 31 + n * 17) as u8).collect();
            assert!(answer(&odd, &nonsense).await.is_none_or(|(status, _)| status > 0), "{nonsense:?}");
        }
        // The same as messages.
        let flow = FlowOptions::requiring(Requirements::messages());
        for first in [vec![], vec![0x80], vec![0x80, 2], vec![0x81, 1], vec![0; 60_000]] {
            let (mut send, mut recv) = odd.open_flow(flow.clone()).await.expect("opened").split();
            send.send_message(first.into(), MessageOptions::default()).await.expect("sent");
            let _ = send.finish();
            while let Ok(Ok(Some(_))) = tokio::time::timeout(PATIENCE, recv.recv_message()).await {}
        }
        assert!(odd.close_reason().is_none(), "one flow's nonsense ends the others");
        odd.close(0, "done").await;
    });
    held.write_all(b"still here").expect("written");
    let mut back = [0; 10];
    held.read_exact(&mut back).expect("read");
    assert_eq!(&back, b"still here");
    assert_eq!(ask(tunnel.connect(0), b"hello").expect("carried"), b"hello");
}

/// A server that answers each flow with these bytes, and asks its client something by a flow of its
/// own.
async fn odd_server(listener: Listener, says: &'static [u8], asks: Vec<u8>, told: &str) {
    let connection = listener.accept().await.expect("a client");
    let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).await.expect("opened").split();
    send.write_all(&asks).await.expect("written");
    let mut back = Vec::new();
    recv.read_to_end(&mut back).await.expect("an answer");
    assert!(back[0] == 2 && String::from_utf8_lossy(&back).contains(told), "{back:?}");
    while let Some(flow) = connection.accept_flow().await {
        let (mut send, mut recv) = flow.split();
        let _ = recv.read_u8().await;
        let _ = send.write_all(says).await;
        let _ = send.finished().await;
    }
}

#[test]
fn what_a_program_says_first_does_not_wait_for_the_answer_of_the_server() {
    let place = Place::new();
    key_of(&place, "home");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let listener = runtime.block_on(async {
        let options = ServerOptions::new(Identity::generate().expect("a key"));
        Listener::bind("127.0.0.1:0".parse().expect("an address"), options).expect("bound")
    });
    let (address, fingerprint) = (listener.local_addr().to_string(), listener.fingerprint().to_string());
    // A server that connects a place only when it has heard what is said to it.
    let serving = runtime.spawn(async move {
        let connection = listener.accept().await.expect("a client");
        let (mut send, mut recv) = connection.accept_flow().await.expect("a flow").split();
        let mut asked = vec![0; request(1, 0, 1).len()];
        recv.read_exact(&mut asked).await.expect("a request");
        let mut said = [0; 8];
        recv.read_exact(&mut said).await.expect("what was said");
        send.write_all(&[0, 0]).await.expect("answered");
        send.write_all(&said).await.expect("written");
        send.finished().await.expect("arrived");
        // The next is refused, and nobody hears what is said to it.
        let (mut send, _recv) = connection.accept_flow().await.expect("a flow").split();
        send.write_all(&[1, 4, b'd', b'o', b'w', b'n']).await.expect("answered");
        send.finished().await.expect("arrived");
        connection.closed().await;
        said
    });
    let at = free_port();
    let forward = format!("{at}:127.0.0.1:1");
    let running = place.start_as("home", &["tunnel", "--pin", &fingerprint, &address, "-L", &forward]);
    wait_until("listening", || port_is_taken(at));
    let to = std::net::SocketAddr::from(([127, 0, 0, 1], at));
    assert_eq!(ask(connect(to), b"question").expect("carried"), b"question");
    let refused = try_connect(to).and_then(|stream| ask(stream, &vec![7; 1 << 20])).expect_err("reset");
    assert!(matches!(refused.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{refused}");
    running.signal(rustix::process::Signal::TERM);
    let ended = running.wait();
    assert!(ended.err.contains(&format!("{to}: down")), "{}", ended.err);
    assert_eq!(&runtime.block_on(serving).expect("served"), b"question");
}

/// True if somebody listens at a port, found out without connecting to it.
fn port_is_taken(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_err()
}

#[test]
fn the_port_of_a_client_that_is_killed_goes_to_its_next_tunnel_and_is_closed_in_the_end() {
    let place = Place::new();
    let (service, back) = (echo(), free_port());
    let server = serve(&place, &["--listen-forward", &back.to_string()]);
    let options = ["-R", &format!("{back}:{service}")];
    let there = std::net::SocketAddr::from(([127, 0, 0, 1], back));
    let tunnel = Tunnel::start(&place, "home", &server, &options);
    assert_eq!(ask(connect(there), b"first").expect("carried"), b"first");
    // One that is there is not driven out by another of the same user.
    let args = ["tunnel", "--pin", &server.fingerprint, &server.address, options[0], options[1]];
    place.run(&args).failed(1, &["address already in use"]);
    assert_eq!(ask(connect(there), b"still").expect("carried"), b"still");
    tunnel.running.kill();
    let tunnel = Tunnel::start(&place, "home", &server, &options);
    assert_eq!(ask(connect(there), b"second").expect("carried"), b"second");
    // Nobody asks for it any more, and nobody connects to it.
    tunnel.running.kill();
    wait_until("closed", || !port_is_taken(back));
}

#[test]
fn a_client_survives_a_server_that_says_something_else() {
    let place = Place::new();
    key_of(&place, "home");
    let secret = TcpListener::bind("127.0.0.1:0").expect("bound");
    let secret_at = secret.local_addr().expect("an address");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for (says, line) in [
        (&[9, 0][..], "an answer of kind 9"),
        (&[0, 9, b'x'], "the other end gives no whole answer"),
        (&[1, 2, 0xff, 0xff], "UTF-8"),
        (&[], "the other end gives no whole answer"),
        (&[1, 3, b'a', 0x1b, b'b'], "a"),
    ] {
        let listener = runtime.block_on(async {
            let options = ServerOptions::new(Identity::generate().expect("a key"));
            Listener::bind("127.0.0.1:0".parse().expect("an address"), options).expect("bound")
        });
        let (address, fingerprint) = (listener.local_addr().to_string(), listener.fingerprint().to_string());
        // A server cannot have its client connect anywhere that the client did not say.
        let asks = request(1, 0, secret_at.port());
        let told = "a client connects and listens nowhere for its server";
        let serving = runtime.spawn(odd_server(listener, says, asks, told));
        let args = ["tunnel", "--pin", &fingerprint, &address, "-L", &to("127.0.0.1:1"), "--control"];
        let control = place.path("control").display().to_string();
        let running = place.start_as("home", &[&args[..], &[&control]].concat());
        let mut list = serde_json::Value::Null;
        wait_until("connected", || {
            let out = place.run(&["ctl", &control, "--json"]).out;
            list = out.first().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
            list["connection"].is_object()
        });
        let at = list["forwards"][0]["name"].as_str().expect("a name").parse().expect("an address");
        sees_a_reset(at);
        running.signal(rustix::process::Signal::TERM);
        let ended = running.wait();
        assert!(ended.err.contains(line) && !ended.err.contains('\u{1b}'), "{}", ended.err);
        assert!(!ended.err.contains("panicked"), "{}", ended.err);
        runtime.block_on(serving).expect("the server has heard what it should");
    }
    secret.set_nonblocking(true).expect("set");
    assert!(secret.accept().is_err(), "the client has connected where its server likes");
}
