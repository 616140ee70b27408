//! Copies whose content is compressed on its way.

use super::*;
use message::{Kind, Reply, Request};
use packing::{PACKED_BYTES_MAX, Packing};

fn packing() -> CopyOptions {
    CopyOptions { compress: true, ..recursive() }
}

/// A log, of which lines are much alike.
fn text(bytes: usize) -> Vec<u8> {
    (0u32..).flat_map(|i| format!("{} line {i} of a log\n", i % 77).into_bytes()).take(bytes).collect()
}

#[tokio::test]
async fn what_pays_is_compressed_and_all_comes_over_as_it_is() {
    for is_put in [true, false] {
        let rig = Rig::new();
        let source = if is_put { rig.local.join("s") } else { rig.remote.join("s") };
        fs::create_dir(&source).unwrap();
        let (long, noise) = (text(3_000_001), content(1, 700_000));
        fs::write(source.join("long"), &long).unwrap();
        fs::write(source.join("noise"), &noise).unwrap();
        fs::write(source.join("both"), [&noise[..300_000], &long[..900_000]].concat()).unwrap();
        for i in 0..200 {
            fs::write(source.join(format!("small {i}")), text(i * 100)).unwrap();
        }
        let sparse = fs::File::create(source.join("sparse")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, &long[..100_000], 5_000_000).unwrap();
        let report = if is_put {
            rig.put_with(&["s"], "copy", &packing()).await.unwrap()
        } else {
            rig.get_with(&["s"], "copy", &packing()).await.unwrap()
        };
        assert_complete(&report);
        let copy = if is_put { rig.remote.join("copy") } else { rig.local.join("copy") };
        assert_eq!(picture(&source), picture(&copy));
        assert!(report.bytes_literal > 6_000_000 && report.bytes_matched == 0, "{report:?}");
        // Of the noise hardly a byte is saved, of the rest most.
        let carried = report.bytes_carried;
        assert!((1_000_000..2_600_000).contains(&carried), "{carried}");
    }
}

/// The part that goes, and what the receiver has, say nothing of how the rest travels.
#[tokio::test]
async fn a_difference_is_compressed_too() {
    for is_put in [true, false] {
        let rig = Rig::new();
        let (source, copy) = if is_put { (&rig.local, &rig.remote) } else { (&rig.remote, &rig.local) };
        let old = content(3, 2_000_000);
        fs::write(copy.join("f"), &old).unwrap();
        fs::write(source.join("f"), [&old[..1_000_000], &text(500_000), &old[1_000_000..]].concat()).unwrap();
        let report = match is_put {
            true => rig.put_with(&["f"], "f", &packing()).await.unwrap(),
            false => rig.get_with(&["f"], "f", &packing()).await.unwrap(),
        };
        assert_complete(&report);
        assert_eq!(fs::read(copy.join("f")).unwrap(), fs::read(source.join("f")).unwrap());
        assert!(report.bytes_matched > 1_500_000, "{report:?}");
        assert_eq!(report.bytes_matched + report.bytes_literal, 2_500_000);
        assert!(report.bytes_carried < report.bytes_literal - 300_000, "{report:?}");
    }
}

#[tokio::test]
async fn streams_are_compressed() {
    let rig = Rig::new();
    let data = [text(400_000), content(5, 300_000)].concat();
    fs::write(rig.local.join("in"), &data).unwrap();
    let (flows, server) = rig.connect();
    let source = fs::File::open(rig.local.join("in")).unwrap();
    let report = put_stream(Arc::new(flows), source, b"in", &at("f"), &packing()).await.unwrap();
    server.await.unwrap().unwrap();
    assert_complete(&report);
    assert_eq!(fs::read(rig.remote.join("f")).unwrap(), data);
    assert!((300_000..450_000).contains(&report.bytes_carried), "{report:?}");
    let (flows, server) = rig.connect();
    let out = fs::File::create(rig.local.join("out")).unwrap();
    let report = get_stream(Arc::new(flows), &at("f"), out, b"out", &packing()).await.unwrap();
    server.await.unwrap().unwrap();
    assert_complete(&report);
    assert_eq!(fs::read(rig.local.join("out")).unwrap(), data);
    assert!(report.bytes_carried < 450_000, "{report:?}");
}

/// Of a file that is small, and of one that is not.
#[tokio::test]
async fn pieces_that_are_not_as_announced_are_refused() {
    let rig = Rig::new();
    let data = text(100_000);
    let packed = Packing::new(true).unwrap().pack(&data).unwrap();
    let hash = blake3::hash(&data);
    let piece = |bytes: u32, length: u32, packed: &[u8]| {
        let head = [u32::MAX - 3, bytes, length].map(u32::to_be_bytes);
        [head.as_flattened(), packed, &[0; 4], hash.as_bytes()].concat()
    };
    let (bytes, length) = (data.len() as u32, packed.len() as u32);
    let mut broken = packed.clone();
    broken[packed.len() / 2] ^= 0x55;
    for (size, content, is_taken) in [
        (data.len() as u64, piece(bytes, length, &packed), true),
        // As many as the file has, but not of that piece.
        (data.len() as u64 - 1, piece(bytes, length, &packed), false),
        (60_000, piece(60_000, length, &packed), false),
        (100_001, piece(bytes + 1, length, &packed), false),
        (100_000, piece(bytes, length, &broken), false),
        (1 << 30, piece(PACKED_BYTES_MAX as u32 + 1, length, &packed), false),
        (1 << 30, piece(u32::MAX, 20, &packed[..20]), false),
        (10, piece(10, 10, &packed[..10]), false),
        (10, piece(10, 0, b""), false),
        (10, piece(0, 0, b""), false),
    ] {
        let put = Request::Put { entry: entry(b"f", Kind::File, size), from: 0 };
        let bytes = [hostile::wire(&[put]).await, content].concat();
        let replies = hostile::answers(&rig, bytes).await;
        match is_taken {
            true => assert!(matches!(&replies[..], [Reply::Stored { .. }]), "{replies:?}"),
            false => assert!(matches!(replies.first(), Some(Reply::Fault(_))), "{size}: {replies:?}"),
        }
        assert_eq!(rig.remote.join("f").exists(), is_taken);
        let _ = fs::remove_file(rig.remote.join("f"));
    }
}

/// Small files are stored together also when they come compressed.
#[test]
fn a_small_file_that_is_here_is_not_waited_for() {
    let packed = Packing::new(true).unwrap().pack(&text(50_000)).unwrap();
    let head = [u32::MAX - 3, 50_000, packed.len() as u32].map(u32::to_be_bytes);
    let arrived = [head.as_flattened(), &packed, &[0; 36]].concat();
    assert!(crate::small::content_is_in(50_000, &arrived));
    assert!(!crate::small::content_is_in(50_000, &arrived[..arrived.len() - 1]));
    assert!(crate::small::content_is_in(5, &[&[0, 0, 0, 5][..], &[7; 5], &[0; 36]].concat()));
    assert!(!crate::small::content_is_in(5, &[&[0, 0, 0, 5][..], &[7; 5], &[0; 35]].concat()));
}
