//! Flows: bytes or messages, both ways.

use crate::border::border;
use crate::code::{Failure, Result, uts_code};
use crate::handles::{Common, Object, close, find, give};
use crate::memory::{Out, bytes, room, value};
use crate::queue::uts_operation;
use crate::waiting::{Patience, alone, wait};
use bytes::Bytes;
use core::ffi::{c_int, c_void};
use core::future::poll_fn;
use core::mem::MaybeUninit;
use core::pin::Pin;
use core::ptr;
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use uts::requirements::Requirements;
use uts::{Chunk, ExpeditedFlow, FlowId, MessageOptions, Profile, RecvFlow, SendFlow, Timing};

/// Flow of a connection: bytes or messages, both ways.
pub struct uts_flow(());

/// The message's lifetime counts.
pub const UTS_HAS_LIFETIME: u32 = 1;
/// The message's key counts.
pub const UTS_HAS_KEY: u32 = 2;
/// The message's checksum_len counts.
pub const UTS_HAS_CHECKSUM_LEN: u32 = 4;
/// The message passes all others of its flow: at most 16 bytes, and "uts.expedited" is "on" at both
/// ends.
pub const UTS_EXPEDITED: u32 = 8;

const FLAGS: u32 = UTS_HAS_LIFETIME | UTS_HAS_KEY | UTS_HAS_CHECKSUM_LEN | UTS_EXPEDITED;

/// Way in which a message is sent. All zero = as the properties of its flow say.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct uts_message_options {
    /// Which of the following count: UTS_HAS_…, and UTS_EXPEDITED. Others are an error.
    pub flags: u32,
    /// Order is kept among messages of one key, with "uts.profile.sequencing" "per-key".
    pub key: u32,
    /// Microseconds after which it is worth nothing, and is given up (msgLifetime).
    pub lifetime_us: u64,
    /// Bytes of it, from the first on, that have to arrive undamaged (msgChecksumLen).
    pub checksum_len: u32,
    /// Zero.
    pub reserved: u32,
}

/// Something received, in memory of the library's: uts_recv_buffer gives it, uts_release ends it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct uts_buffer {
    /// Its bytes. They do not change.
    pub data: *const u8,
    /// Number of bytes.
    pub size: usize,
    /// Bytes, from the first on, that are as they were sent: all, unless "recvChecksumLen" allows
    /// less.
    pub right_bytes: usize,
    /// Position of the first in the flow, where bytes came and not a message.
    pub position: u64,
    /// 1 = it is a message, 0 = it is bytes.
    pub is_message: c_int,
    /// Zero.
    pub reserved: c_int,
    /// Handle of the memory.
    pub owner: *mut c_void,
}

impl uts_buffer {
    const NONE: uts_buffer = uts_buffer {
        data: ptr::null(),
        size: 0,
        right_bytes: 0,
        position: 0,
        is_message: 0,
        reserved: 0,
        owner: ptr::null_mut(),
    };
}

/// The time of a message, where the sender asks for "uts.playoutDelay": uts_buffer_timing gives it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct uts_timing {
    /// When it was made, in microseconds by the sender's clock. Only differences mean something, of
    /// all flows of a connection.
    pub media_us: i64,
    /// Microseconds that messages are held beyond the quickest way.
    pub delay_us: u64,
    /// Microseconds from its making to its handing over, beyond the quickest way.
    pub age_us: u64,
    /// Positions that are missing before it, in the order of the making: one for each byte, and one
    /// for each message. Something has to be shown in their place.
    pub missing: u64,
    /// 1 = it has a time, 0 = the sender has said none.
    pub is_timed: c_int,
    /// 1 = it came too late for its time.
    pub is_late: c_int,
}

impl uts_timing {
    const NONE: uts_timing =
        uts_timing { media_us: 0, delay_us: 0, age_us: 0, missing: 0, is_timed: 0, is_late: 0 };

    fn of(timing: Option<Timing>, missing: u64) -> uts_timing {
        let micros = |time: core::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let Some(timing) = timing else { return uts_timing { missing, ..Self::NONE } };
        uts_timing {
            media_us: timing.media.as_micros(),
            delay_us: micros(timing.delay),
            age_us: micros(timing.age),
            missing,
            is_timed: 1,
            is_late: timing.is_late.into(),
        }
    }
}

/// Memory that C has been lent: held, and not looked at.
struct Lent {
    _bytes: Bytes,
    timing: uts_timing,
}

impl Object for Lent {
    const NAME: &'static str = "buffer";
}

pub(crate) struct Flow {
    pub id: FlowId,
    connection: uts::Connection,
    send: Mutex<SendFlow>,
    recv: Mutex<Receiving>,
    expedited: Mutex<Option<ExpeditedFlow>>,
    /// Those of its own, if it has any.
    requirements: Mutex<Option<Requirements>>,
}

struct Receiving {
    inner: RecvFlow,
    /// A message for which there was no room.
    kept: Option<Bytes>,
    /// Positions that are missing before what comes next.
    missing: u64,
}

impl Object for Flow {
    const NAME: &'static str = "flow";
}

impl Flow {
    pub fn new(connection: &uts::Connection, flow: uts::Flow, requirements: Option<Requirements>) -> Self {
        let id = flow.id();
        let (send, mut recv) = flow.split();
        let expedited = recv.take_expedited();
        Flow {
            id,
            connection: connection.clone(),
            send: Mutex::new(send),
            recv: Mutex::new(Receiving { inner: recv, kept: None, missing: 0 }),
            expedited: Mutex::new(expedited),
            requirements: Mutex::new(requirements),
        }
    }

    /// Sets a property of what is sent in it, or its priority.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        let send = alone(&self.send)?;
        if name == "flowPriority" {
            let priority = value.parse().map_err(|error| {
                let why = format_args!("flowPriority: `{value}` is not a number from 0 to 255: {error}");
                Failure::new(uts_code::UTS_EPROPERTY, why)
            })?;
            return Ok(send.set_priority(priority)?);
        }
        let mut changed = self.requirements();
        changed.set(name, value)?;
        send.set_requirements(&changed)?;
        *self.requirements.lock().unwrap_or_else(PoisonError::into_inner) = Some(changed);
        Ok(())
    }

    /// Requirements of what is sent in it.
    pub fn requirements(&self) -> Requirements {
        let own = self.requirements.lock().unwrap_or_else(PoisonError::into_inner);
        own.clone().unwrap_or_else(|| self.connection.requirements())
    }

    /// The profile under which its data leaves.
    pub fn profile(&self) -> Option<Profile> {
        alone(&self.send).ok()?.profile()
    }
}

/// Way in which a message is sent, from what C says.
fn message_options(given: Option<uts_message_options>) -> Result<MessageOptions> {
    let given = given.unwrap_or_default();
    if given.flags & !FLAGS != 0 || given.reserved != 0 {
        let why = format_args!(
            "`options` has unknown flags ({:#x}) or is not zero where it is reserved",
            given.flags
        );
        return Err(Failure::argument(why));
    }
    let has = |flag| given.flags & flag != 0;
    Ok(MessageOptions {
        lifetime: has(UTS_HAS_LIFETIME).then(|| Duration::from_micros(given.lifetime_us)),
        key: has(UTS_HAS_KEY).then_some(given.key),
        checksum_len: has(UTS_HAS_CHECKSUM_LEN).then_some(given.checksum_len),
        expedited: has(UTS_EXPEDITED),
        ..MessageOptions::default()
    })
}

/// Hands a message over, whole or not at all. Under properties without preserveMsgBoundaries the
/// peer reads bytes.
///
/// data, size: the message; it is copied. options: NULL = as the flow's properties say.
/// timeout_ms: how long to wait while the flow is full; 0 = not at all, -1 = for good.
/// Returns UTS_OK; UTS_AGAIN or UTS_ETIMEDOUT, and nothing was taken; UTS_ESTOPPED, UTS_EFINISHED,
/// UTS_ECLOSED, UTS_EMESSAGE, UTS_EPROPERTY, UTS_EHANDLE, UTS_EBUSY or UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_send(
    flow: *mut uts_flow,
    data: *const c_void,
    size: usize,
    options: *const uts_message_options,
    timeout_ms: c_int,
) -> c_int {
    border(|| {
        let (common, flow) = find::<Flow>(flow.cast())?;
        // SAFETY: as promised.
        let (message, options) = unsafe { (bytes(data.cast(), size, "data")?, value(options, "options")?) };
        let options = message_options(options)?;
        let mut send = alone(&flow.send)?;
        let sending = send.send_message(Bytes::copy_from_slice(message), options);
        Ok(wait(&common, uts_operation::UTS_ON_SEND, Patience::of(timeout_ms), sending)??)
    })
}

/// Hands bytes over, and waits while the flow is full.
///
/// written: how many were taken, also in case of an error; NULL if that is of no interest.
/// timeout_ms: how long to wait for all; 0 = take what there is room for.
/// Returns UTS_OK if all were taken; UTS_AGAIN or UTS_ETIMEDOUT if less were; else as uts_send.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_write(
    flow: *mut uts_flow,
    data: *const c_void,
    size: usize,
    written: *mut usize,
    timeout_ms: c_int,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut written = unsafe { Out::if_any(written, 0, "written") }?;
        let (common, flow) = find::<Flow>(flow.cast())?;
        // SAFETY: as promised.
        let mut data = unsafe { bytes(data.cast(), size, "data") }?;
        let mut send = alone(&flow.send)?;
        let patience = Patience::of(timeout_ms);
        while !data.is_empty() {
            let writing = poll_fn(|cx| Pin::new(&mut *send).poll_write(cx, data));
            let taken = wait(&common, uts_operation::UTS_ON_SEND, patience, writing)??;
            data = data.get(taken..).unwrap_or_default();
            written.iter_mut().for_each(|written| written.set(size - data.len()));
        }
        Ok(())
    })
}

/// Receives the next message.
///
/// data, size: where it goes. got: its size, also of one that is larger than the room.
/// timeout_ms: how long to wait; 0 = not at all, -1 = for good.
/// Returns UTS_OK; UTS_AGAIN; UTS_END at the end; UTS_ETOOSMALL, and the next call gives it;
/// UTS_ERESET, UTS_EMESSAGE, UTS_ECLOSED, UTS_ETIMEDOUT, UTS_EHANDLE, UTS_EBUSY or UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_recv(
    flow: *mut uts_flow,
    data: *mut c_void,
    size: usize,
    got: *mut usize,
    timeout_ms: c_int,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut got = unsafe { Out::new(got, 0, "got") }?;
        let (common, flow) = find::<Flow>(flow.cast())?;
        // SAFETY: as promised.
        let room = unsafe { room(data.cast(), size, "data") }?;
        let mut recv = alone(&flow.recv)?;
        let message = match recv.kept.take() {
            Some(message) => message,
            None => {
                let receiving = recv.inner.recv_message();
                let received =
                    wait(&common, uts_operation::UTS_ON_RECV, Patience::of(timeout_ms), receiving)?;
                received?.ok_or_else(Failure::end)?
            }
        };
        got.set(message.len());
        let Some(place) = room.get_mut(..message.len()) else {
            let why = format!("the message has {} bytes, and there is room for {size}", message.len());
            recv.kept = Some(message);
            return Err(Failure::new(uts_code::UTS_ETOOSMALL, why));
        };
        place.write_copy_of_slice(&message);
        Ok(())
    })
}

/// Receives bytes in order, up to "size" of them: what there is, and one at least.
///
/// data, size: where they go. got: how many there are.
/// timeout_ms: how long to wait; 0 = not at all, -1 = for good.
/// Returns UTS_OK; UTS_AGAIN; UTS_END at the end; UTS_ERESET, UTS_EMESSAGE (bytes are missing,
/// which the profile gives up), UTS_ECLOSED, UTS_ETIMEDOUT, UTS_EHANDLE, UTS_EBUSY or UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_read(
    flow: *mut uts_flow,
    data: *mut c_void,
    size: usize,
    got: *mut usize,
    timeout_ms: c_int,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut got = unsafe { Out::new(got, 0, "got") }?;
        let (common, flow) = find::<Flow>(flow.cast())?;
        // SAFETY: as promised.
        let room = unsafe { room(data.cast(), size, "data") }?;
        if room.is_empty() {
            return Err(Failure::argument("`data` has no room"));
        }
        let mut recv = alone(&flow.recv)?;
        let count = match recv.kept.take() {
            // A message that was too large for uts_recv is read as the bytes that it is.
            Some(mut kept) => {
                let first = kept.split_to(kept.len().min(room.len()));
                place(&first, room);
                recv.kept = Some(kept).filter(|kept| !kept.is_empty());
                first.len()
            }
            None => {
                let mut filled = ReadBuf::uninit(room);
                let reading = poll_fn(|cx| Pin::new(&mut recv.inner).poll_read(cx, &mut filled));
                wait(&common, uts_operation::UTS_ON_RECV, Patience::of(timeout_ms), reading)??;
                filled.filled().len()
            }
        };
        got.set(count);
        if count == 0 { Err(Failure::end()) } else { Ok(()) }
    })
}

fn place(from: &[u8], room: &mut [MaybeUninit<u8>]) {
    if let Some(place) = room.get_mut(..from.len()) {
        place.write_copy_of_slice(from);
    }
}

/// Receives what comes next, a message or bytes, without copying it. It is in memory of the
/// library's until uts_release, also if the flow is closed before.
///
/// bytes_max: most bytes, where there is no message.
/// timeout_ms: how long to wait; 0 = not at all, -1 = for good.
/// Returns UTS_OK; UTS_AGAIN; UTS_END at the end; as uts_recv else.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_recv_buffer(
    flow: *mut uts_flow,
    buffer: *mut uts_buffer,
    bytes_max: usize,
    timeout_ms: c_int,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut out = unsafe { Out::new(buffer, uts_buffer::NONE, "buffer") }?;
        let (common, flow) = find::<Flow>(flow.cast())?;
        let mut recv = alone(&flow.recv)?;
        let piece = match recv.kept.take() {
            Some(message) => Piece::message(message),
            None => {
                let receiving = async {
                    while let Some(chunk) = recv.inner.recv_chunk(bytes_max).await? {
                        // What is missing stays known if the wait is given up.
                        match Piece::of(chunk) {
                            Ok(piece) => return Ok(Some(piece)),
                            Err(missing) => recv.missing = recv.missing.saturating_add(missing),
                        }
                    }
                    Ok::<_, uts::ReadError>(None)
                };
                let received =
                    wait(&common, uts_operation::UTS_ON_RECV, Patience::of(timeout_ms), receiving)?;
                received?.ok_or_else(Failure::end)?
            }
        };
        out.set(piece.lend(core::mem::take(&mut recv.missing))?);
        Ok(())
    })
}

/// A stretch of bytes, or a message, that is about to be lent.
struct Piece {
    position: u64,
    right_bytes: usize,
    data: Bytes,
    is_message: bool,
    timing: Option<Timing>,
}

impl Piece {
    fn message(data: Bytes) -> Self {
        Piece { position: 0, right_bytes: data.len(), data, is_message: true, timing: None }
    }

    /// # Errors
    /// The positions that are missing, if that is what the chunk tells.
    fn of(chunk: Chunk) -> core::result::Result<Self, u64> {
        Ok(match chunk {
            Chunk::Bytes(position, data) => Piece { position, is_message: false, ..Piece::message(data) },
            Chunk::Message(message) => Piece::message(message),
            Chunk::Timed { message, timing } => Piece { timing: Some(timing), ..Piece::message(message) },
            Chunk::Damaged { message, right_bytes } => {
                let right = usize::try_from(right_bytes).unwrap_or(usize::MAX).min(message.len());
                Piece { right_bytes: right, ..Piece::message(message) }
            }
            Chunk::Missing { positions } => return Err(positions),
        })
    }

    fn lend(self, missing: u64) -> Result<uts_buffer> {
        let Piece { position, right_bytes, data, is_message, timing } = self;
        let timing = uts_timing::of(timing, missing);
        let (start, size) = (data.as_ptr(), data.len());
        Ok(uts_buffer {
            data: start,
            size,
            right_bytes,
            position,
            is_message: is_message.into(),
            // No context's: who reads it need not know of that one's end.
            owner: give(Common::of::<Lent>(None), Arc::new(Lent { _bytes: data, timing }))?,
            ..uts_buffer::NONE
        })
    }
}

/// Tells when a message was made and what is missing before it, where the sender asks for
/// "uts.playoutDelay".
///
/// timing: where it goes.
/// Returns UTS_OK; UTS_EHANDLE if the buffer was ended; UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_buffer_timing(buffer: *const uts_buffer, timing: *mut uts_timing) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut out = unsafe { Out::new(timing, uts_timing::NONE, "timing") }?;
        // SAFETY: as promised.
        let held = unsafe { value(buffer, "buffer") }?;
        let held = held.ok_or_else(|| Failure::argument("`buffer` is NULL"))?;
        out.set(find::<Lent>(held.owner)?.1.timing);
        Ok(())
    })
}

/// Ends a buffer: its bytes are the library's again, and it is empty.
///
/// Returns UTS_OK; UTS_EHANDLE if it was ended before; UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h. Nobody reads its bytes any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_release(buffer: *mut uts_buffer) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let held = unsafe { value(buffer, "buffer") }?;
        let held = held.ok_or_else(|| Failure::argument("`buffer` is NULL"))?;
        find::<Lent>(held.owner)?;
        // SAFETY: as promised.
        unsafe { Out::new(buffer, uts_buffer::NONE, "buffer") }?;
        close(held.owner.addr());
        Ok(())
    })
}

/// Receives the next expedited message, also while nobody receives anything else of the flow.
///
/// data, size: where it goes; it has 16 bytes at most. got: its size.
/// Returns UTS_OK; UTS_AGAIN; UTS_END when none can come any more; UTS_EINVAL with less room than
/// 16 bytes; UTS_ECLOSED, UTS_ETIMEDOUT, UTS_EHANDLE or UTS_EBUSY.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_recv_expedited(
    flow: *mut uts_flow,
    data: *mut c_void,
    size: usize,
    got: *mut usize,
    timeout_ms: c_int,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut got = unsafe { Out::new(got, 0, "got") }?;
        let (common, flow) = find::<Flow>(flow.cast())?;
        // SAFETY: as promised.
        let room = unsafe { room(data.cast(), size, "data") }?;
        if size < 16 {
            return Err(Failure::argument("`data` has less room than the 16 bytes of an expedited message"));
        }
        let mut expedited = alone(&flow.expedited)?;
        let expedited = expedited.as_mut().ok_or_else(Failure::end)?;
        let patience = Patience::of(timeout_ms);
        let received = wait(&common, uts_operation::UTS_ON_RECV_EXPEDITED, patience, expedited.recv())?;
        let message: Bytes = received?.ok_or_else(Failure::end)?;
        place(&message, room);
        got.set(message.len().min(size));
        Ok(())
    })
}

/// Ends a flow behind what was written: the peer reads that, and then its end.
///
/// Returns UTS_OK; UTS_EFINISHED if it has ended before; UTS_ESTOPPED, UTS_ECLOSED, UTS_EPROPERTY,
/// UTS_EHANDLE or UTS_EBUSY.
#[unsafe(no_mangle)]
pub extern "C" fn uts_finish(flow: *mut uts_flow) -> c_int {
    border(|| Ok(alone(&find::<Flow>(flow.cast())?.1.send)?.finish()?))
}

/// Ends a flow, if that was not done, and waits until the peer has acknowledged everything.
///
/// Returns UTS_OK; UTS_AGAIN; UTS_ETIMEDOUT; else as uts_finish.
#[unsafe(no_mangle)]
pub extern "C" fn uts_finished(flow: *mut uts_flow, timeout_ms: c_int) -> c_int {
    border(|| {
        let (common, flow) = find::<Flow>(flow.cast())?;
        let mut send = alone(&flow.send)?;
        Ok(wait(&common, uts_operation::UTS_ON_FINISHED, Patience::of(timeout_ms), send.finished())??)
    })
}

/// Gives up at once what is sent in a flow. The peer's calls return UTS_ERESET.
#[unsafe(no_mangle)]
pub extern "C" fn uts_reset(flow: *mut uts_flow, code: u64) -> c_int {
    border(|| {
        alone(&find::<Flow>(flow.cast())?.1.send)?.reset(code);
        Ok(())
    })
}

/// Tells the peer that no more of a flow is wanted. Its calls return UTS_ESTOPPED.
#[unsafe(no_mangle)]
pub extern "C" fn uts_stop(flow: *mut uts_flow, code: u64) -> c_int {
    border(|| {
        let flow = find::<Flow>(flow.cast())?.1;
        let mut recv = alone(&flow.recv)?;
        recv.kept = None;
        recv.inner.stop(code);
        Ok(())
    })
}
