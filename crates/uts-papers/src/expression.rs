//! Expressions over the results of units, as files of published figures have them. Each is a
//! column; a number is one of a single row, and so is what an item takes.
//!
//! * `sweep:kbps`: a column of a unit; `queue-*:kbps`: of all units whose names begin so, one below
//!   the other, in the order of their names;
//! * `sweep:kbps[buffers=8]`: of the rows in which another column of the unit has this value;
//!   `[at>=2, at<last(sweep:at)]`: in which all of this holds (`<`, `<=`, `>`, `>=`); a bound is an
//!   expression;
//! * `a + b`, `-`, `*`, `/`, between spaces: row by row, a single row with each; `(a + b) / c`;
//! * `max(sweep:kbps)`, `min`, `mean`, `median` (the upper of two), `sum`, `count`, `first` and
//!   `last`: of all rows; `max(a:kbps, b:kbps)`: of the rows of both;
//! * `abs(…)`: of each row; `steps(…)`: from each row to the next, one fewer;
//! * `slope(windows:queue, windows:buffer)`: of the straight line that fits the first over the
//!   second best, by least squares.

use crate::average::{mean, median};
use crate::paper::Results;
use anyhow::{Context, Result, bail, ensure};

/// An expression that was read.
#[derive(Clone, Debug)]
pub struct Expression(Node);

#[derive(Clone, Debug)]
enum Node {
    Number(f64),
    Column(Source),
    Call(&'static str, Function, Vec<Expression>),
    Slope(Box<[Expression; 2]>),
    /// Operands, each behind its operation.
    Chain(Vec<(char, Expression)>),
}

#[derive(Clone, Copy, Debug)]
enum Function {
    /// Of each row.
    Each(fn(&[f64]) -> Vec<f64>),
    /// Of all rows, of which there are some.
    All(fn(&[f64]) -> f64),
    /// Of all rows, if any.
    Any(fn(&[f64]) -> f64),
}

const FUNCTIONS: [(&str, Function); 10] = [
    ("max", Function::All(|rows| rows.iter().copied().fold(f64::NEG_INFINITY, f64::max))),
    ("min", Function::All(|rows| rows.iter().copied().fold(f64::INFINITY, f64::min))),
    ("mean", Function::All(mean)),
    ("median", Function::All(|rows| median(rows.iter().copied()))),
    ("sum", Function::Any(|rows| rows.iter().sum())),
    ("count", Function::Any(|rows| rows.len() as f64)),
    ("first", Function::All(|rows| rows[0])),
    ("last", Function::All(|rows| rows[rows.len() - 1])),
    ("abs", Function::Each(|rows| rows.iter().map(|row| row.abs()).collect())),
    ("steps", Function::Each(|rows| rows.windows(2).map(|pair| pair[1] - pair[0]).collect())),
];

impl Expression {
    /// Reads one.
    ///
    /// # Errors
    /// It is none; what was expected is said.
    pub fn parse(text: &str) -> Result<Self> {
        // An operation stands between spaces: names of units have hyphens.
        let is_operation = |at: usize, c: char| "+-*/".contains(c) && text[at + 1..].starts_with(' ');
        let mut operands = Vec::new();
        for (before, operand) in split(text, is_operation) {
            operands.push((before.unwrap_or('+'), Self::operand(operand.trim())?));
        }
        Ok(if operands.len() == 1 { operands.remove(0).1 } else { Expression(Node::Chain(operands)) })
    }

    fn operand(text: &str) -> Result<Self> {
        if let Ok(number) = text.parse() {
            return Ok(Expression(Node::Number(number)));
        }
        let Some((name, inside)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) else {
            return Ok(Expression(Node::Column(Source::parse(text)?)));
        };
        if name.is_empty() {
            return Self::parse(inside);
        }
        let arguments = split(inside, |_, c| c == ',').into_iter().map(|(_, text)| Self::parse(text.trim()));
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        if name == "slope" {
            let both =
                <[Expression; 2]>::try_from(arguments).ok().context("expected slope(UNIT:Y, UNIT:X)")?;
            return Ok(Expression(Node::Slope(Box::new(both))));
        }
        let function = FUNCTIONS.iter().find(|(known, _)| *known == name);
        let (name, function) = function.with_context(|| {
            let names: Vec<_> = FUNCTIONS.iter().map(|(known, _)| *known).collect();
            format!("no function `{name}`; there are {}, slope", names.join(", "))
        })?;
        Ok(Expression(Node::Call(name, *function, arguments)))
    }

    /// Its only value.
    ///
    /// # Errors
    /// As [`Expression::rows`]; or it has not a single row.
    pub fn value(&self, results: &Results) -> Result<f64> {
        let rows = self.rows(results)?;
        let name = self.sources().first().map_or(String::new(), |source| format!("{source}: "));
        ensure!(rows.len() == 1, "{name}{} values, not one", rows.len());
        Ok(rows[0])
    }

    /// Its rows.
    ///
    /// # Errors
    /// A unit has no such column, or a column not the rows that are asked for.
    pub fn rows(&self, results: &Results) -> Result<Vec<f64>> {
        match &self.0 {
            Node::Number(number) => Ok(vec![*number]),
            Node::Column(source) => source.rows(results),
            Node::Slope(both) => Ok(vec![slope(&both[1].rows(results)?, &both[0].rows(results)?)]),
            Node::Call(name, function, arguments) => {
                let rows = arguments.iter().map(|argument| argument.rows(results));
                let rows = rows.collect::<Result<Vec<_>>>()?.concat();
                Ok(match function {
                    Function::Each(function) => function(&rows),
                    Function::Any(function) => vec![function(&rows)],
                    Function::All(_) if rows.is_empty() => bail!("{name} of a column that is empty"),
                    Function::All(function) => vec![function(&rows)],
                })
            }
            Node::Chain(operands) => {
                let (mut sum, mut product) = (vec![0.0], vec![0.0]);
                for (operation, operand) in operands {
                    let rows = operand.rows(results)?;
                    match operation {
                        '*' => product = each(&product, &rows, |a, b| a * b)?,
                        '/' => product = each(&product, &rows, |a, b| a / b)?,
                        _ => {
                            sum = each(&sum, &product, |a, b| a + b)?;
                            let sign = if *operation == '-' { -1.0 } else { 1.0 };
                            product = rows.into_iter().map(|row| sign * row).collect();
                        }
                    }
                }
                each(&sum, &product, |a, b| a + b)
            }
        }
    }

    /// The columns that it names.
    pub fn sources(&self) -> Vec<&Source> {
        match &self.0 {
            Node::Number(_) => vec![],
            Node::Column(source) => {
                let bounds = source.rows.iter().flat_map(|row| row.bound.sources());
                core::iter::once(source).chain(bounds).collect()
            }
            Node::Call(_, _, arguments) => arguments.iter().flat_map(Expression::sources).collect(),
            Node::Slope(both) => both.iter().flat_map(Expression::sources).collect(),
            Node::Chain(operands) => operands.iter().flat_map(|(_, operand)| operand.sources()).collect(),
        }
    }

    /// True if all units were done that it names.
    pub fn is_done(&self, results: &Results) -> bool {
        self.sources().iter().all(|source| results.0.keys().any(|unit| source.is_of(unit)))
    }
}

/// Parts of a text between the characters outside of all brackets that `is_end` says, each with the
/// one before it.
fn split(text: &str, is_end: impl Fn(usize, char) -> bool) -> Vec<(Option<char>, &str)> {
    let (mut parts, mut begin, mut before, mut depth) = (Vec::new(), 0, None, 0);
    for (at, c) in text.char_indices() {
        depth += i32::from(matches!(c, '(' | '[')) - i32::from(matches!(c, ')' | ']'));
        if depth == 0 && is_end(at, c) {
            parts.push((before, &text[begin..at]));
            (before, begin) = (Some(c), at + c.len_utf8());
        }
    }
    parts.push((before, &text[begin..]));
    parts
}

/// An operation on the rows of two columns; a single row is taken with each of the other.
fn each(a: &[f64], b: &[f64], operation: impl Fn(f64, f64) -> f64) -> Result<Vec<f64>> {
    let rows = if a.len() == 1 { b.len() } else { a.len() };
    ensure!(b.len() == rows || b.len() == 1, "{} rows and {} rows", a.len(), b.len());
    let (a, b) = (a.iter().cycle(), b.iter().cycle());
    Ok(a.zip(b).take(rows).map(|(a, b)| operation(*a, *b)).collect())
}

/// A column of a unit, and which rows of it.
#[derive(Clone, Debug)]
pub struct Source {
    unit: String,
    column: String,
    rows: Vec<Rows>,
}

/// The rows in which another column is as is asked.
#[derive(Clone, Debug)]
struct Rows {
    column: String,
    admits: Relation,
    bound: Expression,
}

/// Relation of a value to a bound.
type Relation = fn(f64, f64) -> bool;

/// Those that begin as another does come first.
const RELATIONS: [(&str, Relation); 5] = [
    (">=", |value, bound| value >= bound),
    ("<=", |value, bound| value <= bound),
    (">", |value, bound| value > bound),
    ("<", |value, bound| value < bound),
    ("=", |value, bound| (value - bound).abs() < 1e-9),
];

impl Source {
    /// Reads `UNIT:COLUMN` or `UNIT:COLUMN[OTHER=VALUE]`.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> Result<Self> {
        let (name, rows) = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
            Some((name, rows)) => (name, split(rows, |_, c| c == ',')),
            None => (text, vec![]),
        };
        let is_unit = |unit: &str| is_name(unit.strip_suffix('*').unwrap_or(unit));
        let Some((unit, column)) =
            name.split_once(':').filter(|(unit, column)| is_unit(unit) && is_name(column))
        else {
            bail!("expected a number, UNIT:COLUMN or UNIT:COLUMN[OTHER=VALUE], not `{text}`");
        };
        let rows = rows.into_iter().map(|(_, row)| Rows::parse(row)).collect::<Result<_>>()?;
        Ok(Source { unit: unit.to_owned(), column: column.to_owned(), rows })
    }

    /// True if it names this unit, by its name or by how that begins.
    pub fn is_of(&self, unit: &str) -> bool {
        match self.unit.strip_suffix('*') {
            Some(begin) => unit.starts_with(begin),
            None => self.unit == unit,
        }
    }

    /// Its rows.
    ///
    /// # Errors
    /// There is no such unit, or it has no such columns.
    fn rows(&self, results: &Results) -> Result<Vec<f64>> {
        let units: Vec<&String> = results.0.keys().filter(|unit| self.is_of(unit)).collect();
        ensure!(!units.is_empty(), "the unit {} was not done", self.unit);
        let mut all = Vec::new();
        for unit in units {
            let column = results.column(unit, &self.column)?;
            let mut is_meant = vec![true; column.len()];
            for rows in &self.rows {
                let keys = results.column(unit, &rows.column)?;
                let bound = rows.bound.value(results).with_context(|| rows.column.clone())?;
                ensure!(keys.len() == column.len(), "{self}: {} has not as many rows", rows.column);
                is_meant.iter_mut().zip(keys).for_each(|(meant, key)| *meant &= (rows.admits)(*key, bound));
            }
            all.extend(column.iter().zip(is_meant).filter(|(_, is_meant)| *is_meant).map(|(row, _)| *row));
        }
        Ok(all)
    }
}

impl core::fmt::Display for Source {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}:{}", self.unit, self.column)
    }
}

impl Rows {
    fn parse(text: &str) -> Result<Self> {
        let begin = text.find(['<', '>', '=']).context("expected OTHER=VALUE, >=, <=, > or <")?;
        let (column, rest) = text.split_at(begin);
        let found = RELATIONS.iter().find_map(|(sign, admits)| Some((rest.strip_prefix(sign)?, *admits)));
        let (bound, admits) = found.context("expected a relation")?;
        Ok(Rows { column: column.trim().to_owned(), admits, bound: Expression::parse(bound.trim())? })
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn slope(x: &[f64], y: &[f64]) -> f64 {
    let count = x.len().min(y.len()) as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / count;
    let (x_mean, y_mean) = (mean(x), mean(y));
    let both = x.iter().zip(y).map(|(x, y)| (x - x_mean) * (y - y_mean)).sum::<f64>();
    both / x.iter().map(|x| (x - x_mean) * (x - x_mean)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::Series;

    fn results() -> Results {
        let column = |values: &[f64]| values.to_vec();
        let sweep = Series::from([
            ("buffers".into(), column(&[7.0, 8.0, 9.0])),
            ("kbps".into(), column(&[3950.0, 1820.0, 1470.0])),
        ]);
        let small = Series::from([("buffers".into(), column(&[10.0]))]);
        let one = Series::from([("x-1".into(), column(&[2.0])), ("y".into(), column(&[1.0, 2.0]))]);
        Results([("sweep-48".into(), sweep), ("sweep-32".into(), small), ("one".into(), one)].into())
    }

    #[test]
    fn an_expression_takes_values_out_of_columns() {
        for (text, expected) in [
            ("4.5", 4.5),
            ("one:x-1", 2.0),
            ("sweep-48:kbps[buffers=7] / sweep-48:kbps[buffers=8]", 3950.0 / 1820.0),
            ("max(sweep-48:kbps) - min(sweep-48:kbps) / 2 * 3 + 1", 3950.0 - 1470.0 / 2.0 * 3.0 + 1.0),
            ("max(sweep-48:kbps[buffers>=8])", 1820.0),
            ("count(sweep-48:kbps[buffers<=8]) + 1", 3.0),
            ("sum(sweep-48:kbps[buffers>=90])", 0.0),
            ("first(sweep-48:kbps)", 3950.0),
            ("last(sweep-48:kbps)", 1470.0),
            ("mean(sweep-48:buffers)", 8.0),
            ("median(sweep-48:kbps)", 1820.0),
            ("median(sweep-48:kbps[buffers<9])", 3950.0),
            ("(one:x-1 + 1) / (sum(sweep-48:buffers) - 4 * one:x-1)", 3.0 / 16.0),
            ("max(sweep-48:buffers, one:x-1 * 5, 3)", 10.0),
            ("max(sweep-48:kbps / sweep-48:buffers)", 3950.0 / 7.0),
            ("sum(abs(steps(sweep-48:kbps)))", 3950.0 - 1470.0),
            ("sweep-48:kbps[buffers>7, buffers<9]", 1820.0),
            ("sweep-48:buffers[kbps=min(sweep-48:kbps[buffers<=one:x-1 * 4])]", 8.0),
            ("sum(sweep-*:buffers)", 24.0 + 10.0),
            ("slope(sweep-48:kbps, sweep-48:buffers)", -1240.0),
        ] {
            let expression = Expression::parse(text).expect(text);
            let value = expression.value(&results()).expect(text);
            assert!((value - expected).abs() < 1e-9 && expression.is_done(&results()), "{text}: {value}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_said() {
        for (text, expected) in [
            ("sweep-48", "expected a number, UNIT:COLUMN"),
            ("", "expected a number"),
            ("middle(one:x-1)", "no function `middle`; there are max"),
            ("slope(one:x-1)", "expected slope(UNIT:Y, UNIT:X)"),
            ("one:x-1[n~3]", "expected OTHER=VALUE"),
            ("one:x-1[n=three]", "expected a number, UNIT:COLUMN"),
            ("one:x-1 + (2", "expected a number"),
            ("on*e:x-1", "expected a number"),
        ] {
            let error = format!("{:#}", Expression::parse(text).expect_err(text));
            assert!(error.contains(expected), "{text}: {error}");
        }
        for (text, expected) in [
            ("sweep-48:kbps", "3 values, not one"),
            ("sweep-48:rate", "no column rate"),
            ("sweep-48:kbps[buffers=sweep-48:buffers]", "3 values, not one"),
            ("sum(sweep-48:kbps + one:y)", "3 rows and 2 rows"),
            ("one:y[x-1=2]", "one:y: x-1 has not as many rows"),
            ("max(sweep-48:kbps[buffers=3])", "max of a column that is empty"),
        ] {
            let expression = Expression::parse(text).expect(text);
            let error = format!("{:#}", expression.value(&results()).expect_err(text));
            assert!(error.contains(expected), "{text}: {error}");
        }
        for (text, is_done) in
            [("other:x / one:x-1", false), ("one:y[x-1=other-*:x]", false), ("2 * 3", true)]
        {
            assert_eq!(Expression::parse(text).expect(text).is_done(&results()), is_done, "{text}");
        }
    }
}
