//! Resources that a server holds for clients that are slow, or mean harm: the stock program, with
//! clients of the library that hold little themselves. Memory, threads and descriptors are bounded,
//! others are served meanwhile, and what was held is given back.

use crate::common::{PATIENCE, Place, Running, Server};
use std::fs;
use std::future::Future;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use uts::{ConnectOptions, Connection, FlowOptions, RecvFlow, SendFlow, Trust};
use uts_files::message::{MAGIC, Request, VERSION, write_frame};

/// Bounds of what a server holds, whatever its clients do.
const MEMORY_KB_MAX: u64 = 256 << 10;
const THREADS_MAX: u64 = 64;
/// Memory that a server may hold beyond what it held at first, once its clients are gone: a tenth
/// of what it holds then is less than allocators keep.
const LEFT_KB_MAX: u64 = 32 << 10;

/// Memory that a process has, and had at most, in kB, and numbers of its threads and descriptors.
#[derive(Clone, Copy, Debug)]
struct Vital {
    memory_kb: u64,
    most_kb: u64,
    threads: u64,
    files: u64,
}

fn vital(process: u32) -> Vital {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.split_whitespace().next().expect("a value").parse().expect("a number")
    };
    let files = fs::read_dir(format!("/proc/{process}/fd")).expect("descriptors").count() as u64;
    Vital { memory_kb: value("VmRSS:"), most_kb: value("VmHWM:"), threads: value("Threads:"), files }
}

/// The most of each while something goes on.
struct Watched {
    process: u32,
    most: Vital,
}

impl Watched {
    fn new(server: &Server) -> Watched {
        let process = server.running.id();
        Watched { process, most: vital(process) }
    }

    async fn during<T>(&mut self, what: impl Future<Output = T>) -> T {
        let mut what = std::pin::pin!(what);
        loop {
            if let Ok(done) = timeout(Duration::from_millis(50), &mut what).await {
                self.look();
                return done;
            }
            self.look();
        }
    }

    fn look(&mut self) {
        let now = vital(self.process);
        self.most.most_kb = now.most_kb;
        self.most.threads = self.most.threads.max(now.threads);
        self.most.files = self.most.files.max(now.files);
    }

    #[track_caller]
    fn check(&self, what: &str) {
        println!("{what}: {:?}", self.most);
        assert!(self.most.most_kb < MEMORY_KB_MAX, "{what}: {:?}", self.most);
        assert!(self.most.threads < THREADS_MAX, "{what}: {:?}", self.most);
    }
}

/// Waits until a server holds little more than at first.
async fn until_given_back(server: &Server, first: Vital) {
    let until = Instant::now() + 2 * PATIENCE;
    loop {
        let now = vital(server.running.id());
        if now.memory_kb < first.memory_kb + LEFT_KB_MAX && now.files <= first.files + 2 {
            println!("at first {first:?}, at last {now:?}");
            return;
        }
        assert!(Instant::now() < until, "it keeps {now:?}, at first {first:?}");
        sleep(Duration::from_millis(200)).await;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// A client that has little room for what it is sent.
async fn connect(server: &Server, service: &str) -> Connection {
    let key = server.fingerprint.parse().expect("a key");
    let mut options = ConnectOptions::new(Trust::Pin(vec![key]));
    options.connection.credit_bytes_initial = 64 << 10;
    options.connection.credit_bytes_max = 64 << 10;
    options.connection.service = service.to_owned();
    options.connection.idle_timeout = PATIENCE;
    timeout(PATIENCE, uts::connect(&server.address, options)).await.expect("in time").expect("connected")
}

async fn ask(connection: &Connection, requests: &[Request]) -> (SendFlow, RecvFlow) {
    let flow = timeout(PATIENCE, connection.open_flow(FlowOptions::default())).await.expect("in time");
    let (mut send, recv) = flow.expect("a flow").split();
    let mut bytes = [&MAGIC[..], &[VERSION]].concat();
    for request in requests {
        write_frame(&mut bytes, request).await.expect("written");
    }
    send.write_all(&bytes).await.expect("asked");
    (send, recv)
}

fn get(path: &str) -> Request {
    Request::Get { path: path.into(), held: None }
}

/// Content that is no hole and cannot be made smaller.
fn write_big(place: &Place, name: &str, bytes: usize) {
    let mut state = 1u64;
    let mut next = || {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let content: Vec<u8> = std::iter::repeat_with(&mut next).take(bytes / 8).flatten().collect();
    place.write(name, &content);
}

const OPEN: [&str; 5] = ["--anyone", "--max-connections", "2048", "--max-per-address", "2000"];

/// An honest client of a file of six bytes.
async fn copy_six_bytes(place: &Place, server: &Server, to: &str) {
    let url = server.url("six");
    let copying: Running = place.start_cp(server, &["--quiet", &url, to]);
    let copied = tokio::task::spawn_blocking(move || copying.wait()).await.expect("ended");
    copied.ok();
    assert_eq!(place.read(to), b"sixsix");
}

/// Reads slowly: some kilobytes, then a rest.
async fn read_slowly(recv: &mut RecvFlow, pieces: usize) -> usize {
    let (mut piece, mut bytes) = (vec![0; 8 << 10], 0);
    for _ in 0..pieces {
        match timeout(PATIENCE, recv.read(&mut piece)).await.expect("something comes").expect("read") {
            0 => break,
            n => bytes += n,
        }
        sleep(Duration::from_millis(100)).await;
    }
    bytes
}

#[test]
fn five_hundred_slow_clients_are_served_and_one_more() {
    let place = Place::new();
    write_big(&place, "srv/big", 32 << 20);
    place.write("srv/six", b"sixsix");
    let server = place.serve(&OPEN);
    runtime().block_on(async {
        copy_six_bytes(&place, &server, "first").await;
        let first = vital(server.running.id());
        let mut watched = Watched::new(&server);
        let mut clients = JoinSet::new();
        let slow = async {
            for _ in 0..500 {
                let connection = connect(&server, "").await;
                clients.spawn(async move {
                    let mut flows = Vec::new();
                    for _ in 0..4 {
                        flows.push(ask(&connection, &[get("big")]).await);
                    }
                    let mut reads = JoinSet::new();
                    for (send, mut recv) in flows {
                        // None of them is at its end for a while. One that has read enough ends its
                        // flow: what it left unread would take the others' credit.
                        reads.spawn(async move {
                            let bytes = read_slowly(&mut recv, 40).await;
                            drop((send, recv));
                            bytes
                        });
                    }
                    let mut bytes = Vec::new();
                    while let Some(read) = reads.join_next().await {
                        bytes.push(read.expect("read"));
                    }
                    (connection, bytes)
                });
            }
            copy_six_bytes(&place, &server, "meanwhile").await;
            let connection = connect(&server, "").await;
            let (_send, mut recv) = ask(&connection, &[get("big")]).await;
            assert!(read_slowly(&mut recv, 4).await > 0, "the 501st");
            let mut all = Vec::new();
            while let Some(client) = clients.join_next().await {
                let (connection, bytes) = client.expect("served");
                // Each of its flows had its turn.
                assert!(bytes.iter().all(|bytes| *bytes >= 8 << 10), "{bytes:?}");
                all.push(connection);
            }
            all
        };
        let connections = watched.during(slow).await;
        watched.check("500 slow clients");
        for connection in &connections {
            connection.close(0, "done").await;
        }
        drop(connections);
        until_given_back(&server, first).await;
    });
}

/// Clients that ask for much and take none of it.
#[test]
fn what_nobody_takes_is_neither_read_nor_held() {
    let place = Place::new();
    write_big(&place, "srv/big", 32 << 20);
    place.write("srv/six", b"sixsix");
    for number in 0..2000 {
        place.write(
            &format!("srv/d{}/e{}/a file with a name that is not short {number}", number % 7, number % 70),
            b"",
        );
    }
    let server = place.serve(&OPEN);
    runtime().block_on(async {
        copy_six_bytes(&place, &server, "first").await;
        let first = vital(server.running.id());
        let list = Request::List { path: Vec::new(), recursive: true };
        for (what, requests) in [("files", vec![get("big")]), ("listings", vec![list; 20])] {
            let mut watched = Watched::new(&server);
            let mut held = Vec::new();
            let attack = async {
                for _ in 0..40 {
                    let connection = connect(&server, "").await;
                    for _ in 0..64 {
                        held.push((ask(&connection, &requests).await, connection.clone()));
                    }
                }
                copy_six_bytes(&place, &server, what).await;
                sleep(Duration::from_secs(2)).await;
            };
            watched.during(attack).await;
            watched.check(what);
            drop(held);
        }
        until_given_back(&server, first).await;
    });
}

#[test]
fn who_wants_to_measure_has_no_thread_before_it_is_its_turn() {
    let place = Place::new();
    place.write("srv/six", b"sixsix");
    let server = place.serve(&[&OPEN[..], &["--perf"]].concat());
    runtime().block_on(async {
        copy_six_bytes(&place, &server, "first").await;
        let mut watched = Watched::new(&server);
        let attack = async {
            let mut held = Vec::new();
            for _ in 0..200 {
                held.push(connect(&server, "perf").await);
            }
            copy_six_bytes(&place, &server, "meanwhile").await;
            held
        };
        let held = watched.during(attack).await;
        watched.check("200 that would measure");
        assert!(watched.most.threads < 24, "{:?}", watched.most);
        drop(held);
    });
}

/// Streams to services take descriptors, but not all of them.
#[test]
fn streams_leave_descriptors_to_files() {
    let place = Place::new();
    place.write("srv/six", b"sixsix");
    runtime().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let pipe = format!("sink={}", listener.local_addr().expect("an address").port());
        tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((socket, _)) = listener.accept().await {
                held.push(socket);
            }
        });
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "ulimit -n 400; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_uts")]);
        command.args([
            "serve",
            "--dir",
            "srv",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--anyone",
            "--pipe",
            &pipe,
        ]);
        let server = Place::served(Place::begin(place.here(command, "server-home")));
        let mut watched = Watched::new(&server);
        let attack = async {
            let mut held = Vec::new();
            for _ in 0..11 {
                let connection = connect(&server, "pipe").await;
                for _ in 0..90 {
                    let flow = connection.open_flow(FlowOptions::default()).await.expect("a flow");
                    let (mut send, recv) = flow.split();
                    send.write_all(b"\x01\x04sink").await.expect("asked");
                    held.push((send, recv, connection.clone()));
                }
            }
            for (_, recv, _) in &mut held {
                // It is there, or there is no room.
                let answer = timeout(PATIENCE, recv.read_u8()).await.expect("in time").expect("an answer");
                assert!(answer <= 1, "{answer}");
            }
            copy_six_bytes(&place, &server, "meanwhile").await;
            held
        };
        let held = watched.during(attack).await;
        watched.check("11 connections of streams");
        drop(held);
    });
}
