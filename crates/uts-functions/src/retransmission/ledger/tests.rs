use super::*;
use crate::finding::{self, Finding as _, Flight};
use core::iter::once;
use core::time::Duration;
use proptest::prelude::*;

fn sent(at_ms: u64) -> Sent<u8> {
    Sent {
        bytes: 100,
        epoch: 0,
        eliciting: true,
        size_probe: false,
        departure: Departure::default(),
        tokens: Tokens::new(),
        snapshot: Snapshot { sent_at: Time::from_millis(at_ms), ..Snapshot::default() },
    }
}

fn ledger(packets: u64) -> Ledger<u8> {
    let mut ledger = Ledger::default();
    (0..packets).for_each(|n| ledger.record(sent(n)));
    ledger
}

fn settled(done: &Acknowledged<u8>) -> Vec<u64> {
    done.packets.iter().flat_map(|run| run.numbers.clone()).collect()
}

fn numbers(list: &[(u64, Sent<u8>)]) -> Vec<u64> {
    list.iter().map(|(n, _)| *n).collect()
}

const DELAY: Duration = Duration::from_millis(50);

/// Packets that later packets have overtaken.
fn find(ledger: &mut Ledger<u8>, at_ms: u64) -> Lost<u8> {
    let flight = Flight {
        largest_acked: ledger.largest_acked(),
        reordering: ledger.reordering(),
        loss_delay: DELAY,
        patience: DELAY,
        timeout: DELAY,
    };
    let overtaken = finding::Slot::build(&finding::MECHANISMS[0].choice(), ()).expect("mandatory");
    ledger.take_lost(Time::from_millis(at_ms), &overtaken.rule(&flight))
}

#[test]
fn a_gap_of_three_packets_is_a_loss_and_time_decides_the_rest() {
    let mut l = ledger(10);
    let done = l.on_ack([4..6, 0..1].into_iter(), Time::from_millis(20)).expect("sent");
    assert_eq!(settled(&done), [4, 5, 0]);
    let Lost { packets: lost, look_again: again, cause } = find(&mut l, 20);
    assert_eq!((numbers(&lost), cause), (vec![1, 2], Cause::Overtaken));
    assert_eq!(again, Some(Time::from_millis(3) + DELAY));
    let Lost { packets: lost, look_again: again, cause } = find(&mut l, 53);
    assert_eq!((numbers(&lost), again, cause), (vec![3], None, Cause::Expired));
    assert_eq!(l.eliciting(), 4);
}

#[test]
fn what_arrives_after_all_widens_the_threshold() {
    let mut l = ledger(12);
    l.on_ack(once(6..8), Time::from_millis(20)).expect("sent");
    assert_eq!(numbers(&find(&mut l, 20).packets), [0, 1, 2, 3, 4]);
    let done = l.on_ack(once(1..3), Time::from_millis(21)).expect("sent");
    assert_eq!((settled(&done), numbers(&done.spurious)), (vec![], vec![1, 2]));
    l.on_ack(once(11..12), Time::from_millis(22)).expect("sent");
    let Lost { packets: lost, look_again: again, .. } = find(&mut l, 22);
    assert!(lost.is_empty() && again.is_some(), "5 is six packets behind, and one came seven late");
}

#[test]
fn however_many_are_lost_before_the_first_is_reported_some_are_remembered() {
    for count in [10, 1000, 100_000] {
        let mut l = ledger(count);
        let all = Rule::all_below(count);
        assert_eq!(l.take_lost(Time::from_millis(count), &all).packets.len() as u64, count);
        for part in 0..4 {
            let (from, to) = (count * part / 4, count * (part + 1) / 4);
            let done = l.on_ack(once(from..to), Time::from_millis(2 * count)).expect("sent");
            let all = count <= LOST_MAX as u64;
            assert!(!done.spurious.is_empty(), "part {part} of {count}");
            assert!(!all || done.spurious.len() as u64 == to - from, "part {part} of {count}");
        }
        assert!(l.lost.len() <= LOST_MAX);
    }
}

/// Packets of an epoch that the peer does not read, whether they are in flight, lost or settled.
#[test]
fn an_epoch_is_taken_out_whole() {
    let mut l = ledger(4);
    for n in 4..12 {
        l.record(Sent { epoch: 2, ..sent(n) });
    }
    l.record(Sent { epoch: 4, ..sent(12) });
    let done = l.on_ack([6..8, 11..13].into_iter(), Time::from_millis(20)).expect("sent");
    assert_eq!(settled(&done), [6, 7, 11, 12]);
    assert!(l.has_of_epoch(0) && l.has_of_epoch(2) && !l.has_of_epoch(4));
    assert_eq!(numbers(&find(&mut l, 20).packets), [0, 1, 2, 3, 4, 5, 8, 9]);
    assert!(l.has_of_epoch(0), "it may arrive after all");
    assert_eq!(numbers(&l.take_epoch(2)), [10]);
    assert!(!l.has_of_epoch(2) && l.eliciting() == 0);
    let done = l.on_ack([0..11].into_iter(), Time::from_millis(30)).expect("sent");
    assert_eq!(numbers(&done.spurious), [0, 1, 2, 3], "what was taken out does not arrive");
    assert!(done.packets.is_empty() && !l.has_of_epoch(0));
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_refused() {
    assert!(ledger(3).on_ack(once(0..4), Time::ZERO).is_none());
}

#[test]
fn packets_that_nobody_acknowledges_are_not_kept_for_ever() {
    let mut l = ledger(1);
    let quiet = |at_ms| Sent { eliciting: false, ..sent(at_ms) };
    (0..10_000).for_each(|n| l.record(quiet(n)));
    assert!(l.entries.len() as u64 <= 2 * UNASKED_MAX + 2, "{} entries", l.entries.len());
    assert_eq!(l.oldest_eliciting().map(|sent| sent.bytes), Some(100), "the first is waited for");
    let done = l.on_ack(once(0..1), Time::from_millis(1)).expect("sent");
    assert_eq!(settled(&done), [0]);
    (0..10_000).for_each(|n| l.record(quiet(n)));
    assert_eq!((l.entries.len() as u64, l.next_number()), (UNASKED_MAX, 20_001));
    let done = l.on_ack(once(20_000..20_001), Time::from_millis(1)).expect("sent");
    assert_eq!(settled(&done), [20_000], "the latest are known");
    l.shrink();
    assert_eq!((l.entries.capacity(), l.next_number()), (0, 20_001));
}

#[test]
fn the_same_acknowledgement_again_settles_nothing() {
    let mut l = ledger(6);
    l.on_ack(once(2..5), Time::ZERO).expect("sent");
    assert!(l.on_ack(once(2..5), Time::ZERO).expect("sent").packets.is_empty());
}

/// Where the data that it carried stood.
impl Carried for u8 {
    fn ahead(&self, places: u64) -> Self {
        self.wrapping_add(places as u8)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A batch of packets that are alike.
    Send(u64),
    /// One that may not ask for an acknowledgement.
    SendOne(bool),
    /// Of those sent, so many from the last of which so many were left out.
    Ack(u64, u64),
    Repaired(u64, u64),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..200u64).prop_map(Step::Send),
        any::<bool>().prop_map(Step::SendOne),
        (0..80u64, 1..100u64).prop_map(|(back, packets)| Step::Ack(back, packets)),
        (0..80u64, 1..10u64).prop_map(|(back, packets)| Step::Repaired(back, packets)),
        (0..100u64).prop_map(Step::Wait),
    ]
}

type Packets = Vec<(u64, Vec<u8>, Snapshot)>;

fn plain(packets: impl IntoIterator<Item = (u64, Sent<u8>)>) -> Packets {
    packets.into_iter().map(|(number, sent)| (number, sent.tokens.to_vec(), sent.snapshot)).collect()
}

proptest! {
    /// Packets that share entries are settled, found lost and repaired as those that have one each.
    #[test]
    fn packets_that_share_entries_are_as_those_that_do_not(steps in prop::collection::vec(step(), 1..60)) {
        let (mut shared, mut single) = (Ledger::default(), Ledger::default());
        let (mut now, mut in_flight) = (Time::from_millis(1), 0);
        let mut next = |shared: &Ledger<u8>, now: Time, eliciting: bool, packets: u64| {
            let snapshot = Snapshot { sent_at: now, in_flight: in_flight + 100, ..Snapshot::default() };
            in_flight += packets * 100;
            let tokens = Tokens::from_iter([shared.next_number() as u8]);
            Sent { eliciting, tokens, snapshot, ..sent(0) }
        };
        for step in steps {
            match step {
                Step::Send(packets) => {
                    let first = next(&shared, now, true, packets);
                    for n in 0..packets {
                        let mut sent = first.clone();
                        sent.tokens[0] = (shared.next_number() + n) as u8;
                        sent.snapshot.in_flight += n * 100;
                        single.record(sent);
                    }
                    shared.record_run(first, packets);
                }
                Step::SendOne(eliciting) => {
                    let sent = next(&shared, now, eliciting, 1);
                    single.record(sent.clone());
                    shared.record(sent);
                }
                Step::Ack(back, packets) => {
                    let end = shared.next_number().saturating_sub(back);
                    let range = end.saturating_sub(packets)..end;
                    if !range.is_empty() {
                        let [one, other] = [&mut shared, &mut single].map(|ledger| {
                            let done = ledger.on_ack(once(range.clone()), now).expect("sent");
                            (plain(done.packets.into_iter().flat_map(Run::split)), plain(done.spurious))
                        });
                        prop_assert_eq!(one, other);
                    }
                }
                Step::Repaired(back, packets) => {
                    let end = shared.next_number().saturating_sub(back);
                    let range = end.saturating_sub(packets)..end;
                    let [one, other] = [&mut shared, &mut single].map(|ledger| ledger.on_repaired(once(range.clone())));
                    prop_assert_eq!(one, other);
                }
                Step::Wait(ms) => now += Duration::from_millis(ms),
            }
            let [one, other] = [&mut shared, &mut single].map(|ledger| {
                let Lost { packets: lost, look_again: again, .. } = find(ledger, now.since(Time::ZERO).as_millis() as u64);
                (plain(lost), again)
            });
            prop_assert_eq!(one, other);
            let [one, other] = [&shared, &single].map(|ledger| {
                let oldest = ledger.oldest_eliciting().map(|sent| plain([(0, sent)]));
                (ledger.next_number(), ledger.eliciting(), ledger.last_eliciting_at(), oldest)
            });
            prop_assert_eq!(one, other);
        }
    }
}

/// A batch takes one entry, and is settled as one.
#[test]
fn a_batch_shares_an_entry() {
    let mut l = ledger(1);
    l.record_run(Sent { tokens: Tokens::from_iter([1]), ..sent(1) }, 65);
    assert_eq!((l.entries.len(), l.next_number(), l.eliciting()), (3, 66, 66), "64 share one");
    let done = l.on_ack(once(0..65), Time::from_millis(2)).expect("sent");
    let runs: Vec<_> = done.packets.iter().map(|run| run.numbers.clone()).collect();
    assert_eq!(runs, [0..1, 1..65]);
    let batch = &done.packets[1];
    let (_, last) = batch.clone().split().last().expect("packets");
    assert_eq!((batch.bytes(), last.tokens[0]), (6400, 64));
    assert_eq!(batch.last_snapshot(), last.snapshot);
}

/// A peer that answers nothing, and sends what has to be reported.
#[test]
fn reports_behind_an_unanswered_packet_do_not_pile_up() {
    let mut l = ledger(2);
    for n in 0..20_000 {
        l.record(Sent { eliciting: n % 5_000 == 0, ..sent(n) });
        assert!(l.entries.len() as u64 <= 6 + 2 * UNASKED_MAX + 1, "{} entries after {n}", l.entries.len());
    }
    assert!(l.heap_bytes() < 256 << 10, "{} bytes", l.heap_bytes());
    // Those of late are known still, and what asked for an answer in any case.
    let done = l.on_ack(once(1..20_002), Time::from_millis(20_100)).expect("sent");
    let settled = settled(&done);
    assert!(
        [1, 2, 5_002, 10_002, 15_002, 20_001].iter().all(|number| settled.contains(number)),
        "{settled:?}"
    );
    assert!(settled.len() as u64 > UNASKED_MAX);
    assert_eq!((l.eliciting(), l.oldest_eliciting().is_some()), (1, true));
    l.on_ack(once(0..1), Time::from_millis(20_200)).expect("sent");
    assert_eq!((l.eliciting(), l.entries.len()), (0, 0));
}

/// Packets with time-outs of their own expire each by itself, in whatever order they left.
#[test]
fn packets_expire_by_the_time_out_that_they_left_with() {
    let mut l = Ledger::default();
    for (at_ms, timeouts) in [(0, 2), (1, 0), (2, 1), (3, 0)] {
        let departure = Departure { timeouts, timeout_us: 10_000, ..Departure::default() };
        l.record(Sent { departure, eliciting: at_ms != 3, ..sent(at_ms) });
    }
    let ms = Time::from_millis;
    let rule = |now: Option<u64>, backs_off| Rule {
        below: 0,
        cause: Cause::Expired,
        within: u64::MAX,
        age: Age::TimeOut {
            now: Duration::from_millis(now.unwrap_or(1_000)),
            frozen: now.is_none(),
            backs_off,
        },
    };
    // Without back-off all go in turn; the one that asks for nothing sets no timer.
    let Lost { packets, look_again, .. } = l.clone().take_lost(ms(11), &rule(None, false));
    assert_eq!((numbers(&packets), look_again), (vec![0, 1], Some(ms(12))));
    let Lost { packets, look_again, .. } = l.clone().take_lost(ms(6), &rule(Some(5), false));
    assert_eq!((numbers(&packets), look_again), (vec![0, 1], Some(ms(7))));
    // With it the first, which left after two time-outs, goes last.
    let Lost { packets, look_again, .. } = l.take_lost(ms(11), &rule(None, true));
    assert_eq!((numbers(&packets), look_again), (vec![1], Some(ms(22))));
    let Lost { packets, look_again, .. } = l.take_lost(ms(22), &rule(None, true));
    assert_eq!((numbers(&packets), look_again), (vec![2, 3], Some(ms(40))));
}

/// A packet that left before time-outs were kept has the one at present.
#[test]
fn a_packet_without_a_time_out_of_its_own_has_the_one_at_present() {
    let mut l = ledger(1);
    let age = Age::TimeOut { now: Duration::from_millis(9), frozen: true, backs_off: true };
    let rule = Rule { below: 0, cause: Cause::Expired, within: u64::MAX, age };
    assert_eq!(l.take_lost(Time::from_millis(8), &rule).look_again, Some(Time::from_millis(9)));
    assert_eq!(numbers(&l.take_lost(Time::from_millis(9), &rule).packets), [0]);
}
