//! Values that are emitted read back as the same, and take as many bytes as was said.

use crate::common::*;
use proptest::prelude::*;
use uts_wire::frame::*;
use uts_wire::packet::*;
use uts_wire::*;

proptest! {
    #![proptest_config(config())]

    #[test]
    fn varint(value in position()) {
        let mut out = Vec::new();
        varint::put_varint(&mut out, value);
        prop_assert_eq!(out.len(), varint::varint_len(value));
        let mut r = Reader::new(&out);
        prop_assert_eq!(r.varint("x"), Ok(value));
        prop_assert!(r.is_empty());
    }

    /// Whatever the receiver has seen between the largest number that it acknowledged and those
    /// sent since, it completes the number as the sender meant it.
    #[test]
    fn packet_number(
        acked in 0..MAX_POSITION / 2, ahead in 1u64..0x7fff_ffff, shift in 0u32..31, seen in 0.0f64..1.0, later in 0u64..64,
    ) {
        let full = acked + (ahead >> shift).max(1);
        let truncated = TruncatedNumber::of(full, Some(acked));
        let largest = acked + (((full - acked) as f64) * seen) as u64;
        prop_assert_eq!(truncated.expand(largest + 1), full);
        prop_assert_eq!(truncated.expand(full + later), full);
        // A byte less could be mistaken (RFC 9000's rule leaves one number to spare).
        let shorter = truncated.len() - 1;
        if shorter > 0 && full - acked > (1 << (8 * shorter - 1)) + 1 {
            prop_assert_ne!(TruncatedNumber::with_len(full, shorter as u8).expand(acked + 1), full);
        }
    }

    #[test]
    fn frames(frames in payload()) {
        let mut out = vec![0xee; 3];
        for frame in &frames {
            let before = out.len();
            frame.emit(&mut out);
            prop_assert_eq!(out.len() - before, frame.encoded_len());
            let is_data = (kind::DATA..=kind::DATA_LAST).contains(&out[before]);
            prop_assert_eq!(if is_data { kind::DATA } else { out[before] }, frame.kind());
        }
        let read: Result<Vec<_>, _> = FrameIter::new(&out[3..]).collect();
        prop_assert_eq!(read, Ok(frames));
    }

    #[test]
    fn data_header_in_place(flow in small(), offset in prop::option::of(0..MAX_POSITION / 2), has_len: bool, flags in flags(), bytes in bytes(0..40)) {
        let mut out = Vec::new();
        let len = has_len.then_some(bytes.len());
        emit_data_header(&mut out, flow, offset, len, flags);
        prop_assert_eq!(out.len(), data_header_len(flow, offset, len));
        out.extend_from_slice(bytes);
        let expected = Frame::Data(Data { flow, offset, flags, has_len, bytes });
        prop_assert_eq!(FrameIter::new(&out).collect::<Vec<_>>(), vec![Ok(expected)]);
    }

    #[test]
    fn ack_takes_as_many_ranges_as_fit(
        ranges in descending(MAX_POSITION, 1 << 20, 1 << 20, 1..100), delay_us in position(), ecn in ecn(), budget in 0usize..400,
    ) {
        let mut out = vec![7];
        let written = emit_ack(&mut out, ranges.iter().cloned(), delay_us, ecn, budget);
        let most = ranges.len().min(MAX_ACK_RANGES);
        prop_assert!(written <= most);
        prop_assert!(out.len() - 1 <= budget);
        if written == 0 {
            prop_assert_eq!(&out, &vec![7]);
        } else {
            let Some(Ok(Frame::Ack(ack))) = FrameIter::new(&out[1..]).next() else { panic!("no ack in {out:?}") };
            prop_assert_eq!(ack.ranges.iter().collect::<Vec<_>>(), ranges[..written].to_vec());
            prop_assert_eq!(ack.ranges.count(), written);
            prop_assert_eq!((ack.delay_us, ack.ecn), (delay_us, ecn));
        }
        if written < most {
            let mut more = Vec::new();
            emit_ack(&mut more, ranges[..written + 1].iter().cloned(), delay_us, ecn, usize::MAX);
            prop_assert!(more.len() > budget, "another range would have fitted");
        }
    }

    #[test]
    fn profiles(profile in profile()) {
        let mut out = Vec::new();
        profile.emit(&mut out);
        prop_assert_eq!(out.len(), profile.encoded_len());
        let mut r = Reader::new(&out);
        prop_assert_eq!(WireProfile::read(&mut r), Ok(profile));
        prop_assert!(r.is_empty());
    }

    #[test]
    fn hellos((from, hello) in hello(), item in 64u64..9999, unknown in bytes(0..50)) {
        let mut out = Vec::new();
        // Items of a later version are passed over.
        varint::put_varint(&mut out, item);
        varint::put_varint(&mut out, unknown.len() as u64);
        out.extend_from_slice(unknown);
        let before = out.len();
        hello.emit(&mut out);
        prop_assert_eq!(out.len() - before, hello.encoded_len());
        prop_assert_eq!(Hello::parse(&out, from), Ok(hello));
    }

    /// A datagram of several establishment packets and an adaptive one, sealed by a tag of zeros
    /// and masked.
    #[test]
    fn coalesced_packets(
        packets in prop::collection::vec((establishment_header(), establishment_body(), any::<u32>()), 1..4),
        mask in mask(), epoch_low5 in 0u8..32, dcid in cid(), full in position(), payload in bytes(0..50),
    ) {
        let mut out = Vec::new();
        for (header, body, number) in &packets {
            let mark = header.emit(*number, &mut out);
            prop_assert_eq!(mark.body_offset() - mark.start, header.encoded_len());
            body.emit(&mut out);
            prop_assert_eq!(out.len() - mark.body_offset(), body.encoded_len());
            mark.set_length(&mut out, 16).expect("short enough");
            out.extend_from_slice(&[0; 16]);
            mask_number(&mut out[mark.pn_offset..mark.body_offset()], &mask);
            prop_assert!(sample(&out, mark.pn_offset).is_ok());
        }
        let short_at = out.len();
        let number = TruncatedNumber::of(full, full.checked_sub(9));
        let short = AdaptiveHeader { epoch_low5, dcid };
        let mark = short.emit(number, &mut out);
        prop_assert_eq!(mark.payload_offset() - mark.start, short.encoded_len(number.len()));
        out.extend_from_slice(payload);
        out.resize(out.len() + sample_padding(mark.pn_len, payload.len(), 0), 0);
        prop_assert!(sample(&out, mark.pn_offset).is_ok());
        mark.mask(&mut out, &mask);

        let mut at = 0;
        for (header, body, number) in &packets {
            let LongPacket::Establishment(packet) = parse_header(&out[at..]).expect("well formed") else { panic!() };
            prop_assert_eq!(&packet.header, header);
            let (sealed, next, pn_offset) = (packet.body(), at + packet.range.end, packet.pn_offset);
            let copy = out[at..next].to_vec().leak();
            prop_assert_eq!(establishment::unmask_number(copy, pn_offset, &mask), Ok(*number));
            let (opened, tag) = copy[sealed].split_last_chunk::<16>().expect("a tag");
            prop_assert_eq!(tag, &[0; 16]);
            let read = parse_body(opened);
            prop_assert_eq!(read.as_ref(), Ok(body));
            at = next;
        }
        prop_assert_eq!(at, short_at);
        prop_assert_eq!(adaptive::peek_epoch(out[at]), epoch_low5);
        let (header, pn_offset) = AdaptiveHeader::parse(&out[at..], dcid.len()).expect("well formed");
        prop_assert_eq!(header, short);
        let read = adaptive::unmask(&mut out[at..], pn_offset, &mask).expect("long enough");
        prop_assert_eq!(read, number);
        prop_assert_eq!(read.expand(full.saturating_sub(3)), full);
        prop_assert!(out[at + pn_offset + read.len()..].starts_with(payload));
    }

    #[test]
    fn retries(retry in retry()) {
        let mut out = Vec::new();
        retry.emit(&mut out);
        prop_assert_eq!(out.len(), retry.encoded_len());
        prop_assert_eq!(parse_header(&out), Ok(LongPacket::Retry(retry)));
    }

    #[test]
    fn refusals(refusal in refusal(), version in any::<u32>().prop_filter("another", |v| ![0, VERSION].contains(v))) {
        let mut out = Vec::new();
        refusal.emit(&mut out);
        prop_assert_eq!(out.len(), refusal.encoded_len());
        out[1..5].copy_from_slice(&version.to_be_bytes());
        let other = OtherVersion { version, dcid: refusal.dcid, scid: refusal.scid };
        prop_assert_eq!(parse_header(&out), Ok(LongPacket::OtherVersion(other)));
        out[1..5].fill(0);
        prop_assert_eq!(parse_header(&out), Ok(LongPacket::VersionRefusal(refusal)));
    }

    #[test]
    fn resets(prefix in bytes(5..60), token: [u8; 16]) {
        let mut out = Vec::new();
        let reset = StatelessReset { prefix, token };
        prop_assert_eq!(reset.emit(&mut out), Ok(()));
        prop_assert_eq!(out.len(), reset.encoded_len());
        let read = StatelessReset::parse(&out).expect("long enough");
        prop_assert_eq!(read.token, token);
        prop_assert_eq!(&read.prefix[1..], &prefix[1..]);
        prop_assert!(AdaptiveHeader::parse(&out, 4).is_ok(), "it looks like an adaptive packet");
    }
}

/// The header budget of the specification. [P-33]
#[test]
fn the_smallest_packet_has_four_bytes_and_the_connection_id_before_its_data() {
    for cid_len in [0, 1, 4, 20] {
        let dcid = ConnectionId::new(&vec![7; cid_len]).expect("short enough");
        let mut out = Vec::new();
        AdaptiveHeader { epoch_low5: 31, dcid }.emit(TruncatedNumber::of(1000, Some(990)), &mut out);
        emit_data_header(&mut out, 63, None, None, DataFlags::default());
        assert_eq!(out.len(), 4 + cid_len);
    }
}

#[test]
fn a_long_reason_is_clipped_between_characters() {
    let reason = "é".repeat(200);
    let mut out = Vec::new();
    Frame::Close(Close { code: 1, reason: &reason }).emit(&mut out);
    let expected = Frame::Close(Close { code: 1, reason: &reason[..256] });
    assert_eq!(FrameIter::new(&out).collect::<Vec<_>>(), [Ok(expected)]);

    let body =
        EstablishmentBody::from_headers([FunctionHeader::Close { code: 1, reason: &reason }]).expect("fits");
    let mut out = Vec::new();
    body.emit(&mut out);
    let read = parse_body(&out).expect("well formed");
    assert_eq!(read.chain.headers(), [FunctionHeader::Close { code: 1, reason: &reason[..254] }]);
}

#[test]
fn a_packet_over_the_length_field_is_refused() {
    let header = EstablishmentHeader {
        level: Level::Handshake,
        dcid: ConnectionId::EMPTY,
        scid: ConnectionId::EMPTY,
        token: &[],
    };
    let mut out = Vec::new();
    let mark = header.emit(0, &mut out);
    out.resize(mark.pn_offset + 0x3fff - 16, 0);
    assert_eq!(mark.set_length(&mut out, 16), Ok(()));
    out.push(0);
    let error = mark.set_length(&mut out, 16).expect_err("a byte too long");
    assert_eq!(error.problem, Problem::TooLong { found: 0x4000, max: 0x3fff });
}

#[test]
fn acknowledgements_stop_at_a_range_out_of_order() {
    let mut out = Vec::new();
    // The third touches the second; the caller should have merged them.
    assert_eq!(emit_ack(&mut out, [90..100, 50..60, 40..50, 1..2], 5, None, 100), 2);
    let Some(Ok(Frame::Ack(ack))) = FrameIter::new(&out).next() else { panic!("no ack") };
    assert_eq!(ack.ranges.iter().collect::<Vec<_>>(), [90..100, 50..60]);
    assert_eq!(emit_ack(&mut out, [], 5, None, 100), 0);
    let reversed = std::iter::once(std::ops::Range { start: 10, end: 5 });
    assert_eq!(emit_ack(&mut out, reversed, 5, None, 100), 0);
}

#[test]
fn an_establishment_ack_stops_at_what_16_bits_cannot_say() {
    let ranges = [100_000..100_010, 99_000..99_001, 10..20].into_iter().collect();
    let body = EstablishmentBody::from_headers([FunctionHeader::Acknowledgement { delay_us: 1, ranges }]);
    let mut out = Vec::new();
    body.expect("fits").emit(&mut out);
    let read = parse_body(&out).expect("well formed");
    let ranges = [100_000..100_010, 99_000..99_001].into_iter().collect();
    assert_eq!(read.chain.headers(), [FunctionHeader::Acknowledgement { delay_us: 1, ranges }]);
}
