//! The resources of the simulated service.

use serde_json::{Value, json};
use trivet_model::{PowerState, Tick};

use super::{RedfishSimulator, RedfishSimulatorMachine, found, missing};
use trivet_bmc::http::BmcHttpResponse;

const ROOT: &str = "/redfish/v1";

fn link(path: &str) -> Value {
    json!({"@odata.id": format!("{ROOT}{path}")})
}

fn collection(paths: &[String]) -> Value {
    let members: Vec<Value> = paths.iter().map(|path| link(path)).collect();
    json!({"Members": members, "Members@odata.count": paths.len()})
}

/// Name, kind, value, unit.
const SENSORS: [(&str, &str, f64, &str); 4] = [
    ("Inlet", "Temperature", 24.5, "Cel"),
    ("CPU", "Temperature", 61.0, "Cel"),
    ("Fan 1", "Rotational", 4800.0, "RPM"),
    ("Input", "Power", 212.0, "W"),
];

impl RedfishSimulator {
    pub(super) fn show(&mut self, now: Tick, parts: &[&str]) -> BmcHttpResponse {
        if let ["TaskService", "TaskMonitors", number] = parts {
            return self.show_task(now, number);
        }
        let place = format!("{ROOT}/{}", parts.join("/"));
        let Some((mut body, revision)) = self.resource(parts) else {
            return missing();
        };
        body["@odata.id"] = place.trim_end_matches('/').into();
        BmcHttpResponse {
            etag: revision.map(|revision| format!("W/\"{revision}\"")),
            ..found(200, &body)
        }
    }

    fn resource(&self, parts: &[&str]) -> Option<(Value, Option<u64>)> {
        let numbers = 1..=self.machines.len();
        let ids = |kind: &str| -> Vec<String> {
            numbers
                .clone()
                .map(|number| format!("/{kind}/{number}"))
                .collect()
        };
        let plain = |body| Some((body, None));
        match parts {
            [] => plain(json!({
                "RedfishVersion": "1.15.0", "Systems": link("/Systems"),
                "Managers": link("/Managers"), "Chassis": link("/Chassis"),
                "EventService": link("/EventService"),
            })),
            ["EventService", rest @ ..] => plain(self.events(rest)?),
            ["Systems"] => plain(collection(&ids("Systems"))),
            ["Chassis"] => plain(collection(&ids("Chassis"))),
            ["Managers"] => plain(collection(&["/Managers/BMC".to_owned()])),
            ["Managers", "BMC"] => plain(self.manager()),
            ["Managers", "BMC", rest @ ..] if self.setup.media_below_manager => {
                media(self.machines.first()?, "/Managers/BMC", rest)
            }
            ["Systems", id, rest @ ..] => {
                let machine = self.machine_of(id)?;
                let here = format!("/Systems/{id}");
                match rest {
                    [] => Some((self.system(id, machine), Some(machine.revision))),
                    ["ResetActionInfo"] => plain(json!({"Parameters": [{
                        "Name": "ResetType", "Required": true, "AllowableValues": [
                            "On", "ForceOff", "GracefulShutdown", "ForceRestart", "PowerCycle",
                            "Nmi",
                        ],
                    }]})),
                    ["SecureBoot"] => Some((
                        json!({
                            "SecureBootEnable": machine.secure_boot,
                            "SecureBootCurrentBoot": "Disabled",
                        }),
                        Some(machine.revision),
                    )),
                    ["EthernetInterfaces"] => {
                        let ports = 1..=machine.macs.len();
                        let port = |port| format!("{here}/EthernetInterfaces/{port}");
                        plain(collection(&ports.map(port).collect::<Vec<_>>()))
                    }
                    ["EthernetInterfaces", port] => {
                        let at = port.parse::<usize>().ok()?.checked_sub(1)?;
                        let mac = machine.macs.get(at)?.to_string();
                        plain(json!({"PermanentMACAddress": mac}))
                    }
                    rest if !self.setup.media_below_manager => media(machine, &here, rest),
                    _ => None,
                }
            }
            ["Chassis", id, rest @ ..] => {
                self.machine_of(id)?;
                self.chassis(id, rest)
            }
            _ => None,
        }
    }

    fn events(&self, rest: &[&str]) -> Option<Value> {
        match rest {
            [] => Some(json!({
                "ServiceEnabled": true, "Subscriptions": link("/EventService/Subscriptions"),
                "EventTypesForSubscription": ["Alert", "StatusChange"],
            })),
            ["Subscriptions"] => {
                let ids = self.subscriptions.keys();
                let paths = ids.map(|id| format!("/EventService/Subscriptions/{id}"));
                Some(collection(&paths.collect::<Vec<_>>()))
            }
            ["Subscriptions", id] => self.subscriptions.get(&id.parse::<u64>().ok()?).cloned(),
            _ => None,
        }
    }

    pub(super) fn machine_of(&self, id: &str) -> Option<&RedfishSimulatorMachine> {
        self.machines.get(id.parse::<usize>().ok()?.checked_sub(1)?)
    }

    fn system(&self, id: &str, machine: &RedfishSimulatorMachine) -> Value {
        let says = self.faults.reported_power;
        let power = match (says.unwrap_or(machine.power), machine.pending) {
            (PowerState::On, Some((PowerState::Off, _))) if says.is_none() => "PoweringOff",
            (PowerState::On, _) => "On",
            (PowerState::Off, _) => "Off",
        };
        let [target, enabled, mode, uri] = &machine.boot;
        let here = format!("/Systems/{id}");
        let mut body = json!({
            "Id": id, "Name": "System", "PowerState": power, "Manufacturer": "Trivet",
            "Model": "Simulated server", "SerialNumber": format!("S{id}"),
            "UUID": "7a0c0d8e-0000-4000-8000-000000000001", "BiosVersion": "1.0",
            "MemorySummary": {"TotalSystemMemoryGiB": 64},
            "ProcessorSummary": {"Count": 2, "Model": "Simulated CPU"},
            "LocationIndicatorActive": machine.indicator,
            "Status": {"State": "Enabled", "Health": machine.health},
            "Boot": {
                "BootSourceOverrideTarget": target, "BootSourceOverrideEnabled": enabled,
                "BootSourceOverrideMode": mode, "HttpBootUri": uri,
                "BootSourceOverrideTarget@Redfish.AllowableValues": [
                    "None", "Pxe", "Hdd", "Cd", "BiosSetup", "UefiHttp",
                ],
            },
            "SecureBoot": link(&format!("{here}/SecureBoot")),
            "EthernetInterfaces": link(&format!("{here}/EthernetInterfaces")),
            "Links": {
                "ManagedBy": [link("/Managers/BMC")],
                "Chassis": [link(&format!("/Chassis/{id}"))],
            },
            "Actions": {"#ComputerSystem.Reset": {
                "target": format!("{ROOT}{here}/Actions/ComputerSystem.Reset"),
                "@Redfish.ActionInfo": format!("{ROOT}{here}/ResetActionInfo"),
            }},
        });
        if !self.setup.media_below_manager {
            body["VirtualMedia"] = link(&format!("{here}/VirtualMedia"));
        }
        body
    }

    fn manager(&self) -> Value {
        let mut body = json!({
            "Name": "BMC", "FirmwareVersion": "2.4", "Model": "Simulated BMC",
            "Actions": {"#Manager.Reset": {
                "target": format!("{ROOT}/Managers/BMC/Actions/Manager.Reset"),
                "ResetType@Redfish.AllowableValues": ["ForceRestart", "GracefulRestart"],
            }},
        });
        if self.setup.media_below_manager {
            body["VirtualMedia"] = link("/Managers/BMC/VirtualMedia");
        }
        body
    }

    fn chassis(&self, id: &str, rest: &[&str]) -> Option<(Value, Option<u64>)> {
        let here = format!("/Chassis/{id}");
        let body = match rest {
            [] if self.setup.sensors => json!({"Sensors": link(&format!("{here}/Sensors"))}),
            [] => json!({
                "Thermal": link(&format!("{here}/Thermal")),
                "Power": link(&format!("{here}/Power")),
            }),
            ["Sensors"] => {
                let paths = (0..SENSORS.len()).map(|at| format!("{here}/Sensors/{at}"));
                collection(&paths.collect::<Vec<_>>())
            }
            ["Sensors", at] => {
                let (name, kind, value, unit) = SENSORS.get(at.parse::<usize>().ok()?)?;
                json!({
                    "Name": name, "ReadingType": kind, "Reading": value, "ReadingUnits": unit,
                    "Status": {"Health": "OK"},
                })
            }
            ["Thermal"] => json!({
                "Temperatures": [{"Name": "Inlet", "ReadingCelsius": 24.5}],
                "Fans": [{"Name": "Fan 1", "Reading": 4800, "ReadingUnits": "RPM"}],
            }),
            ["Power"] => json!({
                "PowerControl": [{"Name": "Input", "PowerConsumedWatts": 212}],
                "Voltages": [{"Name": "P12V", "ReadingVolts": null}],
            }),
            _ => return None,
        };
        Some((body, None))
    }
}

/// Two drives; the second one is for CDs.
fn media(
    machine: &RedfishSimulatorMachine,
    here: &str,
    rest: &[&str],
) -> Option<(Value, Option<u64>)> {
    let drive = |name: &str| format!("{here}/VirtualMedia/{name}");
    match rest {
        ["VirtualMedia"] => Some((collection(&[drive("Floppy"), drive("Cd")]), None)),
        ["VirtualMedia", "Floppy"] => Some((json!({"MediaTypes": ["Floppy"]}), None)),
        ["VirtualMedia", "Cd"] => Some((
            json!({
                "MediaTypes": ["CD", "DVD"], "Image": machine.media,
                "Inserted": machine.media.is_some(),
                "Actions": {
                    "#VirtualMedia.InsertMedia": {"target":
                        format!("{ROOT}{}/Actions/VirtualMedia.InsertMedia", drive("Cd"))},
                    "#VirtualMedia.EjectMedia": {"target":
                        format!("{ROOT}{}/Actions/VirtualMedia.EjectMedia", drive("Cd"))},
                },
            }),
            Some(machine.revision),
        )),
        _ => None,
    }
}
