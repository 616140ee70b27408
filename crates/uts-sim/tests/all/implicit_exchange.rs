//! Profiles that are used at once: packets carry the request until one has arrived, and what a peer
//! refuses is sent again (exchange.md section 9).

use crate::exchange_matrix::{CLIENT, SERVER, Transfer, walk_with};
use core::time::Duration;
use uts_engine::{Direction, ExchangeError};
use uts_functions::{Function, Profile, library};

const CLEAN: &str = "rate=20mbit delay=20ms buffer=400p";

fn transfer(path: &str) -> Transfer {
    let transfer = Transfer::new(path, ["uts.security=unprotected"; 2]);
    Transfer { at_once: true, completed: Vec::new(), ..transfer }
}

fn in_use(transfer: &mut Transfer) -> Profile {
    transfer.connection(CLIENT).profile(Direction::Out).expect("connected")
}

fn with(transfer: &mut Transfer, function: Function, name: &str) -> Profile {
    in_use(transfer).with_named(function, name).expect("in the library")
}

fn use_at_once(transfer: &mut Transfer, profile: Profile) -> Result<u32, ExchangeError> {
    let now = transfer.world.now();
    transfer.connection(CLIENT).use_profile(now, profile)
}

#[test]
fn every_mechanism_gives_way_to_every_other_at_once() {
    let steps = walk_with(transfer(CLEAN), true);
    println!("{steps} exchanges");
    assert!(steps > 50);
}

#[test]
fn every_mechanism_gives_way_to_every_other_at_once_on_a_lossy_path() {
    let path = "rate=20mbit delay=20ms buffer=400p loss=0.1 jitter=5ms,reorder duplicate=0.05";
    let steps = walk_with(transfer(path), false);
    assert!(steps > 50);
}

/// A change that the peer cannot but agree to takes no round trip, and nothing is discarded.
#[test]
fn the_first_packet_behind_the_decision_is_of_the_new_profile() {
    let mut transfer = transfer("rate=20mbit delay=300ms");
    let wanted = with(&mut transfer, Function::Acknowledgement, "per-packet");
    use_at_once(&mut transfer, wanted).expect("idle");
    assert_eq!(in_use(&mut transfer), wanted);
    transfer.send(5);
    // Half a round trip and what the packets take.
    transfer.pass(Duration::from_millis(320));
    assert_eq!(transfer.received.len(), 5);
    assert_eq!(transfer.connection(SERVER).profile(Direction::In), Some(wanted));
    assert!(transfer.completed.is_empty(), "the sender cannot know yet");
    transfer.pass(Duration::from_millis(320));
    assert_eq!(transfer.completed.len(), 1);
    let stats = transfer.connection(SERVER).stats();
    assert_eq!((stats.dropped_unknown_epoch, stats.dropped_malformed), (0, 0));
}

/// Packets of the new profile overtake each other, and get lost: any of them opens it.
#[test]
fn any_packet_opens_what_it_is_built_under() {
    for seed in 0..10 {
        let mut transfer = transfer("rate=20mbit delay=100ms jitter=90ms,reorder loss=0.3");
        let names = ["crc-32c", "none", "fletcher-32"];
        transfer.send(10 + seed);
        for name in names.iter().cycle().take(6) {
            let wanted = with(&mut transfer, Function::Detection, name);
            if wanted == in_use(&mut transfer) {
                continue;
            }
            use_at_once(&mut transfer, wanted).expect("idle");
            transfer.send(20);
            transfer.pass(Duration::from_secs(20));
            assert_eq!(transfer.connection(SERVER).profile(Direction::In), Some(wanted));
        }
        let stats = transfer.connection(SERVER).stats();
        assert_eq!((transfer.received.len() as u32, stats.dropped_malformed), (transfer.sent, 0));
        // Nothing that arrived was discarded but what came behind two changes.
        assert_eq!(stats.dropped_unknown_epoch, 0);
    }
}

/// The peer has withdrawn a mechanism since it said that it had it: what it could not read is sent
/// again under what was in use, and the loss is none of the path.
#[test]
fn what_the_peer_refuses_is_sent_again() {
    for (function, name) in [
        (Function::Fec, "reed-solomon"),
        (Function::Congestion, "bbr"),
        (Function::Detection, "fletcher-32"),
        (Function::Acknowledgement, "per-packet"),
    ] {
        let mut transfer = transfer("rate=20mbit delay=50ms");
        let before = in_use(&mut transfer);
        let wanted = with(&mut transfer, function, name);
        transfer.connection(SERVER).withdraw(function, wanted.get(function).number);
        transfer.send(20);
        transfer.pass(Duration::from_millis(20));
        use_at_once(&mut transfer, wanted).expect("idle");
        transfer.send(30);
        transfer.pass(Duration::from_millis(60));
        assert_eq!(in_use(&mut transfer), wanted, "{name}: no answer has come yet");
        let discarded = transfer.connection(SERVER).stats().dropped_unknown_epoch;
        assert!(discarded > 0, "{name}: what came is discarded");
        transfer.pass(Duration::from_secs(5));
        assert_eq!(in_use(&mut transfer), before, "{name}");
        assert_eq!(transfer.refused, [(CLIENT, function)], "{name}");
        let mut received = transfer.received.clone();
        received.sort_unstable();
        assert!(received.into_iter().eq(0..50), "{name}: nothing is lost");
        assert_eq!(transfer.connection(CLIENT).stats().packets_lost, 0, "{name}: the path lost nothing");
        // It goes on as ever.
        let other = with(&mut transfer, Function::Timing, "jacobson");
        transfer.exchange(CLIENT, Direction::Out, other);
    }
}

/// The refusal is lost again and again, and so are the packets.
#[test]
fn a_refusal_that_gets_lost_is_said_again() {
    for _ in 0..5 {
        let mut transfer = transfer("rate=20mbit delay=50ms loss=0.4");
        let before = in_use(&mut transfer);
        let wanted = with(&mut transfer, Function::Fec, "reed-solomon");
        transfer.connection(SERVER).withdraw(Function::Fec, wanted.get(Function::Fec).number);
        use_at_once(&mut transfer, wanted).expect("idle");
        transfer.send(50);
        transfer.pass(Duration::from_secs(60));
        assert_eq!((in_use(&mut transfer), transfer.received.len()), (before, 50));
    }
}

/// An outage begins with the decision: the request is in whatever leaves behind it.
#[test]
fn an_outage_delays_nothing_but_the_packets() {
    let mut transfer = transfer("rate=20mbit delay=20ms");
    let wanted = with(&mut transfer, Function::Detection, "crc-32c");
    transfer.send(5);
    transfer.world.set_path(uts_path::Target::Both, "down").expect("a valid change");
    use_at_once(&mut transfer, wanted).expect("idle");
    transfer.send(5);
    transfer.pass(Duration::from_secs(5));
    assert_eq!((in_use(&mut transfer), transfer.completed.len()), (wanted, 0));
    transfer.world.set_path(uts_path::Target::Both, "up").expect("a valid change");
    transfer.pass(Duration::from_secs(30));
    assert_eq!((transfer.completed.len(), transfer.received.len()), (1, 10));
}

/// Nothing else is to be sent, and what says so gets lost: whatever finds losses, it is said again.
#[test]
fn a_sender_that_has_nothing_to_send_is_heard_at_last() {
    for finding in library::of(Function::Finding) {
        for loss in 0..3 {
            let mut transfer = transfer("rate=20mbit delay=20ms");
            let base = with(&mut transfer, Function::Finding, finding.name);
            transfer.exchange(CLIENT, Direction::Out, base);
            let path = format!("loss=0.{}", 3 + loss);
            transfer.world.set_path(uts_path::Target::Both, &path).expect("a valid change");
            let (wanted, before) =
                (with(&mut transfer, Function::Congestion, "bbr"), transfer.completed.len());
            use_at_once(&mut transfer, wanted).expect("idle");
            transfer.pass(Duration::from_secs(25));
            assert_eq!(transfer.completed.len(), before + 1, "{} {path}", finding.name);
            assert_eq!(transfer.connection(SERVER).profile(Direction::In), Some(wanted));
        }
    }
}

/// The peer's own request crosses it at any instant.
#[test]
fn a_request_of_the_peer_crosses_what_is_used_at_once() {
    for head_start_ms in -45_i64..45 {
        let mut transfer = transfer("rate=20mbit delay=20ms");
        let wishes = ["bbr", "new-reno"].map(|name| with(&mut transfer, Function::Congestion, name));
        transfer.send(10);
        let ask = |transfer: &mut Transfer| {
            let now = transfer.world.now();
            let _ = transfer.connection(SERVER).request_profile(now, Direction::In, wishes[1]);
        };
        if head_start_ms < 0 {
            ask(&mut transfer);
        }
        transfer.pass(Duration::from_millis(head_start_ms.unsigned_abs()));
        let used = use_at_once(&mut transfer, wishes[0]);
        assert!(matches!(used, Ok(_) | Err(ExchangeError::Busy(_))), "{used:?}");
        transfer.send(10);
        if head_start_ms >= 0 {
            ask(&mut transfer);
        }
        transfer.pass(Duration::from_secs(10));
        let agreed = in_use(&mut transfer);
        assert_eq!(Some(agreed), transfer.connection(SERVER).profile(Direction::In), "{head_start_ms} ms");
        assert!(wishes.contains(&agreed) && transfer.received.len() == 20);
        assert_eq!(transfer.connection(SERVER).stats().dropped_unknown_epoch, 0, "{head_start_ms} ms");
    }
}

/// Data that is written under a presentation cannot be taken back: such a change is asked for.
#[test]
fn what_cannot_be_taken_back_is_asked_for() {
    let mut transfer = transfer("rate=20mbit delay=20ms");
    let before = in_use(&mut transfer);
    let wanted = with(&mut transfer, Function::Presentation, "lz4");
    use_at_once(&mut transfer, wanted).expect("idle");
    assert_eq!(in_use(&mut transfer), before);
    transfer.pass(Duration::from_secs(1));
    assert_eq!(in_use(&mut transfer), wanted);
}
