//! What a machine boots, and its boot script.

use std::net::IpAddr;

use serde_json::Value;
use trivet_drivers::{BootFileSource, NetbootPayload};
use trivet_model::node::JsonObject;
use trivet_model::{
    BootPlan, JobKind, KernelBoot, MacAddr, Node, OrderRefusal, ProvisionState, RefusalKind,
};

use crate::lan::advertised_addresses::AdvertisedUrls;
use crate::{Rack, Settings};

/// The keys of a record that name the files of the agent.
pub(crate) const AGENT_FILES: [&str; 4] = [
    "deploy_kernel",
    "deploy_ramdisk",
    "rescue_kernel",
    "rescue_ramdisk",
];
pub(crate) const INSTANCE_FILES: [&str; 3] = ["kernel", "ramdisk", "boot_iso"];

impl Rack {
    pub(crate) fn script(&self, mac: MacAddr, peer: IpAddr) -> String {
        let node = self
            .records
            .node_of_mac(mac)
            .and_then(|id| self.records.node(id));
        let urls = self.settings.urls_for(Some(peer));
        let plan = match node {
            Some(node) => self.boot_plan(node, &urls),
            None => self.boot_plan_of_unknown(&urls),
        };
        trivet_bootfiles::script(mac, &plan, &urls.http)
    }

    /// What a machine boots, with the URLs of its files.
    pub(crate) fn boot_plan(&self, node: &Node, urls: &AdvertisedUrls) -> BootPlan {
        plan(&self.settings, urls, &self.with_addresses(node, urls))
    }

    /// The node, with URLs of this box for all files that this box serves.
    pub(crate) fn with_addresses(&self, node: &Node, urls: &AdvertisedUrls) -> Node {
        let mut node = node.clone();
        self.name_boot_files(&mut node, urls);
        self.name_images(&mut node.driver_info, &AGENT_FILES, urls);
        self.name_images(&mut node.instance_info, &INSTANCE_FILES, urls);
        node
    }

    /// Refuses a job that boots the agent where no agent is configured, or where its URL
    /// contains credentials.
    pub(crate) fn check_agent_files(&self, node: &Node) -> Result<(), OrderRefusal> {
        let rescues = node.job.as_ref().map(|job| job.kind) == Some(JobKind::Rescue);
        trivet_drivers::agent_credentials(node, rescues)
            .map_err(|why| OrderRefusal::new(RefusalKind::Invalid, format!("{why}.")))?;
        let files = &self.settings.files;
        if files.agent_from_other_server || files.kernel.is_some() {
            return Ok(());
        }
        let mut node = Node::clone(node);
        let urls = self.settings.urls_for(None);
        self.name_images(&mut node.driver_info, &AGENT_FILES, &urls);
        match trivet_drivers::agent_files(&node, rescues) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => {}
            Err(lacks) => return Err(OrderRefusal::new(RefusalKind::Invalid, format!("{lacks}."))),
        }
        if trivet_drivers::boot_medium(&node).is_some() {
            if files.iso.is_some() {
                return Ok(());
            }
            let sentence = format!(
                "Node {} has no agent to boot: {}",
                node.label(),
                trivet_model::fault::AGENT_ISO_LACKS
            );
            return Err(OrderRefusal::new(RefusalKind::Invalid, sentence));
        }
        let sentence = format!(
            "Node {} has no agent to boot: neither are boot.kernel and boot.ramdisk set in the \
             settings, nor deploy_kernel and deploy_ramdisk in its driver_info. {}",
            node.label(),
            trivet_model::fault::AGENT_REMEDY
        );
        Err(OrderRefusal::new(RefusalKind::Invalid, sentence))
    }

    /// A file to boot may be an image of the box, given by its name.
    fn name_images(&self, info: &mut JsonObject, keys: &[&str], urls: &AdvertisedUrls) {
        for key in keys {
            let Some(Value::String(name)) = info.get_mut(*key) else {
                continue;
            };
            if self.is_image(name) {
                *name = format!("{}/images/{name}", urls.http);
            }
        }
    }
}

/// What a machine boots, by the state of its node.
pub(crate) fn plan(settings: &Settings, urls: &AdvertisedUrls, node: &Node) -> BootPlan {
    if trivet_node::boots_agent(node) {
        return agent(settings, urls, node);
    }
    let state = node.provision_state;
    let kind = node.job.as_ref().map(|job| job.kind);
    let has_instance = match kind {
        Some(kind) => matches!(
            kind,
            JobKind::Deploy | JobKind::Unrescue | JobKind::Service | JobKind::Adopt
        ),
        None => matches!(
            state,
            ProvisionState::Active
                | ProvisionState::RescueFail
                | ProvisionState::UnrescueFail
                | ProvisionState::ServiceFail
        ),
    };
    match has_instance {
        true if trivet_drivers::netboots_instance(node) => instance(urls, node),
        false if kind.is_some() => BootPlan::Wait,
        // Only a job makes a machine wait.
        _ => BootPlan::Disk,
    }
}

/// The agent: the node's own where its record names one that can be loaded, else the box's.
/// Kernel arguments that would break the script are left out; validation reports both.
pub(crate) fn agent(settings: &Settings, urls: &AdvertisedUrls, node: &Node) -> BootPlan {
    let kind = node.job.as_ref().map(|job| job.kind);
    let own = trivet_drivers::agent_files(node, kind == Some(JobKind::Rescue));
    let (kernel, ramdisk) = own.ok().flatten().unwrap_or_else(|| {
        let base = &urls.http;
        (
            format!("{base}{}", trivet_bootfiles::KERNEL_PATH),
            format!("{base}{}", trivet_bootfiles::RAMDISK_PATH),
        )
    });
    let args = trivet_drivers::agent_args(node, &settings.kernel_args)
        .unwrap_or_else(|_| settings.kernel_args.clone());
    BootPlan::Agent {
        files: KernelBoot {
            kernel,
            ramdisk,
            args,
        },
        api_url: urls.api.clone(),
        inspect: kind == Some(JobKind::Inspect),
    }
}

/// The instance as the operator configured it. If its record became invalid after the
/// deployment, the machine waits until the record is corrected.
pub(crate) fn instance(urls: &AdvertisedUrls, node: &Node) -> BootPlan {
    let url = |source| match source {
        BootFileSource::Url(url) => url,
        BootFileSource::File(name) => {
            format!("{}{}", urls.http, trivet_bootfiles::file_path(&name))
        }
    };
    match trivet_drivers::payload(node) {
        Ok(NetbootPayload::Kernel {
            kernel,
            ramdisk,
            args,
        }) => BootPlan::Kernel(KernelBoot {
            kernel: url(kernel),
            ramdisk: url(ramdisk),
            args,
        }),
        Ok(NetbootPayload::Iso(source)) => BootPlan::Iso { url: url(source) },
        Err(_) => BootPlan::Wait,
    }
}
