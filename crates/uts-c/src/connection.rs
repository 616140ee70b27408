//! Connections.

use crate::border::border;
use crate::code::{Failure, Result, uts_code};
use crate::context::{Context, uts_context};
use crate::flow::{Flow, uts_flow};
use crate::handles::{Common, Object, close, find, give};
use crate::memory::{Out, put_text, text, text_if_any};
use crate::options::{kept, uts_options};
use crate::queue::uts_operation;
use crate::waiting::{Begun, Patience, alone};
use core::ffi::{c_char, c_int};
use core::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::task::JoinHandle;
use uts::{CloseReason, ConnectError, ConnectOptions, FlowError};

/// Connection to one peer.
pub struct uts_connection(());

type Attempt = core::result::Result<uts::Connection, ConnectError>;

pub(crate) struct Connection {
    established: OnceLock<uts::Connection>,
    /// Why it never will be.
    failed: Mutex<Option<(uts_code, String)>>,
    attempt: Mutex<Option<JoinHandle<Attempt>>>,
    open_flow: Begun<core::result::Result<uts::Flow, FlowError>>,
    accept_flow: Begun<Option<uts::Flow>>,
    ended: Begun<CloseReason>,
    pub events: Mutex<Option<uts::Events>>,
}

impl Object for Connection {
    const NAME: &'static str = "connection";

    fn on_closed(&self) {
        if let Some(connection) = self.established.get() {
            // What waits to be told is told by the context's thread. Flows that are open hold the
            // connection as well, so it would not end by itself.
            close_at_once(connection, 0, "");
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let attempt = self.attempt.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(attempt) = attempt {
            attempt.abort();
        }
    }
}

/// Closes a connection, without waiting until the peer was told.
fn close_at_once(connection: &uts::Connection, code: u64, reason: &str) {
    let closing = core::pin::pin!(connection.close(code, reason));
    let mut cx = core::task::Context::from_waker(core::task::Waker::noop());
    let _ = closing.poll(&mut cx);
}

impl Connection {
    fn new() -> Self {
        Connection {
            established: OnceLock::new(),
            failed: Mutex::default(),
            attempt: Mutex::default(),
            open_flow: Begun::default(),
            accept_flow: Begun::default(),
            ended: Begun::default(),
            events: Mutex::default(),
        }
    }

    /// One that is established.
    pub fn of(connection: uts::Connection) -> Self {
        let made = Self::new();
        let _ = made.established.set(connection);
        made
    }

    /// One that is begun now.
    fn begun(context: &Context, target: &str, options: ConnectOptions) -> Self {
        let made = Self::new();
        let target = target.to_owned();
        let attempt = context.runtime.spawn(async move { uts::connect(&target, options).await });
        *made.attempt.lock().unwrap_or_else(PoisonError::into_inner) = Some(attempt);
        made
    }

    /// The connection, if it is established.
    pub fn established(&self) -> Option<uts::Connection> {
        self.established.get().cloned()
    }

    /// The connection.
    ///
    /// # Errors
    /// UTS_ENOTCONN, or why it never was established.
    pub fn get(&self) -> Result<&uts::Connection> {
        if let Some(connection) = self.established.get() {
            return Ok(connection);
        }
        match &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((code, text)) => Err(Failure::new(*code, text)),
            None => Err(Failure::new(
                uts_code::UTS_ENOTCONN,
                "the connection is not established yet: uts_connected says when it is",
            )),
        }
    }

    /// Its state, in words.
    pub fn state(&self) -> String {
        match (self.get(), self.established.get()) {
            (_, Some(connection)) => {
                connection.close_reason().map_or_else(|| "open".to_owned(), |reason| reason.to_string())
            }
            (Err(failure), _) if failure.code != uts_code::UTS_ENOTCONN => failure.text,
            _ => "connecting".to_owned(),
        }
    }

    /// Waits until it is established, or never will be.
    fn connected(&self, common: &Arc<Common>, patience: Patience) -> Result<()> {
        if self.established.get().is_some() {
            return Ok(());
        }
        let mut attempt = alone(&self.attempt)?;
        let Some(task) = attempt.as_mut() else { return self.get().map(|_| ()) };
        let done = crate::waiting::wait(common, uts_operation::UTS_ON_CONNECTED, patience, task)?;
        *attempt = None;
        let failure = match done {
            Ok(Ok(connection)) => {
                let _ = self.established.set(connection);
                return Ok(());
            }
            Ok(Err(error)) => Failure::from(error),
            Err(error) if error.is_cancelled() => {
                Failure::new(uts_code::UTS_EHANDLE, "the context was closed while it connected")
            }
            Err(error) => Failure::new(uts_code::UTS_EPANIC, error),
        };
        let kept = (failure.code, failure.text.clone());
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        Err(failure)
    }
}

/// Opens a connection.
///
/// target: "host:port" or "[v6]:port". options: with "pin", "knownHosts" or "roots".
/// timeout_ms: how long to wait; -1 = as long as the handshake may take.
/// connection: where its handle goes. NULL in case of an error, also of UTS_ETIMEDOUT.
/// Returns UTS_OK; with a timeout of 0 UTS_AGAIN, and a handle that uts_connected takes;
/// UTS_EADDRESS, UTS_EUNREACHABLE, UTS_EUNTRUSTED, UTS_EREFUSED, UTS_ECLOSED, UTS_ETIMEDOUT,
/// UTS_EPROPERTY, UTS_ESYSTEM, UTS_EHANDLE or UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_connect(
    context: *mut uts_context,
    target: *const c_char,
    options: *const uts_options,
    connection: *mut *mut uts_connection,
    timeout_ms: c_int,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut out = unsafe { Out::new(connection, ptr::null_mut(), "connection") }?;
        let (_, context) = find::<Context>(context.cast())?;
        // SAFETY: as promised.
        let target = unsafe { text(target, "target") }?;
        let options = kept(options)?.for_client()?;
        let begun = Arc::new(Connection::begun(&context, target, options));
        let common = Common::of::<Connection>(Some(context));
        let handle: *mut uts_connection = give(common.clone(), begun.clone())?;
        match begun.connected(&common, Patience::of(timeout_ms)) {
            Ok(()) => out.set(handle),
            Err(failure) => {
                if failure.code == uts_code::UTS_AGAIN {
                    out.set(handle);
                } else {
                    close(handle.addr());
                }
                return Err(failure);
            }
        }
        Ok(())
    })
}

/// Waits until a connection that uts_connect has begun is established.
///
/// Returns UTS_OK; UTS_AGAIN; UTS_ETIMEDOUT, and it can be called again; or as uts_connect. The
/// handle has to be closed in case of an error as well.
#[unsafe(no_mangle)]
pub extern "C" fn uts_connected(connection: *mut uts_connection, timeout_ms: c_int) -> c_int {
    border(|| {
        let (common, connection) = find::<Connection>(connection.cast())?;
        connection.connected(&common, Patience::of(timeout_ms))
    })
}

/// Opens a flow, which goes both ways. The peer learns of it with the first data on it.
///
/// options: properties of what is sent in it, and "flowPriority"; NULL = as the connection.
/// timeout_ms: how long to wait while the peer allows no more flows.
/// flow: where its handle goes; NULL if there is none.
/// Returns UTS_OK; UTS_AGAIN; UTS_EPROPERTY, UTS_ECLOSED, UTS_ENOTCONN, UTS_ETIMEDOUT, UTS_EHANDLE,
/// UTS_EBUSY or UTS_EINVAL. After UTS_AGAIN and UTS_ETIMEDOUT the next call goes on with the
/// options that were given first.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_open_flow(
    connection: *mut uts_connection,
    options: *const uts_options,
    flow: *mut *mut uts_flow,
    timeout_ms: c_int,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut out = unsafe { Out::new(flow, ptr::null_mut(), "flow") }?;
        let (common, connection) = find::<Connection>(connection.cast())?;
        let inner = connection.get()?;
        let options = kept(options)?.for_flow();
        let requirements = options.requirements.clone();
        let patience = Patience::of(timeout_ms);
        let opened =
            connection.open_flow.go_on(&common, uts_operation::UTS_ON_OPEN_FLOW, patience, || {
                let inner = inner.clone();
                Box::pin(async move { inner.open_flow(options).await })
            })?;
        let flow = Flow::new(inner, opened?, requirements);
        out.set(give(Common::of::<Flow>(common.context.clone()), Arc::new(flow))?);
        Ok(())
    })
}

/// Waits for the next flow that the peer opens.
///
/// timeout_ms: how long to wait; 0 = not at all, -1 = for good.
/// flow: where its handle goes; NULL if there is none.
/// Returns UTS_OK; UTS_AGAIN; UTS_END once the connection has ended; UTS_ENOTCONN, UTS_ETIMEDOUT,
/// UTS_EHANDLE, UTS_EBUSY or UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_accept_flow(
    connection: *mut uts_connection,
    flow: *mut *mut uts_flow,
    timeout_ms: c_int,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut out = unsafe { Out::new(flow, ptr::null_mut(), "flow") }?;
        let (common, connection) = find::<Connection>(connection.cast())?;
        let inner = connection.get()?;
        let patience = Patience::of(timeout_ms);
        let accepted =
            connection.accept_flow.go_on(&common, uts_operation::UTS_ON_ACCEPT_FLOW, patience, || {
                let inner = inner.clone();
                Box::pin(async move { inner.accept_flow().await })
            })?;
        let flow = Flow::new(inner, accepted.ok_or_else(Failure::end)?, None);
        out.set(give(Common::of::<Flow>(common.context.clone()), Arc::new(flow))?);
        Ok(())
    })
}

/// Closes a connection at once, and says why. What was not delivered is lost: call uts_finished
/// first. The handle stays, and has to be closed.
///
/// code: the program's own. reason: words for the peer; NULL = none.
/// Returns UTS_OK, also if it has ended before and stays as it ended; UTS_ENOTCONN, UTS_EHANDLE or
/// UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_shutdown(
    connection: *mut uts_connection,
    code: u64,
    reason: *const c_char,
) -> c_int {
    border(|| {
        let (_, connection) = find::<Connection>(connection.cast())?;
        // SAFETY: as promised.
        let reason = unsafe { text_if_any(reason, "reason") }?;
        close_at_once(connection.get()?, code, reason.unwrap_or_default());
        Ok(())
    })
}

/// Waits for the end of a connection, and says why it came.
///
/// code: that of the end that closed it; NULL if it is of no interest. is_peer: 1 if that was the
/// peer, 0 if it was this end or the path; NULL likewise.
/// text, size, needed: the reason in words, as of uts_get.
/// Returns UTS_OK; UTS_AGAIN while it goes on; UTS_ETIMEDOUT, UTS_ETOOSMALL, UTS_ENOTCONN,
/// UTS_EHANDLE, UTS_EBUSY or UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_ended(
    connection: *mut uts_connection,
    code: *mut u64,
    is_peer: *mut c_int,
    text: *mut c_char,
    size: usize,
    needed: *mut usize,
    timeout_ms: c_int,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let (mut code, mut is_peer) =
            unsafe { (Out::if_any(code, 0, "code")?, Out::if_any(is_peer, 0, "is_peer")?) };
        let (common, connection) = find::<Connection>(connection.cast())?;
        let inner = connection.get()?;
        let patience = Patience::of(timeout_ms);
        let reason = connection.ended.go_on(&common, uts_operation::UTS_ON_ENDED, patience, || {
            let inner = inner.clone();
            Box::pin(async move { inner.closed().await })
        })?;
        let (said, peer) = match &reason {
            CloseReason::Local { code, .. } => (*code, 0),
            CloseReason::Peer { code, .. } => (*code, 1),
            _ => (0, 0),
        };
        code.iter_mut().for_each(|code| code.set(said));
        is_peer.iter_mut().for_each(|is_peer| is_peer.set(peer));
        // SAFETY: as promised.
        unsafe { put_text(&reason.to_string(), text, size, needed) }
    })
}

/// Goes on from another address of this host, such as "0.0.0.0:0". Flows go on, and nothing is
/// lost.
///
/// Returns UTS_OK; UTS_EADDRESS, UTS_ESYSTEM, UTS_ENOTCONN, UTS_EHANDLE or UTS_EINVAL. Nothing has
/// changed in case of an error.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_migrate(connection: *mut uts_connection, address: *const c_char) -> c_int {
    border(|| {
        let (common, connection) = find::<Connection>(connection.cast())?;
        // SAFETY: as promised.
        let address = unsafe { text(address, "address") }?;
        let at = address.parse().map_err(|_| {
            let why = format_args!("`{address}` is not an IP address with a port");
            Failure::new(uts_code::UTS_EADDRESS, why)
        })?;
        let _runtime = common.context.as_ref().map(|context| context.runtime.enter());
        let moved = connection.get()?.migrate(at);
        moved.map_err(|error| Failure::system(&format!("cannot go on from {address}"), &error))
    })
}

/// Has a connection move with this host from now on, when that reaches the peer by another of its
/// addresses.
#[unsafe(no_mangle)]
pub extern "C" fn uts_follow_network(connection: *mut uts_connection) -> c_int {
    border(|| {
        let (common, connection) = find::<Connection>(connection.cast())?;
        let _runtime = common.context.as_ref().map(|context| context.runtime.enter());
        connection.get()?.follow_network();
        Ok(())
    })
}
