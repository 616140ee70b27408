//! What follows from the units for the paper's tables and figures.

use super::engine;
use super::formulas;
use super::kernel::Strategy;
use super::{
    D, LARGE, PIECES, PIECES_PN, REPEATS_MS, SIZES, STANDALONE, T1_MS, TD_MS, TODAY, TR_MS, V_KERNEL,
};
use crate::judge::Finding;
use crate::looks::{Curve, Stretch, Words, curves, time_line};
use crate::paper::{Conclusion, Figure, Results};
use anyhow::Result;

pub(super) fn conclude(results: &Results) -> Result<Conclusion> {
    let mut conclusion = results.conclude(&[
        ("tables", tables),
        ("lines", lines),
        ("formulas", against_formulas),
        ("full-0", expected),
        ("pieces", pieces),
        ("today-1", today),
    ])?;
    // Figure 6 needs the strategies too; figure 5 does not.
    if results.has("strategy-1") {
        deviation(results, &mut conclusion)?;
        hosts(results, &mut conclusion)?;
    }
    Ok(conclusion)
}

fn tables(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let found = &mut conclusion.findings;
    for (table, machine, modes) in
        [("table1", "standalone", &["saw", "sw", "blast"][..]), ("table3", "v", &["saw", "blast"][..])]
    {
        for mode in modes {
            let column = results.column("tables", &format!("{machine}-{mode}"))?;
            for (n, took) in SIZES.iter().zip(column) {
                found.push(Finding::value(format!("{table}.{mode}.{n}"), *took));
            }
        }
    }
    let parts = results.column("tables", "parts")?;
    let total: f64 = parts.iter().sum();
    let names = ["copy-in", "transmit", "copy-out", "ack-copy-in", "ack-transmit", "ack-copy-out"];
    for (name, part) in names.iter().zip(parts) {
        found.push(Finding::value(format!("table2.{name}"), *part));
    }
    let observed = results.value("tables", "exchange")?;
    found.push(Finding::value("table2.total", total));
    found.push(Finding::value("table2.observed", observed));
    // Parts 1 and 4 are transmissions, the others copies.
    let network: f64 = parts.iter().skip(1).step_by(3).sum();
    found.push(Finding::value("section2.network-share", network / observed));
    found.push(Finding::value("section2.copying-share", (total - network) / observed));
    for mode in ["saw", "sw", "blast"] {
        found.push(Finding::value(
            format!("naive.{mode}"),
            results.value("tables", &format!("naive-{mode}"))?,
        ));
    }
    Ok(())
}

fn lines(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let titles = [
        ("a", "Stop-and-wait"),
        ("b", "Blast"),
        ("c", "Sliding window"),
        ("d", "Blast, double-buffered interfaces"),
    ];
    let mut both = Vec::new();
    for (name, title) in titles {
        let column = |what: &str| results.column("lines", &format!("{name}-{what}"));
        let (lanes, kinds, begins, ends) =
            (column("lane")?, column("kind")?, column("begin")?, column("end")?);
        let stretch = |n: usize| Stretch {
            lane: lanes[n] as usize,
            look: kinds[n] as usize,
            begin: begins[n],
            end: ends[n],
        };
        let stretches: Vec<Stretch> = (0..lanes.len()).map(stretch).collect();
        let works = |lane| stretches.iter().filter(move |s| s.lane == lane);
        let overlap: f64 = works(0)
            .flat_map(|a| works(2).map(move |b| (a.end.min(b.end) - a.begin.max(b.begin)).max(0.0)))
            .sum();
        both.push((name, overlap));
        let subtitle =
            format!("N = 3, from the run: {:.2} ms", results.value("lines", &format!("{name}-elapsed"))?);
        let words = Words { title, subtitle: &subtitle, x: "ms", y: "" };
        conclusion.figures.push(Figure {
            place: "figure 3",
            part: name,
            picture: time_line(
                &words,
                &["sender copies", "network transmits", "receiver copies"],
                &["data", "acknowledgement"],
                &stretches,
            ),
            caption: format!("Both processors copy at once for {overlap:.2} ms."),
        });
    }
    let seen: Vec<String> = both.iter().map(|(name, overlap)| format!("{name} {overlap:.2} ms")).collect();
    let holds = both[0].1 < 1e-6 && both[1..].iter().all(|(_, overlap)| *overlap > 1.0);
    conclusion.findings.push(Finding::shape(
        "figure3.parallel",
        holds,
        format!("both copy at once: {}", seen.join(", ")),
    ));
    Ok(())
}

fn against_formulas(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    for (id, name) in
        [("saw", "saw"), ("blast", "blast"), ("double", "double"), ("double-short", "double-short")]
    {
        let off = results.value("formulas", &format!("{name}-off"))?;
        let seen = format!("at most {:.2e} off over N = 1 to 512", off);
        conclusion.findings.push(Finding::shape(format!("formula.{id}"), off < 1e-3, seen));
    }
    let is_same = results.column("formulas", "double")? == results.column("formulas", "triple")?;
    let seen = if is_same { "the same to the nanosecond for each N" } else { "not the same" };
    conclusion.findings.push(Finding::shape("section2.third-buffer", is_same, seen));
    let n = 64.0;
    conclusion.findings.push(Finding::value("formula.sw.published", STANDALONE.sliding_window(n)));
    conclusion.findings.push(Finding::value("formula.sw.fits", STANDALONE.sliding_window_fits(n)));
    let blast = results.column("formulas", "blast")?;
    let utilisation = (n * STANDALONE.t + STANDALONE.ta) / blast[63];
    conclusion.findings.push(Finding::value("utilisation.64", utilisation));
    let names = [
        ("saw", "stop-and-wait"),
        ("sw", "sliding window"),
        ("blast", "blast"),
        ("double", "blast, double-buffered"),
    ];
    let mut drawn = Vec::new();
    for (look, (column, name)) in names.into_iter().enumerate() {
        let took = results.column("formulas", column)?;
        let points = took.iter().enumerate().map(|(n, took)| (n as f64 + 1.0, *took)).collect();
        drawn.push(Curve {
            name: name.into(),
            look,
            points,
            errors: vec![],
            has_line: true,
            has_marks: false,
        });
    }
    let at = |column: &str, n: usize| results.column("formulas", column).map(|took| took[n - 1]);
    let order = (3..=512).all(|n| {
        let at = |column| at(column, n).unwrap_or(f64::NAN);
        at("saw") > at("sw") && at("sw") > at("blast") && at("blast") > at("double")
    });
    let seen = format!(
        "at N = 64: {:.1}, {:.1}, {:.1}, {:.1} ms",
        at("saw", 64)?,
        at("sw", 64)?,
        at("blast", 64)?,
        at("double", 64)?
    );
    conclusion.findings.push(Finding::shape("figure4.order", order, seen));
    let words = Words {
        title: "Elapsed time without errors",
        subtitle: "simulated hosts, stand-alone costs, each N from 1 to 512",
        x: "packets of 1 kB",
        y: "ms",
    };
    conclusion.figures.push(Figure {
        place: "figure 4",
        part: "",
        picture: curves(&words, false, None, &drawn),
        caption: "Each point is a transfer between two simulated hosts.".into(),
    });
    Ok(())
}

/// Points of a curve.
type Points = Vec<(f64, f64)>;

/// Points of an estimate, and half the width of their 95 % intervals.
fn points(results: &Results, unit: &str, what: &str) -> Result<(Points, Vec<f64>)> {
    let pn = results.column(unit, "pn")?;
    let values = results.column(unit, what)?;
    let errors = results.column(unit, &format!("{what}-error"))?;
    Ok((
        pn.iter().copied().zip(values.iter().copied()).collect(),
        errors.iter().map(|error| 1.96 * error).collect(),
    ))
}

/// A curve of a formula through many error rates.
fn formula(name: impl Into<String>, look: usize, f: impl Fn(f64) -> f64) -> Curve {
    let rates = (0..=100).map(|n| libm::pow(10.0, -6.0 + f64::from(n) / 20.0));
    let points = rates.map(|pn| (pn, f(pn))).collect();
    Curve { name: name.into(), look, points, errors: vec![], has_line: true, has_marks: false }
}

/// Most standard errors that any estimate is from its formula.
fn farthest(points: &[(f64, f64)], halves: &[f64], f: impl Fn(f64) -> f64) -> f64 {
    let off = points.iter().zip(halves).map(|((pn, value), half)| (value - f(*pn)).abs() / (half / 1.96));
    off.fold(0.0, f64::max)
}

/// Five standard errors: none of some hundred estimates is as far off by chance.
const ERRORS_MAX: f64 = 5.0;

fn expected(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let d = f64::from(D);
    let (mut drawn, mut far) = (Vec::new(), 0.0f64);
    for (n, tr) in REPEATS_MS.into_iter().enumerate() {
        let (points, errors) = points(results, &format!("full-{n}"), "mean")?;
        far = far.max(farthest(&points, &errors, |pn| formulas::expected_blast(d, TD_MS, tr, pn)));
        drawn.push(formula(format!("blast, Tr = {tr} ms"), n, |pn| {
            formulas::expected_blast(d, TD_MS, tr, pn)
        }));
        let name = format!("the same, {} failures each", super::FAILURES);
        drawn.push(Curve { name, look: n, points, errors, has_line: false, has_marks: true });
    }
    for (n, tr) in [REPEATS_MS[0], REPEATS_MS[2]].into_iter().enumerate() {
        let saw = |pn| formulas::expected_stop_and_wait(d, T1_MS, tr, pn);
        drawn.push(formula(format!("stop-and-wait, Tr = {tr} ms"), 3 + n, saw));
    }
    let found = &mut conclusion.findings;
    found.push(Finding::shape(
        "figure5.formula",
        far < ERRORS_MAX,
        format!("at most {far:.1} standard errors off"),
    ));
    let blast = |pn| formulas::expected_blast(d, TD_MS, TR_MS, pn);
    let saw = |pn| formulas::expected_stop_and_wait(d, T1_MS, TR_MS, pn);
    let flat = blast(1e-4) / TD_MS;
    let seen = format!(
        "at 1e-4: {:.3} times the time without errors, {:.2} of stop-and-wait",
        flat,
        blast(1e-4) / saw(1e-4)
    );
    found.push(Finding::shape("figure5.flat", flat < 1.02 && blast(1e-4) < 0.6 * saw(1e-4), seen));
    let knee = blast(1e-2) / TD_MS;
    found.push(Finding::shape(
        "figure5.knee",
        knee > 2.0,
        format!("at 1e-2: {knee:.2} times the time without errors"),
    ));
    let words = Words {
        title: "Expected time of 64 kB",
        subtitle: "D = 64, T0(1) = 5.9 ms, T0(D) = 173 ms; intervals of 95 %",
        x: "probability that a packet is lost",
        y: "ms",
    };
    conclusion.figures.push(Figure {
        place: "figure 5",
        part: "",
        picture: curves(&words, true, Some(800.0), &drawn),
        caption: "Lines are the formulas of section 3.1, marks are blasts that were carried out.".into(),
    });
    Ok(())
}

fn deviation(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let d = f64::from(D);
    let (mut drawn, mut far) = (Vec::new(), 0.0f64);
    for (n, tr) in REPEATS_MS.into_iter().enumerate().skip(1) {
        let (points, errors) = points(results, &format!("full-{n}"), "sigma")?;
        far = far.max(farthest(&points, &errors, |pn| formulas::sigma_exact(d, TD_MS, tr, pn)));
        let name = format!("full, no NAK, Tr = {tr} ms");
        drawn.push(Curve { name, look: n - 1, points, errors, has_line: false, has_marks: true });
        drawn.push(formula(format!("exact, Tr = {tr} ms"), n - 1, |pn| {
            formulas::sigma_exact(d, TD_MS, tr, pn)
        }));
    }
    drawn.push(formula(format!("as published, Tr = {TR_MS} ms"), 5, |pn| {
        formulas::sigma_published(d, TD_MS, TR_MS, pn)
    }));
    let (nak, nak_errors) = points(results, "strategy-1", "sigma")?;
    far = far.max(farthest(&nak, &nak_errors, |pn| formulas::exact_nak(d, TD_MS, TR_MS, pn).1));
    let published = |pn| formulas::sigma_published(d, TD_MS, 0.0, pn);
    for (n, strategy) in Strategy::ALL.into_iter().enumerate().skip(1) {
        let (points, errors) = points(results, &format!("strategy-{n}"), "sigma")?;
        let name = format!("{}, Tr = {TR_MS} ms", strategy.name());
        drawn.push(Curve { name, look: n + 1, points, errors, has_line: true, has_marks: true });
    }
    let at = |unit: &str, rate: f64| -> Result<f64> {
        let (points, _) = points(results, unit, "sigma")?;
        let nearest =
            points.iter().min_by(|a, b| (a.0 / rate - 1.0).abs().total_cmp(&(b.0 / rate - 1.0).abs()));
        Ok(nearest.map_or(f64::NAN, |point| point.1))
    };
    let low = 1e-4;
    let no_nak = [at("full-0", low)?, at("full-1", low)?, at("full-2", low)?];
    let [full, first, selective] = [at("strategy-1", low)?, at("strategy-2", low)?, at("strategy-3", low)?];
    let found = &mut conclusion.findings;
    found.push(Finding::shape(
        "figure6.exact",
        far < ERRORS_MAX,
        format!("at most {far:.1} standard errors off"),
    ));
    let seen = format!(
        "at 1e-4: {:.1}, {:.1}, {:.1} ms for Tr = 17.3, 173, 1730 ms",
        no_nak[0], no_nak[1], no_nak[2]
    );
    found.push(Finding::shape(
        "figure6.no-nak",
        no_nak[2] > 3.0 * no_nak[1] && no_nak[1] > 1.5 * no_nak[0],
        seen,
    ));
    let off = full / published(low) - 1.0;
    let seen = format!(
        "at 1e-4: {full:.1} ms, {:+.1} % of the formula without Tr; without NAK {:.1} ms",
        off * 100.0,
        no_nak[1]
    );
    found.push(Finding::shape("figure6.nak", off.abs() < 0.1 && full < 0.6 * no_nak[1], seen));
    let seen = format!("at 1e-4: full {full:.1}, from the first {first:.1}, selective {selective:.1} ms");
    found.push(Finding::shape("figure6.from-first", first < 0.8 * full, seen));
    let seen = format!(
        "at 1e-4: {:.1} ms apart, {:.1} % of the transfer",
        first - selective,
        (first - selective) / TD_MS * 100.0
    );
    found.push(Finding::shape(
        "figure6.selective",
        first > selective && first - selective < 0.05 * TD_MS,
        seen,
    ));
    let extra = |pn: f64| {
        formulas::sigma_published(d, TD_MS, TR_MS, pn) / formulas::sigma_exact(d, TD_MS, TR_MS, pn) - 1.0
    };
    let seen = format!("{:.2} % at 1e-4, {:.0} % at 1e-2", extra(1e-4) * 100.0, extra(1e-2) * 100.0);
    found.push(Finding::shape("figure6.published-formula", extra(1e-2) < 0.01, seen));
    let words = Words {
        title: "Standard deviation of the time of 64 kB",
        subtitle: "D = 64, T0(1) = 5.9 ms, T0(D) = 173 ms; intervals of 95 %",
        x: "probability that a packet is lost",
        y: "ms",
    };
    conclusion.figures.push(Figure {
        place: "figure 6",
        part: "",
        picture: curves(&words, true, Some(600.0), &drawn),
        caption: "The published formula is the root mean square of the extra time, not its deviation.".into(),
    });
    Ok(())
}

/// The kernel is held to the hosts.
fn hosts(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let (mut far, mut seen) = (0.0f64, Vec::new());
    for (n, strategy) in Strategy::ALL.into_iter().enumerate() {
        let unit = format!("hosts-{n}");
        let value = |column: &str| results.value(&unit, column);
        let (mean, kernel) = (value("mean")?, value("kernel")?);
        let error = libm::hypot(value("error")?, value("kernel-error")?);
        far = far.max((mean - kernel).abs() / error);
        seen.push(format!("{}: {mean:.1} and {kernel:.1} ms", strategy.name()));
    }
    let seen = format!("{}; at most {far:.1} standard errors apart", seen.join(", "));
    conclusion.findings.push(Finding::shape("figure6.hosts", far < ERRORS_MAX, seen));
    Ok(())
}

fn pieces(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let (mut drawn, mut best) = (Vec::new(), Vec::new());
    for (n, pn) in PIECES_PN.into_iter().enumerate() {
        let took = results.column("pieces", &format!("pn-{n}"))?;
        let points: Vec<(f64, f64)> =
            PIECES.iter().map(|piece| f64::from(*piece)).zip(took.iter().copied()).collect();
        let least = points.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(f64::NAN, |point| point.0);
        best.push(least);
        let name = format!("lost: {pn:e}");
        drawn.push(Curve::marked(name, n, points));
    }
    let whole = results.column("pieces", "pn-2")?;
    let gain = whole.last().copied().unwrap_or_default() / whole[3];
    let holds = best.is_sorted_by(|a, b| a >= b) && best[2] < f64::from(LARGE) && gain > 1.5;
    let seen = format!(
        "best for 1e-5, 1e-4, 1e-3: {} packets; at 1e-3 one blast of 1 MB takes {gain:.1} times as long as sixteen",
        best.iter().map(f64::to_string).collect::<Vec<_>>().join(", ")
    );
    conclusion.findings.push(Finding::shape("section3.multiple", holds, seen));
    let words = Words {
        title: "1 MB in several blasts",
        subtitle: &format!("kernel costs: C = {} ms; full repetition, Tr = {TR_MS} ms", V_KERNEL.c),
        x: "packets of a blast",
        y: "expected ms",
    };
    conclusion.figures.push(Figure {
        place: "section 3.1",
        part: "",
        picture: curves(&words, true, Some(9000.0), &drawn),
        caption: "Short blasts pay for their acknowledgements, long ones for their repetition.".into(),
    });
    Ok(())
}

/// The same moves by the engine.
fn today(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let of = |what: &str| -> Result<Vec<&[f64]>> {
        (1..=4).map(|strategy| results.column(&format!("today-{strategy}"), what)).collect()
    };
    let (free, lossy, repeats, failed) = (of("free")?, of("lossy")?, of("repeats")?, of("failed")?);
    let is_same = free.iter().all(|took| *took == free[0]);
    let share = |n: usize| TODAY[n].0 as f64 * 8.0 / 1e6 / free[0][n] * 100.0;
    let seen = format!(
        "64 kB in {:.3} ms, 1 MB in {:.2} ms: {:.0} and {:.0} % of 1 Gbit/s",
        free[0][0],
        free[0][1],
        share(0),
        share(1)
    );
    conclusion.findings.push(Finding::shape("today.free", is_same, seen));
    let timeout = engine::TIMEOUT.as_secs_f64() * 1e3;
    let (extra, share) = (lossy[0][0] - free[0][0], failed[0][0]);
    let seen = format!("{extra:.1} ms more; {:.0} % of moves fail once or more", share * 100.0);
    let holds = extra > 0.9 * share * timeout && extra < 1.5 * share * timeout;
    conclusion.findings.push(Finding::shape("today.timeout", holds, seen));
    let timed_out = of("timed-out")?;
    let worst = timed_out[1..].iter().map(|share| share[0]).fold(0.0, f64::max);
    let seen = format!("{:.0} % of moves, {:.0} % without NAK", worst * 100.0, timed_out[0][0] * 100.0);
    conclusion.findings.push(Finding::shape("today.nak", worst < 0.2 * timed_out[0][0], seen));
    let [full, first, selective] = [repeats[1][0], repeats[2][0], repeats[3][0]];
    let seen = format!("{full:.1}, {first:.1} and {selective:.2} packets a move");
    let holds = full > 1.3 * first && first > 1.3 * selective && selective > 0.0;
    conclusion.findings.push(Finding::shape("today.repeats", holds, seen));
    Ok(())
}
