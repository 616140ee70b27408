//! Credit: the receiver says up to which position the sender may send, a window ahead of what was
//! consumed. The window grows while it is the brake (automatic tuning; RFC 9000 section 4.2).

use super::{FlowControl, Grant};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unit};
use crate::time::{Rate, Time};
use core::time::Duration;

/// A window that is consumed within so many round trips was the brake (flow.md R-5). Beside the
/// round trip of the grant, and that of what is under way, what is lost stops consumption for one
/// or two more: bounded by two, the window would stay where loss has stopped it.
const BRAKE_ROUNDS: u32 = 4;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Credit {
    window_bytes: u64,
    tuning: Tuning,
}

/// Enlarges a window while it is the brake: by what the application takes, and by nothing else.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    /// Since when, and from which position, consumption is being measured, until it is a window.
    measured_from: Option<(Time, u64)>,
    /// The same for the round trip under way.
    round_from: Option<(Time, u64)>,
}

impl Credit {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Flow,
        number: 1,
        name: "credit",
        what: "the receiver grants a window ahead of what was consumed, and enlarges it while it is the brake",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "window",
            unit: Unit::Kibibytes,
            default: 1024,
            min: 1,
            max: 65_536,
            bold: Bold::Neither,
            what: "the window to begin with",
        }],
        needs: &[],
        facts: Facts { uniform: true, positions: true, grants: true, ..Facts::PLAIN },
        // A window that is smaller than what the path holds grows until it is not: it takes nothing
        // for long.
        predict: |_, _, p| p.cpu_ns += 5.0,
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Credit { window_bytes: u64::from(params.get(0)) * 1024, tuning: Tuning::default() }
    }

    /// With its default parameters.
    pub(super) fn by_default() -> Self {
        Credit::build(&Self::INFO.params_within(&[]), ())
    }
}

impl Tuning {
    /// The application may have taken something: enlarges the window if it is the brake, up to its
    /// maximum (flow.md R-5).
    pub fn tune(&mut self, state: &mut Grant, now: Time, rtt: Duration) {
        self.double(state, now, rtt);
        self.follow(state, now, rtt);
    }

    /// Keeps the window ahead of a sender that doubles what it sends in each round trip: what is
    /// granted now is sent in the next one. A whole window takes a long path several, in which the
    /// sender would wait.
    fn follow(&mut self, state: &mut Grant, now: Time, rtt: Duration) {
        let (since, position) = *self.round_from.get_or_insert((now, state.taken()));
        if rtt.is_zero() || now.since(since) < rtt {
            return;
        }
        self.round_from = Some((now, state.taken()));
        let rate = Rate::from_delivery(state.taken().saturating_sub(position), now.since(since));
        // A little more than a window that counts as the brake: else it would be doubled besides.
        let wanted = rate.bytes_in(rtt.saturating_mul(BRAKE_ROUNDS) + rtt / 2);
        if wanted > state.window_bytes {
            state.window_bytes = wanted.min(state.window_bytes_max).max(state.window_bytes);
            state.grown_at = now;
        }
    }

    /// Doubles the window if all of it was consumed within [`BRAKE_ROUNDS`].
    fn double(&mut self, state: &mut Grant, now: Time, rtt: Duration) {
        let since_granted = state.consumed.saturating_sub(state.limit.saturating_sub(state.window_bytes));
        let start = (state.grown_at, state.taken().saturating_sub(since_granted));
        let (since, position) = *self.measured_from.get_or_insert(start);
        if state.taken().saturating_sub(position) < state.window_bytes {
            return;
        }
        self.measured_from = Some((now, state.taken()));
        // flow.md R-5: a round trip that is not known yet enlarges nothing.
        if now.since(since) <= rtt.saturating_mul(BRAKE_ROUNDS) && state.window_bytes < state.window_bytes_max
        {
            state.window_bytes = state.window_bytes.saturating_mul(2).min(state.window_bytes_max);
            state.grown_at = now;
        }
    }
}

impl FlowControl for Credit {
    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    fn on_consumed(&mut self, state: &mut Grant, now: Time, rtt: Duration) -> Option<u64> {
        // flow.md R-6: a successor keeps a window that was learnt, and raises one that is smaller
        // than its own.
        state.window_bytes = state.window_bytes.max(self.window_bytes).min(state.window_bytes_max);
        self.tuning.tune(state, now, rtt);
        // flow.md.
        let limit = state.consumed.saturating_add(state.window_bytes);
        if limit <= state.limit || limit - state.limit < state.window_bytes / 4 {
            return None;
        }
        state.limit = limit;
        Some(limit)
    }
}
