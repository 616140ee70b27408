//! Conclusions from the units of a paper whose file has them: where each value and each checked
//! figure comes from, and which curves a figure has. It says with that which units a place needs.

use crate::expression::Expression;
use crate::judge::Finding;
use crate::looks::{Curve, Words, curves};
use crate::paper::{Conclusion, Figure, Results, Unit};
use crate::reference::{Drawn, DrawnCurve, Item, Reference};
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
        for curve in drawn.curve.iter().flat_map(|curve| [&curve.x, &curve.y]).flatten() {
            named.push((&drawn.place, Expression::parse(curve)?));
        }
        for (expression, _) in expressions(&drawn.caption)?.iter().filter_map(|part| part.1) {
            named.push((&drawn.place, Expression::parse(expression)?));
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
    let (mut all, mut missing) = (Vec::new(), Vec::new());
    for (look, curve) in drawn.curve.iter().enumerate() {
        let Some(points) = points(curve, results)? else {
            if !curve.beside {
                return Ok(None);
            }
            missing.push(curve.name.as_str());
            continue;
        };
        all.push(Curve {
            name: curve.name.clone(),
            look: curve.look.unwrap_or(look),
            points,
            errors: Vec::new(),
            has_line: curve.line,
            has_marks: curve.marks,
        });
    }
    let beside = drawn.curve.iter().filter(|curve| curve.beside).count();
    if beside > 0 && missing.len() == beside {
        return Ok(None);
    }
    let mut caption = fill(&drawn.caption, results)?;
    if !missing.is_empty() {
        caption.push_str(&format!(" Not measured: {}.", missing.join("; ")));
    }
    let words = Words { title: &drawn.title, subtitle: &drawn.subtitle, x: &drawn.x, y: &drawn.y };
    Ok(Some(Figure {
        place: drawn.place.clone().into(),
        part: drawn.part.clone().into(),
        picture: curves(&words, drawn.log, drawn.y_max, &all),
        caption,
    }))
}

/// Points of a curve; `None` if a unit was not done that it needs.
fn points(curve: &DrawnCurve, results: &Results) -> Result<Option<Vec<(f64, f64)>>> {
    if !curve.points.is_empty() {
        return Ok(Some(curve.points.iter().map(|[x, y]| (*x, *y)).collect()));
    }
    let source =
        |text: &Option<String>| Expression::parse(text.as_deref().context("a curve has points, or x and y")?);
    let (x, y) = (source(&curve.x)?, source(&curve.y)?);
    if !x.is_done(results) || !y.is_done(results) {
        return Ok(None);
    }
    let all = x.rows(results)?.into_iter().zip(y.rows(results)?);
    Ok(Some(all.filter(|(x, y)| x.is_finite() && y.is_finite()).collect()))
}

/// A caption, with the value of each expression in braces, to the digits behind the bar:
/// `{one:kbps|0}`.
fn fill(caption: &str, results: &Results) -> Result<String> {
    let mut filled = String::new();
    for (text, expression) in expressions(caption)? {
        filled.push_str(text);
        if let Some((expression, digits)) = expression {
            let value = Expression::parse(expression)?.value(results)?;
            filled.push_str(&format!("{value:.digits$}"));
        }
    }
    Ok(filled)
}

/// The expressions of a caption with their digits, each behind the text before it.
#[allow(clippy::type_complexity, reason = "read in two places only")]
fn expressions(caption: &str) -> Result<Vec<(&str, Option<(&str, usize)>)>> {
    let mut parts = Vec::new();
    let mut rest = caption;
    while let Some((text, tail)) = rest.split_once('{') {
        let (expression, tail) = tail.split_once('}').context("a caption has a brace that does not end")?;
        let (expression, digits) = expression.split_once('|').unwrap_or((expression, "0"));
        let digits = digits.parse().with_context(|| format!("digits: `{digits}`"))?;
        parts.push((text, Some((expression, digits))));
        rest = tail;
    }
    parts.push((rest, None));
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::Series;

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
        let units = ["one", "other", "third"].map(|name| Unit::new(name, [], || Ok(Series::new())));
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
