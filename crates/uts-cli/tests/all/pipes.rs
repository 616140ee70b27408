//! `uts pipe` and what a server lets through: streams of other programs, whose connection lives
//! through changes of the client's address.

use crate::common::sshd::sshd;
use crate::common::{Ended, PATIENCE, Place, Server};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A network address translator that gives its client another port every so often.
struct Translator {
    address: SocketAddr,
    changes: Arc<AtomicU32>,
    ends: Arc<AtomicBool>,
}

impl Translator {
    fn before(server: &str, every: Duration) -> Self {
        let inside = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("bound"));
        let address = inside.local_addr().expect("an address");
        let (changes, ends) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (server, told, over) = (server.to_owned(), changes.clone(), ends.clone());
        std::thread::spawn(move || {
            let open = || {
                let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
                socket.connect(&server).expect("connected");
                socket.set_nonblocking(true).expect("set");
                socket
            };
            inside.set_nonblocking(true).expect("set");
            let (mut outside, mut since) = (open(), Instant::now());
            let (mut client, mut datagram) = (None, vec![0; 1 << 16]);
            while !over.load(Ordering::Relaxed) {
                let mut is_idle = true;
                while let Ok((bytes, from)) = inside.recv_from(&mut datagram) {
                    (client, is_idle) = (Some(from), false);
                    let _ = outside.send(&datagram[..bytes]);
                }
                while let (Some(client), Ok(bytes)) = (client, outside.recv(&mut datagram)) {
                    is_idle = false;
                    let _ = inside.send_to(&datagram[..bytes], client);
                }
                if client.is_some() && since.elapsed() >= every {
                    (outside, since) = (open(), Instant::now());
                    told.fetch_add(1, Ordering::Relaxed);
                }
                if is_idle {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        Translator { address, changes, ends }
    }
}

impl Drop for Translator {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// A service that sends back what it is sent, and ends when that ends.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut back = stream.try_clone().expect("another handle");
                let _ = std::io::copy(&mut &stream, &mut back);
                let _ = back.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    address
}

/// A server that lets these services through, and serves no files.
fn serve_pipes(place: &Place, options: &[&str]) -> Server {
    let mut args = vec!["serve", "--json", "--listen", "127.0.0.1:0"];
    args.extend(options);
    Place::served(place.start_as("server-home", &args))
}

fn pipe(place: &Place, server: &Server, host: &str, service: &str, input: &Path, output: &Path) -> Ended {
    let mut command =
        place.command("home", &["pipe", "--quiet", "--pin", &server.fingerprint, host, service]);
    command.stdin(fs::File::open(input).expect("opened"));
    command.stdout(fs::File::create(output).expect("made")).stderr(Stdio::piped());
    let child = command.spawn().expect("started");
    let ended = child.wait_with_output().expect("ended");
    Ended {
        status: ended.status.code().unwrap_or(-1),
        out: Vec::new(),
        err: String::from_utf8_lossy(&ended.stderr).into_owned(),
    }
}

#[test]
fn a_stream_comes_back_whole_while_the_clients_port_changes() {
    let place = Place::new();
    let service = format!("echo={}", echo());
    let server = serve_pipes(&place, &["--pipe", &service, "--anyone"]);
    let translator = Translator::before(&server.address, Duration::from_millis(40));
    let sent: Vec<u8> = (0..24 << 20).map(|n: u32| (n / 5 % 253) as u8).collect();
    place.write("sent", &sent);
    let (from, to) = (place.path("sent"), place.path("got"));
    pipe(&place, &server, &translator.address.to_string(), "echo", &from, &to).ok();
    assert!(place.read("got") == sent);
    let changes = translator.changes.load(Ordering::Relaxed);
    assert!(changes > 0, "the port has not changed");
}

#[test]
fn what_is_not_named_is_not_reached_and_the_reason_is_one_line() {
    let place = Place::new();
    place.write("none", b"");
    let down = TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("an address");
    let (up, down) = (format!("echo={}", echo()), format!("down={down}"));
    let server = serve_pipes(&place, &["--pipe", &up, "--pipe", &down, "--anyone"]);
    let run = |service: &str| {
        let ended = pipe(&place, &server, &server.address, service, &place.path("none"), &place.path("got"));
        assert!(ended.err.lines().count() <= 1, "{}", ended.err);
        ended
    };
    run("ssh").failed(1, &["uts: 127.0.0.1:", "no service `ssh` here"]);
    run("127.0.0.1:22").failed(1, &["no service `127.0.0.1:22` here"]);
    run("down").failed(1, &["the service `down` does not answer: connection refused"]);
    run("echo").ok();
    let files = place.run(&["ls", "--pin", &server.fingerprint, &format!("uts://{}/", server.address)]);
    files.failed(1, &["it serves no files"]);
    let plain = place.serve(&[]);
    let ended = pipe(&place, &plain, &plain.address, "ssh", &place.path("none"), &place.path("got"));
    ended.failed(1, &["it has no service `pipe`"]);
}

#[test]
fn a_server_says_who_may_reach_what_and_lets_in_nobody_else() {
    let place = Place::new();
    place.write("none", b"");
    let service = format!("echo={}", echo());
    let serve = |args: &[&str]| place.run(&[&["serve", "--listen", "127.0.0.1:0"], args].concat());
    serve(&["--pipe", &service]).failed(2, &["--pipe: say who may use it"]);
    serve(&["--pipe", "ssh", "--anyone"]).failed(2, &["`ssh` is not NAME=HOST:PORT"]);
    serve(&["--pipe", "a=1", "--pipe", "a=2", "--anyone"]).failed(2, &["`a` is both"]);
    serve(&[]).failed(2, &["--dir"]);
    let key = place.run_as("friend", &["keygen"]).ok().out;
    let key = key.iter().flat_map(|line| line.split_whitespace()).find(|word| word.starts_with("SHA256:"));
    let keys = place.write("keys", format!("{}\n", key.expect("a fingerprint")).as_bytes());
    let server = serve_pipes(&place, &["--pipe", &service, "--authorized-keys", &keys]);
    let args = ["pipe", "--pin", &server.fingerprint, &server.address, "echo"];
    place.run_as("home", &args).failed(1, &["refused"]);
    place.run_as("friend", &args).ok();
}

/// Settings of a client of OpenSSH that reaches the host `there` by a command.
fn ssh_config(place: &Place, proxy: &str) -> String {
    let key = place.path("user_key").display().to_string();
    let config = format!(
        "Host there\n  ProxyCommand {proxy}\n  IdentityFile {key}\n  IdentitiesOnly yes\n  BatchMode yes\n  \
         StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    );
    place.write("ssh_config", config.as_bytes())
}

/// A program that reaches hosts by ssh, through `uts pipe` and a translator.
struct Tools<'a> {
    place: &'a Place,
    ssh: String,
}

impl Tools<'_> {
    fn run(&self, program: &str, args: &[&str], input: Stdio) -> Option<Vec<u8>> {
        let mut command = Command::new(program);
        command.args(args).stdin(input).current_dir(self.place.path("."));
        command.env("GIT_SSH_COMMAND", &self.ssh).env("RSYNC_RSH", &self.ssh);
        let ended = match command.output() {
            Ok(ended) => ended,
            Err(_) => {
                println!("skipped: {program} is not installed (Debian: apt install {program})");
                return None;
            }
        };
        let said = String::from_utf8_lossy(&ended.stderr);
        if !ended.status.success() && said.contains("command not found") {
            println!("skipped: {program}: {said}");
            return None;
        }
        assert!(ended.status.success(), "{program} {args:?}: {said}");
        Some(ended.stdout)
    }
}

#[test]
fn ssh_scp_rsync_and_git_work_through_a_pipe_while_the_port_changes() {
    let place = Place::new();
    let Some((_sshd, port)) = sshd(&place) else { return };
    let service = format!("ssh={port}");
    let server = serve_pipes(&place, &["--pipe", &service, "--anyone"]);
    let translator = Translator::before(&server.address, Duration::from_millis(150));
    let proxy = format!(
        "{} pipe --quiet --pin {} {} ssh",
        env!("CARGO_BIN_EXE_uts"),
        server.fingerprint,
        translator.address
    );
    let config = ssh_config(&place, &proxy);
    let tools = Tools { place: &place, ssh: format!("ssh -F {config}") };
    let Some(said) = tools.run("ssh", &["-F", &config, "there", "echo hello"], Stdio::null()) else { return };
    assert_eq!(said, b"hello\n");
    // Half a second and more of data, and as much back.
    let data: Vec<u8> = (0..6 << 20).map(|n: u32| (n / 3 % 249) as u8).collect();
    let file = place.write("data", &data);
    let input = fs::File::open(&file).expect("opened").into();
    let back = tools.run("ssh", &["-F", &config, "there", "cat; sleep 0.3; cat", &file], input).expect("ssh");
    assert!(back.len() == 2 * data.len() && back[..data.len()] == data && back[data.len()..] == data);
    let target = |name: &str| format!("there:{}", place.path(name).display());
    if tools.run("scp", &["-q", "-F", &config, &file, &target("by-scp")], Stdio::null()).is_some() {
        assert!(place.read("by-scp") == data);
    }
    if tools.run("rsync", &["-a", &file, &target("by-rsync")], Stdio::null()).is_some() {
        assert!(place.read("by-rsync") == data);
    }
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
        tools.run("git", &[&identity[..], args].concat(), Stdio::null())
    };
    if git(&["init", "-q", "repository"]).is_some() {
        place.write("repository/file", &data[..100_000]);
        git(&["-C", "repository", "add", "file"]).expect("git");
        git(&["-C", "repository", "commit", "-q", "-m", "first"]).expect("git");
        git(&["clone", "-q", &target("repository"), "clone"]).expect("git");
        assert!(place.read("clone/file") == data[..100_000]);
    }
    let changes = translator.changes.load(Ordering::Relaxed);
    assert!(changes > 2, "the port has changed {changes} times");
}

/// As `ansible -f 100` has it: all with one key, and with what the programs have as defaults.
#[test]
fn a_hundred_sessions_of_ssh_at_once_are_all_carried() {
    const SESSIONS: usize = 100;
    let place = Place::new();
    let Some((_sshd, port)) = sshd(&place) else { return };
    let (keys, _) = crate::common::tunnel::key_of(&place, "home");
    let service = format!("ssh={port}");
    let server = serve_pipes(&place, &["--pipe", &service, "--authorized-keys", &keys]);
    let home = place.path("home").display().to_string();
    let proxy = format!(
        "env -i HOME={home} XDG_CONFIG_HOME={home}/config {} pipe -q --pin {} {} ssh",
        env!("CARGO_BIN_EXE_uts"),
        server.fingerprint,
        server.address
    );
    let config = ssh_config(&place, &proxy);
    // Each stays until all others are there.
    fs::create_dir(place.path("there")).expect("made");
    let there = place.path("there").display().to_string();
    let session = |n: usize| {
        let mut command = Command::new("ssh");
        let script = format!("cd {there} && touch {n} && until test -e all; do sleep 0.5; done; echo {n}");
        command.args(["-F", &config, "there", &script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("started")
    };
    let sessions: Vec<_> = (0..SESSIONS).map(session).collect();
    let deadline = Instant::now() + 3 * PATIENCE;
    while fs::read_dir(place.path("there")).expect("a folder").count() < SESSIONS && Instant::now() < deadline
    {
        std::thread::sleep(Duration::from_millis(100));
    }
    place.write("there/all", b"");
    let ended: Vec<_> = sessions.into_iter().map(|child| child.wait_with_output().expect("ended")).collect();
    let failed: Vec<String> = (0..)
        .zip(&ended)
        .filter(|(n, ended)| ended.stdout != format!("{n}\n").as_bytes())
        .map(|(n, ended)| format!("{n}: {}: {}", ended.status, String::from_utf8_lossy(&ended.stderr)))
        .collect();
    assert!(failed.is_empty(), "{} of {SESSIONS} failed: {}", failed.len(), failed.join("; "));
}

/// Each end of each stream is told of the other's: what is written into a stream that the service
/// has closed ends, and a service whose client is killed sees the end.
#[test]
fn a_client_that_is_killed_and_a_service_that_closes_end_the_stream() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let service = format!("raw={}", listener.local_addr().expect("an address"));
    let server = serve_pipes(&place, &["--pipe", &service, "--anyone"]);
    let start = || {
        let args = ["pipe", "--pin", &server.fingerprint, &server.address, "raw"];
        let mut command = place.command("home", &args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().expect("started")
    };
    let mut client = start();
    let (mut stream, _) = listener.accept().expect("connected");
    client.stdin.as_mut().expect("piped").write_all(b"to the service").expect("written");
    let mut heard = [0; 14];
    stream.read_exact(&mut heard).expect("read");
    assert_eq!(&heard, b"to the service");
    stream.write_all(b"bye").expect("written");
    drop(stream);
    let mut out = Vec::new();
    client.stdout.take().expect("piped").read_to_end(&mut out).expect("read");
    assert_eq!(out, b"bye");
    // Its standard input is still open: nobody waits for that.
    assert!(client.wait().expect("ended").success());
    // That one takes another, after another was killed.
    let mut client = start();
    let (mut first, _) = listener.accept().expect("connected");
    client.kill().expect("killed");
    client.wait().expect("ended");
    let mut client = start();
    let (mut second, _) = listener.accept().expect("connected");
    second.write_all(b"x").expect("written");
    drop(second);
    let _ = client.wait().expect("ended");
    // The killed one's stream ends with the server, at the latest.
    drop(server);
    first.set_read_timeout(Some(PATIENCE)).expect("set");
    assert!(matches!(first.read(&mut [0; 1]), Ok(0) | Err(_)));
}

/// A program that is killed takes no leave: nobody is to be refused because of it.
#[test]
fn clients_that_were_killed_hold_no_places_of_their_key() {
    let place = Place::new();
    let (keys, _) = crate::common::tunnel::key_of(&place, "home");
    let service = format!("echo={}", echo());
    let options = ["--pipe", &service, "--authorized-keys", &keys, "--max-per-key", "4"];
    let server = serve_pipes(&place, &options);
    let args = ["pipe", "-q", "--pin", &server.fingerprint, &server.address, "echo"];
    for _ in 0..4 {
        let mut command = place.command("home", &args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
        child.stdin.as_mut().expect("piped").write_all(b"x").expect("written");
        child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("read");
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    let asked = fs::File::open(place.write("asked", b"hello")).expect("opened");
    let ended = place.command("home", &args).stdin(asked).output().expect("it runs");
    assert_eq!(ended.stdout, b"hello", "{}", String::from_utf8_lossy(&ended.stderr));
}

/// A client whose service sends back what it is sent.
struct Echoed {
    client: std::process::Child,
    said: u64,
}

impl Echoed {
    fn start(place: &Place, server: &Server, options: &[&str]) -> Echoed {
        let args = [&["pipe"], options, &["--pin", &server.fingerprint, &server.address, "echo"]].concat();
        let mut command = place.command("home", &args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Echoed { client: command.spawn().expect("started"), said: 0 }
    }

    /// Says some hundred kilobytes, and hears them again.
    fn ask(&mut self) {
        self.say();
        self.hear();
    }

    /// What it says next.
    fn next(&mut self) -> Vec<u8> {
        self.said += 1;
        (0..300_000_u64).map(|n| (n * self.said * 7 / 3 % 251) as u8).collect()
    }

    fn say(&mut self) {
        let (said, mut input) = (self.next(), self.client.stdin.take().expect("piped"));
        input.write_all(&said[..50_000]).expect("written");
        self.client.stdin = Some(input);
    }

    fn hear(&mut self) {
        self.said -= 1;
        let said = self.next();
        let mut back = vec![0; 50_000];
        self.client.stdout.as_mut().expect("piped").read_exact(&mut back).expect("read");
        assert!(back == said[..50_000], "piece {}", self.said);
    }

    fn signal(&self, with: rustix::process::Signal) {
        crate::common::signal(&self.client, with);
    }

    /// Says no more, and hears the end. Returns what was said to people.
    fn end(mut self) -> String {
        drop(self.client.stdin.take());
        let ended = self.client.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success() && ended.stdout.is_empty(), "{said}");
        said
    }
}

/// The connection is lost at one end, and at the other, and the stream goes on by another.
#[test]
fn a_stream_outlives_connections_that_are_lost_while_an_end_is_stopped() {
    use rustix::process::Signal;
    let place = Place::new();
    let service = format!("echo={}", echo());
    let server = serve_pipes(&place, &["--pipe", &service, "--anyone"]);
    let mut stream = Echoed::start(&place, &server, &["--silence", "4s"]);
    stream.ask();
    for stops_client in [true, false] {
        let signal = |with| if stops_client { stream.signal(with) } else { server.running.signal(with) };
        signal(Signal::STOP);
        if !stops_client {
            // It hears that nobody is there.
            stream.say();
        }
        std::thread::sleep(Duration::from_secs(6));
        let signal = |with| if stops_client { stream.signal(with) } else { server.running.signal(with) };
        signal(Signal::CONT);
        if stops_client {
            stream.say();
        }
        stream.hear();
        stream.ask();
    }
    let said = stream.end();
    assert!(said.contains("connection lost") && said.contains("connected again"), "{said}");
}

/// A client that sleeps loses its connection to another of its user, who needs the place. It wakes
/// up, and goes on.
#[test]
fn a_client_that_has_lost_its_place_comes_back_to_its_stream() {
    use rustix::process::Signal;
    let place = Place::new();
    let (keys, _) = crate::common::tunnel::key_of(&place, "home");
    let service = format!("echo={}", echo());
    let control = place.path("control").display().to_string();
    let options =
        ["--pipe", &service, "--authorized-keys", &keys, "--max-per-key", "1", "--control", &control];
    let server = serve_pipes(&place, &options);
    let mut stream = Echoed::start(&place, &server, &["-q"]);
    stream.ask();
    stream.signal(Signal::STOP);
    let mut other = Echoed::start(&place, &server, &["-q"]);
    other.ask();
    let told = place.run(&["ctl", &control]).ok().out;
    assert!(told.iter().any(|line| line.ends_with("not connected")), "{told:?}");
    assert_eq!(other.end(), "");
    stream.signal(Signal::CONT);
    stream.ask();
    let told = place.run(&["ctl", &control]).ok().out;
    assert!(!told.iter().any(|line| line.ends_with("not connected")), "{told:?}");
    assert_eq!(stream.end(), "");
}

/// A server that is started again has forgotten the stream: its client says so, and ends.
#[test]
fn a_stream_ends_with_the_server_that_keeps_it() {
    for with in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
        let place = Place::new();
        let service = format!("echo={}", echo());
        let server = serve_pipes(&place, &["--pipe", &service, "--anyone"]);
        let mut stream = Echoed::start(&place, &server, &["-q"]);
        stream.ask();
        let address = server.address.clone();
        server.running.signal(with);
        server.running.wait();
        let args = ["serve", "--json", "--listen", &address, "--pipe", &service, "--anyone"];
        let _again = Place::served(place.start_as("server-home", &args));
        let mut input = stream.client.stdin.take().expect("piped");
        // It may have ended already.
        let _ = input.write_all(b"more");
        let ended = stream.client.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("stopping") || said.contains("not known here any more"), "{said}");
    }
}
