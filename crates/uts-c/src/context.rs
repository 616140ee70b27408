//! Contexts: a thread that carries endpoints, and a queue.

use crate::border::{border, border_or};
use crate::code::{Failure, Result, uts_code};
use crate::connection::Connection;
use crate::handles::{Common, Object, close, find, give};
use crate::memory::Out;
use crate::queue::{Queue, uts_entry};
use crate::waiting::Patience;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Longest that a context which is closed waits for its peers to be told.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// A thread of the library's, which carries all connections that are made from it, and a queue of
/// entries.
pub struct uts_context(());

pub(crate) struct Context {
    pub runtime: Handle,
    pub queue: Arc<Queue>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    /// Keys of what was made from it.
    handles: BTreeSet<usize>,
    /// Connections to say farewell to.
    thread: Option<(oneshot::Sender<Vec<uts::Connection>>, JoinHandle<()>)>,
}

impl Object for Context {
    const NAME: &'static str = "context";

    fn on_closed(&self) {
        self.end();
    }
}

impl Context {
    fn start() -> Result<Arc<Self>> {
        let failed = |what: &'static str| move |error| Failure::system(what, &error);
        let queue = Queue::new().map_err(failed("no sockets for a queue"))?;
        let runtime = Builder::new_current_thread().enable_all().thread_name("uts").build();
        let runtime = runtime.map_err(failed("no runtime for a context"))?;
        let handle = runtime.handle().clone();
        let (end, ends) = oneshot::channel::<Vec<uts::Connection>>();
        let carry = async move {
            let Ok(connections) = ends.await else { return };
            let closes = connections.iter().map(|connection| connection.close(0, ""));
            let told = async {
                for close in closes {
                    close.await;
                }
            };
            // Who is not told by then finds out by itself.
            let _ = tokio::time::timeout(FAREWELL_MAX, told).await;
        };
        let thread = std::thread::Builder::new().name("uts".to_owned()).spawn(move || {
            block_signals();
            runtime.block_on(carry);
            runtime.shutdown_background();
        });
        let thread = thread.map_err(failed("no thread for a context"))?;
        let state = Mutex::new(State { thread: Some((end, thread)), ..State::default() });
        Ok(Arc::new(Context { runtime: handle, queue, state }))
    }

    /// A handle was made from it. Returns false if it was closed: then the handle has to be, too.
    pub fn remember(&self, key: usize) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_closed {
            state.handles.insert(key);
        }
        !state.is_closed
    }

    /// A handle was closed.
    pub fn forget(&self, key: usize) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).handles.remove(&key);
        self.queue.forget(key);
    }

    /// Closes all that was made from it, and ends the thread.
    fn end(&self) {
        let (handles, thread) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_closed = true;
            (core::mem::take(&mut state.handles), state.thread.take())
        };
        let handle = |key: &usize| ptr::without_provenance::<c_void>(*key);
        let connections = handles.iter().filter_map(|key| {
            let (_, connection) = find::<Connection>(handle(key)).ok()?;
            connection.established()
        });
        let connections: Vec<_> = connections.collect();
        for key in handles {
            close(key);
        }
        self.queue.close();
        let Some((end, thread)) = thread else { return };
        let _ = end.send(connections);
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

/// Leaves the process's signals to the threads of the program, whose handlers expect to run there.
/// Threads that this one starts do the same.
fn block_signals() {
    let mut all = MaybeUninit::uninit();
    // SAFETY: the set is filled, and read then.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut());
    }
}

/// Starts a context. A program mostly needs one.
///
/// context: where its handle goes; NULL in case of an error.
/// Returns UTS_OK, UTS_EINVAL or UTS_ESYSTEM.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_context_new(context: *mut *mut uts_context) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut out = unsafe { Out::new(context, ptr::null_mut(), "context") }?;
        out.set(give(Common::of::<Context>(None), Context::start()?)?);
        Ok(())
    })
}

/// Descriptor that is readable while the context's queue has entries: for poll, epoll, kqueue and
/// event loops. It is the context's: do not read, write or close it.
///
/// Returns -1 in case of an error.
#[unsafe(no_mangle)]
pub extern "C" fn uts_context_fd(context: *const uts_context) -> c_int {
    border_or(-1, || Ok(find::<Context>(context.cast())?.1.queue.fd()))
}

/// Takes entries from a context's queue, and waits for the first.
///
/// entries: where they go, "most" of them at most. count: how many there are.
/// timeout_ms: how long to wait; 0 = not at all, -1 = for good.
/// Returns UTS_OK with one entry at least; UTS_AGAIN if there is none and the call was not to wait;
/// UTS_ETIMEDOUT; UTS_EHANDLE, also if the context is closed meanwhile.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_poll(
    context: *mut uts_context,
    entries: *mut uts_entry,
    most: usize,
    count: *mut usize,
    timeout_ms: c_int,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut count = unsafe { Out::new(count, 0, "count") }?;
        let (common, context) = find::<Context>(context.cast())?;
        if most == 0 || entries.is_null() || !entries.is_aligned() {
            return Err(Failure::argument("`entries` has no room"));
        }
        let patience = Patience::of(timeout_ms);
        loop {
            let taken = context.queue.take(most);
            if !taken.is_empty() {
                for (at, entry) in taken.iter().enumerate() {
                    // SAFETY: there is room for `most`, as promised, and no more were taken.
                    unsafe { entries.add(at).write(*entry) };
                }
                count.set(taken.len());
                return Ok(());
            }
            if common.is_closed() {
                let why = "the context was closed while the call waited";
                return Err(Failure::new(uts_code::UTS_EHANDLE, why));
            }
            match patience {
                Patience::Tries => return Err(Failure::again()),
                _ if patience.is_over() => {
                    return Err(Failure::new(uts_code::UTS_ETIMEDOUT, "no entry has come in the time given"));
                }
                Patience::Until(deadline) => context.queue.wait(deadline)?,
            }
        }
    })
}
