//! The worlds of an experiment: that they agree, and what each of them can do.

use super::*;
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;

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
