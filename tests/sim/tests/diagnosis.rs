//! Each rule of the diagnosis, provoked by its fault in a whole rack, with the texts that an
//! operator sees. The texts are in `golden/diagnosis.txt`; `TRIVET_WRITE_SNAPSHOTS=1` writes
//! them again. `TRIVET_DIAGNOSED_FAULT=CableOut` prints the run of one fault line by line.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use trivet_rack::story::rules;
use trivet_tests_sim::{DIAGNOSED_FAULTS, DiagnosisReport, run_until_diagnosed};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/diagnosis.txt");

/// The texts of one fault.
fn shown(fault: &str, report: &DiagnosisReport) -> String {
    let mut text = format!("## {fault}\n");
    let Some(diagnosis) = &report.diagnosis else {
        return text + "no diagnosis\n\n";
    };
    let action = diagnosis.action.as_ref();
    let action = action.map(|action| format!("{}: {}", action.kind, action.command));
    let lines = [
        ("rule", diagnosis.rule.as_str()),
        ("what", &diagnosis.sentence),
        ("cause", &diagnosis.cause),
        ("next", &diagnosis.next_action),
        ("action", action.as_deref().unwrap_or("none")),
        ("last_error", report.last_error.as_deref().unwrap_or("none")),
    ];
    for (name, line) in lines {
        let _ = writeln!(text, "{name}: {line}");
    }
    text + "\n"
}

#[test]
fn each_fault_is_explained_by_its_rule() {
    let only = std::env::var("TRIVET_DIAGNOSED_FAULT").ok();
    let mut texts = String::new();
    let mut wrong = Vec::new();
    for (fault, rule) in DIAGNOSED_FAULTS {
        let name = format!("{fault:?}");
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let report = run_until_diagnosed(fault);
        if only.is_some() {
            println!("{}", report.trace.text().unwrap_or_default());
        }
        let found = report.diagnosis.as_ref().map(|found| found.rule.clone());
        if found.as_deref() != Some(rule) {
            wrong.push(format!("{name}: {found:?} instead of {rule}"));
        }
        texts += &shown(&name, &report);
    }
    assert!(wrong.is_empty(), "{wrong:#?}\n{texts}");
    if only.is_some() {
        return;
    }
    if std::env::var_os("TRIVET_WRITE_SNAPSHOTS").is_some() {
        std::fs::write(GOLDEN, &texts).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(GOLDEN).expect("the golden file can be read");
    assert_eq!(texts, golden);
}

#[test]
fn each_rule_has_its_fault() {
    let provoked: BTreeSet<_> = DIAGNOSED_FAULTS.iter().map(|(_, rule)| *rule).collect();
    let all: BTreeSet<_> = rules::ALL.iter().map(|rule| rule.name).collect();
    assert_eq!(provoked, all);
}
