//! Costs of mechanisms: work that a packet is only when the profile that it was built under has
//! them.

use super::Cost;
use core::time::Duration;
use uts_engine::Direction;
use uts_functions::{Function, Profile, library};

/// Costs that a mechanism adds to the work of each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MechanismCost {
    /// Its function.
    pub function: Function,
    /// Its number in the function.
    pub number: u8,
    /// For a packet that is sent.
    pub send: Cost,
    /// For a packet that is received.
    pub receive: Cost,
}

impl MechanismCost {
    /// The same for packets that are sent and received.
    pub const fn both(function: Function, number: u8, cost: Cost) -> Self {
        MechanismCost { function, number, send: cost, receive: cost }
    }

    /// Time that all mechanisms of a profile add to the work of a packet of `bytes`, as paths are
    /// offered them, in a direction of data.
    pub fn total(costs: &[MechanismCost], profile: &Profile, direction: Direction, bytes: usize) -> Duration {
        let is_in_use = |cost: &&MechanismCost| profile.get(cost.function).number == cost.number;
        let of = |cost: &MechanismCost| match direction {
            Direction::Out => cost.send.of(bytes),
            Direction::In => cost.receive.of(bytes),
        };
        costs.iter().filter(is_in_use).map(of).fold(Duration::ZERO, Duration::saturating_add)
    }
}

/// The mechanism that `FUNCTION/MECHANISM` names.
pub(super) fn read(name: &str) -> Result<(Function, u8), String> {
    let all = || library::all().map(|m| (m, format!("{}/{}", m.function.name(), m.name)));
    if let Some((mechanism, _)) = all().find(|(_, known)| known == name) {
        return Ok((mechanism.function, mechanism.number));
    }
    let known: Vec<String> = all().map(|(_, known)| known).collect();
    let nearest = uts_engine::requirements::nearest(name, known.iter().map(String::as_str));
    Err(match (nearest, name.split_once('/').and_then(|(f, _)| Function::from_name(f))) {
        (Some(near), _) => format!("there is no mechanism `{name}`; did you mean `{near}`?"),
        (None, Some(function)) => {
            let names: Vec<&str> = library::of(function).iter().map(|m| m.name).collect();
            format!("there is no mechanism `{name}`; {} has {}", function.name(), names.join(", "))
        }
        (None, None) => {
            let names: Vec<&str> = Function::ALL.iter().map(|f| f.name()).collect();
            format!("there is no mechanism `{name}`; expected FUNCTION/MECHANISM, of {}", names.join(", "))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mechanisms_in_use_cost_anything() {
        let us = Duration::from_micros;
        let (function, number) = read("detection/crc-32").expect("in the library");
        let (_, other) = read("detection/crc-64").expect("in the library");
        let (send, receive) = (Cost { packet: us(3), kilobyte: us(10) }, Cost::fixed(us(7)));
        let costs = [
            MechanismCost { function, number, send, receive },
            MechanismCost::both(function, other, Cost::fixed(us(50))),
            MechanismCost::both(Function::Congestion, 0, Cost::fixed(us(1))),
        ];
        let with = |name| Profile::bare().with_named(function, name).expect("in the library");
        for (name, direction, expected_us) in [
            ("crc-32", Direction::Out, 3 + 15 + 1),
            ("crc-32", Direction::In, 7 + 1),
            ("crc-64", Direction::Out, 50 + 1),
            ("none", Direction::In, 1),
        ] {
            let found = MechanismCost::total(&costs, &with(name), direction, 1500);
            assert_eq!(found, us(expected_us), "{name}, {direction:?}");
        }
    }
}
