//! Reception of files by the server.

use super::{Flow, Service, file_target};
use crate::WriteShared;
use crate::claim::Claim;
use crate::error::{Fault, FaultKind};
use crate::hidden;
use crate::intake::{Received, receive_content};
use crate::message::Entry;
use crate::part::{Part, Terms};
use crate::path::RelPath;
use crate::small::{self, Small};
use crate::store::store;
use crate::stream::{Drain, Moved, drain};
use crate::work::at_work;
use std::io;
use tokio::io::{AsyncRead, AsyncWriteExt};
use uts_ledger::{Charge, Resource};

impl Service {
    /// Receives a file, of which the content begins at `from`; without that it is a stream.
    pub(super) async fn receive_file<S, R>(
        &self,
        flow: &mut Flow<S, R>,
        entry: Entry,
        from: Option<u64>,
    ) -> io::Result<()>
    where
        S: WriteShared,
        R: AsyncRead + Unpin + Send,
    {
        // The part; and its note, for a moment.
        let _file = flow.place(Resource::Files).await?;
        let (part, _old) = match self.open_part(flow, &entry, from).await {
            Ok(opened) => opened,
            Err(fault) => {
                flow.refuse(fault).await?;
                return drain(&mut flow.recv, Drain::AtChunk).await;
            }
        };
        let superseded = part.superseded();
        let beside = flow.charged() - flow.recv.charged();
        let mut size = if from.is_some() { entry.size } else { 0 };
        flow.progress.began(&entry.path, size, from.unwrap_or(0));
        let mut observe = |moved: Moved| {
            if from.is_none() {
                size = size.saturating_add(moved.bytes);
            }
            flow.progress.moved(&entry.path, moved.bytes);
        };
        let payer = &flow.session.payer;
        let _kept = payer.keep(Resource::Memory, beside);
        let received = receive_content(&mut flow.recv, part, &mut observe, superseded, payer).await?;
        flow.answer_received(&entry.path, size, received).await
    }

    async fn open_part<S, R>(
        &self,
        flow: &mut Flow<S, R>,
        entry: &Entry,
        from: Option<u64>,
    ) -> Result<(Part, Option<Charge>), Fault>
    where
        S: WriteShared,
        R: AsyncRead + Unpin + Send,
    {
        let target = self.admit(entry)?;
        let (basis, place) = flow.differences.told_of(&target).unzip();
        let offered = flow.offers.remove(&target);
        let prefix = match (from.unwrap_or(0), offered) {
            (0, _) => None,
            (from, Some((prefix, _))) if prefix.held.bytes == from && from <= entry.size => Some(prefix),
            _ => {
                let why = "content that begins where nothing was offered";
                return Err(Fault::new(FaultKind::Protocol, target.as_bytes(), why));
            }
        };
        let client = &flow.session.client;
        let claim = Some(self.claims.take(&target, client).await?);
        let (by, payer) = (client.key.clone(), Some(flow.session.payer.clone()));
        let is_stream = from.is_none();
        let terms = Terms { modes: flow.modes, by, claim, payer, is_stream, basis };
        let (tree, entry) = (self.tree.clone(), entry.clone());
        let opened = move || Part::open(&tree, &target, &entry, prefix, terms);
        Ok((at_work(&flow.session.payer, opened).await?, place))
    }

    /// Where a file goes, if it is taken.
    fn admit(&self, entry: &Entry) -> Result<RelPath, Fault> {
        self.writable()?;
        if !self.options.hidden {
            hidden::check(&entry.path)?;
        }
        file_target(entry)
    }

    /// Receives all of a small file, to be stored with the next of them.
    pub(super) async fn receive_small<S, R>(
        &self,
        flow: &mut Flow<S, R>,
        entry: Entry,
        memory: Charge,
    ) -> io::Result<()>
    where
        S: WriteShared,
        R: AsyncRead + Unpin + Send,
    {
        if flow.group.is_due_before(entry.size, &mut flow.recv).await {
            self.settle(flow).await?;
            flow.send.flush().await?;
        }
        let (target, claim) = match self.claim_small(flow, &entry).await? {
            Ok(claimed) => claimed,
            Err(fault) => {
                self.settle(flow).await?;
                flow.refuse(fault).await?;
                return drain(&mut flow.recv, Drain::AtChunk).await;
            }
        };
        flow.progress.began(&entry.path, entry.size, 0);
        let mut observe = |moved: Moved| flow.progress.moved(&entry.path, moved.bytes);
        let superseded = Some(claim.superseded());
        let received = small::receive(&mut flow.recv, &target, entry.size, &mut observe, superseded).await?;
        match received {
            Ok(content) => {
                let about = (entry.path.clone(), entry.size);
                let (tree, by) = (self.tree.clone(), flow.session.client.key.clone());
                let modes = flow.modes;
                let small = Small { tree, target, entry, modes, by, content, claim: Some(claim), memory };
                flow.group.push(small, about);
                Ok(())
            }
            Err(received) => {
                self.settle(flow).await?;
                flow.answer_received(&entry.path, entry.size, received).await
            }
        }
    }

    /// The right to receive a small file. Other flows may wait for those that this flow has.
    async fn claim_small<S, R>(
        &self,
        flow: &mut Flow<S, R>,
        entry: &Entry,
    ) -> io::Result<Result<(RelPath, Claim), Fault>>
    where
        S: WriteShared,
        R: AsyncRead + Unpin + Send,
    {
        let target = match self.admit(entry) {
            Ok(target) => target,
            Err(fault) => return Ok(Err(fault)),
        };
        flow.offers.remove(&target);
        let free = self.claims.take_free(&target, &flow.session.client);
        let claim = match free {
            Some(claim) => Ok(claim),
            None => {
                self.settle(flow).await?;
                self.claims.take(&target, &flow.session.client).await
            }
        };
        Ok(claim.map(|claim| (target, claim)))
    }

    /// Stores the small files that have arrived, and answers.
    pub(super) async fn settle<S, R>(&self, flow: &mut Flow<S, R>) -> io::Result<()>
    where
        S: WriteShared,
        R: AsyncRead + Unpin + Send,
    {
        if flow.group.files.is_empty() {
            return Ok(());
        }
        let _kept = flow.session.payer.keep(Resource::Memory, flow.charged());
        for ((path, size), stored) in store(&flow.session.payer, flow.group.take()).await {
            let received = match stored {
                Ok(hash) => Received::Stored(hash),
                Err(fault) => Received::Failed(fault, None),
            };
            flow.answer_received(&path, size, received).await?;
        }
        Ok(())
    }
}
