//! Manual pages, made from the definitions of the commands: one page for each command and
//! subcommand, in section 1.

use std::path::{Path, PathBuf};

use clap::{Args, Command};

/// Arguments of `trivet man`.
#[derive(Args, Debug)]
pub struct ManualPageArguments {
    /// The directory for the pages, such as /usr/local/share/man/man1; it is made if it is missing
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
}

impl ManualPageArguments {
    /// Writes the pages, and returns a line for the operator.
    pub fn run(&self, program: Command) -> Result<String, String> {
        let directory = self.output.display();
        let failed = |error| {
            format!(
                "the manual pages cannot be written to {directory}: {error}; name a directory \
                 that you may write to"
            )
        };
        let count = write_pages(program, &self.output).map_err(failed)?;
        Ok(format!("{count} manual pages written to {directory}\n"))
    }
}

fn write_pages(program: Command, directory: &Path) -> std::io::Result<usize> {
    std::fs::create_dir_all(directory)?;
    // `trivet help COMMAND` would get a page for each command once more.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let source = format!("trivet {}", program.get_version().unwrap_or_default());
    let pages = pages(&program);
    for page in &pages {
        let page = clap_mangen::Man::new((*page).clone())
            .source(&source)
            .manual("Trivet");
        page.generate_to(directory)?;
    }
    Ok(pages.len())
}

/// The command and all commands below it.
fn pages(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|it| !it.is_hide_set());
    std::iter::once(command)
        .chain(below.flat_map(pages))
        .collect()
}
