//! A rebuild stops the running instance when its new image is in the cache or on its way, and not
//! before: a source that cannot be reached must not cost the instance.

use trivet_model::image::ImageState;
use trivet_model::{Node, NodeId, Now, PowerOrder};

use crate::Rack;

impl Rack {
    /// Whether the instance of a node that is rebuilt keeps running for now: its new image is
    /// neither in the cache nor does its source send it. It continues with
    /// [`Self::stop_replaced_instances`], and ends with the job where it cannot be fetched.
    pub(crate) fn awaits_source(&mut self, now: Now, id: NodeId) -> bool {
        let Some(mut node) = self.records.node(id).map(|node| Node::clone(node)) else {
            return false;
        };
        let Some(job) = node.job.as_mut().filter(|job| job.awaits_source) else {
            return false;
        };
        job.awaits_source = false;
        if !self.lacks_source(&node) {
            self.records.put_node(now, node);
            return false;
        }
        self.hold_write(now, &node);
        self.fetch_early(now, id);
        true
    }

    /// Whether the image of a deployment comes through the cache and no byte of it is there.
    fn lacks_source(&self, node: &Node) -> bool {
        if self.checksum_file_of(node).is_some() || self.oci_query_of(node).is_some() {
            return true;
        }
        self.wanted_by(node).is_some_and(|wanted| {
            let status = self.images.status(&wanted);
            let comes = status.is_some_and(|status| {
                status.state == ImageState::Fetching && status.present_bytes > 0
            });
            !comes
                && !self.images.has_file(wanted.digest)
                && self.images.unpacked(&wanted).is_none()
        })
    }

    /// Powers off the machines whose new image is coming.
    pub(crate) fn stop_replaced_instances(&mut self, now: Now) {
        let waits = |id: &NodeId| {
            let node = self.records.node(*id)?;
            let job = node.job.as_ref()?;
            (job.awaits_source && !self.lacks_source(node)).then_some(*id)
        };
        let held = self.pending_writes.by_node.keys().filter_map(waits);
        for id in held.collect::<Vec<_>>() {
            self.pending_writes.by_node.remove(&id);
            self.order_power(now, id, PowerOrder::Off);
        }
    }
}
