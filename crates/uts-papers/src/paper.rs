//! Papers: units of work, and conclusions that are drawn from them.

use crate::judge::Finding;
use anyhow::{Context, Result};
use std::borrow::Cow;
use std::collections::BTreeMap;
use uts_plot::svg::Picture;

/// Columns of figures by their names: what a unit of work leaves.
pub type Series = BTreeMap<String, Vec<f64>>;

/// Adds a row: a value to each of these columns.
pub fn push<'a>(series: &mut Series, row: impl IntoIterator<Item = (&'a str, f64)>) {
    row.into_iter().for_each(|(name, value)| series.entry(name.to_owned()).or_default().push(value));
}

/// A paper that is done again.
pub struct Paper {
    /// As commands name it.
    pub name: &'static str,
    /// The published figures that it is judged against, as TOML.
    pub reference: &'static str,
    /// Units that are to be done, in the order in which they begin.
    pub units: Vec<Unit>,
    /// Draws the conclusion. Places whose units were not done are left out.
    pub conclude: fn(&Results) -> Result<Conclusion>,
}

/// A piece of work that one core does. All that is random in it follows from its name, and so does
/// all that it leaves, unless it is timed.
pub struct Unit {
    /// Its name, fit for a file.
    pub name: String,
    /// The places of the paper that need it, as `table 1`.
    pub places: Vec<String>,
    /// True if it reads the clock of the machine: its figures differ from run to run, and belong to
    /// items that say so ([`Item::timed`](crate::reference::Item::timed)).
    pub is_timed: bool,
    /// Does it.
    pub work: Box<dyn Fn() -> Result<Series> + Send + Sync>,
}

impl Unit {
    /// A unit.
    pub fn new(
        name: impl Into<String>,
        places: impl Into<Vec<&'static str>>,
        work: impl Fn() -> Result<Series> + Send + Sync + 'static,
    ) -> Self {
        let places = places.into().into_iter().map(str::to_owned).collect();
        Unit { name: name.into(), places, is_timed: false, work: Box::new(work) }
    }

    /// A unit of no place yet that reads the clock of the machine.
    pub fn timed(name: impl Into<String>, work: impl Fn() -> Result<Series> + Send + Sync + 'static) -> Self {
        Unit { is_timed: true, ..Unit::new(name, [], work) }
    }
}

/// Results of units, by their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results(pub BTreeMap<String, Series>);

impl Results {
    /// True if a unit was done.
    pub fn has(&self, unit: &str) -> bool {
        self.0.contains_key(unit)
    }

    /// A column of a unit.
    ///
    /// # Errors
    /// The unit was not done, or has no such column.
    pub fn column(&self, unit: &str, column: &str) -> Result<&[f64]> {
        let series = self.0.get(unit).with_context(|| format!("the unit {unit} was not done"))?;
        let column = series.get(column).with_context(|| format!("{unit} has no column {column}"))?;
        Ok(column)
    }

    /// The only value of a column.
    ///
    /// # Errors
    /// As [`Results::column`]; or it is empty.
    pub fn value(&self, unit: &str, column: &str) -> Result<f64> {
        let value = self.column(unit, column)?.first();
        value.copied().with_context(|| format!("{unit}: the column {column} is empty"))
    }

    /// Draws the conclusion from each of these units that was done.
    ///
    /// # Errors
    /// The first part's that fails, with the name of its unit.
    pub fn conclude(&self, parts: &[(&str, Part)]) -> Result<Conclusion> {
        let mut conclusion = Conclusion::default();
        for (unit, part) in parts.iter().filter(|(unit, _)| self.has(unit)) {
            part(self, &mut conclusion).with_context(|| format!("what follows from {unit}"))?;
        }
        Ok(conclusion)
    }
}

/// Adds what follows from a unit.
pub type Part = fn(&Results, &mut Conclusion) -> Result<()>;

/// Conclusion from the results.
#[derive(Default)]
pub struct Conclusion {
    /// Findings for items of the published figures.
    pub findings: Vec<Finding>,
    /// Pictures.
    pub figures: Vec<Figure>,
}

/// A picture, with where it is in the paper.
pub struct Figure {
    /// As `figure 5`.
    pub place: Cow<'static, str>,
    /// Which of several of that place it is, as `a`; empty for the only one.
    pub part: Cow<'static, str>,
    /// The picture.
    pub picture: Picture,
    /// The text below it.
    pub caption: String,
}
