//! Looks for the libraries of the system that some rivals need, and leaves out the rivals whose
//! library is missing.

/// A library: its name for pkg-config, the oldest version that will do, and the file in
/// `src/native` that reads its structures.
const LIBRARIES: [(&str, &str, &str); 2] = [("srt", "1.4.2", "srt"), ("libenet", "1.3.13", "enet")];

/// Packages that are rivals: their versions are shown.
const PACKAGES: [&str; 2] = ["quinn", "s2n-quic"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=Cargo.lock");
    // Nothing else tells cargo that a library was installed; the Makefile says here what there is.
    println!("cargo::rerun-if-env-changed=RIVAL_LIBRARIES");
    for package in PACKAGES {
        let name = package.to_uppercase().replace('-', "_");
        println!("cargo::rustc-env=RIVAL_{name}_VERSION={}", locked_version(package));
    }
    for (library, oldest, name) in LIBRARIES {
        println!("cargo::rustc-check-cfg=cfg(has_{name})");
        let source = format!("src/native/{name}.c");
        println!("cargo::rerun-if-changed={source}");
        // The library is linked after the archive of our own file, which refers to it.
        match pkg_config::Config::new().atleast_version(oldest).cargo_metadata(false).probe(library) {
            Ok(found) => {
                let mut build = cc::Build::new();
                build.file(&source).includes(&found.include_paths).warnings(true);
                if let Err(error) = build.try_compile(&format!("rival_{name}")) {
                    leave_out(name, &format!("{source} does not compile: {error}"));
                    continue;
                }
                for path in &found.link_paths {
                    println!("cargo::rustc-link-search=native={}", path.display());
                }
                for library in &found.libs {
                    println!("cargo::rustc-link-lib={library}");
                }
                println!("cargo::rustc-cfg=has_{name}");
            }
            Err(error) => leave_out(name, &reason(&error, library, oldest)),
        }
    }
}

/// The version of a package in Cargo.lock.
fn locked_version(package: &str) -> String {
    let lock = std::fs::read_to_string("Cargo.lock").expect("Cargo.lock");
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name).skip(1);
    let version = lines.next().and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    version.unwrap_or_else(|| panic!("Cargo.lock has no version of {package}")).to_owned()
}

fn reason(error: &pkg_config::Error, library: &str, oldest: &str) -> String {
    match error {
        pkg_config::Error::Command { .. } => "pkg-config cannot be run".into(),
        _ => format!("pkg-config finds no {library} {oldest} or later"),
    }
}

/// What `list` will say of it.
fn leave_out(name: &str, why: &str) {
    let why = why.lines().next().unwrap_or_default();
    println!("cargo::rustc-env=RIVAL_{}_MISSING={why}", name.to_uppercase());
}
