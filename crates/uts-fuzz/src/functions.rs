//! Mechanisms that read what a peer has made: repairs, and messages in another form.

use crate::some_bytes;
use arbitrary::Unstructured;
use bytes::Bytes;
use std::collections::BTreeMap;
use uts_functions::fec::{self, Fec, Recovered, Repair, RepairId};
use uts_functions::presentation::{self, Presentation};
use uts_functions::{Choice, Time};

/// Steps of a run, so that one does not take for ever.
const STEPS_MAX: usize = 400;

/// Bytes that a decoder may hold of payloads and parities, whatever arrives.
const HELD_BYTES_MAX: usize = 2 << 20;

/// A mechanism with parameters in range.
fn choice(u: &mut Unstructured<'_>, list: &[&'static uts_functions::Mechanism]) -> arbitrary::Result<Choice> {
    let mechanism = u.choose(list)?;
    let mut choice = mechanism.choice();
    for (value, param) in choice.params.0.iter_mut().zip(mechanism.params) {
        *value = u.int_in_range(param.min..=param.max)?;
    }
    Ok(choice)
}

pub fn repairs(data: &[u8]) {
    let _ = try_repairs(&mut Unstructured::new(data));
}

fn try_repairs(u: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let choice = choice(u, fec::MECHANISMS)?;
    let build = || fec::Slot::build(&choice, ()).expect("parameters in range");
    let (mut encoder, mut decoder) = (build().encoder(), build().decoder());
    let (mut sent, mut arrived) = (BTreeMap::new(), BTreeMap::new());
    let (mut number, mut is_honest) = (u64::from(u.arbitrary::<u16>()?), true);
    let mut recovered = BTreeMap::new();
    for _ in 0..STEPS_MAX {
        if u.is_empty() {
            break;
        }
        let out = match u.int_in_range(0..=9)? {
            // A packet of the encoder, which arrives or not.
            step @ 0..=4 => {
                let payload = some_bytes(u, 255)?.to_vec();
                number += 1 + if step == 4 { u64::from(u.arbitrary::<u8>()?) } else { 0 };
                encoder.on_source(Time::ZERO, number, &payload);
                sent.insert(number, payload.clone());
                if step > 1 {
                    arrived.insert(number, ());
                    decoder.on_source(number, &payload)
                } else {
                    Vec::new()
                }
            }
            // The encoder's repairs, of which some are lost.
            5 => {
                encoder.flush();
                let mut out = Vec::new();
                while let Some(repair) = encoder.pop_repair() {
                    if u.ratio(3, 4)? {
                        out.extend(decoder.on_repair(&repair));
                    }
                }
                out
            }
            // One that somebody made up.
            6 | 7 => {
                is_honest = false;
                let repair = made_up(u, number)?;
                decoder.on_repair(&repair)
            }
            // A packet of any number.
            _ => {
                is_honest = false;
                let payload = some_bytes(u, 255)?;
                decoder.on_source(u.arbitrary::<u64>()? >> u.int_in_range(2..=63)?, payload)
            }
        };
        assert!(decoder.held_bytes() <= HELD_BYTES_MAX, "{} bytes", decoder.held_bytes());
        for Recovered { number, payload } in out {
            if is_honest {
                assert!(!arrived.contains_key(&number), "{number} arrived, and was recovered");
                assert_eq!(sent.get(&number).map(Vec::as_slice), Some(&payload[..]), "{number}");
            }
            assert!(recovered.insert(number, ()).is_none(), "{number} was recovered twice");
        }
    }
    Ok(())
}

fn made_up(u: &mut Unstructured<'_>, near: u64) -> arbitrary::Result<Repair> {
    let first =
        if u.arbitrary()? { near.saturating_sub(u64::from(u.arbitrary::<u8>()?)) } else { u.arbitrary()? };
    let mask = some_bytes(u, 33)?;
    let id = match u.arbitrary()? {
        true => RepairId::Block { index: u.arbitrary()?, parities: u.arbitrary()? },
        false => RepairId::Window { key: u.arbitrary()? },
    };
    let symbol = some_bytes(u, 255)?;
    Ok(Repair { first, mask: mask.iter().copied().collect(), id, symbol: Bytes::copy_from_slice(symbol) })
}

pub fn presentation(data: &[u8]) {
    let Some((limit, data)) = data.split_first_chunk::<2>() else { return };
    let bytes_max = usize::from(u16::from_be_bytes(*limit));
    for mechanism in presentation::MECHANISMS {
        let slot = presentation::Slot::build(&mechanism.choice(), ()).expect("parameters in range");
        if let Ok(message) = slot.unpresent(data, bytes_max) {
            assert!(message.len() <= bytes_max, "{}: {} bytes", mechanism.name, message.len());
        }
        let form = slot.present(data);
        // A form, and the length of a word; a line's end may take a byte more.
        let ends = data.iter().filter(|byte| **byte == b'\n').count();
        assert!(form.len() <= data.len() + 2 + ends, "{}", mechanism.name);
        assert_eq!(slot.unpresent(&form, data.len()).as_deref(), Ok(data), "{}", mechanism.name);
    }
}
