//! A child process whose lines are read as they come, and that never outlives its handle.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest line that is read; what is beyond is cut off.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Lines of standard error that are kept.
const ERROR_LINES_KEPT: usize = 12;
const POLL: Duration = Duration::from_millis(10);

/// Which of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Server,
    Client,
}

impl End {
    pub(super) fn name(self) -> &'static str {
        match self {
            End::Server => "server",
            End::Client => "client",
        }
    }

    pub(super) fn command(self) -> &'static str {
        match self {
            End::Server => "uts serve",
            End::Client => "uts cp",
        }
    }
}

/// Something that a child said, or that it says no more.
#[derive(Debug)]
pub(super) struct Message {
    pub end: End,
    pub at: Instant,
    /// A line of its standard output; `None` at the end of it.
    pub line: Option<String>,
}

/// A running child; it is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Child {
    end: End,
    process: std::process::Child,
    /// The command, for people to read.
    pub command: String,
    errors: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Child {
    /// Starts `program` with directories of its own for its files. A demonstration neither uses nor
    /// changes the user's keys and known hosts.
    pub(super) fn start(
        end: End,
        program: &Path,
        arguments: &[String],
        home: &Path,
        messages: Sender<Message>,
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("HOME", home);
        for (variable, dir) in [
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_STATE_HOME", "state"),
            ("XDG_CACHE_HOME", "cache"),
        ] {
            command.env(variable, home.join(dir));
        }
        let mut process = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let errors = Arc::new(Mutex::new(VecDeque::new()));
        let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
        let mut child = Child {
            end,
            process,
            command: shell_words(program, arguments),
            errors: Arc::clone(&errors),
            readers: Vec::new(),
        };
        if let Some(stdout) = stdout {
            child.read(stdout, move |line| {
                // Nobody listens any more when the run is over.
                let _ = messages.send(Message { end, at: Instant::now(), line });
            })?;
        }
        if let Some(stderr) = stderr {
            child.read(stderr, move |line| {
                let mut errors = errors.lock().unwrap_or_else(PoisonError::into_inner);
                errors.extend(line);
                if errors.len() > ERROR_LINES_KEPT {
                    errors.pop_front();
                }
            })?;
        }
        Ok(child)
    }

    fn read(
        &mut self,
        from: impl Read + Send + 'static,
        mut take: impl FnMut(Option<String>) + Send + 'static,
    ) -> Result<()> {
        let reader = std::thread::Builder::new().spawn(move || {
            let mut from = BufReader::new(from);
            while let Some(line) = read_line(&mut from) {
                take(Some(line));
            }
            take(None);
        });
        self.readers.push(reader.context("cannot start a thread")?);
        Ok(())
    }

    /// Status with which it ended, if it has.
    pub(super) fn try_wait(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Waits until it has ended, at most this long.
    pub(super) fn wait_for(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match self.try_wait() {
                None if Instant::now() < deadline => std::thread::sleep(POLL),
                status => return status,
            }
        }
    }

    /// Asks it to end, as a user would; kills it if it does not within `limit`.
    pub(super) fn end(&mut self, limit: Duration) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        if self.try_wait().is_none() {
            // It fails only if the process is gone, which is what is wanted.
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
            if self.wait_for(limit).is_some() {
                self.join_readers();
            }
        }
        self.kill();
    }

    /// The last that it wrote to standard error, indented, on lines of its own; empty if nothing.
    pub(super) fn last_errors(&mut self) -> String {
        if self.try_wait().is_some() {
            self.join_readers();
        }
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.is_empty() {
            return format!("\n  `{}` wrote nothing to standard error", self.end.command());
        }
        let lines: String = errors.iter().map(|line| format!("\n    {line}")).collect();
        format!("\n  `{}` wrote last:{lines}", self.end.command())
    }

    /// Waits a little for what the pipes still hold; a grandchild may keep them open for ever.
    fn join_readers(&mut self) {
        let deadline = Instant::now() + Duration::from_millis(500);
        while self.readers.iter().any(|r| !r.is_finished()) && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
    }

    fn kill(&mut self) {
        // Both fail only if it has ended and was waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A line without its end; `None` at the end of the input, or when it cannot be read.
fn read_line(from: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    let count = from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).ok()?;
    if count == 0 {
        return None;
    }
    Some(String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// A command as one would type it.
fn shell_words(program: &Path, arguments: &[String]) -> String {
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    let quoted = |word: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            return word.to_owned();
        }
        format!("'{}'", word.replace('\'', r"'\''"))
    };
    let words = std::iter::once(&*name).chain(arguments.iter().map(String::as_str));
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn shell(script: &str) -> (Child, mpsc::Receiver<Message>) {
        let (sender, receiver) = mpsc::channel();
        let arguments = ["-c".to_owned(), script.to_owned()];
        let child =
            Child::start(End::Client, Path::new("/bin/sh"), &arguments, Path::new("/nonexistent"), sender);
        (child.unwrap(), receiver)
    }

    #[test]
    fn lines_come_in_order_and_errors_are_kept() {
        let (mut child, messages) = shell("echo one; echo two; echo trouble >&2; exit 3");
        let lines: Vec<_> = messages.iter().map(|m| m.line).collect();
        assert_eq!(lines, [Some("one".into()), Some("two".into()), None]);
        assert_eq!(child.wait_for(Duration::from_secs(20)).and_then(|s| s.code()), Some(3));
        assert_eq!(child.last_errors(), "\n  `uts cp` wrote last:\n    trouble");
    }

    #[test]
    fn one_that_does_not_end_is_killed() {
        let (mut child, messages) = shell("trap '' TERM; echo ready; while :; do sleep 0.01; done");
        assert_eq!(messages.recv().unwrap().line, Some("ready".into()));
        child.end(Duration::from_millis(50));
        assert!(!child.try_wait().unwrap().success());
    }

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        let words = ["--pin", "a b", "it's", ""].map(str::to_owned);
        assert_eq!(shell_words(Path::new("/x/uts"), &words), r"uts --pin 'a b' 'it'\''s' ''");
    }
}
