//! The manifests of Kubernetes: the job migrates, and the deployment is a relay that answers its probes.
//!
//! The test stands in for a cluster: it puts the volumes into a folder, and runs the commands of the
//! containers.
use super::container::{CONTAINERFILE, USER};
use crate::support::{
    helper,
    wait::{eventually, in_time},
};
use serde_json::{Value, json};
use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use twinbox_testkit::{
    servers::{NatsServer, PostgresServer, find},
    skipped,
};

const FILES: [&str; 4] = [
    include_str!("../../../../crates/twinbox-relay/kubernetes/configuration.yaml"),
    include_str!("../../../../crates/twinbox-relay/kubernetes/migrate.yaml"),
    include_str!("../../../../crates/twinbox-relay/kubernetes/relay.yaml"),
    include_str!("../../../../crates/twinbox-relay/kubernetes/network.yaml"),
];
/// How the URL of a role says that the certificate of the server is verified.
const VERIFIED: &str = "?sslmode=verify-full&sslrootcert=/etc/twinbox/ca.pem";
/// The program waits at most this long for what is in flight: the time-out of a vendor, if the file sets
/// none, and 10 s.
const DRAIN_SECONDS: u64 = 40;
const TO_JSON: &str = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)";

/// The documents of all files. None: there is no reader of YAML here.
fn manifests() -> Option<Vec<Value>> {
    let mut python = Command::new(find::python().ok()?);
    let mut python =
        python.args(["-c", TO_JSON]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    python.stdin.take().unwrap().write_all(FILES.join("\n---\n").as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

fn named<'m>(manifests: &'m [Value], kind: &str, name: &Value) -> &'m Value {
    let found = manifests.iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == *name);
    found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

/// A pod with its only container, whose files are in a folder.
struct Pod<'m> {
    spec: &'m Value,
    folder: TempDir,
}

impl<'m> Pod<'m> {
    /// `replaced`: what the servers here are called.
    fn new(manifests: &'m [Value], owner: &'m Value, replaced: &[(&str, String)]) -> Self {
        let pod = Self { spec: &owner["spec"]["template"]["spec"], folder: tempfile::tempdir().unwrap() };
        for volume in list(&pod.spec["volumes"]) {
            let mounts = list(&pod.container()["volumeMounts"]);
            let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]).expect("it is mounted");
            let files = match &volume["secret"] {
                Value::Null => &named(manifests, "ConfigMap", &volume["configMap"]["name"])["data"],
                secret => &named(manifests, "Secret", &secret["secretName"])["stringData"],
            };
            let mount = pod.here(text(&mount["mountPath"]));
            std::fs::create_dir_all(&mount).unwrap();
            for (name, content) in files.as_object().unwrap() {
                let replace = |text: String, (from, to): &(&str, String)| text.replace(from, to);
                let content = pod.here(&replaced.iter().fold(text(content).to_owned(), replace));
                std::fs::write(Path::new(&mount).join(name), content).unwrap();
            }
        }
        pod
    }

    fn container(&self) -> &'m Value {
        let [container] = list(&self.spec["containers"]) else { panic!("one container") };
        container
    }

    /// Paths of the pod as they are here.
    fn here(&self, text: &str) -> String {
        let folder = self.folder.path().display();
        text.replace("/run/secrets/", &format!("{folder}/secrets/"))
            .replace("/etc/", &format!("{folder}/etc/"))
    }

    fn command(&self) -> tokio::process::Command {
        let [program] = list(&self.container()["command"]) else { panic!("one program") };
        let name = text(program).strip_prefix("/usr/local/bin/").unwrap();
        assert!(CONTAINERFILE.contains(&format!("/release/{name} ")), "the image has {name}");
        let mut command = tokio::process::Command::new(helper::program(name));
        command.args(list(&self.container()["args"]).iter().map(|word| self.here(text(word)))).env_clear();
        for variable in self.container()["env"].as_array().into_iter().flatten() {
            command.env(text(&variable["name"]), text(&variable["value"]));
        }
        command.kill_on_drop(true);
        command
    }

    /// Has no rights that the program does not need.
    fn assert_confined(&self) {
        let (pod, container) = (&self.spec["securityContext"], &self.container()["securityContext"]);
        assert!(pod["runAsNonRoot"] == true && pod["runAsUser"] == USER && pod["fsGroup"] == USER, "{pod}");
        assert_eq!(container["readOnlyRootFilesystem"], true);
        assert_eq!(container["allowPrivilegeEscalation"], false);
        assert_eq!(container["capabilities"]["drop"][0], "ALL");
        assert_eq!(self.spec["automountServiceAccountToken"], false);
        assert!(self.container()["resources"]["limits"]["memory"].is_string());
    }

    /// The path and the port of a probe.
    fn probe(&self, name: &str) -> (&'m str, u64) {
        let get = &self.container()[name]["httpGet"];
        let ports = list(&self.container()["ports"]);
        let port = ports.iter().find(|port| port["name"] == get["port"]).expect("a port of the container");
        (text(&get["path"]), port["containerPort"].as_u64().unwrap())
    }
}

/// The status of an answer, once something listens there.
async fn status(port: u16, path: &str) -> u16 {
    let mut connection = eventually(async || TcpStream::connect(("127.0.0.1", port)).await.ok()).await;
    let request = format!("GET {path} HTTP/1.1\r\nhost: relay\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    in_time(connection.read_to_string(&mut answer)).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_migrates_and_the_deployment_is_a_relay_that_answers_its_probes() {
    let Some(manifests) = manifests() else {
        return skipped("manifests of Kubernetes: no Python with PyYAML; TWINBOX_PYTHON names one");
    };
    let (postgres, nats) = (PostgresServer::start().unwrap(), NatsServer::start().unwrap());
    let port = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port();
    let database = |user: &str| format!("postgres://{user}:secret@db.example.org/shop{VERIFIED}");
    let (owner, relay) = (database("owner"), database("shop_relay"));
    // The servers here have no TLS, which `relay::secure` tries.
    let replaced = [
        (owner.as_str(), postgres.url()),
        (relay.as_str(), postgres.url()),
        ("tls://nats.example.org:4222", nats.url()),
        ("ca_file = \"/etc/twinbox/ca.pem\"\n", String::new()),
        ("0.0.0.0:9464", format!("127.0.0.1:{port}")),
    ];
    let job = Pod::new(&manifests, named(&manifests, "Job", &"twinbox-migrate".into()), &replaced);
    job.assert_confined();
    let deployment = named(&manifests, "Deployment", &"twinbox-relay".into());
    let relay = Pod::new(&manifests, deployment, &replaced);
    relay.assert_confined();
    assert_eq!(relay.container()["image"], job.container()["image"]);
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert!(relay.spec["terminationGracePeriodSeconds"].as_u64().unwrap() > DRAIN_SECONDS);

    let migrated = in_time(job.command().output()).await.unwrap();
    assert!(migrated.status.success(), "{migrated:?}");
    let _running = relay.command().spawn().unwrap();
    for probe in ["livenessProbe", "readinessProbe"] {
        let (path, at) = relay.probe(probe);
        assert!(FILES[0].contains(&format!("listen = \"0.0.0.0:{at}\"")), "the program listens on {at}");
        eventually(async || (status(port, path).await == 200).then_some(())).await;
    }
}

/// The ports of the rules of a policy in one direction.
fn ports(rules: &Value) -> Vec<u64> {
    let ports = list(rules).iter().flat_map(|rule| list(&rule["ports"]));
    let mut ports = Vec::from_iter(ports.map(|port| port["port"].as_u64().unwrap()));
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[test]
fn the_network_policy_lets_monitoring_in_and_only_to_servers_out() {
    let Some(manifests) = manifests() else {
        return skipped("manifests of Kubernetes: no Python with PyYAML; TWINBOX_PYTHON names one");
    };
    let policy = &named(&manifests, "NetworkPolicy", &"twinbox-relay".into())["spec"];
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    let [selector] = list(&policy["podSelector"]["matchExpressions"]) else { panic!("{policy}") };
    assert_eq!((&selector["key"], &selector["operator"]), (&json!("app"), &json!("In")));
    for (kind, name) in [("Deployment", "twinbox-relay"), ("Job", "twinbox-migrate")] {
        let label = &named(&manifests, kind, &name.into())["spec"]["template"]["metadata"]["labels"]["app"];
        assert!(list(&selector["values"]).contains(label), "it is about the pods of {kind} {name}");
    }
    let [ingress] = list(&policy["ingress"]) else { panic!("{policy}") };
    let [from] = list(&ingress["from"]) else { panic!("{ingress}") };
    let namespace = &from["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"];
    assert_eq!(namespace, "monitoring");
    assert_eq!((ports(&policy["ingress"]), ports(&policy["egress"])), (vec![9464], vec![53, 4222, 5432]));
    for rule in list(&policy["egress"]) {
        // An empty peer would be everybody.
        let [to] = list(&rule["to"]) else { panic!("{rule}") };
        let is_one = |to: &Value| to["ipBlock"]["cidr"].as_str().is_some_and(|cidr| cidr.ends_with("/32"));
        let names = &to["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"];
        assert!(is_one(to) || names == "kube-system", "{rule}");
    }
}
