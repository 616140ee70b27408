//! A client that goes from one network to another in mid-connection. The server is in a network of
//! its own, to which two lines lead.

use crate::common::far::Far;
use crate::common::{Place, in_own_namespace, pattern};

/// Slow enough to last for longer than the moves: 8 MB take 8 s.
const SLOW: [&str; 2] = ["--property", "maxSendRate=8Mbit/s"];

#[test]
fn a_copy_goes_on_in_another_network() {
    if !in_own_namespace("-Urmn", module_path!(), "a_copy_goes_on_in_another_network") {
        return;
    }
    let (place, content) = (Place::new(), pattern(8 << 20));
    place.write("big", &content);
    let far = Far::new();
    let server = far.serve(&place, &SLOW);
    // By no other connection: it is to go on in the one that it has.
    let args = ["--json", "--retry", "0", SLOW[0], SLOW[1], "big", &server.url("big")];
    far.moves_under(place.start_cp(&server, &args));
    assert!(place.read("srv/big") == content);
}

#[test]
fn what_is_fetched_goes_on_in_another_network() {
    if !in_own_namespace("-Urmn", module_path!(), "what_is_fetched_goes_on_in_another_network") {
        return;
    }
    let (place, content) = (Place::new(), pattern(8 << 20));
    place.write("srv/big", &content);
    let far = Far::new();
    let server = far.serve(&place, &SLOW);
    far.moves_under(place.start_cp(&server, &["--json", "--retry", "0", &server.url("big"), "big"]));
    assert!(place.read("big") == content);
}

#[test]
fn a_measurement_goes_on_in_another_network() {
    if !in_own_namespace("-Urmn", module_path!(), "a_measurement_goes_on_in_another_network") {
        return;
    }
    let place = Place::new();
    let far = Far::new();
    let server = far.serve(&place, &SLOW);
    let args =
        ["perf", "--json", "--pin", &server.fingerprint, SLOW[0], SLOW[1], "-n", "8MB", &server.address];
    let out = far.moves_under(place.start(&args));
    let result = out.iter().find(|line| line.contains(r#""event":"result""#)).expect("a result");
    let result: serde_json::Value = serde_json::from_str(result).expect("JSON");
    assert_eq!(result["receiver"][0]["delivered"].as_f64(), Some(8e6), "{result}");
    assert!(result["cut_short"].is_null(), "{result}");
}

#[test]
fn a_list_goes_on_in_another_network() {
    if !in_own_namespace("-Urmn", module_path!(), "a_list_goes_on_in_another_network") {
        return;
    }
    let place = Place::new();
    let long = "n".repeat(200);
    for n in 0..4000 {
        place.write(&format!("srv/{n}-{long}"), b"");
    }
    let far = Far::new();
    // Its list takes some 900 kB.
    let server = far.serve(&place, &["--property", "maxSendRate=1Mbit/s"]);
    let out = far.moves_under(place.start(&["ls", "--pin", &server.fingerprint, &server.url("")]));
    assert_eq!(out.len(), 4000);
}
