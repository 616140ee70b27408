//! The user's file of settings, as the program reads it.

use crate::common::{Place, Server};

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

/// Both ends have a dictionary: the profile with it is agreed, and what is copied arrives whole. An
/// end that lacks it refuses it, is said to, and the copy goes on without.
#[test]
fn a_dictionary_is_shared_by_both_ends() {
    let place = Place::new();
    let dictionary = place.write("words.dict", &b"what messages have in common, ".repeat(10));
    let content = b"what messages have in common, and what they have not".repeat(3000);
    place.write("file", &content);
    let asked = ["--profile", "presentation=zstd", "--property", "preserveMsgBoundaries=require"];
    let copy = |server: &Server, options: &[&str], to: &str| {
        let url = server.url(to);
        let mut args = vec!["--json", "file", &url];
        args.extend(asked.iter().chain(options));
        let steps = place.cp(server, &args).ok().events("exchange");
        assert_eq!(place.read(&format!("srv/{to}")), content, "{to}");
        let line = |step: &serde_json::Value| {
            step["line"].as_str().map(|line| format!("{}: {line}", step["step"])).unwrap_or_default()
        };
        steps.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    // What decompresses needs the receiver's consent.
    let consent = ["--property", "uts.consent=presentation/zstd"];
    let both = place.serve(&[&consent[..], &["--dictionary", &dictionary]].concat());
    let steps = copy(&both, &["--dictionary", &dictionary], "both");
    assert!(steps.contains("completed") && !steps.contains("refused"), "{steps}");
    // It may stand in the file of settings.
    let section = format!("[host.\"127.*\"]\ndictionary = [\"{dictionary}\"]\n");
    place.write("home/config/uts/config.toml", section.as_bytes());
    let steps = copy(&both, &[], "settings");
    assert!(steps.contains("completed") && !steps.contains("refused"), "{steps}");
    let lacking = place.serve(&consent);
    let steps = copy(&lacking, &[], "lacking");
    assert!(steps.contains("refused") && steps.contains("the peer does not have"), "{steps}");
    assert!(steps.contains("dictionary"), "{steps}");
}

#[test]
fn a_file_that_is_no_dictionary_is_named() {
    let place = Place::new();
    let short = place.write("short", b"seven b");
    let long = place.write("long", &vec![7; (1 << 20) + 1]);
    for (file, why) in [
        (short.as_str(), "short: a dictionary of 7 bytes (expected 8 to 1048576 bytes)"),
        (&long, "long: longer than 1048576 bytes, no dictionary is"),
        ("none", "--dictionary none: No such file"),
    ] {
        place.run(&["explain", "--dictionary", file]).failed(2, &[why]);
        place.run(&["serve", "--dir", "srv", "--dictionary", file]).failed(2, &[why]);
    }
    let config = format!("[host.box]\naddress = \"127.0.0.1\"\ndictionary = \"{short}\"\n");
    let file = place.write("home/config/uts/config.toml", config.as_bytes());
    place.run(&["ls", "uts://box/"]).failed(2, &[&format!("{file}:2: "), "a dictionary of 7 bytes"]);
}
