//! Careful resume: a connection that knows the path from the one before takes half of what that one
//! had, as soon as a first round trip says that the path is the same, and goes back if that was too
//! much (draft-ietf-tsvwg-careful-resume). From there on it is CUBIC.

use super::classic::{Classic, Reduced, SlowStart, Window};
use super::cubic::{Cubed, Cubic};
use super::hystart::HyStart;
use super::{Ack, Context, Summary};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Promise, Unasked};
use core::time::Duration;

/// See the module's page.
pub type CarefulResume = Classic<Resume, Cubed>;

impl CarefulResume {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Congestion,
        number: 11,
        name: "careful-resume",
        what: "begins with half of what is known of the path, then as cubic",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        facts: Facts {
            uniform: true,
            promises: &[Promise::Restraint, Promise::FullPath, Promise::FullShallowPath],
            unasked: Unasked::Never,
            ..Facts::PLAIN
        },
        predict: |params, facts, prediction| (Cubic::INFO.predict)(params, facts, prediction),
    };

    /// Builds it from what the predecessor knew, and the connection before.
    pub fn build(_: &Params, context: &Context) -> Self {
        let Summary { window_bytes, threshold_bytes, .. } = context.summary;
        // C-95: a path whose limit has been met is known better.
        let past = context.past.filter(|_| threshold_bytes == u64::MAX);
        let saved =
            past.map(|past| Saved { bytes: past.bandwidth.bytes_in(past.rtt_min), rtt: past.rtt_min });
        let phase = match saved.filter(|saved| saved.bytes / 2 > window_bytes) {
            Some(saved) => Phase::Reconnaissance(saved),
            None => Phase::Normal,
        };
        Classic::with(context, Resume { phase, search: HyStart::new() }, Cubed::default())
    }
}

/// Path as the last connection knew it: bytes in a round trip, and the round trip.
#[derive(Clone, Copy, Debug)]
struct Saved {
    bytes: u64,
    rtt: Duration,
}

/// The phases of the draft (section 3).
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The path is asked whether it is the same.
    Reconnaissance(Saved),
    /// More is in flight than has been acknowledged of this path: packets from this number on.
    Unvalidated { first: u64, pipe_bytes: u64 },
    /// Those packets are acknowledged, up to this number.
    Validating { end: u64, pipe_bytes: u64 },
    /// As any other.
    Normal,
}

/// Slow start that may begin with what is known.
#[derive(Clone, Debug)]
pub struct Resume {
    phase: Phase,
    search: HyStart,
}

impl Default for Resume {
    fn default() -> Self {
        Resume { phase: Phase::Normal, search: HyStart::new() }
    }
}

impl SlowStart for Resume {
    fn grow(&mut self, window: &Window, ack: &Ack) -> Option<f64> {
        match self.phase {
            Phase::Normal => {}
            Phase::Reconnaissance(saved) => {
                let Some(rtt) = ack.rtt else { return Some(window.exact) };
                // C-95, sections 3.2 and 3.3 of the draft: a path with another round trip is
                // another.
                if rtt < saved.rtt / 2 || rtt > saved.rtt * 10 {
                    self.phase = Phase::Normal;
                } else {
                    let pipe_bytes = ack.prior_in_flight.min(window.bytes);
                    self.phase = Phase::Unvalidated { first: ack.next_packet, pipe_bytes };
                    return Some((saved.bytes as f64 / 2.0).max(window.exact));
                }
            }
            Phase::Unvalidated { first, pipe_bytes } => {
                // C-96.
                if ack.largest >= first {
                    let pipe_bytes = pipe_bytes.saturating_add(ack.bytes);
                    self.phase = Phase::Validating { end: ack.next_packet, pipe_bytes };
                    return Some(
                        (ack.prior_in_flight as f64).clamp(window.packet_bytes as f64, window.exact),
                    );
                }
                return Some(window.exact);
            }
            Phase::Validating { end, pipe_bytes } => {
                let pipe_bytes = pipe_bytes.saturating_add(ack.bytes);
                let is_valid = ack.largest >= end;
                self.phase = if is_valid { Phase::Normal } else { Phase::Validating { end, pipe_bytes } };
                return Some(window.exact.max(pipe_bytes as f64));
            }
        }
        self.search.grow(window, ack)
    }

    fn reduce(&mut self, window: &Window) -> Option<Reduced> {
        let pipe_bytes = match self.phase {
            Phase::Unvalidated { pipe_bytes, .. } | Phase::Validating { pipe_bytes, .. } => pipe_bytes as f64,
            // C-95: a loss at the first says that the path is not as it was.
            _ => {
                self.phase = Phase::Normal;
                return None;
            }
        };
        // C-97, section 3.5 of the draft.
        self.phase = Phase::Normal;
        let window = (pipe_bytes / 2.0).min(window.exact);
        Some(Reduced { window, threshold: pipe_bytes * BETA })
    }

    fn phase(&self) -> &'static str {
        match self.phase {
            Phase::Reconnaissance(_) => "reconnaissance",
            Phase::Unvalidated { .. } => "unvalidated",
            Phase::Validating { .. } => "validating",
            Phase::Normal => "slow start",
        }
    }
}

/// Of what had been acknowledged before a safe retreat, the share at which slow start ends: CUBIC's
/// (RFC 9438 section 4.6).
const BETA: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::super::testing::{PACKET, RTT, Script, context};
    use super::*;
    use crate::congestion::{Congestion, Past};
    use crate::time::Rate;

    /// A path that held `packets` for a connection before.
    fn known(packets: u64, rtt: Duration) -> Script<CarefulResume> {
        let mut context = context(10, u64::MAX);
        context.past = Some(Past { bandwidth: Rate::from_delivery(packets * PACKET, rtt), rtt_min: rtt });
        Script::new(CarefulResume::build(&Params::default(), &context))
    }

    #[test]
    fn half_of_what_is_known_is_used_after_a_round_trip() {
        let mut s = known(400, RTT);
        assert_eq!((s.packets(), s.mechanism.phase()), (10.0, "reconnaissance"));
        s.round();
        assert!((s.packets() - 200.0).abs() < 1.0, "{}", s.packets());
        assert_eq!(s.mechanism.phase(), "unvalidated");
        s.round();
        s.round();
        assert_eq!(s.mechanism.phase(), "slow start");
        assert!(s.packets() >= 200.0, "{}", s.packets());
    }

    #[test]
    fn a_path_with_another_round_trip_is_another() {
        for rtt in [RTT / 20, RTT * 3] {
            let mut s = known(400, rtt);
            s.round();
            assert!(s.packets() <= 20.0, "{rtt:?}: {}", s.packets());
        }
    }

    #[test]
    fn a_loss_takes_back_what_was_not_validated() {
        let mut s = known(400, RTT);
        s.round();
        s.lose(50, s.now, false);
        assert!(s.packets() <= 5.0, "half of the ten that were acknowledged: {}", s.packets());
        assert_eq!(s.mechanism.summary().threshold_bytes, 7 * PACKET);
    }

    #[test]
    fn where_the_limit_is_known_the_past_is_none() {
        let mut context = context(100, 100 * PACKET);
        context.past = Some(Past { bandwidth: Rate::from_delivery(400 * PACKET, RTT), rtt_min: RTT });
        let s = Script::new(CarefulResume::build(&Params::default(), &context));
        assert_eq!((s.packets(), s.mechanism.phase()), (100.0, "recovery"));
    }
}
