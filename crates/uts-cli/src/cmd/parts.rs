//! `uts parts`.

use super::Failure;
use crate::args::PartsArgs;
use crate::ui::lines;
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use uts_end::output::Output;
use uts_files::path::show;
use uts_files::{Fault, Of, Unfinished, unfinished};
use uts_units::show;

/// Runs `uts parts`.
///
/// # Errors
/// [`Failure::Failed`] if the directory cannot be opened, [`Failure::Told`] if something in it
/// cannot be read or removed.
pub fn run(args: &PartsArgs) -> Result<(), Failure> {
    let mut has_failed = false;
    let mut fail = |fault: Fault| {
        has_failed = true;
        lines::fail(under(&args.dir, fault));
    };
    let searched = unfinished(&args.dir, &mut |found| match found {
        Ok(part) if args.older_than.is_some_and(|age| part.age < age) => {}
        Ok(part) => match args.remove.then(|| part.remove()).transpose() {
            Ok(removed) => tell(args, &part, removed == Some(true)),
            Err(fault) => fail(fault),
        },
        Err(fault) => fail(fault),
    });
    searched.map_err(|fault| Failure::Failed(fault.to_string()))?;
    if has_failed { Err(Failure::Told) } else { Ok(()) }
}

/// A fault by a path from where the user is.
fn under(dir: &Path, fault: Fault) -> Fault {
    Fault {
        path: dir.join(std::ffi::OsStr::from_bytes(&fault.path)).into_os_string().into_encoded_bytes(),
        ..fault
    }
}

fn tell(args: &PartsArgs, part: &Unfinished, is_removed: bool) {
    let path = args.dir.join(part.path.as_path());
    let path = show(path.strip_prefix(".").unwrap_or(&path).as_os_str().as_bytes());
    let state = match (is_removed, part.is_under_way) {
        (true, _) => "removed",
        (false, true) => "under way",
        (false, false) => "unfinished",
    };
    if args.json {
        let (kind, held, size) = match part.of {
            Of::File { held, size } => ("file", Some(held), size),
            Of::Directory => ("directory", None, None),
        };
        let object = json!({
            "event": "part", "path": path, "kind": kind, "held": held, "size": size, "age_s": part.age.as_secs(),
            "by": part.by, "state": state,
        });
        lines::write_json(&mut Output::Out, object);
        return;
    }
    let what = match part.of {
        Of::File { held, size: Some(size) } => format!("{} of {}", show::bytes(held), show::bytes(size)),
        Of::File { held, size: None } => show::bytes(held),
        Of::Directory => "directory".to_owned(),
    };
    let by = part.by.as_ref().map_or_else(String::new, |key| format!(", from the key {key}"));
    let age = show::span(part.age);
    lines::write_line(&mut Output::Out, format!("{path}  {what}, {age} old, {state}{by}"));
}
