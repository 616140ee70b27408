//! Counts and bounds what a process holds for others: one ledger for all of its services.
//!
//! A [`Budget`] says what the process may hold. The ledger divides it into totals, one for each
//! [`Resource`]. A [`Payer`] is a connection of somebody who is known by a key or an address. What
//! is held on its behalf is a [`Charge`], which is given back when it is dropped.
//!
//! **Nobody starves another.** Half of a total is divided evenly among those who are there. Who has
//! less than its part of that half always finds some. The other half goes to whoever comes first.
//! A server's ledger keeps one more part for who comes next. One that is alone in a ledger that
//! keeps nothing has all. What a payer may have is divided among its connections in the same way,
//! as many may be behind one address. Who waits is served in the order of what it holds, the least
//! first: among payers, then among the connections of one payer, then by the time of asking.
//!
//! An eighth of what a server has is for connections that hold none, half of that for payers that
//! hold none: each finds the least that it asks for, even where those who came before hold more
//! than their part is by now.
//!
//! **Somebody always goes on.** Who waits, for more or for something else, may hold some: what has
//! come and was not looked at. If all that is held is held by those who wait, nobody would give any
//! back: then the next one gets the least that it asks for, of what is kept for others, and beyond
//! the total if it must be. It is the only one, as it waits no longer.
//!
//! **A place may be taken back.** Who holds a [`Place`], waits for its peer, and moves fewer than
//! [`LEAST_RATE`] bytes a second loses it if somebody with less has waited for [`GRACE`]. It is
//! never taken back while nobody waits.

mod books;
mod place;
#[cfg(test)]
mod tests;

pub use place::{GRACE, LEAST_RATE, Place, Pulse};

use books::{Books, Waiter};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Something of which a process has only so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Requests, streams and connections that are served at once.
    Requests,
    /// Open files.
    Files,
    /// Sockets of streams and datagrams that are carried.
    Sockets,
    /// Content between a disk and a flow, and names between a directory and a flow, in bytes.
    Memory,
    /// Threads that block: for disks, lookups of names, measurements.
    Threads,
    /// Slices of work that keep a processor busy at once: hashing and listing.
    Processor,
    /// Lines of a log in a minute.
    Lines,
}

/// Number of resources.
const COUNT: usize = 7;

impl Resource {
    /// All of them.
    pub const ALL: [Resource; COUNT] = [
        Resource::Requests,
        Resource::Files,
        Resource::Sockets,
        Resource::Memory,
        Resource::Threads,
        Resource::Processor,
        Resource::Lines,
    ];

    /// Its name in lists and events.
    pub const fn name(self) -> &'static str {
        match self {
            Resource::Requests => "requests",
            Resource::Files => "files",
            Resource::Sockets => "sockets",
            Resource::Memory => "memory",
            Resource::Threads => "threads",
            Resource::Processor => "processor",
            Resource::Lines => "lines",
        }
    }
}

/// An amount of each resource.
type Amounts = [usize; COUNT];

/// Amounts that a process may hold for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Memory, in bytes.
    pub memory_bytes: usize,
    /// Threads.
    pub threads: usize,
    /// Descriptors of files.
    pub files: usize,
    /// Descriptors of sockets.
    pub sockets: usize,
}

/// Memory that a request takes while it is served, in bytes: its task, and what is gathered of it
/// and of its answers.
const REQUEST_BYTES: usize = 16 << 10;
/// Descriptors that are left for the process itself.
const FILES_LEFT: usize = 40;
/// Lines of a log, of all payers, in a minute: twenty in a second.
const LINES_MAX: usize = 1200;
/// Time for which a line counts.
const LINE_LASTS: Duration = Duration::from_secs(60);

impl Budget {
    /// Budget of a process unless it is told otherwise: 256 MiB, 64 threads, and as many
    /// descriptors as the system allows it now, be it files or sockets.
    pub fn of_process() -> Self {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let files = files.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let files = files.saturating_sub(FILES_LEFT);
        Budget { memory_bytes: 256 << 20, threads: 64, files, sockets: files }
    }

    /// Budget of a process that holds files as well as sockets for others: half of the descriptors
    /// for each, as streams that rest hold theirs for long.
    #[must_use]
    pub const fn with_files_and_sockets(self) -> Self {
        Budget { files: self.files / 2, sockets: self.sockets / 2, ..self }
    }

    /// Threads that may block at once on behalf of others: half. The rest carry tasks, and what the
    /// process does for itself.
    pub const fn blocking_threads(&self) -> usize {
        at_least_one(self.threads / 2)
    }

    /// Amounts of each resource that may be charged. Half of the memory is the endpoint's, for
    /// connections and what arrives; a quarter holds content; an eighth requests; an eighth is the
    /// program's own.
    const fn totals(&self) -> Amounts {
        [
            at_least_one(self.memory_bytes / 8 / REQUEST_BYTES),
            at_least_one(self.files),
            at_least_one(self.sockets),
            at_least_one(self.memory_bytes / 4),
            self.blocking_threads(),
            at_least_one(self.threads / 16),
            LINES_MAX,
        ]
    }
}

impl Default for Budget {
    fn default() -> Self {
        Budget::of_process()
    }
}

const fn at_least_one(amount: usize) -> usize {
    if amount == 0 { 1 } else { amount }
}

/// Account of what is held, and by whom. Clones are the same ledger.
///
/// ```
/// use uts_ledger::{Budget, Ledger, Resource};
///
/// let ledger = Ledger::of_server(&Budget::of_process());
/// let payer = ledger.payer("SHA256:…");
/// let charge = payer.charge(Resource::Memory, 4096).expect("there is room");
/// assert_eq!(charge.amount(), 4096);
/// // Dropped, it is given back.
/// ```
#[derive(Clone)]
pub struct Ledger(Arc<Shared>);

struct Shared {
    totals: Amounts,
    /// One more part is kept for a payer that may yet come.
    keeps_for_next: bool,
    books: Mutex<Books>,
}

/// A connection of somebody for whom things are held. Clones are the same connection.
#[derive(Clone)]
pub struct Payer(Arc<Handle>);

struct Handle {
    ledger: Ledger,
    name: Arc<str>,
    connection: u64,
}

/// An amount that is held, until it is dropped.
#[must_use]
pub struct Charge {
    payer: Payer,
    resource: Resource,
    amount: usize,
}

/// There is none for this payer now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Of what.
    pub resource: Resource,
    /// Amount that the payer holds.
    pub own: usize,
    /// Amount that there is in all.
    pub total: usize,
    /// It has not been told since the payer held half as much.
    pub is_news: bool,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { resource, own, total, .. } = self;
        let (noun, verb, bound) = match resource {
            Resource::Requests => ("connections", "are open", ""),
            Resource::Files => ("files", "are open", " (ulimit -n)"),
            Resource::Sockets => ("connections", "are open", " (ulimit -n)"),
            Resource::Memory => ("bytes", "are held", ""),
            Resource::Threads => ("threads", "are at work", ""),
            Resource::Processor => ("slices of work", "are under way", ""),
            Resource::Lines => ("lines", "were written in a minute", ""),
        };
        if own == total {
            return write!(f, "{total} {noun}{bound} {verb}, which is the most");
        }
        write!(f, "{own} {noun} {verb}; the rest of {total}{bound} is for others")
    }
}

/// State of a resource, for people and programs: what there is, what is held, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Of what.
    pub resource: Resource,
    /// Amount that there is.
    pub total: usize,
    /// Amount that is held.
    pub held: usize,
    /// Connections that wait for some.
    pub waiting: usize,
    /// Payers that hold most of it, the most first.
    pub payers: Vec<(String, usize)>,
}

/// Payers that are named in a [`Row`].
const ROW_PAYERS_MAX: usize = 8;

impl Ledger {
    /// A server's: it keeps a part for who comes next.
    pub fn of_server(budget: &Budget) -> Self {
        Ledger::new(budget.totals(), true)
    }

    /// A client's, of its servers.
    pub fn of_client(budget: &Budget) -> Self {
        Ledger::new(budget.totals(), false)
    }

    /// A ledger of this much of one resource, and nothing of the others.
    pub fn of(resource: Resource, total: usize, keeps_for_next: bool) -> Self {
        let mut totals = [0; COUNT];
        totals[resource as usize] = total;
        Ledger::new(totals, keeps_for_next)
    }

    fn new(totals: Amounts, keeps_for_next: bool) -> Self {
        Ledger(Arc::new(Shared { totals, keeps_for_next, books: Mutex::default() }))
    }

    /// A connection of the payer of this name: a key, or an address.
    pub fn payer(&self, name: &str) -> Payer {
        let (name, connection) = self.lock().join(name);
        Payer(Arc::new(Handle { ledger: self.clone(), name, connection }))
    }

    /// Amount of a resource that there is.
    pub fn total(&self, resource: Resource) -> usize {
        self.0.totals[resource as usize]
    }

    /// Rows of all resources: what is held of each, and by whom.
    pub fn rows(&self) -> Vec<Row> {
        let mut books = self.lock();
        books.forget_lines();
        let row = |&resource: &Resource| {
            let mut payers = books.holders(resource);
            payers.sort_by_key(|(_, held)| std::cmp::Reverse(*held));
            payers.truncate(ROW_PAYERS_MAX);
            let (held, waiting) = (books.held(resource), books.waiting(resource));
            Row { resource, total: self.total(resource), held, waiting, payers }
        };
        Resource::ALL.iter().map(row).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Payer {
    /// Name of the payer.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The ledger that it is in.
    pub fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// Another connection of the same payer.
    pub fn another(&self) -> Payer {
        self.0.ledger.payer(&self.0.name)
    }

    /// Takes this much.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn charge(&self, resource: Resource, amount: usize) -> Result<Charge, Refused> {
        self.charge_up_to(resource, amount, amount)
    }

    /// Takes as much as there is room for, from `least` to `most`.
    ///
    /// # Errors
    /// [`Refused`]: there is no room for the least.
    pub fn charge_up_to(&self, resource: Resource, least: usize, most: usize) -> Result<Charge, Refused> {
        let Handle { ledger, name, connection } = &*self.0;
        let mut books = ledger.lock();
        let taken = books.take(&ledger.0, (name, *connection), resource, least, most);
        drop(books);
        taken.map(|amount| self.charged(resource, amount))
    }

    fn charged(&self, resource: Resource, amount: usize) -> Charge {
        Charge { payer: self.clone(), resource, amount }
    }

    /// Waits for room for `least`, and takes up to `most`. More than there is in all is never
    /// waited for: the least is then all there is.
    pub async fn wait(&self, resource: Resource, least: usize, most: usize) -> Charge {
        self.wait_holding(resource, (least, most), 0).await
    }

    /// The same for one who holds some of the resource, and gives none of it back while it waits.
    pub async fn wait_holding(
        &self,
        resource: Resource,
        (least, most): (usize, usize),
        holds: usize,
    ) -> Charge {
        let least = least.min(self.0.ledger.total(resource));
        let _kept = self.keep(resource, holds);
        if let Ok(charge) = self.charge_up_to(resource, least, most) {
            return charge;
        }
        let (granted, mut grant) = oneshot::channel();
        let Handle { ledger, name, connection } = &*self.0;
        let id = ledger.lock().queue(
            &ledger.0,
            (name, *connection),
            resource,
            Waiter { id: 0, least, most, granted },
        );
        let mut waiting = Waiting { payer: self, resource, id, grant: &mut grant, has_taken: false };
        let amount = waiting.granted().await;
        self.charged(resource, amount)
    }

    /// Notes that so much of a resource, which is held already, will not be given back as long as
    /// what this gives is kept: its holder waits for something.
    pub fn keep(&self, resource: Resource, amount: usize) -> Kept {
        let ledger = &self.0.ledger;
        ledger.lock().keep(&ledger.0, resource, amount);
        Kept { ledger: ledger.clone(), resource, amount }
    }

    /// True if a line may be written to a log on behalf of this payer. It counts for a minute.
    pub fn may_write_line(&self) -> bool {
        let Handle { ledger, name, connection } = &*self.0;
        let mut books = ledger.lock();
        books.forget_lines();
        let taken = books.take(&ledger.0, (name, *connection), Resource::Lines, 1, 1).is_ok();
        if taken {
            books.remember_line(name, *connection, LINE_LASTS);
        }
        taken
    }
}

/// Note of what a holder that waits does not give back. See [`Payer::keep`].
#[must_use]
pub struct Kept {
    ledger: Ledger,
    resource: Resource,
    amount: usize,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.ledger.lock().keep_no_more(self.resource, self.amount);
    }
}

/// One that waits. Given up, it leaves its place in the queue, or gives back what it was given.
struct Waiting<'a> {
    payer: &'a Payer,
    resource: Resource,
    id: u64,
    grant: &'a mut oneshot::Receiver<usize>,
    has_taken: bool,
}

impl Waiting<'_> {
    async fn granted(&mut self) -> usize {
        // The ledger lives as long as the payer: it does not go away while this waits.
        let amount = (&mut *self.grant).await.unwrap_or(0);
        self.has_taken = true;
        amount
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.has_taken {
            return;
        }
        let Handle { ledger, name, connection } = &*self.payer.0;
        let mut books = ledger.lock();
        if !books.leave_queue((name, *connection), self.resource, self.id)
            && let Ok(amount) = self.grant.try_recv()
        {
            books.give_back(&ledger.0, (name, *connection), self.resource, amount);
        }
    }
}

impl Charge {
    /// Amount that is held.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Gives back all but this much.
    pub fn shrink_to(&mut self, amount: usize) {
        let back = self.amount.saturating_sub(amount);
        self.amount -= back;
        self.give_back(back);
    }

    fn give_back(&self, amount: usize) {
        if amount > 0 {
            let Handle { ledger, name, connection } = &*self.payer.0;
            ledger.lock().give_back(&ledger.0, (name, *connection), self.resource, amount);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.ledger.lock().leave(&self.ledger.0, &self.name, self.connection);
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("totals", &self.0.totals).finish_non_exhaustive()
    }
}

impl fmt::Debug for Payer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payer({} {})", self.0.name, self.0.connection)
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charge({} {})", self.amount, self.resource.name())
    }
}
