use super::*;
use crate::end::Kind;
use crate::hub::About;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const KNOBS: &str = r#"{"rate":5,"delay":20,"loss":2,"burst":1,"queue":100}"#;

/// A page that is served, and ends with this.
struct Served {
    address: SocketAddr,
    hub: Arc<Hub>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn new() -> Served {
        let about = About { kinds: [Kind::Uts, Kind::Tcp], why: None };
        let hub = Arc::new(Hub::new(about, Knobs::default(), Vec::new()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let site = Site { hub: hub.clone(), token: TOKEN.into() };
        let stopped = stop.clone();
        let thread = Some(std::thread::spawn(move || serve(listener, site, &stopped)));
        Served { address, hub, stop, thread }
    }

    /// Sends a request; the answer is still to be read.
    fn send(&self, first: &str, headers: &[&str], body: &str) -> BufReader<TcpStream> {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let head = format!(
            "{first} HTTP/1.1\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        // It may be refused before it is whole.
        let _ = socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(body.as_bytes()));
        BufReader::new(socket)
    }

    /// The status, and the whole answer.
    fn ask(&self, first: &str, headers: &[&str], body: &str) -> (u16, String) {
        let mut text = String::new();
        let _ = self.send(first, headers, body).read_to_string(&mut text);
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or(0), text)
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path}"), &[&self.host()], "")
    }

    fn host(&self) -> String {
        format!("Host: {}", self.address)
    }

    fn origin(&self) -> String {
        format!("Origin: http://{}", self.address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn the_page_is_there_for_who_knows_the_secret() {
    let served = Served::new();
    for (name, kind, text) in FILES {
        let (status, answer) = served.get(&format!("/{TOKEN}{name}"));
        assert_eq!(status, 200, "{name}");
        assert!(answer.contains(kind) && answer.ends_with(text), "{name}");
    }
    let wrong = "f".repeat(32);
    for path in ["/", "/live.js", "/events", &format!("/{wrong}/"), &format!("/{TOKEN}x/"), "/favicon.ico"] {
        assert_eq!(served.get(path).0, 404, "{path}");
    }
    assert_ne!(token().unwrap(), token().unwrap());
    assert_eq!(token().unwrap().len(), 32);
}

#[test]
fn every_answer_has_a_strict_policy() {
    let served = Served::new();
    let refused = served.ask("GET /", &["Host: evil.example"], "").1;
    for answer in [served.get(&format!("/{TOKEN}/")).1, served.get("/").1, refused] {
        let head = answer.split("\r\n\r\n").next().unwrap().to_lowercase();
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "x-frame-options: deny",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(head.contains(header), "{header}: {head}");
        }
        assert!(!head.contains("access-control-allow"), "{head}");
        assert!(!head.contains("unsafe-"), "{head}");
    }
    // The page has nothing that the policy forbids, or that comes from elsewhere.
    let page = FILES.iter().filter(|(name, ..)| !name.starts_with("/uPlot"));
    for (name, _, text) in page {
        let foreign = text.replace("http://www.w3.org/", "");
        for word in ["http://", "https://", "<style", "onclick=", "style=", "eval("] {
            assert!(!foreign.contains(word), "{name} has {word}");
        }
    }
}

#[test]
fn no_other_host_or_origin_gets_in() {
    let served = Served::new();
    let (page, port) = (format!("GET /{TOKEN}/"), served.address.port());
    let status = |first: &str, headers: &[&str]| served.ask(first, headers, "").0;
    for own in ["localhost", "127.0.0.1", "[::1]"] {
        // A tunnel may lead here from another port.
        for host in [own.to_owned(), format!("{own}:{port}"), format!("{own}:9")] {
            assert_eq!(status(&page, &[&format!("Host: {host}")]), 200, "{host}");
        }
    }
    for other in
        ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.0.2.1", "localhost:x"]
    {
        assert_eq!(status(&page, &[&format!("Host: {other}")]), 403, "{other}");
    }
    assert_eq!(status(&page, &[&served.host(), "Host: evil.example"]), 403, "both");
    for other in ["http://evil.example", "null", &format!("https://127.0.0.1:{port}"), "http://127.0.0.1:1"] {
        assert_eq!(status(&page, &[&served.host(), &format!("Origin: {other}")]), 403, "{other}");
    }
    for (site, expected) in [("cross-site", 403), ("same-site", 403), ("none", 200), ("same-origin", 200)] {
        let header = format!("Sec-Fetch-Site: {site}");
        assert_eq!(status(&page, &[&served.host(), &header]), expected, "{site}");
    }
}

#[test]
fn only_the_page_moves_the_path() {
    let served = Served::new();
    let (host, origin) = (served.host(), served.origin());
    let (first, json) = (format!("POST /{TOKEN}/path"), "Content-Type: application/json");
    let moved = || serde_json::from_str::<serde_json::Value>(&served.hub.subscribe().0).unwrap();
    for (headers, body, expected) in [
        (vec![&*host, json], KNOBS, 403),
        (vec![&*host, json, "Origin: http://evil.example"], KNOBS, 403),
        (vec![&*host, &*origin, json, "Sec-Fetch-Site: cross-site"], KNOBS, 403),
        (vec![&*host, &*origin, "Content-Type: text/plain"], KNOBS, 415),
        (vec![&*host, &*origin, json], "{", 400),
        (vec![&*host, &*origin, json], r#"{"rate":5}"#, 422),
        (vec![&*host, &*origin, json], &KNOBS.replace("\"loss\":2", "\"loss\":99"), 422),
        (vec![&*host, &*origin, json], &KNOBS.replace("\"loss\":2", "\"loss\":null"), 422),
        (vec![&*host, &*origin, json], &" ".repeat(BODY_BYTES_MAX + 1), 413),
    ] {
        assert_eq!(served.ask(&first, &headers, body).0, expected, "{headers:?} {body}");
        assert_eq!(moved()["knobs"]["loss"], 0.0);
    }
    assert_eq!(served.ask(&format!("GET /{TOKEN}/path"), &[&host], "").0, 405);
    assert_eq!(served.ask(&first, &[&host, &origin, json], KNOBS).0, 204);
    assert_eq!(moved()["knobs"]["loss"], 2.0);
    let first = format!("POST /{TOKEN}/asks");
    assert_eq!(served.ask(&first, &[&host, json], "\"interactive\"").0, 403);
    assert_eq!(served.ask(&first, &[&host, &origin, json], "\"everything\"").0, 422);
    assert_eq!(moved()["asks"], "bulk");
    assert_eq!(served.ask(&first, &[&host, &origin, json], "\"interactive\"").0, 204);
    assert_eq!(moved()["asks"], "interactive");
}

#[test]
fn a_position_is_explained() {
    let served = Served::new();
    let query = "rate=5&delay=40&loss=5&burst=4&queue=100";
    let (status, answer) = served.get(&format!("/{TOKEN}/explain?{query}"));
    assert_eq!(status, 200);
    assert!(answer.contains("\"congestion\"") && answer.contains("\"why\""), "{answer}");
    assert_eq!(served.get(&format!("/{TOKEN}/explain?{}", query.replace("loss=5", "loss=50"))).0, 422);
    assert_eq!(served.get(&format!("/{TOKEN}/explain?rate=5")).0, 400);
}

#[test]
fn pages_hear_what_happens_and_are_bounded() {
    let served = Served::new();
    let look = || {
        let mut stream = served.send(&format!("GET /{TOKEN}/events"), &[&served.host()], "");
        let mut first = String::new();
        stream.read_line(&mut first).unwrap();
        (stream, first)
    };
    let heard = |stream: &mut BufReader<TcpStream>, word: &str| {
        let mut lines = stream.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.starts_with("data: {") && line.contains(word)), "{word} is not heard");
    };
    let mut pages: Vec<_> = (0..CLIENTS_MAX).map(|_| look()).collect();
    for (stream, first) in &mut pages {
        assert!(first.contains(" 200 "), "{first}");
        heard(stream, "\"hello\"");
    }
    assert!(look().1.contains(" 503 "));
    served.hub.tick();
    for (stream, _) in &mut pages {
        heard(stream, "\"point\"");
    }
    // One that goes leaves its place.
    pages.pop();
    let again = (0..600).any(|_| {
        served.hub.tick();
        std::thread::sleep(Duration::from_millis(100));
        look().1.contains(" 200 ")
    });
    assert!(again, "its place is not free");
}

#[test]
fn a_head_that_does_not_end_is_refused() {
    let served = Served::new();
    let long = format!("X: {}", "x".repeat(2 * HEAD_BYTES_MAX));
    let status = served.ask(&format!("GET /{TOKEN}/"), &[&served.host(), &long], "").0;
    assert!([0, 400, 431].contains(&status), "{status}");
}
