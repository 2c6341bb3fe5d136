//! The unit, as systemd itself judges it.
use super::UNIT;
use crate::support::helper;
use std::{ffi::OsStr, process::Command};
use twinbox_testkit::skipped;

const PROGRAM: &str = "/usr/local/bin/twinbox-relay";

/// The output of `systemd-analyze verify` for a unit. It also succeeds with unknown settings, which systemd
/// ignores.
fn verify(analyze: &OsStr, unit: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("twinbox-relay.service");
    std::fs::write(&file, unit).unwrap();
    let ran = Command::new(analyze).arg("verify").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    let found = said.lines().filter(|line| line.contains("twinbox-relay")).map(str::to_owned);
    let found = Vec::from_iter(found);
    assert!(ran.status.success() || !found.is_empty(), "{said}");
    found
}

#[test]
fn systemd_accepts_the_unit() {
    let Some(analyze) = std::env::var_os("TWINBOX_SYSTEMD_ANALYZE") else {
        return skipped("the unit: systemd-analyze is not there; TWINBOX_SYSTEMD_ANALYZE names it");
    };
    let installed = UNIT.replace(PROGRAM, helper::program("twinbox-relay").to_str().unwrap());
    assert_ne!(installed, UNIT);
    assert_eq!(verify(&analyze, &installed), [""; 0]);
    for (right, wrong) in [("WatchdogSec=", "WatchdogSecs="), ("Type=notify", "Type=ready")] {
        assert_eq!(verify(&analyze, &installed.replace(right, wrong)).len(), 1, "{wrong} is found");
    }
}
