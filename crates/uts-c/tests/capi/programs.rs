//! The examples, as compilers for C see them, and as they run.

use super::library;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// `uplink`, a client of `uts serve`, is run beside that: `uts-cli/tests/all/clients.rs`.
const EXAMPLES: [&str; 4] = ["echo", "media", "send_file", "uplink"];

const FLAGS: &[&str] = &["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Whether a compiler is here, and takes these flags.
fn has(compiler: &str, flags: &[&str]) -> bool {
    let dir = tempfile::tempdir().expect("a folder");
    let source = dir.path().join("probe.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("written");
    let probed =
        Command::new(compiler).args(flags).arg(&source).arg("-o").arg(dir.path().join("probe")).output();
    probed.is_ok_and(|probed| probed.status.success())
}

/// Compiles an example. It finds the library beside itself, by the name that programs know.
fn compile(compiler: &str, flags: &[&str], example: &str, to: &Path) {
    let shared = library().join("libuts_c.so");
    assert!(shared.exists(), "there is no {}", shared.display());
    let done = Command::new(compiler)
        .args(FLAGS)
        .args(flags)
        .arg("-I")
        .arg(folder().join("include"))
        .arg(folder().join("examples").join(example).with_extension("c"))
        .arg(shared)
        .arg("-Wl,-rpath,$ORIGIN")
        .arg("-o")
        .arg(to)
        .output()
        .expect("a compiler");
    assert!(done.status.success(), "{compiler} {example}: {}", String::from_utf8_lossy(&done.stderr));
}

/// An end that waits for its peer. It is ended with the test.
struct Server(Child, BufReader<ChildStdout>, String);

impl Server {
    /// Starts it, and takes the line with its address and its key.
    fn start(program: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(program).args(args).stdout(Stdio::piped()).spawn().expect("started");
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        Server(child, out, line)
    }

    fn address_and_key(&self) -> (&str, &str) {
        self.2.trim().split_once(' ').expect("address and key")
    }

    /// What it says until it ends.
    fn rest(mut self) -> String {
        let mut rest = String::new();
        self.1.read_to_string(&mut rest).expect("its words");
        assert!(self.0.wait().expect("it ends").success(), "{rest}");
        rest
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(program: &Path, args: &[&str]) -> String {
    let done = Command::new(program).args(args).output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{args:?}: {said}");
    assert!(!said.contains("Sanitizer"), "{said}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn run_echo(dir: &Path) {
    let echo = dir.join("echo");
    let server = Server::start(&echo, &["serve", "127.0.0.1:0"]);
    let (address, key) = server.address_and_key();
    let long = "a longer text ".repeat(5000);
    for text in ["hello", &long, "once more"] {
        assert_eq!(run(&echo, &["send", address, key, text]), format!("{text}\n"));
    }
    // Another key, of the same form.
    let other: String = key
        .chars()
        .enumerate()
        .map(|(at, c)| {
            if at != 12 {
                c
            } else if c == 'h' {
                'i'
            } else {
                'h'
            }
        })
        .collect();
    let refused = Command::new(&echo).args(["send", address, &other, "x"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("UTS_EUNTRUSTED") && said.contains(key), "{said}");
}

fn run_send_file(dir: &Path) {
    let (program, from, to) = (dir.join("send_file"), dir.join("from"), dir.join("to"));
    let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(&from, &content).expect("written");
    let server = Server::start(&program, &["receive", "127.0.0.1:0", to.to_str().expect("UTF-8")]);
    let (address, key) = server.address_and_key();
    let said = run(&program, &["send", address, key, from.to_str().expect("UTF-8")]);
    assert!(said.starts_with("sent 3"), "{said}");
    assert_eq!(server.rest(), "received 3000000 bytes\n");
    assert!(std::fs::read(&to).expect("read") == content);
}

fn run_media(dir: &Path) {
    let program = dir.join("media");
    let server = Server::start(&program, &["receive", "127.0.0.1:0"]);
    let (address, key) = server.address_and_key();
    let said = run(&program, &["send", address, key, "25", "500ms"]);
    assert!(said.starts_with("25 frames, "), "{said}");
    let came = server.rest();
    let frames: u32 = came.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    assert!((1..=25).contains(&frames), "{came}");
}

fn compile_and_run(compiler: &str, flags: &[&str]) {
    let dir = tempfile::tempdir().expect("a folder");
    let shared = library().join("libuts_c.so");
    std::os::unix::fs::symlink(shared, dir.path().join("libuts.so.0")).expect("a link");
    for example in EXAMPLES {
        compile(compiler, flags, example, &dir.path().join(example));
    }
    run_echo(dir.path());
    run_send_file(dir.path());
    run_media(dir.path());
}

#[test]
fn no_example_goes_untested() {
    let found = std::fs::read_dir(folder().join("examples")).expect("a folder");
    let mut found: Vec<String> =
        found.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    found.sort();
    assert_eq!(found, EXAMPLES.map(|name| format!("{name}.c")));
}

#[test]
fn examples_run_as_gcc_compiles_them() {
    if !has("gcc", FLAGS) {
        eprintln!("skipped: there is no gcc");
        return;
    }
    compile_and_run("gcc", &[]);
}

#[test]
fn examples_run_as_clang_compiles_them() {
    if !has("clang", FLAGS) {
        eprintln!("skipped: there is no clang");
        return;
    }
    compile_and_run("clang", &[]);
}

/// With what looks for misuse of memory, leaks included.
#[test]
fn examples_run_under_address_sanitizer() {
    let Some(compiler) = ["clang", "gcc"].into_iter().find(|compiler| has(compiler, &["-fsanitize=address"]))
    else {
        eprintln!("skipped: there is no compiler with AddressSanitizer");
        return;
    };
    compile_and_run(compiler, &["-fsanitize=address"]);
}

/// What is installed is found by `pkg-config`, and by a program that was compiled with it.
#[test]
fn a_program_finds_what_is_installed() {
    let pkg_config = || Command::new("pkg-config");
    if !has("gcc", FLAGS) || !pkg_config().arg("--version").output().is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: there is no gcc, or no pkg-config");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let installed = Command::new(folder().join("../../scripts/c-library"))
        .env("UTS_C_FROM", library())
        .env("UTS_PROFILE", "dev")
        .env("PREFIX", dir.path())
        .env_remove("DESTDIR")
        .output()
        .expect("it runs");
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let said = pkg_config()
        .args(["--cflags", "--libs", "uts"])
        .env("PKG_CONFIG_PATH", dir.path().join("lib/pkgconfig"))
        .output()
        .expect("it runs");
    let said = String::from_utf8(said.stdout).expect("text");
    let program = dir.path().join("echo");
    let source = folder().join("examples/echo.c");
    let mut compile = Command::new("gcc");
    compile.args(FLAGS).arg(source).args(said.split_whitespace()).arg("-o").arg(&program);
    let done = compile.output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let without = Command::new(&program).output().expect("it runs");
    let told =
        Command::new(&program).env("LD_LIBRARY_PATH", dir.path().join("lib")).output().expect("it runs");
    assert!(
        String::from_utf8_lossy(&without.stderr).contains("libuts.so.0"),
        "its name is that of the interface"
    );
    assert!(String::from_utf8_lossy(&told.stderr).starts_with("usage: "));
}

/// A program in C++ may include the header, too.
#[test]
fn the_header_is_one_for_cpp() {
    if !has("g++", &["-x", "c++"]) {
        eprintln!("skipped: there is no g++");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let source = dir.path().join("probe.cpp");
    std::fs::write(&source, "#include <uts.h>\nint main() { return uts_version() == nullptr; }\n")
        .expect("written");
    let flags = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"];
    let done = Command::new("g++").args(flags).arg("-I").arg(folder().join("include")).arg(&source).output();
    let done = done.expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
