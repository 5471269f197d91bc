//! Media that a BMC gives to its machine: the ISO image of the agent, or that of an instance.
//!
//! The image of the agent is one file for all nodes. It is served with the kernel arguments of
//! the node in the areas that `trivet-image iso` leaves for them, so that no image is made for a
//! boot.

use std::net::IpAddr;

use serde_json::Value;
use trivet_bootfiles::{agent_arguments, misread_character, node_boot_path};
use trivet_drivers::{BootMedium, bmc_addresses, boot_medium, external_http_url};
use trivet_model::bmc_request::MediaDevice;
use trivet_model::secret::SecretText;
use trivet_model::{BmcRequest, BootPlan, Node, NodeId, NoteKind, Now, PowerError};
use trivet_node::NodeEvent;

use super::plan::AGENT_FILES;
use crate::{FileGrant, Rack};

/// The last part of the path of the agent's image. No key of a record has this name.
pub(crate) const AGENT_ISO: &str = "agent.iso";

const NO_ISO: PowerError = PowerError::Unsupported {
    message: "the box has no ISO image of the agent: make it with trivet-image iso, set boot.iso",
};

const OTHER_AGENT: PowerError = PowerError::Unsupported {
    message: "the node has a deploy_kernel or rescue_kernel of its own, which no ISO image has",
};

const NO_ISO_OF_INSTANCE: PowerError = PowerError::Unsupported {
    message: "the instance is not an ISO image: give boot_iso in instance_info",
};

const NO_MEDIUM: PowerError = PowerError::Unsupported {
    message: "the boot interface of the node uses no medium",
};

impl Rack {
    /// The job needs the medium that the machine boots next.
    pub(crate) fn insert_medium(&mut self, now: Now, id: NodeId) {
        let Some(node) = self.records.node(id) else {
            return;
        };
        match self.medium(node) {
            Ok(request) => {
                let (bmcs, mut context) = self.bmcs_and_context(now);
                bmcs.medium_request(&mut context, id, &request);
            }
            Err(error) => {
                let event = NodeEvent::MediumReady(Err(error));
                self.events.push_back((id, event));
            }
        }
    }

    pub(crate) fn eject_medium(&mut self, now: Now, id: NodeId) {
        let devices = vec![MediaDevice::Cdrom];
        let (bmcs, mut context) = self.bmcs_and_context(now);
        bmcs.medium_request(&mut context, id, &BmcRequest::EjectMedia { devices });
    }

    pub(crate) fn medium_answered(
        &mut self,
        now: Now,
        id: NodeId,
        ejects: bool,
        result: Result<(), PowerError>,
    ) {
        if !ejects {
            let event = NodeEvent::MediumReady(result);
            return self.events.push_back((id, event));
        }
        if let Err(error) = result {
            let why = format!("the medium that the machine has booted was not ejected: {error}");
            self.note(now, Some(id), NoteKind::Warning { why });
        }
    }

    /// The request that gives the machine its medium.
    fn medium(&self, node: &Node) -> Result<BmcRequest, PowerError> {
        let medium = boot_medium(node).ok_or(NO_MEDIUM)?;
        // The BMC reads the image, perhaps on a network of its own.
        let bmc = bmc_addresses(node).first().copied();
        let mut urls = self.settings.urls_for(bmc);
        if let Ok(Some(external)) = external_http_url(&node.driver_info) {
            external.clone_into(&mut urls.http);
        }
        let boots_agent = trivet_node::boots_agent(node);
        let url = if boots_agent {
            let mut own = AGENT_FILES.into_iter();
            if own.any(|key| node.driver_info.get(key).is_some_and(Value::is_string)) {
                return Err(OTHER_AGENT);
            }
            self.settings.files.iso.as_ref().ok_or(NO_ISO)?;
            format!("{}{}", urls.http, node_boot_path(node.id, AGENT_ISO))
        } else {
            match self.boot_plan(node, &urls) {
                BootPlan::Iso { url } => url,
                _ => return Err(NO_ISO_OF_INSTANCE),
            }
        };
        let url = SecretText::new(url);
        Ok(match medium {
            BootMedium::VirtualCd => BmcRequest::InsertMedia {
                device: MediaDevice::Cdrom,
                url,
            },
            BootMedium::FirmwareUrl => BmcRequest::BootUrl {
                url,
                // An instance without a disk boots in this way each time.
                persistent: !boots_agent,
            },
        })
    }

    /// The image of the agent for this node, as long as its job boots the agent.
    pub(crate) fn agent_iso(&self, node: &Node) -> Option<FileGrant> {
        let iso = self.settings.files.iso.as_ref()?;
        // The BMC requests the image, so its address does not tell the network of the machine.
        let leased = self.leased_to(node.id).first().copied();
        let urls = self.settings.urls_for(leased.map(IpAddr::V4));
        let plan = self.boot_plan(node, &urls);
        let ports = self.records.ports_of(node.id);
        // With several ports it is not known which one is connected.
        let mac = match &ports[..] {
            [only] => Some(only.address),
            _ => None,
        };
        let arguments = agent_arguments(mac, &plan)?;
        if let Some(character) = misread_character(&arguments) {
            return Some(FileGrant::Unavailable(format!(
                "the kernel arguments of this node have the character {character:?}, which a \
                 loader in boot.iso would misread"
            )));
        }
        let patches = iso.areas.iter().map(|(at, length)| {
            let area = area(&arguments, *length)?;
            Some((*at, area))
        });
        match patches.collect() {
            Some(patches) => Some(FileGrant::PatchedFile {
                file: iso.file.clone(),
                data: self.settings.files.data.clone(),
                patches,
            }),
            None => Some(FileGrant::Unavailable(
                "the kernel arguments of this node do not fit into the menus of boot.iso"
                    .to_owned(),
            )),
        }
    }
}

/// The arguments and blanks up to the end of the area. None if they do not fit.
fn area(arguments: &str, length: usize) -> Option<Vec<u8>> {
    (arguments.len() <= length).then(|| format!("{arguments:<length$}").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_is_filled_with_blanks() {
        assert_eq!(area("a=1 b", 8).unwrap(), b"a=1 b   ");
        assert_eq!(area("a=1 b", 5).unwrap(), b"a=1 b");
        assert_eq!(area("a=1 b", 4), None);
    }
}
