//! `uts top`: a server or a tunnel that runs, followed on a terminal. All that it shows is asked of
//! the control socket, once in a while.

mod view;

use super::Failure;
use crate::args::TopArgs;
use crate::control::{Request, ask};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use uts_end::output::Output;
use view::View;

/// Time that a look at the keyboard waits: so late a thread ends that looks at it.
const KEY_WAIT: Duration = Duration::from_millis(200);

/// Keys that wait.
const KEYS_MAX: usize = 64;

/// Follows a server or a tunnel until somebody presses `q`, or it ends.
///
/// # Errors
/// See [`Failure`].
pub async fn run(args: &TopArgs) -> Result<(), Failure> {
    if !Output::Out.is_terminal() {
        let why = "standard output is no terminal; `uts ctl FILE --json` is for programs";
        return Err(Failure::Usage(why.into()));
    }
    // What is wrong with the socket is told before the terminal changes.
    let first = ask(&args.socket, &Request::List).await.map_err(Failure::Failed)?;
    let mut view = View::default();
    view.take(first, Duration::ZERO);
    let failed = |error: io::Error| Failure::Failed(format!("the terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let ended = follow(args, &mut terminal, &mut view).await;
    ratatui::try_restore().map_err(failed)?;
    match ended {
        Ok(None) => Ok(()),
        Ok(Some(why)) => Err(Failure::Failed(why)),
        Err(error) => Err(failed(error)),
    }
}

/// Draws until it is to end. Says why nothing more can be shown, if that is so.
async fn follow(
    args: &TopArgs,
    terminal: &mut DefaultTerminal,
    view: &mut View,
) -> io::Result<Option<String>> {
    let mut keys = keyboard();
    let mut ticks = interval(args.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked_at = Instant::now();
    ticks.tick().await;
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        tokio::select! {
            key = keys.recv() => match key {
                None | Some(Key::Quit) => return Ok(None),
                Some(Key::Up) => view.select(-1),
                Some(Key::Down) => view.select(1),
                Some(Key::Resized) => {}
            },
            _ = ticks.tick() => match ask(&args.socket, &Request::List).await {
                Ok(list) => {
                    let now = Instant::now();
                    view.take(list, now - asked_at);
                    asked_at = now;
                }
                Err(why) => return Ok(Some(why)),
            },
        }
    }
}

/// A wish of who sits there.
enum Key {
    Quit,
    Up,
    Down,
    Resized,
}

/// Keys that are pressed, until nobody wants them any more.
fn keyboard() -> mpsc::Receiver<Key> {
    let (sender, keys) = mpsc::channel(KEYS_MAX);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            let key = match event::poll(KEY_WAIT) {
                Ok(false) => continue,
                Ok(true) => event::read().ok(),
                Err(_) => None,
            };
            // A terminal that is gone ends it.
            let Some(key) = key else { return };
            if let Some(key) = meaning(&key)
                && sender.blocking_send(key).is_err()
            {
                return;
            }
        }
    });
    keys
}

fn meaning(event: &Event) -> Option<Key> {
    match event {
        Event::Resize(..) => Some(Key::Resized),
        Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
            KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
            KeyCode::Up | KeyCode::Char('k') => Some(Key::Up),
            KeyCode::Down | KeyCode::Char('j') => Some(Key::Down),
            _ => None,
        },
        _ => None,
    }
}
