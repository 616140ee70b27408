//! Copying to the server.

use super::batch::{Batch, Conversation, next_reply};
use super::client::{CopyOptions, Queue, Report, blocking, local, stat, unexpected, work};
use super::error::{Fault, FaultKind, FileError};
use super::hashing::content_after;
use super::journal::{FileOutcome, Journal};
use super::message::{Entry, Hash, Held, Kind, Reply, Request, write_frame};
use super::path::RelPath;
use super::stream::{Content, Sent, send_content};
use super::tree::{Source, Tree};
use super::{Flows, WriteShared};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

/// A file to be sent.
struct Item {
    source: Source,
    /// What the user calls it.
    name: Vec<u8>,
    /// With its path at the server.
    entry: Entry,
}

impl Batch for Item {
    fn bytes(&self) -> u64 {
        self.entry.size
    }
}

/// Everything that is to be made at the server.
#[derive(Default)]
struct Plan {
    directories: Vec<Entry>,
    links: Vec<(Entry, RelPath)>,
    files: Vec<Item>,
    /// A directory that is to be a new copy, and of what.
    top: Option<(RelPath, Vec<u8>)>,
}

/// Copies files, and with [`CopyOptions::recursive`] directories, to `destination` at the server: into it, if it is a
/// directory, or to that name.
///
/// Dropping the future cancels the copy; parts stay at the server, and the same copy goes on from them.
///
/// # Errors
/// When nothing could be begun. Later failures are in the [`Report`], and do not keep other files from being copied.
pub async fn put<F: Flows>(
    flows: Arc<F>,
    sources: &[PathBuf],
    destination: &RelPath,
    options: &CopyOptions,
) -> Result<Report, FileError> {
    let journal = Journal::new(options.progress.clone());
    let mut flow = Conversation::open_to_put(&*flows, options.preserve_mode).await?;
    let plan = plan(&mut flow, sources, destination, options, &journal).await?;
    let bytes = plan.files.iter().fold(0u64, |sum, item| sum.saturating_add(item.entry.size));
    journal.planned(plan.files.len() as u64, bytes);

    make_directories(&mut flow, &plan, &journal).await?;
    let count = plan.files.len();
    let preserve = options.preserve_mode;
    let queue = Arc::new(Queue::of(plan.files, options.flows));
    work(count, options, &journal, || send_files(flows.clone(), queue.clone(), journal.clone(), preserve))
        .await;
    let finished =
        finish_directories(&mut flow, &plan.directories, &plan.links, plan.top.as_ref(), &journal).await;
    if let Err(error) = finished {
        journal.update(|report| {
            report.broken.get_or_insert(error);
        });
    } else {
        // Everything has been answered: a failure to say goodbye changes nothing.
        let _ = flow.end().await;
    }
    Ok(journal.into_report())
}

async fn plan<F: Flows>(
    flow: &mut Conversation<F>,
    sources: &[PathBuf],
    destination: &RelPath,
    options: &CopyOptions,
    journal: &Journal,
) -> Result<Plan, FileError> {
    let (there, copy_of) = stat(flow, destination).await?;
    let into = there.as_ref().is_some_and(|entry| entry.kind == Kind::Directory);
    if sources.len() > 1 && !into {
        return Err(FileError::Peer(Fault::new(
            FaultKind::NotDirectory,
            destination.as_bytes(),
            "several sources need an existing directory to go into",
        )));
    }
    let mut plan = Plan::default();
    for source in sources {
        let name = base_name(source)?;
        let resumed = sources.len() == 1 && copy_of.is_some() && copy_of.as_deref() == name.as_deref();
        let target = match &name {
            Some(name) if into && !resumed => destination.join(name).map_err(FileError::Local)?,
            _ => destination.clone(),
        };
        let fresh = !into || resumed;
        match scan(source.clone(), target.clone(), options.clone(), journal.clone()).await {
            Ok(mut scanned) => {
                // A directory that the user named keeps its mode, unless this is to make it such as the source.
                if let (true, None, false, Some(top)) =
                    (into && !resumed, &name, options.preserve_mode, scanned.directories.first_mut())
                {
                    top.mode = 0o777;
                }
                if fresh && !scanned.directories.is_empty() {
                    plan.top = Some((target, name.unwrap_or_default()));
                }
                plan.directories.extend(scanned.directories);
                plan.links.extend(scanned.links);
                plan.files.extend(scanned.files);
            }
            Err(fault) => journal.failed(source.as_os_str().as_bytes(), FileError::Local(fault)),
        }
    }
    Ok(plan)
}

/// The last name of a local path; `None` where the content is meant (`.`, `/`, `dir/.`).
fn base_name(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let bytes = path.as_os_str().as_bytes();
    if bytes == b"." || bytes.ends_with(b"/.") {
        return Ok(None);
    }
    if bytes == b".." || bytes.ends_with(b"/..") {
        return Err(local(
            FaultKind::Unsafe,
            bytes,
            "has no name of its own; write the name of the directory",
        ));
    }
    Ok(path.file_name().map(|name| name.as_bytes().to_vec()))
}

async fn scan(
    source: PathBuf,
    target: RelPath,
    options: CopyOptions,
    journal: Journal,
) -> Result<Plan, Fault> {
    blocking(move || {
        let name = source.as_os_str().as_bytes();
        let what = std::fs::metadata(&source).map_err(|e| Fault::io(name, &e))?;
        if !what.is_dir() {
            let source = Source::Ambient(source.clone());
            let entry = Entry { path: target.as_bytes().to_vec(), ..source.open()?.1 };
            return Ok(Plan { files: vec![Item { source, name: name.to_vec(), entry }], ..Plan::default() });
        }
        if !options.recursive {
            return Err(Fault::new(FaultKind::IsDirectory, name, "is a directory; copy it with -r"));
        }
        scan_directory(&Tree::open(&source)?, name, &target, &options, &journal)
    })
    .await
}

fn scan_directory(
    tree: &Tree,
    name: &[u8],
    target: &RelPath,
    options: &CopyOptions,
    journal: &Journal,
) -> Result<Plan, Fault> {
    let mut plan = Plan::default();
    let top = tree.stat(&RelPath::ROOT)?;
    plan.directories.extend(top.map(|entry| Entry { path: target.as_bytes().to_vec(), ..entry }));
    tree.list(&RelPath::ROOT, true, &mut |found| {
        let placed = found.and_then(|entry| {
            let inside = RelPath::parse(&entry.path)?;
            let path = target.join_path(&inside)?.as_bytes().to_vec();
            Ok((inside, Entry { path, ..entry }))
        });
        match placed {
            Err(fault) => {
                journal.failed(&[name, b"/", &fault.path].concat(), FileError::Local(fault.clone()))
            }
            Ok((inside, entry)) => {
                let name = [name, b"/", inside.as_bytes()].concat();
                match entry.kind {
                    Kind::Directory => plan.directories.push(entry),
                    Kind::File => {
                        plan.files.push(Item { source: Source::Inside(tree.clone(), inside), name, entry })
                    }
                    Kind::Link(_) if options.links => plan.links.push((entry, target.clone())),
                    Kind::Link(_) => {
                        journal.warned(Fault::new(
                            FaultKind::Special,
                            &name,
                            "symbolic link left out (see --links)",
                        ));
                    }
                    Kind::Special => {
                        journal.warned(Fault::new(
                            FaultKind::Special,
                            &name,
                            "neither file nor directory, left out",
                        ));
                    }
                }
            }
        }
        true
    })?;
    Ok(plan)
}

async fn make_directories<F: Flows>(
    flow: &mut Conversation<F>,
    plan: &Plan,
    journal: &Journal,
) -> Result<(), FileError> {
    let requests: Vec<Request> = plan
        .directories
        .iter()
        .map(|entry| {
            let copy_of = plan.top.as_ref().filter(|(path, _)| path.as_bytes() == entry.path);
            Request::MakeDirectory { entry: entry.clone(), copy_of: copy_of.map(|(_, name)| name.clone()) }
        })
        .collect();
    let answered = |i: usize, reply| match (reply, plan.directories.get(i)) {
        (Reply::Done, _) => journal.update(|report| report.directories += 1),
        (reply, Some(entry)) => journal.failed(&entry.path, unexpected(reply)),
        (_, None) => {}
    };
    flow.ask_all(&requests, answered).await
}

/// Links, and the modes and times of directories: last, for what is made in a directory changes its time.
async fn finish_directories<F: Flows>(
    flow: &mut Conversation<F>,
    directories: &[Entry],
    links: &[(Entry, RelPath)],
    top: Option<&(RelPath, Vec<u8>)>,
    journal: &Journal,
) -> Result<(), FileError> {
    let link = |(entry, top): &(Entry, RelPath)| Request::MakeLink {
        entry: entry.clone(),
        top: top.as_bytes().to_vec(),
    };
    let requests: Vec<Request> = links.iter().map(link).collect();
    let answered = |i: usize, reply| match (reply, links.get(i)) {
        (Reply::Done, _) => journal.update(|report| report.links += 1),
        (reply, Some((entry, _))) => journal.failed(&entry.path, unexpected(reply)),
        (_, None) => {}
    };
    flow.ask_all(&requests, answered).await?;
    let complete = !journal.has_failures();
    let attributes = |entry: &Entry| Request::Attributes {
        entry: entry.clone(),
        complete: complete && top.is_some_and(|(path, _)| path.as_bytes() == entry.path),
    };
    // The deepest first: a directory that may not be entered is closed after those in it.
    let requests: Vec<Request> = directories.iter().rev().map(attributes).collect();
    let answered = |i: usize, reply| match (reply, directories.iter().rev().nth(i)) {
        (Reply::Done, _) | (_, None) => {}
        (reply, Some(entry)) => journal.failed(&entry.path, unexpected(reply)),
    };
    flow.ask_all(&requests, answered).await
}

async fn send_files<F: Flows>(
    flows: Arc<F>,
    queue: Arc<Queue<Item>>,
    journal: Journal,
    preserve_mode: bool,
) -> Result<(), FileError> {
    let mut flow = None;
    loop {
        let batch = queue.take().await;
        if batch.is_empty() {
            break;
        }
        let mut conversation = match flow.take() {
            Some(conversation) => conversation,
            None => Conversation::open_to_put(&*flows, preserve_mode).await?,
        };
        send_batch(&mut conversation, &batch, &journal).await?;
        flow = Some(conversation);
    }
    if let Some(flow) = flow {
        // Everything has been answered: a failure to say goodbye changes nothing.
        let _ = flow.end().await;
    }
    Ok(())
}

/// Something written, of which the answer is awaited.
enum Awaited {
    File(usize),
    Attributes(usize, Hash),
}

async fn send_batch<F: Flows>(
    flow: &mut Conversation<F>,
    batch: &[Item],
    journal: &Journal,
) -> Result<(), FileError> {
    let offers: Vec<Request> = batch.iter().map(|item| Request::Offer(item.entry.clone())).collect();
    let mut replies = Vec::with_capacity(offers.len());
    flow.ask_all(&offers, |_, reply| replies.push(reply)).await?;
    let Conversation { send, recv } = flow;
    let (awaited, mut answers) = mpsc::unbounded_channel();
    let failed = AtomicUsize::new(usize::MAX);
    let failed = &failed;
    let sent: Vec<OnceLock<Sent>> = batch.iter().map(|_| OnceLock::new()).collect();
    let sent = &sent;
    let sending = async move {
        for (i, (item, reply)) in batch.iter().zip(replies).enumerate() {
            let ended = send_one(send, i, item, reply, journal, &awaited, failed).await?;
            if let (Some(ended), Some(sent)) = (ended, sent.get(i)) {
                // Only this sets it, once.
                let _ = sent.set(ended);
            }
        }
        send.flush().await?;
        Ok::<_, FileError>(())
    };
    let hearing = async {
        while let Some(next) = answers.recv().await {
            let (i, outcome) = match next {
                Awaited::File(i) => {
                    let outcome = stored(next_reply(recv).await?, sent.get(i).and_then(OnceLock::get));
                    outcome.map(|outcome| (i, outcome)).unwrap_or_else(|error| {
                        failed.store(i, Ordering::Relaxed);
                        (i, FileOutcome::Failed(error))
                    })
                }
                Awaited::Attributes(i, hash) => match next_reply(recv).await? {
                    Reply::Done => (i, FileOutcome::AlreadyThere(hash)),
                    reply => (i, FileOutcome::Failed(unexpected(reply))),
                },
            };
            if let Some(item) = batch.get(i) {
                journal.ended(&item.name, item.entry.size, outcome);
            }
        }
        Ok::<_, FileError>(())
    };
    tokio::try_join!(sending, hearing).map(|_| ())
}

/// How a file ended of which this end knows how sending it ended; the error is one of the server's.
fn stored(reply: Reply, sent: Option<&Sent>) -> Result<FileOutcome, FileError> {
    match (reply, sent) {
        (Reply::Stored { hash }, Some(Sent::Whole(ours))) if hash == *ours => Ok(FileOutcome::Copied(hash)),
        (Reply::Stored { .. }, _) => {
            let why = "the server says that it has stored what was not sent";
            Ok(FileOutcome::Failed(local(FaultKind::Corrupt, b"", why)))
        }
        // It was told so, and says it again.
        (Reply::GivenUp(_), Some(Sent::Failed(fault))) => {
            Ok(FileOutcome::Failed(FileError::Local(fault.clone())))
        }
        (Reply::GivenUp(fault), _) => Ok(FileOutcome::Failed(FileError::Peer(fault))),
        (reply, _) => Err(unexpected(reply)),
    }
}

/// How sending ended, if there was anything to send.
async fn send_one<W: WriteShared>(
    send: &mut W,
    i: usize,
    item: &Item,
    reply: Reply,
    journal: &Journal,
    awaited: &mpsc::UnboundedSender<Awaited>,
    failed: &AtomicUsize,
) -> Result<Option<Sent>, FileError> {
    let size = item.entry.size;
    let end = |outcome| journal.ended(&item.name, size, outcome);
    let (held, complete, mode) = match reply {
        Reply::Have { held, complete, mode } => (held, complete, mode),
        reply => {
            end(FileOutcome::Failed(unexpected(reply)));
            return Ok(None);
        }
    };
    let content = match open_after(item, held).await {
        Ok(content) => content,
        Err(fault) => {
            end(FileOutcome::Failed(FileError::Local(fault)));
            return Ok(None);
        }
    };
    journal.began(&item.name, size, content.from);
    if complete && content.from == content.entry.size && held.is_some_and(|held| held.bytes == content.from) {
        let hash = content.hasher.finalize().into();
        if mode & 0o777 == content.entry.mode & 0o777 {
            end(FileOutcome::AlreadyThere(hash));
            return Ok(None);
        }
        let entry = Entry { path: item.entry.path.clone(), ..content.entry };
        write_frame(send, &Request::Attributes { entry, complete: false }).await?;
        // Fails only if the hearing side has ended, whose error is the one to report.
        let _ = awaited.send(Awaited::Attributes(i, hash));
        return Ok(None);
    }
    let entry = Entry { path: item.entry.path.clone(), ..content.entry.clone() };
    write_frame(send, &Request::Put { entry, from: content.from }).await?;
    let _ = awaited.send(Awaited::File(i));
    let mut observe = |bytes| journal.moved(&item.name, bytes);
    // If the source fails, the server is told and answers with what it was told.
    Ok(Some(send_content(send, content, &mut observe, &|| failed.load(Ordering::Relaxed) == i).await?))
}

/// Opens the file; after what the server holds, if that is a prefix of it.
async fn open_after(item: &Item, held: Option<Held>) -> Result<Content, Fault> {
    let (source, name) = (item.source.clone(), item.name.clone());
    // What goes wrong while it is sent is told by this name.
    let named = |fault| Fault { path: item.name.clone(), ..fault };
    let (file, entry) = blocking(move || source.open()).await.map_err(named)?;
    content_after(file, Entry { path: name, ..entry }, held, None).await.map_err(named)
}
