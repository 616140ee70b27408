//! Mirrors of directories (`uts cp --delete`), and content that is compressed, by the program.

use crate::common::{Place, Server};
use std::fs;

fn mirrors(place: &Place) -> Server {
    place.serve(&["--writable", "--anyone", "--delete"])
}

#[test]
fn a_mirror_has_what_its_source_has() {
    let place = Place::new();
    for name in ["src/a", "src/sub/b", "srv/m/a", "srv/m/old/c", "srv/beside", "here/old"] {
        place.write(name, name.as_bytes());
    }
    std::os::unix::fs::symlink("../beside", place.path("srv/m/link")).expect("made");
    let server = mirrors(&place);
    let to = server.url("m");
    let dry = place.cp(&server, &["-rn", "--delete", "src/.", &to]).ok();
    for line in [
        "m/old would be deleted",
        "m/old/c would be deleted",
        "m/link would be deleted",
        "to be deleted 3",
        "src/./sub/b would be copied, 9 B",
    ] {
        assert!(dry.out.iter().any(|told| told == line), "{line}: {:?}", dry.out);
    }
    assert!(place.path("srv/m/old/c").exists());
    let done = place.cp(&server, &["-r", "--delete", "--stats", "src/.", &to]).ok();
    for row in ["deleted       3", "matched       0 B", "links         0"] {
        assert!(done.out.iter().any(|told| told == row), "{row}: {:?}", done.out);
    }
    assert!(!place.path("srv/m/old").exists() && !place.path("srv/m/link").exists());
    assert_eq!(place.read("srv/m/sub/b"), b"src/sub/b");
    assert_eq!(place.read("srv/beside"), b"srv/beside");
    // And back.
    let done = place.cp(&server, &["-r", "--delete", "--json", &server.url("m/."), "here"]).ok();
    let deleted: Vec<_> =
        done.events("file").into_iter().filter(|file| file["outcome"] == "deleted").collect();
    assert_eq!((deleted.len(), &deleted[0]["name"]), (1, &"here/old".into()));
    assert_eq!(done.events("done")[0]["deleted"], 1);
    assert_eq!(place.finished("here").len(), 2);
}

#[test]
fn what_is_refused_is_told_in_words() {
    let place = Place::new();
    place.write("src/a", b"a");
    place.write("srv/m/old", b"old");
    let server = place.serve(&[]);
    let to = server.url("m");
    let refused = ["this server lets nobody delete", "--delete"];
    place.cp(&server, &["-r", "--delete", "src/.", &to]).failed(1, &refused);
    place.cp(&server, &["--delete", "src/a", &to]).failed(2, &["--delete", "-r"]);
    assert_eq!(place.finished("srv/m"), ["old"]);
    drop(server);
    place.run(&["serve", "--dir", "srv", "--delete"]).failed(2, &["--writable"]);
    // Something of the source is missing.
    let server = mirrors(&place);
    let ended = place.cp(&server, &["-r", "--delete", "src/.", "gone", &server.url("m")]);
    ended.failed(1, &["gone", "nothing was deleted, because not all of the source could be read and copied"]);
    assert!(place.path("srv/m/old").exists());
}

#[test]
fn content_is_compressed_both_ways() {
    let place = Place::new();
    let log: String = (0..40_000).map(|i| format!("{} line {i} of a log\n", i % 77)).collect();
    place.write("log", log.as_bytes());
    let server = place.serve(&[]);
    let carried = |ended: &crate::common::Ended| {
        let done = &ended.events("done")[0];
        assert_eq!(done["bytes_literal"], log.len());
        done["bytes_carried"].as_u64().expect("a number")
    };
    let plain = place.cp(&server, &["--json", "log", &server.url("plain")]).ok();
    assert_eq!(carried(&plain), log.len() as u64);
    let put = place.cp(&server, &["--json", "-z", "log", &server.url("packed")]).ok();
    let get = place.cp(&server, &["--json", "--compress", &server.url("packed"), "back"]).ok();
    for ended in [put, get] {
        assert!(carried(&ended) < log.len() as u64 / 3, "{}", carried(&ended));
    }
    assert_eq!(fs::read(place.path("srv/packed")).expect("there"), log.as_bytes());
    assert_eq!(place.read("back"), log.as_bytes());
}
