//! Orders of callers of the API: carried out, or refused with nothing changed.

use std::sync::Arc;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;
use trivet_model::interface::DeployInterface;
use trivet_model::node::POWER_FAILURE;
use trivet_model::node::RESERVED;
use trivet_model::order::VerbArgs;
use trivet_model::{
    ApiCaller, Node, NodeId, NoteKind, Now, OrderOutcome, OrderRefusal, Port, PortId, PowerError,
    PowerOrder, ProvisionState, RackOrder, RefusalKind, ResourceKind, Verb,
};

use crate::bounds::{NODES_MAX, PORTS_MAX};
use crate::nodes::allocations;
use crate::{Rack, RackOutput};

impl Rack {
    /// Carries out an order and notes the caller. An order on an outdated record is not noted:
    /// the shell reads the record again and repeats the order, and notes it if it gives up.
    pub(crate) fn handle_order(
        &mut self,
        now: Now,
        ticket: u64,
        caller: Arc<ApiCaller>,
        order: RackOrder,
    ) -> Result<OrderOutcome, OrderRefusal> {
        let Some(word) = order.word() else {
            return self.order(now, ticket, &caller, order);
        };
        let node = self.subject(&order);
        // A node that is deleted has no name afterwards.
        let label = node
            .and_then(|id| self.records.node(id))
            .map(|node| node.label());
        let before = self.outputs.len();
        let result = self.order(now, ticket, &caller, order);
        let refused = match &result {
            Err(refusal) if refusal.kind == RefusalKind::Stale => return result,
            Err(refusal) => Some(refusal.sentence.clone()),
            Ok(_) => None,
        };
        let kind = NoteKind::OrderReceived {
            caller,
            order: word,
            refused,
        };
        // The note of the order is placed before all that follows from it.
        let since = self.outputs.split_off(before);
        let follow = since
            .iter()
            .filter(|output| matches!(output, RackOutput::Note { note, .. } if note.node == node))
            .count();
        let mut output = self.records.note_before(now, node, kind, follow);
        if let RackOutput::Note { label: shown, .. } = &mut output
            && label.is_some()
        {
            *shown = label;
        }
        self.outputs.push(output);
        self.outputs.extend(since);
        result
    }

    fn subject(&self, order: &RackOrder) -> Option<NodeId> {
        match order {
            RackOrder::DeletePort(id) => self.records.view.ports.get(id).map(|port| port.node),
            other => other.node(),
        }
    }

    fn order(
        &mut self,
        now: Now,
        ticket: u64,
        caller: &ApiCaller,
        order: RackOrder,
    ) -> Result<OrderOutcome, OrderRefusal> {
        match order {
            RackOrder::CreateNode(node) => self.create_node(now, *node),
            RackOrder::ReplaceNode { node, based_on } => self.replace_node(now, *node, based_on),
            RackOrder::DeleteNode(id) => self.delete_node(now, id),
            RackOrder::CreatePort(port) => self.create_port(now, *port),
            RackOrder::ReplacePort { port, based_on } => self.replace_port(now, *port, based_on),
            RackOrder::DeletePort(id) => self.delete_port(id),
            RackOrder::CreateResource(resource) => self.create_resource(now, *resource),
            RackOrder::ReplaceResource { resource, based_on } => {
                self.replace_resource(now, *resource, based_on)
            }
            RackOrder::DeleteResource(kind, id) => self.delete_resource(now, kind, id),
            RackOrder::DeleteResources(kind) => self.delete_resources(kind),
            RackOrder::FetchImage(id) => self.fill_image(now, id),
            RackOrder::DropImage(digest) => self.drop_passing_image(now, digest),
            RackOrder::Provision {
                node,
                verb,
                args,
                based_on,
            } => self.provision(now, (node, based_on), verb, args),
            RackOrder::Power {
                node,
                want,
                timeout_s,
            } => {
                let node = self.require_node(node)?;
                self.power_wanted(now, node, want, timeout_s)
            }
            RackOrder::SetBoot {
                node,
                device,
                persistent,
            } => {
                let node = self.require_node(node)?;
                let order = PowerOrder::SetBoot {
                    device,
                    persistent,
                    efi: false,
                };
                self.order_power(now, node.id, order);
                Ok(())
            }
            RackOrder::CollectLogs(node) => self.logs_wanted(node),
            RackOrder::CheckDeploy(node) => return self.check_deploy(now, node),
            RackOrder::Maintenance { node, on, reason } => self.maintenance(now, node, on, reason),
            RackOrder::Lookup { addresses, node } => {
                return self.lookup(now, caller, &addresses, node);
            }
            RackOrder::Heartbeat { node, heartbeat } => {
                self.heartbeat(now, caller, node, heartbeat)
            }
            RackOrder::Enrol(request) => return self.enrol(now, caller.from, &request),
            RackOrder::LegacyLookup { addresses, node } => {
                return self.legacy_lookup(now, caller, &addresses, node);
            }
            RackOrder::LegacyHeartbeat { node, url } => {
                self.legacy_heartbeat(now, caller, node, url)
            }
            RackOrder::Vendor { node, method } => {
                return self
                    .vendor(now, ticket, node, method)
                    .map(|()| OrderOutcome::Deferred);
            }
            RackOrder::Inventory { document } => return self.inventory(now, caller, &document),
        }
        .map(|()| OrderOutcome::Stored)
    }

    pub(crate) fn require_node(&self, id: NodeId) -> Result<Node, OrderRefusal> {
        self.records
            .node(id)
            .map(|node| (**node).clone())
            .ok_or_else(|| no_node(id))
    }

    fn create_node(&mut self, now: Now, mut node: Node) -> Result<(), OrderRefusal> {
        if self.records.view.nodes.len() >= NODES_MAX {
            let sentence = format!("This box holds {NODES_MAX} nodes and no more; remove some.");
            return Err(OrderRefusal::new(RefusalKind::Unavailable, sentence));
        }
        if self.records.node(node.id).is_some() {
            return Err(conflict(format!(
                "A node with UUID {} already exists.",
                node.id
            )));
        }
        self.check_names(&node)?;
        node.serial = self.records.next_serial();
        node.revision = 0;
        let id = node.id;
        self.records.put_node(
            now,
            Node {
                updated_at: None,
                ..node
            },
        );
        let (bmcs, mut context) = self.bmcs_and_context(now);
        bmcs.add(&mut context, id);
        Ok(())
    }

    /// Checks that names and instances are unique, and hardware types enabled.
    fn check_names(&self, node: &Node) -> Result<(), OrderRefusal> {
        if !self.settings.hardware.contains(&node.driver) {
            return Err(OrderRefusal::new(
                RefusalKind::Invalid,
                format!(
                    "No hardware type {} is enabled; enabled: {}.",
                    node.driver,
                    self.settings.hardware.join(", ")
                ),
            ));
        }
        if let Some(name) = &node.name
            && self
                .records
                .view
                .names
                .get(name)
                .is_some_and(|owner| *owner != node.id)
        {
            return Err(conflict(format!("A node with name {name} already exists.")));
        }
        if let Some(instance) = &node.instance_uuid
            && let Some(owner) = self.records.view.instances.get(instance)
            && *owner != node.id
        {
            return Err(conflict(format!(
                "Instance {instance} is already associated with a node, it cannot be associated \
                 with this other node {}",
                node.id
            )));
        }
        let resources = &self.records.view.resources;
        if let Some(chassis) = node.attributes.chassis_uuid
            && !resources.contains_key(&(ResourceKind::Chassis, chassis))
        {
            let sentence = format!("Chassis {chassis} could not be found.");
            return Err(OrderRefusal::new(RefusalKind::Invalid, sentence));
        }
        Ok(())
    }

    fn replace_node(&mut self, now: Now, node: Node, based_on: u64) -> Result<(), OrderRefusal> {
        let old = self.require_node(node.id)?;
        if old.revision != based_on {
            return Err(stale(node.id));
        }
        self.check_names(&node)?;
        allocations::check_change(&old, &node)?;
        self.check_bmc(&old, &node)?;
        if node != old {
            self.records.put_node(now, node);
        }
        Ok(())
    }

    /// Of two nodes that name one BMC, the older one uses it. A change must not take it from a
    /// younger node that uses it: requests for the changed node would go to the other machine.
    fn check_bmc(&self, old: &Node, new: &Node) -> Result<(), OrderRefusal> {
        let Some(id) = self.bmcs.displaced_node(old, new) else {
            return Ok(());
        };
        let other = self.records.node(id);
        let other = other.map_or_else(|| id.to_string(), |other| other.name_and_uuid());
        Err(conflict(PowerError::SharedBmc { other }.to_string()))
    }

    fn delete_node(&mut self, now: Now, id: NodeId) -> Result<(), OrderRefusal> {
        let node = self.require_node(id)?;
        let free = matches!(
            node.provision_state,
            ProvisionState::Enroll
                | ProvisionState::Manageable
                | ProvisionState::Available
                | ProvisionState::AdoptFail
        );
        if !node.maintenance && (!free || node.instance_uuid.is_some()) {
            return Err(conflict(format!(
                "Node {id} can not be deleted while it is in state \"{}\" or has an instance; \
                 undeploy it, or set maintenance first.",
                node.provision_state
            )));
        }
        self.remove_node(now, id);
        Ok(())
    }

    pub(crate) fn create_port(&mut self, now: Now, mut port: Port) -> Result<(), OrderRefusal> {
        if self.records.view.ports.len() >= PORTS_MAX {
            let sentence = format!("This box holds {PORTS_MAX} ports and no more; remove some.");
            return Err(OrderRefusal::new(RefusalKind::Unavailable, sentence));
        }
        if self.records.view.ports.contains_key(&port.id) {
            return Err(conflict(format!(
                "A port with UUID {} already exists.",
                port.id
            )));
        }
        self.check_port(&port)?;
        port.serial = self.records.next_serial();
        port.revision = 0;
        self.lend_network(now, &port);
        self.records.put_port(now, port);
        Ok(())
    }

    fn check_port(&self, port: &Port) -> Result<(), OrderRefusal> {
        if self.records.node(port.node).is_none() {
            let sentence = format!("Node {} could not be found.", port.node);
            return Err(OrderRefusal::new(RefusalKind::Invalid, sentence));
        }
        if let Some(name) = port.name()
            && let Some(owner) = self.records.view.port_names.get(name)
            && *owner != port.id
        {
            return Err(conflict(format!("A port with name {name} already exists.")));
        }
        let resources = &self.records.view.resources;
        if let Some(group) = port.attributes.portgroup_uuid
            && !resources.contains_key(&(ResourceKind::PortGroup, group))
        {
            let sentence = format!("Portgroup {group} could not be found.");
            return Err(OrderRefusal::new(RefusalKind::Invalid, sentence));
        }
        self.check_reserved(port)?;
        match self.records.view.macs.get(&port.address) {
            Some(other) if *other != port.id => {
                let node = self.records.view.ports.get(other).map(|other| other.node);
                let node = node.and_then(|id| self.records.node(id));
                let node = node.map_or_else(String::new, |node| node.name_and_uuid());
                Err(conflict(format!(
                    "A port with MAC address {} already exists. It belongs to node {node}.",
                    port.address
                )))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the address reserved for a port is not reserved for another, and that this
    /// box can lease it.
    fn check_reserved(&self, port: &Port) -> Result<(), OrderRefusal> {
        let Some(address) = port.reserved() else {
            return Ok(());
        };
        if let Some(other) = self.records.view.reserved.get(&address)
            && *other != port.id
        {
            return Err(conflict(format!(
                "Port {other} has extra/{RESERVED} {address} already; give each port its own."
            )));
        }
        if !self.lan.could_reserve(address) {
            let sentence = format!(
                "extra/{RESERVED} {address} is not an address for a machine in any network that \
                 this box serves; see [[dhcp]] in the settings."
            );
            return Err(OrderRefusal::new(RefusalKind::Invalid, sentence));
        }
        Ok(())
    }

    fn replace_port(&mut self, now: Now, port: Port, based_on: u64) -> Result<(), OrderRefusal> {
        let old = self
            .records
            .view
            .ports
            .get(&port.id)
            .ok_or_else(|| no_port(port.id))?;
        if old.revision != based_on {
            let sentence = format!("Port {} changed meanwhile; read it again.", port.id);
            return Err(OrderRefusal::new(RefusalKind::Stale, sentence));
        }
        if **old != port {
            self.check_port(&port)?;
            self.lend_network(now, &port);
            self.records.put_port(now, port);
        }
        Ok(())
    }

    fn delete_port(&mut self, id: PortId) -> Result<(), OrderRefusal> {
        let port = self
            .records
            .view
            .ports
            .get(&id)
            .ok_or_else(|| no_port(id))?;
        let busy = self
            .records
            .node(port.node)
            .is_some_and(|node| node.job.is_some());
        if busy {
            return Err(conflict(format!(
                "Port {id} belongs to node {}, which is busy; wait until it is done.",
                port.node
            )));
        }
        self.records.remove_port(id);
        Ok(())
    }

    fn provision(
        &mut self,
        now: Now,
        (id, based_on): (NodeId, Option<u64>),
        verb: Verb,
        mut args: VerbArgs,
    ) -> Result<(), OrderRefusal> {
        let mut node = self.require_node(id)?;
        if based_on.is_some_and(|based_on| based_on != node.revision) {
            return Err(stale(id));
        }
        if let Some(info) = args.instance_info.take() {
            // In this copy only: a refusal below leaves the stored record as it was.
            node.instance_info = info;
        }
        if let Some(password) = args.rescue_password.take() {
            // The password exists in clear text only up to here.
            let hash = trivet_agent::rescue_hash(password.reveal(), &mut *self.entropy);
            args.rescue_password = Some(hash.ok_or_else(|| {
                let most = trivet_agent::RESCUE_PASSWORD_BYTES_MAX;
                let sentence = format!("A rescue_password has at most {most} bytes.");
                OrderRefusal::new(RefusalKind::Invalid, sentence)
            })?);
        }
        let deploys = matches!(verb, Verb::Active | Verb::Deploy | Verb::Rebuild);
        if deploys {
            // The transition table is checked first: what it refuses needs no image and no
            // template.
            trivet_node::apply_verb(now, &self.settings.limits, &node, verb, args.clone())?;
            self.prepare_deploy(&mut node, &mut args)?;
            self.check_right(now, &node, args.deployment.as_deref(), true)?;
        }
        let (has_agent, before) = (node.agent.is_some(), node.job.clone());
        let (mut node, actions) =
            trivet_node::apply_verb(now, &self.settings.limits, &node, verb, args)?;
        if !has_agent && trivet_node::will_boot_agent(&node) {
            self.check_agent_files(&node)?;
        }
        // A new job replaces an operator's power order. A job that continues, as after an abort
        // that has to wait, keeps its own.
        if node.job.is_none() || node.job != before {
            self.bmcs.drop_change(id);
            node.target_power_state = None;
        }
        self.records.put_node(now, node);
        self.check_boot(id);
        if deploys {
            self.clear_unused_image_faults(now);
            self.fetch_early(now, id);
        }
        self.fetch_boot_files(now, id);
        self.run_actions(now, id, actions);
        Ok(())
    }

    /// Adds templates, config drive and image to a deployment.
    fn prepare_deploy(&mut self, node: &mut Node, args: &mut VerbArgs) -> Result<(), OrderRefusal> {
        crate::nodes::templates::add_template_steps(&self.records.view, node, &mut args.steps)?;
        let deployed_by = trivet_drivers::deploy_method(node);
        if deployed_by == Some(DeployInterface::Ramdisk) {
            trivet_drivers::payload(node)
                .map_err(|lacks| OrderRefusal::new(RefusalKind::Invalid, lacks))?;
        } else if deployed_by != Some(DeployInterface::Fake) {
            if node.agent.is_none() {
                self.check_agent_files(node)?;
            }
            self.drive_of_template(node, args)?;
            if let Some(drive) = &args.configdrive {
                node.instance_info
                    .insert("configdrive".to_owned(), drive.clone());
            }
            // With a custom agent the steps of the operator write the instance.
            if deployed_by != Some(DeployInterface::CustomAgent) {
                args.deployment = Some(Box::new(self.image_deployment(node)?));
                let write = trivet_agent::write_image_step();
                args.steps.retain(|step| step.step != write.step);
                args.steps.push(write);
            }
        }
        Ok(())
    }

    fn check_deploy(&mut self, now: Now, id: NodeId) -> Result<OrderOutcome, OrderRefusal> {
        let mut node = self.require_node(id)?;
        let mut args = VerbArgs::default();
        let prepared = self
            .prepare_deploy(&mut node, &mut args)
            .and_then(|()| self.check_right(now, &node, args.deployment.as_deref(), false));
        let refused = prepared.err().map(|refusal| refusal.sentence);
        // A template may contain a step that the node's interface cannot run.
        let mut steps = args.steps.iter();
        let unable = || steps.find_map(|step| trivet_drivers::cannot_run(&node, step));
        Ok(OrderOutcome::Checked(refused.or_else(unable)))
    }

    /// Builds the config drive from an object, or from a template where the request has none.
    /// The drive of a template is built again each time.
    fn drive_of_template(&self, node: &mut Node, args: &mut VerbArgs) -> Result<(), OrderRefusal> {
        let made = node.template_drive.take();
        let stands = node.instance_info.get("configdrive").map(fingerprint);
        let made = made.is_some() && made == stands;
        let mut given = args.configdrive.take();
        let template = given.is_none() && (made || stands.is_none());
        if template {
            node.instance_info.remove("configdrive");
            given = crate::nodes::templates::config_drive(&self.records.view, node)?;
        }
        args.configdrive = packed_drive(node, given)?;
        if let (true, Some(drive)) = (template, &args.configdrive) {
            node.template_drive = Some(fingerprint(drive));
        }
        Ok(())
    }

    fn maintenance(
        &mut self,
        now: Now,
        id: NodeId,
        on: bool,
        reason: Option<String>,
    ) -> Result<(), OrderRefusal> {
        let mut node = self.require_node(id)?;
        node.maintenance = on;
        node.maintenance_reason = reason;
        // Maintenance that an operator set is not ended by the box, whatever the BMC does.
        if !on || node.fault.as_deref() == Some(POWER_FAILURE) {
            node.fault = None;
        }
        self.records.put_node(now, node);
        Ok(())
    }
}

pub(crate) fn conflict(sentence: String) -> OrderRefusal {
    OrderRefusal::new(RefusalKind::Conflict, sentence)
}

/// Identifies a config drive without storing it twice.
fn fingerprint(drive: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    drive.to_string().hash(&mut hasher);
    hasher.finish()
}

/// A config drive that is an object is built here; others are left unchanged.
fn packed_drive(node: &Node, drive: Option<Value>) -> Result<Option<Value>, OrderRefusal> {
    let Some(Value::Object(parts)) = drive else {
        return Ok(drive);
    };
    let name = node.name.clone().map(Value::from);
    let host = node.instance_info.get("display_name").cloned();
    let facts = [
        ("uuid", Some(Value::from(node.id.to_string()))),
        ("name", name.clone()),
        ("hostname", host.or(name)),
    ];
    let facts = facts
        .into_iter()
        .filter_map(|(key, fact)| Some((key.to_owned(), fact?)));
    match trivet_configdrive::encoded_drive(&parts, &facts.collect()) {
        Ok(text) => Ok(Some(text.into())),
        Err(problem) => Err(OrderRefusal::new(
            RefusalKind::Invalid,
            format!("{problem}."),
        )),
    }
}

fn stale(id: NodeId) -> OrderRefusal {
    let sentence = format!("Node {id} changed meanwhile; read it again.");
    OrderRefusal::new(RefusalKind::Stale, sentence)
}

pub(crate) fn no_node(id: NodeId) -> OrderRefusal {
    OrderRefusal::new(
        RefusalKind::NotFound,
        format!("Node {id} could not be found."),
    )
}

fn no_port(id: PortId) -> OrderRefusal {
    OrderRefusal::new(
        RefusalKind::NotFound,
        format!("Port {id} could not be found."),
    )
}
