//! Targets of fuzzing. A target takes any bytes and panics if something does not hold. It asks for
//! more than "no crash": that what was read is emitted and read again as the same, that bounds
//! hold, and that peers that keep to the protocol get what was sent.
//!
//! The bodies stand here once, in a library that stable Rust builds. `fuzz/` makes a libFuzzer
//! program of each (`make fuzz`). `tests/replay.rs` runs each over the corpus of `fuzz/corpus` and
//! over seeded mutations of it (`make test`).
//!
//! Every decoder is reached as a peer, a file or a command line reaches it: through the public
//! interfaces of the crates, and through [`packet_of`](uts_engine::Connection::packet_of), with
//! which an authenticated peer lies. No crate has a door for this one.
#![forbid(unsafe_code)]

mod calls;
mod disk;
mod engine;
mod files;
mod functions;
mod group;
mod lines;
mod program;
mod text;
mod wire;

/// A body, and what bounds its runs.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: of the program in `fuzz/`, and of the folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Its input, in a line.
    pub what: &'static str,
    /// Takes any bytes; panics if something does not hold.
    pub run: fn(&[u8]),
    /// Mutations of each file of the corpus that `make test` tries: few if a run takes
    /// milliseconds.
    pub mutations: usize,
}

macro_rules! targets {
    ($($name:ident = $run:path, $mutations:literal, $what:literal;)+) => {
        /// All targets.
        pub const TARGETS: &[Target] = &[
            $(Target { name: stringify!($name), what: $what, run: $run, mutations: $mutations },)+
        ];

        $(
            #[doc = concat!("Target: ", $what, ".")]
            pub fn $name(data: &[u8]) {
                $run(data);
            }
        )+
    };
}

targets! {
    frames = wire::frames, 50, "the frames of an adaptive packet's payload";
    header = wire::header, 50, "the packets of a datagram, before protection is taken off";
    chain = wire::chain, 50, "the chain of function headers in an establishment packet, with data and trailers";
    hello = wire::hello, 50, "what an end says of itself in the TLS handshake";
    profile = wire::profile, 50, "a profile, and whether this library can run it";
    repairs = functions::repairs, 20, "FEC repairs, made up ones and those of an encoder, in any order";
    presentation = functions::presentation, 50, "messages in the form of each presentation mechanism, LZ4 among them";
    handshake = engine::handshake::run, 5, "first packets with good keys and any content and token, to a server and to a client";
    datagrams = engine::datagrams::run, 5, "two endpoints whose datagrams are lost, replayed, mutated, and forged by one who has the keys";
    exchange = engine::exchange::run, 50, "the two machines of an exchange, of which one may be a liar";
    messages = files::messages, 50, "requests, replies and listings of the files protocol";
    serve = files::serve, 2, "what a client says to the file service of a directory";
    fetch = files::fetch, 2, "what a server answers to a client that copies";
    notes = files::notes, 2, "notes on disk of an unfinished copy";
    names = files::names, 50, "paths of the peer";
    identity = disk::identity, 20, "a key file";
    known_hosts = disk::known_hosts, 20, "the file of known hosts";
    authorized_keys = disk::authorized_keys, 20, "the file of authorized keys";
    properties = text::properties, 50, "requirements as `name=value`";
    experiment = text::experiment, 10, "an experiment file";
    openings = program::openings, 50, "what a flow of a tunnel begins with";
    tunnel_datagrams = program::datagrams, 50, "the first messages of a tunnel's flow of datagrams";
    socks = program::proxy, 50, "what a program says to the proxy of a tunnel, by TCP and by UDP";
    streams = program::stream, 50, "what either end says on the carrier of a stream";
    perf = program::measurement, 50, "what the ends of a measurement say to each other";
    media = program::media, 50, "what a client of live media asks a server for";
    group = group::group, 20, "what the ends of a group say to each other";
    cutter = program::cutter, 20, "a transport stream that is cut into datagrams";
    calls = calls::run, 50, "the halves of a call";
    control = program::control, 20, "what a program says to the control socket of a tunnel";
    config = program::config, 20, "the user's file of settings";
    rx = lines::rx, 50, "packets of Rx";
    headers = lines::headers, 50, "packets and frames of a line with compressed headers, some of which are lost";
    path = text::path, 50, "settings, schedules and traces of an emulated path";
}

/// Up to `most` bytes of the input, as it says itself.
fn some_bytes<'a>(u: &mut arbitrary::Unstructured<'a>, most: u16) -> arbitrary::Result<&'a [u8]> {
    let len = usize::from(u.int_in_range(0..=most)?).min(u.len());
    u.bytes(len)
}

/// The target of that name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
