//! Decoders of the program `uts`, beside those of file copies: of what peers say, and what programs
//! and files of its host do.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use uts_cli::args::ReachArgs;
use uts_cli::config::Config;
use uts_cli::control;
use uts_cli::media::NAME_BYTES_MAX;
use uts_cli::media::cutter::Cutter;
use uts_cli::media::format::{PACKET_BYTES, PACKETS_MAX, SYNC};
use uts_cli::media::wire::Asked;
use uts_cli::target::Host;
use uts_cli::tunnel::board::Board;
use uts_tunnel::datagrams::Beginning;
use uts_tunnel::resumed::memory::Memory;
use uts_tunnel::resumed::wire::{Frame, read_frame};
use uts_tunnel::resumed::{Hello, How};
use uts_tunnel::wire::Opening;
use uts_tunnel::{Wants, associate, socks};

/// Memory that datagrams may hold before their flow is permitted.
const EARLY_BYTES_MAX: usize = 16 << 10;

/// The longest answer to a program of this host, in bytes: a line of words, in which what was asked
/// may stand.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Packets and stretches of noise in a stream that is cut.
const CUTTER_STEPS_MAX: usize = 1000;

fn now<T>(work: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(work))
}

/// A program that says all that it has to say at once, and is answered.
struct Peer<'a> {
    says: &'a [u8],
    hears: Vec<u8>,
}

impl AsyncRead for Peer<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (now, later) = self.says.split_at(self.says.len().min(space.remaining()));
        space.put_slice(now);
        self.says = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Peer<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.hears.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// An opening is emitted as the same, and reads no byte of what follows.
pub fn openings(data: &[u8]) {
    let mut rest = data;
    match now(Opening::read(&mut rest)) {
        Ok(opening) => {
            let emitted = opening.emit();
            let again = now(Opening::read(&mut &emitted[..])).expect("what was emitted is read");
            assert_eq!(again, opening);
            assert!(data.len() - rest.len() <= 1 << 12, "an opening of {} bytes", data.len() - rest.len());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The messages of a flow, each behind two bytes of length.
pub fn datagrams(mut data: &[u8]) {
    let (mut beginning, mut came) = (Beginning::default(), 0);
    while let Some((length, rest)) = data.split_first_chunk::<2>() {
        let (message, rest) = rest.split_at(rest.len().min(usize::from(u16::from_be_bytes(*length))));
        data = rest;
        came += 1;
        match now(beginning.take(message)) {
            Ok(None) => {}
            Ok(Some((_, datagrams))) => {
                assert!(datagrams.len() <= came);
                let early: usize = datagrams.iter().skip(1).map(|datagram| datagram.len()).sum();
                assert!(early <= EARLY_BYTES_MAX, "{early} bytes are kept of who has asked for nothing");
                return;
            }
            Err(_) => return,
        }
    }
}

/// Takes a program of this host to the proxy, by TCP and by UDP.
pub fn proxy(data: &[u8]) {
    let mut heard = Vec::new();
    let _ = now(async {
        let (request, waiting) = socks::hear(Peer { says: data, hears: Vec::new() }).await?;
        if let socks::Request::Connect(place) = &request {
            assert!(!place.host.is_empty() && place.port > 0, "{place}");
            assert!(!place.host.contains(char::is_control), "{place}");
        }
        let peer = waiting.connected().await?;
        // The method, and the reply (RFC 1928 sections 3 and 6).
        assert!(matches!(peer.hears[..], [5, 0, 5, 0, 0, 1, ..]), "{:?}", peer.hears);
        heard = peer.hears;
        Ok::<(), String>(())
    });
    assert!(heard.len() <= 12, "{heard:?}");
    if let Ok((place, head, content)) = now(associate::read(data)) {
        assert!(!place.host.is_empty() && place.port > 0, "{place}");
        assert_eq!([head, content].concat(), data);
    }
}

/// Hears a client that asks for a stream, and then either end of one: what it says makes an end
/// hold no more than it has room for, and changes nothing that was said.
pub fn stream(data: &[u8]) {
    const ROOM: u64 = 100;
    let mut from = data;
    let hello = now(Hello::read(&mut from));
    let mut memory = Memory::new(ROOM as usize);
    memory.on_window(hello.as_ref().map_or(ROOM as u32, |hello| hello.window));
    memory.say(&[7; ROOM as usize]);
    memory.say_end(How::Orderly);
    let _ = hello.map(|hello| memory.welcome(hello.received));
    let (mut come, mut content) = (0, Vec::new());
    while let Ok(frame) = now(read_frame(&mut from, &mut content)) {
        let heard = match frame {
            Frame::Data(bytes) => memory.on_data(come, &content).map(|()| come += bytes as u64),
            Frame::End(how) => memory.on_end(come, how).map(|()| come += 1),
            Frame::Taken(position) => {
                let mut sent = Vec::new();
                let heard = memory.on_taken_by_peer(position);
                let position = memory.put_next(&mut sent, position);
                assert!(heard.is_err() || position <= ROOM + 1, "{position}");
                heard
            }
            Frame::Ask | Frame::Here => Ok(()),
        };
        assert!(memory.received() <= ROOM + 1, "{} bytes are held", memory.received());
        if heard.is_err() {
            return;
        }
    }
}

/// Hears the ends of a measurement.
pub fn measurement(data: &[u8]) {
    if let Ok(said) = now(uts_perf::hear::<uts_perf::ToServer>(&mut &*data)) {
        if let uts_perf::ToServer::Request(request) = &said
            && request.check().is_ok()
        {
            assert!(request.flows <= 128 && request.version == uts_perf::VERSION, "{request:?}");
            assert!(request.workload.lasts().is_none_or(|lasts| lasts <= uts_perf::LASTS_MAX), "{request:?}");
        }
        let text = serde_json::to_vec(&said).expect("it can be said");
        let again: uts_perf::ToServer = serde_json::from_slice(&text).expect("what was said is heard");
        assert_eq!(serde_json::to_vec(&again).expect("it can be said"), text);
    }
    if let Ok(said) = now(uts_perf::hear::<uts_perf::ToClient>(&mut &*data)) {
        serde_json::to_vec(&said).expect("it can be said");
    }
}

/// Hears a client of live media: what it asks for is emitted as the same, and no byte of what
/// follows is read.
pub fn media(data: &[u8]) {
    let mut rest = data;
    match now(Asked::read(&mut rest)) {
        Ok(asked) => {
            assert!((1..=NAME_BYTES_MAX).contains(&asked.name.len()), "{asked:?}");
            assert!(!asked.name.contains(char::is_control), "{asked:?}");
            let emitted = asked.emit();
            assert_eq!(emitted, data[..data.len() - rest.len()]);
            assert_eq!(now(Asked::read(&mut &emitted[..])).expect("what was emitted is read"), asked);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Datagrams of a stream that comes in pieces of so many bytes, and bytes that were left out.
fn cut(stream: &[u8], piece_bytes: usize) -> Result<(Vec<u8>, u64), String> {
    fn take(cutter: &mut Cutter, all: &mut Vec<u8>) -> Result<(), String> {
        while let Some(datagram) = cutter.next_datagram()? {
            let packets = datagram.chunks(PACKET_BYTES);
            assert!((1..=PACKETS_MAX).contains(&packets.len()), "{} packets", packets.len());
            for packet in packets {
                assert!(packet.len() == PACKET_BYTES && packet.first() == Some(&SYNC), "{packet:02x?}");
            }
            all.extend_from_slice(&datagram);
        }
        Ok(())
    }
    let (mut cutter, mut all) = (Cutter::default(), Vec::new());
    for piece in stream.chunks(piece_bytes) {
        cutter.push(piece);
        take(&mut cutter, &mut all)?;
    }
    cutter.end();
    take(&mut cutter, &mut all)?;
    assert_eq!(all.len() as u64 + cutter.skipped(), stream.len() as u64, "each byte goes on or is left out");
    Ok((all, cutter.skipped()))
}

/// Cuts a stream: the first bytes say how it comes, and what is repeated. A byte stands for a
/// packet, so that an input of some bytes is a stream: 0 to 199 a whole one of such bytes, others
/// as many bytes of noise. What comes in other pieces is cut the same.
pub fn cutter(data: &[u8]) {
    let Some((&[high, low], steps)) = data.split_first_chunk::<2>() else { return };
    let piece_bytes = usize::from(u16::from_be_bytes([high, low])).max(1);
    let mut stream = Vec::new();
    for step in steps.iter().take(CUTTER_STEPS_MAX) {
        match usize::from(*step) {
            fill @ 0..200 => {
                stream.push(SYNC);
                stream.resize(stream.len() + PACKET_BYTES - 1, fill as u8);
            }
            noise => stream.extend((0..noise - 199).map(|n| (n * noise) as u8)),
        }
    }
    assert_eq!(cut(&stream, piece_bytes), cut(&stream, stream.len().max(1)), "in pieces of {piece_bytes}");
    // The same bytes as they are.
    assert_eq!(cut(data, piece_bytes), cut(data, data.len()), "in pieces of {piece_bytes}");
}

/// Answers a program of this user that asks a tunnel.
pub fn control(data: &[u8]) {
    let board = Board {
        host: "host:4433".to_owned(),
        forwards: vec![("8080".to_owned(), "127.0.0.1:80".to_owned(), Arc::new(Wants::default()))],
        live: Arc::default(),
        connections: watch::channel(None).1,
        changed: Mutex::default(),
        last: Mutex::default(),
    };
    let mut peer = Peer { says: data, hears: Vec::new() };
    if now(control::answer(&board, &mut peer)).is_err() {
        assert!(peer.hears.is_empty());
        return;
    }
    let answer = String::from_utf8(peer.hears).expect("text");
    assert!(answer.ends_with('\n') && answer.lines().count() == 1, "{answer:?}");
    assert!(answer.len() <= ANSWER_BYTES_MAX, "{} bytes", answer.len());
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    assert!(answer.is_object(), "{answer}");
}

/// The user's file of settings, and what it settles for some hosts.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Config::read("config.toml", text) {
        Ok(config) => {
            assert_eq!(Config::read("config.toml", text).as_ref(), Ok(&config));
            for name in ["host", "a.example:5000", "[::1]"] {
                let mut host = Host::parse(name).expect("a host");
                let mut requirements = uts::Requirements::bulk();
                for (name, value) in config.settle(&mut host, &mut ReachArgs::default()) {
                    // Profiles go together or not: that is found out when all are known.
                    let set = requirements.set(&name, &value);
                    assert!(set.is_ok() || name.starts_with("uts.profile"), "{name}={value}: {set:?}");
                }
                assert!(host.port > 0 && !host.name.is_empty());
            }
        }
        Err(wrong) => {
            let lines = wrong.lines().count();
            assert!(lines > 0 && wrong.lines().all(|line| line.starts_with("config.toml:")), "{wrong:?}");
        }
    }
}
