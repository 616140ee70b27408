//! Reno as Linux 2.1.117 had it (1998): a repeat that is acknowledged ends the recovery, and the
//! next loss of the flight is repeated at once and costs nothing. Neither Reno nor NewReno. Source:
//! Viswanath, "TCP Performance Evaluation Using TIGER Network Testbed", 1999.

use super::classic::{Adjustment, Again, Classic, Doubling, Reduced, Window};
use super::reno::{Additive, INITIAL, half_of_flight, nth_further, predict};
use super::{Ack, Context};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise, Unasked};

/// See the module's page.
pub type RenoLinux21 = Classic<Doubling, EverySecond>;

impl RenoLinux21 {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Congestion,
        number: 6,
        name: "reno-linux-2-1",
        what: "half the window for every second loss of a flight, one packet after a time-out",
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
        predict: |_, facts, prediction| {
            // Of a burst, every second loss.
            let burst = facts.loss_burst.max(1.0);
            predict((burst / 2.0).ceil() / burst, facts, prediction);
        },
    };

    /// Builds it from what the predecessor knew.
    pub fn build(params: &Params, context: &Context) -> Self {
        Classic::new(context).starting_at(u64::from(params.get(0)))
    }
}

/// Additive increase, and half the window for the first, third, fifth loss of a flight.
#[derive(Clone, Debug, Default)]
pub struct EverySecond {
    increase: Additive,
    /// Losses of the flight beyond the first.
    further: u8,
}

impl Adjustment for EverySecond {
    const PACKETS_MIN: u64 = 1;
    const ENDS_AT_TIMEOUT: bool = true;

    fn reduce(&mut self, window: &Window, flight: u64) -> Reduced {
        // C-63.
        self.increase = Additive::default();
        half_of_flight(window, flight)
    }

    fn on_flight(&mut self) {
        self.further = 0;
    }

    fn again(&mut self) -> Again {
        // C-62.
        self.further = self.further.saturating_add(1);
        if self.further.is_multiple_of(2) { nth_further(self.further / 2) } else { Again::Nothing }
    }

    fn grow(&mut self, window: &Window, ack: &Ack) -> f64 {
        self.increase.grow(window, ack)
    }

    fn restart(&mut self) {
        self.increase = Additive::default();
    }

    fn restore(&mut self, _: Self) {}
}

#[cfg(test)]
mod tests {
    use super::super::testing::{PACKET, RTT, Script, context};
    use super::*;
    use crate::congestion::Congestion;

    fn script(window_packets: u64) -> Script<RenoLinux21> {
        let context = context(window_packets, window_packets * PACKET);
        Script::new(RenoLinux21::build(&RenoLinux21::INFO.choice().params, &context))
    }

    /// By hand: the first loss halves, the second ends the recovery, the third halves again.
    #[test]
    fn every_second_loss_of_a_flight_is_free() {
        let mut s = script(32);
        let windows: Vec<f64> = (0..6)
            .map(|_| {
                s.lose(1, s.now - RTT, false);
                s.packets()
            })
            .collect();
        assert_eq!(windows, [16.0, 16.0, 8.0, 8.0, 1.0, 1.0], "the fifth is found by the timer");
        let mut together = script(32);
        together.lose(4, together.now - RTT, false);
        assert_eq!(together.packets(), 8.0);
    }

    #[test]
    fn a_new_flight_begins_anew() {
        let mut s = script(32);
        s.lose(2, s.now - RTT, false);
        s.now += RTT;
        s.lose(1, s.now, false);
        assert_eq!(s.packets(), 8.0);
    }

    #[test]
    fn a_time_out_leaves_one_packet_and_half_of_the_window_as_threshold() {
        let mut s = script(32);
        s.time_out(1);
        assert_eq!((s.packets(), s.mechanism.summary().threshold_bytes), (1.0, 16 * PACKET));
    }
}
