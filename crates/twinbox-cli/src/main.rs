//! The program `twinbox`.
use std::process::ExitCode;

fn main() -> ExitCode {
    twinbox_cli::main()
}
