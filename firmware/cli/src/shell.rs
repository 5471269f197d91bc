//! Executes a command: files, environment, clock, terminal.

use std::cell::Cell;
use std::io::{ErrorKind, IsTerminal as _, Read, Write};
use std::time::{Duration, Instant};

use console::Term;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::arguments::{ClientCommand, ImageCommand};
use crate::bmc;
use crate::client::CliClient;
use crate::connection::CliConnection;
use crate::events::{EventPrinter, EventsArguments, EventsEnd};
use crate::exit::Exit;
use crate::fault::CliFault;
use crate::plan;
use crate::progress::{ProgressLine, duration};
use crate::task::{CommandTask, OutputStyle, TaskAction, TaskOutput, TaskStep};
use crate::upload::{ImageUpload, UploadObserver};

/// Longest file an argument may name. Config drives are the largest.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The assumed width of a terminal that does not report one.
const COLUMNS: usize = 80;

/// Runs a command to its end and returns the result.
pub fn run(command: ClientCommand) -> Exit {
    let (mut out, mut errors) = (std::io::stdout(), std::io::stderr());
    let width = out.is_terminal().then(|| columns(&Term::stdout()));
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    let able = errors.is_terminal() && !dumb;
    let screen = TerminalOutput {
        out: &mut out,
        errors: &mut errors,
        term: able.then(Term::stderr),
        drawn: false,
    };
    run_on(command, screen, width)
}

/// Runs a command that prints as into a pipe: results to `out`, the rest to `errors`.
pub fn run_into(command: ClientCommand, out: &mut dyn Write, errors: &mut dyn Write) -> Exit {
    let screen = TerminalOutput {
        out,
        errors,
        term: None,
        drawn: false,
    };
    run_on(command, screen, None)
}

fn run_on(command: ClientCommand, mut screen: TerminalOutput<'_>, width: Option<usize>) -> Exit {
    let outcome = if let ClientCommand::Image(image) = &command
        && let ImageCommand::Upload {
            image,
            file,
            format,
            boot_mode,
            pin,
        } = &image.command
    {
        let upload = ImageUpload {
            image,
            file,
            format: format.as_deref(),
            boot_mode: boot_mode.as_deref(),
            pin: *pin,
        };
        self::upload(&command, &upload, &mut screen)
    } else if let ClientCommand::Events(events) = &command {
        self::events(events, &mut screen)
    } else {
        prepare(command, width).and_then(|(client, task)| drive(&client, task, &mut screen))
    };
    match outcome {
        Ok(exit) => exit,
        Err(fault) => {
            screen.note(&format!("trivet: {}", fault.sentence));
            fault.exit
        }
    }
}

fn prepare(
    command: ClientCommand,
    width: Option<usize>,
) -> Result<(CliClient, CommandTask), CliFault> {
    let taken = Cell::new(false);
    let read = |name: &str| text_of(name, &taken);
    let (global, plan) = match command {
        ClientCommand::Node(node) => {
            let plan = plan::node(&node.command, node.global.json, &read)?;
            (node.global, plan)
        }
        ClientCommand::Port(port) => (port.global, plan::port(&port.command)),
        ClientCommand::Image(image) => (image.global, plan::image(&image.command)),
        ClientCommand::Lan(lan) => (lan.global, plan::lan(lan.command)),
        // It has no plan: its response is a stream.
        ClientCommand::Events(_) => return Err(CliFault::usage("events are not planned")),
        ClientCommand::Bmc(bmc) => {
            let plan = bmc::plan(&bmc.command, &read)?;
            (bmc.global, plan)
        }
        ClientCommand::Status(status) => (status.global, plan::status()),
    };
    let variable = |name: &str| std::env::var(name).ok();
    let connection = CliConnection::of(&global, &variable, &read)?;
    let style = OutputStyle {
        json: global.json,
        width,
    };
    Ok((CliClient::new(connection)?, CommandTask::new(plan, style)))
}

fn events(arguments: &EventsArguments, screen: &mut TerminalOutput<'_>) -> Result<Exit, CliFault> {
    let taken = Cell::new(false);
    let read = |name: &str| text_of(name, &taken);
    let variable = |name: &str| std::env::var(name).ok();
    let connection = CliConnection::of(&arguments.global, &variable, &read)?;
    let client = CliClient::new(connection)?;
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let mut stop = signal(SignalKind::interrupt()).map_err(|error| broken(&error))?;
        tokio::select! {
            ended = arguments.run(&client, screen) => ended.map(|()| Exit::Fine),
            _ = stop.recv() => Err(EventsEnd::Output(Exit::Interrupted)),
        }
    });
    runtime.shutdown_background();
    match ended {
        Ok(exit) | Err(EventsEnd::Output(exit)) => Ok(exit),
        Err(EventsEnd::Fault(fault)) => Err(fault),
    }
}

impl EventPrinter for TerminalOutput<'_> {
    fn event(&mut self, line: &str) -> Result<(), Exit> {
        self.line(line)
    }

    fn note(&mut self, sentence: &str) {
        Self::note(self, sentence);
    }
}

fn upload(
    command: &ClientCommand,
    upload: &ImageUpload<'_>,
    screen: &mut TerminalOutput<'_>,
) -> Result<Exit, CliFault> {
    let ClientCommand::Image(image) = command else {
        return Ok(Exit::Usage);
    };
    let taken = Cell::new(false);
    let read = |name: &str| text_of(name, &taken);
    let variable = |name: &str| std::env::var(name).ok();
    let client = CliClient::new(CliConnection::of(&image.global, &variable, &read)?)?;
    let clock = start();
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let mut stop = signal(SignalKind::interrupt()).map_err(|error| broken(&error))?;
        let mut watched = UploadDisplay { screen, clock };
        tokio::select! {
            outcome = upload.run(&client, &mut watched) => outcome.map(Some),
            _ = stop.recv() => Ok(None),
        }
    });
    runtime.shutdown_background();
    let Some(record) = outcome? else {
        let name = upload.image;
        let sentence = format!(
            "stopped; the received bytes are kept. `trivet image upload {name} ...` continues."
        );
        return Err(CliFault::new(Exit::Interrupted, sentence));
    };
    let line = if image.global.json {
        format!("{record:#}")
    } else {
        let took = duration(elapsed_ms(clock));
        format!("image {} is complete after {took}", upload.image)
    };
    match screen.line(&line) {
        Ok(()) => Ok(Exit::Fine),
        Err(exit) => Ok(exit),
    }
}

/// Shows the progress of an upload.
struct UploadDisplay<'a, 'b> {
    screen: &'a mut TerminalOutput<'b>,
    clock: Instant,
}

impl UploadObserver for UploadDisplay<'_, '_> {
    fn progress(&mut self, progress: &ProgressLine) {
        self.screen.draw(progress);
    }

    fn note(&mut self, sentence: &str) {
        self.screen.note(sentence);
    }

    fn elapsed_ms(&self) -> u64 {
        elapsed_ms(self.clock)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place here that reads a clock"
)]
fn start() -> Instant {
    Instant::now()
}

fn elapsed_ms(clock: Instant) -> u64 {
    u64::try_from(clock.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn broken(error: &std::io::Error) -> CliFault {
    CliFault::new(Exit::Unreachable, format!("cannot start: {error}"))
}

fn runtime() -> Result<tokio::runtime::Runtime, CliFault> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().map_err(|error| broken(&error))
}

fn columns(term: &Term) -> usize {
    term.size_checked()
        .map_or(COLUMNS, |(_, columns)| columns.into())
}

/// The text of a file or of standard input, which can be read once.
fn text_of(name: &str, taken: &Cell<bool>) -> Result<String, String> {
    let mut text = String::new();
    let mut read =
        |source: &mut dyn Read| source.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    let outcome = if name == "-" {
        if taken.replace(true) {
            return Err("standard input can be read only once".to_owned());
        }
        read(&mut std::io::stdin().lock())
    } else {
        std::fs::File::open(name).and_then(|mut file| read(&mut file))
    };
    match outcome {
        Err(error) => Err(format!("{name} cannot be read: {error}")),
        Ok(length) if length as u64 > FILE_BYTES_MAX => {
            Err(format!("{name} is longer than {FILE_BYTES_MAX} bytes"))
        }
        Ok(_) => Ok(text),
    }
}

fn drive(
    client: &CliClient,
    task: CommandTask,
    screen: &mut TerminalOutput<'_>,
) -> Result<Exit, CliFault> {
    let runtime = runtime()?;
    let exit = runtime.block_on(async {
        let stop = signal(SignalKind::interrupt()).map_err(|error| broken(&error))?;
        Ok(follow(client, task, stop, screen).await)
    });
    // Do not wait for a name lookup that is still running.
    runtime.shutdown_background();
    exit
}

async fn follow(
    client: &CliClient,
    mut task: CommandTask,
    mut stop: Signal,
    screen: &mut TerminalOutput<'_>,
) -> Exit {
    let clock = start();
    let now = || elapsed_ms(clock);
    let mut step = task.begin(now());
    loop {
        if let Err(exit) = screen.show(&step) {
            return exit;
        }
        step = match step.act {
            TaskAction::End(exit) => return exit,
            TaskAction::Send(request) => tokio::select! {
                answer = client.exchange(&request) => task.answered(now(), answer),
                _ = stop.recv() => task.interrupted(),
            },
            TaskAction::Pause(ms) => tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(ms)) => task.woken(),
                _ = stop.recv() => task.interrupted(),
            },
        };
    }
}

/// Results on one stream, the rest on the other.
struct TerminalOutput<'a> {
    out: &'a mut dyn Write,
    errors: &'a mut dyn Write,
    /// The terminal, where a line can be redrawn.
    term: Option<Term>,
    drawn: bool,
}

impl TerminalOutput<'_> {
    /// Prints the output of a step; the exit code if standard output is closed.
    fn show(&mut self, step: &TaskStep) -> Result<(), Exit> {
        for out in &step.outs {
            match out {
                TaskOutput::Line(text) => self.line(text)?,
                TaskOutput::Note(text) => self.note(text),
                TaskOutput::Change(text) if self.term.is_none() => self.note(text),
                TaskOutput::Change(_) => {}
                TaskOutput::Progress(progress) => self.draw(progress),
            }
        }
        if matches!(step.act, TaskAction::End(_)) {
            self.clear();
        }
        Ok(())
    }

    fn draw(&mut self, progress: &ProgressLine) {
        if let Some(term) = &self.term {
            // The last column stays free: some terminals wrap there.
            let line = progress.line(columns(term).saturating_sub(1));
            let _ = term.clear_line().and_then(|()| term.write_str(&line));
            self.drawn = true;
        }
    }

    fn clear(&mut self) {
        if let Some(term) = self.term.as_ref().filter(|_| self.drawn) {
            let _ = term.clear_line();
        }
        self.drawn = false;
    }

    fn note(&mut self, text: &str) {
        self.clear();
        // Standard error may be closed.
        let _ = writeln!(self.errors, "{text}");
    }

    fn line(&mut self, text: &str) -> Result<(), Exit> {
        self.clear();
        match writeln!(self.out, "{text}").and_then(|()| self.out.flush()) {
            Ok(()) => Ok(()),
            // A closed pipe is not a failure.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Exit::Fine),
            Err(error) => {
                self.note(&format!(
                    "trivet: standard output cannot be written: {error}"
                ));
                Err(Exit::Failed)
            }
        }
    }
}
