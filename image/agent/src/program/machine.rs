//! Facts of this machine, from `trivet-image-inventory`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use trivet_image_inventory::{
    CollectorOptions, InventoryCollector, LinuxCalls, SystemRoot, collect_document,
    collect_inventory,
};

use super::{clock, log, logs};
use crate::hardware_manager::ManagerFacts;
use crate::parameters::AgentParameters;

/// Whether the kernel has found a disk.
pub(super) fn has_disk() -> bool {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    entries
        .into_iter()
        .any(|entry| entry.path().join("device").exists())
}

/// What is collected with these parameters.
fn options(parameters: &AgentParameters, managers: &[ManagerFacts]) -> CollectorOptions {
    let named = |manager: &ManagerFacts| json!({"name": manager.name, "version": manager.version});
    let mut collectors = Vec::new();
    for name in &parameters.inspection_collectors {
        match InventoryCollector::of_name(name) {
            Some(collector) => collectors.push(collector),
            None => log(&format!("there is no collector {name}")),
        }
    }
    if collectors.is_empty() {
        collectors = CollectorOptions::default().collectors;
    }
    CollectorOptions {
        collectors,
        managers: managers.iter().map(named).collect(),
        boot_interface: parameters.boot_interface.clone(),
        lldp_timeout: parameters.lldp_timeout,
        logs: logs::own_files(),
        unix_s: clock::unix_s().cast_unsigned(),
        ..CollectorOptions::default()
    }
}

/// The inventory.
pub(super) fn inventory(parameters: &AgentParameters) -> Value {
    let options = options(parameters, &[]);
    let mut calls = LinuxCalls::default();
    json!(collect_inventory(&root(), &mut calls, &options))
}

/// The inspection data.
pub(super) fn inspection(parameters: &AgentParameters, managers: &[ManagerFacts]) -> Value {
    let options = options(parameters, managers);
    let mut calls = LinuxCalls::default();
    json!(collect_document(&root(), &mut calls, &options))
}

/// The archive of logs.
pub(super) fn log_archive() -> String {
    let options = CollectorOptions {
        collectors: vec![InventoryCollector::Logs],
        logs: logs::own_files(),
        unix_s: clock::unix_s().cast_unsigned(),
        ..CollectorOptions::default()
    };
    let mut calls = LinuxCalls::default();
    collect_document(&root(), &mut calls, &options)
        .logs
        .unwrap_or_default()
}

fn root() -> SystemRoot {
    SystemRoot::new(Path::new("/"))
}
