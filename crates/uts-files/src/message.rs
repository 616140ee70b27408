//! The messages of the files protocol, and how they are framed.
//!
//! Each direction of a flow begins with nothing from the server and, from the client, [`MAGIC`] and
//! one byte of [`VERSION`]. Then come frames: length (4 bytes, big-endian, at most
//! [`FRAME_BYTES_MAX`]) and a value in postcard (<https://postcard.jamesmunns.com/wire-format>).
//! Contents of files are not framed but cut into chunks, see [`super::stream`]. No page describes
//! them (V-8).

use super::error::Fault;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The first bytes of every flow of this protocol.
pub const MAGIC: &[u8; 9] = b"uts-files";
/// The version that follows them. Another version is refused, naming both.
pub const VERSION: u8 = 4;
/// The longest frame, in bytes: room for a path, the target of a link, and a little more.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;

/// A BLAKE3 hash of contents.
pub type Hash = [u8; 32];

/// Kind of an entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, and what it points to.
    Link(Vec<u8>),
    /// A device, pipe or socket: never copied.
    Special,
}

/// A moment as file systems have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mtime {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds, below 10^9.
    pub nanoseconds: u32,
}

/// A file, directory or link, with what is kept of it in a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Relative to the root of the server's tree, or to what was listed. Unchecked: see
    /// [`super::RelPath::parse`].
    pub path: Vec<u8>,
    /// Its kind: a file, a directory, a link or something else.
    pub kind: Kind,
    /// Bytes of content; 0 unless a file.
    pub size: u64,
    /// Time of the last change of content.
    pub mtime: Mtime,
    /// Permission bits. A receiver only ever sets 0o777 of them. Unless it was asked to preserve
    /// them, it removes those of its umask.
    pub mode: u32,
}

impl Entry {
    /// True if a file with the size and time of this one is there.
    pub(super) fn seems_to_be(&self, there: &Entry) -> bool {
        there.kind == Kind::File && (there.size, there.mtime) == (self.size, self.mtime)
    }
}

/// The first bytes of the BLAKE3 hash of a piece of a file.
pub type SumHash = [u8; 16];

/// A piece of a file, told by its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Its place in the file.
    pub at: u64,
    /// Its length, in bytes.
    pub bytes: u32,
    /// Its hash.
    pub hash: SumHash,
}

/// A prefix of a file that the receiver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Its length, in bytes.
    pub bytes: u64,
    /// The hash of these bytes.
    pub hash: Hash,
}

/// Properties that are kept of a file besides its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u32,
    /// Time of the last change of content.
    pub mtime: Mtime,
}

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Tell the state of a path. Answer: [`Reply::Status`].
    Stat {
        /// Where.
        path: Vec<u8>,
    },
    /// List this directory. Answer: any number of [`Reply::Found`], then [`Reply::Done`].
    List {
        /// The directory; entries are named relative to it.
        path: Vec<u8>,
        /// With everything below.
        recursive: bool,
    },
    /// Send a file. Answer: [`Reply::Sending`], then its content from there.
    Get {
        /// Which.
        path: Vec<u8>,
        /// Part that the client has of it.
        held: Option<Held>,
    },
    /// Tell the part that the server has of this file. Answer: [`Reply::Have`].
    Offer(Entry),
    /// Here is a file. Its content from byte `from` follows at once. Answer, after that:
    /// [`Reply::Stored`].
    Put {
        /// The file.
        entry: Entry,
        /// Where the content begins that follows: 0, or what [`Reply::Have`] said.
        from: u64,
    },
    /// Make this directory unless it exists. Answer: [`Reply::Done`].
    MakeDirectory {
        /// The directory. Its mode and time are set at the end, by [`Request::Attributes`].
        entry: Entry,
        /// If it is new: the name of the source that it is to become a copy of, kept until the copy
        /// is complete.
        copy_of: Option<Vec<u8>>,
    },
    /// Set mode and time. Answer: [`Reply::Done`].
    Attributes {
        /// Of what, and to what.
        entry: Entry,
        /// The copy of a directory is complete with this.
        complete: bool,
    },
    /// Make this symbolic link. Answer: [`Reply::Done`].
    MakeLink {
        /// The link.
        entry: Entry,
        /// The directory that it must not lead out of.
        top: Vec<u8>,
    },
    /// Here is a file whose length is not known before it ends. Its content follows at once.
    /// Answer, after that: [`Reply::Stored`].
    Stream(
        /// The file; its size says nothing.
        Entry,
    ),
    /// From now on this flow, set modes as they are given, whatever the umask. Answer:
    /// [`Reply::Done`], or a fault if the server does not allow this.
    PreserveModes,
    /// Tell the pieces of the file under this name, to which the content of the next
    /// [`Request::Put`] of it may refer. Answer: any number of [`Reply::Sums`], then
    /// [`Reply::Done`].
    Sums {
        /// Of which file.
        path: Vec<u8>,
    },
    /// Pieces that the client has of the file that it asks for next, to which its content may
    /// refer. There may be several. Without an answer.
    Known {
        /// Of which file.
        path: Vec<u8>,
        /// Mean length by which the file was cut.
        average: u32,
        /// At most 65,536 in all.
        sums: Vec<Sum>,
    },
    /// From now on this flow, compress content where that pays. Answer: [`Reply::Done`].
    Compress,
    /// Tell whether the server lets this client remove what is superfluous. Answer:
    /// [`Reply::Done`], or a fault.
    MayRemove,
    /// Remove what was listed. Answer: [`Reply::Done`].
    Remove {
        /// The thing as it was listed; a directory must be empty.
        entry: Entry,
        /// The directory that is copied to, which it is beneath. From there on no link is followed.
        goal: Vec<u8>,
    },
}

impl Request {
    /// The path that it is about; empty = none, or the directory that is served.
    pub fn path(&self) -> &[u8] {
        match self {
            Request::Stat { path }
            | Request::List { path, .. }
            | Request::Get { path, .. }
            | Request::Sums { path }
            | Request::Known { path, .. } => path,
            Request::Offer(entry)
            | Request::Stream(entry)
            | Request::Put { entry, .. }
            | Request::MakeDirectory { entry, .. }
            | Request::Attributes { entry, .. }
            | Request::MakeLink { entry, .. }
            | Request::Remove { entry, .. } => &entry.path,
            Request::PreserveModes | Request::Compress | Request::MayRemove => &[],
        }
    }
}

/// Answer of a server. Any request may be answered by [`Reply::Fault`] instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It was not done, and why.
    Fault(Fault),
    /// It was done.
    Done,
    /// State of a path.
    Status {
        /// `None` = nothing.
        entry: Option<Entry>,
        /// If it is the unfinished copy of a directory: the name of its source.
        copy_of: Option<Vec<u8>>,
        /// Hidden files are shown as well.
        shows_hidden: bool,
    },
    /// An entry of a listing, or what could not be listed.
    Found(Result<Entry, Fault>),
    /// The content of a file follows.
    Sending {
        /// The file as it is now.
        entry: Entry,
        /// Where the content begins: 0, or the length of what the client holds if the hashes agree.
        from: u64,
    },
    /// Part that the server has of a file.
    Have {
        /// A prefix.
        held: Option<Held>,
        /// If it is a file of the same size under the final name: its other attributes. The mode is
        /// that of the offer if it has what the server would set for that.
        whole: Option<Attributes>,
        /// Length of the file under the final name, in bytes; 0 = there is none.
        there: u64,
    },
    /// Pieces of a file, in their order.
    Sums {
        /// Mean length by which it was cut.
        average: u32,
        /// The pieces.
        sums: Vec<Sum>,
    },
    /// The sender gave up a file, for this reason of its own. The part is kept.
    GivenUp(Fault),
    /// The file stands under its final name.
    Stored {
        /// The hash of all its content.
        hash: Hash,
    },
}

/// Writes one frame. Does not flush.
///
/// # Errors
/// Those of the flow; `InvalidInput` if the value is too long.
pub async fn write_frame<W: AsyncWrite + Unpin, T: Serialize>(flow: &mut W, value: &T) -> io::Result<()> {
    let body = postcard::to_stdvec(value).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).ok().filter(|&n| n as usize <= FRAME_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "message too long"))?;
    flow.write_all(&length.to_be_bytes()).await?;
    flow.write_all(&body).await
}

/// Reads one frame; `None` if the flow ended in order before it.
///
/// # Errors
/// Those of the flow. `InvalidData` if it is too long or not such a value. `UnexpectedEof` if it is
/// cut.
pub async fn read_frame<R: AsyncRead + Unpin, T: DeserializeOwned>(flow: &mut R) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    let mut have = 0;
    while let Some(rest) = length.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match flow.read(rest).await? {
            0 if have == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => have += n,
        }
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(invalid(format!("a message of {length} bytes; the limit is {FRAME_BYTES_MAX}")));
    }
    let mut body = vec![0; length];
    flow.read_exact(&mut body).await?;
    decode(&body).map(Some)
}

/// True if what has arrived of a flow begins with a whole frame.
pub(super) fn frame_is_in(arrived: &[u8]) -> bool {
    let length = arrived.first_chunk().map(|length| u32::from_be_bytes(*length) as usize);
    length.is_some_and(|length| arrived.len().saturating_sub(4) >= length)
}

/// Reads the body of a frame: exactly one value, nothing after it.
///
/// # Errors
/// `InvalidData`.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    let (value, rest) =
        postcard::take_from_bytes(body).map_err(|e| invalid(format!("malformed message: {e}")))?;
    if rest.is_empty() { Ok(value) } else { Err(invalid("bytes after the end of a message".into())) }
}

pub(super) fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FaultKind;
    use proptest::prelude::*;

    fn entry() -> impl Strategy<Value = Entry> {
        let kind = prop_oneof![
            Just(Kind::File),
            Just(Kind::Directory),
            Just(Kind::Special),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(Kind::Link)
        ];
        (
            proptest::collection::vec(any::<u8>(), 0..80),
            kind,
            any::<u64>(),
            any::<i64>(),
            any::<u32>(),
            any::<u32>(),
        )
            .prop_map(|(path, kind, size, seconds, nanoseconds, mode)| Entry {
                path,
                kind,
                size,
                mtime: Mtime { seconds, nanoseconds },
                mode,
            })
    }

    fn request() -> impl Strategy<Value = Request> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..80);
        let held = proptest::option::of(
            (any::<u64>(), any::<Hash>()).prop_map(|(bytes, hash)| Held { bytes, hash }),
        );
        prop_oneof![
            bytes().prop_map(|path| Request::Stat { path }),
            (bytes(), any::<bool>()).prop_map(|(path, recursive)| Request::List { path, recursive }),
            (bytes(), held).prop_map(|(path, held)| Request::Get { path, held }),
            entry().prop_map(Request::Offer),
            (entry(), any::<u64>()).prop_map(|(entry, from)| Request::Put { entry, from }),
            (entry(), proptest::option::of(bytes()))
                .prop_map(|(entry, copy_of)| Request::MakeDirectory { entry, copy_of }),
            (entry(), any::<bool>()).prop_map(|(entry, complete)| Request::Attributes { entry, complete }),
            (entry(), bytes()).prop_map(|(entry, top)| Request::MakeLink { entry, top }),
            entry().prop_map(Request::Stream),
            Just(Request::PreserveModes),
            Just(Request::Compress),
            Just(Request::MayRemove),
            (entry(), bytes()).prop_map(|(entry, goal)| Request::Remove { entry, goal }),
        ]
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    proptest! {
        #[test]
        fn requests_come_back_as_they_were(request in request()) {
            let back = runtime().block_on(async {
                let mut wire = Vec::new();
                write_frame(&mut wire, &request).await.unwrap();
                read_frame::<_, Request>(&mut &wire[..]).await.unwrap()
            });
            prop_assert_eq!(back, Some(request));
        }

        #[test]
        fn garbage_is_an_error_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(request) = decode::<Request>(&bytes) {
                prop_assert!(postcard::to_stdvec(&request).unwrap().len() <= bytes.len());
            }
            let _ = decode::<Reply>(&bytes);
            let _ = runtime().block_on(read_frame::<_, Request>(&mut &bytes[..]));
        }

        #[test]
        fn a_cut_request_is_an_error(request in request(), cut in any::<proptest::sample::Index>()) {
            let outcome = runtime().block_on(async {
                let mut wire = Vec::new();
                write_frame(&mut wire, &request).await.unwrap();
                let keep = 1 + cut.index(wire.len() - 1);
                read_frame::<_, Request>(&mut &wire[..keep]).await.map_err(|e| e.kind())
            });
            prop_assert_eq!(outcome, Err(io::ErrorKind::UnexpectedEof));
        }
    }

    #[test]
    fn a_huge_length_is_refused_before_anything_is_allocated() {
        let error = runtime().block_on(read_frame::<_, Reply>(&mut &[0xFF; 8][..])).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        // A sequence that claims to be longer than the frame.
        assert!(decode::<Request>(&[0, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F]).is_err());
        let fault = Reply::Fault(Fault::new(FaultKind::Io, b"x", "y"));
        let mut body = postcard::to_stdvec(&fault).unwrap();
        assert_eq!(decode::<Reply>(&body).unwrap(), fault);
        body.push(0);
        assert!(decode::<Reply>(&body).is_err());
    }
}
