use crate::ironic::nodes::provision::{CONFIGDRIVE_BYTES_MAX, STEPS_BYTES_MAX, STEPS_MAX};
use crate::testing::{ApiBench, LATEST, node_id, send};
use serde_json::{Value, json};
use trivet_model::order::PowerWanted;
use trivet_model::{PowerState, ProvisionState, RackOrder, Verb};

const PROVISION: &str = "/v1/nodes/00000000-0000-4000-8000-000000000001/states/provision";
const POWER: &str = "/v1/nodes/node-1/states/power";

#[track_caller]
fn refuses(bench: &ApiBench, body: &Value, version: &str, status: u16) -> String {
    bench.refuses(
        &send("PUT", PROVISION, &body.to_string()).at(version),
        status,
    )
}

#[track_caller]
fn accepts(bench: &ApiBench, body: &Value, version: &str) -> RackOrder {
    bench
        .order(&send("PUT", PROVISION, &body.to_string()).at(version))
        .0
}

fn ready() -> ApiBench {
    let mut bench = ApiBench::with(ProvisionState::Available).wired();
    bench.change(|node| {
        node.driver_info
            .insert("ipmi_address".into(), json!("192.0.2.1"));
        node.instance_info
            .insert("image_source".into(), json!("http://box/disk.img"));
        node.instance_info
            .insert("image_checksum".into(), json!("0f".repeat(32)));
    });
    bench
}

#[test]
fn a_verb_becomes_an_order_and_202_with_a_location() {
    let mut bench = ApiBench::with(ProvisionState::Enroll);
    let request = send("PUT", PROVISION, r#"{"target": "manage"}"#).at(LATEST);
    let RackOrder::Provision {
        node, verb, args, ..
    } = bench.order(&request).0
    else {
        panic!("not a verb");
    };
    assert_eq!((node, verb), (node_id(1), Verb::Manage));
    assert!(args.steps.is_empty() && args.configdrive.is_none());
    let response = bench.done(&request);
    assert_eq!(response.status, 202);
    let location = format!("http://box:6385/v1/nodes/{}/states", node_id(1));
    assert_eq!(response.header("Location"), Some(location.as_str()));
}

#[test]
fn every_verb_came_with_a_version() {
    for (verb, state, since) in [
        ("manage", ProvisionState::Enroll, 4),
        ("provide", ProvisionState::Manageable, 4),
        ("inspect", ProvisionState::Manageable, 6),
        ("abort", ProvisionState::CleanWait, 13),
        ("adopt", ProvisionState::Manageable, 17),
        ("unrescue", ProvisionState::Rescue, 38),
        ("abort", ProvisionState::InspectWait, 41),
        ("undeploy", ProvisionState::Active, 73),
        ("unhold", ProvisionState::CleanHold, 85),
        ("abort", ProvisionState::DeployWait, 110),
    ] {
        let bench = ApiBench::with(state).wired();
        let body = json!({"target": verb});
        accepts(&bench, &body, &format!("1.{since}"));
        refuses(&bench, &body, &format!("1.{}", since - 1), 406);
    }
}

#[test]
fn refuses_bodies_without_sense() {
    let bench = ApiBench::with(ProvisionState::Manageable);
    for body in [
        json!({}),
        json!({"target": null}),
        json!({"target": 5}),
        json!({"target": "dance"}),
        json!({"target": "manage", "colour": "red"}),
        json!({"target": "provide", "configdrive": "x"}),
        json!({"target": "provide", "clean_steps": [1]}),
        json!({"target": "provide", "deploy_steps": [1]}),
        json!({"target": "provide", "service_steps": [1]}),
        json!({"target": "provide", "rescue_password": "x"}),
        json!({"target": "clean"}),
        json!({"target": "clean", "clean_steps": []}),
        json!({"target": "provide", "disable_ramdisk": true}),
        json!({"target": "provide", "disable_ramdisk": false}),
        json!({"target": "provide", "disable_ramdisk": "x"}),
    ] {
        refuses(&bench, &body, LATEST, 400);
    }
    let message = refuses(&bench, &json!({"target": "dance"}), LATEST, 400);
    assert!(
        message.contains("can not be performed on node"),
        "{message}"
    );
    let active = ApiBench::with(ProvisionState::Active);
    for body in [
        json!({"target": "rescue"}),
        json!({"target": "rescue", "rescue_password": " "}),
        json!({"target": "service"}),
    ] {
        let message = refuses(&active, &body, LATEST, 400);
        assert!(message.contains("required"), "{message}");
    }
}

#[test]
fn empty_steps_and_config_drives_count_as_absent() {
    for body in [
        json!({"target": "provide", "clean_steps": [], "service_steps": [], "deploy_steps": []}),
        json!({"target": "provide", "configdrive": {}}),
        json!({"target": "provide", "configdrive": ""}),
    ] {
        accepts(&ApiBench::with(ProvisionState::Manageable), &body, LATEST);
    }
}

#[test]
fn the_state_is_checked_before_the_arguments_and_their_versions() {
    let bench = ApiBench::with(ProvisionState::Active);
    for (body, version) in [
        (json!({"target": "clean", "runbook": "no-such"}), LATEST),
        (
            json!({"target": "provide", "clean_steps": [{"odd": 1}]}),
            LATEST,
        ),
        (
            json!({"target": "active", "deploy_steps": [{"odd": 1}]}),
            "1.68",
        ),
        (json!({"target": "unhold"}), "1.84"),
    ] {
        let message = refuses(&bench, &body, version, 400);
        assert!(message.contains("while it is in state"), "{message}");
    }
    // The versions of these verbs are older than the state check.
    refuses(&bench, &json!({"target": "clean"}), "1.14", 406);
    // A node with a job is locked.
    let bench = ApiBench::with(ProvisionState::Cleaning);
    refuses(&bench, &json!({"target": "provide"}), LATEST, 409);
}

#[test]
fn a_wrong_step_is_named_in_the_words_of_its_schema() {
    let bench = ApiBench::with(ProvisionState::Manageable);
    for (step, words) in [
        (json!(5), "5 is not of type 'object'"),
        (json!({"step": "x"}), "'interface' is a required property"),
        (
            json!({"interface": "raid"}),
            "'step' is a required property",
        ),
        (
            json!({"interface": "odd", "step": "x"}),
            "'odd' is not one of",
        ),
        (
            json!({"interface": "raid", "step": 5}),
            "5 is not of type 'string'",
        ),
        (json!({"interface": "raid", "step": ""}), "is too short"),
        (
            json!({"interface": "raid", "step": "x", "args": []}),
            "is not of type 'object'",
        ),
        (
            json!({"interface": "raid", "step": "x", "odd": 1}),
            "('odd' was unexpected)",
        ),
    ] {
        let body = json!({"target": "clean", "clean_steps": [step]});
        let message = refuses(&bench, &body, LATEST, 400);
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn clean_takes_steps_of_known_interfaces() {
    let bench = ApiBench::with(ProvisionState::Manageable);
    let step = json!({"interface": "deploy", "step": "erase_devices", "args": {"a": 1}});
    let order = accepts(
        &bench,
        &json!({"target": "clean", "clean_steps": [step]}),
        LATEST,
    );
    let RackOrder::Provision { args, .. } = order else {
        panic!("not a verb");
    };
    assert_eq!(args.steps[0].step, "erase_devices");
    assert_eq!(args.steps[0].args, json!({"a": 1}));
    for steps in [
        json!(null),
        json!({}),
        json!([]),
        json!([5]),
        json!([{"step": "x"}]),
        json!([{"interface": "deploy"}]),
        json!([{"interface": "deploy", "step": ""}]),
        json!([{"interface": "dance", "step": "x"}]),
        json!([{"interface": "deploy", "step": "x", "args": []}]),
        json!([{"interface": "deploy", "step": "x", "priority": 1}]),
        Value::Array(vec![step; STEPS_MAX + 1]),
        json!([{"interface": "deploy", "step": "x", "args": {"a": "x".repeat(STEPS_BYTES_MAX)}}]),
    ] {
        refuses(
            &bench,
            &json!({"target": "clean", "clean_steps": steps}),
            LATEST,
            400,
        );
    }
}

#[test]
fn deploy_steps_need_all_four_keys() {
    let bench = ready();
    let step = json!({"interface": "deploy", "step": "write_image", "args": {}, "priority": 80});
    let body = json!({"target": "active", "deploy_steps": [step]});
    let RackOrder::Provision { args, .. } = accepts(&bench, &body, LATEST) else {
        panic!("not a verb");
    };
    assert_eq!(args.steps[0].priority, 80);
    for missing in ["interface", "step", "args", "priority"] {
        let mut short = step.clone();
        short.as_object_mut().unwrap().remove(missing);
        let body = json!({"target": "active", "deploy_steps": [short]});
        refuses(&bench, &body, LATEST, 400);
    }
    refuses(&bench, &body, "1.68", 406);
}

#[test]
fn a_config_drive_is_text_or_an_object_of_known_parts() {
    let bench = ready();
    let body = |drive: &Value| json!({"target": "active", "configdrive": drive});
    for drive in [
        json!("H4sI"),
        json!({"meta_data": {"uuid": "x"}, "user_data": "#!/bin/sh", "network_data": {}}),
        json!({"user_data": {"a": 1}, "vendor_data": {}}),
        json!({"user_data": ["a"]}),
    ] {
        let RackOrder::Provision { args, .. } = accepts(&bench, &body(&drive), LATEST) else {
            panic!("not a verb");
        };
        assert_eq!(args.configdrive, Some(drive));
    }
    for drive in [
        json!(5),
        json!({"colour": 1}),
        json!({"meta_data": "x"}),
        json!({"user_data": 5}),
        json!("x".repeat(CONFIGDRIVE_BYTES_MAX)),
    ] {
        refuses(&bench, &body(&drive), LATEST, 400);
    }
    refuses(&bench, &body(&json!({"meta_data": {}})), "1.55", 400);
    refuses(&bench, &body(&json!({"vendor_data": {}})), "1.58", 400);
    refuses(
        &ApiBench::with(ProvisionState::Active),
        &json!({"target": "rebuild", "configdrive": "x"}),
        "1.34",
        400,
    );
}

#[test]
fn a_deployment_is_refused_for_what_is_known_to_be_missing() {
    let mut bench = ready();
    let body = json!({"target": "active"});
    accepts(&bench, &body, LATEST);
    bench.change(|node| node.maintenance = true);
    let message = refuses(&bench, &body, LATEST, 400);
    assert!(message.contains("maintenance"), "{message}");
    bench.change(|node| {
        node.maintenance = false;
        node.instance_info.remove("image_checksum");
    });
    let message = refuses(&bench, &body, LATEST, 400);
    assert!(message.contains("image_checksum"), "{message}");
    bench.change(|node| drop(node.instance_info.remove("image_source")));
    let message = refuses(&bench, &body, LATEST, 400);
    assert!(message.contains("image_source"), "{message}");
    bench.change(|node| drop(node.driver_info.remove("ipmi_address")));
    let message = refuses(&bench, &body, LATEST, 400);
    assert!(message.contains("ipmi_address"), "{message}");
}

#[test]
fn a_node_at_work_is_locked() {
    let bench = ApiBench::with(ProvisionState::Deploying);
    let message = refuses(&bench, &json!({"target": "deleted"}), LATEST, 409);
    assert!(message.contains("is locked by host box"), "{message}");
}

#[test]
fn a_node_without_inspection_is_not_inspected() {
    let mut unwired = ApiBench::with(ProvisionState::Manageable);
    // Without ports it is found by the address of its BMC, but not by a host name.
    unwired.change(|node| {
        node.driver_info
            .insert("ipmi_address".into(), "192.0.2.9".into());
    });
    accepts(&unwired, &json!({"target": "inspect"}), LATEST);
    unwired.change(|node| {
        node.driver_info
            .insert("ipmi_address".into(), "bmc.example".into());
    });
    let message = refuses(&unwired, &json!({"target": "inspect"}), LATEST, 400);
    assert!(message.contains("does not have any port"), "{message}");
    let mut bench = unwired.wired();
    accepts(&bench, &json!({"target": "inspect"}), LATEST);
    bench.change(|node| {
        node.attributes
            .set("inspect_interface", Some(json!("no-inspect")))
            .unwrap();
    });
    let message = refuses(&bench, &json!({"target": "inspect"}), LATEST, 400);
    assert!(message.contains("does not support inspect"), "{message}");
}

#[test]
fn power_targets_become_requests() {
    let mut bench = ApiBench::with(ProvisionState::Active);
    for (target, want) in [
        ("power on", PowerWanted::State(PowerState::On)),
        ("power off", PowerWanted::State(PowerState::Off)),
        ("rebooting", PowerWanted::Reboot),
        ("soft power off", PowerWanted::SoftOff),
        ("soft rebooting", PowerWanted::SoftReboot),
    ] {
        let body = json!({"target": target, "timeout": 60}).to_string();
        let request = send("PUT", POWER, &body).at(LATEST);
        let node = node_id(1);
        let timeout_s = Some(60);
        let wanted = RackOrder::Power {
            node,
            want,
            timeout_s,
        };
        assert_eq!(bench.order(&request).0, wanted);
        let response = bench.done(&request);
        assert_eq!(response.status, 202);
        assert!(response.header("Location").unwrap().ends_with("/states"));
    }
}

#[test]
fn a_rescue_password_is_hidden() {
    let mut bench = ApiBench::with(ProvisionState::Active);
    let body = json!({"target": "rescue", "rescue_password": "hunter2"}).to_string();
    let request = send("PUT", PROVISION, &body).at(LATEST);
    let order = bench.order(&request).0;
    assert!(!format!("{order:?}").contains("hunter2"), "{order:?}");
    let RackOrder::Provision { args, .. } = order else {
        panic!("{order:?}");
    };
    let password = args.rescue_password.unwrap();
    assert_eq!(password.reveal(), "hunter2");
    let long = json!({"target": "rescue", "rescue_password": "x".repeat(256)});
    refuses(&bench, &long, LATEST, 400);
    bench.change(|node| {
        node.attributes
            .set("rescue_interface", Some(json!("no-rescue")))
            .unwrap();
    });
    let message = bench.refuses(&request, 400);
    assert!(message.contains("does not support rescue"), "{message}");
}

#[test]
fn the_ramdisk_may_be_left_out_of_clean_and_service() {
    let steps = json!([{"interface": "power", "step": "hold"}]);
    for (verb, state) in [
        ("clean", ProvisionState::Manageable),
        ("service", ProvisionState::Active),
    ] {
        let bench = ApiBench::with(state);
        let mut body = json!({"target": verb, "disable_ramdisk": true});
        body[format!("{verb}_steps")] = steps.clone();
        let body = body.to_string();
        let request = send("PUT", PROVISION, &body).at(LATEST);
        let RackOrder::Provision { args, .. } = bench.order(&request).0 else {
            panic!("{verb}");
        };
        assert!(args.disable_ramdisk);
    }
}

#[test]
fn power_is_refused_for_nonsense_versions_and_states() {
    let bench = ApiBench::with(ProvisionState::Active);
    let refuse = |bench: &ApiBench, body: Value, version: &str, status: u16| {
        bench.refuses(&send("PUT", POWER, &body.to_string()).at(version), status)
    };
    for body in [
        json!({}),
        json!({"target": "explode"}),
        json!({"target": "power on", "timeout": 0}),
        json!({"target": "power on", "timeout": -1}),
        json!({"target": "power on", "timeout": "x"}),
        json!({"target": "power on", "colour": 1}),
    ] {
        refuse(&bench, body, LATEST, 400);
    }
    refuse(&bench, json!({"target": "soft power off"}), "1.26", 406);
    refuse(
        &bench,
        json!({"target": "power on", "timeout": 5}),
        "1.26",
        406,
    );
    for state in [ProvisionState::Cleaning, ProvisionState::CleanWait] {
        refuse(
            &ApiBench::with(state),
            json!({"target": "power on"}),
            LATEST,
            400,
        );
    }
    let busy = ApiBench::with(ProvisionState::Deploying);
    refuse(&busy, json!({"target": "power on"}), LATEST, 409);
    let mut always_on = ApiBench::with(ProvisionState::Active);
    always_on.change(|node| node.attributes.disable_power_off = true);
    refuse(&always_on, json!({"target": "power off"}), LATEST, 409);
    refuse(&always_on, json!({"target": "soft power off"}), LATEST, 409);
    always_on.order(&send("PUT", POWER, r#"{"target": "rebooting"}"#).at(LATEST));
}

const WITH_INSTANCE_INFO: &str = "/trivet/nodes/node-1/provision";

#[test]
fn a_verb_has_its_change_of_instance_info_in_the_same_order() {
    let mut bench = ready();
    bench.change(|node| node.provision_state = ProvisionState::Active);
    let body = json!({"target": "rebuild", "instance_info": {
        "image_source": "http://box/new.img", "image_checksum": null,
        "image_os_hash_algo": "sha256", "image_os_hash_value": "0e".repeat(32),
    }})
    .to_string();
    let request = send("PUT", WITH_INSTANCE_INFO, &body).at(LATEST);
    let RackOrder::Provision { verb, args, .. } = bench.order(&request).0 else {
        panic!("not a verb");
    };
    assert_eq!(verb, Verb::Rebuild);
    let info = args.instance_info.unwrap();
    assert_eq!(info["image_source"], "http://box/new.img");
    assert!(!info.contains_key("image_checksum"), "null removes a key");
    assert_eq!(bench.done(&request).status, 202);
    // Ironic's own request does not have this key, and other verbs do not need it.
    refuses(&bench, &serde_json::from_str(&body).unwrap(), LATEST, 400);
    let body = r#"{"target": "undeploy", "instance_info": {"image_source": "x"}}"#;
    let message = bench.refuses(&send("PUT", WITH_INSTANCE_INFO, body).at(LATEST), 400);
    assert!(message.contains("instance_info"), "{message}");
    let body = r#"{"target": "undeploy"}"#;
    bench.order(&send("PUT", WITH_INSTANCE_INFO, body).at(LATEST));
}

#[test]
fn the_new_instance_info_is_what_a_deployment_is_checked_with() {
    let mut bench = ready();
    bench.change(|node| node.instance_info.clear());
    refuses(&bench, &json!({"target": "active"}), LATEST, 400);
    let body = json!({"target": "active", "instance_info": {
        "image_source": "http://box/new.img", "image_checksum": "0e".repeat(32),
    }})
    .to_string();
    bench.order(&send("PUT", WITH_INSTANCE_INFO, &body).at(LATEST));
    let body = json!({"target": "active", "instance_info": {"image_source": null}}).to_string();
    bench.refuses(&send("PUT", WITH_INSTANCE_INFO, &body).at(LATEST), 400);
}
