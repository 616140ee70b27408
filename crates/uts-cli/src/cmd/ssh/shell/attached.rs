//! The program that a session of ssh runs at the host to be attached to a shell: it carries between
//! the session's terminal and the holder of the shell, which it begins if there is none.

use super::wire::{CONTENT_BYTES_MAX, Frame, Hello, Size};
use super::{SHELL, free};
use crate::args::SshAttachArgs;
use crate::cmd::pipe::standard_input;
use crate::cmd::ssh::login::MARK;
use crate::cmd::ssh::places;
use crate::cmd::{Failure, interrupted};
use crate::control::TAKE_OVER;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use uts_end::output::{self, Output, words};

/// Time that a holder has to answer, and a new one to be there.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Attaches this terminal to a shell until it ends, or somebody else does.
///
/// # Errors
/// See [`Failure`]. The status of a shell that has ended is that of this program.
pub async fn run(args: &SshAttachArgs) -> Result<(), Failure> {
    let terminal = Terminal::of_input()?;
    let dir = places::directory().map_err(Failure::Failed)?;
    if let Some(name) = &args.name {
        let shell = connect(&dir, name).await.map_err(|why| {
            Failure::Failed(format!("no shell {name} is held here: {why} (uts ssh --list HOST)"))
        })?;
        return attach(shell, &terminal, args, None).await.unwrap_or(Err(Failure::Told));
    }
    for free in free(&dir, args.run.as_deref()).await {
        let Ok(shell) = connect(&dir, &free.name).await else { continue };
        if let Some(ended) = attach(shell, &terminal, args, Some(free.count)).await {
            return ended;
        }
    }
    let name = begin(args).await?;
    let shell = connect(&dir, &name).await.map_err(Failure::Failed)?;
    attach(shell, &terminal, args, None).await.unwrap_or(Err(Failure::Told))
}

/// Begins a shell, and returns its name.
async fn begin(args: &SshAttachArgs) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::Failed(words(&error));
    let mut holder = Command::new(std::env::current_exe().map_err(failed)?);
    holder.arg("ssh-shell");
    if let Some(command) = &args.run {
        holder.args(["--run", &crate::args::to_hex(command)]);
    }
    // Its input is this terminal, whose size and modes those of the shell are to be.
    let mut holder = holder.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let said = holder.stdout.take().ok_or(Failure::Told)?;
    let mut line = String::new();
    let read = timeout(ANSWER_MAX, BufReader::new(said).read_line(&mut line)).await;
    let name = line.trim_end().strip_prefix(MARK).and_then(|said| said.strip_prefix("shell "));
    match (read, name) {
        (Ok(Ok(_)), Some(name)) => Ok(name.to_owned()),
        // It has said why.
        _ => Err(Failure::Told),
    }
}

/// A holder that waits to hear who attaches.
async fn connect(dir: &Path, name: &str) -> Result<(OwnedReadHalf, OwnedWriteHalf), String> {
    let come = async {
        let mut socket = UnixStream::connect(dir.join(format!("{name}.{SHELL}"))).await?;
        socket.write_all(format!("{TAKE_OVER}\n").as_bytes()).await?;
        let (mut from, to) = socket.into_split();
        match Frame::read(&mut from).await? {
            Frame::Ready => Ok((from, to)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    };
    let come = timeout(ANSWER_MAX, come).await.map_err(|_| "it does not answer".to_owned())?;
    come.map_err(|error: io::Error| words(&error))
}

/// Attaches until the shell ends, or somebody else is attached. `None` if somebody was quicker than
/// a condition allows.
async fn attach(
    (mut from, mut to): (OwnedReadHalf, OwnedWriteHalf),
    terminal: &Terminal,
    args: &SshAttachArgs,
    if_still: Option<u64>,
) -> Option<Result<(), Failure>> {
    let gone = || Failure::Failed("what held the shell has ended, and the shell with it".to_owned());
    let agent = std::env::var("SSH_AUTH_SOCK").ok();
    let hello = Hello { size: terminal.size(), by: args.by.clone(), agent, if_still };
    if write(&mut to, &Frame::Hello(hello)).await.is_err() {
        return Some(Err(gone()));
    }
    let drawn = match Frame::read(&mut from).await {
        Ok(Frame::Taken) => return None,
        Ok(frame) => frame,
        Err(_) => return Some(Err(gone())),
    };
    let _raw = terminal.raw();
    let carried = tokio::select! {
        carried = show(&mut from, drawn) => carried,
        () = type_in(&mut to, terminal) => Ok(Over::Left),
        () = interrupted() => Ok(Over::Left),
    };
    Some(match carried {
        Ok(Over::Ended(status)) => {
            // Where it does not get through the shell is kept, and seen again.
            let _ = write(&mut to, &Frame::Shown).await;
            if status == 0 { Ok(()) } else { Err(Failure::Ended(status)) }
        }
        Ok(Over::Left) => Ok(()),
        Ok(Over::Taken) => Err(Failure::Failed("the shell was attached to elsewhere".to_owned())),
        Err(_) => Err(gone()),
    })
}

async fn write(to: &mut OwnedWriteHalf, frame: &Frame) -> io::Result<()> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    to.write_all(&bytes).await
}

/// The end of an attachment.
enum Over {
    /// The shell has ended with this status.
    Ended(u8),
    /// Somebody else is attached.
    Taken,
    /// The terminal has gone.
    Left,
}

/// Shows what comes of the shell, this frame first.
async fn show(from: &mut OwnedReadHalf, mut frame: Frame) -> io::Result<Over> {
    loop {
        match frame {
            Frame::Output(bytes) => {
                // A write that waits holds up a thread that others do not need.
                let shown = tokio::task::spawn_blocking(move || Output::Out.bytes(&bytes)).await;
                if !matches!(shown, Ok(Ok(()))) {
                    return Ok(Over::Left);
                }
            }
            Frame::Ended(status) => return Ok(Over::Ended(status)),
            Frame::Taken => return Ok(Over::Taken),
            _ => {}
        }
        frame = Frame::read(from).await?;
    }
}

/// Sends what is typed, and each size of the terminal, until there is no terminal any more.
async fn type_in(to: &mut OwnedWriteHalf, terminal: &Terminal) {
    let mut input = standard_input().await;
    let mut resized = signal(SignalKind::window_change()).ok();
    let mut size = terminal.size();
    loop {
        let resizes = async {
            match &mut resized {
                Some(resized) => resized.recv().await,
                None => std::future::pending().await,
            }
        };
        let frames: Vec<Frame> = tokio::select! {
            chunk = input.recv() => match chunk {
                Some(Ok(chunk)) => {
                    chunk.chunks(CONTENT_BYTES_MAX).map(|part| Frame::Input(part.to_vec())).collect()
                }
                _ => return,
            },
            _ = resizes => Vec::new(),
        };
        let now = terminal.size();
        let new_size = (now != size).then_some(Frame::Size(now));
        size = now;
        for frame in new_size.iter().chain(&frames) {
            if write(to, frame).await.is_err() {
                // Why, the other direction knows.
                return std::future::pending().await;
            }
        }
    }
}

/// The terminal that standard input is.
struct Terminal {
    file: OwnedFd,
    modes: Termios,
}

impl Terminal {
    fn of_input() -> Result<Terminal, Failure> {
        let none = || Failure::Failed("--attach is for terminals, and here is none (ssh -t)".to_owned());
        let file = output::input_handle().map_err(|_| none())?;
        if !isatty(&file) {
            return Err(none());
        }
        let modes = tcgetattr(&file).map_err(|_| none())?;
        Ok(Terminal { file, modes })
    }

    fn size(&self) -> Size {
        size(&self.file)
    }

    /// Leaves all keys to the shell, until this is dropped.
    fn raw(&self) -> Raw<'_> {
        let mut modes = self.modes.clone();
        modes.make_raw();
        let _ = tcsetattr(&self.file, OptionalActions::Now, &modes);
        Raw(self)
    }
}

/// The size of a terminal, 0 where it does not say.
pub fn size(terminal: &OwnedFd) -> Size {
    match tcgetwinsize(terminal) {
        Ok(size) => {
            Size { rows: size.ws_row, columns: size.ws_col, width: size.ws_xpixel, height: size.ws_ypixel }
        }
        Err(_) => Size { rows: 0, columns: 0, width: 0, height: 0 },
    }
}

struct Raw<'a>(&'a Terminal);

impl Drop for Raw<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.0.file, OptionalActions::Now, &self.0.modes);
    }
}
