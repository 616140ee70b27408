//! Links that compress headers.

use super::*;
use uts_path::{Link, LinkConfig};

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
