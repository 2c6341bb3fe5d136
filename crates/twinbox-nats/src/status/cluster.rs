//! The copies of a stream on the servers of a cluster.
use crate::{
    connect::Connection,
    error::Error,
    stream::{self, PEER_SILENCE_MAX},
};
use async_nats::jetstream::stream::{Info, PeerInfo};
use std::time::Duration;

/// How many operations a copy may be behind its leader on a busy server.
const LAG_MAX: u64 = 1000;
/// After which time is looked again at a copy that is behind.
const LAG_PAUSE: Duration = Duration::from_secs(1);

/// The cluster in which a stream is, and the copies of the stream there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamCluster {
    /// The name of the cluster.
    pub name: String,
    /// The server whose copy leads the others. None: too few of their servers run, and the stream neither
    /// takes nor gives messages.
    pub leader: Option<String>,
    /// The other copies.
    pub copies: Vec<StreamCopy>,
}

/// A copy of a stream that follows the leader's, as the leader reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamCopy {
    /// The name of its server.
    pub server: String,
    /// Whether the server is offline, or nobody has heard of the copy for 4 s.
    pub is_away: bool,
    /// How many operations the copy has been behind for a second. 0: as many as on any busy server, or none.
    pub lag: u64,
}

/// Returns the cluster of a stream, if it is in one. Looks again after a second if a copy is behind.
pub(super) async fn of(connection: &Connection, info: &Info) -> Result<Option<StreamCluster>, Error> {
    let Some(mut cluster) = read(info) else { return Ok(None) };
    if cluster.copies.iter().any(|copy| copy.lag > 0) {
        tokio::time::sleep(LAG_PAUSE).await;
        let later = stream::found(connection, &info.config.name).await?;
        let later = read(&later).map(|later| later.copies).unwrap_or_default();
        for copy in &mut cluster.copies {
            let same = later.iter().find(|later| later.server == copy.server);
            copy.lag = same.map_or(0, |later| later.lag.min(copy.lag));
        }
    }
    Ok(Some(cluster))
}

fn read(info: &Info) -> Option<StreamCluster> {
    let cluster = info.cluster.as_ref()?;
    let name = cluster.name.clone().filter(|name| !name.is_empty())?;
    Some(StreamCluster {
        name,
        leader: cluster.leader.clone().filter(|leader| !leader.is_empty()),
        copies: cluster.replicas.iter().map(copy).collect(),
    })
}

fn copy(peer: &PeerInfo) -> StreamCopy {
    StreamCopy {
        server: peer.name.clone(),
        is_away: peer.offline || peer.active > PEER_SILENCE_MAX,
        lag: peer.lag.filter(|lag| *lag > LAG_MAX).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_judged_by_its_lag_and_its_silence() {
        let peer = |offline, active, lag| {
            let name = "one".to_owned();
            copy(&PeerInfo {
                name,
                current: lag == 0,
                active: Duration::from_secs(active),
                offline,
                lag: Some(lag),
            })
        };
        let expected = |is_away, lag| StreamCopy { server: "one".to_owned(), is_away, lag };
        assert_eq!(peer(false, 1, 0), expected(false, 0));
        assert_eq!(peer(false, 1, 1000), expected(false, 0));
        assert_eq!(peer(false, 1, 1001), expected(false, 1001));
        assert_eq!(peer(false, 5, 0), expected(true, 0));
        assert_eq!(peer(true, 1, 2000), expected(true, 2000));
    }
}
