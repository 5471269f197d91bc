//! Booting: files for machines, and what that tells of them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use trivet_httpboot::{Relative, Route};
use trivet_model::{NodeId, NoteKind, Now};

use crate::{Below, Door, Files, Grant, Rack};

/// Among how many of the latest notes of a node a refusal is looked for before it is noted
/// again. Ours.
const REFUSALS_COMPARED_MAX: usize = 8;

impl Rack {
    pub(crate) fn file_asked(
        &mut self,
        now: Now,
        door: Door,
        peer: IpAddr,
        path: &str,
    ) -> Option<Grant> {
        let route = match door {
            Door::Tftp => trivet_httpboot::tftp(path)?,
            Door::Http => trivet_httpboot::http(path)?,
        };
        // Where another server gives the addresses, the path of the script names the machine.
        let named = match &route {
            Route::Script(mac) => self.book.node_of_mac(*mac),
            _ => None,
        };
        if let Some(id) = self.node_of_peer(peer).or(named) {
            self.machine_heard(now, id);
            if let Route::Script(_) | Route::Kernel | Route::Ramdisk = &route {
                self.restart_seen(id);
            }
        }
        let files = &self.settings.files;
        match route {
            Route::Script(mac) => {
                let script = self.script(mac, peer);
                self.script_given(mac);
                Some(Grant::Bytes(script.into_bytes()))
            }
            Route::Kernel => files.kernel.as_ref().map(|file| configured(file, files)),
            Route::Ramdisk => files.ramdisk.as_ref().map(|file| configured(file, files)),
            Route::Image(name) => {
                if self.settings.images.find(&name).is_none() {
                    if let Some(wanted) = self.catalogued(&name) {
                        return Some(Grant::Image(Box::new(wanted)));
                    }
                    let of = name.strip_suffix(trivet_httpboot::CHUNK_LIST_END)?;
                    let wanted = self.catalogued(of)?;
                    return Some(Grant::ChunkList(Box::new(wanted)));
                }
                let root = files.images.clone()?;
                Some(Grant::File(vec![Below {
                    file: root.join(name),
                    root,
                }]))
            }
            Route::NodeImage(id) => self.node_image(peer, id, path),
            Route::NodeBootFile(id, key) => self.node_boot_file(now, peer, id, &key),
            Route::NodeDrive(id) => self.node_drive(peer, id, path),
            Route::Loader(relative) => below(files.loaders.iter(), &relative),
            Route::File(relative) => {
                let loaders = match door {
                    Door::Tftp => files.loaders.as_ref(),
                    Door::Http => None,
                };
                below(files.operator.iter().chain(loaders), &relative)
            }
        }
    }

    pub(crate) fn file_sent(
        &mut self,
        now: Now,
        peer: IpAddr,
        door: Door,
        path: String,
        (sent, asked, took_ms): (u64, u64, u64),
        ended: bool,
    ) {
        let Some(id) = self.node_of_peer(peer) else {
            return;
        };
        let shown = trivet_httpboot::redacted(&path);
        self.book.change_view(id, |view| {
            view.live.transfer = (!ended).then_some((sent, asked));
            view.live.transfer_path = (!ended).then(|| shown.clone());
        });
        let file = trivet_storm::Fetched {
            sent,
            asked,
            took_ms,
        };
        self.boot_loads(now, id, &path, file, ended);
        if ended {
            let kind = NoteKind::FileSent {
                by: door.name(),
                path: shown,
                sent,
                asked,
                took_ms,
            };
            self.note(now, Some(id), kind);
        }
    }

    /// A machine was refused a file. A machine that repeats its request is noted once.
    pub(crate) fn file_refused(
        &mut self,
        now: Now,
        (peer, door): (IpAddr, Door),
        path: String,
        (answer, why): (&'static str, String),
    ) {
        let Some(id) = self.node_of_peer(peer) else {
            return;
        };
        let kind = NoteKind::FileRefused {
            by: door.name(),
            path: trivet_httpboot::redacted(&path),
            answer,
            why: crate::callers::redacted(why),
        };
        let view = self.book.view.nodes.get(&id);
        let latest = view.map(|view| view.timeline.iter().rev().take(REFUSALS_COMPARED_MAX));
        if latest.is_some_and(|mut notes| notes.any(|note| note.kind == kind)) {
            return;
        }
        self.note(now, Some(id), kind);
    }

    /// The node that has this address, from us or from another server.
    pub(crate) fn node_of_peer(&self, peer: IpAddr) -> Option<NodeId> {
        let IpAddr::V4(address) = peer else {
            return None;
        };
        let elsewhere = || self.lan.holder(address);
        let mac = self.book.holder(address).or_else(elsewhere)?;
        self.book.node_of_mac(mac)
    }
}

/// A path below the first of these directories that has it.
fn below<'a>(roots: impl Iterator<Item = &'a PathBuf>, relative: &Relative) -> Option<Grant> {
    let candidates: Vec<_> = roots
        .map(|root| Below {
            root: root.clone(),
            file: relative
                .segments()
                .fold(root.clone(), |path, part| path.join(part)),
        })
        .collect();
    (!candidates.is_empty()).then_some(Grant::File(candidates))
}

/// A file that the settings name by its whole path.
fn configured(file: &Path, files: &Files) -> Grant {
    Grant::NamedFile {
        file: file.to_owned(),
        data: files.data.clone(),
    }
}
