//! The name by which programs find the shared library: `libuts.so.0` as long as the interface
//! stays.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The number is raised when programs have to be compiled anew.
    match std::env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos") => println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libuts.0.dylib"),
        Ok("windows") | Err(_) => {}
        Ok(_) => println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libuts.so.0"),
    }
}
