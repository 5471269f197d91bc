//! The help of all commands is checked in as `firmware/daemon/help.txt`, so that each change of a
//! command or an option is seen in a review. Regenerate it with
//! `TRIVET_WRITE_SNAPSHOTS=1 cargo test -p trivet-daemon help`.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use crate::DaemonArguments;

const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/help.txt");

fn append_help(command: &mut Command, text: &mut String) {
    let name = command
        .get_bin_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned();
    let help = command.render_long_help().to_string();
    let help: Vec<_> = help.lines().map(str::trim_end).collect();
    let help = help.join("\n");
    writeln!(text, "==== {name} ====\n\n{}\n", help.trim_end()).unwrap();
    for below in command.get_subcommands_mut() {
        // The help of `help` repeats the list of commands.
        if below.get_name() != "help" {
            append_help(below, text);
        }
    }
}

fn all_help() -> String {
    let mut program = DaemonArguments::command();
    program.build();
    let mut text = String::new();
    append_help(&mut program, &mut text);
    text
}

#[test]
fn the_help_is_the_one_that_is_checked_in() {
    let now = all_help();
    if std::env::var_os("TRIVET_WRITE_SNAPSHOTS").is_some() {
        std::fs::write(SNAPSHOT, &now).unwrap();
    }
    let stored = std::fs::read_to_string(SNAPSHOT).unwrap();
    let changed = stored
        .lines()
        .zip(now.lines())
        .find(|(stored, now)| stored != now);
    assert!(
        stored == now,
        "help.txt is out of date, first difference {changed:?}: \
         TRIVET_WRITE_SNAPSHOTS=1 cargo test -p trivet-daemon help"
    );
}

#[test]
fn the_help_of_each_command_is_in_the_text() {
    let text = all_help();
    for command in [
        "trivet",
        "trivet serve",
        "trivet node set",
        "trivet bmc light",
    ] {
        let head = format!("==== {command} ====\n");
        assert_eq!(text.matches(&head).count(), 1, "{command}");
    }
}
