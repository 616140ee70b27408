//! Tables of an experiment as Parquet: one file for the figures of all runs, and one for each table
//! of samples, of all runs together, with a first column that names the run.
//!
//! Columns keep their names and their order. Text is UTF-8, `repetition` and `seed` are whole
//! numbers, `valid` is a truth value, all else is of doubles. A sweep is of doubles if all its
//! values are numbers, else text. An empty field is null.

use crate::compressed;
use crate::directory::{self, Runs};
use crate::measures::MEASURES_FILE;
use crate::plan::Plan;
use crate::samples::TABLES;
use crate::table::{Row, Table};
use anyhow::{Context, Result};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows that are in memory at a time.
const GROUP_ROWS: usize = 1 << 16;

/// Column of the run in a table of samples.
const RUN: &str = "run";

/// Tables that were written.
#[derive(Debug, Default)]
pub struct Written {
    /// Files, and the rows of each.
    pub files: Vec<(PathBuf, u64)>,
    /// Runs that cannot be read: why not.
    pub damaged: BTreeMap<String, String>,
}

/// Writes all tables of an experiment's directory into the directory `out`, which is made. Tables
/// without rows are left out.
///
/// # Errors
/// `from` is no directory of an experiment, or is being written. A file cannot be read or written.
pub fn write(from: &Path, out: &Path) -> Result<Written> {
    let plan = Plan::read(from)?;
    let _lock = directory::hold(from)?;
    let Runs { whole, damaged }: Runs<IgnoredAny> = directory::read_runs(from)?;
    fs::create_dir_all(out).with_context(|| format!("cannot make the directory {}", out.display()))?;
    let mut written = Written { damaged, ..Written::default() };
    let of_sweep = |column: &str| {
        let sweep = plan.sweeps.iter().find(|sweep| sweep.name == column)?;
        Some(if sweep.numeric { Kind::Number } else { Kind::Text })
    };
    let kind = |column: &str| of_sweep(column).unwrap_or(kind_of(column));
    written.files.extend(write_table(out, MEASURES_FILE, kind, &[(None, from.join(MEASURES_FILE))])?);
    for (name, _) in TABLES {
        let ids = plan.runs.iter().map(|run| &run.id).filter(|id| whole.contains_key(*id));
        let places = ids.map(|id| {
            let samples = directory::run_path(from, id).join("samples");
            (Some(id.as_str()), compressed::place(&samples.join(name)))
        });
        let places: Vec<_> = places.filter(|(_, place)| place.is_file()).collect();
        written.files.extend(write_table(out, name, kind_of, &places)?);
    }
    Ok(written)
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Whole,
    Truth,
    Number,
}

/// The type of a column that is no sweep's.
fn kind_of(column: &str) -> Kind {
    match column {
        "run" | "world" | "transport" | "workload" | "path" | "mixture" | "flow" | "measure" | "unit"
        | "end" | "kind" | "link" | "line" | "change" => Kind::Text,
        "repetition" | "seed" => Kind::Whole,
        "valid" => Kind::Truth,
        _ => Kind::Number,
    }
}

/// The same table of several runs as one, under its name with another ending; nothing if it has no
/// rows. If a file is of a run, the run's name is the first column.
fn write_table(
    out: &Path,
    name: &str,
    kind: impl Fn(&str) -> Kind,
    parts: &[(Option<&str>, PathBuf)],
) -> Result<Option<(PathBuf, u64)>> {
    let Some((run, first)) = parts.first().filter(|(_, place)| place.is_file()) else { return Ok(None) };
    let header = opened(first)?.columns();
    let names = run.iter().map(|_| RUN).chain(header.iter().map(String::as_str));
    let columns = names.map(|name| Column::new(name, kind(name))).collect();
    let path = out.join(name).with_extension("parquet");
    let part = out.join(format!(".{name}.part"));
    let write = || -> Result<u64> {
        let mut writer = Writer::new(File::create(&part)?, columns)?;
        for (run, place) in parts {
            let table = opened(place)?;
            // A file of before a column was there lacks it.
            let places: Vec<Option<usize>> = header.iter().map(|name| table.column(name).ok()).collect();
            table.each(|row| writer.add(*run, row, &places))?;
        }
        let rows = writer.finish()?;
        if rows > 0 {
            fs::rename(&part, &path)?;
        }
        Ok(rows)
    };
    let rows = write().with_context(|| format!("cannot write {}", path.display()));
    if !matches!(rows, Ok(1..)) {
        let _ = fs::remove_file(&part);
    }
    Ok(Some((path, rows?)).filter(|(_, rows)| *rows > 0))
}

fn opened(place: &Path) -> Result<Table> {
    Table::open(place, &place.display().to_string())
}

struct Column {
    name: String,
    kind: Kind,
    /// For each row 1, or 0 where the field is empty.
    levels: Vec<i16>,
    /// Cells that are not empty.
    values: Values,
}

enum Values {
    Text(Vec<ByteArray>),
    Whole(Vec<i64>),
    Truth(Vec<bool>),
    Number(Vec<f64>),
}

impl Values {
    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Text => Values::Text(Vec::new()),
            Kind::Whole => Values::Whole(Vec::new()),
            Kind::Truth => Values::Truth(Vec::new()),
            Kind::Number => Values::Number(Vec::new()),
        }
    }

    fn clear(&mut self) {
        match self {
            Values::Text(all) => all.clear(),
            Values::Whole(all) => all.clear(),
            Values::Truth(all) => all.clear(),
            Values::Number(all) => all.clear(),
        }
    }
}

impl Column {
    fn new(name: &str, kind: Kind) -> Self {
        Column { name: name.to_owned(), kind, levels: Vec::new(), values: Values::of(kind) }
    }

    fn schema(&self) -> Result<Type> {
        let (physical, logical) = match self.kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            // A seed has all of 64 bits.
            Kind::Whole => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Kind::Truth => (Physical::BOOLEAN, None),
            Kind::Number => (Physical::DOUBLE, None),
        };
        let field = Type::primitive_type_builder(&self.name, physical).with_logical_type(logical);
        Ok(field.with_repetition(Repetition::OPTIONAL).build()?)
    }

    fn text(&mut self, text: &str) {
        if let Values::Text(all) = &mut self.values {
            all.push(text.as_bytes().to_vec().into());
            self.levels.push(1);
        }
    }

    /// Takes a field in, which its row may lack.
    fn add(&mut self, row: &Row<'_>, place: Option<usize>) -> Result<()> {
        let Some(place) = place.filter(|place| !row.text(*place).is_empty()) else {
            self.levels.push(0);
            return Ok(());
        };
        match &mut self.values {
            Values::Text(all) => all.push(row.text(place).as_bytes().to_vec().into()),
            // As its bits are.
            Values::Whole(all) => all.push(row.whole(place)?.cast_signed()),
            Values::Truth(all) => all.push(row.truth(place)?),
            Values::Number(all) => all.push(row.number(place)?),
        }
        self.levels.push(1);
        Ok(())
    }
}

struct Writer {
    columns: Vec<Column>,
    /// Rows that are in memory, and all.
    held: usize,
    rows: u64,
    writer: SerializedFileWriter<File>,
}

impl Writer {
    fn new(file: File, columns: Vec<Column>) -> Result<Self> {
        let fields = columns.iter().map(|column| column.schema().map(Arc::new));
        let fields = fields.collect::<Result<Vec<_>>>()?;
        let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::GZIP(Default::default()))
            .set_created_by(concat!("uts ", env!("CARGO_PKG_VERSION")).to_owned());
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build()))?;
        Ok(Writer { columns, held: 0, rows: 0, writer })
    }

    /// A row. If it is of a run, the first column is the run's.
    fn add(&mut self, run: Option<&str>, row: &Row<'_>, places: &[Option<usize>]) -> Result<()> {
        let mut columns = self.columns.iter_mut();
        if let (Some(run), Some(column)) = (run, run.and_then(|_| columns.next())) {
            column.text(run);
        }
        for (column, place) in columns.zip(places) {
            column.add(row, *place)?;
        }
        self.held += 1;
        self.rows += 1;
        if self.held == GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        if self.held == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for Column { levels, values, .. } in &mut self.columns {
            let mut column = group.next_column()?.context("a column too few")?;
            let levels_of = Some(levels.as_slice());
            match values {
                Values::Text(all) => column.typed::<ByteArrayType>().write_batch(all, levels_of, None)?,
                Values::Whole(all) => column.typed::<Int64Type>().write_batch(all, levels_of, None)?,
                Values::Truth(all) => column.typed::<BoolType>().write_batch(all, levels_of, None)?,
                Values::Number(all) => column.typed::<DoubleType>().write_batch(all, levels_of, None)?,
            };
            column.close()?;
            levels.clear();
            values.clear();
        }
        group.close()?;
        self.held = 0;
        Ok(())
    }

    /// Ends the file; gives the number of rows.
    fn finish(mut self) -> Result<u64> {
        self.flush()?;
        self.writer.into_inner()?.sync_data()?;
        Ok(self.rows)
    }
}
