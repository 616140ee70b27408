//! `uts perf`: what a connection to a server carries.

mod told;

use super::ticks::Ticks;
use super::{Failure, interrupted, limits, properties, reach};
use crate::args::PerfArgs;
use crate::link::{Link, LinkEvent, Transport};
use crate::perf::{self, Control, Report, Request, ToClient, ToServer, Way, agree, measure};
use crate::target::Host;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::timeout;
use told::{Begun, Ended, Told};
use uts::{Connection, FlowOptions, Requirements};
use uts_end::Role;
use uts_end::transport::universal::UniversalSettings;
use uts_traffic::clock::Clock;
use uts_traffic::workload::Workload;

/// Time that a bulk workload lasts unless told otherwise: as with iperf3.
const TIME: Duration = Duration::from_secs(10);

/// Time that the server may take to say what it has seen, and to answer otherwise.
const PATIENCE: Duration = Duration::from_secs(40);

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
    options.service = perf::SERVICE;
    // All that is asked by name counts more.
    options.properties.splice(0..0, natural(&request.workload));
    let mut interrupt = pin!(interrupted());
    let link = reach::connect(transport, &host, &options, &mut interrupt).await?;
    let Some(connection) = link.connection().map(Arc::new) else {
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
    Request { version: perf::VERSION, workload, flows, way, seed: 1 }
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
    connection: Arc<Connection>,
    request: Request,
    told: &'a Told,
    /// Time between figures; zero = never told.
    every: Duration,
}

impl<L: Link> Client<'_, L> {
    async fn measure(&self) -> Result<(), Failure> {
        let broken = |error: io::Error| {
            let why = self.link.broken().map_or_else(|| error.to_string(), |broken| broken.why);
            Failure::Failed(format!("{}: {why}", self.host))
        };
        let mut control = self.control().await?;
        let (clock, wrong_by) = self.agree(&mut control).await.map_err(broken)??;
        self.told.begun(&Begun::new(self.link, &self.connection, &self.request, wrong_by));
        control.say(&ToServer::Start).await.map_err(broken)?;
        let began_ns = clock.now_ns();
        let own = self.watched(clock.clone(), began_ns).await?;
        let took = Duration::from_nanos(clock.now_ns() - began_ns);
        control.say(&ToServer::Done(own.clone())).await.map_err(broken)?;
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the server does not say what it has seen");
        let heard = timeout(PATIENCE, control.hear()).await.unwrap_or_else(|_| Err(late()));
        let ToClient::Done(theirs) = heard.map_err(broken)? else {
            return Err(Failure::Failed(format!("{}: the server does not say what it has seen", self.host)));
        };
        let ended = Ended { request: &self.request, own: &own, theirs: &theirs, took, wrong_by };
        self.told.ended(&ended);
        match ended.cut_short() {
            Some(why) => Err(Failure::Failed(format!("{}: {why}", self.host))),
            None => Ok(()),
        }
    }

    /// The flow for control, which is reliable whatever is measured.
    async fn control(&self) -> Result<Control, Failure> {
        let options = match &self.request.workload {
            Workload::Messages { .. } => FlowOptions::requiring(Requirements::bulk()),
            _ => FlowOptions::default(),
        };
        let flow = self.connection.open_flow(options).await;
        Ok(Control::new(flow.map_err(|error| Failure::Failed(format!("{}: {error}", self.host)))?))
    }

    /// Says what is to be measured, and agrees on a clock. The inner error is why the server does
    /// not want to.
    async fn agree(&self, control: &mut Control) -> io::Result<Result<(Rc<dyn Clock>, Duration), Failure>> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the server does not answer");
        let agreed = async {
            control.say(&ToServer::Request(self.request.clone())).await?;
            match control.hear().await? {
                ToClient::Ready => {}
                ToClient::Refused(why) => {
                    return Ok(Err(Failure::Failed(format!("{}: {why}", self.host))));
                }
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "the server does not answer")),
            }
            let (clock, wrong_by) = agree(control).await?;
            Ok(Ok((Rc::new(clock) as Rc<dyn Clock>, wrong_by)))
        };
        timeout(PATIENCE, agreed).await.unwrap_or_else(|_| Err(late()))
    }

    /// Measures, and tells how it goes meanwhile.
    async fn watched(&self, clock: Rc<dyn Clock>, began_ns: u64) -> Result<Report, Failure> {
        let mut measuring = pin!(measure(&self.connection, Role::Client, &self.request, clock.clone()));
        let mut events = self.link.events();
        let mut ticks = Ticks::every(Some(self.every).filter(|every| !every.is_zero()));
        let way = self.request.way;
        let mut intervals = told::Intervals::new(&self.connection);
        let mut tell = || intervals.next(&self.connection, clock.now_ns() - began_ns);
        loop {
            tokio::select! {
                measured = &mut measuring => {
                    let last = tell();
                    if !self.every.is_zero() && last.is_worth_telling(self.every) {
                        self.told.interval(&last, way);
                    }
                    return measured.map_err(|why| Failure::Failed(format!("{}: {why}", self.host)));
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
