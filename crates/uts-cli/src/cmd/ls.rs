//! `uts ls`.

use super::{Failure, interrupted, reach};
use crate::args::LsArgs;
use crate::link::{Link, Transport};
use crate::target::{Host, Target};
use crate::ui::lines;
use serde_json::json;
use std::future::Future;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use uts_end::output::Output;
use uts_files::message::{Entry, Kind, Mtime};
use uts_files::path::show;
use uts_files::{Fault, FileError, ServerPath, list};
use uts_units::show;

/// Times as all machines read them, in UTC.
const WHEN: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");

/// Runs `uts ls`.
///
/// # Errors
/// See [`Failure`].
pub async fn run<T: Transport>(transport: &T, args: &LsArgs) -> Result<(), Failure> {
    list_to(transport, args, interrupted()).await
}

async fn list_to<T: Transport>(
    transport: &T,
    args: &LsArgs,
    interrupt: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let (mut host, path) = match Target::parse(&args.path).map_err(Failure::Usage)? {
        Target::Remote(host, path) => (host, path),
        Target::Local(path) => {
            let why = format!("{}: write what is at a server as uts://host/path", path.display());
            return Err(Failure::Usage(why));
        }
    };
    let options = args.reach.options(&mut host, Vec::new(), !args.json)?;
    tokio::pin!(interrupt);
    let link = reach::connect(transport, &host, &options, &mut interrupt).await?;
    let listed = tokio::select! {
        listed = tell(&link, &host, &path, args) => listed,
        () = &mut interrupt => Err(Failure::interrupted()),
    };
    link.close(0, "done").await;
    listed
}

async fn tell<L: Link>(link: &L, host: &Host, path: &ServerPath, args: &LsArgs) -> Result<(), Failure> {
    let mut has_failed = false;
    let mut emit = |found: Result<Entry, Fault>| match found {
        Ok(entry) if args.json => {
            lines::write_json(&mut Output::Out, object(&entry));
        }
        Ok(entry) => {
            lines::write_line(&mut Output::Out, row(&entry));
        }
        Err(fault) => {
            has_failed = true;
            lines::fail(FileError::Peer(fault));
        }
    };
    let listed = list(&*link.flows(), path, args.recursive, &mut emit).await;
    listed.map_err(|error| Failure::Failed(super::reach::named(&host.to_string(), &error)))?;
    if has_failed { Err(Failure::Told) } else { Ok(()) }
}

fn row(entry: &Entry) -> String {
    let (letter, end) = match &entry.kind {
        Kind::File => ('-', String::new()),
        Kind::Directory => ('d', "/".to_owned()),
        Kind::Link(target) => ('l', format!(" -> {}", show(target))),
        Kind::Special => ('?', String::new()),
    };
    let size = if entry.kind == Kind::File { show::bytes(entry.size) } else { "-".to_owned() };
    let bits = mode(entry.mode);
    format!("{letter}{bits} {size:>9} {:>20} {}{end}", when(entry.mtime), show(&entry.path))
}

fn mode(bits: u32) -> String {
    (0..9).rev().map(|i| if bits >> i & 1 == 1 { ['x', 'w', 'r'][i % 3] } else { '-' }).collect()
}

fn when(time: Mtime) -> String {
    let time = OffsetDateTime::from_unix_timestamp(time.seconds).ok();
    time.and_then(|time| time.format(WHEN).ok()).unwrap_or_else(|| "?".to_owned())
}

fn object(entry: &Entry) -> serde_json::Value {
    let (kind, target) = match &entry.kind {
        Kind::File => ("file", None),
        Kind::Directory => ("directory", None),
        Kind::Link(target) => ("link", Some(show(target))),
        Kind::Special => ("special", None),
    };
    json!({
        "event": "entry", "path": show(&entry.path), "kind": kind, "size": entry.size, "mode": entry.mode,
        "mtime": when(entry.mtime), "target": target,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_row() {
        let entry = |kind| Entry {
            path: b"a\x1b".to_vec(),
            kind,
            size: 64_000_000,
            mtime: Mtime { seconds: 1_000_000_000, nanoseconds: 5 },
            mode: 0o644,
        };
        assert_eq!(row(&entry(Kind::File)), "-rw-r--r--   64.0 MB 2001-09-09T01:46:40Z a\\u{1b}");
        assert_eq!(row(&entry(Kind::Directory)), "drw-r--r--         - 2001-09-09T01:46:40Z a\\u{1b}/");
        assert!(row(&entry(Kind::Link(b"b\n".to_vec()))).ends_with("a\\u{1b} -> b\\u{a}"));
        assert_eq!(when(Mtime { seconds: i64::MAX, nanoseconds: 0 }), "?");
        assert_eq!(object(&entry(Kind::File))["kind"], "file");
    }
}
