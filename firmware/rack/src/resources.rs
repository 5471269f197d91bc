//! Ironic's smaller resources: kept, changed and forgotten. What a kind means is
//! decided elsewhere; here nothing is lost and nothing is there twice.

use serde_json::Value;
use trivet_model::index::{NodeKey, Span};
use trivet_model::node::Object;
use trivet_model::{Now, Refusal, RefusalKind, Resource, ResourceId, ResourceKind};

use crate::Rack;
use crate::bounds::RESOURCES_MAX;
use crate::orders::conflict;

impl Rack {
    pub(crate) fn create_resource(
        &mut self,
        now: Now,
        mut resource: Resource,
    ) -> Result<(), Refusal> {
        if self.book.view.resources.len() >= RESOURCES_MAX {
            let sentence = format!("This box holds {RESOURCES_MAX} resources; remove some.");
            return Err(Refusal::new(RefusalKind::Unavailable, sentence));
        }
        let id = resource.id;
        let taken = |kind: &ResourceKind| self.book.view.resources.contains_key(&(*kind, id));
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
        resource.serial = self.book.next_serial();
        resource.revision = 0;
        let created = resource.clone();
        self.book.put_resource(now, resource);
        if created.kind == ResourceKind::Image {
            self.image_created(&created);
        }
        Ok(())
    }

    /// What it claims is its own, and the node it belongs to is there.
    fn check_resource(&self, resource: &Resource) -> Result<(), Refusal> {
        let view = &self.book.view;
        for claim in resource.claims() {
            let key = (resource.kind, claim);
            if view.claims.get(&key).is_some_and(|id| *id != resource.id) {
                return Err(conflict(key.0.taken(&key.1)));
            }
        }
        match resource.node {
            Some(node) if self.book.node(node).is_none() => Err(Refusal::new(
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
    ) -> Result<(), Refusal> {
        let (kind, id) = (resource.kind, resource.id);
        let old = self.known_resource(kind, id)?;
        if old.revision != based_on {
            let sentence = format!("The {kind} {id} changed meanwhile; read it again.");
            return Err(Refusal::new(RefusalKind::Stale, sentence));
        }
        if old != resource {
            self.check_resource(&resource)?;
            if old.node != resource.node {
                self.check_unused(&old)?;
            }
            self.book.put_resource(now, resource);
            if kind == ResourceKind::Image {
                self.pin_images();
            }
        }
        Ok(())
    }

    pub(crate) fn delete_resource(
        &mut self,
        now: Now,
        kind: ResourceKind,
        id: ResourceId,
    ) -> Result<(), Refusal> {
        let resource = self.known_resource(kind, id)?;
        self.check_unused(&resource)?;
        if kind == ResourceKind::Image {
            self.check_unwritten(&resource)?;
        }
        if kind == ResourceKind::Allocation {
            self.deallocate(now, &resource)?;
        }
        self.book.remove_resource(kind, id);
        if kind == ResourceKind::Image {
            self.pin_images();
            self.drop_image(now, &resource);
        }
        Ok(())
    }

    pub(crate) fn delete_resources(&mut self, kind: ResourceKind) -> Result<(), Refusal> {
        let all = self.book.view.resources_of(kind);
        let ids: Vec<ResourceId> = all.map(|resource| resource.id).collect();
        for id in &ids {
            self.check_unused(&self.known_resource(kind, *id)?)?;
        }
        for id in ids {
            self.book.remove_resource(kind, id);
        }
        Ok(())
    }

    /// Refuses where something else names it.
    fn check_unused(&self, resource: &Resource) -> Result<(), Refusal> {
        let (view, id) = (&self.book.view, resource.id.to_string());
        let names = |kept: &Object, field: &str| {
            kept.get(field).and_then(Value::as_str) == Some(id.as_str())
        };
        let content = match resource.kind {
            ResourceKind::PortGroup => {
                let mut ports = view.ports.values();
                ports
                    .any(|port| names(&port.kept, "portgroup_uuid"))
                    .then_some("ports")
            }
            ResourceKind::Chassis => {
                let span = Span::Value(Some(&id));
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
        Err(Refusal::new(RefusalKind::Invalid, sentence))
    }

    fn known_resource(&self, kind: ResourceKind, id: ResourceId) -> Result<Resource, Refusal> {
        let resource = self.book.view.resources.get(&(kind, id));
        resource
            .map(|resource| (**resource).clone())
            .ok_or_else(|| Refusal::new(RefusalKind::NotFound, kind.missing(&id.to_string())))
    }
}
