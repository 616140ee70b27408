//! Requests that are not answered, and answers that come late.

use super::*;

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
