//! Cost of the first connection of a process, in instructions rather than in time. If a library
//! gathers randomness of its own before the first key, every short run of a program is late by tens
//! of milliseconds.

use std::process::Command;
use uts::{ConnectOptions, Identity, Listener, ServerOptions, connect};

/// Set for a process that is counted.
const VARIABLE: &str = "UTS_COUNTED_CONNECTION";

#[test]
fn it_is_no_work_to_begin() {
    if std::env::var_os(VARIABLE).is_some() {
        return one_connection();
    }
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    valgrind.arg(std::env::current_exe().expect("this program")).arg("--exact").arg("it_is_no_work_to_begin");
    let Ok(output) = valgrind.env(VARIABLE, "1").output() else {
        return eprintln!("skipped: it_is_no_work_to_begin: valgrind is not installed");
    };
    let text = String::from_utf8_lossy(&output.stderr).replace(',', "");
    let refs = text.lines().find_map(|line| line.split_once("refs:"));
    let count: u64 = refs.and_then(|(_, count)| count.trim().parse().ok()).expect(&text);
    assert!(output.status.success(), "{text}");
    println!("{count} instructions");
    assert!(count <= 25_000_000, "{count} instructions; it was 5,500,000 when this was written");
}

#[tokio::main(flavor = "current_thread")]
async fn one_connection() {
    let server = ServerOptions::new(Identity::generate().expect("an identity"));
    let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), server).expect("bound");
    let target = listener.local_addr().to_string();
    let options = ConnectOptions::pinned(listener.fingerprint());
    let (connection, accepted) = tokio::join!(connect(&target, options), listener.accept());
    assert!(accepted.is_some());
    connection.expect("connected").close(0, "").await;
}
