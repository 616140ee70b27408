//! Sending files, on several flows at once.

use super::batch::{Batch, Conversation, both, next_reply};
use super::client::{blocking, local, unexpected};
use super::delta::{Known, is_worth_asking};
use super::error::{Fault, FaultKind, FileError};
use super::hashing::content_after;
use super::journal::{FileOutcome, Journal};
use super::message::{Entry, Hash, Held, Reply, Request, write_frame};
use super::stream::{Content, Sent, send_content};
use super::tree::Source;
use super::workers::{Carrier, Rest, Waiting};
use super::{Flows, WriteShared};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use uts_ledger::Payer;

/// A file to be sent.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) source: Source,
    /// Name of the file for the user.
    pub(super) name: Vec<u8>,
    /// With its path at the server.
    pub(super) entry: Entry,
}

impl Batch for Item {
    fn bytes(&self) -> u64 {
        self.entry.size
    }
}

/// Sends files.
#[derive(Clone)]
pub(super) struct Sender {
    pub(super) journal: Journal,
    pub(super) preserve_mode: bool,
    /// No differences are sent.
    pub(super) whole_files: bool,
    /// Content is compressed where that pays.
    pub(super) compress: bool,
    pub(super) waiting: Waiting,
}

impl<F: Flows> Carrier<F> for Sender {
    type Item = Item;

    async fn open(&self, flows: &F) -> Result<Conversation<F>, FileError> {
        Conversation::open_to_put(flows, &self.journal.payer, self.preserve_mode).await
    }

    async fn carry(&self, flow: &mut Conversation<F>, batch: Vec<Item>) -> Result<Rest<Item>, FileError> {
        let offers: Vec<Request> = batch.iter().map(|item| Request::Offer(item.entry.clone())).collect();
        let mut replies = Vec::with_capacity(offers.len());
        flow.ask_all(&offers, |_, reply| replies.push(reply)).await?;
        let Conversation { send, recv } = flow;
        let (awaited, answers) = mpsc::unbounded_channel();
        let sending = &Sending::new(self, &batch);
        let out = async move {
            for (i, reply) in replies.into_iter().enumerate() {
                sending.send_one(send, i, reply, &awaited).await?;
            }
            Ok::<_, FileError>(send.flush().await?)
        };
        both(out, sending.hear(recv, answers)).await?;
        let busy = std::mem::take(&mut *sending.busy.lock().unwrap_or_else(PoisonError::into_inner));
        let busy = batch.into_iter().enumerate().filter(|(i, _)| busy.contains(i)).map(|(_, item)| item);
        Ok(Rest { is_usable: true, untried: Vec::new(), busy: busy.collect() })
    }
}

/// Something written, of which the answer is awaited.
enum Awaited {
    File(usize),
    Attributes(usize, Hash),
    /// Pieces that the server has of a file, and the task that waits for them.
    Sums(oneshot::Sender<Option<Known>>),
}

/// A batch on its way.
struct Sending<'a> {
    sender: &'a Sender,
    batch: &'a [Item],
    /// Way in which sending the content of each ended.
    sent: Vec<OnceLock<Sent>>,
    /// The one that the server has failed at last.
    failed: AtomicUsize,
    /// Those that are to be tried again later.
    busy: Mutex<Vec<usize>>,
}

impl<'a> Sending<'a> {
    fn new(sender: &'a Sender, batch: &'a [Item]) -> Self {
        let sent = batch.iter().map(|_| OnceLock::new()).collect();
        Sending { sender, batch, sent, failed: AtomicUsize::new(usize::MAX), busy: Mutex::default() }
    }

    fn end(&self, i: usize, outcome: Result<FileOutcome, FileError>) {
        let Some(item) = self.batch.get(i) else { return };
        let journal = &self.sender.journal;
        let outcome = match outcome {
            Err(error) if self.sender.waiting.may_go_on(&item.name, &error, journal) => {
                return self.busy.lock().unwrap_or_else(PoisonError::into_inner).push(i);
            }
            outcome => outcome.unwrap_or_else(FileOutcome::Failed),
        };
        journal.ended(&item.name, item.entry.size, item.entry.mtime, outcome);
    }

    async fn hear<R: AsyncRead + Unpin>(
        &self,
        recv: &mut R,
        mut answers: mpsc::UnboundedReceiver<Awaited>,
    ) -> Result<(), FileError> {
        while let Some(next) = answers.recv().await {
            match next {
                Awaited::File(i) => {
                    let outcome = match next_reply(recv).await? {
                        reply @ (Reply::Stored { .. } | Reply::GivenUp(_)) => {
                            stored(reply, self.sent.get(i).and_then(OnceLock::get))
                        }
                        reply => {
                            self.failed.store(i, Ordering::Relaxed);
                            Err(unexpected(reply))
                        }
                    };
                    self.end(i, outcome);
                }
                Awaited::Sums(told) => {
                    // Nobody hears it if sending has failed, whose error is the one to report.
                    let _ = told.send(self.hear_sums(recv).await?);
                }
                Awaited::Attributes(i, hash) => {
                    let outcome = match next_reply(recv).await? {
                        Reply::Done => Ok(FileOutcome::AlreadyThere(hash)),
                        reply => Err(unexpected(reply)),
                    };
                    self.end(i, outcome);
                }
            }
        }
        Ok(())
    }

    /// Hears which pieces the server has of a file; `None` of those of which it tells nothing.
    async fn hear_sums<R: AsyncRead + Unpin>(&self, recv: &mut R) -> Result<Option<Known>, FileError> {
        let mut known = None;
        loop {
            match next_reply(recv).await? {
                Reply::Sums { average, sums } => {
                    let known = known.get_or_insert_with(|| Known::new(average));
                    known.add(sums, &self.sender.journal.payer).map_err(FileError::Peer)?;
                }
                Reply::Done => return Ok(known),
                // It is sent whole.
                Reply::Fault(_) => return Ok(None),
                reply => return Err(unexpected(reply)),
            }
        }
    }

    /// Asks which pieces the server has of a file, if it has enough of one.
    async fn pieces<W: WriteShared>(
        &self,
        send: &mut W,
        content: &Content,
        path: &[u8],
        there: u64,
        awaited: &mpsc::UnboundedSender<Awaited>,
    ) -> Result<Option<Known>, FileError> {
        let lacking = content.entry.size.saturating_sub(content.from);
        if self.sender.whole_files || !is_worth_asking(there, lacking) {
            return Ok(None);
        }
        write_frame(send, &Request::Sums { path: path.to_vec() }).await?;
        send.flush().await?;
        let (told, hears) = oneshot::channel();
        let _ = awaited.send(Awaited::Sums(told));
        // Nobody tells if hearing has failed, whose error is the one to report.
        Ok(hears.await.unwrap_or_default())
    }

    /// Sends what the server lacks of a file. The error is one that ends the flow.
    async fn send_one<W: WriteShared>(
        &self,
        send: &mut W,
        i: usize,
        reply: Reply,
        awaited: &mpsc::UnboundedSender<Awaited>,
    ) -> Result<(), FileError> {
        let Some(item) = self.batch.get(i) else { return Ok(()) };
        let journal = &self.sender.journal;
        let (held, whole, there) = match reply {
            Reply::Have { held, whole, there } => (held, whole, there),
            reply => {
                self.end(i, Err(unexpected(reply)));
                return Ok(());
            }
        };
        let content = match open_after(item, held, &self.sender.journal.payer).await {
            Ok(content) => content,
            Err(fault) => {
                self.end(i, Err(FileError::Local(fault)));
                return Ok(());
            }
        };
        journal.began(&item.name, item.entry.size, content.from);
        let entry = Entry { path: item.entry.path.clone(), ..content.entry.clone() };
        let is_there = content.from == entry.size && held.is_some_and(|held| held.bytes == content.from);
        if let Some(whole) = whole.filter(|_| is_there) {
            let hash = content.hasher.finalize().into();
            if (whole.mode & 0o777, whole.mtime) == (entry.mode & 0o777, entry.mtime) {
                self.end(i, Ok(FileOutcome::AlreadyThere(hash)));
                return Ok(());
            }
            write_frame(send, &Request::Attributes { entry, complete: false }).await?;
            // Fails only if the hearing side has ended, whose error is the one to report.
            let _ = awaited.send(Awaited::Attributes(i, hash));
            return Ok(());
        }
        let known = self.pieces(send, &content, &entry.path, there, awaited).await?;
        let content = content.by(known, &journal.payer).packed(self.sender.compress);
        write_frame(send, &Request::Put { entry, from: content.from }).await?;
        let _ = awaited.send(Awaited::File(i));
        let mut observe = |moved| journal.moved(&item.name, moved);
        // If the source fails, the server is told and answers with what it was told.
        let stop = || self.failed.load(Ordering::Relaxed) == i;
        let ended = send_content(send, content, &journal.payer, &mut observe, &stop).await?;
        if let Some(sent) = self.sent.get(i) {
            // Only this sets it, once.
            let _ = sent.set(ended);
        }
        Ok(())
    }
}

/// Outcome for a file, by the server's reply and by how sending it ended here.
pub(super) fn stored(reply: Reply, sent: Option<&Sent>) -> Result<FileOutcome, FileError> {
    match (reply, sent) {
        (Reply::Stored { hash }, Some(Sent::Whole(ours))) if hash == *ours => Ok(FileOutcome::Copied(hash)),
        (Reply::Stored { .. }, _) => {
            Err(local(FaultKind::Corrupt, b"", "the server says that it has stored what was not sent"))
        }
        // It was told so, and says it again.
        (Reply::GivenUp(_), Some(Sent::Failed(fault))) => Err(FileError::Local(fault.clone())),
        (Reply::GivenUp(fault), _) => Err(FileError::Peer(fault)),
        (reply, _) => Err(unexpected(reply)),
    }
}

/// Opens the file; after what the server holds, if that is a prefix of it.
async fn open_after(item: &Item, held: Option<Held>, payer: &Payer) -> Result<Content, Fault> {
    let (source, name) = (item.source.clone(), item.name.clone());
    // What goes wrong while it is sent is told by this name.
    let named = |fault| Fault { path: item.name.clone(), ..fault };
    let (file, entry) = blocking(move || source.open()).await.map_err(named)?;
    content_after(file, Entry { path: name, ..entry }, held, payer).await.map_err(named)
}
