//! Accepting connections.

use crate::border::border;
use crate::code::{Failure, Result, uts_code};
use crate::connection::{Connection, uts_connection};
use crate::context::{Context, uts_context};
use crate::handles::{Common, Object, find, give};
use crate::memory::{Out, text};
use crate::options::{kept, uts_options};
use crate::queue::uts_operation;
use crate::waiting::{Begun, Patience};
use core::ffi::{c_char, c_int};
use core::ptr;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

/// Accepts connections at an address.
pub struct uts_listener(());

pub(crate) struct Listener {
    pub inner: Arc<uts::Listener>,
    accept: Begun<Option<uts::Connection>>,
}

impl Object for Listener {
    const NAME: &'static str = "listener";

    fn on_closed(&self) {
        self.inner.close();
    }
}

/// Accepts connections at an address.
///
/// address: "host:port" or "[v6]:port"; "[::]:4433" takes IPv4 as well, port 0 = any (uts_get with
/// "localAddress" says which). options: with "identity" at least.
/// listener: where its handle goes; NULL in case of an error.
/// Returns UTS_OK; UTS_EADDRESS, UTS_EPROPERTY, UTS_ESYSTEM, UTS_EHANDLE or UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_listen(
    context: *mut uts_context,
    address: *const c_char,
    options: *const uts_options,
    listener: *mut *mut uts_listener,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut out = unsafe { Out::new(listener, ptr::null_mut(), "listener") }?;
        let (_, context) = find::<Context>(context.cast())?;
        // SAFETY: as promised.
        let address = resolve(unsafe { text(address, "address") }?)?;
        let options = kept(options)?.for_server()?;
        let inner = {
            let _runtime = context.runtime.enter();
            uts::Listener::bind(address, options)?
        };
        let listener = Listener { inner: Arc::new(inner), accept: Begun::default() };
        out.set(give(Common::of::<Listener>(Some(context)), Arc::new(listener))?);
        Ok(())
    })
}

fn resolve(address: &str) -> Result<SocketAddr> {
    let wrong = |why: String| {
        Failure::new(
            uts_code::UTS_EADDRESS,
            format_args!("`{address}` is not an address to listen at: {why}"),
        )
    };
    let found = address.to_socket_addrs().map_err(|error| wrong(uts::printable::words(&error)))?;
    found.into_iter().next().ok_or_else(|| wrong("the host has none".to_owned()))
}

/// Accepts the next connection, whose handshake is done.
///
/// timeout_ms: how long to wait; 0 = not at all, -1 = for good.
/// connection: where its handle goes; NULL if there is none.
/// Returns UTS_OK; UTS_AGAIN; UTS_END if none can come any more; UTS_ETIMEDOUT, UTS_EHANDLE,
/// UTS_EBUSY or UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_accept(
    listener: *mut uts_listener,
    connection: *mut *mut uts_connection,
    timeout_ms: c_int,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut out = unsafe { Out::new(connection, ptr::null_mut(), "connection") }?;
        let (common, listener) = find::<Listener>(listener.cast())?;
        let patience = Patience::of(timeout_ms);
        let accepted = listener.accept.go_on(&common, uts_operation::UTS_ON_ACCEPT, patience, || {
            let listener = listener.inner.clone();
            Box::pin(async move { listener.accept().await })
        })?;
        let connection = Connection::of(accepted.ok_or_else(Failure::end)?);
        out.set(give(Common::of::<Connection>(common.context.clone()), Arc::new(connection))?);
        Ok(())
    })
}
