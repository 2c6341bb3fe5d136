//! `twinbox` with crash points.
use std::process::ExitCode;

fn main() -> ExitCode {
    twinbox_cli::main()
}
