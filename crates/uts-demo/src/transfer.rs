//! One copy: server, relay and client started, followed, and ended.

use super::child::{Child, End, Message};
use super::display::Display;
use super::event::{self, Event, Kind};
use super::follow::{Followed, Follower};
use super::plan::{Plan, capacity_bytes};
use super::{check_stop, samples, source};
use anyhow::{Context, Result, anyhow, bail};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use uts_record::demo::{FileFacts, Run, Summary, Trace};
use uts_relay::{Relay, RelayConfig, RelayHandle, RelayStats};

/// Time within which a signal, or the end of a child, is noticed.
const NOTICE: Duration = Duration::from_millis(50);
/// A server that has not said where it listens by then will not.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Time that an end may take to leave when asked to, or after it has said its last.
const LEAVE_LIMIT: Duration = Duration::from_secs(3);
/// Of a line that makes no sense, this much is shown.
const SHOWN_CHARS: usize = 200;

/// A copy to make.
#[derive(Debug)]
pub(super) struct Transfer<'a> {
    pub uts: &'a Path,
    pub source: &'a Path,
    pub file: &'a FileFacts,
    pub plan: &'a Plan,
    pub work: &'a Path,
    pub seed: u64,
    pub adapt: bool,
    pub patience: Duration,
    pub stop: &'a AtomicBool,
    pub display: &'a Display,
}

/// Where a run keeps its files.
#[derive(Debug)]
struct Places {
    dir: PathBuf,
    served: PathBuf,
    record: PathBuf,
    trace: PathBuf,
}

impl Transfer<'_> {
    /// Makes the copy, and sums it up.
    ///
    /// # Errors
    /// An end or the relay failed, said something that makes no sense, or stood still for too long;
    /// or `stop`.
    pub(super) fn run(&self) -> Result<Run> {
        let places = self.make_places()?;
        let heading = if self.adapt { "Adaptive" } else { "For comparison, with the first profile fixed" };
        self.display.begin(heading);
        let (sender, messages) = mpsc::channel();
        let mut server = self.start_server(&places, sender.clone())?;
        let (server_addr, fingerprint) = self.await_start(&mut server, &messages)?;
        let relay = self.start_relay(server_addr, &places)?;
        let relay_start = Instant::now() - Duration::try_from_secs_f64(relay.stats()?.elapsed_s)?;
        let mut client = self.start_client(&places, relay.local_addr(), &fingerprint, sender)?;
        let commands = vec![server.command.clone(), client.command.clone()];

        let mut follower = Follower::new(self.display, relay_start, self.plan.link.clone());
        self.follow(&mut follower, &mut server, &mut client, &messages, &relay)?;
        server.end(LEAVE_LIMIT);
        drain(&mut follower, &messages)?;
        relay.request_stop();
        relay.events().iter().for_each(|event| follower.relay_event(event));
        let stats = relay.stop().context("the relay failed")?;
        let followed = follower.conclude().ok_or_else(|| anyhow!("`uts cp` did not say when it was done"))?;
        let run = self.sum_up(&places, followed, &stats, commands)?;
        self.display.end(&format!(
            "{:6.1} s  done: {:.1} Mbit/s, SHA-256 {}",
            run.summary.duration_s,
            run.summary.goodput_bps / 1e6,
            if run.summary.sha256 == self.file.sha256 { "the same at both ends" } else { "DIFFERS" }
        ));
        fs::remove_dir_all(&places.dir).with_context(|| format!("cannot remove {}", places.dir.display()))?;
        Ok(run)
    }

    fn name(&self) -> &'static str {
        if self.adapt { "adaptive" } else { "fixed" }
    }

    fn make_places(&self) -> Result<Places> {
        let dir = self.work.join(self.name());
        let served = dir.join("served");
        for dir in [&served, &dir.join("server-home"), &dir.join("client-home")] {
            fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        Ok(Places { served, record: dir.join("relay.csv"), trace: dir.join("trace.csv"), dir })
    }

    fn start_server(&self, places: &Places, messages: Sender<Message>) -> Result<Child> {
        let served = places.served.to_string_lossy().into_owned();
        let arguments =
            ["serve", "--dir", &served, "--writable", "--anyone", "--listen", "127.0.0.1:0", "--json"];
        let arguments = arguments.map(str::to_owned);
        Child::start(End::Server, self.uts, &arguments, &places.dir.join("server-home"), messages)
    }

    fn start_client(
        &self,
        places: &Places,
        relay: SocketAddr,
        fingerprint: &str,
        messages: Sender<Message>,
    ) -> Result<Child> {
        let trace = places.trace.to_string_lossy().into_owned();
        let source = self.source.to_string_lossy().into_owned();
        let url = format!("uts://{relay}/{}", source::destination_name(&self.file.name));
        let mut arguments = vec!["cp", "--json", "--pin", fingerprint, "--trace", &trace];
        if !self.adapt {
            arguments.push("--no-adapt");
        }
        arguments.extend([source.as_str(), &url]);
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        Child::start(End::Client, self.uts, &arguments, &places.dir.join("client-home"), messages)
    }

    fn start_relay(&self, to: SocketAddr, places: &Places) -> Result<RelayHandle> {
        let config = RelayConfig {
            path: self.plan.path_config(),
            seed: self.seed,
            record: Some(places.record.clone()),
            idle_timeout: self.patience.max(Duration::from_secs(60)),
            ..RelayConfig::new(to)
        };
        Relay::start(config).context("the relay cannot start")
    }

    /// Waits for the server to say where it listens and who it is.
    fn await_start(&self, server: &mut Child, messages: &Receiver<Message>) -> Result<(SocketAddr, String)> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            check_stop(self.stop)?;
            match messages.recv_timeout(NOTICE) {
                Ok(Message { line: Some(line), .. }) => match parse(End::Server, &line)?.kind {
                    Kind::Start { address, fingerprint } => return identity(address, fingerprint),
                    Kind::Error(message) => {
                        bail!("`uts serve` failed: {message}{}", server.last_errors())
                    }
                    _ => {}
                },
                Ok(Message { line: None, .. }) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.ended_early(End::Server, server, None));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() > deadline {
                bail!(
                    "`uts serve` has not said where it listens within {} s{}",
                    START_LIMIT.as_secs(),
                    server.last_errors()
                );
            }
        }
    }

    /// Follows until the client has ended well.
    fn follow(
        &self,
        follower: &mut Follower<'_>,
        server: &mut Child,
        client: &mut Child,
        messages: &Receiver<Message>,
        relay: &RelayHandle,
    ) -> Result<()> {
        loop {
            check_stop(self.stop)?;
            relay.events().try_iter().for_each(|event| follower.relay_event(event));
            let mut client_said_all = false;
            match messages.recv_timeout(NOTICE) {
                Ok(Message { end, at, line: Some(line) }) => follower.event(end, at, parse(end, &line)?),
                Ok(Message { end: End::Client, line: None, .. }) => client_said_all = true,
                Ok(Message { end: End::Server, line: None, .. })
                | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if client_said_all {
                relay.events().try_iter().for_each(|event| follower.relay_event(event));
                return self.conclude_client(follower, client);
            }
            if server.try_wait().is_some() && client.try_wait().is_none() {
                return Err(self.ended_early(End::Server, server, follower.error(End::Server)));
            }
            if follower.idle() > self.patience {
                bail!(
                    "nothing moved for {} s, at {} of {} bytes{}{}",
                    self.patience.as_secs(),
                    follower.most_bytes(),
                    self.file.bytes,
                    client.last_errors(),
                    server.last_errors()
                );
            }
        }
    }

    fn conclude_client(&self, follower: &Follower<'_>, client: &mut Child) -> Result<()> {
        match client.wait_for(LEAVE_LIMIT) {
            Some(status) if status.success() => {}
            Some(_) => return Err(self.ended_early(End::Client, client, follower.error(End::Client))),
            None => bail!("`uts cp` closed its output and did not end{}", client.last_errors()),
        }
        if !follower.finished() {
            bail!("`uts cp` ended without saying that the file had arrived{}", client.last_errors());
        }
        Ok(())
    }

    /// The error of a child that has ended, or is about to, before its time.
    fn ended_early(&self, end: End, child: &mut Child, said: Option<&str>) -> anyhow::Error {
        let status = child.wait_for(LEAVE_LIMIT);
        // The same signal may have reached the child first.
        std::thread::sleep(NOTICE);
        if let Err(interrupted) = check_stop(self.stop) {
            return interrupted;
        }
        let status = status.map_or_else(|| "closed its output".into(), |s| format!("ended early ({s})"));
        let said = said.map(|message| format!(": {message}")).unwrap_or_default();
        anyhow!("`{}` {status}{said}{}", end.command(), child.last_errors())
    }

    fn sum_up(
        &self,
        places: &Places,
        followed: Followed,
        stats: &RelayStats,
        commands: Vec<String>,
    ) -> Result<Run> {
        let arrived = places.served.join(source::destination_name(&self.file.name));
        if !arrived.is_file() {
            bail!("`uts cp` says that it is done, but the server has no file {}", arrived.display());
        }
        let duration_s = followed.finished_s.max(1e-6);
        let payload_bytes = self.file.bytes;
        let summary = Summary {
            duration_s,
            payload_bytes,
            is_cut_short: false,
            goodput_bps: payload_bytes as f64 * 8.0 / duration_s,
            capacity_bytes: capacity_bytes(&followed.link, duration_s, false),
            capacity_after_loss_bytes: capacity_bytes(&followed.link, duration_s, true),
            packets_sent: followed.client.sent,
            packets_repeated: followed.client.repeated,
            // The receiver repairs; the sender knows of it only if it is told.
            packets_repaired: followed.server.repaired.max(followed.client.repaired),
            lost_on_wire: stats.forward.dropped_loss,
            dropped_by_queue: stats.forward.dropped_queue,
            sha256: source::hash(&arrived, self.stop)?,
        };
        let trace = match places.trace.exists() {
            true => samples::read_trace(&places.trace, followed.client_offset_s)?,
            false => Trace::default(),
        };
        Ok(Run {
            name: self.name().into(),
            commands,
            changes: followed.changes,
            link: followed.link,
            exchanges: followed.exchanges,
            profiles: followed.profiles,
            progress: followed.progress,
            received: followed.received,
            queue: samples::read_queue(&places.record, followed.origin_s, duration_s)?,
            trace,
            summary,
        })
    }
}

/// Takes in what is left to read.
fn drain(follower: &mut Follower<'_>, messages: &Receiver<Message>) -> Result<()> {
    for Message { end, at, line } in messages.try_iter() {
        if let Some(line) = line {
            follower.event(end, at, parse(end, &line)?);
        }
    }
    Ok(())
}

fn parse(end: End, line: &str) -> Result<Event> {
    event::read(line).map_err(|reason| {
        let shown: String = line.chars().take(SHOWN_CHARS).collect();
        anyhow!("`{} --json` printed a line that is no event, {reason}: {shown}", end.command())
    })
}

fn identity(address: Option<String>, fingerprint: Option<String>) -> Result<(SocketAddr, String)> {
    let address = address.context("the start event of `uts serve` names no address")?;
    let address = address
        .parse()
        .with_context(|| format!("the start event of `uts serve` names the address `{address}`"))?;
    let fingerprint = fingerprint.context("the start event of `uts serve` names no fingerprint")?;
    Ok((address, fingerprint))
}
