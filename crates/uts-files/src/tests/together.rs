//! Several copies of one file at once.

use super::*;

/// Of any number of clients, with or without keys of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_clients_send_the_same_content_to_one_name() {
    for has_keys in [false, true] {
        let rig = Arc::new(Rig::new());
        let data = content(1, 400_000);
        let copies: Vec<_> = (0..20)
            .map(|i| {
                let source = rig.local.join(format!("{i}"));
                fs::write(&source, &data).unwrap();
                set_mtime(&source, 1000, 0);
                let client = Client { key: has_keys.then(|| format!("{i}")), address: "::1".into() };
                let (flows, server) = rig.connect_as(client);
                tokio::spawn(async move {
                    let report = put(Arc::new(flows), &[source], &at("f"), &recursive()).await.unwrap();
                    server.await.unwrap().unwrap();
                    report
                })
            })
            .collect();
        let mut carried = 0;
        for copy in copies {
            let report = copy.await.unwrap();
            assert_complete(&report);
            carried += report.bytes_carried;
        }
        assert!(carried < 20 * 400_000, "nobody found it there");
        assert_eq!(fs::read(rig.remote.join("f")).unwrap(), data);
        assert_eq!(fs::read_dir(&rig.remote).unwrap().count(), 1, "nothing is left");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_copies_fetch_to_one_name() {
    let rig = Arc::new(Rig::new());
    let data = content(1, 2_000_000);
    fs::write(rig.remote.join("f"), &data).unwrap();
    let copies: Vec<_> = (0..8)
        .map(|_| {
            let rig = rig.clone();
            tokio::spawn(async move { rig.get(&["f"], "f").await.unwrap() })
        })
        .collect();
    for copy in copies {
        assert_complete(&copy.await.unwrap());
    }
    assert_eq!(fs::read(rig.local.join("f")).unwrap(), data);
    assert_eq!(fs::read_dir(&rig.local).unwrap().count(), 1, "nothing is left");
}

/// A file that was put in place over an earlier connection is neither sent nor asked about again.
#[tokio::test]
async fn a_copy_that_goes_on_over_another_connection_counts_as_one() {
    let rig = Rig::new();
    fs::create_dir(rig.local.join("d")).unwrap();
    for i in 0..40 {
        fs::write(rig.local.join(format!("d/{i}")), content(i, 50_000)).unwrap();
    }
    let mut earlier = None;
    let mut rounds = 0;
    let report = loop {
        let (flows, server) = rig.connect();
        let flows = Arc::new(cut::CutFlows::new(flows, 700_000));
        let options = CopyOptions { earlier: earlier.take(), flows: 2, ..recursive() };
        let report = put(flows, &[rig.local.join("d")], &at("copy"), &options).await.unwrap();
        server.await.unwrap().unwrap();
        rounds += 1;
        if report.broken.is_none() {
            break report;
        }
        earlier = Some(Arc::new(report));
    };
    assert_complete(&report);
    assert!((2..10).contains(&rounds), "{rounds}");
    assert_eq!((report.files_copied, report.files_already_there, report.bytes), (40, 0, 2_000_000));
    assert!(report.bytes_carried < 3_000_000, "{}", report.bytes_carried);
    // One that has changed since is.
    fs::write(rig.local.join("d/3"), content(99, 50_000)).unwrap();
    let options = CopyOptions { earlier: Some(Arc::new(report)), ..recursive() };
    assert_complete(&rig.put_with(&["d"], "copy", &options).await.unwrap());
    assert_eq!(fs::read(rig.remote.join("copy/3")).unwrap(), content(99, 50_000));
}
