//! First profiles of connections, before anything is known of path and peer.

use crate::config::ConnectionConfig;
use crate::selector::{self, Contradiction};
use uts_functions::mechanism::{Mechanism, Promise};
use uts_functions::{Function, PathFacts, Profile, library};

/// First profile of connections under these settings at a server whose client has the same
/// settings, as most have.
pub(super) fn first_profile(config: &ConnectionConfig) -> Profile {
    made_mandatory(own_profile(config).unwrap_or_else(|_| Profile::bare()))
}

/// First profile of a client's connections under these settings.
pub(super) fn proposal(config: &ConnectionConfig) -> Result<Profile, Contradiction> {
    own_profile(config).map(made_mandatory)
}

/// Profile that these settings ask for, while nothing is known of path and peer.
fn own_profile(config: &ConnectionConfig) -> Result<Profile, Contradiction> {
    selector::select(&config.requirements, &PathFacts::default(), &config.library(), None).map(|s| s.profile)
}

/// A first profile holds only what every endpoint has. Where the selector wants more, what is most
/// like it stands in, and an exchange follows. (selection.md S-41)
fn made_mandatory(wanted: Profile) -> Profile {
    let mut first = wanted;
    for &function in Function::ALL {
        let optional = wanted.mechanism(function).filter(|m| !m.mandatory);
        if let Some(m) = optional.and_then(|optional| library::nearest(optional, |m| m.mandatory)) {
            first.set(function, m.choice());
        }
    }
    // What was to bound the first flight comes with the exchange.
    let is_unbound = [Function::Flow, Function::Rate].iter().any(|f| first.get(*f) != wanted.get(*f));
    if is_unbound && wanted.is_inert(Function::Congestion) {
        let yielding = |m: &&Mechanism| m.mandatory && m.facts.promises.contains(&Promise::Restraint);
        let list = library::of(Function::Congestion).into_iter().filter(yielding);
        if let Some(m) = list.min_by_key(|m| m.facts.unasked.rank_or_last()) {
            first.set(Function::Congestion, m.choice());
        }
    }
    first
}
