//! `uts cp`.

use super::meter::Meter;
use super::{Failure, interrupted, properties};
use crate::args::CpArgs;
use crate::link::{ConnectOptions, Link, ServerTrust, Transport};
use crate::target::Job;
use crate::ui::{self, Clock, Done, Start, Ui};
use std::future::Future;
use std::io::IsTerminal;
use std::sync::Arc;
use uts::files::{CopyOptions, FileError, Report, get, put};

/// What is told when the user interrupts.
pub const INTERRUPTED: &str = "interrupted; run the same command again to continue";

/// Runs `uts cp`.
///
/// # Errors
/// See [`Failure`].
pub async fn run<T: Transport>(transport: &T, args: &CpArgs) -> Result<(), Failure> {
    let ui = ui::choose(args.json, args.quiet);
    let result = copy(transport, args, ui.clone(), interrupted()).await;
    if let Some(line) = result.as_ref().err().and_then(Failure::line) {
        ui.failed(line);
    }
    result
}

/// Copies until done or `interrupt` ends.
pub(crate) async fn copy<T: Transport>(
    transport: &T,
    args: &CpArgs,
    ui: Arc<dyn Ui>,
    interrupt: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let job = Job::parse(&args.paths).map_err(Failure::Usage)?;
    let options = connect_options(args)?;
    tokio::pin!(interrupt);
    let link = tokio::select! {
        link = transport.connect(job.host(), &options) => link.map_err(Failure::Failed)?,
        () = &mut interrupt => return Err(Failure::Interrupted("interrupted".into())),
    };
    if let Some(file) = &args.trace {
        link.trace(file).map_err(|why| Failure::Failed(format!("--trace {}: {why}", file.display())))?;
    }
    let host = job.host().to_string();
    let (address, fingerprint) = link.peer();
    let fingerprint = fingerprint.unwrap_or_default();
    ui.start(&Start { command: "cp", address, fingerprint, subject: describe(&job), served: None });

    let clock = Clock::start();
    let meter = Meter::new(link.clone(), ui.clone(), None);
    let telling = meter.run();
    let outcome = tokio::select! {
        outcome = perform(&link, job, args, meter.clone()) => Some(outcome),
        () = &mut interrupt => None,
    };
    let seconds = clock.seconds();
    telling.abort();
    let Some(outcome) = outcome else {
        link.close(1, "interrupted by the user").await;
        return Err(Failure::Interrupted(INTERRUPTED.into()));
    };
    let report = match outcome {
        Ok(report) => report,
        Err(error) => {
            link.close(2, "the copy failed").await;
            return Err(Failure::Failed(named(&host, &error)));
        }
    };
    meter.sample();
    let telemetry = meter.telemetry();
    link.close(0, "done").await;
    finish(&host, &report, seconds, meter.files_total(), telemetry, &*ui)
}

/// An error with the server that it is about; those of files name the file.
fn named(host: &str, error: &FileError) -> String {
    if error.fault().is_some() { error.to_string() } else { format!("{host}: {error}") }
}

fn connect_options(args: &CpArgs) -> Result<ConnectOptions, Failure> {
    let trust = match (&args.pin, &args.ca) {
        (Some(pin), _) => {
            let parsed = pin.parse::<uts::Fingerprint>();
            parsed.map_err(|error| Failure::Usage(format!("--pin: {error}")))?;
            match (args.remember, &args.known_hosts) {
                (true, file) => ServerTrust::PinKept(pin.clone(), file.clone()),
                (false, None) => ServerTrust::Pin(pin.clone()),
                (false, Some(_)) => {
                    let why = "--known-hosts: with --pin it is where --remember keeps the key; add that, or leave one out";
                    return Err(Failure::Usage(why.into()));
                }
            }
        }
        (None, Some(ca)) => ServerTrust::Ca(ca.clone()),
        (None, None) => ServerTrust::KnownHosts(args.known_hosts.clone()),
    };
    Ok(ConnectOptions {
        trust,
        key: args.key.clone(),
        server_name: args.server_name.clone(),
        properties: properties(&args.wanted)?,
        interactive: !args.json
            && !args.quiet
            && std::io::stdin().is_terminal()
            && std::io::stderr().is_terminal(),
        accept_new: args.accept_new,
    })
}

async fn perform<L: Link>(
    link: &L,
    job: Job,
    args: &CpArgs,
    meter: Arc<Meter<L>>,
) -> Result<Report, FileError> {
    let options = CopyOptions {
        recursive: args.recursive,
        links: args.links,
        preserve_mode: args.preserve_mode,
        progress: meter,
        ..CopyOptions::default()
    };
    match job {
        Job::Put { sources, destination, .. } => put(link.flows(), &sources, &destination, &options).await,
        Job::Get { sources, destination, .. } => get(link.flows(), &sources, &destination, &options).await,
    }
}

fn finish(
    host: &str,
    report: &Report,
    seconds: f64,
    files_total: u64,
    telemetry: crate::link::Telemetry,
    ui: &dyn Ui,
) -> Result<(), Failure> {
    let failures = report.failed;
    let done = Done {
        files: report.files_copied + report.files_already_there,
        files_total,
        files_already_there: report.files_already_there,
        failures,
        bytes: report.bytes,
        bytes_carried: report.bytes_carried,
        seconds,
        hash: report.hash(),
        telemetry,
    };
    match &report.broken {
        Some(error) => {
            let why = named(host, error);
            Err(Failure::Failed(format!("{why}; run the same command again to continue")))
        }
        None => {
            ui.done(&done);
            if failures > 0 { Err(Failure::Told) } else { Ok(()) }
        }
    }
}

fn describe(job: &Job) -> String {
    match job {
        Job::Put { sources, host, .. } => format!("{} to {host}", count(sources.len())),
        Job::Get { sources, host, .. } => format!("{} from {host}", count(sources.len())),
    }
}

fn count(sources: usize) -> String {
    if sources == 1 { "1 source".into() } else { format!("{sources} sources") }
}
