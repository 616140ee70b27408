//! Options and report of a copy, shared by both directions.

use super::Flows;
use super::batch::Conversation;
use super::error::{Fault, FaultKind, FileError};
use super::exclude::Exclude;
use super::journal::Progress;
use super::message::{Hash, Mtime, Reply, Request};
use super::path::{RelPath, show};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use uts_ledger::{Budget, Ledger};

/// Bytes of a listing that a client holds at most, unless told otherwise: as much as the budget of
/// a process, or a million files with names of 60 bytes.
pub const LISTING_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Time that a file is waited for while somebody else is copying it, unless told otherwise.
pub const BUSY_PATIENCE: Duration = Duration::from_secs(600);

/// Options of a copy.
#[derive(Clone)]
pub struct CopyOptions {
    /// Directories with everything in them.
    pub recursive: bool,
    /// Symbolic links in directories are copied if they lead to within the copy; otherwise they are
    /// left out with a warning.
    pub links: bool,
    /// Things that are neither copied nor to be missed, as devices and links without `links`, are
    /// left out without a warning.
    pub skip_special: bool,
    /// Patterns of entries that are left out of directories.
    pub exclude: Exclude,
    /// Things at the goal that are not at the source are deleted, if all of that has been read and
    /// copied; a server takes part in this if it lets its clients.
    pub delete: bool,
    /// Nothing is changed: what would be copied, and deleted, is told.
    pub dry_run: bool,
    /// Time that a file is waited for while another copy is receiving it; then it has failed.
    pub busy_patience: Duration,
    /// The report of the same copy as far as it came over an earlier connection. What that has put
    /// in place is not asked about again, unless its source has another size or time now.
    pub earlier: Option<Arc<Report>>,
    /// Modes are set as those of the sources, whatever the umask; a server takes part in this if it
    /// lets its clients.
    pub preserve_mode: bool,
    /// Files are sent whole where another file stands under the name, and not as the difference.
    pub whole_files: bool,
    /// Content is compressed on its way where that pays.
    pub compress: bool,
    /// Flows at work at once, at least 1.
    pub flows: usize,
    /// Bytes that may be held of a server's listing; a server that lists more breaks the copy off.
    pub listing_bytes_max: u64,
    /// Ledger that is charged for what is held of a copy while it runs.
    pub ledger: Ledger,
    /// Listener to the progress of the copy.
    pub progress: Arc<dyn Progress>,
}

impl Default for CopyOptions {
    fn default() -> Self {
        CopyOptions {
            recursive: false,
            links: false,
            skip_special: false,
            exclude: Exclude::default(),
            delete: false,
            dry_run: false,
            busy_patience: BUSY_PATIENCE,
            earlier: None,
            preserve_mode: false,
            whole_files: false,
            compress: false,
            flows: 16,
            listing_bytes_max: LISTING_BYTES_MAX,
            ledger: Ledger::of_client(&Budget::of_process()),
            progress: Arc::new(super::NoProgress),
        }
    }
}

/// A file that stands under its name, as its source is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InPlace {
    /// As the user calls it.
    pub name: Vec<u8>,
    /// Its size, in bytes.
    pub size: u64,
    /// Its time of change.
    pub mtime: Mtime,
    /// The hash of its content; `None` = a dry run has not asked for it.
    pub hash: Option<Hash>,
    /// It was there already.
    pub was_there: bool,
}

/// Fate of a destination that was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It was copied into: a directory that was there.
    Into,
    /// The copy has this name.
    As,
}

/// Results of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files copied in full or completed.
    pub files_copied: u64,
    /// Files that were there already.
    pub files_already_there: u64,
    /// Directories made or updated.
    pub directories: u64,
    /// Symbolic links made.
    pub links: u64,
    /// Content now in place, in bytes.
    pub bytes: u64,
    /// Content that crossed the connection, in bytes.
    pub bytes_carried: u64,
    /// Content that was sent, in bytes: more than was carried where it was compressed.
    pub bytes_literal: u64,
    /// Content that its receiver had in another version of the file, in bytes.
    pub bytes_matched: u64,
    /// All files now in place, by name.
    pub in_place: Vec<InPlace>,
    /// Files that a dry run would have copied.
    pub files_wanted: u64,
    /// Their content, in bytes.
    pub bytes_wanted: u64,
    /// Files, links and directories of the goal that were deleted.
    pub deleted: u64,
    /// Files, links and directories that a dry run would have deleted.
    pub superfluous: u64,
    /// Number of things that were not copied, or not deleted.
    pub failed: u64,
    /// Things that were not copied, and the reasons: the first [`TOLD_MAX`](super::TOLD_MAX).
    pub failures: Vec<(Vec<u8>, FileError)>,
    /// Number of things that were left out.
    pub warned: u64,
    /// Things that were left out: the first [`TOLD_MAX`](super::TOLD_MAX).
    pub warnings: Vec<Fault>,
    /// Why the copy ended before everything was tried.
    pub broken: Option<FileError>,
    /// Files that were on their way when the copy was broken off.
    pub interrupted: Vec<Vec<u8>>,
    /// Fate of the destination, once that is known. A copy that goes on does the same, whatever is
    /// there by then.
    pub placement: Option<Placement>,
}

impl Report {
    /// True if everything is in place.
    pub fn is_complete(&self) -> bool {
        self.failed == 0 && self.broken.is_none()
    }

    /// One hash for all: of a single file its own, of several that of the lines `HASH  NAME\n`, as
    /// `b3sum` writes them.
    pub fn hash(&self) -> Option<String> {
        let hex = |hash: Hash| blake3::Hash::from_bytes(hash).to_hex();
        match &self.in_place[..] {
            [] => None,
            [only] => only.hash.map(|hash| hex(hash).to_string()),
            several => {
                let mut all = blake3::Hasher::new();
                for file in several {
                    all.update(format!("{}  {}\n", hex(file.hash?), show(&file.name)).as_bytes());
                }
                Some(all.finalize().to_hex().to_string())
            }
        }
    }
}

/// Refuses sources that would be copied to the same name. For each source: the name that it gets,
/// if it gets one of its own, and what the user calls it. The names are in `directory`.
pub(super) fn once_each<'a>(
    directory: &[u8],
    names: impl IntoIterator<Item = (Option<&'a [u8]>, &'a [u8])>,
) -> Result<(), FileError> {
    let mut seen = BTreeMap::new();
    for (target, source) in names {
        let Some(target) = target else { continue };
        if let Some(other) = seen.insert(target, source) {
            let why = format!(
                "{} and {} would both be copied to this name; nothing was copied",
                show(other),
                show(source)
            );
            let place: &[&[u8]] = if directory.is_empty() { &[target] } else { &[directory, b"/", target] };
            return Err(local(FaultKind::Exists, &place.concat(), &why));
        }
    }
    Ok(())
}

/// Bytes that an entry of a listing takes at a client, besides its text: as a file its name and
/// hash in the report, as a directory or link the attributes that are to be set at the end.
const ENTRY_BYTES: u64 = 200;

/// Bytes that are held of a server's listing, and their bound.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    bytes: u64,
    max: u64,
}

impl Held {
    pub(super) fn new(max: u64) -> Held {
        Held { bytes: 0, max }
    }

    /// Counts an entry with this many bytes of text.
    pub(super) fn count(&mut self, text_bytes: usize) -> Result<(), FileError> {
        self.bytes = self.bytes.saturating_add(ENTRY_BYTES + text_bytes as u64);
        if self.bytes > self.max {
            return Err(FileError::Protocol(format!("a listing that takes more than {} bytes", self.max)));
        }
        Ok(())
    }
}

/// State of a path of the server.
pub(super) struct Status {
    /// `None` = nothing.
    pub(super) entry: Option<super::message::Entry>,
    /// The name of its source, if it is the unfinished copy of a directory.
    pub(super) copy_of: Option<Vec<u8>>,
    /// The server shows hidden files.
    pub(super) shows_hidden: bool,
}

/// Asks for the state of a path.
pub(super) async fn stat<F: Flows>(flow: &mut Conversation<F>, path: &RelPath) -> Result<Status, FileError> {
    match flow.ask(&Request::Stat { path: path.as_bytes().to_vec() }).await? {
        Reply::Status { entry, copy_of, shows_hidden } => Ok(Status { entry, copy_of, shows_hidden }),
        other => Err(unexpected(other)),
    }
}

/// The error that a reply stands for which is not the one asked for.
pub(super) fn unexpected(reply: Reply) -> FileError {
    match reply {
        Reply::Fault(fault) => FileError::Peer(fault),
        _ => FileError::Protocol("an answer to another question".into()),
    }
}

pub(super) fn local(kind: FaultKind, path: &[u8], why: &str) -> FileError {
    FileError::Local(Fault::new(kind, path, why))
}

/// Runs what blocks on a thread that may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Fault::new(FaultKind::Io, b"", error.to_string())),
    }
}
