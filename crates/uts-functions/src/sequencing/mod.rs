//! Sequencing: in which order received data is handed over.
//!
//! The function keeps what arrived and was not handed over ([`Reassembly`]); a mechanism
//! chooses what is handed over next.

use crate::facts::PathFacts;
use crate::mechanism::{Described, Prediction};
use crate::registry;
use auto_impl::auto_impl;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;
use reassembly::{Delivery, Reassembly};

pub mod keys;
pub mod message_row;
pub mod newest;
pub mod ordered;
pub mod partial_order;
pub mod per_key;
pub mod reassembly;
#[cfg(test)]
mod testing;
pub mod unordered;

pub use keys::Keys;
pub use message_row::MessageRow;

/// A policy over [`Reassembly`].
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Sequencing: Described + DynClone {
    /// Takes out what is to be handed over next: at most `bytes_max` bytes of a run of bytes, or a
    /// whole message.
    fn next(&mut self, state: &mut Reassembly, bytes_max: usize) -> Option<Delivery>;
    /// Which whole messages may be handed over many at once, without asking [`Sequencing::next`]
    /// for each: none, unless the mechanism says so.
    fn rows(&self) -> Rows {
        Rows::Apart
    }
}

/// Predicts that data that arrives behind a loss waits for its repair: head-of-line blocking, for
/// one part in `parts` of a round trip in the mean.
fn predict_blocking(facts: &PathFacts, p: &mut Prediction, parts: f64) {
    let flight = (facts.bdp_bytes() / facts.mtu_bytes.max(1)).max(1) as f64;
    let blocked = (p.loss * flight).min(1.0);
    p.delay_s += blocked * facts.rtt_smoothed.as_secs_f64() / parts;
}

/// Whole messages that a mechanism hands over as they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Those in front, in their order.
    InOrder,
    /// All that are whole.
    AnyOrder,
    /// None: each is the mechanism's to choose.
    Apart,
}

/// Hands over rows of whole messages where the mechanism lets them go together, as
/// [`Reassembly::take_messages`] does. Says whether more is wanted: that is for
/// [`Sequencing::next`].
#[inline]
pub fn take_rows(
    mechanism: &impl Sequencing,
    state: &mut Reassembly,
    take: impl FnMut(&mut MessageRow) -> bool,
) -> bool {
    match mechanism.rows() {
        Rows::InOrder => state.take_messages(true, take),
        Rows::AnyOrder => state.take_messages(false, take),
        Rows::Apart => true,
    }
}

dyn_clone::clone_trait_object!(Sequencing);

registry! {
    /// The sequencing mechanism in use.
    #[derive(Clone, Debug)]
    Slot: Sequencing, context: ();
    Ordered => ordered::Ordered,
    Unordered => unordered::Unordered,
    PartialOrder => partial_order::PartialOrder,
    Newest => newest::Newest,
    PerKey => per_key::PerKey,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::{Described, Mechanism};
    use crate::sequencing::message_row::Places;
    use bytes::Bytes;

    /// A mechanism that says nothing of rows.
    #[derive(Clone, Debug)]
    struct OneByOne;

    impl Described for OneByOne {
        fn info(&self) -> &'static Mechanism {
            &unordered::Unordered::INFO
        }
    }

    impl Sequencing for OneByOne {
        fn next(&mut self, state: &mut Reassembly, bytes_max: usize) -> Option<Delivery> {
            state.pop_any(bytes_max)
        }
    }

    /// It is asked for each message, also where many came whole in one packet.
    #[test]
    fn a_mechanism_that_chooses_is_not_passed_by() {
        let mut state = Reassembly::default();
        let rows = [Places::one(0, 3, false), Places::one(3, 8, false)];
        state.insert_messages(0, &Bytes::from_static(b"onethree"), &rows, u64::MAX).expect("in the limit");
        let mut taken = 0;
        assert!(take_rows(&OneByOne, &mut state, |_| {
            taken += 1;
            true
        }));
        assert_eq!(taken, 0);
        let next = [OneByOne.next(&mut state, 100), OneByOne.next(&mut state, 100)];
        let texts: Vec<_> = next
            .into_iter()
            .map(|delivery| match delivery {
                Some(Delivery::Message(_, data)) => data,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(texts, ["one", "three"]);
        assert_eq!(OneByOne.next(&mut state, 100), None);
    }
}
