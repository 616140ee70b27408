use super::*;
use proptest::prelude::*;
use std::pin::pin;
use tokio::time::{sleep, timeout};

const THREADS: Resource = Resource::Threads;

fn ledger(total: usize, keeps_for_next: bool) -> Ledger {
    Ledger::of(Resource::Threads, total, keeps_for_next)
}

fn fill(payer: &Payer) -> Vec<Charge> {
    std::iter::from_fn(|| payer.charge(THREADS, 1).ok()).collect()
}

#[test]
fn one_that_is_alone_has_all_and_two_have_a_quarter_at_least() {
    let ledger = ledger(1024, false);
    let a = ledger.payer("a");
    assert_eq!(fill(&a).len(), 1024);
    let b = ledger.payer("b");
    let of_a = fill(&a);
    assert_eq!(of_a.len(), 768);
    assert_eq!(fill(&b).len(), 256);
    drop(of_a);
    assert_eq!(fill(&b).len(), 768);
    // One that is gone keeps nothing.
    drop(a);
    assert_eq!(fill(&b).len(), 1024);
}

#[test]
fn some_is_left_for_who_comes_next() {
    let ledger = ledger(100, true);
    let a = ledger.payer("a");
    let _of_a = fill(&a);
    for n in 0..10 {
        let next = ledger.payer(&format!("next {n}"));
        assert!(next.charge(THREADS, 1).is_ok(), "{n}");
    }
}

/// Where there are more payers than half of what there is, the other half is still of use. Of that,
/// one connection leaves a quarter to the next of its own payer.
#[test]
fn many_that_take_nothing_leave_half_to_one_that_does() {
    let ledger = ledger(32, true);
    let idle: Vec<Payer> = (0..500).map(|n| ledger.payer(&format!("{n}"))).collect();
    let busy = ledger.payer("busy");
    let held = fill(&busy);
    // 28 without those that are kept for payers without any; half of them, and three quarters of
    // that.
    assert_eq!(held.len(), 11);
    assert!(busy.another().charge(THREADS, 1).is_ok());
    drop(held);
    for payer in &idle {
        assert!(payer.charge(THREADS, 1).is_ok());
    }
}

/// Many behind one address: a connection leaves the others of its payer what they need.
#[test]
fn a_connection_leaves_some_to_others_of_its_payer() {
    let ledger = ledger(1000, true);
    let greedy: Vec<Payer> = (0..40).map(|_| ledger.payer("a")).collect();
    let _held: Vec<Charge> = greedy.iter().flat_map(fill).collect();
    for _ in 0..5 {
        let modest = ledger.payer("a");
        assert!(fill(&modest).len() >= 4);
    }
    assert!(!fill(&ledger.payer("b")).is_empty());
}

/// One after another, each takes all that it is given: for those who come later there is still one.
#[test]
fn who_comes_late_finds_some() {
    let ledger = ledger(360, true);
    let of = |name: &str| (0..11).map(|_| ledger.payer(name)).collect::<Vec<_>>();
    let (greedy, as_greedy) = (of("a"), of("b"));
    let held: Vec<Vec<Charge>> = greedy.iter().chain(&as_greedy).map(fill).collect();
    assert!(held.iter().all(|held| !held.is_empty()), "{:?}", held.iter().map(Vec::len).collect::<Vec<_>>());
    for n in 0..20 {
        let (same, other) = (ledger.payer("a"), ledger.payer(&format!("late {n}")));
        let charges = [same.charge(THREADS, 1), other.charge(THREADS, 1)];
        assert!(charges.iter().all(Result::is_ok), "{n}: {charges:?}");
        // They stay.
        std::mem::forget(charges);
    }
}

#[test]
fn amounts_are_as_large_as_there_is_room_for() {
    let ledger = Ledger::of(Resource::Memory, 64 << 20, true);
    let payers: Vec<Payer> = (0..500).map(|n| ledger.payer(&format!("{n}"))).collect();
    let charge = |payer: &Payer| payer.charge_up_to(Resource::Memory, 8 << 10, 256 << 10);
    let mut held = Vec::new();
    for _ in 0..100 {
        held.extend(payers.iter().filter_map(|payer| charge(payer).ok()));
    }
    let mut least = usize::MAX;
    for payer in &payers {
        let of_payer = |charge: &&Charge| charge.payer.name() == payer.name();
        least = least.min(held.iter().filter(of_payer).map(Charge::amount).sum());
    }
    // Of seven eighths: three quarters of its payer's part, of which the rest is for another
    // connection.
    assert!(least >= (21 << 20) / 501, "{least}");
    // And there is some for the 501st.
    assert!(charge(&ledger.payer("501st")).is_ok());
}

#[test]
fn a_limit_is_told_once_until_half_is_free() {
    let ledger = Ledger::of(Resource::Sockets, 8, false);
    let a = ledger.payer("a");
    let fill =
        |payer: &Payer| std::iter::from_fn(|| payer.charge(Resource::Sockets, 1).ok()).collect::<Vec<_>>();
    let mut all = fill(&a);
    // `fill` was the first to hear of it.
    let full = a.charge(Resource::Sockets, 1).expect_err("full");
    assert_eq!(full.to_string(), "8 connections (ulimit -n) are open, which is the most");
    assert!(!full.is_news);
    for _ in 0..3 {
        all.pop();
        all.push(a.charge(Resource::Sockets, 1).expect("a place"));
        assert!(!a.charge(Resource::Sockets, 1).expect_err("full").is_news);
    }
    all.truncate(4);
    all.extend(fill(&a));
    assert_eq!(all.len(), 8);
    all.truncate(4);
    all.extend((0..4).map(|_| a.charge(Resource::Sockets, 1).expect("a place")));
    assert!(a.charge(Resource::Sockets, 1).expect_err("full").is_news);
    let b = ledger.payer("b");
    all.truncate(6);
    assert_eq!(
        a.charge(Resource::Sockets, 1).expect_err("full").to_string(),
        "6 connections are open; the rest of 8 (ulimit -n) is for others"
    );
    assert!(b.charge(Resource::Sockets, 1).is_ok());
}

#[tokio::test]
async fn who_waits_gets_what_is_given_back() {
    let ledger = ledger(1, false);
    let a = ledger.payer("a");
    let taken = a.wait(THREADS, 1, 1).await;
    let waiting = tokio::spawn(async move { drop(a.wait(THREADS, 1, 1).await) });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    drop(taken);
    waiting.await.expect("some");
    assert!(ledger.lock().is_empty(), "nothing is kept of who is gone");
}

#[tokio::test]
async fn who_holds_the_least_is_served_first_and_who_waited_longest_among_equals() {
    let ledger = ledger(4, false);
    let (rich, poor) = (ledger.payer("rich"), ledger.payer("poor"));
    let (mut of_rich, _of_poor) = (fill(&rich), fill(&poor));
    assert_eq!(of_rich.len(), 3);
    let mut waiting = Vec::new();
    // Another connection of the poor one holds nothing itself.
    for payer in [&rich, &poor, &poor.another(), &rich.another()] {
        let payer = payer.clone();
        waiting.push(tokio::spawn(async move { payer.wait(THREADS, 1, 1).await }));
        tokio::task::yield_now().await;
    }
    let mut order = Vec::new();
    let mut held = Vec::new();
    while let Some(charge) = of_rich.pop() {
        drop(charge);
        tokio::task::yield_now().await;
        let served = waiting.iter().position(|task| task.is_finished()).expect("one");
        order.push(served);
        held.push(std::mem::replace(&mut waiting[served], tokio::spawn(std::future::pending())).await);
    }
    // What they hold: 2 and 1; 1 and 2; 1 and 2.
    assert_eq!(order, [2, 3, 0]);
}

#[tokio::test]
async fn who_gives_up_leaves_nothing_behind() {
    let ledger = ledger(1, false);
    let (a, b) = (ledger.payer("a"), ledger.payer("b"));
    for gives_back_first in [false, true] {
        let taken = a.charge(THREADS, 1).expect("all");
        {
            let mut waiting = pin!(b.wait(THREADS, 1, 1));
            assert!(timeout(Duration::ZERO, &mut waiting).await.is_err());
            if gives_back_first {
                drop(taken);
            } else {
                let _later = taken;
            }
        }
        assert_eq!(ledger.lock().held(THREADS), 0);
        assert_eq!(ledger.lock().waiting(THREADS), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_is_taken_back_from_who_moves_nothing_when_somebody_waits() {
    let ledger = ledger(2, false);
    let (rich, poor) = (ledger.payer("rich"), ledger.payer("poor"));
    let pulses: [Arc<Pulse>; 2] = Default::default();
    let alone = ledger.payer("rich");
    drop(poor);
    let [slow, fast] = &pulses;
    let first = rich.place(THREADS, slow).await;
    let second = alone.place(THREADS, fast).await;
    slow.waits(true);
    // Nobody waits: it is left alone.
    assert!(timeout(10 * GRACE, slow.taken_back()).await.is_err());
    let poor = ledger.payer("poor");
    let served = tokio::spawn(async move {
        let pulse = Arc::default();
        let _place = poor.place(THREADS, &pulse).await;
    });
    let moving = tokio::spawn({
        let fast = fast.clone();
        async move {
            loop {
                fast.moved(LEAST_RATE as usize + 1);
                fast.waits(true);
                sleep(Duration::from_secs(1)).await;
            }
        }
    });
    timeout(3 * GRACE, slow.taken_back()).await.expect("taken back");
    drop(first);
    timeout(3 * GRACE, served).await.expect("in time").expect("served");
    assert!(timeout(10 * GRACE, fast.taken_back()).await.is_err(), "it gets on");
    moving.abort();
    drop(second);
}

/// One who does not wait for its peer is at work, however little moves.
#[tokio::test(start_paused = true)]
async fn no_place_is_taken_from_who_is_at_work() {
    let ledger = ledger(1, false);
    let pulse: Arc<Pulse> = Arc::default();
    let busy = ledger.payer("busy");
    let place = busy.place(THREADS, &pulse).await;
    let poor = ledger.payer("poor");
    let other = Arc::default();
    assert!(timeout(10 * GRACE, poor.place(THREADS, &other)).await.is_err());
    assert!(timeout(Duration::ZERO, pulse.taken_back()).await.is_err());
    drop(place);
}

#[tokio::test(start_paused = true)]
async fn lines_count_for_a_minute_whoever_comes_again() {
    let ledger = Ledger::of(Resource::Lines, 100, true);
    let write = |ledger: &Ledger| {
        // Each from a connection of its own.
        (0..1000).filter(|_| ledger.payer("loud").may_write_line()).count()
    };
    let first = write(&ledger);
    assert!((50..100).contains(&first), "{first}");
    assert_eq!(write(&ledger), 0);
    assert!(ledger.payer("quiet").may_write_line());
    sleep(Duration::from_secs(61)).await;
    assert!(write(&ledger) >= 50);
    sleep(Duration::from_secs(61)).await;
    assert_eq!(ledger.rows()[Resource::Lines as usize].held, 0);
    assert!(ledger.lock().is_empty());
}

#[test]
fn a_budget_says_all_totals() {
    let budget = Budget { memory_bytes: 256 << 20, threads: 64, files: 984, sockets: 984 };
    let ledger = Ledger::of_server(&budget.with_files_and_sockets());
    let totals = Resource::ALL.map(|resource| ledger.total(resource));
    assert_eq!(totals, [2048, 492, 492, 64 << 20, 32, 4, 1200]);
    let small = Ledger::of_server(&Budget { memory_bytes: 0, threads: 0, files: 0, sockets: 0 });
    assert!(Resource::ALL.iter().all(|resource| small.total(*resource) >= 1));
}

proptest! {
    /// Whoever takes what, in whatever order: a payer with less than its part finds some, if all
    /// were there from the beginning.
    #[test]
    fn nobody_starves(
        total in 2usize..200,
        count in 2usize..20,
        steps in proptest::collection::vec((any::<usize>(), any::<bool>(), 1usize..8), 0..600),
    ) {
        let count = count.min(total / 2);
        let ledger = ledger(total, false);
        let payers: Vec<Payer> = (0..count).map(|n| ledger.payer(&format!("{n}"))).collect();
        let mut taken: Vec<Vec<Charge>> = payers.iter().map(|_| Vec::new()).collect();
        for (who, takes, most) in steps {
            let who = who % count;
            let own: usize = taken[who].iter().map(Charge::amount).sum();
            let has_less = count > 1 && own < (total / 2 / count).max(1);
            if !takes {
                taken[who].pop();
            } else if let Ok(charge) = payers[who].charge_up_to(THREADS, 1, most) {
                prop_assert!((1..=most).contains(&charge.amount()));
                taken[who].push(charge);
            } else {
                prop_assert!(!has_less, "{who} of {count} has {own} of {total}");
            }
            let all: usize = taken.iter().flatten().map(Charge::amount).sum();
            prop_assert!(all <= total);
            prop_assert_eq!(all, ledger.lock().held(THREADS));
        }
    }
}

/// All that is held is held by those who wait for more, and more than is left: they go on one after
/// another, and nothing more than one of them needs is held beyond the total.
#[tokio::test]
async fn of_those_who_hold_all_and_wait_for_more_one_goes_on() {
    for (least, keeps_for_next) in [(1, false), (1, true), (8, false), (8, true)] {
        let ledger = ledger(8, keeps_for_next);
        let mut tasks = tokio::task::JoinSet::new();
        for name in ["a", "b", "b", "c"] {
            let payer = ledger.payer(name);
            let held = fill(&payer);
            let (ledger, holds) = (ledger.clone(), held.iter().map(|charge| charge.amount()).sum());
            tasks.spawn(async move {
                tokio::task::yield_now().await;
                let more = payer.wait_holding(THREADS, (least, least), holds).await;
                tokio::task::yield_now().await;
                let most = 8 + least;
                assert!(ledger.lock().held(THREADS) <= most, "{} of {most}", ledger.lock().held(THREADS));
                drop((more, held));
            });
        }
        timeout(Duration::from_secs(30), tasks.join_all()).await.expect("nobody waits for ever");
        assert_eq!(ledger.lock().held(THREADS), 0);
    }
}

/// A payer that holds much and waits gets nothing of what is kept for others while one goes on.
#[tokio::test]
async fn what_is_kept_for_others_is_theirs_while_somebody_goes_on() {
    let ledger = ledger(16, true);
    let (a, b) = (ledger.payer("a"), ledger.payer("b"));
    let mut of_a = fill(&a);
    let goes_on = of_a.pop().expect("some");
    let mut waiting = pin!(a.wait_holding(THREADS, (1, 1), of_a.len()));
    assert!(timeout(Duration::from_millis(20), &mut waiting).await.is_err());
    assert!(b.charge(THREADS, 1).is_ok());
    drop(goes_on);
    drop(timeout(Duration::from_secs(30), waiting).await.expect("given back"));
}
