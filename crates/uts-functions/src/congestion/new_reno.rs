//! NewReno: slow start, then one packet more per round trip, and half the window after a loss (RFC
//! 9002 section 7, after RFC 6582). Known by everyone, fair to everything, slow on long or lossy
//! paths.

use super::classic::{Adjustment, Classic, Doubling, Reduced, Window};
use super::{Ack, Context, response};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise, Unasked};

/// See the module's page.
pub type NewReno = Classic<Doubling, Halving>;

impl NewReno {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Congestion,
        number: 1,
        name: "new-reno",
        what: "slow start, additive increase, half the window after a loss",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Restraint, Promise::FullPath],
            unasked: Unasked::Choice(1),
            ..Facts::PLAIN
        },
        predict: |_, facts, prediction| {
            let packets = response::reno_packets(response::random_events(facts, prediction));
            // The window swings between one half and the whole of path and buffer: half a path of
            // queue on average.
            response::apply(packets, 0.5, facts, prediction);
        },
    };

    /// Builds it from what the predecessor knew.
    pub fn build(_: &Params, context: &Context) -> Self {
        Classic::new(context)
    }
}

/// Additive increase, multiplicative decrease by one half.
#[derive(Clone, Debug, Default)]
pub struct Halving {
    /// Bytes acknowledged towards the next packet of growth.
    acked: u64,
}

impl Adjustment for Halving {
    fn reduce(&mut self, window: &Window, _: u64) -> Reduced {
        // C-11, RFC 9002 section 7.3.2.
        self.acked = 0;
        let half = (window.bytes / 2) as f64;
        Reduced { window: half, threshold: half }
    }

    fn grow(&mut self, window: &Window, ack: &Ack) -> f64 {
        // C-10, RFC 9002 section 7.3.3, counting bytes (RFC 3465).
        self.acked += ack.bytes;
        if self.acked < window.bytes {
            return window.exact;
        }
        self.acked -= window.bytes;
        window.exact + window.packet_bytes as f64
    }

    fn restart(&mut self) {
        self.acked = 0;
    }

    fn restore(&mut self, _: Self) {}
}

#[cfg(test)]
mod tests {
    use super::super::testing::{PACKET, RTT, Script, context};
    use super::*;
    use crate::congestion::Congestion;

    fn script(window_packets: u64, threshold_bytes: u64) -> Script<NewReno> {
        Script::new(NewReno::build(&Params::default(), &context(window_packets, threshold_bytes)))
    }

    #[test]
    fn slow_start_doubles_and_avoidance_adds_one() {
        let mut s = script(10, 40 * PACKET);
        s.round();
        assert_eq!((s.packets(), s.mechanism.phase()), (20.0, "slow start"));
        s.round();
        assert_eq!((s.packets(), s.mechanism.phase()), (40.0, "congestion avoidance"));
        s.round();
        assert_eq!(s.packets(), 41.0);
    }

    #[test]
    fn one_reduction_per_round_trip() {
        let mut s = script(40, 40 * PACKET);
        s.lose(3, s.now - RTT, false);
        assert_eq!(s.packets(), 20.0);
        s.lose(3, s.now, false);
        s.acknowledge(s.now - RTT, 1);
        assert_eq!(s.packets(), 20.0, "losses and marks of the same flight");
        let later = s.now + RTT;
        s.now = later;
        s.lose(1, later, false);
        assert_eq!(s.packets(), 10.0, "a loss of what was sent since");
    }

    #[test]
    fn a_mark_is_a_loss() {
        let mut s = script(40, 40 * PACKET);
        s.acknowledge(s.now - RTT, 1);
        assert_eq!(s.packets(), 20.0);
    }

    #[test]
    fn a_reduction_is_undone_only_when_every_loss_was_spurious() {
        let mut s = script(40, 40 * PACKET);
        s.lose(3, s.now - RTT, false);
        s.mechanism.on_spurious_loss(2 * PACKET);
        assert_eq!(s.packets(), 20.0);
        s.mechanism.on_spurious_loss(PACKET);
        assert_eq!(s.packets(), 40.0);
    }

    #[test]
    fn persistent_congestion_leaves_two_packets_and_slow_start() {
        let mut s = script(40, 40 * PACKET);
        s.lose(40, s.now, true);
        assert_eq!((s.packets(), s.mechanism.phase()), (2.0, "slow start"));
        s.mechanism.on_spurious_loss(40 * PACKET);
        assert_eq!(s.packets(), 2.0);
    }

    /// RFC 5681 section 3.1: one packet, and what is lost again leaves the threshold. Where a
    /// time-out only probes (RFC 9002), nothing changes.
    #[test]
    fn a_time_out_that_loses_leaves_one_packet() {
        let mut s = script(40, 40 * PACKET);
        s.time_out(1);
        assert_eq!(s.packets(), 40.0);
        for in_a_row in 1..4 {
            s.lose_by_time_out(in_a_row);
            assert_eq!((s.packets(), s.mechanism.summary().threshold_bytes), (1.0, 20 * PACKET));
        }
        s.lose(40, s.now, true);
        assert_eq!(s.packets(), 1.0, "persistent congestion raises nothing");
        s.now += RTT;
        let windows = [(); 5].map(|()| {
            s.round();
            s.packets()
        });
        assert_eq!(windows, [2.0, 4.0, 8.0, 16.0, 20.0]);
    }

    #[test]
    fn a_limited_application_earns_nothing() {
        let mut s = script(10, u64::MAX);
        s.delivery.set_app_limited();
        s.round();
        assert_eq!(s.packets(), 10.0);
    }
}
