//! What the notes of one boot show: from power-on to the agent's heartbeat.

use serde::{Deserialize, Serialize};
use trivet_model::{EvidenceNote, NoteKind, UnixMs};

use super::bounded;
use crate::Stage;

/// The name of a running system in notes of DHCP exchanges; all other names are of firmware and
/// loaders.
const SYSTEM: &str = "operating system";

/// How the names of iPXE begin there.
const IPXE: &str = "iPXE";

/// What the notes of one boot show.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct BootEvidence {
    /// When the machine was switched on or reset.
    pub switched_on_at: Option<UnixMs>,
    /// When the first packet of the machine arrived.
    pub first_frame_at: Option<UnixMs>,
    /// The address that the box confirmed or the other server offered.
    pub address: Option<String>,
    /// The boot file that the firmware was told.
    pub boot_file: Option<String>,
    /// When the loader (iPXE) requested an address.
    pub ipxe_at: Option<UnixMs>,
    /// It requested an address where the box sends nothing.
    pub unserved: Option<UnservedLinkEvidence>,
    /// It chose the offer of another server.
    pub other_server: Option<OtherServerEvidence>,
    /// The loader.
    pub loader: Option<FileEvidence>,
    /// The script of the loader.
    pub script: Option<FileEvidence>,
    /// The kernel.
    pub kernel: Option<FileEvidence>,
    /// The ramdisk.
    pub ramdisk: Option<FileEvidence>,
    /// The last file that was refused.
    pub refused: Option<RefusedFileEvidence>,
    /// A lookup that matched no single node.
    pub lookup: Option<LookupEvidence>,
    /// When the agent looked its node up.
    pub looked_up_at: Option<UnixMs>,
    /// When its first heartbeat arrived.
    pub agent_ready_at: Option<UnixMs>,
    /// A call to it that failed.
    pub agent_call: Option<AgentCallEvidence>,
}

/// The transfer of a file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FileEvidence {
    /// Its path, without secrets.
    pub path: String,
    /// Bytes that were sent the last time.
    pub sent: u64,
    /// Bytes that were requested.
    pub requested: u64,
    /// The duration of the last transfer in ms.
    pub took_ms: u64,
    /// How many times it was transferred in this boot.
    pub tries: u32,
    /// When the last transfer ended.
    pub at: UnixMs,
}

impl FileEvidence {
    /// Whether all of it was sent.
    pub const fn is_whole(&self) -> bool {
        self.sent == self.requested && self.requested > 0
    }

    /// Bytes per second.
    pub fn rate(&self) -> u64 {
        self.sent.saturating_mul(1000) / self.took_ms.max(1)
    }
}

/// A file that was refused.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RefusedFileEvidence {
    /// TFTP or HTTP.
    pub by: String,
    /// Its path, without secrets.
    pub path: String,
    /// The error of the protocol.
    pub answer: String,
    /// The reason.
    pub why: String,
}

/// A link where the box sends nothing.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UnservedLinkEvidence {
    /// The interface.
    pub link: String,
    /// The hardware address of the machine.
    pub mac: String,
}

/// Another DHCP server.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct OtherServerEvidence {
    /// The interface.
    pub link: String,
    /// The address that the machine gets.
    pub address: String,
    /// The server identifier.
    pub server: String,
}

/// A lookup that matched no single node.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LookupEvidence {
    /// The hardware addresses of the machine.
    pub macs: Vec<String>,
    /// How many nodes have one of them.
    pub nodes: u32,
}

/// A call to the agent that failed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AgentCallEvidence {
    /// The URL.
    pub url: String,
    /// The error of the connection.
    pub error: String,
}

/// What a file is for the boot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum FileRole {
    Loader,
    Script,
    Kernel,
    Ramdisk,
    Image,
}

/// The role of a file by the paths that the box gives to machines.
pub(super) fn role_of(by: &str, path: &str) -> FileRole {
    let last = path.rsplit('/').next().unwrap_or_default();
    match last {
        _ if by == "TFTP" => FileRole::Loader,
        "script" => FileRole::Script,
        "kernel" | "deploy_kernel" | "rescue_kernel" => FileRole::Kernel,
        "ramdisk" | "deploy_ramdisk" | "rescue_ramdisk" => FileRole::Ramdisk,
        _ if path.starts_with("/boot/") => FileRole::Loader,
        _ => FileRole::Image,
    }
}

/// Whether an exchange is of firmware that boots from the network, not of a loader or system.
pub(super) fn is_firmware(name: &str) -> bool {
    name != SYSTEM && !name.starts_with(IPXE)
}

impl BootEvidence {
    /// The first stage that is not complete.
    pub fn stage(&self) -> Stage {
        let whole = |file: &Option<FileEvidence>| file.as_ref().is_some_and(FileEvidence::is_whole);
        if self.agent_ready_at.is_some() {
            Stage::Steps
        } else if self.looked_up_at.is_some() || self.lookup.is_some() || whole(&self.ramdisk) {
            Stage::Agent
        } else if whole(&self.kernel) {
            Stage::Ramdisk
        } else if whole(&self.script) {
            Stage::Kernel
        } else if whole(&self.loader) || self.ipxe_at.is_some() {
            Stage::Script
        } else if self.address.is_some() && self.other_server.is_none() {
            Stage::Loader
        } else if self.first_frame_at.is_some() {
            Stage::Address
        } else if self.switched_on_at.is_some() {
            Stage::Post
        } else {
            Stage::Power
        }
    }

    pub(super) fn observe(&mut self, at: UnixMs, kind: &NoteKind) {
        match kind {
            NoteKind::Dhcp {
                request,
                reply,
                address,
                firmware,
                boot,
                ..
            } => {
                self.first_frame_at.get_or_insert(at);
                if firmware.starts_with(IPXE) {
                    self.ipxe_at.get_or_insert(at);
                } else if is_firmware(firmware) {
                    if let Some(boot) = boot {
                        self.boot_file = Some(bounded(boot));
                    }
                    if let (Some(address), Some("ACK"), "REQUEST") = (address, *reply, *request) {
                        self.address = Some(address.to_string());
                        self.other_server = None;
                    }
                }
            }
            NoteKind::FileSent {
                by,
                path,
                sent,
                requested,
                took_ms,
            } => {
                self.first_frame_at.get_or_insert(at);
                self.observe_file(at, (by, path), (*sent, *requested, *took_ms));
            }
            NoteKind::FileRefused {
                by,
                path,
                answer,
                why,
            } if !crate::boot_path::is_optional(path) => {
                self.first_frame_at.get_or_insert(at);
                self.refused = Some(RefusedFileEvidence {
                    by: (*by).to_owned(),
                    path: bounded(path),
                    answer: (*answer).to_owned(),
                    why: bounded(why),
                });
            }
            NoteKind::AgentLookedUp { .. } => {
                self.first_frame_at.get_or_insert(at);
                self.looked_up_at = Some(at);
                self.lookup = None;
            }
            NoteKind::AgentReady { .. } => self.agent_ready_at = Some(at),
            NoteKind::StepStarted { .. } => self.agent_call = None,
            NoteKind::Evidence(evidence) => self.observe_evidence(at, evidence),
            _ => {}
        }
    }

    fn observe_file(
        &mut self,
        at: UnixMs,
        (by, path): (&str, &str),
        (sent, requested, took_ms): (u64, u64, u64),
    ) {
        let file = match role_of(by, path) {
            FileRole::Loader => &mut self.loader,
            FileRole::Script => &mut self.script,
            FileRole::Kernel => &mut self.kernel,
            FileRole::Ramdisk => &mut self.ramdisk,
            FileRole::Image => return,
        };
        let tries = file.as_ref().map_or(0, |file| file.tries);
        *file = Some(FileEvidence {
            path: bounded(path),
            sent,
            requested,
            took_ms,
            tries: tries.saturating_add(1),
            at,
        });
    }

    fn observe_evidence(&mut self, at: UnixMs, evidence: &EvidenceNote) {
        match evidence {
            EvidenceNote::DhcpNotServed { link, mac } => {
                self.first_frame_at.get_or_insert(at);
                self.unserved = Some(UnservedLinkEvidence {
                    link: bounded(link),
                    mac: mac.to_string(),
                });
            }
            EvidenceNote::OtherServerChosen {
                link,
                address,
                server,
                ..
            } => {
                self.first_frame_at.get_or_insert(at);
                self.other_server = Some(OtherServerEvidence {
                    link: bounded(link),
                    address: address.to_string(),
                    server: server.to_string(),
                });
            }
            EvidenceNote::LookupUnmatched { macs, nodes, .. } => {
                self.lookup = Some(LookupEvidence {
                    macs: macs.iter().map(ToString::to_string).collect(),
                    nodes: u32::try_from(*nodes).unwrap_or(u32::MAX),
                });
            }
            EvidenceNote::AgentUnreachable { url, error } => {
                self.agent_call = Some(AgentCallEvidence {
                    url: bounded(url),
                    error: bounded(error),
                });
            }
            EvidenceNote::BmcRequestRepeated { .. }
            | EvidenceNote::BmcAnswersAgain
            | EvidenceNote::DiskNotFound { .. }
            | EvidenceNote::ImageUnusable { .. } => {}
        }
    }
}
