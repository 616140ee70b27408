//! Clients that others write, in C and in Python, by the documents alone: each sends a file and
//! media with deadlines to a server, and is watched meanwhile, in `uts top`, by Prometheus and in
//! Wireshark.

use crate::common::tunnel::ask;
use crate::common::{PATIENCE, Place, Server, pattern};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant, SystemTime};

/// Frames of a client's media: some seconds of them, to be looked at.
const FRAMES: usize = 200;
/// Frames that have to have come before the client is looked at.
const FIRST: usize = 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Folder of the library for C, which cargo has built for these tests.
fn library() -> PathBuf {
    let here = std::env::current_exe().expect("a program");
    here.parent().expect("a folder").to_owned()
}

#[test]
fn a_client_in_c_is_watched() {
    let place = Place::new();
    let program = place.path("uplink");
    let compiled = Command::new("gcc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(root().join("crates/uts-c/include"))
        .arg(root().join("crates/uts-c/examples/uplink.c"))
        .arg(library().join("libuts_c.so"))
        .arg(format!("-Wl,-rpath,{}", place.path(".").display()))
        .arg("-o")
        .arg(&program)
        .output();
    let Ok(compiled) = compiled else { return eprintln!("skipped: gcc is not installed") };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    // By the name that programs know.
    std::os::unix::fs::symlink(library().join("libuts_c.so"), place.path("libuts.so.0")).expect("a link");
    is_watched(&place, || Command::new(&program));
}

#[test]
fn a_client_in_python_is_watched() {
    let made = root().join("target/python/venv/bin/python");
    let named = std::env::var_os("UTS_PYTHON").map(PathBuf::from);
    let python = named.unwrap_or(if made.exists() { made } else { "python3".into() });
    let probe = "import sys, cffi; sys.exit(sys.version_info < (3, 10))";
    if !Command::new(&python).args(["-c", probe]).output().is_ok_and(|probed| probed.status.success()) {
        return eprintln!("skipped: Python 3.10 with cffi is not here (docs/python.md)");
    }
    is_watched(&Place::new(), || {
        let mut command = Command::new(&python);
        command.arg(root().join("python/examples/uplink.py"));
        command.env("PYTHONPATH", root().join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("UTS_LIBRARY", library().join("libuts_c.so"));
        command
    });
}

/// Has a client send both to a server, and looks at it in all ways.
fn is_watched(place: &Place, client: impl Fn() -> Command) {
    let (inbox, at) = inbox();
    let control = place.path("control").display().to_string();
    let pipe = format!("inbox={at}");
    let mut server = place.serve(&["--pipe", &pipe, "--media", "--metrics", "0", "--control", &control]);
    let line = server.running.event_where("notice", |notice| notice["step"] == "metrics");
    let line = line["line"].as_str().expect("a line").to_owned();
    let metrics = line.split("http://").nth(1).and_then(|rest| rest.strip_suffix("/metrics"));
    let metrics = metrics.expect("an address").parse().expect("an address");
    let (wire, keys) = (Wire::tap(server.address.parse().expect("an address")), place.path("keys"));
    let command = |words: &[&str]| {
        let mut command = client();
        command.arg(words[0]).arg(wire.at.to_string()).arg(&server.fingerprint).args(&words[1..]);
        command.env("SSLKEYLOGFILE", &keys).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };

    let content = pattern(500_000);
    let file = place.write("content", &content);
    ended(command(&["file", "inbox", &file]).spawn().expect("started"));
    assert!(inbox.recv_timeout(PATIENCE).expect("it came") == content);
    assert!(figure(metrics, "uts_bytes_total{direction=\"in\"}") >= 500_000.0);
    assert_eq!(figure(metrics, "uts_streams_total{outcome=\"opened\"}"), 1.0);

    let frames = received(place, &server);
    let mut media = command(&["media", "film", &FRAMES.to_string(), "500ms"]).spawn().expect("started");
    frames.wait_for(FIRST, &mut media);
    assert_eq!(figure(metrics, "uts_connections_open{service=\"media\"}"), 2.0, "it, and who receives");
    let (status, screen) =
        place.run_at_terminal_out_of(80, &["top", "--every", "100ms", &control], "media", "q");
    // The client of the pipe may still be there, as its end is acknowledged.
    let counts = ["2 clients", "3 clients"].iter().any(|count| screen.contains(count));
    assert!(status == 0 && counts && screen.contains("RTT"), "{screen}");
    let said = ended(media);
    assert!(said.starts_with(&format!("{FRAMES} frames, ")), "{said}");
    for frame in frames.end() {
        assert!(frame.len() == 800 && frame.iter().all(|byte| *byte == frame[0]), "as it was sent");
    }
    is_read(place, &wire.end(place), &keys);
}

/// The output of a client that ends well.
fn ended(client: Child) -> String {
    let output = client.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A service of TCP that takes one stream, and what came by it.
fn inbox() -> (Receiver<Vec<u8>>, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = listener.local_addr().expect("an address");
    let (tell, told) = channel();
    spawn(move || {
        let (mut stream, mut all) = (listener.accept().expect("a client").0, Vec::new());
        stream.read_to_end(&mut all).expect("read");
        tell.send(all)
    });
    (told, at)
}

/// A figure as it is told now; -1 if it is not.
fn figure(at: SocketAddr, name: &str) -> f64 {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\n\r\n");
    let answer = ask(crate::common::tunnel::connect(at), request.as_bytes()).expect("an answer");
    let answer = String::from_utf8(answer).expect("text");
    let value = answer.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or(-1.0)
}

/// Frames that `uts media recv` has handed on.
struct Frames {
    taken: Arc<Mutex<Vec<Vec<u8>>>>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    receiver: crate::common::Running,
}

fn received(place: &Place, server: &Server) -> Frames {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
    let to = format!("udp://{}", socket.local_addr().expect("an address"));
    let receiver = place.start(&["media", "recv", "--pin", &server.fingerprint, &server.url("film"), &to]);
    let (taken, ends) = (Arc::<Mutex<Vec<Vec<u8>>>>::default(), Arc::<AtomicBool>::default());
    let (kept, is_over) = (taken.clone(), ends.clone());
    let thread = spawn(move || {
        let mut datagram = [0; 2000];
        while !is_over.load(Relaxed) {
            if let Ok(bytes) = socket.recv(&mut datagram) {
                kept.lock().expect("kept").push(datagram[..bytes].to_vec());
            }
        }
    });
    Frames { taken, ends, thread, receiver }
}

impl Frames {
    fn wait_for(&self, count: usize, client: &mut Child) {
        let until = Instant::now() + PATIENCE;
        while self.taken.lock().expect("kept").len() < count {
            assert!(Instant::now() < until, "no frames come");
            assert_eq!(client.try_wait().expect("a process"), None, "it goes on");
            sleep(Duration::from_millis(20));
        }
    }

    fn end(self) -> Vec<Vec<u8>> {
        self.receiver.kill();
        self.ends.store(true, Relaxed);
        self.thread.join().expect("it ran");
        self.taken.lock().expect("kept").clone()
    }
}

/// The way to a server, whose datagrams are captured.
struct Wire {
    at: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u8>>,
}

impl Wire {
    /// Hands on what clients send, one client after the other, and what they are answered.
    fn tap(server: SocketAddr) -> Self {
        let near = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let at = near.local_addr().expect("an address");
        let ends = Arc::<AtomicBool>::default();
        let is_over = ends.clone();
        let thread = spawn(move || {
            // The file of libpcap with whole packets of IP (draft-ietf-opsawg-pcap).
            let mut capture = Vec::new();
            for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
                capture.extend(word.to_le_bytes());
            }
            let mut pair: Option<(SocketAddr, UdpSocket)> = None;
            let mut datagram = [0; 65_536];
            near.set_nonblocking(true).expect("set");
            while !is_over.load(Relaxed) {
                let mut is_idle = true;
                while let Ok((bytes, from)) = near.recv_from(&mut datagram) {
                    is_idle = false;
                    if pair.as_ref().is_none_or(|(client, _)| *client != from) {
                        let far = UdpSocket::bind("127.0.0.1:0").expect("bound");
                        far.set_nonblocking(true).expect("set");
                        pair = Some((from, far));
                    }
                    record(&mut capture, from, server, &datagram[..bytes]);
                    let _ = pair.as_ref().map(|(_, far)| far.send_to(&datagram[..bytes], server));
                }
                while let Some((client, far)) = &pair
                    && let Ok(bytes) = far.recv(&mut datagram)
                {
                    is_idle = false;
                    record(&mut capture, server, *client, &datagram[..bytes]);
                    let _ = near.send_to(&datagram[..bytes], client);
                }
                if is_idle {
                    sleep(Duration::from_micros(200));
                }
            }
            capture
        });
        Wire { at, ends, thread }
    }

    /// The capture, as a file.
    fn end(self, place: &Place) -> PathBuf {
        self.ends.store(true, Relaxed);
        let path = place.path("capture.pcap");
        let mut file = File::create(&path).expect("made");
        file.write_all(&self.thread.join().expect("it ran")).expect("written");
        path
    }
}

/// Adds a packet to a capture: headers of IPv4 and UDP, without checksums, and the datagram.
fn record(capture: &mut Vec<u8>, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock");
    let bytes = (datagram.len() + 28) as u32;
    for word in [now.as_secs() as u32, now.subsec_micros(), bytes, bytes] {
        capture.extend(word.to_le_bytes());
    }
    let octets = |at: SocketAddr| match at {
        SocketAddr::V4(at) => at.ip().octets(),
        SocketAddr::V6(_) => panic!("{at}"),
    };
    let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
    header[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
    header.extend(octets(from));
    header.extend(octets(to));
    for field in [from.port(), to.port(), bytes as u16 - 20, 0] {
        header.extend(field.to_be_bytes());
    }
    capture.extend(header);
    capture.extend(datagram);
}

/// A capture is read with keys and, in what is in clear, by Wireshark.
fn is_read(place: &Place, capture: &Path, keys: &Path) {
    let words = ["decode", "--json", "--keylog"].map(str::to_owned).into_iter();
    let words: Vec<String> = words.chain([keys, capture].map(|path| path.display().to_string())).collect();
    let decoded = place.run(&words.iter().map(String::as_str).collect::<Vec<_>>()).ok();
    assert!(!decoded.err.contains("could not be read"), "{}", decoded.err);
    assert!(decoded.out.len() > FRAMES, "{} packets", decoded.out.len());
    let lua = root().join("packaging/wireshark/uts.lua");
    let mut tshark = Command::new("tshark");
    tshark.arg("-X").arg(format!("lua_script:{}", lua.display())).arg("-r").arg(capture);
    tshark.args(["-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info"]);
    let Ok(seen) = tshark.env("HOME", place.path(".")).env_remove("XDG_CONFIG_HOME").output() else {
        return eprintln!("skipped: tshark is not installed");
    };
    let rows = String::from_utf8(seen.stdout).expect("text");
    let said = String::from_utf8_lossy(&seen.stderr);
    assert!(seen.status.success() && !said.contains("Lua"), "{said}");
    assert!(rows.lines().count() > FRAMES && rows.starts_with("UTS\tInitial"), "{rows:.300}");
    assert!(rows.lines().all(|row| row.starts_with("UTS\t")), "each datagram belongs to it");
}
