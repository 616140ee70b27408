//! Recorder of a run while it runs, and the files that it writes.

use super::case::{Plan, SimCase, SimError};
use super::uts::Prepare;
use super::world::{Port, World};
use core::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use uts_end::Role;
use uts_engine::{ConnectionHandle, TraceKind, TraceRow};
use uts_path::{Applied, Direction, Passage};
use uts_qlog::{Qlog, Vantage};
use uts_sim::host::SenderState;
use uts_sim::network::AppId;
use uts_sim::topology::{PathId, Topology};
use uts_traffic::measure::{Observer, Sample};

/// After this many instants the recorder is told what has gathered.
pub(super) const EVERY_STEPS: u32 = 1 << 10;

/// Takes what happens in a run, in stretches of time. Within each kind of one flow or link all is
/// in order. Flows and links are named by their places in the case.
pub trait Recorder {
    /// A sample of an end of a flow.
    fn sample(&mut self, flow: usize, role: Role, sample: &Sample) {
        let _ = (flow, role, sample);
    }

    /// Takes an event of a packet that an end of a flow had sent, if
    /// [`SimRecord::packets`](super::SimRecord::packets) asks for it. Rows of packets with data
    /// that were acknowledged or lost also say what was sent in them. `state` is what the end went
    /// by once it had done what the event made due.
    fn packet(&mut self, flow: usize, role: Role, row: &TraceRow, state: &SenderState) {
        let _ = (flow, role, row, state);
    }

    /// Takes the passage of a packet through a link's queue, if
    /// [`SimRecord::queues`](super::SimRecord::queues) asks for it.
    fn passage(&mut self, link: usize, direction: Direction, passage: &Passage) {
        let _ = (link, direction, passage);
    }

    /// A change that a link's schedule has made.
    fn applied(&mut self, link: usize, change: &Applied) {
        let _ = (link, change);
    }

    /// True if the run is to end at once.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Takes nothing.
impl Recorder for () {}

type Samples = Rc<RefCell<Vec<(usize, Role, Sample)>>>;

/// Takes the samples of an end.
pub(super) struct FlowObserver {
    samples: Samples,
    flow: usize,
    role: Role,
}

impl Observer for FlowObserver {
    fn sample(&self, sample: Sample) {
        self.samples.borrow_mut().push((self.flow, self.role, sample));
    }
}

/// An endpoint of which packets are told, or a log is written.
struct Endpoint {
    flow: usize,
    role: Role,
    app: AppId,
    /// Rows of sent packets with data that are under way, by connection and packet number.
    sent: HashMap<(ConnectionHandle, u64), TraceRow>,
}

/// All that is recorded of a run.
pub(super) struct Records {
    samples: Samples,
    packets: bool,
    /// Links of which passages are told.
    queues: Vec<(usize, PathId)>,
    links: Vec<PathId>,
    endpoints: Rc<RefCell<Vec<Endpoint>>>,
    /// Logs that wait for their endpoint, by flow; client, then server.
    logs: Vec<[Rc<RefCell<Option<Qlog>>>; 2]>,
    pcap: Option<PathBuf>,
    qlog: Option<PathBuf>,
}

impl Records {
    /// Opens the files, and has the world remember what will be told.
    pub fn begin(case: &SimCase, plan: &Plan, world: &World) -> Result<Self, SimError> {
        let mut network = world.network.borrow_mut();
        let mut queues = Vec::new();
        for (n, (id, link)) in plan.links.iter().zip(&case.links).enumerate() {
            if case.record.queues && !link.name.is_empty() {
                network.record_passages(*id, true);
                queues.push((n, *id));
            }
        }
        if let Some(directory) = &case.record.pcap {
            let mut hosts: Vec<&String> = case.flows.iter().flat_map(|flow| [&flow.from, &flow.to]).collect();
            hosts.sort_unstable();
            hosts.dedup();
            for host in hosts {
                let path = directory.join(format!("{host}.pcap"));
                let address = Topology::address(plan.nodes[host]);
                let begun = network.capture(address, create(&path)?);
                begun.map_err(|error| SimError::Write { path, error })?;
            }
        }
        let mut logs = Vec::new();
        for flow in &case.flows {
            let open = |vantage: Vantage, role: Role| {
                let Some(directory) = &case.record.qlog else { return Ok(Rc::default()) };
                let name = format!("{}.{}", flow.name, role.name());
                let path = directory.join(format!("{name}.sqlog"));
                let log = Qlog::new(create(&path)?, &format!("{name} in virtual time"), &name, vantage);
                let log = log.map_err(|error| SimError::Write { path, error })?;
                Ok(Rc::new(RefCell::new(Some(log))))
            };
            let is_uts = flow.transport.kind == "uts";
            logs.push(if is_uts {
                [open(Vantage::Client, Role::Client)?, open(Vantage::Server, Role::Server)?]
            } else {
                Default::default()
            });
        }
        Ok(Records {
            samples: Rc::default(),
            packets: case.record.packets,
            queues,
            links: plan.links.clone(),
            endpoints: Rc::default(),
            logs,
            pcap: case.record.pcap.clone(),
            qlog: case.record.qlog.clone(),
        })
    }

    /// Takes the samples of an end.
    pub fn observer(&self, flow: usize, role: Role) -> FlowObserver {
        FlowObserver { samples: self.samples.clone(), flow, role }
    }

    /// Function that prepares the endpoint of an end.
    pub fn prepare(&self, flow: usize, role: Role) -> Box<Prepare> {
        let log = self.logs[flow][usize::from(role == Role::Server)].clone();
        let (endpoints, packets) = (self.endpoints.clone(), self.packets);
        Box::new(move |app, host| {
            if packets {
                host.keep_packets();
            }
            if let Some(log) = log.take() {
                host.record(log);
            }
            endpoints.borrow_mut().push(Endpoint { flow, role, app, sent: HashMap::new() });
        })
    }

    /// Tells what has gathered.
    pub fn tell(&self, world: &World, recorder: &mut dyn Recorder) {
        for (flow, role, sample) in self.samples.take() {
            recorder.sample(flow, role, &sample);
        }
        let mut network = world.network.borrow_mut();
        for (link, id) in self.links.iter().enumerate() {
            while let Some(change) = network.poll_applied(*id) {
                recorder.applied(link, &change);
            }
        }
        for (link, id) in &self.queues {
            for direction in Direction::ALL {
                while let Some(passage) = network.poll_passage(*id, direction) {
                    recorder.passage(*link, direction, &passage);
                }
            }
        }
        if self.packets {
            for endpoint in self.endpoints.borrow_mut().iter_mut() {
                // The endpoint then counts as touched, which changes nothing: it has nothing new to
                // send.
                let Port::Uts(host) = network.app_mut(endpoint.app) else { continue };
                for (handle, row, state) in host.take_packets_and_states() {
                    let row = endpoint.complete(handle, row);
                    recorder.packet(endpoint.flow, endpoint.role, &row, &state);
                }
            }
        }
    }

    /// Ends the files.
    pub fn finish(&self, world: &World) -> Result<(), SimError> {
        let mut network = world.network.borrow_mut();
        let directory = |path: &Option<PathBuf>| path.clone().unwrap_or_default();
        for endpoint in self.endpoints.borrow().iter() {
            let Port::Uts(host) = network.app_mut(endpoint.app) else { continue };
            let finished = host.finish_record();
            finished.map_err(|error| SimError::Write { path: directory(&self.qlog), error })?;
        }
        let finished = network.finish_captures();
        finished.map_err(|error| SimError::Write { path: directory(&self.pcap), error })
    }
}

impl Endpoint {
    /// Adds to a row what was sent in the packet that it is about.
    fn complete(&mut self, handle: ConnectionHandle, row: TraceRow) -> TraceRow {
        match row.kind {
            TraceKind::Sent | TraceKind::Repeated => {
                // Others need not be acknowledged at all.
                if row.data.is_some() {
                    self.sent.insert((handle, row.number), row);
                }
                row
            }
            TraceKind::Acknowledged | TraceKind::Lost => match self.sent.remove(&(handle, row.number)) {
                Some(sent) => TraceRow { at: row.at, kind: row.kind, ..sent },
                None => row,
            },
            TraceKind::Received => row,
        }
    }
}

fn create(path: &Path) -> Result<Box<dyn Write>, SimError> {
    match File::create(path) {
        Ok(file) => Ok(Box::new(BufWriter::with_capacity(1 << 18, file))),
        Err(error) => Err(SimError::Write { path: path.to_owned(), error }),
    }
}
