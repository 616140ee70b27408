//! Changes that are not a file's content.

use super::Service;
use crate::error::{Fault, FaultKind};
use crate::message::{Kind, Reply, Request};
use crate::modes::Modes;
use crate::part::{end_copy, make_directory};
use crate::path::RelPath;
use crate::remove::remove;
use crate::tree::Tree;

impl Service {
    /// Says whether a change is allowed.
    pub(super) fn may(&self, change: &Request) -> Result<(), Fault> {
        match change {
            Request::Remove { .. } => self.deletable(),
            _ => self.writable(),
        }
    }

    pub(super) fn deletable(&self) -> Result<(), Fault> {
        self.writable()?;
        if !self.options.delete {
            let why = "this server lets nobody delete (it lets clients by --delete)";
            return Err(Fault::new(FaultKind::Permission, b"", why));
        }
        Ok(())
    }
}

/// Carries out a change that is not a file's content.
pub(super) fn apply(tree: &Tree, change: Request, modes: Modes) -> Result<Reply, Fault> {
    match change {
        Request::MakeDirectory { entry, copy_of } => {
            let path = RelPath::parse(&entry.path)?;
            make_directory(tree, &path, copy_of.as_deref())?;
        }
        Request::Attributes { entry, complete } => {
            let path = RelPath::parse(&entry.path)?;
            tree.set_attributes(&path, &entry, modes)?;
            if complete && !path.is_root() {
                end_copy(tree, &path)?;
            }
        }
        Request::MakeLink { entry, top } => {
            let path = RelPath::parse(&entry.path)?;
            let Kind::Link(target) = &entry.kind else {
                return Err(Fault::new(FaultKind::Special, path.as_bytes(), "is not a symbolic link"));
            };
            tree.make_link(&path, target, &RelPath::parse(&top)?)?;
        }
        Request::Remove { entry, goal } => remove(tree, &RelPath::parse(&goal)?, &entry)?,
        Request::Stat { .. }
        | Request::List { .. }
        | Request::Get { .. }
        | Request::Offer(_)
        | Request::Sums { .. }
        | Request::Known { .. }
        | Request::PreserveModes
        | Request::Compress
        | Request::MayRemove
        | Request::Stream(_)
        | Request::Put { .. } => {
            return Err(Fault::new(FaultKind::Protocol, b"", "not a change"));
        }
    }
    Ok(Reply::Done)
}
