use serde_json::{Value, json};
use trivet_model::attributes::NodeAttributes;
use trivet_model::{JobStep, NodeId, SeededRandom, StepKind, UnixMs};

use super::*;

fn node(driver: &str) -> Node {
    Node::new(NodeId::random(&mut SeededRandom::new(1)), driver, UnixMs(1))
}

fn with_info(driver: &str, info: Value) -> Node {
    let mut node = node(driver);
    node.driver_info = info.as_object().cloned().unwrap_or_default();
    node
}

#[track_caller]
fn lacks(node: &Node, kind: InterfaceKind, part: &str) {
    let why = check(node, kind, &|_| false).unwrap_or_default();
    assert!(why.contains(part), "{why:?} does not say {part:?}");
}

#[test]
fn only_hardware_that_reports_its_power_state_is_said_to_report_it() {
    let note = |node: &Node| power_note(node, PowerState::On).to_string();
    assert_eq!(note(&node("ipmi")), "BMC reports power on");
    let mut by_hand = node("manual-management");
    let assumed = "power on is assumed: this power interface cannot read the power state";
    assert_eq!(note(&by_hand), assumed);
    by_hand.attributes.interfaces.power = Some(PowerInterface::WakeOnLan);
    assert_eq!(note(&by_hand), assumed);
}

#[test]
fn every_hardware_type_has_a_default_of_every_kind() {
    for hardware in &ALL {
        for kind in InterfaceKind::ALL {
            let names = hardware.interfaces(kind);
            assert!(!names.is_empty(), "{} {kind:?}", hardware.name);
            assert_eq!(interface(&node(hardware.name), kind), names[0]);
            let twice = names
                .iter()
                .any(|name| names.iter().filter(|other| *other == name).count() > 1);
            assert!(!twice, "{} {kind:?}", hardware.name);
        }
    }
}

#[test]
fn kinds_are_found_by_name_and_by_field() {
    for kind in InterfaceKind::ALL {
        assert_eq!(InterfaceKind::named(kind.as_str()), Some(kind));
        assert_eq!(InterfaceKind::named(kind.field()), Some(kind));
        assert_eq!(kind.field(), format!("{}_interface", kind.as_str()));
    }
    assert_eq!(InterfaceKind::named("colour"), None);
}

#[test]
fn a_chosen_interface_counts_only_where_the_hardware_type_has_it() {
    let mut node = node("fake-hardware");
    node.attributes.interfaces.deploy = Some(DeployInterface::Direct);
    assert_eq!(interface(&node, InterfaceKind::Deploy), "direct");
    assert_eq!(deploy_interface(&node), Some(DeployInterface::Direct));
    node.attributes.interfaces.power = Some(PowerInterface::Ipmitool);
    assert_eq!(interface(&node, InterfaceKind::Power), "fake");
    assert_eq!(power_interface(&node), Some(PowerInterface::Fake));
    node.driver = "nonesuch".into();
    assert_eq!(interface(&node, InterfaceKind::Deploy), "");
    assert_eq!(deploy_interface(&node), None);
    lacks(&node, InterfaceKind::Deploy, "nonesuch");
}

/// Only another release can have stored such a name.
#[test]
fn an_interface_that_this_release_does_not_know_has_no_effect() {
    let mut node = node("fake-hardware");
    let stored = serde_json::json!({"deploy_interface": "anaconda", "boot_interface": "ipxe"});
    let stored = stored.as_object().unwrap().clone();
    node.attributes = NodeAttributes::from_object(stored);
    assert_eq!(interface(&node, InterfaceKind::Deploy), "fake");
    assert_eq!(interface(&node, InterfaceKind::Boot), "ipxe");
}

/// The deploy interfaces of machines.
const DEPLOY: &str = "autodetect direct ramdisk custom-agent";

/// The names of Ironic in the order of `InterfaceKind::ALL`; of each kind, the first is the
/// default. They are part of the API.
#[test]
fn hardware_types_have_the_interfaces_of_their_documentation() {
    let without_bmc = |power: &str| {
        format!(
            "no-bios; ipxe pxe; no-console; {DEPLOY}; no-firmware; agent no-inspect; noop; \
             noop; {power}; no-raid agent; agent no-rescue; noop; no-vendor"
        )
    };
    let expected = [
        (
            "ipmi",
            format!(
                "no-bios; ipxe pxe; no-console; {DEPLOY}; no-firmware; agent no-inspect; \
                 ipmitool noop; noop; ipmitool; no-raid agent; agent no-rescue; noop; \
                 ipmitool no-vendor"
            ),
        ),
        (
            "redfish",
            format!(
                "redfish no-bios; ipxe pxe redfish-virtual-media redfish-https; no-console; \
                 {DEPLOY}; redfish no-firmware; agent no-inspect; redfish noop; noop; redfish; \
                 redfish no-raid agent; agent no-rescue; noop; redfish no-vendor"
            ),
        ),
        ("manual-management", without_bmc("fake wake-on-lan")),
        ("ssh", without_bmc("ssh")),
        (
            "fake-hardware",
            "fake no-bios; fake ipxe pxe; fake no-console; \
             fake autodetect direct ramdisk custom-agent; fake no-firmware; \
             fake agent no-inspect; fake noop; noop; fake; fake no-raid agent; \
             fake agent no-rescue; noop; fake no-vendor"
                .to_owned(),
        ),
    ];
    assert_eq!(expected.len(), ALL.len());
    for (name, expected) in expected {
        let hardware = named(name).unwrap();
        let kinds = InterfaceKind::ALL.map(|kind| hardware.interfaces(kind).join(" "));
        assert_eq!(kinds.join("; "), expected, "{name}");
        for kind in InterfaceKind::ALL {
            let default = interface(&node(name), kind);
            assert_eq!(hardware.interfaces(kind).first(), Some(&default), "{name}");
            assert_eq!(is_off(&node(name), kind), default.starts_with("no-"));
        }
    }
}

#[test]
fn older_names_become_todays_with_the_interfaces_they_meant() {
    for (older, today) in [
        ("agent_ipmitool", "ipmi"),
        ("agent_pyghmi", "ipmi"),
        ("agent_ssh", "ssh"),
        ("fake_agent", "fake-hardware"),
    ] {
        assert_eq!(named(older).map(|hardware| hardware.name), Some(today));
        let mut node = node(older);
        adopt_alias(&mut node);
        assert_eq!(node.driver, today);
    }
    let mut simulated = node("fake_agent");
    simulated
        .attributes
        .set("boot_interface", Some("pxe".into()))
        .unwrap();
    adopt_alias(&mut simulated);
    assert_eq!(interface(&simulated, InterfaceKind::Boot), "pxe");
    assert_eq!(interface(&simulated, InterfaceKind::Deploy), "direct");
    assert_eq!(interface(&simulated, InterfaceKind::Inspect), "agent");
    assert_eq!(interface(&simulated, InterfaceKind::Power), "fake");
}

#[test]
fn an_alias_chooses_only_what_its_hardware_type_has() {
    for (older, today) in ALIASES {
        let mut node = node(older);
        adopt_alias(&mut node);
        for kind in InterfaceKind::ALL {
            if let Some(chosen) = node.attributes.get(kind.field()) {
                assert_eq!(chosen, interface(&node, kind), "{today}");
            }
        }
    }
}

#[test]
fn ipmi_wants_an_address_and_a_port_that_is_one() {
    lacks(&node("ipmi"), InterfaceKind::Power, "ipmi_address");
    let good = with_info(
        "ipmi",
        json!({"ipmi_address": "192.0.2.7", "ipmi_port": "6230"}),
    );
    assert_eq!(check(&good, InterfaceKind::Power, &|_| false), None);
    assert_eq!(check(&good, InterfaceKind::Management, &|_| false), None);
    for port in [json!(0), json!(65_536), json!("x"), json!([623])] {
        let info = json!({"ipmi_address": "192.0.2.7", "ipmi_port": port});
        lacks(&with_info("ipmi", info), InterfaceKind::Power, "ipmi_port");
    }
}

#[test]
fn ssh_wants_host_user_and_one_key() {
    let mut info = json!({});
    for (key, value) in [
        ("ssh_address", "192.0.2.7"),
        ("ssh_username", "root"),
        ("private key", "x"),
    ] {
        lacks(&with_info("ssh", info.clone()), InterfaceKind::Power, key);
        info[key] = json!(value);
    }
    info["ssh_key_filename"] = json!("id_rsa");
    lacks(
        &with_info("ssh", info.clone()),
        InterfaceKind::Power,
        "hardware.ssh_keys",
    );
    info["ssh_key_filename"] = json!("/k");
    assert_eq!(
        check(
            &with_info("ssh", info.clone()),
            InterfaceKind::Power,
            &|_| false
        ),
        None
    );
    info["ssh_key_contents"] = json!("-----BEGIN");
    lacks(
        &with_info("ssh", info.clone()),
        InterfaceKind::Power,
        "both",
    );
    info["ssh_virt_type"] = json!("vbox");
    lacks(&with_info("ssh", info), InterfaceKind::Power, "virsh");
}

#[test]
fn redfish_names_what_is_missing_or_wrong() {
    lacks(&node("redfish"), InterfaceKind::Power, "redfish_address");
    let whole = with_info("redfish", json!({"redfish_address": "https://192.0.2.7"}));
    assert_eq!(check(&whole, InterfaceKind::Power, &|_| false), None);
    assert_eq!(check(&whole, InterfaceKind::Management, &|_| false), None);
    // As in Ironic, a Redfish node has these by default; they have no steps yet.
    lacks(
        &whole,
        InterfaceKind::Bios,
        "does not drive bios by Redfish yet",
    );
    let wrong = |key: &str, value: &str| {
        let mut node = whole.clone();
        node.driver_info.insert(key.into(), value.into());
        lacks(&node, InterfaceKind::Power, key);
    };
    wrong("redfish_auth_type", "digest");
    wrong("redfish_password", "p");
}

#[test]
fn an_image_needs_a_digest_unless_it_is_the_boxes_own() {
    let mut node = node("ipmi");
    lacks(&node, InterfaceKind::Deploy, "image_source");
    node.instance_info.insert("image_source".into(), "a".into());
    lacks(
        &node,
        InterfaceKind::Deploy,
        "neither an image of this box nor a URL: a;",
    );
    assert_eq!(
        check(&node, InterfaceKind::Deploy, &|name| name == "a"),
        None
    );
    node.instance_info
        .insert("image_source".into(), "http://a".into());
    lacks(&node, InterfaceKind::Deploy, "digest");
    node.properties
        .insert("capabilities".into(), "boot_mode:eufi".into());
    lacks(&node, InterfaceKind::Deploy, "boot_mode eufi");
    node.properties.clear();
    node.instance_info
        .insert("image_checksum".into(), "0".into());
    assert_eq!(check(&node, InterfaceKind::Deploy, &|_| false), None);
}

#[test]
fn an_image_of_a_registry_needs_no_digest() {
    let mut node = node("ipmi");
    let mut set = |source: &str| {
        let key = "image_source".to_owned();
        node.instance_info.insert(key, source.into());
        check(&node, InterfaceKind::Deploy, &|_| false)
    };
    assert_eq!(set("oci://h:5000/team/debian:12"), None);
    let why = set("oci://ann:hunter2@h/debian").unwrap();
    assert!(
        why.contains("oci://******@h/debian has a user in it"),
        "{why}"
    );
    let why = set("oci://h:5000/team/Debian").unwrap();
    assert!(
        why.contains("oci://h:5000/team/Debian has no valid repository"),
        "{why}"
    );
}

#[test]
fn whether_agents_stay_is_yes_or_no() {
    let mut node = node("ipmi");
    let mut message_of = |value: Value| {
        node.driver_info.insert("fast_track".into(), value);
        fast_track(&node.driver_info)
    };
    assert_eq!(message_of(Value::Null), Ok(None));
    assert_eq!(message_of(true.into()), Ok(Some(true)));
    assert_eq!(message_of("False".into()), Ok(Some(false)));
    assert_eq!(message_of(1.into()), Ok(Some(true)));
    assert!(message_of(2.into()).is_err());
    assert!(message_of("banana".into()).is_err());
    lacks(&node, InterfaceKind::Deploy, "fast_track");
}

#[test]
fn a_fake_lacks_nothing() {
    for kind in InterfaceKind::ALL {
        assert_eq!(
            check(&node("fake-hardware"), kind, &|_| false),
            None,
            "{kind:?}"
        );
    }
}

#[test]
fn abilities_follow_interfaces_not_hardware_types() {
    let mut fake = node("fake-hardware");
    assert!(can(&fake, HardwareCapability::Bios) && can(&fake, HardwareCapability::Raid));
    assert!(can(&fake, HardwareCapability::SoftPower) && !can(&fake, HardwareCapability::Nmi));
    fake.attributes
        .set("bios_interface", Some("no-bios".into()))
        .unwrap();
    assert!(!can(&fake, HardwareCapability::Bios) && can(&fake, HardwareCapability::Raid));
    let ipmi = node("ipmi");
    assert!(can(&ipmi, HardwareCapability::SoftPower) && !can(&ipmi, HardwareCapability::Raid));
    assert!(
        can(&node("redfish"), HardwareCapability::SoftPower)
            && can(&node("redfish"), HardwareCapability::Nmi)
    );
    assert!(
        can(&ipmi, HardwareCapability::Indicators) && !can(&ipmi, HardwareCapability::VirtualMedia)
    );
    assert!(can(&node("redfish"), HardwareCapability::VirtualMedia));
    assert!(is_fake(&fake) && !is_fake(&ipmi));
}

#[test]
fn boot_devices_follow_the_management_interface() {
    assert_eq!(boot_devices(&node("fake-hardware")), [BootDevice::Pxe]);
    assert_eq!(boot_devices(&node("ipmi")), BootDevice::ALL);
    assert!(boot_devices(&node("ssh")).is_empty());
}

#[test]
fn only_manual_management_is_done_by_hand() {
    assert!(is_manual(&node("manual-management")));
    assert!(!is_manual(&node("fake-hardware")) && !is_manual(&node("nonesuch")));
}

#[test]
fn properties_describe_driver_info_and_secrets_are_known_as_such() {
    let ssh = named("ssh").unwrap();
    let keys: Vec<_> = ssh.properties().map(|(key, _)| key).collect();
    assert!(keys.contains(&"ssh_address") && keys.contains(&"deploy_kernel"));
    for hardware in &ALL {
        for (key, text) in hardware.properties() {
            assert!(text.ends_with('.'), "{key}: {text}");
        }
    }
    for key in ["ipmi_password", "redfish_password", "ssh_key_contents"] {
        assert!(trivet_model::secret::is_secret_key(key), "{key}");
    }
}

fn step(interface: &str, name: &str, args: Value) -> JobStep {
    JobStep {
        step: name.into(),
        interface: interface.into(),
        priority: 0,
        args,
        reboot_requested: false,
        abortable: true,
    }
}

#[test]
fn reserved_steps_belong_to_power_alone() {
    let act = |name: &str, args| reserved(&step("power", name, args));
    assert_eq!(act("hold", json!({})), Some(ReservedStep::Hold));
    assert_eq!(act("reboot", json!({})), Some(ReservedStep::Reboot));
    assert_eq!(act("dance", json!({})), None);
    assert_eq!(reserved(&step("deploy", "hold", json!({}))), None);
    let wait = |args| act("wait", args);
    let seconds = |seconds| Some(ReservedStep::Wait { seconds });
    assert_eq!(wait(json!({"seconds": 5})), seconds(Some(5)));
    assert_eq!(wait(json!({"seconds": "5"})), seconds(Some(5)));
    assert_eq!(wait(json!({})), seconds(None));
    let long = wait(json!({"seconds": u64::MAX}));
    assert_eq!(long, seconds(Some(steps::WAIT_S_MAX)));
}

#[test]
fn fake_steps_are_those_clients_request() {
    let clean = fake_steps(StepKind::Clean);
    assert!(clean.contains(&("bios", "apply_configuration")));
    assert!(clean.contains(&("raid", "create_configuration")));
    assert_eq!(clean, fake_steps(StepKind::Service));
    assert!(!fake_steps(StepKind::Deploy).contains(&("deploy", "erase_devices")));
}

#[test]
fn an_instance_that_boots_from_the_network_names_its_files() {
    for driver in [
        "ipmi",
        "redfish",
        "ssh",
        "manual-management",
        "fake-hardware",
    ] {
        let mut node = node(driver);
        assert!(!netboots_instance(&node));
        node.attributes
            .set("deploy_interface", Some("ramdisk".into()))
            .unwrap();
        assert!(netboots_instance(&node), "{driver}");
        lacks(&node, InterfaceKind::Deploy, "boot_iso");
        node.instance_info.insert("boot_iso".into(), "a.iso".into());
        assert_eq!(check(&node, InterfaceKind::Deploy, &|_| false), None);
    }
}

#[test]
fn an_agent_that_cannot_be_booted_is_reported_by_the_boot_interface() {
    let info = json!({"deploy_kernel": "http://h/k"});
    lacks(
        &with_info("ipmi", info),
        InterfaceKind::Boot,
        "deploy_ramdisk",
    );
    let info = json!({"deploy_kernel": "http://ann:secret@h/k", "deploy_ramdisk": "http://h/r"});
    lacks(
        &with_info("ipmi", info),
        InterfaceKind::Boot,
        "a user and a password",
    );
    let info = json!({"kernel_append_params": "a && b"});
    lacks(
        &with_info("ipmi", info),
        InterfaceKind::Boot,
        "kernel_append_params",
    );
    assert_eq!(check(&node("ipmi"), InterfaceKind::Boot, &|_| false), None);
}

#[test]
fn wake_on_lan_checks_its_settings_and_those_of_the_host() {
    let wake = |info: Value| {
        let mut node = with_info("manual-management", info);
        node.attributes.interfaces.power = Some(PowerInterface::WakeOnLan);
        node
    };
    let power = InterfaceKind::Power;
    assert_eq!(interface(&wake(json!({})), power), "wake-on-lan");
    assert_eq!(check(&wake(json!({})), power, &|_| false), None);
    let named = wake(json!({"wol_address": "192.0.2.255", "wol_port": 7}));
    assert_eq!(check(&named, power, &|_| false), None);
    lacks(&wake(json!({"wol_address": "lan"})), power, "wol_address");
    lacks(&wake(json!({"wol_port": 0})), power, "wol_port");
    let host = json!({"ssh_address": "192.0.2.9"});
    lacks(&wake(host), power, "ssh_username");
}

#[test]
fn autodetect_boots_a_ramdisk_only_where_the_instance_says_so() {
    let mut node = node("ipmi");
    assert_eq!(interface(&node, InterfaceKind::Deploy), "autodetect");
    for (info, method) in [
        (json!({}), DeployInterface::Direct),
        (json!({"boot_iso": "a.iso"}), DeployInterface::Direct),
        (
            json!({"ironic_ramdisk_deploy": true}),
            DeployInterface::Direct,
        ),
        (
            json!({"ironic_ramdisk_deploy": true, "kernel": "k", "ramdisk": null}),
            DeployInterface::Direct,
        ),
        (
            json!({"ironic_ramdisk_deploy": "false", "boot_iso": "a.iso"}),
            DeployInterface::Direct,
        ),
        (
            json!({"ironic_ramdisk_deploy": "True", "boot_iso": "a.iso"}),
            DeployInterface::Ramdisk,
        ),
        (
            json!({"ironic_ramdisk_deploy": true, "kernel": "k", "ramdisk": "r"}),
            DeployInterface::Ramdisk,
        ),
    ] {
        node.instance_info = info.as_object().cloned().unwrap();
        assert_eq!(deploy_method(&node), Some(method), "{info}");
        assert_eq!(netboots_instance(&node), method == DeployInterface::Ramdisk);
    }
    // The rest of the check is that of what was selected.
    assert_eq!(check(&node, InterfaceKind::Deploy, &|_| false), None);
    node.instance_info.clear();
    lacks(&node, InterfaceKind::Deploy, "image_source");
    node.driver = "nonesuch".into();
    assert_eq!(deploy_method(&node), None);
}

#[test]
fn a_custom_agent_needs_no_image() {
    let mut node = node("redfish");
    node.attributes.interfaces.deploy = Some(DeployInterface::CustomAgent);
    assert_eq!(check(&node, InterfaceKind::Deploy, &|_| false), None);
    assert!(!netboots_instance(&node));
    node.properties
        .insert("capabilities".into(), "boot_mode:eufi".into());
    lacks(&node, InterfaceKind::Deploy, "boot_mode eufi");
}

#[test]
fn an_external_url_has_a_host_and_no_path() {
    let url = |value: Value| {
        let node = with_info("ipmi", json!({"external_http_url": value}));
        external_http_url(&node.driver_info).map(|url| url.map(str::to_owned))
    };
    for good in [
        "http://192.0.2.1:8080",
        "https://box.example",
        "http://[2001:db8::1]:8080",
    ] {
        assert_eq!(url(good.into()), Ok(Some(good.to_owned())));
        assert_eq!(url(format!(" {good}/ ").into()), Ok(Some(good.to_owned())));
    }
    for absent in [Value::Null, "".into(), " ".into()] {
        assert_eq!(url(absent), Ok(None));
    }
    let long = format!("http://{}", "x".repeat(300));
    for bad in [
        json!(5),
        json!("box"),
        json!("ftp://box"),
        json!("http://"),
        json!("http://box/path"),
        json!("http://user:secret@box"),
        json!("http://box?x"),
        json!("http://b ox"),
        json!(long),
    ] {
        assert!(url(bad.clone()).is_err(), "{bad}");
    }
    let mut node = with_info("ipmi", json!({"external_http_url": "box"}));
    node.instance_info = json!({"image_source": "a"}).as_object().cloned().unwrap();
    assert!(
        check(&node, InterfaceKind::Deploy, &|_| true)
            .unwrap()
            .contains("external_http_url")
    );
}

#[test]
fn reasons_begin_with_ironics_words() {
    let node = with_info("redfish", json!({}));
    for (node, want) in [
        (
            with_info("ipmi", json!({})),
            "Missing the following IPMI credentials in node's driver_info: ['ipmi_address']."
                .to_owned(),
        ),
        (
            with_info(
                "ipmi",
                json!({"ipmi_address": "192.0.2.7", "ipmi_port": "x"}),
            ),
            "ipmi_port \"x\" is not a valid port.".to_owned(),
        ),
        (
            with_info(
                "ipmi",
                json!({"ipmi_address": "192.0.2.7", "ipmi_port": "y".repeat(99)}),
            ),
            format!("ipmi_port \"{}...\" is not a valid port.", "y".repeat(40)),
        ),
        (
            node.clone(),
            format!(
                "Missing the following Redfish properties in node {} driver_info: \
                 ['redfish_address'].",
                node.id
            ),
        ),
        (
            with_info(
                "redfish",
                json!({"redfish_address": "a", "redfish_auth_type": "x"}),
            ),
            "Invalid value \"x\" set in driver_info/redfish_auth_type on node".to_owned(),
        ),
    ] {
        for kind in [InterfaceKind::Power, InterfaceKind::Management] {
            let why = check(&node, kind, &|_| false).unwrap();
            assert!(why.starts_with(&want), "{why}");
        }
    }
}
