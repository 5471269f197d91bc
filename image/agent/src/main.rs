//! `trivet-agent`: the agent that inspects, cleans and deploys the machine that it runs on.
//!
//! As process 1 it is the first program of its own ramdisk; under the name `modprobe` it loads
//! modules for the kernel; otherwise it is a service, or runs alone (`--standalone`).

use std::env;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use tokio::runtime::Builder;
use trivet_image_agent::AGENT_VERSION;
use trivet_image_agent::program::{self, ProgramError};
use trivet_image_agent::ramdisk::{RAMDISK_ARGUMENT, is_init, run_as_init, run_as_modprobe};

const HELP: &str = "\
trivet-agent [OPTION...]
  --api-url URL[,URL]            the appliance
  --inspection-callback-url URL  where inspection data is posted
  --inspection-collectors LIST   default, logs, lldp, pci-devices, numa-topology, dmi
  --agent-token TOKEN            a token that was given out of band
  --advertise-host HOST          the host that the appliance must call
  --advertise-port PORT
  --listen-host ADDRESS          default: all
  --listen-port PORT             default: 9999
  --cafile, --certfile, --keyfile FILE
  --hardware-managers DIRECTORY  default: /usr/lib/trivet-agent/managers
  --insecure                     do not verify server certificates
  --standalone                   no lookup, no heartbeats
  --debug
The same names with `ipa-` on the kernel command line, and in files in
/etc/ironic-python-agent.d, have the same meaning.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    let name = arguments.first().map(Path::new).and_then(Path::file_name);
    // In a container the process has the same number; there it has options.
    let is_named = name.is_some_and(|name| name == "init");
    let is_first = is_init() && (is_named || arguments.len() == 1);
    if name.is_some_and(|name| name == "modprobe") {
        run_as_modprobe(&arguments[1..]);
        return ExitCode::SUCCESS;
    }
    if is_first {
        run_as_init();
    }
    let mut words: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    let in_ramdisk = words.first() == Some(&RAMDISK_ARGUMENT);
    if in_ramdisk {
        words.remove(0);
    }
    match words.first() {
        Some(&("--help" | "-h")) => return print(HELP),
        Some(&"--version") => return print(&format!("{AGENT_VERSION}\n")),
        _ => {}
    }
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            program::log(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(program::run(&words, in_ramdisk)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            program::log(&error.to_string());
            match error {
                ProgramError::Argument(_) => ExitCode::from(2),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn print(words: &str) -> ExitCode {
    let _ = io::stdout().write_all(words.as_bytes());
    ExitCode::SUCCESS
}
