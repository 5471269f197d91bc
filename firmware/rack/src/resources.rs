//! Ironic's smaller resources: kept, changed and forgotten. What a kind means is
//! decided elsewhere; here nothing is lost and nothing is there twice.

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
            return Err(conflict(format!("A {kind} with UUID {id} already exists.")));
        }
        self.check_resource(&resource)?;
        resource.serial = self.book.next_serial();
        resource.revision = 0;
        self.book.put_resource(now, resource);
        Ok(())
    }

    /// What it claims is its own, and the node it belongs to is there.
    fn check_resource(&self, resource: &Resource) -> Result<(), Refusal> {
        let view = &self.book.view;
        for claim in resource.claims() {
            let key = (resource.kind, claim);
            if view.claims.get(&key).is_some_and(|id| *id != resource.id) {
                let (kind, claim) = key;
                return Err(conflict(format!("A {kind} with {claim} already exists.")));
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
            self.book.put_resource(now, resource);
        }
        Ok(())
    }

    pub(crate) fn delete_resource(
        &mut self,
        _: Now,
        kind: ResourceKind,
        id: ResourceId,
    ) -> Result<(), Refusal> {
        self.known_resource(kind, id)?;
        self.book.remove_resource(kind, id);
        Ok(())
    }

    fn known_resource(&self, kind: ResourceKind, id: ResourceId) -> Result<Resource, Refusal> {
        let resource = self.book.view.resources.get(&(kind, id));
        resource
            .map(|resource| (**resource).clone())
            .ok_or_else(|| {
                let sentence = format!("The {kind} {id} could not be found.");
                Refusal::new(RefusalKind::NotFound, sentence)
            })
    }
}
