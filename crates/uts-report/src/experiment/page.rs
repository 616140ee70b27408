//! The page: figures with their words, matrices, methods, everything inlined.

use super::Part;
use super::chart::{Chart, Zoom};
use super::directory::{Directory, RunStatus};
use super::looks::inks;
use super::{matrix_page, methods, recorded};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use uts_plot::html::{Document, escape};
use uts_plot::svg;

const TEMPLATE: &str = include_str!("../../assets/experiment.html");
const OWN_CSS: &str = include_str!("../../assets/experiment.css");
const JS: &str = include_str!("../../assets/experiment.js");

/// Data of the page's script.
#[derive(Default, Serialize)]
struct Store<'a> {
    /// The start of downloads' names.
    name: String,
    csv: BTreeMap<String, String>,
    zoom: BTreeMap<String, &'a Zoom>,
}

/// Makes the page.
///
/// # Errors
/// Its data cannot be put into JSON.
pub(super) fn page(directory: &Directory, parts: &[Part]) -> Result<String> {
    let mut store = Store { name: file_name(&title(directory)), ..Store::default() };
    let (mut results, mut figures, mut matrices) = (String::new(), 0, 0);
    for (at, part) in parts.iter().enumerate() {
        let is_charts = |at: usize| matches!(parts.get(at), Some(Part::Charts(_)));
        match part {
            Part::Charts(charts) => {
                if at == 0 || !is_charts(at - 1) {
                    results.push_str("<div class=\"figures\">");
                }
                for chart in charts {
                    figures += 1;
                    results.push_str(&figure(chart, figures, &mut store));
                }
                if !is_charts(at + 1) {
                    results.push_str("</div>");
                }
            }
            Part::Matrices(sheets) => {
                for matrix in sheets {
                    matrices += 1;
                    let data = matrix.data(directory);
                    store.csv.insert(format!("matrix{matrices}"), data.csv());
                    results.push_str(&matrix_page::sheet(directory, matrix, matrices));
                    results.push_str(&matrix_page::details(directory, matrix, &data, matrices));
                }
            }
        }
    }
    if parts.is_empty() {
        results.push_str("<p>There is nothing to show yet.</p>");
    }
    let json = serde_json::to_string(&store).context("cannot put the series into JSON")?;
    let mut colours = vec![svg::TEXT, svg::QUIET, svg::GRID, svg::PAGE, svg::NUMBERED, recorded::LOST];
    for ink in inks() {
        if !colours.contains(&ink) {
            colours.push(ink);
        }
    }
    let title = title(directory);
    let document = Document { template: TEMPLATE, title: &title, js: JS, data: &json };
    Ok(document.page(&[
        ("colours", &svg::style_sheet(&colours)),
        ("own_css", OWN_CSS),
        ("byline", &escape(&byline(directory))),
        ("abstract", &escape(directory.plan.question.as_deref().unwrap_or_default())),
        ("problems", &problems(directory)),
        ("results", &results),
        ("methods", &methods::methods(directory)),
    ]))
}

fn title(directory: &Directory) -> String {
    if directory.plan.title.is_empty() { "Experiment".into() } else { directory.plan.title.clone() }
}

fn byline(directory: &Directory) -> String {
    let mut parts = Vec::new();
    if let Some(world) = directory.plan.world.as_ref().filter(|w| !w.is_empty()) {
        parts.push(format!("world {world}"));
    }
    parts.push(methods::progress(directory));
    if let Some(seed) = directory.plan.seed {
        parts.push(format!("seed {seed}"));
    }
    parts.join(" · ")
}

/// Safe in a file's name on any system.
fn file_name(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    let name = words.map(str::to_lowercase).collect::<Vec<_>>().join("-");
    name.chars().take(40).collect()
}

fn problems(directory: &Directory) -> String {
    let mut all = directory.problems();
    let count =
        |wanted| directory.runs.iter().filter(|r| r.record.as_ref().map(|r| r.status) == wanted).count();
    let pending = count(None);
    if pending > 0 {
        all.insert(
            0,
            format!(
                "The experiment is unfinished: {pending} of {} runs are still to come.",
                directory.runs.len()
            ),
        );
    }
    let lost = count(Some(RunStatus::Invalid)) + count(Some(RunStatus::Failed));
    if lost > 0 {
        all.push(format!("{lost} runs failed or are invalid; “Validity of runs” below has the reasons."));
    }
    if all.is_empty() {
        return String::new();
    }
    let items: String = all.iter().map(|p| format!("<li>{}</li>", escape(p))).collect();
    format!("<ul class=\"problems\">{items}</ul>")
}

fn figure<'a>(chart: &'a Chart, number: usize, store: &mut Store<'a>) -> String {
    let id = format!("figure{number}");
    let class = if chart.is_wide { "figure wide" } else { "figure" };
    let mut html =
        format!("<figure class=\"{class}\" id=\"{id}\"><div class=\"picture\">{}</div>", chart.svg);
    html.push_str("<p class=\"tools screen\">");
    if let Some(zoom) = &chart.zoom {
        store.zoom.insert(id.clone(), zoom);
        let _ = write!(html, "<button type=\"button\" data-zoom=\"{id}\">Zoom</button>");
    }
    if !chart.data.rows.is_empty() {
        store.csv.insert(id.clone(), chart.data.csv());
    }
    let is_table = chart.svg.is_empty();
    for (what, label) in [("csv", "CSV"), ("svg", "SVG"), ("png", "PNG")] {
        if is_table && what != "csv" {
            continue;
        }
        let _ = write!(html, "<button type=\"button\" data-{what}=\"{id}\">{label}</button>");
    }
    let _ = write!(
        html,
        "</p><figcaption><b>Figure {number}. {}.</b> {}</figcaption>",
        escape(&chart.title),
        escape(&chart.caption)
    );
    if !chart.notes.is_empty() {
        let items: String = chart.notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
        let _ = write!(html, "<ol class=\"notes\">{items}</ol>");
    }
    if chart.data.is_shown && !chart.data.rows.is_empty() {
        let _ = write!(
            html,
            "<details{}><summary>Values</summary><div class=\"scroll\">{}</div></details>",
            if is_table { " open" } else { "" },
            chart.data.html()
        );
    }
    html + "</figure>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_plain() {
        assert_eq!(file_name("TIGER today: 5 Mbit/s, \"AAL5\""), "tiger-today-5-mbit-s-aal5");
    }
}
