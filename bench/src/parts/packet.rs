//! What every packet pays for by its bytes: header and frame, detection, protection.

use super::{DATA_BYTES, Part};
use crate::usage::thread_time;
use anyhow::{Context, Result, ensure};
use std::hint::black_box;
use std::time::Duration;
use uts_functions::detection::{self, Detection};
use uts_functions::protection::{self, MASK_BYTES, Protection, SAMPLE_BYTES, Secret};
use uts_wire::ConnectionId;
use uts_wire::frame::data::{DataFlags, emit_data_header};
use uts_wire::frame::{Frame, FrameIter};
use uts_wire::packet::number::TruncatedNumber;
use uts_wire::packet::{AdaptiveHeader, unmask};

/// Packets that are made before any is opened.
const BATCH: u64 = 64;

pub fn parts() -> Result<Vec<Part>> {
    let mut parts = vec![emit()?, parse()?];
    for entry in detection::MECHANISMS.iter().filter(|m| !m.facts.inert) {
        parts.extend(detect(entry.name)?);
    }
    for entry in protection::MECHANISMS.iter().filter(|m| !m.facts.inert) {
        parts.extend(protect(entry.name)?);
    }
    Ok(parts)
}

fn data() -> Vec<u8> {
    (0..DATA_BYTES).map(|i| (i * 7 + 3) as u8).collect()
}

fn emit_packet(number: u64, data: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let dcid = ConnectionId::new(&[7; 8]).context("connection id")?;
    let short = TruncatedNumber::of(number, Some(number.saturating_sub(100)));
    AdaptiveHeader { epoch_low5: 1, dcid }.emit(short, out);
    emit_data_header(out, 0, Some(number * DATA_BYTES as u64), None, DataFlags::default());
    out.extend_from_slice(data);
    Ok(())
}

fn emit() -> Result<Part> {
    let (data, mut out, mut number) = (data(), Vec::with_capacity(1500), 1000);
    emit_packet(number, &data, &mut out)?;
    Ok(Part::plain("wire", "emit a data packet, data copied in", DATA_BYTES, move || {
        number += 1;
        out.clear();
        let _ = black_box(emit_packet(black_box(number), &data, &mut out));
        black_box(&out);
    }))
}

fn parse_packet(packet: &mut [u8]) -> Option<u64> {
    let (_, at) = AdaptiveHeader::parse(packet, 8).ok()?;
    // A mask of zeros changes nothing: the packet can be read again.
    let number = unmask(packet, at, &[0; MASK_BYTES]).ok()?;
    let payload = packet.get(at + number.len()..)?;
    let mut sum = number.expand(1000);
    for frame in FrameIter::new(payload) {
        if let Frame::Data(data) = frame.ok()? {
            sum += data.offset? + data.bytes.len() as u64;
        }
    }
    Some(sum)
}

fn parse() -> Result<Part> {
    let mut packet = Vec::new();
    emit_packet(1000, &data(), &mut packet)?;
    parse_packet(&mut packet).context("a packet that was just made cannot be read")?;
    Ok(Part::plain("wire", "parse a data packet", DATA_BYTES, move || {
        black_box(parse_packet(black_box(&mut packet)));
    }))
}

fn detect(name: &'static str) -> Result<Vec<Part>> {
    let build = || {
        let entry = detection::MECHANISMS.iter().find(|m| m.name == name).context("mechanism")?;
        detection::Slot::build(&entry.choice(), ()).with_context(|| format!("{name} cannot be built"))
    };
    let (appends, verifies) = (build()?, build()?);
    let covered = data();
    let mut trailer = vec![0; appends.trailer_bytes()];
    appends.append(&covered, &mut trailer);
    ensure!(
        verifies.check(&mut covered.clone(), &trailer) == detection::Verdict::Right,
        "{name} refuses its own trailer"
    );
    let (mut packet, expected) = (covered.clone(), trailer.clone());
    Ok(vec![
        Part::plain("detection", format!("{name} append"), DATA_BYTES, move || {
            appends.append(black_box(&covered), &mut trailer);
            black_box(&trailer);
        }),
        Part::plain("detection", format!("{name} verify"), DATA_BYTES, move || {
            let _ = black_box(verifies.check(black_box(&mut packet), &expected));
        }),
    ])
}

/// A connection id of 8 bytes, filled up.
const ASSOCIATED: &[u8] = &[7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0];

fn seal(slot: &protection::Slot, number: u64, packet: &mut [u8]) -> [u8; MASK_BYTES] {
    let (payload, tag) = packet.split_at_mut(DATA_BYTES);
    slot.seal(number, ASSOCIATED, payload, tag);
    slot.header_mask(&sample(packet))
}

fn sample(packet: &[u8]) -> [u8; SAMPLE_BYTES] {
    packet.first_chunk().copied().unwrap_or_default()
}

fn protect(name: &'static str) -> Result<Vec<Part>> {
    let build = || {
        let entry = protection::MECHANISMS.iter().find(|m| m.name == name).context("mechanism")?;
        let secret = Secret::from_bytes([7; Secret::BYTES]);
        protection::Slot::build(&entry.choice(), &secret).with_context(|| format!("{name} cannot be built"))
    };
    let (seals, opens) = (build()?, build()?);
    let mut packet = data();
    packet.resize(DATA_BYTES + seals.tag_bytes(), 0);
    let plain = packet.clone();
    let mut number = 0;
    let sealing = move || {
        number += 1;
        black_box(seal(&seals, number, black_box(&mut packet)));
    };
    let opening = move |packets: u64| {
        let (mut took, mut done) = (Duration::ZERO, 0);
        while done < packets {
            let batch = BATCH.min(packets - done);
            let mut sealed: Vec<Vec<u8>> = vec![plain.clone(); batch as usize];
            for (number, packet) in (0..).zip(&mut sealed) {
                seal(&opens, number, packet);
            }
            let start = thread_time();
            for (number, packet) in (0..).zip(&mut sealed) {
                black_box(opens.header_mask(&sample(packet)));
                let opened = opens.open(number, ASSOCIATED, black_box(packet))?;
                ensure!(opened == DATA_BYTES, "{opened} bytes opened");
            }
            took += thread_time() - start;
            done += batch;
        }
        Ok(took)
    };
    Ok(vec![
        Part::plain("protection", format!("{name} seal, mask"), DATA_BYTES, sealing),
        Part::new("protection", format!("{name} open, mask"), DATA_BYTES, Box::new(opening)),
    ])
}
