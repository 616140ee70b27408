//! Expedited messages that the peer sends in a flow.

use super::{ReadError, drop_half, keep};
use crate::connection::Connection;
use bytes::Bytes;
use core::task::Poll;
use std::future::poll_fn;
use uts_engine::FlowId;

/// The expedited messages that the peer sends in a flow ([`MessageOptions::expedited`]). They can
/// be received while nobody reads the flow's data. If it is dropped, no more are wanted.
///
/// [`MessageOptions::expedited`]: crate::MessageOptions::expedited
///
/// ```
/// # async fn example(mut recv: uts::RecvFlow) -> Result<(), uts::ReadError> {
/// if let Some(mut expedited) = recv.take_expedited() {
///     while let Some(signal) = expedited.recv().await? {
///         println!("{signal:?}");
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ExpeditedFlow {
    connection: Connection,
    id: FlowId,
}

impl ExpeditedFlow {
    pub(super) fn new(connection: Connection, id: FlowId) -> Self {
        connection.shared().act(|inner, _| {
            if let Some(flow) = inner.flow(connection.handle(), id) {
                flow.halves += 1;
            }
        });
        ExpeditedFlow { connection, id }
    }

    /// The flow's number in the connection.
    pub fn id(&self) -> FlowId {
        self.id
    }

    /// Waits for the next expedited message; `None` when none can come any more. The peer can send
    /// the one behind it then. Nothing is lost if the wait is given up.
    ///
    /// # Errors
    /// [`ReadError::Closed`].
    pub async fn recv(&mut self) -> Result<Option<Bytes>, ReadError> {
        use uts_engine::ReadError as E;
        let (handle, id) = (self.connection.handle(), self.id);
        poll_fn(|cx| {
            self.connection.shared().act(|inner, _| {
                let read = match inner.connection(handle) {
                    Some(connection) => connection.read_expedited(id),
                    None => Err(E::Unknown),
                };
                if let Ok(message) = read {
                    inner.changed();
                    return Poll::Ready(Ok(Some(message)));
                }
                if let Some(reason) = inner.ended(handle) {
                    return Poll::Ready(Err(ReadError::Closed(self.connection.explain(reason))));
                }
                if read != Err(E::Blocked) {
                    return Poll::Ready(Ok(None));
                }
                if let Some(flow) = inner.flow(handle, id) {
                    keep(&mut flow.expedited, cx);
                }
                Poll::Pending
            })
        })
        .await
    }
}

impl Drop for ExpeditedFlow {
    fn drop(&mut self) {
        let (handle, id) = (self.connection.handle(), self.id);
        self.connection.shared().act(|inner, _| {
            if let Some(connection) = inner.connection(handle) {
                connection.stop_expedited(id);
            }
            inner.changed();
            drop_half(inner, handle, id);
        });
    }
}
