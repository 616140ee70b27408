//! Agreement of the two ends: what they can have together, and what this end wants of it, for the
//! connection and for groups of flows.

pub(in crate::connection) mod adapt;
pub(in crate::connection) mod exchanges;
pub(in crate::connection) mod groups;
mod implicit;
pub(crate) mod numbers;
pub(in crate::connection) mod refusal;

use crate::connection::agreement::adapt::Adaptation;
use crate::connection::agreement::groups::Groups;
use crate::connection::agreement::numbers::Numbers;
use crate::selector::Library;
use std::sync::Arc;
use uts_functions::Profile;
use uts_wire::Hello;

/// State of the agreement: the mechanisms that can be agreed with the peer, and those that are
/// wanted.
pub(in crate::connection) struct Agreement {
    pub peer_library: Library,
    pub peer_allows_unprotected: bool,
    /// It reads packets with the request for their profile.
    pub peer_reads_use: bool,
    pub groups: Groups,
    pub adaptation: Option<Box<Adaptation>>,
    /// While the connection rests: the home profile of a policy that has learnt nothing yet.
    pub home: Option<Arc<Profile>>,
}

impl Agreement {
    /// At the beginning, with a peer of this greeting.
    pub fn new(peer: &Hello, numbers: Option<&Numbers>) -> Self {
        Agreement {
            peer_library: Library::from_pairs(Numbers::library_of(numbers, peer)),
            peer_allows_unprotected: peer.allows_unprotected,
            peer_reads_use: peer.reads_use,
            groups: Groups::default(),
            adaptation: None,
            home: None,
        }
    }
}
