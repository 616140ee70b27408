//! Run of an end, from its arguments to its last line.

use crate::clock::{self, MonotonicClock};
use crate::line::{End, Line, Ready, Status};
use crate::output::{self, Output as Printed};
use crate::spec::TransportSpec;
use crate::{Context, Provide, Role};
use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser};
use core::cell::RefCell;
use core::time::Duration;
use futures_util::future::{Either, select};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::rc::Rc;
use tokio::task::LocalSet;
use tokio::time::timeout;
use uts_traffic::clock::Clock;
use uts_traffic::measure::{Observer, Sample};
use uts_traffic::run::{self as traffic, Outcome, RunOptions};
use uts_traffic::transport::{Session, Transport};
use uts_traffic::workload::{Workload, can_carry};
use uts_units::text::parse_duration;

/// Time that a session may take to close once the workload is done.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// An environment variable: the process whose end is to be this one's, too, however that ends.
pub const PARENT_VARIABLE: &str = "UTS_END_PARENT";

/// One end of a measured run
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// Which end this is
    #[arg(long, value_enum)]
    pub role: Role,
    /// The transport, as {"kind":"tcp","congestion":"cubic"}
    #[arg(long, value_name = "JSON", value_parser = json::<TransportSpec>)]
    pub transport: TransportSpec,
    /// The workload, as {"kind":"bulk","bytes":"16MB"}; the same at both ends
    #[arg(long, value_name = "JSON", value_parser = json::<Workload>)]
    pub workload: Workload,
    /// Where a server listens; port 0 for any free one
    #[arg(long, value_name = "ADDRESS:PORT", required_if_eq("role", "server"))]
    pub listen: Option<SocketAddr>,
    /// Where a client connects to
    #[arg(long, value_name = "ADDRESS:PORT", required_if_eq("role", "client"))]
    pub to: Option<SocketAddr>,
    /// Identity of the server, as it has printed it
    #[arg(long, value_name = "IDENTITY")]
    pub peer: Option<String>,
    /// Where contents and random times come from; the same at both ends
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// End after this long whatever has arrived
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub give_up: Duration,
    /// Sample the transport and what has arrived this often
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_duration)]
    pub sample_every: Duration,
    /// Tell of each packet what happens to it, where the transport can (UTS)
    #[arg(long)]
    pub packets: bool,
    /// Where figures and samples are written, as lines of JSON
    #[arg(long, value_name = "FILE.ndjson")]
    pub out: PathBuf,
}

fn json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

#[derive(Parser)]
#[command(about = "One end of a measured run", version)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

/// The whole of a program that is an end: reads its arguments, runs, and reports errors on standard
/// error. Its status is 0 if the end's file was written, whatever the outcome of the run.
pub fn main(provide: &Provide<'_>) -> ExitCode {
    output::name("uts-end");
    let program = match output::parse::<Program>() {
        Ok(program) => program,
        Err(status) => return status,
    };
    match run(provide, &program.arguments) {
        Ok(_) => output::status(0),
        // It has been noted, and told if that is of use.
        Err(e) if e.is::<output::Lost>() => output::status(0),
        Err(e) => {
            output::fail(format_args!("{e:#}"));
            output::status(1)
        }
    }
}

/// Runs one end, on this thread, and writes its file; gives its last words.
///
/// # Errors
/// If the arguments make no sense, the server cannot listen, or the file cannot be written. If
/// there was no session, or it failed, the file says so.
pub fn run(provide: &Provide<'_>, arguments: &Arguments) -> Result<End> {
    end_with_parent()?;
    arguments.workload.validate().map_err(|why| anyhow::anyhow!("--workload: {why}"))?;
    if arguments.sample_every.is_zero() {
        bail!("--sample-every: is 0");
    }
    let context =
        Context { role: arguments.role, workload: &arguments.workload, peer: arguments.peer.as_deref() };
    let transport =
        provide(&arguments.transport, &context).map_err(|why| anyhow::anyhow!("--transport: {why}"))?;
    can_carry(&arguments.workload, &transport.capabilities())
        .map_err(|why| anyhow::anyhow!("{}: {why}", arguments.transport))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let file =
        File::create(&arguments.out).with_context(|| format!("cannot write {}", arguments.out.display()))?;
    let output =
        Output { out: RefCell::new(BufWriter::with_capacity(256 << 10, file)), error: RefCell::default() };
    let local = LocalSet::new();
    let end = local.block_on(&runtime, one(transport, arguments, &output))?;
    output.line(&Line::End(end.clone()));
    output.finish().with_context(|| format!("cannot write {}", arguments.out.display()))?;
    Ok(end)
}

/// Has the system end this process when the one that has started it ends, if that is wanted.
fn end_with_parent() -> Result<()> {
    let Some(parent) = std::env::var(PARENT_VARIABLE).ok().and_then(|id| id.parse::<i32>().ok()) else {
        return Ok(());
    };
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // It may have ended before.
    if rustix::process::getppid().is_none_or(|now| now.as_raw_nonzero().get() != parent) {
        bail!("the process {parent}, which has started this end, has ended");
    }
    Ok(())
}

/// Takes the lines of the file.
struct Output {
    out: RefCell<BufWriter<File>>,
    error: RefCell<Option<std::io::Error>>,
}

impl Output {
    fn line(&self, line: &Line) {
        let mut out = self.out.borrow_mut();
        let written =
            serde_json::to_writer(&mut *out, line).map_err(Into::into).and_then(|()| out.write_all(b"\n"));
        if let Err(error) = written {
            self.error.borrow_mut().get_or_insert(error);
        }
    }

    fn finish(self) -> std::io::Result<()> {
        match self.error.into_inner() {
            Some(error) => Err(error),
            None => self.out.into_inner().flush(),
        }
    }
}

impl Observer for Output {
    fn sample(&self, sample: Sample) {
        self.line(&Line::Sample(sample));
    }
}

/// One end, from the first packet to the last.
async fn one(transport: Rc<dyn Transport>, arguments: &Arguments, output: &Output) -> Result<End> {
    let clock = MonotonicClock::new().context("no timer")?;
    let began_ns = clock.now_ns();
    let mut end = End {
        role: arguments.role.name().to_owned(),
        status: Status::Failed,
        why: None,
        connect_s: None,
        wall_s: 0.0,
        cpu_s: 0.0,
        sent_packets: None,
        repeated_packets: None,
    };
    let meeting = meet(&*transport, arguments);
    let session = match meeting.await? {
        Ok(session) => session,
        Err(why) => {
            end.why = Some(why);
            return Ok(end);
        }
    };
    if arguments.packets {
        session.record_packets();
    }
    let (start_ns, start_cpu_ns) = (clock.now_ns(), clock::cpu_ns());
    if arguments.role == Role::Client {
        end.connect_s = Some((start_ns - began_ns) as f64 / 1e9);
    }
    let result = carry(&*transport, &*session, &clock, arguments, output).await;
    end.wall_s = (clock.now_ns() - start_ns) as f64 / 1e9;
    end.cpu_s = (clock::cpu_ns() - start_cpu_ns) as f64 / 1e9;
    traffic::sample_now(&*session, &clock, output);
    if let Some(status) = session.status() {
        (end.sent_packets, end.repeated_packets) = (status.sent_packets, status.repeated_packets);
    }
    match result {
        Ok(outcome) => {
            end.status = if outcome.cut_short.is_none() { Status::Ok } else { Status::CutShort };
            end.why = outcome.cut_short.map(|why| why.to_string());
            outcome.measures.into_iter().for_each(|measure| output.line(&Line::Measure(measure)));
        }
        Err(error) => end.why = Some(error.to_string()),
    }
    // Whether the peer takes its leave in time changes nothing of what was measured.
    let _ = timeout(CLOSE_MAX, session.close()).await;
    traffic::sample_now(&*session, &clock, output);
    Ok(end)
}

/// The session, or why there is none.
async fn meet(transport: &dyn Transport, arguments: &Arguments) -> Result<Result<Rc<dyn Session>, String>> {
    let after = arguments.give_up;
    let in_time = |what: &str| format!("{what} within {} s", after.as_secs_f64());
    match arguments.role {
        Role::Server => {
            let at = arguments.listen.context("--listen is missing")?;
            let mut listener =
                transport.listen(at).await.with_context(|| format!("cannot listen at {at}"))?;
            let ready = Ready { address: listener.address(), identity: transport.identity() };
            Printed::Out.line(&serde_json::to_string(&ready)?)?;
            Ok(match timeout(after, listener.accept()).await {
                Ok(session) => session.map_err(|e| e.to_string()),
                Err(_) => Err(in_time("no client came")),
            })
        }
        Role::Client => {
            let to = arguments.to.context("--to is missing")?;
            Ok(match timeout(after, transport.connect(to)).await {
                Ok(session) => session.map_err(|e| e.to_string()),
                Err(_) => Err(in_time("no session")),
            })
        }
    }
}

/// The workload, and the samples beside it.
async fn carry(
    transport: &dyn Transport,
    session: &dyn Session,
    clock: &dyn Clock,
    arguments: &Arguments,
    output: &Output,
) -> Result<Outcome, traffic::RunError> {
    let Arguments { workload, seed, give_up, sample_every, .. } = arguments;
    let capabilities = transport.capabilities();
    let options = RunOptions { capabilities, seed: *seed, give_up: *give_up, sample_every: *sample_every };
    let work = async {
        match arguments.role {
            Role::Client => traffic::drive(workload, session, clock, &options, output).await,
            Role::Server => traffic::serve(workload, session, clock, &options, output).await,
        }
    };
    let watch = traffic::watch(session, clock, *sample_every, output);
    match select(pin!(work), pin!(watch)).await {
        Either::Left((result, _)) => result,
        Either::Right(((), work)) => work.await,
    }
}
