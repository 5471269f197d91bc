//! Datagrams to and from BMCs: one socket for all of them.

use std::sync::Arc;

use tokio::net::UdpSocket;
use trivet_rack::RackInput;
use trivet_rack::bmc::BmcMessage;

use crate::engine::Engine;

/// Longest datagram a BMC may send. IPMI messages are far shorter.
const DATAGRAM_BYTES_MAX: usize = 2048;

/// Prepares the socket, which may also send to broadcast addresses: machines that are off have no
/// other one.
pub(crate) fn shared_socket(socket: UdpSocket) -> std::io::Result<Arc<UdpSocket>> {
    socket.set_broadcast(true)?;
    Ok(Arc::new(socket))
}

/// Receives datagrams until aborted.
pub(crate) async fn run(socket: Arc<UdpSocket>, engine: Engine) {
    let mut buffer = [0; DATAGRAM_BYTES_MAX];
    loop {
        // An error here is the "port unreachable" of one BMC; the session's timer
        // handles that.
        if let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            engine.try_send(RackInput::Bmc(BmcMessage::Datagram {
                from,
                bytes: buffer[..length].to_vec(),
            }));
        }
    }
}
