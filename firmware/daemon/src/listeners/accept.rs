//! Accepts connections within limits: a total, a share for each peer, and some that are
//! reserved for each service.
//!
//! When a service is full, the connection whose request has been incomplete for longest
//! is closed for a new one: a client that opens connections and sends half a request
//! cannot block others. While a service is nearly full, new clients get shorter
//! timeouts.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::warn;

use super::peer_limit::{PeerLimit, PeerPermit};

/// Each service reserves one connection in this many, in addition to the shared ones.
/// Ours.
const RESERVED_SHARE: usize = 16;

/// How often to search for incomplete requests while a connection waits for a permit.
/// Ours.
const CLOSE_GAP: Duration = Duration::from_millis(100);

/// The fewest connections that a service reserves. Ours.
const RESERVED_MIN: usize = 4;

/// How many connections of each service a peer may have after its share of all is in use: a
/// machine with many downloads, or a site behind one address, can still reach the API. Ours.
const PEER_SERVICE_MIN: usize = 4;

/// After a log line about a peer with too many connections, there is no other for this long.
const REFUSAL_LOG_GAP: Duration = Duration::from_mins(1);

/// Timeouts for clients.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ClientTimeouts {
    /// To send the head of a request, and between two requests.
    pub(crate) head: Duration,
    /// For the TLS handshake.
    pub(crate) handshake: Duration,
    /// Between reading two pieces of a response.
    pub(crate) stall: Duration,
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            stall: Duration::from_mins(1),
        }
    }
}

impl ClientTimeouts {
    /// A quarter of each timeout, for new clients of a service that is nearly full.
    fn under_pressure(self) -> Self {
        Self {
            head: self.head / 4,
            handshake: self.handshake / 4,
            ..self
        }
    }
}

/// The limit of open connections, shared by all services.
#[derive(Clone)]
pub(crate) struct ConnectionLimit {
    pub(super) shared: Arc<Semaphore>,
    peers: Arc<PeerLimit>,
    pub(super) service_max: usize,
    pub(super) reserved: usize,
}

impl ConnectionLimit {
    /// `connections_max` are shared by all services, of which no service gets the last
    /// quarter; each service has some reserved ones in addition. No peer gets more than
    /// its share of all.
    pub(crate) fn new(connections_max: usize) -> Self {
        Self {
            shared: Arc::new(Semaphore::new(connections_max)),
            peers: PeerLimit::new(connections_max),
            service_max: (connections_max - connections_max / 4).max(1),
            reserved: (connections_max / RESERVED_SHARE).max(RESERVED_MIN),
        }
    }

    /// How many of the shared connections are not in use.
    pub(crate) fn available(&self) -> usize {
        self.shared.available_permits()
    }
}

/// How many connections the open-file limit of this process allows: each may need one
/// more file to send, and the rest of the box needs some. Also returns a sentence if
/// they are fewer than the settings say.
pub(crate) fn connections_max(wanted: usize, open_files: u64) -> (usize, Option<String>) {
    let files = usize::try_from(open_files).unwrap_or(usize::MAX);
    let most = (files.saturating_sub(OTHER_FILES) / 3).max(CONNECTIONS_MIN);
    if wanted <= most {
        return (wanted, None);
    }
    let sentence = format!(
        "limits.connections_max: is lowered from {wanted} to {most}, because this process may \
         have {open_files} files open; raise that limit (LimitNOFILE= of systemd, ulimit -n)"
    );
    (most, Some(sentence))
}

/// Files that the box needs in addition to connections: store, cache, sockets, logs.
/// Ours.
const OTHER_FILES: usize = 128;

/// The fewest connections that the box works with. Ours.
const CONNECTIONS_MIN: usize = 16;

/// While a peer has no more connections than this, none that is being served is closed.
/// Ours: clients that fetch in parallel have about six.
const PEER_SERVED_MAX: usize = 16;

/// No request has been received, or only a part of one.
const WAITING: u8 = 0;
/// A request is complete, and its response is prepared or sent.
const SERVING: u8 = 1;
/// The body of the response has ended; its last bytes may be in a buffer of the
/// connection.
const FLUSHING: u8 = 2;

/// Whether the request of a connection is complete and being served.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestProgress(Arc<AtomicU8>);

impl RequestProgress {
    /// Marks the request as complete, or the connection as waiting for the next one.
    pub(crate) fn serving(&self, serving: bool) {
        let state = if serving { SERVING } else { WAITING };
        self.0.store(state, Ordering::Relaxed);
    }

    /// The connection has all bytes of the response.
    pub(super) fn body_ended(&self) {
        self.advance(SERVING, FLUSHING);
    }

    /// All bytes that the connection had are written.
    pub(super) fn flushed(&self) {
        self.advance(FLUSHING, WAITING);
    }

    fn advance(&self, from: u8, to: u8) {
        let _ = self
            .0
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn is_serving(&self) -> bool {
        self.0.load(Ordering::Relaxed) != WAITING
    }
}

/// The open connections of one service, oldest first.
struct ServiceConnections {
    limit: ConnectionLimit,
    /// How many of the shared connections it may have.
    shared: Arc<Semaphore>,
    /// Connections that no other service can use.
    reserved: Arc<Semaphore>,
    /// Connections of this service for peers whose share of all is in use.
    peer_reserve: Arc<PeerLimit>,
    /// When refused connections were logged last, and how many were refused since.
    refused: Mutex<(Option<Instant>, u64)>,
    open: Mutex<OpenConnections>,
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    open: BTreeMap<u64, OpenConnection>,
}

impl OpenConnections {
    /// The oldest connection of the peer that has the most, if it has more than
    /// [`PEER_SERVED_MAX`].
    fn oldest_of_busiest(&self) -> Option<&OpenConnection> {
        let mut counts = BTreeMap::<IpAddr, usize>::new();
        for one in self.open.values() {
            *counts.entry(one.peer).or_default() += 1;
        }
        let (peer, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let is_oldest = |one: &&OpenConnection| count > PEER_SERVED_MAX && one.peer == peer;
        self.open.values().find(is_oldest)
    }
}

struct OpenConnection {
    peer: IpAddr,
    progress: RequestProgress,
    close: Arc<Notify>,
}

/// The right to have one connection open: one of the shared connections, or a reserved
/// one of the service.
struct ConnectionPermit {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl From<Vec<OwnedSemaphorePermit>> for ConnectionPermit {
    fn from(permits: Vec<OwnedSemaphorePermit>) -> Self {
        Self { _permits: permits }
    }
}

/// A connection in the list of its service; dropping it removes it from the list.
struct ListedConnection {
    service: Arc<ServiceConnections>,
    number: u64,
}

impl Drop for ListedConnection {
    fn drop(&mut self) {
        self.service.connections().open.remove(&self.number);
    }
}

impl ServiceConnections {
    fn new(places: &ConnectionLimit) -> Arc<Self> {
        Arc::new(Self {
            limit: places.clone(),
            shared: Arc::new(Semaphore::new(places.service_max)),
            reserved: Arc::new(Semaphore::new(places.reserved)),
            peer_reserve: PeerLimit::of_each(PEER_SERVICE_MIN),
            refused: Mutex::default(),
            open: Mutex::default(),
        })
    }

    fn connections(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit for one more connection of this peer. Logs if it has too many.
    fn peer_permit(&self, peer: SocketAddr, listener: &TcpListener) -> Option<PeerPermit> {
        let shared = self.limit.peers.permit(peer.ip());
        let permit = shared.or_else(|| self.peer_reserve.permit(peer.ip()));
        if permit.is_none()
            && let Some(count) = self.refusals_to_log(Instant::now())
        {
            let most = self.limit.peers.each_max();
            let address = listener
                .local_addr()
                .map_or(String::new(), |at| at.to_string());
            let peer = peer.ip().to_canonical();
            warn!(
                %peer, %address, count,
                "a connection of {peer} to {address} is closed: it has {most} connections open, \
                 the most of one address ({count} closed since the last line); limits.\
                 connections_max is four times as many"
            );
        }
        permit
    }

    /// How many connections were refused since the last line, if a line is due.
    fn refusals_to_log(&self, now: Instant) -> Option<u64> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let (logged_at, count) = &mut *refused;
        *count += 1;
        if logged_at.is_some_and(|at| now.duration_since(at) < REFUSAL_LOG_GAP) {
            return None;
        }
        *logged_at = Some(now);
        Some(core::mem::take(count))
    }

    fn try_permit(&self) -> Option<ConnectionPermit> {
        let of_service = Arc::clone(&self.shared).try_acquire_owned();
        let of_all = Arc::clone(&self.limit.shared).try_acquire_owned();
        if let (Ok(of_service), Ok(of_all)) = (of_service, of_all) {
            return Some(vec![of_service, of_all].into());
        }
        let own = Arc::clone(&self.reserved).try_acquire_owned().ok()?;
        Some(vec![own].into())
    }

    /// A permit for one more connection; closes another if necessary. None when the box
    /// stops.
    async fn acquire_permit(&self) -> Option<ConnectionPermit> {
        if let Some(place) = self.try_permit() {
            return Some(place);
        }
        let shared = async {
            let of_service = Arc::clone(&self.shared).acquire_owned().await.ok()?;
            let of_all = Arc::clone(&self.limit.shared).acquire_owned().await.ok()?;
            Some(ConnectionPermit::from(vec![of_service, of_all]))
        };
        let own = async {
            let own = Arc::clone(&self.reserved).acquire_owned().await.ok()?;
            Some(ConnectionPermit::from(vec![own]))
        };
        // Connections that were all being served a moment ago may be idle by now.
        let closing = async {
            loop {
                self.close_one();
                tokio::time::sleep(CLOSE_GAP).await;
            }
        };
        tokio::select! {
            place = shared => place,
            place = own => place,
            () = closing => None,
        }
    }

    /// Closes the oldest connection without a complete request. If all are being
    /// served, a few peers that read slowly must not block all others: the oldest
    /// connection of the peer with the most connections is closed.
    fn close_one(&self) {
        let connections = self.connections();
        let mut open = connections.open.values();
        let unfinished = open.find(|one| !one.progress.is_serving());
        if let Some(one) = unfinished.or_else(|| connections.oldest_of_busiest()) {
            one.close.notify_one();
        }
    }

    fn list(
        self: &Arc<Self>,
        peer: IpAddr,
        progress: &RequestProgress,
        close: &Arc<Notify>,
    ) -> ListedConnection {
        let mut connections = self.connections();
        let number = connections.next;
        connections.next += 1;
        let open = OpenConnection {
            peer: peer.to_canonical(),
            progress: progress.clone(),
            close: Arc::clone(close),
        };
        connections.open.insert(number, open);
        drop(connections);
        let service = Arc::clone(self);
        ListedConnection { service, number }
    }

    /// Whether three quarters of its connections are in use.
    fn is_nearly_full(&self) -> bool {
        let most = self.limit.service_max + self.limit.reserved;
        self.connections().open.len() * 4 >= most * 3
    }
}

/// Accepts clients of one service until aborted; `connection` serves each to its end.
pub(crate) fn accept<C, F>(
    tasks: &mut JoinSet<()>,
    listeners: Vec<TcpListener>,
    (places, waits): (&ConnectionLimit, ClientTimeouts),
    connection: C,
) where
    C: Fn(TcpStream, SocketAddr, ClientTimeouts, RequestProgress) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let service = ServiceConnections::new(places);
    for listener in listeners {
        tasks.spawn(run(
            listener,
            Arc::clone(&service),
            waits,
            connection.clone(),
        ));
    }
}

async fn run<F>(
    listener: TcpListener,
    service: Arc<ServiceConnections>,
    waits: ClientTimeouts,
    connection: impl Fn(TcpStream, SocketAddr, ClientTimeouts, RequestProgress) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Probably out of file descriptors: let other connections finish first.
            service.close_one();
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        // Closing at once is the fastest signal to a peer with too many connections.
        let Some(permit) = service.peer_permit(peer, &listener) else {
            continue;
        };
        let Some(place) = service.acquire_permit().await else {
            return;
        };
        let _ = stream.set_nodelay(true);
        let waits = if service.is_nearly_full() {
            waits.under_pressure()
        } else {
            waits
        };
        let (progress, close) = (RequestProgress::default(), Arc::new(Notify::new()));
        let listed = service.list(peer.ip(), &progress, &close);
        let served = connection(stream, peer, waits, progress);
        tokio::spawn(async move {
            tokio::select! {
                () = served => {}
                () = close.notified() => {}
            }
            drop((listed, place, permit));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn few_open_files_lower_the_limit_and_say_so() {
        assert_eq!(connections_max(1024, 1 << 20), (1024, None));
        let (lowered, why) = connections_max(1024, 1024);
        assert_eq!(lowered, 298);
        let why = why.unwrap();
        assert!(why.contains("from 1024 to 298"), "{why}");
        assert_eq!(connections_max(1024, 0).0, CONNECTIONS_MIN);
    }

    #[test]
    fn where_all_are_served_the_peer_with_the_most_connections_loses_its_oldest() {
        let service = ServiceConnections::new(&ConnectionLimit::new(64));
        let (many, few) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let mut listed = Vec::new();
        let mut closes = Vec::new();
        for at in 0..40 {
            let peer = if at % 2 == 0 && at < 32 { few } else { many };
            let (progress, close) = (RequestProgress::default(), Arc::new(Notify::new()));
            progress.serving(true);
            listed.push((peer, service.list(peer, &progress, &close)));
            closes.push(close);
        }
        let number = |service: &ServiceConnections| {
            let connections = service.connections();
            let oldest = connections.oldest_of_busiest()?;
            let close = Arc::clone(&oldest.close);
            closes.iter().position(|one| Arc::ptr_eq(one, &close))
        };
        assert_eq!(number(&service), Some(1), "16 of one peer, 24 of the other");
        listed.retain(|(peer, _)| *peer == few);
        assert_eq!(number(&service), None, "16 connections are not many");
    }

    #[tokio::test]
    async fn a_peer_with_its_share_of_all_still_reaches_each_service_and_refusals_are_logged() {
        let places = ConnectionLimit::new(16);
        let (files, api) = (
            ServiceConnections::new(&places),
            ServiceConnections::new(&places),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = SocketAddr::from((PEER, 1000));
        let take_all = |service: &Arc<ServiceConnections>| -> Vec<PeerPermit> {
            std::iter::from_fn(|| service.peer_permit(peer, &listener)).collect()
        };
        let mut held = Vec::new();
        let logged = crate::log::captured(|| {
            held.push(take_all(&files));
            held.push(take_all(&files));
        });
        assert_eq!(held[0].len(), 4 + PEER_SERVICE_MIN);
        assert!(held[1].is_empty());
        assert_eq!(logged.len(), 1, "one line for many refusals: {logged:?}");
        assert!(logged[0].contains("127.0.0.1"), "{logged:?}");
        assert_eq!(take_all(&api).len(), PEER_SERVICE_MIN);
        let later = Instant::now() + REFUSAL_LOG_GAP;
        assert_eq!(files.refusals_to_log(later), Some(2));
        assert_eq!(files.refusals_to_log(later), None);
    }

    #[test]
    fn a_connection_is_served_until_its_answer_is_flushed() {
        let progress = RequestProgress::default();
        progress.flushed();
        assert!(!progress.is_serving(), "half a request");
        progress.serving(true);
        progress.flushed();
        assert!(progress.is_serving(), "flushed amid the body");
        progress.body_ended();
        assert!(progress.is_serving(), "the last bytes are in a buffer");
        progress.flushed();
        assert!(!progress.is_serving());
        progress.body_ended();
        assert!(!progress.is_serving(), "the next request is waited for");
    }

    #[test]
    fn new_clients_of_a_nearly_full_service_have_less_time() {
        let service = ServiceConnections::new(&ConnectionLimit::new(16));
        // 12 shared ones and 4 reserved ones.
        let listed: Vec<ListedConnection> = (0..11)
            .map(|_| service.list(PEER, &RequestProgress::default(), &Arc::new(Notify::new())))
            .collect();
        assert!(!service.is_nearly_full());
        let one_more = service.list(PEER, &RequestProgress::default(), &Arc::new(Notify::new()));
        assert!(service.is_nearly_full());
        drop((listed, one_more));
        assert!(!service.is_nearly_full());
        let waits = ClientTimeouts::default();
        assert!(waits.under_pressure().head < waits.head);
    }

    /// Two services that are full leave the third its reserved connections.
    #[tokio::test]
    async fn nearly_full_services_do_not_starve_another() {
        let places = ConnectionLimit::new(8);
        let (one, two, three) = (
            ServiceConnections::new(&places),
            ServiceConnections::new(&places),
            ServiceConnections::new(&places),
        );
        let take_all = |service: &Arc<ServiceConnections>| -> Vec<ConnectionPermit> {
            std::iter::from_fn(|| service.try_permit()).collect()
        };
        let taken = [take_all(&one), take_all(&two)];
        assert_eq!(taken.each_ref().map(Vec::len), [6 + 4, 2 + 4]);
        assert_eq!(take_all(&three).len(), 4);
    }
}
