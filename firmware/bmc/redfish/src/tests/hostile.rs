//! Responses that no correct BMC sends.

use proptest::prelude::*;
use serde_json::{Value, json};
use trivet_model::bmc_request::MediaDevice;
use trivet_model::secret::SecretText;
use trivet_model::{BmcFailureCause, BootDevice, PowerOrder};

use super::rig::{RedfishTestRig, cause, json_answer};
use crate::service::RedfishSimulatorSetup;
use crate::{BmcHttpResponse, HTTP_BODY_BYTES_MAX, RedfishBootMode, RedfishOperation};

fn all_orders() -> Vec<PowerOrder> {
    let boot = PowerOrder::SetBoot {
        device: BootDevice::Cdrom,
        persistent: true,
        efi: true,
    };
    vec![
        PowerOrder::Status,
        PowerOrder::On,
        PowerOrder::Off,
        PowerOrder::SoftOff,
        PowerOrder::Cycle,
        PowerOrder::Reset,
        PowerOrder::Nmi,
        PowerOrder::BmcReset { warm: false },
        PowerOrder::ReadBoot,
        boot,
    ]
}

fn all_operations() -> Vec<RedfishOperation> {
    let url = "http://192.0.2.1/x".to_owned();
    vec![
        RedfishOperation::BootHttp {
            url: url.clone(),
            persistent: true,
        },
        RedfishOperation::InsertMedia {
            device: MediaDevice::Cdrom,
            url: SecretText::new(url),
        },
        RedfishOperation::EjectMedia {
            devices: Vec::new(),
        },
        RedfishOperation::Identity,
        RedfishOperation::Media,
        RedfishOperation::BootMode,
        RedfishOperation::SetBootMode(RedfishBootMode::Legacy),
        RedfishOperation::SecureBoot,
        RedfishOperation::SetSecureBoot(true),
        RedfishOperation::Sensors,
        RedfishOperation::Inventory,
        RedfishOperation::Indicator,
        RedfishOperation::SetIndicator(true),
    ]
}

/// Every order and operation ends, whatever this peer responds.
fn everything_ends(peer: impl Fn(&crate::BmcHttpRequest) -> BmcHttpResponse + Clone + 'static) {
    for order in all_orders() {
        let _ = RedfishTestRig::against(peer.clone()).order(order);
    }
    for operation in all_operations() {
        let _ = RedfishTestRig::against(peer.clone()).operation(operation);
    }
}

#[test]
fn a_body_that_is_too_long_is_not_read() {
    let long = BmcHttpResponse {
        status: 200,
        body: vec![b' '; HTTP_BODY_BYTES_MAX + 1],
        ..BmcHttpResponse::default()
    };
    let mut rig = RedfishTestRig::against(move |_| long.clone());
    assert_eq!(
        cause(rig.order(PowerOrder::Status)),
        BmcFailureCause::InvalidResponse
    );
}

#[test]
fn many_long_bodies_are_not_stored() {
    let padding = "x".repeat(HTTP_BODY_BYTES_MAX - 200);
    let mut rig = RedfishTestRig::against(move |request| {
        if request.path == "/redfish/v1/Systems" {
            return json_answer(200, &json!({"Members": [{"@odata.id": "/s"}]}));
        }
        // Each sensor is a new long response.
        let members: Vec<Value> = (0..50)
            .map(|at| json!({"@odata.id": format!("/x{at}")}))
            .collect();
        let links = json!({"Chassis": [{"@odata.id": "/c"}]});
        let body = match request.path.as_str() {
            "/s" => json!({"Links": links}),
            "/c" => json!({"Sensors": {"@odata.id": "/l"}}),
            "/l" => json!({"Members": members}),
            _ => json!({"Name": "x", "padding": padding}),
        };
        json_answer(200, &body)
    });
    assert_eq!(
        cause(rig.operation(RedfishOperation::Sensors)),
        BmcFailureCause::InvalidResponse
    );
    assert!(rig.requests.len() < 12);
}

#[test]
fn deep_nests_are_no_answer() {
    let mut body = "[".repeat(100_000);
    body.push_str(&"]".repeat(100_000));
    let nested = move |_: &crate::BmcHttpRequest| BmcHttpResponse {
        status: 200,
        body: body.clone().into_bytes(),
        ..BmcHttpResponse::default()
    };
    let mut rig = RedfishTestRig::against(nested);
    assert_eq!(
        cause(rig.order(PowerOrder::Status)),
        BmcFailureCause::InvalidResponse
    );
}

#[test]
fn truncated_and_foreign_bodies_are_nonsense() {
    for body in ["{\"PowerState\": \"O", "<html>", "7", "null", "", "\u{0}"] {
        let answer = BmcHttpResponse {
            status: 200,
            body: body.as_bytes().to_vec(),
            ..BmcHttpResponse::default()
        };
        let mut rig = RedfishTestRig::against(move |_| answer.clone());
        assert_eq!(
            cause(rig.order(PowerOrder::Status)),
            BmcFailureCause::InvalidResponse,
            "{body}"
        );
    }
}

#[test]
fn wrong_types_are_nonsense_and_never_a_power_state() {
    for value in [
        json!(null),
        json!(7),
        json!([]),
        json!({}),
        json!("on"),
        json!("ON"),
    ] {
        let mut rig = RedfishTestRig::against(move |request| {
            if request.path == "/redfish/v1/Systems" {
                return json_answer(200, &json!({"Members": [{"@odata.id": "/s"}]}));
            }
            json_answer(200, &json!({"PowerState": value}))
        });
        assert_eq!(
            cause(rig.order(PowerOrder::Status)),
            BmcFailureCause::InvalidResponse
        );
    }
    for members in [
        json!([]),
        json!({}),
        json!(7),
        json!([7, []]),
        json!([{"@odata.id": 7}]),
    ] {
        let mut rig =
            RedfishTestRig::against(move |_| json_answer(200, &json!({"Members": members})));
        assert_eq!(
            cause(rig.order(PowerOrder::Status)),
            BmcFailureCause::InvalidResponse
        );
    }
}

/// Whatever is linked, every request goes to the BMC.
#[test]
fn links_to_other_hosts_are_never_followed() {
    for link in [
        "https://evil.example/redfish/v1/Systems/1",
        "//evil.example/x",
        "http://192.0.2.7/x",
        "/../x",
        "/x y",
        "/x\r\nHost: evil.example",
    ] {
        let value = json!({
            "@odata.id": link, "target": link, "Members": [{"@odata.id": link}],
            "Actions": {"#ComputerSystem.Reset": {"target": link}},
        });
        let mut rig = RedfishTestRig::against(move |_| BmcHttpResponse {
            location: Some(link.to_owned()),
            ..json_answer(200, &value)
        });
        assert_eq!(
            cause(rig.order(PowerOrder::On)),
            BmcFailureCause::InvalidResponse,
            "{link}"
        );
        assert_eq!(rig.take_requests(), ["GET /redfish/v1/Systems"]);
    }
}

#[test]
fn an_action_or_a_drive_elsewhere_is_not_used() {
    let hostile = "https://evil.example/x";
    let system = json!({
        "PowerState": "On", "@odata.id": "/s",
        "Actions": {"#ComputerSystem.Reset": {"target": hostile}},
        "VirtualMedia": {"@odata.id": hostile}, "SecureBoot": {"@odata.id": hostile},
        "Links": {"Chassis": [{"@odata.id": hostile}], "ManagedBy": [{"@odata.id": hostile}]},
        "EthernetInterfaces": {"@odata.id": hostile},
    });
    let peer = move |request: &crate::BmcHttpRequest| {
        assert!(request.path.starts_with('/') && !request.path.contains("evil"));
        if request.path == "/redfish/v1/Systems" {
            return json_answer(200, &json!({"Members": [{"@odata.id": "/s"}]}));
        }
        json_answer(200, &system)
    };
    everything_ends(peer.clone());
    for operation in [
        RedfishOperation::Media,
        RedfishOperation::SecureBoot,
        RedfishOperation::Sensors,
        RedfishOperation::Inventory,
    ] {
        let answer = RedfishTestRig::against(peer.clone()).operation(operation);
        assert_eq!(cause(answer), BmcFailureCause::InvalidResponse);
    }
}

#[test]
fn a_redirect_is_not_followed() {
    for status in [301, 302, 307, 308] {
        let answer = BmcHttpResponse {
            location: Some("/elsewhere".to_owned()),
            ..json_answer(status, &Value::Null)
        };
        let mut rig = RedfishTestRig::against(move |_| answer.clone());
        let answer = rig.order(PowerOrder::Status);
        let text = answer.as_ref().unwrap_err().to_string();
        assert!(text.contains("redfish_address"), "{text}");
        assert_eq!(rig.requests.len(), 1);
    }
}

/// One resource that has every type at once, and links to itself.
#[test]
fn a_resource_that_is_its_own_member_leads_nowhere() {
    let me = json!({"@odata.id": "/me"});
    let members: Vec<Value> = vec![me.clone(); 400];
    let action = json!({"target": "/me", "@Redfish.ActionInfo": "/me"});
    let body = json!({
        "@odata.id": "/me", "Members": members, "Sensors": me, "Thermal": me, "Power": me,
        "VirtualMedia": me, "SecureBoot": me, "EthernetInterfaces": me,
        "Links": {"Chassis": members, "ManagedBy": members}, "PowerState": "Off",
        "TaskState": "Running", "Inserted": true, "Image": "x", "SecureBootEnable": false,
        "Boot": {"BootSourceOverrideMode": "UEFI"}, "IndicatorLED": "Off",
        "Actions": {"#ComputerSystem.Reset": action, "#Manager.Reset": action,
                    "#VirtualMedia.InsertMedia": action, "#VirtualMedia.EjectMedia": action},
    });
    for status in [200, 202] {
        let body = body.clone();
        everything_ends(move |request| {
            if request.path == "/redfish/v1/Systems" {
                return json_answer(200, &json!({"Members": [{"@odata.id": "/me"}]}));
            }
            let status = if request.method == crate::BmcHttpMethod::Get {
                200
            } else {
                status
            };
            BmcHttpResponse {
                location: Some("/me".to_owned()),
                ..json_answer(status, &body)
            }
        });
    }
}

#[test]
fn a_mark_that_fits_no_header_is_not_repeated() {
    let good = "\"1\"".to_owned();
    for (etag, sent) in [
        (good.clone(), Some(good)),
        ("a\r\nb".to_owned(), None),
        ("a b".to_owned(), None),
        ("x".repeat(500), None),
    ] {
        let mut rig = RedfishTestRig::against(move |request| {
            if request.path == "/redfish/v1/Systems" {
                return json_answer(200, &json!({"Members": [{"@odata.id": "/s"}]}));
            }
            json_answer(200, &json!({"IndicatorLED": "Off", "@odata.etag": etag}))
        });
        let _ = rig.operation(RedfishOperation::SetIndicator(true));
        let patch = rig
            .requests
            .iter()
            .find(|one| one.method == crate::BmcHttpMethod::Patch);
        assert_eq!(patch.unwrap().if_match, sent);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "On",
        "Off",
        "/s",
        "/t",
        "Completed",
        "Running",
        "Pxe",
        "CD",
        "https://evil.example/",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        words.prop_map(Value::from),
    ];
    let keys = prop::sample::select(vec![
        "@odata.id",
        "Members",
        "PowerState",
        "Actions",
        "#ComputerSystem.Reset",
        "target",
        "Boot",
        "Links",
        "Chassis",
        "ManagedBy",
        "Sensors",
        "VirtualMedia",
        "SecureBoot",
        "TaskState",
        "error",
        "Reading",
        "Name",
        "Inserted",
        "Image",
        "IndicatorLED",
        "EthernetInterfaces",
        "@Redfish.ActionInfo",
        "Parameters",
        "BootSourceOverrideMode",
    ]);
    leaf.prop_recursive(4, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys.clone(), inner, 0..6).prop_map(|map| map
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn everything_ends_whatever_is_answered(
        answers in prop::collection::vec((100_u16..600, any_json()), 1..6),
        location in prop::option::of("[/a-z:.]{0,12}"),
        retry_after_s in prop::option::of(any::<u64>()),
    ) {
        everything_ends(move |request| {
            let at = request.path.len() % answers.len();
            let (status, body) = &answers[at];
            BmcHttpResponse {
                location: location.clone(),
                retry_after_s,
                ..json_answer(*status, body)
            }
        });
    }
}

#[test]
fn secrets_that_a_bmc_repeats_are_redacted() {
    let far = "x".repeat(190);
    for message in [
        "The value 'calvin' for the property Password is of a different format".to_owned(),
        "Authorization: Basic cm9vdDpjYWx2aW4=".to_owned(),
        // Truncated in the middle of the secret.
        format!("{far}calvin"),
    ] {
        for status in [400, 401, 403, 404, 500, 503] {
            let body = json!({"error": {"message": message, "@Message.ExtendedInfo":
                [{"MessageId": "Base.1.0.PropertyValueFormatError", "Message": message}]}});
            let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
            rig.wire(move |_, _, _, _| Ok(json_answer(status, &body)));
            let shown = rig.order(PowerOrder::On).unwrap_err().to_string();
            for secret in ["calv", "cm9vdD"] {
                assert!(!shown.contains(secret), "{status}: {shown}");
            }
        }
    }
}
