//! The reports of both ends of a measurement, beside each other.

use crate::control::Request;
use crate::end::{Half, Report};
use std::time::Duration;

/// Measurement that was made, with the reports of both ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Request of the client.
    pub request: Request,
    /// Report of the client; empty at a server that has not received it.
    pub client: Report,
    /// Report of the server.
    pub server: Report,
}

/// Measurement as its client knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// Measurement, with the reports of both ends.
    pub measured: Measured,
    /// Time that it took the client.
    pub took: Duration,
    /// By how much the clocks of the ends may disagree.
    pub wrong_by: Duration,
}

/// One direction of a measurement, as both ends have seen it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// `out` or `in`, for the client.
    pub direction: &'static str,
    /// Report of the end that sent, or asked.
    pub driver: &'a Report,
    /// Figures of that end.
    pub driven: &'a Half,
    /// Figures of the other end.
    pub served: &'a Half,
}

impl Measured {
    /// The directions that both ends tell of.
    pub fn seen(&self) -> impl Iterator<Item = Seen<'_>> {
        let ends = [("out", &self.client, &self.server), ("in", &self.server, &self.client)];
        ends.into_iter().filter_map(|(direction, driver, receiver)| {
            let (driven, served) = (driver.driven.as_ref()?, receiver.served.as_ref()?);
            Some(Seen { direction, driver, driven, served })
        })
    }

    /// Why a direction ended before its time, if one did, or is not told of.
    pub fn cut_short(&self) -> Option<String> {
        let way = self.request.way;
        let wanted = usize::from(way.is_forward()) + usize::from(way.is_reverse());
        if self.seen().count() < wanted {
            return Some("the server does not say what it has seen".into());
        }
        self.seen().find_map(|seen| {
            let why = seen.driven.cut_short().or(seen.served.cut_short())?;
            Some(format!("{}: {why}", seen.direction))
        })
    }
}

impl Ended {
    /// Time until all of a direction had arrived, or for which it was to go on.
    pub fn lasted(&self, seen: &Seen<'_>) -> Duration {
        let completions = seen.served.values("completion").chain(seen.driven.values("completion"));
        let longest = completions.fold(None, |longest: Option<f64>, s| Some(longest.map_or(s, |l| l.max(s))));
        let whole = longest.and_then(|s| Duration::try_from_secs_f64(s).ok());
        whole.or(self.measured.request.workload.lasts()).unwrap_or(self.took)
    }
}
