//! Header compression: vectors of our own, round trips over any sequence of packets, and what comes
//! of lost and damaged frames.

use etherparse::{Ipv4HeaderSlice, PacketBuilder, TcpHeaderSlice, UdpHeader, UdpHeaderSlice};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uts_path::compression::{Compressor, Decompressor, Form, rx, tcp};
use uts_path::{Link, LinkConfig};
use uts_rx::{Ack, Body, Flags, Header, Packet, Reason, Type};

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];

const RX: Header = Header {
    epoch: 0x2cb4_1c40,
    connection: 0x8000_0104,
    call: 1,
    sequence: 1,
    serial: 1,
    kind: Type::Data,
    flags: Flags(0),
    status: 0,
    security: 0,
    verifier: 0,
    service: 1,
};

/// Sets the identification, which a builder does not, and the checksum with it.
fn identified(mut packet: Vec<u8>, identification: u16) -> Vec<u8> {
    let mut ip = Ipv4HeaderSlice::from_slice(&packet).expect("IPv4").to_header();
    (ip.identification, ip.dont_fragment) = (identification, false);
    ip.header_checksum = ip.calc_header_checksum();
    packet[..20].copy_from_slice(&ip.to_bytes());
    packet
}

/// An IP packet from the server to a port of the client.
fn udp(port: u16, identification: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4(SERVER, CLIENT, 64).udp(7000, port).write(&mut packet, payload).expect("short");
    identified(packet, identification)
}

/// A packet of data, or an error whose code has the bytes of `data`.
fn rx_packet(identification: u16, header: Header, data: &[u8]) -> Vec<u8> {
    let body = match header.kind {
        Type::Abort => Body::Abort(i32::from_be_bytes(data.try_into().expect("four bytes"))),
        _ => Body::Data(data),
    };
    udp(7001, identification, &Packet::new(header, body).to_bytes())
}

fn ends(text: &str) -> (Compressor, Decompressor) {
    let compression = text.parse().expect("a compression");
    (Compressor::new(compression).expect("on"), Decompressor::new(compression).expect("on"))
}

/// True if the checksum of UDP or TCP says that the packet is right.
fn is_valid(packet: &[u8]) -> bool {
    let Ok(ip) = Ipv4HeaderSlice::from_slice(packet) else { return false };
    let header = ip.to_header();
    let rest = &packet[20..];
    if usize::from(header.total_len) != packet.len()
        || header.calc_header_checksum() != header.header_checksum
    {
        return false;
    }
    match header.protocol.0 {
        17 => UdpHeaderSlice::from_slice(rest).is_ok_and(|udp| {
            let udp: UdpHeader = udp.to_header();
            udp.calc_checksum_ipv4(&header, &rest[8..]) == Ok(udp.checksum)
        }),
        6 => TcpHeaderSlice::from_slice(rest).is_ok_and(|tcp| {
            let data = rest.get(4 * usize::from(tcp.data_offset())..).unwrap_or_default();
            tcp.calc_checksum_ipv4(&ip, data) == Ok(tcp.checksum())
        }),
        _ => false,
    }
}

// ---- vectors ----

/// One connection, in the order in which its packets are sent: what each adds to the one before,
/// and its compressed headers, with the UDP checksum left out.
#[test]
fn rx_headers_have_the_layout_of_the_paper() {
    let data = |serial: u32, sequence: u32| Header { serial, sequence, ..RX };
    let next_call = Header { call: 2, sequence: 1, serial: 300, ..RX };
    let steps: [(u16, Header, Option<&[u8]>); 12] = [
        // The first says all.
        (10, data(1, 1), None),
        // The next packet: A, F.
        (11, data(2, 2), Some(&[0x68, 0x40])),
        // It asks: I, with its flags.
        (12, Header { flags: Flags(2), ..data(3, 3) }, Some(&[0x68, 0x48, 2])),
        // Another verifier, and no flags any more: I, K.
        (13, Header { verifier: 0xbeef, ..data(4, 4) }, Some(&[0x68, 0x4a, 0, 0xbe, 0xef])),
        // Other packets of IP and Rx between: D, G. Without a verifier none is sent. Flags are said
        // (I): to a peer that has missed the packet before, this one would seem to be that, and to
        // ask.
        (20, data(300, 5), Some(&[0x69, 0x68, 7, 0, 1, 40, 0])),
        // A packet that was skipped: F with its difference.
        (21, data(301, 7), Some(&[0x60, 0x40, 2])),
        // Another type, another status; the sequence number is zero: F, H, J, L.
        (22, Header { kind: Type::Abort, status: 9, ..data(302, 0) }, Some(&[0x60, 0x55, 4, 9])),
        // The next call begins with its first packet: B, E, A, F; G, H, J.
        (23, Header { serial: 304, ..next_call }, Some(&[0x6c, 0xf4, 2, 1, 0])),
        // A call that is not the next: E with its difference. Its first packet has the number of
        // the one before.
        (24, Header { call: 9, serial: 305, ..next_call }, Some(&[0x60, 0x80, 7])),
        // The same again says nothing new.
        (25, Header { call: 9, serial: 306, ..next_call }, None),
        // The identification stays, as it does for hosts of today that do not fragment.
        (25, Header { call: 9, serial: 307, sequence: 2, ..next_call }, Some(&[0x69, 0x40, 0, 0, 0])),
        // Another service: there is no bit for it.
        (26, Header { call: 9, serial: 308, sequence: 3, service: 2, ..next_call }, None),
    ];
    let (mut near, mut far) = ends("rx");
    for (n, (identification, header, wanted)) in steps.into_iter().enumerate() {
        let packet = rx_packet(identification, header, b"data");
        let frame = near.compress(&packet).expect("IPv4");
        match wanted {
            Some(bytes) => {
                let wanted = [&bytes[..2], &packet[26..28], &bytes[2..], b"data"].concat();
                assert_eq!((frame.form, &frame.bytes), (Form::Compressed, &wanted), "step {n}");
            }
            None => {
                let wanted = [&[0x55], &packet[1..9], &[0], &packet[10..]].concat();
                assert_eq!((frame.form, &frame.bytes), (Form::Whole, &wanted), "step {n}");
            }
        }
        assert_eq!(far.expand(&frame.bytes), Ok(packet), "step {n}");
    }
}

#[test]
fn slots_are_said_when_they_change_and_go_to_those_who_come() {
    let (mut near, mut far) = ends("rx:2");
    let mut sent = [0u32; 3];
    let mut send = |connection: usize| {
        sent[connection] += 1;
        let (serial, sequence) = (sent[connection], sent[connection]);
        let header = Header { connection: 4 * connection as u32, serial, sequence, ..RX };
        let packet = rx_packet(sent[connection] as u16, header, &[]);
        let frame = near.compress(&packet).expect("IPv4");
        assert_eq!(far.expand(&frame.bytes), Ok(packet));
        (frame.form, frame.bytes[..3.min(frame.bytes.len())].to_vec(), frame.bytes.len())
    };
    assert_eq!((send(0).0, send(1).0), (Form::Whole, Form::Whole));
    // The same as before: 4 bytes. Another: its slot stands behind the mask.
    assert_eq!((send(1).2, send(0).1, send(0).2), (4, vec![0x6a, 0x40, 0], 4));
    // A third takes the slot of the second, which was used less recently. Then the first is gone.
    let (form, ..) = send(2);
    assert_eq!(
        (form, send(0).0, send(1).0, send(0).0),
        (Form::Whole, Form::Compressed, Form::Whole, Form::Compressed)
    );
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    sequence: u32,
    ack: u32,
    window: u16,
    psh: bool,
    urgent: Option<u16>,
    syn: bool,
}

const SEGMENT: Segment =
    Segment { sequence: 1000, ack: 500, window: 4096, psh: false, urgent: None, syn: false };

fn tcp_packet(port: u16, identification: u16, segment: &Segment, data: &[u8]) -> Vec<u8> {
    let mut builder = PacketBuilder::ipv4(SERVER, CLIENT, 64)
        .tcp(20, port, segment.sequence, segment.window)
        .ack(segment.ack);
    if segment.psh {
        builder = builder.psh();
    }
    if let Some(urgent) = segment.urgent {
        builder = builder.urg(urgent);
    }
    if segment.syn {
        builder = builder.syn();
    }
    let mut packet = Vec::new();
    builder.write(&mut packet, data).expect("short");
    identified(packet, identification)
}

#[test]
fn tcp_headers_have_the_layout_of_the_rfc() {
    let at = |sequence: u32| Segment { sequence, ..SEGMENT };
    let steps: [(u16, Segment, usize, Option<&[u8]>); 10] = [
        (10, at(1000), 536, None),
        // Data in one direction (S, A, W, U): nothing but the checksum.
        (11, at(1536), 536, Some(&[0x8f])),
        // It pushes.
        (12, Segment { psh: true, ..at(2072) }, 100, Some(&[0x9f])),
        // An acknowledgement besides: S, A. The identification jumps: I.
        (16, Segment { ack: 800, ..at(2172) }, 0, Some(&[0xac, 0, 1, 44, 100, 4])),
        // Only acknowledgement and window, the latter downwards: A, W.
        (17, Segment { ack: 801, window: 4095, ..at(2172) }, 0, Some(&[0x86, 0, 0xff, 0xff, 1])),
        // Data behind an acknowledgement that has none.
        (18, Segment { ack: 801, window: 4095, ..at(2172) }, 1, Some(&[0x80])),
        // A character that is echoed: S, W, U.
        (19, Segment { ack: 802, window: 4095, ..at(2173) }, 1, Some(&[0x8b])),
        // Urgent data.
        (20, Segment { ack: 802, window: 4095, urgent: Some(3), ..at(2174) }, 9, Some(&[0x89, 3, 1])),
        // The same again.
        (21, Segment { ack: 802, window: 4095, urgent: Some(3), ..at(2174) }, 9, Some(&[0x81, 3])),
        // Back.
        (22, Segment { ack: 802, window: 4095, ..at(2173) }, 1, None),
    ];
    let (mut near, mut far) = ends("vj");
    for (n, (identification, segment, data_bytes, wanted)) in steps.into_iter().enumerate() {
        let packet = tcp_packet(1024, identification, &segment, &vec![0xa5; data_bytes]);
        let frame = near.compress(&packet).expect("IPv4");
        match wanted {
            Some(bytes) => {
                let wanted = [&bytes[..1], &packet[36..38], &bytes[1..], &packet[40..]].concat();
                assert_eq!((frame.form, &frame.bytes), (Form::Compressed, &wanted), "step {n}");
            }
            None => {
                let wanted = [&[0x75], &packet[1..9], &[0], &packet[10..]].concat();
                assert_eq!((frame.form, &frame.bytes), (Form::Whole, &wanted), "step {n}");
            }
        }
        assert_eq!(far.expand(&frame.bytes), Ok(packet), "step {n}");
    }
    // What opens a connection goes as it is.
    let syn = tcp_packet(1024, 23, &Segment { syn: true, ..SEGMENT }, &[]);
    assert_eq!(near.compress(&syn).expect("IPv4").form, Form::Plain);
}

#[test]
fn what_headers_cannot_be_restored_of_goes_as_it_is() {
    let (mut near, mut far) = ends("rx");
    let right = rx_packet(1, RX, b"data");
    let changed = |at: usize, value: u8| {
        let mut packet = right.clone();
        packet[at] = value;
        identified(packet, 7)
    };
    let padded = [&right[..], &[0]].concat();
    let mut bad_sum = right.clone();
    bad_sum[10] ^= 1;
    let mut no_sum = right.clone();
    no_sum[26..28].fill(0);
    let packets = [
        padded,
        bad_sum,
        no_sum,
        changed(9, 1),   // ICMP
        changed(25, 9),  // the length of UDP is another
        changed(48, 12), // no type of Rx
        udp(7001, 1, b"too short"),
        right[..55].to_vec(),
    ];
    for (n, packet) in packets.iter().enumerate() {
        let frame = near.compress(packet).expect("IPv4");
        assert_eq!((frame.form, &frame.bytes), (Form::Plain, packet), "{n}");
        assert_eq!(far.expand(&frame.bytes).as_ref(), Ok(packet), "{n}");
    }
    // A fragment, and ports that are not of AFS.
    let mut fragment = right.clone();
    fragment[6] = 0x20;
    let mut ip = Ipv4HeaderSlice::from_slice(&fragment).expect("IPv4").to_header();
    ip.header_checksum = ip.calc_header_checksum();
    fragment[..20].copy_from_slice(&ip.to_bytes());
    assert_eq!(near.compress(&fragment).expect("IPv4").form, Form::Plain);
    let mut elsewhere = Vec::new();
    let payload = Packet::new(RX, Body::Data(b"data")).to_bytes();
    PacketBuilder::ipv4(SERVER, CLIENT, 64).udp(53, 5353).write(&mut elsewhere, &payload).expect("short");
    assert_eq!(near.compress(&elsewhere).expect("IPv4").form, Form::Plain);
}

// ---- round trips ----

/// A packet of one of few connections, whose numbers move as they like.
fn any_rx() -> impl Strategy<Value = Vec<u8>> {
    let few = |most: u32| prop_oneof![8 => 0..4u32, 1 => 0..most];
    let header = (few(u32::MAX), few(u32::MAX), few(u32::MAX), few(u32::MAX), few(u32::MAX)).prop_flat_map(
        |(connection, call, sequence, serial, epoch)| {
            (prop::sample::select(Type::ALL.to_vec()), 0u8..4, 0u8..3, 0u8..2, 0u16..3, 0u16..2).prop_map(
                move |(kind, flags, status, security, verifier, service)| Header {
                    epoch: epoch.min(1),
                    connection,
                    call,
                    sequence,
                    serial,
                    kind,
                    flags: Flags(flags),
                    status,
                    security,
                    verifier,
                    service,
                },
            )
        },
    );
    let ack = (any::<u32>(), prop::collection::vec(any::<u8>(), 0..20), 0usize..9);
    (header, any::<u16>(), prop::collection::vec(any::<u8>(), 0..40), ack).prop_map(
        |(header, identification, bytes, (first, beyond, reason))| {
            let reason = Reason::ALL[reason];
            let ack = Ack {
                buffer_packets: 1,
                skew: 0,
                first,
                previous: 1,
                serial: 1,
                reason,
                beyond: &beyond,
                trailer: &[],
            };
            let body = match header.kind {
                Type::Data => Body::Data(&bytes),
                Type::Ack => Body::Ack(ack),
                Type::Busy => Body::Busy(&bytes),
                Type::Abort => Body::Abort(3),
                Type::AckAll => Body::AckAll(&bytes),
                Type::Challenge => Body::Challenge(&bytes),
                Type::Response => Body::Response(&bytes),
                Type::Debug => Body::Debug(&bytes),
                Type::Version => Body::Version(&bytes),
            };
            udp(7001, identification, &Packet::new(header, body).to_bytes())
        },
    )
}

fn any_tcp() -> impl Strategy<Value = Vec<u8>> {
    let step = || prop_oneof![8 => 0u32..3, 4 => Just(100), 1 => any::<u32>()];
    let segment = (step(), step(), any::<bool>(), prop::option::of(0u16..3), any::<bool>(), 0u16..3);
    (segment, 1u16..4, 0u16..4, prop::sample::select(vec![0usize, 1, 100])).prop_map(
        |((sequence, ack, psh, urgent, syn, window), port, identification, bytes)| {
            let urgent = urgent.filter(|_| sequence % 2 == 0);
            let segment = Segment { sequence, ack, window, psh, urgent, syn: syn && ack == 2 };
            tcp_packet(port, identification, &segment, &vec![0xc0; bytes])
        },
    )
}

fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => any_rx(),
        4 => any_tcp(),
        1 => prop::collection::vec(any::<u8>(), 0..80),
    ]
}

proptest! {
    #[test]
    fn whatever_is_sent_arrives_as_it_was(packets in prop::collection::vec(any_packet(), 1..60)) {
        for text in ["vj", "vj:2", "rx", "rx:1", "rx:3,typed"] {
            let (mut near, mut far) = ends(text);
            for packet in &packets {
                let Ok(frame) = near.compress(packet) else {
                    prop_assert!(!text.contains("typed") && packet[0] >> 4 >= 5, "{}", text);
                    continue;
                };
                let typed = usize::from(text.contains("typed"));
                prop_assert!(frame.bytes.len() <= packet.len() + typed);
                let restored = far.expand(&frame.bytes);
                prop_assert_eq!(restored.as_ref(), Ok(packet), "{}", text);
            }
        }
    }

    #[test]
    fn no_frame_breaks_an_end(
        packets in prop::collection::vec(any_packet(), 1..20),
        frames in prop::collection::vec((0u8..=255, prop::collection::vec(any::<u8>(), 0..60)), 1..40),
    ) {
        let (mut near, mut far) = ends("rx:3");
        for packet in &packets {
            if let Ok(frame) = near.compress(packet) {
                prop_assert!(far.expand(&frame.bytes).is_ok());
            }
        }
        for (first, rest) in frames {
            let frame = [&[first][..], &rest].concat();
            if let Ok(packet) = far.expand(&frame) {
                prop_assert!(packet.len() <= 65_535);
            }
        }
    }

    #[test]
    fn compressed_headers_are_written_in_one_way(frame in prop::collection::vec(any::<u8>(), 2..24)) {
        let rx_frame = [&[0x60 | frame[0] & 0xf][..], &frame[1..]].concat();
        let mut rest = &rx_frame[..];
        if let Ok(compressed) = rx::Compressed::parse(&mut rest) {
            let mut again = Vec::new();
            compressed.emit(&mut again);
            prop_assert_eq!(&again[..], &rx_frame[..rx_frame.len() - rest.len()]);
        }
        let tcp_frame = [&[0x80 | frame[0]][..], &frame[1..]].concat();
        let mut rest = &tcp_frame[..];
        if let Ok(compressed) = tcp::Compressed::parse(&mut rest) {
            let mut again = Vec::new();
            compressed.emit(&mut again);
            prop_assert_eq!(&again[..], &tcp_frame[..tcp_frame.len() - rest.len()]);
        }
    }
}

// ---- loss and damage ----

/// Calls of a server, one after the other on each of some connections: data of many lengths, with
/// serial numbers and identifications that other packets of the host use up, too.
struct Calls {
    rng: ChaCha8Rng,
    identification: u16,
    headers: Vec<Header>,
    left: Vec<u32>,
}

impl Calls {
    fn new(seed: u64, connections: u32) -> Self {
        let header = |n: u32| Header { connection: 4 * n, sequence: 0, ..RX };
        Calls {
            rng: ChaCha8Rng::seed_from_u64(seed),
            identification: 0,
            headers: (0..connections).map(header).collect(),
            left: vec![0; connections as usize],
        }
    }

    fn next(&mut self) -> Vec<u8> {
        let n = self.rng.random_range(0..self.headers.len());
        let (header, left) = (&mut self.headers[n], &mut self.left[n]);
        if *left == 0 {
            *left = self.rng.random_range(1..40);
            (header.call, header.sequence) = (header.call + 1, 0);
        }
        *left -= 1;
        header.sequence += 1;
        header.serial += if self.rng.random_bool(0.1) { 2 } else { 1 };
        header.flags = Flags(if *left == 0 { 4 } else { 2 * u8::from(header.sequence.is_multiple_of(4)) });
        self.identification = self.identification.wrapping_add(self.rng.random_range(1..3));
        let data = vec![self.rng.random::<u8>(); self.rng.random_range(0..100)];
        rx_packet(self.identification, *header, &data)
    }
}

/// Frames that are damaged: each a packet's own, dropped, or with a byte lost, doubled or changed.
fn damaged(rng: &mut ChaCha8Rng, mut frame: Vec<u8>) -> Option<Vec<u8>> {
    let at = rng.random_range(0..frame.len());
    match rng.random_range(0..4) {
        0 => return None,
        1 => {
            frame.remove(at);
        }
        2 => frame.insert(at, frame[at]),
        _ => frame[at] ^= 1 << rng.random_range(0..8),
    }
    Some(frame)
}

/// Restored wrongly, and which of these have the checksum of a right one.
fn wrong_and_unseen(text: &str, seed: u64, share: f64) -> (u64, u64) {
    let (mut near, mut far) = ends(text);
    let mut calls = Calls::new(seed, 3);
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
    let (mut wrong, mut unseen) = (0, 0);
    for _ in 0..4000 {
        let packet = calls.next();
        let frame = near.compress(&packet).expect("IPv4").bytes;
        let frame = if rng.random_bool(share) { damaged(&mut rng, frame) } else { Some(frame) };
        let Some(restored) = frame.and_then(|frame| far.expand(&frame).ok()) else { continue };
        if is_other(&restored, &packet) {
            wrong += 1;
            unseen += u64::from(is_valid(&restored));
        }
    }
    (wrong, unseen)
}

/// True if packets differ in what the checksum of UDP is over: in more than the identification.
fn is_other(one: &[u8], other: &[u8]) -> bool {
    let checked = |packet: &[u8]| [&packet[..4], &packet[6..10], &packet[12..]].concat();
    checked(one) != checked(other)
}

/// The checksum has 16 bits, and differences of small numbers cancel out more often than random
/// ones would.
#[test]
fn what_is_restored_wrongly_has_a_wrong_checksum() {
    for text in ["rx", "rx:2", "rx,typed"] {
        let (mut wrong, mut unseen) = (0, 0);
        for seed in 0..20 {
            let (w, u) = wrong_and_unseen(text, seed, 0.01);
            (wrong, unseen) = (wrong + w, unseen + u);
        }
        assert!(wrong > 500, "{text}: {wrong}");
        assert!(1000 * unseen <= wrong, "{text}: {unseen} of {wrong}");
    }
}

/// A window of fifteen packets behind one that is lost is lost with it. As it is sent again, all
/// comes right.
#[test]
fn a_lost_frame_costs_what_follows_until_something_is_sent_again() {
    let (mut near, mut far) = ends("rx");
    let mut serial = 0;
    let mut send = |sequence: u32, is_lost: bool| {
        serial += 1;
        let packet = rx_packet(serial as u16, Header { serial, sequence, ..RX }, b"data");
        let frame = near.compress(&packet).expect("IPv4");
        if is_lost {
            return (frame.form, false);
        }
        let restored = far.expand(&frame.bytes);
        let is_right = restored.as_ref() == Ok(&packet);
        assert!(is_right || !restored.is_ok_and(|restored| is_valid(&restored)));
        (frame.form, is_right)
    };
    let first: Vec<_> = (1..=5).map(|sequence| send(sequence, false)).collect();
    assert_eq!((first[0].0, first[4].0), (Form::Whole, Form::Compressed));
    assert!(first.iter().all(|(_, is_right)| *is_right));
    assert_eq!(send(6, true).0, Form::Compressed);
    assert!((7..=20).all(|sequence| send(sequence, false) == (Form::Compressed, false)));
    // The number jumps back: whole headers.
    assert_eq!(send(6, false), (Form::Whole, true));
    assert!((7..=20).all(|sequence| send(sequence, false) == (Form::Compressed, true)));
    assert!((21..=30).all(|sequence| send(sequence, false) == (Form::Compressed, true)));
}

/// Each exchange of Rx that a lost frame could stop: what its sender repeats has whole headers.
#[test]
fn whatever_is_repeated_has_whole_headers() {
    let beyond = [1; 3];
    let ack = |first: u32| Ack {
        buffer_packets: 9,
        skew: 0,
        first,
        previous: 1,
        serial: 1,
        reason: Reason::Requested,
        beyond: &beyond,
        trailer: &[],
    };
    let (client, status) = (Flags(5), Header { kind: Type::Ack, sequence: 0, ..RX });
    let next = Header { call: 2, flags: client, ..RX };
    for (first, then, again) in [
        // A request of one packet, in a call behind another.
        ((RX, Body::Data(b"a")), (next, Body::Data(b"b")), (next, Body::Data(b"b"))),
        // An acknowledgement.
        ((status, Body::Ack(ack(2))), (status, Body::Ack(ack(5))), (status, Body::Ack(ack(5)))),
        // One that knows less.
        ((status, Body::Ack(ack(2))), (status, Body::Ack(ack(5))), (status, Body::Ack(ack(4)))),
        // A challenge, a response, an error.
        ((RX, Body::Data(b"a")), (RX, Body::Challenge(b"c")), (RX, Body::Challenge(b"d"))),
        ((RX, Body::Data(b"a")), (RX, Body::Response(b"c")), (RX, Body::Response(b"c"))),
        ((RX, Body::Data(b"a")), (RX, Body::Abort(1)), (RX, Body::Abort(1))),
    ] {
        let (mut near, mut far) = ends("rx");
        let mut serial = 0;
        let mut send = |(header, body): (Header, Body<'_>), is_lost: bool| {
            serial += 1;
            let packet = udp(7001, serial as u16, &Packet::new(Header { serial, ..header }, body).to_bytes());
            let frame = near.compress(&packet).expect("IPv4");
            (frame.form, is_lost || far.expand(&frame.bytes) == Ok(packet))
        };
        assert_eq!(send(first, false), (Form::Whole, true));
        assert_eq!(send(then, true), (Form::Compressed, true), "{then:?}");
        assert_eq!(send(again, false), (Form::Whole, true), "{again:?}");
    }
}

#[test]
fn tcp_that_is_sent_again_has_whole_headers() {
    let (mut near, mut far) = ends("vj");
    let mut identification = 0;
    let mut send = |sequence: u32, ack: u32, data: &[u8], is_lost: bool| {
        identification += 1;
        let packet = tcp_packet(99, identification, &Segment { sequence, ack, ..SEGMENT }, data);
        let frame = near.compress(&packet).expect("IPv4");
        (frame.form, is_lost || far.expand(&frame.bytes) == Ok(packet))
    };
    let data = [7; 100];
    assert_eq!(send(0, 1, &data, false), (Form::Whole, true));
    assert_eq!(send(100, 1, &data, true).0, Form::Compressed);
    assert_eq!(send(200, 1, &data, false), (Form::Compressed, false));
    assert_eq!(send(100, 1, &data, false), (Form::Whole, true));
    assert_eq!(send(200, 1, &data, false), (Form::Compressed, true));
    // An acknowledgement that is the same as the one before.
    assert_eq!(send(300, 1, &[], false), (Form::Compressed, true));
    assert_eq!(send(300, 1, &[], false), (Form::Whole, true));
}

/// Differences of small numbers cancel out. The last packet of a call of three was number 3; the
/// first of the next call is lost; its second would look like a fourth of the old one: call and
/// serial number are one too low each, the sequence number two too high.
#[test]
fn headers_that_the_checksum_would_not_tell_are_sent_whole() {
    for length in 1..=8 {
        for lost in 1..=3u32 {
            let (mut near, mut far) = ends("rx");
            let mut serial = 0;
            let mut send = |call: u32, sequence: u32, is_lost: bool| {
                serial += 1;
                let packet = rx_packet(serial as u16, Header { call, sequence, serial, ..RX }, b"data");
                let frame = near.compress(&packet).expect("IPv4");
                let restored = if is_lost { None } else { far.expand(&frame.bytes).ok() };
                assert!(restored.is_none_or(|restored| restored == packet || !is_valid(&restored)));
                frame.form
            };
            (1..=length).for_each(|sequence| _ = send(1, sequence, false));
            (1..=lost).for_each(|sequence| _ = send(2, sequence, true));
            let next = send(2, lost + 1, false);
            // Three packets, one loss: one is as much too high as two are too low.
            assert!((length, lost) != (3, 1) || next == Form::Whole);
            (lost + 2..=9).for_each(|sequence| _ = send(2, sequence, false));
        }
    }
}

// ---- links ----

fn link(text: &str) -> Link<Vec<u8>> {
    Link::new(text.parse::<LinkConfig>().expect("settings"), 7).expect("in range")
}

/// Data of one call with checksums, so many bytes each.
fn call(packets: u32, data_bytes: usize) -> Vec<Vec<u8>> {
    let header = |serial| Header { serial, sequence: serial, ..RX };
    (1..=packets).map(|n| rx_packet(n as u16, header(n), &vec![0; data_bytes])).collect()
}

/// Arrivals, each with its instant.
fn arrivals(link: &mut Link<Vec<u8>>, packets: &[Vec<u8>]) -> Vec<(u64, usize, Vec<u8>)> {
    for packet in packets {
        link.send(0, packet.clone(), packet.len());
    }
    let arrived = std::iter::from_fn(|| link.poll_delivery(u64::MAX / 2));
    arrived.map(|delivery| (delivery.due_ns, delivery.len, delivery.payload)).collect()
}

#[test]
fn a_link_transmits_frames_and_delivers_packets() {
    let packets = call(3, 520);
    let mut plain = link("rate=19200bit framing=slip");
    let mut compressed = link("rate=19200bit framing=slip compress=rx");
    let whole = arrivals(&mut plain, &packets);
    let arrived = arrivals(&mut compressed, &packets);
    assert!(arrived.iter().zip(&packets).all(|((_, len, got), sent)| got == sent && *len == sent.len()));
    // Ten bit times for each byte: two that frame it, 520 of data, and 56 or 4 of headers.
    let escapes = |bytes: &[u8]| bytes.iter().filter(|b| matches!(b, 0xc0 | 0xdb)).count();
    let bytes_of =
        |n: usize, headers: &[u8]| (522 + headers.len() + escapes(headers)) as u64 * (n as u64).min(1);
    let spans = |arrived: &[(u64, usize, Vec<u8>)]| {
        (1..3)
            .map(|n| (arrived[n].0 - arrived[n - 1].0) * 1920)
            .map(|b| (b + 500_000_000) / 1_000_000_000)
            .collect::<Vec<_>>()
    };
    let wanted: Vec<u64> = (1..3).map(|n| bytes_of(n, &packets[n][..56])).collect();
    assert_eq!(spans(&whole), wanted);
    let wanted: Vec<u64> =
        (1..3).map(|n| bytes_of(n, &[&[0x68, 0x40], &packets[n][26..28]].concat())).collect();
    assert_eq!(spans(&arrived), wanted);
    let stats = compressed.stats();
    assert_eq!((stats.whole_headers, stats.compressed_headers, stats.delivered), (1, 2, 3));
    assert_eq!((stats.restored_wrong, stats.dropped()), (0, 0));
}

#[test]
fn a_frame_that_a_link_loses_costs_those_behind_it() {
    let packets = call(20, 100);
    let mut lossy = link("compress=rx loss=places:5");
    let arrived = arrivals(&mut lossy, &packets);
    let right: Vec<usize> = (0..arrived.len()).filter(|n| packets.contains(&arrived[*n].2)).collect();
    assert_eq!((right, arrived.len()), (vec![0, 1, 2, 3], 19));
    assert!(arrived[4..].iter().all(|(.., packet)| !is_valid(packet)));
    assert_eq!((lossy.stats().restored_wrong, lossy.stats().dropped_loss), (15, 1));
    // The same without compression costs the packet that is lost.
    let mut plain = link("loss=places:5");
    let arrived = arrivals(&mut plain, &packets);
    assert!(arrived.len() == 19 && arrived.iter().all(|(.., packet)| packets.contains(packet)));
}

/// Whatever a link does to frames, a right packet is delivered right or not at all.
#[test]
fn damage_hits_the_frame() {
    let packets = call(400, 40);
    for text in [
        "compress=rx corrupt=0.05,3",
        "compress=rx,typed corrupt=0.05",
        "compress=rx loss=0.02 duplicate=0.02",
    ] {
        let mut link = link(text);
        let arrived = arrivals(&mut link, &packets);
        let mut valid = arrived.iter().filter(|(.., packet)| is_valid(packet)).peekable();
        assert!(valid.peek().is_some(), "{text}");
        let was_sent = |got: &[u8]| packets.iter().any(|sent| !is_other(sent, got));
        assert!(valid.all(|(.., got)| was_sent(got)), "{text}");
        let stats = link.stats();
        assert!(stats.restored_wrong > 0, "{text}: {stats:?}");
        assert_eq!(stats.packets_in + stats.duplicated, stats.delivered + stats.dropped(), "{text}");
    }
}

#[test]
fn a_link_takes_another_compression_while_frames_are_under_way() {
    let packets = call(6, 10);
    let mut link = link("delay=1s");
    for (n, change) in ["compress=rx", "compress=off", "compress=rx,typed"].iter().enumerate() {
        link.set(n as u64, &change.parse().expect("a change")).expect("in range");
        for packet in &packets[2 * n..2 * n + 2] {
            link.send(n as u64, packet.clone(), packet.len());
        }
    }
    let arrived: Vec<Vec<u8>> = std::iter::from_fn(|| link.poll(u64::MAX / 2)).collect();
    assert_eq!(arrived, packets);
    let stats = link.stats();
    assert_eq!((stats.whole_headers, stats.compressed_headers), (2, 2));
}

#[test]
fn a_line_without_types_drops_ipv6() {
    let ipv6 = [&[0x60, 0, 0, 0, 0, 0, 59, 64][..], &[1; 32]].concat();
    for (text, dropped) in [("compress=rx", 1), ("compress=vj", 0), ("compress=rx,typed", 0)] {
        let mut link = link(text);
        let arrived = arrivals(&mut link, core::slice::from_ref(&ipv6));
        assert_eq!(
            (arrived.len() as u64, link.stats().dropped_compression),
            (1 - dropped, dropped),
            "{text}"
        );
    }
}
