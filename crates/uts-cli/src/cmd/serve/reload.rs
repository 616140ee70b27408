//! Settings that a server takes over while it runs (SIGHUP), and what stays as it was.

use super::limits::limits;
use super::settings::Settings;
use super::{Offer, Offered, check};
use crate::args::ServeArgs;
use crate::cmd::Failure;
use crate::media::{self, hub::Hub};
use std::ffi::OsString;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use uts::Services;
use uts_files::{ServeOptions, Service};
use uts_ledger::Ledger;
use uts_tunnel::held::Places;
use uts_tunnel::permit::Permits;
use uts_tunnel::pipe::{self, Permitted, Pipes};
use uts_tunnel::sockets::System;

/// Takes one field over.
type Take = fn(&mut ServeArgs, &ServeArgs);

/// Options that count from now on when the file says something else. All others stay until the next
/// start.
const TAKEN_OVER: [(&str, Take); 15] = [
    ("dir", |to, from| to.dir.clone_from(&from.dir)),
    ("writable", |to, from| to.writable = from.writable),
    ("read-only", |to, from| to.read_only = from.read_only),
    ("hidden", |to, from| to.hidden = from.hidden),
    ("preserve-mode", |to, from| to.preserve_mode = from.preserve_mode),
    ("delete", |to, from| to.delete = from.delete),
    ("pipe", |to, from| to.pipe.clone_from(&from.pipe)),
    ("forward", |to, from| to.forward.clone_from(&from.forward)),
    ("listen-forward", |to, from| to.listen_forward.clone_from(&from.listen_forward)),
    ("media", |to, from| to.media = from.media),
    ("perf", |to, from| to.perf = from.perf),
    ("authorized-keys", |to, from| to.authorized_keys.clone_from(&from.authorized_keys)),
    ("max-connections", |to, from| to.max_connections = from.max_connections),
    ("max-per-address", |to, from| to.max_per_address = from.max_per_address),
    ("max-per-key", |to, from| to.max_per_key = from.max_per_key),
];

/// Where settings come from, and when they are to be read again.
pub struct Source {
    /// The command line behind `uts serve`.
    pub words: Vec<OsString>,
    /// Somebody wants them to be read again.
    pub wanted: mpsc::Receiver<()>,
}

impl Source {
    /// Waits until they are to be read again.
    pub async fn wanted(&mut self) {
        if self.wanted.recv().await.is_none() {
            std::future::pending().await
        }
    }
}

/// The offer of a server, as it is now.
pub struct Running {
    settings: Settings,
    /// Options that it was started with: limits of the process follow from that, and sizes of
    /// flows.
    at_start: ServeArgs,
    is_confined: bool,
    /// The services that clients find that come from now on.
    pub offer: Offer,
    behind: Behind,
}

/// Things that services share with those that take their places.
struct Behind {
    ledger: Ledger,
    /// The places of tunnels and the services of pipes, which those who are connected follow.
    permits: watch::Sender<Arc<Permits>>,
    permitted: watch::Sender<Arc<Permitted>>,
    /// Streams that live on without those who have begun them.
    pipes: Arc<Pipes>,
    files: Option<Service>,
    places: Arc<Places>,
    media: Arc<Hub>,
    perf: Arc<uts_perf::Server>,
}

impl Behind {
    /// The services that clients find with these options.
    fn offer(&self, args: &ServeArgs) -> Result<(Offer, Option<Service>), Failure> {
        let options = ServeOptions {
            read_only: !args.writable,
            preserve_mode: args.preserve_mode,
            delete: args.delete,
            hidden: args.hidden,
        };
        let mut offer = Services::new();
        let files = args.dir.as_ref().map(|dir| match &self.files {
            Some(before) => before.reopen(dir, options),
            None => Service::open(dir, options).map(|service| service.charged_to(&self.ledger)),
        });
        let files = files.transpose().map_err(|error| Failure::Failed(format!("--dir {error}")))?;
        if let Some(service) = &files {
            offer = offer.with("", Offered::Files(service.clone()));
        }
        if !args.pipe.is_empty() {
            offer = offer.with(pipe::SERVICE, Offered::Pipes(self.pipes.clone()));
        }
        if !permits_of(args).is_empty() {
            let tunnels = Offered::Tunnels(self.permits.subscribe(), self.places.clone());
            offer = offer.with(uts_tunnel::SERVICE, tunnels);
        }
        if args.media {
            offer = offer.with(media::SERVICE, Offered::Media(self.media.clone()));
        }
        if args.perf {
            offer = offer.with(uts_perf::SERVICE, Offered::Perf(self.perf.clone()));
        }
        Ok((offer, files))
    }
}

impl Running {
    /// A server with these settings.
    ///
    /// # Errors
    /// What of it cannot be offered.
    pub fn new(settings: Settings, is_confined: bool, ledger: &Ledger) -> Result<Self, Failure> {
        let args = &settings.args;
        let pipes = Permitted::new(&args.pipe).map_err(|why| Failure::Usage(format!("--pipe: {why}")))?;
        let permitted = watch::Sender::new(Arc::new(pipes));
        let mut behind = Behind {
            ledger: ledger.clone(),
            permits: watch::Sender::new(Arc::new(permits_of(args))),
            pipes: Pipes::new(System, permitted.subscribe(), args.silence),
            permitted,
            files: None,
            places: Arc::default(),
            media: Arc::default(),
            perf: Arc::default(),
        };
        let (offer, files) = behind.offer(args)?;
        behind.files = files;
        Ok(Running { at_start: args.clone(), settings, is_confined, offer, behind })
    }

    /// The settings as they are now.
    #[cfg(test)]
    fn args(&self) -> &ServeArgs {
        &self.settings.args
    }

    /// Takes over what can be, and says what that is, and what stays, in a line. `adjust` is given
    /// the options before and those from now on, before anything else has changed.
    ///
    /// # Errors
    /// Why nothing was taken over, in one line.
    pub fn take(
        &mut self,
        next: &Settings,
        adjust: impl FnOnce(&ServeArgs, &ServeArgs) -> Result<(), String>,
    ) -> Result<String, String> {
        let words = |failure: Failure| failure.line().unwrap_or("it fails").to_owned();
        let mut trial = self.settings.clone();
        let (mut taken, mut stay) = (Vec::new(), Vec::new());
        for name in self.settings.changed(next) {
            let take = TAKEN_OVER.iter().find(|(taken, _)| *taken == name).map(|(_, take)| take);
            let mut args = trial.args.clone();
            let why = match take {
                None => Some("it is read at the start"),
                Some(take) => {
                    take(&mut args, &next.args);
                    self.needs_start(&args)
                }
            };
            match why {
                None => {
                    trial.args = args;
                    trial.take(&name, next);
                    taken.push(name);
                }
                Some(why) => stay.push(format!("{name} ({why})")),
            }
        }
        check(&trial.args).map_err(words)?;
        let pipes = Permitted::new(&trial.args.pipe).map_err(|why| format!("pipe: {why}"))?;
        let (offer, files) = self.behind.offer(&trial.args).map_err(words)?;
        adjust(&self.settings.args, &trial.args)?;
        (self.offer, self.behind.files) = (offer, files);
        self.behind.permits.send_replace(Arc::new(permits_of(&trial.args)));
        self.behind.permitted.send_replace(Arc::new(pipes));
        self.settings = trial;
        let from_now = if taken.is_empty() { "nothing".to_owned() } else { taken.join(", ") };
        let until = if stay.is_empty() {
            String::new()
        } else {
            format!("; until the next start stay as they were: {}", stay.join(", "))
        };
        Ok(format!("the settings were read again; new from now on: {from_now}{until}"))
    }

    /// Why such settings need another start, if they do.
    fn needs_start(&self, args: &ServeArgs) -> Option<&'static str> {
        let start = &self.at_start;
        let tunnels = |args: &ServeArgs| !(args.forward.is_empty() && args.listen_forward.is_empty());
        if args.authorized_keys.is_some() != start.authorized_keys.is_some() {
            return Some("clients are asked for keys, or not, from the start on");
        }
        if tunnels(args) && !tunnels(start) {
            return Some("flows of tunnels have other sizes");
        }
        if !args.pipe.is_empty() && start.pipe.is_empty() && !tunnels(start) {
            return Some("streams are kept for longer from the start on");
        }
        (self.is_confined && !limits(start).covers(&limits(args)))
            .then_some("the server is confined to what it was started with")
    }
}

fn permits_of(args: &ServeArgs) -> Permits {
    Permits { connect: args.forward.clone(), listen: args.listen_forward.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_ledger::Budget;

    fn settings(line: &str) -> Settings {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Settings::read(&words).expect(line)
    }

    fn running(line: &str, is_confined: bool) -> Running {
        let ledger = Ledger::of_server(&Budget::of_process());
        let running = Running::new(settings(line), is_confined, &ledger);
        running.unwrap_or_else(|why| panic!("{why:?}"))
    }

    /// Each name is that of an option, whose value is taken over.
    #[test]
    fn options_are_taken_over_by_their_names() {
        let old = settings("--dir a --anyone");
        let lines = "--dir b --writable --anyone; --read-only --dir a --anyone; --hidden --dir a --anyone; \
                     --preserve-mode --dir a --anyone; --writable --delete --dir a --anyone; --pipe x=22 --dir a --anyone; \
                     --forward 80 --dir a --authorized-keys k; --listen-forward 80 --dir a --authorized-keys k; \
                     --media --perf --dir a --anyone; --max-connections 3 --dir a --anyone; --max-per-address 3 --dir a --anyone; \
                     --max-per-key 3 --dir a --anyone";
        let mut met = std::collections::BTreeSet::new();
        for line in lines.split(';') {
            let new = settings(line);
            let mut args = old.args.clone();
            for name in old.changed(&new) {
                if let Some((_, take)) = TAKEN_OVER.iter().find(|(taken, _)| *taken == name) {
                    take(&mut args, &new.args);
                    met.insert(name);
                }
            }
            let of = |args: &ServeArgs| ServeArgs { anyone: true, ..args.clone() };
            assert_eq!(format!("{:?}", of(&args)), format!("{:?}", of(&new.args)), "{line}");
        }
        let all: std::collections::BTreeSet<String> =
            TAKEN_OVER.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(met, all);
    }

    /// The document names all that is taken over.
    #[test]
    fn the_document_names_what_is_taken_over() {
        let text = include_str!("../../../../../docs/uts.md");
        let from = text.split("At `SIGHUP` the file is read again.").nth(1).expect("a paragraph");
        let paragraph = from.split("\n\n").next().expect("its text");
        for (name, _) in TAKEN_OVER {
            assert!(paragraph.contains(&format!("`{}`", name.replace('-', "_"))), "{name}");
        }
    }

    #[test]
    fn what_can_change_does_and_the_rest_is_named() {
        let at = "--pipe a=22 --forward 80 --authorized-keys k";
        let mut server = running(at, false);
        let mut told = None;
        let next =
            settings("--pipe a=23 --forward 81 --authorized-keys k --max-per-key 7 --listen 127.0.0.1:5");
        let adjust = |_: &ServeArgs, args: &ServeArgs| {
            told = Some(args.max_per_key);
            Ok(())
        };
        let taken = server.take(&next, adjust).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(told, Some(7));
        let line = "the settings were read again; new from now on: forward, max-per-key, pipe; until the next start stay \
                    as they were: listen (it is read at the start)";
        assert_eq!(taken, line);
        assert_eq!(server.behind.permitted.borrow().address("a"), Ok(("127.0.0.1", 23)));
        assert_eq!(server.args().listen, None);
        // The same once more is nothing new, but for what still differs.
        let again = server.take(&next, |_, _| Ok(())).unwrap_or_else(|why| panic!("{why}"));
        assert!(again.contains("new from now on: nothing; "), "{}", again);
    }

    #[test]
    fn what_is_wrong_changes_nothing() {
        let mut server = running("--pipe a=22 --authorized-keys k --dir /usr/share", false);
        let before = format!("{:?}", server.args());
        let next = settings("--pipe a=23 --pipe a=24 --authorized-keys k --dir /usr/share");
        let why = server.take(&next, |_, _| Ok(())).expect_err("two of one name");
        assert!(why.contains("`a` is both"), "{why}");
        let next = settings("--pipe a=23 --authorized-keys k --dir /nowhere-at-all");
        assert!(server.take(&next, |_, _| Ok(())).is_err());
        let file = tempfile::NamedTempFile::new().expect("a file");
        let next = settings(&format!("--config {}", file.path().display()));
        let why = server.take(&next, |_, _| Ok(())).expect_err("nothing is served");
        assert!(why.contains("nothing is served") || why.contains("--authorized-keys"), "{why}");
        let next = settings("--pipe a=23 --authorized-keys k --dir /usr/share");
        let why = server.take(&next, |_, _| Err("no".into())).expect_err("refused by the socket");
        assert_eq!(why, "no");
        assert_eq!(format!("{:?}", server.args()), before);
        assert_eq!(server.behind.permitted.borrow().address("a"), Ok(("127.0.0.1", 22)));
    }

    #[test]
    fn a_server_that_is_confined_stays_so() {
        let mut server = running("--dir / --anyone", true);
        let next = settings("--dir / --writable --pipe a=22 --anyone --max-connections 5");
        let taken = server.take(&next, |_, _| Ok(())).unwrap_or_else(|why| panic!("{why}"));
        assert!(taken.contains("new from now on: max-connections; "), "{}", taken);
        assert!(taken.contains("writable (the server is confined"), "{}", taken);
        assert!(server.args().pipe.is_empty() && !server.args().writable);
    }
}
