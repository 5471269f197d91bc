//! Records on flash.
