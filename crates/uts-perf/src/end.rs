//! One end of a measurement.

use crate::control::{LASTS_MAX, Request, Way};
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;
use uts::{Connection, FlowOptions, Requirements};
use uts_end::Role;
use uts_end::transport::universal::{Opened, UniversalSession};
use uts_traffic::clock::Clock;
use uts_traffic::measure::Measure;
use uts_traffic::run::{self as traffic, Outcome, RunError, RunOptions};
use uts_traffic::workload::Workload;

/// Time after its planned end at which a workload of a given time is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Results of one flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Its figures, of `uts_traffic::run`.
    pub measures: Vec<Measure>,
    /// Why it ended before its time, if it did.
    pub cut_short: Option<String>,
}

/// Results of one direction, as an end has seen it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Half {
    /// Of each flow.
    pub flows: Vec<FlowReport>,
}

impl FlowReport {
    /// A figure, if there is one of that name.
    pub fn value(&self, name: &str) -> Option<f64> {
        let named = self.measures.iter().find(|measure| measure.name == name);
        named.map(|measure| measure.value).filter(|value| value.is_finite())
    }
}

impl Half {
    /// A figure of each flow that has it.
    pub fn values(&self, name: &str) -> impl Iterator<Item = f64> {
        self.flows.iter().filter_map(move |flow| flow.value(name))
    }

    /// The sum of a figure over all flows; `None` if no flow has it.
    pub fn sum(&self, name: &str) -> Option<f64> {
        self.values(name).reduce(|a, b| a + b)
    }

    /// Why the first flow that was cut short was.
    pub fn cut_short(&self) -> Option<&str> {
        self.flows.iter().find_map(|flow| flow.cut_short.as_deref())
    }
}

/// Report of an end about a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Of the workload that it drove: that sent, or asked.
    pub driven: Option<Half>,
    /// Of the workload that the peer drove.
    pub served: Option<Half>,
    /// Packets sent in all.
    pub packets_sent: u64,
    /// Packets whose content had been sent before.
    pub packets_repeated: u64,
}

/// One end of a measurement.
pub(crate) struct End {
    connection: Connection,
    session: Rc<UniversalSession>,
    request: Request,
    role: Role,
}

impl End {
    /// Takes all flows of the connection from now on. A flow for messages is opened, since its
    /// profile has to be agreed on with the peer: what is sent before that waits for it. To be
    /// called within a `LocalSet` of a tokio runtime, and a round trip before the measurement.
    ///
    /// # Errors
    /// What keeps it from being measured.
    pub async fn prepare(connection: Connection, role: Role, request: Request) -> Result<Self, String> {
        let (opened, own) = match &request.workload {
            Workload::Messages { deadline, .. } if drives(role, request.way) => {
                let options = FlowOptions::requiring(Requirements::timely(*deadline));
                let own = connection.open_flow(options).await.map_err(|error| error.to_string())?;
                (Opened::Messages, Some(own))
            }
            Workload::Messages { .. } => (Opened::Messages, None),
            _ => (Opened::Streams, None),
        };
        let session = Rc::new(UniversalSession::beside(connection.clone(), role, own, opened));
        Ok(End { connection, session, request, role })
    }

    /// Does this end's part of what was asked. To be called once.
    ///
    /// # Errors
    /// What keeps it from being done at all, or that wrong content has come.
    pub async fn measure(&self, clock: &Rc<dyn Clock>) -> Result<Report, String> {
        let before = self.connection.stats();
        let (driven, served) = tokio::join!(
            async {
                let driven = self.half(true, clock).await;
                self.session.finish_messages().await;
                driven
            },
            self.half(false, clock),
        );
        let after = self.connection.stats();
        Ok(Report {
            driven: driven?,
            served: served?,
            packets_sent: after.packets_sent - before.packets_sent,
            packets_repeated: after.chunks_repeated - before.chunks_repeated,
        })
    }

    /// All flows of one direction, at once.
    async fn half(&self, is_driver: bool, clock: &Rc<dyn Clock>) -> Result<Option<Half>, String> {
        let peer = if self.role == Role::Client { Role::Server } else { Role::Client };
        if !drives(if is_driver { self.role } else { peer }, self.request.way) {
            return Ok(None);
        }
        let mut flows = JoinSet::new();
        for _ in 0..self.request.flows {
            let (session, clock, request) = (self.session.clone(), clock.clone(), self.request.clone());
            flows.spawn_local(async move { one(&session, &*clock, &request, is_driver).await });
        }
        let mut half = Half::default();
        while let Some(flow) = flows.join_next().await {
            let outcome = flow.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
            let cut_short = outcome.cut_short.map(|why| why.to_string());
            half.flows.push(FlowReport { measures: outcome.measures, cut_short });
        }
        Ok(Some(half))
    }
}

/// True if an end sends, or asks.
fn drives(role: Role, way: Way) -> bool {
    match role {
        Role::Client => way.is_forward(),
        Role::Server => way.is_reverse(),
    }
}

async fn one(
    session: &UniversalSession,
    clock: &dyn Clock,
    request: &Request,
    is_driver: bool,
) -> Result<Outcome, RunError> {
    let workload = &request.workload;
    let options = RunOptions {
        capabilities: UniversalSession::CAPABILITIES,
        seed: request.seed,
        give_up: workload.lasts().map_or(LASTS_MAX, |lasts| lasts + PATIENCE),
        sample_every: LASTS_MAX,
    };
    if is_driver {
        traffic::drive(workload, session, clock, &options, &()).await
    } else {
        traffic::serve(workload, session, clock, &options, &()).await
    }
}
