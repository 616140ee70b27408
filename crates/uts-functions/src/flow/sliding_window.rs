//! A sliding window of bytes, as TCP has it: the receiver grants so many beyond what was consumed,
//! and the sender may wait until enough of them is free or a packet is full (RFC 793 section 3.7,
//! RFC 813, RFC 896).

use super::sending::{LOOKS, one_in_a_round_trip};
use super::{Allowed, FlowControl, Grant, Outstanding};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Mechanism, Param, Params, Unit};
use crate::time::Time;
use core::time::Duration;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct SlidingWindow {
    /// The limit that the sender was told of last.
    told: u64,
    window_bytes: u32,
    threshold_percent: u8,
    update_percent: u8,
    nagle: bool,
    avoids_fragments: bool,
    /// It has set the window, which the engine may have enlarged since.
    has_set: bool,
}

impl SlidingWindow {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Flow,
        number: 4,
        name: "sliding-window",
        what: "the receiver grants a window that does not grow; the sender may wait for enough of it",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[
            Param {
                name: "window",
                unit: Unit::Bytes,
                default: 65_535,
                min: 1,
                max: 67_108_864,
                bold: Bold::Neither,
                what: "positions beyond what was consumed",
            },
            Param {
                name: "threshold",
                unit: Unit::Count,
                default: 0,
                min: 0,
                max: 100,
                bold: Bold::Neither,
                what: "percent of the largest window that must be free before the sender sends (23, 25)",
            },
            Param {
                name: "update",
                unit: Unit::Count,
                default: 25,
                min: 0,
                max: 100,
                bold: Bold::Neither,
                what: "percent of the window that must be consumed for an update that is none of a report's; 0 = half of it, which is the most",
            },
            Param {
                name: "nagle",
                unit: Unit::Count,
                default: 0,
                min: 0,
                max: 3,
                bold: Bold::Neither,
                what: "1 = what fills no packet waits while something is outstanding; 2 = what the window cuts short waits (RFC 1122); 3 = both",
            },
        ],
        needs: &[],
        facts: LOOKS,
        predict: |params, facts, p| {
            let window = (f64::from(params.get(0)) / facts.mtu_bytes.max(1) as f64).max(1.0);
            one_in_a_round_trip(window, facts, p);
            if params.get(3) & 1 == 1 {
                p.delay_s += facts.rtt_smoothed.as_secs_f64() / 2.0;
                p.delay_p99_s += facts.rtt_smoothed.as_secs_f64();
            }
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        SlidingWindow {
            told: 0,
            window_bytes: params.get(0).max(1),
            threshold_percent: params.get(1).min(100) as u8,
            update_percent: params.get(2).min(100) as u8,
            nagle: params.get(3) & 1 == 1,
            avoids_fragments: params.get(3) & 2 == 2,
            has_set: false,
        }
    }
}

/// Percent of the window that have an update of their own at the latest: a sender of full packets
/// only may not be able to use up the rest (RFC 1122 section 4.2.3.3).
const UPDATE_MAX: u64 = 50;

impl FlowControl for SlidingWindow {
    fn window_bytes(&self) -> u64 {
        self.window_bytes.into()
    }

    fn allows(&self, limit: u64, flow: &Outstanding) -> Allowed {
        // flow.md R-19: what was granted before may be more than a window.
        let limit = limit.min(flow.done_to.saturating_add(self.window_bytes()));
        let window_max = flow.window_max.min(self.window_bytes());
        let (usable, waiting) =
            (limit.saturating_sub(flow.sent_to), flow.written_to.saturating_sub(flow.sent_to));
        // flow.md R-21: what all fits need not wait for more room.
        let is_narrow = waiting > usable
            && usable.saturating_mul(100) < window_max.saturating_mul(self.threshold_percent.into());
        // flow.md R-32.
        let is_cut = self.avoids_fragments
            && waiting > usable
            && usable < flow.packet_bytes
            && usable.saturating_mul(2) < window_max;
        // flow.md R-22.
        if is_narrow || is_cut || (self.nagle && flow.is_small()) {
            Allowed::Hold
        } else {
            Allowed::To(limit)
        }
    }

    fn rides(&self, state: &Grant) -> bool {
        // flow.md R-20.
        let percent = if self.update_percent == 0 { UPDATE_MAX } else { self.update_percent.into() };
        let step = (state.window_bytes.saturating_mul(percent.min(UPDATE_MAX)) / 100).max(1);
        state.limit.saturating_sub(self.told) < step
    }

    fn on_told(&mut self, limit: u64) {
        self.told = limit;
    }

    fn on_consumed(&mut self, state: &mut Grant, _: Time, _: Duration) -> Option<u64> {
        // flow.md R-19: a window that was larger shrinks, and what was granted of it stays granted.
        if !core::mem::replace(&mut self.has_set, true) {
            state.window_bytes = self.window_bytes().min(state.window_bytes_max);
            // What was granted so far was said.
            self.told = state.limit;
        }
        let limit = state.consumed.saturating_add(state.window_bytes);
        let is_new = limit > state.limit;
        state.limit = state.limit.max(limit);
        is_new.then_some(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 793: each report has the window. One that moves between reports by the share asked for
    /// has a packet of its own.
    #[test]
    fn a_limit_rides_on_reports_and_goes_alone_by_a_share_of_the_window() {
        for (update, alone_at) in [(25, 250), (50, 500), (100, 500), (0, 500)] {
            let mut window = build(&[("window", 1000), ("update", update)]);
            let mut state = Grant::new(Time::ZERO, window.window_bytes(), 1 << 20);
            let mut first_alone = |told_at: u64| {
                let mut alone = (told_at + 1..=told_at + 1000).filter(|consumed| {
                    state.consumed = *consumed;
                    let limit = window.on_consumed(&mut state, Time::ZERO, Duration::ZERO);
                    assert_eq!(limit, Some(consumed + 1000), "each is new");
                    !window.rides(&state)
                });
                let first = alone.next();
                drop(alone);
                window.on_told(state.limit);
                first
            };
            assert_eq!(first_alone(0), Some(alone_at));
            assert_eq!(first_alone(alone_at), Some(2 * alone_at), "from what was told last");
        }
    }

    fn build(settings: &[(&str, u64)]) -> SlidingWindow {
        SlidingWindow::build(&SlidingWindow::INFO.choice_with(settings).expect("in range").params, ())
    }

    fn flow(done_to: u64, sent_to: u64, written_to: u64) -> Outstanding {
        let (packets, in_group) = (0, 0);
        Outstanding { done_to, sent_to, written_to, packets, in_group, packet_bytes: 1000, window_max: 4096 }
    }

    #[test]
    fn the_sender_waits_for_enough_of_the_window_unless_all_fits() {
        let window = build(&[("window", 4096), ("threshold", 23)]);
        // 23 % of 4096 are 942.
        assert_eq!(window.allows(5941, &flow(2000, 5000, 90_000)), Allowed::Hold);
        assert_eq!(window.allows(5943, &flow(2000, 5000, 90_000)), Allowed::To(5943));
        assert_eq!(window.allows(5100, &flow(2000, 5000, 5100)), Allowed::To(5100));
    }

    /// RFC 1122 section 4.2.3.4: a full packet, half of the largest window, or all that waits.
    #[test]
    fn what_the_window_cuts_short_waits() {
        let allowed = |nagle, limit, waiting: u64| {
            let window = build(&[("window", 4096), ("nagle", nagle)]);
            window.allows(limit, &flow(2000, 5000, 5000 + waiting)) == Allowed::To(limit)
        };
        for (free, waiting, goes) in
            [(999, 50_000, false), (1000, 50_000, true), (10, 10, true), (10, 11, false)]
        {
            assert_eq!(allowed(2, 5000 + free, waiting), goes, "{free} free, {waiting} wait");
            assert!(allowed(0, 5000 + free, waiting));
        }
        let narrow = build(&[("window", 1500), ("nagle", 2)]);
        let half = Outstanding { window_max: 1500, ..flow(2000, 2600, 90_000) };
        assert_eq!(narrow.allows(3400, &half), Allowed::To(3400), "half of the window");
        assert_eq!(narrow.allows(3300, &half), Allowed::Hold);
    }

    #[test]
    fn no_more_than_a_window_is_outstanding_whatever_was_granted_before() {
        let window = build(&[("window", 4096), ("threshold", 25)]);
        let allowed = |sent_to| window.allows(1 << 20, &flow(10_000, sent_to, 90_000));
        assert_eq!(allowed(10_000), Allowed::To(14_096));
        assert_eq!(allowed(14_000), Allowed::Hold, "less than a quarter of the window is free");
    }

    #[test]
    fn small_data_waits_while_something_is_outstanding() {
        let window = build(&[("nagle", 1)]);
        assert_eq!(window.allows(9000, &flow(10, 20, 30)), Allowed::Hold);
        assert_eq!(window.allows(9000, &flow(20, 20, 30)), Allowed::To(9000), "nothing is outstanding");
        assert_eq!(window.allows(9000, &flow(10, 20, 1020)), Allowed::To(9000), "it fills a packet");
        assert_eq!(build(&[]).allows(9000, &flow(10, 20, 30)), Allowed::To(9000));
    }

    #[test]
    fn a_window_that_shrinks_takes_back_nothing_and_opens_again() {
        let mut state = Grant::new(Time::ZERO, 100_000, 1 << 20);
        let mut window = build(&[("window", 10), ("update", 0)]);
        let mut consumed = |window: &mut SlidingWindow, to: u64| {
            state.consumed = to;
            let limit = window.on_consumed(&mut state, Time::ZERO, Duration::ZERO);
            limit.map(|limit| (limit, window.rides(&state)))
        };
        assert_eq!(consumed(&mut window, 0), None);
        assert_eq!(consumed(&mut window, 99_990), None, "less than what was granted");
        assert_eq!(consumed(&mut window, 99_991), Some((100_001, true)));
        assert_eq!(consumed(&mut window, 99_995), Some((100_005, false)), "half of the window");
        let mut window = build(&[("window", 1)]);
        let mut state = Grant::new(Time::ZERO, window.window_bytes(), 1 << 20);
        assert_eq!(state.limit, 1);
        state.consumed = 1;
        assert_eq!(window.on_consumed(&mut state, Time::ZERO, Duration::ZERO), Some(2));
    }
}
