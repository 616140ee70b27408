//! Fetching files, on several flows at once.

use super::Flows;
use super::batch::{Batch, Conversation, both, next_reply};
use super::buffered::BufReader;
use super::client::{blocking, local, unexpected};
use super::delta::{Basis, SUMS_PER_FRAME, is_worth_asking};
use super::error::{Fault, FaultKind, FileError};
use super::intake::{Received, receive_content};
use super::journal::{FileOutcome, Journal};
use super::message::{Entry, Hash, Reply, Request, Sum, write_frame};
use super::modes::Modes;
use super::part::{Have, Part, Prefix, Terms};
use super::path::RelPath;
use super::small::{self, Group, Small, is_small};
use super::store::store;
use super::tree::Tree;
use super::workers::{Carrier, Rest, Waiting};
use std::collections::VecDeque;
use std::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

/// A file to be fetched.
pub(super) struct Item {
    /// At the server.
    pub(super) source: RelPath,
    pub(super) tree: Tree,
    pub(super) target: RelPath,
    /// Name of the file for the user.
    pub(super) name: Vec<u8>,
    pub(super) entry: Entry,
}

impl Item {
    /// A fault by the name that the user knows.
    fn named(&self, fault: Fault) -> Fault {
        Fault { path: self.name.clone(), ..fault }
    }
}

impl Batch for Item {
    fn bytes(&self) -> u64 {
        self.entry.size
    }
}

/// Fetches files.
#[derive(Clone)]
pub(super) struct Fetcher {
    pub(super) journal: Journal,
    pub(super) modes: Modes,
    /// No differences are asked for.
    pub(super) whole_files: bool,
    /// Content is to be compressed where that pays.
    pub(super) compress: bool,
    pub(super) waiting: Waiting,
}

impl<F: Flows> Carrier<F> for Fetcher {
    type Item = Item;

    async fn open(&self, flows: &F) -> Result<Conversation<F>, FileError> {
        Conversation::open_to_get(flows, &self.journal.payer, self.compress).await
    }

    async fn carry(&self, flow: &mut Conversation<F>, batch: Vec<Item>) -> Result<Rest<Item>, FileError> {
        let mut busy = Vec::new();
        let mut asked = Vec::with_capacity(batch.len());
        let mut requests = Vec::new();
        for item in batch {
            let payer = &self.journal.payer;
            let found = async {
                let have = Have::find(&item.tree, &item.target, &item.entry, None, payer).await?;
                let basis = self.basis(&item, &have).await?;
                Ok((have, basis))
            };
            match found.await {
                Ok((have, basis)) => {
                    let path = || item.source.as_bytes().to_vec();
                    let basis = basis.map(|Basis { file, average, sums }| {
                        let known =
                            |sums: &[Sum]| Request::Known { path: path(), average, sums: sums.to_vec() };
                        requests.extend(sums.chunks(SUMS_PER_FRAME).map(known));
                        file
                    });
                    requests.push(Request::Get { path: path(), held: have.held() });
                    asked.push((item, have, basis));
                }
                Err(fault) => self.failed(item, FileError::Local(fault), &mut busy),
            }
        }
        let Conversation { send, recv } = flow;
        let asking = async move {
            for request in &requests {
                write_frame(send, request).await?;
            }
            Ok::<_, FileError>(send.flush().await?)
        };
        let mut hearing = Hearing { fetcher: self, group: Group::default(), busy };
        let ((), rest) = both(asking, hearing.run(recv, VecDeque::from(asked))).await?;
        Ok(Rest { busy: hearing.busy, ..rest })
    }
}

/// A batch while it arrives.
struct Hearing<'a> {
    fetcher: &'a Fetcher,
    /// Small files that have arrived and are not stored yet.
    group: Group<Item>,
    /// Somebody else is copying them.
    busy: Vec<Item>,
}

impl Hearing<'_> {
    async fn run<R: AsyncRead + Unpin + Send>(
        &mut self,
        recv: &mut BufReader<R>,
        mut asked: VecDeque<(Item, Have, Option<File>)>,
    ) -> Result<Rest<Item>, FileError> {
        let mut is_usable = true;
        while let Some((item, have, basis)) = asked.pop_front().filter(|_| is_usable) {
            if self.group.is_due(recv).await {
                self.settle().await;
            }
            let fetched = match self.fetch_one(recv, &item, have, basis).await {
                Ok(fetched) => fetched,
                Err(error) => {
                    // What arrived before a failure is kept.
                    self.settle().await;
                    return Err(error);
                }
            };
            match fetched {
                Fetched::Small(small) => self.group.push(*small, item),
                Fetched::Ended(ended, usable) => {
                    is_usable = usable;
                    self.ended(item, ended);
                }
            }
        }
        self.settle().await;
        let untried = asked.into_iter().map(|(item, ..)| item).collect();
        Ok(Rest { is_usable, untried, busy: Vec::new() })
    }

    /// Stores the small files that have arrived.
    async fn settle(&mut self) {
        if self.group.files.is_empty() {
            return;
        }
        for (item, stored) in store(&self.fetcher.journal.payer, self.group.take()).await {
            let ended = stored.map(FileOutcome::Copied);
            let ended = ended.map_err(|fault| FileError::Local(item.named(fault)));
            self.ended(item, ended);
        }
    }

    fn ended(&mut self, item: Item, ended: Result<FileOutcome, FileError>) {
        match ended {
            Err(error) => self.fetcher.failed(item, error, &mut self.busy),
            Ok(outcome) => {
                self.fetcher.journal.ended(&item.name, item.entry.size, item.entry.mtime, outcome);
            }
        }
    }
}

impl Fetcher {
    /// The pieces of the file that is here, if a difference from it may be worth something.
    async fn basis(&self, item: &Item, have: &Have) -> Result<Option<Basis>, Fault> {
        let held = have.prefix.as_ref().map_or(0, |prefix| prefix.held.bytes);
        // One as long may be the same: then that is asked, unless its time says that it is another.
        let lacking = match have.whole {
            Some(whole) if whole.mtime == item.entry.mtime => 0,
            Some(_) => item.entry.size,
            None => item.entry.size.saturating_sub(held),
        };
        if self.whole_files || !is_worth_asking(have.there, lacking) {
            return Ok(None);
        }
        let basis = Basis::read(&item.tree, &item.target, &self.journal.payer).await?;
        Ok(Some(basis).filter(|basis| !basis.sums.is_empty()))
    }

    fn failed(&self, item: Item, error: FileError, busy: &mut Vec<Item>) {
        if self.waiting.may_go_on(&item.name, &error, &self.journal) {
            busy.push(item);
        } else {
            self.journal.ended(&item.name, item.entry.size, item.entry.mtime, FileOutcome::Failed(error));
        }
    }
}

/// Result of fetching a file.
enum Fetched {
    /// Outcome for the file, and true if the flow can be used further.
    Ended(Result<FileOutcome, FileError>, bool),
    /// It has arrived whole and is to be stored.
    Small(Box<Small>),
}

impl Hearing<'_> {
    /// Receives one file. The error is one that ends the flow.
    async fn fetch_one<R: AsyncRead + Unpin + Send>(
        &mut self,
        flow: &mut BufReader<R>,
        item: &Item,
        have: Have,
        basis: Option<File>,
    ) -> Result<Fetched, FileError> {
        let Fetcher { journal, modes, .. } = self.fetcher;
        let modes = *modes;
        let (entry, from) = match next_reply(flow).await? {
            Reply::Sending { entry, from } => (entry, from),
            reply => return Ok(Fetched::Ended(Err(unexpected(reply)), true)),
        };
        let changed = |why: &str| Ok(Fetched::Ended(Err(local(FaultKind::Changed, &item.name, why)), false));
        if entry.size != item.entry.size {
            return changed(&format!(
                "changed while it was copied: listed with {} bytes, sent with {}; copy again",
                item.entry.size, entry.size
            ));
        }
        journal.began(&item.name, entry.size, from);
        let prefix = match (have.prefix, from) {
            (_, 0) => None,
            (Some(prefix), from) if prefix.held.bytes == from => Some(prefix),
            _ => {
                let why = "content that begins where nothing was asked for";
                return Err(FileError::Protocol(why.into()));
            }
        };
        if let Some(whole) = have.whole {
            if prefix.is_some() || entry.size == 0 {
                let modes = (!whole.are_those_of(&entry, modes)).then_some(modes);
                return Ok(Fetched::Ended(confirm(flow, item, &entry, prefix, modes).await?, true));
            }
        } else if prefix.is_none() && from > 0 {
            return changed("changed while it was copied; copy again");
        }
        let memory =
            is_small(entry.size, from).then(|| small::room_for(&journal.payer, entry.size)).flatten();
        let received = if let Some(memory) = memory {
            if self.group.is_due_before(entry.size, flow).await {
                self.settle().await;
            }
            let mut observe = |moved| journal.moved(&item.name, moved);
            match small::receive(flow, &item.target, entry.size, &mut observe, None).await? {
                Ok(content) => {
                    let (tree, target) = (item.tree.clone(), item.target.clone());
                    let small = Small { tree, target, entry, modes, by: None, content, claim: None, memory };
                    return Ok(Fetched::Small(Box::new(small)));
                }
                Err(received) => received,
            }
        } else {
            let (tree, target, opened) = (item.tree.clone(), item.target.clone(), entry);
            let terms = Terms { basis, ..Terms::client(modes) };
            let part = match blocking(move || Part::open(&tree, &target, &opened, prefix, terms)).await {
                Ok(part) => part,
                Err(fault) => {
                    return Ok(Fetched::Ended(Err(FileError::Local(item.named(fault))), false));
                }
            };
            let mut observe = |moved| journal.moved(&item.name, moved);
            receive_content(flow, part, &mut observe, None, &journal.payer).await?
        };
        Ok(item.received(received))
    }
}

impl Item {
    /// Result of receiving it, and what that says of the flow.
    fn received(&self, received: Received) -> Fetched {
        match received {
            Received::Stored(hash) => Fetched::Ended(Ok(FileOutcome::Copied(hash)), true),
            Received::Aborted(fault) => Fetched::Ended(Err(FileError::Peer(fault)), true),
            Received::Failed(fault, at) => {
                Fetched::Ended(Err(FileError::Local(self.named(fault))), at.is_none())
            }
            Received::Superseded(fault) => Fetched::Ended(Err(FileError::Local(fault)), false),
        }
    }
}

/// The server agrees that the file is here in full. Only its hash follows. Mode and time are set if
/// `modes` say how.
async fn confirm<R>(
    flow: &mut R,
    item: &Item,
    entry: &Entry,
    prefix: Option<Prefix>,
    modes: Option<Modes>,
) -> Result<Result<FileOutcome, FileError>, FileError>
where
    R: AsyncRead + Unpin,
{
    let ours = prefix.map_or_else(|| *blake3::hash(b"").as_bytes(), |prefix| prefix.held.hash);
    let mut hash = Hash::default();
    if flow.read_u32().await? != 0 {
        return Err(FileError::Protocol("content after the end of a file".into()));
    }
    flow.read_exact(&mut hash).await?;
    if hash != ours {
        return Ok(Err(local(FaultKind::Corrupt, &item.name, "the hashes of both ends differ")));
    }
    if let Some(modes) = modes {
        let (tree, target, entry) = (item.tree.clone(), item.target.clone(), entry.clone());
        let set = blocking(move || tree.set_attributes(&target, &entry, modes)).await;
        return Ok(set.map(|()| FileOutcome::AlreadyThere(hash)).map_err(FileError::Local));
    }
    Ok(Ok(FileOutcome::AlreadyThere(hash)))
}
