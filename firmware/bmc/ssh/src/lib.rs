//! Power control of virtual machines, over SSH to the host that runs them.
//!
//! Pure: no input or output. A [`SshPowerScript`] executes one order: it returns a command line,
//! receives the output, and returns either the next command line or the final answer. The caller
//! runs `ssh`. With libvirt the machine is found by the addresses of the node's ports, and no text
//! of the node's record is part of a command line: command lines are constant, or contain a UUID
//! that was read from the host and verified character by character. Command lines that the operator
//! sets ([`SshPowerCommands`]) are run unchanged.

mod commands;
mod protocol;
mod target;
mod virsh;

pub use commands::SshPowerCommands;
pub use protocol::SshProtocol;
pub use target::SshTarget;

use trivet_bmc::ssh_host::SshCommandOutput;
use trivet_model::{MacAddr, PowerAnswer, PowerError, PowerOrder, PowerState};

/// The exit status of `ssh` when it could not connect.
const SSH_FAILED: i32 = 255;

/// The exit status of a shell when the program does not exist.
const NOT_FOUND: i32 = 127;

/// Most characters of the host's error message that are shown. Ours.
const MESSAGE_CHARS_MAX: usize = 300;

/// The next action of the caller.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SshPowerStep {
    /// Run this command line on the host.
    Run(String),
    /// The order is complete.
    Done(Result<PowerAnswer, PowerError>),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SshPendingOutput {
    /// The list of machines, or the operator's status command.
    Status,
    /// The command that changes the power; its success means this answer.
    Change(PowerAnswer),
}

/// One order in progress.
#[derive(Clone, Debug)]
pub struct SshPowerScript {
    order: PowerOrder,
    macs: Vec<MacAddr>,
    /// The operator's own command lines, instead of virsh.
    commands: Option<SshPowerCommands>,
    pending: SshPendingOutput,
}

impl SshPowerScript {
    /// Starts an order for the machine that has one of these addresses, or with the operator's own
    /// command lines.
    pub fn new(order: PowerOrder, macs: Vec<MacAddr>, given: Option<SshPowerCommands>) -> Self {
        Self {
            order,
            macs,
            commands: given,
            pending: SshPendingOutput::Status,
        }
    }

    /// The order that this script executes.
    pub fn order(&self) -> PowerOrder {
        self.order
    }

    /// The first action.
    pub fn begin(&self) -> SshPowerStep {
        if let Some(given) = &self.commands {
            return SshPowerStep::Run(given.status());
        }
        if self.macs.is_empty() {
            return failed(
                "the node has no port, so its virtual machine cannot be identified; create \
                 a port with the machine's address",
            );
        }
        SshPowerStep::Run(virsh::FIND.to_owned())
    }

    /// Processes the result of the last command line, or the reason why it could not be run.
    pub fn handle_output(&mut self, ran: Result<SshCommandOutput, String>) -> SshPowerStep {
        let ran = match ran {
            Ok(ran) => ran,
            Err(message) => return SshPowerStep::Done(Err(host(&message, false))),
        };
        if ran.status != 0 {
            let program = self.commands.as_ref().map_or("virsh", |_| "the command");
            return SshPowerStep::Done(Err(command_error(&ran, program)));
        }
        match (self.pending, self.commands.clone()) {
            (SshPendingOutput::Status, Some(given)) => self.handle_status(&given, &ran.stdout),
            (SshPendingOutput::Status, None) => self.handle_domain_list(&ran.stdout),
            (SshPendingOutput::Change(answer), _) => SshPowerStep::Done(Ok(answer)),
        }
    }

    /// Processes the output of the operator's status command.
    fn handle_status(&mut self, given: &SshPowerCommands, printed: &[u8]) -> SshPowerStep {
        let Some(is) = commands::state(printed) else {
            return failed(&format!(
                "ssh_power_status printed {:?}; its last word must be on or off",
                last_line(printed)
            ));
        };
        if let Some(answer) = answer_non_power(self.order) {
            return SshPowerStep::Done(answer);
        }
        match given.line(self.order, is) {
            None => SshPowerStep::Done(Ok(PowerAnswer::Power(is))),
            Some(Err(error)) => SshPowerStep::Done(Err(error)),
            Some(Ok((line, answer))) => {
                self.pending = SshPendingOutput::Change(answer);
                SshPowerStep::Run(line)
            }
        }
    }

    fn handle_domain_list(&mut self, printed: &[u8]) -> SshPowerStep {
        let Some(domain) = virsh::find(printed, &self.macs) else {
            let macs: Vec<_> = self.macs.iter().map(MacAddr::to_string).collect();
            return failed(&format!(
                "the host has no virtual machine with the address {}; check the node's ports and \
                 ssh_address",
                macs.join(" or ")
            ));
        };
        let is = domain.state;
        if let Some(answer) = answer_non_power(self.order) {
            return SshPowerStep::Done(answer);
        }
        let (change, to) = match (self.order, is) {
            (PowerOrder::Off, PowerState::On) => {
                (virsh::DESTROY, PowerAnswer::Power(PowerState::Off))
            }
            // The machine switches off when its operating system has shut down.
            (PowerOrder::SoftOff, PowerState::On) => (virsh::SHUTDOWN, PowerAnswer::Accepted),
            (PowerOrder::Reset, PowerState::On) => {
                (virsh::RESET, PowerAnswer::Power(PowerState::On))
            }
            (PowerOrder::Cycle, PowerState::On) => {
                (virsh::RESTART, PowerAnswer::Power(PowerState::On))
            }
            (PowerOrder::On | PowerOrder::Cycle | PowerOrder::Reset, PowerState::Off) => {
                (virsh::START, PowerAnswer::Power(PowerState::On))
            }
            // The power state is already the requested one.
            _ => return SshPowerStep::Done(Ok(PowerAnswer::Power(is))),
        };
        self.pending = SshPendingOutput::Change(to);
        SshPowerStep::Run(virsh::line(change, &domain.id))
    }
}

/// Orders that are not about power: boot devices are set by the management interface, which is not
/// part of this crate, and there is no BMC to send commands to.
fn answer_non_power(order: PowerOrder) -> Option<Result<PowerAnswer, PowerError>> {
    match order {
        PowerOrder::ReadBoot | PowerOrder::SetBoot { .. } => Some(Ok(PowerAnswer::Accepted)),
        PowerOrder::Nmi | PowerOrder::BmcReset { .. } | PowerOrder::Raw { .. } => {
            let message = "a node with power control over SSH has no BMC";
            Some(Err(PowerError::Unsupported { message }))
        }
        _ => None,
    }
}

fn failed(message: &str) -> SshPowerStep {
    SshPowerStep::Done(Err(host(message, true)))
}

fn host(message: &str, lasting: bool) -> PowerError {
    PowerError::Host {
        message: message.to_owned(),
        lasting,
    }
}

/// Converts a failed command into an error that names what to check.
fn command_error(ran: &SshCommandOutput, program: &str) -> PowerError {
    let text = last_line(&ran.stderr);
    if ran.status == NOT_FOUND && program == "virsh" {
        return host(
            "the host has no virsh; install libvirt's clients there",
            true,
        );
    }
    if ran.status != SSH_FAILED {
        return host(&format!("{program} on the host failed: {text}"), false);
    }
    for (sign, advice) in [
        (
            "Permission denied",
            "the host refused the login; check ssh_username and the key",
        ),
        (
            "Host key verification failed",
            "the host key has changed; if the host was reinstalled, remove its line from \
             known_hosts in the box's data directory",
        ),
        (
            "error in libcrypto",
            "the private key cannot be read; give it whole, without a passphrase",
        ),
        (
            "invalid format",
            "the private key cannot be read; give it whole, without a passphrase",
        ),
    ] {
        if text.contains(sign) {
            return host(&format!("{advice} ({text})"), true);
        }
    }
    host(&format!("the host cannot be reached: {text}"), false)
}

/// The last line of the output, limited to printable characters.
fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    let plain = last.unwrap_or("no reason given").chars();
    let plain = plain.map(|character| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    });
    plain.take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests;
