//! A copy over one connection, and over another when that is lost.

use super::super::Failure;
use super::super::meter::Meter;
use super::super::patience::Patience;
use super::super::reach::named;
use crate::args::CpArgs;
use crate::link::{Broken, Carrying, ConnectOptions, Link, Telemetry, Transport};
use crate::target::{Job, Outside};
use crate::ui::{Clock, Done, Start, Ui};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::sleep;
use uts_files::{
    CopyOptions, Exclude, Fault, FaultKind, FileError, Report, get, get_stream, put, put_stream,
};
use uts_units::show;

/// The advice where the same command would go on.
const AGAIN: &str = "run the same command again to continue";

/// For how long a connection that was lost is tried for again, unless something else is asked.
const RETRY: Duration = Duration::from_secs(600);

/// Number of times that it is asked why a connection has ended, and time between two.
const BROKEN_TRIES: usize = 10;
const BROKEN_PAUSE: Duration = Duration::from_millis(100);

/// One `uts cp`.
pub(super) struct Run<'a, T: Transport> {
    transport: &'a T,
    args: &'a CpArgs,
    job: Job,
    host: String,
    options: ConnectOptions,
    copying: CopyOptions,
    ui: Arc<dyn Ui>,
    /// The connection now.
    link: Mutex<Option<T::Link>>,
}

impl<'a, T: Transport> Run<'a, T> {
    /// The copy that the arguments ask for.
    pub(super) fn new(
        transport: &'a T,
        args: &'a CpArgs,
        job: Job,
        options: ConnectOptions,
        ui: Arc<dyn Ui>,
    ) -> Result<Self, Failure> {
        let exclude =
            Exclude::new(&args.exclude).map_err(|why| Failure::Usage(format!("--exclude: {why}")))?;
        let copying = CopyOptions {
            recursive: args.recursive,
            links: args.links,
            skip_special: args.skip_special,
            whole_files: args.whole_file,
            compress: args.compress,
            delete: args.delete,
            preserve_mode: args.preserve_mode,
            dry_run: args.dry_run,
            exclude,
            ..CopyOptions::default()
        };
        let host = job.host().to_string();
        Ok(Run { transport, args, job, host, options, copying, ui, link: Mutex::default() })
    }

    /// The connection now, if there is one.
    pub(super) fn link(&self) -> Option<T::Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Copies until done, or until nothing goes on for longer than is to be borne.
    pub(super) async fn go(&self) -> Result<(), Failure> {
        // Unless it was asked for, only a connection that was lost is tried for again: who has
        // mistyped a name is to hear of it.
        let mut first = Patience::new(self.args.retry.unwrap_or_default());
        let mut patience = Patience::new(self.retry());
        let told = |why: &str| self.ui.notice(None, "lost", &format!("{why}; trying again"));
        let link = first.connect(None, || self.connect(1), told).await;
        let mut link = link.map_err(|broken| Failure::Failed(broken.why))?;
        let (address, fingerprint) = link.peer();
        let fingerprint = fingerprint.unwrap_or_default();
        let subject = self.job.describe();
        self.ui.start(&Start { command: "cp", address, fingerprint, subject, served: None });
        let clock = Clock::start();
        let mut earlier = Arc::new(Report::default());
        let mut before = Telemetry::default();
        for nth in 2.. {
            let meter = Meter::new(link.clone(), self.ui.clone(), None);
            let telling = meter.run();
            let outcome = self.copy(&link, meter.clone(), &earlier).await;
            telling.abort();
            let (report, error) = match outcome {
                Ok(report) => {
                    let broken = report.broken.clone();
                    (Arc::new(report), broken)
                }
                Err(error) => (earlier.clone(), Some(error)),
            };
            let telemetry = meter.telemetry().after(&before);
            let Some(error) = error else {
                meter.sample();
                link.close(0, "done").await;
                return self.finish(&report, clock.seconds(), meter.files_total(), telemetry);
            };
            let ended = Self::ended(&link, &error).await;
            link.close(2, "the copy failed").await;
            let Some(lost) = self.lost(ended.as_ref()) else { return Err(self.failed(ended, &error)) };
            if report.bytes_carried > earlier.bytes_carried {
                patience.renew();
            }
            (earlier, before) = (report, telemetry);
            link = self.reconnect(&mut patience, lost, nth).await?;
        }
        Ok(())
    }

    async fn connect(&self, nth: u32) -> Result<T::Link, Broken> {
        let link = self.transport.connect(self.job.host(), &self.options).await?;
        if let Some(file) = &self.args.trace {
            // That of another connection stands beside that of the first.
            let mut name = file.clone().into_os_string();
            if nth > 1 {
                name.push(format!(".{nth}"));
            }
            let file = PathBuf::from(name);
            link.trace(&file)
                .map_err(|why| Broken::for_good(format!("--trace {}: {why}", file.display())))?;
        }
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(link.clone());
        Ok(link)
    }

    /// Why the connection has ended, if that is what kept the copy from going on.
    async fn ended(link: &T::Link, error: &FileError) -> Option<Broken> {
        if !matches!(error, FileError::Connection(_)) {
            return None;
        }
        // The flow may have heard of it first.
        for _ in 0..BROKEN_TRIES {
            if let Some(broken) = link.broken() {
                return Some(broken);
            }
            sleep(BROKEN_PAUSE).await;
        }
        None
    }

    /// Why the connection was lost, if another may do.
    fn lost(&self, ended: Option<&Broken>) -> Option<String> {
        let may_go_on = self.job.can_go_on() && !self.retry().is_zero();
        ended.filter(|broken| broken.is_worth_retrying && may_go_on).map(|broken| broken.why.clone())
    }

    /// Connects again, as often as patience allows.
    async fn reconnect(&self, patience: &mut Patience, lost: String, nth: u32) -> Result<T::Link, Failure> {
        let max = show::span(patience.max());
        self.ui.notice(None, "lost", &format!("{}: {lost}; trying for {max} to go on", self.host));
        match patience.connect(Some(lost), || self.connect(nth), |_| {}).await {
            Ok(link) => {
                self.ui.notice(None, "connected", &format!("connected to {} again", self.host));
                Ok(link)
            }
            Err(Broken { why, is_worth_retrying: false }) => Err(Failure::Failed(why)),
            Err(Broken { why, .. }) => Err(Failure::Failed(format!("{}: {why}; {AGAIN}", self.host))),
        }
    }

    /// For how long a connection that was lost is tried for again.
    fn retry(&self) -> Duration {
        self.args.retry.unwrap_or(RETRY)
    }

    async fn copy(
        &self,
        link: &T::Link,
        meter: Arc<Meter<T::Link>>,
        earlier: &Arc<Report>,
    ) -> Result<Report, FileError> {
        let options = CopyOptions { progress: meter, earlier: Some(earlier.clone()), ..self.copying.clone() };
        let flows = link.flows();
        match &self.job {
            Job::Put { sources, destination, .. } => put(flows, sources, destination, &options).await,
            Job::Get { sources, destination, .. } => get(flows, sources, destination, &options).await,
            Job::PutStream { source, destination, .. } => {
                let name = source.name("standard input");
                let file = open(source, name.clone(), Outside::open_to_read).await?;
                put_stream(flows, file, &name, destination, &options).await
            }
            Job::GetStream { source, destination, .. } => {
                let name = destination.name("standard output");
                let file = open(destination, name.clone(), Outside::open_to_write).await?;
                get_stream(flows, source, file, &name, &options).await
            }
        }
    }

    fn failed(&self, ended: Option<Broken>, error: &FileError) -> Failure {
        let again = match error {
            FileError::Connection(_) if self.job.can_go_on() => format!("; {AGAIN}"),
            _ => String::new(),
        };
        // Why the connection has ended says more than what a flow has seen of it.
        let ended = ended.map(|broken| FileError::Connection(broken.why));
        let why = named(&self.host, ended.as_ref().unwrap_or(error));
        Failure::Failed(format!("{why}{again}"))
    }

    fn finish(
        &self,
        report: &Report,
        seconds: f64,
        files_total: u64,
        telemetry: Telemetry,
    ) -> Result<(), Failure> {
        let is_unread = |error: &FileError| error.fault().is_some_and(|f| f.kind == FaultKind::Unread);
        if report.failures.iter().any(|(_, error)| is_unread(error)) {
            self.ui.unread();
            return Err(Failure::Unread);
        }
        self.ui.done(&Done {
            files: report.files_copied + report.files_already_there,
            files_total,
            files_already_there: report.files_already_there,
            failures: report.failed,
            wanted: self.args.dry_run.then_some((report.files_wanted, report.bytes_wanted)),
            bytes: report.bytes,
            bytes_carried: report.bytes_carried,
            bytes_literal: report.bytes_literal,
            bytes_matched: report.bytes_matched,
            directories: report.directories,
            links: report.links,
            deleted: if self.args.dry_run { report.superfluous } else { report.deleted },
            says_all: self.args.stats,
            seconds,
            hash: report.hash(),
            telemetry,
        });
        // What was left out is not there, unless that was asked for.
        if report.failed > 0 || report.warned > 0 { Err(Failure::Told) } else { Ok(()) }
    }
}

/// Opens a file whose opening may wait.
async fn open(
    outside: &Outside,
    name: Vec<u8>,
    how: fn(&Outside) -> std::io::Result<File>,
) -> Result<File, FileError> {
    let outside = outside.clone();
    let opened = tokio::task::spawn_blocking(move || how(&outside)).await;
    let opened = opened.map_err(std::io::Error::other).and_then(|opened| opened);
    opened.map_err(|error| FileError::Local(Fault::io(&name, &error)))
}
