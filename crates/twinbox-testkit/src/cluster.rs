//! A cluster of three NATS servers, whose members a test kills, freezes and cuts off from each other.
use crate::{
    proxy::Proxy,
    servers::{NatsOptions, NatsServer, ServerError, free_port},
};
use std::net::{Ipv4Addr, SocketAddr};

/// How many servers a cluster has.
pub const SERVERS: usize = 3;
/// How often other ports are tried, if another program takes one first.
const TRIES: usize = 5;
/// No member finds another one but by its proxies.
const UNREACHABLE: &str = "127.0.0.1:1";

/// A cluster of NATS servers with JetStream.
///
/// Each pair of members is connected by proxies. Dropping the cluster stops its servers and deletes their
/// streams.
#[derive(Debug)]
pub struct NatsCluster {
    servers: Vec<NatsServer>,
    routes: Vec<Route>,
}

/// The way of one member to another.
struct Route {
    from: usize,
    to: usize,
    proxy: Proxy,
}

impl NatsCluster {
    /// Starts three servers. They elect their leaders soon after.
    ///
    /// # Errors
    /// No server is found, or one does not start.
    pub async fn start() -> Result<Self, ServerError> {
        Self::start_with(NatsOptions::default()).await
    }

    /// Starts three servers with the same options, such as certificates and accounts for their clients.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_with(options: NatsOptions) -> Result<Self, ServerError> {
        let mut tries = 1;
        loop {
            match Self::try_start(&options).await {
                Err(_) if tries < TRIES => tries += 1,
                started => return started,
            }
        }
    }

    async fn try_start(options: &NatsOptions) -> Result<Self, ServerError> {
        let ports = [free_port()?, free_port()?, free_port()?];
        let (mut servers, mut routes) = (Vec::new(), Vec::new());
        for from in 0..SERVERS {
            for to in (0..SERVERS).filter(|to| *to != from) {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports[to]));
                let proxy = Proxy::start(address).await;
                let proxy = proxy.map_err(|source| ServerError::io("cannot start a proxy", source))?;
                routes.push(Route { from, to, proxy });
            }
        }
        for (number, port) in ports.into_iter().enumerate() {
            let ways = routes.iter().filter(|route| route.from == number);
            let ways = ways.map(|route| format!("\"nats://{}\"", route.proxy.address()));
            let options = options.clone().line(format!(
                "cluster {{ name: twinbox, listen: \"127.0.0.1:{port}\", advertise: {UNREACHABLE:?}, \
                 routes: [{}] }}\nlame_duck_duration: \"30s\"\nlame_duck_grace_period: \"1s\"",
                Vec::from_iter(ways).join(", ")
            ));
            // It takes some milliseconds, and a test has nothing else to do meanwhile.
            servers.push(NatsServer::start_with(options)?);
        }
        Ok(Self { servers, routes })
    }

    /// Returns the URLs of all members, separated by commas.
    pub fn url(&self) -> String {
        Vec::from_iter(self.servers.iter().map(NatsServer::url)).join(",")
    }

    /// Returns the members.
    pub fn servers(&self) -> &[NatsServer] {
        &self.servers
    }

    /// Returns a member, to kill it or to start it again.
    ///
    /// # Panics
    /// There is no member of that number.
    pub fn server(&mut self, number: usize) -> &mut NatsServer {
        &mut self.servers[number]
    }

    /// Returns the number of the member that has a name.
    pub fn number_of(&self, name: &str) -> Option<usize> {
        self.servers.iter().position(|server| server.name() == name)
    }

    /// Cuts a member off from the others, until [`rejoin`](Self::rejoin). Clients still reach it.
    pub fn cut_off(&self, number: usize) {
        self.routes_of(number).for_each(|route| route.proxy.cut());
    }

    /// Lets a member that was cut off find the others again.
    pub fn rejoin(&self, number: usize) {
        self.routes_of(number).for_each(|route| route.proxy.restore());
    }

    fn routes_of(&self, number: usize) -> impl Iterator<Item = &Route> {
        self.routes.iter().filter(move |route| route.from == number || route.to == number)
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Route").field("from", &self.from).field("to", &self.to).finish_non_exhaustive()
    }
}
