//! Findings from the units for the paper's tables and figures.

use super::engine;
use super::formulas;
use super::kernel::Strategy;
use super::{
    D, PIECES, PIECES_PN, REPEATS_MS, SIZES, STANDALONE, T1_MS, TD_MS, TODAY, TR_MS, TRS_MS, TRS_PN, V_KERNEL,
};
use crate::judge::Finding;
use crate::looks::{Curve, Stretch, Words, curves, time_line};
use crate::paper::{Conclusion, Figure, Results};
use anyhow::{Result, bail};

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
        over_tr(results, &mut conclusion)?;
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
    // In microseconds, as section 2.1 has them.
    for (name, part) in [("data", 1), ("ack", 4)] {
        let part = parts.get(part).copied().unwrap_or(f64::NAN);
        found.push(Finding::value(format!("section2.transmit-{name}"), part * 1e3));
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
            place: "figure 3".into(),
            part: name.into(),
            picture: time_line(
                &words,
                &["sender copies", "network transmits", "receiver copies"],
                &["data", "acknowledgement"],
                &stretches,
            ),
            caption: format!("Both processors copy at once for {overlap:.2} ms."),
        });
    }
    let of = |n: usize| format!("{}: both processors copy at once", titles[n].1.to_lowercase());
    let figures = both.iter().enumerate().map(|(n, (_, overlap))| (of(n), *overlap));
    conclusion.findings.push(Finding::figures("figure3.parallel", figures));
    Ok(())
}

fn against_formulas(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    for (id, name) in
        [("saw", "saw"), ("blast", "blast"), ("double", "double"), ("double-short", "double-short")]
    {
        let off = results.value("formulas", &format!("{name}-off"))? * 100.0;
        let of = "farthest run from the formula, N = 1 to 512";
        conclusion.findings.push(Finding::figures(format!("formula.{id}"), [(of, off)]));
    }
    let pairs = results.column("formulas", "double")?.iter().zip(results.column("formulas", "triple")?);
    let gain = pairs.map(|(two, three)| (two - three).abs()).fold(0.0, f64::max);
    let of = "most that a third buffer changes, N = 1 to 512";
    conclusion.findings.push(Finding::figures("section2.third-buffer", [(of, gain)]));
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
    let least = |above: &str, below: &str| -> Result<f64> {
        let pairs = results.column("formulas", above)?.iter().zip(results.column("formulas", below)?);
        Ok(pairs.skip(2).map(|(above, below)| above / below).fold(f64::INFINITY, f64::min))
    };
    let figures = [
        ("least of stop-and-wait over sliding window, N = 3 to 512", least("saw", "sw")?),
        ("least of sliding window over blast", least("sw", "blast")?),
        ("least of blast over blast with two buffers", least("blast", "double")?),
    ];
    conclusion.findings.push(Finding::figures("figure4.order", figures));
    let words = Words {
        title: "Elapsed time without errors",
        subtitle: "simulated hosts, stand-alone costs, each N from 1 to 512",
        x: "packets of 1 kB",
        y: "ms",
    };
    conclusion.figures.push(Figure {
        place: "figure 4".into(),
        part: "".into(),
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

/// Value of an estimate at the error rate nearest to this.
fn at(results: &Results, unit: &str, what: &str, rate: f64) -> Result<f64> {
    let points = results.column(unit, "pn")?.iter().zip(results.column(unit, what)?);
    let nearest = points.min_by(|a, b| (a.0 / rate - 1.0).abs().total_cmp(&(b.0 / rate - 1.0).abs()));
    Ok(nearest.map_or(f64::NAN, |point| *point.1))
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
    let of = "farthest from the formula, in standard errors";
    found.push(Finding::figures("figure5.formula", [(of, far)]));
    let (blast, saw) = (|pn| at(results, "full-1", "mean", pn), |pn| at(results, "saw", "mean", pn));
    let figures = [
        ("at 1e-4, times the time without errors", blast(1e-4)? / TD_MS),
        ("at 1e-4, as a share of stop-and-wait", blast(1e-4)? / saw(1e-4)?),
    ];
    found.push(Finding::figures("figure5.flat", figures));
    let knee = ("at 1e-2, times the time without errors", blast(1e-2)? / TD_MS);
    found.push(Finding::figures("figure5.knee", [knee]));
    let words = Words {
        title: "Expected time of 64 kB",
        subtitle: "D = 64, T0(1) = 5.9 ms, T0(D) = 173 ms; intervals of 95 %",
        x: "probability that a packet is lost",
        y: "ms",
    };
    conclusion.figures.push(Figure {
        place: "figure 5".into(),
        part: "".into(),
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
    for (n, strategy) in Strategy::ALL.into_iter().enumerate().skip(1) {
        let (points, errors) = points(results, &format!("strategy-{n}"), "sigma")?;
        let name = format!("{}, Tr = {TR_MS} ms", strategy.name());
        drawn.push(Curve { name, look: n + 1, points, errors, has_line: true, has_marks: true });
    }
    let of = "farthest from the exact deviation, in standard errors";
    conclusion.findings.push(Finding::figures("figure6.exact", [(of, far)]));
    let extra =
        formulas::sigma_published(d, TD_MS, TR_MS, 1e-2) / formulas::sigma_exact(d, TD_MS, TR_MS, 1e-2);
    let of = "published formula over the exact one, at 1e-2";
    conclusion.findings.push(Finding::figures("figure6.published-formula", [(of, extra)]));
    let words = Words {
        title: "Standard deviation of the time of 64 kB",
        subtitle: "D = 64, T0(1) = 5.9 ms, T0(D) = 173 ms; intervals of 95 %",
        x: "probability that a packet is lost",
        y: "ms",
    };
    conclusion.figures.push(Figure {
        place: "figure 6".into(),
        part: "".into(),
        picture: curves(&words, true, Some(600.0), &drawn),
        caption: "The published formula is the root mean square of the extra time, not its deviation.".into(),
    });
    Ok(())
}

/// Tr of these places of [`TRS_MS`]: a tenth of a blast, a blast, ten blasts.
const SHORT: usize = 0;
const EQUAL: usize = 2;
const LONG: usize = 4;

/// The deviation over Tr. What the paper says of NAKs and what it says of selective repetition hold
/// at different Tr. Both are judged by ratios of deviations, at each.
fn over_tr(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let (mut sigma, mut drawn) = (Vec::new(), Vec::new());
    for (n, strategy) in Strategy::ALL.into_iter().enumerate() {
        let unit = format!("tr-{n}");
        let found = results.column(&unit, "sigma")?;
        let errors = results.column(&unit, "sigma-error")?.iter().map(|error| 1.96 * error).collect();
        let points = TRS_MS.into_iter().zip(found.iter().copied()).collect();
        let name = strategy.name().to_owned();
        drawn.push(Curve { name, look: n, points, errors, has_line: true, has_marks: true });
        sigma.push(found);
    }
    let [silent, full, first, selective] = sigma[..] else { bail!("four strategies") };
    let found = &mut conclusion.findings;
    let figures = [
        ("Tr of a blast over a tenth of it", silent[EQUAL] / silent[SHORT]),
        ("Tr of ten blasts over one", silent[LONG] / silent[EQUAL]),
    ];
    found.push(Finding::figures("figure6.no-nak", figures));
    found
        .push(Finding::figures("figure6.nak", [("over no NAK, Tr of a blast", full[EQUAL] / silent[EQUAL])]));
    let grows = |id, of, n: usize| Finding::figures(id, [(of, full[n] / full[SHORT])]);
    found.push(grows("figure6.nak-short", "Tr of a blast over a tenth of it", EQUAL));
    found.push(grows("figure6.nak-long", "Tr of ten blasts over a tenth of one", LONG));
    let ratio = |id, of, n: usize| Finding::figures(id, [(of, first[n] / full[n])]);
    found.push(ratio("figure6.from-first", "over full repetition, Tr of a blast", EQUAL));
    let ratio = |id, of, n: usize| Finding::figures(id, [(of, selective[n] / first[n])]);
    found.push(ratio("figure6.selective-short", "over from the first, Tr of a blast", EQUAL));
    found.push(ratio("figure6.selective-long", "over from the first, Tr of ten blasts", LONG));
    let words = Words {
        title: "Where the two statements about strategies hold",
        subtitle: &format!(
            "deviation of the time of 64 kB, {TRS_PN:e} lost; T0(D) = {TD_MS} ms; intervals of 95 %"
        ),
        x: "Tr, ms",
        y: "ms",
    };
    let caption = "Left of T0(D) a NAK makes the deviation all but independent of Tr, and selective repetition is far \
                   better than from the first missing. Right of it selective brings nothing, but the deviation grows \
                   with Tr, NAK or not.";
    conclusion.figures.push(Figure {
        place: "figure 6".into(),
        part: "t".into(),
        picture: curves(&words, true, Some(60.0), &drawn),
        caption: caption.into(),
    });
    Ok(())
}

/// The kernel is held to the hosts.
fn hosts(results: &Results, conclusion: &mut Conclusion) -> Result<()> {
    let mut far = Vec::new();
    for (n, strategy) in Strategy::ALL.into_iter().enumerate() {
        let unit = format!("hosts-{n}");
        let value = |column: &str| results.value(&unit, column);
        let error = libm::hypot(value("error")?, value("kernel-error")?);
        let of = format!("{}: standard errors apart", strategy.name());
        far.push((of, (value("mean")? - value("kernel")?).abs() / error));
    }
    conclusion.findings.push(Finding::figures("figure6.hosts", far));
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
    let figures = [
        ("best blast at 1e-5", best[0]),
        ("at 1e-4", best[1]),
        ("at 1e-3", best[2]),
        ("one blast of 1 MB over sixteen, at 1e-3", gain),
    ];
    conclusion.findings.push(Finding::figures("section3.multiple", figures));
    let words = Words {
        title: "1 MB in several blasts",
        subtitle: &format!("kernel costs: C = {} ms; full repetition, Tr = {TR_MS} ms", V_KERNEL.c),
        x: "packets of a blast",
        y: "expected ms",
    };
    conclusion.figures.push(Figure {
        place: "section 3.1".into(),
        part: "".into(),
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
    let apart =
        free.iter().map(|took| (took[0] / free[0][0] - 1.0).abs().max((took[1] / free[0][1] - 1.0).abs()));
    let share = |n: usize| TODAY[n].0 as f64 * 8.0 / 1e6 / free[0][n] * 100.0;
    let figures = [
        ("farthest that strategies are apart", apart.fold(0.0, f64::max) * 100.0),
        ("64 kB, of the rate", share(0)),
        ("1 MB, of the rate", share(1)),
    ];
    let found = &mut conclusion.findings;
    found.push(Finding::figures("today.free", figures));
    let timeout = engine::TIMEOUT.as_secs_f64() * 1e3;
    let extra = (lossy[0][0] - free[0][0]) / (failed[0][0] * timeout);
    found.push(Finding::figures("today.timeout", [("time-outs for each move that fails", extra)]));
    let timed_out = of("timed-out")?;
    let worst = timed_out[1..].iter().map(|share| share[0]).fold(0.0, f64::max);
    let what = "most with an answer, as a share of those without";
    found.push(Finding::figures("today.nak", [(what, worst / timed_out[0][0])]));
    // All moves of a kind have as many packets without losses.
    let packets = of("packets")?[0][0];
    let figures = [
        (
            "full without NAK, as a share of a blast for each move that fails",
            repeats[0][0] / failed[0][0] / packets,
        ),
        ("full with NAK over from the first", repeats[1][0] / repeats[2][0]),
        ("from the first over selective", repeats[2][0] / repeats[3][0]),
        ("selective, packets a move", repeats[3][0]),
    ];
    found.push(Finding::figures("today.repeats", figures));
    Ok(())
}
