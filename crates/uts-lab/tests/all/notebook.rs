//! The notebook of `experiments/`: its cells run one after another.

use crate::skip;
use std::path::Path;
use std::process::Command;

#[test]
fn the_cells_of_the_notebook_run() {
    let has_pandas = Command::new("python3").args(["-c", "import pandas"]).output();
    if !has_pandas.is_ok_and(|output| output.status.success()) {
        return skip::say("no python3 with pandas");
    }
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let text = std::fs::read_to_string(experiments.join("loss.ipynb")).unwrap();
    let notebook: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut program = String::new();
    for cell in notebook["cells"].as_array().unwrap() {
        assert!(cell["outputs"].as_array().is_none_or(Vec::is_empty), "outputs are not kept");
        if cell["cell_type"] == "code" {
            cell["source"].as_array().unwrap().iter().for_each(|line| program += line.as_str().unwrap());
            program += "\n";
        }
    }
    program += "assert list(table.columns) == ['uts'] and (table.uts > 1).all(), table\n";
    let out = tempfile::tempdir().unwrap();
    let output = Command::new("python3")
        .args(["-c", &program])
        .current_dir(experiments)
        .env("UTS_LAB", env!("CARGO_BIN_EXE_uts-lab"))
        .env("LAB_OUT", out.path().join("loss"))
        .env("LAB_ONLY", "repetition=1 loss=0.01")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
