//! Files that are to be copied, and the flows that carry them, several at once.

use super::Flows;
use super::batch::{Batch, Conversation};
use super::error::{Fault, FaultKind, FileError};
use super::journal::Journal;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Files that are listed ahead of those that are copied.
const QUEUED_MAX: usize = 4096;
/// After this time a file that somebody else is copying is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Queue of files that are still to be copied, for all flows. The task that fills it waits while it
/// is full.
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

/// Carrier of files of one direction over a flow.
pub(super) trait Carrier<F: Flows>: Clone + Send + Sync + 'static {
    /// A file to be copied.
    type Item: Batch + Send + 'static;

    /// Opens a flow.
    fn open(&self, flows: &F) -> impl Future<Output = Result<Conversation<F>, FileError>> + Send;

    /// Copies files one after another. The error is one that ends the flow and the copy.
    fn carry(
        &self,
        flow: &mut Conversation<F>,
        batch: Vec<Self::Item>,
    ) -> impl Future<Output = Result<Rest<Self::Item>, FileError>> + Send;
}

/// Rest of a batch.
#[derive(Debug)]
pub(super) struct Rest<T> {
    /// More can be carried by the flow.
    pub(super) is_usable: bool,
    /// Not tried, for the flow has become useless.
    pub(super) untried: Vec<T>,
    /// Somebody else is copying them: to be tried again after a while.
    pub(super) busy: Vec<T>,
}

/// Lets a flow for each of `items`, up to `options.flows`, carry what is queued until no more
/// comes. The first error that stops one is that of the copy.
pub(super) async fn work<F, C>(
    flows: &Arc<F>,
    queue: &Arc<Queue<C::Item>>,
    carrier: &C,
    items: usize,
    journal: &Journal,
) where
    F: Flows,
    C: Carrier<F>,
{
    let mut workers = JoinSet::new();
    for _ in 0..items.min(queue.flows) {
        let (flows, queue, carrier) = (flows.clone(), queue.clone(), carrier.clone());
        workers.spawn(async move { carry_all(&*flows, &queue, &carrier).await });
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

async fn carry_all<F, C>(flows: &F, queue: &Queue<C::Item>, carrier: &C) -> Result<(), FileError>
where
    F: Flows,
    C: Carrier<F>,
{
    let mut flow = None;
    loop {
        let batch = queue.take().await;
        if batch.is_empty() {
            break;
        }
        let mut conversation = match flow.take() {
            Some(conversation) => conversation,
            None => carrier.open(flows).await?,
        };
        let rest = carrier.carry(&mut conversation, batch).await?;
        // Where something failed here while the peer still sends it, the flow is dropped.
        flow = rest.is_usable.then_some(conversation);
        queue.give_back(rest.untried);
        if !rest.busy.is_empty() {
            sleep(BUSY_PAUSE).await;
            queue.give_back(rest.busy);
        }
    }
    if let Some(flow) = flow {
        // Everything has been answered: a failure to say goodbye changes nothing.
        let _ = flow.end().await;
    }
    Ok(())
}

/// For which files a copy has waited, because somebody else is copying them, and since when.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    max: Duration,
    since: Arc<Mutex<BTreeMap<Vec<u8>, Instant>>>,
}

impl Waiting {
    /// Each is waited for no longer than `max`.
    pub(super) fn new(max: Duration) -> Waiting {
        Waiting { max, since: Arc::default() }
    }

    /// True if a file that failed for this reason is to be tried again. The first time, it is told.
    pub(super) fn may_go_on(&self, name: &[u8], error: &FileError, journal: &Journal) -> bool {
        let Some(fault) = error.fault().filter(|fault| fault.kind == FaultKind::Busy) else { return false };
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match since.get(name) {
            Some(since) => now - *since < self.max,
            None if self.max.is_zero() => false,
            None => {
                since.insert(name.to_vec(), now);
                drop(since);
                journal.waits(&Fault { path: name.to_vec(), ..fault.clone() });
                true
            }
        }
    }
}
