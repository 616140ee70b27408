//! Any bytes: no parser panics, every error stays inside the input, and what does parse is a value
//! that emits and reads back as itself.

use crate::common::*;
use proptest::prelude::*;
use proptest::sample::Index;
use uts_wire::packet::*;
use uts_wire::*;

/// Runs every parser over `bytes`.
fn read_all(bytes: &[u8]) {
    read_frames(bytes);
    read_long(bytes);
    read_body(bytes);
    read_short(bytes);
    read_hello(bytes);
    let mut r = Reader::new(bytes);
    match WireProfile::read(&mut r) {
        Ok(profile) => {
            let mut out = Vec::new();
            profile.emit(&mut out);
            assert_eq!(WireProfile::read(&mut Reader::new(&out)), Ok(profile));
        }
        Err(error) => check(error, bytes),
    }
}

fn check(error: WireError, bytes: &[u8]) {
    assert!(error.at <= bytes.len(), "{error} lies outside {} bytes", bytes.len());
    assert!(!error.to_string().is_empty());
    if let Problem::Truncated { needed, left } = error.problem {
        assert!(needed > left as u64, "{error}");
    }
}

fn read_frames(bytes: &[u8]) {
    let mut again = Vec::new();
    let mut frames = Vec::new();
    let mut used = 0;
    for frame in FrameIter::new(bytes) {
        match frame {
            Ok(frame) => {
                frame.emit(&mut again);
                used += 1;
                if let Frame::Ack(ack) = &frame {
                    assert_eq!(ack.ranges.iter().count(), ack.ranges.count());
                }
                if let Frame::Repair(repair) = &frame {
                    assert!(repair.packets().next().is_some());
                }
                frames.push(frame);
            }
            Err(error) => check(error, bytes),
        }
    }
    assert!(used <= bytes.len());
    assert_eq!(FrameIter::new(&again).collect::<Result<Vec<_>, _>>(), Ok(frames));
}

fn read_long(bytes: &[u8]) {
    match parse_header(bytes) {
        Ok(LongPacket::Establishment(packet)) => {
            assert!(packet.range.end <= bytes.len() && packet.pn_offset < packet.range.end);
            assert!(sample(&bytes[packet.range.clone()], packet.pn_offset).is_ok());
            let mut copy = bytes.to_vec();
            assert!(establishment::unmask_number(&mut copy, packet.pn_offset, &[0; 5]).is_ok());
            read_body(&bytes[packet.body()]);
        }
        Ok(LongPacket::Retry(retry)) => {
            let mut out = Vec::new();
            retry.emit(&mut out);
            assert_eq!(out, bytes);
        }
        Ok(LongPacket::VersionRefusal(refusal)) => {
            let mut out = Vec::new();
            refusal.emit(&mut out);
            assert_eq!(out[1..], bytes[1..]);
        }
        Ok(LongPacket::OtherVersion(other)) => assert!(other.version != VERSION && other.version != 0),
        Err(error) => check(error, bytes),
    }
}

fn read_body(bytes: &[u8]) {
    match parse_body(bytes) {
        Ok(body) => {
            let mut out = Vec::new();
            body.emit(&mut out);
            assert_eq!(out, bytes);
        }
        Err(error) => check(error, bytes),
    }
}

fn read_short(bytes: &[u8]) {
    for cid_len in [0, 4, 20, 21, 300] {
        match AdaptiveHeader::parse(bytes, cid_len) {
            Ok((header, pn_offset)) => {
                assert_eq!(header.dcid.len(), cid_len);
                let mut copy = bytes.to_vec();
                if let Ok(number) = adaptive::unmask(&mut copy, pn_offset, &[0; 5]) {
                    let mut out = Vec::new();
                    header.emit(number, &mut out);
                    assert!(bytes.starts_with(&out));
                }
            }
            Err(error) => check(error, bytes),
        }
    }
    if let Err(error) = StatelessReset::parse(bytes) {
        check(error, bytes);
    }
}

fn read_hello(bytes: &[u8]) {
    for from in [End::Client, End::Server] {
        match Hello::parse(bytes, from) {
            Ok(hello) => {
                let mut out = Vec::new();
                hello.emit(&mut out);
                assert_eq!(Hello::parse(&out, from), Ok(hello));
            }
            Err(error) => check(error, bytes),
        }
    }
}

/// A damage: a flipped bit, a changed byte, a cut, an insertion, or a piece doubled.
#[derive(Debug, Clone)]
enum Damage {
    Flip(Index, u8),
    Set(Index, u8),
    Cut(Index),
    Insert(Index, Vec<u8>),
    Remove(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => (any::<Index>(), 0u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        2 => (any::<Index>(), any::<u8>()).prop_map(|(at, value)| Damage::Set(at, value)),
        1 => any::<Index>().prop_map(Damage::Cut),
        1 => (any::<Index>(), prop::collection::vec(any::<u8>(), 1..6)).prop_map(|(at, b)| Damage::Insert(at, b)),
        1 => any::<Index>().prop_map(Damage::Remove),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    if bytes.is_empty() {
        return;
    }
    let place = |at: &Index| at.index(bytes.len());
    match damage {
        Damage::Flip(at, bit) => {
            let at = place(at);
            bytes[at] ^= 1 << bit;
        }
        Damage::Set(at, value) => {
            let at = place(at);
            bytes[at] = *value;
        }
        Damage::Cut(at) => bytes.truncate(place(at)),
        Damage::Insert(at, more) => {
            let at = place(at);
            bytes.splice(at..at, more.iter().copied());
        }
        Damage::Remove(at) => {
            bytes.remove(place(at));
        }
    }
}

/// A valid encoding of any kind.
fn valid() -> impl Strategy<Value = Vec<u8>> {
    let packet =
        (establishment_header(), establishment_body(), any::<u32>()).prop_map(|(header, body, number)| {
            let mut out = Vec::new();
            let mark = header.emit(number, &mut out);
            body.emit(&mut out);
            mark.set_length(&mut out, 16).expect("short enough");
            out.extend_from_slice(&[0; 16]);
            out
        });
    prop_oneof![
        payload().prop_map(|frames| {
            let mut out = Vec::new();
            frames.iter().for_each(|frame| frame.emit(&mut out));
            out
        }),
        packet,
        establishment_body().prop_map(|body| {
            let mut out = Vec::new();
            body.emit(&mut out);
            out
        }),
        retry().prop_map(|retry| {
            let mut out = Vec::new();
            retry.emit(&mut out);
            out
        }),
        refusal().prop_map(|refusal| {
            let mut out = Vec::new();
            refusal.emit(&mut out);
            out
        }),
        hello().prop_map(|(_, hello)| {
            let mut out = Vec::new();
            hello.emit(&mut out);
            out
        }),
    ]
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: config().cases.max(2000), ..config() })]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_all(&bytes);
    }

    /// Small values, so that types, counts and lengths are often plausible.
    #[test]
    fn small_bytes(bytes in prop::collection::vec(prop_oneof![0u8..0x1d, 0x40u8..0x80, any::<u8>()], 0..80)) {
        read_all(&bytes);
    }

    #[test]
    fn our_version_then_random_bytes(kind in 0x80u8..0x84, tail in prop::collection::vec(prop_oneof![0u8..24, any::<u8>()], 0..100)) {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&tail);
        read_all(&bytes);
    }

    #[test]
    fn damaged(mut bytes in valid(), damages in prop::collection::vec(damage(), 1..5)) {
        for damage in &damages {
            apply(&mut bytes, damage);
            read_all(&bytes);
        }
    }

    #[test]
    fn any_cursor_moves(bytes in prop::collection::vec(any::<u8>(), 0..40), moves in prop::collection::vec(0u8..10, 0..20)) {
        let mut r = Reader::new(&bytes);
        let mut taken_from_the_end = 0;
        for step in moves {
            let outcome = match step {
                0 => r.u8("x").map(u64::from),
                1 => r.u16("x").map(u64::from),
                2 => r.u32("x").map(u64::from),
                3 => r.u64("x"),
                4 => r.varint("x"),
                5 => r.prefixed(7, "x").map(|b| b.len() as u64),
                6 => r.text(7, "x").map(|b| b.len() as u64),
                7 => r.bytes(u64::MAX, "x").map(|b| b.len() as u64),
                8 => r.bytes_back(2, "x").map(|b| { taken_from_the_end += b.len(); 0 }),
                _ => r.varint_u32("x").map(u64::from),
            };
            if let Err(error) = outcome {
                check(error, &bytes);
            }
            prop_assert_eq!(r.offset() + r.remaining() + taken_from_the_end, bytes.len());
        }
    }

    #[test]
    fn any_number_expands_to_a_packet_number(value: u64, len: u8, expected: u64) {
        let number = TruncatedNumber::with_len(value, len);
        let full = number.expand(expected);
        prop_assert!(full <= MAX_POSITION);
        prop_assert_eq!(TruncatedNumber::with_len(full, number.len() as u8), number);
    }
}
