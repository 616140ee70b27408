//! All mechanisms that this endpoint has.

use crate::function::Function;
use crate::mechanism::Mechanism;
use crate::{
    acknowledgement, congestion, detection, establishment, fec, flow, presentation, protection, rate,
    retransmission, segmentation, sequencing, timing,
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

/// The mechanisms of a function, in the order of their numbers.
pub fn of(function: Function) -> &'static [&'static Mechanism] {
    match function {
        Function::Establishment => establishment::MECHANISMS,
        Function::Presentation => presentation::MECHANISMS,
        Function::Segmentation => segmentation::MECHANISMS,
        Function::Sequencing => sequencing::MECHANISMS,
        Function::Fec => fec::MECHANISMS,
        Function::Retransmission => retransmission::MECHANISMS,
        Function::Acknowledgement => acknowledgement::MECHANISMS,
        Function::Timing => timing::MECHANISMS,
        Function::Flow => flow::MECHANISMS,
        Function::Rate => rate::MECHANISMS,
        Function::Congestion => congestion::MECHANISMS,
        Function::Detection => detection::MECHANISMS,
        Function::Protection => protection::MECHANISMS,
    }
}

/// All mechanisms of all functions.
pub fn all() -> impl Iterator<Item = &'static Mechanism> {
    Function::ALL.iter().flat_map(|f| of(*f).iter().copied())
}

/// The mechanism of that number.
pub fn find(function: Function, number: u8) -> Option<&'static Mechanism> {
    of(function).iter().copied().find(|m| m.number == number)
}

/// The mechanism of that name.
///
/// # Errors
/// [`UnknownName`], naming what there is.
pub fn by_name(function: Function, name: &str) -> Result<&'static Mechanism, UnknownName> {
    of(function).iter().copied().find(|m| m.name == name).ok_or_else(|| UnknownName {
        function,
        name: name.to_owned(),
        known: of(function).iter().map(|m| m.name).collect::<Vec<_>>().join(", "),
    })
}

/// The name of a mechanism by its number (`?` if there is none).
pub fn name_of(function: Function, number: u8) -> &'static str {
    find(function, number).map_or("?", |m| m.name)
}
