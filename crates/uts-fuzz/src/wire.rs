//! Packets, headers, frames, hellos and profiles: what is read is emitted, and read again as the
//! same.

use uts_functions::{Choice, Function, Params, Profile};
use uts_wire::packet::*;
use uts_wire::*;

/// An error names a byte that is there (or the end), and says what would have been right.
fn check(error: WireError, bytes: &[u8]) {
    assert!(error.at <= bytes.len(), "{error} lies outside {} bytes", bytes.len());
    assert!(!error.to_string().is_empty());
    if let Problem::Truncated { needed, left } = error.problem {
        assert!(needed > left as u64, "{error}");
    }
}

pub fn frames(bytes: &[u8]) {
    let mut again = Vec::new();
    let mut frames = Vec::new();
    for frame in FrameIter::new(bytes) {
        match frame {
            Ok(frame) => {
                let before = again.len();
                frame.emit(&mut again);
                assert_eq!(again.len() - before, frame.encoded_len());
                check_bounds(&frame);
                frames.push(frame);
            }
            Err(error) => check(error, bytes),
        }
    }
    assert!(frames.len() <= bytes.len());
    assert_eq!(FrameIter::new(&again).collect::<Result<Vec<_>, _>>(), Ok(frames));
}

fn check_bounds(frame: &Frame<'_>) {
    match frame {
        Frame::Ack(ack) => check_ranges(&ack.ranges),
        Frame::Repaired(ranges) => check_ranges(ranges),
        Frame::Repair(repair) => {
            let packets: Vec<u64> = repair.packets().collect();
            assert!((1..=256).contains(&packets.len()) && packets.windows(2).all(|w| w[0] < w[1]));
        }
        Frame::Data(data) => {
            let end = data.offset.unwrap_or(0).checked_add(data.bytes.len() as u64);
            assert!(end.is_some_and(|end| end <= MAX_POSITION), "{data:?}");
        }
        _ => {}
    }
}

/// P-23: from the largest down, none empty, no two touching.
fn check_ranges(ranges: &frame::AckRanges<'_>) {
    let list: Vec<_> = ranges.iter().collect();
    assert_eq!(list.len(), ranges.count());
    assert!(list.len() <= frame::MAX_ACK_RANGES && list.iter().all(|r| r.start < r.end));
    assert!(list.windows(2).all(|w| w[1].end < w[0].start), "{list:?}");
}

/// P-19: packets one behind the other, and at most one adaptive packet at the end.
pub fn header(bytes: &[u8]) {
    let mut rest = bytes;
    while rest.first().is_some_and(|first| is_long(*first)) {
        let Some(end) = long(rest) else { break };
        assert!(end > 0 && end <= rest.len());
        rest = &rest[end..];
    }
    short(bytes);
    match StatelessReset::parse(bytes) {
        Ok(reset) => {
            let mut out = Vec::new();
            reset.emit(&mut out).expect("long enough");
            assert_eq!(out, bytes);
        }
        Err(error) => check(error, bytes),
    }
}

/// Where the packet ends, if another may follow.
fn long(bytes: &[u8]) -> Option<usize> {
    match parse_header(bytes) {
        Ok(LongPacket::Establishment(packet)) => {
            assert!(packet.range.end <= bytes.len() && packet.pn_offset < packet.range.end);
            assert!(sample(&bytes[packet.range.clone()], packet.pn_offset).is_ok());
            let mut copy = bytes.to_vec();
            let number =
                establishment::unmask_number(&mut copy, packet.pn_offset, &[0x5a; 5]).expect("there");
            let mut out = Vec::new();
            let mark = packet.header.emit(number, &mut out);
            out.extend_from_slice(&bytes[packet.body()]);
            mark.set_length(&mut out, 0).expect("no longer than it came");
            mask_number(&mut out[mark.pn_offset..mark.body_offset()], &[0x5a; 5]);
            let LongPacket::Establishment(again) = parse_header(&out).expect("ours") else {
                panic!("another kind")
            };
            assert_eq!(
                (again.header, &out[again.pn_offset..]),
                (packet.header, &bytes[packet.pn_offset..packet.range.end])
            );
            Some(packet.range.end)
        }
        Ok(LongPacket::Retry(retry)) => {
            let mut out = Vec::new();
            retry.emit(&mut out);
            assert_eq!(out, bytes);
            None
        }
        Ok(LongPacket::VersionRefusal(refusal)) => {
            let mut out = Vec::new();
            refusal.emit(&mut out);
            assert_eq!(out[1..], bytes[1..]);
            None
        }
        Ok(LongPacket::OtherVersion(other)) => {
            assert!(other.version != VERSION && other.version != 0);
            None
        }
        Err(error) => {
            check(error, bytes);
            None
        }
    }
}

fn short(bytes: &[u8]) {
    for cid_len in [0, 4, 8, 20, 21, 300] {
        match AdaptiveHeader::parse(bytes, cid_len) {
            Ok((header, pn_offset)) => {
                assert_eq!(header.dcid.len(), cid_len);
                let mut copy = bytes.to_vec();
                if let Ok(number) = adaptive::unmask(&mut copy, pn_offset, &[0; 5]) {
                    let mut out = Vec::new();
                    header.emit(number, &mut out);
                    assert!(bytes.starts_with(&out));
                    assert!(number.expand(MAX_POSITION) <= MAX_POSITION);
                }
            }
            Err(error) => check(error, bytes),
        }
    }
}

pub fn chain(bytes: &[u8]) {
    match parse_body(bytes) {
        Ok(body) => {
            assert!(body.chain.headers().len() <= chain::MAX_HEADERS);
            let mut out = Vec::new();
            body.emit(&mut out);
            // P-11 to P-15: there is one way to write a body.
            assert_eq!(out, bytes);
        }
        Err(error) => check(error, bytes),
    }
}

pub fn hello(bytes: &[u8]) {
    for from in [End::Client, End::Server] {
        match Hello::parse(bytes, from) {
            Ok(hello) => {
                let mut out = Vec::new();
                hello.emit(&mut out);
                assert!(out.len() <= library::MAX_HELLO_BYTES && out.len() == hello.encoded_len());
                assert!(hello.service.len() <= library::MAX_SERVICE_BYTES);
                assert_eq!(Hello::parse(&out, from), Ok(hello));
            }
            Err(error) => check(error, bytes),
        }
    }
}

pub fn profile(bytes: &[u8]) {
    match WireProfile::read(&mut Reader::new(bytes)) {
        Ok(wire) => {
            let mut out = Vec::new();
            wire.emit(&mut out);
            judge(&wire);
            assert_eq!(WireProfile::read(&mut Reader::new(&out)), Ok(wire));
        }
        Err(error) => check(error, bytes),
    }
}

/// A profile that this library accepts has a mechanism in each slot. If it does not accept one, it
/// can say why.
fn judge(wire: &WireProfile) {
    let mut profile = Profile::bare();
    for choice in wire.choices() {
        if let Some(function) = Function::from_number(choice.function) {
            profile.set(function, Choice { number: choice.mechanism, params: Params(choice.params) });
        }
    }
    match profile.check() {
        Ok(()) => assert!(Function::ALL.iter().all(|f| profile.mechanism(*f).is_some())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert!(Profile::bare().changes_to(&profile).is_empty() == (profile == Profile::bare()));
}
