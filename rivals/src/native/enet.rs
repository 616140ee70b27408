//! ENet: a host, which is one UDP socket, and its peers. What reads ENet's structures is in
//! `enet.c`.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::time::Timespec;
use std::collections::BTreeMap;
use std::io;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::time::Duration;

/// The packet is repeated until it has arrived, in order with others of its channel.
pub const RELIABLE: u32 = 1;
/// The packet is delivered in whatever order it comes.
pub const UNSEQUENCED: u32 = 1 << 1;
/// Fragments of an unreliable packet are unreliable too.
pub const UNRELIABLE_FRAGMENT: u32 = 1 << 3;
/// Most channels of a peer.
pub const CHANNELS_MAX: usize = 255;

/// A peer of a host. Numbers are never reused, so that one of a peer that has gone finds nothing.
pub type PeerId = u64;

/// What happened at a host.
pub enum Event {
    /// A peer has connected, or the connection to it is established.
    Connected(PeerId),
    /// It has gone: in order with the number that it gave, or with 0 after a time-out.
    Disconnected(PeerId, u32),
    /// A packet has come on a channel.
    Received(PeerId, u8, Vec<u8>),
}

/// Packets that ENet has done with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Done {
    /// Their bytes.
    pub bytes: u64,
    /// Their number.
    pub packets: u64,
}

/// A host. It belongs to the thread that made it.
pub struct Host {
    raw: NonNull<RawHost>,
    /// By number. ENet writes the counters when it frees a packet. They stay where they are until
    /// the host goes.
    peers: BTreeMap<PeerId, Peer>,
    gone: Vec<Counters>,
    next: PeerId,
    _stays: PhantomData<*mut ()>,
}

struct Peer {
    raw: *mut RawPeer,
    counters: Counters,
}

/// For channel 0, and for all others. ENet holds pointers to both.
struct Counters(NonNull<[Done; 2]>);

impl Counters {
    fn new() -> Self {
        Counters(NonNull::from(Box::leak(Box::default())))
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: it is from a box, and the host, which alone wrote to it, is gone (`Host::drop`).
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Host {
    /// A host at an address; it takes up to `peers`.
    ///
    /// # Errors
    /// If the address cannot be taken.
    pub fn listen(at: SocketAddrV4, peers: usize) -> io::Result<Host> {
        initialize()?;
        // SAFETY: plain values.
        let raw = unsafe { rival_enet_listen(network_order(*at.ip()), at.port(), peers, CHANNELS_MAX) };
        Host::from_raw(raw, || format!("ENet cannot listen at {at} (is the address taken?)"))
    }

    /// A host on a free port, for one peer.
    ///
    /// # Errors
    /// If there is no socket.
    pub fn client() -> io::Result<Host> {
        initialize()?;
        // SAFETY: plain values.
        let raw = unsafe { rival_enet_host(CHANNELS_MAX) };
        Host::from_raw(raw, || "ENet cannot make a socket".into())
    }

    fn from_raw(raw: *mut RawHost, why: impl Fn() -> String) -> io::Result<Host> {
        let raw = NonNull::new(raw).ok_or_else(|| io::Error::other(why()))?;
        Ok(Host { raw, peers: BTreeMap::new(), gone: Vec::new(), next: 1, _stays: PhantomData })
    }

    /// The port that was taken.
    pub fn port(&self) -> u16 {
        // SAFETY: the host lives.
        unsafe { rival_enet_port(self.raw.as_ptr()) }
    }

    /// What ENet has done with of what was sent to a peer on channel 0, and on all others.
    pub fn done(&self, peer: PeerId) -> Option<[Done; 2]> {
        let counters = &self.peers.get(&peer)?.counters;
        // SAFETY: the box lives, and ENet writes to it only within calls from this thread.
        Some(unsafe { *counters.0.as_ptr() })
    }

    /// What ENet tells of a peer.
    pub fn status(&self, peer: PeerId) -> Option<Status> {
        let raw = self.peers.get(&peer)?.raw;
        let mut status = Status::default();
        // SAFETY: a peer in `peers` is one of the living host.
        unsafe { rival_enet_status(raw, &mut status) };
        Some(status)
    }

    /// Begins to connect.
    ///
    /// # Errors
    /// If the host has a peer already.
    pub fn connect(&mut self, to: SocketAddrV4) -> io::Result<PeerId> {
        // SAFETY: the host lives.
        let raw = unsafe {
            rival_enet_connect(self.raw.as_ptr(), network_order(*to.ip()), to.port(), CHANNELS_MAX)
        };
        if raw.is_null() {
            return Err(io::Error::other("ENet has no room for another peer"));
        }
        Ok(self.peer(raw))
    }

    /// Hands over a packet; `false` if the peer has gone, or the packet is larger than ENet takes.
    pub fn send(&mut self, peer: PeerId, channel: u8, bytes: &[u8], flags: u32) -> bool {
        let Some(peer) = self.peers.get(&peer) else { return false };
        let which = usize::from(channel != 0);
        // SAFETY: the peer is one of the living host, the bytes are copied, and the counter stays
        // until the host is gone.
        unsafe {
            let counter = peer.counters.0.as_ptr().cast::<Done>().add(which);
            rival_enet_send(peer.raw, channel, bytes.as_ptr(), bytes.len(), flags, counter) == 0
        }
    }

    /// Leaves a peer once it has acknowledged everything that was sent to it, and a ping besides. A
    /// peer that gets unreliable packets and the leave at once forgets those packets.
    pub fn disconnect_later(&mut self, peer: PeerId, data: u32) {
        if let Some(peer) = self.peers.get(&peer) {
            // SAFETY: a peer in `peers` is one of the living host.
            unsafe {
                enet_peer_ping(peer.raw);
                enet_peer_disconnect_later(peer.raw, data);
            }
        }
    }

    /// Leaves a peer, and tells it once.
    pub fn disconnect_now(&mut self, peer: PeerId, data: u32) {
        if let Some(peer) = self.peers.remove(&peer) {
            // SAFETY: as above. This frees the packets of the peer, and no event of it comes any
            // more.
            unsafe { enet_peer_disconnect_now(peer.raw, data) }
            self.gone.push(peer.counters);
        }
    }

    /// Sends and receives what there is. Returns the next event, if there is one. To be called
    /// until there is none.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn service(&mut self) -> io::Result<Option<Event>> {
        let mut event = RawEvent::default();
        // SAFETY: the host lives, and the structure is as in enet.c.
        unsafe { rival_enet_service(self.raw.as_ptr(), &mut event) };
        if event.kind < 0 {
            return Err(io::Error::other("ENet cannot use its socket any more"));
        }
        let known = self.peers.iter().find(|(_, peer)| peer.raw == event.peer).map(|(id, _)| *id);
        Ok(match (event.kind, known) {
            (CONNECT, known) => Some(Event::Connected(known.unwrap_or_else(|| self.peer(event.peer)))),
            (DISCONNECT, Some(id)) => {
                self.gone.extend(self.peers.remove(&id).map(|peer| peer.counters));
                Some(Event::Disconnected(id, event.data))
            }
            (RECEIVE, known) => {
                // SAFETY: ENet hands over the packet. It holds this many bytes until it is
                // destroyed, once.
                let bytes = unsafe {
                    let bytes = match event.length {
                        0 => Vec::new(),
                        length => std::slice::from_raw_parts(event.bytes, length).to_vec(),
                    };
                    enet_packet_destroy(event.packet);
                    bytes
                };
                known.map(|id| Event::Received(id, event.channel, bytes))
            }
            _ => None,
        })
    }

    /// Waits until something arrives, until `wake` can be read, or for this long.
    pub fn wait(&self, wake: BorrowedFd<'_>, at_most: Duration) {
        // SAFETY: the socket is open while the host lives.
        let socket = unsafe { BorrowedFd::borrow_raw(rival_enet_socket(self.raw.as_ptr())) };
        let mut fds =
            [PollFd::new(&socket, PollFlags::IN), PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN)];
        // Interrupted or not, the caller looks for itself.
        let _ = poll(&mut fds, Timespec::try_from(at_most).ok().as_ref());
    }

    fn peer(&mut self, raw: *mut RawPeer) -> PeerId {
        let id = self.next;
        self.next += 1;
        self.peers.insert(id, Peer { raw, counters: Counters::new() });
        id
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: it is not used any more. The counters, to which this writes, are dropped after
        // it.
        unsafe { enet_host_destroy(self.raw.as_ptr()) }
    }
}

/// The version of the library that is linked.
pub fn version() -> String {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three places to write to.
    unsafe { rival_enet_version(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}

/// Once for the process, and for as long as it lives.
fn initialize() -> io::Result<()> {
    static DONE: OnceLock<bool> = OnceLock::new();
    // SAFETY: called once, before anything else of ENet.
    match DONE.get_or_init(|| unsafe { enet_initialize() } == 0) {
        true => Ok(()),
        false => Err(io::Error::other("ENet cannot be initialized")),
    }
}

fn network_order(ip: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(ip.octets())
}

#[repr(C)]
struct RawHost {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawPeer {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawPacket {
    _opaque: [u8; 0],
}

/// `struct rival_enet_event`.
#[repr(C)]
struct RawEvent {
    kind: i32,
    data: u32,
    peer: *mut RawPeer,
    packet: *mut RawPacket,
    bytes: *const u8,
    length: usize,
    channel: u8,
}

impl Default for RawEvent {
    fn default() -> Self {
        let (peer, packet, bytes) = (null_mut(), null_mut(), null_mut());
        RawEvent { kind: 0, data: 0, peer, packet, bytes, length: 0, channel: 0 }
    }
}

/// What ENet tells of a peer (`struct rival_enet_status`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// Reliable bytes that may be in flight: the window as throttled.
    pub window_bytes: u32,
    /// Reliable bytes in flight.
    pub in_flight_bytes: u32,
    /// Mean round-trip time in milliseconds.
    pub rtt_ms: u32,
    /// Datagrams that the host has sent.
    pub sent_packets: u32,
    /// Reliable packets held to be lost, within the interval of ENet's statistics (10 s).
    pub lost_packets: u32,
}

// ENetEventType.
const CONNECT: i32 = 1;
const DISCONNECT: i32 = 2;
const RECEIVE: i32 = 3;

unsafe extern "C" {
    fn enet_initialize() -> i32;
    fn enet_host_destroy(host: *mut RawHost);
    fn enet_packet_destroy(packet: *mut RawPacket);
    fn enet_peer_ping(peer: *mut RawPeer);
    fn enet_peer_disconnect_now(peer: *mut RawPeer, data: u32);
    fn enet_peer_disconnect_later(peer: *mut RawPeer, data: u32);
    fn rival_enet_version(major: *mut u32, minor: *mut u32, patch: *mut u32);
    fn rival_enet_listen(address: u32, port: u16, peers: usize, channels: usize) -> *mut RawHost;
    fn rival_enet_host(channels: usize) -> *mut RawHost;
    fn rival_enet_connect(host: *mut RawHost, address: u32, port: u16, channels: usize) -> *mut RawPeer;
    fn rival_enet_socket(host: *const RawHost) -> i32;
    fn rival_enet_port(host: *const RawHost) -> u16;
    fn rival_enet_service(host: *mut RawHost, event: *mut RawEvent) -> i32;
    fn rival_enet_send(
        peer: *mut RawPeer,
        channel: u8,
        bytes: *const u8,
        length: usize,
        flags: u32,
        freed: *mut Done,
    ) -> i32;
    fn rival_enet_status(peer: *const RawPeer, status: *mut Status);
}
