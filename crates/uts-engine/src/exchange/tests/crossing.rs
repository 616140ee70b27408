//! Requests of both ends that cross.

use super::*;

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
