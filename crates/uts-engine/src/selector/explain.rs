//! Says of a selection, function by function, what forced the choice and what it costs.

use super::{Contradiction, Library, Selection, Source, select_on, steps};
use crate::appraisal::candidates::candidates;
use crate::appraisal::forecast_on;
use crate::appraisal::utility::share_in_time;
use crate::host::HostFacts;
use crate::requirements::Requirements;
use core::fmt;
use core::time::Duration;
use uts_functions::{Function, PathFacts, Prediction, Profile};

/// One function of an explained profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The function.
    pub function: Function,
    /// Its mechanism, with the parameters that are not at their default.
    pub mechanism: String,
    /// All parameters with their values and units.
    pub parameters: String,
    /// Cause that forced the choice.
    pub source: Source,
    /// Why.
    pub why: String,
    /// Other mechanisms that both ends have and the requirements allow.
    pub alternatives: Vec<&'static str>,
    /// Header and trailer bytes per packet that it adds.
    pub header_bytes: f64,
    /// Processing per packet at both ends that it adds, in nanoseconds.
    pub cpu_ns: f64,
    /// Mean delay one way that it adds; negative where it takes a queue away.
    pub delay_s: f64,
}

/// A selection, explained.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Requirements that were asked for, as `name=value …`.
    pub requirements: String,
    /// Selection that is explained.
    pub selection: Selection,
    /// One line per function.
    pub lines: Vec<Line>,
    /// The path that the figures are for.
    pub facts: PathFacts,
    /// Facts of the host that they are for.
    pub host: HostFacts,
    /// Requirements that have no effect under this profile, a sentence for each.
    pub notes: Vec<String>,
    /// Degree to which a deadline that is asked is kept; `None` = none is asked, or the path is not
    /// known.
    pub timeliness: Option<Timeliness>,
}

/// Degree to which data arrives by the deadline that is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeliness {
    /// The deadline, from `send` to `receive`.
    pub deadline: Duration,
    /// Share of the data (0 to 1) that is predicted to arrive by then.
    pub in_time: f64,
    /// The most that any profile which the requirements permit is predicted to bring by then.
    pub in_time_best: f64,
    /// Mean time one way that is predicted until data has arrived, propagation included.
    pub delay: Duration,
    /// Time one way of the path alone.
    pub propagation: Duration,
    /// The function that adds most to that, and how much in seconds.
    pub slowest: Option<(Function, f64)>,
}

/// A deadline that less of the data keeps than this share is told as missed.
const KEPT_MIN: f64 = 0.95;
/// Another profile that brings no more than this share more is no better.
const BETTER_MIN: f64 = 0.01;

impl Timeliness {
    /// True if so little arrives in time that the deadline counts as missed.
    pub fn is_missed(&self) -> bool {
        self.in_time < KEPT_MIN
    }
}

/// `98.2 % arrive within 100 ms`, and why so few where they are few.
impl fmt::Display for Timeliness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |span: Duration| span.as_secs_f64() * 1e3;
        write!(f, "{:.1} % arrive within {:.0} ms", self.in_time * 100.0, ms(self.deadline))?;
        if !self.is_missed() {
            return Ok(());
        }
        if self.propagation >= self.deadline {
            write!(f, "; the path alone takes {:.0} ms one way", ms(self.propagation))?;
        } else if self.delay > self.deadline {
            let late_ms = ms(self.delay - self.deadline);
            write!(f, "; the mean is {:.0} ms, {late_ms:.0} ms too late", ms(self.delay))?;
            if let Some((function, adds_s)) = self.slowest {
                write!(f, ", of which {} adds {:.0} ms", function.name(), adds_s * 1e3)?;
            }
        }
        if self.in_time_best > self.in_time + BETTER_MIN {
            write!(f, "; another profile brings {:.1} % (--why-not compares)", self.in_time_best * 100.0)
        } else {
            f.write_str("; no profile that these requirements permit does better on this path")
        }
    }
}

fn timeliness(
    requirements: &Requirements,
    (facts, host): (&PathFacts, &HostFacts),
    local: &Library,
    selection: &Selection,
    lines: &[Line],
) -> Option<Timeliness> {
    let propagation = facts.rtt_min / 2;
    let deadline = requirements.deadline_on(propagation);
    let deadline = deadline.filter(|_| crate::appraisal::rules::is_known(facts))?;
    // As the table has it: of a sender that fills the path.
    let share = |prediction: &Prediction| share_in_time(prediction, facts, deadline);
    let profile = &selection.profile;
    let in_time = share(&selection.prediction);
    let others = candidates(requirements, facts, local, profile, profile);
    let share_of = |other| share(&forecast_on(other, (facts, host)));
    let in_time_best = others.iter().map(share_of).fold(in_time, f64::max);
    let on_the_way = lines.iter().filter(|line| line.function != Function::Playout);
    let slowest = on_the_way.max_by(|a, b| a.delay_s.total_cmp(&b.delay_s));
    Some(Timeliness {
        deadline,
        in_time,
        in_time_best,
        delay: propagation
            + Duration::try_from_secs_f64(selection.prediction.delay_s).unwrap_or(Duration::MAX / 2),
        propagation,
        slowest: slowest.filter(|line| line.delay_s > 0.0).map(|line| (line.function, line.delay_s)),
    })
}

/// Selects a profile and explains it.
///
/// # Errors
/// As [`select`](super::select).
pub fn explain(
    requirements: &Requirements,
    facts: &PathFacts,
    local: &Library,
    peer: Option<&Library>,
) -> Result<Explanation, Contradiction> {
    explain_on(requirements, (facts, &HostFacts::default()), local, peer)
}

/// Selects a profile for a host of which something is known, and explains it.
///
/// # Errors
/// As [`select`](super::select).
pub fn explain_on(
    requirements: &Requirements,
    (facts, host): (&PathFacts, &HostFacts),
    local: &Library,
    peer: Option<&Library>,
) -> Result<Explanation, Contradiction> {
    let selection = select_on(requirements, (facts, host), local, peer)?;
    let mut before = Prediction::of_path(facts);
    let profile = selection.profile;
    let lines: Vec<Line> = steps(&profile, facts)
        .map(|(function, after)| {
            let reason = selection.reasons.iter().find(|r| r.function == function);
            let line = Line {
                function,
                mechanism: profile.describe(function),
                parameters: parameters(&selection, function),
                source: reason.map_or(Source::Default, |r| r.source),
                why: reason.map_or_else(String::new, |r| r.why.clone()),
                alternatives: reason.map_or_else(Vec::new, |r| r.alternatives.clone()),
                header_bytes: after.header_bytes - before.header_bytes,
                cpu_ns: after.cpu_ns - before.cpu_ns,
                delay_s: after.handed_over_s().0 - before.handed_over_s().0,
            };
            before = after;
            line
        })
        .collect();
    let notes = without_effect(requirements, &profile);
    let timeliness = timeliness(requirements, (facts, host), local, &selection, &lines);
    let requirements = requirements.to_string();
    Ok(Explanation { requirements, selection, lines, facts: *facts, host: *host, notes, timeliness })
}

/// Requirements that have no effect under a profile, a sentence for each.
fn without_effect(requirements: &Requirements, profile: &Profile) -> Vec<String> {
    let is_free = !profile.mechanisms().any(|m| m.facts.grants);
    let free =
        "maxRecvRate has no effect on data that comes without flow control: only credit holds a sender back";
    requirements.max_recv_rate.filter(|_| is_free).map(|_| free.to_owned()).into_iter().collect()
}

fn parameters(selection: &Selection, function: Function) -> String {
    let Some(mechanism) = selection.profile.mechanism(function) else { return String::new() };
    let choice = selection.profile.get(function);
    mechanism
        .params
        .iter()
        .enumerate()
        .map(|(i, p)| format!("{} {}{}", p.name, choice.params.get(i), p.unit.suffix()))
        .collect::<Vec<_>>()
        .join(", ")
}

impl Explanation {
    /// Mean time from `send` to `receive` that the profile promises on the path, if the path is
    /// known.
    pub fn delay(&self) -> Option<Duration> {
        let known = crate::appraisal::rules::is_known(&self.facts);
        let promised = self.facts.rtt_min.as_secs_f64() / 2.0 + self.selection.prediction.handed_over_s().0;
        Duration::try_from_secs_f64(promised).ok().filter(|_| known)
    }

    fn path(&self) -> String {
        let f = &self.facts;
        if !crate::appraisal::rules::is_known(f) {
            return "unknown; delays are told once it is known".to_owned();
        }
        format!(
            "{:.1} Mbit/s, round trip {:.1} ms (+{:.1} ms queue), loss {:.2} % in bursts of {:.1}",
            f.capacity.bits_per_sec() as f64 / 1e6,
            f.rtt_min.as_secs_f64() * 1e3,
            f.queueing().as_secs_f64() * 1e3,
            f.loss * 100.0,
            f.loss_burst
        )
    }

    fn rows(&self) -> Vec<[String; 6]> {
        let known = crate::appraisal::rules::is_known(&self.facts);
        let delay = |seconds: f64| match (known, seconds * 1e3) {
            (false, _) => "-".to_owned(),
            (true, ms) if ms.abs() < 0.005 => "0".to_owned(),
            (true, ms) => format!("{ms:+.2}"),
        };
        let mut rows =
            vec![["function", "mechanism", "header B", "CPU ns", "delay ms", "because"].map(str::to_owned)];
        for line in &self.lines {
            let mechanism = if line.parameters.is_empty() {
                line.mechanism.clone()
            } else {
                let name = line.mechanism.split('(').next().unwrap_or_default();
                format!("{name} ({})", line.parameters)
            };
            rows.push([
                line.function.name().to_owned(),
                mechanism,
                count(line.header_bytes),
                count(line.cpu_ns),
                delay(line.delay_s),
                format!("{}: {}", line.source, line.why),
            ]);
        }
        let p = &self.selection.prediction;
        rows.push([
            "all".to_owned(),
            String::new(),
            count(p.header_bytes),
            count(p.cpu_ns),
            self.delay().map_or_else(|| "-".to_owned(), |d| format!("{:.2}", d.as_secs_f64() * 1e3)),
            "per packet; delay one way with propagation".to_owned(),
        ]);
        rows
    }
}

/// A figure without needless decimals.
fn count(value: f64) -> String {
    if value.abs() < 0.05 { "0".to_owned() } else { format!("{value:.1}").trim_end_matches(".0").to_owned() }
}

/// A table with a line per function, what is asked and the path above it, what is predicted below.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "requirements  {}", self.requirements)?;
        writeln!(f, "path          {}", self.path())?;
        if self.host != HostFacts::default() {
            writeln!(f, "host          {}", self.host)?;
        }
        writeln!(f)?;
        let rows = self.rows();
        let mut widths = [0; 6];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in &rows {
            let [a, b, c, d, e, why] = row;
            let [wa, wb, wc, wd, we, _] = widths;
            let line = format!("{a:<wa$}  {b:<wb$}  {c:>wc$}  {d:>wd$}  {e:>we$}  {why}");
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(f)?;
        writeln!(f, "profile       {}", self.selection.profile)?;
        for note in &self.notes {
            writeln!(f, "note          {note}")?;
        }
        if !crate::appraisal::rules::is_known(&self.facts) {
            return Ok(());
        }
        let p = &self.selection.prediction;
        writeln!(
            f,
            "expected      goodput {:.1} Mbit/s, {:.0} % of the path used, {:.3} packets per packet of new data, \
             {:.3} % lost for good, 99 % within {:.1} ms",
            p.goodput(&self.facts) * 8.0 / 1e6,
            p.utilisation * 100.0,
            p.expansion,
            p.loss * 100.0,
            self.facts.rtt_min.as_secs_f64() * 500.0 + p.handed_over_s().1 * 1e3
        )?;
        match &self.timeliness {
            Some(timely) if timely.is_missed() => writeln!(f, "missed        {timely}"),
            Some(timely) => writeln!(f, "deadline      {timely}"),
            None => Ok(()),
        }
    }
}
