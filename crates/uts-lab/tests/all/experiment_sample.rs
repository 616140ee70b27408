//! Directories as experiments leave them, with made-up figures: for tests of reports only. The same
//! arguments make the same files.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Pseudo-random numbers (splitmix64, Steele et al. 2014).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal, by Box and Muller.
    pub fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        mean + deviation * radius * (TAU * self.unit()).cos()
    }
}

/// A run to be written.
pub struct Case {
    pub transport: String,
    pub workload: String,
    pub path: String,
    pub mixture: String,
    pub sweep: BTreeMap<String, String>,
    pub repetition: u64,
}

/// End of a run.
pub struct End {
    pub status: &'static str,
    pub why: Option<String>,
    /// Flow, name, value, unit.
    pub measures: Vec<(String, &'static str, f64, &'static str)>,
    /// File and content.
    pub samples: Vec<(&'static str, String)>,
}

impl End {
    pub fn ok(measures: Vec<(String, &'static str, f64, &'static str)>) -> Self {
        End { status: "ok", why: None, measures, samples: Vec::new() }
    }

    pub fn other(status: &'static str, why: &str) -> Self {
        End { status, why: Some(why.into()), measures: Vec::new(), samples: Vec::new() }
    }
}

/// Name, key, unit (none for texts), values as text and number.
pub type Sweep = (&'static str, &'static str, Option<&'static str>, Vec<(&'static str, Option<f64>)>);

/// An experiment to be written.
pub struct Experiment {
    pub title: &'static str,
    pub question: &'static str,
    pub world: &'static str,
    pub toml: String,
    pub transports: Vec<&'static str>,
    pub workloads: Vec<&'static str>,
    pub paths: Vec<&'static str>,
    pub mixtures: Vec<&'static str>,
    pub sweeps: Vec<Sweep>,
    pub repetitions: u64,
    pub plots: Value,
}

impl Experiment {
    /// Writes a directory; `end` says how each run ended, `None` that it has not.
    pub fn write(&self, dir: &Path, mut end: impl FnMut(&Case) -> Option<End>) {
        fs::write(dir.join("experiment.toml"), &self.toml).unwrap();
        fs::write(dir.join("machine.json"), machine().to_string()).unwrap();
        let names: Vec<&str> = self.sweeps.iter().map(|s| s.0).collect();
        let mut measures = String::from("run,world,transport,workload,path,");
        let mixture = if self.mixtures.is_empty() { "" } else { "mixture," };
        measures.push_str(mixture);
        names.iter().for_each(|name| write!(measures, "{name},").unwrap());
        measures.push_str("repetition,seed,flow,measure,value,unit,valid\n");
        let mut runs = Vec::new();
        for case in self.cases() {
            let parts = [case.mixture.as_str(), &case.transport, &case.workload, &case.path];
            let mut id =
                parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(".").replace('+', "_");
            case.sweep
                .iter()
                .for_each(|(name, value)| write!(id, ".{name}-{}", value.replace([':', ','], "_")).unwrap());
            write!(id, ".r{}", case.repetition).unwrap();
            runs.push(json!({
                "id": id, "world": self.world, "mixture": (!case.mixture.is_empty()).then_some(&case.mixture),
                "transport": case.transport, "workload": case.workload, "path": case.path,
                "sweep": case.sweep, "repetition": case.repetition, "seed": 1000 + case.repetition,
            }));
            let Some(end) = end(&case) else { continue };
            self.write_run(&dir.join("runs").join(&id), &id, &end);
            let valid = end.status == "ok";
            for (flow, measure, value, unit) in
                end.measures.iter().filter(|_| matches!(end.status, "ok" | "invalid"))
            {
                write!(measures, "{id},{},{},{},{},", self.world, case.transport, case.workload, case.path)
                    .unwrap();
                if !mixture.is_empty() {
                    write!(measures, "{},", case.mixture).unwrap();
                }
                for (name, .., values) in &self.sweeps {
                    let text = &case.sweep[*name];
                    let number = values.iter().find(|v| v.0 == text).and_then(|v| v.1);
                    let field = number.map_or_else(|| format!("\"{text}\""), |n| n.to_string());
                    write!(measures, "{field},").unwrap();
                }
                writeln!(
                    measures,
                    "{},{},{flow},{measure},{value},{unit},{valid}",
                    case.repetition,
                    1000 + case.repetition
                )
                .unwrap();
            }
        }
        fs::write(dir.join("measures.csv"), measures).unwrap();
        fs::write(dir.join("plan.json"), self.plan(&runs).to_string()).unwrap();
    }

    fn write_run(&self, folder: &Path, id: &str, end: &End) {
        fs::create_dir_all(folder.join("samples")).unwrap();
        for (file, content) in &end.samples {
            fs::write(folder.join("samples").join(file), content).unwrap();
        }
        let fidelity = (self.world != "sim").then(|| {
            json!({"lateness_p50_us": 0.4, "lateness_p90_us": 3.0, "lateness_p99_us": 41.0, "lateness_max_us": 160.0,
                   "lost_outside": 0, "cpu_share": 0.31})
        });
        let run = json!({
            "format": 1, "id": id, "status": end.status, "why": end.why, "attempts": [], "case": {}, "elapsed_s": 12.3,
            "started_unix_s": 1_780_000_000.0, "version": "uts-lab 0.1.0", "fidelity": fidelity,
        });
        fs::write(folder.join("run.json"), run.to_string()).unwrap();
    }

    fn plan(&self, runs: &[Value]) -> Value {
        let sweep = |(name, key, unit, values): &Sweep| {
            let values: Vec<Value> =
                values.iter().map(|(text, number)| json!({"text": text, "number": number})).collect();
            json!({"name": name, "key": key, "unit": unit, "numeric": unit.is_some(), "values": values})
        };
        let sweeps: Vec<Value> = self.sweeps.iter().map(sweep).collect();
        json!({
            "format": 1, "title": self.title, "question": self.question, "world": self.world,
            "repetitions": self.repetitions, "seed": 1, "topology": {"kind": "dumbbell", "pairs": 2},
            "transports": self.transports, "workloads": self.workloads, "paths": self.paths, "mixtures": self.mixtures,
            "sweeps": sweeps, "plots": self.plots, "runs": runs,
        })
    }

    fn cases(&self) -> Vec<Case> {
        let mut points = vec![BTreeMap::new()];
        for (name, .., values) in &self.sweeps {
            let with = |point: &BTreeMap<String, String>| {
                let one = |(text, _): &(&str, Option<f64>)| {
                    let mut point = point.clone();
                    point.insert((*name).to_owned(), (*text).to_owned());
                    point
                };
                values.iter().map(one).collect::<Vec<_>>()
            };
            points = points.iter().flat_map(with).collect();
        }
        let mixed = self.mixtures.iter().map(|m| (*m, self.transports.join("+"), self.workloads[0]));
        let alone = self
            .transports
            .iter()
            .flat_map(|t| self.workloads.iter().map(move |w| ("", (*t).to_owned(), *w)));
        let mut cases = Vec::new();
        for (mixture, transport, workload) in alone.chain(mixed) {
            for path in &self.paths {
                for sweep in &points {
                    for repetition in 1..=self.repetitions {
                        let (transport, workload) = (transport.clone(), workload.into());
                        let (path, mixture) = ((*path).into(), mixture.into());
                        cases.push(Case {
                            transport,
                            workload,
                            path,
                            mixture,
                            sweep: sweep.clone(),
                            repetition,
                        });
                    }
                }
            }
        }
        cases
    }
}

fn machine() -> Value {
    json!({
        "processor": "Sample CPU", "cores": 2, "memory_mib": 8192, "kernel": "Linux 6.1.0",
        "load": {"before": 0.2, "after": 1.1},
        "versions": {"uts": "uts 0.1.0", "rustc": "1.95.0", "iperf3": "3.12"},
    })
}

fn seed(case: &Case) -> u64 {
    let text = format!("{}{}{}{:?}{}", case.transport, case.workload, case.path, case.sweep, case.repetition);
    // FNV-1a.
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Throughput against buffers, with two windows, as TIGER had it: sweeps and traces.
pub fn buffers(repetitions: u64, plots: Value) -> Experiment {
    let buffers =
        [("1p", 1.0), ("2p", 2.0), ("4p", 4.0), ("8p", 8.0), ("16p", 16.0), ("32p", 32.0), ("63p", 63.0)];
    Experiment {
        title: "Throughput against router buffers",
        question: "How many cells of buffer does each transport need to fill a link of 5 Mbit/s?",
        world: "router",
        toml: "title = \"Throughput against router buffers\"\nworld = \"router\"\n\n[path.bottleneck]\nrate = \"5mbit\"\n\
               delay = \"10ms\"\nframing = \"aal5\"\nbuffer = \"63p\"\n\n[workload.bulk]\nkind = \"bulk\"\nduration = \"20s\"\n\n\
               [transport.cubic]\nkind = \"tcp\"\ncongestion = \"cubic\"\n\n[transport.uts]\nkind = \"uts\"\n"
            .into(),
        transports: vec!["cubic", "reno", "bbr", "uts"],
        workloads: vec!["bulk"],
        paths: vec!["bottleneck"],
        mixtures: vec![],
        sweeps: vec![
            ("buffer", "path.bottleneck.buffer", Some("packets"), buffers.map(|(t, n)| (t, Some(n))).into()),
            ("window", "transport.window", Some("bytes"), vec![("32kB", Some(32_000.0)), ("48kB", Some(48_000.0))]),
        ],
        repetitions,
        plots,
    }
}

/// End of a run of [`buffers`]: most well, some invalid, failed or skipped.
pub fn buffers_end(case: &Case) -> Option<End> {
    let mut random = Random::new(seed(case));
    let buffer: f64 = case.sweep["buffer"].trim_end_matches('p').parse().unwrap();
    let window: f64 = if case.sweep["window"] == "32kB" { 32.0 } else { 48.0 };
    let (knee, top) = match case.transport.as_str() {
        "cubic" => (9.0, 0.93),
        "reno" => (14.0, 0.92),
        "bbr" => (3.0, 0.90),
        _ => (4.0, 0.955),
    };
    if case.transport == "bbr" && buffer == 1.0 {
        return Some(match case.repetition {
            1 => End::other("failed", "the connection was reset after 3.1 s"),
            _ => End::other("invalid", "departures 812 us late at the 99th percentile, more than 250 us"),
        });
    }
    if case.transport == "reno" && window > 40.0 && buffer > 60.0 {
        return Some(End::other("skipped", "the kernel on this machine has no reno"));
    }
    let share = (top * (1.0 - (-buffer / (knee * window / 32.0)).exp() * 0.8)).min(1.0);
    let goodput = random.normal(share * 4.5e6, 0.05e6).max(0.1e6);
    let sojourn = (buffer * 0.0017 * if case.transport == "bbr" { 0.3 } else { 0.7 }).max(0.0);
    let flow = case.transport.clone();
    let mut end = End::ok(vec![
        (flow.clone(), "goodput", goodput, "bit/s"),
        (flow, "goodput_share", goodput / 5e6, "1"),
        (String::new(), "queue_sojourn_mean", random.normal(sojourn, sojourn / 20.0).abs(), "s"),
    ]);
    if (buffer == 8.0 || buffer == 63.0) && window < 40.0 {
        end.samples = transfer(&case.transport, buffer, goodput, &mut random);
    }
    Some(end)
}

/// Samples of a transfer whose window saws between half of what fits and all of it.
fn transfer(flow: &str, buffer: f64, goodput_bps: f64, random: &mut Random) -> Vec<(&'static str, String)> {
    const STEP_S: f64 = 0.01;
    let mut files: BTreeMap<&str, String> = BTreeMap::from([
        ("sequence.csv", "t_s,flow,kind,position_bytes\n".to_owned()),
        ("window.csv", "t_s,flow,end,window_bytes,in_flight_bytes,rtt_ms\n".into()),
        ("goodput.csv", "t_s,flow,delivered_bytes\n".into()),
        ("queue.csv", "t_s,link,packets,bytes,sojourn_ms\n".into()),
        ("exchanges.csv", "t_s,flow,line\n".into()),
        ("changes.csv", "t_s,link,change\n".into()),
    ]);
    let mut add = |file: &str, line: String| files.get_mut(file).unwrap().push_str(&line);
    let most = 12_500.0 + buffer * 1000.0;
    let (mut window, mut sent, mut acked) = (3000.0, 0.0, 0.0);
    for i in 0..2000 {
        let t = f64::from(i) * STEP_S;
        window += 60.0 + window * 0.002;
        let is_loss = window > most;
        if is_loss {
            window *= 0.6;
        }
        let queue = ((window - 12_500.0) / 1000.0).max(0.0).min(buffer);
        let rate = (goodput_bps / 8.0).min(window / 0.02) * random.normal(1.0, 0.05).max(0.1);
        sent += rate * STEP_S;
        acked = f64::max(acked, sent - window);
        for part in 0..4 {
            let at = t + f64::from(part) * STEP_S / 4.0;
            add(
                "sequence.csv",
                format!("{at:.4},{flow},sent,{:.0}\n", sent - rate * STEP_S * f64::from(4 - part) / 4.0),
            );
        }
        add("sequence.csv", format!("{t:.4},{flow},acked,{acked:.0}\n"));
        if is_loss {
            add("sequence.csv", format!("{:.4},{flow},repeated,{:.0}\n", t + 0.03, sent - 4000.0));
            add("sequence.csv", format!("{:.4},{flow},repeated,{:.0}\n", t + 0.034, sent - 3000.0));
        }
        let rtt = 20.0 + queue * 1.7;
        add(
            "window.csv",
            format!("{t:.3},{flow},client,{window:.0},{:.0},{rtt:.2}\n", window * random.normal(0.93, 0.03)),
        );
        // The receiver tells of its own window, in turns with the sender.
        add("window.csv", format!("{:.4},{flow},server,12000,0,7.77\n", t + STEP_S / 2.0));
        add("goodput.csv", format!("{t:.3},{flow},{acked:.0}\n"));
        add(
            "queue.csv",
            format!("{t:.3},bottleneck forward,{queue:.0},{:.0},{:.2}\n", queue * 1000.0, queue * 1.7),
        );
        add("queue.csv", format!("{t:.3},bottleneck backward,0,0,0.01\n"));
    }
    if flow == "uts" {
        let lines = [
            "saw loss 4.8 %; fec none -> reed-solomon(20,5); expects 36 Mbit/s",
            "saw no loss; fec reed-solomon -> none",
        ];
        for (t, line) in [6.2, 13.9].iter().zip(lines) {
            add("exchanges.csv", format!("{t},{flow},\"{line}\"\n"));
        }
        add("changes.csv", "6,bottleneck forward,loss=0.05\n13,bottleneck forward,loss=0\n".into());
    }
    files.into_iter().filter(|(_, text)| text.lines().count() > 1).collect()
}

/// Workloads by paths by transports.
pub fn universal(repetitions: u64) -> Experiment {
    let workloads = ["bulk", "files", "requests", "voice", "keystrokes"];
    let kinds = ["bulk", "files", "requests", "messages", "keystrokes"];
    let paths = ["lan", "dsl", "loss-1", "bursts-5", "satellite", "cellular", "serial", "long-fat"];
    let mut toml = String::from("title = \"The first universal matrix\"\nworld = \"sim\"\n");
    for (name, about) in paths.iter().zip(0..) {
        writeln!(toml, "\n[path.{name}]\nrate = \"{}mbit\"\ndelay = \"{}ms\"", 100 >> about, 5 << about)
            .unwrap();
    }
    for (name, kind) in workloads.iter().zip(kinds) {
        writeln!(toml, "\n[workload.{name}]\nkind = \"{kind}\"").unwrap();
    }
    Experiment {
        title: "The first universal matrix",
        question: "Who is best at what, by how much, and where is UTS not?",
        world: "sim",
        toml,
        transports: vec![
            "tcp-cubic",
            "tcp-bbr",
            "tcp-reno",
            "mptcp",
            "quinn-cubic",
            "quinn-bbr",
            "s2n-bbr",
            "srt",
            "enet",
            "uts",
            "uts-voice",
        ],
        workloads: workloads.into(),
        paths: paths.into(),
        mixtures: vec![],
        sweeps: vec![],
        repetitions,
        plots: json!([]),
    }
}

/// End of a run of [`universal`].
pub fn universal_end(case: &Case) -> Option<End> {
    let mut random = Random::new(seed(case));
    let skill = |case: &Case| {
        Random::new(seed(&Case {
            repetition: 0,
            path: String::new(),
            mixture: String::new(),
            sweep: BTreeMap::new(),
            transport: case.transport.clone(),
            workload: case.workload.clone(),
        }))
        .unit()
    };
    let luck = Random::new(seed(&Case {
        repetition: 0,
        path: case.path.clone(),
        mixture: String::new(),
        sweep: BTreeMap::new(),
        transport: case.transport.clone(),
        workload: String::new(),
    }))
    .unit();
    let strength =
        (0.35 + 0.35 * skill(case) + 0.3 * luck + if case.transport.starts_with("uts") { 0.12 } else { 0.0 })
            .min(1.0);
    let flow = case.transport.clone();
    let only_streams = case.transport.starts_with("tcp") || case.transport == "mptcp";
    if case.transport == "mptcp" && case.path == "serial" {
        return Some(End::other("skipped", "one path only"));
    }
    if case.transport == "srt" && matches!(case.workload.as_str(), "files" | "requests" | "keystrokes") {
        return Some(End::other("skipped", "srt has no streams"));
    }
    if case.transport == "enet" && case.path == "satellite" {
        return Some(End::other("failed", "no connection within 5 s"));
    }
    if case.path == "serial" && case.transport == "uts" && case.workload == "bulk" {
        return Some(End::other("failed", "gave up after 60 s"));
    }
    let noisy = |random: &mut Random, value: f64| random.normal(value, value * 0.02).max(value * 0.5);
    let slow = 1.0 / strength;
    let mut end = match case.workload.as_str() {
        "bulk" => End::ok(vec![(flow, "goodput", noisy(&mut random, 94e6 * strength), "bit/s")]),
        "files" => End::ok(vec![
            (flow.clone(), "completion", noisy(&mut random, 4.0 * slow), "s"),
            (flow, "files", 100.0, "1"),
        ]),
        "requests" => {
            let p99 = noisy(&mut random, 80.0 * slow * slow);
            let mut measures =
                vec![(flow.clone(), "request_p99", p99, "ms"), (flow.clone(), "answered", 990.0, "1")];
            if !(case.path == "bursts-5" && case.transport == "enet" && case.repetition == 1) {
                measures.push((flow, "completion", 10.0, "s"));
            }
            End::ok(measures)
        }
        "voice" => End::ok(vec![(
            flow,
            "in_time",
            (0.55 + 0.45 * strength + random.normal(0.0, 0.004)).clamp(0.0, 1.0),
            "1",
        )]),
        _ => End::ok(vec![
            (flow.clone(), "echo_p99", noisy(&mut random, 60.0 * slow), "ms"),
            (flow, "missing", 0.0, "1"),
        ]),
    };
    if case.workload == "voice" && case.path == "bursts-5" {
        end.samples.push(("latency.csv", messages(&case.transport, only_streams, strength, &mut random)));
    }
    Some(end)
}

/// Messages of which some wait for a repetition, or are lost.
fn messages(flow: &str, waits: bool, strength: f64, random: &mut Random) -> String {
    let mut csv = String::from("t_s,flow,latency_ms,deadline_ms\n");
    for i in 0..1500 {
        let t = f64::from(i) * 0.02;
        let base = random.normal(42.0, 1.5);
        let hit = random.unit() > 0.80 + 0.19 * strength;
        let latency = match (hit, waits) {
            (false, _) => format!("{base:.2}"),
            (true, true) => format!("{:.2}", base + 90.0 + 120.0 * random.unit()),
            (true, false) if random.unit() < 0.3 => String::new(),
            (true, false) => format!("{:.2}", base + 40.0 + 90.0 * random.unit()),
        };
        writeln!(csv, "{t:.3},{flow},{latency},150").unwrap();
    }
    csv
}

/// Two flows of one transport and one of another over one bottleneck.
pub fn mixture() -> Experiment {
    Experiment {
        title: "Sharing a bottleneck",
        question: "Who gets how much?",
        transports: vec!["cubic", "uts"],
        mixtures: vec!["pair"],
        sweeps: vec![],
        ..buffers(3, json!([]))
    }
}

/// End of a run of [`mixture`].
pub fn mixture_end(case: &Case) -> Option<End> {
    let mut random = Random::new(seed(case));
    if case.mixture.is_empty() {
        return Some(End::ok(vec![(
            case.transport.clone(),
            "goodput",
            random.normal(4.6e6, 0.05e6),
            "bit/s",
        )]));
    }
    let mut measures = vec![(String::new(), "fairness", random.normal(0.93, 0.01), "1")];
    for flow in ["cubic", "cubic-2", "uts"] {
        measures.push((flow.to_owned(), "goodput", random.normal(1.5e6, 0.1e6), "bit/s"));
    }
    Some(End::ok(measures))
}
