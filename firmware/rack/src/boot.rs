//! Booting: which files machines get, and what their requests show about them.

mod boot_queue;
pub(crate) mod medium;
pub(crate) mod plan;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use trivet_bootfiles::{BootRoute, RelativePath};
use trivet_bootqueue::BootQueue;
use trivet_model::{NodeCertificate, NodeId, NoteKind, Now, Tick};

use crate::agents::NEEDS_CERTIFICATE;
use crate::records::RecordIndex;
use crate::{ConfinedFile, FileGrant, FileServerProtocol, Rack, RackFilePaths, Settings};

/// A refusal is noted again only if it is not among this many of the node's latest notes. Ours.
const REFUSALS_COMPARED_MAX: usize = 8;

/// What is under way with machines that boot, and not on flash.
pub(crate) struct BootPart {
    /// Which machines boot from the network, and which wait for admission.
    queue: BootQueue,
}

impl BootPart {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            queue: boot_queue::new_boot_queue(settings),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.queue.deadline()
    }

    pub(crate) fn tick(&mut self, now: Tick) {
        self.queue.tick(now);
    }

    /// Whether the node waits for admission.
    pub(crate) fn is_queued(&self, id: NodeId) -> bool {
        self.queue.is_queued(id)
    }

    /// The machine was seen on the network or through its agent.
    pub(crate) fn machine_seen(&mut self, now: Tick, id: NodeId) {
        self.queue.machine_seen(now, id);
    }

    /// The agent was seen: the machine has booted.
    pub(crate) fn boot_finished(&mut self, id: NodeId) {
        self.queue.boot_finished(id);
    }

    /// The node was deleted.
    pub(crate) fn remove_node(&mut self, records: &mut RecordIndex, id: NodeId) {
        let Self { queue } = self;
        let place = queue.remove(id);
        self.renumber(records, id, place);
    }
}

impl Rack {
    pub(crate) fn file_requested(
        &mut self,
        now: Now,
        protocol: FileServerProtocol,
        (peer, certificate): (IpAddr, Option<NodeCertificate>),
        path: &str,
    ) -> Option<FileGrant> {
        let route = match protocol {
            FileServerProtocol::Tftp => trivet_bootfiles::tftp_route(path)?,
            FileServerProtocol::Http => trivet_bootfiles::http_route(path)?,
        };
        // Where another server leases the addresses, the path of the script names the machine.
        let named = match &route {
            BootRoute::Script(mac) => self.records.node_of_mac(*mac),
            _ => None,
        };
        if let Some(id) = self.node_of_peer(peer).or(named) {
            self.machine_seen(now, id);
            if let BootRoute::Script(_) | BootRoute::Kernel | BootRoute::Ramdisk = &route {
                self.agents.restart_seen(id);
            }
        }
        if let BootRoute::NodeImage(id) | BootRoute::NodeDrive(id) = &route
            && !self.may_fetch(now, *id, peer, certificate)
        {
            return Some(FileGrant::Forbidden(NEEDS_CERTIFICATE));
        }
        let files = &self.settings.files;
        match route {
            BootRoute::Script(mac) => {
                let script = self.script(mac, peer);
                self.script_sent(mac);
                Some(FileGrant::Bytes(script.into_bytes()))
            }
            BootRoute::Kernel => files.kernel.as_ref().map(|file| configured(file, files)),
            BootRoute::Ramdisk => files.ramdisk.as_ref().map(|file| configured(file, files)),
            BootRoute::Image(name) => {
                if self.settings.images.find(&name).is_none() {
                    if let Some(wanted) = self.catalogued(&name) {
                        return Some(self.image_grant(now, wanted));
                    }
                    let of = name.strip_suffix(trivet_bootfiles::CHUNK_LIST_END)?;
                    return self.images.grant_chunk_list(&self.catalogued(of)?);
                }
                let root = files.images.clone()?;
                Some(FileGrant::File(vec![ConfinedFile {
                    file: root.join(name),
                    root,
                    data: None,
                }]))
            }
            BootRoute::NodeImage(id) => self.node_image(now, peer, id, path),
            BootRoute::NodeBootFile(id, key) => self.node_boot_file(now, peer, id, &key),
            BootRoute::NodeDrive(id) => self.node_drive(peer, id, path),
            BootRoute::Loader(relative) => confined_file(files.loaders.iter(), files, &relative),
            BootRoute::File(relative) => {
                let loaders = match protocol {
                    FileServerProtocol::Tftp => files.loaders.as_ref(),
                    FileServerProtocol::Http => None,
                };
                confined_file(files.operator.iter().chain(loaders), files, &relative)
            }
        }
    }

    pub(crate) fn file_sent(
        &mut self,
        now: Now,
        peer: IpAddr,
        protocol: FileServerProtocol,
        path: String,
        (sent, requested, took_ms): (u64, u64, u64),
        ended: bool,
    ) {
        let Some(id) = self.node_of_peer(peer) else {
            return;
        };
        let shown = trivet_bootfiles::redacted(&path);
        self.records.change_view(id, |view| {
            view.live.transfer = (!ended).then_some((sent, requested));
            view.live.transfer_path = (!ended).then(|| shown.clone());
        });
        let file = trivet_bootqueue::FetchedBootFile {
            sent,
            requested,
            took_ms,
        };
        self.boot_file_progress(now, id, &path, file, ended);
        if ended {
            let kind = NoteKind::FileSent {
                by: protocol.name(),
                path: shown,
                sent,
                requested,
                took_ms,
            };
            self.note(now, Some(id), kind);
        }
    }

    /// A machine was refused a file. A machine that repeats its request is noted once.
    pub(crate) fn file_refused(
        &mut self,
        now: Now,
        (peer, protocol): (IpAddr, FileServerProtocol),
        path: String,
        (answer, why): (&'static str, String),
    ) {
        let Some(id) = self.node_of_peer(peer) else {
            return;
        };
        let kind = NoteKind::FileRefused {
            by: protocol.name(),
            path: trivet_bootfiles::redacted(&path),
            answer,
            why: crate::agents::callers::redacted(why),
        };
        let view = self.records.view.nodes.get(&id);
        let latest = view.map(|view| view.timeline.iter().rev().take(REFUSALS_COMPARED_MAX));
        if latest.is_some_and(|mut notes| notes.any(|note| note.kind == kind)) {
            return;
        }
        self.note(now, Some(id), kind);
    }

    /// The node that has this address, leased by this box or by another server.
    pub(crate) fn node_of_peer(&self, peer: IpAddr) -> Option<NodeId> {
        let IpAddr::V4(address) = peer else {
            return None;
        };
        let elsewhere = || self.lan.holder(address);
        let mac = self.records.holder(address).or_else(elsewhere)?;
        self.records.node_of_mac(mac)
    }
}

/// A path below the first of these directories that has the file.
fn confined_file<'a>(
    roots: impl Iterator<Item = &'a PathBuf>,
    files: &RackFilePaths,
    relative: &RelativePath,
) -> Option<FileGrant> {
    let candidates: Vec<_> = roots
        .map(|root| ConfinedFile {
            root: root.clone(),
            file: relative
                .segments()
                .fold(root.clone(), |path, part| path.join(part)),
            data: files.data.clone(),
        })
        .collect();
    (!candidates.is_empty()).then_some(FileGrant::File(candidates))
}

/// A file that the settings name by its whole path.
fn configured(file: &Path, files: &RackFilePaths) -> FileGrant {
    FileGrant::NamedFile {
        file: file.to_owned(),
        data: files.data.clone(),
    }
}
