//! The table of scenarios: as text, and as a page.

use crate::contender::FIXED;
use crate::run::{GOOD, Outcome, Summary, summary};
use crate::scenario::Service;
use crate::utility;
use core::fmt::Write as _;
use uts_plot::html::{Document, escape};

const TEMPLATE: &str = include_str!("../assets/regret.html");

/// Outcomes, worst first.
fn worst_first(outcomes: &[Outcome], is_drawn: bool) -> Vec<&Outcome> {
    let mut half: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.is_drawn == is_drawn).collect();
    half.sort_by(|a, b| a.score().total_cmp(&b.score()));
    half
}

fn shown(outcome: &Outcome, utility: f64) -> String {
    let service = Service::ALL.into_iter().find(|service| service.name() == outcome.service);
    service.map_or_else(String::new, |service| utility::shown(service, utility))
}

/// The two halves and what each comes to.
fn halves(outcomes: &[Outcome]) -> [(&'static str, Option<Summary>); 2] {
    [("may be looked at", false), ("drawn", true)]
        .map(|(name, is_drawn)| (name, summary(&worst_first(outcomes, is_drawn))))
}

/// A line of text for an outcome.
pub fn line(outcome: &Outcome) -> String {
    let (best, utility) = outcome.best();
    format!(
        "{:<34} {:>5.2} of {best:<13} {:>14} against {:>14}; first {:>14}{}",
        outcome.name,
        outcome.score(),
        shown(outcome, outcome.adaptive()),
        shown(outcome, utility),
        shown(outcome, outcome.first()),
        if outcome.against_first() < GOOD { "  HARM" } else { "" },
    )
}

/// Summary of each half, as text.
pub fn summary_lines(outcomes: &[Outcome]) -> Vec<String> {
    let line = |(name, summary): (&str, Option<Summary>)| {
        summary.map(|s| {
            format!(
                "{name}: {} scenarios, {} harmed (worst {:.2} of the first profile), {:.2} gained of what there was to gain in \
                 {}; {} at {GOOD} of the best or better, worst {:.2}, median {:.2}, {:.1} exchanges a minute",
                s.scenarios,
                s.harmed,
                s.worst_against_first,
                s.gained,
                s.to_gain,
                s.good,
                s.worst,
                s.median,
                s.exchanges_per_minute
            )
        })
    };
    halves(outcomes).into_iter().filter_map(line).collect()
}

/// The page. `byline` says what was run, in plain text.
pub fn page(outcomes: &[Outcome], byline: &str) -> String {
    let document =
        Document { template: TEMPLATE, title: "Against the best fixed profile", js: "", data: "{}" };
    let fixed = FIXED.len().to_string();
    let [named, drawn] = [false, true].map(|is_drawn| table(&worst_first(outcomes, is_drawn)));
    document.page(&[
        ("byline", &escape(byline)),
        ("fixed", &fixed),
        ("summary", &summary_table(outcomes)),
        ("named", &named),
        ("drawn", &drawn),
    ])
}

fn summary_table(outcomes: &[Outcome]) -> String {
    let mut html = String::from(
        "<table><thead><tr><th>half</th><th class=\"number\">scenarios</th><th class=\"number\">harmed</th>\
         <th class=\"number\">worst of first</th><th class=\"number\">something to gain</th>\
         <th class=\"number\">share gained</th><th class=\"number\">at 0.95 or better</th>\
         <th class=\"number\">worst</th><th class=\"number\">median</th>\
         <th class=\"number\">exchanges a minute</th></tr></thead><tbody>",
    );
    for (name, summary) in halves(outcomes) {
        let Some(s) = summary else { continue };
        let _ = write!(
            html,
            "<tr><td>{name}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{:.2}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{:.2}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{:.2}</td><td class=\"number\">{:.2}</td><td class=\"number\">{:.1}</td></tr>",
            s.scenarios,
            s.harmed,
            s.worst_against_first,
            s.to_gain,
            s.gained,
            s.good,
            s.worst,
            s.median,
            s.exchanges_per_minute
        );
    }
    html + "</tbody></table>"
}

fn table(outcomes: &[&Outcome]) -> String {
    if outcomes.is_empty() {
        return "<p>None were run.</p>".into();
    }
    let mut html = String::from(
        "<div class=\"scroll\"><table><thead><tr><th>scenario</th><th class=\"number\">score</th>\
         <th class=\"number\">adaptive</th><th class=\"number\">best fixed</th><th></th><th class=\"number\">first</th>\
         <th class=\"number\">of first</th><th class=\"number\">exchanges a minute</th></tr></thead><tbody>",
    );
    for outcome in outcomes {
        let (best, utility) = outcome.best();
        let [there, back, changes] = &outcome.path;
        let path = format!("{there}; back: {back}; {changes}");
        let of_first = outcome.against_first();
        let _ = write!(
            html,
            "<tr><td title=\"{}\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td>{best}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{:.1}</td></tr>",
            escape(&path),
            escape(&outcome.name),
            marked(outcome.score()),
            shown(outcome, outcome.adaptive()),
            shown(outcome, utility),
            shown(outcome, outcome.first()),
            marked(of_first),
            outcome.exchanges_per_minute
        );
    }
    html + "</tbody></table></div>"
}

/// A score, told apart where it is bad.
fn marked(score: f64) -> String {
    if score < GOOD { format!("<span class=\"warning\">{score:.2}</span>") } else { format!("{score:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_stands_first_and_halves_apart() {
        let outcome = |name: &str, adaptive: f64, is_drawn: bool| Outcome {
            name: name.into(),
            service: "voice",
            path: ["rate=1mbit".into(), String::new(), String::new()],
            is_drawn,
            utilities: vec![("adaptive", adaptive), ("first", 0.9), ("bbr", 1.0)],
            exchanges_per_minute: 0.0,
        };
        let outcomes =
            [outcome("better", 0.99, false), outcome("worse", 0.5, false), outcome("drawn-1", 0.7, true)];
        let page = page(&outcomes, "three <runs>");
        let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("no {what}"));
        assert!(at(">worse<") < at(">better<") && at(">better<") < at(">drawn-1<"));
        assert!(page.contains("three &lt;runs&gt;") && page.contains("<span class=\"warning\">0.50</span>"));
        assert!(line(&outcomes[1]).ends_with("HARM") && !line(&outcomes[0]).ends_with("HARM"));
        assert_eq!(summary_lines(&outcomes).len(), 2);
    }
}
