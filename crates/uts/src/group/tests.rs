//! Groups by real multicast, in a network namespace of their own. Members lose datagrams by
//! filters at their sockets (socket(7): SO_ATTACH_FILTER), each its own.
#![cfg(target_os = "linux")]

use super::*;
use crate::{Connection, Endpoint, Identity, Listener, ServerOptions};
use core::time::Duration;
use socket2::{SockFilter, SockRef};
use std::process::Command;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use uts_group::seal::Unreadable;

/// Time in which anything here has happened, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test again in a network of its own, in which a group is heard on loopback. Returns
/// whether this is that run. If the system allows no such network, the test is skipped.
fn in_own_network(name: &str) -> bool {
    const INSIDE: &str = "UTS_TEST_INSIDE_NETWORK";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    const SET_UP: &str = "ip link set lo up multicast on && ip route add 239.0.0.0/8 dev lo && exec \"$@\"";
    let unshare = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-Urn", "sh", "-c", SET_UP, "sh"]).args(args).env(INSIDE, "1");
        command.output()
    };
    let probe = unshare(&["true"]);
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED {name}: no such network here: {probe:?}");
        return false;
    }
    let this = std::env::current_exe().expect("a program").display().to_string();
    let inside =
        unshare(&[&this, &format!("group::tests::{name}"), "--exact", "--nocapture"]).expect("it runs");
    let said = String::from_utf8_lossy(&inside.stdout);
    let has_passed = inside.status.success() && said.contains("1 passed");
    assert!(has_passed, "in its network: {said}{}", String::from_utf8_lossy(&inside.stderr));
    print!("{said}");
    false
}

/// A sender, and a way to it.
struct Scene {
    group: GroupSender,
    listener: std::sync::Arc<Listener>,
    endpoint: Endpoint,
    _serving: JoinSet<()>,
}

impl Scene {
    fn new(options: GroupSenderOptions) -> Scene {
        let identity = Identity::generate().expect("an identity");
        let address = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::bind(address, ServerOptions::new(identity)).expect("a listener");
        let listener = std::sync::Arc::new(listener);
        let group = GroupSender::new(options).expect("a sender");
        let (accepts, serves) = (listener.clone(), group.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut members = JoinSet::new();
            while let Some(connection) = accepts.accept().await {
                let group = serves.clone();
                members.spawn(async move { group.serve(&connection).await });
            }
        });
        let endpoint = Endpoint::client("127.0.0.1:0".parse().expect("an address")).expect("an endpoint");
        Scene { group, listener, endpoint, _serving: serving }
    }

    async fn join(&self) -> (Connection, GroupReceiver) {
        let options = crate::ConnectOptions::pinned(self.listener.fingerprint()).service(SERVICE);
        let target = self.listener.local_addr().to_string();
        let connection = self.endpoint.connect(&target, options).await.expect("connected");
        let member = GroupReceiver::join(&connection, None).await.expect("joined");
        (connection, member)
    }

    /// Waits until the sender is as is wanted.
    async fn until(&self, what: &str, wanted: impl Fn(&GroupStats) -> bool) {
        let waited = async {
            while !wanted(&self.group.stats()) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(timeout(PATIENCE, waited).await.is_ok(), "not {what}: {:?}", self.group.stats());
    }
}

fn options() -> GroupSenderOptions {
    let sender = SenderSettings { parities: 0, ..SenderSettings::default() };
    GroupSenderOptions { sender, ..GroupSenderOptions::new("239.1.2.3:5004".parse().expect("an address")) }
}

/// Has a member lose this share of what arrives, at random: a filter of four instructions of BPF.
fn lose(member: &GroupReceiver, share: f64) {
    const RANDOM: u32 = 0xffff_f038;
    let below = (share * f64::from(u32::MAX)) as u32;
    let filter = [
        SockFilter::new(0x20, 0, 0, RANDOM),
        SockFilter::new(0x35, 1, 0, below),
        SockFilter::new(0x06, 0, 0, 0),
        SockFilter::new(0x06, 0, 0, u32::MAX),
    ];
    SockRef::from(&member.socket).attach_filter(&filter).expect("a filter");
}

fn message(number: u32) -> Vec<u8> {
    [&number.to_be_bytes()[..], &[number as u8; 900]].concat()
}

/// Receives up to the end. Returns the numbers that came, and how many were told missing.
async fn receive(member: &mut GroupReceiver) -> (Vec<u32>, u64) {
    let (mut numbers, mut missing) = (Vec::new(), 0);
    let received = async {
        loop {
            match member.next().await.expect("an event") {
                Event::Message(came) => {
                    let number = u32::from_be_bytes([came[0], came[1], came[2], came[3]]);
                    assert_eq!(came, message(number));
                    numbers.push(number);
                }
                Event::Missing(count) => missing += count,
                Event::Ended => break,
            }
        }
    };
    assert!(timeout(PATIENCE, received).await.is_ok(), "it does not end");
    (numbers, missing)
}

#[tokio::test]
async fn members_with_losses_of_their_own_get_all_by_real_multicast() {
    const MEMBERS: usize = 6;
    const MESSAGES: u32 = 1500;
    const FIRST_BLOCK: u32 = 16;
    if !in_own_network("members_with_losses_of_their_own_get_all_by_real_multicast") {
        return;
    }
    let scene = Scene::new(options());
    let mut members = JoinSet::new();
    for at in 0..MEMBERS {
        let (connection, mut member) = scene.join().await;
        lose(&member, 0.02 * (at + 1) as f64);
        members.spawn(async move {
            let (numbers, missing) = receive(&mut member).await;
            let stats = member.stats();
            drop(connection);
            (numbers, missing, stats)
        });
    }
    scene.until("all members", |stats| stats.members == MEMBERS).await;
    for number in 0..MESSAGES {
        scene.group.send(&message(number)).expect("sent");
        sleep(Duration::from_millis(1)).await;
    }
    scene.group.finish(PATIENCE).await;
    let (mut repaired, mut requests) = (0, 0);
    while let Some(member) = members.join_next().await {
        let (numbers, missing, stats) = member.expect("no panic");
        // A member that has not seen the beginning of its first block does not ask for the rest of
        // it. From the second on it has all.
        let behind: Vec<u32> = numbers.into_iter().filter(|number| *number >= FIRST_BLOCK).collect();
        assert_eq!(behind, (FIRST_BLOCK..MESSAGES).collect::<Vec<_>>(), "{stats:?}");
        assert!(missing < FIRST_BLOCK.into(), "{missing}");
        repaired += stats.repaired;
        requests += stats.requests;
    }
    let stats = scene.group.stats();
    println!("{repaired} repaired by {} repairs for {requests} requests: {stats:?}", stats.repairs);
    // 2 to 12 % of 1500 were lost by each: 630 in all.
    assert!(repaired > 300, "{repaired}");
    assert!(stats.repairs < repaired, "one repair serves several members");
    assert!(stats.requests > 0 && stats.foreign == 0, "{stats:?}");
}

#[tokio::test]
async fn who_has_left_reads_nothing_more_and_the_others_read_on() {
    if !in_own_network("who_has_left_reads_nothing_more_and_the_others_read_on") {
        return;
    }
    let scene = Scene::new(options());
    let (_stays, mut stays) = scene.join().await;
    let (leaves, mut left) = scene.join().await;
    scene.until("both members", |stats| stats.members == 2).await;
    scene.group.send(&message(0)).expect("sent");
    for member in [&mut stays, &mut left] {
        let came = timeout(PATIENCE, member.next()).await.expect("in time").expect("an event");
        assert_eq!(came, Event::Message(message(0).into()));
    }
    leaves.close(0, "it leaves").await;
    let reads_on = async {
        let mut numbers = Vec::new();
        while let Event::Message(came) = stays.next().await.expect("an event") {
            numbers.push(u32::from_be_bytes([came[0], came[1], came[2], came[3]]));
        }
        numbers
    };
    let sends = async {
        scene.until("a renewal", |stats| stats.renewals >= 1 && stats.members == 1).await;
        // What was sent before may still wait at its socket.
        let mut datagram = [0; 2000];
        while left.socket.try_recv_from(&mut datagram).is_ok() {}
        for number in 1..=50 {
            scene.group.send(&message(number)).expect("sent");
            sleep(Duration::from_millis(2)).await;
        }
        scene.group.finish(Duration::from_secs(1)).await;
    };
    let (numbers, ()) = timeout(PATIENCE, async { tokio::join!(reads_on, sends) }).await.expect("in time");
    assert_eq!(numbers, (1..=50).collect::<Vec<_>>());
    // It hears the datagrams, and has no key for any of them.
    let (mut datagram, mut heard) = ([0; 2000], 0);
    while let Ok((bytes, _)) = left.socket.try_recv_from(&mut datagram) {
        let opened = left.keys.open(&datagram[..bytes]);
        assert!(matches!(opened, Err(Unreadable::NoKey { generation: 1.., .. })), "{opened:?}");
        heard += 1;
    }
    assert!(heard >= 50, "{heard}");
    // A left member says so itself.
    let ended = timeout(PATIENCE, left.next()).await.expect("in time");
    assert!(ended.is_err(), "{ended:?}");
}

#[tokio::test]
async fn an_address_of_no_group_is_refused() {
    let wrong = GroupSenderOptions::new("10.0.0.1:5004".parse().expect("an address"));
    let why = GroupSender::new(wrong).expect_err("refused").to_string();
    assert_eq!(why, "10.0.0.1:5004 is no group: expected an address of multicast, and a port");
}
