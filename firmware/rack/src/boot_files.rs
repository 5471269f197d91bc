//! Kernels, ramdisks and ISO images that a node's record names by a URL elsewhere: the box
//! fetches them into its cache and serves them to the machine on the machine's own network.
//!
//! A file with a digest in the record is cached like any other image. For a file without one
//! the shell fetches the URL and reports the digest. The URL is requested again at the start of
//! each job, so that a file that has changed at its source is noticed. Where a source sends no
//! validator (RFC 9110, section 8.8) the copy cannot be compared: the file is downloaded again,
//! at most once in [`DOWNLOAD_MS_MIN`].
//!
//! An instance without a disk is powered on once its files are in the cache: a file that cannot
//! be fetched fails its deployment.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;
use trivet_drivers::{BOOT_TEXT_BYTES_MAX, boot_file_digest};
use trivet_images::{FetchedFile, ImageFormat, ImageSpec, file_name};
use trivet_model::image::{ImageState, ImageStatus};
use trivet_model::{
    BootPlan, Digest, JobKind, JobPhase, Node, NodeId, NoteKind, Now, PowerOrder, Tick,
};
use trivet_node::NodeEvent;

use crate::boot::medium::AGENT_ISO;
use crate::boot::plan::{AGENT_FILES, INSTANCE_FILES, agent, instance};
use crate::lan::advertised_addresses::AdvertisedUrls;
use crate::{FileGrant, Rack};

/// The most URLs whose digest is remembered. Ours.
const URLS_MAX: usize = 1024;

/// For so long after its download a file without a digest, whose source sends neither `ETag` nor
/// `Last-Modified`, is not downloaded again. Ours: short enough that an operator who replaces the
/// file need not wait, long enough that a rack that is deployed at once downloads it once.
const DOWNLOAD_MS_MIN: u64 = 600_000;

/// What is known of files without a digest in the record, by their URLs. Nothing of it is on
/// flash: after a restart the URLs are requested again.
#[derive(Default)]
pub(crate) struct BootFiles {
    by_url: BTreeMap<String, FetchedUrl>,
    /// Requests to power on that wait for files, by node.
    pending_power_ons: BTreeMap<NodeId, PowerOrder>,
}

#[derive(Default)]
struct FetchedUrl {
    /// The digest of the copy in the cache.
    digest: Option<Digest>,
    /// The shell was requested to fetch it and has not replied.
    is_requested: bool,
    /// Nodes that wait for this reply; others are served the copy in the cache.
    waiting: BTreeSet<NodeId>,
    /// When the copy was downloaded, if its source sent no validator.
    downloaded_at: Option<Tick>,
}

/// A file that one key of a node's record names.
struct BootFile {
    url: String,
    digest: Option<Digest>,
    format: ImageFormat,
}

impl BootFiles {
    /// Whether a file of this name is known by its URL.
    pub(crate) fn has_of_name(&self, name: &str) -> bool {
        self.by_url.keys().any(|url| file_name(url) == name)
    }

    /// Registers that the node waits for the next reply. Returns whether the shell must be
    /// requested to fetch the URL.
    fn await_answer(&mut self, url: &str, node: NodeId) -> bool {
        if !self.by_url.contains_key(url) && self.by_url.len() >= URLS_MAX {
            let idle = self.by_url.iter().find(|(_, known)| !known.is_requested);
            let Some(idle) = idle.map(|(url, _)| url.clone()) else {
                return false;
            };
            self.by_url.remove(&idle);
        }
        let known = self.by_url.entry(url.to_owned()).or_default();
        known.waiting.insert(node);
        !std::mem::replace(&mut known.is_requested, true)
    }

    /// Whether the copy is used without a request to its source, which could only send all of
    /// it.
    fn is_recent(&self, now: Tick, url: &str) -> bool {
        self.by_url.get(url).is_some_and(|known| {
            let at = known.downloaded_at.filter(|_| known.digest.is_some());
            at.is_some_and(|at| now.since_ms(at) < DOWNLOAD_MS_MIN)
        })
    }

    /// The job of the node has ended, or the node is gone.
    pub(crate) fn drop_pending_power_on(&mut self, id: NodeId) {
        self.pending_power_ons.remove(&id);
    }

    /// The copy with this digest is no longer in the cache, or cannot be used.
    fn remove_digest(&mut self, digest: Digest) {
        for known in self.by_url.values_mut() {
            known.digest = known.digest.filter(|other| *other != digest);
        }
    }
}

impl Rack {
    /// The file that this key of the record names, if this box fetches it. A URL of the box
    /// itself is sent to the machine unchanged, and so is one that only the machine can use.
    fn boot_file(&self, node: &Node, key: &str) -> Option<BootFile> {
        let base = self.settings.http_url.as_str();
        if !self.settings.cache || base.is_empty() {
            return None;
        }
        let (info, place) = if AGENT_FILES.contains(&key) {
            (&node.driver_info, "driver_info")
        } else if INSTANCE_FILES.contains(&key) {
            (&node.instance_info, "instance_info")
        } else {
            return None;
        };
        let url = info.get(key).and_then(Value::as_str).and_then(fetchable)?;
        if url.starts_with(base) {
            return None;
        }
        Some(BootFile {
            url: url.to_owned(),
            digest: boot_file_digest(info, place, key).ok()?,
            format: match key {
                "boot_iso" => ImageFormat::Iso,
                _ if key.ends_with("kernel") => ImageFormat::Kernel,
                _ => ImageFormat::Ramdisk,
            },
        })
    }

    /// Replaces the URLs of files that this box fetches by its own URLs for them.
    pub(crate) fn name_boot_files(&self, node: &mut Node, urls: &AdvertisedUrls) {
        for key in AGENT_FILES.into_iter().chain(INSTANCE_FILES) {
            if self.boot_file(node, key).is_none() {
                continue;
            }
            let url = own_url(urls, node.id, key);
            let info = if AGENT_FILES.contains(&key) {
                &mut node.driver_info
            } else {
                &mut node.instance_info
            };
            info.insert(key.to_owned(), url.into());
        }
    }

    /// A machine requests a file that its node's record names. Other nodes do not get it, and a
    /// file that the machine is not to boot now is not served.
    pub(crate) fn node_boot_file(
        &mut self,
        now: Now,
        peer: IpAddr,
        id: NodeId,
        key: &str,
    ) -> Option<FileGrant> {
        // A machine that loads its kernel has not sent a lookup yet. So where another server
        // leases the addresses, only the addresses of other nodes are known, and only those are
        // refused.
        if self.node_of_peer(peer).is_some_and(|other| other != id) {
            return None;
        }
        let node = self.records.node(id)?.clone();
        if key == AGENT_ISO {
            return self.agent_iso(&node);
        }
        let urls = self.settings.urls_for(Some(peer));
        if !plan_loads(&self.boot_plan(&node, &urls), &own_url(&urls, id, key)) {
            return None;
        }
        let file = self.boot_file(&node, key)?;
        if let Some(wanted) = self.wanted_file(id, &file) {
            return Some(self.image_grant(now, wanted));
        }
        let sentence = format!("{} is being fetched by this box; retry", file.url);
        self.fetch_file(now, id, &file);
        Some(FileGrant::Unavailable(sentence))
    }

    /// Fetches what the job of a node boots, while its machine is powered off and boots.
    pub(crate) fn fetch_boot_files(&mut self, now: Now, id: NodeId) {
        let Some(node) = self.records.node(id).cloned() else {
            return;
        };
        for file in self.files_of_job(&node) {
            self.fetch_file(now, id, &file);
        }
    }

    /// Whether the power-on of an instance without a disk waits for the files that it boots. It
    /// continues with [`Self::release_pending_power_ons`], and ends with the job where a file
    /// cannot be fetched.
    pub(crate) fn awaits_boot_files(&mut self, now: Now, id: NodeId, order: PowerOrder) -> bool {
        let missing = self.missing_files(id);
        for file in &missing {
            self.fetch_file(now, id, file);
        }
        // Where too many URLs are requested, the machine itself repeats its request for the
        // file.
        let comes = |file: &BootFile| {
            let known = self.boot_files.by_url.get(&file.url);
            file.digest.is_some() || known.is_some_and(|known| known.waiting.contains(&id))
        };
        let waits = missing.iter().any(comes);
        if waits {
            self.boot_files.pending_power_ons.insert(id, order);
        } else {
            self.boot_files.pending_power_ons.remove(&id);
        }
        waits
    }

    /// The files that the instance of a node boots now and that are not in the cache.
    fn missing_files(&self, id: NodeId) -> Vec<BootFile> {
        let Some(node) = self.starting_instance(id) else {
            return Vec::new();
        };
        let mut files = self.files_of_job(node);
        files.retain(|file| match file.digest {
            Some(digest) => !self.images.has_file(digest),
            None => self.wanted_file(id, file).is_none(),
        });
        files
    }

    /// The node, if its job powers its instance on now.
    fn starting_instance(&self, id: NodeId) -> Option<&Node> {
        let node = self.records.node(id)?;
        let phase = node.job.as_ref().map(|job| job.phase);
        (phase == Some(JobPhase::StartInstance)).then_some(node)
    }

    /// Powers on the machines whose files are all in the cache now.
    pub(crate) fn release_pending_power_ons(&mut self, now: Now) {
        let held: Vec<_> = self
            .boot_files
            .pending_power_ons
            .clone()
            .into_iter()
            .collect();
        for (id, order) in held {
            if self.starting_instance(id).is_none() {
                self.boot_files.drop_pending_power_on(id);
            } else if self.missing_files(id).is_empty() {
                self.boot_files.drop_pending_power_on(id);
                self.order_power(now, id, order);
            }
        }
    }

    fn fetch_file(&mut self, now: Now, id: NodeId, file: &BootFile) {
        if file.digest.is_some() {
            if let Some(wanted) = self.wanted_file(id, file) {
                self.fill(now, wanted, true);
            }
        } else if !self.boot_files.is_recent(now.tick, &file.url)
            && self.boot_files.await_answer(&file.url, id)
        {
            let (images, mut context) = self.images_and_context(now);
            images.fetch_url(&mut context, &file.url, file.format);
        }
    }

    /// The image to request from the cache; none as long as the digest is not known.
    fn wanted_file(&self, id: NodeId, file: &BootFile) -> Option<ImageSpec> {
        let known = self.boot_files.by_url.get(&file.url);
        let known = known.filter(|known| !known.waiting.contains(&id));
        let digest = file.digest.or_else(|| known?.digest)?;
        let name = Some(file_name(&file.url)).filter(|name| !name.is_empty());
        Some(ImageSpec {
            name: name.unwrap_or(&file.url).to_owned(),
            digest,
            sources: vec![file.url.clone()],
            format: file.format,
        })
    }

    /// The files that the machine of a node loads for its job, as far as this box fetches them.
    fn files_of_job(&self, node: &Node) -> Vec<BootFile> {
        let Some(job) = &node.job else {
            return Vec::new();
        };
        let urls = self.settings.urls_for(None);
        let boots_instance = matches!(job.kind, JobKind::Deploy | JobKind::Unrescue)
            && trivet_drivers::netboots_instance(node);
        let plan = if trivet_node::will_boot_agent(node) {
            // An agent that still runs from an earlier job is not booted again.
            if node.agent.is_some() {
                return Vec::new();
            }
            agent(&self.settings, &urls, &self.with_addresses(node, &urls))
        } else if boots_instance {
            instance(&urls, &self.with_addresses(node, &urls))
        } else {
            return Vec::new();
        };
        let keys = AGENT_FILES.into_iter().chain(INSTANCE_FILES);
        let loaded = keys.filter(|key| plan_loads(&plan, &own_url(&urls, node.id, key)));
        loaded.filter_map(|key| self.boot_file(node, key)).collect()
    }

    /// The shell has fetched a file, or has failed to.
    pub(crate) fn boot_file_fetched(
        &mut self,
        now: Now,
        url: &str,
        result: Result<FetchedFile, String>,
    ) {
        let result = result.map_err(crate::agents::callers::redacted);
        let Some(known) = self.boot_files.by_url.remove(url) else {
            return;
        };
        match result {
            Ok(file) => {
                for id in &known.waiting {
                    if let Some(why) = &file.old {
                        let why = crate::agents::callers::redacted(why.clone());
                        self.note(now, Some(*id), NoteKind::BootFileUnverified { why });
                    }
                }
                let is_new = !file.has_validator && file.old.is_none();
                let known = FetchedUrl {
                    digest: Some(file.digest),
                    downloaded_at: is_new.then_some(now.tick),
                    ..FetchedUrl::default()
                };
                self.boot_files.by_url.insert(url.to_owned(), known);
                self.release_pending_power_ons(now);
            }
            Err(why) => {
                for id in known.waiting {
                    self.boot_file_failed(now, id, &why);
                }
            }
        }
    }

    /// Ends the job with this reason; without a job only the timeline has it.
    fn boot_file_failed(&mut self, now: Now, id: NodeId, why: &str) {
        let why = why.to_owned();
        let Some(node) = self.records.node(id) else {
            return;
        };
        if node.job.is_some() {
            self.events
                .push_back((id, NodeEvent::BootFileUnusable { why }));
        } else {
            self.note(now, Some(id), NoteKind::ImageFailed { why });
        }
    }

    /// The nodes whose job boots this image; computed only where the new state affects them.
    pub(crate) fn nodes_booting(&self, news: &ImageStatus, changed: bool) -> Vec<NodeId> {
        if !changed && news.state.failure().is_none() {
            return Vec::new();
        }
        self.nodes_booting_digest(news.digest)
    }

    /// The nodes whose job boots a file with this digest.
    pub(crate) fn nodes_booting_digest(&self, digest: Digest) -> Vec<NodeId> {
        let has_digest = |file: &BootFile| {
            let known = || self.boot_files.by_url.get(&file.url)?.digest;
            file.digest.or_else(known) == Some(digest)
        };
        let boots = |node: &Node| self.files_of_job(node).iter().any(has_digest);
        let nodes = self.records.view.nodes.iter();
        nodes
            .filter(|(_, view)| boots(&view.node))
            .map(|(id, _)| *id)
            .collect()
    }

    /// The state of an image changed: jobs that boot it end where it cannot be used.
    pub(crate) fn boot_file_state_changed(&mut self, news: &ImageStatus, booting: Vec<NodeId>) {
        if let Some(why) = news.state.failure() {
            for id in booting {
                let why = why.to_owned();
                self.events
                    .push_back((id, NodeEvent::BootFileUnusable { why }));
            }
        }
        if news.state.failure().is_some() || news.state == ImageState::Evicted {
            self.boot_files.remove_digest(news.digest);
        }
    }
}

/// The URL at which a machine gets the file that this key of its node's record names.
fn own_url(urls: &AdvertisedUrls, node: NodeId, key: &str) -> String {
    let path = trivet_bootfiles::node_boot_path(node, key);
    format!("{}{path}", urls.http)
}

/// Whether the machine is to load this URL.
fn plan_loads(plan: &BootPlan, url: &str) -> bool {
    match plan {
        BootPlan::Agent { files, .. } | BootPlan::Kernel(files) => {
            files.kernel == url || files.ramdisk == url
        }
        BootPlan::Iso { url: iso } => iso == url,
        BootPlan::Disk | BootPlan::Wait => false,
    }
}

/// A URL that this box can fetch. One with a user name in it was refused before.
fn fetchable(text: &str) -> Option<&str> {
    let url = text.trim();
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme))?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic()) && !url.contains("${");
    let is_reachable = !authority.is_empty() && !authority.contains('@');
    (is_plain && is_reachable && url.len() <= BOOT_TEXT_BYTES_MAX).then_some(url)
}
