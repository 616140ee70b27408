//! Beside what a paper has published, what was found here: whether the two agree.

use crate::reference::{Item, Reference};
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// What was found for an item.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The item's name.
    pub id: String,
    /// What it is.
    pub ours: Ours,
}

/// A value or what became of a statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ours {
    /// In the item's unit.
    Value(f64),
    /// Whether the statement holds, and the figures that say so.
    Shape {
        /// Whether it does.
        holds: bool,
        /// Which figures say so.
        seen: String,
    },
}

impl Finding {
    /// A value.
    pub fn value(id: impl Into<String>, value: f64) -> Self {
        Finding { id: id.into(), ours: Ours::Value(value) }
    }

    /// What became of a statement.
    pub fn shape(id: impl Into<String>, holds: bool, seen: impl Into<String>) -> Self {
        Finding { id: id.into(), ours: Ours::Shape { holds, seen: seen.into() } }
    }
}

/// Whether ours agrees with what was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within the tolerance, or the statement holds.
    Agrees,
    /// It does not, and nothing says why.
    Differs,
    /// It does not, for the reason that the item gives.
    KnownToDiffer,
    /// Nothing was found for it.
    Missing,
}

impl Verdict {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Differs => "differs",
            Verdict::KnownToDiffer => "differs, as known",
            Verdict::Missing => "missing",
        }
    }

    /// Whether a reproduction with it is as it should be.
    pub fn passes(self) -> bool {
        matches!(self, Verdict::Agrees | Verdict::KnownToDiffer)
    }
}

/// An item with what was found for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// What was published.
    pub item: Item,
    /// What was found; `None` if nothing was.
    pub ours: Option<Ours>,
    /// Whether the two agree.
    pub verdict: Verdict,
}

/// Judges the items that `is_wanted` says, in their order.
///
/// # Errors
/// A finding belongs to no item, or is a value where the item is a statement, or the reverse: the
/// experiment and the file do not belong together.
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
        let agrees = match (&ours, item.published, item.tolerance) {
            (None, ..) => None,
            (Some(Ours::Value(value)), Some(published), Some(tolerance)) => {
                // Written so that a value that is no number does not agree.
                Some(((value - published) / published).abs() <= tolerance)
            }
            (Some(Ours::Shape { holds, .. }), None, None) => Some(*holds),
            _ => bail!("item {}: a value was found for a statement, or the reverse", item.id),
        };
        let verdict = match agrees {
            None => Verdict::Missing,
            Some(true) => Verdict::Agrees,
            Some(false) if item.differs.is_some() => Verdict::KnownToDiffer,
            Some(false) => Verdict::Differs,
        };
        judged.push(Judged { item: item.clone(), ours, verdict });
    }
    Ok(judged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(item: &str) -> Reference {
        let text = format!("paper = \"p\"\n[[item]]\nid = \"a\"\nplace = \"table 1\"\nwhat = \"w\"\n{item}");
        Reference::parse(&text).expect("a good file")
    }

    #[test]
    fn a_value_agrees_within_its_tolerance_and_no_further() {
        let reference = reference("published = 100.0\ntolerance = 0.05");
        let verdict =
            |value: f64| judge(&reference, &[Finding::value("a", value)], |_| true).unwrap()[0].verdict;
        for (value, expected) in [
            (95.0, Verdict::Agrees),
            (105.0, Verdict::Agrees),
            (94.9, Verdict::Differs),
            (105.1, Verdict::Differs),
            (-100.0, Verdict::Differs),
            (f64::NAN, Verdict::Differs),
        ] {
            assert_eq!(verdict(value), expected, "{value}");
        }
    }

    #[test]
    fn a_difference_passes_only_with_its_reason_and_nothing_found_never() {
        let known = "differs = \"another machine\"";
        let value = reference(&format!("published = 100.0\ntolerance = 0.05\n{known}"));
        let verdict = |reference: &Reference, findings: &[Finding]| {
            judge(reference, findings, |_| true).expect("they belong together")[0].verdict
        };
        assert_eq!(verdict(&value, &[Finding::value("a", 1.0)]), Verdict::KnownToDiffer);
        assert_eq!(verdict(&value, &[Finding::value("a", 100.0)]), Verdict::Agrees);
        assert_eq!(verdict(&value, &[]), Verdict::Missing);
        let shape = reference("shape = \"flat\"");
        assert_eq!(verdict(&shape, &[Finding::shape("a", false, "steep")]), Verdict::Differs);
        assert_eq!(verdict(&shape, &[Finding::shape("a", true, "flat")]), Verdict::Agrees);
        assert!(!Verdict::Missing.passes() && !Verdict::Differs.passes() && Verdict::KnownToDiffer.passes());
    }

    #[test]
    fn what_does_not_belong_together_is_an_error() {
        let shape = reference("shape = \"flat\"");
        let error = judge(&shape, &[Finding::value("a", 1.0)], |_| true).expect_err("refused").to_string();
        assert!(error.contains("item a: a value was found for a statement"), "{error}");
        let error = judge(&shape, &[Finding::value("b", 1.0)], |_| true).expect_err("refused").to_string();
        assert!(error.contains("the finding b belongs to no item"), "{error}");
    }
}
