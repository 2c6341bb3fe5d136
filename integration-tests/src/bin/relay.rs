//! `twinbox-relay` with crash points.
use std::process::ExitCode;

fn main() -> ExitCode {
    twinbox_relay::program::main()
}
