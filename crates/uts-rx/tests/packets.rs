//! Vectors of our own, what is refused, and that what is read is emitted as the same bytes.

use proptest::prelude::*;
use uts_rx::*;

const HEADER: Header = Header {
    epoch: 0x6530_1020,
    connection: 0x8000_0ab6,
    call: 7,
    sequence: 3,
    serial: 0x0102_0304,
    kind: Type::Data,
    flags: Flags(0x0b),
    status: 0,
    security: 2,
    verifier: 0xbeef,
    service: 1,
};

/// As OpenAFS lays it out: in the last word the verifier stands first.
const HEADER_BYTES_EXPECTED: [u8; HEADER_BYTES] = [
    0x65, 0x30, 0x10, 0x20, // epoch
    0x80, 0x00, 0x0a, 0xb6, // connection
    0, 0, 0, 7, // call
    0, 0, 0, 3, // sequence
    1, 2, 3, 4, // serial
    1, 0x0b, 0, 2, // type, flags, status, security
    0xbe, 0xef, 0, 1, // verifier, service
];

fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = HEADER_BYTES_EXPECTED.to_vec();
    bytes[20] = kind;
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn a_header_has_the_layout_of_the_wire() {
    assert_eq!(HEADER.to_bytes(), HEADER_BYTES_EXPECTED);
    assert_eq!(Header::parse(&HEADER_BYTES_EXPECTED), Ok(HEADER));
    assert_eq!(HEADER.channel(), 2);
    let flags = HEADER.flags;
    assert!(flags.has(Flags::FROM_CLIENT.with(Flags::REQUEST_ACK)) && !flags.has(Flags::LAST));
    assert_eq!(flags.without(Flags::MORE), Flags(3));
}

#[test]
fn an_acknowledgement_has_the_layout_of_the_wire() {
    let body = [
        0, 20, 0, 1, // buffers, skew
        0, 0, 0, 5, // first
        0, 0, 0, 8, // previous
        1, 2, 3, 3, // serial
        1, 4, // reason, count
        0, 1, 0, 1, // packets 5 to 8
        0, 0, 0, // padding
        0, 0, 0x05, 0xa4, // 1444 bytes at most
        0, 0, 0x05, 0xa4, //
        0, 0, 0, 32, // packets
        0, 0, 0, 1, // in one datagram
    ];
    let bytes = packet(2, &body);
    let packet = Packet::parse(&bytes).expect("an acknowledgement");
    let Body::Ack(ack) = packet.body() else { panic!("an acknowledgement") };
    assert_eq!((ack.buffer_packets, ack.skew, ack.first, ack.previous), (20, 1, 5, 8));
    assert_eq!((ack.serial, ack.reason), (0x0102_0303, Reason::Requested));
    assert_eq!(ack.arrived().collect::<Vec<_>>(), [6, 8]);
    let limits = Limits {
        receive_bytes_max: Some(1444),
        interface_bytes_max: Some(1444),
        window_packets: Some(32),
        jumbo_packets: Some(1),
    };
    assert_eq!((ack.limits(), &limits.to_bytes()[..]), (limits, ack.trailer));
    assert_eq!(packet.to_bytes(), bytes);
    // Older implementations end before that.
    for (cut, window) in [(0, Some(32)), (4, Some(32)), (5, None), (8, None), (16, None), (19, None)] {
        let bytes = &bytes[..bytes.len() - cut];
        let packet = Packet::parse(bytes).expect("an acknowledgement");
        let Body::Ack(ack) = packet.body() else { panic!("an acknowledgement") };
        assert_eq!((ack.limits().window_packets, packet.to_bytes()), (window, bytes.to_vec()));
    }
}

#[test]
fn each_type_has_its_body() {
    let some = [9, 8, 7, 6];
    for (kind, body) in [
        (1, Body::Data(&some)),
        (3, Body::Busy(&[])),
        (4, Body::Abort(-3)),
        (5, Body::AckAll(&[])),
        (6, Body::Challenge(&some)),
        (7, Body::Response(&some)),
        (8, Body::Debug(&some)),
        (13, Body::Version(&some)),
    ] {
        let bytes = Packet::new(HEADER, body).to_bytes();
        assert_eq!(bytes[20], kind);
        assert_eq!(Packet::parse(&bytes), Ok(Packet::new(HEADER, body)));
    }
    assert_eq!(Packet::new(HEADER, Body::Abort(-3)).to_bytes()[28..], [0xff, 0xff, 0xff, 0xfd]);
}

#[test]
fn errors_name_the_field_and_the_byte() {
    for (bytes, wanted) in [
        (packet(1, &[])[..27].to_vec(), "service at byte 26: needs 2 bytes, has 1"),
        (packet(9, &[]), "type at byte 20: unknown type 0x9"),
        (packet(4, &[0, 0, 1]), "code of the error at byte 28: needs 4 bytes, has 3"),
        (packet(4, &[0; 5]), "packet at byte 32: 1 bytes follow its end"),
        (packet(2, &[0; 17]), "reason at byte 44: unknown type 0x0"),
        (
            packet(2, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 1, 1]),
            "packets that have arrived at byte 46: needs 3 bytes, has 2",
        ),
    ] {
        assert_eq!(Packet::parse(&bytes).map_err(|error| error.to_string()), Err(wanted.to_owned()));
    }
}

#[test]
fn a_jumbogram_holds_packets_with_flags_of_their_own() {
    let (first, second) = ([1; JUMBO_BYTES], [2; 100]);
    let jumbo = Header { flags: Flags::JUMBO.with(Flags::FROM_CLIENT), ..HEADER };
    let body = [&first[..], &[4, 0, 0xca, 0xfe], &second].concat();
    let packet = Packet::new(jumbo, Body::Data(&body));
    let last = Header { sequence: 4, serial: 0x0102_0305, flags: Flags(4), verifier: 0xcafe, ..jumbo };
    assert_eq!(Segments::of(&packet).collect::<Vec<_>>(), [(jumbo, &first[..]), (last, &second[..])]);
    // One that is cut off, and what is none.
    let cut = Packet::new(jumbo, Body::Data(&body[..JUMBO_BYTES + 3]));
    assert_eq!(Segments::of(&cut).collect::<Vec<_>>(), [(jumbo, &first[..])]);
    let plain = Packet::new(HEADER, Body::Data(&body));
    assert_eq!(Segments::of(&plain).collect::<Vec<_>>(), [(HEADER, &body[..])]);
    assert_eq!(Segments::of(&Packet::new(HEADER, Body::Busy(&[]))).count(), 0);
}

proptest! {
    #[test]
    fn whatever_is_read_is_emitted_as_the_same_bytes(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        kind in 0u8..16,
        reason in 0u8..11,
        count in 0u8..6,
    ) {
        for (at, value) in [(20, kind), (44, reason), (45, count)] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        match Packet::parse(&bytes) {
            Ok(packet) => {
                prop_assert_eq!(packet.to_bytes(), bytes.clone());
                prop_assert!(Segments::of(&packet).count() <= 1 + bytes.len() / 4);
            }
            Err(error) => prop_assert!(error.at <= bytes.len() && !error.to_string().is_empty()),
        }
    }
}

/// Datagrams that OpenAFS 1.8.9 has sent, from a client (`>`) and from a server (`<`), in hex:
/// calls of 1 to 1,000,000 bytes and one that the server ends with error 42.
#[test]
fn packets_of_openafs_are_read_and_emitted_as_they_were() {
    let mut kinds = Vec::new();
    for line in include_str!("openafs.hex").lines() {
        let (from, hex) = line.split_once(' ').expect("a direction and bytes");
        let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
        let packet = Packet::parse(&bytes).expect("of Rx");
        assert_eq!(packet.to_bytes(), bytes);
        let header = packet.header();
        assert_eq!((header.service, header.verifier, header.security), (147, 0, 0), "{line}");
        assert_eq!(header.flags.has(Flags::FROM_CLIENT), from == ">");
        kinds.push(header.kind);
        match packet.body() {
            Body::Ack(ack) => {
                let limits = ack.limits();
                assert_eq!((limits.receive_bytes_max, limits.interface_bytes_max), (Some(5692), Some(1444)));
                assert!(limits.window_packets.is_some() && limits.jumbo_packets == Some(4));
                assert_eq!(ack.arrived().count(), ack.beyond.len());
            }
            Body::Abort(code) => assert_eq!(*code, 42),
            _ => {}
        }
        let segments: Vec<_> = Segments::of(&packet).collect();
        if header.flags.has(Flags::JUMBO) && header.kind == Type::Data {
            let sequences: Vec<u32> = segments.iter().map(|(header, _)| header.sequence).collect();
            assert_eq!(sequences, (header.sequence..header.sequence + 4).collect::<Vec<_>>());
            assert!(segments.iter().all(|(_, bytes)| bytes.len() == JUMBO_BYTES));
        } else {
            assert_eq!(segments.len(), usize::from(header.kind == Type::Data));
        }
    }
    for kind in [Type::Data, Type::Ack, Type::Abort] {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
}
