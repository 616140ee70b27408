//! Establishment: how a connection comes to be. The packets and the TLS handshake that they carry
//! are the engine's; a mechanism says when to repeat them and when to give up.

use crate::mechanism::Described;
use crate::registry;
use auto_impl::auto_impl;
use core::time::Duration;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;

pub mod three_way;

/// Strongest sign of the peer so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Heard {
    /// Nothing: there may be nobody.
    Nothing,
    /// A first packet, from an address that may be forged.
    Claim,
    /// A packet that only a host at that address can have sent.
    Answer,
}

/// The timing of a handshake.
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Establishment: Described + DynClone {
    /// Time to wait for an answer to a flight that was sent `tries` times before (0 = first
    /// transmission), as long as no round trip was measured.
    fn timeout(&self, tries: u32) -> Duration;
    /// Time from its start until an unfinished handshake is given up.
    fn give_up_after(&self, heard: Heard) -> Duration;
}

dyn_clone::clone_trait_object!(Establishment);

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
    fn timeouts_double_from_a_second_to_two() {
        let choice = MECHANISMS[0].choice();
        let slot = Slot::build(&choice, ()).expect("mandatory");
        let millis: Vec<u128> = (0..5).map(|tries| slot.timeout(tries).as_millis()).collect();
        assert_eq!(millis, [999, 1998, 2000, 2000, 2000]);
        let patience = [Heard::Nothing, Heard::Claim, Heard::Answer].map(|heard| slot.give_up_after(heard));
        assert_eq!(patience, [10, 30, 60].map(Duration::from_secs));
    }

    /// Conformance: time-outs never shrink, never are zero, and a handshake is tried more than once
    /// before it is given up, for any number of tries and any parameters.
    #[test]
    fn timeouts_never_shrink() {
        for m in MECHANISMS {
            for patience in [1_000, 7_777, 120_000] {
                let choice = m.choice_with(&[("patience", patience)]).expect("in range");
                let slot = Slot::build(&choice, ()).expect("in range");
                let timeouts: Vec<Duration> = (0..100).chain([u32::MAX]).map(|n| slot.timeout(n)).collect();
                assert!(timeouts.windows(2).all(|w| w[0] <= w[1]), "{timeouts:?}");
                assert!(timeouts[0] > Duration::ZERO && timeouts[0] < slot.give_up_after(Heard::Nothing));
            }
        }
    }
}
