//! The steps of `GenericHardwareManager` 1.2, the only manager on plain hardware.

use serde_json::{Map, Value, json};

use super::messages;

/// One step: its name, its interface, its priority, and its arguments.
type SimIpaStepRow = (
    &'static str,
    &'static str,
    i64,
    &'static [SimIpaStepArgument],
);

/// An argument and whether it is required.
type SimIpaStepArgument = (&'static str, bool);

const NVRAM: &[SimIpaStepArgument] = &[("match_patterns", false)];
const FILES: &[SimIpaStepArgument] = &[("files", false), ("verify_ca", false)];
const RAID: &[SimIpaStepArgument] = &[("raid_config", true), ("delete_existing", false)];

const CLEAN: [SimIpaStepRow; 12] = [
    ("erase_devices", "deploy", 10, &[]),
    ("erase_devices_metadata", "deploy", 99, &[]),
    ("erase_devices_express", "deploy", 0, &[]),
    ("erase_pstore", "deploy", 0, &[]),
    ("clean_uefi_nvram", "deploy", 0, NVRAM),
    ("delete_configuration", "raid", 0, &[]),
    ("create_configuration", "raid", 0, &[]),
    ("burnin_cpu", "deploy", 0, &[]),
    ("burnin_gpu", "deploy", 0, &[]),
    ("burnin_disk", "deploy", 0, &[]),
    ("burnin_memory", "deploy", 0, &[]),
    ("burnin_network", "deploy", 0, &[]),
];

const DEPLOY: [SimIpaStepRow; 6] = [
    ("erase_devices_metadata", "deploy", 0, &[]),
    ("apply_configuration", "raid", 0, RAID),
    ("clean_uefi_nvram", "deploy", 0, NVRAM),
    ("write_image", "deploy", 0, &[]),
    ("inject_files", "deploy", 0, FILES),
    ("execute_bootc_install", "deploy", 0, &[]),
];

const SERVICE: [SimIpaStepRow; 10] = [
    ("delete_configuration", "raid", 0, &[]),
    ("apply_configuration", "raid", 0, RAID),
    ("create_configuration", "raid", 0, &[]),
    ("burnin_cpu", "deploy", 0, &[]),
    ("burnin_gpu", "deploy", 0, &[]),
    ("burnin_memory", "deploy", 0, &[]),
    ("burnin_network", "deploy", 0, &[]),
    ("write_image", "deploy", 0, &[]),
    ("inject_files", "deploy", 0, FILES),
    ("execute_bootc_install", "deploy", 0, &[]),
];

fn rows(kind: &str) -> &'static [SimIpaStepRow] {
    match kind {
        "clean" => &CLEAN,
        "deploy" => &DEPLOY,
        _ => &SERVICE,
    }
}

/// The steps of a kind, by manager.
pub(super) fn step_list(kind: &str) -> Value {
    let described = |(name, interface, priority, args): &SimIpaStepRow| {
        let mut step = json!({
            "step": name, "priority": priority, "interface": interface,
            "reboot_requested": false,
        });
        // Steps that deployments also have are not abortable, in a service neither.
        let deploys = DEPLOY.iter().any(|(deploy, ..)| deploy == name);
        if kind == "clean" || (kind == "service" && !deploys) {
            step["abortable"] = true.into();
        }
        if !args.is_empty() {
            step["argsinfo"] = args
                .iter()
                .map(|(name, required)| {
                    let reported = json!({"description": messages::ARGUMENT, "required": required});
                    ((*name).to_owned(), reported)
                })
                .collect::<Map<_, _>>()
                .into();
        }
        step
    };
    let steps: Vec<_> = rows(kind).iter().map(described).collect();
    json!({ "GenericHardwareManager": steps })
}

/// Why the arguments of a step are wrong, as `command_error`.
pub(super) fn argument_error(kind: &str, name: &str, args: &Map<String, Value>) -> Option<Value> {
    // The manager's methods are found by name, in any list.
    let all = ["clean", "deploy", "service"].into_iter().flat_map(rows);
    let Some((.., takes)) = all.into_iter().find(|(step, ..)| *step == name) else {
        let details = format!("Could not find method: {name}");
        return Some(messages::error("HardwareManagerMethodNotFound", &details));
    };
    let hidden: &[SimIpaStepArgument] = match name {
        "write_image" => &[("image_info", true), ("configdrive", false)],
        "execute_bootc_install" => &[
            ("image_source", true),
            ("configdrive", true),
            ("oci_pull_secret", true),
        ],
        _ => &[],
    };
    let takes = || takes.iter().chain(hidden);
    let unknown = args
        .keys()
        .find(|key| !takes().any(|(name, _)| name == key));
    let missing = takes().find(|(name, required)| *required && !args.contains_key(*name));
    let why = match (unknown, missing) {
        (Some(key), _) => format!("got an unexpected keyword argument '{key}'"),
        (None, Some((key, _))) => format!("missing 1 required positional argument: '{key}'"),
        (None, None) => return None,
    };
    let class = match kind {
        "clean" => "CleaningError",
        "deploy" => "DeploymentError",
        _ => "ServicingError",
    };
    let details = format!(
        "Unexpected exception performing {kind} step {name}. TypeError: \
         GenericHardwareManager.{name}() {why}"
    );
    Some(messages::error(class, &details))
}
