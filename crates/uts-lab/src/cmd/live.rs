//! `uts-lab live`, and the ends that it starts.

use super::print_line;
use anyhow::{Context, Result};
use clap::Args;
use std::sync::atomic::Ordering;
use std::time::Duration;
use uts_end::signals;
use uts_live::knobs::Knobs;
use uts_live::{Live, LiveConfig, World};

/// Move a path on a page in the browser, and see what UTS and TCP make of it
///
/// Serves one page on loopback, and prints its address. Sliders move the rate, delay, loss, bursts
/// and queue of an emulated path. A file, a voice and keystrokes go over it by UTS and by the
/// kernel's TCP, side by side. The page shows what arrives, each exchange as it is decided, the
/// stack of mechanisms, and what the selector would choose. TCP needs network namespaces (`doctor`
/// says whether they are permitted); without them UTS stands beside UTS that keeps its first
/// profiles. Who has the address may move the path: it has a secret in it. Ends at Ctrl-C.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Port of the page on 127.0.0.1 [default: a free one]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Do without network namespaces, and without TCP
    #[arg(long)]
    no_tcp: bool,
    /// Seed of the path's random decisions
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Time within which a signal is noticed.
const NOTICE: Duration = Duration::from_millis(50);

/// Serves, until a signal.
///
/// # Errors
/// The port is taken, or the hosts cannot be made.
pub fn run(arguments: &Arguments) -> Result<()> {
    let stop = signals::end_flag().context("cannot catch signals")?;
    let world = match arguments.no_tcp {
        true => World::Relay("--no-tcp".to_owned()),
        false => World::of_this_machine(),
    };
    if let World::Relay(why) = &world {
        super::tell_line(format_args!("compared with a fixed profile, and not with TCP: {why}"));
    }
    let command = vec!["live-end".to_owned()];
    let live = Live::start(LiveConfig {
        port: arguments.port,
        seed: arguments.seed,
        knobs: Knobs::default(),
        world,
        program: std::env::current_exe().context("cannot find this program")?,
        command,
    })?;
    print_line(&format!("Open this address in a browser: {}", live.url()))?;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(NOTICE);
    }
    Ok(())
}

/// Runs an end.
///
/// # Errors
/// See [`uts_live::end::run`].
pub fn end(arguments: &uts_live::end::EndArguments) -> Result<()> {
    uts_live::end::run(arguments)
}
