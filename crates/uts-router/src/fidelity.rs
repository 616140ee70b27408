//! Fidelity of a run to its model.

use serde::{Deserialize, Serialize};
use uts_path::Stats;
use uts_record::lateness::Lateness;

/// Bounds within which a run may deviate from its model and still count.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bounds {
    /// Half of the packets may be this late, in microseconds.
    pub late_p50_us: f64,
    /// One in a hundred may be later than this.
    pub late_p99_us: f64,
    /// None may be later than this.
    pub late_max_us: f64,
    /// Packets that may be lost outside the model.
    pub lost_outside: u64,
    /// Datagrams that may find the buffer of a socket on a host full. `None` is any number: what a
    /// program does not read in time is then its own affair.
    pub lost_in_sockets: Option<u64>,
}

impl Default for Bounds {
    /// 200 us, 2 ms, 100 ms and nothing lost: a machine that others use, too, keeps this.
    fn default() -> Self {
        Bounds {
            late_p50_us: 200.0,
            late_p99_us: 2_000.0,
            late_max_us: 100_000.0,
            lost_outside: 0,
            lost_in_sockets: Some(0),
        }
    }
}

/// Packets that were lost otherwise than by the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LostOutside {
    /// Found RouterPC's receive buffer full.
    pub not_read: u64,
    /// The system would not send them on.
    pub not_sent: u64,
    /// Dropped between RouterPC's interface and a host's, in either direction, as the interfaces
    /// count.
    pub on_interfaces: u64,
    /// Could not be understood, so not passed on.
    pub not_understood: u64,
    /// Found the buffer of a UDP socket on a host full.
    pub in_sockets: u64,
}

impl LostOutside {
    /// All but those in hosts' sockets.
    pub fn total(&self) -> u64 {
        self.not_read + self.not_sent + self.on_interfaces + self.not_understood
    }
}

/// Deviations of a run from its model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fidelity {
    /// Lateness of packets: the instant at which the kernel had taken them, less the instant of the
    /// model.
    pub lateness: Lateness,
    /// Packets sent on; lateness is theirs.
    pub packets: u64,
    /// Packets lost otherwise than by the model.
    pub lost_outside: LostOutside,
    /// Frames for an address that no host has; they go nowhere, as on a wire, and spoil nothing.
    pub astray: u64,
    /// Entries that the recorder could not take in time.
    pub not_recorded: u64,
    /// Processor time of the thread that forwards, in seconds.
    pub cpu_s: f64,
    /// Time that the run took, in seconds.
    pub elapsed_s: f64,
    /// Time by which the system's clock was set during the run, in seconds. Its steady adjustment
    /// is not counted.
    pub clock_step_s: f64,
    /// The run is within its bounds.
    pub is_valid: bool,
    /// Deviations beyond their bounds, a sentence each; empty if it is valid.
    pub why: Vec<String>,
}

/// A clock that was set by more than this has spoiled the run: packets' stamps are in its time.
const CLOCK_STEP_MAX_S: f64 = 0.000_5;

impl Fidelity {
    /// Compares with the bounds.
    pub(super) fn judge(mut self, bounds: &Bounds) -> Self {
        let mut why = Vec::new();
        let late = self.lateness;
        for (what, value, bound) in [
            ("half of the packets were more than", late.p50_us, bounds.late_p50_us),
            ("1 % of the packets were more than", late.p99_us, bounds.late_p99_us),
            ("a packet was", late.max_us, bounds.late_max_us),
        ] {
            if value > bound {
                why.push(format!("{what} {value:.0} us late; at most {bound:.0} us are allowed"));
            }
        }
        let lost = self.lost_outside;
        for (count, what) in [
            (lost.not_read, "packets came faster than RouterPC could read"),
            (lost.not_sent, "packets could not be sent on"),
            (lost.on_interfaces, "packets were dropped on the interfaces"),
            (lost.not_understood, "packets could not be understood"),
        ] {
            if count > 0 && lost.total() > bounds.lost_outside {
                why.push(format!(
                    "{count} {what}; at most {} may be lost outside the model",
                    bounds.lost_outside
                ));
            }
        }
        if let Some(bound) = bounds.lost_in_sockets.filter(|&bound| lost.in_sockets > bound) {
            let count = lost.in_sockets;
            why.push(format!("{count} datagrams found the buffer of their socket full; at most {bound} may"));
        }
        if self.not_recorded > 0 {
            why.push(format!(
                "{} entries of the record are missing: the disk was too slow",
                self.not_recorded
            ));
        }
        if self.clock_step_s.abs() > CLOCK_STEP_MAX_S {
            why.push(format!("the system's clock was set by {:.6} s", self.clock_step_s));
        }
        self.is_valid = why.is_empty();
        self.why = why;
        self
    }
}

/// Counters of the links of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PathStats {
    /// From the host of the lower number.
    pub forward: Stats,
    /// To it.
    pub backward: Stats,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn perfect() -> Fidelity {
        Fidelity {
            lateness: Lateness::default(),
            packets: 1,
            lost_outside: LostOutside::default(),
            astray: 0,
            not_recorded: 0,
            cpu_s: 0.0,
            elapsed_s: 1.0,
            clock_step_s: 0.0,
            is_valid: false,
            why: vec!["not judged".into()],
        }
    }

    fn judged(change: impl FnOnce(&mut Fidelity)) -> Vec<String> {
        let mut fidelity = perfect();
        change(&mut fidelity);
        let fidelity = fidelity.judge(&Bounds::default());
        assert_eq!(fidelity.is_valid, fidelity.why.is_empty());
        fidelity.why
    }

    #[test]
    fn each_bound_has_its_reason() {
        assert_eq!(judged(|_| {}), Vec::<String>::new());
        let cases = [
            (judged(|f| f.lateness.p50_us = 201.0), "half of the packets were more than 201 us late"),
            (judged(|f| f.lateness.p99_us = 2001.0), "1 % of the packets were more than 2001 us late"),
            (judged(|f| f.lateness.max_us = 1e6), "a packet was 1000000 us late"),
            (judged(|f| f.lost_outside.not_read = 3), "3 packets came faster"),
            (judged(|f| f.lost_outside.not_sent = 4), "4 packets could not be sent on"),
            (judged(|f| f.lost_outside.on_interfaces = 5), "5 packets were dropped on the interfaces"),
            (judged(|f| f.lost_outside.not_understood = 6), "6 packets could not be understood"),
            (judged(|f| f.lost_outside.in_sockets = 7), "7 datagrams found the buffer"),
            (judged(|f| f.not_recorded = 8), "8 entries of the record"),
            (judged(|f| f.clock_step_s = -0.001), "the system's clock was set by -0.001"),
        ];
        for (why, wanted) in cases {
            assert!(why.len() == 1 && why[0].starts_with(wanted), "{why:?}: {wanted}");
        }
    }
}
