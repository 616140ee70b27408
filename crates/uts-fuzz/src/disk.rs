//! Files that a user keeps: keys and names of hosts.

use std::cell::RefCell;
use std::io::Write as _;
use std::path::Path;
use tempfile::NamedTempFile;
use uts::{AuthorizedKeys, Identity, KnownHosts};

thread_local! {
    /// Of mode 0600; written again for each run.
    static FILE: RefCell<Option<NamedTempFile>> = const { RefCell::new(None) };
}

/// Runs `read` with a file of these contents.
fn with_file(contents: &[u8], read: impl FnOnce(&Path)) {
    FILE.with_borrow_mut(|file| {
        let file = file.get_or_insert_with(|| NamedTempFile::new().expect("a temporary file"));
        file.as_file().set_len(0).expect("emptied");
        std::io::Seek::rewind(file.as_file_mut()).expect("rewound");
        file.write_all(contents).expect("written");
        read(file.path());
    });
}

pub fn identity(data: &[u8]) {
    with_file(data, |path| match Identity::load(path) {
        Ok(identity) => {
            let again = Identity::load(path).expect("as before");
            assert_eq!(again.fingerprint(), identity.fingerprint());
            assert_eq!(identity.fingerprint().to_string().parse(), Ok(identity.fingerprint()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    });
}

/// After a host has been added, a file that could be read can still be read, and still says the
/// same.
pub fn known_hosts(data: &[u8]) {
    let fingerprint = uts::Fingerprint::of_spki(b"any");
    with_file(data, |path| {
        let Ok(before) = KnownHosts::load(path) else { return };
        KnownHosts::add(path, "Host.example:4433", fingerprint).expect("added to what can be read");
        let after = KnownHosts::load(path).expect("can still be read");
        assert!(after.of("host.example:4433").any(|entry| entry.fingerprint == fingerprint));
        for word in std::str::from_utf8(data).unwrap_or_default().split_whitespace() {
            assert!(
                before.of(word).all(|entry| after.of(word).any(|also| also == entry)),
                "{word:?} was forgotten"
            );
        }
    });
}

pub fn authorized_keys(data: &[u8]) {
    with_file(data, |path| match AuthorizedKeys::load(path) {
        Ok(keys) => {
            for word in std::str::from_utf8(data).unwrap_or_default().split_whitespace() {
                if let Ok(key) = word.parse() {
                    assert_eq!(keys.contains(&key), keys.name(&key).is_some());
                }
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    });
}
