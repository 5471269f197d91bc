//! libvirt's `virsh`: its command lines and its output.

use trivet_model::{MacAddr, PowerState};

/// Lists every machine with its UUID, state and interfaces. Constant: machines are named by UUID,
/// so that no name of a machine is passed to the shell.
pub(crate) const FIND: &str = "export LC_ALL=C; for id in $(virsh -c qemu:///system list --all \
    --uuid); do echo \"domain $id\"; virsh -c qemu:///system domstate \"$id\"; virsh -c \
    qemu:///system domiflist \"$id\"; done; virsh -c qemu:///system version >/dev/null";

/// Sub-commands that change the power.
pub(crate) const START: &[&str] = &["start"];
pub(crate) const DESTROY: &[&str] = &["destroy"];
pub(crate) const SHUTDOWN: &[&str] = &["shutdown"];
pub(crate) const RESET: &[&str] = &["reset"];
pub(crate) const RESTART: &[&str] = &["destroy", "start"];

/// A UUID in its plain form: the only variable part of a command line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct LibvirtDomainId(String);

impl LibvirtDomainId {
    fn read(text: &str) -> Option<Self> {
        let right = text.len() == 36
            && text.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            });
        right.then(|| Self(text.to_owned()))
    }
}

/// A virtual machine of the host.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct LibvirtDomain {
    pub(crate) id: LibvirtDomainId,
    pub(crate) state: PowerState,
}

/// The command line that makes a change.
pub(crate) fn line(change: &[&str], id: &LibvirtDomainId) -> String {
    let parts = change
        .iter()
        .map(|word| format!("virsh -c qemu:///system {word} {}", id.0));
    let parts: Vec<_> = parts.collect();
    format!("export LC_ALL=C; {}", parts.join(" && "))
}

/// The machine that has one of these addresses.
pub(crate) fn find(printed: &[u8], macs: &[MacAddr]) -> Option<LibvirtDomain> {
    let text = String::from_utf8_lossy(printed);
    let mut domain: Option<LibvirtDomain> = None;
    let mut state_follows = false;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(id) = line.strip_prefix("domain ") {
            domain = LibvirtDomainId::read(id).map(|id| LibvirtDomain {
                id,
                state: PowerState::Off,
            });
            state_follows = true;
            continue;
        }
        let Some(one) = &mut domain else { continue };
        if state_follows {
            state_follows = false;
            one.state = match line {
                "shut off" | "crashed" | "no state" => PowerState::Off,
                _ => PowerState::On,
            };
        }
        // Interface, type, source, model, MAC.
        let mac = line.split_whitespace().last();
        let mac = mac.and_then(|mac| mac.parse::<MacAddr>().ok());
        if mac.is_some_and(|mac| macs.contains(&mac)) {
            return domain;
        }
    }
    None
}
