//! Reports of experiments from made-up directories: what the page contains, what it says of missing
//! or wrong data, and that a browser draws, exports and prints it.

use crate::browser;
use crate::browser::Page;
use crate::experiment_sample::{
    Case, End, Experiment, buffers, buffers_end, mixture, mixture_end, universal, universal_end,
};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;
use uts_report::experiment;

/// A directory of an experiment.
fn directory(experiment: &Experiment, end: fn(&Case) -> Option<End>) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    experiment.write(dir.path(), end);
    dir
}

fn page(dir: &Path) -> String {
    let (page, problems) = experiment::render(dir).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    page
}

/// Changes a file of the directory.
fn edit(dir: &Path, file: &str, change: impl Fn(String) -> String) {
    let path = dir.join(file);
    fs::write(&path, change(fs::read_to_string(&path).unwrap())).unwrap();
}

#[test]
fn sweeps_and_traces_are_shown_unasked() {
    let page = page(directory(&buffers(5, json!([])), buffers_end).path());
    for wanted in [
        "Goodput against buffer, bulk over bottleneck, window 32kB",
        "Mean time in the bottleneck’s queue against buffer",
        "Goodput (Mbit/s)",
        "Buffer (packets)",
        "error bars: 95\u{a0}% confidence interval of the mean by Student’s t",
        "(n = 5)",
        "Without a figure: reno: 5 skipped; bbr: 1 failed, 4 invalid",
        "Path bottleneck: rate 5mbit, delay 10ms, framing aal5, buffer as swept",
        "Sequence number (MB)",
        "Round-trip time (ms)",
        "Time in the queue (ms)",
        "6.200 s, uts: saw loss 4.8 %; fec none -&gt; reed-solomon(20,5)",
        "The queue is that of bottleneck forward.",
    ] {
        assert!(page.contains(wanted), "`{wanted}` is missing");
    }
    assert!(!page.contains("{{"), "a part of the template was not filled in");
}

#[test]
fn methods_name_machine_seeds_and_every_run_that_does_not_count() {
    let page = page(directory(&buffers(5, json!([])), buffers_end).path());
    for wanted in [
        "280 runs: 265 ok, 8 invalid, 2 failed, 5 skipped",
        "departures 812 us late at the 99th percentile, more than 250 us",
        "the connection was reset after 3.1 s",
        "the kernel on this machine has no reno",
        "departures late by 41 µs at the 99th percentile",
        "<th>Processor</th><td>Sample CPU</td>",
        "<th>Versions, iperf3</th><td>3.12</td>",
        "1; of the repetitions: 1001, 1002, 1003, 1004, 1005",
        "uts-lab 0.1.0",
        "[path.bottleneck]",
        "router: network namespaces",
    ] {
        assert!(page.contains(wanted), "`{wanted}` is missing");
    }
}

#[test]
fn a_mean_is_of_valid_runs_alone() {
    let dir = directory(
        &buffers(3, json!([{"kind": "table", "y": "goodput", "at": {"buffer": "8p", "window": "32kB"}}])),
        |case| {
            let value = [1e6, 2e6, 900e6][case.repetition as usize - 1];
            let mut end = End::ok(vec![(case.transport.clone(), "goodput", value, "bit/s")]);
            if case.repetition == 3 {
                (end.status, end.why) = ("invalid", Some("late".into()));
            }
            Some(end)
        },
    );
    let page = page(dir.path());
    // 1.5 with Student's t for one degree of freedom: 12.706 times 0.7071 over the root of 2.
    let row =
        "<td>uts</td><td class=\"number\">2</td><td class=\"number\">1.50</td><td class=\"number\">6.35</td>";
    assert!(page.contains(row), "{}", &page[page.find("Values").unwrap()..][..2000]);
    assert!(page.contains("Without a figure: cubic: 1 invalid"));
}

#[test]
fn the_matrix_says_who_is_best_and_where_uts_is_not() {
    let page = page(directory(&universal(3), universal_end).path());
    for wanted in [
        "The first universal matrix: 5 workloads by 8 paths",
        "Of 40 cells, uts is the best in <b>",
        "Who is best at what",
        "Where uts is not the best",
        "Every transport in every cell",
        "3 of 3 failed (gave up after 60 s)",
        "3 of 3 skipped (srt has no streams)",
        "1 of 3 not finished",
        "Other variants of UTS take part under their own names",
        "Distribution of deadline slack, voice over bursts-5",
    ] {
        assert!(page.contains(wanted), "`{wanted}` is missing");
    }
    assert_eq!(page.matches("<td class=\"m-").count(), 40, "a cell for each workload on each path");
}

/// The verdict is checked against the figures themselves, by another way.
#[test]
fn the_matrix_agrees_with_the_figures() {
    let mut experiment = universal(1);
    experiment.workloads = vec!["bulk"];
    experiment.paths = vec!["lan", "dsl"];
    experiment.transports = vec!["tcp-cubic", "uts"];
    experiment.plots = json!([{"kind": "matrix"}]);
    let dir = directory(&experiment, |case| {
        let value = match (case.transport.as_str(), case.path.as_str()) {
            ("uts", "lan") => 90e6,
            ("uts", _) => 20e6,
            (_, "lan") => 60e6,
            _ => 50e6,
        };
        Some(End::ok(vec![(case.transport.clone(), "goodput", value, "bit/s")]))
    });
    let page = page(dir.path());
    for wanted in [
        "Of 2 cells, uts is the best in <b>1</b>, on a par with the best in <b>0</b> and behind in <b>1</b>.",
        "<b>uts</b> 90 Mbit/s<span>next tcp-cubic 60 Mbit/s (1.50\u{a0}×)</span>",
        "<b>tcp-cubic</b> 50 Mbit/s<span>uts 20 Mbit/s (2.50\u{a0}×)</span>",
    ] {
        assert!(page.contains(wanted), "`{wanted}` is missing");
    }
    assert!(page.contains("<td class=\"m-behind3\""));
}

#[test]
fn first_among_equals_is_not_the_best() {
    let mut experiment = universal(1);
    (experiment.workloads, experiment.paths) = (vec!["bulk"], vec!["lan"]);
    experiment.transports = vec!["tcp-cubic", "uts"];
    experiment.plots = json!([{"kind": "matrix"}]);
    let dir = directory(&experiment, |case| {
        Some(End::ok(vec![(case.transport.clone(), "goodput", 50e6, "bit/s")]))
    });
    let page = page(dir.path());
    for who in ["tcp-cubic", "uts"] {
        let row = format!("<tr><td>{who}</td><td class=\"number\">0</td><td class=\"number\">1</td>");
        assert!(page.contains(&row), "{row}");
    }
}

/// Cells are compared with the figures of all that ran. A cell in which nothing else ran is no
/// victory of UTS.
#[test]
fn a_cell_without_a_rival_is_not_won() {
    let mut experiment = universal(1);
    experiment.workloads = vec!["bulk"];
    experiment.paths = vec!["lan", "dsl", "serial", "satellite"];
    experiment.transports = vec!["tcp-cubic", "uts", "uts-voice"];
    experiment.plots = json!([{"kind": "matrix"}]);
    let dir = directory(&experiment, |case| {
        let value = match (case.transport.as_str(), case.path.as_str()) {
            ("tcp-cubic", "dsl") => return Some(End::other("skipped", "the kernel has no cubic")),
            ("tcp-cubic", "serial") => return Some(End::other("invalid", "departures were late")),
            ("tcp-cubic", "lan") => 60e6,
            ("tcp-cubic", _) => 40e6,
            ("uts", "satellite") => 10e6,
            ("uts", _) => 90e6,
            _ => 5e6,
        };
        Some(End::ok(vec![(case.transport.clone(), "goodput", value, "bit/s")]))
    });
    let page = page(dir.path());
    for wanted in [
        "Of 4 cells, 2 have a figure of another transport. Of these 2, uts is the best in <b>1</b>, on a par with the best in \
         <b>0</b> and behind in <b>1</b>; in <b>2</b> only uts has a figure, which counts neither way.",
        "Where uts is the best, it is so by 1.50\u{a0}× in the median and 1.50\u{a0}× at most (bulk, lan).",
        "Where it is behind, it is so by 4.00\u{a0}× in the median and 4.00\u{a0}× at worst (bulk, satellite).",
        "<b>uts</b> 90 Mbit/s<span>no other ran</span>",
        "<h3>Where no other transport ran</h3>",
        "<li>bulk, dsl: tcp-cubic: 1 of 1 skipped (the kernel has no cubic)</li>",
        "<li>bulk, serial: tcp-cubic: 1 of 1 invalid (departures were late)</li>",
        // Which transport is best at what: of the two cells that are contested.
        "<tr><td>uts</td><td class=\"number\">1</td><td class=\"number\">1</td><td class=\"number\">2</td>",
    ] {
        assert!(page.contains(wanted), "`{wanted}` is missing");
    }
    assert_eq!(page.matches("<td class=\"m-best\"").count(), 1);
    assert_eq!(page.matches("<td class=\"m-alone\"").count(), 2);
    assert_eq!(page.matches("<td class=\"m-behind3\"").count(), 1);
}

#[test]
fn flows_of_a_mixture_have_lines_of_their_own() {
    let page = page(directory(&mixture(), mixture_end).path());
    for wanted in ["Jain’s index of fairness", "mixture pair: ", "cubic-2"] {
        assert!(page.contains(wanted), "`{wanted}` is missing");
    }
}

/// A mixture has its workloads with it, so that mixtures of different workloads can be compared.
#[test]
fn mixtures_of_different_workloads_share_a_picture() {
    let experiment = Experiment {
        mixtures: vec!["calm", "wild"],
        workloads: vec!["even", "bursts"],
        plots: json!([{"kind": "bars", "x": "mixture", "y": "fairness"}]),
        ..mixture()
    };
    let directory = directory(&experiment, |case| match (case.mixture.as_str(), case.workload.as_str()) {
        ("calm", "even") | ("wild", "bursts") => mixture_end(case),
        _ => None,
    });
    let (page, problems) = experiment::render(directory.path()).unwrap();
    assert_eq!(page.matches("<figure class=").count(), 1, "{problems:?}");
    assert!(page.contains("calm") && page.contains("wild"));
}

/// As [`buffers_end`], with logs of both ends of UTS: of two packets one arrives.
fn logged_end(case: &Case) -> Option<End> {
    let mut end = buffers_end(case)?;
    let event = |name: &str, ms: f64, number: u64| {
        let header = json!({"packet_type": "1RTT", "packet_number": number});
        let data = json!({"header": header, "uts": {"flow": 0, "repeats": false}});
        format!("\u{1e}{}\n", json!({"name": name, "time": ms, "data": data}))
    };
    let sent = [event("quic:packet_sent", 10.0, 0), event("quic:packet_sent", 11.0, 1)].concat();
    let received = event("quic:packet_received", 30.0, 0);
    if case.transport == "uts" {
        end.samples.extend([("uts.client.sqlog", sent), ("uts.server.sqlog", received)]);
    }
    Some(end)
}

#[test]
fn every_kind_of_plot_is_drawn() {
    for kind in experiment::PLOT_KINDS {
        let (experiment, end): (_, fn(&Case) -> Option<End>) = match kind {
            "cdf" | "latency" | "matrix" => (universal(2), universal_end),
            "fairness" => (mixture(), mixture_end),
            "ladder" => (buffers(2, json!([])), logged_end),
            _ => (buffers(2, json!([])), buffers_end),
        };
        let dir = directory(&Experiment { plots: json!([{"kind": kind}]), ..experiment }, end);
        let (page, problems) = experiment::render(dir.path()).unwrap();
        assert!(problems.iter().all(|p| p.contains("could be traced")), "{kind}: {problems:?}");
        assert!(
            page.contains("<figure class=") || page.contains("<table class=\"matrix\">"),
            "nothing of {kind}"
        );
    }
}

#[test]
fn a_plot_that_is_wrong_is_told_and_hides_no_other() {
    let plots = json!([
        {"kind": "pie"}, {"kind": "sweep", "x": "bufer"}, {"kind": "sweep", "y": "godput"}, {"kind": "cdf"},
        {"kind": "bars", "transport": "vegas"}, {"kind": "sweep", "at": {"buffer": "9p"}}, {"kind": "sweep", "colour": "red"},
        {"kind": "trace", "y": "colour"}, {"kind": "matrix", "rows": "transport"}, {"kind": "sweep", "y": "goodput"},
    ]);
    let dir = directory(&buffers(2, plots), buffers_end);
    let (page, problems) = experiment::render(dir.path()).unwrap();
    let expected = [
        "[[plot]] 1: unknown variant `pie`",
        "[[plot]] 2: there is no axis `bufer`; there are transport, world, mixture, workload, path, buffer, window",
        "[[plot]] 3: there is no measure `godput`; there are goodput, goodput_share, queue_sojourn_mean",
        "[[plot]] 4: no valid run has recorded latencies yet",
        "[[plot]] 5: there is no transport `vegas`; there are cubic, reno, bbr, uts",
        "[[plot]] 6: there is no value of buffer `9p`; there are 1p, 2p",
        "[[plot]] 7: unknown field `colour`",
        "[[plot]] 8: there is no recording `colour`; there are sequence, window",
        "[[plot]] 9: transports are what the cells of a matrix compare",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:?}");
    for (problem, start) in problems.iter().zip(expected) {
        assert!(problem.starts_with(start), "{problem}");
    }
    assert!(
        page.contains("Figure 2. Goodput against buffer") && page.contains("[[plot]] 1: unknown variant")
    );
}

#[test]
fn an_unfinished_experiment_has_a_report() {
    let none = page(directory(&buffers(2, json!([])), |_| None).path());
    assert!(none.contains("The experiment is unfinished: 112 of 112 runs are still to come."));
    assert!(none.contains("There is nothing to show yet."));
    let some =
        directory(&buffers(2, json!([])), |case| buffers_end(case).filter(|_| case.transport == "cubic"));
    let some = page(some.path());
    assert!(some.contains("84 of 112 runs are still to come") && some.contains("Goodput against buffer"));
    assert!(some.contains("uts: 14 not run yet"));
    let matrix = directory(&universal(2), |case| universal_end(case).filter(|_| case.path == "lan"));
    let matrix = page(matrix.path());
    assert!(matrix.contains("in 35 no transport has a figure yet") && matrix.contains("2 of 2 not run yet"));
}

#[test]
fn a_run_of_which_no_figure_was_written_yet_is_no_error() {
    let dir = directory(&buffers(2, json!([])), |_| None);
    fs::remove_file(dir.path().join("measures.csv")).unwrap();
    assert!(page(dir.path()).contains("112 of 112 runs"));
}

#[test]
fn what_is_wrong_with_plan_or_measures_is_named() {
    let dir = directory(&buffers(1, json!([])), buffers_end);
    let refused = |file: &str, change: fn(String) -> String| {
        let before = fs::read_to_string(dir.path().join(file)).unwrap();
        edit(dir.path(), file, change);
        let error = format!("{:#}", experiment::render(dir.path()).unwrap_err());
        fs::write(dir.path().join(file), before).unwrap();
        error
    };
    let bad_value = refused("measures.csv", |text| text.replacen("bit/s,true", "bit/s,perhaps", 1));
    assert!(bad_value.contains("measures.csv:2: valid: `perhaps` is not true or false"), "{bad_value}");
    let short = refused("measures.csv", |text| text + "a,b,c\n");
    assert!(short.contains("fields, and the header has 14"), "{short}");
    let column = refused("measures.csv", |text| text.replacen(",measure,", ",what,", 1));
    assert!(
        column.contains("measures.csv:1: the column `measure` is missing; there are run, world"),
        "{column}"
    );
    let json = refused("plan.json", |text| text[..100].into());
    assert!(json.contains("plan.json is not what it should be") && json.contains("line 1"), "{json}");
    let format = refused("plan.json", |text| text.replacen("\"format\":1", "\"format\":99", 1));
    assert!(format.contains("has format 99, and this program reads format 1"), "{format}");
    fs::remove_file(dir.path().join("measures.csv")).unwrap();
    let missing = experiment::render(dir.path()).unwrap_err().to_string();
    assert!(missing.contains("measures.csv is missing, although 53 runs have ended"), "{missing}");
}

#[test]
fn what_else_is_missing_or_wrong_is_told_on_the_page() {
    let plots = json!([{"kind": "trace", "at": {"buffer": "8p"}}]);
    let dir = directory(&buffers(1, plots), buffers_end);
    let run = "uts.bulk.bottleneck.buffer-8p.window-32kB.r1";
    fs::remove_file(dir.path().join("machine.json")).unwrap();
    fs::remove_file(dir.path().join("experiment.toml")).unwrap();
    edit(dir.path(), &format!("runs/{run}/samples/window.csv"), |text| {
        text.replacen("\n0.010,", "\nsoon,", 1)
    });
    fs::write(dir.path().join("runs/cubic.bulk.bottleneck.buffer-1p.window-32kB.r1/run.json"), "{").unwrap();
    fs::create_dir(dir.path().join("runs/stranger")).unwrap();
    let (page, problems) = experiment::render(dir.path()).unwrap();
    for wanted in [
        "experiment.toml cannot be read: ",
        "machine.json cannot be read: ",
        "cubic.bulk.bottleneck.buffer-1p.window-32kB.r1/run.json: ",
        "runs that are not in plan.json are left out: stranger",
        &format!("{run}/samples/window.csv:4: t_s: invalid float literal; the file is left out"),
    ] {
        assert!(problems.iter().any(|p| p.contains(wanted)), "`{wanted}` is missing in {problems:?}");
    }
    assert_eq!(problems.len(), 5, "{problems:?}");
    assert!(problems.iter().all(|p| page.contains(&p.replace('"', "&quot;"))));
    assert!(page.contains("uts against time"), "its other samples are shown");
}

#[test]
fn the_page_loads_nothing() {
    let page = page(directory(&buffers(1, json!([])), buffers_end).path());
    for load in
        ["<script src", "<link", "<img", "<iframe", "@import", "url(", "fetch(", "XMLHttpRequest", "import("]
    {
        assert!(!page.contains(load), "the page has `{load}`");
    }
    let own = page
        .replace("/*! https://github.com/leeoniya/uPlot (v1.6.32) */", "")
        .replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for scheme in ["http://", "https://", "src=\"", "href=\""] {
        assert!(!own.contains(scheme), "the page has `{scheme}`");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn names_cannot_break_out_of_the_page() {
    let evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>{{data}}";
    let mut experiment = buffers(
        1,
        json!([{"kind": "sweep", "title": evil, "caption": evil}, {"kind": evil}, {"kind": "trace"}]),
    );
    experiment.title = evil;
    experiment.question = evil;
    let dir = tempfile::tempdir().unwrap();
    experiment.write(dir.path(), |case| {
        let mut end = buffers_end(case)?;
        end.why = end.why.map(|_| evil.into());
        for (file, text) in &mut end.samples {
            if *file == "exchanges.csv" {
                *text = format!("t_s,flow,line\n1,uts,\"{evil}\"\n");
            }
        }
        Some(end)
    });
    let (page, _) = experiment::render(dir.path()).unwrap();
    assert!(!page.contains("<script>alert") && !page.contains("<img"));
    assert_eq!(page.matches("</script>").count(), 3);
    assert!(page.contains("&lt;/script&gt;&lt;script&gt;alert(1)"));
}

#[test]
fn pages_are_small_and_the_same_each_time() {
    let dir = directory(&buffers(3, json!([{"kind": "trace"}, {"kind": "sweep"}])), buffers_end);
    let (first, _) = experiment::render(dir.path()).unwrap();
    assert!(first.matches("<figure ").count() >= 8 + 2);
    assert!(first.len() < 4_000_000, "{} bytes", first.len());
    assert!(page(dir.path()) == first, "another page from the same directory");
    let matrix = page(directory(&universal(3), universal_end).path());
    assert!(matrix.len() < 2_000_000, "{} bytes", matrix.len());
}

#[test]
fn the_program_writes_the_page_and_tells_of_problems() {
    let dir = directory(&buffers(1, json!([{"kind": "pie"}, {"kind": "sweep"}])), buffers_end);
    let output = report_program(dir.path());
    assert!(output.status.success(), "{output:?}");
    let page = dir.path().join("report.html");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("Report: {}\n", page.display()));
    assert!(
        String::from_utf8(output.stderr).unwrap().starts_with("uts-lab: [[plot]] 1: unknown variant `pie`")
    );
    assert_eq!(fs::read_to_string(page).unwrap(), experiment::render(dir.path()).unwrap().0);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains(".part")), "{left:?}");
    fs::write(dir.path().join("plan.json"), "{").unwrap();
    let output = report_program(dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("plan.json is not what it should be"));
}

/// Exports and zooms every picture of a page, sorts a table, and counts what came of it.
const PROBE: &str = r#"
    (async () => {
      const seen = { pictures: 0, marks: 0, standalone: 0, pngs: 0, csvs: 0, zooms: 0, canvases: 0 };
      const inked = (context, w, h) => {
        const pixels = new Uint32Array(context.getImageData(0, 0, w, h).data.buffer);
        return pixels.some((pixel) => pixel !== pixels[0]);
      };
      for (const figure of document.querySelectorAll(".figure")) {
        const id = figure.id, svg = figure.querySelector("svg");
        seen.pictures += 1;
        seen.marks += svg.getBoundingClientRect().height > 100 && svg.querySelectorAll("path, circle, rect").length > 5;
        const text = report.svgOf(id), parsed = new DOMParser().parseFromString(text, "image/svg+xml");
        seen.standalone += !parsed.querySelector("parsererror") && !text.includes("var(");
        const image = new Image();
        image.src = await report.pngOf(id);
        await image.decode();
        const canvas = document.createElement("canvas");
        canvas.width = image.width / 3; canvas.height = image.height / 3;
        const context = canvas.getContext("2d");
        context.drawImage(image, 0, 0, canvas.width, canvas.height);
        seen.pngs += inked(context, canvas.width, canvas.height);
        seen.csvs += report.csvOf(id).trim().split("\n").length > 3;
        if (figure.querySelector("button[data-zoom]")) {
          seen.zooms += report.zoom(id);
          await new Promise((done) => setTimeout(done, 50));
          const canvases = [...figure.querySelectorAll("canvas")];
          seen.canvases += canvases.length > 0 && canvases.every((c) => inked(c.getContext("2d"), c.width, c.height));
          report.zoom(id);
        }
      }
      const header = document.querySelector("table.sortable th.number");
      const cells = () => [...header.closest("table").tBodies[0].rows].map((r) => parseFloat(r.cells[header.cellIndex].textContent));
      if (header) {
        header.click();
        const up = cells();
        header.click();
        seen.sorted = up.every((v, i) => i === 0 || !(up[i - 1] > v)) && cells().every((v, i, all) => i === 0 || !(all[i - 1] < v));
      }
      return seen;
    })()"#;

#[test]
fn a_browser_draws_zooms_and_exports_every_picture() {
    let Some(browser) = browser::installed_or_say() else { return };
    let plots = json!([
        {"kind": "sweep", "y": "goodput_share"}, {"kind": "bars", "x": "buffer", "y": "goodput", "at": {"window": "32kB"}},
        {"kind": "box", "at": {"buffer": "8p"}}, {"kind": "trace", "at": {"buffer": "8p"}, "transport": ["uts", "cubic"]},
        {"kind": "series", "y": "queue", "at": {"buffer": "63p"}},
        {"kind": "matrix", "rows": "window", "columns": "buffer"},
    ]);
    let dir = directory(&buffers(3, plots), buffers_end);
    let file = experiment::write(dir.path()).unwrap().page;
    let mut page = Page::open(&browser, &file);
    let seen = page.value(PROBE);
    assert_eq!(page.errors, Vec::<String>::new(), "errors in the page");
    let (pictures, traces) = (8, 3);
    let expected = json!({
        "pictures": pictures, "marks": pictures, "standalone": pictures, "pngs": pictures, "csvs": pictures,
        "zooms": traces, "canvases": traces, "sorted": true,
    });
    assert_eq!(seen, expected);
}

#[test]
fn an_error_in_a_page_is_heard_of() {
    let Some(browser) = browser::installed_or_say() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wrong.html");
    let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"img-src 'none'\">";
    fs::write(
        &file,
        format!("{policy}<script>throw new Error('thrown')</script><img src='data:image/gif;base64,R0'>"),
    )
    .unwrap();
    let mut page = Page::open(&browser, &file);
    assert_eq!(page.value("1 + 1"), 2);
    assert!(page.errors.iter().any(|e| e.contains("thrown")), "{:?}", page.errors);
    assert!(page.errors.iter().any(|e| e.contains("Content Security Policy")), "{:?}", page.errors);
}

#[test]
fn the_matrix_is_printed_on_one_sheet() {
    let Some(browser) = browser::installed_or_say() else { return };
    let dir = directory(&universal(3), universal_end);
    let page = page(dir.path());
    // What stands behind the sheet is on pages of the same size. Without it, there is one such
    // page.
    let (before, rest) = page.split_once("<section class=\"behind\">").unwrap();
    let (_, after) = rest.split_once("</section>").unwrap();
    let file = dir.path().join("sheet.html");
    fs::write(&file, format!("{before}{after}")).unwrap();
    let pdf = dir.path().join("sheet.pdf");
    chromium(
        &browser,
        dir.path(),
        &[&format!("--print-to-pdf={}", pdf.display()), "--no-pdf-header-footer"],
        &file,
    );
    let pdf = String::from_utf8_lossy(&fs::read(pdf).unwrap()).into_owned();
    let sizes: Vec<&str> = pdf.split("/MediaBox [0 0 ").skip(1).filter_map(|s| s.split(']').next()).collect();
    let is_wide = |size: &&&str| {
        let mut sides = size.split(' ').map(|n| n.parse::<f64>().unwrap());
        sides.next().unwrap() > sides.next().unwrap()
    };
    assert_eq!(sizes.iter().filter(is_wide).count(), 1, "{sizes:?}");
    assert!(sizes.len() > 3);
}

fn chromium(browser: &Path, dir: &Path, arguments: &[&str], page: &Path) -> Output {
    Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        .args(arguments)
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap()
}

fn report_program(dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uts-lab")).arg("report").arg(dir).output().unwrap()
}
