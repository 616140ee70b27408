//! `uts functions`: the library of protocol functions, and named profiles made of it.

mod graph;

use super::Failure;
use super::properties::indent;
use crate::args::FunctionsArgs;
use crate::ui::lines;
use serde_json::{Value, json};
use uts_engine::Mapping;
use uts_engine::named::{self, CLASS_NAMES, CLASSES, Named};
use uts_functions::mechanism::{Consent, Need, Unasked};
use uts_functions::{Function, Mechanism, library};

/// Table 2.3 of Richards, "The Universal Transport System" (1995): the profile that fits best, the
/// name there, and its four columns. TCP has a GBN window there and an ACK for each packet, which
/// Tahoe comes nearest to. XTP is 3.2; the profile is 3.6.
const TABLE_2_3: [(&str, &str, [&str; 4]); 5] = [
    (
        "tcp-tahoe",
        "TCP",
        [
            "handshake based",
            "checksum on TPDU; 1 by 1 ACK; GBN window; timer at Tx",
            "1 by 1 ACK; coupled with error control",
            "Tx must time out for lost packets; heavy reliance on timers",
        ],
    ),
    (
        "tp4",
        "OSI/TP4",
        [
            "handshake based",
            "length field of packet; checksum over TPDU optional; 1 by 1 ACK; GBN window; timer at Tx",
            "1 by 1 ACK; coupled with error control",
            "",
        ],
    ),
    (
        "netblt",
        "NETBLT",
        [
            "modified handshaking arrangement",
            "state sent when a block is received; receiver based time-outs, using inter-arrival times; SR window; \
             allows continuous transmission with errors; inter-arrival timer at Rx",
            "window and rate modulation; Tx and Rx buffers allocated and negotiated for each frame; depends on round \
             trip delay",
            "if the window is larger than the buffers, rate modulation is required; runs on top of IP",
        ],
    ),
    (
        "vmtp",
        "VMTP",
        [
            "timer based",
            "response to requests acts as an implicit ACK; one Tx timer per request; SR window",
            "based on message groups; stop and wait at buffer level; assumes lost packets from queue overflows, not \
             bit errors",
            "assumes best effort datagram sub-network; geared for request/response; a base for higher level control",
        ],
    ),
    (
        "xtp",
        "XTP 3.2",
        [
            "implicit",
            "two checksums (header and user data); poll/status, always generates NAKs when data lost",
            "separate flow control window; also rate control",
            "all fields are 32 bit aligned; great flexibility",
        ],
    ),
];

/// The columns of the table, and the functions that are spoken of in each.
const COLUMNS: [(&str, &[Function]); 4] = [
    ("connection set-up", &[Function::Establishment]),
    (
        "error control",
        &[
            Function::Detection,
            Function::Retransmission,
            Function::Acknowledgement,
            Function::Finding,
            Function::Timing,
        ],
    ),
    ("flow control", &[Function::Flow, Function::Rate, Function::Congestion]),
    ("comments", &[]),
];

/// Prints what was asked for.
///
/// # Errors
/// [`Failure::Failed`] if no function, mechanism or profile has the name that was asked for.
pub fn run(args: &FunctionsArgs) -> Result<(), Failure> {
    match () {
        () if args.graph => lines::print(&graph::svg()),
        () if args.numbers => lines::print(Mapping::example().trim_end()),
        () if args.profiles => return profiles(args),
        () if args.table => return table(args),
        () => return list(args),
    }
    Ok(())
}

fn list(args: &FunctionsArgs) -> Result<(), Failure> {
    let has = |name: &str| args.parts.iter().any(|part| name.contains(part.as_str()));
    let is_wanted = |m: &&Mechanism| args.parts.is_empty() || has(m.name) || has(m.function.name());
    let wanted: Vec<&Mechanism> = library::all().filter(|m| is_wanted(&&**m)).collect();
    if wanted.is_empty() {
        let parts = args.parts.join("`, `");
        return Err(Failure::Failed(format!("no function or mechanism has `{parts}` in its name")));
    }
    let mut last = None;
    for m in wanted {
        if args.json {
            lines::print_json(object(m));
            continue;
        }
        if last.replace(m.function) != Some(m.function) {
            lines::print(&format!("{} (function {})", m.function.name(), m.function.number()));
        }
        lines::print(&text(m));
    }
    Ok(())
}

fn text(m: &Mechanism) -> String {
    let mut text = format!("  {} ({})", m.name, m.number);
    indent(&mut text, m.what);
    for p in m.params {
        let (unit, what) = (p.unit.suffix(), p.what);
        let range = format!("{}: {what} [{} to {}{unit}, default {}]", p.name, p.min, p.max, p.default);
        indent(&mut text, &range);
    }
    for note in notes(m) {
        indent(&mut text, &note);
    }
    text
}

/// Needs of a mechanism: what the rest of a profile, and the ends, must have for it.
fn notes(m: &Mechanism) -> Vec<String> {
    let mut notes: Vec<String> = m.needs.iter().map(|need| format!("needs {}", need_words(need))).collect();
    match m.consent {
        Consent::NotNeeded => {}
        Consent::OfSender => notes.push("the sender must have named it".to_owned()),
        Consent::OfReceiver => {
            notes.push("the receiver must have named it, or take messages".to_owned());
        }
        Consent::OfBoth => notes.push("both ends must have named it".to_owned()),
    }
    if m.facts.unasked == Unasked::Never {
        notes.push("used by name only".to_owned());
    }
    if !m.mandatory {
        notes.push("optional: a peer may lack it".to_owned());
    }
    notes
}

fn need_words(need: &Need) -> String {
    match need {
        Need::Present(function) => format!("{} other than none", function.name()),
        Need::Promise(function, promise) => format!("{} that {}", function.name(), promise.words()),
    }
}

fn object(m: &Mechanism) -> Value {
    let params: Vec<Value> = m.params.iter().map(|p| json!({
        "name": p.name, "unit": p.unit.suffix().trim(), "default": p.default, "min": p.min, "max": p.max,
        "what": p.what,
    })).collect();
    json!({
        "function": m.function.name(), "mechanism": m.name, "number": m.number, "what": m.what,
        "mandatory": m.mandatory, "params": params, "needs": m.needs.iter().map(need_words).collect::<Vec<_>>(),
    })
}

fn profiles(args: &FunctionsArgs) -> Result<(), Failure> {
    let has = |named: &&Named| {
        args.parts.is_empty() || args.parts.iter().any(|part| named.name.contains(part.as_str()))
    };
    let wanted: Vec<&Named> = named::all().iter().filter(has).collect();
    if wanted.is_empty() {
        return Err(Failure::Failed(format!("no profile has `{}` in its name", args.parts.join("`, `"))));
    }
    for named in wanted {
        if args.json {
            lines::print_json(json!({
                "name": named.name, "kind": named.kind.word(), "what": named.what, "source": named.source,
                "lacks": named.lacks, "settings": named.settings.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>(),
                "transport_class": named.transport_class, "reliability_class": named.reliability_class,
            }));
        } else {
            lines::print(&profile_text(named));
        }
    }
    Ok(())
}

fn profile_text(named: &Named) -> String {
    let mut text = format!("{} ({})", named.name, named.kind.word());
    indent(&mut text, &named.what);
    let settings = named.settings.iter().map(|(name, value)| {
        format!("{}={value}", name.strip_prefix(uts::requirements::PREFIX).unwrap_or(name))
    });
    indent(&mut text, &settings.collect::<Vec<_>>().join(" "));
    if let (Some(class), Some(column)) = (&named.transport_class, &named.reliability_class) {
        indent(&mut text, &format!("{class}, {column}: {}", duties(column)));
    }
    if !named.lacks.is_empty() {
        indent(&mut text, &format!("not as there: {}", named.lacks.join("; ")));
    }
    if let Some(source) = &named.source {
        indent(&mut text, &format!("after {source}"));
    }
    text
}

/// Mandatory and optional parts of a transport class.
fn duties(class: &str) -> String {
    let column = CLASS_NAMES.iter().position(|name| *name == class).unwrap_or_default();
    let of = |mark: char| {
        let names =
            CLASSES.iter().filter(|(_, marks)| marks.get(column) == Some(&mark)).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    let (mandatory, optional) = (of('M'), of('O'));
    let part =
        |words: &str, list: &str| if list.is_empty() { String::new() } else { format!("{words} {list}") };
    let parts = [part("mandatory", &mandatory), part("optional", &optional)];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Table 2.3: each column as the thesis has it, and below it what is there here.
fn table_2_3(args: &FunctionsArgs) -> Result<(), Failure> {
    for (name, there, cells) in TABLE_2_3 {
        let named = named::find(name).map_err(Failure::Failed)?;
        let columns = || COLUMNS.iter().zip(cells);
        if args.json {
            let columns: serde_json::Map<String, Value> = columns()
                .map(|((column, functions), cell)| {
                    ((*column).to_owned(), json!({ "thesis": cell, "here": here(named, functions) }))
                })
                .collect();
            lines::print_json(json!({ "protocol": there, "profile": name, "columns": columns }));
            continue;
        }
        let mut text = format!("{there} (profile {name})");
        for ((column, functions), cell) in columns() {
            let cell = if cell.is_empty() { "-" } else { cell };
            indent(&mut text, &format!("{column}: {cell}"));
            indent(&mut text, &format!("  here: {}", here(named, functions)));
        }
        lines::print(&text);
    }
    Ok(())
}

/// Mechanisms that a profile has for these functions; without functions, what the profile lacks.
fn here(named: &Named, functions: &[Function]) -> String {
    if functions.is_empty() {
        return format!("not as there: {}", named.lacks.join("; "));
    }
    let pins = named.pinned();
    let of = |function: &Function| {
        let pinned = pins.iter().find(|(f, _)| f == function).map(|(_, text)| (*text).to_owned());
        let by_default = || library::of(*function).iter().find(|m| m.mandatory).map(|m| m.name.to_owned());
        let mechanism = pinned.or_else(by_default).unwrap_or_else(|| "-".to_owned());
        format!("{} {mechanism}", function.name())
    };
    functions.iter().map(of).collect::<Vec<_>>().join(", ")
}

/// Table 2.3; of profiles that are named, which mechanism each has for each function. What one
/// leaves to the selector is a dash.
fn table(args: &FunctionsArgs) -> Result<(), Failure> {
    if args.parts.is_empty() {
        return table_2_3(args);
    }
    let names: Vec<&str> = args.parts.iter().map(String::as_str).collect();
    let found: Result<Vec<&Named>, String> = names.iter().map(|name| named::find(name)).collect();
    let found = found.map_err(Failure::Failed)?;
    let cell = |named: &Named, function: Function| {
        let pins = named.pinned();
        pins.iter()
            .find(|(f, _)| *f == function)
            .map_or_else(|| "-".to_owned(), |(_, text)| (*text).to_owned())
    };
    let rows: Vec<Vec<String>> = Function::ALL
        .iter()
        .map(|f| std::iter::once(f.name().to_owned()).chain(found.iter().map(|n| cell(n, *f))).collect())
        .collect();
    if args.json {
        for (f, row) in Function::ALL.iter().zip(&rows) {
            let cells: serde_json::Map<String, Value> =
                found.iter().zip(row.iter().skip(1)).map(|(n, cell)| (n.name.clone(), json!(cell))).collect();
            lines::print_json(json!({ "function": f.name(), "mechanisms": cells }));
        }
        return Ok(());
    }
    let head = std::iter::once(String::new()).chain(found.iter().map(|n| n.name.clone())).collect();
    lines::print(&columns(std::iter::once(head).chain(rows)));
    Ok(())
}

/// Rows of text in columns, each as wide as its widest cell.
pub(super) fn columns(rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().collect();
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|at| width(at).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_engine::named::Kind;

    #[test]
    fn every_mechanism_and_parameter_is_told() {
        for m in library::all() {
            let text = text(m);
            assert!(text.contains(m.name) && m.params.iter().all(|p| text.contains(p.name)), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 79), "{text}");
        }
    }

    #[test]
    fn every_profile_is_told_with_its_class() {
        for named in named::all() {
            let text = profile_text(named);
            assert_eq!(text.contains("optional"), named.kind == Kind::ServiceClass, "{text}");
        }
        assert_eq!(
            duties("NRT-U"),
            "optional segmentation and reassembly, ordered delivery, loss management, congestion management, data flow management"
        );
    }

    /// Table 2.3: what tells the protocols apart.
    #[test]
    fn the_table_of_protocols_has_their_mechanisms() {
        let of = |name: &str, function| {
            let named = named::find(name).expect("listed");
            named.pinned().into_iter().find(|(f, _)| *f == function).map(|(_, m)| m.to_owned())
        };
        let cases = [
            // Checksum, GBN window; timer at Tx; state when a block is received; two checksums.
            ("tcp-tahoe", Function::Detection, "internet-16"),
            ("tcp-tahoe", Function::Retransmission, "go-back-n"),
            ("tp4", Function::Retransmission, "go-back-n"),
            ("tp4", Function::Finding, "expiry(back-off=0)"),
            ("netblt", Function::Retransmission, "blast(unit=64,strategy=4)"),
            ("xtp", Function::Retransmission, "nak"),
            ("xtp", Function::Finding, "status"),
            ("vmtp", Function::Flow, "packet-group(packets=12)"),
            ("netblt", Function::Rate, "netblt(buffer=64)"),
            ("xtp", Function::Acknowledgement, "poll-status"),
            ("xtp", Function::Detection, "header-and-data"),
            ("vmtp", Function::Segmentation, "messages"),
        ];
        for (name, function, mechanism) in cases {
            assert_eq!(of(name, function).as_deref(), Some(mechanism), "{name}");
        }
        for (name, there, _) in TABLE_2_3 {
            let named = named::find(name).expect("listed");
            for (column, functions) in COLUMNS {
                assert!(here(named, functions).len() > 5, "{there}, {column}");
            }
            assert!(here(named, COLUMNS[0].1).contains("three-way"), "{name}");
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest() {
        let rows = [["a", "long", "c"], ["bbb", "x", "d"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(rows), "a    long  c\nbbb  x     d");
    }
}
