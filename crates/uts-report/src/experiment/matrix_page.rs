//! The matrix as HTML: one sheet to be printed as it is, and below it everything that it was made
//! from.

use super::chart::Data;
use super::directory::Directory;
use super::matrix::{Cell, Entry, Matrix};
use super::select::table_in_words;
use super::stats::{quantile, welch};
use super::verdict::{Distance, Standing, Verdict};
use std::fmt::Write;
use uts_plot::html::{capitalised, escape};

/// The sheet: a sentence, the grid, and which transport is best at what.
pub(super) fn sheet(directory: &Directory, matrix: &Matrix, number: usize) -> String {
    let mut html = format!(
        "<section class=\"sheet\" id=\"matrix{number}\"><h2>{}</h2>",
        escape(&heading(directory, matrix))
    );
    let _ = write!(html, "<p class=\"verdict\">{}</p>", verdict(directory, matrix));
    html.push_str(&grid(directory, matrix));
    html.push_str(&key(directory, matrix));
    let _ = write!(
        html,
        "<h3>Who is best at what</h3><div class=\"scroll\">{}</div></section>",
        ranking(directory, matrix)
    );
    html
}

/// Details behind it: where UTS is not the best, and every transport in every cell.
pub(super) fn details(directory: &Directory, matrix: &Matrix, data: &Data, number: usize) -> String {
    let mut html = String::from("<section class=\"behind\">");
    if let Some(uts) = matrix.uts {
        let _ = write!(
            html,
            "<h3>Where {} is not the best</h3>{}",
            escape(&directory.names[uts]),
            shortfalls(directory, matrix)
        );
        html.push_str(&alone(directory, matrix));
    }
    let _ = write!(
        html,
        "</section><section><h3>Every transport in every cell</h3><p class=\"tools screen\"><label>Show only <input type=\"search\" \
         data-filter=\"cells{number}\" placeholder=\"a workload, path or transport\"></label> \
         <button type=\"button\" data-csv=\"matrix{number}\">CSV</button></p>\
         <div class=\"scroll\" id=\"cells{number}\">{}</div>\
         <p class=\"note\"><span class=\"screen\">Click a heading to sort. </span>± is half the 95 % confidence interval of the \
         mean by Student’s t.</p></section>",
        data.html().replacen("<table>", "<table class=\"cells sortable\">", 1)
    );
    html
}

fn heading(directory: &Directory, matrix: &Matrix) -> String {
    // The sheet may be printed alone.
    let title = &directory.plan.title;
    let of = if title.is_empty() { String::new() } else { format!("{title}: ") };
    let rest = if matrix.setting.is_empty() { String::new() } else { format!(", {}", matrix.setting) };
    format!(
        "{of}{} by {}{rest}",
        counted(matrix.rows.len(), &matrix.axes[0]),
        counted(matrix.columns.len(), &matrix.axes[1])
    )
}

/// "5 workloads", "3 values of buffer".
fn counted(count: usize, what: &str) -> String {
    match what {
        "workload" | "path" | "mixture" | "world" => {
            format!("{count} {what}{}", if count == 1 { "" } else { "s" })
        }
        sweep => format!("{count} {} of {sweep}", if count == 1 { "value" } else { "values" }),
    }
}

/// Sentences on UTS in all cells. Wins are counted among the cells that could be lost, and losses
/// are told as plainly as wins.
fn verdict(directory: &Directory, matrix: &Matrix) -> String {
    let tally = matrix.tally();
    let (cells, contested) = (tally.cells(), tally.contested());
    let Some(uts) = matrix.uts else {
        return format!("{cells} cells. No transport of this experiment is UTS.");
    };
    let name = escape(&directory.names[uts]);
    let mut parts = vec![
        format!("is the best in <b>{}</b>", tally.best),
        format!("on a par with the best in <b>{}</b>", tally.par),
    ];
    if tally.unsure > 0 {
        parts.push(format!("not told apart from it by these runs in <b>{}</b>", tally.unsure));
    }
    parts.push(format!("behind in <b>{}</b>", tally.behind));
    if tally.absent > 0 {
        parts.push(format!("without a figure in <b>{}</b>", tally.absent));
    }
    let mut text = match contested == cells {
        true => format!("Of {cells} cells, {name} {}", list(&parts)),
        false => format!(
            "Of {cells} cells, {contested} have a figure of another transport. Of these {contested}, {name} {}",
            list(&parts)
        ),
    };
    if tally.alone > 0 {
        let _ =
            write!(text, "; in <b>{}</b> only {name} has a figure, which counts neither way", tally.alone);
    }
    if tally.empty > 0 {
        let _ = write!(text, "; in {} no transport has a figure yet", tally.empty);
    }
    text + "." + &margins(matrix, &name)
}

/// By how much it wins where it is the best, and by how much it loses where it is behind.
fn margins(matrix: &Matrix, name: &str) -> String {
    let won = matrix.cells.iter().filter(|cell| cell.verdict == Verdict::Best);
    let won = won.filter_map(|cell| Some((ratio(cell, cell.entries.get(1)?)?, cell))).collect();
    let lost = matrix.cells.iter().filter(|cell| matches!(cell.verdict, Verdict::Behind(_)));
    let lost = lost.filter_map(|cell| Some((ratio(cell, cell.of(matrix.uts)?)?, cell))).collect();
    let won = margin(&format!(" Where {name} is the best"), won, "at most");
    won.unwrap_or_default() + &margin(" Where it is behind", lost, "at worst").unwrap_or_default()
}

fn margin(start: &str, mut cells: Vec<(f64, &Cell)>, most: &str) -> Option<String> {
    cells.sort_by(|a, b| a.0.total_cmp(&b.0));
    let factors: Vec<f64> = cells.iter().map(|(factor, _)| *factor).collect();
    let words = |factor: f64| Distance::Factor(factor).words();
    let (median, (largest, cell)) = (words(quantile(&factors, 0.5)?), cells.last()?);
    let (row, column) = (escape(&cell.row), escape(&cell.column));
    Some(format!(
        "{start}, it is so by {median} in the median and {} {most} ({row}, {column}).",
        words(*largest)
    ))
}

fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

fn grid(directory: &Directory, matrix: &Matrix) -> String {
    let mut html = String::from("<div class=\"scroll\"><table class=\"matrix\"><thead><tr><th></th>");
    for column in &matrix.columns {
        let about = directory.entry("path", column).map(table_in_words).unwrap_or_default();
        let _ = write!(html, "<th scope=\"col\" title=\"{}\">{}</th>", escape(&about), escape(column));
    }
    html.push_str("</tr></thead><tbody>");
    for row in &matrix.rows {
        let measure = matrix.cells.iter().find(|c| c.row == *row).map_or("", |c| c.quantity.label.as_str());
        let _ = write!(html, "<tr><th scope=\"row\">{}<span>{}</span></th>", escape(row), escape(measure));
        for column in &matrix.columns {
            html.push_str(&match matrix.cell(row, column) {
                Some(cell) => filled(directory, matrix, cell),
                None => "<td class=\"m-empty\">not planned</td>".into(),
            });
        }
        html.push_str("</tr>");
    }
    html + "</tbody></table></div>"
}

fn filled(directory: &Directory, matrix: &Matrix, cell: &Cell) -> String {
    let Some(best) = cell.best() else {
        let why = cell.entries.iter().find(|e| !e.remark.is_empty()).map_or("", |e| e.remark.as_str());
        return format!("<td class=\"m-empty\" title=\"{}\">no figure</td>", escape(why));
    };
    let name = |entry: &Entry| escape(&directory.names[entry.who]);
    let first = format!("<b>{}</b> {}", name(best), escape(&cell.short_figure(best)));
    let own = cell.of(matrix.uts).filter(|e| e.mean.is_some());
    let next = cell.entries.get(1).filter(|e| e.mean.is_some());
    let far = |d: Option<Distance>| d.map(Distance::words).unwrap_or_default();
    let (class, second) = match (cell.verdict, own, next) {
        (Verdict::Alone, ..) => ("m-alone".to_owned(), "no other ran".to_owned()),
        (Verdict::Best | Verdict::Par | Verdict::Unsure, Some(own), Some(next)) if own.who == best.who => {
            let (class, how) = match cell.verdict {
                Verdict::Best => ("m-best", far(next.behind)),
                Verdict::Par => ("m-par", far(next.behind)),
                _ => ("m-unsure", format!("{}?", far(next.behind))),
            };
            (class.into(), format!("next {} {} ({how})", name(next), escape(&cell.short_figure(next))))
        }
        (Verdict::Par, Some(own), _) => {
            ("m-par".into(), format!("{} {} (par)", name(own), escape(&cell.short_figure(own))))
        }
        (Verdict::Unsure, Some(own), _) => {
            let how = far(own.behind);
            ("m-unsure".into(), format!("{} {} ({how}?)", name(own), escape(&cell.short_figure(own))))
        }
        (Verdict::Behind(distance), Some(own), _) => {
            let unfinished = own.complete < own.tried;
            let grade = if unfinished { 3 } else { distance.map_or(3, Distance::grade) };
            let why =
                if unfinished { format!("{} of {} done", own.complete, own.tried) } else { far(distance) };
            (format!("m-behind{grade}"), format!("{} {} ({why})", name(own), escape(&cell.short_figure(own))))
        }
        _ => {
            let why = cell.of(matrix.uts).map_or("not planned", |e| e.remark.as_str());
            let uts = matrix.uts.map_or("UTS", |at| directory.names[at].as_str());
            let text = if matrix.uts.is_some() { format!("{} –", escape(uts)) } else { String::new() };
            return format!(
                "<td class=\"m-absent\" title=\"{}\">{first}<span>{text}</span></td>",
                escape(why)
            );
        }
    };
    let all: Vec<String> =
        cell.entries.iter().map(|e| format!("{}: {}", directory.names[e.who], cell.figure(e))).collect();
    format!("<td class=\"{class}\" title=\"{}\">{first}<span>{second}</span></td>", escape(&all.join("\n")))
}

fn key(directory: &Directory, matrix: &Matrix) -> String {
    let uts = escape(matrix.uts.map_or("UTS", |at| directory.names[at].as_str()));
    let variants = directory.plan.transports.iter().filter(|t| super::looks::is_uts(directory, t)).count();
    let others = match variants {
        0 | 1 => String::new(),
        _ => format!(
            " Other variants of UTS take part under their own names; {uts} stands for UTS throughout."
        ),
    };
    let (alone_key, alone) = match matrix.tally().alone {
        0 => ("", ""),
        _ => (
            "<span class=\"m-alone\">no other ran</span>",
            " A cell in which no other transport ran validly is neither won nor lost, and is in no count of such.",
        ),
    };
    let counts: Vec<usize> =
        matrix.cells.iter().flat_map(|c| &c.entries).filter_map(|e| Some(e.mean?.n)).collect();
    let n = match (counts.iter().min(), counts.iter().max()) {
        (Some(a), Some(b)) if a == b => format!("n = {a}"),
        (Some(a), Some(b)) => format!("n = {a} to {b}"),
        _ => "n = 0".into(),
    };
    format!(
        "<p class=\"key\"><span class=\"m-best\">{uts} is the best</span><span class=\"m-par\">on a par</span>\
         <span class=\"m-unsure\">not told apart</span>\
         <span class=\"m-behind1\">behind by less than 1.1 × or 3 points</span>\
         <span class=\"m-behind2\">less than 2 × or 10 points</span><span class=\"m-behind3\">more, or unfinished</span>\
         <span class=\"m-absent\">without a figure</span>{alone_key}</p><p class=\"note\">In each cell: the best transport with its mean \
         ({n}), below it {uts}, and by how much it is behind; where {uts} leads, the next. The measure of a row stands under \
         its name. On a par: within 2 % (1 point for shares). \
         Not told apart, with a question mark: a greater difference, which chance alone would make in more than 5 % of cases \
         (Welch’s test). Who did not finish every run ranks behind all who did.{alone}{others}</p>"
    )
}

fn ranking(directory: &Directory, matrix: &Matrix) -> String {
    let mut html = format!(
        "<table class=\"ranking sortable\"><thead><tr><th>Transport</th><th class=\"number\">best</th><th class=\"number\">best or \
         on a par</th><th class=\"number\">of contested cells</th><th class=\"number\">behind the best, median</th><th \
         class=\"number\">at worst</th><th>best or on a par, by {}</th></tr></thead><tbody>",
        escape(&matrix.axes[0])
    );
    let mut rows: Vec<(usize, usize, String)> = Vec::new();
    let all: std::collections::BTreeSet<usize> =
        matrix.cells.iter().flat_map(|c| &c.entries).map(|e| e.who).collect();
    for who in all {
        let here: Vec<(&Cell, &Entry)> = matrix
            .cells
            .iter()
            .filter_map(|c| Some((c, c.of(Some(who)).filter(|e| e.mean.is_some() && c.is_contested(e))?)))
            .collect();
        let best = here.iter().filter(|(c, e)| c.is_won_by(e)).count();
        let par = here.iter().filter(|(_, e)| e.standing == Some(Standing::Par)).count();
        let factors = median_and_worst(&here);
        let mut by_row = Vec::new();
        for row in &matrix.rows {
            let of = here.iter().filter(|(c, _)| c.row == *row);
            let (won, cells) = of.fold((0, 0), |(won, cells), (_, e)| {
                (won + usize::from(e.standing == Some(Standing::Par)), cells + 1)
            });
            if won > 0 {
                by_row.push(format!("{row} {won} of {cells}"));
            }
        }
        let row = format!(
            "<tr><td>{}</td><td class=\"number\">{best}</td><td class=\"number\">{par}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td></tr>",
            escape(&directory.names[who]),
            here.len(),
            factors.map_or("–".into(), |(median, _)| Distance::Factor(median).words()),
            factors.map_or("–".into(), |(_, worst)| Distance::Factor(worst).words()),
            escape(&if by_row.is_empty() { "–".into() } else { by_row.join(", ") }),
        );
        rows.push((best, par, row));
    }
    rows.sort_by_key(|(best, par, _)| std::cmp::Reverse((*best, *par)));
    rows.iter().for_each(|(.., row)| html.push_str(row));
    html + "</tbody></table><p class=\"note\">Behind the best: the factor by which the best figure of a cell is better, over all \
            contested cells: those in which it has a figure and a rival has one, too; for shares, the ratio of the shares.</p>"
}

/// Of the factors by which a transport is behind the best.
fn median_and_worst(here: &[(&Cell, &Entry)]) -> Option<(f64, f64)> {
    let mut factors: Vec<f64> = here.iter().filter_map(|(cell, entry)| ratio(cell, entry)).collect();
    factors.sort_by(f64::total_cmp);
    Some((quantile(&factors, 0.5)?, *factors.last()?))
}

/// The factor by which a transport is behind the best, of shares, too.
fn ratio(cell: &Cell, entry: &Entry) -> Option<f64> {
    let factor = match entry.behind? {
        Distance::Factor(f) => f,
        Distance::Points(_) => {
            let (best, own) = (cell.best()?.mean?.mean, entry.mean?.mean);
            if best == own { 1.0 } else { (best / own).max(own / best) }
        }
    };
    (!factor.is_nan()).then(|| factor.max(1.0))
}

/// Where nothing but UTS ran, and why nothing else did.
fn alone(directory: &Directory, matrix: &Matrix) -> String {
    let cells: Vec<&Cell> = matrix.cells.iter().filter(|c| c.verdict == Verdict::Alone).collect();
    if cells.is_empty() {
        return String::new();
    }
    let why = |cell: &Cell| {
        let rivals = cell.entries.iter().filter(|e| !e.is_uts);
        let all: Vec<String> = rivals.map(|e| format!("{}: {}", directory.names[e.who], e.remark)).collect();
        if all.is_empty() { "no other transport is planned".to_owned() } else { all.join("; ") }
    };
    let items: String = cells
        .iter()
        .map(|c| format!("<li>{}, {}: {}</li>", escape(&c.row), escape(&c.column), escape(&why(c))))
        .collect();
    format!("<h3>Where no other transport ran</h3><ul class=\"alone\">{items}</ul>")
}

/// From the widest gap to the narrowest.
fn shortfalls(directory: &Directory, matrix: &Matrix) -> String {
    let is_behind = |c: &&Cell| match c.verdict {
        Verdict::Behind(_) | Verdict::Absent => true,
        Verdict::Unsure => c.best().is_some_and(|best| Some(best.who) != matrix.uts),
        _ => false,
    };
    let mut cells: Vec<&Cell> = matrix.cells.iter().filter(is_behind).collect();
    if cells.is_empty() {
        return "<p>There is no such cell.</p>".into();
    }
    let gap = |cell: &&Cell| {
        let own = cell.of(matrix.uts).filter(|e| e.mean.is_some());
        let unfinished = own.is_none_or(|e| e.complete < e.tried);
        let factor = own.and_then(|e| median_and_worst(&[(*cell, e)])).map_or(f64::INFINITY, |f| f.1);
        (unfinished, factor)
    };
    cells.sort_by(|a, b| {
        let (a, b) = (gap(a), gap(b));
        b.0.cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    let [row, column] = matrix.axes.each_ref().map(|name| escape(&capitalised(name)));
    let mut html = format!(
        "<div class=\"scroll\"><table class=\"sortable gaps\"><thead><tr><th>{row}</th><th>{column}</th><th>Measure</th><th>Best</th>\
         <th class=\"number\">its figure</th><th class=\"number\">UTS</th><th class=\"number\">behind by</th><th \
         class=\"number\" title=\"how often chance alone would make so great a difference (Welch’s test)\">by chance</th><th>Remark</th></tr></thead><tbody>",
    );
    for cell in cells {
        let (Some(best), own) = (cell.best(), cell.of(matrix.uts)) else { continue };
        let chance = own.and_then(|own| welch(&best.mean?, &own.mean?));
        let chance = chance
            .map_or("–".into(), |p| if p < 0.001 { "p &lt; 0.001".into() } else { format!("p = {p:.3}") });
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{chance}</td><td>{}</td></tr>",
            escape(&cell.row),
            escape(&cell.column),
            escape(&cell.quantity.label),
            escape(&directory.names[best.who]),
            escape(&cell.figure(best)),
            own.map_or("–".into(), |own| escape(&cell.figure(own))),
            own.and_then(|own| own.behind).map_or("–".into(), Distance::words),
            escape(&capitalised(own.map_or("not planned", |own| own.remark.as_str()))),
        );
    }
    html + "</tbody></table></div>"
}
