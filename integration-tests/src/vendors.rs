//! The vendor on loopback of the tests of side effects.
use axum::{body::Bytes, http::Request};
use twinbox::effects::{
    Applied, ErrorCode, HttpVendor, LookUp, Recovery, ReqwestService, VendorError, VendorProfile,
    client::{Call, Client, ClientLayer},
    profiles,
};

/// The name by which effects choose the vendor.
pub const VENDOR: &str = "mail";
/// A vendor that is never called twice.
pub const AT_MOST_ONCE: VendorProfile = VendorProfile::new("at_most_once", Recovery::AtMostOnce);

/// Returns a profile by its name.
pub fn profile(name: &str) -> Option<&'static VendorProfile> {
    profiles::ALL.into_iter().chain([&AT_MOST_ONCE]).find(|profile| profile.name == name)
}

/// Returns the vendor behind a URL. Where the profile looks effects up, the vendor is asked for the id of the
/// effect, which the body holds.
///
/// # Errors
/// The client cannot be set up, or the URL is not absolute.
pub fn http_vendor(
    url: &str,
    profile: VendorProfile,
) -> Result<HttpVendor<ReqwestService>, Box<dyn std::error::Error>> {
    let looks_up = matches!(profile.recovery, Recovery::LookUp { .. });
    let service = ReqwestService::new(reqwest::Client::builder().no_proxy())?;
    let vendor = HttpVendor::new(VENDOR, profile, url, service)?;
    if !looks_up {
        return Ok(vendor);
    }
    let (client, url) = (reqwest::Client::builder().no_proxy().build()?, url.to_owned());
    Ok(vendor.look_up(move |call| {
        let asked = client.get(format!("{url}/acts?contains={}", call.effect.id)).send();
        Box::pin(async {
            match asked.await.map(|answer| answer.status().as_u16()) {
                Ok(200) => Ok(LookUp::Applied(Applied::new())),
                Ok(404) => Ok(LookUp::NotApplied),
                _ => Err(VendorError::not_sent(ErrorCode::Unavailable, "the vendor could not be asked")),
            }
        })
    }))
}

/// Returns a client of the vendor.
///
/// # Errors
/// The client cannot be set up.
pub fn client(profile: VendorProfile) -> Result<Client<ReqwestService>, Box<dyn std::error::Error>> {
    let service = ReqwestService::new(reqwest::Client::builder().no_proxy())?;
    Ok(ClientLayer::new(profile).client(service))
}

/// Returns the call that charges at the vendor behind a URL.
pub fn charge(url: &str) -> Call {
    let mut request = Request::new(Bytes::from_static(b"amount=100"));
    *request.method_mut() = axum::http::Method::POST;
    *request.uri_mut() = format!("{url}/v1/charges").parse().expect("the URL of a vendor");
    Call::new("charges.create", request)
}
