//! Fetching files, on several flows at once.

use super::Flows;
use super::batch::{Batch, Conversation, next_reply};
use super::client::{blocking, local, unexpected};
use super::error::{Fault, FaultKind, FileError};
use super::journal::{FileOutcome, Journal};
use super::message::{Entry, Hash, Reply, Request, write_frame};
use super::modes::Modes;
use super::part::{Have, Part, Prefix, Terms};
use super::path::RelPath;
use super::stream::{Received, receive_content};
use super::tree::Tree;
use super::workers::{Carrier, Rest, Waiting};
use std::collections::VecDeque;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

/// A file to be fetched.
pub(super) struct Item {
    /// At the server.
    pub(super) source: RelPath,
    pub(super) tree: Tree,
    pub(super) target: RelPath,
    /// What the user will call it.
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
    pub(super) waiting: Waiting,
}

impl<F: Flows> Carrier<F> for Fetcher {
    type Item = Item;

    async fn open(&self, flows: &F) -> Result<Conversation<F>, FileError> {
        Conversation::open(flows).await
    }

    async fn carry(&self, flow: &mut Conversation<F>, batch: Vec<Item>) -> Result<Rest<Item>, FileError> {
        let mut busy = Vec::new();
        let mut asked = Vec::with_capacity(batch.len());
        for item in batch {
            match Have::find(&item.tree, &item.target, &item.entry, None, None).await {
                Ok(have) => asked.push((item, have)),
                Err(fault) => self.failed(item, FileError::Local(fault), &mut busy),
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
        let mut is_usable = true;
        let hearing = async {
            while let Some((item, have)) = asked.pop_front() {
                let ended;
                (ended, is_usable) = fetch_one(recv, &item, have, &self.journal, self.modes).await?;
                match ended {
                    Err(error) => self.failed(item, error, &mut busy),
                    Ok(outcome) => {
                        self.journal.ended(&item.name, item.entry.size, item.entry.mtime, outcome);
                    }
                }
                if !is_usable {
                    break;
                }
            }
            let untried = asked.into_iter().map(|(item, _)| item).collect::<Vec<_>>();
            Ok::<_, FileError>(untried)
        };
        let ((), untried) = tokio::try_join!(asking, hearing)?;
        Ok(Rest { is_usable, untried, busy })
    }
}

impl Fetcher {
    fn failed(&self, item: Item, error: FileError, busy: &mut Vec<Item>) {
        if self.waiting.may_go_on(&item.name, &error, &self.journal) {
            busy.push(item);
        } else {
            self.journal.ended(&item.name, item.entry.size, item.entry.mtime, FileOutcome::Failed(error));
        }
    }
}

/// How a file ended, and whether the flow can be used further.
type Ended = (Result<FileOutcome, FileError>, bool);

/// Receives one file. The error is one that ends the flow.
async fn fetch_one<R>(
    flow: &mut R,
    item: &Item,
    have: Have,
    journal: &Journal,
    modes: Modes,
) -> Result<Ended, FileError>
where
    R: AsyncRead + Unpin,
{
    let (entry, from) = match next_reply(flow).await? {
        Reply::Sending { entry, from } => (entry, from),
        reply => return Ok((Err(unexpected(reply)), true)),
    };
    let changed = |why: &str| Ok((Err(local(FaultKind::Changed, &item.name, why)), false));
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
        _ => return Err(FileError::Protocol("content that begins where nothing was asked for".into())),
    };
    if let Some(whole) = have.whole {
        if prefix.is_some() || entry.size == 0 {
            let modes = (!whole.are_those_of(&entry, modes)).then_some(modes);
            return Ok((confirm(flow, item, &entry, prefix, modes).await?, true));
        }
    } else if prefix.is_none() && from > 0 {
        return changed("changed while it was copied; copy again");
    }
    let (tree, target, opened) = (item.tree.clone(), item.target.clone(), entry.clone());
    let opening = blocking(move || Part::open(&tree, &target, &opened, prefix, Terms::client(modes)));
    let part = match opening.await {
        Ok(part) => part,
        Err(fault) => return Ok((Err(FileError::Local(item.named(fault))), false)),
    };
    let mut observe = |moved| journal.moved(&item.name, moved);
    Ok(match receive_content(flow, part, &mut observe, None, None).await? {
        Received::Stored(hash) => (Ok(FileOutcome::Copied(hash)), true),
        Received::Aborted(fault) => (Err(FileError::Peer(fault)), true),
        Received::Failed(fault, at) => (Err(FileError::Local(item.named(fault))), at.is_none()),
        Received::Superseded(fault) => (Err(FileError::Local(fault)), false),
    })
}

/// The server agrees that the file is here in full: nothing follows but its hash. Mode and time are set if `modes` say
/// how.
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
