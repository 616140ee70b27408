//! The relay's thread.

use super::clients::{ClientId, Clients, Found};
use super::record::Recorder;
use super::socket::{Batch, Received, Socket};
use super::stats::{RelayStats, kernel_dropped};
use super::{RelayConfig, RelayError, RelayEvent};
use crate::traces;
use quinn_udp::EcnCodepoint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use uts_path::{Change, Direction, Path, Payload, SpecError, Target};
use uts_record::lateness::{Lateness, LatenessMeter};

/// Interval at which idle clients are looked for, and the record is flushed.
const HOUSEKEEPING_NS: u64 = 1_000_000_000;
/// Batches read from a socket before others have their turn.
const BATCHES_PER_TURN: usize = 4;
/// Low among real-time priorities (1 to 99): before ordinary threads, after the system's own.
const REAL_TIME_PRIORITY: u8 = 10;

/// Command of the handle to the thread.
#[derive(Debug)]
pub(super) enum Command {
    Set { target: Target, change: Change, reply: Sender<Result<(), SpecError>> },
    Stats(Sender<RelayStats>),
    Stop,
}

/// A datagram on the path.
#[derive(Debug, Clone)]
struct Datagram {
    client: ClientId,
    ecn: Option<EcnCodepoint>,
    bytes: Vec<u8>,
}

impl Payload for Datagram {
    fn flip_bit(&mut self, bit: usize) {
        self.bytes.flip_bit(bit);
    }

    fn mark_ce(&mut self) -> bool {
        let capable = matches!(self.ecn, Some(EcnCodepoint::Ect0 | EcnCodepoint::Ect1 | EcnCodepoint::Ce));
        if capable {
            self.ecn = Some(EcnCodepoint::Ce);
        }
        capable
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(&self.bytes)
    }

    fn flow(&self) -> u64 {
        self.client
    }
}

/// Which sockets have something to read.
#[derive(Debug, Default)]
struct Ready {
    clients: bool,
    upstreams: Vec<ClientId>,
}

#[derive(Debug)]
pub(super) struct Relaying {
    start: Instant,
    listener: Socket,
    local_addr: SocketAddr,
    to: SocketAddr,
    clients: Clients,
    idle_ns: u64,
    spin_ns: u64,
    path: Path<Datagram>,
    batch: Batch,
    recorder: Option<Recorder>,
    lateness: LatenessMeter,
    refused: u64,
    send_failures: u64,
    next_housekeeping_ns: u64,
    commands: Receiver<Command>,
    events: Sender<RelayEvent>,
    wake: Arc<OwnedFd>,
}

impl Relaying {
    pub(super) fn new(
        mut config: RelayConfig,
        commands: Receiver<Command>,
        events: Sender<RelayEvent>,
        wake: Arc<OwnedFd>,
    ) -> Result<Self, RelayError> {
        config.path.resolve(|name| traces::read(name))?;
        let addr = config.listen;
        let listener = Socket::bind(addr).map_err(|cause| RelayError::Listen { addr, cause })?;
        let local_addr = listener.local_addr()?;
        let nanoseconds = |d: std::time::Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let recorder = recorder(&config)?;
        let mut path = Path::new(config.path, config.seed, 0)?;
        path.record_passages(recorder.as_ref().is_some_and(Recorder::takes_each));
        Ok(Relaying {
            path,
            recorder,
            start: Instant::now(),
            listener,
            local_addr,
            to: config.to,
            clients: Clients::new(config.max_clients, config.to),
            idle_ns: nanoseconds(config.idle_timeout),
            spin_ns: nanoseconds(config.spin),
            batch: Batch::new(),
            lateness: LatenessMeter::new(),
            refused: 0,
            send_failures: 0,
            next_housekeeping_ns: HOUSEKEEPING_NS,
            commands,
            events,
            wake,
        })
    }

    /// Writes down which datagrams have passed the queues.
    fn record_passages(&mut self) -> Result<(), RelayError> {
        let Some(recorder) = self.recorder.as_mut().filter(|recorder| recorder.takes_each()) else {
            return Ok(());
        };
        for direction in Direction::ALL {
            while let Some(passage) = self.path.poll_passage(direction) {
                recorder.passage(direction, &passage)?;
            }
        }
        Ok(())
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Relays until told to stop.
    pub(super) fn run(mut self) -> Result<RelayStats, RelayError> {
        hasten_this_thread();
        while self.obey() {
            self.deliver();
            self.house_keep()?;
            let ready = self.wait()?;
            self.receive(&ready)?;
        }
        let stats = self.stats();
        // What happened up to now is reported and recorded, too.
        self.house_keep()?;
        if let Some(recorder) = &mut self.recorder {
            recorder.flush()?;
        }
        Ok(stats)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Does what the handle has asked for; false when it is to stop.
    fn obey(&mut self) -> bool {
        while let Ok(command) = self.commands.try_recv() {
            // A reply that nobody waits for is nobody's loss.
            match command {
                Command::Set { target, change, reply } => {
                    let _ = reply.send(self.path.set(self.now_ns(), target, &change));
                }
                Command::Stats(reply) => {
                    let _ = reply.send(self.stats());
                }
                Command::Stop => return false,
            }
        }
        true
    }

    /// Sends on what has arrived at the path's ends.
    fn deliver(&mut self) {
        let now_ns = self.now_ns();
        for direction in Direction::ALL {
            while let Some(delivery) = self.path.poll_delivery(now_ns, direction) {
                let Datagram { client, ecn, bytes } = delivery.payload;
                // A client that was forgotten meanwhile gets nothing.
                let Some(client) = self.clients.get_mut(client) else { continue };
                let sent = match direction {
                    Direction::Forward => client.upstream.send(self.to, None, ecn, &bytes),
                    Direction::Backward => {
                        client.last_used_ns = now_ns;
                        self.listener.send(client.addr, client.local_ip, ecn, &bytes)
                    }
                };
                self.send_failures += u64::from(sent.is_err());
                let sent_ns = self.now_ns();
                self.lateness.record(sent_ns.saturating_sub(delivery.due_ns));
            }
        }
    }

    /// Tells of changes, samples the queues, forgets the idle.
    fn house_keep(&mut self) -> Result<(), RelayError> {
        let now_ns = self.now_ns();
        while let Some(applied) = self.path.poll_applied() {
            if let Some(recorder) = &mut self.recorder {
                recorder.change(&applied)?;
            }
            let t_s = seconds(applied.at_ns);
            self.tell(RelayEvent::Changed { t_s, target: applied.target, change: applied.change });
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.sample(now_ns, &self.path)?;
        }
        self.record_passages()?;
        if now_ns >= self.next_housekeeping_ns {
            self.next_housekeeping_ns = now_ns + HOUSEKEEPING_NS;
            for client in self.clients.expire(now_ns.saturating_sub(self.idle_ns)) {
                self.tell(RelayEvent::Left { t_s: seconds(now_ns), client });
            }
            if let Some(recorder) = &mut self.recorder {
                recorder.flush()?;
            }
        }
        Ok(())
    }

    /// Sleeps until something is to be done.
    fn wait(&self) -> io::Result<Ready> {
        let wake_times = [
            self.path.next_ns(),
            self.recorder.as_ref().and_then(Recorder::next_ns),
            Some(self.next_housekeeping_ns),
        ];
        let next_ns = wake_times.into_iter().flatten().min().unwrap_or(0);
        let wait_ns = next_ns.saturating_sub(self.now_ns()).saturating_sub(self.spin_ns);
        let timeout = Timespec {
            tv_sec: i64::try_from(wait_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (wait_ns % 1_000_000_000) as _,
        };
        let mut ids = Vec::with_capacity(self.clients.len());
        let mut fds =
            vec![PollFd::new(&*self.wake, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        for (id, client) in self.clients.iter() {
            ids.push(id);
            fds.push(PollFd::new(&client.upstream, PollFlags::IN));
        }
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Ready::default()),
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        let readable: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if readable.first() == Some(&true) {
            // The count itself says nothing; reading it clears it.
            let _ = rustix::io::read(&*self.wake, &mut [0u8; 8]);
        }
        let upstreams = ids.into_iter().zip(readable.iter().skip(2)).filter(|(_, ready)| **ready);
        Ok(Ready {
            clients: readable.get(1) == Some(&true),
            upstreams: upstreams.map(|(id, _)| id).collect(),
        })
    }

    /// Reads what has come and offers it to the path.
    fn receive(&mut self, ready: &Ready) -> Result<(), RelayError> {
        for &id in &ready.upstreams {
            self.receive_from_server(id)?;
        }
        if ready.clients {
            self.receive_from_clients()?;
        }
        Ok(())
    }

    fn receive_from_server(&mut self, id: ClientId) -> io::Result<()> {
        let now_ns = self.now_ns();
        let Some(client) = self.clients.get_mut(id) else { return Ok(()) };
        let (to, path) = (self.to, &mut self.path);
        for _ in 0..BATCHES_PER_TURN {
            let more = client.upstream.receive(&mut self.batch, |received| {
                // Others have no business with this socket.
                if (received.from.ip(), received.from.port()) == (to.ip(), to.port()) {
                    let datagram = Datagram { client: id, ecn: received.ecn, bytes: received.bytes.to_vec() };
                    path.send(now_ns, Direction::Backward, datagram, received.bytes.len());
                }
            })?;
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn receive_from_clients(&mut self) -> io::Result<()> {
        let now_ns = self.now_ns();
        let mut joined = Vec::new();
        for _ in 0..BATCHES_PER_TURN {
            let (clients, path, refused) = (&mut self.clients, &mut self.path, &mut self.refused);
            let more = self.listener.receive(&mut self.batch, |received: Received<'_>| {
                let id = match clients.find(received.from, received.to_ip, now_ns) {
                    Ok(Found::Known(id)) => id,
                    Ok(Found::New(id)) => {
                        joined.push(received.from);
                        id
                    }
                    // No room, or no socket to be had: it is as if there was no room.
                    Ok(Found::Full) | Err(_) => {
                        *refused += 1;
                        return;
                    }
                };
                let datagram = Datagram { client: id, ecn: received.ecn, bytes: received.bytes.to_vec() };
                path.send(now_ns, Direction::Forward, datagram, received.bytes.len());
            })?;
            if !more {
                break;
            }
        }
        for client in joined {
            self.tell(RelayEvent::Joined { t_s: seconds(now_ns), client });
        }
        Ok(())
    }

    fn tell(&self, event: RelayEvent) {
        // Nobody listens any more only when the relay is about to stop.
        let _ = self.events.send(event);
    }

    fn stats(&mut self) -> RelayStats {
        let now_ns = self.now_ns();
        self.path.advance(now_ns);
        let mut ports = HashSet::from([self.local_addr.port()]);
        ports.extend(self.clients.iter().filter_map(|(_, c)| c.upstream.local_addr().ok()).map(|a| a.port()));
        RelayStats {
            elapsed_s: seconds(now_ns),
            forward: self.path.stats(Direction::Forward),
            backward: self.path.stats(Direction::Backward),
            lateness: Lateness::of(&self.lateness),
            clients: self.clients.len() as u64,
            clients_total: self.clients.total(),
            refused: self.refused,
            send_failures: self.send_failures,
            kernel_dropped: kernel_dropped(&ports),
        }
    }
}

fn recorder(config: &RelayConfig) -> Result<Option<Recorder>, RelayError> {
    config.record.as_deref().map(|file| Recorder::create(file, config.each)).transpose()
}

/// Makes this thread punctual, as far as the process is permitted to.
fn hasten_this_thread() {
    // The default slack of 50 us would add to every sleep. Where it cannot be set, it stays.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    // Run before whatever else wants the processor: a relay that is kept waiting is a path that
    // stands still. It needs a privilege, without which the relay has its share like any other.
    let real_time = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    if let Ok(priority) = ThreadPriorityValue::try_from(REAL_TIME_PRIORITY) {
        let priority = ThreadPriority::Crossplatform(priority);
        let _ = set_thread_priority_and_policy(thread_native_id(), priority, real_time);
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
