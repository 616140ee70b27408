//! A file service over any reliable byte flows.
//!
//! A client opens flows. On each it sends [`message::MAGIC`], a version, and then requests, one
//! after another. Requests are pipelined: many small files share a round trip, and a big file runs
//! at the speed of its flow, with no round trip per block. Several flows work at once.
//!
//! Received data is written to `.NAME.uts-part` beside the final name, with `.NAME.uts-id` that
//! says which source it is a part of. [`unfinished()`] finds those that were left behind. Only when
//! the BLAKE3 hashes of both ends agree is it synchronised and renamed. Nothing half-written ever
//! stands under a final name, whenever either end is killed. A later copy goes on from the part.
//! Both ends first hash that prefix. If the hashes differ, the copy starts again.
//!
//! Small files that arrive whole have no part: see [`small`] and [`store`].
//!
//! Names from the peer are never trusted: see [`path`] and [`tree`].

mod batch;
mod blocks;
mod buffered;
mod claim;
mod client;
mod connection;
mod delta;
mod error;
mod exclude;
mod fetch;
mod get;
mod hashing;
mod hidden;
mod intake;
mod journal;
mod links;
mod list;
pub mod memory;
pub mod message;
mod mirror;
mod modes;
mod note;
mod packing;
mod part;
pub mod path;
mod put;
mod remove;
mod send;
mod server;
mod sink;
mod small;
mod sparse;
mod store;
mod stream;
mod streams;
mod tree;
mod unfinished;
mod walk;
mod work;
mod workers;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use std::future::Future;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

pub use claim::Client;
pub use client::{BUSY_PATIENCE, CopyOptions, InPlace, LISTING_BYTES_MAX, Placement, Report};
pub use error::{Fault, FaultKind, FileError, WHY_BYTES_MAX};
pub use exclude::Exclude;
pub use get::get;
pub use journal::{FileOutcome, NoProgress, Progress, TOLD_MAX};
pub use list::list;
pub use path::{RelPath, ServerPath};
pub use put::put;
pub use server::{ServeOptions, Service};
pub use streams::{get_stream, put_stream};
pub use unfinished::{Of, Unfinished, unfinished};

/// Bytes that are gathered before they are handed to a flow, and read from it at once, if there is
/// room.
const FLOW_BUFFER_BYTES: usize = 64 * 1024;

/// Stream that bytes are written to.
pub trait WriteShared: AsyncWrite + Unpin + Send {
    /// Writes all of `data`. Who can hold on to shared memory need not copy it, as this does.
    ///
    /// # Errors
    /// As those of `write_all`.
    fn write_shared(&mut self, data: Bytes) -> impl Future<Output = io::Result<()>> + Send {
        async move { self.write_all(&data).await }
    }

    /// Waits until the peer takes `least` bytes more, or nothing is under way to it, and less than
    /// `ahead` bytes wait here to leave; says how many it takes. What it does not take need not be
    /// fetched then. Who does not know says that it takes all.
    ///
    /// # Errors
    /// As those of `write_all`.
    fn granted(&mut self, least: usize, ahead: usize) -> impl Future<Output = io::Result<usize>> + Send {
        let _ = (least, ahead);
        async { Ok(usize::MAX) }
    }
}

/// A connection that carries reliable byte flows in both directions.
pub trait Flows: Send + Sync + 'static {
    /// The half of a flow that is written. `shutdown` ends it in order. If it is dropped before
    /// that, it is reset.
    type Send: WriteShared + 'static;
    /// The half of a flow that is read. End of file is the peer's orderly end; a reset is an error.
    type Recv: AsyncRead + Unpin + Send + 'static;

    /// Opens a flow.
    ///
    /// # Errors
    /// When the connection has ended.
    fn open(&self) -> impl Future<Output = io::Result<(Self::Send, Self::Recv)>> + Send;

    /// Waits for the next flow that the peer opens; `None` when the connection has ended in order.
    ///
    /// # Errors
    /// When the connection has failed.
    fn accept(&self) -> impl Future<Output = io::Result<Option<(Self::Send, Self::Recv)>>> + Send;
}

impl<F: Flows> Flows for Arc<F> {
    type Send = F::Send;
    type Recv = F::Recv;

    async fn open(&self) -> io::Result<(Self::Send, Self::Recv)> {
        F::open(self).await
    }

    async fn accept(&self) -> io::Result<Option<(Self::Send, Self::Recv)>> {
        F::accept(self).await
    }
}
