//! Expressions over the results of units, as files of published figures have them: a number, a
//! value of a column, a function of a column, and the four operations on these.
//!
//! * `sweep:kbps`: the only value of a column; `sweep:kbps[buffers=8]`: in the row in which another
//!   column of the unit has this value;
//! * `max(sweep:kbps)`, `min`, `mean`, `sum`, `count`, `first`, `last`: of a column;
//!   `max(sweep:kbps[buffers>=6])`: of the rows in which another column is no less (`<=`: no more);
//! * `slope(windows:queue, windows:buffer)`: of the straight line that fits the first over the
//!   second best, by least squares.

use crate::paper::Results;
use anyhow::{Context, Result, bail, ensure};

/// An expression that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    first: Term,
    rest: Vec<(char, Term)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Number(f64),
    Only(Source),
    Function(Function, Source),
    Slope(Source, Source),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Max,
    Min,
    Mean,
    Sum,
    Count,
    First,
    Last,
}

const FUNCTIONS: [(&str, Function); 7] = [
    ("max", Function::Max),
    ("min", Function::Min),
    ("mean", Function::Mean),
    ("sum", Function::Sum),
    ("count", Function::Count),
    ("first", Function::First),
    ("last", Function::Last),
];

/// A column of a unit, and which rows of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The unit that leaves it.
    pub unit: String,
    column: String,
    rows: Option<(String, Relation, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Relation {
    Is,
    NoLess,
    NoMore,
}

const RELATIONS: [(&str, Relation); 3] =
    [(">=", Relation::NoLess), ("<=", Relation::NoMore), ("=", Relation::Is)];

impl Expression {
    /// Reads one.
    ///
    /// # Errors
    /// It is none; what was expected is said.
    pub fn parse(text: &str) -> Result<Self> {
        let mut terms = Vec::new();
        let (mut begin, mut depth) = (0, 0);
        let mut before = ' ';
        for (at, c) in text.char_indices() {
            depth += i32::from(matches!(c, '(' | '[')) - i32::from(matches!(c, ')' | ']'));
            // An operation stands between spaces: names of units have hyphens.
            if depth == 0 && "+-*/".contains(c) && text[at..].starts_with(&format!("{c} ")) {
                terms.push((before, Term::parse(text[begin..at].trim())?));
                (before, begin) = (c, at + 1);
            }
        }
        terms.push((before, Term::parse(text[begin..].trim())?));
        let (_, first) = terms.remove(0);
        Ok(Expression { first, rest: terms })
    }

    /// Its value.
    ///
    /// # Errors
    /// A unit has no such column, or a column not the rows that are asked for.
    pub fn value(&self, results: &Results) -> Result<f64> {
        let (mut sum, mut product) = (0.0, self.first.value(results)?);
        for (operation, term) in &self.rest {
            let other = term.value(results)?;
            match operation {
                '*' => product *= other,
                '/' => product /= other,
                _ => {
                    sum += product;
                    product = if *operation == '-' { -other } else { other };
                }
            }
        }
        let value = sum + product;
        Ok(value)
    }

    /// The columns that it names.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        let terms = core::iter::once(&self.first).chain(self.rest.iter().map(|(_, term)| term));
        terms.flat_map(Term::sources)
    }

    /// True if all units were done that it names.
    pub fn is_done(&self, results: &Results) -> bool {
        self.sources().all(|source| results.has(&source.unit))
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self> {
        if let Ok(number) = text.parse() {
            return Ok(Term::Number(number));
        }
        let call = text.strip_suffix(')').and_then(|text| text.split_once('('));
        match call {
            None => Ok(Term::Only(Source::parse(text)?)),
            Some(("slope", both)) => {
                let (y, x) = both.split_once(',').context("expected slope(UNIT:Y, UNIT:X)")?;
                Ok(Term::Slope(Source::parse(y.trim())?, Source::parse(x.trim())?))
            }
            Some((name, source)) => {
                let function = FUNCTIONS.iter().find(|(known, _)| *known == name);
                let (_, function) = function.with_context(|| {
                    let names: Vec<_> = FUNCTIONS.iter().map(|(known, _)| *known).collect();
                    format!("no function `{name}`; there are {}, slope", names.join(", "))
                })?;
                Ok(Term::Function(*function, Source::parse(source)?))
            }
        }
    }

    fn sources(&self) -> Vec<&Source> {
        match self {
            Term::Number(_) => vec![],
            Term::Only(source) | Term::Function(_, source) => vec![source],
            Term::Slope(y, x) => vec![y, x],
        }
    }

    fn value(&self, results: &Results) -> Result<f64> {
        match self {
            Term::Number(number) => Ok(*number),
            Term::Only(source) => {
                let values = source.values(results)?;
                ensure!(values.len() == 1, "{}: {} values, not one", source.name(), values.len());
                Ok(values[0])
            }
            Term::Function(function, source) => function.of(&source.values(results)?, &source.name()),
            Term::Slope(y, x) => Ok(slope(&x.values(results)?, &y.values(results)?)),
        }
    }
}

impl Function {
    fn of(self, values: &[f64], name: &str) -> Result<f64> {
        let count = values.len() as f64;
        ensure!(count > 0.0 || matches!(self, Function::Count | Function::Sum), "{name}: it is empty");
        Ok(match self {
            Function::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Function::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Function::Mean => values.iter().sum::<f64>() / count,
            Function::Sum => values.iter().sum(),
            Function::Count => count,
            Function::First => values[0],
            Function::Last => values[values.len() - 1],
        })
    }
}

impl Source {
    /// Reads `UNIT:COLUMN` or `UNIT:COLUMN[OTHER=VALUE]`.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> Result<Self> {
        let (name, rows) = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
            Some((name, rows)) => (name, Some(rows)),
            None => (text, None),
        };
        let Some((unit, column)) =
            name.split_once(':').filter(|(unit, column)| is_name(unit) && is_name(column))
        else {
            bail!("expected a number, UNIT:COLUMN or UNIT:COLUMN[OTHER=VALUE], not `{text}`");
        };
        let rows = match rows {
            None => None,
            Some(rows) => {
                let found =
                    RELATIONS.iter().find_map(|(sign, relation)| Some((rows.split_once(sign)?, *relation)));
                let ((other, value), relation) = found.context("expected OTHER=VALUE, >= or <=")?;
                let value = value.parse().with_context(|| format!("`{value}` is no number"))?;
                Some((other.to_owned(), relation, value))
            }
        };
        Ok(Source { unit: unit.to_owned(), column: column.to_owned(), rows })
    }

    fn name(&self) -> String {
        format!("{}:{}", self.unit, self.column)
    }

    /// Its values.
    ///
    /// # Errors
    /// The unit has no such columns.
    pub fn values(&self, results: &Results) -> Result<Vec<f64>> {
        let column = results.column(&self.unit, &self.column)?;
        let Some((other, relation, value)) = &self.rows else { return Ok(column.to_vec()) };
        let keys = results.column(&self.unit, other)?;
        let is_meant = |key: &f64| match relation {
            Relation::Is => (key - value).abs() < 1e-9,
            Relation::NoLess => key >= value,
            Relation::NoMore => key <= value,
        };
        Ok(column.iter().zip(keys).filter(|(_, key)| is_meant(key)).map(|(value, _)| *value).collect())
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
        let one = Series::from([("x-1".into(), column(&[2.0]))]);
        Results([("sweep-48".into(), sweep), ("one".into(), one)].into())
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
            ("one:x-1[n=three]", "`three` is no number"),
        ] {
            let error = format!("{:#}", Expression::parse(text).expect_err(text));
            assert!(error.contains(expected), "{text}: {error}");
        }
        for (text, expected) in [
            ("sweep-48:kbps", "3 values, not one"),
            ("sweep-48:rate", "no column rate"),
            ("max(sweep-48:kbps[buffers=3])", "it is empty"),
        ] {
            let expression = Expression::parse(text).expect(text);
            let error = format!("{:#}", expression.value(&results()).expect_err(text));
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(!Expression::parse("other:x / one:x-1").expect("one").is_done(&results()));
    }
}
