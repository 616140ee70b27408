//! `measures.csv`: the figures of all runs, one a line.

use crate::csv_text::Csv;
use crate::run::Figure;
use crate::table::{Row, Table};
use anyhow::Result;

/// The file.
pub const MEASURES_FILE: &str = "measures.csv";

/// Columns before those of sweeps. The mixture's is there only if there are mixtures.
const BEFORE: [&str; 6] = ["run", "world", "transport", "workload", "path", "mixture"];
/// Columns behind those of sweeps.
const BEHIND: [&str; 7] = ["repetition", "seed", "flow", "measure", "value", "unit", "valid"];

/// True if a column is there whatever is swept, so that no sweep may be called so.
pub fn is_column(name: &str) -> bool {
    BEFORE.contains(&name) || BEHIND.contains(&name)
}

/// Columns of a line that tell of the run, beside the figure.
#[derive(Clone, Debug, Default)]
pub struct About<'a> {
    /// The run's name.
    pub run: &'a str,
    /// Its world.
    pub world: &'a str,
    /// The transport of the flow, or of the run.
    pub transport: &'a str,
    /// The workload of the flow, or of the run.
    pub workload: &'a str,
    /// The path.
    pub path: &'a str,
    /// The mixture; empty for a run of one flow.
    pub mixture: &'a str,
    /// The value of each sweep, in their order; empty for one that does not concern the run.
    pub sweeps: &'a [String],
    /// Which repetition.
    pub repetition: u32,
    /// The seed.
    pub seed: u64,
    /// The figure may be believed.
    pub is_valid: bool,
}

/// Writes lines.
#[derive(Debug)]
pub struct Writer {
    csv: Csv,
    is_mixed: bool,
}

impl Writer {
    /// A table with these sweeps, and a column of mixtures if there are some.
    pub fn new<'s>(is_mixed: bool, sweeps: impl IntoIterator<Item = &'s str>) -> Self {
        let before = if is_mixed { &BEFORE[..] } else { &BEFORE[..5] };
        let header: Vec<&str> = before.iter().copied().chain(sweeps).chain(BEHIND).collect();
        Writer { csv: Csv::new(&header), is_mixed }
    }

    /// A line.
    pub fn line(&mut self, about: &About<'_>, figure: &Figure) {
        let csv = &mut self.csv;
        for text in [about.run, about.world, about.transport, about.workload, about.path] {
            csv.text(text);
        }
        if self.is_mixed {
            csv.text(about.mixture);
        }
        about.sweeps.iter().for_each(|value| csv.text(value));
        csv.text(&about.repetition.to_string());
        csv.text(&about.seed.to_string());
        csv.text(&figure.flow);
        csv.text(&figure.name);
        csv.number(figure.value);
        csv.text(&figure.unit);
        csv.text(if about.is_valid { "true" } else { "false" });
        csv.end_line();
    }

    /// The file.
    pub fn into_bytes(self) -> Vec<u8> {
        self.csv.into_bytes()
    }
}

/// Where the columns are.
#[derive(Clone, Debug)]
pub struct Columns {
    /// The run's name.
    pub run: usize,
    /// Its world, if that is written.
    pub world: Option<usize>,
    /// The mixture, if there are mixtures.
    pub mixture: Option<usize>,
    /// The transport.
    pub transport: usize,
    /// The workload.
    pub workload: usize,
    /// The path.
    pub path: usize,
    /// The sweeps, in the order in which they were asked for.
    pub sweeps: Vec<usize>,
    /// The flow; empty for the run as a whole.
    pub flow: usize,
    /// Name of the figure.
    pub measure: usize,
    /// Its value; empty if that is not known.
    pub value: usize,
    /// Its unit.
    pub unit: usize,
    /// Validity of the figure: it may be believed.
    pub valid: usize,
}

impl Columns {
    /// Finds them.
    ///
    /// # Errors
    /// Which is missing.
    pub fn of<'s>(table: &Table, sweeps: impl IntoIterator<Item = &'s str>) -> Result<Self> {
        let column = |name: &str| table.column(name);
        Ok(Columns {
            run: column("run")?,
            world: column("world").ok(),
            mixture: column("mixture").ok(),
            transport: column("transport")?,
            workload: column("workload")?,
            path: column("path")?,
            sweeps: sweeps.into_iter().map(column).collect::<Result<_>>()?,
            flow: column("flow")?,
            measure: column("measure")?,
            value: column("value")?,
            unit: column("unit")?,
            valid: column("valid")?,
        })
    }

    /// The values of sweeps in a line.
    pub fn sweeps_of(&self, row: &Row<'_>) -> Vec<String> {
        self.sweeps.iter().map(|at| row.text(*at).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for is_mixed in [false, true] {
            let mut writer = Writer::new(is_mixed, ["buffer"]);
            let sweeps = ["9".to_owned()];
            let about = About {
                run: "a/b",
                mixture: "m",
                sweeps: &sweeps,
                seed: 7,
                is_valid: true,
                ..About::default()
            };
            writer.line(&about, &Figure::new("f", "goodput", 1.5e6, "bit/s"));
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), writer.into_bytes()).unwrap();
            let table = Table::open(file.path(), MEASURES_FILE).unwrap();
            let columns = Columns::of(&table, ["buffer"]).unwrap();
            assert_eq!(columns.mixture.is_some(), is_mixed);
            let mut seen = 0;
            table
                .each(|row| {
                    seen += 1;
                    assert_eq!((row.text(columns.run), row.text(columns.flow)), ("a/b", "f"));
                    assert_eq!((row.number(columns.value)?, row.truth(columns.valid)?), (1.5e6, true));
                    assert_eq!(columns.sweeps_of(row), ["9"]);
                    Ok(())
                })
                .unwrap();
            assert_eq!(seen, 1);
        }
        assert!(is_column("mixture") && is_column("valid") && !is_column("buffer"));
    }
}
