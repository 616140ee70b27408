//! Messages that are handed over in their time, over real sockets: whoever waits for one is woken
//! when it is due, by a task of the runtime and by a thread that carries its endpoint itself.

use crate::common::{pair_with, within};
use bytes::Bytes;
use std::time::Duration;
use uts::{Chunk, FlowOptions, Made, MessageOptions, Requirements};

const COUNT: u32 = 40;
const EVERY: Duration = Duration::from_millis(5);

fn media(delay: &str) -> Requirements {
    let mut requirements = Requirements::messages();
    requirements.set("uts.playoutDelay", delay).expect("a property");
    requirements
}

#[tokio::test]
async fn messages_come_with_their_media_times_and_no_earlier_than_due() {
    let (_listener, client, server) = pair_with(|config| config.requirements = media("150ms")).await;
    let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    let writer = tokio::spawn(async move {
        for n in 0..COUNT {
            let message = Bytes::copy_from_slice(&n.to_be_bytes());
            let sent_at = tokio::time::Instant::now();
            send.send_message(message, MessageOptions::default()).await.expect("sent");
            tokio::time::sleep_until(sent_at + EVERY).await;
        }
        let last =
            MessageOptions { made: Made::Before(Duration::from_secs(60)), ..MessageOptions::default() };
        send.send_message(Bytes::from_static(b"from a minute ago"), last).await.expect("sent");
        send.finished().await.expect("delivered");
    });
    let mut recv = within(server.accept_flow()).await.expect("a flow").split().1;
    let (mut numbers, mut times, mut old) = (Vec::new(), Vec::new(), None);
    while let Some(chunk) = within(recv.recv_chunk(1 << 16)).await.expect("read") {
        match chunk {
            Chunk::Timed { message, timing } if message.len() == 4 => {
                let number = u32::from_be_bytes(message[..].try_into().expect("four bytes"));
                assert!(timing.delay >= Duration::from_millis(100), "{timing:?}");
                numbers.push(number);
                times.push(timing.media);
            }
            Chunk::Timed { timing, .. } => old = Some(timing),
            // What was written before the first profile with playout was in use.
            Chunk::Message(message) => {
                numbers.push(u32::from_be_bytes(message[..].try_into().expect("four bytes")));
            }
            other => panic!("{other:?}"),
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..COUNT).collect::<Vec<_>>(), "all of a reliable flow come");
    assert!(times.is_sorted() && times.len() > 10, "{times:?}");
    let (first, last) = (times[0], times[times.len() - 1]);
    assert!(last.since(first) >= EVERY * (times.len() as u32 - 2), "{:?}", last.since(first));
    let old = old.expect("it is handed over, late");
    assert!(old.is_late && first.since(old.media) > Duration::from_secs(50), "{old:?}");
    within(writer).await.expect("ran");
}

#[tokio::test]
async fn a_flow_tells_how_its_messages_were_handed_over() {
    let (_listener, client, server) = pair_with(|config| config.requirements = media("30ms")).await;
    let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
    let writer = tokio::spawn(async move {
        for _ in 0..COUNT {
            send.send_message(Bytes::from_static(b"frame"), MessageOptions::default()).await.expect("sent");
            tokio::time::sleep(EVERY).await;
        }
        send.finish().expect("finished");
        send
    });
    let mut recv = within(server.accept_flow()).await.expect("a flow").split().1;
    let mut count = 0;
    while within(recv.recv_message()).await.expect("read").is_some() {
        count += 1;
        if count == COUNT / 2 {
            let figures = recv.playout().expect("it plays");
            assert!(figures.in_time + figures.late > 0, "{figures:?}");
            client.set_property("uts.playoutDelay", "60ms").expect("it may change");
        }
    }
    assert_eq!(count, COUNT);
    within(writer).await.expect("ran");
}

#[cfg(unix)]
#[test]
fn a_thread_that_waits_is_woken_when_a_message_is_due() {
    use crate::common::threads::{accepted, join, serve, within};
    use uts::blocking::connect;
    let (server, target, mut options) = serve(
        |config| config.requirements = media("80ms"),
        |listener| {
            let (_connection, flow) = accepted(listener);
            let (_send, mut flow) = flow.split();
            let mut count = 0;
            while flow.recv_message().expect("read").is_some() {
                count += 1;
            }
            count
        },
    );
    options.connection.requirements = media("80ms");
    within(move || {
        let connection = connect(&target, options).expect("connected");
        let (mut flow, _recv) = connection.open_flow(FlowOptions::default()).expect("opened").split();
        for _ in 0..COUNT {
            flow.send_message(Bytes::from_static(b"frame"), MessageOptions::default()).expect("sent");
            uts::blocking::carry(EVERY);
        }
        flow.finish().expect("finished");
        flow.finished().expect("delivered");
        connection.close(0, "");
    });
    assert_eq!(join(server), COUNT);
}
