//! Boots from a medium of the BMC: a virtual CD, or a URL that the firmware loads.
//!
//! The medium is inserted before the boot device is set and ejected when the agent is no longer
//! needed. A machine that cannot use its medium boots from the network, as it would without: a
//! BMC that fails must not fail the job.

use core::num::NonZeroU32;

use trivet_drivers::{BootMedium, boot_medium, boot_mode};
use trivet_model::{BootDevice, JobKind, JobPhase, NoteKind, PowerError, PowerOrder};

use crate::{NodeAction, NodeTransition};

impl NodeTransition<'_> {
    /// Whether the coming boot is from a medium. A machine that did not come up with it boots
    /// from the network.
    pub(super) fn uses_medium(&self) -> bool {
        let boots = self.node.job.as_ref().and_then(|job| job.boots);
        boot_medium(&self.node).is_some() && boots.is_none_or(|boots| boots == NonZeroU32::MIN)
    }

    /// The order for the boot device of the coming boot.
    pub(super) fn boot_order(&self, device: BootDevice) -> PowerOrder {
        PowerOrder::SetBoot {
            device,
            // An instance without a disk boots in this way each time.
            persistent: self.node.job.as_ref().is_none_or(|job| job.boots.is_none()),
            efi: boot_mode(&self.node) == Some("uefi"),
        }
    }

    pub(super) fn medium_ready(&mut self, phase: JobPhase, result: Result<(), PowerError>) {
        if phase != JobPhase::BootFromNet {
            return;
        }
        match (result, boot_medium(&self.node)) {
            (Ok(()), Some(BootMedium::VirtualCd)) => {
                let order = self.boot_order(BootDevice::Cdrom);
                self.actions.push(NodeAction::Power(order));
            }
            // The request has also set the boot device.
            (Ok(()), Some(BootMedium::FirmwareUrl)) => self.boot_device_set(),
            // The operator has chosen another interface meanwhile.
            (Ok(()), None) => self.boot_from_net(),
            (Err(error), _) => self.medium_failed(&error),
        }
    }

    /// The machine boots from the network instead.
    pub(super) fn medium_failed(&mut self, error: &PowerError) {
        self.note(NoteKind::Warning {
            why: format!("{error}; the machine boots from the network instead of its medium"),
        });
        self.boot_from_net();
    }

    fn boot_from_net(&mut self) {
        let order = self.boot_order(BootDevice::Pxe);
        self.actions.push(NodeAction::Power(order));
    }

    pub(super) fn eject_medium(&mut self) {
        if boot_medium(&self.node) == Some(BootMedium::VirtualCd) {
            self.actions.push(NodeAction::EjectMedium);
        }
    }

    /// The job ends: ejects the medium of the agent. That of an instance stays, and a job that
    /// has started an instance from its disk has ejected it before.
    pub(crate) fn eject_agent_medium(&mut self) {
        let Some(job) = &self.node.job else { return };
        let starts_instance = matches!(
            job.kind,
            JobKind::Deploy | JobKind::Service | JobKind::Unrescue
        );
        let has_started = starts_instance && job.phase == JobPhase::StartInstance;
        // An instance that boots from a medium keeps it; no agent boots any more.
        if job.boots.is_some() && !has_started {
            self.eject_medium();
        }
    }
}
