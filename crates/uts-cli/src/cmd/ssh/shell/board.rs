//! The words of a shell that is held about itself, as a session's are.

use crate::control::{Controlled, Request, bugs};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::tcgetpgrp;
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;
use uts_units::show;

/// See the head of this file.
pub struct Board {
    name: String,
    /// The command that was asked for; `None`: a login shell.
    command: Option<String>,
    began: Instant,
    terminal: OwnedFd,
    shell: Pid,
    state: Mutex<State>,
    end: Notify,
}

struct State {
    /// The session by which somebody is attached, if it is known.
    attached: Option<Option<String>>,
    /// Attachments so far.
    count: u64,
    changed: Instant,
    ended: Option<u8>,
    bytes: [u64; 2],
}

impl State {
    /// Time is counted from now on, or from the end.
    fn on_change(&mut self) {
        if self.ended.is_none() {
            self.changed = Instant::now();
        }
    }
}

impl Board {
    /// One of a shell that begins now, of the process `shell` on `terminal`.
    pub fn new(name: String, command: Option<String>, terminal: OwnedFd, shell: Pid) -> Board {
        let began = Instant::now();
        let state = State { attached: None, count: 0, changed: began, ended: None, bytes: [0; 2] };
        Board { name, command, began, terminal, shell, state: Mutex::new(state), end: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody attaches, by this session if it is one of `uts ssh`. False if others have since
    /// there were so many attachments.
    pub fn on_attached(&self, by: Option<String>, if_still: Option<u64>) -> bool {
        let mut state = self.state();
        if if_still.is_some_and(|count| count != state.count) {
            return false;
        }
        state.attached = Some(by);
        state.count += 1;
        state.on_change();
        true
    }

    /// Nobody is attached any more.
    pub fn on_left(&self) {
        let mut state = self.state();
        state.attached = None;
        state.on_change();
    }

    /// The shell has ended.
    pub fn on_ended(&self, status: u8) {
        let mut state = self.state();
        state.on_change();
        state.ended = Some(status);
    }

    /// Bytes were typed, or shown.
    pub fn on_bytes(&self, typed: usize, shown: usize) {
        let mut state = self.state();
        state.bytes[0] += typed as u64;
        state.bytes[1] += shown as u64;
    }

    /// Waits until somebody asks that the shell is ended.
    pub async fn ended(&self) {
        self.end.notified().await;
    }

    /// Sends a signal to the program in the foreground.
    pub fn signal_foreground(&self, signal: Signal) {
        if let Ok(group) = tcgetpgrp(&self.terminal) {
            // One that has gone needs none.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Sends a signal to the shell, as the end of a terminal does.
    pub fn signal_shell(&self, signal: Signal) {
        let _ = kill_process_group(self.shell, signal);
    }

    /// The program in the foreground, or what was asked for.
    fn what(&self) -> String {
        let group = tcgetpgrp(&self.terminal).ok().filter(|_| self.state().ended.is_none());
        let program = group
            .and_then(|group| std::fs::read_to_string(format!("/proc/{}/comm", group.as_raw_nonzero())).ok());
        let program = program.map(|name| name.trim_end().to_owned()).filter(|name| !name.is_empty());
        program.or_else(|| self.command.clone()).unwrap_or_else(|| "a login shell".to_owned())
    }

    fn way(&self) -> String {
        let state = self.state();
        let since = show::span(state.changed.elapsed());
        match (state.ended, &state.attached) {
            (Some(status), _) => format!("ended {since} ago with status {status}; attach to see it"),
            (None, Some(_)) => format!("attached for {since}"),
            (None, None) => format!("nobody is attached for {since}"),
        }
    }

    fn list(&self) -> Value {
        let (what, way) = (self.what(), self.way());
        let state = self.state();
        json!({
            "session": self.name,
            "other": what,
            "command": self.command,
            "seconds": self.began.elapsed().as_secs(),
            "way": way,
            "silent_s": 0,
            "bytes_in": state.bytes[0],
            "bytes_out": state.bytes[1],
            "attached": state.attached.is_some(),
            "by": state.attached.clone().flatten(),
            "count": state.count,
            "changed_s": state.changed.elapsed().as_secs(),
            "ended": state.ended,
            "bugs": bugs(),
        })
    }
}

impl Controlled for Board {
    async fn carry_out(&self, request: Request) -> Result<Value, String> {
        match request {
            Request::List => Ok(self.list()),
            Request::End { .. } => {
                self.end.notify_one();
                Ok(json!({"ended": self.name}))
            }
            Request::Set { .. } => Err("a shell has nothing that can be set".to_owned()),
            Request::Audit => Err("a shell leads nowhere".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_shell_says_who_is_attached_and_how_it_has_ended() {
        let no_terminal = OwnedFd::from(std::fs::File::open("/dev/null").expect("opened"));
        let board = Board::new("1".into(), Some("make".into()), no_terminal, rustix::process::getpid());
        assert_eq!(board.list()["attached"], false);
        assert!(board.on_attached(Some("abc".into()), None));
        assert!(!board.on_attached(None, Some(0)), "somebody was quicker");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let said = crate::cmd::ssh::line(&board.list());
        assert_eq!(said, "1  make  since 60 s; attached for 60 s");
        assert!(board.on_attached(None, Some(1)));
        board.on_left();
        tokio::time::sleep(Duration::from_secs(120)).await;
        let said = crate::cmd::ssh::line(&board.list());
        assert!(said.ends_with("; nobody is attached for 2 min"), "{said}");
        board.on_ended(2);
        let said = board.list();
        assert_eq!((&said["ended"], &said["count"], &said["by"]), (&json!(2), &json!(2), &Value::Null));
        assert!(crate::cmd::ssh::line(&said).contains("with status 2"), "{said}");
    }
}
