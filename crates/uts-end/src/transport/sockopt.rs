//! Options of sockets that no safe crate offers: `TCP_INFO`, `TCP_WINDOW_CLAMP`, `MPTCP_INFO`.
#![allow(unsafe_code, reason = "options and requests that neither rustix nor socket2 knows")]

use core::ffi::c_int;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes of `struct tcp_info` (Linux, include/uapi/linux/tcp.h) that are asked for. Older kernels
/// return fewer.
const TCP_INFO_BYTES: usize = 232;

/// The level of MPTCP's options, and of `struct mptcp_info` (Linux, include/uapi/linux/mptcp.h):
/// the option that reads it, the bytes asked for, and where `mptcpi_subflows_total` is.
const SOL_MPTCP: c_int = 284;
const MPTCP_INFO: c_int = 1;
const MPTCP_INFO_BYTES: usize = 88;
const MPTCP_SUBFLOWS_AT: usize = 80;

/// `TCP_CLOSE`: nothing is under way any more, and other fields are left over.
const CLOSED: u8 = 7;

/// State of a TCP connection, as the kernel tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TcpInfo {
    pub is_closed: bool,
    pub segment_bytes: u32,
    /// Congestion window and slow-start threshold in segments.
    pub window_segments: u32,
    pub threshold_segments: u32,
    /// Segments sent and not acknowledged; of these …
    pub unacked_segments: u32,
    /// … those that the receiver holds beyond a gap, and those taken for lost.
    pub sacked_segments: u32,
    pub lost_segments: u32,
    pub retransmitted_now_segments: u32,
    pub rtt: Duration,
    pub retransmitted_segments: u32,
    pub acked_bytes: u64,
    pub sent_segments: u32,
    pub unsent_bytes: u32,
    /// Bytes that the peer grants.
    #[cfg(test)]
    pub peer_window_bytes: u32,
}

impl TcpInfo {
    /// Offsets as in the kernel's header, which only ever grows at its end.
    fn parse(raw: &[u8]) -> TcpInfo {
        let u32_at = |at: usize| {
            raw.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
        };
        let u64_at = |at: usize| {
            raw.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        TcpInfo {
            is_closed: raw.first() == Some(&CLOSED),
            segment_bytes: u32_at(16),
            unacked_segments: u32_at(24),
            sacked_segments: u32_at(28),
            lost_segments: u32_at(32),
            retransmitted_now_segments: u32_at(36),
            rtt: Duration::from_micros(u64::from(u32_at(68))),
            threshold_segments: u32_at(76),
            window_segments: u32_at(80),
            retransmitted_segments: u32_at(100),
            acked_bytes: u64_at(120),
            sent_segments: u32_at(136),
            unsent_bytes: u32_at(144),
            #[cfg(test)]
            peer_window_bytes: u32_at(228),
        }
    }
}

/// State of a connection, as the kernel tells it; of MPTCP, of its first subflow.
pub(super) fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    let mut raw = [0u8; TCP_INFO_BYTES];
    Ok(TcpInfo::parse(option(&socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut raw)?))
}

/// Number of subflows that an MPTCP connection has now. `None` for TCP, and if the kernel does not
/// say (before 6.5).
pub(super) fn subflows(socket: impl AsFd) -> Option<u8> {
    let mut raw = [0u8; MPTCP_INFO_BYTES];
    option(&socket, SOL_MPTCP, MPTCP_INFO, &mut raw).ok()?.get(MPTCP_SUBFLOWS_AT).copied()
}

/// Reads an option of a socket to `raw`, and gives what the kernel has put there.
fn option<'a>(socket: &impl AsFd, level: c_int, name: c_int, raw: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let mut length = raw.len() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes at most `length`
    // bytes to `raw`.
    let result = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, raw.as_mut_ptr().cast(), &raw mut length)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(raw.get(..length as usize).unwrap_or_default())
}

/// Bounds the window that a TCP socket advertises, in bytes. The kernel forgets the bound when it
/// learns anew how much memory packets take. It must then be set again. Returns whether it had been
/// forgotten.
pub(super) fn keep_window_clamp(socket: impl AsFd, bytes: c_int) -> io::Result<bool> {
    let mut now = [0; size_of::<c_int>()];
    let is_told = option(&socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, &mut now).is_ok();
    if is_told && c_int::from_ne_bytes(now) == bytes {
        return Ok(false);
    }
    // SAFETY: the descriptor is open while it is borrowed, and the kernel reads one int.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_WINDOW_CLAMP,
            (&raw const bytes).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(true) } else { Err(io::Error::last_os_error()) }
}
