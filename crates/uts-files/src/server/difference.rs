//! Files that are told by what their receiver has of another version ([`crate::delta`]).

use super::{Flow, Service, failure};
use crate::WriteShared;
use crate::delta::{Basis, Known, SUMS_PER_FRAME};
use crate::error::Fault;
use crate::message::{Reply, Sum, invalid};
use crate::path::RelPath;
use std::fs::File;
use std::io;
use tokio::io::AsyncRead;
use uts_ledger::{Charge, Payer, Resource};

/// Pieces of files that the two ends of a flow have told each other.
#[derive(Default)]
pub(super) struct Differences {
    /// The file of which the client was told the pieces last, and its place.
    told: Option<(RelPath, File, Charge)>,
    /// Pieces that the client has of the file that it asks for next.
    known: Option<(Vec<u8>, Known)>,
}

impl Differences {
    /// The file of which the client was told the pieces, if it is this, and its place.
    pub(super) fn told_of(&mut self, target: &RelPath) -> Option<(File, Charge)> {
        let (_, file, place) = self.told.take_if(|(told, ..)| told == target)?;
        Some((file, place))
    }

    /// Pieces that the client has of the file that it asks for now.
    pub(super) fn known_of(&mut self, path: &[u8]) -> Option<Known> {
        self.known.take().filter(|(of, _)| of == path).map(|(_, known)| known)
    }

    /// Memory that they take, in bytes.
    pub(super) fn charged(&self) -> usize {
        self.known.as_ref().map_or(0, |(_, known)| known.charged())
    }

    fn know(&mut self, path: Vec<u8>, average: u32, sums: Vec<Sum>, payer: &Payer) -> Result<(), Fault> {
        let (_, known) = match self.known.take_if(|(of, _)| *of == path) {
            Some(known) => self.known.insert(known),
            None => self.known.insert((path, Known::new(average))),
        };
        known.add(sums, payer)
    }
}

impl Service {
    /// Tells the pieces of a file that is to be replaced, and remembers it.
    pub(super) async fn tell_sums<S, R>(&self, flow: &mut Flow<S, R>, path: Vec<u8>) -> io::Result<()>
    where
        S: WriteShared,
        R: AsyncRead + Unpin + Send,
    {
        let (payer, charged) = (flow.session.payer.clone(), flow.charged());
        let read = async {
            self.writable()?;
            let kept = payer.keep(Resource::Memory, charged);
            let place = payer.wait(Resource::Files, 1, 1).await;
            drop(kept);
            let target = RelPath::parse(&path)?;
            let basis = Basis::read(&self.tree, &target, &payer).await?;
            Ok((target, basis, place))
        };
        let read = tokio::select! {
            read = read => read,
            error = failure(&mut flow.recv, &flow.pulse) => return Err(error),
        };
        let (target, basis, place) = match read {
            Ok(read) => read,
            Err(fault) => return flow.reply(&Reply::Fault(fault)).await,
        };
        let Basis { file, average, sums } = basis;
        flow.differences.told = Some((target, file, place));
        for sums in sums.chunks(SUMS_PER_FRAME) {
            flow.reply(&Reply::Sums { average, sums: sums.to_vec() }).await?;
        }
        flow.reply(&Reply::Done).await
    }
}

impl<S: WriteShared, R: AsyncRead + Unpin + Send> Flow<S, R> {
    /// Notes pieces that the client has of the file that it asks for next.
    pub(super) fn know(&mut self, path: Vec<u8>, average: u32, sums: Vec<Sum>) -> io::Result<()> {
        let known = self.differences.know(path, average, sums, &self.session.payer);
        known.map_err(|fault| invalid(fault.why))
    }
}
