//! Makes dispatchers of side effects from the configuration.
mod credential;

use crate::{
    config::{Config, ConfigError},
    failure::Failure,
    https::{self, HttpsService},
    schemas::Schema,
};
use credential::{Credential, HttpsWithCredential};
use std::time::Duration;
use twinbox_effects::{Dispatcher, HttpVendor, VendorOptions};
use twinbox_sql::Dialect;

/// The shortest interval at which a dispatcher looks for due effects.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Makes the dispatcher of a schema. `None`: no vendor of the file gets effects of this schema.
pub(crate) fn dispatcher<DB: Dialect>(
    schema: &Schema<DB>,
    config: &Config,
) -> Result<Option<Dispatcher<DB>>, Failure> {
    let of_schema = config.vendors.keys().filter(|name| config.outbox_of_vendor(name) == schema.name);
    let mut dispatcher = None;
    for name in of_schema {
        let options = VendorOptions::new()
            .in_flight(config.vendors[name].in_flight)
            .timeout(config.vendors[name].timeout.0)
            .retries(config.vendor_retries(name)?);
        let new = || Dispatcher::new(&schema.store).poll(schema.idle_poll.max(LOOK_INTERVAL));
        dispatcher = Some(dispatcher.unwrap_or_else(new).vendor_with(vendor(name, config)?, options));
    }
    Ok(dispatcher)
}

/// Makes a vendor of the file.
pub(crate) fn vendor(name: &str, config: &Config) -> Result<HttpVendor<HttpsWithCredential>, Failure> {
    let configured = &config.vendors[name];
    let file = configured.credential_file.as_deref();
    let credential = file.map(|file| Credential::new(&configured.credential_header, file)).transpose()?;
    let service = HttpsWithCredential::new(HttpsService::new()?, credential);
    let vendor = HttpVendor::plain(name, configured.profile()?, &*configured.url, service)?;
    https::protection(&configured.url, configured.allow_plain).map_err(|refused| {
        ConfigError::new(format!("{refused}, or set `allow_plain = true` in `[vendors.{name}]`"))
    })?;
    Ok(vendor)
}
