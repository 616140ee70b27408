//! From and to standard input, output and pipes.

use super::*;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

fn pipe() -> (fs::File, fs::File) {
    let (read, write) = std::io::pipe().unwrap();
    (OwnedFd::from(read).into(), OwnedFd::from(write).into())
}

async fn put_from(rig: &Rig, source: fs::File, to: &str) -> Result<Report, FileError> {
    let (flows, server) = rig.connect();
    let report = put_stream(Arc::new(flows), source, b"standard input", &at(to), &recursive()).await;
    server.await.unwrap().unwrap();
    report
}

#[tokio::test]
async fn a_pipe_becomes_a_file_and_a_file_goes_to_a_pipe() {
    let rig = Rig::new();
    let data = content(1, 3_000_001);
    let (source, mut end) = pipe();
    let feeding = std::thread::spawn({
        let data = data.clone();
        move || data.chunks(70_001).for_each(|chunk| end.write_all(chunk).unwrap())
    });
    let report = put_from(&rig, source, "f").await.unwrap();
    feeding.join().unwrap();
    assert_complete(&report);
    assert_eq!((report.files_copied, report.bytes, report.bytes_carried), (1, 3_000_001, 3_000_001));
    assert_eq!(fs::read(rig.remote.join("f")).unwrap(), data);
    assert_eq!(fs::read_dir(&rig.remote).unwrap().count(), 1, "nothing is left");

    let (mut end, out) = pipe();
    let draining = std::thread::spawn(move || {
        let mut all = Vec::new();
        end.read_to_end(&mut all).unwrap();
        all
    });
    let (flows, server) = rig.connect();
    let report = get_stream(Arc::new(flows), &at("f"), out, b"standard output", &recursive()).await.unwrap();
    server.await.unwrap().unwrap();
    assert_complete(&report);
    assert_eq!(draining.join().unwrap(), data);
}

#[tokio::test]
async fn an_empty_stream_is_an_empty_file() {
    let rig = Rig::new();
    let (source, _) = pipe();
    assert_complete(&put_from(&rig, source, "f").await.unwrap());
    assert_eq!(fs::read(rig.remote.join("f")).unwrap(), b"");
}

#[tokio::test]
async fn a_stream_that_cannot_be_stored_is_not_read_to_its_end() {
    let rig = Rig::with(ServeOptions { read_only: true, ..ServeOptions::default() });
    let (source, mut end) = pipe();
    end.write_all(b"and then nothing, for ever").unwrap();
    let report = put_from(&rig, source, "f").await.unwrap();
    assert_eq!(report.failures[0].1.fault().unwrap().kind, FaultKind::ReadOnly);
    drop(end);
    let rig = Rig::new();
    fs::create_dir(rig.remote.join("d")).unwrap();
    for to in ["d", "d/", "new/"] {
        let error = put_from(&rig, pipe().0, to).await.unwrap_err().to_string();
        assert!(error.contains("name the file"), "{error}");
    }
}

#[tokio::test]
async fn of_a_stream_that_is_cut_off_nothing_stays() {
    let rig = Rig::new();
    let (source, mut end) = pipe();
    std::thread::spawn(move || {
        let block = content(1, 100_000);
        while end.write_all(&block).is_ok() {}
    });
    let (flows, server) = rig.connect();
    let flows = Arc::new(cut::CutFlows::new(flows, 1_000_000));
    put_stream(flows, source, b"-", &at("f"), &recursive()).await.unwrap_err();
    server.await.unwrap().unwrap();
    assert_eq!(fs::read_dir(&rig.remote).unwrap().count(), 0);
}

#[tokio::test]
async fn an_output_that_is_gone_is_a_failure() {
    let rig = Rig::new();
    fs::write(rig.remote.join("f"), content(1, 1_000_000)).unwrap();
    let (end, out) = pipe();
    drop(end);
    let (flows, server) = rig.connect();
    let report = get_stream(Arc::new(flows), &at("f"), out, b"standard output", &recursive()).await.unwrap();
    server.await.unwrap().unwrap();
    assert!(report.failures[0].1.to_string().contains("standard output"), "{:?}", report.failures);
}
