//! Prague: answers marks by their share, over packets that say so to the network (L4S, RFC 9331;
//! draft-briscoe-iccrg-prague-congestion-control). Short queues where the network marks early;
//! where it does not, a Reno.

use super::classic::{Adjustment, Classic, Doubling, Reduced, Window};
use super::counted::Additive;
use super::learnt::Learnt;
use super::{Ack, Context, response};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise, Unasked};

/// See the module's page.
pub type Prague = Classic<Doubling, Scalable>;

impl Prague {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Congestion,
        number: 10,
        name: "prague",
        what: "reduction by the share of marks, over packets that ask for L4S",
        mandatory: false,
        // Where a queue of old takes its packets for others, it takes more than its part.
        consent: Consent::OfSender,
        params: &[],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Restraint, Promise::FullPath],
            unasked: Unasked::Never,
            ..Facts::PLAIN
        },
        predict: |_, facts, prediction| {
            let packets = response::reno_packets(response::random_events(facts, prediction));
            response::apply(packets, 0.5, facts, prediction);
        },
    };

    /// Builds it from what the predecessor knew.
    pub fn build(_: &Params, context: &Context) -> Self {
        Classic::new(context)
    }
}

/// Additive increase, and a decrease by half of the smoothed share of marks.
#[derive(Clone, Debug)]
pub struct Scalable {
    increase: Additive,
    /// Smoothed share (0..=1) of marked packets.
    alpha: f64,
    seen_bytes: u64,
    marked_bytes: u64,
    round_end: u64,
    /// Acknowledgements of packets below it belong to the last reduction.
    reduced_until: u64,
}

impl Default for Scalable {
    fn default() -> Self {
        // C-91: the first mark is answered as a loss is.
        let (increase, alpha) = (Additive::default(), 1.0);
        Scalable { increase, alpha, seen_bytes: 0, marked_bytes: 0, round_end: 0, reduced_until: 0 }
    }
}

impl Scalable {
    fn end_round(&mut self, ack: &Ack) {
        if ack.largest < self.round_end || self.seen_bytes == 0 {
            return;
        }
        let share = self.marked_bytes as f64 / self.seen_bytes as f64;
        // Before the first mark there is nothing to smooth.
        if self.reduced_until > 0 {
            self.alpha += (share - self.alpha) * GAIN;
        }
        (self.seen_bytes, self.marked_bytes, self.round_end) = (0, 0, ack.next_packet);
    }
}

impl Adjustment for Scalable {
    const MARKS_ARE_LOSSES: bool = false;
    const IS_SCALABLE: bool = true;

    fn reduce(&mut self, window: &Window, _: u64) -> Reduced {
        // C-92.
        self.increase = Additive::default();
        let half = window.exact / 2.0;
        Reduced { window: half, threshold: half }
    }

    fn on_ack(&mut self, window: &Window, ack: &Ack, _: &Learnt) -> Option<f64> {
        self.end_round(ack);
        self.seen_bytes += ack.bytes;
        self.marked_bytes += ack.ecn_marked.saturating_mul(window.packet_bytes).min(ack.bytes);
        if ack.ecn_marked == 0 || ack.largest < self.reduced_until {
            return None;
        }
        // C-90.
        self.reduced_until = ack.next_packet.max(1);
        Some(window.exact * (1.0 - self.alpha / 2.0))
    }

    fn grow(&mut self, window: &Window, ack: &Ack) -> f64 {
        self.increase.grow(window, ack)
    }

    fn restart(&mut self) {
        *self = Scalable::default();
    }

    fn restore(&mut self, _: Self) {}
}

/// Gain of the smoothed share, per round (DCTCP and the draft: 1/16).
const GAIN: f64 = 1.0 / 16.0;

#[cfg(test)]
mod tests {
    use super::super::testing::{PACKET, RTT, Script, context};
    use super::*;
    use crate::congestion::Congestion;

    fn script(window_packets: u64) -> Script<Prague> {
        Script::new(Prague::build(&Params::default(), &context(window_packets, window_packets * PACKET)))
    }

    #[test]
    fn the_first_mark_halves_and_the_share_settles() {
        let mut s = script(100);
        s.now += RTT;
        s.marked_round(1);
        assert!((49.0..=51.0).contains(&s.packets()), "{}", s.packets());
        for _ in 0..100 {
            s.marked_round((s.packets() / 4.0) as u64);
        }
        let alpha = s.mechanism.adjustment.alpha;
        assert!((0.2..=0.26).contains(&alpha), "a quarter is marked: {alpha}");
    }

    /// At a steady share `p` the decrease of `p/2` of the window per round meets the increase of
    /// one packet: 2/p packets (section 2.4.1 of the draft).
    #[test]
    fn the_window_is_two_over_the_share_of_marks() {
        let mut s = script(40);
        let mut sum = 0.0;
        for round in 0..400 {
            s.marked_round(((s.packets() / 16.0).round() as u64).max(1));
            sum += if round >= 200 { s.packets() } else { 0.0 };
        }
        let mean = sum / 200.0;
        assert!((26.0..38.0).contains(&mean), "{mean}");
    }

    #[test]
    fn a_loss_halves_and_packets_ask_for_l4s() {
        let mut s = script(40);
        s.lose(1, s.now - RTT, false);
        assert_eq!((s.packets(), s.mechanism.is_scalable()), (20.0, true));
    }
}
