//! Packet scripts: what each end sends and receives, in order. `s` is the data sender, `r` the data
//! receiver.

use super::{Busy, EPOCH_SPAN, Event, GROUPS_MAX, Machine, Message, Side, TRIES_MAX, Using};
use core::time::Duration;
use uts_functions::Time;

const EPOCH_SPAN_SOFT: u32 = EPOCH_SPAN / 4 * 3;

type End = Machine<&'static str, &'static str>;
type Letter = Message<&'static str, &'static str>;

const PTO_MS: u64 = 100;

fn ends() -> (End, End) {
    let end = |side| {
        let mut end = Machine::new(side, 0);
        end.set_pto(Duration::from_millis(PTO_MS));
        end
    };
    (end(Side::DataSender), end(Side::DataReceiver))
}

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// Group 0 and group 1 as the sender uses them.
fn using(epochs: &[u32]) -> Using {
    core::array::from_fn(|group| epochs.get(group).copied())
}

fn request(epoch: u32, group: u8, using: Using, profile: &'static str) -> Letter {
    Message::Request { epoch, group, using, profile }
}

fn ack(epoch: u32) -> Letter {
    Message::Ack { epoch }
}

fn nak(epoch: u32) -> Letter {
    Message::Nak { epoch, refusal: "no" }
}

fn confirm(epoch: u32) -> Letter {
    Message::Confirm { epoch }
}

fn stale(epoch: u32, highest: u32) -> Letter {
    Message::Stale { epoch, highest }
}

/// The end sends exactly these messages.
macro_rules! send {
    ($end:ident $(, $letter:expr)*) => {{
        $(assert_eq!($end.poll_message(), Some($letter));)*
        assert_eq!($end.poll_message(), None);
    }};
}

/// The end receives a message at that time (ms); it accepts any request, or refuses it.
macro_rules! recv {
    ($end:ident, $ms:expr, $letter:expr) => {
        $end.handle(at($ms), $letter, |_, _| Ok(()))
    };
    ($end:ident, $ms:expr, $letter:expr, refuse) => {
        $end.handle(at($ms), $letter, |_, _| Err("no"))
    };
}

/// The end had exactly these events.
macro_rules! events {
    ($end:ident $(, $event:expr)*) => {{
        $(assert_eq!($end.poll_event(), Some($event));)*
        assert_eq!($end.poll_event(), None);
    }};
}

/// The end's timer is due at exactly that time (ms), and fires.
macro_rules! timeout {
    ($end:ident, $ms:expr) => {{
        assert_eq!($end.poll_timeout(), Some(at($ms)));
        $end.handle_timeout(at($ms));
    }};
}

fn open(epoch: u32, group: u8, profile: &'static str) -> Event<&'static str, &'static str> {
    Event::Open { epoch, group, profile }
}

fn uses(epoch: u32, group: u8, profile: &'static str) -> Event<&'static str, &'static str> {
    Event::Use { epoch, group, profile }
}

fn accepted(epoch: u32, group: u8, ms: u64) -> Event<&'static str, &'static str> {
    Event::Accepted { epoch, group, took: Duration::from_millis(ms) }
}

fn retire(epoch: u32) -> Event<&'static str, &'static str> {
    Event::Retire { epoch }
}

/// No answer reaches the end, for good.
fn confirm_never_comes(end: &mut End) {
    while let Some(due) = end.poll_timeout() {
        end.handle_timeout(due);
    }
    assert!(end.is_idle());
}

mod crossing;
mod doubt;
mod numbers;

#[test]
fn the_sender_asks() {
    let (mut s, mut r) = ends();
    assert_eq!(s.request(at(0), 0, "B"), Ok(2));
    assert_eq!(s.request(at(0), 0, "C"), Err(Busy::Underway));
    send!(s, request(2, 0, using(&[0]), "B"));
    recv!(r, 20, request(2, 0, using(&[0]), "B"));
    events!(r, open(2, 0, "B"));
    send!(r, ack(2));
    assert_eq!((s.current(0), r.current(0)), (Some(0), Some(0)));
    recv!(s, 40, ack(2));
    events!(s, uses(2, 0, "B"), accepted(2, 0, 40));
    send!(s, confirm(2));
    recv!(r, 60, confirm(2));
    send!(r);
    assert_eq!((s.current(0), r.current(0)), (Some(2), Some(2)));
    assert!(s.is_idle() && r.is_idle());
    timeout!(r, 360);
    events!(r, retire(0));
    assert_eq!((s.poll_timeout(), r.poll_timeout()), (None, None));
}

#[test]
fn the_receiver_asks() {
    let (mut s, mut r) = ends();
    assert_eq!(r.request(at(0), 0, "B"), Ok(1));
    events!(r, open(1, 0, "B"));
    send!(r, request(1, 0, using(&[]), "B"));
    recv!(s, 20, request(1, 0, using(&[]), "B"));
    events!(s, uses(1, 0, "B"));
    send!(s, ack(1));
    recv!(r, 40, ack(1));
    events!(r, accepted(1, 0, 40));
    send!(r, confirm(1));
    recv!(s, 60, confirm(1));
    assert!(s.is_idle() && r.is_idle());
    timeout!(r, 340);
    events!(r, retire(0));
}

#[test]
fn a_lost_request_is_repeated_with_doubling_waits() {
    let (mut s, mut r) = ends();
    s.request(at(0), 0, "B").unwrap();
    send!(s, request(2, 0, using(&[0]), "B"));
    timeout!(s, 100);
    send!(s, request(2, 0, using(&[0]), "B"));
    timeout!(s, 300);
    send!(s, request(2, 0, using(&[0]), "B"));
    recv!(r, 320, request(2, 0, using(&[0]), "B"));
    send!(r, ack(2));
    recv!(s, 340, ack(2));
    events!(s, uses(2, 0, "B"), accepted(2, 0, 340));
}

#[test]
fn a_message_known_to_be_lost_is_repeated_at_once_and_is_no_try() {
    let (mut s, mut r) = ends();
    assert_eq!(s.request(at(0), 0, "b"), Ok(2));
    let asked = request(2, 0, using(&[0]), "b");
    send!(s, asked.clone());
    for _ in 0..2 * TRIES_MAX {
        s.handle_lost();
        send!(s, asked.clone());
    }
    // The timer goes on as if nothing had been.
    s.handle_timeout(at(PTO_MS - 1));
    send!(s);
    s.handle_timeout(at(PTO_MS));
    send!(s, asked.clone());
    recv!(r, 150, asked);
    send!(r, ack(2));
    r.handle_lost();
    send!(r, ack(2));
    recv!(s, 200, ack(2));
    send!(s, confirm(2));
    s.handle_lost();
    send!(s);
    recv!(r, 250, confirm(2));
    r.handle_lost();
    send!(r);
}

#[test]
fn a_lost_ack_is_repeated_by_either_timer() {
    let (mut s, mut r) = ends();
    s.request(at(0), 0, "B").unwrap();
    recv!(r, 20, request(2, 0, using(&[0]), "B"));
    send!(r, ack(2));
    timeout!(r, 120);
    send!(r, ack(2));
    recv!(r, 130, request(2, 0, using(&[0]), "B"), refuse);
    send!(r, ack(2));
    events!(r, open(2, 0, "B"));
    recv!(s, 150, ack(2));
    events!(s, uses(2, 0, "B"), accepted(2, 0, 150));
}

#[test]
fn a_lost_confirm_is_drawn_by_the_repeated_ack() {
    let (mut s, mut r) = ends();
    s.request(at(0), 0, "B").unwrap();
    recv!(r, 20, request(2, 0, using(&[0]), "B"));
    send!(r, ack(2));
    recv!(s, 40, ack(2));
    send!(s, confirm(2));
    timeout!(r, 120);
    send!(r, ack(2));
    recv!(s, 140, ack(2));
    send!(s, confirm(2));
    events!(s, uses(2, 0, "B"), accepted(2, 0, 40));
    recv!(r, 160, confirm(2));
    assert!(r.is_idle());
    timeout!(r, 460);
}

#[test]
fn a_packet_of_the_new_epoch_counts_as_confirm() {
    let (mut s, mut r) = ends();
    s.request(at(0), 0, "B").unwrap();
    recv!(r, 20, request(2, 0, using(&[0]), "B"));
    send!(r, ack(2));
    recv!(s, 40, ack(2));
    r.on_packet(at(50), 0);
    assert!(!r.is_idle());
    r.on_packet(at(60), 2);
    assert!(r.is_idle());
    recv!(r, 70, confirm(2));
    r.on_packet(at(80), 2);
    r.on_packet(at(80), 0);
    events!(r, open(2, 0, "B"));
    send!(r);
    timeout!(r, 360);
    events!(r, retire(0));
    r.on_packet(at(400), 0);
    assert_eq!(r.current(0), Some(2));
}

#[test]
fn a_packet_of_the_new_epoch_counts_as_ack() {
    let (mut s, mut r) = ends();
    r.request(at(0), 0, "B").unwrap();
    send!(r, request(1, 0, using(&[]), "B"));
    recv!(s, 20, request(1, 0, using(&[]), "B"));
    r.on_packet(at(40), 1);
    events!(r, open(1, 0, "B"), accepted(1, 0, 40));
    send!(r, confirm(1));
    recv!(s, 60, confirm(1));
    assert!(s.is_idle() && r.is_idle());
}

#[test]
fn a_nak_leaves_the_old_profile_and_spends_the_number() {
    let (mut s, mut r) = ends();
    s.request(at(0), 0, "B").unwrap();
    recv!(r, 20, request(2, 0, using(&[0]), "B"), refuse);
    send!(r, nak(2));
    events!(r);
    recv!(s, 40, nak(2));
    events!(s, Event::Refused { epoch: 2, group: 0, refusal: "no" });
    assert_eq!((s.current(0), r.current(0)), (Some(0), Some(0)));
    assert!(s.is_idle() && r.is_idle());
    // The same answer to a late copy, although it would be accepted now.
    recv!(r, 60, request(2, 0, using(&[0]), "B"));
    send!(r, nak(2));
    recv!(s, 80, nak(2));
    events!(s);
    assert_eq!(s.request(at(100), 0, "C"), Ok(4));
}

#[test]
fn a_nak_to_the_receiver_closes_what_it_opened() {
    let (mut s, mut r) = ends();
    r.request(at(0), 0, "B").unwrap();
    recv!(s, 20, request(1, 0, using(&[]), "B"), refuse);
    events!(s);
    send!(s, nak(1));
    recv!(r, 40, nak(1));
    events!(r, open(1, 0, "B"), Event::Refused { epoch: 1, group: 0, refusal: "no" }, retire(1));
    assert_eq!(r.request(at(50), 0, "C"), Ok(3));
}

#[test]
fn a_repeated_request_gets_the_same_answer_after_completion() {
    let (mut s, mut r) = ends();
    s.request(at(0), 0, "B").unwrap();
    recv!(r, 20, request(2, 0, using(&[0]), "B"));
    send!(r, ack(2));
    recv!(s, 40, ack(2));
    send!(s, confirm(2));
    recv!(r, 60, confirm(2));
    recv!(r, 500, request(2, 0, using(&[0]), "B"), refuse);
    send!(r, ack(2));
    assert!(r.is_idle());
    events!(r, open(2, 0, "B"));
    recv!(s, 520, ack(2));
    send!(s, confirm(2));
    events!(s, uses(2, 0, "B"), accepted(2, 0, 40));
}

#[test]
fn stale_messages_change_nothing() {
    let (mut s, mut r) = ends();
    s.request(at(0), 0, "B").unwrap();
    recv!(r, 20, request(2, 0, using(&[0]), "B"));
    recv!(s, 40, ack(2));
    recv!(r, 60, confirm(2));
    s.request(at(80), 0, "C").unwrap();
    recv!(r, 100, request(4, 0, using(&[2]), "C"));
    recv!(s, 120, ack(4));
    recv!(r, 140, confirm(4));
    while s.poll_message().or(r.poll_message()).is_some() {}
    while s.poll_event().or(r.poll_event()).is_some() {}
    let before = (s.clone(), r.clone());
    for letter in [ack(2), nak(2), nak(4), confirm(1), stale(2, 9), ack(77), nak(0)] {
        recv!(s, 150, letter);
    }
    for letter in [confirm(2), confirm(4), ack(1), nak(3), stale(4, 9)] {
        recv!(r, 150, letter);
    }
    assert_eq!((&s, &r), (&before.0, &before.1));
    recv!(r, 150, request(2, 0, using(&[0]), "B"));
    send!(r, stale(2, 4));
    assert_eq!(r, before.1);
}

#[test]
fn nonsense_changes_nothing() {
    let (mut s, mut r) = ends();
    let before = (s.clone(), r.clone());
    recv!(r, 1, request(2, GROUPS_MAX as u8, using(&[0]), "B"));
    recv!(r, 1, request(3, 0, using(&[0]), "B"));
    recv!(r, 1, request(u32::MAX - 1, 0, using(&[0]), "B"));
    recv!(r, 1, request(2, 0, using(&[]), "B"));
    recv!(r, 1, request(2, 0, using(&[0, 0]), "B"));
    recv!(r, 1, request(2, 0, using(&[1]), "B"));
    recv!(r, 1, request(2, 0, using(&[8]), "B"));
    recv!(s, 1, request(2, 0, using(&[]), "B"));
    recv!(s, 1, request(u32::MAX, 0, using(&[]), "B"));
    recv!(s, 1, stale(2, u32::MAX));
    r.on_packet(at(1), u32::MAX);
    assert_eq!((&s, &r), (&before.0, &before.1));
    assert_eq!(s.request(at(1), 8, "B"), Err(Busy::NoSuchGroup { group: 8 }));
    let mut last = End::new(Side::DataSender, u32::MAX - 1);
    assert_eq!(last.request(at(1), 0, "B"), Err(Busy::Exhausted));
}

#[test]
fn two_groups_have_epochs_of_their_own() {
    let (mut s, mut r) = ends();
    assert_eq!(s.request(at(0), 1, "V"), Ok(2));
    recv!(r, 20, request(2, 1, using(&[0]), "V"));
    assert_eq!(r.current(1), None);
    recv!(s, 40, ack(2));
    recv!(r, 60, confirm(2));
    assert_eq!((s.current(0), s.current(1)), (Some(0), Some(2)));
    assert_eq!((r.current(0), r.current(1)), (Some(0), Some(2)));
    events!(r, open(2, 1, "V"));
    assert_eq!(r.poll_timeout(), None);
    assert_eq!(s.request(at(80), 0, "A"), Ok(4));
    recv!(r, 100, request(4, 0, using(&[0, 2]), "A"));
    recv!(s, 120, ack(4));
    recv!(r, 140, confirm(4));
    assert_eq!((r.current(0), r.current(1)), (Some(4), Some(2)));
    timeout!(r, 440);
    events!(r, open(4, 0, "A"), retire(0));
}
