//! The processes that a testbed lives in.
//!
//! ```text
//! the caller's process --- stream --- outer --- fork --- inner --- programs
//! ```
//!
//! *Outer* leaves the caller's namespaces (single-threaded, as a user namespace demands), starts
//! *inner* in the new ones, and waits. *Inner* is process 1 of its namespace and holds everything:
//! hosts, RouterPC's thread, programs. When it ends, for whatever reason, the kernel kills every
//! process of its namespace. With the last one, the network namespaces and their interfaces end.
//! *Inner* ends
//!
//! * when it is told to, or the stream ends because the caller has ended or was killed;
//! * when *outer* was killed (it gets SIGKILL as its parent's death signal);
//! * when it is killed itself.
//!
//! All is in network namespaces of its own: the caller's network is neither seen nor touched.

use super::config::TestbedConfig;
use super::error::RouterError;
use super::fidelity::{Fidelity, LostOutside};
use super::forward::{Command as Order, Ended, Forwarder};
use super::host::{Host, HostLosses, interface_drops, silence_router};
use super::protocol::{Answer, Begin, Call, Exited, Lines, Message, Request, Spawn, send};
use super::record::Sheet;
use super::sys::{reap, unshare, wait_for_any_child};
use super::tcp_info::{COLUMNS, Sampler};
use rustix::event::{EventfdFlags, eventfd};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use uts_end::output;
use uts_path::{Change, Direction, Target};

/// Which of the two processes this is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The one that the handle starts.
    Outer,
    /// The one that it starts in turn.
    Inner,
}

/// Is a testbed's supervisor, with its handle at the other end of standard input. False = it
/// failed. To be called by the subcommand `router supervise`, before the process has a second
/// thread.
pub fn supervise(stage: Stage) -> bool {
    let stream = match output::input_handle() {
        Ok(fd) => UnixStream::from(fd),
        Err(e) => {
            output::fail(format_args!("router supervise: standard input must be a testbed's stream: {e}"));
            return false;
        }
    };
    let done = match stage {
        Stage::Outer => outer(),
        Stage::Inner => inner(&stream),
    };
    match done {
        Ok(done) => done,
        Err(e) => {
            // If nobody is there any more, nobody needs to know.
            let _ = send(&stream, &Message::Failed(e.to_string()), &[]);
            false
        }
    }
}

fn outer() -> Result<bool, RouterError> {
    // Ctrl-C is for the caller and for programs in the foreground. The testbed ends when its handle
    // wants it.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGQUIT, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::default())
            .map_err(|e| RouterError::system("catch signals", e))?;
    }
    leave_namespaces()?;
    let mut command = Command::new("/proc/self/exe");
    command.args(["router", "supervise", "--inner"]);
    let mut child = command.spawn().map_err(|e| RouterError::system("start the inner process", e))?;
    let status = child.wait().map_err(|e| RouterError::system("wait for the inner process", e))?;
    Ok(status.success())
}

/// Leaves for new namespaces, as root without a new user: then buffers of any size and real-time
/// priorities are to be had.
fn leave_namespaces() -> Result<(), RouterError> {
    let spaces = UnshareFlags::NEWNET | UnshareFlags::NEWPID | UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if user.is_root() && unshare(spaces).is_ok() {
        return Ok(());
    }
    unshare(spaces | UnshareFlags::NEWUSER).map_err(|e| RouterError::system("make namespaces", e))?;
    // In this order: a group may only be mapped once changing groups is given up
    // (user_namespaces(7)).
    for (file, text) in [
        ("/proc/self/setgroups", "deny".into()),
        ("/proc/self/uid_map", format!("0 {} 1", user.as_raw())),
        ("/proc/self/gid_map", format!("0 {} 1", group.as_raw())),
    ] {
        std::fs::write(file, text).map_err(|e| RouterError::system(&format!("write {file}"), e))?;
    }
    Ok(())
}

fn inner(stream: &UnixStream) -> Result<bool, RouterError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| RouterError::system("tie its life to its parent's", e.into()))?;
    own_proc();
    let copy = |s: &UnixStream| s.try_clone().map_err(|e| RouterError::system("copy the stream", e));
    let mut lines = Lines::new(copy(stream)?);
    let config = match lines.next::<Begin>() {
        Ok(Some(begin)) => begin.config()?,
        Ok(None) => return Ok(true),
        Err(e) => return Err(RouterError::system("read the configuration", e)),
    };
    let mut bed = Bed::build(config, copy(stream)?)?;
    bed.say(&Message::Ready);
    loop {
        match lines.next::<Request>() {
            Ok(Some(request)) => {
                let is_end = matches!(request.call, Call::Finish);
                let result = bed.answer(request.call, &mut lines).map_err(|e| e.to_string());
                bed.say(&Message::Reply { id: request.id, result });
                if is_end {
                    return Ok(true);
                }
            }
            // The handle is gone: what was recorded so far is kept.
            Ok(None) => return bed.finish().map(|_| true),
            Err(e) => return Err(RouterError::system("read a request", e)),
        }
    }
}

/// Mounts a `/proc` that shows the namespace's own processes. If it may not be mounted (in
/// containers that hide parts of theirs), the caller's stays. Programs that look for others by
/// number find none.
fn own_proc() {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    if mount_change("/", private).is_ok() {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let _ = mount("proc", "/proc", "proc", flags, None);
    }
}

/// Programs on hosts, by their process numbers.
#[derive(Debug, Default)]
struct Programs {
    by_pid: HashMap<i32, u64>,
    /// There may be a program to wait for.
    any: bool,
}

/// Everything there is.
struct Bed {
    config: TestbedConfig,
    hosts: Vec<Host>,
    orders: Sender<Order>,
    wake: Arc<OwnedFd>,
    forwarder: Option<JoinHandle<Result<Ended, RouterError>>>,
    programs: Arc<(Mutex<Programs>, Condvar)>,
    stream: Arc<Mutex<UnixStream>>,
    sampler: Option<Sampler>,
    /// Losses on hosts at the beginning.
    lost_before: Vec<Losses>,
}

/// Losses round a host, since the start.
#[derive(Debug, Clone, Copy, Default)]
struct Losses {
    host: HostLosses,
    router_side: u64,
}

impl Bed {
    fn build(config: TestbedConfig, stream: UnixStream) -> Result<Self, RouterError> {
        config.validate()?;
        silence_router()?;
        let hosts = (0..config.topology.hosts()).map(Host::new).collect::<Result<Vec<_>, _>>()?;
        let sockets = hosts.iter().map(|host| host.connect(&config)).collect::<Result<Vec<_>, _>>()?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| RouterError::system("make an event descriptor", e.into()))?;
        let wake = Arc::new(wake);
        let (orders, todo) = channel();
        let forwarder = Forwarder::new(config.clone(), sockets, todo, Arc::clone(&wake))?;
        let begun_ns = forwarder.begun_ns();
        let forwarder = std::thread::Builder::new()
            .name("forward".into())
            .spawn(move || forwarder.run())
            .map_err(|e| RouterError::system("start RouterPC's thread", e))?;
        let mut bed = Bed {
            config,
            hosts,
            orders,
            wake,
            forwarder: Some(forwarder),
            programs: Arc::default(),
            stream: Arc::new(Mutex::new(stream)),
            sampler: None,
            lost_before: Vec::new(),
        };
        bed.start_sampling(begun_ns)?;
        bed.lost_before = bed.losses()?;
        bed.start_reaper()?;
        Ok(bed)
    }

    fn say(&self, message: &Message) {
        // If the handle is gone, the next reading says so.
        let _ = send(&lock(&self.stream), message, &[]);
    }

    fn answer(&mut self, call: Call, lines: &mut Lines) -> Result<Answer, RouterError> {
        match call {
            Call::Spawn(spawn) => {
                let fds = lines.take_fds().ok_or_else(|| {
                    RouterError::Config("a program needs descriptors of its input and output".into())
                })?;
                let pid = self.spawn(spawn, fds)?;
                Ok(Answer::Spawned { pid })
            }
            Call::Signal { child, signal } => self.signal(child, signal),
            Call::Set { path, target, change, traces } => {
                let target = target_of(&target)?;
                let mut change: Change = change.parse()?;
                change.resolve(|name| traces.find(name))?;
                self.order(|reply| Order::Set { path, target, change, reply })?
                    .map_err(RouterError::Config)?;
                Ok(Answer::Done)
            }
            Call::Stats => Ok(Answer::Stats(self.order(Order::Stats)?)),
            Call::Begin => {
                self.stop_sampling()?;
                let begun_ns = self.order(Order::Begin)?.map_err(RouterError::Config)?;
                self.start_sampling(begun_ns)?;
                self.lost_before = self.losses()?;
                Ok(Answer::Done)
            }
            Call::Finish => self.finish(),
        }
    }

    /// Gives RouterPC's thread an order and waits for its answer.
    fn order<T>(&mut self, order: impl FnOnce(Sender<T>) -> Order) -> Result<T, RouterError> {
        let (reply, answer) = channel();
        if self.orders.send(order(reply)).is_ok() {
            self.wake();
            if let Ok(answer) = answer.recv() {
                return Ok(answer);
            }
        }
        Err(self.failure())
    }

    fn wake(&self) {
        // A full count wakes just as well.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// Why RouterPC's thread is not there any more.
    fn failure(&mut self) -> RouterError {
        match self.forwarder.take().map(JoinHandle::join) {
            Some(Ok(Err(e))) => e,
            Some(Err(_)) => RouterError::Config("RouterPC's thread has panicked".into()),
            Some(Ok(Ok(_))) | None => RouterError::Config("RouterPC's thread has ended".into()),
        }
    }

    fn start_sampling(&mut self, origin_ns: u64) -> Result<(), RouterError> {
        if let Some(record) = &self.config.record
            && let Some(interval_ms) = record.tcp_info_ms
        {
            let sheet = Sheet::create(record, "tcp.csv", COLUMNS)?;
            let interval = Duration::from_millis(interval_ms.into());
            self.sampler = Some(Sampler::start(&self.hosts, sheet, interval, origin_ns)?);
        }
        Ok(())
    }

    fn stop_sampling(&mut self) -> Result<(), RouterError> {
        self.sampler.take().map_or(Ok(()), Sampler::finish)
    }

    fn finish(&mut self) -> Result<Answer, RouterError> {
        self.stop_sampling()?;
        let losses = self.losses()?;
        if self.orders.send(Order::Finish).is_err() {
            return Err(self.failure());
        }
        self.wake();
        let ended = match self.forwarder.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended?,
            _ => return Err(RouterError::Config("RouterPC's thread has panicked".into())),
        };
        let (mut in_sockets, mut on_interfaces) = (0, 0);
        for (now, before) in losses.iter().zip(&self.lost_before) {
            in_sockets += now.host.in_sockets.saturating_sub(before.host.in_sockets);
            let on_both = |l: &Losses| l.host.on_interface + l.router_side;
            on_interfaces += on_both(now).saturating_sub(on_both(before));
        }
        let fidelity = Fidelity {
            lateness: ended.lateness,
            packets: ended.packets,
            lost_outside: LostOutside {
                not_read: ended.not_read,
                not_sent: ended.not_sent,
                on_interfaces,
                not_understood: ended.not_understood,
                in_sockets,
            },
            astray: ended.astray,
            not_recorded: ended.not_recorded,
            cpu_s: ended.cpu_s,
            elapsed_s: ended.elapsed_s,
            clock_step_s: ended.clock_step_s,
            is_valid: false,
            why: Vec::new(),
        };
        Ok(Answer::Ending { fidelity: fidelity.judge(&self.config.bounds), paths: ended.paths })
    }

    fn losses(&self) -> Result<Vec<Losses>, RouterError> {
        let of = |(number, host): (usize, &Host)| {
            let router_side = interface_drops(&format!("host{number}"));
            Ok(Losses { host: host.losses()?, router_side })
        };
        let losses: io::Result<Vec<Losses>> = self.hosts.iter().enumerate().map(of).collect();
        losses.map_err(|e| RouterError::system("read hosts' counters", e))
    }

    fn spawn(&self, spawn: Spawn, fds: [OwnedFd; 3]) -> Result<i32, RouterError> {
        let Some(host) = self.hosts.get(spawn.host) else {
            let count = self.hosts.len();
            return Err(RouterError::Config(format!(
                "host {}: there are {count}, counted from 0",
                spawn.host
            )));
        };
        let (programs, foreground, child) = (Arc::clone(&self.programs), self.config.foreground, spawn.child);
        let name = spawn.program.clone();
        let started = host.run(move || {
            let mut command = Command::new(&spawn.program);
            let [stdin, stdout, stderr] = fds;
            command.args(&spawn.args).stdin(stdin).stdout(stdout).stderr(stderr);
            command.env_remove(SUPERVISOR_VARIABLE);
            for (key, value) in &spawn.env {
                match value {
                    Some(value) => command.env(key, value),
                    None => command.env_remove(key),
                };
            }
            if let Some(dir) = &spawn.dir {
                command.current_dir(dir);
            }
            if !foreground {
                command.process_group(0);
            }
            let (programs, changed) = &*programs;
            // Held meanwhile, to keep the reaper from taking a process that could not be started,
            // or one that is not yet noted.
            let mut programs = lock(programs);
            let pid = command.spawn()?.id().cast_signed();
            programs.by_pid.insert(pid, child);
            programs.any = true;
            changed.notify_all();
            Ok(pid)
        });
        let started = started.and_then(|pid: io::Result<i32>| pid);
        started.map_err(|e| RouterError::system(&format!("start `{name}`"), e))
    }

    fn signal(&self, child: u64, signal: i32) -> Result<Answer, RouterError> {
        let programs = lock(&self.programs.0);
        let pid = programs.by_pid.iter().find(|(_, c)| **c == child).and_then(|(pid, _)| Pid::from_raw(*pid));
        let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) else {
            // It has ended; the message that says so is on its way.
            return Ok(Answer::Done);
        };
        let sent = if self.config.foreground {
            rustix::process::kill_process(pid, signal)
        } else {
            kill_process_group(pid, signal)
        };
        match sent {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(Answer::Done),
            Err(e) => Err(RouterError::system("send a signal", e.into())),
        }
    }

    /// Collects programs that have ended, and orphans of theirs: this is process 1.
    fn start_reaper(&self) -> Result<(), RouterError> {
        let (programs, stream) = (Arc::clone(&self.programs), Arc::clone(&self.stream));
        let work = move || {
            loop {
                match wait_for_any_child() {
                    Ok(pid) => {
                        let mut programs = lock(&programs.0);
                        let Some(reaped) = reap(pid) else { continue };
                        let Some(child) = programs.by_pid.remove(&pid.as_raw_nonzero().get()) else {
                            continue;
                        };
                        drop(programs);
                        let exited = Exited {
                            child,
                            status: reaped.status,
                            user_s: reaped.user.as_secs_f64(),
                            system_s: reaped.system.as_secs_f64(),
                            max_resident_bytes: reaped.max_resident_bytes,
                        };
                        let _ = send(&lock(&stream), &Message::Exited(exited), &[]);
                    }
                    Err(_) => {
                        // No children: until there are.
                        let (programs, changed) = &*programs;
                        let mut guard = lock(programs);
                        if guard.by_pid.is_empty() {
                            guard.any = false;
                        }
                        while !guard.any {
                            guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
                        }
                    }
                }
            }
        };
        let started = std::thread::Builder::new().name("reap".into()).spawn(work);
        started.map(drop).map_err(|e| RouterError::system("start the reaper's thread", e))
    }
}

fn target_of(text: &str) -> Result<Target, RouterError> {
    let all = [Target::One(Direction::Forward), Target::One(Direction::Backward), Target::Both];
    let found = all.into_iter().find(|target| target.keyword() == text);
    found.ok_or_else(|| RouterError::Config(format!("`{text}` is none of fwd, bwd, both")))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a program's input comes from or its output goes to, so that it is nowhere.
pub(super) fn null(write: bool) -> io::Result<OwnedFd> {
    std::fs::OpenOptions::new().read(!write).write(write).open("/dev/null").map(Into::into)
}

/// An environment variable of processes that were started to supervise a testbed.
const SUPERVISOR_VARIABLE: &str = "UTS_LAB_SUPERVISOR";

/// True if this process was started to supervise a testbed. A program without that subcommand, such
/// as a test program, would otherwise start itself again without end.
pub(super) fn is_supervisor() -> bool {
    std::env::var_os(SUPERVISOR_VARIABLE).is_some()
}

/// Command by which the handle starts the outer process.
pub(super) fn outer_command(config: &TestbedConfig, stream: UnixStream) -> io::Result<Command> {
    let program = match &config.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()?,
    };
    let mut command = Command::new(program);
    command.env(SUPERVISOR_VARIABLE, "1");
    command.args(["router", "supervise"]).stdin(Stdio::from(OwnedFd::from(stream))).stdout(Stdio::null());
    if !config.foreground {
        command.process_group(0);
    }
    Ok(command)
}
