//! All mechanisms that this endpoint has.

use crate::external::Listed;
use crate::function::Function;
use crate::mechanism::Mechanism;
use crate::{
    acknowledgement, congestion, detection, establishment, fec, finding, flow, playout, presentation,
    protection, rate, retransmission, segmentation, sequencing, timing,
};

/// No mechanism of a function has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} has no mechanism `{name}` (it has: {known})", function.name())]
pub struct UnknownName {
    /// The function.
    pub function: Function,
    /// The name that was given.
    pub name: String,
    /// Names that exist.
    pub known: String,
}

/// The mechanisms of a function that this crate has, in the order of their numbers, and those from
/// outside it.
fn registry(function: Function) -> (&'static [&'static Mechanism], &'static dyn Listed) {
    macro_rules! of {
        ($module:ident) => {
            ($module::MECHANISMS, &$module::EXTERNAL)
        };
    }
    match function {
        Function::Establishment => of!(establishment),
        Function::Presentation => of!(presentation),
        Function::Segmentation => of!(segmentation),
        Function::Sequencing => of!(sequencing),
        Function::Fec => of!(fec),
        Function::Retransmission => of!(retransmission),
        Function::Acknowledgement => of!(acknowledgement),
        Function::Timing => of!(timing),
        Function::Flow => of!(flow),
        Function::Rate => of!(rate),
        Function::Congestion => of!(congestion),
        Function::Detection => of!(detection),
        Function::Protection => of!(protection),
        Function::Finding => of!(finding),
        Function::Playout => of!(playout),
    }
}

/// The mechanisms of a function, in the order of their numbers.
pub fn of(function: Function) -> Vec<&'static Mechanism> {
    let (own, external) = registry(function);
    own.iter().copied().chain(external.list()).collect()
}

/// The mechanisms of a function that this crate has: those of the specification.
pub fn built_in(function: Function) -> &'static [&'static Mechanism] {
    registry(function).0
}

/// All mechanisms of all functions.
pub fn all() -> impl Iterator<Item = &'static Mechanism> {
    // Nothing is allocated while no program has mechanisms of its own.
    Function::ALL.iter().flat_map(|function| {
        let (own, external) = registry(*function);
        own.iter().copied().chain(external.list())
    })
}

/// The mechanism of that number.
pub fn find(function: Function, number: u8) -> Option<&'static Mechanism> {
    let (own, external) = registry(function);
    own.iter().copied().find(|m| m.number == number).or_else(|| external.entry(number))
}

/// The mechanism of that name.
///
/// # Errors
/// [`UnknownName`], naming what there is.
pub fn by_name(function: Function, name: &str) -> Result<&'static Mechanism, UnknownName> {
    let list = of(function);
    list.iter().copied().find(|m| m.name == name).ok_or_else(|| UnknownName {
        function,
        name: name.to_owned(),
        known: list.iter().map(|m| m.name).collect::<Vec<_>>().join(", "),
    })
}

/// Mechanism most like `wanted`, of those of its function that come into question.
///
/// It is `wanted` itself, else the mechanism that keeps the most of its promises. Of several, it is
/// one that performs the function if `wanted` does, then the one of the first rank and the smallest
/// number.
pub fn nearest(wanted: &Mechanism, may: impl Fn(&Mechanism) -> bool) -> Option<&'static Mechanism> {
    let unlike = |m: &Mechanism| {
        let broken = wanted.facts.promises.iter().filter(|p| !m.facts.promises.contains(p)).count();
        let is_unlike = m.facts.inert != wanted.facts.inert;
        (m.number != wanted.number, broken, is_unlike, m.facts.unasked.rank_or_last(), m.number)
    };
    of(wanted.function).into_iter().filter(|m| may(m)).min_by_key(|m| unlike(m))
}

/// The name of a mechanism by its number (`?` if there is none).
pub fn name_of(function: Function, number: u8) -> &'static str {
    find(function, number).map_or("?", |m| m.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_for_a_mechanism_does_what_it_does() {
        for wanted in all() {
            let (function, name) = (wanted.function.name(), wanted.name);
            let m = nearest(wanted, |m| m.mandatory).expect("each function has a mandatory one");
            assert!(!wanted.mandatory || m.number == wanted.number, "{function}/{name} stands for itself");
            // What is inert may stand in only where nothing else is there for all.
            let acts = of(wanted.function).iter().any(|m| m.mandatory && !m.facts.inert);
            assert!(!m.facts.inert || wanted.facts.inert || !acts, "{function}/{name}: {}", m.name);
            // Nothing that all have takes less than the rest: that is asked for with a preference.
            let may_go = crate::mechanism::Promise::LowerThanBestEffort;
            for promise in wanted.facts.promises.iter().filter(|promise| **promise != may_go) {
                let kept = m.facts.promises.contains(promise);
                assert!(kept, "{function}/{name}: {} gives up that it {}", m.name, promise.words());
            }
        }
    }
}
