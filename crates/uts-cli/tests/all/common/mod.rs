//! The program as a user has it: processes with a home of their own, whose every wait is bounded.

pub mod far;
pub mod sshd;
pub mod tunnel;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

/// Whatever has not happened by then does not happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder for one test: what is served, what is not, and the user's home.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        let place = Place(tempfile::tempdir().expect("a folder"));
        fs::create_dir(place.path("srv")).expect("made");
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: &[u8]) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(&path, content).expect("written");
        path.display().to_string()
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Starts the program in this place.
    pub fn start(&self, args: &[&str]) -> Running {
        self.start_as("home", args)
    }

    /// The program under another umask.
    pub fn start_under(&self, umask: &str, home: &str, args: &[&str]) -> Running {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_uts")]);
        command.args(args);
        Self::begin(self.here(command, home))
    }

    /// The program, to be started in this place.
    pub fn command(&self, home: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uts"));
        command.args(args);
        self.here(command, home)
    }

    /// The command, to be started in this place and to know nothing else.
    pub fn here(&self, mut command: Command, home: &str) -> Command {
        let home = self.path(home);
        command.current_dir(self.0.path()).env_clear();
        command.env("HOME", &home).env("XDG_CONFIG_HOME", home.join("config"));
        command
    }

    /// Runs the program at a terminal and answers its questions. Returns its exit status and what
    /// the terminal showed.
    pub fn run_at_terminal(&self, args: &[&str], asks: &str, answer: &str) -> (i32, String) {
        self.run_at_terminal_of(None, args, asks, answer)
    }

    /// The same at a terminal of so many columns.
    pub fn run_at_terminal_of(
        &self,
        columns: Option<u16>,
        args: &[&str],
        asks: &str,
        answer: &str,
    ) -> (i32, String) {
        self.at_terminal((columns, false), args, asks, answer)
    }

    /// The same of a program whose standard output is the terminal, too.
    pub fn run_at_terminal_out_of(
        &self,
        columns: u16,
        args: &[&str],
        asks: &str,
        answer: &str,
    ) -> (i32, String) {
        self.at_terminal((Some(columns), true), args, asks, answer)
    }

    fn at_terminal(
        &self,
        (columns, has_output): (Option<u16>, bool),
        args: &[&str],
        asks: &str,
        answer: &str,
    ) -> (i32, String) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("its other end");
        let name = ptsname(&master, Vec::new()).expect("its name").into_string().expect("a path");
        let terminal = fs::File::options().read(true).write(true).open(name).expect("its other end");
        if let Some(ws_col) = columns {
            let size = rustix::termios::Winsize { ws_row: 24, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
            rustix::termios::tcsetwinsize(&terminal, size).expect("a size");
        }
        let both = || Stdio::from(terminal.try_clone().expect("another handle"));
        let mut child = self
            .command("home", args)
            .env("TERM", "xterm")
            .stdin(both())
            .stdout(if has_output { both() } else { Stdio::null() })
            .stderr(both())
            .spawn()
            .expect("started");
        drop(terminal);
        let mut master = fs::File::from(master);
        let mut typist = master.try_clone().expect("another handle");
        let (asks, answer) = (asks.to_owned(), answer.to_owned());
        let screen = spawn(move || {
            let (mut shown, mut piece, mut has_answered) = (Vec::new(), [0; 4096], false);
            // When the last process has closed its end, reading fails.
            while let Ok(bytes @ 1..) = master.read(&mut piece) {
                shown.extend_from_slice(&piece[..bytes]);
                if !has_answered && String::from_utf8_lossy(&shown).contains(&asks) {
                    has_answered = true;
                    typist.write_all(answer.as_bytes()).expect("typed");
                }
            }
            String::from_utf8_lossy(&shown).into_owned()
        });
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait().expect("a process") {
                Some(status) => break status.code().unwrap_or(-1),
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                None => {
                    let _ = child.kill().and_then(|()| child.wait());
                    panic!("it does not end: {}", screen.join().unwrap_or_default());
                }
            }
        };
        (status, screen.join().expect("read"))
    }

    /// Starts the program as a user whose home is `home`.
    pub fn start_as(&self, home: &str, args: &[&str]) -> Running {
        Self::begin(self.command(home, args))
    }

    pub fn begin(mut command: Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut stderr = child.stderr.take().expect("piped");
        let errors = spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Running { child, lines, errors: Some(errors), seen: Vec::new() }
    }

    /// Runs the program to its end.
    pub fn run(&self, args: &[&str]) -> Ended {
        self.start(args).wait()
    }

    /// The same as a user whose home is `home`.
    pub fn run_as(&self, home: &str, args: &[&str]) -> Ended {
        self.start_as(home, args).wait()
    }

    /// The UDP port at which a program listens, once it does, as the system says.
    pub fn listening_port(&self, running: &Running) -> u16 {
        self.listening_port_of(running.child.id())
    }

    /// The same of a process by its number.
    pub fn listening_port_of(&self, process: u32) -> u16 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(port) = udp_port(process) {
                return port;
            }
            assert!(Instant::now() < deadline, "it does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Serves `srv`, for anyone to read and to write unless `options` say otherwise.
    pub fn serve(&self, options: &[&str]) -> Server {
        self.serve_at("127.0.0.1:0", options)
    }

    pub fn serve_at(&self, address: &str, options: &[&str]) -> Server {
        let mut args = vec!["serve", "--dir", "srv", "--json", "--listen", address];
        if !options.iter().any(|option| ["--read-only", "--writable", "--anyone"].contains(option)) {
            args.push("--writable");
            if !options.contains(&"--authorized-keys") {
                args.push("--anyone");
            }
        }
        args.extend(options);
        Self::served(self.start_as("server-home", &args))
    }

    /// Serves `srv` under another umask.
    pub fn serve_under(&self, umask: &str, options: &[&str]) -> Server {
        let mut args =
            vec!["serve", "--dir", "srv", "--json", "--listen", "127.0.0.1:0", "--writable", "--anyone"];
        args.extend(options);
        Self::served(self.start_under(umask, "server-home", &args))
    }

    pub fn served(mut running: Running) -> Server {
        let start = running.event("start");
        let text = |name: &str| start[name].as_str().expect("a text").to_owned();
        Server { address: text("address"), fingerprint: text("fingerprint"), running }
    }

    /// Copies with the server's key pinned.
    pub fn cp(&self, server: &Server, args: &[&str]) -> Ended {
        self.start_cp(server, args).wait()
    }

    pub fn start_cp(&self, server: &Server, args: &[&str]) -> Running {
        let mut all = vec!["cp", "--pin", &server.fingerprint];
        all.extend(args);
        self.start(&all)
    }

    /// Waits until a good part of a file has arrived under its temporary name.
    pub fn await_part(&self, name: &str) {
        let deadline = Instant::now() + PATIENCE;
        while fs::metadata(self.path(name)).map_or(0, |m| m.len()) < 1 << 20 {
            assert!(Instant::now() < deadline, "{name} does not grow");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Names in a folder that are not of unfinished copies.
    pub fn finished(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(dir)).expect("a folder");
        let names = entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned());
        names.filter(|name| !name.starts_with('.')).collect()
    }
}

/// A process, killed when it is dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    seen: Vec<String>,
}

/// Output of a process and the way it ended.
pub struct Ended {
    pub status: i32,
    pub out: Vec<String>,
    pub err: String,
}

impl Running {
    /// The next JSON event of a kind.
    pub fn event(&mut self, kind: &str) -> Value {
        self.event_where(kind, |_| true)
    }

    pub fn event_where(&mut self, kind: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    let event: Value = serde_json::from_str(&line).expect("JSON");
                    if event["event"] == kind && wanted(&event) {
                        return event;
                    }
                }
                Err(why) => {
                    let (seen, ended) = (self.seen.clone(), self.end());
                    panic!("no {kind} ({why}): {seen:?}, {}", ended.err);
                }
            }
        }
    }

    /// A signal to this process alone.
    pub fn signal(&self, with: Signal) {
        signal(&self.child, with);
    }

    /// Kills it as `kill -9` does.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().expect("a process").is_none() {
            if Instant::now() > deadline {
                let ended = self.end();
                panic!("it does not end: {:?} {}", ended.out, ended.err);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.end()
    }

    /// True if it runs no more.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a process").is_some()
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it, whatever it does; says what it has told.
    pub fn end(&mut self) -> Ended {
        let _ = self.child.kill();
        let status = self.child.wait().expect("ended").code().unwrap_or(-1);
        let mut out = self.seen.clone();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => out.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("its output does not end"),
            }
        }
        let err = self.errors.take().map_or_else(String::new, |t| t.join().expect("read"));
        Ended { status, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// It succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.status, 0, "{:?} {}", self.out, self.err);
        self
    }

    /// It ended with `status`, and what it told as an error has these parts.
    #[track_caller]
    pub fn failed(self, status: i32, parts: &[&str]) -> Self {
        assert_eq!(self.status, status, "{:?} {}", self.out, self.err);
        for part in parts {
            assert!(self.err.contains(part), "`{}` lacks `{part}`", self.err);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }

    /// The JSON events of a kind.
    pub fn events(&self, kind: &str) -> Vec<Value> {
        let all = self.out.iter().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        all.filter(|event| event["event"] == kind).collect()
    }
}

/// A server that runs.
pub struct Server {
    pub address: String,
    pub fingerprint: String,
    pub running: Running,
}

impl Server {
    /// URL of a path of the server.
    pub fn url(&self, path: &str) -> String {
        format!("uts://{}/{path}", self.address)
    }
}

/// The port of a process's first UDP socket (proc(5)).
fn udp_port(process: u32) -> Option<u16> {
    let fds = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    let own: Vec<String> = fds
        .filter_map(|fd| Some(fs::read_link(fd.ok()?.path()).ok()?.display().to_string()))
        .filter_map(|to| Some(to.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let tables =
        ["/proc/net/udp", "/proc/net/udp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let mut rows = tables.iter().flat_map(|table| table.lines().skip(1));
    rows.find_map(|row| {
        let columns: Vec<&str> = row.split_whitespace().collect();
        let is_own = own.iter().any(|inode| columns.get(9) == Some(&inode.as_str()));
        let port = columns.get(1)?.rsplit_once(':')?.1;
        is_own.then(|| u16::from_str_radix(port, 16).ok()).flatten()
    })
}

/// Runs a test again in a mount namespace of its own, where it may mount file systems, and with
/// `-Urmn` in a network of its own. Returns whether this is that run. If the system allows no such
/// namespace, the test is skipped. It must leave nothing in the folder for temporary files.
pub fn in_own_namespace(flags: &str, module: &str, name: &str) -> bool {
    const INSIDE: &str = "UTS_TEST_INSIDE_NAMESPACE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    // The harness names tests without the program.
    let name = format!("{}::{name}", module.split_once("::").map_or("", |(_, module)| module));
    let unshare = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.arg(flags).args(args).env(INSIDE, "1");
        command
    };
    let probe = unshare(&["sh", "-c", "mount -t tmpfs -o size=1m none /tmp"]).output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED {name}: no such namespaces here: {probe:?}");
        return false;
    }
    let this = std::env::current_exe().expect("a program").display().to_string();
    let temporary = tempfile::tempdir().expect("a folder");
    let mut inside = unshare(&[&this, &name, "--exact", "--nocapture"]);
    let ended = inside.env("TMPDIR", temporary.path()).output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stdout);
    let has_passed = ended.status.success() && said.contains("1 passed");
    assert!(has_passed, "inside its namespace: {said}{}", String::from_utf8_lossy(&ended.stderr));
    print!("{said}");
    let left = fs::read_dir(temporary.path()).expect("a folder").count();
    assert_eq!(left, 0, "folders were left behind");
    false
}

/// A signal to a process alone.
pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("a process");
}

/// Bytes that tell their place.
pub fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    core::iter::repeat_with(step).take(bytes).collect()
}

/// True if a name is of a folder.
pub fn is_dir(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_dir())
}
