//! Writes what fuzzing starts from into `fuzz/corpus`: the vectors of the specification, texts like
//! those of the documentation, messages of real copies, and bytes from a seed for targets that read
//! steps out of bytes. Existing files stay, or become the same again.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use uts::call::Refusal;
use uts::call::wire::{Header, put_failed, put_message_head, put_refused};
use uts::{Fingerprint, Identity};
use uts_cli::media::wire::{Asked, Role};
use uts_files::message::{Attributes, Entry, Held, Kind, Mtime, Reply, Request};
use uts_files::{Fault, FaultKind};
use uts_group::wire::{Advertised, Body, FromSender, Lack, Request as Repair};
use uts_perf::{Report, Request as Measure, ToServer, VERSION, Way};
use uts_traffic::workload::Workload;

/// Seeds of each target that reads steps.
const STEPS: [usize; 4] = [40, 150, 400, 1000];

#[derive(Deserialize)]
struct Vectors {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    parser: String,
    hex: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn write(target: &str, name: &str, contents: &[u8]) {
    let folder = root().join("fuzz/corpus").join(target);
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(name), contents).expect("written");
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect()
}

fn vectors() {
    for file in ["frames.json", "hello.json", "packets.json"] {
        let text = fs::read_to_string(root().join("spec/vectors").join(file)).expect("read");
        for Vector { name, parser, hex } in serde_json::from_str::<Vectors>(&text).expect("vectors").vectors {
            let target = match parser.as_str() {
                "packet" | "adaptive" | "reset" => "header",
                "body" => "chain",
                other => other,
            };
            write(target, &name, &unhex(&hex));
        }
    }
}

fn entry(path: &[u8], kind: Kind) -> Entry {
    let mtime = Mtime { seconds: 1_700_000_000, nanoseconds: 5 };
    Entry { path: path.to_vec(), kind, size: 4, mtime, mode: 0o644 }
}

fn requests() -> Vec<(&'static str, Request)> {
    let (file, folder) = (entry(b"new", Kind::File), entry(b"d/new", Kind::Directory));
    let link = |to: &[u8]| entry(b"d/link", Kind::Link(to.to_vec()));
    let held = Held { bytes: 2, hash: [7; 32] };
    vec![
        ("stat", Request::Stat { path: b"f".to_vec() }),
        ("list", Request::List { path: Vec::new(), recursive: true }),
        ("get", Request::Get { path: b"f".to_vec(), held: None }),
        ("get-held", Request::Get { path: b"f".to_vec(), held: Some(held) }),
        ("offer", Request::Offer(file.clone())),
        ("put", Request::Put { entry: file.clone(), from: 0 }),
        ("put-hole", Request::Put { entry: Entry { size: 20_000, ..file.clone() }, from: 0 }),
        ("stream", Request::Stream(file)),
        ("make-directory", Request::MakeDirectory { entry: folder.clone(), copy_of: Some(b"t".to_vec()) }),
        ("attributes", Request::Attributes { entry: folder, complete: true }),
        ("link", Request::MakeLink { entry: link(b"../f"), top: Vec::new() }),
        ("compress", Request::Compress),
        ("may-remove", Request::MayRemove),
        (
            "remove",
            Request::Remove { entry: entry(b"d/link", Kind::Link(b"../f".to_vec())), goal: b"d".to_vec() },
        ),
        ("link-out", Request::MakeLink { entry: link(b"../../outside/secret"), top: b"d".to_vec() }),
    ]
}

fn replies() -> Vec<(&'static str, Reply)> {
    let file = entry(b"g", Kind::File);
    let fault = || Fault::new(FaultKind::NotFound, b"t", "no such file or directory");
    vec![
        ("fault", Reply::Fault(fault())),
        ("done", Reply::Done),
        (
            "status",
            Reply::Status { entry: Some(entry(b"t", Kind::Directory)), copy_of: None, shows_hidden: true },
        ),
        ("found", Reply::Found(Ok(file.clone()))),
        ("found-fault", Reply::Found(Err(fault()))),
        ("found-link", Reply::Found(Ok(entry(b"l", Kind::Link(b"g".to_vec()))))),
        ("sending", Reply::Sending { entry: file, from: 0 }),
        ("have", Reply::Have { held: None, whole: None, there: 0 }),
        (
            "have-whole",
            Reply::Have {
                held: None,
                whole: Some(Attributes { mode: 0o644, mtime: Mtime::default() }),
                there: 0,
            },
        ),
        ("given-up", Reply::GivenUp(fault())),
        ("stored", Reply::Stored { hash: [9; 32] }),
    ]
}

/// A piece of a script: see `uts_fuzz`'s target `serve`.
fn piece(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind][..], &(bytes.len() as u16).to_be_bytes(), bytes].concat()
}

fn framed(value: &impl Serialize) -> Vec<u8> {
    piece(b'f', &postcard::to_stdvec(value).expect("encoded"))
}

/// Four bytes of content, its end, and a hash.
fn content() -> Vec<u8> {
    // BLAKE3 of "four" is known to neither end of a script: the copy is refused at its end.
    piece(b'r', &[&[0, 0, 0, 4][..], b"four", &[0; 4], &[7; 32]].concat())
}

fn files() {
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    for (name, request) in requests() {
        write("messages", name, &postcard::to_stdvec(&request).expect("encoded"));
        let mut script = framed(&request);
        if name == "put-hole" {
            script.extend(piece(
                b'r',
                &[&[0xFF, 0xFF, 0xFF, 0xFE][..], &20_000_u64.to_be_bytes(), &[0; 4], &[7; 32]].concat(),
            ));
        } else if matches!(request, Request::Put { .. } | Request::Stream(_)) {
            script.extend(content());
        }
        write("serve", name, &script);
        asked.extend(script);
    }
    write("serve", "all", &asked);
    for (name, reply) in replies() {
        write("messages", name, &postcard::to_stdvec(&reply).expect("encoded"));
        answered.extend(framed(&reply));
    }
    write("fetch", "all", &answered);
    let of =
        |name: &str| replies().into_iter().find(|(known, _)| *known == name).map(|(_, reply)| framed(&reply));
    let script = |names: &[&str]| names.iter().filter_map(|name| of(name)).flatten().collect::<Vec<_>>();
    write("fetch", "directory", &script(&["status", "found", "found-link", "found-fault", "done"]));
    let with_content =
        [script(&["status", "found", "done"]), b"|".to_vec(), script(&["sending"]), content()].concat();
    write("fetch", "content", &with_content);
    write("notes", "part", br#"{"part":{"size":10,"mtime":{"seconds":7,"nanoseconds":5}}}"#);
    write("notes", "part-of-another", br#"{"part":{"size":9,"mtime":{"seconds":7,"nanoseconds":5}}}"#);
    write("notes", "directory", br#"{"directory":{"copy_of":[116]}}"#);
    for (name, path) in [
        ("plain", "a/b"),
        ("up", "../a"),
        ("absolute", "/etc/passwd"),
        ("dots", "./a//b"),
        ("part", ".a.uts-part"),
    ] {
        write("names", name, path.as_bytes());
    }
}

fn disk() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("id.pem");
    Identity::load_or_create(&path).expect("a key");
    if !root().join("fuzz/corpus/identity/key").exists() {
        write("identity", "key", &fs::read(&path).expect("read"));
    }
    let key = Fingerprint::of_spki(b"a");
    write(
        "known_hosts",
        "two",
        format!("# mine\nexample.org:4433 {key}  # home\n\n[::1]:4433 {key}").as_bytes(),
    );
    write("authorized_keys", "two", format!("# staff\n{key}  Ada Lovelace\n\n  {key}\n").as_bytes());
}

fn texts() {
    for (name, text) in [
        ("defaults", "reliability=require\npreserveOrder=require"),
        ("media", "reliability=prohibit\nmsgLifetime=100ms\nuts.maxDelay=0.15 s\nuts.degradation=order,rate"),
        ("rates", "minSendRate=2.5Mbit/s\nmaxSendRate=unlimited\nconnTimeout=1 min\nconnPriority=7"),
        (
            "pins",
            "uts.profile.congestion=bbr\nuts.profile.fec=reed-solomon(data=10,parities=3)\nuts.security=unprotected",
        ),
    ] {
        write("properties", name, text.as_bytes());
    }
    for (name, text) in [
        ("link", "rate=50mbit delay=20ms buffer=64p loss=ge:0.05,4 jitter=3ms reorder=0.01,5ms"),
        ("queue", "queue=red:5p,15p,0.1,0.002,gentle rate=2mbit ecn=5p mtu=1500 framing=ethernet"),
        ("codel", "queue=codel:5ms,100ms,noecn corrupt=0.001,3 duplicate=0.01 down"),
        ("schedule", "at=10s fwd loss=ge:0.05,4; at=21MB both loss=0 rate=20mbit; at=1500ms bwd down"),
        ("trace", "0\n1\n1\n5\n"),
        ("cellular", "rate=cellular:12mbit,7"),
        ("compression", "rate=19200bit framing=slip compress=rx:64,typed"),
    ] {
        write("path", name, text.as_bytes());
    }
    for entry in fs::read_dir(root().join("experiments")).expect("listed") {
        let path = entry.expect("an entry").path();
        let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        write("experiment", name, &fs::read(&path).expect("read"));
    }
    for (name, text) in
        [("small", "small "), ("even", "even even even even even even even even even even even even ")]
    {
        write("presentation", name, &[&[0xff, 0xff, 0][..], text.as_bytes()].concat());
    }
}

/// Texts that the program reads of peers and of programs of its host.
fn program() {
    let text = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
    let property = [text("connPriority"), text("3")].concat();
    let place = [text("127.0.0.1"), vec![0, 80]].concat();
    let opening = |kind: u8, properties: u8, rest: &[u8]| {
        let place = if kind & 0x7f < 2 { place.clone() } else { vec![0, 0, 0] };
        [&[1, kind, 0, 7][..], &place, &[properties], rest].concat()
    };
    write("openings", "connect", &opening(0, 0, b"content"));
    write("openings", "connect-udp", &opening(0x80, 1, &property));
    write("openings", "listen", &opening(1, 1, &property));
    write("openings", "arrived", &opening(2, 0, &[]));
    write("openings", "ask", &opening(3, 2, &[property.clone(), property].concat()));
    let message =
        |kind: u8, rest: &[u8]| [&(rest.len() as u16 + 1).to_be_bytes()[..], &[kind], rest].concat();
    let first = message(0x80, &opening(0x80, 0, b"query"));
    write("tunnel_datagrams", "in-order", &[first.clone(), message(0, b"more")].concat());
    let early: Vec<u8> = (0..20).flat_map(|_| message(0, &[9; 1200])).collect();
    write("tunnel_datagrams", "overtaken", &[early, first].concat());
    write("tunnel_datagrams", "refused", &message(0x81, b"no such name"));
    for (name, command, target) in [
        ("connect", 1, &[1, 192, 0, 2, 1, 0, 80][..]),
        ("connect-name", 1, b"\x03\x04name\x01\0"),
        ("bind", 2, &[1, 192, 0, 2, 1, 0, 80]),
        ("associate", 3, &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 9]),
    ] {
        write("socks", name, &[&[5, 1, 0, 5, command, 0][..], target].concat());
    }
    write("socks", "datagram", b"\0\0\0\x03\x04name\x01\0query");
    let hello = |number: u64| [&[5; 32][..], &[1], &number.to_be_bytes(), &[0; 8], &[0, 0, 0, 90]].concat();
    for (name, frames) in [
        ("both-ways", b"\0\0\x05hello\x01\0\0\0\0\0\0\0\x64\x02".as_slice()),
        ("asked", b"\x04\x05\0\0\x01a\x03"),
        ("lie", b"\x01\0\0\0\0\0\0\0\xff"),
    ] {
        write("streams", name, &[&hello(1), frames].concat());
    }
    let said = |json: &str| [&(json.len() as u32).to_be_bytes()[..], json.as_bytes()].concat();
    for (name, json) in [
        ("time", r#""time""#),
        ("start", r#""start""#),
        ("refused", r#"{"refused":"busy"}"#),
        ("server-time", r#"{"time":12345678}"#),
    ] {
        write("perf", name, &said(json));
    }
    let second = std::time::Duration::from_secs(1);
    let workloads = [
        ("bulk", Workload::Bulk { bytes: Some(1_000_000), duration: Some(second) }),
        ("requests", Workload::Requests { count: 10, request_bytes: 32, answer_bytes: 64, concurrency: 2 }),
        (
            "messages",
            Workload::Messages { every: second / 50, bytes: 160, duration: second, deadline: second },
        ),
    ];
    for (name, workload) in workloads {
        let request = Measure { version: VERSION, workload, flows: 1, way: Way::Both, seed: 1 };
        let json = serde_json::to_string(&ToServer::Request(request)).expect("encoded");
        write("perf", name, &said(&json));
    }
    let report = serde_json::to_string(&ToServer::Done(Report::default())).expect("encoded");
    write("perf", "report", &said(&report));
    for (name, line) in [
        ("list", r#"{"do":"list"}"#),
        ("set", r#"{"do":"set","name":"connPriority","value":"3"}"#),
        ("set-forward", r#"{"do":"set","name":"msgLifetime","value":"80ms","forward":"8080"}"#),
        ("end", r#"{"do":"end","id":7}"#),
    ] {
        write("control", name, format!("{line}\n").as_bytes());
    }
    for (name, text) in [
        (
            "hosts",
            "[host.'*.example']\nport = 5000\nkey = '/a'\naccept_new = true\nclassical = true\n\
             properties = { msgLifetime = '80ms', connPriority = 3 }\n\
             [host.short]\naddress = 'long.example'\nserver_name = 'n'\nadapt = false\n",
        ),
        (
            "tunnels",
            "[tunnel.db]\nhost = 'h'\nlocal = ['5432:db:5432']\nremote = []\ndynamic = '1080'\n\
             property = ['connPriority=3']\n",
        ),
        (
            "profiles",
            "[host.a]\nprofile = ['tcp-tahoe', 'congestion=cubic']\nqlog = '~/logs'\nca = 'roots.pem'\n",
        ),
        ("wrong", "[host.a]\nadress = 3\nport = 70000\n[hosts.b]\n"),
    ] {
        write("config", name, text.as_bytes());
    }
}

/// Halves of calls, and what is asked for, sent and cut of live media.
fn calls_and_media() {
    let (mut request, mut answer, mut failed, mut refused) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let left = Some(std::time::Duration::from_secs(10));
    Header { method: "texts/put".to_owned(), left }.emit(&mut request);
    for message in [&b"colour"[..], b"", &[7; 300]] {
        for half in [&mut request, &mut answer] {
            put_message_head(half, message.len());
            half.extend_from_slice(message);
        }
    }
    put_failed(&mut failed, 7, "no text is named so");
    put_refused(&mut refused, Refusal::Busy, "it runs 1000 calls");
    let cut = [&request[..request.len() - 5], &[0, 0x40]].concat();
    for (name, half, bytes) in [
        ("request", 0, &request),
        ("answer", 1, &answer),
        ("failed", 1, &failed),
        ("answer-failed", 1, &[&answer[..], &failed].concat()),
        ("refused", 1, &refused),
        ("cut", 0, &cut),
    ] {
        write("calls", name, &[&[half, 5], &bytes[..]].concat());
    }
    let properties = vec![("uts.playoutDelay".to_owned(), "80ms".to_owned())];
    for (name, role, properties) in [("send", Role::Send, Vec::new()), ("receive", Role::Receive, properties)]
    {
        write("media", name, &Asked { role, name: "camera".to_owned(), properties }.emit());
    }
    let noise = |n: u8| 200 + n;
    for (name, steps) in [
        ("whole", (0..24).collect::<Vec<u8>>()),
        ("joined", [vec![noise(50)], (0..20).collect()].concat()),
        ("damaged", [(0..9).collect(), vec![noise(11)], (9..30).collect::<Vec<u8>>()].concat()),
        ("few", vec![1, 2]),
        ("none", vec![noise(55); 1000]),
    ] {
        write("cutter", name, &[&[0, 188], &steps[..]].concat());
    }
}

/// Packets of a group, and what a member asks of its sender.
fn groups() {
    let bytes = |length| vec![7; length].into();
    let bodies = [
        ("source", Body::Source { block: 3, index: 5, before: 16, source: bytes(40) }),
        ("parity", Body::Parity { block: 3, count: 16, parity: 2, more: 1, symbol: bytes(42) }),
        ("status", Body::Status { last: (3, 9), is_end: true, repairs: vec![(2, 4), (3, 1)] }),
    ];
    for (name, body) in bodies {
        let advertised = Advertised { sent: 1_000_000, grtt: 150, backoff: 6, members: 9, oldest: 1 };
        let mut packet = Vec::new();
        FromSender { advertised, body }.emit(&mut packet);
        write("group", name, &packet);
    }
    let lacks = vec![Lack { block: 3, needs: 2, missing: 0b101 }, Lack { block: 4, needs: 1, missing: 1 }];
    let mut request = Vec::new();
    Repair { echo: 1_000_000, seen: 70, lacks }.emit(&mut request);
    write("group", "request", &request);
}

fn main() {
    vectors();
    program();
    groups();
    calls_and_media();
    files();
    disk();
    texts();
    for target in ["repairs", "exchange", "handshake", "datagrams", "group"] {
        for (seed, bytes) in (0u64..).zip(STEPS.iter().cycle().take(12)) {
            let mut steps = vec![0; *bytes];
            ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut steps);
            write(target, &format!("seed-{seed}"), &steps);
        }
    }
}
