//! Dictionaries of messages, for mechanisms that were asked for without one.

use uts::Requirements;
use uts::requirements::Pin;
use uts_functions::presentation::dictionary;
use uts_functions::{Function, library};

/// The parameter of a mechanism that names a dictionary.
const PARAMETER: &str = "dictionary";

/// Gives the first registered dictionary to a mechanism that can use one, and was asked for
/// without.
pub fn complete(requirements: &mut Requirements) {
    let Some(number) = dictionary::registered().first().copied() else { return };
    let Some(pin) = requirements.pinned(Function::Presentation).copied() else { return };
    let Some(mechanism) = library::find(pin.function, pin.choice.number) else { return };
    let place = mechanism.params.iter().position(|param| param.name == PARAMETER);
    if let Some(place) = place.filter(|place| pin.choice.params.get(*place) == 0) {
        let mut choice = pin.choice;
        choice.params.0[place] = number;
        requirements.pin(Pin { choice, ..pin });
    }
}
