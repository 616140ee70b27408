//! Vegas: as many packets in the queue as it is told, seen by round trips that grow (Brakmo,
//! O'Malley and Peterson, "TCP Vegas", SIGCOMM 1994). Loses nothing where it is alone, and yields
//! to every sender that fills the queue.

use super::classic::{Adjustment, Classic, Reduced, SlowStart, Window};
use super::{Ack, Context, response};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Promise, Unasked, Unit};
use core::time::Duration;

/// See the module's page.
pub type Vegas = Classic<EveryOther, Queued>;

const fn packets(name: &'static str, default: u32, what: &'static str) -> Param {
    Param { name, unit: Unit::Packets, default, min: 1, max: 64, bold: Bold::Above, what }
}

impl Vegas {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Congestion,
        number: 7,
        name: "vegas",
        what: "a few packets in the queue, by round trips that grow; yields to all others",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[
            packets("alpha", 2, "packets in the queue below which the window grows"),
            packets("beta", 4, "packets in the queue above which it shrinks"),
        ],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Restraint, Promise::FullPath, Promise::ShortQueue],
            unasked: Unasked::Never,
            ..Facts::PLAIN
        },
        predict: |params, facts, prediction| {
            let packets = response::reno_packets(response::random_events(facts, prediction));
            let queue = f64::from(params.get(1)) * facts.packet_time().as_secs_f64();
            response::apply(packets, 0.0, facts, prediction);
            prediction.delay_s = queue.min(prediction.delay_p99_s);
            prediction.delay_p99_s = prediction.delay_s;
        },
    };

    /// Builds it from what the predecessor knew.
    pub fn build(params: &Params, context: &Context) -> Self {
        let [alpha, beta] = [0, 1].map(|i| f64::from(params.get(i)));
        Classic::with(context, EveryOther::default(), Queued { alpha, beta, round: Round::default() })
    }
}

/// The smallest round trip of each round.
#[derive(Clone, Debug, Default)]
struct Round {
    end: u64,
    rtt_min: Option<Duration>,
}

impl Round {
    /// Takes an acknowledgement into account. At a round's end: how many packets of the window
    /// waited in queues (`Diff` of the paper, times the smallest round trip).
    fn on_ack(&mut self, window: &Window, ack: &Ack) -> Option<f64> {
        let ended = (ack.largest >= self.end).then(|| {
            self.end = ack.next_packet;
            self.rtt_min.take()
        });
        if let Some(rtt) = ack.rtt {
            self.rtt_min = Some(self.rtt_min.map_or(rtt, |least| least.min(rtt)));
        }
        let rtt = ended.flatten()?.as_secs_f64();
        let packets = window.exact / window.packet_bytes as f64;
        (rtt > 0.0).then(|| packets * (rtt - ack.rtt_min.as_secs_f64()).max(0.0) / rtt)
    }
}

/// C-71: slow start that doubles in every other round, and measures in those between.
#[derive(Clone, Debug, Default)]
pub struct EveryOther {
    round: Round,
    is_still: bool,
    /// Packets in queues when slow start ended.
    queued: f64,
}

impl SlowStart for EveryOther {
    fn grow(&mut self, window: &Window, ack: &Ack) -> Option<f64> {
        if let Some(queued) = self.round.on_ack(window, ack) {
            self.is_still = !self.is_still;
            if queued > GAMMA_PACKETS {
                self.queued = queued;
                return None;
            }
        }
        Some(if self.is_still { window.exact } else { window.exact + ack.bytes as f64 })
    }

    fn leave(&mut self, window: &Window) -> f64 {
        // What waits in queues is more than the path holds.
        let beyond = (self.queued - GAMMA_PACKETS).max(0.0) * window.packet_bytes as f64;
        window.exact - beyond
    }
}

/// C-72: a packet more or less per round, so that between `alpha` and `beta` wait in queues.
#[derive(Clone, Debug)]
pub struct Queued {
    alpha: f64,
    beta: f64,
    round: Round,
}

impl Default for Queued {
    fn default() -> Self {
        let [alpha, beta] = [0, 1].map(|i| f64::from(Vegas::INFO.params[i].default));
        Queued { alpha, beta, round: Round::default() }
    }
}

impl Adjustment for Queued {
    fn reduce(&mut self, window: &Window, _: u64) -> Reduced {
        // C-70.
        let half = window.exact / 2.0;
        Reduced { window: half, threshold: half }
    }

    fn grow(&mut self, window: &Window, ack: &Ack) -> f64 {
        let packet = window.packet_bytes as f64;
        match self.round.on_ack(window, ack) {
            Some(queued) if queued < self.alpha => window.exact + packet,
            Some(queued) if queued > self.beta.max(self.alpha) => window.exact - packet,
            _ => window.exact,
        }
    }

    fn restart(&mut self) {
        self.round = Round::default();
    }
}

/// Packets in queues at which slow start ends (`gamma` of the paper).
const GAMMA_PACKETS: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::super::testing::{PACKET, RTT, Script, context};
    use super::*;

    fn script(window_packets: u64, threshold_bytes: u64) -> Script<Vegas> {
        let context = context(window_packets, threshold_bytes);
        Script::new(Vegas::build(&Vegas::INFO.choice().params, &context))
    }

    /// A path that holds `holds` packets: a window above it waits.
    fn rounds(s: &mut Script<Vegas>, holds: f64, count: usize) -> Vec<f64> {
        (0..count)
            .map(|_| {
                s.rtt = RTT.mul_f64((s.packets() / holds).max(1.0));
                s.round();
                s.packets()
            })
            .collect()
    }

    #[test]
    fn the_queue_settles_between_alpha_and_beta() {
        for window in [40, 60] {
            let mut s = script(window, 40 * PACKET);
            let windows = rounds(&mut s, 50.0, 60);
            let settled = windows[windows.len() - 1];
            assert!((52.0..=54.0).contains(&settled), "{window}: {windows:?}");
            assert!(windows.windows(2).all(|w| (w[1] - w[0]).abs() <= 1.0), "{windows:?}");
        }
    }

    #[test]
    fn slow_start_doubles_in_every_other_round_and_ends_at_a_queue() {
        let mut s = script(4, u64::MAX);
        let windows = rounds(&mut s, 30.0, 10);
        let doubled = windows.windows(2).filter(|w| w[1] > 1.5 * w[0]).count();
        assert!(doubled <= 4, "{windows:?}");
        assert_ne!(s.mechanism.summary().threshold_bytes, u64::MAX, "it has ended");
        let last = windows[windows.len() - 1];
        assert!((28.0..=34.0).contains(&last), "{windows:?}");
    }

    use crate::congestion::Congestion;

    #[test]
    fn a_loss_halves() {
        let mut s = script(40, 40 * PACKET);
        s.lose(3, s.now - RTT, false);
        assert_eq!(s.packets(), 20.0);
    }
}
