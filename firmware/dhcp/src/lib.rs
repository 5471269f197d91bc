//! DHCP: leases, pools, boot answers.
