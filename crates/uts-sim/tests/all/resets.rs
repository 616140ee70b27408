//! Stateless resets for forgotten connections: from the endpoint that had them, and from no other.

use crate::joined::{CLIENT, Pair, SERVER, address};
use core::time::Duration;
use uts_engine::{CloseReason, Endpoint, EndpointConfig, Event};

const SECRET: [u8; 32] = [7; 32];

/// A client and a server, connected.
fn connected() -> Pair {
    let mut pair = Pair::new(EndpointConfig { secret: SECRET, ..EndpointConfig::default() });
    pair.settle(200);
    pair.works();
    pair
}

/// A server that knows nothing of any connection.
fn forgetful(pair: &Pair, config: EndpointConfig) -> Endpoint {
    Endpoint::new(EndpointConfig { server: Some(pair.identities.server.clone()), ..config }, [3; 32])
}

/// A packet of the client's.
fn short(pair: &Pair) -> Vec<u8> {
    pair.sent[CLIENT].iter().rev().find(|d| d[0] & 0x80 == 0 && d.len() > 30).expect("one").clone()
}

/// Answer of an endpoint to a packet.
fn answer(pair: &Pair, of: &mut Endpoint, from: std::net::SocketAddr, packet: &[u8]) -> Option<Vec<u8>> {
    of.handle_datagram(pair.now, from, None, &mut packet.to_vec());
    let mut answer = Vec::new();
    let sent = of.poll_transmit(pair.now, &mut answer)?;
    assert_eq!(sent.remote, from);
    Some(answer)
}

#[test]
fn only_the_right_token_resets() {
    let mut pair = connected();
    // A server that was restarted: the same secret, no connections.
    let mut restarted = forgetful(&pair, EndpointConfig { secret: SECRET, ..EndpointConfig::default() });
    let short = short(&pair);
    let answer = answer(&pair, &mut restarted, address(0), &short).expect("a reset");
    assert!(answer.len() < short.len());
    for place in [0, 8, 15] {
        let mut wrong = answer.clone();
        let at = wrong.len() - 16 + place;
        wrong[at] ^= 1;
        pair.inject(CLIENT, address(1), &wrong);
        pair.inject(CLIENT, address(9), &answer);
    }
    assert!(pair.ends[CLIENT].peek(pair.client).expect("it is there").is_open());
    pair.inject(CLIENT, address(1), &answer);
    assert_eq!(pair.events[CLIENT].last(), Some(&Event::Closed(CloseReason::Reset)));
}

/// RFC 9000 section 21.11.
#[test]
fn no_server_tells_anybody_the_word_for_a_connection_of_another() {
    let pair = connected();
    let short = short(&pair);
    let other = EndpointConfig { secret: [8; 32], ..EndpointConfig::default() };
    assert_eq!(answer(&pair, &mut forgetful(&pair, other), address(0), &short), None, "another instance");
    let same = || EndpointConfig { secret: SECRET, ..EndpointConfig::default() };
    // Even if two could not be told apart.
    for stranger in [address(9), std::net::SocketAddr::new(address(0).ip(), 4434)] {
        assert_eq!(answer(&pair, &mut forgetful(&pair, same()), stranger, &short), None, "{stranger}");
    }
    assert!(answer(&pair, &mut forgetful(&pair, same()), address(0), &short).is_some());
}

#[test]
fn nobody_is_told_a_word_for_an_id_that_was_never_given_out() {
    let pair = connected();
    let mut server = forgetful(&pair, EndpointConfig { secret: SECRET, ..EndpointConfig::default() });
    let short = short(&pair);
    for number in 0..100_000_u64 {
        let mut guess = short.clone();
        guess[1..9].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        assert_eq!(answer(&pair, &mut server, address(0), &guess), None);
    }
}

#[test]
fn resets_to_one_address_are_few_and_again_given_later() {
    let mut pair = connected();
    let mut server = forgetful(&pair, EndpointConfig { secret: SECRET, ..EndpointConfig::default() });
    let short = short(&pair);
    for _ in 0..3 {
        let given = (0..1000).filter_map(|_| answer(&pair, &mut server, address(0), &short)).count();
        assert_eq!(given, 8, "in a second");
        pair.now += Duration::from_secs(1);
    }
}

#[test]
fn ids_too_short_for_a_check_are_never_reset() {
    let config = || EndpointConfig { secret: SECRET, cid_bytes: 4, ..EndpointConfig::default() };
    let mut pair = Pair::new(config());
    pair.settle(200);
    pair.works();
    let short = short(&pair);
    assert_eq!(answer(&pair, &mut forgetful(&pair, config()), address(0), &short), None);
    assert_eq!(pair.ends[SERVER].len(), 1);
}

/// A host that was suspended, whose clock went on (`uts/src/clock.rs`): the connection is over by
/// then, and that is what is said. The peer is not asked, so that it says nothing either.
#[test]
fn who_was_away_for_longer_than_the_idle_time_out_asks() {
    let mut pair = connected();
    let slept = pair.now + Duration::from_secs(3600);
    let client = pair.ends[CLIENT].connection(pair.client).expect("open");
    let flow = client.open_flow(uts_engine::FlowOptions::default()).expect("opened");
    client.write(slept, flow, b"good morning".as_slice().into()).expect("written");
    pair.ends[CLIENT].handle_timeout(slept);
    // timing.md R-22
    assert!(pair.ends[CLIENT].poll_transmit(slept, &mut Vec::new()).is_some());
    let told: Vec<Event> = core::iter::from_fn(|| pair.ends[CLIENT].poll_event()).map(|(_, e)| e).collect();
    assert!(!told.iter().any(|event| matches!(event, Event::Closed(_))), "{told:?}");
    // A peer that has given it up in the meantime says so as one that was started again does.
    assert!(CloseReason::Reset.to_string().contains("given it up"), "{}", CloseReason::Reset);
}
