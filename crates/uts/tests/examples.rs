//! The examples run, and print what they are there to show.

#[path = "all/common/mod.rs"]
mod common;

use common::within;

/// Each example with its `main`, which is not called here.
macro_rules! examples {
    ($($name:ident: $file:literal),+ $(,)?) => {
        $(
            #[path = $file]
            #[allow(dead_code, reason = "`main` is for the program")]
            mod $name;
        )+

        /// Every file in the folder has a test here.
        const FILES: &[&str] = &[$($file),+];
    };
}

examples! {
    blocking: "../examples/blocking.rs",
    blocking_calls: "../examples/blocking_calls.rs",
    by_name: "../examples/by_name.rs",
    calls: "../examples/calls.rs",
    echo: "../examples/echo.rs",
    explain: "../examples/explain.rs",
    jpeg: "../examples/jpeg.rs",
    live: "../examples/live.rs",
    many_flows: "../examples/many_flows.rs",
    messages: "../examples/messages.rs",
    move_times: "../examples/move_times.rs",
    own_mechanism: "../examples/own_mechanism.rs",
    pages: "../examples/pages.rs",
    services: "../examples/services.rs",
}

fn text(out: Vec<u8>) -> String {
    String::from_utf8(out).expect("text")
}

#[test]
fn no_example_goes_untested() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut found: Vec<String> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| format!("../examples/{}", entry.expect("an entry").file_name().to_string_lossy()))
        .collect();
    found.sort();
    assert_eq!(found, FILES);
}

#[tokio::test]
async fn services_are_told_apart_by_their_names() {
    within(async {
        let listener = echo::listen("127.0.0.1:0").expect("listening");
        let (target, key) = (listener.local_addr().to_string(), listener.fingerprint().to_string());
        tokio::spawn(async move { services::services().serve(&listener).await });
        let ask = |service, text| services::ask(&target, &key, service, text);
        assert_eq!(ask("echo", "hello").await.expect("answered"), "hello");
        assert_eq!(ask("upper", "hello").await.expect("answered"), "HELLO");
        let error = ask("lower", "hello").await.expect_err("no such service");
        assert!(error.to_string().contains("it has no service `lower`"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn calls_keep_texts_and_tell_what_fails() {
    within(async {
        let listener = echo::listen("127.0.0.1:0").expect("listening");
        let (target, key) = (listener.local_addr().to_string(), listener.fingerprint().to_string());
        tokio::spawn(async move { calls::serve(&listener).await });
        let client = calls::Client::new(&target, &key).expect("a fingerprint");
        assert_eq!(client.put("colour", "blue").await.expect("kept"), None);
        assert_eq!(client.put("colour", "red").await.expect("kept").as_deref(), Some("blue"));
        for n in 0..200 {
            client.put(&format!("{n:03}"), "a number").await.expect("kept");
        }
        assert_eq!(client.get("colour").await.expect("found"), "red");
        let names = client.list().await.expect("all");
        assert_eq!((names.len(), names[7].as_str(), names[200].as_str()), (201, "007", "colour"));
        let error = client.get("shape").await.expect_err("none");
        let uts::call::CallErrorKind::Failed { code, text } = error.kind() else { panic!("{error}") };
        assert_eq!((*code, text.as_str()), (calls::NO_SUCH_NAME, "no text is named `shape`"));
    })
    .await;
}

#[tokio::test]
async fn pages_are_moved_into_memory_that_was_named() {
    let mut out = Vec::new();
    within(pages::run(&mut out)).await.expect("it runs");
    let out = text(out);
    let lines: Vec<&str> = out.lines().collect();
    let [page, file, behind] = lines[..] else { panic!("{out}") };
    assert_eq!(page, "page 5: 4096 bytes, right: true");
    assert_eq!(file, "the file: 300000 bytes, with the page that was written: true");
    assert!(behind.ends_with("the call has failed: the file is shorter (code 1)"), "{out}");
}

/// `MOVE_ROUNDS` has it measure for longer.
#[tokio::test]
async fn moves_are_timed_beside_tcp() {
    let rounds = std::env::var("MOVE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3);
    let mut out = Vec::new();
    within(move_times::run(&mut out, rounds)).await.expect("it runs");
    let out = text(out);
    println!("{out}");
    assert_eq!(out.lines().filter(|line| line.starts_with("64 kB, ")).count(), 6, "{out}");
    assert_eq!(out.lines().filter(|line| line.starts_with("1 MB, ")).count(), 6, "{out}");
}

#[tokio::test]
async fn echo_gives_back_what_it_is_sent() {
    let listener = echo::listen("127.0.0.1:0").expect("bound");
    let (target, fingerprint) = (listener.local_addr().to_string(), listener.fingerprint().to_string());
    let sent = within(async {
        tokio::select! {
            () = echo::serve(&listener) => panic!("the server ended"),
            echo = echo::send(&target, &fingerprint, "hello") => echo,
        }
    });
    assert_eq!(sent.await.expect("sent"), "hello");
}

#[tokio::test]
async fn messages_arrive_in_time() {
    let mut out = Vec::new();
    within(messages::run(&mut out)).await.expect("it runs");
    let out = text(out);
    assert!(out.starts_with("sent 20 frames, ") && out.contains("the last: frame "), "{out}");
}

#[tokio::test]
async fn a_picture_is_shown_in_both_orders() {
    for (order, headers) in [(jpeg::Order::ControlFirst, 5), (jpeg::Order::TwoFirst, 2)] {
        let mut out = Vec::new();
        within(jpeg::run(&mut out, order)).await.expect("it runs");
        let out = text(out);
        let mut lines = out.lines();
        let first = lines.next().expect("a line");
        assert_eq!(first, format!("{order:?}: 12 rows shown, the first after {headers} parts"));
        let rows: Vec<&str> = lines.collect();
        assert!(rows.len() == 12 && rows.iter().all(|row| row.len() == 48), "{out}");
        assert!(rows[2].contains('#') && !rows[11].contains('#'), "{out}");
    }
}

#[tokio::test]
async fn live_changes_are_told() {
    let mut out = Vec::new();
    within(live::run(&mut out)).await.expect("it runs");
    let out = text(out);
    let lines: Vec<&str> = out.lines().collect();
    let [bytes, asked, .., agreed, media] = lines[..] else { panic!("{out}") };
    assert!(asked.starts_with("asked: ") && agreed == "agreed", "{out}");
    let (before, after) = (bytes.strip_prefix("bytes: "), media.strip_prefix("media: "));
    assert!(before.is_some() && after.is_some() && before != after, "{out}");
}

#[tokio::test]
async fn mechanisms_are_had_by_name() {
    let mut out = Vec::new();
    within(by_name::run(&mut out)).await.expect("it runs");
    let out = text(out);
    let lines: Vec<&str> = out.lines().collect();
    let [first, then, refused] = lines[..] else { panic!("{out}") };
    assert!(first.starts_with("first: bbr") && then.starts_with("then: cubic"), "{out}");
    assert!(refused.starts_with("refused: ") && refused.contains("magic"), "{out}");
}

#[test]
fn explain_says_what_loss_changes() {
    let mut out = Vec::new();
    explain::run(&mut out).expect("it runs");
    let out = text(out);
    let (clean, lossy) = out.split_once("loss 0.02:\n").expect("two paths");
    let clean = clean.strip_prefix("loss 0:\n").expect("a clean path first");
    assert!(clean.lines().count() > 10 && lossy != clean, "{out}");
}

#[tokio::test]
async fn many_flows_all_arrive() {
    let mut out = Vec::new();
    within(many_flows::run(&mut out)).await.expect("it runs");
    assert_eq!(text(out), "50 flows, 1000000 bytes\n");
}

#[tokio::test]
async fn a_mechanism_of_ones_own_is_changed_to_and_back() {
    let mut out = Vec::new();
    within(own_mechanism::run(&mut out)).await.expect("it runs");
    let out = text(out);
    let lines: Vec<&str> = out.lines().collect();
    let [before, own, after, arrived] = lines[..] else { panic!("{out}") };
    let home = before.strip_prefix("begins with ").expect("the first mechanism");
    assert_eq!(own, "changed to fixed-window(packets=40)");
    assert_eq!(after, format!("changed to {home}"));
    let (right, sent) = arrived.split_once(" of ").expect("two counts");
    let sent = sent.strip_suffix(" bytes arrived as they were sent").expect("what was sent");
    assert!(right == sent && sent.parse::<u64>().is_ok_and(|sent| sent > 0), "{out}");
}

#[cfg(unix)]
#[test]
fn threads_that_wait_get_their_answer() {
    let mut out = Vec::new();
    blocking::run(&mut out).expect("it runs");
    assert_eq!(text(out), "took 5 bytes\n");
}

#[cfg(unix)]
#[test]
fn threads_that_wait_make_calls() {
    let mut out = Vec::new();
    blocking_calls::run(&mut out).expect("it runs");
    assert_eq!(
        text(out),
        "3 and 4 are 7\ncalls\nthat\nwait\nthe call has failed: the sum does not fit (code 1)\n"
    );
}
