//! RouterPC's data path: one thread between the hosts' interfaces and the emulated network.
//!
//! Departures are computed in virtual time from the kernel's arrival stamps. A late thread
//! therefore changes no rate and loses no order. In each turn it reads all that is there, moves the
//! network on to the instant at which reading began (not further: what arrived meanwhile is not
//! read yet), and sends what is due. It sleeps until shortly before the next packet is due, and
//! stays awake for the rest.
//!
//! The clock is the system's (`CLOCK_REALTIME`), as the stamps are. If it is set, this is noticed
//! and spoils the run.

use super::config::TestbedConfig;
use super::error::RouterError;
use super::fidelity::PathStats;
use super::frame::{Packet, complete_checksum};
use super::margin::Margin;
use super::network::{Arrival, Network};
use super::record::{Passing, Recorder};
use super::split::split;
use super::sys::{BATCH, PacketSocket, ReceiveBatch, Schedule, schedule};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;
use uts_path::{Change, Direction, Target};
use uts_record::lateness::{Lateness, LatenessMeter};

/// Time that a host that is behind is waited for.
const PATIENCE_NS: u64 = 5_000_000;

/// Time that it is given at once.
const PATIENCE_AT_A_TIME: Duration = Duration::from_micros(20);

/// Batches read from a socket before others have their turn.
const BATCHES_PER_TURN: usize = 8;
/// Interval at which clocks are compared, and records flushed.
const HOUSEKEEPING_NS: u64 = 100_000_000;
/// With a real-time priority, the thread rests after having been awake for this long, even if
/// packets are due. Otherwise the kernel would stop it for 50 ms in each second to give others a
/// turn (sched(7)).
const AWAKE_NS_MAX: u64 = 1_000_000;
/// For this long; with the above, 8 % of the time, where the kernel wants 5 %.
const REST_NS: u64 = 80_000;

/// Command to the thread.
#[derive(Debug)]
pub(super) enum Command {
    Set {
        path: usize,
        target: Target,
        change: Change,
        reply: Sender<Result<(), String>>,
    },
    Stats(Sender<Vec<PathStats>>),
    /// Everything anew, from now on: tells when that was.
    Begin(Sender<Result<u64, String>>),
    Finish,
}

/// Counters of a run that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub paths: Vec<PathStats>,
    pub lateness: Lateness,
    pub packets: u64,
    pub not_read: u64,
    pub not_sent: u64,
    pub not_understood: u64,
    pub astray: u64,
    pub not_recorded: u64,
    pub cpu_s: f64,
    pub elapsed_s: f64,
    pub clock_step_s: f64,
}

/// A host's interface, RouterPC's end.
#[derive(Debug)]
struct Port {
    socket: PacketSocket,
    /// Read, and not yet offered to the network; in the order of their times.
    waiting: VecDeque<(u64, Packet)>,
    /// The time of the last of them: stamps never go back.
    latest_ns: u64,
    /// When the access link has carried the last of them.
    access_free_ns: u64,
    /// Due to be sent to the host.
    leaving: VecDeque<(u64, Packet)>,
}

/// Counters and records from one beginning to the end.
#[derive(Debug)]
struct Run {
    network: Network,
    recorder: Option<Recorder>,
    lateness: LatenessMeter,
    begun_ns: u64,
    /// Processor time at the beginning.
    cpu_ns: u64,
    /// Offset of the system's clock from the steady clock, at the beginning.
    clock_offset_ns: i128,
    clock_step_ns: i128,
    not_read: u64,
    not_sent: u64,
    not_understood: u64,
}

/// The data path.
#[derive(Debug)]
pub(super) struct Forwarder {
    config: TestbedConfig,
    ports: Vec<Port>,
    run: Run,
    batch: ReceiveBatch,
    commands: Receiver<Command>,
    wake: Arc<OwnedFd>,
    next_housekeeping_ns: u64,
    /// Since when the thread has not slept, if it goes before all others.
    awake_since_ns: Option<u64>,
    /// Framings and compressions that look at bytes are to see true checksums.
    completes: bool,
    margin: Margin,
}

impl Forwarder {
    /// Makes the data path between these sockets, one for each host.
    pub(super) fn new(
        config: TestbedConfig,
        sockets: Vec<PacketSocket>,
        commands: Receiver<Command>,
        wake: Arc<OwnedFd>,
    ) -> Result<Self, RouterError> {
        let run = Run::new(&config)?;
        let port = |socket| Port {
            socket,
            waiting: VecDeque::new(),
            latest_ns: 0,
            access_free_ns: 0,
            leaving: VecDeque::new(),
        };
        Ok(Forwarder {
            completes: run.network.sees_bytes(),
            run,
            ports: sockets.into_iter().map(port).collect(),
            batch: ReceiveBatch::new(),
            commands,
            wake,
            next_housekeeping_ns: 0,
            awake_since_ns: None,
            margin: Margin::new(u64::from(config.spin_us) * 1000),
            config,
        })
    }

    /// When it began.
    pub(super) fn begun_ns(&self) -> u64 {
        self.run.begun_ns
    }

    /// Forwards until it is told to finish.
    pub(super) fn run(mut self) -> Result<Ended, RouterError> {
        // The default slack of 50 us would add to every sleep. Where it cannot be set, it stays.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        // While other threads keep this one waiting, the path stands still. If the process may not
        // have priority over them, short turns help. Older kernels do not have them.
        if schedule(Schedule::RealTime).is_ok() {
            self.awake_since_ns = Some(now_ns());
        } else {
            let _ = schedule(Schedule::Fair);
        }
        self.run.cpu_ns = cpu_ns();
        while self.obey() {
            let reading_ns = now_ns();
            let horizon_ns = self.read(reading_ns).map_err(|e| RouterError::system("read packets", e))?;
            self.feed(horizon_ns);
            self.send();
            self.house_keep(reading_ns)?;
            self.wait().map_err(|e| RouterError::system("wait for packets", e))?;
        }
        self.count_unread()?;
        self.run.finish()
    }

    /// Does what was asked; false when it is to finish.
    fn obey(&mut self) -> bool {
        while let Ok(command) = self.commands.try_recv() {
            // A reply that nobody waits for is nobody's loss.
            match command {
                Command::Set { path, target, change, reply } => {
                    let set = self.run.network.set(now_ns(), path, target, &change);
                    let _ = reply.send(set.map_err(|e| e.to_string()));
                }
                Command::Stats(reply) => {
                    let _ = reply.send(self.run.stats());
                }
                Command::Begin(reply) => {
                    let _ = reply.send(self.begin().map_err(|e| e.to_string()));
                }
                Command::Finish => return false,
            }
        }
        true
    }

    /// Forgets what is under way, and starts the network, the counters and the record anew.
    fn begin(&mut self) -> Result<u64, RouterError> {
        // The files are closed before they are made anew.
        if let Some(recorder) = self.run.recorder.take() {
            recorder.finish()?;
        }
        for port in &mut self.ports {
            port.waiting.clear();
            port.leaving.clear();
            port.access_free_ns = 0;
            port.socket.take_drops().map_err(|e| RouterError::system("ask for drops", e))?;
        }
        self.run = Run::new(&self.config)?;
        self.run.cpu_ns = cpu_ns();
        self.completes = self.run.network.sees_bytes();
        Ok(self.run.begun_ns)
    }

    /// Reads what is there. Returns up to when everything that came is known.
    fn read(&mut self, reading_ns: u64) -> io::Result<u64> {
        let mut horizon_ns = reading_ns;
        for (host, port) in self.ports.iter_mut().enumerate() {
            let mut drained = false;
            for _ in 0..BATCHES_PER_TURN {
                let count = match self.batch.receive(&port.socket) {
                    Ok(count) => count,
                    // The interface is gone: the end is near.
                    Err(e) if e.raw_os_error() == Some(libc::ENETDOWN) => 0,
                    Err(e) => return Err(e),
                };
                for received in self.batch.iter() {
                    let stamp_ns = received.stamp_ns.unwrap_or(reading_ns).max(port.latest_ns);
                    port.latest_ns = stamp_ns;
                    let access = (self.config.access_rate_bps, stamp_ns, self.completes);
                    let taken = split(received.bytes, |bytes| port.take(host, bytes, access));
                    self.run.not_understood += u64::from(taken.is_err());
                }
                drained = count < BATCH;
                if drained {
                    break;
                }
            }
            if !drained {
                horizon_ns = horizon_ns.min(port.latest_ns);
            }
        }
        Ok(horizon_ns)
    }

    /// Offers the arrivals to the network in the order of time, moves it on, and collects what is
    /// due.
    fn feed(&mut self, horizon_ns: u64) {
        let Run { network, recorder, .. } = &mut self.run;
        loop {
            let first =
                self.ports.iter().enumerate().filter_map(|(i, p)| Some((p.waiting.front()?.0, i))).min();
            let Some((at_ns, host)) = first.filter(|&(at_ns, _)| at_ns <= horizon_ns) else { break };
            let Some((_, packet)) = self.ports.get_mut(host).and_then(|p| p.waiting.pop_front()) else {
                break;
            };
            if let Some(recorder) = recorder {
                recorder.frame(at_ns, host, Passing::In, &packet);
            }
            network.send(at_ns, packet);
        }
        network.advance(horizon_ns);
        for Arrival { host, due_ns, packet } in network.take_arrivals() {
            if let Some(port) = self.ports.get_mut(host) {
                port.leaving.push_back((due_ns, packet));
            }
        }
        if let Some(recorder) = recorder.as_mut().filter(|r| r.wants_passages()) {
            network.take_passages(|path, direction, passage| recorder.passage(path, direction, passage));
        }
    }

    /// Sends what is due.
    fn send(&mut self) {
        let run = &mut self.run;
        for (host, port) in self.ports.iter_mut().enumerate() {
            let mut patient_until_ns = None;
            while !port.leaving.is_empty() {
                let frames = port.leaving.iter().take(BATCH).map(|(_, packet)| packet.bytes.as_slice());
                let sent = port.socket.send(frames);
                let sent_ns = now_ns();
                // A host that takes packets in by itself may be behind for a moment. Packets that
                // the kernel does not take then are lost outside the model, and counted. To wait
                // longer would delay the others.
                let (count, failed) = match sent {
                    Ok(count) => {
                        patient_until_ns = None;
                        (count, 0)
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        let is_over = sent_ns >= *patient_until_ns.get_or_insert(sent_ns + PATIENCE_NS);
                        // Who takes them in may need this very processor.
                        std::thread::sleep(PATIENCE_AT_A_TIME);
                        (0, usize::from(is_over))
                    }
                    Err(_) => (0, 1),
                };
                run.not_sent += failed as u64;
                for (due_ns, packet) in port.leaving.drain(..count) {
                    run.lateness.record(sent_ns.saturating_sub(due_ns));
                    if let Some(recorder) = &mut run.recorder {
                        recorder.frame(sent_ns, host, Passing::Out, &packet);
                    }
                }
                port.leaving.drain(..failed);
            }
        }
    }

    fn house_keep(&mut self, now_ns: u64) -> Result<(), RouterError> {
        while let Some((path, applied)) = self.run.network.poll_applied() {
            if let Some(recorder) = &mut self.run.recorder {
                recorder.applied(path, applied);
            }
            self.completes = self.run.network.sees_bytes();
        }
        if now_ns < self.next_housekeeping_ns {
            return Ok(());
        }
        self.next_housekeeping_ns = now_ns + HOUSEKEEPING_NS;
        let step_ns = clock_offset_ns() - self.run.clock_offset_ns;
        if step_ns.abs() > self.run.clock_step_ns.abs() {
            self.run.clock_step_ns = step_ns;
        }
        if let Some(recorder) = &mut self.run.recorder {
            recorder.keep_up(now_ns);
        }
        self.count_unread()
    }

    /// The kernel's counters hold 32 bits and start anew when they are asked.
    fn count_unread(&mut self) -> Result<(), RouterError> {
        for port in &self.ports {
            self.run.not_read +=
                port.socket.take_drops().map_err(|e| RouterError::system("ask for drops", e))?;
        }
        Ok(())
    }

    /// Sleeps until a packet comes, or shortly before the next one is due.
    fn wait(&mut self) -> io::Result<()> {
        let waiting = self.ports.iter().filter_map(|p| Some(p.waiting.front()?.0));
        let next_ns = waiting.chain(self.run.network.next_ns()).min();
        // A record that waits is to be flushed at some time.
        let idle_ns = self.run.recorder.is_some().then_some(self.next_housekeeping_ns);
        let now_ns = now_ns();
        let margin_ns = self.margin.ns();
        let wake_ns =
            [next_ns.map(|at_ns| at_ns.saturating_sub(margin_ns)), idle_ns].into_iter().flatten().min();
        let wait_ns = wake_ns.map(|at_ns| at_ns.saturating_sub(now_ns));
        if wait_ns == Some(0) {
            self.rest(now_ns);
            return Ok(());
        }
        let timeout = wait_ns.map(|ns| Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (ns % 1_000_000_000) as _,
        });
        let mut fds = Vec::with_capacity(self.ports.len() + 1);
        fds.push(PollFd::new(&*self.wake, PollFlags::IN));
        fds.extend(self.ports.iter().map(|p| PollFd::new(&p.socket, PollFlags::IN)));
        let ready = match poll(&mut fds, timeout.as_ref()) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => 1,
            Err(e) => return Err(e.into()),
        };
        let woken_ns = self::now_ns();
        if let (Some(wake_ns), 0) = (wake_ns, ready) {
            self.margin.overslept(woken_ns.saturating_sub(wake_ns));
        }
        if woken_ns.saturating_sub(now_ns) > REST_NS {
            self.awake_since_ns = self.awake_since_ns.map(|_| woken_ns);
        }
        if fds.first().is_some_and(|fd| !fd.revents().is_empty()) {
            // The count itself says nothing; reading it clears it.
            let _ = rustix::io::read(&*self.wake, &mut [0u8; 8]);
        }
        Ok(())
    }
}

impl Forwarder {
    /// Rests if it is time.
    fn rest(&mut self, now_ns: u64) {
        if self.awake_since_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) > AWAKE_NS_MAX) {
            std::thread::sleep(Duration::from_nanos(REST_NS));
            self.awake_since_ns = Some(self::now_ns());
        }
    }
}

impl Port {
    /// Takes a packet from the host, over its access link.
    fn take(&mut self, host: usize, mut bytes: Vec<u8>, access: (Option<u64>, u64, bool)) {
        let (rate_bps, stamp_ns, complete) = access;
        if complete {
            complete_checksum(&mut bytes);
        }
        let packet = Packet { bytes, from: host };
        let at_ns = match rate_bps {
            None => stamp_ns,
            Some(rate_bps) => {
                let bits = packet.frame().len() as u128 * 8;
                let takes_ns = (bits * 1_000_000_000).div_ceil(u128::from(rate_bps.max(1)));
                let begins_ns = stamp_ns.max(self.access_free_ns);
                self.access_free_ns = begins_ns.saturating_add(u64::try_from(takes_ns).unwrap_or(u64::MAX));
                self.access_free_ns
            }
        };
        self.waiting.push_back((at_ns, packet));
    }
}

impl Run {
    fn new(config: &TestbedConfig) -> Result<Self, RouterError> {
        let begun_ns = now_ns();
        let record = config.record.as_ref();
        let recorder =
            record.map(|record| Recorder::start(record, config.topology.hosts(), begun_ns)).transpose()?;
        let mut network =
            Network::new(config.topology, &config.paths, config.seed, begun_ns, config.tell_too_big)?;
        network.record_passages(recorder.as_ref().is_some_and(Recorder::wants_passages));
        Ok(Run {
            network,
            recorder,
            lateness: LatenessMeter::new(),
            begun_ns,
            cpu_ns: 0,
            clock_offset_ns: clock_offset_ns(),
            clock_step_ns: 0,
            not_read: 0,
            not_sent: 0,
            not_understood: 0,
        })
    }

    fn stats(&mut self) -> Vec<PathStats> {
        self.network.advance(now_ns());
        let of = |path| PathStats {
            forward: self.network.stats(path, Direction::Forward),
            backward: self.network.stats(path, Direction::Backward),
        };
        (0..self.network.paths()).map(of).collect()
    }

    fn finish(mut self) -> Result<Ended, RouterError> {
        let end_ns = now_ns();
        let not_recorded = self.recorder.as_ref().map_or(0, Recorder::lost);
        let ended = Ended {
            paths: self.stats(),
            lateness: Lateness::of(&self.lateness),
            packets: self.lateness.count(),
            not_read: self.not_read,
            not_sent: self.not_sent,
            not_understood: self.not_understood,
            astray: self.network.astray(),
            not_recorded,
            cpu_s: cpu_ns().saturating_sub(self.cpu_ns) as f64 / 1e9,
            elapsed_s: end_ns.saturating_sub(self.begun_ns) as f64 / 1e9,
            clock_step_s: self.clock_step_ns as f64 / 1e9,
        };
        if let Some(recorder) = self.recorder {
            recorder.finish()?;
        }
        Ok(ended)
    }
}

/// The system's clock.
pub(super) fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

fn cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

/// The system's clock less the steady one: changes only when the system's clock is set.
fn clock_offset_ns() -> i128 {
    let steady = nanoseconds(clock_gettime(ClockId::Monotonic));
    i128::from(now_ns()) - i128::from(steady)
}

fn nanoseconds(at: Timespec) -> u64 {
    u64::try_from(at.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(at.tv_nsec).unwrap_or(0)
}
