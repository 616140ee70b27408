//! The number of packets that calls take.

use super::super::{Caller, Methods};
use super::{PLACE, Server, any};
use crate::simulation::testing::{FAIR, begin};
use bytes::Bytes;
use core::time::Duration;
use std::net::SocketAddr;
use tokio::time::sleep;

/// Calls that are counted.
const CALLS: u64 = 1000;

/// A small call is a packet each way: the answer acknowledges the request, and the next request the
/// answer (thesis, table 2.3: VMTP; Birrell and Nelson, section 3.2). In a hundred calls the ends
/// say one thing besides at the most.
#[tokio::test(start_paused = true)]
async fn a_small_call_is_one_packet_each_way() {
    let network = begin(FAIR, 1);
    let server = Server::new(Methods::new().on_message("echo", |message| async move { Ok(message) }));
    let connection = server.connect().await;
    let here = connection.local_addr();
    let (caller, options) = (Caller::over(connection.clone()), any());
    let call = || caller.call("echo", Bytes::from_static(&[7; 64]), &options);
    call().await.expect("answered");
    // What follows the handshake is over.
    sleep(Duration::from_secs(1)).await;
    let count = || [here, SocketAddr::from(PLACE)].map(|at| network.sent(at));
    let (first, mut exact) = (count(), 0);
    for _ in 0..CALLS {
        let [requests, answers] = count();
        call().await.expect("answered");
        exact += u64::from(count() == [requests + 1, answers + 1]);
    }
    let last = count();
    let [requests, answers] = [last[0] - first[0], last[1] - first[1]];
    println!("{CALLS} calls: {requests} packets of the client, {answers} of the server; {exact} of one each");
    assert!(exact >= CALLS - CALLS / 50, "{exact} of {CALLS} calls were one packet each way");
    assert!(requests.max(answers) <= CALLS + CALLS / 100, "{requests}, {answers}");
}
