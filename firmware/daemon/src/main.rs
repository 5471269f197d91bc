//! The program `trivet`: the appliance, its demo, its settings file, and the operator's
//! commands.

mod agent_iso;
mod agent_logs;
mod appliance;
mod auth;
mod cache;
mod check;
mod clock;
#[cfg(feature = "demo")]
mod demo;
mod engine;
mod files;
#[cfg(test)]
mod help_tests;
mod image_directory;
mod images_ahead;
mod listeners;
mod log;
mod port_owner;
mod private;
mod reload;
mod serve;
mod sockets;
mod store_tool;
mod telemetry;
#[cfg(test)]
mod testbed;
mod tls_identity;
mod webhooks;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use tracing::{error, warn};

/// Provisions bare-metal servers: inspects, cleans and deploys them.
#[derive(Parser)]
#[command(
    name = "trivet",
    version,
    about = "Provisions bare-metal servers: inspects, cleans and deploys them."
)]
struct DaemonArguments {
    #[command(subcommand)]
    command: DaemonCommand,
}

#[derive(Subcommand)]
enum DaemonCommand {
    /// Deploy a simulated rack over real protocols on loopback; needs no root and no set-up
    #[cfg(feature = "demo")]
    Demo(demo::DemoOptions),
    /// Run the appliance by a settings file
    Serve {
        /// The settings file (`trivet config` prints one)
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Check a settings file and name every mistake in it
    Check {
        /// The settings file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Check the text only, not the files, interfaces and ports of this machine
        #[arg(long)]
        offline: bool,
    },
    /// Print a commented settings file with every default
    Config,
    /// Make tokens for programs that call the API
    Token {
        #[command(subcommand)]
        command: auth::token::TokenCommand,
    },
    /// Check, export, import or repair the store of a box that is stopped
    Store {
        #[command(subcommand)]
        command: store_tool::StoreCommand,
    },
    #[command(flatten)]
    Client(trivet_cli::ClientCommand),
    /// Print a script that completes commands and options in a shell
    Completion(trivet_cli::CompletionArguments),
    /// Write a manual page for each command
    Man(trivet_cli::ManualPageArguments),
    /// List the exit codes and what they mean
    #[command(long_about = trivet_cli::EXIT_CODES, help_template = "{about}\n")]
    ExitCodes,
}

/// Exit codes, as scripts may rely on them.
mod exit {
    /// The command failed.
    pub(crate) const FAILED: u8 = 1;
    /// The arguments or the settings are wrong.
    pub(crate) const MISTAKEN: u8 = 2;
}

fn main() -> ExitCode {
    log::start();
    match DaemonArguments::parse().command {
        #[cfg(feature = "demo")]
        DaemonCommand::Demo(options) => run(demo::run(options)),
        DaemonCommand::Serve { config } => match settings(&config) {
            Ok(settings) => {
                log::configure(settings.log);
                run(serve::run(&config, settings))
            }
            Err(code) => code,
        },
        DaemonCommand::Check { config, offline } => match settings(&config) {
            Ok(settings) => run_check(&config, &settings, offline),
            Err(code) => code,
        },
        DaemonCommand::Config => print(trivet_config::default_file()),
        DaemonCommand::Token { command } => print(&command.run(&mut clock::DaemonEntropy::new())),
        DaemonCommand::Store { command } => command.run(),
        DaemonCommand::Client(command) => ExitCode::from(trivet_cli::run(command).code()),
        DaemonCommand::Completion(wanted) => print(&trivet_cli::completion(
            &wanted,
            &mut DaemonArguments::command(),
        )),
        DaemonCommand::Man(wanted) => match wanted.run(DaemonArguments::command()) {
            Ok(line) => print(&line),
            Err(error) => {
                error!("{error}");
                log::flush();
                ExitCode::from(exit::FAILED)
            }
        },
        DaemonCommand::ExitCodes => print(&format!("{}\n", trivet_cli::EXIT_CODES)),
    }
}

/// Prints what the box would do with these settings, and what is wrong with them on
/// this machine.
fn run_check(file: &Path, settings: &trivet_config::Settings, offline: bool) -> ExitCode {
    let report = check::check(settings, offline);
    let (file, plan) = (file.display(), serve::plan(settings));
    let lines = |word: &str, lines: &[String]| -> String {
        let line = |line: &String| format!("{file}: {word}: {line}\n");
        lines.iter().map(line).collect()
    };
    let errors = lines("error", &report.errors);
    let warnings = lines("warning", &report.warnings);
    let sum = match (report.errors.len(), report.warnings.len()) {
        (0, 0) => format!("{file} has no mistakes\n"),
        (0, warnings) => format!("{file} has no mistakes, {warnings} warning(s)\n"),
        (errors, warnings) => format!("{file}: {errors} error(s), {warnings} warning(s)\n"),
    };
    let code = print(&format!("{plan}{errors}{warnings}{sum}"));
    if report.errors.is_empty() {
        code
    } else {
        ExitCode::from(exit::MISTAKEN)
    }
}

/// Writes to standard output. A closed pipe is not an error. A full disk is one:
/// otherwise `trivet config > FILE` would silently leave half a file.
fn print(text: &str) -> ExitCode {
    use std::io::Write as _;
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            error!("standard output cannot be written: {error}");
            log::flush();
            ExitCode::from(exit::FAILED)
        }
        _ => ExitCode::SUCCESS,
    }
}

fn run(work: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    if let Err(error) = trivet_board_linux::disable_core_dumps() {
        warn!("a core dump of this process would show passwords: {error}");
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!("cannot start: {error}");
            log::flush();
            return ExitCode::from(exit::FAILED);
        }
    };
    let outcome = runtime.block_on(work);
    // Do not wait for threads that still read a file or hash an image.
    runtime.shutdown_background();
    let code = match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error:#}");
            ExitCode::from(exit::FAILED)
        }
    };
    log::flush();
    code
}

/// The checked settings. On mistakes, logs all of them and returns the exit code.
fn settings(file: &Path) -> Result<trivet_config::Settings, ExitCode> {
    let mistaken = |lines: Vec<String>| {
        for line in &lines {
            log::line(line);
        }
        log::flush();
        ExitCode::from(exit::MISTAKEN)
    };
    let shown = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| mistaken(vec![format!("trivet: {shown} cannot be read: {error}")]))?;
    trivet_config::parse(&text).map_err(|mistakes| {
        let count = mistakes.len();
        let end = if count == 1 { "" } else { "s" };
        let named = mistakes.iter().map(|mistake| format!("{shown}:{mistake}"));
        let sum = format!("trivet: {count} mistake{end}");
        mistaken(named.chain([sum]).collect())
    })
}
