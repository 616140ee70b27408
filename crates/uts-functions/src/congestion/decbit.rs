//! DECbit: the window follows the share of packets that the network marks (Ramakrishnan and Jain,
//! "A Binary Feedback Scheme for Congestion Avoidance", 1990). The mark is that of ECN, set by
//! queues that mark early and often.

use super::classic::{Adjustment, Classic, Doubling, Reduced, Window};
use super::learnt::Learnt;
use super::{Ack, Context, response};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise, Unasked};

/// See the module's page.
pub type Decbit = Classic<Doubling, Share>;

impl Decbit {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Congestion,
        number: 9,
        name: "decbit",
        what: "an eighth less where half of the packets are marked, else a packet more",
        mandatory: false,
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
            // Half of Reno's growth: a packet in two round trips.
            let p = response::random_events(facts, prediction);
            response::apply(response::reno_packets(2.0 * p), 0.5, facts, prediction);
        },
    };

    /// Builds it from what the predecessor knew.
    pub fn build(_: &Params, context: &Context) -> Self {
        Classic::new(context)
    }
}

/// C-81: a decision in every two round trips, by the marks of the second.
#[derive(Clone, Debug, Default)]
pub struct Share {
    /// Bytes still to be acknowledged that were sent before the last decision took effect.
    old_bytes: u64,
    /// Bytes whose marks decide.
    due_bytes: u64,
    seen_bytes: u64,
    marked_bytes: u64,
    has_earned: bool,
}

impl Adjustment for Share {
    const MARKS_ARE_LOSSES: bool = false;

    fn reduce(&mut self, window: &Window, _: u64) -> Reduced {
        // C-80.
        *self = Share::default();
        let half = window.exact / 2.0;
        Reduced { window: half, threshold: half }
    }

    fn on_ack(&mut self, window: &Window, ack: &Ack, _: &Learnt) -> Option<f64> {
        let fresh = ack.bytes.saturating_sub(self.old_bytes);
        self.old_bytes = self.old_bytes.saturating_sub(ack.bytes);
        if fresh == 0 {
            return None;
        }
        if self.seen_bytes == 0 {
            self.due_bytes = window.bytes;
        }
        self.seen_bytes += fresh;
        self.marked_bytes += ack.ecn_marked.saturating_mul(window.packet_bytes).min(fresh);
        if self.seen_bytes < self.due_bytes {
            return None;
        }
        let is_marked = 2 * self.marked_bytes >= self.seen_bytes;
        *self = Share { old_bytes: window.bytes, has_earned: !is_marked, ..Share::default() };
        is_marked.then_some(window.exact * DECREASE)
    }

    fn grow(&mut self, window: &Window, _: &Ack) -> f64 {
        let earned = core::mem::take(&mut self.has_earned);
        window.exact + if earned { window.packet_bytes as f64 } else { 0.0 }
    }

    fn restart(&mut self) {
        *self = Share::default();
    }
}

/// Share of the window that a decrease leaves (section 5 of the paper).
const DECREASE: f64 = 0.875;

#[cfg(test)]
mod tests {
    use super::super::testing::{PACKET, RTT, Script, context};
    use super::*;

    fn script(window_packets: u64) -> Script<Decbit> {
        Script::new(Decbit::build(&Params::default(), &context(window_packets, window_packets * PACKET)))
    }

    fn rounds(s: &mut Script<Decbit>, marked: u64, count: usize) -> Vec<f64> {
        (0..count)
            .map(|_| {
                s.marked_round(marked);
                s.packets()
            })
            .collect()
    }

    #[test]
    fn a_packet_more_in_two_round_trips_below_half_of_marks() {
        let mut s = script(40);
        let windows = rounds(&mut s, 15, 8);
        assert_eq!(windows[7] - windows[1], 3.0, "{windows:?}");
    }

    #[test]
    fn an_eighth_less_from_half_on() {
        let mut s = script(40);
        let windows = rounds(&mut s, 20, 2);
        assert_eq!(windows, [35.0, 35.0]);
        s.lose(1, s.now, false);
        assert_eq!(s.packets(), 17.5);
    }

    #[test]
    fn marks_end_the_search() {
        let mut s = Script::new(Decbit::build(&Params::default(), &context(10, u64::MAX)));
        s.now += RTT;
        s.marked_round(10);
        let threshold = s.mechanism.summary().threshold_bytes;
        assert!(threshold < 20 * PACKET, "{threshold}");
    }

    use crate::congestion::Congestion;
}
