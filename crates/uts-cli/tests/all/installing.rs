//! Things that are installed: completions, manual, socket activation, and the Debian package as a
//! whole.

use crate::common::{PATIENCE, Place};
use rustix::process::Signal;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn shells_complete_every_command_and_the_manual_has_a_page_for_each() {
    let place = Place::new();
    for shell in ["bash", "fish", "zsh"] {
        let text = place.run(&["completions", shell]).ok().out.join("\n");
        for word in ["serve", "perf", "property"] {
            assert!(text.contains(word), "{shell}: no {word}");
        }
        for hidden in ["pages of the manual", "Keep a session"] {
            assert!(!text.contains(hidden), "{shell}: {hidden}");
        }
    }
    place.run(&["completions", "cmd.exe"]).failed(2, &["cmd.exe", "bash"]);
    place.run(&["manual", "man"]).ok();
    for (page, says) in [("uts.1", "uts cp"), ("uts-serve.1", "writable"), ("uts-perf.1", "reverse")] {
        let text = String::from_utf8(place.read(&format!("man/{page}"))).expect("text");
        assert!(text.starts_with(".") && text.contains(says), "{page}");
    }
    for hidden in ["uts-manual.1", "uts-ssh-keep.1"] {
        assert!(!place.path("man").join(hidden).exists(), "{hidden}: what is hidden has no page");
    }
    // A page names no other that there is not.
    for page in std::fs::read_dir(place.path("man")).expect("a directory") {
        let page = page.expect("an entry").path();
        let text = std::fs::read_to_string(&page).expect("text").replace("\\-", "-");
        for word in text.split_whitespace().filter_map(|word| word.strip_suffix("(1)")) {
            let named = page.with_file_name(format!("{word}.1"));
            assert!(named.exists() || !word.starts_with("uts"), "{}: {word}(1)", page.display());
        }
    }
}

/// The units as they are in the package, with this program in the place of the installed one.
#[test]
fn systemd_takes_the_units() {
    if !is_there("systemd-analyze", &["--version"], "verifies units (systemd)") {
        return;
    }
    let place = Place::new();
    std::fs::create_dir(place.path("units")).expect("made");
    for unit in ["uts.service", "uts.socket"] {
        let text = std::fs::read_to_string(root().join("packaging/debian").join(unit)).expect(unit);
        // The pages of the manual are not installed here.
        let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("Documentation=")).collect();
        let text = text.join("\n").replace("/usr/bin/uts", env!("CARGO_BIN_EXE_uts"));
        place.write(&format!("units/{unit}"), text.as_bytes());
    }
    let [service, socket] = ["units/uts.service", "units/uts.socket"].map(|unit| place.path(unit));
    let output =
        Command::new("systemd-analyze").arg("verify").args([&socket, &service]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("uts."), "{said}");
    // What the service serves unless it is told otherwise is made when the package is installed.
    let made = std::fs::read_to_string(root().join("packaging/debian/uts.tmpfile")).expect("a list");
    let serves = std::fs::read_to_string(&service).expect("the unit");
    assert!(made.lines().any(|line| line.starts_with("d /srv/uts ")));
    assert!(serves.contains("--config /etc/uts/serve.toml"));
    assert!(serves.contains("Type=notify\n") && serves.contains("ExecReload=/bin/kill -HUP "));
    // A server that gives no sign of life is ended and begins again.
    assert!(serves.contains("WatchdogSec=") && serves.contains("Restart=on-failure"));
}

/// The program listens at a socket that a service manager has bound, and tells it when it is ready
/// and when it ends.
#[test]
fn a_service_manager_hands_over_a_socket_and_is_told() {
    let place = Place::new();
    place.write("srv/file", b"content");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let address = socket.local_addr().expect("an address").to_string();
    let told = place.path("notify");
    let manager = UnixDatagram::bind(&told).expect("bound");
    manager.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut command = Command::new("/bin/sh");
    // The first socket has the descriptor 3 (sd_listen_fds(3)).
    command.args(["-c", "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\" 3<&0 < /dev/null", "sh"]);
    command.args([env!("CARGO_BIN_EXE_uts"), "serve", "--json", "--dir", "srv"]);
    let mut command = place.here(command, "server-home");
    command.env("NOTIFY_SOCKET", &told).stdin(Stdio::from(OwnedFd::from(socket)));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
    let heard = || {
        let mut text = [0; 200];
        let bytes = manager.recv(&mut text).expect("the manager is told");
        String::from_utf8_lossy(&text[..bytes]).into_owned()
    };
    assert!(heard().contains("READY=1"));
    let ended = place.run(&["cp", "--accept-new", &format!("uts://{address}/file"), "got"]);
    crate::common::signal(&child, Signal::TERM);
    ended.ok();
    assert_eq!(place.read("got"), b"content");
    assert!(heard().contains("STOPPING=1"));
    assert!(child.wait().expect("ended").success());
}

/// The user unit of tunnels, as it is installed, and its command line as systemd would run it.
#[test]
fn a_user_has_systemd_keep_a_tunnel() {
    let unit = std::fs::read_to_string(root().join("packaging/systemd/uts-tunnel@.service")).expect("a unit");
    let place = Place::new();
    let service = crate::common::tunnel::echo();
    let server = crate::common::tunnel::serve(&place, &["--forward", &service.to_string()]);
    let port = crate::common::tunnel::free_port();
    let tunnel = format!("[tunnel.db]\nhost = '{}'\nlocal = ['{port}:{service}']\n", server.address);
    let known = format!("{} {}\n", server.address, server.fingerprint);
    place.write("home/config/uts/config.toml", tunnel.as_bytes());
    place.write("home/config/uts/known_hosts", known.as_bytes());
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/uts ")).expect("a command");
    let run = place.path("").display().to_string();
    let line =
        line.replace("%t/", &run).replace("%i", "db").replace("$UTS_OPTIONS ", "").replace("$UTS_HOST", "db");
    let running = place.start(&line.split_whitespace().collect::<Vec<_>>());
    let at = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let begun = std::time::Instant::now();
    while std::net::TcpListener::bind(at).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it does not listen");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let back = crate::common::tunnel::ask(crate::common::tunnel::connect(at), b"kept").expect("carried");
    assert_eq!(back, b"kept");
    let carried = place.run(&["ctl", &format!("{run}uts-tunnel-db"), "--json"]).ok();
    assert!(carried.out[0].contains(&server.address), "{:?}", carried.out);
    running.signal(Signal::TERM);
    let status = format!("SuccessExitStatus={}", running.wait().status);
    assert!(unit.lines().any(|line| line == status), "no {status}");
    if !is_there("systemd-analyze", &["--version"], "looks at units") {
        return;
    }
    // What is installed there is the program of this test.
    let unit = unit.replace("/usr/bin/uts", env!("CARGO_BIN_EXE_uts"));
    let file = place.write("units/uts-tunnel@.service", unit.as_bytes()).replace("@.", "@db.");
    let verified = Command::new("systemd-analyze")
        .args(["--user", "--man=no", "verify", &file])
        .env("XDG_RUNTIME_DIR", place.path(""))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && said.is_empty(), "{said}");
}

/// True if a program is there. Its use is told if it is not.
fn is_there(program: &str, args: &[&str], what: &str) -> bool {
    let run = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = run.is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("left out: {program} {} is missing, which {what}", args.join(" "));
    }
    is_there
}

/// The package is made of the program as it was built for this test, and unpacked to a folder; the
/// system's own packages are left alone.
#[test]
fn the_debian_package_has_all_and_its_program_runs() {
    let has_all = is_there("cargo", &["deb", "--version"], "makes the package (cargo install cargo-deb)")
        && is_there("dpkg-deb", &["--version"], "unpacks it");
    if !has_all {
        return;
    }
    let place = Place::new();
    let built = Command::new(root().join("scripts/package"))
        .env("UTS_PROFILE", "dev")
        .env("UTS_NO_BUILD", "1")
        .env("UTS_PACKAGE_DIR", place.path("out"))
        .output()
        .expect("the script runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let packages = std::fs::read_dir(place.path("out")).expect("a directory");
    let packages: Vec<PathBuf> = packages.map(|file| file.expect("an entry").path()).collect();
    let [package] = packages.as_slice() else { panic!("one package: {packages:?}") };
    let unpacked = place.path("root");
    let status = Command::new("dpkg-deb").arg("-x").arg(package).arg(&unpacked).status().expect("it runs");
    assert!(status.success());
    for file in [
        "etc/default/uts",
        "etc/uts/serve.toml",
        "usr/share/doc/uts/grafana.json",
        "usr/lib/tmpfiles.d/uts.conf",
        "usr/share/man/man1/uts-serve.1.gz",
        "usr/share/bash-completion/completions/uts",
        "usr/share/fish/vendor_completions.d/uts.fish",
        "usr/share/zsh/vendor-completions/_uts",
        "usr/lib/systemd/user/uts-tunnel@.service",
    ] {
        assert!(unpacked.join(file).is_file(), "no {file}");
    }
    for unit in ["uts.service", "uts.socket"] {
        let places =
            ["usr/lib/systemd/system", "lib/systemd/system"].map(|dir| unpacked.join(dir).join(unit));
        assert!(places.iter().any(|place| place.is_file()), "no {unit}");
    }
    let bytes = |path: &Path| std::fs::metadata(path).expect("a file").len();
    let (stripped, whole) =
        (bytes(&unpacked.join("usr/bin/uts")), bytes(Path::new(env!("CARGO_BIN_EXE_uts"))));
    assert!(stripped < whole / 2, "the program is stripped: {stripped} of {whole} bytes");
    let scripts = place.path("scripts");
    let status = Command::new("dpkg-deb").arg("-e").arg(package).arg(&scripts).status().expect("it runs");
    assert!(status.success());
    let postinst = std::fs::read_to_string(scripts.join("postinst")).expect("a script");
    assert!(postinst.contains("systemd-tmpfiles") && postinst.contains("uts.conf"), "{postinst}");
    place.write("srv/file", b"content");
    let installed = |args: &[&str]| {
        let mut command = Command::new(unpacked.join("usr/bin/uts"));
        command.args(args);
        place.here(command, "home")
    };
    let mut serve = installed(&["serve", "--json", "--dir", "srv", "--listen", "127.0.0.1:0"]);
    serve.stdin(Stdio::null());
    let server = Place::served(Place::begin(serve));
    let copied = installed(&["cp", "--pin", &server.fingerprint, &server.url("file"), "got"]).output();
    let copied = copied.expect("it runs");
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    assert_eq!(place.read("got"), b"content");
}
