//! The queue of a context: what is worth calling again.
//!
//! An operation that could not be done at once leaves a [`Post`] as its waker. When it may be done,
//! an entry is put. Between two calls an operation of a handle puts one at most, so that the queue
//! is no longer than there are operations.

use crate::code::{Failure, Result};
use crate::handles::Common;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Wake;
use std::time::Instant;

/// Operations for which entries come, each named for the function that is worth calling again.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum uts_operation {
    /// uts_connected
    UTS_ON_CONNECTED = 1,
    /// uts_accept
    UTS_ON_ACCEPT = 2,
    /// uts_open_flow
    UTS_ON_OPEN_FLOW = 3,
    /// uts_accept_flow
    UTS_ON_ACCEPT_FLOW = 4,
    /// uts_recv, uts_read, uts_recv_buffer
    UTS_ON_RECV = 5,
    /// uts_send, uts_write
    UTS_ON_SEND = 6,
    /// uts_finished
    UTS_ON_FINISHED = 7,
    /// uts_recv_expedited
    UTS_ON_RECV_EXPEDITED = 8,
    /// uts_next_event
    UTS_ON_EVENT = 9,
    /// uts_ended
    UTS_ON_ENDED = 10,
}

/// Number of operations, and one for none.
const OPERATIONS: usize = 11;

/// Entry of a context's queue: a function that returned UTS_AGAIN is worth calling again.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct uts_entry {
    /// Function to call: a value of uts_operation.
    pub operation: c_int,
    /// Zero.
    pub reserved: c_int,
    /// Handle that it was called with.
    pub handle: *mut c_void,
    /// Value that uts_set_user has kept with that handle.
    pub user: *mut c_void,
}

impl uts_entry {
    pub(crate) const NONE: uts_entry =
        uts_entry { operation: 0, reserved: 0, handle: ptr::null_mut(), user: ptr::null_mut() };
}

/// Entries that wait to be taken, of one context.
pub(crate) struct Queue {
    entries: Mutex<VecDeque<Arc<Post>>>,
    /// A byte is in it while there are entries, and for good once the context is closed.
    told: UnixStream,
    tell: UnixStream,
    is_closed: AtomicBool,
}

/// The waker of an operation that was not to wait.
pub(crate) struct Post {
    operation: uts_operation,
    common: Weak<Common>,
    queue: Weak<Queue>,
    /// An entry is to come.
    is_armed: AtomicBool,
    /// It is in the queue.
    is_queued: AtomicBool,
}

/// The posts of a handle, each made when it is first needed.
#[derive(Default)]
pub(crate) struct Posts(Mutex<[Option<Arc<Post>>; OPERATIONS]>);

impl Posts {
    /// The post of an operation of the handle with these posts.
    pub fn of(&self, common: &Arc<Common>, operation: uts_operation) -> Arc<Post> {
        let mut posts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let post = posts[operation as usize].get_or_insert_with(|| {
            let queue = common.context.as_ref().map(|context| Arc::downgrade(&context.queue));
            Arc::new(Post {
                operation,
                common: Arc::downgrade(common),
                queue: queue.unwrap_or_default(),
                is_armed: AtomicBool::new(false),
                is_queued: AtomicBool::new(false),
            })
        });
        post.clone()
    }
}

impl Post {
    /// The operation is about to be tried: if it cannot be done, an entry is to come.
    pub fn arm(&self) {
        self.is_armed.store(true, Ordering::Release);
    }

    /// It was done.
    pub fn disarm(&self) {
        self.is_armed.store(false, Ordering::Release);
    }

    fn entry(&self) -> Option<uts_entry> {
        let common = self.common.upgrade().filter(|common| !common.is_closed())?;
        Some(uts_entry {
            operation: self.operation as c_int,
            handle: ptr::without_provenance_mut(common.key()),
            user: ptr::with_exposed_provenance_mut(common.user()),
            ..uts_entry::NONE
        })
    }
}

impl Wake for Post {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_armed.swap(false, Ordering::AcqRel) || self.is_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(queue) = self.queue.upgrade() {
            queue.put(self.clone());
        }
    }
}

impl Queue {
    /// An empty one.
    ///
    /// # Errors
    /// The system gives no pair of sockets.
    pub fn new() -> io::Result<Arc<Self>> {
        let (told, tell) = UnixStream::pair()?;
        told.set_nonblocking(true)?;
        tell.set_nonblocking(true)?;
        Ok(Arc::new(Queue { entries: Mutex::default(), told, tell, is_closed: AtomicBool::new(false) }))
    }

    /// The descriptor, which is readable while there are entries.
    pub fn fd(&self) -> c_int {
        self.told.as_raw_fd()
    }

    fn put(&self, post: Arc<Post>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.is_empty() {
            // Into an empty socket a byte always goes.
            let _ = (&self.tell).write(&[0]);
        }
        entries.push_back(post);
    }

    /// Entries of a handle that was closed are of no use.
    pub fn forget(&self, key: usize) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let had = !entries.is_empty();
        entries.retain(|post| post.common.upgrade().is_some_and(|common| common.key() != key));
        if had && entries.is_empty() {
            self.empty();
        }
    }

    fn empty(&self) {
        if self.is_closed.load(Ordering::Acquire) {
            return;
        }
        let mut bytes = [0; 8];
        while (&self.told).read(&mut bytes).is_ok_and(|read| read > 0) {}
    }

    /// Takes entries that are there, `most` at most.
    pub fn take(&self, most: usize) -> Vec<uts_entry> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(post) = entries.pop_front()
        {
            post.is_queued.store(false, Ordering::Release);
            taken.extend(post.entry());
        }
        if entries.is_empty() {
            self.empty();
        }
        taken
    }

    /// Waits until there are entries or the queue is closed, until `deadline` at most (`None` = for
    /// good).
    ///
    /// # Errors
    /// The system does not let the thread wait.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<()> {
        let left = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(crate::waiting::now());
            Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let mut fds = [PollFd::from_borrowed_fd(self.told.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut fds, left.as_ref()) {
            // An interruption: the caller looks, and waits again.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Failure::system("cannot wait for entries", &error.into())),
        }
    }

    /// Wakes all who wait, for good: the context is closed.
    pub fn close(&self) {
        // A byte, and not a shutdown: to write to a socket that is shut down would be a signal.
        self.is_closed.store(true, Ordering::Release);
        let _ = (&self.tell).write(&[0]);
    }
}
