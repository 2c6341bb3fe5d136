//! The console: the tests act through its pages, in a real browser, or send what a browser would not.
mod access;
mod acts;
mod databases;
mod filled;
mod hostile;
mod incidents;
mod lag;
mod outage;
mod people;
mod times;
mod working;

use super::shop;
