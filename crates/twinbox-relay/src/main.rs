//! The program `twinbox-relay`.
use std::process::ExitCode;

fn main() -> ExitCode {
    twinbox_relay::program::main()
}
