//! The library agrees with `spec/functions.toml` and with the pages of `spec/functions`, both ways;
//! and all code with the rules of the specification.

mod rules;

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uts_functions::mechanism::{Bold, Choice, Consent, Need, Unit};
use uts_functions::{
    Function, Mechanism, PathFacts, Prediction, Rate, acknowledgement, congestion, detection, establishment,
    fec, finding, flow, library, playout, presentation, protection, rate, retransmission, segmentation,
    sequencing, timing,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    function: Vec<SpecFunction>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecFunction {
    name: String,
    number: u8,
    mechanism: Vec<SpecMechanism>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecMechanism {
    name: String,
    number: u8,
    mandatory: bool,
    consent: Option<String>,
    #[serde(default)]
    positions: bool,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    params: Vec<SpecParam>,
}

#[derive(Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
struct SpecParam {
    name: String,
    unit: String,
    default: u32,
    min: u32,
    max: u32,
    bold: Option<String>,
}

fn spec_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn spec() -> Spec {
    toml::from_str(&read(&spec_dir().join("functions.toml")))
        .unwrap_or_else(|e| panic!("functions.toml: {e}"))
}

fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "count",
        Unit::Packets => "packets",
        Unit::Bytes => "bytes",
        Unit::Kibibytes => "KiB",
        Unit::Micros => "us",
        Unit::Millis => "ms",
        Unit::PerMille => "per mille",
        Unit::KilobitsPerSecond => "kbit/s",
    }
}

/// A mechanism of the library in the words of the specification.
fn in_words(m: &Mechanism) -> SpecMechanism {
    let params = m.params.iter().map(|p| SpecParam {
        name: p.name.to_owned(),
        unit: unit_name(p.unit).to_owned(),
        default: p.default,
        min: p.min,
        max: p.max,
        bold: match p.bold {
            Bold::Neither => None,
            Bold::Above => Some("above".to_owned()),
            Bold::Below => Some("below".to_owned()),
        },
    });
    SpecMechanism {
        name: m.name.to_owned(),
        number: m.number,
        mandatory: m.mandatory,
        consent: match m.consent {
            Consent::NotNeeded => None,
            Consent::OfSender => Some("sender".to_owned()),
            Consent::OfReceiver => Some("receiver".to_owned()),
            Consent::OfBoth => Some("both".to_owned()),
        },
        positions: m.facts.positions,
        needs: needs_of(m),
        params: params.collect(),
    }
}

/// The mechanisms of which a profile has to have one for another to work; none if all do.
fn needs_of(m: &Mechanism) -> Vec<String> {
    let mut names = Vec::new();
    for need in m.needs {
        let (Need::Present(function) | Need::Promise(function, _)) = *need;
        let is_met = |other: &Mechanism| match *need {
            Need::Present(_) => !other.facts.inert,
            Need::Promise(_, promise) => other.promises(promise),
        };
        let all = library::built_in(function);
        if !all.iter().all(|other| is_met(other)) {
            assert!(names.is_empty(), "{m:?}: the table has room for one need");
            let met = all.iter().filter(|other| is_met(other));
            names.extend(met.map(|other| format!("{}/{}", function.name(), other.name)));
        }
    }
    names
}

/// Notes the differences between the two entries of one mechanism.
fn compare(at: &str, spec: &SpecMechanism, have: &SpecMechanism, found: &mut Vec<String>) {
    if spec.name != have.name {
        found.push(format!("{at}: specified as `{}`, in the library `{}`", spec.name, have.name));
    }
    if spec.mandatory != have.mandatory {
        found.push(format!(
            "{at}: specified mandatory = {}, in the library {}",
            spec.mandatory, have.mandatory
        ));
    }
    if spec.consent != have.consent {
        found.push(format!("{at}: specified consent {:?}, in the library {:?}", spec.consent, have.consent));
    }
    if (spec.positions, &spec.needs) != (have.positions, &have.needs) {
        found.push(format!(
            "{at}: specified positions = {}, needs {:?}, in the library {}, {:?}",
            spec.positions, spec.needs, have.positions, have.needs
        ));
    }
    for i in 0..spec.params.len().max(have.params.len()) {
        let (spec, have) = (spec.params.get(i), have.params.get(i));
        if spec != have {
            found.push(format!("{at}, parameter {i}: specified {spec:?}, in the library {have:?}"));
        }
    }
}

/// Fails with all that was found, not only the first of it.
fn assert_none(found: &[String]) {
    assert!(found.is_empty(), "{} differences:\n  {}", found.len(), found.join("\n  "));
}

#[test]
fn specification_and_library_agree() {
    let spec = spec();
    let mut found = Vec::new();
    for function in Function::ALL {
        if !spec.function.iter().any(|f| f.number == function.number() && f.name == function.name()) {
            found.push(format!("{} = {} is not specified", function.name(), function.number()));
        }
    }
    for f in &spec.function {
        let Some(function) = Function::from_number(f.number).filter(|known| known.name() == f.name) else {
            found.push(format!("{} = {} is specified and not in the library", f.name, f.number));
            continue;
        };
        let mut have: BTreeMap<u8, SpecMechanism> =
            library::built_in(function).iter().map(|m| (m.number, in_words(m))).collect();
        for m in &f.mechanism {
            let at = format!("{}/{} ({})", f.name, m.name, m.number);
            match have.remove(&m.number) {
                Some(ours) => compare(&at, m, &ours, &mut found),
                None => found.push(format!("{at} is specified and not in the library")),
            }
        }
        for m in have.values() {
            found.push(format!("{}/{} ({}) is not specified", f.name, m.name, m.number));
        }
    }
    assert_none(&found);
}

/// A profile that names nothing performs mechanism 0 of each function, with its defaults (P-40).
#[test]
fn what_is_not_named_is_mechanism_0() {
    let bare = uts_functions::Profile::bare();
    for f in &spec().function {
        let function = Function::from_number(f.number).expect("known");
        let default = f.mechanism.iter().find(|m| m.number == 0).expect("each function has a mechanism 0");
        let choice = bare.get(function);
        let params: Vec<u32> = default.params.iter().map(|p| p.default).collect();
        assert_eq!((choice.number, &choice.params.0[..params.len()]), (0, &params[..]), "{}", f.name);
    }
}

#[test]
fn numbers_and_names_are_unique() {
    let mut found = Vec::new();
    for function in Function::ALL {
        let list = library::of(*function);
        for (i, m) in list.iter().enumerate() {
            if m.function != *function {
                found.push(format!("{m:?} is registered under {}", function.name()));
            }
            if list[..i].iter().any(|other| other.number >= m.number || other.name == m.name) {
                found.push(format!("{m:?}: number {} or name is used twice or out of order", m.number));
            }
        }
    }
    for f in &spec().function {
        for (i, m) in f.mechanism.iter().enumerate() {
            if f.mechanism[..i].iter().any(|other| other.number == m.number || other.name == m.name) {
                found.push(format!("functions.toml: {}/{} is there twice", f.name, m.name));
            }
        }
    }
    assert_none(&found);
}

#[test]
fn descriptions_are_whole() {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    let mut found = Vec::new();
    for m in library::all() {
        if m.what.is_empty() || !is_name(m.name) {
            found.push(format!("{m:?}: nothing said, or not a name"));
        }
        for p in m.params {
            if p.what.is_empty() || !is_name(p.name) || p.min > p.default || p.default > p.max {
                found.push(format!("{m:?}, {}: nothing said, not a name, or default out of range", p.name));
            }
        }
    }
    assert_none(&found);
}

/// Each mechanism has a heading on its function's page that names it with its number, and below it
/// each of its parameters with default and range.
#[test]
fn pages_name_every_mechanism_and_what_its_parameters_may_be() {
    let mut found = Vec::new();
    for f in &spec().function {
        let path = spec_dir().join("functions").join(format!("{}.md", f.name));
        let Ok(page) = fs::read_to_string(&path) else {
            found.push(format!("spec/functions/{}.md is missing", f.name));
            continue;
        };
        for m in &f.mechanism {
            let Some(section) = section_of(&page, m) else {
                found.push(format!("spec/functions/{}.md has no heading `{}`", f.name, heading_of(m)));
                continue;
            };
            for p in &m.params {
                let (said, is) = (said_of(&section, &p.name), [p.default, p.min, p.max].map(u64::from));
                if said != Some(is) {
                    let at = format!("spec/functions/{}.md, {}, `{}`", f.name, m.name, p.name);
                    found.push(format!("{at}: default and range are said to be {said:?}, and are {is:?}"));
                }
            }
        }
    }
    assert_none(&found);
}

/// The heading of a mechanism on the page of its function.
fn heading_of(m: &SpecMechanism) -> String {
    let demand = if m.mandatory { "mandatory" } else { "optional" };
    format!("## {} (mechanism {}, {demand})", m.name, m.number)
}

/// The text of a page below the heading of a mechanism.
fn section_of(page: &str, m: &SpecMechanism) -> Option<String> {
    let mut lines = page.lines();
    lines.find(|line| *line == heading_of(m))?;
    Some(lines.take_while(|line| !line.starts_with("## ")).collect::<Vec<_>>().join("\n"))
}

/// Default, least and largest value of a parameter as a page says them: "`name` (unit, default 3, 1
/// to 16)", or a row of a table, "| `name` | unit | 3 | 1 to 16 |".
fn said_of(section: &str, name: &str) -> Option<[u64; 3]> {
    let row = section.lines().find_map(|line| line.strip_prefix(&format!("| `{name}` |")));
    let said = match row {
        Some(row) => row.split('|').skip(1).take(2).collect::<Vec<_>>().join(" "),
        None => {
            let (_, behind) = section.split_once(&format!("`{name}` ("))?;
            behind.split(')').next()?.split_once("default")?.1.to_owned()
        }
    };
    let said = said.replace(',', "");
    let mut words = said.split_whitespace().map(|word| word.trim_end_matches(':'));
    let default = words.next()?.parse().ok()?;
    let words: Vec<&str> = words.collect();
    let range = words.windows(3).find(|three| three[1] == "to")?;
    Some([default, range[0].parse().ok()?, range[2].parse().ok()?])
}

#[test]
fn what_a_page_says_of_a_parameter_is_read_wherever_it_stands() {
    let prose = "Parameters `a` (count, default 3,\n1 to 1,600) and `b` (default 0, 0 to 1: 1 = so).";
    assert_eq!(said_of(prose, "a"), Some([3, 1, 1600]));
    assert_eq!(said_of(prose, "b"), Some([0, 0, 1]));
    assert_eq!(said_of(prose, "c"), None);
    assert_eq!(said_of("| `a` | ms | 60 | 1 to 100 | kept |", "a"), Some([60, 1, 100]));
    assert_eq!(said_of("`a` (default 1)", "a"), None, "no range");
}

#[test]
fn default_choices_pass_and_build() {
    let mut found = Vec::new();
    for m in library::all() {
        let choice = m.choice();
        if let Err(error) = m.check(&choice.params) {
            found.push(format!("{m:?}: {error}"));
        }
        if !builds(m.function, &choice) {
            found.push(format!("{m:?} is not built"));
        }
    }
    assert_none(&found);
}

/// True if a slot can be built from a choice.
fn builds(function: Function, choice: &Choice) -> bool {
    let context = congestion::Context {
        now: uts_functions::Time::ZERO,
        packet_bytes: 1200,
        summary: congestion::Summary::initial(1200),
        past: None,
        seed: 1,
    };
    match function {
        Function::Establishment => establishment::Slot::build(choice, ()).is_some(),
        Function::Presentation => presentation::Slot::build(choice, ()).is_some(),
        Function::Segmentation => segmentation::Slot::build(choice, ()).is_some(),
        Function::Sequencing => sequencing::Slot::build(choice, ()).is_some(),
        Function::Retransmission => retransmission::Slot::build(choice, ()).is_some(),
        Function::Acknowledgement => acknowledgement::Slot::build(choice, ()).is_some(),
        Function::Timing => timing::Slot::build(choice, ()).is_some(),
        Function::Flow => flow::Slot::build(choice, ()).is_some(),
        Function::Rate => rate::Slot::build(choice, ()).is_some(),
        Function::Congestion => congestion::Slot::build(choice, &context).is_some(),
        Function::Fec => fec::Slot::build(choice, ()).is_some(),
        Function::Finding => finding::Slot::build(choice, ()).is_some(),
        Function::Playout => playout::Slot::build(choice, ()).is_some(),
        Function::Detection => detection::Slot::build(choice, ()).is_some(),
        Function::Protection => {
            let secret = protection::Secret::from_bytes([7; protection::Secret::BYTES]);
            protection::Slot::build(choice, &secret).is_some()
        }
    }
}

/// Each need of a mechanism is a path in the graph of functions.
#[test]
fn needs_of_mechanisms_are_paths_of_the_graph() {
    use uts_functions::dependencies::{NODES, reaches};
    let of = |function| NODES.iter().filter(move |node| node.functions.contains(&function));
    let mut found = Vec::new();
    for m in library::all() {
        for need in m.needs {
            let (Need::Present(other) | Need::Promise(other, _)) = *need;
            if !of(m.function).any(|a| of(other).any(|b| reaches(a, b))) {
                found.push(format!("{m:?} needs {}", other.name()));
            }
        }
    }
    assert_none(&found);
}

/// On any path, known or unknown, no mechanism predicts nonsense.
#[test]
fn predictions_stay_within_sense() {
    let mut found = Vec::new();
    for m in library::all() {
        for facts in some_paths() {
            let mut p = Prediction::of_path(&facts);
            (m.predict)(&m.choice().params, &facts, &mut p);
            let shares = [p.utilisation, p.loss, p.loss_seen];
            let amounts = [p.header_bytes, p.delay_s, p.delay_p99_s, p.cpu_ns];
            let sound = shares.iter().all(|s| (0.0..=1.0).contains(s))
                && amounts.iter().all(|a| a.is_finite() && *a >= 0.0)
                && (1.0..f64::INFINITY).contains(&p.expansion)
                && p.goodput(&facts).is_finite();
            if !sound {
                found.push(format!("{m:?} on {facts:?}: {p:?}"));
            }
        }
    }
    assert_none(&found);
}

/// Paths from nothing known to extremes, among them the default of [`PathFacts`].
fn some_paths() -> Vec<PathFacts> {
    let mut paths = vec![PathFacts::default()];
    for rtt_us in [0, 50, 20_000, 600_000] {
        for kbit in [9, 10_000, 10_000_000] {
            for loss in [0.0, 0.001, 0.05, 0.5, 1.0] {
                let rtt_min = Duration::from_micros(rtt_us);
                paths.push(PathFacts {
                    rtt_min,
                    rtt_smoothed: rtt_min * 3 / 2,
                    rtt_deviation: rtt_min / 8,
                    capacity: Rate::from_bits_per_sec(kbit * 1000),
                    loss,
                    loss_burst: 1.0 + 4.0 * loss,
                    loss_congestive: 0.3,
                    samples: 1000,
                    ..PathFacts::default()
                });
            }
        }
    }
    paths
}

/// Predictions of the mechanisms of one function, beside each other.
#[test]
fn predictions_tell_mechanisms_apart() {
    let facts = PathFacts {
        rtt_min: Duration::from_millis(20),
        rtt_smoothed: Duration::from_millis(20),
        capacity: Rate::from_bits_per_sec(100_000_000),
        loss: 0.02,
        ..PathFacts::default()
    };
    let predict = |function, name: &str, facts: &PathFacts, settings: &[(&str, u64)]| {
        let m = library::by_name(function, name).expect("a mechanism of the library");
        let mut p = Prediction::of_path(facts);
        (m.predict)(&m.choice_with(settings).expect("in range").params, facts, &mut p);
        p
    };
    let selective = predict(Function::Retransmission, "selective", &facts, &[]);
    let go_back_n = predict(Function::Retransmission, "go-back-n", &facts, &[]);
    let none = predict(Function::Retransmission, "none", &facts, &[]);
    assert_eq!((selective.loss, go_back_n.loss, none.loss), (0.0, 0.0, 0.02));
    // 208 packets in flight: each loss repeats them all.
    assert!((go_back_n.expansion / selective.expansion - 5.15).abs() < 0.1, "{go_back_n:?}");
    assert!((selective.expansion - 1.0 / 0.98).abs() < 1e-9 && selective.delay_p99_s >= 0.03);
    let clean = PathFacts { loss: 0.0, ..facts };
    assert_eq!(predict(Function::Retransmission, "go-back-n", &clean, &[]).expansion, 1.0);

    let (credit, unlimited) =
        (predict(Function::Flow, "credit", &facts, &[]), predict(Function::Flow, "none", &facts, &[]));
    assert_eq!(credit.utilisation, 1.0, "the window grows to what the path holds");
    assert!(credit.cpu_ns > unlimited.cpu_ns);

    let paced = predict(Function::Rate, "pacing-bucket", &facts, &[]);
    let unpaced = predict(Function::Rate, "none", &facts, &[]);
    assert!(paced.delay_p99_s < unpaced.delay_p99_s);

    let report_cost =
        |name, settings: &[(&str, u64)]| predict(Function::Acknowledgement, name, &facts, settings).cpu_ns;
    let costs = [
        report_cost("per-packet", &[]),
        report_cost("delayed", &[("packets", 2)]),
        report_cost("delayed", &[("packets", 10)]),
        report_cost("poll-status", &[]),
    ];
    assert!(costs.windows(2).all(|w| w[0] > w[1]), "{costs:?}");
}

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    for path in entries.map(|e| e.expect("a directory entry").path()) {
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// Profiles and the library know the functions, and no function knows them: what a mechanism needs
/// of either stands on the ground (`function.rs`, `mechanism.rs`).
#[test]
fn functions_know_neither_profile_nor_library() {
    let (mut files, mut found) = (Vec::new(), Vec::new());
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    sources(&src, &mut files);
    let above = ["library.rs", "profile.rs", "numbering.rs", "lib.rs"];
    let is_above = |path: &PathBuf| above.iter().any(|f| *path == src.join(f));
    for path in files.iter().filter(|path| !is_above(path)) {
        let text = read(path);
        for above in ["crate::profile", "crate::library", "crate::Profile"] {
            if text.contains(above) {
                found.push(format!("{} takes from {above}", path.display()));
            }
        }
    }
    assert!(files.len() > 50, "sources are found at all: {}", files.len());
    assert_none(&found);
}
