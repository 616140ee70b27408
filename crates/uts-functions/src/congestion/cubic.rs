//! CUBIC: the window as a cubic function of the time since the last reduction (RFC 9438), left out
//! of slow start by HyStart++ (RFC 9406). What most of the Internet runs; needs long times without
//! loss on fast paths.

use super::classic::{Adjustment, Classic, Reduced, Window};
use super::hystart::HyStart;
use super::{Ack, Context, response};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise, Unasked};
use crate::time::Time;
use core::time::Duration;

/// See the module's page.
pub type Cubic = Classic<HyStart, Cubed>;

impl Cubic {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Congestion,
        number: 2,
        name: "cubic",
        what: "window as a cubic function of time, HyStart++ slow start",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Restraint, Promise::FullPath, Promise::FullShallowPath],
            unasked: Unasked::Candidate(0),
            ..Facts::PLAIN
        },
        predict: |_, facts, prediction| {
            let p = response::random_events(facts, prediction);
            let rtt_s = response::round_trip(facts).as_secs_f64();
            // RFC 9438 section 5.1, figures 5 and 6: whichever of the two regions gives more.
            let cubic = libm::pow(C * (3.0 + BETA) / (4.0 * (1.0 - BETA)), 0.25) * libm::pow(rtt_s / p, 0.75);
            // The window swings between 0.7 and the whole of path and buffer.
            response::apply(cubic.max(response::reno_packets(p)), 0.75, facts, prediction);
        },
    };

    /// Builds it from what the predecessor knew.
    pub fn build(_: &Params, context: &Context) -> Self {
        Classic::new(context)
    }
}

/// The window as a cubic function of time.
#[derive(Clone, Debug, Default)]
pub struct Cubed {
    /// `W_max` (bytes): the window before the last reduction, less after fast convergence; 0 while
    /// unknown.
    window_max: f64,
    /// `cwnd_prior` (bytes): the window before the last reduction.
    window_prior: f64,
    curve: Option<Curve>,
}

/// One congestion avoidance stage.
#[derive(Clone, Copy, Debug)]
struct Curve {
    /// When it began; moved on by the time in which the application limited it.
    start: Time,
    /// Plateau of the curve, in bytes.
    plateau: f64,
    /// Seconds from the start to the plateau.
    k: f64,
    /// `W_est` (bytes): the window that Reno would have.
    reno: f64,
}

impl Adjustment for Cubed {
    /// C-21, RFC 9438 sections 4.6 and 4.7.
    fn reduce(&mut self, window: &Window, _: u64) -> Reduced {
        let before = window.exact;
        self.window_prior = before;
        // Section 4.7, fast convergence: a flow that did not regain its plateau makes room for
        // others.
        self.window_max = if before < self.window_max { before * (1.0 + BETA) / 2.0 } else { before };
        self.curve = None;
        Reduced { window: before * BETA, threshold: before * BETA }
    }

    fn grow(&mut self, window: &Window, ack: &Ack) -> f64 {
        let packet = window.packet_bytes as f64;
        let (window, window_max, prior) = (window.exact, self.window_max, self.window_prior);
        let curve = self.curve.get_or_insert_with(|| Curve::new(ack.now, window, window_max, packet));
        let elapsed = ack.now.since(curve.start);
        // Section 4.3: once it has the window of before, the estimate grows as Reno does.
        let alpha = if curve.reno >= prior { 1.0 } else { 3.0 * (1.0 - BETA) / (1.0 + BETA) };
        let acked = ack.bytes as f64;
        curve.reno += alpha * packet * acked / window;
        if curve.at(elapsed, packet) < curve.reno {
            return window.max(curve.reno);
        }
        // Sections 4.4 and 4.5.
        let target = curve.at(elapsed.saturating_add(ack.rtt_smoothed), packet).clamp(window, 1.5 * window);
        window + (target - window) * (acked / window).min(1.0)
    }

    fn on_unused(&mut self, time: Duration) {
        // C-22, RFC 9438 section 5.8: time in which the window was not in use does not count.
        if let Some(curve) = &mut self.curve {
            curve.start += time;
        }
    }

    fn restart(&mut self) {
        // C-24, RFC 9438 section 4.8: a curve that begins at its plateau.
        self.window_max = 0.0;
        self.curve = None;
    }

    fn phase(&self) -> &'static str {
        if self.curve.is_none() { "recovery" } else { "congestion avoidance" }
    }
}

impl Curve {
    /// RFC 9438 section 4.2, figures 1 and 2.
    fn new(now: Time, window: f64, window_max: f64, packet: f64) -> Self {
        let plateau = window_max.max(window);
        let k = libm::cbrt((plateau - window) / packet / C);
        Curve { start: now, plateau, k, reno: window }
    }

    /// `W_cubic` in bytes, `elapsed` after the start.
    fn at(&self, elapsed: Duration, packet: f64) -> f64 {
        let t = elapsed.as_secs_f64() - self.k;
        self.plateau + C * t * t * t * packet
    }
}

/// C-20, RFC 9438 section 4.1: `C` in packets per second cubed, and the factor of a reduction.
const C: f64 = 0.4;
const BETA: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::super::testing::{PACKET, RTT, Script, context};
    use super::*;
    use crate::congestion::{Congestion, Delivery};

    fn script(window_packets: u64, threshold_bytes: u64) -> Script<Cubic> {
        Script::new(Cubic::build(&Params::default(), &context(window_packets, threshold_bytes)))
    }

    /// Rounds until the window reaches `packets`, in seconds.
    fn seconds_to(s: &mut Script<Cubic>, packets: f64) -> f64 {
        let start = s.now;
        while s.packets() < packets {
            s.round();
            assert!(s.now.since(start) < Duration::from_secs(100), "stuck at {}", s.packets());
        }
        s.now.since(start).as_secs_f64()
    }

    #[test]
    fn the_plateau_is_regained_after_k_seconds() {
        // 1000 packets: K = cbrt(300 / 0.4) = 9.09 s, long enough for the cubic region.
        let mut s = script(1000, 1000 * PACKET);
        s.lose(1, s.now - RTT, false);
        assert_eq!(s.packets(), 700.0);
        let seconds = seconds_to(&mut s, 995.0);
        let early = 9.09 - (5.0f64 / 0.4).cbrt();
        assert!((seconds - early).abs() < 0.3, "{seconds} against {early}");
    }

    #[test]
    fn on_short_paths_it_is_no_slower_than_reno() {
        // 20 packets at 50 ms: Reno regains 6 packets at 0.53 per round trip in 11 round trips, the
        // curve in 2.5 s.
        let mut s = script(20, 20 * PACKET);
        s.lose(1, s.now - RTT, false);
        assert_eq!(s.packets(), 14.0);
        let seconds = seconds_to(&mut s, 20.0);
        assert!((0.5..0.8).contains(&seconds), "{seconds}");
    }

    #[test]
    fn fast_convergence_lowers_the_plateau() {
        let mut s = script(100, 100 * PACKET);
        s.lose(1, s.now - RTT, false);
        s.now += RTT;
        s.lose(1, s.now, false);
        assert!((s.packets() - 49.0).abs() < 0.01);
        assert!((s.mechanism.adjustment.window_max / PACKET as f64 - 59.5).abs() < 0.01);
    }

    #[test]
    fn time_without_data_does_not_raise_the_window() {
        let mut s = script(100, 100 * PACKET);
        s.lose(1, s.now - RTT, false);
        s.now += RTT;
        s.round();
        let before = s.packets();
        s.delivery.set_app_limited();
        s.now += Duration::from_secs(60);
        s.acknowledge(s.now - RTT, 0);
        s.delivery = Delivery::new(s.now);
        s.round();
        assert!(s.packets() < before + 3.0, "{before} to {}", s.packets());
    }

    #[test]
    fn a_spurious_loss_restores_window_and_curve() {
        let mut s = script(100, 100 * PACKET);
        s.lose(2, s.now - RTT, false);
        s.mechanism.on_spurious_loss(2 * PACKET);
        assert_eq!(s.packets(), 100.0);
        assert_eq!(s.mechanism.adjustment.window_max, 0.0);
    }

    #[test]
    fn persistent_congestion_leaves_two_packets_and_slow_start() {
        let mut s = script(100, 100 * PACKET);
        s.lose(100, s.now, true);
        assert_eq!((s.packets(), s.mechanism.phase()), (2.0, "slow start"));
    }

    #[test]
    fn it_continues_at_a_path_that_is_known() {
        let s = script(200, 200 * PACKET);
        assert_eq!((s.packets(), s.mechanism.in_slow_start()), (200.0, false));
    }
}
