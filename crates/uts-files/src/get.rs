//! Copying from the server. The server is not trusted: its names are checked as a server checks
//! those of its clients.

use super::Flows;
use super::batch::{Conversation, next_reply};
use super::client::{
    CopyOptions, Held, Placement, Report, Status, blocking, local, once_each, stat, unexpected,
};
use super::error::{Fault, FaultKind, FileError};
use super::fetch::{Fetcher, Item};
use super::journal::{FileOutcome, Journal};
use super::message::{Entry, Kind, Reply, Request};
use super::mirror::{Mirror, Needed, Removing, Superfluous, may_go};
use super::modes::Modes;
use super::part::{copy_of, end_copy, make_directory};
use super::path::{RelPath, ServerPath, show};
use super::remove::remove;
use super::tree::{Go, Tree};
use super::workers::{Queue, Waiting, work};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// The local directory that is copied into.
#[derive(Clone)]
struct Place {
    tree: Tree,
    /// Its name for the user, ending with `/` unless empty.
    prefix: Vec<u8>,
    /// The name in it to copy to; the directory itself if it is to be copied into.
    target: RelPath,
    into: bool,
    /// It was written as a directory, and there is none.
    is_new_directory: bool,
}

impl Place {
    /// Name of a path of the tree for the user.
    fn name_of(&self, path: &RelPath) -> Vec<u8> {
        [&self.prefix[..], path.as_bytes()].concat()
    }
}

/// Something for which there is no room before what stands there is gone.
enum Late {
    File(Box<Item>),
    Directory(Box<(RelPath, Entry)>),
}

/// Work that is left until all files are here, and a record of what has been listed so far.
#[derive(Default)]
struct Plan {
    #[expect(clippy::vec_box, reason = "a list of a million that grows holds all of it twice")]
    directories: Vec<Box<(RelPath, Entry)>>,
    #[expect(clippy::vec_box, reason = "as above")]
    links: Vec<Box<(RelPath, Entry, RelPath)>>,
    top: Option<(RelPath, Vec<u8>)>,
    /// Where several directories may have files of the same name: from where each comes.
    seen: Option<BTreeMap<RelPath, RelPath>>,
    /// Bytes that are held of the listing.
    held: Held,
    files: u64,
    bytes: u64,
    /// All that the source has, if what is superfluous is to be deleted.
    mirror: Option<Mirror>,
    /// Things that come after that.
    late: Vec<Late>,
    /// Directories that come after that.
    late_directories: BTreeSet<RelPath>,
}

/// Copies files, and with [`CopyOptions::recursive`] directories, from the server to the local
/// `destination`: into it, if it is a directory, or to that name. Files are fetched while the
/// server lists more.
///
/// Dropping the future cancels the copy; parts stay here, and the same copy goes on from them.
///
/// # Errors
/// If nothing could be begun. Later failures are in the [`Report`], and do not keep other files
/// from being copied.
pub async fn get<F: Flows>(
    flows: Arc<F>,
    sources: &[ServerPath],
    destination: &Path,
    options: &CopyOptions,
) -> Result<Report, FileError> {
    let journal = Journal::new(options);
    let resumed = match sources {
        [only] if options.recursive => Some(only.name().unwrap_or_default()),
        _ => None,
    };
    let place = locate(destination, resumed, options)?;
    if sources.len() > 1 && !place.into {
        let why = "several sources need an existing directory to go into";
        return Err(local(FaultKind::NotDirectory, destination.as_os_str().as_bytes(), why));
    }
    if place.into {
        once_each(
            destination.as_os_str().as_bytes(),
            sources.iter().map(|source| (source.name(), source.path.as_bytes())),
        )?;
    }
    let placement = if place.into { Placement::Into } else { Placement::As };
    journal.update(|report| report.placement = Some(placement));
    let flow = Conversation::open(&*flows, &journal.payer).await?;
    let queue = Arc::new(Queue::new(options.flows));
    let fetcher = Fetcher {
        journal: journal.clone(),
        modes: Modes::new(options.preserve_mode),
        whole_files: options.whole_files,
        compress: options.compress,
        waiting: Waiting::new(options.busy_patience),
    };
    let modes = fetcher.modes;
    let plan = Plan {
        seen: (sources.len() > 1).then(BTreeMap::new),
        mirror: options.delete.then(Mirror::default),
        held: Held::new(options.listing_bytes_max),
        ..Plan::default()
    };
    let mut listing = Listing { flow, place: &place, options, journal: &journal, queue: &queue, plan };
    let fetching = work(&flows, &queue, &fetcher, options.flows, &journal);
    let listed = listing.run_beside(sources, fetching).await;
    let Listing { flow, mut plan, .. } = listing;
    match listed {
        Ok(()) => {
            // Everything has been answered: a failure to say goodbye changes nothing.
            let _ = flow.end().await;
        }
        Err(error) if journal.is_empty() => return Err(error),
        Err(error) => journal.update(|report| {
            report.broken.get_or_insert(error);
        }),
    }
    let journal2 = journal.clone();
    if let Some(mirror) = plan.mirror.take() {
        let (place, late) = (place.clone(), std::mem::take(&mut plan.late));
        let deleting = options.clone();
        let delete = move || {
            delete(&place, &mirror, &deleting, &journal2);
            Ok(make_late(&place.tree, late, &journal2))
        };
        let (late, directories) = blocking(delete).await.map_err(FileError::Local)?;
        plan.directories.extend(directories);
        let count = late.len();
        work(&flows, &Arc::new(Queue::of(late, options.flows)), &fetcher, count, &journal).await;
    }
    let journal2 = journal.clone();
    let finish = move || {
        finish_directories(&place.tree, plan, modes, &journal2);
        Ok(())
    };
    blocking(finish).await.map_err(FileError::Local)?;
    Ok(journal.into_report())
}

/// Deletes what is superfluous here, if everything has arrived.
fn delete(place: &Place, mirror: &Mirror, options: &CopyOptions, journal: &Journal) {
    let mut superfluous = Superfluous::new(&place.prefix);
    for top in mirror.searched() {
        let listed = place.tree.list(top, true, &mut |found| {
            superfluous.judge(found, top, mirror, options, journal);
            Go::On
        });
        match listed {
            // It was not made, as in a dry run.
            Err(fault) if fault.kind != FaultKind::NotFound => {
                let name = place.name_of(top);
                journal.failed(&name, FileError::Local(Fault { path: name.clone(), ..fault }));
            }
            _ => {}
        }
    }
    let goes = superfluous.into_order();
    if !may_go(&goes, mirror, journal) {
        return;
    }
    // What was copied to by name may be told by way of links; beneath it none is followed.
    let goal = if place.into { RelPath::ROOT } else { place.target.clone() };
    let mut removing = Removing::default();
    for entry in &goes {
        let name = [&place.prefix, &entry.path[..]].concat();
        if options.dry_run {
            journal.superfluous(&name, entry);
        } else {
            let removed = remove(&place.tree, &goal, entry).map_err(FileError::Local);
            removing.ended(entry, &name, removed, journal);
        }
    }
}

/// Makes directories for which there was no room before; gives the files that are to be fetched
/// now, and what is to be done at the end.
#[expect(clippy::vec_box, reason = "as those of the plan")]
fn make_late(tree: &Tree, late: Vec<Late>, journal: &Journal) -> (Vec<Item>, Vec<Box<(RelPath, Entry)>>) {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for late in late {
        match late {
            Late::File(item) => files.push(*item),
            Late::Directory(directory) => match make_directory(tree, &directory.0, None) {
                Ok(()) => {
                    journal.update(|report| report.directories += 1);
                    directories.push(directory);
                }
                Err(fault) => journal.failed(directory.0.as_bytes(), FileError::Local(fault)),
            },
        }
    }
    (files, directories)
}

/// Where to copy to. A directory is copied into, unless it is the unfinished copy of the source of
/// the name `resumed`: that goes on in its place. A link is followed, for the user has named it.
fn locate(destination: &Path, resumed: Option<&[u8]>, options: &CopyOptions) -> Result<Place, FileError> {
    let bytes = destination.as_os_str().as_bytes();
    let fault = |e: std::io::Error| FileError::Local(Fault::io(bytes, &e));
    let says_directory = bytes.ends_with(b"/");
    let there = match std::fs::metadata(destination) {
        Ok(there) => Some(there),
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(fault(e)),
        Err(_) => None,
    };
    let is_link = std::fs::symlink_metadata(destination).is_ok_and(|there| there.is_symlink());
    match there {
        Some(there) if there.is_dir() => {
            let place = in_parent(destination);
            let is_resumed = match options.earlier.as_ref().and_then(|report| report.placement) {
                Some(placement) => placement == Placement::As,
                None => place.as_ref().is_ok_and(|place| {
                    resumed.is_some() && copy_of(&place.tree, &place.target).as_deref() == resumed
                }),
            };
            if is_resumed {
                return place.map_err(FileError::Local);
            }
            let tree = Tree::open(destination).map_err(FileError::Local)?;
            let prefix = with_slash(bytes);
            Ok(Place { tree, prefix, target: RelPath::ROOT, into: true, is_new_directory: false })
        }
        Some(_) if says_directory => Err(local(FaultKind::NotDirectory, bytes, "not a directory")),
        Some(_) if is_link => {
            let real = std::fs::canonicalize(destination).map_err(fault)?;
            in_parent(&real).map_err(FileError::Local)
        }
        None if is_link => Err(local(FaultKind::NotFound, bytes, "is a symbolic link that leads nowhere")),
        None if says_directory && resumed.is_none() => {
            Err(local(FaultKind::NotFound, bytes, "no such directory"))
        }
        _ => {
            let place = in_parent(destination).map_err(FileError::Local)?;
            Ok(Place { is_new_directory: says_directory, ..place })
        }
    }
}

fn in_parent(destination: &Path) -> Result<Place, Fault> {
    let bytes = destination.as_os_str().as_bytes();
    let parent = destination.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = destination.file_name().ok_or_else(|| Fault::new(FaultKind::Unsafe, bytes, "has no name"))?;
    let target = RelPath::ROOT.join(name.as_bytes())?;
    let prefix = with_slash(parent.as_os_str().as_bytes());
    Ok(Place { tree: Tree::open(parent)?, prefix, target, into: false, is_new_directory: false })
}

fn with_slash(path: &[u8]) -> Vec<u8> {
    match path {
        b"" | b"." => Vec::new(),
        path if path.ends_with(b"/") => path.to_vec(),
        path => [path, b"/"].concat(),
    }
}

/// The server lists; what it lists is queued, or kept for the end.
struct Listing<'a, F: Flows> {
    flow: Conversation<F>,
    place: &'a Place,
    options: &'a CopyOptions,
    journal: &'a Journal,
    queue: &'a Queue<Item>,
    plan: Plan,
}

impl<F: Flows> Listing<'_, F> {
    /// Lists while files are fetched, and waits for these. Without any flow left that fetches,
    /// listing ends too.
    async fn run_beside(
        &mut self,
        sources: &[ServerPath],
        fetching: impl Future<Output = ()>,
    ) -> Result<(), FileError> {
        let queue = self.queue;
        tokio::pin!(fetching);
        let listed = tokio::select! {
            listed = self.run(sources) => listed,
            () = &mut fetching => return Ok(()),
        };
        match &listed {
            Ok(()) => queue.close(),
            Err(_) => queue.abandon(),
        }
        fetching.await;
        listed
    }

    async fn run(&mut self, sources: &[ServerPath]) -> Result<(), FileError> {
        for source in sources {
            match self.source(source).await {
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => self.journal.failed(source.path.as_bytes(), error),
                Ok(()) => {}
            }
        }
        self.journal.planned(self.plan.files, self.plan.bytes);
        if let Some(mirror) = &mut self.plan.mirror {
            mirror.is_whole = true;
        }
        Ok(())
    }

    async fn source(&mut self, named: &ServerPath) -> Result<(), FileError> {
        let ServerPath { path: source, is_directory, .. } = named;
        let fault = |kind, why: &str| FileError::Peer(Fault::new(kind, source.as_bytes(), why));
        let Status { entry, shows_hidden, .. } = stat(&mut self.flow, source).await?;
        let entry = entry.ok_or_else(|| fault(FaultKind::NotFound, "no such file or directory"))?;
        if entry.kind != Kind::Directory {
            if *is_directory {
                return Err(fault(FaultKind::NotDirectory, "is not a directory"));
            }
            if self.place.is_new_directory {
                return Err(local(FaultKind::NotFound, self.place.target.as_bytes(), "no such directory"));
            }
        }
        let target = match named.name() {
            Some(name) if self.place.into => self.place.target.join(name).map_err(FileError::Local)?,
            _ => self.place.target.clone(),
        };
        match entry.kind {
            Kind::File => {
                if let Some(mirror) = &mut self.plan.mirror {
                    mirror.needs(target.clone(), Needed::File);
                }
                self.add_file(source.clone(), target, entry).await
            }
            Kind::Directory if self.options.recursive => {
                if !self.place.into {
                    self.plan.top = Some((target.clone(), named.name().unwrap_or_default().to_vec()));
                }
                if let Some(mirror) = &mut self.plan.mirror {
                    mirror.begins(target.clone(), shows_hidden);
                }
                self.add_directory(target.clone(), entry).await?;
                self.list(source, &target).await
            }
            Kind::Directory => Err(fault(FaultKind::IsDirectory, "is a directory; copy it with -r")),
            Kind::Link(_) | Kind::Special => Err(fault(FaultKind::Special, "is not a regular file")),
        }
    }

    async fn list(&mut self, source: &RelPath, target: &RelPath) -> Result<(), FileError> {
        let request = Request::List { path: source.as_bytes().to_vec(), recursive: true };
        let mut reply = self.flow.ask(&request).await?;
        loop {
            match reply {
                Reply::Done => return Ok(()),
                Reply::Found(found) => self.add_found(found, source, target).await?,
                other => return Err(unexpected(other)),
            }
            reply = next_reply(&mut self.flow.recv).await?;
        }
    }

    /// Errors are those that end the copy.
    async fn add_found(
        &mut self,
        found: Result<Entry, Fault>,
        source: &RelPath,
        target: &RelPath,
    ) -> Result<(), FileError> {
        let (path, is_directory) = match &found {
            Ok(entry) => (&entry.path, entry.kind == Kind::Directory),
            Err(fault) => (&fault.path, false),
        };
        if self.options.exclude.has(path, is_directory) {
            return Ok(());
        }
        let placed =
            found.map_err(FileError::Peer).and_then(|entry| Ok((place(&entry, source, target)?, entry)));
        let ((from, to), entry) = match placed {
            Ok(placed) => placed,
            Err(error) => {
                self.plan.held.count(0)?;
                let name = error.fault().map(|fault| fault.path.clone()).unwrap_or_default();
                let path = [source.as_bytes(), b"/", &name].concat();
                self.journal.failed(&path, error.at(&path));
                return Ok(());
            }
        };
        let left_out = |why| {
            if !self.options.skip_special {
                self.journal.warned(Fault::new(FaultKind::Special, from.as_bytes(), why));
            }
        };
        if let Some(mirror) = &mut self.plan.mirror {
            let needed = match &entry.kind {
                Kind::File => Needed::File,
                Kind::Directory => Needed::Directory,
                Kind::Link(_) if self.options.links => Needed::Link,
                Kind::Link(_) | Kind::Special => Needed::Anything,
            };
            // Held twice.
            self.plan.held.count(to.as_bytes().len())?;
            mirror.needs(to.clone(), needed);
        }
        match &entry.kind {
            Kind::File => self.add_file(from, to, entry).await,
            Kind::Directory => self.add_directory(to, entry).await,
            Kind::Link(_) if self.options.links && self.options.dry_run => Ok(()),
            Kind::Link(target_text) if self.options.links => {
                self.plan.held.count(to.as_bytes().len() + target_text.len() + target.as_bytes().len())?;
                let entry = Entry { path: Vec::new(), ..entry };
                self.plan.links.push(Box::new((to, entry, target.clone())));
                Ok(())
            }
            Kind::Link(_) => {
                self.plan.held.count(0)?;
                left_out("symbolic link left out (see --links)");
                Ok(())
            }
            Kind::Special => {
                self.plan.held.count(0)?;
                left_out("neither file nor directory, left out");
                Ok(())
            }
        }
    }

    async fn add_file(&mut self, source: RelPath, target: RelPath, entry: Entry) -> Result<(), FileError> {
        let name = [&self.place.prefix[..], target.as_bytes()].concat();
        self.plan.held.count(name.len())?;
        self.plan.files += 1;
        self.plan.bytes = self.plan.bytes.saturating_add(entry.size);
        // Not with each file: whatever shows progress has a line or an event of it.
        if self.plan.files.is_power_of_two() {
            self.journal.planned(self.plan.files, self.plan.bytes);
        }
        if let Some(seen) = &mut self.plan.seen
            && let Some(other) = seen.insert(target.clone(), source.clone())
        {
            let why = format!("{} is copied to this name as well", show(other.as_bytes()));
            self.journal.failed(&name, local(FaultKind::Exists, source.as_bytes(), &why));
            return Ok(());
        }
        let is_hindered = self.is_hindered(&target, Needed::File).await;
        if self.options.dry_run {
            return self.tell_only(&target, &name, &entry, is_hindered).await;
        }
        if self.journal.has_been_copied(&name, entry.size, entry.mtime) {
            return Ok(());
        }
        let item = Item { source, tree: self.place.tree.clone(), target, name, entry };
        if is_hindered {
            self.plan.late.push(Late::File(Box::new(item)));
        } else {
            self.queue.push(item).await;
        }
        Ok(())
    }

    /// True if something that is to be deleted stands where this is to go, or on the way.
    async fn is_hindered(&self, target: &RelPath, needed: Needed) -> bool {
        let Some(mirror) = &self.plan.mirror else { return false };
        let is_late = target.split().is_some_and(|(parent, _)| self.plan.late_directories.contains(&parent));
        // What the user named stays.
        if is_late || mirror.is_top(target) {
            return is_late;
        }
        let (tree, target) = (self.place.tree.clone(), target.clone());
        let there = blocking(move || tree.stat_link(&target)).await;
        there.is_ok_and(|there| there.is_some_and(|there| !needed.fits(&there.kind)))
    }

    /// Says whether the file would be copied, by what is here now.
    async fn tell_only(
        &self,
        target: &RelPath,
        name: &[u8],
        entry: &Entry,
        is_hindered: bool,
    ) -> Result<(), FileError> {
        let (tree, target) = (self.place.tree.clone(), target.clone());
        let there = blocking(move || if is_hindered { Ok(None) } else { tree.stat_link(&target) });
        let outcome = match there.await {
            Ok(Some(there)) if entry.seems_to_be(&there) => FileOutcome::Kept,
            Ok(_) => FileOutcome::Wanted,
            Err(fault) => FileOutcome::Failed(FileError::Local(fault)),
        };
        self.journal.ended(name, entry.size, entry.mtime, outcome);
        Ok(())
    }

    /// Makes a directory at once, so that files can be fetched into it.
    async fn add_directory(&mut self, target: RelPath, entry: Entry) -> Result<(), FileError> {
        self.plan.held.count(target.as_bytes().len())?;
        let is_hindered = self.is_hindered(&target, Needed::Directory).await;
        if is_hindered {
            self.plan.late_directories.insert(target.clone());
        }
        if self.options.dry_run {
            return Ok(());
        }
        if is_hindered {
            let late = Late::Directory(Box::new((target, Entry { path: Vec::new(), ..entry })));
            self.plan.late.push(late);
            return Ok(());
        }
        let copy_of = self.plan.top.as_ref().filter(|(top, _)| *top == target).map(|(_, name)| name.clone());
        let (tree, path) = (self.place.tree.clone(), target.clone());
        match blocking(move || make_directory(&tree, &path, copy_of.as_deref())).await {
            Ok(()) => {
                self.journal.update(|report| report.directories += 1);
                self.plan.directories.push(Box::new((target, Entry { path: Vec::new(), ..entry })));
            }
            Err(fault) => self.journal.failed(target.as_bytes(), FileError::Local(fault)),
        }
        Ok(())
    }
}

/// Where an entry comes from and goes to. Its path is the server's word.
fn place(entry: &Entry, source: &RelPath, target: &RelPath) -> Result<(RelPath, RelPath), FileError> {
    let inside = RelPath::parse(&entry.path).map_err(|fault| {
        FileError::Local(Fault { why: format!("a name from the peer is refused: {}", fault.why), ..fault })
    })?;
    if inside.is_root() {
        return Err(FileError::Protocol("an entry without a name".into()));
    }
    let from = source.join_path(&inside).map_err(FileError::Local)?;
    let to = target.join_path(&inside).map_err(FileError::Local)?;
    Ok((from, to))
}

fn finish_directories(tree: &Tree, plan: Plan, modes: Modes, journal: &Journal) {
    let Plan { directories, links, top, .. } = plan;
    for link in links {
        let (path, entry, top) = *link;
        let Kind::Link(target) = &entry.kind else { continue };
        match tree.make_link(&path, target, &top) {
            Ok(()) => journal.update(|report| report.links += 1),
            Err(fault) => journal.failed(path.as_bytes(), FileError::Local(fault)),
        }
    }
    let complete = !journal.has_failures();
    // The deepest first: a directory that may not be entered is closed after those in it.
    for directory in directories.into_iter().rev() {
        let (path, entry) = *directory;
        let done = tree.set_attributes(&path, &entry, modes).and_then(|()| match &top {
            Some((top, _)) if complete && *top == path => end_copy(tree, &path),
            _ => Ok(()),
        });
        if let Err(fault) = done {
            journal.failed(path.as_bytes(), FileError::Local(fault));
        }
    }
}
