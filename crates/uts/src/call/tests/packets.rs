//! The number of packets that calls take.

use super::super::{Caller, Methods};
use super::{PLACE, Server, any};
use crate::driver::simulated::{Network, Weather};
use crate::{Direction, Identity, connect};
use bytes::Bytes;
use core::time::Duration;
use std::net::SocketAddr;
use tokio::time::sleep;

/// Calls that are counted.
const CALLS: u64 = 1000;

/// Makes calls one behind the other. Counts packets of the client and of the server; `adapts` = the
/// ends look for better profiles meanwhile.
async fn packets(adapts: bool) -> [u64; 2] {
    let network = Network::begin(Weather::FAIR, 1);
    let methods = Methods::new().on_message("echo", |message| async move { Ok(message) });
    let word = if adapts { "on" } else { "off" };
    let server = Server::start_with(Identity::generate().expect("a key"), methods, |options| {
        options.connection.requirements.set("uts.adapt", word).expect("a property");
    });
    let mut options = server.options();
    options.connection.requirements.set("uts.adapt", word).expect("a property");
    let connection = connect(&SocketAddr::from(PLACE).to_string(), options).await.expect("connected");
    let here = connection.local_addr();
    let (caller, options) = (Caller::over(connection.clone()), any());
    let call = || caller.call("echo", Bytes::from_static(&[7; 64]), &options);
    call().await.expect("answered");
    // What follows the handshake is over.
    sleep(Duration::from_secs(1)).await;
    let count = || [here, SocketAddr::from(PLACE)].map(|at| network.sent(at));
    let before = count();
    for _ in 0..CALLS {
        call().await.expect("answered");
    }
    let after = count();
    println!("{word}: {:?}, {:?}", connection.profile(Direction::Out), connection.stats());
    [after[0] - before[0], after[1] - before[1]]
}

/// A small call is a packet each way: the answer acknowledges the request, and the next request the
/// answer. (thesis, table 2.3: VMTP; Birrell and Nelson, section 3.2)
#[tokio::test(start_paused = true)]
async fn a_small_call_is_one_packet_each_way() {
    assert_eq!(packets(false).await, [CALLS, CALLS]);
}

/// Ends that look for better profiles send one packet more in a hundred calls at the most.
#[tokio::test(start_paused = true)]
async fn little_is_said_beside_calls() {
    let [requests, answers] = packets(true).await;
    println!("{CALLS} calls: {requests} packets of the client, {answers} of the server");
    assert!(requests.max(answers) <= CALLS + CALLS / 100, "{requests}, {answers}");
}
