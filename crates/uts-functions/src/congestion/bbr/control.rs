//! The control parameters of BBR: pacing rate, quantum and window, as the model and its bounds say
//! ("Control Parameters" of the draft).

use super::states::State;
use super::{MIN_PIPE_PACKETS, Sender};
use crate::congestion::window::WINDOW_MAX_BYTES;
use crate::congestion::{Ack, Delivery};
use crate::time::Rate;
use core::time::Duration;

impl Sender {
    pub(super) fn min_pipe(&self) -> u64 {
        MIN_PIPE_PACKETS * self.packet_bytes
    }

    pub(super) fn pacing_floor(&self) -> Rate {
        Rate::from_bytes_per_sec(self.packet_bytes)
    }

    /// `BBR.max_bw`.
    pub(super) fn max_bandwidth(&self) -> Rate {
        self.bandwidth.get()
    }

    /// `BoundBWForModel`: the bandwidth to send at.
    pub(super) fn bound_bandwidth(&self) -> Rate {
        self.max_bandwidth().min(self.bounds.bw_short)
    }

    /// `BDPMultiple`, in bytes.
    pub(super) fn bdp_multiple(&self, bandwidth: Rate, gain: f64) -> u64 {
        match self.min_rtt.value {
            Some(rtt) if bandwidth > Rate::default() => (bandwidth.bytes_in(rtt) as f64 * gain) as u64,
            _ => self.initial_window,
        }
    }

    /// `QuantizationBudget`.
    pub(super) fn with_budget(&self, inflight: u64) -> u64 {
        let cap = inflight.max(self.quantum()).max(self.min_pipe());
        if self.state == State::ProbeUp { cap.saturating_add(2 * self.packet_bytes) } else { cap }
    }

    /// `Inflight`.
    pub(super) fn inflight(&self, bandwidth: Rate, gain: f64) -> u64 {
        self.with_budget(self.bdp_multiple(bandwidth, gain))
    }

    /// `TargetInflight`.
    pub(super) fn target_inflight(&self) -> u64 {
        self.bdp_multiple(self.bound_bandwidth(), 1.0).min(self.window)
    }

    /// `InflightWithHeadroom`.
    pub(super) fn inflight_with_headroom(&self) -> u64 {
        let long = self.bounds.inflight_long;
        if long == u64::MAX {
            return long;
        }
        let headroom = self.packet_bytes.max((long as f64 * HEADROOM) as u64);
        long.saturating_sub(headroom).max(self.min_pipe())
    }

    /// `ProbeRTTCwnd`.
    pub(super) fn probe_rtt_window(&self) -> u64 {
        self.bdp_multiple(self.bound_bandwidth(), State::ProbeRtt.window_gain()).max(self.min_pipe())
    }

    /// `SetPacingRateWithGain`.
    pub(super) fn set_pacing_rate(&mut self, gain: f64) {
        let rate = self.bound_bandwidth().mul_f64(gain * (1.0 - PACING_MARGIN)).max(self.pacing_floor());
        if self.pipe.reached || rate > self.pacing {
            self.pacing = rate;
        }
    }

    /// `SetSendQuantum`, in bytes.
    pub(super) fn quantum(&self) -> u64 {
        self.pacing.bytes_in(Duration::from_millis(1)).min(QUANTUM_MAX_BYTES).max(2 * self.packet_bytes)
    }

    /// `SetCwnd`. A window that the application does not fill earns no growth (C-4).
    pub(super) fn set_window(&mut self, ack: &Ack, delivery: &Delivery) {
        let bdp = self.bdp_multiple(self.bound_bandwidth(), self.state.window_gain());
        let max_inflight = self.with_budget(bdp.saturating_add(self.aggregation.extra()));
        let growth = if delivery.is_app_limited() { 0 } else { ack.bytes };
        if self.pipe.reached {
            self.window = (self.window + growth).min(max_inflight);
        } else if self.window < max_inflight || delivery.delivered < self.initial_window {
            self.window += growth;
        }
        self.window = self.window.clamp(self.min_pipe(), WINDOW_MAX_BYTES);
        self.bound_window();
    }

    /// `BoundCwndForProbeRTT` and `BoundCwndForModel`.
    pub(super) fn bound_window(&mut self) {
        if self.state == State::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
        let long = match self.state {
            State::ProbeCruise | State::ProbeRtt => self.inflight_with_headroom(),
            State::ProbeDown | State::ProbeRefill | State::ProbeUp => self.bounds.inflight_long,
            State::Startup | State::Drain => u64::MAX,
        };
        self.window = self.window.min(long.min(self.bounds.inflight_short).max(self.min_pipe()));
    }

    /// `SaveCwnd`.
    pub(super) fn save_window(&mut self) {
        let kept = if self.state == State::ProbeRtt { self.prior_window } else { 0 };
        self.prior_window = kept.max(self.window);
    }

    /// `RestoreCwnd`.
    pub(super) fn restore_window(&mut self) {
        self.window = self.window.max(self.prior_window);
    }

    /// C-32.
    pub(super) fn first_rtt(&mut self, rtt: Duration) {
        if !self.has_rtt && !rtt.is_zero() {
            self.has_rtt = true;
            let nominal = Rate::from_delivery(self.initial_window, rtt);
            self.pacing = nominal.mul_f64(State::Startup.pacing_gain()).max(self.pacing_floor());
        }
    }
}

/// `BBR.Headroom`.
const HEADROOM: f64 = 0.15;

/// `BBR.PacingMarginPercent`.
const PACING_MARGIN: f64 = 0.01;

/// "Send Quantum".
const QUANTUM_MAX_BYTES: u64 = 64 * 1024;
