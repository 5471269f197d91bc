//! Random bytes from the operating system.

use std::fs::File;
use std::io::Read;

use trivet_model::Entropy;

/// The kernel's random source.
pub(crate) struct IpmiExampleEntropy(File);

impl IpmiExampleEntropy {
    pub(crate) fn open() -> std::io::Result<Self> {
        File::open("/dev/urandom").map(Self)
    }
}

impl Entropy for IpmiExampleEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        self.0
            .read_exact(out)
            .expect("the kernel's random source does not end");
    }
}
