//! Beside what a paper has published, what was found here: whether the two agree.

use crate::reference::{Check, Item, Reference, SLIGHT};
use anyhow::{Result, bail};
use std::collections::BTreeSet;

/// Result of an experiment for an item.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The item's name.
    pub id: String,
    /// Value or figures that were found.
    pub ours: Ours,
}

/// A value, or the figures of a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Ours {
    /// In the item's unit.
    Value(f64),
    /// Figures by their names, in the units of the item's checks.
    Figures(Vec<(String, f64)>),
}

impl Finding {
    /// A value.
    pub fn value(id: impl Into<String>, value: f64) -> Self {
        Finding { id: id.into(), ours: Ours::Value(value) }
    }

    /// The figures of a statement.
    pub fn figures<N: Into<String>>(
        id: impl Into<String>,
        figures: impl IntoIterator<Item = (N, f64)>,
    ) -> Self {
        let figures = figures.into_iter().map(|(of, value)| (of.into(), value)).collect();
        Finding { id: id.into(), ours: Ours::Figures(figures) }
    }
}

/// Agreement of ours with the published value or statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the tolerance, or each figure within its bounds.
    Agrees,
    /// The same, but it rests on what the paper does not give, or only gives back what was put in.
    Shown,
    /// It does not, for the reason that the item gives, and as far as the item says.
    KnownToDiffer,
    /// It does not, and nothing says why; or it is not what the item says that ours was.
    Differs,
    /// Nothing was found for it.
    Missing,
}

impl Verdict {
    /// All, in the order in which they are counted.
    pub const ALL: [Verdict; 5] =
        [Verdict::Agrees, Verdict::Shown, Verdict::KnownToDiffer, Verdict::Differs, Verdict::Missing];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Shown => "shown",
            Verdict::Differs => "differs",
            Verdict::KnownToDiffer => "differs, as known",
            Verdict::Missing => "missing",
        }
    }

    /// True if a reproduction with it is as it should be.
    pub fn passes(self) -> bool {
        matches!(self, Verdict::Agrees | Verdict::Shown | Verdict::KnownToDiffer)
    }
}

/// An item with what was found for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Published item.
    pub item: Item,
    /// Distance from the published value that ours may have, as a share of the value.
    pub share: Option<f64>,
    /// Why it is shown at most, if it is.
    pub basis: Option<String>,
    /// Value or figures that were found; `None` if nothing was.
    pub ours: Option<Ours>,
    /// Agreement of the two.
    pub verdict: Verdict,
}

/// Judges the items that `is_wanted` says, in their order.
///
/// # Errors
/// A finding belongs to no item, or is a value where the item is a statement, or the reverse, or
/// has other figures than those that the item checks: the experiment and the file do not belong
/// together.
pub fn judge(
    reference: &Reference,
    findings: &[Finding],
    is_wanted: impl Fn(&Item) -> bool,
) -> Result<Vec<Judged>> {
    if let Some(stray) = findings.iter().find(|f| reference.item.iter().all(|item| item.id != f.id)) {
        bail!("the finding {} belongs to no item of the published figures", stray.id);
    }
    let mut judged = Vec::new();
    for item in reference.item.iter().filter(|item| is_wanted(item)) {
        let ours = findings.iter().find(|finding| finding.id == item.id).map(|finding| finding.ours.clone());
        let share = reference.share(item);
        let (agrees, is_as_said) = match &ours {
            None => (false, false),
            Some(Ours::Value(value)) => value_of(item, share, *value)?,
            Some(Ours::Figures(figures)) => figures_of(item, figures)?,
        };
        let verdict = match (agrees, &item.differs) {
            _ if ours.is_none() => Verdict::Missing,
            _ if !is_as_said => Verdict::Differs,
            (true, None) if item.basis.is_some() => Verdict::Shown,
            (true, None) => Verdict::Agrees,
            (false, Some(_)) => Verdict::KnownToDiffer,
            // What is known to differ and does not is not as it is known.
            (false, None) | (true, Some(_)) => Verdict::Differs,
        };
        let basis = item.basis.as_ref().and_then(|basis| reference.basis.get(basis)).cloned();
        judged.push(Judged { item: item.clone(), share, basis, ours, verdict });
    }
    Ok(judged)
}

/// Tells if a value is near enough to the published one, and if it is as the item says.
fn value_of(item: &Item, share: Option<f64>, value: f64) -> Result<(bool, bool)> {
    let (Some(published), Some(share), true) = (item.published, share, item.check.is_empty()) else {
        bail!("item {}: a value was found for a statement", item.id);
    };
    // Written so that a value that is no number does not agree.
    let is_near = ((value - published) / published).abs() <= share + SLIGHT;
    Ok((is_near, item.holds(value) && item.is_off_as_said(value)))
}

/// Tells if all figures are within their bounds, and if they are as the item says.
fn figures_of(item: &Item, figures: &[(String, f64)]) -> Result<(bool, bool)> {
    let id = &item.id;
    if item.check.is_empty() {
        bail!("item {id}: figures of a statement were found for a value");
    }
    let checked: BTreeSet<&str> = item.check.iter().map(|check| check.of.as_str()).collect();
    let measured: BTreeSet<&str> = figures.iter().map(|(of, _)| of.as_str()).collect();
    if checked != measured {
        bail!("item {id}: checks {checked:?}, but {measured:?} were measured");
    }
    let value = |of: &str| figures.iter().find(|(name, _)| name == of).map_or(f64::NAN, |(_, value)| *value);
    let agrees = item.check.iter().all(|check| check.admits(value(&check.of)));
    let is_as_said = |check: &Check| item.timed || check.holds(value(&check.of), item.held);
    Ok((agrees, item.check.iter().all(is_as_said)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(item: &str) -> Reference {
        let text = format!(
            "paper = \"p\"\n[tolerance.time]\nshare = 0.05\nwhy = \"w\"\n[basis]\ngiven = \"put in\"\n\
             [[item]]\nid = \"a\"\nplace = \"table 1\"\nwhat = \"w\"\n{item}"
        );
        Reference::parse(&text).expect("a good file")
    }

    fn verdict(reference: &Reference, findings: &[Finding]) -> Verdict {
        judge(reference, findings, |_| true).expect("they belong together")[0].verdict
    }

    const VALUE: &str = "published = 100.0\ntolerance = \"time\"\n";

    #[test]
    fn a_value_agrees_within_its_tolerance_if_it_is_what_ours_was() {
        for (ours, off, value, expected) in [
            (96.0, "-4", 96.0, Verdict::Agrees),
            (96.0, "-4", 96.1, Verdict::Agrees),
            (96.0, "-4", 97.0, Verdict::Differs),
            (105.0, "5", 105.0, Verdict::Agrees),
            (105.0, "5", 105.1, Verdict::Differs),
            (105.0, "5", f64::NAN, Verdict::Differs),
            (105.0, "5", -105.0, Verdict::Differs),
        ] {
            let reference = reference(&format!("{VALUE}ours = {ours}\noff = {off}"));
            assert_eq!(verdict(&reference, &[Finding::value("a", value)]), expected, "{ours}: {value}");
        }
        let shown = reference(&format!("{VALUE}ours = 100.0\noff = 0\nbasis = \"given\""));
        assert_eq!(verdict(&shown, &[Finding::value("a", 100.0)]), Verdict::Shown);
        assert_eq!(verdict(&shown, &[Finding::value("a", 120.0)]), Verdict::Differs);
    }

    /// A difference waives nothing: it is as far as it is known to be, and no other.
    #[test]
    fn a_difference_passes_only_with_its_reason_and_as_far_as_it_is_known() {
        let value = reference(&format!("{VALUE}ours = 80.0\noff = -20\ndiffers = \"another machine\""));
        assert_eq!(verdict(&value, &[Finding::value("a", 80.0)]), Verdict::KnownToDiffer);
        for wrong in [1.0, 79.0, 81.0, 1e6, 100.0] {
            assert_eq!(verdict(&value, &[Finding::value("a", wrong)]), Verdict::Differs, "{wrong}");
        }
        assert_eq!(verdict(&value, &[]), Verdict::Missing);
        let mut planted = value.clone();
        planted.item[0].published = Some(5.0);
        assert_eq!(verdict(&planted, &[Finding::value("a", 80.0)]), Verdict::Differs);
        planted = value;
        planted.item[0].differs = None;
        assert_eq!(verdict(&planted, &[Finding::value("a", 80.0)]), Verdict::Differs);
        assert!(!Verdict::Missing.passes() && !Verdict::Differs.passes() && Verdict::KnownToDiffer.passes());
    }

    #[test]
    fn a_statement_holds_if_all_its_figures_are_within_their_bounds() {
        let check = |of: &str, bound: &str, ours: f64| {
            format!("[[item.check]]\nof = \"{of}\"\n{bound}\nours = {ours}\n")
        };
        let text = check("repeats", "max = 2", 0.0) + &check("share", "min = 0.9", 0.95);
        let good = reference(&text);
        let found =
            |repeats: f64, share: f64| [Finding::figures("a", [("repeats", repeats), ("share", share)])];
        assert_eq!(verdict(&good, &found(0.0, 0.95)), Verdict::Agrees);
        for (repeats, share) in [(3.0, 0.95), (0.0, 0.8), (1.0, 0.95), (0.0, 0.99), (f64::NAN, 0.95)] {
            assert_eq!(verdict(&good, &found(repeats, share)), Verdict::Differs, "{repeats} {share}");
        }
        let known = reference(&format!("differs = \"why\"\n{}", check("repeats", "max = 2", 22.0)));
        for (repeats, expected) in
            [(22.0, Verdict::KnownToDiffer), (5000.0, Verdict::Differs), (2.0, Verdict::Differs)]
        {
            let found = [Finding::figures("a", [("repeats", repeats)])];
            assert_eq!(verdict(&known, &found), expected, "{repeats}");
        }
    }

    /// No machine takes the time of another: bounds alone hold for what is timed.
    #[test]
    fn what_is_timed_is_held_to_its_bounds_alone() {
        let timed =
            reference("timed = true\nbasis = \"given\"\n[[item.check]]\nof = \"f\"\nmax = 20\nours = 3");
        for (value, expected) in [
            (3.0, Verdict::Shown),
            (19.0, Verdict::Shown),
            (21.0, Verdict::Differs),
            (f64::NAN, Verdict::Differs),
        ] {
            assert_eq!(verdict(&timed, &[Finding::figures("a", [("f", value)])]), expected, "{value}");
        }
    }

    #[test]
    fn what_does_not_belong_together_is_an_error() {
        let statement = reference("[[item.check]]\nof = \"f\"\nmax = 2\nours = 1");
        let value = reference(&format!("{VALUE}ours = 100.0\noff = 0"));
        let refused = |reference: &Reference, finding: Finding| {
            judge(reference, &[finding], |_| true).expect_err("refused").to_string()
        };
        for (reference, finding, expected) in [
            (&statement, Finding::value("a", 1.0), "item a: a value was found for a statement"),
            (&statement, Finding::value("b", 1.0), "the finding b belongs to no item"),
            (
                &value,
                Finding::figures("a", [("f", 1.0)]),
                "item a: figures of a statement were found for a value",
            ),
            // The words of a claim are the name of what was measured.
            (
                &statement,
                Finding::figures("a", [("g", 1.0)]),
                "item a: checks {\"f\"}, but {\"g\"} were measured",
            ),
        ] {
            let error = refused(reference, finding);
            assert!(error.contains(expected), "{error}");
        }
    }
}
