//! Another server takes over, whose ticks have ids that an earlier one has given.
use crate::support::{
    cases::cases,
    databases::MySql,
    stores::{TestDb as _, World},
};
use twinbox::Dialect as _;

async fn what_is_on_the_disk_of_one_server_is_not_taken_to_be_on_that_of_another() {
    let world = World::<MySql>::new().await;
    world.execute("REPLACE INTO twinbox_server_run (server_id, id) VALUES (@@server_id, 7)").await;
    let another_process = MySql::open(world.owner_url()).await;
    let mut conn = world.pool().acquire().await.unwrap();
    let tick = MySql::tick_now(&mut conn, another_process.engine().catalog()).await.unwrap().unwrap();
    let mut flushes_of_a_look = async || {
        let number = "SELECT number FROM twinbox_flushes";
        let before = world.number(number).await;
        let newest = MySql::newest_tick(&mut conn, world.engine().catalog(), tick - 1).await.unwrap();
        assert_eq!(newest, tick);
        world.number(number).await - before
    };
    assert_eq!([flushes_of_a_look().await, flushes_of_a_look().await], [1, 0]);
    world.execute("UPDATE twinbox_server_run SET id = 8").await;
    assert_eq!([flushes_of_a_look().await, flushes_of_a_look().await], [1, 0]);
    // Without a run nothing is known.
    world.execute("DELETE FROM twinbox_server_run").await;
    assert_eq!([flushes_of_a_look().await, flushes_of_a_look().await], [1, 1]);
}

cases! {
    mysql: [what_is_on_the_disk_of_one_server_is_not_taken_to_be_on_that_of_another]
}
