//! `uts-lab live` as a program, and its page in a browser.

use crate::browser::{self, Page};
use crate::running::Running;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use uts_path::PathConfig;
use uts_router::TestbedConfig;

const TAB: u32 = 9;
const PAGE_UP: u32 = 33;

fn live(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
    command.arg("live").args(arguments);
    command
}

/// A running program, and the address that it prints.
fn started(arguments: &[&str]) -> (Running, String) {
    let mut child = live(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let Some(address) = line.strip_prefix("Open this address in a browser: ") else {
        let mut why = String::new();
        let _ = child.stderr.take().unwrap().read_to_string(&mut why);
        panic!("it printed {line:?}: {why}");
    };
    let address = address.trim().to_owned();
    (Running(child), address)
}

/// Whether the kernel's TCP can stand beside; says why not.
fn has_tcp() -> bool {
    let program = Some(env!("CARGO_BIN_EXE_uts-lab").into());
    let config = TestbedConfig { program, ..TestbedConfig::point_to_point(PathConfig::default()) };
    let lacking = uts_router::doctor_with(&config).into_iter().find(|check| check.required && !check.ok);
    if let Some(check) = &lacking {
        crate::skip::say(&format!("{}: {}", check.name, check.why));
    }
    lacking.is_none()
}

/// Waits until all that is carried arrives, on both sides.
fn carries(page: &mut Page) {
    for id in ["file0", "file1", "voice0", "voice1", "keys0", "keys1"] {
        page.until(&format!("document.getElementById('{id}').textContent != '–'"));
    }
}

#[test]
fn a_path_is_moved_in_a_browser_and_an_exchange_appears() {
    let Some(browser) = browser::installed_or_say() else { return };
    let arguments: &[&str] = if has_tcp() { &[] } else { &["--no-tcp"] };
    let (_live, address) = started(arguments);
    let mut page = Page::visit(&browser, &address);
    carries(&mut page);
    // By keys alone: the slider of loss, some steps up.
    page.value("document.getElementById('k-loss').focus()");
    (0..7).for_each(|_| page.press("PageUp", PAGE_UP));
    page.until("document.querySelector('#log > .moved')?.textContent.includes('loss')");
    let said = page.value("document.getElementById('k-loss').getAttribute('aria-valuetext')");
    assert!(said.as_str().is_some_and(|words| words.ends_with(" %") && words != "0 %"), "{said}");
    // Exchanges are listed with the latest first: one has come since.
    page.until("document.querySelector('#log > :is(.asked, .agreed, .brought):has(~ .moved) dt')");
    let entry = page.value("document.querySelector('#log > :is(.asked, .agreed, .brought)').textContent");
    let entry = entry.as_str().unwrap();
    assert!(entry.contains("saw") && entry.contains("changed"), "{entry}");
    // A preset moves all sliders, and the stack is told with reasons.
    page.value("[...document.querySelectorAll('#presets button')].at(-1).click()");
    page.until("document.getElementById('v-rate').textContent == '2 Mbit/s'");
    let functions = uts_functions::Function::COUNT;
    page.until(&format!("document.querySelectorAll('#tiles li').length == {functions}"));
    page.until("document.querySelector('#tiles .reason').textContent.startsWith('For this path: ')");
    // Other requirements lead to other mechanisms, whatever the path.
    page.value("document.querySelector('#asks input[value=interactive]').click()");
    page.until(
        "[...document.querySelectorAll('#tiles .mechanism')].some(m => m.textContent == 'piggybacked')",
    );
    page.value("document.querySelector('#traffics input[value=voice]').click()");
    page.until("document.getElementById('tiles').textContent.includes('messages')");
    page.until("document.getElementById('foretold').textContent.includes('within 150 ms')");
    assert_eq!(page.errors, Vec::<String>::new());
}

#[test]
fn the_page_suits_people_and_stays_by_itself() {
    let Some(browser) = browser::installed_or_say() else { return };
    let (_live, address) = started(&["--no-tcp"]);
    let mut page = Page::visit(&browser, &address);
    carries(&mut page);
    let why = page.value("document.getElementById('why').textContent");
    assert!(why.as_str().is_some_and(|why| why.contains("--no-tcp")), "it says why TCP is not there: {why}");
    // A screen reader hears names, and what is decided.
    let nameless = "[...document.querySelectorAll('input')].filter(input => !input.labels.length).length";
    assert_eq!(page.value(nameless), 0);
    assert_eq!(page.value("document.getElementById('log').getAttribute('aria-live')"), "polite");
    page.until("document.getElementById('voice').getAttribute('aria-label').includes('%')");
    // Keys reach everything, in the order of reading.
    page.value("document.body.focus()");
    let mut reached = Vec::new();
    for _ in 0..16 {
        page.press("Tab", TAB);
        let at = page.value("document.activeElement.id || document.activeElement.parentElement.id || document.activeElement.name");
        reached.push(at.as_str().unwrap_or_default().to_owned());
    }
    let order =
        ["theme", "presets", "k-rate", "k-delay", "k-loss", "k-burst", "k-queue", "log", "asks", "traffic"];
    let mut rest = reached.iter();
    for wanted in order {
        assert!(rest.any(|at| at == wanted), "{wanted} is not next in {reached:?}");
    }
    // Whatever the screen, nothing lies beside it.
    for (width, height) in [(1920, 1080), (1280, 720), (390, 844)] {
        page.resize(width, height);
        page.until("document.documentElement.scrollWidth <= innerWidth");
    }
    // Light and dark differ, and both can be had.
    let ground = "getComputedStyle(document.body).backgroundColor";
    let before = page.value(ground);
    page.value("document.getElementById('theme').click()");
    assert_ne!(page.value(ground), before);
    let foreign =
        "performance.getEntriesByType('resource').filter(r => !r.name.startsWith(location.href)).length";
    assert_eq!(page.value(foreign), 0);
    assert_eq!(page.errors, Vec::<String>::new());

    // A page of another origin neither reads nor moves anything.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("other.html");
    std::fs::write(&file, "<!doctype html><title>other</title>").unwrap();
    let mut other = Page::open(&browser, &file);
    let body = r#"{"rate":1,"delay":9,"loss":9,"burst":9,"queue":99}"#;
    let tries = format!(
        "Promise.allSettled([
            fetch('{address}path', {{ method: 'POST', mode: 'no-cors', body: '{body}' }}),
            fetch('{address}path', {{ method: 'POST', headers: {{ 'Content-Type': 'application/json' }}, body: '{body}' }}),
            fetch('{address}events').then(answer => answer.text()),
            new Promise((_, no) => {{ new EventSource('{address}events').onerror = no; }}),
        ]).then(all => all.slice(1).every(one => one.status == 'rejected'))"
    );
    assert_eq!(other.value(&tries), true);
    assert_eq!(page.value("document.querySelector('#log > .moved')"), serde_json::Value::Null);
    assert_eq!(page.value("document.getElementById('v-burst').textContent"), "1 packet");
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = live(&["--no-tcp", "--port", &port]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("cannot listen at 127.0.0.1:{port}: ")), "{said}");
}

#[test]
fn a_signal_ends_it_with_all_that_it_has_started() {
    let (mut live, address) = started(&["--no-tcp"]);
    assert!(address.starts_with("http://127.0.0.1:"), "{address}");
    let pid = live.0.id();
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::TERM).unwrap();
    live.0.wait().unwrap();
    let left = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).filter(|entry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&format!("UTS_END_PARENT={pid}\0"))
    });
    assert_eq!(left.count(), 0, "ends are left");
}
