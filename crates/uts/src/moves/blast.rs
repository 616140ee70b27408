//! Strategies of repeats, and the size of the blasts in which a large piece goes (W. Zwaenepoel,
//! "Protocols for Large Data Transfers over Local Networks", 1985, sections 3.1.3 and 3.2).

use crate::connection::Connection;
use crate::requirements::Requirements;
use uts_functions::PathFacts;

/// The largest blast, in KiB.
pub(super) const KIBIBYTES_MAX: u32 = 65_536;
/// Sizes that are compared, in KiB.
const SIZES: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// Size of a blast on a path that is not known, in KiB: the paper's.
const KIBIBYTES: u32 = 64;
/// Packets behind which figures of a path mean something.
const SAMPLES_MIN: u64 = 200;
/// Time-out of strategy 1, in round trips.
const TIMEOUT_ROUND_TRIPS: f64 = 4.0;

/// Strategy of repeats: what is sent again of a blast that has not arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// All of it, after a time-out.
    FullAfterTimeout,
    /// All of it, once the receiver says that something is missing.
    Full,
    /// All from the first byte that is missing.
    FromFirst,
    /// The part that is missing.
    Selective,
}

/// Repeats of what is lost of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeats {
    /// As the connection repeats all else.
    #[default]
    AsConnection,
    /// By blasts, each of which is answered as a whole.
    Blasts {
        /// The part that is sent again.
        strategy: Strategy,
        /// Size of a blast in KiB, 1 to 65,536; `None` = the best on the path as it is
        /// ([`best_kibibytes`]).
        kibibytes: Option<u32>,
    },
}

impl Strategy {
    pub(super) fn number(self) -> u8 {
        match self {
            Strategy::FullAfterTimeout => 1,
            Strategy::Full => 2,
            Strategy::FromFirst => 3,
            Strategy::Selective => 4,
        }
    }

    pub(super) fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Strategy::FullAfterTimeout,
            2 => Strategy::Full,
            3 => Strategy::FromFirst,
            4 => Strategy::Selective,
            _ => return None,
        })
    }
}

impl Repeats {
    /// Requirements of a flow that repeats so; `None` = those of the connection.
    pub(super) fn requirements(self, connection: &Connection) -> Option<Requirements> {
        let Repeats::Blasts { strategy, kibibytes } = self else { return None };
        let unit = kibibytes.unwrap_or_else(|| best_kibibytes(strategy, &connection.facts()));
        let mut requirements = connection.requirements();
        let value = format!("blast(unit={},strategy={})", unit.clamp(1, KIBIBYTES_MAX), strategy.number());
        // The mechanism is in the library, and so are these values.
        requirements.set("uts.profile.retransmission", &value).ok()?;
        Some(requirements)
    }
}

/// The size of blasts, in KiB, at which a byte of a very large piece takes the least time on such a
/// path, by the paper's formulas with the measured loss. A blast takes its packets and the round
/// trip of its answer. If it fails, it takes what the strategy repeats and another round trip, or a
/// time-out; a repeat may fail as well. 64 KiB where too little is known of the path.
pub fn best_kibibytes(strategy: Strategy, path: &PathFacts) -> u32 {
    let packet_s = path.mtu_bytes as f64 / path.capacity.bytes_per_sec().max(1) as f64;
    if path.samples < SAMPLES_MIN || path.capacity.bytes_per_sec() == 0 {
        return KIBIBYTES;
    }
    let (loss, rtt_s) = (path.loss.clamp(0.0, 0.5), path.rtt_smoothed.as_secs_f64());
    let time_of_a_packet = |kibibytes: u32| {
        let packets = (f64::from(kibibytes) * 1024.0 / path.mtu_bytes.max(1) as f64).max(1.0);
        (packets * packet_s + rtt_s + repeats_s(strategy, packets, loss, packet_s, rtt_s)) / packets
    };
    let best = SIZES.iter().min_by(|a, b| time_of_a_packet(**a).total_cmp(&time_of_a_packet(**b)));
    best.copied().unwrap_or(KIBIBYTES)
}

/// The expected time that repeats of a blast take.
fn repeats_s(strategy: Strategy, packets: f64, loss: f64, packet_s: f64, rtt_s: f64) -> f64 {
    // Section 3.1.2: any of the packets, or the answer, is lost.
    let fails = 1.0 - (1.0 - loss).powf(packets + 1.0);
    let tries = fails / (1.0 - fails).max(1e-9);
    match strategy {
        Strategy::FullAfterTimeout => tries * (packets * packet_s + TIMEOUT_ROUND_TRIPS * rtt_s),
        Strategy::Full => tries * (packets * packet_s + rtt_s),
        Strategy::FromFirst => {
            // Behind the first that is missing each try has fewer left to lose.
            let behind = mean_from_first(packets, loss);
            let again = 1.0 - (1.0 - loss).powf(behind + 1.0);
            fails / (1.0 - again).max(1e-9) * (behind * packet_s + rtt_s)
        }
        Strategy::Selective => fails / (1.0 - loss) * (packets * loss * packet_s + rtt_s),
    }
}

/// Packets from the first that is missing to the end of a blast that fails, in the mean.
pub(super) fn mean_from_first(packets: f64, loss: f64) -> f64 {
    if loss <= 0.0 {
        return 1.0;
    }
    let whole = (1.0 - loss).powf(packets);
    // The first is at position k with the probability (1 - p)^k p.
    let before = (1.0 - loss) / loss * (1.0 - whole) - packets * whole;
    (packets - before / (1.0 - whole).max(1e-12)).clamp(1.0, packets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use uts_functions::Rate;

    const ALL: [Strategy; 4] =
        [Strategy::FullAfterTimeout, Strategy::Full, Strategy::FromFirst, Strategy::Selective];

    fn path(loss: f64) -> PathFacts {
        PathFacts {
            rtt_smoothed: Duration::from_millis(1),
            capacity: Rate::from_bits_per_sec(100_000_000),
            loss,
            samples: 10_000,
            mtu_bytes: 1472,
            ..PathFacts::default()
        }
    }

    /// Section 3.1.3: the more is lost, the smaller the best blast.
    #[test]
    fn the_best_blast_falls_with_loss() {
        for strategy in ALL {
            let sizes =
                [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1].map(|loss| best_kibibytes(strategy, &path(loss)));
            assert!(sizes.windows(2).all(|pair| pair[0] >= pair[1]), "{strategy:?}: {sizes:?}");
            assert!(strategy == Strategy::Selective || sizes[0] > sizes[4], "{strategy:?}: {sizes:?}");
        }
        let at = |loss| ALL.map(|strategy| best_kibibytes(strategy, &path(loss)));
        for sizes in [at(1e-4), at(1e-3), at(1e-2)] {
            assert!(sizes[0] <= sizes[2] && sizes[1] <= sizes[2] && sizes[2] <= sizes[3], "{sizes:?}");
        }
    }

    #[test]
    fn a_path_that_is_not_known_has_the_size_of_the_paper() {
        for strategy in ALL {
            assert_eq!(best_kibibytes(strategy, &PathFacts::default()), KIBIBYTES);
            assert_eq!(Strategy::of(strategy.number()), Some(strategy));
        }
        assert_eq!([Strategy::of(0), Strategy::of(5)], [None, None]);
    }

    #[test]
    fn the_first_that_is_missing_is_where_it_is() {
        // By the sum over all places.
        for (packets, loss) in [(4_i32, 0.3), (46, 0.02), (46, 0.0001)] {
            let places = (0..packets).map(|k| (f64::from(packets - k), (1.0_f64 - loss).powi(k) * loss));
            let (sum, all) = places.fold((0.0, 0.0), |(sum, all), (left, p)| (sum + left * p, all + p));
            let mean = mean_from_first(packets.into(), loss);
            assert!((mean - sum / all).abs() < 1e-6 * mean, "{packets} {loss}: {mean}, {}", sum / all);
        }
    }
}
