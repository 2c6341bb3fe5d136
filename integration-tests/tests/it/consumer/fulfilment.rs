//! The example with two paths, against NATS and moto.
use crate::support::{cases::cases, database::empty_postgres};
use ::fulfilment::{Aws, Places, Report, run};
use twinbox_testkit::servers::{MotoServer, NatsServer};

/// R10, R11
async fn the_same_event_has_one_effect_on_each_path() {
    let database = empty_postgres().await;
    let moto = tokio::task::spawn_blocking(MotoServer::start).await.unwrap().unwrap();
    let nats = NatsServer::start().unwrap();
    let places = Places {
        database_url: database.url().to_owned(),
        nats_url: nats.url(),
        aws: Aws { region: "eu-west-1".to_owned(), endpoint_url: Some(moto.url()) },
    };
    for placed in [20, 40] {
        let report = run(20, &places).await.unwrap();
        assert_eq!(report, Report { placed, picks: placed, picked: placed, bills: placed, billed: placed });
        assert!(
            report.is_right() && report.to_string().contains("billed, by EventBridge and SQS"),
            "{report}"
        );
    }
}

cases! {
    postgres: [the_same_event_has_one_effect_on_each_path]
}
