//! The connection of `spec/vectors/handshake.json`, which another program has sealed: a Retry, an
//! exchange of ciphers, a close.

use core::time::Duration;
use serde_json::Value;
use std::path::Path;
use uts_decode::{Datagram, Decoder, KeyLog, Kind, Row};

fn bytes(value: &Value) -> Vec<u8> {
    let digits = value.as_str().expect("hexadecimal digits");
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[test]
fn the_connection_of_the_vectors_is_told() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors/handshake.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(file).expect("the file")).expect("JSON");
    let hello = file["tls"].as_array().expect("a list").iter();
    let mut hello = hello.filter(|tls| tls["from"] == "client" && tls["level"] == "Initial");
    // Behind type, length and version.
    let random = &hello.next().expect("a ClientHello")["hex"].as_str().expect("digits")[12..76];
    let secrets = file["secrets"].as_object().expect("by name");
    let lines = secrets.iter().map(|(label, secret)| {
        format!("{label} {random} {}\n", secret.as_str().expect("hexadecimal digits"))
    });
    let keys = KeyLog::parse(&lines.collect::<String>()).expect("as TLS writes it");
    let mut decoder = Decoder::new(keys);
    let mut rows: Vec<Row> = Vec::new();
    for (at, vector) in file["vectors"].as_array().expect("a list").iter().enumerate() {
        let is_clients = vector["from"] == "client";
        let [client, server] = ["192.0.2.1:4000", "192.0.2.2:4433"].map(|at| at.parse().expect("an address"));
        let (from, to) = if is_clients { (client, server) } else { (server, client) };
        let at = Duration::from_millis(at as u64);
        let of_datagram =
            decoder.decode(&Datagram { at, from, to, bytes: bytes(&vector["hex"]), is_cut: false });
        for (row, packet) in of_datagram.iter().zip(vector["packets"].as_array().expect("a list")) {
            assert_eq!(row.is_from_client, Some(is_clients), "{row}");
            let number = packet["number"].as_u64().filter(|_| row.kind != Kind::Retry);
            assert_eq!(row.number, number, "{row}");
        }
        assert_eq!(of_datagram.len(), vector["packets"].as_array().expect("a list").len());
        rows.extend(of_datagram);
    }
    let told: Vec<String> = rows.iter().map(ToString::to_string).collect();
    println!("{}", told.join("\n"));
    assert!(rows.iter().all(|row| row.unread.is_none()), "{}", told.join("\n"));
    assert_eq!(decoder.connections(), 1);
    for kind in [Kind::Initial, Kind::Handshake, Kind::Retry, Kind::Adaptive] {
        assert!(rows.iter().any(|row| row.kind == kind), "{kind:?}");
    }
    let exchanges: Vec<&Row> = rows.iter().filter(|row| row.is_of_exchange()).collect();
    let change = "protection aes-128-gcm -> chacha20-poly1305";
    assert!(exchanges.iter().any(|row| row.to_string().contains(change)), "{}", told.join("\n"));
    assert!(rows.iter().any(|row| row.epoch.is_some_and(|epoch| epoch > 0)));
    assert!(rows.last().is_some_and(|row| row.said.iter().any(|said| said.frame == "Close")));
}
