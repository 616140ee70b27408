//! Round trips over any sequence of packets and frames.

use super::*;
use proptest::prelude::*;
use uts_path::compression::{rx, tcp};
use uts_rx::{Ack, Reason};

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
