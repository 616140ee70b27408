//! Establishment: how a connection comes to be. The packets and the TLS handshake that they carry are the engine's; a
//! mechanism says when to repeat them and when to give up.

use crate::registry;
use core::time::Duration;
use enum_dispatch::enum_dispatch;

pub mod three_way;

/// The timing of a handshake.
#[enum_dispatch]
pub trait Establishment {
    /// How long to wait for an answer to a flight that was sent `tries` times before (0 = first transmission), as long
    /// as no round trip was measured.
    fn timeout(&self, tries: u32) -> Duration;
    /// How long after its start an unfinished handshake is given up.
    fn give_up_after(&self) -> Duration;
}

registry! {
    /// The establishment mechanism in use.
    #[derive(Clone, Debug)]
    Slot: Establishment, context: ();
    ThreeWay => three_way::ThreeWay,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_double_from_a_second_up_to_patience() {
        let choice = MECHANISMS[0].choice();
        let slot = Slot::build(&choice, ()).expect("mandatory");
        let millis: Vec<u128> = (0..5).map(|tries| slot.timeout(tries).as_millis()).collect();
        assert_eq!(millis, [999, 1998, 3996, 7992, 10_000]);
        assert_eq!(slot.give_up_after(), Duration::from_secs(10));
    }

    /// Conformance: time-outs never shrink, never are zero, and a handshake is tried more than once before it is
    /// given up, for any number of tries and any parameters.
    #[test]
    fn timeouts_never_shrink() {
        for m in MECHANISMS {
            for patience in [1_000, 7_777, 120_000] {
                let choice = m.choice_with(&[("patience", patience)]).expect("in range");
                let slot = Slot::build(&choice, ()).expect("in range");
                let timeouts: Vec<Duration> = (0..100).chain([u32::MAX]).map(|n| slot.timeout(n)).collect();
                assert!(timeouts.windows(2).all(|w| w[0] <= w[1]), "{timeouts:?}");
                assert!(timeouts[0] > Duration::ZERO && timeouts[0] < slot.give_up_after());
            }
        }
    }
}
