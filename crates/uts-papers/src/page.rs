//! The report: what was published beside what was found, as text and as a page that stands alone.

use crate::judge::{Judged, Ours, Verdict};
use crate::looks;
use crate::paper::Figure;
use crate::reference::Check;
use core::fmt::Write as _;
use uts_plot::html::{Document, escape};
use uts_plot::svg;

const TEMPLATE: &str = include_str!("../assets/papers.html");

/// Report of a paper's reproduction.
pub struct Report {
    /// As commands name it.
    pub name: String,
    /// Author, title, year.
    pub paper: String,
    /// The command that repeats it.
    pub command: String,
    /// Its items.
    pub judged: Vec<Judged>,
    /// Its pictures.
    pub figures: Vec<Figure>,
}

impl Report {
    /// True if each item agrees, is shown, or differs as is known.
    pub fn passes(&self) -> bool {
        self.judged.iter().all(|judged| judged.verdict.passes())
    }
}

/// Published value or claims of an item, in short.
pub fn published(judged: &Judged) -> String {
    let item = &judged.item;
    match (item.published, judged.share) {
        (Some(value), Some(share)) => {
            format!("{} ± {} %", with_unit(value, &item.unit), short(share * 100.0))
        }
        _ => item.check.iter().map(Check::claim).collect::<Vec<_>>().join("; "),
    }
}

/// Value or figures that were found for it.
pub fn ours(judged: &Judged) -> String {
    match &judged.ours {
        Some(Ours::Value(value)) => with_unit(*value, &judged.item.unit),
        Some(Ours::Figures(figures)) => {
            let unit =
                |of: &str| judged.item.check.iter().find(|check| check.of == of).map(|check| &check.unit);
            let figure = |(of, value): &(String, f64)| with_unit(*value, unit(of).map_or("", String::as_str));
            figures.iter().map(figure).collect::<Vec<_>>().join("; ")
        }
        None => "nothing".to_owned(),
    }
}

/// Remark on a verdict: why it differs, or what it rests on.
fn remark(judged: &Judged) -> Option<String> {
    match (judged.verdict, judged.item.ours) {
        (Verdict::KnownToDiffer, _) => judged.item.differs.clone(),
        (Verdict::Shown, _) => judged.basis.clone(),
        (Verdict::Differs, Some(ours)) => Some(format!("ours was {}", with_unit(ours, &judged.item.unit))),
        (Verdict::Differs, None) => {
            let was = |check: &Check| with_unit(check.ours, &check.unit);
            Some(format!("ours was {}", judged.item.check.iter().map(was).collect::<Vec<_>>().join("; ")))
        }
        _ => None,
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    if unit.is_empty() { short(value) } else { format!("{} {unit}", short(value)) }
}

/// Four significant digits, without zeros at the end.
fn short(value: f64) -> String {
    let digits = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    let decimals = (3.0 - digits).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A line for each item with its verdict, and the reasons of those that differ.
pub fn lines(report: &Report) -> Vec<(String, Option<Verdict>)> {
    let mut lines = vec![(report.paper.clone(), None)];
    for judged in &report.judged {
        let (item, verdict) = (&judged.item, judged.verdict);
        let (name, ours, published) = (verdict.name(), ours(judged), published(judged));
        let line = format!("  {name:<17} {:<12} {}: {ours} [{published}]", item.place, item.what);
        lines.push((line, Some(verdict)));
        if let Some(remark) = remark(judged) {
            lines.push((format!("  {:<17} {remark}", ""), Some(verdict)));
        }
    }
    let count = |verdict| report.judged.iter().filter(|judged| judged.verdict == verdict).count();
    let counts = Verdict::ALL.map(|verdict| (count(verdict), verdict.name()));
    let counts: Vec<String> =
        counts.iter().filter(|(n, _)| *n > 0).map(|(n, name)| format!("{n} {name}")).collect();
    lines.push((format!("{}: {}", report.name, counts.join("; ")), None));
    lines
}

/// The page.
pub fn page(reports: &[Report]) -> String {
    let (mut verdicts, mut figures) = (String::new(), String::new());
    for report in reports {
        let _ = write!(
            verdicts,
            "<h3>{}</h3><p><code>{}</code></p>",
            escape(&report.paper),
            escape(&report.command)
        );
        verdicts.push_str(&table(&report.judged));
        for figure in &report.figures {
            let _ = write!(
                figures,
                "<figure class=\"figure\"><div class=\"picture\">{}</div><figcaption><b>{}, {}{}.</b> {}</figcaption></figure>",
                figure.picture.svg(),
                escape(&report.name),
                escape(&figure.place),
                escape(&figure.part),
                escape(&figure.caption)
            );
        }
    }
    let mut colours = vec![svg::TEXT, svg::QUIET, svg::GRID, svg::PAGE, svg::NUMBERED];
    colours.extend(looks::INKS);
    let names: Vec<&str> = reports.iter().map(|report| report.name.as_str()).collect();
    let document = Document { template: TEMPLATE, title: "Papers, done again", js: "", data: "{}" };
    document.page(&[
        ("colours", &svg::style_sheet(&colours)),
        ("byline", &escape(&names.join(", "))),
        ("verdicts", &verdicts),
        ("figures", &figures),
    ])
}

fn table(judged: &[Judged]) -> String {
    let mut html = String::from(
        "<div class=\"scroll\"><table><thead><tr><th>in the paper</th><th>what</th><th>published</th><th>ours</th>\
         <th>verdict</th></tr></thead><tbody>",
    );
    for judged in judged {
        let verdict = match judged.verdict {
            Verdict::Agrees => judged.verdict.name().to_owned(),
            _ => format!("<span class=\"warning\">{}</span>", judged.verdict.name()),
        };
        let why = remark(judged).map_or_else(String::new, |why| format!("<br>{}", escape(&why)));
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{verdict}{why}</td></tr>",
            escape(&judged.item.place),
            escape(&judged.item.what),
            escape(&published(judged)),
            escape(&ours(judged)),
        );
    }
    html + "</tbody></table></div>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [4.08, 261.632, 57024.0, 0.0512, 0.381, 5.0, 0.0].map(short),
            ["4.08", "261.6", "57024", "0.0512", "0.381", "5", "0"]
        );
    }
}
