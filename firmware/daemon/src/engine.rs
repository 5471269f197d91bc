//! The thread that owns the rack and the store.
//!
//! Doors send it inputs through a bounded queue; it takes what has come as one
//! batch, makes the batch's changes durable with one flush, and only then lets
//! the outputs out and shows the new snapshot. Inputs that come meanwhile wait
//! for the next batch, so the busier the box, the more a flush carries.

mod datagram_quota;
mod size_check;
mod trim;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use trivet_board_linux::FileFlash;
use trivet_model::{
    ApiCaller, NoteKind, OrderOutcome, OrderRefusal, RackOrder, RackView, RefusalKind,
};
use trivet_rack::{FileGrant, Outbox, Rack, RackInput, RackOutput, Settings};
use trivet_store::{CommitError, Store};

use crate::clock::{DaemonClock, DaemonEntropy};
use crate::log;
use datagram_quota::{DatagramPermit, DatagramQuotas};
use trim::MemoryTrim;

/// The most inputs that wait for the rack. A door that finds the queue full
/// answers "later", or drops the datagram as a full wire would.
const INPUTS_WAITING_MAX: usize = 4096;

/// The most inputs of one batch, so that no answer waits long for its flush.
const BATCH_INPUTS_MAX: usize = 256;

/// How long the engine rests when nothing is due.
const IDLE_MS_MAX: u64 = 1000;

/// Between two tries to order a stop while the queue is full.
const STOP_GAP: Duration = Duration::from_millis(5);

enum EngineMessage {
    Input(RackInput),
    /// A datagram that anybody can send, and its place among those.
    Datagram(RackInput, DatagramPermit),
    Order(PendingOrder),
    File(PendingFileRequest),
    Stop(oneshot::Sender<()>),
}

/// A handle to the engine, for doors.
#[derive(Clone)]
pub(crate) struct Engine {
    queue: SyncSender<EngineMessage>,
    view: watch::Receiver<Arc<RackView>>,
    datagrams: DatagramQuotas,
}

impl Engine {
    /// The newest snapshot.
    pub(crate) fn view(&self) -> Arc<RackView> {
        Arc::clone(&self.view.borrow())
    }

    /// Wakes when there is a newer snapshot.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<RackView>> {
        self.view.clone()
    }

    /// Gives the rack something; false when its queue is full.
    pub(crate) fn try_send(&self, input: RackInput) -> bool {
        self.offer(input).is_ok()
    }

    /// Gives the rack something, or gives it back when the queue is full.
    #[expect(clippy::result_large_err, reason = "it comes back to be offered again")]
    pub(crate) fn offer(&self, input: RackInput) -> Result<(), RackInput> {
        let message = match &input {
            RackInput::Dhcp { bytes, .. } => {
                let known = datagram_quota::sender(bytes)
                    .is_some_and(|mac| self.view.borrow().macs.contains_key(&mac));
                match self.datagrams.acquire(known) {
                    Some(place) => EngineMessage::Datagram(input, place),
                    None => return Err(input),
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

    /// Carries out an order; the answer comes when it is durable.
    pub(crate) async fn order(
        &self,
        caller: Arc<ApiCaller>,
        order: RackOrder,
    ) -> Result<OrderOutcome, OrderRefusal> {
        let later = |sentence| OrderRefusal::new(RefusalKind::Unavailable, sentence);
        let (reply, answer) = oneshot::channel();
        let asked = PendingOrder {
            caller,
            order,
            reply,
        };
        match self.queue.try_send(EngineMessage::Order(asked)) {
            Ok(()) => {}
            Err(TrySendError::Full(message)) => {
                let refusal = later("The box has too much to do; try again in a moment.");
                if let EngineMessage::Order(asked) = message {
                    log_refusal(&asked.caller, &asked.order, &refusal);
                }
                return Err(refusal);
            }
            Err(TrySendError::Disconnected(_)) => return Err(later("The box is stopping.")),
        }
        answer
            .await
            .unwrap_or_else(|_| Err(later("The box is stopping.")))
    }

    /// Asks what to send for a path; none where there is no such file. An error means that
    /// the engine has too much to do.
    pub(crate) async fn file(
        &self,
        door: trivet_rack::FileServerProtocol,
        peer: std::net::IpAddr,
        path: String,
    ) -> Result<Option<FileGrant>, EngineBusy> {
        let (reply, answer) = oneshot::channel();
        let wanted = PendingFileRequest {
            listener: door,
            peer,
            path,
            reply,
        };
        self.queue
            .try_send(EngineMessage::File(wanted))
            .map_err(|_| EngineBusy)?;
        answer.await.map_err(|_| EngineBusy)
    }

    /// Ends the engine after the present batch. A full queue only delays that.
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

/// Carries outputs that are not answers to a door's question.
pub(crate) type OutputSink = Box<dyn FnMut(RackOutput) + Send>;

/// Why the engine ended by itself.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error(
        "the store failed; nothing was acknowledged after that, and a restart recovers all that was"
    )]
    Store(#[source] CommitError),
    #[error("the records on flash cannot be read")]
    Records(#[source] trivet_store::RecordError),
    #[error(
        "the engine broke, which is a defect of this program; a restart recovers all that was \
         acknowledged"
    )]
    Panicked,
}

/// An order that waits for its answer. The order is kept in case its batch has
/// to be taken back.
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

/// The rack notes who asked for what; what the rack did not see, or had to take
/// back, goes to the log from here.
pub(crate) fn log_refusal(caller: &Arc<ApiCaller>, order: &RackOrder, refusal: &OrderRefusal) {
    if let Some(word) = order.word() {
        let kind = NoteKind::OrderReceived {
            caller: Arc::clone(caller),
            order: word,
            refused: Some(refusal.sentence.clone()),
        };
        log::line(&format!("trivet: warning: {kind}"));
    }
}

/// Who asks for a file, where, and waits for the answer.
struct PendingFileRequest {
    listener: trivet_rack::FileServerProtocol,
    peer: std::net::IpAddr,
    path: String,
    reply: oneshot::Sender<Option<FileGrant>>,
}

/// What the store refused, and those who wait for it.
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
    /// Orders of earlier batches whose answer the rack owes still. What they asked
    /// for may have been said to a BMC, so they are never given again.
    deferred: BTreeMap<u64, OrderReplySender>,
    files: BTreeMap<u64, PendingFileRequest>,
    trim: MemoryTrim,
    stopping: Option<oneshot::Sender<()>>,
}

/// Starts the engine. The second value tells why it ended, if not by order.
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
    Ok(Rack::new(
        settings.clone(),
        Box::new(DaemonEntropy::new()),
        records,
    ))
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
            stopping: None,
        };
        let engine = Engine {
            queue,
            view: watch,
            datagrams: DatagramQuotas::default(),
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

    /// Every node re-derives its orders from its record.
    fn begin(&mut self) -> Result<(), EngineError> {
        match self.attempt(vec![EngineMessage::Input(RackInput::Started)])? {
            None => Ok(()),
            // No room even for what follows from a start: nothing may leave then.
            Some(refused) => Err(EngineError::Store(refused.error)),
        }
    }

    /// All that has come, or a tick when something is due.
    fn next_batch(&mut self) -> Vec<EngineMessage> {
        let rest_ms = match self.rack.deadline() {
            Some(deadline) => deadline.since_ms(self.clock.now().tick).min(IDLE_MS_MAX),
            None => IDLE_MS_MAX,
        };
        let mut batch = Vec::new();
        match self.inputs.recv_timeout(Duration::from_millis(rest_ms)) {
            Ok(message) => batch.push(message),
            Err(RecvTimeoutError::Timeout) => {}
            // Nobody is left who could tell or ask anything.
            Err(RecvTimeoutError::Disconnected) => self.stopping = Some(oneshot::channel().0),
        }
        while batch.len() < BATCH_INPUTS_MAX
            && let Ok(message) = self.inputs.try_recv()
        {
            batch.push(message);
        }
        let due = self
            .rack
            .deadline()
            .is_some_and(|at| at <= self.clock.now().tick);
        if due {
            batch.push(EngineMessage::Input(RackInput::Tick));
        }
        batch
    }

    /// Carries out a batch. If the store refuses it, nothing has left the box, and
    /// the rack is ahead of flash: the caller must take the batch back.
    fn attempt(&mut self, batch: Vec<EngineMessage>) -> Result<Option<RefusedBatch>, EngineError> {
        if batch.is_empty() {
            return Ok(None);
        }
        let mut outbox = Outbox::default();
        for message in batch {
            let input = self.input(message);
            if let Some(input) = input {
                self.rack.handle(self.clock.now(), input, &mut outbox);
            }
        }
        self.rack.take_changes(&mut outbox);
        match trivet_rack::make_durable(&mut self.store, &outbox.changes) {
            Ok(()) => {
                self.view.send_replace(Arc::new(self.rack.view()));
                outbox
                    .outputs
                    .into_iter()
                    .for_each(|output| self.emit(output));
                let owed = std::mem::take(&mut self.orders).into_iter();
                self.deferred
                    .extend(owed.map(|(ticket, asked)| (ticket, asked.reply)));
                Ok(None)
            }
            Err(error @ (CommitError::Flash(_) | CommitError::Poisoned)) => {
                Err(EngineError::Store(error))
            }
            Err(error) => {
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
            EngineMessage::Input(input) => Some(input),
            EngineMessage::Datagram(input, place) => {
                drop(place);
                Some(input)
            }
            EngineMessage::Order(asked) => {
                let most = self.store.layout().record_bytes_max();
                if let Some(refusal) = size_check::too_large(&asked.order, most) {
                    asked.refuse(refusal);
                    return None;
                }
                let (caller, order) = (Arc::clone(&asked.caller), asked.order.clone());
                self.orders.insert(ticket, asked);
                Some(RackInput::Order {
                    ticket,
                    caller,
                    order,
                })
            }
            EngineMessage::File(wanted) => {
                let (door, peer, path) = (wanted.listener, wanted.peer, wanted.path.clone());
                self.files.insert(ticket, wanted);
                Some(RackInput::FileRequested {
                    ticket,
                    protocol: door,
                    peer,
                    path,
                })
            }
            EngineMessage::Stop(reply) => {
                self.stopping = Some(reply);
                None
            }
        }
    }

    /// The store refused a batch, so nothing of it happened: the rack goes back to
    /// what flash holds. Then each who asked gets a batch of his own, so that only
    /// those are refused whom the store refuses. Datagrams and answers of agents
    /// are lost as in a restart, and asked for again as after one. Where one of these was
    /// to blame that must not go on for ever: the node's job ends.
    fn retry_separately(&mut self, refused: RefusedBatch) -> Result<(), EngineError> {
        log::line(&format!("trivet: store: {}", refused.error));
        self.rebuild_rack()?;
        let mut overgrown = match refused.error {
            CommitError::RecordTooLarge { node, .. } => node,
            _ => None,
        };
        for message in refused.messages {
            // What an agent says of its own accord it says again and again.
            let agents =
                matches!(&message, EngineMessage::Order(asked) if asked.order.word().is_none());
            if let Some(refused) = self.attempt(vec![message])? {
                overgrown = overgrown.filter(|_| agents);
                self.rebuild_rack()?;
                refuse(refused);
            }
        }
        if let Some(node) = overgrown {
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
                "The box had to restart its engine; whether this was carried out is not known.";
            let _ = reply.send(Err(OrderRefusal::new(RefusalKind::Failed, sentence)));
        }
        self.rack = rack(&self.settings, &mut self.store)?;
        self.begin()?;
        // Files outlive this; who has which is not on flash.
        let kept = view.nodes.iter().map(|(node, view)| RackInput::Logs {
            node: *node,
            bundles: view.live.logs.clone(),
            collected: None,
        });
        let kept =
            kept.filter(|it| matches!(it, RackInput::Logs { bundles, .. } if !bundles.is_empty()));
        match self.attempt(kept.map(EngineMessage::Input).collect())? {
            None => Ok(()),
            Some(refused) => Err(EngineError::Store(refused.error)),
        }
    }

    fn emit(&mut self, output: RackOutput) {
        match output {
            RackOutput::Reply { ticket, result } => {
                if let Some(asked) = self.orders.remove(&ticket) {
                    let _ = asked.reply.send(result);
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
        if let EngineMessage::Order(asked) = message {
            asked.refuse(OrderRefusal::new(kind, sentence.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
