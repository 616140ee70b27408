//! Ends whose administrators have given functions and mechanisms other numbers understand each
//! other: no number means one thing here and another there (packets.md P-67).

use crate::exchange_matrix::{CLIENT, SERVER, Transfer, walk_with};
use core::time::Duration;
use uts_engine::{Direction, ExchangeError};
use uts_functions::{Function, library};

const OPEN: [&str; 2] = ["uts.security=unprotected"; 2];

/// Swaps the two mechanisms of sequencing that differ in nothing but the order.
const UNORDERED_FIRST: &str = "[sequencing]
ordered = 1
unordered = 0
";

/// Has `ordered` where the specification has it, and `unordered` elsewhere.
const ORDERED_FIRST: &str = "[sequencing]
ordered = 0
unordered = 7
";

/// Swaps two checksums.
const SWAPPED: &str = "[detection]
none = 0
internet-16 = 2
crc-32c = 1
";

/// Another: of this file the numbers 0 and 1 are the specification's.
const MOVED: &str = "[detection]
none = 0
internet-16 = 3
crc-32c = 4
parity = 2
";

/// A file that gives all functions and mechanisms other numbers: each its neighbour's.
fn rotated(by: usize) -> String {
    let next = |numbers: &[u8], at: usize| numbers[(at + by) % numbers.len()];
    let functions: Vec<u8> = Function::ALL.iter().map(|f| f.number()).collect();
    let mut text = String::from("[functions]\n");
    for (at, function) in Function::ALL.iter().enumerate() {
        text += &format!("{} = {}\n", function.name(), next(&functions, at));
    }
    for function in Function::ALL {
        let all = library::of(*function);
        let numbers: Vec<u8> = all.iter().map(|m| m.number).collect();
        text += &format!("[{}]\n", function.name());
        for (at, mechanism) in all.iter().enumerate() {
            text += &format!("{} = {}\n", mechanism.name, next(&numbers, at));
        }
    }
    text
}

/// Two files that swap `ordered` and `unordered`: a receiver that took the one for the other would
/// hand over messages as they come, and nobody would notice.
#[test]
fn files_that_swap_two_mechanisms_keep_the_order() {
    for mappings in [
        [Some(UNORDERED_FIRST), None],
        [None, Some(UNORDERED_FIRST)],
        [Some(UNORDERED_FIRST), Some(ORDERED_FIRST)],
        [Some(ORDERED_FIRST), Some(UNORDERED_FIRST)],
    ] {
        let path = "rate=20mbit delay=20ms jitter=15ms,reorder loss=0.05";
        let mut transfer = Transfer::with_mappings(path, OPEN, mappings);
        let base = transfer.connection(CLIENT).profile(Direction::Out).expect("connected");
        assert_eq!(base.name(Function::Sequencing), "ordered");
        let named = |name| base.with_named(Function::Sequencing, name).expect("in the library");
        transfer.exchange(CLIENT, Direction::Out, named("unordered"));
        transfer.exchange(SERVER, Direction::In, named("ordered"));
        let before = transfer.received.len();
        transfer.send(300);
        transfer.pass(Duration::from_secs(20));
        assert_eq!(transfer.received.len() as u32, transfer.sent);
        assert!(transfer.received[before..].is_sorted(), "{mappings:?}: the order is lost");
    }
}

/// Two files that swap checksums: without a cipher, packets of the one would fail the other's.
#[test]
fn files_that_swap_checksums_check_the_same() {
    let mut transfer = Transfer::with_mappings("rate=20mbit delay=20ms", OPEN, [Some(SWAPPED), Some(MOVED)]);
    let base = transfer.connection(CLIENT).profile(Direction::Out).expect("connected");
    for name in ["crc-32c", "internet-16", "none", "internet-16", "crc-32c"] {
        let profile = base.with_named(Function::Detection, name).expect("in the library");
        if transfer.connection(CLIENT).profile(Direction::Out) != Some(profile) {
            transfer.exchange(CLIENT, Direction::Out, profile);
        }
    }
    let stats = transfer.connection(SERVER).stats();
    assert_eq!((stats.dropped_malformed, stats.dropped_forged), (0, 0));
}

/// Every function and mechanism has another number at each end, and none of the specification.
#[test]
fn every_mechanism_is_exchanged_for_every_other_under_other_numbers() {
    let (client, server) = (rotated(1), rotated(2));
    let mappings = [Some(&*server), Some(&*client)];
    let transfer = Transfer::with_mappings("rate=20mbit delay=20ms buffer=400p", OPEN, mappings);
    assert!(walk_with(transfer, true) > 50);
    let transfer = Transfer::with_mappings("rate=20mbit delay=20ms buffer=400p", OPEN, mappings);
    assert!(walk_with(Transfer { at_once: true, ..transfer }, true) > 50, "in envelopes");
}

/// What a file leaves out is not used at its end, and the other end knows.
#[test]
fn what_a_file_leaves_out_is_not_had() {
    for end in [CLIENT, SERVER] {
        let mut mappings = [None, None];
        mappings[end] = Some(MOVED);
        let mut transfer = Transfer::with_mappings("rate=20mbit delay=20ms", OPEN, mappings);
        let base = transfer.connection(CLIENT).profile(Direction::Out).expect("connected");
        let profile = base.with_named(Function::Detection, "fletcher-32").expect("in the library");
        let other = [CLIENT, SERVER][usize::from(end == CLIENT)];
        let now = transfer.world.now();
        let direction = if other == CLIENT { Direction::Out } else { Direction::In };
        let asked = transfer.connection(other).request_profile(now, direction, profile);
        let lacks = ExchangeError::PeerLacks { function: Function::Detection, mechanism: "fletcher-32" };
        assert_eq!(asked, Err(lacks));
    }
}

/// Both ends can say what differs.
#[test]
fn the_first_difference_is_named() {
    let mut transfer = Transfer::with_mappings("delay=20ms", OPEN, [Some(SWAPPED), Some(MOVED)]);
    let at_client = transfer.connection(CLIENT).numbers_difference();
    assert_eq!(
        at_client.as_deref(),
        Some("detection/internet-16 is 3 here and 2 there, and 2 others differ")
    );
    let mut plain = Transfer::new("delay=20ms", OPEN);
    assert_eq!(plain.connection(CLIENT).numbers_difference(), None);
}
