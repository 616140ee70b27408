//! `uts perf`: what a connection to a server carries.

mod told;

use super::ticks::Ticks;
use super::{Failure, interrupted, limits, properties, reach};
use crate::args::PerfArgs;
use crate::link::{Link, LinkEvent, Transport};
use crate::target::Host;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::LocalSet;
use told::{Begun, Told};
use uts::Connection;
use uts_end::clock::MonotonicClock;
use uts_end::transport::universal::UniversalSettings;
use uts_perf::client::Running;
use uts_perf::{Intervals, MeasureError, Measurement, Report, Request, Way};
use uts_traffic::workload::Workload;

/// Time that a bulk workload lasts unless told otherwise: as with iperf3.
const TIME: Duration = Duration::from_secs(10);

/// Runs `uts perf`.
///
/// # Errors
/// See [`Failure`].
pub async fn run<T: Transport>(transport: &T, args: &PerfArgs) -> Result<(), Failure> {
    let mut host = reach::host(&args.host)?;
    let request = request(args);
    request.check().map_err(Failure::Usage)?;
    let mut asked = limits("--bitrate", &["maxSendRate"], args.bitrate.as_deref())?;
    asked.extend(properties(&args.wanted)?);
    let mut options = args.reach.options(&mut host, asked, true)?;
    options.service = uts_perf::SERVICE;
    // All that is asked by name counts more.
    options.properties.splice(0..0, natural(&request.workload));
    let mut interrupt = pin!(interrupted());
    let link = reach::connect(transport, &host, &options, &mut interrupt).await?;
    let Some(connection) = link.connection() else {
        return Err(Failure::Failed(format!("{host}: nothing to be measured is under the connection")));
    };
    let told = Told::new(args);
    let client = Client { host: &host, link: &link, connection, request, told: &told, every: args.interval };
    let local = LocalSet::new();
    let ended = tokio::select! {
        ended = local.run_until(client.measure()) => ended,
        () = &mut interrupt => Err(Failure::interrupted()),
    };
    link.close(0, "done").await;
    ended
}

/// The measurement that is asked for.
fn request(args: &PerfArgs) -> Request {
    let duration = args.time.unwrap_or(TIME);
    let mut flows = args.parallel;
    let workload = if args.messages {
        Workload::Messages { every: args.every, bytes: args.length, duration, deadline: args.deadline }
    } else if let Some(count) = args.requests {
        let concurrency = std::mem::replace(&mut flows, 1);
        Workload::Requests { count, request_bytes: args.request, answer_bytes: args.answer, concurrency }
    } else {
        let bytes = args.bytes.map(|bytes| bytes.div_ceil(u64::from(flows.max(1))));
        Workload::Bulk { bytes, duration: bytes.is_none().then_some(duration) }
    };
    let way = match (args.reverse, args.bidir) {
        (_, true) => Way::Both,
        (true, false) => Way::Reverse,
        (false, false) => Way::Forward,
    };
    Request { version: uts_perf::VERSION, workload, flows, way, seed: 1 }
}

/// Properties that make what copies ask what an application with such a workload would ask, in
/// experiments as well.
fn natural(workload: &Workload) -> Vec<(String, String)> {
    let asked = UniversalSettings::default().requirements(workload);
    // Properties are checked where they are given: here there are none.
    asked.map(|requirements| requirements.settings()).unwrap_or_default()
}

struct Client<'a, L> {
    host: &'a Host,
    link: &'a L,
    connection: Connection,
    request: Request,
    told: &'a Told,
    /// Time between figures; zero = never told.
    every: Duration,
}

impl<L: Link> Client<'_, L> {
    async fn measure(&self) -> Result<(), Failure> {
        let clock = MonotonicClock::new().map_err(|error| Failure::Failed(error.to_string()))?;
        let asked = Measurement::ask(&self.connection, self.request.clone(), Rc::new(clock)).await;
        let measurement = asked.map_err(|error| self.failed(error))?;
        self.told.begun(&Begun::new(self.link, &self.connection, &self.request, measurement.wrong_by()));
        let running = measurement.start().await.map_err(|error| self.failed(error))?;
        let own = self.watched(&running).await.map_err(|error| self.failed(error))?;
        let ended = running.end(own).await.map_err(|error| self.failed(error))?;
        self.told.ended(&ended);
        match ended.measured.cut_short() {
            Some(why) => Err(Failure::Failed(format!("{}: {why}", self.host))),
            None => Ok(()),
        }
    }

    fn failed(&self, error: MeasureError) -> Failure {
        let broken = match &error {
            MeasureError::Control(_) => self.link.broken(),
            _ => None,
        };
        let why = broken.map_or_else(|| error.to_string(), |broken| broken.why);
        Failure::Failed(format!("{}: {why}", self.host))
    }

    /// Measures, and tells how it goes meanwhile.
    async fn watched(&self, running: &Running) -> Result<Report, MeasureError> {
        let mut measuring = pin!(running.measure());
        let mut events = self.link.events();
        let mut ticks = Ticks::every(Some(self.every).filter(|every| !every.is_zero()));
        let way = self.request.way;
        let mut intervals = Intervals::new(&self.connection);
        let mut tell = || intervals.next(&self.connection, running.elapsed());
        loop {
            tokio::select! {
                measured = &mut measuring => {
                    let last = tell();
                    if !self.every.is_zero() && last.is_worth_telling(self.every) {
                        self.told.interval(&last, way);
                    }
                    return measured;
                }
                () = ticks.next() => self.told.interval(&tell(), way),
                Some(event) = events.recv() => match event {
                    LinkEvent::Exchange(step) => self.told.exchange(&step),
                    event => if let Some((kind, line)) = event.notice() {
                        self.told.notice(kind, &line);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;
    use uts::Requirements;

    fn args(line: &str) -> PerfArgs {
        let words = ["uts", "perf", "host"].into_iter().chain(line.split_whitespace());
        match Args::try_parse_from(words).unwrap().command {
            Command::Perf(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_say_what_is_measured() {
        let seconds = Duration::from_secs;
        let bulk = |bytes, duration| Workload::Bulk { bytes, duration };
        let plain = request(&args(""));
        assert_eq!(
            (plain.workload, plain.flows, plain.way),
            (bulk(None, Some(seconds(10))), 1, Way::Forward)
        );
        let parallel = request(&args("-t 3 -P 4 -R"));
        assert_eq!((parallel.workload, parallel.flows), (bulk(None, Some(seconds(3))), 4));
        assert_eq!(parallel.way, Way::Reverse);
        assert_eq!(request(&args("-n 10B -P 3 --bidir")).workload, bulk(Some(4), None));
        let asked = request(&args("--requests 7 -P 4"));
        assert_eq!(asked.flows, 1);
        assert!(matches!(asked.workload, Workload::Requests { count: 7, concurrency: 4, .. }));
        for wrong in ["--messages -P 2", "-t 1 -n 5B", "--reverse --bidir", "--requests 0", "-P 129"] {
            let words = ["uts", "perf", "host"].into_iter().chain(wrong.split_whitespace());
            assert!(Args::try_parse_from(words).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_workload_asks_for_what_it_does_in_experiments_and_at_a_server() {
        for (line, expected) in [
            ("--messages --deadline 80ms", Requirements::timely(Duration::from_millis(80))),
            ("--requests 7", Requirements::interactive()),
            ("-t 3", Requirements::bulk()),
        ] {
            let mut requirements = Requirements::bulk();
            for (name, value) in natural(&request(&args(line)).workload) {
                requirements.set(&name, &value).unwrap();
            }
            assert_eq!(requirements, expected, "{line}");
        }
    }
}
