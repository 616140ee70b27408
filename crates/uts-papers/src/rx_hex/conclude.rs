//! Findings from the units for the paper's figures.

use super::draw::sequence;
use super::session::Session;
use super::{QUEUE_PACKETS, QUEUES, SECOND_S, headers, modem};
use crate::average::{mean, median};
use crate::judge::Finding;
use crate::looks::{Curve, Words, curves};
use crate::paper::{Conclusion, Figure, Results};
use anyhow::Result;

/// Published values of figures 2, 3 and 4, by the columns of a queue's unit.
const PUBLISHED: [(&str, &str, f64); 4] = [
    ("highest", "figure 2, highest packet", 28.0),
    ("transmissions-2", "figure 3, transmissions", 4798.0),
    ("bps-2", "figure 3, bit/s", 873.0),
    ("bps-6", "figure 4, bit/s", 1900.0),
];
/// Bits per second of IP packets on the line: 9600, less a start and a stop bit for each byte.
const LINE_BPS: f64 = 7680.0;
/// Nothing is measured finer.
const INSTANT_S: f64 = 0.1;

pub(super) fn conclude(results: &Results) -> Result<Conclusion> {
    results.conclude(&[
        ("queue-24", queues),
        ("knee", knee),
        ("figure-2", figure_2),
        ("figure-3", figure_3),
        ("figure-4", figure_4),
        ("figure-5", figure_5),
        ("figure-6", figure_6),
        ("figure-7", figure_7),
        ("figure-8", figure_8),
        ("figure-9", figure_9),
        ("figure-10", figure_10),
        ("figure-11", figure_11),
        ("figure-12", figure_12),
        ("figure-13", figure_13),
        ("history", blob_gone),
        ("window-1500", window_1500),
        ("engine-3", engine_3),
        ("engine-4", engine_4),
        ("engine-5", engine_5),
        ("engine-6", engine_6),
        ("rules", headers::conclude_rules),
        ("mix", headers::conclude_mix),
        ("cascade", headers::conclude_cascade),
        ("compressions", modem::conclude_compressions),
        ("compressions", modem::conclude_maximum),
        ("modem-vmunix-z", modem::conclude_files),
    ])
}

impl Conclusion {
    pub(super) fn value(&mut self, id: &str, value: f64) {
        self.findings.push(Finding::value(id, value));
    }

    pub(super) fn figures<const N: usize>(&mut self, id: &str, figures: [(&str, f64); N]) {
        self.findings.push(Finding::figures(id, figures));
    }

    pub(super) fn draw(
        &mut self,
        place: &'static str,
        part: &'static str,
        picture: uts_plot::svg::Picture,
        caption: String,
    ) {
        self.figures.push(Figure { place: place.into(), part: part.into(), picture, caption });
    }
}

/// Words of a figure of packets against time.
fn words<'a>(title: &'a str, subtitle: &'a str) -> Words<'a> {
    Words { title, subtitle, x: "seconds", y: "packet" }
}

/// Of the queues with which figure 2 stops where the paper's does, the one nearest to the rest of
/// [`PUBLISHED`].
fn queues(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let curve = |(look, (_, name, _))| Curve::marked(name, look, vec![]);
    let mut drawn: Vec<Curve> = PUBLISHED.into_iter().enumerate().map(curve).collect();
    let (mut exact, mut best, mut least) = (Vec::new(), 0, f64::INFINITY);
    for queue in QUEUES {
        let mut squares = Vec::new();
        for (curve, (column, _, published)) in drawn.iter_mut().zip(PUBLISHED) {
            let share = results.value(&format!("queue-{queue}"), column)? / published;
            curve.points.push((queue.into(), share));
            squares.push((share - 1.0) * (share - 1.0));
        }
        let off = libm::sqrt(mean(&squares[1..]));
        if squares[0] == 0.0 {
            exact.push(queue.to_string());
            (best, least) = if off < least { (queue, off) } else { (best, least) };
        }
    }
    let exact = exact.join(", ");
    let beside = f64::from(best) - f64::from(QUEUE_PACKETS);
    let figures = [
        ("nearest queue", f64::from(best)),
        ("the same less the one that all figures have", beside),
        ("its distance from figures 3 and 4", least * 100.0),
    ];
    conclusion.figures("queue.size", figures);
    let words = Words {
        title: "Which queue the gateway had",
        subtitle: "ours as a share of what figures 2, 3 and 4 publish",
        x: "packets in the gateway",
        y: "share",
    };
    let caption =
        format!("Figure 2 stops at packet 28 with {exact}. The paper does not give the size of the queue.");
    conclusion.draw("section 2", "", curves(&words, false, None, &drawn), caption);
    two_repeats(results, conclusion)
}

/// Checks if any queue gives figure 13's two repeats.
fn two_repeats(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let (mut twos, mut all) = (0.0, Vec::new());
    for queue in QUEUES {
        let repeats = results.column(&format!("queue-{queue}"), "first-repeats")?;
        twos += repeats.iter().filter(|repeats| **repeats == 2.0).count() as f64;
        all.extend_from_slice(repeats);
    }
    let (low, high) = ends(&all);
    let figures = [("runs with two repeats", twos), ("fewest repeats", low), ("most repeats", high)];
    conclusion.figures("queue.two", figures);
    Ok(())
}

fn knee(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let (rates, repeats) = (results.column("knee", "kbps")?, results.column("knee", "repeats")?);
    let last = rates.iter().zip(repeats).rev().find(|(_, repeats)| **repeats > 0.0);
    let first_free = last.map_or(f64::NAN, |(rate, _)| rate + 1.0);
    conclusion.value("knee.rate", first_free);
    let points = rates.iter().copied().zip(repeats.iter().copied()).collect();
    let curve = Curve::marked("repeats, in a transfer of 70 packets", 0, points);
    let words = Words {
        title: "Rates that Rx as it was shipped can do with",
        subtitle: "100 kB in packets of 1500 bytes, a window of 15, a time-out of 2 s",
        x: "kbit/s",
        y: "packets",
    };
    let caption =
        "The last of a window are acknowledged with the packet behind it: 16 packets have to pass in 2 s."
            .to_owned();
    conclusion.draw("section 3", "", curves(&words, false, None, &[curve]), caption);
    Ok(())
}

fn figure_2(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let session = Session::of(results, "figure-2", "first")?;
    let highest = session.packet.iter().copied().fold(0.0, f64::max);
    conclusion.value("figure2.highest", highest);
    let done = f64::from(u8::from(session.done.is_some()));
    conclusion.figures(
        "figure2.never",
        [("transfers done", done), ("packets that never left", session.packets - highest)],
    );
    let figures = [("transmissions until it is given up", session.at.len() as f64)];
    conclusion.figures("figure2.transmissions", figures);
    let words = words("MTU 1500, time-out 2 s", "each packet in three fragments over the line of 9600 bit/s");
    let picture = sequence(&words, &[("", &session)], None, false);
    conclusion.draw("figure 2", "", picture, format!("It never gets past packet {highest:.0}."));
    Ok(())
}

/// The middle one of what came of a session with other delays of the line.
fn middle(results: &Results, unit: &str, column: &str) -> Result<f64> {
    Ok(median(results.column(unit, column)?.iter().copied()))
}

/// Range of the runs with other delays, in words.
fn range(results: &Results, unit: &str, column: &str) -> Result<String> {
    let (low, high) = ends(results.column(unit, column)?);
    Ok(format!("{low:.0} to {high:.0}"))
}

/// The least and the most.
fn ends(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)))
}

fn figure_3(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let unit = "delays-2";
    let (sent, repeated) = (middle(results, unit, "transmissions")?, middle(results, unit, "repeats")?);
    let bps = middle(results, unit, "bps")?;
    let session = Session::of(results, "figure-3", "first")?;
    conclusion.value("figure3.transmissions", sent);
    conclusion.value("figure3.retransmissions", repeated);
    conclusion.value("figure3.share", repeated / sent);
    conclusion.value("figure3.mean", repeated / session.packets);
    conclusion.value("figure3.worst", middle(results, unit, "worst")?);
    conclusion.value("figure3.worst-packet", middle(results, unit, "worst-packet")?);
    conclusion.value("figure3.bps", bps);
    conclusion.figures("section8.before", [("with a time-out of 2 s", bps / 8.0)]);
    conclusion.value("figure3.peak-share", bps / LINE_BPS);
    let words = words("MTU 576, time-out 2 s", "one packet each, 193 in all");
    let picture = sequence(&words, &[("", &session)], None, false);
    let caption = format!(
        "{} transmissions in {:.0} s; with other delays of the line {} transmissions.",
        session.at.len(),
        session.took(),
        range(results, unit, "transmissions")?
    );
    conclusion.draw("figure 3", "", picture, caption);
    Ok(())
}

fn figure_4(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let session = Session::of(results, "figure-4", "first")?;
    let bps = middle(results, "delays-6", "bps")?;
    conclusion.value("figure4.bps", bps);
    conclusion.value("figure4.share", bps / LINE_BPS);
    let gaps = session.gaps();
    let six = gaps.iter().filter(|gap| (*gap - 6.0).abs() < INSTANT_S).count() as f64 / gaps.len() as f64;
    let of = "of repeats leave 6.0 s after the transmission before";
    conclusion.figures("figure4.threads", [(of, six * 100.0)]);
    let words = words("MTU 576, time-out 6 s", "below the 9 s that a window takes");
    let picture = sequence(&words, &[("", &session)], None, false);
    let bps = range(results, "delays-6", "bps")?;
    let caption = format!("Threads of repeats, 6 s apart. With other delays of the line {bps} bit/s.");
    conclusion.draw("figure 4", "", picture, caption);
    Ok(())
}

fn figure_5(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let session = Session::of(results, "figure-5", "first")?;
    conclusion.value("figure5.bps", session.ip_bps());
    conclusion.value("figure5.share", session.ip_bps() / LINE_BPS);
    conclusion.figures("figure5.repeats", [("repeats", session.repeated())]);
    let bytes = session.at.len() as f64 * f64::from(super::SMALL);
    let header = f64::from(super::protocol::HEADER_BYTES) / f64::from(super::SMALL);
    // The last of the line's work is the last packet and its acknowledgement.
    conclusion.value("section1.packet", bytes / session.at.len() as f64 * 8.0 / session.ip_bps());
    conclusion.value("section3.window-576", median(session.sample.iter().copied()));
    conclusion.value("section7.headers-576", header * 100.0);
    let header = f64::from(super::protocol::HEADER_BYTES) / 296.0;
    conclusion.value("section3.headers-296", header * 100.0);
    let window = f64::from(super::SMALL) * super::design::WINDOW as f64;
    conclusion.value("section7.cascade", window * 8.0);
    let at_once = session.at.iter().filter(|at| **at < INSTANT_S).count();
    let gaps = session.timeout_at.windows(2).map(|pair| pair[1] - pair[0]);
    let (shortest, longest) = gaps.fold((f64::INFINITY, 0.0f64), |(s, l), gap| (s.min(gap), l.max(gap)));
    let even = longest / shortest;
    let figures =
        [("packets at once", at_once as f64), ("longest over shortest gap between acknowledgements", even)];
    conclusion.figures("figure5.window", figures);
    let words = words("MTU 576, time-out 12 s", "above the 9 s that a window takes");
    let picture = sequence(&words, &[("", &session)], None, false);
    conclusion.draw("figure 5", "", picture, "Nothing is sent twice.".into());
    Ok(())
}

fn figure_6(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let first = Session::of(results, "figure-6", "first")?;
    let second = Session::of(results, "figure-6", "second")?;
    let ends = first.done.unwrap_or(f64::NAN);
    conclusion.value("figure6.rtt", median(second.samples_within(ends + 20.0, f64::INFINITY)));
    let after = first.repeats_within(second.begins, f64::INFINITY).len();
    let before = first.repeats_within(0.0, second.begins).len();
    let figures = [
        ("repeats of the first before", before as f64),
        ("repeats of the first after", after as f64),
        ("repeats of the second", second.repeated()),
    ];
    conclusion.figures("figure6.both", figures);
    // Those that are alone on the line, the last window left out.
    let alone = second.counts_of(ends + 20.0, second.done.unwrap_or(f64::NAN) - 20.0);
    let figures = [
        ("packets from 20 s after the first is done", alone.len() as f64),
        ("transmissions of each of them, mean", mean(&alone)),
    ];
    conclusion.figures("figure6.outlives", figures);
    let words = words(
        "MTU 576, time-out 12 s, a second session at 66 s",
        "from another host, through the same gateway",
    );
    let picture = sequence(&words, &[("first", &first), ("second", &second)], None, false);
    let caption = format!("The first is done at {ends:.0} s. The second goes on as if it were not.");
    conclusion.draw("figure 6", "", picture, caption);
    Ok(())
}

/// A window of packets of 1500 bytes, with a time-out above what it takes.
fn window_1500(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let session = Session::of(results, "window-1500", "first")?;
    conclusion.value("section3.window-1500", median(session.sample.iter().copied()));
    Ok(())
}

/// The engine as the sender of a figure.
fn engine_alone<'r>(
    results: &'r Results,
    conclusion: &mut Conclusion,
    (unit, place): (&str, &'static str),
    title: &str,
) -> Result<Session<'r>> {
    let session = Session::of(results, unit, "first")?;
    let words = words(title, "by the engine, profile rx-3.1");
    let picture = sequence(&words, &[("", &session)], None, false);
    let (sent, repeated) = (session.at.len(), session.repeated());
    let last = session.at.last().copied().unwrap_or(f64::NAN);
    let caption = format!("{sent} transmissions, {repeated:.0} of them repeats, until {last:.0} s.");
    conclusion.draw(place, "e", picture, caption);
    Ok(session)
}

fn engine_3(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let place = ("engine-3", "figure 3");
    let session = engine_alone(results, conclusion, place, "MTU 576, time-out 2 s")?;
    let share = session.repeated() / session.at.len() as f64;
    let done = f64::from(u8::from(session.done.is_some()));
    conclusion.figures("engine3.completes", [("transfers done", done), ("share of repeats", share * 100.0)]);
    Ok(())
}

fn engine_4(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let place = ("engine-4", "figure 4");
    let session = engine_alone(results, conclusion, place, "MTU 576, time-out 6 s")?;
    conclusion.value("engine4.bps", session.ip_bps());
    Ok(())
}

fn engine_5(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let place = ("engine-5", "figure 5");
    let session = engine_alone(results, conclusion, place, "MTU 576, time-out 12 s")?;
    let at_once = session.at.iter().filter(|at| **at < session.at[0] + INSTANT_S).count();
    let figures = [
        ("packets", session.at.len() as f64),
        ("packets at once", at_once as f64),
        ("repeats", session.repeated()),
    ];
    conclusion.figures("engine5.once", figures);
    Ok(())
}

fn engine_6(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let first = Session::of(results, "engine-6", "first")?;
    let second = Session::of(results, "engine-6", "second")?;
    let ends = first.done.unwrap_or(f64::NAN);
    let before = first.repeats_within(0.0, second.begins).len();
    let alone = second.counts_of(ends + 20.0, second.done.unwrap_or(f64::NAN) - 20.0);
    let figures = [
        ("repeats of the first before", before as f64),
        ("repeats of the first", first.repeated()),
        ("packets from 20 s after the first is done", alone.len() as f64),
        ("transmissions of each of them, mean", mean(&alone)),
    ];
    conclusion.figures("engine6.outlives", figures);
    let words = words("MTU 576, time-out 12 s, a second session at 66 s", "by the engine, profile rx-3.1");
    let picture = sequence(&words, &[("first", &first), ("second", &second)], None, false);
    conclusion.draw("figure 6", "e", picture, "The handshake of the second waits in the same queue.".into());
    Ok(())
}

/// A session on the Ethernet, drawn with its time-outs.
fn ethernet(
    results: &Results,
    conclusion: &mut Conclusion,
    (unit, place): (&str, &'static str),
    (title, caption): (&str, String),
) -> Result<()> {
    let session = Session::of(results, unit, "first")?;
    let words = words(title, "an Ethernet; the server becomes six times as slow");
    let picture = sequence(&words, &[("", &session)], Some(20.0), true);
    conclusion.draw(place, "", picture, caption);
    Ok(())
}

/// When the server becomes slow, in figures 7 and 8, and 10.
const RISES_S: f64 = 2.0;

fn figure_7(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let session = Session::of(results, "figure-7", "first")?;
    let last = session.last_repeat();
    let during = session.counts_of(RISES_S, last - 2.0);
    let twice = during.iter().filter(|count| **count > 1.0).count() as f64 / during.len() as f64;
    let figures = [
        ("of packets are sent more than once", twice * 100.0),
        ("transmissions of each, mean", mean(&during)),
    ];
    conclusion.figures("figure7.twice", figures);
    let ends = session.done.unwrap_or(f64::NAN);
    conclusion.figures("figure7.stable", [("last repeat, as a share of the transfer", last / ends)]);
    let caption = format!("Tracks in parallel, from the rise until {last:.0} s.");
    ethernet(results, conclusion, ("figure-7", "figure 7"), ("Time-out: round trip + deviation", caption))
}

fn figure_8(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let session = Session::of(results, "figure-8", "first")?;
    let times = session.repeats_within(0.0, f64::INFINITY);
    let last = times.last().copied().unwrap_or(f64::NAN);
    let ends = session.done.unwrap_or(f64::NAN);
    let figures = [
        ("repeats", times.len() as f64),
        ("first repeat after the rise", times.first().copied().unwrap_or(f64::NAN) - RISES_S),
        ("last repeat, as a share of the transfer", last / ends),
    ];
    conclusion.figures("figure8.burst", figures);
    if results.has("figure-7") {
        let worse = Session::of(results, "figure-7", "first")?.repeated();
        conclusion
            .figures("figure8.better", [("repeats over those of one deviation", times.len() as f64 / worse)]);
    }
    let caption = "A burst, and then none.".to_owned();
    ethernet(results, conclusion, ("figure-8", "figure 8"), ("Time-out: round trip + 2 deviations", caption))
}

/// Figures 9 to 13 come after one another in the paper: time-outs are updated at each
/// acknowledgement in all of them. Each is run in both readings of that.
const READINGS: [(&str, &str); 2] = [("", "restarted"), ("-recomputed", "recomputed")];

fn figure_9(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    for (suffix, reading) in READINGS {
        let session = Session::of(results, &format!("figure-9{suffix}"), "first")?;
        let rate = |from: f64, to: f64| session.counts_of(from, to).len() as f64 / (to - from);
        let slope = rate(3.0, 6.0) / rate(0.2, 1.0);
        let figures = [("repeats", session.repeated()), ("slope after the rise over that before", slope)];
        conclusion.figures(&format!("figure9.{reading}"), figures);
    }
    let caption = "Each acknowledgement starts the time-outs of what is in flight anew.".to_owned();
    let place = ("figure-9", "figure 9");
    ethernet(results, conclusion, place, ("Timers updated at each acknowledgement", caption))
}

fn figure_10(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    for (suffix, reading) in READINGS {
        let session = Session::of(results, &format!("figure-10{suffix}"), "first")?;
        let later: Vec<f64> = session.timeouts_within(RISES_S + 2.0, f64::INFINITY).collect();
        let (low, high) = ends(&later);
        let figures = [
            ("acknowledgements from 2 s after the rise", later.len() as f64),
            ("longest over shortest time-out", high / low),
        ];
        conclusion.figures(&format!("figure10.constant.{reading}"), figures);
        let until = session.at.last().copied().unwrap_or(f64::NAN);
        let repeats = session.repeats_within(RISES_S + 2.0, until).len() as f64;
        let by_second = repeats / (until - RISES_S - 2.0);
        let of = "repeats a second from 2 s after the rise to the end";
        conclusion.figures(&format!("figure10.rampant.{reading}"), [(of, by_second)]);
    }
    let caption =
        "What was sent again gives no sample, and so the time-out stays. Here time-outs run from when a \
                   packet left: where each acknowledgement starts them anew, nothing is repeated."
            .to_owned();
    let place = ("figure-10-recomputed", "figure 10");
    ethernet(results, conclusion, place, ("Karn's rule, without back-off", caption))
}

fn figure_11(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    for (suffix, reading) in READINGS {
        let session = Session::of(results, &format!("figure-11{suffix}"), "first")?;
        conclusion.figures(&format!("figure11.repeats.{reading}"), [("repeats", session.repeated())]);
        let rise = session.last_repeat();
        let rise = if rise.is_nan() { FIGURE_11_RISES_S + 2.0 } else { rise };
        let after = median(session.timeouts_within(rise, f64::INFINITY));
        conclusion.value(&format!("figure11.after.{reading}"), after);
    }
    let caption = "The same, with samples of what was sent again.".to_owned();
    let place = ("figure-11-recomputed", "figure 11");
    ethernet(results, conclusion, place, ("Samples by serial number", caption))
}

/// When the server becomes slow in figure 11.
const FIGURE_11_RISES_S: f64 = 3.0;

fn figure_12(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let session = Session::of(results, "figure-12", "first")?;
    let words = words("Fully adaptive, MTU 576", "the first time-out is 2 s");
    let picture = sequence(&words, &[("", &session)], None, true);
    let caption =
        "One window is sent again at 2 s, before the first acknowledgement can have come.".to_owned();
    conclusion.draw("figure 12", "", picture, caption);
    for (suffix, reading) in READINGS {
        let session = Session::of(results, &format!("figure-12{suffix}"), "first")?;
        let late = session.repeats_within(session.first_acknowledgement(), f64::INFINITY).len();
        let figures = [
            ("repeats after the first acknowledgement", late as f64),
            ("share of the line", session.ip_bps() / LINE_BPS * 100.0),
        ];
        conclusion.figures(&format!("figure12.{reading}"), figures);
    }
    Ok(())
}

/// Seconds at which the picture of figure 13 is cut off, for all that stand beside it.
const SIDE_S: f64 = 300.0;

fn figure_13(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let first = Session::of(results, "figure-13", "first")?;
    let second = Session::of(results, "figure-13", "second")?;
    let again = first.repeats_within(second.begins, f64::INFINITY).len();
    conclusion.value("figure13.first", again as f64);
    let needless = first.duplicates_from(second.begins);
    conclusion.figures("figure13.needed", [("repeats of what was not dropped", needless as f64)]);
    let known_at = second.first_acknowledgement();
    let blob = second.repeats_within(second.begins, known_at);
    let bursts: Vec<f64> = (1..5).map(|n| second.begins + 2.0 * f64::from(n)).collect();
    let is_burst = |at: &f64| blob.iter().filter(|b| (*b - at).abs() < INSTANT_S).count() == 15;
    let windows = bursts.iter().filter(|at| is_burst(at)).count();
    conclusion
        .figures("figure13.blob", [("windows of 15 again, one each 2 s, in its first 8 s", windows as f64)]);
    let ends = first.done.unwrap_or(f64::NAN);
    conclusion.value("figure13.rtt", median(second.samples_within(second.begins, ends)));
    let words =
        words("Fully adaptive, a second session at 73 s", "from another host, through the same gateway");
    let picture = sequence(&words, &[("first", &first), ("second", &second)], Some(SIDE_S), false);
    let caption =
        format!("The blob: {} packets that leave before the first acknowledgement.", blob.len() + 15);
    conclusion.draw("figure 13", "", picture, caption);
    Ok(())
}

/// Figure 13 and what the paper asks for, side by side.
fn blob_gone(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let runs = [
        ("history", "a", "A first guess from history"),
        ("slow-start", "b", "Slow start"),
        ("interactive", "c", "UTS, profile interactive"),
    ];
    for (unit, part, title) in runs.into_iter().filter(|(unit, ..)| results.has(unit)) {
        let first = Session::of(results, unit, "first")?;
        let second = Session::of(results, unit, "second")?;
        let begins = second.begins;
        let blob = second.repeats_within(begins, begins + 30.0).len();
        let others = first.repeats_within(begins, f64::INFINITY).len();
        let seen = format!(
            "the second repeats {blob} packets in its first 30 s, {:.0} in all. The first repeats {others}. They take {:.0} and {:.0} s",
            second.repeated(),
            first.took(),
            second.took()
        );
        let done = u8::from(first.done.is_some()) + u8::from(second.done.is_some());
        let figures =
            [("repeats of the second in its first 30 s", blob as f64), ("transfers done", f64::from(done))];
        conclusion.figures(&format!("blob.{unit}"), figures);
        let subtitle = format!("as figure 13: a second session at {} s", SECOND_S[1]);
        let words = words(title, &subtitle);
        let picture = sequence(&words, &[("first", &first), ("second", &second)], Some(SIDE_S), false);
        conclusion.draw("section 6", part, picture, seen);
    }
    Ok(())
}
