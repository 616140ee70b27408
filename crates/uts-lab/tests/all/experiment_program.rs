//! `uts-lab run` and its neighbours as programs: interruption and continuation, skipped runs,
//! worlds that agree.

use crate::running::Running;
use crate::skip;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far longer than anything here takes on a machine that is busy.
const LONG: Duration = Duration::from_secs(180);

/// A directory with an experiment in it, and a place of its own for sockets.
struct Bench(TempDir);

impl Bench {
    fn new(experiment: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("e.toml"), experiment).unwrap();
        fs::create_dir(dir.path().join("sockets")).unwrap();
        Bench(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn lab(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command.env("XDG_RUNTIME_DIR", self.path("sockets")).env_remove("UTS_RIVALS");
        command
    }

    fn output(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let Output { status, stdout, stderr } = self.lab(arguments).output().unwrap();
        (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
    }

    /// Runs it all.
    fn run(&self, more: &[&str]) -> (Option<i32>, String) {
        self.output(&[&["run", "e.toml", "--out", "out"], more].concat())
    }

    fn start(&self) -> Running {
        let child = self.lab(&["run", "e.toml", "--out", "out"]).stderr(Stdio::piped()).spawn().unwrap();
        Running(child)
    }

    /// `run.json` of all runs, by their names.
    fn runs(&self) -> BTreeMap<String, Value> {
        let Ok(entries) = fs::read_dir(self.path("out/runs")) else { return BTreeMap::new() };
        let whole = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let whole = whole.filter(|name| !name.starts_with('.'));
        whole.map(|name| (name.clone(), self.json(&format!("out/runs/{name}/run.json")))).collect()
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path(name)).unwrap()).unwrap()
    }

    /// Rows of measures.csv by the names of their columns.
    fn measures(&self) -> Vec<BTreeMap<String, String>> {
        let mut reader = csv::Reader::from_path(self.path("out/measures.csv")).unwrap();
        reader.deserialize().map(Result::unwrap).collect()
    }

    /// The mean of a measure over the repetitions that are valid, by world.
    fn mean(&self, world: &str, workload: &str, measure: &str) -> f64 {
        let rows = self.measures().into_iter().filter(|row| {
            row["world"] == world
                && row["workload"] == workload
                && row["measure"] == measure
                && row["valid"] == "true"
        });
        let values: Vec<f64> = rows.map(|row| row["value"].parse().unwrap()).collect();
        assert!(!values.is_empty(), "no {measure} of {workload} in {world}");
        values.iter().sum::<f64>() / values.len() as f64
    }
}

fn signal(running: &Running, signal: Signal) {
    kill_process(Pid::from_raw(running.0.id() as i32).unwrap(), signal).unwrap();
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
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

const VOICE: &str = r#"title = "Voice"
world = "relay"
repetitions = 3
timeout = "30s"
sample_every = "20ms"

[path.wan]
forward = "rate=2mbit delay=5ms buffer=20p"

[workload.voice]
kind = "messages"
every = "20ms"
bytes = 160
duration = "700ms"
deadline = "100ms"

[transport.uts]
kind = "uts"

[transport.udp]
kind = "udp"
"#;

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

/// Background traffic enters and leaves each topology, whether hosts have links of their own or
/// not, and takes its part of the path. Worlds in real time skip it and say so.
#[test]
fn background_traffic_crosses_every_topology() {
    const PATHS: &str = "[path.wan]\nforward = 'rate=10mbit delay=1ms buffer=50p'\n\
                         [path.lan]\nforward = 'rate=50mbit delay=1ms'\n\
                         [workload.file]\nkind = 'bulk'\nduration = '3s'\n[transport.uts]\nkind = 'uts'\n";
    let source = |more: &str| format!("[source.x]\nkind = 'constant'\nrate = '4mbit'\n{more}\n");
    for (topology, places) in [
        ("kind = 'point-to-point'", ""),
        ("kind = 'dumbbell'\npairs = 2", ""),
        ("kind = 'chain'\npaths = ['lan', 'wan', 'lan']", "from = 'router1'\nto = 'router2'"),
        ("kind = 'chain'\npaths = ['lan', 'wan']", ""),
    ] {
        for access in ["", "[hosts]\naccess = '30mbit'\n"] {
            let text = format!("title = 'X'\n{PATHS}[topology]\n{topology}\n{access}{}", source(places));
            let bench = Bench::new(&text);
            let (status, said) = bench.run(&["--only", "path=wan", "--quiet"]);
            assert_eq!((status, said.as_str()), (Some(0), ""), "{text}");
            let of = |measure: &str| bench.mean("sim", "file", measure) / 1e6;
            let (sent, received, goodput) = (of("background_sent"), of("background_received"), of("goodput"));
            assert!((3.8..4.1).contains(&sent) && received <= sent, "{text}: {sent} and {received} Mbit/s");
            assert!(received > 2.0 && goodput + received < 10.0, "{text}: {goodput} and {received} Mbit/s");
            assert!(goodput > 3.0, "{text}: {goodput} Mbit/s");
        }
    }
    let bench = Bench::new(&format!("title = 'X'\nworld = 'relay'\n{PATHS}{}", source("")));
    let (status, said) = bench.run(&[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("the relay has no background traffic, which is for the world sim (source.x)"),
        "{said}"
    );
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
fn what_cannot_be_carried_is_skipped_by_name() {
    let bench = Bench::new(
        r#"title = "Everything"
world = ["sim", "relay"]
alone = true
timeout = "10s"
[path.wan]
forward = "rate=2mbit delay=5ms buffer=20p"
[workload.file]
kind = "bulk"
bytes = "20kB"
[transport.uts]
kind = "uts"
[transport.udp]
kind = "udp"
[transport.cubic]
kind = "tcp"
congestion = "cubic"
[transport.quinn]
kind = "quinn"
[[mixture.two]]
transport = "uts"
workload = "file"
[[mixture.two]]
transport = "uts"
workload = "file"
"#,
    );
    let mut command = bench.lab(&["run", "e.toml", "--out", "out"]);
    let output = command.env("UTS_RIVALS", bench.path("nowhere")).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    for wanted in [
        "skipped 1: cubic: virtual time has uts and udp, not tcp",
        "skipped 1: quinn: virtual time has uts and udp, not quinn",
        "skipped 2: udp: bulk needs reliable streams, and the transport has none",
        "skipped 1: cubic: the relay carries only transports over UDP",
        "skipped 1: the relay carries one flow, and this has 2",
        "nowhere, which is no program",
    ] {
        assert!(said.contains(wanted), "wanted: {wanted}\nsaid: {said}");
    }
    // The relay of a machine that is busy is late, which makes its run invalid.
    let is_late = |run: &Value| run["why"].as_str().is_some_and(|why| why.contains(" late"));
    let late = bench.runs().values().filter(|run| run["status"] == "invalid" && is_late(run)).count();
    let invalid = if late > 0 { format!("{late} invalid, ") } else { String::new() };
    assert!(said.contains(&format!("out: {} ok, {invalid}7 skipped", 3 - late)), "{said}");
    assert_eq!(output.status.code(), Some(i32::from(late > 0)), "what is skipped is no failure");
    let skipped = bench.runs().into_values().find(|run| run["case"]["flows"][0]["name"] == "quinn").unwrap();
    assert_eq!(skipped["status"], "skipped");
    assert!(bench.measures().iter().any(|row| row["measure"] == "fairness" && row["flow"].is_empty()));
}

const STEADY: &str = r#"title = "Agreement"
world = ["sim", "router"]
repetitions = 2
timeout = "40s"
[path.wan]
forward = "rate=2mbit delay=20ms buffer=30p"
[workload.file]
kind = "bulk"
bytes = "400kB"
[workload.requests]
kind = "requests"
count = 30
request_bytes = 200
answer_bytes = 2000
[workload.voice]
kind = "messages"
every = "20ms"
bytes = 160
duration = "2s"
deadline = "150ms"
[transport.uts]
kind = "uts"
[record]
sequence = true
pcap = true
"#;

/// Tells if hosts can be made here; says so if not.
fn has_router() -> bool {
    let output = Command::new(env!("CARGO_BIN_EXE_uts-lab")).args(["router", "doctor"]).output().unwrap();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        skip::say(said.lines().find(|line| line.starts_with("MISSING")).unwrap_or("no RouterPC here"));
    }
    output.status.success()
}

#[test]
fn a_program_that_cannot_supervise_a_testbed_does_not_start_itself_again() {
    // Were it not for the guard, this very test would be what is started, and start it again.
    let refused = uts_router::Testbed::start(uts_router::TestbedConfig::default());
    let said = refused.err().map(|e| e.to_string());
    assert!(said.is_some(), "the program of the tests supervises a testbed");
}

#[test]
fn the_same_file_gives_the_same_figures_in_virtual_time_and_behind_router_pc() {
    if !has_router() {
        return;
    }
    let bench = Bench::new(STEADY);
    let (mut status, mut said) = bench.run(&[]);
    for _ in 0..5 {
        if status == Some(0) {
            break;
        }
        // A machine that others keep busy is late now and then, which is found out.
        assert!(bench.runs().values().all(|run| run["status"] != "failed"), "{said}");
        (status, said) = bench.run(&["--retry"]);
    }
    if status != Some(0) {
        skip::say(&format!("too busy a machine: {}", said.lines().last().unwrap_or_default()));
        return;
    }
    // The sim waits for no processor. Bounds are for the time that processes take, and what follows
    // from it.
    let near = |workload: &str, measure: &str, share: f64, beyond: f64| {
        let (sim, router) = (bench.mean("sim", workload, measure), bench.mean("router", workload, measure));
        let bound = sim.abs() * share + beyond;
        assert!((sim - router).abs() <= bound, "{workload} {measure}: {sim} in sim, {router} in router");
    };
    near("file", "goodput_share", 0.05, 0.0);
    near("requests", "request_p50", 0.05, 3.0);
    near("voice", "latency_p50", 0.05, 3.0);
    near("voice", "in_time", 0.0, 0.02);
    near("voice", "due", 0.0, 0.0);
    for (id, run) in bench.runs() {
        let samples = bench.path("out/runs").join(&id).join("samples");
        let names = fs::read_dir(&samples).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let names: BTreeSet<String> = names.collect();
        let wanted: &[&str] = match run["case"]["flows"][0]["workload_name"].as_str().unwrap() {
            "file" => &["goodput.csv", "queue.csv", "window.csv", "client.pcap", "server.pcap"],
            _ => &["latency.csv", "queue.csv", "window.csv", "client.pcap", "server.pcap"],
        };
        assert!(wanted.iter().all(|name| names.contains(*name)), "{id}: {names:?}");
        // UTS tells in both worlds what its packets carry.
        assert!(names.contains("sequence.csv"), "{id}: {names:?}");
        let leftover = fs::read_dir(bench.path("out/runs").join(&id)).unwrap().count();
        assert_eq!(leftover, 2, "{id}: run.json and samples, and nothing else");
        assert_eq!(run["fidelity"].is_null(), id.starts_with("sim."));
    }
}

#[test]
fn virtual_time_is_the_same_on_one_core_and_on_all() {
    let text = STEADY.replace("[\"sim\", \"router\"]", "\"sim\"").replace("pcap = true", "");
    let figures = |jobs: &[&str]| {
        let bench = Bench::new(&text);
        let (status, said) = bench.run(jobs);
        assert_eq!(status, Some(0), "{said}");
        let id = bench.runs().into_keys().next().unwrap();
        let queue = fs::read(bench.path("out/runs").join(id).join("samples/queue.csv")).unwrap();
        (fs::read_to_string(bench.path("out/measures.csv")).unwrap(), queue)
    };
    let one = figures(&["--jobs", "1"]);
    assert_eq!(one, figures(&[]));
    assert!(one.0.lines().count() > 40 && one.1.len() > 1000, "{}", one.0);
}

#[test]
fn hosts_in_virtual_time_keep_to_their_mtu() {
    let largest = |hosts: &str| {
        let experiment = format!(
            "title = \"MTU\"\nworld = \"sim\"\n[path.wan]\nforward = \"rate=50mbit delay=5ms\"\n{hosts}\n\
             [workload.file]\nkind = \"bulk\"\nbytes = \"2MB\"\n[transport.uts]\nkind = \"uts\"\n\
             [transport.udp]\nkind = \"udp\"\nmessage = 1300\n[workload.voice]\nkind = \"messages\"\nevery = \"20ms\"\n\
             bytes = 160\nduration = \"1s\"\ndeadline = \"1s\"\n[record]\npcap = true\n"
        );
        let bench = Bench::new(&experiment);
        let (status, said) = bench.run(&["--only", "workload=file"]);
        assert_eq!(status, Some(0), "{said}");
        let runs = bench.runs();
        let (name, _) = runs.iter().find(|(name, _)| name.starts_with("sim.uts.file")).unwrap();
        let sizes = ["client", "server"].map(|host| {
            let file = fs::File::open(bench.path(&format!("out/runs/{name}/samples/{host}.pcap"))).unwrap();
            let mut reader = pcap_file::pcap::PcapReader::new(file).unwrap();
            let mut most = 0;
            while let Some(packet) = reader.next_packet() {
                let packet = packet.unwrap();
                // Of the other host's packets: what this one sends, it sends in vain.
                if packet.data[12..16] == if host == "server" { [10, 0, 0, 1] } else { [10, 0, 0, 2] } {
                    most = most.max(packet.orig_len);
                }
            }
            most
        });
        let (_, said) = bench.run(&["--only", "transport=udp"]);
        let status = bench.runs().into_iter().find(|(name, _)| name.starts_with("sim.udp.voice"));
        (sizes, status.unwrap().1["status"].as_str().unwrap().to_owned(), said)
    };
    let (sizes, status, said) = largest("");
    assert!((1401..=1500).contains(&sizes[1]), "{sizes:?}");
    assert_eq!(status, "ok", "{said}");
    // The sender tries larger ones, which do not arrive.
    let (sizes, status, said) = largest("[hosts]\nmtu = 1310");
    assert!((1201..=1310).contains(&sizes[1]) && sizes[0] <= 1310, "{sizes:?}");
    // What is longer goes in fragments.
    assert_eq!(status, "ok", "{said}");
}

/// Records of a log in qlog's streamed form: JSON text sequences.
fn qlog(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.split('\u{1e}').skip(1).map(|record| serde_json::from_str(record).unwrap()).collect()
}

#[test]
fn what_uts_does_is_recorded_in_every_world() {
    let bench = Bench::new(
        r#"title = "Records"
world = ["sim", "relay", "router"]
timeout = "30s"
[path.wan]
forward = "rate=8mbit delay=5ms buffer=20p"
[workload.file]
kind = "bulk"
bytes = "600kB"
[transport.uts]
kind = "uts"
[record]
sequence = true
qlog = true
"#,
    );
    let (_, said) = bench.run(&[]);
    let runs = bench.runs();
    assert!(runs.len() >= 2, "{said}");
    for (name, run) in runs.iter().filter(|(_, run)| run["status"] != "skipped") {
        assert!(run["status"] == "ok" || run["status"] == "invalid", "{name}: {run}");
        let samples = bench.path(&format!("out/runs/{name}/samples"));
        let mut reader = csv::Reader::from_path(samples.join("sequence.csv")).unwrap();
        let rows: Vec<(f64, String, String, u64)> = reader.deserialize().map(Result::unwrap).collect();
        assert!(rows.iter().all(|(_, flow, ..)| flow == "uts"), "{name}");
        let reached = |kind: &str| rows.iter().filter(|row| row.2 == kind).map(|row| row.3).max();
        // The last packet begins less than a packet's length before the end.
        for kind in ["sent", "acked"] {
            assert!(
                reached(kind).is_some_and(|at| (590_000..600_000).contains(&at)),
                "{name}: {:?}",
                reached(kind)
            );
        }
        let sent = |role: &str| {
            let log = qlog(&samples.join(format!("uts.{role}.sqlog")));
            assert_eq!(log[0]["trace"]["vantage_point"]["type"], role, "{name}");
            let of = |event: &str| log.iter().filter(|record| record["name"] == event).count();
            assert!(of("quic:recovery_metrics_updated") > 0, "{name} {role}");
            of("quic:packet_sent")
        };
        assert!(sent("client") >= 400, "{name}: {} packets", sent("client"));
        assert!(sent("server") > 0, "{name}");
        let mut reader = csv::Reader::from_path(samples.join("queue.csv")).unwrap();
        let rows: Vec<(f64, String, u64, u64, Option<f64>)> =
            reader.deserialize().map(Result::unwrap).collect();
        let of_data = rows.iter().filter(|row| row.1 == "wan forward" && row.4.is_some()).count();
        assert!(of_data >= 400, "{name}: {of_data} packets have passed the queue");
        let mut measures = run["measures"].as_array().unwrap().iter();
        assert!(measures.any(|measure| measure["name"] == "queue_sojourn_p99"), "{name}");
    }
}

#[test]
fn the_kernel_tells_of_its_tcp_or_it_is_said_why_not() {
    if !has_router() {
        return;
    }
    let bench = Bench::new(
        r#"title = "Probe"
world = "router"
timeout = "30s"
[path.wan]
forward = "rate=8mbit delay=5ms buffer=20p"
[workload.file]
kind = "bulk"
bytes = "600kB"
[transport.cubic]
kind = "tcp"
congestion = "cubic"
[record]
tcp_probe = true
"#,
    );
    let (_, said) = bench.run(&[]);
    let (name, run) = bench.runs().into_iter().next().unwrap();
    assert!(run["status"] == "ok" || run["status"] == "invalid", "{said}");
    let doctor = bench.output(&["router", "doctor", "--json"]).1;
    let check = doctor.lines().find(|line| line.contains("tcp_probe")).unwrap();
    let check: Value = serde_json::from_str(check).unwrap();
    if check["ok"] == false {
        assert!(!check["remedy"].as_str().unwrap().is_empty(), "{check}");
        let notes = run["notes"].to_string();
        assert!(notes.contains("tcp_probe is not recorded: "), "{notes}");
        return skip::say(check["why"].as_str().unwrap());
    }
    let file = bench.path(&format!("out/runs/{name}/samples/tcp_probe.csv"));
    let mut reader = csv::Reader::from_path(file).unwrap();
    let rows: Vec<BTreeMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
    let of =
        |end: &str| rows.iter().filter(|row| row["end"] == end && row["flow"] == "cubic").collect::<Vec<_>>();
    // Of the sender, each acknowledgement that arrived, with a growing window. Of the receiver, the
    // data.
    let (client, server) = (of("client"), of("server"));
    let windows: Vec<u64> = client.iter().map(|row| row["window_segments"].parse().unwrap()).collect();
    assert!(windows.iter().max() > windows.first(), "{windows:?}");
    assert!(client.iter().any(|row| row["rtt_ms"].parse::<f64>().unwrap() >= 10.0));
    let arrived: u64 = server.iter().map(|row| row["data_bytes"].parse::<u64>().unwrap()).sum();
    assert!(arrived >= 550_000, "{arrived} bytes");
    wait_for("the trace instances of processes that have ended to be removed", || {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let places =
            mounts.lines().filter(|line| line.contains(" tracefs ")).map(|l| l.split(' ').nth(1).unwrap());
        let all = places.flat_map(|place| fs::read_dir(Path::new(place).join("instances")).unwrap());
        let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let owners =
            names.filter_map(|name| Some(name.strip_prefix("uts-lab-")?.split('-').next()?.to_owned()));
        owners.into_iter().all(|id| Path::new("/proc").join(id).exists())
    });
}

#[test]
fn an_ordinary_user_runs_experiments() {
    const NOBODY: u32 = 65_534;
    let bench = Bench::new(
        r#"title = "User"
world = ["sim", "relay", "router"]
timeout = "30s"
[path.wan]
forward = "rate=8mbit delay=5ms buffer=20p"
[workload.file]
kind = "bulk"
bytes = "200kB"
[transport.uts]
kind = "uts"
"#,
    );
    let is_root = rustix::process::geteuid().is_root();
    let as_user = |arguments: &[&str]| {
        let mut command = bench.lab(arguments);
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.env("HOME", "/nonexistent").output()
    };
    if is_root {
        for name in ["", "e.toml", "sockets"] {
            std::os::unix::fs::chown(bench.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    let ran = match as_user(&["run", "e.toml", "--out", "out"]) {
        Ok(output) => output,
        Err(e) => return skip::say(&format!("others may not run {}: {e}", env!("CARGO_BIN_EXE_uts-lab"))),
    };
    let said = String::from_utf8_lossy(&ran.stderr).into_owned() + &String::from_utf8_lossy(&ran.stdout);
    let doctor = as_user(&["router", "doctor"]).unwrap();
    let runs = bench.runs();
    assert_eq!(runs.len(), 3, "{said}");
    for (name, run) in runs {
        let may = doctor.status.success() || !name.starts_with("router.");
        let status = run["status"].as_str().unwrap();
        // A machine that is busy is late, the more so without a real-time priority.
        let is_fine = status == "ok" || status == "invalid" && run["why"].as_str().unwrap().contains(" late");
        assert!(if may { is_fine } else { status == "skipped" }, "{name}: {run}");
        assert!(may || run["why"].as_str().unwrap().contains("what would permit it"), "{run}");
    }
    let report = as_user(&["report", "out"]).unwrap();
    assert!(report.status.success() && bench.path("out/report.html").is_file(), "{report:?}");
}

#[test]
fn mixtures_and_chains_run_behind_router_pc() {
    if !has_router() {
        return;
    }
    let bench = Bench::new(
        r#"title = "Mixtures"
world = "router"
timeout = "30s"
[path.near]
forward = "rate=4mbit delay=5ms buffer=30p"
[path.far]
forward = "rate=2mbit delay=5ms buffer=30p"
[topology]
kind = "chain"
paths = ["near", "far"]
[workload.file]
kind = "bulk"
bytes = "200kB"
[transport.cubic]
kind = "tcp"
congestion = "cubic"
[transport.uts]
kind = "uts"
[record]
sequence = true
[[mixture.both]]
transport = "cubic"
workload = "file"
[[mixture.both]]
transport = "uts"
workload = "file"
start = "100ms"
"#,
    );
    let (_, said) = bench.run(&[]);
    let runs = bench.runs();
    let run = runs.values().next().unwrap();
    assert!(["ok", "invalid"].contains(&run["status"].as_str().unwrap()), "{said}");
    assert_eq!(run["links"].as_array().unwrap().len(), 4, "two directions of two paths");
    assert_eq!(run["cpu"].as_array().unwrap().len(), 4, "two ends of two flows");
    let rows = bench.measures();
    let one = |flow: &str, measure: &str| {
        let found: Vec<_> =
            rows.iter().filter(|row| row["flow"] == flow && row["measure"] == measure).collect();
        assert_eq!(found.len(), 1, "{flow} {measure}");
        (found[0]["transport"].clone(), found[0]["value"].parse::<f64>().unwrap())
    };
    assert_eq!(one("", "fairness").0, "cubic+uts");
    assert_eq!(one("cubic", "delivered"), ("cubic".into(), 200_000.0));
    assert_eq!(one("uts", "delivered"), ("uts".into(), 200_000.0));
    let id = runs.keys().next().unwrap();
    let sequence = fs::read_to_string(bench.path("out/runs").join(id).join("samples/sequence.csv")).unwrap();
    let acked = sequence.lines().filter_map(|line| line.split_once(",cubic,acked,"));
    let highest: u64 = acked.map(|(_, rest)| rest.split(',').next().unwrap().parse().unwrap()).max().unwrap();
    assert!(highest > 200_000, "{highest}");
    assert!(sequence.contains(",cubic,sent,1,"), "TCP counts from its SYN");
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

#[test]
fn the_doctor_says_what_can_be_done_and_what_would_allow_the_rest() {
    let bench = Bench::new(VOICE);
    let output = bench.lab(&["doctor", "--json"]).env("UTS_RIVALS", "/nowhere").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let findings: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for area in ["sim", "relay", "router", "machine", "transports", "programs"] {
        assert!(findings.iter().any(|finding| finding["area"] == area), "{area}: {text}");
    }
    let lacking = findings.iter().any(|f| f["needed"] == true && f["can"] == false);
    assert_eq!(output.status.code(), Some(i32::from(lacking)), "{text}");
    let rivals = findings.iter().find(|f| f["what"].as_str().unwrap().starts_with("rivals")).unwrap();
    assert!(rivals["found"].as_str().unwrap().contains("UTS_RIVALS names /nowhere"), "{rivals}");
    let (_, plain) = bench.output(&["doctor"]);
    assert!(plain.contains("yes sim        virtual time: "), "{plain}");
    for finding in findings.iter().filter(|f| f["can"] == true) {
        assert!(finding["command"].is_null(), "what can be done needs no command: {finding}");
    }
}

#[test]
fn lists_show_experiments_and_results() {
    let bench = Bench::new(&VOICE.replace("relay", "sim"));
    fs::write(bench.path("broken.toml"), "title = 3\n").unwrap();
    let (status, said) = bench.run(&["--only", "transport=udp"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("3 ok, 3 not run"), "{said}");
    let (_, folder) = bench.output(&["list", "."]);
    assert!(folder.contains("6 runs in sim     Voice"), "{folder}");
    assert!(
        folder.starts_with("./broken.toml:1:1: transport: is missing; expected at least one table"),
        "{folder}"
    );
    assert!(folder.contains("3 ok, 3 not run of 6: Voice"), "{folder}");
    let (_, file) = bench.output(&["list", "e.toml"]);
    assert_eq!(file.matches("sim.udp.voice.wan.r").count(), 3, "{file}");
    let (status, said) = bench.run(&["--only", "transport=utp"]);
    assert!(
        status == Some(1) && said.contains("--only transport=utp: no run of the experiment is so"),
        "{said}"
    );
    let (status, said) = bench.output(&["run", "nowhere.toml"]);
    assert!(status == Some(1) && said.contains("cannot read nowhere.toml"), "{said}");
    let (status, said) = bench.output(&["run", "broken.toml"]);
    assert!(status == Some(1) && said.contains("uts-lab: broken.toml:1:1: "), "{said}");
    assert!(!bench.path("lab-out").exists(), "a broken file leaves nothing");
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
