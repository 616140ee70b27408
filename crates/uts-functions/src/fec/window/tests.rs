//! Conformance: what every code over a window must do, over every one that is registered.

use crate::fec::testing::{product, solve};
use crate::fec::{DATA_MAX, Fec, MECHANISMS, PAYLOAD_BYTES_MAX, Recovered, Repair, RepairId, SPAN_MAX, Slot};
use crate::mechanism::{Choice, Mechanism};
use crate::time::Time;
use bytes::Bytes;
use core::time::Duration;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use smallvec::SmallVec;
use std::collections::BTreeMap;

fn schemes() -> impl Iterator<Item = &'static Mechanism> {
    MECHANISMS.iter().copied().filter(|m| slot(&m.choice()).shape().is_none())
}

fn slot(choice: &Choice) -> Slot {
    Slot::build(choice, ()).expect("parameters in range")
}

fn chosen(m: &'static Mechanism, window: u64, every: u64) -> Choice {
    Choice { number: m.number, params: m.params_within(&[("window", window), ("every", every)]) }
}

#[derive(Clone, Debug)]
enum Packet {
    Source(u64, Vec<u8>),
    Repair(Repair),
}

/// A stream of `count` sources with gaps between their numbers, and the repairs where the encoder
/// offers them.
fn stream(choice: &Choice, count: usize, rng: &mut ChaCha8Rng) -> Vec<Packet> {
    let mut encoder = slot(choice).encoder();
    let mut packets = Vec::new();
    let (mut number, mut now) = (rng.random_range(0..1000), Time::ZERO);
    for _ in 0..count {
        let mut payload = vec![0; rng.random_range(0..=300)];
        rng.fill(&mut payload[..]);
        encoder.on_source(now, number, &payload);
        packets.push(Packet::Source(number, payload));
        number += if rng.random_bool(0.9) { 1 } else { rng.random_range(2..10) };
        now += Duration::from_micros(rng.random_range(0..200));
        encoder.on_flush(now);
        packets.extend(core::iter::from_fn(|| encoder.pop_repair()).map(Packet::Repair));
    }
    encoder.flush();
    assert_eq!(encoder.deadline(), None);
    packets.extend(core::iter::from_fn(|| encoder.pop_repair()).map(Packet::Repair));
    assert_eq!(encoder.dropped(), 0);
    packets
}

fn sources(packets: &[Packet]) -> BTreeMap<u64, Vec<u8>> {
    let source = |p: &Packet| match p {
        Packet::Source(number, payload) => Some((*number, payload.clone())),
        Packet::Repair(_) => None,
    };
    packets.iter().filter_map(source).collect()
}

/// Packets that the receiver recovers of a stream; each must have been sent, and not have arrived.
fn receive(choice: &Choice, sent: &BTreeMap<u64, Vec<u8>>, arriving: &[Packet]) -> Vec<u64> {
    let mut decoder = slot(choice).decoder();
    let mut known = std::collections::BTreeSet::new();
    let mut recovered = Vec::new();
    for packet in arriving {
        let out = match packet {
            Packet::Source(number, payload) => {
                known.insert(*number);
                decoder.on_source(*number, payload)
            }
            Packet::Repair(repair) => decoder.on_repair(repair),
        };
        for Recovered { number, payload } in out {
            assert!(known.insert(number), "{number} arrived, or was recovered before");
            assert_eq!(
                sent.get(&number).map(Vec::as_slice),
                Some(&payload[..]),
                "{number} is not what was sent"
            );
            recovered.push(number);
        }
        assert!(decoder.held_bytes() <= 2 << 20);
    }
    assert_eq!(decoder.counters().refused, 0);
    assert_eq!(decoder.counters().recovered, recovered.len() as u64);
    recovered
}

#[test]
fn repairs_cover_the_window_and_come_as_often_as_said() {
    for m in schemes() {
        let mut encoder = slot(&chosen(m, 8, 3)).encoder();
        let mut repairs = Vec::new();
        for number in 0..30 {
            encoder.on_source(Time::ZERO, number, &[number as u8]);
            repairs.extend(encoder.pop_repair().map(|r| (number, r)));
        }
        assert_eq!(repairs.len(), 10);
        for (i, (at, repair)) in repairs.iter().enumerate() {
            let numbers: Vec<u64> = repair.offsets().map(|o| repair.first + o).collect();
            assert_eq!(numbers, (at.saturating_sub(7)..=*at).collect::<Vec<_>>());
            assert_eq!(repair.id, RepairId::Window { key: i as u16 });
        }
        // Of those that no repair covers the last is made in time, and once.
        encoder.on_source(Time::from_millis(5), 30, b"x");
        assert_eq!(encoder.deadline(), Some(Time::from_millis(15)));
        encoder.on_flush(Time::from_millis(14));
        assert!(!encoder.has_repair());
        encoder.on_flush(Time::from_millis(15));
        assert!(encoder.pop_repair().is_some_and(|r| r.offsets().count() == 8));
        encoder.flush();
        assert!(!encoder.has_repair() && encoder.deadline().is_none());
    }
}

#[test]
fn a_window_spans_no_more_numbers_than_a_mask_can_name() {
    for m in schemes() {
        let mut encoder = slot(&chosen(m, 64, 1)).encoder();
        for i in 0..100 {
            encoder.on_source(Time::ZERO, i * 9, b"x");
            let repair = encoder.pop_repair().expect("after each");
            assert!(repair.offsets().all(|o| o < SPAN_MAX) && repair.offsets().count() <= DATA_MAX);
        }
        encoder.on_source(Time::ZERO, 1, b"out of order");
        encoder.on_source(Time::ZERO, 10_000, &vec![0; PAYLOAD_BYTES_MAX + 1]);
        encoder.flush();
        assert!(!encoder.has_repair());
    }
}

/// A single loss is recovered by the next repair; a burst by as many repairs.
#[test]
fn a_loss_is_recovered_by_the_next_repair_and_a_burst_by_as_many() {
    for m in schemes() {
        let choice = chosen(m, 32, 4);
        for burst in 1..=6u64 {
            let (mut encoder, mut decoder) = (slot(&choice).encoder(), slot(&choice).decoder());
            let (mut repairs, mut recovered) = (0, Vec::new());
            for number in 0..100u64 {
                encoder.on_source(Time::ZERO, number, &number.to_be_bytes());
                let is_lost = (40..40 + burst).contains(&number);
                if !is_lost {
                    assert!(decoder.on_source(number, &number.to_be_bytes()).is_empty());
                }
                while let Some(repair) = encoder.pop_repair() {
                    repairs += u64::from(number >= 40 + burst - 1);
                    let out = decoder.on_repair(&repair);
                    recovered.extend(out.into_iter().map(|r| (repairs, r.number)));
                }
            }
            let numbers: Vec<u64> = recovered.iter().map(|(_, n)| *n).collect();
            assert_eq!(numbers.len() as u64, burst, "{numbers:?}");
            // Repairs within the burst count as well.
            assert!(recovered.iter().all(|(after, _)| *after <= burst), "{recovered:?}");
        }
    }
}

/// Recovery by the equations agrees with plain elimination over the definition of the code.
#[test]
fn recovery_agrees_with_plain_equations() {
    for m in schemes() {
        let choice = chosen(m, 6, 1);
        let payloads: Vec<Vec<u8>> = (0..6u8).map(|i| (0..4).map(|j| i * 37 + j * 11).collect()).collect();
        let mut encoder = slot(&choice).encoder();
        let mut repairs = Vec::new();
        for (number, payload) in payloads.iter().enumerate() {
            encoder.on_source(Time::ZERO, number as u64, payload);
            repairs.extend(encoder.pop_repair());
        }
        // Everything is lost but the repairs: the equations are those of the definition.
        let rows = repairs.iter().map(|repair| {
            let RepairId::Window { key } = repair.id else { panic!("{repair:?}") };
            let covered: Vec<u64> = repair.offsets().map(|o| repair.first + o).collect();
            let mut coefficients = vec![0; payloads.len()];
            covered.iter().zip(super::coefficients(key)).for_each(|(n, c)| coefficients[*n as usize] = c);
            let sum = |at: usize| {
                let symbol = |n: u64| [&[0, 4][..], &payloads[n as usize]].concat()[at];
                covered.iter().fold(0, |s, n| s ^ product(coefficients[*n as usize], symbol(*n)))
            };
            assert_eq!(repair.symbol[..], (0..6).map(sum).collect::<Vec<u8>>()[..]);
            (coefficients, repair.symbol.to_vec())
        });
        let solved = solve(rows.collect()).expect("one solution");
        let mut decoder = slot(&choice).decoder();
        let mut recovered: Vec<Recovered> = repairs.iter().flat_map(|r| decoder.on_repair(r)).collect();
        recovered.sort_by_key(|r| r.number);
        assert_eq!(recovered.len(), payloads.len());
        for (r, symbol) in recovered.iter().zip(solved) {
            assert_eq!(r.payload[..], symbol[2..]);
            assert_eq!(r.payload[..], payloads[r.number as usize][..]);
        }
    }
}

#[test]
fn what_no_encoder_makes_is_refused() {
    let good = Repair {
        first: 100,
        mask: SmallVec::from_slice(&[0b111]),
        id: RepairId::Window { key: 7 },
        symbol: Bytes::from_static(&[0, 1, 0x55]),
    };
    let bad = |change: fn(&mut Repair)| {
        let mut repair = good.clone();
        change(&mut repair);
        repair
    };
    let cases = [
        ("of a block", bad(|r| r.id = RepairId::Block { index: 0, parities: 1 })),
        ("empty mask", bad(|r| r.mask.clear())),
        ("first is no source", bad(|r| r.mask[0] = 0b110)),
        ("mask ends in zeros", bad(|r| r.mask.push(0))),
        ("too many sources", bad(|r| r.mask = SmallVec::from_elem(0xff, 16))),
        ("symbol too short", bad(|r| r.symbol = Bytes::from_static(&[0]))),
        ("number too large", bad(|r| r.first = u64::MAX - 1)),
    ];
    for m in schemes() {
        let mut decoder = slot(&m.choice()).decoder();
        for (count, (what, repair)) in cases.iter().enumerate() {
            assert!(decoder.on_repair(repair).is_empty());
            assert_eq!(decoder.counters().refused, count as u64 + 1, "{what}");
            assert_eq!(decoder.held_bytes(), 0);
        }
        // A source that arrived is longer than the symbol; one that comes out says a length beyond
        // its end.
        decoder.on_source(100, b"longer than that");
        assert!(decoder.on_repair(&good).is_empty());
        let single = Repair { first: 200, mask: SmallVec::from_slice(&[1]), ..good.clone() };
        let coefficient = super::coefficients(7).next().expect("endless");
        let lie = [0, 9, 1].map(|byte| product(coefficient, byte)).to_vec();
        assert!(decoder.on_repair(&Repair { symbol: lie.into(), ..single }).is_empty());
        assert_eq!(decoder.counters().refused, cases.len() as u64 + 2);
    }
}

#[test]
fn memory_is_bounded_whatever_arrives() {
    for m in schemes() {
        let mut decoder = slot(&m.choice()).decoder();
        let payload = vec![1; 60_000];
        for i in 0..2000u64 {
            decoder.on_source(i * 3, &payload);
            decoder.on_repair(&Repair {
                first: i * 3 + 1,
                mask: SmallVec::from_slice(&[0b11]),
                id: RepairId::Window { key: i as u16 },
                symbol: Bytes::from(payload.clone()),
            });
            assert!(decoder.held_bytes() <= 2 << 20, "{}", decoder.held_bytes());
        }
        assert!(decoder.counters().abandoned > 0);
        // A number far ahead makes all before it old.
        assert!(decoder.on_source(1 << 61, b"far").is_empty());
        assert_eq!(decoder.held_bytes(), 3);
    }
}

/// On a channel of 5 % loss in bursts of 2 what is left unrepaired is no more than twice what is
/// predicted.
#[test]
fn measured_residual_loss_is_as_predicted() {
    use crate::facts::PathFacts;
    let (loss, burst) = (0.05, 2.0);
    for m in schemes() {
        let choice = m.choice();
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let (mut encoder, mut decoder) = (slot(&choice).encoder(), slot(&choice).decoder());
        let (leave, mut lossy) = (1.0 / burst, false);
        let enter = loss * leave / (1.0 - loss);
        let mut is_lost = || {
            lossy = if lossy { !rng.random_bool(leave) } else { rng.random_bool(enter) };
            lossy
        };
        let (count, mut lost) = (50_000u64, 0u64);
        for number in 0..count {
            let payload = number.to_be_bytes();
            encoder.on_source(Time::ZERO, number, &payload);
            if is_lost() {
                lost += 1;
            } else {
                decoder.on_source(number, &payload);
            }
            while let Some(repair) = encoder.pop_repair() {
                if !is_lost() {
                    decoder.on_repair(&repair);
                }
            }
        }
        let residual = (lost - decoder.counters().recovered) as f64 / count as f64;
        let facts = PathFacts { loss, loss_burst: burst, ..PathFacts::default() };
        let mut prediction = crate::mechanism::Prediction::of_path(&facts);
        (m.predict)(&choice.params, &facts, &mut prediction);
        println!("{}: {residual:.5}, predicted {:.5}", m.name, prediction.loss);
        assert!(
            residual < 2.0 * prediction.loss + 0.0005,
            "{}: {residual} against {}",
            m.name,
            prediction.loss
        );
        assert!(residual < loss / 10.0, "{}: {residual} of {loss}", m.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is lost, reordered and doubled: what is recovered is what was sent, once.
    #[test]
    fn nothing_wrong_is_recovered(seed in any::<u64>(), count in 1usize..150, loss in 0.0f64..0.5) {
        for m in schemes() {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let choice = chosen(m, rng.random_range(2..=64), rng.random_range(1..=64));
            let all = stream(&choice, count, &mut rng);
            let mut arriving: Vec<Packet> = all.iter().filter(|_| !rng.random_bool(loss)).cloned().collect();
            if rng.random_bool(0.5) {
                let again: Vec<_> = arriving.iter().filter(|_| rng.random_bool(0.3)).cloned().collect();
                arriving.extend(again);
                arriving.shuffle(&mut rng);
                // In any order a source may be recovered before it arrives: it must not be said
                // twice.
                let mut decoder = slot(&choice).decoder();
                let mut said = std::collections::BTreeSet::new();
                for packet in &arriving {
                    let out = match packet {
                        Packet::Source(number, payload) => decoder.on_source(*number, payload),
                        Packet::Repair(repair) => decoder.on_repair(repair),
                    };
                    for r in out {
                        prop_assert!(said.insert(r.number));
                        prop_assert_eq!(&sources(&all)[&r.number][..], &r.payload[..]);
                    }
                }
            } else {
                receive(&choice, &sources(&all), &arriving);
            }
        }
    }

    /// Whatever a repair says, the decoder stands it, and says no number twice.
    #[test]
    fn no_repair_breaks_the_decoder(seed in any::<u64>()) {
        for m in schemes() {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut decoder = slot(&m.choice()).decoder();
            let mut known = std::collections::BTreeSet::new();
            for _ in 0..200 {
                let number = rng.random_range(0..300u64);
                let mut bytes = vec![0; rng.random_range(0..12)];
                rng.fill(&mut bytes[..]);
                let recovered = if rng.random_bool(0.5) {
                    known.insert(number);
                    decoder.on_source(number, &bytes)
                } else {
                    let mut mask = vec![0; rng.random_range(1..4)];
                    rng.fill(&mut mask[..]);
                    mask[0] |= 1;
                    decoder.on_repair(&Repair {
                        first: if rng.random_bool(0.95) { number } else { rng.random() },
                        mask: SmallVec::from_vec(mask),
                        id: RepairId::Window { key: rng.random() },
                        symbol: Bytes::from(bytes),
                    })
                };
                for r in recovered {
                    prop_assert!(known.insert(r.number), "{} arrived or was recovered before", r.number);
                }
            }
        }
    }
}
