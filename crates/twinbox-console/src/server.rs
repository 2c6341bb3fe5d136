//! The routes, and what every request passes on its way.
use crate::{
    access::{Identity, Principal, session_of},
    app::{App, Gate},
    assets, change,
    failure::Failure,
    frame::Visit,
    hosts,
    links::link,
    pages,
};
use axum::{
    Router,
    extract::{ConnectInfo, DefaultBodyLimit, Request, State},
    http::{HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use twinbox_ops::Dialect;

/// The longest time that a page may take.
const ANSWER: Duration = Duration::from_secs(20);
/// How long requests under way may take when the console is asked to stop.
const DRAIN: Duration = Duration::from_secs(5);
/// The largest form, in bytes.
const FORM_BYTES_MAX: usize = 64 * 1024;

const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // Forms need the origin for the check of changes.
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

pub(crate) async fn serve<DB: Dialect>(
    listener: TcpListener,
    app: Arc<App<DB>>,
    stop: CancellationToken,
) -> io::Result<()> {
    let changes = app.changes.clone();
    let service = router(app).into_make_service_with_connect_info::<SocketAddr>();
    let serving = axum::serve(listener, service).with_graceful_shutdown(stop.clone().cancelled_owned());
    let drained = async {
        serving.await?;
        changes.close();
        changes.wait().await;
        Ok(())
    };
    // A connection on which half a request has arrived would keep the server for ever.
    let patience = async {
        stop.cancelled().await;
        sleep(DRAIN).await;
    };
    tokio::select! {
        served = drained => served,
        () = patience => Ok(()),
    }
}

fn router<DB: Dialect>(app: Arc<App<DB>>) -> Router {
    let gate = app.gate.clone();
    Router::new()
        .route("/", get(pages::overview::page::<DB>))
        .route("/live", get(pages::overview::live::<DB>))
        .route("/dead-letters", get(pages::dead_letters::groups::<DB>))
        .route("/dead-letters/list", get(pages::dead_letters::list::<DB>))
        .route("/dead-letters/one", get(pages::dead_letters::one::<DB>))
        .route("/messages", get(pages::messages::page::<DB>))
        .route("/keys", get(pages::keys::page::<DB>))
        .route("/consumers", get(pages::consumers::page::<DB>))
        .route("/replays", get(pages::replays::page::<DB>))
        .route("/replays/live", get(pages::replays::live::<DB>))
        .route("/effects", get(pages::effects::page::<DB>))
        .route("/bulk-actions", get(pages::bulk_actions::page::<DB>))
        .route("/bulk-actions/live", get(pages::bulk_actions::live::<DB>))
        .route("/audit", get(pages::audit::page::<DB>))
        .route("/changes/{verb}", get(change::preview::<DB>).post(change::confirm::<DB>))
        .route("/login", get(pages::login::form).post(pages::login::log_in))
        .route("/logout", post(pages::login::log_out))
        .route("/assets/{file}", get(assets::file))
        .fallback(async || Failure::not_found("There is no such page."))
        .with_state(app)
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .layer(from_fn_with_state(gate, pass))
}

/// Lets a request in, or not, and adds what every answer has.
async fn pass(
    State(gate): State<Arc<Gate>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(gate.clone());
    let is_asset = request.uri().path().starts_with("/assets/");
    let is_change = request.method() == Method::POST && request.uri().path().starts_with("/changes/");
    let admitted = admit(&gate, peer, &request);
    if let Admission::Visitor(visit) = &admitted {
        request.extensions_mut().insert(visit.clone());
    }
    let mut response = match admitted {
        Admission::Refused(refused) => refused,
        Admission::Anybody | Admission::Visitor(_) => match timeout(ANSWER, next.run(request)).await {
            Ok(response) => response,
            Err(_) if is_change => Failure::in_doubt().into_response(),
            Err(_) => Failure::late().into_response(),
        },
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !is_asset {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// What becomes of a request.
enum Admission {
    /// The page is for everybody.
    Anybody,
    Visitor(Visit),
    Refused(Response),
}

/// Decides who asks.
fn admit(gate: &Gate, peer: SocketAddr, request: &Request) -> Admission {
    let (headers, path) = (request.headers(), request.uri().path());
    let refused = |text: &str| Admission::Refused(Failure::forbidden(text).into_response());
    if !hosts::is_ours(headers, &gate.access.hosts) {
        let page = Failure::forbidden("This name is not one of the console's: allow it with --host.");
        return Admission::Refused((StatusCode::MISDIRECTED_REQUEST, page).into_response());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) && !hosts::is_same_origin(headers) {
        return refused("The request does not come from a page of the console.");
    }
    if path.starts_with("/assets/") || path == "/login" {
        return Admission::Anybody;
    }
    let visitor = |principal: Principal, holder: &str, has_session| {
        Admission::Visitor(Visit { principal, holder: holder.to_owned(), has_session })
    };
    match &gate.access.identity {
        Identity::Loopback(principal) => visitor(principal.clone(), &principal.name, false),
        Identity::Proxy(proxy) => match proxy.principal(peer.ip(), headers) {
            Some(principal) => visitor(principal.clone(), &principal.name, false),
            None => refused("Nobody is logged in at the proxy."),
        },
        Identity::Tokens(_) => {
            let session = session_of(headers);
            // A page that refreshes itself does not keep a session.
            let is_use = !headers.contains_key("hx-request");
            match session.and_then(|id| Some((gate.sessions.principal(id, is_use)?, id))) {
                Some((principal, id)) => visitor(principal, id, true),
                None if *request.method() == Method::GET => Admission::Refused(to_login(request)),
                None => refused("The session has ended: log in again."),
            }
        }
    }
}

/// A part of a page sends the whole browser to the login.
fn to_login(request: &Request) -> Response {
    let here = request.uri().path_and_query().map_or("/", |here| here.as_str());
    if request.headers().contains_key("hx-request") {
        let away = HeaderValue::from_static("/login");
        return (StatusCode::UNAUTHORIZED, [(HeaderName::from_static("hx-redirect"), away)]).into_response();
    }
    Redirect::to(&link("/login", &[("next", here)])).into_response()
}
