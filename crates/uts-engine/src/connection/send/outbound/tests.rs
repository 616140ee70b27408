//! The way out alone: pace and headers.

use super::*;
use crate::connection::testing;
use uts_functions::retransmission::ledger::{Departure, Sent, Tokens};

/// rate.md R-18: what goes with reports does not hold back what waits for the rate.
#[test]
fn reports_leave_no_debt_to_pacing_but_under_an_upper_bound() {
    let bound = Some(Rate::from_bits_per_sec(1_000_000));
    for (rate_max, waits) in [(None, false), (bound, true)] {
        let profile = Profile::bare().with_named(Function::Rate, "pacing-bucket").expect("it exists");
        let mut ways = crate::connection::testing::ways_under(profile);
        let outbound = &mut ways.outbound;
        (outbound.rtt.samples, outbound.rtt.smoothed) = (1, Duration::from_millis(600));
        outbound.set_rate_max(rate_max);
        let now = Time::from_millis(1);
        assert!(outbound.admits(now, 1200, 1200));
        for _ in 0..30 {
            outbound.on_report_sent(now, 200, 1200);
            outbound.delivery.forget(200);
        }
        assert_eq!(!outbound.admits(now, 1200, 1200), waits, "{rate_max:?}");
    }
}

/// A packet that comes late must not be taken for a later one: with it, data would count as
/// arrived that is lost.
#[test]
fn where_nothing_checks_a_number_none_can_be_completed_wrongly() {
    let unchecked = [(Function::Protection, "none")];
    let checked = [(Function::Protection, "none"), (Function::Detection, "crc-32c")];
    for (others, bytes) in [(&unchecked[..], 2), (&checked[..], 1), (&[], 1)] {
        let mut ways = testing::ways_with(others);
        let outbound = &mut ways.outbound;
        let snapshot = outbound.on_sent(Time::ZERO, 100, 1200);
        for _ in 0..165 {
            let sent = Sent {
                tokens: Tokens::new(),
                bytes: 100,
                epoch: 0,
                snapshot,
                eliciting: true,
                size_probe: false,
                departure: Departure::default(),
            };
            outbound.ledger.record(sent);
        }
        outbound.ledger.on_ack(&mut core::iter::once(0..1), Time::ZERO);
        outbound.ledger.on_ack(&mut core::iter::once(150..151), Time::ZERO);
        let stack = &outbound.stacks[0];
        assert_eq!(outbound.truncated(stack, 165).len(), bytes, "{others:?}");
    }
}
