//! Copying to the server.

use super::Flows;
use super::batch::Conversation;
use super::client::{CopyOptions, Placement, Report, blocking, local, once_each, stat, unexpected};
use super::error::{Fault, FaultKind, FileError};
use super::journal::{FileOutcome, Journal};
use super::message::{Entry, Kind, Reply, Request};
use super::path::{RelPath, ServerPath};
use super::send::{Item, Sender};
use super::tree::{Go, Source, Tree};
use super::workers::{Queue, Waiting, work};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Everything that is to be made at the server.
#[derive(Default)]
struct Plan {
    directories: Vec<Entry>,
    links: Vec<(Entry, RelPath)>,
    files: Vec<Item>,
    /// A directory that is to be a new copy, and of what.
    top: Option<(RelPath, Vec<u8>)>,
}

/// Copies files, and with [`CopyOptions::recursive`] directories, to `destination` at the server:
/// into it, if it is a directory, or to that name.
///
/// Dropping the future cancels the copy. Parts stay at the server, and the same copy goes on from
/// them.
///
/// # Errors
/// If nothing could be begun. Later failures are in the [`Report`], and do not keep other files
/// from being copied.
pub async fn put<F: Flows>(
    flows: Arc<F>,
    sources: &[PathBuf],
    destination: &ServerPath,
    options: &CopyOptions,
) -> Result<Report, FileError> {
    let journal = Journal::new(options);
    let mut flow = Conversation::open_to_put(&*flows, &journal.payer, options.preserve_mode).await?;
    let mut plan = plan(&mut flow, sources, destination, options, &journal).await?;
    let bytes = plan.files.iter().fold(0u64, |sum, item| sum.saturating_add(item.entry.size));
    journal.planned(plan.files.len() as u64, bytes);
    if options.dry_run {
        tell_only(&mut flow, &plan.files, &journal).await?;
        return Ok(journal.into_report());
    }
    plan.files.retain(|item| !journal.has_been_copied(&item.name, item.entry.size, item.entry.mtime));

    make_directories(&mut flow, &plan, &journal).await?;
    let count = plan.files.len();
    let queue = Arc::new(Queue::of(plan.files, options.flows));
    let waiting = Waiting::new(options.busy_patience);
    let sender = Sender {
        journal: journal.clone(),
        preserve_mode: options.preserve_mode,
        whole_files: options.whole_files,
        waiting,
    };
    work(&flows, &queue, &sender, count, &journal).await;
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
    destination: &ServerPath,
    options: &CopyOptions,
    journal: &Journal,
) -> Result<Plan, FileError> {
    let ServerPath { path: destination, is_directory } = destination;
    let (there, copy_of) = stat(flow, destination).await?;
    let into = there.as_ref().is_some_and(|entry| entry.kind == Kind::Directory);
    let refuse = |kind, why| Err(FileError::Peer(Fault::new(kind, destination.as_bytes(), why)));
    if sources.len() > 1 && !into {
        return refuse(FaultKind::NotDirectory, "several sources need an existing directory to go into");
    }
    if *is_directory && !into && there.is_some() {
        return refuse(FaultKind::NotDirectory, "is not a directory");
    }
    let names = sources.iter().map(|source| base_name(source)).collect::<Result<Vec<_>, _>>()?;
    if into {
        let named = names.iter().zip(sources).map(|(name, source)| (name.as_deref(), source));
        once_each(destination.as_bytes(), named.map(|(name, source)| (name, source.as_os_str().as_bytes())))?;
    }
    let resumed = match options.earlier.as_ref().and_then(|report| report.placement) {
        Some(placement) => placement == Placement::As,
        None => sources.len() == 1 && copy_of.is_some() && names.first().is_some_and(|name| *name == copy_of),
    };
    let placement = if into && !resumed { Placement::Into } else { Placement::As };
    journal.update(|report| report.placement = Some(placement));
    let mut plan = Plan::default();
    for (source, name) in sources.iter().zip(names) {
        let target = match &name {
            Some(name) if placement == Placement::Into => destination.join(name).map_err(FileError::Local)?,
            _ => destination.clone(),
        };
        let fresh = !into || resumed;
        match scan(source.clone(), target.clone(), options.clone(), journal.clone()).await {
            Ok(mut scanned) => {
                if *is_directory && !into && scanned.directories.is_empty() {
                    return refuse(FaultKind::NotFound, "no such directory");
                }
                // A directory that the user named keeps its mode, unless this copy is to give it
                // the source's.
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
    // Directories whose content is copied may share names as well.
    once_each(b"", plan.files.iter().map(|file| (Some(&file.entry.path[..]), &file.name[..])))?;
    Ok(plan)
}

/// Says what would be copied, by what is at the server now.
async fn tell_only<F: Flows>(
    flow: &mut Conversation<F>,
    files: &[Item],
    journal: &Journal,
) -> Result<(), FileError> {
    let asked = files.iter().map(|file| Request::Stat { path: file.entry.path.clone() });
    let answered = |i: usize, reply| {
        let Some(file) = files.get(i) else { return };
        let outcome = match reply {
            Reply::Status { entry: Some(there), .. } if file.entry.seems_to_be(&there) => FileOutcome::Kept,
            Reply::Status { .. } => FileOutcome::Wanted,
            other => FileOutcome::Failed(unexpected(other)),
        };
        journal.ended(&file.name, file.entry.size, file.entry.mtime, outcome);
    };
    flow.ask_all(&asked.collect::<Vec<_>>(), answered).await
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
    let left_out = |name: &[u8], why| {
        if !options.skip_special {
            journal.warned(Fault::new(FaultKind::Special, name, why));
        }
    };
    tree.list(&RelPath::ROOT, true, &mut |found| {
        let (path, is_directory) = match &found {
            Ok(entry) => (&entry.path, entry.kind == Kind::Directory),
            Err(fault) => (&fault.path, false),
        };
        if options.exclude.has(path, is_directory) {
            return Go::Past;
        }
        let placed = found.and_then(|entry| {
            let inside = RelPath::parse(&entry.path)?;
            let path = target.join_path(&inside)?.as_bytes().to_vec();
            Ok((inside, Entry { path, ..entry }))
        });
        match placed {
            Err(fault) => {
                let path = [name, b"/", &fault.path].concat();
                journal.failed(&path, FileError::Local(Fault { path: path.clone(), ..fault }));
            }
            Ok((inside, entry)) => {
                let name = [name, b"/", inside.as_bytes()].concat();
                match entry.kind {
                    Kind::Directory => plan.directories.push(entry),
                    Kind::File => {
                        plan.files.push(Item { source: Source::Inside(tree.clone(), inside), name, entry })
                    }
                    Kind::Link(_) if options.links => plan.links.push((entry, target.clone())),
                    Kind::Link(_) => left_out(&name, "symbolic link left out (see --links)"),
                    Kind::Special => left_out(&name, "neither file nor directory, left out"),
                }
            }
        }
        Go::On
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

/// Links, and the modes and times of directories. They come last, because anything made in a
/// directory changes its time.
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
