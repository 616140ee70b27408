//! What papers have published: a file for each in `reference/`, with the paper's own figures and
//! statements.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeSet;

/// A paper's published figures.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Author, title, year.
    pub paper: String,
    /// What is judged, in the order of the report.
    pub item: Vec<Item>,
}

/// A published figure or statement.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// Its name, which an experiment gives its finding.
    pub id: String,
    /// Where in the paper it is, as `table 1`, `figure 5` or `section 2.1`.
    pub place: String,
    /// What it says.
    pub what: String,
    /// The published value.
    pub published: Option<f64>,
    /// The unit of the value; empty for a number.
    #[serde(default)]
    pub unit: String,
    /// How far from the published value ours may be, as a share of it.
    pub tolerance: Option<f64>,
    /// The statement that ours must bear out, where there is no value.
    pub shape: Option<String>,
    /// Why ours is known to differ, if it is.
    pub differs: Option<String>,
}

impl Reference {
    /// Reads a file.
    ///
    /// # Errors
    /// It is no such file; an item has neither a value with its tolerance nor a statement, or both;
    /// two items have one name.
    pub fn parse(text: &str) -> Result<Self> {
        let reference: Reference = toml::from_str(text).context("no file of published figures")?;
        let mut names = BTreeSet::new();
        for item in &reference.item {
            let id = &item.id;
            ensure!(names.insert(id), "item {id}: another item has this name");
            match (item.published, item.tolerance, &item.shape) {
                (Some(value), Some(tolerance), None) => {
                    ensure!(
                        value.is_finite() && value != 0.0,
                        "item {id}: published must be a number other than 0"
                    );
                    ensure!((0.0..1.0).contains(&tolerance), "item {id}: tolerance must be from 0 to 1");
                }
                (None, None, Some(_)) => {}
                _ => bail!("item {id}: expected either published and tolerance, or shape"),
            }
        }
        Ok(reference)
    }
}

/// Whether a place in a paper is meant by `5`, `figure5` or `table 1`; a number alone is a
/// figure's.
pub fn is_meant(place: &str, by: &str) -> bool {
    let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_lowercase();
    let (place, by) = (bare(place), bare(by));
    place == by || (by.starts_with(|c: char| c.is_ascii_digit()) && place == format!("figure{by}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_a_tolerance_and_a_statement_has_none() {
        let file = |item: &str| {
            format!("paper = \"A. Uthor, 1985\"\n[[item]]\nplace = \"table 1\"\nwhat = \"x\"\n{item}")
        };
        let good = Reference::parse(&file("id = \"a\"\npublished = 4.1\ntolerance = 0.05")).expect("good");
        assert_eq!((good.item[0].published, good.item[0].unit.as_str()), (Some(4.1), ""));
        for (item, expected) in [
            ("id = \"a\"\npublished = 4.1", "item a: expected either published and tolerance, or shape"),
            ("id = \"a\"\npublished = 4.1\ntolerance = 0.1\nshape = \"flat\"", "expected either"),
            ("id = \"a\"\npublished = 4.1\ntolerance = 1.5", "item a: tolerance must be from 0 to 1"),
            ("id = \"a\"\npublished = 0\ntolerance = 0.5", "item a: published must be a number other than 0"),
            ("id = \"a\"\nvalue = 3", "unknown field `value`"),
            (
                "id = \"a\"\nshape = \"s\"\n[[item]]\nid = \"a\"\nplace = \"p\"\nwhat = \"x\"\nshape = \"s\"",
                "item a: another",
            ),
        ] {
            let error = format!("{:#}", Reference::parse(&file(item)).expect_err(item));
            assert!(error.contains(expected), "{item}: {error}");
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
