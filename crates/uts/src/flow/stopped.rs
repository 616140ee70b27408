//! The end of the peer's interest in what this end sends in a flow.

use super::send::failure;
use super::{WriteError, drop_half, keep};
use crate::connection::Connection;
use core::task::Poll;
use std::future::poll_fn;
use uts_engine::FlowId;

/// Waits for the peer to want no more of a half that this end sends, whoever writes to it
/// ([`SendFlow::stopped`](super::SendFlow::stopped)).
#[derive(Debug)]
pub struct Stopped {
    connection: Connection,
    id: FlowId,
}

impl Stopped {
    pub(super) fn new(connection: Connection, id: FlowId) -> Self {
        connection.shared().act(|inner, _| {
            if let Some(flow) = inner.flow(connection.handle(), id) {
                flow.halves += 1;
            }
        });
        Stopped { connection, id }
    }

    /// Waits. Ready as well once all was acknowledged, which is no error. Nothing is lost if the
    /// wait is given up. Of several for one half, the last that waits is woken.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn wait(&mut self) -> Result<(), WriteError> {
        let (handle, id) = (self.connection.handle(), self.id);
        poll_fn(|cx| {
            self.connection.shared().act(|inner, _| {
                let ended = inner.ended(handle);
                let Some(flow) = inner.flow(handle, id) else {
                    return Poll::Ready(Err(WriteError::Finished));
                };
                match (failure(flow), flow.is_finished, ended) {
                    (Some(error), ..) => Poll::Ready(Err(error)),
                    (_, true, _) => Poll::Ready(Ok(())),
                    (.., Some(reason)) => {
                        Poll::Ready(Err(WriteError::Closed(self.connection.explain(reason))))
                    }
                    _ => {
                        keep(&mut flow.stop_watcher, cx);
                        Poll::Pending
                    }
                }
            })
        })
        .await
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let (handle, id) = (self.connection.handle(), self.id);
        self.connection.shared().act(|inner, _| drop_half(inner, handle, id));
    }
}
