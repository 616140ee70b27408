//! UTS for C: the functions that `uts.h` declares.
//!
//! A handle is a key of one table, never an address, so that a wrong one is an error and no more
//! ([`handles`]). Every function passes one border ([`border`]), which keeps panics in and turns
//! errors into codes and text. What waits does so by one function ([`waiting`]): for good, for so
//! long, or not at all, and then an entry in the context's queue ([`queue`]) says when to call
//! again.
//!
//! `docs/c.md` is the guide. `include/uts.h` is made from this crate: a test compares.
#![allow(unsafe_code, reason = "C hands over addresses: each is read at the border, by `memory` alone")]
#![allow(rustdoc::broken_intra_doc_links, reason = "texts of the header have addresses in brackets")]
#![allow(non_camel_case_types, reason = "the names of types are those of the header")]

mod border;
mod code;
mod connection;
mod context;
mod event;
mod explain;
mod flow;
mod handles;
mod listener;
mod memory;
mod options;
mod property;
mod queue;
mod stats;
mod waiting;

pub use border::{uts_code_name, uts_error, uts_version};
pub use code::uts_code;
pub use connection::*;
pub use context::{uts_context, uts_context_fd, uts_context_new, uts_poll};
pub use event::{uts_event, uts_event_kind, uts_next_event};
pub use explain::{uts_explain, uts_path};
pub use flow::*;
pub use handles::{uts_close, uts_set_user, uts_user};
pub use listener::{uts_accept, uts_listen, uts_listener};
pub use options::{uts_options, uts_options_new};
pub use property::{uts_get, uts_known_hosts_add, uts_set};
pub use queue::{uts_entry, uts_operation};
pub use stats::{uts_get_stats, uts_stats};

#[doc(hidden)]
pub use border::plant_panic;
#[doc(hidden)]
pub use handles::open_handles;
