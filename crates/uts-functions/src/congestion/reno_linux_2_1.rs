//! Reno as Linux 2.1.117 had it (1998): half of the window, not of what is in flight, and slow
//! start up to the threshold and one packet beyond it. Source: Viswanath, "TCP Performance
//! Evaluation Using TIGER Network Testbed", 1999, section 2.1.1. What its partial acknowledgements
//! do is the finding mechanism's to say.

use super::classic::{Adjustment, Classic, Reduced, Window};
use super::counted::{Additive, COUNT, Count, Counted, INITIAL};
use super::reno::predict;
use super::{Ack, Context};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise, Unasked};

/// See the module's page.
pub type RenoLinux21 = Classic<Counted, HalfOfWindow>;

impl RenoLinux21 {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Congestion,
        number: 6,
        name: "reno-linux-2-1",
        what: "half the window for each fast retransmit, one packet after a time-out, slow start up to the threshold",
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
        predict,
    };

    /// Builds it from what the predecessor knew.
    pub fn build(params: &Params, context: &Context) -> Self {
        let count = Count::of(params);
        let half = HalfOfWindow { increase: Additive::new(count) };
        Classic::with(context, Counted(count), half).starting_at(u64::from(params.get(0)))
    }
}

/// Additive increase, and half the window after a fast retransmit.
#[derive(Clone, Debug, Default)]
pub struct HalfOfWindow {
    increase: Additive,
}

impl Adjustment for HalfOfWindow {
    const PACKETS_MIN: u64 = 1;
    const ENDS_AT_TIMEOUT: bool = true;
    // C-62.
    const EACH_FAST_RETRANSMIT: bool = true;
    const SLOW_START_AT_THRESHOLD: bool = true;
    // The first ends the recovery there.
    const LASTS_OVER_PARTIALS: bool = false;

    fn reduce(&mut self, window: &Window, _: u64) -> Reduced {
        // C-63.
        self.increase.restart();
        let half = (window.bytes / 2).max(2 * window.packet_bytes) as f64;
        Reduced { window: half.min(window.exact), threshold: half }
    }

    fn grow(&mut self, window: &Window, ack: &Ack) -> f64 {
        self.increase.grow(window, ack)
    }

    fn restart(&mut self) {
        self.increase.restart();
    }

    fn restore(&mut self, _: Self) {}
}

#[cfg(test)]
mod tests {
    use super::super::testing::{PACKET, RTT, Script, context};
    use super::*;
    use crate::congestion::{Cause, Congestion};

    fn script(window_packets: u64, threshold_packets: u64) -> Script<RenoLinux21> {
        let context = context(window_packets, threshold_packets * PACKET);
        Script::new(RenoLinux21::build(&RenoLinux21::INFO.choice().params, &context))
    }

    /// A loss that a partial acknowledgement shows costs nothing; three more duplicates do.
    #[test]
    fn each_fast_retransmit_is_a_reduction_and_a_partial_acknowledgement_is_none() {
        let mut s = script(32, 32);
        let sent_at = s.now - RTT;
        let windows = [Cause::Duplicates, Cause::Partial, Cause::Duplicates].map(|cause| {
            s.lose_by(cause, 1, sent_at, false);
            s.packets()
        });
        assert_eq!(windows, [16.0, 16.0, 8.0]);
    }

    /// "if (cwnd <= ssthresh) cwnd += 1" (section 2.1.1).
    #[test]
    fn slow_start_ends_beyond_the_threshold() {
        let mut s = script(8, 8);
        s.acknowledge_bytes(PACKET);
        assert_eq!((s.packets(), s.mechanism.phase()), (9.0, "congestion avoidance"));
        s.acknowledge_bytes(PACKET);
        assert_eq!(s.packets(), 9.0);
    }

    #[test]
    fn a_time_out_leaves_one_packet_and_half_of_the_window_as_threshold() {
        let mut s = script(32, 32);
        s.time_out(1);
        assert_eq!((s.packets(), s.mechanism.summary().threshold_bytes), (1.0, 16 * PACKET));
    }
}
