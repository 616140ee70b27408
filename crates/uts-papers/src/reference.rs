//! Published figures and statements of papers: a file for each in `reference/`, with ours beside
//! them.
//!
//! A file cannot be talked round. A tolerance is said for a kind of figure, not for a single
//! figure. Each value and each checked figure has ours beside it, and is held to it. A statement
//! has no words of its own: it is made of the figures that are checked, and of their bounds.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// A paper's published figures.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Author, title, year.
    pub paper: String,
    /// Distance from published values that is tolerated, by the kind of figure.
    #[serde(default)]
    pub tolerance: BTreeMap<String, Tolerance>,
    /// Assumptions of results that the paper does not give: why such an item is shown at most.
    #[serde(default)]
    pub basis: BTreeMap<String, String>,
    /// Items that are judged, in the order of the report.
    pub item: Vec<Item>,
    /// Pictures.
    #[serde(default)]
    pub figure: Vec<Drawn>,
}

/// A figure, of columns that units leave.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drawn {
    /// Where in the paper it is.
    pub place: String,
    /// Which of several of that place it is.
    #[serde(default)]
    pub part: String,
    /// Its kind.
    #[serde(default)]
    pub kind: Kind,
    /// Its title.
    pub title: String,
    /// Below it; values in braces, as [`crate::data`] has them.
    #[serde(default)]
    pub subtitle: String,
    /// The horizontal axis.
    pub x: String,
    /// The vertical axis.
    #[serde(default)]
    pub y: String,
    /// True if the horizontal axis is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// End of the horizontal axis of a sequence.
    pub x_max: Option<f64>,
    /// End of the vertical axis.
    pub y_max: Option<f64>,
    /// Lanes of a time line, from the top.
    #[serde(default)]
    pub lane: Vec<String>,
    /// True if a sequence has its round trips and time-outs below it.
    #[serde(default)]
    pub timeouts: bool,
    /// The text below it; values in braces, too.
    pub caption: String,
    /// Its curves.
    pub curve: Vec<DrawnCurve>,
}

/// Kind of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Curves over an axis.
    #[default]
    Curves,
    /// Packets against time; each curve a transfer. Of its unit it takes `at`, `packet` and
    /// `repeats`, which is above 0 where the packet was sent before; with time-outs `sample-at` and
    /// `sample`, `timeout-at` and `timeout`, and `done`.
    Sequence,
    /// Work in lanes; each curve a kind of work. Of its unit it takes `lane` from 0, `begin` and
    /// `end`.
    TimeLine,
}

/// A curve of a figure: columns, or points that were published.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrawnCurve {
    /// Its name in the legend.
    pub name: String,
    /// `UNIT:COLUMN`, as [`crate::expression`] has it.
    pub x: Option<String>,
    /// See there.
    pub y: Option<String>,
    /// Half the width of the interval around each point, in the same way.
    pub error: Option<String>,
    /// `UNIT:NAME` of a sequence or a time line: its columns are called `NAME-at` and so on.
    pub of: Option<String>,
    /// Points, instead of columns.
    #[serde(default)]
    pub points: Vec<[f64; 2]>,
    /// True if a line joins its points.
    #[serde(default = "yes")]
    pub line: bool,
    /// True if its points are marked.
    #[serde(default)]
    pub marks: bool,
    /// Its look; its number if that is not said.
    pub look: Option<usize>,
    /// True if the figure is drawn without it where its unit is not there: what was measured beside
    /// the paper ([`crate::beside`]).
    #[serde(default)]
    pub beside: bool,
}

const fn yes() -> bool {
    true
}

/// Distance from the published value that is tolerated for a kind of figure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tolerance {
    /// As a share of the published value, 0 to 1.
    pub share: f64,
    /// Where it comes from.
    pub why: String,
}

/// A published figure or statement.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// Its name, which an experiment gives its finding.
    pub id: String,
    /// Where in the paper it is, as `table 1`, `figure 5` or `section 2.1`.
    pub place: String,
    /// Subject of the item, in words.
    pub what: String,
    /// The published value.
    pub published: Option<f64>,
    /// The unit of the value; empty for a number.
    #[serde(default)]
    pub unit: String,
    /// Origin of ours, as [`crate::expression`] has it; without, nothing is found for it.
    pub from: Option<String>,
    /// The kind of figure: how far from the published value ours may be.
    pub tolerance: Option<String>,
    /// Ours, where the item is a value.
    pub ours: Option<f64>,
    /// Distance of ours from the published value, in per cent of the value.
    pub off: Option<f64>,
    /// Checks of figures, where the item is a statement.
    #[serde(default)]
    pub check: Vec<Check>,
    /// Tolerance within which ours must come again, as a share; the engine's own results move with
    /// the engine.
    #[serde(default = "held")]
    pub held: f64,
    /// True if it is a time of the machine that does it: it is held to its bounds, and not to ours,
    /// which is of one machine.
    #[serde(default)]
    pub timed: bool,
    /// Key in [`Reference::basis`] of the assumption that it rests on, if there is one.
    pub basis: Option<String>,
    /// Why ours is known to differ, if it is.
    pub differs: Option<String>,
}

/// A figure of a statement.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The figure, in the words of the experiment that measures it.
    pub of: String,
    /// Its unit; empty for a number.
    #[serde(default)]
    pub unit: String,
    /// It is no less.
    pub min: Option<f64>,
    /// It is no more.
    pub max: Option<f64>,
    /// Ours.
    pub ours: f64,
    /// Origin of ours, as [`crate::expression`] has it; without, nothing is found for it.
    pub from: Option<String>,
}

/// Virtual time repeats to the byte; figures are written with four digits or more.
const fn held() -> f64 {
    0.002
}

/// Nothing is measured finer; it counts where a figure is 0.
pub(crate) const SLIGHT: f64 = 1e-6;

impl Check {
    /// True if a figure is within the bounds.
    pub fn admits(&self, value: f64) -> bool {
        // Written so that a value that is no number is outside.
        self.min.is_none_or(|min| value >= min - SLIGHT) && self.max.is_none_or(|max| value <= max + SLIGHT)
    }

    /// True if a figure has come again.
    pub fn holds(&self, value: f64, held: f64) -> bool {
        comes_again(value, self.ours, held)
    }

    /// Claim in words: the bounds with the unit.
    pub fn claim(&self) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        let bounds = match (self.min, self.max) {
            (Some(min), Some(max)) if min == max => format!("{min}{unit}"),
            (Some(min), Some(max)) => format!("{min} to {max}{unit}"),
            (Some(min), None) => format!("at least {min}{unit}"),
            (None, Some(max)) => format!("at most {max}{unit}"),
            (None, None) => "anything".to_owned(),
        };
        format!("{}: {bounds}", self.of)
    }
}

impl Item {
    /// True if a value has come again.
    pub fn holds(&self, value: f64) -> bool {
        self.ours.is_some_and(|ours| comes_again(value, ours, self.held))
    }

    /// True if a value is as far from the published one as the item says.
    pub fn is_off_as_said(&self, value: f64) -> bool {
        let (Some(published), Some(said)) = (self.published, self.off) else { return false };
        let off = (value / published - 1.0) * 100.0;
        // It is written to a tenth of a per cent.
        (off - said).abs() <= 0.06 + (100.0 + said) * self.held
    }
}

fn comes_again(value: f64, ours: f64, held: f64) -> bool {
    (value - ours).abs() <= (ours.abs() * held).max(SLIGHT)
}

impl Reference {
    /// Reads a file.
    ///
    /// # Errors
    /// It is no such file; what it says of an item is incomplete, or contradicts itself; two items
    /// have one name.
    pub fn parse(text: &str) -> Result<Self> {
        let reference: Reference = toml::from_str(text).context("no file of published figures")?;
        let mut names = BTreeSet::new();
        for item in &reference.item {
            ensure!(names.insert(&item.id), "item {}: another item has this name", item.id);
            reference.check(item).with_context(|| format!("item {}", item.id))?;
        }
        for drawn in &reference.figure {
            check_figure(drawn).with_context(|| format!("{}{}", drawn.place, drawn.part))?;
        }
        Ok(reference)
    }

    /// Distance from the published value that the item's value may have, as a share.
    pub fn share(&self, item: &Item) -> Option<f64> {
        Some(self.tolerance.get(item.tolerance.as_deref()?)?.share)
    }

    fn check(&self, item: &Item) -> Result<()> {
        ensure!((0.0..0.5).contains(&item.held), "held must be from 0 to 0.5");
        if let Some(basis) = &item.basis {
            ensure!(self.basis.contains_key(basis), "the file has no basis `{basis}`");
        }
        ensure!(
            !item.timed || (!item.check.is_empty() && item.basis.is_some()),
            "what is timed has check and basis"
        );
        if item.check.is_empty() { self.check_value(item) } else { check_statement(item) }
    }

    fn check_value(&self, item: &Item) -> Result<()> {
        let (Some(published), Some(tolerance), Some(ours), Some(off)) =
            (item.published, &item.tolerance, item.ours, item.off)
        else {
            bail!("expected either published, tolerance, ours and off, or check");
        };
        ensure!(published.is_finite() && published != 0.0, "published must be a number other than 0");
        // Whatever is published, 0 is 100 % off.
        ensure!(ours.is_finite() && ours != 0.0, "ours must be a number other than 0; else it is for check");
        let share = self.share(item);
        let share = share.with_context(|| format!("the file has no tolerance `{tolerance}`"))?;
        ensure!((0.0..1.0).contains(&share), "tolerance {tolerance}: share must be from 0 to 1");
        let real = (ours / published - 1.0) * 100.0;
        ensure!(
            (real - off).abs() <= 0.06 + real.abs() * 1e-3,
            "ours is {real:+.1} % off what was published, not {off:+} %"
        );
        match (real.abs() > share * 100.0 + SLIGHT, item.differs.is_some()) {
            (true, false) => bail!("ours is {real:+.1} % off, and nothing says why it differs"),
            (false, true) => bail!("ours is {real:+.1} % off, which does not differ"),
            _ => Ok(()),
        }
    }
}

fn check_statement(item: &Item) -> Result<()> {
    let has_value = item.published.is_some() || item.tolerance.is_some();
    ensure!(!has_value && item.ours.is_none() && item.off.is_none(), "expected either a value or check");
    let mut names = BTreeSet::new();
    for check in &item.check {
        let of = &check.of;
        ensure!(names.insert(of), "`{of}` is checked twice");
        ensure!(check.min.is_some() || check.max.is_some(), "`{of}` has no bound");
        ensure!(
            check.min.zip(check.max).is_none_or(|(min, max)| min <= max),
            "`{of}`: min must not be above max"
        );
    }
    match (item.check.iter().all(|check| check.admits(check.ours)), item.differs.is_some()) {
        (false, false) => bail!("ours is outside the bounds, and nothing says why it differs"),
        (true, true) => bail!("ours is within the bounds, which does not differ"),
        _ => Ok(()),
    }
}

fn check_figure(drawn: &Drawn) -> Result<()> {
    let is = |kind| drawn.kind == kind;
    ensure!(is(Kind::Curves) || (!drawn.log && drawn.y_max.is_none()), "log and y_max are for curves");
    ensure!(
        is(Kind::Sequence) || (!drawn.timeouts && drawn.x_max.is_none()),
        "timeouts and x_max: a sequence's"
    );
    ensure!(is(Kind::TimeLine) != drawn.lane.is_empty(), "a time line has lanes, and nothing else has");
    for DrawnCurve { name, x, y, error, of, points, .. } in &drawn.curve {
        let said = (x.is_some(), y.is_some(), error.is_some(), of.is_some(), !points.is_empty());
        match (drawn.kind, said) {
            (Kind::Curves, (true, true, _, false, false) | (false, false, false, false, true)) => {}
            (Kind::Curves, _) => bail!("the curve {name}: expected either x and y, or points"),
            (_, (false, false, false, true, false)) => {}
            _ => bail!("the curve {name}: expected `of` alone"),
        }
    }
    Ok(())
}

/// True if a place in a paper is meant by `5`, `figure5` or `table 1`; a number alone is a
/// figure's.
pub fn is_meant(place: &str, by: &str) -> bool {
    let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_lowercase();
    let (place, by) = (bare(place), bare(by));
    place == by || (by.starts_with(|c: char| c.is_ascii_digit()) && place == format!("figure{by}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(item: &str) -> String {
        format!(
            "paper = \"A. Uthor, 1985\"\n[tolerance.time]\nshare = 0.05\nwhy = \"w\"\n[basis]\ngiven = \"put in\"\n\
             [[item]]\nid = \"a\"\nplace = \"table 1\"\nwhat = \"x\"\n{item}"
        )
    }

    const VALUE: &str = "published = 4.1\ntolerance = \"time\"\nours = 4.0\noff = -2.4";
    const CHECK: &str = "[[item.check]]\nof = \"f\"\nmax = 2\nours = 1";

    #[test]
    fn a_value_says_how_near_it_must_be_what_ours_was_and_how_far_that_is() {
        let good = Reference::parse(&file(VALUE)).expect("good");
        assert_eq!((good.item[0].published, good.share(&good.item[0])), (Some(4.1), Some(0.05)));
        for (item, expected) in [
            ("published = 4.1".to_owned(), "expected either published, tolerance, ours and off, or check"),
            (format!("{VALUE}\n{CHECK}"), "expected either a value or check"),
            (VALUE.replace("4.0", "0.0").replace("-2.4", "-100"), "ours must be a number other than 0"),
            (VALUE.replace("time", "any"), "the file has no tolerance `any`"),
            (VALUE.replace("4.1", "0"), "published must be a number other than 0"),
            (VALUE.replace("4.1", "4.2"), "ours is -4.8 % off what was published, not -2.4 %"),
            (VALUE.replace("4.0", "4.08"), "ours is -0.5 % off what was published, not -2.4 %"),
            (VALUE.replace("4.0", "3.0").replace("-2.4", "-26.8"), "and nothing says why it differs"),
            (format!("{VALUE}\ndiffers = \"y\""), "ours is -2.4 % off, which does not differ"),
            (format!("{VALUE}\nbasis = \"none\""), "the file has no basis `none`"),
            ("value = 3".to_owned(), "unknown field `value`"),
            (
                format!("{VALUE}\n[[item]]\nid = \"a\"\nplace = \"p\"\nwhat = \"x\"\n{CHECK}"),
                "item a: another",
            ),
        ] {
            let error = format!("{:#}", Reference::parse(&file(&item)).expect_err(&item));
            assert!(error.contains(expected), "{item}: {error}");
        }
    }

    #[test]
    fn a_statement_is_made_of_figures_with_bounds() {
        let good = Reference::parse(&file(CHECK)).expect("good");
        assert_eq!(good.item[0].check[0].claim(), "f: at most 2");
        let known = CHECK.replace("ours = 1", "ours = 3");
        for (item, expected) in [
            (CHECK.replace("max = 2\n", ""), "`f` has no bound"),
            (CHECK.replace("max = 2", "max = 2\nmin = 3"), "`f`: min must not be above max"),
            (format!("{CHECK}\n{CHECK}"), "`f` is checked twice"),
            (known.clone(), "ours is outside the bounds, and nothing says why it differs"),
            (format!("differs = \"y\"\n{CHECK}"), "ours is within the bounds, which does not differ"),
            (format!("timed = true\n{CHECK}"), "what is timed has check and basis"),
            (format!("shape = \"it doubles the speed\"\n{CHECK}"), "unknown field `shape`"),
        ] {
            let error = format!("{:#}", Reference::parse(&file(&item)).expect_err(&item));
            assert!(error.contains(expected), "{item}: {error}");
        }
        assert!(Reference::parse(&file(&format!("differs = \"y\"\n{known}"))).is_ok());
    }

    #[test]
    fn a_figure_has_what_its_kind_needs() {
        let figure = |lines: &str| {
            let head = "[[figure]]\nplace = \"figure 1\"\ntitle = \"t\"\nx = \"x\"\ncaption = \"c\"";
            Reference::parse(&file(&format!("{CHECK}\n{head}\n{lines}")))
        };
        let [points, of] =
            ["points = [[1, 2]]", "of = \"u:n\""].map(|said| format!("curve = [{{ name = \"a\", {said} }}]"));
        for good in [
            points.clone(),
            format!("log = true\n{points}"),
            points.replace("points = [[1, 2]]", "x = \"u:a\", y = \"u:b\", error = \"u:c\""),
            format!("kind = \"sequence\"\ntimeouts = true\n{of}"),
            format!("kind = \"time-line\"\nlane = [\"l\"]\n{of}"),
        ] {
            figure(&good).expect(&good);
        }
        for (bad, expected) in [
            (of.clone(), "figure 1: the curve a: expected either x and y, or points"),
            (points.replace("points = [[1, 2]]", "x = \"u:a\""), "expected either x and y"),
            (format!("kind = \"sequence\"\n{points}"), "the curve a: expected `of` alone"),
            (format!("kind = \"sequence\"\nlog = true\n{of}"), "log and y_max are for curves"),
            (format!("timeouts = true\n{points}"), "timeouts and x_max: a sequence's"),
            (format!("kind = \"time-line\"\n{of}"), "a time line has lanes"),
        ] {
            let error = format!("{:#}", figure(&bad).expect_err(&bad));
            assert!(error.contains(expected), "{bad}: {error}");
        }
    }

    #[test]
    fn a_number_alone_means_a_figure() {
        assert!(
            is_meant("figure 5", "5") && is_meant("figure 5", "Figure 5") && is_meant("table 1", "table1")
        );
        assert!(!is_meant("table 5", "5") && !is_meant("figure 15", "5"));
    }
}
