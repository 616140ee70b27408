//! Reno: half the window after a loss, and one packet after a time-out (RFC 5681). Each loss of a
//! flight counts, which NewReno mended: a repeat that is acknowledged ends the recovery, so that
//! the next loss begins another, until the timer has to help. Here to compare with.

use super::classic::{Adjustment, Again, Classic, Doubling, Reduced, Window};
use super::{Ack, Context, response};
use crate::facts::PathFacts;
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Prediction, Promise, Unasked, Unit};

/// See the module's page.
pub type Reno = Classic<Doubling, EachLoss>;

/// How many packets a connection begins with: one (Jacobson 1988) to ten (RFC 6928).
pub(super) const INITIAL: Param = Param {
    name: "initial",
    unit: Unit::Packets,
    default: 1,
    min: 1,
    max: 10,
    bold: Bold::Neither,
    what: "packets that a connection begins with",
};

impl Reno {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Congestion,
        number: 5,
        name: "reno",
        what: "half the window for each loss, one packet after a time-out",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[INITIAL],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Restraint],
            unasked: Unasked::Never,
            window_packets_min: 1,
            ..Facts::PLAIN
        },
        predict: |_, facts, prediction| predict(1.0, facts, prediction),
    };

    /// Builds it from what the predecessor knew.
    pub fn build(params: &Params, context: &Context) -> Self {
        Classic::new(context).starting_at(u64::from(params.get(0)))
    }
}

/// A window that swings between one half and the whole, where of losses in a row only the share
/// `counted` is a reduction.
pub(super) fn predict(counted: f64, facts: &PathFacts, prediction: &mut Prediction) {
    let singly = PathFacts { loss_burst: 1.0, ..*facts };
    let p = response::random_events(&singly, prediction) * counted;
    let packets = response::reno_packets(p);
    response::apply(packets, 0.5, facts, prediction);
    prediction.utilisation *= FURTHER_SHARE;
    prediction.utilisation_low *= FURTHER_SHARE;
}

/// What second losses of a flight leave, and the time-outs that longer bursts and the first search
/// end in: measured in the harness.
const FURTHER_SHARE: f64 = 0.72;

/// Additive increase, and half the window for each loss.
#[derive(Clone, Debug, Default)]
pub struct EachLoss {
    increase: Additive,
    /// Losses of the flight beyond the first.
    further: u8,
}

impl Adjustment for EachLoss {
    const PACKETS_MIN: u64 = 1;
    const ENDS_AT_TIMEOUT: bool = true;

    fn reduce(&mut self, window: &Window, flight: u64) -> Reduced {
        // C-61, RFC 5681 equation 4.
        self.increase = Additive::default();
        half_of_flight(window, flight)
    }

    fn on_flight(&mut self) {
        self.further = 0;
    }

    fn again(&mut self) -> Again {
        // C-60.
        self.further = self.further.saturating_add(1);
        nth_further(self.further)
    }

    fn grow(&mut self, window: &Window, ack: &Ack) -> f64 {
        self.increase.grow(window, ack)
    }

    fn restart(&mut self) {
        self.increase = Additive::default();
    }

    fn restore(&mut self, _: Self) {}
}

/// Two losses of a flight are reductions. The next finds too few packets in flight for three
/// duplicate acknowledgements, and is found by the timer.
pub(super) fn nth_further(further: u8) -> Again {
    match further {
        1 => Again::Reduction,
        2 => Again::Timeout,
        _ => Again::Nothing,
    }
}

/// Half of what was in flight, two packets at least (RFC 5681 equation 4).
pub(super) fn half_of_flight(window: &Window, flight: u64) -> Reduced {
    let in_use = if flight == 0 { window.bytes } else { flight.min(window.bytes) };
    let half = (in_use / 2).max(2 * window.packet_bytes) as f64;
    // A window of one packet is no larger for a loss.
    Reduced { window: half.min(window.exact), threshold: half }
}

/// One packet more per window acknowledged, counted in bytes (C-10, RFC 5681 section 3.1).
#[derive(Clone, Debug, Default)]
pub(super) struct Additive {
    /// Bytes acknowledged towards the next packet of growth.
    acked: u64,
}

impl Additive {
    /// The window, in bytes, after an acknowledgement.
    pub fn grow(&mut self, window: &Window, ack: &Ack) -> f64 {
        self.acked += ack.bytes;
        if self.acked < window.bytes {
            return window.exact;
        }
        self.acked -= window.bytes;
        window.exact + window.packet_bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{PACKET, RTT, Script, context};
    use super::*;
    use crate::congestion::{Congestion, Summary};

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

    /// The windows of figure 2.3 of Viswanath, "TCP Performance Evaluation Using TIGER Network
    /// Testbed" (1999): a time-out at 32.
    #[test]
    fn after_a_time_out_at_32() {
        let mut s = script(32, 32 * PACKET);
        s.time_out(1);
        s.now += RTT;
        let mut windows = vec![s.packets()];
        windows.extend(rounds(&mut s, 5));
        assert_eq!(windows, [1.0, 2.0, 4.0, 8.0, 16.0, 17.0]);
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

    /// Fall and Floyd, "Simulation-based Comparisons of Tahoe, Reno, and SACK TCP" (1996): two
    /// losses in a window halve it twice, which NewReno does not.
    #[test]
    fn each_loss_of_a_flight_counts() {
        let mut s = script(32, 32 * PACKET);
        s.lose(2, s.now - RTT, false);
        assert_eq!(s.packets(), 8.0);
        s.lose(1, s.now - RTT, false);
        assert_eq!((s.packets(), s.mechanism.summary().threshold_bytes), (1.0, 4 * PACKET), "the timer");
        s.lose(9, s.now - RTT, false);
        assert_eq!((s.packets(), s.mechanism.summary().threshold_bytes), (1.0, 4 * PACKET));
        s.mechanism.on_spurious_loss(12 * PACKET);
        assert_eq!(s.packets(), 32.0, "all of it is undone");
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
