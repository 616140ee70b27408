//! Many blasts over a network that loses packets, without the network: a few operations for each
//! loss. `tests` hold it to the simulated hosts, and to the formulas where they are exact.

use super::formulas;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Choice of the packets that are sent again after a loss (section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Everything, after a time-out: there is no negative acknowledgement.
    Full,
    /// Everything, upon a negative acknowledgement after the last packet.
    FullNak,
    /// From the first packet that is missing.
    FromFirst,
    /// Missing packets.
    Selective,
}

impl Strategy {
    /// All, in the order of the paper.
    pub const ALL: [Strategy; 4] =
        [Strategy::Full, Strategy::FullNak, Strategy::FromFirst, Strategy::Selective];

    /// In the paper's words.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Full => "full, no NAK",
            Strategy::FullNak => "full, NAK",
            Strategy::FromFirst => "from the first missing",
            Strategy::Selective => "selective",
        }
    }
}

/// Blasts to carry out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Choice of the packets that are sent again.
    pub strategy: Strategy,
    /// Packets of a blast, 1 to 64.
    pub d: u32,
    /// Time without errors of one packet with its acknowledgement.
    pub t1: f64,
    /// Time without errors of the whole blast; of fewer packets it is in between.
    pub td: f64,
    /// From when the acknowledgement was due until a repeat.
    pub tr: f64,
    /// The probability that a packet is lost, data and acknowledgements alike; above 0, below 1.
    pub pn: f64,
}

impl Setting {
    /// The time of `n` packets and their acknowledgement without errors: linear in `n`, as in the
    /// formula.
    fn time(&self, n: u32) -> f64 {
        if self.d == 1 {
            return self.t1;
        }
        self.t1 + (self.td - self.t1) * f64::from(n - 1) / f64::from(self.d - 1)
    }
}

/// Mean and standard deviation of many blasts, with their standard errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean time.
    pub mean: f64,
    /// Its standard error.
    pub mean_error: f64,
    /// The standard deviation of the time.
    pub sigma: f64,
    /// Its standard error.
    pub sigma_error: f64,
    /// Number of blasts.
    pub blasts: u64,
}

/// Packets until a loss: geometric, from the logarithm that is the same on every machine.
struct Losses {
    rng: ChaCha8Rng,
    log_kept: f64,
    /// Packets that arrive before the next is lost.
    left: u64,
}

impl Losses {
    fn new(pn: f64, seed: u64) -> Self {
        let mut losses = Losses { rng: ChaCha8Rng::seed_from_u64(seed), log_kept: libm::log1p(-pn), left: 0 };
        losses.draw();
        losses
    }

    fn draw(&mut self) {
        let uniform = 1.0 - self.rng.random::<f64>();
        self.left = libm::floor(libm::log(uniform) / self.log_kept) as u64;
    }

    /// True if the next packet is lost.
    fn next(&mut self) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.draw();
        true
    }

    /// Which of the next `n` packets are lost, as bits.
    fn next_of(&mut self, n: u32) -> u64 {
        let (mut lost, mut at) = (0, 0);
        while self.left < u64::from(n - at) {
            at += self.left as u32;
            lost |= 1 << at;
            at += 1;
            self.draw();
            if at == n {
                return lost;
            }
        }
        self.left -= u64::from(n - at);
        lost
    }
}

/// Carries out as many blasts as have about `failures` failures among them, at least 2000.
pub fn estimate(setting: &Setting, failures: f64, seed: u64) -> Estimate {
    let pe = formulas::any_lost(setting.pn, f64::from(setting.d) + 1.0);
    let attempts = 1.0 / (1.0 - pe);
    let blasts = (failures / pe / attempts).max(2000.0) as u64;
    let mut losses = Losses::new(setting.pn, seed);
    // Moments of the time beyond that without errors; whole blasts without loss are passed over.
    let (mut sums, mut done) = ([0.0f64; 4], 0);
    let packets = u64::from(setting.d) + 1;
    while done < blasts {
        let whole = losses.left / packets;
        if whole > 0 {
            losses.left -= whole * packets;
            done += whole;
            continue;
        }
        let extra = blast(setting, &mut losses) - setting.td;
        let mut power = 1.0;
        for sum in &mut sums {
            power *= extra;
            *sum += power;
        }
        done += 1;
    }
    let n = done as f64;
    let [m1, m2, m3, m4] = sums.map(|sum| sum / n);
    let variance = m2 - m1 * m1;
    let fourth = m4 - 4.0 * m1 * m3 + 6.0 * m1 * m1 * m2 - 3.0 * m1 * m1 * m1 * m1;
    let sigma = libm::sqrt(variance);
    Estimate {
        mean: setting.td + m1,
        mean_error: sigma / libm::sqrt(n),
        sigma,
        sigma_error: libm::sqrt((fourth - variance * variance).max(0.0) / n) / (2.0 * sigma),
        blasts: done,
    }
}

/// One blast, from its first packet until its acknowledgement has come: its time.
fn blast(setting: &Setting, losses: &mut Losses) -> f64 {
    let (d, tr) = (setting.d, setting.tr);
    match setting.strategy {
        Strategy::Full | Strategy::FullNak => {
            let mut time = 0.0;
            loop {
                time += setting.td;
                let missing = losses.next_of(d);
                let is_last_lost = missing >> (d - 1) & 1 == 1;
                // An answer is only lost if there is one.
                let speaks = !is_last_lost && (missing == 0 || setting.strategy == Strategy::FullNak);
                let is_answered = speaks && !losses.next();
                if is_answered && missing == 0 {
                    return time;
                }
                if !is_answered {
                    time += tr;
                }
            }
        }
        Strategy::FromFirst | Strategy::Selective => {
            let (mut time, mut unsent) = (0.0, d);
            while unsent > 0 {
                let missing = losses.next_of(unsent);
                time += setting.time(unsent);
                let (others, last) = (missing & !(1 << (unsent - 1)), missing >> (unsent - 1) & 1 == 1);
                // The last packet is repeated until an answer to it comes.
                let mut is_answered = !last && !losses.next();
                while !is_answered {
                    time += tr + setting.t1;
                    is_answered = !losses.next() && !losses.next();
                }
                unsent = match setting.strategy {
                    _ if others == 0 => 0,
                    Strategy::Selective => others.count_ones(),
                    _ => unsent - others.trailing_zeros(),
                };
            }
            time
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(strategy: Strategy, pn: f64, tr: f64) -> Setting {
        Setting { strategy, d: 64, t1: 5.9, td: 173.0, tr, pn }
    }

    /// Within five standard errors, which are below 3 %.
    #[test]
    fn full_repetition_is_as_its_exact_formulas() {
        for (seed, pn) in [1e-6, 1e-4, 1e-3, 1e-2].into_iter().enumerate() {
            for tr in [17.3, 1730.0] {
                let found = estimate(&setting(Strategy::Full, pn, tr), 40_000.0, seed as u64);
                let (mean, sigma) = (
                    formulas::expected_blast(64.0, 173.0, tr, pn),
                    formulas::sigma_exact(64.0, 173.0, tr, pn),
                );
                assert!((found.mean - mean).abs() < 5.0 * found.mean_error, "{pn} {tr}: {found:?}, {mean}");
                assert!(
                    (found.sigma - sigma).abs() < 5.0 * found.sigma_error,
                    "{pn} {tr}: {found:?}, {sigma}"
                );
                assert!(found.sigma_error < 0.03 * sigma, "{pn} {tr}: {found:?}");
                let found = estimate(&setting(Strategy::FullNak, pn, tr), 40_000.0, seed as u64);
                let (mean, sigma) = formulas::exact_nak(64.0, 173.0, tr, pn);
                assert!(
                    (found.mean - mean).abs() < 5.0 * found.mean_error,
                    "NAK {pn} {tr}: {found:?}, {mean}"
                );
                assert!(
                    (found.sigma - sigma).abs() < 5.0 * found.sigma_error,
                    "NAK {pn} {tr}: {found:?}, {sigma}"
                );
            }
        }
    }

    #[test]
    fn losses_come_with_their_probability_wherever_they_are_looked_for() {
        let (mut one, mut many) = (Losses::new(0.05, 7), Losses::new(0.05, 7));
        for n in 1..=64 {
            for _ in 0..50 {
                let singly = (0..n).fold(0, |lost, at| lost | u64::from(one.next()) << at);
                assert_eq!(many.next_of(n), singly);
            }
        }
        let lost: u32 = (0..1000).map(|_| many.next_of(64).count_ones()).sum();
        assert!((3000..3400).contains(&lost), "{lost} of 64,000");
    }
}
