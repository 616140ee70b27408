//! Memory of an endpoint under attack, by the counting allocator: bounded, however long the attack
//! goes on.

mod counting;
#[allow(dead_code, reason = "these attacks are on an application that reads nothing")]
mod victim;

use core::time::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uts_engine::{ConnectionConfig, Endpoint, EndpointConfig};
use uts_functions::Time;
use uts_sim::identity::Identities;
use uts_wire::frame::{self, Frame};
use uts_wire::{WireChoice, WireProfile};
use victim::{Liar, Victim, address, turn};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Data with LEN and OFFSET.
const DATA: u8 = 0x43;

fn config(asked: &[&str]) -> ConnectionConfig {
    let mut config = ConnectionConfig::default();
    asked.iter().for_each(|property| config.requirements.assign(property).expect("a property"));
    config
}

fn varint(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    uts_wire::varint::put_varint(&mut out, value);
    out
}

fn data(flow: u64, offset: u64, bytes: &[u8]) -> Vec<u8> {
    [&[DATA][..], &varint(flow), &varint(offset), &varint(bytes.len() as u64), bytes].concat()
}

fn emitted(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.emit(&mut out);
    out
}

fn skip(flow: u64, start: u64) -> Vec<u8> {
    emitted(&Frame::Skip(frame::Skip { flow: flow as u32, start, len: 1 }))
}

/// Sends this many packets to an open connection, without acknowledging anything. The victim has
/// its turn after each. Returns the most that it held beyond the connection, and whether it still
/// has the connection.
fn attack(name: &str, asked: &[&str], packets: u64, mut frames: impl FnMut(u64) -> Vec<u8>) -> (usize, bool) {
    let identities = Identities::new().expect("keys");
    let mut liar = Liar::connected(&identities, &config(asked));
    for round in 0..packets {
        liar.say(&frames(round));
        liar.victim.speak();
        if round % 16 == 0 {
            liar.victim.pass(Duration::from_millis(1));
        }
    }
    println!("{name}: {} bytes at most, open: {}", liar.grown(), liar.is_open());
    (liar.grown(), liar.is_open())
}

/// An attack whose memory stays far below a bound could hide growth with each packet. Three times
/// as many packets must not take more.
fn attack_for_long(name: &str, asked: &[&str], frames: impl Fn(u64) -> Vec<u8>) -> usize {
    let (short, _) = attack(name, asked, 5_000, &frames);
    let (long, is_open) = attack(name, asked, 15_000, &frames);
    assert!(is_open, "{name}: the attack ends with the connection, and says nothing");
    assert!(long <= short + 64 * KIB, "{name}: {short} bytes, {long} after three times as many packets");
    long
}

/// Packets of the victim that nobody acknowledges, in flight or reported: `UNASKED_MAX` of the
/// ledger twice over, at 300 bytes each.
const UNANSWERED_BYTES: usize = 256 * KIB;

#[test]
fn forged_first_packets_are_bounded_by_what_goes_without_a_retry() {
    let _turn = turn();
    let identities = Identities::new().expect("keys");
    let first: Vec<Vec<u8>> = (0..20u8)
        .map(|seed| {
            let mut client = Endpoint::new(EndpointConfig::default(), [seed; 32]);
            identities
                .connect(&mut client, Time::ZERO, address(1, 4433), ConnectionConfig::default())
                .expect("it begins");
            let mut out = Vec::new();
            let sent = client.poll_transmit(Time::ZERO, &mut out).expect("a first packet");
            out.truncate(sent.segment_bytes);
            out
        })
        .collect();
    let config = EndpointConfig { handshakes_before_retry: 64, ..EndpointConfig::default() };
    let mut victim = Victim::new(&identities, config);
    let mut heard = 0;
    for port in 0..100 {
        for datagram in &first {
            victim.hear(address(7, 1000 + port), datagram);
            victim.speak();
            heard += datagram.len();
        }
    }
    println!("{} handshakes, {} bytes at most", victim.endpoint.len(), victim.peak);
    assert_eq!(
        victim.endpoint.len(),
        64,
        "with so many under way, others have to show that they are at their address"
    );
    assert!(victim.peak < 64 * 64 * KIB as isize, "{} bytes", victim.peak);
    assert!(victim.sent <= 3 * heard);
    victim.pass(Duration::from_secs(30));
    assert!(victim.endpoint.is_empty());
    assert!(victim.held < 64 * KIB as isize, "{} bytes are kept", victim.held);
}

#[test]
fn garbage_leaves_nothing() {
    let _turn = turn();
    let identities = Identities::new().expect("keys");
    let mut victim = Victim::new(&identities, EndpointConfig::default());
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut hear = |victim: &mut Victim, count: usize, answers: bool| {
        for _ in 0..count {
            let mut datagram = vec![0; rng.random_range(1..1500)];
            rng.fill(&mut datagram[..]);
            match rng.random_range(0..4) {
                // Packets that are for nobody, others of this version, and of another.
                0 => datagram[0] &= 0x7f,
                1 if datagram.len() > 5 => {
                    datagram[0] = 0x80;
                    datagram[1..5].copy_from_slice(&uts_wire::VERSION.to_be_bytes());
                }
                2 => datagram[0] |= 0x80,
                _ => {}
            }
            victim.hear(address(7, rng.random_range(1..1000)), &datagram);
            if answers {
                victim.speak();
            }
        }
    };
    hear(&mut victim, 10_000, true);
    let after = victim.peak;
    hear(&mut victim, 20_000, true);
    println!("{after} bytes, then {}", victim.peak);
    assert!(victim.peak <= 64 * KIB as isize && victim.peak <= after + 4 * KIB as isize, "{}", victim.peak);
    // While nothing can be sent, answers wait, and only this many.
    hear(&mut victim, 20_000, false);
    assert!(victim.peak <= 256 * KIB as isize, "{}", victim.peak);
    assert!(victim.endpoint.is_empty());
}

#[test]
fn data_beyond_credit_and_flows_beyond_the_limit_end_the_connection() {
    let _turn = turn();
    let (bytes, is_open) = attack("beyond credit", &[], 1000, |n| data(0, (1 << 20) + n * 100, &[1; 100]));
    assert!(!is_open && bytes < 16 * KIB, "{bytes}");
    let (bytes, is_open) = attack("many flows", &[], 1000, |n| data(2 * n, 1, &[1; 10]));
    assert!(!is_open && bytes < 512 * KIB, "{bytes}");
    let (bytes, is_open) =
        attack("gaps without end", &[], 1000, |n| (0..50).flat_map(|i| skip(0, 2 * (50 * n + i))).collect());
    assert!(!is_open && bytes < 2 * MIB, "{bytes}");
}

/// 4096 gaps of a flow are remembered, with a piece of one byte between each two. With so little
/// data, the pieces are all there is.
#[test]
fn tiny_pieces_are_bounded_by_their_number() {
    let _turn = turn();
    const PIECE_BYTES_MAX: usize = 320;
    let bytes = attack_for_long("gaps", &[], |n| {
        (0..50).flat_map(|i| data(0, 2 * (n * 50 + i) % (1 << 20), &[1])).collect()
    });
    assert!(bytes <= 4096 * PIECE_BYTES_MAX + UNANSWERED_BYTES, "{bytes}");
    let unordered = ["preserveOrder=no-preference", "reliability=avoid", "preserveMsgBoundaries=require"];
    // BEGIN without END, each in a place of its own.
    let bytes = attack_for_long("messages that do not end", &unordered, |n| {
        (0..50)
            .flat_map(|i| [&[0x5b][..], &data(0, 2 * (n * 50 + i) % (1 << 20), &[1])[1..]].concat())
            .collect()
    });
    assert!(bytes <= 4 * MIB, "{bytes}");
}

#[test]
fn data_that_overlaps_is_held_once() {
    let _turn = turn();
    let bytes = attack_for_long("the same again", &[], |n| data(0, 1 + n * 13 % 700, &[1; 600]));
    assert!(bytes <= MIB, "{bytes}");
    // A byte of each flow keeps no more than is credited, whatever packet it came in.
    let bytes = attack_for_long("last bytes", &[], |n| {
        (0..50).flat_map(|i| data(2 * ((n * 50 + i) % 100), 2000, &[1; 10])).collect()
    });
    assert!(bytes <= MIB, "{bytes}");
}

#[test]
fn acknowledgements_of_anything_take_nothing() {
    let _turn = turn();
    // Of what was never sent: the end of the connection.
    let (bytes, is_open) = attack("never sent", &[], 100, |_| {
        let mut out = Vec::new();
        frame::emit_ack(
            &mut out,
            (0..60).rev().map(|i| 1_000_000 + 10 * i..1_000_001 + 10 * i),
            0,
            None,
            1000,
        );
        out
    });
    assert!(!is_open && bytes < 16 * KIB, "{bytes}");
    // Of every third packet, with questions that make more of them.
    let identities = Identities::new().expect("keys");
    let mut liar = Liar::connected(&identities, &config(&[]));
    let mut grown = [0; 2];
    for grown in &mut grown {
        for n in 0..5_000 {
            liar.say(&emitted(&Frame::PathChallenge(n)));
            liar.hear_some(3);
            liar.victim.pass(Duration::from_millis(1));
        }
        *grown = liar.grown();
    }
    println!("holes: {grown:?} bytes");
    assert!(liar.is_open() && grown[0] <= MIB && grown[1] <= grown[0] + 64 * KIB, "{grown:?}");
}

#[test]
fn questions_in_a_loop_are_answered_as_far_as_the_peer_listens() {
    let _turn = turn();
    let bytes = attack_for_long("pings", &[], |_| vec![1]);
    assert!(bytes <= UNANSWERED_BYTES, "{bytes}");
    let challenges = |n: u64| (0..50).flat_map(|i| emitted(&Frame::PathChallenge(n * 50 + i))).collect();
    let bytes = attack_for_long("challenges", &[], challenges);
    assert!(bytes <= UNANSWERED_BYTES + 64 * KIB, "{bytes}");
    let bytes = attack_for_long("control", &[], |n| {
        let flow = (2 * n % 200) as u32;
        let reset = Frame::ResetFlow(frame::ResetFlow { flow, code: n, final_position: n, sent: Some(0) });
        [emitted(&Frame::StopFlow(frame::StopFlow { flow, code: n })), emitted(&reset)].concat()
    });
    assert!(bytes <= MIB, "{bytes}");
}

#[test]
fn requests_of_an_exchange_in_a_loop_leave_the_last_answers() {
    let _turn = turn();
    let request = |n: u64, mechanism: u8| {
        let choice = WireChoice { function: 10, mechanism, params: [0; 4] };
        let direction =
            if n.is_multiple_of(2) { frame::Direction::FromSender } else { frame::Direction::ToSender };
        let profile = Box::new(WireProfile::from_choices([choice]).expect("one"));
        let (group, epoch) = ((n / 2 % 8) as u8, (n / 2) as u32);
        emitted(&Frame::RequestPf(frame::RequestPf {
            direction,
            group,
            epoch,
            using: Default::default(),
            profile,
        }))
    };
    for (name, mechanism) in [("requests", 2), ("requests of what nobody has", 200)] {
        let bytes = attack_for_long(name, &[], |n| request(n, mechanism));
        assert!(bytes <= UNANSWERED_BYTES + 256 * KIB, "{bytes}");
    }
    let answers = |n: u64| {
        let (direction, epoch) = (frame::Direction::FromSender, n as u32 % 64);
        [
            emitted(&Frame::AckPf(frame::AckPf { direction, epoch })),
            emitted(&Frame::ConfirmPf(frame::ConfirmPf { direction, epoch })),
            emitted(&Frame::StalePf(frame::StalePf { direction, epoch, highest: epoch + 5 })),
        ]
        .concat()
    };
    let bytes = attack_for_long("answers to nothing", &[], answers);
    assert!(bytes <= UNANSWERED_BYTES, "{bytes}");
}

/// Repairs for blocks that never become whole.
#[test]
fn repairs_that_repair_nothing_are_bounded() {
    let _turn = turn();
    let bytes = attack_for_long("repairs", &["uts.profile.fec=reed-solomon"], |n| {
        let (first, mask) = (8 * n, [0xff]);
        emitted(&Frame::Repair(frame::Repair {
            first,
            mask: &mask,
            id: frame::RepairId::Block { index: 0, parities: 1 },
            symbol: &[1; 1100],
        }))
    });
    assert!(bytes <= 2 * MIB + UNANSWERED_BYTES, "{bytes}");
}

/// Words of mechanisms that are in use and of others that are not, about data that was never sent
/// and flows that never were.
#[test]
fn feedback_about_nothing_costs_nothing() {
    let _turn = turn();
    let properties = ["uts.profile.retransmission=nak", "uts.profile.rate=netblt"];
    let bytes = attack_for_long("feedback", &properties, |n| {
        let flow = (n % 300) as u32;
        let ranges = [0x40, (n % 200) as u8, 0x40, 0xff];
        let rate = [0x00, 0x00];
        let said = |function, mechanism, flow, words: &[u8]| {
            emitted(&Frame::Feedback(frame::Feedback { function, mechanism, flow, words }))
        };
        [
            said(5, 3, flow, &ranges),
            said(5, 4, flow, &[0xff; 255]),
            said(9, 3, 0, &rate),
            said((n % 256) as u8, 1, flow, &ranges),
        ]
        .concat()
    });
    assert!(bytes <= UNANSWERED_BYTES, "{bytes}");
}
