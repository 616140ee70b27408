//! A UTS connection as the carrier of files.

use super::{Flows, WriteShared};
use bytes::Bytes;
use std::io;
use uts::{CloseReason, Connection, FlowOptions, RecvFlow, SendFlow};

impl WriteShared for SendFlow {
    async fn write_shared(&mut self, data: Bytes) -> io::Result<()> {
        Ok(self.write_bytes(data).await?)
    }

    async fn granted(&mut self, least: usize, ahead: usize) -> io::Result<usize> {
        let granted = SendFlow::granted(self, least as u64, ahead as u64).await?;
        Ok(usize::try_from(granted).unwrap_or(usize::MAX))
    }
}

impl Flows for Connection {
    type Send = SendFlow;
    type Recv = RecvFlow;

    async fn open(&self) -> io::Result<(SendFlow, RecvFlow)> {
        match self.open_flow(FlowOptions::default()).await {
            Ok(flow) => Ok(flow.split()),
            Err(reason) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, reason)),
        }
    }

    async fn accept(&self) -> io::Result<Option<(SendFlow, RecvFlow)>> {
        if let Some(flow) = self.accept_flow().await {
            return Ok(Some(flow.split()));
        }
        match self.closed().await {
            CloseReason::Local { .. } | CloseReason::Peer { code: 0, .. } => Ok(None),
            reason => Err(io::Error::new(io::ErrorKind::ConnectionAborted, reason)),
        }
    }
}
