//! The thread that owns the rack and the store.
//!
//! Doors send it inputs through a bounded queue; it takes what has come as one
//! batch, makes the batch's changes durable with one flush, and only then lets
//! the outputs out and shows the new snapshot. Inputs that come meanwhile wait
//! for the next batch, so the busier the box, the more a flush carries.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use trivet_board_linux::FileFlash;
use trivet_model::{Done, Order, Refusal, RefusalKind, View};
use trivet_rack::{Grant, Input, Outbox, Output, Rack, Settings};
use trivet_store::{CommitError, Store};

use crate::clock::{Clock, System};

/// The most inputs that wait for the rack. A door that finds the queue full
/// answers "later", or drops the datagram as a full wire would.
const INPUTS_WAITING_MAX: usize = 4096;

/// The most inputs of one batch, so that no answer waits long for its flush.
const BATCH_INPUTS_MAX: usize = 256;

/// How long the engine rests when nothing is due.
const REST_MS_MAX: u64 = 1000;

enum Message {
    Input(Input),
    Order(Order, oneshot::Sender<Result<Done, Refusal>>),
    File(
        trivet_rack::Door,
        std::net::IpAddr,
        String,
        oneshot::Sender<Option<Grant>>,
    ),
    Stop(oneshot::Sender<()>),
}

/// A handle to the engine, for doors.
#[derive(Clone)]
pub(crate) struct Engine {
    queue: SyncSender<Message>,
    view: watch::Receiver<Arc<View>>,
}

impl Engine {
    /// The newest snapshot.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.borrow())
    }

    /// Wakes when there is a newer snapshot.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    /// Gives the rack something; false when its queue is full.
    pub(crate) fn tell(&self, input: Input) -> bool {
        self.offer(input).is_ok()
    }

    /// Gives the rack something, or gives it back when the queue is full.
    pub(crate) fn offer(&self, input: Input) -> Result<(), Input> {
        match self.queue.try_send(Message::Input(input)) {
            Err(TrySendError::Full(Message::Input(input))) => Err(input),
            _ => Ok(()),
        }
    }

    /// Carries out an order; the answer comes when it is durable.
    pub(crate) async fn order(&self, order: Order) -> Result<Done, Refusal> {
        let later = |sentence| Refusal::new(RefusalKind::Unavailable, sentence);
        let (reply, answer) = oneshot::channel();
        match self.queue.try_send(Message::Order(order, reply)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                return Err(later("The box has too much to do; try again in a moment."));
            }
            Err(TrySendError::Disconnected(_)) => return Err(later("The box is stopping.")),
        }
        answer
            .await
            .unwrap_or_else(|_| Err(later("The box is stopping.")))
    }

    /// Asks what to send for a path.
    pub(crate) async fn file(
        &self,
        door: trivet_rack::Door,
        peer: std::net::IpAddr,
        path: String,
    ) -> Option<Grant> {
        let (reply, answer) = oneshot::channel();
        self.queue
            .try_send(Message::File(door, peer, path, reply))
            .ok()?;
        answer.await.ok().flatten()
    }

    /// Ends the engine after the present batch.
    pub(crate) async fn stop(&self) {
        let (reply, answer) = oneshot::channel();
        if self.queue.try_send(Message::Stop(reply)).is_ok() {
            let _ = answer.await;
        }
    }
}

/// Carries outputs that are not answers to a door's question.
pub(crate) type Carrier = Box<dyn FnMut(Output) + Send>;

/// Why the engine ended by itself.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error(
        "the store failed; nothing was acknowledged after that, and a restart recovers all that was"
    )]
    Store(#[source] CommitError),
    #[error("the records on flash cannot be read")]
    Records(#[source] trivet_store::RecordError),
}

struct Thread {
    clock: Clock,
    settings: Settings,
    rack: Rack,
    store: Store<FileFlash>,
    inputs: Receiver<Message>,
    carrier: Carrier,
    view: watch::Sender<Arc<View>>,
    tickets: u64,
    orders: BTreeMap<u64, oneshot::Sender<Result<Done, Refusal>>>,
    files: BTreeMap<u64, oneshot::Sender<Option<Grant>>>,
    stopping: Option<oneshot::Sender<()>>,
}

/// Starts the engine. The second value tells why it ended, if not by order.
pub(crate) fn start(
    clock: Clock,
    settings: Settings,
    store: Store<FileFlash>,
    carrier: Carrier,
) -> Result<(Engine, oneshot::Receiver<EngineError>), EngineError> {
    let (queue, inputs) = sync_channel(INPUTS_WAITING_MAX);
    let rack = rack(&settings, &store)?;
    let (view, watch) = watch::channel(Arc::new(rack.view()));
    let (ended, why) = oneshot::channel();
    let mut thread = Thread {
        clock,
        settings,
        rack,
        store,
        inputs,
        carrier,
        view,
        tickets: 0,
        orders: BTreeMap::new(),
        files: BTreeMap::new(),
        stopping: None,
    };
    std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || {
            let outcome = thread.run();
            if let Some(stopped) = thread.stopping.take() {
                let _ = stopped.send(());
            }
            if let Err(error) = outcome {
                let _ = ended.send(error);
            }
        })
        .expect("a process that just started can start a thread");
    Ok((Engine { queue, view: watch }, why))
}

fn rack(settings: &Settings, store: &Store<FileFlash>) -> Result<Rack, EngineError> {
    let records = store.records().map_err(EngineError::Records)?;
    Ok(Rack::new(
        settings.clone(),
        Box::new(System::new()),
        records,
    ))
}

impl Thread {
    fn run(&mut self) -> Result<(), EngineError> {
        self.batch(vec![Message::Input(Input::Started)])?;
        while self.stopping.is_none() {
            let batch = self.next_batch();
            self.batch(batch)?;
        }
        Ok(())
    }

    /// All that has come, or a tick when something is due.
    fn next_batch(&mut self) -> Vec<Message> {
        let rest_ms = match self.rack.deadline() {
            Some(deadline) => deadline.since_ms(self.clock.now().tick).min(REST_MS_MAX),
            None => REST_MS_MAX,
        };
        let mut batch = Vec::new();
        match self.inputs.recv_timeout(Duration::from_millis(rest_ms)) {
            Ok(message) => batch.push(message),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
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
            batch.push(Message::Input(Input::Tick));
        }
        batch
    }

    fn batch(&mut self, batch: Vec<Message>) -> Result<(), EngineError> {
        if batch.is_empty() {
            return Ok(());
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
                    .for_each(|output| self.let_out(output));
            }
            Err(error @ (CommitError::Flash(_) | CommitError::Poisoned)) => {
                return Err(EngineError::Store(error));
            }
            Err(error) => self.take_back(&error)?,
        }
        Ok(())
    }

    fn input(&mut self, message: Message) -> Option<Input> {
        self.tickets += 1;
        let ticket = self.tickets;
        match message {
            Message::Input(input) => Some(input),
            Message::Order(order, reply) => {
                self.orders.insert(ticket, reply);
                Some(Input::Order { ticket, order })
            }
            Message::File(door, peer, path, reply) => {
                self.files.insert(ticket, reply);
                Some(Input::FileAsked {
                    ticket,
                    door,
                    peer,
                    path,
                })
            }
            Message::Stop(reply) => {
                self.stopping = Some(reply);
                None
            }
        }
    }

    /// The store refused the batch, so nothing of it happened: the rack goes
    /// back to what flash holds, and whoever asked is told.
    fn take_back(&mut self, error: &CommitError) -> Result<(), EngineError> {
        eprintln!("trivet: store: {error}");
        for (_, reply) in std::mem::take(&mut self.orders) {
            let sentence = format!("The store refused the change: {error}");
            let _ = reply.send(Err(Refusal::new(RefusalKind::Unavailable, sentence)));
        }
        self.files.clear();
        self.rack = rack(&self.settings, &self.store)?;
        let mut outbox = Outbox::default();
        self.rack
            .handle(self.clock.now(), Input::Started, &mut outbox);
        self.view.send_replace(Arc::new(self.rack.view()));
        outbox
            .outputs
            .into_iter()
            .for_each(|output| self.let_out(output));
        Ok(())
    }

    fn let_out(&mut self, output: Output) {
        match output {
            Output::Reply { ticket, result } => {
                if let Some(reply) = self.orders.remove(&ticket) {
                    let _ = reply.send(result);
                }
            }
            Output::File { ticket, grant } => {
                if let Some(reply) = self.files.remove(&ticket) {
                    let _ = reply.send(grant);
                }
            }
            other => (self.carrier)(other),
        }
    }
}
