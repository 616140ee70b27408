//! Layout of compressed headers, byte by byte, and what goes as it is.

use super::*;
use uts_path::compression::Form;

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
