//! A headless Chromium, controlled over a pipe in the DevTools protocol. A test can wait for what a
//! page does, and hears of every error in it.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time that an answer may take, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// A page of a browser; both end when it is dropped.
pub struct Page {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    last: u64,
    /// Exceptions, failed assertions and violations of the page's own policy so far.
    pub errors: Vec<String>,
    _profile: TempDir,
}

/// Where a browser is, if there is one.
pub fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name))).find(|p| p.is_file())
}

/// The browser; without one, says so.
pub fn installed_or_say() -> Option<PathBuf> {
    let browser = installed();
    if browser.is_none() {
        crate::skip::say("no chromium is here (Debian: apt install chromium)");
    }
    browser
}

impl Page {
    /// Opens a file and waits until it is loaded.
    pub fn open(browser: &Path, file: &Path) -> Page {
        Page::visit(browser, &format!("file://{}", file.display()))
    }

    /// Opens an address and waits until it is loaded.
    pub fn visit(browser: &Path, address: &str) -> Page {
        let profile = tempfile::tempdir().unwrap();
        // The protocol is on descriptors 3 and 4, which a shell can make of standard input and
        // output.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null"])
            .arg(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
            .args(["--remote-debugging-pipe", "--window-size=1400,2400"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                if sender.send(serde_json::from_slice(&message).unwrap_or_default()).is_err() {
                    return;
                }
            }
        });
        let mut page =
            Page { child, input, messages, session: None, last: 0, errors: Vec::new(), _profile: profile };
        let target = page.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached =
            page.call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        page.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        let id = page.send("Page.navigate", json!({"url": address}));
        page.wait(|message| message["method"] == "Page.loadEventFired", id);
        page
    }

    /// The value that an expression has, or that it promises.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Waits until an expression holds.
    pub fn until(&mut self, expression: &str) {
        let began = Instant::now();
        while self.value(&format!("Boolean({expression})")) != true {
            assert!(began.elapsed() < PATIENCE, "{expression} does not hold; {:?}", self.errors);
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Presses a key, as `Tab`.
    pub fn press(&mut self, key: &str, code: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Shows the page in a window of another size.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        let id = self.send(method, parameters);
        self.wait(|message| message["id"] == id, id)["result"].clone()
    }

    fn send(&mut self, method: &str, parameters: Value) -> u64 {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).unwrap();
        self.last
    }

    /// Takes messages until the awaited one. Errors of the page are kept. An error about `id` is
    /// fatal.
    fn wait(&mut self, is_it: impl Fn(&Value) -> bool, id: u64) -> Value {
        loop {
            let message = self.messages.recv_timeout(PATIENCE).expect("the browser is silent");
            let parameters = &message["params"];
            match message["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" => self.errors.push(parameters["exceptionDetails"].to_string()),
                "Log.entryAdded" if parameters["entry"]["level"] == "error" => {
                    self.errors.push(parameters["entry"]["text"].to_string());
                }
                "Runtime.consoleAPICalled"
                    if matches!(parameters["type"].as_str(), Some("error" | "assert")) =>
                {
                    self.errors.push(parameters["args"].to_string());
                }
                _ => {}
            }
            assert!(message["id"] != id || message["error"].is_null(), "{}", message["error"]);
            if is_it(&message) {
                return message;
            }
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.session = None;
        // It ends its own helpers if it is asked to. A test that failed half-way must not hang
        // here.
        let _ = self.input.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
