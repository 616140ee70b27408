//! The ends of flows. Each is a task that meets its peer, carries its part of the workload, and
//! closes.

use super::case::{Carrier, CarrierKind, Plan, SimCase, SimError, SimFlow};
use super::executor::SimClock;
use super::record::{FlowObserver, Records};
use super::udp::SimUdp;
use super::uts::SimUts;
use super::world::World;
use super::{EndResult, FlowResult};
use core::cell::RefCell;
use core::time::Duration;
use futures_util::future::{Either, select};
use std::net::{SocketAddr, SocketAddrV4};
use std::pin::pin;
use std::rc::Rc;
use uts_end::Role;
use uts_end::line::{End, Status};
use uts_sim::network::seed_of;
use uts_sim::topology::{Node, Topology};
use uts_traffic::clock::Clock;
use uts_traffic::measure::Measure;
use uts_traffic::run::{self as traffic, Outcome, RunError, RunOptions};
use uts_traffic::transport::{Session, Transport};
use uts_traffic::workload::Workload;

/// Time that a session may take to close once the workload is done.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// Where the servers' ports begin.
const SERVER_PORT: u16 = 4433;

/// Results of the ends, by flow: client, then server.
pub(super) struct Ends(Vec<[Rc<RefCell<EndResult>>; 2]>);

/// Task of an end.
struct Task {
    role: Role,
    transport: Box<dyn Transport>,
    clock: SimClock,
    workload: Workload,
    options: RunOptions,
    server: SocketAddr,
    start: Duration,
    observer: FlowObserver,
    result: Rc<RefCell<EndResult>>,
}

impl Ends {
    /// Makes a task of each end; they begin when the world runs.
    pub fn spawn(
        case: &SimCase,
        plan: &Plan,
        world: &Rc<World>,
        records: &Records,
    ) -> Result<Self, SimError> {
        let mut ends = Vec::new();
        for (number, (flow, carrier)) in case.flows.iter().zip(&plan.carriers).enumerate() {
            let [from, to] = [&flow.from, &flow.to].map(|host| plan.nodes[host]);
            let port = u16::try_from(number).ok().and_then(|n| SERVER_PORT.checked_add(n));
            let port = port.filter(|port| *port < 49_152);
            let port = port.ok_or_else(|| SimError::Case("there are more flows than ports".to_owned()))?;
            let server = SocketAddrV4::new(Topology::address(to), port).into();
            let of = |role: Role| {
                let result = Rc::new(RefCell::new(EndResult { measures: Vec::new(), end: unmet(role) }));
                let node = if role == Role::Client { from } else { to };
                let transport = transport(case, number, (carrier, role, node), world, records);
                let task = Task {
                    role,
                    transport,
                    clock: world.clock(),
                    workload: flow.workload.clone(),
                    options: RunOptions {
                        capabilities: carrier.capabilities,
                        // Flows that draw are not to draw the same.
                        seed: seed_of(case.seed, number as u64),
                        give_up: case.timeout,
                        sample_every: case.sample_every,
                    },
                    server,
                    start: flow.start,
                    observer: records.observer(number, role),
                    result: result.clone(),
                };
                world.executor.spawn(task.run());
                result
            };
            // The server first: it listens before the client comes.
            let server = of(Role::Server);
            ends.push([of(Role::Client), server]);
        }
        Ok(Ends(ends))
    }

    /// Results of the ends so far.
    pub fn results(&self, case: &SimCase) -> Vec<FlowResult> {
        let named = |(flow, [client, server]): (&SimFlow, &[Rc<RefCell<EndResult>>; 2])| FlowResult {
            name: flow.name.clone(),
            client: client.borrow().clone(),
            server: server.borrow().clone(),
        };
        case.flows.iter().zip(&self.0).map(named).collect()
    }
}

/// An end that has not met its peer.
fn unmet(role: Role) -> End {
    End {
        role: role.name().to_owned(),
        status: Status::Failed,
        why: Some("the run ended before it did".to_owned()),
        connect_s: None,
        wall_s: 0.0,
        cpu_s: 0.0,
        sent_packets: None,
        repeated_packets: None,
    }
}

fn transport(
    case: &SimCase,
    flow: usize,
    (carrier, role, node): (&Carrier, Role, Node),
    world: &Rc<World>,
    records: &Records,
) -> Box<dyn Transport> {
    let (world, capabilities) = (world.clone(), carrier.capabilities);
    match &carrier.kind {
        CarrierKind::Udp(settings) => {
            Box::new(SimUdp { world, node, settings: settings.clone(), capabilities })
        }
        CarrierKind::Uts(config) => {
            let mut seed = [0; 32];
            seed[..8].copy_from_slice(&case.seed.to_le_bytes());
            seed[8..16].copy_from_slice(&(2 * flow as u64 + u64::from(role == Role::Server)).to_le_bytes());
            let prepare = records.prepare(flow, role);
            Box::new(SimUts { world, node, config: (**config).clone(), capabilities, seed, prepare })
        }
    }
}

impl Task {
    async fn run(self) {
        let mut end = unmet(self.role);
        let mut measures = Vec::new();
        if self.role == Role::Client {
            self.clock.sleep_until(self.start.as_nanos() as u64).await;
        }
        let began_ns = self.clock.now_ns();
        match self.meet().await {
            Err(why) => end.why = Some(why),
            Ok(session) => {
                let start_ns = self.clock.now_ns();
                if self.role == Role::Client {
                    end.connect_s = Some((start_ns - began_ns) as f64 / 1e9);
                }
                let result = self.carry(&*session).await;
                end.wall_s = (self.clock.now_ns() - start_ns) as f64 / 1e9;
                traffic::sample_now(&*session, &self.clock, &self.observer);
                if let Some(status) = session.status() {
                    (end.sent_packets, end.repeated_packets) = (status.sent_packets, status.repeated_packets);
                }
                measures = settle(&mut end, result);
                // What was measured stands, whatever becomes of the leave-taking.
                self.tell(&end, &measures);
                self.within(CLOSE_MAX, session.close()).await;
                traffic::sample_now(&*session, &self.clock, &self.observer);
            }
        }
        self.tell(&end, &measures);
    }

    fn tell(&self, end: &End, measures: &[Measure]) {
        *self.result.borrow_mut() = EndResult { measures: measures.to_vec(), end: end.clone() };
    }

    /// The session, or why there is none.
    async fn meet(&self) -> Result<Rc<dyn Session>, String> {
        let after = self.options.give_up;
        let failed = |what: &str| format!("{what} within {} s", after.as_secs_f64());
        match self.role {
            Role::Server => {
                let mut listener = self.transport.listen(self.server).await.map_err(|e| e.to_string())?;
                // A flow that begins late has as much time as one that begins at once.
                let accepted = self.within(self.start + after, listener.accept()).await;
                accepted.ok_or_else(|| failed("no client came"))?.map_err(|e| e.to_string())
            }
            Role::Client => {
                let connected = self.within(after, self.transport.connect(self.server)).await;
                connected.ok_or_else(|| failed("no session"))?.map_err(|e| e.to_string())
            }
        }
    }

    /// The workload, and the samples beside it.
    async fn carry(&self, session: &dyn Session) -> Result<Outcome, RunError> {
        let (clock, options, observer) = (&self.clock, &self.options, &self.observer);
        let work = async {
            match self.role {
                Role::Client => traffic::drive(&self.workload, session, clock, options, observer).await,
                Role::Server => traffic::serve(&self.workload, session, clock, options, observer).await,
            }
        };
        let watch = traffic::watch(session, clock, options.sample_every, observer);
        match select(pin!(work), pin!(watch)).await {
            Either::Left((result, _)) => result,
            Either::Right(((), work)) => work.await,
        }
    }

    /// Waits for a future, but not for ever.
    async fn within<T>(&self, span: Duration, future: impl Future<Output = T>) -> Option<T> {
        let until_ns = (self.clock.now() + span).as_nanos();
        match select(pin!(future), self.clock.sleep_until(until_ns)).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        }
    }
}

/// Says how an end ended; gives its figures.
fn settle(end: &mut End, result: Result<Outcome, RunError>) -> Vec<Measure> {
    match result {
        Ok(outcome) => {
            end.status = if outcome.cut_short.is_none() { Status::Ok } else { Status::CutShort };
            end.why = outcome.cut_short.map(|why| why.to_string());
            outcome.measures
        }
        Err(error) => {
            end.why = Some(error.to_string());
            Vec::new()
        }
    }
}
