//! Children that must not outlive their welcome.

use anyhow::{Context, Result, anyhow};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A child whose lines are read with a deadline. It is killed when dropped.
pub struct Lines {
    child: Child,
    lines: Receiver<String>,
    deadline: Instant,
    name: &'static str,
}

impl Lines {
    /// Starts it; it must be done after `patience`.
    pub fn start(name: &'static str, command: &mut Command, patience: Duration) -> Result<Self> {
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().with_context(|| format!("{name}: {command:?}"))?;
        let stdout = child.stdout.take().context("no output")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Lines { child, lines, deadline: Instant::now() + patience, name })
    }

    /// Its next line.
    pub fn line(&mut self) -> Result<String> {
        match self.lines.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(self.failure("it hangs")),
            Err(RecvTimeoutError::Disconnected) => Err(self.failure("it has failed")),
        }
    }

    /// All that is left, once it has ended.
    pub fn rest(&mut self) -> Result<String> {
        let mut text = String::new();
        loop {
            match self.lines.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => text = text + &line + "\n",
                Err(RecvTimeoutError::Disconnected) => return Ok(text),
                Err(RecvTimeoutError::Timeout) => return Err(self.failure("it hangs")),
            }
        }
    }

    /// Ends it; what is wrong with it, and what it complained of.
    fn failure(&mut self, what: &str) -> anyhow::Error {
        let _ = self.child.kill();
        let mut complaint = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut complaint);
        }
        let complaint = complaint.split_whitespace().collect::<Vec<_>>().join(" ");
        let colon = if complaint.is_empty() { "" } else { ": " };
        anyhow!("{}: {what}{colon}{complaint}", self.name)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
