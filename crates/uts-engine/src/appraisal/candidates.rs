//! Profiles that are worth predicting: the home profile, the present profile, and profiles that
//! differ from home in what answers loss and queues. None violates a pin or requirement, or has a
//! mechanism that one end lacks.

use super::utility::Aim;
use super::{Library, rules};
use crate::requirements::{CapacityProfile, Requirements};
use uts_functions::mechanism::{Consent, Promise, Unasked};
use uts_functions::{Choice, Function, PathFacts, Profile, library};

/// The profiles to compare. `home` comes first.
pub(crate) fn candidates(
    requirements: &Requirements,
    facts: &PathFacts,
    usable: &Library,
    home: &Profile,
    current: &Profile,
) -> Vec<Profile> {
    let mut list = vec![*home];
    let congestion = congestion(requirements, facts, home, current);
    let fec = choices(Function::Fec, requirements, facts, home, current);
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

/// True if the profile is consistent, and each mechanism by which it differs from home is had by
/// both ends and allowed by the requirements.
fn permitted(requirements: &Requirements, usable: &Library, home: &Profile, profile: &Profile) -> bool {
    profile.check().is_ok()
        && home.differences(profile).all(|f| {
            let number = profile.get(f).number;
            usable.has(f, number) && rules::allows(requirements, f, number)
        })
}

/// Home's, the present one, and what may be used in mid-connection. A scavenger stays what it is:
/// everything else takes more. What is sent in time is not left to one that random losses slow
/// down.
fn congestion(
    requirements: &Requirements,
    facts: &PathFacts,
    home: &Profile,
    current: &Profile,
) -> Vec<Choice> {
    let is_fixed = requirements.congestion_control.is_unwanted()
        || requirements.conn_capacity_profile == CapacityProfile::Scavenger;
    if is_fixed {
        vec![*home.get(Function::Congestion)]
    } else {
        let mut list = choices(Function::Congestion, requirements, facts, home, current);
        if Aim::of(requirements) != Aim::Throughput {
            let bears = |choice: &Choice| {
                let mechanism = library::find(Function::Congestion, choice.number);
                mechanism.is_some_and(|m| m.promises(Promise::RandomLoss))
            };
            let is_known = |choice: &Choice| {
                [home, current].iter().any(|profile| profile.get(Function::Congestion) == choice)
            };
            list.retain(|choice| is_known(choice) || bears(choice));
        }
        list
    }
}

/// Home's, the present one, and what may be used in mid-connection without having been asked for by
/// name, in the order of the mechanisms' ranks, each with the parameters that it says are worth it
/// on this path.
fn choices(
    function: Function,
    requirements: &Requirements,
    facts: &PathFacts,
    home: &Profile,
    current: &Profile,
) -> Vec<Choice> {
    let mut list = vec![*home.get(function)];
    if requirements.pinned(function).is_some() {
        return list;
    }
    list.push(*current.get(function));
    let is_candidate = |unasked| matches!(unasked, Unasked::Candidate(_));
    let library = library::of(function);
    let mut free: Vec<_> =
        library.iter().filter(|m| is_candidate(m.facts.unasked) && m.consent == Consent::NotNeeded).collect();
    free.sort_by_key(|m| m.facts.unasked.rank());
    for mechanism in free {
        let number = mechanism.number;
        match mechanism.facts.tuned {
            Some(tuned) => list.extend(tuned(facts).into_iter().map(|params| Choice { number, params })),
            None => list.push(mechanism.choice()),
        }
    }
    list.dedup();
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::appraisal::testing::path;
    use crate::selector::select;

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
}
