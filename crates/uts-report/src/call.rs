//! The page of a call: a picture for each participant of what was seen and heard, and tables.

use anyhow::{Context, Result};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use uts_plot::html::{Document, escape};
use uts_plot::svg::{
    Axis, Entry, Ink, Look, Mark, NUMBERED, Panel, Picture, QUIET, Scale, Shape, Swatch, style_sheet,
};
use uts_record::call::{Exchange, Record, Shown, Stream};

const TEMPLATE: &str = include_str!("../assets/call.html");

/// Of each participant, in their order.
const INKS: [Ink; 3] = [
    Ink { name: "first", light: "#0b62b8", dark: "#5aa9f5" },
    Ink { name: "second", light: "#c9561c", dark: "#f08a55" },
    Ink { name: "third", light: "#00845c", dark: "#3ecf9c" },
];

/// The line of bounds.
const BOUND: Ink = Ink { name: "bound", light: "#a3a9b0", dark: "#626a73" };

/// Stretch of time that a point of a line is the mean of, in seconds.
const BIN_S: f64 = 1.0;

/// A picture is out of synchronisation beyond these, in milliseconds: behind the sound, ahead of it
/// (R. Steinmetz, "Human perception of jitter and media synchronization", 1996).
pub const LIPS_MS: (f64, f64) = (-80.0, 160.0);

/// The same of a pointer.
pub const POINTER_MS: (f64, f64) = (-750.0, 500.0);

/// Writes the page of a call into `dir`, and returns its path.
///
/// # Errors
/// It cannot be written.
pub fn write_page(dir: &Path, record: &Record) -> Result<PathBuf> {
    let page = dir.join(crate::PAGE_FILE);
    fs::write(&page, render(record)).with_context(|| format!("cannot write {}", page.display()))?;
    Ok(page)
}

/// Makes the page of a call.
pub fn render(record: &Record) -> String {
    let names: Vec<&str> = record.people.iter().map(|person| person.name.as_str()).collect();
    let title = format!("UTS: {} in a call", in_a_row(&names));
    let colours = style_sheet(&[&INKS[..], &[BOUND, NUMBERED, QUIET]].concat());
    let document = Document { template: TEMPLATE, title: &title, js: "", data: "{}" };
    let people: String = (0..record.people.len()).map(|place| section(record, place)).collect();
    document.page(&[
        ("colours", &colours),
        ("byline", &escape(&format!("{} · seed {} · virtual time", record.version, record.seed))),
        ("abstract", &in_words(record)),
        ("course", &course(record)),
        ("streams", &streams_table(record)),
        ("people", &people),
        ("setup", &setup(record)),
    ])
}

fn in_a_row(names: &[&str]) -> String {
    match names {
        [] => "nobody".to_owned(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

fn name(record: &Record, place: usize) -> &str {
    record.people.get(place).map_or("?", |person| person.name.as_str())
}

/// The outcome, in three sentences.
fn in_words(record: &Record) -> String {
    let spans = || record.streams.iter().map(|stream| (stream, record.span_s(stream)));
    let least = |of: fn(&Stream) -> &Shown| {
        let shares = spans().filter_map(|(stream, (from, to))| of(stream).share(from, to - 1.0));
        shares.fold(1.0, f64::min) * 100.0
    };
    let mut skews: Vec<f64> =
        spans().flat_map(|(stream, (from, to))| stream.picture.skews_ms(from + SETTLES_S, to)).collect();
    skews.sort_by(f64::total_cmp);
    let mut words = format!(
        "Of each voice at least <b>{:.1} %</b> was heard, of each picture at least <b>{:.1} %</b> was seen.",
        least(|stream| &stream.voice),
        least(|stream| &stream.picture),
    );
    if let (Some(low), Some(high)) = (at(&skews, 0.005), at(&skews, 0.995)) {
        let _ = write!(
            words,
            " 99 of 100 pictures were shown between <b>{:.0} ms behind</b> their sound and <b>{:.0} ms \
             ahead</b> of it.",
            -low.min(0.0),
            high.max(0.0)
        );
    }
    for happening in &record.happenings {
        let longest = spans()
            .filter(|(_, (from, to))| *from < happening.t_s && happening.t_s < *to)
            .map(|(stream, _)| stream.voice.longest_gap_s(happening.t_s - 1.0, happening.t_s + 2.0))
            .fold(0.0, f64::max);
        if longest > 0.0 {
            let _ = write!(
                words,
                " When {}, the longest time without sound was <b>{:.0} ms</b>.",
                escape(&happening.short),
                longest * 1e3
            );
        }
    }
    words
}

/// Time in which the sound adapts to the first pictures, in seconds.
const SETTLES_S: f64 = 3.0;

/// The value below which such a share of sorted values is.
fn at(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((share * last as f64).round() as usize).copied()
}

/// Story of the call: what happened from outside, and which levels followed.
fn course(record: &Record) -> String {
    let mut rows: Vec<(f64, String)> =
        record.happenings.iter().map(|h| (h.t_s, format!("<b>{}</b>", escape(&h.text)))).collect();
    for stream in &record.streams {
        for change in &stream.changes {
            let level = record.levels.get(change.to).map_or("?", |level| level.name.as_str());
            let text = format!(
                "{} sends {} to {}: {}.",
                name(record, stream.from),
                with_article(level),
                name(record, stream.to),
                change.why
            );
            rows.push((change.t_s, escape(&text)));
        }
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut html =
        String::from("<table><thead><tr><th class=\"number\">At</th><th></th></tr></thead><tbody>");
    for (t_s, text) in rows {
        let _ = write!(html, "<tr><td class=\"number\">{t_s:.1} s</td><td>{text}</td></tr>");
    }
    html + "</tbody></table>"
}

fn with_article(level: &str) -> String {
    if level.ends_with("picture") { format!("a {level}") } else { level.to_owned() }
}

fn streams_table(record: &Record) -> String {
    let mut html = String::from(
        "<div class=\"scroll\"><table><thead><tr><th></th><th class=\"number\">Sound heard</th>\
         <th class=\"number\">delay</th><th class=\"number\">longest gap</th>\
         <th class=\"number\">Pictures seen</th><th class=\"number\">delay</th>\
         <th class=\"number\">beside the sound</th><th class=\"number\">in synchronisation</th>\
         <th>Share of the time at each level</th></tr></thead><tbody>",
    );
    for stream in &record.streams {
        let (from, to) = record.span_s(stream);
        let percent = |shown: &Shown| {
            shown.share(from, to - 1.0).map_or("–".to_owned(), |share| format!("{:.2} %", share * 100.0))
        };
        let delay = |shown: &Shown| {
            let mut delays = shown.delays_ms(from, to);
            delays.sort_by(f64::total_cmp);
            match (at(&delays, 0.5), at(&delays, 0.95)) {
                (Some(half), Some(most)) => format!("{half:.0} ms, 95 %: {most:.0}"),
                _ => "–".to_owned(),
            }
        };
        let mut skews = stream.picture.skews_ms(from, to);
        skews.sort_by(f64::total_cmp);
        let within = skews.iter().filter(|skew| (LIPS_MS.0..=LIPS_MS.1).contains(*skew)).count();
        let apart = match (at(&skews, 0.01), at(&skews, 0.99)) {
            (Some(low), Some(high)) => format!("{low:+.0} to {high:+.0} ms"),
            _ => "–".to_owned(),
        };
        let _ = write!(
            html,
            "<tr><td>{} from {}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{:.0} ms</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{apart}</td><td class=\"number\">{:.1} %</td><td>{}</td></tr>",
            escape(name(record, stream.to)),
            escape(name(record, stream.from)),
            percent(&stream.voice),
            delay(&stream.voice),
            stream.voice.longest_gap_s(from, to) * 1e3,
            percent(&stream.picture),
            delay(&stream.picture),
            within as f64 / skews.len().max(1) as f64 * 100.0,
            escape(&levels_in_words(record, stream)),
        );
    }
    html + "</tbody></table></div>"
}

/// Share of the time at each level, the highest first.
fn levels_in_words(record: &Record, stream: &Stream) -> String {
    let (from, to) = record.span_s(stream);
    let mut times = vec![0.0; record.levels.len()];
    let edges = stream.changes.iter().map(|change| change.t_s).chain([to]);
    let (mut since, mut level) = (from, 0);
    for (edge, next) in edges.zip(stream.changes.iter().map(|change| change.to).chain([0])) {
        if let Some(time) = times.get_mut(level) {
            *time += (edge.min(to) - since).max(0.0);
        }
        (since, level) = (edge, next);
    }
    let all: f64 = times.iter().sum();
    let named = record.levels.iter().zip(&times).rev().filter(|(_, time)| **time > 0.0);
    let words: Vec<String> =
        named.map(|(level, time)| format!("{} {:.0} %", level.name, time / all * 100.0)).collect();
    words.join(", ")
}

/// Everything about what one participant saw and heard.
fn section(record: &Record, place: usize) -> String {
    let coming: Vec<&Stream> = record.streams.iter().filter(|stream| stream.to == place).collect();
    let mut exchanges: Vec<(&Stream, &Exchange)> =
        coming.iter().flat_map(|s| s.exchanges.iter().map(move |exchange| (*s, exchange))).collect();
    exchanges.sort_by(|a, b| a.1.t_s.total_cmp(&b.1.t_s));
    let picture = picture(record, place, &coming, exchanges.iter().map(|(_, e)| e.t_s).collect());
    format!(
        "<section><h2>{}</h2><figure><div class=\"scroll\">{}</div><figcaption>{}</figcaption></figure>{}</section>",
        escape(name(record, place)),
        picture.svg(),
        "Levels are those in which pictures were shown. Of sound that was not heard in its time, and of pictures, \
         the share is missing in the second panel, whose foot is 90 %. Delay is from microphone and camera to ear and eye. \
         Dashed: beyond these lines lips and sound are apart. Numbers: exchanges of mechanisms, below.",
        exchange_table(record, &exchanges),
    )
}

fn exchange_table(record: &Record, exchanges: &[(&Stream, &Exchange)]) -> String {
    if exchanges.is_empty() {
        return "<p class=\"note\">No mechanism was exchanged.</p>".to_owned();
    }
    let mut html = String::from(
        "<details><summary>Exchanges of mechanisms</summary><div class=\"scroll\"><table class=\"exchanges\"><thead><tr><th></th>\
         <th class=\"number\">At</th><th>By</th><th>Saw</th><th>Changed</th><th>Expected</th><th>Brought</th>\
         </tr></thead><tbody>",
    );
    for ((stream, exchange), number) in exchanges.iter().zip(1..) {
        let text = |text: &str| if text.is_empty() { "–".to_owned() } else { escape(text) };
        let _ = write!(
            html,
            "<tr><td><span class=\"badge\">{number}</span></td><td class=\"number\">{:.2} s</td>\
             <td>{}, for {}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            exchange.t_s,
            escape(name(record, stream.from)),
            escape(&exchange.of),
            text(&exchange.seen),
            text(&exchange.changes),
            text(&exchange.expects),
            text(&exchange.brought),
        );
    }
    html + "</tbody></table></div></details>"
}

fn look(from: usize) -> Look {
    Look::of(INKS[from.min(INKS.len() - 1)])
}

fn picture(record: &Record, place: usize, coming: &[&Stream], numbered: Vec<f64>) -> Picture {
    let person = record.people.get(place).cloned().unwrap_or_default();
    let downs = |named: bool| {
        record.happenings.iter().map(move |happening| Mark::Down {
            x: happening.t_s,
            label: if named { happening.short.clone() } else { String::new() },
            look: Look { dash: "3 3", ..Look::of(QUIET) },
        })
    };
    let panel = |label: &str, scale: Scale, height: f64, named: bool, marks: Vec<Mark>| Panel {
        y: Axis { label: label.into(), scale },
        marks: downs(named).chain(marks).collect(),
        height,
    };
    let names: Vec<String> = record.levels.iter().map(|level| level.name.clone()).collect();
    let mut panels = vec![
        panel(
            "Level seen",
            Scale::Ordinal(names),
            110.0,
            true,
            coming.iter().map(|s| levels(record, s)).collect(),
        ),
        panel(
            "In time, %",
            Scale::between(90.0, 100.5),
            90.0,
            false,
            coming
                .iter()
                .flat_map(|s| {
                    both(record, s, |shown, from, to| {
                        shown.share(from, to).map(|share| (share * 100.0).max(90.0))
                    })
                })
                .collect(),
        ),
        panel(
            "Delay, ms",
            Scale::between(0.0, top_delay(record, coming)),
            110.0,
            false,
            coming
                .iter()
                .flat_map(|s| both(record, s, |shown, from, to| mean(&shown.delays_ms(from, to))))
                .collect(),
        ),
        panel(
            "Picture ahead, ms",
            Scale::between(-200.0, 200.0),
            110.0,
            false,
            bounds(record, LIPS_MS).chain(coming.iter().map(|s| skews(s.from, &s.picture))).collect(),
        ),
    ];
    let pointers: Vec<Mark> =
        coming.iter().filter_map(|s| s.pointer.as_ref().map(|pointer| skews(s.from, pointer))).collect();
    if !pointers.is_empty() {
        let marks = bounds(record, POINTER_MS).chain(pointers).collect();
        panels.push(panel("Pointer ahead, ms", Scale::between(-800.0, 600.0), 90.0, false, marks));
    }
    let mut legend: Vec<Entry> = coming
        .iter()
        .map(|s| Entry {
            label: format!("{}’s voice", name(record, s.from)),
            look: look(s.from),
            swatch: Swatch::Line,
        })
        .collect();
    legend.extend(coming.iter().map(|s| Entry {
        label: format!("{}’s picture", name(record, s.from)),
        look: Look { dash: DASHED, ..look(s.from) },
        swatch: Swatch::Line,
    }));
    Picture {
        title: format!("What {} saw and heard", person.name),
        subtitle: if (person.from_s, person.to_s) == (0.0, record.end_s) {
            "in the call from its beginning to its end".to_owned()
        } else {
            format!("in the call from {:.0} to {:.0} s", person.from_s, person.to_s)
        },
        description: format!(
            "Levels, shares in time, delays and skews of what {} saw and heard",
            person.name
        ),
        legend,
        x: Axis { label: "Time, s".into(), scale: Scale::between(0.0, record.end_s) },
        panels,
        numbered,
        width: 1000.0,
    }
}

/// Dashes of a picture's line, beside that of a voice.
const DASHED: &str = "5 3";

/// Largest value of the axis of delays, in milliseconds.
fn top_delay(record: &Record, coming: &[&Stream]) -> f64 {
    let all = coming.iter().flat_map(|s| {
        let (from, to) = record.span_s(s);
        [s.voice.delays_ms(from, to), s.picture.delays_ms(from, to)].concat()
    });
    let most = all.fold(0.0, f64::max);
    ((most / 50.0).ceil() * 50.0).clamp(100.0, 1000.0)
}

/// Steps of the level that was seen; between the levels where streams would hide each other.
fn levels(record: &Record, stream: &Stream) -> Mark {
    let apart = (stream.from as f64 - 1.0) * 0.08;
    let (from, to) = record.span_s(stream);
    let mut points = vec![(from, apart)];
    let mut last = 0;
    for (at, level) in stream.picture.shown_ms.iter().zip(&stream.picture.level) {
        if *level != last {
            points.push((f64::from(*at) / 1e3, f64::from(*level) + apart));
            last = *level;
        }
    }
    // Sound alone brings no picture that could tell.
    for change in stream.changes.iter().filter(|change| change.to == 0) {
        points.push((change.t_s, apart));
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.push((to, points.last().map_or(apart, |last| last.1)));
    Mark::Line { points, look: Look { width: 2.0, ..look(stream.from) }, stepped: true }
}

/// Lines of voice and picture.
fn both(record: &Record, stream: &Stream, value: impl Fn(&Shown, f64, f64) -> Option<f64>) -> [Mark; 2] {
    let (from, to) = record.span_s(stream);
    let line = |shown: &Shown, dash| {
        let bins = ((to - from) / BIN_S) as usize;
        let points = (0..bins).filter_map(|bin| {
            let begin = from + bin as f64 * BIN_S;
            // What is on its way at the end was hung up on.
            (begin + 2.0 * BIN_S <= to).then_some(())?;
            Some((begin + BIN_S / 2.0, value(shown, begin, begin + BIN_S)?))
        });
        Mark::Line { points: points.collect(), look: Look { dash, ..look(stream.from) }, stepped: false }
    };
    [line(&stream.voice, ""), line(&stream.picture, DASHED)]
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn bounds(record: &Record, (low, high): (f64, f64)) -> impl Iterator<Item = Mark> {
    let end_s = record.end_s;
    [low, high].into_iter().map(move |at| Mark::Line {
        points: vec![(0.0, at), (end_s, at)],
        look: Look { dash: "6 4", ..Look::of(BOUND) },
        stepped: false,
    })
}

fn skews(from: usize, shown: &Shown) -> Mark {
    let points = shown.shown_ms.iter().zip(&shown.skew_ms);
    let points = points.filter_map(|(at, skew)| Some((f64::from(*at) / 1e3, f64::from((*skew)?)))).collect();
    Mark::Dots { points, look: Look { shape: Shape::Circle, ..look(from) }, size: 1.0 }
}

fn setup(record: &Record) -> String {
    let mut html = String::from("<table class=\"facts\"><tbody>");
    for path in &record.paths {
        let (what, how) = path.split_once(": ").unwrap_or(("", path));
        let _ = write!(html, "<tr><th>{}</th><td><code>{}</code></td></tr>", escape(what), escape(how));
    }
    let levels: Vec<String> =
        record.levels.iter().map(|level| format!("{} ({} kbit/s)", level.name, level.kbit_s)).collect();
    let _ = write!(html, "<tr><th>Levels, sound included</th><td>{}</td></tr>", escape(&levels.join(", ")));
    let _ = write!(html, "<tr><th>Command</th><td><code>{}</code></td></tr>", escape(&record.command));
    html + "</tbody></table>"
}
