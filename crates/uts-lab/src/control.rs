//! Changes the path of a running testbed: a socket in the file system, through which `uts lab set`
//! reaches it.
//!
//! A [`Control`] is a testbed with paths. While one is [registered](Controls::register), a thread
//! answers at `DIR/PID.sock`. DIR is the directory `uts-lab` in `XDG_RUNTIME_DIR`, or otherwise
//! `uts-lab-UID` in the directory for temporary files. Only its owner may enter it. A request is a
//! line of JSON, and so is the answer.

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use uts_path::{Change, Target};
use uts_record::run::Intervention;

/// Time that a request may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request, in bytes.
const REQUEST_MAX: u64 = 64 << 10;

/// A testbed whose paths can be changed.
pub trait Control: Send + Sync {
    /// The names of its paths.
    fn paths(&self) -> Vec<String>;

    /// Changes one of them, now.
    ///
    /// # Errors
    /// There is no such path, the change leads out of range, or the testbed has ended.
    fn set(&self, path: &str, target: Target, change: &Change) -> Result<()>;
}

/// Remembers what was changed by hand, for the record.
#[derive(Debug, Default)]
pub struct Interventions(Mutex<Vec<Intervention>>);

impl Interventions {
    /// One more, at an instant of the run.
    pub fn add(&self, t_s: f64, path: &str, target: Target, change: &Change) {
        let change = format!("{path} {} {change}", target.keyword());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Intervention { t_s, change });
    }

    /// All so far.
    pub fn take(&self) -> Vec<Intervention> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Request to a testbed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum Request {
    /// To change a path; without a name, the only one.
    Set {
        /// Which.
        path: Option<String>,
        /// Which of its links: `fwd`, `bwd` or `both`.
        #[serde(with = "target_text")]
        target: Target,
        /// New settings of the links.
        change: Change,
    },
    /// To say what runs.
    Describe,
}

mod target_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use uts_path::{Direction, Target};

    pub fn serialize<S: Serializer>(target: &Target, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(target.keyword())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Target, D::Error> {
        let text = String::deserialize(deserializer)?;
        let all = [Target::Both, Target::One(Direction::Forward), Target::One(Direction::Backward)];
        let found = all.into_iter().find(|target| target.keyword() == text);
        found.ok_or_else(|| D::Error::custom("expected fwd, bwd or both"))
    }
}

/// Answer of the testbed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was done, and how it puts it.
    Done(String),
    /// It was not, and why.
    Failed(String),
}

/// The testbeds that run in this process. There is one at a time, because worlds in real time run
/// one case at a time.
#[derive(Debug, Default)]
pub struct Controls {
    current: Arc<Mutex<Option<Current>>>,
    /// The socket, once it is there.
    socket: Option<PathBuf>,
}

struct Current {
    control: Arc<dyn Control>,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.control.paths()).finish()
    }
}

impl Controls {
    /// Answers at a socket of its own from now on. `what` is what this process runs, for people.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn listen(what: String) -> Result<Self> {
        Self::listen_in(&socket_dir()?, what)
    }

    fn listen_in(dir: &Path, what: String) -> Result<Self> {
        let socket = dir.join(format!("{}.sock", std::process::id()));
        match fs::remove_file(&socket) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(e).with_context(|| format!("cannot remove {}", socket.display()));
            }
            _ => {}
        }
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
        let current = Arc::default();
        let shared = Arc::clone(&current);
        std::thread::Builder::new().name("uts-lab-control".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                // A caller that does not get an answer has gone.
                let _ = answer(stream, &what, &shared);
            }
        })?;
        Ok(Controls { current, socket: Some(socket) })
    }

    /// Lets a testbed be changed for as long as what is returned lives.
    pub fn register(&self, control: Arc<dyn Control>) -> Registration {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Current { control });
        Registration(Arc::clone(&self.current))
    }
}

impl Drop for Controls {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            // Nobody answers there any more; the next to look removes it if this fails.
            let _ = fs::remove_file(socket);
        }
    }
}

/// A testbed that can be changed.
#[derive(Debug)]
pub struct Registration(Arc<Mutex<Option<Current>>>);

impl Drop for Registration {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn answer(mut stream: UnixStream, what: &str, current: &Mutex<Option<Current>>) -> Result<()> {
    use std::io::Read;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(REQUEST_MAX)).read_line(&mut line)?;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => {
            act(&request, what, current).map_or_else(|e| Answer::Failed(format!("{e:#}")), Answer::Done)
        }
        Err(e) => Answer::Failed(format!("not a request: {e}")),
    };
    writeln!(stream, "{}", serde_json::to_string(&answer)?)?;
    Ok(())
}

fn act(request: &Request, what: &str, current: &Mutex<Option<Current>>) -> Result<String> {
    let guard = current.lock().unwrap_or_else(PoisonError::into_inner);
    let control = guard.as_ref().map(|current| Arc::clone(&current.control));
    drop(guard);
    let paths = control.as_ref().map(|control| control.paths()).unwrap_or_default();
    match request {
        Request::Describe => Ok(format!(
            "{what}: {}",
            if paths.is_empty() { "between two runs".into() } else { paths.join(", ") }
        )),
        Request::Set { path, target, change } => {
            let control = control.ok_or_else(|| anyhow!("{what} is between two runs"))?;
            let name = match (path, paths.as_slice()) {
                (Some(name), _) if paths.contains(name) => name.clone(),
                (None, [only]) => only.clone(),
                (Some(name), _) => {
                    bail!(crate::names::unknown("path", name, paths.iter().map(String::as_str)))
                }
                (None, _) => bail!("say which path by --path: there are {}", paths.join(", ")),
            };
            control.set(&name, *target, change)?;
            Ok(format!("{name} {}: {change}", target.keyword()))
        }
    }
}

/// Sends a request to the testbed of a process, or to the only one.
///
/// # Errors
/// None runs, or several; what the testbed says.
pub fn ask(process: Option<u32>, request: &Request) -> Result<String> {
    ask_in(&socket_dir()?, process, request)
}

fn ask_in(dir: &Path, process: Option<u32>, request: &Request) -> Result<String> {
    let mut found = running(dir)?;
    if let Some(process) = process {
        found.retain(|(id, _)| *id == process);
    }
    match found.as_slice() {
        [] if process.is_some() => bail!("no testbed runs in process {}", process.unwrap_or_default()),
        [] => bail!("no testbed runs: start one by `uts lab run`, in the world relay or router"),
        [(_, socket)] => match exchange(socket, request)? {
            Answer::Done(line) => Ok(line),
            Answer::Failed(why) => bail!(why),
        },
        several => {
            let ids: Vec<String> = several.iter().map(|(id, _)| id.to_string()).collect();
            bail!("several testbeds run: say which by --process, of {}", ids.join(", "))
        }
    }
}

/// Testbeds that answer. Sockets of processes that were killed are removed.
fn running(dir: &Path) -> Result<Vec<(u32, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?.flatten() {
        let path = entry.path();
        let Some(id) = path.file_name().and_then(|n| n.to_str()?.strip_suffix(".sock")?.parse().ok()) else {
            continue;
        };
        match UnixStream::connect(&path) {
            Ok(_) => found.push((id, path)),
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                let _ = fs::remove_file(&path);
            }
            Err(_) => {}
        }
    }
    found.sort();
    Ok(found)
}

fn exchange(socket: &Path, request: &Request) -> Result<Answer> {
    let ask = || -> Result<Answer> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        writeln!(stream, "{}", serde_json::to_string(request)?)?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    };
    ask().context("the testbed does not answer")
}

/// A directory that only this user enters.
fn socket_dir() -> Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let dir = match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir()) {
        Some(runtime) => runtime.join("uts-lab"),
        None => std::env::temp_dir().join(format!("uts-lab-{user}")),
    };
    match fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            return Err(e).with_context(|| format!("cannot make {}", dir.display()));
        }
        _ => {}
    }
    // In a directory that others write to, somebody else may have made it first.
    let metadata = fs::symlink_metadata(&dir)?;
    if !metadata.is_dir() || metadata.uid() != user || metadata.permissions().mode() & 0o077 != 0 {
        bail!("{} is not a directory that only this user enters; remove it", dir.display());
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Bench(Interventions);

    impl Control for Bench {
        fn paths(&self) -> Vec<String> {
            vec!["near".into(), "far".into()]
        }

        fn set(&self, path: &str, target: Target, change: &Change) -> Result<()> {
            self.0.add(1.5, path, target, change);
            Ok(())
        }
    }

    fn set(path: Option<&str>) -> Request {
        Request::Set {
            path: path.map(str::to_owned),
            target: Target::Both,
            change: "rate=2mbit".parse().unwrap(),
        }
    }

    #[test]
    fn a_testbed_is_found_and_changed() {
        let dir = tempfile::tempdir().unwrap();
        let failure = |request: &Request| format!("{:#}", ask_in(dir.path(), None, request).unwrap_err());
        assert!(failure(&Request::Describe).starts_with("no testbed runs"));
        let controls = Controls::listen_in(dir.path(), "experiment x".into()).unwrap();
        assert_eq!(failure(&set(None)), "experiment x is between two runs");
        let bench = Arc::new(Bench::default());
        let registration = controls.register(bench.clone());
        assert_eq!(ask_in(dir.path(), None, &Request::Describe).unwrap(), "experiment x: near, far");
        assert_eq!(ask_in(dir.path(), None, &set(Some("far"))).unwrap(), "far both: rate=2mbit");
        assert_eq!(failure(&set(None)), "say which path by --path: there are near, far");
        assert_eq!(failure(&set(Some("fra"))), "there is no path `fra`; did you mean `far`?");
        assert!(ask_in(dir.path(), Some(1), &Request::Describe).is_err());
        let done = bench.0.take();
        assert_eq!(done, [Intervention { t_s: 1.5, change: "far both rate=2mbit".into() }]);
        drop(registration);
        assert_eq!(failure(&set(Some("far"))), "experiment x is between two runs");
        drop(controls);
        assert!(failure(&Request::Describe).starts_with("no testbed runs"));
    }

    #[test]
    fn the_socket_of_a_killed_process_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let dead = dir.path().join("1.sock");
        drop(UnixListener::bind(&dead).unwrap());
        assert!(dead.exists());
        assert!(ask_in(dir.path(), None, &Request::Describe).is_err());
        assert!(!dead.exists());
    }
}
