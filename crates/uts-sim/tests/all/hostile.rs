//! Packets from strangers: counted and dropped, with no state made or changed, and answered
//! sparingly.

use crate::joined::{CLIENT, Pair, SERVER, address};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uts_engine::{CloseReason, ConnectionHandle, Direction, Endpoint, EndpointConfig, Event};
use uts_functions::Function;

/// Bad datagrams made out of good ones.
fn bad(rng: &mut ChaCha8Rng, good: &[Vec<u8>]) -> Vec<u8> {
    let mut datagram = good[rng.random_range(0..good.len())].clone();
    match rng.random_range(0..5) {
        0 => datagram.truncate(rng.random_range(0..datagram.len())),
        1 => {
            let bit = rng.random_range(0..datagram.len() * 8);
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
        2 => rng.fill(&mut datagram[..]),
        3 => {
            let head = rng.random_range(1..datagram.len().min(30));
            rng.fill(&mut datagram[head..]);
        }
        _ => {
            datagram[0] ^= rng.random_range(1..=255u8);
            datagram.resize(rng.random_range(1..3000), 0);
        }
    }
    datagram
}

#[test]
fn bad_packets_change_nothing_at_any_stage() {
    for flights in 0..5 {
        let mut pair = Pair::new(EndpointConfig::default());
        // Another connection's packets: right in form, and of no concern here.
        let mut rehearsal = Pair::seeded(EndpointConfig::default(), 2);
        rehearsal.settle(200);
        for _ in 0..flights {
            pair.exchange();
        }
        if flights == 4 {
            pair.settle(200);
        }
        let good: Vec<Vec<u8>> =
            rehearsal.sent.iter().chain(&pair.sent).flatten().filter(|d| !d.is_empty()).cloned().collect();
        let mut rng = ChaCha8Rng::seed_from_u64(flights);
        for end in [CLIENT, SERVER] {
            pair.drain(end);
        }
        let before = pair.state();
        for _ in 0..3000 {
            let datagram = bad(&mut rng, &good);
            let end = rng.random_range(0..2);
            let from = address(if rng.random_bool(0.5) { 9 } else { 1 - end as u8 });
            let answered = pair.inject(end, from, &datagram);
            assert!(answered <= 3 * datagram.len(), "{answered} bytes for {}", datagram.len());
        }
        assert_eq!(pair.state(), before, "after {flights} flights");
        if flights == 4 {
            pair.works();
        }
    }
}

/// P-35: of a header the id is authenticated, the number is the nonce, its length says where the
/// payload begins, and the epoch says which keys.
#[test]
fn a_packet_with_another_header_is_dropped() {
    for cipher in ["aes-128-gcm", "chacha20-poly1305"] {
        let mut pair = Pair::new(EndpointConfig::default());
        pair.settle(200);
        let (now, client) = (pair.now, pair.client);
        let connection = pair.ends[CLIENT].connection(client).expect("it is there");
        let profile = connection.profile(Direction::Out).expect("open");
        let profile = profile.with_named(Function::Protection, cipher).expect("in the library");
        connection.request_profile(now, Direction::Out, profile).expect("idle");
        pair.settle(1000);
        pair.works();
        let now = pair.now;
        let connection = pair.ends[CLIENT].connection(client).expect("it is there");
        assert_eq!(connection.profile(Direction::Out), Some(profile));
        let fresh = connection.packet_of(now, &[0x01]).expect("open");
        pair.drain(CLIENT);
        let before = pair.state();
        let header = 1 + EndpointConfig::default().cid_bytes + 4;
        for bit in 0..header * 8 {
            let mut changed = fresh.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            pair.inject(SERVER, address(CLIENT as u8), &changed);
            assert_eq!(pair.state(), before, "{cipher}: bit {bit}");
        }
        pair.inject(SERVER, address(CLIENT as u8), &fresh);
        assert_ne!(pair.state(), before, "{cipher}: as it was made it is taken in");
        pair.works();
    }
}

#[test]
fn replayed_packets_are_dropped_and_make_no_second_connection() {
    let mut pair = Pair::new(EndpointConfig::default());
    pair.settle(200);
    pair.works();
    let before = pair.state();
    for end in [CLIENT, SERVER] {
        for datagram in pair.sent[end].clone() {
            pair.inject(1 - end, address(end as u8), &datagram);
        }
    }
    assert_eq!(pair.state(), before);
    // From elsewhere, a first packet is a first packet. What follows it is bounded. Others have no
    // effect.
    let firsts = pair.sent[CLIENT].clone();
    let answered: usize = firsts.iter().map(|datagram| pair.inject(SERVER, address(9), datagram)).sum();
    assert!(answered <= 3 * firsts.iter().map(Vec::len).sum::<usize>());
    assert!(pair.ends[SERVER].len() <= 2);
    pair.settle(60_000);
    assert!(pair.ends[SERVER].len() <= 1, "a handshake that nobody finishes is forgotten");
}

#[test]
fn datagrams_that_come_together_are_each_judged_alone() {
    let mut pair = Pair::new(EndpointConfig::default());
    pair.settle(200);
    pair.works();
    let (before, strangers) = (pair.state(), pair.ends[SERVER].strangers);
    // A forged one under a known id, and three under none.
    let good = pair.sent[CLIENT].iter().rev().find(|d| d[0] & 0x80 == 0).expect("a short packet").clone();
    let mut batch = vec![0x11; 4 * 60];
    batch[60..69].copy_from_slice(&good[..9]);
    pair.ends[SERVER].take_in(pair.now, address(CLIENT as u8), None, None, 60, &mut batch);
    pair.ends[SERVER].taken_in(pair.now);
    assert_eq!(pair.ends[SERVER].strangers - strangers, 3);
    let forged = pair.server.and_then(|h| pair.ends[SERVER].peek(h)).expect("open").stats();
    assert_eq!(forged.dropped_forged + forged.dropped_malformed, 1, "{forged:?}");
    assert_eq!(pair.state(), before);
    pair.works();
}

#[test]
fn an_unproved_address_gets_at_most_three_times_what_it_sent() {
    for handshakes_before_retry in [0, 256] {
        let mut pair = Pair::new(EndpointConfig { handshakes_before_retry, ..EndpointConfig::default() });
        let first = pair.drain(CLIENT);
        let mut received = 0;
        let mut answered = 0;
        for (_, datagram) in &first {
            received += datagram.len();
            answered += pair.inject(SERVER, address(0), datagram);
            assert!(answered <= 3 * received);
        }
        assert!(answered > 0);
        // Nothing more comes from there; time passes.
        for _ in 0..200 {
            let Some(next) = pair.ends[SERVER].poll_timeout() else { break };
            pair.now = pair.now.max(next);
            let now = pair.now;
            pair.ends[SERVER].handle_timeout(now);
            answered += pair.drain(SERVER).iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
            assert!(answered <= 3 * received, "{answered} bytes for {received}");
        }
        assert_eq!(pair.ends[SERVER].len(), 0, "it is forgotten");
    }
}

#[test]
fn a_retry_proves_the_address_and_only_that_one() {
    let mut pair = Pair::new(EndpointConfig { handshakes_before_retry: 0, ..EndpointConfig::default() });
    pair.exchange();
    assert_eq!(pair.ends[SERVER].len(), 0, "no state before the address is proved");
    let second = pair.drain(CLIENT);
    for (_, datagram) in &second {
        pair.inject(SERVER, address(9), datagram);
        assert_eq!(pair.ends[SERVER].len(), 0, "a token of another address is worth nothing");
    }
    for (_, datagram) in &second {
        pair.inject(SERVER, address(0), datagram);
    }
    assert_eq!(pair.ends[SERVER].len(), 1);
    let mut pair = Pair::new(EndpointConfig { handshakes_before_retry: 0, ..EndpointConfig::default() });
    pair.settle(500);
    pair.works();
}

#[test]
fn another_version_is_refused_naming_both() {
    let mut pair = Pair::new(EndpointConfig::default());
    let first = pair.drain(CLIENT);
    let (_, datagram) = &first[0];
    let mut other = datagram.clone();
    other[1..5].copy_from_slice(b"UTS\x09");
    let mut other_in = other.clone();
    pair.ends[SERVER].handle_datagram(pair.now, address(0), None, &mut other_in);
    let answers = pair.drain(SERVER);
    assert_eq!((answers.len(), pair.ends[SERVER].len()), (1, 0));
    // The same refusal, as it would come from a server that speaks version 9 only.
    let mut refusal = answers[0].1.clone();
    let at = refusal.len() - 4;
    refusal[at..].copy_from_slice(b"UTS\x09");
    let mut forged = refusal.clone();
    forged[8] ^= 1;
    pair.inject(CLIENT, address(1), &forged);
    assert!(pair.events[CLIENT].is_empty(), "an answer to nothing we sent");
    pair.inject(CLIENT, address(1), &refusal);
    assert!(pair.events[CLIENT].is_empty(), "it is a hint: {:?}", pair.events[CLIENT]);
    // Nobody says anything else.
    pair.ends[SERVER].refuse_new();
    while pair.events[CLIENT].is_empty() {
        pair.now = pair.ends[CLIENT].poll_timeout().expect("it waits for something");
        let now = pair.now;
        pair.ends[CLIENT].handle_timeout(now);
        pair.drain(CLIENT);
    }
    let Some(Event::Closed(CloseReason::Unconfirmed { said, .. })) = pair.events[CLIENT].last() else {
        panic!("{:?}", pair.events[CLIENT])
    };
    assert_eq!(said.to_string(), "the peer speaks version UTS 9, this end speaks version UTS 2");
}

/// An attacker that sees a first packet can answer it before the server does.
#[test]
fn a_forged_refusal_does_not_end_a_handshake() {
    let mut pair = Pair::new(EndpointConfig::default());
    let first = pair.drain(CLIENT);
    let (_, datagram) = &first[0];
    // The refusal of an endpoint that takes nobody is what anybody could make.
    let server = Some(pair.identities.server.clone());
    let mut forger = Endpoint::new(EndpointConfig { server, ..EndpointConfig::default() }, [9; 32]);
    forger.refuse_new();
    forger.handle_datagram(pair.now, address(0), None, &mut datagram.clone());
    let mut refusal = Vec::new();
    forger.poll_transmit(pair.now, &mut refusal).expect("a refusal");
    pair.inject(CLIENT, address(1), &refusal);
    assert!(pair.events[CLIENT].is_empty(), "{:?}", pair.events[CLIENT]);
    pair.inject(SERVER, address(0), &[0; 20]);
    for (_, datagram) in &first {
        pair.ends[SERVER].handle_datagram(pair.now, address(0), None, &mut datagram.clone());
    }
    pair.settle(200);
    pair.works();
}

/// An address has a bounded number of connections. A sender that forges the address keeps nobody
/// out.
#[test]
fn an_address_has_its_part_and_no_more() {
    let config = EndpointConfig { connections_per_address_max: 2, ..EndpointConfig::default() };
    let mut pair = Pair::new(config);
    pair.settle(200);
    pair.works();
    let first = (core::mem::replace(&mut pair.client, ConnectionHandle(0)), pair.server.expect("connected"));
    pair.client = pair.connect();
    pair.settle(600);
    pair.works();
    assert_eq!(pair.ends[SERVER].len(), 2);
    for turn in 1..3 {
        pair.connect();
        // A refusal is a hint, kept until the handshake is given up.
        pair.settle(1_000 + 11_000 * turn);
        let last = pair.events[CLIENT].last();
        let Some(Event::Closed(reason)) = last else { panic!("{:?}", pair.events[CLIENT]) };
        assert!(
            reason.to_string().contains("this address has as many connections to it as it may"),
            "{reason}"
        );
        assert_eq!(pair.ends[SERVER].len(), 2);
    }
    // A place that becomes free is taken again.
    let now = pair.now;
    pair.ends[CLIENT].connection(first.0).expect("it is there").close(now, 0, "");
    pair.ends[SERVER].release(first.1);
    pair.settle(25_000);
    assert_eq!(pair.ends[SERVER].len(), 1);
    pair.client = pair.connect();
    pair.settle(26_000);
    pair.works();
}

#[test]
fn a_full_endpoint_says_so() {
    let mut pair = Pair::new(EndpointConfig { connections_max: 1, ..EndpointConfig::default() });
    pair.settle(200);
    // It has something under way: who has nothing makes room.
    pair.works();
    pair.connect();
    pair.settle(9_000);
    assert_eq!(pair.events[CLIENT].last(), Some(&Event::Connected), "a refusal is a hint");
    pair.settle(11_000);
    let Some(Event::Closed(reason)) = pair.events[CLIENT].last() else { panic!("{:?}", pair.events[CLIENT]) };
    assert_eq!(
        reason.to_string(),
        "no answer to the handshake within 10 s; what came instead is not authenticated: \
         refused by the peer: it has as many connections as it may"
    );
    assert_eq!(pair.ends[SERVER].len(), 1);
    pair.works();
}
