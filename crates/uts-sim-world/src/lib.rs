//! The world `sim`: hosts and paths in virtual time, around the real engine. The same case gives
//! the same figures on any machine, as fast as the machine can.
//!
//! [`run`] carries a [`SimCase`]: its links, its flows (UTS by requirements or by mechanisms, and
//! raw UDP, also several over shared links) and the background traffic beside them. It returns the
//! results. What pictures need goes to a [`Recorder`] as it happens. A case keeps one core busy.
//! Cases on several threads do not disturb each other.
//!
//! Links carry IP packets with 28 bytes of IPv4 and UDP headers. As in the world `router`,
//! `overhead` or a framing says what a frame adds. Hosts drop datagrams whose checksum is wrong.
//! They take no time of their own unless the case gives them costs.

mod case;
mod ends;
mod executor;
mod record;
mod source;
mod udp;
mod uts;
mod world;

pub use case::{SimCase, SimError, SimFlow, SimLink, SimRecord, refuses};
pub use record::Recorder;
pub use source::{Ect, SimSource, SourceKind, SourceResult, SourceSpec};
pub use uts_sim::network::Counters;

use core::time::Duration;
use uts_end::line::End;
use uts_functions::Time;
use uts_path::{Direction, Stats};
use uts_sim::identity::Identities;
use uts_sim::network::Network;
use uts_traffic::measure::Measure;

/// Result of a run, beside what its recorder was told.
#[derive(Clone, Debug, PartialEq)]
pub struct SimResult {
    /// By flow, in the order of the case.
    pub flows: Vec<FlowResult>,
    /// By source, in the order of the case.
    pub sources: Vec<SourceResult>,
    /// Counters of the links that have names, at the end, forward first.
    pub links: Vec<(String, Direction, Stats)>,
    /// Time that it took, in virtual time.
    pub elapsed: Duration,
    /// Counters of the network.
    pub counters: Counters,
}

/// Result of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowResult {
    /// Its name.
    pub name: String,
    /// Where it came from.
    pub client: EndResult,
    /// Where it went.
    pub server: EndResult,
}

/// Result of an end of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct EndResult {
    /// Its figures, as [`uts_traffic::run`] lists them for this end.
    pub measures: Vec<Measure>,
    /// End of the workload there. Times are virtual; virtual time takes no processor, so `cpu_s` is
    /// 0.
    pub end: End,
}

/// After the time of its flows is over, a run waits for this long for their leave-taking.
const GRACE: Duration = Duration::from_secs(20);

/// Carries a case.
///
/// # Errors
/// [`SimError`]: something is wrong with the case, a file cannot be written, or the recorder has
/// stopped it. If a transport fails, or does not finish in time, this is part of the result and no
/// error.
pub fn run(case: &SimCase, recorder: &mut dyn Recorder) -> Result<SimResult, SimError> {
    let plan = case.plan()?;
    let identities = Identities::new().map_err(|e| SimError::Case(e.to_string()))?;
    let mut network = Network::new(&plan.topology, case.seed).map_err(|e| SimError::Case(e.to_string()))?;
    network.set_headers(true);
    network.set_udp_checks(true);
    for (host, costs) in &case.costs {
        let wrong = |why: String| SimError::Case(format!("costs of {host}: {why}"));
        let node = plan.nodes.get(host).ok_or_else(|| wrong("there is no host of this name".into()))?;
        network.set_costs(*node, costs.clone()).map_err(|e| wrong(e.to_string()))?;
    }
    let world = world::World::new(network, identities);
    let records = record::Records::begin(case, &plan, &world)?;
    let sources = source::Sources::begin(case, &plan, &world)?;
    let ends = ends::Ends::spawn(case, &plan, &world, &records)?;
    let mut step = 0u32;
    let last_start = case.flows.iter().map(|flow| flow.start).max().unwrap_or_default();
    let until = Time::ZERO + last_start + case.timeout * 2 + GRACE;
    let mut is_stopped = false;
    world.run(until, |world| {
        step = step.wrapping_add(1);
        if step.is_multiple_of(record::EVERY_STEPS) {
            records.tell(world, recorder);
            is_stopped = recorder.is_stopped();
        }
        !is_stopped
    });
    // The tasks hold the world, and it them.
    world.executor.clear();
    records.tell(&world, recorder);
    if is_stopped {
        return Err(SimError::Stopped);
    }
    records.finish(&world)?;
    let network = world.network.borrow();
    let named = plan.links.iter().zip(&case.links).filter(|(_, link)| !link.name.is_empty());
    let links = named.flat_map(|(id, link)| {
        let stats = |direction| (link.name.clone(), direction, network.path(*id).stats(direction));
        Direction::ALL.map(stats)
    });
    Ok(SimResult {
        flows: ends.results(case),
        sources: sources.results(&world),
        links: links.collect(),
        elapsed: network.now().since(Time::ZERO),
        counters: network.counters(),
    })
}
