//! What the notes of a job show.

mod boot;

use serde::{Deserialize, Serialize};
use trivet_model::{EvidenceNote, ImageProblem, NoteKind, ProvisionState, UnixMs, Verb};

pub use boot::{
    AgentCallEvidence, BootEvidence, FileEvidence, LookupEvidence, OtherServerEvidence,
    RefusedFileEvidence, UnservedLinkEvidence,
};

/// The most unknown machines of one job that are remembered. Ours.
pub const UNKNOWN_MACHINES_PER_JOB_MAX: usize = 4;

/// The longest text of the evidence, in bytes. Ours: all evidence of a job fits into its record.
pub const EVIDENCE_TEXT_BYTES_MAX: usize = 240;

/// The longest error message of an image, in bytes: it has two digests. Ours.
const IMAGE_ERROR_BYTES_MAX: usize = 480;

/// The step that writes the image (Ironic's name).
const WRITE_IMAGE: &str = "write_image";

/// What the notes of a job show, as typed facts that the rules read. Its size is bounded.
///
/// [`Self::begin`] starts it. It stays after the end of the job, until the next one begins: the
/// first boot from disk belongs to it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct JobEvidence {
    /// When the last note was taken.
    pub last_note_at: Option<UnixMs>,
    /// The job runs.
    pub is_running: bool,
    /// How many times the machine was switched on or reset.
    pub boots: u32,
    /// The latest boot.
    pub boot: BootEvidence,
    /// The last failure of an order to the BMC, unless a later one succeeded.
    pub bmc: Option<BmcEvidence>,
    /// An order of an operator was refused since the last job.
    pub has_refused_order: bool,
    /// An operator has aborted the job.
    #[serde(default)]
    pub is_aborted: bool,
    /// Machines that are no port of a node and were first seen during this job.
    pub unknown_machines: Vec<UnknownMachineEvidence>,
    /// Machines of other nodes that nobody switched on and that requested a boot meanwhile.
    #[serde(default)]
    pub other_nodes: Vec<OtherNodeEvidence>,
    /// The image that ended the job.
    pub image: Option<ImageEvidence>,
    /// No disk fits the hints of the record.
    pub disk: Option<DiskEvidence>,
    /// The transfer of the image to the machine.
    pub image_transfer: Option<FileEvidence>,
    /// When the image was written.
    pub written_at: Option<UnixMs>,
    /// When the deployment was complete.
    pub deployed_at: Option<UnixMs>,
    /// When the firmware requested a network boot after the deployment was complete.
    pub net_boot_after_deploy_at: Option<UnixMs>,
}

/// A failed order to the BMC.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct BmcEvidence {
    /// The kind, see `PowerError::kind`.
    pub kind: String,
    /// The whole error message.
    pub message: String,
    /// When it failed.
    pub at: UnixMs,
    /// How many orders in a row failed.
    pub tries: u32,
}

/// A machine that is no port of a node.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UnknownMachineEvidence {
    /// Its hardware address.
    pub mac: String,
    /// When it requested an address.
    pub at: UnixMs,
}

/// A machine that has a port of another node, which has no job.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct OtherNodeEvidence {
    /// The UUID of that node.
    pub node: String,
    /// The hardware address.
    pub mac: String,
    /// When it requested an address.
    pub at: UnixMs,
}

/// Why an image cannot be used.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ImageEvidence {
    /// Its name.
    pub image: String,
    /// What is wrong with it.
    pub problem: ImageProblemKind,
    /// The whole error message.
    pub why: String,
}

/// What is wrong with an image.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum ImageProblemKind {
    /// The source has something else than the record says.
    Different,
    /// It cannot be fetched.
    Unavailable,
    /// It is larger than where it is written.
    TooLarge,
}

/// A disk was not found.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DiskEvidence {
    /// The hints of the record.
    pub hints: String,
    /// The disks of the inventory.
    pub disks: String,
}

/// A text of at most [`EVIDENCE_TEXT_BYTES_MAX`] bytes.
pub(crate) fn bounded(text: &str) -> String {
    cut(text, EVIDENCE_TEXT_BYTES_MAX)
}

fn cut(text: &str, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

impl JobEvidence {
    /// A job begins: what is known of the one before is dropped.
    pub fn begin(&mut self) {
        *self = Self {
            is_running: true,
            ..Self::default()
        };
    }

    /// Takes one note of the job's node into account.
    pub fn observe(&mut self, at: UnixMs, kind: &NoteKind) {
        self.last_note_at = Some(at);
        match kind {
            NoteKind::PowerOrdered { order } if switches_on(order) => self.switched_on(at),
            NoteKind::PowerAccepted { order } => {
                self.bmc = None;
                if switches_on(order) && self.boot.first_frame_at.is_none() {
                    self.boot.switched_on_at = Some(at);
                }
            }
            NoteKind::PowerIs(_) | NoteKind::Evidence(EvidenceNote::BmcAnswersAgain) => {
                self.bmc = None;
            }
            NoteKind::PowerFailed { kind, message }
            | NoteKind::Evidence(EvidenceNote::BmcRequestRepeated { kind, message }) => {
                self.bmc_failed(at, kind, message);
            }
            NoteKind::OrderReceived { refused, order, .. } if order.parse::<Verb>().is_ok() => {
                self.has_refused_order = refused.is_some() && !self.is_running;
                self.is_aborted |= refused.is_none() && order.parse() == Ok(Verb::Abort);
            }
            NoteKind::StepDone { step } if step == WRITE_IMAGE => self.written_at = Some(at),
            NoteKind::StateChanged { to, .. } if *to == ProvisionState::Active => {
                self.deployed_at = Some(at);
            }
            NoteKind::Evidence(evidence) => self.observe_evidence(evidence),
            _ => {}
        }
        self.observe_image_transfer(at, kind);
        self.boot.observe(at, kind);
        if let NoteKind::Dhcp { firmware, .. } = kind
            && boot::is_firmware(firmware)
            && self.deployed_at.is_some()
            && self.net_boot_after_deploy_at.is_none()
        {
            self.net_boot_after_deploy_at = Some(at);
        }
    }

    fn bmc_failed(&mut self, at: UnixMs, kind: &str, message: &str) {
        let before = self.bmc.as_ref().map_or(0, |before| before.tries);
        self.bmc = Some(BmcEvidence {
            kind: kind.to_owned(),
            message: bounded(message),
            at,
            tries: before.saturating_add(1),
        });
    }

    /// The job switches its machine on or resets it: a boot begins. Called also where no note
    /// says so, because a person or nobody carries out the order.
    pub fn switched_on(&mut self, at: UnixMs) {
        self.boots = self.boots.saturating_add(1);
        self.boot = BootEvidence {
            switched_on_at: Some(at),
            ..BootEvidence::default()
        };
    }

    /// A machine that is no port of a node was seen for the first time.
    pub fn observe_unknown_machine(&mut self, at: UnixMs, mac: &str) {
        let known = self.unknown_machines.iter().any(|known| known.mac == mac);
        let has_space = self.unknown_machines.len() < UNKNOWN_MACHINES_PER_JOB_MAX;
        if self.awaits_first_frame() && has_space && !known {
            let mac = bounded(mac);
            self.unknown_machines
                .push(UnknownMachineEvidence { mac, at });
        }
    }

    /// The machine of another node, which has no job, requested a network boot.
    pub fn observe_other_node(&mut self, at: UnixMs, node: &str, mac: &str) {
        let known = self.other_nodes.iter().any(|known| known.mac == mac);
        let has_space = self.other_nodes.len() < UNKNOWN_MACHINES_PER_JOB_MAX;
        if self.awaits_first_frame() && has_space && !known {
            let (node, mac) = (bounded(node), bounded(mac));
            self.other_nodes.push(OtherNodeEvidence { node, mac, at });
        }
    }

    /// Whether the machine was switched on and has sent nothing since.
    fn awaits_first_frame(&self) -> bool {
        let boot = &self.boot;
        self.is_running && boot.switched_on_at.is_some() && boot.first_frame_at.is_none()
    }

    fn observe_evidence(&mut self, evidence: &EvidenceNote) {
        match evidence {
            EvidenceNote::DiskNotFound { hints, disks } => {
                self.disk = Some(DiskEvidence {
                    hints: bounded(hints),
                    disks: bounded(disks),
                });
            }
            EvidenceNote::ImageUnusable {
                problem,
                image,
                why,
            } => {
                self.image = Some(ImageEvidence {
                    image: bounded(image),
                    problem: match problem {
                        ImageProblem::Different => ImageProblemKind::Different,
                        ImageProblem::Unavailable => ImageProblemKind::Unavailable,
                        ImageProblem::TooLarge => ImageProblemKind::TooLarge,
                    },
                    why: cut(why, IMAGE_ERROR_BYTES_MAX),
                });
            }
            _ => {}
        }
    }

    fn observe_image_transfer(&mut self, at: UnixMs, kind: &NoteKind) {
        if let NoteKind::FileSent {
            by,
            path,
            sent,
            requested,
            took_ms,
        } = kind
            && boot::role_of(by, path) == boot::FileRole::Image
        {
            self.image_transfer = Some(FileEvidence {
                path: bounded(path),
                sent: *sent,
                requested: *requested,
                took_ms: *took_ms,
                tries: 1,
                at,
            });
        }
    }
}

/// Whether a file with this path is a loader: kernels, ramdisks and images have paths of their
/// own.
pub(crate) fn is_loader(path: &str) -> bool {
    !path.starts_with('/') || boot::role_of("HTTP", path) == boot::FileRole::Loader
}

/// The hardware address in a note of firmware that boots from the network.
pub fn net_boot_mac(kind: &NoteKind) -> Option<trivet_model::MacAddr> {
    match kind {
        NoteKind::Dhcp { mac, firmware, .. } if boot::is_firmware(firmware) => Some(*mac),
        _ => None,
    }
}

/// Whether a power order starts the machine (`PowerOrder::switches`).
fn switches_on(order: &str) -> bool {
    matches!(order, "power on" | "power off and on" | "reset")
}

#[cfg(test)]
mod tests;
