use super::*;
use crate::wire::{Advertised, Body, Lack};

fn key(generation: u16, byte: u8) -> Key {
    Key { generation, step: 0, secret: [byte; 32] }
}

fn sender() -> SenderKeys {
    SenderKeys::new(9, key(0, 1), &[2; 32])
}

fn member(sender: &SenderKeys, number: u32) -> MemberKeys {
    MemberKeys::new(9, number, &[number as u8; 32], sender.public_key(), sender.key().clone())
}

fn packet(block: u32) -> FromSender {
    let advertised = Advertised { backoff: 4, ..Advertised::default() };
    FromSender { advertised, body: Body::Source { block, index: 0, before: 0, source: vec![7; 30].into() } }
}

#[test]
fn members_read_the_sender_once_and_nothing_that_was_changed() {
    let mut sender = sender();
    let mut member = member(&sender, 1);
    let datagram = sender.seal(5, &packet(1));
    for at in 0..datagram.len() {
        let mut wrong = datagram.clone();
        wrong[at] ^= 1;
        assert!(member.open(&wrong).is_err(), "byte {at}");
    }
    for end in 0..datagram.len() {
        assert!(member.open(&datagram[..end]).is_err(), "{end} bytes");
    }
    assert_eq!(member.open(&datagram), Ok((5, packet(1))));
    assert_eq!(member.open(&datagram), Err(Unreadable::Replayed));
    // Order is free within a window.
    assert!(member.open(&sender.seal(4, &packet(1))).is_ok());
    assert!(member.open(&sender.seal(1000, &packet(1))).is_ok());
    assert_eq!(member.open(&sender.seal(3, &packet(1))), Err(Unreadable::Replayed));
}

/// A member has the key of the group, and cannot speak in the sender's name.
#[test]
fn a_member_that_forges_the_sender_is_found_out() {
    let sender = sender();
    let mut liar = SenderKeys::new(9, key(0, 1), &[3; 32]);
    assert_eq!(member(&sender, 1).open(&liar.seal(0, &packet(0))), Err(Unreadable::Unsigned));
}

/// Whoever comes reads nothing of before, and those that were there read on without being told.
#[test]
fn a_step_shuts_out_those_that_come_later_from_what_was() {
    let mut sender = sender();
    let mut old = member(&sender, 1);
    let before = sender.seal(0, &packet(0));
    let late = sender.seal(1, &packet(0));
    sender.step();
    let mut new = member(&sender, 2);
    assert_eq!(new.open(&before), Err(Unreadable::NoKey { generation: 0, step: 0 }));
    let after = sender.seal(2, &packet(1));
    assert!(new.open(&after).is_ok() && old.open(&after).is_ok());
    // One of before the step, which others have overtaken.
    assert!(old.open(&late).is_ok());
    let mut take = |steps: u16| {
        for _ in 0..steps {
            sender.seal(3, &packet(2));
            sender.step();
            // Nothing was sealed since: the next that comes may have this key as well.
            sender.step();
        }
        sender.seal(3, &packet(2))
    };
    assert!(old.open(&take(STEPS_AHEAD_MAX)).is_ok());
    let mut far = take(STEPS_AHEAD_MAX + 1);
    far[16] = 4;
    assert_eq!(old.open(&far), Err(Unreadable::NoKey { generation: 0, step: 2 * STEPS_AHEAD_MAX + 2 }));
}

#[test]
fn a_generation_shuts_out_those_that_have_left() {
    let mut sender = sender();
    let (mut stays, mut left) = (member(&sender, 1), member(&sender, 2));
    let next = key(1, 77);
    stays.add(next.clone());
    assert!(left.open(&sender.seal(0, &packet(0))).is_ok());
    let late = sender.seal(1, &packet(1));
    sender.use_key(next);
    let datagram = sender.seal(2, &packet(1));
    assert_eq!(left.open(&datagram), Err(Unreadable::NoKey { generation: 1, step: 0 }));
    assert!(stays.open(&datagram).is_ok() && stays.open(&late).is_ok());
    // Keys that were promised are bounded, and the old ones go.
    for generation in 2..9 {
        stays.add(key(generation, 1));
    }
    assert_eq!(stays.known.len(), GENERATIONS_MAX);
}

#[test]
fn a_request_is_of_the_member_that_it_says() {
    let sender = sender();
    let mut own = member(&sender, 1);
    let request = Request { echo: 1, seen: 2, lacks: vec![Lack { block: 3, needs: 1, missing: 4 }] };
    let datagram = own.seal(&request);
    assert_eq!(Shared::member(9, &datagram), Ok(1));
    assert_eq!(Shared::member(8, &datagram), Err(Unreadable::Foreign));
    let mut shared = Shared::new(&[1; 32]);
    assert_eq!(Shared::new(&[2; 32]).open(9, &datagram), Err(Unreadable::Forged));
    assert_eq!(shared.open(9, &datagram), Ok(request));
    assert_eq!(shared.open(9, &datagram), Err(Unreadable::Replayed));
}
