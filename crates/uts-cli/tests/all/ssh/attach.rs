//! `uts ssh --attach`: shells that are held at their host while their terminals, their sessions and
//! the machines at this end come and go.

use super::{NOWHERE, World, processes, run};
use crate::common::PATIENCE;
use std::fs;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A program in a terminal.
pub(super) struct Terminal {
    /// `None`: it was closed.
    pty: Option<Arc<pty_process::blocking::Pty>>,
    child: Child,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    fn open(command: &Command) -> Terminal {
        Terminal::of_size(command, (24, 80))
    }

    pub(super) fn of_size(command: &Command, (rows, columns): (u16, u16)) -> Terminal {
        let (pty, pts) = pty_process::blocking::open().expect("a terminal");
        pty.resize(pty_process::Size::new(rows, columns)).expect("resized");
        let mut within = pty_process::blocking::Command::new(command.get_program()).env_clear();
        within = within.args(command.get_args()).env("TERM", "xterm");
        for (name, value) in command.get_envs() {
            within = match value {
                Some(value) => within.env(name, value),
                None => within.env_remove(name),
            };
        }
        let child = within.spawn(pts).expect("started");
        let size = [rows, columns].map(|n| NonZeroU16::new(n).expect("some"));
        let screen = Arc::new(Mutex::new(vt100::Parser::new(size[0], size[1], 100)));
        let pty = Arc::new(pty);
        // It does not keep the terminal open.
        let reading = rustix::io::dup(&*pty).map(fs::File::from).expect("copied");
        let shown = screen.clone();
        let (is_closed, mut reading) = (Arc::downgrade(&pty), reading);
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while is_closed.strong_count() > 0 {
                let mut waits = [rustix::event::PollFd::new(&reading, rustix::event::PollFlags::IN)];
                let short = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                match rustix::event::poll(&mut waits, Some(&short)) {
                    Ok(0) => continue,
                    Ok(_) => {}
                    Err(_) => return,
                }
                match reading.read(&mut chunk) {
                    Ok(bytes @ 1..) => shown.lock().expect("whole").process(&chunk[..bytes]),
                    _ => return,
                }
            }
        });
        Terminal { pty: Some(pty), child, screen }
    }

    fn shown(&self) -> String {
        self.screen.lock().expect("whole").screen().contents()
    }

    pub(super) fn rows(&self) -> Vec<String> {
        let screen = self.screen.lock().expect("whole");
        let columns = screen.screen().size().1.get();
        screen.screen().rows(0, columns).collect()
    }

    /// Waits until this is seen.
    #[track_caller]
    pub(super) fn await_shown(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.shown().contains(text) {
            assert!(Instant::now() < deadline, "no `{text}` in:\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn type_in(&self, text: &str) {
        let mut pty = &**self.pty.as_ref().expect("open");
        pty.write_all(text.as_bytes()).expect("typed");
    }

    /// Types a line, and waits for what it brings: a sum, which the line itself does not show.
    #[track_caller]
    fn ask(&self, line: &str, answer: &str) {
        self.type_in(&format!("{line}\n"));
        self.await_shown(answer);
    }

    #[track_caller]
    fn await_end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a process") {
                return status;
            }
            assert!(Instant::now() < deadline, "it goes on:\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Closes the terminal, as a window is closed.
    fn close(mut self) {
        self.pty = None;
        self.await_end();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl World {
    fn attach(&self, own: &[&str], args: &[&str]) -> Command {
        let mut command = self.ssh(&[&["--linger", "1s"], own].concat(), args);
        // The shell's own files are those of the test.
        command.env("PS1", "$ ");
        command
    }

    fn shells(&self) -> Vec<String> {
        processes("ssh-shell", &self.place.path("far"))
    }

    /// Waits until the list says this of the shell of this name.
    #[track_caller]
    fn await_said(&self, name: &str, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let listed = run(self.ssh(&["--list"], &["there"]));
            let found = listed.out.iter().find(|line| line.starts_with(&format!("{name}  ")));
            if found.is_some_and(|line| line.contains(text)) {
                return;
            }
            assert!(Instant::now() < deadline, "no `{text}` of {name}: {:?} {}", listed.out, listed.err);
        }
    }

    #[track_caller]
    fn assert_no_shells_left(&self) {
        self.assert_no_shells();
        self.assert_nothing_left();
    }

    /// Nothing holds a shell there any more, and nothing keeps a session here.
    #[track_caller]
    fn assert_no_shells(&self) {
        let left = || [self.shells(), processes("ssh-keep", &self.place.path("home"))].concat();
        let deadline = Instant::now() + PATIENCE;
        while !left().is_empty() {
            assert!(Instant::now() < deadline, "left behind: {:?}", left());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_shell_lives_on_when_its_terminal_is_closed() {
    let Some(world) = World::new(true, &[]) else { return };
    let command = world.attach(&["--attach"], &["there"]);
    let terminal = Terminal::open(&command);
    terminal.ask("A=first; echo $((20 + 3))0", "230");
    terminal.ask("echo login${0:0:1}$((20 + 2))", "login-22");
    terminal.close();
    world.await_said("1", "nobody is attached");
    let listed = run(world.here(env!("CARGO_BIN_EXE_uts"), &["ssh", "--attach"]));
    assert!(listed.status == 0 && listed.out.len() == 1, "{:?} {}", listed.out, listed.err);
    assert!(listed.out[0].starts_with("there  1  "), "{:?}", listed.out);
    // It shows what it showed, has the size of the terminal, and goes on.
    let mut terminal = Terminal::of_size(&command, (30, 100));
    terminal.await_shown("230");
    terminal.ask("stty size; echo $A$((20 + 4))", "first24");
    terminal.await_shown("30 100");
    world.await_said("1", "attached for");
    // As by ssh's own key.
    terminal.type_in("\r~.");
    assert!(!terminal.await_end().success());
    world.await_said("1", "nobody is attached");
    let mut terminal = Terminal::open(&command);
    terminal.ask("echo $A$((20 + 5))", "first25");
    terminal.type_in("exit 5\n");
    assert_eq!(terminal.await_end().code(), Some(5), "{}", terminal.shown());
    world.assert_no_shells_left();
    let listed = run(world.here(env!("CARGO_BIN_EXE_uts"), &["ssh", "--attach"]));
    assert!(listed.out.is_empty() && listed.err.contains("no shells"), "{:?} {}", listed.out, listed.err);
    world.await_no_servers();
}

/// All of this end is killed at once, and takes no leave: to the host it is as if it slept.
#[test]
fn a_shell_whose_client_was_killed_is_attached_to_at_once() {
    let Some(world) = World::new(true, &[]) else { return };
    for own in [&["--attach"][..], &[&["--attach"][..], &NOWHERE].concat()] {
        let command = world.attach(own, &["there"]);
        let mut killed = Terminal::open(&command);
        killed.ask("A=first; echo $((20 + 3))0", "230");
        let mut all = processes("ssh-keep", &world.place.path("home"));
        all.push(killed.child.id().to_string());
        assert!(Command::new("kill").arg("-9").args(&all).status().expect("run").success());
        killed.await_end();
        let mut terminal = Terminal::open(&command);
        terminal.await_shown("230");
        terminal.ask("echo $A$((20 + 4))", "first24");
        terminal.type_in("exit\n");
        assert!(terminal.await_end().success(), "{}", terminal.shown());
        world.assert_no_shells();
    }
}

/// The session was in the memory of its server, and is lost. The shell was not.
#[test]
fn a_shell_outlives_the_server_of_its_session() {
    let Some(world) = World::new(true, &[]) else { return };
    let command = world.attach(&["--attach"], &["there"]);
    let mut lost = Terminal::open(&command);
    lost.ask("A=first; echo $((20 + 3))0", "230");
    assert!(Command::new("kill").arg("-9").args(world.servers()).status().expect("run").success());
    lost.type_in("\n");
    assert_eq!(lost.await_end().code(), Some(255), "{}", lost.shown());
    let mut terminal = Terminal::open(&command);
    terminal.ask("echo $A$((20 + 4))", "first24");
    terminal.type_in("exit\n");
    assert!(terminal.await_end().success(), "{}", terminal.shown());
    world.assert_no_shells();
}

#[test]
fn a_shell_that_somebody_is_attached_to_is_taken_by_name_alone() {
    let Some(world) = World::new(true, &[]) else { return };
    let command = world.attach(&["--attach"], &["there"]);
    let mut first = Terminal::open(&command);
    first.ask("A=first; echo $((20 + 3))0", "230");
    let mut second = Terminal::open(&command);
    second.ask("echo $A$((20 + 4))0", "240");
    assert!(!second.shown().contains("first24"), "{}", second.shown());
    let mut thief = Terminal::open(&world.attach(&["--attach=1"], &["there"]));
    thief.ask("echo $A$((20 + 5))", "first25");
    assert_eq!(first.await_end().code(), Some(1));
    first.await_shown("attached to elsewhere");
    let ended = run(world.ssh(&["--end", "1"], &["there"]));
    assert_eq!((ended.status, &ended.out[..]), (0, &["1 is ended".to_owned()][..]), "{}", ended.err);
    assert!(!thief.await_end().success());
    second.type_in("exit\n");
    assert!(second.await_end().success(), "{}", second.shown());
    let mut none = Terminal::open(&world.attach(&["--attach=7"], &["there"]));
    assert_eq!(none.await_end().code(), Some(1));
    none.await_shown("no shell 7 is held");
    world.assert_no_shells_left();
}

/// Its last screen and its status are there for the next one who attaches.
#[test]
fn a_command_that_ends_while_nobody_is_attached_is_seen_all_the_same() {
    let Some(world) = World::new(true, &[]) else { return };
    let mark = world.place.write("mark", b"");
    let script = format!("echo begun; while test -e {mark}; do sleep 0.1; done; echo it is done; exit 3");
    let command = world.attach(&["--attach"], &["there", &script]);
    let terminal = Terminal::open(&command);
    terminal.await_shown("begun");
    terminal.close();
    world.await_said("1", "nobody is attached");
    // Another command is another shell.
    let mut other = Terminal::open(&world.attach(&["--attach"], &["there", "exit 4"]));
    assert_eq!(other.await_end().code(), Some(4), "{}", other.shown());
    fs::remove_file(&mark).expect("removed");
    world.await_said("1", "with status 3");
    let mut terminal = Terminal::open(&command);
    assert_eq!(terminal.await_end().code(), Some(3), "{}", terminal.shown());
    terminal.await_shown("it is done");
    world.assert_no_shells_left();
}

/// A program that has the screen for itself, which is drawn again.
#[test]
fn a_program_with_the_whole_screen_is_drawn_again() {
    let Some(world) = World::new(true, &[]) else { return };
    let script = r"printf '\033[?1049h\033[2J\033[5;7Hin the middle\033[?25l'; exec sleep 1000";
    let command = world.attach(&["--attach"], &["there", script]);
    let terminal = Terminal::open(&command);
    terminal.await_shown("in the middle");
    terminal.close();
    world.await_said("1", "nobody is attached");
    let mut terminal = Terminal::open(&world.attach(&["--attach"], &["there"]));
    terminal.await_shown("in the middle");
    {
        let screen = terminal.screen.lock().expect("whole");
        assert!(screen.screen().alternate_screen() && screen.screen().hide_cursor());
        assert_eq!(screen.screen().rows(6, 13).nth(4).as_deref(), Some("in the middle"));
    }
    terminal.type_in("\x03");
    assert_eq!(terminal.await_end().code(), Some(130), "{}", terminal.shown());
    world.assert_no_shells_left();
}

#[test]
fn what_cannot_be_held_is_said_or_goes_by_plain_ssh() {
    let Some(world) = World::new(false, &[]) else { return };
    let refused = run(world.ssh(&["--attach"], &["-N", "there"]));
    assert!(refused.status == 2 && refused.err.contains("-N"), "{} {}", refused.status, refused.err);
    let mut plain = Terminal::open(&world.attach(&["--no-install", "--attach"], &["there"]));
    plain.ask("echo $((20 + 3))0", "230");
    plain.await_shown("this shell ends with its session");
    plain.type_in("exit 6\n");
    assert_eq!(plain.await_end().code(), Some(6), "{}", plain.shown());
    let refused = run(world.ssh(&["--attach"], &["there", "true"]));
    assert!(
        refused.status == 1 && refused.err.contains("for terminals"),
        "{} {}",
        refused.status,
        refused.err
    );
    // It is put there, and holds the shell.
    let mut held = Terminal::open(&world.attach(&["--attach"], &["there"]));
    held.ask("echo $((20 + 4))0", "240");
    assert_eq!(world.shells().len(), 1);
    held.type_in("exit 6\n");
    assert_eq!(held.await_end().code(), Some(6), "{}", held.shown());
    world.assert_no_shells_left();
}
