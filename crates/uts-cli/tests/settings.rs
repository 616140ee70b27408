//! The user's file of settings, as the program reads it.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "processes of the system, in real time"
)]

mod common;

use common::Place;

/// A server that nobody has met is reached by its short name, with all that its section says.
#[test]
fn a_server_has_a_name_with_settings() {
    let place = Place::new();
    place.write("srv/file", b"content");
    let server = place.serve(&[]);
    let (address, port) = server.address.rsplit_once(':').expect("a port");
    let section = format!(
        "[host.box]\naddress = \"{address}\"\nport = {port}\npin = \"{}\"\nkey = \"~/own.pem\"\n\n\
         [tunnel.db]\nhost = \"box\"\nlocal = [\"5432:db:5432\"]\n",
        server.fingerprint
    );
    place.write("home/config/uts/config.toml", section.as_bytes());
    place.run(&["cp", "uts://box/file", "got"]).ok();
    assert_eq!(place.read("got"), b"content");
    assert!(place.path("home/own.pem").exists(), "the key of the section was made");
    place.run(&["ls", "uts://box/"]).ok();
    // What the command line says counts more.
    let wrong = format!("SHA256:{}", "A".repeat(43));
    place.run(&["ls", "--pin", &wrong, "uts://box/"]).failed(1, &["key"]);
    place.run(&["ls", "uts://box:1/"]).failed(1, &["127.0.0.1:1"]);
    // Another file has other settings.
    let other = place.write("other.toml", b"[host.box]\naddress = \"127.0.0.1\"\nport = 2\n");
    place.run(&["ls", "--config", &other, "uts://box/"]).failed(1, &["127.0.0.1:2"]);
}

#[test]
fn what_is_wrong_in_the_file_is_named_with_its_line() {
    let place = Place::new();
    let file = place.write("home/config/uts/config.toml", b"[host.box]\nprofil = \"bulk\"\n");
    let says = format!("{file}:2: there is no key `profil`; did you mean `profile`?");
    for command in
        [&["ls", "uts://box/"][..], &["cp", "uts://box/f", "f"], &["pipe", "box"], &["perf", "box"]]
    {
        place.run(command).failed(2, &[&says]);
    }
    let none = place.path("none.toml").display().to_string();
    place.run(&["ls", "--config", &none, "uts://box/"]).failed(2, &["none.toml: ", "No such file"]);
}
