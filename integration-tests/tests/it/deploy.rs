//! The files with which the relay is deployed, and the program under the managers that they are for.
mod container;
mod kubernetes;
mod systemd;
