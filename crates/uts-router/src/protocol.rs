//! Protocol between a testbed's handle and its supervisor: a JSON object per line over a stream
//! socket, together with the descriptors that it needs.
//!
//! The stream is also the lifeline: that it ends tells the supervisor to end.

use super::config::TestbedConfig;
use super::fidelity::{Fidelity, PathStats};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use uts_path::{PathConfig, SpecError, Trace};

/// Descriptors with one request: standard input, output and error.
pub(super) const DESCRIPTORS: usize = 3;

/// The first line of the handle.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Begin {
    pub config: TestbedConfig,
    pub traces: Traces,
}

impl Begin {
    pub(super) fn new(config: &TestbedConfig) -> Self {
        let traces = Traces::of(config.paths.iter().flat_map(PathConfig::traces));
        Begin { config: config.clone(), traces }
    }

    /// The configuration, with its traces.
    pub(super) fn config(mut self) -> Result<TestbedConfig, SpecError> {
        self.config.paths.iter_mut().try_for_each(|path| path.resolve(|name| self.traces.find(name)))?;
        Ok(self.config)
    }
}

/// Traces by their names, in milliseconds: the text of a path has the names alone, and the
/// supervisor reads no files.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Traces(BTreeMap<String, Vec<u32>>);

impl Traces {
    pub(super) fn of<'a>(named: impl Iterator<Item = (&'a str, &'a Arc<Trace>)>) -> Self {
        Traces(named.map(|(name, trace)| (name.to_owned(), trace.times_ms().to_vec())).collect())
    }

    pub(super) fn find(&self, name: &str) -> Result<Arc<Trace>, String> {
        let times = self.0.get(name).ok_or("the trace was not read by who started the testbed")?;
        Trace::new(times.clone()).map(Arc::new).map_err(|error| error.to_string())
    }
}

/// Request of the handle.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub id: u64,
    pub call: Call,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Call {
    /// With three descriptors.
    Spawn(Spawn),
    /// To the program's process group.
    Signal {
        child: u64,
        signal: i32,
    },
    /// `target` is `fwd`, `bwd` or `both`.
    Set {
        path: usize,
        target: String,
        change: String,
        traces: Traces,
    },
    Stats,
    Begin,
    Finish,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spawn {
    /// The number that the handle gives it.
    pub child: u64,
    pub host: usize,
    pub program: String,
    pub args: Vec<String>,
    /// Beyond those of the handle's process; `None` takes one away.
    pub env: Vec<(String, Option<String>)>,
    pub dir: Option<String>,
}

/// Message of the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// The hosts are there.
    Ready,
    /// There will be no testbed.
    Failed(String),
    Reply {
        id: u64,
        result: Result<Answer, String>,
    },
    Exited(Exited),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Done,
    /// The process's number in its own namespace.
    Spawned {
        pid: i32,
    },
    Stats(Vec<PathStats>),
    Ending {
        fidelity: Fidelity,
        paths: Vec<PathStats>,
    },
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Exited {
    pub child: u64,
    /// As `wait` gives it.
    pub status: i32,
    pub user_s: f64,
    pub system_s: f64,
    pub max_resident_bytes: u64,
}

/// Writes one line, with descriptors.
pub(super) fn send(stream: &UnixStream, line: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors"));
    }
    let sent = loop {
        match sendmsg(stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => break sent?,
        }
    };
    (&*stream).write_all(bytes.get(sent..).unwrap_or_default())
}

/// Reads lines, and keeps the descriptors that come with them.
#[derive(Debug)]
pub(super) struct Lines {
    stream: UnixStream,
    bytes: Vec<u8>,
    /// Of `bytes`, those that hold no end of a line.
    searched: usize,
    fds: VecDeque<OwnedFd>,
}

impl Lines {
    pub(super) fn new(stream: UnixStream) -> Self {
        Lines { stream, bytes: Vec::new(), searched: 0, fds: VecDeque::new() }
    }

    /// The next line; `None` at the end of the stream.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(at) = self.bytes.iter().skip(self.searched).position(|&b| b == b'\n') {
                let end = self.searched + at;
                let value = serde_json::from_slice(self.bytes.get(..end).unwrap_or_default());
                self.bytes.drain(..=end);
                self.searched = 0;
                return Ok(Some(value?));
            }
            self.searched = self.bytes.len();
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// The descriptors that came with the line.
    pub(super) fn take_fds(&mut self) -> Option<[OwnedFd; DESCRIPTORS]> {
        if self.fds.len() < DESCRIPTORS {
            return None;
        }
        let fds: Vec<OwnedFd> = self.fds.drain(..DESCRIPTORS).collect();
        fds.try_into().ok()
    }

    fn fill(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 1 << 16];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = match recvmsg(&self.stream, &mut [IoSliceMut::new(&mut chunk)], &mut control, flags) {
            Ok(got) => got.bytes,
            Err(rustix::io::Errno::INTR) => return Ok(true),
            // It was killed, with something of ours unread.
            Err(rustix::io::Errno::CONNRESET) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        self.bytes.extend_from_slice(chunk.get(..got).unwrap_or_default());
        Ok(got > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn lines_of_any_length_come_in_order_and_descriptors_with_theirs() {
        let (a, b) = UnixStream::pair().unwrap();
        let long = "x".repeat(1 << 20);
        let sender = std::thread::spawn(move || {
            send(&a, &"first", &[]).unwrap();
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(b"seen").unwrap();
            drop(writer);
            send(&a, &"second", &[reader.as_fd(), reader.as_fd(), reader.as_fd()]).unwrap();
            send(&a, &"x".repeat(1 << 20), &[]).unwrap();
        });
        let mut lines = Lines::new(b);
        assert_eq!(lines.next::<String>().unwrap().unwrap(), "first");
        assert_eq!(lines.next::<String>().unwrap().unwrap(), "second");
        let [fd, ..] = lines.take_fds().unwrap();
        assert!(lines.take_fds().is_none());
        assert_eq!(io::read_to_string(io::PipeReader::from(fd)).unwrap(), "seen");
        assert_eq!(lines.next::<String>().unwrap().unwrap(), long);
        assert!(lines.next::<String>().unwrap().is_none());
        sender.join().unwrap();
    }

    /// A trace is read by who starts a testbed: its path, its changes to come and those made while
    /// it runs arrive with it.
    #[test]
    fn traces_go_with_the_paths_that_name_them() {
        let read = |name: &str| match name {
            "nowhere" => Err("cannot read it"),
            name => Ok(Arc::new(Trace::new(vec![name.len() as u32, 90]).unwrap())),
        };
        let mut path = PathConfig {
            forward: "rate=trace:some/up".parse().unwrap(),
            schedule: "at=1s both rate=trace:down".parse().unwrap(),
            ..PathConfig::default()
        };
        let unread = TestbedConfig::point_to_point(path.clone());
        let sent = serde_json::to_string(&Begin::new(&unread)).unwrap();
        let why = serde_json::from_str::<Begin>(&sent).unwrap().config().unwrap_err().to_string();
        assert_eq!(why, "rate=trace:some/up: the trace was not read by who started the testbed");
        path.resolve(read).unwrap();
        let config = TestbedConfig::point_to_point(path);
        let sent = serde_json::to_string(&Begin::new(&config)).unwrap();
        assert_eq!(serde_json::from_str::<Begin>(&sent).unwrap().config().unwrap(), config);
        let mut change: uts_path::Change = "loss=0.1 rate=trace:while/it/runs".parse().unwrap();
        change.resolve(read).unwrap();
        let traces = serde_json::to_string(&Traces::of(change.traces())).unwrap();
        let mut arrived: uts_path::Change = change.to_string().parse().unwrap();
        let traces: Traces = serde_json::from_str(&traces).unwrap();
        arrived.resolve(|name| traces.find(name)).unwrap();
        assert_eq!(arrived, change);
    }
}
