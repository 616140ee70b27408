//! CSV by the names of its columns; what is wrong is told with file, line and column.

use crate::compressed;
use anyhow::{Context, Result, anyhow};
use serde::de::DeserializeOwned;
use std::io::Read;
use std::path::Path;

/// A file that has been opened, its header read.
pub struct Table {
    name: String,
    header: csv::StringRecord,
    reader: csv::Reader<Box<dyn Read>>,
}

/// A line.
pub struct Row<'a> {
    name: &'a str,
    header: &'a csv::StringRecord,
    record: &'a csv::StringRecord,
}

impl Table {
    /// Opens a file, or its compressed form, which messages call `name`.
    pub fn open(path: &Path, name: &str) -> Result<Self> {
        let file = compressed::open(path).with_context(|| format!("cannot open {name}"))?;
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(file);
        let header = reader.headers().map_err(|e| fault(name, &e, None))?.clone();
        Ok(Table { name: name.into(), header, reader })
    }

    /// The names of the columns.
    pub fn columns(&self) -> Vec<String> {
        self.header.iter().map(str::to_owned).collect()
    }

    /// The place of a column.
    pub fn column(&self, name: &str) -> Result<usize> {
        let found = self.header.iter().position(|h| h == name);
        found.with_context(|| {
            let there: Vec<&str> = self.header.iter().collect();
            format!("{}:1: the column `{name}` is missing; there are {}", self.name, there.join(", "))
        })
    }

    /// Calls for each line.
    pub fn each(mut self, mut with: impl FnMut(&Row<'_>) -> Result<()>) -> Result<()> {
        let mut record = csv::StringRecord::new();
        while self.reader.read_record(&mut record).map_err(|e| fault(&self.name, &e, None))? {
            with(&Row { name: &self.name, header: &self.header, record: &record })?;
        }
        Ok(())
    }

    /// All lines, by the names of columns, which must be there.
    pub fn rows<T: DeserializeOwned>(mut self, columns: &[&str]) -> Result<Vec<T>> {
        for column in columns {
            self.column(column)?;
        }
        let (name, header) = (self.name.as_str(), &self.header);
        self.reader.deserialize().map(|row| row.map_err(|e| fault(name, &e, Some(header)))).collect()
    }
}

impl Row<'_> {
    /// A field as it stands; empty if the line is too short.
    pub fn text(&self, column: usize) -> &str {
        self.record.get(column).unwrap_or_default()
    }

    /// A finite number.
    pub fn number(&self, column: usize) -> Result<f64> {
        let text = self.text(column);
        text.parse().ok().filter(|n: &f64| n.is_finite()).with_context(|| self.wrong(column, "a number"))
    }

    /// A whole number from 0 on.
    pub fn whole(&self, column: usize) -> Result<u64> {
        self.text(column).parse().with_context(|| self.wrong(column, "a whole number"))
    }

    /// `true` or `false`.
    pub fn truth(&self, column: usize) -> Result<bool> {
        self.text(column).parse().with_context(|| self.wrong(column, "true or false"))
    }

    fn wrong(&self, column: usize, expected: &str) -> String {
        let line = self.record.position().map_or(0, csv::Position::line);
        let header = self.header.get(column).unwrap_or_default();
        format!("{}:{line}: {header}: `{}` is not {expected}", self.name, self.text(column))
    }
}

/// A fault of the reader as a message of ours.
fn fault(name: &str, error: &csv::Error, header: Option<&csv::StringRecord>) -> anyhow::Error {
    let line = error.position().map_or(1, csv::Position::line);
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            anyhow!("{name}:{line}: the line has {len} fields, and the header has {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => anyhow!("{name}:{line}: the line is not UTF-8"),
        csv::ErrorKind::Deserialize { err, .. } => {
            let column = err.field().and_then(|i| header?.get(i as usize)).unwrap_or_default();
            anyhow!("{name}:{line}: {column}: {}", err.kind())
        }
        csv::ErrorKind::Io(e) => anyhow!("cannot read {name}: {e}"),
        _ => anyhow!("{name}:{line}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Sample {
        t_s: f64,
        flow: String,
        latency_ms: Option<f64>,
    }

    fn table(text: &str) -> Result<Table> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Table::open(file.path(), "x.csv")
    }

    fn samples(text: &str) -> Result<Vec<Sample>> {
        table(text)?.rows(&["t_s", "flow", "latency_ms"])
    }

    #[test]
    fn columns_go_by_name_and_unknown_ones_are_ignored() {
        let read = samples("flow,t_s,colour,latency_ms\na,0.5,red,20\nb,1,blue,\n").unwrap();
        let sample = |t_s, flow: &str, latency_ms| Sample { t_s, flow: flow.into(), latency_ms };
        assert_eq!(read, [sample(0.5, "a", Some(20.0)), sample(1.0, "b", None)]);
    }

    #[test]
    fn what_is_wrong_has_a_file_a_line_and_a_column() {
        let of = |text: &str| samples(text).unwrap_err().to_string();
        assert_eq!(of("t_s,flow\n"), "x.csv:1: the column `latency_ms` is missing; there are t_s, flow");
        assert_eq!(
            of("t_s,flow,latency_ms\n0,a,1\n0,a\n"),
            "x.csv:3: the line has 2 fields, and the header has 3"
        );
        assert_eq!(of("t_s,flow,latency_ms\n0,a,1\nnow,a,1\n"), "x.csv:3: t_s: invalid float literal");
        let table = table("a,b\n1,x\nnan,y\n").unwrap();
        let column = table.column("a").unwrap();
        let error = table.each(|row| row.number(column).map(|_| ())).unwrap_err().to_string();
        assert_eq!(error, "x.csv:3: a: `nan` is not a number");
    }
}
