//! Ironic's smaller resources, apart from nodes and ports.
//!
//! They all have the same structure, a few typed fields and an object of further fields, so one
//! record, one table in memory and one kind on flash are enough for all. The API defines the
//! fields of each kind.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::node::JsonObject;
use crate::{NodeId, ResourceId, UnixMs, words};

words! {
    /// The kind of a resource, as in Ironic.
    ResourceKind {
        /// A group of nodes.
        Chassis = "chassis",
        /// Bonded ports.
        PortGroup = "portgroup",
        /// A node reserved for a user.
        Allocation = "allocation",
        /// Deploy steps by trait.
        DeployTemplate = "deploy_template",
        /// Clean and service steps by name.
        Runbook = "runbook",
        /// Rules for inspection data.
        InspectionRule = "inspection_rule",
        /// The node's end of a volume connection.
        VolumeConnector = "volume_connector",
        /// The volume of a node.
        VolumeTarget = "volume_target",
        /// An image of the catalogue; not in Ironic, but of the same structure.
        Image = "image",
    }
}

impl ResourceKind {
    /// Its name in Ironic's messages.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Chassis => "chassis",
            Self::PortGroup => "portgroup",
            Self::Allocation => "allocation",
            Self::DeployTemplate => "deploy template",
            Self::Runbook => "runbook",
            Self::InspectionRule => "rule",
            Self::VolumeConnector => "volume connector",
            Self::VolumeTarget => "volume target",
            Self::Image => "image",
        }
    }

    /// The error message where there is no such resource.
    pub fn missing(self, ident: &str) -> String {
        let mut noun = self.noun().to_owned();
        if let Some(first) = noun.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        format!("{noun} {} could not be found.", ident.escape_debug())
    }

    /// The error message where another one has this unique value, see [`Resource::claims`].
    pub fn taken(self, claim: &str) -> String {
        let article = if matches!(self, Self::Allocation | Self::Image) {
            "An"
        } else {
            "A"
        };
        let claim = match self {
            Self::VolumeTarget => claim.split_once(" of ").map_or(claim, |(claim, _)| claim),
            _ => claim,
        };
        format!("{article} {} with {claim} already exists.", self.noun())
    }
}

/// One resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// UUID, unique among all kinds.
    pub id: ResourceId,
    /// Its kind.
    pub kind: ResourceKind,
    /// Counts changes of this record; a write based on an older one is refused.
    pub revision: u64,
    /// Position in the order of creation.
    pub serial: u64,
    /// Unique among resources of its kind.
    pub name: Option<String>,
    /// The node it belongs to: it is deleted with the node. An allocation does not belong to
    /// its node, but names it here too, and is freed.
    pub node: Option<NodeId>,
    /// All its other fields.
    pub fields: JsonObject,
    /// When the record was created.
    pub created_at: UnixMs,
    /// When it last changed.
    pub updated_at: Option<UnixMs>,
}

impl Resource {
    /// A new one without fields.
    pub fn new(id: ResourceId, kind: ResourceKind, created_at: UnixMs) -> Self {
        Self {
            id,
            kind,
            revision: 0,
            serial: 0,
            name: None,
            node: None,
            fields: JsonObject::new(),
            created_at,
            updated_at: None,
        }
    }

    /// A field that is a string.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).and_then(Value::as_str)
    }

    /// Values that no other record of its kind may have: its name, a port group's address, a
    /// connector's identity, a target's boot index on its node.
    pub fn claims(&self) -> Vec<String> {
        let mut claims = Vec::new();
        if let Some(name) = &self.name {
            claims.push(format!("name {name}"));
        }
        match self.kind {
            ResourceKind::PortGroup => {
                let address = self.text("address");
                claims.extend(address.map(|address| format!("MAC address {address}")));
            }
            ResourceKind::VolumeConnector => {
                let kind = self.text("type").unwrap_or_default();
                let id = self.text("connector_id").unwrap_or_default();
                claims.push(format!("type {kind} and connector ID {id}"));
            }
            ResourceKind::VolumeTarget => {
                if let (Some(node), Some(index)) = (self.node, self.fields.get("boot_index")) {
                    claims.push(format!("boot index '{index}' for the same node of {node}"));
                }
            }
            _ => {}
        }
        claims
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededRandom;
    use serde_json::json;

    fn fresh(kind: ResourceKind) -> Resource {
        Resource::new(
            ResourceId::random(&mut SeededRandom::new(1)),
            kind,
            UnixMs(0),
        )
    }

    #[test]
    fn claims_are_the_name_and_what_each_kind_has_of_its_own() {
        let mut group = fresh(ResourceKind::PortGroup);
        assert!(group.claims().is_empty());
        group.name = Some("bond".into());
        group
            .fields
            .insert("address".into(), json!("52:54:00:00:00:01"));
        assert_eq!(
            group.claims(),
            ["name bond", "MAC address 52:54:00:00:00:01"]
        );
        group.fields.insert("address".into(), Value::Null);
        assert_eq!(group.claims(), ["name bond"]);
    }

    #[test]
    fn a_target_claims_its_place_on_its_node_only() {
        let mut target = fresh(ResourceKind::VolumeTarget);
        target.fields.insert("boot_index".into(), json!(0));
        assert!(target.claims().is_empty());
        target.node = Some(NodeId::random(&mut SeededRandom::new(2)));
        assert_eq!(target.claims().len(), 1);
    }

    #[test]
    fn a_connector_is_known_by_type_and_id() {
        let mut one = fresh(ResourceKind::VolumeConnector);
        one.fields.insert("type".into(), json!("iqn"));
        one.fields.insert("connector_id".into(), json!("a"));
        let mut two = one.clone();
        assert_eq!(one.claims(), two.claims());
        two.fields.insert("type".into(), json!("mac"));
        assert_ne!(one.claims(), two.claims());
    }

    #[test]
    fn sentences_are_ironics() {
        let kind = ResourceKind::VolumeTarget;
        let mut target = fresh(kind);
        target.node = Some(NodeId::random(&mut SeededRandom::new(2)));
        target.fields.insert("boot_index".into(), json!(0));
        assert_eq!(
            kind.taken(&target.claims()[0]),
            "A volume target with boot index '0' for the same node already exists."
        );
        assert_eq!(
            ResourceKind::Allocation.taken("name a of b"),
            "An allocation with name a of b already exists."
        );
        assert_eq!(
            ResourceKind::DeployTemplate.missing("x\n"),
            "Deploy template x\\n could not be found."
        );
    }
}
