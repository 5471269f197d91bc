use std::num::NonZeroU32;

use crate::ironic::nodes::fields::FIELDS;
use crate::testing::{ApiBench, LATEST, get, node, node_id, node_in};
use serde_json::{Value, json};
use trivet_model::deployment::{DriveLocation, ImageChecksum, ImageLocation};
use trivet_model::image::ImageFormat;
use trivet_model::{
    AgentAuthentication, AgentCaller, Digest, ImageDeployment, Job, JobKind, JobPhase, JobStep,
    ProvisionState, StepKind, secret::MASK,
};

/// The keys of a new node in Ironic 39 at 1.99.
const SEEN: &str = "allocation_uuid automated_clean bios_interface boot_interface boot_mode \
    chassis_uuid clean_step conductor conductor_group console_enabled console_interface \
    created_at deploy_interface deploy_step description disable_power_off driver driver_info \
    driver_internal_info extra fault firmware_interface inspect_interface \
    inspection_finished_at inspection_started_at instance_info instance_uuid last_error lessee \
    links maintenance maintenance_reason management_interface name network_data \
    network_interface owner parent_node portgroups ports power_interface power_state properties \
    protected protected_reason provision_state provision_updated_at raid_config raid_interface \
    rescue_interface reservation resource_class retired retired_reason secure_boot service_step \
    shard states storage_interface target_power_state target_provision_state target_raid_config \
    traits updated_at uuid vendor_interface volume";

#[test]
fn a_new_node_has_exactly_the_keys_of_ironic() {
    let bench = ApiBench::with(ProvisionState::Enroll);
    let shown = bench.reply(&get("/v1/nodes/node-1").at("1.99")).value();
    let keys: Vec<&str> = shown
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(keys, SEEN.split_whitespace().collect::<Vec<_>>());
    let newest = bench.reply(&get("/v1/nodes/node-1").at(LATEST)).value();
    assert!(newest.get("instance_name").is_some());
    assert!(newest.get("health").is_some());
}

#[test]
fn every_field_appears_with_its_version_and_not_before() {
    let bench = ApiBench::with(ProvisionState::Enroll);
    let path = format!("/v1/nodes/{}", node_id(1));
    for field in FIELDS {
        let at = format!("1.{}", field.since);
        let shown = bench.reply(&get(&path).at(&at)).value();
        assert!(shown.get(field.name).is_some(), "{}", field.name);
        if field.since > 1 {
            let below = format!("1.{}", field.since - 1);
            let shown = bench.reply(&get(&path).at(&below)).value();
            assert!(shown.get(field.name).is_none(), "{}", field.name);
        }
    }
}

#[test]
fn the_table_is_in_order() {
    assert!(FIELDS.windows(2).all(|pair| pair[0].name < pair[1].name));
}

#[test]
fn what_is_absent_is_null_or_empty_as_go_clients_need_it() {
    let mut bench = ApiBench::with(ProvisionState::Enroll);
    bench.change(|node| node.driver_info.clear());
    let shown = bench.reply(&get("/v1/nodes/node-1").at(LATEST)).value();
    for name in [
        "driver_info",
        "properties",
        "extra",
        "instance_info",
        "driver_internal_info",
        "raid_config",
        "target_raid_config",
        "clean_step",
        "deploy_step",
        "service_step",
        "network_data",
    ] {
        assert_eq!(shown[name], json!({}), "{name}");
    }
    for name in [
        "maintenance",
        "protected",
        "retired",
        "console_enabled",
        "disable_power_off",
    ] {
        assert_eq!(shown[name], json!(false), "{name}");
    }
    for name in [
        "last_error",
        "updated_at",
        "power_state",
        "owner",
        "reservation",
        "health",
    ] {
        assert_eq!(shown[name], Value::Null, "{name}");
    }
    assert_eq!(shown["traits"], json!([]));
    assert_eq!(shown["conductor_group"], "");
    assert_eq!(shown["conductor"], "box");
    let uuid = node_id(1);
    assert_eq!(
        shown["states"][1]["href"],
        format!("http://box:6385/nodes/{uuid}/states")
    );
}

#[test]
fn old_versions_have_old_state_names() {
    let mut bench = ApiBench::with(ProvisionState::Available);
    bench.add(node_in(2, ProvisionState::InspectWait));
    let state = |number: u8, version: &str| {
        let path = format!("/v1/nodes/{}", node_id(number));
        bench.reply(&get(&path).at(version)).value()["provision_state"].clone()
    };
    assert_eq!(state(1, "1.1"), Value::Null);
    assert_eq!(state(1, "1.2"), "available");
    assert_eq!(state(2, "1.38"), "inspecting");
    assert_eq!(state(2, "1.39"), "inspect wait");
}

#[test]
fn names_of_nodes_are_unknown_before_1_5() {
    let bench = ApiBench::with(ProvisionState::Enroll);
    bench.refuses(&get("/v1/nodes/node-1").at("1.4"), 404);
    assert_eq!(bench.reply(&get("/v1/nodes/node-1").at("1.5")).status, 200);
}

#[test]
fn no_answer_shows_a_secret() {
    let mut bench = ApiBench::with(ProvisionState::Active);
    bench.change(|node| {
        let secret = || json!("hunter2");
        node.driver_info.insert("ipmi_password".into(), secret());
        node.driver_info.insert("snmp_auth_key".into(), secret());
        node.instance_info.insert("image_url".into(), secret());
        node.instance_info
            .insert("configdrive".into(), json!({"user_data": "hunter2"}));
        node.driver_internal_info
            .insert("agent_secret_token".into(), secret());
    });
    for path in [
        "/v1/nodes/node-1",
        "/v1/nodes/detail",
        "/v1/nodes?fields=driver_info",
    ] {
        let text = bench.reply(&get(path).at(LATEST)).text();
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains(MASK));
    }
}

#[test]
fn a_lock_is_shown_while_we_work_and_not_while_we_wait() {
    for (state, want) in [
        (ProvisionState::Deploying, json!("box")),
        (ProvisionState::DeployWait, Value::Null),
        (ProvisionState::Active, Value::Null),
    ] {
        let bench = ApiBench::with(state);
        let shown = bench.reply(&get("/v1/nodes/node-1").at(LATEST)).value();
        assert_eq!(shown["reservation"], want, "{state}");
    }
}

/// The deployment and the caller of the agent have fields of their own in the record. Clients
/// see them where they were before, in the same form.
#[test]
fn typed_fields_are_shown_where_clients_read_them() {
    let mut bench = ApiBench::with(ProvisionState::DeployWait);
    let mut uuid = String::new();
    bench.change(|node| {
        uuid = node.id.to_string();
        node.agent_caller = Some(AgentCaller {
            address: [192, 0, 2, 7].into(),
            authentication: AgentAuthentication::Weak,
        });
        node.template_drive = Some(7);
        let mut job = deploy_job();
        job.deployment = Some(ImageDeployment {
            file_name: "a.raw".into(),
            image: ImageLocation::Cache {
                base: "http://box".into(),
                token: "t1".into(),
                name: "a.raw".into(),
            },
            checksum: ImageChecksum::Digest(Digest::Sha256([0xab; 32])),
            format: Some(ImageFormat::Raw),
            is_streamed: true,
            partitions: None,
            drive: Some(DriveLocation {
                base: "http://box".into(),
                token: "t2".into(),
            }),
        });
        node.job = Some(job);
    });
    let shown = bench.reply(&get("/v1/nodes/node-1").at(LATEST)).value();
    let args = json!({
        "configdrive": MASK,
        "image_info": {
            "id": "a.raw", "urls": [format!("http://box/nodes/{uuid}/t1/a.raw")],
            "os_hash_algo": "sha256", "os_hash_value": "ab".repeat(32), "disk_format": "raw",
            "stream_raw_images": true, "image_type": "whole-disk", "node_uuid": uuid,
        },
    });
    assert_eq!(shown["deploy_step"]["args"], args);
    let info = &shown["driver_internal_info"];
    assert_eq!(info["deploy_steps"][0]["args"], args);
    assert_eq!(info["agent_address"], "192.0.2.7");
    assert_eq!(info["agent_authentication"], "weak");
    assert_eq!(info["configdrive_of_template"], MASK);
}

fn deploy_job() -> Job {
    Job {
        kind: JobKind::Deploy,
        phase: JobPhase::AwaitStep,
        step_kind: Some(StepKind::Deploy),
        manual: false,
        steps: vec![JobStep {
            step: "write_image".into(),
            interface: "deploy".into(),
            priority: 80,
            args: json!({}),
            reboot_requested: false,
            abortable: false,
        }],
        at: 0,
        versions: std::collections::BTreeMap::new(),
        tries: 0,
        boots: Some(NonZeroU32::MIN),
        heartbeat_lost_at: None,
        abort_after: None,
        deployment: None,
        has_inspection_data: false,
        awaits_source: false,
        agent_query: None,
    }
}

#[test]
fn the_step_under_way_is_shown_in_its_own_field() {
    let mut bench = ApiBench::with(ProvisionState::CleanWait);
    bench.change(|node| {
        node.job = Some(Job {
            kind: JobKind::Clean,
            step_kind: Some(StepKind::Clean),
            steps: vec![JobStep {
                step: "erase_devices".into(),
                interface: "deploy".into(),
                priority: 10,
                args: json!({"password": "hunter2"}),
                reboot_requested: false,
                abortable: true,
            }],
            ..deploy_job()
        });
    });
    let shown = bench.reply(&get("/v1/nodes/node-1").at(LATEST)).value();
    assert_eq!(shown["clean_step"]["step"], "erase_devices");
    assert_eq!(shown["clean_step"]["args"]["password"], MASK);
    let info = &shown["driver_internal_info"];
    assert_eq!(info["clean_steps"], json!([shown["clean_step"]]));
    assert_eq!(info["clean_step_index"], 0);
    assert_eq!(shown["deploy_step"], json!({}));
}

#[test]
fn an_unknown_node_is_not_found() {
    let bench = ApiBench::new();
    let message = bench.refuses(&get("/v1/nodes/nobody").at(LATEST), 404);
    assert_eq!(message, "Node nobody could not be found.");
    let mut bench = ApiBench::new();
    bench.add(node(1));
    bench.refuses(&get("/v1/nodes/node-1?colour=red").at(LATEST), 400);
}
