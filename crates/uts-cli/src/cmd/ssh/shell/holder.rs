//! The process that holds a shell: its terminal, what that shows, and its exit status. It belongs
//! to no session of ssh, and ends with the shell. A shell that has ended while nobody was attached
//! is kept until somebody has seen it.

use super::attached::size;
use super::board::Board;
use super::screen::Screen;
use super::wire::{CONTENT_BYTES_MAX, Frame, Hello, Size};
use crate::args::SshShellArgs;
use crate::cmd::ssh::login::MARK;
use crate::cmd::ssh::places;
use crate::cmd::ssh::server::leave;
use crate::cmd::{Failure, interrupted};
use crate::ui::lines;
use pty_process::{OwnedReadPty, OwnedWritePty};
use rustix::process::{Pid, Signal};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use uts_end::output::{self, words};

/// Bytes for who is attached, or for the shell, behind which no more are read. Chosen: some
/// screens.
const WAITING_BYTES_MAX: usize = 256 << 10;

/// Time that who attaches has to say so, and who is no longer attached has to hear it.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Time that a shell has to end when it is told to.
const END_MAX: Duration = Duration::from_secs(2);

/// Time for which output of a shell that has ended is read, and the longest pause within it.
const DRAIN_MAX: Duration = Duration::from_secs(1);
const DRAIN_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Time for which a shell that has ended is kept to be seen: a holiday of a week.
const KEPT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Attachments that may wait for their turn.
const ARRIVALS_MAX: usize = 4;

/// Holds a shell. Says its name on standard output, and then leaves the outputs to others.
///
/// # Errors
/// See [`Failure`].
pub async fn run(args: &SshShellArgs) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::Failed(format!("cannot hold a shell: {}", words(&error)));
    let terminal = output::input_handle().map_err(failed)?;
    let null = File::options().read(true).write(true).open("/dev/null").map_err(failed)?;
    // The session of ssh that has begun it ends before it.
    let _ = rustix::process::setsid();
    let dir = places::directory().map_err(Failure::Failed)?;
    let (control, name) = super::bind(&dir).map_err(Failure::Failed)?;
    let agent = Agent(dir.join(format!("{name}.agent")));
    let (mut held, mut child, board) = begin(args, &name, &terminal, &agent.0).map_err(failed)?;
    lines::print(&format!("{MARK}shell {name}"));
    leave(&null).map_err(|error| failed(error.into()))?;
    // What is there may be unmounted.
    let _ = std::env::set_current_dir("/");
    drop((terminal, null));
    let (successors, mut come) = mpsc::channel(ARRIVALS_MAX);
    let control = tokio::spawn(control.serve_with(board, Some(successors)));
    let (arrivals, arrived) = mpsc::channel(1);
    let greeting = tokio::spawn(async move {
        while let Some(socket) = come.recv().await {
            tokio::spawn(greet(socket, arrivals.clone()));
        }
    });
    held.hold(&mut child, arrived, &agent.0).await;
    greeting.abort();
    control.abort();
    // Its socket is removed with it.
    let _ = control.await;
    Ok(())
}

/// The place at which the shell finds the agent of who is attached. It is removed with this.
struct Agent(PathBuf);

impl Drop for Agent {
    fn drop(&mut self) {
        // There is none if no ssh has forwarded one.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Has the shell find this agent from now on, in place of the one before.
fn set_agent(at: &Path, agent: &str) -> io::Result<()> {
    let new = at.with_extension("agent-new");
    std::os::unix::fs::symlink(agent, &new)?;
    std::fs::rename(&new, at)
}

/// Begins the shell on a terminal with the size and the modes of another.
fn begin(
    args: &SshShellArgs,
    name: &str,
    like: &OwnedFd,
    agent: &Path,
) -> io::Result<(Held, Child, Arc<Board>)> {
    let (pty, pts) = pty_process::open().map_err(io::Error::other)?;
    if let Ok(modes) = tcgetattr(like) {
        tcsetattr(&pts, OptionalActions::Now, &modes)?;
    }
    let size = size(like);
    pty.resize(size_of(size)).map_err(io::Error::other)?;
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    let shell = PathBuf::from(shell.unwrap_or_else(|| "/bin/sh".into()));
    let mut command = pty_process::Command::new(&shell);
    command = match &args.run {
        Some(run) => command.arg("-c").arg(run),
        None => {
            // A login shell is one whose name begins so.
            let name = shell.file_name().unwrap_or(shell.as_os_str());
            command.arg0(std::ffi::OsStr::from_bytes(&[b"-", name.as_bytes()].concat()))
        }
    };
    let master = pty.as_fd().try_clone_to_owned()?;
    if let Ok(path) = rustix::pty::ptsname(&master, Vec::new()) {
        command = command.env("SSH_TTY", std::ffi::OsStr::from_bytes(path.as_bytes()));
    }
    if let Ok(forwarded) = std::env::var("SSH_AUTH_SOCK")
        && set_agent(agent, &forwarded).is_ok()
    {
        command = command.env("SSH_AUTH_SOCK", agent);
    }
    let child = command.spawn(pts).map_err(io::Error::other)?;
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let pid = pid.ok_or_else(|| io::Error::other("it has no number"))?;
    let board = Arc::new(Board::new(name.to_owned(), args.run.clone(), master, pid));
    let (reading, writing) = pty.into_split();
    let held = Held {
        board: board.clone(),
        screen: Screen::new(size),
        size,
        reading,
        writing,
        is_open: true,
        input: Vec::new(),
        output: Vec::new(),
        to: None,
        frames: None,
        ended: None,
    };
    Ok((held, child, board))
}

fn size_of(size: Size) -> pty_process::Size {
    pty_process::Size::new_with_pixel(size.rows, size.columns, size.width, size.height)
}

/// Somebody who attaches.
struct Arrival {
    hello: Hello,
    to: OwnedWriteHalf,
    frames: mpsc::Receiver<Frame>,
}

/// Hears who attaches, and then what it says.
async fn greet(socket: UnixStream, arrivals: mpsc::Sender<Arrival>) {
    let (mut from, mut to) = socket.into_split();
    let hello = async {
        let mut ready = Vec::new();
        Frame::Ready.write(&mut ready);
        to.write_all(&ready).await?;
        Frame::read(&mut from).await
    };
    let Ok(Ok(Frame::Hello(hello))) = timeout(ANSWER_MAX, hello).await else { return };
    let (said, frames) = mpsc::channel(1);
    if arrivals.send(Arrival { hello, to, frames }).await.is_err() {
        return;
    }
    while let Ok(frame) = Frame::read(&mut from).await {
        if said.send(frame).await.is_err() {
            return;
        }
    }
}

/// A shell, and who is attached.
struct Held {
    board: Arc<Board>,
    screen: Screen,
    size: Size,
    reading: OwnedReadPty,
    writing: OwnedWritePty,
    /// False once the shell's end of the terminal is closed.
    is_open: bool,
    /// Bytes for the shell.
    input: Vec<u8>,
    /// Bytes for who is attached.
    output: Vec<u8>,
    to: Option<OwnedWriteHalf>,
    frames: Option<mpsc::Receiver<Frame>>,
    ended: Option<u8>,
}

enum Event {
    Arrived(Arrival),
    Frame(Option<Frame>),
    Shown(io::Result<usize>),
    Typed(io::Result<usize>),
    Sent(io::Result<usize>),
    Exited(io::Result<ExitStatus>),
    End,
}

impl Held {
    /// Holds the shell until it has ended and somebody has seen it, or it is told to end.
    async fn hold(&mut self, child: &mut Child, mut arrived: mpsc::Receiver<Arrival>, agent: &Path) {
        let interrupt = interrupted();
        tokio::pin!(interrupt);
        let mut chunk = vec![0; CONTENT_BYTES_MAX];
        let mut kept_until = Instant::now();
        let board = self.board.clone();
        loop {
            let takes_output = self.is_open && self.output.len() < WAITING_BYTES_MAX;
            let takes_input = self.input.len() < WAITING_BYTES_MAX;
            let event = tokio::select! {
                () = &mut interrupt => Event::End,
                () = board.ended() => Event::End,
                () = sleep_until(kept_until), if self.ended.is_some() && self.to.is_none() => Event::End,
                Some(arrival) = arrived.recv() => Event::Arrived(arrival),
                status = child.wait(), if self.ended.is_none() => Event::Exited(status),
                frame = next(&mut self.frames), if takes_input => Event::Frame(frame),
                read = self.reading.read(&mut chunk), if takes_output => Event::Shown(read),
                sent = send(&mut self.to, &self.output) => Event::Sent(sent),
                typed = self.writing.write(&self.input), if self.is_open && !self.input.is_empty() => {
                    Event::Typed(typed)
                }
            };
            match event {
                Event::Arrived(arrival) => self.on_arrival(arrival, agent),
                Event::Frame(Some(Frame::Shown)) if self.ended.is_some() => return,
                Event::Frame(Some(frame)) => self.on_frame(frame),
                Event::Frame(None) | Event::Sent(Err(_) | Ok(0)) => self.on_left(),
                Event::Sent(Ok(bytes)) => drop(self.output.drain(..bytes)),
                Event::Shown(Ok(bytes @ 1..)) => self.on_output(&chunk[..bytes]),
                Event::Shown(_) | Event::Typed(Err(_)) => self.is_open = false,
                Event::Typed(Ok(bytes)) => drop(self.input.drain(..bytes)),
                Event::Exited(status) => {
                    self.drain(&mut chunk).await;
                    self.on_exit(status);
                    kept_until = Instant::now() + KEPT_MAX;
                }
                Event::End => return self.end(child).await,
            }
        }
    }

    fn on_arrival(&mut self, Arrival { hello, mut to, frames }: Arrival, agent: &Path) {
        let mut last = Vec::new();
        if !self.board.on_attached(hello.by, hello.if_still) {
            Frame::Taken.write(&mut last);
            tokio::spawn(async move { timeout(ANSWER_MAX, to.write_all(&last)).await });
            return;
        }
        if let Some(mut before) = self.to.take() {
            let mut last = std::mem::take(&mut self.output);
            Frame::Output(self.screen.left()).write(&mut last);
            Frame::Taken.write(&mut last);
            tokio::spawn(async move { timeout(ANSWER_MAX, before.write_all(&last)).await });
        }
        if let Some(forwarded) = hello.agent {
            // A shell that began without one does not look for it.
            let _ = set_agent(agent, &forwarded);
        }
        (self.to, self.frames) = (Some(to), Some(frames));
        self.output.clear();
        let is_resized = hello.size != self.size;
        self.resize(hello.size);
        let drawn = self.screen.drawn();
        self.say(&drawn);
        if let Some(status) = self.ended {
            Frame::Ended(status).write(&mut self.output);
        } else if self.screen.is_full() && !is_resized {
            // It knows better how it looks, and hears nothing of a size that stays.
            self.board.signal_foreground(Signal::WINCH);
        }
    }

    fn on_frame(&mut self, frame: Frame) {
        match frame {
            Frame::Input(bytes) if self.is_open => {
                self.board.on_bytes(bytes.len(), 0);
                self.input.extend(bytes);
            }
            Frame::Size(size) => self.resize(size),
            _ => {}
        }
    }

    fn on_left(&mut self) {
        (self.to, self.frames) = (None, None);
        self.output.clear();
        self.board.on_left();
    }

    fn on_output(&mut self, bytes: &[u8]) {
        self.board.on_bytes(0, bytes.len());
        self.screen.show(bytes);
        if self.to.is_some() {
            self.say(bytes);
        }
    }

    /// Has these bytes shown. Who attaches gets a frame, also if there are none.
    fn say(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(CONTENT_BYTES_MAX) {
            Frame::Output(part.to_vec()).write(&mut self.output);
        }
        if bytes.is_empty() {
            Frame::Output(Vec::new()).write(&mut self.output);
        }
    }

    fn resize(&mut self, size: Size) {
        self.size = size;
        self.screen.resize(size);
        // One that has closed it has no size any more.
        let _ = self.writing.resize(size_of(size));
    }

    /// Reads what a shell has written before it ended. What it has begun may go on to write.
    async fn drain(&mut self, chunk: &mut [u8]) {
        let until = Instant::now() + DRAIN_MAX;
        loop {
            let pause = until.min(Instant::now() + DRAIN_PAUSE_MAX);
            match timeout_at(pause, self.reading.read(chunk)).await {
                Ok(Ok(bytes @ 1..)) if Instant::now() < until => self.on_output(&chunk[..bytes]),
                _ => return,
            }
        }
    }

    fn on_exit(&mut self, status: io::Result<ExitStatus>) {
        let code = |status: ExitStatus| status.code().or_else(|| Some(128 + status.signal()?));
        let status = status.ok().and_then(code).and_then(|code| u8::try_from(code).ok());
        // As shells say it of a program whose end is not known.
        let status = status.unwrap_or(255);
        self.is_open = false;
        self.ended = Some(status);
        self.board.on_ended(status);
        if self.to.is_some() {
            Frame::Ended(status).write(&mut self.output);
        }
    }

    /// Ends the shell as the end of its terminal would, and says so to who is attached.
    async fn end(&mut self, child: &mut Child) {
        if self.ended.is_none() {
            for signal in [Signal::HUP, Signal::CONT] {
                self.board.signal_foreground(signal);
                self.board.signal_shell(signal);
            }
            let status = match timeout(END_MAX, child.wait()).await {
                Ok(status) => status,
                Err(_) => {
                    let _ = child.start_kill();
                    child.wait().await
                }
            };
            self.on_exit(status);
        }
        if let Some(to) = &mut self.to {
            let _ = timeout(END_MAX, to.write_all(&self.output)).await;
        }
    }
}

/// The next frame of who is attached, if anybody is.
async fn next(frames: &mut Option<mpsc::Receiver<Frame>>) -> Option<Frame> {
    match frames {
        Some(frames) => frames.recv().await,
        None => std::future::pending().await,
    }
}

/// Sends what waits for who is attached, if anything does.
async fn send(to: &mut Option<OwnedWriteHalf>, bytes: &[u8]) -> io::Result<usize> {
    match to {
        Some(to) if !bytes.is_empty() => to.write(bytes).await,
        _ => std::future::pending().await,
    }
}
