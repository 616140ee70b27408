//! Epochs: how far apart they may be, which are renewed, and what is kept of them.

use super::*;

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
