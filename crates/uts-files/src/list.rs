//! Listing of a server, for people and programs to read.

use super::Flows;
use super::batch::{Conversation, next_reply};
use super::client::{stat, unexpected};
use super::error::{Fault, FaultKind, FileError};
use super::message::{Entry, Kind, Reply, Request};
use super::path::{RelPath, ServerPath};
use uts_ledger::{Budget, Ledger};

/// Lists what is in a directory at the server, with everything below if `recursive`; or a file, if
/// that is what is there. `emit` gets each entry, or why it cannot be listed, and limits what it
/// takes: names are the server's word, and come in any number. Paths are relative to what is
/// listed. The path of a file is its name. Entries come in the order of their names, a directory
/// before what is in it.
///
/// # Errors
/// When there is nothing of that name, or the connection fails.
pub async fn list<F: Flows>(
    flows: &F,
    at: &ServerPath,
    recursive: bool,
    emit: &mut (dyn FnMut(Result<Entry, Fault>) + Send),
) -> Result<(), FileError> {
    let ServerPath { path, is_directory, .. } = at;
    let fault = |kind, why: &str| FileError::Peer(Fault::new(kind, path.as_bytes(), why));
    let payer = Ledger::of_client(&Budget::of_process()).payer("the server");
    let mut flow = Conversation::open(flows, &payer).await?;
    let entry = stat(&mut flow, path).await?.entry;
    let entry = entry.ok_or_else(|| fault(FaultKind::NotFound, "no such file or directory"))?;
    if entry.kind != Kind::Directory {
        if *is_directory {
            return Err(fault(FaultKind::NotDirectory, "is not a directory"));
        }
        emit(Ok(Entry { path: path.name().unwrap_or_default().to_vec(), ..entry }));
        return flow.end().await;
    }
    let mut reply = flow.ask(&Request::List { path: path.as_bytes().to_vec(), recursive }).await?;
    loop {
        match reply {
            Reply::Done => return flow.end().await,
            Reply::Found(found) => emit(found.and_then(checked)),
            other => return Err(unexpected(other)),
        }
        reply = next_reply(&mut flow.recv).await?;
    }
}

/// An entry under a name that can be one.
fn checked(entry: Entry) -> Result<Entry, Fault> {
    RelPath::parse(&entry.path)?;
    Ok(entry)
}
