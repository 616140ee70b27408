//! Captures of connections in virtual time, over bad paths and through exchanges of every kind: the
//! decoder reads each packet that the ends have read, and tells of it what they tell.

use core::time::Duration;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use uts_decode::capture::Item;
use uts_decode::{Capture, Decoder, KeyLog, Kind, Row};
use uts_engine::{
    ConnectionConfig, ConnectionHandle, Direction, EndpointConfig, Event, ExchangeEvent, FlowId, FlowOptions,
};
use uts_functions::{Function, Profile};
use uts_sim::identity::Identities;
use uts_sim::{World, WorldConfig};

const SERVER: usize = 0;
const CLIENT: usize = 1;
const FLOW_BYTES: usize = 300_000;

/// Lines of a key log, as a file would have them.
#[derive(Debug, Default)]
struct Secrets(Mutex<String>);

impl rustls::KeyLog for Secrets {
    fn log(&self, label: &str, random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let mut text = self.0.lock().expect("no panic");
        writeln!(text, "{label} {} {}", hex(random), hex(secret)).expect("memory");
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Run {
    world: World,
    handles: [Option<ConnectionHandle>; 2],
    completed: Vec<(usize, Direction, u32)>,
    written: usize,
    read: usize,
    pcaps: [Shared; 2],
    secrets: Arc<Secrets>,
}

/// Mechanisms that are exchanged for one another, in turn.
const CHANGES: [(Function, &str); 10] = [
    (Function::Congestion, "bbr"),
    (Function::Protection, "chacha20-poly1305"),
    (Function::Fec, "reed-solomon"),
    (Function::Detection, "crc-32c"),
    (Function::Acknowledgement, "per-packet"),
    (Function::Protection, "aes-128-gcm"),
    (Function::Congestion, "cubic"),
    (Function::Detection, "xxh3-64"),
    (Function::Fec, "none"),
    (Function::Detection, "none"),
];

impl Run {
    fn new(path: &str, cid_bytes: [usize; 2], seed: u64) -> Self {
        let secrets = Arc::new(Secrets::default());
        let mut identities = Identities::new().expect("TLS");
        Arc::make_mut(&mut identities.client).key_log = secrets.clone();
        let endpoint = |cid_bytes| EndpointConfig { cid_bytes, ..EndpointConfig::default() };
        let config = WorldConfig {
            server: endpoint(cid_bytes[SERVER]),
            client: endpoint(cid_bytes[CLIENT]),
            clients: 1,
            seed,
            ..WorldConfig::default()
        };
        let mut world = World::new(config, identities).expect("a world");
        world.set_path(uts_path::Target::Both, path).expect("a path");
        let pcaps = [Shared::default(), Shared::default()];
        for node in [SERVER, CLIENT] {
            world.record(node, Box::new(pcaps[node].clone()), Box::new(io::sink())).expect("memory");
            world.keep_packets(node);
        }
        let handle = world.connect(CLIENT, ConnectionConfig::default()).expect("it begins");
        let handles = [None, Some(handle)];
        Run { world, handles, completed: Vec::new(), written: 0, read: 0, pcaps, secrets }
    }

    fn connection(&mut self, node: usize) -> &mut uts_engine::Connection {
        let handle = self.handles[node].expect("connected");
        self.world.connection(node, handle).expect("it is there")
    }

    fn write(&mut self, flow: FlowId) {
        let now = self.world.now();
        while self.written < FLOW_BYTES {
            let piece = bytes::Bytes::from(vec![7; (FLOW_BYTES - self.written).min(4000)]);
            match self.connection(CLIENT).write(now, flow, piece) {
                Ok(bytes) => self.written += bytes,
                Err(_) => return,
            }
        }
        self.connection(CLIENT).finish(flow);
    }

    fn exchange(&mut self, step: usize) {
        let (function, name) = CHANGES[step % CHANGES.len()];
        let (node, direction) = [
            (CLIENT, Direction::Out),
            (SERVER, Direction::In),
            (SERVER, Direction::Out),
            (CLIENT, Direction::In),
        ][step % 4];
        let now = self.world.now();
        let connection = self.connection(node);
        let Some(profile) = connection.profile(direction) else { return };
        let wanted: Profile = profile.with_named(function, name).expect("in the library");
        let is_at_once = direction == Direction::Out && step.is_multiple_of(3);
        // One that is busy, or does not agree, has nothing to tell.
        let _ = match is_at_once {
            true => connection.use_profile(now, wanted),
            false => connection.request_profile(now, direction, wanted),
        };
    }

    /// Sends a flow through many exchanges, and ends the connection.
    fn carry(&mut self) {
        let mut step = 0;
        let mut flow = None;
        let mut is_over = false;
        while !is_over {
            let until = self.world.now() + Duration::from_millis(50);
            while let Some(happening) = self.world.next(until) {
                let node = happening.node;
                match happening.event {
                    Event::Connected => {
                        self.handles[node] = Some(happening.connection);
                        if node == CLIENT {
                            let opened = self.connection(CLIENT).open_flow(FlowOptions::default());
                            flow = Some(opened.expect("the first"));
                            self.write(flow.expect("just opened"));
                        }
                    }
                    Event::Writable(writable) if node == CLIENT => self.write(writable),
                    Event::Readable(readable) if node == SERVER => {
                        let now = self.world.now();
                        while let Ok(read) = self.connection(SERVER).read(now, readable, 10_000) {
                            match read {
                                uts_engine::Read::Bytes(_, bytes) => self.read += bytes.len(),
                                _ => break,
                            }
                        }
                    }
                    Event::Exchange(told) => {
                        if let ExchangeEvent::Completed { direction, epoch, .. } = &*told {
                            self.completed.push((node, *direction, *epoch));
                        }
                    }
                    Event::Closed(_) => is_over = true,
                    _ => {}
                }
            }
            if flow.is_some() && self.handles[SERVER].is_some() && self.read < FLOW_BYTES {
                self.exchange(step);
                step += 1;
            } else if self.read == FLOW_BYTES && step > 0 {
                let now = self.world.now();
                self.connection(CLIENT).close(now, 0, "done");
                step = 0;
            }
            assert!(self.world.now().since(uts_functions::Time::ZERO) < Duration::from_secs(3000), "no end");
        }
        self.world.run_for(Duration::from_secs(20));
        self.world.finish_records().expect("memory");
    }

    fn rows(&self, node: usize, key_log: &str) -> Vec<Row> {
        let file = self.pcaps[node].0.lock().expect("no panic").clone();
        let mut decoder = Decoder::new(KeyLog::parse(key_log).expect("as TLS wrote it"));
        let mut capture = Capture::open(&file[..]).expect("a capture");
        let mut rows = Vec::new();
        while let Some(item) = capture.next_item().expect("whole") {
            if let Item::Datagram(datagram) = item {
                rows.extend(decoder.decode(&datagram));
            }
        }
        assert_eq!(decoder.connections(), 1);
        rows
    }
}

#[test]
fn each_packet_of_a_connection_is_read() {
    let paths = [
        "rate=1mbit delay=20ms buffer=100p",
        "rate=2mbit delay=30ms buffer=60p loss=0.05 jitter=20ms,reorder duplicate=0.05",
        "rate=1mbit delay=50ms buffer=40p loss=0.15",
    ];
    let mut completed = 0;
    for seed in 0..12 {
        let cid_bytes = [[8, 0], [4, 4], [16, 8], [20, 0]][seed % 4];
        let mut run = Run::new(paths[seed % 3], cid_bytes, seed as u64);
        run.carry();
        let key_log = run.secrets.0.lock().expect("no panic").clone();
        completed += run.completed.len();
        let mut all_rows = Vec::new();
        for node in [SERVER, CLIENT] {
            let rows = run.rows(node, &key_log);
            // A request that was lost, and brought back by redundancy, did not arrive there.
            let is_lost = |why: &String| why.contains("is not in the capture");
            let unread: Vec<String> = rows
                .iter()
                .filter(|row| row.unread.as_ref().is_some_and(|why| !is_lost(why)))
                .map(ToString::to_string)
                .collect();
            assert!(unread.is_empty(), "seed {seed}, at {node}:\n{}", unread.join("\n"));
            // What is redundant may arrive in the place of data.
            if node == CLIENT {
                check_data(seed, &rows);
            }
            all_rows.extend(rows);
        }
        check_exchanges(seed, &run, &all_rows);
    }
    assert!(completed > 80, "{completed} exchanges");
}

/// Each exchange that an end has completed was asked for, and changed something, in the rows.
fn check_exchanges(seed: usize, run: &Run, rows: &[Row]) {
    for (node, direction, epoch) in &run.completed {
        let is_clients = (*node == CLIENT) == (*direction == Direction::Out);
        let asked =
            rows.iter().flat_map(|row| row.said.iter().map(move |said| (row, said))).any(|(row, said)| {
                let sends = match said.frame {
                    "Use-PF" => row.is_from_client == Some(is_clients),
                    "Request-PF" => {
                        let of_sender = said.text.contains("of what it sends");
                        (row.is_from_client == Some(is_clients)) == of_sender
                    }
                    _ => false,
                };
                sends && said.text.starts_with(&format!("epoch {epoch} ")) && said.text.contains(": ")
            });
        assert!(asked, "seed {seed}: epoch {epoch} of {direction:?} at {node}");
    }
}

/// All bytes of the flow are in the rows.
fn check_data(seed: usize, rows: &[Row]) {
    let mut seen = vec![false; FLOW_BYTES];
    for said in rows.iter().flat_map(|row| &row.said).filter(|said| said.frame == "Data") {
        let span = said.text.split_whitespace().nth(2).expect("a span");
        let (start, end) = span.split_once("..").expect("two ends");
        let (start, end): (usize, usize) = (start.parse().expect("a number"), end.parse().expect("a number"));
        seen[start..end.min(FLOW_BYTES)].iter_mut().for_each(|seen| *seen = true);
    }
    assert!(seen.iter().all(|seen| *seen), "seed {seed}");
}

#[test]
fn without_secrets_only_the_first_packets_are_read() {
    let mut run = Run::new("rate=20mbit delay=20ms buffer=100p", [8, 0], 1);
    run.carry();
    let rows = run.rows(CLIENT, "");
    let is_read = |kind: Kind| {
        let mut of_kind = rows.iter().filter(|row| row.kind == kind).peekable();
        assert!(of_kind.peek().is_some(), "{kind:?}");
        of_kind.map(|row| row.unread.is_none()).collect::<Vec<bool>>()
    };
    assert!(is_read(Kind::Initial).iter().all(|read| *read));
    assert!(is_read(Kind::Handshake).iter().all(|read| !*read));
    assert!(is_read(Kind::Adaptive).iter().all(|read| !*read));
    let row = rows.iter().find(|row| row.kind == Kind::Adaptive).expect("one");
    assert_eq!(row.unread.as_deref(), Some("no keys: the key log has no secrets of this session"));
}

/// A kernel that offloads segmentation shows several packets as one datagram.
#[test]
fn packets_that_a_capture_shows_as_one_are_told_apart() {
    let mut run = Run::new("rate=20mbit delay=20ms buffer=100p", [8, 4], 2);
    run.carry();
    let key_log = run.secrets.0.lock().expect("no panic").clone();
    let file = run.pcaps[CLIENT].0.lock().expect("no panic").clone();
    let mut capture = Capture::open(&file[..]).expect("a capture");
    let mut decoder = Decoder::new(KeyLog::parse(&key_log).expect("as TLS wrote it"));
    let mut datagrams = Vec::new();
    while let Some(item) = capture.next_item().expect("whole") {
        if let Item::Datagram(datagram) = item {
            datagrams.push(datagram);
        }
    }
    let rows = run.rows(CLIENT, &key_log).len();
    // Neighbours of one length and direction become one.
    let mut joined: Vec<(usize, uts_decode::Datagram)> = Vec::new();
    for datagram in datagrams {
        let is_short = datagram.bytes.first().is_some_and(|first| first & 0x80 == 0);
        match joined.last_mut() {
            Some((size, last))
                if is_short
                    && last.from == datagram.from
                    && last.bytes[0] & 0x80 == 0
                    && last.bytes.len() % *size == 0
                    && datagram.bytes.len() <= *size =>
            {
                last.bytes.extend_from_slice(&datagram.bytes);
            }
            _ => joined.push((datagram.bytes.len(), datagram)),
        }
    }
    assert!(joined.len() < rows / 2, "{} of {rows}", joined.len());
    let told: Vec<Row> = joined.iter().flat_map(|(_, datagram)| decoder.decode(datagram)).collect();
    let unread: Vec<&Row> = told.iter().filter(|row| row.unread.is_some()).collect();
    assert!(unread.is_empty(), "{}", unread[0]);
    assert_eq!(told.len(), rows);
}

/// Damage anywhere in a capture costs rows, and nothing else.
#[test]
fn a_damaged_capture_is_read_as_far_as_it_goes() {
    let mut run = Run::new("rate=20mbit delay=20ms buffer=100p", [8, 0], 3);
    run.carry();
    let key_log = run.secrets.0.lock().expect("no panic").clone();
    let file = run.pcaps[CLIENT].0.lock().expect("no panic").clone();
    let mut state = 1_u64;
    for _ in 0..60 {
        let mut damaged = file[..60_000.min(file.len())].to_vec();
        for _ in 0..40 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = 24 + (state >> 33) as usize % (damaged.len() - 24);
            damaged[at] ^= 1 << (state >> 20 & 7);
        }
        let mut decoder = Decoder::new(KeyLog::parse(&key_log).expect("as TLS wrote it"));
        let Ok(mut capture) = Capture::open(&damaged[..]) else { continue };
        while let Ok(Some(item)) = capture.next_item() {
            if let Item::Datagram(datagram) = item {
                decoder.decode(&datagram).iter().for_each(|row| drop(row.to_string()));
            }
        }
    }
}

/// A compressed capture is read as what it was, in one stream of gzip or in several. Of one that is
/// cut or damaged no more than that is lost.
#[test]
fn a_compressed_capture_is_the_same_capture() {
    let mut run = Run::new("rate=20mbit delay=20ms buffer=100p", [4, 0], 4);
    run.carry();
    let file = run.pcaps[CLIENT].0.lock().expect("no panic").clone();
    let packed = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    };
    let items = |file: &[u8]| {
        let mut items = Vec::new();
        if let Ok(mut capture) = Capture::open(file) {
            while let Ok(Some(item)) = capture.next_item() {
                items.push(item);
            }
        }
        items
    };
    let (whole, plain) = (packed(&file), items(&file));
    let (front, back) = file.split_at(file.len() / 2);
    assert!(plain.len() > 50, "{}", plain.len());
    for packed in [whole.clone(), [packed(front), packed(back)].concat()] {
        assert!(items(&packed) == plain);
    }
    for cut in (0..whole.len()).step_by(whole.len() / 40) {
        let some = items(&whole[..cut]);
        assert!(plain.starts_with(&some), "{cut}");
        // The last bytes of gzip are no data.
        assert!(some.len() < plain.len() || cut > whole.len() - 20, "{cut}");
        let mut damaged = whole.clone();
        damaged[cut] ^= 0x10;
        items(&damaged);
    }
    assert!(items(&packed(&whole)).is_empty(), "what is compressed twice is none");
}
