#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| uts_fuzz::group(data));
