//! The rules of the workspace, checked over this tree.

use std::sync::OnceLock;

use trivet_tests_tidy::{
    Finding, RepositoryTree, SourceFile, counted, direction, interface_names, layout, module_paths,
    ratio, references, size, type_names, vocabulary, word,
};

fn tree() -> &'static RepositoryTree {
    static TREE: OnceLock<RepositoryTree> = OnceLock::new();
    TREE.get_or_init(RepositoryTree::read)
}

#[track_caller]
fn none(mut findings: Vec<Finding>) {
    findings.sort();
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(
        lines.is_empty(),
        "{} to fix:\n{}\n",
        lines.len(),
        lines.join("\n")
    );
}

#[track_caller]
fn none_in_rust(check: impl Fn(&SourceFile) -> Vec<Finding>) {
    none(tree().rust().flat_map(check).collect());
}

#[test]
fn the_tree_was_read() {
    assert!(
        tree().packages.len() > 20,
        "cargo metadata lists {:?}",
        tree().packages
    );
    assert!(tree().rust().count() > tree().packages.len());
}

#[test]
fn crates_depend_only_on_what_is_allowed() {
    none(direction::check_dependencies(&tree().packages));
}

#[test]
fn runtimes_are_in_shells_only() {
    none(direction::runtimes(&tree().packages));
}

#[test]
fn modules_name_only_what_their_folder_may() {
    none_in_rust(module_paths::forbidden_paths);
}

#[test]
fn packages_are_named_after_their_path() {
    none(direction::names(&tree().packages));
}

#[test]
fn one_crypto_provider_is_built() {
    none(direction::lock(tree().text("Cargo.lock")));
}

#[test]
fn files_are_short() {
    none_in_rust(size::files);
}

#[test]
fn functions_are_short() {
    none_in_rust(size::functions);
}

#[test]
fn lines_are_narrow() {
    none_in_rust(size::lines);
}

#[test]
fn sources_are_ascii() {
    none_in_rust(word::ascii);
}

#[test]
fn unsafe_code_is_in_one_crate() {
    none_in_rust(word::unsafety);
}

#[test]
fn no_name_begins_with_get() {
    none_in_rust(word::getters);
}

#[test]
fn no_text_holds_a_banned_word() {
    none(tree().sources.iter().flat_map(word::banned).collect());
}

#[test]
fn file_names_say_something() {
    none(
        tree()
            .paths
            .iter()
            .flat_map(|path| word::names(path))
            .collect(),
    );
}

#[test]
fn the_top_level_is_as_planned() {
    none(layout::top(&tree().paths));
}

#[test]
fn every_package_is_listed() {
    let readmes = [tree().text("README.md"), tree().text("firmware/README.md")];
    none(layout::unlisted_packages(
        &tree().packages,
        &tree().paths,
        &readmes,
    ));
}

#[test]
fn every_package_is_in_the_workspace() {
    none(layout::members(&tree().packages, &tree().paths));
}

#[test]
fn no_file_is_binary() {
    none(tree().binaries.clone());
}

#[test]
fn a_type_name_exists_once() {
    none(type_names::repeated(tree().rust()));
}

#[test]
fn no_text_or_identifier_has_a_word_that_the_field_does_not_use() {
    none(tree().sources.iter().flat_map(vocabulary::words).collect());
}

#[test]
fn no_rust_name_is_a_word_that_says_nothing() {
    none_in_rust(vocabulary::names);
}

#[test]
fn the_settings_reference_is_complete() {
    const PAGE: &str = "firmware/guide/src/settings.md";
    let defaults = tree().text("firmware/config/src/default.toml");
    assert!(defaults.contains("[api]"), "the default settings were read");
    none(references::settings(defaults, PAGE, tree().text(PAGE)));
}

#[test]
fn the_format_page_has_every_record_kind() {
    const PAGE: &str = "firmware/store/README.md";
    let code = tree().text("firmware/store/src/schema/mod.rs");
    none(references::record_kinds(code, PAGE, tree().text(PAGE)));
}

#[test]
fn names_of_interfaces_are_enums() {
    none_in_rust(interface_names::as_text);
}

#[test]
fn what_the_simulator_ignores_has_a_reason() {
    const LIST: &str = "tests/sim/ignored-outputs.txt";
    none(references::ignored_outputs(
        &[
            (tree().text("firmware/rack/src/lib.rs"), "RackOutput"),
            (tree().text("firmware/bmc/src/message.rs"), "BmcTransmit"),
        ],
        tree().text("tests/sim/src/box_under_test.rs"),
        LIST,
        tree().text(LIST),
    ));
}

#[test]
fn each_kind_of_note_is_counted_or_has_a_reason() {
    const LIST: &str = "firmware/metrics/uncounted.txt";
    none(counted::notes(
        tree().text("firmware/model/src/note.rs"),
        tree().text("firmware/metrics/src/notes.rs"),
        LIST,
        tree().text(LIST),
    ));
}

#[test]
fn each_reason_is_counted() {
    none(counted::reasons(tree().rust()));
}

#[test]
fn the_manual_lists_the_metrics_of_the_code() {
    const PAGE: &str = "firmware/guide/src/monitoring.md";
    let code = tree().text("firmware/metrics/src/family.rs");
    none(counted::manual_page(code, PAGE, tree().text(PAGE)));
}

#[test]
fn every_dependency_is_used() {
    none(references::unused(&tree().packages, &tree().sources));
}

#[test]
fn core_crates_keep_their_share_of_tests() {
    const RECORD: &str = "tests/tidy/ratios.txt";
    // They only carry what others decide.
    const CARRIERS: [&str; 4] = [
        "firmware/cli",
        "firmware/daemon",
        "firmware/net/http",
        "firmware/net/tls",
    ];
    none(ratio::below_record(
        &tree().packages,
        &tree().sources,
        RECORD,
        tree().text(RECORD),
    ));
    none(ratio::missing_from_record(
        &tree().packages,
        &CARRIERS,
        RECORD,
        tree().text(RECORD),
    ));
}
