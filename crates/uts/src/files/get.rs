//! Copying from the server. The server is not trusted: its names are checked as a server checks those of its clients.

use super::Flows;
use super::batch::{Batch, Conversation, next_reply};
use super::client::{CopyOptions, ENTRIES_MAX, Queue, Report, blocking, local, stat, unexpected, work};
use super::error::{Fault, FaultKind, FileError};
use super::journal::{FileOutcome, Journal};
use super::message::{Entry, Hash, Kind, Reply, Request, write_frame};
use super::part::{Have, Part, Prefix, copy_of, end_copy, make_directory};
use super::path::RelPath;
use super::stream::{Received, receive_content};
use super::tree::Tree;
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A file to be fetched.
struct Item {
    /// At the server.
    source: RelPath,
    tree: Tree,
    target: RelPath,
    /// What the user will call it.
    name: Vec<u8>,
    entry: Entry,
}

impl Batch for Item {
    fn bytes(&self) -> u64 {
        self.entry.size
    }
}

/// The local directory that is copied into.
struct Place {
    tree: Tree,
    /// How the user calls it, ending with `/` unless empty.
    prefix: Vec<u8>,
    /// The name in it to copy to; the directory itself if it is to be copied into.
    target: RelPath,
    into: bool,
}

#[derive(Default)]
struct Plan {
    directories: Vec<(RelPath, Entry)>,
    links: Vec<(RelPath, Entry, RelPath)>,
    files: Vec<Item>,
    top: Option<(RelPath, Vec<u8>)>,
}

/// Copies files, and with [`CopyOptions::recursive`] directories, from the server to the local `destination`: into it,
/// if it is a directory, or to that name.
///
/// Dropping the future cancels the copy; parts stay here, and the same copy goes on from them.
///
/// # Errors
/// When nothing could be begun. Later failures are in the [`Report`], and do not keep other files from being copied.
pub async fn get<F: Flows>(
    flows: Arc<F>,
    sources: &[RelPath],
    destination: &Path,
    options: &CopyOptions,
) -> Result<Report, FileError> {
    let journal = Journal::new(options.progress.clone());
    let resumed = match sources {
        [only] if options.recursive => only.name(),
        _ => None,
    };
    let place = locate(destination, resumed)?;
    if sources.len() > 1 && !place.into {
        let why = "several sources need an existing directory to go into";
        return Err(local(FaultKind::NotDirectory, destination.as_os_str().as_bytes(), why));
    }
    let mut flow = Conversation::open(&*flows).await?;
    let mut plan = Plan::default();
    for source in sources {
        match plan_source(&mut flow, source, &place, options, &journal, &mut plan).await {
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => journal.failed(source.as_bytes(), error),
            Ok(()) => {}
        }
    }
    // Everything has been answered: a failure to say goodbye changes nothing.
    let _ = flow.end().await;
    let bytes = plan.files.iter().fold(0u64, |sum, item| sum.saturating_add(item.entry.size));
    journal.planned(plan.files.len() as u64, bytes);

    let Plan { directories, links, files, top } = plan;
    let (tree, journal2, top2) = (place.tree.clone(), journal.clone(), top.clone());
    let directories = blocking(move || Ok(make_directories(&tree, directories, top2.as_ref(), &journal2)));
    let directories = directories.await.map_err(FileError::Local)?;
    let count = files.len();
    let queue = Arc::new(Queue::new(files, options.flows));
    work(count, options, &journal, || fetch_files(flows.clone(), queue.clone(), journal.clone())).await;
    let journal2 = journal.clone();
    let finish = move || {
        finish_directories(&place.tree, directories, links, top.as_ref(), &journal2);
        Ok(())
    };
    blocking(finish).await.map_err(FileError::Local)?;
    Ok(journal.into_report())
}

/// Where to copy to. A directory is copied into, unless it is the unfinished copy of the source of the name `resumed`:
/// that goes on in its place.
fn locate(destination: &Path, resumed: Option<&[u8]>) -> Result<Place, FileError> {
    let bytes = destination.as_os_str().as_bytes();
    let with_slash = |path: &[u8]| match path {
        b"" | b"." => Vec::new(),
        path if path.ends_with(b"/") => path.to_vec(),
        path => [path, b"/"].concat(),
    };
    let parent = destination.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let in_parent = || {
        let name =
            destination.file_name().ok_or_else(|| Fault::new(FaultKind::Unsafe, bytes, "has no name"))?;
        let target = RelPath::ROOT.join(name.as_bytes())?;
        let prefix = with_slash(parent.as_os_str().as_bytes());
        Ok(Place { tree: Tree::open(parent)?, prefix, target, into: false })
    };
    match std::fs::metadata(destination) {
        Ok(there) if there.is_dir() => {
            if let Ok(place) = in_parent()
                && resumed.is_some()
                && copy_of(&place.tree, &place.target).as_deref() == resumed
            {
                return Ok(place);
            }
            let tree = Tree::open(destination).map_err(FileError::Local)?;
            Ok(Place { tree, prefix: with_slash(bytes), target: RelPath::ROOT, into: true })
        }
        Ok(_) if bytes.ends_with(b"/") => Err(local(FaultKind::NotDirectory, bytes, "not a directory")),
        Err(e) if bytes.ends_with(b"/") || e.kind() != std::io::ErrorKind::NotFound => {
            Err(FileError::Local(Fault::io(bytes, &e)))
        }
        _ => in_parent().map_err(FileError::Local),
    }
}

async fn plan_source<F: Flows>(
    flow: &mut Conversation<F>,
    source: &RelPath,
    place: &Place,
    options: &CopyOptions,
    journal: &Journal,
    plan: &mut Plan,
) -> Result<(), FileError> {
    let (entry, _) = stat(flow, source).await?;
    let missing =
        || FileError::Peer(Fault::new(FaultKind::NotFound, source.as_bytes(), "no such file or directory"));
    let entry = entry.ok_or_else(missing)?;
    let target = match source.name() {
        Some(name) if place.into => place.target.join(name).map_err(FileError::Local)?,
        _ => place.target.clone(),
    };
    match entry.kind {
        Kind::File => {
            plan.add_file(place, source.clone(), target, entry);
            Ok(())
        }
        Kind::Directory if options.recursive => {
            if !place.into {
                plan.top = Some((target.clone(), source.name().unwrap_or_default().to_vec()));
            }
            plan.directories.push((target.clone(), entry));
            list(flow, source, &target, place, options, journal, plan).await
        }
        Kind::Directory => Err(FileError::Peer(Fault::new(
            FaultKind::IsDirectory,
            source.as_bytes(),
            "is a directory; copy it with -r",
        ))),
        Kind::Link(_) | Kind::Special => {
            Err(FileError::Peer(Fault::new(FaultKind::Special, source.as_bytes(), "is not a regular file")))
        }
    }
}

async fn list<F: Flows>(
    flow: &mut Conversation<F>,
    source: &RelPath,
    target: &RelPath,
    place: &Place,
    options: &CopyOptions,
    journal: &Journal,
    plan: &mut Plan,
) -> Result<(), FileError> {
    let mut reply = flow.ask(&Request::List { path: source.as_bytes().to_vec(), recursive: true }).await?;
    let mut count = 0usize;
    loop {
        match reply {
            Reply::Done => return Ok(()),
            Reply::Found(found) => {
                count += 1;
                if count > ENTRIES_MAX {
                    return Err(FileError::Protocol(format!("a listing of more than {ENTRIES_MAX} entries")));
                }
                add_found(found, source, target, place, options, journal, plan);
            }
            other => return Err(unexpected(other)),
        }
        reply = next_reply(&mut flow.recv).await?;
    }
}

fn add_found(
    found: Result<Entry, Fault>,
    source: &RelPath,
    target: &RelPath,
    place: &Place,
    options: &CopyOptions,
    journal: &Journal,
    plan: &mut Plan,
) {
    let placed = found.map_err(FileError::Peer).and_then(|entry| {
        let inside = RelPath::parse(&entry.path).map_err(|fault| {
            FileError::Local(Fault {
                why: format!("a name from the peer is refused: {}", fault.why),
                ..fault
            })
        })?;
        if inside.is_root() {
            return Err(FileError::Protocol("an entry without a name".into()));
        }
        let from = source.join_path(&inside).map_err(FileError::Local)?;
        let to = target.join_path(&inside).map_err(FileError::Local)?;
        Ok((from, to, entry))
    });
    match placed {
        Err(error) => {
            let name = error.fault().map(|fault| fault.path.clone()).unwrap_or_default();
            journal.failed(&[source.as_bytes(), b"/", &name].concat(), error);
        }
        Ok((from, to, entry)) => match &entry.kind {
            Kind::Directory => plan.directories.push((to, entry)),
            Kind::File => plan.add_file(place, from, to, entry),
            Kind::Link(_) if options.links => plan.links.push((to, entry, target.clone())),
            Kind::Link(_) => {
                journal.warned(Fault::new(
                    FaultKind::Special,
                    from.as_bytes(),
                    "symbolic link left out (see --links)",
                ));
            }
            Kind::Special => {
                journal.warned(Fault::new(
                    FaultKind::Special,
                    from.as_bytes(),
                    "neither file nor directory, left out",
                ));
            }
        },
    }
}

impl Plan {
    fn add_file(&mut self, place: &Place, source: RelPath, target: RelPath, entry: Entry) {
        let name = [&place.prefix[..], target.as_bytes()].concat();
        self.files.push(Item { source, tree: place.tree.clone(), target, name, entry });
    }
}

/// Makes directories; returns those that are there now.
fn make_directories(
    tree: &Tree,
    directories: Vec<(RelPath, Entry)>,
    top: Option<&(RelPath, Vec<u8>)>,
    journal: &Journal,
) -> Vec<(RelPath, Entry)> {
    let make = |path: &RelPath| {
        let copy_of = top.filter(|(top, _)| top == path).map(|(_, name)| &name[..]);
        make_directory(tree, path, copy_of)
    };
    directories
        .into_iter()
        .filter(|(path, _)| match make(path) {
            Ok(()) => {
                journal.update(|report| report.directories += 1);
                true
            }
            Err(fault) => {
                journal.failed(path.as_bytes(), FileError::Local(fault));
                false
            }
        })
        .collect()
}

fn finish_directories(
    tree: &Tree,
    directories: Vec<(RelPath, Entry)>,
    links: Vec<(RelPath, Entry, RelPath)>,
    top: Option<&(RelPath, Vec<u8>)>,
    journal: &Journal,
) {
    for (path, entry, top) in links {
        let Kind::Link(target) = &entry.kind else { continue };
        match tree.make_link(&path, target, &top) {
            Ok(()) => journal.update(|report| report.links += 1),
            Err(fault) => journal.failed(path.as_bytes(), FileError::Local(fault)),
        }
    }
    let complete = !journal.has_failures();
    // The deepest first: a directory that may not be entered is closed after those in it.
    for (path, entry) in directories.into_iter().rev() {
        let done = tree.set_attributes(&path, &entry).and_then(|()| match top {
            Some((top, _)) if complete && *top == path => end_copy(tree, &path),
            _ => Ok(()),
        });
        if let Err(fault) = done {
            journal.failed(path.as_bytes(), FileError::Local(fault));
        }
    }
}

async fn fetch_files<F: Flows>(
    flows: Arc<F>,
    queue: Arc<Queue<Item>>,
    journal: Journal,
) -> Result<(), FileError> {
    let mut flow = None;
    loop {
        let batch = queue.take();
        if batch.is_empty() {
            break;
        }
        let mut conversation = match flow.take() {
            Some(conversation) => conversation,
            None => Conversation::open(&*flows).await?,
        };
        let untried = fetch_batch(&mut conversation, batch, &journal).await?;
        if untried.is_empty() {
            flow = Some(conversation);
        } else {
            // Something failed here while the server still sends it: that flow is dropped.
            queue.give_back(untried);
        }
    }
    if let Some(flow) = flow {
        let _ = flow.end().await;
    }
    Ok(())
}

/// Fetches files one after another on one flow. Returns those that were not tried because the flow has become useless.
async fn fetch_batch<F: Flows>(
    flow: &mut Conversation<F>,
    batch: Vec<Item>,
    journal: &Journal,
) -> Result<Vec<Item>, FileError> {
    let mut asked = Vec::with_capacity(batch.len());
    for item in batch {
        let (tree, target, entry) = (item.tree.clone(), item.target.clone(), item.entry.clone());
        match blocking(move || Have::find(&tree, &target, &entry)).await {
            Ok(have) => asked.push((item, have)),
            Err(fault) => fail(journal, &item, FileError::Local(fault)),
        }
    }
    let requests: Vec<Request> = asked
        .iter()
        .map(|(item, have)| Request::Get { path: item.source.as_bytes().to_vec(), held: have.held() })
        .collect();
    let Conversation { send, recv } = flow;
    let asking = async move {
        for request in &requests {
            write_frame(send, request).await?;
        }
        Ok::<_, FileError>(send.flush().await?)
    };
    let mut asked = VecDeque::from(asked);
    let hearing = async {
        while let Some((item, have)) = asked.pop_front() {
            if !fetch_one(recv, &item, have, journal).await? {
                break;
            }
        }
        Ok::<_, FileError>(asked.into_iter().map(|(item, _)| item).collect())
    };
    tokio::try_join!(asking, hearing).map(|((), untried)| untried)
}

/// Receives one file; false if the flow is of no more use.
async fn fetch_one<R>(flow: &mut R, item: &Item, have: Have, journal: &Journal) -> Result<bool, FileError>
where
    R: tokio::io::AsyncRead + Unpin,
{
    let (entry, from) = match next_reply(flow).await? {
        Reply::Sending { entry, from } => (entry, from),
        reply => {
            fail(journal, item, unexpected(reply));
            return Ok(true);
        }
    };
    journal.began(&item.name, entry.size, from);
    let prefix = match (have.prefix, from) {
        (_, 0) => None,
        (Some(prefix), from) if prefix.held.bytes == from => Some(prefix),
        _ => return Err(FileError::Protocol("content that begins where nothing was asked for".into())),
    };
    let unchanged = (entry.size, entry.mtime) == (item.entry.size, item.entry.mtime);
    if have.complete && unchanged && (prefix.is_some() || entry.size == 0) {
        let same_mode = have.mode & 0o777 == entry.mode & 0o777;
        confirm(flow, item, &entry, prefix, same_mode, journal).await?;
        return Ok(true);
    }
    // A whole file of that size and time that is not the same is no part to go on from.
    let prefix = prefix.filter(|_| !have.complete);
    if prefix.is_none() && from > 0 {
        fail(journal, item, local(FaultKind::Changed, &item.name, "changed while it was copied; copy again"));
        return Ok(false);
    }
    let (tree, target, opened) = (item.tree.clone(), item.target.clone(), entry.clone());
    let part = match blocking(move || Part::open(&tree, &target, &opened, prefix, None)).await {
        Ok(part) => part,
        Err(fault) => {
            fail(journal, item, FileError::Local(Fault { path: item.name.clone(), ..fault }));
            return Ok(false);
        }
    };
    let mut observe = |bytes| journal.moved(&item.name, bytes);
    let (outcome, usable) = match receive_content(flow, part, &mut observe, None).await? {
        Received::Stored(hash) => (FileOutcome::Copied(hash), true),
        Received::Aborted(fault) => (FileOutcome::Failed(FileError::Peer(fault)), true),
        Received::Failed(fault, at) => {
            let fault = Fault { path: item.name.clone(), ..fault };
            (FileOutcome::Failed(FileError::Local(fault)), at.is_none())
        }
        Received::Superseded(fault) => (FileOutcome::Failed(FileError::Local(fault)), false),
    };
    journal.ended(&item.name, entry.size, outcome);
    Ok(usable)
}

/// The server agrees that the file is here in full: nothing follows but its hash.
async fn confirm<R>(
    flow: &mut R,
    item: &Item,
    entry: &Entry,
    prefix: Option<Prefix>,
    same_mode: bool,
    journal: &Journal,
) -> Result<(), FileError>
where
    R: tokio::io::AsyncRead + Unpin,
{
    let ours = prefix.map_or_else(|| *blake3::hash(b"").as_bytes(), |prefix| prefix.held.hash);
    let mut hash = Hash::default();
    if flow.read_u32().await? != 0 {
        return Err(FileError::Protocol("content after the end of a file".into()));
    }
    flow.read_exact(&mut hash).await?;
    let outcome = if hash != ours {
        FileOutcome::Failed(local(FaultKind::Corrupt, &item.name, "the hashes of both ends differ"))
    } else if same_mode {
        FileOutcome::AlreadyThere(hash)
    } else {
        let (tree, target, entry) = (item.tree.clone(), item.target.clone(), entry.clone());
        match blocking(move || tree.set_attributes(&target, &entry)).await {
            Ok(()) => FileOutcome::AlreadyThere(hash),
            Err(fault) => FileOutcome::Failed(FileError::Local(fault)),
        }
    };
    journal.ended(&item.name, entry.size, outcome);
    Ok(())
}

fn fail(journal: &Journal, item: &Item, error: FileError) {
    journal.ended(&item.name, item.entry.size, FileOutcome::Failed(error));
}
