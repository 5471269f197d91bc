//! Shows responses of BMCs as tables.

use serde_json::Value;

use super::{cell, fields, items};
use crate::table::TextTable as Rows;

/// The kind of a BMC response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BmcTable {
    /// Sensor readings.
    Sensors,
    /// The event log.
    Events,
    /// The inventory.
    Parts,
    /// Its network configuration.
    Network,
    /// Its user accounts.
    Users,
    /// Virtual drives.
    Media,
    /// Response statistics of BMCs.
    Health,
    /// One row per field.
    Fields,
}

impl BmcTable {
    /// The rows of a response.
    pub(super) fn rows(self, body: &Value) -> Rows {
        match self {
            Self::Sensors => sensors(body),
            Self::Events => events(body),
            Self::Parts => parts(body),
            Self::Network => {
                let keys = [
                    ("MAC", "mac_address"),
                    ("ADDRESS", "ipv4_address"),
                    ("MASK", "ipv4_mask"),
                    ("GATEWAY", "ipv4_gateway"),
                    ("SOURCE", "ipv4_source"),
                    ("IPV6", "ipv6_addresses"),
                ];
                listed(body, "interfaces", keys)
            }
            Self::Users => {
                let keys = [
                    ("ID", "id"),
                    ("NAME", "name"),
                    ("ROLE", "role"),
                    ("ENABLED", "enabled"),
                ];
                listed(body, "users", keys)
            }
            Self::Media => {
                let keys = [
                    ("DRIVE", "id"),
                    ("MEDIA TYPES", "devices"),
                    ("INSERTED", "inserted"),
                    ("IMAGE", "image"),
                ];
                listed(body, "media", keys)
            }
            Self::Health => {
                let keys = [
                    ("NODE", "node"),
                    ("SCORE", "score"),
                    ("REQUESTS", "asked"),
                    ("REPLIES", "answered"),
                    ("MEDIAN MS", "median_ms"),
                    ("LAST ERROR", "last_error"),
                ];
                listed(body, "bmcs", keys)
            }
            Self::Fields => fields(body),
        }
    }
}

fn listed<const N: usize>(
    body: &Value,
    key: &str,
    columns: [(&'static str, &'static str); N],
) -> Rows {
    let mut table = Rows::new(&columns.map(|(head, _)| head));
    for item in items(body, key) {
        table.row(columns.map(|(_, key)| words(&item[key])));
    }
    table
}

/// A value as one cell; a list as its items.
fn words(value: &Value) -> String {
    match value {
        Value::Array(list) => {
            let words: Vec<String> = list.iter().map(cell).collect();
            words.join(" ")
        }
        other => cell(other),
    }
}

fn sensors(body: &Value) -> Rows {
    let mut table = Rows::new(&["NAME", "KIND", "VALUE", "STATE", "CRITICAL"]);
    for sensor in items(body, "sensors") {
        let unit = cell(&sensor["unit"]);
        let with_unit = |value: &Value| match value {
            Value::Null => String::new(),
            value => format!("{} {unit}", number(value)).trim_end().to_owned(),
        };
        let limits = &sensor["thresholds"];
        let limits = [&limits["lower_critical"], &limits["upper_critical"]].map(number);
        let critical = match limits.each_ref().map(String::as_str) {
            ["", ""] => String::new(),
            ["", upper] => format!("above {upper}"),
            [lower, ""] => format!("below {lower}"),
            [lower, upper] => format!("below {lower}, above {upper}"),
        };
        let mut state = cell(&sensor["state"]);
        if state == "discrete" {
            state = format!("states {}", words(&sensor["states"]));
        }
        table.row([
            cell(&sensor["name"]),
            cell(&sensor["kind"]),
            with_unit(&sensor["value"]),
            state.trim_end().to_owned(),
            critical,
        ]);
    }
    table
}

/// A number without a redundant `.0`.
fn number(value: &Value) -> String {
    let text = cell(value);
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

fn events(body: &Value) -> Rows {
    let mut table = Rows::new(&["ID", "TIME", "SEVERITY", "SENSOR", "KIND", "WHAT"]);
    for event in items(body, "events") {
        let keys = ["id", "time", "severity", "sensor", "kind", "message"];
        let [id, time, severity, sensor, kind, message] = keys.map(|key| cell(&event[key]));
        // Event logs have a resolution of seconds.
        let time = time.split('.').next().unwrap_or_default().to_owned();
        table.row([id, time, severity, sensor, kind, message]);
    }
    table
}

fn parts(body: &Value) -> Rows {
    let mut table = Rows::default();
    for part in ["chassis", "board", "product"] {
        for (key, value) in body[part].as_object().into_iter().flatten() {
            let value = words(value);
            if !value.is_empty() {
                table.row([format!("{part}.{key}"), value]);
            }
        }
    }
    if let Some(problem) = body["problem"].as_str() {
        table.row(["problem".to_owned(), problem.to_owned()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(table: BmcTable, body: &Value) -> Vec<String> {
        table.rows(body).lines(None)
    }

    #[test]
    fn sensors_with_and_without_values() {
        let body = json!({"sensors": [
            {"name": "Inlet", "kind": "temperature", "value": 72.0, "unit": "C",
             "state": "warning", "states": [],
             "thresholds": {"lower_critical": null, "upper_critical": 80.0}},
            {"name": "P12V", "kind": "voltage", "value": 12.096, "unit": "V", "state": "ok",
             "states": [], "thresholds": {"lower_critical": 11.0, "upper_critical": 13.0}},
            {"name": "Fan", "kind": "fan", "value": null, "unit": "RPM",
             "state": "unavailable", "states": [],
             "thresholds": {"lower_critical": 300.0, "upper_critical": null}},
            {"name": "PSU", "kind": "power_supply", "value": null, "unit": null,
             "state": "discrete", "states": [0, 3], "thresholds": {}},
        ]});
        assert_eq!(
            lines(BmcTable::Sensors, &body),
            [
                "NAME   KIND          VALUE     STATE        CRITICAL",
                "Inlet  temperature   72 C      warning      above 80",
                "P12V   voltage       12.096 V  ok           below 11, above 13",
                "Fan    fan                     unavailable  below 300",
                "PSU    power_supply            states 0 3",
            ]
        );
    }

    #[test]
    fn an_event_log() {
        let body = json!({"events": [
            {"id": "1", "time": "2023-11-14T22:13:20.000000+00:00", "severity": "warning",
             "sensor": "0x01", "kind": "temperature", "message": "hot", "asserted": true},
            {"id": "2", "time": null, "severity": "unknown", "sensor": null, "kind": null,
             "message": "odd"},
        ]});
        assert_eq!(
            lines(BmcTable::Events, &body),
            [
                "ID  TIME                 SEVERITY  SENSOR  KIND         WHAT",
                "1   2023-11-14T22:13:20  warning   0x01    temperature  hot",
                "2                        unknown                        odd",
            ]
        );
    }

    #[test]
    fn parts_that_are_not_empty() {
        let body = json!({
            "chassis": {"part_number": "", "serial_number": "C1", "extra": ["a", "b"]},
            "board": null, "product": null, "problem": "the board area is damaged", "data": "AA==",
        });
        let want = [
            "chassis.extra          a b",
            "chassis.serial_number  C1",
            "problem                the board area is damaged",
        ];
        assert_eq!(lines(BmcTable::Parts, &body), want);
    }

    #[test]
    fn lists_of_all_kinds() {
        let user = json!({"users": [{"id": "2", "name": "admin", "role": "administrator",
            "enabled": true}]});
        assert_eq!(
            lines(BmcTable::Users, &user)[1],
            "2   admin  administrator  yes"
        );
        let network = json!({"interfaces": [{"mac_address": "02:00:00:00:00:01",
            "ipv6_addresses": ["fe80::1", "fe80::2"]}]});
        assert!(lines(BmcTable::Network, &network)[1].ends_with("fe80::1 fe80::2"));
        let media = json!({"media": [{"id": "Cd", "devices": ["cdrom"], "inserted": false}]});
        assert_eq!(lines(BmcTable::Media, &media)[1], "Cd     cdrom        no");
        let health = json!({"bmcs": [{"node": "n1", "score": 100, "asked": 4, "answered": 4,
            "median_ms": 12, "last_error": null}]});
        assert_eq!(
            lines(BmcTable::Health, &health)[1],
            "n1    100    4         4        12"
        );
        let light = json!({"state": "on"});
        assert_eq!(lines(BmcTable::Fields, &light), ["state  on"]);
    }
}
