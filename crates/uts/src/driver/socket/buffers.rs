//! Where datagrams are received into.

use super::readiness::Readiness;
use quinn_udp::{EcnCodepoint, RecvMeta, UdpSocketState};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use uts_engine::Ecn;

/// Buffers that one call may fill. Each holds what the kernel coalesces (GRO), at most 64 KiB; of
/// memory that is never written to the system takes none.
const BUFFERS: usize = 32;
const BUFFER_BYTES: usize = 64 << 10;

/// Buffers that are offered at least, if little comes in each.
pub(super) const OFFERED_MIN: usize = 4;

/// True if a call fills as many buffers as there is anything for; elsewhere it fills one.
pub(super) const FILLS_ALL: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Bytes that one call should bring at most, so that they are still in cache when they are taken
/// in, and are read before more comes: the more the kernel coalesces, the fewer buffers are filled
/// at once.
const CALL_BYTES: usize = 64 << 10;

/// Where what arrives is put.
pub(super) struct Buffers {
    /// All buffers, one behind the other.
    memory: Vec<u8>,
    /// Number of buffers that the next call may fill.
    offered: usize,
    metas: [RecvMeta; BUFFERS],
}

/// Datagrams that arrived in one buffer, of `stride` bytes each; the last may be shorter.
pub(crate) struct Received<'a> {
    /// Sender of the datagrams.
    pub remote: SocketAddr,
    /// The address of this host that it was sent to, where the socket has several.
    pub local: Option<IpAddr>,
    /// ECN mark of the datagrams.
    pub ecn: Option<Ecn>,
    /// Bytes of each datagram.
    pub stride: usize,
    /// All datagrams, one behind the other.
    pub contents: &'a mut [u8],
}

impl Default for Buffers {
    fn default() -> Self {
        let metas = [RecvMeta::default(); BUFFERS];
        Buffers { memory: vec![0; BUFFERS * BUFFER_BYTES], offered: OFFERED_MIN, metas }
    }
}

impl Buffers {
    /// Number of buffers that the next call may fill.
    pub fn offered(&self) -> usize {
        self.offered
    }

    /// The next call may fill one buffer only.
    pub fn offer_one(&mut self) {
        self.offered = 1;
    }

    /// Fills so many buffers at most with what is there; says how many.
    pub fn fill(&mut self, offered: usize, io: &Readiness, state: &UdpSocketState) -> io::Result<usize> {
        let mut slices: [IoSliceMut<'_>; BUFFERS] = core::array::from_fn(|_| IoSliceMut::new(&mut []));
        for (slice, buffer) in slices.iter_mut().zip(self.memory.chunks_mut(BUFFER_BYTES)).take(offered) {
            *slice = IoSliceMut::new(buffer);
        }
        state.recv(io.socket(), &mut slices[..offered], &mut self.metas[..offered])
    }

    /// Hands over what is in so many buffers. `is_told` = the kernel says to which address of this
    /// host it was sent.
    pub fn hand_over(&mut self, filled: usize, is_told: bool, mut each: impl FnMut(Received<'_>)) {
        let mut bytes = 0;
        for (meta, buffer) in self.metas.iter().zip(self.memory.chunks_mut(BUFFER_BYTES)).take(filled) {
            let contents = &mut buffer[..meta.len.min(BUFFER_BYTES)];
            bytes += contents.len();
            if contents.is_empty() {
                continue;
            }
            let stride = meta.stride.clamp(1, contents.len());
            let local = meta.dst_ip.filter(|_| is_told);
            each(Received { remote: meta.addr, local, ecn: meta.ecn.map(from_codepoint), stride, contents });
        }
        // To offer a buffer costs something, too.
        let wanted = if filled == self.offered { 2 * filled } else { filled + 2 };
        let mean = bytes.checked_div(filled).unwrap_or(0).max(1);
        let most = (CALL_BYTES / mean).clamp(1, BUFFERS);
        self.offered = wanted.max(OFFERED_MIN).min(most);
    }

    /// Address to which the contents of a buffer were sent, as the kernel said.
    #[cfg(test)]
    pub fn destination(&self, buffer: usize) -> Option<IpAddr> {
        self.metas[buffer].dst_ip
    }
}

fn from_codepoint(ecn: EcnCodepoint) -> Ecn {
    match ecn {
        EcnCodepoint::Ect0 => Ecn::Ect0,
        EcnCodepoint::Ect1 => Ecn::Ect1,
        EcnCodepoint::Ce => Ecn::Ce,
    }
}
