//! Reno: half the window after a fast retransmit, and one packet after a time-out (RFC 5681). Each
//! fast retransmit is a reduction, where NewReno has one for all losses of a flight: that follows
//! from the finding mechanism, which says whether a loss begins a recovery or belongs to one. Here
//! to compare with.

use super::classic::{Adjustment, Classic, Reduced, Window};
use super::counted::{Additive, COUNT, Count, Counted, INITIAL};
use super::{Ack, Context, response};
use crate::facts::PathFacts;
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Prediction, Promise, Unasked, Unit};

/// See the module's page.
pub type Reno = Classic<Counted, Halving>;

/// Packets that may leave at once when a recovery ends.
const BURST: Param = Param {
    name: "burst",
    unit: Unit::Count,
    default: 1,
    min: 0,
    max: 1,
    bold: Bold::Above,
    what: "a recovery ends with a window of 1 = half of what it was (RFC 5681); 0 = a packet more than is in flight (RFC 6582)",
};

impl Reno {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Congestion,
        number: 5,
        name: "reno",
        what: "half the window for each fast retransmit, one packet after a time-out",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[INITIAL, COUNT, BURST],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Restraint],
            unasked: Unasked::Never,
            window_packets_min: 1,
            ..Facts::PLAIN
        },
        predict,
    };

    /// Builds it from what the predecessor knew.
    pub fn build(params: &Params, context: &Context) -> Self {
        let count = Count::of(params);
        let halving = Halving { increase: Additive::new(count), may_burst: params.get(2) == 1 };
        Classic::with(context, Counted(count), halving).starting_at(u64::from(params.get(0)))
    }
}

/// A window that swings between one half and the whole. A burst is taken for as many reductions as
/// it has packets: it may be as many fast retransmits, or end in a time-out.
pub(super) fn predict(params: &Params, facts: &PathFacts, prediction: &mut Prediction) {
    let singly = PathFacts { loss_burst: 1.0, ..*facts };
    let packets = response::reno_packets(response::random_events(&singly, prediction));
    response::apply(packets * Count::of(params).window_share(), 0.5, facts, prediction);
}

/// Additive increase, and half of what was in flight after a fast retransmit.
#[derive(Clone, Debug, Default)]
pub struct Halving {
    increase: Additive,
    may_burst: bool,
}

impl Adjustment for Halving {
    const PACKETS_MIN: u64 = 1;
    const ENDS_AT_TIMEOUT: bool = true;
    // C-60.
    const EACH_FAST_RETRANSMIT: bool = true;

    fn reduce(&mut self, window: &Window, flight: u64) -> Reduced {
        // C-61, RFC 5681 equation 4.
        self.increase.restart();
        half_of_flight(window, flight)
    }

    fn on_recovered(&self, window: &Window, in_flight: u64) -> Option<f64> {
        // C-64, RFC 6582 section 3.2.
        let most = in_flight.max(window.packet_bytes) + window.packet_bytes;
        (!self.may_burst).then_some(window.exact.min(most as f64))
    }

    fn grow(&mut self, window: &Window, ack: &Ack) -> f64 {
        self.increase.grow(window, ack)
    }

    fn restart(&mut self) {
        self.increase.restart();
    }

    fn restore(&mut self, _: Self) {}
}

/// Half of what was in flight, two packets at least (RFC 5681 equation 4).
pub(super) fn half_of_flight(window: &Window, flight: u64) -> Reduced {
    let in_use = if flight == 0 { window.bytes } else { flight.min(window.bytes) };
    let half = (in_use / 2).max(2 * window.packet_bytes) as f64;
    // A window of one packet is no larger for a loss.
    Reduced { window: half.min(window.exact), threshold: half }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{PACKET, RTT, Script, context};
    use super::*;
    use crate::congestion::{Cause, Congestion, Summary};

    fn script(window_packets: u64, threshold_bytes: u64) -> Script<Reno> {
        Script::new(Reno::build(&Reno::INFO.choice().params, &context(window_packets, threshold_bytes)))
    }

    fn rounds(s: &mut Script<Reno>, count: usize) -> Vec<f64> {
        (0..count)
            .map(|_| {
                s.round();
                s.packets()
            })
            .collect()
    }

    /// By hand: one loss at 16 halves, then one packet per round trip.
    #[test]
    fn a_trace_by_hand() {
        let mut s = script(16, 16 * PACKET);
        s.lose(1, s.now - RTT, false);
        assert_eq!((s.packets(), s.mechanism.phase()), (8.0, "congestion avoidance"));
        s.now += RTT;
        assert_eq!(rounds(&mut s, 3), [9.0, 10.0, 11.0]);
    }

    /// Each fast retransmit halves, whenever its packet left. What else is lost of the flight is
    /// part of the same recovery.
    #[test]
    fn each_fast_retransmit_is_a_reduction() {
        let mut s = script(32, 32 * PACKET);
        let sent_at = s.now - RTT;
        let windows = [Cause::Duplicates, Cause::Partial, Cause::Overtaken, Cause::Duplicates].map(|cause| {
            s.lose_by(cause, 1, sent_at, false);
            s.packets()
        });
        assert_eq!(windows, [16.0, 16.0, 16.0, 8.0]);
        s.mechanism.on_spurious_loss(4 * PACKET);
        assert_eq!(s.packets(), 32.0, "all of it is undone");
    }

    /// RFC 5681 section 3.1: an acknowledgement of two packets lets the window grow by one. By
    /// bytes (RFC 3465) it is two.
    #[test]
    fn growth_is_by_acknowledgements_or_by_bytes() {
        for (count, windows) in [(0, [1.0, 2.0, 3.0, 5.0, 8.0]), (1, [1.0, 2.0, 4.0, 8.0, 16.0])] {
            let context = context(1, u64::MAX - 1);
            let reno = Reno::build(&Params([1, count, 1, 0]), &context);
            let mut s = Script::new(reno);
            let mut found = Vec::new();
            for _ in 0..windows.len() {
                found.push(s.packets());
                let mut left = s.packets() as u64;
                while left > 0 {
                    // The last of an odd number is acknowledged alone.
                    let packets = left.min(2);
                    s.acknowledge_bytes(packets * PACKET);
                    left -= packets;
                }
                s.now += RTT;
            }
            assert_eq!(found, windows, "count {count}");
        }
    }

    /// Where something kept the sender from sending in a recovery.
    #[test]
    fn a_recovery_may_end_without_a_burst() {
        for (burst, after) in [(1, 16.0), (0, 5.0)] {
            let reno = Reno::build(&Params([1, 0, burst, 0]), &context(32, 32 * PACKET));
            let mut s = Script::new(reno);
            s.delivery.in_flight = 3 * PACKET;
            s.lose_by(Cause::Duplicates, 1, s.now - RTT, false);
            s.now += RTT;
            s.acknowledge(s.now, 0);
            // Slow start begins there.
            assert_eq!(s.packets(), after, "burst = {burst}");
        }
    }

    #[test]
    fn half_of_what_was_in_flight_is_left_of_a_window_that_was_not_full() {
        let window = Window { packet_bytes: PACKET, exact: 0.0, bytes: 40 * PACKET, threshold: u64::MAX };
        let window = Window { exact: window.bytes as f64, ..window };
        assert_eq!(half_of_flight(&window, 12 * PACKET).window, (6 * PACKET) as f64);
        assert_eq!(half_of_flight(&window, PACKET).window, (2 * PACKET) as f64);
        assert_eq!(half_of_flight(&window, 90 * PACKET).window, (20 * PACKET) as f64);
    }

    #[test]
    fn a_connection_begins_with_one_packet_or_as_many_as_are_asked_for() {
        let mut context = context(10, u64::MAX);
        context.summary = Summary::initial(PACKET);
        let first = |packets| Reno::build(&Params([packets, 0, 0, 0]), &context).window_bytes() / PACKET;
        assert_eq!((first(1), first(10)), (1, 10));
        let grown = Reno::build(&Params([1, 0, 0, 0]), &super::super::testing::context(40, u64::MAX));
        assert_eq!(grown.window_bytes(), 40 * PACKET, "what has been learnt is kept");
    }
}
