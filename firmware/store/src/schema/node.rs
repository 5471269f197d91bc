//! Nodes, with their job and the session of their agent.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;
use trivet_model::attributes::NodeAttributes;
use trivet_model::deployment::{DriveLocation, ImageChecksum, ImageLocation, PartitionSizes};
use trivet_model::image::ImageFormat;
use trivet_model::node::{JsonObject, NodeLocation};
use trivet_model::{
    AgentAuthentication, AgentCaller, AgentQuery, AgentSession, ImageAhead, ImageDeployment, Job,
    JobKind, JobPhase, JobStep, KeyDigest, Node, NodeEnrolment, NodeId, PowerState, ProvisionState,
    RedeemedEnrolment, StepKind,
};

use super::codec::{
    CountOrNone, Flag, Id, Json, Number, Object, Optional, OptionalPart, PartList,
    SealedAttributes, SealedForm, SealedObject, SealedText, SealedValue, Signed, Text, TextMap,
    Time, Word,
};
use super::tagged::tagged_fields;

/// The version of node records with tagged fields. Further fields do not raise it.
pub(super) const VERSION: u16 = 3;

tagged_fields! {
    /// Fields of a node.
    NodeFields: Node {
        1 "id" id: Id<NodeId>;
        2 "revision" revision: Number<u64> = 0;
        3 "serial" serial: Number<u64> = 0;
        4 "name" name: Optional<Text> = None;
        5 "driver" driver: Text;
        6 "driver_info" driver_info: SealedObject = JsonObject::new();
        7 "properties" properties: Object = JsonObject::new();
        8 "instance_info" instance_info: SealedObject = JsonObject::new();
        9 "extra" extra: SealedObject = JsonObject::new();
        10 "driver_internal_info" driver_internal_info: SealedObject = JsonObject::new();
        11 "provision_state" provision_state: Word<ProvisionState>;
        12 "target_provision_state" target_provision_state: Optional<Word<ProvisionState>> = None;
        13 "provision_updated_at" provision_updated_at: Optional<Time> = None;
        14 "power_state" power_state: Optional<Word<PowerState>> = None;
        15 "target_power_state" target_power_state: Optional<Word<PowerState>> = None;
        16 "last_error" last_error: Optional<Text> = None;
        17 "maintenance" maintenance: Flag = false;
        18 "maintenance_reason" maintenance_reason: Optional<Text> = None;
        19 "fault" fault: Optional<Text> = None;
        20 "instance_uuid" instance_uuid: Optional<Text> = None;
        21 "resource_class" resource_class: Optional<Text> = None;
        22 "automated_clean" automated_clean: Optional<Flag> = None;
        23 "created_at" created_at: Time;
        24 "updated_at" updated_at: Optional<Time> = None;
        25 "inspection_started_at" inspection_started_at: Optional<Time> = None;
        26 "inspection_finished_at" inspection_finished_at: Optional<Time> = None;
        27 "inventory" inventory: Optional<Json> = None;
        28 "kept" attributes: SealedAttributes = NodeAttributes::default();
        29 "job" job: OptionalPart<JobFields> = None;
        30 "agent" agent: OptionalPart<AgentFields> = None;
        31 "location" location: OptionalPart<LocationFields> = None;
        32 "agent_caller" agent_caller: OptionalPart<CallerFields> = None;
        33 "template_drive" template_drive: Optional<Number<u64>> = None;
        34 "enrolment" enrolment: OptionalPart<EnrolmentFields> = None;
    }
}

tagged_fields! {
    /// Fields of a job.
    JobFields: Job {
        1 "kind" kind: Word<JobKind>;
        2 "phase" phase: Word<JobPhase>;
        3 "step_kind" step_kind: Optional<Word<StepKind>> = None;
        4 "manual" manual: Flag = false;
        5 "steps" steps: PartList<StepFields> = Vec::new();
        6 "at" at: Number<u32> = 0;
        7 "versions" versions: TextMap = BTreeMap::new();
        8 "tries" tries: Number<u32> = 0;
        9 "boots" boots: CountOrNone = None;
        10 "heartbeat_lost_at" heartbeat_lost_at: Optional<Time> = None;
        11 "abort_after" abort_after: Optional<Text> = None;
        12 "deployment" deployment: OptionalPart<DeploymentFields> = None;
        13 "has_inspection_data" has_inspection_data: Flag = false;
        14 "awaits_source" awaits_source: Flag = false;
        15 "agent_query" agent_query: Optional<Word<AgentQuery>> = None;
    }
}

tagged_fields! {
    /// Fields of a step of a job.
    StepFields: JobStep {
        1 "step" step: Text;
        2 "interface" interface: Text;
        3 "priority" priority: Signed = 0;
        4 "args" args: SealedValue = Value::Null;
        5 "reboot_requested" reboot_requested: Flag = false;
        6 "abortable" abortable: Flag = false;
    }
}

tagged_fields! {
    /// Fields of the image that a job writes.
    DeploymentFields: ImageDeployment {
        1 "file_name" file_name: Text;
        2 "image" image: SealedForm<ImageLocation>;
        3 "checksum" checksum: SealedForm<ImageChecksum>;
        4 "format" format: Optional<Word<ImageFormat>> = None;
        5 "is_streamed" is_streamed: Flag = false;
        6 "partitions" partitions: OptionalPart<PartitionFields> = None;
        7 "drive" drive: OptionalPart<DriveFields> = None;
    }
}

tagged_fields! {
    /// Fields of the partitions of a deployment.
    PartitionFields: PartitionSizes {
        1 "root_mb" root_mb: Number<u64>;
        2 "swap_mb" swap_mb: Number<u64> = 0;
        3 "ephemeral_mb" ephemeral_mb: Number<u64> = 0;
        4 "ephemeral_format" ephemeral_format: Optional<Text> = None;
        5 "preserve_ephemeral" preserve_ephemeral: Flag = false;
    }
}

tagged_fields! {
    /// Fields of the place of the config drive of a deployment.
    DriveFields: DriveLocation {
        1 "base" base: Text;
        2 "drive_token" token: SealedText;
    }
}

tagged_fields! {
    /// Fields of the caller that received the token of an agent.
    CallerFields: AgentCaller {
        1 "address" address: Word<IpAddr>;
        2 "authentication" authentication: Word<AgentAuthentication>;
    }
}

tagged_fields! {
    /// Fields of the session of an agent.
    AgentFields: AgentSession {
        1 "token" token: SealedText;
        2 "former_token" former_token: Optional<SealedText> = None;
        3 "url" url: Optional<Text> = None;
        4 "verify_ca" verify_ca: Optional<Text> = None;
        5 "version" version: Optional<Text> = None;
        6 "is_clean" is_clean: Flag = false;
        7 "ahead" ahead: Optional<SealedForm<ImageAhead>> = None;
    }
}

tagged_fields! {
    /// Fields of the enrolment of the agent of one boot.
    EnrolmentFields: NodeEnrolment {
        1 "token" token: SealedText;
        2 "redeemed" redeemed: OptionalPart<RedeemedFields> = None;
    }
}

tagged_fields! {
    /// Fields of a redeemed enrolment.
    RedeemedFields: RedeemedEnrolment {
        1 "request" request: Word<KeyDigest>;
        2 "key" key: Word<KeyDigest>;
    }
}

tagged_fields! {
    /// Fields of the location of a node.
    LocationFields: NodeLocation {
        1 "rack" rack: Text;
        2 "unit" unit: Optional<Number<u32>> = None;
    }
}
