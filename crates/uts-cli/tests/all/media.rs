//! `uts media`: what is sent under a name arrives at all who receive it, as it was sent; who takes
//! less loses alone, and is told; the latency changes while it runs.

use crate::common::tunnel::{free_port, key_of, serve};
use crate::common::{PATIENCE, Place, Running, Server, signal};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// Bytes of seven packets of a transport stream.
const DATAGRAM_BYTES: usize = 7 * 188;

/// A datagram of a transport stream, whose packets count on (ISO 13818-1: continuity counter).
fn ts(number: u32) -> Vec<u8> {
    let packet = |n: u32| {
        let mut packet = vec![n as u8; 188];
        packet[..4].copy_from_slice(&[0x47, 1, 0, 0x10 | (n % 16) as u8]);
        packet[4..8].copy_from_slice(&number.to_be_bytes());
        packet
    };
    (0..7).flat_map(|n| packet(number * 7 + n)).collect()
}

/// A datagram of RTP.
fn rtp(number: u32) -> Vec<u8> {
    let mut datagram = vec![0x80, 96];
    datagram.extend((number as u16).to_be_bytes());
    datagram.extend((number * 3000).to_be_bytes());
    datagram.extend([1, 2, 3, 4]);
    datagram.extend(vec![number as u8; 100 + number as usize % 900]);
    datagram
}

/// An end of a stream that runs.
struct End {
    control: String,
    running: Running,
}

impl End {
    fn start(place: &Place, home: &str, server: &Server, way: &str, words: &[&str]) -> End {
        let control = place.path(&format!("control-{}", free_port())).display().to_string();
        let options = ["media", way, "--pin", &server.fingerprint, "--control", &control];
        End { running: place.start_as(home, &[&options[..], words].concat()), control }
    }

    fn send(place: &Place, server: &Server, from: &str, name: &str, options: &[&str]) -> End {
        let url = server.url(name);
        let mut end = End::start(place, "home", server, "send", &[options, &[from, &url]].concat());
        end.list_where(place, "connected", |list| !list["connection"].is_null());
        end
    }

    fn recv(place: &Place, server: &Server, name: &str, to: &str, options: &[&str]) -> End {
        let url = server.url(name);
        let mut end = End::start(place, "home", server, "recv", &[options, &[&url, to]].concat());
        end.list_where(place, "connected", |list| !list["connection"].is_null());
        end
    }

    /// Waits until the list is as is wanted.
    fn list_where(&mut self, place: &Place, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let running = &mut self.running;
        list_where(place, &self.control, what, wanted, || running.has_ended().then(|| running.end().err))
    }

    fn end(self) {
        self.running.signal(Signal::TERM);
        let ended = self.running.wait();
        assert_eq!(ended.status, 130, "{}", ended.err);
    }
}

/// Waits until what a socket lists is as is wanted.
fn list_where(
    place: &Place,
    control: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
    mut has_ended: impl FnMut() -> Option<String>,
) -> Value {
    let deadline = Instant::now() + PATIENCE;
    let mut last = String::new();
    loop {
        let ended = place.run(&["ctl", control, "--json"]);
        let list = ended.out.first().and_then(|line| serde_json::from_str::<Value>(line).ok());
        if let Some(list) = list.filter(|_| ended.status == 0) {
            if wanted(&list) {
                return list;
            }
            last = list.to_string();
        }
        if let Some(said) = has_ended() {
            panic!("not {what}: {said}");
        }
        assert!(Instant::now() < deadline, "not {what}: {last}");
        sleep(Duration::from_millis(50));
    }
}

/// A player: it takes datagrams at a port.
struct Player {
    port: u16,
    taken: Arc<Mutex<Vec<Vec<u8>>>>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Player {
    fn start() -> Player {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
        let port = socket.local_addr().expect("an address").port();
        let (taken, ends) = (Arc::<Mutex<Vec<Vec<u8>>>>::default(), Arc::<AtomicBool>::default());
        let (kept, is_over) = (taken.clone(), ends.clone());
        let thread = spawn(move || {
            let mut datagram = vec![0; 65_536];
            while !is_over.load(Relaxed) {
                if let Ok(bytes) = socket.recv(&mut datagram) {
                    kept.lock().expect("kept").push(datagram[..bytes].to_vec());
                }
            }
        });
        Player { port, taken, ends, thread }
    }

    fn place(&self) -> String {
        format!("udp://127.0.0.1:{}", self.port)
    }

    fn count(&self) -> usize {
        self.taken.lock().expect("kept").len()
    }

    fn wait_for(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.count() < count {
            assert!(Instant::now() < deadline, "{} of {count} have come", self.count());
            sleep(Duration::from_millis(20));
        }
    }

    fn end(self) -> Vec<Vec<u8>> {
        self.ends.store(true, Relaxed);
        self.thread.join().expect("it ran");
        Arc::try_unwrap(self.taken).expect("it has ended").into_inner().expect("kept")
    }
}

/// Sends datagrams to a port, some at once and then a pause.
fn play(port: u16, count: u32, at_once: u32, pause: Duration, datagram: fn(u32) -> Vec<u8>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    for number in 0..count {
        socket.send_to(&datagram(number), ("127.0.0.1", port)).expect("sent");
        if number % at_once == at_once - 1 {
            sleep(pause);
        }
    }
}

#[test]
fn all_receivers_of_a_name_get_what_is_sent_as_it_was_sent() {
    const COUNT: u32 = 400;
    let place = Place::new();
    let server = serve(&place, &["--media"]);
    for (name, datagram) in [("film", ts as fn(u32) -> Vec<u8>), ("call", rtp)] {
        let players = [Player::start(), Player::start()];
        let latency = ["--latency", "2s"];
        let mut receivers =
            players.each_ref().map(|player| End::recv(&place, &server, name, &player.place(), &latency));
        let port = free_port();
        let mut sender =
            End::send(&place, &server, &format!("udp://127.0.0.1:{port}"), name, &["--latency", "5s"]);
        play(port, COUNT, 2, Duration::from_millis(4), datagram);
        let sent = sender.list_where(&place, "all is sent", |list| list["media"]["datagrams"] == COUNT);
        assert_eq!(sent["media"]["dropped"], 0, "{sent}");
        let format = if name == "film" { "MPEG-TS" } else { "RTP" };
        assert_eq!(sent["media"]["format"], format, "{sent}");
        for (player, receiver) in players.into_iter().zip(&mut receivers) {
            player.wait_for(COUNT as usize);
            let list =
                receiver.list_where(&place, "all has come", |list| list["media"]["datagrams"] == COUNT);
            assert_eq!((&list["media"]["missing"], &list["media"]["late"]), (&0.into(), &0.into()), "{list}");
            assert!(list["media"]["in_time"].as_u64() > Some(0), "{list}");
            let taken = player.end();
            let wanted: Vec<Vec<u8>> = (0..COUNT).map(datagram).collect();
            assert!(taken == wanted, "{name}: {} datagrams, not as they were sent", taken.len());
        }
        sender.end();
        receivers.into_iter().for_each(End::end);
    }
}

#[test]
fn a_receiver_that_takes_less_loses_alone_and_the_server_tells_it() {
    let place = Place::new();
    let control = place.path("server-control").display().to_string();
    let server = serve(&place, &["--media", "--control", &control]);
    let player = Player::start();
    let options = ["--latency", "3s"];
    let quick = End::recv(&place, &server, "hall", &player.place(), &options);
    // Its output is a pipe that nobody reads.
    let url = server.url("hall");
    let words = ["media", "recv", "--latency", "3s", "--pin", &server.fingerprint, &url, "-"];
    let mut stuck = place.command("home", &words);
    let mut stuck =
        stuck.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let carried = |list: &Value| -> Vec<Value> {
        let clients = list["clients"].as_array().cloned().unwrap_or_default();
        clients.iter().flat_map(|client| client["carried"].as_array().cloned().unwrap_or_default()).collect()
    };
    list_where(&place, &control, "both receive", |list| carried(list).len() == 2, || None);
    let port = free_port();
    let sender = End::send(&place, &server, &format!("udp://127.0.0.1:{port}"), "hall", &options);
    let ends = Arc::<AtomicBool>::default();
    let is_over = ends.clone();
    let source = spawn(move || {
        let mut sent = 0;
        while !is_over.load(Relaxed) {
            play(port, 200, 4, Duration::from_millis(2), ts);
            sent += 200;
        }
        sent
    });
    let dropped = |one: &Value| one["dropped"].as_u64().unwrap_or_default();
    let list = list_where(
        &place,
        &control,
        "one is dropped for",
        |list| carried(list).iter().filter(|one| dropped(one) > 100).count() == 1,
        || None,
    );
    assert_eq!(carried(&list).iter().filter(|one| dropped(one) == 0).count(), 2, "{list}");
    ends.store(true, Relaxed);
    let sent = source.join().expect("it ran");
    player.wait_for(sent * 3 / 4);
    signal(&stuck, Signal::KILL);
    stuck.wait().expect("it ends");
    quick.end();
    sender.end();
    let said = server.running;
    said.signal(Signal::TERM);
    let said = said.wait();
    let told = said.out.iter().filter(|line| line.contains("the oldest datagrams are dropped")).count();
    assert!((1..4).contains(&told), "{told}: {:?}", said.out);
}

#[test]
fn the_latency_changes_while_it_runs() {
    let place = Place::new();
    let server = serve(&place, &["--media"]);
    let player = Player::start();
    let mut receiver = End::recv(&place, &server, "a", &player.place(), &["--latency", "2s"]);
    let port = free_port();
    let sender = End::send(&place, &server, &format!("udp://127.0.0.1:{port}"), "a", &["--latency", "5s"]);
    let ends = Arc::<AtomicBool>::default();
    let is_over = ends.clone();
    let source = spawn(move || {
        while !is_over.load(Relaxed) {
            play(port, 50, 1, Duration::from_millis(4), ts);
        }
    });
    let delay = |list: &Value| list["media"]["delay_ms"].as_f64().unwrap_or_default();
    receiver.list_where(&place, "it plays 2 s behind", |list| (delay(list) - 2000.0).abs() < 1.0);
    place.run(&["ctl", &receiver.control, "set", "uts.playoutDelay=3s"]).ok();
    let list = receiver.list_where(&place, "it plays 3 s behind", |list| (delay(list) - 3000.0).abs() < 1.0);
    assert_eq!((&list["media"]["missing"], &list["media"]["late"]), (&0.into(), &0.into()), "{list}");
    let ctl = |end: &End, property| place.run(&["ctl", &end.control, "set", property]);
    ctl(&receiver, "congestionControl=avoid").failed(1, &["for each end to choose"]);
    ctl(&sender, "uts.playoutDelay=1s").failed(1, &["msgLifetime"]);
    ctl(&sender, "msgLifetime=4s").ok();
    let line = place.run(&["ctl", &receiver.control]).ok().out.join("\n");
    assert!(line.contains("datagrams (MPEG-TS)") && line.contains("0 missing; delay"), "{line}");
    ends.store(true, Relaxed);
    source.join().expect("it ran");
    receiver.end();
    sender.end();
}

#[test]
fn what_is_wrong_is_told_in_a_sentence() {
    let place = Place::new();
    key_of(&place, "other");
    key_of(&place, "home");
    let server = serve(&place, &["--media"]);
    let first = End::send(&place, &server, "udp://127.0.0.1:0", "x", &[]);
    let url = server.url("x");
    let run = |home: &str, words: &[&str]| {
        let pinned = ["media", words[0], "--pin", &server.fingerprint];
        place.run_as(home, &[&pinned[..], &words[1..]].concat())
    };
    let said = run("other", &["send", "udp://127.0.0.1:0", &url]);
    said.failed(1, &[&server.address, "another client sends `x`"]);
    run("home", &["send", "udp://:70000", &url]).failed(2, &["`70000` is no UDP port"]);
    run("home", &["recv", &url, "/tmp/x"]).failed(2, &["write udp://HOST:PORT, or -"]);
    run("home", &["recv", "--latency", "0", &url, "-"]).failed(2, &["1ms to 10s"]);
    run("home", &["recv", "uts://127.0.0.1", "-"]).failed(2, &["uts://host[:port]/name"]);
    // The same client takes its own place.
    let again = End::send(&place, &server, "udp://127.0.0.1:0", "x", &[]);
    let ended = first.running.wait();
    assert_ne!(ended.status, 0, "{}", ended.err);
    again.end();
    let text = place.write("text", "no video\n".repeat(20_000).as_bytes());
    let words = ["media", "send", "--pin", &server.fingerprint, "-", &url];
    let mut command = place.command("home", &words);
    let ended = command.stdin(File::open(text).expect("a file")).output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(
        said.contains("standard input: it is no MPEG transport stream") && said.contains("-f mpegts"),
        "{said}"
    );
    let none = serve(&place, &["--perf"]);
    let words = ["media", "recv", "--pin", &none.fingerprint, &none.url("x"), "-"];
    place.run(&words).failed(1, &["it has no service `media`"]);
}

/// A program of the system, if it is there.
fn has(program: &str) -> bool {
    Command::new(program).arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn begin(command: &mut Command, input: Stdio, output: Stdio) -> Child {
    command.stdin(input).stdout(output).stderr(Stdio::null()).spawn().expect("it starts")
}

#[test]
fn pictures_of_ffmpeg_arrive() {
    const SECONDS: usize = 4;
    if !has("ffmpeg") || !has("ffprobe") {
        eprintln!("skipped: ffmpeg is not installed");
        return;
    }
    let place = Place::new();
    let server = serve(&place, &["--media"]);
    let url = server.url("test");
    let file = File::create(place.path("out.ts")).expect("made");
    let words = ["media", "recv", "--latency", "2s", "--pin", &server.fingerprint, &url, "-"];
    let mut receiver = begin(&mut place.command("home", &words), Stdio::null(), file.into());
    // It may come first; that it is there is seen by what arrives.
    sleep(Duration::from_millis(1500));
    let source = format!("testsrc=duration={SECONDS}:size=320x240:rate=25");
    let mut encoder = Command::new("ffmpeg");
    encoder.args(["-v", "error", "-f", "lavfi", "-i", &source, "-c:v", "mpeg2video", "-g", "12"]);
    let mut encoder = begin(encoder.args(["-f", "mpegts", "-"]), Stdio::null(), Stdio::piped());
    let pictures = encoder.stdout.take().expect("a pipe");
    let words = ["media", "send", "--latency", "2s", "--pin", &server.fingerprint, "-", &url];
    let begun = Instant::now();
    let mut sender = begin(&mut place.command("home", &words), pictures.into(), Stdio::null());
    assert!(sender.wait().expect("it ends").success(), "all of it is sent");
    // The encoder is faster than its pictures: they are sent at their pace.
    assert!(begun.elapsed() > Duration::from_secs(SECONDS as u64 - 1), "{:?}", begun.elapsed());
    assert!(encoder.wait().expect("it ends").success());
    let frames = || {
        let mut probe = Command::new("ffprobe");
        probe.args(["-v", "error", "-count_frames", "-select_streams", "v", "-of", "csv=p=0"]);
        let probed = probe.args(["-show_entries", "stream=nb_read_frames"]).arg(place.path("out.ts"));
        let said = String::from_utf8(probed.output().expect("it runs").stdout).expect("text");
        // A line for each program that the stream is of, and one for the stream.
        said.lines().next().and_then(|line| line.trim_matches(',').parse::<usize>().ok()).unwrap_or(0)
    };
    let deadline = Instant::now() + PATIENCE;
    let wanted = SECONDS * 25 - 5;
    while frames() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} pictures can be decoded", frames());
        sleep(Duration::from_millis(300));
    }
    signal(&receiver, Signal::TERM);
    assert_eq!(receiver.wait().expect("it ends").code(), Some(130));
}

/// A stream from a file, cut and sent whole.
#[test]
fn a_stream_on_standard_input_arrives_whole() {
    const COUNT: u32 = 300;
    let place = Place::new();
    let server = serve(&place, &["--media"]);
    let player = Player::start();
    let receiver = End::recv(&place, &server, "file", &player.place(), &["--latency", "3s"]);
    let url = server.url("file");
    let words = ["media", "send", "--latency", "5s", "--pin", &server.fingerprint, "-", &url];
    let mut sender = begin(&mut place.command("home", &words), Stdio::piped(), Stdio::null());
    let mut input = sender.stdin.take().expect("a pipe");
    for number in 0..COUNT {
        input.write_all(&ts(number)).expect("it takes");
        sleep(Duration::from_millis(3));
    }
    drop(input);
    assert!(sender.wait().expect("it ends").success());
    player.wait_for(COUNT as usize);
    let sent: Vec<u8> = (0..COUNT).flat_map(ts).collect();
    let taken = player.end();
    assert!(taken.iter().all(|datagram| datagram.len() <= DATAGRAM_BYTES));
    assert!(taken.concat() == sent, "{} datagrams, not as they were sent", taken.len());
    receiver.end();
}
