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
