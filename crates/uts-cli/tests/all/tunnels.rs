//! `uts tunnel`: ports that lead through a server, as programs of other people meet them.

use crate::common::tunnel::{Tunnel, ask, connect, echo, free_port, key_of, sees_a_reset, serve, udp_echo};
use crate::common::{PATIENCE, Place};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};

/// Argument of a forward from any port to an address.
fn to(address: impl std::fmt::Display) -> String {
    format!("0:{address}")
}

/// The connections that a tunnel says it carries, once there are so many.
fn carried(tunnel: &mut Tunnel, count: usize) -> Vec<serde_json::Value> {
    let list = tunnel.list_where("as many carried", |list| {
        list["carried"].as_array().is_some_and(|carried| carried.len() == count)
    });
    list["carried"].as_array().expect("a list").clone()
}

#[test]
fn bytes_ends_and_resets_pass_both_ways() {
    let place = Place::new();
    let raw = TcpListener::bind("127.0.0.1:0").expect("bound");
    let (echo, raw_at) = (echo(), raw.local_addr().expect("an address"));
    let server = serve(&place, &["--forward", &echo.to_string(), "--forward", &raw_at.to_string()]);
    let mut tunnel = Tunnel::start(&place, "home", &server, &["-L", &to(echo), "-L", &to(raw_at)]);
    let sent: Vec<u8> = (0..8 << 20).map(|n: u32| (n / 7 % 251) as u8).collect();
    let stream = tunnel.connect(0);
    let mut writer = stream.try_clone().expect("another handle");
    let data = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&data).expect("written");
        // The end of one direction leaves the other open.
        writer.shutdown(Shutdown::Write).expect("shut");
    });
    let mut back = Vec::new();
    (&stream).read_to_end(&mut back).expect("read");
    writing.join().expect("written");
    assert!(back == sent);
    drop(stream);
    // A service that resets its connection has that of the program reset.
    let mut stream = tunnel.connect(1);
    let (service, _) = raw.accept().expect("connected");
    socket2::SockRef::from(&service).set_linger(Some(std::time::Duration::ZERO)).expect("set");
    drop(service);
    assert_eq!(stream.read(&mut [0]).expect_err("reset").kind(), ErrorKind::ConnectionReset);
    // So has a program.
    let stream = tunnel.connect(1);
    let (mut service, _) = raw.accept().expect("connected");
    service.set_read_timeout(Some(PATIENCE)).expect("set");
    carried(&mut tunnel, 1);
    socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).expect("set");
    drop(stream);
    assert_eq!(service.read(&mut [0]).expect_err("reset").kind(), ErrorKind::ConnectionReset);
    carried(&mut tunnel, 0);
    tunnel.end();
}

#[test]
fn what_is_not_permitted_or_not_there_is_said_in_a_line() {
    let place = Place::new();
    let (mine, down) = (echo(), free_port());
    let (keys, _) = key_of(&place, "home");
    let (_, friend) = key_of(&place, "friend");
    let (open, private) = (format!("127.0.0.1:{down}"), format!("{mine}@{friend}"));
    let server = serve(&place, &["--forward", &open, "--forward", &private]);
    let options = ["-L", &to(mine), "-L", &to(&open), "-L", &to("nowhere.invalid:80")];
    let tunnel = Tunnel::start(&place, "home", &server, &options);
    for nth in [0, 1, 2, 0] {
        sees_a_reset(tunnel.address(nth));
    }
    let said = tunnel.end();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("Z uts: 127")).collect();
    assert_eq!(lines.len(), 3, "each once: {said}");
    assert!(lines[0].contains(&format!("{mine} is not permitted by the server")), "{said}");
    assert!(lines[1].contains(&format!("{open} does not answer: connection refused")), "{said}");
    assert!(lines[2].contains("nowhere.invalid:80 is not permitted"), "{said}");
    // Whose key the permit names may.
    let tunnel = Tunnel::start(&place, "friend", &server, &["-L", &to(mine)]);
    assert_eq!(ask(tunnel.connect(0), b"hello").expect("carried"), b"hello");
    // A key that is not in the list of the server gets nowhere, nor does none.
    let args = ["tunnel", "--pin", &server.fingerprint, "-L", &to(mine), &server.address];
    place.run_as("stranger", &args).failed(1, &["a client key is required; this end has shown none"]);
    place.run_as("stranger", &["keygen"]).ok();
    place.run_as("stranger", &args).failed(1, &["refused", "this end's key"]);
    // A server that permits nothing has no such service.
    let plain = place.serve(&["--authorized-keys", &keys]);
    let args = ["tunnel", "--pin", &plain.fingerprint, "-L", &to(mine), &plain.address];
    place.run(&args).failed(1, &["it has no service `tunnel`"]);
}

#[test]
fn a_wrong_command_line_and_a_port_in_use_are_said_in_a_line() {
    let place = Place::new();
    let one_line = |ended: crate::common::Ended, status, parts: &[&str]| {
        let ended = ended.failed(status, parts);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    };
    let serve = |args: &[&str]| place.run(&[&["serve", "--listen", "127.0.0.1:0"], args].concat());
    one_line(serve(&["--forward", "80"]), 2, &["--authorized-keys"]);
    one_line(serve(&["--forward", "80", "--anyone"]), 2, &["--authorized-keys"]);
    serve(&["--forward", "web", "--authorized-keys", "keys"]).failed(2, &["`web` is not a port"]);
    let tunnel = |args: &[&str]| place.run(&[&["tunnel", "127.0.0.1:1"], args].concat());
    one_line(tunnel(&[]), 2, &["write -L, -R or -D"]);
    tunnel(&["-L", "80"]).failed(2, &["`80` is not [udp/][BIND:]PORT:HOST:HOSTPORT"]);
    tunnel(&["-L", "80:a:80,connPriorty=1"]).failed(2, &["did you mean `connPriority`"]);
    tunnel(&["-D", "a:b:c"]).failed(2, &["is not [BIND:]PORT"]);
    tunnel(&["-D", "0", "--silence", "0"]).failed(2, &["--silence", "how long a silent peer is kept"]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("an address");
    let held = TcpListener::bind(taken).expect("bound");
    let forward = format!("{}:127.0.0.1:80", taken.port());
    one_line(tunnel(&["-L", &forward]), 1, &[&format!("cannot listen at {taken}: address already in use")]);
    drop(held);
    let socket = UdpSocket::bind(taken).expect("bound");
    let forward = format!("udp/{}:127.0.0.1:80", taken.port());
    one_line(
        tunnel(&["-L", &forward]),
        1,
        &[&format!("cannot listen at udp/{taken}: address already in use")],
    );
    drop(socket);
    one_line(tunnel(&["-L", "web:80:a:80"]), 1, &["`web` is not an address of this host"]);
    place.write("file", b"mine");
    let file = place.path("file").display().to_string();
    one_line(tunnel(&["-D", "0", "--control", &file]), 1, &["is no socket"]);
    assert_eq!(place.read("file"), b"mine");
    one_line(place.run(&["ctl", &file]), 1, &[&file]);
    one_line(place.run(&["ctl", &format!("{file}-none")]), 1, &["no such socket"]);
}

/// Runs a program that talks through a tunnel; `None`, and a word, if it is not installed.
fn program(name: &str, package: &str, args: &[&str]) -> Option<std::process::Output> {
    match Command::new(name).args(args).stdin(Stdio::null()).output() {
        Ok(output) => Some(output),
        Err(_) => {
            println!("skipped: {name} is not installed (Debian: apt install {package}); see make doctor");
            None
        }
    }
}

/// A web server that has one page, for one request on each connection.
fn web(page: Vec<u8>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut asked = Vec::new();
            let mut byte = [0];
            while !asked.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                asked.push(byte[0]);
            }
            let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&page));
        }
    });
    address
}

#[test]
fn curl_reaches_a_page_by_a_port_and_by_socks5() {
    let place = Place::new();
    let page: Vec<u8> = (0..3 << 20).map(|n: u32| (n / 3 % 250) as u8).collect();
    let web = web(page.clone());
    let server = serve(&place, &["--forward", &web.to_string()]);
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &to(web), "-D", "0"]);
    let (port, socks) = (tunnel.address(0), tunnel.address(1));
    let curl = |args: &[&str]| program("curl", "curl", &[&["-sS", "--max-time", "60"], args].concat());
    let Some(got) = curl(&[&format!("http://{port}/")]) else { return };
    assert!(got.status.success() && got.stdout == page, "{}", String::from_utf8_lossy(&got.stderr));
    let got = curl(&["--socks5", &socks.to_string(), &format!("http://{web}/")]).expect("curl");
    assert!(got.status.success() && got.stdout == page, "{}", String::from_utf8_lossy(&got.stderr));
    // A name is looked up by the server.
    let by_name = format!("http://localhost:{}/", web.port());
    let got = curl(&["--socks5-hostname", &socks.to_string(), &by_name]).expect("curl");
    assert!(got.status.success() && got.stdout == page, "{}", String::from_utf8_lossy(&got.stderr));
    let got = curl(&["--socks5", &socks.to_string(), "http://127.0.0.1:1/"]).expect("curl");
    assert!(!got.status.success() && got.stdout.is_empty());
    let said = tunnel.end();
    assert!(said.contains("127.0.0.1:1 is not permitted"), "{said}");
}

#[test]
fn what_is_no_socks5_is_closed_and_harms_nobody() {
    let place = Place::new();
    let service = echo();
    let server = serve(&place, &["--forward", &service.to_string()]);
    let tunnel = Tunnel::start(&place, "home", &server, &["-D", "0"]);
    let socks = tunnel.address(0);
    let port = service.port().to_be_bytes();
    let connect_request = [&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1][..], &port].concat();
    let mut held = connect(socks);
    held.write_all(&connect_request).expect("written");
    let mut answer = [0; 12];
    held.read_exact(&mut answer).expect("answered");
    assert_eq!(answer[..4], [5, 0, 5, 0]);
    // One that says nothing is only there.
    let silent = connect(socks);
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[4, 1, 0, 80, 127, 0, 0, 1, 0],
        &[5, 1, 2],
        &[5, 0],
        &[5, 1, 0, 9, 9, 9, 9, 9, 9, 9],
        // Another command, another kind of address, no name, a name that is not UTF-8.
        &[5, 1, 0, 5, 2, 0, 1, 127, 0, 0, 1, 0, 80],
        &[5, 1, 0, 5, 9, 0, 1, 127, 0, 0, 1, 0, 80],
        &[5, 1, 0, 5, 1, 0, 7, 127, 0, 0, 1, 0, 80],
        &[5, 1, 0, 5, 1, 0, 3, 0, 0, 80],
        &[5, 1, 0, 5, 1, 0, 3, 2, 0xff, 0xfe, 0, 80],
        &[5, 1, 0, 5, 1, 0, 3, 2, b'a', b'\n', 0, 80],
    ] {
        let mut stream = connect(socks);
        stream.write_all(garbage).expect("written");
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        // It is closed, or reset if it had more to say.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() <= 12, "{garbage:?}: {answer:?}");
        assert!(answer.get(2..4).is_none_or(|reply| reply != [5, 0]), "{garbage:?}: {answer:?}");
    }
    // Truncated at any place.
    for cut in 0..connect_request.len() {
        let mut stream = connect(socks);
        stream.write_all(&connect_request[..cut]).expect("written");
        drop(stream);
    }
    assert_eq!(ask(held, b"still here").expect("carried"), b"still here");
    drop(silent);
    let said = tunnel.end();
    assert!(said.contains("a program speaks no SOCKS5: its first byte is 71, not 5"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn datagrams_keep_their_boundaries_and_their_senders() {
    let place = Place::new();
    let service = udp_echo();
    let server = serve(&place, &["--forward", &format!("udp/{service}")]);
    let options = ["-L", &format!("udp/{}", to(service)), "-L", &format!("udp/{}", to("127.0.0.1:9"))];
    let mut tunnel = Tunnel::start(&place, "home", &server, &options);
    let (at, forbidden) = (tunnel.address(0), tunnel.address(1));
    let socket = || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        socket.set_read_timeout(Some(std::time::Duration::from_secs(2))).expect("set");
        socket
    };
    // Datagrams may be lost. They are sent again, as by programs that use UDP.
    let ask = |socket: &UdpSocket, at, datagram: &[u8]| {
        let mut back = vec![0; 1 << 16];
        (0..10).find_map(|_| {
            socket.send_to(datagram, at).expect("sent");
            loop {
                let (bytes, from) = socket.recv_from(&mut back).ok()?;
                // What was meant for a socket that had this port before may come as well.
                if from == at && back[..bytes] == *datagram {
                    return Some(());
                }
            }
        })
    };
    let first = socket();
    for bytes in [1, 0, 100, 1472, 9000, 65_507] {
        ask(&first, at, &vec![bytes as u8; bytes]).unwrap_or_else(|| panic!("{bytes} bytes"));
    }
    assert_eq!(carried(&mut tunnel, 1).len(), 1, "a sender has one flow");
    // More senders than are remembered: each has its answer.
    let senders: Vec<UdpSocket> = (0..300).map(|_| socket()).collect();
    for (n, sender) in senders.iter().enumerate() {
        ask(sender, at, format!("sender {n}").as_bytes()).unwrap_or_else(|| panic!("sender {n}"));
    }
    let list = tunnel.list();
    assert!(list["carried"].as_array().expect("a list").len() <= 128, "they are bounded");
    let profile = list["carried"][0]["profile_out"].as_str().expect("a profile").to_owned();
    assert!(profile.contains("segmentation=messages"), "{profile}");
    first.send_to(b"x", forbidden).expect("sent");
    assert!(first.recv_from(&mut [0; 9]).is_err());
    ask(&first, at, b"again").expect("carried");
    let said = tunnel.end();
    assert!(said.contains("udp/127.0.0.1:9 is not permitted by the server"), "{said}");
}

/// A name server that knows one name: `tunnel.example` is 192.0.2.1.
fn name_server() -> std::net::SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let address = socket.local_addr().expect("an address");
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((bytes, from)) = socket.recv_from(&mut query) {
            // The header (RFC 1035 section 4.1.1), then the question up to its class.
            let end = query[12..bytes].iter().position(|&byte| byte == 0).map_or(bytes, |at| at + 17);
            let mut answer = [&query[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], &query[12..end]].concat();
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
            let _ = socket.send_to(&answer, from);
        }
    });
    address
}

#[test]
fn a_name_is_looked_up_through_a_tunnel() {
    let place = Place::new();
    let names = name_server();
    let server = serve(&place, &["--forward", &format!("udp/{names}")]);
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &format!("udp/{}", to(names))]);
    let at = tunnel.address(0);
    // As any resolver asks (RFC 1035 section 4.1).
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(2))).expect("set");
    let query = [&[7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 6][..], b"tunnel", &[7], b"example", &[0, 0, 1, 0, 1]];
    let query = query.concat();
    let mut answer = [0; 512];
    let bytes = (0..10).find_map(|_| {
        socket.send_to(&query, at).expect("sent");
        socket.recv(&mut answer).ok()
    });
    assert!(answer[..bytes.expect("an answer")].ends_with(&[192, 0, 2, 1]));
    let port = at.port().to_string();
    let args = ["@127.0.0.1", "-p", &port, "+short", "+noedns", "+tries=10", "tunnel.example", "A"];
    if let Some(got) = program("dig", "bind9-dnsutils", &args) {
        assert_eq!(String::from_utf8_lossy(&got.stdout).trim(), "192.0.2.1");
    }
}

#[test]
fn iperf3_measures_through_a_tunnel() {
    let place = Place::new();
    if program("iperf3", "iperf3", &["--version"]).is_none() {
        return;
    }
    let port = free_port();
    let mut command = Command::new("iperf3");
    command.args(["-s", "-1", "-B", "127.0.0.1", "-p", &port.to_string()]);
    let _service = Place::begin(command);
    let server = serve(&place, &["--forward", &port.to_string()]);
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &to(format!("127.0.0.1:{port}"))]);
    let at = tunnel.address(0).port().to_string();
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let args = ["-c", "127.0.0.1", "-p", &at, "-n", "16M", "--json"];
        let got = program("iperf3", "iperf3", &args).expect("iperf3");
        if got.status.success() {
            let told: serde_json::Value = serde_json::from_slice(&got.stdout).expect("JSON");
            let bytes = |sum: &str| told["end"][sum]["bytes"].as_u64().expect("bytes");
            // The server stops counting when all is written, not when it has all.
            assert!(bytes("sum_sent") >= 16 << 20 && bytes("sum_received") >= 1 << 20, "{told}");
            return;
        }
        // The service may not listen yet.
        assert!(std::time::Instant::now() < deadline, "{}", String::from_utf8_lossy(&got.stdout));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn a_port_of_the_server_leads_here_if_it_permits_that() {
    let place = Place::new();
    let (service, datagrams) = (echo(), udp_echo());
    let (port, udp_port, other) = (free_port(), free_port(), free_port());
    let udp = format!("udp/{udp_port}");
    let server = serve(&place, &["--listen-forward", &port.to_string(), "--listen-forward", &udp]);
    let options = ["-R", &format!("{port}:{service}"), "-R", &format!("udp/{udp_port}:{datagrams}")];
    let tunnel = Tunnel::start(&place, "home", &server, &options);
    let there = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(ask(connect(there), b"from there").expect("carried"), b"from there");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(2))).expect("set");
    let mut back = [0; 99];
    let bytes = (0..10).find_map(|_| {
        socket.send_to(b"datagram", ("127.0.0.1", udp_port)).expect("sent");
        socket.recv(&mut back).ok()
    });
    assert_eq!(&back[..bytes.expect("an answer")], b"datagram");
    let refused = |options: &[&str], why: &str| {
        let args = ["tunnel", "--pin", &server.fingerprint, &server.address];
        let ended = place.run(&[&args[..], options].concat()).failed(1, &[why]);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    };
    refused(&["-R", &format!("{other}:{service}")], "is not permitted by the server (its --listen-forward)");
    refused(&["-R", &format!("*:{port}:{service}")], "is not permitted by the server");
    refused(&["-R", &format!("{port}:{service}")], "address already in use");
    tunnel.end();
    // Where nobody is any more, nobody listens.
    let deadline = std::time::Instant::now() + PATIENCE;
    while TcpStream::connect(there).is_ok() {
        assert!(std::time::Instant::now() < deadline, "the server still listens");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A service that reads all that it is sent, and says nothing.
fn sink() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    address
}

#[test]
fn what_is_typed_is_more_urgent_than_bulk_unless_a_priority_is_asked() {
    let place = Place::new();
    let sink = sink();
    let server = serve(&place, &["--forward", &sink.to_string()]);
    let asked = format!("{},connPriority=77", to(sink));
    let mut tunnel = Tunnel::start(&place, "home", &server, &["-L", &to(sink), "-L", &asked]);
    let mut streams = [tunnel.connect(0), tunnel.connect(1)];
    for stream in &mut streams {
        stream.write_all(b"typed").expect("written");
    }
    let names = [0, 1].map(|nth| tunnel.address(nth).to_string());
    let priorities = |list: &serde_json::Value| {
        let all = list["carried"].as_array().cloned().unwrap_or_default();
        let of = |name: &String| all.iter().find(|c| c["forward"] == **name)?["priority"].as_u64();
        [of(&names[0]), of(&names[1])]
    };
    tunnel.list_where("both urgent as asked", |list| priorities(list) == [Some(50), Some(77)]);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let floods = streams.map(|mut stream| {
        let stop = stop.clone();
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                stream.write_all(&[7; 1 << 14]).expect("written");
            }
            stream
        })
    });
    tunnel.list_where("bulk behind others", |list| priorities(list) == [Some(150), Some(77)]);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut streams = floods.map(|flood| flood.join().expect("written"));
    tunnel.list_where("typed again", |list| {
        // Slower than any burst: else it goes on, byte by byte.
        std::thread::sleep(std::time::Duration::from_millis(100));
        streams[0].write_all(b"x").expect("written");
        priorities(list) == [Some(50), Some(77)]
    });
}

#[test]
fn a_tunnel_is_looked_at_and_changed_while_it_runs() {
    let place = Place::new();
    let service = echo();
    let server = serve(&place, &["--forward", &service.to_string()]);
    let asked = format!("{},preserveMsgBoundaries=require", to(service));
    let mut tunnel = Tunnel::start(&place, "home", &server, &["-L", &to(service), "-L", &asked]);
    let (mut plain, mut own) = (tunnel.connect(0), tunnel.connect(1));
    for stream in [&mut plain, &mut own] {
        stream.write_all(b"hello").expect("written");
        stream.read_exact(&mut [0; 5]).expect("read");
    }
    let name = |nth| tunnel.address(nth).to_string();
    let (first, second) = (name(0), name(1));
    let all = carried(&mut tunnel, 2);
    let of = |name: &str| all.iter().find(|carried| carried["forward"] == name).expect("carried");
    for direction in ["profile_out", "profile_in"] {
        let profile = |name: &str| of(name)[direction].as_str().expect("a profile").to_owned();
        assert!(profile(&first).contains("segmentation=bytes"), "{all:?}");
        assert!(profile(&second).contains("segmentation=messages"), "both ends keep what one asks: {all:?}");
    }
    assert_eq!((&of(&first)["bytes_sent"], &of(&first)["bytes_received"]), (&5.into(), &5.into()));
    // A property of a forward is for connections to come, one of the connection holds at once.
    tunnel.ctl(&["set", "--forward", &first, "connPriority=200"]).ok();
    tunnel.ctl(&["set", "connCapacityProfile=scavenger"]).ok();
    let list = tunnel.list();
    assert_eq!(list["forwards"][0]["properties"][0][0], "connPriority");
    assert!(list["connection"]["properties"].to_string().contains("scavenger"), "{list}");
    let shown = tunnel.ctl(&[]).ok().out.join("\n");
    assert!(shown.contains(&first) && shown.contains("connPriority=200"), "{shown}");
    for (args, status, why) in [
        (&["set", "x"][..], 2, "NAME=VALUE"),
        (&["set", "connPriorty=1"], 2, "did you mean"),
        (&["set", "--forward", "1", "connPriority=1"], 1, "no forward `1`"),
        (&["set", "--forward", &first, "maxSendRate=1Mbit/s"], 2, "is of the connection"),
        (&["end", "99"], 1, "no connection 99"),
    ] {
        let ended = tunnel.ctl(args).failed(status, &[why]);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    }
    let id = of(&first)["id"].to_string();
    tunnel.ctl(&["end", &id]).ok();
    assert_eq!(plain.read(&mut [0]).expect_err("reset").kind(), ErrorKind::ConnectionReset);
    assert_eq!(ask(own, b"goes on").expect("carried"), b"goes on");
    assert_eq!(ask(tunnel.connect(0), b"another").expect("carried"), b"another");
    let control = std::fs::read_dir(place.path(".")).expect("a folder");
    let control = control.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with("control-"));
    let control = control.expect("a socket").path();
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&control).expect("there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    tunnel.end();
    assert!(!control.exists(), "the socket is left behind");
}
