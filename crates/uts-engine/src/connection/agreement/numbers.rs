//! Numbers by which the two ends of a connection write functions and mechanisms, where either has
//! its own (packets.md P-67).

use crate::config::ConnectionConfig;
use std::sync::Arc;
use uts_functions::Numbering;
use uts_functions::numbering::{Contradiction, FIRST_OWN};
use uts_wire::Hello;

/// The numbers of both ends.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// By these this end writes.
    own: Arc<Numbering>,
    /// By these it reads.
    peer: Numbering,
}

impl Numbers {
    /// The numbers that hold with a peer of this greeting; `None`: those of the specification, for
    /// one of the ends has not said that it reads others.
    ///
    /// # Errors
    /// Numbers of the peer that contradict each other.
    pub fn agreed(config: &ConnectionConfig, peer: &Hello) -> Result<Option<Box<Self>>, Contradiction> {
        let Some(said) = &peer.numbers else { return Ok(None) };
        let peer = Numbering::of_peer(said, peer.mechanisms.iter().copied())?;
        Ok(config.numbering().map(|own| Box::new(Numbers { own, peer })))
    }

    /// Mechanisms that a peer has, by their numbers here.
    pub fn library_of(numbers: Option<&Self>, peer: &Hello) -> impl Iterator<Item = (u8, u8)> {
        let specified = peer.mechanisms.iter().copied().filter(|(_, number)| *number < FIRST_OWN);
        let named = numbers.into_iter().flat_map(|numbers| numbers.peer.named_here());
        specified.chain(named.map(|(function, number)| (function.number(), number)))
    }

    /// The first that differs between the ends, in words.
    pub fn difference(&self) -> Option<String> {
        self.own.difference(&self.peer)
    }
}

/// Numbers by which this end writes.
pub(crate) fn own(numbers: &Option<Box<Numbers>>) -> Option<&Numbering> {
    numbers.as_ref().map(|numbers| &*numbers.own)
}

/// Numbers by which it reads.
pub(crate) fn peers(numbers: &Option<Box<Numbers>>) -> Option<&Numbering> {
    numbers.as_ref().map(|numbers| &numbers.peer)
}
