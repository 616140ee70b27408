//! NewReno: slow start, then one packet more per round trip, and half the window after a loss (RFC 9002 section 7, after
//! RFC 6582). Known by everyone, fair to everything, slow on long or lossy paths.

use super::learnt::Learnt;
use super::window::{MIN_PACKETS, Recovery, Usage, WINDOW_MAX_BYTES, start};
use super::{Ack, Congestion, Context, Delivery, Loss, Summary, response};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise, Unasked};
use crate::time::{Rate, Time};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct NewReno {
    packet_bytes: u64,
    window: u64,
    threshold: u64,
    /// Bytes acknowledged towards the next packet of growth in congestion avoidance.
    acked: u64,
    recovery: Recovery,
    usage: Usage,
    learnt: Learnt,
    /// Window and threshold before the last reduction.
    undo: Option<(u64, u64)>,
}

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
            // The window swings between one half and the whole of path and buffer: half a path of queue on average.
            response::apply(packets, 0.5, facts, prediction);
        },
    };

    /// Builds it from what the predecessor knew.
    pub fn build(_: &Params, context: &Context) -> Self {
        let (window, threshold) = start(context);
        NewReno {
            packet_bytes: context.packet_bytes.max(1),
            window,
            threshold,
            acked: 0,
            recovery: Recovery::default(),
            usage: Usage::default(),
            learnt: Learnt::new(&context.summary),
            undo: None,
        }
    }

    fn min_window(&self) -> u64 {
        MIN_PACKETS * self.packet_bytes
    }

    /// C-11, RFC 9002 section 7.3.2: once per recovery period.
    fn on_congestion(&mut self, now: Time, sent_at: Time) {
        if self.recovery.covers(sent_at) {
            return;
        }
        self.recovery.enter(now);
        self.undo = Some((self.window, self.threshold));
        self.threshold = (self.window / 2).max(self.min_window());
        self.window = self.threshold;
        self.acked = 0;
    }
}

impl Congestion for NewReno {
    fn on_sent(&mut self, _: Time, _: u64, _: &Delivery) {}

    fn on_ack(&mut self, ack: &Ack, delivery: &Delivery) {
        self.learnt.on_ack(ack);
        self.usage.on_ack(ack);
        if ack.ecn_marked > 0 {
            // C-7, RFC 9002 section 7.1: a mark counts as a loss.
            self.on_congestion(ack.now, ack.sent_at);
        }
        // C-11, RFC 9002 section 7.3.2: no growth within recovery; C-4, section 7.8: nor when the window is not in use.
        if self.recovery.covers(ack.sent_at)
            || delivery.is_app_limited()
            || !self.usage.earns_growth(self.window)
        {
            return;
        }
        if self.window < self.threshold {
            // C-10, RFC 9002 section 7.3.1.
            self.window += ack.bytes;
        } else {
            // C-10, RFC 9002 section 7.3.3, counting bytes (RFC 3465).
            self.acked += ack.bytes;
            if self.acked >= self.window {
                self.acked -= self.window;
                self.window += self.packet_bytes;
            }
        }
        self.window = self.window.min(WINDOW_MAX_BYTES);
    }

    fn on_loss(&mut self, loss: &Loss, _: &Delivery) {
        self.on_congestion(loss.now, loss.sent_at);
        self.recovery.count_lost(loss.bytes);
        if loss.persistent {
            // C-8, RFC 9002 section 7.6.2.
            self.window = self.min_window();
            self.acked = 0;
            self.recovery.leave();
            self.undo = None;
        }
    }

    fn on_spurious_loss(&mut self, bytes: u64) {
        // C-9.
        if self.recovery.all_spurious(bytes)
            && let Some((window, threshold)) = self.undo.take()
        {
            self.window = self.window.max(window);
            self.threshold = self.threshold.max(threshold);
            self.recovery.leave();
        }
    }

    fn set_packet_bytes(&mut self, packet_bytes: u64) {
        self.packet_bytes = packet_bytes.max(1);
        self.window = self.window.max(self.min_window());
        self.threshold = self.threshold.max(self.min_window());
    }

    fn window_bytes(&self) -> u64 {
        self.window
    }

    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    fn burst_bytes(&self) -> Option<u64> {
        None
    }

    fn summary(&self) -> Summary {
        Summary {
            window_bytes: self.window,
            threshold_bytes: self.threshold,
            bandwidth: self.learnt.bandwidth(),
            rtt_min: self.learnt.rtt_min(),
        }
    }

    fn phase(&self) -> &'static str {
        if self.window < self.threshold { "slow start" } else { "congestion avoidance" }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{PACKET, RTT, Script, context};
    use super::*;

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
        s.acknowledge(1, s.now - RTT, 1);
        assert_eq!(s.packets(), 20.0, "losses and marks of the same flight");
        let later = s.now + RTT;
        s.now = later;
        s.lose(1, later, false);
        assert_eq!(s.packets(), 10.0, "a loss of what was sent since");
    }

    #[test]
    fn a_mark_is_a_loss() {
        let mut s = script(40, 40 * PACKET);
        s.acknowledge(1, s.now - RTT, 1);
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

    #[test]
    fn a_limited_application_earns_nothing() {
        let mut s = script(10, u64::MAX);
        s.delivery.set_app_limited();
        s.round();
        assert_eq!(s.packets(), 10.0);
    }
}
