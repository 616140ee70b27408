//! What both directions of a copy share: options, the report, and the work of several flows at
//! once.

use super::Flows;
use super::batch::{Batch, Conversation};
use super::error::{Fault, FaultKind, FileError};
use super::journal::{Journal, Progress};
use super::message::{Hash, Reply, Request};
use super::path::{RelPath, show};
use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// What a client holds of a listing at most, in bytes, unless told otherwise: two million files
/// with names of 60 bytes.
pub const LISTING_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Files that are listed ahead of those that are copied.
const QUEUED_MAX: usize = 4096;

/// How to copy.
#[derive(Clone)]
pub struct CopyOptions {
    /// Directories with everything in them.
    pub recursive: bool,
    /// Symbolic links in directories are copied if they lead to within the copy; otherwise they are
    /// left out with a warning.
    pub links: bool,
    /// Modes are set as those of the sources, whatever the umask; a server takes part in this if it
    /// lets its clients.
    pub preserve_mode: bool,
    /// Flows at work at once, at least 1.
    pub flows: usize,
    /// What may be held of what a server lists, in bytes; a server that lists more breaks the copy
    /// off.
    pub listing_bytes_max: u64,
    /// Who wants to know how it goes.
    pub progress: Arc<dyn Progress>,
}

impl Default for CopyOptions {
    fn default() -> Self {
        CopyOptions {
            recursive: false,
            links: false,
            preserve_mode: false,
            flows: 16,
            listing_bytes_max: LISTING_BYTES_MAX,
            progress: Arc::new(super::NoProgress),
        }
    }
}

/// What a copy did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files copied in full or completed.
    pub files_copied: u64,
    /// Files that were there already.
    pub files_already_there: u64,
    /// Directories made or updated.
    pub directories: u64,
    /// Symbolic links made.
    pub links: u64,
    /// Content now in place, in bytes.
    pub bytes: u64,
    /// Content that crossed the connection, in bytes.
    pub bytes_carried: u64,
    /// Names and hashes of all files now in place, by name.
    pub hashes: Vec<(Vec<u8>, Hash)>,
    /// How many things were not copied.
    pub failed: u64,
    /// What was not copied, and why: the first [`TOLD_MAX`](super::TOLD_MAX).
    pub failures: Vec<(Vec<u8>, FileError)>,
    /// How many things were left out.
    pub warned: u64,
    /// What was left out: the first [`TOLD_MAX`](super::TOLD_MAX).
    pub warnings: Vec<Fault>,
    /// Why the copy ended before everything was tried.
    pub broken: Option<FileError>,
}

impl Report {
    /// Whether everything is in place.
    pub fn is_complete(&self) -> bool {
        self.failed == 0 && self.broken.is_none()
    }

    /// One hash for all: of a single file its own, of several that of the lines `HASH  NAME\n`, as
    /// `b3sum` writes them.
    pub fn hash(&self) -> Option<String> {
        match &self.hashes[..] {
            [] => None,
            [(_, hash)] => Some(blake3::Hash::from_bytes(*hash).to_hex().to_string()),
            several => {
                let mut all = blake3::Hasher::new();
                for (name, hash) in several {
                    all.update(
                        format!("{}  {}\n", blake3::Hash::from_bytes(*hash).to_hex(), show(name)).as_bytes(),
                    );
                }
                Some(all.finalize().to_hex().to_string())
            }
        }
    }
}

/// What is still to be copied, for all flows. Whoever fills it waits while it is full.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    flows: usize,
    more: Notify,
    room: Notify,
}

struct State<T> {
    items: VecDeque<T>,
    is_closed: bool,
}

impl<T: Batch> Queue<T> {
    /// An empty queue, to be filled while it is worked on.
    pub(super) fn new(flows: usize) -> Self {
        let state = Mutex::new(State { items: VecDeque::new(), is_closed: false });
        Queue { state, flows: flows.max(1), more: Notify::new(), room: Notify::new() }
    }

    /// A queue to which nothing is added.
    pub(super) fn of(items: Vec<T>, flows: usize) -> Self {
        let queue = Queue::new(flows);
        *queue.lock() = State { items: items.into(), is_closed: true };
        queue
    }

    /// Adds an item as soon as there is room.
    pub(super) async fn push(&self, item: T) {
        loop {
            {
                let mut state = self.lock();
                if state.items.len() < QUEUED_MAX {
                    state.items.push_back(item);
                    drop(state);
                    return self.more.notify_one();
                }
            }
            self.room.notified().await;
        }
    }

    /// No more comes.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        // One wakes the next.
        self.more.notify_one();
    }

    /// No more comes, and what there is shall not be copied.
    pub(super) fn abandon(&self) {
        self.lock().items.clear();
        self.close();
    }

    /// The next items that share a round trip: one big file, or many small ones, but no more than
    /// leave work for others. Waits for them; none if no more come.
    pub(super) async fn take(&self) -> Vec<T> {
        loop {
            {
                let mut state = self.lock();
                let batch = state.batch(self.flows);
                let others_have_work = !state.items.is_empty() || state.is_closed;
                let is_over = state.is_closed;
                drop(state);
                if others_have_work {
                    self.more.notify_one();
                }
                if !batch.is_empty() {
                    self.room.notify_one();
                    return batch;
                }
                if is_over {
                    return batch;
                }
            }
            self.more.notified().await;
        }
    }

    pub(super) fn give_back(&self, items: Vec<T>) {
        let mut state = self.lock();
        for item in items.into_iter().rev() {
            state.items.push_front(item);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Batch> State<T> {
    fn batch(&mut self, flows: usize) -> Vec<T> {
        let share = (self.items.len() / flows).clamp(1, T::ITEMS_MAX);
        let mut bytes = 0u64;
        let mut batch = Vec::new();
        while let Some(item) = self.items.front() {
            bytes = bytes.saturating_add(item.bytes());
            if !batch.is_empty() && (batch.len() >= share || bytes > T::BYTES_MAX) {
                break;
            }
            batch.extend(self.items.pop_front());
        }
        batch
    }
}

/// Lets a worker for each of `items`, up to `options.flows`, run until it has ended; the first
/// error that stops one is that of the copy.
pub(super) async fn work<W, Fut>(items: usize, options: &CopyOptions, journal: &Journal, worker: W)
where
    W: Fn() -> Fut,
    Fut: Future<Output = Result<(), FileError>> + Send + 'static,
{
    let mut workers = JoinSet::new();
    for _ in 0..items.min(options.flows.max(1)) {
        workers.spawn(worker());
    }
    while let Some(ended) = workers.join_next().await {
        let error = match ended {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(error) => FileError::Connection(error.to_string()),
        };
        journal.update(|report| {
            report.broken.get_or_insert(error);
        });
    }
}

/// What is at a path of the server, and whether it is the unfinished copy of a directory.
pub(super) async fn stat<F: Flows>(
    flow: &mut Conversation<F>,
    path: &RelPath,
) -> Result<(Option<super::message::Entry>, Option<Vec<u8>>), FileError> {
    match flow.ask(&Request::Stat { path: path.as_bytes().to_vec() }).await? {
        Reply::Status { entry, copy_of } => Ok((entry, copy_of)),
        other => Err(unexpected(other)),
    }
}

/// The error that a reply stands for which is not the one asked for.
pub(super) fn unexpected(reply: Reply) -> FileError {
    match reply {
        Reply::Fault(fault) => FileError::Peer(fault),
        _ => FileError::Protocol("an answer to another question".into()),
    }
}

pub(super) fn local(kind: FaultKind, path: &[u8], why: &str) -> FileError {
    FileError::Local(Fault::new(kind, path, why))
}

/// Runs what blocks on a thread that may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Fault::new(FaultKind::Io, b"", error.to_string())),
    }
}
