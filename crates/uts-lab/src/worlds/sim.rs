//! The world in virtual time: a case on one core, the same figures on any machine.

use super::{Passed, Room, World, ends};
use crate::experiment::case::{Case, Flow};
use crate::experiment::derived;
use crate::experiment::file::{ALL_HOSTS, Topology, WorldKind};
use crate::experiment::outcome::{Outcome, RunError};
use anyhow::{Context, Result, anyhow};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uts_end::Role;
use uts_engine::{TraceKind, TraceRow};
use uts_path::{Applied, Direction, LinkConfig, Passage, PathConfig};
use uts_record::run::{Figure, LinkStats};
use uts_record::samples::Samples;
use uts_sim::cost::Costs;
use uts_sim::host::SenderState;
use uts_sim_world::{
    self as simulator, Recorder, SimCase, SimError, SimFlow, SimLink, SimRecord, SimSource, SourceResult,
};
use uts_traffic::measure::Sample;
use uts_traffic::transport::Status;

/// Cases in virtual time, one for each core.
#[derive(Debug, Default)]
pub struct SimWorld;

impl World for SimWorld {
    fn kind(&self) -> WorldKind {
        WorldKind::Sim
    }

    fn parallel(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    fn refuses(&self, case: &Case) -> Option<String> {
        case.flows.iter().find_map(|flow| {
            let why = simulator::refuses(&flow.transport, &flow.workload)?;
            Some(format!("{}: {why}", flow.transport_name))
        })
    }

    fn run(&self, case: &Case, room: &Room<'_>) -> Result<Outcome, RunError> {
        let sim_case = translate(case, room)?;
        let mut taker = Taker::new(case, room.stop);
        let result = match simulator::run(&sim_case, &mut taker) {
            Ok(result) => result,
            Err(SimError::Stopped) => return Err(RunError::Interrupted),
            Err(error) => return Err(RunError::Failed(error.to_string())),
        };
        let mut outcome = Outcome::default();
        for (flow, ended) in case.flows.iter().zip(&result.flows) {
            for (role, end) in [(Role::Client, &ended.client), (Role::Server, &ended.server)] {
                ends::add_measures(flow, &end.measures, &mut outcome);
                ends::add_end(flow, role, &end.end, &mut outcome)?;
            }
        }
        // Virtual time takes no processor of its hosts.
        outcome.cpu.clear();
        outcome.measures.extend(taker.passed.figures());
        outcome.measures.extend(background(&result.sources, result.elapsed));
        let link = |(name, direction, stats)| LinkStats { link: format!("{name} {direction}"), stats };
        outcome.links = result.links.into_iter().map(link).collect();
        taker.samples.write(&room.dir.join("samples"))?;
        Ok(outcome)
    }
}

/// Rates of all background traffic, as sent and as arrived, in IP packets over the whole run.
fn background(sources: &[SourceResult], elapsed: Duration) -> Vec<Figure> {
    if sources.is_empty() || elapsed.is_zero() {
        return Vec::new();
    }
    let figure = |name: &str, packets: fn(&SourceResult) -> u64| {
        let bits = sources.iter().map(|source| 8 * source.packet_bytes * packets(source)).sum::<u64>();
        Figure::new("", name, bits as f64 / elapsed.as_secs_f64(), "bit/s")
    };
    vec![
        figure("background_sent", |source| source.sent),
        figure("background_received", |source| source.received),
    ]
}

fn translate(case: &Case, room: &Room<'_>) -> Result<SimCase> {
    let config = |hop: &crate::experiment::path::PathSpec| hop.config(&LinkConfig::default());
    let paths = case.hops.iter().map(|hop| Ok((hop.name.clone(), config(hop)?)));
    let mut paths: Vec<(String, PathConfig)> =
        paths.collect::<Result<_, uts_path::SpecError>>().map_err(|e| anyhow!(e))?;
    let mut links = match &case.topology {
        Topology::PointToPoint | Topology::Chain { .. } => SimLink::chain(paths),
        Topology::Dumbbell { pairs } => {
            let (name, path) = paths.pop().context("a dumbbell without a path")?;
            SimLink::dumbbell(name, path, *pairs)
        }
    };
    if let Some(bps) = case.hosts.access_bps {
        add_access(&mut links, case, bps);
    }
    limit_packets(&mut links, case);
    let flow = |flow: &Flow| SimFlow {
        name: flow.name.clone(),
        transport: flow.transport.clone(),
        workload: flow.workload.clone(),
        from: flow.from.clone(),
        to: flow.to.clone(),
        start: flow.start,
    };
    let mut costs = BTreeMap::new();
    for host in case.topology.hosts() {
        if let Some(text) = case.hosts.costs.get(&host).or_else(|| case.hosts.costs.get(ALL_HOSTS)) {
            costs.insert(host, text.parse::<Costs>()?);
        }
    }
    Ok(SimCase {
        links,
        costs,
        flows: case.flows.iter().map(flow).collect(),
        sources: case.sources.iter().map(|source| behind_access(case, source)).collect(),
        timeout: case.timeout,
        sample_every: case.sample_every,
        seed: case.seed,
        record: SimRecord {
            packets: case.record.sequence,
            queues: case.record.queue,
            pcap: case.record.pcap.then(|| room.dir.join("samples")),
            qlog: case.record.qlog.then(|| room.dir.join("samples")),
        },
    })
}

/// Gives each host a link of its own at this rate: hosts move behind a node that takes their place.
fn add_access(links: &mut Vec<SimLink>, case: &Case, rate_bps: u64) {
    let access = LinkConfig { rate_bps: Some(rate_bps), ..LinkConfig::default() };
    for host in case.topology.hosts() {
        let node = network_of(&host);
        for link in links.iter_mut() {
            for end in link.ends.iter_mut().filter(|end| **end == host) {
                end.clone_from(&node);
            }
        }
        let path = PathConfig { forward: access.clone(), ..PathConfig::default() };
        links.push(SimLink { name: String::new(), ends: [host, node], path });
    }
}

/// Where hosts have links of their own, background traffic enters and leaves behind those.
fn behind_access(case: &Case, source: &SimSource) -> SimSource {
    let mut placed = source.clone();
    if case.hosts.access_bps.is_some() {
        let hosts = case.topology.hosts();
        for node in [&mut placed.from, &mut placed.to].into_iter().filter(|node| hosts.contains(*node)) {
            *node = network_of(node);
        }
    }
    placed
}

/// The node that stands in the place of a host with a link of its own.
fn network_of(host: &str) -> String {
    format!("{host}'s network")
}

/// Hosts neither send nor take packets beyond their MTU. Raw UDP is fragmented, as kernels do.
fn limit_packets(links: &mut [SimLink], case: &Case) {
    let hosts = case.topology.hosts();
    for link in links.iter_mut().filter(|link| link.ends.iter().any(|end| hosts.contains(end))) {
        for config in [&mut link.path.forward, &mut link.path.backward] {
            let most = case.hosts.mtu.saturating_add(config.overhead_bytes);
            config.mtu_bytes = Some(config.mtu_bytes.map_or(most, |own| own.min(most)));
        }
    }
}

/// Takes what a run tells, as tables.
struct Taker<'c> {
    case: &'c Case,
    stop: &'c AtomicBool,
    samples: Samples,
    /// The hop and the direction whose queue the first flow's data wait in.
    bottleneck: Option<(usize, Direction)>,
    passed: Passed,
}

impl<'c> Taker<'c> {
    fn new(case: &'c Case, stop: &'c AtomicBool) -> Self {
        let bottleneck = case.flows.first().and_then(|flow| {
            let is_backward = flow.from.starts_with("server");
            let direction = if is_backward { Direction::Backward } else { Direction::Forward };
            Some((derived::bottleneck(case, flow)?.0, direction))
        });
        Taker { case, stop, samples: Samples::default(), bottleneck, passed: Passed::default() }
    }

    fn link(&self, link: usize, direction: &str) -> Option<String> {
        Some(format!("{} {direction}", self.case.hops.get(link)?.name))
    }
}

impl Recorder for Taker<'_> {
    fn sample(&mut self, flow: usize, role: Role, sample: &Sample) {
        if let Some(flow) = self.case.flows.get(flow)
            && self.case.record.takes(sample)
        {
            self.samples.add(&flow.name, role.name(), sample, 0);
        }
    }

    fn packet(&mut self, flow: usize, role: Role, row: &TraceRow, state: &SenderState) {
        let (Some(flow), Role::Client, Some((_, position))) = (self.case.flows.get(flow), role, row.data)
        else {
            return;
        };
        let kind = match row.kind {
            TraceKind::Sent => "sent",
            TraceKind::Repeated => "repeated",
            TraceKind::Acknowledged => "acked",
            TraceKind::Lost | TraceKind::Received => return,
        };
        let t_s = row.at.since(uts_functions::Time::ZERO).as_secs_f64();
        let state = Status {
            window_bytes: state.window_bytes,
            threshold_bytes: state.threshold_bytes,
            in_flight_bytes: Some(state.in_flight_bytes),
            ..Status::default()
        };
        self.samples.add_sequence(&flow.name, t_s, kind, position, &state);
    }

    fn passage(&mut self, link: usize, direction: Direction, passage: &Passage) {
        let Some(name) = self.link(link, &direction.to_string()) else { return };
        let passed = passage.dropped.is_none();
        let sojourn_s = passage.sojourn_ns() as f64 / 1e9;
        if passed && self.bottleneck == Some((link, direction)) {
            self.passed.add(sojourn_s, passage.len as u64);
        }
        let (t_s, sojourn_ms) = (passage.arrived_ns as f64 / 1e9, passed.then_some(sojourn_s * 1e3));
        self.samples.add_queue(&name, t_s, passage.queue_packets, passage.queue_bytes, sojourn_ms);
    }

    fn applied(&mut self, link: usize, applied: &Applied) {
        let direction = match applied.target.keyword() {
            "fwd" => "forward",
            "bwd" => "backward",
            both => both,
        };
        if let Some(name) = self.link(link, direction) {
            self.samples.add_change(&name, applied.at_ns as f64 / 1e9, &applied.change.to_string());
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
