//! Reports from a sample record: what the page holds, and that a browser draws it.

use crate::{sample, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use uts_record::demo::{self, Outcome};

const CHARTS: [&str; 5] = ["throughput", "sequence", "detail", "queue", "rtt"];

#[test]
fn the_page_holds_all_charts_and_tables() {
    let record = sample::record(6_000_000, 3);
    let page = uts_report::render(&record).unwrap();
    for id in CHARTS {
        assert_eq!(page.matches(&format!("<div class=\"chart\" id=\"{id}\">")).count(), 1, "{id}");
        assert!(page.contains(&format!("\"id\":\"{id}\"")), "no data for {id}");
    }
    for wanted in [
        "First profile fixed",
        "6.0 MB across a path that changes",
        "fec: none -&gt; reed-solomon(data=20,parity=5)",
        "goodput 35.1 Mbit/s (expected 36.2)",
        "<td class=\"number\">41.7 ms</td>",
        "uts cp --json --pin SHA256:sample",
        "seed 3",
        "Sample CPU, 2 cores, 8.0 GiB, Linux 6.1.0",
        "50 Mbit/s, 5 % loss in bursts of 4",
    ] {
        assert!(page.contains(wanted), "`{wanted}` is missing");
    }
    assert!(!page.contains("{{"), "a part of the template was not filled in");
}

#[test]
fn the_picture_names_runs_changes_and_exchanges() {
    let record = sample::record(6_000_000, 3);
    let picture = uts_report::picture(&record).unwrap();
    for wanted in [">UTS<", ">First profile fixed<", "6 MB over a path", ">5 % loss<", "Arrived, MB"] {
        assert!(picture.contains(wanted), "`{wanted}` is missing in {picture}");
    }
    assert!(!picture.contains("href") && !picture.contains("NaN"));
    let nothing = demo::Record { runs: Vec::new(), ..record };
    assert!(uts_report::picture(&nothing).is_none());
}

#[test]
fn the_page_loads_nothing() {
    let page = uts_report::render(&sample::record(6_000_000, 3)).unwrap();
    for load in
        ["<script src", "<link", "<img", "<iframe", "@import", "url(", "fetch(", "XMLHttpRequest", "import("]
    {
        assert!(!page.contains(load), "the page has `{load}`");
    }
    let unlicensed = page.replace("/*! https://github.com/leeoniya/uPlot (v1.6.32) */", "");
    assert_ne!(unlicensed, page, "uPlot's licence line is kept");
    for scheme in ["http://", "https://", "src=\"", "href=\""] {
        assert!(!unlicensed.contains(scheme), "the page has `{scheme}`");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn names_cannot_break_out_of_the_page() {
    let evil = "</script><script>alert('x')</script><img src=x onerror=alert(1)>{{data}}";
    let mut record = sample::record(600_000, 3);
    record.setting.file.name = evil.into();
    record.setting.machine.processor = evil.into();
    for run in &mut record.runs {
        run.commands = vec![evil.into()];
        for change in &mut run.changes {
            change.change = evil.into();
        }
        for exchange in &mut run.exchanges {
            exchange.seen = evil.into();
            exchange.outcome = Outcome::Refused(evil.into());
        }
    }
    let page = uts_report::render(&record).unwrap();
    assert!(!page.contains("<script>alert") && !page.contains("<img"));
    assert_eq!(page.matches("</script>").count(), 3);
    assert!(page.contains("&lt;/script&gt;&lt;script&gt;alert(&#39;x&#39;)"));
}

#[test]
fn a_large_record_makes_a_page_below_3_mb() {
    let page = uts_report::render(&sample::record(150_000_000, 5)).unwrap();
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
    assert!(page.contains("Sent: one packet in "));
}

#[test]
fn a_record_survives_its_file_and_makes_the_same_page() {
    let dir = tempfile::tempdir().unwrap();
    let record = sample::record(3_000_000, 4);
    let page = uts_report::write(dir.path(), &record).unwrap();
    assert_eq!(demo::load(dir.path()).unwrap(), record);
    let first = std::fs::read(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    let output = report_program(dir.path());
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("Report: "));
    assert_eq!(std::fs::read(&page).unwrap(), first);
}

#[test]
fn a_record_that_is_none_is_refused_with_status_1() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |json: Option<&str>| {
        if let Some(json) = json {
            std::fs::write(dir.path().join("run.json"), json).unwrap();
        }
        let output = report_program(dir.path());
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(None).contains("has neither plan.json, which an experiment leaves, nor run.json"));
    assert!(refused(Some("{")).contains("run.json is not JSON"));
    assert!(refused(Some("{\"format\":99}")).contains("has format 99, and this program reads format 1"));
    assert!(refused(Some("[]")).contains("is not the record of a demonstration"));
    assert!(refused(Some("{\"format\":1,\"runs\":7}")).contains("is not the record of a demonstration"));
}

#[test]
fn an_empty_record_makes_a_page() {
    let mut record = sample::record(600_000, 3);
    record.runs.clear();
    let page = uts_report::render(&record).unwrap();
    assert!(page.contains("Nothing was carried.") && page.contains("No mechanism was exchanged."));
}

/// Runs in the page: counts canvases on which something is drawn, and series with values.
const PROBE: &str = "<script>
    const drawn = [...document.querySelectorAll('canvas')].filter((c) => {
      const pixels = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
      return pixels.some((v, i) => i % 4 === 3 && v > 0);
    });
    document.documentElement.dataset.drawn = String(drawn.length);
    document.documentElement.dataset.errors = window.probeErrors.join(' | ');
    </script></body>";

#[test]
fn a_browser_draws_every_chart_without_an_error() {
    let Some(browser) = browser() else {
        skip::say("no chromium is here (Debian: apt install chromium)");
        return;
    };
    let page = uts_report::render(&sample::record(6_000_000, 3)).unwrap();
    let catcher = "<head><script>window.probeErrors = [];
        window.addEventListener('error', (e) => window.probeErrors.push(e.message));</script>";
    let dom = dump_dom(&browser, &page.replacen("<head>", catcher, 1).replacen("</body>", PROBE, 1));
    let attribute = |name: &str| {
        let (_, rest) = dom.split_once(&format!("data-{name}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    assert_eq!(attribute("errors").as_deref(), Some(""), "errors in the page");
    assert_eq!(attribute("charts").as_deref(), Some("5"));
    assert_eq!(attribute("drawn").as_deref(), Some("5"), "canvases that something is drawn on");
    assert_eq!(dom.matches("class=\"u-legend").count(), 5);
}

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name))).find(|p| p.is_file())
}

/// The document as it is once its scripts have run.
fn dump_dom(browser: &Path, page: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page.html");
    std::fs::write(&file, page).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        .args(["--window-size=1400,2400", "--dump-dom"])
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn report_program(dir: &Path) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_uts-lab")).arg("report").arg(dir).output().unwrap()
}
