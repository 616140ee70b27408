//! Where a user's keys and known hosts are, by the environment: each case in a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use uts::{Identity, IdentityError, KnownHosts, KnownHostsError, NewHost, Trust};

/// Says in which of the cases below this process is one.
const EXPECTED: &str = "UTS_TEST_EXPECTED_PLACE";

/// Runs this test program again, with nothing but these variables, to expect `place`.
fn expect(place: Option<&Path>, variables: &[(&str, &str)]) {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.env_clear().envs(variables.iter().copied());
    command.env(EXPECTED, place.unwrap_or(Path::new("none")));
    let output = command.args(["--exact", "this_process_finds_its_place"]).output().expect("run");
    assert!(output.status.success(), "{variables:?}: {}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "it was run");
}

#[test]
fn this_process_finds_its_place() {
    let Some(expected) = std::env::var_os(EXPECTED) else { return };
    if expected == "none" {
        assert!(matches!(Identity::default_path(), Err(IdentityError::NoHome)));
        assert!(matches!(KnownHosts::default_path(), Err(KnownHostsError::NoHome)));
        assert!(matches!(Trust::known_hosts(NewHost::Refuse), Err(KnownHostsError::NoHome)));
        return;
    }
    let folder = PathBuf::from(expected);
    assert_eq!(Identity::default_path().expect("a place"), folder.join("id_ed25519.pem"));
    assert_eq!(KnownHosts::default_path().expect("a place"), folder.join("known_hosts"));
    let trust = Trust::known_hosts(NewHost::Refuse).expect("a place");
    assert!(matches!(trust, Trust::KnownHosts { file, .. } if file == folder.join("known_hosts")));
}

#[test]
fn the_environment_says_where_a_users_files_are() {
    let at = |folder: &'static str| Some(Path::new(folder));
    expect(at("/config/uts"), &[("XDG_CONFIG_HOME", "/config"), ("HOME", "/home/me")]);
    expect(at("/home/me/.config/uts"), &[("HOME", "/home/me")]);
    // The XDG specification: what is not absolute, or empty, does not count.
    expect(at("/home/me/.config/uts"), &[("XDG_CONFIG_HOME", "config"), ("HOME", "/home/me")]);
    expect(at("/home/me/.config/uts"), &[("XDG_CONFIG_HOME", ""), ("HOME", "/home/me")]);
    // Without HOME the system's own list of users says it, if it knows the user.
    let folder = home_of_user().map(|home| home.join(".config/uts"));
    expect(folder.as_deref(), &[("HOME", "")]);
    expect(folder.as_deref(), &[]);
}

/// The home directory of this user in `/etc/passwd`.
fn home_of_user() -> Option<PathBuf> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let user = rustix::process::getuid().as_raw().to_string();
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let home =
        fields.filter(|fields| fields.get(2) == Some(&user.as_str())).find_map(|f| f.get(5).copied())?;
    (!home.is_empty()).then(|| PathBuf::from(home))
}
