//! Values that earlier programs stored in free-form objects and that have fields now.
//!
//! They are moved when a record is read, so only the fields are used after that. The record is
//! stored in its new form when it is written the next time.

use serde_json::Value;
use trivet_model::deployment::{DriveLocation, ImageChecksum, ImageLocation, PartitionSizes};
use trivet_model::image::ImageFormat;
use trivet_model::interface::DeployInterface;
use trivet_model::node::{AGENT_ADDRESS, AGENT_AUTHENTICATION, JsonObject, TEMPLATE_DRIVE};
use trivet_model::{AgentCaller, Digest, ImageDeployment, Job, JobKind, JobStep, Node, NodeId};

/// The step whose arguments described the image.
const WRITE_IMAGE: &str = "write_image";

/// Moves the values of a record into their fields.
pub(super) fn move_to_fields(node: &mut Node) {
    let info = &mut node.driver_internal_info;
    if let Some(caller) = agent_caller(info) {
        node.agent_caller = Some(caller);
        info.remove(AGENT_ADDRESS);
        info.remove(AGENT_AUTHENTICATION);
    }
    if let Some(fingerprint) = template_drive(info) {
        node.template_drive = Some(fingerprint);
        info.remove(TEMPLATE_DRIVE);
    }
    // There the arguments are those of the operator.
    let is_custom = node.attributes.interfaces.deploy == Some(DeployInterface::CustomAgent);
    let id = node.id;
    let Some(job) = &mut node.job else { return };
    if job.kind == JobKind::Inspect && job.steps.is_empty() && job.at == 1 {
        job.at = 0;
        job.has_inspection_data = true;
    }
    if !is_custom {
        move_deployment(id, job);
    }
}

fn agent_caller(info: &JsonObject) -> Option<AgentCaller> {
    let text = |key: &str| info.get(key).and_then(Value::as_str);
    Some(AgentCaller {
        address: text(AGENT_ADDRESS)?.parse().ok()?,
        authentication: text(AGENT_AUTHENTICATION)?.parse().ok()?,
    })
}

fn template_drive(info: &JsonObject) -> Option<u64> {
    u64::from_str_radix(info.get(TEMPLATE_DRIVE)?.as_str()?, 16).ok()
}

fn move_deployment(id: NodeId, job: &mut Job) {
    let mut steps = job.steps.iter_mut();
    let Some(step) = steps.find(|step| step.step == WRITE_IMAGE) else {
        return;
    };
    if let Some(deployment) = deployment(id, step) {
        job.deployment = Some(deployment);
        step.args = Value::Object(JsonObject::new());
    }
}

fn deployment(id: NodeId, step: &JobStep) -> Option<ImageDeployment> {
    let info = step.args.get("image_info")?;
    let text = |key: &str| info.get(key).and_then(Value::as_str);
    let checksum = match (text("os_hash_value"), text("checksum")) {
        (Some(digest), _) => ImageChecksum::Digest(digest.parse::<Digest>().ok()?),
        (None, Some(text)) => match text.parse() {
            Ok(reference) => ImageChecksum::Registry(reference),
            Err(_) => ImageChecksum::File(text.to_owned()),
        },
        (None, None) => return None,
    };
    let drive = step.args.get("configdrive").and_then(Value::as_str);
    Some(ImageDeployment {
        file_name: text("id")?.to_owned(),
        image: image_location(id, info.pointer("/urls/0")?.as_str()?),
        checksum,
        format: text("disk_format").and_then(ImageFormat::parse),
        is_streamed: info["stream_raw_images"].as_bool().unwrap_or_default(),
        partitions: match info.get("root_mb") {
            Some(_) => serde_json::from_value::<PartitionSizes>(info.clone()).ok(),
            None => None,
        },
        drive: drive.and_then(|url| {
            let (base, token) = url.split_once(&format!("/drives/{id}/"))?;
            let (base, token) = (base.to_owned(), token.to_owned());
            Some(DriveLocation { base, token })
        }),
    })
}

fn image_location(id: NodeId, url: &str) -> ImageLocation {
    let parts = || {
        let (base, path) = url.split_once(&format!("/nodes/{id}/"))?;
        let (token, name) = path.split_once('/')?;
        Some(ImageLocation::Cache {
            base: base.to_owned(),
            token: token.to_owned(),
            name: name.to_owned(),
        })
    };
    parts().unwrap_or_else(|| ImageLocation::Url(url.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;
    use trivet_model::{AgentAuthentication, JobPhase, OciReference, UnixMs};

    fn id() -> NodeId {
        "01234567-89ab-4def-8123-456789abcdef".parse().unwrap()
    }

    fn job(kind: JobKind, args: Value) -> Job {
        Job {
            kind,
            phase: JobPhase::AwaitStep,
            step_kind: None,
            manual: false,
            steps: vec![JobStep {
                step: WRITE_IMAGE.to_owned(),
                interface: "deploy".to_owned(),
                priority: 80,
                args,
                reboot_requested: false,
                abortable: false,
            }],
            at: 1,
            versions: BTreeMap::new(),
            tries: 0,
            boots: None,
            heartbeat_lost_at: None,
            abort_after: None,
            deployment: None,
            has_inspection_data: false,
            awaits_source: false,
            agent_query: None,
        }
    }

    fn node() -> Node {
        Node::new(id(), "ipmi", UnixMs(1))
    }

    #[test]
    fn the_caller_of_the_agent_moves_out_of_the_free_form_object() {
        let mut node = node();
        let info = json!({"agent_address": "192.0.2.7", "agent_authentication": "weak",
                          "configdrive_of_template": "00000000000000ff", "boot_device": "pxe"});
        node.driver_internal_info = info.as_object().unwrap().clone();
        move_to_fields(&mut node);
        let caller = node.agent_caller.unwrap();
        assert_eq!(caller.address.to_string(), "192.0.2.7");
        assert_eq!(caller.authentication, AgentAuthentication::Weak);
        assert_eq!(node.template_drive, Some(255));
        let rest = json!({"boot_device": "pxe"});
        assert_eq!(Value::Object(node.driver_internal_info.clone()), rest);
        // Clients see what they saw before.
        let shown = node.shown_internal_info();
        assert_eq!(shown["agent_address"], "192.0.2.7");
        assert_eq!(shown["agent_authentication"], "weak");
        assert_eq!(shown["configdrive_of_template"], "******");
        // A value that no program of ours wrote stays where it is.
        node.driver_internal_info
            .insert("agent_address".to_owned(), "name".into());
        move_to_fields(&mut node);
        assert_eq!(node.driver_internal_info["agent_address"], "name");
    }

    #[test]
    fn an_inspection_with_data_has_them_after_the_move() {
        let mut node = node();
        let mut inspection = job(JobKind::Inspect, Value::Null);
        inspection.steps.clear();
        node.job = Some(inspection);
        move_to_fields(&mut node);
        let job = node.job.as_ref().unwrap();
        assert!(job.has_inspection_data);
        assert_eq!(job.at, 0);
    }

    #[test]
    fn the_arguments_of_the_write_become_the_deployment() {
        let id = id();
        let mut node = node();
        node.job = Some(job(
            JobKind::Deploy,
            json!({"image_info": {
                "id": "a.qcow2", "urls": [format!("http://b:1/nodes/{id}/t1/a.qcow2")],
                "os_hash_algo": "sha256", "os_hash_value": "ab".repeat(32),
                "disk_format": "qcow2", "stream_raw_images": true, "image_type": "partition",
                "node_uuid": id.to_string(), "root_mb": 7, "swap_mb": 1, "ephemeral_mb": 2,
                "ephemeral_format": null, "preserve_ephemeral": true},
                "configdrive": format!("http://b:1/drives/{id}/t2")}),
        ));
        let mut of_operator = node.clone();
        of_operator.attributes.interfaces.deploy = Some(DeployInterface::CustomAgent);
        move_to_fields(&mut node);
        let job = node.job.as_ref().unwrap();
        assert_eq!((&job.steps[0].args, job.at), (&json!({}), 1));
        let base = "http://b:1".to_owned();
        assert_eq!(
            job.deployment,
            Some(ImageDeployment {
                file_name: "a.qcow2".to_owned(),
                image: ImageLocation::Cache {
                    base: base.clone(),
                    token: "t1".to_owned(),
                    name: "a.qcow2".to_owned(),
                },
                checksum: ImageChecksum::Digest(Digest::Sha256([0xab; 32])),
                format: Some(ImageFormat::Qcow2),
                is_streamed: true,
                partitions: Some(PartitionSizes {
                    root_mb: 7,
                    swap_mb: 1,
                    ephemeral_mb: 2,
                    ephemeral_format: None,
                    preserve_ephemeral: true,
                }),
                drive: Some(DriveLocation {
                    base,
                    token: "t2".to_owned(),
                }),
            })
        );
        let before = of_operator.clone();
        move_to_fields(&mut of_operator);
        assert_eq!(of_operator, before, "these arguments are the operator's");
    }

    #[test]
    fn a_digest_that_was_not_known_yet_is_still_looked_up() {
        let of = |checksum: &str| {
            let args = json!({"image_info": {"id": "a", "urls": ["http://h/a"],
                                             "checksum": checksum}});
            let mut node = node();
            node.job = Some(job(JobKind::Deploy, args));
            move_to_fields(&mut node);
            let deployment = node.deployment().unwrap().clone();
            assert_eq!(
                deployment.image,
                ImageLocation::Url("http://h/a".to_owned())
            );
            deployment.checksum
        };
        let sums = "https://h/SUMS";
        assert_eq!(of(sums), ImageChecksum::File(sums.to_owned()));
        let reference: OciReference = "oci://h/team/disk:1".parse().unwrap();
        assert_eq!(
            of("oci://h/team/disk:1"),
            ImageChecksum::Registry(reference)
        );
    }
}
