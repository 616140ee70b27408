//! A record as a demonstration would leave it: a plain sender over the emulated path in virtual
//! time.

use std::collections::{BTreeMap, VecDeque};
use uts_path::{Direction, Path, PathConfig, Payload, Schedule};
use uts_record::demo::*;

const PACKET_BYTES: u64 = 1350;
const STEP_NS: u64 = 50_000;
const SAMPLE_NS: u64 = 10_000_000;

/// A record of two runs of a file of this many bytes.
pub fn record(file_bytes: u64, seed: u64) -> Record {
    let third = file_bytes / 3;
    let schedule = format!("at={third}B fwd loss=ge:0.05,4; at={}B both loss=0 rate=20mbit", 2 * third);
    let file = FileFacts {
        name: "demo.bin".into(),
        bytes: file_bytes,
        sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".into(),
        generated: true,
    };
    let setting = Setting {
        unix_s: 1_760_000_000,
        lab_version: "uts-lab 0.1.0".into(),
        uts_version: "uts 0.1.0".into(),
        machine: Machine {
            processor: "Sample CPU".into(),
            cores: 2,
            memory_mib: Some(8192),
            system: "Linux 6.1.0".into(),
        },
        seed,
        command: format!("uts-lab demo --seed {seed}"),
        path: "rate=50mbit delay=20ms buffer=64p overhead=28".into(),
        schedule: schedule.parse::<Schedule>().unwrap().entries.iter().map(ToString::to_string).collect(),
        base_rtt_ms: 40.0,
        buffer_packets: Some(64),
        file: file.clone(),
    };
    let runs = [true, false].map(|adapt| run(&schedule, &file, seed, adapt)).into();
    Record { format: FORMAT, setting, runs }
}

/// A packet is its number.
#[derive(Clone)]
struct Number(u64);

impl Payload for Number {
    fn flip_bit(&mut self, _bit: usize) {}

    fn mark_ce(&mut self) -> bool {
        false
    }
}

/// Packet under way, as its sender knows it.
struct Sent {
    position: u64,
    t_ns: u64,
}

struct Sender {
    path: Path<Number>,
    out: Run,
    now_ns: u64,
    under_way: BTreeMap<u64, Sent>,
    acks: VecDeque<(u64, u64)>,
    to_repeat: VecDeque<u64>,
    next_number: u64,
    next_position: u64,
    acked_packets: u64,
}

fn run(schedule: &str, file: &FileFacts, seed: u64, adapt: bool) -> Run {
    let mut config = PathConfig::both("rate=50mbit delay=20ms buffer=64p overhead=28".parse().unwrap());
    config.schedule = schedule.parse().unwrap();
    let out = Run { name: if adapt { "adaptive" } else { "fixed" }.into(), ..Run::default() };
    let mut sender = Sender {
        path: Path::new(config, seed, 0).unwrap(),
        out,
        now_ns: 0,
        under_way: BTreeMap::new(),
        acks: VecDeque::new(),
        to_repeat: VecDeque::new(),
        next_number: 0,
        next_position: 0,
        acked_packets: 0,
    };
    sender.out.link.push(LinkStep { t_s: -0.01, rate_bps: Some(50_000_000), loss: 0.0, burst: 1.0 });
    let packets = file.bytes.div_ceil(PACKET_BYTES);
    let (mut window, mut reduced_ns) = (180.0_f64, 0);
    while sender.acked_packets < packets {
        sender.now_ns += STEP_NS;
        let lossy = sender.out.link.last().unwrap().loss > 0.0;
        let lost = sender.hear();
        let grow = if adapt || !lossy { 0.03 } else { 0.02 };
        // One reduction for all losses of a round trip.
        if lost && !(adapt && lossy) && sender.now_ns > reduced_ns + 60_000_000 {
            window = (window * 0.8).max(4.0);
            reduced_ns = sender.now_ns;
        }
        window = (window + grow).min(if sender.out.changes.len() == 2 { 135.0 } else { 230.0 });
        while (sender.under_way.len() as f64) < window && sender.send(file.bytes) {}
        sender.note(file.bytes);
    }
    finish(sender, file, adapt)
}

impl Sender {
    fn seconds(&self) -> f64 {
        self.now_ns as f64 / 1e9
    }

    fn send(&mut self, file_bytes: u64) -> bool {
        let repeated = self.to_repeat.pop_front();
        let position = repeated.unwrap_or(self.next_position);
        if repeated.is_none() {
            if self.next_position >= file_bytes {
                return false;
            }
            self.next_position += PACKET_BYTES;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.path.send(self.now_ns, Direction::Forward, Number(number), PACKET_BYTES as usize);
        self.under_way.insert(number, Sent { position, t_ns: self.now_ns });
        let t_s = self.seconds();
        let trace = &mut self.out.trace;
        let points = if repeated.is_some() { &mut trace.repeat } else { &mut trace.sent };
        push(points, t_s, number, Some(position));
        true
    }

    /// Takes in acknowledgements; returns whether a packet was found lost.
    fn hear(&mut self) -> bool {
        while let Some(Number(number)) = self.path.poll(self.now_ns, Direction::Forward) {
            self.acks.push_back((self.now_ns + 20_000_000, number));
        }
        let mut highest = None;
        while self.acks.front().is_some_and(|(due_ns, _)| *due_ns <= self.now_ns) {
            let (_, number) = self.acks.pop_front().unwrap();
            if let Some(sent) = self.under_way.remove(&number) {
                self.acked_packets += 1;
                push(&mut self.out.trace.acked, self.now_ns as f64 / 1e9, number, Some(sent.position));
                self.out.summary.duration_s = (self.now_ns - sent.t_ns) as f64 / 1e6;
            }
            highest = Some(number);
        }
        let overdue = self.now_ns.saturating_sub(400_000_000);
        let bound = highest.map_or(0, |h: u64| h.saturating_sub(3));
        let lost: Vec<u64> = self
            .under_way
            .iter()
            .filter(|(number, sent)| **number < bound || sent.t_ns < overdue)
            .map(|(number, _)| *number)
            .collect();
        for number in &lost {
            let sent = self.under_way.remove(number).unwrap();
            push(&mut self.out.trace.lost, self.now_ns as f64 / 1e9, *number, None);
            self.to_repeat.push_back(sent.position);
        }
        !lost.is_empty()
    }

    /// Samples the path and the sender.
    fn note(&mut self, file_bytes: u64) {
        let t_s = self.seconds();
        while let Some(applied) = self.path.poll_applied() {
            let t_s = applied.at_ns as f64 / 1e9;
            let (rate, loss) =
                if self.out.changes.is_empty() { (50_000_000, 0.05) } else { (20_000_000, 0.0) };
            self.out.link.push(LinkStep { t_s, rate_bps: Some(rate), loss, burst: 4.0 });
            let target = applied.target.keyword().into();
            self.out.changes.push(PathChange { t_s, target, change: applied.change.to_string() });
        }
        if self.now_ns.is_multiple_of(SAMPLE_NS) {
            let stats = self.path.stats(Direction::Forward);
            let queue = &mut self.out.queue;
            queue.t_s.push(t_s);
            queue.packets.push(stats.queue_packets);
            queue.dropped_queue.push(stats.dropped_queue);
            queue.dropped_loss.push(stats.dropped_loss);
            queue.bytes_delivered.push(stats.bytes_delivered);
        }
        if self.now_ns.is_multiple_of(10 * SAMPLE_NS) {
            let progress = &mut self.out.progress;
            progress.t_s.push(t_s);
            progress.bytes.push((self.acked_packets * PACKET_BYTES).min(file_bytes));
            // Until the run is over, this holds the last round trip.
            progress.rtt_ms.push(Some(self.out.summary.duration_s));
            progress.loss.push(Some(0.01));
        }
    }
}

fn push(points: &mut Points, t_s: f64, number: u64, position: Option<u64>) {
    points.t_s.push((t_s * 1e5).round() / 1e5);
    points.number.push(number);
    points.position.push(position);
}

fn finish(sender: Sender, file: &FileFacts, adapt: bool) -> Run {
    let stats = sender.path.stats(Direction::Forward);
    let duration_s = sender.seconds();
    let mut run = sender.out;
    let ends: Vec<f64> = run.link.iter().skip(1).map(|s| s.t_s).chain([duration_s]).collect();
    let carried = |after_loss: f64| -> f64 {
        let steps = run.link.iter().zip(&ends);
        let bytes_per_s = |s: &LinkStep| s.rate_bps.unwrap() as f64 / 8.0;
        steps.map(|(s, end)| bytes_per_s(s) * (end - s.t_s.max(0.0)) * (1.0 - s.loss * after_loss)).sum()
    };
    run.summary = Summary {
        is_cut_short: false,
        duration_s,
        payload_bytes: file.bytes,
        goodput_bps: file.bytes as f64 * 8.0 / duration_s,
        capacity_bytes: Some(carried(0.0)),
        capacity_after_loss_bytes: Some(carried(1.0)),
        packets_sent: Some(sender.next_number),
        packets_repeated: Some(run.trace.repeat.t_s.len() as u64),
        packets_repaired: Some(0),
        lost_on_wire: stats.dropped_loss,
        dropped_by_queue: stats.dropped_queue,
        sha256: file.sha256.clone(),
    };
    run.commands = vec![
        "uts serve --dir /tmp/uts-demo/served --writable --anyone --listen 127.0.0.1:0 --json".into(),
        "uts cp --json --pin SHA256:sample --trace trace.csv demo.bin uts://127.0.0.1:40000/demo.bin".into(),
    ];
    run.profiles.push(ProfileUse { t_s: 0.0, profile: "congestion=cubic retransmission=selective".into() });
    if adapt {
        run.exchanges = exchanges(&run.changes);
    }
    run
}

/// One for each change, and a second soon after the first.
fn exchanges(changes: &[PathChange]) -> Vec<Exchange> {
    let mut exchanges = Vec::new();
    for (change, epoch) in changes.iter().zip(1..) {
        for after_s in if epoch == 1 { &[0.42, 0.55][..] } else { &[0.42] } {
            exchanges.push(Exchange {
                end: "client".into(),
                direction: "out".into(),
                epoch,
                t_s: change.t_s + after_s,
                took_ms: Some(41.3 + after_s),
                seen: "5.2 % of packets lost in bursts of 3.9, 98 % of the rate, over 0.4 s".into(),
                changes: "fec: none -> reed-solomon(data=20,parity=5)".into(),
                expects: "goodput 36.2 Mbit/s instead of 11.4, delay as before".into(),
                brought: "goodput 35.1 Mbit/s (expected 36.2)".into(),
                outcome: Outcome::Agreed,
            });
        }
    }
    exchanges
}
