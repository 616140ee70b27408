//! Copies between two directories over flows in memory.

mod costly;
mod cut;
mod deleting;
mod destinations;
mod difference;
mod exhausting;
mod foreign;
mod hostile;
mod interrupted;
mod links;
mod owners;
mod packed;
mod selected;
mod small;
mod sparse;
mod streams;
mod together;
mod whole;

use super::memory::{MemoryFlows, pair};
use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Two directories; the server serves `remote`.
struct Rig {
    _dir: TempDir,
    local: PathBuf,
    remote: PathBuf,
    service: Service,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(ServeOptions::default())
    }

    fn with(options: ServeOptions) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let (local, remote) = (dir.path().join("local"), dir.path().join("remote"));
        fs::create_dir(&local).unwrap();
        fs::create_dir(&remote).unwrap();
        let service = Service::open(&remote, options).unwrap();
        Rig { _dir: dir, local, remote, service }
    }

    /// A connection to the server, and the task that serves it.
    fn connect(&self) -> (MemoryFlows, tokio::task::JoinHandle<io::Result<()>>) {
        self.connect_as(somebody())
    }

    fn connect_as(&self, client: Client) -> (MemoryFlows, tokio::task::JoinHandle<io::Result<()>>) {
        let (ours, theirs) = pair(100_000);
        let service = self.service.clone();
        (ours, tokio::spawn(async move { service.serve(&theirs, client, Arc::new(NoProgress)).await }))
    }

    async fn put(&self, sources: &[&str], to: &str) -> Result<Report, FileError> {
        self.put_with(sources, to, &recursive()).await
    }

    async fn put_with(&self, sources: &[&str], to: &str, options: &CopyOptions) -> Result<Report, FileError> {
        let (flows, server) = self.connect();
        let sources: Vec<PathBuf> = sources.iter().map(|s| self.local.join(s)).collect();
        let report = put(Arc::new(flows), &sources, &at(to), options).await;
        server.await.unwrap().unwrap();
        report
    }

    async fn get(&self, sources: &[&str], to: &str) -> Result<Report, FileError> {
        self.get_with(sources, to, &recursive()).await
    }

    async fn get_with(&self, sources: &[&str], to: &str, options: &CopyOptions) -> Result<Report, FileError> {
        let (flows, server) = self.connect();
        let sources: Vec<ServerPath> = sources.iter().map(|s| at(s)).collect();
        let report = get(Arc::new(flows), &sources, &self.local.join(to), options).await;
        server.await.unwrap().unwrap();
        report
    }
}

fn somebody() -> Client {
    Client { key: None, address: "::1".into() }
}

fn recursive() -> CopyOptions {
    CopyOptions { recursive: true, ..CopyOptions::default() }
}

/// Waits for nobody.
fn impatient() -> CopyOptions {
    CopyOptions { busy_patience: std::time::Duration::ZERO, ..recursive() }
}

fn rel(path: &str) -> RelPath {
    RelPath::from_user(path.as_bytes()).unwrap()
}

fn at(path: &str) -> ServerPath {
    ServerPath::from_user(path.as_bytes()).unwrap()
}

/// A file or whatever else, as a peer tells of it.
fn entry(path: &[u8], kind: message::Kind, size: u64) -> message::Entry {
    message::Entry { path: path.to_vec(), kind, size, mtime: message::Mtime::default(), mode: 0o644 }
}

/// Status of a path at which a server has a directory.
fn a_directory(path: &[u8]) -> message::Reply {
    let entry = Some(entry(path, message::Kind::Directory, 0));
    message::Reply::Status { entry, copy_of: None, shows_hidden: true }
}

pub(super) fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    ChaCha8Rng::seed_from_u64(seed).fill(&mut data[..]);
    data
}

fn set_mtime(path: &Path, seconds: u64, nanoseconds: u32) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(seconds, nanoseconds);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

/// Paths, kinds, modes, times and contents of all that is beneath a directory.
fn picture(root: &Path) -> Vec<String> {
    fn walk(at: &Path, root: &Path, out: &mut Vec<String>) {
        let m = fs::symlink_metadata(at).unwrap();
        let what = if m.is_symlink() {
            format!("-> {:?}", fs::read_link(at).unwrap())
        } else {
            let content =
                if m.is_file() { blake3::hash(&fs::read(at).unwrap()).to_string() } else { "dir".into() };
            format!("{:o} {}.{:09} {content}", m.permissions().mode() & 0o777, m.mtime(), m.mtime_nsec())
        };
        out.push(format!("{:?} {what}", at.strip_prefix(root).unwrap()));
        if m.is_dir() {
            for entry in fs::read_dir(at).unwrap() {
                walk(&entry.unwrap().path(), root, out);
            }
        }
    }
    let mut out = Vec::new();
    walk(root, root, &mut out);
    out.sort();
    out
}

fn assert_complete(report: &Report) {
    assert!(report.is_complete(), "{:?} {:?}", report.failures, report.broken);
}
