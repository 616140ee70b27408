//! Records of live connections, as qlog: JSON text sequences (RFC 7464), a file for each
//! connection.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "real sockets, in real time")]

use crate::common::{identity, server, within};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{ConnectOptions, FlowOptions, ServerOptions, connect};

/// The records of the only log of a role in a directory, of which each must be whole.
fn read(dir: &Path, role: &str) -> Vec<Value> {
    let files = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let ends = format!(".{role}.sqlog");
    let of_role: Vec<_> = files.filter(|file| file.to_string_lossy().ends_with(&ends)).collect();
    let [file] = of_role.as_slice() else { panic!("{role}: {of_role:?}") };
    let bytes = std::fs::read(file).expect("read");
    assert_eq!(bytes[0], 0x1e, "the first record begins");
    let records = bytes[1..].split(|byte| *byte == 0x1e);
    records
        .map(|text| {
            let text = text.strip_suffix(b"\n").expect("a record ends with its line");
            serde_json::from_slice(text).expect("JSON")
        })
        .collect()
}

fn named<'a>(log: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    log.iter().filter(move |event| event["name"] == name)
}

/// Type and number of the packets that an event names.
fn packets(log: &[Value], name: &str) -> BTreeSet<(String, u64)> {
    let headers = named(log, name).map(|event| &event["data"]["header"]);
    headers
        .filter_map(|h| Some((h["packet_type"].as_str()?.to_owned(), h["packet_number"].as_u64()?)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_ends_log_a_connection_from_its_first_packet_to_its_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let logs = dir.path().join("a/b");
    let mut options = ServerOptions::new(identity());
    options.qlog = Some(logs.clone());
    let (listener, target) = server(options);
    let mut options = ConnectOptions::pinned(listener.fingerprint());
    options.qlog = Some(logs.clone());
    within(async {
        let (client, accepted) = tokio::join!(connect(&target, options), listener.accept());
        let (client, accepted) = (client.expect("connected"), accepted.expect("accepted"));
        let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("open").split();
        send.write_all(&[7; 300_000]).await.expect("written");
        send.shutdown().await.expect("ended");
        let (_, mut recv) = accepted.accept_flow().await.expect("a flow").split();
        let mut got = Vec::new();
        recv.read_to_end(&mut got).await.expect("read");
        assert_eq!(got.len(), 300_000);
        client.close(0, "done").await;
        accepted.closed().await;
        drop((client, accepted, listener));
        // The logs end with their endpoints.
        while ["client", "server"].iter().any(|role| named(&read_if(&logs, role), "uts:closed").count() == 0)
        {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let [client, server] = ["client", "server"].map(|role| read(&logs, role));
    for (log, role) in [(&client, "client"), (&server, "server")] {
        assert_eq!(log[0]["file_schema"], "urn:ietf:params:qlog:file:sequential");
        assert_eq!(log[0]["serialization_format"], "application/qlog+json-seq");
        assert_eq!(log[0]["trace"]["vantage_point"]["type"], role);
        let times: Vec<f64> = log[1..].iter().map(|event| event["time"].as_f64().expect("a time")).collect();
        assert!(times.is_sorted(), "{role}: time goes on");
        assert!(log[1..].iter().all(|event| event["name"].is_string() && event["data"].is_object()));
        assert_eq!(named(log, "uts:connected").count(), 1, "{role}");
    }
    for (from, to) in [(&client, &server), (&server, &client)] {
        let (sent, received) = (packets(from, "quic:packet_sent"), packets(to, "quic:packet_received"));
        for level in ["initial", "handshake"] {
            assert!(sent.iter().any(|(of, _)| of == level), "{level} was sent: {sent:?}");
            assert!(received.iter().any(|(of, _)| of == level), "{level} was received: {received:?}");
        }
        assert!(received.is_subset(&sent), "{received:?}");
        assert!(received.iter().any(|(of, _)| of == "1RTT"), "{received:?}");
    }
    assert_eq!(client[1]["data"]["header"]["packet_type"], "initial", "{}", client[1]);
    let sent = packets(&client, "quic:packet_sent");
    let acknowledged: Vec<u64> = named(&client, "quic:packets_acked")
        .flat_map(|event| event["data"]["packet_numbers"].as_array().expect("a list"))
        .filter_map(Value::as_u64)
        .collect();
    assert!(!acknowledged.is_empty());
    assert!(acknowledged.iter().all(|number| sent.contains(&("1RTT".to_owned(), *number))));
}

/// As [`read`]; nothing while the log is not whole.
fn read_if(dir: &Path, role: &str) -> Vec<Value> {
    std::panic::catch_unwind(|| read(dir, role)).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_nobody_answers_is_in_the_log_of_its_client() {
    let dir = tempfile::tempdir().expect("a folder");
    let silent = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let mut options = ConnectOptions::pinned(identity().fingerprint());
    options
        .connection
        .requirements
        .set("uts.profile.establishment", "three-way(patience=1000)")
        .expect("set");
    options.qlog = Some(dir.path().to_owned());
    let target = silent.local_addr().expect("an address").to_string();
    assert!(within(connect(&target, options)).await.is_err());
    let log = within(async {
        loop {
            let log = read_if(dir.path(), "client");
            if named(&log, "uts:closed").count() > 0 {
                return log;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let sent = packets(&log, "quic:packet_sent");
    assert!(!sent.is_empty() && sent.iter().all(|(level, _)| level == "initial"), "{sent:?}");
    assert_eq!(packets(&log, "quic:packet_received").len(), 0);
}

#[tokio::test]
async fn where_no_log_can_be_written_is_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("written");
    let mut options = ServerOptions::new(identity());
    options.qlog = Some(file.clone());
    let error =
        uts::Listener::bind("127.0.0.1:0".parse().expect("an address"), options).expect_err("refused");
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    let (listener, target) = server(ServerOptions::new(identity()));
    let mut options = ConnectOptions::pinned(listener.fingerprint());
    options.qlog = Some(file.clone());
    let error = connect(&target, options).await.expect_err("refused");
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
}
