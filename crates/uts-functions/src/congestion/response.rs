//! Predictions for loss-based mechanisms on a path: their response functions, and the queue that
//! they keep.

use crate::facts::PathFacts;
use crate::mechanism::Prediction;
use core::time::Duration;

/// Share (0..=1) of the packets after whose loss a loss-based sender reduces although no queue was
/// full. Losses in a row cost one reduction.
pub(super) fn random_events(facts: &PathFacts, prediction: &Prediction) -> f64 {
    let random = prediction.loss_seen * (1.0 - facts.loss_congestive.clamp(0.0, 1.0));
    (random / facts.loss_burst.max(1.0)).clamp(0.0, 1.0)
}

/// Reno's mean window in packets where a share `p` of packets brings a reduction (Mathis et al.
/// 1997; RFC 9438 section 5.1 writes it the same way). Infinite at zero.
pub(super) fn reno_packets(p: f64) -> f64 {
    (1.5 / p).sqrt()
}

/// A window that random losses hold down swings: in a twentieth of the time it is below this share
/// of its mean. (Ott, Kemperman and Mathis, "The Stationary Behavior of Ideal TCP Congestion
/// Avoidance", 1996, give 0.4 for Reno.)
const LOW_SHARE: f64 = 0.4;

/// Puts a mean window of `packets` to the path, and the standing queue (`queue_share` of the
/// smallest round trip) of a sender whose window would exceed it.
pub(super) fn apply(packets: f64, queue_share: f64, facts: &PathFacts, prediction: &mut Prediction) {
    let rtt_s = round_trip(facts).as_secs_f64();
    let capacity = facts.capacity.bytes_per_sec() as f64;
    let fill = if rtt_s > 0.0 && capacity > 0.0 {
        packets.max(super::window::MIN_PACKETS as f64) * facts.mtu_bytes as f64 / rtt_s / capacity
    } else {
        f64::INFINITY
    };
    prediction.utilisation *= fill.min(1.0);
    prediction.utilisation_low *= (fill * LOW_SHARE).min(1.0);
    // The buffer's size is not among the facts; a buffer of one bandwidth-delay product is the
    // common rule. A queue that was seen counts if it was larger. Random losses that keep the
    // window below the path leave no queue.
    let filling = (fill - 1.0).clamp(0.0, 1.0);
    let rtt_min_s = facts.rtt_min.as_secs_f64();
    let seen_s = facts.queueing().as_secs_f64();
    prediction.delay_s = filling * seen_s.max(queue_share * rtt_min_s);
    prediction.delay_p99_s = filling * seen_s.max(rtt_min_s);
}

/// The round trip to reckon with: the smoothed one, or the smallest where no other is known.
pub(super) fn round_trip(facts: &PathFacts) -> Duration {
    if facts.rtt_smoothed.is_zero() { facts.rtt_min } else { facts.rtt_smoothed }
}
