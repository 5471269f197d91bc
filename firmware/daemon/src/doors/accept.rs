//! Connections that are let in: so many at once, and of one peer only its share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::places::Peers;

/// How long clients may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// To send the head of a request, and between two requests.
    pub(crate) head: Duration,
    /// For the TLS handshake.
    pub(crate) handshake: Duration,
    /// Between reading two pieces of an answer.
    pub(crate) stall: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            stall: Duration::from_mins(1),
        }
    }
}

/// How many connections there may be, shared by all services.
#[derive(Clone)]
pub(crate) struct Places {
    pub(super) all: Arc<Semaphore>,
    peers: Arc<Peers>,
    pub(super) service_max: usize,
}

impl Places {
    /// So many in all. No service gets the last quarter, so that a crowd at one
    /// door leaves room at the others, and no peer gets more than its share.
    pub(crate) fn new(connections_max: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(connections_max)),
            peers: Peers::sharing(connections_max),
            service_max: (connections_max - connections_max / 4).max(1),
        }
    }
}

/// Lets clients of one service in for ever; `connection` takes each to its end.
pub(crate) fn accept<F>(
    doors: &mut JoinSet<()>,
    listeners: Vec<TcpListener>,
    places: &Places,
    connection: impl Fn(TcpStream, SocketAddr) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let of_service = Arc::new(Semaphore::new(places.service_max));
    for listener in listeners {
        let (places, of_service) = (places.clone(), Arc::clone(&of_service));
        doors.spawn(run(listener, places, of_service, connection.clone()));
    }
}

async fn run<F>(
    listener: TcpListener,
    places: Places,
    of_service: Arc<Semaphore>,
    connection: impl Fn(TcpStream, SocketAddr) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let Ok(in_service) = Arc::clone(&of_service).acquire_owned().await else {
            return;
        };
        let Ok(in_all) = Arc::clone(&places.all).acquire_owned().await else {
            return;
        };
        let Ok((stream, peer)) = listener.accept().await else {
            // Out of descriptors, most likely: let others finish first.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        // Closing at once tells a peer with too many connections soonest.
        let Some(seat) = places.peers.seat(peer.ip()) else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let served = connection(stream, peer);
        tokio::spawn(async move {
            served.await;
            drop((in_service, in_all, seat));
        });
    }
}
