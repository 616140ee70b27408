//! Figures of a connection.

use crate::border::border;
use crate::code::{Failure, Result};
use crate::connection::{Connection, uts_connection};
use crate::handles::find;
use core::ffi::c_int;
use core::mem::size_of;

/// Figures of a connection; of one that has ended, as they were then. Later versions may have more
/// behind these.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct uts_stats {
    /// Smoothed round trip in nanoseconds; 0 before one was measured.
    pub rtt_ns: u64,
    /// Smallest round trip of the last while, in nanoseconds.
    pub rtt_min_ns: u64,
    /// Mean deviation of the round trip, in nanoseconds.
    pub rtt_deviation_ns: u64,
    /// Congestion window in bytes; UINT64_MAX without congestion control.
    pub window_bytes: u64,
    /// Bytes that are under way.
    pub in_flight_bytes: u64,
    /// Bits per second that the path was seen to deliver lately.
    pub rate_bps: u64,
    /// Share of packets lost lately, 0 to 1.
    pub loss: f64,
    /// Bytes that were handed over and that the peer has not acknowledged.
    pub undelivered_bytes: u64,
    /// Nanoseconds for which the peer has been silent although something is expected of it; 0 = it
    /// is not.
    pub silence_ns: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Bytes of UDP payload sent.
    pub bytes_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Bytes of UDP payload received.
    pub bytes_received: u64,
    /// Packets lost.
    pub packets_lost: u64,
    /// Bytes of flows sent, repetitions included.
    pub data_bytes_sent: u64,
    /// Bytes of flows received, repetitions included.
    pub data_bytes_received: u64,
    /// Bytes of flows that were sent again.
    pub bytes_repeated: u64,
    /// Messages given up because their lifetime had passed.
    pub messages_expired: u64,
    /// Exchanges of mechanisms.
    pub exchanges: u64,
}

fn nanos(span: core::time::Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn of(connection: &uts::Connection) -> uts_stats {
    let stats = connection.stats();
    uts_stats {
        rtt_ns: nanos(stats.rtt),
        rtt_min_ns: nanos(stats.rtt_min),
        rtt_deviation_ns: nanos(stats.rtt_deviation),
        window_bytes: stats.window_bytes,
        in_flight_bytes: stats.in_flight_bytes,
        rate_bps: stats.rate.bits_per_sec(),
        loss: stats.loss,
        undelivered_bytes: connection.undelivered_bytes().unwrap_or(0),
        silence_ns: connection.silence().map_or(0, nanos),
        packets_sent: stats.packets_sent,
        bytes_sent: stats.bytes_sent,
        packets_received: stats.packets_received,
        bytes_received: stats.bytes_received,
        packets_lost: stats.packets_lost,
        data_bytes_sent: stats.data_bytes_sent,
        data_bytes_received: stats.data_bytes_received,
        bytes_repeated: stats.bytes_repeated,
        messages_expired: stats.messages_expired,
        exchanges: stats.exchanges,
    }
}

/// Tells figures of a connection.
///
/// stats: where they go. size: sizeof(uts_stats). A program that was compiled with an older header
/// gets those that it knows, one with a newer header zeros for the others.
/// Returns UTS_OK, UTS_ENOTCONN, UTS_EHANDLE or UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_get_stats(
    connection: *mut uts_connection,
    stats: *mut uts_stats,
    size: usize,
) -> c_int {
    border(|| {
        if size == 0 {
            return Err(Failure::argument("`size` is 0: it has to be sizeof(uts_stats)"));
        }
        // SAFETY: as promised.
        let room = unsafe { crate::memory::room(stats.cast(), size, "stats") }?;
        let (_, connection) = find::<Connection>(connection.cast())?;
        let stats = of(connection.get()?);
        // SAFETY: it is read byte by byte, and has no padding: all fields are of 8 bytes.
        let bytes =
            unsafe { core::slice::from_raw_parts((&raw const stats).cast::<u8>(), size_of::<uts_stats>()) };
        put(bytes, room)
    })
}

fn put(bytes: &[u8], room: &mut [core::mem::MaybeUninit<u8>]) -> Result<()> {
    let known = bytes.len().min(room.len());
    let (first, rest) = room.split_at_mut(known);
    first.write_copy_of_slice(&bytes[..known]);
    rest.fill(core::mem::MaybeUninit::new(0));
    Ok(())
}
