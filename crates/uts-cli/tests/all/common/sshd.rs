//! A server of OpenSSH that belongs to a test.

use super::{PATIENCE, Place, Running};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A server of OpenSSH for this user with keys of its own, or `None` if there is no such program.
pub fn sshd(place: &Place) -> Option<(Running, u16)> {
    sshd_with(place, &[])
}

/// The same with more settings.
pub fn sshd_with(place: &Place, more: &[(&str, &str)]) -> Option<(Running, u16)> {
    sshd_at(place, "127.0.0.1", &[], more)
}

/// The same at another address, and by a command line that begins so.
pub fn sshd_at(place: &Place, at: &str, by: &[&str], more: &[(&str, &str)]) -> Option<(Running, u16)> {
    let sshd = ["/usr/sbin/sshd", "/usr/bin/sshd"].into_iter().find(|path| Path::new(path).exists());
    let (Some(sshd), Ok(ssh)) = (sshd, Command::new("ssh").arg("-V").output()) else {
        println!("skipped: OpenSSH is not installed (Debian: apt install openssh-server)");
        return None;
    };
    assert!(ssh.status.success());
    for key in ["host_key", "user_key"] {
        let file = place.path(key);
        let made =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file).status();
        assert!(made.expect("started").success());
    }
    let port = TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("an address").port();
    let option = |name: &str, value: &str| format!("{name}={value}");
    let file = |name: &str| place.path(name).display().to_string();
    let settings = [
        option("HostKey", &file("host_key")),
        option("AuthorizedKeysFile", &file("user_key.pub")),
        option("ListenAddress", at),
        option("StrictModes", "no"),
        option("PidFile", "none"),
        option("UsePAM", "no"),
        // It refuses some of those that come at once, unless told otherwise.
        option("MaxStartups", "1000"),
        option("LoginGraceTime", "10m"),
        option("PermitRootLogin", "yes"),
        option("Subsystem", "sftp internal-sftp"),
    ];
    // It wants this directory of root, and nobody else can make it.
    let _ = fs::create_dir("/run/sshd");
    let mut command = Command::new(by.first().unwrap_or(&sshd));
    command.args(by.iter().skip(1)).args((!by.is_empty()).then_some(sshd));
    command.args(["-D", "-e", "-f", "/dev/null", "-p", &port.to_string()]);
    for (name, value) in more {
        command.args(["-o", &option(name, value)]);
    }
    for setting in &settings {
        command.args(["-o", setting]);
    }
    let running = Place::begin(command);
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect((at, port)).is_err() {
        if Instant::now() > deadline {
            println!("skipped: sshd does not start here");
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Some((running, port))
}
