//! Negative acknowledgements: the receiver asks for what is missing, and what it asks for is sent
//! again. Losses are found where they show first, so that acknowledgements may be as rare as they
//! like (RFC 5740 section 5.1; the loss list of SRT).

use super::demand::{self, Demand, Gaps, Received};
use super::{LostData, Response, Retransmission, SentData};
use crate::feedback::BadFeedback;
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Need, Param, Params, Unasked, Unit, millis};
use crate::time::Time;
use core::ops::Range;
use core::time::Duration;

/// So many time-outs after a loss it is repeated unasked: the receiver has had time to ask.
const TIMEOUTS_BEFORE_REPEAT: u32 = 4;

/// Share of a round trip for which a gap may be a matter of order (RFC 9002 section 6.1.2: 9/8).
const REORDERING_DIVISOR: u32 = 8;

/// The sender's half. See the module's page.
#[derive(Clone, Debug)]
pub struct Nak {
    hold: Duration,
}

impl Nak {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Retransmission,
        number: 3,
        name: "nak",
        what: "the receiver asks for what is missing, and that is sent again",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "hold",
            unit: Unit::Millis,
            default: 0,
            min: 0,
            max: 10_000,
            bold: Bold::Neither,
            what: "how long something is missing before it is asked for (0 = an eighth of a round trip)",
        }],
        needs: &[Need::Present(Function::Acknowledgement)],
        facts: Facts { speaks: true, unasked: Unasked::Never, ..super::REPEATS },
        predict: |params, facts, p| {
            super::predict_repeats(facts, p);
            p.delay_s += p.loss * millis(params.get(0)).as_secs_f64();
            p.cpu_ns += 15.0;
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Nak { hold: millis(params.get(0)) }
    }
}

impl Retransmission for Nak {
    fn on_lost(&mut self, lost: &LostData) -> Response {
        let SentData { now, timeout, heard_to, .. } = lost.flow;
        // retransmission.md R-15: the receiver sees a gap only below what it has.
        if lost.has_waited || lost.range.end > heard_to {
            return Response::Repeat(lost.range.clone());
        }
        Response::Wait(now + timeout * TIMEOUTS_BEFORE_REPEAT)
    }

    fn demand(&self) -> Option<Box<dyn Demand>> {
        Some(Box::new(Missing { hold: self.hold, gaps: Gaps::default() }))
    }

    fn on_feedback(&mut self, words: &[u8], _flow: &SentData) -> Result<Vec<Range<u64>>, BadFeedback> {
        // retransmission.md R-14.
        demand::read_ranges(words).ok_or(BadFeedback { mechanism: Self::INFO.name })
    }
}

/// The receiver's half: asks for each gap by itself.
#[derive(Clone, Debug)]
struct Missing {
    hold: Duration,
    gaps: Gaps,
}

impl Demand for Missing {
    fn look(&mut self, flow: &mut Received<'_>) {
        // retransmission.md R-13.
        let patience = if self.hold.is_zero() { flow.rtt / REORDERING_DIVISOR } else { self.hold };
        self.gaps.update(flow.now, &mut *flow.missing, patience);
    }

    fn take(&mut self, now: Time, rtt: Duration) -> Vec<Range<u64>> {
        self.gaps.take_due(now, rtt)
    }

    fn due(&self) -> Option<Time> {
        self.gaps.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(100);

    fn lost(range: Range<u64>, heard_to: u64, has_waited: bool) -> LostData {
        let flow = SentData {
            now: Time::from_millis(1000),
            timeout: TIMEOUT,
            sent_to: 500,
            heard_to,
            next_packet: 50,
            acked_to: 8,
            repeats_from: 0,
            repeats_to: 0,
            brought: 0,
        };
        LostData { range, packet: 7, has_waited, losses: 1, age: Duration::ZERO, flow }
    }

    #[test]
    fn only_what_the_receiver_can_see_waits_to_be_asked_for() {
        let mut nak = Nak { hold: Duration::ZERO };
        let until = Time::from_millis(1000) + TIMEOUT * TIMEOUTS_BEFORE_REPEAT;
        assert_eq!(nak.on_lost(&lost(10..20, 30, false)), Response::Wait(until));
        assert_eq!(nak.on_lost(&lost(10..20, 20, false)), Response::Wait(until));
        assert_eq!(nak.on_lost(&lost(10..20, 10, false)), Response::Repeat(10..20));
        assert_eq!(nak.on_lost(&lost(10..20, 30, true)), Response::Repeat(10..20));
    }

    #[test]
    fn what_is_asked_for_is_sent_again() {
        let mut nak = Nak { hold: Duration::ZERO };
        let mut words = Vec::new();
        demand::emit_ranges(&[10..20, 40..45], 100, &mut words);
        let flow = lost(0..1, 0, false).flow;
        assert_eq!(nak.on_feedback(&words, &flow), Ok(vec![10..20, 40..45]));
        assert_eq!(nak.on_feedback(&[3], &flow), Err(BadFeedback { mechanism: "nak" }));
    }

    #[test]
    fn a_gap_is_given_an_eighth_of_a_round_trip_to_close() {
        let mut demand = Nak { hold: Duration::ZERO }.demand().expect("it has one");
        let mut ask = |ms: u64, missing: &[Range<u64>]| {
            let mut missing = missing.iter().cloned();
            let (now, rtt) = (Time::from_millis(ms), Duration::from_millis(80));
            demand.look(&mut Received { now, reaches: 1000, is_ended: false, missing: &mut missing, rtt });
            (demand.take(now, rtt), demand.due())
        };
        assert_eq!(ask(100, &[10..20, 30..40]), (vec![], Some(Time::from_millis(110))));
        assert_eq!(ask(105, &[30..40]), (vec![], Some(Time::from_millis(110))));
        assert_eq!(ask(110, &[30..40]), (vec![30..40], Some(Time::from_millis(230))));
        assert_eq!(ask(120, &[]), (vec![], None));
    }
}
