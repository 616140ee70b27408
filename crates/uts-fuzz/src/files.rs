//! Files: messages, and both ends of a copy whose other end says anything. Nothing outside the
//! directory is touched.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex, split};
use tokio::runtime::Runtime;
use uts_files::message::{self, Entry, Held, Kind, MAGIC, Mtime, Reply, Request, VERSION};
use uts_files::{Client, CopyOptions, Flows as _, NoProgress, RelPath, ServeOptions, Service, memory};

/// Bytes that a flow holds before its writer has to wait: more than any script.
const BUFFER_BYTES: usize = 1 << 20;

/// A conversation that takes longer hangs; it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Flows that a client opens at once.
const FLOWS: usize = 3;

pub fn messages(data: &[u8]) {
    round_trip::<Request>(data);
    round_trip::<Reply>(data);
    round_trip::<Entry>(data);
}

/// Checks that what is read is written as the same, and takes no more bytes than it came in. No
/// length that a message claims decides an allocation.
fn round_trip<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(data: &[u8]) {
    let Ok(value) = message::decode::<T>(data) else { return };
    let body = postcard::to_stdvec(&value).expect("encoded");
    assert!(body.len() <= data.len(), "{value:?}");
    assert_eq!(message::decode::<T>(&body).expect("ours"), value);
}

pub fn names(data: &[u8]) {
    for path in [RelPath::parse(data), RelPath::from_user(data)].into_iter().flatten() {
        assert!(path.as_bytes().len() <= uts_files::path::PATH_BYTES_MAX && !path.as_bytes().contains(&0));
        let names: Vec<&[u8]> = path.as_bytes().split(|byte| *byte == b'/').collect();
        assert!(path.is_root() || names.iter().all(|name| !matches!(*name, b"" | b"." | b"..")));
        assert!(names.iter().all(|name| name.len() <= uts_files::path::NAME_BYTES_MAX));
        assert_eq!(RelPath::parse(path.as_bytes()).as_ref(), Ok(&path));
        let again = path.split().map(|(parent, name)| parent.join(name));
        assert!(again.is_none_or(|again| again.as_ref() == Ok(&path)));
        // It leads nowhere else from any directory, as the system reads it.
        assert!(Path::new("/top").join(path.as_path()).starts_with("/top"));
    }
    let shown = uts_files::path::show(data);
    assert!(!shown.chars().any(char::is_control), "{shown:?}");
}

/// Two directories, of which one is served or copied to, and a runtime.
struct Rig {
    dir: TempDir,
    inside: PathBuf,
    runtime: Runtime,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let inside = dir.path().join("inside");
        fs::create_dir_all(inside.join("d/e")).expect("made");
        fs::create_dir(dir.path().join("outside")).expect("made");
        for (name, contents) in [("inside/f", "four"), ("inside/d/g", ""), ("outside/secret", "x")] {
            fs::write(dir.path().join(name), contents).expect("written");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        Rig { dir, inside, runtime }
    }

    /// Runs a conversation, which ends.
    fn run(&self, conversation: impl Future<Output = ()>) {
        let ended = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, conversation).await });
        assert!(ended.is_ok(), "no end after {PATIENCE:?}");
        self.check();
    }

    /// Nothing beside the directory has changed, and no link in it leads out.
    fn check(&self) {
        check_links(&self.inside, &self.inside.canonicalize().expect("there"));
        assert_eq!(list(self.dir.path()), ["inside", "outside"]);
        assert_eq!(list(&self.dir.path().join("outside")), ["secret"]);
        assert_eq!(fs::read(self.dir.path().join("outside/secret")).expect("there"), b"x");
    }
}

/// As the system follows them, links lead to what is beneath `top`, or nowhere.
fn check_links(dir: &Path, top: &Path) {
    // Whatever mode the peer has given it.
    fs::set_permissions(dir, Permissions::from_mode(0o755)).expect("ours");
    for entry in fs::read_dir(dir).expect("listed").map(|entry| entry.expect("an entry").path()) {
        let kind = fs::symlink_metadata(&entry).expect("there").file_type();
        if kind.is_symlink()
            && let Ok(place) = entry.canonicalize()
        {
            assert!(place.starts_with(top), "{} leads to {}", entry.display(), place.display());
        } else if kind.is_dir() {
            check_links(&entry, top);
        }
    }
}

fn list(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("listed")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The bytes of each flow, made of pieces: `f`, a length and that many bytes are a frame; `r` and
/// these are bytes as they are; any other byte begins the next flow.
fn scripts(data: &[u8]) -> Vec<Vec<u8>> {
    let mut scripts = vec![Vec::new()];
    let mut rest = data;
    while let Some((kind, behind)) = rest.split_first() {
        rest = behind;
        let Some(script) = scripts.last_mut() else { break };
        if !matches!(kind, b'f' | b'r') {
            if scripts.len() < FLOWS {
                scripts.push(Vec::new());
            }
            continue;
        }
        let Some((length, behind)) = rest.split_first_chunk::<2>() else { break };
        let (piece, behind) = behind.split_at(usize::from(u16::from_be_bytes(*length)).min(behind.len()));
        rest = behind;
        if *kind == b'f' {
            script.extend_from_slice(&(piece.len() as u32).to_be_bytes());
        }
        script.extend_from_slice(piece);
    }
    scripts
}

/// Hands a script to the server of a directory; gives back what it answered.
async fn say(service: &Service, script: &[u8]) -> Vec<u8> {
    let (ours, theirs) = duplex(BUFFER_BYTES);
    let (recv, send) = split(theirs);
    let (mut hear, mut tell) = split(ours);
    let client = Client { key: None, address: "192.0.2.1".to_owned() };
    let serving = service.serve_flow(client, send, recv, Arc::new(NoProgress));
    let asking = async {
        let _ = tell.write_all(&[&MAGIC[..], &[VERSION], script].concat()).await;
        let _ = tell.shutdown().await;
    };
    let hearing = async {
        let mut answer = Vec::new();
        let _ = hear.read_to_end(&mut answer).await;
        answer
    };
    tokio::join!(serving, asking, hearing).2
}

pub fn serve(data: &[u8]) {
    let rig = Rig::new();
    let options = ServeOptions { hidden: true, delete: true, ..ServeOptions::default() };
    let service = Service::open(&rig.inside, options).expect("a service");
    rig.run(async {
        for script in scripts(data) {
            let mut answer = &say(&service, &script).await[..];
            // What it answers can be read, as far as it is messages.
            while let Ok(Some(_)) = message::read_frame::<_, Reply>(&mut answer).await {}
        }
    });
}

pub fn fetch(data: &[u8]) {
    let rig = Rig::new();
    let scripts = scripts(data);
    let (ours, theirs) = memory::pair(BUFFER_BYTES);
    rig.run(async {
        let serving = async {
            let mut answering = tokio::task::JoinSet::new();
            let mut scripts = scripts.into_iter();
            while let Ok(Some((mut send, mut recv))) = theirs.accept().await {
                let script = scripts.next().unwrap_or_default();
                answering.spawn(async move {
                    let _ = send.write_all(&script).await;
                    let _ = send.shutdown().await;
                    let _ = tokio::io::copy(&mut recv, &mut tokio::io::sink()).await;
                });
            }
            while answering.join_next().await.is_some() {}
        };
        let copying = async {
            let options = CopyOptions {
                recursive: true,
                links: true,
                delete: true,
                flows: 2,
                ..CopyOptions::default()
            };
            let source = RelPath::parse(b"t").expect("a path");
            if let Ok(report) = uts_files::get(Arc::new(ours), &[source.into()], &rig.inside, &options).await
            {
                assert!(report.bytes_carried <= data.len() as u64, "{report:?}");
            }
        };
        tokio::join!(serving, copying);
    });
}

/// A note names what an unfinished copy is a copy of. Other content is no note, and the part beside
/// it is worth nothing.
pub fn notes(data: &[u8]) {
    let rig = Rig::new();
    for (name, contents) in [(".n.uts-id", data), (".n.uts-part", b"part"), (".d.uts-id", data)] {
        fs::write(rig.inside.join(name), contents).expect("written");
    }
    let service = Service::open(&rig.inside, ServeOptions { hidden: true, ..ServeOptions::default() })
        .expect("a service");
    let mtime = Mtime { seconds: 7, nanoseconds: 5 };
    let entry = Entry { path: b"n".to_vec(), kind: Kind::File, size: 10, mtime, mode: 0o644 };
    rig.run(async {
        let mut script = Vec::new();
        for request in [Request::Offer(entry.clone()), Request::Stat { path: b"d".to_vec() }] {
            message::write_frame(&mut script, &request).await.expect("written");
        }
        let mut answer = &say(&service, &script).await[..];
        let have = message::read_frame::<_, Reply>(&mut answer).await;
        if let Ok(Some(Reply::Have { held: Some(Held { bytes, .. }), .. })) = have {
            let note: serde_json::Value = serde_json::from_slice(data).expect("a note was read");
            assert_eq!((bytes, note["part"]["size"].as_u64()), (4, Some(entry.size)), "{note}");
        }
        let status = message::read_frame::<_, Reply>(&mut answer).await;
        let Ok(Some(Reply::Status { entry: Some(_), copy_of, .. })) = status else { panic!("{status:?}") };
        if let Some(copy_of) = copy_of {
            let note: serde_json::Value = serde_json::from_slice(data).expect("a note was read");
            assert_eq!(note["directory"]["copy_of"].as_array().map(Vec::len), Some(copy_of.len()), "{note}");
        }
    });
}
