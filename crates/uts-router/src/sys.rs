//! System calls that no safe crate offers: packet sockets, `recvmmsg` with time stamps, and the
//! resources that a child has used. All `unsafe` of this crate stands here.
//!
//! Each block hands the kernel pointers into buffers that outlive the call and lengths that are
//! theirs; nothing that the kernel wrote is read beyond the length that it gave.

#![allow(
    unsafe_code,
    reason = "rustix and socket2 have neither AF_PACKET addresses and options, nor recvmmsg, nor wait4"
)]

use rustix::process::Pid;
use rustix::thread::UnshareFlags;
use std::ffi::c_int;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::time::Duration;

/// Bytes of the header that a packet socket puts before a frame (`virtio_net_hdr`).
pub(super) const VNET_HEADER_BYTES: usize = 10;
/// Longest frame with its header: 65535 bytes of IP, Ethernet, a VLAN tag. Rounded up.
pub(super) const FRAME_BYTES_MAX: usize = 65_600;
/// Frames that are read or sent by one call at most.
pub(super) const BATCH: usize = 64;
/// Room for one time stamp: `CMSG_SPACE(sizeof(timespec))` is 32 on 64-bit machines.
const CONTROL_BYTES: usize = 64;
/// Receive buffer that is asked for; without privileges the system grants `net.core.rmem_max`.
const RECEIVE_BUFFER_BYTES: c_int = 256 << 20;

/// Send buffer that is asked for.
const SEND_BUFFER_BYTES: c_int = 4 << 20;

/// Leaves the namespaces that `flags` names for new ones.
pub(super) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: only a table of descriptors of its own could confuse other threads; not asked for.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// Has a thread of the kernel take in what a veth interface receives, on whatever processor is free
/// (threaded NAPI), and join packets that arrive together (GRO). Otherwise the sender to the
/// interface does the receiver's protocol work as well. Acts in the calling thread's network
/// namespace, and needs no privileges beyond it.
pub(super) fn receive_in_thread(interface: &str) -> io::Result<()> {
    set_offload(interface, Offload::Receive, true)?;
    // sysfs shows the network namespace of the process that has mounted it: in a namespace of
    // mounts that ends with its only thread.
    std::thread::scope(|scope| {
        let switched = scope.spawn(|| {
            unshare(UnshareFlags::NEWNS)?;
            rustix::mount::mount("sysfs", "/sys", "sysfs", rustix::mount::MountFlags::empty(), None)?;
            std::fs::write(format!("/sys/class/net/{interface}/threaded"), "1")
        });
        switched.join().unwrap_or_else(|_| Err(io::Error::other("its thread has failed")))
    })
}

/// Work that an interface does for its host.
#[derive(Clone, Copy)]
pub(super) enum Offload {
    /// TSO: `ETHTOOL_STSO` of linux/ethtool.h. A veth peer receives by NAPI only from an interface
    /// without it.
    Send = 0x1f,
    /// GRO: `ETHTOOL_SGRO`. Only with it does a veth interface have NAPI.
    Receive = 0x2c,
}

/// Turns an offload of an interface on or off, in the calling thread's network namespace.
pub(super) fn set_offload(interface: &str, offload: Offload, on: bool) -> io::Result<()> {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_INET, kind, 0) })?;
    // SAFETY: a descriptor that was just made, and that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut value = Value { command: offload as u32, data: u32::from(on) };
    // SAFETY: plain old data, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // The last byte stays zero.
    for (place, byte) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(interface.bytes()) {
        *place = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the kernel reads the request and the value that it points to. Both outlive the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) }).map(drop)
}

/// A raw packet socket on one interface, with `virtio_net_hdr` before each frame, and arrival
/// stamps by the kernel.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens it in the calling thread's network namespace; it does not block.
    pub(super) fn open(interface_index: u32) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // Without a protocol, it gets nothing before it is bound to its interface.
        // SAFETY: no pointers.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: a descriptor that was just made, and that nobody else owns.
        let socket = PacketSocket(unsafe { OwnedFd::from_raw_fd(fd) });
        socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // What the host at the other end has not taken in counts as sent by us. Its ring holds 256
        // packets.
        if socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER_BYTES).is_err() {
            socket.set(libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER_BYTES)?;
        }
        // FORCE needs a privilege; without it, what the system grants has to do.
        if socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES).is_err() {
            socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER_BYTES)?;
        }
        // SAFETY: plain old data, for which zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = interface_index.cast_signed();
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: an address of this length.
        check(unsafe { libc::bind(fd, (&raw const address).cast(), len) })?;
        Ok(socket)
    }

    fn set(&self, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
        let len = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: a value of this length.
        check(unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, (&raw const value).cast(), len) })
            .map(drop)
    }

    /// Frames that found the receive buffer full, since this was last asked.
    pub(super) fn take_drops(&self) -> io::Result<u64> {
        // `struct tpacket_stats`: packets, drops.
        let mut counts = [0u32; 2];
        let mut len = size_of::<[u32; 2]>() as libc::socklen_t;
        // SAFETY: room of this length.
        check(unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                counts.as_mut_ptr().cast(),
                &raw mut len,
            )
        })?;
        let [_, drops] = counts;
        Ok(drops.into())
    }

    /// Sends frames, each with its header before it, in order. Returns how many were taken. The
    /// error is that of the first frame.
    pub(super) fn send<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        // SAFETY: plain old data, for which zeros are valid.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        let mut slices = [libc::iovec { iov_base: null_mut(), iov_len: 0 }; BATCH];
        let mut count = 0;
        for ((frame, slice), message) in frames.zip(&mut slices).zip(&mut messages) {
            *slice = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            message.msg_hdr.msg_iov = slice;
            message.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: `count` messages, whose slices and frames live to the end of this function.
        let sent = check(unsafe {
            libc::sendmmsg(self.0.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT)
        })?;
        Ok(sent.unsigned_abs() as usize)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A frame as it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received<'a> {
    /// When it came, in nanoseconds of the system's clock (`CLOCK_REALTIME`).
    pub stamp_ns: Option<u64>,
    /// The header, then the frame.
    pub bytes: &'a [u8],
}

/// Room for one reading.
#[derive(Debug)]
pub(super) struct ReceiveBatch {
    frames: Vec<[u8; FRAME_BYTES_MAX]>,
    controls: Vec<[u64; CONTROL_BYTES / 8]>,
    lengths: Vec<(usize, usize)>,
}

impl ReceiveBatch {
    pub(super) fn new() -> Self {
        ReceiveBatch {
            frames: vec![[0; FRAME_BYTES_MAX]; BATCH],
            controls: vec![[0; CONTROL_BYTES / 8]; BATCH],
            lengths: Vec::with_capacity(BATCH),
        }
    }

    /// Reads what is there, up to [`BATCH`] frames; 0 when there is nothing.
    pub(super) fn receive(&mut self, socket: &PacketSocket) -> io::Result<usize> {
        self.lengths.clear();
        // SAFETY: plain old data, for which zeros are valid.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        let mut slices = [libc::iovec { iov_base: null_mut(), iov_len: FRAME_BYTES_MAX }; BATCH];
        for (index, message) in messages.iter_mut().enumerate() {
            slices[index].iov_base = self.frames[index].as_mut_ptr().cast();
            message.msg_hdr.msg_iov = &raw mut slices[index];
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = self.controls[index].as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = CONTROL_BYTES as _;
        }
        let (fd, flags) = (socket.0.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: BATCH messages; what they point to has the lengths given, and outlives the call.
        let got =
            check(unsafe { libc::recvmmsg(fd, messages.as_mut_ptr(), BATCH as _, flags as _, null_mut()) });
        let count = match got {
            Ok(count) => count.unsigned_abs() as usize,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(e) => return Err(e),
        };
        let lengths = messages.iter().take(count);
        #[allow(clippy::unnecessary_cast, reason = "the type of msg_controllen differs between C libraries")]
        self.lengths.extend(lengths.map(|m| (m.msg_len as usize, m.msg_hdr.msg_controllen as usize)));
        Ok(count)
    }

    /// The frames of the last reading.
    pub(super) fn iter(&self) -> impl Iterator<Item = Received<'_>> {
        self.lengths.iter().zip(&self.frames).zip(&self.controls).map(
            |(((len, control_len), frame), control)| Received {
                bytes: frame.get(..*len).unwrap_or_default(),
                stamp_ns: stamp_of(control, *control_len),
            },
        )
    }
}

/// The time stamp among control messages.
fn stamp_of(control: &[u64; CONTROL_BYTES / 8], len: usize) -> Option<u64> {
    // SAFETY: plain old data, for which zeros are valid.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_control = control.as_ptr().cast_mut().cast();
    header.msg_controllen = len.min(CONTROL_BYTES) as _;
    // SAFETY: a buffer of at least this length, that the kernel has filled.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !message.is_null() {
        // SAFETY: the macros yield only messages that lie within the buffer.
        let (kind, level, data) =
            unsafe { ((*message).cmsg_type, (*message).cmsg_level, libc::CMSG_DATA(message)) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPNS {
            // SAFETY: such a message holds a timespec, not necessarily aligned.
            let at = unsafe { data.cast::<libc::timespec>().read_unaligned() };
            return Some(u64::try_from(at.tv_sec).ok()? * 1_000_000_000 + u64::try_from(at.tv_nsec).ok()?);
        }
        // SAFETY: as above.
        message = unsafe { libc::CMSG_NXTHDR(&raw const header, message) };
    }
    None
}

/// Scheduling of the calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Schedule {
    /// Like others, but with shorter turns. It then gets its turn sooner (from Linux 6.12; no
    /// effect before).
    Fair,
    /// Before others; needs a privilege.
    RealTime,
}

/// Low among real-time priorities (1 to 99): before ordinary threads, after the system's own.
const REAL_TIME_PRIORITY: u32 = 10;
/// The least that Linux grants.
const FAIR_TURN_NS: u64 = 100_000;

/// Sets how the calling thread is scheduled.
pub(super) fn schedule(how: Schedule) -> io::Result<()> {
    // SAFETY: plain old data, for which zeros are valid.
    let mut attributes: libc::sched_attr = unsafe { zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    match how {
        Schedule::Fair => {
            attributes.sched_policy = libc::SCHED_OTHER.unsigned_abs();
            attributes.sched_runtime = FAIR_TURN_NS;
        }
        Schedule::RealTime => {
            attributes.sched_policy = libc::SCHED_FIFO.unsigned_abs();
            attributes.sched_priority = REAL_TIME_PRIORITY;
        }
    }
    // SAFETY: attributes of the size that they name; 0 is the calling thread.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// End of a child, with the resources that it has used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reaped {
    /// As `wait` gives it.
    pub status: i32,
    pub user: Duration,
    pub system: Duration,
    pub max_resident_bytes: u64,
}

/// Waits until some child has ended, and leaves it to be collected.
pub(super) fn wait_for_any_child() -> io::Result<Pid> {
    // SAFETY: plain old data, for which zeros are valid.
    let mut info: libc::siginfo_t = unsafe { zeroed() };
    // SAFETY: room for what is told.
    check(unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOWAIT) })?;
    // SAFETY: `waitid` has filled in the fields of SIGCHLD.
    Pid::from_raw(unsafe { info.si_pid() }).ok_or_else(|| io::Error::other("a child without a number"))
}

/// Collects a child that has ended; `None` if it has not, or if it is not a child.
pub(super) fn reap(pid: Pid) -> Option<Reaped> {
    let mut status = 0;
    // SAFETY: plain old data, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { zeroed() };
    let raw = pid.as_raw_nonzero().get();
    // SAFETY: room for a status and a usage.
    let got = unsafe { libc::wait4(raw, &raw mut status, libc::WNOHANG, &raw mut usage) };
    if got != raw {
        return None;
    }
    let span =
        |t: libc::timeval| Duration::new(t.tv_sec.unsigned_abs(), t.tv_usec.unsigned_abs() as u32 * 1000);
    Some(Reaped {
        status,
        user: span(usage.ru_utime),
        system: span(usage.ru_stime),
        max_resident_bytes: usage.ru_maxrss.unsigned_abs() * 1024,
    })
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
