//! Papers: units of work, and conclusions that are drawn from them.

use crate::data;
use crate::judge::Finding;
use anyhow::{Context, Result};
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
}

impl Paper {
    /// A paper whose file says which of its places need which units.
    pub fn new(name: &'static str, reference: &'static str, units: Vec<Unit>) -> Self {
        // A file that cannot be read is told as the paper is judged.
        Paper { name, reference, units: data::place(units, reference).unwrap_or_default() }
    }

    /// Draws the conclusion. Items and figures whose units were not done are left out.
    ///
    /// # Errors
    /// As [`data::conclude`].
    pub fn conclude(&self, results: &Results) -> Result<Conclusion> {
        data::conclude(results, self.reference)
    }
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
    /// A unit of no place yet.
    pub fn new(name: impl Into<String>, work: impl Fn() -> Result<Series> + Send + Sync + 'static) -> Self {
        Unit { name: name.into(), places: Vec::new(), is_timed: false, work: Box::new(work) }
    }

    /// The same that reads the clock of the machine.
    pub fn timed(name: impl Into<String>, work: impl Fn() -> Result<Series> + Send + Sync + 'static) -> Self {
        Unit { is_timed: true, ..Unit::new(name, work) }
    }
}

/// Results of units, by their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results(pub BTreeMap<String, Series>);

impl Results {
    /// A column of a unit.
    ///
    /// # Errors
    /// The unit was not done, or has no such column.
    pub fn column(&self, unit: &str, column: &str) -> Result<&[f64]> {
        let series = self.0.get(unit).with_context(|| format!("the unit {unit} was not done"))?;
        let column = series.get(column).with_context(|| format!("{unit} has no column {column}"))?;
        Ok(column)
    }
}

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
    pub place: String,
    /// Which of several of that place it is, as `a`; empty for the only one.
    pub part: String,
    /// The picture.
    pub picture: Picture,
    /// The text below it.
    pub caption: String,
}
