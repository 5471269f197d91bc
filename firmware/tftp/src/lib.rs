//! TFTP transfers without input or output of their own.
