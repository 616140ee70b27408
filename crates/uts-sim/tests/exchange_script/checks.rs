//! Packets that are damaged, or come too late, under every detection mechanism.

use super::*;
use uts_functions::Mechanism;
use uts_functions::detection::{self, Detection};

/// The detection mechanisms that check anything.
fn checks() -> impl Iterator<Item = &'static str> {
    library::of(Function::Detection).into_iter().filter(|m| !m.facts.inert).map(|m| m.name)
}

/// Both ends, where the client's packets are checked by that mechanism and by nothing else.
fn checked_by(identities: &Identities, detection: &str) -> Script {
    let mut script = Script::with(identities, "uts.security=unprotected uts.consent=all");
    script.talk(100);
    let profile = script.profile().with_named(Function::Detection, detection).expect("in the library");
    let now = script.now;
    script.at(CLIENT).request_profile(now, Direction::Out, profile).expect("both have it");
    script.pass(1000);
    assert_eq!(script.profile().name(Function::Detection), detection);
    script
}

/// detection.md: a packet with a wrong bit is dropped and changes nothing, or it is
/// put right and counted. Its header cannot be put right.
#[test]
fn a_wrong_bit_is_found_or_put_right_by_every_mechanism() {
    let identities = Identities::new().expect("keys");
    for detection in checks() {
        let mut script = checked_by(&identities, detection);
        let (now, before) = (script.now, script.at(SERVER).stats());
        let mut ping = script.at(CLIENT).packet_of(now, &[0x01]).expect("open");
        let frame =
            ping.len() - library::by_name(Function::Detection, detection).map_or(0, trailer_bytes) - 1;
        ping[frame] ^= 0x80;
        script.ends[SERVER].handle_datagram(now, address(CLIENT), None, &mut ping.clone());
        let after = script.at(SERVER).stats();
        let dropped = after.dropped_malformed - before.dropped_malformed;
        let corrected = after.packets_corrected - before.packets_corrected;
        let received = after.packets_received - before.packets_received;
        let expected = if detection == "hamming" { (0, 1, 1) } else { (1, 0, 0) };
        assert_eq!((dropped, corrected, received), expected, "{detection}");
        // The bit of the spin and the like: in the first byte, which has been read before.
        ping[frame] ^= 0x80;
        ping[0] ^= 0x01;
        script.ends[SERVER].handle_datagram(now, address(CLIENT), None, &mut ping);
        assert_eq!(script.at(SERVER).stats().packets_corrected - before.packets_corrected, corrected);
    }
}

fn trailer_bytes(m: &'static Mechanism) -> usize {
    detection::Slot::build(&m.choice(), ()).map_or(0, |slot| slot.trailer_bytes())
}

/// P-5: so many others have overtaken a packet that its number is completed to one that is still to
/// come. The checksum covers all of it.
#[test]
fn a_late_packet_is_not_taken_for_one_to_come() {
    const OVERTAKING: usize = 200;
    let identities = Identities::new().expect("keys");
    for detection in checks() {
        let mut script = checked_by(&identities, detection);
        let now = script.now;
        let pings: Vec<_> =
            (0..=OVERTAKING).map(|_| script.at(CLIENT).packet_of(now, &[0x01]).expect("open")).collect();
        script.at(CLIENT).trace().take().count();
        let (late, overtaking) = pings.split_first().expect("some");
        for ping in overtaking.iter().chain([late]) {
            script.ends[SERVER].handle_datagram(now, address(CLIENT), None, &mut ping.clone());
        }
        let stats = script.at(SERVER).stats();
        assert_eq!((stats.dropped_malformed, stats.dropped_duplicate), (1, 0), "{detection}");
        script.talk(100);
        assert_eq!(script.closed, [None, None], "{detection}");
    }
}

/// P-5: where nothing checks numbers none is completed wrongly, of whatever age it is: a packet
/// that came twice is no packet that is still to come.
#[test]
fn a_copy_of_an_early_packet_is_a_copy_where_nothing_checks_numbers() {
    let identities = Identities::new().expect("keys");
    let mut script = checked_by(&identities, "none");
    let now = script.now;
    let before = script.at(SERVER).stats();
    let pings: Vec<_> = (0..400).map(|_| script.at(CLIENT).packet_of(now, &[0x01]).expect("open")).collect();
    for (place, ping) in pings.iter().enumerate() {
        script.ends[SERVER].handle_datagram(now, address(CLIENT), None, &mut ping.clone());
        if let Some(copy) = place.checked_sub(130) {
            script.ends[SERVER].handle_datagram(now, address(CLIENT), None, &mut pings[copy].clone());
        }
    }
    let after = script.at(SERVER).stats();
    assert_eq!(after.packets_received - before.packets_received, 400);
    assert_eq!(after.dropped_duplicate - before.dropped_duplicate, 270);
}
