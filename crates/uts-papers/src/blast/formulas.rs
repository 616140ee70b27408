//! The paper's formulas, in milliseconds (sections 2.1.3 and 3), and those that they must be.

/// Costs of packets: copies of data and of acknowledgements, and their transmissions, in
/// milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// To copy data into or out of an interface.
    pub c: f64,
    /// The same of an acknowledgement.
    pub ca: f64,
    /// To transmit data.
    pub t: f64,
    /// To transmit an acknowledgement.
    pub ta: f64,
}

impl Times {
    /// N packets by stop-and-wait (section 2.1.3).
    pub fn stop_and_wait(&self, n: f64) -> f64 {
        n * (2.0 * self.c + self.t + 2.0 * self.ca + self.ta)
    }

    /// N packets by a blast (section 2.1.3).
    pub fn blast(&self, n: f64) -> f64 {
        n * (self.c + self.t) + self.c + 2.0 * self.ca + self.ta
    }

    /// N packets by a sliding window, as published (section 2.1.3): 6 to 9 % below table 1.
    pub fn sliding_window(&self, n: f64) -> f64 {
        n * (self.c + self.ca + self.t) + self.c + self.ta
    }

    /// The same with each acknowledgement copied out of and into an interface: within 1 % of
    /// table 1 from N = 8 on.
    pub fn sliding_window_fits(&self, n: f64) -> f64 {
        n * (self.c + 2.0 * self.ca + self.t) + self.c + self.ta
    }

    /// N packets by a blast between double-buffered interfaces (section 2.1.3).
    pub fn double_buffered(&self, n: f64) -> f64 {
        let last = 2.0 * self.ca + self.ta + self.c;
        if self.t <= self.c { n * self.c + self.t + last } else { n * self.t + self.c + last }
    }

    /// The share of the time of a blast in which the network transmits (section 2.1.3).
    pub fn utilisation(&self, n: f64) -> f64 {
        (n * self.t + self.ta) / self.blast(n)
    }
}

/// Probability that any of `packets` is lost, if each is lost with the probability `pn`.
pub fn any_lost(pn: f64, packets: f64) -> f64 {
    -libm::expm1(packets * libm::log1p(-pn))
}

/// The expected time of D packets by stop-and-wait, whose exchange takes `t1` without errors
/// (section 3.1.1).
pub fn expected_stop_and_wait(d: f64, t1: f64, tr: f64, pn: f64) -> f64 {
    let pe = any_lost(pn, 2.0);
    d * (t1 + (t1 + tr) * pe / (1.0 - pe))
}

/// The expected time of a blast of D packets that takes `td` without errors, repeated in full
/// without a negative acknowledgement (section 3.1.2).
pub fn expected_blast(d: f64, td: f64, tr: f64, pn: f64) -> f64 {
    let pe = any_lost(pn, d + 1.0);
    td + (td + tr) * pe / (1.0 - pe)
}

/// The standard deviation of the same as published (section 3.2.1), which is the root mean square
/// of the time beyond `td`. With a negative acknowledgement, `tr` is 0 (section 3.2.2).
pub fn sigma_published(d: f64, td: f64, tr: f64, pn: f64) -> f64 {
    let pe = any_lost(pn, d + 1.0);
    (td + tr) * libm::sqrt(pe * (1.0 + pe)) / (1.0 - pe)
}

/// The standard deviation of a geometric number of failures that cost `td + tr` each.
pub fn sigma_exact(d: f64, td: f64, tr: f64, pn: f64) -> f64 {
    let pe = any_lost(pn, d + 1.0);
    (td + tr) * libm::sqrt(pe) / (1.0 - pe)
}

/// The exact mean and standard deviation with a negative acknowledgement. A failure costs `td`. It
/// costs `tr` as well if the last packet is lost, or the answer to it. The number of failures is
/// geometric. What each costs does not depend on it (Wald).
pub fn exact_nak(d: f64, td: f64, tr: f64, pn: f64) -> (f64, f64) {
    let pe = any_lost(pn, d + 1.0);
    // Of failures, the share that is answered: the last packet and the answer arrive, another not.
    let answered = (1.0 - pn) * (1.0 - pn) * any_lost(pn, d - 1.0) / pe;
    let (mean, square) =
        (td + (1.0 - answered) * tr, answered * td * td + (1.0 - answered) * (td + tr) * (td + tr));
    let (failures, variance) = (pe / (1.0 - pe), pe / ((1.0 - pe) * (1.0 - pe)));
    let sigma = libm::sqrt(failures * (square - mean * mean) + variance * mean * mean);
    (td + failures * mean, sigma)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As docs/papers.md says.
    #[test]
    fn a_negative_acknowledgement_removes_only_a_short_time_out() {
        let sigma = |tr| exact_nak(64.0, 173.0, tr, 1e-4).1;
        assert!((1.0..1.05).contains(&(sigma(173.0) / sigma(0.0))));
        assert!((2.0..2.3).contains(&(sigma(1730.0) / sigma(0.0))), "{}", sigma(1730.0) / sigma(0.0));
    }

    /// Section 2.1.3, with the paper's own figures.
    #[test]
    fn the_formula_of_the_sliding_window_is_below_one_exchange() {
        let times = Times { c: 1.35, ca: 0.17, t: 0.82, ta: 0.05 };
        assert!((times.stop_and_wait(1.0) - 3.91).abs() < 1e-9);
        assert!((times.sliding_window(1.0) - 3.74).abs() < 1e-9);
        assert!((times.utilisation(64.0) - 0.374).abs() < 1e-3);
    }
}
