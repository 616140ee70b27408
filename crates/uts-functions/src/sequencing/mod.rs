//! Sequencing: in which order received data is handed over.
//!
//! The function keeps what arrived and was not handed over ([`Reassembly`]); a mechanism
//! chooses what is handed over next.

use crate::mechanism::Described;
use crate::registry;
use auto_impl::auto_impl;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;
use reassembly::{Delivery, Reassembly};

pub mod message_row;
pub mod ordered;
pub mod reassembly;
pub mod unordered;

pub use message_row::MessageRow;

/// A policy over [`Reassembly`].
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Sequencing: Described + DynClone {
    /// Takes out what is to be handed over next: at most `bytes_max` bytes of a run of bytes, or a whole message.
    fn next(&mut self, state: &mut Reassembly, bytes_max: usize) -> Option<Delivery>;
    /// Whether nothing is handed over before what stands in front of it.
    fn keeps_order(&self) -> bool;
}

dyn_clone::clone_trait_object!(Sequencing);

registry! {
    /// The sequencing mechanism in use.
    #[derive(Clone, Debug)]
    Slot: Sequencing, context: ();
    Ordered => ordered::Ordered,
    Unordered => unordered::Unordered,
}
