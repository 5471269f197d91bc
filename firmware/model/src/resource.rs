//! Ironic's smaller resources: what operators keep beside nodes and ports.
//!
//! They are all of one shape, a few words we act on and an object of fields, so
//! one record, one table in memory and one kind on flash serve them all. What
//! each kind's fields are is the API's business.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::node::JsonObject;
use crate::{NodeId, ResourceId, UnixMs, words};

words! {
    /// Which of Ironic's resources a record is.
    ResourceKind {
        /// A place for nodes.
        Chassis = "chassis",
        /// Ports that are bonded.
        PortGroup = "portgroup",
        /// A node given to somebody.
        Allocation = "allocation",
        /// Deploy steps by trait.
        DeployTemplate = "deploy_template",
        /// Clean and service steps by name.
        Runbook = "runbook",
        /// What to do with inspection data.
        InspectionRule = "inspection_rule",
        /// A node's side of a volume.
        VolumeConnector = "volume_connector",
        /// The volume's side.
        VolumeTarget = "volume_target",
        /// An image of the catalogue; not Ironic's, but of the same shape.
        Image = "image",
    }
}

impl ResourceKind {
    /// What Ironic's sentences call it.
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

    /// What to say when there is no such one.
    pub fn missing(self, ident: &str) -> String {
        let mut noun = self.noun().to_owned();
        if let Some(first) = noun.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        format!("{noun} {} could not be found.", ident.escape_debug())
    }

    /// What to say when another one has this claim, see [`Resource::claims`].
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

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// UUID, unique among all kinds.
    pub id: ResourceId,
    /// What it is.
    pub kind: ResourceKind,
    /// Counts changes of this record; a write based on an older one is refused.
    pub revision: u64,
    /// Place in the order of creation.
    pub serial: u64,
    /// Unique among its kind.
    pub name: Option<String>,
    /// The node it belongs to: it goes when the node goes. An allocation is
    /// not a node's own; it names its node here all the same, and is freed.
    pub node: Option<NodeId>,
    /// All its other fields.
    pub fields: JsonObject,
    /// When the record was made.
    pub created_at: UnixMs,
    /// When it last changed.
    pub updated_at: Option<UnixMs>,
}

impl Resource {
    /// A fresh one without fields.
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

    /// A text among its fields.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).and_then(Value::as_str)
    }

    /// What no other record of its kind may have too: its name, a bond's
    /// address, a connector's identity, a target's place in the boot order.
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
