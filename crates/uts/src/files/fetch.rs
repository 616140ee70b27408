//! Fetching files, on several flows at once.

use super::Flows;
use super::batch::{Batch, Conversation, next_reply};
use super::client::{Queue, blocking, local, unexpected};
use super::error::{Fault, FaultKind, FileError};
use super::journal::{FileOutcome, Journal};
use super::message::{Entry, Hash, Reply, Request, write_frame};
use super::modes::Modes;
use super::part::{Have, Part, Prefix, Terms};
use super::path::RelPath;
use super::stream::{Received, receive_content};
use super::tree::Tree;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

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

impl Batch for Item {
    fn bytes(&self) -> u64 {
        self.entry.size
    }
}

/// Fetches what is queued, until no more comes.
pub(super) async fn fetch_files<F: Flows>(
    flows: Arc<F>,
    queue: Arc<Queue<Item>>,
    journal: Journal,
    modes: Modes,
) -> Result<(), FileError> {
    let mut flow = None;
    loop {
        let batch = queue.take().await;
        if batch.is_empty() {
            break;
        }
        let mut conversation = match flow.take() {
            Some(conversation) => conversation,
            None => Conversation::open(&*flows).await?,
        };
        let untried = fetch_batch(&mut conversation, batch, &journal, modes).await?;
        if untried.is_empty() {
            flow = Some(conversation);
        } else {
            // Something failed here while the server still sends it: that flow is dropped.
            queue.give_back(untried);
        }
    }
    if let Some(flow) = flow {
        let _ = flow.end().await;
    }
    Ok(())
}

/// Fetches files one after another on one flow. Returns those that were not tried because the flow has become useless.
async fn fetch_batch<F: Flows>(
    flow: &mut Conversation<F>,
    batch: Vec<Item>,
    journal: &Journal,
    modes: Modes,
) -> Result<Vec<Item>, FileError> {
    let mut asked = Vec::with_capacity(batch.len());
    for item in batch {
        match Have::find(&item.tree, &item.target, &item.entry, None, None).await {
            Ok(have) => asked.push((item, have)),
            Err(fault) => fail(journal, &item, FileError::Local(fault)),
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
    let hearing = async {
        while let Some((item, have)) = asked.pop_front() {
            if !fetch_one(recv, &item, have, journal, modes).await? {
                break;
            }
        }
        Ok::<_, FileError>(asked.into_iter().map(|(item, _)| item).collect())
    };
    tokio::try_join!(asking, hearing).map(|((), untried)| untried)
}

/// Receives one file; false if the flow is of no more use.
async fn fetch_one<R>(
    flow: &mut R,
    item: &Item,
    have: Have,
    journal: &Journal,
    modes: Modes,
) -> Result<bool, FileError>
where
    R: tokio::io::AsyncRead + Unpin,
{
    let (entry, from) = match next_reply(flow).await? {
        Reply::Sending { entry, from } => (entry, from),
        reply => {
            fail(journal, item, unexpected(reply));
            return Ok(true);
        }
    };
    if entry.size != item.entry.size {
        let why = format!(
            "changed while it was copied: listed with {} bytes, sent with {}; copy again",
            item.entry.size, entry.size
        );
        fail(journal, item, local(FaultKind::Changed, &item.name, &why));
        return Ok(false);
    }
    journal.began(&item.name, entry.size, from);
    let prefix = match (have.prefix, from) {
        (_, 0) => None,
        (Some(prefix), from) if prefix.held.bytes == from => Some(prefix),
        _ => return Err(FileError::Protocol("content that begins where nothing was asked for".into())),
    };
    let unchanged = entry.mtime == item.entry.mtime;
    if have.complete && unchanged && (prefix.is_some() || entry.size == 0) {
        let modes = (have.mode & 0o777 != modes.file(entry.mode)).then_some(modes);
        confirm(flow, item, &entry, prefix, modes, journal).await?;
        return Ok(true);
    }
    // A whole file of that size and time that is not the same is no part to go on from.
    let prefix = prefix.filter(|_| !have.complete);
    if prefix.is_none() && from > 0 {
        fail(journal, item, local(FaultKind::Changed, &item.name, "changed while it was copied; copy again"));
        return Ok(false);
    }
    let (tree, target, opened) = (item.tree.clone(), item.target.clone(), entry.clone());
    let part = match blocking(move || Part::open(&tree, &target, &opened, prefix, Terms::client(modes))).await
    {
        Ok(part) => part,
        Err(fault) => {
            fail(journal, item, FileError::Local(Fault { path: item.name.clone(), ..fault }));
            return Ok(false);
        }
    };
    let mut observe = |bytes| journal.moved(&item.name, bytes);
    let (outcome, usable) = match receive_content(flow, part, &mut observe, None).await? {
        Received::Stored(hash) => (FileOutcome::Copied(hash), true),
        Received::Aborted(fault) => (FileOutcome::Failed(FileError::Peer(fault)), true),
        Received::Failed(fault, at) => {
            let fault = Fault { path: item.name.clone(), ..fault };
            (FileOutcome::Failed(FileError::Local(fault)), at.is_none())
        }
        Received::Superseded(fault) => (FileOutcome::Failed(FileError::Local(fault)), false),
    };
    journal.ended(&item.name, entry.size, outcome);
    Ok(usable)
}

/// The server agrees that the file is here in full: nothing follows but its hash. Its mode is set if `modes` say how.
async fn confirm<R>(
    flow: &mut R,
    item: &Item,
    entry: &Entry,
    prefix: Option<Prefix>,
    modes: Option<Modes>,
    journal: &Journal,
) -> Result<(), FileError>
where
    R: tokio::io::AsyncRead + Unpin,
{
    let ours = prefix.map_or_else(|| *blake3::hash(b"").as_bytes(), |prefix| prefix.held.hash);
    let mut hash = Hash::default();
    if flow.read_u32().await? != 0 {
        return Err(FileError::Protocol("content after the end of a file".into()));
    }
    flow.read_exact(&mut hash).await?;
    let outcome = if hash != ours {
        FileOutcome::Failed(local(FaultKind::Corrupt, &item.name, "the hashes of both ends differ"))
    } else if let Some(modes) = modes {
        let (tree, target, entry) = (item.tree.clone(), item.target.clone(), entry.clone());
        match blocking(move || tree.set_attributes(&target, &entry, modes)).await {
            Ok(()) => FileOutcome::AlreadyThere(hash),
            Err(fault) => FileOutcome::Failed(FileError::Local(fault)),
        }
    } else {
        FileOutcome::AlreadyThere(hash)
    };
    journal.ended(&item.name, entry.size, outcome);
    Ok(())
}

fn fail(journal: &Journal, item: &Item, error: FileError) {
    journal.ended(&item.name, item.entry.size, FileOutcome::Failed(error));
}
