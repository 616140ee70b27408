//! The directory of an experiment. A file under its final name is whole: everything is written
//! beside and renamed. One process writes it at a time.

use crate::compressed;
use crate::run::{self, RUN_FILE, RunFile};
use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The experiment file, as it was.
pub const EXPERIMENT_FILE: &str = "experiment.toml";

/// Where the experiment ran.
pub const MACHINE_FILE: &str = "machine.json";

/// The file that a process holds while it writes.
const LOCK: &str = ".lock";

/// A directory that this process may write.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Released by the system when this process ends, however it does.
    _lock: File,
}

impl Directory {
    /// Makes or opens a directory, and removes what a killed process left half-written.
    ///
    /// # Errors
    /// It cannot be written; another process writes it; it holds something else.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.join("runs").is_dir() && is_foreign(path)? {
            bail!(
                "{} holds other files, and nothing of an experiment; name another directory",
                path.display()
            );
        }
        let runs = path.join("runs");
        fs::create_dir_all(&runs).with_context(|| format!("cannot make the directory {}", runs.display()))?;
        let lock =
            File::create(path.join(LOCK)).with_context(|| format!("cannot write in {}", path.display()))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(
                "another process runs the experiment in {}; let it end or name another directory",
                path.display()
            );
        }
        for entry in fs::read_dir(&runs)?.flatten() {
            if is_part(&entry.file_name().to_string_lossy()) {
                fs::remove_dir_all(entry.path()).context("cannot remove what an interrupted run left")?;
            }
        }
        Ok(Directory { path: path.to_owned(), _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces a file of the directory at once.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn replace(&self, name: &str, contents: &[u8]) -> Result<()> {
        let part = self.path.join(format!(".{name}.part"));
        let write = || {
            let mut file = File::create(&part)?;
            file.write_all(contents)?;
            file.sync_data()?;
            fs::rename(&part, self.path.join(name))
        };
        write().with_context(|| format!("cannot write {}", self.path.join(name).display()))
    }

    /// A fresh directory for a run that begins.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn begin(&self, id: &str) -> Result<PathBuf> {
        let part = self.part(id);
        if part.exists() {
            fs::remove_dir_all(&part).with_context(|| format!("cannot remove {}", part.display()))?;
        }
        fs::create_dir_all(part.join("samples"))
            .with_context(|| format!("cannot make {}", part.display()))?;
        Ok(part)
    }

    /// Compresses the samples of a run that has begun. Says how many bytes they took at most
    /// meanwhile.
    ///
    /// # Errors
    /// They cannot be read or written.
    pub fn compress(&self, id: &str) -> Result<u64> {
        let samples = self.part(id).join("samples");
        compressed::compress_all(&samples).with_context(|| format!("cannot compress {}", samples.display()))
    }

    /// Puts a run under its final name, whole; one that was there is replaced.
    ///
    /// # Errors
    /// It cannot be written or renamed.
    pub fn finish<C: Serialize>(&self, run: &RunFile<C>) -> Result<()> {
        let part = self.part(&run.id);
        let finish = || -> Result<()> {
            let mut file = File::create(part.join(RUN_FILE))?;
            file.write_all(&serde_json::to_vec_pretty(run)?)?;
            file.sync_data()?;
            self.put(&run.id)
        };
        finish().with_context(|| format!("cannot keep the run {}", run.id))
    }

    /// Takes over a run of the directory `from`, whole; one of that name that was here is replaced.
    ///
    /// # Errors
    /// It cannot be read or written; it holds what no run leaves, as a link.
    pub fn adopt(&self, id: &str, from: &Path) -> Result<()> {
        let part = self.begin(id)?;
        let adopted = copy_run(&run_path(from, id), &part).and_then(|()| self.put(id));
        if adopted.is_err() {
            self.abandon(id);
        }
        adopted.with_context(|| format!("cannot take over the run {id} of {}", from.display()))
    }

    /// Gives a run that is written its final name.
    fn put(&self, id: &str) -> Result<()> {
        let part = self.part(id);
        let samples = part.join("samples");
        if fs::read_dir(&samples)?.next().is_none() {
            fs::remove_dir(&samples)?;
        }
        let whole = run_path(&self.path, id);
        if whole.exists() {
            fs::remove_dir_all(&whole)?;
        }
        Ok(fs::rename(&part, whole)?)
    }

    /// Place of a run that has ended.
    pub fn run(&self, id: &str) -> PathBuf {
        run_path(&self.path, id)
    }

    /// Forgets a run that was begun.
    pub fn abandon(&self, id: &str) {
        // The next to open the directory removes it if this does not.
        let _ = fs::remove_dir_all(self.part(id));
    }

    fn part(&self, id: &str) -> PathBuf {
        self.path.join("runs").join(format!(".{id}.part"))
    }
}

/// Where a run of a directory is.
pub(crate) fn run_path(directory: &Path, id: &str) -> PathBuf {
    directory.join("runs").join(id)
}

/// The files of a run, by their names within it, in the order of the alphabet.
///
/// # Errors
/// The run cannot be read. It holds something else, which may be a way out of the directory.
pub(crate) fn run_files(run: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for within in ["", "samples"] {
        let entries = match fs::read_dir(run.join(within)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && !within.is_empty() => continue,
            entries => entries.with_context(|| format!("cannot read {}", run.join(within).display()))?,
        };
        for entry in entries {
            let entry = entry?;
            let (kind, name) = (entry.file_type()?, Path::new(within).join(entry.file_name()));
            if kind.is_file() {
                files.push(name);
            } else if !kind.is_dir() || name != Path::new("samples") {
                bail!(
                    "{} is not a file; a run has files, and more of them in samples",
                    entry.path().display()
                );
            }
        }
    }
    files.sort();
    Ok(files)
}

fn copy_run(from: &Path, to: &Path) -> Result<()> {
    for name in run_files(from)? {
        let copy = || -> io::Result<()> {
            let mut file = File::create(to.join(&name))?;
            io::copy(&mut File::open(from.join(&name))?, &mut file)?;
            file.sync_data()
        };
        copy().with_context(|| format!("cannot copy {}", from.join(&name).display()))?;
    }
    Ok(())
}

/// Keeps other processes from writing a directory while it is read; one without the file that
/// writers hold has no writer.
///
/// # Errors
/// A process writes it.
pub(crate) fn hold(path: &Path) -> Result<Option<File>> {
    let Ok(lock) = File::open(path.join(LOCK)) else { return Ok(None) };
    match flock(&lock, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!("another process runs the experiment in {}; let it end first", path.display())
        }
        // Some file systems of networks know no locks.
        _ => Ok(Some(lock)),
    }
}

/// True if a directory has files, and none of an experiment.
fn is_foreign(path: &Path) -> Result<bool> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.any(|entry| entry.is_ok_and(|e| e.file_name() != LOCK))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e).with_context(|| format!("cannot read the directory {}", path.display())),
    }
}

fn is_part(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(".part")
}

/// The runs of a directory; `C` is what is wanted of their cases.
#[derive(Debug)]
pub struct Runs<C> {
    /// By their names.
    pub whole: HashMap<String, RunFile<C>>,
    /// Those that cannot be read, by their names: why not.
    pub damaged: BTreeMap<String, String>,
}

/// All runs of a directory, whichever program writes it. A damaged run does not hide the others.
///
/// # Errors
/// The directory cannot be read, or is none.
pub fn read_runs<C: DeserializeOwned>(path: &Path) -> Result<Runs<C>> {
    let runs = path.join("runs");
    let entries = fs::read_dir(&runs)
        .with_context(|| format!("{} is no directory of an experiment", path.display()))?;
    let mut found = Runs { whole: HashMap::new(), damaged: BTreeMap::new() };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_part(&name) || !entry.path().is_dir() {
            continue;
        }
        match run::read(&entry.path().join(RUN_FILE)) {
            Ok(run) => drop(found.whole.insert(name, run)),
            Err(error) => drop(found.damaged.insert(name, format!("{error:#}"))),
        }
    }
    Ok(found)
}
