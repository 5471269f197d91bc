//! The thread that owns the rack and the store.
//!
//! Listeners send it inputs through a bounded queue. It takes all waiting inputs as one
//! batch, makes their changes durable with one flush, and only then emits the outputs
//! and publishes the new snapshot. Inputs that arrive meanwhile wait for the next
//! batch, so a busy box puts more changes into each flush.

mod datagram_quota;
mod size_check;
mod trim;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tracing::{error, warn};
use trivet_board_linux::FileFlash;
use trivet_metrics::MetricFamily;
use trivet_model::{
    ApiCaller, NodeCertificate, NoteKind, OrderOutcome, OrderRefusal, RackOrder, RackView,
    RefusalKind,
};
use trivet_rack::{FileGrant, Outbox, Rack, RackInput, RackOutput, Settings};
use trivet_store::{CommitError, Store};

use crate::clock::{DaemonClock, DaemonEntropy};
use crate::telemetry::Telemetry;
use datagram_quota::{DatagramPermit, DatagramQuotas};
use trim::MemoryTrim;

/// Limit of the engine's input queue. When it is full, a listener replies "busy, retry"
/// to a request and drops a datagram, as a full network link would.
const INPUTS_WAITING_MAX: usize = 4096;

/// The most inputs of one batch, so that no reply waits long for its flush.
const BATCH_INPUTS_MAX: usize = 256;

/// How long the engine sleeps when no timer is due.
const IDLE_MS_MAX: u64 = 1000;

/// The delay between two attempts to send the stop message while the queue is full.
const STOP_GAP: Duration = Duration::from_millis(5);

enum EngineMessage {
    /// A question whether the engine still answers.
    Ping(oneshot::Sender<()>),
    Input(RackInput),
    /// A datagram that any machine can send, and its permit in the quota for those.
    Datagram(RackInput, DatagramPermit),
    Order(PendingOrder),
    File(PendingFileRequest),
    Stop(oneshot::Sender<()>),
}

/// A handle to the engine, for the listeners.
#[derive(Clone)]
pub(crate) struct Engine {
    queue: EngineQueue,
    view: watch::Receiver<Arc<RackView>>,
    datagrams: DatagramQuotas,
    telemetry: Arc<Telemetry>,
}

/// The sending end of the engine's queue, which counts the inputs in it.
#[derive(Clone)]
struct EngineQueue {
    sender: SyncSender<EngineMessage>,
    telemetry: Arc<Telemetry>,
}

impl EngineQueue {
    #[expect(clippy::result_large_err, reason = "it comes back to be offered again")]
    fn try_send(&self, message: EngineMessage) -> Result<(), TrySendError<EngineMessage>> {
        // Counted before it is there: the engine may take it at once.
        self.telemetry.enqueue();
        let sent = self.sender.try_send(message);
        if sent.is_err() {
            self.telemetry.enqueue_failed();
        }
        sent
    }
}

impl Engine {
    /// The newest snapshot.
    pub(crate) fn view(&self) -> Arc<RackView> {
        Arc::clone(&self.view.borrow())
    }

    /// Notifies when there is a newer snapshot.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<RackView>> {
        self.view.clone()
    }

    /// Queues an input; false when the queue is full.
    pub(crate) fn try_send(&self, input: RackInput) -> bool {
        self.offer(input).is_ok()
    }

    /// Queues an input, or returns it when the queue is full.
    #[expect(clippy::result_large_err, reason = "it comes back to be offered again")]
    pub(crate) fn offer(&self, input: RackInput) -> Result<(), RackInput> {
        let message = match &input {
            RackInput::Dhcp { bytes, .. } => {
                let known = datagram_quota::sender(bytes)
                    .is_some_and(|mac| self.view.borrow().macs.contains_key(&mac));
                match self.datagrams.acquire(known) {
                    Some(place) => EngineMessage::Datagram(input, place),
                    None => {
                        self.telemetry.count(MetricFamily::EngineQueueFull);
                        return Err(input);
                    }
                }
            }
            _ => EngineMessage::Input(input),
        };
        match self.queue.try_send(message) {
            Err(TrySendError::Full(
                EngineMessage::Input(input) | EngineMessage::Datagram(input, _),
            )) => Err(input),
            _ => Ok(()),
        }
    }

    /// Executes an order; returns its reply once the change is durable.
    pub(crate) async fn order(
        &self,
        caller: Arc<ApiCaller>,
        order: RackOrder,
    ) -> Result<OrderOutcome, OrderRefusal> {
        let later = |sentence| OrderRefusal::new(RefusalKind::Unavailable, sentence);
        let (reply, answer) = oneshot::channel();
        let pending = PendingOrder {
            caller,
            order,
            reply,
        };
        match self.queue.try_send(EngineMessage::Order(pending)) {
            Ok(()) => {}
            Err(TrySendError::Full(message)) => {
                let refusal = later("The box has too much to do; try again in a moment.");
                if let EngineMessage::Order(pending) = message {
                    log_refusal(&pending.caller, &pending.order, &refusal);
                }
                return Err(refusal);
            }
            Err(TrySendError::Disconnected(_)) => return Err(later("The box is stopping.")),
        }
        answer
            .await
            .unwrap_or_else(|_| Err(later("The box is stopping.")))
    }

    /// The content for a path, or none if there is no such file. An error means that
    /// the engine's queue is full or that it is stopping.
    pub(crate) async fn file(
        &self,
        protocol: trivet_rack::FileServerProtocol,
        (peer, certificate): (std::net::IpAddr, Option<NodeCertificate>),
        path: String,
    ) -> Result<Option<FileGrant>, EngineBusy> {
        let (reply, answer) = oneshot::channel();
        let wanted = PendingFileRequest {
            listener: protocol,
            peer,
            certificate,
            path,
            reply,
        };
        self.queue
            .try_send(EngineMessage::File(wanted))
            .map_err(|_| EngineBusy)?;
        answer.await.map_err(|_| EngineBusy)
    }

    /// What is counted, and the newest events.
    pub(crate) fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// Whether the engine handles its queue: resolves when it has taken this question. False if
    /// its queue is full or if it has ended.
    pub(crate) async fn answers(&self) -> bool {
        let (reply, answer) = oneshot::channel();
        let sent = self.queue.try_send(EngineMessage::Ping(reply));
        sent.is_ok() && answer.await.is_ok()
    }

    /// Stops the engine after the current batch. Waits while the queue is full.
    pub(crate) async fn stop(&self) {
        let (reply, answer) = oneshot::channel();
        let mut message = EngineMessage::Stop(reply);
        while let Err(TrySendError::Full(back)) = self.queue.try_send(message) {
            message = back;
            tokio::time::sleep(STOP_GAP).await;
        }
        let _ = answer.await;
    }
}

/// The engine's queue is full, or it is stopping.
#[derive(Debug)]
pub(crate) struct EngineBusy;

/// Receives the outputs that are not replies to a listener's request.
pub(crate) type OutputSink = Box<dyn FnMut(RackOutput) + Send>;

/// Why the engine ended without a stop message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error(
        "the store failed; no later change was acknowledged. Restart to recover all earlier ones"
    )]
    Store(#[source] CommitError),
    #[error("the records on flash cannot be read")]
    Records(#[source] trivet_store::RecordError),
    #[error(
        "the engine panicked, which is a bug in this program; a restart recovers all that was \
         acknowledged"
    )]
    Panicked,
}

/// An order that waits for its reply. The order is kept in case its batch has to be
/// rolled back and retried.
struct PendingOrder {
    caller: Arc<ApiCaller>,
    order: RackOrder,
    reply: OrderReplySender,
}

type OrderReplySender = oneshot::Sender<Result<OrderOutcome, OrderRefusal>>;

impl PendingOrder {
    fn refuse(self, refusal: OrderRefusal) {
        log_refusal(&self.caller, &self.order, &refusal);
        let _ = self.reply.send(Err(refusal));
    }
}

/// The rack records who sent each order. Refusals of orders that the rack did not see,
/// or had to roll back, are logged here.
pub(crate) fn log_refusal(caller: &Arc<ApiCaller>, order: &RackOrder, refusal: &OrderRefusal) {
    if let Some(word) = order.word() {
        let kind = NoteKind::OrderReceived {
            caller: Arc::clone(caller),
            order: word,
            refused: Some(refusal.sentence.clone()),
        };
        warn!("{kind}");
    }
}

/// A file request that waits for its reply, with the client and the listener.
struct PendingFileRequest {
    listener: trivet_rack::FileServerProtocol,
    peer: std::net::IpAddr,
    certificate: Option<NodeCertificate>,
    path: String,
    reply: oneshot::Sender<Option<FileGrant>>,
}

/// A batch that the store refused, and the orders and requests that wait for it.
struct RefusedBatch {
    error: CommitError,
    messages: Vec<EngineMessage>,
}

struct EngineThread {
    clock: DaemonClock,
    settings: Settings,
    rack: Rack,
    store: Store<FileFlash>,
    inputs: Receiver<EngineMessage>,
    output_sink: OutputSink,
    view: watch::Sender<Arc<RackView>>,
    tickets: u64,
    orders: BTreeMap<u64, PendingOrder>,
    /// Orders of earlier batches whose reply the rack has deferred. They may already
    /// have caused a BMC request, so they are never executed twice.
    deferred: BTreeMap<u64, OrderReplySender>,
    files: BTreeMap<u64, PendingFileRequest>,
    trim: MemoryTrim,
    telemetry: Arc<Telemetry>,
    stopping: Option<oneshot::Sender<()>>,
}

/// Starts the engine. The second value resolves with the reason if the engine ends
/// without a stop message.
pub(crate) fn start(
    clock: DaemonClock,
    settings: Settings,
    store: Store<FileFlash>,
    carrier: OutputSink,
) -> Result<(Engine, oneshot::Receiver<EngineError>), EngineError> {
    let (mut thread, engine) = EngineThread::new(clock, settings, store, carrier)?;
    let (ended, why) = oneshot::channel();
    std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || {
            if let Err(error) = thread.run() {
                let _ = ended.send(error);
            }
            if let Some(stopped) = thread.stopping.take() {
                let _ = stopped.send(());
            }
        })
        .expect("a process that just started can start a thread");
    Ok((engine, why))
}

fn rack(settings: &Settings, store: &mut Store<FileFlash>) -> Result<Rack, EngineError> {
    let records = store.take_records().map_err(EngineError::Records)?;
    let entropy = Box::new(DaemonEntropy::new());
    let mut rack = Rack::new(settings.clone(), entropy, records);
    rack.limit_stories(store.layout().live_bytes_max());
    Ok(rack)
}

impl EngineThread {
    fn new(
        clock: DaemonClock,
        settings: Settings,
        mut store: Store<FileFlash>,
        carrier: OutputSink,
    ) -> Result<(Self, Engine), EngineError> {
        let (queue, inputs) = sync_channel(INPUTS_WAITING_MAX);
        let rack = rack(&settings, &mut store)?;
        let (view, watch) = watch::channel(Arc::new(rack.view()));
        let telemetry = Telemetry::new();
        let thread = Self {
            clock,
            settings,
            rack,
            store,
            inputs,
            output_sink: carrier,
            view,
            tickets: 0,
            orders: BTreeMap::new(),
            deferred: BTreeMap::new(),
            files: BTreeMap::new(),
            trim: MemoryTrim::new(),
            telemetry: Arc::clone(&telemetry),
            stopping: None,
        };
        let engine = Engine {
            queue: EngineQueue {
                sender: queue,
                telemetry: Arc::clone(&telemetry),
            },
            view: watch,
            datagrams: DatagramQuotas::default(),
            telemetry,
        };
        Ok((thread, engine))
    }

    fn run(&mut self) -> Result<(), EngineError> {
        self.begin()?;
        while self.stopping.is_none() {
            let batch = self.next_batch();
            let trim = self.trim.due(self.clock.now().tick, batch.len());
            if let Some(refused) = self.attempt(batch)? {
                self.retry_separately(refused)?;
            }
            if trim {
                trivet_board_linux::give_memory_back();
            }
        }
        Ok(())
    }

    /// Lets every node derive its outputs from its record.
    fn begin(&mut self) -> Result<(), EngineError> {
        match self.attempt(vec![EngineMessage::Input(RackInput::Started)])? {
            None => Ok(()),
            // The store is too full even for the changes of a start, so no output may
            // be emitted.
            Some(refused) => Err(EngineError::Store(refused.error)),
        }
    }

    /// All waiting inputs, or a tick when a timer is due.
    fn next_batch(&mut self) -> Vec<EngineMessage> {
        let rest_ms = match self.rack.deadline() {
            Some(deadline) => deadline.since_ms(self.clock.now().tick).min(IDLE_MS_MAX),
            None => IDLE_MS_MAX,
        };
        let mut batch = Vec::new();
        match self.inputs.recv_timeout(Duration::from_millis(rest_ms)) {
            Ok(message) => batch.push(message),
            Err(RecvTimeoutError::Timeout) => {}
            // All handles were dropped, so no further input can arrive.
            Err(RecvTimeoutError::Disconnected) => self.stopping = Some(oneshot::channel().0),
        }
        while batch.len() < BATCH_INPUTS_MAX
            && let Ok(message) = self.inputs.try_recv()
        {
            batch.push(message);
        }
        self.telemetry.batch_taken(batch.len());
        let due = self
            .rack
            .deadline()
            .is_some_and(|at| at <= self.clock.now().tick);
        if due {
            batch.push(EngineMessage::Input(RackInput::Tick));
        }
        batch
    }

    /// Executes a batch. If the store refuses it, no output has been emitted, and the
    /// rack is ahead of flash: the caller must roll the batch back.
    fn attempt(&mut self, batch: Vec<EngineMessage>) -> Result<Option<RefusedBatch>, EngineError> {
        if batch.is_empty() {
            return Ok(None);
        }
        let mut outbox = Outbox::default();
        for message in batch {
            let input = self.input(message);
            if let Some(input) = input {
                self.telemetry.input(&input);
                self.rack.handle(self.clock.now(), input, &mut outbox);
            }
        }
        self.rack.take_changes(&mut outbox);
        let start = self.clock.now().tick;
        match trivet_rack::make_durable(&mut self.store, &outbox.changes) {
            Ok(()) => {
                let took_ms = self.clock.now().tick.since_ms(start);
                self.telemetry.committed(self.store.stats(), took_ms);
                self.view.send_replace(Arc::new(self.rack.view()));
                outbox
                    .outputs
                    .into_iter()
                    .for_each(|output| self.emit(output));
                let pending_reply = std::mem::take(&mut self.orders).into_iter();
                self.deferred
                    .extend(pending_reply.map(|(ticket, pending)| (ticket, pending.reply)));
                Ok(None)
            }
            Err(error @ (CommitError::Flash(_) | CommitError::Poisoned)) => {
                self.telemetry
                    .store_refused(Some("the store cannot write to its flash"));
                Err(EngineError::Store(error))
            }
            Err(error) => {
                let is_full = matches!(error, CommitError::Full { .. });
                self.telemetry
                    .store_refused(is_full.then_some("the store is full"));
                let orders = std::mem::take(&mut self.orders).into_values();
                let files = std::mem::take(&mut self.files).into_values();
                let messages = orders
                    .map(EngineMessage::Order)
                    .chain(files.map(EngineMessage::File))
                    .collect();
                Ok(Some(RefusedBatch { error, messages }))
            }
        }
    }

    fn input(&mut self, message: EngineMessage) -> Option<RackInput> {
        self.tickets += 1;
        let ticket = self.tickets;
        match message {
            EngineMessage::Ping(reply) => {
                let _ = reply.send(());
                None
            }
            EngineMessage::Input(input) => Some(input),
            EngineMessage::Datagram(input, place) => {
                drop(place);
                Some(input)
            }
            EngineMessage::Order(pending) => {
                let most = self.store.layout().record_bytes_max();
                if let Some(refusal) = size_check::too_large(&pending.order, most) {
                    pending.refuse(refusal);
                    return None;
                }
                let (caller, order) = (Arc::clone(&pending.caller), pending.order.clone());
                self.orders.insert(ticket, pending);
                Some(RackInput::Order {
                    ticket,
                    caller,
                    order,
                })
            }
            EngineMessage::File(wanted) => {
                let (protocol, peer, path) = (wanted.listener, wanted.peer, wanted.path.clone());
                let certificate = wanted.certificate;
                self.files.insert(ticket, wanted);
                Some(RackInput::FileRequested {
                    ticket,
                    protocol,
                    peer,
                    certificate,
                    path,
                })
            }
            EngineMessage::Stop(reply) => {
                self.stopping = Some(reply);
                Some(RackInput::Stopping)
            }
        }
    }

    /// The store refused a batch, so none of its changes took effect: the rack is
    /// reloaded from flash. Then each order is retried in a batch of its own, so that
    /// only those orders fail that the store refuses. Datagrams and replies of agents
    /// are lost as in a restart, and repeated as after one. If one of these caused the
    /// refusal, it would do so again and again: therefore the node's job fails.
    fn retry_separately(&mut self, refused: RefusedBatch) -> Result<(), EngineError> {
        error!(service = "store", "store: {}", refused.error);
        self.rebuild_rack()?;
        let mut too_large = match refused.error {
            CommitError::RecordTooLarge { node, .. } => node,
            _ => None,
        };
        for message in refused.messages {
            // Agents repeat their heartbeats, so those need no retry.
            let agents =
                matches!(&message, EngineMessage::Order(pending) if pending.order.word().is_none());
            if let Some(refused) = self.attempt(vec![message])? {
                too_large = too_large.filter(|_| agents);
                self.rebuild_rack()?;
                refuse(refused);
            }
        }
        if let Some(node) = too_large {
            let word = EngineMessage::Input(RackInput::RecordTooLarge(node));
            if self.attempt(vec![word])?.is_some() {
                self.rebuild_rack()?;
            }
        }
        Ok(())
    }

    fn rebuild_rack(&mut self) -> Result<(), EngineError> {
        let view = Arc::clone(&self.view.borrow());
        for reply in std::mem::take(&mut self.deferred).into_values() {
            let sentence =
                "The box had to restart its engine; whether this request was executed is unknown.";
            let _ = reply.send(Err(OrderRefusal::new(RefusalKind::Failed, sentence)));
        }
        self.rack = rack(&self.settings, &mut self.store)?;
        self.begin()?;
        // The log files survive the reload; the list of which node has which is not on
        // flash.
        let stored = view.nodes.iter().map(|(node, view)| RackInput::Logs {
            node: *node,
            bundles: view.live.logs.clone(),
            collected: None,
        });
        let stored = stored
            .filter(|it| matches!(it, RackInput::Logs { bundles, .. } if !bundles.is_empty()));
        match self.attempt(stored.map(EngineMessage::Input).collect())? {
            None => Ok(()),
            Some(refused) => Err(EngineError::Store(refused.error)),
        }
    }

    fn emit(&mut self, output: RackOutput) {
        let now = self.clock.now().tick;
        self.telemetry.output(now, &output, &self.view.borrow());
        match output {
            RackOutput::Reply { ticket, result } => {
                if let Some(pending) = self.orders.remove(&ticket) {
                    let _ = pending.reply.send(result);
                } else if let Some(reply) = self.deferred.remove(&ticket) {
                    let _ = reply.send(result);
                }
            }
            RackOutput::File { ticket, grant } => {
                if let Some(wanted) = self.files.remove(&ticket) {
                    let _ = wanted.reply.send(grant);
                }
            }
            other => (self.output_sink)(other),
        }
    }
}

fn refuse(refused: RefusedBatch) {
    let kind = match refused.error {
        CommitError::Full { .. } => RefusalKind::Unavailable,
        _ => RefusalKind::Invalid,
    };
    let sentence = format!("The store refused the change: {}.", refused.error);
    for message in refused.messages {
        if let EngineMessage::Order(pending) = message {
            pending.refuse(OrderRefusal::new(kind, sentence.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
