//! Acknowledgement: when the receiver reports which transmissions arrived.
//!
//! The function keeps which packets arrived ([`Arrivals`]); a mechanism decides when to say so.
//! What is said is ranges of packet numbers, that is of transmissions, not of data. A mechanism may
//! have packets held back from reports until all data up to theirs is there.

use crate::mechanism::Described;
use crate::registry;
use crate::timing::RoundTrip;
pub use arrivals::{Arrival, Arrivals, HELD_MAX, Held, RANGES_MAX};
use auto_impl::auto_impl;
use core::time::Duration;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;

pub mod adaptive;
mod arrivals;
pub mod delayed;
pub mod every;
pub mod in_order;
pub mod missing;
pub mod per_packet;
pub mod piggybacked;
pub mod poll_status;

/// Building, sending, receiving and reading one report, in nanoseconds: an estimate for
/// predictions.
const REPORT_NS: f64 = 1000.0;

/// Less than that is not waited for: timers are no finer (RFC 9002 section 6.1.2).
const WAIT_MIN: Duration = Duration::from_millis(1);

/// A policy over [`Arrivals`].
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Acknowledgement: Described + DynClone {
    /// A packet arrives that is not in `state` yet: sets `state.due` (with [`Arrivals::report_by`])
    /// if it must be reported.
    fn on_arrival(&mut self, state: &mut Arrivals, arrival: &Arrival);
    /// The longest that a report is held back on purpose; the sender adds it to its time-outs.
    /// `rtt` is that end's own.
    fn delay_max(&self, rtt: &RoundTrip) -> Duration;
    /// Sender's side: whether the packet about to be sent should poll. `unpolled` eliciting packets
    /// were sent since the last poll; `last` says that nothing more can be sent for now.
    fn poll(&self, unpolled: u32, last: bool) -> bool;
    /// True if a packet counts as the last where the window holds back what follows. If it does
    /// not, the last is the last of all that was written, or one that is alone in flight.
    fn polls_in_bursts(&self) -> bool {
        true
    }
    /// True if packets are held back from reports until all data of their flows up to theirs is
    /// there.
    fn is_cumulative(&self) -> bool {
        false
    }

    /// Number of packets that are held back at most, of flows with a window of so many bytes: one
    /// more that would be brings it about that all are given up. Where none may be, it is not taken
    /// in.
    fn keeps(&self, _window_bytes: u64) -> usize {
        HELD_MAX
    }
}

dyn_clone::clone_trait_object!(Acknowledgement);

registry! {
    /// The acknowledgement mechanism in use.
    #[derive(Clone, Debug)]
    Slot: Acknowledgement, context: ();
    PerPacket => per_packet::PerPacket,
    Delayed => delayed::Delayed,
    PollStatus => poll_status::PollStatus,
    Every => every::Every,
    InOrder => in_order::InOrder,
    Missing => missing::Missing,
    Adaptive => adaptive::Adaptive,
    Piggybacked => piggybacked::Piggybacked,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::Promise;
    use crate::time::Time;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn build(number: usize, settings: &[(&str, u64)]) -> Slot {
        let choice = MECHANISMS[number].choice_with(settings).expect("in range");
        Slot::build(&choice, ()).expect("in range")
    }

    fn packet(number: u64, millis: u64) -> Arrival {
        let now = Time::from_millis(millis);
        Arrival { number, now, eliciting: true, polled: false, marked: false }
    }

    fn arrive(slot: &mut Slot, state: &mut Arrivals, arrival: Arrival) -> Option<Time> {
        slot.on_arrival(state, &arrival);
        state.insert(&arrival);
        state.due
    }

    #[test]
    fn per_packet_reports_each_at_once() {
        let (mut slot, mut state) = (build(0, &[]), Arrivals::default());
        for n in 0..5 {
            assert_eq!(arrive(&mut slot, &mut state, packet(n, n)), Some(Time::from_millis(n)));
            state.on_reported(Time::ZERO);
        }
    }

    /// A lone packet waits for an eighth of the round trip, in bounds; what else comes is told at
    /// once.
    #[test]
    fn piggybacked_reports_wait_for_the_answer_to_a_lone_packet() {
        for (round_trip_ms, wait_ms) in [(0, 0), (7, 0), (16, 2), (160, 20), (2000, 25)] {
            let mut slot = build(7, &[]);
            let mut state = Arrivals { round_trip_us: 1000 * round_trip_ms, ..Arrivals::default() };
            let due = arrive(&mut slot, &mut state, packet(0, 50));
            assert_eq!(due, Some(Time::from_millis(50 + wait_ms)), "{round_trip_ms} ms");
            assert_eq!(
                arrive(&mut slot, &mut state, packet(1, 50)),
                Some(Time::from_millis(50)),
                "the second"
            );
            state.on_reported(Time::ZERO);
            let urgent = [
                Arrival { polled: true, ..packet(2, 60) },
                Arrival { marked: true, ..packet(3, 60) },
                packet(5, 60),
                packet(4, 60),
            ];
            for urgent in urgent {
                assert_eq!(arrive(&mut slot, &mut state, urgent), Some(Time::from_millis(60)), "{urgent:?}");
                state.on_reported(Time::ZERO);
            }
            let quiet = Arrival { eliciting: false, ..packet(6, 70) };
            assert_eq!(arrive(&mut slot, &mut state, quiet), None);
        }
    }

    #[test]
    fn delayed_reports_the_second_packet_or_after_the_delay() {
        let (mut slot, mut state) = (build(1, &[]), Arrivals::default());
        assert_eq!(arrive(&mut slot, &mut state, packet(0, 10)), Some(Time::from_millis(35)));
        assert_eq!(arrive(&mut slot, &mut state, packet(1, 12)), Some(Time::from_millis(12)));
        state.on_reported(Time::ZERO);
        assert_eq!(arrive(&mut slot, &mut state, packet(2, 20)), Some(Time::from_millis(45)));
    }

    #[test]
    fn the_delay_runs_from_the_first_unreported_packet() {
        let (mut slot, mut state) = (build(1, &[("packets", 10), ("delay", 30)]), Arrivals::default());
        for n in 0..5 {
            assert_eq!(arrive(&mut slot, &mut state, packet(n, 100 + 5 * n)), Some(Time::from_millis(130)));
        }
    }

    /// Where reports wait for each other on the way back they leave as far apart as is wanted,
    /// within what the mechanism admits to, however fast packets come.
    #[test]
    fn delayed_reports_keep_apart_however_fast_packets_come() {
        for (apart_us, gap_every, most) in [(10_000, 0, 9), (10_000, 10, 35), (100_000, 0, 4), (500, 0, 4000)]
        {
            let mut slot = build(1, &[]);
            let mut state = Arrivals { apart_us, ..Arrivals::default() };
            let (mut reports, mut number) = (0, 0);
            for micros in (0..80_000).step_by(10) {
                let now = Time::from_micros(1_000_000 + micros);
                number += 1 + u64::from(gap_every > 0 && micros % (100 * gap_every) == 0);
                arrive(&mut slot, &mut state, Arrival { now, ..packet(number, 0) });
                if state.due.is_some_and(|due| due <= now) {
                    reports += 1;
                    state.on_reported(now);
                }
            }
            let at = format!("{apart_us} us, a gap every {gap_every}: {reports} reports");
            // Less than timers can keep apart is left: each second packet is reported.
            assert!(reports <= most && reports >= most / 2, "{at}");
        }
        let (mut slot, mut state) = (build(1, &[]), Arrivals { apart_us: 10_000, ..Arrivals::default() });
        state.on_reported(Time::from_millis(100));
        arrive(&mut slot, &mut state, packet(0, 101));
        let polled = Arrival { polled: true, ..packet(1, 102) };
        assert_eq!(arrive(&mut slot, &mut state, polled), Some(polled.now), "a poll is answered at once");
    }

    #[test]
    fn gaps_late_packets_marks_and_polls_are_reported_at_once() {
        let mut slot = build(1, &[("packets", 100)]);
        let mut state = Arrivals::default();
        assert_eq!(arrive(&mut slot, &mut state, packet(0, 0)), Some(Time::from_millis(25)));
        let urgent = [
            packet(2, 1),
            packet(1, 2),
            Arrival { marked: true, ..packet(3, 3) },
            Arrival { polled: true, ..packet(4, 4) },
        ];
        for arrival in urgent {
            assert_eq!(
                arrive(&mut slot, &mut state, arrival),
                Some(arrival.now),
                "packet {}",
                arrival.number
            );
            state.on_reported(Time::ZERO);
        }
        assert_eq!(
            arrive(&mut slot, &mut state, packet(5, 9)),
            Some(Time::from_millis(34)),
            "in order again"
        );
    }

    #[test]
    fn poll_status_answers_polls_only() {
        let (mut slot, mut state) = (build(2, &[("every", 4)]), Arrivals::default());
        assert_eq!(arrive(&mut slot, &mut state, packet(0, 0)), None);
        assert_eq!(arrive(&mut slot, &mut state, packet(7, 1)), None, "not even for a gap");
        let poll = Arrival { polled: true, ..packet(8, 2) };
        assert_eq!(arrive(&mut slot, &mut state, poll), Some(poll.now));
        let polls: Vec<bool> = (0..5).map(|unpolled| slot.poll(unpolled, false)).collect();
        assert_eq!(polls, [false, false, false, true, true], "the fourth packet polls");
        assert!(slot.poll(0, true), "and so does the last");
    }

    /// Conformance: sender and receiver of one mechanism. What asks for no report gets none; once
    /// the sender pauses, everything that asked is reported within the delay that the mechanism
    /// admits to.
    #[test]
    fn everything_is_reported_in_time_and_nothing_unasked() {
        for seed in 0..300 {
            for m in MECHANISMS {
                let at = format!("{}, seed {seed}", m.name);
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let mut slot = Slot::build(&m.choice(), ()).expect(m.name);
                let mut state = Arrivals::default();
                let (mut number, mut millis, mut unpolled) = (0, 0, 0);
                for _ in 0..20 {
                    state.on_reported(Time::ZERO);
                    let quiet = Arrival { eliciting: false, marked: true, ..packet(number, millis) };
                    assert_eq!(arrive(&mut slot, &mut state, quiet), None, "{at}");
                    let burst = rng.random_range(1..80);
                    let mut first = None;
                    for i in 1..=burst {
                        number += if rng.random_ratio(1, 10) { 2 } else { 1 };
                        millis += rng.random_range(0..3);
                        let polled = slot.poll(unpolled, i == burst);
                        unpolled = if polled { 0 } else { unpolled + 1 };
                        let arrival = Arrival { polled, ..packet(number, millis) };
                        let due = arrive(&mut slot, &mut state, arrival);
                        let since = *first.get_or_insert(arrival.now);
                        let bound = since + slot.delay_max(&RoundTrip::default());
                        let prompt = due.is_some_and(|due| due <= bound.max(arrival.now));
                        assert!(
                            !polled && !m.promises(Promise::Reports) || prompt,
                            "{at}: {due:?} after {bound:?}"
                        );
                        if due.is_some_and(|due| due <= arrival.now) {
                            state.on_reported(Time::ZERO);
                            first = None;
                        }
                    }
                    let left = state
                        .due
                        .map(|due| due <= Time::from_millis(millis) + slot.delay_max(&RoundTrip::default()));
                    assert!(state.unreported == 0 || left == Some(true), "{at}: {state:?}");
                    number += 1;
                }
            }
        }
    }

    #[test]
    fn a_report_for_every_so_many_packets_and_for_a_poll() {
        let (mut slot, mut state) = (build(3, &[("packets", 3)]), Arrivals::default());
        let due: Vec<bool> = (0..6)
            .map(|n| {
                let due = arrive(&mut slot, &mut state, packet(n, n)).is_some();
                if due {
                    state.on_reported(Time::ZERO);
                }
                due
            })
            .collect();
        assert_eq!(due, [false, false, true, false, false, true]);
        let poll = Arrival { polled: true, ..packet(6, 6) };
        assert_eq!(arrive(&mut slot, &mut state, poll), Some(poll.now));
        assert!(slot.poll(0, true) && !slot.poll(1000, false), "the last asks");
    }

    #[test]
    fn what_is_missing_is_reported_once_and_nothing_else_unasked() {
        let (mut slot, mut state) = (build(5, &[]), Arrivals::default());
        for number in [0, 1, 2] {
            assert_eq!(arrive(&mut slot, &mut state, packet(number, 0)), None);
        }
        assert_eq!(arrive(&mut slot, &mut state, packet(5, 3)), Some(Time::from_millis(3)));
        state.on_reported(Time::ZERO);
        for number in [6, 3, 4] {
            assert_eq!(arrive(&mut slot, &mut state, packet(number, 4)), None);
        }
    }

    #[test]
    fn the_faster_packets_come_the_more_a_report_covers() {
        // Packets every so many microseconds for a second: a report each 10 ms, of 2 to 64.
        for (gap_us, least, most) in [(100, 95, 170), (1000, 95, 110), (8000, 60, 100), (20, 700, 850)] {
            let (mut slot, mut state) = (build(6, &[]), Arrivals::default());
            let mut reports = 0;
            for number in 0..1_000_000 / gap_us {
                let now = Time::from_micros(1_000_000 + number * gap_us);
                arrive(&mut slot, &mut state, Arrival { now, ..packet(number, 0) });
                if state.due.is_some_and(|due| due <= now) {
                    state.on_reported(now);
                    reports += 1;
                }
            }
            assert!((least..=most).contains(&reports), "{reports} reports, a packet in {gap_us} us");
            let gap_us = Duration::from_micros(gap_us);
            assert!(state.gap() > gap_us * 9 / 10 && state.gap() < gap_us * 11 / 10, "{:?}", state.gap());
        }
    }

    #[test]
    fn what_is_held_back_is_reported_when_it_is_let_go_and_not_forgotten_before() {
        let (mut slot, mut state) = (build(4, &[]), Arrivals::default());
        for number in [0, 2, 3] {
            arrive(&mut slot, &mut state, packet(number, number));
        }
        for number in [2, 3] {
            assert!(state.hold(Held { number, flow: 0, end: 100 * number }));
        }
        state.on_reported(Time::ZERO);
        assert_eq!(arrive(&mut slot, &mut state, packet(4, 9)), Some(Time::from_millis(9)), "once more");
        let reported = |state: &Arrivals| state.unheld().map(|ranges| ranges.iter().collect::<Vec<_>>());
        assert_eq!(reported(&state), Some(vec![0..1, 4..5]));
        state.forget_through(4);
        state.let_go(|held| held.end <= 200);
        assert_eq!(reported(&state), Some(vec![2..3, 4..5]));
        state.let_go(|_| true);
        assert_eq!((reported(&state), state.received.len()), (None, 1), "2 to 4 are all there");
    }

    /// Data that is given up has never arrived: it is not reported, and may come again.
    #[test]
    fn what_is_given_up_counts_as_never_arrived() {
        let (mut slot, mut state) = (build(4, &[("keep", 2)]), Arrivals::default());
        for number in [0, 2, 3] {
            arrive(&mut slot, &mut state, packet(number, number));
        }
        for (number, flow) in [(2, 0), (2, 4), (3, 0)] {
            assert!(state.hold(Held { number, flow, end: 100 * number }));
        }
        assert_eq!((state.held_packets(), slot.keeps(9)), (2, 2), "data of two flows came in one packet");
        let given_up = state.give_up_held();
        assert_eq!(
            given_up.iter().map(|held| (held.number, held.flow)).collect::<Vec<_>>(),
            [(2, 0), (2, 4), (3, 0)]
        );
        assert_eq!((state.held_packets(), state.unheld()), (0, None));
        assert_eq!(state.received.iter().collect::<Vec<_>>(), [0..1]);
        assert!(!state.is_duplicate(2) && !state.is_duplicate(3) && state.is_duplicate(0));
    }

    /// A receive buffer in bytes, of which each packet takes its charge. Viswanath 1999, section
    /// 4.2.1: packets of 9408 bytes, and the one that brings them to 103,488 of 98,000 prunes; of
    /// 65,536 it is the seventh.
    #[test]
    fn a_receiver_keeps_what_its_buffer_holds() {
        let keeps = |charge, window| build(4, &[("charge", charge)]).keeps(window);
        assert_eq!((keeps(9408, 49_000), keeps(9408, 32_768)), (10, 6));
        assert_eq!((keeps(0, 49_000), keeps(1, u64::MAX), keeps(60_000, 1000)), (HELD_MAX, HELD_MAX, 0));
        assert_eq!(build(4, &[("charge", 9408), ("keep", 3)]).keeps(49_000), 3);
    }

    #[test]
    fn numbers_at_the_edge_do_not_overflow() {
        for m in MECHANISMS {
            let mut slot = Slot::build(&m.choice(), ()).expect(m.name);
            let mut state = Arrivals { unreported: u32::MAX, ..Arrivals::default() };
            for number in [0, u64::MAX - 1, u64::MAX, u64::MAX] {
                arrive(&mut slot, &mut state, packet(number, 0));
            }
            state.forget_through(u64::MAX);
        }
    }
}
