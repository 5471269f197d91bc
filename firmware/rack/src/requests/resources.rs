//! Ironic's smaller resources: stored, changed and deleted. Other modules decide what each kind
//! means; this one keeps them unique and complete.

use trivet_model::index::{IndexRange, NodeKey};
use trivet_model::{Now, OrderRefusal, Port, RefusalKind, Resource, ResourceId, ResourceKind};

use crate::Rack;
use crate::bounds::RESOURCES_MAX;
use crate::requests::orders::conflict;

/// The field that a portgroup and its ports have in common.
const NETWORK: &str = "physical_network";

impl Rack {
    pub(crate) fn create_resource(
        &mut self,
        now: Now,
        mut resource: Resource,
    ) -> Result<(), OrderRefusal> {
        if self.records.view.resources.len() >= RESOURCES_MAX {
            let sentence = format!("This box holds {RESOURCES_MAX} resources; remove some.");
            return Err(OrderRefusal::new(RefusalKind::Unavailable, sentence));
        }
        let id = resource.id;
        let taken = |kind: &ResourceKind| self.records.view.resources.contains_key(&(*kind, id));
        if let Some(kind) = ResourceKind::ALL.iter().find(|kind| taken(kind)) {
            return Err(conflict(kind.taken(&format!("UUID {id}"))));
        }
        self.check_resource(&resource)?;
        if resource.kind == ResourceKind::Image {
            self.check_image(&resource)?;
        }
        if resource.kind == ResourceKind::Allocation {
            self.allocate(now, &mut resource)?;
        }
        resource.serial = self.records.next_serial();
        resource.revision = 0;
        let created = resource.clone();
        self.records.put_resource(now, resource);
        if created.kind == ResourceKind::Image {
            self.image_created(now, &created);
        }
        Ok(())
    }

    /// Checks that its names are unique, and that the node it belongs to exists.
    fn check_resource(&self, resource: &Resource) -> Result<(), OrderRefusal> {
        let view = &self.records.view;
        for claim in resource.claims() {
            let key = (resource.kind, claim);
            if view.claims.get(&key).is_some_and(|id| *id != resource.id) {
                return Err(conflict(key.0.taken(&key.1)));
            }
        }
        match resource.node {
            Some(node) if self.records.node(node).is_none() => Err(OrderRefusal::new(
                RefusalKind::Invalid,
                format!("Node {node} could not be found."),
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn replace_resource(
        &mut self,
        now: Now,
        resource: Resource,
        based_on: u64,
    ) -> Result<(), OrderRefusal> {
        let (kind, id) = (resource.kind, resource.id);
        let old = self.require_resource(kind, id)?;
        if old.revision != based_on {
            let sentence = format!("The {kind} {id} changed meanwhile; read it again.");
            return Err(OrderRefusal::new(RefusalKind::Stale, sentence));
        }
        if old != resource {
            self.check_resource(&resource)?;
            if old.node != resource.node {
                self.check_unused(&old)?;
            }
            if kind == ResourceKind::PortGroup && old.text(NETWORK) != resource.text(NETWORK) {
                self.move_members(now, &resource);
            }
            self.records.put_resource(now, resource);
            if kind == ResourceKind::Image {
                self.pin_images();
            }
        }
        Ok(())
    }

    /// A portgroup without a physical network gets that of the port that joins it, as in Ironic.
    pub(crate) fn lend_network(&mut self, now: Now, port: &Port) {
        let network = port.attributes.extra_fields.get(NETWORK);
        let (Some(network), Some(group)) = (network, port.attributes.portgroup_uuid) else {
            return;
        };
        let resources = &self.records.view.resources;
        let group = resources.get(&(ResourceKind::PortGroup, group));
        let Some(group) = group.filter(|group| group.text(NETWORK).is_none()) else {
            return;
        };
        let mut group = Resource::clone(group);
        group.fields.insert(NETWORK.to_owned(), network.clone());
        self.records.put_resource(now, group);
    }

    /// The ports of a portgroup are in its physical network.
    fn move_members(&mut self, now: Now, group: &Resource) {
        let network = group.fields.get(NETWORK).filter(|value| !value.is_null());
        let members = self.records.view.ports.values().filter(|port| {
            let attributes = &port.attributes;
            attributes.portgroup_uuid == Some(group.id)
                && attributes.extra_fields.get(NETWORK) != network
        });
        let members: Vec<Port> = members.map(|port| Port::clone(port)).collect();
        for mut port in members {
            let fields = &mut port.attributes.extra_fields;
            match network {
                Some(network) => drop(fields.insert(NETWORK.to_owned(), network.clone())),
                None => drop(fields.remove(NETWORK)),
            }
            self.records.put_port(now, port);
        }
    }

    pub(crate) fn delete_resource(
        &mut self,
        now: Now,
        kind: ResourceKind,
        id: ResourceId,
    ) -> Result<(), OrderRefusal> {
        let resource = self.require_resource(kind, id)?;
        self.check_unused(&resource)?;
        if kind == ResourceKind::Image {
            self.check_unwritten(&resource)?;
        }
        if kind == ResourceKind::Allocation {
            self.deallocate(now, &resource)?;
        }
        self.records.remove_resource(kind, id);
        if kind == ResourceKind::Image {
            self.pin_images();
            self.drop_image(now, &resource);
        }
        Ok(())
    }

    pub(crate) fn delete_resources(&mut self, kind: ResourceKind) -> Result<(), OrderRefusal> {
        let all = self.records.view.resources_of(kind);
        let ids: Vec<ResourceId> = all.map(|resource| resource.id).collect();
        for id in &ids {
            self.check_unused(&self.require_resource(kind, *id)?)?;
        }
        for id in ids {
            self.records.remove_resource(kind, id);
        }
        Ok(())
    }

    /// Refuses where another record refers to it.
    fn check_unused(&self, resource: &Resource) -> Result<(), OrderRefusal> {
        let (view, id) = (&self.records.view, resource.id.to_string());
        let content = match resource.kind {
            ResourceKind::PortGroup => {
                let mut ports = view.ports.values();
                ports
                    .any(|port| port.attributes.portgroup_uuid == Some(resource.id))
                    .then_some("ports")
            }
            ResourceKind::Chassis => {
                let span = IndexRange::Value(Some(&id));
                let mut nodes = view.nodes.walk(NodeKey::ChassisUuid, span, None, false);
                nodes.next().map(|_| "nodes")
            }
            _ => None,
        };
        let Some(content) = content else {
            return Ok(());
        };
        let sentence = format!(
            "Cannot complete the requested action because {} {id} contains {content}.",
            resource.kind.noun()
        );
        Err(OrderRefusal::new(RefusalKind::Invalid, sentence))
    }

    fn require_resource(
        &self,
        kind: ResourceKind,
        id: ResourceId,
    ) -> Result<Resource, OrderRefusal> {
        let resource = self.records.view.resources.get(&(kind, id));
        resource
            .map(|resource| (**resource).clone())
            .ok_or_else(|| OrderRefusal::new(RefusalKind::NotFound, kind.missing(&id.to_string())))
    }
}
