//! Lost and damaged frames, and what comes of them.

use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uts_path::compression::Form;
use uts_rx::{Ack, Reason};

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
