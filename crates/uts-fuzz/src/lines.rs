//! Packets of Rx, and lines with compressed headers: what no frame was lost of arrives as it was.

use crate::some_bytes;
use arbitrary::{Result, Unstructured};
use uts_path::compression::{Compression, Compressor, Decompressor};
use uts_rx::{Packet, Segments};

pub fn rx(bytes: &[u8]) {
    match Packet::parse(bytes) {
        Ok(packet) => {
            assert_eq!(packet.to_bytes(), bytes);
            assert!(Segments::of(&packet).count() <= 1 + bytes.len() / uts_rx::JUMBO_BYTES);
        }
        Err(error) => assert!(error.at <= bytes.len() && !error.to_string().is_empty(), "{error}"),
    }
}

pub fn headers(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    // An input that ends is no fault.
    let _ = carry(&mut input);
}

/// The longest packet or frame.
const BYTES_MAX: u16 = 200;

fn carry(input: &mut Unstructured<'_>) -> Result<()> {
    let slots = input.int_in_range(1..=4)?;
    let compression = match input.int_in_range(0..=2)? {
        0 => Compression::Vj { slots },
        1 => Compression::Rx { slots, typed: false },
        _ => Compression::Rx { slots, typed: true },
    };
    let ends = (Compressor::new(compression), Decompressor::new(compression));
    let (Some(mut near), Some(mut far)) = ends else { return Ok(()) };
    let mut is_whole = true;
    while !input.is_empty() {
        let is_packet = input.ratio(3, 4)?;
        let is_lost = input.ratio(1, 16)?;
        let bytes = some_bytes(input, BYTES_MAX)?;
        if !is_packet {
            is_whole = false;
            if let Ok(packet) = far.expand(bytes) {
                assert!(packet.len() <= usize::from(u16::MAX));
            }
            continue;
        }
        let Ok(frame) = near.compress(bytes) else { continue };
        assert!(frame.bytes.len() <= bytes.len() + 1);
        is_whole &= !is_lost;
        if !is_lost {
            let restored = far.expand(&frame.bytes);
            assert!(!is_whole || restored.as_deref() == Ok(bytes), "{frame:02x?}: {restored:02x?}");
        }
    }
    Ok(())
}
