//! Datagrams to and from BMCs: one socket for all of them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::net::UdpSocket;
use trivet_board_linux::{UndeliveredDatagram, enable_delivery_errors, receive_delivery_error};
use trivet_model::UndeliveredReason;
use trivet_rack::RackInput;
use trivet_rack::bmc::BmcMessage;

use crate::engine::Engine;

/// Longest datagram a BMC may send. IPMI messages are far shorter.
const DATAGRAM_BYTES_MAX: usize = 2048;

/// Prepares the socket, which may also send to broadcast addresses: machines that are off have no
/// other one. It reports which datagrams do not get to their BMC.
pub(crate) fn shared_socket(socket: UdpSocket) -> io::Result<Arc<UdpSocket>> {
    let socket = socket.into_std()?;
    socket.set_broadcast(true)?;
    enable_delivery_errors(&socket)?;
    Ok(Arc::new(UdpSocket::from_std(socket)?))
}

/// Sends a datagram. One that is not sent is repeated by its session.
pub(crate) fn send(socket: &UdpSocket, to: SocketAddr, bytes: &[u8]) {
    // The error may be the report about another BMC, which is then taken: once more.
    if socket.try_send_to(bytes, to).is_err() {
        let _ = socket.try_send_to(bytes, to);
    }
}

/// Receives datagrams and reports until aborted.
pub(crate) async fn run(socket: Arc<UdpSocket>, engine: Engine) {
    let mut buffer = [0; DATAGRAM_BYTES_MAX];
    loop {
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                // An error here is a report, which is in the error queue as well.
                if let Ok((length, from)) = received {
                    engine.try_send(RackInput::Bmc(BmcMessage::Datagram {
                        from,
                        bytes: buffer[..length].to_vec(),
                    }));
                }
            }
            report = undelivered(&socket) => {
                if let Ok(UndeliveredDatagram { to, error }) = report
                    && let Some(reason) = reason_of(&error)
                {
                    engine.try_send(RackInput::Bmc(BmcMessage::Undelivered { to, reason }));
                }
            }
        }
    }
}

/// The next report about a datagram.
async fn undelivered(socket: &UdpSocket) -> io::Result<UndeliveredDatagram> {
    let take = || receive_delivery_error(socket)?.ok_or_else(|| io::ErrorKind::WouldBlock.into());
    socket.async_io(Interest::ERROR, take).await
}

/// What an error of a connection or a datagram means for a BMC.
pub(crate) fn reason_of(error: &io::Error) -> Option<UndeliveredReason> {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some(UndeliveredReason::PortClosed),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Some(UndeliveredReason::NoHost)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn a_closed_port_is_reported_and_others_still_get_their_datagrams() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = UdpSocket::bind(any).await.expect("a socket");
        let socket = shared_socket(socket).expect("the options are supported");
        let other = UdpSocket::bind(any).await.expect("a socket");
        let closed = {
            let gone = UdpSocket::bind(any).await.expect("a socket");
            gone.local_addr().expect("its address")
        };
        socket.writable().await.expect("it is writable");
        send(&socket, closed, b"one");
        let report = undelivered(&socket).await.expect("a report");
        assert_eq!(report.to, closed);
        assert_eq!(
            reason_of(&report.error),
            Some(UndeliveredReason::PortClosed)
        );
        // The pending error of the socket does not cost the next BMC its datagram.
        send(&socket, other.local_addr().expect("its address"), b"two");
        let mut buffer = [0; 8];
        let (length, _) = other.recv_from(&mut buffer).await.expect("it arrives");
        assert_eq!(&buffer[..length], b"two");
    }
}
