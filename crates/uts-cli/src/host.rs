//! Facts of this host (`--host-fact`), which hold for all connections of the program, and how
//! `uts ctl` reads and changes them.

use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use uts::host::{self, HOST_NAMES, Reader, UNKNOWN};

/// Word in the place of a fact: the host is looked at.
const MEASURE: &str = "measure";

/// Names of facts begin so.
const PREFIX: &str = "host.";

/// Takes facts as advice, and begins to look at the host if that is asked for.
///
/// # Errors
/// A line that says what is wrong with a fact, and what was expected.
pub fn register(facts: &[String]) -> Result<(), String> {
    for fact in facts {
        if fact == MEASURE {
            measure();
            continue;
        }
        let wrong = |why: String| format!("--host-fact {fact}: {why}");
        let (name, value) =
            fact.split_once('=').ok_or_else(|| wrong("write NAME=VALUE, or measure".into()))?;
        let name = if name.starts_with(PREFIX) { name.to_owned() } else { format!("{PREFIX}{name}") };
        host::set(&name, value).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(())
}

/// Files of the host that were opened before the program confined itself.
static PREPARED: Mutex<Option<Reader>> = Mutex::new(None);

/// Opens what is looked at later, if that is asked for: the program is about to confine itself.
pub fn prepare(facts: &[String]) {
    if facts.iter().any(|fact| fact == MEASURE) {
        *PREPARED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Reader::open());
    }
}

/// Looks at the host each second, for as long as the program runs.
fn measure() {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    if BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    let prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut reader = prepared.unwrap_or_else(Reader::open);
    runtime.spawn(async move {
        loop {
            host::tell(reader.read());
            tokio::time::sleep(host::LOOK_EVERY).await;
        }
    });
}

/// True if a name is that of a fact of the host.
pub fn is_fact(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Sets a fact, for `uts ctl`.
///
/// # Errors
/// The fault of name or value, in one line.
pub fn set(name: &str, value: &str) -> Result<Value, String> {
    host::set(name, value).map_err(|error| error.to_string())?;
    Ok(json!({"set": name}))
}

/// The facts, for a list: the name, the value, what it means, and whether it is advice.
pub fn list() -> Value {
    let advice = host::advice().named();
    let fact = |(at, (name, value)): (usize, (&str, String))| {
        let is_advice = advice[at].1 != UNKNOWN;
        json!({"name": name, "value": value, "means": HOST_NAMES[at].1, "advice": is_advice})
    };
    host::facts().named().into_iter().enumerate().map(fact).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_given_and_listed_by_their_names() {
        register(&["memory=5".to_owned()]).expect("right");
        let listed = list();
        assert_eq!((&listed[1]["value"], &listed[1]["advice"]), (&json!("5"), &json!(true)), "{listed}");
        assert_eq!(set("host.memory", UNKNOWN), Ok(json!({"set": "host.memory"})));
        assert_eq!(list()[1]["value"], json!(UNKNOWN));
        for (fact, why) in [
            ("fan=1", "--host-fact fan=1: host.fan: there is no such fact"),
            ("battery", "--host-fact battery: write NAME=VALUE, or measure"),
            ("processor=2", "--host-fact processor=2: host.processor: `2` (expected 0 % to 100 %"),
        ] {
            let said = register(&[fact.to_owned()]).expect_err(fact);
            assert!(said.starts_with(why), "{said}");
        }
    }
}
