//! A sender that steers by a window: what all such mechanisms have in common, over two small
//! policies.
//!
//! [`SlowStart`] searches for the path's limit, [`Adjustment`] says how the window grows from there
//! and what a loss takes from it. Recovery, undoing, growth only where the window is in use, and
//! what a successor is told are here. Cut as in neqo (`ClassicCongestionController`).

use super::learnt::Learnt;
use super::window::{MIN_PACKETS, Recovery, Usage, WINDOW_MAX_BYTES, start};
use super::{Ack, Cause, Congestion, Context, Delivery, Loss, Summary, Timeout};
use crate::mechanism::Described;
use crate::time::{Rate, Time};
use core::fmt::Debug;
use core::time::Duration;

/// The window and what bounds it.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Bytes in a full packet.
    pub packet_bytes: u64,
    /// In bytes; fractions of a byte are kept between acknowledgements.
    pub exact: f64,
    /// The same in whole bytes, which is asked for much more often than it changes.
    pub bytes: u64,
    /// Below this many bytes slow start searches for the path's limit.
    pub threshold: u64,
}

/// Growth of the window in slow start.
pub trait SlowStart: Clone + Debug + Default + Send + Sync {
    /// The window, in bytes, after an acknowledgement; `None` if the path's limit is met.
    fn grow(&mut self, window: &Window, ack: &Ack) -> Option<f64>;
    /// The window, in bytes, that congestion avoidance begins with once the path's limit is met.
    fn leave(&mut self, window: &Window) -> f64 {
        window.exact
    }
    /// Window and threshold after a loss, where slow start knows better than congestion avoidance
    /// does.
    fn reduce(&mut self, _: &Window) -> Option<Reduced> {
        None
    }
    /// Nothing that was learnt of the path holds.
    fn restart(&mut self) {
        *self = Self::default();
    }
    /// Where slow start is, for people.
    fn phase(&self) -> &'static str {
        "slow start"
    }
}

/// Slow start of old: each acknowledged byte earns another.
#[derive(Clone, Debug, Default)]
pub struct Doubling;

impl SlowStart for Doubling {
    fn grow(&mut self, window: &Window, ack: &Ack) -> Option<f64> {
        // C-10, RFC 9002 section 7.3.1.
        Some(window.exact + ack.bytes as f64)
    }
}

/// Window and threshold that a reduction leaves, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduced {
    /// The window.
    pub window: f64,
    /// The window at which slow start ends.
    pub threshold: f64,
}

/// Growth of the window in congestion avoidance, and its reduction by a loss.
pub trait Adjustment: Clone + Debug + Default + Send + Sync {
    /// The smallest window that a reduction leaves, in packets (C-3).
    const PACKETS_MIN: u64 = MIN_PACKETS;
    /// True if a time-out counts as a loss, also where what has timed out does not (C-42).
    const ENDS_AT_TIMEOUT: bool = false;

    /// True if each fast retransmit is a reduction, also of a packet that left before the last one:
    /// a recovery ends when the repeat arrives (C-60).
    const EACH_FAST_RETRANSMIT: bool = false;

    /// True if a recovery lasts until all has arrived that partial acknowledgements have shown to
    /// be lost (C-64).
    const LASTS_OVER_PARTIALS: bool = true;

    /// True if slow start goes on in a window that is as large as the threshold.
    const SLOW_START_AT_THRESHOLD: bool = false;

    /// True if a mark by the network counts as a loss (C-7). Else [`Adjustment::on_ack`] answers
    /// it.
    const MARKS_ARE_LOSSES: bool = true;

    /// True if marks are answered by their share ([`Congestion::is_scalable`]).
    const IS_SCALABLE: bool = false;

    /// Something was lost or marked, for the first time in a round trip. `flight` bytes were in
    /// flight just after it was sent, as far as that is known, else zero.
    fn reduce(&mut self, window: &Window, flight: u64) -> Reduced;
    /// A recovery has ended with so many bytes in flight: the window in bytes, if it is not to be
    /// what the reduction has left.
    fn on_recovered(&self, _: &Window, _in_flight: u64) -> Option<f64> {
        None
    }
    /// Something was acknowledged, with or without marks, also in slow start, in recovery, and
    /// where the window is not in use; `learnt` counts it already. Returns the window in bytes if
    /// it is to be another.
    fn on_ack(&mut self, _: &Window, _: &Ack, _learnt: &Learnt) -> Option<f64> {
        None
    }
    /// The window, in bytes, after an acknowledgement in congestion avoidance that earns growth.
    fn grow(&mut self, window: &Window, ack: &Ack) -> f64;
    /// The window was not in use for this long (C-4).
    fn on_unused(&mut self, _: Duration) {}
    /// Nothing that was learnt of the path holds.
    fn restart(&mut self);
    /// The last reduction is undone, before which this was `before`.
    fn restore(&mut self, before: Self) {
        *self = before;
    }
    /// Where congestion avoidance is, for people.
    fn phase(&self) -> &'static str {
        "congestion avoidance"
    }
}

/// State before the last reduction.
#[derive(Clone, Debug)]
struct Undo<A> {
    window: f64,
    threshold: u64,
    adjustment: A,
}

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Classic<S, A> {
    pub(super) window: Window,
    slow_start: S,
    pub(super) adjustment: A,
    recovery: Recovery,
    usage: Usage,
    learnt: Learnt,
    /// Boxed, since a connection that loses nothing has none.
    undo: Option<Box<Undo<A>>>,
    last_ack_at: Time,
}

impl<S: SlowStart, A: Adjustment> Classic<S, A> {
    /// From what the predecessor knew.
    pub(super) fn new(context: &Context) -> Self {
        Self::with(context, S::default(), A::default())
    }

    /// The same, with the two policies as their parameters make them.
    pub(super) fn with(context: &Context, slow_start: S, adjustment: A) -> Self {
        let (window, threshold) = start(context, A::PACKETS_MIN);
        Classic {
            window: Window {
                packet_bytes: context.packet_bytes.max(1),
                exact: window as f64,
                bytes: window,
                threshold,
            },
            slow_start,
            adjustment,
            recovery: Recovery::of(context.summary.answered_below),
            usage: Usage::default(),
            learnt: Learnt::new(&context.summary),
            undo: None,
            last_ack_at: context.now,
        }
    }

    /// A connection begins with a window of so many packets (C-51): where nothing has been learnt,
    /// the window is as it was at first, or smaller.
    pub(super) fn starting_at(mut self, packets: u64) -> Self {
        let first = Summary::initial(self.window.packet_bytes).window_bytes;
        if self.window.threshold == u64::MAX && self.window.bytes <= first {
            self.set_window((packets * self.window.packet_bytes) as f64);
        }
        self
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.window.bytes < self.window.threshold
            || (A::SLOW_START_AT_THRESHOLD && self.window.bytes == self.window.threshold)
    }

    /// A window that was larger does not become smaller than the smallest.
    fn set_window(&mut self, bytes: f64) {
        let least = self.window.bytes.clamp(self.window.packet_bytes, self.least());
        let bytes = bytes.max(least as f64).min(WINDOW_MAX_BYTES as f64);
        (self.window.exact, self.window.bytes) = (bytes, bytes as u64);
    }

    fn least(&self) -> u64 {
        A::PACKETS_MIN * self.window.packet_bytes
    }

    /// The packet of this number was lost, or marked: once per recovery period (RFC 9002 section
    /// 7.3.2), unless this begins another all the same.
    fn on_congestion(&mut self, (number, next_packet): (u64, u64), flight: u64, begins: bool) {
        let is_covered = self.recovery.covers(number);
        if is_covered && !begins {
            return;
        }
        if is_covered && self.undo.is_some() {
            self.recovery.renew(next_packet);
        } else {
            self.recovery.enter(next_packet);
            self.undo = Some(Box::new(Undo {
                window: self.window.exact,
                threshold: self.window.threshold,
                adjustment: self.adjustment.clone(),
            }));
        }
        let adjusted = self.adjustment.reduce(&self.window, flight);
        let reduced = self.slow_start.reduce(&self.window).unwrap_or(adjusted);
        self.apply(reduced);
    }

    /// A window of one packet, and slow start up to what a reduction leaves (C-43).
    fn time_out(&mut self, timeout: &Timeout, flight: u64) {
        // RFC 5681 section 3.1: what is lost again says nothing new of the path. TCPs before it
        // took half of a window of one packet.
        let is_known = timeout.in_a_row > 1 && !A::ENDS_AT_TIMEOUT;
        let reduced = self.adjustment.reduce(&self.window, flight);
        self.collapse();
        let packet = self.window.packet_bytes;
        (self.window.exact, self.window.bytes) = (packet as f64, packet);
        if !is_known || self.window.threshold == u64::MAX {
            self.window.threshold = (reduced.threshold as u64).max(MIN_PACKETS * packet);
        }
    }

    fn apply(&mut self, reduced: Reduced) {
        self.set_window(reduced.window);
        self.window.threshold = (reduced.threshold as u64).max(MIN_PACKETS * self.window.packet_bytes);
    }

    /// The window at its smallest, and slow start from there.
    fn collapse(&mut self) {
        self.set_window(0.0);
        self.adjustment.restart();
        self.slow_start.restart();
        self.undo = None;
    }
}

impl<S: SlowStart, A: Adjustment> Congestion for Classic<S, A>
where
    Self: Described,
{
    fn on_sent(&mut self, _: Time, _: u64, _: &Delivery) {}

    fn on_ack(&mut self, ack: &Ack, delivery: &Delivery) {
        self.learnt.on_ack(ack);
        self.usage.on_ack(ack);
        let since_last = ack.now.since(self.last_ack_at);
        self.last_ack_at = ack.now;
        if ack.ecn_marked > 0 && A::MARKS_ARE_LOSSES {
            // C-7, RFC 9002 section 7.1, RFC 9438 section 4.6: a mark counts as a loss.
            self.on_congestion((ack.largest, ack.next_packet), ack.prior_in_flight, false);
        }
        if let Some(window) = self.adjustment.on_ack(&self.window, ack, &self.learnt) {
            self.apply(Reduced { window, threshold: window });
        }
        // C-11, RFC 9002 section 7.3.2: no growth within recovery.
        if self.recovery.lasts(ack.largest) {
            return;
        }
        if self.recovery.end()
            && let Some(window) = self.adjustment.on_recovered(&self.window, delivery.in_flight)
        {
            self.set_window(window);
        }
        if delivery.is_app_limited() || !self.usage.earns_growth(self.window.bytes) {
            // C-4, RFC 9002 section 7.8.
            self.adjustment.on_unused(since_last);
            return;
        }
        if !self.in_slow_start() {
            let grown = self.adjustment.grow(&self.window, ack);
            self.set_window(grown);
            // A window that shrinks by itself does not search for the limit again.
            let least = MIN_PACKETS * self.window.packet_bytes;
            self.window.threshold = self.window.threshold.min(self.window.bytes).max(least);
            return;
        }
        match self.slow_start.grow(&self.window, ack) {
            Some(grown) => self.set_window(grown),
            None => {
                let left = self.slow_start.leave(&self.window);
                self.set_window(left);
                self.window.threshold = self.window.bytes.max(MIN_PACKETS * self.window.packet_bytes);
            }
        }
    }

    fn on_loss(&mut self, loss: &Loss, _: &Delivery) {
        let begins = A::EACH_FAST_RETRANSMIT && loss.cause == Cause::Duplicates;
        self.on_congestion((loss.largest, loss.next_packet), loss.snapshot.in_flight, begins);
        self.recovery.count_lost(loss.bytes);
        if loss.cause == Cause::Partial && A::LASTS_OVER_PARTIALS {
            self.recovery.extend(loss.next_packet);
        }
        if loss.persistent {
            // C-8, RFC 9002 section 7.6.2, RFC 9438 section 4.8.
            self.collapse();
            self.recovery.leave();
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout, delivery: &Delivery) {
        // C-42, C-43.
        if A::ENDS_AT_TIMEOUT || timeout.is_loss {
            self.time_out(timeout, delivery.in_flight);
            // The time-out answers for all that was sent before it.
            self.recovery.enter(timeout.next_packet);
        }
    }

    fn on_spurious_loss(&mut self, bytes: u64) {
        // C-9, RFC 9438 section 4.9.2.
        if self.recovery.all_spurious(bytes)
            && let Some(undo) = self.undo.take()
        {
            self.set_window(self.window.exact.max(undo.window));
            self.window.threshold = self.window.threshold.max(undo.threshold);
            self.adjustment.restore(undo.adjustment);
            self.recovery.leave();
        }
    }

    fn set_packet_bytes(&mut self, packet_bytes: u64) {
        // A window of a time-out stays one.
        let is_least = self.window.bytes >= self.least();
        self.window.packet_bytes = packet_bytes.max(1);
        let least = if is_least { self.least() } else { self.window.packet_bytes };
        self.window.bytes = self.window.bytes.max(least);
        self.set_window(self.window.exact);
        self.window.threshold = self.window.threshold.max(MIN_PACKETS * self.window.packet_bytes);
    }

    fn window_bytes(&self) -> u64 {
        self.window.bytes
    }

    fn is_scalable(&self) -> bool {
        A::IS_SCALABLE
    }

    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    fn burst_bytes(&self) -> Option<u64> {
        None
    }

    fn summary(&self) -> Summary {
        Summary {
            window_bytes: self.window.bytes,
            threshold_bytes: self.window.threshold,
            bandwidth: self.learnt.bandwidth(),
            rtt_min: self.learnt.rtt_min(),
            answered_below: self.recovery.below(),
        }
    }

    fn phase(&self) -> &'static str {
        // Of a window as large as the threshold slow start has little left.
        if self.window.bytes < self.window.threshold {
            self.slow_start.phase()
        } else {
            self.adjustment.phase()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::new_reno::NewReno;
    use super::super::testing::{RTT, Script, context};
    use super::*;
    use crate::mechanism::Mechanism;

    /// Keeps its window, and counts what it hears.
    #[derive(Clone, Debug, Default)]
    struct Counting {
        acks: u32,
        rtt_min: Option<Duration>,
    }

    impl Adjustment for Counting {
        fn reduce(&mut self, window: &Window, _: u64) -> Reduced {
            Reduced { window: window.exact, threshold: window.exact }
        }

        fn on_ack(&mut self, _: &Window, _: &Ack, learnt: &Learnt) -> Option<f64> {
            (self.acks, self.rtt_min) = (self.acks + 1, learnt.rtt_min());
            None
        }

        fn grow(&mut self, window: &Window, _: &Ack) -> f64 {
            window.exact
        }

        fn restart(&mut self) {}
    }

    impl Described for Classic<Doubling, Counting> {
        fn info(&self) -> &'static Mechanism {
            &NewReno::INFO
        }
    }

    #[test]
    fn an_adjustment_hears_of_each_acknowledgement_and_of_what_was_learnt() {
        let mut s = Script::new(Classic::<Doubling, Counting>::new(&context(10, u64::MAX)));
        assert_eq!(s.mechanism.adjustment.rtt_min, None);
        assert!(s.mechanism.in_slow_start());
        s.acknowledge(s.now - RTT, 0);
        assert_eq!((s.mechanism.adjustment.acks, s.mechanism.adjustment.rtt_min), (1, Some(RTT)));
        s.lose(1, s.now - RTT, false);
        s.acknowledge(s.now - RTT, 0);
        assert_eq!(s.mechanism.adjustment.acks, 2, "in recovery");
        s.now += RTT * 3;
        s.delivery.set_app_limited();
        s.acknowledge(s.now - RTT, 0);
        assert_eq!(s.mechanism.adjustment.acks, 3, "with a window that is not in use");
    }
}
