//! nginx on its own core.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use super::{HotImage, free_port};
use crate::process::BenchProcess;

pub(super) struct Nginx {
    process: BenchProcess,
    address: SocketAddr,
}

impl Nginx {
    /// A caching proxy: one request goes to the source, the others wait for it.
    pub(super) fn caching(directory: &Path, source: SocketAddr) -> io::Result<Self> {
        let cache = directory.join("cache");
        let before = format!(
            "proxy_cache_path {} keys_zone=images:1m max_size=8g inactive=1h use_temp_path=off;",
            cache.display()
        );
        let within = format!(
            "location / {{ proxy_pass http://{source}; proxy_cache images; proxy_cache_valid 1h; \
             proxy_cache_lock on; proxy_cache_lock_timeout 10m; proxy_cache_lock_age 10m; \
             proxy_max_temp_file_size 0; }}"
        );
        Self::start(directory, &before, &within, "")
    }

    /// Files of a directory, by sendfile.
    pub(super) fn serving(directory: &Path, root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        let within = format!("root {};", root.display());
        Self::start(directory, "", &within, "")
    }

    /// The same for small ranges. With `tcp_nopush` a response that is a little longer than a
    /// loopback segment waits 40 ms for an acknowledgement.
    pub(super) fn serving_parts(directory: &Path, root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        let within = format!("root {}; tcp_nopush off;", root.display());
        Self::start(directory, "", &within, "")
    }

    /// The same over TLS 1.3, with a certificate and its key.
    pub(super) fn secure(directory: &Path, root: &Path, files: &[PathBuf; 2]) -> io::Result<Self> {
        let root = root.canonicalize()?;
        let [chain, key] = files;
        let within = format!(
            "root {}; ssl_protocols TLSv1.3; ssl_certificate {}; ssl_certificate_key {};",
            root.display(),
            chain.canonicalize()?.display(),
            key.canonicalize()?.display()
        );
        Self::start(directory, "", &within, " ssl")
    }

    fn start(directory: &Path, before: &str, within: &str, kind: &str) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let directory = directory.canonicalize()?;
        let here = directory.display();
        let port = free_port()?;
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {here}/{kind};"))
            .concat();
        let text = format!(
            "user root;\ndaemon off;\nmaster_process off;\nworker_processes 1;\n\
             pid {here}/pid;\nerror_log {here}/log;\nevents {{ worker_connections 1024; }}\n\
             http {{\naccess_log off;\nkeepalive_requests 1000000;\nsendfile on;\n\
             tcp_nopush on;\n{temporary}\n{before}\n\
             server {{ listen 127.0.0.1:{port}{kind}; {within} }}\n}}\n"
        );
        let settings = directory.join("conf");
        fs::write(&settings, text)?;
        let log = directory.join("log");
        let arguments = [
            "-c".as_ref(),
            settings.as_os_str(),
            "-e".as_ref(),
            log.as_os_str(),
        ];
        let process = BenchProcess::start(Path::new("nginx"), arguments, &log)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut nginx = Self { process, address };
        while TcpStream::connect(address).is_err() {
            nginx.process.check()?;
            std::thread::yield_now();
        }
        Ok(nginx)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn hot_image<'a>(&'a self, path: &'a str) -> HotImage<'a> {
        HotImage {
            address: self.address,
            path,
            process: &self.process,
        }
    }
}
