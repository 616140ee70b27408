//! Flows inside one process, for tests of services and of what uses them.

use super::{Flows, WriteShared};
use std::io;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::{Mutex, mpsc};

/// One end of a pair of connected ends.
#[derive(Debug)]
pub struct MemoryFlows {
    opened: mpsc::UnboundedSender<DuplexStream>,
    offered: Mutex<mpsc::UnboundedReceiver<DuplexStream>>,
    buffer_bytes: usize,
}

/// Two connected ends; each direction of a flow holds `buffer_bytes` before the writer has to wait.
pub fn pair(buffer_bytes: usize) -> (MemoryFlows, MemoryFlows) {
    let (to_b, from_a) = mpsc::unbounded_channel();
    let (to_a, from_b) = mpsc::unbounded_channel();
    let end = |opened, offered| MemoryFlows { opened, offered: Mutex::new(offered), buffer_bytes };
    (end(to_b, from_b), end(to_a, from_a))
}

impl WriteShared for WriteHalf<DuplexStream> {}

impl Flows for MemoryFlows {
    type Send = WriteHalf<DuplexStream>;
    type Recv = ReadHalf<DuplexStream>;

    async fn open(&self) -> io::Result<(Self::Send, Self::Recv)> {
        let (ours, theirs) = duplex(self.buffer_bytes);
        self.opened.send(theirs).map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))?;
        let (recv, send) = split(ours);
        Ok((send, recv))
    }

    async fn accept(&self) -> io::Result<Option<(Self::Send, Self::Recv)>> {
        let stream = self.offered.lock().await.recv().await;
        Ok(stream.map(|stream| {
            let (recv, send) = split(stream);
            (send, recv)
        }))
    }
}
