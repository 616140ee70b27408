//! Conformance: what every scheme must do, over every scheme that is registered.

use super::*;
use crate::facts::PathFacts;
use crate::mechanism::{Choice, Mechanism, Prediction};
use crate::time::{Rate, Time};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

fn schemes() -> impl Iterator<Item = &'static Mechanism> {
    MECHANISMS.iter().copied().filter(|m| !m.facts.inert && shape_of(&m.choice()).is_some())
}

/// Shape of the blocks of a scheme; `None` if it codes over a window.
fn shape_of(choice: &Choice) -> Option<Shape> {
    slot(choice).shape()
}

/// Longest time that sources wait for a repair, in milliseconds.
fn flush_ms(choice: &Choice) -> u32 {
    let info = slot(choice).info();
    let at = info.params.iter().position(|p| p.name == "flush").expect("every scheme has one");
    choice.params.get(at)
}

fn block_id(repair: &Repair) -> (u8, u8) {
    let RepairId::Block { index, parities } = repair.id else { panic!("{repair:?} is of a window") };
    (index, parities)
}

fn slot(choice: &Choice) -> Slot {
    Slot::build(choice, ()).expect("parameters in range")
}

/// Any parameters that the table allows.
fn random_choice(mechanism: &'static Mechanism, rng: &mut ChaCha8Rng) -> Choice {
    let mut choice = mechanism.choice();
    for (value, param) in choice.params.0.iter_mut().zip(mechanism.params) {
        *value = rng.random_range(param.min..=param.max);
    }
    choice
}

#[derive(Clone, Debug)]
enum Packet {
    Source(u64, Vec<u8>),
    Repair(Repair),
}

/// A stream of `count` sources with gaps between their numbers, and the repairs where the encoder
/// offers them. Time passes, now and then enough for a block to be flushed.
fn stream(choice: &Choice, count: usize, rng: &mut ChaCha8Rng) -> Vec<Packet> {
    let mut encoder = slot(choice).encoder();
    let mut packets = Vec::new();
    let (mut number, mut now) = (rng.random_range(0..1000), Time::ZERO);
    for _ in 0..count {
        let mut payload = vec![0; rng.random_range(0..=1400)];
        rng.fill(&mut payload[..]);
        encoder.on_source(now, number, &payload);
        packets.push(Packet::Source(number, payload));
        number += if rng.random_bool(0.9) { 1 } else { rng.random_range(2..40) };
        now += Duration::from_micros(rng.random_range(0..200));
        if rng.random_bool(0.01) {
            now += Duration::from_millis(u64::from(flush_ms(choice)));
        }
        if encoder.deadline().is_some_and(|deadline| deadline <= now) {
            encoder.on_flush(now);
            assert!(encoder.deadline().is_none_or(|deadline| deadline > now));
        }
        packets.extend(core::iter::from_fn(|| encoder.pop_repair()).map(Packet::Repair));
    }
    encoder.flush();
    assert_eq!(encoder.deadline(), None);
    packets.extend(core::iter::from_fn(|| encoder.pop_repair()).map(Packet::Repair));
    assert_eq!(encoder.dropped(), 0);
    packets
}

/// Packets that the receiver recovers from a stream, and its counters.
fn receive(choice: &Choice, packets: &[Packet]) -> (Vec<Recovered>, Counters) {
    let mut decoder = slot(choice).decoder();
    let mut recovered = Vec::new();
    for packet in packets {
        recovered.extend(match packet {
            Packet::Source(number, payload) => decoder.on_source(*number, payload),
            Packet::Repair(repair) => decoder.on_repair(repair),
        });
    }
    (recovered, *decoder.counters())
}

/// The payloads of a stream by number.
fn sources(packets: &[Packet]) -> std::collections::BTreeMap<u64, &Vec<u8>> {
    packets
        .iter()
        .filter_map(|p| match p {
            Packet::Source(number, payload) => Some((*number, payload)),
            Packet::Repair(_) => None,
        })
        .collect()
}

/// Numbers of each block's sources, with its count of parities.
fn blocks(packets: &[Packet]) -> std::collections::BTreeMap<u64, (Vec<u64>, usize)> {
    packets
        .iter()
        .filter_map(|p| match p {
            Packet::Repair(r) => {
                Some((r.first, (r.offsets().map(|o| r.first + o).collect(), usize::from(block_id(r).1))))
            }
            Packet::Source(..) => None,
        })
        .collect()
}

/// Takes out as many sources and repairs of each block as it can stand, or one more if told so;
/// says which sources.
fn lose(shape: &Shape, packets: &mut Vec<Packet>, beyond: bool, rng: &mut ChaCha8Rng) -> Vec<u64> {
    let mut lost = Vec::new();
    for (first, (numbers, parities)) in blocks(packets) {
        // Of the block's sources (`true`) and parities (`false`), in any mixture.
        let mut members: Vec<(bool, u64)> = numbers.iter().map(|n| (true, *n)).collect();
        members.extend((0..parities as u64).map(|index| (false, index)));
        members.shuffle(rng);
        members.truncate(if beyond { parities + 1 } else { shape.repairs(parities) });
        packets.retain(|p| match p {
            Packet::Source(number, _) => !members.contains(&(true, *number)),
            Packet::Repair(r) => r.first != first || !members.contains(&(false, u64::from(block_id(r).0))),
        });
        lost.extend(members.iter().filter(|(is_source, _)| *is_source).map(|(_, number)| *number));
    }
    lost.sort_unstable();
    lost
}

fn check_recovered(all: &[Packet], lost: &[u64], recovered: &mut [Recovered], complete: bool, name: &str) {
    let sources = sources(all);
    recovered.sort_by_key(|r| r.number);
    assert!(recovered.windows(2).all(|w| w[0].number < w[1].number), "{name}: a number recovered twice");
    for r in recovered.iter() {
        assert!(lost.contains(&r.number), "{name}: {} was not lost", r.number);
        assert_eq!(&r.payload[..], &sources[&r.number][..], "{name}: {} is not what was sent", r.number);
    }
    if complete {
        let numbers: Vec<u64> = recovered.iter().map(|r| r.number).collect();
        assert_eq!(numbers, lost, "{name}: not all was recovered");
    }
}

#[test]
fn numbers_are_the_places_in_the_list() {
    assert!(MECHANISMS.iter().enumerate().all(|(i, m)| usize::from(m.number) == i));
}

#[test]
fn none_makes_no_repairs_and_keeps_nothing() {
    let choice = none::None::INFO.choice();
    let mut encoder = slot(&choice).encoder();
    encoder.on_source(Time::ZERO, 1, b"data");
    encoder.flush();
    assert!(encoder.deadline().is_none() && !encoder.has_repair());
    let mut decoder = slot(&choice).decoder();
    assert!(decoder.on_source(1, b"data").is_empty());
    assert_eq!(decoder.held_bytes(), 0);
}

#[test]
fn sources_of_the_largest_blocks_fit_the_bounds() {
    for mechanism in schemes() {
        let mut choice = mechanism.choice();
        for (value, param) in choice.params.0.iter_mut().zip(mechanism.params) {
            *value = param.max;
        }
        let shape = shape_of(&choice).expect("blocks");
        assert!(shape.data <= DATA_MAX && shape.parities <= PARITIES_MAX, "{}", mechanism.name);
        assert!(shape.mask_bytes_max() <= MASK_BYTES_MAX);
        assert_eq!(shape.parities_for(shape.data), shape.parities);
        assert_eq!(shape.parities_for(1), 1);
        assert_eq!(shape.parities_for(0), 0);
    }
}

#[test]
fn an_unfinished_block_is_closed_at_its_deadline() {
    for mechanism in schemes() {
        let choice = mechanism.choice();
        let mut encoder = slot(&choice).encoder();
        let flush = shape_of(&choice).expect("blocks").flush;
        let start = Time::from_millis(5);
        encoder.on_source(start, 7, b"first");
        assert_eq!(encoder.deadline(), Some(start + flush), "{}", mechanism.name);
        encoder.on_flush(start);
        assert!(!encoder.has_repair());
        encoder.on_flush(start + flush);
        let repair = encoder.pop_repair().expect("a repair");
        assert_eq!((repair.first, &repair.mask[..], block_id(&repair)), (7, &[1][..], (0, 1)));
        // A block of one source is that source again.
        let mut decoder = slot(&choice).decoder();
        let recovered = decoder.on_repair(&repair);
        assert_eq!(recovered, [Recovered { number: 7, payload: Bytes::from_static(b"first") }]);
        assert!(decoder.on_repair(&repair).is_empty(), "recovered once");
        assert!(decoder.on_source(7, b"first").is_empty());
    }
}

#[test]
fn numbers_of_a_block_span_no_more_than_allowed() {
    for mechanism in schemes() {
        let mut encoder = slot(&mechanism.choice()).encoder();
        let shape = shape_of(&mechanism.choice()).expect("blocks");
        let span = shape.span_max();
        for i in 0..200 {
            encoder.on_source(Time::ZERO, i * 9, &[i as u8; 10]);
        }
        encoder.flush();
        let mut covered = Vec::new();
        while let Some(repair) = encoder.pop_repair() {
            assert!(repair.offsets().all(|o| o < span));
            assert!(repair.mask.len() <= shape.mask_bytes_max());
            if block_id(&repair).0 == 0 {
                covered.extend(repair.offsets().map(|o| (repair.first + o) / 9));
            }
        }
        covered.sort_unstable();
        assert_eq!(covered, (0..200).collect::<Vec<_>>(), "{}: each source in one block", mechanism.name);
    }
}

#[test]
fn numbers_out_of_order_and_oversized_payloads_go_unprotected() {
    let choice = reed_solomon::ReedSolomon::INFO.choice_with(&[("interleave", 1)]).expect("in range");
    let mut encoder = slot(&choice).encoder();
    for number in [10, 10, 9, 11] {
        encoder.on_source(Time::ZERO, number, b"x");
    }
    encoder.on_source(Time::ZERO, 12, &vec![0; PAYLOAD_BYTES_MAX + 1]);
    encoder.flush();
    assert_eq!(encoder.pop_repair().expect("a repair").mask[..], [0b11]);
}

/// A burst costs each of the interleaved blocks its share, wherever it falls, also among the
/// repairs.
#[test]
fn interleaved_blocks_stand_a_burst() {
    for mechanism in schemes() {
        let choice = mechanism.choice();
        let shape = shape_of(&choice).expect("blocks");
        let mut encoder = slot(&choice).encoder();
        let mut packets = Vec::new();
        for number in 0..(shape.data * shape.interleave) as u64 {
            encoder.on_source(Time::ZERO, number, &number.to_be_bytes());
            packets.push(Packet::Source(number, number.to_be_bytes().to_vec()));
        }
        packets.extend(core::iter::from_fn(|| encoder.pop_repair()).map(Packet::Repair));
        assert_eq!(packets.len(), (shape.data + shape.parities) * shape.interleave);
        let burst = shape.repairs(shape.parities) * shape.interleave;
        for start in 0..=packets.len() - burst {
            let mut arriving = packets.clone();
            let lost: Vec<u64> =
                sources(&arriving.drain(start..start + burst).collect::<Vec<_>>()).into_keys().collect();
            let (mut recovered, _) = receive(&choice, &arriving);
            check_recovered(&packets, &lost, &mut recovered, true, mechanism.name);
        }
    }
}

#[test]
fn a_clean_path_leaves_nothing_behind() {
    for mechanism in schemes() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let packets = stream(&mechanism.choice(), 2000, &mut rng);
        let mut decoder = slot(&mechanism.choice()).decoder();
        for packet in &packets {
            let recovered = match packet {
                Packet::Source(number, payload) => decoder.on_source(*number, payload),
                Packet::Repair(repair) => decoder.on_repair(repair),
            };
            assert!(recovered.is_empty());
        }
        assert_eq!(decoder.held_bytes(), 0, "{}", mechanism.name);
        assert_eq!(decoder.counters().unneeded, decoder.counters().repairs);
    }
}

#[test]
fn memory_is_bounded_whatever_arrives() {
    for mechanism in schemes() {
        let choice = mechanism.choice();
        let mut decoder = slot(&choice).decoder();
        let payload = vec![1; 60_000];
        for i in 0..2000u64 {
            decoder.on_source(i * 3, &payload);
            decoder.on_repair(&Repair {
                first: i * 3 + 1,
                mask: SmallVec::from_slice(&[0b11]),
                id: RepairId::Block { index: 0, parities: 1 },
                symbol: Bytes::from(payload.clone()),
            });
            assert!(decoder.held_bytes() <= 2 << 20, "{}: {}", mechanism.name, decoder.held_bytes());
        }
        assert!(decoder.counters().abandoned > 0);
        // A number far ahead makes all before it old.
        assert!(decoder.on_source(1 << 61, b"far").is_empty());
        assert_eq!(decoder.held_bytes(), 3);
    }
}

#[test]
fn repairs_that_no_encoder_makes_are_refused() {
    let good = Repair {
        first: 100,
        mask: SmallVec::from_slice(&[0b111]),
        id: RepairId::Block { index: 0, parities: 1 },
        symbol: Bytes::from_static(&[0, 1, 0x55]),
    };
    let bad = |change: fn(&mut Repair)| {
        let mut repair = good.clone();
        change(&mut repair);
        repair
    };
    let cases = [
        ("empty mask", bad(|r| r.mask.clear())),
        ("first is no source", bad(|r| r.mask[0] = 0b110)),
        ("mask ends in zeros", bad(|r| r.mask.push(0))),
        ("mask too long", bad(|r| r.mask.resize(MASK_BYTES_MAX + 1, 1))),
        ("too many sources", bad(|r| r.mask = SmallVec::from_elem(0xff, 16))),
        ("no parities", bad(|r| r.id = RepairId::Block { index: 0, parities: 0 })),
        ("too many parities", bad(|r| r.id = RepairId::Block { index: 0, parities: 200 })),
        ("index out of range", bad(|r| r.id = RepairId::Block { index: 1, parities: 1 })),
        ("symbol too short", bad(|r| r.symbol = Bytes::from_static(&[0]))),
        ("symbol too long", bad(|r| r.symbol = Bytes::from(vec![0; PAYLOAD_BYTES_MAX + 3]))),
        ("of a window", bad(|r| r.id = RepairId::Window { key: 0 })),
        ("number too large", bad(|r| r.first = u64::MAX - 1)),
    ];
    for mechanism in schemes() {
        let mut decoder = slot(&mechanism.choice()).decoder();
        for (what, repair) in &cases {
            let before = *decoder.counters();
            assert!(decoder.on_repair(repair).is_empty());
            assert_eq!(decoder.counters().refused, before.refused + 1, "{}: {what}", mechanism.name);
            assert_eq!(decoder.held_bytes(), 0);
        }
        assert!(slot(&none::None::INFO.choice()).decoder().on_repair(&good).is_empty());
    }
}

#[test]
fn repairs_that_contradict_are_refused() {
    let repair = |mask: u8, symbol: &'static [u8]| Repair {
        first: 100,
        mask: SmallVec::from_slice(&[mask]),
        id: RepairId::Block { index: 0, parities: 1 },
        symbol: Bytes::from_static(symbol),
    };
    for mechanism in schemes() {
        let choice = mechanism.choice();
        // The length field is beyond the symbol; the padding is not zero.
        for symbol in [&[0, 2, 0x55][..], &[0xff, 0xff, 0x55], &[0, 0, 0x55]] {
            let mut decoder = slot(&choice).decoder();
            assert!(decoder.on_repair(&repair(1, symbol)).is_empty());
            assert_eq!(decoder.counters().refused, 1, "{}: {symbol:?}", mechanism.name);
            assert_eq!(decoder.held_bytes(), 0);
        }
        // A source that arrived is longer than the symbol.
        let mut decoder = slot(&choice).decoder();
        decoder.on_source(100, b"longer than that");
        assert!(decoder.on_repair(&repair(0b11, &[0, 1, 0x55])).is_empty());
        assert_eq!(decoder.counters().refused, 1, "{}", mechanism.name);
        // The second repair of a block names other sources than the first.
        let mut decoder = slot(&choice).decoder();
        decoder.on_repair(&repair(0b11, &[0, 1, 0x55]));
        decoder.on_repair(&repair(0b101, &[0, 1, 0x55]));
        decoder.on_repair(&repair(0b11, &[0, 1, 0x55, 0]));
        assert_eq!(decoder.counters().refused, 2, "{}", mechanism.name);
        decoder.on_repair(&repair(0b11, &[0, 1, 0x55]));
        assert_eq!(decoder.counters().unneeded, 1, "{}: the same again", mechanism.name);
    }
}

/// On a channel of 5 % loss in bursts of 4, what is left unrepaired is what the prediction says,
/// within a factor of two.
#[test]
fn measured_residual_loss_is_as_predicted() {
    let (loss, burst) = (0.05, 4.0);
    for mechanism in schemes() {
        let choice = mechanism.choice();
        let shape = shape_of(&choice).expect("blocks");
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut encoder = slot(&choice).encoder();
        let mut decoder = slot(&choice).decoder();
        let (leave, mut lossy) = (1.0 / burst, false);
        let enter = loss * leave / (1.0 - loss);
        let (count, mut lost, mut number) = (200_000u64, 0u64, 0u64);
        for _ in 0..count {
            let payload = number.to_be_bytes();
            encoder.on_source(Time::ZERO, number, &payload);
            let mut repair = None;
            loop {
                lossy = if lossy { !rng.random_bool(leave) } else { rng.random_bool(enter) };
                match &repair {
                    None if lossy => lost += 1,
                    None => drop(decoder.on_source(number, &payload)),
                    Some(_) if lossy => {}
                    Some(repair) => drop(decoder.on_repair(repair)),
                }
                number += 1;
                repair = encoder.pop_repair();
                if repair.is_none() {
                    break;
                }
            }
        }
        let residual = (lost - decoder.counters().recovered) as f64 / count as f64;
        let predicted = predict::residual_loss_of(loss, burst, &shape);
        let ratio = residual / predicted;
        assert!((0.5..2.0).contains(&ratio), "{}: {residual} against {predicted}", mechanism.name);
        assert!(residual < loss, "{}: {residual} of {loss}", mechanism.name);
    }
}

/// A sender of few packets closes blocks before they are full, and sends more parities for a source
/// then: as many as is predicted.
#[test]
fn the_overhead_of_few_packets_is_as_predicted() {
    for mechanism in MECHANISMS.iter().filter(|m| !m.facts.inert) {
        for (every_ms, at_once) in [(20, 1), (11, 1), (3, 1), (33, 12), (100, 2), (4, 3)] {
            let facts = PathFacts {
                packets_per_s: f64::from(at_once) * 1e3 / every_ms as f64,
                packets_at_once: f64::from(at_once),
                loss: 0.02,
                capacity: Rate::from_bits_per_sec(10_000_000),
                ..PathFacts::default()
            };
            let choice = mechanism.choice();
            let (mut encoder, mut number, mut repairs) = (slot(&choice).encoder(), 0u64, 0);
            for burst in 0..500u64 {
                let now = Time::from_millis(burst * every_ms);
                while encoder.deadline().is_some_and(|at| at <= now) {
                    encoder.on_flush(encoder.deadline().expect("it is there"));
                }
                for _ in 0..at_once {
                    encoder.on_source(now, number, &[7; 100]);
                    number += 1;
                }
                while encoder.pop_repair().is_some() {
                    repairs += 1;
                }
            }
            let mut predicted = Prediction::of_path(&facts);
            (mechanism.predict)(&choice.params, &facts, &mut predicted);
            let expansion = 1.0 + f64::from(repairs) / number as f64;
            let ratio = (predicted.expansion - 1.0) / (expansion - 1.0);
            let name = mechanism.name;
            assert!(
                (0.65..1.5).contains(&ratio),
                "{name}, {at_once} every {every_ms} ms: {expansion}, not {}",
                predicted.expansion
            );
        }
    }
}

proptest! {
    /// As many losses as a block has parities are all repaired, bit for bit, and nothing else is.
    #[test]
    fn losses_up_to_the_parities_are_repaired(seed in any::<u64>(), count in 1usize..150) {
        for mechanism in schemes() {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let choice = random_choice(mechanism, &mut rng);
            let all = stream(&choice, count, &mut rng);
            let mut arriving = all.clone();
            let lost = lose(&shape_of(&choice).expect("blocks"), &mut arriving, false, &mut rng);
            let (mut recovered, counters) = receive(&choice, &arriving);
            check_recovered(&all, &lost, &mut recovered, true, mechanism.name);
            prop_assert_eq!(counters.refused, 0);
        }
    }

    /// The same in any order and with every packet possibly twice, as long as nothing grows too
    /// old.
    #[test]
    fn order_and_duplicates_do_not_matter(seed in any::<u64>(), count in 1usize..80) {
        for mechanism in schemes() {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let choice = random_choice(mechanism, &mut rng);
            let all = stream(&choice, count, &mut rng);
            let span = sources(&all).keys().last().unwrap_or(&0) - sources(&all).keys().next().unwrap_or(&0);
            prop_assume!(span < 4 * SPAN_MAX && blocks(&all).len() <= 32);
            let mut arriving = all.clone();
            let lost = lose(&shape_of(&choice).expect("blocks"), &mut arriving, false, &mut rng);
            let again: Vec<_> = arriving.iter().filter(|_| rng.random_bool(0.3)).cloned().collect();
            arriving.extend(again);
            arriving.shuffle(&mut rng);
            let (recovered, _) = receive(&choice, &arriving);
            // In any order a block may be recovered from its repairs before its last sources
            // arrive: these are then recovered without having been lost.
            let sources = sources(&all);
            let mut numbers: Vec<u64> = recovered.iter().map(|r| r.number).collect();
            numbers.sort_unstable();
            prop_assert!(numbers.windows(2).all(|w| w[0] < w[1]), "{}: recovered twice", mechanism.name);
            for r in &recovered {
                prop_assert_eq!(&r.payload[..], &sources[&r.number][..]);
            }
            prop_assert!(lost.iter().all(|n| numbers.binary_search(n).is_ok()), "{}: not all", mechanism.name);
        }
    }

    /// More losses than parities yield nothing wrong.
    #[test]
    fn losses_beyond_the_parities_yield_no_wrong_data(seed in any::<u64>(), count in 1usize..150) {
        for mechanism in schemes() {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let choice = random_choice(mechanism, &mut rng);
            let all = stream(&choice, count, &mut rng);
            let mut arriving = all.clone();
            let lost = lose(&shape_of(&choice).expect("blocks"), &mut arriving, true, &mut rng);
            let (mut recovered, _) = receive(&choice, &arriving);
            check_recovered(&all, &lost, &mut recovered, false, mechanism.name);
        }
    }

    /// Whatever a repair says, the decoder stands it.
    #[test]
    fn no_repair_breaks_the_decoder(seed in any::<u64>()) {
        for mechanism in MECHANISMS {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let choice = random_choice(mechanism, &mut rng);
            let mut decoder = slot(&choice).decoder();
            let mut arrived = std::collections::BTreeSet::new();
            for _ in 0..200 {
                let number = rng.random_range(0..300u64);
                let mut bytes = vec![0; rng.random_range(0..12)];
                rng.fill(&mut bytes[..]);
                let recovered = if rng.random_bool(0.5) {
                    arrived.insert(number);
                    decoder.on_source(number, &bytes)
                } else {
                    let mut mask = vec![0; rng.random_range(0..4)];
                    rng.fill(&mut mask[..]);
                    if let Some(first) = mask.first_mut() {
                        *first |= 1;
                    }
                    if let [0, 0..=15, ..] = bytes[..] {
                        bytes[1] %= 10;
                    }
                    decoder.on_repair(&Repair {
                        first: if rng.random_bool(0.95) { number } else { rng.random() },
                        mask: SmallVec::from_vec(mask),
                        id: RepairId::Block { index: rng.random_range(0..3), parities: rng.random_range(0..4) },
                        symbol: Bytes::from(bytes),
                    })
                };
                for r in recovered {
                    prop_assert!(arrived.insert(r.number), "{} arrived or was recovered before", r.number);
                }
            }
        }
    }
}
