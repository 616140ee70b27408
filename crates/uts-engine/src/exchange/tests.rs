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
fn crossing_requests_are_settled_for_the_sender() {
    let (mut s, mut r) = ends();
    assert_eq!(s.request(at(0), 0, "S"), Ok(2));
    assert_eq!(r.request(at(0), 0, "R"), Ok(1));
    send!(s, request(2, 0, using(&[0]), "S"));
    send!(r, request(1, 0, using(&[]), "R"));
    recv!(s, 20, request(1, 0, using(&[]), "R"));
    recv!(r, 20, request(2, 0, using(&[0]), "S"));
    events!(
        r,
        open(1, 0, "R"),
        Event::Withdrawn { epoch: 1, group: 0, profile: "R" },
        retire(1),
        open(2, 0, "S")
    );
    events!(s);
    send!(s, stale(1, 2));
    send!(r, ack(2));
    recv!(r, 40, stale(1, 2));
    recv!(s, 40, ack(2));
    send!(s, confirm(2));
    recv!(r, 60, confirm(2));
    events!(r);
    events!(s, uses(2, 0, "S"), accepted(2, 0, 40));
    // The withdrawn wish goes next.
    assert_eq!(r.request(at(70), 0, "R"), Ok(3));
}

#[test]
fn crossing_is_settled_though_the_senders_request_is_lost() {
    let (mut s, mut r) = ends();
    s.request(at(0), 0, "S").unwrap();
    r.request(at(0), 0, "R").unwrap();
    send!(s, request(2, 0, using(&[0]), "S"));
    recv!(s, 20, request(1, 0, using(&[]), "R"));
    send!(s, stale(1, 2));
    recv!(r, 40, stale(1, 2));
    events!(r, open(1, 0, "R"), Event::Withdrawn { epoch: 1, group: 0, profile: "R" }, retire(1));
    assert_eq!(r.request(at(41), 0, "R"), Ok(3));
}

#[test]
fn a_higher_request_of_the_receiver_wins_from_an_odd_start() {
    // The receiver has spent 1 and 3 on requests that never arrived; the sender starts from 0.
    let (mut s, mut r) = ends();
    s.request(at(0), 0, "S").unwrap();
    recv!(s, 20, request(3, 0, using(&[]), "R"));
    events!(s, Event::Withdrawn { epoch: 2, group: 0, profile: "S" }, uses(3, 0, "R"));
    send!(s, ack(3));
    // The sender's request, overtaken: the receiver cannot take it for something newer.
    r.request(at(0), 0, "Q").unwrap();
    recv!(r, 10, nak(1));
    assert_eq!(r.request(at(20), 0, "R"), Ok(3));
    while r.poll_message().is_some() {}
    recv!(r, 30, request(2, 0, using(&[0]), "S"));
    send!(r, stale(2, 3));
    recv!(r, 40, ack(3));
    assert_eq!((s.current(0), r.current(0)), (Some(3), Some(3)));
    // From 3, the sender's next number is again above the receiver's.
    recv!(s, 60, confirm(3));
    assert_eq!((s.request(at(70), 0, "S"), r.request(at(70), 0, "R")), (Ok(6), Ok(5)));
}

#[test]
fn a_request_after_an_unheard_ack_is_not_taken_for_a_crossing() {
    let (mut s, mut r) = ends();
    r.request(at(0), 0, "R").unwrap();
    recv!(s, 20, request(1, 0, using(&[]), "R"));
    confirm_never_comes(&mut s);
    assert_eq!(s.request(at(50_000), 0, "S"), Ok(4));
    recv!(r, 60, request(4, 0, using(&[1]), "S"));
    events!(r, open(1, 0, "R"), accepted(1, 0, 60), open(4, 0, "S"));
    assert_eq!(r.current(0), Some(1));
}

fn confirm_never_comes(end: &mut End) {
    while let Some(due) = end.poll_timeout() {
        end.handle_timeout(due);
    }
    assert!(end.is_idle());
}

#[test]
fn the_sender_gives_up_and_asks_for_something_else() {
    let (mut s, mut r) = ends();
    s.request(at(0), 0, "B").unwrap();
    let mut sent = 0;
    while let Some(due) = s.poll_timeout() {
        sent += s.poll_message().iter().len();
        s.handle_timeout(due);
    }
    assert_eq!(sent, usize::from(TRIES_MAX));
    events!(s, Event::Failed { epoch: 2, group: 0 });
    assert!(s.is_idle());
    // One of them had arrived. The next request says that its epoch was never used.
    recv!(r, 20, request(2, 0, using(&[0]), "B"));
    assert_eq!(s.request(at(30_000), 0, "C"), Ok(4));
    send!(s, request(4, 0, using(&[0]), "C"));
    recv!(r, 30_020, request(4, 0, using(&[0]), "C"));
    events!(r, open(2, 0, "B"), retire(2), open(4, 0, "C"));
    recv!(s, 30_030, ack(2));
    events!(s);
}

#[test]
fn a_late_ack_after_giving_up_still_counts() {
    let (mut s, mut r) = ends();
    s.request(at(0), 0, "B").unwrap();
    confirm_never_comes(&mut s);
    recv!(r, 20, request(2, 0, using(&[0]), "B"));
    recv!(s, 40_000, ack(2));
    events!(s, Event::Failed { epoch: 2, group: 0 }, uses(2, 0, "B"), accepted(2, 0, 40_000));
}

#[test]
fn the_same_wish_continues_under_its_number() {
    let (mut s, _) = ends();
    s.request(at(0), 0, "B").unwrap();
    confirm_never_comes(&mut s);
    assert_eq!(s.in_doubt(), Some(2));
    assert_eq!(s.request(at(50_000), 0, "B"), Ok(2));
    send!(s, request(2, 0, using(&[0]), "B"));
}

#[test]
fn the_receiver_asks_again_for_what_is_in_doubt() {
    let (mut s, mut r) = ends();
    r.request(at(0), 0, "B").unwrap();
    confirm_never_comes(&mut r);
    events!(r, open(1, 0, "B"), Event::Failed { epoch: 1, group: 0 });
    while r.poll_message().is_some() {}
    assert_eq!(r.request(at(50_000), 1, "C"), Err(Busy::InDoubt { epoch: 1 }));
    send!(r, request(1, 0, using(&[]), "B"));
    recv!(s, 50_020, request(1, 0, using(&[]), "B"), refuse);
    send!(s, nak(1));
    recv!(r, 50_040, nak(1));
    events!(r, Event::Refused { epoch: 1, group: 0, refusal: "no" }, retire(1));
    assert_eq!(r.request(at(50_050), 1, "C"), Ok(3));
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

/// One exchange of the sender over a perfect path, and the retirement after it.
fn exchange(s: &mut End, r: &mut End, group: u8) -> Result<u32, Busy> {
    deliver(s, r, |s| s.request(at(0), group, "X"))
}

/// The same of what the sender asks for.
fn deliver(s: &mut End, r: &mut End, ask: impl FnOnce(&mut End) -> Result<u32, Busy>) -> Result<u32, Busy> {
    let asked = ask(s);
    while let Some(letter) = s.poll_message() {
        recv!(r, 0, letter);
        if let Some(answer) = r.poll_message() {
            recv!(s, 0, answer);
        }
    }
    while let Some(due) = r.poll_timeout() {
        r.handle_timeout(due);
    }
    while s.poll_event().or(r.poll_event()).is_some() {}
    asked
}

#[test]
fn an_old_epoch_of_another_group_must_be_renewed() {
    let (mut s, mut r) = ends();
    exchange(&mut s, &mut r, 1).unwrap();
    let blocked = loop {
        match exchange(&mut s, &mut r, 1) {
            Ok(epoch) => assert!(epoch < EPOCH_SPAN_SOFT),
            Err(busy) => break busy,
        }
    };
    assert_eq!(blocked, Busy::Span { group: 0 });
    assert_eq!(exchange(&mut s, &mut r, 0), Err(Busy::Span { group: 0 }));
    deliver(&mut s, &mut r, |s| s.renew(at(0), 0, "X")).unwrap();
    exchange(&mut s, &mut r, 1).unwrap();
    assert_eq!(s.current(0), r.current(0));
    assert_eq!(s.current(1), r.current(1));
}

/// The receiver hears of no request, however many different ones there are, and then of one.
#[test]
fn a_sender_whose_requests_are_all_lost_goes_on_where_the_path_is_back() {
    let (mut s, mut r) = ends();
    let wishes = ["B", "C"];
    let mut last = 0;
    for n in 0..40 {
        let asked = s.request(at(0), 0, wishes[n % 2]);
        assert!(matches!(asked, Ok(_) | Err(Busy::InDoubt { .. })), "{asked:?}");
        last = asked.unwrap_or(last);
        while let Some(due) = s.poll_timeout() {
            s.handle_timeout(due);
            while s.poll_message().is_some() {}
        }
        while s.poll_event().is_some() {}
    }
    assert_eq!(last, EPOCH_SPAN_SOFT - 2);
    let answered = exchange(&mut s, &mut r, 0);
    assert_eq!(answered, Err(Busy::InDoubt { epoch: last }));
    assert_eq!([s.current(0), r.current(0)], [Some(last); 2]);
    exchange(&mut s, &mut r, 0).unwrap();
}

/// The receiver refuses all but what is in use.
#[test]
fn refusals_leave_a_number_to_renew_with() {
    let (mut s, mut r) = ends();
    let mut refused = 0;
    while let Ok(epoch) = s.request(at(0), 0, "B") {
        recv!(r, 0, request(epoch, 0, using(&[0]), "B"), refuse);
        refused += 1;
        while let Some(answer) = r.poll_message() {
            recv!(s, 0, answer);
        }
        while s.poll_event().or(r.poll_event()).is_some() {}
        while s.poll_message().is_some() {}
    }
    assert_eq!(refused, EPOCH_SPAN_SOFT / 2 - 1);
    deliver(&mut s, &mut r, |s| s.renew(at(0), 0, "A")).unwrap();
    exchange(&mut s, &mut r, 0).unwrap();
}

/// the number itself says that nothing is under way of what is a span below it.
#[test]
fn a_number_says_what_the_receiver_need_not_hold_open() {
    let (mut s, mut r) = ends();
    r.set_retire_after(Duration::from_secs(3600));
    s.set_retire_after(Duration::from_secs(3600));
    let mut epoch = 0;
    for _ in 0..15 {
        let used = epoch;
        epoch = s.request(at(0), 0, "X").unwrap();
        recv!(r, 0, request(epoch, 0, using(&[used]), "X"));
        recv!(s, 0, ack(epoch));
        recv!(r, 0, confirm(epoch));
        while s.poll_event().or(r.poll_event()).is_some() {}
        while s.poll_message().or(r.poll_message()).is_some() {}
    }
    assert_eq!(epoch, 30);
    // Packets of the first epoch may be under way.
    assert_eq!(s.request(at(0), 0, "X"), Err(Busy::UnderWay { epoch: 0 }));
    s.settle(|epoch| epoch > 0);
    s.request(at(0), 0, "X").unwrap();
    recv!(r, 0, request(32, 0, using(&[30]), "X"));
    send!(r, ack(32));
    events!(r, retire(0), open(32, 0, "X"));
    recv!(s, 0, ack(32));
    // They are not acknowledged, and too old to arrive any more.
    assert_eq!(s.request(at(3_599_999), 0, "X"), Err(Busy::UnderWay { epoch: 2 }));
    assert!(s.request(at(3_600_000), 0, "X").is_ok());
}

/// A sender that only answers keeps no more than a sender that asks, however often that is.
#[test]
fn a_sender_that_only_answers_keeps_little() {
    let (mut s, _) = ends();
    for epoch in (1..2000).step_by(2) {
        recv!(s, 0, request(epoch, 0, using(&[]), "X"));
        while s.poll_event().is_some() {}
        while s.poll_message().is_some() {}
    }
    assert!(s.open.len() <= EPOCH_SPAN as usize / 2);
}
