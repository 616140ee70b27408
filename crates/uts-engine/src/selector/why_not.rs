//! Why a mechanism is not chosen: what it would bring on the path, and what speaks against it.

use super::{Contradiction, Library, select_on};
use crate::appraisal::utility::{Aim, Judge, Score};
use crate::appraisal::{presumed, rules};
use crate::host::HostFacts;
use crate::requirements::Requirements;
use core::fmt;
use uts_functions::mechanism::{Consent, Unasked};
use uts_functions::{Function, Mechanism, PathFacts, Profile, library};

/// Comparison of a mechanism with the mechanism that is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct WhyNot {
    /// The function.
    pub function: Function,
    /// The mechanism that is asked about.
    pub mechanism: &'static str,
    /// Mechanism that is chosen.
    pub chosen: &'static str,
    /// Objections to it, a sentence for each; empty = nothing but the figures.
    pub against: Vec<String>,
    /// Predictions for the chosen profile, and for the same profile with this mechanism.
    pub figures: [Figures; 2],
    /// The path is known well enough for figures to mean anything.
    pub is_path_known: bool,
}

/// Predicted figures of a profile on a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// From 0 to 1: what it is worth to the application.
    pub worth: f64,
    /// Bits of application data per second.
    pub goodput_bps: f64,
    /// Share of the data (0 to 1) that arrives, within its deadline if it has one.
    pub in_time: f64,
    /// Mean time one way, in milliseconds.
    pub delay_ms: f64,
    /// Bytes that are added to each packet.
    pub header_bytes: f64,
    /// Processing per packet at both ends, in nanoseconds.
    pub cpu_ns: f64,
}

impl Figures {
    fn of(score: &Score) -> Self {
        Figures {
            worth: score.worth,
            goodput_bps: score.goodput.bits_per_sec() as f64,
            in_time: score.in_time,
            delay_ms: score.delay.as_secs_f64() * 1e3,
            header_bytes: score.prediction.header_bytes,
            cpu_ns: score.prediction.cpu_ns,
        }
    }
}

/// No mechanism has that name, or several functions have one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// None.
    #[error("no mechanism is called `{name}`{}", near.as_ref().map_or_else(String::new, |near| format!("; did you mean `{near}`?")))]
    Unknown {
        /// Name that was given.
        name: String,
        /// The nearest name.
        near: Option<String>,
    },
    /// Several functions have one of that name.
    #[error("`{name}` is a mechanism of several functions: write one of {}", functions.join(", "))]
    Several {
        /// Name that was given.
        name: String,
        /// `function=mechanism` of each.
        functions: Vec<String>,
    },
    /// Nothing can be chosen at all.
    #[error("{0}")]
    Contradiction(#[from] Contradiction),
}

/// Compares a mechanism, written `function=mechanism` or by its name alone, with what the selector
/// chooses.
///
/// # Errors
/// [`Unclear`].
pub fn why_not(
    requirements: &Requirements,
    (facts, host): (&PathFacts, &HostFacts),
    local: &Library,
    name: &str,
) -> Result<WhyNot, Unclear> {
    let mechanism = find(name)?;
    let function = mechanism.function;
    let selection = select_on(requirements, (facts, host), local, None)?;
    let chosen = selection.profile;
    let with = chosen.with(function, mechanism.choice());
    let is_path_known = rules::is_known(facts);
    let aim = Aim::of(requirements);
    let judge = Judge::new(requirements, aim, (facts, host), presumed(aim, facts));
    let figures = [chosen, with].map(|profile| Figures::of(&judge.score(&profile)));
    let chosen_name = library::name_of(function, chosen.get(function).number);
    let against = against(requirements, local, mechanism, &with, figures, is_path_known);
    Ok(WhyNot { function, mechanism: mechanism.name, chosen: chosen_name, against, figures, is_path_known })
}

fn find(text: &str) -> Result<&'static Mechanism, Unclear> {
    let (function, name) = text.split_once(['=', '/']).map_or((None, text), |(f, n)| (Some(f), n));
    let found: Vec<&'static Mechanism> = library::all()
        .filter(|m| m.name == name && function.is_none_or(|function| m.function.name() == function))
        .collect();
    match found[..] {
        [mechanism] => Ok(mechanism),
        [] => {
            let names: Vec<&str> = library::all().map(|m| m.name).collect();
            let near = crate::requirements::nearest(name, names.into_iter()).map(str::to_owned);
            Err(Unclear::Unknown { name: text.to_owned(), near })
        }
        _ => Err(Unclear::Several {
            name: text.to_owned(),
            functions: found.iter().map(|m| format!("{}={}", m.function.name(), m.name)).collect(),
        }),
    }
}

fn against(
    requirements: &Requirements,
    local: &Library,
    mechanism: &Mechanism,
    with: &Profile,
    [chosen, other]: [Figures; 2],
    is_path_known: bool,
) -> Vec<String> {
    let (function, number) = (mechanism.function, mechanism.number);
    let mut against = Vec::new();
    if !local.has(function, number) {
        against.push("this endpoint's library leaves it out".to_owned());
    }
    if let Some(property) = rules::excluded_by(requirements, function, number) {
        against.push(format!("{property} rules it out"));
    }
    if let Err(error) = with.check() {
        against.push(format!("it does not go together with the rest: {error}"));
    }
    if mechanism.facts.unasked == Unasked::Never {
        against.push(format!(
            "it is taken only where it is named: --profile {}={}",
            function.name(),
            mechanism.name
        ));
    }
    if mechanism.consent != Consent::NotNeeded {
        against.push("an end that does not name it itself has to consent to it".to_owned());
    }
    if !is_path_known {
        against.push("nothing is known of the path: --path says what it is like".to_owned());
    } else if other.worth < chosen.worth {
        against.push(format!(
            "it is worth less to the application: {:.3} instead of {:.3}",
            other.worth, chosen.worth
        ));
    }
    against
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (function, mechanism, chosen) = (self.function.name(), self.mechanism, self.chosen);
        if mechanism == chosen {
            return write!(f, "{function}/{mechanism} is what is chosen");
        }
        writeln!(f, "{function}/{mechanism} instead of {function}/{chosen}")?;
        if self.is_path_known {
            let width = chosen.len().max(12);
            writeln!(f, "\n{:28} {chosen:>width$} {mechanism:>12}", "predicted")?;
            let [a, b] = &self.figures;
            for (name, [a, b], digits) in [
                ("worth to the application", [a.worth, b.worth], 3),
                ("data, Mbit/s", [a.goodput_bps / 1e6, b.goodput_bps / 1e6], 2),
                ("arrives in time, %", [a.in_time * 100.0, b.in_time * 100.0], 2),
                ("mean time one way, ms", [a.delay_ms, b.delay_ms], 2),
                ("bytes added to a packet", [a.header_bytes, b.header_bytes], 1),
                ("processing a packet, ns", [a.cpu_ns, b.cpu_ns], 0),
            ] {
                writeln!(f, "{name:28} {a:>width$.digits$} {b:>12.digits$}")?;
            }
        }
        match &self.against[..] {
            [] => write!(f, "\nNothing speaks against it: once the path is measured so, it is exchanged to."),
            reasons => {
                write!(f, "\nWhat speaks against it:")?;
                reasons.iter().try_for_each(|reason| write!(f, "\n- {reason}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::appraisal::testing::path;

    fn ask(requirements: &Requirements, facts: &PathFacts, name: &str) -> Result<WhyNot, Unclear> {
        why_not(requirements, (facts, &HostFacts::default()), &Library::local(), name)
    }

    #[test]
    fn what_a_requirement_or_a_need_rules_out_is_said() {
        let mut requirements = Requirements::bulk();
        let known = path(50, 40, 0.0, 1.0, 0.0);
        let none = ask(&requirements, &known, "retransmission=none").expect("it exists");
        assert!(none.against.iter().any(|why| why.contains("reliability")), "{none}");
        requirements.set("reliability", "prefer").expect("a property");
        let unknown = ask(&requirements, &PathFacts::default(), "bbr").expect("it exists");
        assert!(unknown.against.iter().any(|why| why.contains("--path")), "{unknown}");
        assert!(!unknown.to_string().contains("Mbit/s"), "{unknown}");
    }

    #[test]
    fn figures_stand_side_by_side_and_differ_where_the_path_does() {
        let lossy = path(50, 40, 0.02, 1.0, 0.0);
        let bbr = ask(&Requirements::bulk(), &lossy, "congestion=cubic").expect("it exists");
        let text = bbr.to_string();
        assert!(text.contains("Mbit/s") && bbr.figures[0].goodput_bps > bbr.figures[1].goodput_bps, "{text}");
        assert!(bbr.against.iter().any(|why| why.contains("worth less")), "{text}");
        let chosen = ask(&Requirements::bulk(), &lossy, bbr.chosen).expect("it exists");
        assert!(chosen.to_string().contains("is what is chosen"));
    }

    #[test]
    fn a_name_that_says_nothing_or_too_much_is_an_error_with_a_hint() {
        let ask =
            |name| ask(&Requirements::bulk(), &PathFacts::default(), name).expect_err("unclear").to_string();
        assert!(ask("cubix").contains("did you mean `cubic`"), "{}", ask("cubix"));
        assert!(ask("none").contains("presentation=none"), "{}", ask("none"));
    }
}
