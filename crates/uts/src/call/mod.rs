//! Remote procedure calls. A call is a flow: its request and its answer are streams of messages, of
//! any length and number. Other calls of the connection do not wait for it. (spec/calls.md)
//!
//! A [`Caller`] makes calls. [`Methods`] serve them, by name. A call runs **at most once**: it is
//! made again only where it is known not to have run, or where the caller says that it may run
//! twice ([`CallOptions::is_idempotent`]). A call that has no answer ends with a [`CallError`],
//! which says whether it may have run. A call that is dropped is cancelled at the server, and so is
//! one whose deadline passes.
//!
//! Threads without a runtime have [`crate::blocking::call`].
//!
//! Messages are bytes. `…_value` carries values of serde, in postcard's form.
//!
//! ```
//! use bytes::Bytes;
//! use uts::call::{CallOptions, Caller, Methods};
//! use uts::{ConnectOptions, Identity, Listener, ServerOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ServerOptions::new(Identity::generate()?);
//! let listener = Listener::bind("127.0.0.1:0".parse()?, server)?;
//! let target = listener.local_addr().to_string();
//! let caller = Caller::to(target, ConnectOptions::pinned(listener.fingerprint()));
//!
//! let methods = Methods::new().on_value("add", |(a, b): (u32, u32)| async move { Ok(a + b) });
//! tokio::spawn(async move {
//!     while let Some(connection) = listener.accept().await {
//!         tokio::spawn(methods.clone().serve(connection));
//!     }
//! });
//!
//! let sum: u32 = caller.call_value("add", &(3_u32, 4_u32), &CallOptions::default()).await?;
//! assert_eq!(sum, 7);
//! # Ok(())
//! # }
//! ```
//!
//! * [`wire`]: bytes; [`body`]: halves of a call; [`value`]: values in messages;
//! * [`client`], [`server`]: the two ends; [`early`]: calls before there is a connection;
//!   [`error`]: how calls end; [`running`]: where they run that are served.

mod body;
mod client;
mod early;
mod error;
mod running;
mod server;
#[cfg(test)]
mod tests;
mod value;
pub mod wire;

pub use body::{MessageReader, MessageWriter, Part, RecvError, SendError};
pub use client::{Call, CallAnswer, CallOptions, CallRequest, Caller};
pub use error::{CallError, CallErrorKind, Failure};
pub use server::{Answer, Methods, Served};
pub use value::ValueError;
#[cfg(unix)]
pub(crate) use value::encode;
pub use wire::{Breach, METHOD_BYTES_MAX, Refusal, TEXT_BYTES_MAX};

use core::num::NonZeroU32;

/// The longest message that is gathered, unless a user says otherwise: 1 MiB.
const MESSAGE_MAX: usize = 1 << 20;
/// Tries of a call, unless a user says otherwise.
const CALL_TRIES: NonZeroU32 = NonZeroU32::new(4).expect("not 0");
