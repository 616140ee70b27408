//! Stationary paths, drawn at random: a policy that has settled stays where it is, and brings no
//! less than the profile that it began with. `cargo test --test steady -- --nocapture` shows the
//! figures, and `STEADY=3` one case with all that was exchanged.

use core::time::Duration;
use std::collections::BTreeMap;
use uts_end::{Role, TransportSpec};
use uts_path::PathConfig;
use uts_sim_world::{self as sim, Recorder, SimCase, SimFlow, SimLink, SimRecord};
use uts_traffic::measure::{Measure, Sample};
use uts_traffic::workload::Workload;

/// What was told of exchanges of the data that the client sends, and when in seconds.
#[derive(Default)]
struct Told(Vec<(f64, String)>);

impl Recorder for Told {
    fn sample(&mut self, _flow: usize, role: Role, sample: &Sample) {
        if let (Role::Client, Sample::Exchange { at_ns, line, .. }) = (role, sample) {
            self.0.push((*at_ns as f64 / 1e9, line.clone()));
        }
    }
}

impl Told {
    /// Number of exchanges that came into force from this second on.
    fn exchanges_from(&self, second: f64) -> usize {
        self.0.iter().filter(|(at, line)| *at >= second && line.contains(" in force after ")).count()
    }
}

fn carry(path: &PathConfig, workload: &Workload, is_adaptive: bool, seed: u64) -> (Vec<Measure>, Told) {
    let flow = SimFlow {
        name: "flow".into(),
        transport: TransportSpec::new("uts").with("adaptive", is_adaptive),
        workload: workload.clone(),
        from: "client".into(),
        to: "server".into(),
        start: Duration::ZERO,
    };
    let case = SimCase {
        sources: Vec::new(),
        costs: BTreeMap::new(),
        links: SimLink::point_to_point("path", path.clone()),
        flows: vec![flow],
        timeout: Duration::from_secs(200),
        sample_every: Duration::from_secs(1),
        seed,
        record: SimRecord::default(),
    };
    let mut told = Told::default();
    let result = sim::run(&case, &mut told).expect("it runs");
    let flow = &result.flows[0];
    (flow.server.measures.iter().chain(&flow.client.measures).cloned().collect(), told)
}

fn value(measures: &[Measure], name: &str) -> f64 {
    measures.iter().find(|m| m.name == name).map_or(f64::NAN, |m| m.value)
}

/// Numbers that look drawn at random (SplitMix64).
struct Draw(u64);

impl Draw {
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Between two numbers, each factor as likely as any other.
    fn log(&mut self, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.share())
    }
}

/// A path that does not change: 1 to 40 Mbit/s, 4 to 200 ms there and back, a buffer of half to
/// three times what the path holds, up to 10 % lost in bursts or singly.
fn stationary(draw: &mut Draw) -> (String, PathConfig) {
    let rate_bps = draw.log(1e6, 40e6);
    let delay_ms = draw.log(2.0, 100.0);
    let buffer = (rate_bps / 8.0 * 2.0 * delay_ms / 1000.0 * draw.log(0.5, 3.0)).max(15_000.0);
    let (kind, loss, burst) = (draw.share(), draw.log(0.001, 0.1), draw.log(2.0, 6.0));
    let loss = match kind {
        ..0.15 => String::new(),
        ..0.5 => format!(" loss={loss:.4}"),
        _ => format!(" loss=ge:{loss:.4},{burst:.1}"),
    };
    let text = format!("rate={rate_bps:.0}bit/s delay={:.0}us buffer={buffer:.0}B{loss}", delay_ms * 1e3);
    let path = PathConfig::both(text.parse().unwrap_or_else(|e| panic!("{text}: {e}")));
    (text, path)
}

/// Paths on which a policy once went to and fro for as long as a run lasted.
const ONCE_RESTLESS: [&str; 2] =
    ["rate=10mbit delay=20ms buffer=100kB loss=ge:0.05,4", "rate=14mbit delay=4ms buffer=20kB loss=0.026"];

/// Time of a run, and when the policy has to have settled.
const LASTS: Duration = Duration::from_secs(60);
const SETTLED_S: f64 = 15.0;
/// A return home that shows that home is worse is an experiment, and takes two exchanges. It should
/// be the only one. Where no queue is seen, it is not yet.
const CHANGES_MAX: usize = 4;

/// Harm to what is sent in time, in percent of its messages. It should be none; a video that takes
/// half of a short path with 9 % of loss still meets it.
const HARM_MAX: f64 = 4.0;

fn bulk() -> Workload {
    Workload::Bulk { bytes: None, duration: Some(LASTS) }
}

fn cases() -> impl Iterator<Item = u64> {
    let only: Option<u64> = std::env::var("STEADY").ok().and_then(|n| n.parse().ok());
    let count: u64 = std::env::var("STEADY_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(24);
    (1..=count).filter(move |n| only.is_none_or(|only| only == *n))
}

fn show(told: &Told) {
    if std::env::var("STEADY").is_ok() {
        told.0.iter().for_each(|(at, line)| println!("  {at:.2} {line}"));
    }
}

#[test]
fn bulk_settles_and_stays() {
    let mut faults = Vec::new();
    for n in cases() {
        let (text, path) = match ONCE_RESTLESS.get(n as usize - 1) {
            Some(line) => ((*line).to_owned(), PathConfig::both(line.parse().expect("a valid path"))),
            None => stationary(&mut Draw(n * 0x2545_f491)),
        };
        let (adaptive, told) = carry(&path, &bulk(), true, n);
        let (home, _) = carry(&path, &bulk(), false, n);
        let [own, of_home] = [adaptive, home].map(|measures| value(&measures, "goodput") / 1e6);
        let (changes, all) = (told.exchanges_from(SETTLED_S), told.exchanges_from(0.0));
        let line = format!(
            "{n}: {text}: {own:.2} of {of_home:.2} Mbit/s ({:.2}), {all} exchanges, {changes} late",
            own / of_home
        );
        println!("{line}");
        show(&told);
        if changes > CHANGES_MAX || own < 0.98 * of_home {
            faults.push(line);
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Messages that are to be in time: `voice` is one of 160 bytes every 20 ms, `video` 30 frames.
fn timely(draw: &mut Draw, path: &PathConfig) -> (&'static str, Workload) {
    let delay = Duration::from_nanos(path.forward.delay_ns);
    let rate_bps = path.forward.rate_bps.map_or(1e6, |rate| rate as f64);
    let time = Duration::from_secs_f64(draw.log(0.03, 0.4));
    if draw.share() < 0.6 {
        let every = Duration::from_secs_f64(draw.log(0.005, 0.1));
        let bytes = draw.log(60.0, 1000.0) as u64;
        ("messages", Workload::Messages { every, bytes, duration: LASTS, deadline: delay + time })
    } else {
        let video = Workload::Video {
            frames_per_s: 30,
            rate_bps: (rate_bps * draw.log(0.1, 0.6)) as u64,
            key_every: 60,
            key_factor: 5.0,
            duration: LASTS,
            deadline: delay + time,
        };
        ("video", video)
    }
}

#[test]
fn timely_data_settles_and_stays() {
    let mut faults = Vec::new();
    for n in cases() {
        let mut draw = Draw(n * 0x9545_f491);
        let (text, path) = stationary(&mut draw);
        let (name, workload) = timely(&mut draw, &path);
        let (adaptive, told) = carry(&path, &workload, true, n);
        let (home, _) = carry(&path, &workload, false, n);
        let [own, of_home] = [adaptive, home].map(|measures| value(&measures, "in_time") * 100.0);
        let (changes, all) = (told.exchanges_from(SETTLED_S), told.exchanges_from(0.0));
        let line = format!(
            "{n}: {name} {workload:?} over {text}: {own:.2} of {of_home:.2} %, {all} exchanges, {changes} late"
        );
        println!("{line}");
        show(&told);
        if changes > CHANGES_MAX || own < of_home - HARM_MAX {
            faults.push(line);
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Small messages that a repeat brings too late: redundancy takes its place, at whatever rate they
/// are made.
#[test]
fn messages_get_redundancy_where_repeats_come_too_late() {
    let ms = Duration::from_millis;
    let mut faults = Vec::new();
    for (rtt_ms, every_ms) in [(100, 10), (100, 40), (160, 20), (160, 50), (240, 20), (240, 40)] {
        for loss in [0.03, 0.1] {
            let text = format!("rate=2mbit delay={}ms buffer=40kB loss={loss}", rtt_ms / 2);
            let path = PathConfig::both(text.parse().expect("a valid path"));
            let deadline = ms(rtt_ms / 2 + rtt_ms * 3 / 4);
            let workload =
                Workload::Messages { every: ms(every_ms), bytes: 160, duration: ms(20_000), deadline };
            let [own, of_home] = [true, false].map(|is| {
                let (measures, told) = carry(&path, &workload, is, 1);
                show(&told);
                1.0 - value(&measures, "in_time")
            });
            let line = format!("every {every_ms} ms over {text}: {own:.4} missed, {of_home:.4} at home");
            println!("{line}");
            if own > 0.6 * of_home {
                faults.push(line);
            }
        }
    }
    // Congestion control holds one sender back before redundancy has room (100 packets/s, 10 %).
    assert!(faults.len() <= 1, "{faults:#?}");
}
