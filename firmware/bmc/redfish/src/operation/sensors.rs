//! Sensor readings of a machine: the sensors of its chassis, or the older tables of temperatures,
//! fans and power.

use serde_json::Value;

use crate::fault;
use crate::script::{RedfishResource, RedfishScriptContext, RedfishScriptResult};

/// Most readings in a reply. Ours.
pub const SENSORS_MAX: usize = 256;
/// Most sensors that are read one by one. Ours: slow BMCs take a second for each.
const SINGLE_MAX: usize = 96;
/// Most chassis that are read. Ours.
const CHASSIS_MAX: usize = 4;

/// One sensor reading.
#[derive(Clone, Debug, PartialEq)]
pub struct RedfishSensorReading {
    /// Its name.
    pub name: String,
    /// The `ReadingType` of Redfish, such as `Temperature`.
    pub kind: String,
    /// The value; `None` if there is none at present.
    pub value: Option<f64>,
    /// Unit, such as `Cel`, `RPM`, `W` or `V`.
    pub unit: String,
    /// `OK`, `Warning` or `Critical`, if the BMC reports it.
    pub health: Option<String>,
}

/// Tables of the older resources: list, name, value, kind, unit.
const THERMAL: [[&str; 5]; 2] = [
    [
        "Temperatures",
        "Name",
        "ReadingCelsius",
        "Temperature",
        "Cel",
    ],
    ["Fans", "Name", "Reading", "Rotational", "RPM"],
];
const POWER: [[&str; 5]; 3] = [
    ["PowerControl", "Name", "PowerConsumedWatts", "Power", "W"],
    ["Voltages", "Name", "ReadingVolts", "Voltage", "V"],
    [
        "PowerSupplies",
        "Name",
        "LastPowerOutputWatts",
        "Power",
        "W",
    ],
];

pub(super) fn read(
    context: &mut RedfishScriptContext<'_>,
) -> RedfishScriptResult<Vec<RedfishSensorReading>> {
    let links = context.system()?.at(&["Links", "Chassis"]);
    let links = links.and_then(Value::as_array);
    let mut all = Vec::new();
    for link in links.into_iter().flatten().take(CHASSIS_MAX) {
        let Some(path) = context.linked(Some(link))? else {
            continue;
        };
        let chassis = context.get(&path)?;
        if let Some(path) = context.linked(chassis.at(&["Sensors"]))? {
            sensors(context, &path, &mut all)?;
            continue;
        }
        for (key, tables) in [("Thermal", &THERMAL[..]), ("Power", &POWER[..])] {
            if let Some(path) = context.linked(chassis.at(&[key]))? {
                let seen = context.get(&path)?;
                for table in tables {
                    rows(seen, table, &mut all);
                }
            }
        }
    }
    all.truncate(SENSORS_MAX);
    if all.is_empty() {
        return Err(fault::unsupported("the BMC reports no sensors").into());
    }
    Ok(all)
}

fn sensors(
    context: &mut RedfishScriptContext<'_>,
    path: &str,
    all: &mut Vec<RedfishSensorReading>,
) -> RedfishScriptResult<()> {
    let seen = context.get(path)?;
    let members = seen.at(&["Members"]).and_then(Value::as_array);
    for member in members.into_iter().flatten().take(SINGLE_MAX) {
        // Some BMCs include the whole members in the collection.
        if member.get("Reading").is_some() {
            all.extend(sensor(member));
        } else if let Some(path) = context.linked(Some(member))? {
            all.extend(sensor(context.get(&path)?.body));
        }
    }
    Ok(())
}

fn text(value: &Value, key: &str) -> Option<String> {
    let text = fault::clean(value.get(key)?.as_str()?);
    (!text.is_empty()).then_some(text)
}

fn health(value: &Value) -> Option<String> {
    text(value.get("Status")?, "Health")
}

fn sensor(value: &Value) -> Option<RedfishSensorReading> {
    Some(RedfishSensorReading {
        name: text(value, "Name").or_else(|| text(value, "Id"))?,
        kind: text(value, "ReadingType").unwrap_or_default(),
        value: value.get("Reading").and_then(Value::as_f64),
        unit: text(value, "ReadingUnits").unwrap_or_default(),
        health: health(value),
    })
}

fn rows(seen: RedfishResource<'_>, table: &[&str; 5], all: &mut Vec<RedfishSensorReading>) {
    let [list, name, value, kind, unit] = table;
    let rows = seen.at(&[list]).and_then(Value::as_array);
    for row in rows.into_iter().flatten() {
        if all.len() >= SENSORS_MAX {
            return;
        }
        // Old services name a fan in this property.
        let Some(name) = text(row, name).or_else(|| text(row, "FanName")) else {
            continue;
        };
        all.push(RedfishSensorReading {
            name,
            kind: (*kind).to_owned(),
            value: row.get(*value).and_then(Value::as_f64),
            unit: text(row, "ReadingUnits").unwrap_or_else(|| (*unit).to_owned()),
            health: health(row),
        });
    }
}
