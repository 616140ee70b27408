//! Hashing what is on the disk already: the costliest thing that a peer can ask for, with a few
//! hundred bytes.
//!
//! It is done a slice at a time. When nobody waits for it any more, no further slice begins; and
//! for each slice a client waits for its turn, so that one with many large files keeps the others
//! waiting for no longer than a slice takes.

use super::client::blocking;
use super::error::Fault;
use super::message::{Entry, Held};
use super::sparse::{Run, Runs, hash_zeros};
use super::stream::{BLOCK_BYTES, Content};
use blake3::Hasher;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is hashed in one go: within a second even from a slow disk, and long enough to be worth a
/// change of threads.
pub(super) const SLICE_BYTES: u64 = 8 * 1024 * 1024;
/// Slices that one client has hashed at once.
const OF_CLIENT_MAX: usize = 2;
/// Slices that a server hashes at once, for all clients: processors are for other things too.
const IN_ALL_MAX: usize = 4;

/// The turns of all clients of a server.
#[derive(Clone, Debug)]
pub(super) struct AllTurns(Arc<Semaphore>);

/// The turns of a client.
#[derive(Debug)]
pub(super) struct Turns {
    client: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// A turn, until dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _of_client: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Default for AllTurns {
    fn default() -> Self {
        AllTurns(Arc::new(Semaphore::new(IN_ALL_MAX)))
    }
}

impl AllTurns {
    /// Whether nothing is hashed for any client, nor will be for those that have been served.
    #[cfg(test)]
    pub(super) fn are_free(&self) -> bool {
        self.0.available_permits() == IN_ALL_MAX
    }

    /// Those of one more client.
    pub(super) fn client(&self) -> Turns {
        Turns { client: Arc::new(Semaphore::new(OF_CLIENT_MAX)), all: self.0.clone() }
    }
}

impl Turns {
    /// Waits for a turn, first among the client's own. Waiting flows have their turns in the order
    /// of their arrival.
    pub(super) async fn next(&self) -> io::Result<Turn> {
        let own = self.client.clone().acquire_owned().await.map_err(io::Error::other)?;
        let all = self.all.clone().acquire_owned().await.map_err(io::Error::other)?;
        Ok(Turn { _of_client: own, _of_all: all })
    }
}

/// Hashes the first `bytes` of a file; returns how many there were.
/// `turns` are those of the client on whose behalf it is done; without any, it is done for the user
/// of this program.
pub(super) async fn hash_prefix(
    file: File,
    bytes: u64,
    name: &[u8],
    turns: Option<&Turns>,
) -> Result<(File, Hasher, u64), Fault> {
    let (mut source, mut hasher) = ((Runs::of(&file), file), Hasher::new());
    let mut done = 0;
    while done < bytes {
        let slice = SLICE_BYTES.min(bytes - done);
        let turn = match turns {
            Some(turns) => Some(turns.next().await.map_err(|e| Fault::io(name, &e))?),
            None => None,
        };
        let path = name.to_vec();
        let hashed;
        (source, hasher, hashed) = blocking(move || {
            let hashed = hash_slice(&mut source, done, slice, &mut hasher);
            Ok((source, hasher, hashed.map_err(|e| Fault::io(&path, &e))?))
        })
        .await?;
        drop(turn);
        done += hashed;
        if hashed < slice {
            break;
        }
    }
    Ok((source.1, hasher, done))
}

/// The content of an open file after what the receiver holds, if that is a prefix of it.
pub(super) async fn content_after(
    file: File,
    entry: Entry,
    held: Option<Held>,
    turns: Option<&Turns>,
) -> Result<Content, Fault> {
    let Some(held) = held.filter(|held| held.bytes <= entry.size) else {
        return Ok(Content { file, entry, from: 0, hasher: Hasher::new() });
    };
    let (file, hasher, bytes) = hash_prefix(file, held.bytes, &entry.path, turns).await?;
    if bytes == held.bytes && *hasher.finalize().as_bytes() == held.hash {
        return Ok(Content { file, entry, from: bytes, hasher });
    }
    Ok(Content { file, entry, from: 0, hasher: Hasher::new() })
}

/// Hashes this many bytes of a file from `start` on; fewer if it ends before.
fn hash_slice(
    (runs, file): &mut (Runs, File),
    start: u64,
    bytes: u64,
    hasher: &mut Hasher,
) -> io::Result<u64> {
    let mut block = vec![0; BLOCK_BYTES];
    let (mut at, end) = (start, start.saturating_add(bytes));
    while at < end {
        let run = match runs.next(file, at, end)? {
            // Beyond the end of a file that has become shorter there is a hole too.
            Run::Hole(bytes) if at + bytes <= file.metadata()?.len() => {
                hash_zeros(hasher, bytes);
                at += bytes;
                continue;
            }
            Run::Data(bytes) | Run::Hole(bytes) => bytes,
        };
        let want = usize::try_from(run).map_or(BLOCK_BYTES, |run| run.min(BLOCK_BYTES));
        match file.read_at(block.get_mut(..want).unwrap_or_default(), at)? {
            0 => break,
            n => {
                hasher.update(block.get(..n).unwrap_or_default());
                at += n as u64;
            }
        }
    }
    Ok(at - start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn slices_make_the_hash_of_the_whole() {
        let data: Vec<u8> = (0..2 * SLICE_BYTES + 7).map(|i| (i % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&data).unwrap();
        let turns = AllTurns::default().client();
        for (bytes, expected) in [(0, 0), (5, 5), (SLICE_BYTES, SLICE_BYTES), (u64::MAX, data.len() as u64)] {
            let file = file.try_clone().unwrap();
            let (_, hasher, done) = hash_prefix(file, bytes, b"f", Some(&turns)).await.unwrap();
            assert_eq!(done, expected);
            assert_eq!(hasher.finalize(), blake3::hash(&data[..expected as usize]));
        }
    }

    #[tokio::test]
    async fn a_client_has_few_turns_at_once_and_leaves_some_to_others() {
        let all = AllTurns::default();
        let (greedy, modest) = (all.client(), all.client());
        let held = [greedy.next().await.unwrap(), greedy.next().await.unwrap()];
        let mut third = Box::pin(greedy.next());
        assert!(is_pending(&mut third).await, "a third turn at once");
        drop(modest.next().await.unwrap());
        drop(held);
        drop(third.await.unwrap());
        let others: Vec<Turns> = (0..IN_ALL_MAX).map(|_| all.client()).collect();
        let mut held = Vec::new();
        for turns in &others {
            held.push(turns.next().await.unwrap());
        }
        let mut one_more = Box::pin(modest.next());
        assert!(is_pending(&mut one_more).await, "more turns than there are");
        held.pop();
        drop(one_more.await.unwrap());
    }

    async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())
        })
        .await
    }
}
