//! The throughput of TCP Reno as a formula (J. Padhye, V. Firoiu, D. Towsley, J. Kurose, "Modeling
//! TCP Throughput: A Simple Model and its Empirical Validation", SIGCOMM 1998), and transfers over
//! lines that lose packets at random.

use super::host::SEGMENT_BYTES;
use crate::paper::{Series, push};
use crate::tcp::receiver::{self, Prune};
use crate::tcp::sender::{self, Partial};
use crate::tcp::world::Setup;
use anyhow::Result;
use core::time::Duration;

/// Losses that are tried, and delays of one way in ms.
const LOSSES: [f64; 6] = [0.0005, 0.001, 0.003, 0.01, 0.03, 0.1];
const DELAYS_MS: [u32; 4] = [10, 25, 50, 100];
/// Packets for each acknowledgement.
const PER_ACK: f64 = 2.0;
/// The receiver's window, in packets.
const WINDOW: f64 = 64.0;
const BYTES: u32 = 8_000_000;
const END: Duration = Duration::from_secs(3000);

/// Packets a second, of a sender to whom a share `p` of packets indicates loss: round trip and
/// time-out in seconds, the largest window in packets.
pub fn packets_per_s(p: f64, rtt: f64, timeout: f64, window: f64) -> f64 {
    let fast = rtt * libm::sqrt(2.0 * PER_ACK * p / 3.0);
    let slow = timeout * (3.0 * libm::sqrt(3.0 * PER_ACK * p / 8.0)).min(1.0) * p * (1.0 + 32.0 * p * p);
    (window / rtt).min(1.0 / (fast + slow))
}

/// Transfers over lossy lines, each with what the formula makes of its own loss, round trip and
/// time-out.
pub(super) fn against_simulation() -> Result<Series> {
    let mut series = Series::new();
    for delay_ms in DELAYS_MS {
        for loss in LOSSES {
            let outcome = setup(delay_ms, loss).run()?;
            let log = &outcome.sender;
            // As the paper measures: a row of time-outs is one indication.
            let indications = log.fast.len() + log.first_timeouts as usize;
            let p = indications.max(1) as f64 / log.packets.0 as f64;
            let (sum, count) = log.round_trips;
            let rtt = sum as f64 / count.max(1) as f64 / 100.0;
            let timeout = match log.first_timeouts {
                0 => 0.2f64.max(rtt),
                first => log.timeout_ticks as f64 / first as f64 / 100.0,
            };
            let predicted = packets_per_s(p, rtt, timeout, WINDOW);
            let measured = log.packets.0 as f64 / outcome.took.as_secs_f64();
            push(
                &mut series,
                [
                    ("loss", loss),
                    ("delay", f64::from(delay_ms)),
                    ("p", p),
                    ("rtt", rtt),
                    ("timeout", timeout),
                    ("predicted", predicted),
                    ("measured", measured),
                    ("error", (predicted - measured).abs() / measured),
                ],
            );
        }
    }
    Ok(series)
}

fn setup(delay_ms: u32, loss: f64) -> Setup {
    let window_bytes = WINDOW as u32 * u32::from(SEGMENT_BYTES);
    Setup {
        access: "rate=100mbit".into(),
        line: [
            format!("rate=20mbit delay={delay_ms}ms loss={loss} buffer=200p"),
            format!("rate=20mbit delay={delay_ms}ms buffer=200p"),
        ],
        sender: sender::Rules {
            segment_bytes: SEGMENT_BYTES,
            initial: 1,
            partial: Partial::Ends,
            repeats_grow: true,
            selective: false,
        },
        receiver: receiver::Rules {
            buffer_bytes: window_bytes + 2 * u32::from(SEGMENT_BYTES),
            packet_bytes: SEGMENT_BYTES.into(),
            segment_bytes: SEGMENT_BYTES,
            prune: Prune::Off,
            delay_ticks: 2,
            selective: false,
        },
        bytes: BYTES,
        records: false,
        bunch: Duration::ZERO,
        seed: 7,
        end: END,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without time-outs it is the square root of Mathis; the window bounds it; time-outs take over
    /// where much is lost.
    #[test]
    fn the_formula_has_its_three_parts() {
        let close = |ours: f64, expected: f64| (ours / expected - 1.0).abs() < 1e-3;
        assert!(close(packets_per_s(1e-4, 0.1, 0.0, 1e9), 866.0));
        assert!(close(packets_per_s(1e-6, 0.1, 0.2, 30.0), 300.0));
        // 3 sqrt(3 b p / 8) = 1.04, so 1.
        let slow = 0.16 * (1.0 + 32.0 * 0.0256);
        let expected = 1.0 / (0.1 * libm::sqrt(4.0 * 0.16 / 3.0) + slow);
        assert!(close(packets_per_s(0.16, 0.1, 1.0, 1e9), expected));
    }
}
