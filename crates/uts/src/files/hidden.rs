//! Hidden files: those whose name begins with a dot, and all beneath such a directory. A server
//! neither shows nor takes them unless it was told to. In most homes nobody means to share them.

use super::error::{Fault, FaultKind};
use super::message::{Kind, Request};

/// Whether a path, or the target of a link, leads by way of a hidden name. `.` and `..` are none.
pub(super) fn is_hidden(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').any(|name| name.starts_with(b".") && name != b"." && name != b"..")
}

/// The fault for a path that is hidden.
///
/// # Errors
/// The path is hidden.
pub(super) fn check(path: &[u8]) -> Result<(), Fault> {
    if !is_hidden(path) {
        return Ok(());
    }
    let why = "hidden, and this server neither shows nor takes hidden files (it does with --hidden)";
    Err(Fault::new(FaultKind::Permission, path, why))
}

/// The same for the subject of a request. A link is also hidden if it leads to a hidden file,
/// because it would show the file.
///
/// # Errors
/// It is about something hidden.
pub(super) fn check_request(request: &Request) -> Result<(), Fault> {
    match request {
        Request::Stat { path } | Request::List { path, .. } | Request::Get { path, .. } => check(path),
        Request::Offer(entry)
        | Request::Stream(entry)
        | Request::Put { entry, .. }
        | Request::MakeDirectory { entry, .. }
        | Request::Attributes { entry, .. } => check(&entry.path),
        Request::MakeLink { entry, .. } => match &entry.kind {
            Kind::Link(target) if is_hidden(target) => {
                let why = "leads to a hidden file, and this server shows none (it does with --hidden)";
                Err(Fault::new(FaultKind::Permission, &entry.path, why))
            }
            _ => check(&entry.path),
        },
        Request::PreserveModes => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_with_a_dot_is_hidden_and_all_beneath() {
        for hidden in [&b".x"[..], b"a/.x", b".x/a", b"a/.x/b", b"...", b"../.x", b"..x"] {
            assert!(is_hidden(hidden), "{}", hidden.escape_ascii());
        }
        for shown in [&b""[..], b"a", b"a/b.c", b"..", b"../a", b".", b"./a/.."] {
            assert!(!is_hidden(shown), "{}", shown.escape_ascii());
        }
    }
}
