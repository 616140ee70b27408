//! Copies from and to what has neither length nor place: standard input and output, pipes, devices.
//! They cannot be gone on from.

use super::Flows;
use super::batch::{Conversation, next_reply};
use super::client::{CopyOptions, Report, stat, unexpected};
use super::error::{Fault, FaultKind, FileError};
use super::intake::{Received, receive_content};
use super::journal::{FileOutcome, Journal};
use super::message::{Entry, Kind, Mtime, Reply, Request, write_frame};
use super::packing::Packing;
use super::path::{RelPath, ServerPath};
use super::send::stored;
use super::sink::Outlet;
use super::stream::{Moved, send_stream};
use std::fs::File;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::io::AsyncWriteExt;

/// Mode of a copy of what has none, before the umask.
const STREAM_MODE: u32 = 0o666;

/// Copies what comes from `source`, which people call `name`, to a file at the server. It stands
/// under its name when the source has ended and the hashes of both ends agree; of what is cut off
/// nothing stays.
///
/// # Errors
/// If nothing could be begun, for example because `destination` is a directory. Later failures are
/// in the [`Report`].
pub async fn put_stream<F: Flows>(
    flows: Arc<F>,
    source: File,
    name: &[u8],
    destination: &ServerPath,
    options: &CopyOptions,
) -> Result<Report, FileError> {
    let journal = Journal::new(options);
    let mut flow = Conversation::open_to_put(&*flows, &journal.payer, options.preserve_mode).await?;
    let there = stat(&mut flow, &destination.path).await?.entry;
    let is_directory = there.is_some_and(|entry| entry.kind == Kind::Directory);
    if is_directory || destination.is_directory {
        let why =
            format!("is a directory; {} has no name of its own, so name the file", super::path::show(name));
        return Err(FileError::Peer(Fault::new(FaultKind::IsDirectory, destination.path.as_bytes(), why)));
    }
    let mtime = now();
    let path = destination.path.as_bytes().to_vec();
    let entry = Entry { path, kind: Kind::File, size: 0, mtime, mode: STREAM_MODE };
    journal.planned(1, 0);
    if options.dry_run {
        journal.ended(name, 0, mtime, FileOutcome::Wanted);
        return Ok(journal.into_report());
    }
    let Conversation { send, recv } = &mut flow;
    write_frame(send, &Request::Stream(entry)).await?;
    let mut size = 0u64;
    let outcome = {
        let sending = async {
            let mut observe = |moved: Moved| {
                size = size.saturating_add(moved.bytes);
                journal.moved(name, moved);
            };
            let packing = Packing::new(options.compress);
            let sent = send_stream(send, name.to_vec(), source, packing, &mut observe).await?;
            send.flush().await?;
            Ok::<_, FileError>(sent)
        };
        tokio::select! {
            biased;
            // Before the end of the source there is nothing to report but a failure, and the source
            // may wait for ever.
            reply = next_reply(recv) => Err(unexpected(reply?)),
            sent = sending => {
                let sent = sent?;
                stored(next_reply(recv).await?, Some(&sent))
            }
        }
    };
    journal.ended(name, size, mtime, outcome.unwrap_or_else(FileOutcome::Failed));
    let _ = flow.end().await;
    Ok(journal.into_report())
}

/// Copies a file from the server to `out`, which messages call `name`. If the hashes of both ends
/// differ, this is a failure, of which `out` cannot be told.
///
/// # Errors
/// If nothing could be begun, for example because `source` is a directory. Later failures are in
/// the [`Report`].
pub async fn get_stream<F: Flows>(
    flows: Arc<F>,
    source: &ServerPath,
    out: File,
    name: &[u8],
    options: &CopyOptions,
) -> Result<Report, FileError> {
    let journal = Journal::new(options);
    let mut flow = Conversation::open_to_get(&*flows, &journal.payer, options.compress).await?;
    let path: &RelPath = &source.path;
    let reply = flow.ask(&Request::Get { path: path.as_bytes().to_vec(), held: None }).await?;
    let entry = match reply {
        Reply::Sending { entry, from: 0 } => entry,
        Reply::Sending { .. } => {
            return Err(FileError::Protocol("content that begins where nothing was asked for".into()));
        }
        reply => return Err(unexpected(reply)),
    };
    if source.is_directory {
        return Err(FileError::Peer(Fault::new(
            FaultKind::NotDirectory,
            path.as_bytes(),
            "is not a directory",
        )));
    }
    journal.planned(1, entry.size);
    if options.dry_run {
        journal.ended(name, entry.size, entry.mtime, FileOutcome::Wanted);
        return Ok(journal.into_report());
    }
    journal.began(name, entry.size, 0);
    let mut observe = |moved| journal.moved(name, moved);
    let outlet = Outlet::new(name, out, entry.size);
    let outcome = match receive_content(&mut flow.recv, outlet, &mut observe, None, &journal.payer).await? {
        Received::Stored(hash) => FileOutcome::Copied(hash),
        Received::Aborted(fault) => FileOutcome::Failed(FileError::Peer(fault)),
        Received::Failed(fault, _) | Received::Superseded(fault) => {
            FileOutcome::Failed(FileError::Local(Fault { path: name.to_vec(), ..fault }))
        }
    };
    let is_whole = matches!(outcome, FileOutcome::Copied(_));
    journal.ended(name, entry.size, entry.mtime, outcome);
    if is_whole {
        let _ = flow.end().await;
    }
    Ok(journal.into_report())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file that is made has a time, as any other that is made now"
)]
fn now() -> Mtime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Mtime { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
}
