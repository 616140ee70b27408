//! Prediction for a block code on a path: expansion, residual loss, delay of repair.

use super::{SYMBOL_PREFIX_BYTES, Shape};
use crate::facts::PathFacts;
use crate::mechanism::{Later, Prediction};
use core::time::Duration;

/// Share of the sources (0..=1) that are lost and not recovered by a code that repairs up to
/// `parities` losses in a block of `data` sources and `parities` parities, on a path that loses a
/// share `loss` in runs of `burst` packets on average. The block's packets are `interleave` apart.
///
/// The path is a Gilbert channel (Gilbert, "Capacity of a burst-noise channel", 1960): a chain of
/// two states, one of which loses every packet. The chance of each count of losses follows by
/// recursion over the packets of the block.
pub fn residual_loss(loss: f64, burst: f64, data: usize, parities: usize, interleave: usize) -> f64 {
    residual(loss, burst, (data, parities), parities, interleave)
}

/// The same of a block's shape: losses that are repaired only if they meet the right packets count
/// as not repaired.
pub fn residual_loss_of(loss: f64, burst: f64, shape: &Shape) -> f64 {
    let repairs = shape.repairs(shape.parities);
    residual(loss, burst, (shape.data, shape.parities), repairs, shape.interleave)
}

fn residual(
    loss: f64,
    burst: f64,
    (data, parities): (usize, usize),
    repairs: usize,
    interleave: usize,
) -> f64 {
    let loss = loss.clamp(0.0, 1.0);
    if loss == 0.0 || loss == 1.0 || data == 0 {
        return loss;
    }
    // Runs shorter than those of independent losses would need losses that repel each other.
    let burst = burst.max(1.0 / (1.0 - loss));
    let leave = 1.0 / burst;
    let enter = (loss * leave / (1.0 - loss)).min(1.0);
    // The chain's second eigenvalue: what is left of the state after a step, here of `interleave`
    // packets.
    let memory = (1.0 - enter - leave).powi(interleave.max(1) as i32);
    let stay_lost = loss + (1.0 - loss) * memory;
    let become_lost = loss * (1.0 - memory);

    let packets = data + parities;
    // By count of losses: the chance that the last packet was (kept, lost), and the sources lost,
    // weighted by it.
    let mut chance = vec![[0.0; 2]; packets + 1];
    let mut sources = vec![[0.0; 2]; packets + 1];
    chance[0] = [1.0 - loss, loss];
    for packet in 0..packets {
        let mut next_chance = vec![[0.0; 2]; packets + 1];
        let mut next_sources = vec![[0.0; 2]; packets + 1];
        for losses in 0..=packet {
            for last in 0..2 {
                // The state before the first packet is the chain's steady state: its next is so
                // too.
                let lost = if last == 1 { stay_lost } else { become_lost };
                let (c, s) = (chance[losses][last], sources[losses][last]);
                next_chance[losses][0] += c * (1.0 - lost);
                next_sources[losses][0] += s * (1.0 - lost);
                next_chance[losses + 1][1] += c * lost;
                let fresh = if packet < data { c } else { 0.0 };
                next_sources[losses + 1][1] += (s + fresh) * lost;
            }
        }
        chance = next_chance;
        sources = next_sources;
    }
    let unrepaired: f64 = sources.iter().skip(repairs + 1).map(|s| s[0] + s[1]).sum();
    (unrepaired / data as f64).clamp(0.0, loss)
}

/// Parities of a block of `data` sources that meet the mean number of losses and some deviations.
/// Losses in runs of `burst` vary as the sum of `2 burst - 1` times as many alike.
pub fn parities(data: u64, facts: &PathFacts, deviations: f64) -> u64 {
    let (loss, burst) = (facts.loss, facts.loss_burst.max(1.0));
    let mut parity = 1.0f64;
    // The parities are lost as well: twice round is close enough.
    for _ in 0..2 {
        let mean = (data as f64 + parity) * loss;
        let deviation = (mean * (1.0 - loss).max(0.0) * (2.0 * burst - 1.0)).sqrt();
        parity = (mean + deviations * deviation).ceil().clamp(1.0, data as f64);
    }
    parity as u64
}

/// For how long blocks wait that are worth comparing where the sender makes few packets: a small
/// part of a round trip, and as long as three more take.
pub(super) fn sparse(facts: &PathFacts) -> [Duration; 2] {
    let quick = (facts.rtt_min / FLUSH_PART).clamp(FLUSH_SHORTEST, FLUSH_LONGEST);
    let next = Duration::try_from_secs_f64(facts.packets_at_once.max(1.0) / facts.packets_per_s);
    let patient = next.unwrap_or(Duration::MAX).saturating_mul(3).clamp(quick, FLUSH_PATIENT);
    [quick, patient]
}

/// A repair that comes after so small a part of a round trip is hardly late.
const FLUSH_PART: u32 = 8;
/// Timers are no finer.
const FLUSH_SHORTEST: Duration = Duration::from_millis(1);
/// Time that the schemes take unless another is given: a sender of as many packets as the path
/// carries fills a block by then.
pub(super) const FLUSH_LONGEST: Duration = Duration::from_millis(10);
/// Longer than that costs a conversation more than the packets that it saves (ITU-T G.114: 150 ms
/// in all).
const FLUSH_PATIENT: Duration = Duration::from_millis(80);

/// Applies a block code to a prediction. `ns_per_byte` is the processing per byte of a source and
/// parity.
pub(super) fn apply(shape: &Shape, ns_per_byte: f64, facts: &PathFacts, prediction: &mut Prediction) {
    if shape.data == 0 {
        return;
    }
    let (filled, is_early) = filled(shape, facts);
    let (data, parities) = (filled.data as f64, filled.parities as f64);
    let packet_bytes = facts.mtu_bytes as f64;
    let residual = residual_loss_of(facts.loss, facts.loss_burst, &filled);
    let repaired = if facts.loss > 0.0 { 1.0 - residual / facts.loss } else { 0.0 };

    prediction.expansion *= (data + parities) / data;
    // A repair is a packet too, and longer than the longest source by this.
    prediction.header_bytes += (SYMBOL_PREFIX_BYTES + shape.mask_bytes_max()) as f64;
    // A block takes as long as its packets do at capacity, unless it is closed early.
    let packets = ((shape.data + shape.parities) * shape.interleave) as u64;
    let full = facts.capacity.time_for(packets.saturating_mul(facts.mtu_bytes));
    let full = full.max(facts.time_of_packets(data * filled.interleave as f64));
    let block = if is_early { shape.flush } else { full.min(shape.flush) };
    // What is repaired waits for the rest of its block: half of it on average.
    let block_s = block.as_secs_f64();
    let share = prediction.loss * repaired;
    prediction.repaired = Later { share, by_s: block_s, by_mean_s: block_s / 2.0 };
    prediction.delay(prediction.repaired);
    prediction.loss *= 1.0 - repaired;
    // Parities at the sender; the receiver copies every source, and decodes for those that are
    // lost.
    prediction.cpu_ns +=
        ns_per_byte * packet_bytes * parities * (1.0 + facts.loss) + COPY_NS_PER_BYTE * packet_bytes;
}

/// Shape of blocks as they are closed: where the sender makes few packets, before they are full,
/// and with more parities for a source then. Says also whether they are.
fn filled(shape: &Shape, facts: &PathFacts) -> (Shape, bool) {
    let sources = facts.packets_within(shape.flush);
    if sources >= (shape.data * shape.interleave) as f64 {
        return (*shape, false);
    }
    let interleave = shape.interleave.min(sources as usize).max(1);
    let data = ((sources / interleave as f64).round() as usize).clamp(1, shape.data);
    (Shape { data, parities: shape.parities_for(data), interleave, ..*shape }, true)
}

/// Keeping a source at the receiver.
const COPY_NS_PER_BYTE: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fec::{reed_solomon, xor};
    use crate::mechanism::Mechanism;
    use crate::time::Rate;
    use core::time::Duration;

    #[test]
    fn independent_losses_follow_the_binomial() {
        // One parity, three sources, independent losses of 10 %: a source is lost for good if it is
        // lost and any of the three others is.
        let expected = 0.1 * (1.0 - 0.9f64.powi(3));
        let residual = residual_loss(0.1, 1.0 / 0.9, 3, 1, 1);
        assert!((residual - expected).abs() < 1e-12, "{residual} against {expected}");
        // Shorter bursts than that cannot be told from it.
        assert!((residual_loss(0.1, 1.0, 3, 1, 1) - expected).abs() < 1e-12);
    }

    #[test]
    fn a_block_of_two_in_a_bursty_channel() {
        // One source, one parity: lost for good if both are: loss times the chance to stay in the
        // lossy state.
        let residual = residual_loss(0.05, 4.0, 1, 1, 1);
        assert!((residual - 0.05 * 0.75).abs() < 1e-12, "{residual}");
    }

    #[test]
    fn parities_grow_with_loss_and_bursts() {
        let parities = |loss, loss_burst, deviations| {
            parities(20, &PathFacts { loss, loss_burst, ..PathFacts::default() }, deviations)
        };
        assert!(parities(0.05, 1.0, 2.0) < parities(0.05, 4.0, 2.0));
        assert!(parities(0.01, 1.0, 2.0) < parities(0.10, 1.0, 2.0));
        assert_eq!(parities(0.0, 1.0, 3.0), 1);
        assert_eq!(parities(1.0, 1000.0, 3.0), 20);
    }

    #[test]
    fn more_parity_and_more_distance_help() {
        let residual = |parities| residual_loss(0.05, 4.0, 20, parities, 1);
        assert!((1..16).all(|r| residual(r + 1) < residual(r)));
        let interleaved = |i| residual_loss(0.05, 4.0, 8, 1, i);
        assert!((1..8).all(|i| interleaved(i + 1) < interleaved(i)));
        assert_eq!(residual_loss(0.0, 1.0, 8, 1, 1), 0.0);
        assert_eq!(residual_loss(1.0, 1.0, 8, 1, 1), 1.0);
    }

    #[test]
    fn loss_goes_down_and_congestion_control_still_sees_it() {
        let facts = PathFacts {
            capacity: Rate::from_bits_per_sec(100_000_000),
            loss: 0.05,
            loss_burst: 4.0,
            ..PathFacts::default()
        };
        let predict = |m: &'static Mechanism| {
            let mut prediction = Prediction::of_path(&facts);
            (m.predict)(&m.choice().params, &facts, &mut prediction);
            prediction
        };
        let (xor, rs) = (predict(&xor::Xor::INFO), predict(&reed_solomon::ReedSolomon::INFO));
        assert_eq!((xor.expansion, rs.expansion), (1.125, 1.25));
        for p in [xor, rs] {
            assert!(p.loss < facts.loss && p.loss > 0.0, "{p:?}");
            assert_eq!(p.loss_seen, facts.loss);
            assert!(p.delay_s > 0.0 && p.delay_p99_s <= Duration::from_millis(10).as_secs_f64(), "{p:?}");
        }
    }
}
