//! Region, endpoint, credentials and time-outs: the settings that the clients of both services share.
use crate::error::Error;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use std::{ops::RangeInclusive, time::Duration};
use twinbox_core::{
    endpoint::{Endpoint, PlainRefused, Protection},
    limits,
};

/// How long an idle connection is kept. The services close their end after about a minute.
const IDLE_MAX: Duration = Duration::from_secs(20);
/// The shortest and the longest time-out that an option accepts.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(600);

/// Defines the setters for options with a field `client: ClientSettings`.
macro_rules! client_setting_methods {
    () => {
        /// Sets the AWS region. Default: the region in the ARN or the URL, else that of the environment or
        /// the profile.
        pub fn region(mut self, region: impl Into<String>) -> Self {
            self.client.region = Some(region.into());
            self
        }

        /// Sets another endpoint, `https://` or `http://`, for an emulator or a private endpoint. One with
        /// `http://` on another machine needs [`allow_plain`](Self::allow_plain). Default: the endpoint of
        /// the region.
        pub fn endpoint_url(mut self, url: impl Into<String>) -> Self {
            self.client.endpoint_url = Some(url.into());
            self
        }

        /// Sets whether the [`endpoint_url`](Self::endpoint_url) may lead to another machine without TLS.
        /// Default: no.
        pub fn allow_plain(mut self, allow_plain: bool) -> Self {
            self.client.allow_plain = allow_plain;
            self
        }

        /// Sets fixed AWS credentials, instead of those of the environment. Default: the SDK's chain of
        /// environment, profile, web identity, container and instance, which renews credentials before they
        /// expire.
        pub fn credentials(
            mut self,
            access_key_id: impl Into<String>,
            secret_access_key: impl Into<String>,
            session_token: Option<String>,
        ) -> Self {
            self.client.credentials = Some($crate::client_settings::StaticCredentials {
                access_key_id: access_key_id.into(),
                secret_access_key: secret_access_key.into(),
                session_token,
            });
            self
        }
    };
}
pub(crate) use client_setting_methods;

/// The settings that the options name. The SDK finds the others in its environment.
#[derive(Clone, Default)]
pub(crate) struct ClientSettings {
    pub(crate) region: Option<String>,
    pub(crate) endpoint_url: Option<String>,
    pub(crate) allow_plain: bool,
    pub(crate) credentials: Option<StaticCredentials>,
}

#[derive(Clone)]
pub(crate) struct StaticCredentials {
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: String,
    pub(crate) session_token: Option<String>,
}

impl ClientSettings {
    /// Loads the configuration of one client, with an HTTP client of its own, whose connections end with it.
    /// `default_region` applies if the options set none.
    pub(crate) async fn load(&self, default_region: Option<&str>) -> SdkConfig {
        let http = aws_smithy_http_client::Builder::new()
            .pool_idle_timeout(IDLE_MAX)
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .build_https();
        let mut config = aws_config::defaults(BehaviorVersion::v2026_01_12()).http_client(http);
        if let Some(region) = self.region.as_deref().or(default_region) {
            config = config.region(Region::new(region.to_owned()));
        }
        if let Some(url) = &self.endpoint_url {
            config = config.endpoint_url(url);
        }
        if let Some(fixed) = &self.credentials {
            let (id, secret) = (fixed.access_key_id.clone(), fixed.secret_access_key.clone());
            let token = fixed.session_token.clone();
            config = config.credentials_provider(Credentials::new(id, secret, token, None, "twinbox"));
        }
        config.load().await
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        if self.region.as_deref().is_some_and(|region| !is_region(region)) {
            return Err(Error::invalid("region", "must be letters, digits and `-`"));
        }
        if self.endpoint_url.as_deref().is_some_and(|url| !is_url(url)) {
            let problem = "must be `http://` or `https://` with a host and without a user";
            return Err(Error::invalid("endpoint_url", problem));
        }
        self.protection().map_err(|refused| {
            Error::invalid("endpoint_url", &format!("is refused: {refused}, or set `allow_plain`"))
        })?;
        let has_empty_key =
            |c: &StaticCredentials| c.access_key_id.is_empty() || c.secret_access_key.is_empty();
        if self.credentials.as_ref().is_some_and(has_empty_key) {
            return Err(Error::invalid("credentials", "has an empty key"));
        }
        Ok(())
    }

    /// Returns how requests to the endpoint are protected. Those to AWS have TLS.
    pub(crate) fn protection(&self) -> Result<Protection, PlainRefused> {
        match self.endpoint_url.as_deref().and_then(Endpoint::of_url) {
            Some(endpoint) => endpoint.allow_plain(self.allow_plain).protection("write `https://`"),
            None => Ok(Protection::Tls),
        }
    }
}

/// Checks time-outs, each with the name of its option.
pub(crate) fn validate_timeouts(timeouts: &[(&str, Duration)]) -> Result<(), Error> {
    match timeouts.iter().find(|(_, timeout)| !TIMEOUTS.contains(timeout)) {
        Some((option, _)) => Err(Error::invalid(option, "must be 10 ms to 10 min")),
        None => Ok(()),
    }
}

pub(crate) fn is_region(text: &str) -> bool {
    (1..=limits::NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

pub(crate) fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    rest.and_then(|rest| rest.split('/').next()).is_some_and(|host| {
        !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b))
    })
}
