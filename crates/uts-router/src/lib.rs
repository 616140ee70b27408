//! RouterPC: real hosts behind an emulated network, without privileges.
//!
//! Hosts are network namespaces, in which unmodified programs run: kernel TCP, iperf3, whatever
//! there is. Each has one Ethernet interface. The other end of it is RouterPC's, which carries
//! every packet over [`uts_path`] paths in real time. It works for an ordinary user (in a user
//! namespace) and for root. It never touches the machine's own network, and leaves nothing behind,
//! however it ends.
//!
//! ```no_run
//! use uts_router::{Testbed, TestbedConfig};
//! use uts_path::{PathConfig, Target};
//!
//! let path = PathConfig::both("rate=10mbit delay=20ms buffer=64p framing=ethernet".parse()?);
//! let bed = Testbed::start(TestbedConfig::point_to_point(path))?;
//! let mut server = bed.command(1, "iperf3").args(["-s", "-1"]).spawn()?;
//! bed.begin()?;
//! let server_address = bed.address(1).to_string();
//! let client = bed.command(0, "iperf3").args(["-c", &server_address, "-C", "cubic"]).spawn()?;
//! bed.set(0, Target::Both, &"rate=2mbit".parse()?)?;
//! server.wait()?;
//! let ending = bed.finish()?;
//! assert!(ending.fidelity.is_valid, "{:?}", ending.fidelity.why);
//! # drop(client);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the hosts see
//!
//! One long Ethernet segment: all hosts are in 10.77.0.0/24 (and fd77::/64) and know each other's
//! Ethernet addresses. Nothing counts a TTL down. The path alone changes packets. Multicast goes to
//! all other hosts, over the paths between. A link's lengths are those of IP packets. A packet that
//! exceeds a link's MTU vanishes, or is answered by ICMP if [`TestbedConfig::tell_too_big`] says
//! so.
//!
//! # What it is made of
//!
//! * [`Testbed`] is the handle; `supervise` the processes behind it, `protocol` what they say to
//!   each other, `host` a host's namespace.
//! * `forward` is the data path, in real time; `network` the emulated network, in virtual time;
//!   `frame`, `split` and `icmp` know packets; `sys` the system.
//! * `record`, `sequence` and `tcp_info` write down, `fidelity` judges.
//! * [`doctor()`] says what this machine permits. [`bench`](mod@bench) measures how exact and how
//!   fast it is here, [`probe`](mod@probe) is what it sends, and `gso_check` compares `split` with
//!   the kernel.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "RouterPC faces the world: real sockets, real time"
)]

pub mod bench;
mod check;
mod config;
mod doctor;
mod error;
mod fidelity;
mod forward;
mod frame;
mod gso_check;
mod host;
mod icmp;
mod margin;
mod network;
pub mod probe;
mod protocol;
mod record;
mod sequence;
mod split;
mod supervise;
mod sys;
mod tcp_info;
pub mod tcp_probe;
mod testbed;
mod topology;

pub use check::Check;
pub use config::{RecordConfig, TestbedConfig};
pub use doctor::{doctor, doctor_with};
pub use error::RouterError;
pub use fidelity::{Bounds, Fidelity, LostOutside, PathStats};
pub use supervise::{Stage, supervise};
pub use testbed::{Control, Ending, Exit, HostCommand, Io, Output, RemoteChild, Testbed};
pub use topology::{HOSTS_MAX, Topology};
