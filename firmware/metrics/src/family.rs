//! All metrics with their names, types, labels and help texts. The manual lists the same.

/// The type of a metric.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetricKind {
    /// Only grows, until the box restarts.
    Counter,
    /// Can grow and shrink.
    Gauge,
    /// Counts durations by their size; in seconds.
    Histogram,
}

impl MetricKind {
    /// The word in the TYPE line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

macro_rules! families {
    ($($family:ident $kind:ident $name:literal [$($label:literal)*] $help:literal)+) => {
        /// A metric: all time series of one name.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum MetricFamily { $(#[doc = $help] $family,)+ }

        impl MetricFamily {
            /// All metrics.
            pub const ALL: &'static [Self] = &[$(Self::$family,)+];

            /// The name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$family => $name,)+ }
            }

            /// The type.
            pub const fn kind(self) -> MetricKind {
                match self { $(Self::$family => MetricKind::$kind,)+ }
            }

            /// The names of the labels, at most two.
            pub const fn labels(self) -> &'static [&'static str] {
                match self { $(Self::$family => &[$($label),*],)+ }
            }

            /// The help text.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$family => $help,)+ }
            }
        }
    };
}

families! {
    DhcpMessages Counter "trivet_dhcp_messages_total" ["message"]
        "DHCP messages received, by message type; none where it could not be decoded."
    DhcpReplies Counter "trivet_dhcp_replies_total" ["message"]
        "DHCP replies sent, by message type."
    DhcpDropped Counter "trivet_dhcp_dropped_total" ["reason"]
        "DHCP messages and damaged frames without a reply, by reason."
    DhcpUnknownMachines Counter "trivet_dhcp_unknown_machines_total" []
        "Machines that belong to no node and requested an address for the first time."
    DhcpForeignServers Counter "trivet_dhcp_foreign_servers_total" []
        "Other DHCP servers that were seen for the first time on a link without leases of Trivet."
    Transfers Counter "trivet_transfers_total" ["protocol" "result"]
        "Files sent to machines over TFTP and HTTP: complete, or partial where the client stopped."
    TransferBytes Counter "trivet_transfer_bytes_total" ["protocol"]
        "Bytes of files sent to machines."
    TransferSeconds Histogram "trivet_transfer_duration_seconds" ["protocol"]
        "Duration of file transfers to machines."
    TransfersRefused Counter "trivet_transfers_refused_total" ["protocol" "answer"]
        "Requests for files that were refused, by the answer in the protocol."
    BootsQueued Counter "trivet_boots_queued_total" []
        "Boots from the network that had to wait in the boot queue."
    BootsAdmitted Counter "trivet_boots_admitted_after_waiting_total" []
        "Boots from the network that were admitted after they waited in the boot queue."
    BootsRunning Gauge "trivet_boots_running" []
        "Machines that boot from the network now."
    BootsWaiting Gauge "trivet_boots_waiting" []
        "Machines that wait in the boot queue now."
    BootsLimit Gauge "trivet_boots_limit" []
        "How many machines may boot from the network at the same time."
    BootFilesUnverified Counter "trivet_boot_files_unverified_total" []
        "Boot files that could not be compared with their source; the copy in the cache was used."
    ImageFillsStarted Counter "trivet_image_fills_started_total" []
        "Images that began to be fetched or verified."
    ImageFills Counter "trivet_image_fills_total" ["result"]
        "Images that were fetched or verified, by result: complete or failed."
    ImageFillBytes Counter "trivet_image_fill_bytes_total" []
        "Bytes of images received from their sources or uploaded."
    ImageUnpacks Counter "trivet_image_unpacks_started_total" []
        "Packed images that began to be unpacked."
    ImageEvictions Counter "trivet_image_evictions_total" []
        "Images that were evicted from the cache to free space."
    ImageCorruptChunks Counter "trivet_image_corrupt_chunks_total" []
        "Chunks of images that had changed on the disk of this box."
    ImageReads Counter "trivet_image_reads_total" ["result"]
        "Reads of images through the cache: hit where the image was complete, miss where it was \
         fetched or verified first, refused where it was not available."
    ImageWaits Counter "trivet_image_waits_total" []
        "Times that the agent of a node had to wait for its image."
    ImageRejections Counter "trivet_image_rejections_total" []
        "Times that an agent could not write an image and named the image as the cause."
    ImagesAhead Counter "trivet_images_ahead_total" ["result"]
        "Images written ahead of a deployment, by result: started, written, failed, or used by a \
         deployment."
    Images Gauge "trivet_images" ["state"]
        "Images known to the cache, by state."
    ImageCacheBytes Gauge "trivet_image_cache_bytes" []
        "Bytes of images in the cache."
    BmcRequests Counter "trivet_bmc_requests_total" ["protocol" "result"]
        "Requests to BMCs and hosts of machines, by protocol and result: ok or the kind of the \
         failure."
    BmcRequestSeconds Histogram "trivet_bmc_request_duration_seconds" ["protocol"]
        "Time from a request to a BMC to its end, with waiting and repetitions."
    PowerOrders Counter "trivet_power_orders_total" ["order"]
        "Requests that change the power of a machine, by kind."
    PowerAccepted Counter "trivet_power_orders_accepted_total" ["order"]
        "Requests that change the power of a machine and that its BMC accepted."
    PowerFailed Counter "trivet_power_orders_failed_total" []
        "Requests about power or boot devices that failed."
    ManualActions Counter "trivet_manual_actions_total" []
        "Actions that a person had to do because a node has no BMC."
    VendorCalls Counter "trivet_vendor_calls_total" []
        "Commands that callers sent to a BMC or an agent by a vendor method."
    AgentEvents Counter "trivet_agent_events_total" ["event"]
        "Events of agents: lookups, first heartbeats, refusals, lost heartbeats and others."
    AgentCalls Counter "trivet_agent_calls_total" ["result"]
        "Calls to agents that ended, by result: ok, error for a status of 400 and above, or \
         unreachable."
    AgentLogs Counter "trivet_agent_logs_total" ["result"]
        "Collections of the logs of agents: stored or missing."
    Agents Gauge "trivet_agents" []
        "Nodes with a running agent."
    Jobs Counter "trivet_jobs_total" ["kind" "outcome"]
        "Jobs of nodes that ended, by kind and outcome: done or failed."
    JobSeconds Histogram "trivet_job_duration_seconds" ["kind"]
        "Duration of jobs that ended with success; jobs that began before the box started are \
         left out."
    JobRetries Counter "trivet_job_retries_total" []
        "Tries in jobs that failed and were repeated."
    JobErrors Counter "trivet_job_errors_total" []
        "Errors that ended a job."
    StagesLate Counter "trivet_stages_late_total" ["stage"]
        "Stages of jobs that took much longer than usual."
    JobsContinued Counter "trivet_jobs_continued_total" []
        "Jobs that went on after a restart of this box."
    Warnings Counter "trivet_warnings_total" []
        "Errors that a job does not need to end for."
    Evidence Counter "trivet_evidence_total" ["event"]
        "Facts that the diagnosis of a job reads, such as a DHCP request that this box does not \
         answer."
    StepsStarted Counter "trivet_steps_started_total" []
        "Steps of jobs that started."
    StepsDone Counter "trivet_steps_done_total" []
        "Steps of jobs that ended with success."
    Inspections Counter "trivet_inspections_total" []
        "Inspection data that arrived."
    InspectedPorts Counter "trivet_inspected_ports_total" ["result"]
        "Interfaces that inspections found: created as ports, or never_seen on the network."
    Nodes Gauge "trivet_nodes" ["state"]
        "Nodes, by provision state."
    NodesPower Gauge "trivet_nodes_by_power" ["power"]
        "Nodes, by the power state that the BMC last reported."
    NodesMaintenance Gauge "trivet_nodes_in_maintenance" []
        "Nodes in maintenance mode."
    NodesWithJob Gauge "trivet_nodes_with_job" []
        "Nodes with a job under way."
    Ports Gauge "trivet_ports" []
        "Ports of nodes."
    UnknownMachines Gauge "trivet_unknown_machines" []
        "Machines that requested an address and belong to no node."
    Faults Gauge "trivet_faults" ["fault"]
        "Present faults, by kind."
    FaultsRaised Counter "trivet_faults_raised_total" ["fault"]
        "Faults that were raised, by kind."
    FaultsCleared Counter "trivet_faults_cleared_total" ["fault"]
        "Faults that were cleared, by kind."
    Orders Counter "trivet_orders_total" ["order" "result"]
        "Changes that callers of the API requested, by kind and result: accepted or refused. \
         `request` is one that was refused before its kind was known: wrong fields, a missing \
         role, no such record."
    CallersRefused Counter "trivet_callers_refused_total" []
        "Callers that were not authenticated by the state machine."
    ApiRequests Counter "trivet_api_requests_total" ["method" "status"]
        "Requests to the API, by method and status code."
    ApiRequestSeconds Histogram "trivet_api_request_duration_seconds" ["method"]
        "Time from a request to the API to its response."
    StoreCommits Counter "trivet_store_commits_total" []
        "Commits of the store."
    StoreWrittenBytes Counter "trivet_store_written_bytes_total" []
        "Bytes that commits wrote to flash."
    StoreFlushes Counter "trivet_store_flushes_total" []
        "Flushes of commits to flash."
    StoreCommitSeconds Histogram "trivet_store_commit_duration_seconds" []
        "Duration of a commit with its flush."
    StoreRefusals Counter "trivet_store_refusals_total" []
        "Batches of changes that the store refused."
    StoreRecords Gauge "trivet_store_records" []
        "Records in the store."
    StoreLiveBytes Gauge "trivet_store_live_bytes" []
        "Bytes of all records in the store."
    StoreLiveBytesMax Gauge "trivet_store_live_bytes_limit" []
        "The most bytes of records that the store can hold."
    EngineInputs Counter "trivet_engine_inputs_total" []
        "Inputs that the engine handled."
    EngineBatches Counter "trivet_engine_batches_total" []
        "Batches of inputs that the engine handled, each with at most one commit."
    EngineQueueFull Counter "trivet_engine_queue_full_total" []
        "Inputs that found the queue of the engine full; requests were answered as busy, \
         datagrams dropped."
    EngineQueue Gauge "trivet_engine_queue_length" []
        "Inputs that wait for the engine."
    Connections Gauge "trivet_connections" []
        "Open HTTP connections of all services that share limits.connections_max."
    ConnectionsMax Gauge "trivet_connections_limit" []
        "The most HTTP connections of all services."
    EventClients Gauge "trivet_event_clients" []
        "Clients that receive server-sent events."
    EventsPublished Counter "trivet_events_total" []
        "Events that were made available to clients and webhooks."
    EventClientsCut Counter "trivet_event_clients_cut_total" []
        "Clients of server-sent events that were disconnected because they read too slowly."
    WebhookDeliveries Counter "trivet_webhook_deliveries_total" ["result"]
        "Requests to webhooks, by result: ok or failed."
    WebhookDropped Counter "trivet_webhook_events_dropped_total" []
        "Events that no webhook received, because its queue was full or its tries were used up."
    WebhookQueue Gauge "trivet_webhook_queue_length" []
        "Events that wait for a webhook."
    BuildInfo Gauge "trivet_build_info" ["version"]
        "Always 1; the label has the version of the program."
    ProcessCpu Counter "process_cpu_seconds_total" []
        "CPU time of this process, user and system."
    ProcessResident Gauge "process_resident_memory_bytes" []
        "Resident memory of this process."
    ProcessVirtual Gauge "process_virtual_memory_bytes" []
        "Virtual memory of this process."
    ProcessFds Gauge "process_open_fds" []
        "Open file descriptors of this process."
    ProcessFdsMax Gauge "process_max_fds" []
        "The most file descriptors that this process may open."
    ProcessStart Gauge "process_start_time_seconds" []
        "Start of this process, in seconds since 1970."
}
