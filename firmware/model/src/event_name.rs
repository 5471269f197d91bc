//! Names of events and faults for programs: in server-sent events, webhooks and metrics.
//!
//! A name is part of the API: it stays when the Rust name changes.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{BoxFault, NoteKind, words};

words! {
    /// The subject of an event: what clients and webhooks select by.
    EventTopic {
        /// The provision state of a node.
        State = "state",
        /// Power of a node, and its place in the boot queue.
        Power = "power",
        /// Work of a job: steps, repeated tries, warnings, the error that ended it.
        Job = "job",
        /// The agent of a node, its logs and its inspection data.
        Agent = "agent",
        /// Images of the cache.
        Image = "image",
        /// DHCP, boot files, unknown machines, other servers.
        Network = "network",
        /// Faults that were raised or cleared.
        Fault = "fault",
        /// Changes that callers requested, and callers that were refused.
        Order = "order",
    }
}

impl NoteKind {
    /// The subject.
    pub const fn topic(&self) -> EventTopic {
        match self {
            Self::StateChanged { .. } => EventTopic::State,
            Self::PowerIs(_)
            | Self::PowerAssumed(_)
            | Self::PowerOrdered { .. }
            | Self::PowerAccepted { .. }
            | Self::PowerFailed { .. }
            | Self::BootQueued { .. }
            | Self::ManualActionNeeded { .. } => EventTopic::Power,
            Self::FaultRaised(_) | Self::FaultCleared(_) => EventTopic::Fault,
            Self::Dhcp { .. }
            | Self::ForeignServerSeen { .. }
            | Self::UnknownMachineSeen { .. }
            | Self::UnknownMachinesSeen { .. }
            | Self::FileSent { .. }
            | Self::FileRefused { .. }
            | Self::BootFileUnverified { .. } => EventTopic::Network,
            Self::ImageFetching { .. }
            | Self::ImageUnpacking { .. }
            | Self::ImageComplete { .. }
            | Self::ImageCorrupt { .. }
            | Self::ImageEvicted { .. }
            | Self::AwaitingImage { .. }
            | Self::ImageRejected { .. }
            | Self::ImageAheadStarted { .. }
            | Self::ImageAheadWritten { .. }
            | Self::ImageAheadFailed { .. }
            | Self::ImageWasOnDisk { .. }
            | Self::ImageFailed { .. } => EventTopic::Image,
            Self::AgentLookedUp { .. }
            | Self::AgentEnrolled { .. }
            | Self::AgentWeaklyAuthenticated { .. }
            | Self::AgentReady { .. }
            | Self::AgentKeepsRunning
            | Self::AgentReused
            | Self::AgentExpired { .. }
            | Self::AgentTimedOut { .. }
            | Self::AgentRefused { .. }
            | Self::LogsStored { .. }
            | Self::LogsMissing { .. }
            | Self::Inspected
            | Self::PortFound { .. }
            | Self::PortNeverSeen { .. } => EventTopic::Agent,
            Self::OrderReceived { .. } | Self::CallerRefused { .. } | Self::VendorCalled { .. } => {
                EventTopic::Order
            }
            Self::StepStarted { .. }
            | Self::StepDone { .. }
            | Self::Retrying { .. }
            | Self::Warning { .. }
            | Self::Failed { .. }
            | Self::StageLate { .. }
            | Self::BoxRestarted
            | Self::Restored { .. } => EventTopic::Job,
            Self::Evidence(evidence) => evidence.topic(),
        }
    }

    /// The name of this kind of event.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::StateChanged { .. } => "state_changed",
            Self::PowerIs(_) | Self::PowerAssumed(_) => "power_is",
            Self::PowerOrdered { .. } => "power_ordered",
            Self::PowerAccepted { .. } => "power_accepted",
            Self::BootQueued { .. } => "boot_queued",
            Self::ManualActionNeeded { .. } => "manual_action_needed",
            Self::PowerFailed { .. } => "power_failed",
            Self::VendorCalled { .. } => "vendor_called",
            Self::Dhcp { .. } => "dhcp",
            Self::ForeignServerSeen { .. } => "foreign_server_seen",
            Self::FaultRaised(_) => "fault_raised",
            Self::FaultCleared(_) => "fault_cleared",
            Self::UnknownMachineSeen { .. } => "unknown_machine_seen",
            Self::UnknownMachinesSeen { .. } => "unknown_machines_seen",
            Self::FileSent { .. } => "file_sent",
            Self::FileRefused { .. } => "file_refused",
            Self::ImageFetching { .. } => "image_fetching",
            Self::ImageUnpacking { .. } => "image_unpacking",
            Self::ImageComplete { .. } => "image_complete",
            Self::ImageCorrupt { .. } => "image_corrupt",
            Self::ImageEvicted { .. } => "image_evicted",
            Self::AwaitingImage { .. } => "awaiting_image",
            Self::ImageRejected { .. } => "image_rejected",
            Self::ImageAheadStarted { .. } => "image_ahead_started",
            Self::ImageAheadWritten { .. } => "image_ahead_written",
            Self::ImageAheadFailed { .. } => "image_ahead_failed",
            Self::ImageWasOnDisk { .. } => "image_was_on_disk",
            Self::ImageFailed { .. } => "image_failed",
            Self::BootFileUnverified { .. } => "boot_file_unverified",
            Self::AgentLookedUp { .. } => "agent_looked_up",
            Self::AgentEnrolled { .. } => "agent_enrolled",
            Self::AgentWeaklyAuthenticated { .. } => "agent_weakly_authenticated",
            Self::AgentReady { .. } => "agent_ready",
            Self::AgentKeepsRunning => "agent_kept",
            Self::AgentReused => "agent_reused",
            Self::AgentExpired { .. } => "agent_expired",
            Self::AgentTimedOut { .. } => "agent_timed_out",
            Self::CallerRefused { .. } => "caller_refused",
            Self::AgentRefused { .. } => "agent_refused",
            Self::OrderReceived { .. } => "order_received",
            Self::LogsStored { .. } => "logs_stored",
            Self::LogsMissing { .. } => "logs_missing",
            Self::Inspected => "inspected",
            Self::PortFound { .. } => "port_found",
            Self::PortNeverSeen { .. } => "port_never_seen",
            Self::StepStarted { .. } => "step_started",
            Self::StepDone { .. } => "step_done",
            Self::Retrying { .. } => "retrying",
            Self::Warning { .. } => "warning",
            Self::Failed { .. } => "failed",
            Self::StageLate { .. } => "stage_late",
            Self::BoxRestarted => "box_restarted",
            Self::Restored { .. } => "restored",
            Self::Evidence(evidence) => evidence.name(),
        }
    }
}

impl BoxFault {
    /// The name of this kind of fault.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ForeignServer { .. } => "foreign_server",
            Self::PoolExhausted { .. } => "pool_exhausted",
            Self::AddressTaken { .. } => "address_taken",
            Self::LoaderMissing { .. } => "loader_missing",
            Self::AgentMissing => "agent_missing",
            Self::AgentFileMissing { .. } => "agent_file_missing",
            Self::AgentIsoUnusable { .. } => "agent_iso_unusable",
            Self::LoopbackAddress { .. } => "loopback_address",
            Self::PlainTokens { .. } => "plain_tokens",
            Self::InterfaceMissing { .. } => "interface_missing",
            Self::BmcFailed { .. } => "bmc_failed",
            Self::BmcShared { .. } => "bmc_shared",
            Self::AgentContested { .. } => "agent_contested",
            Self::ImageFailed { .. } => "image_failed",
            Self::WebhookFailed { .. } => "webhook_failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EvidenceNote, ProvisionState};

    fn check(kind: &NoteKind, topic: EventTopic, name: &str) {
        assert_eq!((kind.topic(), kind.name()), (topic, name));
        let fits = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        assert!(fits, "{name}");
    }

    #[test]
    fn events_have_a_topic_and_a_name() {
        let (from, to) = (ProvisionState::Deploying, ProvisionState::Active);
        let changed = NoteKind::StateChanged { from, to };
        check(&changed, EventTopic::State, "state_changed");
        let order = "power on";
        let ordered = NoteKind::PowerOrdered { order };
        check(&ordered, EventTopic::Power, "power_ordered");
        let why = "x".to_owned();
        check(&NoteKind::Failed { why }, EventTopic::Job, "failed");
        check(&NoteKind::Inspected, EventTopic::Agent, "inspected");
        let image = "x".to_owned();
        let evicted = NoteKind::ImageEvicted { image };
        check(&evicted, EventTopic::Image, "image_evicted");
        let image = "x".to_owned();
        let found = NoteKind::ImageWasOnDisk { image };
        check(&found, EventTopic::Image, "image_was_on_disk");
        let more = 1;
        let unknown = NoteKind::UnknownMachinesSeen { more };
        check(&unknown, EventTopic::Network, "unknown_machines_seen");
        let raised = NoteKind::FaultRaised(BoxFault::AgentMissing);
        check(&raised, EventTopic::Fault, "fault_raised");
        let (method, outcome) = ("x".to_owned(), "y".to_owned());
        let called = NoteKind::VendorCalled { method, outcome };
        check(&called, EventTopic::Order, "vendor_called");
        let (url, error) = ("https://h".to_owned(), "refused".to_owned());
        let evidence = NoteKind::Evidence(EvidenceNote::AgentUnreachable { url, error });
        check(&evidence, EventTopic::Agent, "agent_unreachable");
    }

    #[test]
    fn topics_are_read_from_their_names_and_faults_have_names() {
        for topic in EventTopic::ALL {
            assert_eq!(topic.as_str().parse(), Ok(*topic));
        }
        assert!("States".parse::<EventTopic>().is_err());
        let (url, why) = ("http://h".to_owned(), "answers 500".to_owned());
        let failed = BoxFault::WebhookFailed { url, why };
        assert_eq!(failed.name(), "webhook_failed");
        assert!(
            failed
                .to_string()
                .starts_with("the webhook http://h answers 500; ")
        );
        assert_eq!(BoxFault::AgentMissing.name(), "agent_missing");
    }
}
