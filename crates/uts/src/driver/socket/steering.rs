//! Several sockets at one port, among which the kernel steers datagrams by the byte that tells
//! whose an id is (`spec/packets.md` P-65).

use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::SocketAddr;
use uts_engine::STEERING_BYTES;

/// Sockets at one address, as many as there are workers: the first datagrams of a worker's
/// connections, and all others, come to its socket.
///
/// # Errors
/// Those of the system; the address is in use, whoever uses it.
pub(super) fn bind(addr: SocketAddr, workers: usize) -> io::Result<Vec<socket2::Socket>> {
    // The first has the port for itself, and shares it from then on: so no other program of the
    // user finds itself sharing it.
    let first = super::bind(addr)?;
    first.set_reuse_port(true)?;
    let addr = first.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut sockets = vec![first];
    while sockets.len() < workers {
        let socket = super::open(addr)?;
        socket.set_reuse_port(true)?;
        super::take_both_families(&socket, addr);
        socket.bind(&addr.into())?;
        sockets.push(socket);
    }
    steer(&sockets[0], workers)?;
    Ok(sockets)
}

/// Has the kernel choose the socket by a datagram's byte: the number that the program returns is
/// that of the socket in the order of binding. A packet whose byte is missing goes to the first.
fn steer(socket: &socket2::Socket, workers: usize) -> io::Result<()> {
    let [short, long] = STEERING_BYTES;
    let op =
        |code: u32, jt: u8, jf: u8, k: usize| libc::sock_filter { code: code as u16, jt, jf, k: k as u32 };
    // `packet::is_long`: the highest bit of the first byte. (P-4)
    let mut program = [
        op(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 2, 0, 0x80),
        op(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, short),
        op(libc::BPF_JMP | libc::BPF_JA, 0, 0, 1),
        op(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, long),
        op(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, 0, 0, workers),
        op(libc::BPF_RET | BPF_A, 0, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    Ok(setsockopt(socket, sockopt::AttachReusePortCbpf, &program)?)
}

/// The accumulator is returned (`linux/filter.h`).
const BPF_A: u32 = 0x10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use uts_engine::worker_of;

    /// The kernel and the engine agree whose a datagram is, whatever is in it.
    #[test]
    fn the_kernel_chooses_the_socket_that_the_engine_names() {
        for (address, workers) in [("127.0.0.1:0", 2), ("127.0.0.1:0", 5), ("[::]:0", 3), ("127.0.0.1:0", 64)]
        {
            let sockets = bind(address.parse().expect("an address"), workers).expect("bound");
            let port = sockets[0].local_addr().expect("bound").as_socket().expect("an address").port();
            for socket in &sockets {
                socket.set_nonblocking(false).expect("set");
                socket.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
            }
            let peer = super::super::open("127.0.0.1:0".parse().expect("an address")).expect("opened");
            let to = SocketAddr::from(([127, 0, 0, 1], port)).into();
            for byte in 0..=255_u8 {
                for datagram in
                    [vec![0x40, byte, 9, 9], vec![0x80, 0, 0, 0, 2, 8, byte, 9], vec![0x40], vec![0xc0, byte]]
                {
                    peer.send_to(&datagram, &to).expect("sent");
                    let mut found = [std::mem::MaybeUninit::new(0_u8); 16];
                    let bytes = sockets[worker_of(&datagram, workers)].recv(&mut found).expect("it came");
                    assert_eq!(bytes, datagram.len());
                }
            }
        }
    }

    #[test]
    fn nobody_comes_to_share_a_port_unasked() {
        let sockets = bind("127.0.0.1:0".parse().expect("an address"), 2).expect("bound");
        let addr = sockets[0].local_addr().expect("bound").as_socket().expect("an address");
        assert_eq!(bind(addr, 2).expect_err("in use").kind(), io::ErrorKind::AddrInUse);
        assert_eq!(super::super::bind(addr).expect_err("in use").kind(), io::ErrorKind::AddrInUse);
    }
}
