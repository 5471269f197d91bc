//! Tests of responses and their tables.

use serde_json::json;

use super::*;

fn lines(view: &OutputView, body: &Value) -> Vec<String> {
    view.table(body).lines(None)
}

#[test]
fn nodes_in_a_list() {
    let body = json!({"nodes": [
        {"name": "n1", "uuid": "u1", "provision_state": "deploying",
         "target_provision_state": "active", "power_state": "power on", "driver": "ipmi",
         "maintenance": false, "last_error": null},
        {"name": null, "uuid": "u2", "provision_state": "clean failed", "power_state": null,
         "driver": "ipmi", "maintenance": true, "last_error": "no disk"},
    ]});
    assert_eq!(
        lines(&OutputView::Nodes, &body),
        [
            "NAME  UUID  STATE                POWER  DRIVER  REMARK",
            "n1    u1    deploying -> active  on     ipmi",
            "u2    u2    clean failed                ipmi    maintenance: no disk",
        ]
    );
    assert_eq!(
        lines(&OutputView::Nodes, &json!({})).len(),
        1,
        "the head is always there"
    );
}

#[test]
fn at_80_columns_a_list_shows_the_reason_and_no_cut_uuid() {
    let body = json!({"nodes": [
        {"name": "node-01", "uuid": "00000000-0000-4000-8000-000000000001",
         "power_state": "power off", "provision_state": "deploy failed",
         "target_provision_state": "active", "driver": "ipmi", "maintenance": false,
         "last_error": "the BMC refused the login; check ipmi_username"},
        {"name": "node-02", "uuid": "00000000-0000-4000-8000-000000000002",
         "power_state": "power on", "provision_state": "wait call-back",
         "target_provision_state": "active", "driver": "ipmi", "maintenance": false,
         "last_error": null,
         "activity": "61 %, try 1 of 4, 2 min 05 s: loading initrd, 43 %"},
    ]});
    let lines = OutputView::Nodes.table(&body).lines(Some(80));
    assert!(lines.iter().all(|line| line.len() <= 80), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains("0000")), "{lines:?}");
    assert!(lines[1].contains("the BMC refused the login"), "{lines:?}");
    assert!(
        lines[2].contains("61 %, try 1 of 4, 2 min 05 s: "),
        "{lines:?}"
    );
    assert!(lines[2].contains("  wait call-back  "), "{lines:?}");
    let wide = OutputView::Nodes.table(&body).lines(None);
    assert!(wide[1].contains("-000000000001"), "{wide:?}");
}

#[test]
fn one_node_shows_fields_that_are_not_empty() {
    let body = json!({
        "name": "n1", "description": null, "owner": "", "traits": [], "links": [1],
        "extra": {}, "driver_info": {"a": 1, "b": {"c": true}}, "maintenance": false,
        "states": [],
    });
    assert_eq!(
        lines(&OutputView::Node, &body),
        [
            "driver_info.a  1",
            "driver_info.b  {\"c\":true}",
            "maintenance    no",
            "name           n1",
        ]
    );
    assert!(lines(&OutputView::Node, &json!("odd")).is_empty());
}

#[test]
fn images_by_name() {
    let body = json!({"images": [
        {"name": "a.raw", "size": 16_777_216, "state": "fetching", "here": 4_194_304,
         "sha256": "00", "format": "xz", "raw": {"sha256": "11", "size": 7}},
    ]});
    assert_eq!(
        lines(&OutputView::Images, &body)[1],
        "a.raw  xz      16.0 MiB  fetching  25%     00"
    );
    let (one, exit) = OutputView::Image("a.raw".to_owned())
        .chosen(body.clone())
        .unwrap();
    assert_eq!((&one["sha256"], exit), (&json!("00"), Exit::Fine));
    let shown = lines(&OutputView::Image("a.raw".to_owned()), &one);
    assert!(
        shown
            .iter()
            .any(|line| line.starts_with("raw.sha256  ") && line.ends_with("11"))
    );
    let fault = OutputView::Image("b".to_owned()).chosen(body).unwrap_err();
    assert_eq!(fault.exit, Exit::NotFound);
    assert!(fault.sentence.contains("trivet image list"));
}

#[test]
fn networks_faults_and_unknown_machines() {
    let body = json!({"networks": [
        {"name": "eth0", "mode": "server", "other_servers": []},
        {"name": "eth1", "mode": "listen", "other_servers": [{"address": "192.0.2.9",
            "mac": null, "vendor": null, "seen_at": "now"}]},
    ]});
    let shown = lines(&OutputView::Networks, &body);
    assert_eq!(shown[1], "eth0     server  none detected");
    assert_eq!(shown[2], "eth1     listen  192.0.2.9                   now");
    let body = json!({"faults": [{"since": "t", "fault": "no address is left"}]});
    assert_eq!(
        lines(&OutputView::Faults, &body)[1],
        "t      no address is left"
    );
    let body = json!({"strangers": [{"mac": "m", "vendor": "Dell", "architecture": 7,
        "uuid": "u", "network": "eth0", "address": null, "seen_at": "t"}]});
    let want = "m    Dell    7     u     eth0              t";
    assert_eq!(lines(&OutputView::UnknownMachines, &body)[1], want);
}

#[test]
fn what_a_deployment_needs_decides_the_code() {
    let fine = json!({"deploy": {"result": true}, "rescue": {"result": false, "reason": "x"}});
    assert_eq!(
        OutputView::Validation.chosen(fine.clone()).unwrap().1,
        Exit::Fine
    );
    assert_eq!(
        lines(&OutputView::Validation, &fine),
        [
            "INTERFACE  VALID  REASON",
            "deploy     yes",
            "rescue     no     x"
        ]
    );
    let bad = json!({"deploy": {"result": false, "reason": "no image"}});
    assert_eq!(OutputView::Validation.chosen(bad).unwrap().1, Exit::Failed);
}

#[test]
fn an_inventory_in_few_lines() {
    let body = json!({"inventory": {
        "system_vendor": {"manufacturer": "Acme", "product_name": "R1", "serial_number": "7"},
        "cpu": {"count": 8, "architecture": "x86_64", "model_name": "Fast"},
        "memory": {"physical_mb": 2048}, "bmc_address": "192.0.2.1",
        "disks": [{"name": "/dev/sda", "size": 1_000_000_000_000_u64, "model": "D"}],
        "interfaces": [{"name": "eth0", "mac_address": "52:54:00:00:00:01"}],
        "boot": {"current_boot_mode": "uefi"},
    }});
    assert_eq!(
        lines(&OutputView::Inventory, &body),
        [
            "system     Acme R1 7",
            "cpu        8 x86_64 Fast",
            "memory     2.0 GiB",
            "disk       /dev/sda 931.3 GiB D",
            "interface  eth0 52:54:00:00:00:01",
            "boot mode  uefi",
            "bmc        192.0.2.1",
        ]
    );
    assert_eq!(
        lines(&OutputView::Inventory, &json!({"inventory": []})).len(),
        2
    );
}

#[test]
fn smaller_answers() {
    let body = json!({"supported_boot_devices": ["pxe", "disk"]});
    assert_eq!(lines(&OutputView::BootDevices, &body), ["pxe", "disk"]);
    let body = json!({"boot_device": "pxe", "persistent": false});
    assert_eq!(
        lines(&OutputView::BootDevice, &body),
        ["boot_device  pxe", "persistent   no"]
    );
    let body = json!({"boot_device": null, "persistent": null});
    assert_eq!(
        lines(&OutputView::BootDevice, &body)[0],
        "boot_device  unknown"
    );
    let power = OutputView::Power("n1".to_owned());
    let body = json!({"power_state": "power off", "target_power_state": "power on"});
    assert_eq!(lines(&power, &body), ["n1  power off -> power on"]);
    assert_eq!(lines(&power, &json!({})), ["n1  unknown"]);
    let body = json!({"history": [{"created_at": "t", "severity": "ERROR", "event": "e"}]});
    assert_eq!(lines(&OutputView::History, &body)[1], "t     ERROR     e");
    let body = json!({"ports": [{"address": "a", "uuid": "u", "node_uuid": "n",
        "pxe_enabled": true}]});
    assert_eq!(
        lines(&OutputView::Ports, &body)[1],
        "a        u     n     yes"
    );
}

#[test]
fn sizes_have_units() {
    assert_eq!(size(1023), "1023 B");
    assert_eq!(size(1024), "1.0 KiB");
    assert_eq!(size(1_572_864), "1.5 MiB");
    assert_eq!(size(u64::MAX), "16383.9 PiB");
}
