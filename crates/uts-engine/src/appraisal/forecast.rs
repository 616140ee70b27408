//! Predicted effect of a profile on a path: the predictions of its mechanisms, one after the other.

use crate::host::HostFacts;
use uts_functions::{Function, PathFacts, Prediction, Profile};

/// The prediction after all mechanisms of the profile.
pub fn forecast(profile: &Profile, facts: &PathFacts) -> Prediction {
    steps(profile, facts).last().map_or_else(|| Prediction::of_path(facts), |(_, after)| after)
}

/// The prediction after all mechanisms of the profile, as far as the host can keep up.
pub(crate) fn forecast_on(profile: &Profile, (facts, host): (&PathFacts, &HostFacts)) -> Prediction {
    let mut prediction = forecast(profile, facts);
    host.bound(&mut prediction, facts);
    prediction
}

/// The prediction after each function's mechanism, in the order of [`Function::ALL`].
pub fn steps<'a>(
    profile: &'a Profile,
    facts: &'a PathFacts,
) -> impl Iterator<Item = (Function, Prediction)> + 'a {
    let mut prediction = Prediction::of_path(facts);
    Function::ALL.iter().map(move |&function| {
        if let Some(mechanism) = profile.mechanism(function) {
            let params = &profile.get(function).params;
            let before = prediction;
            if function == Function::Congestion {
                prediction = congestion(before, facts, |p| (mechanism.predict)(params, facts, p));
            } else {
                (mechanism.predict)(params, facts, &mut prediction);
            }
            sanitise(&mut prediction, &before);
        }
        (function, prediction)
    })
}

/// The queue on the path is congestion control's doing: it is shown the delay of the queue alone,
/// and what repair and spacing add to it is kept beside whatever it makes of that.
fn congestion(before: Prediction, facts: &PathFacts, predict: impl FnOnce(&mut Prediction)) -> Prediction {
    let queue = Prediction::of_path(facts);
    let mut after = Prediction { delay_s: queue.delay_s, delay_p99_s: queue.delay_p99_s, ..before };
    predict(&mut after);
    after.delay_s += (before.delay_s - queue.delay_s).max(0.0);
    after.delay_p99_s += (before.delay_p99_s - queue.delay_p99_s).max(0.0);
    after
}

/// A model that divides by what nobody has measured yet says nothing: the value before it stays.
fn sanitise(p: &mut Prediction, before: &Prediction) {
    let keep = |value: f64, old: f64| if value.is_finite() { value } else { old };
    p.utilisation = keep(p.utilisation, before.utilisation).clamp(0.0, 1.0);
    p.utilisation_low = keep(p.utilisation_low, before.utilisation_low).clamp(0.0, p.utilisation);
    p.expansion = keep(p.expansion, before.expansion).max(1.0);
    p.header_bytes = keep(p.header_bytes, before.header_bytes).max(0.0);
    p.loss = keep(p.loss, before.loss).clamp(0.0, 1.0);
    p.loss_seen = keep(p.loss_seen, before.loss_seen).clamp(0.0, 1.0);
    p.delay_s = keep(p.delay_s, before.delay_s).max(0.0);
    p.delay_p99_s = keep(p.delay_p99_s, before.delay_p99_s).max(p.delay_s);
    for (later, old) in [(&mut p.repaired, before.repaired), (&mut p.repeated, before.repeated)] {
        let is_sane = later.share.is_finite() && later.by_s.is_finite() && later.by_mean_s.is_finite();
        *later = if is_sane { *later } else { old };
    }
    p.cpu_ns = keep(p.cpu_ns, before.cpu_ns).max(0.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::appraisal::Library;
    use crate::appraisal::testing::path;
    use crate::selector::select;

    #[test]
    fn an_unknown_path_gives_finite_figures() {
        let requirements = crate::requirements::Requirements::bulk();
        let selection = select(&requirements, &PathFacts::default(), &Library::local(), None)
            .unwrap_or_else(|e| panic!("{e}"));
        let p = forecast(&selection.profile, &PathFacts::default());
        for value in [p.utilisation, p.expansion, p.delay_s, p.delay_p99_s, p.cpu_ns, p.header_bytes] {
            assert!(value.is_finite(), "{p:?}");
        }
    }

    #[test]
    fn congestion_control_does_not_hide_the_delay_of_repair() {
        let facts = path(50, 40, 0.05, 1.0, 0.0);
        let profile = Profile::bare();
        let repeated = profile
            .with_named(Function::Retransmission, "selective")
            .and_then(|p| p.with_named(Function::Congestion, "cubic"))
            .unwrap_or_else(|e| panic!("{e}"));
        let with = forecast(&repeated, &facts);
        assert!(with.delay_s >= 0.05 * 0.04 - 1e-9, "{with:?}");
    }
}
