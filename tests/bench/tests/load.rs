//! Tests that the clients of the benchmarks of TFTP and DHCP work: few exchanges with an
//! unoptimised program, and no assertion on time. The peers need root and are left out.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use trivet_tests_bench::dhcp_load::{self, DhcpLoad};
use trivet_tests_bench::peers::BenchDirectory;
use trivet_tests_bench::server::{self, BenchBuildProfile, BenchServer};
use trivet_tests_bench::tftp_load::{self, TftpLoad};

const BOX: Ipv4Addr = Ipv4Addr::new(127, 78, 0, 1);
const RELAY: Ipv4Addr = Ipv4Addr::new(127, 78, 0, 2);

fn free(ip: Ipv4Addr) -> io::Result<SocketAddrV4> {
    let port = UdpSocket::bind((ip, 0))?.local_addr()?.port();
    Ok(SocketAddrV4::new(ip, port))
}

#[test]
fn files_are_complete_and_wrong_bytes_are_detected() {
    let scratch = BenchDirectory::new("load-tftp").unwrap();
    let (root, data) = (scratch.path().join("root"), scratch.path().join("box"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&data).unwrap();
    let mut want: Vec<u8> = (0..50_000_u32).map(|at| (at / 3) as u8).collect();
    fs::write(root.join("file"), &want).unwrap();
    let address = free(Ipv4Addr::LOCALHOST).unwrap();
    let root = root.display();
    let sections = format!("[tftp]\nlisten = \"{address}\"\n[boot]\nfiles = \"{root}\"\n");
    let program = server::build(BenchBuildProfile::Dev).unwrap();
    let _server = BenchServer::with(&program, &data, &sections).unwrap();
    for window_blocks in [1, 16] {
        let shape = TftpLoad {
            block_bytes: 1000,
            window_blocks,
            transfers: 5,
            at_once: 3,
        };
        tftp_load::fetch(address.into(), "file", &want, shape).unwrap();
        want[30_000] ^= 1;
        tftp_load::fetch(address.into(), "file", &want, shape).unwrap_err();
        want[30_000] ^= 1;
    }
}

#[test]
fn every_machine_gets_an_address_of_its_own() {
    let scratch = BenchDirectory::new("load-dhcp").unwrap();
    let data = scratch.path().join("box");
    fs::create_dir(&data).unwrap();
    let (server, relay) = (free(BOX).unwrap(), free(RELAY).unwrap());
    let sections = format!(
        "[[dhcp]]\nlisten = \"{server}\"\nmode = \"server\"\nnetwork = \"127.78.0.0/16\"\n\
         first = \"127.78.1.1\"\nlast = \"127.78.1.250\"\nserver = \"{BOX}\"\n"
    );
    let program = server::build(BenchBuildProfile::Dev).unwrap();
    let _server = BenchServer::with(&program, &data, &sections).unwrap();
    let load = DhcpLoad {
        server,
        relay,
        exchanges: 40,
        at_once: 7,
    };
    let outcome = dhcp_load::run_exchanges(load).unwrap();
    assert_eq!(outcome.refused, 0);
}
