//! A sender that steers by a window: what all such mechanisms have in common, over two small
//! policies.
//!
//! [`SlowStart`] searches for the path's limit, [`Adjustment`] says how the window grows from there
//! and what a loss takes from it. Recovery, undoing, growth only where the window is in use, and
//! what a successor is told are here. Cut as in neqo (`ClassicCongestionController`).

use super::learnt::Learnt;
use super::window::{MIN_PACKETS, Recovery, Usage, WINDOW_MAX_BYTES, start};
use super::{Ack, Congestion, Context, Delivery, Loss, Summary, Timeout};
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

/// How slow start grows.
pub trait SlowStart: Clone + Debug + Default + Send + Sync {
    /// The window, in bytes, after an acknowledgement; `None` if the path's limit is met.
    fn grow(&mut self, window: &Window, ack: &Ack) -> Option<f64>;
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

/// What a reduction leaves, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduced {
    /// The window.
    pub window: f64,
    /// The window at which slow start ends.
    pub threshold: f64,
}

/// How the window grows in congestion avoidance, and what a loss takes from it.
pub trait Adjustment: Clone + Debug + Default + Send + Sync {
    /// The smallest window, in packets (C-3).
    const PACKETS_MIN: u64 = MIN_PACKETS;
    /// Whether a time-out counts as a loss.
    const ENDS_AT_TIMEOUT: bool = false;

    /// Something was lost or marked, for the first time in a round trip.
    fn reduce(&mut self, window: &Window) -> Reduced;
    /// The window, in bytes, after an acknowledgement.
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
        let (window, threshold) = start(context, A::PACKETS_MIN);
        Classic {
            window: Window {
                packet_bytes: context.packet_bytes.max(1),
                exact: window as f64,
                bytes: window,
                threshold,
            },
            slow_start: S::default(),
            adjustment: A::default(),
            recovery: Recovery::default(),
            usage: Usage::default(),
            learnt: Learnt::new(&context.summary),
            undo: None,
            last_ack_at: context.now,
        }
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.window.bytes < self.window.threshold
    }

    fn set_window(&mut self, bytes: f64) {
        let bytes = bytes.max(self.least() as f64).min(WINDOW_MAX_BYTES as f64);
        (self.window.exact, self.window.bytes) = (bytes, bytes as u64);
    }

    fn least(&self) -> u64 {
        A::PACKETS_MIN * self.window.packet_bytes
    }

    /// Once per recovery period (RFC 9002 section 7.3.2).
    fn on_congestion(&mut self, now: Time, sent_at: Time) {
        if self.recovery.covers(sent_at) {
            return;
        }
        self.recovery.enter(now);
        self.undo = Some(Box::new(Undo {
            window: self.window.exact,
            threshold: self.window.threshold,
            adjustment: self.adjustment.clone(),
        }));
        let reduced = self.adjustment.reduce(&self.window);
        self.set_window(reduced.window);
        self.window.threshold = (reduced.threshold as u64).max(MIN_PACKETS * self.window.packet_bytes);
    }

    /// The window at its smallest, and slow start from there.
    fn collapse(&mut self) {
        self.set_window(0.0);
        self.adjustment.restart();
        self.slow_start = S::default();
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
        if ack.ecn_marked > 0 {
            // C-7, RFC 9002 section 7.1, RFC 9438 section 4.6: a mark counts as a loss.
            self.on_congestion(ack.now, ack.sent_at);
        }
        // C-11, RFC 9002 section 7.3.2: no growth within recovery.
        if self.recovery.covers(ack.sent_at) {
            return;
        }
        if delivery.is_app_limited() || !self.usage.earns_growth(self.window.bytes) {
            // C-4, RFC 9002 section 7.8.
            self.adjustment.on_unused(since_last);
            return;
        }
        if !self.in_slow_start() {
            let grown = self.adjustment.grow(&self.window, ack);
            self.set_window(grown);
            return;
        }
        match self.slow_start.grow(&self.window, ack) {
            Some(grown) => self.set_window(grown),
            None => self.window.threshold = self.window.bytes,
        }
    }

    fn on_loss(&mut self, loss: &Loss, _: &Delivery) {
        self.on_congestion(loss.now, loss.sent_at);
        self.recovery.count_lost(loss.bytes);
        if loss.persistent {
            // C-8, RFC 9002 section 7.6.2, RFC 9438 section 4.8.
            self.collapse();
            self.recovery.leave();
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout, _: &Delivery) {
        // C-42.
        if A::ENDS_AT_TIMEOUT {
            let reduced = self.adjustment.reduce(&self.window);
            self.collapse();
            self.window.threshold = (reduced.threshold as u64).max(MIN_PACKETS * self.window.packet_bytes);
            // The time-out answers for all that was sent before it.
            self.recovery.enter(timeout.now);
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
        self.window.packet_bytes = packet_bytes.max(1);
        self.set_window(self.window.exact);
        self.window.threshold = self.window.threshold.max(MIN_PACKETS * self.window.packet_bytes);
    }

    fn window_bytes(&self) -> u64 {
        self.window.bytes
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
        }
    }

    fn phase(&self) -> &'static str {
        if self.in_slow_start() { "slow start" } else { self.adjustment.phase() }
    }
}
