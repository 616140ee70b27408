//! An experiment while it runs: what it says, who ends it, changes it or does not watch it, and how
//! it goes on.

use super::*;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;

fn signal(running: &Running, signal: Signal) {
    kill_process(Pid::from_raw(running.0.id() as i32).unwrap(), signal).unwrap();
}

/// Processes that have a text in their command line, beside this one.
fn processes_of(text: &Path) -> Vec<String> {
    let text = text.to_str().unwrap();
    let lines = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        line.contains(text).then(|| line.replace('\0', " "))
    });
    lines.collect()
}

#[test]
fn what_was_killed_continues_and_nothing_is_lost_or_doubled() {
    let bench = Bench::new(VOICE);
    let mut running = bench.start();
    let under_way = || {
        let parts = fs::read_dir(bench.path("out/runs")).into_iter().flatten().flatten();
        parts.filter(|entry| entry.file_name().to_string_lossy().starts_with('.')).count()
    };
    wait_for("two runs and a third under way", || bench.runs().len() >= 2 && under_way() == 1);
    signal(&running, Signal::KILL);
    running.0.wait().unwrap();
    let kept = bench.runs();
    assert!((2..6).contains(&kept.len()), "{}", kept.len());
    // The ends that it had started end with it.
    wait_for("the ends to end", || processes_of(&bench.path("out")).is_empty());

    let (status, said) = bench.run(&[]);
    assert!(said.contains("6 ok") || said.contains("ok, "), "{said}");
    let runs = bench.runs();
    let planned: BTreeSet<String> = bench.json("out/plan.json")["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(runs.keys().cloned().collect::<BTreeSet<_>>(), planned, "{status:?} {said}");
    assert_eq!(under_way(), 0);
    for (id, run) in &kept {
        assert_eq!(run, &runs[id], "what had ended is not done again");
    }
    let rows = bench.measures();
    let named: BTreeSet<_> = rows.iter().map(|row| [&row["run"], &row["flow"], &row["measure"]]).collect();
    assert_eq!(named.len(), rows.len(), "no figure is there twice");
    let with_figures: BTreeSet<_> = rows.iter().map(|row| row["run"].clone()).collect();
    assert_eq!(with_figures, planned);
    for name in ["experiment.toml", "machine.json"] {
        assert!(bench.path("out").join(name).is_file(), "{name}");
    }
    assert_eq!(fs::read_to_string(bench.path("out/experiment.toml")).unwrap(), VOICE);
    let run = planned.iter().find(|id| id.starts_with("relay.uts.voice")).unwrap();
    let latencies = fs::read_to_string(bench.path("out/runs").join(run).join("samples/latency.csv")).unwrap();
    assert_eq!(latencies.lines().count(), 1 + 35, "{latencies}");
    assert!(latencies.starts_with("t_s,flow,latency_ms,deadline_ms\n"));

    let (_, again) = bench.run(&[]);
    assert_eq!(bench.runs(), runs, "{again}");
}

/// Without a terminal, a line for each tenth at least says how far it is and how long the rest
/// takes. What was done before counts, and `--quiet` says nothing.
#[test]
fn without_a_terminal_lines_say_how_far_it_is() {
    let text = "title = 'Small'\nrepetitions = 4\n[path.wan]\nforward = 'rate=20mbit delay=1ms'\n\
                [workload.file]\nkind = 'bulk'\nbytes = '10kB'\n[transport.uts]\nkind = 'uts'\n";
    let bench = Bench::new(text);
    let how_far = |arguments: &[&str]| {
        let output = bench.lab(&[&["run", "e.toml", "--jobs", "1"], arguments].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(!stdout.contains("so far"), "results are on standard output, and nothing else: {stdout}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        let lines = stderr.lines().filter(|line| line.starts_with("so far"));
        lines
            .map(|line| {
                let (place, left) = line.split_once(", about ").unwrap_or_else(|| panic!("{line}"));
                assert!(left.ends_with(" to go"), "{line}");
                place.to_owned()
            })
            .collect::<Vec<_>>()
    };
    let place = |done: u32| format!("so far   {done} of 4 runs");
    assert_eq!(how_far(&["--out", "out"]), [place(1), place(2), place(3)]);
    assert_eq!(how_far(&["--out", "quiet", "--quiet"]), [""; 0]);
    let first = ["--out", "part", "--only", "repetition=1"];
    assert_eq!(how_far(&first), [""; 0], "one run is done when it ends");
    assert_eq!(how_far(&["--out", "part"]), [place(2), place(3)]);
}

#[test]
fn ctrl_c_ends_it_in_order_and_says_how_to_go_on() {
    let bench = Bench::new(VOICE);
    let mut running = bench.start();
    wait_for("a run", || !bench.runs().is_empty());
    signal(&running, Signal::INT);
    let mut said = String::new();
    std::io::Read::read_to_string(running.0.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("interrupted; the same command continues"), "{said}");
    assert!(processes_of(&bench.path("out")).is_empty());
    let ended = bench.runs().len();
    assert!((1..6).contains(&ended));
    assert_eq!(bench.output(&["list", "out"]).1.matches("not run").count(), 6 - ended + 1);
    let figures = bench.measures().iter().map(|row| row["run"].clone()).collect::<BTreeSet<_>>();
    assert_eq!(figures.len(), ended, "figures of what had ended are there");
    bench.run(&[]);
    assert_eq!(bench.runs().len(), 6);
}

#[test]
fn a_path_is_changed_while_it_runs_and_the_run_says_so() {
    let bench = Bench::new(
        &VOICE
            .replace("700ms", "4s")
            .replace("repetitions = 3", "")
            .replace("[transport.udp]\nkind = \"udp\"\n", ""),
    );
    assert!(bench.output(&["set"]).1.contains("no testbed runs: start one by `uts lab run`"));
    let mut running = bench.start();
    wait_for("the testbed", || bench.output(&["set"]).1.contains("`Voice`: wan"));
    let (status, said) = bench.output(&["set", "--path", "wna", "down"]);
    assert_eq!(status, Some(1));
    assert!(said.contains("there is no path `wna`; did you mean `wan`?"), "{said}");
    let (status, said) = bench.output(&["set", "loss=2"]);
    assert!(status == Some(1) && said.contains("loss=2: probability must be between 0 and 1"), "{said}");
    let (status, said) = bench.output(&["set", "--direction", "fwd", "rate=1mbit", "delay=30ms"]);
    assert!(status == Some(0) && said.contains("wan fwd: rate=1mbit delay=30ms"), "{said}");
    assert_eq!(running.0.wait().unwrap().code(), Some(1), "an invalid run is not what was asked for");
    let runs = bench.runs();
    let run = runs.values().next().unwrap();
    assert_eq!((&run["status"], &run["attempts"]), (&"invalid".into(), &Value::Array(Vec::new())));
    assert!(run["why"].as_str().unwrap().contains("changed by hand"), "{run}");
    assert_eq!(run["interventions"][0]["change"], "wan fwd rate=1mbit delay=30ms");
    let id = runs.keys().next().unwrap();
    let changes = fs::read_to_string(bench.path("out/runs").join(id).join("samples/changes.csv")).unwrap();
    assert!(changes.contains(",wan forward,rate=1mbit delay=30ms"), "{changes}");
    assert!(bench.measures().iter().all(|row| row["valid"] == "false"));
}

/// The status that a shell shows of a program that SIGPIPE has ended.
const READER_GONE: i32 = 141;

/// `uts lab run … 2>&1 | head`
#[test]
fn an_experiment_that_nobody_watches_to_its_end_is_run_whole() {
    let bench = Bench::new(&VOICE.replace("relay", "sim"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    for arguments in [&["run", "e.toml", "--out", "out"][..], &["report", "out"]] {
        let mut lab = bench.lab(arguments);
        let lab = lab.stdout(writer.try_clone().unwrap()).stderr(writer.try_clone().unwrap());
        let status = lab.status().unwrap();
        assert_eq!(status.code(), Some(READER_GONE), "{arguments:?}: {status}");
    }
    assert_eq!(bench.runs().len(), 6);
    assert!(bench.runs().values().all(|run| run["status"] == "ok"));
    assert!(bench.path("out/report.html").is_file());
}

/// `uts lab list | head`
#[test]
fn a_list_that_nobody_reads_to_its_end_ends_quietly() {
    let bench = Bench::new(&VOICE.replace("relay", "sim"));
    for arguments in [&["list", "e.toml"][..], &["list", "."], &["run", "e.toml", "--dry-run"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let Output { status, stderr, .. } = bench.lab(arguments).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&stderr);
        assert!(status.code() == Some(READER_GONE) && said.is_empty(), "{arguments:?}: {status}, {said}");
    }
}
