//! Which profiles are worth predicting: the home profile, the present one, and those that differ from home in what
//! answers loss and queues. None violates a pin or requirement, or has a mechanism that one end lacks.

use crate::requirements::{CapacityProfile, Requirements};
use crate::selector::{Library, rules};
use uts_functions::{Choice, Function, PathFacts, Profile, library};

/// Loss below this (0..=1) is left to retransmission, or borne.
const LOSS_MIN: f64 = 0.0005;
/// The raised loss threshold: this many times the random loss, and the more generous one where bursts are long beside
/// the path's bandwidth-delay product. In thousandths, within the bounds that follow.
const THRESHOLD_FACTORS: [f64; 2] = [3.0, 5.0];
const THRESHOLD_MIN: u64 = 50;
const THRESHOLD_MAX: u64 = 300;
/// Sources in a block.
const XOR_DATA: [u64; 2] = [5, 10];
const BLOCK_DATA: f64 = 20.0;
/// Parities beyond the mean number of losses in a block, in standard deviations.
const PARITY_DEVIATIONS: [f64; 3] = [1.0, 2.0, 3.0];

/// The profiles to compare. `home` comes first.
pub(super) fn candidates(
    requirements: &Requirements,
    facts: &PathFacts,
    usable: &Library,
    home: &Profile,
    current: &Profile,
) -> Vec<Profile> {
    let mut list = vec![*home];
    let congestion = congestion(requirements, facts, home, current);
    let fec = fec(requirements, facts, home, current);
    for c in &congestion {
        for f in &fec {
            let profile = home.with(Function::Congestion, *c).with(Function::Fec, *f);
            if !list.contains(&profile) && permitted(requirements, usable, home, &profile) {
                list.push(profile);
            }
        }
    }
    if !list.contains(current) {
        list.push(*current);
    }
    list
}

/// Whether both ends can, and the requirements allow, what differs from home.
fn permitted(requirements: &Requirements, usable: &Library, home: &Profile, profile: &Profile) -> bool {
    profile.check().is_ok()
        && home.differences(profile).all(|f| {
            let number = profile.get(f).number;
            usable.has(f, number) && rules::allows(requirements, f, number)
        })
}

fn named(function: Function, name: &str, settings: &[(&str, u64)]) -> Option<Choice> {
    library::by_name(function, name).ok()?.choice_with(settings).ok()
}

/// Home's, the present one, CUBIC, BBR, and BBR with a loss threshold above the loss that congestion does not cause.
/// A scavenger stays what it is: everything else takes more.
fn congestion(
    requirements: &Requirements,
    facts: &PathFacts,
    home: &Profile,
    current: &Profile,
) -> Vec<Choice> {
    let mut list = vec![*home.get(Function::Congestion)];
    let fixed = requirements.pinned(Function::Congestion).is_some()
        || requirements.congestion_control.is_unwanted()
        || requirements.conn_capacity_profile == CapacityProfile::Scavenger;
    if fixed {
        return list;
    }
    list.push(*current.get(Function::Congestion));
    list.extend(["cubic", "bbr"].iter().filter_map(|name| named(Function::Congestion, name, &[])));
    let random = facts.loss_random();
    if random >= LOSS_MIN {
        for factor in THRESHOLD_FACTORS {
            let threshold = (factor * random * 100.0).ceil() as u64 * 10;
            let threshold = threshold.clamp(THRESHOLD_MIN, THRESHOLD_MAX);
            list.extend(named(Function::Congestion, "bbr", &[("loss-threshold", threshold)]));
        }
    }
    list.dedup();
    list
}

/// Home's, the present one, and where packets are lost, codes sized to how many and how many in a row.
fn fec(requirements: &Requirements, facts: &PathFacts, home: &Profile, current: &Profile) -> Vec<Choice> {
    let mut list = vec![*home.get(Function::Fec)];
    if requirements.pinned(Function::Fec).is_some() {
        return list;
    }
    list.push(*current.get(Function::Fec));
    list.extend(named(Function::Fec, "none", &[]));
    if facts.loss >= LOSS_MIN {
        let burst = facts.loss_burst.max(1.0);
        for data in XOR_DATA {
            let interleave = burst.ceil().min(f64::from(u32::MAX)) as u64;
            list.extend(capped(Function::Fec, "xor", &[("data", data), ("interleave", interleave)]));
        }
        for deviations in PARITY_DEVIATIONS {
            let parity = parities(facts.loss, burst, deviations);
            let settings = [("data", BLOCK_DATA as u64), ("parity", parity)];
            list.extend(capped(Function::Fec, "reed-solomon", &settings));
        }
    }
    list.dedup();
    list
}

/// Parities that meet the mean number of losses in a block and some deviations, and a whole burst in any case. Losses in
/// runs of `burst` vary as the sum of `2 burst - 1` times as many alike.
fn parities(loss: f64, burst: f64, deviations: f64) -> u64 {
    let mut parity = 1.0f64;
    // The parities are lost as well: twice round is close enough.
    for _ in 0..2 {
        let packets = BLOCK_DATA + parity;
        let mean = packets * loss;
        let deviation = (mean * (1.0 - loss).max(0.0) * (2.0 * burst - 1.0)).sqrt();
        parity = (mean + deviations * deviation).ceil().clamp(1.0, BLOCK_DATA);
    }
    parity as u64
}

/// A mechanism with settings, each brought into its range.
fn capped(function: Function, name: &str, settings: &[(&str, u64)]) -> Option<Choice> {
    let mechanism = library::by_name(function, name).ok()?;
    let within: Vec<(&str, u64)> = settings
        .iter()
        .filter_map(|(name, value)| {
            let p = mechanism.params.iter().find(|p| p.name == *name)?;
            Some((*name, (*value).clamp(u64::from(p.min), u64::from(p.max))))
        })
        .collect();
    mechanism.choice_with(&within).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selector::select;
    use crate::selector::tests::path;

    fn home(requirements: &Requirements) -> Profile {
        select(requirements, &PathFacts::default(), &Library::local(), None)
            .unwrap_or_else(|e| panic!("{e}"))
            .profile
    }

    #[test]
    fn pins_and_libraries_bound_the_candidates() {
        let facts = path(50, 40, 0.05, 4.0, 0.0);
        let mut r = Requirements::bulk();
        let all = candidates(&r, &facts, &Library::local(), &home(&r), &home(&r));
        assert!(all.iter().any(|p| p.name(Function::Congestion) == "bbr"));
        assert!(all.iter().any(|p| p.name(Function::Fec) == "reed-solomon"));
        let mut fewer = Library::local();
        fewer.remove(Function::Congestion, 3);
        fewer.remove(Function::Fec, 2);
        let some = candidates(&r, &facts, &fewer, &home(&r), &home(&r));
        assert!(some.len() > 1 && some.iter().all(|p| fewer.has_all(p)));
        r.assign("uts.profile.congestion=new-reno").unwrap_or_else(|e| panic!("{e}"));
        r.assign("uts.profile.fec=xor(data=4)").unwrap_or_else(|e| panic!("{e}"));
        let pinned = candidates(&r, &facts, &Library::local(), &home(&r), &home(&r));
        assert_eq!(pinned, [home(&r)]);
    }

    #[test]
    fn a_clean_path_needs_no_codes_and_no_raised_threshold() {
        let r = Requirements::bulk();
        let list = candidates(&r, &path(50, 40, 0.0, 1.0, 0.0), &Library::local(), &home(&r), &home(&r));
        let names: Vec<String> = list.iter().map(|p| p.describe(Function::Congestion)).collect();
        assert_eq!(names, ["cubic", "bbr"]);
        assert!(list.iter().all(|p| p.name(Function::Fec) == "none"));
    }

    #[test]
    fn parities_grow_with_loss_and_bursts() {
        assert!(parities(0.05, 1.0, 2.0) < parities(0.05, 4.0, 2.0));
        assert!(parities(0.01, 1.0, 2.0) < parities(0.10, 1.0, 2.0));
        assert_eq!(parities(0.0, 1.0, 3.0), 1);
        assert_eq!(parities(1.0, 1000.0, 3.0), BLOCK_DATA as u64);
    }
}
