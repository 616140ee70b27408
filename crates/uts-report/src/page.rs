//! The page: plain HTML from a record, with everything that it needs inlined.

use super::charts::{Charts, DETAIL, ROUND_TRIPS, charts};
use super::summary::{self, MISSING};
use anyhow::{Context, Result};
use std::fmt::Write;
use uts_plot::html::{Document, capitalised, date, escape};
use uts_record::demo::{Exchange, Outcome, Record, Run};

const TEMPLATE: &str = include_str!("../assets/report.html");
const JS: &str = include_str!("../assets/report.js");
const DETAIL_CAPTION: &str = "An excerpt of the figure before, packet by packet: a cross, a loss when it was found; a ring, the \
                              repetition of that data; the dots below, acknowledgements.";

/// Makes the page of a record.
///
/// # Errors
/// The series cannot be put into JSON.
pub fn render(record: &Record) -> Result<String> {
    let charts = charts(record);
    let data = serde_json::to_string(&charts).context("cannot put the charts into JSON")?;
    let title = format!("UTS: {} across a path that changes", megabytes(record.setting.file.bytes));
    let document = Document { template: TEMPLATE, title: &title, js: JS, data: &data };
    Ok(document.page(&[
        ("byline", &byline(record)),
        ("abstract", &outcome_in_words(record)),
        ("warnings", &warnings(record)),
        ("summary", &summary_table(record)),
        ("summary_note", &summary_note(record)),
        ("exchanges", &exchange_table(record)),
        ("figures", &figures(record, &charts)),
        ("profiles", &profile_tables(record)),
        ("setup", &setup_table(record)),
        ("commands", &commands(record)),
    ]))
}

fn megabytes(bytes: u64) -> String {
    match bytes as f64 / 1e6 {
        mb if mb >= 100.0 => format!("{mb:.0} MB"),
        mb if mb >= 0.1 => format!("{mb:.1} MB"),
        mb => format!("{:.1} kB", mb * 1e3),
    }
}

fn byline(record: &Record) -> String {
    let s = &record.setting;
    let parts = [&date(s.unix_s), &s.uts_version, &format!("seed {}", s.seed), &s.machine.processor];
    let known: Vec<String> = parts.iter().filter(|p| !p.is_empty()).map(|p| escape(p)).collect();
    known.join(" · ")
}

fn outcome_in_words(record: &Record) -> String {
    let Some(run) = record.runs.first() else { return "Nothing was carried.".into() };
    let percent = |share: Option<f64>| share.map(|s| format!("{:.0} %", s * 100.0));
    let share = percent(run.summary.share())
        .map(|s| format!(", {s} of what the path could carry in that time"))
        .unwrap_or_default();
    let mut words = format!(
        "The file arrived intact after <b>{:.1} s</b> at <b>{:.1} Mbit/s</b>{share}. The path changed {} \
         and the connection exchanged mechanisms {}.",
        run.summary.duration_s,
        run.summary.goodput_bps / 1e6,
        times(run.changes.len()),
        times(run.agreed().count()),
    );
    if run.summary.sha256 != record.setting.file.sha256 {
        words = format!("<b>What arrived is not what was sent</b>, after {:.1} s.", run.summary.duration_s);
    }
    if let Some(other) = record.runs.get(1) {
        let _ = write!(words, " {}", comparison_in_words(other, percent(other.summary.share())));
    }
    words
}

fn comparison_in_words(run: &Run, share: Option<String>) -> String {
    let share = share.map(|s| format!(", {s}")).unwrap_or_default();
    let (s, mbps) = (run.summary.duration_s, run.summary.goodput_bps / 1e6);
    match (run.is_of_another(), run.summary.is_cut_short) {
        (true, true) => format!(
            "The kernel’s TCP with CUBIC, on the same path, had carried {} when it was given up after {s:.1} s: \
             {mbps:.1} Mbit/s{share}.",
            megabytes(run.summary.payload_bytes)
        ),
        (true, false) => format!(
            "The kernel’s TCP with CUBIC took {s:.1} s for as much, on the same path: {mbps:.1} Mbit/s{share}."
        ),
        (false, _) => {
            format!("With the first profile kept throughout, it took {s:.1} s at {mbps:.1} Mbit/s{share}.")
        }
    }
}

fn times(count: usize) -> String {
    match count {
        1 => "once".into(),
        2 => "twice".into(),
        n => format!("{n} times"),
    }
}

fn warnings(record: &Record) -> String {
    let mut warnings = Vec::new();
    for run in record.runs.iter().filter(|run| !run.is_of_another()) {
        if run.summary.sha256 != record.setting.file.sha256 {
            warnings.push(format!("In the {} run, the hash of what arrived differs.", run.name));
        }
    }
    let anticipated = record.runs.first().and_then(Run::anticipated_change);
    for change in record.runs.first().map(Run::unanswered_changes).unwrap_or_default() {
        let why = if anticipated == Some(change) { ": one before it had prepared for it" } else { "" };
        warnings.push(format!(
            "No exchange answered the change at {:.1} s ({}: {}){why}.",
            change.t_s, change.target, change.change
        ));
    }
    warnings.iter().map(|w| format!("<p class=\"warning\">{}</p>", escape(w))).collect()
}

fn summary_table(record: &Record) -> String {
    let mut html = String::from("<table class=\"summary\"><thead><tr><th></th>");
    for heading in summary::headings(record) {
        let _ = write!(html, "<th class=\"number\">{}</th>", escape(heading));
    }
    html.push_str("</tr></thead><tbody>");
    for row in summary::rows(record) {
        let _ = write!(html, "<tr><th>{}</th>", escape(row.name));
        for value in &row.values {
            let _ = write!(html, "<td class=\"number\">{}</td>", escape(value));
        }
        html.push_str("</tr>");
    }
    html + "</tbody></table>"
}

fn summary_note(record: &Record) -> String {
    let hash = match record.setting.file.sha256.as_str() {
        "" => String::new(),
        hash => format!(" SHA-256 of the file before it was sent: <code>{}</code>.", escape(hash)),
    };
    // Who has to wait for a time-out sends single packets: 4 of them can take seconds to pass.
    let bursts = match record.runs.iter().any(Run::is_of_another) {
        true => " Bursts of losses are so many packets long, however long these take to be sent.",
        false => "",
    };
    format!(
        "Time runs from the client’s first datagram, handshake included, to its report that the file has \
         arrived. Goodput is the file’s length over that time. What the path could carry is the integral of \
         the rate of its forward link over that time; all headers, acknowledgements of the other direction’s \
         data, redundancy and repetitions come out of it. Its mean loss is that of the model, not of the \
         sample. Lost and dropped packets are those of the forward link, as the emulation counted them.{bursts}{hash}"
    )
}

fn exchange_table(record: &Record) -> String {
    let exchanges = record.runs.first().map(|run| run.exchanges.as_slice()).unwrap_or_default();
    if exchanges.is_empty() {
        return "<p>No mechanism was exchanged.</p>".into();
    }
    let mut html = String::from(
        "<div class=\"scroll\"><table class=\"exchanges\"><thead><tr><th></th><th class=\"number\">At</th>\
         <th>Saw</th><th>Changed</th><th>Expected</th><th>Brought</th><th class=\"number\">Took</th></tr>\
         </thead><tbody>",
    );
    for (exchange, number) in exchanges.iter().zip(1..) {
        let text = |text: &str| if text.is_empty() { MISSING.into() } else { escape(text) };
        let _ = write!(
            html,
            "<tr><td><span class=\"badge\">{number}</span></td><td class=\"number\">{:.2} s</td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{}</td><td class=\"number\">{}</td></tr>",
            exchange.t_s,
            text(&exchange.seen),
            [whose(exchange), &text(&exchange.changes)].concat(),
            text(&exchange.expects),
            text(&exchange.brought),
            escape(&ending(exchange)),
        );
    }
    html + "</tbody></table></div><p class=\"note\">An exchange takes from its first request to the \
            agreement; data flows on meanwhile, under the old profile. The numbers are those in the charts.</p>"
}

/// Named only where it is not the sender's own for the data that it sends.
fn whose(exchange: &Exchange) -> &'static str {
    match (exchange.end.as_str(), exchange.direction.as_str()) {
        ("client", "in") => "for data to the client: ",
        ("server", "out") => "by the server, for data to the client: ",
        ("server", _) => "by the server: ",
        _ => "",
    }
}

fn ending(exchange: &Exchange) -> String {
    match &exchange.outcome {
        Outcome::Agreed => exchange.took_ms.map_or_else(|| "agreed".into(), |ms| format!("{ms:.1} ms")),
        Outcome::Pending => "under way at the end".into(),
        Outcome::Refused(why) if why.is_empty() => "refused".into(),
        Outcome::Refused(why) => format!("refused: {why}"),
        Outcome::Failed => "no answer".into(),
    }
}

fn figures(record: &Record, charts: &Charts) -> String {
    let compared = record.runs.len() > 1;
    let captions = [
        ("throughput", "Throughput", throughput_caption(charts, compared)),
        ("sequence", "Sequence number against time", sequence_caption(charts)),
        (DETAIL, "Sequence number about the first change of the path", DETAIL_CAPTION.into()),
        ("queue", "Length of the forward queue", queue_caption(compared)),
        ("rtt", "Round-trip time", rtt_caption(charts)),
    ];
    let shown = captions.iter().filter(|(id, ..)| *id != DETAIL || charts.has_detail);
    let figure = |((id, name, caption), number): (&(&str, &str, String), u32)| {
        format!(
            "<figure><div class=\"chart\" id=\"{id}\"></div><figcaption><b>Figure {number}. {name}.</b> \
             {caption}</figcaption></figure>"
        )
    };
    shown.zip(1..).map(figure).collect()
}

fn throughput_caption(charts: &Charts, compared: bool) -> String {
    let mut caption = format!(
        "Means over {:.2} s. Shading: the stretches in which the forward link differs from its beginning. \
         Dashed verticals: exchanges, numbered as in the table.",
        charts.bin_s
    );
    if compared {
        caption.push_str(
            " The path changes by bytes carried, so the run that is compared with (grey) meets each change at \
             a time of its own: the grey dashes are the rate that its path could carry.",
        );
    }
    caption
}

fn sequence_caption(charts: &Charts) -> String {
    if !charts.traced {
        return "Bytes acknowledged; packets were not traced in this run.".into();
    }
    let mut caption = String::from(
        "Where the data of each packet begins in the stream, at the time when it was sent, acknowledged or \
         found lost. Every transmission has a packet number of its own; a ring is one that repeats data, a \
         cross a loss that the sender found.",
    );
    for (name, step) in charts.thinned.iter().filter(|(name, _)| *name != ROUND_TRIPS) {
        let _ = write!(caption, " {name}: one packet in {step} is drawn.");
    }
    caption
}

fn queue_caption(compared: bool) -> String {
    let base = "Packets in the transmit buffer of the forward link, the one in transmission included, sampled every \
                10 ms.";
    if compared {
        format!(
            "{base} Click the legend to see that of the other run, and double-click the chart to see all of it."
        )
    } else {
        base.into()
    }
}

fn rtt_caption(charts: &Charts) -> String {
    let samples = "Dots: from sending a packet to learning of its arrival, by transmission, the acknowledgement’s \
                   delay included. ";
    let thinned = charts.thinned.iter().find(|(name, _)| *name == ROUND_TRIPS);
    let thinned = thinned.map(|(_, step)| format!(" One dot in {step} is drawn.")).unwrap_or_default();
    format!(
        "{}Line: the sender’s smoothed estimate. What lies above propagation is queueing.{thinned}",
        if charts.traced { samples } else { "" }
    )
}

fn profile_tables(record: &Record) -> String {
    let mut html = String::new();
    for run in &record.runs {
        if run.profiles.is_empty() {
            continue;
        }
        let _ = write!(
            html,
            "<h3>{} run</h3><div class=\"scroll\"><table><thead><tr><th class=\"number\">From</th><th>Profile of \
             the data’s direction</th></tr></thead><tbody>",
            escape(&capitalised(&run.name))
        );
        for profile in &run.profiles {
            let _ = write!(
                html,
                "<tr><td class=\"number\">{:.2} s</td><td><code>{}</code></td></tr>",
                profile.t_s,
                escape(&profile.profile)
            );
        }
        html.push_str("</tbody></table></div>");
    }
    if html.is_empty() { "<p>None were reported.</p>".into() } else { html }
}

fn world(record: &Record) -> String {
    let own = "two processes, UDP sockets on loopback, and between them a relay that emulates the path in real time";
    let is_tcp = record.runs.iter().any(Run::is_of_another);
    let other =
        if is_tcp { "; for TCP two network namespaces, and the same emulation between them" } else { "" };
    [own, other].concat()
}

fn setup_table(record: &Record) -> String {
    let s = &record.setting;
    let memory = s.machine.memory_mib.map(|m| format!(", {:.1} GiB", m as f64 / 1024.0)).unwrap_or_default();
    let origin = if s.file.generated { "pseudo-random, made from the seed" } else { "given" };
    let rows = [
        ("Path, each way", s.path.clone()),
        ("Changes, by bytes into the forward link", s.schedule.join("; ")),
        ("File", format!("{}, {} bytes, {origin}", s.file.name, summary::count(Some(s.file.bytes)))),
        ("Seed", s.seed.to_string()),
        (
            "Machine",
            format!("{}, {} cores{memory}, {}", s.machine.processor, s.machine.cores, s.machine.system),
        ),
        ("Versions", format!("{}; {}", s.uts_version, s.lab_version)),
        ("World", world(record)),
    ];
    let mut html = String::from("<div class=\"scroll\"><table class=\"facts\"><tbody>");
    for (name, value) in rows {
        let _ = write!(html, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(&value));
    }
    html + "</tbody></table></div>"
}

fn commands(record: &Record) -> String {
    let own = (!record.setting.command.is_empty()).then_some(&record.setting.command);
    let all = own.into_iter().chain(record.runs.iter().flat_map(|run| &run.commands));
    all.map(|command| format!("<pre>{}</pre>", escape(command))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(megabytes(64_000_000), "64.0 MB");
        assert_eq!(megabytes(1_234_000_000), "1234 MB");
        assert_eq!(megabytes(60_000), "60.0 kB");
    }
}
