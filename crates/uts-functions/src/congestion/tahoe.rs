//! Tahoe: slow start from one packet after every loss, however it was found, up to half of the
//! window of before; then one packet more per round trip (Jacobson, "Congestion Avoidance and
//! Control", SIGCOMM 1988). What TCP did before fast recovery; here to compare with.

use super::classic::{Adjustment, Classic, Reduced, Window};
use super::counted::{Additive, COUNT, Count, Counted, INITIAL};
use super::{Ack, Context, response};
use crate::facts::PathFacts;
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise, Unasked};

/// See the module's page.
pub type Tahoe = Classic<Counted, Restart>;

impl Tahoe {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Congestion,
        number: 4,
        name: "tahoe",
        what: "slow start from one packet after every loss, additive increase from half the window on",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[INITIAL, COUNT],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Restraint],
            unasked: Unasked::Never,
            window_packets_min: 1,
            ..Facts::PLAIN
        },
        predict: |params, facts, prediction| {
            // A burst meets the window of one packet again: its losses are no single event.
            let facts_singly = PathFacts { loss_burst: 1.0, ..*facts };
            let packets = response::reno_packets(response::random_events(&facts_singly, prediction));
            // As that of Mathis et al., less the round trips in which the window comes up again.
            response::apply(packets * Count::of(params).window_share(), 0.5, facts, prediction);
            prediction.utilisation *= RESTART_SHARE;
            prediction.utilisation_low *= RESTART_SHARE;
        },
    };

    /// Builds it from what the predecessor knew.
    pub fn build(params: &Params, context: &Context) -> Self {
        let count = Count::of(params);
        let restart = Restart { increase: Additive::new(count) };
        Classic::with(context, Counted(count), restart).starting_at(u64::from(params.get(0)))
    }
}

/// Additive increase, and a window of one packet after a loss.
#[derive(Clone, Debug, Default)]
pub struct Restart {
    increase: Additive,
}

impl Adjustment for Restart {
    const PACKETS_MIN: u64 = 1;
    const ENDS_AT_TIMEOUT: bool = true;

    fn reduce(&mut self, window: &Window, _: u64) -> Reduced {
        // C-41.
        self.increase.restart();
        Reduced { window: window.packet_bytes as f64, threshold: (window.bytes / 2) as f64 }
    }

    fn grow(&mut self, window: &Window, ack: &Ack) -> f64 {
        self.increase.grow(window, ack)
    }

    fn restart(&mut self) {
        self.increase.restart();
    }

    fn restore(&mut self, _: Self) {}
}

/// Share of Reno's window that is left: measured in the harness.
const RESTART_SHARE: f64 = 0.75;

#[cfg(test)]
mod tests {
    use super::super::testing::{PACKET, RTT, Script, context};
    use super::*;
    use crate::congestion::Congestion;

    fn script(window_packets: u64, threshold_bytes: u64) -> Script<Tahoe> {
        Script::new(Tahoe::build(&Tahoe::INFO.choice().params, &context(window_packets, threshold_bytes)))
    }

    /// The windows, in packets, after each of so many round trips without a loss.
    fn rounds(s: &mut Script<Tahoe>, count: usize) -> Vec<f64> {
        let mut windows = Vec::new();
        for _ in 0..count {
            s.round();
            windows.push(s.packets());
        }
        windows
    }

    /// By hand, after figure 5 of the paper: 16 packets, a loss; 1, 2, 4, 8, then one more per
    /// round trip; at 11 another.
    #[test]
    fn a_trace_by_hand() {
        let mut s = script(16, 16 * PACKET);
        s.lose(1, s.now - RTT, false);
        assert_eq!((s.packets(), s.mechanism.phase()), (1.0, "slow start"));
        s.now += RTT;
        assert_eq!(rounds(&mut s, 3), [2.0, 4.0, 8.0]);
        assert_eq!(s.mechanism.phase(), "congestion avoidance");
        assert_eq!(rounds(&mut s, 3), [9.0, 10.0, 11.0]);
        s.now += RTT;
        s.lose(2, s.now, false);
        assert_eq!(s.packets(), 1.0);
        s.now += RTT;
        // Half of 11 packets: slow start ends within the packet that passes 5.5.
        assert_eq!(rounds(&mut s, 4), [2.0, 4.0, 6.0, 7.0]);
    }

    #[test]
    fn losses_of_one_flight_are_one_reduction() {
        let mut s = script(16, 16 * PACKET);
        s.lose(1, s.now - RTT, false);
        let threshold = s.mechanism.summary().threshold_bytes;
        s.lose(3, s.now - RTT, false);
        s.acknowledge(s.now - RTT, 1);
        assert_eq!((s.packets(), s.mechanism.summary().threshold_bytes), (1.0, threshold));
        assert_eq!(threshold, 8 * PACKET);
    }

    #[test]
    fn a_time_out_is_a_loss_and_others_do_not_mind_it() {
        let mut s = script(16, 16 * PACKET);
        s.time_out(1);
        assert_eq!((s.packets(), s.mechanism.summary().threshold_bytes), (1.0, 8 * PACKET));
        // What was in flight then is lost for the same reason.
        s.lose(10, s.now - RTT, false);
        assert_eq!((s.packets(), s.mechanism.summary().threshold_bytes), (1.0, 8 * PACKET));
        // The next finds a window of one packet: two is the least for the threshold.
        s.now += RTT;
        s.time_out(2);
        assert_eq!((s.packets(), s.mechanism.summary().threshold_bytes), (1.0, 2 * PACKET));
        let reno = crate::congestion::new_reno::NewReno::build(&Params::default(), &context(16, u64::MAX));
        let mut reno = Script::new(reno);
        reno.time_out(1);
        assert_eq!(reno.packets(), 16.0);
    }

    #[test]
    fn a_spurious_loss_is_undone() {
        let mut s = script(16, 16 * PACKET);
        s.lose(2, s.now - RTT, false);
        s.mechanism.on_spurious_loss(2 * PACKET);
        assert_eq!(s.packets(), 16.0);
    }
}
