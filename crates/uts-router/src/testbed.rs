//! A testbed's handle.

use super::config::TestbedConfig;
use super::error::RouterError;
use super::fidelity::{Fidelity, PathStats};
use super::protocol::{Answer, Begin, Call, Exited, Lines, Message, Request, Spawn, Traces, send};
use super::supervise::{is_supervisor, null, outer_command};
use super::topology::{ipv4_of, ipv6_of};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use uts_end::output;
use uts_path::{Change, Target};

/// Time that a supervisor may take to end after its stream has; then it is killed.
const ENDING_TIME: Duration = Duration::from_secs(5);

/// A running testbed. It ends with this handle, or with the process that holds it, however that
/// ends. All programs on its hosts end too.
#[derive(Debug)]
pub struct Testbed {
    control: Control,
    supervisor: Child,
}

/// Control over a testbed, from any thread.
#[derive(Debug, Clone)]
pub struct Control(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: TestbedConfig,
    stream: Mutex<UnixStream>,
    next: AtomicU64,
    waiting: Mutex<Waiting>,
}

/// Which call waits for what. The reader empties it when the stream ends, and all waiting calls
/// hear of that.
#[derive(Debug, Default)]
struct Waiting {
    replies: HashMap<u64, Sender<Result<Answer, String>>>,
    children: HashMap<u64, Sender<Exited>>,
    /// Why there is no supervisor any more.
    ended: Option<String>,
}

/// Results of a testbed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// Fidelity to its model.
    pub fidelity: Fidelity,
    /// Counters of the paths.
    pub paths: Vec<PathStats>,
}

impl Testbed {
    /// Makes the hosts and the paths, and starts RouterPC. Takes some hundredths of a second.
    ///
    /// # Errors
    /// A setting is out of range; or the system does not permit it, and [`doctor`](super::doctor())
    /// says what would help.
    pub fn start(config: TestbedConfig) -> Result<Self, RouterError> {
        config.validate()?;
        if is_supervisor() {
            let program = "this program has no subcommand `router supervise`; name one that has";
            return Err(RouterError::Config(format!("program: {program}")));
        }
        let (own, theirs) = UnixStream::pair().map_err(|e| RouterError::system("make a stream", e))?;
        let mut command =
            outer_command(&config, theirs).map_err(|e| RouterError::system("find this program", e))?;
        let name = command.get_program().to_string_lossy().into_owned();
        let supervisor =
            command.spawn().map_err(|e| RouterError::system(&format!("start {name} router supervise"), e))?;
        // The command holds the other end of the stream, which would never end.
        drop(command);
        let stream = |e| RouterError::system("speak to the supervisor", e);
        let reading = own.try_clone().map_err(stream)?;
        let shared =
            Shared { config, stream: Mutex::new(own), next: AtomicU64::new(0), waiting: Mutex::default() };
        let bed = Testbed { control: Control(Arc::new(shared)), supervisor };
        let mut lines = Lines::new(reading);
        let asked = send(&lock(&bed.control.0.stream), &Begin::new(&bed.control.0.config), &[]);
        match asked.and_then(|()| lines.next::<Message>()) {
            Ok(Some(Message::Ready)) => {}
            Ok(Some(Message::Failed(why))) => return Err(RouterError::Supervisor(why)),
            Ok(Some(other)) => return Err(RouterError::Supervisor(format!("says {other:?}"))),
            Ok(None) => return Err(RouterError::Supervisor(format!("`{name} router supervise` has ended"))),
            Err(e) => return Err(stream(e)),
        }
        let shared = Arc::clone(&bed.control.0);
        std::thread::Builder::new()
            .name("testbed".into())
            .spawn(move || shared.listen(lines))
            .map_err(|e| RouterError::system("start a thread", e))?;
        Ok(bed)
    }

    /// Number of hosts; they are counted from 0.
    pub fn hosts(&self) -> usize {
        self.control.0.config.topology.hosts()
    }

    /// A host's IPv4 address: 10.77.0.1 of host 0, and so on.
    pub fn address(&self, host: usize) -> IpAddr {
        ipv4_of(host).into()
    }

    /// A host's IPv6 address, if the testbed has IPv6: fd77::1 of host 0, and so on.
    pub fn address_v6(&self, host: usize) -> Option<Ipv6Addr> {
        self.control.0.config.ipv6.then(|| ipv6_of(host))
    }

    /// Settings that the testbed was made with.
    pub fn config(&self) -> &TestbedConfig {
        &self.control.0.config
    }

    /// A handle for other threads. It does not keep the testbed.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// A program to be run on a host.
    pub fn command(&self, host: usize, program: impl Into<String>) -> HostCommand {
        self.control.command(host, program)
    }

    /// Starts all paths, their schedules, the counters and the record anew, from now on. Programs
    /// go on. Packets under way are gone. Call it when all programs are ready and the experiment is
    /// to begin.
    ///
    /// # Errors
    /// A file of the record cannot be written, or the testbed has ended.
    pub fn begin(&self) -> Result<(), RouterError> {
        self.control.call(Call::Begin, &[]).map(drop)
    }

    /// See [`Control::set`].
    ///
    /// # Errors
    /// As there.
    pub fn set(&self, path: usize, target: Target, change: &Change) -> Result<(), RouterError> {
        self.control.set(path, target, change)
    }

    /// See [`Control::stats`].
    ///
    /// # Errors
    /// As there.
    pub fn stats(&self) -> Result<Vec<PathStats>, RouterError> {
        self.control.stats()
    }

    /// Ends the testbed and everything in it, and says how it was.
    ///
    /// # Errors
    /// The record could not be written, or the testbed has ended before.
    pub fn finish(mut self) -> Result<Ending, RouterError> {
        let answer = self.control.call(Call::Finish, &[])?;
        let status = self.supervisor.wait().map_err(|e| RouterError::system("wait for the supervisor", e))?;
        match answer {
            Answer::Ending { fidelity, paths } if status.success() => Ok(Ending { fidelity, paths }),
            Answer::Ending { .. } => Err(RouterError::Supervisor(format!("has ended with {status}"))),
            other => Err(RouterError::Supervisor(format!("says {other:?}"))),
        }
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let _ = lock(&self.control.0.stream).shutdown(std::net::Shutdown::Both);
        let begun = Instant::now();
        while begun.elapsed() < ENDING_TIME {
            match self.supervisor.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        // Its death takes the inner process with it.
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
    }
}

impl Control {
    /// A program to be run on a host.
    pub fn command(&self, host: usize, program: impl Into<String>) -> HostCommand {
        HostCommand {
            control: self.clone(),
            host,
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            dir: None,
            stdin: Io::Null,
            stdout: Io::Inherit,
            stderr: Io::Inherit,
        }
    }

    /// Changes a path while it runs. Paths are counted from 0.
    ///
    /// # Errors
    /// There is no such path; or the testbed has ended.
    pub fn set(&self, path: usize, target: Target, change: &Change) -> Result<(), RouterError> {
        let traces = Traces::of(change.traces());
        let call = Call::Set { path, target: target.keyword().into(), change: change.to_string(), traces };
        self.call(call, &[]).map(drop)
    }

    /// Counters of the paths so far.
    ///
    /// # Errors
    /// The testbed has ended.
    pub fn stats(&self) -> Result<Vec<PathStats>, RouterError> {
        match self.call(Call::Stats, &[])? {
            Answer::Stats(stats) => Ok(stats),
            other => Err(RouterError::Supervisor(format!("says {other:?}"))),
        }
    }

    fn call(&self, call: Call, fds: &[std::os::fd::BorrowedFd<'_>]) -> Result<Answer, RouterError> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (sender, reply) = channel();
        {
            let mut waiting = lock(&self.0.waiting);
            if let Some(why) = &waiting.ended {
                return Err(RouterError::Supervisor(why.clone()));
            }
            waiting.replies.insert(id, sender);
        }
        send(&lock(&self.0.stream), &Request { id, call }, fds)
            .map_err(|e| RouterError::system("speak to the supervisor", e))?;
        match reply.recv() {
            Ok(result) => result.map_err(RouterError::Supervisor),
            Err(_) => Err(self.0.why_ended()),
        }
    }
}

impl Shared {
    /// Gives everyone what is said to him, until nothing is said any more.
    fn listen(&self, mut lines: Lines) {
        let why = loop {
            match lines.next::<Message>() {
                Ok(Some(Message::Reply { id, result })) => {
                    if let Some(reply) = lock(&self.waiting).replies.remove(&id) {
                        let _ = reply.send(result);
                    }
                }
                Ok(Some(Message::Exited(exited))) => {
                    if let Some(child) = lock(&self.waiting).children.remove(&exited.child) {
                        let _ = child.send(exited);
                    }
                }
                Ok(Some(Message::Failed(why))) => break why,
                Ok(Some(Message::Ready)) => {}
                Ok(None) => break "has ended".into(),
                Err(e) => break e.to_string(),
            }
        };
        *lock(&self.waiting) = Waiting { ended: Some(why), ..Waiting::default() };
    }

    fn why_ended(&self) -> RouterError {
        let why = lock(&self.waiting).ended.clone();
        RouterError::Supervisor(why.unwrap_or_else(|| "does not answer".into()))
    }
}

/// Where a program's input comes from, or its output goes to.
#[derive(Debug)]
pub enum Io {
    /// Nowhere.
    Null,
    /// This process's own.
    Inherit,
    /// A pipe, to be found in [`RemoteChild`].
    Pipe,
    /// A file.
    File(File),
}

/// A program to be run on a host, in the manner of [`std::process::Command`]. By default it has no
/// input, and this process's output, environment and directory.
#[derive(Debug)]
#[must_use]
pub struct HostCommand {
    control: Control,
    host: usize,
    program: String,
    args: Vec<String>,
    env: Vec<(String, Option<String>)>,
    dir: Option<String>,
    stdin: Io,
    stdout: Io,
    stderr: Io,
}

impl HostCommand {
    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((key.into(), Some(value.into())));
        self
    }

    /// Takes a variable out of its environment.
    pub fn env_remove(mut self, key: impl Into<String>) -> Self {
        self.env.push((key.into(), None));
        self
    }

    /// Its working directory.
    pub fn current_dir(mut self, dir: impl Into<String>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Its standard input.
    pub fn stdin(mut self, io: Io) -> Self {
        self.stdin = io;
        self
    }

    /// Its standard output.
    pub fn stdout(mut self, io: Io) -> Self {
        self.stdout = io;
        self
    }

    /// Its standard error.
    pub fn stderr(mut self, io: Io) -> Self {
        self.stderr = io;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// There is no such host or program, or the testbed has ended.
    pub fn spawn(self) -> Result<RemoteChild, RouterError> {
        let descriptors = |e| RouterError::system("give a program its input and output", e);
        let (stdin, their_stdin) = input(self.stdin).map_err(descriptors)?;
        let (stdout, their_stdout) =
            output(self.stdout, || output::Output::Out.handle()).map_err(descriptors)?;
        let (stderr, their_stderr) =
            output(self.stderr, || output::Output::Err.handle()).map_err(descriptors)?;
        let child = self.control.0.next.fetch_add(1, Ordering::Relaxed);
        let (ended, exit) = channel();
        lock(&self.control.0.waiting).children.insert(child, ended);
        let fds = [their_stdin.as_fd(), their_stdout.as_fd(), their_stderr.as_fd()];
        let HostCommand { control, host, program, args, env, dir, .. } = self;
        let begun = Instant::now();
        let call = Call::Spawn(Spawn { child, host, program, args, env, dir });
        match control.call(call, &fds) {
            Ok(Answer::Spawned { pid }) => {
                Ok(RemoteChild { control, child, pid, begun, exit, exited: None, stdin, stdout, stderr })
            }
            other => {
                lock(&control.0.waiting).children.remove(&child);
                Err(other.err().unwrap_or_else(|| RouterError::Supervisor("says something else".into())))
            }
        }
    }

    /// Runs it to its end, and collects what it says.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub fn output(self) -> Result<Output, RouterError> {
        let mut child = self.stdout(Io::Pipe).stderr(Io::Pipe).spawn()?;
        let stderr = child.stderr.take();
        let errors = std::thread::spawn(move || read_all(stderr));
        let stdout = read_all(child.stdout.take());
        let stderr = errors.join().unwrap_or_else(|_| Ok(Vec::new()));
        let reading = |e| RouterError::system("read what a program says", e);
        let (stdout, stderr) = (stdout.map_err(reading)?, stderr.map_err(reading)?);
        Ok(Output { exit: child.wait()?, stdout, stderr })
    }
}

fn read_all(pipe: Option<PipeReader>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut bytes))?;
    Ok(bytes)
}

fn input(io: Io) -> io::Result<(Option<PipeWriter>, OwnedFd)> {
    Ok(match io {
        Io::Null => (None, null(false)?),
        Io::Inherit => (None, output::input_handle()?),
        Io::File(file) => (None, file.into()),
        Io::Pipe => {
            let (reader, writer) = io::pipe()?;
            (Some(writer), reader.into())
        }
    })
}

fn output(io: Io, own: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<(Option<PipeReader>, OwnedFd)> {
    Ok(match io {
        Io::Null => (None, null(true)?),
        Io::Inherit => (None, own()?),
        Io::File(file) => (None, file.into()),
        Io::Pipe => {
            let (reader, writer) = io::pipe()?;
            (Some(reader), writer.into())
        }
    })
}

/// End of a program, and the resources that it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exit {
    /// Its status.
    pub status: ExitStatus,
    /// Processor time in user mode, in seconds; with its own children that it has waited for.
    pub user_s: f64,
    /// Processor time in the kernel, likewise.
    pub system_s: f64,
    /// Most memory that it held, in bytes.
    pub max_resident_bytes: u64,
    /// From its start to when its end was known.
    pub elapsed: Duration,
}

/// Output of a program, and its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Its end.
    pub exit: Exit,
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// All of its standard error.
    pub stderr: Vec<u8>,
}

/// A program on a host. It goes on when this is dropped, to the end of the testbed.
#[derive(Debug)]
pub struct RemoteChild {
    control: Control,
    child: u64,
    pid: i32,
    begun: Instant,
    exit: Receiver<Exited>,
    exited: Option<Exit>,
    /// Its input, if that is a pipe.
    pub stdin: Option<PipeWriter>,
    /// Its output, if that is a pipe.
    pub stdout: Option<PipeReader>,
    /// Its errors, if that is a pipe.
    pub stderr: Option<PipeReader>,
}

impl RemoteChild {
    /// Its process number, in the testbed's own namespace.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits for its end, after closing its input.
    ///
    /// # Errors
    /// The testbed has ended, and the program with it.
    pub fn wait(&mut self) -> Result<Exit, RouterError> {
        drop(self.stdin.take());
        if let Some(exit) = self.exited {
            return Ok(exit);
        }
        match self.exit.recv() {
            Ok(exited) => Ok(self.note(exited)),
            Err(_) => Err(self.control.0.why_ended()),
        }
    }

    /// Waits for its end for this long at most; `None` if it goes on.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<Exit>, RouterError> {
        if self.exited.is_some() {
            return Ok(self.exited);
        }
        match self.exit.recv_timeout(timeout) {
            Ok(exited) => Ok(Some(self.note(exited))),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.control.0.why_ended()),
        }
    }

    /// Kills it and what it has started, except what has left its process group. Nothing happens if
    /// it has ended.
    ///
    /// # Errors
    /// The testbed has ended.
    pub fn kill(&self) -> Result<(), RouterError> {
        self.signal(Signal::KILL)
    }

    /// Sends it a signal, likewise.
    ///
    /// # Errors
    /// The testbed has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), RouterError> {
        let call = Call::Signal { child: self.child, signal: signal.as_raw() };
        self.control.call(call, &[]).map(drop)
    }

    fn note(&mut self, exited: Exited) -> Exit {
        let exit = Exit {
            status: ExitStatus::from_raw(exited.status),
            user_s: exited.user_s,
            system_s: exited.system_s,
            max_resident_bytes: exited.max_resident_bytes,
            elapsed: self.begun.elapsed(),
        };
        self.exited = Some(exit);
        exit
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
