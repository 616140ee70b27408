//! Conditions under which programs of this kind are known to fail: what public bug reports tell of
//! ssh, mosh, rsync, curl and others.

use crate::common::tunnel::{Tunnel, ask};
use crate::common::{Ended, Place, in_own_namespace, pattern};
use std::net::{Shutdown, TcpListener};
use std::process::{Command, Stdio};

/// Runs a script of the shell in this place, where `$UTS` is the program.
fn sh(place: &Place, home: &str, script: &str) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    let mut command = place.here(command, home);
    command.env("UTS", env!("CARGO_BIN_EXE_uts")).env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    Place::begin(command).wait()
}

/// `ulimit -f`, and `LimitFSIZE=` of systemd: the system ends a program that meets it, unless told
/// otherwise.
#[test]
fn a_limit_of_the_size_of_files_ends_neither_a_server_nor_a_copy() {
    let place = Place::new();
    place.write("big", &pattern(8 << 20));
    place.write("srv/other", &pattern(8 << 20));
    place.write("small", b"small");
    // 1 MB, in units of 512 bytes.
    let script =
        "ulimit -f 2048; exec \"$UTS\" serve --dir srv --writable --anyone --json --listen 127.0.0.1:0";
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    let mut command = place.here(command, "server-home");
    let server = Place::served(Place::begin({
        command.env("UTS", env!("CARGO_BIN_EXE_uts"));
        command
    }));
    let refused = place.cp(&server, &["-q", "big", &server.url("big")]);
    refused.failed(1, &["big", "larger than the file system takes"]);
    place.cp(&server, &["-q", "small", &server.url("small")]).ok();
    let script = format!(
        "ulimit -f 2048; exec \"$UTS\" cp -q --pin {} {} other",
        server.fingerprint,
        server.url("other")
    );
    sh(&place, "home", &script).failed(1, &["other", "larger than the file system takes"]);
}

/// RFC 4007 and RFC 6874: an address of a link has a zone.
#[test]
fn addresses_of_a_link_are_reached_by_their_zone() {
    if !in_own_namespace("-Urmn", module_path!(), "addresses_of_a_link_are_reached_by_their_zone") {
        return;
    }
    let place = Place::new();
    let made = sh(
        &place,
        "home",
        "ip link set lo up && ip link add d0 type veth peer name d1 && ip link set d0 up && ip link set d1 up &&
        ip addr add fe80::1/64 dev d0 nodad",
    );
    if made.status != 0 {
        return println!("SKIPPED: no link here: {}", made.err);
    }
    place.write("a", b"content");
    let (keys, _) = crate::common::tunnel::key_of(&place, "home");
    let service = TcpListener::bind("[::]:0").expect("bound");
    let port = service.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in service.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut back = stream.try_clone().expect("another handle");
                let _ = std::io::copy(&mut stream, &mut back);
                let _ = back.shutdown(Shutdown::Write);
            });
        }
    });
    let pipe = format!("echo=[fe80::1%d0]:{port}");
    let permit = format!("[fe80::1]:{port}");
    let args = ["--authorized-keys", &keys, "--writable", "--forward", &permit, "--pipe", &pipe];
    let server = place.serve_at("[fe80::1%d0]:0", &args);
    let at = server.address.rsplit_once(':').expect("a port").1.to_owned();
    for (nth, host) in ["[fe80::1%d0]", "[fe80::1%25d0]"].into_iter().enumerate() {
        let url = format!("uts://{host}:{at}/a{nth}");
        place.run(&["cp", "-q", "--accept-new", "a", &url]).ok();
        assert_eq!(place.read(&format!("srv/a{nth}")), b"content");
    }
    let tunnel = Tunnel::start(
        &place,
        "home",
        &server,
        &["-L", &format!("0:[fe80::1%d0]:{port}"), "-L", "[fe80::1%d0]:0:[::1]:1"],
    );
    assert_eq!(ask(tunnel.connect(0), b"there").expect("carried"), b"there");
    let to = format!("[fe80::1%d0]:{at}");
    let said = sh(
        &place,
        "home",
        &format!("echo hello | \"$UTS\" pipe -q --pin {} '{to}' echo", server.fingerprint),
    );
    assert_eq!(said.ok().out, ["hello"]);
}

/// As cron and service managers begin programs.
#[test]
fn a_user_without_an_environment_has_a_home() {
    let user = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    if !users.lines().any(|line| line.split(':').nth(2) == Some(user.as_str())) {
        return println!("SKIPPED: this user is not in /etc/passwd");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_uts"));
    let ended = command.arg("fingerprint").env_clear().stdin(Stdio::null()).output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!said.contains("no place"), "{said}");
}

#[test]
fn names_that_look_like_options_or_streams_are_names() {
    let place = Place::new();
    let server = place.serve(&[]);
    place.write("-", b"one");
    place.write("-x", b"two");
    place.cp(&server, &["-q", "./-", &server.url("a")]).ok();
    place.cp(&server, &["-q", "./-", "./-x", &server.url("")]).ok();
    assert_eq!(
        (place.read("srv/a"), place.read("srv/-"), place.read("srv/-x")),
        (b"one".to_vec(), b"one".to_vec(), b"two".to_vec())
    );
    std::fs::create_dir(place.path("in")).expect("made");
    place.cp(&server, &["-q", &server.url("-"), &server.url("-x"), "in"]).ok();
    assert_eq!((place.read("in/-"), place.read("in/-x")), (b"one".to_vec(), b"two".to_vec()));
}

/// Names are bytes, whatever the locale.
#[test]
fn names_pass_in_any_locale() {
    let place = Place::new();
    let server = place.serve(&[]);
    let script = format!(
        "export LC_ALL=C; n=$(printf '\\377\\376'); echo x > \"$n\"; echo y > 'ü☃'; mkdir in;
        \"$UTS\" cp -q --pin {pin} \"$n\" 'ü☃' {url} && \"$UTS\" cp -q --pin {pin} {url}\"$n\" {url}'ü☃' in && \"$UTS\" cp -q --pin {pin} {url}%ff%fe again &&
        cmp \"$n\" in/\"$n\" && cmp \"$n\" again && cmp 'ü☃' in/'ü☃' && \"$UTS\" ls --pin {pin} {url}",
        pin = server.fingerprint,
        url = server.url("")
    );
    let out = sh(&place, "home", &script).ok().out;
    assert!(
        out.iter().any(|line| line.ends_with("ü☃")) && out.iter().any(|line| line.ends_with("\\xff\\xfe")),
        "{out:?}"
    );
}

/// Of programs that are begun with closed descriptors (`<&-`), whose numbers others would take.
#[test]
fn closed_descriptors_are_taken_by_nothing_else() {
    let place = Place::new();
    let (content, server) = (pattern(300_000), place.serve(&[]));
    place.write("a", &content);
    let run = |script: &str| {
        let script = script.replace("CP", &format!("\"$UTS\" cp -q --pin {}", server.fingerprint));
        sh(&place, "home", &script).ok()
    };
    run(&format!("CP a {} <&- >&- 2>&-", server.url("a")));
    run(&format!("CP {} b <&- >&- 2>&-", server.url("a")));
    assert!(place.read("srv/a") == content && place.read("b") == content);
    run(&format!("CP - {} <&-", server.url("empty")));
    assert_eq!(place.read("srv/empty"), b"");
}
