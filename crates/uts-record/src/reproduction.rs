//! Files of the reproduction of a paper: one for each unit of its work, from which an interrupted
//! reproduction goes on.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The version of these files; others are done again.
pub const FORMAT: u32 = 1;

/// Result of a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitFile {
    /// [`FORMAT`].
    pub format: u32,
    /// Program and version that made it. A file that another has made is done again.
    pub made_by: String,
    /// Columns of figures.
    pub series: BTreeMap<String, Column>,
}

/// A column of figures. It is kept as text, from which each figure is read back to the last bit.
/// Numbers of JSON are not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Column(pub Vec<f64>);

impl From<Column> for String {
    fn from(column: Column) -> Self {
        column.0.iter().map(f64::to_string).collect::<Vec<_>>().join(" ")
    }
}

impl TryFrom<String> for Column {
    type Error = std::num::ParseFloatError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Ok(Column(text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?))
    }
}

/// Where a unit's file is.
fn path(dir: &Path, unit: &str) -> PathBuf {
    dir.join(format!("{unit}.json"))
}

impl UnitFile {
    /// Reads the file of a unit, if it is there, whole, and made by `made_by`.
    pub fn read(dir: &Path, unit: &str, made_by: &str) -> Option<Self> {
        let file: UnitFile = serde_json::from_slice(&fs::read(path(dir, unit)).ok()?).ok()?;
        (file.format == FORMAT && file.made_by == made_by).then_some(file)
    }

    /// Writes it beside and renames it, so that a file under its name is whole.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, dir: &Path, unit: &str) -> Result<()> {
        let whole = path(dir, unit);
        let part = dir.join(format!(".{unit}.part"));
        let write = || -> Result<()> {
            fs::create_dir_all(dir)?;
            fs::write(&part, serde_json::to_vec(self)?)?;
            Ok(fs::rename(&part, &whole)?)
        };
        write().with_context(|| format!("cannot write {}", whole.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_back_to_the_last_bit() {
        let dir = tempfile::tempdir().unwrap();
        let figures = vec![0.1 + 0.2, 1.0 / 3.0, 5e-324, 1.797e308, -0.0, 4.08, 1e23];
        let series = BTreeMap::from([("a".to_owned(), Column(figures)), ("b".to_owned(), Column(vec![]))]);
        let file = UnitFile { format: FORMAT, made_by: "this".into(), series };
        file.write(dir.path(), "unit").unwrap();
        assert_eq!(UnitFile::read(dir.path(), "unit", "this").as_ref(), Some(&file));
        assert_eq!(UnitFile::read(dir.path(), "unit", "another"), None);
        assert_eq!(UnitFile::read(dir.path(), "others", "this"), None);
    }
}
