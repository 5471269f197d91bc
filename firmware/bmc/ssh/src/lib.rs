//! Power of virtual machines, through the SSH of the host that runs them.
//!
//! Pure. An order becomes a [`Talk`]: it names a command line, takes what came of it,
//! and either names the next or ends with an answer. Who runs `ssh` is not known here.
//! The machine is found by the addresses of the node's ports. No word of the node's
//! record stands in a command line: those are constant, or carry a UUID that was read
//! from the host and checked letter by letter.

mod target;
mod virsh;

pub use target::{Key, Target};

use trivet_model::{MacAddr, PowerAnswer, PowerError, PowerOrder, PowerState};

/// How long one command line may take.
pub const RUN_TIMEOUT_MS: u64 = 60_000;

/// More of what a command printed is not read. Ours: some thousand machines fit.
pub const PRINTED_BYTES_MAX: usize = 1024 * 1024;

/// What `ssh` itself exits with when it could not connect.
const SSH_FAILED: i32 = 255;

/// What a shell exits with when there is no such program.
const NOT_FOUND: i32 = 127;

/// More of what the host said than this is not shown.
const SAID_CHARS_MAX: usize = 300;

/// What came of a command line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ran {
    /// The exit status of `ssh`, which is the command's where there was one.
    pub status: i32,
    /// What it printed.
    pub printed: Vec<u8>,
    /// What it complained about.
    pub complained: Vec<u8>,
}

/// What follows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Next {
    /// Run this on the host.
    Run(String),
    /// The order has ended.
    Done(Result<PowerAnswer, PowerError>),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Waits {
    /// For the list of machines.
    Find,
    /// For the change, which leads to this state.
    Change(PowerAnswer),
}

/// One order on its way.
#[derive(Clone, Debug)]
pub struct Talk {
    order: PowerOrder,
    macs: Vec<MacAddr>,
    waits: Waits,
}

impl Talk {
    /// Begins an order for the machine that has one of these addresses.
    pub fn new(order: PowerOrder, macs: Vec<MacAddr>) -> Self {
        Self {
            order,
            macs,
            waits: Waits::Find,
        }
    }

    /// The order.
    pub fn order(&self) -> PowerOrder {
        self.order
    }

    /// The first thing to do.
    pub fn begin(&self) -> Next {
        if self.macs.is_empty() {
            return failed(
                "the node has no port, so its virtual machine cannot be told from others; create \
                 a port with the machine's address",
            );
        }
        Next::Run(virsh::FIND.to_owned())
    }

    /// Takes what came of the last command line, or why it could not be run.
    pub fn ran(&mut self, ran: Result<Ran, String>) -> Next {
        let ran = match ran {
            Ok(ran) => ran,
            Err(said) => return Next::Done(Err(host(&said, false))),
        };
        if ran.status != 0 {
            return Next::Done(Err(complaint(&ran)));
        }
        match self.waits {
            Waits::Find => self.found(&ran.printed),
            Waits::Change(answer) => Next::Done(Ok(answer)),
        }
    }

    fn found(&mut self, printed: &[u8]) -> Next {
        let Some(domain) = virsh::find(printed, &self.macs) else {
            let macs: Vec<_> = self.macs.iter().map(MacAddr::to_string).collect();
            return failed(&format!(
                "the host has no virtual machine with the address {}; check the node's ports and \
                 ssh_address",
                macs.join(" or ")
            ));
        };
        let is = domain.state;
        let (change, to) = match (self.order, is) {
            (PowerOrder::Status, _)
            | (PowerOrder::On, PowerState::On)
            | (PowerOrder::Off | PowerOrder::SoftOff, PowerState::Off) => {
                return Next::Done(Ok(PowerAnswer::Power(is)));
            }
            // Boot devices are management, which this room does not do.
            (PowerOrder::ReadBoot | PowerOrder::SetBoot { .. }, _) => {
                return Next::Done(Ok(PowerAnswer::Accepted));
            }
            // Nor is there a BMC to say these to.
            (PowerOrder::Nmi | PowerOrder::BmcReset { .. } | PowerOrder::Raw { .. }, _) => {
                let said = "a virtual machine over SSH has no BMC";
                return Next::Done(Err(PowerError::Unsupported { said }));
            }
            (PowerOrder::Off, PowerState::On) => {
                (virsh::DESTROY, PowerAnswer::Power(PowerState::Off))
            }
            // It goes down when its system is ready to.
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
        };
        self.waits = Waits::Change(to);
        Next::Run(virsh::line(change, &domain.id))
    }
}

fn failed(said: &str) -> Next {
    Next::Done(Err(host(said, true)))
}

fn host(said: &str, lasting: bool) -> PowerError {
    PowerError::Host {
        said: said.to_owned(),
        lasting,
    }
}

/// Why a command line failed, in words that help.
fn complaint(ran: &Ran) -> PowerError {
    let said = words(&ran.complained);
    if ran.status == NOT_FOUND {
        return host(
            "the host has no virsh; install libvirt's clients there",
            true,
        );
    }
    if ran.status != SSH_FAILED {
        return host(&format!("virsh on the host failed: {said}"), false);
    }
    for (sign, advice) in [
        (
            "Permission denied",
            "the host refused the login; check ssh_username and the key",
        ),
        (
            "Host key verification failed",
            "the host is not the one seen before; if it was installed anew, remove its line from \
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
        if said.contains(sign) {
            return host(&format!("{advice} ({said})"), true);
        }
    }
    host(&format!("the host cannot be reached: {said}"), false)
}

/// The last line of what was said, fit to be shown.
fn words(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    let plain = last.unwrap_or("no reason given").chars();
    let plain = plain.map(|letter| if letter.is_control() { ' ' } else { letter });
    plain.take(SAID_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests;
