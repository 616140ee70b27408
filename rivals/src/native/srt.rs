//! SRT: sockets that never block, and a thread that tells which of them may be tried again.

use socket2::SockAddr;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use tokio::sync::watch;

/// What SRT says went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SrtError {
    /// What was being done.
    doing: &'static str,
    /// SRT's number for it, as in `SRT_ERRNO`.
    code: c_int,
    /// SRT's words.
    words: String,
}

impl fmt::Display for SrtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SRT, {}: {}", self.doing, self.words.trim())
    }
}

impl SrtError {
    /// The call would have to wait.
    pub fn would_block(&self) -> bool {
        self.code / 1000 == MAJOR_AGAIN
    }

    /// The connection is no more.
    pub fn is_gone(&self) -> bool {
        self.code / 1000 == MAJOR_CONNECTION || self.code == INVALID_SOCKET
    }

    fn last(doing: &'static str) -> SrtError {
        // SAFETY: both read what the calling thread's last call left. The string is SRT's and
        // copied at once.
        unsafe {
            let code = srt_getlasterror(std::ptr::null_mut());
            let words = CStr::from_ptr(srt_getlasterror_str()).to_string_lossy().into_owned();
            SrtError { doing, code, words }
        }
    }
}

/// Results of SRT.
pub type Result<T> = core::result::Result<T, SrtError>;

/// Settings of a socket, set before it connects or listens.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The latency of live mode in milliseconds; `None` is SRT's own.
    pub latency_ms: Option<i32>,
    /// The passphrase, and the length of the key in bytes; `None` is no encryption.
    pub passphrase: Option<(String, i32)>,
    /// Buffers at both ends, and how much may be in flight, in bytes; `None` are SRT's own.
    pub window_bytes: Option<i32>,
    /// The greatest rate of live mode in bytes per second; `None` is SRT's own.
    pub rate_max: Option<i64>,
}

/// A mode of SRT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Messages that are delivered a fixed latency after they were sent, or dropped.
    Live = 0,
    /// A stream of bytes.
    File = 1,
}

/// A socket. It is closed when it is dropped, if not before.
pub struct Socket {
    id: c_int,
    closed: AtomicBool,
    ready: watch::Receiver<()>,
    /// What SRT told last: of a connection that has gone it tells nothing any more.
    told: Mutex<Option<Status>>,
}

impl Socket {
    fn new() -> Result<Socket> {
        let library = Library::get();
        // SAFETY: the library is started.
        let id = unsafe { srt_create_socket() };
        if id < 0 { Err(SrtError::last("a new socket")) } else { library.watch(id) }
    }

    /// Begins to connect. [`Socket::is_connected`] says when it is done. Sockets of one process may
    /// share a port.
    ///
    /// # Errors
    /// If an option or an address is refused.
    pub fn connect(
        to: SocketAddr,
        from: SocketAddr,
        mode: Mode,
        stream_id: &str,
        options: &Options,
    ) -> Result<Socket> {
        let socket = Socket::new()?;
        socket.configure(mode, options)?;
        socket.set_text(OptionName::StreamId, stream_id)?;
        let from = SockAddr::from(from);
        // SAFETY: an address and its length.
        check("bind", unsafe { srt_bind(socket.id, from.as_ptr().cast(), from.len() as c_int) })?;
        let to = SockAddr::from(to);
        // SAFETY: an address and its length.
        check("connect", unsafe { srt_connect(socket.id, to.as_ptr().cast(), to.len() as c_int) })?;
        Ok(socket)
    }

    /// Listens at an address. `accepts` gets the stream ID that a caller gives, and says the mode
    /// of the new socket, or refuses it.
    ///
    /// # Errors
    /// If an option or the address is refused.
    pub fn listen(
        at: SocketAddr,
        options: &Options,
        accepts: fn(&str) -> Option<Mode>,
        backlog: i32,
    ) -> Result<Socket> {
        let socket = Socket::new()?;
        socket.configure(Mode::Live, options)?;
        let address = SockAddr::from(at);
        // SAFETY: an address and its length; a function that lives as long as the program, given
        // back to `on_caller`.
        unsafe {
            check("bind", srt_bind(socket.id, address.as_ptr().cast(), address.len() as c_int))?;
            check("listen", srt_listen_callback(socket.id, on_caller, accepts as *mut c_void))?;
            check("listen", srt_listen(socket.id, backlog))?;
        }
        Ok(socket)
    }

    /// The next connection, if there is one.
    ///
    /// # Errors
    /// [`SrtError::would_block`] if there is none yet.
    pub fn accept(&self) -> Result<Socket> {
        // SAFETY: the peer's address is not asked for.
        let id = unsafe { srt_accept(self.id, std::ptr::null_mut(), std::ptr::null_mut()) };
        if id < 0 {
            return Err(SrtError::last("accept"));
        }
        let socket = Library::get().watch(id)?;
        socket.never_block()?;
        Ok(socket)
    }

    /// Says when the socket may be ready for what it was not ready for: subscribe before trying.
    pub fn ready(&self) -> watch::Receiver<()> {
        self.ready.clone()
    }

    /// Whether the connection stands: `None` while it is being made.
    pub fn is_connected(&self) -> Option<bool> {
        // SAFETY: any number may be asked for.
        match unsafe { srt_getsockstate(self.id) } {
            STATE_CONNECTING => None,
            state => Some(state == STATE_CONNECTED),
        }
    }

    /// Why the connection was not made.
    pub fn refusal(&self) -> String {
        // SAFETY: the string is a constant of SRT's.
        unsafe { CStr::from_ptr(srt_rejectreason_str(srt_getrejectreason(self.id))) }
            .to_string_lossy()
            .into_owned()
    }

    /// The address at this end.
    ///
    /// # Errors
    /// If it has none yet.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        // SAFETY: the storage is as long as is said, and SRT writes an address and its length.
        let result = unsafe {
            SockAddr::try_init(|storage, length| {
                let mut n = *length as c_int;
                let result = srt_getsockname(self.id, storage.cast(), &mut n);
                *length = n as _;
                if result < 0 {
                    Err(std::io::Error::other(SrtError::last("address").to_string()))
                } else {
                    Ok(())
                }
            })
        };
        let address = result.ok().and_then(|((), address)| address.as_socket());
        address.ok_or_else(|| SrtError::last("address"))
    }

    /// What the caller gave as its stream ID.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn stream_id(&self) -> Result<String> {
        let mut text = [0_u8; 513];
        let mut length = text.len() as c_int;
        // SAFETY: SRT writes at most `length` bytes.
        check("stream ID", unsafe {
            srt_getsockflag(self.id, option(OptionName::StreamId), text.as_mut_ptr().cast(), &mut length)
        })?;
        let text = text.get(..length as usize).unwrap_or_default();
        Ok(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
    }

    /// Sends a message, or bytes of a stream; how many bytes were taken.
    ///
    /// # Errors
    /// [`SrtError::would_block`] if there is no room.
    pub fn send(&self, bytes: &[u8], lifetime_ms: Option<i32>) -> Result<usize> {
        let length = bytes.len().min(i32::MAX as usize) as c_int;
        // SAFETY: this many bytes are there, and SRT copies them.
        let n = unsafe { srt_sendmsg(self.id, bytes.as_ptr().cast(), length, lifetime_ms.unwrap_or(-1), 1) };
        check("send", n).map(|n| n as usize)
    }

    /// Receives a message, or bytes of a stream; 0 is the end.
    ///
    /// # Errors
    /// [`SrtError::would_block`] if there is none yet.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize> {
        let length = buffer.len().min(i32::MAX as usize) as c_int;
        // SAFETY: SRT writes at most this many bytes.
        check("receive", unsafe { srt_recv(self.id, buffer.as_mut_ptr().cast(), length) }).map(|n| n as usize)
    }

    /// Packets that were taken for sending and are not acknowledged; 0 if the connection is gone.
    pub fn waiting(&self) -> i32 {
        let (mut value, mut length): (c_int, c_int) = (0, size_of::<c_int>() as c_int);
        // SAFETY: the option is an `int`.
        let result = unsafe {
            srt_getsockflag(self.id, option(OptionName::SendData), (&raw mut value).cast(), &mut length)
        };
        if result < 0 || self.is_connected() != Some(true) { 0 } else { value }
    }

    /// What SRT reports of the connection, or reported last if that has gone meanwhile. `None` once
    /// it was closed here.
    pub fn status(&self) -> Option<Status> {
        if self.closed.load(Ordering::Relaxed) {
            return None;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status = Status::default();
        // SAFETY: the structure is as in srt.c.
        if unsafe { rival_srt_status(self.id, &mut status) } >= 0 {
            *told = Some(status);
        }
        *told
    }

    fn configure(&self, mode: Mode, options: &Options) -> Result<()> {
        self.set_mode(mode)?;
        self.never_block()?;
        self.set(OptionName::ReuseAddress, &1_i32)?;
        if let Some((passphrase, key_bytes)) = &options.passphrase {
            self.set_text(OptionName::Passphrase, passphrase)?;
            self.set(OptionName::KeyLength, key_bytes)?;
        }
        if let (Some(latency), Mode::Live) = (&options.latency_ms, mode) {
            self.set(OptionName::Latency, latency)?;
        }
        if let Some(bytes) = options.window_bytes {
            // In packets; SRT refuses a receive buffer of more than that.
            self.set(OptionName::FlightFlag, &(bytes / PAYLOAD_BYTES).max(FLIGHT_MIN))?;
            for name in [OptionName::SendBuffer, OptionName::ReceiveBuffer] {
                self.set(name, &bytes.max(FLIGHT_MIN * PAYLOAD_BYTES))?;
            }
        }
        if let (Some(rate), Mode::Live) = (&options.rate_max, mode) {
            self.set(OptionName::MaxBandwidth, rate)?;
        }
        Ok(())
    }

    fn never_block(&self) -> Result<()> {
        self.set(OptionName::SendSync, &0_i32)?;
        self.set(OptionName::ReceiveSync, &0_i32)
    }

    fn set_mode(&self, mode: Mode) -> Result<()> {
        self.set(OptionName::TransmissionType, &(mode as i32))
    }

    /// Closes it. What was taken for sending still leaves in file mode, unless it was forgotten.
    /// Returns its last [`Socket::status`] to the first call that closes it.
    pub fn close(&self) -> Option<Status> {
        let status = self.status();
        if self.closed.swap(true, Ordering::Relaxed) {
            return None;
        }
        Library::get().forget(self.id);
        // SAFETY: SRT gives each socket another number.
        unsafe { srt_close(self.id) };
        status
    }

    /// Gives up what has not been sent when the socket is closed.
    pub fn forget_unsent(&self) {
        // `struct linger`: off, 0 s. Where it cannot be set there is nothing unsent.
        let _ = self.set(OptionName::Linger, &[0_i32; 2]);
    }

    /// `T` must be what `srt.h` says of the option: plain numbers.
    fn set<T: Copy>(&self, name: OptionName, value: &T) -> Result<()> {
        let value: *const T = value;
        // SAFETY: SRT copies as much as the option has, which it checks against the length.
        check("an option", unsafe {
            srt_setsockflag(self.id, option(name), value.cast(), size_of::<T>() as c_int)
        })
        .map(|_| ())
    }

    fn set_text(&self, name: OptionName, text: &str) -> Result<()> {
        // SAFETY: this many bytes are there, and SRT copies them.
        check("an option", unsafe {
            srt_setsockflag(self.id, option(name), text.as_ptr().cast(), text.len() as c_int)
        })
        .map(|_| ())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.close();
    }
}

/// The version of the library that is linked.
pub fn version() -> String {
    // SAFETY: reads a constant.
    let version = unsafe { srt_getversion() };
    format!("{}.{}.{}", version >> 16, version >> 8 & 0xff, version & 0xff)
}

/// The library, and the thread that waits for all its sockets. Started with the first socket. It
/// stays until the program ends.
struct Library {
    poll: c_int,
    watched: Mutex<BTreeMap<c_int, watch::Sender<()>>>,
}

impl Library {
    fn get() -> &'static Arc<Library> {
        static LIBRARY: OnceLock<Arc<Library>> = OnceLock::new();
        LIBRARY.get_or_init(|| {
            // SAFETY: the first calls of the process. Only fatal errors are written to stderr. The
            // rest are errors here.
            let poll = unsafe {
                srt_startup();
                srt_setloglevel(LOG_CRITICAL);
                let poll = srt_epoll_create();
                srt_epoll_set(poll, POLL_ENABLE_EMPTY);
                poll
            };
            let library = Arc::new(Library { poll, watched: Mutex::default() });
            let waits = Arc::clone(&library);
            // Without the thread nothing would ever be ready. No program is better than one that
            // hangs.
            thread::Builder::new()
                .name("srt-poll".into())
                .spawn(move || waits.wait())
                .expect("a thread for SRT");
            library
        })
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<c_int, watch::Sender<()>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, id: c_int) -> Result<Socket> {
        let (tells, ready) = watch::channel(());
        self.watched().insert(id, tells);
        let socket = Socket { id, closed: AtomicBool::new(false), ready, told: Mutex::default() };
        let events = POLL_IN | POLL_OUT | POLL_ERROR | POLL_EDGE;
        // SAFETY: both are numbers of SRT's.
        check("poll", unsafe { srt_epoll_add_usock(self.poll, id, &events) })?;
        Ok(socket)
    }

    fn forget(&self, id: c_int) {
        // SAFETY: both are numbers of SRT's.
        unsafe { srt_epoll_remove_usock(self.poll, id) };
        self.watched().remove(&id);
    }

    fn wait(&self) {
        let mut events = [PollEvent::default(); 64];
        loop {
            // SAFETY: as many events as there is room for.
            let n = unsafe { srt_epoll_uwait(self.poll, events.as_mut_ptr(), events.len() as c_int, -1) };
            let watched = self.watched();
            for event in events.iter().take(usize::try_from(n).unwrap_or(0)) {
                if let Some(tells) = watched.get(&event.id) {
                    tells.send_replace(());
                }
            }
        }
    }
}

/// Called by SRT's receiving thread for each caller, before the handshake goes on.
extern "C" fn on_caller(
    accepts: *mut c_void,
    id: c_int,
    _: c_int,
    _: *const c_void,
    stream_id: *const c_char,
) -> c_int {
    if stream_id.is_null() {
        return -1;
    }
    // SAFETY: the pointer is the function that `listen` gave, and SRT gives a string.
    let (accepts, stream_id) = unsafe {
        (std::mem::transmute::<*mut c_void, fn(&str) -> Option<Mode>>(accepts), CStr::from_ptr(stream_id))
    };
    let mode = stream_id.to_str().ok().and_then(accepts);
    let set = |mode: Mode| {
        let mode = mode as c_int;
        // SAFETY: the option is an `int`. The new socket is SRT's own until it is accepted.
        unsafe {
            let name = option(OptionName::TransmissionType);
            srt_setsockflag(id, name, (&raw const mode).cast(), size_of::<c_int>() as c_int)
        }
    };
    match mode {
        // It has the listener's mode and settings.
        Some(Mode::Live) => 0,
        Some(Mode::File) => set(Mode::File),
        None => -1,
    }
}

fn check(doing: &'static str, result: c_int) -> Result<c_int> {
    if result < 0 { Err(SrtError::last(doing)) } else { Ok(result) }
}

fn option(name: OptionName) -> c_int {
    // SAFETY: the array in srt.c has an element for each name.
    unsafe { RIVAL_SRT_OPTION[name as usize] }
}

/// In the order of `rival_srt_option`.
#[derive(Clone, Copy)]
enum OptionName {
    SendSync,
    ReceiveSync,
    FlightFlag,
    SendBuffer,
    ReceiveBuffer,
    Linger,
    MaxBandwidth,
    SendData,
    Latency,
    Passphrase,
    KeyLength,
    StreamId,
    TransmissionType,
    ReuseAddress,
    Count,
}

/// What SRT tells of a connection (`struct rival_srt_status`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// Round-trip time in milliseconds.
    pub rtt_ms: f64,
    /// Data packets sent, with repetitions.
    pub sent_packets: i64,
    /// Data packets sent again.
    pub repeated_packets: i64,
    /// How many packets may be in flight.
    pub window_packets: i64,
    /// How many packets are in flight.
    pub in_flight_packets: i64,
    /// The size of the largest packet, with IP and UDP headers.
    pub packet_bytes: i64,
    /// Bytes that were sent, without repetitions.
    pub accepted_bytes: i64,
    /// Bytes that are not acknowledged.
    pub waiting_bytes: i64,
}

/// `SRT_EPOLL_EVENT`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PollEvent {
    id: c_int,
    events: c_int,
}

// Constants of srt.h, which are part of its binary interface.
const STATE_CONNECTING: c_int = 4;
const STATE_CONNECTED: c_int = 5;
const MAJOR_CONNECTION: c_int = 2;
const MAJOR_AGAIN: c_int = 6;
const INVALID_SOCKET: c_int = 5004;
const POLL_IN: c_int = 0x1;
const POLL_OUT: c_int = 0x4;
const POLL_ERROR: c_int = 0x8;
const POLL_EDGE: c_int = 1 << 31;
const POLL_ENABLE_EMPTY: i32 = 1;
const LOG_CRITICAL: c_int = 2;
/// What SRT counts buffers in: an Ethernet packet without IP, UDP and SRT headers.
const PAYLOAD_BYTES: i32 = 1456;
/// The smallest flight that SRT takes, in packets.
const FLIGHT_MIN: i32 = 32;

unsafe extern "C" {
    #[link_name = "rival_srt_option"]
    static RIVAL_SRT_OPTION: [c_int; OptionName::Count as usize];
    fn rival_srt_status(socket: c_int, status: *mut Status) -> c_int;
    fn srt_startup() -> c_int;
    fn srt_setloglevel(level: c_int);
    fn srt_getversion() -> u32;
    fn srt_create_socket() -> c_int;
    fn srt_bind(socket: c_int, address: *const c_void, length: c_int) -> c_int;
    fn srt_listen(socket: c_int, backlog: c_int) -> c_int;
    fn srt_listen_callback(
        socket: c_int,
        callback: extern "C" fn(*mut c_void, c_int, c_int, *const c_void, *const c_char) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn srt_accept(socket: c_int, address: *mut c_void, length: *mut c_int) -> c_int;
    fn srt_connect(socket: c_int, address: *const c_void, length: c_int) -> c_int;
    fn srt_close(socket: c_int) -> c_int;
    fn srt_getsockname(socket: c_int, address: *mut c_void, length: *mut c_int) -> c_int;
    fn srt_getsockstate(socket: c_int) -> c_int;
    fn srt_getsockflag(socket: c_int, name: c_int, value: *mut c_void, length: *mut c_int) -> c_int;
    fn srt_setsockflag(socket: c_int, name: c_int, value: *const c_void, length: c_int) -> c_int;
    fn srt_sendmsg(
        socket: c_int,
        bytes: *const c_char,
        length: c_int,
        lifetime_ms: c_int,
        in_order: c_int,
    ) -> c_int;
    fn srt_recv(socket: c_int, bytes: *mut c_char, length: c_int) -> c_int;
    fn srt_getlasterror(errno: *mut c_int) -> c_int;
    fn srt_getlasterror_str() -> *const c_char;
    fn srt_getrejectreason(socket: c_int) -> c_int;
    fn srt_rejectreason_str(reason: c_int) -> *const c_char;
    fn srt_epoll_create() -> c_int;
    fn srt_epoll_set(poll: c_int, flags: i32) -> i32;
    fn srt_epoll_add_usock(poll: c_int, socket: c_int, events: *const c_int) -> c_int;
    fn srt_epoll_remove_usock(poll: c_int, socket: c_int) -> c_int;
    fn srt_epoll_uwait(poll: c_int, events: *mut PollEvent, count: c_int, timeout_ms: i64) -> c_int;
}
