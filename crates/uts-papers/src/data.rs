//! Conclusions from the units of a paper. Its file says where each value and each checked figure
//! comes from, and which curves a figure has; and with that, which units a place needs.

use crate::draw::{self, Taken};
use crate::expression::Expression;
use crate::judge::Finding;
use crate::paper::{Conclusion, Figure, Results, Unit};
use crate::reference::{Drawn, Item, Reference};
use anyhow::{Context, Result};

/// Concludes from the results as a file of published figures says. Items and figures are left out
/// whose units were not done, and items that do not say where they come from.
///
/// # Errors
/// The file is none; it asks for what units do not leave.
pub fn conclude(results: &Results, reference: &str) -> Result<Conclusion> {
    let reference = Reference::parse(reference)?;
    let mut conclusion = Conclusion::default();
    for item in &reference.item {
        let finding = finding(item, results).with_context(|| format!("item {}", item.id))?;
        conclusion.findings.extend(finding);
    }
    for drawn in &reference.figure {
        let figure = draw(drawn, results).with_context(|| format!("{}{}", drawn.place, drawn.part))?;
        conclusion.figures.extend(figure);
    }
    Ok(conclusion)
}

/// Units with the places for which a file names them.
///
/// # Errors
/// The file is none.
pub fn place(mut units: Vec<Unit>, reference: &str) -> Result<Vec<Unit>> {
    let reference = Reference::parse(reference)?;
    let mut named: Vec<(&str, Expression)> = Vec::new();
    for item in &reference.item {
        let all = item.from.iter().chain(item.check.iter().filter_map(|check| check.from.as_ref()));
        for from in all {
            let from = Expression::parse(from).with_context(|| format!("item {}", item.id))?;
            named.push((&item.place, from));
        }
    }
    for drawn in &reference.figure {
        let why = || format!("{}{}", drawn.place, drawn.part);
        for curve in &drawn.curve {
            let columns = draw::columns(drawn, curve).with_context(why)?;
            named.extend(columns.into_iter().map(|column| (drawn.place.as_str(), column)));
        }
        for text in [&drawn.subtitle, &drawn.caption] {
            let rows = parts(text).with_context(why)?.into_iter().filter_map(|part| match part {
                Part::Rows(expression, _) => Some(expression),
                Part::Words(_) => None,
            });
            named.extend(rows.map(|rows| (drawn.place.as_str(), rows)));
        }
    }
    for unit in &mut units {
        for (place, expression) in &named {
            let is_named = expression.sources().iter().any(|source| source.is_of(&unit.name));
            if is_named && !unit.places.iter().any(|known| known == place) {
                unit.places.push((*place).to_owned());
            }
        }
    }
    Ok(units)
}

fn finding(item: &Item, results: &Results) -> Result<Option<Finding>> {
    if let Some(from) = &item.from {
        let from = Expression::parse(from)?;
        let value = from.is_done(results).then(|| from.value(results)).transpose()?;
        return Ok(value.map(|value| Finding::value(&item.id, value)));
    }
    let mut figures = Vec::new();
    for check in &item.check {
        let Some(from) = &check.from else { return Ok(None) };
        let from = Expression::parse(from).with_context(|| check.of.clone())?;
        if !from.is_done(results) {
            return Ok(None);
        }
        figures.push((check.of.clone(), from.value(results).with_context(|| check.of.clone())?));
    }
    Ok((!figures.is_empty()).then(|| Finding::figures(&item.id, figures)))
}

fn draw(drawn: &Drawn, results: &Results) -> Result<Option<Figure>> {
    let (mut taken, mut missing) = (Vec::new(), Vec::new());
    for (n, curve) in drawn.curve.iter().enumerate() {
        match Taken::of(drawn, n, results)? {
            Some(curve) => taken.push(curve),
            None if curve.beside => missing.push(curve.name.as_str()),
            None => return Ok(None),
        }
    }
    let beside = drawn.curve.iter().filter(|curve| curve.beside).count();
    if beside > 0 && missing.len() == beside {
        return Ok(None);
    }
    let mut caption = fill(&drawn.caption, results)?;
    if !missing.is_empty() {
        caption.push_str(&format!(" Not measured: {}.", missing.join("; ")));
    }
    Ok(Some(Figure {
        place: drawn.place.clone(),
        part: drawn.part.clone(),
        picture: draw::picture(drawn, &fill(&drawn.subtitle, results)?, &taken),
        caption,
    }))
}

/// A text in which each expression has its rows, to the digits behind the bar: `{one:kbps|0}`.
fn fill(text: &str, results: &Results) -> Result<String> {
    let mut filled = String::new();
    for part in parts(text)? {
        match part {
            Part::Words(words) => filled.push_str(words),
            Part::Rows(expression, digits) => {
                let rows = expression.rows(results)?;
                let rows: Vec<String> = rows.iter().map(|row| format!("{row:.digits$}")).collect();
                filled.push_str(&rows.join(", "));
            }
        }
    }
    Ok(filled)
}

/// A part of a text.
enum Part<'a> {
    Words(&'a str),
    /// An expression in braces, and how many digits behind the point its rows have.
    Rows(Expression, usize),
}

fn parts(text: &str) -> Result<Vec<Part<'_>>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((words, tail)) = rest.split_once('{') {
        let (expression, tail) = tail.split_once('}').context("a text has a brace that does not end")?;
        let (expression, digits) = expression.split_once('|').unwrap_or((expression, "0"));
        let digits = digits.parse().with_context(|| format!("digits: `{digits}`"))?;
        parts.extend([Part::Words(words), Part::Rows(Expression::parse(expression)?, digits)]);
        rest = tail;
    }
    parts.push(Part::Words(rest));
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::Series;
    use uts_plot::svg::Mark;

    const FILE: &str = r#"
        paper = "A. Uthor, 1985"
        [tolerance.time]
        share = 0.05
        why = "w"
        [[item]]
        id = "a"
        place = "table 1"
        what = "x"
        published = 4.0
        tolerance = "time"
        from = "one:x"
        ours = 4.1
        off = 2.5
        [[item]]
        id = "b"
        place = "table 2"
        what = "y"
        [[item.check]]
        of = "least"
        min = 0
        ours = 1.0
        from = "min(other:y)"
        [[figure]]
        place = "figure 1"
        title = "t"
        x = "x"
        y = "y"
        caption = "At {one:x|1} of {one:x}."
        curve = [{ name = "c", x = "one:x", y = "one:x" }, { name = "p", points = [[1, 2]], line = false }]
    "#;

    /// A unit is for the places whose items and figures name it.
    #[test]
    fn a_place_needs_the_units_that_its_items_name() {
        let units = ["one", "other", "third"].map(|name| Unit::new(name, || Ok(Series::new())));
        let units = place(units.into(), FILE).expect("a good file");
        let places: Vec<Vec<String>> = units.into_iter().map(|unit| unit.places).collect();
        assert_eq!(places, [vec!["table 1", "figure 1"], vec!["table 2"], vec![]]);
    }

    /// A curve that is measured beside the paper is left out where it was not, and that is said.
    #[test]
    fn a_figure_is_drawn_without_what_was_not_measured_beside_it() {
        let file = FILE.replace(
            "{ name = \"p\"",
            "{ name = \"b\", x = \"beside.b:x\", y = \"beside.b:x\", beside = true }, { name = \"c\", x = \"beside.c:x\", \
             y = \"beside.c:x\", beside = true }, { name = \"p\"",
        );
        let series = || Series::from([("x".to_owned(), vec![4.1])]);
        let mut results = Results([("one".to_owned(), series())].into());
        assert!(conclude(&results, &file).expect("a conclusion").figures.is_empty(), "nothing was measured");
        results.0.insert("beside.c".to_owned(), series());
        let figures = conclude(&results, &file).expect("a conclusion").figures;
        assert_eq!(figures[0].caption, "At 4.1 of 4. Not measured: b.");
        assert_eq!(figures[0].picture.legend.len(), 3);
    }

    /// Points with intervals, sequences with time-outs and time lines are of columns as well.
    #[test]
    fn each_kind_of_figure_is_drawn_of_columns() {
        let head = |kind: &str| {
            format!(
                "{FILE}\n[[figure]]\nplace = \"figure 2\"\ntitle = \"t\"\nx = \"x\"\nsubtitle = \"of {{one:x|1}}\"\n\
                 caption = \"c\"\n{kind}"
            )
        };
        let columns = [
            ("x", vec![4.1]),
            ("t-at", vec![1.0, 2.0, 3.0, 25.0]),
            ("t-packet", vec![1.0, 2.0, 1.0, 3.0]),
            ("t-repeats", vec![0.0, 0.0, 1.0, 0.0]),
            ("t-sample-at", vec![2.0]),
            ("t-sample", vec![0.5]),
            ("t-timeout-at", vec![2.0, 3.0]),
            ("t-timeout", vec![1.0, 2.0]),
            ("t-done", vec![]),
            ("w-lane", vec![0.0, 1.0]),
            ("w-begin", vec![0.0, 1.0]),
            ("w-end", vec![1.0, 3.0]),
        ];
        let series = columns.into_iter().map(|(name, column)| (name.to_owned(), column)).collect();
        let results = Results([("one".to_owned(), series)].into());
        let draw = |kind: &str| {
            let conclusion = conclude(&results, &head(kind));
            conclusion.map(|mut conclusion| conclusion.figures.pop().expect("a figure").picture)
        };
        let curve = "curve = [{ name = \"a\", x = \"one:t-at\", y = \"one:t-packet\", error = \"one:t-packet / 2\" }]";
        let picture = draw(curve).expect("curves");
        assert_eq!(picture.subtitle, "of 4.1");
        let halves: Vec<f64> = picture.panels[0]
            .marks
            .iter()
            .filter_map(|mark| match mark {
                Mark::Interval { low, high, .. } => Some((high - low) / 2.0),
                _ => None,
            })
            .collect();
        assert_eq!(halves, [0.5, 1.0, 0.5, 1.5]);
        let of = |name: &str| format!("curve = [{{ name = \"a\", of = \"one:{name}\" }}]");
        let picture =
            draw(&format!("kind = \"sequence\"\ny = \"y\"\nx_max = 20\ntimeouts = true\n{}", of("t")))
                .expect("a sequence");
        let dots: Vec<usize> = picture.panels[0]
            .marks
            .iter()
            .filter_map(|mark| match mark {
                Mark::Dots { points, .. } => Some(points.len()),
                _ => None,
            })
            .collect();
        assert_eq!(dots, [2, 1], "sent and sent again, up to the end of the axis");
        let Some(Mark::Line { points, .. }) = picture.panels[1].marks.last() else { panic!("a time-out") };
        assert_eq!(points, &[(2.0, 1.0), (3.0, 2.0), (20.0, 2.0)], "the last holds until the end");
        let picture =
            draw(&format!("kind = \"time-line\"\nlane = [\"l\", \"m\"]\n{}", of("w"))).expect("a time line");
        let bars: Vec<usize> = picture.panels.iter().map(|panel| panel.marks.len()).collect();
        assert_eq!(bars, [1, 1]);
        let uneven = curve.replace("one:t-at", "one:t-sample-at");
        let error = format!("{:#}", draw(&uneven).map(drop).expect_err("uneven"));
        assert_eq!(error, "figure 2: the curve a: its columns have not as many rows");
    }

    #[test]
    fn a_file_says_where_its_figures_come_from() {
        let results = Results([("one".to_owned(), Series::from([("x".to_owned(), vec![4.1])]))].into());
        let conclusion = conclude(&results, FILE).expect("a conclusion");
        assert_eq!(conclusion.findings, [Finding::value("a", 4.1)], "the other unit was not done");
        assert_eq!(conclusion.figures[0].caption, "At 4.1 of 4.");
        let error =
            conclude(&results, &FILE.replace("one:x|1", "one:y")).map(drop).expect_err("no such column");
        assert_eq!(format!("{error:#}"), "figure 1: one has no column y");
        let error = conclude(&results, &FILE.replace("from = \"one:x\"", "from = \"one\""))
            .map(drop)
            .expect_err("none");
        assert!(format!("{error:#}").starts_with("item a: expected a number"), "{error:#}");
    }
}
