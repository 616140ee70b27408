//! The server: one request after another on each flow, many flows at once.

mod changes;
mod difference;
mod receive;

use super::buffered::{BufReader, BufWriter};
use super::claim::{Claims, Client};
use super::error::{Fault, FaultKind, FileError};
use super::hashing::content_after;
use super::hidden;
use super::intake::Received;
use super::journal::{FileOutcome, Progress};
use super::message::{
    Attributes, Entry, Held, Kind, MAGIC, Reply, Request, VERSION, invalid, read_frame, write_frame,
};
use super::modes::Modes;
use super::part::{Have, Prefix, copy_of};
use super::path::RelPath;
use super::small::{self, Group, is_small};
use super::stream::{Moved, Sent, drain, send_content};
use super::tree::{Source, Tree};
use super::walk::Walk;
use super::work::{at_work, in_turn};
use super::{FLOW_BUFFER_BYTES, Flows, WriteShared};
use changes::apply;
use difference::Differences;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::timeout;
use uts_ledger::{Budget, Charge, Ledger, Payer, Place, Pulse, Resource};

/// Flows of one connection that are open at once; more are reset. Which of them are served says the
/// ledger.
const FLOWS_MAX: usize = 1088;
/// Offers on one flow that are remembered until their content comes.
const OFFERS_MAX: usize = 256;
/// Memory of an offer, in bytes: its path, and the state of a hash.
const OFFER_BYTES: usize = 4 * 1024;
/// Memory for the names in a listing, in bytes, if there is room, and if there is little.
const NAMES_BYTES: usize = 256 * 1024;
const NAMES_BYTES_MIN: usize = 8 * 1024;

/// Time that the flows of a connection may take to end once it has.
const FLOWS_END_MAX: Duration = Duration::from_millis(500);

/// Options of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServeOptions {
    /// Nothing is written.
    pub read_only: bool,
    /// Clients may have modes set as they say, whatever the umask.
    pub preserve_mode: bool,
    /// Clients may delete what their source does not have.
    pub delete: bool,
    /// Files whose names begin with a dot are shown and taken as well, and all beneath such
    /// directories.
    pub hidden: bool,
}

/// A directory that is served. Clones share it.
#[derive(Clone, Debug)]
pub struct Service {
    tree: Tree,
    options: ServeOptions,
    claims: Claims,
    ledger: Ledger,
}

/// State that all flows of a connection share.
#[derive(Debug)]
pub(super) struct Session {
    client: Client,
    payer: Payer,
}

impl Service {
    /// Serves the directory `root` and what is beneath it, never anything else.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(root: &Path, options: ServeOptions) -> Result<Self, FileError> {
        let tree = Tree::open(root).map_err(FileError::Local)?;
        let tree = if options.hidden { tree } else { tree.hiding() };
        Ok(Service {
            tree,
            options,
            claims: Claims::default(),
            ledger: Ledger::of_server(&Budget::of_process()),
        })
    }

    /// The same service of another directory, or with other options. Both may serve at once: a file
    /// is received by one flow of them at a time.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn reopen(&self, root: &Path, options: ServeOptions) -> Result<Self, FileError> {
        let opened = Service::open(root, options)?;
        Ok(Service { claims: self.claims.clone(), ledger: self.ledger.clone(), ..opened })
    }

    /// The same, charged to a ledger that other services share.
    #[must_use]
    pub fn charged_to(self, ledger: &Ledger) -> Self {
        Service { ledger: ledger.clone(), ..self }
    }

    /// Serves one connection of `client` until it ends, and reports the files that come and go to
    /// `progress`. Dropping the future ends all of its copies. Parts stay.
    ///
    /// # Errors
    /// When the connection fails. What happens on single flows is told to the client only.
    pub async fn serve<F: Flows>(
        &self,
        flows: &F,
        client: Client,
        progress: Arc<dyn Progress>,
    ) -> io::Result<()> {
        let session = Arc::new(self.session(client));
        let mut running = JoinSet::new();
        while let Some((send, recv)) = flows.accept().await? {
            while running.try_join_next().is_some() {}
            if running.len() >= FLOWS_MAX {
                // Dropped, it is reset.
                continue;
            }
            let (service, session, progress) = (self.clone(), session.clone(), progress.clone());
            // A flow that fails concerns only the client, and it knows.
            running.spawn(async move { service.serve_in(send, recv, session, progress).await });
        }
        // Flows end with the connection. One that hashes does not find out, and ends with this.
        let ends = async { while running.join_next().await.is_some() {} };
        let _ = timeout(FLOWS_END_MAX, ends).await;
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn turns_are_free(&self) -> bool {
        self.ledger.rows()[Resource::Processor as usize].held == 0
    }

    pub(super) fn session(&self, client: Client) -> Session {
        let payer = self.ledger.payer(client.key.as_deref().unwrap_or(&client.address));
        Session { client, payer }
    }

    /// Serves one flow of a client until the client ends it.
    ///
    /// # Errors
    /// When the flow fails or the client breaks the protocol; it was told, if that was possible.
    pub async fn serve_flow<S, R>(
        &self,
        client: Client,
        send: S,
        recv: R,
        progress: Arc<dyn Progress>,
    ) -> io::Result<()>
    where
        S: WriteShared,
        R: AsyncRead + Unpin + Send,
    {
        self.serve_in(send, recv, Arc::new(self.session(client)), progress).await
    }

    /// The same, within a session: what its flows share.
    pub(super) async fn serve_in<S, R>(
        &self,
        send: S,
        recv: R,
        session: Arc<Session>,
        progress: Arc<dyn Progress>,
    ) -> io::Result<()>
    where
        S: WriteShared,
        R: AsyncRead + Unpin + Send,
    {
        let pulse = Arc::new(Pulse::default());
        let mut flow = Flow {
            send: BufWriter::new(send, &session.payer, &pulse),
            recv: BufReader::new(recv, &session.payer, &pulse),
            pulse: pulse.clone(),
            offers: BTreeMap::new(),
            differences: Differences::default(),
            modes: Modes::new(false),
            compresses: false,
            about: Vec::new(),
            session,
            progress,
            group: Group::default(),
        };
        let served = tokio::select! {
            served = self.converse(&mut flow) => served,
            // Dropped, the flow is reset.
            () = pulse.taken_back() => return Err(io::ErrorKind::TimedOut.into()),
        };
        // What arrived before a failure is kept.
        let settled = self.settle(&mut flow).await;
        if let Err(e) = &served
            && e.kind() == io::ErrorKind::InvalidData
        {
            flow.reply(&Reply::Fault(Fault::new(FaultKind::Protocol, b"", e.to_string()))).await?;
        }
        flow.send.flush().await?;
        flow.send.shutdown().await?;
        served.and(settled)
    }

    async fn converse<S, R>(&self, flow: &mut Flow<S, R>) -> io::Result<()>
    where
        S: WriteShared,
        R: AsyncRead + Unpin + Send,
    {
        let mut magic = [0; 9];
        flow.recv.read_exact(&mut magic).await?;
        if magic != *MAGIC {
            return Err(invalid("this service is for files, and the flow asks for another".into()));
        }
        let theirs = flow.recv.read_u8().await?;
        if theirs != VERSION {
            let why = format!(
                "the client speaks version {theirs} of the files protocol, this server version {VERSION}"
            );
            return flow.reply(&Reply::Fault(Fault::new(FaultKind::Version, b"", why))).await;
        }
        let mut place = None;
        loop {
            if flow.group.is_due(&mut flow.recv).await {
                self.settle(flow).await?;
            }
            // Answers wait for each other only as long as there are questions at hand.
            if flow.recv.buffer().is_empty() {
                flow.send.flush().await?;
                // A flow on which nothing is asked holds nothing.
                drop(place.take());
                if flow.recv.fill_buf().await?.is_empty() {
                    return Ok(());
                }
            }
            if place.is_none() {
                place = Some(flow.place(Resource::Requests).await?);
            }
            // Who does not take answers is given no more.
            if flow.send.has_passed_much() {
                flow.send.granted(1, FLOW_BUFFER_BYTES).await?;
            }
            let Some(request) = read_frame(&mut flow.recv).await? else { return Ok(()) };
            // What is done for a request takes much room, which a flow that waits does not hold.
            Box::pin(self.take(flow, request)).await?;
        }
    }

    async fn take<S, R>(&self, flow: &mut Flow<S, R>, request: Request) -> io::Result<()>
    where
        S: WriteShared,
        R: AsyncRead + Unpin + Send,
    {
        flow.about.clear();
        flow.about.extend_from_slice(request.path());
        if let Request::Put { entry, from } = &request
            && is_small(entry.size, *from)
            && let Some(memory) = small::room_for(&flow.session.payer, entry.size)
        {
            return self.receive_small(flow, entry.clone(), memory).await;
        }
        // Answers go out in the order of the questions.
        self.settle(flow).await?;
        self.answer(flow, request).await
    }

    async fn answer<S, R>(&self, flow: &mut Flow<S, R>, request: Request) -> io::Result<()>
    where
        S: WriteShared,
        R: AsyncRead + Unpin + Send,
    {
        let (tree, payer) = (self.tree.clone(), flow.session.payer.clone());
        // Content that follows at once is passed over where it is received.
        if !self.options.hidden
            && !matches!(request, Request::Put { .. } | Request::Stream(_))
            && let Err(fault) = hidden::check_request(&request)
        {
            return flow.reply(&Reply::Fault(fault)).await;
        }
        let reply = match request {
            Request::Stat { path } => {
                let shows_hidden = self.options.hidden;
                at_work(&payer, move || status(&tree, &RelPath::parse(&path)?, shows_hidden)).await
            }
            Request::List { path, recursive } => {
                return flow.list(tree, path, recursive, self.options.hidden).await;
            }
            Request::Get { path, held } => return flow.send_file(tree, path, held).await,
            Request::Put { entry, from } => return self.receive_file(flow, entry, Some(from)).await,
            Request::Stream(entry) => return self.receive_file(flow, entry, None).await,
            Request::Offer(entry) => {
                let _kept = payer.keep(Resource::Memory, flow.charged());
                let offered = tokio::select! {
                    offered = self.offer(flow.modes, &flow.session, entry) => offered,
                    error = failure(&mut flow.recv, &flow.pulse) => return Err(error),
                };
                offered.map(|(target, have, reply)| match flow.remember(target, have) {
                    true => reply,
                    // Without it, the copy begins anew.
                    false => Reply::Have { held: None, whole: None, there: 0 },
                })
            }
            Request::Sums { path } => return self.tell_sums(flow, path).await,
            Request::Known { path, average, sums } => return flow.know(path, average, sums),
            Request::PreserveModes => self.preserve_modes(flow),
            Request::Compress => {
                flow.compresses = true;
                Ok(Reply::Done)
            }
            Request::MayRemove => self.deletable().map(|()| Reply::Done),
            change => match self.may(&change) {
                Ok(()) => {
                    let modes = flow.modes;
                    at_work(&payer, move || apply(&tree, change, modes)).await
                }
                Err(fault) => Err(fault),
            },
        };
        flow.reply(&reply.unwrap_or_else(Reply::Fault)).await
    }

    fn writable(&self) -> Result<(), Fault> {
        if self.options.read_only {
            return Err(Fault::new(FaultKind::ReadOnly, b"", "this server takes no files (it is read-only)"));
        }
        Ok(())
    }

    fn preserve_modes<S, R>(&self, flow: &mut Flow<S, R>) -> Result<Reply, Fault> {
        if !self.options.preserve_mode {
            let why = "this server sets modes by its umask (it can let clients by --preserve-mode)";
            return Err(Fault::new(FaultKind::Permission, b"", why));
        }
        flow.modes = Modes::Preserve;
        Ok(Reply::Done)
    }

    async fn offer(
        &self,
        modes: Modes,
        session: &Session,
        entry: Entry,
    ) -> Result<(RelPath, Have, Reply), Fault> {
        self.writable()?;
        let target = file_target(&entry)?;
        // Any other flow that receives it stops first: what is hashed now must stay as it is.
        let claim = self.claims.take(&target, &session.client).await?;
        let by = session.client.key.clone();
        let _file = session.payer.wait(Resource::Files, 1, 1).await;
        let have = Have::find(&self.tree, &target, &entry, by, &session.payer).await?;
        drop(claim);
        let whole = have.whole.map(|whole| match whole.mode & 0o777 == modes.file(entry.mode) {
            true => Attributes { mode: entry.mode, ..whole },
            false => whole,
        });
        let reply = Reply::Have { held: have.held(), whole, there: have.there };
        Ok((target, have, reply))
    }
}

/// A flow that the client opened.
struct Flow<S, R> {
    send: BufWriter<S>,
    recv: BufReader<R>,
    /// Pulse of the client: how it is getting on.
    pulse: Arc<Pulse>,
    /// Parts that were offered to the client to go on from.
    offers: BTreeMap<RelPath, (Prefix, Charge)>,
    differences: Differences,
    modes: Modes,
    /// Content goes out compressed where that pays.
    compresses: bool,
    /// The path that the request at hand is about.
    about: Vec<u8>,
    session: Arc<Session>,
    progress: Arc<dyn Progress>,
    /// Small files that have arrived and are not stored yet, with their paths and sizes.
    group: Group<(Vec<u8>, u64)>,
}

/// Waits until the flow fails, while nothing else is read from it. Data that has arrived hides the
/// failure until it is read.
async fn failure<R: AsyncRead + Unpin>(recv: &mut BufReader<R>, pulse: &Pulse) -> io::Error {
    let failed = async {
        if recv.buffer().is_empty()
            && let Err(error) = recv.fill_buf().await
        {
            return error;
        }
        std::future::pending().await
    };
    let mut failed = std::pin::pin!(failed);
    std::future::poll_fn(|cx| {
        let polled = failed.as_mut().poll(cx);
        pulse.waits(false);
        polled
    })
    .await
}

impl<S: WriteShared, R: AsyncRead + Unpin + Send> Flow<S, R> {
    /// Memory that it has for now, in bytes, beyond what a request takes.
    fn charged(&self) -> usize {
        let offers: usize = self.offers.values().map(|(_, room)| room.amount()).sum();
        let buffers = self.recv.charged() + self.send.charged();
        buffers + self.group.charged() + self.differences.charged() + offers
    }

    /// Waits for a place among those who are served, as long as the flow does not fail.
    async fn place(&mut self, resource: Resource) -> io::Result<Place> {
        let _kept = self.session.payer.keep(Resource::Memory, self.charged());
        tokio::select! {
            place = self.session.payer.place(resource, &self.pulse) => Ok(place),
            error = failure(&mut self.recv, &self.pulse) => Err(error),
        }
    }

    /// Keeps the part that was offered, until its content comes. False if there is no room for it.
    fn remember(&mut self, target: RelPath, have: Have) -> bool {
        let Some(prefix) = have.prefix.filter(|_| have.whole.is_none()) else { return true };
        if self.offers.len() >= OFFERS_MAX {
            self.offers.clear();
        }
        let Ok(room) = self.session.payer.charge(Resource::Memory, OFFER_BYTES) else { return false };
        self.offers.insert(target, (prefix, room));
        true
    }

    async fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        if let Reply::Fault(fault) = reply {
            self.refused(fault);
        }
        write_frame(&mut self.send, reply).await
    }

    /// Answers how receiving a file of `size` bytes ended.
    async fn answer_received(&mut self, path: &[u8], size: u64, received: Received) -> io::Result<()> {
        let named = |fault: Fault| Fault { path: path.to_vec(), ..fault };
        let outcome = match &received {
            Received::Stored(hash) => FileOutcome::Copied(*hash),
            Received::Aborted(fault) => FileOutcome::Failed(FileError::Peer(fault.clone())),
            Received::Failed(fault, _) | Received::Superseded(fault) => {
                FileOutcome::Failed(FileError::Local(named(fault.clone())))
            }
        };
        self.progress.ended(path, size, &outcome);
        match received {
            Received::Stored(hash) => self.reply(&Reply::Stored { hash }).await,
            Received::Aborted(fault) => self.reply(&Reply::GivenUp(fault)).await,
            Received::Failed(fault, at) => {
                self.say_fault(named(fault)).await?;
                match at {
                    Some(at) => drain(&mut self.recv, at).await,
                    None => Ok(()),
                }
            }
            Received::Superseded(fault) => {
                self.say_fault(named(fault)).await?;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        }
    }

    /// Refuses the content of a file that has not begun.
    async fn refuse(&mut self, fault: Fault) -> io::Result<()> {
        self.refused(&fault);
        self.say_fault(fault).await
    }

    fn refused(&self, fault: &Fault) {
        let path = if fault.path.is_empty() { &self.about } else { &fault.path };
        self.progress.refused(&Fault { path: path.clone(), ..fault.clone() });
    }

    /// A fault while content comes goes out at once, so that the client can stop sending.
    async fn say_fault(&mut self, fault: Fault) -> io::Result<()> {
        write_frame(&mut self.send, &Reply::Fault(fault)).await?;
        self.send.flush().await
    }

    async fn list(&mut self, tree: Tree, path: Vec<u8>, recursive: bool, hidden: bool) -> io::Result<()> {
        let _file = self.place(Resource::Files).await?;
        let payer = self.session.payer.clone();
        let wanted = (NAMES_BYTES_MIN, NAMES_BYTES);
        let names = payer.wait_holding(Resource::Memory, wanted, self.charged()).await;
        let names_bytes = names.amount();
        let begin = move || Walk::begin(tree, RelPath::parse(&path)?, (recursive, hidden), names_bytes);
        let mut walk = match at_work(&payer, begin).await {
            Ok(walk) => walk,
            Err(fault) => return self.reply(&Reply::Fault(fault)).await,
        };
        loop {
            self.send.granted(1, FLOW_BUFFER_BYTES).await?;
            let step;
            (walk, step) = match in_turn(&payer, move || Ok(walk.step())).await {
                Ok(stepped) => stepped,
                Err(fault) => return self.reply(&Reply::Fault(fault)).await,
            };
            for entry in step.found {
                self.reply(&Reply::Found(entry)).await?;
            }
            if step.is_last {
                return self.reply(&Reply::Done).await;
            }
        }
    }

    async fn send_file(&mut self, tree: Tree, path: Vec<u8>, held: Option<Held>) -> io::Result<()> {
        let _file = self.place(Resource::Files).await?;
        let session = self.session.clone();
        let payer = &session.payer;
        let known = self.differences.known_of(&path);
        let compresses = self.compresses;
        let content = async move {
            let opened = at_work(payer, move || Source::Inside(tree, RelPath::parse(&path)?).open());
            let (file, entry) = opened.await?;
            Ok(content_after(file, entry, held, payer).await?.by(known, payer).packed(compresses))
        };
        let content = tokio::select! {
            content = content => content,
            error = failure(&mut self.recv, &self.pulse) => return Err(error),
        };
        match content {
            Err(fault) => self.reply(&Reply::Fault(fault)).await,
            Ok(content) => {
                let entry = content.entry.clone();
                self.reply(&Reply::Sending { entry: entry.clone(), from: content.from }).await?;
                self.progress.began(&entry.path, entry.size, content.from);
                let mut observe = |moved: Moved| self.progress.moved(&entry.path, moved.bytes);
                let sent = send_content(&mut self.send, content, payer, &mut observe, &|| false);
                let outcome = match sent.await? {
                    Sent::Whole(hash) => FileOutcome::Copied(hash),
                    Sent::Failed(fault) => FileOutcome::Failed(FileError::Local(fault)),
                    Sent::Stopped => return Ok(()),
                };
                self.progress.ended(&entry.path, entry.size, &outcome);
                Ok(())
            }
        }
    }
}

/// The checked path of an entry that must be a file.
fn file_target(entry: &Entry) -> Result<RelPath, Fault> {
    let target = RelPath::parse(&entry.path)?;
    match entry.kind {
        Kind::File => Ok(target),
        _ => Err(Fault::new(FaultKind::Special, target.as_bytes(), "only regular files have content")),
    }
}

fn status(tree: &Tree, path: &RelPath, shows_hidden: bool) -> Result<Reply, Fault> {
    let entry = tree.stat(path)?;
    let is_directory = entry.as_ref().is_some_and(|entry| entry.kind == Kind::Directory);
    let copy_of = if is_directory && !path.is_root() { copy_of(tree, path) } else { None };
    Ok(Reply::Status { entry, copy_of, shows_hidden })
}
