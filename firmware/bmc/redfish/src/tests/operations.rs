use serde_json::{Value, json};
use trivet_model::bmc_request::MediaDevice;
use trivet_model::secret::SecretText;
use trivet_model::{BmcFailureCause, PowerError};

use super::rig::{RedfishTestRig, body, cause, deliver, json_answer, lost};
use crate::service::{RedfishSimulatorAction, RedfishSimulatorSetup};
use crate::{
    BmcHttpMethod, RedfishBootMode, RedfishOperation, RedfishReply, RedfishSecureBoot, SENSORS_MAX,
    URL_BYTES_MAX,
};

const DONE: Result<RedfishReply, PowerError> = Ok(RedfishReply::Done);
const ISO: &str = "http://192.0.2.1/agent.iso";

fn insert(url: &str) -> RedfishOperation {
    RedfishOperation::InsertMedia {
        device: MediaDevice::Cdrom,
        url: SecretText::new(url),
    }
}

const EJECT: RedfishOperation = RedfishOperation::EjectMedia {
    devices: Vec::new(),
};

/// The image in the CD drive.
#[track_caller]
fn inside(rig: &mut RedfishTestRig) -> Option<String> {
    let Ok(RedfishReply::Media(drives)) = rig.operation(RedfishOperation::Media) else {
        panic!("no drives");
    };
    let cd = drives
        .iter()
        .find(|drive| drive.devices.contains(&MediaDevice::Cdrom));
    cd.unwrap().image.clone()
}

fn media(actions: Vec<RedfishSimulatorAction>) -> Vec<Option<String>> {
    let image = |action| match action {
        RedfishSimulatorAction::Media(_, image) => image,
        other => panic!("{other:?}"),
    };
    actions.into_iter().map(image).collect()
}

/// A BMC that consists of one system and its linked resources; every other path is 404.
fn fixed(resources: Value) -> RedfishTestRig {
    RedfishTestRig::against(
        move |request| match (request.method, request.path.as_str()) {
            (BmcHttpMethod::Get, "/redfish/v1/Systems") => {
                json_answer(200, &json!({"Members": [{"@odata.id": "/s"}]}))
            }
            (BmcHttpMethod::Get, path) => match resources.get(path) {
                Some(body) => json_answer(200, body),
                None => json_answer(404, &Value::Null),
            },
            _ => json_answer(204, &Value::Null),
        },
    )
}

#[test]
fn an_image_is_inserted_into_the_cd_drive_and_ejected() {
    for media_below_manager in [false, true] {
        let mut rig = RedfishTestRig::new(RedfishSimulatorSetup {
            media_below_manager,
            ..RedfishSimulatorSetup::default()
        });
        assert_eq!(inside(&mut rig), None);
        assert_eq!(rig.operation(insert(ISO)), DONE);
        assert_eq!(inside(&mut rig).as_deref(), Some(ISO));
        assert_eq!(rig.operation(EJECT), DONE);
        assert_eq!(inside(&mut rig), None);
        assert_eq!(
            media(rig.service.take_actions()),
            [Some(ISO.to_owned()), None]
        );
    }
}

#[test]
fn the_same_image_is_left_and_another_one_is_ejected() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    assert_eq!(rig.operation(insert(ISO)), DONE);
    assert_eq!(rig.operation(insert(ISO)), DONE);
    assert_eq!(media(rig.service.take_actions()), [Some(ISO.to_owned())]);
    assert_eq!(rig.operation(insert("http://192.0.2.1/b.iso")), DONE);
    let want = [None, Some("http://192.0.2.1/b.iso".to_owned())];
    assert_eq!(media(rig.service.take_actions()), want);
    assert_eq!(rig.operation(EJECT), DONE);
    assert_eq!(rig.operation(EJECT), DONE);
    assert_eq!(media(rig.service.take_actions()), [None]);
}

#[test]
fn an_insertion_that_was_lost_counts_by_what_is_read() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    rig.wire(|now, request, service, entropy| {
        let answer = deliver(now, request, service, entropy);
        if request.path.contains("InsertMedia") {
            Err(lost())
        } else {
            answer
        }
    });
    assert_eq!(rig.operation(insert(ISO)), DONE);
    assert_eq!(rig.service.take_actions().len(), 1);
}

#[test]
fn a_drive_that_stays_empty_is_not_applied() {
    let drive = json!({"MediaTypes": ["CD"], "Inserted": false, "Actions": {
        "#VirtualMedia.InsertMedia": {"target": "/i"},
    }});
    let mut rig = fixed(json!({
        "/s": {"VirtualMedia": {"@odata.id": "/v"}},
        "/v": {"Members": [{"@odata.id": "/v/1"}]}, "/v/1": drive,
    }));
    assert_eq!(
        cause(rig.operation(insert(ISO))),
        BmcFailureCause::NotApplied
    );
}

/// Older services have no actions and no `Inserted` property.
#[test]
fn a_drive_without_actions_is_changed_itself() {
    let mut rig = fixed(json!({
        "/s": {"VirtualMedia": {"@odata.id": "/v"}},
        "/v": {"Members": [{"@odata.id": "/v/1"}]}, "/v/1": {"Image": ISO},
    }));
    assert_eq!(inside(&mut rig).as_deref(), Some(ISO));
    assert_eq!(cause(rig.operation(EJECT)), BmcFailureCause::NotApplied);
    let patch = rig
        .requests
        .iter()
        .find(|one| one.method == BmcHttpMethod::Patch)
        .unwrap();
    assert_eq!(body(patch), json!({"Image": null, "Inserted": false}));
}

#[test]
fn addresses_that_no_bmc_should_fetch_are_refused() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    let long = format!("http://{}", "x".repeat(URL_BYTES_MAX));
    for url in [
        "",
        "file:///etc/passwd",
        "ftp://x",
        "http://a b",
        "http://a\n",
        &long,
    ] {
        let refused = rig.operation(insert(url));
        assert!(
            matches!(refused, Err(PowerError::Unsupported { .. })),
            "{url}"
        );
    }
    assert!(rig.requests.is_empty());
}

#[test]
fn boots_by_http_from_an_address() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    rig.service.machine(0).unwrap().boot[2] = "Legacy".to_owned();
    let url = "http://192.0.2.1/boot.efi".to_owned();
    let operation = RedfishOperation::BootHttp {
        url: url.clone(),
        persistent: false,
    };
    assert_eq!(rig.operation(operation), DONE);
    let boot = &rig.service.machine(0).unwrap().boot;
    assert_eq!(*boot, ["UefiHttp", "Once", "UEFI", url.as_str()]);
}

#[test]
fn the_boot_mode_is_read_and_set() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    assert_eq!(
        rig.operation(RedfishOperation::BootMode),
        Ok(RedfishReply::BootMode(RedfishBootMode::Uefi))
    );
    assert_eq!(
        rig.operation(RedfishOperation::SetBootMode(RedfishBootMode::Uefi)),
        DONE
    );
    assert!(rig.service.take_actions().is_empty(), "it is so already");
    assert_eq!(
        rig.operation(RedfishOperation::SetBootMode(RedfishBootMode::Legacy)),
        DONE
    );
    assert_eq!(
        rig.operation(RedfishOperation::BootMode),
        Ok(RedfishReply::BootMode(RedfishBootMode::Legacy))
    );
    let mut rig = fixed(json!({"/s": {"Boot": {}}}));
    for operation in [
        RedfishOperation::BootMode,
        RedfishOperation::SetBootMode(RedfishBootMode::Uefi),
    ] {
        let answer = rig.operation(operation);
        assert!(
            matches!(answer, Err(PowerError::Unsupported { .. })),
            "{answer:?}"
        );
    }
}

#[test]
fn secure_boot_is_read_and_set() {
    let is = |enabled| {
        let current = Some(false);
        Ok(RedfishReply::SecureBoot(RedfishSecureBoot {
            enabled,
            current,
        }))
    };
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    assert_eq!(rig.operation(RedfishOperation::SecureBoot), is(false));
    assert_eq!(rig.operation(RedfishOperation::SetSecureBoot(true)), DONE);
    assert_eq!(rig.operation(RedfishOperation::SetSecureBoot(true)), DONE);
    assert_eq!(rig.operation(RedfishOperation::SecureBoot), is(true));
    assert_eq!(
        rig.service.take_actions(),
        [RedfishSimulatorAction::SecureBoot(0, true)]
    );
    let mut rig = fixed(json!({"/s": {}}));
    let lacks = rig.operation(RedfishOperation::SecureBoot);
    assert!(
        matches!(lacks, Err(PowerError::Unsupported { .. })),
        "{lacks:?}"
    );
    let mut rig = fixed(json!({"/s": {"SecureBoot": {"@odata.id": "/b"}}, "/b": {}}));
    assert_eq!(
        cause(rig.operation(RedfishOperation::SecureBoot)),
        BmcFailureCause::InvalidResponse
    );
}

#[test]
fn the_identify_led_is_read_and_switched() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    assert_eq!(
        rig.operation(RedfishOperation::Indicator),
        Ok(RedfishReply::Indicator(false))
    );
    assert_eq!(rig.operation(RedfishOperation::SetIndicator(true)), DONE);
    assert_eq!(rig.operation(RedfishOperation::SetIndicator(true)), DONE);
    assert_eq!(
        rig.operation(RedfishOperation::Indicator),
        Ok(RedfishReply::Indicator(true))
    );
    assert_eq!(rig.service.take_actions().len(), 1);
}

#[test]
fn an_older_indicator_on_the_chassis_is_found() {
    let mut rig = fixed(json!({
        "/s": {"Links": {"Chassis": [{"@odata.id": "/c"}]}}, "/c": {"IndicatorLED": "Off"},
    }));
    assert_eq!(
        rig.operation(RedfishOperation::Indicator),
        Ok(RedfishReply::Indicator(false))
    );
    assert_eq!(
        cause(rig.operation(RedfishOperation::SetIndicator(true))),
        BmcFailureCause::NotApplied
    );
    let patch = rig
        .requests
        .iter()
        .find(|one| one.method == BmcHttpMethod::Patch)
        .unwrap();
    assert_eq!(
        (patch.path.as_str(), body(patch)),
        ("/c", json!({"IndicatorLED": "Lit"}))
    );
    let mut rig = fixed(json!({"/s": {}}));
    let lacks = rig.operation(RedfishOperation::Indicator);
    assert!(
        matches!(lacks, Err(PowerError::Unsupported { .. })),
        "{lacks:?}"
    );
}

#[test]
fn sensors_are_read_one_by_one_or_from_the_older_tables() {
    for sensors in [true, false] {
        let mut rig = RedfishTestRig::new(RedfishSimulatorSetup {
            sensors,
            ..RedfishSimulatorSetup::default()
        });
        let Ok(RedfishReply::Sensors(found)) = rig.operation(RedfishOperation::Sensors) else {
            panic!("no sensors");
        };
        assert_eq!(found.len(), 4);
        let inlet = &found[0];
        assert_eq!((inlet.name.as_str(), inlet.value), ("Inlet", Some(24.5)));
        assert_eq!(
            (inlet.kind.as_str(), inlet.unit.as_str()),
            ("Temperature", "Cel")
        );
        assert_eq!(inlet.health.as_deref(), sensors.then_some("OK"));
        if !sensors {
            assert_eq!((found[3].name.as_str(), found[3].value), ("P12V", None));
        }
    }
}

#[test]
fn members_that_are_shown_whole_need_no_second_look() {
    let member = json!({"Name": "Inlet", "Reading": 20, "@odata.id": "/c/s/1"});
    let mut rig = fixed(json!({
        "/s": {"Links": {"Chassis": [{"@odata.id": "/c"}]}},
        "/c": {"Sensors": {"@odata.id": "/c/s"}}, "/c/s": {"Members": [member]},
    }));
    let sensors = rig.operation(RedfishOperation::Sensors);
    assert!(matches!(sensors, Ok(RedfishReply::Sensors(found)) if found.len() == 1));
    assert_eq!(rig.requests.len(), 4);
}

#[test]
fn sensors_have_a_bound_and_their_absence_an_error() {
    let rows: Vec<Value> = (0..1000)
        .map(|at| json!({"Name": format!("T{at}")}))
        .collect();
    let mut rig = fixed(json!({
        "/s": {"Links": {"Chassis": [{"@odata.id": "/c"}]}},
        "/c": {"Thermal": {"@odata.id": "/t"}}, "/t": {"Temperatures": rows},
    }));
    let Ok(RedfishReply::Sensors(found)) = rig.operation(RedfishOperation::Sensors) else {
        panic!("no sensors");
    };
    assert_eq!(found.len(), SENSORS_MAX);
    let mut rig = fixed(json!({"/s": {}}));
    let lacks = rig.operation(RedfishOperation::Sensors);
    assert!(
        matches!(lacks, Err(PowerError::Unsupported { .. })),
        "{lacks:?}"
    );
}

#[test]
fn the_inventory_describes_the_machine() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    let Ok(RedfishReply::Inventory(found)) = rig.operation(RedfishOperation::Inventory) else {
        panic!("no inventory");
    };
    assert_eq!(found.maker.as_deref(), Some("Trivet"));
    assert_eq!(found.model.as_deref(), Some("Simulated server"));
    assert_eq!(found.serial.as_deref(), Some("S1"));
    assert_eq!((found.memory_mib, found.cpus), (Some(65_536), Some(2)));
    assert_eq!(found.macs, rig.service.machine(0).unwrap().macs);
}

#[test]
fn an_inventory_of_strange_values_is_a_poor_one() {
    let mut rig = fixed(json!({
        "/s": {
            "Manufacturer": 7, "Model": "", "SerialNumber": "a\u{7}b",
            "MemorySummary": {"TotalSystemMemoryGiB": -1}, "ProcessorSummary": [],
            "EthernetInterfaces": {"@odata.id": "/e"},
        },
        "/e": {"Members": [{"@odata.id": "/e/1"}, {"@odata.id": "/e/2"}, 7]},
        "/e/1": {"MACAddress": "02:00:00:00:00:01"},
        "/e/2": {"MACAddress": "nonsense", "PermanentMACAddress": 7},
    }));
    let Ok(RedfishReply::Inventory(found)) = rig.operation(RedfishOperation::Inventory) else {
        panic!("no inventory");
    };
    assert_eq!((&found.maker, &found.model), (&None, &None));
    assert_eq!(found.serial.as_deref(), Some("a b"));
    assert_eq!(
        (found.memory_mib, found.cpus, found.macs.len()),
        (None, None, 1)
    );
}

#[test]
fn an_image_is_inserted_into_a_drive_of_its_kind() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    let disk = RedfishOperation::InsertMedia {
        device: MediaDevice::Disk,
        url: SecretText::new(ISO),
    };
    let lacks = rig.operation(disk);
    assert!(
        matches!(lacks, Err(PowerError::Unsupported { .. })),
        "{lacks:?}"
    );
    assert_eq!(rig.operation(insert(ISO)), DONE);
    rig.service.take_actions();
    let floppies = RedfishOperation::EjectMedia {
        devices: vec![MediaDevice::Floppy],
    };
    assert_eq!(rig.operation(floppies), DONE);
    assert!(rig.service.take_actions().is_empty());
    assert_eq!(inside(&mut rig).as_deref(), Some(ISO));
}

#[test]
fn the_bmc_returns_its_identity() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    let Ok(RedfishReply::Identity(who)) = rig.operation(RedfishOperation::Identity) else {
        panic!("nobody");
    };
    assert_eq!(who.protocol, "redfish");
    assert_eq!(who.protocol_version.as_deref(), Some("1.15.0"));
    assert_eq!(who.firmware_version.as_deref(), Some("2.4"));
}
