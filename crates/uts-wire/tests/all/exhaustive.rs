//! Formats that are small enough to try out whole: varints, packet numbers, acknowledged ranges,
//! and bodies with their trailers.

use std::ops::Range;
use uts_wire::frame::{Frame, MAX_ACK_RANGES, emit_ack};
use uts_wire::packet::{EstablishmentBody, FunctionHeader, HeaderChain, TruncatedNumber, parse_body};
use uts_wire::varint::{VARINT_MAX, put_varint, varint_len};
use uts_wire::{FrameIter, MAX_POSITION, Reader};

/// Values around every power of two, and all small ones.
fn values() -> impl Iterator<Item = u64> {
    let around =
        (0..62).flat_map(|bit| (0..9u64).filter_map(move |d| (1u64 << bit).checked_add(d)?.checked_sub(4)));
    (0..1 << 16).chain(around).chain([VARINT_MAX]).filter(|value| *value <= VARINT_MAX)
}

/// P-1: the shortest form reads as the value, and takes 1, 2, 4 or 8 bytes.
#[test]
fn every_value_has_a_shortest_form() {
    for value in values() {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        assert_eq!(out.len(), varint_len(value), "{value}");
        let bits = 8 * out.len() as u32 - 2;
        assert!(value < 1 << bits && (out.len() == 1 || value >= 1 << (bits.div_ceil(2) - 1)), "{value}");
        let mut r = Reader::new(&out);
        assert_eq!((r.varint("x"), r.remaining()), (Ok(value), 0));
        for cut in 0..out.len() {
            assert!(Reader::new(&out[..cut]).varint("x").is_err(), "{value}, {cut} bytes");
        }
    }
}

/// P-1: every form, the longer ones too, reads as RFC 9000 section 16 says, and takes no byte of
/// what follows.
#[test]
fn every_first_byte_is_read_as_the_rfc_says() {
    for first in 0..=255u8 {
        for second in 0..=255u8 {
            let bytes = [first, second, 3, 5, 7, 11, 13, 17, 19];
            let len = 1 << (first >> 6);
            let value = bytes[1..len]
                .iter()
                .fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
            let mut r = Reader::new(&bytes);
            assert_eq!((r.varint("x"), r.offset()), (Ok(value), len));
        }
    }
}

/// P-5: within half a window of what is expected, a number is completed to itself, also at the ends
/// of the space.
#[test]
fn a_number_within_half_a_window_is_completed_to_itself() {
    let far = [0, 1 << 16, 1 << 32, MAX_POSITION / 2, MAX_POSITION - (1 << 17)];
    for (len, window) in [(1u8, 1u64 << 8), (2, 1 << 16), (3, 1 << 24), (4, 1 << 32)] {
        for base in far {
            for step in 0..600 {
                let expected = (base + step).min(MAX_POSITION);
                // All distances where the window is small, a part of them where it is not.
                let stride = (window / 512).max(1) as usize;
                for distance in (0..window).step_by(stride).chain([window / 2, window / 2 + 1, window - 1]) {
                    // RFC 9000, A.3: more than half below, up to half above.
                    let Some(full) = (expected + distance).checked_sub(window / 2 - 1) else { continue };
                    if distance < window && full <= MAX_POSITION {
                        let number = TruncatedNumber::with_len(full, len);
                        assert_eq!(number.expand(expected), full, "{len} bytes, {expected} expected");
                    }
                }
            }
        }
    }
}

/// P-5: whatever has arrived since the sender heard of it last, the length that it takes is enough.
#[test]
fn the_length_that_a_sender_takes_is_always_enough() {
    for acked in [None].into_iter().chain((0..120).map(Some)) {
        let first = acked.map_or(0, |acked| acked + 1);
        for full in first..first + 300 {
            let number = TruncatedNumber::of(full, acked);
            // The receiver has all up to some number below, or is ahead by as many as are in
            // flight.
            for received in acked.unwrap_or(0)..full {
                assert_eq!(number.expand(received + 1), full, "{acked:?} acknowledged, {received} received");
            }
        }
    }
    for acked in [0u64, 77, 1 << 20, 1 << 40] {
        for unacked in
            (0..31).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]).filter(|n| *n > 0)
        {
            let number = TruncatedNumber::of(acked + unacked, Some(acked));
            assert!(
                1u64 << (8 * number.len()) >= 2 * unacked,
                "{unacked} unacknowledged: {} bytes",
                number.len()
            );
            assert_eq!(number.expand(acked + 1), acked + unacked);
        }
    }
}

/// The ranges of the numbers whose bits are set, from the largest down.
fn ranges(set: u32) -> Vec<Range<u64>> {
    let mut list: Vec<Range<u64>> = Vec::new();
    for number in (0..32u64).rev().filter(|number| set >> number & 1 == 1) {
        match list.last_mut() {
            Some(last) if last.start == number + 1 => last.start = number,
            _ => list.push(number..number + 1),
        }
    }
    list
}

/// P-23: every set of numbers below 13 comes back, or as many of its ranges as there is room for,
/// the newest first.
#[test]
fn every_set_of_small_numbers_is_acknowledged() {
    for set in 1..1u32 << 13 {
        let list = ranges(set);
        assert!(list.len() <= MAX_ACK_RANGES);
        for budget in [0, 4, 5, 6, 7, 9, 12, 100] {
            let mut out = Vec::new();
            let written = emit_ack(&mut out, list.iter().cloned(), 9, None, budget);
            assert!(out.len() <= budget && (written == list.len() || budget < 100));
            let frames: Vec<_> = FrameIter::new(&out).collect::<Result<_, _>>().expect("ours");
            match frames[..] {
                [] => assert_eq!(written, 0),
                [Frame::Ack(ack)] => assert_eq!(ack.ranges.iter().collect::<Vec<_>>(), list[..written]),
                _ => panic!("{frames:?}"),
            }
        }
    }
}

/// All sequences of up to `longest` of these bytes.
fn sequences(bytes: &[u8], longest: u32, mut each: impl FnMut(&[u8])) {
    let count = bytes.len();
    let mut sequence = Vec::new();
    for len in 0..=longest {
        for index in 0..count.pow(len) {
            let digits = (0..len).map(|place| index / count.pow(place) % count);
            sequence.clear();
            sequence.extend(digits.map(|digit| bytes[digit]));
            each(&sequence);
        }
    }
}

/// P-11 to P-15: there is one way to write a body. What can be read is what would be written. With
/// these bytes there are headers, known and unknown, trailers that reach into the chain, and data
/// longer than the packet.
#[test]
fn every_short_body_is_read_as_it_would_be_written_or_refused() {
    let (mut read, mut refused) = (0, 0);
    sequences(&[0, 1, 2, 3, 0x20, 0x21], 8, |body| match parse_body(body) {
        Ok(parsed) => {
            read += 1;
            let mut out = Vec::new();
            parsed.emit(&mut out);
            assert_eq!(out, body, "{parsed:?}");
        }
        Err(error) => {
            refused += 1;
            assert!(error.at <= body.len(), "{error}: {body:02x?}");
        }
    });
    assert!(read > 10_000 && refused > 100_000, "{read} read, {refused} refused");
}

/// P-15: trailers of any lengths, of known headers and of others, come back as they were. Neither
/// they nor the data overlap. A body that is cut is refused, or it is another one, shorter in its
/// padding.
#[test]
fn trailers_of_any_length_come_back() {
    let text = "a reason";
    for lens in 0..4usize.pow(3) {
        let [first, second, third] = [lens % 4, lens / 4 % 4, lens / 16];
        for (crypto, padding) in [(0, 0), (1, 0), (5, 2), (0, 3)] {
            let mut out = Vec::new();
            let unknown = |mechanism, len: usize| FunctionHeader::Unknown {
                function: 0x50,
                mechanism,
                fields: &[1, 2, 3, 4],
                trailer: &[0xa1, 0xa2, 0xa3][..len],
            };
            let headers = [
                unknown(1, first),
                FunctionHeader::Establishment { crypto_offset: 7, crypto: &[9; 8][..crypto] },
                FunctionHeader::Close { code: 3, reason: &text[..second] },
                unknown(2, third),
            ];
            let mut chain = HeaderChain::new();
            headers.into_iter().for_each(|header| chain.push(header).expect("in bounds"));
            let body = EstablishmentBody { chain, padding };
            body.emit(&mut out);
            assert_eq!(out.len(), body.encoded_len());
            assert_eq!(parse_body(&out).as_ref(), Ok(&body));
            for cut in 0..out.len() {
                assert_ne!(parse_body(&out[..cut]).as_ref(), Ok(&body));
            }
        }
    }
}
