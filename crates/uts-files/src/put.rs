//! Copying to the server.

use super::Flows;
use super::batch::{Conversation, next_reply};
use super::client::{
    CopyOptions, Held, Placement, Report, Status, blocking, local, once_each, stat, unexpected,
};
use super::error::{Fault, FaultKind, FileError};
use super::journal::{FileOutcome, Journal};
use super::message::{Entry, Kind, Reply, Request};
use super::mirror::{Mirror, Needed, Removing, Superfluous, may_go};
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
    /// Paths at the goal of things of the source that are not copied.
    passed: Vec<RelPath>,
    /// Paths at the goal of the directories that were named as sources.
    tops: Vec<RelPath>,
}

impl Plan {
    /// All that the source has.
    fn mirror(&self) -> Result<Mirror, Fault> {
        let mut mirror = Mirror::default();
        mirror.is_whole = true;
        for top in &self.tops {
            mirror.begins(top.clone(), true);
        }
        for path in &self.passed {
            mirror.needs(path.clone(), Needed::Anything);
        }
        for directory in &self.directories {
            mirror.needs(RelPath::parse(&directory.path)?, Needed::Directory);
        }
        for (link, _) in &self.links {
            mirror.needs(RelPath::parse(&link.path)?, Needed::Link);
        }
        for file in &self.files {
            mirror.needs(RelPath::parse(&file.entry.path)?, Needed::File);
        }
        Ok(mirror)
    }

    /// Takes out what can be made only when something else is gone.
    fn split_off(&mut self, superfluous: &Superfluous) -> (Vec<Entry>, Vec<Item>) {
        let is_hindered = |path: &[u8]| superfluous.hinders(&RelPath::found_at(path));
        let directories = self.directories.extract_if(.., |entry| is_hindered(&entry.path)).collect();
        let files = self.files.extract_if(.., |file| is_hindered(&file.entry.path)).collect();
        (directories, files)
    }
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
    if options.delete {
        flow.demand(&Request::MayRemove).await?;
    }
    let mut plan = plan(&mut flow, sources, destination, options, &journal).await?;
    let bytes = plan.files.iter().fold(0u64, |sum, item| sum.saturating_add(item.entry.size));
    journal.planned(plan.files.len() as u64, bytes);
    let mut superfluous = Superfluous::default();
    let mirror = if options.delete { plan.mirror().map_err(FileError::Local)? } else { Mirror::default() };
    if options.delete {
        search(&mut flow, &mirror, &mut superfluous, options, &journal).await?;
    }
    let (late_directories, late_files) = plan.split_off(&superfluous);
    let goes = superfluous.into_order();
    if options.dry_run {
        tell_only(&mut flow, &plan.files, &journal).await?;
        for file in &late_files {
            journal.ended(&file.name, file.entry.size, file.entry.mtime, FileOutcome::Wanted);
        }
        if may_go(&goes, &mirror, &journal) {
            goes.iter().for_each(|entry| journal.superfluous(&entry.path, entry));
        }
        return Ok(journal.into_report());
    }
    let sender = Sender {
        journal: journal.clone(),
        preserve_mode: options.preserve_mode,
        whole_files: options.whole_files,
        compress: options.compress,
        waiting: Waiting::new(options.busy_patience),
    };
    let mut putting = Putting { flows: &flows, flow, sender, options, top: plan.top.clone() };
    putting.make(&plan.directories, plan.files).await?;
    let finished = async {
        if may_go(&goes, &mirror, &journal) {
            putting.remove(&goes, &destination.path).await?;
        }
        if !(late_directories.is_empty() && late_files.is_empty()) {
            putting.make(&late_directories, late_files).await?;
        }
        putting.finish(&plan.directories, &late_directories, &plan.links).await
    };
    match finished.await {
        Err(error) => journal.update(|report| {
            report.broken.get_or_insert(error);
        }),
        // Everything has been answered: a failure to say goodbye changes nothing.
        Ok(()) => drop(putting.flow.end().await),
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
    let ServerPath { path: destination, is_directory, .. } = destination;
    let Status { entry: there, copy_of, .. } = stat(flow, destination).await?;
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
                plan.tops.extend(scanned.tops);
                plan.passed.extend(scanned.passed);
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
    let mut plan = Plan { tops: vec![target.clone()], ..Plan::default() };
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
                let is_left_out =
                    entry.kind == Kind::Special || (!options.links && matches!(entry.kind, Kind::Link(_)));
                if is_left_out {
                    plan.passed.push(RelPath::found_at(&entry.path));
                }
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

/// Looks for what is superfluous at the server. Its listing is bounded as that of a source is.
async fn search<F: Flows>(
    flow: &mut Conversation<F>,
    mirror: &Mirror,
    superfluous: &mut Superfluous,
    options: &CopyOptions,
    journal: &Journal,
) -> Result<(), FileError> {
    let mut held = Held::new(options.listing_bytes_max);
    for top in mirror.searched() {
        let mut reply = flow.ask(&Request::List { path: top.as_bytes().to_vec(), recursive: true }).await?;
        loop {
            match reply {
                Reply::Done => break,
                Reply::Found(found) => {
                    let text = found.as_ref().map_or_else(|fault| &fault.path, |entry| &entry.path);
                    held.count(text.len())?;
                    superfluous.judge(found, top, mirror, options, journal);
                }
                // It is new.
                Reply::Fault(fault)
                    if matches!(fault.kind, FaultKind::NotFound | FaultKind::NotDirectory) =>
                {
                    break;
                }
                other => {
                    journal.failed(top.as_bytes(), unexpected(other));
                    break;
                }
            }
            reply = next_reply(&mut flow.recv).await?;
        }
    }
    Ok(())
}

/// A copy to a server under way.
struct Putting<'a, F: Flows> {
    flows: &'a Arc<F>,
    /// For all that is not the content of files.
    flow: Conversation<F>,
    sender: Sender,
    options: &'a CopyOptions,
    top: Option<(RelPath, Vec<u8>)>,
}

impl<F: Flows> Putting<'_, F> {
    /// Makes directories, and sends the files that are not in place.
    async fn make(&mut self, directories: &[Entry], mut files: Vec<Item>) -> Result<(), FileError> {
        let journal = self.sender.journal.clone();
        files.retain(|item| !journal.has_been_copied(&item.name, item.entry.size, item.entry.mtime));
        let make = |entry: &Entry| {
            let copy_of = self.top.as_ref().filter(|(path, _)| path.as_bytes() == entry.path);
            Request::MakeDirectory { entry: entry.clone(), copy_of: copy_of.map(|(_, name)| name.clone()) }
        };
        let requests: Vec<Request> = directories.iter().map(make).collect();
        let answered = |i: usize, reply| match (reply, directories.get(i)) {
            (Reply::Done, _) => journal.update(|report| report.directories += 1),
            (reply, Some(entry)) => journal.failed(&entry.path, unexpected(reply)),
            (_, None) => {}
        };
        self.flow.ask_all(&requests, answered).await?;
        let count = files.len();
        let queue = Arc::new(Queue::of(files, self.options.flows));
        work(self.flows, &queue, &self.sender, count, &journal).await;
        Ok(())
    }

    /// Removes what is superfluous.
    async fn remove(&mut self, goes: &[Entry], goal: &RelPath) -> Result<(), FileError> {
        let journal = &self.sender.journal;
        let remove = |entry: &Entry| Request::Remove { entry: entry.clone(), goal: goal.as_bytes().to_vec() };
        let requests: Vec<Request> = goes.iter().map(remove).collect();
        let mut removing = Removing::default();
        let answered = |i: usize, reply| {
            let Some(entry) = goes.get(i) else { return };
            let outcome = if reply == Reply::Done { Ok(()) } else { Err(unexpected(reply)) };
            removing.ended(entry, &entry.path, outcome, journal);
        };
        self.flow.ask_all(&requests, answered).await
    }

    /// Links, and the modes and times of directories. They come last, because anything made in a
    /// directory changes its time.
    async fn finish(
        &mut self,
        directories: &[Entry],
        late: &[Entry],
        links: &[(Entry, RelPath)],
    ) -> Result<(), FileError> {
        let journal = &self.sender.journal;
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
        self.flow.ask_all(&requests, answered).await?;
        let complete = !journal.has_failures();
        let attributes = |entry: &Entry| Request::Attributes {
            entry: entry.clone(),
            complete: complete && self.top.as_ref().is_some_and(|(path, _)| path.as_bytes() == entry.path),
        };
        // The deepest first: a directory that may not be entered is closed after those in it.
        let deepest_first = || late.iter().rev().chain(directories.iter().rev());
        let requests: Vec<Request> = deepest_first().map(attributes).collect();
        let answered = |i: usize, reply| match (reply, deepest_first().nth(i)) {
            (Reply::Done, _) | (_, None) => {}
            (reply, Some(entry)) => journal.failed(&entry.path, unexpected(reply)),
        };
        self.flow.ask_all(&requests, answered).await
    }
}
