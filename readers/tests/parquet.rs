//! Tables of the laboratory as Parquet, read by its reader.

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::json;
use std::fs::{self, File};
use std::path::Path;
use uts_record::FORMAT;
use uts_record::directory::Directory;
use uts_record::measures::{self, About, MEASURES_FILE};
use uts_record::parquet::write;
use uts_record::plan::{PLAN_FILE, Plan, PlannedRun, Sweep};
use uts_record::run::{Figure, RunFile};
use uts_record::samples::Samples;

/// Two runs, of which the second is compressed and has no window, and a third that is damaged.
fn experiment(path: &Path) {
    let directory = Directory::open(path).unwrap();
    let sweep =
        |name: &str, numeric| Sweep { name: name.into(), key: None, unit: None, numeric, values: Vec::new() };
    let run = |id: &str| PlannedRun { id: id.into(), ..PlannedRun::default() };
    let plan = Plan {
        format: FORMAT,
        sweeps: vec![sweep("loss", true), sweep("kind", false)],
        runs: vec![run("a"), run("b"), run("c")],
        ..Plan::default()
    };
    directory.replace(PLAN_FILE, &plan.to_json().unwrap()).unwrap();
    let mut figures = measures::Writer::new(false, ["loss", "kind"]);
    for id in ["a", "b"] {
        let mut samples = Samples::default();
        samples.add_queue("wan forward", 0.25, 3, 4500, None);
        samples.add_queue("wan forward", 0.5, 4, 6000, Some(1.5));
        if id == "a" {
            samples.add_change("wan both", 0.75, "loss=ge:0.05,4");
        }
        samples.write(&directory.begin(id).unwrap().join("samples")).unwrap();
        if id == "b" {
            directory.compress(id).unwrap();
        }
        let file = json!({ "format": FORMAT, "id": id, "status": "ok", "case": {} });
        directory.finish(&serde_json::from_value::<RunFile<serde_json::Value>>(file).unwrap()).unwrap();
        let sweeps = ["0.5".to_owned(), if id == "a" { "x".to_owned() } else { String::new() }];
        let about = About { run: id, sweeps: &sweeps, seed: u64::MAX, is_valid: true, ..About::default() };
        figures.line(&about, &Figure::new("", "goodput", if id == "a" { 1.5e6 } else { f64::NAN }, "1"));
    }
    directory.replace(MEASURES_FILE, &figures.into_bytes()).unwrap();
    // The directory is let go of with `directory`.
    let damaged = directory.begin("c").unwrap();
    fs::rename(&damaged, directory.run("c")).unwrap();
}

fn rows(path: &Path) -> Vec<Vec<(String, Field)>> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| row.unwrap().into_columns()).collect()
}

#[test]
fn the_tables_of_all_runs_are_one_each() {
    let dir = tempfile::tempdir().unwrap();
    let (from, out) = (dir.path().join("from"), dir.path().join("a/b"));
    experiment(&from);
    let written = write(&from, &out).unwrap();
    let names: Vec<_> = written
        .files
        .iter()
        .map(|(path, rows)| (path.file_name().unwrap().to_str().unwrap().to_owned(), *rows))
        .collect();
    let expected = [("measures.parquet", 2), ("queue.parquet", 4), ("changes.parquet", 1)];
    assert_eq!(names, expected.map(|(name, rows)| (name.to_owned(), rows)));
    assert_eq!(written.damaged.keys().collect::<Vec<_>>(), ["c"]);
    let named = |name: &str, field| (name.to_owned(), field);
    let text = |text: &str| Field::Str(text.to_owned());
    let queue = |run, t_s, packets, bytes, sojourn| {
        vec![
            named("run", text(run)),
            named("t_s", Field::Double(t_s)),
            named("link", text("wan forward")),
            named("packets", Field::Double(packets)),
            named("bytes", Field::Double(bytes)),
            named("sojourn_ms", sojourn),
        ]
    };
    let of =
        |run| [queue(run, 0.25, 3.0, 4500.0, Field::Null), queue(run, 0.5, 4.0, 6000.0, Field::Double(1.5))];
    assert_eq!(rows(&out.join("queue.parquet")), [of("a"), of("b")].concat());
    let measures = rows(&out.join("measures.parquet"));
    let field = |row: usize, name: &str| {
        measures[row].iter().find(|(column, _)| column == name).map(|(_, field)| field.clone()).unwrap()
    };
    assert_eq!((field(0, "loss"), field(0, "kind")), (Field::Double(0.5), text("x")));
    assert_eq!((field(0, "value"), field(0, "seed")), (Field::Double(1.5e6), Field::ULong(u64::MAX)));
    assert_eq!((field(1, "value"), field(1, "kind")), (Field::Null, Field::Null));
    assert_eq!((field(0, "valid"), field(0, "flow")), (Field::Bool(true), Field::Null));
    let left = |dir: &Path| fs::read_dir(dir).unwrap().count();
    assert_eq!(left(&out), 3, "nothing half-written is left");
    // A second time all is replaced.
    write(&from, &out).unwrap();
    assert_eq!((left(&out), rows(&out.join("queue.parquet")).len()), (3, 4));
}

/// More rows than are in memory at a time.
#[test]
fn many_rows_are_written_in_groups() {
    let dir = tempfile::tempdir().unwrap();
    experiment(dir.path());
    let count = 150_000;
    let lines: String = (0..count).map(|n| format!("{n},f,{}\n", n * 2)).collect();
    let text = format!("t_s,flow,delivered_bytes\n{lines}");
    fs::write(dir.path().join("runs/a/samples/goodput.csv"), text).unwrap();
    let out = dir.path().join("parquet");
    write(dir.path(), &out).unwrap();
    let path = out.join("goodput.parquet");
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    assert!(reader.num_row_groups() > 1);
    let rows = rows(&path);
    let last = &rows[count - 1];
    assert_eq!(rows.len(), count);
    assert_eq!(last[3], ("delivered_bytes".to_owned(), Field::Double((count as f64 - 1.0) * 2.0)));
}

#[test]
fn what_is_wrong_has_a_file_and_a_line_and_leaves_nothing_half_written() {
    let dir = tempfile::tempdir().unwrap();
    experiment(dir.path());
    let text = "t_s,flow,delivered_bytes\n1,f,2\nnow,f,3\n";
    fs::write(dir.path().join("runs/a/samples/goodput.csv"), text).unwrap();
    let out = dir.path().join("parquet");
    let wrong = format!("{:#}", write(dir.path(), &out).unwrap_err());
    assert!(wrong.ends_with("goodput.csv:3: t_s: `now` is not a number"), "{wrong}");
    let left = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(left.into_iter().all(|name| name.ends_with(".parquet") && name != "goodput.parquet"));
    assert!(write(&dir.path().join("nothing"), &out).is_err());
}

/// A directory that a process writes is let alone.
#[test]
fn an_experiment_that_runs_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    experiment(dir.path());
    let _held = Directory::open(dir.path()).unwrap();
    let said = format!("{:#}", write(dir.path(), &dir.path().join("parquet")).unwrap_err());
    assert!(said.contains("another process runs the experiment"), "{said}");
}

/// Each column of each table, as docs/lab.md lists them, is of text or of numbers.
#[test]
fn columns_of_text_are_text() {
    let texts = ["flow", "kind", "end", "link", "line", "change"];
    let page = include_str!("../../docs/lab.md");
    let tables = page.lines().filter_map(|line| {
        let mut cells = line.split('|').map(|cell| cell.trim().trim_matches('`'));
        let (file, columns) = (cells.nth(1)?, cells.next()?);
        (file.ends_with(".csv") && columns.starts_with("t_s,")).then_some((file, columns))
    });
    let dir = tempfile::tempdir().unwrap();
    experiment(dir.path());
    let mut names = Vec::new();
    for (file, columns) in tables {
        let row: Vec<&str> =
            columns.split(',').map(|column| if texts.contains(&column) { "x" } else { "0.5" }).collect();
        let text = format!("{columns}\n{}\n", row.join(","));
        fs::write(dir.path().join("runs/b/samples").join(file), text).unwrap();
        names.push(file.to_owned());
    }
    assert_eq!(names.len(), 8, "{names:?}");
    let out = dir.path().join("parquet");
    write(dir.path(), &out).unwrap();
    for name in names {
        let rows = rows(&out.join(name).with_extension("parquet"));
        for (column, field) in &rows[rows.len() - 1][1..] {
            let is_text = matches!(field, Field::Str(_));
            assert_eq!(is_text, texts.contains(&column.as_str()), "{column}: {field:?}");
        }
    }
}
