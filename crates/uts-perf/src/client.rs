//! The client's end of a measurement: it asks ([`Measurement::ask`]), starts
//! ([`Measurement::start`]), measures ([`Running::measure`]), and hears what the server has seen
//! ([`Running::end`]).

use crate::clock::agree;
use crate::control::{Control, Request, ToClient, ToServer};
use crate::end::{End, Report};
use crate::outcome::{Ended, Measured};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use uts::{Connection, FlowOptions, Requirements};
use uts_end::Role;
use uts_traffic::clock::Clock;
use uts_traffic::workload::Workload;

/// Time that the server may take for each of its messages.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// Reason why a measurement has no result.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The server does not want to, in its words.
    #[error("{0}")]
    Refused(String),
    /// The ends do not speak with each other any more, or the server says something else.
    #[error("{0}")]
    Control(#[from] io::Error),
    /// The workload cannot be carried, or wrong content has come.
    #[error("{0}")]
    Failed(String),
}

/// A measurement that a server is ready for.
pub struct Measurement {
    end: End,
    request: Request,
    control: Control,
    clock: Rc<dyn Clock>,
    wrong_by: Duration,
}

impl Measurement {
    /// Says what is to be measured, and agrees on a clock with the server; `clock` is the client's
    /// own. To be called within a `LocalSet` of a tokio runtime.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub async fn ask(
        connection: &Connection,
        request: Request,
        clock: Rc<dyn Clock>,
    ) -> Result<Self, MeasureError> {
        let mut control = control(connection, &request.workload).await?;
        control.say(&ToServer::Request(request.clone())).await?;
        match control.hear().await? {
            ToClient::Ready => {}
            ToClient::Refused(why) => return Err(MeasureError::Refused(why)),
            _ => return Err(unexpected("the server does not answer")),
        }
        let end = End::prepare(connection.clone(), Role::Client, request.clone()).await;
        let end = end.map_err(MeasureError::Failed)?;
        let (clock, wrong_by) = agree(&mut control, clock).await?;
        Ok(Measurement { end, request, control, clock: Rc::new(clock), wrong_by })
    }

    /// By how much the clocks of the ends may disagree: by half of a round trip.
    pub fn wrong_by(&self) -> Duration {
        self.wrong_by
    }

    /// Tells the server to begin.
    ///
    /// # Errors
    /// Those of the flow.
    pub async fn start(mut self) -> Result<Running, MeasureError> {
        self.control.say(&ToServer::Start).await?;
        let began_ns = self.clock.now_ns();
        Ok(Running { of: self, began_ns })
    }
}

/// A measurement that has begun.
pub struct Running {
    of: Measurement,
    began_ns: u64,
}

impl Running {
    /// Time since its begin.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.of.clock.now_ns().saturating_sub(self.began_ns))
    }

    /// Does the client's part. To be called once, within a `LocalSet` of a tokio runtime.
    ///
    /// # Errors
    /// [`MeasureError::Failed`]. A workload that is cut short is none: its report says so.
    pub async fn measure(&self) -> Result<Report, MeasureError> {
        self.of.end.measure(&self.of.clock).await.map_err(MeasureError::Failed)
    }

    /// Says what the client has seen, and hears what the server has.
    ///
    /// # Errors
    /// [`MeasureError::Control`].
    pub async fn end(self, client: Report) -> Result<Ended, MeasureError> {
        let took = self.elapsed();
        let Measurement { request, mut control, wrong_by, .. } = self.of;
        control.say(&ToServer::Done(client.clone())).await?;
        let ToClient::Done(server) = control.hear().await? else {
            return Err(unexpected("the server does not say what it has seen"));
        };
        Ok(Ended { measured: Measured { request, client, server }, took, wrong_by })
    }
}

/// The flow for control, which is reliable whatever is measured.
async fn control(connection: &Connection, workload: &Workload) -> Result<Control, MeasureError> {
    let options = match workload {
        Workload::Messages { .. } => FlowOptions::requiring(Requirements::bulk()),
        _ => FlowOptions::default(),
    };
    let flow = connection.open_flow(options).await;
    Ok(Control::new(flow.map_err(|error| MeasureError::Failed(error.to_string()))?, PATIENCE))
}

fn unexpected(what: &str) -> MeasureError {
    io::Error::new(io::ErrorKind::InvalidData, what).into()
}
