//! Ends that say nonsense, ask for too much, or say nothing. What they cause ends in time, and is
//! told.

use crate::world::{Said, World, request, run, run_against};
use crate::{bulk_for, bulk_of, messages, requests};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};
use uts::{Connection, FlowOptions, MessageOptions, Requirements, SendFlow};
use uts_perf::{MeasureError, Report, Request, ToClient, ToServer, Way, client, server};

/// A path of 20 ms there and back.
const PATH: &str = "delay=10ms";

fn framed(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn said(what: &impl serde::Serialize) -> Vec<u8> {
    framed(&serde_json::to_string(what).expect("text"))
}

/// A client that has said these bytes in its first flow, and what it has been told until now.
async fn client_that_says(world: &World, bytes: &[u8]) -> (Connection, SendFlow, String) {
    let connection = world.connect(Requirements::default()).await;
    let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).await.expect("a flow").split();
    send.write_all(bytes).await.expect("said");
    let mut told = vec![0; 4096];
    let read = timeout(Duration::from_secs(1), recv.read(&mut told)).await;
    told.truncate(read.map_or(0, |read| read.unwrap_or(0)));
    tokio::task::spawn_local(
        async move { while recv.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {} },
    );
    (connection, send, String::from_utf8_lossy(&told).into_owned())
}

/// What the server says of its only client, since the client began.
async fn only(world: &World, since: Duration) -> Said {
    let (at, said) = world.until_served(1).await.remove(0);
    (at - since, said)
}

async fn measures(world: &World) {
    let seen = world.measure(&request(bulk_of(1000), 1, Way::Both)).await.expect("others are measured");
    assert_eq!(seen.ended.measured.cut_short(), None);
}

#[test]
fn a_client_that_says_nonsense_or_nothing_is_told_to_go_in_time() {
    let ask = said(&ToServer::Request(request(bulk_for(1), 1, Way::Forward)));
    let time = said(&ToServer::Time);
    let then = |more: &[u8]| [&ask[..], more].concat();
    let costly = r#"{"request":{"version":1,"workload":{"kind":"messages","every":"100ns","bytes":16,
        "duration":"1s","deadline":"1s"},"flows":1,"way":"both","seed":1}}"#;
    let asks = |request: &Request| said(&ToServer::Request(request.clone()));
    let silence = server::PATIENCE.as_secs_f64();
    let cases: [(Vec<u8>, &str, f64); 11] = [
        (vec![0xff; 5], "a message of 4294967295 bytes; at most 262144 are taken", 0.0),
        (framed("start"), "expected value", 0.0),
        (framed("\"start\""), "it asks for nothing", 0.0),
        (framed(costly), "refused: messages: 10000000 is more than 1000000", silence),
        (asks(&request(bulk_for(3601), 1, Way::Forward)), "refused: 3601s is longer than 3600s", silence),
        (asks(&request(bulk_for(1), 129, Way::Forward)), "refused: flows: 129 is more than 128", silence),
        (ask[..ask.len() - 1].to_vec(), "nothing is heard of the other end for 20s", silence),
        (then(&[]), "nothing is heard of the other end for 20s", silence),
        (then(&said(&ToServer::Done(Report::default()))), "it does not begin", 0.0),
        (then(&ask), "it does not begin", 0.0),
        (then(&time.repeat(server::TIMES_MAX + 1)), "it does not begin", 0.0),
    ];
    for (bytes, why, lasts) in cases {
        run(PATH, 1, async |world| {
            let begun = world.now();
            let (connection, _send, told) = client_that_says(world, &bytes).await;
            let (took, said) = only(world, begun).await;
            let words = said.expect_err("it is no measurement");
            assert!(words.contains(why), "{why}: {words}");
            assert!(!words.starts_with("refused") || told.contains("refused"), "{told}");
            let over = took.as_secs_f64() - lasts;
            assert!((0.0..0.5).contains(&over), "{why}: {took:?}");
            measures(world).await;
            connection.close(0, "done").await;
        });
    }
}

#[test]
fn a_client_that_says_nothing_at_all_is_told_to_go_in_time() {
    run(PATH, 1, async |world| {
        let begun = world.now();
        let connection = world.connect(Requirements::default()).await;
        let (took, said) = only(world, begun).await;
        assert!(said.is_err() && took <= server::PATIENCE + Duration::from_millis(100), "{took:?}: {said:?}");
        measures(world).await;
        connection.close(0, "done").await;
    });
}

/// It holds the only place until half a minute after the planned end, and while the server waits
/// for its last words.
#[test]
fn a_client_that_begins_and_does_nothing_loses_its_place_in_time() {
    for (workload, way) in
        [(bulk_for(1), Way::Forward), (bulk_for(1), Way::Reverse), (messages(400), Way::Both)]
    {
        let wanted = request(workload.clone(), 1, way);
        let bytes = [said(&ToServer::Request(wanted)), said(&ToServer::Start)].concat();
        run(PATH, 1, async |world| {
            let begun = world.now();
            let (connection, _send, told) = client_that_says(world, &bytes).await;
            assert!(told.contains("ready"), "{told}");
            let planned = workload.lasts().expect("a time");
            let held = planned + Duration::from_secs(30) + server::PATIENCE;
            let just_before = held - (world.now() - begun) - Duration::from_millis(100);
            sleep(just_before).await;
            let early = world.measure(&request(bulk_of(1000), 1, Way::Both)).await.expect_err("busy");
            assert!(matches!(early, MeasureError::Refused(_)), "{early}");
            sleep(Duration::from_millis(200)).await;
            measures(world).await;
            let (_, said) = world.until_served(3).await.remove(2);
            let measured = said.expect("it was measured, as far as there was anything");
            assert_eq!((measured.request.workload, measured.client), (workload.clone(), Report::default()));
            connection.close(0, "done").await;
        });
    }
}

#[test]
fn content_that_was_not_asked_for_is_found_out() {
    let cases: [(Request, &[u8], &str); 4] = [
        (request(bulk_for(5), 1, Way::Forward), &[7; 5000], "wrong content: the file: byte"),
        (request(bulk_of(10), 1, Way::Forward), &[0; 3], "wrong content: a stream ended after 3 of 8 bytes"),
        (request(requests(5, 10, 1), 1, Way::Forward), &[7; 5000], "wrong content: request 0 on stream"),
        (request(messages(400), 1, Way::Forward), &[7; 3], "wrong content: a message of 3 bytes is shorter"),
    ];
    for (wanted, content, why) in cases {
        let bytes = [said(&ToServer::Request(wanted.clone())), said(&ToServer::Start)].concat();
        run(PATH, 1, async |world| {
            let begun = world.now();
            let (connection, _send, _) = client_that_says(world, &bytes).await;
            let is_messages = why.contains("a message");
            let options = match is_messages {
                true => FlowOptions::requiring(Requirements::messages()),
                false => FlowOptions::default(),
            };
            let (mut send, _recv) = connection.open_flow(options).await.expect("a flow").split();
            if is_messages {
                send.send_message(content.to_vec().into(), MessageOptions::default()).await.expect("sent");
            } else {
                send.write_all(content).await.expect("sent");
                send.shutdown().await.expect("ended");
            }
            let (took, said) = only(world, begun).await;
            let words = said.expect_err("it is wrong");
            assert!(words.contains(why), "{why}: {words}");
            assert!(took < Duration::from_secs(2), "{why}: {took:?}");
            measures(world).await;
            connection.close(0, "done").await;
        });
    }
}

#[test]
fn a_server_that_says_nonsense_or_nothing_ends_a_measurement_in_time() {
    let (ready, start) = (said(&ToClient::Ready), framed("\"start\""));
    let times =
        |time: u64, count: usize| [vec![ready.clone()], vec![said(&ToClient::Time(time)); count]].concat();
    let silence = client::PATIENCE.as_secs_f64();
    let silent = "nothing is heard of the other end for 40s";
    // The workload lasts a second; after half a minute more it is given up.
    let given_up = 31.0 + silence;
    let cases: [(Vec<Vec<u8>>, &str, f64); 8] = [
        (vec![], silent, silence),
        (vec![vec![0xff; 5]], "a message of 4294967295 bytes", 0.0),
        (vec![start], "unknown variant `start`", 0.0),
        (vec![said(&ToClient::Time(1))], "the server does not answer", 0.0),
        (vec![ready.clone()], silent, silence),
        (vec![ready.clone(), ready.clone()], "the server does not say its time", 0.0),
        (times(u64::MAX, 16), silent, given_up),
        (times(0, 16), silent, given_up),
    ];
    for (answers, why, lasts) in cases {
        for way in [Way::Forward, Way::Both] {
            run_against(answers.clone(), async |world| {
                let begun = world.now();
                let error = world.measure(&request(bulk_for(1), 1, way)).await.expect_err("no server");
                let took = (world.now() - begun).as_secs_f64();
                assert!(error.to_string().contains(why), "{why}: {error}");
                assert!((0.0..1.0).contains(&(took - lasts)), "{why}: {took}");
            });
        }
    }
    let no = vec![said(&ToClient::Refused("not today".to_owned()))];
    let refused = run_against(no, async |world| world.measure(&request(bulk_for(1), 1, Way::Forward)).await);
    assert!(matches!(refused, Err(MeasureError::Refused(why)) if why == "not today"));
}
