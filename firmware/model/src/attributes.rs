//! Fields of Ironic's nodes and ports that are kept in one JSON object on flash, as types.
//!
//! Decisions read the typed fields. What is only stored and returned is in `extra_fields`, which
//! no decision reads. `get`, `set`, `to_object` and `from_object` are for the borders: the API,
//! which names fields, and the store. A default is not stored, so that records stay small and a
//! changed default applies to every record without its own value.

use core::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bmc_request::BootMode;
use crate::interface::{
    BiosInterface, BootInterface, ConsoleInterface, DeployInterface, FirmwareInterface,
    InspectInterface, ManagementInterface, NetworkInterface, NodeInterfaces, PowerInterface,
    RaidInterface, RescueInterface, StorageInterface, VendorInterface,
};
use crate::node::JsonObject;
use crate::{NodeId, ResourceId};

/// The typed fields of a node that a client sets by name, and those of no effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent flags of Ironic's nodes"
)]
pub struct NodeAttributes {
    /// The selected hardware interfaces.
    pub interfaces: NodeInterfaces,
    /// Taken out of use: cleaned once more, and not made available again.
    pub retired: bool,
    /// Why it is retired.
    pub retired_reason: Option<String>,
    /// The instance cannot be removed, nor the record deleted.
    pub protected: bool,
    /// Why it is protected.
    pub protected_reason: Option<String>,
    /// The machine is never switched off; it is rebooted instead.
    pub disable_power_off: bool,
    /// The console was opened.
    pub console_enabled: bool,
    /// The boot mode that the BMC last reported or was set to.
    pub boot_mode: Option<BootMode>,
    /// Secure Boot as the BMC last reported it or was set to.
    pub secure_boot: Option<bool>,
    /// The RAID configuration of the machine.
    pub raid_config: RaidConfig,
    /// The RAID configuration that the operator wants.
    pub target_raid_config: RaidConfig,
    /// Traits for schedulers, sorted.
    pub traits: Vec<String>,
    /// Name of the instance.
    pub instance_name: Option<String>,
    /// The allocation that holds the node.
    pub allocation_uuid: Option<ResourceId>,
    /// Its chassis.
    pub chassis_uuid: Option<ResourceId>,
    /// The node that it is a part of.
    pub parent_node: Option<NodeId>,
    /// The project that owns it.
    pub owner: Option<String>,
    /// The project that leases it.
    pub lessee: Option<String>,
    /// Its shard, for clients that share the nodes among them.
    pub shard: Option<String>,
    /// Its conductor group, in lower case; none means the default group.
    pub conductor_group: Option<String>,
    /// Text for people, which lists can be searched for.
    pub description: Option<String>,
    /// Fields that are only stored and returned, such as `network_data`.
    pub extra_fields: JsonObject,
}

/// The typed fields of a port that a client sets by name, and those of no effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortAttributes {
    /// Unique among ports.
    pub name: Option<String>,
    /// Its port group.
    pub portgroup_uuid: Option<ResourceId>,
    /// The switch and its port that the port is connected to.
    pub local_link_connection: JsonObject,
    /// Text for people, which lists can be searched for.
    pub description: Option<String>,
    /// Fields that are only stored and returned, such as `physical_network`.
    pub extra_fields: JsonObject,
}

/// A RAID configuration in Ironic's form; empty where there is none. Agents and hardware
/// managers add keys of their own, which are returned unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RaidConfig(pub JsonObject);

impl RaidConfig {
    /// Whether there is no configuration.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a logical disk is made by the operating system instead of a controller.
    pub fn is_software(&self) -> bool {
        let disks = self.0.get("logical_disks").and_then(Value::as_array);
        let controller = |disk: &Value| disk.get("controller").and_then(Value::as_str) == SOFTWARE;
        disks.is_some_and(|disks| disks.iter().any(controller))
    }
}

/// The `controller` of a logical disk that has none.
const SOFTWARE: Option<&str> = Some("software");

/// The value does not have the type of its field, or is not one of its names.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the value does not fit the field")]
pub struct InvalidAttribute;

/// The conversion of a typed field from and to JSON.
trait AttributeValue: Default {
    /// The JSON value; none for the default, which is not stored.
    fn to_json(&self) -> Option<Value>;

    /// None for a value of another type or an unknown word.
    fn from_json(value: &Value) -> Option<Self>;
}

impl AttributeValue for bool {
    fn to_json(&self) -> Option<Value> {
        self.then_some(Value::Bool(true))
    }

    fn from_json(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl AttributeValue for Option<bool> {
    fn to_json(&self) -> Option<Value> {
        self.map(Value::Bool)
    }

    fn from_json(value: &Value) -> Option<Self> {
        value.as_bool().map(Some)
    }
}

impl AttributeValue for JsonObject {
    fn to_json(&self) -> Option<Value> {
        (!self.is_empty()).then(|| Value::Object(self.clone()))
    }

    fn from_json(value: &Value) -> Option<Self> {
        value.as_object().cloned()
    }
}

impl AttributeValue for RaidConfig {
    fn to_json(&self) -> Option<Value> {
        self.0.to_json()
    }

    fn from_json(value: &Value) -> Option<Self> {
        value.as_object().cloned().map(Self)
    }
}

impl AttributeValue for Vec<String> {
    fn to_json(&self) -> Option<Value> {
        (!self.is_empty()).then(|| Value::from(self.clone()))
    }

    fn from_json(value: &Value) -> Option<Self> {
        let texts = value.as_array()?.iter();
        texts.map(|text| text.as_str().map(str::to_owned)).collect()
    }
}

/// Types with a text form, which are stored as that text.
macro_rules! text_attributes {
    ($($type:ty),+) => {$(
        impl AttributeValue for Option<$type> {
            fn to_json(&self) -> Option<Value> {
                self.as_ref().map(|value| Value::String(value.to_string()))
            }

            fn from_json(value: &Value) -> Option<Self> {
                <$type>::from_str(value.as_str()?).ok().map(Some)
            }
        }
    )+};
}

text_attributes!(
    String,
    NodeId,
    ResourceId,
    BootMode,
    BiosInterface,
    BootInterface,
    ConsoleInterface,
    DeployInterface,
    FirmwareInterface,
    InspectInterface,
    ManagementInterface,
    NetworkInterface,
    PowerInterface,
    RaidInterface,
    RescueInterface,
    StorageInterface,
    VendorInterface
);

/// Makes the conversion by name from a table of names and typed fields.
macro_rules! attribute_names {
    ($attributes:ident { $($name:literal => $($field:ident).+,)+ }) => {
        impl $attributes {
            /// The value of a field by its name; none for the default.
            pub fn get(&self, name: &str) -> Option<Value> {
                let typed = match name {
                    $($name => self.$($field).+.to_json(),)+
                    _ => None,
                };
                typed.or_else(|| self.extra_fields.get(name).cloned())
            }

            /// Sets a field by its name; none or the default removes it.
            pub fn set(
                &mut self,
                name: &str,
                value: Option<Value>,
            ) -> Result<(), InvalidAttribute> {
                match (name, &value) {
                    $(
                        ($name, None) => self.$($field).+ = Default::default(),
                        ($name, Some(value)) => {
                            self.$($field).+ =
                                AttributeValue::from_json(value).ok_or(InvalidAttribute)?;
                        }
                    )+
                    (_, Some(value)) => {
                        self.extra_fields.insert(name.to_owned(), value.clone());
                        return Ok(());
                    }
                    (_, None) => {}
                }
                self.extra_fields.remove(name);
                Ok(())
            }

            /// All fields that do not have their defaults, by name.
            pub fn to_object(&self) -> JsonObject {
                let mut object = self.extra_fields.clone();
                $(
                    if let Some(value) = self.$($field).+.to_json() {
                        object.insert($name.to_owned(), value);
                    }
                )+
                object
            }

            /// The reverse of `to_object`. A value that does not fit its field is not lost: it
            /// is stored and returned, but has no effect.
            pub fn from_object(mut object: JsonObject) -> Self {
                let mut read = Self::default();
                $(
                    if let Some(value) = object.get($name).and_then(AttributeValue::from_json) {
                        read.$($field).+ = value;
                        object.remove($name);
                    }
                )+
                read.extra_fields = object;
                read
            }
        }
    };
}

attribute_names! {
    NodeAttributes {
        "bios_interface" => interfaces.bios,
        "boot_interface" => interfaces.boot,
        "console_interface" => interfaces.console,
        "deploy_interface" => interfaces.deploy,
        "firmware_interface" => interfaces.firmware,
        "inspect_interface" => interfaces.inspect,
        "management_interface" => interfaces.management,
        "network_interface" => interfaces.network,
        "power_interface" => interfaces.power,
        "raid_interface" => interfaces.raid,
        "rescue_interface" => interfaces.rescue,
        "storage_interface" => interfaces.storage,
        "vendor_interface" => interfaces.vendor,
        "retired" => retired,
        "retired_reason" => retired_reason,
        "protected" => protected,
        "protected_reason" => protected_reason,
        "disable_power_off" => disable_power_off,
        "console_enabled" => console_enabled,
        "boot_mode" => boot_mode,
        "secure_boot" => secure_boot,
        "raid_config" => raid_config,
        "target_raid_config" => target_raid_config,
        "traits" => traits,
        "instance_name" => instance_name,
        "allocation_uuid" => allocation_uuid,
        "chassis_uuid" => chassis_uuid,
        "parent_node" => parent_node,
        "owner" => owner,
        "lessee" => lessee,
        "shard" => shard,
        "conductor_group" => conductor_group,
        "description" => description,
    }
}

attribute_names! {
    PortAttributes {
        "name" => name,
        "portgroup_uuid" => portgroup_uuid,
        "local_link_connection" => local_link_connection,
        "description" => description,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ID: &str = "01234567-89ab-4def-8123-456789abcdef";

    fn object(value: Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn every_field_returns_as_it_was_stored() {
        let stored = object(json!({
            "bios_interface": "no-bios", "boot_interface": "ipxe", "console_interface": "fake",
            "deploy_interface": "direct", "firmware_interface": "redfish",
            "inspect_interface": "agent", "management_interface": "ipmitool",
            "network_interface": "noop", "power_interface": "ssh", "raid_interface": "agent",
            "rescue_interface": "no-rescue", "storage_interface": "noop",
            "vendor_interface": "no-vendor", "retired": true, "retired_reason": "old",
            "protected": true, "protected_reason": "in use", "disable_power_off": true,
            "console_enabled": true, "boot_mode": "uefi", "secure_boot": false,
            "raid_config": {"logical_disks": [{"controller": "software"}]},
            "target_raid_config": {"logical_disks": []}, "traits": ["CUSTOM_A", "CUSTOM_B"],
            "instance_name": "web", "allocation_uuid": ID, "chassis_uuid": ID,
            "parent_node": ID, "owner": "me", "lessee": "", "shard": "one",
            "conductor_group": "north", "description": "text",
            "network_data": {"links": []},
        }));
        let read = NodeAttributes::from_object(stored.clone());
        assert_eq!(read.to_object(), stored);
        assert_eq!(
            read.extra_fields,
            object(json!({"network_data": {"links": []}}))
        );
        assert!(read.retired && read.raid_config.is_software());
        assert!(!read.target_raid_config.is_software());
        for (name, value) in stored {
            assert_eq!(read.get(&name), Some(value), "{name}");
        }
    }

    /// Such a value can only be in a store that another release wrote.
    #[test]
    fn a_value_that_does_not_fit_has_no_effect_and_is_not_lost() {
        let stored = object(json!({"retired": "yes", "boot_interface": "floppy"}));
        let mut read = NodeAttributes::from_object(stored.clone());
        assert!(!read.retired);
        assert_eq!(read.interfaces.boot, None);
        assert_eq!(read.to_object(), stored);
        assert_eq!(read.get("boot_interface"), Some(json!("floppy")));
        read.set("boot_interface", Some(json!("pxe"))).unwrap();
        read.set("retired", None).unwrap();
        assert_eq!(read.to_object(), object(json!({"boot_interface": "pxe"})));
    }

    #[test]
    fn a_name_that_is_unknown_or_a_value_of_another_type_is_not_set() {
        let mut node = NodeAttributes::default();
        for (name, value) in [
            ("power_interface", json!("floppy")),
            ("power_interface", json!(1)),
            ("retired", json!("true")),
            ("chassis_uuid", json!("shelf")),
            ("traits", json!([1])),
            ("raid_config", json!([])),
        ] {
            assert_eq!(node.set(name, Some(value)), Err(InvalidAttribute), "{name}");
        }
        assert_eq!(node, NodeAttributes::default());
    }

    #[test]
    fn a_default_is_not_stored() {
        let mut port = PortAttributes::default();
        port.set("name", Some(json!("eth0"))).unwrap();
        port.set("local_link_connection", Some(json!({}))).unwrap();
        port.set("vendor", Some(json!("acme"))).unwrap();
        assert_eq!(
            port.to_object(),
            object(json!({"name": "eth0", "vendor": "acme"}))
        );
        port.set("name", None).unwrap();
        port.set("vendor", None).unwrap();
        assert_eq!(port, PortAttributes::default());
    }
}
