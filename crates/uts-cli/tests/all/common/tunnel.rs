//! A tunnel that runs, and services behind it.

use super::{PATIENCE, Place, Running, Server};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// A service that sends back what it is sent, and ends when that ends.
pub fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut back = stream.try_clone().expect("another handle");
                let _ = std::io::copy(&mut &stream, &mut back);
                let _ = back.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

/// A service that answers each datagram by the same.
pub fn udp_echo() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let address = socket.local_addr().expect("an address");
    std::thread::spawn(move || {
        let mut datagram = vec![0; 1 << 16];
        while let Ok((bytes, from)) = socket.recv_from(&mut datagram) {
            let _ = socket.send_to(&datagram[..bytes], from);
        }
    });
    address
}

/// A port that nobody has at present.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("an address").port()
}

/// Makes the user's key, and puts it into a list; says where the list is, and the key.
pub fn key_of(place: &Place, home: &str) -> (String, String) {
    let said = place.run_as(home, &["keygen"]).ok().out;
    let key = said.iter().flat_map(|line| line.split_whitespace()).find(|word| word.starts_with("SHA256:"));
    let key = key.expect("a fingerprint").to_owned();
    let mut keys = std::fs::read(place.path("keys")).unwrap_or_default();
    keys.extend(format!("{key} {home}\n").bytes());
    (place.write("keys", &keys), key)
}

/// A server that lets the user `home` lead to these places, and serves no files.
pub fn serve(place: &Place, options: &[&str]) -> Server {
    serve_at(place, "127.0.0.1:0", options)
}

/// The same at an address.
pub fn serve_at(place: &Place, address: &str, options: &[&str]) -> Server {
    let keys = match place.path("keys") {
        keys if keys.exists() => keys.display().to_string(),
        _ => key_of(place, "home").0,
    };
    let mut args = vec!["serve", "--json", "--listen", address, "--authorized-keys", &keys];
    args.extend(options);
    Place::served(place.start_as("server-home", &args))
}

/// A tunnel that runs.
pub struct Tunnel<'a> {
    place: &'a Place,
    control: String,
    pub running: Running,
}

impl<'a> Tunnel<'a> {
    /// Starts one of the user `home`, and waits until it is connected.
    pub fn start(place: &'a Place, home: &str, server: &Server, options: &[&str]) -> Self {
        let control = place.path(&format!("control-{home}-{}", free_port())).display().to_string();
        let args = ["tunnel", "--pin", &server.fingerprint, "--control", &control, &server.address];
        let running = place.start_as(home, &[&args[..], options].concat());
        let mut tunnel = Tunnel { place, control, running };
        tunnel.list_where("connected", |list| !list["connection"].is_null());
        tunnel
    }

    /// Answer of `uts ctl`.
    pub fn ctl(&self, args: &[&str]) -> super::Ended {
        self.place.run(&[&["ctl", &self.control], args].concat())
    }

    pub fn list(&self) -> Value {
        let out = self.ctl(&["--json"]).ok().out;
        serde_json::from_str(&out[0]).expect("JSON")
    }

    /// Waits until the list is as is wanted.
    pub fn list_where(&mut self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = self.ctl(&["--json"]);
            let list = ended.out.first().and_then(|line| serde_json::from_str::<Value>(line).ok());
            if let Some(list) = list.filter(|list| ended.status == 0 && wanted(list)) {
                return list;
            }
            if self.running.has_ended() || Instant::now() > deadline {
                let ended = self.running.end();
                panic!("not {what}: {}", ended.err);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where a forward of this end listens, by its place among the forwards.
    pub fn address(&self, nth: usize) -> SocketAddr {
        let list = self.list();
        let name = list["forwards"][nth]["name"].as_str().expect("a name");
        name.trim_start_matches("udp/").parse().expect("an address")
    }

    /// Connects to a forward of this end.
    pub fn connect(&self, nth: usize) -> TcpStream {
        connect(self.address(nth))
    }

    /// Ends it in order; what it has told.
    pub fn end(self) -> String {
        self.running.signal(rustix::process::Signal::TERM);
        let ended = self.running.wait();
        assert_eq!(ended.status, 130, "{}", ended.err);
        ended.err
    }
}

/// A connection whose waits are bounded.
pub fn connect(address: SocketAddr) -> TcpStream {
    try_connect(address).expect("connected")
}

/// The same where a forward may refuse: its reset can come before the system has said that the
/// connection is made, and is an error of connecting then.
pub fn try_connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sees a forward take a connection and reset it.
pub fn sees_a_reset(address: SocketAddr) {
    let refused = try_connect(address).and_then(|mut stream| stream.read(&mut [0]));
    assert_eq!(refused.expect_err("reset").kind(), ErrorKind::ConnectionReset);
}

/// Connects by way of SOCKS5.
pub fn by_socks(proxy: SocketAddr, to: SocketAddr) -> TcpStream {
    let mut stream = connect(proxy);
    stream.write_all(&[5, 1, 0]).expect("written");
    stream.read_exact(&mut [0; 2]).expect("read");
    let SocketAddr::V4(to) = to else { panic!("{to}") };
    let request = [&[5, 1, 0, 1][..], &to.ip().octets(), &to.port().to_be_bytes()].concat();
    stream.write_all(&request).expect("written");
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).expect("read");
    assert_eq!(answer[1], 0, "{answer:?}");
    stream
}

/// Sends a text, ends that direction, and reads what comes back.
pub fn ask(mut stream: TcpStream, text: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(text)?;
    match stream.shutdown(Shutdown::Write) {
        // A reset came between, and what is read tells it.
        Err(error) if error.kind() == ErrorKind::NotConnected => {}
        ended => ended?,
    }
    let mut back = Vec::new();
    stream.read_to_end(&mut back)?;
    Ok(back)
}
